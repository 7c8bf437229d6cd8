"""Records of TiDB's secondary binlog as Canal's entries: what the captured ones say, in typed rows and in Arrow."""

import itertools
import json
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.protocol.canal.arrow import EnvelopeDecoder, TableDecoder, columns_of
from sluice.protocol.canal.entry_pb2 import Entry as CanalEntry
from sluice.protocol.canal.packet_pb2 import Messages
from sluice.protocol.canal.rows import Change, Row, decode_changes, decode_rows
from sluice.protocol.errors import DecodeError
from sluice.protocol.tidb import secondary_pb2 as secondary
from sluice.protocol.tidb.entries import EntryEncoder, commit_ts_of
from tests.tidb import Record, captured

DML = [it for it in captured() if "tables" in it.decoded]
DDL = [it for it in captured() if "ddl" in it.decoded]


def record(label: str) -> Record:
    return next(it for it in captured() if it.label == label)


def encode(value: bytes, offset: int = 0) -> bytes:
    return b"".join(it.data for it in EntryEncoder("1_obinlog.0").encode(value, offset).entries)


def rows(label: str) -> list[Row]:
    return decode_rows(encode(record(label).value))


# --- what the captured records say -----------------------------------------------------------------------------------


@pytest.mark.parametrize("it", DML, ids=lambda it: f"{it.offset}-{it.label}")
def test_each_row_has_the_values_that_drainer_sent(it: Record) -> None:
    found = iter(decode_rows(encode(it.value)))
    for table in it.decoded["tables"]:
        for mutation in table["mutations"]:
            row = next(found)
            assert (row.schema, row.table, row.type) == (table["schema"], table["table"], mutation["type"].upper())
            new = plain(mutation["row"], table)
            assert texts(row.before if row.type == "DELETE" else row.after) == new
            if row.type == "UPDATE":
                old = plain(mutation["change_row"], table)
                assert texts(row.before) == old
                assert set(row.changed) == {name for name in new if new[name] != old[name]}
            assert list(row.key) == [name for name, _, is_key, *_ in table["column_info"] if is_key]
        if "note" in it.decoded:
            assert sum(1 for _ in found) == 998
    assert next(found, None) is None


@pytest.mark.parametrize("it", DDL, ids=lambda it: f"{it.offset}-{it.label}")
def test_each_statement_has_its_text_schema_and_table(it: Record) -> None:
    (change,) = decode_changes(encode(it.value, it.offset))
    ddl = it.decoded["ddl"]
    assert (change.is_ddl, change.ddl_schema, change.schema, change.table) == (
        *(True, ddl["schema"], ddl["schema"]),
        ddl["table"],
    )
    assert change.sql + ";" == ddl["query"]


def test_statements_have_canals_types() -> None:
    found = {it.label: decode_changes(encode(it.value))[0].type for it in DDL}
    expected = {
        "CREATE": ("create_database", "create_table_gen", "ddl_create_view", "ddl_create_like"),
        "ALTER": ("ddl_add_column", "ddl_truncate_partition", "ddl_alter_db", "ddl_rename_column"),
        "CINDEX": ("ddl_add_index", "ddl_add_unique"),
        "RENAME": ("ddl_rename_table",),
        "TRUNCATE": ("ddl_truncate",),
        "ERASE": ("ddl_drop_view", "ddl_drop_table", "ddl_drop_database"),
    }
    assert {label: kind for kind, labels in expected.items() for label in labels}.items() <= found.items()


@pytest.mark.parametrize(
    ("sql", "kind"), [("truncate table h.low", "TRUNCATE"), ("/* app */ alter table low add v int", "ALTER")]
)
def test_a_statement_has_its_type_however_it_is_written(sql: str, kind: str) -> None:
    data = secondary.DDLData(schema_name="h", table_name="low", ddl_query=sql.encode() + b";")
    found = secondary.Binlog(type=secondary.DDL, commit_ts=1 << 18, ddl_data=data)
    (change,) = decode_changes(encode(found.SerializeToString()))
    assert (change.type, change.table, change.sql) == (kind, "low", sql)


def test_headers_name_the_offset_and_the_time_of_the_commit() -> None:
    it = record("mixed_order_txn")
    changes = decode_changes(encode(it.value, 18))
    for change in changes:
        assert (change.logfile_name, change.logfile_offset) == ("1_obinlog.0", 18)
        assert change.execute_time == it.commit_ts >> 18
    assert changes[0].entry_type == "TRANSACTIONBEGIN"
    assert (changes[-1].entry_type, changes[-1].transaction_id) == ("TRANSACTIONEND", str(it.commit_ts))
    assert {change.type for change in changes[1:-1]} == {"INSERT", "UPDATE", "DELETE"}


def test_protobuf_reads_the_entries_and_their_number_of_rows() -> None:
    messages = Messages.FromString(encode(record("big_txn").value)).messages
    entries = [CanalEntry.FromString(it) for it in messages]
    assert [pair.value for entry in entries for pair in entry.header.props] == ["1000"]
    assert {entry.header.sourceType for entry in entries} == {2}


# --- types -----------------------------------------------------------------------------------------------------------


def test_values_have_the_types_of_the_sdk() -> None:
    found = rows("types_full")[0].after
    assert found is not None
    kinds = {name: type(value) for name, value in found.items()}
    expected = {
        int: ("id", "c_tiny", "c_utiny", "c_bool", "c_small", "c_medium", "c_int", "c_big", "c_ubig"),
        float: ("c_float", "c_double"),
    }
    assert {name: kind for kind, names in expected.items() for name in names}.items() <= kinds.items()
    assert {Decimal, date, datetime, timedelta, bytes, str} <= set(kinds.values())


def test_types_are_written_as_mysql_writes_them() -> None:
    types = dict(columns_of(encode(record("types_full").value), "shop", "types"))
    assert types["id"] == "int unsigned"
    assert types["c_bool"] == "tinyint(1)"
    assert types["c_ubig"] == "bigint unsigned"
    assert dict(columns_of(encode(record("insert_one").value), "shop", "orders")) == {
        "id": "bigint",
        "customer": "varchar(64)",
        "amount": "decimal(10,2)",
        "note": "text",
    }


def test_a_column_of_nothing_but_null_is_unsigned_by_its_length() -> None:
    full = dict(columns_of(encode(record("types_full").value), "shop", "types"))
    null = dict(columns_of(encode(record("types_null").value), "shop", "types"))
    assert {name for name, it in full.items() if null[name] != it} == {"c_ubig"}


def test_a_float_has_the_digits_of_a_float() -> None:
    value = dml([("f", "float"), ("d", "double")], [[{"double_value": 0.10000000149011612}, {"double_value": 0.1}]])
    (row,) = decode_rows(encode(value))
    assert row.after == {"f": 0.1, "d": 0.1}
    assert b"0.1000000" not in encode(value)


def test_bits_are_a_number_and_zeros_at_the_end_of_binary_come_back() -> None:
    columns = [("b", "bit", 10), ("x", "binary", 4)]
    (row,) = decode_rows(encode(dml(columns, [[{"bytes_value": b"\x02\x01"}, {"bytes_value": b"a\xff\0\0"}]])))
    assert row.after == {"b": 513, "x": b"a\xff\0\0"}


def test_an_enum_and_a_set_are_numbers_because_no_record_has_their_labels() -> None:
    data = encode(dml([("e", "enum"), ("s", "set")], [[{"uint64_value": 2}, {"uint64_value": 5}]]))
    assert decode_rows(data)[0].after == {"e": 2, "s": 5}
    decoder = TableDecoder("s", "t", columns_of(data, "s", "t"))
    assert decoder.decode(data).select(["e", "s"]).to_pylist() == [{"e": 2, "s": 5}]


def test_text_that_is_not_utf8_is_repaired_and_not_refused() -> None:
    value = dml([("t", "json")], [[{"bytes_value": b'"\xff"'}]])
    (row,) = decode_rows(encode(value))
    assert row.after == {"t": "\ufffd"}


def test_arrow_has_the_same_rows() -> None:
    data = encode(record("types_full").value)
    batch = TableDecoder("shop", "types", columns_of(data, "shop", "types")).decode(data)
    (row,) = decode_rows(data)
    assert row.after is not None
    (found,) = batch.to_pylist()
    assert found["_op"] == "INSERT"
    for name in ("id", "c_ubig", "c_double"):
        assert found[name] == row.after[name]
    assert EnvelopeDecoder().decode(data).num_rows == 1


# --- what is not a record --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "lacks its type, its commit_ts or its changes"),
        (b"\x08\x00\x10\x07", "lacks its type"),
        (b"\x08\x01\x10\x07\x1a\x00", "lacks its type"),
        (b"\x08\x02\x10\x07\x1a\x00", "lacks its type"),
        (b"hello", "not protobuf"),
        (bytes.fromhex("0800 1007 1a06 0a04 2202 0800"), "not protobuf of its form"),
        (bytes.fromhex("0800 1007 1a08 0a06 2204 0803 1200"), "not protobuf of its form"),
        (bytes.fromhex("0800 1007 1a08 0a06 2204 0801 1200"), "not protobuf of its form"),
    ],
)
def test_what_is_not_a_record_is_refused(value: bytes, reason: str) -> None:
    with pytest.raises(DecodeError, match=reason):
        encode(value)


def test_a_row_has_as_many_values_as_the_table_has_columns() -> None:
    one = {"int64_value": 1}
    for cells in ([one], [one, one, one]):
        with pytest.raises(DecodeError, match=r"s\.t: a row has . values or more, and the table 2 columns"):
            encode(dml([("a", "int"), ("b", "int")], [cells]))
    with pytest.raises(DecodeError, match="a column has no value"):
        encode(dml([("a", "int")], [[{}]]))


@given(st.integers(0, len(DML) - 1), st.data())
def test_damaged_bytes_are_refused_or_read_and_never_more(number: int, data: st.DataObject) -> None:
    value = bytearray(DML[number].value[:2000])
    for _ in range(data.draw(st.integers(1, 4))):
        value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = encode(bytes(value))
    except DecodeError:
        return
    made = [CanalEntry.FromString(it) for it in Messages.FromString(found).messages]
    assert [it.raw for it in decode_changes(found)] == [it.storeValue for it in made]


def test_the_commit_ts_is_read_alone() -> None:
    assert [commit_ts_of(it.value) for it in captured()] == [it.commit_ts for it in captured()]
    for value in (b"", b"\x08\x00", b"\xff"):
        with pytest.raises(DecodeError, match="not a record"):
            commit_ts_of(value)


# --- entries ---------------------------------------------------------------------------------------------------------


@given(st.lists(st.sampled_from(["Insert", "Update", "Delete"]), max_size=20))
def test_runs_of_one_kind_are_one_entry_and_the_order_stays(kinds: list[str]) -> None:
    table = secondary.Table(schema_name="s", table_name="t")
    table.column_info.add(name="id", mysql_type="int", flen=11)
    for number, kind in enumerate(kinds):
        mutation = table.mutations.add(type=secondary.MutationType.Value(kind))
        mutation.row.columns.add(int64_value=number)
        if kind == "Update":
            mutation.change_row.columns.add(int64_value=-number)
    value = secondary.Binlog(type=secondary.DML, commit_ts=1 << 18, dml_data=secondary.DMLData(tables=[table]))
    found = decode_changes(encode(value.SerializeToString()))
    rows = [row for change in found for row in change.rows()]
    assert [row.type for row in rows] == [kind.upper() for kind in kinds]
    assert [(row.after or row.before or {})["id"] for row in rows] == list(range(len(kinds)))
    data = [change for change in found if change.entry_type == "ROWDATA"]
    assert all(one.type != next_.type for one, next_ in itertools.pairwise(data))


def test_a_large_run_is_several_entries() -> None:
    value = dml([("t", "text")], [[{"string_value": "x" * 50_000}] for _ in range(20)])
    changes: list[Change] = decode_changes(encode(value))
    assert [len(it.rows()) for it in changes] == [0, 6, 6, 6, 2, 0]


def dml(columns: list[Any], rows: list[list[dict[str, Any]]]) -> bytes:
    """Return a record of inserted rows; a column is a name, a type, and maybe a length."""
    table = secondary.Table(schema_name="s", table_name="t")
    for name, mysql_type, *length in columns:
        table.column_info.add(name=name, mysql_type=mysql_type, flen=length[0] if length else -1, decimal=-1)
    for cells in rows:
        row = table.mutations.add(type=secondary.Insert).row
        row.SetInParent()
        for cell in cells:
            row.columns.add(**cell)
    data = secondary.DMLData(tables=[table])
    return secondary.Binlog(type=secondary.DML, commit_ts=1 << 18, dml_data=data).SerializeToString()


def plain(cells: list[dict[str, Any]], table: dict[str, Any]) -> dict[str, str | None]:
    """Return what another reader has found, as texts; bytes in hexadecimal."""
    found: dict[str, str | None] = {}
    for cell, (name, kind, *_) in zip(cells, table["column_info"], strict=True):
        ((field, value),) = cell.items()
        if field == "is_null":
            found[name] = None
        elif kind == "bit":
            found[name] = str(int(value, 16))
        elif kind == "json":
            found[name] = json.dumps(json.loads(bytes.fromhex(value)))
        elif kind == "float":
            found[name] = str(Decimal(f"{value:.6g}").normalize())
        elif kind in ("decimal", "double"):
            found[name] = str(Decimal(str(value)).normalize())
        elif kind in ("datetime", "timestamp", "time"):
            found[name] = value.rstrip("0").rstrip(".") if "." in value else value
        else:
            found[name] = str(value)
    return found


def texts(image: dict[str, Any] | None) -> dict[str, str | None]:
    """Return the values of a row in the same form."""
    assert image is not None
    found: dict[str, str | None] = {}
    for name, value in image.items():
        match value:
            case None:
                found[name] = None
            case _ if name == "c_json":
                found[name] = json.dumps(value)
            case bytes():
                found[name] = value.hex()
            case float() | Decimal():
                found[name] = str(Decimal(f"{value:.6g}" if name == "c_float" else str(value)).normalize())
            case datetime():
                found[name] = str(value).rstrip("0").rstrip(".") if value.microsecond else str(value)
            case timedelta():
                seconds, micros = divmod(abs(value) // timedelta(microseconds=1), 1_000_000)
                text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
                sign = "-" if value < timedelta() else ""
                found[name] = sign + (f"{text}.{micros:06}".rstrip("0") if micros else text)
            case _:
                found[name] = str(value)
    return found
