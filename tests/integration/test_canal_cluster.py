"""Canal's Java client among several servers: it finds them in ZooKeeper or in a list, and goes on when one dies."""

import contextlib
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from sluice.client_sdk import ClusterClient
from sluice.protocol.errors import ConnectionLostError
from tests.clients.java import JavaConsumer
from tests.clients.led import ClientError
from tests.conftest import Database
from tests.faults.harness import Sluice
from tests.servers import Server, ZooKeeper, nodes
from tests.waiting import eventually

pytestmark = pytest.mark.extended

NAME = "orders"
ROOT = f"/otter/canal/destinations/{NAME}"


@pytest.fixture
def zk(zookeeper: ZooKeeper) -> Iterator[KazooClient]:
    with nodes(zookeeper.hosts) as zk:
        yield zk
        zk.delete(ROOT, recursive=True)


class Writer(threading.Thread):
    """Inserts 1, 2, 3 … into `t`, each in a transaction."""

    def __init__(self, source: Server, schema: str) -> None:
        super().__init__(daemon=True)
        self.written = 0
        self._source, self._schema = source, schema
        self._ending = threading.Event()
        self.start()

    def run(self) -> None:
        with self._source.connect(database=self._schema, autocommit=True) as connection, connection.cursor() as cursor:
            while not self._ending.wait(0.01):
                cursor.execute(f"INSERT INTO t VALUES ({self.written + 1})")
                self.written += 1

    def end(self) -> int:
        """Stop; how many rows were written."""
        self._ending.set()
        self.join()
        return self.written


class Cluster:
    """Two servers that share the destination."""

    def __init__(self, folder: Path, hosts: str, source: Server, schema: str) -> None:
        self.servers = [Sluice(folder / name) for name in "ab"]
        for server in self.servers:
            server.settings |= {"canal__zkServers": hosts, "sluice__ha__sessionTimeout": 2}
            server.add(NAME, source, canal__instance__filter__regex=rf"{schema}\\.t")

    def active(self) -> Sluice:
        """Wait until one serves it."""
        found: list[Sluice] = []

        def one() -> bool:
            running = [it for it in self.servers if it.process.poll() is None]
            found[:] = [it for it in running if it.destination(NAME)["state"] == "running"]
            return len(found) == 1

        eventually(one, lambda: ["".join(it.log) for it in self.servers])
        return found[0]

    def other(self, server: Sluice) -> Sluice:
        return next(it for it in self.servers if it is not server)


@pytest.fixture
def schema(mariadb118: Server, database: Database) -> str:
    name = database(mariadb118)
    mariadb118.query("CREATE TABLE t (id INT PRIMARY KEY)", database=name)
    return name


@pytest.fixture
def cluster(
    tmp_path: Path, zookeeper: ZooKeeper, zk: KazooClient, mariadb118: Server, schema: str
) -> Iterator[Cluster]:
    del zk  # go when the servers have gone
    cluster = Cluster(tmp_path, zookeeper.hosts, mariadb118, schema)
    with ExitStack() as stack, ThreadPoolExecutor() as pool:
        for server in cluster.servers:
            stack.callback(server.__exit__)
        list(pool.map(Sluice.start, cluster.servers))
        yield cluster


class Consumer:
    """What an application around the client does: gets, acks, and subscribes again when the client has thrown."""

    def __init__(self, client: JavaConsumer) -> None:
        self.client = client
        self.rows: list[int] = []
        self.errors: list[str] = []

    def take(self, enough: int) -> None:
        """Get and ack until a row has come that is not less."""
        eventually(lambda: self._take() >= enough, lambda: (self.rows[-5:], self.errors))

    def _take(self) -> int:
        try:
            batch = self.client.get(1000, 100)
            self.rows += [int(row.values[0]) for row in batch.rows if row.type == "INSERT"]
            self.client.call("ack", batch.id)
        except ClientError as error:
            self.errors.append(str(error))
        return self.rows[-1] if self.rows else 0


def test_java_that_asks_zookeeper_goes_on_at_the_other_server_when_the_active_one_is_killed(
    cluster: Cluster, zookeeper: ZooKeeper, zk: KazooClient, mariadb118: Server, schema: str
) -> None:
    first = cluster.active()
    with JavaConsumer(version="1.1.8") as client:
        client.find(zookeeper.hosts, NAME)
        client.call("subscribe", "")
        running = json.loads(zk.get(f"{ROOT}/1001/running")[0])
        assert running["active"]
        assert running["clientId"] == 1001
        writer = Writer(mariadb118, schema)
        consumer = Consumer(client)
        consumer.take(20)
        first.kill()
        killed = writer.written
        consumer.take(killed + 20)
        assert cluster.active() is cluster.other(first)
        consumer.take(writer.end())
        new = list(dict.fromkeys(consumer.rows))
        assert new == list(range(1, writer.written + 1)), "nothing is lost, and all is in order"

        first.start()  # stands by now
        eventually(lambda: first.destination(NAME)["state"] == "standby")
        client.connect(first.canal_port, cluster.other(first).canal_port, destination=NAME)
        client.call("subscribe", "")
        mariadb118.query(f"INSERT INTO t VALUES ({writer.written + 1})", database=schema)
        consumer.take(writer.written + 1)


class Reader(threading.Thread):
    """A consumer of the SDK, which takes its turn when it can."""

    def __init__(self, client: ClusterClient) -> None:
        super().__init__(daemon=True)
        self.rows: list[int] = []
        self._client = client
        self.start()

    def run(self) -> None:
        with contextlib.suppress(ConnectionLostError):  # the client is closed
            for batch in self._client.batches():
                self.rows += [row.after["id"] for row in batch if row.after is not None]
                self._client.ack(batch)


def test_java_and_consumers_of_the_sdk_take_turns(
    cluster: Cluster, zookeeper: ZooKeeper, zk: KazooClient, mariadb118: Server, schema: str
) -> None:
    def insert(number: int) -> None:
        mariadb118.query(f"INSERT INTO t VALUES ({number})", database=schema)

    cluster.active()
    with JavaConsumer(version="1.1.8") as first, JavaConsumer(version="1.1.8") as second:
        first.find(zookeeper.hosts, NAME)
        first.call("subscribe", "")
        with ClusterClient(zookeeper=zookeeper.hosts, destination=NAME) as client:
            reader = Reader(client)
            insert(1)
            java = Consumer(first)
            java.take(1)
            assert not client.has_turn
            first.call("disconnect")
            eventually(lambda: client.has_turn)
            second.begin("find", zookeeper.hosts, NAME)
            insert(2)
            eventually(lambda: reader.rows and not cluster.active().destination(NAME)["clients"][0]["marks"])
        second.end()
        second.call("subscribe", "")
        java.client = second
        insert(3)
        java.take(3)
        assert (java.rows, reader.rows) == ([1, 3], [2])
        assert json.loads(zk.get(f"{ROOT}/1001/running")[0])["clientId"] == 1001
