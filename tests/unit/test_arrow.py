"""Entries become Arrow record batches with the values that a plain reader finds, or a DecodeError."""

import json
import re
import struct
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typing_extensions import Buffer

from sluice.protocol import props
from sluice.protocol.canal.arrow import EnvelopeDecoder, TableDecoder, arrow_type, columns_of
from sluice.protocol.canal.entry_pb2 import (
    DELETE,
    INSERT,
    QUERY,
    ROWDATA,
    UPDATE,
    Column,
    Entry,
    EventType,
    Header,
    RowChange,
)
from sluice.protocol.canal.packet_pb2 import Messages
from sluice.protocol.canal.rows import decode_rows
from sluice.protocol.errors import BadParameterError, DecodeError, SchemaMismatchError
from tests.decoding import binlogs, dump
from tests.decoding import decode as decode_binlog
from tests.effort import times
from tests.unit.entries import (
    among_others,
    encode_change,
    entries,
    frame,
    length_delimited,
    mutated,
    plain_value,
    plain_xa,
    varint,
)

Columns = list[tuple[str, str]]
META = ["_pos", "_gtid", "_ts", "_op", "_xa"]


def change_of(kind: "EventType.ValueType", *rows: tuple[list[Column], list[Column]], table: str = "goods") -> Entry:
    """An entry of rows, each an image before and one after."""
    change = RowChange(eventType=kind)
    for before, after in rows:
        change.rowDatas.add(beforeColumns=before, afterColumns=after)
    header = Header(
        schemaName="shop", tableName=table, eventType=kind, executeTime=1_700_000_000_123, logfileName="bin.000012"
    )
    header.props.add(key="curtGtid", value="0-1-7")
    return Entry(header=header, entryType=ROWDATA, storeValue=encode_change(change, True))


def column(name: str, mysql_type: str, value: str | None, *, key: bool = False, updated: bool = False) -> Column:
    return Column(
        name=name, mysqlType=mysql_type, isNull=value is None, value=value or "", isKey=key, updated=updated, sqlType=12
    )


def insert(mysql_type: str, *values: str | None, name: str = "c") -> bytes:
    return frame([change_of(INSERT, *(([], [column(name, mysql_type, value)]) for value in values))])


def decode(data: bytes, mysql_type: str, **options: Any) -> list[Any]:
    """The values of the column c."""
    batch = TableDecoder("shop", "goods", [("c", mysql_type)], **options).decode(data)
    batch.validate(full=True)
    values: list[Any] = batch.column("c").to_pylist()
    return values


# Parity with a plain reader


def changes_in(batch: list[Entry]) -> Iterator[tuple[Entry, RowChange]]:
    for entry in batch:
        if entry.entryType == ROWDATA and entry.header.eventType in (INSERT, UPDATE, DELETE):
            yield entry, RowChange.FromString(entry.storeValue)


def plain_text(it: Column) -> str | None:
    return None if it.isNull else it.value


def plain_texts(image: Iterable[Column]) -> list[tuple[str, str | None]] | None:
    return [(it.name, plain_text(it)) for it in image] or None


def plain_key(image: Iterable[Column]) -> list[str | None]:
    return [plain_text(it) for it in image if it.isKey]


def plain_envelopes(change: RowChange, *, split: bool) -> Iterator[dict[str, Any]]:
    """Operation, key and images of each row."""
    operation = EventType.Name(change.eventType)
    for number, row in enumerate(change.rowDatas):
        before, after = list(row.beforeColumns), list(row.afterColumns)
        columns = {it.index: it for it in before} | {it.index: it for it in after}
        merged = [it for _, it in sorted(columns.items())]
        is_new = any(it.isKey for it in before) and any(it.isKey and it.updated for it in after)
        rows = [(operation, before if operation == "DELETE" else after, before, after)]
        if operation == "UPDATE" and split and is_new:
            rows = [("DELETE", before, before, []), ("INSERT", merged, [], merged)]
        elif operation == "UPDATE" and len(plain_key(after)) < len(plain_key(before)):
            rows = [("UPDATE", merged, before, after)]
        for op, image, old, new in rows:
            yield {
                "_op": op,
                "_key": plain_key(image) or None,
                "before": plain_texts(old),
                "after": plain_texts(new),
                "row": number,
            }


def plain_arrow(it: Column) -> Any:
    """As plain_value, in what pyarrow makes of the Arrow types."""
    value = None if it.isNull else plain_value(it, null_dates=True)
    word = it.mysqlType.split("(")[0].split()[0]
    if word == "json" and not it.isNull:
        return it.value or "null"
    if word == "decimal" and not it.isNull:
        return it.value
    if value is None:
        return None
    match word:
        case "set":
            return [label for label in ("a", "it's", "x,y", "", "(ü)") if label in value]
        case "time":
            return value // timedelta(microseconds=1)
        case "timestamp":
            return value.replace(tzinfo=UTC)
        case "float":
            return struct.unpack("f", struct.pack("f", value))[0]
        case "bit":
            return Decimal(value)
        case "bigint" if "unsigned" in it.mysqlType:
            return Decimal(value)
    return value


def plain_rows(change: RowChange, names: list[str], *, split: bool) -> Iterator[tuple[str, list[Any]]]:
    """Operation and values, in the order of the names."""
    for row in change.rowDatas:
        before = {it.name: plain_arrow(it) for it in row.beforeColumns}
        after = {it.name: plain_arrow(it) for it in row.afterColumns}
        operation = EventType.Name(change.eventType)
        image = before if change.eventType == DELETE else before | after
        if change.eventType == UPDATE and split:
            new_key = any(it.isKey and it.updated for it in row.afterColumns)
            if new_key and any(it.isKey for it in row.beforeColumns):
                yield "DELETE", [before.get(name) for name in names]
                operation = "INSERT"
        yield operation, [image.get(name) for name in names]


def position_of(number: int, row: int) -> dict[str, int | None]:
    return {"member": None, "file": number * 999_999, "begin": 1 << 33 | number, "n": number, "row": row}


@given(st.lists(entries(), max_size=5), st.booleans(), st.integers(1, 5), st.booleans())
@settings(max_examples=times(40, 200))
def test_an_envelope_has_the_texts_of_all_tables(
    batch: list[Entry], has_positions: bool, width: int, split: bool
) -> None:
    for number, entry in enumerate(batch):
        entry.header.executeTime = number * 1001
        entry.header.logfileName = f"mysql-bin.{number * 999_999:06d}"
        entry.header.props.add(key="curtGtid", value=f"0-1-{number}")
    data = frame(batch, width)
    positions = b"".join(varint(1 << 33 | number) + varint(number) for number in range(len(batch)))
    if has_positions:
        data = length_delimited(103, positions) + data
    expected = [
        {
            "_pos": position_of(number, row.pop("row")) if has_positions else None,
            "_gtid": f"0-1-{number}",
            "_ts": datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=number * 1001),
            "_schema": entry.header.schemaName,
            "_table": entry.header.tableName,
            "_xa": plain_xa(entry),
            **{name: row[name] for name in ("_op", "_key", "before", "after")},
        }
        for number, entry in enumerate(batch)
        for _, change in changes_in([entry])
        for row in plain_envelopes(change, split=split)
    ]
    decoder = EnvelopeDecoder(split_keys=split)
    decoded = decoder.decode(data)
    decoded.validate(full=True)
    assert decoded.to_pylist() == expected
    assert decoded.schema.equals(decoder.schema, check_metadata=True)


@given(st.lists(entries(), max_size=4), st.integers(1, 5), st.booleans())
@settings(max_examples=times(60, 300))
def test_a_table_has_the_values_in_the_types_of_its_columns(batch: list[Entry], width: int, split: bool) -> None:
    for number, entry in enumerate(batch):
        entry.header.tableName = f"t{number}"
        entry.header.schemaName = "shop"
    data = frame(batch, width)
    for entry, change in changes_in(batch):
        columns = {it.name: it.mysqlType for row in change.rowDatas for it in (*row.beforeColumns, *row.afterColumns)}
        if any(name in META for name in columns):
            continue
        decoder = TableDecoder(
            "shop", entry.header.tableName, columns.items(), missing_columns="null", split_keys=split
        )
        cells = [it for row in change.rowDatas for it in (*row.beforeColumns, *row.afterColumns)]
        if any(it.mysqlType == "json" and it.value.startswith("J") and not it.isNull for it in cells):
            with suppress(DecodeError):  # one that is not written does not matter
                decoder.decode(data)
            continue
        decoded = decoder.decode(data)
        decoded.validate(full=True)
        assert decoded.schema == pa.schema(
            [*list(decoder.schema)[: len(META)], *(pa.field(name, arrow_type(kind)) for name, kind in columns.items())]
        )
        rows = list(plain_rows(change, list(columns), split=split))
        assert [(row["_op"], [row[name] for name in columns]) for row in decoded.to_pylist()] == rows
        assert decoded.column("_xa").to_pylist() == [plain_xa(entry)] * len(rows)


@given(st.lists(entries(), max_size=3))
def test_the_columns_of_a_table_are_found_in_its_rows(batch: list[Entry]) -> None:
    for number, entry in enumerate(batch):
        entry.header.tableName = f"t{number}"
    for entry, change in changes_in(batch):
        first = change.rowDatas[0]
        expected = {it.index: (it.name, it.mysqlType) for it in (*first.beforeColumns, *first.afterColumns)}
        found = columns_of(frame(batch), entry.header.schemaName, entry.header.tableName)
        assert found == [expected[index] for index in sorted(expected)]


@pytest.mark.parametrize("server", ["mysql-5.6", "mysql-9.7", "mariadb-11.8"])
def test_captured_binlogs_have_the_rows_that_the_reader_of_rows_finds(server: str, tmp_path: Path) -> None:
    data = decode_binlog(dump(binlogs(server, tmp_path))).data
    rows = decode_rows(data)
    envelope = EnvelopeDecoder(split_keys=False).decode(data).to_pylist()
    assert [(it["_op"], it["_schema"], it["_table"]) for it in envelope] == [
        (it.type, it.schema, it.table) for it in rows
    ]
    for name in ("before", "after"):
        images = [getattr(row, name) for row in rows]
        assert [it[name] and [key for key, _ in it[name]] for it in envelope] == [it and list(it) for it in images]
    tables = {(row.schema, row.table) for row in rows}
    assert tables
    for schema, table in tables:
        columns = [it for it in columns_of(data, schema, table) if not it[1].startswith("json")]
        decoder = TableDecoder(schema, table, columns, split_keys=False, missing_columns="null")
        found = decoder.decode(data).select([name for name, _ in columns]).to_pylist()
        mine = [row for row in rows if (row.schema, row.table) == (schema, table)]
        expected = [(row.before or {}) | (row.after or {}) for row in mine]
        assert found == [{name: image.get(name) for name, _ in columns} for image in expected]


# Types


@pytest.mark.parametrize(
    ("mysql_type", "expected"),
    [
        ("tinyint(1)", pa.int8()),
        ("tinyint(3) unsigned", pa.int16()),
        ("smallint", pa.int16()),
        ("smallint unsigned", pa.int32()),
        ("mediumint", pa.int32()),
        ("mediumint(8) unsigned", pa.int32()),
        ("INT(11)", pa.int32()),
        ("int(6) zerofill", pa.int64()),
        ("bigint(20)", pa.int64()),
        ("bigint(20) unsigned", pa.decimal128(20, 0)),
        ("bit(1)", pa.int8()),
        ("bit(63)", pa.int64()),
        ("bit(64)", pa.decimal128(20, 0)),
        ("year(4)", pa.int16()),
        ("decimal(38,30)", pa.decimal128(38, 30)),
        ("decimal(10)", pa.decimal128(10, 0)),
        ("decimal(39,0)", pa.string()),
        ("float", pa.float32()),
        ("double unsigned", pa.float64()),
        ("date", pa.date32()),
        ("datetime(6)", pa.timestamp("us")),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("time(3)", pa.int64()),
        ("varchar(10)", pa.string()),
        ("longtext", pa.string()),
        ("json", pa.string()),
        ("uuid", pa.string()),
        ("enum('a')", pa.string()),
        ("set('a')", pa.list_(pa.string())),
        ("varbinary(9)", pa.binary()),
        ("blob", pa.binary()),
        ("geometry", pa.binary()),
        ("vector(3)", pa.binary()),
    ],
)
def test_a_column_type_has_an_arrow_type(mysql_type: str, expected: pa.DataType) -> None:
    assert arrow_type(mysql_type) == expected
    field = TableDecoder("s", "t", [("c", mysql_type)]).schema.field("c")
    assert field == pa.field("c", expected, nullable=True)


@pytest.mark.parametrize(
    ("mysql_type", "text", "value"),
    [
        ("tinyint", "-128", -128),
        ("tinyint unsigned", "255", 255),
        ("bigint", "-9223372036854775808", -(2**63)),
        ("bigint unsigned", "18446744073709551615", Decimal(2**64 - 1)),
        ("decimal(10,2)", "5.0", Decimal("5.00")),
        ("decimal(10,2)", "-5.1000", Decimal("-5.10")),
        ("decimal(38,0)", "-" + "9" * 38, Decimal("-" + "9" * 38)),
        ("decimal(38,38)", "0." + "9" * 38, Decimal("0." + "9" * 38)),
        ("decimal(65,30)", "1.50", "1.50"),
        ("double", "-Infinity", float("-inf")),
        ("double", "4.9E-324", 5e-324),
        ("date", "0001-01-01", date(1, 1, 1)),
        ("date", "9999-12-31", date(9999, 12, 31)),
        ("date", "1900-02-29", None),
        ("date", "2000-02-29", date(2000, 2, 29)),
        ("date", "0000-00-00", None),
        ("datetime(1)", "1000-01-01 00:00:00.1", datetime(1000, 1, 1, 0, 0, 0, 100_000)),  # noqa: DTZ001
        ("timestamp", "0000-00-00 00:00:00", None),
        ("time", "-838:59:59", -3_020_399_000_000),
        ("time(6)", "-00:00:00.000001", -1),
        ("json", "", "null"),
        ("enum('a','b')", "0", ""),
        ("set('a','b','c')", "5", ["a", "c"]),
        ("set('a')", "0", []),
        ("set(" + ",".join(f"'m{i}'" for i in range(64)) + ")", str(1 << 63 | 1), ["m0", "m63"]),
        ("varbinary(4)", "\x00\x80\xff", b"\x00\x80\xff"),
        ("binary(4)", "\x01 ", b"\x01 \x00\x00"),
        ("BINARY", "", b"\x00"),
    ],
)
def test_a_value_is_exact(mysql_type: str, text: str, value: Any) -> None:
    assert decode(insert(mysql_type, text, None), mysql_type) == [value, None]


@pytest.mark.parametrize(
    ("mysql_type", "text"),
    [
        ("int", ""),
        ("int", "-"),
        ("int", "1x"),
        ("int", "2147483648"),
        ("tinyint", "128"),
        ("bigint", "9223372036854775808"),
        ("bigint", "9" * 30),
        ("decimal(3,1)", "1.2.3"),
        ("decimal(3,1)", "100"),
        ("decimal(3,1)", "1.25"),
        ("decimal(3,1)", "."),
        ("decimal(3,1)", "NaN"),
        ("double", "one"),
        ("double", ""),
        ("date", "2024-1-1"),
        ("date", "2024-01-01 00:00:00"),
        ("date", "2024/01/01"),
        ("datetime", "2024-01-01"),
        ("datetime", "2024-01-01 24:00:00"),
        ("datetime", "2024-01-01 00:00:00."),
        ("datetime", "2024-01-01 00:00:00.1234567"),
        ("time", "1:00:00"),
        ("time", "00:60:00"),
        ("blob", "Ā"),
        ("json", "JSON_REPLACE(`c`, '$.a', 1)"),
        ("enum('a')", "2"),
        ("enum('a')", "-1"),
        ("enum('a'", "1"),
        ("set('a')", "2"),
        ("set('a')", ""),
    ],
)
def test_a_value_that_does_not_fit_its_type_is_an_error(mysql_type: str, text: str) -> None:
    with pytest.raises(DecodeError, match=rf"^shop\.goods\.c: .*{re.escape(repr(text))}$|^not the type of an ENUM"):
        decode(insert(mysql_type, text), mysql_type)


def marker(prop: str) -> bytes:
    """What is in the place of rows of another table; except for the property it is not a marker."""
    header = Header(eventType=QUERY, schemaName="shop", tableName="other")
    header.props.add(key=prop, value="why")
    return frame([Entry(header=header, entryType=ROWDATA, storeValue=RowChange(eventType=QUERY).SerializeToString())])


@pytest.mark.parametrize("decoder", [EnvelopeDecoder(), TableDecoder("shop", "goods", [("c", "int")])])
def test_markers_are_counted_in_each_call(decoder: EnvelopeDecoder | TableDecoder) -> None:
    data = insert("int", "1") + marker("sluice.quarantine") + marker("curtGtid") + marker("sluice.gap")
    assert decoder.decode(data).num_rows == 1
    assert decoder.markers == 2
    assert decoder.decode(insert("int", "1") + marker("sluice.gaps") + marker("sluice.shape")).num_rows == 1
    assert decoder.markers == 0


def test_an_error_names_the_column_and_the_value_and_leaves_the_decoder_usable() -> None:
    decoder = TableDecoder("shop", "goods", [("c", "int")])
    with pytest.raises(DecodeError, match=r"shop\.goods\.c: an integer is expected: 'x'"):
        decoder.decode(insert("int", "1", "x"))
    assert decoder.decode(insert("int", "2", "3")).column("c").to_pylist() == [2, 3]


def test_an_error_shows_the_value_only_and_not_all_of_a_long_one() -> None:
    with pytest.raises(DecodeError) as caught:
        decode(insert("int", "12x", "7"), "int")
    assert str(caught.value) == "shop.goods.c: an integer is expected: '12x'"
    with pytest.raises(DecodeError) as caught:
        decode(insert("double", "x" * 100_000), "double")
    assert len(str(caught.value)) < 400


def test_a_date_that_does_not_exist_is_an_error_on_request() -> None:
    with pytest.raises(DecodeError, match="not a date of the calendar"):
        decode(insert("date", "2021-02-31"), "date", invalid_dates="error")


def test_a_string_that_is_not_utf8_is_an_error() -> None:
    data = insert("text", "abc").replace(b"abc", b"a\xffc")
    with pytest.raises(DecodeError, match="UTF-8"):
        decode(data, "text")
    with pytest.raises(DecodeError, match="UTF-8"):
        EnvelopeDecoder().decode(data)


@pytest.mark.parametrize(
    ("zone", "text", "expected"),
    [
        ("UTC", "2024-07-01 12:00:00", "2024-07-01T12:00:00"),
        ("+08:00", "2024-07-01 12:00:00", "2024-07-01T04:00:00"),
        ("GMT-3", "2024-07-01 12:00:00", "2024-07-01T15:00:00"),
        ("Europe/Berlin", "2024-07-01 12:00:00", "2024-07-01T10:00:00"),
        ("Europe/Berlin", "2024-03-31 01:59:59", "2024-03-31T00:59:59"),
        ("Europe/Berlin", "2024-03-31 03:00:00", "2024-03-31T01:00:00"),
        ("Europe/Berlin", "2024-10-27 02:30:00", "2024-10-27T00:30:00"),  # the first of two
        ("Asia/Kathmandu", "1970-01-01 05:30:01", "1970-01-01T00:00:01"),
    ],
)
def test_a_timestamp_is_an_instant(zone: str, text: str, expected: str) -> None:
    (value,) = decode(insert("timestamp", text), "timestamp", time_zone=zone)
    assert value == datetime.fromisoformat(expected).replace(tzinfo=UTC)
    (value,) = decode(insert("datetime", text), "datetime", time_zone=zone)
    assert value == datetime.fromisoformat(text)


@pytest.mark.parametrize(
    "options",
    [
        {"time_zone": "Nowhere/City"},
        {"time_zone": "+99:00"},
        {"time_zone": ""},
        {"invalid_dates": "text"},
        {"missing_columns": "x"},
    ],
)
def test_an_unknown_option_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(BadParameterError) as caught:
        TableDecoder("s", "t", [], **options)
    assert caught.value.parameter in options


@pytest.mark.parametrize("names", [["a", "a"], ["_op"]])
def test_two_columns_of_one_name_are_refused(names: list[str]) -> None:
    with pytest.raises(BadParameterError, match=names[-1]):
        TableDecoder("s", "t", [(name, "int") for name in names])


# Schemas that change


def test_only_the_columns_asked_for_are_decoded() -> None:
    row = [column("a", "int", "1"), column("b", "enum(", "broken"), column("c", "text", "x")]
    data = frame([change_of(INSERT, ([], row)), change_of(INSERT, ([], row), table="other")])
    batch = TableDecoder("shop", "goods", [("c", "text"), ("a", "int")]).decode(data)
    assert [field.name for field in batch.schema][len(META) :] == ["c", "a"]
    assert batch.select(["c", "a"]).to_pylist() == [{"c": "x", "a": 1}]


@pytest.mark.parametrize(
    ("declared", "actual", "text", "value"),
    [
        ("bigint", "int", "7", 7),
        ("int", "bigint", "7", 7),
        ("varchar(9)", "longtext", "x", "x"),
        ("varchar(9)", "enum('a','b')", "2", "b"),
        ("enum('a')", "enum('b','a')", "1", "b"),
        ("decimal(10,2)", "decimal(5,1)", "7.5", Decimal("7.50")),
        ("double", "float", "0.5", 0.5),
        ("bigint unsigned", "int", "7", Decimal(7)),
    ],
)
def test_a_type_that_fits_into_the_declared_one_is_taken(declared: str, actual: str, text: str, value: Any) -> None:
    assert decode(insert(actual, text), declared) == [value]


@pytest.mark.parametrize(
    ("declared", "actual", "text"),
    [
        ("int", "varchar(9)", "1"),
        ("text", "blob", "x"),
        ("datetime", "timestamp", "2024-01-01 00:00:00"),
        ("float", "double", "1.0"),
        ("bigint", "bigint unsigned", "1"),
        ("time", "bigint", "1"),
    ],
)
def test_another_type_than_the_declared_one_is_an_error_each_time(declared: str, actual: str, text: str) -> None:
    decoder = TableDecoder("shop", "goods", [("c", declared)])
    for _ in range(2):
        with pytest.raises(SchemaMismatchError, match=r"shop\.goods\.c is .* in the data and .* in the schema"):
            decoder.decode(insert(actual, text))


# Images


def key(value: str, *, updated: bool = False) -> Column:
    return column("id", "int", value, key=True, updated=updated)


COLUMNS = [("id", "int"), ("v", "text")]


def operations(entry: Entry, **options: Any) -> list[tuple[Any, ...]]:
    batch = TableDecoder("shop", "goods", COLUMNS, **options).decode(
        length_delimited(103, b"\x04\x02") + frame([entry])
    )
    return [(row["_op"], row["_pos"]["row"], row["id"], row["v"]) for row in batch.to_pylist()]


def test_an_update_of_a_key_is_a_delete_and_an_insert_of_one_position() -> None:
    entry = change_of(
        UPDATE,
        ([key("1"), column("v", "text", "a")], [key("1"), column("v", "text", "b", updated=True)]),
        ([key("2"), column("v", "text", "c")], [key("3", updated=True), column("v", "text", "c")]),
    )
    assert operations(entry) == [("UPDATE", 0, 1, "b"), ("DELETE", 1, 2, "c"), ("INSERT", 1, 3, "c")]
    assert operations(entry, split_keys=False) == [("UPDATE", 0, 1, "b"), ("UPDATE", 1, 3, "c")]


def envelopes(entry: Entry, **options: Any) -> list[tuple[Any, ...]]:
    batch = EnvelopeDecoder(**options).decode(length_delimited(103, b"\x04\x02") + frame([entry]))
    return [(it["_op"], it["_pos"]["row"], it["_key"], it["before"], it["after"]) for it in batch.to_pylist()]


def test_rows_that_were_read_from_a_table_have_an_operation_of_their_own() -> None:
    entry = change_of(INSERT, ([], [key("1"), column("v", "text", "a")]), ([], [key("2"), column("v", "text", None)]))
    assert [row[0] for row in operations(entry)] == ["INSERT", "INSERT"]
    entry.header.props.add(key="sluice.snapshot", value="3000000001")
    assert operations(entry) == [("READ", 0, 1, "a"), ("READ", 1, 2, None)]
    assert envelopes(entry) == [
        ("READ", 0, ["1"], None, [("id", "1"), ("v", "a")]),
        ("READ", 1, ["2"], None, [("id", "2"), ("v", None)]),
    ]


def test_an_envelope_of_an_update_of_a_key_is_two_rows_of_one_image_each() -> None:
    def image(key_: Column, text: str) -> list[Column]:
        return [key_, column("v", "text", text)]

    entry = change_of(
        UPDATE,
        (image(key("1"), "a"), image(key("1"), "b")),
        (image(key("2"), "c"), image(key("3", updated=True), "d")),
    )
    same = ("UPDATE", 0, ["1"], [("id", "1"), ("v", "a")], [("id", "1"), ("v", "b")])
    old, new = [("id", "2"), ("v", "c")], [("id", "3"), ("v", "d")]
    assert envelopes(entry) == [same, ("DELETE", 1, ["2"], old, None), ("INSERT", 1, ["3"], None, new)]
    assert envelopes(entry, split_keys=False) == [same, ("UPDATE", 1, ["3"], old, new)]


def test_a_key_of_several_columns_is_whole_though_an_image_leaves_some_out() -> None:
    def part(index: int, value: str, *, updated: bool = False) -> Column:
        it = column(f"k{index}", "int", value, key=True, updated=updated)
        it.index = index
        return it

    other = Column(name="v", index=1, value="x")
    before, after = [part(0, "1"), part(2, "2")], [other, part(2, "3", updated=True)]
    assert envelopes(change_of(UPDATE, (before, after)), split_keys=False)[0][2] == ["1", "3"]
    assert envelopes(change_of(UPDATE, (before, [other])))[0][2] == ["1", "2"]
    assert envelopes(change_of(UPDATE, (before, after)))[1][2:] == (
        ["1", "3"],
        None,
        [("k0", "1"), ("v", "x"), ("k2", "3")],
    )


def test_a_table_without_a_key_has_none_in_its_envelopes() -> None:
    cells = [column("v", "text", "a")]
    for entry in (change_of(INSERT, ([], cells)), change_of(UPDATE, (cells, cells)), change_of(DELETE, (cells, []))):
        ((_, _, key_, _, _),) = envelopes(entry)
        assert key_ is None


def test_what_an_image_after_leaves_out_is_as_before() -> None:
    before = [key("1"), column("v", "text", "a")]
    assert operations(change_of(UPDATE, (before, [key("2", updated=True)]))) == [
        ("DELETE", 0, 1, "a"),
        ("INSERT", 0, 2, "a"),
    ]


def test_a_value_that_was_not_sent_is_an_error_or_null() -> None:
    entry = change_of(UPDATE, ([key("1")], [key("1")]))
    with pytest.raises(DecodeError, match=r"shop\.goods: a row has no value of the column 'v'.*binlog_row_image"):
        operations(entry)
    assert operations(entry, missing_columns="null") == [("UPDATE", 0, 1, None)]
    assert operations(change_of(DELETE, ([key("1")], []))) == [("DELETE", 0, 1, None)]


# Positions


def test_positions_go_with_the_entries_that_follow_them() -> None:
    def message(begin: int, n: int) -> bytes:
        entries = [change_of(INSERT, ([], [key("1")])).SerializeToString()] * 2
        head = Messages(batch_id=7, positions=[begin, n, begin, n + 1])
        return head.SerializeToString() + Messages(messages=entries).SerializeToString()

    batch = EnvelopeDecoder().decode(message(4, 1) + message(900, 3))
    found = [(it["file"], it["begin"], it["n"], it["row"]) for it in batch.column("_pos").to_pylist()]
    assert found == [(12, 4, 1, 0), (12, 4, 2, 0), (12, 900, 3, 0), (12, 900, 4, 0)]


def test_a_position_names_the_member_of_the_source_that_its_entry_comes_from() -> None:
    def message(*members: str) -> bytes:
        entries = [change_of(INSERT, ([], [key("1")]), ([], [key("2")])) for _ in members]
        for entry, member in zip(entries, members, strict=True):
            if member:
                entry.header.props.add(key=props.MEMBER, value=member)
        return length_delimited(103, b"\x04\x01" * 2) + frame(entries)

    alone, merged = message("", ""), message("north", "south")
    for decoder in (EnvelopeDecoder(), TableDecoder("shop", "goods", [("id", "int")])):
        batch = decoder.decode(alone + merged + alone)
        batch.validate(full=True)
        found = [it["member"] for it in batch.column("_pos").to_pylist()]
        assert found == [None] * 4 + ["north"] * 2 + ["south"] * 2 + [None] * 4


@pytest.mark.parametrize(
    ("positions", "message"),
    [
        (b"", "missing"),
        (b"\x04", "missing"),
        (b"\x04\x01\x05\x01", "more positions"),
        (b"\xff" * 9 + b"\x01\x00", "missing"),
    ],
)
def test_positions_that_do_not_match_the_entries_are_an_error(positions: bytes, message: str) -> None:
    with pytest.raises(DecodeError, match=message):
        EnvelopeDecoder().decode(length_delimited(103, positions) + insert("int", "1"))


def test_positions_sort_by_file_begin_n_and_row() -> None:
    entry = change_of(INSERT, ([], [key("1")]), ([], [key("2")]))
    later = change_of(INSERT, ([], [key("3")]))
    later.header.logfileName = "bin.1000000"
    entry.header.logfileName = "bin.999999"
    batch = EnvelopeDecoder().decode(length_delimited(103, varint(900) + b"\x02\x04\x01") + frame([entry, later]))
    fields = batch.column("_pos").to_pylist()
    assert [tuple(it.values()) for it in fields] == sorted(tuple(it.values()) for it in fields)


# Broken bytes


def read_everything(data: Buffer, columns: Columns, table: str) -> list[object]:
    """What each decoder finds, or why it refuses the bytes."""
    calls: list[Callable[[], object]] = [
        lambda: texts_of(EnvelopeDecoder().decode(data)),
        lambda: texts_of(TableDecoder("shop", table, columns).decode(data)),
        lambda: columns_of(data, "shop", table),
    ]
    found: list[object] = []
    for call in calls:
        try:
            found.append(call())
        except DecodeError as error:
            found.append(str(error))
    return found


def texts_of(batch: pa.RecordBatch) -> list[str]:
    batch.validate(full=True)
    return [it.to_string() for it in batch.columns]


@given(st.lists(entries(), min_size=1, max_size=3), st.data())
@settings(max_examples=times(100, 500))
def test_broken_bytes_are_an_error_or_harmless(batch: list[Entry], data: st.DataObject) -> None:
    columns: dict[str, str] = {}
    for entry, change in changes_in(batch):
        entry.header.schemaName, entry.header.tableName = "shop", "t"
        columns |= {it.name: it.mysqlType for row in change.rowDatas for it in (*row.beforeColumns, *row.afterColumns)}
    positions = length_delimited(103, b"\x04\x01" * len(batch)) if data.draw(st.booleans()) else b""
    positions += length_delimited(104, b"north") * data.draw(st.sampled_from((0, len(batch))))
    broken = mutated(data, positions + frame(batch))
    part = broken[: data.draw(st.just(len(broken)) | st.integers(len(broken) // 2, len(broken)))]
    named = [it for it in columns.items() if it[0] not in META]
    assert read_everything(part, named, "t") == read_everything(among_others(part), named, "t")


@given(st.binary(max_size=200))
def test_noise_is_an_error_or_harmless(data: bytes) -> None:
    columns = [("c", "int")]
    assert read_everything(data, columns, "") == read_everything(among_others(data), columns, "")


def test_every_cut_of_a_batch_is_an_error() -> None:
    data = insert("int", "7")
    for size in range(1, len(data)):
        with pytest.raises(DecodeError):
            EnvelopeDecoder().decode(data[:size])


# Life of the memory


def test_a_batch_outlives_decoder_and_data() -> None:
    texts = [json.dumps(number) * 10 for number in range(5000)]
    decoder = TableDecoder("shop", "goods", [("c", "text")])
    first = decoder.decode(insert("text", *texts))
    second = decoder.decode(insert("text", *texts[::-1]))
    del decoder
    assert first.column("c").to_pylist() == texts
    assert second.column("c").to_pylist() == texts[::-1]


def test_decoding_leaks_no_references() -> None:
    data = insert("varchar(9)", "value")
    decoder = TableDecoder("shop", "goods", [("c", "varchar(9)")])
    before = sys.getrefcount(data)
    for _ in range(100):
        decoder.decode(data)
    assert sys.getrefcount(data) == before


def test_threads_share_a_decoder() -> None:
    decoder = TableDecoder("shop", "goods", [("c", "int")])
    wholes = [list(range(start, start + 3000)) for start in range(8)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda it: decoder.decode(insert("int", *map(str, it))).column("c").to_pylist(), wholes))
    assert found == wholes


def test_without_pyarrow_the_module_is_there_and_names_the_extra() -> None:
    script = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "from sluice.protocol.canal.arrow import EnvelopeDecoder\n"
        "try: EnvelopeDecoder()\n"
        "except ImportError as error: print(error)"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "pip install 'sluice-cdc[arrow]'" in result.stdout
