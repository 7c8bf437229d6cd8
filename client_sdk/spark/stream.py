"""What every streaming reader does, whatever Spark lets it decide.

Spark makes several copies of a reader: one in a process of its own controls the query from its start to its end (its
offsets, its acks), the others only read partitions. So nothing is opened before it is needed.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, cast

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from .options import Options
from .ranges import Form, RangePartition, advised, plan, read
from .subscription import Subscription

if TYPE_CHECKING:
    from ..batch import Range

IDLE: Final = 300.0
"""Seconds after which an offset moves over what the filter leaves out."""

Offset = dict[str, str]
"""``{"position": "<text>"}``. That of a first micro-batch has its ``begin`` too, which Spark stores nowhere else, and
which the cursor may have left when the micro-batch is repeated."""


class Stream(DataSourceStreamReader):
    """The stream of a client id as micro-batches."""

    def __init__(self, options: Options, form: Form) -> None:
        """Nothing is sent yet."""
        self._options = options
        self._form = form
        # Of the reader that controls the query:
        self._subscription = Subscription(options, form)
        self._range: Range | None = None
        """The range that the next micro-batch is, ..."""
        self._skipped = 0
        """... and the bytes of entries without rows before it."""

    # --- called by Spark ---------------------------------------------------------------------------------------------

    @advised()
    def initialOffset(self) -> Offset:
        """Return the client's cursor; a client that does not exist is made, durably."""
        position = self._subscription.begin()
        return {"position": position, "begin": position}

    @advised()
    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Cut a micro-batch into parts."""
        begin = begin_of(start, end)
        client = self._subscription.open(begin)
        found, self._range = self._range, None
        size = self._subscription.half_ring
        if found is not None and found.to == end["position"]:
            size = found.bytes + self._skipped
        return plan(client, begin, end["position"], self._options.partitions, size)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a part, in an executor."""
        return read(self._options, self._form, cast("RangePartition", partition))

    @advised()
    def commit(self, end: Offset) -> None:
        """Confirm what is before ``end``; it may come again."""
        self._subscription.ack(end["position"])

    def stop(self) -> None:
        """Close the connections."""
        self._subscription.close()


def begin_of(start: Offset, end: Offset) -> str:
    """Return where a micro-batch begins; ``start`` of the first one is what `Stream.initialOffset` says now."""
    return end.get("begin", start["position"]) if _is_initial(start) else start["position"]


def end_after(start: Offset, position: str) -> Offset:
    """Return the end of a micro-batch, with its begin when it is the first one; ``start`` itself for an empty one."""
    if position == start["position"]:
        return start
    return {"position": position, "begin": start["begin"]} if _is_initial(start) else {"position": position}


def _is_initial(offset: Offset) -> bool:
    return offset.get("begin") == offset["position"]
