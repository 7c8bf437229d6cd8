"""The readers that the installed Spark calls: of a stream, and of a range as a batch."""

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, cast

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from ...protocol.errors import BadParameterError
from .options import Options
from .ranges import Form, RangePartition, advised, check_filter, plan, read

if TYPE_CHECKING or find_spec("pyspark.sql.streaming.datasource") is not None:
    from .limited import LimitedStream as StreamReader
else:
    from .unlimited import UnlimitedStream as StreamReader

__all__ = ["BatchReader", "StreamReader"]


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
            if self._options.table is not None:
                check_filter(client, self._options.table, subscribed)
            return plan(client, *self._range, self._options.partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a part, in an executor."""
        return read(self._options, self._form, cast("RangePartition", partition))
