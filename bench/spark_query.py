"""A contender in a process of its own: `python -m bench.spark_query '{...}'` prints what it measured as JSON."""

import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pymysql
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from bench.processes import cpu_of, cpu_of_server, cpu_of_session, peak_of_session
from bench.spark_sources import NOTES, JsonSource, TimedSource
from sluice.client_sdk.spark.mirror import start_mirror
from sluice.sql.database import Database

ROOT = Path(__file__).resolve().parents[1]


def start_spark(cores: int) -> SparkSession:
    """Start Spark in this process's JVM, with as many task slots as cores."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    settings: dict[str, bool | float | int | str | None] = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.streaming.numRecentProgressUpdates": "100000",
        "spark.log.level": "ERROR",
    }
    spark = SparkSession.builder.master(f"local[{cores}]").config(map=settings).getOrCreate()
    spark.dataSource.register(TimedSource)
    spark.dataSource.register(JsonSource)
    return spark


def throughput(task: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Read what is in the ring now to the sink `noop`."""
    spark = start_spark(task["cores"])
    stream = spark.readStream.format(task["format"]).options(**task["options"]).load()
    writer = stream.writeStream.format("noop").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()
    result, counted = follow(query, {"server": lambda: cpu_of_server(task["options"]["url"])})
    notes = [json.loads(line) for line in Path(os.environ[NOTES]).read_text().splitlines()]
    ours = [_ours(it, notes) for it in counted]
    seconds = sum(it["durationMs"]["triggerExecution"] for it in counted) / 1000
    result["share_ours"] = sum(sum(it[call] for call in CALLS) for it in ours) / seconds
    result["ms_of_a_micro_batch"] |= {
        f"ours: {call}": 1000 * statistics.mean(it[call] for it in ours) for call in ours[0]
    }
    return result | {"versions": versions(spark)}


def mirror(task: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Apply what is in the ring now to another server."""
    spark = start_spark(task["cores"])
    target, pid = task["target"], task["target_pid"]
    query = start_mirror(spark, Database(**target), str(folder / "checkpoint"), task["options"], once=True)
    processes = {"server": lambda: cpu_of_server(task["options"]["url"]), "target": lambda: cpu_of(pid)}
    result, _ = follow(query, processes)
    return result | {"versions": versions(spark)}


def insert(task: Mapping[str, Any], _folder: Path) -> dict[str, Any]:
    """Write the rows of a table as a plain program does: 1,000 at once, by one connection."""
    select, write = (f"{verb} {task['table']}" for verb in ("SELECT * FROM", "INSERT INTO"))
    with pymysql.connect(**task["source"]) as connection, connection.cursor() as cursor:
        cursor.execute(select)
        rows = cursor.fetchall()
    places = ", ".join(["%s"] * len(rows[0]))
    with pymysql.connect(**task["target"], autocommit=True) as connection, connection.cursor() as cursor:
        cpu_client, cpu_target = time.process_time(), cpu_of(task["target_pid"])
        start = time.perf_counter()
        for first in range(0, len(rows), 1000):
            cursor.executemany(f"{write} VALUES ({places})", rows[first : first + 1000])
        seconds = time.perf_counter() - start
        cpu_client, cpu_target = time.process_time() - cpu_client, cpu_of(task["target_pid"]) - cpu_target
    rate = len(rows) / seconds
    return {"rows": len(rows), "rows_per_second": rate, "cpu_client": cpu_client, "cpu_target": cpu_target}


def follow(
    query: StreamingQuery, processes: Mapping[str, Callable[[], float]]
) -> tuple[dict[str, Any], list[StreamingQueryProgress]]:
    """Wait until a query has ended; what it did, and the progress of the micro-batches that count.

    The first one does not: there Java compiles, and Python processes start. `processes` tell their CPU seconds.
    """
    while query.isActive and query.lastProgress is None:
        time.sleep(0.02)
    clocks = {"spark": cpu_of_session, **processes}
    before = {name: clock() for name, clock in clocks.items()}
    query.awaitTermination()
    used = {f"cpu_{name}": clock() - before[name] for name, clock in clocks.items()}
    first, *counted = (it for it in query.recentProgress if it["numInputRows"])
    rows = sum(it["numInputRows"] for it in counted)
    names = counted[0]["durationMs"]
    result = {
        "rows": rows,
        "rows_in_all": rows + first["numInputRows"],
        "micro_batches": len(counted),
        "rows_per_second": rows / sum(it["durationMs"]["triggerExecution"] for it in counted) * 1000,
        "rows_per_second_of_wall_time": rows / (_end(counted[-1]) - _end(first)),
        "ms_of_a_micro_batch": {
            name: statistics.mean(it["durationMs"].get(name, 0) for it in counted) for name in names
        },
        "peak_mb_spark": peak_of_session(),
    }
    return result | used, counted


CALLS = ("latestOffset", "reportLatestOffset", "partitions", "commit", "read")
"""What a micro-batch waits for: of `read` the slowest task."""


def _ours(progress: Mapping[str, Any], notes: list[dict[str, Any]]) -> dict[str, float]:
    """Seconds that our calls took of a micro-batch."""
    inside = [it for it in notes if _start(progress) <= it["end"] <= _end(progress)]
    seconds = {call: [it["seconds"] for it in inside if it["call"] == call] for call in CALLS}
    totals = {call: sum(taken) for call, taken in seconds.items()} | {"read": max(seconds["read"], default=0.0)}
    return totals | {"cpu of read, all tasks": sum(it["cpu"] for it in inside if it["call"] == "read")}


def _start(progress: Mapping[str, Any]) -> float:
    return datetime.fromisoformat(progress["timestamp"]).timestamp()


def _end(progress: Mapping[str, Any]) -> float:
    return _start(progress) + float(progress["durationMs"]["triggerExecution"]) / 1000


def latency(task: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Take the time from when rows were due, which they say in µs, until a function of foreachBatch has them.

    Prints `ready` when the first row has come, and ends with the row that was never due.
    """
    spark = start_spark(task["cores"])
    stream = spark.readStream.format(task["format"]).options(**task["options"]).load()
    taken: list[float] = []
    batches: set[int] = set()
    ended = threading.Event()

    def collect(batch: DataFrame, number: int) -> None:
        rows = batch.select("due", "counts").collect()
        now = time.time()
        if rows and number == 0:
            sys.stdout.write("ready\n")
            sys.stdout.flush()
        for due, counts in rows:
            if counts:
                taken.append(now - due / 1e6)
                batches.add(number)
            elif due is None:
                ended.set()

    writer = stream.writeStream.foreachBatch(collect).trigger(processingTime="0 seconds")
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()
    while not ended.wait(0.2):
        if query.exception() is not None:
            raise SystemExit(str(query.exception()))
    query.processAllAvailable()
    counted = [it for it in query.recentProgress if it["batchId"] in batches]
    query.stop()
    taken.sort()
    return {
        **{f"p{p}_ms": round(1000 * taken[len(taken) * p // 100], 1) for p in (50, 99)},
        "max_ms": round(1000 * taken[-1], 1),
        "rows": len(taken),
        "micro_batches": len(counted),
        "ms_of_a_micro_batch": {
            name: round(statistics.median(it["durationMs"].get(name, 0) for it in counted))
            for name in counted[0]["durationMs"]
        },
        "peak_mb": {"spark": round(peak_of_session())},
        "versions": versions(spark),
    }


def versions(spark: SparkSession) -> dict[str, str]:
    """Return what else is measured."""
    (java,) = spark.sql("SELECT java_method('java.lang.System', 'getProperty', 'java.version')").collect()[0]
    return {"pyspark": spark.version, "pyarrow": pa.__version__, "java": java}


def main() -> None:
    """Do what the command line says."""
    task = json.loads(sys.argv[1])
    with tempfile.TemporaryDirectory(prefix="sluice-spark-") as name:
        folder = Path(name)
        os.environ[NOTES] = str(folder / "notes")
        result = {"throughput": throughput, "latency": latency, "mirror": mirror, "insert": insert}[task["measure"]](
            task, folder
        )
    json.dump(result, sys.stdout)


if __name__ == "__main__":
    main()
