"""Acks a second and their latency, of several clients at once, by where cursors are kept and what an ack waits for."""

import argparse
import asyncio
import contextlib
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.measuring import Case, Progress, Run, add_choices, chosen, cpu, peaks
from bench.pace import in_ms
from bench.processes import Meter
from bench.sources import SOURCES, source, version_of
from bench.workloads import SCHEMA
from sluice.client_sdk import AsyncClient
from sluice.client_sdk.calls import Limits
from tests.faults.harness import Sluice
from tests.servers import Server, ZooKeeper

DESTINATION = "bench"
CASES = {
    "zookeeper": ("zookeeper", False),
    "period": ("period", False),
    "file": ("file", False),
    "file-durable": ("file", True),
}
"""Where cursors are kept, and whether acks ask to be durable; with `zookeeper` they always are."""
ANCHOR = {"zookeeper": "period", "file-durable": "file"}
"""Beside what a case is put: the same place without waiting for it."""


@dataclass(frozen=True, slots=True)
class Acks:
    """One run."""

    used: Run
    latency: dict[str, float]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what can be chosen."""
    add_choices(parser, CASES, repeats=3)
    parser.add_argument("--source", choices=SOURCES, default="mariadb118")
    parser.add_argument("--clients", type=int, default=8, help="that ack at once (%(default)s)")
    parser.add_argument("--acks", type=int, default=1000, help="of each client (%(default)s)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> dict[str, object]:
    """Measure the cases in turn, each run with a new server and new clients."""
    names = list(chosen(arguments))
    progress = Progress("acks", len(names) * arguments.repeats, len(names) * arguments.repeats * 20)
    runs: dict[str, list[Acks]] = {name: [] for name in names}
    with source(arguments.source) as server, ZooKeeper() as zookeeper:
        server.query(f"CREATE DATABASE {SCHEMA}")
        version = version_of(server)
        for number in range(arguments.repeats):
            for name in names:
                acks = measure(name, f"{zookeeper.hosts}/{name}{number}", server, arguments.clients, arguments.acks)
                runs[name].append(acks)
                progress.done(f"{name}: {acks.used.rate:,.0f} acks/s, p99 {acks.latency['p99_ms']} ms")
    return {
        "versions": {arguments.source: version},
        "cases": [summary(name, runs[name], runs.get(ANCHOR.get(name, ""), [])) for name in names],
    }


def summary(name: str, runs: list[Acks], anchor: list[Acks]) -> Case:
    """Sum up a case: medians, and the greatest latency of all."""
    rates = [one.used.rate for one in runs]
    beside = statistics.median(one.used.rate for one in anchor) if anchor else None
    return {
        "case": name,
        "unit": "acks/s",
        "ours": round(statistics.median(rates)),
        "anchor_name": ANCHOR[name] if anchor else None,
        "anchor": beside and round(beside),
        "ratio": beside and round(statistics.median(rates) / beside, 3),
        "spread": [round(min(rates)), round(max(rates))],
        "ack_p50_ms": statistics.median(one.latency["p50_ms"] for one in runs),
        "ack_p99_ms": statistics.median(one.latency["p99_ms"] for one in runs),
        "ack_max_ms": max(one.latency["max_ms"] for one in runs),
        "cpu_s_per_mrow": cpu([one.used for one in runs]),
        "peak_mb": peaks([one.used for one in runs]),
        "repeats": [round(rate) for rate in rates],
    }


def measure(name: str, hosts: str, server: Server, clients: int, acks: int) -> Acks:
    """Let clients ack, each one change after the other."""
    with serving(name, hosts, server) as sluice:
        sluice.wait_running()
        server.query(f"CREATE OR REPLACE TABLE {SCHEMA}.acked (id BIGINT PRIMARY KEY)")
        return asyncio.run(ack(sluice, server, clients, acks, durable=CASES[name][1]))


async def ack(sluice: Sluice, server: Server, clients: int, acks: int, *, durable: bool) -> Acks:
    """Get as many batches as are to be acked, of one entry each; then ack, and count."""
    taken: list[float] = []

    async def take(client: AsyncClient) -> list[int]:
        batches: list[int] = []
        while len(batches) < acks:
            batch = await client.get_without_ack(10.0, Limits(max_entries=1))
            if batch:
                batches.append(batch.batch_id)
        return batches

    async def give(client: AsyncClient, batches: list[int]) -> None:
        for batch in batches:
            begin = time.perf_counter()
            await client.ack(batch, durable=durable)
            taken.append(time.perf_counter() - begin)

    async with contextlib.AsyncExitStack() as stack:
        made = [await stack.enter_async_context(AsyncClient(sluice.url, DESTINATION, 1 + it)) for it in range(clients)]
        for client in made:
            await client.subscribe(start="latest")
        await asyncio.to_thread(insert, server, acks)
        batches = await asyncio.gather(*(take(client) for client in made))
        meter = Meter(server=sluice.process.pid)
        begin = time.perf_counter()
        await asyncio.gather(*(give(client, its) for client, its in zip(made, batches, strict=True)))
        seconds = time.perf_counter() - begin
    return Acks(Run(clients * acks, seconds, meter.cpu(), meter.peaks()), in_ms(taken))


def insert(server: Server, rows: int) -> None:
    """Insert rows, each of which is an entry of its own."""
    with server.connect(autocommit=False) as connection, connection.cursor() as cursor:
        for number in range(rows):
            cursor.execute(f"INSERT INTO {SCHEMA}.acked VALUES ({number})")
        connection.commit()


@contextlib.contextmanager
def serving(name: str, hosts: str, server: Server) -> Iterator[Sluice]:
    """Start a server that keeps its cursors where the case says."""
    meta = CASES[name][0]
    with tempfile.TemporaryDirectory(prefix="sluice-") as folder:
        sluice = Sluice(Path(folder))
        sluice.settings["sluice__instance__meta"] = meta
        if meta != "file":
            sluice.settings["canal__zkServers"] = hosts
        sluice.add(DESTINATION, server, canal__instance__filter__regex=f"{SCHEMA}\\\\..*")
        with sluice:
            yield sluice
