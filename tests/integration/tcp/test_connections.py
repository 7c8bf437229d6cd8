"""Idle connections, slow readers, the end of the server, and what is counted."""

import asyncio
import socket
from pathlib import Path

import pytest

from sluice.server import network
from tests.canal import CanalClient
from tests.integration.tcp.served import MEGABYTE, Canal, refused, running
from tests.source import numbers
from tests.waiting import soon


class TestTime:
    @pytest.mark.parametrize("name", ["net_read_timeout", "net_write_timeout"])
    async def test_an_idle_connection_is_closed_without_a_word(self, canal: Canal, name: str) -> None:
        client = await canal.connect(login=False)
        await client.login(**{name: 100})  # type: ignore[arg-type]  # ms
        assert await client.closed()

    async def test_one_that_is_used_lives_on(self, canal: Canal, client: CanalClient) -> None:
        other = await canal.connect(login=False)
        await other.login(net_read_timeout=300, net_write_timeout=300)
        for _ in range(10):
            await asyncio.sleep(0.06)
            assert (await other.get()).batch_id == -1
        assert await other.closed()

    async def test_a_client_that_only_reads_or_only_writes_is_idle(self, canal: Canal, client: CanalClient) -> None:
        other = await canal.connect(login=False)
        await other.login(net_write_timeout=200)
        for _ in range(100):
            if other.writer.is_closing():  # by an end, and the reset that answers the write after it, or by that alone
                break
            other.ack(-1)
            await asyncio.sleep(0.02)
        assert other.writer.is_closing()


class TestSlowReaders:
    async def fill(self, canal: Canal) -> CanalClient:
        """A client that has asked for a batch of 12 MB, and reads nothing of it."""
        canal.source.put(12, size=MEGABYTE)
        sock = socket.create_connection(("127.0.0.1", canal.port))
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 256 * 1024)
        client = CanalClient(*await asyncio.open_connection(sock=sock, limit=4096))
        canal.clients.append(client)
        await client.receive()
        await client.login()
        client.ask(size=16_000)
        await soon(canal.marks)
        return client

    async def test_memory_stays_pinned_until_the_socket_has_it(self, canal: Canal, client: CanalClient) -> None:
        slow = await self.fill(canal)
        client.ack(canal.marks()[0])
        await soon(lambda: not canal.marks())
        pool = canal.source.ring.pool
        assert pool.pinned > 4 * MEGABYTE
        canal.source.put(3, size=MEGABYTE)  # nothing of it may come into what is still to be sent
        assert numbers(await slow.batch()) == list(range(12))
        await soon(lambda: not pool.pinned)

    async def test_the_memory_of_one_that_goes_away_is_released(self, canal: Canal, client: CanalClient) -> None:
        slow = await self.fill(canal)
        client.ack(canal.marks()[0])
        await soon(lambda: canal.source.ring.pool.pinned)
        slow.cut()
        await soon(lambda: "sluice_tcp_connections 1.0" in canal.page())
        assert canal.source.ring.pool.pinned == 0

    async def test_one_that_takes_nothing_for_too_long_is_cut_off(
        self, canal: Canal, client: CanalClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(network, "STALLED", 0.2)
        slow = await self.fill(canal)
        client.ack(canal.marks()[0])
        await soon(lambda: not canal.marks())
        await soon(lambda: not canal.source.ring.pool.pinned)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
            await slow.batch()


class TestEnd:
    async def test_gets_that_wait_end_empty_and_connections_close(self, tmp_path: Path) -> None:
        async with running(tmp_path) as canal:
            client = await canal.connect()
            await client.subscribe()
            client.ask(timeout=0)
            await soon(canal.waiting)
            idle = await canal.connect()
            canal.stopping.announce()
            assert (await client.batch()).batch_id == -1
            assert await client.closed()
            assert await idle.closed()

    async def test_cursors_survive_a_restart_of_the_server(self, tmp_path: Path) -> None:
        async with running(tmp_path) as canal:
            client = await canal.connect()
            await client.subscribe()
            canal.source.put(2)
            client.ack((await client.get()).batch_id)
            canal.source.put()
            lost = await client.get()
            assert numbers(lost) == [2]
        assert await client.closed()
        async with running(tmp_path) as canal:
            client = await canal.connect()
            client.ack(lost.batch_id)  # of an earlier life
            assert f"batchId:{lost.batch_id} is not exist" in (await refused(client))[1]
            canal.source.put()
            assert numbers(await client.get()) == [2]

    async def test_a_slow_reader_does_not_hold_up_the_end(self, tmp_path: Path) -> None:
        async with asyncio.timeout(5), running(tmp_path) as canal:
            client = await canal.connect()
            await client.subscribe()
            slow = await TestSlowReaders().fill(canal)
            canal.clients.remove(slow)  # the end of the server has to cut it
        with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
            await slow.batch()
        slow.cut()


async def test_metrics_count_packets_errors_and_connections(canal: Canal, client: CanalClient) -> None:
    canal.source.put(2)
    batch = await client.get()
    client.ack(batch.batch_id)
    client.ack(999)
    await refused(client)
    assert (await client.get()).batch_id == -1
    page = canal.page()
    for line in (
        'canal_instance_client_packets{destination="example",packetType="SUBSCRIPTION"} 1.0',
        'canal_instance_client_packets{destination="example",packetType="GET"} 1.0',
        'canal_instance_client_packets{destination="example",packetType="CLIENTACK"} 2.0',
        'canal_instance_client_empty_batches{destination="example"} 1.0',
        'canal_instance_client_request_error{destination="example",errorCode="400"} 1.0',
        'canal_instance_get_rows{destination="example"} 2.0',
        'sluice_client_rows_total{client="1001",destination="example"} 2.0',
        'sluice_tcp_request_duration_seconds_count{code="0",packet="CLIENTAUTHENTICATION"} 1.0',
        'sluice_tcp_request_duration_seconds_count{code="400",packet="CLIENTACK"} 1.0',
        "sluice_tcp_connections 1.0",
    ):
        assert line in page
