"""Bytes become packets, and bytes that are not a packet do no harm."""

import asyncio
import random
from pathlib import Path

import pytest

from sluice.protocol.canal.packet_pb2 import Ack, ClientAuth, Get, Packet, Sub
from tests.canal import CanalClient, frames
from tests.integration.tcp.served import Canal, refused, running
from tests.source import numbers
from tests.waiting import soon


class TestFrames:
    async def test_before_the_login_16_kib_are_the_limit(self, canal: Canal) -> None:
        client = await canal.connect(login=False)
        packet = Packet(
            type=Packet.CLIENTAUTHENTICATION, body=ClientAuth(username="x" * 16_350).SerializeToString()
        ).SerializeToString()
        assert 16_350 < len(packet) <= 16_384
        client.write(frames([packet])[0])
        await client.acknowledged()
        other = await canal.connect(login=False)
        other.write(b"\0\0\x40\x01")
        assert await other.closed()

    async def test_after_the_login_the_limit_is_the_configured_one(self, tmp_path: Path) -> None:
        async with running(tmp_path, max_frame=100_000) as canal:
            client = await canal.connect()
            packet = Packet(type=Packet.DUMP, body=b"x" * 99_000).SerializeToString()
            client.write(frames([packet])[0])
            assert await refused(client) == (400, "packet type: DUMP is NOT supported!")
            client.write((100_001).to_bytes(4, "big"))
            assert await client.closed()

    @pytest.mark.parametrize("data", [b"\xff\xff\xff\xff", b"\0\0\0\x03\xff\xff\xff", b"GET / HTTP/1.1\r\n\r\n"])
    async def test_bytes_that_are_not_a_packet_close_the_connection(self, client: CanalClient, data: bytes) -> None:
        client.write(data)
        assert await client.closed()

    async def test_a_client_that_dies_in_mid_frame_does_not_disturb_others(
        self, canal: Canal, client: CanalClient
    ) -> None:
        dying = await canal.connect()
        await dying.subscribe()
        canal.source.put(2)
        packet = Packet(type=Packet.GET, body=Get(destination="example", client_id="1001").SerializeToString())
        dying.write(frames([packet.SerializeToString()])[0][:9])
        dying.cut()
        await soon(lambda: "sluice_tcp_connections 1.0" in canal.page())
        assert numbers(await client.get()) == [0, 1]

    async def test_frames_that_come_byte_by_byte_are_understood(self, canal: Canal, client: CanalClient) -> None:
        canal.source.put()
        body = Get(destination="example", client_id="1001", timeout=-1).SerializeToString()
        for byte in frames([Packet(type=Packet.GET, body=body).SerializeToString()])[0]:
            client.write(bytes([byte]))
            await asyncio.sleep(0.001)
        assert numbers(await client.batch()) == [0]

    async def test_many_requests_in_one_piece_are_answered_in_their_order(
        self, canal: Canal, client: CanalClient
    ) -> None:
        canal.source.put(3)
        get = Get(destination="example", client_id="1001", fetch_size=1, timeout=-1)
        sub = Sub(destination="example", client_id="8")
        client.send(get, sub, get)
        assert numbers(await client.batch()) == [0, 1, 2]  # 1 KiB
        await client.acknowledged()
        assert (await client.batch()).batch_id == -1


class TestOddClients:
    @pytest.mark.parametrize("seed", range(3))
    async def test_requests_in_any_order_are_answered_in_order(self, canal: Canal, seed: int) -> None:
        """Two connections of one client do what they like; each question gets an answer of its kind."""
        chance = random.Random(seed)
        clients = [await canal.connect() for _ in range(2)]
        for _ in range(150):
            client = chance.choice(clients)
            batch_id = chance.choice([-1, 0, 1, *canal.all_marks()])
            match chance.randrange(7):
                case 0:
                    await client.subscribe(chance.choice(["", r"shop\..*"]))
                case 1 if chance.random() < 0.3:
                    await client.unsubscribe()
                case 2:
                    client.ack(batch_id)
                case 3:
                    client.rollback(batch_id)
                case 4:
                    canal.source.put(chance.randrange(3))
                case _:
                    client.ask(timeout=chance.choice([-1, 1]))
                    while (packet := await client.receive()).type == Packet.ACK:  # the errors of acks before
                        if "should subscribe first" in Ack.FromString(packet.body).error_message:
                            await self.settle(client)
                            break
            await self.settle(client)
        for client in clients:
            await client.subscribe()
            client.rollback()
            canal.source.put()
            assert numbers(await client.get())[-1] == canal.source.count - 1

    async def settle(self, client: CanalClient) -> None:
        """Read the errors of acks and rollbacks: what was sent before a request is answered before it."""
        client.send(Sub(destination="example", client_id="2"))
        while Ack.FromString((await client.receive()).body).error_code:
            pass

    async def test_no_bytes_harm_the_others(self, canal: Canal, client: CanalClient) -> None:
        chance = random.Random(1)
        for number in range(200):
            odd = await canal.connect(login=chance.random() < 0.7)
            body = chance.randbytes(chance.randrange(40))
            packet = Packet(type=chance.choice(list(Packet.PacketType.values())), body=body)
            frame = chance.choice([chance.randbytes(30), packet.SerializeToString(), b""])
            odd.write(chance.choice([frame, *frames([frame])]))
            if number % 3:
                odd.cut()
        canal.source.put()
        assert numbers(await client.get()) == [0]
