"""Running streams of the source `shop` in tests."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.faults.harness import Sluice
from tests.servers import Server
from tests.waiting import eventually

SECONDS = 60
"""That a query may take."""


def options(sluice: Sluice, **others: object) -> dict[str, str]:
    """Options of the source; `from_` stands for `from`."""
    given = {"url": sluice.url, "destination": "shop", "clientId": 1001} | others
    return {name.rstrip("_"): str(value) for name, value in given.items()}


def load(spark: SparkSession, sluice: Sluice, **others: object) -> DataFrame:
    """A stream of the source."""
    return spark.readStream.format("sluice").options(**options(sluice, **others)).load()


class Sink:
    """Remembers the rows of each micro-batch, by `foreachBatch`, and the checkpoint of the query that writes it."""

    def __init__(self, folder: Path, columns: tuple[str, ...] = ("*",)) -> None:
        self.checkpoint = folder / "checkpoint"
        self.batches: dict[int, list[Row]] = {}
        self.runs: list[int] = []
        """The batch ids in the order in which they ran."""
        self.fails = -1
        """The batch whose first run fails when its rows are there."""
        self._columns = columns

    @property
    def rows(self) -> list[Row]:
        """All rows in the order of the source, those of a repeated batch once."""
        return sorted((row for batch in self.batches.values() for row in batch), key=lambda row: tuple(row["_pos"]))

    def start(self, stream: DataFrame, **trigger: Any) -> StreamingQuery:
        """Start a query that writes here."""

        def write(frame: DataFrame, batch_id: int) -> None:
            self.batches[batch_id] = frame.select(*self._columns).collect()
            self.runs.append(batch_id)
            if batch_id == self.fails:
                self.fails = -1
                raise ValueError("the sink fails")

        writer = stream.writeStream.foreachBatch(write).option("checkpointLocation", str(self.checkpoint))
        return writer.trigger(**trigger or {"processingTime": "0 seconds"}).start()

    def read_available(self, stream: DataFrame) -> "StreamingQuery":
        """Read all that is there now; the query has ended."""
        query = self.start(stream, availableNow=True)
        try:
            assert query.awaitTermination(SECONDS), query.status
        finally:
            query.stop()
        return query


def prepare(source: Server, schema: str, statement: str, end: str) -> None:
    """Prepare an XA transaction of one statement, and end it by ``COMMIT`` or ``ROLLBACK``."""
    xid = f"'{schema}'"
    with source.connect(database=schema) as connection, connection.cursor() as cursor:
        for part in (f"XA START {xid}", statement, f"XA END {xid}", f"XA PREPARE {xid}", f"XA {end} {xid}"):
            cursor.execute(part)


def failure(query: StreamingQuery) -> str:
    """Wait until a query has failed: why."""
    eventually(lambda: not query.isActive, lambda: query.status, SECONDS)
    error = query.exception()
    assert isinstance(error, StreamingQueryException)
    return str(error)


def until(condition: Callable[[], object], query: StreamingQuery) -> None:
    """Wait until a condition holds while a query runs."""
    eventually(lambda: condition() or not query.isActive, lambda: query.status, SECONDS)
    assert query.isActive, query.exception()
    assert condition()
