"""Which rows changes touch, and what leaves that open."""

import struct

import pytest

from sluice.protocol import props
from sluice.protocol.canal.entry_pb2 import Entry, EntryType, EventType, RowChange
from sluice.protocol.canal.packet_pb2 import Messages
from sluice.protocol.canal.resultset import RowBlock, RowEncoder
from sluice.protocol.canal.touched import TouchedKeys
from sluice.protocol.errors import DecodeError

Key = tuple[str, str] | None


def change(
    before: Key, after: Key, *, table: str = "goods", event: EventType.ValueType = EventType.UPDATE, **more: str
) -> bytes:
    """A change of a row whose key is its first and third column."""
    entry = Entry(entryType=EntryType.ROWDATA)
    entry.header.schemaName, entry.header.tableName, entry.header.eventType = "shop", table, event
    for name, value in more.items():
        entry.header.props.add(key=f"sluice.{name}", value=value)
    rows = RowChange(eventType=event)
    row = rows.rowDatas.add()
    for key, columns in ((before, row.beforeColumns), (after, row.afterColumns)):
        for index, value in enumerate((key[0], "other", key[1]) if key is not None else ()):
            columns.add(index=index, name=f"c{index}", value=value, isKey=False)
    entry.storeValue = rows.SerializeToString()
    return Messages(messages=[entry.SerializeToString()]).SerializeToString()


def statement(event: EventType.ValueType, sql: str, *, is_ddl: bool = False) -> bytes:
    entry = Entry(entryType=EntryType.ROWDATA)
    entry.header.eventType = event
    entry.storeValue = RowChange(eventType=event, sql=sql, isDdl=is_ddl).SerializeToString()
    return Messages(messages=[entry.SerializeToString()]).SerializeToString()


def block(*keys: tuple[str, str]) -> RowBlock:
    """Rows that were read."""
    columns = [("a", "varchar(9)", True), ("b", "int", False), ("c", "varchar(9)", True)]
    encoder = RowEncoder("shop", "goods", columns, keys=(0, 2))
    for first, third in keys:
        row = b"".join(bytes([len(it)]) + it for it in (first.encode(), b"5", third.encode()))
        encoder.feed(struct.pack("<I", len(row))[:3] + b"\0" + row)
    found, _ = encoder.take_block()
    return found


def keys_of(rows: RowBlock) -> list[tuple[str, str]]:
    [framed] = Messages.FromString(rows.entry(1.5)).messages
    entry = Entry.FromString(framed)
    assert {it.key: it.value for it in entry.header.props} == {"rowsCount": str(len(rows))}
    images = [row.afterColumns for row in RowChange.FromString(entry.storeValue).rowDatas]
    return [(image[0].value, image[2].value) for image in images]


def touched() -> TouchedKeys:
    return TouchedKeys("shop", "goods", (0, 2))


def test_rows_are_left_out_that_a_change_has_in_its_image_before_or_after() -> None:
    rows = block(("a", "1"), ("b", "2"), ("c", "3"), ("d", "4"))
    keys = touched()
    keys.add(change(("b", "2"), ("d", "4")) + change(None, ("z", "9"), event=EventType.INSERT))
    keys.add(change(("a", "1"), None, event=EventType.DELETE))
    assert (len(keys), keys.broken) == (4, "")
    assert rows.leave_out(keys) == 3
    assert keys_of(rows) == [("c", "3")]
    assert rows.leave_out(keys) == 0
    assert len(rows) == 1


def test_rows_of_another_member_of_a_group_touch_nothing_and_its_statements_leave_nothing_open() -> None:
    keys = TouchedKeys("shop", "goods", (0, 2), member="north")
    keys.add(change(("a", "1"), ("b", "1"), member="south") + change(("c", "1"), ("d", "1"), member="north"))
    rows = block(("a", "1"), ("b", "1"), ("c", "1"))
    assert rows.leave_out(keys) == 1
    assert keys_of(rows) == [("a", "1"), ("b", "1")]
    ddl = Entry.FromString(Messages.FromString(statement(EventType.ALTER, "ALTER TABLE x", is_ddl=True)).messages[0])
    ddl.header.props.add(key=props.MEMBER, value="south")
    keys.add(Messages(messages=[ddl.SerializeToString()]).SerializeToString())
    assert keys.broken == ""


def test_a_key_is_all_its_columns_each_with_its_length() -> None:
    rows = block(("ab", "c"), ("a", "bc"), ("A", "bc"))
    keys = touched()
    keys.add(change(None, ("a", "bc"), event=EventType.INSERT))
    assert rows.leave_out(keys) == 1
    assert keys_of(rows) == [("ab", "c"), ("A", "bc")]


def test_rows_of_other_tables_touch_nothing() -> None:
    keys = touched()
    keys.add(change(("a", "1"), ("b", "1"), table="others") + change(("a", "1"), ("b", "1"), table="Goods"))
    assert len(keys) == 0
    same = TouchedKeys("SHOP", "goods", (0, 2), ignore_case=True)
    same.add(change(("a", "1"), ("b", "1"), table="Goods"))
    assert len(same) == 2


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (statement(EventType.ALTER, "ALTER TABLE x ADD y INT", is_ddl=True), "tables were changed by a statement"),
        (statement(EventType.TRUNCATE, "TRUNCATE x", is_ddl=True), "tables were changed by a statement"),
        (statement(EventType.UPDATE, "UPDATE goods SET c = 1"), "a change was logged as a statement"),
        (change(None, None, quarantine="no"), "changes are missing"),
        (change(None, None, gap="purged"), "changes are missing"),
    ],
)
def test_it_is_open_which_rows_are_touched_by(data: bytes, reason: str) -> None:
    keys = touched()
    keys.add(data)
    assert keys.broken == reason


def test_a_change_without_its_whole_key_or_row_leaves_it_open() -> None:
    keys = TouchedKeys("shop", "goods", (0, 5))
    keys.add(change(("a", "1"), ("b", "1")))
    assert keys.broken == "a change does not have the whole row"
    entry = Entry.FromString(Messages.FromString(change(("a", "1"), ("b", "1"))).messages[0])
    rows = RowChange.FromString(entry.storeValue)
    rows.props.add(key=props.ABSENT, value='["d"]')
    entry.storeValue = rows.SerializeToString()
    keys = touched()
    keys.add(Messages(messages=[entry.SerializeToString()]).SerializeToString())
    assert keys.broken == "a change does not have the whole row"


def test_the_text_of_a_statement_whose_rows_follow_and_the_ends_of_a_transaction_touch_nothing() -> None:
    keys = touched()
    begin = Entry(entryType=EntryType.TRANSACTIONBEGIN).SerializeToString()
    keys.add(Messages(messages=[begin]).SerializeToString() + statement(EventType.QUERY, "UPDATE goods SET a = 1"))
    assert (len(keys), keys.broken) == (0, "")


def test_too_many_keys_leave_it_open_and_bytes_that_are_no_entries_are_refused() -> None:
    keys = TouchedKeys("shop", "goods", (0, 2), most=2)
    keys.add(change(("a", "1"), ("b", "1")))
    broken = [keys.broken]
    keys.add(change(("c", "1"), ("d", "1")))
    assert [*broken, keys.broken] == ["", "too many rows were changed"]
    with pytest.raises(DecodeError):
        touched().add(b"\x12\x7f\x01")
