"""Delivery: from a binlog on the source through dump, decoder, ring and HTTP to a client; beside it the raw dump."""

import argparse
import functools
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.measuring import Case, Progress, Run, add_choices, case, chosen, take_turns
from bench.processes import Meter
from bench.sources import SOURCES, source, version_of
from bench.workloads import ROWS, SCHEMA, TABLES, WRITTEN, Written, write
from scripts.serving import lines_for, started
from tests.servers import Server
from tests.servers.server import free_port

DESTINATION = "bench"
TIMES = 3
"""How often the source holds a workload: to warm up, to measure, and to go on after that."""
WAYS = {"get": "get", "rows": "rows", "arrow": "arrow", "json": "json"}
RATES = {"bulk": 500_000, "single": 150_000, "update": 400_000, "wide": 200_000, "mixed": 120_000} | dict.fromkeys(
    ("text", "ascii"), 60_000
)
"""Rows per second by which the time of a measurement is estimated."""
GOALS = {
    "bulk": 1_500_000,
    "single": 250_000,
    "update": 750_000,
    "wide": 500_000,
    "mixed": 330_000,
    "bulk-rows": 400_000,
    "bulk-json": 300_000,
}
"""Rows per second that are to be reached."""
USUAL_SOURCE = "mariadb118"
CASES = (*ROWS, *(f"{workload}-{way}" for workload in ROWS for way in WAYS))
"""The bytes of each workload by the stream; get and ack, typed rows, Arrow and FlatMessage instead of that."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what can be chosen."""
    add_choices(parser, CASES, (*ROWS, *(f"bulk-{way}" for way in WAYS)))
    parser.add_argument("--source", choices=SOURCES, default=USUAL_SOURCE)
    parser.add_argument("--rows", type=int, help="row changes that count; otherwise as many as the workload has")
    parser.add_argument("--batch-size", type=int, help="of a batch, in units of 1 KiB; otherwise the server's own")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> dict[str, object]:
    """Write each workload once; every run has a new server and a new client."""
    wanted = [name.partition("-") for name in chosen(arguments)]
    workloads = [workload for workload in ROWS if any(workload == one for one, _, _ in wanted)]
    runs = arguments.repeats * (len(wanted) + len(workloads))
    progress = Progress("deliver", runs, estimate(arguments, workloads, runs // len(workloads)))
    cases: list[Case] = []
    version = ""
    for workload in workloads:
        ways = [way or "stream" for one, _, way in wanted if one == workload]
        with source(arguments.source) as server:
            version = version_of(server)
            written = write(server, workload, arguments.rows or ROWS[workload], TIMES)
            contenders = {
                way: functools.partial(by_way, server, written, way, TABLES[workload], arguments.batch_size)
                for way in ways
            }
            contenders["raw dump"] = functools.partial(dump, server, written)
            results = take_turns(workload, contenders, arguments.repeats, progress)
        for way in ways:
            name = workload if way == "stream" else f"{workload}-{way}"
            goal = {"goal": GOALS[name]} if name in GOALS else {}
            result = case(name, results[way], "raw dump, nothing decoded", results["raw dump"])
            if arguments.source != USUAL_SOURCE:
                result["case"] = f"{name}-{arguments.source}"
            cases.append(result | goal)
    return {"versions": {arguments.source: version}, "cases": cases}


def estimate(arguments: argparse.Namespace, workloads: list[str], turns: int) -> float:
    """Return about how many seconds it takes to write workloads, and to deliver each ``turns`` times."""
    seconds = 0.0
    for workload in workloads:
        rows = TIMES * (arguments.rows or ROWS[workload])
        seconds += 5 + rows / WRITTEN[workload] + turns * (3 + rows / RATES[workload])
    return seconds


def by_way(
    server: Server,
    written: Written,
    way: str,
    table: str | None,
    batch_size: int | None,
    more: Sequence[str] = (),
    views: int = 0,
) -> Run:
    """Deliver to a client, in one of the ways of `bench.client`; ``more`` are lines of the configuration.

    ``views``: number of views of the destination, without clients.
    """
    task = {"way": way, "table": table and f"{SCHEMA}.{table}", "ends": written.ends[:2], "batch_size": batch_size}
    return serve([*lines_of(server, written), *more], task, written.rows // TIMES, views, database=server.pid)


def serve(lines: Sequence[str], task: Mapping[str, Any], rows: int, views: int = 0, **pids: int) -> Run:
    """Start a server of one destination with these lines, and deliver rows of it to `bench.client`.

    ``views``: number of views of the destination, without clients.
    """
    others = {f"view{number}": [f"sluice.instance.route = {DESTINATION}"] for number in range(views)}
    with started({DESTINATION: lines, **others}, canal_port=free_port()) as sluice:
        place = {"url": sluice.url, "canal_port": sluice.canal_port, "destination": DESTINATION}
        return follow("bench.client", {**place, **task}, rows, **pids, server=sluice.pid)


def dump(server: Server, written: Written) -> Run:
    """Take the bytes that the source sends, from the first workload to the last."""
    task = {
        "host": server.host,
        "port": server.port,
        "user": server.user,
        "password": server.password,
        "file": written.file,
        "rows": written.rows,
    }
    return follow("bench.dump", task, written.rows, database=server.pid)


def lines_of(server: Server, written: Written) -> list[str]:
    """Return the lines of a configuration that let a destination begin with a workload."""
    place = f"master.journal.name = {written.file}", "master.position = 4", rf"filter.regex = {SCHEMA}\\..*"
    return lines_for(f"{server.host}:{server.port}", server.user, server.password, *place)


def follow(module: str, task: Mapping[str, Any], rows: int, **pids: int) -> Run:
    """Start a client, and take what it and other processes use between its `begin` and its `end`.

    The clock runs from batch to batch: the rows may differ from those that were written by what the batches hold in
    which the workload begins and ends. Raises SystemExit when they differ by more, or when the client fails.
    """
    command = [sys.executable, "-m", module, json.dumps(task)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1]) as process:
        if process.stdout is None:
            raise TypeError("no pipe")
        meter = Meter(**pids, client=process.pid)
        process.stdout.readline()  # begin
        meter.begin()
        process.stdout.readline()  # end
        cpu, peaks = meter.cpu(), meter.peaks()
        printed = process.stdout.read()
    if process.returncode:
        raise SystemExit(f"{module} failed: {task}")
    result = json.loads(printed)
    delivered = result.get("rows", rows)
    if abs(delivered - rows) > result.get("slack", 0):
        raise SystemExit(f"{delivered} rows were delivered of the {rows} that were written: {task}")
    return Run(delivered, result["seconds"], cpu, peaks, result["bytes"])
