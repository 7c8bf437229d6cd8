"""Any value in a configuration is taken, or refused with its place: for every key."""

import contextlib
import typing
from pathlib import Path
from typing import Any

import annotated_types
import pytest
from pydantic.fields import FieldInfo

from sluice.instance.properties import Lookup, Property, parse_properties, read_properties
from sluice.instance.settings import Settings
from sluice.instance.sources.mysql.config import MysqlConfig
from sluice.protocol.errors import ConfigError
from sluice.server.config import Configuration, ServerConfig
from sluice.server.config.keys import KEYS
from sluice.server.config.warnings import find_warnings, understood
from sluice.server.fronts import FRONTS

MODELS: tuple[type[Settings], ...] = (ServerConfig, *FRONTS, MysqlConfig)

SOURCE = {"canal.instance.master.address": "127.0.0.1:3306", "canal.instance.dbUsername": "cdc"}

VALUES = {
    "infinite": "inf",
    "negative infinite": "-Infinity",
    "overflowing": "1e400",
    "not a number": "nan",
    "huge": "1e308",
    "tiny": "1e-308",
    "too many digits": "9" * 5000,
    "negative with too many digits": "-" + "9" * 5000,
    "more than 64 bits": str(1 << 64),
    "64 bits": str(1 << 63),
    "more than 32 bits": str(1 << 32),
    "negative": "-1",
    "zero": "0",
    "fraction": "0.5",
    "other digits": "٣٣",
    "hexadecimal": "0x10",
    "null": "null",
    "long": "x" * 70_000,
    "too long": "x" * ((1 << 20) + 1),
    "a long path": "a/" * 3000,
    "the way up": "../" * 3000,
    "the root": "/",
    "a device": "/dev/null",
    "NUL": "a\0b",
    "bytes that are not UTF-8": "a\udcffb",
    "beyond the BMP": "\U0001d7d9\U0001f600",
    "control characters": "a\nb\tc\x7f",
    "a huge range": "x{1-999999999999999999999999}",
    "a large range": "x{1-999999999}",
    "a range": "x{1-3}",
    "many names": "a," * 200,
    "an address beyond all ports": "[::1]:99999999999999999999",
    "an address of many digits": "db:" + "9" * 5000,
    "an empty label": "a..b",
    "a long label": "é" * 100,
    "an impossible offset": "+99:99",
    "a zone of many digits": "UTC+" + "9" * 100,
    "unclosed brackets": "((((",
    "a greedy pattern": "(a|a)*!" * 100,
    "a long pattern": r".*\..*," * 100,
    "an unclosed placeholder": "${a",
    "deep placeholders": "${" * 5000 + "}" * 5000,
    "itself": "${canal.instance.dbUsername}${canal.port}",
    "backslashes": "\\" * 99,
}


def understand(folder: Path, environ: dict[str, str]) -> None:
    """Do with a configuration all that needs no network."""
    configuration = Configuration(folder, environ)
    find_warnings(configuration)
    understood(configuration)
    configuration.check()
    assert len(configuration.server.names) <= 10_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shop").mkdir()
    (tmp_path / "canal.properties").write_text("canal.destinations = shop\n")
    (tmp_path / "shop" / "instance.properties").write_text("".join(f"{key} = {SOURCE[key]}\n" for key in SOURCE))
    return tmp_path


def refused(folder: Path, key: str, value: str) -> str:
    """What is said of a key's value by itself; empty when it is taken."""
    properties = {
        name: Property(text, "f:1") for name, text in (SOURCE | {"canal.instance.destination": "shop"}).items()
    }
    model = next(it for it in MODELS if key in it.fields_by_key() or it is MysqlConfig)
    try:
        model.fill(Lookup(properties, environ={key: value})([*properties, key]), folder)
    except ConfigError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("key", KEYS)
def test_every_value_of_every_key_is_taken_or_refused(key: str, folder: Path) -> None:
    taken = []
    for what, value in VALUES.items():
        complaint = refused(folder, key, value)
        assert len(complaint) < 20_000, what
        assert "\0" not in complaint, what
        if not complaint:
            taken.append(value)
    for value in sorted(taken, key=len)[:: max(1, len(taken) // 2)]:
        with contextlib.suppress(ConfigError):  # what is taken by itself need not fit the rest
            understand(folder, {key: value})


def test_a_configuration_that_is_refused_names_the_place(folder: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"environment variable sluice\.ha\.sessionTimeout: .*has to be a finite number"
    ):
        understand(folder, {"sluice.ha.sessionTimeout": VALUES["overflowing"]})
    with pytest.raises(ConfigError, match=r"canal\.instance\.network\.soTimeout: has to be 86400 or less"):
        understand(folder, {"canal.instance.network.soTimeout": VALUES["64 bits"]})


def numeric_fields() -> list[Any]:
    return [
        pytest.param(model, name, field, id=field.alias)
        for model in MODELS
        for name, field in model.model_fields.items()
        if {int, float} & {field.annotation, *typing.get_args(field.annotation)}
    ]


@pytest.mark.parametrize(("model", "name", "field"), numeric_fields())
def test_every_number_has_bounds(model: type[Settings], name: str, field: FieldInfo) -> None:
    del model, name
    bounds = {type(item) for item in field.metadata}
    assert bounds & {annotated_types.Ge, annotated_types.Gt}, field.alias
    assert bounds & {annotated_types.Le, annotated_types.Lt}, field.alias


def test_a_value_made_of_very_many_is_refused() -> None:
    """Each key stands for two of the next: 2 to the 60th pieces."""
    properties = {f"k{i}": Property(f"${{k{i + 1}}}${{k{i + 1}}}", f"f:{i}") for i in range(40)}
    properties["k40"] = Property("", "f:40")
    with pytest.raises(ConfigError, match=r"f:\d+: a value stands for too much: placeholders may be nested 50 deep"):
        Lookup(properties, environ={})(["k0"])


def test_a_value_that_grows_by_placeholders_is_bounded() -> None:
    properties = {"a": Property("x" * 1000, "f:1"), "b": Property("${a}" * 2000, "f:2")}
    with pytest.raises(ConfigError, match="f:2: b is longer than 1048576 characters"):
        Lookup(properties, environ={})(["b"])
    assert len(Lookup(properties | {"b": Property("${a}" * 1000, "f:2")}, environ={})(["b"])["b"].value) == 1_000_000


def test_a_line_that_goes_on_for_ever_is_read_in_time() -> None:
    text = "key = a\\\n" + "aaaaaaaaaaaaaaaaaaaa\\\n" * 100_000
    assert len(parse_properties(text, "f")["key"].value) == 2_000_001


def test_a_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "canal.properties"
    with path.open("wb") as file:
        file.truncate((16 << 20) + 1)
    with pytest.raises(ConfigError, match=r"canal\.properties has more than 16777216 bytes"):
        read_properties(path)
