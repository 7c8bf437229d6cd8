"""The frames of a file of changes: those of TiDB's Drainer (tidb-binlog, pkg/binlogfile, encoder.go).

::

    magic    4 bytes, little-endian, 471532804
    size     8 bytes, little-endian: of the payload
    payload
    crc32c   4 bytes, little-endian: of the payload

The payload is `Messages` of packet.proto, those of a batch with ``from_position``, ``to_position`` and ``positions``.
(Drainer's is a message of its own, with values in the codec of TiKV.) A note has no batch, so its ``batch_id`` is -1:
it has the GTIDs that were executed at ``to_position``.
"""

import struct
from collections.abc import Callable, Iterator
from typing import Final

import crc32c

from .canal.packet_pb2 import Messages
from .errors import DecodeError
from .wire import varint

MAGIC: Final = 471532804
HEAD: Final = struct.Struct("<IQ")
TAIL: Final = struct.Struct("<I")
LARGEST: Final = (1 << 32) - 1
"""Bytes of a payload: a batch is smaller, unless it is one large entry."""
_PIECE: Final = 16 << 20
_NOTE: Final = b"\x08" + varint((1 << 64) - 1)


def frame(payload: bytes | memoryview) -> bytes:
    """Return a payload as a frame."""
    return b"".join((HEAD.pack(MAGIC, len(payload)), payload, TAIL.pack(crc32c.crc32c(payload))))


def note(position: str, gtids: str) -> bytes:
    """Return the frame of a note: what was executed at a position."""
    return frame(Messages(batch_id=-1, to_position=position, executed=gtids).SerializeToString())


def read_note(payload: bytes) -> tuple[str, str] | None:
    """Return the position and the GTIDs of a note; None for the payload of a batch."""
    if not payload.startswith(_NOTE):
        return None
    found = Messages.FromString(payload)
    return found.to_position, found.executed


def read_frames(read: Callable[[int], bytes]) -> Iterator[bytes]:
    """Give the payloads of a whole file; ``read`` takes a maximum size, and returns no bytes at the end.

    Raises DecodeError, which names the offset, and what ``read`` raises.
    """
    offset = 0
    while head := _take(read, HEAD.size, offset, may_end=True):
        magic, size = HEAD.unpack(head)
        if magic != MAGIC or size > LARGEST:
            raise DecodeError(f"offset {offset}: no frame of changes begins here")
        payload = _take(read, size, offset)
        (checksum,) = TAIL.unpack(_take(read, TAIL.size, offset))
        if crc32c.crc32c(payload) != checksum:
            raise DecodeError(f"offset {offset}: the checksum of the frame does not match its {size} bytes")
        offset += HEAD.size + size + TAIL.size
        yield payload


def _take(read: Callable[[int], bytes], size: int, offset: int, *, may_end: bool = False) -> bytes:
    """Read ``size`` bytes, or none at the end of the file where it may end."""
    pieces: list[bytes] = []
    left = size
    while left:
        piece = read(min(left, _PIECE))
        if not piece:
            if may_end and left == size:
                return b""
            raise DecodeError(f"offset {offset}: the file ends inside a frame")
        pieces.append(piece)
        left -= len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
