"""A database that is kept equal by an output of type mysql, beside one connection and beside a replica.

The connection executes the same transactions, as they were written to the source. The replica applies them in parallel.
All write to a new server of the source's kind that waits for its disk at each commit. The clock of output and replica
runs from when they have begun until the last transaction is there; the connection's while it writes.
"""

import argparse
import contextlib
import functools
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.measuring import Case, Progress, Run, add_choices, case, chosen, take_turns
from bench.sources import source, version_of
from bench.workloads import ROWS, SCHEMA, WRITTEN, Written, prepare, write
from tests.faults.harness import Sluice
from tests.faults.pair import Pair
from tests.servers import Server

CASES = ("single", "mixed", "bulk", "update")
"""The workloads: transactions of a row, and of several; one statement of many rows, and one that changes all."""
GOALS = {"single": 3.0, "mixed": 3.0, "bulk": 1.5}
"""Times the rate of the connection."""
REPLICA_GOAL = 1.0
WORKERS = 16
DURABLE = ("--innodb-flush-log-at-trx-commit=1", "--sync-binlog=1")
LAST = "finished"
"""A table whose row ends what was written."""
LIMIT = 1800.0
"""Seconds that anything may take."""
PAUSE = 0.02
"""Seconds from one look at the target to the next."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what can be chosen."""
    add_choices(parser, CASES, repeats=3)
    parser.add_argument(
        "--source", choices=["mariadb118", "mysql97"], default="mariadb118", help="and target (%(default)s)"
    )
    parser.add_argument("--rows", type=int, help="row changes; otherwise as many as the workload has")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> dict[str, object]:
    """Write each workload once; every run has a new target."""
    names = list(chosen(arguments))
    rows = {name: arguments.rows or ROWS[name] for name in names}
    seconds = sum(arguments.repeats * 3 * (15 + rows[name] / WRITTEN[name]) for name in names)
    progress = Progress("apply", 3 * arguments.repeats * len(names), seconds)
    cases: list[Case] = []
    version = ""
    for name in names:
        with source(arguments.source) as server:
            version = version_of(server)
            written = write(server, name, rows[name])
            server.query(f"CREATE TABLE {SCHEMA}.{LAST} (id INT PRIMARY KEY)")
            server.query(f"INSERT INTO {SCHEMA}.{LAST} VALUES (1)")
            ways = {"output": by_output, "connection": by_connection, "replica": by_replica}
            results = take_turns(
                name,
                {way: functools.partial(measure, by, server, name, written) for way, by in ways.items()},
                arguments.repeats,
                progress,
            )
        cases.append(summary(name, results))
    return {"versions": {arguments.source: version}, "cases": cases}


def summary(name: str, results: dict[str, list[Run]]) -> Case:
    """Sum up a case."""
    replica = statistics.median(it.rate for it in results["replica"])
    found = case(name, results["output"], "one connection", results["connection"])
    return found | {
        "goal_ratio": GOALS.get(name),
        "replica": round(replica),
        "replica_ratio": round(found["ours"] / replica, 3),
        "replica_goal_ratio": REPLICA_GOAL,
    }


def measure(by: Callable[[Server, str, Written, Server], Run], server: Server, workload: str, written: Written) -> Run:
    """Run one way with a new target."""
    parallel = (
        (f"--slave-parallel-threads={WORKERS}", "--slave-parallel-mode=optimistic")
        if server.mariadb
        else (f"--replica-parallel-workers={WORKERS}",)
    )
    with Server(server.name, [*DURABLE, *parallel]) as target:
        return by(server, workload, written, target)


def by_connection(_: Server, workload: str, written: Written, target: Server) -> Run:
    """Execute the same transactions by one connection."""
    return Run(written.rows, write(target, workload, written.rows).seconds)


def by_output(server: Server, workload: str, written: Written, target: Server) -> Run:
    """Keep the target equal by an output."""
    prepare(target, workload, written.rows)
    with tempfile.TemporaryDirectory(prefix="sluice-") as folder:
        sluice = Sluice(Path(folder))
        output = {
            "type": "mysql",
            "url": f"mysql://{target.user}@{target.host}:{target.port}/",
            "password": target.password,
            "start": "earliest",
            "workers": WORKERS,
            "safeMode": "never",
            "ddl": "apply",
        }
        sluice.add(
            "shop",
            server,
            canal__instance__master__journal__name=written.file,
            canal__instance__master__position=4,
            canal__instance__filter__regex=rf"{SCHEMA}\\..*",
            sluice__outputs="copy",
            **{f"sluice__output__copy__{key}": value for key, value in output.items()},
        )
        with sluice:
            wait(target, "sluice", "sluice_output")
            return Run(written.rows, until_last(target))


def by_replica(server: Server, workload: str, written: Written, target: Server) -> Run:
    """Keep the target equal by its own replication."""
    prepare(target, workload, written.rows)
    if server.mariadb:
        Pair.run(target, "SET GLOBAL gtid_strict_mode = OFF")
    Pair.run(
        target,
        f"CHANGE REPLICATION SOURCE TO SOURCE_HOST = '{server.host}', SOURCE_PORT = {server.port},"
        f" SOURCE_USER = '{server.user}', SOURCE_PASSWORD = '{server.password}',"
        f" SOURCE_LOG_FILE = '{written.file}', SOURCE_LOG_POS = 4"
        + ("" if server.mariadb else ", SOURCE_AUTO_POSITION = 0, GET_SOURCE_PUBLIC_KEY = 1"),
    )
    Pair.run(target, "START REPLICA")
    return Run(written.rows, until_last(target))


def until_last(target: Server) -> float:
    """Return the seconds until the last transaction is there."""
    begin = time.monotonic()
    wait(target, SCHEMA, LAST)
    return time.monotonic() - begin


def wait(target: Server, schema: str, table: str) -> None:
    """Wait until a table has rows. Raises SystemExit when that takes too long."""
    there = "SELECT 1 FROM information_schema.tables WHERE table_schema = %s AND table_name = %s"
    end = time.monotonic() + LIMIT
    with _looking(target) as look:
        while not (look(there, (schema, table)) and look(f"SELECT 1 FROM {schema}.{table}", ())):
            if time.monotonic() > end:
                raise SystemExit(f"{schema}.{table} has no rows on the target after {LIMIT:g} s")
            time.sleep(PAUSE)


@contextlib.contextmanager
def _looking(target: Server) -> Iterator[Callable[[str, tuple[str, ...]], int]]:
    with target.connect() as connection, connection.cursor() as cursor:
        yield cursor.execute
