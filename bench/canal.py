"""Canal's own Java client, unchanged: how fast it reads from stock Canal 1.1.7, from us, and at all; and how late.

Each workload in batches of 1,000 and of 5,000 KiB; beside both runs a server that only repeats recorded answers, which
is what the client itself can do. Latency is of single-row commits, over Canal's protocol on both sides.
"""

import argparse
import functools
import statistics
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from bench.deliver import DESTINATION, TIMES, estimate, lines_of
from bench.latency import Beats, commit, make_table, process, rows_of, summary, writers_of
from bench.measuring import Case, Progress, Run, add_choices, case, chosen, take_turns
from bench.pace import in_ms
from bench.peers import CANAL, CLIENT_HEAP, RATES, beside, by_canal, by_tcp, canal, drain, java_version
from bench.processes import Meter
from bench.sources import SOURCES, source, version_of
from bench.workloads import ROWS, SCHEMA, Written, write
from scripts.serving import started
from tests.clients.java import JavaConsumer
from tests.servers import Server
from tests.servers.server import free_port

SIZES = (1000, 5000)
"""KiB of a batch."""
SHARE = 2
"""A workload is this part of what `bench.workloads` has: Canal takes its time."""
SLOWER = {1000: 2.5, 5000: 1}
"""How much slower Canal is with batches of a size than it is with those of `RATES`, for the estimate of time."""
NO_TIMEOUT, TIMEOUT = -1, 100
"""What the Java client waits for a batch, in ms; without a timeout it asks again after 1 ms when there is none."""
LATENCIES = {
    "latency-linger": (TIMEOUT, False),
    "latency-strict": (NO_TIMEOUT, True),
    "latency-strict-timeout": (TIMEOUT, True),
}
"""The timeout of a GET, and whether the destination does as Canal (`strictCanal`)."""
CASES = (*(f"{workload}-{size}" for workload in ROWS for size in SIZES), *LATENCIES)
LIMIT = "recorded answers"

Serving = AbstractContextManager[tuple[int, int]]
"""A server of Canal's protocol: its port and its process."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what can be chosen."""
    add_choices(parser, CASES, repeats=2)
    parser.add_argument(
        "--source", choices=SOURCES, default="mariadb1011", help="Canal cannot read MariaDB 11.8 (%(default)s)"
    )
    parser.add_argument("--rows", type=int, help="row changes that count; otherwise half of what the workload has")
    parser.add_argument("--pace", type=int, default=1000, help="commits a second, for the latency (%(default)s)")
    parser.add_argument("--seconds", type=float, default=8, help="of commits that count (%(default)s)")
    parser.add_argument("--warm-up", type=float, default=4, help="seconds before these (%(default)s)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> dict[str, object]:
    """Write each workload once; every run has a new server and a new client."""
    wanted = list(chosen(arguments))
    sizes = {workload: [size for size in SIZES if f"{workload}-{size}" in wanted] for workload in ROWS}
    sizes = {workload: found for workload, found in sizes.items() if found}
    latencies = [name for name in LATENCIES if name in wanted]
    progress = Progress("canal", *_work(arguments, sizes, latencies))
    cases: list[Case] = []
    version = ""
    for workload in sizes:
        with source(arguments.source) as server:
            version = version_of(server)
            written = write(server, workload, _rows(arguments, workload), TIMES)
            cases += [throughput(arguments, workload, size, server, written, progress) for size in sizes[workload]]
    if latencies:
        with source(arguments.source) as server:
            version = version_of(server)
            make_table(server)
            cases += measure_latency(arguments, latencies, server, progress)
    return {"versions": {arguments.source: version, "canal": "1.1.7", "java": java_version()}, "cases": cases}


def _rows(arguments: argparse.Namespace, workload: str) -> int:
    return arguments.rows or ROWS[workload] // SHARE


def _work(arguments: argparse.Namespace, sizes: dict[str, list[int]], latencies: list[str]) -> tuple[int, float]:
    """Return the number of runs, and the seconds that all of it takes on two quiet cores."""
    repeats = arguments.repeats
    contenders = len(latencies) + len({LATENCIES[name][0] for name in latencies})
    runs = repeats * contenders + (2 * repeats + 1) * sum(map(len, sizes.values()))
    seconds = repeats * contenders * (arguments.seconds + arguments.warm_up + 5)
    for workload, found in sizes.items():
        rows = _rows(arguments, workload)
        seconds += estimate(argparse.Namespace(rows=rows), [workload], (repeats + 1) * len(found))
        seconds += repeats * sum(5 + 2 * rows / RATES[workload] * SLOWER[size] for size in found)
    return runs, seconds


# --- throughput


def throughput(
    arguments: argparse.Namespace, workload: str, size: int, server: Server, written: Written, progress: Progress
) -> Case:
    """Let the client read a workload from us and from Canal in turn, and once from the recorded answers."""
    name = f"{workload}-{size}"
    turns = {
        "sluice": functools.partial(by_tcp, server, written, size),
        CANAL: functools.partial(by_canal, server, written, size),
    }
    found = take_turns(name, turns, arguments.repeats, progress)
    limit = take_turns(name, {LIMIT: functools.partial(by_recorded, server, written, size)}, 1, progress)[LIMIT]
    result = beside(case(name, found["sluice"], CANAL, found[CANAL]))
    return result | {
        "client_cores": cores(found["sluice"]),
        "client_limit": round(limit[0].rate),
        "client_limit_cores": cores(limit),
        "of_client_limit": round(result["ours"] / limit[0].rate, 3),
    }


def cores(runs: list[Run]) -> float:
    """Return how many cores the client kept busy."""
    return round(statistics.median(run.cpu["client"] / run.seconds for run in runs), 2)


def by_recorded(server: Server, written: Written, size: int) -> Run:
    """Deliver what we have answered once, from memory."""
    port = free_port()
    task = {"canal_port": port, "destination": DESTINATION, "end": written.ends[0], "batch_size": size}
    with started({DESTINATION: lines_of(server, written)}, canal_port=port), process("bench.recorded", task) as replay:
        if replay.stdout is None:
            raise TypeError("no pipe")
        try:
            return drain(int(replay.stdout.readline()), written, size, server=replay.pid)
        finally:
            replay.kill()


# --- latency


def measure_latency(
    arguments: argparse.Namespace, names: list[str], server: Server, progress: Progress
) -> Iterator[Case]:
    """Measure the cases in turn, and Canal beside them once for each timeout."""
    ours: dict[str, list[Beats]] = {name: [] for name in names}
    canals: dict[int, list[Beats]] = {LATENCIES[name][0]: [] for name in names}
    for _ in range(arguments.repeats):
        for name in names:
            timeout, strict = LATENCIES[name]
            ours[name].append(beat(arguments, server, sluice(server, _fresh(server), strict=strict), timeout))
            progress.done(f"{name}: p99 {ours[name][-1].latency['p99_ms']} ms")
        for timeout, runs in canals.items():
            runs.append(beat(arguments, server, canal(server, _fresh(server)), timeout))
            progress.done(f"{CANAL}, timeout {timeout} ms: p99 {runs[-1].latency['p99_ms']} ms")
    for name in names:
        result, other = summary(name, ours[name]), summary(CANAL, canals[LATENCIES[name][0]])
        yield result | {
            "ours": result["p99_ms"],
            "spread": [pick(one.latency["p99_ms"] for one in ours[name]) for pick in (min, max)],
            "anchor_name": CANAL,
            "anchor": other["p99_ms"],
            "ratio": round(result["p99_ms"] / other["p99_ms"], 3),
            "anchor_p50_ms": other["p50_ms"],
            "anchor_cpu_s_per_mrow": other["cpu_s_per_mrow"],
            "anchor_peak_mb": other["peak_mb"],
            "anchor_repeats": other["repeats"],
        }


def _fresh(server: Server) -> Written:
    """Begin a binlog file, where nothing is written yet."""
    server.query("FLUSH BINARY LOGS")
    return Written(0, server.query("SHOW BINARY LOGS")[-1][0], (), 0.0)


@contextmanager
def sluice(server: Server, written: Written, *, strict: bool) -> Iterator[tuple[int, int]]:
    """Start our server on a source; gives its port and its process."""
    port = free_port()
    lines = [*lines_of(server, written), f"parser.strictCanal = {str(strict).lower()}"]
    with started({DESTINATION: lines}, canal_port=port) as running:
        yield port, running.pid


def beat(arguments: argparse.Namespace, server: Server, serving: Serving, timeout: int) -> Beats:
    """Commit at a pace, and let the Java client say how old each row is when it has it."""
    rows = rows_of(arguments, arguments.pace, writers_of(arguments.pace, [server]))
    skipped = round(arguments.warm_up * arguments.pace)
    with serving as (port, pid), JavaConsumer(*CLIENT_HEAP) as client:
        client.connect(port, destination=DESTINATION)
        client.call("subscribe", rf"{SCHEMA}\..*")
        client.begin("beats", SIZES[0], timeout, rows)
        meter = Meter(database=server.pid, server=pid, client=client.pid)
        _, committed = commit(arguments, arguments.pace, [server])
        ((_, *ages),) = client.end()
        used = Run(rows, (rows - 1) / arguments.pace, meter.cpu(), meter.peaks())
    return Beats(used, in_ms(int(age) / 1e6 for age in ages[skipped:rows]), committed)
