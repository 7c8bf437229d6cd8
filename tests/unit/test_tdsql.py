"""TDSQL's messages of batches: what they say, where a transaction goes on, and what cannot be sent."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.protocol.canal.entry_pb2 import (
    ALTER,
    DELETE,
    INSERT,
    QUERY,
    ROWDATA,
    TRANSACTIONBEGIN,
    TRANSACTIONEND,
    UPDATE,
    Entry,
    RowChange,
    TransactionEnd,
)
from sluice.protocol.canal.tags import ValueKind
from sluice.protocol.canal.types import kind_of, width_of
from sluice.protocol.errors import DecodeError, MarkerError, PartialRowsError, RecordTooLargeError
from sluice.protocol.tdsql.messages import TdsqlEncoder
from sluice.protocol.wire import varint
from tests.unit.entries import encode_change, entries, frame, images, mutated, tables

Place = tuple[int, int]
QUOTED = {ValueKind.TEXT, ValueKind.DATE, ValueKind.DATETIME, ValueKind.TIME, ValueKind.JSON}


def encoder(limit: int = 1 << 20) -> TdsqlEncoder:
    made = TdsqlEncoder(limit=limit)
    made.source = ("10.0.0.7", 3306)
    return made


def entry(kind: int, seconds: int = 1_700_000_000, gtid: str = "0-1-7", props: Mapping[str, str] = {}) -> Entry:
    made = Entry(entryType=kind)  # type: ignore[arg-type]
    made.header.executeTime = seconds * 1000
    if gtid:
        made.header.props.add(key="curtGtid", value=gtid)
    for key, value in props.items():
        made.header.props.add(key=f"sluice.{key}", value=value)
    return made


def end(xid: str = "11866", **props: str) -> Entry:
    made = entry(TRANSACTIONEND, props=props)
    made.storeValue = TransactionEnd(transactionId=xid).SerializeToString()
    return made


def rows(kind: int, *values: str, table: str = "goods", gtid: str = "0-1-7", **props: str) -> Entry:
    made = entry(ROWDATA, gtid=gtid, props=props)
    made.header.schemaName, made.header.tableName = "shop", table
    change = RowChange(eventType=kind)  # type: ignore[arg-type]
    for value in values:
        row = change.rowDatas.add()
        for image in ([row.beforeColumns] if kind != INSERT else []) + ([row.afterColumns] if kind != DELETE else []):
            image.add(index=0, sqlType=4, name="id", isKey=True, value=value, mysqlType="int")
    made.storeValue = change.SerializeToString()
    return made


def statement(sql: str, *, kind: int = ALTER, is_ddl: bool = True, **props: str) -> Entry:
    made = entry(ROWDATA, props=props)
    made.header.schemaName = "shop"
    change = RowChange(eventType=kind, sql=sql, isDdl=is_ddl)  # type: ignore[arg-type]
    made.storeValue = change.SerializeToString()
    return made


TRANSACTION = [
    (entry(TRANSACTIONBEGIN), (4, 1)),
    (rows(INSERT, "1", "2"), (4, 3)),
    (rows(UPDATE, "1", table="orders"), (4, 5)),
    (rows(DELETE, "2"), (4, 7)),
    (end(), (4, 8)),
    (statement("ALTER TABLE goods ADD n INT"), (500, 1)),
    (entry(TRANSACTIONBEGIN), (700, 1)),
    (end(), (700, 2)),
    (entry(TRANSACTIONBEGIN), (800, 1)),
    (rows(DELETE, "1"), (800, 3)),
    (end("0"), (800, 4)),
]


def encode(made: TdsqlEncoder, parts: Sequence[tuple[Entry, Place]], begin: int = 0) -> Any:
    positions = b"".join(varint(it) for _, place in parts for it in place)
    return made.encode([frame([it for it, _ in parts])], 1, begin=begin, positions=positions)


def said(values: Sequence[bytes]) -> list[tuple[str, ...]]:
    found = [json.loads(it) for it in values]
    return [
        (it["eventtypestr"], it["event_index"], it["table"], *(it[key] for key in ("xid", "sql") if key in it))
        for it in found
    ]


WHOLE = [
    ("gtid", "1", ""),
    ("insert", "4", "goods"),
    ("insert", "4", "goods"),
    ("update", "6", "orders"),
    ("delete", "8", "goods"),
    ("xid", "9", "goods", "11866"),
    ("gtid", "1", ""),
    ("query", "2", "", "ALTER TABLE goods ADD n INT"),
    ("gtid", "1", ""),
    ("delete", "4", "goods"),
    ("xid", "5", "goods", ""),
]


class TestTransactions:
    def test_each_begins_with_its_gtid_and_ends_with_its_xid_and_empty_ones_are_left_out(self) -> None:
        found = encode(encoder(), TRANSACTION)
        assert said(found.values) == WHOLE
        assert {json.loads(it)["gtid"] for it in found.values} == {"0-1-7"}
        assert list(found.rows) == [0, 1, 1, 1, 1, 0, 0, 0, 0, 1, 0]
        assert list(found.entries) == [1, 1, 1, 2, 3, 4, 5, 5, 9, 9, 10]
        assert set(found.topics) == set(found.partitions) == {0}
        assert found.keys is None

    def test_each_message_has_the_keys_of_the_guide_in_its_order(self) -> None:
        common = ["logtype", "eventtype", "eventtypestr", "db", "table", "localip", "localport", "begintime", "gtid"]
        more = {"gtid": [], "xid": ["xid"], "query": ["sql"]}
        for value in encode(encoder(), TRANSACTION).values:
            message = json.loads(value)
            wanted = [*common, "event_index", *more.get(message["eventtypestr"], ["where", "field"])]
            assert list(message) == wanted
            assert b" " not in value.partition(b',"sql"')[0]

    @given(st.sets(st.integers(1, len(TRANSACTION) - 1)), st.booleans())
    def test_batches_may_end_anywhere_and_another_encoder_goes_on(self, cuts: set[int], another: bool) -> None:
        found: list[bytes] = []
        made = encoder()
        for first, last in zip([0, *sorted(cuts)], [*sorted(cuts), len(TRANSACTION)], strict=True):
            found += encode(made, TRANSACTION[first:last]).values
            if another:
                state, made = made.state, encoder()
                made.state = state
        assert said(found) == WHOLE
        assert made.state == ""

    def test_the_time_is_that_of_the_first_event(self) -> None:
        parts = [
            (entry(TRANSACTIONBEGIN, seconds=10), (4, 0)),
            (rows(INSERT, "1"), (4, 2)),
            (end(), (4, 3)),
            (statement("ALTER TABLE goods ADD n INT"), (90, 0)),
        ]
        times = [json.loads(it)["begintime"] for it in encode(encoder(), parts).values]
        assert times == [10, 10, 10, 1_700_000_000, 1_700_000_000]

    def test_one_that_is_joined_in_the_middle_is_announced_too(self) -> None:
        assert said(encode(encoder(), TRANSACTION[2:5]).values) == [WHOLE[0], *WHOLE[3:6]]

    def test_without_gtid_the_text_is_empty(self) -> None:
        parts = [(entry(TRANSACTIONBEGIN, gtid=""), (4, 0)), (rows(INSERT, "1", gtid=""), (4, 2))]
        assert [json.loads(it)["gtid"] for it in encode(encoder(), parts).values] == ["", ""]

    def test_the_texts_of_statements_that_stand_before_their_rows_are_left_out(self) -> None:
        parts = [TRANSACTION[0], (statement("INSERT ...", kind=QUERY, is_ddl=False), (4, 2)), *TRANSACTION[1:5]]
        assert said(encode(encoder(), parts).values) == WHOLE[:6]

    def test_a_change_that_was_logged_as_a_statement_is_a_query(self) -> None:
        parts = [
            TRANSACTION[0],
            (statement("INSERT INTO goods VALUES (1)", kind=INSERT, is_ddl=False), (4, 2)),
            TRANSACTION[4],
        ]
        assert said(encode(encoder(), parts).values)[1] == ("query", "3", "", "INSERT INTO goods VALUES (1)")

    def test_a_prepared_one_is_not_committed(self) -> None:
        xa = {"xa": "prepared X'61',X'',1"}
        parts = [
            (entry(TRANSACTIONBEGIN, props=xa), (4, 1)),
            (rows(INSERT, "1", **xa), (4, 3)),
            (end("0", **xa), (4, 4)),
            (statement("XA COMMIT X'61',X'',1", is_ddl=False), (90, 1)),
        ]
        assert said(encode(encoder(), parts).values)[2:] == [
            ("query", "5", "goods", "XA PREPARE X'61',X'',1"),
            ("gtid", "1", ""),
            ("query", "2", "", "XA COMMIT X'61',X'',1"),
        ]


class TestRefused:
    """What cannot be sent ends the records before it; what follows can be asked for."""

    @pytest.mark.parametrize(
        ("refused", "error"),
        [
            (rows(INSERT, "2", "1" * 400), RecordTooLargeError),
            (statement("-- sluice.quarantine: why", kind=QUERY, is_ddl=False, quarantine="why"), MarkerError),
        ],
    )
    def test_an_entry(self, refused: Entry, error: type[Exception]) -> None:
        made = encoder(limit=400)
        parts = [TRANSACTION[0], (refused, (4, 3)), *TRANSACTION[2:5]]
        found = encode(made, parts)
        assert isinstance(found.refused, error)
        assert (found.end, found.values) == (1, [])
        assert said(encode(made, parts, begin=2).values) == [WHOLE[0], *WHOLE[3:6]]

    def test_the_gtid_is_not_sent_again_after_one_in_the_middle(self) -> None:
        made = encoder(limit=400)
        parts = [*TRANSACTION[:2], (rows(INSERT, "1" * 400), (4, 5)), *TRANSACTION[3:5]]
        found = encode(made, parts)
        assert said(found.values) == WHOLE[:3]
        assert said(encode(made, parts, begin=3).values) == WHOLE[4:6]

    def test_rows_that_have_not_all_columns(self) -> None:
        partial = rows(UPDATE, "1")
        change = RowChange.FromString(partial.storeValue)
        change.props.add(key="sluice.absent", value="[]")
        partial.storeValue = change.SerializeToString()
        found = encode(encoder(), [TRANSACTION[0], (partial, (4, 3))])
        assert isinstance(found.refused, PartialRowsError)
        assert str(found.refused).startswith("rows of shop.goods do not have all columns: set binlog_row_image = FULL")


def literal(text: str, mysql_type: str, sql_type: int, *, is_null: bool) -> str:
    kind = kind_of(mysql_type, sql_type)
    if is_null:
        return "NULL"
    if kind is ValueKind.BYTES:
        return f"x'{text.encode('latin1').ljust(width_of(mysql_type), bytes(1)).hex()}'"
    if kind in QUOTED:
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return text


@given(st.data())
def test_values_are_literals_of_sql_in_the_order_of_the_columns(data: st.DataObject) -> None:
    table = data.draw(tables())
    change = RowChange(eventType=UPDATE)
    for _ in range(data.draw(st.integers(1, 3))):
        row = change.rowDatas.add()
        row.beforeColumns.extend(data.draw(images(table, after=False)))
        row.afterColumns.extend(data.draw(images(table, after=True)))
    made = entry(ROWDATA)
    made.storeValue = encode_change(change, data.draw(st.booleans()))
    _, *values = encode(encoder(), [(made, (4, 3))]).values
    for value, row in zip(values, change.rowDatas, strict=True):
        message = json.loads(value)
        for key, image in (("where", row.beforeColumns), ("field", row.afterColumns)):
            assert message[key] == [literal(it.value, it.mysqlType, it.sqlType, is_null=it.isNull) for it in image]


def test_a_fixed_binary_has_its_zeros_again() -> None:
    made = rows(INSERT, "1")
    change = RowChange.FromString(made.storeValue)
    change.rowDatas[0].afterColumns.add(index=1, sqlType=2004, name="b", value="aÿ", mysqlType="binary(4)")
    made.storeValue = change.SerializeToString()
    assert json.loads(encode(encoder(), [(made, (4, 3))]).values[1])["field"] == ["1", "x'61ff0000'"]


@given(st.lists(entries(), min_size=1, max_size=4), st.data())
def test_bytes_that_are_no_entries_are_refused(parts: list[Entry], data: st.DataObject) -> None:
    framed = mutated(data, frame(parts))
    with suppress(DecodeError):
        found = encoder().encode([framed], 1, positions=data.draw(st.binary(max_size=20)))
        kinds = [json.loads(it.decode(errors="replace"))["eventtypestr"] for it in found.values]
        assert [it in ("insert", "update", "delete") for it in kinds] == list(found.rows)
