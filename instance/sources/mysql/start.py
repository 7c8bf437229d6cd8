"""Where a destination begins to read: a saved cursor, else where the configuration says, else the current end."""

import struct
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

from ....protocol.errors import BadPositionError, PurgedError, SluiceError, SourceChangedError, SourceError
from ....protocol.gtid import GtidSet, MariadbGtidSet, MysqlGtidSet
from ....protocol.position import Position, file_number
from ....store.cursor import Cursor
from .config import MysqlConfig
from .connection import Connection, optional_text
from .ddl import Query
from .decode.events import EventType
from .decode.gtid_event import mysql_gtid
from .dump import FIRST_EVENT, MAX_DUMP_OFFSET, Dump, FileStart, GtidStart, Replica


@dataclass(frozen=True, slots=True)
class Start:
    """Where the dump begins, and from which place on its entries are wanted."""

    dump: FileStart | GtidStart
    position: Position | None = None
    """Entries before it are not wanted; None: the beginning of the dump."""
    gtids: GtidSet | None = None
    """The GTID set executed before the place; None if unknown."""


def resume(position: Position, gtids: GtidSet | None = None) -> Start:
    """Start at a position of this same source: the dump begins with its transaction, which has its table maps."""
    offset = position.begin if position.begin <= MAX_DUMP_OFFSET else FIRST_EVENT
    return Start(FileStart(position.file, offset), position, gtids)


class StartFinder:
    """Finds the start for one connection's source.

    Every method raises SourceError if the source refuses, PurgedError if it no longer has the place, and
    SourceChangedError if the place does not belong to this source or to its present history.
    """

    def __init__(self, connection: Connection, config: MysqlConfig, connect: Callable[[], Connection]) -> None:
        """Ask over `connection`; `connect` makes the connections of the dumps that a search needs."""
        self._connection = connection
        self._config = config
        self._connect = connect
        self._facts = connection.facts
        self._created: dict[str, int] = {}

    def find(self, saved: Cursor | None) -> Start:
        """Find the start for a saved cursor; without one the configuration decides."""
        if saved is None:
            return self._configured()
        if saved.position is None:
            return self._at_event(saved)
        try:
            gtids = self._gtids(saved.gtid) if saved.gtid else None
        except BadPositionError as error:
            raise SourceChangedError(f"the position {saved.position} is of another kind of source: {error}") from error
        if saved.position.source != self._facts.source:
            return self._by_gtid(saved.position, gtids)
        self.check(saved.position)
        if gtids is None and self._config.gtid_on:  # the headers are to have it
            gtids = self._executed(saved.position.file, saved.position.begin)
        return resume(saved.position, gtids)

    def find_first(self, places: Sequence[Cursor | None]) -> tuple[Start | None, dict[Cursor | None, SluiceError]]:
        """Find the start for the first of these places that the source has; also return why it lacks others.

        All are asked for: the stream may never reach a place of another history, and its client is to be told.
        """
        start: Start | None = None
        refused: dict[Cursor | None, SluiceError] = {}
        for place in places:
            if place is None and start is not None:
                continue  # where the configuration says: only if no other place is left
            try:
                found = self.find(place)
                if place is not None and place.position is not None and len(places) > 1:
                    self.check_history(place.position)
            except (PurgedError, SourceChangedError) as error:
                refused[place] = error
            else:
                start = start or found
        return start, refused

    def end(self) -> Start:
        """Start at the source's current end."""
        file, offset, gtids = self._connection.end_of_binlog()
        return Start(FileStart(file, offset), gtids=self._gtids(gtids) if self._facts.gtid else None)

    def end_position(self, known: Iterable[tuple[str, int]]) -> Position:
        """Return the source's current end. ``known`` are files with their time of creation; others are looked at."""
        file, offset = self._connection.binlog_status()[:2]
        # The newest of that name: RESET MASTER begins with the same names again.
        created = next((time for name, time in reversed(list(known)) if name == file), None)
        if created is None:
            with closing(self._walk(file)) as walk:
                created = next(walk).created
        return Position(self._facts.source, file, created, offset, 0)

    def check(self, position: Position) -> None:
        """Check that the source still has the place of a position; the decoder checks its `created`."""
        self._check_file(position.file, position.begin)

    def check_history(self, position: Position) -> None:
        """Check what `check` leaves to the decoder, for a position of this source from which nothing is decoded."""
        if position.source != self._facts.source:
            return
        if position.file not in self._created:
            with closing(self._walk(position.file)) as walk:
                self._created[position.file] = next(walk).created
        created = self._created[position.file]
        if created != position.created:
            raise SourceChangedError(
                f"{position.file} of {self._connection.name} was created at {created}, that of the position {position}"
                " at another time: it was reset, restored, or is another server"
            )

    def _check_file(self, file: str, offset: int) -> None:
        files = self._connection.binlog_files()
        sizes = dict(files)
        if file not in sizes:
            first = files[0][0]
            if file_number(file) < file_number(first) and _base(file) == _base(first):
                raise purged(self._connection, f"{file}:{offset}", first)
            raise SourceChangedError(
                f"{self._connection.name} has no binlog file {file} (it has {first} to {files[-1][0]}):"
                " it was reset, restored, or is another server"
            )
        if offset > sizes[file]:
            raise SourceChangedError(
                f"{file} of {self._connection.name} ends at {sizes[file]}, before the position {offset}:"
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
                return self._at_time(config.master_timestamp, [config.master_journal_name])
            return self._at_boundary(config.master_journal_name, FIRST_EVENT)
        if config.master_timestamp:
            return self._at_time(config.master_timestamp, [file for file, _ in self._connection.binlog_files()])
        return self.end()

    def _by_gtid(self, position: Position, gtids: GtidSet | None) -> Start:
        """Carry a position over from another source: possible between transactions that are all known here."""
        source = self._facts.source
        if position.n == 0 and gtids and self._facts.gtid:
            state = "@@global.gtid_binlog_state" if self._facts.mariadb else "@@global.gtid_executed"
            here = self._connection.ask(f"SELECT {state}", row=(self._answered_gtids,))
            if type(here) is type(gtids) and here.contains(gtids):  # type: ignore[arg-type]
                return self._after(gtids)
        lacks = "if it is a replica, start again when it has caught up" if gtids else "no GTID set was saved"
        raise SourceChangedError(
            f"the position {position} is of another source: {self._connection.name} is {source}, and it has not"
            f" executed what was executed there ({lacks})"
        )

    def _after(self, gtids: GtidSet) -> Start:
        """Start after the transactions of a set, if the source still has those that are not in it."""
        first = self._connection.binlog_files()[0][0]
        if isinstance(gtids, MysqlGtidSet):
            gone = self._connection.ask("SELECT @@global.gtid_purged", row=(self._answered_gtids,))
            lost = str(gone.subtract(gtids))
        else:  # numbers ascend in a domain, whichever server writes; the newest of each before the first file:
            before = self._binlog_gtid_pos(first, FIRST_EVENT)
            newest = {domain: number for (domain, _), number in gtids}
            lost = ",".join(
                f"{domain}-{server}-{number}" for (domain, server), number in before if newest.get(domain, -1) < number
            )
        if lost:
            raise PurgedError(
                f"{self._connection.name} has purged transactions that are missing from the GTID set {gtids}, up to"
                f" {lost}: the oldest file that it has is {first}. They cannot be read any more"
            )
        return Start(GtidStart(gtids), gtids=gtids)

    def _at_event(self, cursor: Cursor) -> Start:
        """Start at the event of a cursor that Canal wrote, this event included."""
        self._check_file(cursor.journal, cursor.offset)
        for found in self._walk(cursor.journal):
            header = found.header
            if header.offset < cursor.offset:
                continue
            same = (
                header.offset == cursor.offset
                and header.type in _CURSOR_EVENTS
                and found.may_have(cursor.timestamp)
                and cursor.server_id in (0, header.server_id)
            )
            if same:
                position = Position(self._facts.source, cursor.journal, found.created, found.begin, found.n)
                return resume(position, self._gtids(cursor.gtid) if cursor.gtid else None)
            break
        raise SourceChangedError(
            f"the event of the cursor, {cursor.journal}:{cursor.offset} of server {cursor.server_id} at"
            f" {cursor.timestamp}, is not there on {self._connection.name}: it was reset, restored,"
            " or is another server"
        )

    def _at_offset(self, file: str, offset: int) -> Start:
        """Start at an offset from the configuration, which may be inside a transaction."""
        place = (
            f"the configured position {file}:{offset} (canal.instance.master.position; SHOW BINLOG EVENTS IN '{file}'"
            " lists those that there are)"
        )
        try:
            rows = self._connection.shown_events("IN %s FROM %s LIMIT 1", file, offset)
        except SourceError as error:
            raise SourceError(f"no event was found at {place}: {error}") from error
        if not rows or rows[0].kind in _SHOWN_BEGINNINGS or rows[0].info == b"BEGIN":
            return self._at_boundary(file, offset)
        for found in self._walk(file):
            if found.header.offset == offset:
                position = Position(self._facts.source, file, found.created, found.begin, found.n)
                return resume(position, self._executed(file, found.begin))
            if found.header.offset > offset:
                break
        raise SourceError(f"no event starts at {place}")

    def _at_boundary(self, file: str, offset: int) -> Start:
        return Start(FileStart(file, offset), gtids=self._executed(file, offset))

    def _executed(self, file: str, offset: int) -> GtidSet | None:
        """Return what is executed at a place between transactions; None if the source has no GTIDs.

        MySQL does not say: it is what the file begins with, and all GTIDs from there on.
        """
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
                for found in walk:
                    if found.header.offset >= offset:
                        break
                    if found.header.type in _MYSQL_GTIDS:
                        tagged = found.header.type == EventType.GTID_TAGGED_EVENT
                        gtids.add(*mysql_gtid(found.header.body, tagged=tagged))
        return gtids

    def _at_time(self, milliseconds: int, files: list[str]) -> Start:
        """Start before the first transaction at or after a time; without one, at the end of the last file.

        Only the time of the first event of each file is looked at, from the newest to the oldest, until a file is old
        enough; that one is read.
        """
        for index in reversed(range(len(files))):
            with closing(self._walk(files[index])) as walk:
                first = next(walk, None)
                is_late = first is not None and first.created * 1000 >= milliseconds
                if is_late and index > 0:
                    continue
                if is_late and file_number(files[0]) > 1 and files[0] == self._connection.binlog_files()[0][0]:
                    raise purged(self._connection, f"the time {milliseconds} ms", files[0])
                for found in walk:
                    begins = found.header.offset == found.begin and found.header.type in _BEGINNINGS
                    if begins and found.header.timestamp * 1000 >= milliseconds:
                        return self._at_boundary(files[index], found.begin)
            if index + 1 < len(files):
                return self._at_boundary(files[index + 1], FIRST_EVENT)
            break
        return self.end()

    def _gtids(self, text: str) -> GtidSet:
        return parse_gtids(text, mariadb=self._facts.mariadb)

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

    def _walk(self, file: str) -> "Generator[_Found]":
        connection = self._connect()
        try:
            dump = Dump(
                connection, FileStart(file), Replica.unique(), timeout=self._config.so_timeout, non_blocking=True
            )
        finally:
            connection.close()
        try:
            yield from _grouped(_headers(dump))
        finally:
            dump.close()


def parse_gtids(text: str, *, mariadb: bool) -> GtidSet:
    """Read a GTID set of the source's family, as its variables and statements print it."""
    return (MariadbGtidSet if mariadb else MysqlGtidSet).parse(text.replace("\n", ""))


def purged(connection: Connection, wanted: str, first: str = "") -> PurgedError:
    """Return the error for a place that the source no longer has; `first` is its oldest file."""
    first = first or connection.binlog_files()[0][0]
    return PurgedError(
        f"{connection.name} has purged the binlog at {wanted}: the oldest file that it has is {first}. The changes from"
        f" {wanted} to {first}:{FIRST_EVENT} cannot be read any more; to go on without them, reset the cursors to"
        f" {first}:{FIRST_EVENT} or later"
    )


@dataclass(frozen=True, slots=True)
class _Header:
    """An event's header, and its body if that says how events are grouped, or which GTID they have."""

    type: int
    timestamp: int
    server_id: int
    offset: int
    body: bytes


@dataclass(frozen=True, slots=True)
class _Found:
    """An event, and the transaction (or lone event) that it is the n-th of."""

    header: _Header
    created: int
    begin: int
    n: int

    def may_have(self, milliseconds: int) -> bool:
        """Whether this is the time that Canal gives an entry of this event.

        The entries of a compressed transaction have the place of the payload, and times of their own. These are not
        after the payload, nor before the file, unless the history was rewritten.
        """
        if self.header.type == EventType.TRANSACTION_PAYLOAD_EVENT:
            return self.created * 1000 <= milliseconds <= self.header.timestamp * 1000
        return self.header.timestamp * 1000 == milliseconds


class _Stream:
    """Reads a dump forward through a buffer."""

    def __init__(self, dump: Dump) -> None:
        self._dump = dump
        self._buffer = memoryview(bytearray(1 << 20))
        self._start = self._end = 0

    def read(self, size: int) -> bytes:
        while self._end - self._start < size:
            self._buffer[: self._end - self._start] = self._buffer[self._start : self._end]
            self._start, self._end = 0, self._end - self._start
            self._receive()
        self._start += size
        return bytes(self._buffer[self._start - size : self._start])

    def skip(self, size: int) -> None:
        while (held := self._end - self._start) < size:
            size -= held
            self._start = self._end = 0
            self._receive()
        self._start += size

    def _receive(self) -> None:
        received = self._dump.receive_into(self._buffer[self._end :])
        if not received:
            raise SourceError(f"{self._dump.name} ended the dump")
        self._end += received


# Event header: timestamp 4, type 1, server id 4, event size 4, log_pos 4, flags 2 (little-endian).
_HEADER: Final = struct.Struct("<IBIIIH")
_CONTINUED: Final = 0xFF_FFFF
_SHORT: Final = 4096
"""Bytes of a QUERY event that may be a BEGIN or COMMIT; status variables come before the text."""


def _headers(dump: Dump) -> Iterator[_Header]:
    """Read the headers of the events of one file, from its FORMAT_DESCRIPTION event to its end.

    A packet: length 3, sequence 1, payload; the payload is 0x00 and an event, 0xFF and an error, or 0xFE at the end.
    It goes on in the next packet when it has 2**24 - 1 bytes. Raises SourceError for an error.
    """
    stream = _Stream(dump)
    expected = FIRST_EVENT
    is_described = is_continued = False
    while True:
        length = int.from_bytes(stream.read(4)[:3], "little")
        if is_continued:
            is_continued = length == _CONTINUED
            stream.skip(length)
            continue
        mark = stream.read(1)[0]
        if mark == 0xFE:
            return
        if mark == 0xFF:
            raise SourceError(f"{dump.name} refuses the dump: {error_text(stream.read(length - 1))}")
        timestamp, kind, server_id, size, log_pos, _ = _HEADER.unpack(stream.read(_HEADER.size))
        rest = length - 1 - _HEADER.size
        if rest < 0:
            raise SourceError(f"{dump.name} sends an event of {length - 1} bytes, too few for its header")
        body = b""
        if kind in _GROUPING and rest <= _SHORT:
            body = stream.read(rest)
        else:
            stream.skip(rest)
        is_continued = length == _CONTINUED
        is_described = is_described or kind == EventType.FORMAT_DESCRIPTION_EVENT
        if kind == EventType.ROTATE_EVENT and is_described:
            return
        if not is_described or kind in _NOT_IN_FILE:
            continue
        # log_pos is the end modulo 2**32, and 0 where MariaDB does not say.
        offset = expected + (log_pos - size - expected & 0xFFFF_FFFF) if log_pos else expected
        expected = offset + size
        yield _Header(kind, timestamp, server_id, offset, body)


def _grouped(headers: Iterator[_Header]) -> Iterator[_Found]:
    """Group events to transactions, as positions do (see `sluice.protocol.position`)."""
    created = begin = n = 0
    inside = is_open = False  # within a transaction; after its BEGIN
    for header in headers:
        if header.type == EventType.FORMAT_DESCRIPTION_EVENT:
            created = header.timestamp
        if inside:
            n += 1
        else:
            begin, n = header.offset, 0
        yield _Found(header, created, begin, n)
        if header.type in _GTIDS:
            # MariaDB: number 8, domain 4, flags 1; without the flag "standalone" it is the BEGIN too.
            mariadb = header.type == EventType.MARIADB_GTID_EVENT
            inside, is_open = True, mariadb and not header.body[12] & 1
        elif header.type in (EventType.QUERY_EVENT, EventType.MARIADB_QUERY_COMPRESSED_EVENT):
            query = Query.parse(header.body)
            text = query.sql.upper() if query is not None else b""
            if text.startswith((b"XA START", b"XA BEGIN")) or (text.startswith(b"BEGIN") and len(text) <= 9):
                inside = is_open = True
            elif not is_open or (text.startswith((b"COMMIT", b"ROLLBACK")) and len(text) <= 12):  # a CRC32 may follow
                inside = is_open = False
        elif header.type in (EventType.TABLE_MAP_EVENT, *_VARIABLES):
            inside = True
        elif header.type in _ENDS:
            inside = is_open = False


_MYSQL_GTIDS: Final = frozenset({EventType.GTID_EVENT, EventType.GTID_TAGGED_EVENT})
_GTIDS: Final = _MYSQL_GTIDS | {EventType.ANONYMOUS_GTID_EVENT, EventType.MARIADB_GTID_EVENT}
_VARIABLES: Final = (EventType.INTVAR_EVENT, EventType.RAND_EVENT, EventType.USER_VAR_EVENT)
_ENDS: Final = frozenset({EventType.XID_EVENT, EventType.XA_PREPARE_EVENT, EventType.TRANSACTION_PAYLOAD_EVENT})
_GROUPING: Final = _MYSQL_GTIDS | {EventType.QUERY_EVENT, EventType.MARIADB_GTID_EVENT}
_BEGINNINGS: Final = _GTIDS | {EventType.QUERY_EVENT}
_CURSOR_EVENTS: Final = _BEGINNINGS | _ENDS | {EventType.MARIADB_QUERY_COMPRESSED_EVENT}
_NOT_IN_FILE: Final = frozenset({EventType.HEARTBEAT_EVENT, EventType.HEARTBEAT_EVENT_V2})
_SHOWN_BEGINNINGS: Final = frozenset({"Gtid", "Anonymous_Gtid", "Gtid_tagged", "Rotate", "Stop"})
"""Types as SHOW BINLOG EVENTS names them."""


def error_text(payload: bytes) -> str:
    """Return the text of an error packet without its first byte: number 2, "#" and SQL state 5, text to the end."""
    number = int.from_bytes(payload[:2], "little")
    text = payload[8:] if payload[2:3] == b"#" else payload[2:]
    return f"{text.decode('utf-8', 'replace')} ({number})"


def _base(file: str) -> str:
    return file.rpartition(".")[0]
