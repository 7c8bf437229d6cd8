"""A consumer that processes changes in parallel is killed, or its server: each change is processed, in order by key."""

import asyncio
import math
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from sluice.client_sdk import AsyncClusterClient, Change, Client, ClusterClient, Limits, Row
from sluice.protocol.errors import ConnectionLostError
from sluice.protocol.position import Position
from tests.conftest import Database
from tests.faults.harness import Sluice
from tests.faults.test_ha import NAME, Pair
from tests.servers import Server, ZooKeeper
from tests.waiting import eventually

KEYS, CHANGES = 8, 600
CONSUMER = """
import os, signal, sys, time
from sluice.client_sdk import Client, Limits, Row

url, file = sys.argv[1:]
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
done = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

def process(change):
    if isinstance(change, Row):
        time.sleep(0.005)
        place = f"{change.change.logfile_name} {change.change.logfile_offset}"
        os.write(done, f"{change.key['id']} {change.after['n']} {place}\\n".encode())

with Client(url, "shop") as client:
    client.process(process, workers=4, limits=Limits(max_entries=20))
"""

Line = tuple[int, int, tuple[str, int]]


@contextmanager
def consuming(sluice: Sluice, file: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Run the consumer in a process of its own."""
    with subprocess.Popen([sys.executable, "-c", CONSUMER, sluice.url, file]) as process:
        try:
            yield process
        finally:
            process.kill()


def lines(file: Path) -> list[Line]:
    """What was processed: the key, its number, the place."""
    words = [line.split() for line in file.read_text().splitlines()]
    return [(int(key), int(number), (name, int(offset))) for key, number, name, offset in words]


def acked(client: Client) -> tuple[str, int]:
    place = Position.parse(client.status()["acked"])
    return place.file, place.begin


def test_a_consumer_that_is_killed_repeats_what_was_not_acked_and_nothing_else(
    sluice: Sluice, mariadb118: Server, database: Database, tmp_path: Path
) -> None:
    schema = database(mariadb118)
    mariadb118.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, n INT)")
    sluice.add("shop", mariadb118, canal__instance__filter__regex=rf"{schema}\\..*")
    wanted = {(number % KEYS, 1 + number // KEYS) for number in range(CHANGES)}
    lives: list[list[Line]] = []
    with sluice.reading(), sluice.client() as client:
        client.subscribe()
        mariadb118.script(
            "".join(f"INSERT INTO t VALUES ({key}, 0);\n" for key in range(KEYS))
            + "".join(f"UPDATE t SET n = n + 1 WHERE id = {number % KEYS};\n" for number in range(CHANGES)),
            database=schema,
        )
        for end in (signal.SIGKILL, signal.SIGTERM, None):
            file = tmp_path / f"life {len(lives)}"
            before = acked(client)
            with consuming(sluice, file) as process:
                eventually(file.exists)
                enough = 100 if end is not None else math.inf
                eventually(
                    lambda file=file, enough=enough: (  # type: ignore[misc]
                        len(lines(file)) >= enough or client.status()["lag"]["rows"] == 0
                    ),
                    client.status,
                )
                if end is not None:
                    process.send_signal(end)
                    assert process.wait(60) == (-end if end == signal.SIGKILL else 0)
            lives.append(lines(file))
            assert all(place >= before for *_, place in lives[-1])
    for life in lives:
        for key in range(KEYS):
            numbers = [number for its, number, _ in life if its == key]
            assert numbers == [it + numbers[0] for it in range(len(numbers))]
    assert {(key, number) for life in lives for key, number, _ in life if number} == wanted


class Recorder:
    """A function that processes rows, and sees to it that no key is processed twice at a time."""

    def __init__(self) -> None:
        self.running: set[int] = set()
        self.done: list[int] = []
        self.lock = threading.Lock()

    def __call__(self, change: Row | Change) -> None:
        if not isinstance(change, Row):
            return
        number = change.key["id"]
        with self.lock:
            assert number not in self.running
            self.running.add(number)
        time.sleep(0.005)
        with self.lock:
            self.running.discard(number)
            self.done.append(number)


@pytest.mark.extended
@pytest.mark.parametrize("kind", [ClusterClient, AsyncClusterClient])
def test_over_a_failover_each_change_is_processed_and_none_beside_its_repetition(
    tmp_path: Path, own_zookeeper: ZooKeeper, mariadb118: Server, database: Database, kind: Any
) -> None:
    pair = Pair(tmp_path, own_zookeeper.hosts, mariadb118, database(mariadb118))
    recorder = Recorder()
    with ExitStack() as stack, ThreadPoolExecutor() as pool:
        for server in pair.servers:
            stack.callback(server.__exit__)
        list(pool.map(Sluice.start, pair.servers))
        first = pair.active()
        first.client().subscribe()
        settings: dict[str, Any] = {
            "zookeeper": own_zookeeper.hosts,
            "destination": NAME,
            "limits": Limits(max_entries=10),
        }
        ends = threading.Event()
        running = pool.submit(process, kind, recorder, ends, **settings)
        stack.callback(ends.set)
        pair.insert(*range(150))
        eventually(lambda: len(recorder.done) > 50)
        first.kill()
        second = pair.active()
        pair.insert(*range(150, 300))
        eventually(lambda: set(recorder.done) >= set(range(300)), lambda: (len(set(recorder.done)), running))
        status = second.client().status
        eventually(lambda: status()["lag"]["rows"] == 0 and not status()["marks"], status)
        ends.set()
        with suppress(ConnectionLostError):
            running.result()
    assert set(recorder.done) == set(range(300))


def process(kind: Any, recorder: Recorder, ends: threading.Event, *, limits: Limits, **settings: Any) -> None:
    """Process until the end is wanted."""
    if kind is ClusterClient:
        with ClusterClient(**settings) as threaded:

            def close() -> None:
                ends.wait()
                threaded.close()

            threading.Thread(target=close).start()
            threaded.process(recorder, workers=4, limits=limits)

    async def function(change: Row | Change) -> None:
        await asyncio.to_thread(recorder, change)

    async def run() -> None:
        async with AsyncClusterClient(**settings) as client:
            running = asyncio.ensure_future(client.process(function, workers=4, limits=limits))
            await asyncio.wait(
                (running, asyncio.ensure_future(asyncio.to_thread(ends.wait))), return_when=asyncio.FIRST_COMPLETED
            )
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    asyncio.run(run())
