"""The files of a log: blocks one after the other, each with its checksums, and beside them an index.

A file is `<number>.log`, 20 digits. Its first block has no slots: its words say what the file is. `<number>.index` has
a line for each further block, with blanks between: offset, length, and the places before and after it. The index can
be made again from the file.

A block, numbers little-endian::

    "SLB1"  u32 words  u32 slots  u32 count  u64 entries  u32 crc of the entries  u32 crc of all but the entries
    words (JSON, UTF-8) | slots (see `slots.pyx`) | entries, as in the ring

Of a merged stream each place is a cut. The format of such a file says so: a version that knows only single sources
refuses it.

`<number>.zst.log` has the same blocks, and an index of its own. Those whose entries became shorter begin otherwise. The
checksum of the entries and the lengths before it are those of the entries as they were::

    "SLZ1"  ...  u32 crc of the entries  u32 crc of all but the entries
    u64 frame | words | slots | the entries as a frame of Zstandard
"""

import fcntl
import json
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from ...protocol.cut import ONE, Executed, executed_text, parse_place
from ...protocol.gtid import parse_gtids
from ...protocol.position import Position
from ..folder import sync_folder
from .errors import DamagedLogError, LogError
from .shapes import Shape, ShapedPart
from .slots import crc32
from .zstd import decompress

FORMAT: Final = 1
COMPRESSED_FORMAT: Final = 2
"""Of files that may have compressed blocks."""
MERGED_FORMAT: Final = 3
"""Of files of a merged stream, whose places are cuts; they may have compressed blocks."""
MAGIC: Final = b"SLB1"
COMPRESSED_MAGIC: Final = b"SLZ1"
HEADER: Final = struct.Struct("<4sIIIQII")
CHECKED: Final = HEADER.size - 4
"""Bytes of the header that its checksum covers: all but the checksum."""
LONGEST_HEAD: Final = 64 << 20
"""Bytes of words, or of slots, that are read at most."""
LENGTH: Final = struct.Struct("<Q")
LONGEST_COMPRESSED: Final = 64 << 20
"""Bytes that a frame becomes at most. A block has more only if it is a single entry: that one is not compressed."""
BUFFERS: Final = 512
"""Pieces that are given to the system at once, which takes 1024."""


@dataclass(frozen=True, slots=True)
class Words:
    """What a block says of itself in JSON."""

    from_: Position
    to: Position
    boundary: bool
    """The place after it is outside any transaction."""
    execute_ms: int
    """The event timestamp of its last entry; 0 without entries."""
    rows: int
    sources: list[Any]
    files: list[Any]
    tables: list[Any]
    gtid_sources: list[Any]
    """What its slots refer to, in the order of their numbers. A table is one version of it: its schema and name, the
    collations of its texts and the text that describes its columns, each if it is known."""
    gtids: list[Any]
    """The transactions that end in it: index in ``gtid_sources``, first, last."""

    def encode(self) -> bytes:
        """Return the JSON."""
        return _dumps(
            {
                "from": str(self.from_),
                "to": str(self.to),
                "boundary": self.boundary,
                "ms": self.execute_ms,
                "rows": self.rows,
                "sources": self.sources,
                "files": self.files,
                "tables": [(*it[:2], *filter(None, it[2:3])) for it in self.tables],
                "columns": [it[3] if len(it) > 3 else None for it in self.tables],
                "gtidSources": [(member, _plain(key)) for member, key in self.gtid_sources],
                "gtids": self.gtids,
            }
        )

    @classmethod
    def decode(cls, data: Mapping[str, Any]) -> "Words":
        """Read the JSON. Raises what malformed data raise."""
        return cls(
            parse_place(data["from"]),
            parse_place(data["to"]),
            bool(data["boundary"]),
            int(data["ms"]),
            int(data["rows"]),
            [(member, source) for member, source in data["sources"]],
            [(name, created) for name, created in data["files"]],
            list(map(_table_key, data["tables"], data.get("columns") or [None] * len(data["tables"]))),
            [(member, _gtid_key(*key)) for member, key in data["gtidSources"]],
            [(int(source), int(first), int(last)) for source, first, last in data["gtids"]],
        )


@dataclass(frozen=True, slots=True)
class FileHead:
    """What the first block of a file says."""

    destination: str
    start: Position
    """The place before its first entry."""
    continues: bool
    """It begins where the file before it ends: nothing is missing between them."""
    executed: str | None
    """The GTIDs executed at its start, as `write_executed` writes them; None if that is unknown."""
    shape: Shape
    """What was configured that shapes entries."""
    past: tuple[ShapedPart, ...] = ()
    """What was written before it, with what shape: so that this is known when the files before it are gone."""
    format: int = FORMAT

    @property
    def gtid(self) -> str:
        """The GTIDs executed at its start as a cursor has them; empty if that is unknown."""
        if not self.start.is_merged:
            return self.executed or ""
        return executed_text(read_executed(self.start, self.executed))

    def encode(self) -> bytes:
        """Return the JSON."""
        return _dumps(
            {
                "format": self.format,
                "destination": self.destination,
                "start": str(self.start),
                "continues": self.continues,
                "executed": self.executed,
                "shape": dict(self.shape),
                "past": [it.encode() for it in self.past],
            }
        )


@dataclass(frozen=True, slots=True)
class Block:
    """A block in a file: where it is, and everything of it but its entries."""

    offset: int
    end: int
    words: Mapping[str, Any]
    slots: bytes
    count: int
    size: int
    """Bytes of its entries."""
    crc: int
    """Their checksum."""
    stored: int
    """Bytes of them in the file: fewer if they are compressed."""


def write_executed(executed: Executed) -> str | None:
    """Return the text of the GTIDs executed where a file begins; unlike that of a cursor it has empty sets."""
    if not executed:
        return None
    return ";".join(f"{name}={it}" if name else str(it) for name, it in sorted(executed.items()))


def read_executed(start: Position, text: str | None) -> Executed:
    """Read what `write_executed` wrote for a place. Raises BadPositionError."""
    if text is None:
        return {}
    if not start.is_merged:
        return {ONE: parse_gtids(text)}
    members = (it.partition("=") for it in text.split(";") if it)
    return {name: parse_gtids(gtids) for name, _, gtids in members}


def create(path: Path) -> int:
    """Make a file, instead of one that an earlier attempt has left; return its descriptor. Raises OSError."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)


def begin(path: Path, head: Sequence[bytes | memoryview]) -> tuple[int, int, int]:
    """Make a file that begins with pieces, which are synced, and an empty index beside it. Raises OSError.

    Returns the descriptors of both, and the bytes of the pieces.
    """
    fds: list[int] = []
    try:
        fds += [create(path)]
        fds += [create(path.with_suffix(".index"))]
        size = write_at(fds[0], head, 0)
        os.fsync(fds[0])
        sync_folder(path.parent)
    except OSError:
        for fd in fds:
            os.close(fd)
        raise
    return fds[0], fds[1], size


def take_lock(folder: Path, what: str) -> IO[bytes]:
    """Keep other processes from a folder until the file is closed; ``what`` is called so. Raises LogError, OSError."""
    lock = os.fdopen(os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+b")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise LogError(f"another process uses {what} in {folder}: stop it") from None
    return lock


def frame(
    words: bytes, slots: bytes, count: int, entries: Sequence[memoryview], compressed: bytes | None = None
) -> list[bytes | memoryview]:
    """Return the bytes of a block, in pieces: the entries are not copied. ``compressed`` are the same entries."""
    crc = size = 0
    for piece in entries:
        crc = crc32(piece, crc)
        size += len(piece)
    magic, length = (MAGIC, b"") if compressed is None else (COMPRESSED_MAGIC, LENGTH.pack(len(compressed)))
    start = HEADER.pack(magic, len(words), len(slots), count, size, crc, 0)[:CHECKED]
    head = crc32(slots, crc32(words, crc32(length, crc32(start))))
    stored = entries if compressed is None else [compressed]
    return [start + struct.pack("<I", head) + length, words, slots, *stored]


def write_at(fd: int, pieces: Sequence[bytes | memoryview], offset: int) -> int:
    """Write pieces one after the other; return the offset after them. Raises OSError."""
    left = [memoryview(piece) for piece in pieces if len(piece)]
    while left:
        done = os.pwritev(fd, left[:BUFFERS], offset)
        offset += done
        while left and done >= len(left[0]):
            done -= len(left.pop(0))
        if done:
            left[0] = left[0][done:]
    return offset


def read_at(fd: int, size: int, offset: int, path: Path) -> bytes:
    """Read so many bytes, less only where the file ends. Raises LogError when they cannot be read."""
    pieces = []
    while size > 0:
        try:
            piece = os.pread(fd, min(size, 1 << 30), offset)
        except OSError as error:
            raise LogError(f"{path} cannot be read: {error}") from error
        if not piece:
            break
        pieces.append(piece)
        size -= len(piece)
        offset += len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def read_block(fd: int, offset: int, path: Path) -> Block | None:
    """Read the block at an offset, without its entries; None if the file ends there.

    Raises:
        DamagedLogError: no whole block is there, or its checksum is wrong.
        LogError: the disk does not give it.
    """
    header = read_at(fd, HEADER.size, offset, path)
    if not header:
        return None
    if len(header) < HEADER.size:
        raise _damaged(path, offset, "its header is cut off")
    magic, words, slots, count, size, crc, head = HEADER.unpack(header)
    if magic not in (MAGIC, COMPRESSED_MAGIC) or max(words, slots) > LONGEST_HEAD:
        raise _damaged(path, offset, "no block begins there")
    before = LENGTH.size if magic == COMPRESSED_MAGIC else 0
    data = read_at(fd, before + words + slots, offset + HEADER.size, path)
    if len(data) < before + words + slots:
        raise _damaged(path, offset, "it is cut off")
    if crc32(data, crc32(header[:CHECKED])) != head:
        raise _damaged(path, offset, "the checksum of its head is wrong")
    stored = size
    if before:
        (stored,) = LENGTH.unpack(data[:before])
        if not stored < size <= LONGEST_COMPRESSED:
            raise _damaged(path, offset, f"{stored} bytes cannot be {size} bytes that were compressed")
    end = offset + HEADER.size + len(data) + stored
    if end > os.fstat(fd).st_size:  # asked before there is memory for it
        raise _damaged(path, offset, "it is cut off")
    data = data[before:]
    try:
        said = json.loads(data[:words])
    except (ValueError, RecursionError) as error:
        raise _damaged(path, offset, str(error)) from error
    if not isinstance(said, dict):
        raise _damaged(path, offset, "its words are not an object")
    return Block(offset, end, said, data[words:], count, size, crc, stored)


class EntriesReader:
    """Reads the entries of one block after the other, each into the same memory."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._compressed = bytearray()

    @contextmanager
    def read(self, fd: int, block: Block, path: Path) -> Iterator[memoryview]:
        """Give the entries of a block for as long as the context lasts.

        Raises LogError when they are not what was written.
        """
        if len(self._buffer) < block.size:
            self._buffer = bytearray(block.size)
        with memoryview(self._buffer)[: block.size] as entries:
            if block.stored == block.size:
                _fill(entries, fd, block, path)
            else:
                self._decompress(entries, fd, block, path)
            if crc32(entries) != block.crc:
                raise _damaged(path, block.offset, "the checksum of its entries is wrong")
            yield entries

    def _decompress(self, entries: memoryview, fd: int, block: Block, path: Path) -> None:
        if len(self._compressed) < block.stored:
            self._compressed = bytearray(block.stored)
        with memoryview(self._compressed)[: block.stored] as compressed:
            _fill(compressed, fd, block, path)
            try:
                decompress(compressed, entries)
            except ValueError as error:
                raise _damaged(path, block.offset, str(error)) from error


def _fill(memory: memoryview, fd: int, block: Block, path: Path) -> None:
    """Read the entries of a block as they are stored. Raises LogError."""
    done = 0
    while done < block.stored:
        try:
            size = os.preadv(fd, [memory[done:]], block.end - block.stored + done)
        except OSError as error:
            raise LogError(f"the log cannot be read: {error}") from error
        if not size:
            raise _damaged(path, block.offset, "it is cut off")
        done += size


def check_entries(fd: int, block: Block, path: Path, piece: int = 1 << 20) -> None:
    """Read the entries of a block, a piece at a time. Raises LogError when they are not what was written."""
    if block.stored != block.size:
        with EntriesReader().read(fd, block, path):
            return
    crc, left, offset = 0, block.size, block.end - block.size
    while left:
        data = read_at(fd, min(left, piece), offset, path)
        if not data:
            raise _damaged(path, block.offset, "it is cut off")
        crc = crc32(data, crc)
        left -= len(data)
        offset += len(data)
    if crc != block.crc:
        raise _damaged(path, block.offset, "the checksum of its entries is wrong")


def words_of(block: Block, path: Path) -> Words:
    """Return what a block says of itself. Raises LogError."""
    try:
        return Words.decode(block.words)
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(path, block.offset, f"its words make no sense ({type(error).__name__}: {error})") from error


def read_head(fd: int, path: Path) -> tuple[FileHead, int]:
    """Read what a file is, and where its second block begins. Raises LogError."""
    block = read_block(fd, 0, path)
    if block is None:
        raise _damaged(path, 0, "the file is empty")
    words = block.words
    try:
        if words["format"] not in (FORMAT, COMPRESSED_FORMAT, MERGED_FORMAT):
            raise LogError(
                f"{path} has format {words['format']!r}, which another version of Sluice has written. Run that version,"
                f" or move the folder away: then a new log begins, and what this one holds is read from the source"
            )
        executed = words["executed"]
        head = FileHead(
            str(words["destination"]),
            parse_place(words["start"]),
            bool(words["continues"]),
            None if executed is None else str(executed),
            dict(words["shape"]),
            tuple(ShapedPart.decode(it) for it in words.get("past", ())),
            words["format"],
        )
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(path, 0, f"its words make no sense ({type(error).__name__}: {error})") from error
    return head, block.end


def index_line(offset: int, end: int, from_: Position, to: Position) -> bytes:
    """Return the line of a block in the index."""
    return f"{offset} {end - offset} {from_} {to}\n".encode()


def scan(fd: int, start: int, path: Path) -> Iterator[Block]:
    """Give the blocks of a file from an offset on, with all bytes checked. Raises LogError at a damaged one."""
    offset = start
    while (block := read_block(fd, offset, path)) is not None:
        check_entries(fd, block, path)
        yield block
        offset = block.end


def _damaged(path: Path, offset: int, why: str) -> DamagedLogError:
    return DamagedLogError(f"the block at byte {offset} of {path} is damaged: {why}")


def _table_key(table: Sequence[Any], columns: str | None) -> tuple[Any, ...]:
    """Return by what a ring knows a version of a table; blocks of earlier versions do not describe its columns."""
    schema, name, *more = table
    if columns is None:
        return (schema, name, *map(tuple, more))
    return (schema, name, tuple(more[0]) if more else (), str(columns))


def _plain(key: Any) -> Any:
    """Return what numbers transactions as JSON can hold it: MySQL's UUID is bytes."""
    return [part.hex() if isinstance(part, bytes) else part for part in key]


def _gtid_key(first: str | int, second: str | int) -> Any:
    return (bytes.fromhex(first), str(second)) if isinstance(first, str) else (int(first), int(second))


def _dumps(data: Mapping[str, Any]) -> bytes:
    return json.dumps(data, separators=(",", ":")).encode()
