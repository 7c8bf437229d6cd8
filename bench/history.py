"""The history of tables: decoding with it, beside names in the events; loading 10,000 tables; what a DDL costs."""

import argparse
import functools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from bench.deliver import DESTINATION, TIMES, by_way, estimate
from bench.measuring import Case, Progress, add_choices, case, chosen, take_turns
from bench.sources import source, version_of
from bench.workloads import ROWS, TABLES, Written, write
from scripts.serving import lines_for, started
from sluice.instance.sources.mysql.history.file import FileDatabase
from sluice.instance.sources.mysql.history.versions import History
from tests.servers import Server

CASES = {"decode-bulk": "bulk", "decode-mixed": "mixed"}
"""The workloads that are delivered."""
FULL, MINIMAL = "mariadb118", "mariadb118-minimal"
LONGER = 4
"""Times as many rows as a workload has elsewhere: a difference of 5 % is less than what shorter runs vary by."""
GOAL = 0.95
PATIENCE = 30.0
"""Seconds until a server knows the tables of its source."""
TABLE_COUNT = 10_000
LOAD_GOALS = {"load-10000": {"s": 2, "mb": 50}, "ddl": {"p50_ms": 5}}
DEFAULT_CASES = (*CASES, *LOAD_GOALS)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what can be chosen."""
    add_choices(parser, DEFAULT_CASES)
    parser.add_argument("--rows", type=int, help="row changes that count; otherwise as many as the workload has")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> dict[str, object]:
    """Write each workload on two sources that differ in what their events say; every run has a new server."""
    names = list(chosen(arguments))
    workloads = [CASES[name] for name in names if name in CASES]
    runs = arguments.repeats * (len(workloads) + len(names))
    progress = Progress("history", runs, estimate(arguments, workloads, 2 * arguments.repeats) + 5 * len(names))
    cases: list[Case] = []
    versions = {}
    for name in names:
        if name in CASES:
            with source(FULL) as full, source(MINIMAL) as minimal:
                versions[FULL] = version_of(full)
                cases.append(decode(arguments, name, full, minimal, progress))
        else:
            cases.append(load(name, arguments.repeats, progress))
    return {"versions": versions, "cases": cases}


def decode(arguments: argparse.Namespace, name: str, full: Server, minimal: Server, progress: Progress) -> Case:
    """Deliver a workload from each of the sources, in turn."""
    workload = CASES[name]
    rows = arguments.rows or LONGER * ROWS[workload]
    with tempfile.TemporaryDirectory(prefix="sluice-history-") as folder:
        deliver = functools.partial(by_way, way="stream", table=TABLES[workload], batch_size=None)
        known = write(minimal, workload, rows, TIMES)
        more = (f"tsdb.dir = {folder}",)
        learn(minimal, known, Path(folder), more)
        turns = {
            "history": functools.partial(deliver, minimal, known, more=more),
            "FULL metadata": functools.partial(deliver, full, write(full, workload, rows, TIMES)),
        }
        os.sync()  # else the first runs share the disk with what was written
        results = take_turns(name, turns, arguments.repeats, progress)
    result = case(name, results["history"], "names in the events", results["FULL metadata"])
    return result | {"goal": round(GOAL * result["anchor"])}


def learn(server: Server, written: Written, folder: Path, more: tuple[str, ...]) -> None:
    """Make a history at the end of the binlog, and say that it holds from where the workload begins."""
    history = History(FileDatabase(folder / DESTINATION, writes=True), writes=True)
    with started({DESTINATION: lines_for(f"{server.host}:{server.port}", server.user, server.password, *more)}):
        server.query("CREATE DATABASE noted")
        deadline = time.monotonic() + PATIENCE
        while not (stretches := history.stretches()):
            if time.monotonic() > deadline:
                raise SystemExit(f"the history of tables has not begun within {PATIENCE:g} s")
            time.sleep(0.1)
    stretch = stretches[-1]
    (first, *_) = history.versions(stretch)
    with (server.data / written.file).open("rb") as binlog:
        created = int.from_bytes(binlog.read(8)[4:], "little")  # the time of its first event
    begin = replace(stretch.since, file=written.file, created=created, begin=4)
    history.replace([(replace(stretch, since=begin), [replace(first, place=begin)])])
    history.close()


def load(name: str, repeats: int, progress: Progress) -> Case:
    """Measure in processes of their own, and sum it up."""
    found = []
    for _ in range(repeats):
        command = [sys.executable, "-m", "bench.tables", str(TABLE_COUNT)]
        found.append(json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout))
        progress.done(f"{name}: {found[-1]}")
    figures = {it: statistics.median(one[it] for one in found) for it in LOAD_GOALS[name]}
    unit, *_ = figures
    values = [one[unit] for one in found]
    return {
        "case": name,
        "unit": "ms" if name == "ddl" else "s",
        "ours": figures[unit],
        "anchor_name": None,
        "anchor": None,
        "ratio": None,
        "spread": [min(values), max(values)],
        "cpu_s_per_mrow": {},
        "peak_mb": {},
        "rows": TABLE_COUNT,
        "goal": LOAD_GOALS[name],
        **figures,
    }
