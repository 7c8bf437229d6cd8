"""Frames of Canal's protocol, without I/O.

A frame, in both directions::

    <length>          4 bytes, big-endian, signed
    <Packet>          ``length`` bytes

A Packet that carries a batch, as Canal writes it; the ring keeps every entry framed as ``Messages.messages`` already,
so that a batch is a few bytes of our own and slices of the ring::

    18 07                             Packet.type, MESSAGES
    2a <varint length>                Packet.body, Messages:
       08 <varint batchId>               batch_id
       12 <varint length> <Entry>        messages; once an entry

Every other Packet, an empty batch among them, has ``10 01`` (version 1) before its type.
"""

import struct

from google.protobuf.message import Message

from ...protocol.canal import tags
from ...protocol.canal.packet_pb2 import Ack, Handshake, Messages, Packet
from ...protocol.formats.format import BytesLike
from ...protocol.wire import varint
from ...store.batch import Batch

LENGTH = struct.Struct(">i")
VERSION = 1
_BATCH_ID = varint(tags.BATCH_ID)
_BATCH_BODY = varint(tags.PACKET_TYPE) + varint(Packet.MESSAGES) + varint(tags.PACKET_BODY)
HTTP = (b"GET ", b"HEAD", b"POST", b"PUT ")
"""How a request to the wrong port begins."""


class FrameError(Exception):
    """What the peer sent is not of the protocol, or too long; nothing after it can be read."""


class FrameReader:
    """Cuts what arrives into frames. ``limit`` is the length that a frame may have; it may be changed between two."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._data = bytearray()

    def feed(self, data: bytes) -> None:
        """Take what has arrived."""
        self._data += data

    def __len__(self) -> int:
        """How many bytes wait."""
        return len(self._data)

    def take(self) -> bytes | None:
        """Return the next frame; None when it has not arrived whole. Raises FrameError for an impossible length."""
        if len(self._data) < LENGTH.size:
            return None
        (length,) = LENGTH.unpack_from(self._data)
        if not 0 <= length <= self.limit:
            asked = "; this is HTTP, which has a port of its own" if bytes(self._data[:4]) in HTTP else ""
            raise FrameError(f"a frame of {length} bytes; up to {self.limit} are taken{asked}")
        end = LENGTH.size + length
        if len(self._data) < end:
            return None
        frame = bytes(self._data[LENGTH.size : end])
        del self._data[:end]
        return frame


def packet_frame(kind: Packet.PacketType.ValueType, body: Message) -> bytes:
    """Return the frame of a packet of the server."""
    packet = Packet(version=VERSION, type=kind, body=body.SerializeToString()).SerializeToString()
    return LENGTH.pack(len(packet)) + packet


def handshake(seed: bytes) -> bytes:
    """Return the first frame of a connection."""
    return packet_frame(Packet.HANDSHAKE, Handshake(seeds=seed))


def refusal(code: int, text: str) -> bytes:
    """Return the frame of an error."""
    return packet_frame(Packet.ACK, Ack(error_code=code, error_message=text))


OK = packet_frame(Packet.ACK, Ack())
"""The frame of an answer without an error."""
EMPTY_BATCH = packet_frame(Packet.MESSAGES, Messages(batch_id=-1))
"""The frame of a get that found nothing."""


def batch_parts(batch: Batch) -> list[BytesLike]:
    """Return the frame of a batch, its entries unchanged from the ring."""
    if not batch.entries:
        return [EMPTY_BATCH]
    batch_id = _BATCH_ID + varint(batch.batch_id)
    head = _BATCH_BODY + varint(len(batch_id) + batch.bytes) + batch_id
    return [LENGTH.pack(len(head) + batch.bytes) + head, *batch.slices]
