"""The data sources that are measured, importable by Spark's Python processes: ours with a clock, and a plain one.

They note what their calls take, a JSON object a line, in the file that the environment names.
"""

import json
import os
import time
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import urllib3
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StringType, StructField, StructType

from sluice.client_sdk.spark import SluiceDataSource
from sluice.client_sdk.spark.options import Options
from sluice.client_sdk.spark.ranges import RangePartition
from sluice.client_sdk.spark.reader import StreamReader

if TYPE_CHECKING:
    import pyarrow as pa

NOTES = "SLUICE_BENCH_NOTES"


class TimedSource(SluiceDataSource):
    """The data source `sluice` with a clock around each call."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "timed"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Make the reader of a stream."""
        return TimedReader(self.reader_of_stream(schema))

    def reader_of_stream(self, schema: StructType) -> StreamReader:
        """Make the reader without a clock."""
        return cast("StreamReader", super().streamReader(schema))


class TimedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream reader with a clock around each call."""

    def __init__(self, reader: StreamReader) -> None:
        """Name the reader."""
        self._reader = reader

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return what the options allow a micro-batch."""
        return self._reader.getDefaultReadLimit()

    def prepareForTriggerAvailableNow(self) -> None:
        """Pin the end."""
        self._reader.prepareForTriggerAvailableNow()

    def initialOffset(self) -> dict[str, Any]:
        """Return the cursor."""
        with _noted("initialOffset"):
            return self._reader.initialOffset()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next micro-batch."""
        with _noted("latestOffset"):
            return self._reader.latestOffset(start, limit)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the lag."""
        with _noted("reportLatestOffset"):
            return self._reader.reportLatestOffset()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Cut a micro-batch into parts."""
        with _noted("partitions"):
            return self._reader.partitions(start, end)

    def commit(self, end: dict[str, Any]) -> None:
        """Confirm."""
        with _noted("commit"):
            self._reader.commit(end)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Read a part; what counts is the time until each record batch is there, not what Spark does with it."""
        reading = self._records(cast("RangePartition", partition))
        seconds = cpu = 0.0
        while True:
            start, start_cpu = time.perf_counter(), time.thread_time()
            records = next(reading, None)
            seconds += time.perf_counter() - start
            cpu += time.thread_time() - start_cpu
            if records is None:
                break
            yield records
        _note("read", seconds, cpu=cpu)

    def _records(self, partition: RangePartition) -> Iterator[Any]:
        records: Iterator[pa.RecordBatch] = self._reader.read(partition)
        return records


class JsonSource(DataSource):
    """The same stream as JSON over HTTP, made tuples of texts by the executors: what a first program does."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        """Read the options."""
        self._options = Options.parse(options)
        self._ours = TimedSource(options)

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "json-tuples"

    def schema(self) -> StructType:
        """Return what was done and the columns of the table, all as texts."""
        self._typed = self._ours.schema()
        names = ("_op", *(name for name in self._typed.fieldNames() if not name.startswith("_")))
        return StructType([StructField(name, StringType()) for name in names])

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Make the reader of a stream."""
        return JsonReader(self._ours.reader_of_stream(self._typed), self._options, schema.fieldNames()[1:])


class JsonReader(TimedReader):
    """Our offsets, and tuples out of JSON."""

    def __init__(self, reader: StreamReader, options: Options, names: Sequence[str]) -> None:
        """Name the reader, and the columns."""
        super().__init__(reader)
        self._url = f"{options.url}/v1/destinations/{options.destination}/clients/{options.client_id}/rows"
        self._names = names

    def _records(self, partition: RangePartition) -> Iterator[tuple[str | None, ...]]:
        headers = {"Accept": "application/x-ndjson"}
        for from_, to in partition.pieces:
            answer = urllib3.request("GET", self._url, fields={"from": from_, "to": to}, headers=headers)
            for line in answer.data.splitlines():
                message = json.loads(line)
                for row in message.get("data") or ():
                    yield message["type"], *map(row.get, self._names)


@contextmanager
def _noted(call: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    _note(call, time.perf_counter() - start)


def _note(call: str, seconds: float, **more: float) -> None:
    """Append to the notes; so short a line is written at once, whatever else writes."""
    line = json.dumps({"call": call, "end": time.time(), "seconds": seconds, **more})
    with Path(os.environ[NOTES]).open("a") as notes:
        notes.write(f"{line}\n")
