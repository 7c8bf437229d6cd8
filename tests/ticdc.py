"""Messages as TiCDC writes them in its protocol canal-json with enable-tidb-extension=true."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import Producer

from tests.servers.kafka import Brokers

Row = Mapping[str, str | None]

SQL_TYPES = {
    "tinyint": -6,
    "smallint": 5,
    "mediumint": 4,
    "int": 4,
    "bigint": -5,
    "varchar": 12,
    "text": 2005,
    "blob": 2004,
}


def message(**members: Any) -> bytes:
    """Return a message with the members that each has, and others."""
    known: dict[str, Any] = {
        "id": 0,
        "database": "",
        "table": "",
        "pkNames": None,
        "isDdl": False,
        "type": "",
        "es": 1_700_000_000_000,
        "ts": 1_700_000_000_500,
        "sql": "",
        "sqlType": None,
        "mysqlType": None,
        "old": None,
        "data": None,
    }
    return json.dumps(known | members, ensure_ascii=False, separators=(",", ":")).encode()


def change(
    commit_ts: int,
    before: Row | None,
    after: Row | None,
    *,
    table: str = "shop.orders",
    types: Mapping[str, str] | None = None,
    keys: Iterable[str] | None = ("id",),
) -> bytes:
    """Return the message of a row; ``types``: those of MySQL, else all are varchar but for ``id``, which is bigint."""
    row = after if after is not None else before
    assert row is not None
    known = {name: (types or {}).get(name, "bigint" if name == "id" else "varchar") for name in row}
    schema, _, name = table.partition(".")
    return message(
        database=schema,
        table=name,
        pkNames=None if keys is None else list(keys),
        type="INSERT" if before is None else "DELETE" if after is None else "UPDATE",
        sqlType={name: SQL_TYPES[kind.partition(" ")[0]] for name, kind in known.items()},
        mysqlType=known,
        old=None if before is None or after is None else [before],
        data=[row],
        _tidb={"commitTs": commit_ts},
    )


def insert(commit_ts: int, number: int, table: str = "shop.orders") -> bytes:
    """Return the message of a new row with an id."""
    return change(commit_ts, None, {"id": str(number)}, table=table)


def statement(commit_ts: int, sql: str, table: str = "shop.orders", kind: str = "ALTER") -> bytes:
    """Return the message of a DDL."""
    schema, _, name = table.partition(".")
    return message(database=schema, table=name, isDdl=True, type=kind, sql=sql, _tidb={"commitTs": commit_ts})


def watermark(ts: int) -> bytes:
    """Return the message that says that all with a lesser commit_ts was sent."""
    return message(type="TIDB_WATERMARK", _tidb={"watermarkTs": ts})


def produce(brokers: Brokers, topic: str, values: Iterable[bytes], *, time: int = 0, partition: int = 0) -> None:
    """Write messages to a partition, with the times of their records in ms since 1970; 0 for now."""
    producer = Producer({"bootstrap.servers": brokers.servers, "enable.idempotence": True})
    for value in values:
        producer.produce(topic, value, partition=partition, timestamp=time)
    assert producer.flush(30) == 0
