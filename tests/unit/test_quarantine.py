"""The durable list of row events that could not be decoded."""

from dataclasses import replace
from pathlib import Path

import pytest

from sluice.instance.quarantine import Item, Quarantine, path_of, read
from sluice.protocol.errors import ConfigError

ITEM = Item("101/binlog.000001@1700000000:4:2", "shop", "orders", 30, 1_700_000_001, 101, 80, "no such table", "00ff")


def test_items_are_read_back(tmp_path: Path) -> None:
    path = path_of(tmp_path, "example")
    quarantine = Quarantine(path)
    quarantine.add(ITEM)
    quarantine.sync()
    quarantine.add(replace(ITEM, position="101/binlog.000001@1700000000:4:3"))
    quarantine.sync()
    assert [item.position[-1] for item in read(path)] == ["2", "3"]
    assert read(path)[0] == ITEM


def test_a_position_is_listed_once_in_all_lives(tmp_path: Path) -> None:
    path = path_of(tmp_path, "example")
    for _ in range(2):
        quarantine = Quarantine(path)
        quarantine.add(ITEM)
        quarantine.add(ITEM)
        quarantine.sync()
        assert len(quarantine) == 1
    assert read(path) == [ITEM]


def test_nothing_is_written_without_an_item(tmp_path: Path) -> None:
    quarantine = Quarantine(path_of(tmp_path, "example"))
    quarantine.sync()
    assert list(tmp_path.iterdir()) == []


def test_a_line_that_a_crash_cut_is_repaired(tmp_path: Path) -> None:
    path = path_of(tmp_path, "example")
    quarantine = Quarantine(path)
    quarantine.add(ITEM)
    quarantine.sync()
    path.write_text(path.read_text() + '{"position": "101/bin')
    assert read(path) == [ITEM]
    quarantine = Quarantine(path)
    quarantine.add(replace(ITEM, position="101/binlog.000001@1700000000:9:3"))
    quarantine.sync()
    assert len(read(path)) == 2


@pytest.mark.parametrize("data", [b"{}\n", b"[1]\n", b"null\n", b"x\n", b"\xff\n"])
def test_a_file_without_such_a_list_is_named(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "quarantine.jsonl"
    path.write_bytes(data)
    with pytest.raises(ConfigError, match=r"quarantine\.jsonl is not a list of quarantined events"):
        read(path)
