"""uvicorn's server and protocol, with limits on what a peer may send, and set up for bodies of megabytes.

uvicorn has neither these limits nor a hook for them, and a proxy in front, which has, is not part of every
installation. So this extends what uvicorn does not promise to keep: the bounds of uvicorn and httptools in
pyproject.toml admit tried versions only, and tests/unit/test_transport.py names what a new one lacks. To raise a
bound, run that, and tests/integration/http/.
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Iterator
from http import HTTPStatus
from typing import Final

import httptools
import uvicorn
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from ...protocol.errors import BusyError, SluiceError
from ..metrics import Metrics
from ..network import HIGH_WATER, address_text
from . import problems
from .auth import is_public
from .config import HttpConfig
from .errors import BadRequestError, BodyTooLargeError, HeaderTooLargeError, RequestTimeoutError, UrlTooLongError

PIECE: Final = 16 * 1024
"""Bytes that the parser is given at a time: what it keeps of an unfinished header is looked at after each."""
SMALL_BODY: Final = 8 * 1024
"""Bytes of a body that are always taken; the longest one of a call that needs no credentials."""
ALL_BODIES: Final = 16 << 20
"""Bytes of all bodies that are being received; beyond it a body that is not small is refused."""
PIPELINED: Final = 32
"""Requests that a connection may send ahead of their answers."""
LINGER: Final = 1.0
"""Seconds for which what a refused peer still sends is dropped: were it closed at once, the answer would be lost."""

log = logging.getLogger("sluice.http")


class Server(uvicorn.Server):
    """uvicorn's server, which leaves the loop and the signals to its caller."""

    def __init__(self, config: uvicorn.Config, limits: HttpConfig, metrics: Metrics, grace: float) -> None:
        super().__init__(config)
        self.limits = limits
        self.metrics = metrics
        self.receiving = 0
        """Bytes of bodies that are being received."""
        self._grace = grace

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen on the sockets. uvicorn's own would give a TLS handshake a minute."""
        loop, tls = asyncio.get_running_loop(), self.config.ssl
        seconds = self.limits.header_timeout if tls else None
        self.servers = [
            await loop.create_server(
                lambda: Protocol(self), sock=sock, ssl=tls, ssl_handshake_timeout=seconds, backlog=self.config.backlog
            )
            for sock in sockets or ()
        ]
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop: leave ``grace`` seconds for answers under way, then cut them off."""
        cut = asyncio.get_running_loop().call_later(self._grace, self._cut)
        await super().shutdown(sockets)
        cut.cancel()

    def _cut(self) -> None:
        for connection in tuple(self.server_state.connections):
            connection.transport.abort()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone. uvicorn would raise them again afterwards, before the cursors are saved."""
        yield


class Protocol(HttpToolsProtocol):
    """uvicorn's protocol with limits, and its transport in reach of the app, as ``scope["state"]["transport"]``.

    uvicorn and its parser take headers of any length and wait for the rest of a request for ever. Here a request has
    until a time to arrive, and whoever sends too much, or too slowly, is refused and cut off. A response may take as
    long as it likes, and so may a request that waits because the app does not read it yet.
    """

    def __init__(self, server: Server) -> None:
        super().__init__(server.config, server.server_state, {})
        self._server = server
        self._limits = server.limits
        self._refused = False
        self._last_answer = b""  # of a refusal, to be given after those to earlier requests
        self._leaving = False  # it is closed as soon as its request has arrived
        self._answering: RequestResponseCycle | None = None  # may be an earlier request than self.cycle
        # The request that is being received, or awaited as the first one.
        self._receiving = True
        self._in_header = True
        self._ignored = 0  # bytes left of an empty line that may come before the next request, as old clients send it
        self._begun = self.loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._header = 0  # bytes of its URL and header fields
        self._declared = 0  # its Content-Length
        self._framing = b""  # the header field that says how long its body is
        self._skipped = False  # whether the parser skips the body
        self._body = 0  # bytes of its body so far ...
        self._counted = 0  # ... and those of them that the server counts
        self._longest_body = 0
        self._progress = False  # whether the parser has let go of what it was given
        self._kept = 0  # bytes since then

    # --- what the transport tells ------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Set the connection up."""
        # Low water 0: a paused sender goes on when all is handed to the kernel and no segment is pinned any more.
        transport.set_write_buffer_limits(high=HIGH_WATER, low=0)
        self.app_state = {"transport": transport}
        super().connection_made(transport)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._stop_watching()
        self._uncount()
        self._abandon()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what has arrived."""
        if self._refused:
            return
        if not self._receiving:
            while self._ignored and data[:1] in (b"\r", b"\n"):  # RFC 9112 section 2.2; the parser may have the CR
                data, self._ignored = data[1:], self._ignored - 1
            if not data:
                return
        self._unset_keepalive_if_required()
        if not self._receiving:
            self._receiving = self._in_header = True
            self._begun = self.loop.time()
        view = memoryview(data)
        for start in range(0, len(data), PIECE):
            if not self._parse(view[start : start + PIECE]):
                return
        if self._receiving:
            self._watch()
            return
        self._stop_watching()
        # An answer that did not wait for the end of its request could not begin the pause between two requests.
        if self.cycle.response_complete and self.timeout_keep_alive_task is None:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def _parse(self, piece: memoryview) -> bool:
        """Parse a piece; False when what is sent was refused."""
        self._progress = False
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade as upgrade:
            if self._skipped:
                return self._parse_body(piece[upgrade.args[0] :])
        except httptools.HttpParserError as error:
            cause = error.__context__
            self._refuse(cause if isinstance(cause, SluiceError) else BadRequestError(f"This is not HTTP: {error}."))
            return False
        self._kept = 0 if self._progress else self._kept + len(piece)
        if self._kept > self._limits.max_header:
            self._refuse(self._header_too_large())
        return not self._refused

    def _parse_body(self, piece: memoryview) -> bool:
        """Parse the body of a request that asks for another protocol, as Java's client does for HTTP/2.

        The request is answered in this one (RFC 9110 section 7.8), but httptools ends it with its header.
        """
        self._skipped = False
        self.cycle.keep_alive = False  # the parser of the body can read nothing else
        self.parser = httptools.HttpRequestParser(_Body(self))
        self.parser.feed_data(b"POST / HTTP/1.1\r\n" + self._framing + b"\r\n\r\n")
        return self._parse(piece)

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection; at once when its peer did not even take the last answer."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        super().timeout_keep_alive_handler()

    # --- what the parser tells ---------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Begin a request."""
        self._progress = self._receiving = self._in_header = True
        if len(self.pipeline) >= PIPELINED:
            raise BadRequestError(f"A connection may send {PIPELINED} requests ahead of their answers.")
        self._header = self._declared = self._body = 0
        self._framing = b""
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Take a part of the URL."""
        super().on_url(url)
        if len(self.url) > self._limits.max_url:
            raise UrlTooLongError(f"The URL has more than {self._limits.max_url} bytes (sluice.http.maxUrl).")
        self._measure(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header field, or a trailer field."""
        self._measure(len(name) + len(value) + 4)
        if len(name) == 14 and name.lower() == b"content-length":
            self._framing, self._declared = name + b": " + value, int(value)
        elif len(name) == 17 and name.lower() == b"transfer-encoding":
            self._framing = name + b": " + value
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Start to answer, before there is a body."""
        self._progress = True
        public = is_public(httptools.parse_url(self.url).path)
        self._longest_body = min(SMALL_BODY, self._limits.max_body) if public else self._limits.max_body
        if self._declared > self._longest_body:
            raise self._body_too_large()
        super().on_headers_complete()
        self.cycle.transport = _Answering(self, self.cycle)
        self._in_header = False
        self._skipped = bool(self._framing) and self.parser.should_upgrade()

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        self._progress = True
        self._body += len(body)
        if self._body > self._longest_body:
            raise self._body_too_large()
        if self.cycle.response_complete:  # it will be dropped
            return
        self._counted += len(body)
        self._server.receiving += len(body)
        if self._body > SMALL_BODY and self._server.receiving > ALL_BODIES:
            raise BusyError("Too much is being received at once.")
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End the request."""
        self._progress = True
        if self._skipped:
            return
        self._receiving = False
        self._ignored = len(b"\r\n")
        self._uncount()
        super().on_message_complete()
        if self._leaving:
            self.transport.close()

    def on_response_complete(self) -> None:
        """End the response, and let go of a body that the app has not read."""
        super().on_response_complete()
        if self.cycle.response_complete:
            self.cycle.body = bytearray()
            self._uncount()
        if self._last_answer and self._answering is not None and self._answering.response_complete:
            self._part(self._last_answer)

    def shutdown(self) -> None:
        """Close when the answer under way is given; at once without one."""
        if self._answering is None:
            self.transport.close()
        elif self.cycle.response_complete:
            self.leave(self.cycle)
        else:
            self.cycle.keep_alive = False

    def leave(self, answered: RequestResponseCycle) -> None:
        """Close after an answer, when its request has arrived: what comes after the close could undo the answer."""
        if answered is self.cycle and not (self._receiving and not self._in_header):
            self.transport.close()
            return
        self._leaving = True
        self._refused |= answered is not self.cycle
        self.loop.call_later(LINGER, self.transport.close)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    def _abandon(self) -> None:
        """Tell the app that its answer is not awaited any more. uvicorn does so for the newest request only."""
        cycle = self._answering
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
            cycle.body = bytearray()

    # --- limits ------------------------------------------------------------------------------------------------------

    def _measure(self, size: int) -> None:
        self._header += size
        if self._header > self._limits.max_header:
            raise self._header_too_large()

    def _header_too_large(self) -> HeaderTooLargeError:
        return HeaderTooLargeError(f"The header has more than {self._limits.max_header} bytes (sluice.http.maxHeader).")

    def _body_too_large(self) -> BodyTooLargeError:
        return BodyTooLargeError(f"The body has more than {self._longest_body} bytes (sluice.http.maxBody).")

    def _uncount(self) -> None:
        self._server.receiving -= self._counted
        self._counted = 0

    def _watch(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(max(0.0, self._time_left()), self._check_time)

    def _stop_watching(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _time_left(self) -> float:
        limits = self._limits
        seconds = limits.header_timeout if self._in_header else limits.request_timeout
        return self._begun + seconds - self.loop.time()

    def _check_time(self) -> None:
        self._timer = None
        if self.flow.read_paused or self.pipeline:  # it is not the peer's fault
            self._begun = self.loop.time()
        if self._time_left() > 0.001:
            self._watch()
        elif self._in_header:
            self._refuse(RequestTimeoutError(f"The header was not there after {self._limits.header_timeout:g} s."))
        else:
            self._refuse(RequestTimeoutError(f"The body was not there after {self._limits.request_timeout:g} s."))

    # --- refusal -----------------------------------------------------------------------------------------------------

    @property
    def _peer(self) -> str:
        return address_text(self.client or ("?", 0))

    def _refuse(self, error: SluiceError) -> None:
        """Answer the request that is being received with an error, if that is still possible, and cut its peer off.

        Requests before it that are whole are answered first.
        """
        self._refused = True
        self._stop_watching()
        self._uncount()
        answer = problems.problem(error)
        log.info("%s: refused: %s", self._peer, error)
        self._server.metrics.called("", answer.status_code, self.loop.time() - self._begun, "")
        cycle = self.cycle  # of this request, or before the end of its header of the one before
        answered = cycle is None or cycle.response_complete
        answer.headers["connection"] = "close"
        head = [f"HTTP/1.1 {answer.status_code} {HTTPStatus(answer.status_code).phrase}".encode()]
        head += [name + b": " + value for name, value in answer.raw_headers]
        text = b"\r\n".join([*head, b"", bytes(answer.body)])
        if not answered and (self._in_header or self.pipeline):
            if not self._in_header:  # its turn has not come
                self.pipeline.popleft()
            self._last_answer = text
            return
        self._abandon()
        if not answered and cycle.response_started:
            self.transport.abort()
            return
        self._part(text if self._in_header or not answered else b"")

    def _part(self, answer: bytes) -> None:
        """Give the last answer of the connection, and close it."""
        self._last_answer = b""
        self.transport.write(answer)
        self.loop.call_later(LINGER, self.transport.close)


class _Answering(asyncio.Transport):
    """What the answer to a request is written to."""

    def __init__(self, protocol: Protocol, cycle: RequestResponseCycle) -> None:
        super().__init__()
        self.write = protocol.transport.write  # type: ignore[method-assign]
        self.is_closing = protocol.transport.is_closing  # type: ignore[method-assign]
        self._protocol = protocol
        self._cycle = cycle

    def close(self) -> None:
        """Close the connection after the answer."""
        self._protocol.leave(self._cycle)


class _Body:
    """What a parser tells of a body; the header before it is made up."""

    def __init__(self, protocol: Protocol) -> None:
        self.on_body = protocol.on_body
        self.on_message_complete = protocol.on_message_complete
