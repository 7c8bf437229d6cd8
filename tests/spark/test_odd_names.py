"""Names that MySQL allows and others stumble over: blanks, quotes, dots, slashes, other scripts; and 500 columns."""

from datetime import datetime
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sluice.client_sdk.spark.changelog import start_changelog
from sluice.client_sdk.spark.mirror import start_mirror
from sluice.sql.database import Database
from tests.conftest import Database as Schemas
from tests.faults.harness import Sluice
from tests.servers import Server
from tests.spark.streams import SECONDS, Sink, load, options

pytestmark = pytest.mark.extended

NAMES = (
    "two words",
    "it's",
    'double"quoted"',
    "back`tick",
    "with.dot",
    "a/b\\c:d",
    "a,b\\,[c",
    "50% = half, {or} so?#*",
    "Größe ✓",
    "таблица",
    "select",
    "2024",
    "date=1",
)


def quoted(name: str) -> str:
    """A name in SQL, as PyMySQL takes it beside values."""
    return "`{}`".format(name.replace("`", "``").replace("%", "%%"))


def create(server: Server, schema: str) -> None:
    """Create a table of each name, with a column of that name."""
    for name in NAMES:
        columns = f"id INT PRIMARY KEY, {quoted(name)} VARCHAR(40)"
        server.query(f"CREATE TABLE {quoted(name)} ({columns}) CHARSET utf8mb4", (), database=schema)


@pytest.fixture
def odd(source: Server, schema: str, sluice: Sluice) -> str:
    """A schema with tables of all names; each has a row with the name in it."""
    create(source, schema)
    for name in NAMES:
        source.query(f"INSERT INTO {quoted(name)} VALUES (1, %s)", (name,), database=schema)
    return schema


@pytest.mark.parametrize("source", ["mysql97", pytest.param("mariadb118", marks=pytest.mark.extended)], indirect=True)
def test_the_change_log_has_a_folder_for_every_name(
    spark: SparkSession, odd: str, sluice: Sluice, tmp_path: Path
) -> None:
    path = tmp_path / "changes"
    query = start_changelog(spark, str(path), str(tmp_path / "at"), options(sluice), once=True)
    assert query.awaitTermination(SECONDS)
    rows = spark.read.parquet(str(path)).orderBy("_pos").collect()
    assert [(row["_schema"], row["_table"], row["after"]) for row in rows] == [
        (odd, name, {"id": "1", name: name}) for name in NAMES
    ]
    assert [(row["schema"], row["table"]) for row in rows] == [(odd, name) for name in NAMES]


def test_the_mirror_finds_every_name(
    spark: SparkSession, odd: str, sluice: Sluice, mysql97: Server, database: Schemas, tmp_path: Path
) -> None:
    copy = database(mysql97)
    create(mysql97, copy)
    target = Database(mysql97.host, mysql97.port, mysql97.user, mysql97.password)
    query = start_mirror(
        spark, target, str(tmp_path / "at"), options(sluice), schemas={odd: copy}, progress=copy, once=True
    )
    assert query.awaitTermination(SECONDS)
    for name in NAMES:
        assert mysql97.query(f"SELECT id, {quoted(name)} FROM {quoted(name)}", (), database=copy) == [(1, name)]


@pytest.mark.parametrize(
    "name", ["a,b\\,[c", *(pytest.param(it, marks=pytest.mark.extended) for it in ("it's", "back`tick", "with.dot"))]
)
def test_a_table_and_a_column_of_any_name_are_typed(
    spark: SparkSession, odd: str, sluice: Sluice, tmp_path: Path, name: str
) -> None:
    sink = Sink(tmp_path)
    sink.read_available(load(spark, sluice, table=f"{odd}.{name}"))
    assert [(row["id"], row[name]) for row in sink.rows] == [(1, name)]


def test_a_table_has_500_columns(
    spark: SparkSession, source: Server, schema: str, sluice: Sluice, tmp_path: Path
) -> None:
    sample = {  # type, text in SQL, value in Spark
        "INT": ("-7", -7),
        "VARCHAR(8)": ("'grün ✓'", "grün ✓"),
        "DECIMAL(10,2)": ("12345678.90", Decimal("12345678.90")),
        "DATETIME(6)": ("'2026-11-21 12:00:00.000001'", datetime(2026, 11, 21, 12, 0, 0, 1)),  # noqa: DTZ001  no zone
        "BIGINT UNSIGNED": ("18446744073709551615", Decimal(2**64 - 1)),
    }
    kinds = list(sample) * 100
    columns = ", ".join(f"column_{number} {kind}" for number, kind in enumerate(kinds, 1))
    source.query(f"CREATE TABLE {schema}.wide ({columns}, PRIMARY KEY (column_1))")
    source.query(f"INSERT INTO {schema}.wide VALUES ({', '.join(sample[kind][0] for kind in kinds)})")
    sink = Sink(tmp_path)
    sink.read_available(load(spark, sluice, table=f"{schema}.wide"))
    assert [tuple(row)[5:] for row in sink.rows] == [tuple(sample[kind][1] for kind in kinds)]
