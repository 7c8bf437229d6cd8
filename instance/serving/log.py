"""The log of a destination at work: what the ring gets is written to it, and clients that are behind read from it."""

import asyncio
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Final

from ...protocol.cut import Before, Cut, executed_at, executed_text, has_executed, parse_executed, places_in
from ...protocol.errors import ConfigError, GoneError, SluiceError, SourceChangedError
from ...protocol.position import Position
from ...store.cursor import Cursor
from ...store.cursors import Cursors
from ...store.floor import Floor
from ...store.log.errors import LogError
from ...store.log.files import EntriesReader, Words, read_block, words_of, write_executed
from ...store.log.log import File, Limits, Log, Piece, take
from ...store.log.slots import unpack
from ...store.ring import Ring, Staging
from ...store.segment import SegmentWriter
from ...store.track import Track
from ..config import InstanceConfig
from ..context import current_destination
from ..files import make_private_folder
from ..meta.base import InUse
from ..source import LOST, Feed, FeedFactory

logger = logging.getLogger(__name__)

PIECES: Final = 4
"""Blocks that are written at a time."""
AGAIN: Final = 1.0
"""Seconds until what could not be written is tried again."""
FAR: Final = 600.0
"""Seconds by which the log may be behind all clients, and still be completed from the source."""
DRAINING: Final = 0.05
"""Seconds between two looks whether a ring is empty."""
IDLE: Final = 60.0
"""Seconds between two looks for files that are too old."""
RESTING: Final = 10.0
"""Seconds between two looks for files to be compressed."""
COMPRESSING: Final = ThreadPoolExecutor(1, "log compression")
"""For all logs of the process, so that it takes one core at most."""


def open_log(config: InstanceConfig, source: InUse | None = None) -> Log:
    """Open the log of a destination, without what was read of a source after it was left for another one.

    Raises ConfigError when it cannot be used.
    """
    until = None if source is None else _left_at(source)
    limits = Limits(config.store_max_bytes, config.store_max_age * 3600.0, config.store_min_free)
    folder = config.log_folder
    try:
        make_private_folder(folder)
        log = Log(folder, config.destination, limits, shows_synced=config.store == "file", until=until)
        try:
            _check_kind(log, config)
        except BaseException:
            log.close()
            raise
    except (OSError, LogError) as error:
        raise ConfigError(f"the log in {folder} (sluice.instance.store.dir) cannot be used: {error}") from error
    return log


def _left_at(source: InUse) -> Position | None:
    """Return up to where the servers were read that were read before; of a group a cut of the members with another."""
    if source.members:
        places = {name: Position.parse(it.since) for name, it in source.members.items() if it.since}
        return Cut(places) if places else None
    return Position.parse(source.since) if source.since else None


def _check_kind(log: Log, config: InstanceConfig) -> None:
    """Raise LogError for a log of a single source where the source is a group now, and the other way round."""
    end = log.end
    try:
        is_same = end is None or config.main.adopt(Cursor.at(end)).position == end
    except ConfigError:
        is_same = False
    if not is_same:
        raise LogError(
            f"it has places of {'a group' if end is not None and end.is_merged else 'a single source'}, and"
            f" {config.destination} reads {config.source_title} now. When its clients have all that they need of it,"
            " move the folder away: then a new log begins"
        )


class LogWriter:
    """Writes to the log what the ring of a destination gets. All methods belong to the event loop.

    The ring keeps what is not written. What the log lacks after a crash is read from the source again.
    """

    def __init__(
        self,
        log: Log,
        cursors: Cursors,
        config: InstanceConfig,
        on_state: Callable[[str], None],
        on_logged: Callable[[], None],
    ) -> None:
        """``on_state`` is told why nothing can be written, and an empty text when that is over.

        ``on_logged`` is called when the log has more of what the ring has.
        """
        self.log = log
        self._cursors = cursors
        self._config = config
        self._on_state = on_state
        self._on_logged = on_logged
        self._problem = ""
        self._wanted = asyncio.Event()
        self._stopping = False
        self._taken = 0
        """The first slot that was not taken from the ring yet ..."""
        self._written = 0
        """... and the first one that was not written."""
        self._rest: list[Piece] = []
        self._synced = time.monotonic()
        cursors.use_log(log, is_before_all=config.store == "file")

    def start_after(self, oldest: Cursor | None) -> Cursor | None:
        """Return where the stream goes on so that the log has no gap; None if that would mean to read too much again.

        ``oldest`` is where it would go on without a log. A log that is far behind it was not written for a while,
        because another server had the destination.
        """
        end = self.log.end
        if end is None:
            return None
        place = None if oldest is None else oldest.position
        if oldest is not None and place is not None:
            # A cut has no time of an event. Its files tell one that is not later.
            created = max(it.created for it in places_in(place).values()) if place.is_merged else 0
            is_late = (oldest.timestamp / 1000 or created) - self.log.written > FAR
            if not place.is_comparable(end):  # of another source; what the log has from there on goes up to its end
                is_before = self.log.covers(place) or has_executed(self.log.executed, oldest.gtid)
                goes_on = self.log.executed and (is_before or not is_late)
                return Cursor.at(end, self.log.executed) if goes_on else None
            files = [{name: it.file_key for name, it in places_in(one).items()} for one in (place, end)]
            if end.precedes(place) and is_late and files[0] != files[1]:
                return None
        return Cursor.at(end, self.log.executed)

    def reconfigure(self, config: InstanceConfig) -> None:
        """Say that what comes from here on is configured in another way: of another member, or with other settings."""
        self._config = config
        self.log.reshape(config.shape())

    def wake(self) -> None:
        """Say that there may be more to write."""
        self._wanted.set()

    def stop(self) -> None:
        """Let `run` end when it has written what the ring has now."""
        self._rest = self._take(most=sys.maxsize)
        self._stopping = True
        self._wanted.set()

    async def run(self) -> None:
        """Write until `stop`, and close the log. Raises OSError when it is not known what of it is on the disk."""
        compressing = asyncio.create_task(self._compress(), name=f"compress the log of {self._config.destination}")
        try:
            if await self._begin():
                while not self._stopping:
                    await self._write_all()
                    await self._pause()
                await self._append(self._rest)
        finally:
            compressing.cancel()
            await asyncio.to_thread(self.log.close)

    async def _compress(self) -> None:
        """Compress each file once it is full, if that is configured."""
        problem = ""
        while self._config.store_compression != "none":
            try:
                while await asyncio.get_running_loop().run_in_executor(COMPRESSING, self.log.compress):
                    problem = ""
            except (OSError, LogError) as error:
                if str(error) != problem:
                    problem = str(error)
                    logger.warning("a file of the log is not compressed: %s", error, extra=self._where)
            await asyncio.sleep(RESTING)

    async def _begin(self) -> bool:
        """Go on in the log where the stream begins, as soon as that is known; False when it never will be."""
        track = self._cursors.track
        while (start := track.floor) is None:
            if self._stopping:
                return False
            await self._pause()
        executed = write_executed(track.gtids)
        end = self.log.end
        while True:
            try:
                await asyncio.to_thread(self.log.begin, start, executed, self._config.shape())
            except (OSError, LogError) as error:
                if not await self._has_room_again(error):
                    return False
            else:
                break
        begin = self.log.start
        if end not in (None, start) and begin is not None and begin.position == start:
            logger.warning("the log has a gap from %s to %s", end, start, extra=self._where)
        return True

    async def _pause(self) -> None:
        """Wait until there may be more to write; meanwhile sync what is written, and look what is too old."""
        while not self._wanted.is_set():
            left = self._synced + self._config.sync_period - time.monotonic()
            try:
                async with asyncio.timeout(left if left > 0 else IDLE):
                    await self._wanted.wait()
            except TimeoutError:
                await self._sync()
                await asyncio.to_thread(self.log.prune)
        self._wanted.clear()

    async def _write_all(self) -> None:
        track = self._cursors.track
        while pieces := self._take(PIECES):
            stop = self._taken
            if not await self._append(pieces):
                self._rest = [*pieces, *self._rest]  # without them the rest would follow a hole
                return
            self._written = stop
            if not track.is_behind_log:
                self._say_logged(stop)
            is_due = time.monotonic() - self._synced >= self._config.sync_period
            if is_due or (track.is_behind_log and track.ring.waiting):
                await self._sync()

    def _say_logged(self, stop: int) -> None:
        """Say that the log has the slots before that."""
        if not self._cursors.ring.closed:
            self._cursors.note_logged(stop)
            self._on_logged()

    def _take(self, most: int) -> list[Piece]:
        """Take the next pieces from the ring."""
        ring = self._cursors.ring
        pieces: list[Piece] = []
        while not ring.closed and self._taken < ring.next and len(pieces) < most:
            piece = take(self._cursors.track, self._taken, ring.next)
            pieces.append(piece)
            self._taken = piece.packed.stop
        return pieces

    async def _append(self, pieces: list[Piece]) -> bool:
        """Write pieces, as often as necessary; False when it is told to stop before that succeeds."""
        while pieces:
            try:
                await asyncio.to_thread(self.log.append, pieces)
            except (OSError, LogError) as error:
                if not await self._has_room_again(error):
                    return False
        self._say("")
        return True

    async def _sync(self) -> None:
        stop, self._synced = self._written, time.monotonic()
        await asyncio.to_thread(self.log.sync)
        if self._cursors.track.is_behind_log:
            self._say_logged(stop)

    async def _has_room_again(self, error: OSError | LogError) -> bool:
        """Wait before the next attempt; readers go on, and the parser waits for the ring. False when told to stop."""
        self._say(f"the log cannot be written: {error}")
        if not self._stopping:
            await asyncio.sleep(AGAIN)
        if self._stopping:
            logger.warning("what the log lacks will be read from the source again", extra=self._where)
        return not self._stopping

    def _say(self, problem: str) -> None:
        if problem != self._problem:
            self._problem = problem
            self._on_state(problem)

    @property
    def _where(self) -> dict[str, str]:
        return {"destination": self._config.destination}


class LogReader:
    """Fills a ring from the log, from a place on; where the log does not go on, from the source.

    See `sluice.instance.source.Feed`.
    """

    def __init__(
        self,
        log: Log,
        make_feed: FeedFactory,
        config: InstanceConfig,
        ring: Ring,
        *,
        start: Cursor,
        on_begin: Callable[[Position | None, Before], None],
        on_state: Callable[[str, str], None],
    ) -> None:
        """``make_feed`` makes what reads the source."""
        assert start.position is not None
        self._log = log
        self._track = Track(ring)
        self._make_feed = make_feed
        self._config = config
        self._ring = ring
        self._start = start
        self._place: Position = start.position
        self._logged: Position = start.position  # how far the log was read: in a merged stream not always to `_place`
        self._on_begin = on_begin
        self._on_state = on_state
        self._begun = False
        self._entries = EntriesReader()
        self._failure: SluiceError | None = None
        self._source: Feed | None = None
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=f"log {config.destination}", daemon=True)

    @property
    def failure(self) -> SluiceError | None:
        """Why it cannot go on; None if it can."""
        source = self._source
        return self._failure if source is None else source.failure

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Tell the thread to end; return at once."""
        with self._lock:
            self._stopping.set()
            if self._source is not None:
                self._source.stop()
        self._ring.wake()

    def join(self, timeout: float | None = None) -> None:
        """Wait until it has ended."""
        self._thread.join(timeout)
        if self._source is not None:
            self._source.join(timeout)

    def _run(self) -> None:
        current_destination.set(self._config.destination)
        writer, staging = SegmentWriter(self._ring.pool), Staging()
        try:
            while self._read_log(writer, staging) and self._read_source():
                pass
        except LOST as error:
            self._failure = error
        except SluiceError as error:  # nothing goes on here by itself
            self._failure = GoneError(f"the log cannot be read: {error}")
        except Exception as error:
            logger.exception("the log cannot be read")
            self._failure = GoneError(f"the log cannot be read: {type(error).__name__}: {error}")
        finally:
            staging.clear()
            writer.close()
        if self._failure is not None:
            self._on_state("error", str(self._failure))

    def _read_log(self, writer: SegmentWriter, staging: Staging) -> bool:
        """Read what the log has from the place on; False when told to stop."""
        try:
            found = self._log.find(self._place)
            if found is not None:
                self._read(*found, writer, staging)
        except (LogError, SourceChangedError, OSError) as error:
            logger.warning("from %s on the source is read instead of the log: %s", self._place, error)
        return not self._stopping.is_set()

    def _read(self, file: File, offset: int, writer: SegmentWriter, staging: Staging) -> None:
        """Read until told to stop, or until the log does not go on."""
        following: File | None = file
        while following is not None:
            file, following = following, None
            try:
                fd = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:  # it was compressed meanwhile, or taken away
                found = self._log.find(self._place)
                if found is not None:
                    following, offset = found
                continue
            try:
                while (more := self._log.has_more(file, offset, AGAIN)) is not None:
                    if self._stopping.is_set():
                        return
                    if not more:
                        continue
                    offset = self._put_block(fd, file, offset, writer, staging)
            finally:
                os.close(fd)
            following = self._log.after(file)
            if following is not None:
                if not file.end.is_comparable(following.head.start):
                    self._drain()
                offset = following.first
                self._pass(following.head.start, staging, writer)

    def _drain(self) -> None:
        """Wait until the ring is empty: positions of two sources have no order, so it holds those of one at a time."""
        while self._ring.next > self._ring.first and not self._stopping.is_set():
            self._stopping.wait(DRAINING)

    def _put_block(self, fd: int, file: File, offset: int, writer: SegmentWriter, staging: Staging) -> int:
        """Put the block at an offset into the ring; return the offset after it."""
        block = read_block(fd, offset, file.path)
        if block is None:
            raise LogError(f"{file.path} ends at byte {offset}, before its end")
        words = words_of(block, file.path)
        with self._entries.read(fd, block, file.path) as entries:
            if not self._begun:
                self._begin(self._place if words.from_.is_merged else words.from_)
            try:
                self._unpack(words, block.slots, block.count, entries, staging, writer)
            except LogError as error:
                staging.clear()
                raise LogError(f"the block at byte {offset} of {file.path} makes no sense: {error}") from error
        if self._ring.put(staging, self._stopping):
            self._place = self._place.join(words.to) if words.to.is_merged else words.to
            self._logged = words.to
        return block.end

    def _pass(self, start: Position, staging: Staging, writer: SegmentWriter) -> None:
        """Go on in a file that continues the one before: a member may begin with it, or have another source there."""
        if not isinstance(start, Cut) or not isinstance(self._place, Cut):
            self._place = start
            return
        for name, it in start.places.items():
            known = self._place.places.get(name)
            if known is None:
                self._track.stage_join(staging, writer, name, it)
            if known is None or not known.is_comparable(it) or known.precedes(it):
                self._place = self._place.advance(name, it)
        self._ring.put(staging, self._stopping)

    def _unpack(
        self, words: Words, slots: bytes, count: int, entries: memoryview, staging: Staging, writer: SegmentWriter
    ) -> None:
        ring, place = self._ring, self._place
        sources = [ring.sources.intern(it) for it in words.sources]
        files = [ring.files.intern(it) for it in words.files]
        tables = [ring.tables.intern(it) for it in words.tables]
        gtid_sources = [ring.gtid_sources.intern(it) for it in words.gtid_sources]
        # A cut need not lie on the log's chain: what is before it of a member is not put, so that no place goes back.
        had = Floor(place).had(ring) if isinstance(place, Cut) and not place.precedes(words.from_) else None
        unpack(slots, count, entries, sources, files, tables, gtid_sources, staging, writer, had)

    def _begin(self, position: Position | None, gtids: Before = None) -> None:
        if not self._begun:
            self._begun = True
            self._on_begin(position, gtids)
        elif position is None or not position.is_comparable(
            self._place
        ):  # the source is another one than that of the log
            self._drain()

    def _read_source(self) -> bool:
        """Let the source go on, as far as it gives what was delivered; True if the log has what comes then.

        It goes on by GTIDs if it is another source than that of the place. Raises ReshapedError when it gives something
        else at once.
        """
        stop = self._log.source_end(self._place, self._config.shape())
        start = self._start_of_source()
        self._check_members(stop)
        with self._lock:
            if self._stopping.is_set():
                return False
            self._source = self._make_feed(
                self._config, self._ring, start=start, on_begin=self._begin, on_state=self._on_state, stop=stop
            )
            self._source.start()
        if stop is None:
            return False
        self._source.join()
        self._source, self._place = None, stop
        return not self._stopping.is_set()

    def _start_of_source(self) -> Cursor:
        """Return the place from which the source goes on, with the GTIDs executed there, as far as they are known."""
        if not self._begun:
            return replace(self._start, position=self._place)
        place, start, logged = self._place, self._start.position, self._logged
        if not (isinstance(place, Cut) and isinstance(start, Cut) and isinstance(logged, Cut)):
            return Cursor.at(place, self._log.executed_at(place))
        sides = [(start, parse_executed(self._start.gtid)), (logged, parse_executed(self._log.executed_at(logged)))]
        return Cursor.at(place, executed_text(executed_at(place, sides)))

    def _check_members(self, stop: Position | None) -> None:
        """Raise GoneError unless each member can be read up to where the log goes on.

        Nobody knows where one began that is not at the place, and nothing reads one that was removed.
        """
        here = places_in(self._place)
        ends = places_in(stop) if stop is not None and stop.is_merged else {}
        new = [it for it in ends if it not in here]
        names = self._config.sources() if self._config.is_merged else ends
        removed = [it for it in ends.keys() - names.keys() if it in here and here[it] != ends[it]]
        if new or removed:
            why = f"nobody knows where member {new[0]} began" if new else f"member {min(removed)} was removed"
            raise GoneError(f"the log lacks what follows {self._place}, and resumes at {stop}: {why}")
