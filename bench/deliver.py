"""End to end: a binlog that lies on the source, through dump, decoder, ring and HTTP, to a client on this machine."""

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import urllib3

from bench.binlogs import TABLES, write
from bench.processes import cpu_of, cpu_of_server
from bench.workloads import ROWS, Written
from bench.workloads import write as write_workload
from scripts.serving import serving
from sluice.client_sdk import Client
from sluice.protocol.position import Position
from tests.servers import ALL, Server

DESTINATION = "bench"


@dataclass(frozen=True, slots=True)
class Run:
    """One delivery. CPU seconds are those of the processes."""

    rows: int
    """Without those that lay in the ring when the clock started, unless all did."""
    seconds: float
    bytes: int
    cpu_source: float
    cpu_server: float
    cpu_client: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what can be chosen."""
    parser.add_argument("--source", choices=ALL, default="mariadb118")
    parser.add_argument(
        "--workload",
        choices=[*ROWS, "changes"],
        default="bulk",
        help="one of the five of bench/workloads.py, or changes: inserts, then updates, of --table (%(default)s)",
    )
    parser.add_argument("--table", choices=TABLES, default="sysbench", help="of the workload changes (%(default)s)")
    parser.add_argument("--rows", type=int, default=500_000, help="row changes (%(default)s)")
    parser.add_argument("--runs", type=int, default=5, help="deliveries; the median counts (%(default)s)")
    parser.add_argument("--typed", action="store_true", help="the client also decodes every row to Python values")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> dict[str, object]:
    """Write once; deliver to a new server process and a new client in each run."""
    options = ["--innodb-flush-log-at-trx-commit=0", "--sync-binlog=0"]  # how fast it writes is not measured
    if arguments.source not in ("mysql56", "mysql57"):
        options.append("--binlog-row-metadata=FULL")
    with Server(arguments.source, options) as server:
        if arguments.workload == "changes":
            written = Written(write(server, arguments.table, arguments.rows), server.query("SHOW BINARY LOGS")[0][0])
        else:
            written = write_workload(server, arguments.workload, arguments.rows)
        (version,) = server.query("SELECT version()")[0]
        runs = [deliver(server, written, typed=arguments.typed) for _ in range(arguments.runs)]

    def cpu(of: Callable[[Run], float]) -> float:
        return round(statistics.median(of(one) / written.rows for one in runs) * 1e6, 3)

    rates = [round(one.rows / one.seconds) for one in runs]
    return {
        "source": {"server": ALL[arguments.source], "version": version},
        "workload": arguments.workload,
        "table": arguments.table,
        "rows": written.rows,
        "typed": arguments.typed,
        "bytes_delivered": runs[0].bytes,
        "rows_per_second": round(statistics.median(rates)),
        "rows_per_second_of_each_run": rates,
        "seconds_of_each_run": [round(one.seconds, 3) for one in runs],
        "cpu_seconds_per_million_rows": {
            "source": cpu(lambda one: one.cpu_source),
            "server": cpu(lambda one: one.cpu_server),
            "client": cpu(lambda one: one.cpu_client),
        },
    }


def deliver(server: Server, written: Written, *, typed: bool) -> Run:
    """Take the time from the subscription to the last byte. Every batch is acked; the client keeps all bytes.

    Before, the server has filled its ring; what lay in it does not count as delivered in that time. The rows are
    counted when the clock has stopped, unless they are wanted as values.
    """
    last, size = server.query("SHOW BINARY LOGS")[-1][:2]
    place = (f"master.journal.name = {written.file}", "master.position = 4", r"filter.regex = bench\\..*")
    address = f"{server.host}:{server.port}"
    batches, counted = [], 0
    with (
        serving(DESTINATION, address, server.user, server.password, *place) as url,
        Client(url, DESTINATION) as client,
    ):
        _wait_until_full(url)
        cpu_source, cpu_server, cpu_client = cpu_of(server.pid), cpu_of_server(url), time.process_time()
        start = time.perf_counter()
        ready = int(client.subscribe()["lag"]["rows"])
        for batch in client.stream():
            batches.append(batch)
            if typed:
                counted += len(batch.rows())
            to = Position.parse(batch.to)
            if (to.file, to.begin) >= (last, size):
                break
        seconds = time.perf_counter() - start
        cpu_client = time.process_time() - cpu_client
        cpu_server = cpu_of_server(url) - cpu_server
        cpu_source = cpu_of(server.pid) - cpu_source
    counted = counted or sum(len(batch.rows()) for batch in batches)
    if counted != written.rows:
        raise SystemExit(f"{counted} rows were delivered of the {written.rows} that were written")
    delivered = sum(len(batch.data) for batch in batches)
    return Run(written.rows - ready or written.rows, seconds, delivered, cpu_source, cpu_server, cpu_client)


def _wait_until_full(url: str, seconds: float = 5) -> None:
    """Wait until the ring is full, so that its filling takes no part of the time; a small workload does not fill it."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        status = urllib3.request("GET", f"{url}/v1/destinations/{DESTINATION}").json()
        if status["full"] or status["parser"]["behind"] == 0:
            return
        time.sleep(0.05)
