"""Draw docs/spark-lag.svg: how fast a query of Spark reads, and how far it is behind, while it is stopped for a while.

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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from scripts.serving import serving
from tests.servers import Server

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs/spark-lag.svg"
TABLE = "shop.orders"
PACE = 2000
"""Rows a second that are written, ..."""
ROWS = 20
"""... so many in a transaction."""
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
    """None of a micro-batch that was cut off by the stop: what is repeated is not asked for anew."""

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
    PICTURE.write_text(
        "\n".join(
            draw(
                Picture(stop - RUNS, end),
                (stop, start),
                writer.rows,
                (first, second),
                f"MariaDB {conditions}",
            )
        )
        + "\n"
    )


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


def rates(totals: Points, picture: "Picture") -> Iterator[tuple[float, float]]:
    """Give the rates of which these are the totals, over time."""
    times = [at for at, _ in totals]

    def total(at: float) -> float:
        index = bisect(times, at)
        (before, low), (after, high) = totals[index - 1 : index + 1]
        return low + (high - low) * (at - before) / (after - before)

    at = max(picture.begin, times[0])
    while at + EVERY < min(picture.end, times[-1]):
        yield at, (total(at + EVERY) - total(at)) / EVERY
        at += EVERY
    yield at, 0


# --- drawing ---------------------------------------------------------------------------------------------------------

WIDTH, HEIGHT, LEFT, RIGHT = 760, 430, 70, 20
TOP, PANEL, GAP = 40, 130, 50
READ, WRITTEN, LAG = "#0969da", "#bc4c00", "#8250df"


@dataclass(frozen=True, slots=True)
class Picture:
    """The seconds that are drawn."""

    begin: float
    end: float

    def x(self, at: float) -> float:
        """Return where a time is drawn."""
        part = (at - self.begin) / (self.end - self.begin)
        return round(LEFT + min(max(part, 0), 1) * (WIDTH - LEFT - RIGHT), 1)


@dataclass(frozen=True, slots=True)
class Panel:
    """One of the diagrams, from its upper edge downwards."""

    picture: Picture
    top: float
    highest: float
    step: float
    title: str

    def y(self, value: float) -> float:
        """Return where a value is drawn."""
        return round(self.top + PANEL * (1 - value / self.highest), 1)

    def frame(self, stop: tuple[float, float]) -> Iterator[str]:
        """Draw axes and title, and the time in which the query was stopped."""
        left, right = map(self.picture.x, stop)
        yield f'<rect x="{left}" y="{self.top}" width="{right - left:.1f}" height="{PANEL}" fill="#eaeef2"/>'
        yield f'<text x="{LEFT}" y="{self.top - 12}" font-weight="600">{self.title}</text>'
        value = 0.0
        while value <= self.highest:
            y = self.y(value)
            yield f'<path d="M{LEFT} {y}H{WIDTH - RIGHT}" stroke="#d0d7de"/>'
            yield f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{value:,.0f}</text>'
            value += self.step

    def line(self, points: Points, color: str) -> str:
        """Draw a line from point to point."""
        path = "L".join(f"{self.picture.x(at)} {self.y(value)}" for at, value in self._visible(points))
        return f'<path d="M{path}" fill="none" stroke="{color}" stroke-width="2"/>'

    def stairs(self, points: Points, color: str) -> str:
        """Draw values that hold until the next point."""
        corners = [
            corner for (at, value), (until, _) in itertools.pairwise(points) for corner in ((at, value), (until, value))
        ]
        return self.line(corners, color)

    def note(self, at: float, value: float, text: str, color: str) -> str:
        """Write beside a line what it is."""
        return f'<text x="{self.picture.x(at)}" y="{self.y(value)}" fill="{color}">{text}</text>'

    def _visible(self, points: Points) -> Points:
        return [(at, value) for at, value in points if self.picture.begin <= at <= self.picture.end]


def draw(
    picture: Picture,
    stop: tuple[float, float],
    written: Points,
    runs: tuple[list[Report], list[Report]],
    conditions: str,
) -> Iterator[str]:
    """Draw the rates above, the lag below."""
    read = []
    for reports in runs:
        totals = itertools.accumulate(it.rows for it in reports)
        ends = [(it.end, total) for it, total in zip(reports, totals, strict=True)]
        read.append(list(rates([(reports[0].start, 0), *ends], picture)))
    fastest = max(rate for points in read for _, rate in points)
    speed = Panel(picture, TOP, (fastest // PACE + 2) * PACE, PACE, "throughput, rows per second")
    lags = [[(it.start, it.lag) for it in reports if it.lag is not None] for reports in runs]
    most = max(value for points in lags for at, value in points if at >= picture.begin)
    lag = Panel(picture, TOP + PANEL + GAP, (most // 10 + 1) * 10, 10, "lag, seconds")
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="system-ui, sans-serif"'
    yield ' font-size="12" fill="#1f2328" role="img" aria-label="Throughput and lag of a query in Spark that is stopped'
    yield ' for a while, started again, and catches up.">'
    yield f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>'
    for panel in (speed, lag):
        yield from panel.frame(stop)
    yield speed.stairs(list(rates(written, picture)), WRITTEN)
    for points, behind in zip(read, lags, strict=True):
        yield speed.stairs(points, READ)
        yield lag.line(behind, LAG)
    yield speed.note(stop[0] + 1, PACE * 1.2, "written", WRITTEN)
    yield speed.note(stop[1] + 1, speed.highest * 0.92, "read by the query", READ)
    yield lag.note(stop[0] + 1, lag.highest / 2, "the query is stopped", "#57606a")
    bottom = lag.top + PANEL
    for second in range(0, int(picture.end - picture.begin) + 1, 10):
        x = picture.x(picture.begin + second)
        yield f'<path d="M{x} {bottom}v5" stroke="#57606a"/>'
        yield f'<text x="{x}" y="{bottom + 18}" text-anchor="middle">{second}</text>'
    yield f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{bottom + 36}" text-anchor="middle">time, seconds</text>'
    yield f'<text x="{LEFT}" y="{HEIGHT - 10}" fill="#57606a" font-size="10">{conditions}</text>'
    yield "</svg>"


if __name__ == "__main__":
    main()
