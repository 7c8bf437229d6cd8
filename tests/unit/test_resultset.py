"""Rows of the text protocol to Canal's entries."""

import struct
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.protocol.canal.arrow import EnvelopeDecoder
from sluice.protocol.canal.entry_pb2 import INSERT, ROWDATA, Entry, RowChange
from sluice.protocol.canal.packet_pb2 import Messages
from sluice.protocol.canal.resultset import RowEncoder
from sluice.protocol.errors import DecodeError

COLUMNS = [("id", "int", True), ("name", "varchar(20)", False), ("data", "blob", False)]
FULL = 0xFFFFFF
END = b"\xfe\0\0\2\0"


def value(data: bytes | None) -> bytes:
    if data is None:
        return b"\xfb"
    size = len(data)
    if size < 0xFB:
        return bytes([size]) + data
    if size < 1 << 16:
        return b"\xfc" + struct.pack("<H", size) + data
    return b"\xfd" + struct.pack("<I", size)[:3] + data if size < 1 << 24 else b"\xfe" + struct.pack("<Q", size) + data


def packets(*payloads: bytes) -> bytes:
    """Each payload in as many packets as it needs."""
    found = b""
    for payload in payloads:
        for start in range(0, len(payload) + 1, FULL):
            part = payload[start : start + FULL]
            found += struct.pack("<I", len(part))[:3] + b"\0" + part
    return found


def row(*values: bytes | None) -> bytes:
    return b"".join(map(value, values))


def images(messages: bytes) -> list[dict[str, str | None]]:
    return [dict(image) for image in EnvelopeDecoder().decode(messages).column("after").to_pylist()]


def test_rows_become_an_entry_of_canal() -> None:
    encoder = RowEncoder("shop", "goods", COLUMNS, extra=1)
    encoder.feed(packets(row(b"1", "ž".encode(), b"\0\xff", b"X"), row(b"2", None, b"", None), END))
    assert encoder.is_finished
    assert encoder.error is None
    assert encoder.rows == 2
    messages, last = encoder.take(1.5)
    assert last == [None]
    [framed] = Messages.FromString(messages).messages
    entry = Entry.FromString(framed)
    header = entry.header
    assert (header.schemaName, header.tableName, header.executeTime) == ("shop", "goods", 1500)
    assert (entry.entryType, header.eventType) == (ROWDATA, INSERT)
    change = RowChange.FromString(entry.storeValue)
    assert change.eventType == INSERT
    assert not change.isDdl
    first, second = (list(data.afterColumns) for data in change.rowDatas)
    assert [(it.index, it.name, it.isKey, it.mysqlType, it.isNull, it.updated, it.value) for it in first] == [
        (0, "id", True, "int", False, True, "1"),
        (1, "name", False, "varchar(20)", False, True, "ž"),
        (2, "data", False, "blob", False, True, "\0ÿ"),
    ]
    assert [(it.isNull, it.value) for it in second] == [(False, "2"), (True, ""), (False, "")]
    assert encoder.take(2) == (b"", [None])


VALUES = st.none() | st.binary(max_size=300)


@settings(deadline=None)
@given(rows=st.lists(st.tuples(VALUES, VALUES), max_size=8), cuts=st.lists(st.integers(0, 5000), max_size=8))
def test_the_stream_of_packets_may_be_cut_anywhere(
    rows: list[tuple[bytes | None, bytes | None]], cuts: list[int]
) -> None:
    encoder = RowEncoder("s", "t", [("c", "varbinary(300)", False)], extra=1)
    data = packets(*(row(*values) for values in rows), END)
    found = b""
    last: list[bytes | None]
    for start, stop in pairwise([0, *sorted(min(place, len(data)) for place in cuts), len(data)]):
        encoder.feed(data[start:stop])
        if start % 2:
            messages, last = encoder.take(0)
            found += messages
    messages, last = encoder.take(0)
    assert encoder.is_finished
    texts = [image["c"] for image in images(found + messages)]
    assert texts == [None if first is None else first.decode("latin-1") for first, _ in rows]
    assert last == ([rows[-1][1]] if rows else [])


@pytest.mark.parametrize("size", [FULL - 5, FULL - 4, FULL, 2 * FULL + 100])
def test_a_row_may_take_several_packets(size: int) -> None:
    encoder = RowEncoder("s", "t", COLUMNS)
    text = b"x" * size
    data = packets(row(b"1", text, None), row(b"2", None, None), END)
    for start in range(0, len(data), 1 << 20):
        encoder.feed(data[start : start + (1 << 20)])
    first, second = images(encoder.take(0)[0])
    assert first == {"id": "1", "name": text.decode(), "data": None}
    assert second["id"] == "2"


@pytest.mark.parametrize(
    ("kind", "selected", "text"),
    [
        ("float", b"0.10000000149011612", "0.1"),
        ("float", b"3.4028234663852886e38", "3.4028235E38"),
        ("float", b"-0", "-0.0"),
        ("double", b"0.1", "0.1"),
        ("double", b"1e20", "1.0E20"),
        ("double(10,2)", b"5", "5.0"),
        ("varchar(5)", b"a\xffb", "a\ufffdb"),
        ("varchar(5)", b"\xf0\x9f\x98!", "\ufffd!"),  # what is replaced takes as many bytes
        ("decimal(5,2)", b"1.50", "1.50"),
    ],
)
def test_texts_are_those_of_canal(kind: str, selected: bytes, text: str) -> None:
    encoder = RowEncoder("s", "t", [("c", kind, False)])
    encoder.feed(packets(row(selected)))
    assert images(encoder.take(0)[0]) == [{"c": text}]


def test_an_error_ends_a_result() -> None:
    encoder = RowEncoder("s", "t", COLUMNS)
    encoder.feed(packets(row(b"1", b"", b""), b"\xff\x25\x05#70100query was interrupted"))
    assert encoder.is_finished
    assert encoder.rows == 1
    assert encoder.error == b"\xff\x25\x05#70100query was interrupted"


@pytest.mark.parametrize(
    "payload",
    [
        row(b"1", b"2"),
        row(b"1", b"2", b"3", b"4"),
        row(b"1", b"2", b"3")[:-1],
        b"\x01",
        b"",
        b"\xfd\xff\xff\xff",
    ],
)
def test_bytes_that_are_not_a_row_of_the_columns_are_an_error(payload: bytes) -> None:
    encoder = RowEncoder("shop", "goods", COLUMNS)
    with pytest.raises(DecodeError, match=r"shop\.goods"):
        encoder.feed(packets(payload))


def test_nothing_may_follow_a_result() -> None:
    encoder = RowEncoder("shop", "goods", COLUMNS)
    with pytest.raises(DecodeError, match=r"shop\.goods"):
        encoder.feed(packets(END, END))


def test_text_instead_of_a_number_is_an_error() -> None:
    encoder = RowEncoder("shop", "goods", [("c", "double", False)])
    with pytest.raises(DecodeError, match="'x' is not a floating-point number"):
        encoder.feed(packets(row(b"x")))


@pytest.mark.parametrize(
    ("mysql_type", "text", "sql_type"),
    [
        ("tinyint unsigned", "127", -6),
        ("tinyint unsigned", "128", 5),
        ("smallint(5) unsigned zerofill", "32768", 4),
        ("int", "-2147483648", 4),
        ("int unsigned", "2147483648", -5),
        ("bigint unsigned", "9223372036854775807", -5),
        ("bigint unsigned", "9223372036854775808", 3),
        ("decimal(5,2)", "1.50", 3),
        ("bit(8)", "255", -7),
        ("enum('a')", "1", 4),
        ("set('a')", "1", -7),
        ("year", "2026", 12),
        ("char(3)", "a", 1),
        ("varchar(3)", "a", 12),
        ("text", "a", 2005),
        ("varbinary(3)", "a", 2004),
        ("point", "a", 2004),
        ("json", "{}", 12),
        ("uuid", "a", 1),
    ],
)
def test_a_value_has_the_type_that_it_has_in_a_change(mysql_type: str, text: str, sql_type: int) -> None:
    encoder = RowEncoder("shop", "goods", [("a", mysql_type, False)], indexes=[7])
    encoder.feed(packets(row(text.encode()), row(None), END))
    [framed] = Messages.FromString(encoder.take(1)[0]).messages
    [[value], [null]] = [it.afterColumns for it in RowChange.FromString(Entry.FromString(framed).storeValue).rowDatas]
    assert (value.index, value.sqlType, value.value) == (7, sql_type, text)
    assert (null.index, null.isNull) == (7, True)


@pytest.mark.parametrize(("mysql_type", "sql_type"), [("json", 1111), ("set('a')", 2004), ("int unsigned", 4)])
def test_null_has_the_type_that_it_has_in_a_change(mysql_type: str, sql_type: int) -> None:
    encoder = RowEncoder("shop", "goods", [("a", mysql_type, False)])
    encoder.feed(packets(row(None), END))
    [framed] = Messages.FromString(encoder.take(1)[0]).messages
    [[null]] = [it.afterColumns for it in RowChange.FromString(Entry.FromString(framed).storeValue).rowDatas]
    assert null.sqlType == sql_type


BERLIN = ((0, 3600), (1_774_746_000, 7200))  # since 29 March 2026, 01:00 UTC


@pytest.mark.parametrize(
    ("utc", "local"),
    [
        ("2026-03-29 00:59:59", "2026-03-29 01:59:59"),
        ("2026-03-29 01:00:00.250", "2026-03-29 03:00:00.250"),
        ("2026-12-31 23:30:00.123456", "2027-01-01 01:30:00.123456"),
        ("1970-01-01 00:00:01", "1970-01-01 01:00:01"),
        ("2024-02-29 23:00:00", "2024-03-01 00:00:00"),
        ("0000-00-00 00:00:00", "0000-00-00 00:00:00"),
    ],
)
def test_a_timestamp_is_written_in_the_zone_of_the_destination(utc: str, local: str) -> None:
    encoder = RowEncoder("shop", "goods", [("a", "timestamp(6)", False)], zone=BERLIN)
    encoder.feed(packets(row(utc.encode()), END))
    assert images(encoder.take(1)[0]) == [{"a": local}]
