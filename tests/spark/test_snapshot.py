"""Tables as they are now in Spark, and copies of them that a mirror goes on with."""

from collections.abc import Iterator

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from tests.faults.harness import Sluice
from tests.servers import Server
from tests.spark.streams import load, options


def snapshot(spark: SparkSession, source: Server, **others: object) -> DataFrame:
    """A snapshot of tables of the source."""
    given = {
        "snapshot": f"mysql://{source.user}@{source.host}:{source.port}",
        "snapshotPassword": source.password,
    } | others
    return spark.read.format("sluice").options(**{name: str(value) for name, value in given.items()}).load()


@pytest.fixture
def secret(source: Server) -> Iterator[str]:
    """The password of an account `reader` that may read everything."""
    password = "not-to-be-shown"
    source.query(f"CREATE USER reader@'%' IDENTIFIED BY '{password}'")
    source.query("GRANT SELECT ON *.* TO reader@'%'")
    yield password
    source.query("DROP USER reader@'%'")


def test_a_table_is_read_in_ranges_with_the_types_of_the_stream(
    spark: SparkSession, source: Server, schema: str, sluice: Sluice, secret: str
) -> None:
    source.query(
        f"CREATE TABLE {schema}.goods (name VARCHAR(20) PRIMARY KEY, price DECIMAL(10,2), made TIMESTAMP(3) NULL,"
        " data BINARY(4), colour ENUM('red', 'blue'), tags SET('a', 'b'), n BIGINT UNSIGNED, f FLOAT, day DATE)"
    )
    rows = ", ".join(
        f"('ž{i}', {i}.5, FROM_UNIXTIME({i}), X'00FF{i % 256:02X}01', 'blue', 'a,b', {(1 << 64) - 1 - i}, 0.1, '2026-1-1')"
        for i in range(1, 1001)
    )
    source.query(f"INSERT INTO {schema}.goods VALUES {rows}")
    found = snapshot(
        spark,
        source,
        snapshot=f"mysql://reader@{source.host}:{source.port}",
        snapshotPassword=secret,
        table=f"{schema}.goods",
        snapshotRows=150,
    )
    assert found.schema == load(spark, sluice, table=f"{schema}.goods").schema
    assert found.rdd.getNumPartitions() == 7
    assert secret not in found._jdf.queryExecution().toString()
    assert found.select("name").distinct().count() == 1000
    [row] = found.where("name = 'ž777'").collect()
    assert (row["_pos"], row["_gtid"], row["_op"]) == (None, None, "INSERT")
    assert str(row["price"]) == "777.50"
    assert row["made"].timestamp() == 777
    assert row["data"] == b"\0\xff\x09\x01"
    assert (row["colour"], row["tags"], row["n"]) == ("blue", ["a", "b"], (1 << 64) - 1 - 777)


def test_all_tables_of_the_stream_are_read_as_maps(
    spark: SparkSession, source: Server, schema: str, sluice: Sluice
) -> None:
    source.query(f"CREATE TABLE {schema}.goods (id INT PRIMARY KEY, name VARCHAR(20))")
    source.query(f"CREATE TABLE {schema}.orders (id INT, line INT, PRIMARY KEY (id, line))")
    source.query(f"CREATE TABLE {schema}.notes (text TEXT)")
    source.query(f"INSERT INTO {schema}.goods VALUES (1, 'a'), (2, NULL)")
    source.query(f"INSERT INTO {schema}.orders VALUES (1, 7)")
    found = snapshot(spark, source, filter=r".*\.(goods|orders)", **options(sluice)).orderBy("_table", "_key").collect()
    assert [(row["_op"], row["_schema"], row["_table"], row["_key"], row["after"]) for row in found] == [
        ("INSERT", schema, "goods", ["1"], {"id": "1", "name": "a"}),
        ("INSERT", schema, "goods", ["2"], {"id": "2", "name": None}),
        ("INSERT", schema, "orders", ["1", "7"], {"id": "1", "line": "7"}),
    ]


def test_what_cannot_be_read_is_an_error(spark: SparkSession, source: Server, schema: str) -> None:
    with pytest.raises(Exception, match=f"{schema}.nothing is unknown to .*GRANT SELECT"):
        snapshot(spark, source, table=f"{schema}.nothing")
    with pytest.raises(Exception, match=r"cannot log in to .* as 'cdc'"):
        snapshot(spark, source, table=f"{schema}.nothing", snapshotPassword="wrong")
    stream = spark.readStream.format("sluice").option("snapshot", "mysql://cdc@127.0.0.1").load()
    with pytest.raises(StreamingQueryException, match=r"a snapshot is read by spark\.read"):
        stream.writeStream.format("noop").start().awaitTermination(60)
