"""The compiled reader of entries says what a plain one says, and refuses other bytes."""

import sys
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typing_extensions import Buffer

from sluice.protocol.canal.entry_pb2 import (
    INSERT,
    ROWDATA,
    UPDATE,
    Column,
    Entry,
    EntryType,
    EventType,
    Header,
    RowChange,
    TransactionBegin,
    TransactionEnd,
)
from sluice.protocol.canal.packet_pb2 import Messages
from sluice.protocol.canal.rows import Row, decode_changes, decode_rows, envelope, occurs_in_header
from sluice.protocol.canal.types import JsonExpression, labels_of
from sluice.protocol.errors import DecodeError
from tests.effort import times
from tests.unit.entries import among_others, entries, frame, mutated, plain_rows


def plain(row: Row) -> tuple[Any, Any, tuple[str, ...]]:
    return row.before, row.after, row.changed


def insert(mysql_type: str, sql_type: int, value: str | None) -> bytes:
    """A framed entry of one row with the column c."""
    change = RowChange(eventType=INSERT)
    column = Column(name="c", mysqlType=mysql_type, sqlType=sql_type, isNull=value is None, value=value or "")
    change.rowDatas.add().afterColumns.append(column)
    header = Header(schemaName="shop", tableName="goods", eventType=INSERT)
    return frame([Entry(header=header, entryType=ROWDATA, storeValue=change.SerializeToString())])


@given(st.lists(entries(), max_size=5), st.integers(1, 5), st.booleans())
@settings(max_examples=times(40, 200))
def test_rows_equal_those_of_a_plain_reader(batch: list[Entry], width: int, null_dates: bool) -> None:
    data = frame(batch, width)
    expected = [plain_rows(entry, null_dates=null_dates) for entry in batch if entry.entryType == ROWDATA]
    invalid_dates: Any = "null" if null_dates else "text"
    changes = decode_changes(data, invalid_dates=invalid_dates)
    assert [[plain(row) for row in change.rows()] for change in changes if change.entry_type == "ROWDATA"] == expected
    assert [plain(row) for row in decode_rows(data, invalid_dates=invalid_dates)] == [
        row for rows in expected for row in rows
    ]


@given(entries())
def test_an_entry_is_read_as_by_protobuf(entry: Entry) -> None:
    (change,) = decode_changes(frame([entry]))
    header = entry.header
    assert change.entry_type == EntryType.Name(entry.entryType)
    assert change.type == (EventType.Name(header.eventType) if header.eventType else "")
    assert (change.schema, change.table, change.gtid) == (header.schemaName, header.tableName, header.gtid)
    assert (change.logfile_name, change.logfile_offset) == (header.logfileName, header.logfileOffset)
    assert (change.server_id, change.execute_time) == (header.serverId, header.executeTime)
    assert change.event_length == header.eventLength
    assert change.header_props == {pair.key: pair.value for pair in header.props}
    assert change.raw == entry.storeValue
    if entry.entryType == ROWDATA:
        body = RowChange.FromString(entry.storeValue)
        assert (change.sql, change.is_ddl, change.ddl_schema) == (body.sql, body.isDdl, body.ddlSchemaName)
        assert change.props == {pair.key: pair.value for pair in body.props}
        assert (change.transaction_id, change.thread_id) == ("", 0)
    else:
        assert change.rows() == []
        assert change.thread_id == TransactionBegin.FromString(entry.storeValue).threadId
        assert change.transaction_id == TransactionEnd.FromString(entry.storeValue).transactionId


@pytest.mark.parametrize(
    ("mysql_type", "sql_type", "text", "value"),
    [
        ("bigint unsigned", 3, "18446744073709551615", 2**64 - 1),
        ("bigint", -5, "-9223372036854775808", -(2**63)),
        ("bit(1)", -7, "1", 1),
        ("year", 12, "0000", 0),
        ("decimal(10,2)", 3, "-5.10", Decimal("-5.10")),
        ("double", 8, "1.0E-4", 1e-4),
        ("double", 8, "-Infinity", float("-inf")),
        ("date", 91, "2024-02-29", date(2024, 2, 29)),
        ("date", 91, "0000-00-00", "0000-00-00"),
        ("datetime(3)", 93, "2024-02-29 23:59:59.120", datetime(2024, 2, 29, 23, 59, 59, 120_000)),  # noqa: DTZ001
        ("datetime(1)", 93, "0000-00-00 00:00:00.0", "0000-00-00 00:00:00.0"),
        ("time(2)", 92, "-00:00:00.50", timedelta(microseconds=-500_000)),
        ("time", 92, "838:59:59", timedelta(hours=838, minutes=59, seconds=59)),
        ("text", 2005, "", ""),
        ("varbinary(4)", 2004, "\x00\x80\xffA", b"\x00\x80\xffA"),
        ("binary(4)", 2004, "\x01 ", b"\x01 \x00\x00"),
        ("json", 12, '{"a": [1, 2.5, null, "x"]}', {"a": [1, 2.5, None, "x"]}),
        ("enum('a','b')", 4, "2", "b"),
        ("enum('a','b')", 4, "0", ""),
        ("set('a','b','c')", -7, "5", frozenset({"a", "c"})),
        ("set('a','b','c')", 2004, None, None),
        ("int", 4, None, None),
        ("some_new_type", 1111, "text", "text"),
        ("", 4, "7", 7),
    ],
)
def test_a_value_has_the_python_type_of_its_column(
    mysql_type: str, sql_type: int, text: str | None, value: Any
) -> None:
    (row,) = decode_rows(insert(mysql_type, sql_type, text))
    assert row.after == {"c": value}
    assert type(row.after["c"]) is type(value)


def test_a_partial_update_of_json_is_marked_as_an_expression() -> None:
    (row,) = decode_rows(insert("json", 12, "JSON_REPLACE(`c`, '$.a', 1)"))
    assert row.after == {"c": "JSON_REPLACE(`c`, '$.a', 1)"}
    assert isinstance(row.after["c"], JsonExpression)


@pytest.mark.parametrize(
    ("mysql_type", "sql_type", "text"),
    [
        ("int", 4, ""),
        ("int", 4, "-"),
        ("int", 4, "1x"),
        ("bigint", -5, "1" * 21),
        ("bigint", -5, "1234567890123456789x"),
        ("decimal(3,1)", 3, "1.2.3"),
        ("decimal(3,1)", 3, "1-2"),
        ("decimal(3,1)", 3, "NaN"),
        ("double", 8, "one"),
        ("date", 91, "2024-1-1"),
        ("date", 91, "2024-01-01 00:00:00"),
        ("date", 91, "2024/01/01"),
        ("datetime", 93, "2024-01-01"),
        ("datetime", 93, "2024-01-01 00:00:00."),
        ("datetime", 93, "2024-01-01 00:00:00.1234567"),
        ("time", 92, "1:00:00"),
        ("time", 92, "00:00:0a"),
        ("blob", 2004, "Ā"),
        ("json", 12, "{"),
        ("json", 12, "[" * 100_000),
        ("enum('a')", 4, "2"),
        ("enum('a')", 4, "-1"),
        ("enum('a'", 4, "1"),
        ("set('a')", -7, "2"),
    ],
)
def test_a_value_that_does_not_fit_its_type_is_an_error(mysql_type: str, sql_type: int, text: str) -> None:
    changes = decode_changes(insert(mysql_type, sql_type, text))
    with pytest.raises(DecodeError, match=r"^shop\.goods\.c: not a value of the type |^not the type of an ENUM"):
        changes[0].rows()


def test_the_error_of_a_value_names_its_column() -> None:
    with pytest.raises(DecodeError, match=r"shop\.goods\.c: .* int"):
        decode_rows(insert("int", 4, "x"))


def test_the_key_of_an_update_is_the_one_before() -> None:
    change = RowChange(eventType=UPDATE)
    row = change.rowDatas.add()
    row.beforeColumns.add(name="id", isKey=True, mysqlType="int", value="1")
    row.beforeColumns.add(name="v", mysqlType="int", value="3")
    row.afterColumns.add(name="id", isKey=True, mysqlType="int", value="2", updated=True)
    header = Header(schemaName="s", tableName="t", eventType=UPDATE)
    data = frame([Entry(header=header, entryType=ROWDATA, storeValue=change.SerializeToString())])
    (decoded,) = decode_rows(data)
    assert decoded.key == {"id": 1}
    assert (decoded.schema, decoded.table, decoded.type, decoded.changed) == ("s", "t", "UPDATE", ("id",))
    assert decoded.change.table == "t"


@given(st.lists(entries(), max_size=3), st.integers(-1, 2**63 - 1), texts := st.text(max_size=20), texts)
def test_a_whole_message_is_read_like_its_entries(batch: list[Entry], batch_id: int, first: str, last: str) -> None:
    message = Messages(batch_id=batch_id, messages=[entry.SerializeToString() for entry in batch])
    message.from_position, message.to_position = first, last
    data = message.SerializeToString()
    assert envelope(data) == (batch_id, first, last)
    assert [change.raw for change in decode_changes(data)] == [entry.storeValue for entry in batch]


def test_a_text_is_found_in_a_header_only() -> None:
    entry = Entry(header=Header(tableName="goods"), entryType=ROWDATA, storeValue=b"orders")
    data = frame([Entry(header=Header(tableName="lines")), entry])
    assert [occurs_in_header(data, text) for text in (b"goods", b"lines", b"orders")] == [True, True, False]


def read_everything(data: Buffer) -> list[object]:
    """What is in the bytes, or why they are refused."""
    try:
        found: list[object] = [envelope(data), occurs_in_header(data, b"?")]
        for change in decode_changes(data):
            found += [change.gtid, change.header_props, change.props, change.sql, change.is_ddl, change.transaction_id]
            found += map(repr, (change, *change.rows()))
    except DecodeError as error:
        return [str(error)]
    return found


@given(st.lists(entries(), min_size=1, max_size=3), st.data())
@settings(max_examples=times(50, 500))
def test_broken_bytes_are_an_error_or_harmless(batch: list[Entry], data: st.DataObject) -> None:
    broken = mutated(data, frame(batch))
    part = broken[: data.draw(st.just(len(broken)) | st.integers(0, len(broken)))]
    assert read_everything(part) == read_everything(among_others(part))


@given(st.binary(max_size=200))
def test_noise_is_an_error_or_harmless(data: bytes) -> None:
    assert read_everything(data) == read_everything(among_others(data))


def test_every_cut_of_a_batch_is_an_error() -> None:
    data = insert("int", 4, "7")
    for size in range(1, len(data)):
        with pytest.raises(DecodeError):
            decode_changes(data[:size])


@pytest.mark.parametrize("wrong", [b"\x80a", b"\xc2a", b"\xff\x80"])
def test_a_byte_string_that_is_not_utf8_is_an_error(wrong: bytes) -> None:
    data = insert("blob", 2004, "ÿ").replace("ÿ".encode(), wrong)
    with pytest.raises(DecodeError, match="not a value of the type blob"):
        list(decode_rows(data))


def test_a_change_keeps_its_bytes_alive() -> None:
    (change,) = decode_changes(bytearray(insert("text", 2005, "kept")))
    rows = change.rows()
    assert rows[0].after == {"c": "kept"}


def test_the_option_for_dates_is_checked() -> None:
    option: Any = "zero"
    with pytest.raises(ValueError, match="invalid_dates"):
        decode_changes(b"", invalid_dates=option)


def test_decoding_leaks_no_references() -> None:
    data = insert("varchar(9)", 12, "value")
    decode_rows(data)
    before = sys.getrefcount(data)
    for _ in range(100):
        decode_rows(data)
    assert sys.getrefcount(data) == before


@pytest.mark.parametrize(
    ("mysql_type", "labels"),
    [
        ("enum('a','b')", ("a", "b")),
        ("ENUM('a', 'b') CHARACTER SET latin1", ("a", "b")),
        ("set('')", ("",)),
        ("enum('it''s','x,y','(z)')", ("it's", "x,y", "(z)")),
        (r"enum('back\\slash','line\nend')", ("back\\slash", "line\nend")),
    ],
)
def test_labels_are_those_between_the_quotes(mysql_type: str, labels: tuple[str, ...]) -> None:
    assert labels_of(mysql_type) == labels


@pytest.mark.parametrize("mysql_type", ["enum", "enum(", "enum()", "enum('a'", "enum('a' 'b')", "enum(a)"])
def test_a_type_without_labels_is_refused(mysql_type: str) -> None:
    with pytest.raises(DecodeError, match="not the type of an ENUM or SET"):
        labels_of(mysql_type)
