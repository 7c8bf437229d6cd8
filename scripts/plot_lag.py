"""Draw docs/plots/spark-lag.svg: how fast a query of Spark reads, and how far it is behind, before and after a stop.

A writer commits at a steady pace. The query runs, is stopped, is started again with its checkpoint, and catches up.
What is drawn of it stands in Spark's progress reports. `python -m scripts.plot_lag` does it again, in 2 minutes.
"""

import itertools
import json
import os
import sys
import tempfile
import threading
import time
from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from scripts.serving import serving
from tests.servers import Server

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs/plots/spark-lag.svg"
TABLE = "shop.orders"
PACE = 2000
"""Rows a second that are written."""
ROWS = 20
"""Rows in a transaction."""
LIMIT = 8000
"""Rows of a micro-batch at most; one begins every second."""
RUNS, STOPPED = 20, 20
"""Seconds of the query when it has caught up, before the stop and after it, and of the stop."""
CAUGHT_UP = 3
"""Seconds of lag when it has."""
EVERY = 2
"""Seconds that a rate is taken of."""

Points = Sequence[tuple[float, float]]


class Writer(threading.Thread):
    """Inserts rows at the pace until `done` is set."""

    def __init__(self, source: Server) -> None:
        """Make the table."""
        super().__init__(daemon=True)
        self.done = threading.Event()
        self.rows: list[tuple[float, float]] = [(time.time(), 0)]
        """Times, and the rows that were committed until then."""
        self._source = source
        source.query("CREATE DATABASE shop")
        source.query(f"CREATE TABLE {TABLE} (id INT PRIMARY KEY AUTO_INCREMENT, customer VARCHAR(20))")

    def run(self) -> None:
        """Write a transaction whenever one is due."""
        values = ", ".join(["('a customer')"] * ROWS)
        begin, rows = time.time(), 0
        with self._source.connect(autocommit=True) as connection, connection.cursor() as cursor:
            while not self.done.wait(max(0, begin + rows / PACE - time.time())):
                cursor.execute(f"INSERT INTO {TABLE} (customer) VALUES {values}")
                rows += ROWS
                self.rows.append((time.time(), rows))


@dataclass(frozen=True, slots=True)
class Report:
    """What Spark says of a micro-batch."""

    start: float
    end: float
    rows: int
    lag: float | None
    """None of a micro-batch that was cut off by the stop: what is repeated is not asked for again."""

    @classmethod
    def all_of(cls, query: StreamingQuery) -> list["Report"]:
        """Return the reports of a query, but for those of no micro-batch."""
        return [cls.of(it) for it in query.recentProgress if it.numInputRows]

    @classmethod
    def of(cls, progress: StreamingQueryProgress) -> "Report":
        """Read one."""
        start = datetime.fromisoformat(progress.timestamp).timestamp()
        source = json.loads(progress.sources[0].latestOffset) or {"lagSeconds": None}
        end = start + progress.durationMs["triggerExecution"] / 1000
        return cls(start, end, progress.numInputRows, source["lagSeconds"])


def main() -> None:
    """Measure and draw."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    with Server("mariadb118", ["--binlog-row-metadata=FULL"]) as source, tempfile.TemporaryDirectory() as folder:
        writer = Writer(source)
        ring = "memory.buffer.size = 262144"
        with serving("shop", f"{source.host}:{source.port}", source.user, source.password, ring) as url:
            settings = {
                "spark.driver.host": "127.0.0.1",
                "spark.driver.bindAddress": "127.0.0.1",
                "spark.ui.enabled": "false",
                "spark.sql.streaming.numRecentProgressUpdates": "10000",
            }
            builder = SparkSession.builder.master("local[2]")
            for name, value in settings.items():
                builder = builder.config(name, value)
            spark = builder.getOrCreate()
            options = {"url": url, "destination": "shop", "table": TABLE, "maxRowsPerTrigger": str(LIMIT)}
            orders = spark.readStream.format("sluice").options(**options).load()
            writer.start()
            first = run(orders, folder)
            stop = time.time()
            time.sleep(STOPPED)
            start = time.time()
            second = run(orders, folder)
            end = time.time()
            writer.done.set()
            writer.join()
            conditions = (
                f"{source.query('SELECT version()')[0][0].partition('-Maria')[0]}, PySpark {spark.version} on local[2];"
                f" {os.cpu_count()} cores that writer, database, server and Spark share, load average"
                f" {os.getloadavg()[1]:.0f}; {datetime.now(UTC):%Y-%m-%d}"
            )
    draw(stop - RUNS, (stop, start), end, writer.rows, (first, second), f"MariaDB {conditions}")


def run(orders: DataFrame, folder: str) -> list[Report]:
    """Run the query until it has caught up, and for a while longer."""
    writer = orders.writeStream.format("noop").option("checkpointLocation", f"{folder}/checkpoint")
    query = writer.trigger(processingTime="1 second").start()
    while query.isActive and not any(it.lag is not None and it.lag < CAUGHT_UP for it in Report.all_of(query)):
        time.sleep(1)
    if query.awaitTermination(RUNS):
        raise SystemExit("the query has ended")
    query.stop()
    return Report.all_of(query)


def rates(totals: Points, begin: float, end: float) -> tuple[list[float], list[float]]:
    """Return times, and the rates from each to the next of which these are the totals."""
    times = [at for at, _ in totals]

    def total(at: float) -> float:
        index = bisect(times, at)
        (before, low), (after, high) = totals[index - 1 : index + 1]
        return low + (high - low) * (at - before) / (after - before)

    first = max(begin, times[0])
    edges = [first + EVERY * number for number in range(1 + int((min(end, times[-1]) - first) / EVERY - 0.01))]
    return edges, [(total(after) - total(before)) / EVERY for before, after in itertools.pairwise(edges)]


def draw(
    begin: float,
    stop: tuple[float, float],
    end: float,
    written: Points,
    runs: tuple[list[Report], list[Report]],
    conditions: str,
) -> None:
    """Draw the rates above, the lag below."""
    mpl.rcParams["svg.hashsalt"] = "sluice"
    figure = Figure(figsize=(8, 5), layout="constrained")
    speed, lag = figure.subplots(2, sharex=True)

    def stairs(totals: Points, **looks: Any) -> None:
        edges, values = rates(totals, begin, end)
        speed.stairs(values, [at - begin for at in edges], baseline=None, linewidth=2, **looks)

    stairs(written, color="C1", label="written")
    for number, reports in enumerate(runs):
        totals = itertools.accumulate(it.rows for it in reports)
        ends = [(it.end, total) for it, total in zip(reports, totals, strict=True)]
        stairs([(reports[0].start, 0), *ends], color="C0", label="" if number else "read by the query")
        points = [(it.start - begin, it.lag) for it in reports if it.lag is not None and it.start >= begin]
        lag.plot(*zip(*points, strict=True), color="C4", linewidth=2)
    for axes in (speed, lag):
        axes.axvspan(*(at - begin for at in stop), color="0.9", zorder=0, label="the query is stopped")
        axes.set_ylim(bottom=0)
        axes.grid(axis="y", color="0.85")
        axes.set_axisbelow(True)
    speed.set_ylabel("throughput, rows per second")
    speed.legend(loc="upper left")
    lag.set_ylabel("lag, seconds")
    lag.set_xlabel("time, seconds")
    lag.set_xlim(0, end - begin)
    figure.supxlabel(conditions, fontsize="x-small", color="0.4")
    PICTURE.parent.mkdir(exist_ok=True)
    figure.savefig(PICTURE, metadata={"Date": None})


if __name__ == "__main__":
    main()
