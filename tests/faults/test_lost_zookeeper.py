"""ZooKeeper comes back without its data, or with older data: nothing is served, nor skipped, until it is restored."""

import json
import stat
from pathlib import Path

import pytest
import urllib3

from tests import commands
from tests.conftest import Database
from tests.faults.harness import Sluice
from tests.faults.test_ha import NAME, ROOT, Pair, ack, call, command, read, state
from tests.servers import Server, ZooKeeper, nodes
from tests.waiting import eventually

LOST = "ZooKeeper has lost cursors"

pytestmark = pytest.mark.extended


def restore(server: Sluice, *arguments: str) -> commands.Ended:
    return commands.run("cluster", "restore", *arguments, "--conf", str(server.conf))


def saved_by(server: Sluice) -> Path:
    return server.data / NAME / f"cursors-127.0.0.1:{server.canal_port}.dat"


def has_saved(server: Sluice, text: str) -> bool:
    path = saved_by(server)
    return path.exists() and text in path.read_text()


def error(server: Sluice) -> str:
    try:
        return str(server.destination(NAME)["error"])
    except urllib3.exceptions.HTTPError:
        return "away"


def get(server: Sluice, path: str) -> str:
    with urllib3.PoolManager() as http:
        return http.request("GET", f"{server.url}{path}").data.decode()


def place(zookeeper: ZooKeeper, client_id: int) -> str:
    with nodes(zookeeper.hosts) as zk:
        return str(json.loads(zk.get(f"{ROOT}/{client_id}/cursor")[0])["sluice"]["position"])


@pytest.mark.parametrize("meta", ["zookeeper", "mixed", "period"])
def test_lost_cursors_are_noticed_and_restored_and_nothing_is_skipped(
    tmp_path: Path, own_zookeeper: ZooKeeper, mariadb118: Server, database: Database, meta: str
) -> None:
    pair = Pair(tmp_path, own_zookeeper.hosts, mariadb118, database(mariadb118), sluice__instance__meta=meta)
    server = pair.servers[0]
    saved = saved_by(server)
    with server:
        eventually(lambda: state(server) == "running", lambda: "".join(server.log))
        assert call(server, "subscribe").status == 200
        before = place(own_zookeeper, 1001)
        pair.insert(1)
        assert set(ack(server, read(server, 1)[1])) == {204}
        eventually(lambda: place(own_zookeeper, 1001) != before)
        known = place(own_zookeeper, 1001)
        eventually(lambda: has_saved(server, known))
        assert stat.S_IMODE(saved.stat().st_mode) == 0o600
        own_zookeeper.lose()
        pair.insert(2)
        eventually(lambda: LOST in error(server), lambda: "".join(server.log))
        assert call(server, "getWithoutAck").status == 421
        assert any("has lost data" in line for line in server.log)
        assert "sluice cluster restore" in get(server, "/readyz")
        status = commands.run("status", "--url", server.url)
        assert status.returncode == 1
        assert f"sluice cluster restore {NAME}" in status.stdout
    with server:
        eventually(lambda: LOST in error(server), lambda: "".join(server.log))
        checked = commands.run("check", "--conf", str(server.conf))
        assert checked.returncode == 1
        assert LOST in checked.stdout
        refused = restore(server)
        assert refused.returncode == 1
        assert "nobody answers: --yes" in refused.stdout
        assert LOST in error(server)
        done = restore(server, "--yes")
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"client 1001  {known}" in done.stdout
        assert str(saved.parent) in done.stdout
        eventually(lambda: state(server) == "running", lambda: "".join(server.log))
        rows, batches = read(server, 1)
        assert rows == [2]
        assert set(ack(server, batches)) == {204}
        assert error(server) == ""
        assert commands.run("check", "--conf", str(server.conf)).returncode == 0
        assert "not known to have lost anything" in restore(server).stdout


def test_it_is_restored_where_the_server_runs_that_had_it_last(
    tmp_path: Path, own_zookeeper: ZooKeeper, mariadb118: Server, database: Database
) -> None:
    pair = Pair(tmp_path, own_zookeeper.hosts, mariadb118, database(mariadb118))
    with pair.servers[0], pair.servers[1]:
        first = pair.active()
        second = pair.other(first)
        assert call(first, "subscribe").status == 200
        assert command(second, "yield", NAME)
        eventually(lambda: state(second) == "running", lambda: "".join(second.log))
        pair.insert(1)
        assert set(ack(second, read(second, 1)[1])) == {204}
        eventually(lambda: has_saved(second, place(own_zookeeper, 1001)))
        own_zookeeper.lose()
        pair.insert(2)
        for server in pair.servers:
            eventually(lambda server=server: LOST in error(server), lambda: [error(it) for it in pair.servers])  # type: ignore[misc]
        refused = restore(first, "--yes")
        assert refused.returncode == 1
        assert f"127.0.0.1:{second.canal_port} had it later" in refused.stdout
        assert all(LOST in error(server) for server in pair.servers)
        done = restore(second, "--yes")
        assert done.returncode == 0, done.stdout + done.stderr
        assert read(pair.active(), 1)[0] == [2]
        assert [error(server) for server in pair.servers] == ["", ""]


def test_an_older_state_of_zookeeper_is_brought_up_to_date(
    tmp_path: Path, own_zookeeper: ZooKeeper, mariadb118: Server, database: Database
) -> None:
    pair = Pair(tmp_path, own_zookeeper.hosts, mariadb118, database(mariadb118))
    with pair.servers[0] as server:
        eventually(lambda: state(server) == "running", lambda: "".join(server.log))
        assert call(server, "subscribe").status == 200
        own_zookeeper.back_up()
        eventually(lambda: call(server, "subscribe").status == 200, lambda: "".join(server.log))
        pair.insert(1)
        assert set(ack(server, read(server, 1)[1])) == {204}
        with server.client(1002, NAME) as late:
            late.subscribe()
        known = [place(own_zookeeper, client_id) for client_id in (1001, 1002)]
        eventually(lambda: all(has_saved(server, it) for it in known))
        own_zookeeper.go_back()
        eventually(lambda: LOST in error(server), lambda: "".join(server.log))
        pair.insert(2)
        assert place(own_zookeeper, 1001) != known[0]
        with nodes(own_zookeeper.hosts) as zk:  # as it was in the copy, until the session there has expired
            eventually(lambda: zk.exists(f"{ROOT}/running") is None)
        done = restore(server, "--yes")
        assert done.returncode == 0, done.stdout + done.stderr
        assert [place(own_zookeeper, client_id) for client_id in (1001, 1002)] == known
        eventually(lambda: state(server) == "running", lambda: "".join(server.log))
        assert read(server, 1)[0] == [2]
        with server.client(1002, NAME) as late:
            assert [row.after for row in late.get_without_ack(timeout=5).rows() if row.table == "t"] == [{"id": 2}]
