"""Side by side with stock Canal 1.1.7: the same source in the same run, by the SDK's client and by Canal's own."""

import argparse
import contextlib
import functools
import subprocess
import tempfile
from collections.abc import Iterator
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
    runs = arguments.repeats * (len(wanted) + len(workloads))
    seconds = estimate(arguments, workloads, 2 * arguments.repeats) + arguments.repeats * sum(
        6 + TIMES * (arguments.rows or ROWS[workload]) / RATES[workload] for workload in workloads
    )
    progress = Progress("peers", runs, seconds)
    cases: list[Case] = []
    version = ""
    for workload in workloads:
        with source(arguments.source) as server:
            version = version_of(server)
            written = write(server, workload, arguments.rows or ROWS[workload], TIMES)
            contenders = {
                workload: functools.partial(by_way, server, written, "stream", None, arguments.batch_size),
                f"{workload}-tcp": functools.partial(by_tcp, server, written, arguments.batch_size),
                CANAL: functools.partial(by_canal, server, written, arguments.batch_size),
            }
            contenders = {name: perform for name, perform in contenders.items() if name in {CANAL, *wanted}}
            results = take_turns(workload, contenders, arguments.repeats, progress)
        cases += [beside(case(name, results[name], CANAL, results[CANAL])) for name in contenders if name != CANAL]
    return {"versions": {arguments.source: version, "canal": "1.1.7", "java": java_version()}, "cases": cases}


RATES = {"bulk": 150_000, "single": 25_000, "update": 75_000, "wide": 50_000, "mixed": 30_000} | dict.fromkeys(
    ("text", "ascii"), 5_000
)
"""Rows per second of Canal, by which the time of a measurement is estimated."""


def beside(result: Case) -> Case:
    """Add the goal, and how many times less CPU our server needs than Canal's."""
    ours, canal = result["cpu_s_per_mrow"]["server"], result["anchor_cpu_s_per_mrow"]["server"]
    return result | {"goal": GOAL * result["anchor"], "server_cpu_ratio": round(canal / ours, 3) if ours else None}


def by_tcp(server: Server, written: Written, batch_size: int) -> Run:
    """Deliver to Canal's Java client over Canal's protocol."""
    port = free_port()
    with started({DESTINATION: lines_of(server, written)}, canal_port=port) as sluice:
        return drain(port, written, batch_size, database=server.pid, server=sluice.pid)


def by_canal(server: Server, written: Written, batch_size: int) -> Run:
    """Deliver by Canal's server to Canal's client."""
    with canal(server, written) as (port, pid):
        return drain(port, written, batch_size, database=server.pid, server=pid)


def drain(port: int, written: Written, batch_size: int, **pids: int) -> Run:
    """Take a workload by the Java client to warm up, and once more, which counts. It parses every row."""
    rows = written.rows // TIMES
    with JavaConsumer(*CLIENT_HEAP) as client:
        client.connect(port, destination=DESTINATION)
        client.call("subscribe", rf"{SCHEMA}\..*")
        client.call("drain", batch_size, rows)
        meter = Meter(**pids, client=client.pid)
        ((_, found, _gets, seconds),) = client.call("drain", batch_size, rows)
        return Run(int(found), float(seconds), meter.cpu(), meter.peaks())


@contextlib.contextmanager
def canal(server: Server, written: Written) -> Iterator[tuple[int, int]]:
    """Start Canal's server on a source; gives its port and its process."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="sluice-canal-") as folder:
        main = f"canal.port = {port}", "canal.instance.global.spring.xml = classpath:spring/memory-instance.xml"
        conf = write_conf(Path(folder), {DESTINATION: lines_of(server, written)}, *main)
        with CanalServer(conf, SERVER_HEAP) as running:
            yield port, running.pid


def java_version() -> str:
    """Return the version of the Java that runs all of it."""
    told = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True).stderr
    return told.split('"')[1]
