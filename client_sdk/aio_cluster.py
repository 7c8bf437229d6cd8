"""The client for asyncio of a destination that several servers share: an `AsyncClient` that knows ZooKeeper."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar, Unpack

from sluice.client_sdk.aio import AsyncClient
from sluice.client_sdk.calls import Call
from sluice.client_sdk.cluster import SESSION_TIMEOUT, TICK, Cluster, Member, Settings, endpoint_of, usual
from sluice.client_sdk.zookeeper import Registry
from sluice.protocol.errors import StaleSessionError

T = TypeVar("T")


class AsyncClusterClient(Member, AsyncClient):
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
        if zookeeper is not None:
            competing = client_id if elect else None
            registry = Registry(zookeeper, destination, competing, session_timeout, self._hear)
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
        if self._cluster is not None:
            self._cluster.hear()
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
                return await super()._perform_ordered(call, exchange)
            except StaleSessionError as error:
                tries += 1
                cluster.doubt(error, call, tries)
                self._take_over()  # now: else the next try would go out with the same session
