"""The durable list of row events that could not be decoded."""

from dataclasses import replace
from pathlib import Path

import pytest

from sluice.instance.quarantine import Item, Kept, Quarantine, keep_late, late_rows, path_of, read, read_kept, read_late
from sluice.protocol.canal import entry_pb2 as pb
from sluice.protocol.canal.packet_pb2 import Messages
from sluice.protocol.errors import ConfigError

ITEM = Item("101/binlog.000001@1700000000:4:2", "shop", "orders", 30, 1_700_000_001, 101, 80, "no such table", "00ff")
KEPT = Kept(30, b"\0body", b"description", b"header")


def test_items_are_read_back(tmp_path: Path) -> None:
    path = path_of(tmp_path, "example")
    quarantine = Quarantine(path)
    quarantine.add(ITEM)
    quarantine.sync()
    quarantine.add(replace(ITEM, position="101/binlog.000001@1700000000:4:3"))
    quarantine.sync()
    assert [item.position[-1] for item in read(path)] == ["2", "3"]
    assert read(path)[0] == ITEM


def test_rows_of_a_member_that_come_late_name_it_and_are_kept_under_its_place(tmp_path: Path) -> None:
    path = path_of(tmp_path, "example")
    item = replace(ITEM, position=f"a/{ITEM.position}")
    framed = Messages(messages=[pb.Entry(entryType=pb.ROWDATA).SerializeToString()]).SerializeToString()
    rows = late_rows(item, framed, b"\x04\x02")
    keep_late(path, [rows])
    assert read_late(path, {item.position}) == [rows]
    assert str(rows.position) == item.position
    (entry,) = Messages.FromString(rows.entries).messages
    found = {it.key: it.value for it in pb.Entry.FromString(entry).header.props}
    assert found == {"sluice.member": "a", "sluice.late": item.position}


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


@pytest.mark.parametrize("data", [b"{}\n", b"[1]\n", b"null\n", b"x\n", b"\xff\n", b"[" * 100_000 + b"\n"])
def test_a_file_without_such_a_list_is_named(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "quarantine.jsonl"
    path.write_bytes(data)
    with pytest.raises(ConfigError, match=r"quarantine\.jsonl is not a list of quarantined events"):
        read(path)


def test_the_bytes_of_an_event_are_kept_for_its_owner_only(tmp_path: Path) -> None:
    path = path_of(tmp_path, "example")
    quarantine = Quarantine(path, most=1000)
    quarantine.add(ITEM, KEPT)
    assert read_kept(path, ITEM.position) is None
    quarantine.sync()
    assert read_kept(path, ITEM.position) == KEPT
    assert read_kept(path, "elsewhere") is None
    assert [it.stat().st_mode & 0o777 for it in path.parent.iterdir()] == [0o600, 0o600]


def test_no_more_bytes_are_kept_than_configured_in_all_lives(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = path_of(tmp_path, "example")
    positions = [f"101/binlog.000001@1700000000:4:{n}" for n in range(4)]
    for position in positions:
        quarantine = Quarantine(path, most=2 * len(KEPT.body))
        quarantine.add(replace(ITEM, position=position), KEPT)
        quarantine.sync()
    assert [item.position for item in read(path)] == positions
    assert [read_kept(path, position) is not None for position in positions] == [True, True, False, False]
    assert "it has 5 bytes, and of sluice.instance.quarantine.maxBytes 0 are left" in caplog.text


def test_a_database_that_is_none_is_named_and_nothing_is_listed_without_its_bytes(tmp_path: Path) -> None:
    path = path_of(tmp_path, "example")
    path.parent.mkdir()
    path.with_suffix(".db").write_bytes(b"x" * 1000)
    with pytest.raises(OSError, match=r"quarantine\.db: file is not a database"):
        Quarantine(path, most=1000).add(ITEM, KEPT)
    assert read(path) == []
