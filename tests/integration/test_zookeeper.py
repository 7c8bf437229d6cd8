"""Sessions with a real ZooKeeper: what they do, what they say when they cannot, and when they are over."""

import asyncio
import logging
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from itertools import count
from typing import Any

import pytest
from kazoo.client import KazooClient

from sluice.instance.meta.nodes import (
    BadVersionError,
    Check,
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Put,
    SessionExpiredError,
    UnknownOutcomeError,
)
from sluice.server.ha.zookeeper import ATTEMPTS, IN_FLIGHT, ZooKeeperSession
from tests.proxy import Proxy
from tests.servers import ZooKeeper
from tests.waiting import soon

_numbers = count(1)


@asynccontextmanager
async def session(
    zookeeper: ZooKeeper | Proxy | str, seconds: float = 5.0, on_connected: Callable[[bool], None] | None = None
) -> AsyncIterator[ZooKeeperSession]:
    match zookeeper:
        case ZooKeeper():
            hosts = zookeeper.hosts
        case Proxy():
            hosts = f"127.0.0.1:{zookeeper.port}"
        case _:
            hosts = zookeeper
    it = ZooKeeperSession(hosts, seconds, on_connected)
    try:
        await it.connect()
        yield it
    finally:
        await it.close()


@pytest.fixture
def path() -> str:
    return f"/test{next(_numbers)}"


async def test_nodes_are_created_set_read_and_deleted(zookeeper: ZooKeeper, path: str) -> None:
    async with session(zookeeper) as zk:
        await zk.ensure(f"{path}/deep")
        await zk.create(f"{path}/b", b"1")
        await zk.create(f"{path}/a", ephemeral=True)
        assert await zk.children(path) == ["a", "b", "deep"]
        assert await zk.set(f"{path}/b", b"2", 0) == 1
        node = await zk.get(f"{path}/b")
        assert (node.data, node.version, node.owner) == (b"2", 1, 0)
        assert (await zk.get(f"{path}/a")).owner == zk.session_id
        await zk.delete(f"{path}/b")
        assert await zk.find(f"{path}/b") is None


async def test_so_many_calls_are_under_way_at_a_time_and_no_more(
    zookeeper: ZooKeeper, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    under_way: set[object] = set()
    most = 0
    get = KazooClient.get_async

    def counted(self: KazooClient, *arguments: Any) -> Any:
        nonlocal most
        result = get(self, *arguments)
        under_way.add(result)
        most = max(most, len(under_way))
        result.rawlink(under_way.discard)
        return result

    monkeypatch.setattr(KazooClient, "get_async", counted)
    with Proxy(("127.0.0.1", zookeeper.servers[0].port)) as proxy:
        async with session(proxy, 10.0) as zk:
            await zk.ensure(path)
            proxy.stall()
            reading = [asyncio.create_task(zk.get(path)) for _ in range(3 * IN_FLIGHT)]
            await asyncio.sleep(0)
            assert len(under_way) == IN_FLIGHT
            proxy.resume()
            assert {node.data for node in await asyncio.gather(*reading)} == {b""}
    assert most == IN_FLIGHT


async def test_each_refusal_has_an_error_that_names_the_node(zookeeper: ZooKeeper, path: str) -> None:
    async with session(zookeeper) as zk:
        await zk.ensure(f"{path}/child")
        with pytest.raises(NoNodeError, match=f"{path}/none"):
            await zk.get(f"{path}/none")
        with pytest.raises(NodeExistsError, match=path):
            await zk.create(path)
        with pytest.raises(BadVersionError, match=path):
            await zk.set(path, b"", 7)
        with pytest.raises(NotEmptyError, match=path):
            await zk.delete(path)


async def test_transaction_does_all_or_nothing(zookeeper: ZooKeeper, path: str) -> None:
    async with session(zookeeper) as zk:
        await zk.ensure(path)
        assert await zk.commit([Create(f"{path}/a", b"1"), Put(path, b"2"), Check(f"{path}/a", 0)]) == [None, 1, None]
        with pytest.raises(BadVersionError) as caught:
            await zk.commit([Put(path, b"3"), Check(f"{path}/a", 5), Delete(f"{path}/a")])
        assert caught.value.path == f"{path}/a"
        assert (await zk.get(path)).data == b"2"
        assert await zk.commit([Delete(f"{path}/a", 0), Put(path, b"3")]) == [None, 2]
        assert await zk.children(path) == []


async def test_watches_tell_once_of_changes(zookeeper: ZooKeeper, path: str) -> None:
    async with session(zookeeper) as zk, session(zookeeper) as other:
        created, changed, child = asyncio.Event(), asyncio.Event(), asyncio.Event()
        assert await zk.find(path, created.set) is None
        await other.ensure(path)
        await asyncio.wait_for(created.wait(), 10)
        await zk.get(path, changed.set)
        await zk.children(path, child.set)
        await other.set(path, b"1")
        await asyncio.wait_for(changed.wait(), 10)
        assert not child.is_set()
        await other.create(f"{path}/a")
        await asyncio.wait_for(child.wait(), 10)


async def test_timeout_is_the_one_that_zookeeper_grants(zookeeper: ZooKeeper) -> None:
    async with session(zookeeper, 0.1) as shortest, session(zookeeper, 90.0) as longest:
        assert (shortest.timeout, longest.timeout) == (1.0, 10.0)


async def test_end_of_a_session_takes_its_ephemeral_nodes_at_once_and_says_nothing(
    zookeeper: ZooKeeper, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with session(zookeeper) as watching:
        gone = asyncio.Event()
        async with session(zookeeper) as zk:
            await zk.create(path, ephemeral=True)
            assert await watching.find(path, gone.set) is not None
        assert await watching.find(path) is None
        await asyncio.wait_for(gone.wait(), 10)
        assert caplog.messages == []
        assert zk.over
        with pytest.raises(SessionExpiredError):
            await zk.get(path)


async def test_close_returns_when_the_session_has_ended(zookeeper: ZooKeeper, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = False
    stop = ZooKeeperSession._stop_client

    def slowly(self: ZooKeeperSession) -> None:
        nonlocal ended
        time.sleep(0.1)
        stop(self)
        ended = True

    monkeypatch.setattr(ZooKeeperSession, "_stop_client", slowly)
    async with session(zookeeper):
        pass
    assert ended


@pytest.mark.extended
async def test_session_and_its_nodes_outlive_a_restart_of_zookeeper(path: str) -> None:
    with ZooKeeper() as zookeeper:
        async with session(zookeeper, 10.0) as zk:
            await zk.create(path, ephemeral=True)
            await asyncio.to_thread(zookeeper.restart)
            while True:
                try:
                    node = await zk.get(path)
                    break
                except UnknownOutcomeError:
                    await asyncio.sleep(0.05)
            assert node.owner == zk.session_id
            assert not zk.over


async def test_connection_that_breaks_before_the_answer_leaves_the_outcome_unknown(path: str) -> None:
    with ZooKeeper() as zookeeper:
        async with session(zookeeper, 10.0) as zk:
            zookeeper.freeze()
            creating = asyncio.create_task(zk.create(path))
            await asyncio.sleep(0.05)
            assert not creating.done()
            zookeeper.kill()
            with pytest.raises(UnknownOutcomeError):
                await asyncio.wait_for(creating, 10)


async def test_an_answer_to_another_call_costs_the_connection_and_not_the_session(
    zookeeper: ZooKeeper, path: str
) -> None:
    with Proxy(("127.0.0.1", zookeeper.servers[0].port)) as proxy:
        async with session(proxy) as zk:
            await zk.create(path)
            before = zk.session_id
            proxy.damage((2).to_bytes(4, "big"))  # the number of the second call, in its answer
            with pytest.raises(UnknownOutcomeError, match="was lost"):
                await zk.find(path)
            assert proxy.damages == 1
            assert await zk.find(path) is not None
            assert (zk.session_id, zk.over) == (before, False)


async def test_call_without_a_connection_waits_for_one(path: str) -> None:
    with ZooKeeper() as zookeeper:
        connected: asyncio.Queue[bool] = asyncio.Queue()
        async with session(zookeeper, 10.0, connected.put_nowait) as zk:
            assert await connected.get()
            zookeeper.kill()
            assert not await asyncio.wait_for(connected.get(), 10)
            creating = asyncio.create_task(zk.create(path))
            await asyncio.to_thread(zookeeper.start)
            await asyncio.wait_for(creating, 20)
            assert await zk.find(path) is not None


async def test_server_that_says_nothing_does_not_cost_the_session(zookeeper: ZooKeeper) -> None:
    server = ("127.0.0.1", zookeeper.servers[0].port)
    with socket.create_server(("127.0.0.1", 0)) as silent, Proxy(server) as proxy:
        connected: asyncio.Queue[bool] = asyncio.Queue()
        hosts = ",".join(3 * [f"127.0.0.1:{proxy.port}"])
        async with session(hosts, 60.0, connected.put_nowait) as zk:
            assert await connected.get()
            assert zk.timeout < 60, "ZooKeeper has chosen less"
            before = proxy.connections
            proxy.target = silent.getsockname()
            proxy.cut()
            await soon(lambda: proxy.connections > before)
            proxy.target = server
            assert not await asyncio.wait_for(connected.get(), 10)
            assert await asyncio.wait_for(connected.get(), 10)
            assert not zk.over


@pytest.mark.extended
async def test_servers_that_take_no_connection_do_not_cost_the_session(
    zookeeper: ZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("random.shuffle", lambda _: None)  # they are tried in the order of their addresses
    full = [socket.create_server(("127.0.0.1", 0), backlog=0) for _ in range(2)]
    waiting = [socket.create_connection(listener.getsockname()) for listener in full]  # the next one is not answered
    with ExitStack() as stack, Proxy(("127.0.0.1", zookeeper.servers[0].port)) as proxy:
        for it in (*full, *waiting):
            stack.enter_context(it)
        hosts = ",".join(f"127.0.0.1:{port}" for port in (*(it.getsockname()[1] for it in full), proxy.port))
        connected: asyncio.Queue[bool] = asyncio.Queue()
        async with session(hosts, 4.0, connected.put_nowait) as zk:
            assert await connected.get()
            proxy.cut()
            assert not await asyncio.wait_for(connected.get(), 10)
            assert await asyncio.wait_for(connected.get(), 10)
            assert not zk.over


async def test_expired_session_is_over_and_is_not_continued_by_another(zookeeper: ZooKeeper, path: str) -> None:
    with Proxy(("127.0.0.1", zookeeper.servers[0].port)) as proxy:
        async with session(proxy, 1.0) as zk, session(zookeeper) as other:
            await zk.create(path, ephemeral=True)
            before = zk.session_id
            gone = asyncio.Event()
            assert await other.find(path, gone.set) is not None
            proxy.stall()
            await asyncio.wait_for(gone.wait(), 20)
            proxy.resume()
            await asyncio.wait_for(zk.wait_until_over(), 20)
            with pytest.raises(SessionExpiredError):
                await zk.create(path)
            assert zk.session_id == before
            assert await other.find(path) is None


async def test_session_is_over_when_zookeeper_has_lost_what_it_has_seen(
    path: str, caplog: pytest.LogCaptureFixture
) -> None:
    with ZooKeeper() as zookeeper:
        async with session(zookeeper, 2.0) as zk:
            for number in range(20):
                await zk.create(f"{path}{number}")
            await asyncio.to_thread(zookeeper.lose)
            await asyncio.wait_for(zk.wait_until_over(), 20)
            with pytest.raises(SessionExpiredError):
                await zk.create(path)
    assert "has lost data" in caplog.text


@pytest.mark.extended
async def test_session_outlives_a_zookeeper_that_is_away_for_long_and_has_lost_nothing(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    look = ZooKeeperSession._current_zxid

    async def counted(self: ZooKeeperSession) -> int | None:
        nonlocal looks
        looks += 1
        return await look(self)

    monkeypatch.setattr(ZooKeeperSession, "_current_zxid", counted)
    with ZooKeeper() as zookeeper:
        async with session(zookeeper, 3.0) as zk:
            await zk.create(path, ephemeral=True)
            zookeeper.kill()
            await soon(lambda: looks > 1)
            await asyncio.to_thread(zookeeper.start)
            while True:
                try:
                    node = await zk.get(path)
                    break
                except UnknownOutcomeError:
                    await asyncio.sleep(0.05)
            assert node.owner == zk.session_id
            assert not zk.over


async def test_connecting_goes_on_until_there_is_a_zookeeper_and_says_nothing_itself(
    zookeeper: ZooKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    with Proxy(("127.0.0.1", 1)) as proxy, caplog.at_level(logging.INFO):
        zk = ZooKeeperSession(f"127.0.0.1:{proxy.port}", 3.0)
        try:
            connecting = asyncio.create_task(zk.connect())
            await soon(lambda: proxy.connections > 2)
            assert not connecting.done()
            proxy.target = ("127.0.0.1", zookeeper.servers[0].port)
            await asyncio.wait_for(connecting, 20)
            assert zk.session_id
            assert [it for it in caplog.records if it.name == ATTEMPTS.name] == []
        finally:
            await zk.close()
