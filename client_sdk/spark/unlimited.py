"""The streaming reader of Spark 4.1, whose micro-batches reach to the end of the source."""

import time
from collections.abc import Sequence

from pyspark.sql.datasource import InputPartition

from ...protocol.errors import BadParameterError, DecodeError, SourceError
from .options import Options
from .ranges import Form, advised
from .stream import IDLE, Offset, Stream, end_after
from .subscription import PATIENCE, POLL


class UnlimitedStream(Stream):
    """A stream whose micro-batches end where the source ended when Spark asked.

    Spark 4.1 asks for an end without a word of where the micro-batch begins, or whether the query is one of what is
    there now: then it asks once, and reads up to there. So the end is the source's, however far that is; what the
    ring cannot hold is read by catch-up. A micro-batch is confirmed when the next one has been written down.
    """

    def __init__(self, options: Options, form: Form) -> None:
        """Nothing is sent yet. Raises BadParameterError for a limit, which would end such a query too early."""
        super().__init__(options, form)
        if options.max_rows_per_trigger is not None or options.max_bytes_per_trigger is not None:
            name = "maxBytesPerTrigger" if options.max_rows_per_trigger is None else "maxRowsPerTrigger"
            raise BadParameterError(f"{name} needs Spark 4.2 or later: Spark 4.1 limits no micro-batch", name)
        self._start: Offset | None = None
        """Where the next micro-batch begins, ..."""
        self._place = ""
        """... up to where nothing was found for it, and since when it is so."""
        self._since = 0.0
        self._asked = False

    @advised()
    def initialOffset(self) -> Offset:
        """Return the client's cursor; a client that does not exist is made, durably."""
        offset = super().initialOffset()
        self._begin_at(offset)
        return offset

    @advised()
    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Cut a micro-batch into parts; when a query goes on, Spark tells by an empty one where."""
        self._begin_at(end)
        return [] if start == end else super().partitions(start, end)

    @advised()
    def latestOffset(self) -> Offset:  # type: ignore[override]  # as Spark 4.1 has it
        """Return the source's end, or where the next micro-batch begins when there is nothing for the query.

        A marker or DDL that ends the query comes first in a micro-batch, unless it is further away than the ring
        holds.
        """
        if self._start is None:
            self.initialOffset()
        assert self._start is not None
        start, subscription = self._start, self._subscription
        client = subscription.open()
        end = self._source_end()
        if end is None:
            return start
        deadline = time.monotonic() + PATIENCE
        has_rows = is_blocked = False
        while True:
            found = client.position(self._place, until=end, timeout=POLL, max_bytes=subscription.half_ring)
            if found.entries and not found.rows:
                try:
                    subscription.look_at(found)
                except DecodeError:
                    if not has_rows:
                        raise
                    return end_after(start, found.from_)
                self._skipped += found.bytes
            has_rows = has_rows or found.rows > 0
            if found.to != self._place:
                deadline = time.monotonic() + PATIENCE
            self._place = found.to
            # A ring that is full of what is not confirmed shows no more; the next micro-batch is what confirms it.
            is_blocked = not found.entries and bool(client.destination()["full"])
            if found.reached or is_blocked or (has_rows and not found.entries):
                break
            subscription.wait(deadline)
        is_far = self._skipped > subscription.half_ring or time.monotonic() > self._since + IDLE
        return end_after(start, end) if has_rows or is_blocked or is_far else start

    def _begin_at(self, offset: Offset) -> None:
        if offset != self._start:
            self._start = offset
            self._place = offset["position"]
            self._skipped = 0
            self._since = time.monotonic()

    def _source_end(self) -> str | None:
        """Ask for the source's end; None when a query that runs cannot have it now."""
        client = self._subscription.open()
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                end = client.latest()
            except SourceError:
                # Spark may ask just once: what is there now would then be nothing.
                if self._asked:
                    time.sleep(POLL)
                    return None
                if time.monotonic() > deadline:
                    raise
                time.sleep(POLL)
            else:
                self._asked = True
                return end
