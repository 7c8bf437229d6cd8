"""What grows with what: subscribers of one destination, destinations of one server, the size of a batch."""

import argparse
import functools
import json
from collections.abc import Callable

from bench.deliver import DESTINATION, TIMES, by_way, lines_of
from bench.latency import process, read_line
from bench.measuring import Case, Progress, Run, add_choices, case, chosen, take_turns
from bench.processes import Meter
from bench.sources import SOURCES, source, version_of
from bench.workloads import ROWS, Written, write
from scripts.serving import started
from tests.servers import Server

COUNTS = (1, 10, 100)
BATCHES = (10, 100, 1000, 10_000)
GROUPS = {"subscribers": COUNTS, "destinations": COUNTS, "batch": BATCHES}
CASES = tuple(f"{group}-{count}" for group, counts in GROUPS.items() for count in counts)
"""Clients of one destination, destinations with a client each, and units of 1 KiB in a batch, by get and ack."""
WORKLOAD = "bulk"
RATE = 300_000
"""Rows that are delivered per second to all clients together, by which the time of a measurement is estimated."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what can be chosen."""
    add_choices(parser, CASES)
    parser.add_argument("--source", choices=SOURCES, default="mariadb118")
    parser.add_argument("--rows", type=int, default=ROWS[WORKLOAD] // 5, help="of bulk, that count (%(default)s)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> dict[str, object]:
    """Write the workload once; every run has a new server and a new process of clients."""
    names = list(chosen(arguments))
    groups = {group: [name for name in names if name.startswith(group)] for group in GROUPS}
    clients = sum(int(name.rpartition("-")[2]) for group in ("subscribers", "destinations") for name in groups[group])
    batches = len(groups["batch"])
    rows = arguments.rows * (clients + TIMES * batches)
    progress = Progress(
        "scale", len(names) * arguments.repeats, arguments.repeats * (rows / RATE + 5 * len(names)) + 10
    )
    cases: list[Case] = []
    with source(arguments.source) as server:
        version = version_of(server)
        written = write(server, WORKLOAD, arguments.rows, TIMES)
        for group, scaled in groups.items():
            contenders = {name: contender(server, written, group, int(name.rpartition("-")[2])) for name in scaled}
            results = take_turns(group, contenders, arguments.repeats, progress)
            first = scaled[0] if scaled else ""
            for name in scaled:
                alone = name == first
                cases.append(case(name, results[name], None if alone else first, () if alone else results[first]))
    return {"versions": {arguments.source: version}, "cases": cases}


def contender(server: Server, written: Written, group: str, count: int) -> Callable[[], Run]:
    """Return what performs a run of a case."""
    if group == "batch":
        return functools.partial(by_way, server, written, "get", None, count)
    destinations = count if group == "destinations" else 1
    return functools.partial(to_many, server, written, destinations, count // destinations)


def to_many(server: Server, written: Written, destinations: int, subscribers: int) -> Run:
    """Deliver the workload once to ``subscribers`` clients of each of ``destinations`` destinations.

    The clock runs from when all are subscribed until all have everything; the rows are those of all of them together.
    """
    names = [f"{DESTINATION}{number}" for number in range(destinations)]
    with started({name: lines_of(server, written) for name in names}) as sluice:
        task = {"url": sluice.url, "destinations": names, "subscribers": subscribers, "end": written.ends[0]}
        with process("bench.subscribers", task) as client:
            meter = Meter(database=server.pid, server=sluice.pid, client=client.pid)
            read_line(client)  # begin
            meter.begin()
            read_line(client)  # end
            cpu, peaks = meter.cpu(), meter.peaks()
            seconds = json.loads(client.communicate()[0])
    return Run(written.rows // TIMES * destinations * subscribers, seconds, cpu, peaks)
