"""Messages of TiDB's binlog, records of its secondary binlog: captured ones (see tests/data/README.md), and others."""

import base64
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from sluice.protocol.tidb import secondary_pb2 as secondary
from tests.servers.kafka import Brokers

DATA = Path(__file__).parent / "data" / "tidb"


@dataclass(frozen=True, slots=True)
class Record:
    """A record, and what somebody else has read in it."""

    label: str
    offset: int
    commit_ts: int
    value: bytes
    decoded: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Step:
    """What was done for records of the same label."""

    label: str
    sql: list[str]
    error: Any
    """Number and text of the error that TiDB gave; None without."""


@cache
def steps() -> list[Step]:
    """Return what was done, in order."""
    return [Step(it["label"], it["sql"], it["error"]) for it in _lines("steps")]


@cache
def captured() -> list[Record]:
    """Return the records that Drainer wrote."""
    return [
        Record(it["label"], it["offset"], it["commit_ts"], base64.b64decode(it["value"]), decoded)
        for it, decoded in zip(_lines("kafka_slave"), _lines("kafka_slave_decoded"), strict=True)
    ]


@cache
def history() -> bytes:
    """Return the history of the DDL jobs of what was done."""
    return (DATA / "jobs.json").read_bytes()


def in_tokyo() -> list[bytes]:
    """Return those of a Drainer whose time zone is Asia/Tokyo."""
    return [base64.b64decode(it["value"]) for it in _lines("kafka_slave_tokyo")]


@dataclass(frozen=True, slots=True)
class PumpMessage:
    """A message between TiDB, its pump and a drainer."""

    label: str
    """Of the step that led to it; ``fake`` of a heartbeat."""
    arrived: int
    """µs since 1970."""
    payload: bytes


@cache
def written() -> list[PumpMessage]:
    """Return the messages that TiDB wrote to a pump, in the order in which they arrived."""
    return _messages("write_binlog")


@cache
def pulled() -> list[PumpMessage]:
    """Return the messages that the pump gave a drainer for them, heartbeats among them."""
    return _messages("pull_binlogs")


def _messages(name: str) -> list[PumpMessage]:
    return [PumpMessage(it["label"], it["t"], base64.b64decode(it["payload"])) for it in _lines(name)]


def _lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / f"{name}.jsonl").read_text().splitlines()]


Values = Sequence[int | float | str | bytes | None]
Change = tuple[Values | None, Values | None]
"""The row before and after; of an insert there is none before, of a delete none after."""


def ddl(commit_ts: int, schema: str, sql: str, table: str = "") -> bytes:
    """Return the record of a statement."""
    data = secondary.DDLData(schema_name=schema, table_name=table, ddl_query=sql.encode())
    return secondary.Binlog(type=secondary.DDL, commit_ts=commit_ts, ddl_data=data).SerializeToString()


def dml(commit_ts: int, *tables: secondary.Table) -> bytes:
    """Return the record of a transaction."""
    data = secondary.DMLData(tables=tables)
    return secondary.Binlog(type=secondary.DML, commit_ts=commit_ts, dml_data=data).SerializeToString()


def table(schema: str, name: str, columns: str, changes: Iterable[Change]) -> secondary.Table:
    """Return the changes of a table; its columns are names with types, ``*`` before those of the key."""
    found = secondary.Table(schema_name=schema, table_name=name)
    for column in columns.split(", "):
        it, kind = column.lstrip("*").split(" ")
        found.column_info.add(name=it, mysql_type=kind, is_primary_key=column.startswith("*"), flen=-1, decimal=-1)
    for before, after in changes:
        number = secondary.Insert if before is None else secondary.Delete if after is None else secondary.Update
        mutation = found.mutations.add(type=number)
        _fill(mutation.row, (before if after is None else after) or ())
        if number == secondary.Update:
            _fill(mutation.change_row, before or ())
    return found


def _fill(row: secondary.Row, values: Values) -> None:
    fields = {int: "int64_value", float: "double_value", str: "string_value", bytes: "bytes_value"}
    for value in values:
        row.columns.add(**({"is_null": True} if value is None else {fields[type(value)]: value}))


def produce(brokers: Brokers, topic: str, values: Iterable[bytes], *, ends: Sequence[str] = ()) -> None:
    """Write records, or for each of ``ends`` a transaction with one of them that is committed or aborted."""
    config = {"bootstrap.servers": brokers.servers, "linger.ms": 5, "message.max.bytes": 40 << 20}
    if not ends:
        producer = Producer(config)
        for value in values:
            producer.produce(topic, value, partition=0)
        assert producer.flush(30) == 0
        return
    producer = Producer({**config, "transactional.id": f"t-{topic}"})
    producer.init_transactions(20)
    for value, end in zip(values, ends, strict=True):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        producer.flush(20)
        (producer.commit_transaction if end == "commit" else producer.abort_transaction)(20)
