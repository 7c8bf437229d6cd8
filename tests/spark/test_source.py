"""The stream of a source in Spark."""

from pathlib import Path

from pyspark.sql import SparkSession

from tests.faults.harness import Sluice
from tests.servers import Server


def options(sluice: Sluice, **others: str) -> dict[str, str]:
    return {"url": sluice.url, "destination": "shop", "clientId": "1001"} | others


def test_changes_arrive_once_and_are_acked(
    spark: SparkSession, source: Server, schema: str, sluice: Sluice, tmp_path: Path
) -> None:
    source.query(f"CREATE TABLE {schema}.goods (id INT PRIMARY KEY, name VARCHAR(20))")
    source.query(f"INSERT INTO {schema}.goods VALUES (1, 'a'), (2, NULL)")
    source.query(f"UPDATE {schema}.goods SET name = 'b' WHERE id = 1")
    source.query(f"DELETE FROM {schema}.goods WHERE id = 2")
    stream = spark.readStream.format("sluice").options(**options(sluice)).load()
    for _ in range(2):
        query = (
            stream.writeStream.trigger(availableNow=True)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .option("path", str(tmp_path / "out"))
            .format("parquet")
            .start()
        )
        assert query.awaitTermination(60)
    rows = spark.read.parquet(str(tmp_path / "out")).orderBy("_pos").collect()
    assert [(row["_op"], row["before"], row["after"]) for row in rows] == [
        ("INSERT", None, {"id": "1", "name": "a"}),
        ("INSERT", None, {"id": "2", "name": None}),
        ("UPDATE", {"id": "1", "name": "a"}, {"id": "1", "name": "b"}),
        ("DELETE", {"id": "2", "name": None}, None),
    ]
    assert {(row["_schema"], row["_table"]) for row in rows} == {(schema, "goods")}
    assert sluice.destination()["clients"][0]["lag"]["entries"] == 0


def test_a_range_can_be_read_as_a_batch(spark: SparkSession, source: Server, schema: str, sluice: Sluice) -> None:
    with sluice.client() as client:
        client.subscribe()
        source.query(f"CREATE TABLE {schema}.numbers (id INT PRIMARY KEY)")
        begin = client.position(client.status()["position"], timeout=10).to
        source.query(f"INSERT INTO {schema}.numbers VALUES (1), (2), (3)")
        end = client.position(begin, timeout=10).to
    batch = spark.read.format("sluice").options(**options(sluice, **{"from": begin, "to": end})).load()
    assert [row["after"]["id"] for row in batch.orderBy("_pos").collect()] == ["1", "2", "3"]
