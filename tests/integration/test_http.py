"""The HTTP API, served by uvicorn from an embedded server; in place of a source the tests fill its ring themselves."""

import asyncio
import base64
import hashlib
import json
import os
import re
import signal
import socket
import ssl
import struct
import threading
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pyarrow as pa
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from sluice.instance.config import local_time_zone
from sluice.instance.parser.quarantine import Item, Quarantine, path_of
from sluice.protocol.errors import ConfigError
from sluice.protocol.packet_pb2 import Messages
from sluice.server import network
from sluice.server.config import ServerConfig
from sluice.server.embedded import EmbeddedServer
from sluice.server.http import formats, stream
from sluice.server.http.auth import Credentials, Grant, Scope
from sluice.server.process import serve
from tests.source import Source, eventually, numbers, start_embedded

PROTOBUF = {"Accept": "application/x-protobuf"}
NDJSON = {"Accept": "application/x-ndjson"}
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
        assert response.content_type == "application/problem+json"
        problem = response.json()
        assert problem["status"] == status
        assert problem["detail"]
        assert problem["advice"]
        return str(problem["type"])

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
    settings.setdefault("http_credentials", tmp_path / "credentials.json")
    base: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    config = ServerConfig(http_port=0, without_netty=True, **settings)
    serving = asyncio.create_task(serve(embedded, config, base.set_result))
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


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    async with running(tmp_path) as api:
        await api.post("subscribe")
        yield api


class TestGet:
    async def test_changes_are_taken_acked_and_not_given_again(self, api: Api) -> None:
        api.source.put(3)
        first = await api.get()
        assert numbers(first) == [0, 1, 2]
        await api.ack(first.batch_id)
        api.source.put()
        assert numbers(await api.get(timeout=5000)) == [3]

    async def test_an_empty_batch_has_the_id_minus_one(self, api: Api) -> None:
        batch = await api.get()
        assert (batch.batch_id, list(batch.messages)) == (-1, [])

    async def test_a_waiting_call_is_answered_by_the_first_change(self, api: Api) -> None:
        waiting = asyncio.create_task(api.get(timeout=30_000))
        await eventually(lambda: api.waiting() == 1)
        api.source.put()
        async with asyncio.timeout(5):
            assert numbers(await waiting) == [0]

    async def test_a_waiting_call_ends_with_its_timeout(self, api: Api) -> None:
        begin = time.monotonic()
        assert (await api.get(timeout=200)).batch_id == -1
        assert 0.15 < time.monotonic() - begin < 5

    async def test_what_is_rolled_back_comes_again_under_another_id(self, api: Api) -> None:
        api.source.put(2)
        first = await api.get()
        await api.post("rollback", status=204)
        second = await api.get()
        assert numbers(second) == numbers(first)
        assert second.batch_id > first.batch_id

    async def test_limits_bound_a_batch(self, api: Api) -> None:
        api.source.put(10, size=1000)
        assert len((await api.get(maxEntries=3)).messages) == 3
        assert len((await api.get(maxBytes=2500)).messages) == 2
        assert len((await api.get()).messages) == 5

    async def test_min_bytes_and_linger_wait_for_more(self, api: Api) -> None:
        api.source.put()
        waiting = asyncio.create_task(api.get(timeout=30_000, minBytes=1, linger=30_000))
        assert numbers(await waiting) == [0]
        waiting = asyncio.create_task(api.get(timeout=30_000, minBytes=5000, linger=30_000))
        await eventually(lambda: api.waiting() == 1)
        api.source.put()
        assert len(await api.marks()) == 1  # what it waits with is not taken yet
        api.source.put(size=5000)
        assert numbers(await waiting) == [1, 2]

    async def test_acks_may_name_a_position(self, api: Api) -> None:
        api.source.put(3)
        response = await api.post("getWithoutAck", headers=PROTOBUF)
        await api.post("ack", json={"position": response.headers["Sluice-To"]}, status=204)
        assert await api.marks() == []

    async def test_calls_may_be_written_in_unusual_ways(self, api: Api) -> None:
        """The common form takes a shortcut; every other one that is right means the same."""
        api.source.put(3)
        headers = {"Content-Type": "application/json; charset=utf-8"}
        for query, body in ("?durable=yes", '{"batchId": "%d"}'), ("", ' {"position": null, "batchId": %d}'):
            answer = await api.post("getWithoutAck?maxEntries=%31", headers=PROTOBUF)
            assert len(Messages.FromString(answer.body).messages) == 1
            await api.post(f"ack{query}", data=body % (await api.marks())[0], headers=headers, status=204)
        assert await api.marks() == []
        path = f"{CLIENT}/getWithoutAck?maxEntries=1&maxEntries=x"
        assert await api.problem("POST", path, 422) == "bad-parameter"

    async def test_a_durable_ack_is_on_disk_when_it_is_answered(self, api: Api, tmp_path: Path) -> None:
        api.source.put(3)
        batch = await api.get()
        await api.post("ack?durable=true", json={"batchId": batch.batch_id}, status=204)
        assert "bin.000001@1700000000:304:0" in "".join(
            path.read_text() for path in (tmp_path / "data").rglob("*") if path.is_file()
        )


class TestAckOfAGet:
    """A get that acks the batch before it."""

    async def test_it_acks_then_gives_the_next_batch(self, api: Api) -> None:
        api.source.put(3)
        first = await api.get(maxEntries=1)
        second = await api.get(maxEntries=1, ack=first.batch_id)
        assert numbers(second) == [1]
        assert await api.marks() == [second.batch_id]
        await api.post("rollback", status=204)
        again = await api.get()
        assert numbers(again) == [1, 2]

    async def test_it_may_name_a_position(self, api: Api) -> None:
        api.source.put(3)
        for _ in range(2):
            response = await api.post("getWithoutAck?maxEntries=1", headers=PROTOBUF)
        third = await api.get(ack=response.headers["Sluice-To"])
        assert numbers(third) == [2]
        assert await api.marks() == [third.batch_id]

    async def test_a_durable_one_is_on_disk_before_the_next_batch_comes(self, tmp_path: Path) -> None:
        async with running(tmp_path, instance={"file_flush_period": 60_000}) as api:
            await api.post("subscribe")
            api.source.put(2)
            first = await api.get(maxEntries=1)
            second = await api.get(ack=first.batch_id, durable="true")
            stored = "".join(path.read_text() for path in (tmp_path / "data").rglob("*") if path.is_file())
        assert numbers(second) == [1]
        assert "bin.000001@1700000000:104:0" in stored

    @pytest.mark.parametrize(
        ("ack", "status", "kind"),
        [
            ("{second}", 409, "ack-out-of-order"),
            ("7", 409, "unknown-batch"),
            ("-1", 409, "unknown-batch"),
            ("101/bin.000001@1700000000:9999:0", 422, "bad-position"),
            ("seven", 422, "bad-position"),
        ],
    )
    async def test_one_that_is_refused_changes_nothing(self, api: Api, ack: str, status: int, kind: str) -> None:
        api.source.put(3)
        first, second = await api.get(maxEntries=1), await api.get(maxEntries=1)
        path = f"{CLIENT}/getWithoutAck?ack={ack.format(second=second.batch_id)}"
        assert await api.problem("POST", path, status) == kind
        assert await api.marks() == [first.batch_id, second.batch_id]
        assert numbers(await api.get()) == [2]

    async def test_a_format_that_cannot_be_had_acks_nothing(self, api: Api) -> None:
        api.source.put(2)
        first = await api.get(maxEntries=1)
        path = f"{CLIENT}/getWithoutAck?ack={first.batch_id}"
        assert await api.problem("POST", path, 406, headers={"Accept": "text/html"}) == "not-acceptable"
        assert await api.marks() == [first.batch_id]

    async def test_one_of_an_older_session_acks_and_takes_nothing(self, api: Api) -> None:
        api.source.put(2)
        older = {"Sluice-Session": ((await api.post("session")).json())["session"]}
        await api.post("getWithoutAck?maxEntries=1", headers=older)
        marks = await api.marks()
        await api.post("session")
        path = f"{CLIENT}/getWithoutAck?ack={marks[0]}"
        assert await api.problem("POST", path, 409, headers=older) == "stale-session"
        assert await api.marks() == marks

    async def test_without_a_further_change_the_ack_stands(self, api: Api) -> None:
        api.source.put()
        first = await api.get()
        assert (await api.get(ack=first.batch_id, timeout=100)).batch_id == -1
        await api.post("rollback", status=204)
        assert (await api.get()).batch_id == -1

    async def test_when_the_client_goes_away_the_ack_stands_and_no_batch_is_taken(self, api: Api) -> None:
        api.source.put()
        first = await api.get()
        waiting = asyncio.create_task(api.get(ack=first.batch_id, timeout=30_000))
        await eventually(lambda: api.waiting() == 1)
        assert await api.marks() == []
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await eventually(lambda: not api.waiting())
        api.source.put()
        assert numbers(await api.get()) == [1]

    async def test_when_the_server_stops_it_says_so_and_the_ack_stands(self, tmp_path: Path) -> None:
        async with running(tmp_path) as api:
            await api.post("subscribe")
            api.source.put()
            path = f"{CLIENT}/getWithoutAck?timeout=60000&ack={(await api.get()).batch_id}"
            waiting = asyncio.create_task(api.problem("POST", path, 503))
            await eventually(lambda: api.waiting() == 1)
            os.kill(os.getpid(), signal.SIGTERM)
            async with asyncio.timeout(5):
                assert await waiting == "destination-stopped"
                await api.serving
        async with running(tmp_path) as api:
            status = (await api.call("GET", CLIENT)).json()
            assert status["position"] == "101/bin.000001@1700000000:104:0"


class TestFormats:
    async def test_json_is_the_default(self, api: Api) -> None:
        api.source.put(2)
        response = await api.post("getWithoutAck")
        body = response.json()
        assert response.content_type == "application/json"
        assert [entry["data"] for entry in body["entries"]] == [[{"id": "0"}], [{"id": "1"}]]
        assert {entry["id"] for entry in body["entries"]} == {body["batchId"]}
        assert str(body["batchId"]) == response.headers["Sluice-Batch-Id"]
        assert (body["from"], body["to"]) == ("101/bin.000001@1700000000:4:0", "101/bin.000001@1700000000:204:0")
        assert (body["from"], body["to"]) == (response.headers["Sluice-From"], response.headers["Sluice-To"])

    async def test_an_empty_batch_is_json_too(self, api: Api) -> None:
        body = (await api.post("getWithoutAck")).json()
        assert (body["batchId"], body["entries"]) == (-1, [])

    async def test_ndjson_is_a_change_a_line_then_the_batch(self, api: Api) -> None:
        api.source.put(2)
        response = await api.post("getWithoutAck", headers=NDJSON)
        *changes, batch = map(json.loads, (response.text()).splitlines())
        assert [change["data"] for change in changes] == [[{"id": "0"}], [{"id": "1"}]]
        assert str(batch["batchId"]) == response.headers["Sluice-Batch-Id"]

    async def test_arrow_is_a_stream_of_rows_that_says_which_batch_it_is(self, api: Api) -> None:
        api.source.put(2)
        response = await api.post("getWithoutAck", headers={"Accept": "application/vnd.apache.arrow.stream"})
        rows = pa.ipc.open_stream(response.body).read_all()
        assert response.content_type == "application/vnd.apache.arrow.stream"
        assert rows.column("after").to_pylist() == [[("id", "0")], [("id", "1")]]
        assert [it["begin"] for it in rows.column("_pos").to_pylist()] == [4, 104]
        assert rows.schema.metadata[b"batchId"].decode() == response.headers["Sluice-Batch-Id"]
        assert rows.schema.metadata[b"to"].decode() == response.headers["Sluice-To"]

    async def test_an_empty_batch_is_arrow_too(self, api: Api) -> None:
        response = await api.post("getWithoutAck", headers={"Accept": "application/vnd.apache.arrow.stream"})
        rows = pa.ipc.open_stream(response.body).read_all()
        assert (rows.num_rows, rows.schema.metadata[b"batchId"]) == (0, b"-1")

    async def test_what_the_server_cannot_write_is_not_acceptable_and_takes_no_batch(self, api: Api) -> None:
        api.source.put()
        kind = await api.problem("POST", f"{CLIENT}/getWithoutAck", 406, headers={"Accept": "text/csv"})
        assert kind == "not-acceptable"
        assert await api.marks() == []

    async def test_a_large_batch_arrives_whole(self, api: Api) -> None:
        for _ in range(8):
            api.source.put(size=MEGABYTE // 2)
        response = await api.post("getWithoutAck", params={"maxEntries": 8}, headers=PROTOBUF)
        body = response.body
        assert int(response.headers["Content-Length"]) == len(body) > 4 * MEGABYTE
        assert numbers(Messages.FromString(body)) == list(range(8))


class TestSlowReader:
    """A reader that takes its time is sent what it asked for, whatever becomes of the ring meanwhile."""

    @staticmethod
    async def ask(api: Api, receive_buffer: int = 4096) -> tuple[socket.socket, asyncio.AbstractEventLoop]:
        """Ask for eight megabytes and take nothing yet."""
        loop = asyncio.get_running_loop()
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.setblocking(False)
        await loop.sock_connect(sock, ("127.0.0.1", int(api.base.rpartition(":")[2])))
        request = (
            f"POST {CLIENT}/getWithoutAck?maxEntries=16 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            "Accept: application/x-protobuf\r\nContent-Length: 0\r\n\r\n"
        )
        await loop.sock_sendall(sock, request.encode())
        await eventually(lambda: api.embedded.status("example", 1001).marks)
        return sock, loop

    @staticmethod
    async def fill(api: Api) -> str:
        """Put eight megabytes; return their checksum."""
        for _ in range(16):
            api.source.put(size=MEGABYTE // 2)
        digest = hashlib.sha256()
        for piece in api.source.ring.collect(api.source.ring.first, max_entries=16).slices:
            digest.update(piece)
        return digest.hexdigest()

    async def test_it_gets_the_right_bytes_although_they_are_acked_and_overwritten(self, api: Api) -> None:
        expected = await self.fill(api)
        pool = api.source.ring.pool
        sock, loop = await self.ask(api)
        with sock:
            batch_id = (await api.marks())[0]
            await api.ack(batch_id)
            assert pool.pinned > 0
            for _ in range(8):  # would overwrite the memory if it were not pinned
                api.source.put(size=MEGABYTE // 2)
            received = bytearray()
            while piece := await loop.sock_recv(sock, 1 << 16):
                received += piece
        body = received.partition(b"\r\n\r\n")[2]
        first = body.index(b"\x12")
        assert hashlib.sha256(body[first:]).hexdigest() == expected
        await eventually(lambda: not pool.pinned)

    async def test_the_memory_of_one_that_goes_away_is_released(self, api: Api) -> None:
        await self.fill(api)
        pool = api.source.ring.pool
        sock, _loop = await self.ask(api)
        await api.ack((await api.marks())[0])
        assert pool.pinned > 0
        sock.close()
        await eventually(lambda: not pool.pinned)

    async def test_one_that_takes_nothing_for_too_long_is_cut_off(
        self, api: Api, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(network, "STALLED", 0.2)
        await self.fill(api)
        pool = api.source.ring.pool
        sock, _loop = await self.ask(api)
        with sock:
            await api.ack((await api.marks())[0])
            await eventually(lambda: not pool.pinned)


class TestWaiting:
    async def test_a_client_that_goes_away_while_it_waits_takes_no_batch(self, api: Api) -> None:
        waiting = asyncio.create_task(api.get(timeout=30_000))
        await eventually(lambda: api.waiting() == 1)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await eventually(lambda: not api.waiting())
        api.source.put()
        assert await api.marks() == []
        assert numbers(await api.get()) == [0]

    async def test_a_hundred_clients_wait_at_once(self, api: Api) -> None:
        paths = [f"/v1/destinations/example/clients/{number}" for number in range(100)]
        for path in paths:
            await api.call("POST", f"{path}/subscribe")
        calls = [api.call("POST", f"{path}/getWithoutAck?timeout=30000", headers=PROTOBUF) for path in paths]
        waiting = asyncio.gather(*calls)
        await eventually(lambda: api.waiting() == 100)
        api.source.put()
        async with asyncio.timeout(5):
            responses = await waiting
        assert [numbers(Messages.FromString(it.body)) for it in responses] == [[0]] * 100

    async def test_a_put_of_another_thread_wakes_who_waits(self, api: Api) -> None:
        waiting = asyncio.create_task(api.get(timeout=30_000))
        await eventually(lambda: api.waiting() == 1)
        thread = threading.Thread(target=api.source.put)
        thread.start()
        async with asyncio.timeout(5):
            assert numbers(await waiting) == [0]
        thread.join()


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


class TestStream:
    async def test_batch_follows_batch_while_they_are_acked(self, api: Api) -> None:
        async with streaming(api, maxEntries=1, window=2) as response:
            for number in range(5):
                api.source.put()
                batch = await next_batch(response)
                assert numbers(batch) == [number]
                assert batch.from_position.endswith(f":{4 + 100 * number}:0")
                await api.ack(batch.batch_id)

    async def test_no_more_batches_are_outstanding_than_the_window_allows(self, api: Api) -> None:
        api.source.put(10)
        async with streaming(api, maxEntries=1, window=3) as response:
            batches = [await next_batch(response) for _ in range(3)]
            assert len(await api.marks()) == 3
            await api.ack(batches[0].batch_id)
            assert numbers(await next_batch(response)) == [3]
            assert len(await api.marks()) == 3

    async def test_it_begins_with_a_rollback(self, api: Api) -> None:
        api.source.put(2)
        await api.get()
        async with streaming(api) as response:
            assert numbers(await next_batch(response)) == [0, 1]
            assert len(await api.marks()) == 1

    async def test_an_idle_stream_carries_empty_batches(self, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(stream, "HEARTBEAT", 0.05)
        async with streaming(api, window=1) as response:
            assert (await next_batch(response)).batch_id == -1
            api.source.put()
            while (batch := await next_batch(response)).batch_id == -1:
                pass
            assert (await next_batch(response)).batch_id == -1  # the window is full
            await api.ack(batch.batch_id)

    async def test_a_newer_stream_ends_an_older_one(self, api: Api) -> None:
        async with streaming(api) as older, streaming(api) as newer:
            assert older.headers["Sluice-Session"] != newer.headers["Sluice-Session"]
            async with asyncio.timeout(5):
                assert await older.content.read() == b""
            api.source.put()
            assert numbers(await next_batch(newer)) == [0]

    async def test_in_ndjson_the_last_line_says_why_it_ended(self, api: Api) -> None:
        async with streaming(api, headers=NDJSON) as response:
            api.source.put()
            change, batch = [json.loads(await response.content.readline()) for _ in range(2)]
            assert change["id"] == batch["batchId"]
            await api.embedded.stop("example")
            last = json.loads(await response.content.readline())
            assert last["problem"]["type"] == "destination-stopped"
            assert await response.content.read() == b""

    async def test_a_client_that_goes_away_ends_its_stream(self, api: Api) -> None:
        async with streaming(api):
            assert api.waiting() == 1
        await eventually(lambda: not api.waiting())

    async def test_json_cannot_be_streamed(self, api: Api) -> None:
        headers = {"Accept": "application/json"}
        assert await api.problem("GET", f"{CLIENT}/stream", 406, headers=headers) == "not-acceptable"

    async def test_a_large_batch_arrives_whole(self, api: Api) -> None:
        for _ in range(8):
            api.source.put(size=MEGABYTE // 2)
        async with streaming(api, maxEntries=8) as response:
            assert numbers(await next_batch(response)) == list(range(8))


class TestProblems:
    @pytest.mark.parametrize(
        ("method", "path", "options", "status", "kind"),
        [
            ("POST", "nowhere/clients/1/subscribe", {}, 404, "unknown-destination"),
            ("GET", "nowhere", {}, 404, "unknown-destination"),
            ("GET", "nowhere/quarantine", {}, 404, "unknown-destination"),
            ("GET", "nowhere/tables/shop.goods", {}, 404, "unknown-destination"),
            ("GET", "example/tables/shop.a%2Fb", {}, 404, "unknown-table"),
            ("GET", "example/tables/goods", {}, 422, "bad-parameter"),
            ("POST", "example/clients/7/getWithoutAck", {}, 409, "not-subscribed"),
            ("GET", "example/clients/7", {}, 409, "not-subscribed"),
            ("GET", "example/clients/7/stream", {}, 409, "not-subscribed"),
            ("POST", "example/clients/1001/ack", {"json": {"batchId": 5}}, 409, "unknown-batch"),
            ("POST", "example/clients/1001/rollback", {"json": {"batchId": 5}}, 409, "unknown-batch"),
            ("POST", "example/clients/1001/ack", {"json": {}}, 422, "bad-parameter"),
            ("POST", "example/clients/1001/ack", {"json": {"batchId": 5, "position": "x"}}, 422, "bad-parameter"),
            ("POST", "example/clients/1001/ack", {"json": {"position": "nonsense"}}, 422, "bad-position"),
            ("POST", "example/clients/70000/subscribe", {}, 422, "bad-parameter"),
            ("POST", "example/clients/2/subscribe", {"json": {"start": "nonsense"}}, 422, "bad-position"),
            ("POST", "example/clients/2/subscribe", {"json": {"from": "latest"}}, 422, "bad-parameter"),
            ("POST", "example/clients/2/subscribe", {"json": {"filter": "("}}, 409, "filter-matches-nothing"),
            ("POST", "example/clients/1001/getWithoutAck?batchSize=0", {}, 422, "bad-parameter"),
            ("POST", "example/clients/1001/getWithoutAck?maxEntry=5", {}, 422, "bad-parameter"),
        ],
    )
    async def test_each_has_its_status_and_type(
        self, api: Api, method: str, path: str, options: dict[str, Any], status: int, kind: str
    ) -> None:
        assert await api.problem(method, f"/v1/destinations/{path}", status, **options) == kind

    async def test_a_bad_parameter_is_named(self, api: Api) -> None:
        response = await api.post("getWithoutAck?maxBytes=many", status=422)
        assert response.json()["parameter"] == "maxBytes"

    async def test_acks_out_of_order_change_nothing(self, api: Api) -> None:
        api.source.put(2)
        first, second = await api.get(maxEntries=1), await api.get(maxEntries=1)
        body = {"batchId": second.batch_id}
        assert await api.problem("POST", f"{CLIENT}/ack", 409, json=body) == "ack-out-of-order"
        assert await api.marks() == [first.batch_id, second.batch_id]

    async def test_a_stopped_destination_says_so_to_who_waits(self, api: Api) -> None:
        waiting = asyncio.create_task(api.problem("POST", f"{CLIENT}/getWithoutAck?timeout=30000", 503))
        await eventually(lambda: api.waiting() == 1)
        await api.call("POST", "/v1/destinations/example/stop")
        async with asyncio.timeout(5):
            assert await waiting == "destination-stopped"

    async def test_an_error_that_nobody_foresaw_is_a_problem_without_details(
        self, api: Api, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: Any) -> None:
            raise ZeroDivisionError("inner workings")

        monkeypatch.setattr(api.embedded, "destination_status", fail)
        response = await api.call("GET", "/v1/destinations/example", status=500)
        assert response.json()["type"] == "internal"
        assert "inner workings" not in response.text()


class TestSessions:
    async def test_a_newer_session_fences_the_older(self, api: Api) -> None:
        api.source.put(2)
        older = {"Sluice-Session": ((await api.post("session")).json())["session"]}
        await api.post("getWithoutAck?maxEntries=1", headers=older)
        newer = {"Sluice-Session": (await api.post("session")).headers["Sluice-Session"]}
        body = {"batchId": (await api.marks())[0]}
        assert await api.problem("POST", f"{CLIENT}/ack", 409, json=body, headers=older) == "stale-session"
        await api.post("ack", json=body, headers=newer, status=204)

    async def test_who_waits_with_an_older_session_is_told(self, api: Api) -> None:
        older = {"Sluice-Session": ((await api.post("session")).json())["session"]}
        waiting = asyncio.create_task(api.problem("POST", f"{CLIENT}/getWithoutAck?timeout=30000", 409, headers=older))
        await eventually(lambda: api.waiting() == 1)
        await api.post("session")
        async with asyncio.timeout(5):
            assert await waiting == "stale-session"


class TestSubscriptions:
    async def test_the_status_tells_where_a_client_stands(self, api: Api) -> None:
        api.source.put(3)
        batch = await api.get(maxEntries=1)
        await api.ack(batch.batch_id)
        await api.get(maxEntries=1)
        status = (await api.call("GET", CLIENT)).json()
        assert status["acked"] == "101/bin.000001@1700000000:104:0"
        assert status["got"] == "101/bin.000001@1700000000:204:0"
        assert status["position"] == "101/bin.000001@1700000000:104:0"
        assert len(status["marks"]) == 1
        assert (status["lag"]["entries"], status["lag"]["rows"]) == (2, 2)
        assert status["lag"]["bytes"] > 0
        assert 0 <= status["lag"]["seconds"] < 60

    async def test_a_filter_narrows_what_a_client_gets(self, api: Api) -> None:
        await api.post("subscribe", json={"filter": "shop\\.orders"})
        api.source.put()
        assert (await api.get()).batch_id == -1

    async def test_who_unsubscribes_has_to_subscribe_anew(self, api: Api) -> None:
        await api.post("unsubscribe", status=204)
        assert await api.problem("POST", f"{CLIENT}/getWithoutAck", 409) == "not-subscribed"

    async def test_latest_starts_after_what_is_there(self, api: Api) -> None:
        api.source.put(2)
        path = "/v1/destinations/example/clients/2"
        await api.call("POST", f"{path}/subscribe", json={"start": "latest"})
        api.source.put()
        response = await api.call("POST", f"{path}/getWithoutAck?timeout=5000", headers=PROTOBUF)
        assert numbers(Messages.FromString(response.body)) == [2]


class TestDestinations:
    async def test_they_are_listed(self, api: Api) -> None:
        listed = (await api.call("GET", "/v1/destinations")).json()
        assert [(it["destination"], it["state"]) for it in listed] == [("example", "running"), ("other", "running")]
        assert listed[0]["clients"][0]["clientId"] == 1001

    async def test_they_are_stopped_and_started(self, api: Api) -> None:
        assert ((await api.call("POST", "/v1/destinations/other/stop")).json())["state"] == "stopped"
        assert await api.problem("POST", "/v1/destinations/other/clients/1/subscribe", 503) == "destination-stopped"
        started = (await api.call("POST", "/v1/destinations/other/start")).json()
        assert started["state"] in {"starting", "running"}

    async def test_the_ring_and_the_time_zone_of_values_are_told(self, api: Api) -> None:
        found = (await api.call("GET", "/v1/destinations/example")).json()
        assert found["capacity"] == 16384 * 1024
        assert found["timeZone"] == local_time_zone()

    async def test_the_end_of_the_source_is_told(self, api: Api) -> None:
        api.source.put(3)
        found = (await api.call("GET", "/v1/destinations/example/latest")).json()
        assert found == {"position": "101/bin.000001@1700000000:304:0"}

    async def test_the_columns_of_a_table_are_told(self, api: Api) -> None:
        assert (await api.call("GET", "/v1/destinations/example/tables/shop.goods")).json() == {
            "schema": "shop",
            "table": "goods",
            "columns": [
                {"name": "id", "mysqlType": "bigint(20) unsigned", "isKey": True},
                {"name": "name", "mysqlType": "varchar(20)", "isKey": False},
            ],
        }

    async def test_the_tables_are_told(self, api: Api) -> None:
        call = "/v1/destinations/example/tables"
        assert (await api.call("GET", call)).json() == {"tables": ["crm.notes", "shop.goods", "shop.orders"]}
        assert (await api.call("GET", call + "?filter=.*[.]notes,SHOP[.]g.*")).json() == {
            "tables": ["crm.notes", "shop.goods"]
        }
        assert (await api.call("GET", call + "?filter=(", status=409)).json()["type"] == "filter-matches-nothing"

    async def test_row_events_in_quarantine_are_listed(self, api: Api, tmp_path: Path) -> None:
        assert (await api.call("GET", "/v1/destinations/example/quarantine")).json() == []
        quarantine = Quarantine(path_of(tmp_path / "data", "example"))
        position = "101/bin.000001@1700000000:4:2"
        quarantine.add(Item(position, "shop", "goods", 30, 1_700_000_000, 101, 64, "a row ends too early", "00"))
        quarantine.sync()
        (listed,) = (await api.call("GET", "/v1/destinations/example/quarantine")).json()
        assert (listed["position"], listed["schema"], listed["table"]) == (position, "shop", "goods")
        assert listed["error"] == "a row ends too early"

    async def test_the_process_is_alive_and_ready(self, api: Api) -> None:
        assert ((await api.call("GET", "/healthz")).json())["status"] == "ok"
        ready = (await api.call("GET", "/readyz")).json()
        assert ready == {"status": "ok", "destinations": {"running": 2}}

    async def test_every_call_is_described(self, api: Api) -> None:
        paths = ((await api.call("GET", "/openapi.json")).json())["paths"]
        operations = [operation for path in paths.values() for operation in path.values()]
        assert len(operations) >= 16
        assert all(operation["summary"] and operation["tags"] for operation in operations)
        get = paths["/v1/destinations/{destination}/clients/{client_id}/getWithoutAck"]["post"]
        assert set(get["responses"]["200"]["content"]) == set(formats.SINGLE)
        assert all(parameter["description"] for parameter in get["parameters"])

    async def test_the_page_of_the_calls_loads_nothing_from_elsewhere(self, api: Api) -> None:
        page = await api.call("GET", "/docs")
        assert page.content_type == "text/html"
        assert "//" not in re.sub("<!--.*?-->", "", page.text())
        loaded = re.findall(r"""(?:src|href|url)(?:=|: *)["']([^"']+)["']""", page.text())
        assert {"docs/assets/swagger-ui-bundle.js", "docs/assets/swagger-ui.css", "openapi.json"} <= set(loaded)
        for url in loaded:
            if url != "data:,":
                assert len((await api.call("GET", f"/{url}")).body) > 1000
        policy = dict(part.strip().split(" ", 1) for part in page.headers["Content-Security-Policy"].split(";"))
        assert policy["default-src"] == "'none'"
        assert {source for part in policy.values() for source in part.split()} <= {
            *("'none'", "'self'", "data:", "'unsafe-inline'"),
            *re.findall("'sha256-[^']+'", policy["script-src"]),
        }
        (script,) = re.findall("<script>(.*?)</script>", page.text(), re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert policy["script-src"] == f"'self' 'sha256-{digest}'"


class TestMetrics:
    async def test_canals_names_and_ours_are_there(self, api: Api) -> None:
        api.source.put(2)
        await api.get(maxEntries=1)
        await api.get(maxEntries=1)
        await api.get()
        text = (await api.call("GET", "/metrics")).text()
        samples = {
            (sample.name, *(value for label, value in sample.labels.items() if label != "destination")): sample.value
            for family in parse_text(text)
            for sample in family.samples
            if sample.labels.get("destination") == "example"
        }
        assert samples["canal_instance_subscriptions",] == 1
        assert samples["canal_instance_client_packets", "GET"] == 2
        assert samples["canal_instance_client_packets", "SUBSCRIPTION"] == 1
        assert samples["canal_instance_client_empty_batches",] == 1
        assert samples["canal_instance_get_rows",] == 2
        assert samples["canal_instance_put_rows",] == 2
        assert samples["canal_instance_ack_rows",] == 0
        assert samples["canal_instance_store_produce_seq",] == 1
        assert samples["canal_instance_store_consume_seq",] == -1
        assert samples["canal_instance_store_produce_mem",] == samples["canal_instance_client_bytes",] > 0
        assert samples["canal_instance_store_consume_mem",] == 0
        assert samples["canal_instance_traffic_delay",] == 0
        assert 0 <= samples["canal_instance_put_delay",] <= samples["canal_instance_get_delay",] < 60_000
        assert ("canal_instance_ack_delay",) not in samples
        assert samples["canal_instance_transactions",] == 0
        assert samples["canal_instance_sink_blocking_time",] == 0
        assert samples["canal_instance_received_binlog_bytes", "0"] == 0
        assert samples["sluice_destination_state", "running"] == 1
        assert samples["sluice_destination_state", "error"] == 0
        assert samples["sluice_client_lag_transactions", "1001", "given"] == 2
        assert samples["sluice_client_lag_transactions", "1001", "waiting"] == 0
        assert samples["sluice_client_lag_bytes", "1001", "given"] > 0
        assert samples["sluice_client_outstanding_batches", "1001"] == 2
        assert samples["sluice_client_rows_total", "1001"] == 2

    async def test_what_is_acked_is_counted_as_freed(self, api: Api) -> None:
        api.source.put(2)
        await api.ack((await api.get()).batch_id)
        text = (await api.call("GET", "/metrics")).text()
        assert 'canal_instance_ack_rows{destination="example"} 2.0' in text
        assert 'canal_instance_ack_delay{destination="example"}' in text
        assert 'sluice_ring_fill{destination="example"} 0.0' in text

    async def test_the_page_of_metrics_names_them_all(self, api: Api) -> None:
        page = (Path(__file__).parents[2] / "docs/metrics.md").read_text()
        described = set(re.findall(r"^\| `(sluice_\w+|canal_\w+)`(?:, `(\w+)`)?", page, re.MULTILINE))
        text = (await api.call("GET", "/metrics")).text()
        exposed = set(re.findall(r"^# TYPE ((?:sluice|canal)_\w+)", text, re.MULTILINE))
        names = {name for pair in described for name in pair if name}
        assert names == {name for name in exposed if not name.endswith("_created")}

    async def test_openmetrics_is_valid(self, api: Api) -> None:
        api.source.put()
        await api.get()
        response = await api.call("GET", "/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
        found = parse_openmetrics(response.text())  # type: ignore[no-untyped-call]
        families = {family.name for family in found}
        assert "sluice_http_request_duration_seconds" in families


class TestCredentials:
    @pytest.fixture
    async def guarded(self, tmp_path: Path) -> AsyncIterator[Api]:
        credentials = Credentials(tmp_path / "credentials.json")
        credentials.set_password("ops", "correct horse", Grant(scope=Scope.ADMIN))
        token = credentials.issue("spark", Grant(destinations=("example",))).text
        async with running(tmp_path) as api:
            api.headers = {"Authorization": f"Bearer {token}"}
            yield api

    async def test_without_a_token_nothing_but_health_is_answered(self, guarded: Api) -> None:
        guarded.headers = {}
        for path in ("/v1/destinations", "/v1/destinations/example", CLIENT, "/metrics"):
            response = await guarded.call("GET", path, status=401)
            assert response.headers["WWW-Authenticate"].startswith("Bearer")
        await guarded.call("GET", "/healthz")
        await guarded.call("GET", "/readyz")

    async def test_a_wrong_token_is_refused(self, guarded: Api) -> None:
        guarded.headers = {"Authorization": "Bearer sluice_0_0"}
        assert await guarded.problem("GET", "/v1/destinations", 401) == "unauthorized"

    async def test_a_token_reaches_its_destinations_only(self, guarded: Api) -> None:
        await guarded.post("subscribe")
        assert await guarded.problem("POST", "/v1/destinations/other/clients/1/subscribe", 403) == "forbidden"
        listed = (await guarded.call("GET", "/v1/destinations")).json()
        assert [it["destination"] for it in listed] == ["example"]

    async def test_a_reader_does_not_administer(self, guarded: Api) -> None:
        assert await guarded.problem("POST", "/v1/destinations/example/stop", 403) == "forbidden"

    async def test_a_password_buys_a_token(self, guarded: Api) -> None:
        guarded.headers = {}
        login = {"user": "ops", "password": "correct horse"}
        bought = (await guarded.call("POST", "/v1/tokens", json=login, status=201)).json()
        guarded.headers = {"Authorization": f"Bearer {bought['token']}"}
        await guarded.call("POST", "/v1/destinations/other/stop")
        assert bought["scope"] == "admin"

    async def test_a_wrong_password_buys_nothing(self, guarded: Api) -> None:
        guarded.headers = {}
        login = {"user": "ops", "password": "wrong-horse"}
        assert await guarded.problem("POST", "/v1/tokens", 401, json=login) == "unauthorized"

    async def test_tokens_and_passwords_are_not_logged(self, guarded: Api, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level("DEBUG")
        await guarded.post("subscribe")
        login = {"user": "ops", "password": "wrong-horse"}
        await guarded.problem("POST", "/v1/tokens", 401, json=login)
        await guarded.problem("POST", "/v1/tokens", 422, json=login | {"lifetime": "wrong-horse"})
        assert "/v1/tokens" in caplog.text
        assert "wrong-horse" not in caplog.text
        assert guarded.headers["Authorization"].split("_", 2)[2] not in caplog.text

    async def test_a_name_that_was_rebound_to_loopback_is_refused(self, api: Api) -> None:
        headers = {"Host": "attacker.example"}
        assert await api.problem("GET", "/v1/destinations", 403, headers=headers) == "forbidden"

    async def test_beyond_loopback_the_server_refuses_to_start(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="Refusing to listen"):
            async with running(tmp_path, http_host="0.0.0.0"):
                pytest.fail("it listens")


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """Files of a certificate for 127.0.0.1 and of its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    paths = tmp_path / "server.pem", tmp_path / "server.key"
    paths[0].write_bytes(made.public_bytes(Encoding.PEM))
    paths[1].write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return paths


class TestTls:
    async def test_large_batches_arrive_whole_over_a_verified_connection(
        self, tmp_path: Path, certificate: tuple[Path, Path]
    ) -> None:
        trusted = ssl.create_default_context(cafile=str(certificate[0]))
        async with running(tmp_path, http_tls_cert=certificate[0], http_tls_key=certificate[1]) as api:
            assert api.base.startswith("https://127.0.0.1:")
            await api.post("subscribe", ssl=trusted)
            for _ in range(8):
                api.source.put(size=MEGABYTE // 2)
            response = await api.post("getWithoutAck?maxEntries=8", headers=PROTOBUF, ssl=trusted)
            assert numbers(Messages.FromString(response.body)) == list(range(8))

    async def test_with_tls_and_a_token_the_server_listens_everywhere(
        self, tmp_path: Path, certificate: tuple[Path, Path]
    ) -> None:
        token = Credentials(tmp_path / "credentials.json").issue("spark", Grant()).text
        tls = {"http_tls_cert": certificate[0], "http_tls_key": certificate[1]}
        async with running(tmp_path, http_host="0.0.0.0", **tls) as api:
            api.base = api.base.replace("0.0.0.0", "127.0.0.1")
            assert await api.problem("GET", "/v1/destinations", 401) == "unauthorized"
            api.headers = {"Authorization": f"Bearer {token}"}
            await api.post("subscribe")


class TestStop:
    async def test_sigterm_answers_who_waits_ends_streams_and_saves_cursors(self, tmp_path: Path) -> None:
        async with running(tmp_path) as api:
            await api.post("subscribe")
            api.source.put(2)
            await api.ack((await api.get(maxEntries=1)).batch_id)
            async with streaming(api) as response:
                assert numbers(await next_batch(response)) == [1]
                await api.call("POST", "/v1/destinations/other/clients/1/subscribe")
                path = "/v1/destinations/other/clients/1/getWithoutAck?timeout=60000"
                waiting = asyncio.create_task(api.call("POST", path))
                await eventually(lambda: api.waiting() == 2)
                begin = time.monotonic()
                os.kill(os.getpid(), signal.SIGTERM)
                async with asyncio.timeout(5):
                    assert ((await waiting).json())["batchId"] == -1
                    assert await response.content.read() == b""
                    await api.serving
            assert time.monotonic() - begin < 5
        async with running(tmp_path) as api:
            status = (await api.call("GET", CLIENT)).json()
            assert status["position"] == "101/bin.000001@1700000000:104:0"
            assert api.source.count == 1  # the stream begins where the client stands

    async def test_a_reader_that_takes_nothing_does_not_hold_it_up(self, tmp_path: Path) -> None:
        async with running(tmp_path) as api:
            await api.post("subscribe")
            await TestSlowReader.fill(api)
            sock, _loop = await TestSlowReader.ask(api)
            with sock:
                os.kill(os.getpid(), signal.SIGTERM)
                async with asyncio.timeout(5):
                    await api.serving


async def test_range_in_every_format(tmp_path: Path) -> None:
    async with running(tmp_path) as api:
        await api.post("subscribe")
        api.source.put(3)
        query = {"after": "101/bin.000001@1700000000:4:0", "timeout": "5000"}
        marked = (await api.post("position", params=query)).json()
        assert marked["rows"] == 3
        between = {"from": marked["from"], "to": marked["to"]}
        answer = await api.call("GET", f"{CLIENT}/rows", params=between, headers=PROTOBUF)
        messages = Messages.FromString(answer.body)
        assert numbers(messages) == [0, 1, 2]
        assert list(messages.positions) == [4, 0, 104, 0, 204, 0]
        assert (answer.headers["Sluice-From"], answer.headers["Sluice-To"]) == (marked["from"], marked["to"])
        body = (await api.call("GET", f"{CLIENT}/rows", params=between)).json()
        assert [it["data"][0]["id"] for it in body["entries"]] == ["0", "1", "2"]
        lines = (await api.call("GET", f"{CLIENT}/rows", params=between, headers=NDJSON)).text().splitlines()
        assert json.loads(lines[-1]) == {"batchId": 0, **between}
        await api.post("ack", json={"position": marked["to"]}, status=204)
        assert await api.marks() == []


async def test_position_without_changes_answers_after_its_timeout(tmp_path: Path) -> None:
    async with running(tmp_path) as api:
        await api.post("subscribe")
        after = "101/bin.000001@1700000000:4:0"
        found = (await api.post("position", params={"after": after, "timeout": "50"})).json()
        assert (found["batchId"], found["from"], found["to"], found["reached"]) == (-1, after, after, True)


async def test_range_of_a_stale_session_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as api:
        await api.post("subscribe")
        old, _new = [(await api.post("session")).json()["session"] for _ in range(2)]
        query = {"after": "101/bin.000001@1700000000:4:0"}
        headers = {"Sluice-Session": old}
        assert await api.problem("POST", f"{CLIENT}/position", 409, params=query, headers=headers) == "stale-session"
