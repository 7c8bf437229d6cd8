"""What TiDB has given to a pump as Canal's entries: the captured transactions as Drainer wrote them, and any others."""

import json
import random
import struct
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.instance.sources.kafka.stager import Stager
from sluice.instance.sources.pump.definitions import Definitions
from sluice.instance.sources.pump.documents import decode as decode_document
from sluice.instance.sources.pump.rows import TransactionEncoder
from sluice.protocol import props
from sluice.protocol.canal.packet_pb2 import Messages
from sluice.protocol.canal.rows import Change, Row, decode_changes, decode_rows
from sluice.protocol.errors import DecodeError, UnknownJobError
from sluice.protocol.tidb import secondary_pb2 as secondary
from sluice.protocol.tidb.transactions import TidbEncoder
from sluice.protocol.wire import varint
from sluice.store.ring import Kind, Ring
from tests.effort import times
from tests.pump import (
    DELETE,
    INSERT,
    UPDATE,
    decimal,
    document,
    double,
    encoder,
    field,
    integer,
    moment,
    mutation,
    null,
    pairs,
    text,
    transaction,
    unsigned,
)
from tests.tidb import captured, history, pulled
from tests.unit.tidb.test_stager import Only, Options

VERSION = 49
"""Of the schema, at which the capture has all its tables."""
ORDERS, NOPK, CLUSTERED, TYPES, PART = 86, 90, 92, 94, 96


def entries(value: bytes, found: TransactionEncoder | None = None) -> bytes:
    return b"".join(it.data for it in (found or encoder()).encode(value, 0).entries)


def changes(value: bytes) -> list[Change]:
    return decode_changes(entries(value))


def rows(table: int, *found: tuple[int, bytes]) -> list[Row]:
    return decode_rows(entries(transaction(1 << 18, mutation(table, found), version=VERSION)))


def payload(label: str) -> bytes:
    """The captured transaction of a step."""
    return {it.label: it.payload for it in pulled()}[label]


def reason(table: int, *found: tuple[int, bytes], version: int = VERSION) -> str:
    """Why the changes of a table cannot be decoded, as the marker in their place says."""
    _, marker, _ = changes(transaction(1 << 18, mutation(table, found), version=version))
    assert (marker.entry_type, marker.type) == ("ROWDATA", "QUERY")
    return marker.header_props[props.QUARANTINE]


# --- the capture -----------------------------------------------------------------------------------------------------


def as_drainer_but(record: bytes) -> secondary.Binlog:
    """A record of Drainer, without what ours does not have, and with what Drainer's own lacks."""
    found = secondary.Binlog.FromString(record)
    # Entries have statements without the semicolon that TiDB adds.
    found.ddl_data.ddl_query = found.ddl_data.ddl_query.removesuffix(b";")
    if found.type == secondary.DML:  # Drainer writes an empty one
        found.ClearField("ddl_data")
    for table in found.dml_data.tables:
        for change in table.mutations:
            # Drainer loses the stored generated column of an update.
            if table.table_name == "gen" and change.type == secondary.Update:
                for row in (change.row, change.change_row):
                    row.columns[3].ClearField("is_null")
                    row.columns[3].int64_value = row.columns[1].int64_value + 1
    return found


def test_the_captured_transactions_are_the_records_of_drainer_byte_for_byte() -> None:
    source, form = encoder(), TidbEncoder(limit=1 << 20)
    expected = [(it.label, as_drainer_but(it.value)) for it in captured()]
    found = []
    for it in pulled():
        data = entries(it.payload, source)
        if data:
            places = varint(4) * 2 * len(Messages.FromString(data).messages)
            found += [(it.label, record) for record in form.encode([data], 1, positions=places).values]
    assert [(label, secondary.Binlog.FromString(it)) for label, it in found] == expected
    assert [it for _, it in found] == [it.SerializeToString() for _, it in expected]
    assert len(found) == 65


def test_of_a_dropped_column_the_second_statement_is_delivered_and_heartbeats_have_no_entries() -> None:
    counts: dict[str, list[int]] = {}
    for it in pulled():
        counts.setdefault(it.label, []).append(len(encoder().encode(it.payload, 0).entries))
    assert counts["ddl_drop_column"] == [0, 1]
    assert counts["fake"] == [0] * 6


def test_headers_say_the_commit_ts_and_the_unique_keys() -> None:
    value = payload("multi_table_txn")
    begin, *found, end = changes(value)
    assert {it.header_props[props.COMMIT_TS] for it in (begin, *found, end)} == {"470608642380136452"}
    assert [it.header_props.get(props.KEYS) for it in found] == [
        *['[["PRIMARY","id"]]'] * 3,
        '[["PRIMARY","order_id","line"],["u_sku","sku"]]',
    ]
    assert begin.execute_time == 470608642380136452 >> 18


def test_timestamps_are_those_of_the_configured_zone() -> None:
    data = entries(payload("tz_insert"), encoder(time_zone="Asia/Tokyo"))
    (row,) = decode_rows(data)
    assert row.after is not None
    assert str(row.after["c_timestamp"]) == "2024-06-01 09:00:00"
    assert str(row.after["c_datetime"]) == "2024-06-01 08:00:00"


# --- statements ------------------------------------------------------------------------------------------------------


def statement(job: int, sql: bytes, state: int = 5) -> bytes:
    return field(1, 1) + field(2, 5) + field(3, 1 << 18) + field(6, sql) + field(7, job) + field(8, state)


def test_a_statement_whose_job_is_not_known_is_encoded_once_it_is() -> None:
    source = TransactionEncoder("f", Definitions(b"[]"), time_zone="UTC")
    with pytest.raises(UnknownJobError, match="no job 109: RENAME"):
        source.encode(statement(109, b"RENAME TABLE a TO b"), 0)
    source.definitions = Definitions(history())
    (change,) = decode_changes(entries(statement(109, b"RENAME TABLE `orders` TO `orders2`"), source))
    assert (change.type, change.schema, change.table) == ("RENAME", "shop", "orders2")


@pytest.mark.parametrize(
    "value", [statement(115, b"ALTER TABLE t ADD COLUMN id INT"), statement(999, b"select setval(s,1)")]
)
def test_a_statement_that_has_changed_no_table_has_no_entry(value: bytes) -> None:
    assert encoder().encode(value, 0).entries == []


# --- rows ------------------------------------------------------------------------------------------------------------


def test_rows_come_in_the_order_that_the_transaction_says() -> None:
    old, new = pairs([(1, integer(7)), (2, null())]), pairs([(1, integer(7)), (2, integer(8))])
    found = [(INSERT, integer(7) + null()), (DELETE, old), (INSERT, integer(7) + null()), (UPDATE, old + new)]
    assert [(it.type, it.before, it.after) for it in rows(PART, *found)] == [
        ("INSERT", None, {"id": 7, "d": None}),
        ("DELETE", {"id": 7, "d": None}, None),
        ("INSERT", None, {"id": 7, "d": None}),
        ("UPDATE", {"id": 7, "d": None}, {"id": 7, "d": 8}),
    ]


def test_an_unsigned_handle_beyond_the_signed_numbers_is_read_as_unsigned() -> None:
    kind = {"Tp": 8, "Flag": 2 | 32, "Flen": 20, "Decimal": 0, "Charset": "binary", "Elems": None}
    table = {
        "id": 5, "name": {"O": "t"}, "pk_is_handle": True,
        "cols": [{"id": 1, "name": {"O": "id"}, "type": kind, "state": 5}],
    }  # fmt: skip
    jobs = [
        {"id": 1, "type": 3, "schema_id": 1, "schema_name": "s", "binlog": {"SchemaVersion": 1, "TableInfo": table}}
    ]
    source = encoder(json.dumps(jobs).encode())
    (row,) = decode_rows(entries(transaction(9, mutation(5, [(INSERT, integer(-1) + null())])), source))
    assert row.after == {"id": (1 << 64) - 1}


def test_values_of_columns_that_statements_do_not_see_are_left_out() -> None:
    (row,) = rows(NOPK, (DELETE, pairs([(1, integer(3)), (9, text("hidden")), (2, text("x"))])))
    assert row.before == {"a": 3, "b": "x"}


TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
COLUMNS: dict[int, tuple[str, st.SearchStrategy[tuple[bytes, Any]]]] = {}


def column(number: int, name: str, values: st.SearchStrategy[Any], encode: Any) -> None:
    COLUMNS[number] = name, values.map(lambda it: (encode(it), it))


for number, name, bits in [
    (2, "c_tiny", 7),
    (5, "c_small", 15),
    (6, "c_medium", 23),
    (7, "c_int", 31),
    (8, "c_big", 63),
]:
    column(number, name, st.integers(-(1 << bits), (1 << bits) - 1), integer)
column(9, "c_ubig", st.integers(0, (1 << 64) - 1), unsigned)
column(10, "c_float", st.floats(allow_nan=False, allow_infinity=False, width=32), double)
column(11, "c_double", st.floats(allow_nan=False, allow_infinity=False), double)
column(
    12, "c_decimal",
    st.integers(-(10**30) + 1, 10**30 - 1).map(lambda it: Decimal(f"{it}e-10")), lambda it: decimal(it, 30, 10),
)  # fmt: skip
column(13, "c_bit", st.integers(0, 1023), unsigned)
column(14, "c_date", st.dates(), lambda it: moment(it.year, it.month, it.day))
column(
    15, "c_datetime",
    st.datetimes().map(lambda it: it.replace(microsecond=it.microsecond // 1000 * 1000)),
    lambda it: moment(it.year, it.month, it.day, (it.hour, it.minute, it.second, it.microsecond)),
)  # fmt: skip
column(
    17, "c_time",
    st.integers(-838 * 360000, 838 * 360000).map(lambda it: timedelta(milliseconds=it * 10)),
    lambda it: integer(it // timedelta(microseconds=1) * 1000),
)  # fmt: skip
column(18, "c_year", st.integers(1901, 2155), integer)
column(20, "c_varchar", TEXTS.map(lambda it: it[:50]), text)
column(24, "c_varbinary", st.binary(max_size=20), text)
column(27, "c_enum", st.sampled_from([(1, "red"), (3, "blue")]), lambda it: unsigned(it[0]))
column(28, "c_set", st.sampled_from([(5, {"a", "c"}), (0, set())]), lambda it: unsigned(it[0]))
column(
    29,
    "c_json",
    st.recursive(
        st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | TEXTS,
        lambda it: st.lists(it, max_size=4) | st.dictionaries(TEXTS, it | st.none(), max_size=4),
        max_leaves=12,
    ),
    document,
)


@given(st.fixed_dictionaries({}, optional={number: values for number, (_, values) in COLUMNS.items()}))
def test_any_row_is_read_as_it_was_encoded(found: dict[int, tuple[bytes, Any]]) -> None:
    values = [(number, encoded) for number, (encoded, _) in sorted(found.items())]
    key = [(1, unsigned(7))]
    empty = {number: null() for number in COLUMNS}
    whole = pairs(key + sorted({**empty, **dict(values)}.items()))
    inserted, deleted, updated = rows(
        TYPES, (INSERT, integer(7) + (pairs(values) or null())), (DELETE, whole), (UPDATE, whole + whole)
    )
    expected = {COLUMNS[number][0]: it[1] if isinstance(it, tuple) else it for number, (_, it) in found.items()}
    for row in (inserted.after, deleted.before, updated.before, updated.after):
        assert row is not None
        assert row["id"] == 7
        if row["c_float"] is not None:  # its text has the shortest digits that mean the same FLOAT
            row["c_float"] = struct.unpack("f", struct.pack("f", row["c_float"]))[0]
        assert {name: value for name, value in row.items() if value is not None and name != "id"} == expected
    assert updated.changed == ()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (2.5, "2.5"), (100.0, "100"), (-0.25, "-0.25"), (1e20, "100000000000000000000"), (1e21, "1e+21"),
        (1.5e300, "1.5e+300"), (1e-6, "0.000001"), (1.5e-7, "1.5e-7"), (0.0, "0"),
        ({"a": [1, None, True], "b": 'q"\n'}, r'{"a": [1, null, true], "b": "q\"\n"}'),
    ],
)  # fmt: skip
def test_a_document_is_written_as_tidb_prints_it(value: Any, expected: str) -> None:
    assert decode_document(document(value)[1:]) == expected


def test_bytes_in_a_document_are_written_in_base64() -> None:
    assert decode_document(b"\x0d\xfd\x05hello") == '"base64:type253:aGVsbG8="'


@pytest.mark.parametrize(
    "data", [b"", b"\x05\x01\x02", b"\x0e" + bytes(8), b"\x01\xff\xff\xff\xff\x08\0\0\0", b"\x0c\x05a"]
)
def test_what_is_no_document_is_refused(data: bytes) -> None:
    with pytest.raises(DecodeError, match="a JSON value"):
        decode_document(data)


# --- what cannot be decoded ------------------------------------------------------------------------------------------


def test_a_table_that_is_not_known_is_a_marker_and_the_others_flow_on() -> None:
    inserted = [(INSERT, integer(1) + pairs([(1, integer(5))]))]
    value = transaction(1 << 18, mutation(7, inserted), mutation(NOPK, inserted), version=VERSION)
    _, marker, row, _ = changes(value)
    assert marker.header_props[props.QUARANTINE] == (
        "table 7 at version 49 of the schema: the history of TiDB's DDL jobs has no such table"
    )
    assert (row.schema, row.table, row.type) == ("shop", "nopk", "INSERT")


GOOD = integer(1) + pairs([(1, integer(5)), (2, text("x"))])


@pytest.mark.parametrize(
    ("found", "why"),
    [
        ((INSERT, b""), "inserted row 0, byte 0: it has no handle"),
        ((INSERT, integer(1)), "inserted row 0, byte 2: it ends after its handle"),
        ((INSERT, GOOD[:-1]), "inserted row 0, column b, byte 8: not a value that the row holds"),
        ((INSERT, GOOD + b"\x08"), "byte 11: not the id of a column"),
        ((INSERT, GOOD + pairs([(2, text("y"))])), "column b, byte 13: it is there once more"),
        ((INSERT, integer(1) + pairs([(1, text("5"))])), "column a, byte 4: not a value of its type"),
        ((INSERT, integer(1) + pairs([(2, integer(5))])), "column b, byte 4: not a text"),
        ((UPDATE, pairs([(1, integer(5)), (1, integer(6)), (2, null())])), "column b, byte 11: only one of"),
        ((2, b""), "its order has a kind of row that is not read"),
    ],
)
def test_the_reason_names_table_row_column_and_place(found: tuple[int, bytes], why: str) -> None:
    text = reason(NOPK, found)
    assert text.startswith("shop.nopk (table 90 at version 49 of the schema)")
    assert why in text


def test_rows_before_one_that_cannot_be_decoded_are_part_of_the_marker() -> None:
    assert "inserted row 1," in reason(NOPK, (INSERT, GOOD), (INSERT, GOOD[:-1]))


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (field(4, 9), "deleted_ids and deleted_pks are obsolete"),
        (field(5, b"k"), "deleted_ids and deleted_pks are obsolete"),
        (field(7, 0), "its order has more rows than there are"),
        (field(2, GOOD), "its order lacks rows that are there"),
    ],
)
def test_a_table_whose_order_does_not_fit_its_rows_is_a_marker(more: bytes, why: str) -> None:
    _, marker, _ = changes(transaction(1 << 18, mutation(NOPK, [(INSERT, GOOD)]) + more, version=VERSION))
    assert why in marker.header_props[props.QUARANTINE]


def test_a_table_whose_entries_are_larger_than_the_limit_is_a_marker() -> None:
    source = TransactionEncoder("f", Definitions(history()), time_zone="UTC", limit=1000)
    small, large = mutation(NOPK, [(INSERT, GOOD)]), mutation(NOPK, [(INSERT, GOOD)] * 20)
    _, row, marker, _ = decode_changes(entries(transaction(1 << 18, small, large, version=VERSION), source))
    assert (row.type, row.table) == ("INSERT", "nopk")
    assert "the entries of its transaction are larger than is allowed" in marker.header_props[props.QUARANTINE]


@pytest.mark.parametrize(
    "value",
    [b"", b"\xff", field(1, 0) + field(3, 5), field(1, 1) + field(3, 0) + field(5, b""), field(1, 1) + field(3, 5)],
)
def test_what_is_no_transaction_is_refused(value: bytes) -> None:
    with pytest.raises(DecodeError, match="not a transaction of TiDB"):
        encoder().encode(value, 0)


def test_mutated_transactions_are_decoded_refused_or_marked_and_nothing_else() -> None:
    source, chance = encoder(), random.Random(1)
    values = [it.payload for it in pulled() if len(it.payload) < 4096]
    outcomes = {"decoded": 0, "marked": 0, "refused": 0}
    for _ in range(times(20_000, 400_000)):
        value = bytearray(chance.choice(values))
        for _ in range(chance.randint(1, 3)):
            at = chance.randrange(len(value))
            match chance.randrange(4):
                case 0:
                    value[at] = chance.choice((0, 1, 2, 5, 6, 8, 9, 10, 127, 128, 255))
                case 1:
                    value[at] ^= 1 << chance.randrange(8)
                case 2:
                    del value[at : at + chance.randint(1, 8)]
                case _:
                    value[at:at] = value[at : at + chance.randint(1, 8)]
            if not value:
                break
        try:
            found = source.encode(bytes(value), 0).entries
        except DecodeError:
            outcomes["refused"] += 1
            continue
        data = b"".join(it.data for it in found)
        is_marked = any(props.QUARANTINE in it.header_props for it in decode_changes(data))
        outcomes["marked" if is_marked else "decoded"] += 1
    assert min(outcomes.values()) > 500, outcomes


# --- in the ring -----------------------------------------------------------------------------------------------------


def test_a_marker_has_a_slot_of_the_quarantine_in_its_place() -> None:
    ring = Ring()
    stager = Stager(ring, Options(), encoder(), "7", "7.tso.0", Only())  # type: ignore[arg-type]  # it is asked alike
    stager.begin(0)
    unknown = mutation(7, [(INSERT, GOOD)])
    broken = mutation(NOPK, [(INSERT, GOOD[:-1])])
    stager.receive([(0, transaction(5 << 18, unknown, mutation(NOPK, [(INSERT, GOOD)]), broken, version=VERSION))])
    while stager.run():
        ring.put(stager.staging)
    ring.put(stager.staging)
    assert [ring.slot(n).kind for n in range(ring.next)] == [
        *(Kind.TRANSACTION_BEGIN, Kind.QUARANTINE, Kind.ROW_DATA, Kind.QUARANTINE, Kind.TRANSACTION_END)
    ]
