"""The change log as Parquet: what is read back is what the source wrote, once each."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sluice.client_sdk.spark.changelog import PARTITIONS, start_changelog
from sluice.protocol.errors import BadParameterError
from tests.faults.harness import Sluice
from tests.servers import Server
from tests.spark.streams import prepare
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(400)

SECONDS = 120
"""That a micro-batch, or a start of Spark, may take on a machine with much else to do."""
Texts = dict[str, str | None]
TABLES = ("50%", "x=y/z", "Ünïcode 表", "2024", "Goods", "goods", " #?*:'\"\\")
"""Names that mean something in a path or a URL, or that Spark would take for a number."""


def some_rows(query: StreamingQuery) -> bool:
    return any(it.numInputRows for it in query.recentProgress)


class Writer(threading.Thread):
    """Changes rows of tables with odd names, and remembers what it did to each table."""

    def __init__(self, source: Server, schema: str, count: int, tables: Sequence[str] = TABLES) -> None:
        super().__init__(daemon=True)
        self.done: dict[str, list[tuple[str, Texts | None, Texts | None]]] = defaultdict(list)
        self._source, self._schema, self._count, self._tables = source, schema, count, tables
        for table in tables:
            source.query(f"CREATE TABLE `{schema}`.`{table}` (id INT PRIMARY KEY, v VARCHAR(20))")

    def run(self) -> None:
        chance = random.Random(1)
        rows: dict[str, dict[str, str]] = {table: {} for table in self._tables}
        with self._source.connect(autocommit=True) as connection, connection.cursor() as cursor:
            for number in range(self._count):
                table, new = chance.choice(self._tables), f"v{number}"
                name, known = f"`{self._schema}`.`{table}`", rows[table]
                kind = chance.choice(("INSERT", "UPDATE", "DELETE")) if known else "INSERT"
                key = str(number) if kind == "INSERT" else chance.choice(list(known))
                before: Texts | None = {"id": key, "v": known.pop(key)} if kind != "INSERT" else None
                after: Texts | None = {"id": key, "v": new} if kind != "DELETE" else None
                if after is not None:
                    known[key] = new
                cursor.execute(
                    {
                        "INSERT": f"INSERT INTO {name} VALUES ({key}, '{new}')",
                        "UPDATE": f"UPDATE {name} SET v = '{new}' WHERE id = {key}",
                        "DELETE": f"DELETE FROM {name} WHERE id = {key}",
                    }[kind]
                )
                self.done[table].append((kind, before, after))


class Changes:
    """A change log and its checkpoint."""

    def __init__(self, spark: SparkSession, sluice: Sluice, folder: Path) -> None:
        self.spark, self.sluice = spark, sluice
        self.path, self.checkpoint = str(folder / "changes"), str(folder / "checkpoint")
        self.sizes: dict[int, int] = {}
        self.options: dict[str, str] = {}

    @contextmanager
    def writing(self, **options: Any) -> Iterator[StreamingQuery]:
        """Run a query with small micro-batches; afterwards `sizes` has their rows."""
        given = {
            "url": self.sluice.url,
            "destination": "shop",
            "clientId": 2001,
            "maxRowsPerTrigger": 250,
        } | self.options
        query = start_changelog(self.spark, self.path, self.checkpoint, given, interval=0, **options)
        try:
            yield query
        finally:
            query.stop()
            self.sizes |= {it.batchId: it.numInputRows for it in query.recentProgress if it.numInputRows}

    def write_all(self) -> None:
        """Run a query until all is written."""
        with self.writing(once=True) as query:
            assert query.awaitTermination(SECONDS)

    def count(self) -> int:
        return self.spark.read.parquet(self.path).count()

    def read(self) -> dict[str, list[tuple[str, Texts | None, Texts | None]]]:
        """What was done to each table, in order."""
        found = defaultdict(list)
        for row in self.spark.read.parquet(self.path).orderBy("_pos").collect():
            found[row["_table"]].append((row["_op"], row["before"], row["after"]))
        return found

    def run(self, *arguments: str) -> "subprocess.Popen[str]":
        """Start the command."""
        command = [sys.executable, "-m", "sluice.server.cli", "spark", "changelog", "shop", "2001"]
        places = ["--url", self.sluice.url, "--to", self.path, "--checkpoint", self.checkpoint]
        return subprocess.Popen(
            [*command, *places, "--master", "local[2]", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )


@pytest.fixture
def changes(spark: SparkSession, sluice: Sluice, tmp_path: Path) -> Changes:
    return Changes(spark, sluice, tmp_path)


@pytest.mark.extended
def test_every_change_is_there_once_over_restarts_and_readers_see_whole_micro_batches(
    source: Server, schema: str, changes: Changes
) -> None:
    writer = Writer(source, schema, 1500)
    writer.start()
    seen = []
    for _ in range(2):
        with changes.writing() as query:
            eventually(lambda query=query: some_rows(query), query.exception, SECONDS)  # type: ignore[misc]
            seen += [changes.count() for _ in range(2)]
    writer.join()
    changes.write_all()
    assert changes.read() == writer.done
    assert sum(changes.sizes.values()) == 1500
    assert set(seen) <= {0, *accumulate(changes.sizes[number] for number in sorted(changes.sizes))}
    assert seen == sorted(seen)


@pytest.mark.extended
def test_folders_are_the_day_of_utc_the_schema_and_the_table(
    spark: SparkSession, source: Server, schema: str, changes: Changes
) -> None:
    moments = [datetime(2026, 3, 1, 23, 59, 59, tzinfo=UTC), datetime(2026, 3, 2, tzinfo=UTC)]
    with source.connect(autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE {schema}.`x=y/z` (id INT PRIMARY KEY)")
        for number, moment in enumerate(moments):
            cursor.execute(f"SET TIMESTAMP = {moment.timestamp()}")
            cursor.execute(f"INSERT INTO {schema}.`x=y/z` VALUES ({number})")
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        changes.write_all()
        rows = spark.read.parquet(changes.path).orderBy("_pos").collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(zone))
    assert [(row["date"], row["schema"], row["table"]) for row in rows] == [
        (date(2026, 3, 1), schema, "x=y/z"),
        (date(2026, 3, 2), schema, "x=y/z"),
    ]
    folders = {str(path.parent.relative_to(changes.path)) for path in Path(changes.path).glob("*/*/*/*.parquet")}
    assert folders == {f"date=2026-03-0{day}/schema={schema}/table=x%3Dy%2Fz" for day in (1, 2)}


@pytest.mark.extended
def test_a_change_log_goes_on_that_an_earlier_version_began(
    spark: SparkSession, source: Server, schema: str, changes: Changes
) -> None:
    """Its `_pos` had no `member`."""
    source.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY)")
    source.query(f"INSERT INTO {schema}.t VALUES (1), (2)")
    stream = spark.readStream.format("sluice").options(url=changes.sluice.url, destination="shop", clientId=2001).load()
    stream = stream.withColumn("_pos", stream["_pos"].dropFields("member"))
    for name, expression in PARTITIONS.items():
        stream = stream.selectExpr("*", f"{expression} AS `{name}`")
    writer = stream.writeStream.format("parquet").partitionBy(*PARTITIONS).trigger(availableNow=True)
    assert writer.option("checkpointLocation", changes.checkpoint).start(changes.path).awaitTermination(SECONDS)
    source.query(f"INSERT INTO {schema}.t VALUES (3)")
    source.query(f"DELETE FROM {schema}.t WHERE id = 1")
    changes.write_all()
    done = [("INSERT", "1"), ("INSERT", "2"), ("INSERT", "3"), ("DELETE", "1")]
    for reader in (spark.read, spark.read.option("mergeSchema", "true")):
        rows = reader.parquet(changes.path).orderBy("_pos").collect()
        assert [(row["_op"], row["_key"][0]) for row in rows] == done
    assert [row["_pos"]["member"] for row in rows] == [None] * 4


@pytest.mark.extended
def test_an_xa_transaction_is_written_when_it_is_committed(source: Server, schema: str, changes: Changes) -> None:
    source.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY)")
    prepare(source, schema, "INSERT INTO t VALUES (1)", "ROLLBACK")
    prepare(source, schema, "INSERT INTO t VALUES (2)", "COMMIT")
    changes.write_all()
    (row,) = changes.spark.read.parquet(changes.path).collect()
    assert (row["after"], row["_xa"]) == ({"id": "2"}, f"committed X'{schema.encode().hex()}',X'',1")


def test_a_change_log_takes_no_single_table(spark: SparkSession) -> None:
    with pytest.raises(BadParameterError, match="choose by `filter`"):
        start_changelog(spark, "changes", "checkpoint", {"Table": "shop.goods"})


@pytest.mark.extended
def test_the_command_goes_on_after_kill_and_acks_what_is_committed_when_it_is_asked_to_stop(
    source: Server, schema: str, sluice: Sluice, changes: Changes
) -> None:
    writer = Writer(source, schema, 2000, ["goods"])
    writer.start()

    def commits() -> int:
        return len(list(Path(changes.checkpoint).glob("commits/[0-9]*")))

    for stop in (signal.SIGKILL, signal.SIGTERM):
        process, before = changes.run("--interval", "0", "--max-rows", "200"), commits()
        try:
            eventually(lambda before=before: commits() > before, process.poll, SECONDS)  # type: ignore[misc]
        finally:
            if stop == signal.SIGKILL:
                os.killpg(process.pid, stop)
            else:
                process.send_signal(stop)
            _, error = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, error
    assert re.search(r"^\d+ rows written, \d+ rows and (\d+ min )?[\d.]+ s behind$", error.splitlines()[-1])
    last = max(int(path.name) for path in Path(changes.checkpoint).glob("commits/[0-9]*"))
    (offset,) = (Path(changes.checkpoint) / f"offsets/{last}").read_text().splitlines()[2:]
    (client,) = sluice.destination()["clients"]
    assert client["position"] == json.loads(offset)["position"]
    writer.join()
    process = changes.run("--once")
    _, error = process.communicate(timeout=SECONDS)
    assert error.splitlines()[-1].endswith(" rows written, 0 rows and 0.0 s behind")
    assert changes.read() == writer.done
