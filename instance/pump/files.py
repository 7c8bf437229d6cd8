"""The files of a pump's log: what TiDB has written, by arrival, and beside each file an index of whole transactions.

A place is an offset in the whole log, whose files follow each other. A file has the place where it begins as its name,
20 digits. ``<place>.pump`` begins with a head, numbers little-endian. Records follow::

    "SLP1"  u32 format  u64 cluster id  u64 place  i64 released  u64 needed  u32 crc of what is before
    u32 size  u32 crc of the size and the payload | payload: a `Binlog` as TiDB has sent it

Up to the commit_ts ``released`` all was released when the file began. From the place ``needed`` on the records are
read again to pair those that come. ``<place>.index`` has what was released by the records of the file, in the order of
commit_ts. It is made again from the files when it is missing::

    i64 commit_ts  i64 start_ts  i64 place of the Prewrite or -1  i64 place of the Commit  u32 crc of what is before
"""

import os
import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from ...store.log.errors import DamagedLogError, LogError
from ...store.log.files import read_at
from ...store.log.slots import crc32
from .pairing import Transaction

FORMAT: Final = 1
MAGIC: Final = b"SLP1"
HEAD: Final = struct.Struct("<4sIQQqQI")
RECORD: Final = struct.Struct("<II")
ENTRY: Final = struct.Struct("<qqqqI")
SIZE: Final = struct.Struct("<I")
AHEAD: Final = 4096
"""Bytes that are read with the header of a record: most records have fewer."""
SUFFIX: Final = ".pump"


class Head(NamedTuple):
    """What a file says of itself."""

    cluster_id: int
    place: int
    """Where it begins."""
    released: int
    """The commit_ts up to which all was released when it began."""
    needed: int
    """The place of the first record that was needed then for what was not released."""

    def encode(self) -> bytes:
        """Return its bytes."""
        data = HEAD.pack(MAGIC, FORMAT, *self, 0)[: -SIZE.size]
        return data + SIZE.pack(crc32(data))


@dataclass(slots=True)
class Segment:
    """A file of the log. One thread changes it; what the numbers cover is written."""

    path: Path
    head: Head
    size: int
    """Bytes of its head and of its whole records."""
    entries: int = 0
    """Of its index."""

    @property
    def place(self) -> int:
        """Where it begins."""
        return self.head.place

    @property
    def end(self) -> int:
        """The place after its last record."""
        return self.head.place + self.size

    @property
    def index(self) -> Path:
        """The file of its index."""
        return self.path.with_suffix(".index")


def path_of(folder: Path, place: int) -> Path:
    """Return the file that begins at a place."""
    return folder / f"{place:020d}{SUFFIX}"


def read_head(path: Path) -> Head:
    """Read what a file says of itself. Raises DamagedLogError, LogError for another format, and OSError."""
    with path.open("rb") as file:
        data = file.read(HEAD.size)
    if len(data) < HEAD.size or SIZE.pack(crc32(data[: -SIZE.size])) != data[-SIZE.size :]:
        raise DamagedLogError(f"{path} does not begin as a file of a pump's log")
    magic, version, *values, _ = HEAD.unpack(data)
    if magic != MAGIC or version != FORMAT:
        raise LogError(f"{path} has format {version}, which another version of Sluice has written: run that version")
    head = Head(*values)
    if path.name != path_of(path.parent, head.place).name:
        raise DamagedLogError(f"{path} begins at the place {head.place}, which is not its name")
    return head


def frame(payload: bytes) -> tuple[bytes, bytes]:
    """Return a record, in pieces: the payload is not copied."""
    size = SIZE.pack(len(payload))
    return size + SIZE.pack(crc32(payload, crc32(size))), payload


def read_payload(fd: int, offset: int, end: int, path: Path) -> bytes:
    """Read the record at an offset of a file, of which ``end`` bytes are written.

    Raises DamagedLogError when none is there, LogError when the disk does not give it.
    """
    data = read_at(fd, min(AHEAD, end - offset), offset, path)
    if len(data) < RECORD.size:
        raise _damaged(path, offset, "it is cut off")
    size, crc = RECORD.unpack_from(data)
    if offset + RECORD.size + size > end:  # asked before there is memory for it
        raise _damaged(path, offset, "it is cut off")
    payload = data[RECORD.size : RECORD.size + size]
    if len(payload) < size:
        payload += read_at(fd, size - len(payload), offset + len(data), path)
    if len(payload) < size or crc32(payload, crc32(data[: SIZE.size])) != crc:
        raise _damaged(path, offset, "its checksum is wrong")
    return payload


def scan(segment: Segment, place: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Give the records of a file with their places, from a place up to an offset of the file.

    Raises DamagedLogError at the first that is not whole, LogError and OSError.
    """
    offset = max(place - segment.place, HEAD.size)
    fd = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        while offset < end:
            payload = read_payload(fd, offset, end, segment.path)
            yield segment.place + offset, payload
            offset += RECORD.size + len(payload)
    finally:
        os.close(fd)


def segment_at(segments: Sequence[Segment], place: int) -> Segment | None:
    """Return the file with the record at a place; None if there is none."""
    number = bisect_right(segments, place, key=lambda it: it.place) - 1
    return segments[number] if number >= 0 and place < segments[number].end else None


def encode_entry(it: Transaction) -> bytes:
    """Return the entry of a transaction in an index."""
    data = ENTRY.pack(*it, 0)[: -SIZE.size]
    return data + SIZE.pack(crc32(data))


def read_entries(fd: int, first: int, count: int, path: Path) -> list[Transaction]:
    """Read entries of an index. Raises LogError when they are not what was written."""
    found = _decode(read_at(fd, count * ENTRY.size, first * ENTRY.size, path))
    if len(found) < count:
        number = first + len(found)
        raise DamagedLogError(
            f"entry {number} of {path} is damaged: stop the server and remove this file, which is made again at a start"
        )
    return found


def furthest_of(segment: Segment) -> int:
    """Return the greatest place that the index of a file names: up to there all was on disk. -1 if it names none.

    Raises OSError.
    """
    if not segment.index.exists():
        return -1
    return max((it.commit for it in _decode(segment.index.read_bytes())), default=-1)


def _decode(data: bytes) -> list[Transaction]:
    """Read entries of an index, up to the first that is not whole."""
    found = []
    for offset in range(0, len(data), ENTRY.size):
        entry = data[offset : offset + ENTRY.size]
        if len(entry) < ENTRY.size or SIZE.pack(crc32(entry[: -SIZE.size])) != entry[-SIZE.size :]:
            break
        *values, _ = ENTRY.unpack(entry)
        found.append(Transaction(*values))
    return found


def collected_of(segments: Sequence[Segment]) -> int | None:
    """Return the commit_ts after which all transactions are in these files; None if they have not even the last."""
    oldest = segments[0].place
    return next((it.head.released for it in segments if it.head.needed >= oldest), None)


def _damaged(path: Path, offset: int, why: str) -> DamagedLogError:
    return DamagedLogError(f"the record at byte {offset} of {path} is damaged: {why}")
