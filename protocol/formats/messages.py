"""Canal's ``Messages`` (protobuf; the ring keeps every entry framed as ``Messages.messages`` already).

::

    08 <varint batchId>              field 1, batchId; -1 for an empty batch (ten bytes)
    aa 06 <varint length> <text>     field 101, from_position
    b2 06 <varint length> <text>     field 102, to_position
    ba 06 <varint length> <varints>  field 103, positions: begin and n of each entry, before the entries
    12 <varint length> <Entry>       field 2, messages; once per entry, moved as slices of the ring

In a stream each ``Messages`` is preceded by its length, 4 bytes big-endian. The pieces of a range have no places of
their own: after the last one those of the range follow.
"""

import struct

from ..canal import tags
from ..wire import varint
from .format import BytesLike, Encodable, Format, Pieces

LENGTH = struct.Struct(">I")
_BATCH_ID = varint(tags.BATCH_ID)
_POSITIONS = varint(tags.POSITIONS)
_FROM_POSITION = varint(tags.FROM_POSITION)
_TO_POSITION = varint(tags.TO_POSITION)


def _places(batch: Encodable) -> bytes:
    return b"".join(
        tag + varint(len(text)) + text
        for tag, text in ((_FROM_POSITION, batch.from_.encode()), (_TO_POSITION, batch.to.encode()))
    )


def _encode_piece(batch: Encodable, _strict: bool, places: bytes = b"") -> list[BytesLike]:
    head = _BATCH_ID + varint(batch.batch_id) + places
    if batch.positions:
        head += _POSITIONS + varint(len(batch.positions)) + batch.positions
    return [head, *batch.slices]


def _encode(batch: Encodable, strict: bool) -> list[BytesLike]:
    return _encode_piece(batch, strict, _places(batch))


def _encode_in_stream(batch: Encodable, strict: bool) -> list[BytesLike]:
    parts = _encode(batch, strict)
    return [LENGTH.pack(sum(map(len, parts))), *parts]


def _frame(whole: Encodable) -> tuple[bytes, bytes, bytes]:
    return b"", b"", _places(whole)  # several Messages joined are one Messages


PROTOBUF = Format(
    name="protobuf",
    text="Canal's `Messages`; in a stream each after its length, 4 bytes, big-endian",
    media_type="application/x-protobuf",
    aliases=("application/protobuf",),
    moves=True,
    encode=_encode,
    in_stream=_encode_in_stream,
    pieces=Pieces(_encode_piece, _frame),
)
