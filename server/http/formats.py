"""How a batch is written over HTTP: the choice by ``Accept``, and the sending of slices without a copy.

What is written, and which formats there are, say `sluice.protocol.formats`.
"""

import asyncio
import re
from collections.abc import Collection, Mapping
from functools import lru_cache

from fastapi import Response
from starlette.types import Message, Receive, Scope, Send

from ...protocol.formats import FORMATS
from ...protocol.formats.format import BytesLike, Encode, Format
from ...store.batch import Batch
from ..network import COPIED, unless_stalled
from .errors import NotAcceptableError

SINGLE = tuple(it for it in FORMATS if it.media_type)
STREAMED = {it: it.in_stream for it in SINGLE if it.in_stream}
LINK = re.compile(r"\[(.*?)]\(.*?\)")
ALIASES = {alias: it.media_type for it in FORMATS for alias in it.aliases}


def negotiate(accept: str | None, offered: Collection[Format]) -> Format:
    """Choose the offered format that ``accept`` likes best (RFC 9110 section 12.5.1), the first when it does not care.

    Raises NotAcceptableError.
    """
    ranges = _ranges(accept or "*/*")

    def liking(it: Format) -> float:
        media = it.media_type
        return ranges.get(media, ranges.get(media.partition("/")[0] + "/*", ranges.get("*/*", 0.0)))

    writable = [it for it in offered if it.is_installed]
    best = max(writable, key=liking)
    if liking(best) <= 0:
        names = ", ".join(it.media_type for it in writable)
        lacking = [
            f" For {it.media_type} the server lacks {it.needs}: pip install 'sluice-cdc[{it.extra}]'."
            for it in offered
            if it not in writable
        ]
        raise NotAcceptableError(
            f"This call answers with {names}, none of which the Accept header takes.{''.join(lacking)}"
        )
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


def described(forms: Collection[Format]) -> str:
    """Return a Markdown list of formats, for the description of the API; links of the docs lead nowhere there."""
    return LINK.sub(r"\1", "".join(f"* `{it.media_type}`: {it.text}.\n" for it in forms))


async def encode(form: Format, write: Encode, batch: Batch, *, strict: bool = False) -> list[BytesLike]:
    """Write a batch in one of the ways that a format has; ``strict`` writes FlatMessages exactly as Canal does."""
    if form.moves or batch.bytes <= COPIED:
        return write(batch, strict)
    return await asyncio.to_thread(write, batch, strict)  # codecs release the GIL, and need not hold up the event loop


class PartsResponse(Response):
    """A body of known length, sent part by part without a copy; a slice of the ring is let go as soon as it is sent.

    The transport keeps what it has not sent yet, and so the segment stays pinned while its reader is slow. A reader
    that takes nothing for ``STALLED`` seconds is cut off, because pinned memory counts against the ring.
    """

    def __init__(self, parts: list[BytesLike], media_type: str, headers: Mapping[str, str]) -> None:
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
