"""The HTTP API, served by uvicorn from an embedded server whose ring the tests fill themselves, and a client of it."""

import asyncio
import json
import os
import re
import signal
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import aiohttp
import pytest

from sluice.protocol.canal.packet_pb2 import Messages
from sluice.server.embedded import EmbeddedServer
from sluice.server.http.config import HttpConfig
from sluice.server.logins import LoginLimiter
from sluice.server.metrics import Metrics
from sluice.server.process import serve
from sluice.server.resources import Resources
from sluice.server.waiting import Stopping
from tests.source import Source, start_embedded

PROTOBUF = {"Accept": "application/x-protobuf"}

NDJSON = {"Accept": "application/x-ndjson"}
ARROW = {"Accept": "application/vnd.apache.arrow.stream"}

CLIENT = "/v1/destinations/example/clients/1001"

MEGABYTE = 1 << 20


class Answer(NamedTuple):
    body: bytes
    content_type: str
    headers: Mapping[str, str]

    def text(self) -> str:
        return self.body.decode()

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Api:
    """A running server and a client of it."""

    paths: ClassVar[dict[str, Any]] = {}

    base: str
    http: aiohttp.ClientSession
    embedded: EmbeddedServer
    sources: dict[str, Source]
    serving: asyncio.Task[None]
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def source(self) -> Source:
        return self.sources["example"]

    async def call(self, method: str, path: str, *, status: int = 200, **options: Any) -> Answer:
        headers = {**self.headers, **options.pop("headers", {})}
        async with self.http.request(method, self.base + path, headers=headers, **options) as response:
            answer = Answer(await response.read(), response.content_type, response.headers)
            assert response.status == status, answer.text()
            return answer

    async def post(self, call: str, *, status: int = 200, **options: Any) -> Answer:
        return await self.call("POST", f"{CLIENT}/{call}", status=status, **options)

    async def problem(self, method: str, path: str, status: int, **options: Any) -> str:
        response = await self.call(method, path, status=status, **options)
        assert status in await self.documented(method, path)
        assert response.content_type == "application/problem+json"
        problem = response.json()
        assert problem["status"] == status
        assert problem["detail"]
        assert problem["advice"]
        return str(problem["type"])

    async def document(self) -> dict[str, Any]:
        """The paths of the OpenAPI document, which is that of any server, and takes a while to make."""
        if not self.paths:
            self.paths.update((await self.call("GET", "/openapi.json")).json()["paths"])
        return self.paths

    async def documented(self, method: str, path: str) -> set[int]:
        """The statuses of a call in the OpenAPI document."""
        for template, calls in (await self.document()).items():
            if re.fullmatch(re.sub(r"{\w+}", "[^/]+", template), path.partition("?")[0]):
                return {int(status) for status in calls[method.lower()]["responses"]}
        pytest.fail(f"{method} {path} is not in the document")

    async def get(self, **options: Any) -> Messages:
        response = await self.post("getWithoutAck", params=options, headers=PROTOBUF)
        return Messages.FromString(response.body)

    async def ack(self, batch_id: int) -> None:
        await self.post("ack", json={"batchId": batch_id}, status=204)

    async def marks(self) -> list[int]:
        return list(((await self.call("GET", CLIENT)).json())["marks"])

    def waiting(self) -> int:
        """How many calls are under way, that of the caller not among them."""
        return sum("run_asgi" in repr(task.get_coro()) for task in asyncio.all_tasks())


@asynccontextmanager
async def running(tmp_path: Path, **settings: Any) -> AsyncIterator[Api]:
    """A server with the destinations ``example`` and ``other`` on a free port, stopped by SIGTERM in the end."""
    embedded, sources = await start_embedded(tmp_path / "data", **settings.pop("instance", {}))
    settings.setdefault("credentials", tmp_path / "credentials.json")
    base: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    resources = Resources(embedded, Metrics(embedded), Stopping(), LoginLimiter())
    serving = asyncio.create_task(
        serve([HttpConfig(port=0, **settings)], resources, lambda found: base.set_result(found[HttpConfig]))
    )
    await asyncio.wait((serving, base), return_when=asyncio.FIRST_COMPLETED)
    if serving.done():
        await serving
    try:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, ssl=False)) as http:
            yield Api(await base, http, embedded, sources, serving)
    finally:
        if not serving.done():
            os.kill(os.getpid(), signal.SIGTERM)
            async with asyncio.timeout(5):
                await serving


@asynccontextmanager
async def streaming(api: Api, **parameters: Any) -> AsyncIterator[aiohttp.ClientResponse]:
    headers = api.headers | PROTOBUF | parameters.pop("headers", {})
    async with api.http.get(f"{api.base}{CLIENT}/stream", params=parameters, headers=headers) as response:
        assert response.status == 200
        yield response


async def next_batch(response: aiohttp.ClientResponse) -> Messages:
    async with asyncio.timeout(5):
        (length,) = struct.unpack(">I", await response.content.readexactly(4))
        return Messages.FromString(await response.content.readexactly(length))
