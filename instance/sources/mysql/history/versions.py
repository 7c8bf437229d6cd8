"""What tables were at each place that the stream has passed: a database beside the cursors of a destination.

It has stretches. A stretch begins with all tables at a place, and goes on with what each statement changed, as far as
the stream was followed without a gap. Within a stretch the tables of every place are known.
"""

import contextlib
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Final

from .....protocol.errors import BadPositionError, HistoryError
from .....protocol.gtid import contains, parse_gtids
from .....protocol.position import Position
from .....store.cursor import Cursor
from ....files import make_private_folder, restrict
from .tables import Catalog, CatalogChange

logger = logging.getLogger(__name__)

NAME: Final = "schema.db"
"""The file of the database in the folder of a destination."""
FORMAT: Final = 1
_TABLES: Final = """
CREATE TABLE IF NOT EXISTS stretches (
    id INTEGER PRIMARY KEY,
    since TEXT NOT NULL,
    gtids TEXT NOT NULL,
    until TEXT NOT NULL,
    until_gtids TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS places (
    id INTEGER PRIMARY KEY,
    stretch INTEGER NOT NULL,
    place TEXT NOT NULL,
    gtids TEXT NOT NULL,
    sql TEXT NOT NULL,
    time REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS changes (
    place INTEGER NOT NULL,
    kind TEXT NOT NULL,
    db TEXT NOT NULL,
    tbl TEXT NOT NULL,
    body TEXT
);
CREATE INDEX IF NOT EXISTS changes_of_places ON changes (place);
"""
_END_SIZE: Final = 2048
"""Bytes of the file that says how far the stream was followed; a position has fewer."""
_DAY: Final = 86_400.0
_BUSY: Final = 10.0
"""Seconds that another process may keep the database locked."""


@dataclass(slots=True)
class Stretch:
    """A part of the stream in which the tables of every place are known."""

    number: int
    since: Position
    gtids: str
    """The GTID set executed at `since`, empty if unknown."""
    until: Position
    """How far the stream was followed."""
    until_gtids: str
    """The GTID set executed at the last change, or at the end of one that is over; empty if unknown."""

    def covers(self, cursor: Cursor) -> bool:
        """Whether the tables at a cursor are known. In another history the GTID sets say so."""
        position = cursor.position
        if position is not None and self.since.same_history(position):
            return self.since <= position <= self.until
        if not (cursor.gtid and self.gtids and self.until_gtids):
            return False
        gtids = parse_gtids(cursor.gtid)
        return contains(gtids, parse_gtids(self.gtids)) and contains(parse_gtids(self.until_gtids), gtids)


@dataclass(frozen=True, slots=True)
class Version:
    """What changed at a place: it holds from there on."""

    place: Position
    gtids: str
    sql: str
    """The statement; empty for what the source was asked."""
    time: float
    """When it was noted, Unix time."""
    changes: tuple[CatalogChange, ...]

    def is_past(self, cursor: Cursor) -> bool:
        """Whether a cursor has it behind itself. In another history the GTID sets say so."""
        position = cursor.position
        if position is not None and position.same_history(self.place):
            return self.place <= position
        return bool(self.gtids and cursor.gtid) and contains(parse_gtids(cursor.gtid), parse_gtids(self.gtids))


class History:
    """The history of a destination. One thread uses it; others, and other processes, have their own of the same file.

    While it cannot be used, the stream goes on without it: nothing is known then, and nothing is wrong.
    """

    def __init__(self, folder: Path, *, writes: bool, keep: float = 0.0) -> None:
        """Use the database in `folder`; it is made with the first stretch, or only read without `writes`.

        `keep`: seconds for which versions are kept that are no longer the last ones of their tables; 0 for ever.
        """
        self._path = folder / NAME
        self._writes = writes
        self._keep = keep
        self._database: sqlite3.Connection | None = None
        self._end_file: int | None = None
        self._last: Stretch | None = None  # the one that goes on
        self._catalog: Catalog | None = None  # None while the tables here are not known
        self._upcoming: list[Version] = []  # known changes after this place, the next one last
        self._followed: Position | None = None  # up to where these are all there were
        self._noted: Position | None = None  # up to where nothing is to be noted
        self._tidied = 0.0  # when

    # --- where the stream is -----------------------------------------------------------------------------------------

    def begin_at(self, catalog: Catalog, cursor: Cursor | None) -> bool:
        """Fill an empty catalogue with the tables of a place, and follow the stream from there with it.

        Returns whether they are known. If not, `begin` says when they are.
        """
        self._catalog, self._upcoming, self._followed, self._noted = None, [], None, None
        try:
            stretches = self.stretches()
            self._last = stretches[-1] if stretches else None
            self._noted = self._last.until if self._last is not None else None
            found = None if cursor is None else next((it for it in reversed(stretches) if it.covers(cursor)), None)
            versions = [] if found is None else self.versions(found)
        except HistoryError as error:
            self._last = None
            logger.warning("nothing is known of earlier tables: %s", error)
            return False
        if found is None or cursor is None:
            return False
        for version in versions:
            if version.is_past(cursor):
                catalog.replay(version.changes)
            else:
                self._upcoming.append(version)
        self._upcoming.reverse()
        catalog.changes.clear()
        self._catalog, self._followed = catalog, found.until
        return True

    def end_before(self, cursor: Cursor) -> Position | None:
        """Return how far the stream was followed, where a cursor is after that in the same history; else None."""
        with contextlib.suppress(HistoryError):  # as `begin_at` will say
            stretches = self.stretches()
            position = cursor.position
            if position is not None and stretches and not any(it.covers(cursor) for it in stretches):
                end = stretches[-1].until
                return end if end.same_history(position) and end < position else None
        return None

    def replay(self, place: Position) -> bool:
        """Bring the catalogue to a later place by what was noted; returns whether that is all there was."""
        followed = self._followed
        if followed is None or self._catalog is None or not followed.same_history(place):
            return False
        while self._upcoming and self._upcoming[-1].place <= place:
            self._catalog.replay(self._upcoming.pop().changes)
        return place <= followed

    def cover(self, position: Position, executed: Callable[[], str]) -> None:
        """Say that the stream is followed up to a place, before a client can be given what is before that place."""
        if self._catalog is None or not self._writes:
            return
        last = self._last
        if last is None or not last.since.same_history(position):
            self.begin(self._catalog, position, executed())
        elif position > last.until:
            last.until = position
            with self._giving_up():
                self._write_end(last)

    def pause(self, executed: str) -> None:
        """Say what is executed where the stream breaks off."""
        last = self._last
        if self._catalog is None or not self._writes or last is None:
            return
        last.until_gtids = executed
        with self._giving_up(), self._transaction() as database:
            _set_end(database, last)

    def begin(self, catalog: Catalog, place: Position, gtids: str) -> None:
        """Begin a stretch with the tables of a catalogue, and follow the stream from here with it."""
        self._catalog, self._followed = catalog, None
        if not self._writes:
            return
        with self._giving_up():
            with self._transaction() as database:
                row = str(place), gtids, str(place), gtids
                number = database.execute("INSERT INTO stretches VALUES (NULL, ?, ?, ?, ?)", row).lastrowid
                assert number is not None
                _insert(database, number, Version(place, gtids, "", _now(), tuple(catalog.everything())))
                if self._last is not None:
                    _set_end(database, self._last)
                last = Stretch(number, place, gtids, place, gtids)
                self._tidy(database, last)
            self._last = last
            self._write_end(last)

    @contextlib.contextmanager
    def _giving_up(self) -> Iterator[None]:
        """Go on without a history when it cannot be written: it ends at the last place that it has."""
        try:
            yield
        except HistoryError as error:
            self._catalog = None
            logger.warning("what becomes of tables is not noted until the next connection to the source: %s", error)

    def add(self, place: Position, gtids: str, sql: str, changes: Sequence[CatalogChange]) -> None:
        """Note what a statement changed, or without one what the source was asked. When it returns, that is durable.

        Raises HistoryError when it is not: then nothing after the statement may be given to a client.
        """
        last, noted = self._last, self._noted
        if self._catalog is None or not self._writes or not changes:
            return
        if last is None or not last.since.same_history(place):
            self.begin(self._catalog, place, gtids)
            return
        if noted is not None and noted.same_history(place) and (place <= noted if sql else place < noted):
            return
        with self._transaction() as database:
            self._tidy(database, last)
            _insert(database, last.number, Version(place, gtids, sql, _now(), tuple(changes)))
            last.until, last.until_gtids = max(last.until, place), gtids
            _set_end(database, last)

    # --- what was noted ----------------------------------------------------------------------------------------------

    def stretches(self) -> list[Stretch]:
        """Return the stretches in the order in which they began. Raises HistoryError."""
        with self._reading() as database:
            rows = [] if database is None else database.execute("SELECT * FROM stretches ORDER BY id").fetchall()
        found = [Stretch(it[0], Position.parse(it[1]), it[2], Position.parse(it[3]), it[4]) for it in rows]
        if found and (end := self._read_end(found[-1].number)) is not None and end.same_history(found[-1].until):
            found[-1].until = max(found[-1].until, end)
        return found

    def versions(self, stretch: Stretch) -> list[Version]:
        """Return what a stretch has, in the order of the stream. Raises HistoryError."""
        with self._reading() as database:
            if database is None:
                return []
            places = database.execute(
                "SELECT * FROM places WHERE stretch = ? ORDER BY id", (stretch.number,)
            ).fetchall()
            changes: dict[int, list[CatalogChange]] = {number: [] for number, *_ in places}
            found = database.execute(
                "SELECT place, kind, db, tbl, body FROM changes WHERE place IN"
                " (SELECT id FROM places WHERE stretch = ?) ORDER BY rowid",
                (stretch.number,),
            )
            for number, *change in found:
                changes[number].append(CatalogChange(*change))
        return [
            Version(Position.parse(place), gtids, sql, time_, tuple(changes[number]))
            for number, _, place, gtids, sql, time_ in places
        ]

    def replace(self, stretches: Sequence[tuple[Stretch, Sequence[Version]]]) -> None:
        """Put these in the place of all that is known. Raises HistoryError."""
        with self._transaction() as database:
            database.execute("DELETE FROM stretches")
            database.execute("DELETE FROM places")
            database.execute("DELETE FROM changes")
            for stretch, versions in stretches:
                ends = str(stretch.since), stretch.gtids, str(stretch.until), stretch.until_gtids
                database.execute("INSERT INTO stretches VALUES (?, ?, ?, ?, ?)", (stretch.number, *ends))
                for version in versions:
                    _insert(database, stretch.number, version)

    def close(self) -> None:
        """Close the files."""
        if self._database is not None:
            self._database.close()
            self._database = None
        if self._end_file is not None:
            os.close(self._end_file)
            self._end_file = None

    # --- inside ------------------------------------------------------------------------------------------------------

    def _tidy(self, database: sqlite3.Connection, last: Stretch) -> None:
        """Once a day, drop what is older than what is kept: stretches that are over, and the beginning of the last."""
        now = _now()
        if not self._keep or now < self._tidied + _DAY:
            return
        self._tidied = now
        before = now - self._keep
        over = "SELECT id FROM stretches WHERE id < (SELECT MAX(id) FROM stretches)"
        database.execute(
            f"DELETE FROM stretches WHERE id IN ({over}) AND id NOT IN (SELECT stretch FROM places WHERE time >= ?)",  # noqa: S608
            (before,),
        )
        database.execute("DELETE FROM places WHERE stretch NOT IN (SELECT id FROM stretches)")
        self._fold(database, last, before)
        database.execute("DELETE FROM changes WHERE place NOT IN (SELECT id FROM places)")

    def _fold(self, database: sqlite3.Connection, stretch: Stretch, before: float) -> None:
        """Let a stretch begin with its last version that was noted before a time, as were all before it."""
        old = list(takewhile(lambda it: it.time < before, self.versions(stretch)))
        if len(old) < 2:
            return
        catalog, first = Catalog(), old[-1]
        for version in old:
            catalog.replay(version.changes)
        found = database.execute("SELECT id FROM places WHERE stretch = ? ORDER BY id", (stretch.number,)).fetchall()
        (number,) = found[len(old) - 1]
        database.execute("DELETE FROM places WHERE stretch = ? AND id < ?", (stretch.number, number))
        database.execute("UPDATE places SET sql = '' WHERE id = ?", (number,))
        database.execute("DELETE FROM changes WHERE place = ?", (number,))
        _insert_changes(database, number, catalog.everything())
        stretch.since, stretch.gtids = first.place, first.gtids
        since = str(first.place), first.gtids, stretch.number
        database.execute("UPDATE stretches SET since = ?, gtids = ? WHERE id = ?", since)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._reading(make=True) as database:
            assert database is not None
            with database:
                database.execute("BEGIN IMMEDIATE")
                yield database

    @contextlib.contextmanager
    def _reading(self, *, make: bool = False) -> Iterator[sqlite3.Connection | None]:
        """Give the database, None if there is none."""
        try:
            if self._database is None and (make or self._path.exists()):
                self._database = self._open()
            yield self._database
        except (sqlite3.Error, OSError) as error:
            raise HistoryError(f"the history of tables in {self._path} cannot be used: {error}") from error

    def _open(self) -> sqlite3.Connection:
        if self._writes:
            make_private_folder(self._path.parent)
            restrict(self._path)
            self._path.touch(0o600)
        mode = "rw" if self._writes else "ro"
        database = sqlite3.connect(
            f"{self._path.absolute().as_uri()}?mode={mode}",
            _BUSY,
            uri=True,
            isolation_level=None,
            check_same_thread=False,
        )
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if version not in (0, FORMAT):
            database.close()
            raise HistoryError(
                f"{self._path} is of a later version of Sluice ({version}): move it away, and the history begins anew"
            )
        if self._writes:
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = FULL")
            database.executescript(_TABLES)
            database.execute(f"PRAGMA user_version = {FORMAT}")
        return database

    def _write_end(self, last: Stretch) -> None:
        """One write of a page: a process that is killed leaves the former text or this one."""
        try:
            if self._end_file is None:
                self._end_file = os.open(self._end_path, os.O_RDWR | os.O_CREAT, 0o600)
            os.pwrite(self._end_file, f"{last.number} {last.until}".encode().ljust(_END_SIZE), 0)
        except OSError as error:
            raise HistoryError(f"{self._end_path} cannot be written: {error}") from error

    def _read_end(self, number: int) -> Position | None:
        with contextlib.suppress(FileNotFoundError, ValueError, BadPositionError):
            stretch, place = self._end_path.read_text("ascii").split()
            return Position.parse(place) if int(stretch) == number else None
        return None

    @property
    def _end_path(self) -> Path:
        return self._path.with_suffix(".end")


def _insert(database: sqlite3.Connection, stretch: int, version: Version) -> None:
    row = stretch, str(version.place), version.gtids, version.sql, version.time
    number = database.execute("INSERT INTO places VALUES (NULL, ?, ?, ?, ?, ?)", row).lastrowid
    assert number is not None
    _insert_changes(database, number, version.changes)


def _insert_changes(database: sqlite3.Connection, place: int, changes: Iterable[CatalogChange]) -> None:
    database.executemany("INSERT INTO changes VALUES (?, ?, ?, ?, ?)", ((place, *it) for it in changes))


def _set_end(database: sqlite3.Connection, stretch: Stretch) -> None:
    end = str(stretch.until), stretch.until_gtids, stretch.number
    database.execute("UPDATE stretches SET until = ?, until_gtids = ? WHERE id = ?", end)


def _now() -> float:
    return time.time()  # noqa: TID251  to be shown, and to expire
