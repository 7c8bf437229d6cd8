"""The protobuf of TiDB's secondary binlog: what Drainer wrote is read, and written again, with it."""

from typing import Any

import pytest
from google.protobuf.message import Message

from sluice.protocol.tidb import secondary_pb2 as secondary
from tests.tidb import Record, captured, in_tokyo


@pytest.mark.parametrize("record", captured(), ids=lambda record: f"{record.offset}-{record.label}")
def test_what_drainer_wrote_is_written_again_byte_for_byte(record: Record) -> None:
    binlog = secondary.Binlog.FromString(record.value)
    assert not has_unknown_fields(binlog)
    assert binlog.SerializeToString() == record.value
    assert binlog.commit_ts == record.commit_ts


def test_the_same_holds_for_a_drainer_in_another_time_zone() -> None:
    assert [secondary.Binlog.FromString(value).SerializeToString() for value in in_tokyo()] == in_tokyo()


@pytest.mark.parametrize("record", captured(), ids=lambda record: f"{record.offset}-{record.label}")
def test_a_record_says_what_was_done(record: Record) -> None:
    binlog = secondary.Binlog.FromString(record.value)
    decoded = record.decoded
    assert secondary.BinlogType.Name(binlog.type) == decoded["type"]
    assert not binlog.HasField("time_zone")
    if "ddl" in decoded:
        ddl = binlog.ddl_data
        found = {"schema": ddl.schema_name, "table": ddl.table_name, "query": ddl.ddl_query.decode()}
        assert found == decoded["ddl"]
    else:
        assert [table_of(it, decoded) for it in binlog.dml_data.tables] == decoded["tables"]


def test_a_change_has_a_type_and_a_row() -> None:
    assert secondary.TableMutation.FromString(bytes.fromhex("0800 1200")).IsInitialized()
    assert not secondary.TableMutation.FromString(bytes.fromhex("0800")).IsInitialized()
    assert not secondary.TableMutation.FromString(bytes.fromhex("1200")).IsInitialized()


def table_of(table: secondary.Table, decoded: dict[str, Any]) -> dict[str, Any]:
    mutations = table.mutations[:2] if "note" in decoded else table.mutations
    return {
        "schema": table.schema_name,
        "table": table.table_name,
        "column_info": [[it.name, it.mysql_type, it.is_primary_key, it.flen, it.decimal] for it in table.column_info],
        "unique_keys": [[key.name, list(key.column_names)] for key in table.unique_keys],
        "mutations": [mutation_of(it) for it in mutations],
    }


def mutation_of(mutation: secondary.TableMutation) -> dict[str, Any]:
    found: dict[str, Any] = {"type": secondary.MutationType.Name(mutation.type), "row": row_of(mutation.row)}
    return found | ({"change_row": row_of(mutation.change_row)} if mutation.HasField("change_row") else {})


def row_of(row: secondary.Row) -> list[dict[str, Any]]:
    return [
        {field.name: value.hex() if isinstance(value, bytes) else value for field, value in column.ListFields()}
        for column in row.columns
    ]


def has_unknown_fields(message: Message) -> bool:
    """Whether a message, or one inside it, has fields that its definition does not name."""
    copy = type(message)()
    copy.CopyFrom(message)
    copy.DiscardUnknownFields()
    return copy.SerializeToString() != message.SerializeToString()
