"""Changes are taken, acknowledged and given back as Canal's clients expect it."""

import asyncio
from pathlib import Path

import pytest

from sluice.protocol.canal.packet_pb2 import Get
from tests.canal import CanalClient, CanalError
from tests.integration.tcp.served import MEGABYTE, Canal, refused, running, silent
from tests.source import numbers
from tests.waiting import soon


class TestGet:
    async def test_changes_are_taken_acked_and_not_given_again(self, canal: Canal, client: CanalClient) -> None:
        canal.source.put(3)
        batch = await client.get()
        assert numbers(batch) == [0, 1, 2]
        client.ack(batch.batch_id)
        await silent(client)
        assert canal.marks() == []
        canal.source.put()
        client.rollback()
        assert numbers(await client.get()) == [3]

    async def test_an_empty_batch_has_the_id_minus_one(self, client: CanalClient) -> None:
        client.ask()
        assert await client.reader.readexactly(21) == bytes.fromhex("00000011 1001 1807 2a0b 08ffffffffffffffffff01")

    async def test_a_batch_is_written_as_canal_writes_it(self, canal: Canal, client: CanalClient) -> None:
        canal.source.put()
        client.ask()
        (length,) = (int.from_bytes(await client.reader.readexactly(4), "big"),)
        packet = await client.reader.readexactly(length)
        assert packet[:3] == bytes.fromhex("18072a")
        assert packet[4:5] == b"\x08" or packet[5:6] == b"\x08"

    @pytest.mark.parametrize("fetch_size", [0, -1])
    async def test_a_missing_size_is_a_thousand(self, canal: Canal, client: CanalClient, fetch_size: int) -> None:
        canal.source.put(3, size=400_000)
        assert len((await client.get(size=fetch_size)).messages) == 3

    async def test_the_size_of_a_batch_counts_kib_or_entries(self, tmp_path: Path) -> None:
        async with running(tmp_path, instance={"memory_batch_mode": "ITEMSIZE"}) as canal:
            client = await canal.connect()
            await client.subscribe()
            canal.source.put(5)
            assert numbers(await client.get(size=2)) == [0, 1]
            assert numbers(await client.get(size=2, timeout=0)) == [2, 3]

    @pytest.mark.parametrize(
        ("wait", "unit"), [(20_000_000, 0), (20_000_000, None), (20_000, 1), (20, 2), (20, 7), (20, -1)]
    )
    async def test_a_timeout_ends_an_empty_get(self, client: CanalClient, wait: int, unit: int | None) -> None:
        assert (await client.get(timeout=wait, unit=unit)).batch_id == -1

    @pytest.mark.parametrize(
        ("wait", "unit"),
        [(0, 2), (None, 2), (None, None), (-2, 3), (30, 3), (1, 4), (1, 5), (1, 6), ((1 << 63) - 1, 6)],
    )
    async def test_a_get_that_may_wait_waits_for_the_first_change(
        self, canal: Canal, client: CanalClient, wait: int | None, unit: int | None
    ) -> None:
        client.ask(timeout=wait, unit=unit)
        await soon(canal.waiting)
        await silent(client)
        canal.source.put()
        assert numbers(await client.batch()) == [0]

    async def test_a_full_batch_does_not_wait(self, tmp_path: Path) -> None:
        async with running(tmp_path, linger=60_000) as canal:
            client = await canal.connect()
            await client.subscribe()
            canal.source.put(3, size=1000)
            client.ask(size=4, timeout=60_000)
            await soon(canal.waiting)
            await silent(client)
            canal.source.put(size=2000)
            assert numbers(await client.batch()) == [0, 1, 2, 3]

    async def test_what_is_less_waits_as_long_as_it_may_linger(self, tmp_path: Path) -> None:
        async with running(tmp_path, linger=300) as canal:
            client = await canal.connect()
            await client.subscribe()
            client.ask(timeout=60_000)
            await soon(canal.waiting)
            canal.source.put()
            await silent(client)
            canal.source.put()
            assert numbers(await client.batch()) == [0, 1]

    async def test_canals_way_is_to_wait_for_the_full_batch_or_the_timeout(self, tmp_path: Path) -> None:
        async with running(tmp_path, linger=0, instance={"strict_canal": True}) as canal:
            client = await canal.connect()
            await client.subscribe()
            canal.source.put()
            client.ask(size=1, timeout=0)
            await soon(canal.waiting)
            await silent(client)
            canal.source.put(size=1000)
            assert numbers(await client.batch()) == [0, 1]
            canal.source.put()
            assert numbers(await client.get(size=1, timeout=100)) == [2]
            assert numbers(await client.get()) == []

    async def test_a_full_ring_ends_the_wait_for_a_full_batch(self, tmp_path: Path) -> None:
        settings = {"strict_canal": True, "memory_buffer_size": 4}
        async with running(tmp_path, instance=settings) as canal:
            client = await canal.connect()
            await client.subscribe()
            client.ask(size=1000, timeout=0)
            await soon(canal.waiting)
            putting = asyncio.create_task(asyncio.to_thread(canal.source.put, 6))
            assert numbers(await client.batch()) == [0, 1, 2, 3]
            client.rollback()
            client.ack((await client.get()).batch_id)
            await putting

    async def test_several_batches_may_be_outstanding(self, canal: Canal, client: CanalClient) -> None:
        ids = []
        for number in range(3):
            canal.source.put()
            batch = await client.get()
            assert numbers(batch) == [number]
            ids.append(batch.batch_id)
        assert canal.marks() == ids == sorted(ids)
        for batch_id in ids:
            client.ack(batch_id)
        await soon(lambda: not canal.marks())
        await silent(client)

    async def test_asking_for_an_ack_with_the_get_acks_nothing(self, canal: Canal, client: CanalClient) -> None:
        canal.source.put()
        client.send(Get(destination="example", client_id="1001", fetch_size=1, timeout=-1, auto_ack=True))
        batch = await client.batch()
        assert canal.marks() == [batch.batch_id]

    async def test_batches_of_megabytes_arrive_whole(self, canal: Canal, client: CanalClient) -> None:
        canal.source.put(12, size=MEGABYTE)
        batch = await client.get(size=16_000)
        assert numbers(batch) == list(range(12))
        assert sum(map(len, batch.messages)) > 12 * MEGABYTE


class TestAckAndRollback:
    async def test_an_ack_out_of_order_is_refused_and_changes_nothing(self, canal: Canal, client: CanalClient) -> None:
        canal.source.put()
        first = await client.get()
        canal.source.put()
        second = await client.get()
        client.ack(second.batch_id)
        code, text = await refused(client)
        assert code == 400
        assert text.startswith("something goes wrong with channel: 127.0.0.1:")
        assert f"batchId:{second.batch_id} is not the firstly" in text
        assert canal.marks() == [first.batch_id, second.batch_id]

    async def test_an_unknown_batch_is_refused(self, canal: Canal, client: CanalClient) -> None:
        client.ack(999)
        assert "clientId:1001 batchId:999 is not exist , please check" in (await refused(client))[1]
        client.rollback(999)
        assert "clientId:1001 batchId:999 is not exist , please check" in (await refused(client))[1]

    async def test_the_id_of_an_empty_batch_may_be_acked(self, canal: Canal, client: CanalClient) -> None:
        client.ack((await client.get()).batch_id)
        await silent(client)
        canal.source.put()
        assert numbers(await client.get()) == [0]

    async def test_an_ack_has_to_name_a_batch(self, client: CanalClient) -> None:
        client.ack(0)
        code, text = await refused(client)
        assert code == 402
        assert text.startswith("batchId should assign value. Ack: ")

    async def test_the_refusal_of_an_ack_is_read_as_the_answer_to_the_next_request(
        self, canal: Canal, client: CanalClient
    ) -> None:
        canal.source.put()
        client.ack(999)
        with pytest.raises(CanalError):
            await client.get()
        assert numbers(await client.batch()) == [0]

    async def test_what_is_rolled_back_comes_again_under_another_id(self, canal: Canal, client: CanalClient) -> None:
        canal.source.put(2)
        first = await client.get()
        client.rollback()
        second = await client.get()
        assert numbers(first) == numbers(second) == [0, 1]
        assert second.batch_id > first.batch_id
        assert canal.marks() == [second.batch_id]

    async def test_one_batch_may_be_rolled_back(self, canal: Canal, client: CanalClient) -> None:
        canal.source.put()
        first = await client.get()
        canal.source.put()
        second = await client.get()
        client.rollback(first.batch_id)
        third = await client.get()
        assert numbers(third) == [0, 1]
        assert canal.marks() == [second.batch_id, third.batch_id]
        client.rollback(third.batch_id)
        assert "is not the firstly" in (await refused(client))[1]

    async def test_a_client_that_has_not_subscribed_may_only_roll_back(self, canal: Canal) -> None:
        client = await canal.connect()
        client.rollback()
        client.rollback(5)
        await silent(client)
        client.ack(5)
        assert "ClientIdentity[destination=example,clientId=1001] should subscribe first" in (await refused(client))[1]
        client.ask()
        assert "should subscribe first" in (await refused(client))[1]
