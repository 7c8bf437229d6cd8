"""A binlog file as the packets of a dump of it, which the decoder reads without a network."""

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from sluice.instance.sources.mysql.decode.events import BinlogEvent
from sluice.protocol.errors import DecodeError

MAGIC = b"\xfebin"
FIRST_OFFSET = len(MAGIC)
_HEADER = struct.Struct("<IBIIIH")  # timestamp, type, server id, size, log_pos, flags
_ARTIFICIAL = 0x20
_IN_USE = 0x01
_CONTINUED = 0xFFFFFF  # payload bytes of a packet that goes on in the next one


class PacketWriter:
    """Frames payloads as numbered MySQL packets."""

    def __init__(self) -> None:
        self._sequence = 1

    def packets(self, payload: bytes) -> Iterator[bytes]:
        """The packet of a payload, or several if it is longer than one packet can be."""
        start = 0
        while True:
            part = payload[start : start + _CONTINUED]
            yield len(part).to_bytes(3, "little") + bytes([self._sequence]) + part
            self._sequence = (self._sequence + 1) & 0xFF
            start += _CONTINUED
            if len(part) < _CONTINUED:
                return

    def event(self, event: bytes) -> Iterator[bytes]:
        """The packets of an event of a dump."""
        return self.packets(b"\0" + event)


def file_packets(path: Path, start: int = FIRST_OFFSET, *, writer: PacketWriter | None = None) -> Iterator[bytes]:
    """Send the file as a server sends it: a ROTATE event that names it, its FORMAT_DESCRIPTION event, then the events.

    With ``start`` beyond the first event, the events before it are left out. Ends where the file ends, even in the
    middle of an event that is still being written. A given ``writer`` continues the numbers of the previous file.
    Raises `DecodeError` if the file is not a binlog.
    """
    writer = writer or PacketWriter()
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise DecodeError(f"{path} is not a binlog: it does not begin with 0xFE 'bin'")
        body = start.to_bytes(8, "little") + path.name.encode()
        header = _HEADER.pack(0, BinlogEvent.ROTATE_EVENT, 0, _HEADER.size + len(body), 0, _ARTIFICIAL)
        yield from writer.event(header + body)
        description = _read_event(file)
        if description is None:
            return
        if start > FIRST_OFFSET:
            description = _sent_again(description)
            file.seek(start)
        yield from writer.event(description)
        while (event := _read_event(file)) is not None:
            yield from writer.event(event)


def _read_event(file: BinaryIO) -> bytes | None:
    header = file.read(_HEADER.size)
    if len(header) < _HEADER.size:
        return None
    size: int = _HEADER.unpack(header)[3]
    if size < _HEADER.size:
        raise DecodeError(f"an event of {size} bytes, which is less than a header")
    body = file.read(size - _HEADER.size)
    return header + body if len(header) + len(body) == size else None


def _sent_again(description: bytes) -> bytes:
    """The FORMAT_DESCRIPTION event as it comes before events from the middle of a file: without a place in it."""
    timestamp, event_type, server_id, size, _, flags = _HEADER.unpack_from(description)
    event = _HEADER.pack(timestamp, event_type, server_id, size, 0, flags & ~_IN_USE) + description[_HEADER.size :]
    if zlib.crc32(_without_in_use(description)[:-4]) != int.from_bytes(description[-4:], "little"):
        return event  # the server writes no checksums
    return event[:-4] + zlib.crc32(event[:-4]).to_bytes(4, "little")


def _without_in_use(event: bytes) -> bytes:
    timestamp, event_type, server_id, size, log_pos, flags = _HEADER.unpack_from(event)
    return _HEADER.pack(timestamp, event_type, server_id, size, log_pos, flags & ~_IN_USE) + event[_HEADER.size :]
