"""What can be configured of a group: its own settings, and those of its members."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from sluice.instance.meta.base import InUse
from sluice.instance.quarantine import Item, Quarantine, path_of
from sluice.instance.sources.files.config import FilesConfig
from sluice.instance.sources.group.config import GroupConfig
from sluice.instance.sources.mysql.config import MysqlConfig
from sluice.protocol.cut import Cut
from sluice.protocol.errors import ConfigError
from sluice.protocol.position import Position
from sluice.server.config import Configuration
from sluice.server.config.warnings import find_warnings
from sluice.server.embedded.quarantine import listed
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
        ("sluice.group.order = column:", "sluice.group.order"),
        ("sluice.group.order = size", "sluice.group.order"),
        ("sluice.group.was = c", "one of the members"),
    ],
)
def test_a_mistake_is_named_with_its_member(tmp_path: Path, line: str, named: str) -> None:
    with pytest.raises(ConfigError) as refused:
        group(tmp_path, GROUP + line + "\n")
    assert named in str(refused.value)


def test_only_what_is_said_of_members_may_change_while_a_group_is_read(tmp_path: Path) -> None:
    before = group(tmp_path)
    other = GROUP.replace("its own", "new").replace("= a, b", "= b, c") + (
        "sluice.group.c.canal.instance.master.address = four\n"
    )
    assert before.goes_on_with(group(tmp_path, other))
    assert not before.goes_on_with(group(tmp_path, other + "sluice.group.order = column:id\n"))
    assert not before.goes_on_with(group(tmp_path, other + "canal.instance.filter.field = shop.t:x\n"))
    assert not before.goes_on_with(before.parts["a"])
    assert not before.goes_on_with(group(tmp_path, GROUP.replace("two", "three"))), "another server"


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
    merged = group(tmp_path, GROUP + "sluice.group.was = b\n")
    adopted = merged.adopt(single)
    assert adopted == Cursor.at(Cut({"b": place}), "b=0-7-5")
    assert group(tmp_path).adopt(adopted) is adopted
    prepared = Position.parse("7/binlog.000001@1:2:0")
    assert merged.adopt(replace(single, restart=prepared)).restart == Cut({"b": prepared})
    with pytest.raises(ConfigError, match="Canal has written the place"):
        merged.adopt(Cursor("binlog.000001", 4, 0, 7))


def test_the_place_of_a_client_of_a_group_goes_over_to_the_source_that_one_of_its_members_is(tmp_path: Path) -> None:
    one, other, prepared = (Position.parse(f"7/binlog.000001@1:{it}:0") for it in (4, 5, 2))
    merged = replace(Cursor.at(Cut({"a": one, "b": other}), "a=0-7-5;b=0-8-6"), restart=Cut({"b": prepared}))
    text = "canal.instance.master.address = one\ncanal.instance.dbUsername = reader\n"
    single = read(tmp_path, text).instance("orders")
    with pytest.raises(ConfigError, match=r"say which of its members this source is, by sluice\.group\.was"):
        single.adopt(merged)
    assert read(tmp_path, text + "sluice.group.was = a\n").instance("orders").adopt(merged) == Cursor.at(one, "0-7-5")
    of_b = read(tmp_path, text + "sluice.group.was = b\n").instance("orders").adopt(merged)
    assert of_b == replace(Cursor.at(other, "0-8-6"), restart=prepared)
    with pytest.raises(ConfigError, match="a place of a group"):
        read(tmp_path, text + "sluice.group.was = c\n").instance("orders").adopt(merged)


def test_the_member_that_a_single_source_was_keeps_what_that_has_written(tmp_path: Path) -> None:
    config = group(tmp_path, GROUP + "sluice.group.was = b\n")
    assert config.parts["b"].history_folder == config.history_folder
    assert config.parts["a"].history_folder != config.history_folder
    used = InUse("spare:3306")
    text = GROUP + "sluice.group.was = b\nsluice.group.b.canal.instance.standby.address = spare\n"
    a, b = group(tmp_path, text).using(used).parts.values()
    assert (a.in_use, b.in_use) == ("", "spare:3306")
    of_members = InUse(members={"b": used, "a": InUse("elsewhere:3306")})
    a, b = group(tmp_path, text).using(of_members).parts.values()
    assert (a.in_use, b.in_use) == ("", "spare:3306")


CANAL = """
canal.instance.master1.address = one:3307
canal.instance.master1.journal.name = mysql-bin.000007
canal.instance.master1.position = 4
canal.instance.standby1.address = spare:3306
canal.instance.master3.address = three
canal.instance.standby3.address =
canal.instance.master.address = 127.0.0.1:3306
canal.instance.dbUsername = canal
canal.instance.dbPassword = canal
canal.instance.filter.regex = shop\\\\..*
"""
BEANS = "canal.instance.global.spring.xml = classpath:spring/group-instance.xml\n"


def test_canals_group_has_a_member_for_each_numbered_source(tmp_path: Path) -> None:
    config = group(tmp_path, BEANS + CANAL)
    assert list(config.parts) == ["master1", "master3"]
    one, three = config.parts.values()
    assert isinstance(one, MysqlConfig)
    assert isinstance(three, MysqlConfig)
    assert [str(it.master_address) for it in (one, three)] == ["one:3307", "three:3306"]
    assert [it.standby_address and str(it.standby_address) for it in (one, three)] == ["spare:3306", None]
    assert [(it.master_journal_name, it.master_position) for it in (one, three)] == [
        ("mysql-bin.000007", 4),
        (None, None),
    ]
    assert {it.db_username for it in (one, three)} == {"canal"}
    assert (config.store, config.meta) == ("mixed", "file")
    assert not [it for it in find_warnings(read(tmp_path, BEANS + CANAL)) if "master" in it or "standby" in it]


def test_canals_group_keeps_cursors_in_zookeeper_if_there_is_one(tmp_path: Path) -> None:
    read(tmp_path, BEANS + CANAL)
    (tmp_path / "canal.properties").write_text("canal.destinations = orders\ncanal.zkServers = zk:2181\n")
    configuration = Configuration(tmp_path, {})
    assert configuration.instance("orders").meta == "period"
    assert configuration.implied("orders").endswith("sluice.instance.store = mixed and sluice.instance.meta = period")


def test_it_is_said_what_canals_group_implies_unless_it_is_written(tmp_path: Path) -> None:
    file = tmp_path / "orders" / "instance.properties"
    said = f"{file}:1: group-instance.xml implies"
    configuration = read(tmp_path, BEANS + CANAL)
    assert configuration.implied("orders") == f"{said} sluice.instance.store = mixed and sluice.instance.meta = file"
    configuration = read(tmp_path, BEANS + CANAL + "sluice.instance.store = memory\n")
    assert configuration.instance("orders").store == "memory"
    assert configuration.implied("orders") == f"{said} sluice.instance.meta = file"
    assert not read(tmp_path, GROUP).implied("orders")


def test_numbered_sources_may_stand_in_the_environment(tmp_path: Path) -> None:
    read(tmp_path, BEANS + CANAL)
    environ = {"SLUICE_INSTANCE_MASTER2_ADDRESS": "two:3308"}
    config = Configuration(tmp_path, environ).instance("orders")
    assert isinstance(config, GroupConfig)
    assert list(config.parts) == ["master1", "master2", "master3"]


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("canal.instance.standby2.address = x", "standby2.address needs canal.instance.master2.address"),
        ("canal.instance.master2.position = 4", "master2.position needs canal.instance.master2.address"),
        ("canal.instance.standby.address = x", "canal.instance.standby.address is of no source of group-instance.xml"),
        ("canal.instance.master.journal.name = x", "master.journal.name is of no source"),
        ("canal.instance.master65.address = x", "at most 64 sources"),
        ("canal.instance.master2.address = x:99999", "member master2: "),
    ],
)
def test_a_mistake_in_canals_group_is_named_with_its_key(tmp_path: Path, line: str, named: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(named)):
        group(tmp_path, BEANS + CANAL + line + "\n")


def test_canals_group_needs_a_source(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"group-instance\.xml needs canal\.instance\.master1\.address"):
        group(tmp_path, BEANS + "canal.instance.dbUsername = canal\n")


def test_numbered_sources_without_canals_group_have_no_effect(tmp_path: Path) -> None:
    text = (
        "canal.instance.master.address = one\ncanal.instance.dbUsername = canal\ncanal.instance.master2.address = two\n"
    )
    (warning,) = [it for it in find_warnings(read(tmp_path, text)) if "master2" in it]
    assert "only group-instance.xml reads it" in warning


def test_what_members_have_in_quarantine_is_listed_with_their_names(tmp_path: Path) -> None:
    config = group(tmp_path)
    for name, place in (("a", "1/binlog.000001@1:4:2"), ("b", "2/binlog.000007@1:9:2")):
        part = config.parts[name]
        quarantine = Quarantine(path_of(part.file_data_dir, part.destination))
        quarantine.add(Item(place, "shop", "orders", 30, 1, 1, 40, "it is cut off", ""))
        quarantine.sync()
    assert [str(Cut.parse(it.position)) for it in listed(config)] == [
        "a/1/binlog.000001@1:4:2",
        "b/2/binlog.000007@1:9:2",
    ]
