"""Carries a plan out on real servers: ZooKeeper, Kafka, `sluice serve`, MariaDB and MySQL, with proxies between."""

import itertools
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pymysql

from sluice.client_sdk import Client
from tests import commands
from tests.chaos.checker import Verdict, check_run
from tests.chaos.journal import Broken, Journal
from tests.chaos.plan import LOGGED, LONE, SHARED, TIMEOUT, Fault, Plan
from tests.chaos.topics import wait_topic
from tests.faults.harness import Sluice
from tests.proxy import Proxy
from tests.servers import Server, ZooKeeper, freeze, nodes
from tests.servers.kafka import Kafka
from tests.servers.server import ServerError

RATE = 500
"""Numbers a second that are written to each source, ..."""
TRANSACTION = 20
"""... so many at a time, ..."""
TABLES = ("t0", "t1", "t2")
"""... spread over these."""
RECOVERY = 90.0
"""Seconds after the last fault in which everything has to arrive."""
ROOT = "/otter/canal/destinations"
PUBLIC = "127.0.0.2"
"""Address by which consumers know the servers: there stand the proxies."""
CLIENTS: Mapping[int, tuple[str, str]] = {1001: ("ack", "durable"), 1002: ("stream", "stream")}
"""How consumers read where cursors are shared, and from the lone server, which makes an ack durable only on demand."""
OUTPUT: Mapping[str, object] = {
    "sluice__outputs": "kafka",
    "sluice__output__kafka__clientId": 1003,
    "sluice__output__kafka__transactional": "true",
}
"""Beside the consumers each destination sends its changes to a topic of its name."""


class Writer(threading.Thread):
    """Writes increasing numbers to a source; what is there at the end was written, whatever a lost answer meant."""

    def __init__(self, source: Server, schema: str) -> None:
        super().__init__(daemon=True, name=f"writer of {schema}")
        self._source, self._schema = source, schema
        self._stopping = threading.Event()
        columns = "id INT PRIMARY KEY, v VARCHAR(40)"
        source.script(f"CREATE DATABASE {schema};\n")
        source.script("".join(f"CREATE TABLE {table} ({columns});\n" for table in TABLES), database=schema)

    def run(self) -> None:
        """Write until it is told to stop."""
        first = 1
        due = time.monotonic()
        while not self._stopping.is_set():
            try:
                with self._source.connect(database=self._schema, autocommit=False, read_timeout=10) as connection:
                    while not self._stopping.wait(max(0.0, due - time.monotonic())):
                        due = max(due + TRANSACTION / RATE, time.monotonic() - 1)
                        first, begin = first + TRANSACTION, first
                        with connection.cursor() as cursor:
                            for table, start, stop in _shares(begin):
                                rows = ",".join(f"({number},'number {number}')" for number in range(start, stop))
                                cursor.execute(f"INSERT INTO {table} VALUES {rows}")
                        connection.commit()
            except (pymysql.err.OperationalError, pymysql.err.InterfaceError):
                self._stopping.wait(0.2)

    def stop(self) -> None:
        """Write no more."""
        self._stopping.set()

    def finish(self) -> dict[str, list[int]]:
        """Stop, and return what the tables hold."""
        self.stop()
        self.join()
        query = self._source.query
        return {
            table: [int(row[0]) for row in query(f"SELECT id FROM {table} ORDER BY id", database=self._schema)]
            for table in TABLES
        }


def _shares(first: int) -> Iterator[tuple[str, int, int]]:
    """Return which numbers of a transaction go to which table; it changes from one to the next."""
    size = len(TABLES)
    turn = first // TRANSACTION
    cuts = [first, first + 1 + turn % 7, first + 10 + turn % 5, first + TRANSACTION]
    for number, (start, stop) in enumerate(itertools.pairwise(cuts)):
        yield TABLES[(turn + number) % size], start, stop


class Node:
    """A Sluice server with the proxies around it."""

    def __init__(self, folder: Path, zookeeper: ZooKeeper | None, sources: Mapping[str, Server]) -> None:
        """``sources`` by destination."""
        self.sluice = sluice = Sluice(folder)
        self.zookeepers = [Proxy(("127.0.0.1", it.port)) for it in (zookeeper.servers if zookeeper else [])]
        self.sources = {name: Proxy(("127.0.0.1", it.port)) for name, it in sources.items()}
        self.clients = [Proxy(sluice.address, listen=(PUBLIC, sluice.port))]
        sluice.settings["sluice__log__format"] = "json"
        if zookeeper:
            sluice.settings |= {
                "canal__zkServers": ",".join(f"127.0.0.1:{it.port}" for it in self.zookeepers),
                "canal__register__ip": PUBLIC,
                "sluice__ha__sessionTimeout": TIMEOUT,
            }

    @property
    def url(self) -> str:
        """By which consumers know it."""
        return f"http://{PUBLIC}:{self.sluice.port}"

    def close(self) -> None:
        """End it, and the proxies."""
        self.sluice.__exit__()
        for proxy in (*self.zookeepers, *self.sources.values(), *self.clients):
            proxy.close()


class Consumer:
    """The process of a consumer."""

    def __init__(self, folder: Path, name: str, urls: list[str], way: str) -> None:
        """``name``: destination and client id."""
        self._destination, _, client_id = name.partition("-")
        self._client_id = int(client_id)
        self._urls = urls
        self.journal = folder / f"consumer-{name}"
        self._log = folder / f"log-of-{name}"
        self._command = [sys.executable, "-m", "tests.chaos.consumer", str(self.journal), ",".join(urls)]
        self._command += [self._destination, client_id, way]
        self._process: subprocess.Popen[bytes] | None = None
        self.journal.touch()

    @property
    def process(self) -> "subprocess.Popen[bytes]":
        """It must have been started."""
        assert self._process is not None
        return self._process

    def subscribe(self) -> None:
        """Register its client."""
        with Client(self._urls, self._destination, self._client_id, retry=30.0) as client:
            client.subscribe()

    def start(self) -> None:
        """Start it."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


class Run:
    """A run of a plan in a folder, which holds all journals at the end."""

    def __init__(self, plan: Plan, folder: Path, report: Callable[[str], object]) -> None:
        """``report`` is told what happens."""
        self.plan = plan
        self.folder = folder
        self._report = report
        self._faults = Journal(folder / "faults")
        self._locks: dict[str, threading.Lock] = defaultdict(threading.Lock)
        self._stack = ExitStack()
        self.writers: dict[str, Writer] = {}

    def carry_out(self) -> Verdict:
        """Run and judge it."""
        with self._stack:
            self._begin()
            self._break()
            written = {name: writer.finish() for name, writer in self.writers.items()}
            written[LONE] = written["shop"]
            (self.folder / "written").write_text(json.dumps(written))
            self._wait_for(written)
        return check_run(self.folder)

    # --- setting up --------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self.zookeeper = ZooKeeper(self.plan.zookeepers)
        self.mariadb, self.mysql, self.kafka = Server("mariadb118"), Server("mysql97"), Kafka()
        started = (self.zookeeper, self.mariadb, self.mysql, self.kafka)
        with ThreadPoolExecutor() as pool:
            for it in pool.map(lambda it: it.__enter__(), started):
                self._stack.push(it)
        shared = dict(zip(SHARED, (self.mariadb, self.mysql), strict=True))
        self.nodes = {
            f"server{number}": Node(self.folder / f"server{number}", self.zookeeper, shared)
            for number in range(self.plan.servers)
        }
        self.nodes["lone"] = Node(self.folder / "lone", None, {LONE: self.mariadb})
        for node in self.nodes.values():
            self._stack.callback(node.close)
            node.sluice.settings["kafka__bootstrap__servers"] = self.kafka.servers
            for name, proxy in node.sources.items():
                address = {"canal__instance__master__address": f"127.0.0.1:{proxy.port}"}
                settings: dict[str, object] = {**address, **OUTPUT}
                if name in LOGGED:
                    settings |= {"sluice__instance__store": "mixed", "sluice__instance__store__minFree": 0}
                if name == LONE:
                    settings["sluice__output__kafka__transactionalId"] = LONE
                else:
                    settings["sluice__instance__meta"] = "period" if name == self.plan.period else "zookeeper"
                schema = "shop" if name == LONE else name
                node.sluice.add(name, self.mariadb, canal__instance__filter__regex=rf"{schema}\\..*", **settings)
        self.operator = self.folder / "operator"
        self.operator.mkdir()
        (self.operator / "canal.properties").write_text(
            f"canal.zkServers = {self.zookeeper.hosts}\ncanal.register.ip = {PUBLIC}\n"
            f"canal.destinations = {','.join(SHARED)}\n"
        )
        self.consumers = {name: self._consumer(name) for name in self._promises()}
        run = {
            "servers": {node.url: f"{name}/log" for name, node in self.nodes.items()},
            "promises": self._promises(),
        }
        (self.folder / "run").write_text(json.dumps(run))
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda node: node.sluice.start(), self.nodes.values()))
        for consumer in self.consumers.values():  # a later subscriber begins with what the ring then holds
            consumer.subscribe()
        for name, source in shared.items():
            self.writers[name] = writer = Writer(source, name)
            self._stack.callback(writer.stop)
            writer.start()
        for consumer in self.consumers.values():
            self._stack.callback(consumer.kill)
            consumer.start()

    def _promises(self) -> dict[str, bool]:
        """Return by destination and client whether an ack that is answered is durable."""
        return {
            f"{name}-{client}": way == "durable" if name == LONE else name != self.plan.period
            for name in (*SHARED, LONE)
            for client, (_, way) in CLIENTS.items()
        }

    def _consumer(self, name: str) -> Consumer:
        destination, _, client = name.partition("-")
        lone = destination == LONE
        urls = [node.url for key, node in self.nodes.items() if (key == "lone") == lone]
        return Consumer(self.folder, name, urls, CLIENTS[int(client)][lone])

    # --- faults ------------------------------------------------------------------------------------------------------

    def _break(self) -> None:
        """Let the faults come, and wait for their ends."""
        begun = time.monotonic()
        with ThreadPoolExecutor(max(1, len(self.plan.faults))) as pool:
            futures: list[Future[None]] = []
            for fault in self.plan.faults:
                time.sleep(max(0.0, begun + fault.at - time.monotonic()))
                self._report(str(fault))
                futures.append(pool.submit(self._suffer, fault))
            time.sleep(max(0.0, begun + self.plan.seconds - time.monotonic()))
            for future in futures:
                future.result()

    def _suffer(self, fault: Fault) -> None:
        """Let one come and go; two of the same target come one after the other."""
        with self._locks[fault.target]:
            start = time.time()
            getattr(self, f"_{fault.kind.replace(' ', '_')}")(fault.target, fault.seconds)
            self._faults.write(Broken(start, time.time(), f"{fault.kind} {fault.target}", fault.target))

    def _kill(self, target: str, seconds: float) -> None:
        self._end(target, seconds, lambda it: it.kill())

    def _stop(self, target: str, seconds: float) -> None:
        if target in self.nodes:  # it may have to wait for what others suffer now: how long is another test's question
            self.nodes[target].sluice.process.terminate()
            self._end(target, seconds, lambda it: it.process.wait(30))
        else:
            self._end(target, seconds, lambda it: it.stop())

    def _end(self, target: str, seconds: float, end: Callable[..., object]) -> None:
        """End a process, and start it again after a while."""
        process: Sluice | Server | Kafka | Consumer
        if target in self.nodes:
            process = self.nodes[target].sluice
        elif target in self.consumers:
            process = self.consumers[target]
        else:
            process = self.kafka if target == "kafka" else self.mariadb if target == "mariadb" else self.mysql
        end(process)
        time.sleep(seconds)
        process.start()

    def _freeze(self, target: str, seconds: float) -> None:
        if target in ("zookeeper", "kafka"):
            servers = self.zookeeper if target == "zookeeper" else self.kafka
            servers.freeze()
            time.sleep(seconds)
            servers.thaw()
            return
        process = self.nodes[target].sluice.process if target in self.nodes else self.consumers[target].process
        freeze(process.pid)
        time.sleep(seconds)
        process.send_signal(signal.SIGCONT)

    def _cut_from_zookeeper(self, target: str, seconds: float) -> None:
        self._stall(self.nodes[target].zookeepers, seconds)

    def _cut_from_sources(self, target: str, seconds: float) -> None:
        self._stall(list(self.nodes[target].sources.values()), seconds)

    def _cut_from_clients(self, target: str, seconds: float) -> None:
        self._stall(self.nodes[target].clients, seconds)

    @staticmethod
    def _stall(proxies: list[Proxy], seconds: float) -> None:
        """Let nothing through; what was held up arrives late, or, after a long time, never."""
        for proxy in proxies:
            proxy.stall()
        time.sleep(seconds)
        for proxy in proxies:
            if seconds > TIMEOUT:
                proxy.cut()
            proxy.resume()

    def _lose_connection_to_zookeeper(self, target: str, _: float) -> None:
        for proxy in self.nodes[target].zookeepers:
            proxy.cut()

    def _kill_leader_of(self, _: str, seconds: float) -> None:
        try:
            leader = self.zookeeper.leader
        except ServerError:  # they are about to elect one
            leader = self.zookeeper.servers[0]
        leader.kill()
        time.sleep(seconds)
        self.zookeeper.start()

    def _restart_all_of(self, _: str, seconds: float) -> None:
        self.zookeeper.stop()
        time.sleep(seconds)
        self.zookeeper.start()

    def _fill_disk_of(self, target: str, seconds: float) -> None:
        """Let the process make no file grow any more, which fails as a full disk does."""
        pid = self.nodes[target].sluice.process.pid
        limits = resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        time.sleep(seconds)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)

    def _yield(self, target: str, _: float) -> None:
        self._operate("yield", target)

    def _rebalance(self, _: str, __: float) -> None:
        self._operate("rebalance")

    def _operate(self, *command: str) -> None:
        """Give a command, which may fail: ZooKeeper may be away just now."""
        done = commands.run(*command, "--conf", str(self.operator))
        assert "Traceback" not in done.stderr, done.stderr
        self._report(f"           {' '.join(command)}: {(done.stdout or done.stderr).strip()}")

    # --- the end -----------------------------------------------------------------------------------------------------

    def _wait_for(self, written: Mapping[str, Mapping[str, list[int]]]) -> None:
        """Wait until each consumer and topic has come to the last number; the checker says what is missing."""
        deadline = time.monotonic() + RECOVERY
        for name, consumer in self.consumers.items():
            last = max(numbers[-1] for numbers in written[name.partition("-")[0]].values() if numbers)
            while not _has_come_to(last, consumer.journal) and time.monotonic() < deadline:
                time.sleep(0.2)
        topics = {name: wait_topic(self.kafka, name, tables, deadline) for name, tables in written.items()}
        (self.folder / "topics").write_text(json.dumps(topics))
        if time.monotonic() > deadline:
            self._note_what_stands_still()
        time.sleep(1.0)  # for acks under way

    def _note_what_stands_still(self) -> None:
        """Write down what servers and ZooKeeper say, for the reader of the report."""
        found: dict[str, object] = {}
        for name, node in self.nodes.items():
            for destination in node.sources:
                found[f"{name} {destination}"] = node.sluice.destination(destination)
        with nodes(self.zookeeper.hosts) as zk:
            for destination in SHARED:
                for path in (f"{ROOT}/{destination}/running", f"{ROOT}/{destination}/sluice"):
                    if zk.exists(path):
                        data, stat = zk.get(path)
                        found[path] = f"{data.decode()} of session {stat.ephemeralOwner:#x}, version {stat.version}"
        (self.folder / "stuck").write_text(json.dumps(found, indent=1))


def _has_come_to(number: int, journal: Path) -> bool:
    with journal.open("rb") as file:
        file.seek(-min(1 << 16, os.fstat(file.fileno()).st_size), os.SEEK_END)
        lines = file.read().splitlines()
    found = [json.loads(line) for line in lines if line.startswith(b'{"what": "Received"')]
    return any(run[2] >= number for event in found for run in event["runs"])
