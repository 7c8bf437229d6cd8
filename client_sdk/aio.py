"""The client for programs with asyncio, over aiohttp. It is `Client` with other I/O."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, Self, TypeVar

import aiohttp

from ..protocol.errors import ConnectionLostError, SluiceError, UnknownBatchError
from ..protocol.position import Position
from . import calls
from .acks import PAUSE, Done
from .attempts import Attempts
from .batch import Batch, Column, InvalidDates, Part, Range
from .calls import FRAME, POLL, Call, Limits, Reply, Snapshot, Start
from .client import tls_context
from .endpoint import Endpoint, Interrupted

T = TypeVar("T")

_READ_BUFFER = 1 << 20  # bytes that aiohttp reads ahead of us


class AsyncClient:
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

    @property
    def servers(self) -> tuple[str, ...]:
        """URLs of the servers that are known, the one in use first."""
        return self._endpoint.servers

    async def close(self) -> None:
        """Close the connections; later calls raise ConnectionLostError."""
        self._closed = True
        if self._http is not None:
            await self._http.close()
            self._http = None

    async def subscribe(
        self,
        filter: str = "",  # noqa: A002  the API's name
        start: Start = "earliest",
        *,
        where: str = "",
        expire_after: int | None = None,
        protect: bool | None = None,
    ) -> dict[str, Any]:
        """Register the client, or replace its filter and its conditions on rows: see `Client.subscribe`."""
        return await self._perform(calls.subscribe(filter, start, where, expire_after, protect))

    async def unsubscribe(self) -> None:
        """Remove the client; its cursor goes too."""
        await self._perform(calls.unsubscribe())

    async def confirm_gaps(self) -> int:
        """Confirm that the client goes on without the changes that it does not get: see `Client.confirm_gaps`."""
        return await self._perform(calls.confirm_gaps())

    async def open_session(self) -> str:
        """Take the client id over."""
        return await self._perform(calls.open_session())

    async def get_without_ack(
        self,
        timeout: float = 0.0,  # noqa: ASYNC109  the server's wait
        limits: Limits = Limits(),  # noqa: B008  immutable
        *,
        ack: Batch | None = None,
        durable: bool = False,
    ) -> Batch:
        """Take the next batch, to be acked or rolled back; an empty one after ``timeout`` seconds without a change.

        ``ack``: ack this batch first, by the same call. After a get that was cancelled, all that is not acked comes
        again.
        """
        get = calls.get_without_ack(timeout, limits, self._invalid_dates)
        if not ack:
            return await self._perform(get)
        await self._settle(self._done.take(), self._done.generation)
        is_lost = False
        try:
            if self._endpoint.is_settled:
                both = calls.get_without_ack(timeout, limits, self._invalid_dates, ack, durable=durable)
                batch = await self._perform(both)
                ack.acked = True
                return batch
        except Interrupted as failure:
            is_lost = failure.may_be_done
        try:
            await self._perform(calls.ack_again(ack, durable=durable))
        finally:
            if is_lost:
                self._endpoint.lose_get()
        ack.acked = True
        return await self._perform(get)

    async def ack(self, what: Batch | int | str | Position, *, durable: bool = False) -> None:
        """Ack the oldest outstanding batch, or everything before a position; an empty batch needs none."""
        if calls.is_nothing(what):
            return
        await self._settle(self._done.take(), self._done.generation)
        await self._perform(calls.ack(what, durable=durable))
        if isinstance(what, Batch):
            what.acked = True

    async def rollback(self, batch_id: int | None = None) -> None:
        """Give all outstanding batches back, so that they come again; or one, as in Canal."""
        await self._settle(self._done.take(), self._done.generation)
        await self._perform(calls.rollback(batch_id))

    async def get(
        self,
        timeout: float = 0.0,  # noqa: ASYNC109  the server's wait
        limits: Limits = Limits(),  # noqa: B008  immutable
    ) -> Batch:
        """Take the next batch and ack it at once: what is not processed then is lost."""
        batch = await self.get_without_ack(timeout, limits)
        if batch:
            try:
                await self.ack(batch)
            except BaseException:  # no caller has the batch: it comes again with the next get
                self._endpoint.has_marks = True
                raise
        return batch

    async def position(
        self,
        after: str | Position,
        *,
        until: str | Position | None = None,
        timeout: float = 0.0,  # noqa: ASYNC109  the API's parameter
        max_rows: int | None = None,
        max_bytes: int | None = None,
    ) -> Range:
        """Mark what follows a position, up to a transaction's end or before a DDL; wait ``timeout`` seconds for it.

        Asking again with the same arguments gives the same range, until it is acked by its end. ``until`` is where it
        ends at the latest.
        """
        return await self._perform(calls.position(after, until, timeout, max_rows, max_bytes))

    async def splits(self, from_: str | Position, to: str | Position, n: int) -> list[Part]:
        """Cut a range into at most ``n`` parts of about equal bytes, one after the other."""
        return await self._perform(calls.splits(from_, to, n))

    async def rows(self, from_: str | Position, to: str | Position) -> Batch:
        """Read what is between two positions; it may be repeated, and needs no ack."""
        return await self._perform(calls.rows(from_, to, self._invalid_dates))

    async def status(self) -> dict[str, Any]:
        """Cursors, outstanding batches and lag."""
        return await self._perform(calls.status())

    async def snapshot(
        self,
        tables: str | Sequence[str],
        where: Mapping[str, str] | None = None,
        *,
        max_rows_per_second: int = 0,
    ) -> int:
        """Begin to get the rows that tables have now, among the changes; return the id of the snapshot.

        ``tables`` is a filter, or names ``schema.table``. ``where`` has conditions on the rows of some by their names.
        The rows come in batches like changes; their type is READ.
        """
        return await self._perform(calls.start_snapshot(Snapshot(tables, where or {}, max_rows_per_second)))

    async def snapshot_status(self, snapshot_id: int) -> dict[str, Any]:
        """Return how far a snapshot is."""
        return await self._perform(calls.snapshot_status(snapshot_id))

    async def pause_snapshot(self, snapshot_id: int) -> None:
        """Get no more rows of a snapshot until `resume_snapshot`."""
        await self._perform(calls.pause_snapshot(snapshot_id, is_paused=True))

    async def resume_snapshot(self, snapshot_id: int) -> None:
        """Go on with a snapshot."""
        await self._perform(calls.pause_snapshot(snapshot_id, is_paused=False))

    async def cancel_snapshot(self, snapshot_id: int) -> None:
        """Forget a snapshot; batches of it that are outstanding can still be acked."""
        await self._perform(calls.cancel_snapshot(snapshot_id))

    async def destination(self) -> dict[str, Any]:
        """State, ring, clients and lag of the destination."""
        return await self._perform(calls.destination())

    async def latest(self) -> str:
        """Return the source's current end: the position after its last change."""
        return await self._perform(calls.latest())

    async def tables(self, filter: str = "") -> list[str]:  # noqa: A002  the API's name
        """Return the tables that the source has now and that the destination delivers, as ``schema.table``.

        ``filter`` chooses among them.
        """
        return await self._perform(calls.tables(filter))

    async def columns(self, table: str, filter: str = "") -> list[Column]:  # noqa: A002  the API's name
        """Return the columns of ``schema.table`` as the source has them now; `UnknownTableError` if it has none.

        `FilterError` when the destination does not deliver the table, or ``filter`` leaves it out.
        """
        return await self._perform(calls.columns(table, filter))

    async def batches(
        self,
        *,
        prefetch: int = 2,
        auto_ack: bool = True,
        limits: Limits = Limits(),  # noqa: B008  immutable
    ) -> AsyncGenerator[Batch, None]:
        """Batch after batch, as `Client.batches` gives them; up to ``prefetch`` are fetched ahead by tasks."""
        await self.open_session()
        await self.rollback()
        call = calls.get_without_ack(POLL, limits, self._invalid_dates)

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
            await self._leave()

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
        await self.open_session()
        call = calls.stream(window, limits)
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
            await self._leave()

    async def _settle(self, batches: Sequence[Batch], generation: int) -> None:
        if not batches or generation != self._endpoint.generation:
            return
        try:
            await self._perform(calls.ack_all(batches))
        except UnknownBatchError:
            if generation == self._endpoint.generation:  # the server has forgotten its marks: it was restarted
                await self.rollback()
        else:
            for batch in batches:
                batch.acked = True

    async def _leave(self) -> None:
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
                server = attempts.begin()
                try:
                    for before in attempts.before:
                        await self._exchange(server, before)
                    result = await (exchange or self._exchange)(server, attempts.call)
                except Interrupted as failure:
                    await asyncio.sleep(attempts.delay(failure))
                except asyncio.CancelledError:
                    attempts.lose()
                    raise
                else:
                    attempts.succeeded()
                    return self._endpoint.generation, result

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
        if self._closed:  # a generator of batches that was left gives back what it had fetched, even then
            raise ConnectionLostError("the client is closed")
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

        generation, _ = await self._perform_ordered(call, exchange)
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
