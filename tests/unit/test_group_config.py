"""What can be configured of a group: its own settings, and those of its members."""

from pathlib import Path

import pytest

from sluice.instance.sources.files.config import FilesConfig
from sluice.instance.sources.group.config import GroupConfig
from sluice.instance.sources.mysql.config import MysqlConfig
from sluice.protocol.cut import Cut
from sluice.protocol.errors import ConfigError
from sluice.protocol.position import Position
from sluice.server.config import Configuration
from sluice.server.config.warnings import find_warnings
from sluice.store.cursor import Cursor

GROUP = """
sluice.instance.source = group
sluice.group.members = a, b
canal.instance.dbUsername = reader
canal.instance.dbPassword = common
canal.instance.filter.regex = shop\\\\..*
sluice.group.a.canal.instance.master.address = one:3307
sluice.group.b.canal.instance.master.address = two
sluice.group.b.canal.instance.dbPassword = its own
"""


def read(folder: Path, text: str) -> Configuration:
    (folder / "orders").mkdir(exist_ok=True)
    (folder / "canal.properties").write_text("canal.destinations = orders\n")
    (folder / "orders" / "instance.properties").write_text(text)
    return Configuration(folder, {})


def group(folder: Path, text: str = GROUP) -> GroupConfig:
    config = read(folder, text).instance("orders")
    assert isinstance(config, GroupConfig)
    return config


def test_a_member_has_its_own_settings_and_those_of_the_group(tmp_path: Path) -> None:
    config = group(tmp_path)
    a, b = config.parts["a"], config.parts["b"]
    assert isinstance(a, MysqlConfig)
    assert isinstance(b, MysqlConfig)
    assert [str(it.master_address) for it in (a, b)] == ["one:3307", "two:3306"]
    assert [it.db_password.get_secret_value() for it in (a, b)] == ["common", "its own"]
    assert [it.db_username for it in (a, b)] == ["reader", "reader"]
    assert [it.filter_regex for it in (config, a, b)] == [r"shop\..*"] * 3
    assert {"common", "its own"} <= set(config.secrets())


def test_members_keep_what_they_write_in_folders_of_their_own(tmp_path: Path) -> None:
    config = group(tmp_path)
    folders = {it.history_folder for it in (config, *config.parts.values())}
    assert len(folders) == 3
    assert all(it.is_relative_to(config.history_folder) for it in folders)
    assert [it.destination for it in config.parts.values()] == ["orders.a", "orders.b"]


def test_a_member_can_be_of_another_kind(tmp_path: Path) -> None:
    more = "sluice.group.b.sluice.instance.source = files\nsluice.group.b.sluice.instance.files.folder = logs\n"
    text = GROUP.replace("sluice.group.b.canal", "# ") + more
    b = group(tmp_path, text).parts["b"]
    assert isinstance(b, FilesConfig)
    assert b.folder == tmp_path / "logs"


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("sluice.group.members = a, a", "twice"),
        ("sluice.group.members = a b", "not the name"),
        ("sluice.group.members = " + ",".join(f"m{i}" for i in range(65)), "sluice.group.members"),
        ("sluice.group.members = a, b, c", "member c: canal.instance.master.address"),
        ("sluice.group.a.canal.instance.filter.regex = x", "of the group"),
        ("sluice.group.a.sluice.instance.source = group", "'mysql'"),
        ("sluice.group.b.canal.instance.master.address = two:99999", "member b: "),
        ("sluice.group.window = 5", "10 or more"),
        ("sluice.group.was = c", "one of the members"),
        ("sluice.instance.store = mixed", "log on disk"),
    ],
)
def test_a_mistake_is_named_with_its_member(tmp_path: Path, line: str, named: str) -> None:
    with pytest.raises(ConfigError) as refused:
        group(tmp_path, GROUP + line + "\n")
    assert named in str(refused.value)


def test_the_keys_of_members_are_known_and_others_are_warned_of(tmp_path: Path) -> None:
    assert not [it for it in find_warnings(read(tmp_path, GROUP)) if "group" in it or "instance.db" in it]
    wrong = "sluice.group.c.canal.instance.master.address = three\n"
    assert [it for it in find_warnings(read(tmp_path, GROUP + wrong)) if "sluice.group.c" in it]


def test_what_shapes_the_entries_of_a_member_is_part_of_the_shape(tmp_path: Path) -> None:
    before = group(tmp_path).shape()
    more = "sluice.group.a.canal.instance.gtidon = true\n"
    after = group(tmp_path, GROUP + more).shape()
    changed = {key for key in after if before.get(key) != after[key]}
    assert changed == {"sluice.group.a.canal.instance.gtidon"}
    assert before.keys() == after.keys()


def test_the_place_of_a_client_goes_over_to_the_member_that_the_source_was(tmp_path: Path) -> None:
    place = Position.parse("7/binlog.000001@1:4:0")
    single = Cursor.at(place, "0-7-5")
    with pytest.raises(ConfigError, match=r"sluice\.group\.was"):
        group(tmp_path).adopt(single)
    adopted = group(tmp_path, GROUP + "sluice.group.was = b\n").adopt(single)
    assert adopted == Cursor.at(Cut({"b": place}), "b=0-7-5")
    assert group(tmp_path).adopt(adopted) is adopted
    with pytest.raises(ConfigError, match="a place of a group"):
        group(tmp_path).parts["a"].adopt(adopted)
