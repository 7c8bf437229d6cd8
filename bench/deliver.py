"""End to end: a binlog that lies on the source, through dump, decoder, ring and HTTP, to a client on this machine."""

import argparse
import time

from bench.binlogs import TABLES, write
from scripts.serving import serving
from sluice.client_sdk import Client
from sluice.protocol.position import Position
from tests.servers import ALL, Server

DESTINATION = "bench"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what can be chosen."""
    parser.add_argument("--source", choices=ALL, default="mysql97")
    parser.add_argument("--table", choices=TABLES, default="sysbench")
    parser.add_argument("--rows", type=int, default=400_000, help="row changes (%(default)s)")
    parser.add_argument("--runs", type=int, default=3, help="passes, of which the best counts (%(default)s)")
    parser.add_argument("--typed", action="store_true", help="the client also decodes every row to Python values")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> dict[str, object]:
    """Write once, deliver to a new server and client in each run."""
    options = [] if arguments.source in ("mysql56", "mysql57") else ["--binlog-row-metadata=FULL"]
    with Server(arguments.source, options) as server:
        rows = write(server, arguments.table, arguments.rows)
        (version,) = server.query("SELECT version()")[0]
        runs = [deliver(server, rows, typed=arguments.typed) for _ in range(arguments.runs)]
    seconds, size = min(runs)
    return {
        "source": {"server": ALL[arguments.source], "version": version},
        "table": arguments.table,
        "rows": rows,
        "typed": arguments.typed,
        "bytes_delivered": size,
        "rows_per_second": round(rows / seconds),
        "mb_per_second": round(size / seconds / 1e6),
        "seconds_of_each_run": [round(one, 3) for one, _ in runs],
    }


def deliver(server: Server, rows: int, *, typed: bool) -> tuple[float, int]:
    """Return the seconds from the subscription to the last row, and the bytes that came.

    The server has filled its ring before, which is a fraction of the whole. Every batch is acked.
    """
    first = server.query("SHOW BINARY LOGS")[0][0]
    last, size = server.query("SHOW BINARY LOGS")[-1][:2]
    place = (f"master.journal.name = {first}", "master.position = 4", r"filter.regex = bench\\.t")
    address = f"{server.host}:{server.port}"
    batches, counted = [], 0
    with (
        serving(DESTINATION, address, server.user, server.password, *place) as url,
        Client(url, DESTINATION) as client,
    ):
        start = time.perf_counter()
        client.subscribe()
        for batch in client.stream():
            batches.append(batch)
            if typed:
                counted += len(batch.rows())
            to = Position.parse(batch.to)
            if (to.file, to.begin) >= (last, size):
                break
        seconds = time.perf_counter() - start
    counted = counted or sum(len(batch.rows()) for batch in batches)
    if counted != rows:
        raise SystemExit(f"{counted} rows were delivered of the {rows} that were written")
    return seconds, sum(len(batch.data) for batch in batches)
