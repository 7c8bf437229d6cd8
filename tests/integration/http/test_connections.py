"""Readers that are slow or go away, and the stop of the server, cost other clients nothing."""

import asyncio
import contextlib
import hashlib
import os
import signal
import socket
import time
from pathlib import Path

import pytest

from sluice.server import network
from tests.integration.http.served import CLIENT, MEGABYTE, Api, next_batch, running, streaming
from tests.source import numbers
from tests.waiting import soon


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
        await soon(lambda: api.embedded.status("example", 1001).marks)
        return sock, loop

    @staticmethod
    async def rest(sock: socket.socket) -> int:
        """Take what comes until the connection ends; return how many bytes."""
        size = 0
        with contextlib.suppress(ConnectionResetError):
            while piece := await asyncio.get_running_loop().sock_recv(sock, 1 << 16):
                size += len(piece)
        return size

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
        await soon(lambda: not pool.pinned)

    async def test_the_memory_of_one_that_goes_away_is_released(self, api: Api) -> None:
        await self.fill(api)
        pool = api.source.ring.pool
        sock, _loop = await self.ask(api)
        await api.ack((await api.marks())[0])
        assert pool.pinned > 0
        sock.close()
        await soon(lambda: not api.waiting())
        assert pool.pinned == 0

    async def test_one_that_takes_nothing_for_too_long_is_cut_off(
        self, api: Api, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(network, "STALLED", 0.2)
        await self.fill(api)
        pool = api.source.ring.pool
        sock, _loop = await self.ask(api)
        with sock:
            await api.ack((await api.marks())[0])
            await soon(lambda: not pool.pinned)
            assert await self.rest(sock) < 8 * MEGABYTE


class TestStop:
    async def test_sigterm_answers_waiting_calls_ends_streams_and_saves_cursors(self, tmp_path: Path) -> None:
        async with running(tmp_path) as api:
            await api.post("subscribe")
            api.source.put(2)
            await api.ack((await api.get(maxEntries=1)).batch_id)
            async with streaming(api) as response:
                assert numbers(await next_batch(response)) == [1]
                await api.call("POST", "/v1/destinations/other/clients/1/subscribe")
                path = "/v1/destinations/other/clients/1/getWithoutAck?timeout=60000"
                waiting = asyncio.create_task(api.call("POST", path))
                await soon(lambda: api.waiting() == 2)
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
                assert await TestSlowReader.rest(sock) < 8 * MEGABYTE


class TestUpgrade:
    """A client may ask for another protocol, as Java's does for HTTP/2; it is answered in HTTP/1.1."""

    @pytest.mark.parametrize("apart", [False, True], ids=["in one piece", "header and body apart"])
    @pytest.mark.parametrize(
        ("framing", "body"),
        [
            ("Content-Length: 13", '{"batchId":7}'),
            ("Transfer-Encoding: chunked", '5\r\n{"bat\r\n8\r\nchId":7}\r\n0\r\n\r\n'),
        ],
        ids=["length", "chunks"],
    )
    async def test_the_body_of_its_request_counts(self, api: Api, framing: str, body: str, apart: bool) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(api.base.rpartition(":")[2]))
        header = (
            f"POST {CLIENT}/ack HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\n{framing}\r\nHost: localhost\r\n"
            "HTTP2-Settings: AAEAAEAAAAIAAAAB\r\nUpgrade: h2c\r\nContent-Type: application/json\r\n\r\n"
        )
        writer.write(header.encode())
        if apart:
            await asyncio.sleep(0.1)
        writer.write(body.encode())
        async with asyncio.timeout(10):
            answer = (await reader.read()).decode()
        writer.close()
        assert answer.startswith("HTTP/1.1 409 ")
        assert '"type": "unknown-batch"' in answer
