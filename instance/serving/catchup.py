"""Catching up: readers of the log or the source, for what is no longer in the ring.

A reader has a ring of its own. One that serves ranges is shared: ranges that overlap or follow each other, such as the
parts of one, are read from the source once. A subscriber that is behind the ring has a reader for itself. They take
turns (`sluice.store.patience`).
"""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial, reduce

from ...protocol.cut import Before
from ...protocol.errors import DestinationStoppedError, SluiceError, SourceError
from ...protocol.position import Position
from ...store.batch import Range, RangeLimits
from ...store.cursor import Cursor
from ...store.cursors import Cursors
from ...store.patience import Holder, Turns
from ...store.ring import Collected, Flag, Ring
from ...store.track import Chosen, Track, Wanted, WantedSlots
from ..config import InstanceConfig
from ..source import LOST, Feed, FeedFactory

logger = logging.getLogger(__name__)

LONGEST_QUEUE = 8.0
"""Seconds that a range waits for a reader; asked for again it waits after the others."""
CLOSING = 3.0
"""Seconds that a reader has to end."""
CHUNK = 256 * 1024
"""Bytes of entries that are handed on at a time."""


class Reader:
    """What fills a ring of its own, from a place on. All methods belong to the event loop."""

    def __init__(
        self, config: InstanceConfig, make_feed: FeedFactory, start: Cursor, on_change: Callable[[], None]
    ) -> None:
        """Start to read; ``on_change`` is called when there is more to read, or the reader has failed."""
        config = config.for_reader()
        self.ring = Ring(config.memory_buffer_size, config.memory_buffer_size * config.memory_buffer_memunit)
        self.track = Track(self.ring)
        self.error: SluiceError | None = None
        self._on_change = on_change
        self._loop = asyncio.get_running_loop()
        self._notified = threading.Event()
        self.ring.on_put = self._notify
        if start.position is not None:  # from the start of its transaction, so that the BEGIN is read too
            start = replace(start, position=start.position.transaction)
        self._feed: Feed = make_feed(
            config, self.ring, start=start, on_begin=self._begin, on_state=lambda _state, _text: self._notify()
        )
        self._feed.start()

    def close(self) -> None:
        """Stop reading. What was read stays valid while it is referenced."""
        self._feed.stop()
        self.ring.close()
        self.ring.on_put = None

    def join(self, timeout: float) -> None:
        """Wait until it has ended."""
        self._feed.join(timeout)

    def _begin(self, position: Position | None, gtids: Before) -> None:
        if position is not None:
            self.track.begin(position)
            if isinstance(gtids, dict):  # they tell where a client is whose member has another server now
                self.track.gtids = gtids

    def _notify(self) -> None:
        if not self._notified.is_set():
            self._notified.set()
            self._loop.call_soon_threadsafe(self._changed)

    def _changed(self) -> None:
        self._notified.clear()
        if not self.ring.closed:
            self._say(self._feed.failure)
            self._on_change()

    def _say(self, error: SluiceError | None) -> None:
        if str(error) != str(self.error) and error is not None and not isinstance(error, LOST):
            logger.warning("what is behind the ring cannot be read, it is tried again: %s", error)
        self.error, self.track.trouble = error, str(error or "")


class SharedRange:
    """A range that is read by a shared reader, turn after turn: where it goes on, and where that is in the ring."""

    def __init__(self, shared: "SharedReader", from_: Position, to: Position, wanted: Wanted) -> None:
        """It reads from ``from_`` up to ``to`` at most what is wanted."""
        self.place = from_
        """What is before it was read; the reader keeps what follows."""
        self.to = to
        self.hungry = False
        """It waits for the reader."""
        self._shared = shared
        self._wanted = wanted
        self._track: Track | None = None
        self._slots: WantedSlots | None = None
        self._sequence: int | None = None

    def locate(self, track: Track) -> int | None:
        """Return the next slot to read in the ring of the reader; None while the ring has not reached it."""
        if self._track is not track:  # the reader of another turn
            self._track, self._sequence = track, None
            self._slots = WantedSlots(track.ring, self._wanted)
        if self._sequence is None:
            self._sequence = track.sequence_of(self.place)
        return self._sequence

    async def chunks(self, *, transactions: bool) -> AsyncIterator[Collected]:
        """Read to the end, piece by piece: what `Ring.read` gives for the whole. ``place`` is where a piece ends."""
        while True:
            track = self._shared.track
            sequence = None if track is None else self.locate(track)
            if track is not None and sequence is not None:
                ring, stop = track.ring, track.stop_of(self.to)
                sequence, end, stop = self._reach(track, sequence, stop)
                read = partial(ring.read, max_bytes=CHUNK, transactions=transactions, **self._chosen())
                found = read(sequence, end, whole=stop is not None)
                if found.stop == sequence < end == ring.next and ring.waiting:  # a BEGIN, and no room for what follows
                    found = read(sequence, sequence + 1, whole=True)
                self._advance(track, found.stop)
                if stop is None:
                    self._check(end, found.entries)
                if found.entries:
                    yield found  # the reader may be another one when this comes back
                if found.stop == stop:
                    return
                if found.stop > sequence:
                    continue
            await self._more()

    async def range(self, limits: RangeLimits) -> Range:
        """Return the range that begins here, as far as the limits allow (see `Ring.cut`)."""
        after = self.place
        while True:
            track = self._shared.track
            sequence = None if track is None else self.locate(track)
            if track is not None and sequence is not None:
                ring, stop = track.ring, track.stop_of(self.to)
                sequence, until, stop = self._reach(track, sequence, stop)
                inside = stop is not None or (ring.waiting and until == ring.next) or self._is_refused(until)
                found, entries = ring.cut(
                    sequence, until, max_rows=limits.rows, max_bytes=limits.bytes, inside=inside, **self._chosen()
                )
                to = after.join(track.position_before(found) or after).meet(self.to)
                if stop is None:
                    self._check(until, entries)
                if entries:
                    read = ring.read(sequence, found, **self._chosen())
                    is_partial = not ring.slot(found - 1).flags & Flag.BOUNDARY
                    reached = limits.until is not None and limits.until.precedes(to)
                    return Range(-1, str(after), str(to), read.entries, read.rows, read.bytes, is_partial, reached)
                if stop is not None:
                    return Range(-1, str(after), str(self.to), 0, 0, 0, partial=False, reached=self.to == limits.until)
                if found != self._sequence:
                    self._advance(track, found)
                    continue
            await self._more()

    def _advance(self, track: Track, sequence: int) -> None:
        """Say that what is before a slot was read."""
        if sequence != self._sequence:
            self._sequence = sequence
            self.place = self.place.join(track.position_before(sequence) or self.place).meet(self.to)
            self._shared.has_moved = True
        self._shared.heard = time.monotonic()

    def _chosen(self) -> Chosen:
        assert self._slots is not None
        return self._slots.chosen()

    def _reach(self, track: Track, sequence: int, stop: int | None) -> tuple[int, int, int | None]:
        """Return the next slots of the range up to ``stop``, or so far, as far as a condition is judged: [start, end).

        The third is ``stop``, None if that is after ``end``.
        """
        assert self._slots is not None
        last = track.ring.next if stop is None else max(stop, sequence)
        start, end = next(track.spans(sequence, last, self.place, self.to), (last, last))
        reached = self._slots.reach(start, end)
        return start, reached, stop if reached == last else None

    def _is_refused(self, sequence: int) -> bool:
        return self._slots is not None and self._slots.refusal(sequence) is not None

    def _check(self, end: int, entries: int) -> None:
        """Raise why a condition cannot be judged of a slot, when there is nothing before it any more."""
        assert self._slots is not None
        if not entries and (refusal := self._slots.refusal(end)) is not None:
            raise refusal

    async def _more(self) -> None:
        """Wait until the reader has read more, or another turn has begun."""
        self.hungry = True
        try:
            await self._shared.more()
        finally:
            self.hungry = False


class SharedReader:
    """A reader of ranges, which share it. In each of its turns it goes on where the first of them is."""

    def __init__(
        self,
        who: Holder,
        make: Callable[[Cursor, Callable[[], None]], Reader],
        start: Position,
        ask: Callable[[], None],
    ) -> None:
        """``make`` makes a reader, which begins at ``start`` in the turn of ``who``.

        ``ask`` asks for another turn, and for conditions on rows to be judged.
        """
        self.who = who
        self.ranges: list[SharedRange] = []
        self.heard = time.monotonic()
        """When it was used last."""
        self.has_moved = False
        """One of the ranges has moved on in this turn."""
        self.reader: Reader | None = None
        """None between two turns."""
        self._make = make
        self._ask = ask
        self._changed = asyncio.Event()
        self._error: SluiceError | None = None
        """Why it will get no further turn."""
        self.begin(start)

    @property
    def track(self) -> Track | None:
        """What its reader reads; None between two turns. Raises the error if it will get no further turn."""
        if self._error is not None:
            raise self._error
        return None if self.reader is None else self.reader.track

    @property
    def hungry(self) -> bool:
        """Whether a range waits for the reader."""
        return any(it.hungry for it in self.ranges)

    def begin(self, start: Position | None = None) -> None:
        """Begin a turn, at the first of the ranges if no place is given."""
        self._start = start or reduce(Position.meet, (it.place for it in self.ranges))
        self._reach = reduce(Position.join, (it.to for it in self.ranges), self._start)
        self.has_moved = False
        self.reader = self._make(Cursor.at(self._start), self._on_change)

    def end(self, error: SluiceError | None = None) -> Reader | None:
        """End the turn, for ever with an error; return its reader, which is to be closed."""
        reader, self.reader, self._error = self.reader, None, error
        self.wake()
        return reader

    def covers(self, from_: Position) -> bool:
        """Whether a range from that place is or will be read anyway."""
        if self.reader is None or self.reader.error is not None:
            return False
        floor = self.reader.track.floor if self.reader.ring.first > 0 else self._start
        if floor is None or not floor.same_history(from_) or not floor.precedes(from_):
            return False
        end = self.reader.track.end
        return from_.precedes(self._reach) or (end is not None and end.same_history(from_) and from_.precedes(end))

    @contextmanager
    def open_range(self, from_: Position, to: Position, wanted: Wanted) -> Iterator[SharedRange]:
        """Read a range while the block lasts."""
        self._reach = self._reach.join(to)
        opened = SharedRange(self, from_, to, wanted)
        self.ranges.append(opened)
        try:
            yield opened
        finally:
            self.ranges.remove(opened)
            self.heard = time.monotonic()
            self.make_room()

    async def more(self) -> None:
        """Wait until the reader has read more, or another turn has begun. Raises why the reader has failed."""
        if self.reader is not None and self.reader.error is not None:
            raise self._reason(self.reader.error)
        changed = self._changed
        if self.reader is None or self.reader.ring.verdicts:  # what was read may have to be judged
            self._ask()
        if self.reader is not None:
            self.make_room()
        await changed.wait()

    @staticmethod
    def _reason(error: SluiceError) -> SluiceError:
        """Return what a range is told of a failure: whether it makes sense to ask for it again."""
        if isinstance(error, (SourceError, *LOST)):
            return error
        return SourceError(f"{error}: the source is read again from there, ask again")

    def make_room(self) -> None:
        """Drop what every range has passed, when the ring is full and one of them needs what comes next.

        Until then everything is kept: parts of a range are asked for one after the other, and some again.
        """
        if self.reader is None or not (self.reader.ring.waiting and self.hungry):
            return
        ring = self.reader.ring
        places = [it.locate(self.reader.track) for it in self.ranges]
        least = min((place for place in places if place is not None), default=ring.next)
        if least > ring.first:
            ring.free_to(least)

    def wake(self) -> None:
        """Let the ranges look again."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _on_change(self) -> None:
        self.wake()
        self.make_room()


class CatchUp:
    """The readers of a destination; `turns` says which clients and ranges have one."""

    def __init__(self, config: InstanceConfig, make_feed: FeedFactory, on_change: Callable[[], None]) -> None:
        """``on_change`` is called when the reader of a subscriber has something new, or a range wants a reader."""
        self.config = config
        """The configuration of readers that are made from now on."""
        self.turns = Turns(config.catch_up_readers, config.detach_after)
        self.clients: dict[int, Reader] = {}
        """By `Clients.key`."""
        self._shared: list[SharedReader] = []
        self._make_feed = make_feed
        self._on_change = on_change
        self._requests = 0
        self._changed = asyncio.Event()
        self._closed = False
        self._closing: set[asyncio.Task[None]] = set()

    def reconfigure(self, config: InstanceConfig) -> None:
        """Make readers as is configured there from now on."""
        self.config = config

    @property
    def count(self) -> int:
        """How many readers there are."""
        return len(self.clients) + sum(shared.reader is not None for shared in self._shared)

    @property
    def rings(self) -> list[Ring]:
        """The rings of the readers."""
        readers = [*self.clients.values(), *(shared.reader for shared in self._shared if shared.reader is not None)]
        return [reader.ring for reader in readers]

    def wake(self) -> None:
        """Let the ranges that are read look again."""
        for shared in self._shared:
            shared.wake()

    def tend(self, cursors: Cursors, now: float) -> None:
        """Take readers from those whose turns are over, and give them to the next ones, views' clients too."""
        if self._closed:
            return
        self._ask_for_ranges(now)
        for it in cursors.with_views:
            it.readers.take_turns(self.turns, now)
        self._end_turns(cursors, now)
        self._begin_turns(cursors, now)

    def _ask_for_ranges(self, now: float) -> None:
        for shared in self._shared:
            if shared.hungry:
                self.turns.ask(shared.who, now)
            elif shared.reader is not None:
                self.turns.ask(shared.who, shared.heard)
            if shared.reader is not None and (shared.has_moved or not shared.ranges):
                self.turns.move(shared.who, now)

    def _end_turns(self, cursors: Cursors, now: float) -> None:
        finished = self.turns.finished(now)
        for shared in list(self._shared):
            failed = shared.reader is not None and shared.reader.error is not None
            if not shared.ranges and (shared.who in finished or shared.reader is None or failed):
                self._drop(shared)
            elif shared.who in finished:
                self._end_turn(shared)
        reading = {each.clients.key(it) for each in cursors.with_views for it in each.readers.catching_up}
        for key in self.clients.keys() - reading:  # joined, gone, or waiting for their next turn
            self.close_client(key)

    def _begin_turns(self, cursors: Cursors, now: float) -> None:
        behind = {
            each.clients.key(client_id): (each, client_id, cursor)
            for each in cursors.with_views
            for client_id, cursor in each.readers.behind.items()
        }
        while (who := self.turns.begin(now)) is not None:
            kind, key = who
            if kind == "ranges":
                for shared in self._shared:
                    if shared.who == who:
                        shared.begin()
                self._wake()
            elif key in behind:
                own, client_id, cursor = behind[key]
                place = cursor.position or f"{cursor.journal}:{cursor.offset}"
                logger.info("client %d catches up from %s", client_id, place)
                reader = self.clients[key] = self._make_reader(cursor, self._on_change)
                own.readers.start(client_id, reader.track)
            else:
                self.turns.leave(who)

    def close_client(self, key: int) -> None:
        """Close the reader of a subscriber."""
        self._close(self.clients.pop(key))
        self.turns.leave(("client", key))

    @asynccontextmanager
    async def open_range(self, from_: Position, to: Position, wanted: Wanted) -> AsyncGenerator[SharedRange]:
        """Read what is wanted of a range while the block lasts, by a reader that has it or a new one.

        Raises:
            SourceError: all readers are in use, and none was free in time.
        """
        shared = self._covering(from_) or await self._reader_for(from_)
        with shared.open_range(from_, to, wanted) as opened:
            self._wake()
            yield opened

    async def close(self) -> None:
        """Close all readers, and wait until they have ended."""
        self._closed = True
        for key in list(self.clients):
            self.close_client(key)
        for shared in list(self._shared):
            self._drop(shared, DestinationStoppedError("the destination was stopped"))
        if self._closing:
            await asyncio.wait(self._closing)

    def _make_reader(self, start: Cursor, on_change: Callable[[], None]) -> Reader:
        return Reader(self.config, self._make_feed, start, on_change)

    def _covering(self, from_: Position) -> SharedReader | None:
        """Return a reader that reads a place anyway, and whose turn is not over."""
        now = time.monotonic()
        covering = (it for it in self._shared if it.covers(from_) and not self.turns.is_over(it.who, now))
        return next(covering, None)

    async def _reader_for(self, from_: Position) -> SharedReader:
        """Wait for a turn to make a reader, or for a reader that will read the place anyway."""
        self._requests += 1
        who: Holder = ("ranges", self._requests)
        deadline = time.monotonic() + LONGEST_QUEUE
        try:
            while (shared := self._covering(from_)) is None:
                if self._closed:
                    raise DestinationStoppedError("the destination was stopped")
                now = time.monotonic()
                if self.turns.has(who):
                    logger.info("reading again from %s", from_)
                    shared = SharedReader(who, self._make_reader, from_, self._on_change)
                    self._shared.append(shared)
                    break
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
        """Make the ranges that wait for a reader look again."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _drop(self, shared: SharedReader, error: SluiceError | None = None) -> None:
        self._shared.remove(shared)
        self._end_turn(shared, error)

    def _end_turn(self, shared: SharedReader, error: SluiceError | None = None) -> None:
        self.turns.leave(shared.who)
        reader = shared.end(error)
        if reader is not None:
            self._close(reader)

    def _close(self, reader: Reader) -> None:
        reader.close()
        closing = asyncio.create_task(asyncio.to_thread(reader.join, CLOSING))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
