"""A server among others, in a real ZooKeeper: it keeps nothing that it cannot serve."""

import asyncio
import contextlib
import json
import logging
import math
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from time import CLOCK_BOOTTIME, clock_gettime
from typing import Literal

import pytest
from kazoo.client import KazooClient
from kazoo.security import OPEN_ACL_UNSAFE, make_acl

from sluice.instance.meta import MetaKind
from sluice.instance.meta.base import InUse
from sluice.instance.meta.nodes import Node, UnknownOutcomeError, Watch
from sluice.instance.meta.zookeeper import ZooKeeperClients, epoch_data
from sluice.instance.serving.tail import Followed
from sluice.instance.sources.mysql.config import Address, MysqlConfig
from sluice.protocol.errors import ConfigError, FencedError, UnknownDestinationError, ZooKeeperError
from sluice.protocol.paths import GROUP, SERVERS, destination_node, epoch_node
from sluice.protocol.position import Position
from sluice.server.ha import cluster as cluster_module
from sluice.server.ha.cluster import Cluster, ClusterMetaStore, Identity
from sluice.server.ha.election import State
from sluice.server.ha.moves import Move, give_up, rebalance
from sluice.server.ha.operations import Ask, Beat, Done, Loaded, OfDestination, Outcome, Seen
from sluice.server.ha.zookeeper import ZooKeeperSession
from sluice.store.cursor import Changes, Cursor, StoredClient
from tests.integration.test_zookeeper import session
from tests.proxy import Proxy
from tests.servers import ZooKeeper, nodes
from tests.waiting import soon

NAME = "orders"
IDENTITY = Identity("127.0.0.1:1", "http://127.0.0.1:2")


class Host:
    """Destinations that cannot start, for a reason that was not foreseen."""

    async def activate(self, destination: str, meta: ClusterMetaStore) -> None:
        raise OSError(24, "Too many open files")

    async def deactivate(self, destination: str) -> None:
        raise AssertionError("it never started")

    async def tend_log(self, destination: str) -> None:
        """It has nothing that could follow."""

    def log_start(self, destination: str) -> Cursor | None:
        return self.log

    log: Cursor | None = None
    """Where its log begins."""


CURSOR = Cursor("binlog.000003", 4, 1_700_000_000_000, 1, "", Position("1", "binlog.000003", 1_700_000_000, 4, 0))


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
async def taking_part(
    zookeeper: ZooKeeper | Proxy,
    path: str = "",
    host: Host | None = None,
    seconds: float = 4.0,
    identity: Identity = IDENTITY,
) -> AsyncIterator[Cluster]:
    hosts = zookeeper.hosts if isinstance(zookeeper, ZooKeeper) else f"127.0.0.1:{zookeeper.port}"
    cluster = Cluster(f"{hosts}{path}", seconds, identity, host or Host(), configure)
    running = asyncio.create_task(cluster.run())
    cluster.start(NAME)
    try:
        yield cluster
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the files of the servers be in a folder of the test."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def empty(zookeeper: ZooKeeper) -> Iterator[KazooClient]:
    """A client of a ZooKeeper that no server has used yet."""
    with nodes(zookeeper.hosts) as zk:
        if zk.exists("/otter"):
            zk.delete("/otter", recursive=True)
        yield zk


OWNER, OTHER = "127.0.0.1:1", "127.0.0.1:2"
ROOT = f"/otter/canal/destinations/{NAME}"


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


class LoggingHost(SlowHost):
    """It has a log of its destination."""

    def __init__(self, begin: int, source: str = "1", gtids: str = "") -> None:
        place = Position(source, "binlog.000003", 1_700_000_000, begin, 0)
        self.log = Cursor.at(place, gtids) if begin else None
        self.begin = str(place)


@pytest.mark.usefixtures("empty")
async def test_servers_know_from_where_on_all_of_them_have_the_changes(
    zookeeper: ZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_module, "PUBLISHING", 0.05)
    first, second, third = LoggingHost(400), LoggingHost(500), LoggingHost(0)
    names = [Identity(f"127.0.0.1:{number}", "http://127.0.0.1:2") for number in (1, 2, 3)]
    async with taking_part(zookeeper, host=first, identity=names[0]) as one:
        await soon(lambda: one.held(NAME) == first.begin)
        async with taking_part(zookeeper, host=second, identity=names[1]) as other:
            await soon(lambda: one.held(NAME) == other.held(NAME) == second.begin)
            later = LoggingHost(600)
            first.log = later.log  # its oldest files went
            await soon(lambda: one.held(NAME) == other.held(NAME) == later.begin)
            async with taking_part(zookeeper, host=third, identity=names[2]) as last:
                await soon(lambda: not one.held(NAME) and not other.held(NAME))
                assert last.held(NAME) == ""
            await soon(lambda: one.held(NAME) == later.begin)


@pytest.mark.usefixtures("empty")
async def test_gtids_say_from_where_on_all_servers_have_the_changes_when_their_logs_begin_at_two_sources(
    zookeeper: ZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_module, "PUBLISHING", 0.05)
    first, second = LoggingHost(900, "1", "0-1-7"), LoggingHost(400, "2", "0-1-9")
    names = [Identity(f"127.0.0.1:{number}", "http://127.0.0.1:2") for number in (1, 2)]
    async with (
        taking_part(zookeeper, host=first, identity=names[0]) as one,
        taking_part(zookeeper, host=second, identity=names[1]) as other,
    ):
        await soon(lambda: one.held(NAME) == other.held(NAME) == second.begin)
        assert one.held(NAME) == second.begin
        first.log = LoggingHost(900, "1", "0-1-12").log
        await soon(lambda: one.held(NAME) == other.held(NAME) == first.begin)
        first.log = LoggingHost(900, "1").log
        await soon(lambda: one.held(NAME) == other.held(NAME) == "")


@pytest.mark.usefixtures("empty")
async def test_who_stands_by_sees_protected_clients_also_of_views_and_which_source_is_read(
    zookeeper: ZooKeeper,
) -> None:
    source, mine = InUse("db2:3306"), StoredClient(7, cursor=CURSOR, protected=True)
    async with taking_part(zookeeper, host=SlowHost()) as cluster, session(zookeeper) as zk:
        await soon(lambda: cluster.participant.election(NAME).state is State.ACTIVE)
        with pytest.raises(ZooKeeperError, match="other has no epoch"):
            await cluster.follow("other", ["view"])
        await zk.ensure(epoch_node("other").rpartition("/")[0])
        await zk.create(epoch_node("other"), epoch_data(1))
        await ZooKeeperClients(zk, "other", ("db", 3306)).store(0, Changes({7: mine}), None, source)
        assert await cluster.follow("other", ["view"]) == Followed(source, {7: mine})
        view = ZooKeeperClients(zk, "view", ("db", 3306), fence="other")
        await zk.ensure(destination_node("view"))
        await view.store(0, Changes({7: replace(mine, filter="shop.orders"), 8: replace(mine, client_id=8)}), None)
        found = await cluster.follow("other", ["view"])
        assert found.source == source
        assert [(it.client_id, it.filter, it.cursor, it.protected) for it in found.clients.values()] == [
            (7, "", CURSOR, True),
            (7, "shop.orders", CURSOR, True),
            (8, "", CURSOR, True),
        ]


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

    async def epoch(self) -> int:
        """Return the epoch of the destination, once that is handed over: the server has it a moment before."""
        await soon(lambda: "meta" in vars(self))
        return (await self.meta.open())[0]


async def test_it_registers_in_an_empty_zookeeper_and_stores_the_first_cursors_there(
    empty: KazooClient, zookeeper: ZooKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    host = KeepingHost()
    with caplog.at_level(logging.WARNING, "sluice"):
        async with taking_part(zookeeper, host=host) as cluster:
            await soon(lambda: serves(cluster))
            epoch = await host.epoch()
            await host.meta.write(Changes({1001: StoredClient(1001, "first")}), epoch)
            assert empty.get(f"{ROOT}/1001/filter")[0] == b"first"
            paths = [f"{parent}/{IDENTITY.address}" for parent in (SERVERS, f"{ROOT}/cluster")]
            await soon(lambda: all(map(empty.exists, paths)))
    assert caplog.messages == []


@pytest.mark.parametrize("log_position", ["parse", "failback"])
async def test_place_of_the_clients_is_told_where_it_is_kept(
    zookeeper: ZooKeeper, monkeypatch: pytest.MonkeyPatch, log_position: Literal["parse", "failback"]
) -> None:
    def kept(destination: str) -> MysqlConfig:
        address = Address("127.0.0.1", 1)
        return MysqlConfig(
            destination=destination, master_address=address, db_username="cdc", log_position=log_position
        )

    monkeypatch.setattr(f"{__name__}.configure", kept)
    host = KeepingHost()
    async with taking_part(zookeeper, host=host) as cluster:
        assert cluster.place(NAME) is None
        await soon(lambda: serves(cluster))
        epoch = await host.epoch()
        await host.meta.write(Changes({1001: StoredClient(1001, "", CURSOR)}), epoch)
        assert host.meta.place == (CURSOR if log_position == "parse" else None)
        await host.meta.write(Changes({1001: None}), epoch)


async def test_nothing_that_is_done_waits_for_the_next_beat(
    zookeeper: ZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sluice.server.ha.participant.BEATS", 0.01)  # of the first one the lease is as long as the test
    under_way = most = 0
    do = Cluster._do

    async def counted(self: Cluster, operation: Beat | OfDestination, session: ZooKeeperSession) -> Outcome:
        nonlocal under_way, most
        if isinstance(operation, Beat):
            return await do(self, operation, session)
        under_way += 1
        most = max(most, under_way)
        try:
            return await do(self, operation, session)
        finally:
            under_way -= 1

    monkeypatch.setattr(Cluster, "_do", counted)
    host = KeepingHost()
    with nodes(zookeeper.hosts) as zk:
        async with taking_part(zookeeper, host=host, seconds=10.0) as cluster, asyncio.timeout(6):
            await soon(lambda: serves(cluster))
            epoch = await host.epoch()
            await host.meta.write(Changes({1001: None}), epoch)
            writing = asyncio.create_task(host.meta.write(Changes({1002: None}), epoch))
            await asyncio.sleep(0)
            zk.create(f"{ROOT}/cluster/127.0.0.1:9", b"{}")  # it looks which server it is
            await writing
            assert most == 1, "one after the other"
            zk.delete(f"{ROOT}/cluster/127.0.0.1:9")
            await asyncio.sleep(0.1)  # it looks no more: nothing else is under way
            zk.set(f"{ROOT}/running", zk.get(f"{ROOT}/running")[0].replace(b"true", b"false"))
            await soon(lambda: host.stopped)
            await soon(lambda: cluster.participant.election(NAME).deadline < math.inf)
            await asyncio.sleep(0.1)
            cluster.start("late")
            await soon(lambda: cluster.participant.election("late").state is State.ACTIVE, seconds=4)
            host.stopped = False
            await cluster.stop("late")
            assert host.stopped
            assert cluster.participant.election("late").state is State.STOPPED
            await soon(lambda: not [task for task in cluster._tasks if task.done()])


async def test_servers_of_one_zookeeper_have_a_name_in_common_that_stays(
    zookeeper: ZooKeeper, empty: KazooClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = set()
    for _ in range(2):
        async with taking_part(zookeeper, host=KeepingHost()) as cluster:
            await soon(lambda: serves(cluster))
            names |= {await cluster.group(), await cluster.group()}
    (name,) = names
    assert name
    empty.delete(GROUP)
    async with taking_part(zookeeper, host=KeepingHost()) as cluster:
        await soon(lambda: serves(cluster))
        assert await cluster.group() == name, "a server remembers it"
    empty.delete("/otter", recursive=True)
    (tmp_path / "new").mkdir()
    monkeypatch.chdir(tmp_path / "new")  # a server that has known neither
    async with taking_part(zookeeper, host=KeepingHost()) as cluster:
        await soon(lambda: serves(cluster))
        assert await cluster.group() != name


async def test_the_common_name_is_not_known_without_a_session() -> None:
    with pytest.raises(ZooKeeperError, match="no session with ZooKeeper yet"):
        await Cluster("127.0.0.1:1", 4.0, IDENTITY, Host(), configure).group()


async def test_cursors_are_stored_for_the_owner_alone(zookeeper: ZooKeeper) -> None:
    host = KeepingHost()
    client = StoredClient(1001, r"shop\..*")
    root = f"/otter/canal/destinations/{NAME}"
    async with taking_part(zookeeper, host=host) as cluster:
        await soon(lambda: serves(cluster))
        epoch, clients = await host.meta.open()
        assert clients == []
        await host.meta.write(Changes({1001: client}), epoch)
        with nodes(zookeeper.hosts) as zk:
            assert zk.get(f"{root}/1001/filter")[0] == rb"shop\..*"
            zk.set(f"{root}/sluice", zk.get(f"{root}/sluice")[0])  # as a server does that takes over
            with pytest.raises(FencedError):
                await host.meta.write(Changes({1001: None}), epoch)
            assert zk.exists(f"{root}/1001") is not None
            zk.delete(root, recursive=True)


async def test_one_that_is_stopped_is_free_for_others_and_can_be_started_again(zookeeper: ZooKeeper) -> None:
    root = f"/otter/canal/destinations/{NAME}"
    host = SlowHost()
    async with taking_part(zookeeper, host=host) as cluster:
        for _ in range(2):
            await soon(lambda: serves(cluster))
            with nodes(zookeeper.hosts) as zk:
                await soon(lambda: zk.exists(f"{root}/cluster/{IDENTITY.address}") is not None)
                host.stopped = False
                await cluster.stop(NAME)
                assert host.stopped
                assert zk.exists(f"{root}/running") is None
                await soon(lambda: zk.exists(f"{root}/cluster/{IDENTITY.address}") is None)
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
        await soon(lambda: serves(cluster))
        before = cluster._session
        await asyncio.to_thread(end_session, zookeeper, before)
        await soon(lambda: host.stopped)
        await soon(lambda: serves(cluster))
        assert cluster._session is not before
        assert cluster.problem_of(NAME) == ""


async def test_a_lost_connection_is_said_until_it_is_there_again(
    zookeeper: ZooKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "sluice"):
        async with taking_part(zookeeper, host=SlowHost()) as cluster:
            await soon(lambda: serves(cluster))
            assert cluster.problem == ""
            await asyncio.to_thread(zookeeper.restart)
            await soon(lambda: "the connection to ZooKeeper is restored" in caplog.text)
            assert "is lost; it is tried again" in caplog.text
            assert cluster.problem == ""
            await soon(lambda: serves(cluster))


async def test_what_changes_while_the_connection_is_lost_is_seen_when_it_is_there_again(zookeeper: ZooKeeper) -> None:
    host = SlowHost()
    server = ("127.0.0.1", zookeeper.servers[0].port)
    with nodes(zookeeper.hosts) as zk, Proxy(server) as proxy:
        async with taking_part(proxy, host=host, seconds=10.0) as cluster:
            await soon(lambda: serves(cluster))
            proxy.target = ("127.0.0.1", 1)
            proxy.cut()
            await soon(lambda: cluster.problem)
            assert not host.stopped
            zk.set(f"{ROOT}/running", zk.get(f"{ROOT}/running")[0].replace(b"true", b"false"))
            zk.create(f"{SERVERS}/{OTHER}", Identity(OTHER, "http://other").data, ephemeral=True)
            proxy.target = server
            await soon(lambda: OTHER in cluster.participant.servers)
            await soon(lambda: host.stopped)
            assert cluster.participant.servers == {IDENTITY.address: IDENTITY.url, OTHER: "http://other"}
            assert cluster.problem == ""


async def test_it_serves_while_zookeeper_answers_and_not_much_longer(
    zookeeper: ZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    outdated = 0
    tick = Cluster._tick

    def counted(self: Cluster) -> None:
        nonlocal outdated
        outdated += self.participant.deadline > clock_gettime(CLOCK_BOOTTIME) + 0.05
        tick(self)

    monkeypatch.setattr(Cluster, "_tick", counted)
    with Proxy(("127.0.0.1", zookeeper.servers[0].port)) as proxy:
        async with taking_part(proxy, host=SlowHost(), seconds=1.0) as cluster:
            await soon(lambda: serves(cluster))
            await asyncio.sleep(1.0)
            await soon(lambda: serves(cluster))
            assert outdated == 0, "it looks at the clock when something is due"
            proxy.stall()
            await soon(lambda: not serves(cluster))


async def test_a_destination_is_stopped_as_soon_as_the_session_is_over_and_not_with_the_next_one(
    zookeeper: ZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def connecting(_: ZooKeeperSession) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr("sluice.server.ha.participant.BEATS", 0.01)
    host = SlowHost()
    async with taking_part(zookeeper, host=host, seconds=10.0) as cluster:
        await soon(lambda: serves(cluster))
        monkeypatch.setattr(ZooKeeperSession, "connect", connecting)
        await asyncio.to_thread(end_session, zookeeper, cluster._session)
        await soon(lambda: host.stopped, seconds=5)
        with pytest.raises(FencedError, match=r"\(no session with ZooKeeper yet\)$"):
            cluster.check(NAME)


async def test_a_question_without_an_answer_keeps_nothing_in_the_next_session_from_being_asked(
    zookeeper: ZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    get = ZooKeeperSession.get
    answers = asyncio.Event()
    answers.set()
    silent = False
    asked: list[str] = []

    async def unanswered(self: ZooKeeperSession, path: str, watch: Watch | None = None) -> Node:
        nonlocal silent
        asked.append(path)
        if not answers.is_set() and path == f"{ROOT}/running":
            silent = True
            await asyncio.Event().wait()
        return await get(self, path, watch)

    monkeypatch.setattr(ZooKeeperSession, "get", unanswered)
    with nodes(zookeeper.hosts) as zk:
        async with taking_part(zookeeper, host=SlowHost()) as cluster:
            await soon(lambda: serves(cluster))
            answers.clear()
            zk.set(f"{ROOT}/running", zk.get(f"{ROOT}/running")[0])
            await soon(lambda: silent)
            answers.set()
            asked.clear()
            before = cluster._session
            await asyncio.to_thread(end_session, zookeeper, before)
            await soon(lambda: cluster._session is not before and serves(cluster))
            assert f"{ROOT}/running" in asked


class StuckHost(SlowHost):
    """Its destinations never come to an end."""

    cancelled = False

    async def deactivate(self, destination: str) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise


async def test_nothing_goes_on_when_it_takes_part_no_more(
    zookeeper: ZooKeeper, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("sluice.server.ha.cluster.STOPPING", 0.01)
    host = StuckHost()
    async with taking_part(zookeeper, host=host) as cluster:
        await soon(lambda: serves(cluster))
        await cluster.stop(NAME)
        assert "it is not released after 0.01 s" in caplog.text
    await soon(lambda: host.cancelled)


async def test_nothing_goes_on_when_it_takes_part_no_more_before_zookeeper_was_reached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sluice.server.ha.cluster.PATIENCE", 0.01)
    cluster = Cluster("127.0.0.1:1", 4.0, IDENTITY, Host(), configure)
    before = asyncio.all_tasks()
    running = asyncio.create_task(cluster.run())
    await soon(lambda: "cannot be reached" in cluster.problem)
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled()
    await soon(lambda: asyncio.all_tasks() == before)


async def test_it_registers_when_the_node_of_an_earlier_process_at_its_address_is_gone(
    zookeeper: ZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = ZooKeeperSession.find
    found: Counter[str] = Counter()

    async def counted(self: ZooKeeperSession, path: str, watch: Watch | None = None) -> Node | None:
        found[path] += 1
        return await find(self, path, watch)

    monkeypatch.setattr(ZooKeeperSession, "find", counted)
    paths = [f"{parent}/{IDENTITY.address}" for parent in (SERVERS, f"{ROOT}/cluster")]
    with nodes(zookeeper.hosts) as zk, nodes(zookeeper.hosts) as earlier:
        for path in paths:
            earlier.create(path, IDENTITY.data, ephemeral=True, makepath=True)
        async with taking_part(zookeeper, host=SlowHost()) as cluster:
            await soon(lambda: serves(cluster))
            assert found[paths[0]] <= 2, "it looks which servers live, and waits"
            earlier.stop()
            session = cluster._session
            assert session is not None
            await soon(lambda: owners_of(zk, paths) == {session.session_id})


def owners_of(zk: KazooClient, paths: Iterable[str]) -> set[int]:
    """The sessions that nodes live as long as."""
    return {node.owner_session_id if node else 0 for node in map(zk.exists, paths)}


async def test_one_that_is_stopped_leaves_the_node_of_another_process_at_its_address_alone(
    zookeeper: ZooKeeper,
) -> None:
    path = f"{ROOT}/cluster/{IDENTITY.address}"
    with nodes(zookeeper.hosts) as zk:
        zk.create(path, IDENTITY.data, ephemeral=True, makepath=True)
        async with taking_part(zookeeper, host=SlowHost()) as cluster:
            await soon(lambda: serves(cluster))
            session = cluster._session
            assert session is not None
            await cluster._unregister(session, NAME)
            assert zk.exists(path)


@pytest.mark.parametrize("step", ["connect", "ensure"])
async def test_what_fails_is_tried_again_after_a_pause(
    zookeeper: ZooKeeper, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    tried: Counter[object] = Counter()

    async def fails(_: ZooKeeperSession, *arguments: object) -> None:
        tried[arguments] += 1
        raise ZooKeeperError("not today")

    monkeypatch.setattr("sluice.server.ha.cluster.RETRY", 600.0)
    monkeypatch.setattr(ZooKeeperSession, step, fails)
    async with taking_part(zookeeper) as cluster:
        await soon(lambda: (step == "connect" and tried) or cluster.problem_of(NAME) == "not today")
        await asyncio.sleep(0.1)
    assert max(tried.values()) <= 2, "the servers' folder is asked for twice"


@pytest.mark.parametrize("with_epoch", [False, True])
async def test_what_canals_own_server_has_is_left_to_it(
    empty: KazooClient, zookeeper: ZooKeeper, caplog: pytest.LogCaptureFixture, with_epoch: bool
) -> None:
    if with_epoch:  # that an earlier server has left there
        empty.create(f"{ROOT}/sluice", epoch_data(7), makepath=True)
    with nodes(zookeeper.hosts) as canal:
        canal.create(f"{ROOT}/running", b'{"active":true,"address":"10.0.0.9:11111"}', ephemeral=True, makepath=True)
        async with taking_part(zookeeper) as cluster:
            await soon(lambda: cluster.problem_of(NAME).startswith("10.0.0.9:11111 serves it"))
            assert cluster.participant.election(NAME).state is State.REFUSED
            assert cluster.problem_of(NAME) in caplog.messages


async def test_a_canal_server_in_the_way_is_said_and_that_it_is_gone(
    empty: KazooClient, zookeeper: ZooKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    canal = f"{ROOT}/cluster/10.0.0.9:11111"
    empty.create(canal, makepath=True)
    async with taking_part(zookeeper, host=SlowHost()) as cluster:
        await soon(lambda: "stop 10.0.0.9:11111" in caplog.text)
        empty.delete(canal)
        await soon(lambda: serves(cluster))
        assert "the error is resolved" in caplog.messages
        assert len(caplog.messages) == 2


class FailingHost(SlowHost):
    """Its destinations can be neither started nor stopped, for a reason that was foreseen, or one that was not."""

    def __init__(self, starting: Exception | None, stopping: Exception) -> None:
        self._starting = starting
        self._stopping = stopping

    async def activate(self, destination: str, meta: ClusterMetaStore) -> None:
        if self._starting is not None:
            raise self._starting

    async def deactivate(self, destination: str) -> None:
        raise self._stopping


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ConfigError("the folder cannot be written"), "the folder cannot be written"),
        (ValueError("no"), "ValueError: no"),
    ],
)
async def test_why_one_cannot_be_started_is_said(
    zookeeper: ZooKeeper, error: Exception, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with taking_part(zookeeper, host=FailingHost(error, error)) as cluster:
        await soon(lambda: cluster.problem_of(NAME) == said)
        assert said in caplog.messages


async def test_one_that_cannot_be_stopped_properly_is_given_up_all_the_same_and_why_is_said(
    zookeeper: ZooKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    async with taking_part(zookeeper, host=FailingHost(None, ConfigError("its cursors are not stored"))) as cluster:
        await soon(lambda: serves(cluster))
        await cluster.stop(NAME)
        assert cluster.participant.election(NAME).state is State.STOPPED
        assert cluster.problem_of(NAME) == ""
    assert "its cursors are not stored" in caplog.messages


async def test_what_cannot_be_started_is_left_to_others(zookeeper: ZooKeeper) -> None:
    async with taking_part(zookeeper) as cluster:
        await soon(lambda: "Too many open files" in cluster.problem_of(NAME))
        with nodes(zookeeper.hosts) as zk:
            await soon(lambda: zk.exists(f"/otter/canal/destinations/{NAME}/running") is None)
        assert not serves(cluster)


async def test_one_that_is_configured_no_more_is_left_to_others(
    zookeeper: ZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forget(destination: str) -> MysqlConfig:
        raise UnknownDestinationError(f"no destination {destination!r} is configured here")

    monkeypatch.setattr(f"{__name__}.configure", forget)
    async with taking_part(zookeeper) as cluster:
        await soon(lambda: "is configured here" in cluster.problem_of(NAME))
        with nodes(zookeeper.hosts) as zk:
            await soon(lambda: zk.exists(f"/otter/canal/destinations/{NAME}/running") is None)
        assert not serves(cluster)


async def test_a_destination_is_stopped_when_it_is_also_without_a_session() -> None:
    host = SlowHost()
    cluster = Cluster("127.0.0.1:1", 4.0, IDENTITY, host, configure)
    cluster.start(NAME)
    now = clock_gettime(CLOCK_BOOTTIME)
    cluster.participant.opened(1, 60.0, now)
    for outcome in (Seen(None, 4, 7), Done(8), Loaded(())):
        for ask in cluster.participant.take_actions():
            assert isinstance(ask, Ask)
            cluster.participant.answered(ask.number, Done() if isinstance(ask.operation, Beat) else outcome, now)
    cluster.check(NAME)
    cluster.participant.expired(now)
    await cluster.stop(NAME)
    assert host.stopped


async def test_a_destination_is_taken_over_with_its_configuration_at_that_time(zookeeper: ZooKeeper) -> None:
    async with taking_part(zookeeper, host=SlowHost()) as cluster:
        await soon(lambda: cluster.participant.election(NAME).state is State.ACTIVE)
        before = cluster._clients[NAME]
        await cluster.stop(NAME)
        cluster.start(NAME)
        await soon(lambda: cluster.participant.election(NAME).state is State.ACTIVE)
        assert cluster._clients[NAME] is not before


async def test_destinations_take_part_whether_they_are_started_before_the_session_while_it_begins_or_later(
    zookeeper: ZooKeeper,
) -> None:
    names = [f"d{number}" for number in range(40)]
    async with taking_part(zookeeper) as cluster:
        for name in names:
            cluster.start(name)
            await asyncio.sleep(0.005)
        await soon(lambda: all("Too many open files" in cluster.problem_of(name) for name in names))
        with nodes(zookeeper.hosts) as zk:
            paths = [f"/otter/canal/destinations/{name}/cluster/{IDENTITY.address}" for name in names]
            await soon(lambda: all(map(zk.exists, paths)))
            session = cluster._session
            assert session is not None
            assert owners_of(zk, paths) == {session.session_id}


async def test_it_registers_as_soon_as_zookeeper_lets_it(
    zookeeper: ZooKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    with nodes(zookeeper.hosts) as zk, caplog.at_level(logging.WARNING, "sluice"):
        zk.ensure_path(SERVERS)
        zk.set_acls(SERVERS, [make_acl("world", "anyone", read=True, admin=True)])
        async with taking_part(zookeeper):
            await soon(lambda: f"refuses {SERVERS}/{IDENTITY.address}: NoAuthError" in caplog.text)
            zk.set_acls(SERVERS, OPEN_ACL_UNSAFE)
            await soon(lambda: zk.exists(f"{SERVERS}/{IDENTITY.address}"))
            assert zk.get(f"{SERVERS}/{IDENTITY.address}")[0] == IDENTITY.data


async def test_a_path_that_zookeeper_does_not_have_is_asked_for_once(
    zookeeper: ZooKeeper, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sluice.server.ha.cluster.RETRY", 0.05)
    with nodes(zookeeper.hosts) as zk, caplog.at_level(logging.WARNING, "sluice"):
        async with taking_part(zookeeper, "/shops/berlin", SlowHost()) as cluster:
            await soon(lambda: cluster.problem_of(NAME).endswith("has no /shops/berlin: create it"))
            problem = cluster.problem_of(NAME)
            assert problem in caplog.messages
            await asyncio.sleep(0.5)
            kinds = ("", "clients do not find this server: ", "the other servers are not known: ")
            assert Counter(caplog.messages) == {f"{kind}{problem}": 1 for kind in kinds}
            zk.create("/shops")
            await soon(lambda: serves(cluster))
            assert cluster.problem_of(NAME) == ""
            await soon(lambda: zk.exists(f"/shops/berlin{SERVERS}/{IDENTITY.address}"))


async def test_what_goes_on_in_the_next_session_is_said_again(
    zookeeper: ZooKeeper, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(_session: ZooKeeperSession, _path: str, _watch: Watch | None = None) -> list[str]:
        raise ZooKeeperError("not today")

    monkeypatch.setattr("sluice.server.ha.cluster.RETRY", 0.05)
    monkeypatch.setattr(ZooKeeperSession, "children", fails)
    said = "the other servers are not known: not today"
    async with taking_part(zookeeper) as cluster:
        await soon(lambda: said in caplog.messages and cluster._session is not None)
        await asyncio.to_thread(end_session, zookeeper, cluster._session)
        await soon(lambda: caplog.messages.count(said) > 1)
        await asyncio.sleep(0.2)  # it is tried again, and fails
        assert caplog.messages.count(said) == 2


async def test_of_a_lost_connection_it_is_not_said_what_else_failed_by_it(
    zookeeper: ZooKeeper, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = 0

    async def loses(_session: ZooKeeperSession, _path: str, _watch: Watch | None = None) -> list[str]:
        nonlocal lost
        lost += 1
        raise UnknownOutcomeError("the connection to ZooKeeper was lost")

    monkeypatch.setattr("sluice.server.ha.cluster.RETRY", 0.05)
    monkeypatch.setattr(ZooKeeperSession, "children", loses)
    async with taking_part(zookeeper):
        await soon(lambda: lost > 3)
    assert [it for it in caplog.messages if "was lost" in it] == []


async def test_it_begins_as_soon_as_zookeeper_lets_it(zookeeper: ZooKeeper, caplog: pytest.LogCaptureFixture) -> None:
    with nodes(zookeeper.hosts) as zk, caplog.at_level(logging.WARNING, "sluice"):
        zk.delete("/otter", recursive=True)
        zk.create("/otter", acl=[make_acl("world", "anyone", read=True, admin=True)])
        async with taking_part(zookeeper) as cluster:
            await soon(lambda: "refuses /otter" in caplog.text)
            zk.set_acls("/otter", OPEN_ACL_UNSAFE)
            await soon(lambda: zk.exists(f"{SERVERS}/{IDENTITY.address}"))
            await soon(lambda: cluster.participant.servers == {IDENTITY.address: IDENTITY.url})
            await soon(lambda: "Too many open files" in cluster.problem_of(NAME))
            assert zk.get(f"{SERVERS}/{IDENTITY.address}")[0] == IDENTITY.data


async def test_another_session_begins_after_an_unforeseen_failure(
    zookeeper: ZooKeeper, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(_: ZooKeeperSession) -> None:
        raise RuntimeError("can't start new thread")

    with nodes(zookeeper.hosts) as zk, monkeypatch.context() as patch:
        patch.setattr(ZooKeeperSession, "connect", fails)
        async with taking_part(zookeeper) as cluster:
            await soon(lambda: "can't start new thread" in caplog.text)
            patch.undo()
            await soon(lambda: zk.exists(f"{SERVERS}/{IDENTITY.address}"))
            session = cluster._session
            assert session is not None
            assert owners_of(zk, [f"{SERVERS}/{IDENTITY.address}"]) == {session.session_id}


VIEW = "orders_eu"
CLUSTER = f"/otter/canal/destinations/{VIEW}/cluster/{IDENTITY.address}"
RUNNING = f"/otter/canal/destinations/{VIEW}/running"


def configure_view() -> MysqlConfig:
    return configure(VIEW).model_copy(update={"route": NAME})


async def test_clients_find_a_view_at_the_server_that_has_its_destination_as_long_as_it_serves_it(
    zookeeper: ZooKeeper, empty: KazooClient
) -> None:
    host = KeepingHost()
    async with taking_part(zookeeper, host=host) as cluster:
        cluster.add_view(VIEW)
        await soon(lambda: serves(cluster) and empty.exists(CLUSTER))
        cluster.remove_view(VIEW)
        await soon(lambda: not empty.exists(CLUSTER))
        cluster.add_view(VIEW)
        await soon(lambda: empty.exists(CLUSTER))
        store, epoch = cluster.view_store(configure_view()), await host.epoch()
        assert await store.open() == (epoch, [])
        held, found = empty.get(RUNNING)
        assert json.loads(held) == {"active": True, "address": IDENTITY.address, "route": NAME}
        assert found.ephemeralOwner, "it goes with the session"
        await store.write(Changes({1001: StoredClient(1001, "first", CURSOR)}), epoch)
        assert await store.open() == (epoch, [StoredClient(1001, "first", CURSOR)])
        assert (store.moves, cluster.source(VIEW), cluster.source(NAME)) == ({}, None, None)
        await store.close()
        await soon(lambda: not empty.exists(RUNNING))
        assert empty.exists(f"{ROOT}/running"), "the destination stays"


async def test_a_view_is_registered_in_the_session_that_begins_after_it_was_added(
    zookeeper: ZooKeeper, empty: KazooClient
) -> None:
    async with taking_part(zookeeper, host=KeepingHost()) as cluster:
        cluster.add_view(VIEW)
        await soon(lambda: serves(cluster) and empty.exists(CLUSTER))
        first = cluster._session
        await asyncio.to_thread(end_session, zookeeper, first)
        await soon(lambda: cluster._session is not None and cluster._session is not first)
        session = cluster._session
        assert session is not None
        await soon(lambda: owners_of(empty, [CLUSTER]) == {session.session_id})


async def test_a_view_is_not_served_without_its_destination_or_where_another_server_has_it_as_its_own(
    zookeeper: ZooKeeper, empty: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_module, "RETRY", 0.05)
    async with taking_part(zookeeper, host=KeepingHost()) as cluster:
        await soon(lambda: serves(cluster))
        empty.create(RUNNING, b'{"active":true,"address":"10.0.0.2:1"}', ephemeral=True, makepath=True)
        store = cluster.view_store(configure_view())
        with pytest.raises(
            ZooKeeperError, match=r"orders_eu is a destination of its own for 10\.0\.0\.2:1, and a view"
        ):
            await store.open()
        empty.set(RUNNING, b'{"active":true,"address":"10.0.0.2:1","route":"orders"}')
        await store.open()
        assert json.loads(empty.get(RUNNING)[0])["address"] == IDENTITY.address, (
            "that server had its destination before"
        )


@pytest.mark.parametrize("failures", [9, 10])
async def test_a_view_that_zookeeper_refuses_is_opened_ten_times_at_most(
    zookeeper: ZooKeeper, empty: KazooClient, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    monkeypatch.setattr(cluster_module, "RETRY", 0.01)
    async with taking_part(zookeeper, host=KeepingHost()) as cluster:
        await soon(lambda: serves(cluster))
        left, ensure = failures, ZooKeeperSession.ensure

        async def fails(self: ZooKeeperSession, path: str) -> None:
            nonlocal left
            if VIEW in path and left:
                left -= 1
                raise UnknownOutcomeError("the connection was lost")
            await ensure(self, path)

        monkeypatch.setattr(ZooKeeperSession, "ensure", fails)
        opening = cluster.view_store(configure_view()).open()
        if failures < 10:
            assert (await opening)[1] == []
        else:
            with pytest.raises(ZooKeeperError, match="the connection was lost"):
                await opening
        assert left == 0
        assert bool(empty.exists(RUNNING)) == (failures < 10)


async def test_what_is_stored_of_a_destination_and_its_views_can_be_followed_by_any_server(
    zookeeper: ZooKeeper, empty: KazooClient
) -> None:
    host, other = KeepingHost(), Identity(OTHER, "http://127.0.0.1:3")
    async with taking_part(zookeeper, host=host) as cluster:
        epoch = await host.epoch()
        await soon(lambda: serves(cluster))
        await host.meta.write(Changes({1: StoredClient(1, "one", CURSOR)}), epoch)
        await host.meta.keep_source(InUse("db2:3307"), epoch)
        view = cluster.view_store(configure_view())
        await view.open()
        await view.write(Changes({1: StoredClient(1, "of the view", CURSOR)}), epoch)
        assert cluster.source(NAME) == InUse("db2:3307")
        async with taking_part(zookeeper, identity=other) as follower:
            await soon(lambda: follower.active(NAME) == IDENTITY.address)
            found = await follower.follow(NAME, ("none", VIEW))
            with pytest.raises(ZooKeeperError, match="nothing has no epoch: no server has had it"):
                await follower.follow("nothing", ())
    assert found.source == InUse("db2:3307")
    clients = {1: StoredClient(1, "one", CURSOR), (2 << 16) + 1: StoredClient(1, "of the view", CURSOR)}
    assert found.clients == clients
