"""Changes that a function processes in parallel, by `process` of the SDK, beside one worker. The function waits 5 ms.

Each change is a row of its own transaction, with a key of its own. The clock runs from the first call of the function
to the end of the last.
"""

import argparse
import asyncio
import contextlib
import itertools
import os
import time
from collections.abc import Callable
from functools import partial

from bench.measuring import Case, Progress, Run, add_choices, case, chosen, take_turns
from bench.processes import Meter
from bench.sources import SOURCES, source, version_of
from bench.workloads import SCHEMA
from scripts.serving import Sluice, lines_for, started
from sluice.client_sdk import AsyncClient, Change, Client, Row
from sluice.protocol.errors import ConnectionLostError
from tests.servers import Server

DESTINATION = "bench"
WAIT = 0.005
"""Seconds that the function waits."""
WORKERS = 8
GOAL = 0.9
"""Of what as many workers as there are would do if each was as fast as the one."""


class Clock:
    """Counts the rows that are begun and ended."""

    def __init__(self, rows: int) -> None:
        """``rows``: as many as there are."""
        self._rows = rows
        self._begun, self._ended = itertools.count(), itertools.count(1)
        self.begin = self.end = 0.0

    def started(self) -> None:
        """Hear that a row is begun."""
        if not next(self._begun):
            self.begin = time.perf_counter()

    def ended(self) -> bool:
        """Hear that a row is ended; whether it was the last."""
        if next(self._ended) < self._rows:
            return False
        self.end = time.perf_counter()
        return True


def in_threads(sluice: Sluice, client_id: int, workers: int, clock: Clock) -> None:
    """Process all rows by the client without asyncio."""
    with Client(sluice.url, DESTINATION, client_id) as client:

        def function(change: Row | Change) -> None:
            if isinstance(change, Row):
                clock.started()
                time.sleep(WAIT)
                if clock.ended():
                    client.close()

        with contextlib.suppress(ConnectionLostError):
            client.process(function, workers=workers)


def in_tasks(sluice: Sluice, client_id: int, workers: int, clock: Clock) -> None:
    """Process all rows by the client for asyncio."""

    async def run() -> None:
        async with AsyncClient(sluice.url, DESTINATION, client_id) as client:
            is_done = asyncio.Event()

            async def function(change: Row | Change) -> None:
                if isinstance(change, Row):
                    clock.started()
                    await asyncio.sleep(WAIT)
                    if clock.ended():
                        is_done.set()

            running = asyncio.ensure_future(client.process(function, workers=workers))
            ended = asyncio.ensure_future(is_done.wait())
            await asyncio.wait((running, ended), return_when=asyncio.FIRST_COMPLETED)
            running.cancel()
            ended.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running

    asyncio.run(run())


WAYS: dict[str, Callable[[Sluice, int, int, Clock], None]] = {"threads": in_threads, "tasks": in_tasks}
CASES = tuple(f"{way}-{WORKERS}" for way in WAYS)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what can be chosen."""
    add_choices(parser, CASES, repeats=3)
    parser.add_argument("--source", choices=SOURCES, default="mariadb118")
    parser.add_argument("--rows", type=int, default=2000, help="that are processed (%(default)s)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> dict[str, object]:
    """Measure the cases; each run is a client of its own, which reads the same rows."""
    names = list(chosen(arguments))
    turns = 2 * len(names) * arguments.repeats
    progress = Progress("process", turns, turns * arguments.rows * WAIT * (1 + 1 / WORKERS) / 2)
    client_ids = itertools.count(1)
    cases = []
    with source(arguments.source) as server:
        version = version_of(server)
        server.query(f"CREATE DATABASE {SCHEMA}")
        server.query(f"CREATE TABLE {SCHEMA}.processed (id BIGINT PRIMARY KEY)")
        lines = lines_for(f"{server.host}:{server.port}", server.user, server.password)
        with started({DESTINATION: lines}) as sluice:
            for client_id in range(1, turns + 1):  # before the rows, which the ring keeps for them
                with Client(sluice.url, DESTINATION, client_id) as client:
                    client.subscribe()
            insert(server, arguments.rows)
            for name in names:
                way = name.partition("-")[0]
                contenders = {
                    f"{way}-{workers}": partial(measure, way, sluice, client_ids, workers, arguments.rows)
                    for workers in (WORKERS, 1)
                }
                runs = take_turns(name, contenders, arguments.repeats, progress)
                cases.append(summary(name, f"{way}-1", runs))
    return {"versions": {arguments.source: version}, "cases": cases}


def summary(name: str, anchor: str, runs: dict[str, list[Run]]) -> Case:
    """Sum up a case, with what it has to reach."""
    found = case(name, runs[name], anchor, runs[anchor])
    return found | {"goal": round(GOAL * WORKERS * found["anchor"])}


def measure(way: str, sluice: Sluice, client_ids: "itertools.count[int]", workers: int, rows: int) -> Run:
    """Let a new client process all rows."""
    clock, meter = Clock(rows), Meter(server=sluice.pid, client=os.getpid())
    WAYS[way](sluice, next(client_ids), workers, clock)
    return Run(rows, clock.end - clock.begin, meter.cpu(), meter.peaks())


def insert(server: Server, rows: int) -> None:
    """Insert rows, each in a transaction of its own."""
    with server.connect(autocommit=True) as connection, connection.cursor() as cursor:
        for number in range(rows):
            cursor.execute(f"INSERT INTO {SCHEMA}.processed VALUES ({number})")
