"""The time without changes when the active server of two is killed (kill -9), stands still, or gives way."""

import argparse
import contextlib
import json
import random
import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from kazoo.client import KazooClient

from bench.measuring import Case, Progress, add_choices, chosen, say
from bench.sources import SOURCES, source, version_of
from bench.workloads import SCHEMA
from sluice.client_sdk import ClusterClient
from sluice.client_sdk.endpoint import GRACE
from sluice.protocol.paths import running_node
from tests.faults.harness import Sluice
from tests.servers import Server, ZooKeeper, nodes
from tests.waiting import eventually

DESTINATION = "bench"
CASES = {"2s": 2.0, "6s": 6.0, "vanish": 2.0, "move": 6.0}
"""Seconds of the servers' sessions with ZooKeeper.

In `vanish` the active server stands still (SIGSTOP), with all connections open. In `move` it is told to give way.
"""
GOALS = {name: session + 1 for name, session in CASES.items()} | {"vanish": CASES["vanish"] + 1 + GRACE, "move": 1.0}
"""Seconds."""
CANAL = 47.1
"""Seconds that stock Canal took, the better of two kills; the other took 51.1. It asks for a session of 90 s."""
BEAT = 0.01
"""Seconds between two rows."""
HOLD_OFF = 5.5
"""Seconds after which a server that has given way takes the destination again."""


@dataclass
class Rows:
    """What was written, and what has come, by the number of the row. Times are those of `time.monotonic`."""

    stop: threading.Event = field(default_factory=threading.Event)
    written: list[float] = field(default_factory=list)
    """When each row was sent to the database."""
    came: threading.Condition = field(default_factory=threading.Condition)
    first: tuple[float, str, float] | None = None
    """The first row written after the last `expect` and not by the server named there: when, by whom, when written."""
    after: float = float("inf")
    but: str = ""

    def write(self, server: Server) -> None:
        """Insert a row after the other."""
        with server.connect() as connection, connection.cursor() as cursor:
            ending = False
            while not ending:
                ending = self.stop.wait(BEAT)  # a last row then, which ends the reader
                self.written.append(time.monotonic())
                cursor.execute(f"INSERT INTO {SCHEMA}.beats VALUES ({len(self.written)})")

    def read(self, client: ClusterClient) -> None:
        """Take what comes. Raises SystemExit when something is missing."""
        last = 0
        for batch in client.stream():
            now = time.monotonic()
            for row in batch:
                number = int((row.after or {})["id"])
                if number > last + 1:
                    raise SystemExit(f"row {number} came after row {last}: rows are lost")
                last = max(last, number)
                written = self.written[number - 1]
                if written > self.after and client.servers[0] != self.but:
                    with self.came:
                        self.first, self.after = (now, client.servers[0], written), float("inf")
                        self.came.notify_all()
            if self.stop.is_set():
                return

    def expect(self, but: str) -> float:
        """From now on, look for a new row that another server gives."""
        with self.came:
            self.first, self.but = None, but
            self.after = time.monotonic()
            return self.after

    def wait(self, seconds: float) -> float:
        """Return when it came. Raises SystemExit when it does not."""
        with self.came:
            if not self.came.wait_for(lambda: self.first is not None, seconds) or self.first is None:
                raise SystemExit(f"no new row came within {seconds:g} s")
            return self.first[0]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what can be chosen."""
    add_choices(parser, CASES, repeats=1)
    parser.add_argument("--source", choices=SOURCES, default="mariadb118")
    parser.add_argument("--kills", type=int, default=20, help="of each case, and as many moves (%(default)s)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> dict[str, object]:
    """Measure the cases one after the other, each with two new servers and a new client."""
    names = list(chosen(arguments))
    each = {"2s": 6.0, "6s": 10.0, "vanish": 7.0, "move": HOLD_OFF + 1}
    progress = Progress("failover", len(names) * arguments.kills, sum(each[it] for it in names) * arguments.kills + 20)
    with source(arguments.source) as server, ZooKeeper() as zookeeper:
        server.query(f"CREATE DATABASE {SCHEMA}")
        cases = []
        for name in names:
            server.query(f"CREATE OR REPLACE TABLE {SCHEMA}.beats (id BIGINT PRIMARY KEY)")
            cases.append(measure(name, arguments.kills, server, zookeeper, progress))
        return {"versions": {arguments.source: version_of(server)}, "cases": cases}


def measure(name: str, kills: int, server: Server, zookeeper: ZooKeeper, progress: Progress) -> Case:
    """Kill, or move, ``kills`` times."""
    root = f"/{name}"  # each case has nodes of its own
    with nodes(zookeeper.hosts) as zk:
        zk.ensure_path(root)
    hosts = zookeeper.hosts + root
    taken: list[float] = []
    with (
        servers(name, server, hosts) as pair,
        ClusterClient(zookeeper=hosts, destination=DESTINATION) as client,
        nodes(hosts) as zk,
        ThreadPoolExecutor() as pool,
    ):
        eventually(lambda: states(pair) == ["running", "standby"], lambda: str(states(pair)))
        client.subscribe(start="latest")
        rows = Rows()
        threads = [pool.submit(rows.write, server), pool.submit(rows.read, client)]
        try:
            for _ in range(kills):
                rows.expect("")
                rows.wait(60)  # all is well
                time.sleep(random.random())  # anywhere between two signs of life
                active = next(it for it in pair if it.url == client.servers[0])
                begin = rows.expect(active.url)
                if name == "move":
                    zk.set(running_node(DESTINATION), inactive(zk))
                else:
                    active.process.send_signal(signal.SIGSTOP if name == "vanish" else signal.SIGKILL)
                taken.append(rows.wait(120) - begin)
                progress.done(f"{name}: {taken[-1]:.2f} s")
                if name == "move":
                    time.sleep(HOLD_OFF)
                else:
                    active.kill()  # if it is dead, this waits for the process
                    active.start()
                eventually(lambda: states(pair) == ["running", "standby"], lambda: str(states(pair)))
        finally:
            rows.stop.set()
            for thread in threads:
                thread.result(60)
    return summary(name, taken)


def summary(name: str, taken: list[float]) -> Case:
    """Sum up a case."""
    median, most = statistics.median(taken), max(taken)
    goal = GOALS[name]
    if most > goal:
        say(f"failover: {name} took {most:.2f} s at most, more than {goal:g} s")
    anchor = CANAL if name in ("2s", "6s") else None
    return {
        "case": name,
        "unit": "s",
        "ours": round(median, 3),
        "anchor_name": anchor and "Canal 1.1.7",
        "anchor": anchor,
        "ratio": None if anchor is None else round(median / anchor, 3),
        "spread": [round(min(taken), 3), round(most, 3)],
        "median_s": round(median, 3),
        "max_s": round(most, 3),
        "goal_s": goal,
        "repeats": [round(it, 3) for it in taken],
    }


@contextlib.contextmanager
def servers(name: str, server: Server, hosts: str) -> Iterator[list[Sluice]]:
    """Start two servers that share the destination."""
    with tempfile.TemporaryDirectory(prefix="sluice-") as folder, contextlib.ExitStack() as stack:
        pair = [Sluice(Path(folder, side)) for side in "ab"]
        for it in pair:
            it.settings |= {"canal__zkServers": hosts, "sluice__ha__sessionTimeout": int(CASES[name])}
            it.add(DESTINATION, server, canal__instance__filter__regex=f"{SCHEMA}\\\\..*")
            stack.callback(it.__exit__)
        with ThreadPoolExecutor() as pool:
            list(pool.map(Sluice.start, pair))
        yield pair


def states(pair: list[Sluice]) -> list[str]:
    """Return in which states the destination is, sorted."""
    return sorted(str(it.destination(DESTINATION)["state"]) for it in pair)


def inactive(zk: KazooClient) -> bytes:
    """Return what the node of the owner holds when it is to give way, as `sluice yield` writes it."""
    data, _ = zk.get(running_node(DESTINATION))
    return json.dumps(json.loads(data) | {"active": False}).encode()
