"""The client for programs with asyncio, over aiohttp. It is `Client` with other I/O."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, Self, TypeVar

import aiohttp

from ..protocol.errors import ConnectionLostError, SluiceError, StaleSessionError
from . import calls
from .acks import PAUSE, Done
from .aio_consumer import AsyncConsumer
from .aio_process import Tasks
from .attempts import Attempts
from .batch import Batch, InvalidDates
from .calls import FRAME, POLL, Call, Limits, Reply
from .client import tls_context
from .endpoint import Endpoint, Interrupted
from .keys import Key
from .process import Function, OnError

T = TypeVar("T")

_READ_BUFFER = 1 << 20  # bytes that aiohttp reads ahead of us


class AsyncClient(AsyncConsumer):
    """A consumer: one client id of one destination, within one event loop. See `Client` for what the methods do."""

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
        """Prepare, as `Client`; nothing is sent yet."""
        self._endpoint = Endpoint.of(url, destination, client_id, token, insecure=insecure)
        self._timeout = timeout
        self._retry = retry
        self._invalid_dates = invalid_dates
        self._order = asyncio.Lock()
        self._done = Done(0)
        self._ssl = tls_context(ca, verify=verify) if "https" in self._endpoint.schemes else None
        self._http: aiohttp.ClientSession | None = None
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections; later calls raise ConnectionLostError."""
        self._closed = True
        if self._http is not None:
            await self._http.close()
            self._http = None

    async def batches(
        self,
        *,
        prefetch: int = 2,
        auto_ack: bool = True,
        limits: Limits = Limits(),  # noqa: B008  immutable
    ) -> AsyncGenerator[Batch, None]:
        """Batch after batch, as `Client.batches` gives them; up to ``prefetch`` are fetched ahead by tasks."""
        loop = self._endpoint.begin_loop()
        await self.open_session()
        await self.rollback()
        call = replace(calls.get_without_ack(POLL, limits, self._invalid_dates), loop=loop)

        def fetch() -> asyncio.Task[tuple[int, Batch]]:
            return asyncio.create_task(self._perform_ordered(call))

        pending = deque(fetch() for _ in range(max(prefetch, 1)))
        try:
            while True:
                generation, batch = await pending[0]
                pending.popleft()
                pending.append(fetch())
                if batch and generation == self._endpoint.generation:
                    yield batch
                    if auto_ack and not batch.acked:
                        await self._settle([batch], generation)
        finally:
            for task in pending:
                task.cancel()
            await asyncio.gather(*pending, return_exceptions=True)
            await self._leave(loop)

    async def stream(
        self,
        *,
        window: int = 8,
        auto_ack: bool = True,
        limits: Limits = Limits(),  # noqa: B008  immutable
    ) -> AsyncGenerator[Batch, None]:
        """As `batches`, over one long response: the server sends on its own while at most ``window`` are not acked.

        Batches that follow one another within milliseconds are acked together, at most half a window of them.
        """
        loop = self._endpoint.begin_loop()
        await self.open_session()
        call = replace(calls.stream(window, limits), loop=loop)
        attempts = Attempts(self._endpoint, call, self._retry)
        done = self._done = Done(window)
        try:
            while True:
                response, done.generation = await self._open_stream(call)
                attempts.begin()
                try:
                    while True:
                        reading = asyncio.ensure_future(self._read_streamed(response))
                        try:
                            if done and not (await asyncio.wait((reading,), timeout=PAUSE))[0]:
                                await self._settle(done.take(), done.generation)
                            batch = await reading
                        except BaseException:
                            reading.cancel()
                            await asyncio.gather(reading, return_exceptions=True)
                            raise
                        attempts.succeeded()
                        if batch and done.generation == self._endpoint.generation:
                            yield batch
                            if auto_ack and done.add(batch):
                                await self._settle(done.take(), done.generation)
                        if done.generation != self._endpoint.generation:
                            break
                except Interrupted as failure:
                    await asyncio.sleep(attempts.delay(failure))
                finally:
                    response.close()
                    if done and done.generation == self._endpoint.generation:
                        with suppress(SluiceError, Interrupted):  # else they come again
                            await self._exchange(self._endpoint.server, calls.ack_all(done.take()))
        finally:
            await self._leave(loop)

    async def process(
        self,
        function: Function[Awaitable[object]],
        *,
        workers: int = 8,
        key: Key | None = None,
        on_error: OnError[Awaitable[object]] | None = None,
        window: int = 8,
        max_bytes: int = 16 << 20,
        grace: float = 10.0,
        limits: Limits = Limits(),  # noqa: B008  immutable
    ) -> NoReturn:
        """Call a coroutine function for each change, in ``workers`` tasks at once, as `Client.process` does in threads.

        When it is cancelled, what has begun has ``grace`` seconds to end, and is cancelled then.
        """
        tasks = Tasks(self._endpoint, function, workers, key, on_error, window, max_bytes, grace)
        loop = self._endpoint.begin_loop()
        call = replace(calls.get_without_ack(POLL, limits, self._invalid_dates), loop=loop)
        await self.open_session()
        await self.rollback()
        tasks.start(lambda: self._perform_ordered(call))
        try:
            while True:
                generation, batches = await tasks.processed(self._check)
                await self._settle(batches, generation)
        finally:
            generation, batches = await tasks.stop()
            if batches and generation == self._endpoint.generation:
                with suppress(SluiceError, Interrupted):  # else they come again
                    await self._exchange(self._endpoint.server, calls.ack_last(batches))
            await self._leave(loop)

    def _check(self) -> None:
        if self._closed:
            raise ConnectionLostError("the client is closed")

    async def _leave(self, loop: int) -> None:
        if self._endpoint.is_over(loop):
            return
        with suppress(SluiceError, Interrupted):
            await self._exchange(self._endpoint.server, calls.rollback())

    async def _perform(self, call: Call[T]) -> T:
        return (await self._perform_ordered(call))[1]

    async def _perform_ordered(
        self, call: Call[T], exchange: "Callable[[str, Call[T]], Awaitable[T]] | None" = None
    ) -> tuple[int, T]:
        attempts = Attempts(self._endpoint, call, self._retry)
        async with self._order if call.ordered else nullcontext():
            while True:
                generation = self._endpoint.generation
                server = attempts.begin()
                try:
                    for before in attempts.before:
                        await self._exchange(server, before)
                        generation += before.rolls_back
                    result = await (exchange or self._exchange)(server, attempts.call)
                except Interrupted as failure:
                    await asyncio.sleep(attempts.delay(failure))
                except asyncio.CancelledError:
                    attempts.lose()
                    raise
                else:
                    attempts.succeeded()
                    return generation + call.rolls_back, result

    async def _exchange(self, server: str, call: Call[T]) -> T:
        return await self._read(server, call, await self._send(server, call))

    async def _read(self, server: str, call: Call[T], response: aiohttp.ClientResponse) -> T:
        async with response:
            try:
                body = await response.read()
            except (aiohttp.ClientError, TimeoutError) as error:
                raise Interrupted.by(error, may_be_done=True) from None
        return self._endpoint.read(server, call, _reply(response, body))

    async def _send(self, server: str, call: Call[Any]) -> aiohttp.ClientResponse:
        self._check()  # a generator of batches that was left gives back what it had fetched, even then
        if self._http is None:
            connector = aiohttp.TCPConnector(limit=0) if self._ssl is None else aiohttp.TCPConnector(ssl=self._ssl)
            self._http = aiohttp.ClientSession(
                connector=connector,
                auto_decompress=False,
                read_bufsize=_READ_BUFFER,
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        endpoint = self._endpoint
        connect, read = endpoint.limits(server, self._timeout, call.wait)
        try:
            return await self._http.request(
                call.method,
                endpoint.url(server, call),
                data=endpoint.body(call),
                headers=endpoint.headers(server, call),
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(sock_connect=connect, sock_read=read),
            )
        except (aiohttp.ClientConnectorCertificateError, aiohttp.ClientConnectorSSLError) as error:
            raise Interrupted.by(error, may_be_done=False, is_final=True) from None
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise Interrupted.by(error, may_be_done=False) from None
        except (aiohttp.ClientError, TimeoutError) as error:
            raise Interrupted.by(error, may_be_done=True) from None

    async def _open_stream(self, call: Call[str]) -> tuple[aiohttp.ClientResponse, int]:
        opened: list[aiohttp.ClientResponse] = []

        async def exchange(server: str, call: Call[str]) -> str:
            response = await self._send(server, call)
            if response.status >= 300:
                return await self._read(server, call, response)
            opened[:] = [response]
            return self._endpoint.read(server, call, _reply(response, b""))

        try:
            generation, _ = await self._perform_ordered(call, exchange)
        except StaleSessionError:  # a newer loop has begun just now
            for response in opened:
                response.close()
            raise
        return opened[0], generation

    async def _read_streamed(self, response: aiohttp.ClientResponse) -> Batch:
        try:
            (size,) = FRAME.unpack(await response.content.readexactly(FRAME.size))
            data = await response.content.readexactly(size)
        except asyncio.IncompleteReadError as error:
            reason = ConnectionLostError("the server ended the stream" if not error.partial else "the stream was cut")
            raise Interrupted(reason, may_be_done=True) from None
        except (aiohttp.ClientError, TimeoutError) as error:
            raise Interrupted.by(error, may_be_done=True) from None
        return calls.read_streamed(data, self._invalid_dates)


def _reply(response: aiohttp.ClientResponse, body: bytes) -> Reply:
    return Reply(response.status, {name.lower(): value for name, value in response.headers.items()}, body)
