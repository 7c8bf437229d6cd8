"""`sluice pump`: pumps of a cluster are listed, paused, resumed, closed and taken out."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice.login.etcd import Etcd
from sluice.login.nodes import DRAINERS, PUMPS, Node, Nodes, State
from tests import commands
from tests.integration.grpc.process import Server
from tests.integration.grpc.served import calling, commit, prewrite
from tests.servers.etcd import EtcdServer
from tests.tidb_server import TidbServer
from tests.waiting import eventually


@pytest.fixture(scope="module")
def etcd_server() -> Iterator[EtcdServer]:
    with EtcdServer() as server:
        yield server


@pytest.fixture
def etcd(etcd_server: EtcdServer) -> Iterator[Etcd]:
    etcd = Etcd([etcd_server.url])
    for prefix, name in ((DRAINERS, "drainer-1"), (PUMPS, "pump-1")):  # what another test has left
        etcd.put(prefix + name, Node(name, "127.0.0.1:1", State.OFFLINE).encode())
    yield etcd
    etcd.close()


@pytest.fixture
def nodes(etcd: Etcd) -> Nodes:
    nodes = Nodes(etcd)
    nodes.want("pump-1", State.ONLINE)
    return nodes


@pytest.fixture
def server(tmp_path: Path, etcd_server: EtcdServer, nodes: Nodes) -> Server:
    assert nodes.wanted("pump-1") == State.ONLINE
    return Server(tmp_path, listen="127.0.0.1", port=0, nodeId="pump-1", pd=etcd_server.url, labels="zone=east")


def sluice(server: Server, *arguments: str) -> tuple[int, str]:
    """Run a command of `sluice pump`; return its exit status and what it says."""
    done = commands.run("pump", *arguments, "--conf", str(server.folder))
    return done.returncode, done.stdout + done.stderr


def is_online(nodes: Nodes) -> bool:
    return nodes.find("pump-1")[0].state == State.ONLINE


async def refusal(server: Server, start_ts: int) -> str:
    async with calling(server.socket) as caller:
        return str((await caller.write(prewrite(start_ts))).errmsg)


async def test_a_pump_is_paused_stays_so_over_a_restart_and_is_resumed(server: Server, nodes: Nodes) -> None:
    with server.running():
        eventually(lambda: is_online(nodes))
        assert sluice(server, "pause", "pump-1") == (0, "pump-1 is paused\n")
        assert await refusal(server, 1) == "no online: paused"
        assert server.status().stdout.startswith("all is well: no destinations, 1 pump (1 paused)")
    with server.running():
        eventually(lambda: nodes.find("pump-1")[0].host in server.log.read_text())
        assert await refusal(server, 1) == "no online: paused"
        assert sluice(server, "resume", "pump-1") == (0, "pump-1 is online\n")
        assert await refusal(server, 1) == ""


async def test_a_pump_is_closed_when_its_transactions_have_ended_and_all_drainers_have_read_them(
    server: Server, etcd: Etcd, nodes: Nodes
) -> None:
    etcd.put(DRAINERS + "drainer-1", Node("drainer-1", "127.0.0.1:1", State.PAUSED).encode())
    with server.running():
        eventually(lambda: is_online(nodes))
        assert await refusal(server, 1) == ""
        status, text = sluice(server, "close", "pump-1", "--timeout", "5")
        assert status == 1
        assert text.startswith("pump-1 is closing after 5 s: transactions under way have to end, and all drainers")
        assert "1 transaction under way, on the way to be offline" in server.status().stdout
        async with calling(server.socket) as caller:
            assert not (await caller.write(commit(1, 2))).errmsg
        etcd.put(DRAINERS + "drainer-1", Node("drainer-1", "127.0.0.1:1", State.PAUSED, 2).encode())
        assert sluice(server, "close", "pump-1") == (0, "pump-1 is offline\n")
        assert server.status().returncode == 0


async def test_a_pump_that_is_lost_is_taken_out_and_one_that_runs_is_not(
    server: Server, etcd: Etcd, nodes: Nodes
) -> None:
    etcd.put(DRAINERS + "drainer-1", Node("drainer-1", "127.0.0.1:1", State.PAUSED).encode())
    with server.running():
        eventually(lambda: is_online(nodes))
        async with calling(server.socket) as caller:
            for message in (prewrite(1), commit(1, 2)):
                assert not (await caller.write(message)).errmsg
        eventually(lambda: nodes.find("pump-1")[0].max_commit_ts == 2)
        status, text = sluice(server, "offline", "pump-1", "--discard")
        assert status == 2
        assert text.endswith(f"runs, at {nodes.find('pump-1')[0].host}: sluice pump close pump-1\n")
    status, text = sluice(server, "offline", "pump-1")
    assert (status, is_online(nodes)) == (2, True)
    assert "not all drainers have read what the pump pump-1 had, to commit_ts 2 at least" in text
    assert sluice(server, "offline", "pump-1", "--discard") == (0, "pump-1 is offline\n")
    assert nodes.find("pump-1")[0].state == nodes.wanted("pump-1") == State.OFFLINE


def test_all_pumps_are_listed_and_those_of_tidb_are_left_to_its_own_tool(
    server: Server, etcd: Etcd, nodes: Nodes
) -> None:
    theirs = Node("theirs", "10.0.0.1:8250", State.ONLINE, 437123456789012481, labels={"zone": "east"})
    etcd.put(PUMPS + "theirs", theirs.encode())
    nodes.want("pump-1", State.PAUSED)
    status, text = sluice(server, "list")
    assert status == 0
    assert text.splitlines() == [
        "pump-1  offline, to be paused, at 127.0.0.1:1",
        "theirs  online, at 10.0.0.1:8250, all to commit_ts 437123456789012481 (2022-11-03 16:40:55 UTC), zone=east",
    ]
    assert sluice(server, "pause", "theirs") == (
        2,
        "sluice: theirs is no pump of Sluice: use the binlogctl of TiDB for it\n",
    )
    assert sluice(server, "pause", "other")[1].startswith("sluice: no pump 'other' is registered: sluice pump list")


def test_check_asks_the_cluster_and_notes_a_pump_that_is_alone(server: Server, etcd: Etcd, tmp_path: Path) -> None:
    etcd.put(PUMPS + "theirs", Node("theirs", "10.0.0.1:8250", State.OFFLINE).encode())
    done = commands.run("check", "--conf", str(tmp_path))
    assert done.returncode == 0
    assert "ok   pump for TiDB: pump-1; other pumps of the cluster: none\n" in done.stdout
    assert "note pump for TiDB: a TiDB ends when its only pump restarts for longer than 15 s" in done.stdout
    assert "set sluice.pump.tidbSql" in done.stdout
    etcd.put(PUMPS + "theirs", Node("theirs", "10.0.0.1:8250", State.PAUSED).encode())
    with TidbServer() as tidb:
        tidb.time = 437123456789012481
        with (tmp_path / "canal.properties").open("a") as file:
            file.write(f"\nsluice.pump.tidbSql = {tidb.sql}, mysql://a@127.0.0.1:1\n")
        done = commands.run("check", "--conf", str(tmp_path))
    assert done.returncode == 1
    assert "other pumps of the cluster: theirs\n" in done.stdout
    assert ": it is 2022-11-03 16:40:55 UTC\n" in done.stdout
    assert "FAIL pump for TiDB: TiDB does not report the time of the cluster: 127.0.0.1:1: " in done.stdout
    assert "15 s" not in done.stdout


def test_a_cluster_that_is_not_named_or_does_not_answer_is_said(tmp_path: Path) -> None:
    server = Server(tmp_path)
    assert sluice(server, "list")[1].endswith("sluice.pump.pd is empty: it says where the cluster's PD is\n")
    server = Server(tmp_path, pd="http://127.0.0.1:1", listen="127.0.0.1")
    status, text = sluice(server, "list")
    assert status == 3
    assert text.startswith("sluice: etcd does not answer: http://127.0.0.1:1: ")
    assert "FAIL pump for TiDB: etcd does not answer" in commands.run("check", "--conf", str(tmp_path)).stdout
