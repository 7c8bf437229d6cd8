"""Canal's protocol, served from an embedded server; in place of a source the tests fill its ring themselves."""

import asyncio
import contextlib
import random
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import prometheus_client
import pytest

from sluice.protocol.errors import ConfigError, StaleSessionError
from sluice.protocol.packet_pb2 import Ack, ClientAck, ClientAuth, ClientRollback, Get, Packet, Sub, Unsub
from sluice.server import network
from sluice.server.config import ServerConfig
from sluice.server.embedded import EmbeddedServer
from sluice.server.metrics import Metrics
from sluice.server.tcp import serve, session
from sluice.server.tcp.serve import serving
from sluice.server.waiting import Stopping
from tests.canal import CanalClient, CanalError, frames, scramble, stored
from tests.source import Source, eventually, numbers, start_embedded

MEGABYTE = 1 << 20
PROTECTED: dict[str, Any] = {"tcp_user": "canal", "tcp_passwd": stored("secret")}


@dataclass
class Canal:
    """A served port and what is behind it."""

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
        return self.embedded.instances["example"].cursors.client_ids

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
async def running(tmp_path: Path, *, instance: dict[str, Any] | None = None, **settings: Any) -> AsyncIterator[Canal]:
    """Serve the destinations ``example`` and ``other`` on a free port."""
    embedded, sources = await start_embedded(tmp_path / "data", **(instance or {}))
    metrics, stopping = Metrics(embedded), Stopping()
    try:
        async with serving(embedded, ServerConfig(tcp_port=0, **settings), metrics, stopping) as address:
            canal = Canal(int(address.rpartition(":")[2]), embedded, metrics, stopping, sources)
            try:
                yield canal
            finally:
                for client in canal.clients:
                    client.cut()
    finally:
        await embedded.close()


@pytest.fixture(autouse=True)
def quick_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "FAILED_LOGIN", 0.01)


@pytest.fixture
async def canal(tmp_path: Path) -> AsyncIterator[Canal]:
    async with running(tmp_path) as canal:
        yield canal


@pytest.fixture
async def protected(tmp_path: Path) -> AsyncIterator[Canal]:
    async with running(tmp_path, **PROTECTED) as canal:
        yield canal


@pytest.fixture
async def client(canal: Canal) -> CanalClient:
    """A client that has logged in and subscribed."""
    made = await canal.connect()
    await made.subscribe()
    return made


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


class TestLogin:
    async def test_the_server_greets_with_a_seed_of_eight_bytes(self, canal: Canal) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", canal.port)
        greeting = await reader.readexactly(20)
        writer.close()
        assert greeting[:12] == bytes.fromhex("00000010 1001 1801 2a0a 1208")

    async def test_every_connection_has_its_own_seed(self, canal: Canal) -> None:
        seeds = {(await canal.connect(login=False)).seed for _ in range(5)}
        assert len(seeds) == 5

    async def test_a_good_login_is_answered_by_an_empty_ack(self, protected: Canal) -> None:
        client = await protected.connect(login=False)
        client.send(ClientAuth(username="canal", password=scramble("secret", client.seed)))
        assert await client.reader.readexactly(8) == bytes.fromhex("00000004 1001 1803")

    async def test_anybody_is_let_in_where_no_password_is_set(self, canal: Canal) -> None:
        await canal.connect("anybody", "anything")

    async def test_any_name_will_do_where_none_is_set(self, tmp_path: Path) -> None:
        async with running(tmp_path, tcp_passwd=stored("secret").upper()) as canal:
            await canal.connect("anybody", "secret")

    @pytest.mark.parametrize(("user", "password"), [("canal", "wrong"), ("other", "secret"), ("canal", None)])
    async def test_a_login_that_fails_may_be_repeated(self, protected: Canal, user: str, password: str | None) -> None:
        client = await protected.connect(login=False)
        with pytest.raises(CanalError, match=f"^auth failed for user:{user}$") as caught:
            await client.login(user, password)
        assert caught.value.code == 400
        client.send(Sub(destination="example", client_id="1001"))
        await refused(client)  # it was taken for another login
        await client.login("canal", "secret")

    @pytest.mark.parametrize("token", [b"secret", b"00" * 19, "ü".encode() * 20])
    async def test_what_is_no_scramble_closes_the_connection(self, protected: Canal, token: bytes) -> None:
        client = await protected.connect(login=False)
        client.send(ClientAuth(username="canal", password=token))
        assert await client.closed()

    async def test_the_first_packet_is_a_login_whatever_its_type_says(self, protected: Canal) -> None:
        client = await protected.connect(login=False)
        body = ClientAuth(username="canal", password=scramble("secret", client.seed)).SerializeToString()
        client.write(frames([Packet(type=Packet.GET, body=body).SerializeToString()])[0])
        await client.acknowledged()

    async def test_a_login_may_subscribe(self, canal: Canal) -> None:
        client = await canal.connect(login=False)
        await client.login(destination="example", client_id="7", filter=r"shop\..*")
        assert canal.embedded.status("example", 7).filter == r"shop\..*"

    async def test_a_login_that_cannot_subscribe_is_refused_and_may_be_repeated(self, canal: Canal) -> None:
        client = await canal.connect(login=False)
        with pytest.raises(CanalError, match="destination:nowhere should start first"):
            await client.login(destination="nowhere", client_id="7")
        await client.login()

    async def test_who_does_not_log_in_in_time_is_cut_off(self, canal: Canal, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(serve, "LOGIN_SECONDS", 0.05)
        assert await (await canal.connect(login=False)).closed()

    async def test_other_clients_do_not_wait_for_a_failed_login(
        self, protected: Canal, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(session, "FAILED_LOGIN", 30.0)
        failing = await protected.connect(login=False)
        failing.send(ClientAuth(username="canal", password=scramble("wrong", failing.seed)))
        await protected.connect("canal", "secret")

    async def test_the_password_is_in_no_log(self, protected: Canal, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level("DEBUG")
        client = await protected.connect(login=False)
        client.send(ClientAuth(username="canal", password=b"secret"))
        assert await client.closed()
        assert "secret" not in caplog.text
        assert stored("secret") not in caplog.text


class TestBinding:
    async def test_beyond_loopback_a_password_is_needed(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"'0\.0\.0\.0' without canal.passwd"):
            async with running(tmp_path, tcp_host="0.0.0.0"):
                pass

    @pytest.mark.parametrize("settings", [PROTECTED, {"insecure": True}])
    async def test_with_a_password_or_when_told_so_it_is_served_everywhere(
        self, tmp_path: Path, settings: dict[str, Any], caplog: pytest.LogCaptureFixture
    ) -> None:
        async with running(tmp_path, tcp_host="0.0.0.0", **settings):
            assert "is not encrypted" in caplog.text

    async def test_nothing_listens_when_it_is_switched_off(self, tmp_path: Path) -> None:
        embedded = EmbeddedServer(lambda _: pytest.fail("nothing starts"), Source)
        config = ServerConfig(tcp_port=0, without_netty=True)
        async with serving(embedded, config, Metrics(embedded), Stopping()) as address:
            assert address == ""


class TestFrames:
    async def test_before_the_login_64_kib_are_the_limit(self, canal: Canal) -> None:
        client = await canal.connect(login=False)
        packet = Packet(
            type=Packet.CLIENTAUTHENTICATION, body=ClientAuth(username="x" * 65_500).SerializeToString()
        ).SerializeToString()
        assert 65_500 < len(packet) <= 65_536
        client.write(frames([packet])[0])
        await client.acknowledged()
        other = await canal.connect(login=False)
        other.write(b"\0\x01\0\x01")
        assert await other.closed()

    async def test_after_the_login_the_limit_is_the_configured_one(self, tmp_path: Path) -> None:
        async with running(tmp_path, tcp_max_frame=100_000) as canal:
            client = await canal.connect()
            packet = Packet(type=Packet.DUMP, body=b"x" * 99_000).SerializeToString()
            client.write(frames([packet])[0])
            assert await refused(client) == (400, "packet type: DUMP is NOT supported!")
            client.write((100_001).to_bytes(4, "big"))
            assert await client.closed()

    @pytest.mark.parametrize("data", [b"\xff\xff\xff\xff", b"\0\0\0\x03\xff\xff\xff", b"GET / HTTP/1.1\r\n\r\n"])
    async def test_what_is_no_packet_closes_the_connection(self, client: CanalClient, data: bytes) -> None:
        client.write(data)
        assert await client.closed()

    async def test_a_client_that_dies_in_mid_frame_disturbs_nobody(self, canal: Canal, client: CanalClient) -> None:
        dying = await canal.connect()
        await dying.subscribe()
        canal.source.put(2)
        packet = Packet(type=Packet.GET, body=Get(destination="example", client_id="1001").SerializeToString())
        dying.write(frames([packet.SerializeToString()])[0][:9])
        dying.cut()
        await eventually(lambda: "sluice_tcp_connections 1.0" in canal.page())
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
        """Two connections of one client do what they like; who asks for an answer gets one of its kind."""
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
            assert (await client.get()).batch_id

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
    async def test_a_size_that_is_none_is_a_thousand(self, canal: Canal, client: CanalClient, fetch_size: int) -> None:
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
        await eventually(canal.waiting)
        await silent(client)
        canal.source.put()
        assert numbers(await client.batch()) == [0]

    async def test_a_full_batch_does_not_wait(self, tmp_path: Path) -> None:
        async with running(tmp_path, get_linger=60_000) as canal:
            client = await canal.connect()
            await client.subscribe()
            canal.source.put(3, size=1000)
            client.ask(size=4, timeout=60_000)
            await eventually(canal.waiting)
            await silent(client)
            canal.source.put(size=2000)
            assert numbers(await client.batch()) == [0, 1, 2, 3]

    async def test_what_is_less_waits_as_long_as_it_may_linger(self, tmp_path: Path) -> None:
        async with running(tmp_path, get_linger=300) as canal:
            client = await canal.connect()
            await client.subscribe()
            client.ask(timeout=60_000)
            await eventually(canal.waiting)
            canal.source.put()
            await silent(client)
            canal.source.put()
            assert numbers(await client.batch()) == [0, 1]

    async def test_canals_way_is_to_wait_for_the_full_batch_or_the_timeout(self, tmp_path: Path) -> None:
        async with running(tmp_path, get_linger=0, instance={"strict_canal": True}) as canal:
            client = await canal.connect()
            await client.subscribe()
            canal.source.put()
            client.ask(size=1, timeout=0)
            await eventually(canal.waiting)
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
            await eventually(canal.waiting)
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
        await eventually(lambda: not canal.marks())
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

    async def test_the_id_of_an_empty_batch_may_be_acked(self, client: CanalClient) -> None:
        client.ack(-1)
        await silent(client)

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

    async def test_who_has_not_subscribed_may_roll_back_only(self, canal: Canal) -> None:
        client = await canal.connect()
        client.rollback()
        client.rollback(5)
        await silent(client)
        client.ack(5)
        assert "ClientIdentity[destination=example,clientId=1001] should subscribe first" in (await refused(client))[1]
        client.ask()
        assert "should subscribe first" in (await refused(client))[1]


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
        with pytest.raises(CanalError, match="is no integer from -32768 to 32767") as caught:
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

    async def test_a_filter_that_is_none_is_refused(self, client: CanalClient) -> None:
        with pytest.raises(CanalError, match="is no regular expression"):
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
        await eventually(lambda: not canal.marks())

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
        await eventually(canal.waiting)
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

    async def test_a_body_that_is_none_is_refused(self, client: CanalClient) -> None:
        client.write(frames([Packet(type=Packet.SUBSCRIPTION, body=b"\xff\xff").SerializeToString()])[0])
        assert (await refused(client))[0] == 400
        await client.subscribe()


class TestWaiting:
    async def test_a_get_that_waits_holds_up_neither_others_nor_a_rollback(
        self, canal: Canal, client: CanalClient
    ) -> None:
        canal.source.put()
        first = await client.get()
        client.ask(timeout=0)
        await eventually(canal.waiting)
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
        await eventually(canal.waiting)
        client.ack(batch.batch_id)
        await eventually(lambda: not canal.marks())
        await silent(client)
        canal.source.put()
        assert numbers(await client.batch()) == [1]

    async def test_an_ack_that_came_together_with_a_get_goes_past_it(self, canal: Canal, client: CanalClient) -> None:
        canal.source.put()
        batch = await client.get()
        get = Get(destination="example", client_id="1001", timeout=0)
        client.send(get, ClientAck(destination="example", client_id="1001", batch_id=batch.batch_id))
        await eventually(lambda: not canal.marks())
        await silent(client)
        canal.source.put()
        assert numbers(await client.batch()) == [1]

    async def test_many_acks_at_once_hold_up_nobody(self, canal: Canal, client: CanalClient) -> None:
        other = await canal.connect()
        client.send(*[ClientAck(destination="example", client_id="1001", batch_id=-1)] * 20_000)
        assert (await other.get()).batch_id == -1
        canal.source.put()
        assert numbers(await client.get()) == [0]

    async def test_the_refusal_of_an_ack_comes_behind_the_answer_of_the_get(
        self, canal: Canal, client: CanalClient
    ) -> None:
        client.ask(timeout=0)
        await eventually(canal.waiting)
        client.ack(999)
        client.send(Sub(destination="example", client_id="8"))
        client.ack(998)
        await silent(client)
        canal.source.put()
        assert numbers(await client.batch()) == [0]
        assert "batchId:999" in (await refused(client))[1]
        await client.acknowledged()
        assert "batchId:998" in (await refused(client))[1]

    async def test_rubbish_behind_a_get_that_waits_closes_the_connection(
        self, canal: Canal, client: CanalClient
    ) -> None:
        client.ask(timeout=0)
        await eventually(canal.waiting)
        client.write(b"\xff\xff\xff\xff")
        assert await client.closed()
        canal.source.put()
        assert canal.marks() == []

    async def test_a_client_that_goes_away_while_it_waits_takes_no_batch(
        self, canal: Canal, client: CanalClient
    ) -> None:
        going = await canal.connect()
        going.ask(timeout=0)
        await eventually(canal.waiting)
        going.cut()
        await eventually(lambda: not canal.waiting())
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
        await eventually(lambda: not canal.marks())
        await eventually(lambda: not canal.waiting())

    async def test_who_begins_anew_ends_the_gets_of_older_connections(self, canal: Canal) -> None:
        lost = await canal.connect()
        await lost.subscribe()
        lost.ask(timeout=0)
        await eventually(canal.waiting)
        client = await canal.connect()
        await client.subscribe()
        assert (await lost.batch()).batch_id == -1
        lost.ask(timeout=0)
        await eventually(canal.waiting)
        client.rollback()
        assert (await lost.batch()).batch_id == -1
        canal.source.put()
        assert numbers(await client.get()) == [0]

    async def test_who_subscribes_takes_over_from_a_session_over_http(self, canal: Canal, client: CanalClient) -> None:
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
        await eventually(lambda: canal.waiting() == 100)
        assert threading.active_count() - threads < 8  # those that write cursors to the disk
        canal.source.put()
        for client in clients:
            assert numbers(await client.batch()) == [0]


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

    async def test_who_only_reads_or_only_writes_is_idle(self, canal: Canal, client: CanalClient) -> None:
        other = await canal.connect(login=False)
        await other.login(net_write_timeout=200)
        with contextlib.suppress(ConnectionError):
            for _ in range(100):
                other.ack(-1)
                await other.writer.drain()
                await asyncio.sleep(0.02)
                if other.reader.at_eof():
                    break
        assert other.reader.at_eof()


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
        await eventually(canal.marks)
        return client

    async def test_memory_stays_pinned_until_the_socket_has_it(self, canal: Canal, client: CanalClient) -> None:
        slow = await self.fill(canal)
        client.ack(canal.marks()[0])
        await eventually(lambda: not canal.marks())
        pool = canal.source.ring.pool
        assert pool.pinned > 4 * MEGABYTE
        canal.source.put(3, size=MEGABYTE)  # nothing of it may come into what is still to be sent
        assert numbers(await slow.batch()) == list(range(12))
        await eventually(lambda: not pool.pinned)

    async def test_the_memory_of_one_that_goes_away_is_released(self, canal: Canal, client: CanalClient) -> None:
        slow = await self.fill(canal)
        client.ack(canal.marks()[0])
        await eventually(lambda: canal.source.ring.pool.pinned)
        slow.cut()
        await eventually(lambda: not canal.source.ring.pool.pinned)

    async def test_one_that_takes_nothing_for_too_long_is_cut_off(
        self, canal: Canal, client: CanalClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(network, "STALLED", 0.2)
        slow = await self.fill(canal)
        client.ack(canal.marks()[0])
        await eventually(lambda: not canal.marks())
        await eventually(lambda: not canal.source.ring.pool.pinned)
        slow.cut()


class TestEnd:
    async def test_gets_that_wait_end_empty_and_connections_close(self, tmp_path: Path) -> None:
        async with running(tmp_path) as canal:
            client = await canal.connect()
            await client.subscribe()
            client.ask(timeout=0)
            await eventually(canal.waiting)
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
            await TestSlowReaders().fill(canal)


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
