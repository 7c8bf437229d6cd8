"""The client of the pumps of a TiDB cluster, for asyncio."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import grpc
import grpc.aio

from ...protocol.errors import ConnectionLostError
from ...protocol.tidb.binlog_pb2 import Binlog
from .cluster import CLOSED, Cluster, failure, refusal, writer
from .pumps import NOBODY, PERIOD, Errand, Failure, Pump, Strategy, Writing


class AsyncPumpClient:
    """As `PumpClient`, for ``async with``, within one event loop. It looks for the pumps when it is entered."""

    def __init__(
        self,
        cluster_id: int,
        pumps: str | Sequence[str] = (),
        *,
        pd: str | Sequence[str] = (),
        strategy: Strategy = "range",
        labels: Mapping[str, str] | None = None,
        ca: str | Path | None = None,
        cert: tuple[str | Path, str | Path] | None = None,
        timeout: float = 5.0,
        retry: float = 15.0,
    ) -> None:
        """Prepare. The arguments, and what is raised for them, are those of `PumpClient`."""
        self._cluster = Cluster(cluster_id, pumps, pd, strategy, labels, ca, cert)
        self._timeout = timeout
        self._retry = retry
        self._channels: list[Any] = []
        self._calls: dict[str, Any] = {}  # by address
        self._keeping: asyncio.Task[None] | None = None
        self._closed = asyncio.Event()

    async def __aenter__(self) -> Self:
        try:
            await asyncio.to_thread(self._cluster.look)
        except BaseException:
            self._cluster.close()
            raise
        self._keeping = asyncio.create_task(self._keep())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections. Calls of other tasks end at once, like later ones, with a ConnectionLostError."""
        self._closed.set()
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)
        await asyncio.gather(*(it.close() for it in self._channels))
        self._cluster.close()

    async def write(self, binlog: Binlog) -> None:
        """Write a Prewrite, a Commit or a Rollback, as `PumpClient.write`. One that is cancelled may be stored."""
        writing = Writing(self._cluster.pumps, binlog, self._retry, time.monotonic())
        payload = binlog.SerializeToString()
        while True:
            pump = writing.begin()
            failed = NOBODY if pump is None else await self._ask(pump, payload)
            if failed is None:
                writing.stored()
                return
            if self._closed.is_set() or await self._is_closed_within(writing.failed(failed, time.monotonic())):
                raise ConnectionLostError(CLOSED)

    async def _is_closed_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                return await self._closed.wait()
        except TimeoutError:
            return False

    async def _ask(self, pump: Pump, payload: bytes) -> Failure | None:
        """Send a message to a pump; return why it has not stored it."""
        if self._closed.is_set():
            raise ConnectionLostError(CLOSED)
        host = pump.node.host
        if host not in self._calls:
            channel = self._cluster.channel(grpc.aio, host)
            self._channels.append(channel)
            self._calls[host] = writer(channel)
        try:
            return refusal(await self._calls[host](self._cluster.request(payload), timeout=self._timeout))
        except grpc.aio.AioRpcError as error:
            return failure(error)
        except asyncio.CancelledError:
            if not self._closed.is_set():
                raise
            raise ConnectionLostError(CLOSED) from None  # its channel was closed

    async def _keep(self) -> None:
        """Look after the pumps, for ever."""
        while True:
            await asyncio.sleep(PERIOD)
            await asyncio.to_thread(self._cluster.look_again)
            await asyncio.gather(*(self._run(it) for it in self._cluster.pumps.errands()))

    async def _run(self, errand: Errand) -> None:
        if await self._ask(errand.pump, errand.payload) is None:
            self._cluster.pumps.done(errand)
