"""A server whose source is TiDB's secondary binlog: what HTTP, Canal's Java client and Spark get of it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.clients.java import JavaConsumer
from tests.faults.harness import Sluice
from tests.servers.kafka import Kafka
from tests.spark.streams import Sink, load
from tests.tidb import ddl, dml, produce, table

pytestmark = pytest.mark.extended

TOPIC = "spark_obinlog"
COLUMNS = "*id bigint, v varchar"


@pytest.fixture
def sluice(tmp_path: Path, kafka: Kafka) -> Iterator[Sluice]:
    """A server that reads a topic as destination `shop`, with a transaction, a DDL, and another transaction."""
    kafka.create(TOPIC)
    first = [(None, (1, "ü")), (None, (2, None)), ((1, "ü"), (1, "b")), ((2, None), None)]
    values = [
        dml(10, table("s", "t", COLUMNS, first)),
        ddl(20, "s", "ALTER TABLE `t` ADD COLUMN `w` INT;", "t"),
        dml(30, table("s", "t", f"{COLUMNS}, w int", [(None, (3, "c", 7))])),
    ]
    produce(kafka, TOPIC, values)
    server = Sluice(tmp_path / "sluice")
    server.configure(
        "shop",
        sluice__instance__source="kafka",
        sluice__instance__kafka__brokers=kafka.servers,
        sluice__instance__kafka__topic=TOPIC,
        sluice__instance__kafka__commitTs=1,
    )
    with server:
        server.wait_running()
        yield server


def test_each_consumer_gets_the_changes_as_if_from_mysql(sluice: Sluice, spark: SparkSession, tmp_path: Path) -> None:
    rows: list[tuple[Any, ...]] = []
    with sluice.client(1002) as client, JavaConsumer() as java:
        client.subscribe()  # holds the ring until the others have read it
        java.connect(sluice.canal_port)
        java.call("subscribe", "")
        batch = java.get(100, 10_000)
        sink = Sink(tmp_path)
        sink.read_available(load(spark, sluice, clientId=1003))
        for found in client.stream():
            rows += [(it.type, it.before, it.after) for it in found.rows()]
            if len(rows) == 5:
                break
    assert rows == [
        ("INSERT", None, {"id": 1, "v": "ü"}),
        ("INSERT", None, {"id": 2, "v": None}),
        ("UPDATE", {"id": 1, "v": "ü"}, {"id": 1, "v": "b"}),
        ("DELETE", {"id": 2, "v": None}, None),
        ("INSERT", None, {"id": 3, "v": "c", "w": 7}),
    ]
    assert batch.changes("t") == ["INSERT 1,ü", "INSERT 2,", "UPDATE 1,b", "DELETE 2,", "ALTER ", "INSERT 3,c,7"]
    assert [(it["_op"], it["_key"], it["before"], it["after"]) for it in sink.rows] == [
        ("INSERT", ["1"], None, {"id": "1", "v": "ü"}),
        ("INSERT", ["2"], None, {"id": "2", "v": None}),
        ("UPDATE", ["1"], {"id": "1", "v": "ü"}, {"id": "1", "v": "b"}),
        ("DELETE", ["2"], {"id": "2", "v": None}, None),
        ("INSERT", ["3"], None, {"id": "3", "v": "c", "w": "7"}),
    ]
