"""The server's memory: idle, and the most it takes of large transactions, rows and tables, beside what is allowed."""

import argparse
import statistics
from collections.abc import Callable

from bench.deliver import DESTINATION
from bench.latency import process, read_line
from bench.measuring import Case, Progress, Run, add_choices, chosen, cpu, peaks
from bench.processes import Meter
from bench.sources import source, version_of
from bench.workloads import SCHEMA
from scripts.serving import lines_for, started
from sluice.client_sdk import Client
from tests.servers import Server

IDLE = 120
"""MB that an idle server may take."""
RING = 16384 * (1024 + 128) / 1e6
"""MB that the ring may hold: 16384 units of 1 KiB, and as many slots of 128 bytes."""
SOURCE = "mariadb118"
SETTLED = 2.0
"""Seconds that a client has waited for changes when an idle server is looked at."""
ROW_MB = 64
CASES = ("idle", "transaction", "row", "columns", "tables")
"""Nothing; a transaction of 2 GB; a row of 64 MB; a table of 1,000 columns; 10,000 tables."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what can be chosen."""
    add_choices(parser, CASES, repeats=3)
    parser.add_argument("--scale", type=float, default=1.0, help="of all sizes (%(default)s)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> dict[str, object]:
    """Write each case once, and deliver it to a new server in each run."""
    cases: list[Case] = []
    seconds = {"idle": 5, "transaction": 100, "row": 10, "columns": 15, "tables": 60}
    wanted = list(chosen(arguments))
    progress = Progress("memory", len(wanted) * arguments.repeats, sum(seconds[name] for name in wanted))
    version = ""
    for name in wanted:
        with source(
            SOURCE, "--max-allowed-packet=1G", "--innodb-log-file-size=512M", "--table-open-cache=400"
        ) as server:
            version = version_of(server)
            server.query(f"CREATE DATABASE {SCHEMA}")
            server.query("FLUSH BINARY LOGS")
            file = server.query("SHOW BINARY LOGS")[-1][0]
            largest = WRITERS[name](server, arguments.scale)
            end = server.query("SHOW BINARY LOGS")[-1][:2]
            idle = stay_idle(server)
            runs = []
            for _ in range(arguments.repeats):
                runs.append(stay_idle(server) if name == "idle" else deliver(server, file, end))
                progress.done(f"{name}: {runs[-1].peak_mb['server']:.0f} MB")
        cases.append(summary(name, runs, idle.peak_mb["server"], largest))
    return {"versions": {SOURCE: version}, "cases": cases}


def summary(name: str, runs: list[Run], idle: float, largest: float) -> Case:
    """Compare the peak with idle + ring + 4 times the largest event, in MB."""
    peak = [run.peak_mb["server"] for run in runs]
    allowed = IDLE if name == "idle" else round(idle + RING + 4 * largest, 1)
    ours = round(statistics.median(peak), 1)
    return {
        "case": name,
        "unit": "MB",
        "ours": ours,
        "anchor_name": "goal" if name == "idle" else "idle + ring + 4 times the largest event",
        "anchor": allowed,
        "ratio": round(ours / allowed, 3),
        "spread": [round(of(peak), 1) for of in (min, max)],
        "cpu_s_per_mrow": cpu(runs) if runs[0].cpu else {},
        "peak_mb": peaks(runs),
        "rows": runs[0].rows,
        "idle_mb": round(idle, 1),
        "largest_event_mb": round(largest, 2),
    }


def stay_idle(server: Server) -> Run:
    """Start a server whose client has had a row, so that all is loaded which it needs for that, and waits for more."""
    server.query("DROP DATABASE IF EXISTS idle")
    server.query("CREATE DATABASE idle")
    server.query("CREATE TABLE idle.t (id INT PRIMARY KEY)")
    with started({DESTINATION: lines_for(f"{server.host}:{server.port}", server.user, server.password)}) as sluice:
        meter = Meter(database=server.pid, server=sluice.pid)
        with Client(sluice.url, DESTINATION) as client:
            client.subscribe("", "latest")
            server.query("INSERT INTO idle.t VALUES (1)")
            for batch in client.stream():
                if any(True for _ in batch):
                    break
            client.get_without_ack(SETTLED)
        return Run(0, SETTLED, {}, meter.peaks())


def deliver(server: Server, file: str, end: tuple[str, int]) -> Run:
    """Let a client take all from the beginning of a binlog file to an end."""
    place = (f"master.journal.name = {file}", "master.position = 4", rf"filter.regex = {SCHEMA}\\..*")
    lines = lines_for(f"{server.host}:{server.port}", server.user, server.password, *place)
    task = {"destination": DESTINATION, "end": end}
    with (
        started({DESTINATION: lines}) as sluice,
        process("bench.taker", task | {"url": sluice.url}) as client,
    ):
        meter = Meter(database=server.pid, server=sluice.pid)
        read_line(client)  # end
        used, peak = meter.cpu(), meter.peaks()
        rows, seconds = client.communicate()[0].split()
    return Run(int(rows), float(seconds), used, peak)


def write_nothing(_server: Server, _scale: float) -> float:
    """Write nothing."""
    return 0.0


def write_transaction(server: Server, scale: float) -> float:
    """Write 2 GB of rows of 1 kB in one transaction; their events have 8 KiB and a row at most."""
    rows = round(2_000_000 * scale)
    server.query(f"CREATE TABLE {SCHEMA}.t (id INT PRIMARY KEY, text VARCHAR(1000) NOT NULL) CHARACTER SET latin1")
    server.query(f"INSERT INTO {SCHEMA}.t SELECT seq, REPEAT('x', 980) FROM {SCHEMA}.seq_1_to_{rows}")
    return 0.01


def write_row(server: Server, scale: float) -> float:
    """Write a row of 64 MB."""
    size = round(ROW_MB * 1e6 * scale)
    server.query(f"CREATE TABLE {SCHEMA}.t (id INT PRIMARY KEY, data LONGBLOB)")
    server.query(f"INSERT INTO {SCHEMA}.t VALUES (1, REPEAT('x', {size}))")
    return size / 1e6


def write_columns(server: Server, scale: float) -> float:
    """Write rows of 1,000 columns, 10 a statement."""
    columns = round(1000 * scale)
    names = ", ".join(f"column_{number} VARCHAR(6)" for number in range(1, columns))
    server.query(f"CREATE TABLE {SCHEMA}.t (id INT PRIMARY KEY, {names}) ROW_FORMAT=DYNAMIC CHARACTER SET latin1")
    values = ", ".join(["'value'"] * (columns - 1))
    for first in range(0, 1000, 10):
        rows = ", ".join(f"({number}, {values})" for number in range(first, first + 10))
        server.query(f"INSERT INTO {SCHEMA}.t VALUES {rows}")
    return 0.016  # the event of its columns and their names


def write_tables(server: Server, scale: float) -> float:
    """Write a row into each of 10,000 tables."""
    with server.connect(database=SCHEMA) as connection, connection.cursor() as cursor:
        for number in range(round(10_000 * scale)):
            cursor.execute(f"CREATE TABLE t{number} (id INT PRIMARY KEY, name VARCHAR(40), price DECIMAL(10, 2))")
            cursor.execute(f"INSERT INTO t{number} VALUES (1, 'a name', 1.5)")
    return 0.01


WRITERS: dict[str, Callable[[Server, float], float]] = {
    "idle": write_nothing,
    "transaction": write_transaction,
    "row": write_row,
    "columns": write_columns,
    "tables": write_tables,
}
"""Each writes its case, sizes scaled, and returns the size of the largest event in MB."""
