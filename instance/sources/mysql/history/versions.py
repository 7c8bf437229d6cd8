"""What tables were at each place that the stream has passed.

It has stretches. A stretch begins with all tables at a place, and goes on with what each statement changed, as far as
the stream was followed without a gap. Within a stretch the tables of every place are known.
"""

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

from .....protocol.errors import HistoryError
from .....protocol.gtid import contains, parse_gtids
from .....protocol.position import Position
from .....store.cursor import Cursor
from ..config import BinlogConfig
from .database import HistoryDatabase, Session
from .file import FileDatabase
from .shared import SharedDatabase
from .tables import Catalog, CatalogChange

logger = logging.getLogger(__name__)

AGAIN: Final = 60.0
"""Seconds after which it is tried again to write, where it was not possible."""
_DAY: Final = 86_400.0
_LONGEST: Final = 1 << 16
"""Characters of a statement that are kept, for people."""


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
    """The history of a destination. One thread uses it; others, and other processes, have their own.

    While it cannot be used, the stream goes on without it: nothing is known then, and nothing is wrong.
    """

    def __init__(self, database: HistoryDatabase, *, writes: bool, keep: float = 0.0) -> None:
        """Use a database; it is only read without `writes`.

        `keep`: seconds for which versions are kept that are no longer the last ones of their tables; 0 for ever.
        """
        self._database = database
        self._writes = writes
        self._keep = keep
        self._last: Stretch | None = None  # the one that goes on
        self._catalog: Catalog | None = None  # None while the tables here are not known, or cannot be noted ...
        self._unnoted: Catalog | None = None  # ... and this is what they are
        self._waiting: Catalog | None = None  # what gets them where the first of the known changes is
        self._again = 0.0  # monotonic time of the next attempt
        self._upcoming: list[Version] = []  # known changes after this place, the next one last
        self._followed: Position | None = None  # up to where these are all there were
        self._noted: Position | None = None  # up to where nothing is to be noted
        self._tidied = 0.0  # when
        self._looked = 0.0  # monotonic time

    @property
    def problem(self) -> str:
        """Why the database could not be used the last time; empty if it could. Any thread may ask."""
        return self._database.problem

    def look(self) -> None:
        """Look now and then whether the database can be used, while nothing is written."""
        if time.monotonic() >= self._looked + AGAIN:
            self._looked = time.monotonic()
            with contextlib.suppress(HistoryError), self._database.reading():  # `problem` says it
                pass

    # --- where the stream is -----------------------------------------------------------------------------------------

    def open(self) -> None:
        """Connect, and keep out servers of earlier epochs."""
        with contextlib.suppress(HistoryError), self._database.reading():  # as `begin_at` will say
            pass

    def begin_at(self, catalog: Catalog, cursor: Cursor | None) -> bool:
        """Fill an empty catalogue with the tables of a place, and follow the stream from there with it.

        Returns whether they are known. If not, they are from where a later stretch begins, or `begin` says so. What is
        written goes on as the catalogue is: `Catalog.only_open`, or not.
        """
        self._catalog, self._unnoted, self._upcoming, self._followed, self._noted = None, None, [], None, None
        self._waiting = None
        try:
            stretches = self.stretches()
            self._last = stretches[-1] if stretches else None
            self._noted = self._last.until if self._last is not None else None
            found = None if cursor is None else next((it for it in reversed(stretches) if it.covers(cursor)), None)
            later = _first_after(stretches, None if cursor is None else cursor.position) if found is None else None
            versions = [] if found is None else self.versions(found)
            upcoming = [] if later is None else self.versions(later)
        except HistoryError as error:
            self._last = None
            logger.warning("nothing is known of earlier tables: %s", error)
            return False
        if later is not None and _is_only_open(upcoming) == catalog.only_open:
            self._waiting, self._followed = catalog, later.until
            self._upcoming = upcoming[::-1]
        if found is None or cursor is None:
            return False
        only_open = catalog.only_open
        for version in versions:
            if version.is_past(cursor):
                catalog.replay(version.changes)
            else:
                self._upcoming.append(version)
        self._upcoming.reverse()
        if self._writes and catalog.only_open != only_open:
            catalog.only_open = only_open
            catalog.forget_all()
            self._upcoming.clear()
            catalog.changes.clear()
            return False
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
        if followed is None or not followed.same_history(place):
            return False
        if self._waiting is not None and self._upcoming[-1].place <= place:
            self._catalog, self._waiting = self._waiting, None
            self._catalog.replay(self._upcoming.pop().changes)
            self._catalog.changes = [CatalogChange("all")]
        if self._catalog is None:
            return False
        while self._upcoming and self._upcoming[-1].place <= place:
            self._catalog.replay(self._upcoming.pop().changes)
        return place <= followed

    def cover(self, position: Position, executed: Callable[[], str]) -> None:
        """Say that the stream is followed up to a place, before a client can be given what is before that place."""
        if not self._writes:
            return
        if self._unnoted is not None and time.monotonic() >= self._again:
            self.begin(self._unnoted, position, executed())
        if self._catalog is None:
            return
        last = self._last
        if last is None or not last.since.same_history(position):
            self.begin(self._catalog, position, executed())
        elif position > last.until:
            last.until = position
            with self._giving_up():
                self._database.note_end(last.number, position)

    def pause(self, executed: str) -> None:
        """Say what is executed where the stream breaks off."""
        last = self._last
        if self._catalog is None or not self._writes or last is None:
            return
        last.until_gtids = executed
        with self._giving_up(), self._database.writing() as session:
            _set_end(session, last)

    def begin(self, catalog: Catalog, place: Position, gtids: str) -> None:
        """Begin a stretch with the tables of a catalogue, and follow the stream from here with it."""
        self._catalog, self._unnoted, self._followed = catalog, None, None
        if not self._writes:
            return
        last = Stretch(0, place, gtids, place, gtids)
        with self._giving_up():
            with self._database.writing() as session:
                self._insert_stretch(session, last, None)
                _insert(session, last.number, Version(place, gtids, "", _now(), tuple(catalog.everything())))
                if self._last is not None:
                    _set_end(session, self._last)
                self._tidy(session, last)
            self._last = last
            self._database.note_end(last.number, place)

    @contextlib.contextmanager
    def _giving_up(self) -> Iterator[None]:
        """Go on without a history when it cannot be written: it ends at the last place that it has."""
        try:
            yield
        except HistoryError as error:
            self._catalog, self._unnoted = None, self._catalog
            self._again = time.monotonic() + AGAIN
            logger.warning("changes of tables are not recorded, until the next attempt in a minute: %s", error)

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
        with self._database.writing() as session:
            self._tidy(session, last)
            _insert(session, last.number, Version(place, gtids, sql, _now(), tuple(changes)))
            last.until, last.until_gtids = max(last.until, place), gtids
            _set_end(session, last)

    # --- what was noted ----------------------------------------------------------------------------------------------

    def stretches(self) -> list[Stretch]:
        """Return the stretches in the order in which they began. Raises HistoryError."""
        with self._database.reading() as session:
            rows = [] if session is None else self._select_stretches(session)
        found = [Stretch(it[0], Position.parse(it[1]), it[2], Position.parse(it[3]), it[4]) for it in rows]
        if found and (end := self._database.end(found[-1].number)) is not None and end.same_history(found[-1].until):
            found[-1].until = max(found[-1].until, end)
        return found

    def versions(self, stretch: Stretch) -> list[Version]:
        """Return what a stretch has, in the order of the stream. Raises HistoryError."""
        with self._database.reading() as session:
            if session is None:
                return []
            places = session.execute(
                "SELECT id, place, gtids, statement, time FROM schema_places WHERE stretch = ? ORDER BY id",
                (stretch.number,),
            ).fetchall()
            changes: dict[int, list[CatalogChange]] = {number: [] for number, *_ in places}
            found = session.execute(
                "SELECT place, kind, db, tbl, body FROM schema_changes WHERE place IN"
                " (SELECT id FROM schema_places WHERE stretch = ?) ORDER BY id",
                (stretch.number,),
            )
            for number, *change in found.fetchall():
                changes[number].append(CatalogChange(*change))
        return [
            Version(Position.parse(place), gtids, sql, time_, tuple(changes[number]))
            for number, place, gtids, sql, time_ in places
        ]

    def replace(self, stretches: Sequence[tuple[Stretch, Sequence[Version]]]) -> None:
        """Put these in the place of all that is known. Raises HistoryError."""
        with self._database.writing() as session:
            numbers = [number for number, *_ in self._select_stretches(session)]
            for number in numbers:
                _drop_stretch(session, number)
            for stretch, versions in stretches:
                self._insert_stretch(session, stretch, stretch.number if stretch.number in numbers else None)
                for version in versions:
                    _insert(session, stretch.number, version)

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    # --- inside ------------------------------------------------------------------------------------------------------

    def _select_stretches(self, session: Session) -> Sequence[tuple[int, str, str, str, str]]:
        return session.execute(
            "SELECT id, since, gtids, until, until_gtids FROM schema_stretches WHERE destination = ? ORDER BY id",
            (self._database.destination,),
        ).fetchall()

    def _insert_stretch(self, session: Session, stretch: Stretch, number: int | None) -> None:
        """Insert a stretch and give it its number, a new one for None."""
        ends = str(stretch.since), stretch.gtids, str(stretch.until), stretch.until_gtids
        row = number, self._database.destination, *ends
        found = session.execute("INSERT INTO schema_stretches VALUES (?, ?, ?, ?, ?, ?)", row).lastrowid
        stretch.number = _given(found)

    def _tidy(self, session: Session, last: Stretch) -> None:
        """Once a day, drop what is older than what is kept: stretches that are over, and the beginning of the last."""
        now = _now()
        if not self._keep or now < self._tidied + _DAY:
            return
        self._tidied = now
        before = now - self._keep
        for number, *_ in self._select_stretches(session)[:-1]:
            sql = "SELECT COUNT(*) FROM schema_places WHERE stretch = ? AND time >= ?"
            ((kept,),) = session.execute(sql, (number, before)).fetchall()
            if not kept:
                _drop_stretch(session, number)
        self._fold(session, last, before)

    def _fold(self, session: Session, stretch: Stretch, before: float) -> None:
        """Let a stretch begin with its last version that was noted before a time, as were all before it."""
        old = list(takewhile(lambda it: it.time < before, self.versions(stretch)))
        if len(old) < 2:
            return
        catalog, first = Catalog(), old[-1]
        for version in old:
            catalog.replay(version.changes)
        found = session.execute("SELECT id FROM schema_places WHERE stretch = ? ORDER BY id", (stretch.number,))
        places = [number for (number,) in found.fetchall()][: len(old)]
        session.executemany("DELETE FROM schema_changes WHERE place = ?", [(it,) for it in places])
        session.executemany("DELETE FROM schema_places WHERE id = ?", [(it,) for it in places[:-1]])
        session.execute("UPDATE schema_places SET statement = '' WHERE id = ?", (places[-1],))
        _insert_changes(session, places[-1], catalog.everything())
        stretch.since, stretch.gtids = first.place, first.gtids
        since = str(first.place), first.gtids, stretch.number
        session.execute("UPDATE schema_stretches SET since = ?, gtids = ? WHERE id = ?", since)


def open_history(config: BinlogConfig, *, writes: bool, epoch: int | None = None) -> History:
    """Return the history of a destination; a server writes it in an epoch, a command in none. Raises HistoryError."""
    database: HistoryDatabase
    if config.tsdb_url is None:
        database = FileDatabase(config.history_folder, writes=writes)
    else:
        database = SharedDatabase(config, config.tsdb_url, epoch=epoch if writes else None)
    return History(database, writes=writes, keep=config.history_seconds)


def _first_after(stretches: Sequence[Stretch], place: Position | None) -> Stretch | None:
    """Return the stretch that begins next after a place."""
    found = [it for it in stretches if place is not None and it.since.same_history(place) and place < it.since]
    return min(found, key=lambda it: it.since, default=None)


def _is_only_open(versions: Sequence[Version]) -> bool | None:
    """Return the `Catalog.only_open` with which a stretch begins; None where it does not begin with all tables."""
    if not versions or not versions[0].changes or versions[0].changes[0].kind != "all":
        return None
    catalog = Catalog()
    catalog.replay(versions[0].changes[:1])
    return catalog.only_open


def _drop_stretch(session: Session, number: int) -> None:
    session.execute(
        "DELETE FROM schema_changes WHERE place IN (SELECT id FROM schema_places WHERE stretch = ?)", (number,)
    )
    session.execute("DELETE FROM schema_places WHERE stretch = ?", (number,))
    session.execute("DELETE FROM schema_stretches WHERE id = ?", (number,))


def _insert(session: Session, stretch: int, version: Version) -> None:
    row = stretch, str(version.place), version.gtids, version.sql[:_LONGEST], version.time
    found = session.execute("INSERT INTO schema_places VALUES (NULL, ?, ?, ?, ?, ?)", row).lastrowid
    _insert_changes(session, _given(found), version.changes)


def _insert_changes(session: Session, place: int, changes: Iterable[CatalogChange]) -> None:
    rows = ((place, *it) for it in changes)
    session.executemany("INSERT INTO schema_changes (place, kind, db, tbl, body) VALUES (?, ?, ?, ?, ?)", rows)


def _set_end(session: Session, stretch: Stretch) -> None:
    end = str(stretch.until), stretch.until_gtids, stretch.number
    found = session.execute("UPDATE schema_stretches SET until = ?, until_gtids = ? WHERE id = ?", end)
    if not found.rowcount:
        raise HistoryError("the history of tables was replaced meanwhile")


def _given(number: int | None) -> int:
    assert number is not None
    return number


def _now() -> float:
    return time.time()  # noqa: TID251  to be shown, and to expire
