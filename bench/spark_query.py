"""A streaming query in a process of its own: `python -m bench.spark_query '{...}'` prints what it measured as JSON."""

import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from bench.processes import cpu_of_server, cpu_of_session, peak_of_session
from bench.spark_sources import NOTES, JsonSource, TimedSource

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
    while query.isActive and query.lastProgress is None:
        time.sleep(0.02)  # the first micro-batch does not count: there Java compiles, and Python processes start
    server = task["options"]["url"]
    cpu_spark, cpu_server = cpu_of_session(), cpu_of_server(server)
    query.awaitTermination()
    cpu_spark, cpu_server = cpu_of_session() - cpu_spark, cpu_of_server(server) - cpu_server
    peak = peak_of_session()
    done = [it for it in query.recentProgress if it["numInputRows"]]
    first, counted = done[0], done[1:]
    rows = sum(it["numInputRows"] for it in counted)
    seconds = sum(it["durationMs"]["triggerExecution"] for it in counted) / 1000
    ours = [_ours(it, _notes()) for it in counted]
    return {
        "rows": rows,
        "rows_in_all": rows + first["numInputRows"],
        "micro_batches": len(counted),
        "rows_per_second": rows / seconds,
        "rows_per_second_of_wall_time": rows / (_end(counted[-1]) - _end(first)),
        "share_ours": sum(sum(it[call] for call in CALLS) for it in ours) / seconds,
        "ms_of_a_micro_batch": {
            "ours": {call: 1000 * statistics.mean(it[call] for it in ours) for call in ours[0]},
            "spark": {
                name: statistics.mean(it["durationMs"].get(name, 0) for it in counted)
                for name in counted[0]["durationMs"]
            },
        },
        "cpu_spark": cpu_spark,
        "cpu_server": cpu_server,
        "peak_mb_spark": peak,
        "versions": versions(spark),
    }


CALLS = ("latestOffset", "reportLatestOffset", "partitions", "commit", "read")
"""What a micro-batch waits for: of `read` the slowest task."""


def _ours(progress: Mapping[str, Any], notes: list[dict[str, Any]]) -> dict[str, float]:
    """Seconds that our calls took of a micro-batch."""
    inside = [it for it in notes if _start(progress) <= it["end"] <= _end(progress)]
    seconds = {call: [it["seconds"] for it in inside if it["call"] == call] for call in CALLS}
    totals = {call: sum(taken) for call, taken in seconds.items()} | {"read": max(seconds["read"], default=0.0)}
    return totals | {"cpu of read, all tasks": sum(it["cpu"] for it in inside if it["call"] == "read")}


def _notes() -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(os.environ[NOTES]).read_text().splitlines()]


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
        result = {"throughput": throughput, "latency": latency}[task["measure"]](task, folder)
    json.dump(result, sys.stdout)


if __name__ == "__main__":
    main()
