"""The streaming and the batch reader.

Spark makes several copies of a reader: one in a process of its own controls the query from its start to its end (its
offsets, its acks), the others only read partitions. Nothing may be opened before it is needed.
"""

import time
from collections.abc import Iterator, Sequence
from typing import cast

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from sluice.client_sdk.client import Client
from sluice.client_sdk.spark.options import Options
from sluice.client_sdk.spark.ranges import RangePartition, plan, read
from sluice.protocol.errors import NotSubscribedError, SourceError

POLL = 0.5
"""Seconds to wait for a change before Spark is told that there is none: what stopping a query may take."""
BEGIN = 60.0
"""Seconds that a destination may take to reach its source."""

Offset = dict[str, str]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The stream of a client id as micro-batches; an offset is ``{"position": "<text>"}``."""

    def __init__(self, options: Options) -> None:
        """Nothing is sent yet."""
        self._options = options
        self._client: Client | None = None
        self._until: str | None = None

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return what the options allow a micro-batch."""
        options = self._options
        if options.max_rows_per_trigger is not None:
            return ReadMaxRows(options.max_rows_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Pin the source's current end: the query ends there."""
        client = self._open(self._options.starting_position)
        self._until = client.position(self._cursor(client), max_rows=1).latest

    def initialOffset(self) -> Offset:
        """Return the client's cursor; a client that does not exist is made."""
        return {"position": self._cursor(self._open(self._options.starting_position))}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Confirm what lies before ``start``, and return where the micro-batch behind it ends."""
        position = start["position"]
        client = self._open(position)
        client.ack(position)
        while True:
            found = client.position(
                position,
                until=self._until,
                timeout=POLL,
                max_rows=limit.max_rows if isinstance(limit, ReadMaxRows) else None,
                max_bytes=self._options.max_bytes_per_trigger,
            )
            if found.entries:
                return {"position": found.to}
            if found.reached or self._until is None:
                return start

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Cut a micro-batch into parts."""
        client = self._open(start["position"])
        return plan(client, start["position"], end["position"], self._options.partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a part, in an executor."""
        return read(self._options, cast("RangePartition", partition))

    def commit(self, end: Offset) -> None:
        """Confirm what lies before ``end``, again."""
        self._open(end["position"]).ack(end["position"])

    def _open(self, start: str) -> Client:
        """Open the session that ends those of others, at the first call; a client that is made begins at ``start``."""
        if self._client is None:
            client = self._options.client()
            try:
                client.open_session()
            except NotSubscribedError:
                client.subscribe(start=start)
                client.open_session()
            self._client = client
        return self._client

    def _cursor(self, client: Client) -> str:
        """Return the client's durable cursor; wait until its destination has reached the source."""
        deadline = time.monotonic() + BEGIN
        while not (position := client.status()["position"]):
            if time.monotonic() > deadline:
                raise SourceError(f"destination {self._options.destination} has not reached its source: see its status")
            time.sleep(0.1)
        return str(position)


class BatchReader(DataSourceReader):
    """A range of the stream as a batch."""

    def __init__(self, options: Options, from_: str, to: str) -> None:
        """Nothing is sent yet."""
        self._options = options
        self._range = from_, to

    def partitions(self) -> Sequence[InputPartition]:
        """Cut the range into parts."""
        with self._options.client() as client:
            return plan(client, *self._range, self._options.partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a part, in an executor."""
        return read(self._options, cast("RangePartition", partition))
