"""A MySQL or MariaDB server that is kept equal: each transaction of the source is there once.

Transactions that follow one another are joined to units, and units that do not depend on one another are applied at the
same time (`Workers`). How far the output came stands in tables there, and is written in the same transactions
(`Progress`).

A DDL commits by itself, so that its place cannot be written with it. Before it, a digest of its text is noted, with one
of what the target's catalogue says of its tables. What is found noted when an output is opened again was begun: if the
catalogue says something else now, it was done; if not, it was not. For statements that leave the same definitions
behind, or that may be done in part, this proves nothing: then the output stops.
"""

import hashlib
import logging
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Final

import pymysql

from ....instance.sink.filters import TableFilter
from ....instance.sources.registry import examine
from ....protocol.canal.arrow import EnvelopeDecoder
from ....protocol.canal.ddl import classify, creates_database, is_of_database
from ....protocol.canal.outline import outline
from ....protocol.canal.rows import Change, decode_changes
from ....protocol.canal.tags import EventType
from ....protocol.errors import RefusedError, SourceError, TargetError
from ....protocol.identifiers import quote_table
from ....sql.database import Database, reason
from ....sql.definitions import LONGEST_SHOWN, define, digest
from ....sql.tables import Tables
from ....sql.target import RefusedRowError, is_passing
from ....store.batch import Batch
from ..forms.encoding import may_skip
from ..kept import memory_of
from ..markers import find_marker, without
from ..settings import Output
from ..target import DeliveryError, Place, Prepared, RejectedError, SplitError, server_of, servers_of
from .checks import routes_of
from .creation import Creation
from .loops import LoopGuard
from .progress import MAIN, Progress
from .session import Session, StoppedError
from .settings import SNAPSHOT, Existing, MysqlSettings, OnDdl, SafeMode
from .units import Unit, left_of, snapshot_of, units_of
from .workers import Workers, keys_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pymysql.cursors import Cursor

logger = logging.getLogger(__name__)

SAFE: Final = 300.0
"""Seconds for which rows are expected that are there already, in safe mode `auto`."""
SURE: Final = frozenset({EventType.CREATE, EventType.ALTER, EventType.ERASE, EventType.CINDEX, EventType.DINDEX})
"""Statements that change the definition of what they name, if they are about one table."""


Part = Unit | Change
"""Changes of rows, or a DDL to run."""


class MysqlTarget:
    """See `Target`."""

    trouble = ""
    keeps_place = True
    takes_transactions = True

    def __init__(self, output: Output, database: Database) -> None:
        """Make it, without connecting."""
        settings = output.settings
        assert isinstance(settings, MysqlSettings)
        self._output = output
        self._settings = settings
        self._database = database
        self._routes = routes_of(output)
        self._decoder = EnvelopeDecoder()
        self._progress = Progress(output, database)
        self._guard = LoopGuard(self._progress.job, settings.channel, settings.progress)
        self._tables = Tables(is_checked=True, admit=self._admit if settings.start == SNAPSHOT else None)
        self._main: Session | None = None
        self._workers: Workers | None = None
        self._abandoned = threading.Event()
        self._is_open = False  # the main session has a part of a transaction
        self._safe_until = 0.0  # monotonic
        self._identity = ""  # of the target, as positions name a source
        self._schemas: frozenset[str] = frozenset()  # that the target had when it was opened

    @property
    def is_ahead(self) -> bool:
        """See `Target.is_ahead`; also while it is not open, and that is unknown."""
        return self._workers is None or self._progress.is_ahead

    @property
    def statistics(self) -> Mapping[str, float]:
        """See `Target.statistics`."""
        return {"returned": self._guard.returned} if self._settings.channel is not None else {}

    # --- the calls of a delivery

    def open(self, memory: str, moved: str, epoch: int) -> Place | None:
        """See `Target.open`."""
        self._abandoned.clear()
        self._tables.forget()
        self._is_open = False
        with self._meaning():
            self._main = main = self._connect(MAIN)
            cursor = main.cursor
            cursor.execute("SHOW GLOBAL VARIABLES WHERE Variable_name IN ('server_uuid', 'server_id')")
            found = dict(cursor.fetchall())
            self._identity = str(found.get("server_uuid", found["server_id"]))
            cursor.execute("SELECT schema_name FROM information_schema.schemata")
            self._schemas = frozenset(name for (name,) in cursor.fetchall())
            place = self._progress.open(cursor, memory, moved, epoch)
            self._guard.open(cursor, self._database, self._identity)
            main.commit()
            if place is None and self._settings.start == SNAPSHOT:
                self._create_missing()
        settings = self._settings
        self._workers = Workers(
            settings.workers, self._connect_worker, self._progress, in_order=settings.preserve_order
        )
        if place is None:
            self._expect_rows()
        return place

    def _create_missing(self) -> None:
        """Make the tables that the target lacks, before the first of them is filled."""
        instance = self._output.instance
        if instance is None:
            return
        with examine(instance) as source:
            passing = instance.table_filter(), TableFilter(self._settings.filter)
            tables = [it for it in source.tables() if all(one.accepts(*it) for one in passing)]
            for schema, table in Creation(self._database, self._routes, source.definition).create(tables, self._go_on):
                self._schemas |= {schema}
                logger.info("%s has made %s.%s on the target", self._output, schema, table)

    def _go_on(self) -> None:
        if self._abandoned.is_set():
            raise DeliveryError("it was stopped")

    def prepare(self, batch: Batch) -> Prepared:
        """See `Target.prepare`."""
        batch = self._routes.rewrite(batch)
        if batch.snapshot:
            unit = snapshot_of(batch, self._decoder, self._guard)
            return Prepared(batch, [unit], unit.changes.num_rows, len(unit.data))
        found, skipped = without(batch, self._find_refused, partial(may_skip, self._settings))
        data = b"".join(found.slices)
        statements = outline(data).statements
        if self._settings.ddl is OnDdl.APPLY and statements:
            if found.entries > 1:  # so that it is known where the stream is before it, and after it
                raise SplitError(statements[0][0] or 1)
            data = self._routes.move_statement(data)
            (change, *_) = changes = decode_changes(data)
            # A database that is dropped is not there: else it was refused.
            if _drops(change) or self._guard.owns(change.schema, change.table):
                return Prepared(batch, [], 0, len(data), skipped)
            return Prepared(batch, changes, 1, len(data), skipped, is_alone=True)
        units = list(units_of(found, data, self._decoder, self._guard))
        return Prepared(batch, units, sum(it.changes.num_rows for it in units), len(data), skipped)

    def send(self, batches: Sequence[Prepared], place: Place | None) -> None:
        """See `Target.send`. What ends inside a transaction stays in the open one of the main session."""
        if self._main is None:
            raise DeliveryError("it is not open")
        self._check_source(batches)
        with self._meaning():
            for some, at in _by_server(batches, place):
                if any(it.batch.snapshot for it in some):
                    self._expect_rows()
                parts: list[Part] = [part for it in some for part in it.content]
                if len(parts) == 1 and isinstance(parts[0], Change):  # a DDL comes by itself
                    self._apply_statement(self._main, parts[0], at)
                else:
                    self._apply(self._main, [it for it in parts if isinstance(it, Unit)], at, self._mode())

    def _apply(self, main: Session, units: Sequence[Unit], place: Place | None, mode: SafeMode) -> None:
        """Apply units, at the same time if all transactions are whole; the last one may go on."""
        if not self._is_open:
            self._tables.look(main.cursor)
        left = list(left_of(units, self._progress, self._decoder))
        end = max((number for number, it in enumerate(left, 1) if it.is_whole), default=0)
        whole, workers = left[:end], self._workers
        assert workers is not None
        if len(workers) > 1 and len(whole) > 1 and all(it.is_free for it in whole):
            keys = keys_of(whole, self._tables, main.cursor, is_safe=mode is SafeMode.ALWAYS)
            self._progress.check(main.cursor)  # tables may have been admitted
            main.commit()
            workers.apply(whole, keys, mode)
            whole = []

        is_again = False

        def work(is_safe: bool) -> None:
            nonlocal is_again
            if is_again:
                self._tables.forget()  # those that were admitted are not any more: it was rolled back
            is_again = True
            main.write(whole, is_safe=is_safe)
            self._progress.move(main.cursor, place)

        if self._is_open and whole:
            work(is_safe=True)
            main.commit()
            self._progress.settle()
        elif any(it.is_whole and not it.is_empty for it in units):
            main.transact(work, mode if all(it.is_free for it in whole) else SafeMode.ALWAYS)
            self._progress.settle()
        main.write(left[end:], is_safe=True)
        self._is_open = end < len(left) or (self._is_open and not whole)

    def memory_before(self, batches: Sequence[Prepared]) -> str | None:
        """See `Target.memory_before`: nothing."""
        del batches
        return None

    def memory_after(self, prepared: Prepared) -> str:
        """See `Target.memory_after`."""
        del prepared
        return memory_of(self._progress.moved)

    def idle(self) -> None:
        """See `Target.idle`: nothing is due."""

    def abandon(self) -> None:
        """See `Target.abandon`."""
        self._abandoned.set()
        if self._main is not None:
            self._main.shutdown()
        if self._workers is not None:
            self._workers.abandon()

    def losses(self) -> list[str]:
        """See `Target.losses`: nothing is asked again."""
        return []

    def close(self) -> None:
        """See `Target.close`."""
        main, self._main = self._main, None
        workers, self._workers = self._workers, None
        if workers is not None:
            workers.close()
        if main is not None:
            main.close()

    # --- sessions

    def _connect(self, number: int) -> Session:
        begin = partial(self._guard.write, session=number)
        return Session(self._database, self._output.time_zone, self._tables, begin)

    def _connect_worker(self, number: int) -> Session:
        session = self._connect(number)
        if not self._progress.lock(session.cursor, number):
            session.close()
            raise DeliveryError(f"another session applies for this output as number {number} at {self._database}")
        return session

    def _mode(self) -> SafeMode:
        """Say how to write now."""
        expects = time.monotonic() < self._safe_until or self._settings.existing is Existing.MERGE
        return SafeMode.ALWAYS if expects and self._settings.safe_mode is SafeMode.AUTO else self._settings.safe_mode

    def _expect_rows(self) -> None:
        """Expect rows of changes that come later: of a snapshot, or because nobody knows what the target has."""
        self._safe_until = time.monotonic() + SAFE

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
            if is_ddl and (self._is_elsewhere(change) or self._guard.owns(change.schema, change.table)):
                continue
            why = self._routes.refusal(change) if is_ddl and self._settings.ddl is OnDdl.APPLY else ""
            if is_ddl and self._settings.ddl is OnDdl.APPLY and not why and not _drops(change):
                continue
            shown = change.sql[:LONGEST_SHOWN]
            if not is_ddl:
                text = (
                    f"a change was logged as a statement, without its rows: {shown}. Set binlog_format = ROW at the"
                    f" source, make the table equal, then set sluice.output.{self._output.name}.onRefused = skip until"
                    " it has passed"
                )
            elif why:
                text = (
                    f"a DDL cannot be run on the target as it is: {shown}: {why}. Run what it means there yourself, and"
                    f" pass over it: `sluice skip {self._output.destination} {self._output.client_id} POSITION`"
                )
            elif self._settings.ddl is OnDdl.APPLY:
                text = (
                    f"a DDL is refused: {shown}. No filter of tables says whether the target's database is meant: drop"
                    " it there yourself if it is, and pass over the statement: `sluice skip"
                    f" {self._output.destination} {self._output.client_id} POSITION`"
                )
            else:
                text = (
                    f"a DDL is refused: {shown}. Set sluice.output.{self._output.name}.ddl = apply to run such"
                    " statements on the target; or run it there yourself, and pass over it: `sluice skip"
                    f" {self._output.destination} {self._output.client_id} POSITION`"
                )
            return RefusedError(text, number, change.schema, change.table)
        return found

    def _is_elsewhere(self, change: Change) -> bool:
        """Whether a DDL makes a database, or is about one that the target does not have: no filter of tables knows."""
        found = classify(change.sql, change.ddl_schema).changes
        if not found or any(it.table is not None for it in found):
            return False
        return creates_database(change.sql) or not any(it.schema is None or it.schema in self._schemas for it in found)

    def _check_source(self, batches: Sequence[Prepared]) -> None:
        if any(self._identity in servers_of(it.batch) for it in batches):
            raise RejectedError(
                f"the target {self._database} is the source itself, by its identity {self._identity}: name another"
                " server. If these are two MariaDB servers with the same server_id, give one of them another one: SET"
                " GLOBAL server_id"
            )

    def _admit(self, cursor: "Cursor", name: tuple[str, str]) -> None:
        """Note that a table is filled, if it has no rows yet, or these may be there. Raises TargetError."""
        table, shown = quote_table(*name), ".".join(name)
        tables = self._progress.table("_tables")
        is_new = cursor.execute(
            f"INSERT IGNORE INTO {tables} VALUES (%s, %s, %s)",  # noqa: S608
            (self._progress.job, *name),
        )
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

    def _apply_statement(self, main: Session, change: Change, place: Place | None) -> None:
        """Run a DDL, unless it was done before; see the head of the module."""
        name = hashlib.sha256(f"{change.ddl_schema}\0{change.sql}".encode()).hexdigest()
        before = digest(main.cursor, change.sql, change.ddl_schema)
        noted = self._progress.begun
        if noted[0] == name:
            statement = classify(change.sql, change.ddl_schema)
            types = {it.event_type for it in statement.changes}
            is_sure = types <= SURE and len(statement.tables) == 1 and "exchange" not in change.sql.lower()
            if not is_sure and types != {EventType.TRUNCATE}:
                raise RejectedError(
                    "it is not known whether a statement was done when the output ended in the middle of it:"
                    f" {change.sql[:LONGEST_SHOWN]}. Compare its tables at the source and on the"
                    " target, and finish it there yourself; then go on after it: `sluice seek"
                    f" {self._output.destination} {self._output.client_id} POSITION`"
                )
        is_done = noted[0] == name and noted[1] != before
        if not is_done and not self._is_there(main.cursor, change):
            self._progress.note_statement(main.cursor, name, before)
            main.commit()
            self._tables.forget()
            define(main.cursor, change.ddl_schema, change.sql, "the source")
            self._schemas |= {change.schema}
        self._progress.move(main.cursor, place)
        main.commit()
        self._progress.settle()

    def _is_there(self, cursor: "Cursor", change: Change) -> bool:
        """Whether a DDL creates a database that the target has."""
        if not creates_database(change.sql):
            return False
        (created,) = classify(change.sql, change.ddl_schema).changes
        return bool(
            cursor.execute("SELECT 1 FROM information_schema.schemata WHERE schema_name = %s", (created.schema,))
        )

    @contextmanager
    def _meaning(self) -> "Iterator[None]":
        """Say of an error whether it may pass by itself."""
        try:
            yield
        except StoppedError:
            raise DeliveryError("it was stopped") from None
        except (SourceError, pymysql.MySQLError, OSError) as error:
            text = str(error) if isinstance(error, SourceError) else f"{self._database}: {reason(error)}"
            if self._abandoned.is_set() or is_passing(error):
                raise DeliveryError("it was stopped" if self._abandoned.is_set() else text) from error
            raise RejectedError(text) from error
        except TargetError as error:
            raise RejectedError(str(error), is_change=isinstance(error, RefusedRowError)) from error


def _drops(change: Change) -> bool:
    """Whether a DDL drops a database."""
    return is_of_database(change.sql) and not creates_database(change.sql)


def _by_server(batches: Sequence[Prepared], place: Place | None) -> "Iterator[tuple[list[Prepared], Place | None]]":
    """Give batches with the place after them: those of one server together unless GTIDs name transactions at any.

    Before the first of another server is applied, the place says that all of the one before are.
    """
    if place is None or place.gtids:
        yield list(batches), place
        return
    groups = [list(some) for _, some in groupby(batches, lambda it: server_of(it.batch))]
    for number, some in enumerate(groups, 1):
        yield some, place if number == len(groups) else Place(some[-1].batch.to, "", place.number)
