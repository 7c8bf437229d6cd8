"""The log of a destination: which files it has, what is added to them, and what is taken away.

Any thread may call any method: those that write wait for each other. What is in memory is what begins and ends where;
for all else a file is asked.

After a power loss what was not synced may be missing, in any part. So a file is synced before the next one is made, and
when the log is opened every block of the last file is read: at the first that is damaged, or ends inside a transaction
that has no end, the file is cut.
"""

import contextlib
import functools
import itertools
import logging
import os
import threading
import time
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Self

from ...protocol.cut import Executed, executed_text, has_executed, parse_place, places_in
from ...protocol.errors import SourceChangedError
from ...protocol.gtid import MariadbGtidSet, MysqlGtidSet
from ...protocol.position import Position
from ..cursor import Cursor, further, is_later
from ..folder import sync_folder
from ..track import Track
from .compression import UNFINISHED, compress_file, unfinished
from .errors import DamagedLogError, LogError
from .files import (
    FORMAT,
    MERGED_FORMAT,
    FileHead,
    Words,
    begin,
    create,
    frame,
    index_line,
    read_block,
    read_executed,
    read_head,
    scan,
    take_lock,
    words_of,
    write_at,
    write_executed,
)
from .shapes import Shape, ShapedPart, join, of_both, source_end
from .slots import Packed, pack

logger = logging.getLogger(__name__)

FILE_SIZE: Final = 256 << 20
"""Bytes after which the next transaction begins another file."""
SMALLEST_FILE: Final = 1 << 20
"""The same for a log that may keep little: a file is an eighth of that."""
BLOCK_SIZE: Final = 1 << 20
"""Bytes of entries in a block, unless a single one has more."""
SYNC_SIZE: Final = 8 << 20
"""Bytes after which a file is synced, although the period is not over."""
SYNCING: Final = ThreadPoolExecutor(4, "log sync")
"""For all logs of the process."""
INDEX_LINE: Final = 64 << 10
"""Bytes of an index that have its last line: two places, with 64 members 9 kB each."""
SHARE: Final = 0.1
"""The part of a disk that all logs on it may take together."""
SEEN: Final = -(1 << 16)
"""What stands, among the keys of clients, which are from -32768 up, for what was written since it was last known which
clients are protected."""
COMPRESSED: Final = ".zst.log"
"""What the name of a compressed file has after its number. Versions without compression leave such files alone."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a log may keep."""

    bytes: int = 0
    """0: a tenth of the disk, for all logs beside each other."""
    seconds: float = 0.0
    """0: for ever."""
    free: int = 0
    """Bytes of the disk that stay free."""


@dataclass(frozen=True, slots=True)
class FileStatus:
    """A file of a log, for people."""

    name: str
    bytes: int
    start: Position
    end: Position
    continues: bool
    """It begins where the file before it ends; else what is between them is missing."""
    written: float
    """Unix time of its last block."""


@dataclass(frozen=True, slots=True)
class Hold:
    """What a log keeps for a protected client, for people."""

    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Extent:
    """What a log holds, for people."""

    files: tuple[FileStatus, ...]
    holds: Mapping[int, Hold] = field(default_factory=dict)
    """What protected clients still need of it."""

    @property
    def bytes(self) -> int:
        """The size of all files."""
        return sum(it.bytes for it in self.files)

    @property
    def stretches(self) -> list[tuple[Position, Position]]:
        """Where its uninterrupted parts begin and end."""
        found: list[tuple[Position, Position]] = []
        for it in self.files:
            if found and it.continues:
                found[-1] = (found[-1][0], it.end)
            else:
                found.append((it.start, it.end))
        return found


@dataclass(slots=True)
class File:
    """A file of the log."""

    number: int
    path: Path
    head: FileHead
    first: int
    """Offset of its first block with slots."""
    end: Position
    """The place after its last block."""
    size: int
    """Bytes of whole blocks."""
    written: float
    """Unix time of the last block."""
    synced: int
    """Bytes that are on the disk for certain."""
    rows: int = 0
    """That were added to it, as long as it is the last one."""

    @property
    def index(self) -> Path:
        """Its index."""
        return self.path.with_suffix(".index")

    @property
    def is_compressed(self) -> bool:
        """Whether it was compressed after it was written."""
        return self.path.name.endswith(COMPRESSED)

    @property
    def status(self) -> FileStatus:
        """What it holds."""
        return FileStatus(self.path.name, self.size, self.head.start, self.end, self.head.continues, self.written)


@dataclass(frozen=True, slots=True)
class Piece:
    """Slots of a ring on their way to the log; it pins their entries."""

    words: Words
    packed: Packed


def take(track: Track, start: int, stop: int) -> Piece:
    """Take the slots of a ring from one on that make the next block, before another one at most."""
    packed = pack(track.ring, start, stop, BLOCK_SIZE)
    return Piece(_words(track, start, packed), packed)


def _words(track: Track, start: int, packed: Packed) -> Words:
    ring = track.ring
    from_, to = track.position_before(start), track.position_before(packed.stop)
    assert from_ is not None
    assert to is not None
    places = {number: index for index, number in enumerate(packed.gtid_sources)}
    return Words(
        from_,
        to,
        packed.boundary,
        packed.execute_ms,
        packed.rows,
        [ring.sources[it] for it in packed.sources],
        [ring.files[it] for it in packed.files],
        [ring.tables[it] for it in packed.tables],
        [ring.gtid_sources[it] for it in packed.gtid_sources],
        [(places[source], first, last) for source, first, last in ring.gtid_runs(start, packed.stop)],
    )


@dataclass(slots=True)
class _Writing:
    """The file that is written."""

    fd: int
    index_fd: int
    index_size: int
    boundary: bool = True
    unsynced: int = 0
    """Bytes that were added since the last sync began."""
    executed: Executed = field(default_factory=dict)
    """The GTIDs executed at its end, by member; a member of which that is unknown is not in it."""

    def close(self) -> None:
        """Close file and index."""
        os.close(self.fd)
        os.close(self.index_fd)


class Log:
    """The log in a folder, which no other process uses until `close`.

    Its places are those of one stream. If that is merged, they are cuts: the log holds a chain of them. A cut that is
    asked for need not lie on it. What follows it begins in the first block that brings any member on, so who reads that
    passes over what the cut has of the other members.
    """

    def __init__(
        self,
        folder: Path,
        destination: str,
        limits: Limits,
        *,
        file_size: int | None = None,
        shows_synced: bool = False,
        until: Position | None = None,
    ) -> None:
        """Open the log, or make an empty one. The folder has to exist.

        ``shows_synced``: nobody reads what a power loss could still take. ``until``: what comes after this place of the
        last source, or after one of a cut's places, is taken away. Raises LogError when the log cannot be used, and
        OSError.
        """
        self.folder = folder
        self._destination = destination
        self._limits = limits
        self._shows_synced = shows_synced
        self.held: Mapping[int, Cursor] = {}
        """Where the protected clients are: what comes after stays, whatever the limits. Any thread may replace it."""
        eighth = max(limits.bytes // 8, SMALLEST_FILE) if limits.bytes else FILE_SIZE
        self._file_size = file_size or min(FILE_SIZE, eighth)
        self._files: list[File] = []
        self._changed = threading.Condition()
        self._write_lock = threading.Lock()
        self._shape: Shape = {}
        """Of what is added next."""
        self._sync_lock = threading.Lock()
        self._writing: _Writing | None = None
        self._closed = False
        self._failure: OSError | None = None
        """Of a sync."""
        self._syncing: Future[None] | None = None
        self._compress_lock = threading.Lock()
        self._incompressible: set[int] = set()
        """The numbers of the files that are damaged, so that they stay as they are."""
        self._lock = take_lock(folder, "the log")
        try:
            self._load(until)
        except BaseException:
            self._release()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- what it holds -----------------------------------------------------------------------------------------------

    @property
    def start(self) -> Cursor | None:
        """Where its last uninterrupted part begins, and what was executed there; None while it is empty."""
        with self._changed:
            head = None
            for file in self._files:
                head = head if head is not None and file.head.continues else file.head
            return None if head is None else Cursor.at(head.start, head.gtid)

    @property
    def end(self) -> Position | None:
        """Where it ends; None while it is empty."""
        with self._changed:
            return self._files[-1].end if self._files else None

    @property
    def written(self) -> float:
        """The Unix time of its last block; 0 while it is empty."""
        with self._changed:
            return self._files[-1].written if self._files else 0.0

    @property
    def executed(self) -> str:
        """The GTIDs executed at its end; empty if that is unknown."""
        writing = self._writing
        return "" if writing is None else executed_text(writing.executed)

    @property
    def extent(self) -> Extent:
        """What it holds."""
        with self._changed:
            sizes = [it.size for it in self._files]
            needed = {client: sizes[self._first_needed(cursor) :] for client, cursor in self.held.items()}
            holds = {client: Hold(len(it), sum(it)) for client, it in needed.items() if it and client != SEEN}
            return Extent(tuple(it.status for it in self._files), holds)

    def shape_before(self, now: Shape) -> Shape | None:
        """Return the shape of the rows before its end if what comes next has another one, which ``now`` is.

        Members that come or go change nothing of what the others bring.
        """
        with self._changed:
            if not self._files:
                return None
            head = self._files[-1].head
            before, after = of_both(head.past[-1].shape if head.past and not self._files[-1].rows else head.shape, now)
            return None if before == after else before

    def source_end(self, place: Position, now: Shape) -> Position | None:
        """Return up to where the source is to be read from a place on; None: without an end.

        That is where the log goes on, or where the source would give others than were delivered. Of a merged stream
        each member is read by itself, from its place to the one in the cut that is returned. Raises ReshapedError if
        the source gives others at once.
        """
        with self._changed:
            parts = self._parts()
        first = self.resumes(place)
        return source_end(parts, place, now, None if first is None else place.join(first))

    def resumes(self, place: Position) -> Position | None:
        """Return the beginning of the first file that has what comes after a place that the log does not have."""
        with self._changed:
            starts = [it.head.start for it in self._files]
        later = [it for it in starts if it.is_comparable(place) and not it.precedes(place)]
        return functools.reduce(lambda one, other: other if other.precedes(one) else one, later) if later else None

    def _parts(self) -> tuple[ShapedPart, ...]:
        if not self._files:
            return ()
        last = self._files[-1]
        return join(last.head.past, ShapedPart(last.head.start, last.end, last.head.shape))

    def covers(self, position: Position) -> bool:
        """Whether it holds what follows a place, as far as the place itself tells."""
        with self._changed:
            return self._file_of(position) is not None

    def has_after(self, place: Position, later: Position) -> bool:
        """Whether another place is in a later file than a place, or comes after its end."""
        with self._changed:
            file, other = self._file_of(place), self._file_of(later)
            if file is None:
                return False
            end = self._files[-1].end
            is_past = end.is_comparable(later) and end.precedes(later)
            return is_past or (other is not None and other.number > file.number)

    def _file_of(self, position: Position) -> File | None:
        for file in reversed(self._files):
            if not file.head.start.is_comparable(position) or not file.end.is_comparable(position):
                continue
            is_at_end = position == file.end and self._goes_on(file)
            if file.head.start.precedes(position) and (is_at_end or not file.end.precedes(position)):
                return file
        return None

    def _goes_on(self, file: File) -> bool:
        """Whether nothing is missing after a file: the next one may be of another source, with other places."""
        return self._is_last(file) or self._files[self._files.index(file) + 1].head.continues

    def _is_last(self, file: File) -> bool:
        return file is self._files[-1]

    def _first_needed(self, cursor: Cursor) -> int:
        """Return the index of the first file with something after a place; their number if none has.

        A file of another source that ends at the place counts: without it nothing says where the place is.
        """
        place, files = cursor.position, self._files
        if place is None:  # what it needs is unknown
            return 0
        if (file := self._file_of(place)) is not None:
            return len(files) if place == file.end and self._is_last(file) else files.index(file)
        of_source = [i for i, it in enumerate(files) if it.end.is_comparable(place)]
        before = [i for i in of_source if files[i].end.precedes(place)]
        if before:
            after = before[-1] + 1
            return after if after == len(files) or files[after].end.is_comparable(place) else before[-1]
        return of_source[0] if of_source else self._first_not_executed(cursor.gtid)

    def _first_not_executed(self, gtids: str) -> int:
        """Return the index of the first file with something that is not in a set of GTIDs; as `_first_needed`."""
        if not gtids:
            return len(self._files)
        done = [i for i, it in enumerate(self._files) if has_executed(gtids, it.head.gtid)]
        return done[-1] if done else 0

    def next_start(self, place: Cursor) -> Cursor | None:
        """Return the first place after one that it does not hold, or cannot read, from which on it has the changes.

        That is between two transactions, where a block or a file begins, and for a member that is further at the given
        place that one; None if there is none.
        """
        with self._changed:
            starts = [Cursor.at(it.head.start, it.head.gtid) for it in self._files]
            later = max((i + 1 for i, it in enumerate(starts) if not is_later(it, place)), default=0)
            file = self._files[later - 1] if later else None
        position = place.position
        if file is not None and position is not None and file.head.start.is_comparable(position):
            with contextlib.suppress(OSError, ValueError, IndexError):  # then the next file
                begins = map(_from, file.index.read_bytes().splitlines())
                between = (it for it in begins if it == it.transaction and it.is_comparable(position))
                after = next((it for it in between if not it.precedes(position)), None)
                if after is not None:
                    return further(place, Cursor.at(after, self.executed_at(after)))
        return further(place, starts[later]) if later < len(starts) else None

    def distances(self, places: Mapping[int, Position], to: Position) -> dict[int, int]:
        """Return for the places that it holds how many of its bytes come up to another one, or up to its end.

        Whole blocks count, so there may be less. Raises OSError.
        """
        with self._changed:
            files, last = list(self._files), self._file_of(to)
            found = {it: file for it, place in places.items() if (file := self._file_of(place)) is not None}
        if not found:
            return {}
        starts = itertools.accumulate((it.size for it in files[:-1]), initial=0)
        begins = {it.number: start for it, start in zip(files, starts, strict=True)}
        needed = {it.number: it for it in (*found.values(), *([last] if last is not None else []))}
        lines = {number: it.index.read_bytes().splitlines() for number, it in needed.items()}
        end = sum(it.size for it in files)
        if last is not None:
            end = begins[last.number] + _before(lines[last.number], to, last)
        offsets = {it: begins[file.number] + _after(lines[file.number], places[it], file) for it, file in found.items()}
        return {it: max(0, end - offset) for it, offset in offsets.items()}

    def expiries(self, places: Mapping[int, Position]) -> dict[int, tuple[float, float] | None]:
        """Return for the places that it holds when its limits will let go of what follows them.

        That is a Unix time, an estimate by the pace so far, and for how many seconds it keeps what it has written; None
        if no end is in sight. Raises OSError.
        """
        capacity, now = self._capacity(), time.time()  # noqa: TID251  beside the files' times
        with self._changed:
            sizes = [it.size for it in self._files]
            held = min(map(self._first_needed, self.held.values()), default=len(sizes))
            found: dict[int, tuple[float, float] | None] = {}
            for client, place in places.items():
                file = self._file_of(place)
                if file is None:
                    continue
                index = self._files.index(file)
                found[client] = None
                if index >= held or self._is_last(file):
                    continue
                pace = sum(sizes[1:]) / max(now - self._files[0].written, 1.0)  # bytes a second
                room = capacity - sum(sizes[index:])
                ends = [(now + max(0.0, room / pace), capacity / pace)]
                if self._limits.seconds:
                    ends.append((file.written + self._limits.seconds, self._limits.seconds))
                found[client] = min(ends)
            return found

    # --- reading -----------------------------------------------------------------------------------------------------

    def find(self, position: Position) -> tuple[File, int] | None:
        """Return the file with a place, and the offset of the block with it or after it; None if it has no such place.

        Raises LogError when the file cannot be read.
        """
        with self._changed:
            file = self._file_of(position)
        if file is None:
            return None
        try:
            lines = file.index.read_bytes().splitlines()
            fd = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            if not self._has(file):  # it was compressed meanwhile, or taken away
                return self.find(position)
            raise LogError(f"the log cannot be read: {error}") from error
        try:
            if file.size == file.first:
                return file, file.first
            offset, words = _search(fd, file, lines, position)
        finally:
            os.close(fd)
        if not all(_passes(words, name, place) for name, place in places_in(position).items()):
            raise SourceChangedError(f"{position} is in a file that the log did not pass: another history")
        return file, offset

    def executed_at(self, place: Position) -> str:
        """Return the GTIDs executed at a place where a block ends, or a file begins; empty if that is unknown."""
        try:
            with self._changed:
                file = next((it for it in self._files if it.head.start == place), None) or self._ending(place)
            return "" if file is None else _executed_at(file, place)
        except (LogError, OSError):
            return ""

    def _ending(self, place: Position) -> File | None:
        """Return the file in which a block ends, or may end, at a place."""
        files = [it for it in self._files if it.head.start.is_comparable(place) and it.end.is_comparable(place)]
        within = (it for it in files if it.head.start.precedes(place) and place.precedes(it.end))
        return next((it for it in within if it.head.start != place), None)

    def _has(self, file: File) -> bool:
        with self._changed:
            return any(it is file for it in self._files)

    def after(self, file: File) -> File | None:
        """Return the next file if nothing is missing between the two; None if there is none, or it was taken away."""
        with self._changed:
            following = next((it for it in self._files if it.number > file.number), None)
            if following is None or following.number != file.number + 1 or not following.head.continues:
                return None
            return following

    def has_more(self, file: File, offset: int, seconds: float) -> bool | None:
        """Wait until a file has more than that; None when it will get no more, because another one follows it.

        False when that takes longer, or the log is closed.
        """
        deadline = time.monotonic() + seconds
        with self._changed:
            while not self._closed:
                if offset < (file.synced if self._shows_synced else file.size):
                    return True
                if not self._files or not self._is_last(file):
                    return None
                if not self._changed.wait(deadline - time.monotonic()):
                    return False
        return False

    # --- writing -----------------------------------------------------------------------------------------------------

    def begin(self, start: Position, executed: str | None, shape: Shape) -> None:
        """Go on from a place with what is configured now: in the last file, or in another one.

        ``executed`` are the GTIDs executed there, None if unknown. Raises LogError and OSError.
        """
        with self._write_lock:
            self._begin(start, executed, shape)

    def _begin(self, start: Position, executed: str | None, shape: Shape) -> None:
        self._shape = shape
        continues = self._goes_on_at(start, executed)
        if continues and self._files[-1].head.shape == shape and self.end == start:
            return
        self._roll(self._head(start, executed, shape, continues=continues))

    def reshape(self, shape: Shape) -> None:
        """Say that what is added next has another shape: the next transaction begins another file."""
        self._shape = shape

    def _goes_on_at(self, start: Position, executed: str | None) -> bool:
        """Whether nothing is missing between the end and a place: each member is there, or has executed the same.

        A member that was not in the stream begins at the place.
        """
        writing, end = self._writing, self.end
        if writing is None or end is None or end.is_merged != start.is_merged:
            return False
        known, places = read_executed(start, executed), places_in(start)
        for name, it in places_in(end).items():
            gtids = known.get(name)
            is_executed = gtids is not None and bool(str(gtids)) and gtids == writing.executed.get(name)
            if name not in places or not (places[name] == it or is_executed):
                return False
        return True

    def _head(self, start: Position, executed: str | None, shape: Shape, *, continues: bool) -> FileHead:
        """Return the head of a file that begins at a place."""
        version = MERGED_FORMAT if start.is_merged else FORMAT
        return FileHead(self._destination, start, continues, executed, shape, self._parts(), version)

    def append(self, pieces: list[Piece]) -> None:
        """Add pieces; each leaves the list when it is written.

        Raises LogError while there is no room, or when a piece does not begin where the log ends, and OSError; then
        what is left in the list may be added later.
        """
        with self._write_lock:
            self._append(pieces)

    def _append(self, pieces: list[Piece]) -> None:
        while pieces:
            if self._failure is not None:
                raise self._failure
            piece = pieces[0]
            if piece.words.from_ != self.end:
                raise LogError(f"the log ends at {self.end}, and what is to be added begins at {piece.words.from_}")
            self._make_room(piece.packed.size)
            file, writing = self._files[-1], self._writing
            assert writing is not None
            if (file.size >= self._file_size or file.head.shape != self._shape) and writing.boundary:
                executed = write_executed(writing.executed)
                self._roll(self._head(piece.words.from_, executed, self._shape, continues=True))
                file, writing = self._files[-1], self._writing
                assert writing is not None
            self._add(file, writing, piece)
            del pieces[0]
            if writing.unsynced >= SYNC_SIZE:
                self._sync_early()

    def _add(self, file: File, writing: _Writing, piece: Piece) -> None:
        packed, words = piece.packed, piece.words
        pieces = frame(words.encode(), packed.slots, packed.slot_count, packed.slices)
        try:
            end = write_at(writing.fd, pieces, file.size)
            line = index_line(file.size, end, words.from_, words.to)
            index_end = write_at(writing.index_fd, [line], writing.index_size)
        except OSError:
            with contextlib.suppress(OSError):  # what is left there is written over
                os.ftruncate(writing.fd, file.size)
                os.ftruncate(writing.index_fd, writing.index_size)
            raise
        writing.index_size, writing.boundary = index_end, words.boundary
        writing.unsynced += end - file.size
        _execute(writing.executed, words)
        with self._changed:
            file.size, file.end, file.written = end, words.to, time.time()  # noqa: TID251  beside the files' times
            file.rows += words.rows
            self._changed.notify_all()

    def sync(self) -> None:
        """Return when everything that was added is on the disk.

        What is added meanwhile does not wait. Raises OSError; then nothing is added any more, for nobody knows what of
        the log is on the disk.
        """
        with self._sync_lock:  # one that is under way may be for what was added before
            with self._write_lock:
                writing = self._writing
                if self._failure is not None:
                    raise self._failure
                if writing is None or not writing.unsynced:
                    return
                writing.unsynced = 0
                fd = os.dup(writing.fd)
                file, size = self._files[-1], self._files[-1].size
            try:
                os.fdatasync(fd)
            except OSError as error:
                self._failure = error
                raise
            finally:
                os.close(fd)
            with self._changed:
                file.synced = max(file.synced, size)  # its end may have been synced meanwhile
                self._changed.notify_all()

    def _sync_early(self) -> None:
        """Sync in another thread, so that the end of a file does not have to wait for all of it."""
        if self._syncing is None or self._syncing.done():
            self._syncing = SYNCING.submit(self.sync)

    def prune(self, most: int | None = None) -> list[FileStatus]:
        """Take the oldest files away until it has ``most`` bytes, or as far as the limits ask; return them.

        The last file stays, and so does what protected clients need. Raises OSError.
        """
        with self._write_lock:
            return self._prune(most)

    def surplus(self, most: int) -> list[FileStatus]:
        """Return the files that `prune` would take away."""
        with self._changed:
            sizes = [it.size for it in self._files]
            held = min(map(self._first_needed, self.held.values()), default=len(sizes))
            return [it.status for i, it in enumerate(self._files[:-1]) if i < held and sum(sizes[i:]) > most]

    def _prune(self, most: int | None = None) -> list[FileStatus]:
        taken = []
        while (file := self._surplus(most)) is not None:
            with self._changed:
                self._files.remove(file)
            _remove(file.path)
            taken.append(file.status)
        return taken

    def compress(self) -> bool:
        """Compress the oldest file that is not compressed; False when there is none, or no room for it.

        The last file is left alone. Who reads the file goes on with what is open. Raises LogError when the file is
        damaged, once for each, and OSError.
        """
        with self._compress_lock:
            with self._changed:
                files = (it for it in self._files[:-1] if not it.is_compressed)
                file = next((it for it in files if it.number not in self._incompressible), None)
            disk = os.statvfs(self.folder)
            if file is None or self._closed or disk.f_bavail * disk.f_frsize - file.size < self._limits.free:
                return False
            try:
                return self._compress(file)
            except (OSError, LogError) as error:
                if not self._has(file):  # it was taken away meanwhile
                    return False
                if isinstance(error, LogError):
                    self._incompressible.add(file.number)
                raise

    def _compress(self, file: File) -> bool:
        """Put a compressed file into the place of another one.

        That is removed when the new one is on the disk for certain. So where both are found later, the old one counts.
        """
        surplus = target = file.path.with_name(f"{file.path.stem}{COMPRESSED}")
        try:
            if compress_file(file.path, target, lambda: self._closed):
                sync_folder(self.folder)
                compressed = _load_file(target, is_last=False)
                with self._write_lock, self._changed:
                    if self._has(file):  # it was not taken away meanwhile
                        self._files[self._files.index(file)] = compressed
                        surplus = file.path
            return surplus is not target
        finally:
            unfinished(target).unlink(missing_ok=True)
            _remove(surplus)

    def close(self) -> None:
        """Sync, and let another process use the log. Raises OSError."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        try:
            with self._compress_lock, self._write_lock:
                if self._failure is None:
                    self._sync_file()
        finally:
            self._release()

    def _surplus(self, most: int | None) -> File | None:
        """Return the oldest file if it is to go; the last one stays."""
        if len(self._files) < 2 or 0 in map(self._first_needed, self.held.values()):
            return None
        oldest, size = self._files[0], sum(it.size for it in self._files)
        if most is not None:
            return oldest if size > most else None
        is_old = bool(self._limits.seconds) and oldest.written < time.time() - self._limits.seconds  # noqa: TID251
        return oldest if is_old or size > self._capacity() else None

    def _capacity(self) -> int:
        """How many bytes it may have, by its limit and by what has to stay free. Raises OSError."""
        disk = os.statvfs(self.folder)
        most = self._limits.bytes or int(SHARE * disk.f_blocks * disk.f_frsize / self._neighbours())
        size = sum(it.size for it in self._files)
        return min(most, size + disk.f_bavail * disk.f_frsize - self._limits.free)

    def _neighbours(self) -> int:
        """How many logs share the disk, as far as the folders tell: ``<destination>/log`` beside each other."""
        return max(1, sum(1 for _ in self.folder.parent.parent.glob(f"*/{self.folder.name}/lock")))

    def _make_room(self, size: int) -> None:
        disk = os.statvfs(self.folder)
        if disk.f_bavail * disk.f_frsize - size < self._limits.free:
            self._prune()
            disk = os.statvfs(self.folder)
            if disk.f_bavail * disk.f_frsize - size < self._limits.free:
                holds = self.extent.holds.items()
                kept = [f"client {it} {hold.bytes} bytes in {hold.files} files" for it, hold in holds]
                raise LogError(
                    f"the log waits for room on the disk of {self.folder}: {self._limits.free} bytes have to stay free"
                    f" (sluice.instance.store.minFree){'; protected clients hold: ' if kept else ''}{', '.join(kept)}"
                )

    def _roll(self, head: FileHead) -> None:
        """Begin another file. As long as that fails, the last one is the last one."""
        self._sync_file()
        number = self._files[-1].number + 1 if self._files else 1
        path = self.folder / f"{number:020d}.log"
        executed = read_executed(head.start, head.executed)
        fd, index_fd, size = begin(path, frame(head.encode(), b"", 0, []))
        if self._writing is not None:
            self._writing.close()
        self._writing = _Writing(fd, index_fd, 0, executed=executed)
        with self._changed:
            self._files.append(File(number, path, head, size, head.start, size, time.time(), size))  # noqa: TID251
            self._changed.notify_all()
        self._prune()

    def _sync_file(self) -> None:
        """Bring the last file to the disk with its index. Raises OSError, as `sync` does."""
        if self._failure is not None:
            raise self._failure
        if self._writing is not None:
            try:
                os.fsync(self._writing.fd)
                os.fsync(self._writing.index_fd)
            except OSError as error:
                self._failure = error
                raise
            self._files[-1].synced = self._files[-1].size

    # --- opening -----------------------------------------------------------------------------------------------------

    def _release(self) -> None:
        if self._writing is not None:
            self._writing.close()
            self._writing = None
        self._lock.close()

    def _load(self, until: Position | None) -> None:
        paths = _paths(self.folder)
        for path in paths:
            try:
                self._files.append(_load_file(path, is_last=path == paths[-1]))
            except DamagedLogError as error:
                # The last one may be as a crash has left it before its first sync: nothing was added to it.
                logger.warning("a file of the log is left out, and renamed to *.damaged: %s", error)
                path.rename(path.with_suffix(".damaged"))
        for before, file in itertools.pairwise(self._files):
            if file.number != before.number + 1:  # it is damaged, or a crash has left a part of what was taken away
                file.head = replace(file.head, continues=False)
        for file in self._files:
            if file.head.destination != self._destination:
                raise LogError(f"{file.path} belongs to the destination {file.head.destination!r}")
        for ending in (COMPRESSED, ".index", UNFINISHED):
            for path in self.folder.glob(f"[0-9]*{ending}"):
                if ending == UNFINISHED or path.with_suffix(".log") not in paths:  # a crash has left it
                    path.unlink()
        while until is not None and self._files and _is_after(self._files[-1], until):
            logger.warning("%s is removed: what the log has after %s was not delivered", self._files[-1].path, until)
            _remove(self._files.pop().path)
        if self._files:
            self._reopen(self._files[-1], until)

    def _reopen(self, file: File, until: Position | None) -> None:
        """Check all blocks of the last file, cut what is not whole, make its index again, and go on writing there.

        What comes after the place ``until`` is cut, too.
        """
        fd = os.open(file.path, os.O_RDWR | os.O_CLOEXEC)
        try:
            index_fd = os.open(file.index, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            os.close(fd)
            raise
        executed, self._shape = read_executed(file.head.start, file.head.executed), file.head.shape
        writing = self._writing = _Writing(fd, index_fd, 0, executed=executed)
        lines, pending = [], list[Words]()
        file.end = file.head.start
        whole, pending_lines = file.first, list[bytes]()
        try:
            for block in scan(fd, file.first, file.path):
                words = words_of(block, file.path)
                if until is not None and _is_beyond(words.to, until):
                    logger.warning("%s is cut: what the log has after %s was not delivered", file.path, until)
                    break
                pending.append(words)
                pending_lines.append(index_line(block.offset, block.end, words.from_, words.to))
                if words.boundary:
                    whole = block.end
                    for it in pending:
                        _execute(writing.executed, it)
                        file.rows += it.rows
                    file.end = words.to
                    lines += pending_lines
                    pending, pending_lines = [], []
        except DamagedLogError as error:
            logger.warning("the log is cut at byte %d of %s: %s", whole, file.path, error)
        file.size = file.synced = whole
        os.ftruncate(fd, whole)
        if self._shows_synced or whole == file.first:  # kill -9 may have come before this was done
            os.fsync(fd)
            sync_folder(self.folder)
        writing.index_size = sum(map(len, lines))
        if os.pread(index_fd, writing.index_size + 1, 0) != b"".join(lines):  # else nothing needs room, on a full disk
            os.ftruncate(index_fd, 0)
            write_at(index_fd, lines, 0)


def _is_after(file: File, until: Position) -> bool:
    """Whether a file has only what comes after a place; of a group, whether a member begins in it after its place."""
    start = file.head.start
    if start.is_merged:
        return _is_beyond(start, until)
    return start.is_comparable(until) and until.precedes(start)


def _is_beyond(place: Position, until: Position) -> bool:
    """Whether a place comes after another one of the same source; of a group, of one member at least."""
    ends = places_in(until)
    found = ((it, ends[name]) for name, it in places_in(place).items() if name in ends)
    return any(it.is_comparable(end) and not it.precedes(end) for it, end in found)


def _load_file(path: Path, *, is_last: bool) -> File:
    """Read where a file begins, and if it is not the last one where it ends. Raises LogError and OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        head, first = read_head(fd, path)
        status = os.fstat(fd)
        file = File(0, path, head, first, head.start, status.st_size, status.st_mtime, status.st_size)
        file.number = _number(path)
        if not is_last and status.st_size > first:
            file.end = _end_of(file, fd)
        return file
    finally:
        os.close(fd)


def stored_files(folder: Path) -> list[File]:
    """Return the files of a log that another process may be writing, without changing anything; their ends are unknown.

    Raises LogError and OSError.
    """
    paths = _paths(folder)
    files = []
    for path in paths:
        try:
            file = _load_file(path, is_last=True)
        except FileNotFoundError:  # it was taken away meanwhile
            continue
        if path == paths[-1]:
            with contextlib.suppress(
                OSError, ValueError, IndexError
            ):  # what is not in the index yet may be half written
                last = file.index.read_bytes().rpartition(b"\n")[0].splitlines()[-1].split()
                file.size = int(last[0]) + int(last[1])
        files.append(file)
    return files


def _paths(folder: Path) -> list[Path]:
    """Return the files of a log in their order; of one that is being compressed, the one that it was."""
    plain = {_number(it): it for it in folder.glob("*.log") if it.stem.isdecimal()}
    # Looked for when those are known: a compressed file is there before the other one goes.
    compressed = {_number(it): it for it in folder.glob(f"*{COMPRESSED}")}
    return [path for _, path in sorted((compressed | plain).items())]


def _number(path: Path) -> int:
    return int(path.name.partition(".")[0])


def _remove(path: Path) -> None:
    """Remove a file and its index."""
    path.unlink(missing_ok=True)
    path.with_suffix(".index").unlink(missing_ok=True)


def _end_of(file: File, fd: int) -> Position:
    """Return where a file ends, by its last block. The index, which says where that is, is made again if need be."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        with file.index.open("rb") as index:
            index.seek(-min(INDEX_LINE, os.fstat(index.fileno()).st_size), os.SEEK_END)
            line = index.read().splitlines()[-1].split()
        if int(line[0]) + int(line[1]) == file.size:
            with contextlib.suppress(LogError):  # who reads the block will be told
                return _words_at(fd, int(line[0]), file).to
            return parse_place(line[3].decode())
    logger.warning("the index of %s is made again", file.path)
    end, lines, offset = file.head.start, list[bytes](), file.first
    while (block := read_block(fd, offset, file.path)) is not None:
        words = words_of(block, file.path)
        lines.append(index_line(block.offset, block.end, words.from_, words.to))
        offset, end = block.end, words.to
    index_fd = create(file.index)
    try:
        write_at(index_fd, lines, 0)
    finally:
        os.close(index_fd)
    return end


def _search(fd: int, file: File, lines: list[bytes], position: Position) -> tuple[int, Words]:
    """Return the offset of the block with a place, or of one before it, and its words. Raises LogError.

    ``lines`` are those of the index. If it is damaged, that is the first block.
    """
    with contextlib.suppress(LogError, SourceChangedError, ValueError, IndexError):
        begin = bisect_left(lines, True, key=lambda line: not _from(line).precedes(position)) - 1
        offset = int(lines[begin].split()[0]) if begin >= 0 else file.first
        words = _words_at(fd, offset, file)
        if words.from_.precedes(position):
            return offset, words
    return file.first, _words_at(fd, file.first, file)


def _after(lines: Sequence[bytes], place: Position, file: File) -> int:
    """Return the offset of the block of a file that has what follows a place, by the lines of the index."""
    with contextlib.suppress(SourceChangedError, ValueError, IndexError):  # the last line may be half written
        found = bisect_left(lines, True, key=lambda line: not parse_place(line.split()[3].decode()).precedes(place))
        return int(lines[found].split()[0]) if found < len(lines) else file.size
    return file.first


def _before(lines: Sequence[bytes], place: Position, file: File) -> int:
    """Return the offset after the block of a file that has what comes before a place, by the lines of the index."""
    with contextlib.suppress(SourceChangedError, ValueError, IndexError):
        found = bisect_left(lines, True, key=lambda line: place.precedes(_from(line)))
        return sum(map(int, lines[found - 1].split()[:2])) if found else file.first
    return file.size


def _words_at(fd: int, offset: int, file: File) -> Words:
    block = read_block(fd, offset, file.path)
    if block is None:
        raise LogError(f"no block is at byte {offset} of {file.path}")
    return words_of(block, file.path)


def _passes(words: Words, member: str, place: Position) -> bool:
    """Whether a place is in a file that a block passes, unless the member is further than it at its end."""
    ends = [places_in(it).get(member) for it in (words.from_, words.to)]
    known = [it for it in ends if it is not None]
    return not known or known[-1] <= place or place.file_key in {*words.files, *(it.file_key for it in known)}


def _execute(executed: Executed, words: Words) -> None:
    """Add what was executed in a block."""
    empty = {member for member, gtids in executed.items() if not str(gtids)}
    for place, first, last in words.gtids:
        member, source = words.gtid_sources[place]
        if member not in executed:
            continue
        if member in empty:  # nothing says of which family an empty set is
            executed[member] = MysqlGtidSet() if isinstance(source[0], bytes) else MariadbGtidSet()
            empty.remove(member)
        executed[member].add(source, first, last)


def _executed_at(file: File, place: Position) -> str:
    """Return the GTIDs executed where a block of a file ends, or it begins; empty if unknown. Raises LogError."""
    if file.head.executed is None:
        return ""
    executed, at, offset = read_executed(file.head.start, file.head.executed), file.head.start, file.first
    fd = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        while at != place and (block := read_block(fd, offset, file.path)) is not None:
            words = words_of(block, file.path)
            _execute(executed, words)
            at, offset = words.to, block.end
    finally:
        os.close(fd)
    return executed_text(executed) if at == place else ""


def _from(line: bytes) -> Position:
    """Return the place before the block of a line of the index."""
    return parse_place(line.split()[2].decode())
