"""The responses whose length is not known before: that of ``GET …/stream``, and of a range that is read again."""

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from fastapi import Response
from starlette.types import Receive, Scope, Send

from ...protocol.errors import SluiceError, StaleSessionError
from ...protocol.formats import NDJSON
from ...protocol.formats.format import BytesLike, Format, Pieces
from ...store.batch import Batch
from ..embedded.calls import EMPTY
from ..network import COPIED
from . import problems
from .context import Context
from .formats import STREAMED, encode, send_or_cut
from .waiting import Listener, StreamTurn

if TYPE_CHECKING:
    import asyncio

HEARTBEAT = (
    10.0  # seconds after which an idle stream carries an empty batch, so that both ends notice a dead connection
)

log = logging.getLogger(__name__)


class StreamResponse(Response):
    """Batch after batch, at most ``window`` of them un-acked, until the client goes away or the server stops.

    Its length is not known before, so it is chunked. A slice of the ring is sent without a copy, and stays pinned until
    its reader has taken it; one that takes nothing for ``STALLED`` seconds is cut off.
    """

    def __init__(
        self,
        context: Context,
        client: tuple[str, int],
        take: Callable[[float], Awaitable[Batch]],
        form: Format,
        window: int,
        session: str,
        turn: StreamTurn,
    ) -> None:
        super().__init__(None, 200, {"Sluice-Session": session, "Cache-Control": "no-store"}, form.media_type)
        del self.headers["content-length"]
        self._context = context
        self._client = client
        self._take = take
        self._form = form
        self._window = window
        self._outstanding = 0  # never less than really are
        self._turn = turn

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream (ASGI)."""
        transport: asyncio.WriteTransport = scope["state"]["transport"]
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with Listener(receive, self._context.stopping) as listener:
            self._turn.attach(listener)
            try:
                while not listener.ended:
                    await self._send_chunk(await self._next(listener), send, transport)
                if self._turn.is_over and not listener.gone:
                    raise StaleSessionError(f"another stream of client {self._client[1]} has begun")
            except SluiceError as error:
                log.info("stream of %s/%d ends: %s", *self._client, error)
                if self._form is NDJSON:
                    line = b'{"problem": ' + bytes(problems.problem(error).body) + b"}\n"
                    await send({"type": "http.response.body", "body": line, "more_body": True})
            finally:
                self._context.streams.leave(self._client, self._turn)
        await send({"type": "http.response.body"})

    @staticmethod
    async def _send_chunk(parts: list[BytesLike], send: Send, transport: "asyncio.WriteTransport") -> None:
        """Send a chunk; a long one past uvicorn, which would join it with its length and so copy it."""
        size = sum(map(len, parts))
        joined = b"".join(parts) if size <= COPIED else b""
        if joined or transport.get_write_buffer_size():
            await send_or_cut(send, {"type": "http.response.body", "body": joined, "more_body": True}, transport)
        if not joined and size and not transport.is_closing():
            transport.writelines([b"%x\r\n" % size, *parts, b"\r\n"])

    async def _next(self, listener: Listener) -> list[BytesLike]:
        """Return what to send next; nothing when there is reason to look again."""
        if self._outstanding >= self._window:
            self._outstanding = self._context.embedded.outstanding(*self._client)
        if self._outstanding >= self._window:
            changed = await listener.wait(self._context.acks.wait(self._client, HEARTBEAT))
            return [] if changed is not False else await self._encode(EMPTY)
        batch = await listener.wait(self._take(HEARTBEAT))
        if batch is None:
            return []
        if batch.batch_id != EMPTY.batch_id:
            self._outstanding += 1
        self._context.metrics.delivered(*self._client, batch)
        return await self._encode(batch)

    async def _encode(self, batch: Batch) -> list[BytesLike]:
        strict = self._context.config(self._client[0]).strict_canal
        return await encode(self._form, STREAMED[self._form], batch, strict=strict)


class RangeResponse(Response):
    """A range, piece by piece as it is read from the source; when that fails, the connection is cut."""

    def __init__(
        self,
        context: Context,
        client: tuple[str, int],
        first: Batch,
        rest: AsyncGenerator[Batch],
        to: str,
        form: Format,
        pieces: Pieces,
        headers: Mapping[str, str],
    ) -> None:
        super().__init__(None, 200, dict(headers), form.media_type)
        del self.headers["content-length"]
        self._context = context
        self._client = client
        self._whole = replace(first, to=to, slices=[], positions=b"")
        self._first: Batch | None = first
        self._rest = rest
        self._form = form
        self._pieces = pieces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the range (ASGI)."""
        transport: asyncio.WriteTransport = scope["state"]["transport"]
        strict = self._context.config(self._client[0]).strict_canal
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            head, between, tail = self._pieces.frame(self._whole)
            piece, self._first = self._first, None
            async with Listener(receive, self._context.stopping) as listener:
                while piece is not None and piece is not EMPTY:
                    self._context.metrics.delivered(*self._client, piece)
                    parts = [head, *await encode(self._form, self._pieces.encode, piece, strict=strict)]
                    head = between
                    piece = await listener.wait(anext(self._rest, EMPTY))
                    body = b"".join(parts) + (tail if piece is EMPTY else b"")
                    await send_or_cut(send, {"type": "http.response.body", "body": body, "more_body": True}, transport)
            if piece is None:  # the client is gone, or the server stops
                transport.abort()
                return
        except SluiceError as error:
            log.warning("the range for %s/%d breaks off: %s", *self._client, error)
            transport.abort()
        else:
            await send({"type": "http.response.body"})
        finally:
            await self._rest.aclose()


async def join_pieces(first: Batch, rest: AsyncGenerator[Batch], to: str) -> Batch:
    """Return a range as one batch, for a format that is not written piece by piece."""
    data, positions = bytearray(), bytearray()
    entries = rows = 0
    last: Batch | None = first
    while last is not None:
        for part in last.slices:
            data += part
        positions += last.positions
        entries, rows, timestamp = entries + last.entries, rows + last.rows, last.timestamp
        last = await anext(rest, None)
    return replace(
        first,
        to=to,
        slices=[memoryview(data)],
        positions=bytes(positions),
        entries=entries,
        rows=rows,
        bytes=len(data),
        timestamp=timestamp,
    )
