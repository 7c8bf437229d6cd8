"""The time from when a row was due to be committed until a client has it, at a steady pace of single-row commits."""

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.measuring import Case, Progress, Run, add_choices, chosen, cpu, peaks
from bench.processes import Meter
from bench.sources import SOURCES, source, version_of
from bench.workloads import SCHEMA
from scripts.serving import Sluice, lines_for, started
from tests.servers import Server

ROOT = Path(__file__).parents[1]
DESTINATION, LOADED = "bench", "loaded"
TABLE = f"{SCHEMA}.beats"
PACES = (100, 1000, 5000)
CASES = (
    *(str(pace) for pace in PACES),
    *(f"{pace}-poll" for pace in PACES),
    *(f"{pace}-loaded" for pace in PACES),
    *(f"{pace}-poll-loaded" for pace in PACES),
    "1000-log",
    "1000-readers",
)
"""Commits a second, taken by the stream or by a long poll; `loaded` while rows in bulk pass another destination; `log`
with a log on disk, `readers` while many other clients read at as many places of that."""
USUAL = (*CASES[:6], "1000-loaded", "1000-log", "1000-readers")
GOALS = {"1000": {"p50_ms": 1, "p99_ms": 3}, "1000-poll": {"p50_ms": 1, "p99_ms": 3}}
ONE = 1000
"""Commits a second that one connection writes."""
LOAD = 400_000
"""Rows of bulk that are loaded again and again: 200 MB of entries."""
LOGGED = 4
"""How many times more rows are loaded where a log is read."""
READERS = 100
"""Number of clients that read the log."""


@dataclass(frozen=True, slots=True)
class Beats:
    """One run."""

    used: Run
    latency: dict[str, float]
    written: list[dict[str, float]] = field(default_factory=list)
    """When the commits were done, of each connection."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what can be chosen."""
    add_choices(parser, CASES, USUAL)
    parser.add_argument("--source", choices=SOURCES, default="mariadb118")
    parser.add_argument("--seconds", type=float, default=10, help="that count (%(default)s)")
    parser.add_argument("--warm-up", type=float, default=3, help="seconds before these (%(default)s)")
    parser.add_argument("--load", type=int, default=LOAD, help="rows of a bulk load (%(default)s)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> dict[str, object]:
    """Measure the cases in turn; every run has a new server and a new client."""
    cases = list(chosen(arguments))
    runs: dict[str, list[Beats]] = {name: [] for name in cases}
    turns = len(cases) * arguments.repeats
    progress = Progress("latency", turns, turns * (arguments.seconds + arguments.warm_up + 4))
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(source(arguments.source))
        other = stack.enter_context(source(arguments.source)) if any("loaded" in name for name in cases) else None
        version = version_of(server)
        make_table(server)
        for _ in range(arguments.repeats):
            for name in cases:
                beats = measure(arguments, name, server, other if "loaded" in name else None)
                runs[name].append(beats)
                progress.done(f"{name}: p50 {beats.latency['p50_ms']} ms, p99 {beats.latency['p99_ms']} ms")
    return {"versions": {arguments.source: version}, "cases": [summary(name, runs[name]) for name in cases]}


def make_table(server: Server) -> None:
    """Make the table of the rows."""
    server.query(f"CREATE DATABASE IF NOT EXISTS {SCHEMA}")
    server.query(f"CREATE TABLE {TABLE} (id BIGINT PRIMARY KEY AUTO_INCREMENT, due BIGINT NOT NULL)")


def summary(name: str, runs: list[Beats]) -> Case:
    """Sum up a case: the medians of the runs, and the greatest of all."""
    p50 = [one.latency["p50_ms"] for one in runs]
    return {
        "case": name,
        "unit": "ms",
        "ours": statistics.median(p50),
        "anchor_name": None,
        "anchor": None,
        "ratio": None,
        "spread": [min(p50), max(p50)],
        "cpu_s_per_mrow": cpu([one.used for one in runs]),
        "peak_mb": peaks([one.used for one in runs]),
        "p50_ms": statistics.median(p50),
        "p99_ms": statistics.median(one.latency["p99_ms"] for one in runs),
        "max_ms": max(one.latency["max_ms"] for one in runs),
        "committed_p50_ms": statistics.median(it["p50_ms"] for one in runs for it in one.written),
        "committed_p99_ms": statistics.median(it["p99_ms"] for one in runs for it in one.written),
        "repeats": [one.latency for one in runs],
        **({"goal": GOALS[name]} if name in GOALS else {}),
    }


def measure(arguments: argparse.Namespace, name: str, server: Server, other: Server | None) -> Beats:
    """Commit at a pace; with another source, load rows in bulk there meanwhile."""
    pace = int(name.partition("-")[0])
    here = lines_for(f"{server.host}:{server.port}", server.user, server.password)
    destinations = {DESTINATION: here}
    if other is not None:
        destinations[LOADED] = lines_for(f"{other.host}:{other.port}", other.user, other.password)
    if "log" in name or "readers" in name:
        here.append("sluice.instance.store = mixed")
    with started(destinations) as sluice, contextlib.ExitStack() as stack:
        if other is not None:
            load = {"destination": LOADED, "account": account(other), "rows": arguments.load}
            stack.enter_context(beside("bench.load", sluice, load))
        if "readers" in name:
            rows = LOGGED * arguments.load
            load = {"destination": DESTINATION, "account": account(server), "rows": rows, "clients": READERS}
            stack.enter_context(beside("bench.readers", sluice, load))
        way = "poll" if "poll" in name else "stream"
        task = {"url": sluice.url, "destination": DESTINATION, "filter": TABLE.replace(".", r"\."), "way": way}
        return beat(arguments, pace, task, [server], sluice)


def beat(
    arguments: argparse.Namespace, pace: int, task: dict[str, Any], servers: Sequence[Server], sluice: Sluice
) -> Beats:
    """Run a client with a task, and the writers, which commit on each of the servers in turn."""
    rows = rows_of(arguments, pace, writers_of(pace, servers))
    with process("bench.beats", task | {"rows": rows, "warm_up_rows": round(arguments.warm_up * pace)}) as client:
        meter = Meter(database=servers[0].pid, server=sluice.pid, client=client.pid)
        read_line(client)  # begin
        meter.begin()
        begin, written = commit(arguments, pace, servers)
        read_line(client)  # end
        used = Run(rows, time.time() - begin, meter.cpu(), meter.peaks())
        latency = json.loads(client.communicate()[0])
    return Beats(used, latency, written)


def writers_of(pace: int, servers: Sequence[Server]) -> int:
    """Return how many connections commit at a pace."""
    return max(-(-pace // ONE), len(servers))


def rows_of(arguments: argparse.Namespace, pace: int, writers: int) -> int:
    """Return how many rows are committed, those that do not count included."""
    each: int = round((arguments.seconds + arguments.warm_up) * pace / writers)
    return writers * each


def commit(arguments: argparse.Namespace, pace: int, servers: Sequence[Server]) -> tuple[float, list[dict[str, float]]]:
    """Commit rows at a pace, over as many connections as needed; return their begin, and when they were done."""
    writers = writers_of(pace, servers)
    begin = time.time() + 2  # until all writers are there
    task = {
        "table": TABLE,
        "rate": pace,
        "of": writers,
        "begin": begin,
        "seconds": rows_of(arguments, pace, writers) / pace,
        "warm_up": arguments.warm_up,
    }
    with contextlib.ExitStack() as stack:
        tasks = [
            task | {"number": number, "account": account(servers[number % len(servers)])} for number in range(writers)
        ]
        running = [stack.enter_context(process("bench.pace", one)) for one in tasks]
        return begin, [json.loads(writer.communicate()[0]) for writer in running]


@contextlib.contextmanager
def beside(module: str, sluice: Sluice, task: dict[str, object]) -> Iterator[None]:
    """Let a process take something else from the server, from when it says that it has begun."""
    with process(module, task | {"url": sluice.url}) as running:
        read_line(running)
        try:
            yield
        finally:
            running.kill()


@contextlib.contextmanager
def process(module: str, task: dict[str, Any]) -> "Iterator[subprocess.Popen[str]]":
    """Start a module with a task. Raises SystemExit when it fails."""
    command = [sys.executable, "-m", module, json.dumps(task)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as running:
        try:
            yield running
        except BaseException:
            running.kill()
            raise
    if running.returncode > 0:
        raise SystemExit(f"{module} failed: {task}")


def read_line(running: "subprocess.Popen[str]") -> None:
    """Wait for a line of a process. Raises SystemExit when it ends without one."""
    if running.stdout is None or not running.stdout.readline():
        raise SystemExit(f"a process ended too early: {running.args!r}")


def account(server: Server) -> dict[str, object]:
    """Return how to log in."""
    return {"host": server.host, "port": server.port, "user": server.user, "password": server.password}
