"""A view loses nothing when its server is killed, frozen, or gives its main destination to another one."""

import json
import random
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import urllib3

from sluice.client_sdk import ClusterClient
from sluice.server.credentials import Credentials, Grant, Scope
from tests import commands
from tests.conftest import Database
from tests.effort import times
from tests.faults.harness import USUAL, Consumer, Load, Sluice, consuming
from tests.faults.test_ha import Pair, ack, call, command, read, state
from tests.kafka import arrived, configure, ops, seen
from tests.servers import Server, ZooKeeper, freeze, nodes
from tests.servers.kafka import Kafka
from tests.waiting import eventually

MAIN, VIEW = "shop", "part"
ROOT = f"/otter/canal/destinations/{VIEW}"


@pytest.mark.extended
@pytest.mark.parametrize("source", USUAL, indirect=True)
@pytest.mark.parametrize("end", ["stop", "kill"])
def test_each_view_gets_all_of_its_tables_whatever_becomes_of_the_server(
    sluice: Sluice, source: Server, database: Database, end: str
) -> None:
    schema = database(source)
    sluice.add(MAIN, source, canal__instance__filter__regex=rf"{schema}\\..*")
    regex = rf"{schema}\\.(b|finished)"
    sluice.configure(VIEW, sluice__instance__route=MAIN, canal__instance__filter__regex=regex)
    sluice.configure("whole", sluice__instance__route=MAIN)
    chance = random.Random(8)
    load = Load(source, schema)
    with sluice:
        sluice.wait_running()
        ways = {MAIN: "stream", VIEW: "batches", "whole": "durable"}
        consumers = {name: Consumer(sluice.client(name=name), way) for name, way in ways.items()}
        with load, consuming(*consumers.values()):
            for _ in range(times(2, 3)):
                goal = load.committed + chance.randrange(20, 150)
                read = [len(consumer.seen) for consumer in consumers.values()]
                eventually(lambda: load.committed > goal)  # noqa: B023
                eventually(lambda: all(len(it.seen) > n for it, n in zip(consumers.values(), read, strict=True)))  # noqa: B023
                getattr(sluice, end)()
                for name, consumer in consumers.items():
                    if consumer.way != "durable":
                        consumer.floor = sluice.stored(name=name)
                sluice.start()
            load.finish(stop=True)
            for name, consumer in consumers.items():
                tables = ["b"] if name == VIEW else Load.TABLES
                assert load.check(consumer.finish(), tables) == load.changes(tables)


@pytest.mark.extended
def test_the_output_of_a_view_sends_each_of_its_changes_once_whatever_is_killed(
    sluice: Sluice, kafka: Kafka, mariadb118: Server, database: Database
) -> None:
    schema = database(mariadb118)
    transactions: dict[str, Any] = {"sluice__output__mq__transactional": "true"}
    topics = {name: f"{schema}-{name}" for name in (MAIN, VIEW)}
    configure(sluice, kafka, topics[MAIN], mariadb118, schema, sluice__output__mq__transactionalId=MAIN, **transactions)
    sluice.configure(
        VIEW,
        sluice__instance__route=MAIN,
        canal__instance__filter__regex=rf"{schema}\\.(b|finished)",
        canal__mq__topic=topics[VIEW],
        sluice__output__mq__transactionalId=VIEW,
        **transactions,
    )
    load = Load(mariadb118, schema)
    chance = random.Random(5)
    with sluice.reading():
        with load:
            for _ in range(2):
                goal = load.committed + chance.randrange(20, 150)
                eventually(lambda: load.committed > goal)  # noqa: B023
                sluice.kill()
                sluice.start()
            load.finish(stop=True)
        for name, tables in ((MAIN, Load.TABLES), (VIEW, ("b",))):
            load.check(seen(ops(arrived(kafka, topics[name]))), tables)
            (output,) = sluice.destination(name)["outputs"]
            assert (output["state"], output["error"]) == ("running", "")


@pytest.fixture
def pair(tmp_path: Path, own_zookeeper: ZooKeeper, mariadb118: Server, database: Database) -> Iterator[Pair]:
    """Two servers that share a destination and a view of it."""
    schema = database(mariadb118)
    pair = Pair(tmp_path, own_zookeeper.hosts, mariadb118, schema)
    for server in pair.servers:
        server.configure(VIEW, sluice__instance__route=MAIN, canal__instance__filter__regex=rf"{schema}\\.t")
    with ExitStack() as stack, ThreadPoolExecutor() as pool:
        for server in pair.servers:
            stack.callback(server.__exit__)
        list(pool.map(Sluice.start, pair.servers))
        yield pair


def where(zookeeper: ZooKeeper) -> str:
    """The address of the server that clients of the view find in ZooKeeper; empty if there is none."""
    with nodes(zookeeper.hosts) as zk:
        if not zk.exists(f"{ROOT}/running"):
            return ""
        found = json.loads(zk.get(f"{ROOT}/running")[0])
        assert found["route"] == MAIN
        return str(found["address"])


@pytest.mark.extended
def test_a_view_goes_on_where_its_destination_does(pair: Pair, own_zookeeper: ZooKeeper) -> None:
    first = pair.active()
    second = pair.other(first)
    eventually(lambda: state(first, VIEW) == "running", lambda: "".join(first.log))
    assert state(second, VIEW) == "standby"
    assert where(own_zookeeper) == f"127.0.0.1:{first.canal_port}"
    assert call(first, "subscribe", name=VIEW).status == 200
    pair.insert(1, 2)
    rows, batches = read(first, 2, VIEW)
    assert rows == [1, 2]
    assert set(ack(first, batches, VIEW)) == {204}
    pair.insert(3)
    rows, batches = read(first, 1, VIEW)  # and not acked
    dumping = [row for row in pair.source.query("SHOW PROCESSLIST") if "Binlog Dump" in str(row[4])]
    assert len(dumping) == 1
    with nodes(own_zookeeper.hosts) as zk:
        assert "position" in json.loads(zk.get(f"{ROOT}/1001/cursor")[0])["sluice"]
        names = {f"127.0.0.1:{server.canal_port}" for server in pair.servers}
        assert set(zk.get_children(f"{ROOT}/cluster")) == names
        assert not zk.exists(f"{ROOT}/sluice"), "its epoch is that of its destination"

    refused = call(second, "getWithoutAck", name=VIEW)
    assert refused.status == 421
    assert refused.json()["active"] == first.url

    first.kill()
    pair.insert(4)
    eventually(lambda: state(second, VIEW) == "running", lambda: "".join(second.log))
    assert where(own_zookeeper) == f"127.0.0.1:{second.canal_port}"
    assert set(ack(second, batches, VIEW)) == {409}, "they are of an earlier epoch"
    rows, batches = read(second, 2, VIEW)
    assert rows == [3, 4], "what was not acked comes again, and nothing else"
    assert set(ack(second, batches, VIEW)) == {204}
    first.start()
    eventually(lambda: state(first, VIEW) == "standby", lambda: "".join(first.log))


@pytest.mark.extended
def test_a_server_that_was_frozen_cannot_move_the_cursor_of_a_view(pair: Pair, own_zookeeper: ZooKeeper) -> None:
    first = pair.active()
    second = pair.other(first)
    eventually(lambda: state(first, VIEW) == "running", lambda: "".join(first.log))
    assert call(first, "subscribe", name=VIEW).status == 200
    pair.insert(1)
    stale = read(first, 1, VIEW)[1]
    freeze(first.process.pid)
    eventually(lambda: state(second, VIEW) == "running", lambda: "".join(second.log))
    assert read(second, 1, VIEW)[0] == [1]
    first.process.send_signal(signal.SIGCONT)
    assert set(ack(first, stale, VIEW)) == {421}
    eventually(lambda: state(first, VIEW) == "standby", lambda: "".join(first.log))
    assert where(own_zookeeper) == f"127.0.0.1:{second.canal_port}"
    pair.insert(2)
    assert read(second, 1, VIEW)[0] == [2]


@pytest.mark.extended
def test_a_client_of_a_view_finds_the_server_and_follows_a_move(pair: Pair, own_zookeeper: ZooKeeper) -> None:
    first = pair.active()
    second = pair.other(first)
    with ClusterClient(zookeeper=own_zookeeper.hosts, destination=VIEW) as client:
        client.subscribe()
        for number in (1, 2):
            pair.insert(number)
            found: list[int] = []
            while number not in found:
                batch = client.get_without_ack(5)
                found += [row.after["id"] for row in batch if row.after]
                client.ack(batch)
            if number == 1:
                refused = commands.run("yield", VIEW, "--conf", str(first.conf))
                assert f"{VIEW} is a view of {MAIN}, and moves with it" in refused.stderr
                assert MAIN in command(first, "yield", MAIN)
                eventually(lambda: state(second, VIEW) == "running", lambda: "".join(second.log))


@pytest.mark.extended
def test_a_view_that_is_stopped_is_found_nowhere_and_starts_where_it_was(pair: Pair, own_zookeeper: ZooKeeper) -> None:
    first = pair.active()
    eventually(lambda: state(first, VIEW) == "running", lambda: "".join(first.log))
    assert call(first, "subscribe", name=VIEW).status == 200
    pair.insert(1)
    assert set(ack(first, read(first, 1, VIEW)[1], VIEW)) == {204}
    first.call("POST", f"/{VIEW}/stop")
    eventually(lambda: not where(own_zookeeper), "the node goes")
    pair.insert(2)
    for _ in range(2):
        first.call("POST", f"/{VIEW}/start")
        assert where(own_zookeeper) == f"127.0.0.1:{first.canal_port}"
    assert read(first, 1, VIEW)[0] == [2]
    with nodes(own_zookeeper.hosts) as zk:
        assert not zk.exists(f"{ROOT}/sluice"), "it takes part in no election"


@pytest.mark.extended
def test_a_view_that_is_a_destination_of_its_own_elsewhere_is_not_taken_from_there(
    pair: Pair, own_zookeeper: ZooKeeper
) -> None:
    first = pair.active()
    first.call("POST", f"/{VIEW}/stop")
    eventually(lambda: not where(own_zookeeper), "the node goes")
    with nodes(own_zookeeper.hosts) as zk:
        zk.create(f"{ROOT}/running", b'{"active":true,"address":"10.0.0.9:11111"}', ephemeral=True)
        first.call("POST", f"/{VIEW}/start")
        said = f"{VIEW} is a destination of its own for 10.0.0.9:11111, and a view of {MAIN} here"
        assert said in first.destination(VIEW)["error"]
    first.call("POST", f"/{VIEW}/start")
    assert state(first, VIEW) == "running"


@pytest.mark.extended
def test_limits_of_a_token_are_those_of_a_destination_and_its_view_on_whichever_server(
    tmp_path: Path, own_zookeeper: ZooKeeper, mariadb118: Server, database: Database
) -> None:
    schema = database(mariadb118)
    credentials = Credentials(tmp_path / "credentials.json")
    ops = credentials.issue("ops", Grant(scope=Scope.ADMIN)).text
    billing, shipping = (credentials.issue(name, Grant(clients=())).text for name in ("billing", "shipping"))
    pair = Pair(
        tmp_path,
        own_zookeeper.hosts,
        mariadb118,
        schema,
        sluice__http__credentials=tmp_path / "credentials.json",
        sluice__instance__maxClientsOfToken=2,
        sluice__instance__maxFilterSizes=1000,
        canal__serverMode="kafka",  # so that each has an output, whose broker is away
        kafka__bootstrap__servers="127.0.0.1:1",
    )
    large = ",".join(rf"{schema}\.t{number}[0-9]{{1,20}}" for number in range(8))

    def ask(server: Sluice, token: str, path: str, **body: object) -> tuple[int, dict[str, Any]]:
        headers, url = {"Authorization": f"Bearer {token}"}, f"{server.url}/v1/destinations/{path}"
        with urllib3.PoolManager(retries=False) as http:
            answer = http.request("POST" if body else "GET", url, headers=headers, json=body or None)
        return answer.status, answer.json() if answer.data else {}

    def serves(server: Sluice) -> bool:
        answers = [ask(server, ops, name)[1] for name in (MAIN, VIEW)]
        return all(
            it["state"] == "running" and 1001 in [client["clientId"] for client in it["clients"]] for it in answers
        )

    def subscribe(server: Sluice, token: str, name: str, client_id: int, tables: str = "") -> str:
        """Return why it is refused."""
        status, answer = ask(server, token, f"{name}/clients/{client_id}/subscribe", filter=tables)
        return "" if status == 200 else str(answer["detail"])

    def refuses(server: Sluice, name: str) -> None:
        assert "2 clients that the token 'billing' has created" in subscribe(server, billing, name, 13)
        assert "of 250 (sluice.instance.maxFilterSizes)" in subscribe(server, shipping, name, 21, large)

    for server in pair.servers:
        server.configure(VIEW, sluice__instance__route=MAIN, canal__instance__filter__regex=rf"{schema}\\.t.*")
    with ExitStack() as stack, ThreadPoolExecutor() as pool:
        for server in pair.servers:
            stack.callback(server.__exit__)
        list(pool.map(Sluice.start, pair.servers))
        eventually(
            lambda: any(map(serves, pair.servers)),
            lambda: [ask(it, ops, name) for it in pair.servers for name in (MAIN, VIEW)],
        )
        first = next(filter(serves, pair.servers))
        second = pair.other(first)
        for name in (MAIN, VIEW):
            assert [subscribe(first, billing, name, client_id) for client_id in (11, 12)] == ["", ""]
            assert not subscribe(first, shipping, name, 21, rf"{schema}\.t")
            refuses(first, name)
        first.kill()
        eventually(lambda: serves(second), lambda: "".join(second.log))
        for name in (MAIN, VIEW):
            refuses(second, name)
            assert not subscribe(second, billing, name, 12), "what it has it may have again"
            assert not subscribe(second, shipping, name, 13), "the limit is that of the other token"
