"""The streaming and the batch reader.

Spark makes several copies of a reader: one in a process of its own controls the query from its start to its end (its
offsets, its acks), the others only read partitions. So nothing is opened before it is needed.
"""

import logging
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final, cast

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from sluice.client_sdk.batch import Range
from sluice.client_sdk.calls import Start
from sluice.client_sdk.client import Client
from sluice.client_sdk.spark.options import Options
from sluice.client_sdk.spark.ranges import (
    Form,
    RangePartition,
    Typed,
    advised,
    check_markers,
    current_columns,
    difference,
    plan,
    read,
)
from sluice.protocol.errors import (
    BadParameterError,
    NotSubscribedError,
    SchemaMismatchError,
    SourceError,
    UnknownTableError,
)
from sluice.protocol.rows import Change

logger = logging.getLogger(__name__)

POLL: Final = 0.5
"""Seconds to wait for a change before Spark is told that there is none: as long as stopping a query may take."""
IDLE: Final = 300.0
"""Seconds after which an offset moves over what the filter leaves out."""
PATIENCE: Final = 60.0
"""Seconds that a destination may be unable to read its source while a query has to have something of it."""

Offset = dict[str, str]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The stream of a client id as micro-batches; an offset is ``{"position": "<text>"}``."""

    def __init__(self, options: Options, form: Form) -> None:
        """Nothing is sent yet."""
        self._options = options
        self._form = form
        # Of the reader that controls the query:
        self._client: Client | None = None
        self._created = False
        self._half = 0
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
        self._until = self._open(self._options.starting_position).latest()

    @advised()
    def initialOffset(self) -> Offset:
        """Return the client's cursor; a client that does not exist is made, durably."""
        client = self._open(self._options.starting_position)
        if self._options.starting_position is not None and not self._created:
            logger.warning(
                "client %d of %s exists: it goes on from its cursor, startingPosition has no effect",
                self._options.client_id,
                self._options.destination,
            )
        return {"position": self._cursor(client)}

    @advised()
    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Confirm what lies before ``start``, and return where the micro-batch behind it ends.

        ``start`` itself when there is nothing for the query; after some minutes of that, or of entries without rows
        that fill the ring, the place up to which there is nothing.
        """
        client = self._open(start["position"])
        client.ack(start["position"])
        if start["position"] != self._start:
            self._start = self._place = start["position"]
            self._skipped = 0
            self._since = time.monotonic()
        max_bytes = self._max_bytes()
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
                self._look_at(client, found)
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
            self._fail_after(deadline, client)

    @advised()
    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the source's end when Spark asked last, and how far the query is behind; for its progress only."""
        if self._client is None:
            return None
        lag = self._client.status()["lag"]
        return {
            "position": self._latest,
            "lagSeconds": round(lag["seconds"], 3),
            "lagBytes": lag["bytes"],
            "lagTransactions": lag["transactions"],
        }

    @advised()
    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Cut a micro-batch into parts."""
        client = self._open(start["position"])
        found, self._range = self._range, None
        size = found.bytes + self._skipped if found is not None and found.to == end["position"] else self._max_bytes()
        return plan(client, start["position"], end["position"], self._options.partitions, size)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a part, in an executor."""
        return read(self._options, self._form, cast("RangePartition", partition))

    @advised()
    def commit(self, end: Offset) -> None:
        """Confirm what lies before ``end``; the next `latestOffset` does so again."""
        self._open(end["position"]).ack(end["position"])

    def stop(self) -> None:
        """Close the connections."""
        if self._client is not None:
            self._client.close()

    # --- inside ------------------------------------------------------------------------------------------------------

    def _open(self, start: Start | None) -> Client:
        """Open the session that ends those of others, at the first call; a client that is made begins at ``start``."""
        if self._client is not None:
            return self._client
        options = self._options
        client = options.client()
        try:
            known = client.status()["filter"]
        except NotSubscribedError:
            client.subscribe(options.tables or "", "earliest" if start is None else start)
            self._created = True
        else:
            if options.tables not in (None, known):
                logger.warning(
                    "client %d of %s was subscribed to %r, now it is to %r",
                    options.client_id,
                    options.destination,
                    known,
                    options.tables,
                )
                client.subscribe(options.tables)
        client.open_session()
        self._half = client.destination()["capacity"] // 2
        self._client = client
        wanted = options.max_bytes_per_trigger
        if wanted is not None and wanted > self._half:
            logger.warning(
                "maxBytesPerTrigger=%d is more than half of what the ring of the server holds: it counts as %d",
                wanted,
                self._half,
            )
        return client

    def _max_bytes(self) -> int:
        """Bytes of a micro-batch: the ring has to hold it and what comes meanwhile."""
        return min(self._options.max_bytes_per_trigger or self._half, self._half)

    def _cursor(self, client: Client) -> str:
        """Return the client's durable cursor; wait until its destination has reached the source."""
        deadline = time.monotonic() + PATIENCE
        while not (position := client.status()["position"]):
            self._fail_after(deadline, client)
        return str(position)

    def _fail_after(self, deadline: float, client: Client) -> None:
        """Wait a moment; raise SourceError when the time has come and the destination says what is wrong."""
        if time.monotonic() > deadline and (error := client.destination()["error"]):
            raise SourceError(f"destination {self._options.destination} cannot read its source: {error}")
        time.sleep(0.05)

    def _look_at(self, client: Client, found: Range) -> None:
        """Look at a range without rows: a marker may stand in it, or a DDL."""
        batch = client.rows(found.from_, found.to)
        check_markers(batch, self._form, self._options.on_marker)
        if isinstance(self._form, Typed):
            for change in batch.changes():
                if change.is_ddl and self._form.table[1].lower() in change.sql.lower():
                    self._check_columns(client, self._form, change)

    def _check_columns(self, client: Client, form: Typed, ddl: Change) -> None:
        """Fail when the table is not any more what the query was loaded with; the rows before the DDL are done."""
        name = ".".join(form.table)
        if ddl.type == "TRUNCATE":
            logger.warning("%s was truncated at %s:%d", name, ddl.logfile_name, ddl.logfile_offset)
        try:
            now = current_columns(client, form.table)
        except UnknownTableError:
            now = ()
        changed = difference(form.columns, now, added=self._options.columns is None)
        if not changed:
            return
        old, new = (", ".join(map(" ".join, columns)) for columns in (form.columns, now))
        what = f"{name} was changed at {ddl.logfile_name}:{ddl.logfile_offset} by: {ddl.sql[:500]}"
        if self._options.on_schema_change == "continue":
            logger.warning("%s; the query goes on with (%s)", what, old)
            return
        raise SchemaMismatchError(
            f"{what}\nThe query reads ({old}); now the table has ({new or 'no columns: it is gone'}): {changed}. All"
            " changes before this are done. Load the stream again and start the query with the same checkpoint to go on"
            " with the new columns; or go on with the old ones by the option onSchemaChange=continue (with"
            " missingColumns=null where one is gone), or by naming them in the option columns."
        )


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
