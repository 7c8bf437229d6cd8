"""Where a destination begins to read: a saved cursor, else where the configuration says, else the current end."""

import itertools
import logging
import re
import struct
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, Self

from ....protocol.errors import (
    BadPositionError,
    DecodeError,
    PurgedError,
    SluiceError,
    SourceChangedError,
    SourceError,
)
from ....protocol.gtid import GtidSet, MariadbGtidSet, MysqlGtidSet, Transactions, common, contains, missing
from ....protocol.gtid_text import mariadb_text
from ....protocol.position import Position, file_number
from ....store.cursor import Cursor
from ....store.ring import Ring
from ...source import Expiry
from ..starts import find_first
from .config import BinlogConfig, MysqlConfig
from .connection import Connection, ServerFacts, optional_text, text
from .decode.decoder import Decoder, Status
from .decode.events import BinlogEvent, Event
from .decode.gtid_event import mysql_gtid
from .dump import FIRST_EVENT, MAX_DUMP_OFFSET, Dump, FileStart, GtidStart, Replica
from .xa import prepared_xid, resolved_xid

logger = logging.getLogger(__name__)

MOST_FOLLOWED: Final = 1 << 30
"""Bytes of binlog that are read for their statements alone; what is farther on is asked of the source."""
MOST_ENDS: Final = 10_000
"""Files of which it is remembered where they end."""
_STOP_SIZE: Final = 23
"""Bytes of a STOP event: there is room for no other one before the end of a file."""
_BINLOG_FILE: Final = re.compile(r"\.[0-9]{1,18}\Z")


@dataclass(frozen=True, slots=True)
class Start:
    """Where the dump begins, and from which place on its entries are wanted."""

    dump: FileStart | GtidStart
    position: Position | None = None
    """Entries before it are not wanted; None: the beginning of the dump."""
    gtids: GtidSet | None = None
    """The GTID set executed before the place; None if unknown."""
    cursor: Cursor | None = None
    """The place as it was saved: it may be of another source, or lack what this one has."""
    read: Position | None = None
    """Up to where this source was read before, of a dump that goes on there by GTIDs."""
    former: Position | None = None
    """What the place is called as the end of the file before, which the source has purged."""


def resume(position: Position, gtids: GtidSet | None = None) -> Start:
    """Start at a position of this same source: the dump begins with its transaction, which has its table maps."""
    offset = position.begin if position.begin <= MAX_DUMP_OFFSET else FIRST_EVENT
    return Start(FileStart(position.file, offset), position, gtids)


class Ends:
    """Where files end that were read to their ends: there each next one begins. Any thread may ask.

    What a position names is the same for all destinations, so there is one for the process.
    """

    def __init__(self) -> None:
        self._ends: dict[tuple[str, str, int], tuple[int, Position]] = {}

    def add(self, end: Position, following: Position) -> None:
        """Remember where a file ends, and the next one begins: the files follow each other."""
        if len(self._ends) >= MOST_ENDS:
            self._ends.pop(next(iter(self._ends)), None)
        self._ends[end.source, *end.file_key] = end.begin, following

    def following(self, position: Position) -> Position | None:
        """Return where the next file begins, if nothing comes after a position in its own."""
        begin, following = self._ends.get((position.source, *position.file_key), (0, None))
        return following if position.n == 0 and position.begin >= begin else None


ENDS: Final = Ends()


def or_seek(destination: str) -> str:
    """Return what to do if another server cannot be read from where a destination is, as the end of a sentence."""
    return (
        f"or configure it as the only address of {destination}, start that again, and move each client to a position"
        f" on it: `sluice seek {destination} CLIENT FILE:OFFSET`"
    )


def before_stop(position: Position) -> Position:
    """Return the place from which on a file that ends at a position may have a STOP event, and nothing else."""
    return replace(position, begin=position.begin - _STOP_SIZE)


class Binlog(Protocol):
    """What has the files of a binlog: a session on the server that writes them, or a folder."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    @property
    def name(self) -> str:
        """What it is called in errors."""

    @property
    def facts(self) -> ServerFacts:
        """What is known of the server that wrote them."""

    def binlog_files(self) -> list[tuple[str, int]]:
        """Return the files that are there, oldest first, each with its size: one at least. Raises SourceError."""

    def shutdown(self) -> None:
        """Interrupt, from any thread, a call that waits: it fails with SourceError."""


class Packets(Protocol):
    """The packets of a dump."""

    @property
    def name(self) -> str:
        """Who sends them."""

    def receive_into(self, space: memoryview) -> int:
        """Wait for bytes and return their number, 0 when the dump has ended. Raises SourceError."""

    def shutdown(self) -> None:
        """End the dump from any thread."""

    def close(self) -> None:
        """Release what it holds."""


class PlaceFinder(ABC):
    """Finds places in a binlog.

    Every method raises SourceError if the source refuses, PurgedError if it no longer has the place, and
    SourceChangedError if the place does not belong to this source or to its present history.
    """

    def __init__(self, binlog: Binlog, config: BinlogConfig, stopping: threading.Event | None = None) -> None:
        """Look in this binlog; a search ends with a SourceError when `stopping` is set."""
        self._binlog = binlog
        self._stopping = stopping
        self._config = config
        self._facts = binlog.facts
        self._created: dict[str, int] = {}

    # --- what only a kind of source knows

    @abstractmethod
    def end(self) -> Start:
        """Start at the source's current end."""

    @abstractmethod
    def end_position(self, known: Iterable[tuple[str, int]]) -> Position:
        """Return the source's current end. ``known`` are files with their time of creation; others are looked at."""

    @abstractmethod
    def expiries(self, places: Sequence[Position]) -> list[Expiry | None]:
        """See `sluice.instance.source.Parser.expiries`."""

    @abstractmethod
    def _by_default(self) -> Start:
        """Start where nothing is configured."""

    @abstractmethod
    def _executed(self, file: str, offset: int) -> GtidSet | None:
        """Return what is executed at a place between transactions; None if the source has no GTIDs."""

    @abstractmethod
    def _executed_now(self) -> GtidSet:
        """Return all that the source has executed."""

    @abstractmethod
    def _after(self, gtids: GtidSet, executed: GtidSet | None = None) -> Start:
        """Start after the transactions of a set, if the source still has those that are not in it.

        ``executed`` is given for a set of another source; then nothing that is not in the set is left out.
        """

    @abstractmethod
    def _dump(self, file: str, offset: int) -> Packets:
        """Begin a dump that ends where the binlog ends now."""

    # --- what is the same for all

    def distances(self, places: Sequence[Position], to: Position) -> list[int | None]:
        """See `sluice.instance.source.Parser.distances`."""
        files = self._binlog.binlog_files()
        starts = itertools.accumulate((size for _, size in files[:-1]), initial=0)
        begins = {name: start for (name, _), start in zip(files, starts, strict=True)}
        if to.source != self._facts.source or to.file not in begins:
            return [None] * len(places)
        end = begins[to.file] + to.begin
        return [
            max(0, end - begins[it.file] - it.begin) if it.is_comparable(to) and it.file in begins else None
            for it in places
        ]

    def find(self, saved: Cursor | None) -> Start:
        """Find the start for a saved cursor; without one the configuration decides."""
        return self._configured() if saved is None else replace(self._find(saved), cursor=saved)

    def _find(self, saved: Cursor) -> Start:
        if saved.position is None:
            return self._at_event(saved)
        try:
            gtids = self._gtids(saved.gtid) if saved.gtid else None
        except BadPositionError as error:
            raise SourceChangedError(f"the position {saved.position} is of another kind of source: {error}") from error
        if saved.position.source != self._facts.source:
            return self._by_gtid(saved.position, gtids)
        try:
            self.check(saved.position)
        except PurgedError:
            if (following := self._at_next_file(saved.position, gtids)) is None:
                raise
            return following
        if gtids is None and self._config.gtid_on:  # the headers are to have it
            gtids = self._executed(saved.position.file, saved.position.begin)
        return resume(saved.position, gtids)

    def find_first(self, places: Sequence[Cursor | None]) -> tuple[Start | None, dict[Cursor | None, SluiceError]]:
        """See `sluice.instance.sources.starts.find_first`."""

        def find(place: Cursor | None) -> Start:
            found = self.find(place)
            if place is not None and place.position is not None and len(places) > 1 and found.former is None:
                self.check_history(place.position)
            return found

        return find_first(places, find, lambda: self._at_boundary(self._binlog.binlog_files()[0][0], FIRST_EVENT))

    def position_of(self, file: str, offset: int, known: Iterable[tuple[str, int]] = ()) -> Position:
        """Return the position of a place between two transactions; ``known`` is as for `end_position`."""
        # The newest of that name: RESET MASTER begins with the same names again.
        created = next((time for name, time in reversed(list(known)) if name == file), None)
        return Position(self._facts.source, file, self._created_at(file) if created is None else created, offset, 0)

    def check(self, position: Position) -> None:
        """Check that the source still has the place of a position; the decoder checks its `created`."""
        self._check_file(position.file, position.begin)

    def go_on_at(self, start: Start) -> Start:
        """Return a start of this source again, if it still has what follows. Raises as `find`."""
        place = start.read or start.position
        assert place is not None, "that of a slot"
        try:
            self.check(place)
            if start.position is None:  # the decoder does not look: a source that was reset counts its GTIDs anew
                self.check_history(place)
        except PurgedError:
            cursor = start.cursor
            gtids = self._gtids(cursor.gtid) if cursor is not None and cursor.position == place else None
            if (following := self._at_next_file(place, gtids)) is None:
                raise
            return following
        return start

    def _at_next_file(self, position: Position, gtids: GtidSet | None) -> Start | None:
        """Start at the begin of a file if nothing is missing before it: a purged position was where others ended.

        That is known when these were read to their ends, or by the GTIDs that are executed there. On MySQL the files
        have to follow each other for that: only then all between was written with GTIDs.
        """
        following = ENDS.following(position)
        if following is not None and following.file in self._files():
            return replace(resume(following, gtids), former=position)
        first = self._files()[0]
        follows = self._facts.mariadb or file_number(first) == position.file_number + 1
        before = self._executed(first, FIRST_EVENT) if position.n == 0 and gtids and follows else None
        if before is None or gtids is None or not _has(gtids, before):
            return None
        return replace(resume(self.position_of(first, FIRST_EVENT), gtids), former=position)

    def check_history(self, position: Position) -> None:
        """Check what `check` leaves to the decoder, for a position of this source from which nothing is decoded."""
        if position.source != self._facts.source:
            return
        created = self._created_at(position.file)
        if created != position.created:
            raise SourceChangedError(
                f"{position.file} of {self._binlog.name} was created at {created}, that of the position {position}"
                " at another time: it was reset, restored, or is another server"
            )

    def _created_at(self, file: str) -> int:
        """Return when a file was created, as its beginning says."""
        if file not in self._created:
            with closing(self._walk(file)) as walk:
                self._created[file] = next(walk)[1].created
        return self._created[file]

    def distance(self, since: Position, until: Position) -> int | None:
        """Return how many bytes lie between two places of this source; None if it has no longer all of them."""
        sizes = dict(self._binlog.binlog_files())
        if since.file not in sizes or until.file not in sizes:
            return None
        before = sum(size for file, size in sizes.items() if since.file_number <= file_number(file) < until.file_number)
        return before - since.begin + until.begin

    def between(self, decoder: Decoder, since: Position, until: Position) -> "Generator[Event]":
        """Read what lies between two places of this source, as `_walk` does; ``decoder`` knows what is executed."""
        self.check_history(since)
        executed = str(self._executed(since.file, since.begin) or "") if self._config.gtid_on else ""
        for file, _ in self._binlog.binlog_files():
            if not since.file_number <= file_number(file) <= until.file_number:
                continue
            decoder.begin(source=self._facts.source, walking=True, executed=executed)
            with closing(self._events(decoder, file, since.begin if file == since.file else FIRST_EVENT)) as events:
                for event, position in events:
                    if file == until.file and position.begin >= until.begin:
                        return
                    yield event
            executed = decoder.executed

    def prepared_before(self, place: Position) -> "Generator[dict[str, Position]]":
        """Give the XA transactions that are open at a place of this source: where each begins, by its xid.

        File after file, from that of the place to the oldest one: each time those that were prepared in it.
        """
        ended: set[str] = set()
        for file, _ in reversed(self._binlog.binlog_files()):
            if file_number(file) > place.file_number:
                continue
            logger.info("looking for prepared XA transactions in %s of %s", file, self._binlog.name)
            found: dict[str, Position] = {}
            ended_here: set[str] = set()
            with closing(self._walk(file, only_xa=True)) as walk:
                for event, position in walk:
                    if file == place.file and position.begin >= place.begin:
                        break
                    if event.type == BinlogEvent.XA_PREPARE_EVENT:
                        found[prepared_xid(event.body)] = replace(position, n=0)
                    elif event.type == BinlogEvent.QUERY_EVENT and (xid := resolved_xid(event.body)):
                        found.pop(xid, None)
                        ended_here.add(xid)
            yield {xid: begin for xid, begin in found.items() if xid and xid not in ended}
            ended |= ended_here

    def _check_file(self, file: str, offset: int) -> None:
        files = self._binlog.binlog_files()
        sizes = dict(files)
        if file not in sizes:
            first = files[0][0]
            if file_number(file) < file_number(first) and _base(file) == _base(first):
                raise purged(self._binlog, f"{file}:{offset}", first)
            raise SourceChangedError(
                f"{self._binlog.name} has no binlog file {file} (it has {first} to {files[-1][0]}):"
                " it was reset, restored, or is another server"
            )
        if offset > sizes[file]:
            raise SourceChangedError(
                f"{file} of {self._binlog.name} ends at {sizes[file]}, before the position {offset}:"
                " it was reset, restored, or is another server"
            )

    def _configured(self) -> Start:
        config = self._config
        if config.gtid_on and config.master_gtid:
            try:
                gtids = self._gtids(config.master_gtid)
            except BadPositionError as error:
                raise BadPositionError(f"canal.instance.master.gtid: {error}") from None
            return self._after(gtids)
        if config.master_journal_name:
            self._check_file(config.master_journal_name, config.master_position or FIRST_EVENT)
            if config.master_position:
                return self._at_offset(config.master_journal_name, config.master_position)
            if config.master_timestamp:
                return self._at_time(config.master_timestamp, file_number(config.master_journal_name))
            return self._at_boundary(config.master_journal_name, FIRST_EVENT)
        if config.master_timestamp:
            return self._at_time(config.master_timestamp)
        return self._by_default()

    def _by_gtid(self, position: Position, gtids: GtidSet | None, accepted: Transactions | None = None) -> Start:
        """Carry a position over from another source: possible between transactions that are all known here.

        Those that are ``accepted`` (by default what the configuration says) may be missing.
        """
        source = self._facts.source
        accepted = Transactions.parse(self._config.accepted) if accepted is None else accepted
        if position.n == 0 and gtids and self._facts.gtid:
            executed = self._executed_now()
            if contains(executed, gtids):
                return self._after(gtids, executed)
            known = common(gtids, executed)
            if type(executed) is type(gtids) and not missing(gtids, executed).without(accepted):
                return replace(self._after(known, executed), gtids=gtids)
        lacks = "if it is a replica, start again when it has caught up" if gtids else "no GTID set was saved"
        raise SourceChangedError(
            f"the position {position} is of another source: {self._binlog.name} is {source}, and it has not"
            f" executed what was executed there ({lacks})"
        )

    def is_comparable(self, place: Cursor) -> bool:
        """Whether it is of this source, or its GTIDs say whether all before it is here."""
        position = place.position
        return (position is not None and position.source == self._facts.source) or bool(place.gtid and self._facts.gtid)

    def missing(self, place: Cursor) -> Transactions:
        """Return the transactions before a saved place that this source does not have. Raises as `find`."""
        position = place.position
        if position is not None and position.source == self._facts.source:
            return Transactions()
        try:
            return missing(self._gtids(place.gtid), self._executed_now())
        except BadPositionError as error:
            raise SourceChangedError(f"the position {position} is of another kind of source: {error}") from error

    def go_on_after(self, place: Cursor, lost: Transactions) -> Start:
        """Find the start after a saved place, of this or another source, which may lack some transactions.

        Raises as `find`.
        """
        position = place.position
        if position is None or position.source == self._facts.source:
            return self.find(place)
        accepted = Transactions.parse(self._config.accepted).with_(lost)
        return self._by_gtid(position, self._gtids(place.gtid), accepted)

    def _at_event(self, cursor: Cursor) -> Start:
        """Start at the event of a cursor that Canal wrote, this event included."""
        self._check_file(cursor.journal, cursor.offset)
        for event, position in self._walk(cursor.journal):
            if event.offset < cursor.offset:
                continue
            same = (
                event.offset == cursor.offset
                and event.type in _CURSOR_EVENTS
                and _may_have(event, position, cursor.timestamp)
                and cursor.server_id in (0, event.server_id)
            )
            if same:
                return resume(position, self._gtids(cursor.gtid) if cursor.gtid else None)
            break
        raise SourceChangedError(
            f"the event of the cursor, {cursor.journal}:{cursor.offset} of server {cursor.server_id} at"
            f" {cursor.timestamp}, is not there on {self._binlog.name}: it was reset, restored,"
            " or is another server"
        )

    def _at_offset(self, file: str, offset: int) -> Start:
        """Start at an offset from the configuration, which may be inside a transaction."""
        end = 0
        with closing(self._walk(file)) as walk:
            for event, position in walk:
                if event.offset == offset:
                    return resume(position, self._executed(file, position.begin))
                end = event.offset + event.length
                if end > offset:
                    break
        if end == offset:  # there the file ends, or its ROTATE event begins
            return self._at_boundary(file, offset)
        raise SourceError(f"no event starts at {_configured_place(file, offset)}")

    def _at_boundary(self, file: str, offset: int) -> Start:
        position = Position(self._facts.source, file, self._created_at(file), offset, 0)
        return resume(position, self._executed(file, offset))

    def at_time(self, milliseconds: int) -> Cursor:
        """Return the place before the first transaction at or after a time. Raises as `find`."""
        return _place_of(self._at_time(milliseconds))

    def at_text(self, text: str) -> Cursor:
        """Return the place ``FILE:OFFSET`` between two transactions, or after those of a GTID set.

        Raises BadPositionError if it is something else, or inside a transaction, and as `find`.
        """
        file, _, number = text.rpartition(":")
        if _BINLOG_FILE.search(file) and number.isascii() and number.isdecimal() and len(number) < 19:
            return self._at_file_offset(text, file, int(number))
        try:
            gtids = self._gtids(text)
        except BadPositionError:
            gtids = None
        if not gtids:
            raise BadPositionError(f"not a position, nor FILE:OFFSET or a GTID set of the source: {text[:200]!r}")
        return _place_of(self._at_gtids(gtids, self._files()))

    def _at_file_offset(self, text: str, file: str, offset: int) -> Cursor:
        self._check_file(file, offset)
        begin = end = last = 0
        with closing(self._walk(file)) as walk:
            for event, position in walk:
                if position.begin != end:
                    begin, end = end, position.begin
                if end >= offset:
                    break
                last = event.offset + event.length
            else:
                begin, end = end, last
        if end != offset:
            raise BadPositionError(
                f"no transaction begins or ends at {text}: name {file}:{begin} or {file}:{end}, between which it is"
                if offset < end
                else f"no transaction begins or ends at {text}: the last one of the file ends at {file}:{end}"
            )
        return _place_of(self._at_boundary(file, offset))

    def _at_gtids(self, gtids: GtidSet, files: Sequence[str]) -> Start:
        """Start after the transactions of a set, which has to be all up to some place in these files."""
        for number in reversed(range(len(files))):
            before = self._executed(files[number], FIRST_EVENT)
            if before is not None and _has(gtids, before):
                return self._at_first_after(files[number:], before, gtids)
        raise PurgedError(
            f"{self._binlog.name} has no file that begins at the GTID set {gtids} or before it: its oldest one is"
            f" {files[0]}"
        )

    def name(self, start: Start) -> Start:
        """Return the start for a place of another server with its place here, after the same transactions.

        Those that it may lack, as accepted, do not count. Raises SourceError if it does not have the others up to any
        place.
        """
        is_of_other = start.cursor is not None and start.cursor.position is not None and start.position is None
        if not is_of_other or start.gtids is None:
            return start
        known = common(start.gtids, self._executed_now())
        return replace(self._at_gtids(known, self._files()), cursor=start.cursor, gtids=start.gtids)

    def _at_first_after(self, files: Sequence[str], executed: GtidSet, gtids: GtidSet) -> Start:
        """Start at the first transaction that is not in a set, if all before it are."""
        newest = dict(_newest(gtids)) if isinstance(gtids, MariadbGtidSet) else {}
        start, end = None, FIRST_EVENT
        for file in files:
            last: tuple[int, tuple[Any, int]] | None = None  # offset and GTID of a transaction that may not be whole
            with self._walking() as decoder, closing(self._events(decoder, file, FIRST_EVENT)) as walk:
                for event, position in walk:
                    gtid = gtid_of(event)
                    if gtid is None:
                        continue
                    if last is not None:
                        executed.add(*last[1])
                    last = event.offset, gtid
                    if not (gtid[1] <= newest.get(gtid[0][0], -1) if newest else gtid in gtids):
                        start = resume(position, executed)
                        break
                end = decoder.position.begin if decoder.position is not None else end
            if start is not None:
                break
            if last is not None and last[0] < end:
                executed.add(*last[1])
        if not is_same(executed, gtids):
            raise SourceError(
                f"the GTID set {gtids} is not what {self._binlog.name} has up to any place: at the first"
                f" transaction that is not in it, it has {executed}. Begin at a file and offset, or at a time"
            )
        return start or self._at_boundary(files[-1], end)

    def oldest(self) -> Cursor:
        """Return the oldest place that the source has. Raises as `find`."""
        return _place_of(self._at_boundary(self._files()[0], FIRST_EVENT))

    def _at_time(self, milliseconds: int, number: int = 0) -> Start:
        """Start before the first transaction at or after a time; without one, at the end of the last file.

        Files before the one with that number are left out. Only the time of the first event of each file is looked at,
        from the newest to the oldest, until a file is old enough; that one is read.
        """
        files = [file for file in self._files() if file_number(file) >= number]
        for index in reversed(range(len(files))):
            with self._walking() as decoder, closing(self._events(decoder, files[index], FIRST_EVENT)) as walk:
                first = next(walk, None)
                is_late = first is not None and first[1].created * 1000 >= milliseconds
                if is_late and index > 0:
                    continue
                if is_late and file_number(files[0]) > 1 and files[0] == self._files()[0]:
                    raise purged(self._binlog, f"the time {milliseconds} ms", files[0])
                for event, position in walk:
                    begins = event.offset == position.begin and event.type in _BEGINNINGS
                    if begins and event.timestamp * 1000 >= milliseconds:
                        return self._at_boundary(files[index], position.begin)
                end = decoder.position
            if index + 1 < len(files):
                return self._at_boundary(files[index + 1], FIRST_EVENT)
            if end is not None:  # not where the binlog ends by now: something may have come meanwhile
                return self._at_boundary(files[index], end.begin)
            break
        return self.end()

    def _files(self) -> list[str]:
        """Return the files that can be looked into, oldest first."""
        return [file for file, _ in self._binlog.binlog_files()]

    def _gtids(self, text: str) -> GtidSet:
        return parse_gtids(text, mariadb=self._facts.mariadb)

    def _walk(self, file: str, *, only_xa: bool = False) -> "Generator[tuple[Event, Position]]":
        """Read the events of one file, from its FORMAT_DESCRIPTION event to its end; see `Decoder.begin`."""
        with self._walking(only_xa=only_xa) as decoder:
            yield from self._events(decoder, file, FIRST_EVENT)

    @contextmanager
    def _walking(self, *, only_xa: bool = False) -> Iterator[Decoder]:
        """Give what reads events. When it has, its position is where the last whole transaction ends."""
        decoder = Decoder(Ring(), self._config)
        decoder.begin(source=self._facts.source, walking=True, only_xa=only_xa)
        try:
            yield decoder
        finally:
            decoder.close()

    def _events(self, decoder: Decoder, file: str, offset: int) -> "Generator[tuple[Event, Position]]":
        dump = self._dump(file, offset)
        try:
            while True:
                if decoder.run() is Status.NEED_DATA:
                    with decoder.receive_space() as space:
                        size = dump.receive_into(space)
                    if not size:
                        raise SourceError(f"{dump.name} ended the dump")
                    if self._stopping is not None and self._stopping.is_set():
                        raise SourceError("the destination stops")
                    decoder.received(size)
                    continue
                event = decoder.event
                assert event is not None
                if event.type == BinlogEvent.EOF_PACKET:
                    return
                if event.type == BinlogEvent.ERROR_PACKET:
                    raise SourceError(f"{dump.name} refuses the dump: {error_text(event.body)}")
                if event.position is None:  # the ROTATE event that names the file
                    continue
                if event.type == BinlogEvent.ROTATE_EVENT:
                    return
                yield event, event.position
        except DecodeError as error:
            raise SourceError(f"{dump.name}: {error}") from error
        finally:
            dump.close()


_EXPIRY: Final = ("binlog_expire_logs_seconds", "binlog_expire_logs_auto_purge", "expire_logs_days")
"""https://dev.mysql.com/doc/refman/8.4/en/replication-options-binary-log.html; MariaDB has the first and the last."""


class StartFinder(PlaceFinder):
    """Finds places in the binlog of a server."""

    def __init__(
        self,
        connection: Connection,
        config: MysqlConfig,
        connect: Callable[[], Connection],
        stopping: threading.Event | None = None,
    ) -> None:
        """Ask over `connection`; `connect` makes the connections of the dumps that a search needs."""
        super().__init__(connection, config, stopping)
        self._connection = connection
        self._connect = connect
        self._timeout = config.so_timeout

    def end(self) -> Start:
        """See `PlaceFinder.end`."""
        file, offset, gtids = self._connection.end_of_binlog()
        return Start(FileStart(file, offset), gtids=self._gtids(gtids) if self._facts.gtid else None)

    def _by_default(self) -> Start:
        return self.end()

    def end_position(self, known: Iterable[tuple[str, int]]) -> Position:
        """See `PlaceFinder.end_position`."""
        file, offset = self._connection.binlog_status()[:2]
        return self.position_of(file, offset, known)

    def expiries(self, places: Sequence[Position]) -> list[Expiry | None]:
        """See `sluice.instance.source.Parser.expiries`. The source purges a file by the age of its last event."""
        files = [name for name, _ in self._connection.binlog_files()]
        found = self._connection.query(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN {_EXPIRY}", row=(text, text))
        variables = dict(found)
        seconds = float(variables.get("binlog_expire_logs_seconds", 0))
        seconds = seconds or 86_400 * float(variables.get("expire_logs_days", 0))
        if variables.get("binlog_expire_logs_auto_purge") == "OFF":
            seconds = 0.0
        return [self._expiry(it, files, seconds) for it in places]

    def _expiry(self, place: Position, files: Sequence[str], seconds: float) -> Expiry | None:
        if place.source != self._facts.source or place.file not in files[:-1]:
            return None  # another source's, purged already, or in the file that is written
        number = files.index(place.file)
        if number == 0 and file_number(place.file) > 1:
            return Expiry(0.0, seconds)
        return Expiry(self._created_at(files[number + 1]) + seconds, seconds) if seconds else None

    def _executed(self, file: str, offset: int) -> GtidSet | None:
        """See `PlaceFinder`. MySQL does not say: it is what the file begins with, and all GTIDs from there on."""
        if self._facts.mariadb:
            return self._binlog_gtid_pos(file, offset)
        if not self._facts.gtid:
            return None
        rows = self._connection.shown_events("IN %s LIMIT 1, 1", file)
        if not rows or rows[0].kind != "Previous_gtids":
            return None
        gtids: MysqlGtidSet = self._answered_gtids(rows[0].info)
        if offset > FIRST_EVENT:
            with closing(self._walk(file)) as walk:
                for event, _ in walk:
                    if event.offset >= offset:
                        break
                    if event.type in _MYSQL_GTIDS:
                        gtids.add(*mysql_gtid(event.body, tagged=event.type == BinlogEvent.GTID_TAGGED_EVENT))
        return gtids

    def _executed_now(self) -> GtidSet:
        state = "@@global.gtid_binlog_state" if self._facts.mariadb else "@@global.gtid_executed"
        found: GtidSet = self._connection.ask(f"SELECT {state}", row=(self._answered_gtids,))
        return found

    def _after(self, gtids: GtidSet, executed: GtidSet | None = None) -> Start:
        """See `PlaceFinder`."""
        first = self._connection.binlog_files()[0][0]
        if isinstance(gtids, MysqlGtidSet):
            gone = self._connection.ask("SELECT @@global.gtid_purged", row=(self._answered_gtids,))
            lost = str(gone.subtract(gtids))
        else:  # numbers ascend in a domain, whichever server writes; the newest of each before the first file:
            before = self._binlog_gtid_pos(first, FIRST_EVENT)
            newest = {domain: number for (domain, _), number in gtids}
            lost = mariadb_text(gtid for gtid in before if newest.get(gtid[0][0], -1) < gtid[1])
        if lost:
            raise PurgedError(
                f"{self._connection.name} has purged transactions that are missing from the GTID set {gtids}, up to"
                f" {lost}: the oldest file that it has is {first}. They cannot be read any more"
            )
        if isinstance(gtids, MariadbGtidSet) and isinstance(executed, MariadbGtidSet):
            self._check_order(gtids, executed)
        return Start(GtidStart(gtids), gtids=gtids)

    def _check_order(self, gtids: MariadbGtidSet, executed: MariadbGtidSet) -> None:
        """Check that a dump after the newest GTID of each domain leaves nothing out that is not in the set.

        MariaDB sends what stands after that GTID in its binlog. A server that had a branch of its own may have other
        transactions before it.
        """
        wanted = {domain: number for (domain, _), number in gtids}
        servers = {domain: server for (domain, server), _ in gtids}
        beyond = missing(executed, gtids)
        for file, _ in reversed(self._binlog.binlog_files() if beyond else []):
            before = self._listed_gtids(file)
            found = [it for it in wanted if ((it, servers[it]), wanted[it]) not in before]
            if not found:
                continue
            with closing(self._walk(file)) as walk:
                for event, _ in walk:
                    if event.type == BinlogEvent.MARIADB_GTID_EVENT:
                        number, domain = _MARIADB_GTID.unpack_from(event.body)
                        before.add((domain, event.server_id), number)
                        if domain in found and (servers[domain], wanted[domain]) == (event.server_id, number):
                            self._refuse_skipped(domain, before, gtids)
                            found.remove(domain)
                            del wanted[domain]
                    if not found:
                        break
            if not wanted:
                return

    def _refuse_skipped(self, domain: int, before: MariadbGtidSet, gtids: MariadbGtidSet) -> None:
        skipped = [run for run in missing(before, gtids).runs if run.startswith(f"{domain}-")]
        if skipped:
            raise SourceChangedError(
                f"{self._binlog.name} has transactions that were not delivered, before the position at which reading"
                f" would resume: {', '.join(skipped)[:1000]}. Its history diverged for a while, and MariaDB cannot send"
                f" them alone. Make it a copy of the other server, {or_seek(self._config.destination)}"
            )

    def _listed_gtids(self, file: str) -> MariadbGtidSet:
        """Return what was executed before a file: its second event says so, ``[0-1-5,0-2-7]``."""
        rows = self._connection.shown_events("IN %s LIMIT 1, 1", file)
        if not rows or rows[0].kind != "Gtid_list":
            raise SourceError(f"{file} of {self._binlog.name} does not begin with a list of GTIDs")
        found: MariadbGtidSet = self._answered_gtids(rows[0].info.strip(b"[]"))
        return found

    def _at_offset(self, file: str, offset: int) -> Start:
        """See `PlaceFinder`: the server says sooner whether an event begins a transaction."""
        try:
            rows = self._connection.shown_events("IN %s FROM %s LIMIT 1", file, offset)
        except SourceError as error:
            raise SourceError(f"no event was found at {_configured_place(file, offset)}: {error}") from error
        if not rows or rows[0].kind in _SHOWN_BEGINNINGS or rows[0].info == b"BEGIN":
            return self._at_boundary(file, offset)
        return super()._at_offset(file, offset)

    def _dump(self, file: str, offset: int) -> Dump:
        with self._connect() as connection:
            start = FileStart(file, offset)
            return Dump(connection, start, Replica.unique(), timeout=self._timeout, non_blocking=True)

    def _answered_gtids(self, value: str | bytes | None) -> Any:
        """Return a set that the source names; NULL is the empty one. Raises SourceError."""
        try:
            return self._gtids(optional_text(value) or "")
        except (BadPositionError, ValueError) as error:
            raise SourceError(f"{self._connection.name} names an invalid GTID set: {error}") from error

    def _binlog_gtid_pos(self, file: str, offset: int) -> MariadbGtidSet:
        question = "SELECT BINLOG_GTID_POS(%s, %s)"
        found: MariadbGtidSet = self._connection.ask(question, (file, offset), row=(self._answered_gtids,))
        return found


def parse_gtids(text: str, *, mariadb: bool) -> GtidSet:
    """Read a GTID set of the source's family, as its variables and statements print it."""
    return (MariadbGtidSet if mariadb else MysqlGtidSet).parse(text.replace("\n", ""))


def _place_of(start: Start) -> Cursor:
    assert start.position is not None
    return Cursor.at(start.position, "" if start.gtids is None else str(start.gtids))


def purged(binlog: Binlog, wanted: str, first: str = "") -> PurgedError:
    """Return the error for a place that the source no longer has; `first` is its oldest file."""
    first = first or binlog.binlog_files()[0][0]
    return PurgedError(
        f"{binlog.name} has purged the binlog at {wanted}: the oldest file that it has is {first}. The changes from"
        f" {wanted} to {first}:{FIRST_EVENT} cannot be read any more"
    )


def _configured_place(file: str, offset: int) -> str:
    return (
        f"the configured position {file}:{offset} (canal.instance.master.position; SHOW BINLOG EVENTS IN '{file}'"
        " lists those that there are)"
    )


def _may_have(event: Event, position: Position, milliseconds: int) -> bool:
    """Whether this is the time that Canal gives an entry of this event.

    The entries of a compressed transaction have the place of the payload, and times of their own. These are not after
    the payload, nor before the file, unless the history was rewritten.
    """
    if event.type == BinlogEvent.TRANSACTION_PAYLOAD_EVENT:
        return position.created * 1000 <= milliseconds <= event.timestamp * 1000
    return event.timestamp * 1000 == milliseconds


_MARIADB_GTID: Final = struct.Struct("<QI")
"""Number and domain, which begin the body of MariaDB's GTID event; its server is that of the header."""
_MYSQL_GTIDS: Final = frozenset({BinlogEvent.GTID_EVENT, BinlogEvent.GTID_TAGGED_EVENT})
_GTIDS: Final = _MYSQL_GTIDS | {BinlogEvent.ANONYMOUS_GTID_EVENT, BinlogEvent.MARIADB_GTID_EVENT}
_ENDS: Final = frozenset({BinlogEvent.XID_EVENT, BinlogEvent.XA_PREPARE_EVENT, BinlogEvent.TRANSACTION_PAYLOAD_EVENT})
_BEGINNINGS: Final = _GTIDS | {BinlogEvent.QUERY_EVENT}
_CURSOR_EVENTS: Final = _BEGINNINGS | _ENDS | {BinlogEvent.MARIADB_QUERY_COMPRESSED_EVENT}
_SHOWN_BEGINNINGS: Final = frozenset({"Gtid", "Anonymous_Gtid", "Gtid_tagged", "Rotate", "Stop"})
"""Types as SHOW BINLOG EVENTS names them."""


def error_text(payload: bytes) -> str:
    """Return the text of an error packet without its first byte: number 2, "#" and SQL state 5, text to the end."""
    number = int.from_bytes(payload[:2], "little")
    text = payload[8:] if payload[2:3] == b"#" else payload[2:]
    return f"{text.decode('utf-8', 'replace')} ({number})"


def gtid_of(event: Event) -> tuple[Any, int] | None:
    """Return what numbers a transaction, as its kind of `GtidSet` has it, and its number; None for another event."""
    if event.type == BinlogEvent.MARIADB_GTID_EVENT:
        number, domain = _MARIADB_GTID.unpack_from(event.body)
        return (domain, event.server_id), number
    if event.type in (BinlogEvent.GTID_EVENT, BinlogEvent.GTID_TAGGED_EVENT):
        return mysql_gtid(event.body, tagged=event.type == BinlogEvent.GTID_TAGGED_EVENT)
    return None


def _has(one: GtidSet, other: GtidSet) -> bool:
    """Whether a set has all of another; numbers of MariaDB ascend in a domain, whichever server writes."""
    if isinstance(one, MysqlGtidSet):
        return isinstance(other, MysqlGtidSet) and one.contains(other)
    newest = dict(_newest(one))
    return isinstance(other, MariadbGtidSet) and all(number <= newest.get(it, -1) for it, number in _newest(other))


def _newest(gtids: MariadbGtidSet) -> Iterator[tuple[int, int]]:
    """Give each domain with its newest number, which comes last."""
    return iter({domain: number for (domain, _), number in gtids}.items())


def is_same(one: GtidSet, other: GtidSet) -> bool:
    """Whether two sets have the same transactions; see `_has`."""
    return _has(one, other) and _has(other, one)


def _base(file: str) -> str:
    return file.rpartition(".")[0]
