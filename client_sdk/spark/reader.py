"""The streaming and the batch reader.

Spark makes several copies of a reader: one in a process of its own controls the query from its start to its end (its
offsets, its acks), the others only read partitions. So nothing is opened before it is needed.
"""

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from sluice.client_sdk.spark.options import Options
from sluice.client_sdk.spark.ranges import Form, RangePartition, advised, plan, read
from sluice.client_sdk.spark.subscription import PATIENCE, POLL, Subscription
from sluice.protocol.errors import BadParameterError

if TYPE_CHECKING:
    from sluice.client_sdk.batch import Range

IDLE: Final = 300.0
"""Seconds after which an offset moves over what the filter leaves out."""

Offset = dict[str, str]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The stream of a client id as micro-batches; an offset is ``{"position": "<text>"}``."""

    def __init__(self, options: Options, form: Form) -> None:
        """Nothing is sent yet."""
        self._options = options
        self._form = form
        # Of the reader that controls the query:
        self._subscription = Subscription(options, form)
        self._until: str | None = None
        """Where a query of what is there now ends."""
        self._latest = ""
        self._range: Range | None = None
        self._start = ""
        """Where the next micro-batch begins, ..."""
        self._place = ""
        """... up to where nothing was found for it, ..."""
        self._skipped = 0
        """... the bytes of entries without rows before that, and since when it is so."""
        self._since = 0.0

    # --- called by Spark ---------------------------------------------------------------------------------------------

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return what the options allow a micro-batch."""
        options = self._options
        if options.max_rows_per_trigger is not None:
            return ReadMaxRows(options.max_rows_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        return ReadAllAvailable()

    @advised()
    def prepareForTriggerAvailableNow(self) -> None:
        """Pin the source's current end: there the query is done."""
        self._until = self._subscription.open(self._options.starting_position).latest()

    @advised()
    def initialOffset(self) -> Offset:
        """Return the client's cursor; a client that does not exist is made, durably."""
        return {"position": self._subscription.begin()}

    @advised()
    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Confirm what lies before ``start``, and return where the micro-batch behind it ends.

        ``start`` itself when there is nothing for the query; after some minutes of that, or of entries without rows
        that fill the ring, the place up to which there is nothing.
        """
        self._subscription.ack(start["position"])
        client = self._subscription.open()
        if start["position"] != self._start:
            self._start = self._place = start["position"]
            self._skipped = 0
            self._since = time.monotonic()
        subscription = self._subscription
        max_bytes = subscription.half_ring if isinstance(limit, ReadAllAvailable) else subscription.max_bytes
        deadline = time.monotonic() + (POLL if self._until is None else PATIENCE)
        while True:
            found = client.position(
                self._place,
                until=self._until,
                timeout=POLL,
                max_rows=limit.max_rows if isinstance(limit, ReadMaxRows) else None,
                max_bytes=max_bytes,
            )
            self._latest = found.latest or self._latest
            if found.rows:
                self._range = found
                return {"position": found.to}
            if found.entries:
                self._subscription.look_at(found)
                self._skipped += found.bytes
            if self._until is not None and found.to != self._place:
                deadline = time.monotonic() + PATIENCE
            self._place = found.to
            if self._skipped > max_bytes or (self._until is None and time.monotonic() > self._since + IDLE):
                return {"position": self._place}
            if self._until is None and (not found.entries or time.monotonic() > deadline):
                return start
            if self._until is not None and found.reached:
                # Entries without rows are confirmed behind a micro-batch of their own.
                return {"position": self._place} if self._skipped else start
            self._subscription.wait(deadline)

    @advised()
    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the source's end when Spark asked last, and how far the query is behind; for its progress only."""
        if not self._subscription.is_open:
            return None
        lag = self._subscription.open().status()["lag"]
        return {
            "position": self._latest,
            "lagSeconds": round(lag["seconds"], 3),
            "lagBytes": lag["bytes"],
            "lagTransactions": lag["transactions"],
        }

    @advised()
    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Cut a micro-batch into parts."""
        client = self._subscription.open(start["position"])
        found, self._range = self._range, None
        size = self._subscription.half_ring
        if found is not None and found.to == end["position"]:
            size = found.bytes + self._skipped
        return plan(client, start["position"], end["position"], self._options.partitions, size)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a part, in an executor."""
        return read(self._options, self._form, cast("RangePartition", partition))

    @advised()
    def commit(self, end: Offset) -> None:
        """Confirm what lies before ``end``; the next `latestOffset` does so again."""
        self._subscription.ack(end["position"])

    def stop(self) -> None:
        """Close the connections."""
        self._subscription.close()


class BatchReader(DataSourceReader):
    """A range of the stream as a batch; what the client is subscribed to is read."""

    def __init__(self, options: Options, form: Form, from_: str, to: str) -> None:
        """Nothing is sent yet."""
        self._options = options
        self._form = form
        self._range = from_, to

    @advised()
    def partitions(self) -> Sequence[InputPartition]:
        """Cut the range into parts."""
        with self._options.client() as client:
            subscribed = client.status()["filter"]
            if self._options.filter not in (None, subscribed):
                raise BadParameterError(
                    f"client {self._options.client_id} is subscribed to {subscribed!r}, which a batch cannot change",
                    "filter",
                )
            return plan(client, *self._range, self._options.partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a part, in an executor."""
        return read(self._options, self._form, cast("RangePartition", partition))
