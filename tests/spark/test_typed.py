"""Typed columns of one table in Spark: their values, and what becomes of a query when the table changes."""

import re
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.faults.harness import Sluice
from tests.servers import Server
from tests.spark.streams import Sink, failure, load, options, until

TYPES: list[tuple[str, str, str, Any]] = [  # type, value in SQL, type in Spark, value in Python
    ("BIGINT UNSIGNED", "18446744073709551615", "decimal(20,0)", Decimal(18446744073709551615)),
    ("BIT(64)", f"{2**63 + 1}", "decimal(20,0)", Decimal(2**63 + 1)),
    ("TINYINT UNSIGNED", "255", "smallint", 255),
    ("TINYINT", "-128", "tinyint", -128),
    ("INT UNSIGNED", "4294967295", "bigint", 4294967295),
    ("YEAR", "2155", "smallint", 2155),
    ("DECIMAL(38,30)", "-1.000000000000000000000000000001", "decimal(38,30)", Decimal(f"-1.{'0' * 29}1")),
    ("DECIMAL(65,30)", "1.5", "string", f"1.5{'0' * 29}"),
    ("FLOAT", "0.5", "float", 0.5),
    ("DOUBLE", "1e300", "double", 1e300),
    ("DATE", "'1000-01-01'", "date", date(1000, 1, 1)),
    ("DATETIME(6)", "'0999-12-31 23:59:59.000001'", "timestamp_ntz", datetime(999, 12, 31, 23, 59, 59, 1)),  # noqa: DTZ001
    # PySpark gives a moment in the zone of this process.
    (
        "TIMESTAMP(6) NULL",
        "'2021-06-01 12:00:00.5'",
        "timestamp",
        datetime(2021, 6, 1, 12, 0, 0, 500_000, UTC).astimezone().replace(tzinfo=None),
    ),
    ("TIME(3)", "'-838:59:58.5'", "bigint", -((838 * 60 + 59) * 60 + 58) * 1_000_000 - 500_000),
    ("VARCHAR(20) CHARACTER SET latin1", "'grün'", "string", "grün"),
    ("BLOB", "x'00FF'", "binary", bytearray(b"\0\xff")),
    ("ENUM('a','it''s, b')", "2", "string", "it's, b"),
    ("SET('a','b','c')", "'c,a'", "array<string>", ["a", "c"]),
    ("JSON", "'{\"a\": [1]}'", "string", '{"a": [1]}'),
    ("DATE", "'0000-00-00'", "date", None),
    ("INT", "NULL", "int", None),
]


def values(sink: Sink, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in sink.rows]


@pytest.mark.parametrize("source", ["mariadb118", pytest.param("mysql97", marks=pytest.mark.extended)], indirect=True)
def test_columns_of_every_type_have_their_values_in_spark(
    request: pytest.FixtureRequest, spark: SparkSession, source: Server, schema: str, sluice: Sluice, tmp_path: Path
) -> None:
    request.addfinalizer(partial(spark.conf.set, "spark.sql.session.timeZone", "UTC"))
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")  # which is not to matter
    sluice.stop()
    sluice.add("shop", source, canal__instance__filter__regex=rf"{schema}\\..*", sluice__instance__timeZone="+08:00")
    sluice.start()
    sluice.wait_running()
    columns = ", ".join(f"c{number} {mysql_type}" for number, (mysql_type, *_) in enumerate(TYPES))
    with source.connect(database=schema) as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode = '', time_zone = '+00:00'")
        cursor.execute(f"CREATE TABLE t (id INT PRIMARY KEY, {columns})")
        cursor.execute(f"INSERT INTO t VALUES (1, {', '.join(value for _, value, *_ in TYPES)})")
        cursor.execute("CREATE TABLE others LIKE t")
        cursor.execute("INSERT INTO others SELECT * FROM t")
        cursor.execute("UPDATE t SET id = 2")
    stream = load(spark, sluice, table=f"{schema}.t")
    fields = [field.dataType.simpleString() for field in stream.schema.fields]
    assert stream.columns[:6] == ["_pos", "_gtid", "_ts", "_op", "_xa", "id"]
    assert fields[6:] == [spark_type for _, _, spark_type, _ in TYPES]
    sink = Sink(tmp_path)
    sink.read_available(stream)
    assert [list(row)[6:] for row in sink.rows] == [[value for *_, value in TYPES]] * 3
    assert values(sink, "_op", "id") == [("INSERT", 1), ("DELETE", 1), ("INSERT", 2)]


@pytest.fixture
def goods(source: Server, schema: str, sluice: Sluice) -> str:
    """A table with a row, which the server has not read before."""
    assert sluice.destination()["state"] == "running"
    source.query(f"CREATE TABLE {schema}.goods (id INT PRIMARY KEY, name VARCHAR(10))")
    source.query(f"INSERT INTO {schema}.goods VALUES (1, 'a')")
    return f"{schema}.goods"


@pytest.mark.extended
def test_a_ddl_ends_the_query_after_the_rows_before_it_and_a_new_one_goes_on(
    spark: SparkSession, source: Server, goods: str, sluice: Sluice, tmp_path: Path
) -> None:
    sink = Sink(tmp_path)
    stream = load(spark, sluice, table=goods)
    query = sink.start(stream)
    until(lambda: sink.runs, query)
    source.query(f"ALTER TABLE {goods} COMMENT 'changes no column'")
    source.query(f"INSERT INTO {goods} VALUES (2, 'b')")
    until(lambda: len(sink.rows) == 2, query)
    source.query(f"ALTER TABLE {goods} MODIFY id BIGINT, ADD price DECIMAL(8,2)")
    source.query(f"INSERT INTO {goods} VALUES (3, 'c', 1.5)")
    for _ in range(2):  # also when it is started again as it is
        error = failure(query)
        assert f"{goods} was changed at " in error
        assert "ADD price DECIMAL(8,2)`: the query reads (id int(11), name varchar(10))" in error
        assert "(id bigint(20), name varchar(10), price decimal(8,2))" in error
        assert "id is bigint(20) instead of int(11), price is new" in error
        assert "onSchemaChange=continue" in error
        assert values(sink, "id") == [(1,), (2,)]
        query = sink.start(stream)
    failure(query)
    sink.read_available(load(spark, sluice, table=goods))
    assert values(sink, "id", "name") == [(1, "a"), (2, "b"), (3, "c")]
    assert sink.rows[-1]["price"] == Decimal("1.50")
    source.query(f"DROP TABLE {goods}")
    assert "now the table has (no columns: it is gone)" in failure(sink.start(stream, availableNow=True))


@pytest.mark.extended
def test_a_query_goes_on_with_the_columns_it_has_when_told_to(
    spark: SparkSession, source: Server, goods: str, sluice: Sluice, tmp_path: Path
) -> None:
    sink = Sink(tmp_path)
    query = sink.start(load(spark, sluice, table=goods, onSchemaChange="continue", missingColumns="null"))
    try:
        until(lambda: sink.runs, query)
        source.query(f"ALTER TABLE {goods} ADD price DECIMAL(8,2)")
        source.query(f"INSERT INTO {goods} VALUES (2, 'b', 1.5)")
        source.query(f"ALTER TABLE {goods} DROP name")
        source.query(f"INSERT INTO {goods} VALUES (3, 2.5)")
        until(lambda: len(sink.rows) == 3, query)
    finally:
        query.stop()
    assert values(sink, "id", "name") == [(1, "a"), (2, "b"), (3, None)]


@pytest.mark.extended
def test_a_table_that_is_swapped_for_another_ends_the_query(
    spark: SparkSession, source: Server, schema: str, goods: str, sluice: Sluice, tmp_path: Path
) -> None:
    """As online schema changes do it."""
    sink = Sink(tmp_path)
    query = sink.start(load(spark, sluice, table=goods))
    until(lambda: sink.runs, query)
    source.query(f"CREATE TABLE {schema}._goods_new (id INT PRIMARY KEY, name VARCHAR(10), price INT)")
    source.query(f"INSERT INTO {schema}._goods_new SELECT id, name, 7 FROM {goods}")
    source.query(f"RENAME TABLE {goods} TO {schema}._goods_old, {schema}._goods_new TO {goods}")
    source.query(f"INSERT INTO {goods} VALUES (2, 'b', 8)")
    assert re.search(r"was changed at .* by `RENAME TABLE .*: price is new", failure(query))
    sink.read_available(load(spark, sluice, table=goods))
    assert values(sink, "id", "name") == [(1, "a"), (2, "b")]


@pytest.mark.extended
def test_columns_can_be_pinned(spark: SparkSession, source: Server, goods: str, sluice: Sluice, tmp_path: Path) -> None:
    sink = Sink(tmp_path)
    pinned = load(spark, sluice, table=goods, columns="name varchar(5), id bigint unsigned")
    query = sink.start(pinned)
    try:
        until(lambda: sink.runs, query)
        source.query(f"ALTER TABLE {goods} ADD price INT")
        source.query(f"INSERT INTO {goods} VALUES (2, 'b', 8)")
        until(lambda: len(sink.rows) == 2, query)
    finally:
        query.stop()
    assert pinned.columns[5:] == ["name", "id"]
    assert values(sink, "name", "id") == [("a", Decimal(1)), ("b", Decimal(2))]


@pytest.mark.extended
def test_rows_of_before_a_change_say_what_to_do(
    spark: SparkSession, source: Server, goods: str, sluice: Sluice, tmp_path: Path
) -> None:
    with sluice.client() as client:
        client.subscribe()
    source.query(f"ALTER TABLE {goods} ADD price INT NOT NULL DEFAULT 5")
    source.query(f"INSERT INTO {goods} VALUES (2, 'b', 8)")
    sink = Sink(tmp_path)
    error = failure(sink.start(load(spark, sluice, table=goods), availableNow=True))
    assert re.search(r"no value of the column 'price'.*missingColumns=null", error)
    sink.read_available(load(spark, sluice, table=goods, missingColumns="null"))
    assert values(sink, "id", "price") == [(1, None), (2, 8)]


@pytest.mark.extended
def test_what_cannot_be_loaded_says_why(
    spark: SparkSession, schema: str, goods: str, sluice: Sluice, tmp_path: Path
) -> None:
    with pytest.raises(Exception, match=r"UnknownTableError: \S+goodies is unknown to 127.0.0.1"):
        load(spark, sluice, table=f"{schema}.goodies")
    with pytest.raises(Exception, match=r"FilterError: destination shop does not deliver mysql\.user"):
        load(spark, sluice, table="mysql.user")
    with pytest.raises(Exception, match=r"BadParameterError: unknown option 'colums': did you mean columns\?"):
        load(spark, sluice, table=goods, colums="id int")
    reader = spark.readStream.format("sluice").options(**options(sluice)).schema("id INT")
    assert "the source has a schema of its own: leave out .schema()" in failure(Sink(tmp_path).start(reader.load()))
