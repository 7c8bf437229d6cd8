"""The log on disk: decode and put with it, beside the ring alone and plain writing; catching up from it; opening it."""

import argparse
import functools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import urllib3

from bench.captures import captured
from bench.deliver import DESTINATION, TIMES, by_way, lines_of
from bench.measuring import Case, Progress, Run, add_choices, case, chosen, take_turns
from bench.sources import source, version_of
from bench.stages import replay
from bench.workloads import ROWS, TABLES, Written, write
from scripts.serving import started
from tests.servers import Server

PUTS = {"put-bulk": "bulk", "put-single": "single"}
CATCHUPS = {"catchup-bulk": "bulk", "catchup-cold": "bulk", "catchup-single": "single"}
CASES = (*PUTS, *CATCHUPS, "restart")
USUAL_SOURCE = "mariadb118"
PUT_GOAL, CATCHUP_GOAL, RESTART_GOAL = 0.9, 2.0, 0.5
"""Of the lesser of ring and disk; times delivery from the source; seconds more than with an empty log."""
SECONDS, BYTES = 30.0, 4 << 30
"""What a put takes at least."""
DISK = 600e6
"""Bytes per second by which it is estimated how often a workload is put."""
SMALL = 100_000
"""Row changes below which a run is a trial, as short as it may be."""
RESTART_BYTES = 10 << 30
LONGER = 4
"""Times as many rows as a workload has elsewhere are caught up with."""
ROOT = Path(__file__).parents[1]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what can be chosen."""
    add_choices(parser, CASES)
    parser.add_argument("--rows", type=int, help="row changes of a workload; otherwise as many as it has")
    parser.add_argument("--folder", type=Path, help="where logs are written; otherwise a temporary folder")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> dict[str, object]:
    """Measure the chosen cases."""
    names = list(chosen(arguments))
    runs = sum(arguments.repeats * (3 if name in PUTS else 2) for name in names)
    progress = Progress("store", runs, runs * 45.0)
    cases: list[Case] = []
    versions = {}
    for name in names:
        with tempfile.TemporaryDirectory(prefix="sluice-store-", dir=arguments.folder) as folder:
            if name in PUTS:
                capture = captured(USUAL_SOURCE, PUTS[name], arguments.rows or ROWS[PUTS[name]])
                versions[USUAL_SOURCE] = capture.version
                cases.append(put(arguments, name, Path(folder), progress))
            elif name in CATCHUPS:
                with source(USUAL_SOURCE) as server:
                    versions[USUAL_SOURCE] = version_of(server)
                    cases.append(catch_up(arguments, name, server, Path(folder), progress))
            else:
                cases.append(restart(arguments, Path(folder), progress))
    return {"versions": versions, "cases": cases}


def put(arguments: argparse.Namespace, name: str, folder: Path, progress: Progress) -> Case:
    """Decode and put with a log, beside the ring alone and writing as many bytes."""
    rows = arguments.rows or ROWS[PUTS[name]]
    capture = captured(USUAL_SOURCE, PUTS[name], rows)
    with replay(capture) as (port, _):
        task = {"source": USUAL_SOURCE, "workload": PUTS[name], "rows": rows, "port": port, "folder": str(folder)}
        trial = perform(task | {"way": "log", "times": 1}, folder)
        times = 2
        if rows > SMALL:
            times = round(max(SECONDS * DISK, BYTES) / trial.bytes) + 1
        all_rows, size = times * trial.rows, times * trial.bytes
        results = take_turns(
            name,
            {
                "log": functools.partial(perform, task | {"way": "log", "times": times}, folder),
                "ring": functools.partial(perform, task | {"way": "put", "times": times}, folder),
                "disk": functools.partial(
                    perform, task | {"way": "write", "bytes": size, "all_rows": all_rows}, folder
                ),
            },
            arguments.repeats,
            progress,
        )
    rates = {way: statistics.median(it.rate for it in runs) for way, runs in results.items()}
    lesser = min(("ring", "disk"), key=rates.__getitem__)
    result = case(name, results["log"], f"the {lesser} alone", results[lesser])
    return result | {
        "goal": round(PUT_GOAL * result["anchor"]),
        "ring": round(rates["ring"]),
        "disk": round(rates["disk"]),
        "seconds": round(statistics.median(it.seconds for it in results["log"]), 1),
        "log_bytes": results["log"][0].bytes,
    }


def catch_up(arguments: argparse.Namespace, name: str, server: Server, folder: Path, progress: Progress) -> Case:
    """Deliver a workload from the log, beside delivery from the source, to a client that drops it."""
    workload = CATCHUPS[name]
    written = write(server, workload, arguments.rows or LONGER * ROWS[workload], TIMES)
    more = ("sluice.instance.store = mixed", f"sluice.instance.store.dir = {folder}")
    fill(server, written, more)
    deliver = functools.partial(by_way, server, written, "drop", TABLES[workload], None)
    files = sorted((folder / DESTINATION / "log").glob("*.log"))

    def from_log() -> Run:
        if name == "catchup-cold":
            forget(files)
        return deliver(more)

    os.sync()
    results = take_turns(name, {"log": from_log, "source": deliver}, arguments.repeats, progress)
    sizes = {it.bytes for runs in results.values() for it in runs}
    if written.rows > SMALL and max(sizes) > 1.02 * min(sizes):  # batches end elsewhere
        raise SystemExit(f"{name}: the log and the source do not give the same: {sorted(sizes)} bytes")
    result = case(name, results["log"], "from the source", results["source"])
    return result | {
        "goal": round(CATCHUP_GOAL * result["anchor"]),
        "cat_mb_per_s": round(read_plainly(files, cold=name == "catchup-cold"), 1),
    }


def fill(server: Server, written: Written, more: tuple[str, ...]) -> None:
    """Let a server write everything to its log."""
    with started({DESTINATION: [*lines_of(server, written), *more]}) as sluice:
        file, offset = written.ends[-1]
        while True:
            log = urllib3.request("GET", f"{sluice.url}/v1/destinations/{DESTINATION}").json()["log"]
            end = log["stretches"][-1][1].split("/")[1] if log["stretches"] else "@0:0:0"
            if end.split("@")[0] >= file and int(end.split(":")[1]) >= offset:
                return
            time.sleep(0.1)


def forget(files: list[Path]) -> None:
    """Let the system drop files from its memory."""
    for path in files:
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_plainly(files: list[Path], *, cold: bool) -> float:
    """Return how many MB/s `cat` reads."""
    if cold:
        forget(files)
    begin = time.perf_counter()
    subprocess.run(["cat", *files], stdout=subprocess.DEVNULL, check=True)
    return sum(path.stat().st_size for path in files) / 1e6 / (time.perf_counter() - begin)


def restart(arguments: argparse.Namespace, folder: Path, progress: Progress) -> Case:
    """Open a log of 10 GB and read a block of it, beside opening an empty one."""
    full, empty = folder / "full", folder / "empty"
    full.mkdir()
    empty.mkdir()
    rows = arguments.rows or ROWS["bulk"]
    capture = captured(USUAL_SOURCE, "bulk", rows)
    with replay(capture) as (port, _):
        task = {"source": USUAL_SOURCE, "workload": "bulk", "rows": rows, "port": port, "folder": str(full)}
        trial = perform(task | {"way": "log", "times": 1}, full)
        times = 2 if rows <= SMALL else round(RESTART_BYTES / trial.bytes) + 1
        log_bytes = perform(task | {"way": "log", "times": times}, full).bytes
    turns = {
        way: functools.partial(perform, {"way": "open", "folder": str(path)}, None)
        for way, path in (("full", full), ("empty", empty))
    }
    results = take_turns("restart", turns, arguments.repeats, progress)
    seconds = {way: round(statistics.median(it.seconds for it in runs), 4) for way, runs in results.items()}
    return {
        "case": "restart",
        "unit": "s",
        "ours": seconds["full"],
        "anchor_name": "an empty log",
        "anchor": seconds["empty"],
        "ratio": None,
        "spread": [round(of(it.seconds for it in results["full"]), 4) for of in (min, max)],
        "cpu_s_per_mrow": {},
        "peak_mb": {"server": round(max(it.peak_mb["log"] for it in results["full"]))},
        "rows": rows,
        "goal_s_more": RESTART_GOAL,
        "log_bytes": log_bytes,
    }


def perform(task: dict[str, object], folder: Path | None) -> Run:
    """Run `bench.logged`, in an empty folder if one is given."""
    if folder is not None:
        shutil.rmtree(folder)
        folder.mkdir()
        os.sync()
    command = [sys.executable, "-m", "bench.logged", json.dumps(task)]
    result = json.loads(subprocess.run(command, stdout=subprocess.PIPE, cwd=ROOT, check=True).stdout)
    return Run(result["rows"], result["seconds"], {"log": result["cpu"]}, {"log": result["peak_mb"]}, result["bytes"])
