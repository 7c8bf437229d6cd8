"""Subscriptions, and requests that are refused."""

import pytest

from sluice.protocol.canal.packet_pb2 import ClientAck, ClientRollback, Get, Packet, Sub, Unsub
from tests.canal import CanalClient, CanalError, frames
from tests.integration.tcp.served import Canal, refused
from tests.source import numbers
from tests.waiting import soon


class TestSubscriptions:
    @pytest.mark.parametrize("text", ["-32768", "32767", "+7", "-1001", "007"])
    async def test_every_number_of_16_bits_is_a_client(self, canal: Canal, text: str) -> None:
        client = await canal.connect()
        client.client_id = text
        await client.subscribe()
        canal.source.put()
        assert numbers(await client.get()) == [0]
        assert canal.marks(int(text))

    @pytest.mark.parametrize("text", ["-32769", "32768", "x1", "1001 ", "1_0", "٣", "1e3"])
    async def test_nothing_else_is_one(self, client: CanalClient, text: str) -> None:
        client.client_id = text
        with pytest.raises(CanalError, match="is not an integer from -32768 to 32767") as caught:
            await client.subscribe()
        assert caught.value.code == 400

    async def test_minus_one_is_reserved(self, client: CanalClient) -> None:
        client.client_id = "-1"
        with pytest.raises(CanalError, match="client id -1 is reserved") as caught:
            await client.subscribe()
        assert caught.value.code == 400

    async def test_each_client_has_its_cursor_and_its_filter(self, canal: Canal, client: CanalClient) -> None:
        other = await canal.connect()
        other.client_id = "2"
        await other.subscribe(r"shop\.other")
        canal.source.put(2)
        assert numbers(await client.get()) == [0, 1]
        client.rollback()
        assert (await other.get()).batch_id == -1
        await other.subscribe(r"shop\.goods")
        canal.source.put()
        assert numbers(await other.get()) == [2]
        assert numbers(await client.get()) == [0, 1, 2]

    async def test_the_condition_on_rows_stays_that_the_client_was_given_otherwise(
        self, canal: Canal, client: CanalClient
    ) -> None:
        await canal.embedded.subscribe("example", int(client.client_id), where="shop.goods: id > 1")
        await client.subscribe(r"shop\..*")
        canal.source.put(4)
        assert numbers(await client.get()) == [2, 3]

    async def test_an_invalid_filter_is_refused(self, client: CanalClient) -> None:
        with pytest.raises(CanalError, match="cannot be a filter"):
            await client.subscribe("shop.(")

    async def test_the_cursor_goes_with_the_subscription(self, canal: Canal, client: CanalClient) -> None:
        await client.unsubscribe()
        await client.unsubscribe()
        client.ask()
        assert "should subscribe first" in (await refused(client))[1]

    async def test_connections_share_the_state_of_their_client(self, canal: Canal, client: CanalClient) -> None:
        other = await canal.connect()
        canal.source.put()
        batch = await client.get()
        other.ack(batch.batch_id)
        assert (await other.get()).batch_id == -1
        assert canal.marks() == []

    @pytest.mark.parametrize("name", ["Sub", "Unsub", "Get", "Ack", "Rollback"])
    async def test_destination_and_client_have_to_be_named(self, client: CanalClient, name: str) -> None:
        kind = {"Sub": Sub, "Unsub": Unsub, "Get": Get, "Ack": ClientAck, "Rollback": ClientRollback}[name]
        for fields in ({"destination": "example"}, {"client_id": "1001"}):
            client.send(kind(**fields))
            code, text = await refused(client)
            assert code == 401
            assert text.startswith(f"destination or clientId is null. {name}: ")

    @pytest.mark.parametrize("name", ["Sub", "Unsub", "Get", "Ack", "Rollback"])
    async def test_an_unknown_destination_is_refused(self, client: CanalClient, name: str) -> None:
        kind = {"Sub": Sub, "Unsub": Unsub, "Get": Get, "Ack": ClientAck, "Rollback": ClientRollback}[name]
        extra = {"batch_id": 5} if name in {"Ack", "Rollback"} else {}
        client.send(kind(destination="nowhere", client_id="1001", **extra))
        code, text = await refused(client)
        assert code == 400
        assert "exception: destination:nowhere should start first" in text

    async def test_a_stopped_destination_is_refused_until_it_runs_again(
        self, canal: Canal, client: CanalClient
    ) -> None:
        client.ask(timeout=0)
        await soon(canal.waiting)
        await canal.embedded.stop("example")
        assert "destination:example should start first" in (await refused(client))[1]
        client.rollback()
        assert "destination:example should start first" in (await refused(client))[1]
        client.send(Sub(destination="example", client_id="1001"))
        text = (await refused(client))[1]
        assert "destination:example should start first. Start it by POST /v1/destinations/" in text
        canal.sources.clear()
        await canal.embedded.start("example")
        canal.source.put()
        assert numbers(await client.get(timeout=30, unit=3)) == [0]

    @pytest.mark.parametrize(
        ("number", "name"),
        [
            (0, "PACKAGETYPECOMPATIBLEPROTO2"),
            (1, "HANDSHAKE"),
            (2, "CLIENTAUTHENTICATION"),
            (3, "ACK"),
            (7, "MESSAGES"),
            (9, "SHUTDOWN"),
            (10, "DUMP"),
            (11, "HEARTBEAT"),
            (99, "UNRECOGNIZED"),
        ],
    )
    async def test_other_packets_are_refused(self, client: CanalClient, number: int, name: str) -> None:
        client.write(frames([b"\x18" + bytes([number])])[0])
        assert await refused(client) == (400, f"packet type: {name} is NOT supported!")

    async def test_an_invalid_body_is_refused(self, client: CanalClient) -> None:
        client.write(frames([Packet(type=Packet.SUBSCRIPTION, body=b"\xff\xff").SerializeToString()])[0])
        assert (await refused(client))[0] == 400
        await client.subscribe()


class TestClientOfAnOutput:
    """What Canal's own clients, which are all 1001, are told when an output owns that id."""

    @pytest.mark.parametrize("name", ["Sub", "Unsub", "Get", "Ack", "Rollback"])
    async def test_every_request_is_refused(self, canal: Canal, name: str) -> None:
        client = await canal.connect()
        await canal.embedded.subscribe("example", 1001, output="mq")
        session = canal.embedded.open_session("example", 1001, output="mq")
        canal.source.put()
        batch = await canal.embedded.get_without_ack("example", 1001, session=session)
        kind = {"Sub": Sub, "Unsub": Unsub, "Get": Get, "Ack": ClientAck, "Rollback": ClientRollback}[name]
        extra = {"batch_id": batch.batch_id} if name in {"Ack", "Rollback"} else {}
        client.send(kind(destination="example", client_id="1001", **extra))
        code, text = await refused(client)
        assert code == 400
        assert "client 1001 is that of the output mq, which alone takes its changes. Use another client id" in text
        assert canal.marks() == [batch.batch_id]
        canal.embedded.check("example", 1001, session)

    async def test_a_get_that_waits_ends_when_an_output_takes_the_client(
        self, canal: Canal, client: CanalClient
    ) -> None:
        client.ask(timeout=0)
        await soon(canal.waiting)
        await canal.embedded.subscribe("example", 1001, output="mq")
        assert "client 1001 is that of the output mq" in (await refused(client))[1]
