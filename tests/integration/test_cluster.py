"""A server among others, in a real ZooKeeper: it keeps nothing that it cannot serve."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from time import CLOCK_BOOTTIME, clock_gettime

import pytest
from kazoo.security import OPEN_ACL_UNSAFE, make_acl

from sluice.instance.meta import MetaKind
from sluice.instance.sources.mysql.config import Address, MysqlConfig
from sluice.protocol.errors import UnknownDestinationError
from sluice.server.ha.cluster import RETRY, SERVERS, Cluster, ClusterMetaStore, Identity
from sluice.server.ha.election import State
from sluice.server.ha.operations import Ask, Beat, Done, Loaded, Seen
from sluice.server.ha.zookeeper import ZooKeeperSession
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


async def test_a_destination_is_taken_over_as_it_is_configured_then(zookeeper: ZooKeeper) -> None:
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


async def test_another_session_begins_after_a_failure_that_nobody_foresaw(
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
