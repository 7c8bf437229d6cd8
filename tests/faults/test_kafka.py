"""Changes reach Kafka, all of them and in order, while servers and brokers die."""

import contextlib
import itertools
import json
import random
import re
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import pytest

from sluice.client_sdk import Client
from sluice.client_sdk.tidb import OLDEST, TiDBReader
from sluice.protocol.errors import OwnedError
from sluice.protocol.tidb import secondary_pb2 as secondary
from sluice.protocol.tidb.entries import commit_ts_of
from sluice.server.outputs.kafka.topics import Topics
from sluice.server.outputs.routing import Router, Rules
from sluice.server.outputs.target import DeliveryError
from tests import commands
from tests.conftest import Database
from tests.delivery import execute
from tests.faults.harness import Load, Sluice
from tests.faults.harness import seen as of_changes
from tests.faults.pair import SCHEMA, pair_of
from tests.faults.pair import configure as configure_pair
from tests.kafka import arrived, configure, once, ops, seen
from tests.servers import Server, ZooKeeper, freeze
from tests.servers.kafka import Kafka
from tests.waiting import eventually

_numbers = itertools.count(1)


class Victim(Protocol):
    """What dies and comes back."""

    def kill(self) -> None: ...
    def start(self) -> None: ...


@pytest.fixture
def topic() -> str:
    """The name of a topic that does not exist yet."""
    return f"topic{next(_numbers)}"


@pytest.fixture
def broker() -> Iterator[Kafka]:
    """A broker of the test's own, which may die."""
    with Kafka() as found:
        yield found


def test_every_change_is_in_the_topic_once_and_in_order(
    sluice: Sluice, kafka: Kafka, topic: str, mariadb118: Server, database: Database
) -> None:
    schema = database(mariadb118)
    configure(sluice, kafka, topic, mariadb118, schema)
    load = Load(mariadb118, schema, count=100)
    with sluice.reading(), load:
        load.finish()
        assert load.check(seen(ops(arrived(kafka, topic)))) == load.changes()
        eventually(lambda: sluice.destination()["clients"][0]["lag"]["entries"] == 0, sluice.destination)


TRANSACTIONS: dict[str, Any] = {
    "sluice__output__mq__transactional": "true",
    "sluice__output__mq__transactionalId": "shop",
}


@pytest.mark.parametrize(("victim", "kills"), [("sluice", 2), pytest.param("kafka", 1, marks=pytest.mark.extended)])
def test_each_change_is_committed_once_whatever_is_killed(
    sluice: Sluice, broker: Kafka, topic: str, mariadb118: Server, database: Database, victim: str, kills: int
) -> None:
    schema = database(mariadb118)
    configure(sluice, broker, topic, mariadb118, schema, **TRANSACTIONS)
    load = Load(mariadb118, schema)
    chance = random.Random(5)
    dies = sluice if victim == "sluice" else broker
    with sluice.reading():
        with load:
            for _ in range(kills):
                goal = load.committed + chance.randrange(20, 150)
                eventually(lambda: load.committed > goal)  # noqa: B023
                dies.kill()
                dies.start()
            load.finish(stop=True)
        assert load.check(seen(ops(arrived(broker, topic)))) == load.changes()


@pytest.mark.parametrize(
    "kills",
    [
        pytest.param(10, marks=[pytest.mark.extended, pytest.mark.timeout(600)]),
        pytest.param(50, marks=[pytest.mark.soak, pytest.mark.timeout(3600)]),
    ],
)
def test_each_change_is_committed_once_over_kills_of_everything(
    tmp_path: Path, own_zookeeper: ZooKeeper, broker: Kafka, topic: str, doomed: Server, database: Database, kills: int
) -> None:
    schema = database(doomed)
    chance = random.Random(50)
    load = Load(doomed, schema)
    servers = [Sluice(tmp_path / name) for name in "ab"]
    everything: list[Victim] = [*servers, *servers, broker, own_zookeeper, doomed]
    with contextlib.ExitStack() as stack:
        for server in servers:
            others = {"canal__zkServers": own_zookeeper.hosts, "sluice__ha__sessionTimeout": 2}
            configure(server, broker, topic, doomed, schema, main=others)
            stack.enter_context(server)
        wait_active(servers)
        with load:
            for number in range(kills):
                goal = load.committed + chance.randrange(1, 60)
                eventually(lambda: load.committed > goal)  # noqa: B023
                victims = chance.sample(everything, chance.choice((1, 1, 2, 3)))
                for victim in dict.fromkeys(victims):
                    victim.kill()
                for victim in dict.fromkeys(victims):
                    victim.start()
                if number % 10 == 9:
                    found = partial(map, Sluice.destination, servers)
                    eventually(lambda: any(it["state"] == "running" for it in found()), lambda: list(found()), 180)  # noqa: B023
            load.finish(stop=True)
        assert load.check(seen(ops(arrived(broker, topic)))) == load.changes()


@pytest.mark.extended
@pytest.mark.parametrize("transactional", [False, True])
def test_a_stop_does_not_wait_for_a_broker_that_does_not_answer(
    sluice: Sluice, broker: Kafka, topic: str, mariadb118: Server, database: Database, *, transactional: bool
) -> None:
    schema = database(mariadb118)
    configure(sluice, broker, topic, mariadb118, schema, **(TRANSACTIONS if transactional else {}))
    load = Load(mariadb118, schema)
    sluice.start()
    sluice.wait_running()
    with load:
        eventually(lambda: sluice.destination()["outputs"][0]["records"] > 20, sluice.destination)
        broker.freeze()
        goal = load.committed + 50
        eventually(lambda: load.committed > goal)
        assert sluice.stop() < 5
        broker.thaw()
        sluice.start()
        load.finish(stop=True)
    found = ops(arrived(broker, topic))
    assert load.check(seen(found if transactional else once(found))) == load.changes()


@pytest.mark.extended
def test_a_broker_that_stands_still_has_no_end_of_a_topic(broker: Kafka, topic: str) -> None:
    broker.create(topic)
    config = {"bootstrap.servers": broker.servers}
    topics = Topics(config, Router(Rules(topic)), 1 << 20, lambda: None, lambda _: None)
    topics.open()

    def end() -> int:
        """What is said first: on a slow machine a broker may not answer in time at once."""
        found: list[int] = []

        def answered() -> list[int]:
            with contextlib.suppress(DeliveryError):
                found.append(topics.end(topic, 0))
            return found

        eventually(answered)
        return found[0]

    assert end() == 0
    broker.freeze()
    for _ in range(2):
        with pytest.raises(DeliveryError, match="no broker answers"):
            topics.end(topic, 0)
    broker.thaw()
    assert end() == 0


@pytest.mark.extended
def test_a_server_that_was_frozen_past_its_session_leaves_the_topic_to_the_newer_one(
    tmp_path: Path, own_zookeeper: ZooKeeper, broker: Kafka, topic: str, mariadb118: Server, database: Database
) -> None:
    schema = database(mariadb118)
    load = Load(mariadb118, schema)
    servers = [Sluice(tmp_path / name) for name in "ab"]
    with contextlib.ExitStack() as stack:
        for server in servers:
            others = {"canal__zkServers": f"{own_zookeeper.hosts}", "sluice__ha__sessionTimeout": 2}
            configure(server, broker, topic, mariadb118, schema, main=others)
            stack.enter_context(server)
        wait_active(servers)
        with load:
            for _ in range(2):
                active = wait_active(servers)
                goal = load.committed + 50
                eventually(lambda: load.committed > goal)  # noqa: B023
                freeze(active.process.pid)
                (other,) = (it for it in servers if it is not active)
                eventually(lambda: other.destination()["state"] == "running", "the take-over")  # noqa: B023
                goal = load.committed + 50
                eventually(lambda: load.committed > goal)  # noqa: B023
                before = active.log_file.stat().st_size
                active.process.send_signal(signal.SIGCONT)
                eventually(lambda: active.destination()["state"] == "standby", "the end of the older one")  # noqa: B023
                eventually(lambda: other.destination()["outputs"][0]["state"] == "running", other.destination)  # noqa: B023
                assert "output mq: running" not in active.log_file.read_text()[before:], "it takes the topic back"
            load.finish(stop=True)
        load.check(seen(ops(arrived(broker, topic))))


@pytest.mark.extended
def test_the_server_that_takes_over_knows_the_client_of_an_output(
    tmp_path: Path, own_zookeeper: ZooKeeper, kafka: Kafka, topic: str, mariadb118: Server, database: Database
) -> None:
    schema = database(mariadb118)
    mariadb118.query(f"CREATE TABLE {schema}.goods (id INT PRIMARY KEY)")
    settings = {
        "sluice__outputs": "copy",
        "sluice__output__copy__topic": topic,
        "sluice__output__copy__kafka__bootstrap__servers": kafka.servers,
    }
    servers = [Sluice(tmp_path / name) for name in "ab"]
    with contextlib.ExitStack() as stack:
        for server in servers:
            server.settings = {"canal__zkServers": own_zookeeper.hosts, "sluice__ha__sessionTimeout": 2}
            server.add("shop", mariadb118, canal__instance__filter__regex=rf"{schema}\\..*", **settings)
            stack.enter_context(server)
        for number in (1, 2):
            active = wait_active([it for it in servers if it.process.poll() is None])
            eventually(lambda: [it["state"] for it in active.destination()["outputs"]] == ["running"])  # noqa: B023
            assert active.destination()["outputs"][0]["clientId"] == 32001
            mariadb118.query(f"INSERT INTO {schema}.goods VALUES ({number})")
            eventually(lambda: number in ids(kafka, topic))  # noqa: B023
            with pytest.raises(OwnedError, match="client 32001 is that of the output copy"):
                Client(active.url, "shop", 32001).get()
            active.kill()
    assert ids(kafka, topic) == [1, 2]


@pytest.mark.extended
def test_readers_of_tidbs_binlog_see_each_change_once_whatever_is_killed(
    sluice: Sluice, broker: Kafka, topic: str, mariadb118: Server, database: Database
) -> None:
    """What comes again has the commit_ts that it had, by which a reader leaves it out."""
    schema = database(mariadb118)
    configure(
        sluice,
        broker,
        topic,
        mariadb118,
        schema,
        sluice__output__mq__format="tidb",
        sluice__output__mq__maxBytes=1024,  # so that batches end inside transactions
    )
    load = Load(mariadb118, schema)
    chance = random.Random(6)
    with sluice.reading():
        with load:
            for victim in (sluice, sluice, broker, sluice):
                goal = load.committed + chance.randrange(20, 150)
                eventually(lambda: load.committed > goal)  # noqa: B023
                victim.kill()
                victim.start()
            load.finish(stop=True)
        eventually(lambda: any(b"finished" in it for it in broker.read(topic)[0]), sluice.destination)
        (records,) = broker.read(topic)
        values = {commit_ts_of(it): it for it in records}
        assert all(values[commit_ts_of(it)] == it for it in records)
        with TiDBReader(broker.servers, topic=topic, offset=OLDEST) as reader:
            messages = list(itertools.islice(reader, len(values)))
        found = [op for message in messages for seen in of_changes(message.batch()) for op in seen.ops]
    for table in Load.TABLES:  # the order is that within a table
        load.check(seen(it for it in found if it.table == table), (table,))


@pytest.mark.extended
@pytest.mark.parametrize("stands_still", ["broker", "zookeeper"])
@pytest.mark.parametrize("form", ["flat", "tidb"])
def test_changes_come_once_though_their_client_leaves_the_ring_while_others_wait_to_be_sent(
    sluice: Sluice,
    own_zookeeper: ZooKeeper,
    broker: Kafka,
    topic: str,
    mariadb118: Server,
    database: Database,
    form: str,
    stands_still: str,
) -> None:
    schema = database(mariadb118)
    execute(mariadb118, ["CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, v INT)"], database=schema)
    configure(
        sluice,
        broker,
        topic,
        mariadb118,
        schema,
        main={"canal__zkServers": own_zookeeper.hosts, "sluice__ha__sessionTimeout": 60},
        sluice__instance__store="file",
        canal__instance__memory__buffer__size=64,
        sluice__output__mq__format=form,
    )
    victim = broker if stands_still == "broker" else own_zookeeper

    def is_attached() -> bool:
        return bool(sluice.destination()["clients"][0]["state"] == "attached")

    def leaves() -> bool:
        execute(mariadb118, ["BEGIN", *["INSERT INTO t (v) VALUES (1)"] * 5, "COMMIT"], database=schema)
        return not is_attached()

    with sluice.reading():
        for _ in range(3):
            eventually(is_attached, sluice.destination)
            victim.freeze()
            eventually(leaves, sluice.destination)
            victim.thaw()
        ((count,),) = mariadb118.query("SELECT COUNT(*) FROM t", database=schema)
        read = binlog_ids if form == "tidb" else ids
        eventually(lambda: count in read(broker, topic), sluice.destination)
    assert read(broker, topic) == list(range(1, count + 1))


def wait_active(servers: list[Sluice]) -> Sluice:
    """Wait until one of the servers, and no other, has the destination."""
    found: list[Sluice] = []

    def one() -> bool:
        found[:] = [it for it in servers if it.destination()["state"] == "running"]
        return len(found) == 1

    eventually(one, lambda: [it.destination() for it in servers])
    return found[0]


def ids(broker: Kafka, topic: str) -> list[int]:
    """The rows that were inserted, as the topic has them."""
    messages = [json.loads(value) for values in broker.read(topic) for value in values]
    return [int(row["id"]) for it in messages if it["type"] == "INSERT" for row in it["data"]]


def binlog_ids(broker: Kafka, topic: str) -> list[int]:
    """The rows that were inserted, as readers of TiDB's binlog take them: they leave out what they have had."""
    found: list[int] = []
    last = 0
    for value in itertools.chain(*broker.read(topic)):
        binlog = secondary.Binlog.FromString(value)
        if binlog.commit_ts > last:
            last = binlog.commit_ts
            changed = [it for table in binlog.dml_data.tables for it in table.mutations]
            found += [it.row.columns[0].int64_value for it in changed]
    return found


@pytest.mark.extended
@pytest.mark.parametrize("stored", ["", "first", "second"])
def test_on_another_source_it_goes_on_where_the_topic_ends_though_the_cursor_had_not_come_so_far(
    sluice: Sluice, broker: Kafka, topic: str, stored: str
) -> None:
    """``stored`` is the source that the stored cursor is of; empty without one. What follows comes from the first."""
    with pair_of("mariadb118") as pair:
        main = {"canal__serverMode": "kafka", "kafka__bootstrap__servers": broker.servers}
        sluice.settings = main | {"canal__file__flush__period": 3_600_000}

        def reads(source: Server) -> None:
            settings = TRANSACTIONS | {"canal__instance__filter__regex": rf"{SCHEMA}\\..*"}
            sluice.add("shop", source, canal__mq__topic=topic, **settings)

        reads(pair.second if stored == "second" else pair.first)
        with sluice:
            sluice.wait_running()
            for last in (10, 20):
                for number in range(last - 9, last + 1):
                    pair.first.query(f"INSERT INTO {SCHEMA}.t VALUES (%s, 'a')", (number,))
                eventually(lambda: ids(broker, topic) == [*range(1, last + 1)], lambda: ids(broker, topic))  # noqa: B023
                if last == 10 and stored:
                    sluice.stop()
                    reads(pair.first)
                    sluice.start()
                    sluice.wait_running()
            sluice.kill()
            reads(pair.second)
            pair.second.query(f"INSERT INTO {SCHEMA}.t VALUES (21, 'z')")
            sluice.start()
            eventually(lambda: 21 in ids(broker, topic), lambda: sluice.destination()["outputs"])
            assert ids(broker, topic) == [*range(1, 22)]


@pytest.mark.extended
@pytest.mark.parametrize("goes_back", [False, True])
def test_inside_a_transaction_a_switch_of_the_source_says_what_helps_and_that_does(
    sluice: Sluice, broker: Kafka, topic: str, *, goes_back: bool
) -> None:
    with pair_of("mariadb118") as pair:
        sluice.settings = {"canal__serverMode": "kafka", "kafka__bootstrap__servers": broker.servers}
        small = {"canal__instance__memory__buffer__size": 512, "sluice__output__mq__maxBytes": 4096}
        configure_pair(sluice, pair, canal__mq__topic=topic, **TRANSACTIONS, **small)

        def output() -> Any:
            return sluice.destination()["outputs"][0]

        with sluice:
            sluice.wait_running()
            pair.first.query(f"INSERT INTO {SCHEMA}.t VALUES (1, 'a')")
            eventually(lambda: ids(broker, topic) == [1], output)
            with pair.first.connect(autocommit=False) as connection, connection.cursor() as statement:
                for number in range(2, 3000):
                    statement.execute(f"INSERT INTO {SCHEMA}.t VALUES (%s, REPEAT('x', 400))", (number,))
                connection.commit()
            eventually(lambda: output()["records"] > 200, output)
            broker.freeze()
            sluice.call("POST", "/shop/source/switch")
            broker.thaw()
            pair.first.query(f"INSERT INTO {SCHEMA}.t VALUES (3000, 'z')")
            eventually(lambda: "so that this part is there twice" in output()["error"], output)
            assert "Switch back to that one" in output()["error"]
            if goes_back:
                sluice.call("POST", "/shop/source/switch")
                eventually(lambda: ids(broker, topic)[-1] == 3000, output)
                assert ids(broker, topic) == [*range(1, 3001)], "once"
                return
            advice = re.search(r"`sluice (seek [^`]*)`", output()["error"])
            assert advice is not None
            commands.run(*advice[1].split(), "--url", sluice.url, check=True)
            eventually(lambda: ids(broker, topic)[-1] == 3000, output)
            found = ids(broker, topic)
            sent = found.index(2, 2)  # of the part that came twice
            assert found == [*range(1, sent + 1), *range(2, 3001)]
