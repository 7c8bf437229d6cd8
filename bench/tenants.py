"""What an attack costs the others: clients subscribe with huge filters, and somebody asks `/healthz` meanwhile.

There are ever more tables, which have to be matched with each of these filters.
"""

import argparse
import contextlib
import http.client
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import urllib3

from bench.measuring import Case, Progress, add_choices, chosen
from bench.processes import memory_of
from bench.sources import SOURCES, source, version_of
from tests.faults.harness import Sluice
from tests.servers import Server

DESTINATION = "bench"
ITEMS = 3000
"""Of each filter, which has 50 to 60 kB so."""
TABLES = 60
"""That get their first row during a run."""
PAUSE = 0.002
"""Seconds between an answer and the next question."""
GOAL = 100.0
"""Milliseconds that `/healthz` takes at most."""
CASES = {
    "quiet": (False, ""),
    "refused": (False, r"s{0}_{1}\.t{1}"),
    "accepted": (False, r"shop\.t{0}_[0-9]{1}"),
    "shared": (True, r"shop\.t{0}_[0-9]{1}"),
}
"""Whether clients share a filter, and one item of theirs by the number of the filter and its own: with names that have
no beginning in common the programs of RE2 are too large, with others not."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what can be chosen."""
    add_choices(parser, CASES, repeats=3)
    parser.add_argument("--source", choices=SOURCES, default="mariadb118")
    parser.add_argument("--clients", type=int, default=8, help="that subscribe at once (%(default)s)")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each run (%(default)s)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> dict[str, object]:
    """Measure the cases in turn, each run with a new server."""
    names = list(chosen(arguments))
    runs = len(names) * arguments.repeats
    progress = Progress("tenants", runs, runs * (arguments.seconds + 5))
    found: dict[str, list[Case]] = {name: [] for name in names}
    with source(arguments.source) as server:
        version = version_of(server)
        for _ in range(arguments.repeats):
            for name in names:
                one = measure(name, server, arguments.clients, arguments.seconds)
                found[name].append(one)
                progress.done(f"{name}: /healthz took {one['max_ms']} ms at most")
    return {"versions": {arguments.source: version}, "cases": [summary(name, found[name]) for name in names]}


def summary(name: str, runs: list[Case]) -> Case:
    """Sum up a case: the greatest of all, beside the goal."""
    worst = [one["max_ms"] for one in runs]
    return {
        "case": name,
        "unit": "ms of /healthz at most",
        "ours": max(worst),
        "anchor_name": "goal",
        "anchor": GOAL,
        "ratio": round(max(worst) / GOAL, 3),
        "spread": [min(worst), max(worst)],
        "p50_ms": statistics.median(one["p50_ms"] for one in runs),
        "added_mib": max(one["added_mib"] for one in runs),
        "accepted": sum(one["accepted"] for one in runs),
        "refused": sum(one["refused"] for one in runs),
        "repeats": worst,
    }


def measure(name: str, server: Server, clients: int, seconds: float) -> Case:
    """Ask for `/healthz` while clients subscribe, each with one filter after the other, and tables are made."""
    shared, item = CASES[name]
    with serving(server, shared=shared) as sluice, ThreadPoolExecutor(clients + 1) as pool:
        sluice.wait_running()
        before = memory_of(sluice.process.pid)
        end = threading.Event()
        ids = range(1, 1 + clients if item else 1)
        attacks = [pool.submit(subscribe, sluice.url, client_id, item, end) for client_id in ids]
        tables = pool.submit(make_tables, server, seconds / TABLES, end)
        try:
            taken = ask(sluice.port, seconds)
        finally:
            end.set()
        tables.result()
        answers = [status for attack in attacks for status in attack.result()]
        added = (memory_of(sluice.process.pid) - before) * 1e6 / (1 << 20)
    return {
        "max_ms": round(1000 * max(taken), 1),
        "p50_ms": round(1000 * statistics.median(taken), 1),
        "added_mib": round(added, 1),
        "accepted": answers.count(200),
        "refused": len(answers) - answers.count(200),
    }


def subscribe(url: str, client_id: int, item: str, end: threading.Event) -> list[int]:
    """Subscribe a client with one new filter after the other; return the status of each answer."""
    found: list[int] = []
    with urllib3.PoolManager(retries=False, timeout=60.0) as pool:
        while not end.is_set():
            text = ",".join(item.format(f"{client_id}_{len(found)}", number) for number in range(ITEMS))
            address = f"{url}/v1/destinations/{DESTINATION}/clients/{client_id}/subscribe"
            found.append(pool.request("POST", address, json={"filter": text, "start": "latest"}).status)
    return found


def make_tables(server: Server, pause: float, end: threading.Event) -> None:
    """Make a table with a row, again and again."""
    server.query("CREATE DATABASE IF NOT EXISTS shop")
    for number in range(TABLES):
        if end.wait(pause):
            return
        server.script(
            f"DROP TABLE IF EXISTS t{number};\nCREATE TABLE t{number} (id INT PRIMARY KEY);\n"
            f"INSERT INTO t{number} VALUES (1);\n",
            database="shop",
        )


def ask(port: int, seconds: float) -> list[float]:
    """Ask for `/healthz` again and again; return how long each answer took, in seconds."""
    taken: list[float] = []
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60.0)
    with contextlib.closing(connection):
        until = time.perf_counter() + seconds
        while (begin := time.perf_counter()) < until:
            connection.request("GET", "/healthz")
            connection.getresponse().read()
            taken.append(time.perf_counter() - begin)
            time.sleep(PAUSE)
    return taken


@contextlib.contextmanager
def serving(server: Server, *, shared: bool) -> Iterator[Sluice]:
    """Start a server with one destination."""
    with tempfile.TemporaryDirectory(prefix="sluice-") as folder:
        sluice = Sluice(Path(folder))
        sluice.add(DESTINATION, server, sluice__instance__sharedFilter=str(shared).lower())
        with sluice:
            yield sluice
