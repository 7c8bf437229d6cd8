"""The configuration reference and the shipped files say what the models say."""

import re
from pathlib import Path

import pytest

from scripts import generate_configuration
from sluice.instance.config import InstanceConfig
from sluice.instance.properties import read_properties
from sluice.instance.sources.mysql.config import BinlogConfig, MysqlConfig
from sluice.server.config import Configuration, ServerConfig
from sluice.server.config.keys import KEYS
from sluice.server.config.warnings import find_warnings

CONF = Path(__file__).resolve().parents[2] / "conf"


def test_the_page_is_up_to_date() -> None:
    assert generate_configuration.PAGE.read_text() == generate_configuration.page(), (
        "run python scripts/generate_configuration.py"
    )


@pytest.mark.parametrize("key", KEYS)
def test_every_key_is_described(key: str) -> None:
    assert re.search(
        rf"^\*\*`{re.escape(key)}`\*\*\\\n\w.{{10}}", generate_configuration.PAGE.read_text(), re.MULTILINE
    )


@pytest.mark.parametrize("model", [ServerConfig, InstanceConfig, BinlogConfig, MysqlConfig])
def test_every_setting_stands_under_a_heading(model: type[ServerConfig]) -> None:
    text = "".join(generate_configuration.sections(model))
    assert len(generate_configuration.headings_of(model)) == text.count("\n### ") >= 2


def test_the_shipped_files_can_be_used_and_have_no_key_without_effect() -> None:
    configuration = Configuration(CONF, {"SLUICE_INSTANCE_TIME_ZONE": "UTC"})
    assert configuration.destinations() == ["example"]
    assert find_warnings(configuration) == []
    configuration.check()


def test_what_the_shipped_files_comment_out_are_known_keys() -> None:
    for file in (CONF / "canal.properties", CONF / "example" / "instance.properties"):
        commented = re.findall(r"^#([\w.]+) =", file.read_text(), re.MULTILINE)
        assert commented
        assert set(commented) | read_properties(file).keys() <= set(KEYS)
