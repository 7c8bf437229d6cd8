"""The client for asyncio of a destination that several servers share: an `AsyncClient` that knows ZooKeeper."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar, Unpack

import aiohttp

from ..protocol.errors import ConnectionLostError, StaleSessionError
from .aio import AsyncClient
from .batch import Batch
from .calls import Call
from .cluster import (
    SESSION_TIMEOUT,
    TICK,
    Cluster,
    Settings,
    TurnTaker,
    endpoint_of,
    registry_of,
    usual,
)
from .endpoint import GRACE, Interrupted

T = TypeVar("T")


class AsyncClusterClient(TurnTaker, AsyncClient):
    """A consumer of a destination that several servers share, within one event loop. See `ClusterClient`."""

    def __init__(
        self,
        url: str | Sequence[str] = (),
        destination: str = "example",
        client_id: int = 1001,
        *,
        zookeeper: str | None = None,
        elect: bool = True,
        session_timeout: float = SESSION_TIMEOUT,
        **settings: Unpack[Settings],
    ) -> None:
        """Prepare, as `ClusterClient`; nothing is sent yet."""
        endpoint = endpoint_of(url, zookeeper, destination, client_id, settings)
        super().__init__(endpoint, destination, client_id, **usual(settings))
        self._news = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._limits: set[asyncio.Timeout] = set()  # of what waits for a server now
        if zookeeper is not None:
            competing = client_id if elect else None
            registry = registry_of(zookeeper, destination, competing, session_timeout, self._hear)
            self._cluster = Cluster(endpoint, registry, self._retry, elect=elect)

    async def close(self) -> None:
        """Close the connections; the next consumer has its turn at once."""
        if self._cluster is not None:
            await asyncio.to_thread(self._cluster.close)
            self._news.set()
        await super().close()

    def _hear(self) -> None:
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._take_over)

    def _take_over(self) -> None:
        if self._cluster is None:
            return
        if self._cluster.hear() is not None:
            when = asyncio.get_running_loop().time() + GRACE
            for limit in self._limits:
                if not limit.expired():
                    limit.reschedule(when)
        self._news.set()

    async def _perform_ordered(
        self, call: Call[T], exchange: Callable[[str, Call[T]], Awaitable[T]] | None = None
    ) -> tuple[int, T]:
        cluster = self._cluster
        if cluster is None:
            return await super()._perform_ordered(call, exchange)
        self._loop = asyncio.get_running_loop()
        tries = 0
        while True:
            begin = time.monotonic()
            cluster.start()
            while cluster.has_to_wait(call, time.monotonic() - begin):
                self._news.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(TICK):
                        await self._news.wait()
            try:
                return await super()._perform_ordered(call, exchange and self._limited(exchange))
            except StaleSessionError as error:
                tries += 1
                cluster.doubt(error, call, tries)
                self._take_over()  # now: else the next try would go out with the same session

    async def _exchange(self, server: str, call: Call[T]) -> T:
        return await self._until_deposed(super()._exchange(server, call))

    async def _read_streamed(self, response: aiohttp.ClientResponse) -> Batch:
        return await self._until_deposed(super()._read_streamed(response))

    def _limited(self, exchange: Callable[[str, Call[T]], Awaitable[T]]) -> Callable[[str, Call[T]], Awaitable[T]]:
        def limited(server: str, call: Call[T]) -> Awaitable[T]:
            return self._until_deposed(exchange(server, call))

        return limited

    async def _until_deposed(self, answer: Awaitable[T]) -> T:
        """Wait for a server's answer, but not long when ZooKeeper has said that another server is active."""
        limit = asyncio.timeout(None if self._endpoint.deposed is None else GRACE)
        self._limits.add(limit)
        try:
            async with limit:
                return await answer
        except TimeoutError:
            reason = ConnectionLostError(f"no answer, and {self._endpoint.active} is active by now")
            raise Interrupted(reason, may_be_done=True) from None
        finally:
            self._limits.discard(limit)
