"""Spark: rows per second from the ring to the sink `noop`, the time from commit to foreachBatch, the mirror."""

import argparse
import contextlib
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.measuring import Progress
from bench.processes import memory_of_server
from bench.workloads import ROWS, SCHEMA, SYSBENCH, TABLES, write
from scripts.serving import serving
from sluice.client_sdk import Client
from tests.servers import ALL, Server

DESTINATION = "bench"
RING = {"entries": 1 << 22, "bytes": 2 << 30}
"""What the ring may hold: a whole workload."""
CORES = (1, 2)
SECONDS = 20.0
"""That a run takes, about: Spark starts, and four micro-batches."""
PACE = 1000
"""Rows a second whose latency is taken, each a transaction."""


@dataclass(frozen=True, slots=True)
class Throughput:
    """A workload, and the cores that Spark has."""

    workload: str
    cores: int
    plain: bool = False
    """Without the columns that are not the table's."""

    @property
    def name(self) -> str:
        """The name of the case."""
        return f"{self.workload}-{self.cores}core{'s' if self.cores > 1 else ''}{'-plain' if self.plain else ''}"

    @property
    def formats(self) -> tuple[str, ...]:
        """What reads it: ours, and the other one where it is of one table and all columns."""
        return ("timed", "json-tuples") if TABLES[self.workload] and not self.plain else ("timed",)


THROUGHPUT = [
    case
    for workload in ROWS
    for case in (
        *(Throughput(workload, cores) for cores in CORES),
        *([Throughput(workload, CORES[-1], plain=True)] if workload == "bulk" else ()),
    )
]
LATENCY, MIRROR = f"latency-{PACE}", "mirror"
CASES = [*(case.name for case in THROUGHPUT), LATENCY, MIRROR]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what can be chosen."""
    parser.add_argument("--only", action="append", choices=CASES, metavar="CASE", help=f"one of {', '.join(CASES)}")
    parser.add_argument("--source", choices=ALL, default="mariadb118")
    parser.add_argument("--rows", type=int, help="of a micro-batch; otherwise as many as the workload has")
    parser.add_argument("--micro-batches", type=int, default=4, help="of a run; the first does not count (%(default)s)")
    parser.add_argument("--repeats", type=int, default=5, help="runs of each contender (%(default)s)")
    parser.add_argument(
        "--as",
        choices=["typed", "envelope"],
        default="typed",
        dest="form",
        help="typed: in the types of the columns (mixed has two tables); envelope: as maps of texts (%(default)s)",
    )
    parser.add_argument("--seconds", type=float, default=30, help="of a latency run (%(default)s)")
    parser.add_argument("--warm-up", type=float, default=10, help="seconds before these (%(default)s)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> dict[str, object]:
    """Measure case after case; within a workload the contenders run in turn, each in a process of its own."""
    wanted = arguments.only or CASES
    throughput = [case for case in THROUGHPUT if case.name in wanted and not (case.plain and arguments.form != "typed")]
    turns = sum(len(case.formats) for case in throughput) + (LATENCY in wanted) + 2 * (MIRROR in wanted)
    progress = Progress("spark", turns * arguments.repeats, turns * arguments.repeats * SECONDS)
    cases: list[dict[str, Any]] = []
    for workload, group in itertools.groupby(throughput, lambda case: case.workload):
        cases += measure_throughput(arguments, workload, list(group), progress)
    if LATENCY in wanted:
        cases.append(measure_latency(arguments, progress))
    if MIRROR in wanted:
        cases.append(measure_mirror(arguments, progress))
    versions = {name: version for case in cases for name, version in case.pop("versions").items()}
    return {"ring": RING, "versions": versions, "cases": cases}


def measure_throughput(
    arguments: argparse.Namespace, workload: str, cases: Sequence[Throughput], progress: Progress
) -> Iterator[dict[str, Any]]:
    """Read one workload, which is in the ring, by each contender in turn, again and again."""
    rows = arguments.rows or ROWS[workload]
    table = TABLES[workload] if arguments.form == "typed" else None
    contenders = [(case, name) for case in cases for name in case.formats]
    runs: dict[tuple[Throughput, str], list[dict[str, Any]]] = {contender: [] for contender in contenders}
    with source(arguments.source) as server:
        version = server.query("SELECT version()")[0][0]
        written = write(server, workload, rows, arguments.micro_batches)
        with serve(server, written.file) as url:
            keep(url, written.rows)
            numbers = itertools.count(100)
            for _ in range(arguments.repeats):
                for case, name in contenders:
                    options: dict[str, object] = {"maxRowsPerTrigger": rows, "partitions": case.cores}
                    if table or name == "json-tuples":
                        options["table"] = f"{SCHEMA}.{TABLES[workload]}"
                    if case.plain:
                        options["metadata"] = "none"
                    task = describe("throughput", url, case.cores, next(numbers), name, options)
                    runs[case, name].append(perform(task, written.rows))
                    progress.done(f"{case.name}, {name}: {runs[case, name][-1]['rows_per_second']:,.0f} rows/s")
    for case in cases:
        yield {
            **summary(case.name, runs[case, "timed"], "JSON over HTTP into tuples", runs.get((case, "json-tuples"))),
            "as": "typed" if table else "envelope",
            "versions": {ALL[arguments.source]: version, **runs[case, "timed"][0]["versions"]},
        }


def summary(
    name: str, ours: Sequence[Mapping[str, Any]], anchor_name: str, others: Sequence[Mapping[str, Any]] | None
) -> dict[str, object]:
    """Sum up the runs of a case."""
    rate = statistics.median(one["rows_per_second"] for one in ours)
    middle = sorted(ours, key=lambda one: float(one["rows_per_second"]))[len(ours) // 2]
    anchor = statistics.median(one["rows_per_second"] for one in others) if others else None
    result: dict[str, object] = {
        "case": name,
        "unit": "rows/s",
        "ours": round(rate),
        "anchor_name": anchor_name if others else None,
        "anchor": anchor and round(anchor),
        "ratio": anchor and round(rate / anchor, 2),
        "spread": spread(ours),
        "anchor_spread": spread(others) if others else None,
        "cpu_s_per_mrow": cpu(ours),
        "anchor_cpu_s_per_mrow": cpu(others) if others else None,
        "peak_mb": {
            name.removeprefix("peak_mb_"): round(max(one[name] for one in ours))
            for name in middle
            if name.startswith("peak_mb_")
        },
        "rows_per_s_of_wall_time": round(statistics.median(one["rows_per_second_of_wall_time"] for one in ours)),
        "rows": middle["rows"],
        "micro_batches": middle["micro_batches"],
        "ms_of_a_micro_batch": {call: round(ms, 1) for call, ms in middle["ms_of_a_micro_batch"].items()},
        "repeats": [round(one["rows_per_second"]) for one in ours],
    }
    if "share_ours" in middle:
        result["share_ours"] = round(statistics.median(one["share_ours"] for one in ours), 3)
    return result


def spread(runs: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return the least and the most."""
    return [round(of(one["rows_per_second"] for one in runs)) for of in (min, max)]


def cpu(runs: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the CPU seconds per million rows of each process."""
    names = [name for name in runs[0] if name.startswith("cpu_")]
    return {
        name.removeprefix("cpu_"): round(statistics.median(one[name] / one["rows"] for one in runs) * 1e6, 3)
        for name in names
    }


def measure_mirror(arguments: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    """Mirror the workload bulk to a second server; beside it, a plain program writes the same rows there."""
    rows = arguments.rows or ROWS["bulk"]
    table = f"{SCHEMA}.{TABLES['bulk']}"
    ours, others = [], []
    with source(arguments.source) as server, source(arguments.source) as target:
        version = server.query("SELECT version()")[0][0]
        written = write(server, "bulk", rows, arguments.micro_batches)
        (checksum,) = server.query(f"CHECKSUM TABLE {table}")
        accounts = {"source": account(server), "target": account(target), "target_pid": target.pid}

        def run_on_empty_target(task: dict[str, Any]) -> dict[str, Any]:
            for schema in (SCHEMA, "sluice"):
                target.query(f"DROP DATABASE IF EXISTS {schema}")
            target.query(f"CREATE DATABASE {SCHEMA} CHARACTER SET utf8mb4")
            target.query(f"CREATE TABLE {table} ({SYSBENCH})")
            result = perform(task | accounts, written.rows)
            if target.query(f"CHECKSUM TABLE {table}") != [checksum]:
                raise SystemExit(f"the rows of the target differ from those of the source: {task}")
            return result

        with serve(server, written.file) as url:
            keep(url, written.rows)
            for number in range(arguments.repeats):
                ours.append(
                    run_on_empty_target(describe("mirror", url, 2, 100 + number, "sluice", {"maxRowsPerTrigger": rows}))
                )
                progress.done(f"{MIRROR}: {ours[-1]['rows_per_second']:,.0f} rows/s")
                others.append(run_on_empty_target({"measure": "insert", "table": table}))
                progress.done(f"{MIRROR}, plain INSERT: {others[-1]['rows_per_second']:,.0f} rows/s")
    return {
        **summary(MIRROR, ours, "multi-row INSERT by one connection", others),
        "versions": {ALL[arguments.source]: version, **ours[0]["versions"]},
    }


def account(server: Server) -> dict[str, object]:
    """Return how to log in."""
    return {"host": server.host, "port": server.port, "user": server.user, "password": server.password}


def measure_latency(arguments: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    """Commit rows at a steady pace, and take the time until a function of foreachBatch has each of them."""
    runs = []
    with source(arguments.source) as server:
        version = server.query("SELECT version()")[0][0]
        for number in range(arguments.repeats):
            server.query(f"DROP DATABASE IF EXISTS {SCHEMA}")
            server.query(f"CREATE DATABASE {SCHEMA}")
            server.query(
                f"CREATE TABLE {SCHEMA}.beats (id INT PRIMARY KEY AUTO_INCREMENT, due BIGINT, counts BOOLEAN NOT NULL)"
            )
            server.query("FLUSH BINARY LOGS")
            with serve(server, server.query("SHOW BINARY LOGS")[-1][0]) as url:
                keep(url, 0)
                task = describe("latency", url, 2, 100 + number, "sluice", {"table": f"{SCHEMA}.beats"})
                runs.append(beat(server, task, arguments.warm_up, arguments.seconds))
                progress.done(f"{LATENCY}: {runs[-1]['p50_ms']} ms")
    middle = sorted(runs, key=lambda one: float(one["p50_ms"]))[len(runs) // 2]
    return {
        "case": LATENCY,
        "unit": "ms",
        "ours": middle["p50_ms"],
        "anchor_name": None,
        "anchor": None,
        "ratio": None,
        "spread": [of(one["p50_ms"] for one in runs) for of in (min, max)],
        **middle,
        "repeats": [one["p50_ms"] for one in runs],
        "versions": {ALL[arguments.source]: version, **middle["versions"]},
    }


def beat(server: Server, task: Mapping[str, Any], warm_up: float, seconds: float) -> dict[str, Any]:
    """Run a query while rows are committed."""
    ready, stop = threading.Event(), threading.Event()
    writer = threading.Thread(target=write_beats, args=(server, warm_up, seconds, ready, stop))
    writer.start()
    try:
        with query(task) as process:
            if process.stdout is not None and process.stdout.readline():
                ready.set()
            printed, _ = process.communicate()
    finally:
        stop.set()
        writer.join()
    result: dict[str, Any] = json.loads(printed)
    return result


def write_beats(server: Server, warm_up: float, seconds: float, ready: threading.Event, stop: threading.Event) -> None:
    """Commit `PACE` rows a second, each with the time, in µs, at which it was due; the last one has none.

    Those of `seconds`, after a warm-up that begins when the query is ready, count.
    """
    first: float | None = None
    with server.connect(database=SCHEMA) as connection, connection.cursor() as cursor:
        start = time.time()
        for number in itertools.count():
            if first is None and ready.is_set():
                first = number + warm_up * PACE
            if first is not None and number >= first + seconds * PACE:
                break
            due = start + number / PACE
            if stop.wait(max(0.0, due - time.time())):
                break
            counts = first is not None and number >= first
            cursor.execute("INSERT INTO beats (due, counts) VALUES (%s, %s)", (round(due * 1e6), counts))
        cursor.execute("INSERT INTO beats (counts) VALUES (FALSE)")


# --- processes -------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def source(name: str) -> Iterator[Server]:
    """Start a source."""
    options = ["--innodb-flush-log-at-trx-commit=0", "--sync-binlog=0"]  # how fast it writes is not measured
    if name not in ("mysql56", "mysql57"):
        options.append("--binlog-row-metadata=FULL")
    with Server(name, options) as server:
        yield server


@contextlib.contextmanager
def serve(server: Server, file: str) -> Iterator[str]:
    """Start a Sluice that reads a source from a binlog file on; gives its URL."""
    settings = (
        f"master.journal.name = {file}",
        "master.position = 4",
        rf"filter.regex = {SCHEMA}\\..*",
        f"memory.buffer.size = {RING['entries']}",
        f"memory.buffer.memunit = {RING['bytes'] // RING['entries']}",
    )
    with serving(DESTINATION, f"{server.host}:{server.port}", server.user, server.password, *settings) as url:
        yield url


def keep(url: str, rows: int) -> None:
    """Subscribe a client that keeps everything in the ring, and wait until ``rows`` rows are there."""
    with Client(url, DESTINATION, 1) as client:
        client.subscribe()
        while client.status()["lag"]["rows"] < rows:
            if client.destination()["full"]:
                raise SystemExit(f"the workload does not fit the ring: {RING}")
            time.sleep(0.1)


def describe(
    measure: str, url: str, cores: int, client_id: int, name: str, options: Mapping[str, object]
) -> dict[str, Any]:
    """Describe a query for `bench.spark_query`."""
    texts = {key: str(value) for key, value in options.items()}
    place = {"url": url, "destination": DESTINATION, "clientId": str(client_id)}
    return {"measure": measure, "cores": cores, "format": name, "options": place | texts}


def perform(task: Mapping[str, Any], rows: int) -> dict[str, Any]:
    """Run a contender to its end; it must have read ``rows`` rows."""
    with query(task) as process:
        printed, _ = process.communicate()
    result: dict[str, Any] = json.loads(printed)
    if result.get("rows_in_all", result["rows"]) != rows:
        raise SystemExit(f"{result['rows_in_all']} rows came of the {rows} that were written")
    if "options" in task:
        result["peak_mb_server"] = memory_of_server(task["options"]["url"])
    return result


@contextlib.contextmanager
def query(task: Mapping[str, Any]) -> "Iterator[subprocess.Popen[str]]":
    """Start a query in a session of its own: the CPU time of all its processes is summed up. Raises SystemExit."""
    command = [sys.executable, "-m", "bench.spark_query", json.dumps(task)]
    with tempfile.TemporaryFile("w+") as log:
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
        ) as process:
            yield process
        if process.returncode:
            log.seek(0)
            raise SystemExit(f"a query failed: {task}\n{log.read()[-5000:]}")
