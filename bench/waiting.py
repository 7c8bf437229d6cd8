"""The server's CPU for a commit that one client takes, while others wait for other tables on streams.

Each commit waits until that client has the one before, so that no two are looked at together.
"""

import argparse
import asyncio
import contextlib
import statistics
import time
from collections.abc import AsyncGenerator

from bench.measuring import Case, Progress, Run, add_choices, chosen, cpu, peaks
from bench.processes import Meter
from bench.sources import SOURCES, source, version_of
from bench.workloads import SCHEMA
from scripts.serving import Sluice, lines_for, started
from sluice.client_sdk import AsyncClient, Batch
from tests.servers import Server

DESTINATION = "bench"
WRITTEN, READY = f"{SCHEMA}.written", f"{SCHEMA}.ready"
"""The table that is written, and one that all want: what they get of that shows that their streams are open."""
COUNTS = (1, 100, 1000)
CASES = (*(f"filtered-{count}" for count in COUNTS), *(f"alike-{count}" for count in COUNTS[1:]))
"""Each ends with its number of waiting clients; `filtered`: all filters differ; `alike`: all are the same."""
ANCHOR = f"filtered-{COUNTS[0]}"
GOAL = 2
"""Times what a commit costs with one client, at most."""
AT_ONCE = 50
"""Clients that subscribe at a time."""
SETTLING = 2.0
"""Seconds in which their cursors are stored, before anything counts."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what can be chosen."""
    add_choices(parser, CASES, repeats=3)
    parser.add_argument("--source", choices=SOURCES, default="mariadb118")
    parser.add_argument("--commits", type=int, default=2000, help="that count (%(default)s)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> dict[str, object]:
    """Measure the cases in turn, each run with a new server and new clients."""
    names = list(chosen(arguments))
    turns = len(names) * arguments.repeats
    progress = Progress("waiting", turns, turns * 20)
    runs: dict[str, list[Run]] = {name: [] for name in names}
    with source(arguments.source) as server:
        version = version_of(server)
        server.query(f"CREATE DATABASE {SCHEMA}")
        for table in (WRITTEN, READY):
            server.query(f"CREATE TABLE {table} (id BIGINT PRIMARY KEY AUTO_INCREMENT)")
        for _ in range(arguments.repeats):
            for name in names:
                used = measure(name, server, arguments.commits)
                runs[name].append(used)
                progress.done(f"{name}: {cost(used):.0f} µs a commit")
    anchor = runs.get(ANCHOR, [])
    cases = [summary(name, runs[name], anchor if name != ANCHOR else []) for name in names]
    return {"versions": {arguments.source: version}, "cases": cases}


def cost(used: Run) -> float:
    """Return the server's CPU for a commit, in µs."""
    return used.cpu_per_million()["server"]


def summary(name: str, runs: list[Run], anchor: list[Run]) -> Case:
    """Sum up a case: medians."""
    costs = [cost(one) for one in runs]
    ours = statistics.median(costs)
    beside = statistics.median(map(cost, anchor)) if anchor else None
    return {
        "case": name,
        "unit": "µs/commit",
        "ours": round(ours),
        "anchor_name": ANCHOR if beside else None,
        "anchor": beside and round(beside),
        "ratio": beside and round(ours / beside, 3),
        "goal": round(GOAL * beside) if beside else None,
        "spread": [round(min(costs)), round(max(costs))],
        "cpu_s_per_mrow": cpu(runs),
        "peak_mb": peaks(runs),
        "rows": runs[0].rows,
        "seconds": round(statistics.median(one.seconds for one in runs), 1),
        "repeats": [round(one) for one in costs],
    }


def measure(name: str, server: Server, commits: int) -> Run:
    """Let clients wait while rows are committed that none of them wants."""
    kind, _, count = name.partition("-")
    lines = lines_for(f"{server.host}:{server.port}", server.user, server.password)
    others = [f"{SCHEMA}\\.other{number if kind == 'filtered' else ''}" for number in range(int(count))]
    with started({DESTINATION: lines}) as sluice:
        return asyncio.run(wait([WRITTEN, *others], server, sluice, commits))


async def wait(tables: list[str], server: Server, sluice: Sluice, commits: int) -> Run:
    """Open a stream for each table, and count while rows are committed that the first one gets."""
    async with contextlib.AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(AsyncClient(sluice.url, DESTINATION, number))
            for number in range(1, 1 + len(tables))
        ]
        for first in range(0, len(clients), AT_ONCE):
            some = range(first, min(first + AT_ONCE, len(clients)))
            await asyncio.gather(*(clients[it].subscribe(f"{tables[it]},{READY}", "latest") for it in some))
        server.query(f"INSERT INTO {READY} VALUES (NULL)")
        streams = [client.stream() for client in clients]
        await asyncio.gather(*(anext(stream) for stream in streams))
        taking, *others = streams
        waiting = [asyncio.create_task(end(stream)) for stream in others]
        await asyncio.sleep(SETTLING)
        meter, begin = Meter(server=sluice.pid), time.perf_counter()
        with server.connect() as connection, connection.cursor() as cursor:
            for _ in range(commits):
                await asyncio.to_thread(cursor.execute, f"INSERT INTO {WRITTEN} VALUES (NULL)")
                await anext(taking)
        used = Run(commits, time.perf_counter() - begin, meter.cpu(), meter.peaks())
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        await taking.aclose()
    return used


async def end(stream: AsyncGenerator[Batch, None]) -> None:
    """Wait on a stream, which brings nothing more. Raises SystemExit when it does."""
    async for batch in stream:
        raise SystemExit(f"a client that waits for another table was given {batch.entries} entries")
