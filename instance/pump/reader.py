"""Reads the whole transactions of a pump's log, in the order of commit_ts."""

import os
import threading
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from ...protocol.errors import SluiceError
from .files import Segment, read_entries, read_payload, segment_at
from .pairing import NOWHERE, Transaction, merge

ENTRIES: Final = 256
"""Entries of an index that are read at once."""
BATCH: Final = 1 << 20
"""Bytes of transactions that are read at once, unless a single one has more."""
FILES: Final = 16
"""Files that a reader has open."""


class CollectedError(SluiceError):
    """A log does not have any more what is asked for."""


class WholeBinlog(NamedTuple):
    """A transaction that has committed, or a heartbeat."""

    start_ts: int
    commit_ts: int
    payload: bytes
    """A `Binlog`: the Commit with the value or the DDL of its Prewrite, or the heartbeat."""


class Reader:
    """Reads on from a commit_ts. One thread at a time reads; any may close."""

    def __init__(self, segments: Callable[[], Sequence[Segment]], after: int) -> None:
        """``segments`` gives the files that the log has now."""
        self._segments = segments
        self._after = after
        self._place = -1  # of the file whose index is read
        self._entry = 0  # the number of the next entry there
        self._fds: dict[str, int] = {}
        self._lock = threading.Lock()
        self._closed = False

    def next(self) -> list[WholeBinlog]:
        """Return the next transactions; none at the end.

        Raises CollectedError when they have been removed, LogError when they are damaged, and OSError.
        """
        with self._lock:
            if self._closed:
                return []
            try:
                return self._next()
            except FileNotFoundError:
                raise self._gone() from None

    def close(self) -> None:
        """Close its files, when what is being read is done."""
        with self._lock:
            self._closed = True
            for fd in self._fds.values():
                os.close(fd)
            self._fds.clear()

    def _next(self) -> list[WholeBinlog]:
        segments = self._segments()
        found: list[WholeBinlog] = []
        size = 0
        for it in self._entries(segments):
            whole = self._payload(it, segments)
            found.append(WholeBinlog(it.start_ts, it.commit_ts, whole))
            self._entry += 1
            self._after = it.commit_ts
            size += len(whole)
            if size >= BATCH:
                break
        return found

    def _entries(self, segments: Sequence[Segment]) -> list[Transaction]:
        """Return the next entries, of the next file if the one that was read has no more of them."""
        if self._place < 0:
            self._begin(segments)
        number = bisect_right(segments, self._place, key=lambda it: it.place) - 1
        if number < 0 or segments[number].place != self._place:
            raise self._gone()
        for segment in segments[number:]:
            if segment.place != self._place:
                self._place, self._entry = segment.place, 0
            count = min(segment.entries - self._entry, ENTRIES)
            if count > 0:
                return read_entries(self._open(segment, is_index=True), self._entry, count, segment.index)
        return []

    def _begin(self, segments: Sequence[Segment]) -> None:
        """Find the first entry after the commit_ts."""
        number = bisect_right(segments, self._after, key=lambda it: it.head.released) - 1
        segment = segments[max(number, 0)]
        fd = self._open(segment, is_index=True)
        self._entry = bisect_right(
            range(segment.entries), self._after, key=lambda it: read_entries(fd, it, 1, segment.index)[0].commit_ts
        )
        self._place = segment.place

    def _payload(self, it: Transaction, segments: Sequence[Segment]) -> bytes:
        commit = self._record(it.commit, segments)
        return commit if it.prewrite == NOWHERE else merge(self._record(it.prewrite, segments), commit)

    def _record(self, place: int, segments: Sequence[Segment]) -> bytes:
        segment = segment_at(segments, place)
        if segment is None:
            raise self._gone()
        return read_payload(self._open(segment), place - segment.place, segment.size, segment.path)

    def _open(self, segment: Segment, *, is_index: bool = False) -> int:
        path = segment.index if is_index else segment.path
        fd = self._fds.get(path.name)
        if fd is None:
            if len(self._fds) >= FILES:
                os.close(self._fds.pop(next(iter(self._fds))))
            fd = self._fds[path.name] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        return fd

    def _gone(self) -> CollectedError:
        return CollectedError(f"what committed after {self._after} is not kept any more")
