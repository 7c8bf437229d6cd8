"""From Canal's own server to Sluice and back on the same conf folder: every change once, wherever the cursors stand."""

import contextlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import commands
from tests.clients.canal_server import CanalServer
from tests.clients.java import JavaBatch, JavaConsumer
from tests.clients.led import ClientError
from tests.conftest import Database
from tests.faults.harness import Sluice
from tests.servers import Server, ZooKeeper, nodes
from tests.waiting import eventually

pytestmark = pytest.mark.extended

NODE = "/otter/canal/destinations/shop"

ENTRIES = ("begin", "row", "end", "ddl", "next_begin")
"""What the script of a stage writes first; each destination acks one more of them than the one before."""


class Site:
    """A source, the conf folder of a Canal installation for it, and the consumer."""

    def __init__(self, folder: Path, source: Server, schema: str, consumer: JavaConsumer, hosts: str = "") -> None:
        self.source, self.schema, self.consumer = source, schema, consumer
        source.script("CREATE TABLE t (id INT PRIMARY KEY);\n", database=schema)
        beans = "default-instance.xml" if hosts else "file-instance.xml"
        settings: dict[str, object] = {"canal__instance__global__spring__xml": f"classpath:spring/{beans}"}
        if hosts:
            settings |= {"canal__zkServers": hosts, "sluice__ha__sessionTimeout": 2}
        self.sluice, self.other_sluice = Sluice(folder / "a"), Sluice(folder / "b")
        for server in (self.sluice, self.other_sluice):
            server.data.mkdir()
            server.settings |= settings
        self.canal, self.other_canal = CanalServer(self.sluice.conf), CanalServer(self.other_sluice.conf)
        self.last: JavaBatch
        """The batch that was taken last."""

    def add(self, name: str) -> None:
        """Configure a destination that begins here."""
        file, offset = self.source.query("SHOW MASTER STATUS")[0][:2]
        for server in (self.sluice, self.other_sluice):
            server.add(
                name,
                self.source,
                canal__instance__filter__regex=f"{self.schema}\\\\..*",
                canal__instance__master__journal__name=file,
                canal__instance__master__position=offset,
                canal__instance__memory__batch__mode="ITEMSIZE",
            )

    def write(self, script: str) -> None:
        self.source.script(script.replace(";", ";\n"), database=self.schema)

    def connect(self, name: str) -> None:
        """Connect and subscribe, as soon as the destination is active."""

        def connected() -> bool:
            with contextlib.suppress(ClientError):
                self.consumer.connect(self.sluice.canal_port, destination=name)
                self.consumer.call("subscribe", "")
                return True
            return False

        eventually(connected, lambda: "".join(self.sluice.log))

    def entry(self) -> JavaBatch:
        """Get one entry, and do not ack it."""
        found: list[JavaBatch] = []

        def came() -> bool:
            found[:] = [self.consumer.get(1)]
            return found[0].id > 0

        eventually(came, lambda: "".join(self.sluice.log))
        return found[0]

    def take(self, last: int) -> list[str]:
        """Get and ack until the transaction of this row has come; return the rows and the DDL."""
        changes: list[str] = []
        while True:
            batch = self.last = self.entry()
            changes += [f"{it.values[0]}" if it.values else it.type for it in batch.rows if it.table]
            self.consumer.call("ack", batch.id)
            if str(last) in changes and batch.rows[-1].type == "TRANSACTIONEND":
                self.wait_for_acks()
                return changes

    def wait_for_acks(self) -> None:
        """Return when they have arrived: they have no answer, but this call has one."""
        self.consumer.call("subscribe", "")

    def cursor(self, name: str) -> tuple[str, int]:
        """The content of the file of cursors."""
        (client,) = json.loads((self.sluice.data / name / "meta.dat").read_text())["clientDatas"]
        return client["cursor"]["postion"]["journalName"], client["cursor"]["postion"]["position"]


@pytest.fixture(scope="module")
def consumer() -> Iterator[JavaConsumer]:
    with JavaConsumer() as consumer:
        yield consumer


@contextmanager
def serving(server: Sluice | CanalServer) -> Iterator[None]:
    """Run a server, and end it in good order."""
    server.start()
    try:
        yield
        server.stop()
    finally:
        server.__exit__()


def test_cursors_of_any_place_are_understood_in_both_directions(
    tmp_path: Path, mysql56: Server, database: Database, consumer: JavaConsumer
) -> None:
    site = Site(tmp_path, mysql56, database(mysql56), consumer)
    for name in ENTRIES:
        site.add(name)
    acked: dict[str, JavaBatch] = {}
    resumes = {"begin": 0, "row": 0, "end": 1, "ddl": 1, "next_begin": 2}  # the event at the cursor comes again

    def ack_some() -> None:
        """In each destination as many entries as its number, one by one."""
        for number, name in enumerate(ENTRIES, 1):
            site.connect(name)
            for _ in range(number):
                acked[name] = site.entry()
                consumer.call("ack", acked[name].id)
            site.wait_for_acks()

    with serving(site.canal):
        for name in ENTRIES:
            site.connect(name)
        site.write("INSERT INTO t VALUES (1); CREATE TABLE a (id INT); INSERT INTO t VALUES (2);")
        ack_some()
    said = commands.run("migrate", "--from", str(site.sluice.conf), check=True).stdout
    assert said.count("which the source still has") == len(ENTRIES)
    for name in ("begin", "end", "ddl", "next_begin"):
        assert site.cursor(name) == (acked[name].rows[0].file, acked[name].rows[0].offset)

    with serving(site.sluice):
        for name in ENTRIES:
            site.connect(name)
            assert site.take(2) == ["1", "CREATE", "2"][resumes[name] :]
        site.write("INSERT INTO t VALUES (3); CREATE TABLE b (id INT); INSERT INTO t VALUES (4);")
        ack_some()
    resumes["next_begin"] = resumes["ddl"]  # we keep no place inside a transaction
    for name in ("end", "ddl"):
        assert site.cursor(name) == (acked[name].rows[0].file, acked[name].rows[0].offset)

    with serving(site.canal):
        for name in ENTRIES:
            site.connect(name)
            assert site.take(4) == ["3", "CREATE", "4"][resumes[name] :]


def test_zookeeper_carries_the_cursors_there_and_back_and_an_active_mixed_pair_is_refused(
    tmp_path: Path, mysql56: Server, database: Database, zookeeper: ZooKeeper, consumer: JavaConsumer
) -> None:
    site = Site(tmp_path, mysql56, database(mysql56), consumer, zookeeper.hosts)
    site.add("shop")
    changes: list[str] = []

    def problem(server: Sluice) -> str:
        return str(server.destination("shop")["error"])

    with nodes(zookeeper.hosts) as zk:

        def take(last: int) -> None:
            """Take all, and wait until that is in ZooKeeper: Canal writes each second, and not when it ends."""
            changes.extend(site.take(last))
            end = site.last.rows[-1].offset
            path = f"{NODE}/1001/cursor"
            eventually(lambda: zk.exists(path) and json.loads(zk.get(path)[0])["postion"]["position"] == end)

        with serving(site.canal):
            site.connect("shop")
            site.write("INSERT INTO t VALUES (1); INSERT INTO t VALUES (2);")
            take(2)
        with serving(site.sluice):
            site.connect("shop")
            site.write("INSERT INTO t VALUES (3); INSERT INTO t VALUES (4);")
            take(4)
            with serving(site.other_canal):
                eventually(lambda: "could take it over unfenced" in problem(site.sluice))
                assert site.sluice.destination("shop")["state"] == "running"
        with serving(site.canal):
            site.connect("shop")
            site.write("INSERT INTO t VALUES (5);")
            take(5)
            with serving(site.other_sluice):
                eventually(
                    lambda: "raises no epoch, as Canal's own server" in problem(site.other_sluice),
                    lambda: site.other_sluice.destination("shop"),
                )
                assert site.other_sluice.destination("shop")["state"] == "standby"
    assert changes == ["1", "2", "3", "4", "5"]


def test_a_destination_whose_clients_are_gone_goes_on_at_the_place_that_either_has_kept(
    tmp_path: Path, mysql56: Server, database: Database, zookeeper: ZooKeeper, consumer: JavaConsumer
) -> None:
    site = Site(tmp_path, mysql56, database(mysql56), consumer, zookeeper.hosts)
    site.sluice.settings |= {"sluice__instance__logPosition": "parse", "test__parse": "true"}
    site.add("moved")
    servers: list[Sluice | CanalServer] = [site.canal, site.sluice, site.canal]
    for number, server in enumerate(servers, 1):
        with serving(server):
            site.connect("moved")
            site.write(f"INSERT INTO t VALUES ({10 * number});")
            wanted = [str(10 * number)] if number == 1 else [str(10 * number - 1), str(10 * number)]
            assert site.take(10 * number) == wanted
            consumer.call("unsubscribe")
        site.write(f"INSERT INTO t VALUES ({10 * number + 9});")
