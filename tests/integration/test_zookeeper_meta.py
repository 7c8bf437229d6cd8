"""Subscriptions and cursors in a real ZooKeeper: Canal's nodes and bytes, fenced writes, and the way there and back."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from sluice.instance.meta.base import InUse
from sluice.instance.meta.nodes import BadVersionError, NodeError, NodeExistsError, Operation, Put, UnknownOutcomeError
from sluice.instance.meta.zookeeper import ZooKeeperClients, epoch_data, read_epoch
from sluice.protocol.errors import ConfigError
from sluice.protocol.paths import epoch_node
from sluice.protocol.position import Position
from sluice.server.ha.zookeeper import ZooKeeperSession
from sluice.store.allowance import Limits
from sluice.store.cursor import Changes, Cursor, StoredClient
from sluice.store.moves import Move, Reason
from tests.integration.test_zookeeper import session
from tests.proxy import Proxy
from tests.servers import ZooKeeper

POSITION = Position("101", "mysql-bin.000003", 1_700_000_000, 1551, 0)
CURSOR = Cursor("mysql-bin.000003", 1520, 1_700_000_000_000, 1, "", POSITION, POSITION)
CLIENT = StoredClient(1001, r"shop\..*", CURSOR)
JAVA = (
    b'{"@type":"com.alibaba.otter.canal.protocol.position.LogPosition",'
    b'"identity":{"slaveId":-1,"sourceAddress":{"address":"localhost","port":3306}},'
    b'"postion":{"gtid":"","included":false,"journalName":"mysql-bin.000003","position":1520,"serverId":1,'
    b'"timestamp":1700000000000}}'
)
"""A cursor as Canal writes it."""

_numbers = count(1)


@pytest.fixture
async def zk(zookeeper: ZooKeeper) -> AsyncIterator[ZooKeeperSession]:
    async with session(zookeeper) as zk:
        yield zk


@pytest.fixture
async def name(zk: ZooKeeperSession) -> str:
    """A destination whose epoch is 1, at version 0."""
    name = f"shop{next(_numbers)}"
    await zk.ensure(f"/otter/canal/destinations/{name}")
    await zk.create(epoch_node(name), epoch_data(1))
    return name


def clients(zk: ZooKeeperSession, name: str, host: str = "db") -> ZooKeeperClients:
    return ZooKeeperClients(zk, name, (host, 3306))


def node(name: str, below: str) -> str:
    return f"/otter/canal/destinations/{name}/{below}"


async def test_jumps_are_read_again_and_outlive_their_client(zk: ZooKeeperSession, name: str) -> None:
    store = clients(zk, name)
    await store.load()
    first, second = (Move(Reason.SEEK, "a", after, "alice", 1) for after in ("b", "c"))
    await store.store(0, Changes({1001: CLIENT}, {1001: [first]}), None)
    await store.store(0, Changes({1001: None, 1002: StoredClient(1002)}, {1001: [first, second], 1002: [first]}), None)
    again = clients(zk, name)
    assert await again.load() == (StoredClient(1002),)
    assert again.moves == {1001: (first, second), 1002: (first,)}
    await again.store(0, Changes({}, {1001: (), 1002: [second]}), None)
    again = clients(zk, name)
    await again.load()
    assert again.moves == {1002: (second,)}
    await zk.commit([Put(node(name, "moves/1002"), b"[{}]")])
    with pytest.raises(
        ConfigError, match=r"moves/1002 in ZooKeeper is not a record of how the position of a client moved"
    ):
        await clients(zk, name).load()


async def test_what_is_written_is_read_again(zk: ZooKeeperSession, name: str) -> None:
    without_cursor, expiring = (
        StoredClient(-5, where="shop.orders: total > 10"),
        StoredClient(
            1002,
            "",
            CURSOR,
            expire_after=600,
            memory='{"shop": "an id"}',
            moved="12-ab",
            protected=True,
            limits=Limits(0, 5),
            used="7:8",
        ),
    )
    store = clients(zk, name)
    assert await store.load() == ()
    assert await store.store(0, Changes({1001: CLIENT, 1002: expiring, -5: without_cursor}), None) == 0
    assert set(await clients(zk, name).load()) == {CLIENT, expiring, without_cursor}
    moved = replace(CLIENT, filter="", cursor=replace(CURSOR, offset=2000))
    await store.store(0, Changes({1001: moved, 1002: None, -5: None}), None)
    assert await clients(zk, name).load() == (moved,)
    assert await zk.children(node(name, "1001")) == ["cursor"]


async def test_what_a_client_without_a_cursor_is_subscribed_with_has_a_node_until_it_has_one(
    zk: ZooKeeperSession, name: str
) -> None:
    store = clients(zk, name)
    await store.load()
    without = StoredClient(1001, "", None, 600, memory='{"shop": "an id"}', protected=True, limits=Limits(1000, None))
    for client in (without, replace(without, memory=""), replace(without, cursor=CURSOR)):
        await store.store(0, Changes({1001: client}), None)
        assert await clients(zk, name).load() == (client,)
    assert await zk.children(node(name, "1001")) == ["cursor"]
    await store.store(0, Changes({1002: replace(without, client_id=1002)}), None)
    await zk.set(node(name, "1002/settings"), b'{"protect": "maybe"}')
    with pytest.raises(
        ConfigError, match=r"1002/settings in ZooKeeper does not hold .* correct it, or delete the node"
    ):
        await clients(zk, name).load()
    await store.store(0, Changes({1001: None, 1002: None}), None)
    assert await clients(zk, name).load() == ()


async def test_conditions_on_rows_have_a_node_of_their_own(zk: ZooKeeperSession, name: str) -> None:
    """So a cursor that Canal writes does not take them away, and not each ack writes them."""
    store = clients(zk, name)
    await store.load()
    for where in ("shop.orders: total > 10", "shop.orders: name = 'ä'", "", "shop.orders: total > 10"):
        await store.store(0, Changes({1001: replace(CLIENT, where=where)}), None)
        assert [it.where for it in await clients(zk, name).load()] == [where]
        assert b"total" not in (await zk.get(node(name, "1001/cursor"))).data
    await store.store(0, Changes({1001: None}), None)
    assert await clients(zk, name).load() == ()


async def test_the_token_that_owns_a_client_has_a_node_of_its_own(zk: ZooKeeperSession, name: str) -> None:
    """So a cursor that Canal writes does not give the client away."""
    store = clients(zk, name)
    await store.load()
    for owner in ("billing", "Bücher", "", "billing"):
        await store.store(0, Changes({1001: replace(CLIENT, owner=owner)}), None)
        assert [it.owner for it in await clients(zk, name).load()] == [owner]
        assert b"billing" not in (await zk.get(node(name, "1001/cursor"))).data
    await zk.set(node(name, "1001/cursor"), JAVA)
    assert [it.owner for it in await clients(zk, name).load()] == ["billing"]
    await store.store(0, Changes({1001: None}), None)
    assert await clients(zk, name).load() == ()


async def test_the_output_that_owns_a_client_has_a_node_of_its_own(zk: ZooKeeperSession, name: str) -> None:
    """So a cursor that Canal writes does not free the client."""
    store = clients(zk, name)
    await store.load()
    refused = "2026-01-01T00:00:00+00:00 rollback"
    for output, text in (("mq", ""), ("mq", refused), ("other", ""), ("", ""), ("mq", refused)):
        await store.store(0, Changes({1001: replace(CLIENT, output=output, refused=text)}), None)
        assert [(it.output, it.refused) for it in await clients(zk, name).load()] == [(output, text)]
    await zk.set(node(name, "1001/cursor"), JAVA)
    (client,) = await clients(zk, name).load()
    assert (client.output, client.refused) == ("mq", refused)
    assert client.cursor == replace(CURSOR, position=None, delivered=None)
    await zk.set(node(name, "1001/output"), b"[")
    with pytest.raises(ConfigError, match=r"1001/output in ZooKeeper does not name an output .* delete the node"):
        await clients(zk, name).load()
    await store.store(0, Changes({1001: None}), None)
    assert await clients(zk, name).load() == ()


async def test_nodes_and_bytes_are_canals(zk: ZooKeeperSession, name: str) -> None:
    written_by_canal = StoredClient(1001, r"shop\..*", replace(CURSOR, position=None, delivered=None))
    await clients(zk, name, "localhost").store(0, Changes({1001: written_by_canal}), None)
    assert (await zk.get(node(name, "1001/cursor"))).data == JAVA
    assert (await zk.get(node(name, "1001/filter"))).data == rb"shop\..*"
    assert (await zk.get(node(name, "1001"))).data == b""
    assert await zk.children(f"/otter/canal/destinations/{name}") == ["1001", "sluice"]


async def test_our_keys_stand_after_canals(zk: ZooKeeperSession, name: str) -> None:
    await clients(zk, name, "localhost").store(0, Changes({1001: CLIENT}), None)
    ours = b',"sluice":{"delivered":"%s","position":"%s"}}' % ((str(POSITION).encode(),) * 2)
    assert (await zk.get(node(name, "1001/cursor"))).data == JAVA[:-1] + ours


def place(zk: ZooKeeperSession, name: str) -> ZooKeeperClients:
    return ZooKeeperClients(zk, name, ("localhost", 3306), parse=True)


async def test_place_of_the_clients_is_kept_in_canals_node_when_they_are_gone(zk: ZooKeeperSession, name: str) -> None:
    store = place(zk, name)
    await store.load()
    ahead = replace(CLIENT, client_id=1002, cursor=replace(CURSOR, offset=9000, position=replace(POSITION, begin=9031)))
    await store.store(0, Changes({1001: CLIENT, 1002: ahead}), None)
    await store.store(0, Changes({1001: None}), None)
    await store.store(0, Changes({1002: None}), None)
    again = place(zk, name)
    assert await again.load() == ()
    assert again.place == ahead.cursor
    data = json.loads((await zk.get(node(name, "parse"))).data)
    assert (data["identity"], data["postion"]["position"]) == (json.loads(JAVA)["identity"], 9000)
    assert "@type" not in data


async def test_place_is_that_of_the_slowest_client_after_a_restart_too(zk: ZooKeeperSession, name: str) -> None:
    ahead = replace(CLIENT, client_id=1002, cursor=replace(CURSOR, offset=9000, position=replace(POSITION, begin=9031)))
    before = place(zk, name)
    await before.load()
    await before.store(
        0, Changes({1001: CLIENT, 1002: replace(CLIENT, client_id=1002), 1003: StoredClient(1003)}), None
    )
    store = place(zk, name)
    await store.load()
    await store.store(0, Changes({1002: ahead}), None)
    assert store.place == CURSOR
    await store.store(0, Changes({1001: None}), None)
    assert store.place == ahead.cursor


async def test_place_that_canal_kept_is_understood(zk: ZooKeeperSession, name: str) -> None:
    java = json.loads(JAVA)
    del java["@type"]
    await zk.create(node(name, "parse"), json.dumps(java).encode())
    store = place(zk, name)
    await store.load()
    assert store.place == replace(CURSOR, position=None, delivered=None)
    await store.store(0, Changes({1001: CLIENT}), None)
    assert store.place == CURSOR
    await zk.set(node(name, "parse"), b"{")
    with pytest.raises(ConfigError, match="parse in ZooKeeper is not a place in a binlog"):
        await place(zk, name).load()


async def test_cursor_that_canal_wrote_is_understood(zk: ZooKeeperSession, name: str) -> None:
    await zk.ensure(node(name, "1001/running"))
    await zk.create(node(name, "1001/cursor"), JAVA)
    assert await clients(zk, name).load() == (
        StoredClient(1001, "", Cursor("mysql-bin.000003", 1520, 1_700_000_000_000, 1)),
    )


async def test_identity_stays_as_canal_wrote_it(zk: ZooKeeperSession, name: str) -> None:
    await zk.ensure(node(name, "1001"))
    await zk.create(node(name, "1001/cursor"), JAVA)
    store = clients(zk, name, "10.0.0.7")
    await store.load()
    await store.store(0, Changes({1001: CLIENT, 1002: replace(CLIENT, client_id=1002)}), None)
    addresses = [
        json.loads((await zk.get(node(name, f"{client_id}/cursor"))).data)["identity"]["sourceAddress"]["address"]
        for client_id in (1001, 1002)
    ]
    assert addresses == ["localhost", "10.0.0.7"]


async def test_client_that_has_confirmed_nothing_has_a_time_that_canal_takes(zk: ZooKeeperSession, name: str) -> None:
    begun = Cursor("mysql-bin.000003", 1551, 0, 0, "", POSITION, POSITION)
    await clients(zk, name).store(0, Changes({1001: StoredClient(1001, "", begun)}), None)
    data = json.loads((await zk.get(node(name, "1001/cursor"))).data)
    assert data["postion"]["timestamp"] == POSITION.created * 1000


async def test_batches_that_canal_noted_are_deleted(zk: ZooKeeperSession, name: str) -> None:
    await zk.ensure(node(name, "1001/mark/0000000007"))
    await zk.ensure(node(name, "1001/mark/0000000008"))
    await clients(zk, name).load()
    assert await zk.children(node(name, "1001/mark")) == []


async def test_removed_client_goes_with_all_that_canal_keeps_there(zk: ZooKeeperSession, name: str) -> None:
    await zk.create(node(name, "1001"))
    await zk.ensure(node(name, "1001/mark/0000000007"))
    store = clients(zk, name)
    await store.store(0, Changes({1001: CLIENT}), None)
    await store.store(0, Changes({1001: None}), None)
    assert await zk.children(f"/otter/canal/destinations/{name}") == ["sluice"]


async def test_node_that_a_canal_client_made_meanwhile_is_accepted(zk: ZooKeeperSession, name: str) -> None:
    store = clients(zk, name)
    await store.load()
    await zk.ensure(node(name, "1001/running"))
    await store.store(0, Changes({1001: CLIENT}), None)
    assert await clients(zk, name).load() == (CLIENT,)


async def test_write_of_an_earlier_epoch_changes_nothing(zk: ZooKeeperSession, name: str) -> None:
    store = clients(zk, name)
    await store.store(0, Changes({1001: CLIENT}), None)
    await zk.set(epoch_node(name), epoch_data(2))
    far = Far(zk)
    with pytest.raises(BadVersionError):
        await clients(far, name).store(0, Changes({1001: CLIENT}), None)  # type: ignore[arg-type]
    assert far.rounds == 1, "it is not tried again"
    with pytest.raises(BadVersionError) as caught:
        await store.store(0, Changes({1001: replace(CLIENT, cursor=replace(CURSOR, offset=9))}), None)
    assert caught.value.path == epoch_node(name)
    assert await clients(zk, name).load() == (CLIENT,)


async def test_write_without_an_epoch_is_refused(zk: ZooKeeperSession, name: str) -> None:
    await zk.delete(epoch_node(name))
    with pytest.raises(NodeError) as caught:
        await clients(zk, name).store(0, Changes({1001: CLIENT}), None)
    assert caught.value.path == epoch_node(name)


async def test_epoch_is_raised_with_the_clients(zk: ZooKeeperSession, name: str) -> None:
    store = clients(zk, name)
    assert await store.store(0, Changes({1001: CLIENT}), 5) == 1
    assert read_epoch((await zk.get(epoch_node(name))).data, name) == 5
    assert await store.store(1, Changes({1001: CLIENT}), None) == 1


async def test_lost_answers_do_not_confuse_the_next_write(zookeeper: ZooKeeper, name: str) -> None:
    with Proxy(("127.0.0.1", zookeeper.servers[0].port)) as proxy:
        async with session(proxy, 10.0) as zk:
            store = clients(zk, name)
            proxy.cut_after(0)
            with pytest.raises(ConnectionError):
                await asyncio.wait_for(store.store(0, Changes({1001: CLIENT}), None), 10)
            proxy.heal()
            await asyncio.wait_for(store.store(0, Changes({1001: CLIENT}), None), 20)
            assert await clients(zk, name).load() == (CLIENT,)


class Far:
    """A session over a long way: what is asked before the first answer has come goes there and back together."""

    def __init__(self, zk: ZooKeeperSession) -> None:
        self.rounds = 0
        self._zk = zk
        self._gate = asyncio.Event()
        self._leaving: asyncio.Task[None] | None = None

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        async def call(*arguments: Any) -> Any:
            if self._leaving is None:
                self._leaving = asyncio.create_task(self._leave())
            await self._gate.wait()
            return await getattr(self._zk, name)(*arguments)

        return call

    async def _leave(self) -> None:
        for _ in range(10):  # a caller that can go on without an answer has asked by then
            await asyncio.sleep(0)
        self.rounds += 1
        self._leaving = None
        gate, self._gate = self._gate, asyncio.Event()
        gate.set()


async def test_clients_are_read_in_a_few_ways_to_zookeeper_however_many_there_are(
    zk: ZooKeeperSession, name: str
) -> None:
    many = {number: replace(CLIENT, client_id=number) for number in range(300)}
    await clients(zk, name).store(0, Changes(many), None)
    marks = [node(name, f"{number}/mark/000000000{batch}") for number in range(3) for batch in (1, 2)]
    await asyncio.gather(*map(zk.ensure, marks))
    far = Far(zk)
    assert set(await clients(far, name).load()) == set(many.values())  # type: ignore[arg-type]
    assert far.rounds < 20  # not one for each of them; a few more when an answer comes between two questions
    assert await zk.children(node(name, "1/mark")) == []


async def test_a_write_goes_there_and_back_once_whatever_was_written_before(zk: ZooKeeperSession, name: str) -> None:
    far = Far(zk)
    store = ZooKeeperClients(far, name, ("localhost", 3306), parse=True)  # type: ignore[arg-type]
    await store.load()
    moved = replace(CLIENT, cursor=replace(CURSOR, offset=2000, position=replace(POSITION, begin=2031)))
    plain = StoredClient(1002)
    for changes in ({1001: CLIENT}, {1001: moved, 1002: plain}, {1001: replace(moved, filter="all")}, {1002: plain}):
        far.rounds = 0
        await store.store(0, Changes(changes), None)
        assert far.rounds == 1
    assert (await zk.get(node(name, "1001/filter"))).version == 1, "written when it changes"
    again = ZooKeeperClients(far, name, ("localhost", 3306), parse=True)  # type: ignore[arg-type]
    await again.load()
    far.rounds = 0
    await again.store(0, Changes({1001: CLIENT}), None)
    assert far.rounds == 1


async def test_jumps_and_sources_and_what_canal_does_not_know_are_written_in_one_way_there_and_back(
    zk: ZooKeeperSession, name: str
) -> None:
    """Which nodes there are is known by then: none is made twice, and none that is gone is replaced."""
    far, first = Far(zk), Move(Reason.SEEK, "a", "ä", "alice", 1)
    store = ZooKeeperClients(far, name, ("localhost", 3306))  # type: ignore[arg-type]
    await store.load()

    async def write(changes: Changes, source: InUse | None = None) -> ZooKeeperClients:
        far.rounds = 0
        await store.store(0, changes, None, source)
        assert far.rounds == 1
        again = clients(zk, name)
        await again.load()
        return again

    await write(Changes({}, {1002: [first]}))
    for moves in ([first], [first, first], [], [first]):
        again = await write(Changes({}, {1001: moves}))
        assert list(again.moves.get(1001, ())) == moves
        assert store.moves.keys() == again.moves.keys() == {1002} | ({1001} if moves else set())
    assert list((await write(Changes({}, {1002: [first, first]}))).moves[1002]) == [first, first]
    assert "ä".encode() in (await zk.get(node(name, "moves/1001"))).data
    for source in (InUse("db:1"), InUse("db:2"), InUse("db:3")):
        assert (await write(Changes({}), source)).source == store.source == source
    whole = replace(CLIENT, where="shop.orders: total > 10", owner="a token")
    for client in (whole, replace(whole, where=""), whole, replace(whole, owner="", where=""), whole):
        await write(Changes({1001: client}))
        assert await clients(zk, name).read() == (client,)
    await store.store(0, Changes({1001: None}), None)
    await write(Changes({1001: whole}))
    assert await clients(zk, name).read() == (whole,)


async def test_one_that_was_removed_and_subscribes_again_is_stored_in_one_transaction_with_the_address_of_today(
    zk: ZooKeeperSession, name: str
) -> None:
    await zk.ensure(node(name, "1001"))
    await zk.create(node(name, "1001/cursor"), JAVA)
    far = Far(zk)
    store = ZooKeeperClients(far, name, ("10.0.0.7", 3306))  # type: ignore[arg-type]
    await store.load()
    await store.store(0, Changes({1001: None, 1002: StoredClient(1002, "all")}), None)
    await store.store(0, Changes({1002: None}), None)
    far.rounds = 0
    await store.store(0, Changes({1001: CLIENT, 1002: StoredClient(1002, "all")}), None)
    assert far.rounds == 1
    assert set(await clients(zk, name).load()) == {CLIENT, StoredClient(1002, "all")}
    data = json.loads((await zk.get(node(name, "1001/cursor"))).data)
    assert data["identity"]["sourceAddress"]["address"] == "10.0.0.7"


async def test_a_filter_whose_write_was_lost_is_written_again_though_it_is_that_of_before(
    zk: ZooKeeperSession, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = ZooKeeperSession.commit

    async def losing(self: ZooKeeperSession, operations: Sequence[Operation]) -> list[int | None]:
        await commit(self, operations)
        raise UnknownOutcomeError("the connection was lost")

    store = clients(zk, name)
    await store.store(0, Changes({1001: CLIENT}), None)
    with monkeypatch.context() as patch:
        patch.setattr(ZooKeeperSession, "commit", losing)
        with pytest.raises(UnknownOutcomeError):
            await store.store(0, Changes({1001: replace(CLIENT, filter="all")}), None)
    await store.store(0, Changes({1001: CLIENT}), None)
    assert await clients(zk, name).load() == (CLIENT,)


async def test_a_write_that_canals_clients_interfere_with_each_time_is_refused_with_the_node(
    zk: ZooKeeperSession, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = 0

    async def interfered(_: ZooKeeperSession, operations: Sequence[Operation]) -> list[int | None]:
        nonlocal tried
        tried += 1
        raise NodeExistsError("it is there", operations[1].path)

    monkeypatch.setattr(ZooKeeperSession, "commit", interfered)
    with pytest.raises(NodeExistsError):
        await clients(zk, name).store(0, Changes({1001: CLIENT}), None)
    assert tried > 1


@pytest.mark.parametrize("data", [b"{", b"[]", b"null", b"{}", b'{"postion":{"journalName":"a"}}', b"[" * 100_000])
async def test_invalid_cursor_is_an_error_that_names_its_node(zk: ZooKeeperSession, name: str, data: bytes) -> None:
    await zk.ensure(node(name, "1001"))
    await zk.create(node(name, "1001/cursor"), data)
    with pytest.raises(ConfigError, match="1001/cursor"):
        await clients(zk, name).load()


async def test_which_of_several_sources_is_read_is_kept_in_a_node_of_its_own(zk: ZooKeeperSession, name: str) -> None:
    store = clients(zk, name)
    await store.load()
    assert store.source is None
    await store.store(0, Changes({1001: CLIENT}), None, InUse("db2:3307", "0-1-4-5"))
    await store.store(0, Changes({}), None, InUse("db3:3308"))
    await store.store(0, Changes({1001: CLIENT}), None)
    later = clients(zk, name)
    assert await later.load() == (CLIENT,)
    assert later.source == InUse("db3:3308")
    cursor = json.loads((await zk.get(node(name, "1001/cursor"))).data)
    assert cursor["identity"]["sourceAddress"] == {"address": "db3", "port": 3308}
    of_members = InUse(members={"a": InUse("db3:3308"), "b": InUse("db4:3306", since="1/bin.000001@1:4:0")})
    await store.store(0, Changes({}), None, of_members)
    later = clients(zk, name)
    await later.load()
    assert later.source == of_members
    await zk.set(node(name, "source"), b"{}")
    with pytest.raises(ConfigError, match="source in ZooKeeper does not name a source"):
        await clients(zk, name).load()
