"""What each stage costs: the same stream through one stage more each time, from the socket to the client's rows."""

import argparse
import contextlib
import functools
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.captures import Capture, captured
from bench.deliver import TIMES, by_way, estimate
from bench.measuring import Case, Progress, Run, add_choices, case, chosen, cpu, spread, take_turns
from bench.processes import Meter
from bench.sources import SOURCES, source
from bench.stage import STAGES
from bench.workloads import ROWS, TABLES, write

ROOT = Path(__file__).parents[1]
DELIVERIES = {"http": "stream", "tcp": "tcp", "rows": "rows", "arrow": "arrow"}
"""Stages after the ring, and the ways of `bench.client` that they are."""
NAMES = {
    "socket": "bytes off the socket",
    "framing": "events, skipped at their headers",
    "decode": "entries",
    "filter": "tables and columns chosen",
    "put": "entries in the ring",
    "get": "batches out of the ring",
    "http": "HTTP to a counting client",
    "tcp": "Canal's TCP to a counting client",
    "rows": "HTTP, rows in Python",
    "arrow": "HTTP, Arrow",
}

GOALS = {"bulk": 2_500_000, "single": 700_000, "update": 1_200_000, "wide": 900_000, "mixed": 500_000}
"""Rows per second as entries in memory that are to be reached by one core."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what can be chosen."""
    add_choices(parser, tuple(ROWS))
    parser.add_argument("--source", choices=SOURCES, default="mariadb118")
    parser.add_argument("--rows", type=int, help="row changes; otherwise as many as the workload has")
    parser.add_argument("--stage", action="append", choices=NAMES, help="only these; may be repeated")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> dict[str, object]:
    """Take the stages of a workload in turn; the figure of a case is that of the entries."""
    workloads = list(chosen(arguments))
    stages = [stage for stage in NAMES if stage in (arguments.stage or NAMES)]
    deliveries = [stage for stage in stages if stage in DELIVERIES]
    seconds = len(workloads) * arguments.repeats * 2.0 * (len(stages) - len(deliveries))
    if deliveries:
        seconds += estimate(arguments, workloads, arguments.repeats * len(deliveries))
    progress = Progress("stages", arguments.repeats * len(stages) * len(workloads), seconds)
    cases: list[Case] = []
    versions = {}
    for workload in workloads:
        rows = arguments.rows or ROWS[workload]
        capture = captured(arguments.source, workload, rows)
        versions[arguments.source] = capture.version
        with contextlib.ExitStack() as stack:
            contenders: dict[str, Callable[[], Run]] = {}
            if set(stages) & set(STAGES):
                port, pid = stack.enter_context(replay(capture))
                task = {"source": arguments.source, "workload": workload, "rows": rows, "port": port}
                contenders |= {
                    stage: functools.partial(in_thread, task | {"stage": stage}, pid)
                    for stage in stages
                    if stage in STAGES
                }
            if deliveries:
                server = stack.enter_context(source(arguments.source))
                written = write(server, workload, rows, TIMES)
                contenders |= {
                    stage: functools.partial(by_way, server, written, DELIVERIES[stage], TABLES[workload], None)
                    for stage in deliveries
                }
            cases.append(summary(workload, take_turns(workload, contenders, arguments.repeats, progress)))
    return {"versions": versions, "cases": cases}


def summary(workload: str, results: dict[str, list[Run]]) -> Case:
    """Sum up the stages of a workload: entries in memory, beside the bytes that they are made of."""
    ours = results.get("decode") or next(iter(results.values()))
    socket = results.get("socket", [])
    result = case(workload, ours, NAMES["socket"] if socket else None, socket)
    stages, before = [], 0.0
    for stage, runs in results.items():
        used = cpu(runs)
        entry = {
            "stage": stage,
            "what": NAMES[stage],
            "rows_per_s": round(case(stage, runs)["ours"]),
            "spread": spread(runs),
            "cpu_s_per_mrow": used,
        }
        if stage in STAGES:
            entry["cpu_s_added"] = round(used["stage"] - before, 4)
            before = used["stage"]
        stages.append(entry)
    goal = {"goal": GOALS[workload]} if "decode" in results and workload in GOALS else {}
    return result | goal | {"stages": stages}


@contextlib.contextmanager
def replay(capture: Capture) -> Iterator[tuple[int, int]]:
    """Send a capture to each client that connects; gives the port and the process."""
    command = [sys.executable, "-m", "bench.replay", str(capture.path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        if process.stdout is None:
            raise TypeError("no pipe")
        try:
            yield int(process.stdout.readline()), process.pid
        finally:
            process.kill()


def in_thread(task: dict[str, object], pid: int) -> Run:
    """Run a stage of `bench.stage`."""
    meter = Meter(source=pid)
    command = [sys.executable, "-m", "bench.stage", json.dumps(task)]
    printed = subprocess.run(command, stdout=subprocess.PIPE, cwd=ROOT, check=True).stdout
    result = json.loads(printed)
    sent = meter.cpu()["source"] / 2  # the stream is sent twice
    return Run(
        int(str(task["rows"])),
        result["seconds"],
        {"source": sent, "stage": result["cpu"]},
        {"stage": result["peak_mb"], **meter.peaks()},
    )
