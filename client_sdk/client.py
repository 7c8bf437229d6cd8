"""The client for programs without asyncio, over urllib3."""

import ssl
import threading
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, Self, TypeVar
from urllib.parse import urlsplit

import urllib3
from urllib3.connection import HTTPConnection
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    NewConnectionError,
    ProxyError,
    SSLError,
)
from urllib3.util.wait import wait_for_read

from ..protocol.errors import ConnectionLostError, SluiceError, StaleSessionError
from . import calls
from .acks import PAUSE, Done
from .attempts import Attempts
from .batch import Batch, InvalidDates
from .calls import FRAME, POLL, Call, Limits, Reply
from .connections import Connections
from .consumer import Consumer
from .endpoint import Endpoint, Interrupted
from .keys import Key
from .process import Function, OnError, Threads

T = TypeVar("T")

_NOT_SENT = (NewConnectionError, ConnectTimeoutError, ProxyError)


class Client(Consumer):
    """A consumer: one client id of one destination. Threads may share it.

    A call that gets no answer is repeated for ``retry`` seconds, with growing pauses. When the reply to a get is lost,
    the client rolls back first, for the server may hold a batch that never arrived: batches that are outstanding then
    come again, and acks of them raise `UnknownBatchError`. Of several servers it goes on with the next one at once, or
    with the one that is said to be active; docs/howto/several-servers.md says what that means.

    Every method raises errors of `sluice.protocol.errors`: `ConnectionLostError` when the server stays out of reach.
    """

    def __init__(
        self,
        url: str | Sequence[str] | Endpoint = "http://127.0.0.1:11180",
        destination: str = "example",
        client_id: int = 1001,
        *,
        token: str | None = None,
        ca: str | Path | None = None,
        verify: bool = True,
        insecure: bool = False,
        timeout: float = 30.0,
        retry: float = 60.0,
        invalid_dates: InvalidDates = "text",
    ) -> None:
        """Prepare; nothing is sent yet.

        ``url``: of the server; of several as a list, or separated by commas, in the order in which they are tried.
        ``ca``: file of the certificates to trust, instead of the system's. ``verify=False``: trust any server.
        ``insecure``: send the token over plain http to another machine. ``timeout``: seconds without an answer after
        which a connection counts as broken. ``retry``: seconds for which a call that gets no answer is repeated, which
        is logged; ``math.inf``: until it gets one. ``invalid_dates``: what a date that Python cannot hold becomes.
        """
        self._endpoint = Endpoint.of(url, destination, client_id, token, insecure=insecure)
        self._timeout = timeout
        self._retry = retry
        self._invalid_dates = invalid_dates
        self._order = threading.Lock()
        self._done = Done(0)
        self._ssl = tls_context(ca, verify=verify) if "https" in self._endpoint.schemes else None
        self._http = Connections(self._ssl)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. Calls of other threads end at once, like later ones, with a `ConnectionLostError`."""
        self._http.close()

    def batches(
        self,
        *,
        prefetch: int = 2,
        auto_ack: bool = True,
        limits: Limits = Limits(),  # noqa: B008  immutable
    ) -> Generator[Batch, None, None]:
        """Batch after batch; up to ``prefetch`` of them are fetched ahead by a thread.

        One loop runs at a time: another one of this client, `stream` and `process` too, ends it with a
        `StaleSessionError`, as another client of the same client id does.

        It waits for changes for ever. It ends with `ConnectionLostError` when no server answers for ``retry`` seconds.

        Opens a session and begins after the last ack. A batch is acked when the next one is asked for, that is when the
        loop's body is done with it; with ``auto_ack=False`` the caller acks. Leaving the loop rolls back what is not
        acked. A batch that was in work when the connection was lost comes again.
        """
        loop = self._endpoint.begin_loop()
        self.open_session()
        self.rollback()
        call = replace(calls.get_without_ack(POLL, limits, self._invalid_dates), loop=loop)
        stop = threading.Event()

        def fetch() -> tuple[int, Batch]:
            return self._perform_ordered(call, stop)

        with ThreadPoolExecutor(1, "sluice-prefetch") as pool:
            pending: deque[Future[tuple[int, Batch]]] = deque(pool.submit(fetch) for _ in range(max(prefetch, 1)))
            try:
                while True:
                    generation, batch = pending.popleft().result()
                    pending.append(pool.submit(fetch))
                    if batch and generation == self._endpoint.generation:
                        yield batch
                        if auto_ack and not batch.acked:
                            self._settle([batch], generation)
            finally:
                stop.set()
                pool.shutdown(cancel_futures=True)
                self._leave(loop)

    def stream(
        self,
        *,
        window: int = 8,
        auto_ack: bool = True,
        limits: Limits = Limits(),  # noqa: B008  immutable
    ) -> Generator[Batch, None, None]:
        """As `batches`, over one long response: the server sends on its own while at most ``window`` are not acked.

        Batches that follow one another within milliseconds are acked together, at most half a window of them.
        """
        loop = self._endpoint.begin_loop()
        self.open_session()
        call = replace(calls.stream(window, limits), loop=loop)
        attempts = Attempts(self._endpoint, call, self._retry)
        stop = threading.Event()
        done = self._done = Done(window)
        try:
            while True:
                response, done.generation = self._open_stream(call, stop)
                attempts.begin()
                try:
                    while True:
                        if done and not _is_readable(response, PAUSE):
                            self._settle(done.take(), done.generation)
                        batch = self._read_streamed(response)
                        attempts.succeeded()
                        if batch and done.generation == self._endpoint.generation:
                            yield batch
                            if auto_ack and done.add(batch):
                                self._settle(done.take(), done.generation)
                        if done.generation != self._endpoint.generation:
                            break
                except Interrupted as failure:
                    self._pause(attempts, failure, stop)
                finally:
                    response.close()
                    if done and done.generation == self._endpoint.generation:
                        self._say_last(calls.ack_all(done.take()))  # else they come again
        finally:
            self._leave(loop)

    def process(
        self,
        function: Function[object],
        *,
        workers: int = 8,
        key: Key | None = None,
        on_error: OnError[object] | None = None,
        window: int = 8,
        max_bytes: int = 16 << 20,
        grace: float = 10.0,
        limits: Limits = Limits(),  # noqa: B008  immutable
    ) -> NoReturn:
        """Call a function for each change, in ``workers`` threads; ack a batch when it and all before are processed.

        The function gets the `Row` objects of `Batch.rows`, and a `Change` for what has no rows: DDL, TRUNCATE,
        markers. Rows of one key are processed one after the other; a `Change` waits for all before it, and all after it
        wait for it. It goes on for ever, and ends with an error: that of the connection, a `ProcessingError`, or what a
        signal handler raises in the calling thread. Then what has begun may end, and what is processed is acked.

        Args:
            function: is called with a change. What it raises goes to ``on_error``, or ends all.
            workers: changes at once, at most.
            key: names of columns by table, ``{"shop.orders": ["customer"]}``, whose values are the key; equal values of
                two tables are one key. Or a function that makes the key of the table's name and the values of a row.
                For other tables, the primary key; for those that have none, the table.
            on_error: gets a change and what the function raised. If it returns, the change counts as processed.
            window: batches that are fetched and not processed, at most ...
            max_bytes: ... and their bytes, as received, after which no further batch is fetched.
            grace: seconds for which the end waits for calls of the function; longer ones go on by themselves.
            limits: how large a batch gets.

        Raises:
            ProcessingError: ``function``, ``key`` or ``on_error`` has failed.
            BadParameterError: an argument cannot be used, or a row lacks a column of ``key``.
            ConnectionLostError: no server answers for ``retry`` seconds, or the client was closed.
        """
        threads = Threads(self._endpoint, function, workers, key, on_error, window, max_bytes, grace)
        loop = self._endpoint.begin_loop()
        call = replace(calls.get_without_ack(POLL, limits, self._invalid_dates), loop=loop)
        self.open_session()
        self.rollback()
        try:
            threads.start(lambda: self._perform_ordered(call, threads.stopping))
            while True:
                generation, batches = threads.processed(self._http.check)
                self._settle(batches, generation)
        finally:
            generation, batches = threads.stop()
            if batches and generation == self._endpoint.generation:
                self._say_last(calls.ack_last(batches))
            self._leave(loop)

    def _leave(self, loop: int) -> None:
        """Give back what is outstanding, if the server can be reached; else the next consumer, or loop, does."""
        if not self._endpoint.is_over(loop):
            self._say_last(calls.rollback())

    def _say_last(self, call: Call[Any]) -> None:
        """Make a call once, for what a loop leaves that may outlive the client; it may fail."""
        is_closed = self._http.closed.is_set()
        with (
            closing(Connections(self._ssl)) if is_closed else nullcontext(self._http) as http,
            suppress(SluiceError, Interrupted),
        ):
            self._exchange(self._endpoint.server, call, http)

    def _perform(self, call: Call[T]) -> T:
        return self._perform_ordered(call, self._http.closed)[1]

    def _perform_ordered(
        self, call: Call[T], stop: threading.Event, exchange: "Callable[[str, Call[T]], T] | None" = None
    ) -> tuple[int, T]:
        """The result, and the generation it belongs to: an earlier one if all was given back, or moved, meanwhile."""
        attempts = Attempts(self._endpoint, call, self._retry)
        with self._order if call.ordered else nullcontext():
            while True:
                self._http.check()
                generation = self._endpoint.generation
                server = attempts.begin()
                try:
                    for before in attempts.before:
                        self._exchange(server, before)
                        generation += before.rolls_back
                    result = (exchange or self._exchange)(server, attempts.call)
                except Interrupted as failure:
                    self._pause(attempts, failure, stop)
                else:
                    attempts.succeeded()
                    return generation + call.rolls_back, result

    def _pause(self, attempts: Attempts[Any], failure: Interrupted, stop: threading.Event) -> None:
        """Wait until the next try; raise why there is none: there were enough, it is stopped, the client is closed."""
        try:
            is_stopped = stop.wait(attempts.delay(failure))
        finally:
            self._http.check()
        if is_stopped:
            raise failure.reason from None

    def _exchange(self, server: str, call: Call[T], http: Connections | None = None) -> T:
        return self._read(server, call, self._send(server, call, http))

    def _read(self, server: str, call: Call[T], response: urllib3.BaseHTTPResponse) -> T:
        try:
            body = response.read(decode_content=False)
        except HTTPError as error:
            raise Interrupted.by(error, may_be_done=True) from None
        finally:
            response.release_conn()
        return self._endpoint.read(server, call, _reply(response, body))

    def _send(self, server: str, call: Call[Any], http: Connections | None = None) -> urllib3.BaseHTTPResponse:
        endpoint, pool = self._endpoint, (http or self._http).pool(server)
        connect, read = endpoint.limits(server, self._timeout, call.wait)
        try:
            return pool.urlopen(
                call.method,
                endpoint.url(urlsplit(server).path, call),
                body=endpoint.body(call),
                headers=endpoint.headers(server, call),
                redirect=False,
                preload_content=False,
                timeout=urllib3.Timeout(connect=connect, read=read),
            )
        except _NOT_SENT as error:
            raise Interrupted.by(error, may_be_done=False) from None
        except SSLError as error:
            is_cut = isinstance(error.args[0], ssl.SSLEOFError)  # else it is not the server that was meant
            raise Interrupted.by(error, may_be_done=is_cut, is_final=not is_cut) from None
        except HTTPError as error:
            raise Interrupted.by(error, may_be_done=True) from None

    def _open_stream(self, call: Call[str], stop: threading.Event) -> tuple[urllib3.BaseHTTPResponse, int]:
        """The response with its head read, and its generation."""
        opened: list[urllib3.BaseHTTPResponse] = []

        def exchange(server: str, call: Call[str]) -> str:
            response = self._send(server, call)
            if response.status >= 300:
                return self._read(server, call, response)
            opened[:] = [response]
            return self._endpoint.read(server, call, _reply(response, b""))

        try:
            generation, _ = self._perform_ordered(call, stop, exchange)
        except StaleSessionError:  # a newer loop has begun just now
            for response in opened:
                response.close()
            raise
        return opened[0], generation

    def _read_streamed(self, response: urllib3.BaseHTTPResponse) -> Batch:
        try:
            head = response.read(FRAME.size, decode_content=False)
            if len(head) < FRAME.size:
                raise Interrupted(ConnectionLostError("the server ended the stream"), may_be_done=True)
            (size,) = FRAME.unpack(head)
            data = response.read(size, decode_content=False)
        except HTTPError as error:
            raise Interrupted.by(error, may_be_done=True) from None
        if len(data) < size:
            raise Interrupted(ConnectionLostError("the stream ended within a batch"), may_be_done=True)
        return calls.read_streamed(data, self._invalid_dates)


def tls_context(ca: str | Path | None, *, verify: bool) -> ssl.SSLContext:
    """Return the TLS settings: TLS 1.2 or newer, the server's certificate and name checked unless told otherwise."""
    context = ssl.create_default_context(cafile=None if ca is None else str(ca))
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _is_readable(response: urllib3.BaseHTTPResponse, seconds: float) -> bool:
    """Whether more of a response arrives within ``seconds``, as far as its socket tells."""
    sock = response.connection.sock if isinstance(response.connection, HTTPConnection) else None
    if sock is None:
        return False
    return (isinstance(sock, ssl.SSLSocket) and sock.pending() > 0) or wait_for_read(sock, seconds)


def _reply(response: urllib3.BaseHTTPResponse, body: bytes) -> Reply:
    return Reply(response.status, {name.lower(): value for name, value in response.headers.items()}, body)
