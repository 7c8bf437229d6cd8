"""Side by side with stock Canal 1.1.7: the same source in the same run, by the SDK's client and by Canal's own.

Once both clients decode every row within the time that is measured, and once neither does: then they have the bytes
(Canal's in its lazy mode), and count their rows when the clock has stopped.
"""

import argparse
import contextlib
import functools
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.deliver import DESTINATION, TIMES, by_way, estimate, lines_of
from bench.measuring import Case, Progress, Run, add_choices, case, chosen, take_turns
from bench.processes import Meter
from bench.sources import SOURCES, source, version_of
from bench.workloads import ROWS, SCHEMA, Written, write
from scripts.serving import started, write_conf
from tests.clients.canal_server import CanalServer
from tests.clients.java import JavaConsumer
from tests.servers import Server
from tests.servers.server import free_port

CANAL = "Canal 1.1.7 with its Java client"
CASES = (*ROWS, *(f"{workload}-tcp" for workload in ROWS))
"""Each workload by the SDK over HTTP, and by Canal's Java client 1.1.7 over Canal's protocol."""
GOAL = 10
"""Times Canal's rows per second, with as many times less CPU of the server."""
GOALS = {"text": 8}
"""The same of some workloads."""
UNDECODED = ", undecoded"
"""What follows the name of a contender whose client does not decode."""
SERVER_HEAP = ("-Xms2g", "-Xmx3g")  # as Canal's startup.sh has it
CLIENT_HEAP = ("-Xmx1g",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what can be chosen."""
    add_choices(parser, CASES)
    parser.add_argument(
        "--source", choices=SOURCES, default="mariadb1011", help="Canal cannot read MariaDB 11.8 (%(default)s)"
    )
    parser.add_argument("--rows", type=int, help="row changes that count; otherwise as many as the workload has")
    parser.add_argument("--batch-size", type=int, default=5000, help="of all, in units of 1 KiB (%(default)s)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> dict[str, object]:
    """Write each workload once; every run has a new server and a new client."""
    wanted = list(chosen(arguments))
    workloads = [workload for workload in ROWS if {workload, f"{workload}-tcp"} & set(wanted)]
    runs = 2 * arguments.repeats * (len(wanted) + len(workloads))
    seconds = estimate(arguments, workloads, 4 * arguments.repeats) + 2 * arguments.repeats * sum(
        6 + TIMES * (arguments.rows or ROWS[workload]) / RATES[workload] for workload in workloads
    )
    progress = Progress("peers", runs, seconds)
    cases: list[Case] = []
    version = ""
    for workload in workloads:
        with source(arguments.source) as server:
            version = version_of(server)
            written = write(server, workload, arguments.rows or ROWS[workload], TIMES)
            contenders = contenders_of(server, written, workload, arguments.batch_size)
            names = [name for name in contenders if name in wanted]
            turns = {
                f"{name}{suffix}": functools.partial(contenders[name], decodes=not suffix)
                for suffix in ("", UNDECODED)
                for name in (*names, CANAL)
            }
            results = take_turns(workload, turns, arguments.repeats, progress)
        cases += [both(name, results) for name in names]
    return {"versions": {arguments.source: version, "canal": "1.1.7", "java": java_version()}, "cases": cases}


RATES = {"bulk": 150_000, "single": 25_000, "update": 75_000, "wide": 50_000, "mixed": 30_000} | dict.fromkeys(
    ("text", "ascii"), 5_000
)
"""Rows per second of Canal, by which the time of a measurement is estimated."""


def contenders_of(server: Server, written: Written, workload: str, batch_size: int) -> dict[str, Callable[..., Run]]:
    """Return the contenders that deliver a workload; each is told by `decodes` whether the client decodes it."""

    def by_http(*, decodes: bool) -> Run:
        return by_way(server, written, "rows" if decodes else "stream", None, batch_size)

    return {
        workload: by_http,
        f"{workload}-tcp": functools.partial(by_tcp, server, written, batch_size),
        CANAL: functools.partial(by_canal, server, written, batch_size),
    }


def both(name: str, results: dict[str, list[Run]]) -> Case:
    """Sum up a contender where the clients decode, and in `undecoded` where they do not."""
    decoded, undecoded = (
        beside(case(name, results[f"{name}{suffix}"], CANAL, results[f"{CANAL}{suffix}"])) for suffix in ("", UNDECODED)
    )
    return decoded | {"ratio_undecoded": undecoded["ratio"], "undecoded": undecoded}


def beside(result: Case) -> Case:
    """Add the goal, and how many times less CPU our server needs than Canal's."""
    ours, canal = result["cpu_s_per_mrow"]["server"], result["anchor_cpu_s_per_mrow"]["server"]
    goal = GOALS.get(result["case"].partition("-")[0], GOAL)
    return result | {"goal": goal * result["anchor"], "server_cpu_ratio": round(canal / ours, 3) if ours else None}


def by_tcp(server: Server, written: Written, batch_size: int, *, decodes: bool = True) -> Run:
    """Deliver to Canal's Java client over Canal's protocol."""
    port = free_port()
    with started({DESTINATION: lines_of(server, written)}, canal_port=port) as sluice:
        return drain(port, written, batch_size, decodes=decodes, database=server.pid, server=sluice.pid)


def by_canal(server: Server, written: Written, batch_size: int, *, decodes: bool = True) -> Run:
    """Deliver by Canal's server to Canal's client."""
    with canal(server, written) as (port, pid):
        return drain(port, written, batch_size, decodes=decodes, database=server.pid, server=pid)


def drain(port: int, written: Written, batch_size: int, *, decodes: bool = True, **pids: int) -> Run:
    """Take a workload by the Java client to warm up, and once more, which counts."""

    def take(end: tuple[str, int]) -> tuple[int, float]:
        call = ("drain", batch_size, written.rows // TIMES) if decodes else ("collect", batch_size, *end)
        ((_, rows, _gets, seconds),) = client.call(*call)
        return int(rows), float(seconds)

    with JavaConsumer(*CLIENT_HEAP) as client:
        client.connect(port, destination=DESTINATION, lazy=not decodes)
        client.call("subscribe", rf"{SCHEMA}\..*")
        take(written.ends[0])
        meter = Meter(**pids, client=client.pid)
        rows, seconds = take(written.ends[1])
        return Run(rows, seconds, meter.cpu(), meter.peaks())


@contextlib.contextmanager
def canal(server: Server, written: Written, *more: str) -> Iterator[tuple[int, int]]:
    """Start Canal's server on a source, with more lines of its main file; gives its port and its process."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="sluice-canal-") as folder:
        main = f"canal.port = {port}", "canal.instance.global.spring.xml = classpath:spring/memory-instance.xml"
        conf = write_conf(Path(folder), {DESTINATION: lines_of(server, written)}, *main, *more)
        with CanalServer(conf, SERVER_HEAP) as running:
            yield port, running.pid


def java_version() -> str:
    """Return the version of the Java that runs all of it."""
    told = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True).stderr
    return told.split('"')[1]
