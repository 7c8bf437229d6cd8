"""A get that waits does not hold up others, and the next caller ends it."""

import asyncio
import threading

import pytest

from sluice.protocol.canal.packet_pb2 import ClientAck, Get, Sub
from sluice.protocol.errors import StaleSessionError
from tests.canal import CanalClient
from tests.integration.tcp.served import Canal, refused, silent
from tests.source import numbers
from tests.waiting import soon


class TestWaiting:
    async def test_a_get_that_waits_holds_up_neither_others_nor_a_rollback(
        self, canal: Canal, client: CanalClient
    ) -> None:
        canal.source.put()
        first = await client.get()
        client.ask(timeout=0)
        await soon(canal.waiting)
        other = await canal.connect()
        other.client_id = "2"
        await other.subscribe()
        assert numbers(await other.get(timeout=0)) == [0]
        client.rollback()  # on the connection of the get
        second = await client.batch()
        assert numbers(second) == [0]
        assert second.batch_id > first.batch_id

    async def test_an_ack_goes_past_a_get_that_waits(self, canal: Canal, client: CanalClient) -> None:
        canal.source.put()
        batch = await client.get()
        client.ask(timeout=0)
        await soon(canal.waiting)
        client.ack(batch.batch_id)
        await soon(lambda: not canal.marks())
        await silent(client)
        canal.source.put()
        assert numbers(await client.batch()) == [1]

    async def test_an_ack_that_came_together_with_a_get_goes_past_it(self, canal: Canal, client: CanalClient) -> None:
        canal.source.put()
        batch = await client.get()
        get = Get(destination="example", client_id="1001", timeout=0)
        client.send(get, ClientAck(destination="example", client_id="1001", batch_id=batch.batch_id))
        await soon(lambda: not canal.marks())
        await silent(client)
        canal.source.put()
        assert numbers(await client.batch()) == [1]

    async def test_many_acks_at_once_do_not_delay_others(self, canal: Canal, client: CanalClient) -> None:
        other = await canal.connect()
        client.send(*[ClientAck(destination="example", client_id="1001", batch_id=-1)] * 20_000)
        assert (await other.get()).batch_id == -1
        canal.source.put()
        assert numbers(await client.get()) == [0]

    async def test_the_refusal_of_an_ack_comes_after_the_answer_of_the_get(
        self, canal: Canal, client: CanalClient
    ) -> None:
        client.ask(timeout=0)
        await soon(canal.waiting)
        client.ack(999)
        client.send(Sub(destination="example", client_id="8"))
        client.ack(998)
        await silent(client)
        canal.source.put()
        assert numbers(await client.batch()) == [0]
        assert "batchId:999" in (await refused(client))[1]
        await client.acknowledged()
        assert "batchId:998" in (await refused(client))[1]

    async def test_rubbish_after_a_get_that_waits_closes_the_connection(
        self, canal: Canal, client: CanalClient
    ) -> None:
        client.ask(timeout=0)
        await soon(canal.waiting)
        client.write(b"\xff\xff\xff\xff")
        assert await client.closed()
        canal.source.put()
        assert canal.marks() == []

    async def test_a_client_that_goes_away_while_it_waits_takes_no_batch(
        self, canal: Canal, client: CanalClient
    ) -> None:
        going = await canal.connect()
        going.ask(timeout=0)
        await soon(canal.waiting)
        going.cut()
        await soon(lambda: not canal.waiting())
        canal.source.put()
        assert canal.marks() == []
        assert numbers(await client.get()) == [0]

    async def test_an_ack_counts_though_the_client_goes_at_once(self, canal: Canal, client: CanalClient) -> None:
        canal.source.put()
        going = await canal.connect()
        batch = await going.get()
        going.ask(timeout=0)
        going.ack(batch.batch_id)
        going.writer.close()
        await soon(lambda: not canal.marks())
        await soon(lambda: not canal.waiting())
        assert (await client.get()).batch_id == -1

    async def test_a_client_that_begins_again_ends_the_gets_of_older_connections(self, canal: Canal) -> None:
        lost = await canal.connect()
        await lost.subscribe()
        lost.ask(timeout=0)
        await soon(canal.waiting)
        client = await canal.connect()
        await client.subscribe()
        assert (await lost.batch()).batch_id == -1
        lost.ask(timeout=0)
        await soon(canal.waiting)
        client.rollback()
        assert (await lost.batch()).batch_id == -1
        canal.source.put()
        assert numbers(await client.get()) == [0]

    async def test_a_subscription_takes_over_from_a_session_over_http(self, canal: Canal, client: CanalClient) -> None:
        token = canal.embedded.open_session("example", 1001)
        lost = asyncio.create_task(canal.embedded.get_without_ack("example", 1001, timeout=30, session=token))
        await asyncio.sleep(0)
        await client.subscribe()
        with pytest.raises(StaleSessionError):
            await lost
        canal.source.put()
        assert numbers(await client.get()) == [0]

    async def test_a_hundred_clients_wait_at_once_without_a_thread_for_any(self, canal: Canal) -> None:
        threads = threading.active_count()
        clients = []
        for number in range(100):
            client = await canal.connect()
            client.client_id = str(number)
            await client.subscribe()
            client.ask(timeout=0)
            clients.append(client)
        await soon(lambda: canal.waiting() == 100)
        assert threading.active_count() - threads < 8  # those that write cursors to the disk
        canal.source.put()
        for client in clients:
            assert numbers(await client.batch()) == [0]
