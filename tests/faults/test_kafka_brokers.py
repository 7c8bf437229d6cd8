"""Changes reach Kafka, all of them and in order, whatever befalls its brokers, our servers and ZooKeeper."""

import contextlib
import itertools
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Database
from tests.faults.harness import Load, Sluice
from tests.faults.test_kafka import wait_active
from tests.kafka import arrived, check_keys, configure, once, ops, seen
from tests.servers import Server, ZooKeeper, freeze
from tests.servers.kafka import Brokers, Kafka, KafkaCluster
from tests.waiting import eventually

pytestmark = pytest.mark.extended

_numbers = itertools.count(1)
BROKERS: dict[str, Callable[[], Kafka | KafkaCluster]] = {
    "one": Kafka,
    "one-39": lambda: Kafka(name="kafka39"),
    "three": KafkaCluster,
    "three-39": lambda: KafkaCluster("kafka39"),
}


@dataclass
class Scene:
    """Writers, brokers, and the topic with all changes in one partition."""

    load: Load
    brokers: Brokers
    topic: str

    @property
    def leader(self) -> Kafka:
        """The broker that leads the topic's partition."""
        brokers = self.brokers
        if isinstance(brokers, KafkaCluster):
            return brokers.brokers[brokers.leader(self.topic) - 1]
        assert isinstance(brokers, Kafka)
        return brokers

    def go_on(self, transactions: int = 50) -> None:
        """Wait until this number of transactions more is written."""
        goal = self.load.committed + transactions
        eventually(lambda: self.load.committed > goal, "the writers")

    def wait_moved(self, former: Kafka) -> None:
        """Wait until another broker leads, if there is one."""
        if isinstance(self.brokers, KafkaCluster):
            brokers = self.brokers
            eventually(lambda: brokers.leader(self.topic) not in (-1, former.number), "another leader")


def killed(scene: Scene) -> None:
    victim = scene.leader
    victim.kill()
    scene.wait_moved(victim)
    scene.go_on()
    victim.start()


def frozen(scene: Scene) -> None:
    victim = scene.leader
    victim.freeze()
    scene.wait_moved(victim)
    scene.go_on()
    victim.thaw()


def restarted(scene: Scene) -> None:
    victim = scene.leader
    victim.stop()
    scene.go_on()
    victim.start()


def moved(scene: Scene) -> None:
    """Another broker leads, then the first one again: all of them live when that happens."""
    assert isinstance(scene.brokers, KafkaCluster)
    cluster, former = scene.brokers, scene.leader
    former.stop()
    scene.wait_moved(former)
    former.start()
    scene.go_on()

    def back() -> bool:
        cluster.elect()
        return scene.leader is former

    eventually(back, "the first leader")
    scene.go_on()


def settings(topic: str) -> dict[str, Any]:
    """Two outputs: one sends everything to one partition, the other spreads the rows by their keys."""
    hashed = {
        "clientId": 1002,
        "topic": f"{topic}-keys",
        "partitionsNum": 3,
        "partitionHash": r".*\\..*:id",
        "transactional": "true",
        "transactionalId": f"{topic}-keys",
    }
    return {
        "sluice__outputs": "keys",
        "sluice__output__mq__transactional": "true",
        "sluice__output__mq__transactionalId": topic,
        **{f"sluice__output__keys__{name}": value for name, value in hashed.items()},
    }


def check(scene: Scene) -> int:
    """Look at both topics as consumers that read what is committed; return how many changes of rows each has."""
    arrived(scene.brokers, f"{scene.topic}-keys")
    check_keys(scene.load, scene.brokers.read(f"{scene.topic}-keys"))
    return scene.load.check(seen(once(ops(arrived(scene.brokers, scene.topic)))))


def make_topics(brokers: Brokers) -> str:
    topic = f"changes{next(_numbers)}"
    brokers.create(topic)
    brokers.create(f"{topic}-keys", 3)
    return topic


def _tier(name: str, fault: Callable[[Scene], None]) -> pytest.MarkDecorator:
    """Tell who tries it: of the older brokers one is killed, and one is moved, in `make test-all`."""
    seldom = name.endswith("-39") and (name, fault) not in {("one-39", killed), ("three-39", moved)}
    return pytest.mark.soak if seldom else pytest.mark.extended


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        pytest.param("one", frozen, id="one-frozen"),
        *(
            pytest.param(name, fault, id=f"{name}-{fault.__name__}", marks=_tier(name, fault))
            for name, fault in itertools.product(BROKERS, (killed, frozen, restarted, moved))
            if (name, fault) != ("one", frozen) and (fault is not moved or name.startswith("three"))
        ),
    ],
)
def test_no_change_is_lost_or_out_of_order(
    sluice: Sluice, mariadb118: Server, database: Database, name: str, fault: Callable[[Scene], None]
) -> None:
    schema = database(mariadb118)
    load = Load(mariadb118, schema)
    with BROKERS[name]() as brokers:
        topic = make_topics(brokers)
        configure(sluice, brokers, topic, mariadb118, schema, **settings(topic))
        scene = Scene(load, brokers, topic)
        with sluice.reading(), load:
            scene.go_on()
            fault(scene)
            scene.go_on()
            load.finish(stop=True)
            assert check(scene) == load.changes()


@pytest.mark.extended
@pytest.mark.parametrize("name", ["kafka", "kafka39"])
def test_a_broker_whose_disk_was_full_has_every_change_once_there_is_room(
    sluice: Sluice, mariadb118: Server, database: Database, tmp_path: Path, name: str
) -> None:
    schema = database(mariadb118)
    load = Load(mariadb118, schema)
    disk = tmp_path / "disk"
    disk.mkdir()
    with contextlib.ExitStack() as stack:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", disk], check=True)
        stack.callback(lambda: subprocess.run(["umount", "--lazy", disk], check=True))
        options = {"log.dirs": str(disk / "data"), "log.index.size.max.bytes": "4096"}
        broker = stack.enter_context(Kafka(options, name=name))
        topic = make_topics(broker)
        configure(sluice, broker, topic, mariadb118, schema, **settings(topic))
        scene = Scene(load, broker, topic)
        with sluice.reading(), load:
            scene.go_on()
            filler = disk / "filler"
            with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(4096))
            eventually(lambda: not broker.running, "the broker's end")
            scene.go_on()
            filler.unlink()
            broker.kill()
            broker.start()
            scene.go_on()
            load.finish(stop=True)
            assert check(scene) == load.changes()


@pytest.mark.extended
@pytest.mark.parametrize("fault", ["killed", "frozen", "without ZooKeeper"])
@pytest.mark.parametrize("name", ["one", "three-39"])
def test_no_change_is_lost_or_out_of_order_when_another_server_takes_over(
    tmp_path: Path, own_zookeeper: ZooKeeper, mariadb118: Server, database: Database, name: str, fault: str
) -> None:
    schema = database(mariadb118)
    load = Load(mariadb118, schema)
    servers = [Sluice(tmp_path / it) for it in "ab"]
    with contextlib.ExitStack() as stack:
        brokers = stack.enter_context(BROKERS[name]())
        topic = make_topics(brokers)
        for server in servers:
            shared = {"canal__zkServers": own_zookeeper.hosts, "sluice__ha__sessionTimeout": 2}
            configure(server, brokers, topic, mariadb118, schema, main=shared, **settings(topic))
            stack.enter_context(server)
        scene = Scene(load, brokers, topic)
        wait_active(servers)
        with load:
            for _ in range(2):
                active = wait_active(servers)
                (other,) = (it for it in servers if it is not active)
                scene.go_on()
                if fault == "without ZooKeeper":
                    own_zookeeper.kill()
                    eventually(lambda: active.destination()["state"] != "running", "the end of the lease")  # noqa: B023
                    scene.go_on()
                    own_zookeeper.start()
                    continue
                if fault == "killed":
                    active.process.kill()
                else:
                    freeze(active.process.pid)
                eventually(lambda: other.destination()["state"] == "running", "the take-over")  # noqa: B023
                scene.go_on()
                if fault == "killed":
                    active.process.wait()
                    active.start()
                else:
                    active.process.send_signal(signal.SIGCONT)
            load.finish(stop=True)
            assert check(scene) == load.changes()


@pytest.mark.extended
def test_another_server_knows_that_a_topic_was_deleted_while_none_had_the_destination(
    tmp_path: Path, own_zookeeper: ZooKeeper, kafka: Kafka, mariadb118: Server, database: Database
) -> None:
    schema = database(mariadb118)
    load = Load(mariadb118, schema, count=20)
    first, second = servers = [Sluice(tmp_path / it) for it in "ab"]
    topic = make_topics(kafka)
    for server in servers:
        shared = {"canal__zkServers": own_zookeeper.hosts, "sluice__ha__sessionTimeout": 2}
        configure(server, kafka, topic, mariadb118, schema, main=shared)
    with first.reading(), load:
        load.finish()
        load.check(seen(once(ops(arrived(kafka, topic)))))
        eventually(lambda: first.destination()["clients"][0]["lag"]["entries"] == 0, first.destination)
        first.stop()
    kafka.delete(topic)
    with second:
        mariadb118.query("INSERT INTO finished VALUES (2, 0, 0, NULL)", database=schema)

        def output() -> dict[str, Any]:
            found = second.destination()
            return dict(found["outputs"][0]) if found["outputs"] else {"error": "", "lost": ""}

        eventually(lambda: f"topic {topic}: the topic is gone" in output()["error"], output)
        kafka.create(topic)
        second.call("POST", "/shop/start")
        assert [op.after and op.after["id"] for op in ops(arrived(kafka, topic))] == [2]
        eventually(lambda: f"topic {topic} was deleted and made again" in output()["lost"], output)
