"""Messages of TiCDC's canal-json as Canal's entries: each type, each kind of message, and what is refused."""

import json
import string
from collections.abc import Mapping
from datetime import date, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.protocol.canal.entry_pb2 import Entry, RowChange
from sluice.protocol.canal.packet_pb2 import Messages
from sluice.protocol.canal.rows import Row, decode_changes, decode_rows
from sluice.protocol.errors import DecodeError
from sluice.protocol.tidb.canal_json import MessageEncoder, watermark_of
from tests.ticdc import change, insert, message, statement, watermark

TS = 429_918_007_904_436_226


def encode(*values: bytes, offset: int = 0) -> bytes:
    return b"".join(it.data for it in MessageEncoder("cdc.0").encode(b"\n".join(values), offset).entries)


def entries(*values: bytes) -> list[Entry]:
    return [Entry.FromString(it) for it in Messages.FromString(encode(*values)).messages]


def changed(entry: Entry) -> RowChange:
    return RowChange.FromString(entry.storeValue)


def row(*values: bytes) -> Row:
    (found,) = decode_rows(encode(*values))
    return found


# --- what the messages say -------------------------------------------------------------------------------------------


def test_an_insert_of_the_documented_form_becomes_a_transaction() -> None:
    value = (
        b'{"id":0,"database":"shop","table":"stock","pkNames":["id"],"isDdl":false,"type":"INSERT","es":1639633141221,'
        b'"ts":1639633142960,"sql":"","sqlType":{"id":4,"name":12,"note":2005},'
        b'"mysqlType":{"note":"text","id":"int","name":"varchar"},"old":null,'
        b'"data":[{"id":"2","name":"r\xc3\xb6d \\u003ckr\\u00f8ll\\u003e","note":null}],'
        b'"_tidb":{"commitTs":429918007904436226}}'
    )
    begin, entry, end = entries(value)
    assert (begin.entryType, entry.entryType, end.entryType) == (1, 2, 3)
    header = entry.header
    assert (header.logfileName, header.schemaName, header.tableName) == ("cdc.0", "shop", "stock")
    assert (header.executeTime, header.eventType, header.eventLength) == (TS >> 18, 1, len(value))
    assert [(it.key, it.value) for it in header.props] == [("rowsCount", "1")]
    (found,) = changed(entry).rowDatas
    shown = [(it.index, it.sqlType, it.name, it.isKey, it.updated, it.isNull, it.value) for it in found.afterColumns]
    assert shown == [
        (0, 4, "id", True, True, False, "2"),
        (1, 12, "name", False, True, False, "röd <krøll>"),
        (2, 2005, "note", False, True, True, ""),
    ]
    assert [it.mysqlType for it in found.afterColumns] == ["int", "varchar", "text"]


# Each type of TiDB's data types, as the page of the protocol says that its values, names and numbers are.
# fmt: off
TYPES: list[tuple[str, int, str | None, Any, int]] = [
    # mysqlType, sqlType, the value of the message, that of a row, the sqlType of the entry
    ("tinyint", -6, "127", 127, -6),
    ("tinyint", -6, "-128", -128, -6),
    ("tinyint unsigned", -6, "127", 127, -6),
    ("tinyint unsigned", 5, "128", 128, 5),
    ("smallint", 5, "-32768", -32768, 5),
    ("smallint unsigned", 5, "32767", 32767, 5),
    ("smallint unsigned", 4, "32768", 32768, 4),
    ("mediumint", 4, "8388607", 8388607, 4),
    ("mediumint unsigned", 4, "16777215", 16777215, 4),
    ("int", 4, "-2147483648", -2147483648, 4),
    ("int unsigned", 4, "2147483647", 2147483647, 4),
    ("int unsigned", -5, "4294967295", 4294967295, -5),
    ("bigint", -5, "-9223372036854775808", -(2**63), -5),
    ("bigint unsigned", -5, "9223372036854775807", 2**63 - 1, -5),
    ("bigint unsigned", 3, "18446744073709551615", 2**64 - 1, 3),
    ("bigint unsigned", -5, None, None, -5),
    ("float", 7, "3.14", 3.14, 7),
    ("float unsigned", 7, "3.14", 3.14, 7),
    ("double", 8, "2.71", 2.71, 8),
    ("date", 91, "2020-02-20", date(2020, 2, 20), 91),
    ("date", 91, "0000-00-00", "0000-00-00", 91),
    ("datetime", 93, "2020-02-20 02:20:20.5", datetime(2020, 2, 20, 2, 20, 20, 500_000), 93),  # noqa: DTZ001
    ("timestamp", 93, "2020-02-20 10:20:20", datetime(2020, 2, 20, 10, 20, 20), 93),  # noqa: DTZ001
    ("time", 92, "-838:59:59", -timedelta(hours=838, minutes=59, seconds=59), 92),
    ("year", 12, "2020", 2020, 12),
    ("char", 1, "字符", "字符", 1),
    ("varchar", 12, "", "", 12),
    ("varchar(16)", 12, "content-compatible", "content-compatible", 12),
    ("tinytext", 2005, 'a\tb\n"c"\\', 'a\tb\n"c"\\', 2005),
    ("text", 2005, "😀", "😀", 2005),
    ("mediumtext", 2005, "x" * 70_000, "x" * 70_000, 2005),
    ("longtext", 2005, "y", "y", 2005),
    ("binary", 2004, "\x00\x7f\x80ÿ", b"\x00\x7f\x80\xff", 2004),
    ("varbinary", 2004, "\x05\n$<&ÿþ", b"\x05\n$<&\xff\xfe", 2004),
    ("tinyblob", 2004, "a", b"a", 2004),
    ("blob", 2004, "\u0000", b"\x00", 2004),
    ("mediumblob", 2004, "b", b"b", 2004),
    ("longblob", 2004, "c", b"c", 2004),
    ("enum", 4, "2", 2, 4),
    ("set", -7, "5", 5, -7),
    ("bit", -7, "1985229328", 1985229328, -7),
    ("json", 12, '{"a": [1, "b"]}', {"a": [1, "b"]}, 12),
    ("TiDBVectorFloat32", 12, "[1,2.5]", "[1,2.5]", 12),
]
# fmt: on


@pytest.mark.parametrize(("mysql_type", "sql_type", "value", "expected", "delivered"), TYPES)
def test_each_type_has_its_value_and_number(
    mysql_type: str, sql_type: int, value: str | None, expected: Any, delivered: int
) -> None:
    found = message(
        database="s",
        table="t",
        type="INSERT",
        sqlType={"v": sql_type},
        mysqlType={"v": mysql_type},
        data=[{"v": value}],
        _tidb={"commitTs": TS},
    )
    assert row(found).after == {"v": expected}
    ((column,),) = (it.afterColumns for it in changed(entries(found)[1]).rowDatas)
    assert (column.sqlType, column.mysqlType, column.isNull) == (delivered, mysql_type, value is None)


def test_decimal_values_keep_their_digits() -> None:
    found = row(change(TS, None, {"id": "1", "v": "-00.10"}, types={"v": "varchar"}))
    assert found.after == {"id": 1, "v": "-00.10"}


def test_an_update_has_both_images_and_says_what_changed() -> None:
    found = row(change(TS, {"id": "1", "a": "x", "b": None}, {"id": "1", "a": "y", "b": None}))
    assert (found.type, found.before, found.after) == (
        "UPDATE",
        {"id": 1, "a": "x", "b": None},
        {"id": 1, "a": "y", "b": None},
    )
    assert set(found.changed) == {"a"}


def test_columns_that_an_update_leaves_out_of_the_old_row_have_their_new_values() -> None:
    found = row(change(TS, {"b": "old"}, {"id": "1", "a": "x", "b": "new"}))
    assert (found.before, set(found.changed)) == ({"id": 1, "a": "x", "b": "old"}, {"b"})


def test_a_delete_has_what_tidb_sent_of_the_row_which_may_be_its_key_only() -> None:
    whole = row(change(TS, {"id": "1", "a": "x"}, None))
    assert (whole.type, whole.before, whole.after) == ("DELETE", {"id": 1, "a": "x"}, None)
    assert row(change(TS, {"id": "1"}, None)).before == {"id": 1}


def test_the_columns_of_a_row_are_those_of_its_names_whatever_the_order_of_types_and_old_values() -> None:
    value = json.loads(change(TS, {"id": "1", "a": "x", "b": "p"}, {"id": "1", "a": "y", "b": "q"}))
    value["mysqlType"] = dict(reversed(value["mysqlType"].items()))
    value["old"] = [dict(reversed(value["old"][0].items()))]
    found = decode_rows(encode(change(TS, None, {"id": "1", "a": "x", "b": "p"}), json.dumps(value).encode()))
    assert [it.after for it in found] == [{"id": 1, "a": "x", "b": "p"}, {"id": 1, "a": "y", "b": "q"}]
    assert found[1].before == found[0].after


def test_rows_of_one_kind_and_table_are_one_entry_and_a_statement_stands_alone() -> None:
    changes = decode_changes(
        encode(
            insert(TS, 1),
            insert(TS, 2),
            change(TS, {"id": "1"}, None),
            insert(TS, 3),
            insert(TS, 4, "shop.items"),
            statement(TS, "ALTER TABLE `orders` ADD COLUMN `v` INT;"),
        )
    )
    shown = [(it.type or it.entry_type[11:], it.table, len(it.rows())) for it in changes]
    assert shown == [
        ("BEGIN", "", 0),
        ("INSERT", "orders", 2),
        ("DELETE", "orders", 1),
        ("INSERT", "orders", 1),
        ("INSERT", "items", 1),
        ("END", "", 0),
        ("ALTER", "orders", 0),
    ]
    assert (changes[-1].sql, changes[-1].ddl_schema) == ("ALTER TABLE `orders` ADD COLUMN `v` INT", "shop")


@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        ("CREATE TABLE `orders` (`id` INT PRIMARY KEY)", "CREATE"),
        ("RENAME TABLE `a` TO `orders`", "RENAME"),
        ("TRUNCATE TABLE `orders`", "TRUNCATE"),
        ("DROP TABLE `orders`", "ERASE"),
        ("CREATE INDEX `i` ON `orders` (`id`)", "CINDEX"),
    ],
)
def test_statements_have_canals_types(sql: str, kind: str) -> None:
    (found,) = decode_changes(encode(statement(TS, sql, kind="QUERY")))
    assert (found.type, found.is_ddl, found.schema, found.table) == (kind, True, "shop", "orders")


def test_watermarks_are_read_apart() -> None:
    assert watermark_of(watermark(TS)) == TS
    assert watermark_of(insert(TS, 1)) == watermark_of(statement(TS, "DROP TABLE t")) == 0


VALUES = st.none() | st.text() | st.text(string.printable, max_size=300)


@given(
    st.lists(
        st.dictionaries(st.text(min_size=1, max_size=9), st.tuples(VALUES, VALUES), min_size=1, max_size=12),
        min_size=1,
        max_size=6,
    ),
    st.booleans(),
)
def test_each_text_arrives_as_it_was_sent(
    tables: list[dict[str, tuple[str | None, str | None]]], ascii_only: bool
) -> None:
    encoder = MessageEncoder("cdc.0")
    for number, table in enumerate(tables):
        before, after = ({name: pair[i] for name, pair in table.items()} for i in (0, 1))
        value = change(TS, before, after, table=f"s.t{number % 3}", types=dict.fromkeys(table, "varchar"), keys=())
        value = json.dumps(json.loads(value), ensure_ascii=ascii_only).encode("utf-8", "replace")
        sent = json.loads(value)
        found = decode_rows(b"".join(it.data for it in encoder.encode(value, 0).entries))
        expected = [_valid(sent["old"][0]), _valid(sent["data"][0])]
        assert [(it.before, it.after) for it in found] == [tuple(expected)]


def _valid(image: Mapping[str, str | None]) -> dict[str, str | None]:
    """A text with a half of a pair of surrogates has a sign in its place."""

    def repair(text: str) -> str:
        return "".join("\ufffd" if 0xD800 <= ord(it) < 0xE000 else it for it in text)

    return {repair(name): value and repair(value) for name, value in image.items()}


# --- what is refused -------------------------------------------------------------------------------------------------


def test_messages_without_the_extension_are_refused_with_what_to_set() -> None:
    value = json.loads(insert(TS, 1))
    del value["_tidb"]
    with pytest.raises(DecodeError, match="set enable-tidb-extension=true in the sink-uri"):
        encode(json.dumps(value).encode())


@pytest.mark.parametrize("extension", [{"onlyHandleKey": True}, {"claimCheckLocation": "s3://bucket/1.json"}])
def test_rows_that_were_too_large_for_ticdc_are_refused_with_what_to_set(extension: dict[str, Any]) -> None:
    value = json.loads(insert(TS, 1)) | {"_tidb": {"commitTs": TS, **extension}}
    with pytest.raises(DecodeError, match="raise max-message-bytes in the sink-uri"):
        encode(json.dumps(value).encode())


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"type": "UPSERT"}, "its type is not one"),
        ({"data": None}, "lacks a row"),
        ({"data": []}, "has not one row"),
        ({"data": [{"id": "1"}, {"id": "2"}]}, "has not one row"),
        ({"data": [["1"]]}, "has not one row"),
        ({"data": [{"id": 1}]}, "a value is not a string"),
        ({"data": [{"x": "1"}]}, "no type for its column x"),
        ({"mysqlType": {"id": "bigint", "more": "int"}}, "other columns than its types"),
        ({"mysqlType": None}, "mysqlType is not an object"),
        ({"sqlType": {"id": "x"}}, "no type for its column id"),
        ({"old": [{"id": "1"}]}, "lacks a row"),
        ({"database": None}, "no database or table"),
        ({"_tidb": {"commitTs": -1}}, "_tidb has no commitTs"),
        ({"_tidb": {"commitTs": 1 << 63}}, "_tidb has no commitTs"),
        ({"_tidb": {"watermarkTs": 1}}, "_tidb has no commitTs"),
        ({"isDdl": True, "sql": None}, "a statement has no text"),
    ],
)
def test_what_ticdc_does_not_write_is_an_error_that_says_what(members: dict[str, Any], reason: str) -> None:
    value = json.loads(insert(TS, 1)) | members
    with pytest.raises(DecodeError, match=reason):
        encode(json.dumps(value).encode())


@pytest.mark.parametrize("value", [b"", b"[]", b"hello", b'{"id":', b'{"id":0,}', b"\x00\x01", b'{"a":"\\', b'{"a" 1}'])
def test_what_is_not_json_is_an_error(value: bytes) -> None:
    with pytest.raises(DecodeError, match="not a message of TiCDC's canal-json"):
        encode(value)


def test_each_beginning_of_a_message_is_an_error() -> None:
    value = change(TS, {"id": "1", "a": "ü\n"}, {"id": "1", "a": "😀"})
    for size in range(len(value)):
        with pytest.raises(DecodeError):
            encode(value[:size])


@pytest.mark.parametrize("value", ["A", "", "-", "1-1", "1.0", "ü", "1" * 21])
def test_an_integer_that_is_none_is_an_error(value: str) -> None:
    with pytest.raises(DecodeError, match="a value of an integer column is not an integer"):
        encode(change(TS, {"id": "1", "a": "x"}, {"id": value, "a": "x"}))


@given(st.data())
def test_bytes_that_were_changed_are_read_or_are_an_error(data: st.DataObject) -> None:
    value = bytearray(change(TS, {"id": "1", "a": "ü\n"}, {"id": "1", "a": "😀"}))
    for _ in range(data.draw(st.integers(1, 4))):
        value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = encode(bytes(value))
    except DecodeError:
        return
    assert len(decode_rows(found)) == 1
