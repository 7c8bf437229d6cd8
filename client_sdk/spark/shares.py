"""The changes of a micro-batch for tasks that each take some of the keys, so that no change becomes a row of Spark.

What Spark has of a micro-batch is which task has to read what. Every task reads all of it and keeps what is its own:
to decode changes costs less than to have Spark shuffle them. There are as many rows as changes all the same, nearly all
of them empty, so that Spark's progress tells how many changes there were.
"""

import json
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Final, Self, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from ...sql.changes import buckets
from .options import Options
from .progress import BUCKETS, TABLES
from .ranges import Envelope, RangePartition, read
from .reader import StreamReader
from .source import SluiceDataSource
from .stream import Offset, begin_of

COLUMNS: Final = ("_pos", "_bucket", "_schema", "_table", "_op", "_key", "before", "after")
"""Of the changes: columns of the envelope, and the bucket that the key falls into. Only a DELETE needs ``before``."""
ROW: Final = pa.schema([("share", pa.string())])


@dataclass(frozen=True, slots=True)
class Share:
    """What one of several tasks has to do with a micro-batch."""

    task: int
    tasks: int
    pieces: list[tuple[str, str]]
    """All of the micro-batch: each from a position to another."""

    def __str__(self) -> str:
        """Return a text that `parse` understands."""
        return json.dumps([self.task, self.tasks, self.pieces])

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read its text."""
        task, tasks, pieces = json.loads(text)
        return cls(task, tasks, [(from_, to) for from_, to in pieces])

    def read(self, options: Options) -> pa.Table | None:
        """Fetch the micro-batch piece by piece, and keep the changes of the task; None without any.

        Raises:
            SluiceError: as `sluice.client_sdk.spark.ranges.read`.
        """
        found = [self.choose(changes) for changes in read(options, Envelope(), RangePartition(self.pieces))]
        rows = [changes for changes in found if changes.num_rows]
        return pa.Table.from_batches(rows) if rows else None

    def choose(self, changes: pa.RecordBatch) -> pa.RecordBatch:
        """Return those of some changes that are the task's; none is one of the tables of a mirror's progress."""
        bucket = buckets(changes["_schema"], changes["_table"], changes["_key"], BUCKETS)
        chosen = pa.array([number for number in range(BUCKETS) if number % self.tasks == self.task], bucket.type)
        mask = pc.and_(pc.is_in(bucket, chosen), pc.invert(pc.is_in(changes["_table"], pa.array(TABLES))))
        rows = pc.indices_nonzero(mask)
        column = {name: changes[name].take(rows) for name in ("_pos", "_schema", "_table", "_op", "_key", "after")}
        is_delete = pc.equal(column["_op"], "DELETE")
        column["before"] = changes["before"].take(pc.if_else(is_delete, rows, None))
        column["_bucket"] = bucket.take(rows)
        return pa.RecordBatch.from_arrays([column[name] for name in COLUMNS], COLUMNS)


class ShareSource(SluiceDataSource):
    """The shares of a stream; the option ``tasks`` says how many there are at most."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        """Read the options; nothing is sent yet."""
        given = dict(options)
        self._tasks = int(given.pop("tasks"))
        super().__init__(given)

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "sluice-shares"

    def schema(self) -> StructType:
        """Return the column."""
        return from_arrow_schema(ROW)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002
        """Make the reader of a stream."""
        return ShareReader(self._options, self._tasks)


@dataclass
class SharePartition(InputPartition):
    """A share, and how many rows stand for it."""

    share: Share
    rows: int


class ShareReader(StreamReader):
    """The shares of the stream of a client id."""

    def __init__(self, options: Options, tasks: int) -> None:
        """Nothing is sent yet."""
        super().__init__(options, Envelope())
        self._tasks = tasks

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Share a micro-batch."""
        found = self._range
        parts = cast("Sequence[RangePartition]", super().partitions(start, end))
        if found is not None and found.to == end["position"]:
            rows = found.rows
        else:  # begun by a query before this one
            cut = self._subscription.open().splits(begin_of(start, end), end["position"], 1)
            rows = sum(part.rows for part in cut)
        return share([piece for part in parts for piece in part.pieces], rows, self._tasks)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Give a share."""
        given = cast("SharePartition", partition)
        texts = pa.array([str(given.share)][: given.rows], pa.string())
        nothing = pa.nulls(given.rows - len(texts), pa.string())
        yield pa.RecordBatch.from_arrays([pa.concat_arrays([texts, nothing])], schema=ROW)


def share(pieces: list[tuple[str, str]], rows: int, tasks: int) -> list[SharePartition]:
    """Share a micro-batch of ``rows`` rows among tasks; as many rows stand for the shares."""
    tasks = max(1, min(tasks, rows))
    return [
        SharePartition(Share(task, tasks, pieces), rows * (task + 1) // tasks - rows * task // tasks)
        for task in range(tasks)
    ]
