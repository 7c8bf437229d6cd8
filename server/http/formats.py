"""How a batch is written: the choice by ``Accept``, the bodies, and the sending of slices without a copy.

Protobuf (Canal's ``Messages``; the ring keeps every entry framed as ``Messages.messages`` already)::

    08 <varint batchId>              field 1, batchId; -1 for an empty batch (ten bytes)
    12 <varint length> <Entry>       field 2, messages; once an entry, moved as slices of the ring

In a stream each ``Messages`` is preceded by its length, 4 bytes big-endian. JSON and NDJSON bodies come from the
compiled FlatMessage codec.
"""

import asyncio
import json
import struct
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from fastapi import Response
from starlette.types import Message, Receive, Scope, Send

from sluice.protocol.errors import NotAcceptableError
from sluice.protocol.flat import flat_json, flat_ndjson

if TYPE_CHECKING:
    from sluice.server.embedded import Batch

Part = bytes | memoryview  # of a body, in order

COPIED = 64 * 1024  # bodies up to this many bytes are copied: cheaper than a pinned segment and further writes
STALLED = 60.0  # seconds without a byte taken after which a reader of slices is cut off
LENGTH = struct.Struct(">I")


class Format(StrEnum):
    """What a batch is written as; the value is its media type."""

    JSON = "application/json"
    NDJSON = "application/x-ndjson"
    PROTOBUF = "application/x-protobuf"


ALIASES = {"application/ndjson": Format.NDJSON, "application/protobuf": Format.PROTOBUF}


def negotiate(accept: str | None, offered: Sequence[Format]) -> Format:
    """The offered format that ``accept`` likes best (RFC 9110 section 12.5.1); the first offered when it does not care.

    Raises NotAcceptableError.
    """
    ranges: dict[str, float] = {}
    for part in (accept or "*/*").split(","):
        media, *parameters = (piece.strip().lower() for piece in part.split(";"))
        quality = next((p.removeprefix("q=") for p in parameters if p.startswith("q=")), "1")
        try:
            ranges[ALIASES.get(media, media)] = float(quality)
        except ValueError:
            ranges[media] = 0.0

    def liking(it: Format) -> float:
        return ranges.get(it, ranges.get(it.partition("/")[0] + "/*", ranges.get("*/*", 0.0)))

    best = max(offered, key=liking)
    if liking(best) <= 0:
        raise NotAcceptableError(f"This call answers with {', '.join(offered)}, none of which the Accept header takes.")
    return best


def summary(batch: "Batch") -> dict[str, int | str]:
    """The members of a batch besides its entries."""
    return {"batchId": batch.batch_id, "from": batch.from_, "to": batch.to}


def protobuf(batch: "Batch") -> list[Part]:
    """Canal's ``Messages``: a few bytes of our own, then the slices as they are."""
    number = batch.batch_id & 0xFFFF_FFFF_FFFF_FFFF  # int64 goes as its two's complement
    head = bytearray(b"\x08")
    while number > 0x7F:
        head.append(number & 0x7F | 0x80)
        number >>= 7
    head.append(number)
    return [bytes(head), *batch.slices]


def framed_protobuf(batch: "Batch") -> list[Part]:
    """``protobuf`` behind its length, for a stream."""
    parts = protobuf(batch)
    return [LENGTH.pack(sum(map(len, parts))), *parts]


def json_object(batch: "Batch") -> list[Part]:
    """``{"batchId", "from", "to", "entries": [FlatMessage…]}``."""
    head = json.dumps(summary(batch), ensure_ascii=False).encode().removesuffix(b"}")
    return [head + b', "entries": ', flat_json(batch.slices, batch.batch_id), b"}"]


def ndjson(batch: "Batch") -> list[Part]:
    """One FlatMessage a line, then one line that says which batch it was."""
    return [flat_ndjson(batch.slices, batch.batch_id), json.dumps(summary(batch), ensure_ascii=False).encode() + b"\n"]


BODIES: Mapping[Format, Callable[["Batch"], list[Part]]] = {
    Format.JSON: json_object,
    Format.NDJSON: ndjson,
    Format.PROTOBUF: protobuf,
}
STREAM_BODIES: Mapping[Format, Callable[["Batch"], list[Part]]] = {
    Format.NDJSON: ndjson,
    Format.PROTOBUF: framed_protobuf,
}


async def encode(body: Callable[["Batch"], list[Part]], batch: "Batch") -> list[Part]:
    """The parts of a body. The JSON codecs release the GIL: what takes them long does not hold up the event loop."""
    if body in (json_object, ndjson) and batch.bytes > COPIED:
        return await asyncio.to_thread(body, batch)
    return body(batch)


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

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
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
    while True:
        waiting = transport.get_write_buffer_size()
        try:
            async with asyncio.timeout(STALLED):
                await send(message)
        except TimeoutError:
            if transport.get_write_buffer_size() >= waiting:
                transport.abort()
        else:
            return
