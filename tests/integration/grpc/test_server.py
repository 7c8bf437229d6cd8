"""A pump in a server as users start it: written to, pulled from, killed, shown by `sluice status`."""

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice.login.etcd import Etcd
from sluice.login.nodes import Nodes
from sluice.protocol.tidb.binlog_pb2 import Binlog
from sluice.server.credentials import Credentials, Grant
from tests import tidb
from tests.commands import run
from tests.integration.grpc.process import Server
from tests.integration.grpc.served import CLUSTER, calling, committed, prewrite
from tests.servers.etcd import EtcdServer
from tests.tidb_server import TidbServer
from tests.waiting import eventually


async def pulled(server: Server, count: int) -> list[bytes]:
    async with calling(server.socket) as caller:
        stream = caller.pull()
        return [(await stream.read()).entity.payload for _ in range(count)]


async def test_what_a_tidb_has_written_is_given_in_the_order_of_commits_also_after_kill_9(tmp_path: Path) -> None:
    server, messages = Server(tmp_path), tidb.written()
    expected = [message.payload for message in tidb.pulled() if message.label != "fake"]
    with server.running() as process:
        async with calling(server.socket) as caller:
            for message in messages:
                assert not (await caller.write(message.payload)).errmsg
        assert await pulled(server, len(expected)) == expected
        process.kill()
    with server.running() as process:
        assert await pulled(server, len(expected)) == expected
        async with calling(server.socket) as caller:
            last = Binlog.FromString(expected[-1]).commit_ts
            await committed(caller, last + 10)
        assert Binlog.FromString((await pulled(server, len(expected) + 1))[-1]).commit_ts == last + 10
        status = server.status()
        assert status.returncode == 0
        assert status.stdout.startswith("all is well: no destinations, 1 pump (1 online)\n")
        assert f"online, at {server.socket}, of the cluster {CLUSTER}\n" in status.stdout
        assert f"given  to commit_ts {last + 10}" in status.stdout
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


async def test_a_full_disk_is_wrong_for_status_readiness_and_metrics(tmp_path: Path) -> None:
    server = Server(tmp_path, stopWriteAt=1 << 60)
    with server.running():
        async with calling(server.socket) as caller:
            assert "sluice.pump.stopWriteAt is" in (await caller.write(prewrite(1))).errmsg
        status = server.status()
        assert status.returncode == 1
        assert re.search(
            r"something is wrong: .*\n  pump \S+: \d+ bytes are free on the disk of .*/pump", status.stdout
        )
        assert json.loads(server.get("/readyz"))["conditions"] == {"pump-refuses": 1}
        metrics = server.get("/metrics")
    assert re.search(r'sluice_pump_condition\{condition="pump-refuses",pump="[^"]+",severity="error"\} 1\.0', metrics)
    assert re.search(r'sluice_pump_refused_total\{pump="[^"]+"\} 1\.0', metrics)


@pytest.fixture
def etcd() -> Iterator[EtcdServer]:
    with EtcdServer() as server:
        yield server


def test_a_pump_is_registered_while_the_server_runs_and_status_says_when_it_cannot_be(
    tmp_path: Path, etcd: EtcdServer
) -> None:
    server = Server(tmp_path, listen="127.0.0.1", port=0, nodeId="pump-1", pd=etcd.url, labels="zone=east")
    nodes = Nodes(Etcd([etcd.url]))
    with server.running() as process:
        eventually(lambda: [it.state for it in nodes.pumps()] == ["online"])
        (node,) = nodes.pumps()
        assert (node.node_id, node.labels) == ("pump-1", {"zone": "east"})
        assert re.fullmatch(r"127\.0\.0\.1:[1-9]\d*", node.host)
        assert server.status().returncode == 0
        etcd.kill()
        eventually(lambda: server.status().returncode == 1)
        assert "pump pump-1: online: etcd does not answer" in server.status().stdout
        etcd.start()
        eventually(lambda: server.status().returncode == 0)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert [it.state for it in nodes.pumps()] == ["paused"]


def test_a_silent_cluster_does_not_hold_up_the_end_of_a_server(tmp_path: Path, etcd: EtcdServer) -> None:
    server = Server(tmp_path, listen="127.0.0.1", port=0, nodeId="pump-1", pd=etcd.url)
    nodes = Nodes(Etcd([etcd.url]))
    with server.running() as process:
        eventually(lambda: [it.state for it in nodes.pumps()] == ["online"])
        etcd.freeze()
        process.send_signal(signal.SIGTERM)
        eventually(lambda: "the pump stays registered as online: PD does not answer" in server.log.read_text())
        assert process.wait(60) == 0


async def test_drainers_get_the_time_of_the_cluster_from_an_idle_server_and_status_says_when_it_is_unknown(
    tmp_path: Path,
) -> None:
    with TidbServer() as tidb_server:
        tidb_server.time = 70
        server = Server(tmp_path, tidbSql=tidb_server.sql, fakeInterval=0.1)
        with server.running():
            assert [Binlog.FromString(it).commit_ts for it in await pulled(server, 1)] == [70]
            tidb_server.time = "?"
            eventually(lambda: server.status().returncode == 1)
            assert (
                "drainers wait while TiDB writes nothing to this pump: TiDB does not report" in server.status().stdout
            )


def test_a_token_for_some_destinations_sees_nothing_of_the_pump(tmp_path: Path) -> None:
    credentials = Credentials(tmp_path / "credentials.json")
    some, every = (credentials.issue("a", it).text for it in (Grant(destinations=("shop",)), Grant()))
    server = Server(tmp_path, nodeId="pump-1")
    with server.running():
        for token, names in ((some, []), (every, ["pump-1"])):
            headers = {"Authorization": f"Bearer {token}"}
            found = json.loads(server.get("/v1/pumps", headers))
            assert [it["nodeId"] for it in found] == names
            assert ("sluice_pump_online" in server.get("/metrics", headers)) is bool(names)


def test_a_server_has_something_to_serve_when_it_has_a_pump_and_check_agrees(tmp_path: Path) -> None:
    Server(tmp_path)
    assert run("check", "--conf", str(tmp_path)).returncode == 0
