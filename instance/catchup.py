"""Catching up: parsers of their own on the source, for what is no longer in the ring.

A reader has a ring of its own. One that serves ranges is shared: ranges that overlap or follow each other, such as the
parts of one, are read from the source once. A subscriber that is behind the ring has a reader for itself. They take
turns (`sluice.store.patience`).
"""

import asyncio
import contextlib
import functools
import logging
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace

from sluice.instance.config import InstanceConfig
from sluice.instance.source import Parser, ParserFactory
from sluice.protocol.errors import DestinationStoppedError, SluiceError, SourceError
from sluice.protocol.gtid import GtidSet
from sluice.protocol.position import Position
from sluice.store.batch import Range, RangeLimits
from sluice.store.cursor import Cursor
from sluice.store.cursors import Cursors
from sluice.store.patience import Reading, Turns
from sluice.store.ring import Collected, Flag, Ring
from sluice.store.track import TableFilter, TableMask, Track

logger = logging.getLogger(__name__)

LONGEST_QUEUE = 8.0
"""Seconds that a range waits for a reader; asked for again it waits after the others."""
CLOSING = 3.0
"""Seconds that the parser of a reader has to end."""
CHUNK = 256 * 1024
"""Bytes of entries that are handed on at a time."""


class Reader:
    """A parser of its own, from a place on, into a ring of its own. All methods belong to the event loop."""

    def __init__(
        self, config: InstanceConfig, make_parser: ParserFactory, start: Cursor, on_change: Callable[[], None]
    ) -> None:
        """Start to read; ``on_change`` is called when there is more to read, or the reader has failed."""
        config = config.model_copy(update={"slave_id": 0, "auto_reset_latest_pos_mode": False})
        self.ring = Ring(config.memory_buffer_size, config.memory_buffer_size * config.memory_buffer_memunit)
        self.track = Track(self.ring)
        self.error: SluiceError | None = None
        self._on_change = on_change
        self._loop = asyncio.get_running_loop()
        self._notified = threading.Event()
        self.ring.on_put = self._notify
        if start.position is not None:  # from the begin of its transaction, so that this has its BEGIN
            start = replace(start, position=replace(start.position, n=0))
        self._parser: Parser = make_parser(
            config, self.ring, start=start, on_begin=self._begin, on_state=lambda _state, _text: self._notify()
        )
        self._parser.start()

    def close(self, error: SluiceError | None = None) -> None:
        """Stop the parser, because of an error. What was read stays valid for those who hold it."""
        self._parser.stop()
        self.ring.close()
        self.ring.on_put = None
        self.error = error or self.error or DestinationStoppedError("the catch-up reader was closed")

    def join(self, timeout: float) -> None:
        """Wait until the parser has ended."""
        self._parser.join(timeout)

    def _begin(self, position: Position | None, gtids: GtidSet | None) -> None:
        del gtids
        if position is not None:
            self.track.begin(position)

    def _notify(self) -> None:
        if not self._notified.is_set():
            self._notified.set()
            self._loop.call_soon_threadsafe(self._changed)

    def _changed(self) -> None:
        self._notified.clear()
        if not self.ring.closed:
            self.error = self._parser.failure
            self._on_change()


class Window:
    """A part of a shared reader's ring that somebody reads through."""

    def __init__(self, shared: "SharedReader", from_: Position) -> None:
        """``from_`` is where it begins; the reader keeps what follows until `advance`."""
        self._shared = shared
        self._from = from_
        self.ring = shared.reader.ring
        self.track = shared.reader.track
        self.sequence: int | None = None
        self.hungry = False
        self.locate()

    def locate(self) -> int | None:
        """Return the next slot to read; None while the reader has not come to it."""
        if self.sequence is None:
            self.sequence = self.track.sequence_of(self._from)
        return self.sequence

    def advance(self, sequence: int) -> None:
        """Say that what lies before a slot was read."""
        self.sequence = sequence
        self._shared.heard = time.monotonic()

    async def more(self) -> None:
        """Wait until the reader has read more."""
        if self._shared.reader.error is not None:
            raise self._shared.reader.error
        self.hungry = True
        changed = self._shared.changed
        self._shared.make_room()
        try:
            await changed.wait()
        finally:
            self.hungry = False

    async def chunks(self, to: Position, mask: TableMask | None, *, transactions: bool) -> AsyncIterator[Collected]:
        """Read up to a position, piece by piece: what `Ring.read` gives for the whole."""
        while True:
            self._check_open()
            sequence = self.locate()
            stop = None if sequence is None else self.track.sequence_of(to)
            if sequence is not None:
                end = self.ring.next if stop is None else max(stop, sequence)
                found = self._read(sequence, end, mask, transactions=transactions, whole=stop is not None)
                if found.stop == sequence < end and self.ring.waiting:  # a BEGIN, and no room for what follows
                    found = self._read(sequence, sequence + 1, mask, transactions=transactions, whole=True)
                if found.entries:
                    yield found
                self.advance(found.stop)
                if found.stop > sequence:
                    continue
                if found.stop == stop:
                    return
            await self.more()

    async def range(self, after: Position, end: Position, limits: RangeLimits, mask: TableMask | None) -> Range:
        """Return the range that follows a position, up to ``end`` or as far as the limits allow (see `Ring.cut`)."""
        while True:
            self._check_open()
            sequence = self.locate()
            stop = None if sequence is None else self.track.sequence_of(end)
            if sequence is not None:
                allowed = None if mask is None else mask.current()
                until = self.ring.next if stop is None else max(stop, sequence)
                inside = stop is not None or self.ring.waiting
                found, entries = self.ring.cut(
                    sequence, until, max_rows=limits.rows, max_bytes=limits.bytes, inside=inside, allowed=allowed
                )
                to = self.track.position_before(found) or after
                if entries:
                    read = self.ring.read(sequence, found, allowed=allowed)
                    partial = not self.ring.slot(found - 1).flags & Flag.BOUNDARY
                    reached = limits.until is not None and to >= limits.until
                    return Range(-1, str(after), str(to), read.entries, read.rows, read.bytes, partial, reached)
                if stop is not None:
                    return Range(-1, str(after), str(end), 0, 0, 0, partial=False, reached=end == limits.until)
                self.advance(found)
            await self.more()

    def _check_open(self) -> None:
        if self.ring.closed and self._shared.reader.error is not None:
            raise self._shared.reader.error

    def _read(self, start: int, stop: int, mask: TableMask | None, *, transactions: bool, whole: bool) -> Collected:
        allowed = None if mask is None else mask.current()
        return self.ring.read(start, stop, max_bytes=CHUNK, transactions=transactions, whole=whole, allowed=allowed)


class SharedReader:
    """A reader for ranges, and the windows on it."""

    def __init__(self, who: Reading, make: Callable[[Cursor, Callable[[], None]], Reader], start: Position) -> None:
        """``make`` makes the reader, which begins at ``start``; ``who`` has the turn."""
        self.who = who
        self.changed = asyncio.Event()
        self.windows: list[Window] = []
        self.heard = time.monotonic()
        """When it was used last."""
        self._start = start
        self._reach = start
        self.reader = make(Cursor(start.file, start.begin, 0, 0, position=start), self._on_change)

    def covers(self, from_: Position) -> bool:
        """Whether a range from there on is or will be read anyway."""
        if self.reader.error is not None:
            return False
        floor = self.reader.track.floor if self.reader.ring.first > 0 else self._start
        if floor is None or not floor.same_history(from_) or from_ < floor:
            return False
        end = self.reader.track.end
        return from_ <= self._reach or (end is not None and end.same_history(from_) and from_ <= end)

    @contextmanager
    def window(self, from_: Position, to: Position) -> Iterator[Window]:
        """Open a window on a range."""
        self._reach = max(self._reach, to)
        window = Window(self, from_)
        self.windows.append(window)
        try:
            yield window
        finally:
            self.windows.remove(window)
            self.heard = time.monotonic()
            self.make_room()

    def make_room(self) -> None:
        """Drop what every window has passed, when the ring is full and somebody needs what comes next.

        Until then everything is kept: parts of a range are asked for one after the other, and some again.
        """
        ring = self.reader.ring
        if ring.waiting and any(window.hungry for window in self.windows):
            for window in self.windows:  # the reader may just have come to it
                window.locate()
            least = min((it.sequence for it in self.windows if it.sequence is not None), default=ring.next)
            if least > ring.first:
                ring.free_to(least)

    def wake(self) -> None:
        """Let the windows look again."""
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()

    def _on_change(self) -> None:
        self.wake()
        self.make_room()


class CatchUp:
    """The readers of a destination. Who has one, `turns` says."""

    def __init__(self, config: InstanceConfig, make_parser: ParserFactory, on_change: Callable[[], None]) -> None:
        """``on_change`` is called when the reader of a subscriber has something new, or somebody wants a reader."""
        self.config = config
        """Of readers that are made from now on."""
        self.turns = Turns(config.catch_up_readers, config.detach_after)
        self.clients: dict[int, Reader] = {}
        self._shared: list[SharedReader] = []
        self._make_parser = make_parser
        self._on_change = on_change
        self._requests = 0
        self._changed = asyncio.Event()
        self._closed = False
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def count(self) -> int:
        """How many readers there are."""
        return len(self.clients) + len(self._shared)

    def tend(self, cursors: Cursors, now: float) -> None:
        """Take readers from those who have had their turns, and give them to those whose turn comes."""
        for shared in self._shared:
            self.turns.ask(shared.who, shared.heard)
            self.turns.set_busy(shared.who, busy=bool(shared.windows))
        cursors.take_turns(self.turns, now)
        finished = self.turns.finished(now)
        for shared in list(self._shared):
            if shared.who in finished or (shared.reader.error is not None and not shared.windows):
                self._drop(shared, SourceError("the catch-up reader was needed by others: read on from the last place"))
        for client_id in self.clients.keys() - cursors.catching_up:  # joined, gone, or waiting for their next turn
            self.close_client(client_id)
        behind = cursors.behind
        while (who := self.turns.begin(now)) is not None:
            kind, client_id = who
            if kind == "ranges":
                self._wake()
            elif client_id in behind:
                cursors.catch_up(client_id, self._for_client(client_id, behind[client_id]).track)
            else:
                self.turns.leave(who)

    def close_client(self, client_id: int) -> None:
        """Close the reader of a subscriber."""
        self._close(self.clients.pop(client_id))
        self.turns.leave(("client", client_id))

    @asynccontextmanager
    async def window(self, from_: Position, to: Position) -> AsyncGenerator[Window]:
        """Open a window on a range, on a reader that has it or a new one.

        Raises:
            SourceError: all readers are at work, and none was free in time.
        """
        shared = self._covering(from_) or await self._reader_for(from_)
        with shared.window(from_, to) as window:
            self._wake()
            yield window

    async def close(self) -> None:
        """Close all readers, and wait for their ends."""
        self._closed = True
        for client_id in list(self.clients):
            self.close_client(client_id)
        for shared in list(self._shared):
            self._drop(shared)
        if self._closing:
            await asyncio.wait(self._closing)

    def _for_client(self, client_id: int, cursor: Cursor) -> Reader:
        logger.info("client %d catches up from %s", client_id, cursor.position or f"{cursor.journal}:{cursor.offset}")
        reader = self.clients[client_id] = Reader(self.config, self._make_parser, cursor, self._on_change)
        return reader

    def _covering(self, from_: Position) -> SharedReader | None:
        """Return a reader that reads a place anyway, and is not to be left to others."""
        now = time.monotonic()
        covering = (it for it in self._shared if it.covers(from_) and not self.turns.is_over(it.who, now))
        return next(covering, None)

    async def _reader_for(self, from_: Position) -> SharedReader:
        """Wait for a turn to make a reader, or for one that comes to read the place anyway."""
        self._requests += 1
        who: Reading = ("ranges", self._requests)
        deadline = time.monotonic() + LONGEST_QUEUE
        try:
            while (shared := self._covering(from_)) is None:
                now = time.monotonic()
                if self.turns.has(who):
                    logger.info("reading again from %s", from_)
                    shared = SharedReader(who, functools.partial(Reader, self.config, self._make_parser), from_)
                    self._shared.append(shared)
                    break
                if self._closed:
                    raise DestinationStoppedError("the destination was stopped")
                if now >= deadline or not self.turns.places:
                    raise SourceError(
                        f"all {self.turns.places} catch-up readers (sluice.instance.catchUp.readers) are at work:"
                        " try again"
                    )
                self.turns.ask(who, now)
                changed = self._changed
                self._on_change()
                if not self.turns.has(who):
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(min(deadline - now, 1.0)):
                            await changed.wait()
            return shared
        finally:
            if all(it.who != who for it in self._shared):
                self.turns.leave(who)

    def _wake(self) -> None:
        """Let the ranges that wait for a reader look again."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _drop(self, shared: SharedReader, error: SluiceError | None = None) -> None:
        self._shared.remove(shared)
        self._close(shared.reader, error)
        self.turns.leave(shared.who)
        shared.wake()

    def _close(self, reader: Reader, error: SluiceError | None = None) -> None:
        reader.close(error)
        closing = asyncio.create_task(asyncio.to_thread(reader.join, CLOSING))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)


def mask_of(track: Track, wanted: TableFilter | None) -> TableMask | None:
    """Return a filter as the ring of a track wants it; None for no filter."""
    return None if wanted is None else TableMask(track.ring, wanted)
