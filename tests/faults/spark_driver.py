"""A driver of Spark for tests to kill: it runs queries on one destination until SIGTERM, or until its parent is gone.

python -m tests.faults.spark_driver '{"folder": …, "url": …, "target": …, "queries": {"ranges": {…}, …}}'
"""

import hashlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pymysql
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sluice.client_sdk.spark.changelog import start_changelog
from sluice.client_sdk.spark.mirror import start_mirror
from sluice.sql.database import Database
from tests.spark.conftest import start_spark


@dataclass(frozen=True)
class Order:
    """What a driver is told."""

    folder: str
    """Where each query has its checkpoint, ``at-QUERY``, and where files go."""
    target: Mapping[str, Any]
    """How PyMySQL connects to the schema that the sinks write to."""
    schema: str
    """Of the source."""
    queries: Mapping[str, Mapping[str, str]]
    """Which queries, with the options of their sources."""
    python: str = sys.executable
    """What runs the driver; its PySpark may be another one than the test's."""

    def command(self) -> list[str]:
        """Return the command that starts the driver."""
        return [self.python, "-m", "tests.faults.spark_driver", json.dumps(asdict(self))]

    def checkpoint(self, query: str) -> Path:
        return Path(self.folder) / f"at-{query}"

    def done(self, query: str) -> int:
        """Return the number of the last micro-batch that is committed, -1 for none."""
        return last(self.checkpoint(query) / "commits")

    def planned(self, query: str) -> int:
        """Return the number of the last micro-batch whose end is written down, -1 for none."""
        return last(self.checkpoint(query) / "offsets")

    def offset(self, query: str, batch: int) -> str:
        """Return where a micro-batch ends."""
        lines = (self.checkpoint(query) / "offsets" / str(batch)).read_text().splitlines()
        return str(json.loads(lines[-1])["position"])


def last(log: Path) -> int:
    """Return the last number in one of the logs of a checkpoint."""
    return max((int(path.name) for path in log.glob("*") if path.name.isdigit()), default=-1)


class Ranges:
    """A sink that must be given every range once, as nothing tells it whether it has a row already.

    It appends in one transaction the rows of a micro-batch and where this ends. A micro-batch that ends there is the
    last one, repeated. Another one has to begin there.
    """

    TABLES = """
        CREATE TABLE attempts (
            n INT AUTO_INCREMENT PRIMARY KEY, batch INT, begin VARCHAR(200), end VARCHAR(200), digest CHAR(40)
        );
        CREATE TABLE progress (query INT PRIMARY KEY, end VARCHAR(200));
        CREATE TABLE appended (
            n INT AUTO_INCREMENT PRIMARY KEY, tbl VARCHAR(64), op VARCHAR(10), row_key TEXT, old LONGTEXT, new LONGTEXT
        ) CHARSET utf8mb4;
    """

    def __init__(self, order: Order) -> None:
        self.order = order

    def __call__(self, frame: DataFrame, batch: int) -> None:
        begin = self.order.offset("ranges", batch - 1) if batch > 0 else None
        end = self.order.offset("ranges", batch)
        self.hold("planned")
        rows = sorted(frame.collect(), key=lambda row: (tuple(row["_pos"]), row["_op"]))
        values = [
            (
                row["_table"],
                row["_op"],
                *(json.dumps(row[name], sort_keys=True) for name in ("_key", "before", "after")),
            )
            for row in rows
        ]
        digest = hashlib.sha1(repr([(tuple(row["_pos"]), row["_gtid"]) for row in rows] + values).encode()).hexdigest()
        with pymysql.connect(**self.order.target) as connection, connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO attempts (batch, begin, end, digest) VALUES (%s, %s, %s, %s)", (batch, begin, end, digest)
            )
            connection.commit()
            cursor.execute("SELECT end FROM progress FOR UPDATE")
            progress = [it for (it,) in cursor.fetchall()]
            if progress != [end]:
                assert progress == ([] if begin is None else [begin]), (progress, begin)
                cursor.executemany(
                    "INSERT INTO appended (tbl, op, row_key, old, new) VALUES (%s, %s, %s, %s, %s)", values
                )
                cursor.execute("REPLACE INTO progress VALUES (1, %s)", (end,))
                connection.commit()
        self.hold("applied")

    def hold(self, place: str) -> None:
        """Wait here while the test says so: a place before or after the transaction."""
        asked = Path(self.order.folder) / "hold"
        if asked.exists() and asked.read_text() == place:
            (Path(self.order.folder) / "held").touch()
            while asked.exists():
                time.sleep(0.01)


def start_ranges(spark: SparkSession, order: Order) -> StreamingQuery:
    stream = spark.readStream.format("sluice").options(**order.queries["ranges"]).load()
    writer = stream.writeStream.foreachBatch(Ranges(order)).option(
        "checkpointLocation", str(order.checkpoint("ranges"))
    )
    return writer.queryName("ranges").start()


def start_log(spark: SparkSession, order: Order) -> StreamingQuery:
    path, checkpoint = Path(order.folder) / "changelog", order.checkpoint("changelog")
    return start_changelog(spark, str(path), str(checkpoint), order.queries["changelog"], interval=1.0)


def start_copy(spark: SparkSession, order: Order) -> StreamingQuery:
    target = {name: order.target[name] for name in ("host", "port", "user", "password")}
    schema = order.target["database"]
    return start_mirror(
        spark,
        Database(**target),
        str(order.checkpoint("mirror")),
        order.queries["mirror"],
        schemas={order.schema: schema},
        progress=schema,
    )


QUERIES: Mapping[str, Callable[[SparkSession, Order], StreamingQuery]] = {
    "ranges": start_ranges,
    "changelog": start_log,
    "mirror": start_copy,
}


def main() -> None:
    order = Order(**json.loads(sys.argv[1]))
    parent = os.getppid()
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    spark = start_spark("2,4")
    spark.sparkContext.setLogLevel("ERROR")
    try:
        queries = [QUERIES[name](spark, order) for name in order.queries]
        while not stopping.wait(0.1) and os.getppid() == parent:
            for query in queries:
                if not query.isActive:
                    query.awaitTermination()  # raises what ended it
        for query in queries:
            query.stop()
        if "changelog" in order.queries:  # for the test, which has no Spark
            pq.write_table(
                spark.read.parquet(f"{order.folder}/changelog").toArrow(), f"{order.folder}/changelog.parquet"
            )
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
