"""The raw log of a pump: what TiDB writes, by arrival, and the whole transactions that come of it.

A message is answered when it is on disk. One sync covers all messages that wait. They are paired after it: nothing is
given to a drainer that a power loss could still take. One thread writes. It alone changes files and pairing.

When the log is opened, the records of the last file are read, from the first one that was needed where the file begins.
So the transactions come again that the file had released, and its index is compared with them. Where a record is not
whole, the file is cut: such a record was never answered. If the index names something behind it, it was, and the log is
not opened.
"""

import asyncio
import itertools
import logging
import os
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from ...protocol.errors import DecodeError, SluiceError
from ...protocol.tidb.binlog_pb2 import BinlogType
from ...store.folder import sync_folder
from ...store.log.errors import DamagedLogError, LogError
from ...store.log.files import begin, take_lock, write_at
from .files import (
    ENTRY,
    HEAD,
    RECORD,
    SUFFIX,
    Head,
    Segment,
    collected_of,
    encode_entry,
    frame,
    furthest_of,
    path_of,
    read_entries,
    read_head,
    scan,
)
from .pairing import Counts, Pairing, Record, Transaction, read_record
from .reader import CollectedError, Reader, WholeBinlog

FILE_SIZE: Final = 256 << 20
"""Bytes after which another file begins."""
GROUP: Final = 64 << 20
"""Bytes of messages that one sync brings to the disk, unless a single one has more."""
READING: Final = ThreadPoolExecutor(4, "pump read")
"""For all streams of the process."""

logger = logging.getLogger("sluice.pump")


class RefusedWriteError(SluiceError):
    """A log does not take a message; the text is for TiDB's operator."""


@dataclass(frozen=True, slots=True)
class PumpStatus:
    """What a log holds, for people."""

    bytes: int
    files: int
    released: int
    """The commit_ts up to which all is known, and is given."""
    collected: int
    """The commit_ts up to which nothing is kept for certain."""
    newest: int
    """The greatest timestamp that has come."""
    written: int
    """Messages stored since it was opened."""
    open: int
    """Prewrites without an end."""
    counts: Counts
    failure: str
    """Why nothing is stored any more; empty: it is."""
    refusal: str
    """Why no Prewrite is taken; empty: it is."""


class _Waiting(NamedTuple):
    """A message that waits until it is stored."""

    payload: bytes
    stored: asyncio.Future[None]


class PumpLog:
    """The log of a pump in a folder, which no other process uses until `close`."""

    def __init__(self, folder: Path, cluster_id: int, *, stop_at: int = 0, file_size: int = FILE_SIZE) -> None:
        """Open the log, or make an empty one; that may read the last file. The folder has to exist.

        ``stop_at``: Prewrites are refused while fewer bytes of the disk are free. Raises LogError when the log cannot
        be used, and OSError.
        """
        self.folder = folder
        self.not_online = ""
        """Why the pump takes no Prewrite at all; empty: it does. Who runs the pump sets it."""
        self._cluster_id = cluster_id
        self._stop_at = stop_at
        self._file_size = file_size
        self._segments: tuple[Segment, ...] = ()
        self._fds: tuple[int, int] | None = None  # of the last file, and of its index
        self._pairing = Pairing()
        self._failure = ""
        self._written = 0  # messages
        self._behind: list[bytes] = []  # entries for which there was no room in the index
        self._writer = ThreadPoolExecutor(1, "pump write")
        self._waiting: deque[_Waiting] = deque()
        self._storing: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._closed = False
        self._lock = take_lock(folder, "the pump's log")
        try:
            self._load()
        except BaseException:
            self._release()
            raise

    @property
    def status(self) -> PumpStatus:
        """What it holds."""
        pairing, segments = self._pairing, self._segments
        size = sum(it.size for it in segments)
        return PumpStatus(
            bytes=size,
            files=len(segments),
            released=pairing.released,
            collected=self.collected,
            newest=pairing.newest,
            written=self._written,
            open=pairing.open,
            counts=pairing.counts,
            failure=self._failure,
            refusal=self._refusal(),
        )

    @property
    def collected(self) -> int:
        """The commit_ts after which all transactions are kept."""
        return collected_of(self._segments) or 0

    # --- what the calls of a pump need -------------------------------------------------------------------------------

    async def append(self, payload: bytes) -> None:
        """Store a `Binlog`; it is on disk when this returns.

        Raises DecodeError when it is none, RefusedWriteError when it cannot be stored.
        """
        if self._closed:
            raise RefusedWriteError("the pump stops")
        waiting = _Waiting(payload, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        if self._storing is None:
            self._storing = asyncio.create_task(self._store_waiting())
        await waiting.stored

    async def read(self, after: int) -> AsyncGenerator[WholeBinlog]:
        """Give what committed after ``after``, in the order of commit_ts, and wait for more at the end.

        It reads on only when the next one is asked for. Raises CollectedError when some of it is not kept any more,
        LogError when it is damaged, and OSError.
        """
        if after < self.collected:
            raise CollectedError(f"what committed until {self.collected} is not kept any more")
        loop = asyncio.get_running_loop()
        reader = Reader(lambda: self._segments, after)
        try:
            while True:
                news = self._news
                found = await loop.run_in_executor(READING, reader.next)
                for it in found:
                    yield it
                if not found:
                    await news.wait()
        finally:
            READING.submit(reader.close)

    async def due(self, now: int) -> list[tuple[int, bytes]]:
        """Return start_ts and payload of Prewrites whose end has to be asked for; it is to be appended.

        ``now``: a timestamp of the cluster. Raises LogError and OSError.
        """
        return await asyncio.get_running_loop().run_in_executor(self._writer, self._due, now)

    async def settle(self) -> None:
        """Wait until what is being stored is on disk and paired."""
        await asyncio.get_running_loop().run_in_executor(self._writer, bool)

    async def collect(self, until: int) -> None:
        """Remove the oldest files, as far as everything that committed after ``until`` stays. Raises OSError."""
        await asyncio.get_running_loop().run_in_executor(self._writer, self._collect, until)

    async def close(self) -> None:
        """Store what waits, and give the folder back. Streams have to have ended."""
        self._closed = True
        if self._storing is not None:
            await self._storing
        await asyncio.get_running_loop().run_in_executor(self._writer, self._release)

    async def _store_waiting(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            group, size = list[_Waiting](), 0
            while self._waiting and size < GROUP:
                group.append(self._waiting.popleft())
                size += len(group[-1].payload)
            before = self._pairing.released
            answers = await loop.run_in_executor(self._writer, self._try_to_store, [it.payload for it in group])
            for it, answer in zip(group, answers, strict=True):
                if it.stored.done():  # nobody waits any more
                    continue
                if answer is None:
                    it.stored.set_result(None)
                else:
                    it.stored.set_exception(answer)
            if self._pairing.released != before:
                self._news.set()
                self._news = asyncio.Event()
        self._storing = None

    # --- writing, in one thread --------------------------------------------------------------------------------------

    def store(self, payloads: Sequence[bytes]) -> list[SluiceError | None]:
        """Store messages with one sync; return why one was not stored, or None. It blocks.

        The errors are those of `append`.
        """
        answers: list[SluiceError | None] = [None] * len(payloads)
        if self._failure:
            return [RefusedWriteError(self._failure)] * len(payloads)
        self._begin_file()
        records, pieces = list[Record](), list[bytes]()
        end = self._segments[-1].end
        full = self._refusal()
        for number, payload in enumerate(payloads):
            try:
                record = read_record(payload, end)
            except DecodeError as error:
                answers[number] = error
                continue
            if full and record.type == BinlogType.Prewrite:
                answers[number] = RefusedWriteError(full)
                continue
            records.append(record)
            pieces += frame(payload)
            end += RECORD.size + len(payload)
        if problem := self._write(pieces):
            return [RefusedWriteError(problem) if it is None else it for it in answers]
        self._written += len(records)
        self._pair(records)
        return answers

    def _try_to_store(self, payloads: Sequence[bytes]) -> Sequence[SluiceError | None]:
        """Do as `store`; if there is no memory for it, all messages are refused, and callers do not wait for ever."""
        try:
            return self.store(payloads)
        except MemoryError:
            return [RefusedWriteError("the pump has no memory for the message")] * len(payloads)

    def _refusal(self) -> str:
        """Return why no Prewrite is taken; empty: it is."""
        if self.not_online:
            return self.not_online
        if refusal := self._pairing.refusal:
            return refusal
        try:
            disk = os.statvfs(self.folder)
        except OSError as error:
            return f"nothing is known of the disk of the pump: {error}"
        free = disk.f_bavail * disk.f_frsize
        if free < self._stop_at:
            return f"{free} bytes are free on the disk of {self.folder}, and sluice.pump.stopWriteAt is {self._stop_at}"
        return ""

    def _write(self, pieces: Sequence[bytes]) -> str:
        """Append to the last file, and sync it. Return why that was not possible; empty: it was."""
        if not pieces:
            return ""
        assert self._fds is not None
        segment, fd = self._segments[-1], self._fds[0]
        try:
            end = write_at(fd, pieces, segment.size)
        except OSError as error:
            return self._take_back(segment, fd, error)
        try:
            os.fdatasync(fd)
        except OSError as error:
            return self._fail(segment, error)
        segment.size = end
        return ""

    def _take_back(self, segment: Segment, fd: int, error: OSError) -> str:
        """Remove what was written of messages for which there is no room."""
        try:
            os.ftruncate(fd, segment.size)
        except OSError as second:
            return self._fail(segment, second)
        return f"the pump cannot write to {segment.path}: {error}"

    def _fail(self, segment: Segment, error: OSError) -> str:
        """Store nothing any more: what is on the disk now is unknown."""
        self._failure = f"the pump cannot write to {segment.path} until it is started anew: {error}"
        logger.error("%s", self._failure)
        return self._failure

    def _pair(self, records: Sequence[Record]) -> None:
        """Take records that are on disk; what they release goes to the index."""
        assert self._fds is not None
        segment = self._segments[-1]
        self._behind += [encode_entry(it) for record in records for it in self._pairing.take(record)]
        if not self._behind:
            return
        try:
            write_at(self._fds[1], self._behind, segment.entries * ENTRY.size)
        except OSError as error:
            logger.warning("drainers wait, since %s cannot be written: %s", segment.index, error)
            return
        segment.entries += len(self._behind)
        self._behind.clear()

    def _begin_file(self) -> None:
        """Begin another file if the last one is large. As long as that fails, the last one is the last one."""
        last = self._segments[-1]
        if last.size < self._file_size or self._behind:
            return
        assert self._fds is not None
        try:
            os.fsync(self._fds[1])
            self._create(self._head(last.end))
        except OSError as error:
            logger.warning("no further file of the log in %s can be begun: %s", self.folder, error)

    def _head(self, place: int) -> Head:
        needed = self._pairing.first_needed
        return Head(self._cluster_id, place, self._pairing.released, place if needed is None else needed)

    def _create(self, head: Head) -> None:
        """Make a file the last one. Raises OSError."""
        path = path_of(self.folder, head.place)
        fd, index_fd, _ = begin(path, [head.encode()])
        self._close_files()
        self._fds = fd, index_fd
        self._segments = (*self._segments, Segment(path, head, HEAD.size))

    def _due(self, now: int) -> list[tuple[int, bytes]]:
        found = []
        for start_ts, place in self._pairing.due(now):
            segment = next(it for it in reversed(self._segments) if it.place <= place)
            found.append((start_ts, next(scan(segment, place, segment.size))[1]))
        return found

    def _collect(self, until: int) -> None:
        needed = self._pairing.first_needed
        while len(self._segments) > 1:
            rest = self._segments[1:]
            collected = collected_of(rest)
            if collected is None or collected > until or (needed is not None and needed < rest[0].place):
                return
            oldest, self._segments = self._segments[0], rest
            # The index goes first: a crash in between would leave one that nobody removes.
            oldest.index.unlink(missing_ok=True)
            oldest.path.unlink()
            sync_folder(self.folder)

    # --- opening and closing -----------------------------------------------------------------------------------------

    def _release(self) -> None:
        self._close_files()
        self._lock.close()
        self._writer.shutdown(wait=False)

    def _close_files(self) -> None:
        for fd in self._fds or ():
            os.close(fd)
        self._fds = None

    def _load(self) -> None:
        self._segments = _segments_of(self.folder, self._cluster_id)
        if not self._segments:
            self._create(Head(self._cluster_id, 0, 0, 0))
            return
        last = self._segments[-1]
        self._fds = os.open(last.path, os.O_RDWR | os.O_CLOEXEC), _open_index(last)
        for before, after in itertools.pairwise(self._segments):
            if before.head.needed >= self._segments[0].place and not _is_whole(before, after):
                logger.warning("%s is made again", before.index)
                self._make_index(before, self._replay(before, Pairing(before.head.released)))
        self._cut(last)
        self._pairing = Pairing(last.head.released)
        self._make_index(last, self._replay(last, self._pairing))

    def _cut(self, last: Segment) -> None:
        """Take away what is not whole at the end of the last file: it was never answered.

        What the index names was on disk, and was answered. Raises DamagedLogError if it is not there any more.
        """
        assert self._fds is not None
        end, whole = last.size, HEAD.size
        try:
            for place, payload in scan(last, last.place, end):
                whole = place - last.place + RECORD.size + len(payload)
        except DamagedLogError as error:
            if furthest_of(last) >= last.place + whole:
                raise DamagedLogError(
                    f"{error}, and TiDB was told that it, or what is behind it, is stored. Restore {last.path} from a"
                    f" copy. To give up all from there on, remove {last.index}, and copy the cluster's tables again"
                ) from error
            logger.warning(
                "%d bytes at the end of the log are taken away, from byte %d on: %s", end - whole, whole, error
            )
            os.ftruncate(self._fds[0], whole)
            os.fsync(self._fds[0])
        last.size = whole

    def _replay(self, until: Segment, pairing: Pairing) -> list[Transaction]:
        """Have a pairing take what was taken until the end of a file; return what is released by that."""
        needed = until.head.needed
        segments = [it for it in self._segments if it.end > needed and it.place <= until.place]
        if not segments or segments[0].place > needed:
            raise LogError(f"the log in {self.folder} lacks the file with the place {needed}, which is needed")
        return [it for record in _records(segments, needed) for it in pairing.take(record)]

    def _make_index(self, segment: Segment, released: Sequence[Transaction]) -> None:
        """Have an index have these entries; it is not written when it has them. Raises OSError."""
        data = b"".join(map(encode_entry, released))
        if not segment.index.exists() or segment.index.read_bytes() != data:
            fd = os.open(segment.index, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.ftruncate(fd, 0)
                write_at(fd, [data], 0)
                os.fsync(fd)
            finally:
                os.close(fd)
        segment.entries = len(released)


def _records(segments: Sequence[Segment], place: int) -> Iterator[Record]:
    for segment in segments:
        for at, payload in scan(segment, place, segment.size):
            yield read_record(payload, at)


def _open_index(segment: Segment) -> int:
    return os.open(segment.index, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _segments_of(folder: Path, cluster_id: int) -> tuple[Segment, ...]:
    """Return the files of a log. Raises LogError when they are not all of them, or of another cluster."""
    paths = sorted(it for it in folder.glob(f"*{SUFFIX}") if it.stem.isdecimal())
    if paths and paths[-1].stat().st_size <= HEAD.size and not _begins(paths[-1]):
        logger.warning("%s is removed: it was being made, and has nothing yet", paths[-1])
        paths[-1].with_suffix(".index").unlink(missing_ok=True)
        paths.pop().unlink()
    segments = tuple(Segment(it, read_head(it), it.stat().st_size) for it in paths)
    for before, after in itertools.pairwise(segments):
        if before.end != after.place:
            raise LogError(f"the log in {folder} has a gap: {before.path} ends at the place {before.end}")
    for it in segments:
        if it.head.cluster_id != cluster_id:
            raise LogError(
                f"{it.path} belongs to the cluster {it.head.cluster_id}, and sluice.pump.clusterId is {cluster_id}"
            )
    return segments


def _begins(path: Path) -> bool:
    try:
        read_head(path)
    except DamagedLogError:
        return False
    return True


def _is_whole(segment: Segment, after: Segment) -> bool:
    """Whether the index of a file ends with what was released where the next file begins; count its entries."""
    expected = after.head.released
    try:
        segment.entries, rest = divmod(segment.index.stat().st_size, ENTRY.size)
        if rest or not segment.entries:
            return not rest and expected == segment.head.released
        fd = os.open(segment.index, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return read_entries(fd, segment.entries - 1, 1, segment.index)[0].commit_ts == expected
        finally:
            os.close(fd)
    except (FileNotFoundError, DamagedLogError):
        return False
