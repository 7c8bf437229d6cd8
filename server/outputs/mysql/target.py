"""A MySQL or MariaDB server that is kept equal: each transaction of the source is there once.

Transactions that follow one another are joined to one on the target. How far the output came stands in a table there,
and is written in the same transaction:

    sluice_output           job | epoch, place | ddl, ddl_before
    sluice_output_tables    job, source_schema, source_table      that a snapshot has begun to fill

``job`` is destination/output, ``place`` what `Kept` writes. A process that opens the output raises ``epoch`` first; an
earlier one finds its own no more, and cannot commit.

A DDL commits by itself, so that its place cannot be written with it. Before it, a digest of its text is noted
(``ddl``), with one of what the target's catalogue says of its schemas. What is found noted when an output is opened
again was begun: if the catalogue says something else now, it was done; if not, it was not. For statements that leave
the same definitions behind, or that may be done in part, this proves nothing: then the output stops.
"""

import hashlib
import threading
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
import pymysql
from pymysql.constants import CLIENT, ER

from ....protocol.canal.arrow import EnvelopeDecoder
from ....protocol.canal.ddl import classify, is_of_database
from ....protocol.canal.outline import Outline, outline
from ....protocol.canal.rows import Change, decode_changes
from ....protocol.canal.tags import EventType
from ....protocol.errors import RefusedError, SourceError, TargetError
from ....protocol.identifiers import quote_table
from ....protocol.position import Position
from ....sql.database import Database, DatabaseSession, reason
from ....sql.definitions import LONGEST_SHOWN, define, digest
from ....sql.progress import create_tables
from ....sql.target import is_passing, set_up
from ....sql.writer import Writer
from ....store.batch import Batch
from ..forms.encoding import may_skip
from ..kept import Kept, memory_of, read_memory, resume, seek_advice
from ..markers import find_marker, without
from ..settings import Output
from ..target import DeliveryError, Place, Prepared, RejectedError, SplitError, server_of
from .settings import SNAPSHOT, Existing, MysqlSettings, OnDdl

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pymysql.cursors import Cursor

TABLE: Final = "sluice_output"
TABLE_OF_TABLES: Final = "sluice_output_tables"
ENDING: Final = 10
"""Seconds that an earlier session may take to end after it was killed."""
SURE: Final = frozenset({EventType.CREATE, EventType.ALTER, EventType.ERASE, EventType.CINDEX, EventType.DINDEX})
"""Statements that change the definition of what they name, if they are about one table."""


class Rows(NamedTuple):
    """Changes of rows."""

    changes: pa.RecordBatch
    data: memoryview
    """The entries that they are decoded from."""
    is_whole: bool
    """They end with a transaction; else it goes on."""
    emptied: tuple[str, str] | None = None
    """A table that has no other rows than these."""


Part = Rows | Change
"""Changes, or a DDL to run."""


class MysqlTarget:
    """See `Target`."""

    trouble = ""
    statistics: Mapping[str, float] = {}
    keeps_place = True
    takes_transactions = True

    def __init__(self, output: Output, database: Database) -> None:
        """Make it, without connecting."""
        settings = output.settings
        assert isinstance(settings, MysqlSettings)
        self._output = output
        self._settings = settings
        self._database = database
        self._job = f"{output.destination}/{output.name}"
        self._table = quote_table(settings.progress, TABLE)
        self._decoder = EnvelopeDecoder()
        self._writer = Writer(is_checked=True, admit=self._admit if settings.start == SNAPSHOT else None)
        self._session: DatabaseSession | None = None
        self._abandoned = threading.Event()
        self._epoch = 0
        self._moved = ""
        self._packet = 0
        self._identity = ""  # of the target, as positions name a source
        self._schemas: frozenset[str] = frozenset()  # that the target had when it was opened
        self._begun = ("", "")  # the DDL that was noted and not finished, and the digest before it

    def examine(self) -> str:
        """Ask the target whether it would take changes. Raises SourceError, TargetError, MySQLError."""
        session = self._database.connect()
        try:
            with session.cursor() as cursor:
                set_up(cursor, self._database, self._output.time_zone)
                cursor.execute("SELECT @@version, @@global.read_only")
                version, read_only = cursor.fetchone() or ("", 0)
        finally:
            session.close()
        if read_only:
            raise TargetError(f"{self._database} is read-only: SET GLOBAL read_only = 0 there, or name another target")
        return f"{self._database} is version {version} and takes changes, each once"

    # --- the calls of a delivery

    def open(self, memory: str, moved: str, epoch: int) -> Place | None:
        """See `Target.open`."""
        self._abandoned.clear()
        self._writer.forget()
        self._epoch = epoch
        with self._meaning():
            self._session = session = self._database.connect(autocommit=False, client_flag=CLIENT.FOUND_ROWS)
            with session.cursor() as cursor:
                self._packet = set_up(cursor, self._database, self._output.time_zone)
                cursor.execute("SHOW GLOBAL VARIABLES WHERE Variable_name IN ('server_uuid', 'server_id')")
                found = dict(cursor.fetchall())
                self._identity = str(found.get("server_uuid", found["server_id"]))
                cursor.execute("SELECT schema_name FROM information_schema.schemata")
                self._schemas = frozenset(name for (name,) in cursor.fetchall())
                create_tables(cursor, self._database, self._settings.progress, TABLES)
                place = self._take_over(cursor, memory, moved)
                session.commit()
                self._end_earlier(cursor)
                session.commit()
        return place

    def prepare(self, batch: Batch) -> Prepared:
        """See `Target.prepare`."""
        if batch.snapshot:
            data = b"".join(batch.slices)
            changes, emptied = self._decoder.decode(data), None
            if outline(data).statements:  # the only one is a TRUNCATE
                first = decode_changes(data)[0]
                emptied = first.schema, first.table
            part = Rows(changes, memoryview(data), is_whole=True, emptied=emptied)
            return Prepared(batch, [part], changes.num_rows, len(data))
        found, skipped = without(batch, self._find_refused, partial(may_skip, self._settings))
        data = b"".join(found.slices)
        made = outline(data)
        if self._settings.ddl is OnDdl.APPLY and made.statements:
            (change, *_) = changes = decode_changes(data)
            if found.entries > 1:  # so that it is known where the stream is before it, and after it
                raise SplitError(made.statements[0][0] or 1)
            if _drops(change):  # of a database that is not there: else it was refused
                return Prepared(batch, [], 0, len(data), skipped)
            return Prepared(batch, changes, 1, len(data), skipped, is_alone=True)
        parts = list(self._decode(data, made))
        return Prepared(batch, parts, sum(it.changes.num_rows for it in parts), len(data), skipped)

    def send(self, batches: Sequence[Prepared], place: Place | None) -> None:
        """See `Target.send`. What ends inside a transaction stays in the open one of the session."""
        session = self._session
        if session is None:
            raise DeliveryError("it is not open")
        self._check_source(batches)
        parts: list[Part] = [part for it in batches for part in it.content]
        whole = [number for number, part in enumerate(parts) if not isinstance(part, Rows) or part.is_whole]
        with self._meaning(), session.cursor() as cursor:
            for number, part in enumerate(parts):
                if isinstance(part, Rows):
                    if part.emptied is not None:
                        self._writer.empty(cursor, part.emptied)
                    self._writer.write(cursor, part.changes, part.data, self._packet)
                else:
                    self._apply_statement(session, cursor, part)
                if [number] == whole[-1:]:
                    self._move(cursor, place)
                    session.commit()

    def memory_before(self, batches: Sequence[Prepared]) -> str | None:
        """See `Target.memory_before`: nothing."""
        del batches
        return None

    def memory_after(self, prepared: Prepared) -> str:
        """See `Target.memory_after`."""
        del prepared
        return memory_of(self._moved)

    def idle(self) -> None:
        """See `Target.idle`: nothing is due."""

    def abandon(self) -> None:
        """See `Target.abandon`."""
        self._abandoned.set()
        if self._session is not None:
            self._session.shutdown()

    def losses(self) -> list[str]:
        """See `Target.losses`: nothing is asked again."""
        return []

    def close(self) -> None:
        """See `Target.close`."""
        session, self._session = self._session, None
        if session is not None:
            session.close()

    # --- batches

    def _find_refused(self, data: bytes, begin: int) -> RefusedError | None:
        """Return what is refused from an entry on."""
        found: RefusedError | None = find_marker(data, begin)
        statements = outline(data).statements
        changes = decode_changes(data) if statements else ()
        for number, is_ddl in statements:
            if number < begin or (is_ddl and self._settings.ddl is OnDdl.IGNORE):
                continue
            if found is not None and found.entry <= number:
                break
            change = changes[number]
            if is_ddl and (self._is_elsewhere(change) or (self._settings.ddl is OnDdl.APPLY and not _drops(change))):
                continue
            shown = change.sql[:LONGEST_SHOWN]
            if not is_ddl:
                text = (
                    f"a change was logged as a statement, without its rows: {shown}. Set binlog_format = ROW at the"
                    f" source, make the table equal, then set sluice.output.{self._output.name}.onRefused = skip until"
                    " it has passed"
                )
            elif self._settings.ddl is OnDdl.APPLY:
                text = (
                    f"a DDL is refused: {shown}. No filter of tables says whether the target's database is meant: drop"
                    " it there yourself if it is, and pass over the statement: `sluice skip"
                    f" {self._output.destination} {self._output.client_id}`"
                )
            else:
                text = (
                    f"a DDL is refused: {shown}. Set sluice.output.{self._output.name}.ddl = apply to run such"
                    " statements on the target; or run it there yourself, and pass over it: `sluice skip"
                    f" {self._output.destination} {self._output.client_id}`"
                )
            return RefusedError(text, number, change.schema, change.table)
        return found

    def _is_elsewhere(self, change: Change) -> bool:
        """Whether a DDL makes a database, or is about one that the target does not have: no filter of tables knows."""
        found = classify(change.sql, change.ddl_schema).changes
        if not found or any(it.table is not None for it in found):
            return False
        is_new = change.sql.lstrip()[:6].upper() == "CREATE"
        return is_new or not any(it.schema is None or it.schema in self._schemas for it in found)

    def _decode(self, data: bytes, made: Outline) -> "Iterator[Rows]":
        """Give the rows of whole transactions, and those of the one that goes on."""
        view = memoryview(data)
        if made.boundary:
            piece = view[: made.boundary]
            yield Rows(self._decoder.decode(piece), piece, is_whole=True)
        if made.is_open:
            piece = view[made.boundary :]
            yield Rows(self._decoder.decode(piece), piece, is_whole=False)

    def _check_source(self, batches: Sequence[Prepared]) -> None:
        if any(server_of(it.batch) == self._identity for it in batches):
            raise RejectedError(
                f"the target {self._database} is the source itself, by its identity {self._identity}: name another"
                " server. If these are two MariaDB servers with the same server_id, give one of them another one: SET"
                " GLOBAL server_id"
            )

    def _admit(self, cursor: "Cursor", name: tuple[str, str]) -> None:
        """Note that a table is filled, if it has no rows yet, or these may be there. Raises TargetError."""
        table, shown = quote_table(*name), ".".join(name)
        tables = quote_table(self._settings.progress, TABLE_OF_TABLES)
        is_new = cursor.execute(f"INSERT IGNORE INTO {tables} VALUES (%s, %s, %s)", (self._job, *name))  # noqa: S608
        if not is_new or self._settings.existing is Existing.MERGE:
            return
        if self._settings.existing is Existing.REPLACE:
            cursor.execute(f"DELETE FROM {table}")  # noqa: S608
        elif cursor.execute(f"SELECT 1 FROM {table} LIMIT 1"):  # noqa: S608
            raise TargetError(
                f"{shown} on the target has rows already: empty it, or set sluice.output.{self._output.name}.existing ="
                " replace to delete them, or = merge to keep those that the source does not have"
            )

    # --- DDL

    def _apply_statement(self, session: DatabaseSession, cursor: "Cursor", change: Change) -> None:
        """Run a DDL, unless it was done before; see the head of the module."""
        name = hashlib.sha256(f"{change.ddl_schema}\0{change.sql}".encode()).hexdigest()
        schemas = {change.schema, change.ddl_schema} - {""}
        before = digest(cursor, schemas)
        noted, self._begun = self._begun, ("", "")
        if noted[0] == name:
            statement = classify(change.sql, change.ddl_schema)
            types = {it.event_type for it in statement.changes}
            is_sure = types <= SURE and len(statement.tables) == 1 and "exchange" not in change.sql.lower()
            if not is_sure and types != {EventType.TRUNCATE}:
                raise RejectedError(
                    "it is not known whether a statement was done when the output ended in the middle of it:"
                    f" {change.sql[:LONGEST_SHOWN]}. Compare the tables of {', '.join(sorted(schemas))} at the source"
                    " and on the target, and finish it there yourself; then go on after it: `sluice seek"
                    f" {self._output.destination} {self._output.client_id} POSITION`"
                )
            if noted[1] != before:
                return
        self._update(cursor, "ddl = %s, ddl_before = %s", (name, before))
        session.commit()
        self._writer.forget()
        define(cursor, change.ddl_schema, change.sql, "the source")
        self._schemas |= {change.schema}

    # --- the place

    def _take_over(self, cursor: "Cursor", memory: str, moved: str) -> Place | None:
        """Return the place that the target keeps, after which nobody else can move it."""
        cursor.execute(f"INSERT IGNORE INTO {self._table} (job) VALUES (%s)", (self._job,))  # noqa: S608
        cursor.execute(
            f"SELECT place, ddl, ddl_before FROM {self._table} WHERE job = %s FOR UPDATE",  # noqa: S608
            (self._job,),
        )
        ((text, *begun),) = cursor.fetchall()
        advice = partial(seek_advice, self._output.destination, self._output.client_id)
        try:
            found = Kept.parse(text) if text else None
        except ValueError as error:
            raise RejectedError(f"its place in {self._table} on the target is {error}; {advice()}") from None
        place, self._moved = resume(
            found, read_memory(memory, moved), self._epoch, where=str(self._database), advice=advice
        )
        is_same = found is not None and found.moved == self._moved  # else the cursor was moved over the DDL
        self._begun = (str(begun[0]), str(begun[1])) if is_same else ("", "")
        cursor.execute(
            f"UPDATE {self._table} SET epoch = %s, place = %s, ddl = %s, ddl_before = %s WHERE job = %s",  # noqa: S608
            (self._epoch, str(Kept(place, self._epoch, self._moved)), *self._begun, self._job),
        )
        return place

    def _end_earlier(self, cursor: "Cursor") -> None:
        """End the session of an earlier process, whose open transaction may hold rows. Raises DeliveryError."""
        name = "sluice " + hashlib.sha256(self._job.encode()).hexdigest()[:40]
        cursor.execute("SELECT IS_USED_LOCK(%s)", (name,))
        ((earlier,),) = cursor.fetchall()
        if earlier is not None:
            try:
                cursor.execute(f"KILL {int(earlier)}")
            except pymysql.MySQLError as error:
                if error.args[0] != ER.NO_SUCH_THREAD:
                    raise
        cursor.execute("SELECT GET_LOCK(%s, %s)", (name, ENDING))
        if cursor.fetchall() != ((1,),):
            raise DeliveryError(f"an earlier session of this output, {earlier}, does not end at {self._database}")

    def _move(self, cursor: "Cursor", place: Place | None) -> None:
        """Note that all before a place is done: up to the transaction in which it is.

        A snapshot may begin at a place that has no name yet: then its rows come again, as they are by then.
        """
        if place is None:
            self._update(cursor, "job = job", ())
            return
        at = place._replace(position=str(Position.parse(place.position).transaction))
        kept = str(Kept(at, self._epoch, self._moved))
        self._update(cursor, "place = %s, ddl = '', ddl_before = ''", (kept,))
        self._begun = ("", "")

    def _update(self, cursor: "Cursor", assignments: str, values: Sequence[str]) -> None:
        count = cursor.execute(
            f"UPDATE {self._table} SET {assignments} WHERE job = %s AND epoch = %s",  # noqa: S608
            (*values, self._job, self._epoch),
        )
        if count != 1:
            raise DeliveryError(
                f"another process has opened this output since, or its row was removed from {self._table} on the target"
            )

    @contextmanager
    def _meaning(self) -> "Iterator[None]":
        """Say of an error whether it may pass by itself."""
        try:
            yield
        except (SourceError, pymysql.MySQLError, OSError) as error:
            text = str(error) if isinstance(error, SourceError) else f"{self._database}: {reason(error)}"
            if self._abandoned.is_set() or is_passing(error):
                raise DeliveryError("it was stopped" if self._abandoned.is_set() else text) from error
            raise RejectedError(text) from error
        except TargetError as error:
            raise RejectedError(str(error)) from error


def _drops(change: Change) -> bool:
    """Whether a DDL drops a database."""
    return is_of_database(change.sql) and change.sql.lstrip()[:6].upper() != "CREATE"


_JOB: Final = "job VARCHAR(265) CHARACTER SET ascii COLLATE ascii_bin NOT NULL"  # 200, a slash, 64
_NAME: Final = "VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL"
TABLES: Final = {
    TABLE: f"{_JOB}, epoch BIGINT NOT NULL DEFAULT 0, place MEDIUMTEXT CHARACTER SET ascii,"
    " ddl VARCHAR(64) CHARACTER SET ascii NOT NULL DEFAULT '',"
    " ddl_before VARCHAR(64) CHARACTER SET ascii NOT NULL DEFAULT '', PRIMARY KEY (job)",
    TABLE_OF_TABLES: f"{_JOB}, source_schema {_NAME}, source_table {_NAME},"
    " PRIMARY KEY (job, source_schema, source_table)",
}
