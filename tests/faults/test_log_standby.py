"""A server that stands by has a log of its own: after a take-over it serves what the source has purged."""

import itertools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from sluice.protocol.position import Position
from tests.conftest import Database
from tests.faults.harness import Sluice
from tests.faults.pair import SCHEMA, configure
from tests.faults.pair import Pair as Sources
from tests.faults.test_failover import purge as purge_now
from tests.faults.test_failover import read as rows_of
from tests.faults.test_failover import switch
from tests.faults.test_ha import Pair, call, read, state
from tests.faults.test_log_dies import SETTINGS, purge
from tests.servers import Server, ZooKeeper
from tests.waiting import eventually

pytestmark = pytest.mark.extended


@pytest.fixture
def pair(tmp_path: Path, own_zookeeper: ZooKeeper, mariadb118: Server, database: Database) -> Iterator[Pair]:
    """The source writes the names of columns into its events: rows of any time are read with them."""
    settings = SETTINGS | {"sluice__instance__store__standby": "true", "canal__instance__mysql__slaveId": 4711}
    settings |= {"sluice__ha__sessionTimeout": 6}
    pair = Pair(tmp_path, own_zookeeper.hosts, mariadb118, database(mariadb118), **settings)
    with mariadb118.variable("binlog_row_metadata", "FULL"), ExitStack() as stack:
        for server in pair.servers:
            stack.enter_context(server)
        yield pair


def held(server: Sluice) -> str:
    return str((server.destination()["log"] or {"held": ""})["held"])


def test_after_a_take_over_what_the_source_has_purged_is_served_as_far_as_the_status_said(pair: Pair) -> None:
    first = pair.active()
    second = pair.other(first)
    eventually(lambda: held(first) and held(first) == held(second), "all servers say where their logs begin")
    assert call(first, "subscribe").status == 200
    ids = [row[0] for row in pair.source.query("SHOW SLAVE HOSTS")]
    assert 4711 in ids
    assert len(set(ids)) == len(ids) > 1, "the other one reads with a server id of its own"
    pair.insert(*range(1, 101))
    rows, batches = read(first, 10)
    assert rows[:10] == list(range(1, 11))
    assert second.destination()["clients"] == []
    for server in pair.servers:
        purge(pair.source, server)
    promised = held(first)
    assert Position.parse(promised) >= Position.parse(second.destination()["log"]["stretches"][0][0])
    first.kill()
    eventually(lambda: pair.active() is second)
    rows, batches = read(second, 100)
    assert rows == list(range(1, 101)), "nothing was acked"
    assert [call(second, "ack", {"batchId": it}).status for it in batches] == [204] * len(batches)
    pair.insert(101)
    assert read(second, 1)[0] == [101]
    for server in pair.servers:
        text = server.log_file.read_text()
        assert "Traceback" not in text
        assert "cannot be used" not in text


@pytest.fixture(params=["mysql97", "mariadb118"])
def sources(request: pytest.FixtureRequest) -> Iterator[Sources]:
    """Two that replicate, and write the names of columns into their events."""
    gtids = [] if request.param == "mariadb118" else ["--gtid-mode=ON", "--enforce-gtid-consistency=ON"]
    with Sources(request.param, *gtids, "--binlog-row-metadata=FULL") as found:
        yield found


def insert(source: Server, *numbers: int) -> None:
    """Rows that fill more than one file of a log."""
    for number in numbers:
        source.query(f"INSERT INTO {SCHEMA}.t VALUES (%s, REPEAT('x', 60000))", (number,))


def logged(server: Sluice) -> list[list[str]]:
    found: list[list[str]] = (server.destination()["log"] or {"stretches": []})["stretches"]
    return found


class Group:
    """Two servers that share a destination, with a log on each.

    Args:
        servers: both.
    """

    def __init__(self, servers: list[Sluice]) -> None:
        self.servers = servers

    def states(self) -> list[str]:
        return [state(it, "shop") for it in self.servers]

    def active(self) -> Sluice:
        """Return the one that has the destination, once one has it."""
        eventually(lambda: "running" in self.states(), self.states)
        return self.servers[self.states().index("running")]

    def settle(self) -> None:
        """Return when one has it and the other stands by, and their logs have the same."""

        def settled() -> bool:
            logs = {str(logged(it)) for it in self.servers}
            return sorted(self.states()) == ["running", "standby"] and len(logs) == 1

        eventually(settled, lambda: (self.states(), [logged(it) for it in self.servers]))


@contextmanager
def sharing(folder: Path, zookeeper: ZooKeeper, sources: Sources, **settings: object) -> Iterator[Group]:
    servers = [Sluice(folder / name) for name in "ab"]
    with ExitStack() as stack:
        for server in servers:
            server.settings |= {"canal__zkServers": zookeeper.hosts, "sluice__ha__sessionTimeout": 2}
            configure(server, sources, **SETTINGS, sluice__instance__store__standby="true", **settings)
            stack.callback(server.__exit__)
            server.start()
        yield Group(servers)


def test_protected_clients_lose_nothing_when_source_and_server_change_and_the_sources_purge(
    tmp_path: Path, own_zookeeper: ZooKeeper, sources: Sources
) -> None:
    with sharing(tmp_path, own_zookeeper, sources, sluice__instance__store__maxBytes=1) as group:
        servers, former = group.servers, group.active()
        for client_id in (1, 2):
            former.client(client_id).subscribe(protect=True)
        insert(sources.first, *range(1, 41))
        group.settle()
        ((start, end),) = logged(former)
        switch(former)
        numbers = itertools.count(41)

        def both_follow() -> bool:
            insert(sources.first, next(numbers))
            return not any(logged(it)[-1][1].startswith(end.partition("/")[0]) for it in servers)

        eventually(both_follow, lambda: [logged(it) for it in servers])
        insert(sources.first, *itertools.takewhile(lambda it: it <= 80, numbers))
        last = sources.first.query(f"SELECT MAX(id) FROM {SCHEMA}.t")[0][0]
        sources.catch_up(sources.second, sources.first)
        group.settle()
        eventually(lambda: held(former) == held(servers[1 - servers.index(former)]) == start, "what all servers have")
        for source in (sources.first, sources.second):
            purge_now(source)
        former.kill()
        present = group.active()
        assert present is not former
        assert rows_of(present.client(1), last) == list(range(1, last + 1))
        former.start()
        insert(sources.first, last + 1)
        group.settle()
        assert logged(former)[0][0] == start, "its log is not cut while it stands by"
        present.kill()
        assert group.active() is former
        assert rows_of(former.client(2), last + 1) == list(range(1, last + 2))


def test_the_log_of_a_server_that_stands_by_lacks_what_the_former_source_wrote_after_it_was_left(
    tmp_path: Path, own_zookeeper: ZooKeeper, sources: Sources
) -> None:
    with sharing(tmp_path, own_zookeeper, sources) as group:
        former = group.active()
        present = group.servers[1 - group.servers.index(former)]
        former.client(1).subscribe(protect=True)
        insert(sources.first, *range(1, 6))
        group.settle()
        sources.promote(sources.second)
        ((_, end),) = logged(present)
        switch(former)
        insert(sources.first, 666)  # it goes its own way
        eventually(lambda: logged(present)[-1][1] != end, "who stands by still reads it, or has left it")
        insert(sources.second, 6, 7)
        group.settle()
        assert len(logged(present)) == 1, "it has no gap"
        former.kill()
        eventually(lambda: state(present, "shop") == "running", group.states)
        assert rows_of(present.client(1), 7) == list(range(1, 8))
