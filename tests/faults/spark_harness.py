"""What the tests that kill Spark share: a driver as a process, and a writer of all kinds of transactions."""

import contextlib
import json
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import unquote, urlsplit

import pyarrow.parquet as pq

from tests.faults.harness import SECONDS
from tests.faults.spark_driver import Order
from tests.servers import Server
from tests.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]
START = 300.0
"""Seconds that a driver may take to get something done, on a machine that is busy."""
PACE = 0.1
"""Seconds between two transactions."""


def older_spark(version: str) -> str:
    """Return the Python that has another version of PySpark, which is fetched once."""
    subprocess.run([ROOT / "scripts/setup.sh", "spark", version], check=True)
    return str(ROOT / f".venv/spark-{version}/bin/python")


class Process(NamedTuple):
    """A line of the process table."""

    pid: int
    parent: int
    session: int
    command: str


def processes() -> Iterator[Process]:
    """Return what runs now."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            state, parent, _, session = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            if state != "Z":
                yield Process(int(folder.name), int(parent), int(session), command)


def descendants(ancestor: int) -> list[Process]:
    """Return the processes that a process has started, and those that these have started, and so on."""
    found, parents = list(processes()), {ancestor}
    while more := {it.pid for it in found if it.parent in parents} - parents:
        parents |= more
    return [it for it in found if it.pid in parents - {ancestor}]


class Driver:
    """A driver of Spark in a session of its own, which is started again and again with the same order."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.log = Path(order.folder) / "log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def process(self) -> "subprocess.Popen[bytes]":
        assert self._process is not None
        return self._process

    def start(self) -> None:
        """Start it and wait until each query has finished a micro-batch."""
        before = {query: self.order.done(query) for query in self.order.queries}
        while True:
            with self.log.open("wb") as log:
                self._process = subprocess.Popen(self.order.command(), stdout=log, stderr=log, start_new_session=True)
            eventually(
                lambda: (
                    self.process.poll() is not None
                    or all(self.order.done(query) > done for query, done in before.items())
                ),
                self.tail,
                START,
            )
            if self.process.poll() is None:
                return
            # Spark gives a process that it starts 10 seconds: too few on a machine that is very busy.
            assert "Python worker failed to connect back" in self.log.read_text(errors="replace"), self.tail()
            self.wait_gone()

    def wait(self, condition: Callable[[], object], what: str, seconds: float = START) -> None:
        """Wait for something that the driver has to live for."""
        eventually(lambda: self.process.poll() is not None or condition(), lambda: f"{what}: {self.tail()}", seconds)
        assert self.process.poll() is None, self.tail()

    def tail(self) -> str:
        """Return the end of the driver's log."""
        return self.log.read_text(errors="replace")[-6000:]

    def processes(self) -> list[Process]:
        """Return what lives of the driver: itself, its JVM, the processes of the JVM."""
        return [it for it in processes() if it.session == self.process.pid]

    def workers(self) -> list[Process]:
        """Return the Python workers of the executor."""
        found = self.processes()
        daemons = {it.pid for it in found if "pyspark.daemon" in it.command}
        return [it for it in found if it.parent in daemons]

    def readers(self) -> list[Process]:
        """Return the processes that control the sources of the queries."""
        return [it for it in self.processes() if "python_streaming_source_runner" in it.command]

    def kill(self) -> None:
        """kill -9 of the process group; the workers, which have one of their own, have to follow."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.wait_gone()

    def stop(self) -> None:
        """SIGTERM, and wait for an end in good order."""
        self.process.terminate()
        assert self.process.wait(SECONDS) == 0, self.tail()
        self.wait_gone()

    def wait_gone(self) -> None:
        """Wait until nothing is left."""
        self.process.wait(SECONDS)
        eventually(lambda: not self.processes(), lambda: f"still there: {self.processes()}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            for process in self.processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
            self.wait_gone()


# --- a writer


Image = dict[str, str | None]
Texts = tuple[str | None, ...]


class Change(NamedTuple):
    """A change of a row, as the envelope has it: an update of a key is a deletion and an insertion."""

    table: str
    op: str
    key: tuple[str, ...]
    before: Image | None
    after: Image | None


TABLES = """
    CREATE TABLE goods (id INT PRIMARY KEY, v VARCHAR(2000), n INT) CHARSET utf8mb4;
    CREATE TABLE names (id INT PRIMARY KEY, name VARCHAR(40) UNIQUE, n INT) CHARSET utf8mb4;
    CREATE TABLE pairs (a INT, b VARCHAR(20), n INT, PRIMARY KEY (a, b)) CHARSET utf8mb4;
"""
KEYS: Mapping[str, tuple[str, ...]] = {"goods": ("id",), "names": ("id",), "pairs": ("a", "b")}


class Traffic(threading.Thread):
    """Transactions of many sizes, one after the other as long as they are allowed, and what they changed.

    Rows are inserted, updated by ranges, deleted; keys change; unique values go from row to row, and are swapped; other
    tables are made, altered and dropped meanwhile; some transactions are rolled back.
    """

    SIZES = (1, 1, 1, 1, 2, 3, 5, 20, 60)
    LARGE = 1500  # rows of each 50th transaction

    def __init__(self, source: Server, schema: str, seed: int) -> None:
        super().__init__(daemon=True, name="traffic")
        self.source = source
        self.schema = schema
        self.changes: list[Change] = []
        self.failure: BaseException | None = None
        self._chance = random.Random(seed)
        self._tables: dict[str, dict[tuple[str, ...], Image]] = {table: {} for table in KEYS}
        self._next = 0
        self._number = 0
        self._last = 0.0
        self._going = threading.Event()
        self._going.set()
        source.script(TABLES, database=schema)

    def allow(self, transactions: float) -> None:
        """Let it make this number of transactions from now on."""
        self._last = self._number + transactions

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._going.clear()
        self.join(SECONDS)

    def finish(self) -> None:
        """End it; it must not have failed."""
        self.__exit__()
        if self.failure is not None:
            raise self.failure

    def run(self) -> None:
        try:
            with self.source.connect(database=self.schema, autocommit=False) as connection:
                while self._going.is_set():
                    if self._number < self._last:
                        self._number += 1
                        self._transaction(connection, self._number)
                    time.sleep(PACE)
        except Exception as error:  # noqa: BLE001  the test raises it
            self.failure = error

    def _transaction(self, connection: Any, number: int) -> None:
        with connection.cursor() as cursor:
            if number % 25 == 0:
                self._alter_others(cursor, number // 25)
            unit = Unit(cursor, self)
            if number % 50 == 0:
                unit.insert("goods", self.LARGE)
            for _ in range(self._chance.choice((1, 1, 2, 4))):
                unit.act()
        if self._chance.random() < 0.05:
            connection.rollback()
        else:
            connection.commit()
            self.changes += unit.changes
            self._tables = unit.tables

    @staticmethod
    def _alter_others(cursor: Any, number: int) -> None:
        """DDL without rows, on tables that are not read."""
        name = f"other_{number // 3}"
        statements = (
            f"CREATE TABLE {name} (id INT PRIMARY KEY)",
            f"ALTER TABLE {name} ADD COLUMN v{number} INT",
            f"DROP TABLE IF EXISTS {name}",
        )
        if number >= 3:
            cursor.execute(statements[number % 3])

    def state(self) -> dict[str, list[Texts]]:
        """Return the rows that the tables have to have now."""
        return {
            table: sorted((tuple(row.values()) for row in rows.values()), key=str)
            for table, rows in self._tables.items()
        }


class Unit:
    """A transaction in work."""

    def __init__(self, cursor: Any, traffic: Traffic) -> None:
        self.cursor = cursor
        self.changes: list[Change] = []
        self.tables = {table: dict(rows) for table, rows in traffic._tables.items()}
        self._traffic = traffic
        self._chance = traffic._chance

    def act(self) -> None:
        """Do something."""
        table = self._chance.choice(tuple(KEYS))
        count = self._chance.choice(Traffic.SIZES)
        actions: list[Callable[[], None]] = [
            lambda: self.insert(table, count),
            lambda: self.insert(table, count),
            lambda: self.update(table, count),
            lambda: self.update(table, count),
            lambda: self.delete(table, count),
            lambda: self.move(table),
            self.swap_names,
            self.hand_name_over,
        ]
        self._chance.choice(actions)()

    def insert(self, table: str, count: int) -> None:
        images = [self._image(table) for _ in range(count)]
        self._insert(table, images)

    def update(self, table: str, count: int) -> None:
        """Change a value of rows, not their key."""
        keys = self._some(table, count)
        n = str(self._chance.randrange(10**6))
        for key in keys:
            self._execute(f"UPDATE {table} SET n = %s WHERE {self._where(table)}", n, *key)
            self._update(table, key, {"n": n})

    def delete(self, table: str, count: int) -> None:
        for key in self._some(table, count):
            self._delete(table, key)

    def move(self, table: str) -> None:
        """Give rows other keys; some get the key that another has just left."""
        keys = self._some(table, 2)
        place = KEYS[table][0]
        for number, key in enumerate(keys):
            new = self._number() if number == 0 or table == "pairs" else keys[0][0]
            self._execute(f"UPDATE {table} SET {place} = %s WHERE {self._where(table)}", new, *key)
            self._update(table, key, {place: new})

    def swap_names(self) -> None:
        """Let two rows have each other's unique value, by way of none."""
        keys = self._some("names", 2)
        if len(keys) == 2:
            first, second = keys
            one, two = (self.tables["names"][key]["name"] for key in keys)
            for key, name in ((first, None), (second, one), (first, two)):
                self._rename(key, name)

    def hand_name_over(self) -> None:
        """Delete a row; another, or a new one, has its unique value at once."""
        keys = self._some("names", 2)
        if keys:
            name = self.tables["names"][keys[0]]["name"]
            self._delete("names", keys[0])
            if len(keys) == 2:
                self._rename(keys[1], name)
            else:
                self._insert("names", [self._image("names") | {"name": name}])

    def _rename(self, key: tuple[str, ...], name: str | None) -> None:
        if self.tables["names"][key]["name"] != name:
            self._execute("UPDATE names SET name = %s WHERE id = %s", name, *key)
            self._update("names", key, {"name": name})

    def _image(self, table: str) -> Image:
        n = str(self._chance.randrange(10**6))
        number = self._number()
        if table == "goods":
            text = self._chance.choice((None, "", "grün ✓ 'x' \\ \n", "x" * self._chance.randrange(2000)))
            return {"id": number, "v": text, "n": n}
        if table == "names":
            return {"id": number, "name": self._chance.choice((None, f"name {number}", f"Größe {number}")), "n": n}
        return {"a": number, "b": f"b{self._chance.randrange(3)}", "n": n}

    def _number(self) -> str:
        self._traffic._next += 1
        return str(self._traffic._next)

    def _some(self, table: str, count: int) -> list[tuple[str, ...]]:
        rows = list(self.tables[table])
        return self._chance.sample(rows, min(count, len(rows)))

    def _execute(self, sql: str, *values: object) -> None:
        assert self.cursor.execute(sql, values) <= 1

    @staticmethod
    def _where(table: str) -> str:
        return " AND ".join(f"{name} = %s" for name in KEYS[table])

    def _insert(self, table: str, images: list[Image]) -> None:
        marks = ", ".join(["%s"] * len(images[0]))
        self.cursor.executemany(f"INSERT INTO {table} VALUES ({marks})", [tuple(image.values()) for image in images])
        for image in images:
            self._note(table, None, image)

    def _update(self, table: str, key: tuple[str, ...], values: Image) -> None:
        before = self.tables[table][key]
        after = before | values
        if after == before:
            return
        if all(after[name] == before[name] for name in KEYS[table]):
            self._note(table, before, after)
        else:
            self._note(table, before, None)
            self._note(table, None, after)

    def _delete(self, table: str, key: tuple[str, ...]) -> None:
        self._execute(f"DELETE FROM {table} WHERE {self._where(table)}", *key)
        self._note(table, self.tables[table][key], None)

    def _note(self, table: str, before: Image | None, after: Image | None) -> None:
        image = after if after is not None else before
        assert image is not None
        key = tuple(str(image[name]) for name in KEYS[table])
        if after is None:
            del self.tables[table][key]
        else:
            self.tables[table][key] = after
        op = "INSERT" if before is None else "DELETE" if after is None else "UPDATE"
        self.changes.append(Change(table, op, key, before, after))


# --- what came of it


def state(server: Server, schema: str) -> dict[str, list[Texts]]:
    """Return the rows that the tables have, as texts."""
    return {
        table: sorted(map(texts, server.query(f"SELECT * FROM {table}", database=schema)), key=str) for table in KEYS
    }


def texts(row: Iterable[object]) -> Texts:
    return tuple(None if value is None else str(value) for value in row)


def appended(target: Server, schema: str) -> list[Change]:
    """Return what the sink of ranges has, in its order."""
    rows = target.query("SELECT tbl, op, row_key, old, new FROM appended ORDER BY n", database=schema)
    return [
        Change(table, op, tuple(json.loads(key)), json.loads(old), json.loads(new)) for table, op, key, old, new in rows
    ]


def count_logged(order: Order) -> int:
    """Return how many changes the finished micro-batches of the change log have, by the log of its sink."""
    logs = (Path(order.folder) / "changelog" / "_spark_metadata").glob("[0-9]*")
    files = {json.loads(line)["path"] for log in logs for line in log.read_text().splitlines()[1:]}
    return sum(pq.read_metadata(unquote(urlsplit(file).path)).num_rows for file in files)


def logged(order: Order) -> list[Change]:
    """Return what the change log has, as the last driver read it, in the order of positions."""
    rows = pq.read_table(Path(order.folder) / "changelog.parquet").to_pylist(maps_as_pydicts="strict")
    rows.sort(key=lambda row: (tuple(row["_pos"].values()), row["_op"]))
    return [Change(row["_table"], row["_op"], tuple(row["_key"]), row["before"], row["after"]) for row in rows]
