"""A server among others, in a real ZooKeeper: it keeps nothing that it cannot serve."""

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Iterable, Iterator
from time import CLOCK_BOOTTIME, clock_gettime

import pytest
from kazoo.client import KazooClient
from kazoo.security import OPEN_ACL_UNSAFE, make_acl

from sluice.instance.meta import MetaKind
from sluice.instance.sources.mysql.config import Address, MysqlConfig
from sluice.protocol.errors import FencedError, UnknownDestinationError
from sluice.protocol.paths import SERVERS
from sluice.server.ha.cluster import RETRY, Cluster, ClusterMetaStore, Identity
from sluice.server.ha.election import State
from sluice.server.ha.moves import Move, give_up, rebalance
from sluice.server.ha.operations import Ask, Beat, Done, Loaded, Seen
from sluice.server.ha.zookeeper import ZooKeeperSession
from sluice.store.cursor import StoredClient
from tests.integration.test_zookeeper import session
from tests.servers import ZooKeeper, nodes
from tests.source import eventually

NAME = "orders"
IDENTITY = Identity("127.0.0.1:1", "http://127.0.0.1:2")


class Host:
    """Destinations that cannot start, for a reason that was not foreseen."""

    async def activate(self, destination: str, meta: ClusterMetaStore) -> None:
        raise OSError(24, "Too many open files")

    async def deactivate(self, destination: str) -> None:
        raise AssertionError("it never started")


def configure(destination: str) -> MysqlConfig:
    return MysqlConfig(
        destination=destination, master_address=Address("127.0.0.1", 1), db_username="cdc", meta=MetaKind.ZOOKEEPER
    )


class SlowHost(Host):
    """Its destinations take a moment to stop."""

    stopped = False

    async def activate(self, destination: str, meta: ClusterMetaStore) -> None:
        pass

    async def deactivate(self, destination: str) -> None:
        await asyncio.sleep(0.2)
        self.stopped = True


@contextlib.asynccontextmanager
async def taking_part(zookeeper: ZooKeeper, path: str = "", host: Host | None = None) -> AsyncIterator[Cluster]:
    cluster = Cluster(f"{zookeeper.hosts}{path}", 4.0, IDENTITY, host or Host(), configure)
    running = asyncio.create_task(cluster.run())
    cluster.start(NAME)
    try:
        yield cluster
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


OWNER, OTHER = "127.0.0.1:1", "127.0.0.1:2"


@contextlib.contextmanager
def owned(zookeeper: ZooKeeper, destinations: Iterable[str], **more: object) -> Iterator[None]:
    """Let the first of two servers have these destinations."""
    with nodes(zookeeper.hosts) as zk:
        if zk.exists("/otter"):
            zk.delete("/otter", recursive=True)
        for server in (OWNER, OTHER):
            zk.create(f"/otter/canal/cluster/{server}", makepath=True)
        for name in destinations:
            data = json.dumps({"active": True, "address": OWNER, **more}).encode()
            zk.create(f"/otter/canal/destinations/{name}/running", data, makepath=True)
        yield
        zk.delete("/otter", recursive=True)


def owners(zookeeper: ZooKeeper) -> dict[str, dict[str, object]]:
    """What is said about the owners of the destinations that have one."""
    with nodes(zookeeper.hosts) as zk:
        paths = {it: f"/otter/canal/destinations/{it}/running" for it in zk.get_children("/otter/canal/destinations")}
        return {name: json.loads(zk.get(path)[0]) for name, path in paths.items() if zk.exists(path)}


async def test_an_owner_is_told_to_give_a_destination_up(zookeeper: ZooKeeper) -> None:
    with owned(zookeeper, ["a", "b"], kept="as it was"):
        async with session(zookeeper) as zk:
            assert await give_up(zk, "a", OTHER) == Move("a", OWNER, OTHER)
            with pytest.raises(UnknownDestinationError, match="no server has the destination 'c'"):
                await give_up(zk, "c")
        said = {"address": OWNER, "kept": "as it was"}
        assert owners(zookeeper) == {"a": {"active": False, **said}, "b": {"active": True, **said}}


async def test_a_server_that_has_too_many_destinations_is_told_to_give_some_up(
    zookeeper: ZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    async def told(session: ZooKeeperSession, destination: str, wanted: str = "") -> Move:
        asked.append(destination)
        if len(asked) == 1:
            raise UnknownDestinationError("it is moving already")
        return await give_up(session, destination, wanted)

    monkeypatch.setattr("sluice.server.ha.moves.give_up", told)
    with owned(zookeeper, "abcdef"):
        async with session(zookeeper) as zk:
            await zk.ensure("/otter/canal/destinations/without an owner")
            moves = await rebalance(zk)
        assert len(asked) == 3, "half of them"
        assert [(it.destination, it.owner, it.wanted) for it in moves] == [(it, OWNER, OTHER) for it in asked[1:]]
        given_up = {name for name, data in owners(zookeeper).items() if not data["active"]}
        assert given_up == set(asked[1:])


def serves(cluster: Cluster) -> bool:
    """Whether a server has the destination, and knows that its session lives."""
    try:
        cluster.check(NAME)
    except FencedError:
        return False
    return cluster.active(NAME) == IDENTITY.address


class KeepingHost(SlowHost):
    """It keeps where the cursors of its destinations are stored."""

    meta: ClusterMetaStore

    async def activate(self, destination: str, meta: ClusterMetaStore) -> None:
        self.meta = meta


async def test_cursors_are_stored_for_the_owner_alone(zookeeper: ZooKeeper) -> None:
    host = KeepingHost()
    client = StoredClient(1001, r"shop\..*")
    root = f"/otter/canal/destinations/{NAME}"
    async with taking_part(zookeeper, host=host) as cluster:
        await eventually(lambda: serves(cluster))
        epoch, clients = await host.meta.open()
        assert clients == []
        await host.meta.write({1001: client}, epoch)
        with nodes(zookeeper.hosts) as zk:
            assert zk.get(f"{root}/1001/filter")[0] == rb"shop\..*"
            zk.set(f"{root}/sluice", zk.get(f"{root}/sluice")[0])  # as a server does that takes over
            with pytest.raises(FencedError):
                await host.meta.write({1001: None}, epoch)
            assert zk.exists(f"{root}/1001") is not None
            zk.delete(root, recursive=True)


async def test_one_that_is_stopped_is_free_for_others_and_can_be_started_again(zookeeper: ZooKeeper) -> None:
    root = f"/otter/canal/destinations/{NAME}"
    host = SlowHost()
    async with taking_part(zookeeper, host=host) as cluster:
        for _ in range(2):
            await eventually(lambda: serves(cluster))
            with nodes(zookeeper.hosts) as zk:
                await eventually(lambda: zk.exists(f"{root}/cluster/{IDENTITY.address}") is not None)
                host.stopped = False
                await cluster.stop(NAME)
                assert host.stopped
                assert zk.exists(f"{root}/running") is None
                await eventually(lambda: zk.exists(f"{root}/cluster/{IDENTITY.address}") is None)
            with pytest.raises(FencedError, match=NAME):
                cluster.check(NAME)
            cluster.start(NAME)


def end_session(zookeeper: ZooKeeper, session: ZooKeeperSession | None) -> None:
    """Close a session from elsewhere: to its owner it has expired."""
    assert session is not None
    same = KazooClient(zookeeper.hosts, client_id=session._client.client_id)
    same.start()
    same.stop()
    same.close()


async def test_a_destination_is_stopped_when_the_session_is_over_and_taken_again_in_the_next_one(
    zookeeper: ZooKeeper,
) -> None:
    host = SlowHost()
    async with taking_part(zookeeper, host=host) as cluster:
        await eventually(lambda: serves(cluster))
        before = cluster._session
        await asyncio.to_thread(end_session, zookeeper, before)
        await eventually(lambda: host.stopped)
        await eventually(lambda: serves(cluster))
        assert cluster._session is not before
        assert cluster.problem_of(NAME) == ""


async def test_a_lost_connection_is_said_until_it_is_there_again(
    zookeeper: ZooKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "sluice"):
        async with taking_part(zookeeper, host=SlowHost()) as cluster:
            await eventually(lambda: serves(cluster))
            assert cluster.problem == ""
            await asyncio.to_thread(zookeeper.restart)
            await eventually(lambda: "is there again" in caplog.text)
            assert "is lost; it is tried again" in caplog.text
            assert cluster.problem == ""
            await eventually(lambda: serves(cluster))


async def test_what_cannot_be_started_is_left_to_others(zookeeper: ZooKeeper) -> None:
    async with taking_part(zookeeper) as cluster:
        await eventually(lambda: "Too many open files" in cluster.problem_of(NAME))
        with nodes(zookeeper.hosts) as zk:
            await eventually(lambda: zk.exists(f"/otter/canal/destinations/{NAME}/running") is None)


async def test_one_that_is_configured_no_more_is_left_to_others(
    zookeeper: ZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forget(destination: str) -> MysqlConfig:
        raise UnknownDestinationError(f"no destination {destination!r} is configured here")

    monkeypatch.setattr(f"{__name__}.configure", forget)
    async with taking_part(zookeeper) as cluster:
        await eventually(lambda: "is configured here" in cluster.problem_of(NAME))
        with nodes(zookeeper.hosts) as zk:
            await eventually(lambda: zk.exists(f"/otter/canal/destinations/{NAME}/running") is None)


async def test_a_destination_is_stopped_when_it_is_also_without_a_session() -> None:
    host = SlowHost()
    cluster = Cluster("127.0.0.1:1", 4.0, IDENTITY, host, configure)
    cluster.start(NAME)
    now = clock_gettime(CLOCK_BOOTTIME)
    cluster.member.opened(1, 60.0, now)
    for outcome in (Seen(None, 4, 7), Done(8), Loaded(())):
        for ask in cluster.member.take_actions():
            assert isinstance(ask, Ask)
            cluster.member.answered(ask.number, Done() if isinstance(ask.operation, Beat) else outcome, now)
    cluster.check(NAME)
    cluster.member.expired(now)
    await cluster.stop(NAME)
    assert host.stopped


async def test_a_destination_is_taken_over_with_its_configuration_at_that_time(zookeeper: ZooKeeper) -> None:
    async with taking_part(zookeeper, host=SlowHost()) as cluster:
        await eventually(lambda: cluster.member.election(NAME).state is State.ACTIVE)
        before = cluster._clients[NAME]
        await cluster.stop(NAME)
        cluster.start(NAME)
        await eventually(lambda: cluster.member.election(NAME).state is State.ACTIVE)
        assert cluster._clients[NAME] is not before


async def test_destinations_take_part_whether_they_are_started_before_the_session_while_it_begins_or_later(
    zookeeper: ZooKeeper,
) -> None:
    names = [f"d{number}" for number in range(40)]
    async with taking_part(zookeeper) as cluster:
        for name in names:
            cluster.start(name)
            await asyncio.sleep(0.005)
        await eventually(lambda: all("Too many open files" in cluster.problem_of(name) for name in names))
        with nodes(zookeeper.hosts) as zk:
            paths = [f"/otter/canal/destinations/{name}/cluster/{IDENTITY.address}" for name in names]
            await eventually(lambda: all(map(zk.exists, paths)))


async def test_it_registers_as_soon_as_zookeeper_lets_it(
    zookeeper: ZooKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    with nodes(zookeeper.hosts) as zk, caplog.at_level(logging.WARNING, "sluice"):
        zk.ensure_path(SERVERS)
        zk.set_acls(SERVERS, [make_acl("world", "anyone", read=True, admin=True)])
        async with taking_part(zookeeper):
            await eventually(lambda: f"refuses {SERVERS}/{IDENTITY.address}: NoAuthError" in caplog.text)
            zk.set_acls(SERVERS, OPEN_ACL_UNSAFE)
            await eventually(lambda: zk.exists(f"{SERVERS}/{IDENTITY.address}"))


async def test_a_path_that_zookeeper_does_not_have_is_asked_for_once(
    zookeeper: ZooKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    with nodes(zookeeper.hosts) as zk, caplog.at_level(logging.WARNING, "sluice"):
        async with taking_part(zookeeper, "/shops/berlin") as cluster:
            await eventually(lambda: cluster.problem_of(NAME).endswith("has no /shops/berlin: create it"))
            await asyncio.sleep(2 * RETRY)
            assert len([it for it in caplog.messages if it == cluster.problem_of(NAME)]) == 1
            zk.create("/shops")
            await eventually(lambda: "Too many open files" in cluster.problem_of(NAME))
            await eventually(lambda: zk.exists(f"/shops/berlin{SERVERS}/{IDENTITY.address}"))


async def test_it_begins_as_soon_as_zookeeper_lets_it(zookeeper: ZooKeeper, caplog: pytest.LogCaptureFixture) -> None:
    with nodes(zookeeper.hosts) as zk, caplog.at_level(logging.WARNING, "sluice"):
        zk.delete("/otter", recursive=True)
        zk.create("/otter", acl=[make_acl("world", "anyone", read=True, admin=True)])
        async with taking_part(zookeeper) as cluster:
            await eventually(lambda: "refuses /otter" in caplog.text)
            zk.set_acls("/otter", OPEN_ACL_UNSAFE)
            await eventually(lambda: zk.exists(f"{SERVERS}/{IDENTITY.address}"))
            await eventually(lambda: cluster.member.servers == {IDENTITY.address: IDENTITY.url})
            await eventually(lambda: "Too many open files" in cluster.problem_of(NAME))


async def test_another_session_begins_after_an_unforeseen_failure(
    zookeeper: ZooKeeper, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(_: ZooKeeperSession) -> None:
        raise RuntimeError("can't start new thread")

    with nodes(zookeeper.hosts) as zk, monkeypatch.context() as patch:
        patch.setattr(ZooKeeperSession, "connect", fails)
        async with taking_part(zookeeper):
            await eventually(lambda: "can't start new thread" in caplog.text)
            patch.undo()
            await eventually(lambda: zk.exists(f"{SERVERS}/{IDENTITY.address}"))
