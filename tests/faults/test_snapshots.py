"""A snapshot while server, consumer and source are killed: the copy becomes the table, and no row goes back in time."""

import contextlib
import random
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import pymysql
import pytest
import urllib3

from tests.conftest import Database, each
from tests.faults.harness import Sluice
from tests.servers import CI, Server, ZooKeeper
from tests.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]
ROWS = 12_000
RATE = 1500
"""Rows a second, so that the snapshot takes a while."""
PACE = 0.004
"""Seconds between two changes."""
SECONDS = 120.0


class Writer(threading.Thread):
    """Changes rows of `items` in all ways, keys that come back among them; each change has a higher version."""

    def __init__(self, source: Server, schema: str, rows: int) -> None:
        super().__init__(daemon=True)
        self.source, self.table, self.rows = source, f"{schema}.items", rows
        self.version = self.changes = 0
        self.pace = PACE
        self.stopping = threading.Event()
        source.query(f"CREATE TABLE {self.table} (id INT PRIMARY KEY, version INT NOT NULL, v VARCHAR(200))")
        source.query(f"CREATE TABLE {schema}.finished (id INT PRIMARY KEY)")
        with source.connect() as connection, connection.cursor() as cursor:
            for first in range(0, rows, 1000):
                values = [(2 * number, 0, "x" * 100) for number in range(first, first + 1000)]
                cursor.executemany(f"INSERT INTO {self.table} VALUES (%s, %s, %s)", values)

    def run(self) -> None:
        chance = random.Random(5)
        while not self.stopping.is_set():
            with contextlib.suppress(pymysql.MySQLError), self.source.connect() as connection:
                while not self.stopping.wait(self.pace):
                    self._change(connection, chance)
            self.stopping.wait(0.1)

    def _change(
        self, connection: "pymysql.connections.Connection[pymysql.cursors.Cursor]", chance: random.Random
    ) -> None:
        self.version += 1
        key, other, version = chance.randrange(2 * self.rows), chance.randrange(2 * self.rows), self.version
        with connection.cursor() as cursor:
            match chance.randrange(5):
                case 0:
                    cursor.execute(f"REPLACE INTO {self.table} VALUES (%s, %s, 'new')", (key, version))
                case 1:
                    cursor.execute(f"DELETE FROM {self.table} WHERE id = %s", (key,))
                case 2:
                    sql = f"UPDATE IGNORE {self.table} SET id = %s, version = %s WHERE id = %s"
                    cursor.execute(sql, (other, version, key))
                case _:
                    sql = f"UPDATE {self.table} SET version = %s WHERE id BETWEEN %s AND %s"
                    cursor.execute(sql, (version, key, key + chance.choice((0, 3, 50))))
            self.changes += cursor.rowcount


class Consumer:
    """The process that copies the tables."""

    def __init__(self, folder: Path, wanted: str, rate: int, *urls: str) -> None:
        self.folder = folder
        self._command = [sys.executable, "-m", "tests.faults.snapshot_client", str(folder), wanted, str(rate), *urls]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (self.folder / "consumer.log").open("ab") as log:
            self._process = subprocess.Popen(self._command, cwd=ROOT, stdout=log, stderr=log)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def crash(self) -> None:
        """kill -9, and start again."""
        self.kill()
        self.start()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def rows(self, table: str) -> list[tuple[object, ...]]:
        """What the copy has."""
        with contextlib.closing(sqlite3.connect(self.folder / "copy.db", timeout=30)) as connection:
            try:
                return connection.execute(f"SELECT * FROM {table} ORDER BY id").fetchall()
            except sqlite3.OperationalError:  # it has no tables yet
                return []

    def check_journal(self) -> int:
        """Check that nothing but changes that came again was older than what was given before; count the rows read."""
        newest: dict[int, int] = {}
        seen: set[tuple[str, int, int]] = set()
        read = 0
        for line in (self.folder / "journal").read_text().splitlines():
            kind, *numbers = line.removesuffix(".").split()[:3] or ("",)
            if not line.endswith(".") or len(numbers) != 2:
                continue  # a kill has cut it off, before anything was done with it
            key, version = map(int, numbers)
            known = newest.get(key, -1)
            if kind == "READ":
                read += 1
                assert version >= known, f"row {key} was read as of {version}, and had been given as of {known}"
            elif (kind, key, version) not in seen:
                assert version >= known, f"row {key} was changed to {version}, and had been given as of {known}"
                seen.add((kind, key, version))
            newest[key] = max(known, version + (kind == "GONE"))  # what comes back is newer
        return read


class Course:
    """A snapshot of a destination that one of some servers serves, with its source and its consumer."""

    def __init__(self, folder: Path, source: Server, schema: str, rows: int, rate: int, servers: list[Sluice]) -> None:
        self.source, self.schema, self.servers = source, schema, servers
        self.writer = Writer(source, schema, rows)
        self.consumer = Consumer(folder, rf"{schema}\..*", rate, *(server.url for server in servers))
        for server in servers:
            server.add("shop", source, canal__instance__filter__regex=rf"{schema}\\..*")
        self._done, self._is_done = 0, False
        self.seconds = 0.0
        """How long the rows were changed."""

    def look(self) -> None:
        """Ask a server that answers how far the snapshot is."""
        for server in self.servers:
            with contextlib.suppress(AssertionError, urllib3.exceptions.HTTPError):
                [found] = server.call("GET", "/shop/clients/1001/snapshots")
                self._done, self._is_done = found["rows"], found["state"] == "done"

    def has_come_to(self, rows: int) -> bool:
        """Whether at least `rows` rows are acked."""
        self.look()
        return self._done >= rows or self._is_done

    def is_done(self) -> bool:
        """Whether all are."""
        self.look()
        return self._is_done

    def crash_source(self) -> None:
        """kill -9, and start again."""
        self.source.kill()
        self.source.start()

    def crash_server(self) -> None:
        """kill -9 of the one that serves, and start again."""
        found: list[Sluice] = []

        def serves() -> bool:
            found[:] = [it for it in self.servers if self._state(it) == "running"]
            return bool(found)

        eventually(serves, self.said, SECONDS)
        found[0].kill()
        found[0].start()

    def _state(self, server: Sluice) -> str:
        try:
            return str(server.destination()["state"])
        except urllib3.exceptions.HTTPError:
            return "away"

    def said(self) -> str:
        """Return what there is to say when it does not go on."""
        logs = [text for server in self.servers for text in server.log]
        return "".join([*logs, (self.consumer.folder / "consumer.log").read_text(), str(self._done)])

    def run(self, kills: Sequence[Callable[[], None]]) -> int:
        """Kill while the snapshot goes on; then check the copy and the journal. Returns how many rows were read."""
        with self.consumer:
            self.writer.start()
            begin = time.monotonic()
            try:
                for number, kill in enumerate(kills, 1):
                    goal = self.writer.rows * number // (len(kills) + 2)
                    eventually(lambda: self.has_come_to(goal), self.said, SECONDS)  # noqa: B023
                    assert not self._is_done, "that kill came too late"
                    kill()
                eventually(self.is_done, self.said, SECONDS)
            finally:
                self.writer.stopping.set()
                self.writer.join()
            self.seconds = time.monotonic() - begin
            self.source.query(f"INSERT INTO {self.schema}.finished VALUES (1)")
            eventually(lambda: self.consumer.rows("finished"), self.said, SECONDS)
        rows = self.source.query(f"SELECT * FROM {self.schema}.items ORDER BY id")
        assert self.consumer.rows("items") == rows
        return self.consumer.check_journal()


@pytest.fixture(params=each("mariadb118"))
def mortal(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A source of the test's own."""
    with Server(request.param) as server:
        yield server


def test_server_consumer_and_source_are_killed_while_tables_are_copied(
    sluice: Sluice, tmp_path: Path, mortal: Server
) -> None:
    mortal.query("CREATE DATABASE shop")
    course = Course(tmp_path, mortal, "shop", ROWS, RATE, [sluice])
    with sluice:
        read = course.run([course.crash_server, course.consumer.crash, course.crash_source])
    assert read > course.writer.rows / 2, "the rest came by changes"


@pytest.mark.extended
def test_another_server_takes_over_while_tables_are_copied(
    tmp_path: Path, own_zookeeper: ZooKeeper, mariadb118: Server, database: Database
) -> None:
    servers = [Sluice(tmp_path / name) for name in "ab"]
    for server in servers:
        server.settings |= {"canal__zkServers": own_zookeeper.hosts, "sluice__ha__sessionTimeout": 2}
    course = Course(tmp_path, mariadb118, database(mariadb118), ROWS, RATE, servers)
    with ExitStack() as stack:
        for server in servers:
            stack.enter_context(server)
        read = course.run([course.crash_server])
    assert read > course.writer.rows / 2, "the rest came by changes"


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_fifty_kills_while_tables_are_copied(sluice: Sluice, tmp_path: Path, mortal: Server) -> None:
    mortal.query("CREATE DATABASE shop")
    course = Course(tmp_path, mortal, "shop", 25 * ROWS, RATE, [sluice])
    chance = random.Random(18)
    kinds = [course.crash_server, course.consumer.crash, course.crash_source]
    with sluice:
        read = course.run([chance.choice(kinds) for _ in range(50)])
    assert read > course.writer.rows / 2, "the rest came by changes"


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("mortal", CI, indirect=True)
def test_five_million_rows_are_copied_under_two_thousand_changes_a_second(
    sluice: Sluice, tmp_path: Path, mortal: Server, record_property: Callable[[str, object], None]
) -> None:
    mortal.query("CREATE DATABASE shop")
    course = Course(tmp_path, mortal, "shop", 5_000_000, 0, [sluice])
    course.writer.pace = 0.001
    with sluice:
        read = course.run([course.crash_server, course.consumer.crash, course.crash_source])
    assert read > course.writer.rows / 2, "the rest came by changes"
    record_property("changes per second", course.writer.changes / course.seconds)
