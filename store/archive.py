"""Whole files of changes in a folder, as an output of type file writes them, each with an index.

::

    0000000007-12.pb.zst     file 7, begun in epoch 12 of its destination
    0000000007-12.index      JSON: an `Index`

Of indexes with one number the one of the greatest epoch counts.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Final, Self

from ..protocol.errors import DecodeError
from ..protocol.frames import HEAD, TAIL, read_frames
from .log.zstd import decompress, frame_size
from .remote import RemotePath

SUFFIX: Final = ".index"
COMPRESSED: Final = ".zst"
PIECE: Final = 4 << 20
"""Bytes that become a frame of a compressed file."""
_MOST: Final = PIECE + (1 << 20)
"""Bytes of such a frame at most."""
_NAME: Final = re.compile(r"(\d{10,18})-(\d{1,18})\.index")
_FILE: Final = re.compile(r"\d{10,18}-\d{1,18}(\.[a-z]{1,16}){1,2}")
_LARGEST_INDEX: Final = 64 << 20
_MEMBERS: Final = ("file", "format", "from", "to", "gtidsBefore", "gtids", "lastTime", "rows", "bytes")
_TYPES: Final = (*(str,) * 6, *(int,) * 3)


@dataclass(frozen=True, slots=True)
class Index:
    """What a whole file has."""

    file: str
    """Its name."""
    format: str
    from_position: str
    """The place before its first change, which is that after the file before."""
    to_position: str
    """The place after its last change; empty if it has no name."""
    gtids_before: str
    """The GTIDs that were executed at the one place ..."""
    gtids: str
    """... and at the other; empty if unknown."""
    last_time: int
    """The latest time of a change, ms since 1970."""
    rows: int
    size: int
    """Bytes, before they were compressed."""

    def __str__(self) -> str:
        return json.dumps(dict(zip(_MEMBERS, astuple(self), strict=True)))

    @classmethod
    def parse(cls, text: bytes) -> Self:
        """Read the text form. Raises DecodeError."""
        try:
            members = json.loads(text)
            found = cls(*(members[name] for name in _MEMBERS))
        except (ValueError, KeyError, TypeError, RecursionError):
            raise DecodeError(f"it is no index of a file of changes: {text[:200]!r}") from None
        if any(type(value) is not wanted for value, wanted in zip(astuple(found), _TYPES, strict=True)):
            raise DecodeError(f"it is no index of a file of changes: {text[:200]!r}")
        if not _FILE.fullmatch(found.file):  # the name of a file elsewhere
            raise DecodeError(f"it names the file {found.file[:200]!r}")
        return found


def folder_of(text: str) -> Path | RemotePath:
    """Return a folder by its path, or by its URL in an object store. Raises ValueError."""
    return RemotePath.parse(text) if "://" in text else Path(text)


def read_indexes(folder: Path | RemotePath, after: int = 0) -> list[Index]:
    """Return the indexes of a folder with a greater number, in the order of the files.

    Raises OSError, DecodeError that names the index.
    """
    newest: dict[int, tuple[int, str]] = {}
    names = folder.names() if isinstance(folder, RemotePath) else [it.name for it in folder.iterdir()]
    for name in names:
        if (match := _NAME.fullmatch(name)) and int(match[1]) > after:
            number, epoch = int(match[1]), int(match[2])
            newest[number] = max(newest.get(number, (0, "")), (epoch, name))
    return [_read_index(folder / name) for _number, (_epoch, name) in sorted(newest.items())]


def _read_index(path: Path | RemotePath) -> Index:
    with path.open("rb") as file:
        text = file.read(_LARGEST_INDEX)
    try:
        return Index.parse(text)
    except DecodeError as error:
        raise DecodeError(f"{path}: {error}") from None


def read_file(folder: Path | RemotePath, index: Index) -> Iterator[bytes]:
    """Give the payloads of a file of format ``pb``.

    Raises OSError, and DecodeError that names file and offset; also for a file that is shorter than its index says.
    """
    path = folder / index.file
    size = 0
    try:
        with path.open("rb") as file:
            read = _Decompressing(file.read).read if path.suffix == COMPRESSED else file.read
            for payload in read_frames(read):
                size += HEAD.size + len(payload) + TAIL.size
                yield payload
    except (DecodeError, ValueError) as error:
        raise DecodeError(f"{path}: {error}") from None
    if size != index.size:
        raise DecodeError(f"{path}: it has {size} bytes before compression, and its index says {index.size}")


class _Decompressing:
    """Reads a compressed file."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read = read
        self._compressed = b""
        self._plain = memoryview(b"")

    def read(self, size: int) -> bytes:
        """Return up to ``size`` bytes; none at the end. Raises ValueError."""
        if not self._plain:
            self._compressed += self._read(_MOST - len(self._compressed))
            if not self._compressed:
                return b""
            used, content = frame_size(self._compressed)
            if content > PIECE:
                raise ValueError(f"a frame of zstd has {content} bytes")
            plain = bytearray(content)
            decompress(memoryview(self._compressed)[:used], plain)
            self._compressed, self._plain = self._compressed[used:], memoryview(plain)
        piece, self._plain = self._plain[:size], self._plain[size:]
        return bytes(piece)
