"""The client id that a query or a job reads: its session, where it stands, and what comes without rows."""

import logging
import time
from typing import Final

from ...protocol.canal.rows import Change
from ...protocol.cut import parse_place
from ...protocol.errors import (
    BadPositionError,
    NotSubscribedError,
    SchemaMismatchError,
    SourceError,
    UnknownTableError,
)
from ..batch import Range
from ..calls import Start
from ..client import Client
from .options import Options
from .ranges import Form, Typed, check_markers, current_columns, difference

logger = logging.getLogger(__name__)

POLL: Final = 0.5
"""Seconds to wait for a change: as long as stopping an idle query or job may take."""
PATIENCE: Final = 60.0
"""Seconds that a destination may be unable to read its source while one has to have something of it."""


class Subscription:
    """The client id of the options, read in a form. It is opened by the first `open`; until then nothing is sent."""

    def __init__(self, options: Options, form: Form) -> None:
        """Nothing is sent yet."""
        self._options = options
        self._form = form
        self._client: Client | None = None
        self._is_new = False
        self.half_ring = 0
        """Bytes: the ring has to hold a batch and what comes meanwhile."""

    @property
    def is_open(self) -> bool:
        """Whether there is a session."""
        return self._client is not None

    def open(self, start: Start | None = None) -> Client:
        """Open the session that ends those of others, unless it is; a client that is made begins at ``start``."""
        if self._client is not None:
            return self._client
        options = self._options
        client = options.client()
        try:
            status = client.status()
        except NotSubscribedError:
            begin = "earliest" if start is None else start
            client.subscribe(options.tables or "", begin, where=options.where or "")
            self._is_new = True
        else:
            known = status["filter"], status["where"]
            wanted = tuple(
                old if new is None else new for old, new in zip(known, (options.tables, options.where), strict=True)
            )
            if wanted != known:
                logger.warning(
                    "client %d of %s was subscribed to %s, now it is to %s",
                    options.client_id,
                    options.destination,
                    " where ".join(map(repr, filter(None, known))) or "all",
                    " where ".join(map(repr, filter(None, wanted))) or "all",
                )
                client.subscribe(wanted[0], where=wanted[1])
        client.open_session()
        if options.on_marker == "skip" and (confirmed := client.confirm_gaps()):
            text = "client %d of %s goes on without changes that it does not get, %d times, as onMarker says"
            logger.warning(text, options.client_id, options.destination, confirmed)
        self.half_ring = client.destination()["capacity"] // 2
        self._client = client
        most = options.max_bytes_per_trigger
        if most is not None and most > self.half_ring:
            logger.warning(
                "maxBytesPerTrigger=%d is more than half of what the ring of the server holds: it counts as %d",
                most,
                self.half_ring,
            )
        return client

    def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            self._client.close()

    @property
    def max_bytes(self) -> int:
        """Bytes of a batch at most, as the option says; more than half the ring cannot be."""
        return min(self._options.max_bytes_per_trigger or self.half_ring, self.half_ring)

    def begin(self) -> str:
        """Return the client's durable cursor; make a client that does not exist. Waits until the source is reached."""
        options = self._options
        client = self.open(options.starting_position)
        if options.starting_position is not None and not self._is_new:
            logger.warning(
                "client %d of %s exists: it resumes at its cursor, startingPosition has no effect",
                options.client_id,
                options.destination,
            )
        deadline = time.monotonic() + PATIENCE
        while not (position := client.status()["position"]):
            self.wait(deadline)
        return str(position)

    def ack(self, position: str, *, durable: bool = False) -> None:
        """Confirm everything before a position that is processed; ``durable``: return when that is on disk."""
        client = self.open(position)
        try:
            client.ack(position, durable=durable)
        except BadPositionError:
            # Somebody gave back what was marked, as `sluice rollback` does, or the ring has not come so far.
            place = client.status()["position"]
            deadline = time.monotonic() + PATIENCE
            while not parse_place(position).precedes(parse_place(place)):
                found = client.position(place, until=position, timeout=POLL)
                if found.to != place:
                    place = found.to
                    client.ack(place)  # which makes room in the ring
                    deadline = time.monotonic() + PATIENCE
                elif time.monotonic() > deadline:
                    raise
            client.ack(position, durable=durable)

    def wait(self, deadline: float) -> None:
        """Wait a moment; raise SourceError when the time has come and the destination says what is wrong."""
        if time.monotonic() > deadline and (error := self.open().destination()["error"]):
            raise SourceError(f"destination {self._options.destination} cannot read its source: {error}")
        time.sleep(0.05)

    def look_at(self, found: Range) -> None:
        """Look at a range without rows: a marker may stand in it, or a DDL.

        Raises:
            DecodeError: rows are missing in it, unless ``onMarker`` is ``skip``.
            SchemaMismatchError: the table of the form is not any more what it was, unless ``onSchemaChange`` says that
                this does not matter.
        """
        batch = self.open().rows(found.from_, found.to)
        check_markers(batch, self._form, self._options.on_marker)
        # A DDL comes alone. Of columns that are named in an option the decoder says whether they still fit.
        if isinstance(self._form, Typed) and self._options.columns is None and found.entries == 1:
            for change in batch.changes():
                if change.is_ddl and _may_change(self._form.table, change):
                    self._check_columns(self._form, change)

    def _check_columns(self, form: Typed, ddl: Change) -> None:
        """Fail when the table is not any more what the query was loaded with; the rows before the DDL are done."""
        name = ".".join(form.table)
        if ddl.type == "TRUNCATE":
            logger.warning("%s was truncated at %s:%d", name, ddl.logfile_name, ddl.logfile_offset)
        try:
            now = current_columns(self.open(), form.table)
        except UnknownTableError:
            now = ()
        changed = difference(form.columns, now)
        if not changed:
            return
        old, new = (", ".join(map(" ".join, columns)) for columns in (form.columns, now))
        sql = " ".join(ddl.sql.split())[:500]
        what = f"{name} was changed at {ddl.logfile_name}:{ddl.logfile_offset} by `{sql}`"
        if self._options.on_schema_change == "continue":
            logger.warning("%s; the query goes on with (%s)", what, old)
            return
        raise SchemaMismatchError(
            f"{what}: the query reads ({old}); now the table has ({new or 'no columns: it is gone'}): {changed}. All"
            " changes before this are done. To use the new columns, load the stream again and start the query with the"
            " same checkpoint. To keep the old ones, set the option onSchemaChange=continue (with missingColumns=null"
            " where one is gone), or name them in the option columns."
        )


def _may_change(table: tuple[str, str], ddl: Change) -> bool:
    """Whether a DDL names the table, or no table but its schema: that of a schema takes its tables with it."""
    schema, name = (it.lower() for it in table)
    sql = ddl.sql.lower().replace("``", "`")
    return name in sql or (not ddl.table and schema in sql)
