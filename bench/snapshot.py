"""Snapshots: a table to a client over HTTP; beside it `SELECT *` by the program mysql, and how long a stream waits."""

import argparse
import contextlib
import functools
import os
import statistics
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench import latency
from bench.deliver import follow
from bench.measuring import Case, Progress, Run, add_choices, case, chosen, take_turns
from bench.processes import Meter
from bench.sources import SOURCES, source, version_of
from bench.workloads import SCHEMA, TABLES, WRITTEN, write
from scripts.serving import Sluice, lines_for, started
from tests.servers import Server

ROOT = Path(__file__).parents[1]
DESTINATION = "bench"
CASES = {"sysbench": "bulk"}
"""The workload that fills the table of each."""
ROWS = 1_000_000
PACE = 1000
"""Commits a second of the stream that is watched."""
GOAL, RATIO_GOAL, ADDED_GOAL = 300_000, 0.6, 20.0
"""Rows per second; times `SELECT *`; ms by which the p99 of the stream may be longer."""
PROGRAM = "mariadb", "mariadb-client-core"
"""The program mysql, as Debian calls it, and the package that has it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what can be chosen."""
    add_choices(parser, CASES)
    parser.add_argument("--source", choices=SOURCES, default="mariadb118")
    parser.add_argument("--rows", type=int, default=ROWS, help="of the table (%(default)s)")
    parser.add_argument("--seconds", type=float, default=10, help="of the stream that count (%(default)s)")
    parser.add_argument("--warm-up", type=float, default=3, help="seconds before these (%(default)s)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> dict[str, object]:
    """Measure the cases; every run has a new server and a new client."""
    fetch = f"name=bench; . tests/servers/downloads.sh; need {' '.join(PROGRAM)}"
    subprocess.run(["bash", "-c", fetch], cwd=ROOT, check=True)
    names = list(chosen(arguments))
    watched = 2 * (arguments.seconds + arguments.warm_up + 4)
    each = arguments.repeats * (2 * (3 + arguments.rows / GOAL) + watched)
    turns = 4 * arguments.repeats * len(names)
    writing = sum(arguments.rows / WRITTEN[CASES[name]] for name in names)
    progress = Progress("snapshot", turns, len(names) * each + writing)
    cases: list[Case] = []
    version = ""
    for name in names:
        with source(arguments.source) as server:
            version = version_of(server)
            write(server, CASES[name], arguments.rows)
            latency.make_table(server)
            contenders = {
                "snapshot": functools.partial(snapshot, server, name, arguments.rows),
                "SELECT *": functools.partial(select, server, name, arguments.rows),
            }
            results = take_turns(name, contenders, arguments.repeats, progress)
            found = case(name, results["snapshot"], "SELECT * by the program mysql", results["SELECT *"])
            goals = {"goal": GOAL, "ratio_goal": RATIO_GOAL}
            cases.append(found | goals | added(arguments, server, name, progress))
    return {"versions": {arguments.source: version}, "cases": cases}


def task_of(sluice: Sluice, name: str) -> dict[str, Any]:
    """Return what a client is told that takes the table of a case."""
    table = f"{SCHEMA}.{TABLES[CASES[name]]}"
    return {"url": sluice.url, "destination": DESTINATION, "table": table}


@contextlib.contextmanager
def serving(server: Server) -> Iterator[Sluice]:
    """Serve the source."""
    lines = lines_for(f"{server.host}:{server.port}", server.user, server.password)
    with started({DESTINATION: lines}) as sluice:
        yield sluice


def snapshot(server: Server, name: str, rows: int) -> Run:
    """Take the table by a snapshot."""
    with serving(server) as sluice:
        return follow("bench.copier", task_of(sluice, name), rows, database=server.pid, server=sluice.pid)


def select(server: Server, name: str, rows: int) -> Run:
    """Take it by `SELECT *`, whose text nobody reads."""
    login = f"--host={server.host}", f"--port={server.port}", f"--user={server.user}", "--protocol=TCP"
    sql = f"SELECT * FROM {SCHEMA}.{TABLES[CASES[name]]}"
    command = [PROGRAM[0], "--no-defaults", *login, "--quick", "--batch", "--execute", sql]
    meter = Meter(database=server.pid)
    begin = time.perf_counter()
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, env=os.environ | {"MYSQL_PWD": server.password}
    ) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - begin
    if process.returncode:
        raise SystemExit(f"{PROGRAM[0]} failed: {sql}")
    cpu = meter.cpu() | {"client": used.ru_utime + used.ru_stime}
    return Run(rows, seconds, cpu, meter.peaks() | {"client": used.ru_maxrss * 1024 / 1e6})


def added(arguments: argparse.Namespace, server: Server, name: str, progress: Progress) -> Case:
    """Return the latency of a stream of another client, without a snapshot and while one is taken again and again."""
    alone, beside = [], []
    for _ in range(arguments.repeats):
        alone.append(watch(arguments, server, ""))
        progress.done(f"{name}, the stream alone: p99 {alone[-1]['p99_ms']} ms")
        beside.append(watch(arguments, server, name))
        progress.done(f"{name}, the stream beside a snapshot: p99 {beside[-1]['p99_ms']} ms")
    before, after = (statistics.median(it["p99_ms"] for it in runs) for runs in (alone, beside))
    return {
        "stream_p99_ms": before,
        "stream_p99_ms_beside": after,
        "added_p99_ms": round(after - before, 3),
        "added_p99_goal_ms": ADDED_GOAL,
        "stream_repeats": alone,
        "stream_repeats_beside": beside,
    }


def watch(arguments: argparse.Namespace, server: Server, name: str) -> dict[str, float]:
    """Commit rows at a pace and take them; beside that the table of a case is taken, unless there is none."""
    with serving(server) as sluice, contextlib.ExitStack() as stack:
        if name:
            copier = stack.enter_context(latency.process("bench.copier", task_of(sluice, name) | {"again": True}))
            stack.callback(copier.kill)
            latency.read_line(copier)
        way = {"filter": latency.TABLE.replace(".", r"\."), "way": "stream"}
        return latency.beat(arguments, PACE, task_of(sluice, "sysbench") | way, [server], sluice).latency
