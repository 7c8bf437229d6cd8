"""Two servers and a ZooKeeper: one serves, the other takes over when that one dies, freezes or loses ZooKeeper."""

import json
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import urllib3

from sluice.server.ha.spread import spread
from tests import commands
from tests.conftest import Database
from tests.faults.harness import Sluice
from tests.proxy import Proxy
from tests.servers import Server, ZooKeeper, freeze, nodes
from tests.waiting import eventually

NAME = "shop"
ROOT = f"/otter/canal/destinations/{NAME}"


class Pair:
    """Two servers with the same destination."""

    def __init__(self, folder: Path, hosts: str, source: Server, schema: str, **settings: object) -> None:
        self.source, self.schema = source, schema
        source.script("CREATE TABLE t (id INT PRIMARY KEY);\n", database=schema)
        self.servers = [Sluice(folder / name) for name in "ab"]
        for server in self.servers:
            server.settings |= {"canal__zkServers": hosts, "sluice__ha__sessionTimeout": 2} | settings
            server.add(NAME, source, canal__instance__filter__regex=f"{schema}\\\\..*")

    def insert(self, *numbers: int) -> None:
        for number in numbers:
            self.source.query(f"INSERT INTO t VALUES ({number})", database=self.schema)

    def active(self) -> Sluice:
        """Wait until exactly one serves, and return that one."""
        found: list[Sluice] = []

        def one() -> bool:
            found[:] = [server for server in self.servers if state(server) == "running"]
            return len(found) == 1

        eventually(one, lambda: [(state(server), "".join(server.log)) for server in self.servers])
        return found[0]

    def other(self, server: Sluice) -> Sluice:
        return next(it for it in self.servers if it is not server)


def state(server: Sluice, name: str = NAME) -> str:
    try:
        return str(server.destination(name)["state"])
    except urllib3.exceptions.HTTPError:
        return "away"


def call(server: Sluice, path: str, body: object = None, name: str = NAME) -> Any:
    with urllib3.PoolManager(retries=False) as http:
        url = f"{server.url}/v1/destinations/{name}/clients/1001/{path}"
        return http.request("POST", url, json=body if body is not None else {})


def read(server: Sluice, wanted: int, name: str = NAME) -> tuple[list[int], list[int]]:
    """Get without ack until `wanted` rows have come; return their numbers and the batches' ids."""
    rows: list[int] = []
    batches: list[int] = []

    def more() -> bool:
        answer = call(server, "getWithoutAck?timeout=500", name=name).json()
        if "entries" not in answer:
            return False
        for entry in answer["entries"]:
            rows.extend(int(row["id"]) for row in entry.get("data") or [] if entry["table"] == "t")
        if answer["batchId"] > 0:
            batches.append(answer["batchId"])
        return len(rows) >= wanted

    eventually(more, lambda: (rows, "".join(server.log)))
    return rows, batches


def images(server: Sluice, wanted: int) -> list[dict[str, str]]:
    """Get without ack until `wanted` rows have come; return them, and what their entries say of their columns."""
    found: list[dict[str, str]] = []

    def more() -> bool:
        for entry in call(server, "getWithoutAck?timeout=500").json().get("entries", ()):
            doubt = {"doubt": text} if (text := entry.get("props", {}).get("sluice.schema")) else {}
            found.extend(row | doubt for row in entry.get("data") or [])
        return len(found) >= wanted

    eventually(more, lambda: (found, "".join(server.log)))
    return found


def ack(server: Sluice, batches: list[int], name: str = NAME) -> list[int]:
    """The statuses of the acks of these batches."""
    return [call(server, "ack", {"batchId": batch}, name).status for batch in batches]


@pytest.fixture
def pair(tmp_path: Path, own_zookeeper: ZooKeeper, mariadb118: Server, database: Database) -> Iterator[Pair]:
    pair = Pair(tmp_path, own_zookeeper.hosts, mariadb118, database(mariadb118))
    with ExitStack() as stack, ThreadPoolExecutor() as pool:
        for server in pair.servers:
            stack.callback(server.__exit__)
        list(pool.map(Sluice.start, pair.servers))
        yield pair


@pytest.mark.extended
def test_the_server_that_takes_over_knows_the_tables_of_the_former_one(
    tmp_path: Path, own_zookeeper: ZooKeeper, mariadb118: Server, database: Database
) -> None:
    tables, statements = database(mariadb118), ("CHANGE id a INT", "CHANGE a b INT", "CHANGE b id INT")
    account = {
        "canal__instance__tsdb__dbUsername": mariadb118.user,
        "canal__instance__tsdb__dbPassword": mariadb118.password,
    }
    url = f"jdbc:mysql://{mariadb118.host}:{mariadb118.port}/{tables}"
    pair = Pair(
        tmp_path, own_zookeeper.hosts, mariadb118, database(mariadb118), canal__instance__tsdb__url=url, **account
    )
    with ExitStack() as stack:
        for server in pair.servers:
            stack.enter_context(server)
        first = pair.active()
        assert call(first, "subscribe").status == 200
        for number, statement in enumerate(statements):
            pair.insert(number)
            mariadb118.query(f"ALTER TABLE t {statement}", database=pair.schema)
        pair.insert(9)
        expected = [{"id": "0"}, {"a": "1"}, {"b": "2"}, {"id": "9"}]
        assert images(first, 4) == expected
        first.kill()
        second = pair.active()
        assert images(second, 4) == expected
    assert "asking the source for all tables" not in second.log_file.read_text()


@pytest.mark.extended
def test_the_server_that_takes_over_reads_a_password_that_was_changed_meanwhile(
    tmp_path: Path, own_zookeeper: ZooKeeper, mariadb118: Server, database: Database
) -> None:
    schema = database(mariadb118)
    pair, secret, user = Pair(tmp_path, own_zookeeper.hosts, mariadb118, schema), tmp_path / "secret", f"u_{schema}"
    secret.write_text("Before-7Kx\n")
    root(mariadb118, f"CREATE USER '{user}'@'%' IDENTIFIED BY 'Before-7Kx'")
    root(mariadb118, f"GRANT SELECT, REPLICATION SLAVE, BINLOG MONITOR ON *.* TO '{user}'@'%'")
    with ExitStack() as stack:
        for server in pair.servers:
            server.configure(
                NAME,
                canal__instance__master__address=f"{mariadb118.host}:{mariadb118.port}",
                canal__instance__dbUsername=user,
                canal__instance__dbPasswordFile=secret,
                canal__instance__filter__regex=f"{schema}\\\\..*",
            )
            stack.enter_context(server)
        first = pair.active()
        assert call(first, "subscribe").status == 200
        pair.insert(1)
        assert read(first, 1)[0] == [1]
        root(mariadb118, f"ALTER USER '{user}'@'%' IDENTIFIED BY 'After-7Kx'")
        secret.write_text("After-7Kx\n")
        first.kill()
        pair.insert(2)
        assert read(pair.active(), 2)[0] == [1, 2]
        assert not any("-7Kx" in it for it in first.log_file.read_text().splitlines())


def root(server: Server, sql: str) -> None:
    with server.connect(user="root", password="") as connection, connection.cursor() as cursor:
        cursor.execute(sql)


def test_other_server_goes_on_from_the_durable_cursor_when_the_active_one_is_killed(
    pair: Pair, own_zookeeper: ZooKeeper
) -> None:
    first = pair.active()
    second = pair.other(first)
    assert call(first, "subscribe").status == 200
    pair.insert(1, 2)
    rows, batches = read(first, 2)
    assert rows == [1, 2]
    assert set(ack(first, batches)) == {204}
    pair.insert(3)
    rows, batches = read(first, 1)  # and not acked
    assert rows == [3]
    dumping = [row for row in pair.source.query("SHOW PROCESSLIST") if "Binlog Dump" in str(row[4])]
    assert len(dumping) == 1, "a standby reads nothing"
    with nodes(own_zookeeper.hosts) as zk:
        running = f'{{"active":true,"address":"127.0.0.1:{first.canal_port}"}}'.encode()
        assert zk.get(f"{ROOT}/running")[0] == running
        assert json.loads(zk.get(f"/otter/canal/cluster/127.0.0.1:{second.canal_port}")[0])["url"] == second.url
        epoch = json.loads(zk.get(f"{ROOT}/sluice")[0])["epoch"]

    refused = call(second, "getWithoutAck")
    assert refused.status == 421
    assert refused.json()["active"] == first.url

    first.kill()
    pair.insert(4)
    eventually(lambda: state(second) == "running", lambda: "".join(second.log))
    assert set(ack(second, batches)) == {409}, "they are of an earlier epoch"
    rows, batches = read(second, 2)
    assert rows == [3, 4], "what was not acked comes again, and nothing else"
    assert set(ack(second, batches)) == {204}
    with nodes(own_zookeeper.hosts) as zk:
        assert json.loads(zk.get(f"{ROOT}/sluice")[0])["epoch"] > epoch

    first.start()
    eventually(lambda: state(first) == "standby", lambda: "".join(first.log))
    eventually(lambda: call(first, "getWithoutAck").json().get("active") == second.url)


def test_server_that_was_frozen_has_no_effect_when_it_comes_back(pair: Pair) -> None:
    first = pair.active()
    second = pair.other(first)
    assert call(first, "subscribe").status == 200
    pair.insert(1)
    stale = read(first, 1)[1]
    freeze(first.process.pid)
    eventually(lambda: state(second) == "running", lambda: "".join(second.log))
    rows, batches = read(second, 1)
    assert rows == [1]
    first.process.send_signal(signal.SIGCONT)
    assert set(ack(first, stale)) == {421}
    assert set(ack(second, batches)) == {204}
    eventually(lambda: state(first) == "standby", lambda: "".join(first.log))
    pair.insert(2)
    assert read(second, 1)[0] == [2]


@pytest.mark.extended
def test_server_that_is_stopped_hands_over_at_once(pair: Pair) -> None:
    first = pair.active()
    second = pair.other(first)
    assert call(first, "subscribe").status == 200
    pair.insert(1)
    assert set(ack(first, read(first, 1)[1])) == {204}
    first.stop()
    eventually(lambda: state(second) == "running", lambda: "".join(second.log))
    pair.insert(2)
    assert read(second, 1)[0] == [2]


@pytest.mark.extended
def test_owner_yields_when_its_node_says_inactive(pair: Pair, own_zookeeper: ZooKeeper) -> None:
    first = pair.active()
    with nodes(own_zookeeper.hosts) as zk:
        running = json.loads(zk.get(f"{ROOT}/running")[0])
        zk.set(f"{ROOT}/running", json.dumps(running | {"active": False}).encode())
    second = pair.other(first)
    eventually(lambda: state(second) == "running", lambda: "".join(second.log))
    assert state(first) == "standby"


def command(server: Sluice, *arguments: str) -> str:
    done = commands.run(*arguments, "--conf", str(server.conf))
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_commands_move_destinations(pair: Pair) -> None:
    first = pair.active()
    second = pair.other(first)
    assert call(first, "subscribe").status == 200
    pair.insert(1)
    assert set(ack(first, read(first, 1)[1])) == {204}
    assert f"127.0.0.1:{first.canal_port} gives it up" in command(second, "yield", NAME)
    eventually(lambda: state(second) == "running", lambda: "".join(second.log))
    pair.insert(2)
    assert read(second, 1)[0] == [2]
    wanted = spread([NAME], [f"127.0.0.1:{server.canal_port}" for server in pair.servers])[NAME]
    said = command(first, "rebalance")
    if wanted.endswith(f":{second.canal_port}"):
        assert "every destination is where it should be" in said
    else:
        assert f"for 127.0.0.1:{first.canal_port}" in said
        eventually(lambda: state(first) == "running", lambda: "".join(first.log))


@pytest.mark.extended
def test_start_without_zookeeper_waits_and_says_so(
    tmp_path: Path, own_zookeeper: ZooKeeper, mariadb118: Server, database: Database
) -> None:
    own_zookeeper.stop()
    pair = Pair(tmp_path, own_zookeeper.hosts, mariadb118, database(mariadb118))
    with pair.servers[0] as server:
        answer = call(server, "subscribe")
        assert answer.status == 421
        assert "ZooKeeper" in answer.json()["detail"]
        eventually(lambda: any("cannot be reached" in line for line in server.log))
        own_zookeeper.start()
        eventually(lambda: state(server) == "running", lambda: "".join(server.log))
        assert call(server, "subscribe").status == 200


@pytest.mark.extended
def test_server_cut_off_from_zookeeper_stands_down_and_comes_back(
    tmp_path: Path, own_zookeeper: ZooKeeper, mariadb118: Server, database: Database
) -> None:
    with Proxy(("127.0.0.1", own_zookeeper.servers[0].port)) as proxy:
        pair = Pair(tmp_path, f"127.0.0.1:{proxy.port}", mariadb118, database(mariadb118))
        with pair.servers[0] as server:
            eventually(lambda: state(server) == "running", lambda: "".join(server.log))
            assert call(server, "subscribe").status == 200
            pair.insert(1)
            batches = read(server, 1)[1]
            proxy.stall()
            eventually(lambda: call(server, "getWithoutAck").status == 421, lambda: "".join(server.log))
            assert set(ack(server, batches)) == {421}
            lost = f"the connection to ZooKeeper (127.0.0.1:{proxy.port}) is lost"
            eventually(lambda: server.destination(NAME)["error"] == lost, lambda: "".join(server.log))
            eventually(lambda: any(lost in line for line in server.log), lambda: "".join(server.log))
            assert len([line for line in server.log if lost in line]) == 1, "".join(server.log)
            proxy.resume()
            eventually(lambda: state(server) == "running", lambda: "".join(server.log))
            assert read(server, 1)[0] == [1]


@pytest.mark.extended
@pytest.mark.parametrize("meta", ["mixed", "period"])
def test_cursor_of_an_ack_that_does_not_wait_comes_to_zookeeper_soon(
    tmp_path: Path, own_zookeeper: ZooKeeper, mariadb118: Server, database: Database, meta: str
) -> None:
    pair = Pair(tmp_path, own_zookeeper.hosts, mariadb118, database(mariadb118), sluice__instance__meta=meta)
    with pair.servers[0] as server, nodes(own_zookeeper.hosts) as zk:
        eventually(lambda: state(server) == "running", lambda: "".join(server.log))
        assert call(server, "subscribe").status == 200
        pair.insert(1)
        batches = read(server, 1)[1]
        before = zk.get(f"{ROOT}/1001/cursor")[0]
        assert set(ack(server, batches)) == {204}
        eventually(lambda: zk.get(f"{ROOT}/1001/cursor")[0] != before)


@pytest.mark.extended
def test_ensemble_may_lose_its_leader(tmp_path: Path, mariadb118: Server, database: Database) -> None:
    with ZooKeeper(3) as ensemble:
        pair = Pair(tmp_path, ensemble.hosts, mariadb118, database(mariadb118), sluice__ha__sessionTimeout=6)
        with pair.servers[0] as server:
            eventually(lambda: state(server) == "running", lambda: "".join(server.log))
            assert call(server, "subscribe").status == 200
            pair.insert(1)
            assert set(ack(server, read(server, 1)[1])) == {204}
            ensemble.leader.kill()
            # It is durable when it is answered: a leader is there again, and the session with it.
            eventually(lambda: call(server, "subscribe").status == 200, lambda: "".join(server.log))
            pair.insert(2)
            rows, batches = read(server, 1)
            assert rows == [2]
            assert set(ack(server, batches)) == {204}
            pair.insert(3)
            assert read(server, 1)[0] == [3]
