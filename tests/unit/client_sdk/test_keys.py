"""The keys by which changes are ordered."""

from collections.abc import Hashable, Mapping
from typing import Any

import pytest

from sluice.client_sdk import Batch, Change, Key, Row
from sluice.client_sdk.keys import Keys
from sluice.protocol import props
from sluice.protocol.canal.entry_pb2 import (
    DELETE,
    INSERT,
    QUERY,
    ROWDATA,
    TRANSACTIONEND,
    TRUNCATE,
    UPDATE,
    Column,
    Entry,
    EventType,
    Header,
    Pair,
    RowChange,
)
from sluice.protocol.canal.packet_pb2 import Messages

Values = Mapping[str, object]


def rows(kind: "EventType.ValueType", before: Values | None, after: Values | None, table: str = "orders") -> Entry:
    """One row; `id` and `no` are its primary key, and texts are texts."""
    change = RowChange(eventType=kind)
    row = change.rowDatas.add()
    for columns, image in ((row.beforeColumns, before), (row.afterColumns, after)):
        for name, value in (image or {}).items():
            mysql_type, sql_type = ("varchar(20)", 12) if isinstance(value, str) else ("int", 4)
            is_key = name in ("id", "no")
            columns.append(Column(name=name, value=str(value), isKey=is_key, mysqlType=mysql_type, sqlType=sql_type))
    return entry(kind, change, table)


def entry(kind: "EventType.ValueType", change: RowChange, table: str = "", key: str = "") -> Entry:
    header = Header(logfileName="bin.000001", schemaName="shop", tableName=table, eventType=kind)
    header.props.extend([Pair(key=key, value="why")] if key else [])
    return Entry(header=header, entryType=ROWDATA, storeValue=change.SerializeToString())


def found(key: Key | None, *entries: Entry) -> list[tuple[Row | Change, frozenset[Hashable] | None]]:
    data = Messages(batch_id=1, messages=[it.SerializeToString() for it in entries]).SerializeToString()
    return list(Keys(key).of(Batch(1, "", "", data)))


def keys(key: Key | None, *entries: Entry) -> list[Any]:
    return [its for _, its in found(key, *entries)]


def test_the_primary_key_is_the_key_before_and_after() -> None:
    assert keys(
        None,
        rows(INSERT, None, {"id": 1, "v": 5}),
        rows(UPDATE, {"id": 1, "v": 5}, {"id": 1, "v": 6}),
        rows(UPDATE, {"id": 1, "v": 6}, {"id": 2, "v": 6}),
        rows(DELETE, {"id": 2, "v": 6}, None),
        rows(INSERT, None, {"id": 1, "no": 7}, "lines"),
    ) == [
        {("shop.orders", 1)},
        {("shop.orders", 1)},
        {("shop.orders", 1), ("shop.orders", 2)},
        {("shop.orders", 2)},
        {("shop.lines", 1, 7)},
    ]


def test_an_image_without_the_key_has_that_of_the_other() -> None:
    minimal = rows(UPDATE, {"id": 1}, {"v": 6})
    assert keys(None, minimal) == [{("shop.orders", 1)}]
    assert keys({"shop.orders": ["id"]}, minimal) == [{(1,)}]


def test_without_a_primary_key_it_is_the_table() -> None:
    assert keys(None, rows(INSERT, None, {"v": 1}), rows(DELETE, {"v": 2}, None)) == [{("shop.orders",)}] * 2


def test_a_primary_key_of_other_columns_is_a_barrier() -> None:
    first, *others = (rows(INSERT, None, image) for image in ({"id": 1, "v": 1}, {"no": 1, "v": 2}, {"no": 2, "v": 2}))
    assert keys(None, first, *others) == [{("shop.orders", 1)}, None, {("shop.orders", 2)}]


def test_named_columns_are_one_key_in_several_tables() -> None:
    key = {"shop.orders": ["customer"], "shop.customers": ["id"]}
    assert keys(
        key,
        rows(INSERT, None, {"id": 9}, "customers"),
        rows(INSERT, None, {"id": 1, "customer": 9}),
        rows(UPDATE, {"id": 1, "customer": 9}, {"id": 1, "customer": 8}),
        rows(INSERT, None, {"id": 9}, "parcels"),
    ) == [{(9,)}, {(9,)}, {(9,), (8,)}, {("shop.parcels", 9)}]


def test_a_function_is_asked_for_both_images() -> None:
    assert keys(
        lambda table, values: (table, values["v"] % 10),
        rows(UPDATE, {"id": 1, "v": 13}, {"id": 1, "v": 25}),
        rows(DELETE, {"id": 1, "v": 25}, None),
    ) == [{("shop.orders", 3), ("shop.orders", 5)}, {("shop.orders", 5)}]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Tea", "tEA "),
        ("café", "CAFE\u0301"),
        ("Straße", "STRASSE"),
        ("Straße", "strase"),  # utf8mb4_general_ci
        ("ﬁsh", "fish"),
        ("a\u200bb", "ab"),
        ("🔔", "🌟"),
        ("Łódź", "lodz"),  # from here on utf8mb4_uca1400_ai_ci and utf8mb4_0900_ai_ci
        ("ÆRØ", "aero"),
        ("cœur", "COEUR"),
        ("Đà Nẵng", "da nang"),
        ("Iğdır", "IGDIR"),  # noqa: RUF001
        ("ᾳ", "Α"),  # noqa: RUF001
        ("Ґ", "Г"),
    ],
)
def test_texts_that_a_collation_may_hold_equal_are_one_key(one: str, other: str) -> None:
    first, second = keys(None, rows(INSERT, None, {"id": one}), rows(INSERT, None, {"id": other}))
    assert first == second


def test_other_texts_are_different_keys() -> None:
    texts = ["tea", "te", "t ea", "", "té!", "茶", "чай"]
    assert len(set(keys(None, *(rows(INSERT, None, {"id": it}) for it in texts)))) == len(texts)


def test_documents_can_be_keys() -> None:
    document: Any = {"name": "place", "value": '{"shelf": [1, 2]}', "mysqlType": "json", "sqlType": 12}
    change = RowChange(eventType=INSERT)
    change.rowDatas.add().afterColumns.append(Column(**document))
    assert keys({"shop.orders": ["place"]}, entry(INSERT, change, "orders")) == [{("{'shelf': [1, 2]}",)}]


def test_what_has_no_rows_is_a_barrier() -> None:
    barriers = [
        entry(TRUNCATE, RowChange(eventType=TRUNCATE, isDdl=True, sql="TRUNCATE orders"), "orders"),
        entry(QUERY, RowChange(eventType=QUERY, isDdl=True, sql="CREATE DATABASE shop")),
        entry(UPDATE, RowChange(eventType=UPDATE, sql="UPDATE orders SET v = 1"), "orders"),
        *(entry(QUERY, RowChange(eventType=QUERY), "orders", it) for it in (props.QUARANTINE, props.GAP, props.SHAPE)),
    ]
    assert [(type(it), it.type, its) for it, its in found(None, *barriers, rows(INSERT, None, {"id": 1}))] == [
        *((Change, kind, None) for kind in ("TRUNCATE", "QUERY", "UPDATE", "QUERY", "QUERY", "QUERY")),
        (Row, "INSERT", frozenset([("shop.orders", 1)])),
    ]


def test_what_says_nothing_is_left_out() -> None:
    assert (
        found(
            None,
            entry(QUERY, RowChange(eventType=QUERY, sql="INSERT INTO orders VALUES (1)")),
            entry(INSERT, RowChange(eventType=INSERT), "orders"),
            Entry(header=Header(logfileName="bin.000001"), entryType=TRANSACTIONEND),
        )
        == []
    )
