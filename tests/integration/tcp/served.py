"""Canal's protocol as it is served from an embedded server, whose ring the tests fill themselves."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import prometheus_client
import pytest

from sluice.server.embedded import EmbeddedServer
from sluice.server.logins import LoginLimiter
from sluice.server.metrics import Metrics
from sluice.server.resources import Resources, Secrets
from sluice.server.serving import serving
from sluice.server.tcp.config import TcpConfig
from sluice.server.waiting import Stopping
from tests.canal import CanalClient, CanalError, stored
from tests.source import Source, start_embedded

MEGABYTE = 1 << 20

PROTECTED: dict[str, Any] = {"user": "canal", "passwd": stored("secret")}


@dataclass
class Canal:
    """A served port and the server of it."""

    port: int
    embedded: EmbeddedServer
    metrics: Metrics
    stopping: Stopping
    sources: dict[str, Source]
    clients: list[CanalClient] = field(default_factory=list)

    async def connect(self, user: str = "", password: str | None = None, *, login: bool = True) -> CanalClient:
        client = await CanalClient.connect(self.port, user, password, login=login)
        self.clients.append(client)
        return client

    @property
    def source(self) -> Source:
        return self.sources["example"]

    def marks(self, client_id: int = 1001) -> list[int]:
        return self.embedded.status("example", client_id).marks

    def client_ids(self) -> list[int]:
        return self.embedded.instances["example"].cursors.clients.ids

    def all_marks(self) -> list[int]:
        return [mark for client_id in self.client_ids() for mark in self.marks(client_id)]

    def waiting(self) -> int:
        """How many gets wait."""
        return sum(_waits(task) for task in asyncio.all_tasks())

    def page(self) -> str:
        return prometheus_client.generate_latest(self.metrics.registry).decode()


def _waits(task: "asyncio.Task[Any]") -> bool:
    """Whether a connection's task is in a get."""
    coroutine: Any = task.get_coro()
    names = []
    while coroutine is not None and hasattr(coroutine, "cr_await"):
        names.append(coroutine.__name__)
        coroutine = coroutine.cr_await
    return "get_without_ack" in names


@asynccontextmanager
async def running(
    tmp_path: Path, *, instance: dict[str, Any] | None = None, secrets: Secrets | None = None, **settings: Any
) -> AsyncIterator[Canal]:
    """Serve the destinations ``example`` and ``other`` on a free port."""
    embedded, sources = await start_embedded(tmp_path / "data", **(instance or {}))
    metrics, stopping = Metrics(embedded), Stopping()
    try:
        resources = Resources(embedded, metrics, stopping, LoginLimiter(), secrets=secrets)
        async with serving([TcpConfig(port=0, **settings)], resources) as addresses:
            canal = Canal(int(addresses[TcpConfig].rpartition(":")[2]), embedded, metrics, stopping, sources)
            try:
                yield canal
            finally:
                for client in canal.clients:
                    client.cut()
    finally:
        await embedded.close()


async def refused(client: CanalClient) -> tuple[int, str]:
    """The code and the text of the error that comes next."""
    with pytest.raises(CanalError) as caught:
        await client.acknowledged()
    return caught.value.code, str(caught.value)


async def silent(client: CanalClient) -> None:
    """Nothing comes; the connection lives."""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await client.reader.read(1)
