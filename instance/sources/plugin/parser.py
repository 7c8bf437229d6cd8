"""The thread of a destination: it reads what another package gives, and fills the ring.

A position names the offset where a piece begins, and how many of its entries are before the place. Its file is called
by the history of the source, so that positions of two histories have no order.
"""

import contextlib
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing
from typing import Final, NamedTuple, TypeVar

from google.protobuf.message import DecodeError

from ....protocol.canal.entry_pb2 import Entry, EntryType, EventType, RowChange
from ....protocol.canal.packet_pb2 import Messages
from ....protocol.errors import (
    BadPositionError,
    NotConfiguredError,
    PurgedError,
    SluiceError,
    SourceChangedError,
    SourceError,
    UnknownTableError,
)
from ....protocol.gtid import GtidSet
from ....protocol.position import Position
from ....store.cursor import Cursor
from ....store.ring import Flag, Kind, Ring, Staging
from ....store.segment import SegmentWriter
from ...columns import SourceColumn
from ...sink.filters import TableFilter
from ...source import TableReader
from ...status import ParserStatus
from .. import starts
from ..api import LARGEST, Piece, Source
from ..unasked import UnaskedParser
from .config import PluginConfig

T = TypeVar("T")
PATIENCE: Final = 5.0
"""Seconds that a source may take to say what it has."""
PAUSE: Final = 0.05
"""Seconds until a source that had nothing more is asked again."""
FULL: Final = 1 << 20
"""Bytes after which entries are put, also inside a piece."""
MOST_TABLES: Final = 100_000
"""Tables of which the source tells in one life of the parser."""
OFFSETS: Final = 1 << 63
ROWS: Final = (EventType.INSERT, EventType.UPDATE, EventType.DELETE)
KINDS: Final = {EntryType.TRANSACTIONBEGIN: Kind.TRANSACTION_BEGIN, EntryType.TRANSACTIONEND: Kind.TRANSACTION_END}
_HISTORY: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Bounds(NamedTuple):
    """What a source has now."""

    history: str
    oldest: int
    end: int


class Read(NamedTuple):
    """An entry, as it is staged."""

    data: bytes
    kind: Kind
    event_type: int
    table: tuple[str, str]
    rows: int
    execute_ms: int


class Asking:
    """A source of another package: what it raises and answers becomes a SourceError, or is right."""

    def __init__(self, config: PluginConfig) -> None:
        """Make the source. Raises SourceError."""
        self._config = config
        self._source: Source = self._ask(lambda: config.kind(config))

    def close(self) -> None:
        """Close the source."""
        with contextlib.suppress(SourceError):
            self._ask(self._source.close)

    def bounds(self) -> Bounds:
        """Ask for history, oldest offset and end. Raises SourceError."""
        history, oldest, end = self._ask(lambda: (self._source.history(), self._source.oldest(), self._source.end()))
        if not isinstance(history, str) or _HISTORY.fullmatch(history) is None:
            raise self._wrong(f"its history is {history!r:.200}, not 1 to 64 letters, digits, '_' and '-'")
        if not (type(oldest) is type(end) is int and 0 <= oldest <= end < OFFSETS):
            raise self._wrong(f"it has offsets from {oldest!r:.50} to {end!r:.50}: numbers that grow, from 0 on")
        return Bounds(history, oldest, end)

    def pieces(self, offset: int) -> Iterator[Piece | None]:
        """Give its pieces, and None where it has nothing at present. Raises SourceError."""
        pieces = self._ask(lambda: iter(self._source.read(offset)))
        while True:
            found = self._ask(lambda: next(pieces, self))
            if found is self:
                return
            if found is None:
                yield None
                continue
            piece = self._ask(lambda: Piece(*found))  # type: ignore[misc]  # noqa: B023  called at once
            if not isinstance(piece.data, bytes) or type(piece.end) is not int or not offset < piece.end < OFFSETS:
                raise self._wrong(f"a piece after offset {offset} ends at {piece.end!r:.50}, or its data is no bytes")
            if len(piece.data) > LARGEST:
                raise self._wrong(f"the piece after offset {offset} has {len(piece.data)} bytes, more than {LARGEST}")
            offset = piece.end
            yield piece

    def _ask(self, question: Callable[[], T]) -> T:
        try:
            return question()
        except SluiceError:
            raise
        except BaseException as error:  # it may even ask the process to end
            raise self._wrong(f"{type(error).__name__}: {str(error)[:1000]}") from error

    def _wrong(self, text: str) -> SourceError:
        return SourceError(f"{self._config.source_title} (sluice.instance.source = {self._config.source}): {text}")


def position_at(config: PluginConfig, history: str, offset: int) -> Position:
    """Return the position of an offset."""
    return Position(config.source, f"{history}.1", 0, offset, 0)


def find_first(
    config: PluginConfig, bounds: Bounds, places: Sequence[Cursor | None]
) -> tuple[Position | None, dict[Cursor | None, SluiceError]]:
    """See `sluice.instance.sources.starts.find_first`."""
    oldest = position_at(config, bounds.history, bounds.oldest)

    def find(place: Cursor | None) -> Position:
        if place is None:
            return oldest
        found = place.position
        if found is None or not found.same_history(oldest) or found.begin > bounds.end:
            raise SourceChangedError(
                f"{found or place.journal} is not a place of {config.source_title}, history {bounds.history}, which"
                f" ends at offset {bounds.end}"
            )
        if found.begin < bounds.oldest:
            raise PurgedError(
                f"{config.source_title} begins at offset {bounds.oldest}, after {found}: changes in between are lost"
            )
        return found

    return starts.find_first(places, find, lambda: oldest)


def take_apart(config: PluginConfig, piece: Piece, file: str, begin: int) -> list[Read]:
    """Return the entries of a piece, which begins there. Raises SourceError before anything of it is staged."""
    try:
        return [_entry(it, file, begin) for it in Messages.FromString(piece.data).messages]
    except (DecodeError, ValueError) as error:
        raise SourceError(
            f"{config.source_title}: the piece from offset {begin} has what are no entries of Canal: {error}"
        ) from None


def _entry(data: bytes, file: str, begin: int) -> Read:
    entry = Entry.FromString(data)
    header = entry.header
    header.logfileName, header.logfileOffset = file, begin
    table, rows, event_type = (header.schemaName, header.tableName), 0, header.eventType
    if entry.entryType != EntryType.ROWDATA:
        if entry.entryType not in KINDS:
            raise ValueError(f"an entry has the type {entry.entryType}")
        kind, event_type = KINDS[entry.entryType], EventType.EVENTTYPECOMPATIBLEPROTO2
    else:
        change = RowChange.FromString(entry.storeValue)
        kind = Kind.DDL if change.isDdl else Kind.ROW_DATA if event_type in ROWS else Kind.QUERY
        if kind == Kind.ROW_DATA and not (all(table) and change.rowDatas):
            raise ValueError("a change has no rows, or no schema or table")
        rows = len(change.rowDatas) if kind == Kind.ROW_DATA else 0
    return Read(entry.SerializeToString(), kind, event_type, table, rows, max(0, header.executeTime))


class PluginParser(UnaskedParser):
    """Reads a source of another package: see `sluice.instance.source.Parser`."""

    _config: PluginConfig

    def __init__(
        self,
        config: PluginConfig,
        ring: Ring,
        *,
        start: Cursor | None,
        later: Sequence[Cursor | None] = (),
        on_begin: Callable[[Position | None, GtidSet | None], None],
        on_state: Callable[[str, str], None],
        epoch: int = 0,
        stop: Position | None = None,
    ) -> None:
        """See `sluice.instance.source.ParserFactory`."""
        del epoch  # it writes nowhere
        super().__init__(config.destination, (start, *later), on_state)
        self._config = config
        self._ring, self._staging, self._writer = ring, Staging(), SegmentWriter(ring.pool)
        self._filter = config.table_filter()
        self._on_begin = on_begin
        self._end = None if stop is None else (stop.begin, stop.n)
        self._next: Position | None = None  # what follows what was put
        self._source = ring.sources.intern(("", config.source))
        self._tables: set[tuple[str, str]] = set()
        self._bytes = self._pieces = self._connections = 0
        self._late: threading.Thread | None = None  # asks, and has not ended in time

    # --- what any thread may ask

    @property
    def status(self) -> ParserStatus:
        """How far it is."""
        return ParserStatus(
            behind=self._behind(),
            received_bytes=self._bytes,
            events=self._pieces,
            transactions=self._pieces,
            connections=self._connections,
        )

    def end(self) -> Position:
        """Ask the source for its end. Raises SourceError."""
        bounds = self._bounds()
        return position_at(self._config, bounds.history, bounds.end)

    def find_place(self, wanted: int | str | None) -> Cursor:
        """See `sluice.instance.source.Parser.find_place`: only the oldest place is known."""
        if isinstance(wanted, str):
            raise BadPositionError(f"not a position, nor a time: {wanted[:200]!r}")
        if wanted is not None:
            raise SourceError(f"{self._config.source_title} cannot be asked for the place of a time")
        bounds = self._bounds()
        return Cursor.at(position_at(self._config, bounds.history, bounds.oldest))

    def columns(self, schema: str, table: str, at: Position | None = None) -> list[SourceColumn]:
        """Raise UnknownTableError: the entries alone say what columns they have."""
        del at
        raise UnknownTableError(f"{schema}.{table}: {self._config.source_title} is not asked for columns")

    def tables(self) -> list[tuple[str, str]]:
        """Return the tables of which a change was read."""
        return sorted(self._tables)

    def table_reader(self) -> TableReader:
        """See `sluice.instance.source.Parser.table_reader`: it gives changes only."""
        raise NotConfiguredError(f"{self._config.source_title} has no tables that a snapshot could read")

    def announce(self, change: str) -> None:
        """See `sluice.instance.source.Parser.announce`: only a log on disk has something to say, and there is none."""

    def refilter(self, table_filter: TableFilter) -> None:
        """Use another filter, from the next piece on."""
        self._filter = table_filter

    def stop(self) -> None:
        """Tell the thread to end, and return at once."""
        super().stop()
        self._ring.wake()

    # --- the thread

    def _bounds(self) -> Bounds:
        """Ask an object of its own, for any thread. Raises SourceError, also when it takes too long.

        One that hangs is left: else it would keep the threads that all destinations share, and the process.
        """
        title = f"{self._config.source_title} (sluice.instance.source = {self._config.source})"
        if self._late is not None and self._late.is_alive():
            raise SourceError(f"{title}: the last call has taken more than {PATIENCE:g} s, and still goes on")
        done: Future[Bounds] = Future()

        def ask() -> None:
            try:
                with closing(Asking(self._config)) as source:
                    found = source.bounds()
                done.set_result(found)
            except BaseException as error:  # noqa: BLE001  for whoever waits
                done.set_exception(error)

        asking = threading.Thread(target=ask, name=f"ask {self._config.destination}", daemon=True)
        asking.start()
        try:
            return done.result(PATIENCE)
        except TimeoutError:
            self._late = asking
            raise SourceError(f"{title}: it has not said within {PATIENCE:g} s what it has") from None

    def _progress(self) -> int:
        return self._pieces

    def _close(self) -> None:
        self._staging.clear()
        self._writer.close()

    def _read(self) -> None:
        with closing(Asking(self._config)) as source:
            self._read_source(source)

    def _read_source(self, source: Asking) -> None:
        """Read until told to stop, or up to the stop position. Raises SluiceError."""
        bounds = source.bounds()
        is_new = self._next is None
        places = self._places if self._next is None else (Cursor.at(self._next),)
        start, refused = find_first(self._config, bounds, places)
        if is_new:
            self.refused = {place: error for place, error in refused.items() if place is not None}
        if start is None:
            raise next(iter(refused.values()))
        file = self._ring.files.intern(start.file_key)
        self._connections += 1
        if is_new:
            self._next = start
            self._on_begin(start, None)
        offset, skipped = start.begin, start.n
        for piece in source.pieces(offset):
            self._set_state("running", "")
            self.failure = None
            if self._stopping.is_set() or (self._end is not None and (offset, 0) >= self._end):
                return
            if piece is None:
                self._read_until = time.monotonic()
                self._stopping.wait(PAUSE)
                continue
            entries = take_apart(self._config, piece, start.file, offset)
            if not self._put(entries, file, offset, piece.end, skipped):
                return
            skipped = 0
            self._bytes += len(piece.data)
            self._pieces += 1
            offset = piece.end
            self._next = position_at(self._config, bounds.history, offset)

    def _put(self, entries: Sequence[Read], file: int, begin: int, end: int, skipped: int) -> bool:
        """Put a piece from an entry on, as far as it is wanted; False when it is to stop."""
        last = len(entries) - 1
        kept = [number for number, it in enumerate(entries) if self._passes(it)]
        if not kept or kept[-1] != last:  # a place after the piece is needed, for cursors
            kept.append(last + 1)
        for number in kept:
            if number < skipped or (self._end is not None and (begin, number) >= self._end):
                continue
            is_last = number == kept[-1]
            place = {"file": file, "begin": begin, "n": number, "next_file": file, "source": self._source}
            place |= {"next_begin": end} if is_last else {"next_begin": begin, "next_n": number + 1}
            flags = Flag.BOUNDARY if is_last else Flag(0)
            if number <= last and entries[number].kind == Kind.QUERY:
                flags |= Flag.TEXT  # no filter or condition can be applied to it
            if number > last:
                self._staging.add_entry(self._writer, Kind.ADVANCE, flags=flags, event_offset=begin, **place)
                continue
            it = entries[number]
            self._writer.write_framed(it.data)
            self._staging.add_entry(
                self._writer,
                it.kind,
                flags=flags,
                event_type=it.event_type,
                table=self._ring.tables.intern(it.table) if any(it.table) else 0,
                rows=it.rows,
                execute_ms=it.execute_ms,
                event_offset=begin,
                **place,
            )
            if self._staging.bytes > FULL and not self._ring.put(self._staging, self._stopping):
                return False
        return not self._staging.count or self._ring.put(self._staging, self._stopping)

    def _passes(self, it: Read) -> bool:
        if it.kind in (Kind.TRANSACTION_BEGIN, Kind.TRANSACTION_END) or not any(it.table):
            return True
        if len(self._tables) < MOST_TABLES and it.rows:
            self._tables.add(it.table)
        return self._filter.accepts(*it.table)
