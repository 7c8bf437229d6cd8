"""How a batch is written: the choice by ``Accept``, the bodies, and the sending of slices without a copy.

Protobuf (Canal's ``Messages``; the ring keeps every entry framed as ``Messages.messages`` already)::

    08 <varint batchId>              field 1, batchId; -1 for an empty batch (ten bytes)
    ba 06 <varint length> <varints>  field 103, positions: begin and n of each entry, before the entries
    12 <varint length> <Entry>       field 2, messages; once an entry, moved as slices of the ring

In a stream each ``Messages`` is preceded by its length, 4 bytes big-endian, and has two fields more, since a stream has
no headers for them::

    aa 06 <varint length> <text>     field 101, from_position
    b2 06 <varint length> <text>     field 102, to_position

JSON and NDJSON bodies come from the compiled FlatMessage codec, Arrow's from the compiled Arrow codec, where pyarrow is
installed.
"""

import asyncio
import json
import struct
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import lru_cache, partial
from importlib.util import find_spec

from fastapi import Response
from starlette.types import Message, Receive, Scope, Send

from sluice.protocol.arrow import EnvelopeDecoder
from sluice.protocol.errors import NotAcceptableError
from sluice.protocol.flat import flat_json, flat_ndjson
from sluice.protocol.varint import varint
from sluice.server.network import COPIED, Part, unless_stalled
from sluice.store.batch import Batch

LENGTH = struct.Struct(">I")
HAS_ARROW = find_spec("pyarrow") is not None


class Format(StrEnum):
    """What a batch is written as; the value is its media type."""

    JSON = "application/json"
    NDJSON = "application/x-ndjson"
    PROTOBUF = "application/x-protobuf"
    ARROW = "application/vnd.apache.arrow.stream"


SINGLE = (Format.JSON, Format.NDJSON, Format.PROTOBUF, Format.ARROW)
STREAMED = (Format.NDJSON, Format.PROTOBUF)
ALIASES = {"application/ndjson": Format.NDJSON, "application/protobuf": Format.PROTOBUF}


def negotiate(accept: str | None, offered: Sequence[Format]) -> Format:
    """Choose the offered format that ``accept`` likes best (RFC 9110 section 12.5.1), the first when it does not care.

    Raises NotAcceptableError.
    """
    ranges = _ranges(accept or "*/*")

    def liking(it: Format) -> float:
        return ranges.get(it, ranges.get(it.partition("/")[0] + "/*", ranges.get("*/*", 0.0)))

    writable = [it for it in offered if it is not Format.ARROW or HAS_ARROW]
    best = max(writable, key=liking)
    if liking(best) <= 0:
        reason = f"This call answers with {', '.join(writable)}, none of which the Accept header takes."
        if writable != [*offered]:
            reason += f" For {Format.ARROW} the server lacks pyarrow: pip install 'sluice[arrow]'."
        raise NotAcceptableError(reason)
    return best


@lru_cache(maxsize=64)
def _ranges(accept: str) -> Mapping[str, float]:
    """How much each media range is liked; clients send the same text with every call."""
    ranges: dict[str, float] = {}
    for part in accept.split(","):
        media, *parameters = (piece.strip().lower() for piece in part.split(";"))
        quality = next((p.removeprefix("q=") for p in parameters if p.startswith("q=")), "1")
        try:
            ranges[ALIASES.get(media, media)] = float(quality)
        except ValueError:
            ranges[media] = 0.0
    return ranges


def summary(batch: Batch) -> dict[str, int | str]:
    """Return the members of a batch besides its entries."""
    return {"batchId": batch.batch_id, "from": batch.from_, "to": batch.to}


def protobuf(batch: Batch) -> list[Part]:
    """Canal's ``Messages``: a few bytes of our own, then the slices as they are."""
    head = b"\x08" + varint(batch.batch_id)
    if batch.positions:
        head += b"\xba\x06" + varint(len(batch.positions)) + batch.positions
    return [head, *batch.slices]


def framed_protobuf(batch: Batch) -> list[Part]:
    """``protobuf`` with the positions, behind its length, for a stream."""
    head, *slices = protobuf(batch)
    positions = b"".join(
        tag + varint(len(text)) + text
        for tag, text in ((b"\xaa\x06", batch.from_.encode()), (b"\xb2\x06", batch.to.encode()))
    )
    length = len(head) + len(positions) + sum(map(len, slices))
    return [LENGTH.pack(length) + head + positions, *slices]


def json_object(batch: Batch, *, strict: bool) -> list[Part]:
    """``{"batchId", "from", "to", "entries": [FlatMessage…]}``."""
    head = json.dumps(summary(batch), ensure_ascii=False).encode().removesuffix(b"}")
    return [head + b', "entries": ', flat_json(batch.slices, batch.batch_id, strict=strict), b"}"]


def ndjson(batch: Batch, *, strict: bool) -> list[Part]:
    """One FlatMessage a line, then one line that says which batch it was."""
    last = json.dumps(summary(batch), ensure_ascii=False).encode() + b"\n"
    return [flat_ndjson(batch.slices, batch.batch_id, strict=strict), last]


def arrow(batch: Batch) -> list[Part]:
    """Arrow IPC stream of one record batch, whose schema's metadata says which batch it was."""
    import pyarrow as pa  # noqa: PLC0415  not always there

    # The copy that joins the slices costs little beside decoding them.
    rows = EnvelopeDecoder().decode(b"".join(protobuf(batch)))
    rows = rows.replace_schema_metadata({key: str(value) for key, value in summary(batch).items()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    return [memoryview(sink.getvalue())]


async def encode(form: Format, batch: Batch, *, stream: bool = False, strict: bool = False) -> list[Part]:
    """Write a batch; ``strict`` writes FlatMessages exactly as Canal does."""
    if form is Format.PROTOBUF:
        return framed_protobuf(batch) if stream else protobuf(batch)
    if form is Format.ARROW:
        write = partial(arrow, batch)
    else:
        write = partial(ndjson if form is Format.NDJSON else json_object, batch, strict=strict)
    if batch.bytes > COPIED:  # the codecs release the GIL: what takes them long need not hold up the event loop
        return await asyncio.to_thread(write)
    return write()


def frame(form: Format, whole: Batch) -> tuple[bytes, bytes, bytes]:
    """Return what stands before, between and behind the pieces of a range that is written piece by piece."""
    if form is Format.PROTOBUF:  # joined Messages are one
        return b"", b"", b""
    text = json.dumps(summary(whole), ensure_ascii=False).encode()
    if form is Format.NDJSON:
        return b"", b"", text + b"\n"
    return text.removesuffix(b"}") + b', "entries": [', b",", b"]}"


async def encode_piece(form: Format, piece: Batch, *, strict: bool) -> list[Part]:
    """Write a piece of a range."""
    if form is Format.PROTOBUF:
        return protobuf(piece)
    if form is Format.NDJSON:
        return [await asyncio.to_thread(flat_ndjson, piece.slices, piece.batch_id, strict=strict)]
    array = await asyncio.to_thread(flat_json, piece.slices, piece.batch_id, strict=strict)
    return [array.strip()[1:-1]]


class PartsResponse(Response):
    """A body of known length, sent part by part without a copy; a slice of the ring is let go as soon as it is sent.

    The transport keeps what it has not sent yet, and so the segment stays pinned while its reader is slow. A reader
    that takes nothing for ``STALLED`` seconds is cut off, because pinned memory counts against the ring.
    """

    def __init__(self, parts: list[Part], media_type: str, headers: Mapping[str, str]) -> None:
        super().__init__(None, 200, dict(headers), media_type)
        self._length = sum(map(len, parts))
        self.headers["content-length"] = str(self._length)
        self._parts = [b"".join(parts)] if self._length <= COPIED else parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Send the response (ASGI)."""
        parts, self._parts = self._parts[::-1], []
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        if len(parts) == 1:
            await send({"type": "http.response.body", "body": parts.pop()})
            return
        transport: asyncio.WriteTransport = scope["state"]["transport"]
        while parts:
            await send_or_cut(send, {"type": "http.response.body", "body": parts.pop(), "more_body": True}, transport)
        await send_or_cut(send, {"type": "http.response.body"}, transport)


async def send_or_cut(send: Send, message: Message, transport: asyncio.WriteTransport) -> None:
    """Send when what was sent before is on its way, and cut the connection when the reader takes nothing for too long.

    uvicorn's ``send`` waits before it writes, so a wait that is broken off has sent nothing and can be repeated.
    """
    await unless_stalled(transport, lambda: send(message))
