"""The streaming reader of Spark 4.2 and later, which lets a source limit its micro-batches."""

import time
from typing import Any

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from .options import Options
from .ranges import Form, advised
from .stream import IDLE, Offset, Stream, end_after
from .subscription import PATIENCE, POLL


class LimitedStream(Stream, SupportsTriggerAvailableNow):
    """A stream whose micro-batches end within limits, before and after a DDL; acks do not wait for the next one."""

    def __init__(self, options: Options, form: Form) -> None:
        """Nothing is sent yet."""
        super().__init__(options, form)
        self._until: str | None = None
        """Where a query of what is there now ends."""
        self._latest = ""
        self._start = ""
        """Where the next micro-batch begins, ..."""
        self._place = ""
        """... up to where nothing was found for it, and since when it is so."""
        self._since = 0.0

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
    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Confirm what is before ``start``, and return where the micro-batch after it ends.

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
                return end_after(start, found.to)
            if found.entries:
                self._subscription.look_at(found)
                self._skipped += found.bytes
            if self._until is not None and found.to != self._place:
                deadline = time.monotonic() + PATIENCE
            self._place = found.to
            if self._skipped > max_bytes or (self._until is None and time.monotonic() > self._since + IDLE):
                return end_after(start, self._place)
            if self._until is None and (not found.entries or time.monotonic() > deadline):
                return start
            if self._until is not None and found.reached:
                # Entries without rows are confirmed after a micro-batch of their own.
                return end_after(start, self._place) if self._skipped else start
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
