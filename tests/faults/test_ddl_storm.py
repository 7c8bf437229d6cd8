"""Tables change their columns all the time while others write: a value never arrives under a wrong name unflagged."""

import contextlib
import random
import threading
from collections.abc import Iterator
from typing import Any

import pymysql
import pytest

from sluice.client_sdk import Batch
from sluice.client_sdk.calls import Limits
from tests.conftest import Database
from tests.faults.harness import SECONDS, USUAL, Sluice
from tests.servers import Server
from tests.waiting import eventually

DDLS = 120
NAMES = ("p", "q", "r", "s")
DOUBTFUL = "sluice.schema"


@pytest.fixture(scope="module", params=USUAL)
def described(request: pytest.FixtureRequest) -> Iterator[Server]:
    """MariaDB as it comes, without names of columns in its binlog, and MySQL with."""
    options = ["--binlog-row-metadata=FULL"] if request.param == "mysql97" else []
    with Server(request.param, options) as server:
        yield server


class Storm:
    """Writers that put the name of a column into each value, and one that changes the columns."""

    def __init__(self, server: Server, schema: str) -> None:
        self.server = server
        self.schema = schema
        self.written: dict[int, dict[str, str]] = {}
        """By the row's id what was inserted, as an INSERT that succeeded named its columns."""
        self.ended = threading.Event()
        self._numbers = iter(range(1, 1 << 30))
        self._lock = threading.Lock()

    def write(self, seed: int) -> None:
        chance = random.Random(seed)
        with self.server.connect(database=self.schema) as connection, connection.cursor() as cursor:
            while not self.ended.is_set():
                names = chance.sample(NAMES, chance.randrange(1, 3))
                with self._lock:
                    number = next(self._numbers)
                values = {name: f"{name}:{number}" for name in names}
                with contextlib.suppress(pymysql.err.OperationalError, pymysql.err.ProgrammingError):
                    cursor.execute(
                        f"INSERT INTO {chance.choice(('t', 'u'))} (id, {', '.join(names)})"
                        f" VALUES ({number}{', %s' * len(names)})",
                        tuple(values.values()),
                    )
                    self.written[number] = values
                    if chance.random() < 0.2:
                        cursor.execute(f"DELETE FROM t WHERE id = {number}")

    def change(self) -> None:
        chance = random.Random(1)
        try:
            with self.server.connect(database=self.schema) as connection, connection.cursor() as cursor:
                for _ in range(DDLS):
                    one, other = chance.sample(NAMES, 2)
                    table = chance.choice("tu")
                    statement = chance.choice(
                        (
                            f"ALTER TABLE {table} ADD {one} VARCHAR(40) {chance.choice(('FIRST', 'AFTER id', ''))}",
                            f"ALTER TABLE {table} DROP {one}",
                            f"ALTER TABLE {table} CHANGE {one} {other} VARCHAR(40)",
                            f"ALTER TABLE {table} RENAME COLUMN {one} TO {other}, RENAME COLUMN {other} TO {one}",
                            f"ALTER TABLE {table} MODIFY {one} TEXT FIRST",
                            "RENAME TABLE t TO w, u TO t, w TO u",
                            f"DROP TABLE {table}",
                            f"CREATE TABLE IF NOT EXISTS {table} (id INT PRIMARY KEY, {one} TEXT, {other} VARCHAR(40))",
                            f"TRUNCATE {table}",
                        )
                    )
                    with contextlib.suppress(pymysql.err.OperationalError, pymysql.err.ProgrammingError):
                        cursor.execute(statement)
                    self.ended.wait(0.02)
                    for missing in "tu":
                        cursor.execute(
                            f"CREATE TABLE IF NOT EXISTS {missing} (id INT PRIMARY KEY, p VARCHAR(40), q VARCHAR(40))"
                        )
        finally:
            self.ended.set()


def test_a_storm_of_ddl_never_stops_the_stream_nor_puts_values_under_other_names(
    sluice: Sluice, described: Server, database: Database
) -> None:
    schema = database(described)
    described.script(
        "CREATE TABLE t (id INT PRIMARY KEY, p VARCHAR(40), q VARCHAR(40));\n"
        "CREATE TABLE u (id INT PRIMARY KEY, p VARCHAR(40), q VARCHAR(40));\n"
        "CREATE TABLE finished (id INT);\n",
        database=schema,
    )
    sluice.add("shop", described, canal__instance__filter__regex=rf"{schema}\\..*")
    storm = Storm(described, schema)
    with sluice:
        sluice.wait_running()
        client = sluice.client()
        client.subscribe()
        threads = [
            threading.Thread(target=storm.change),
            *(threading.Thread(target=storm.write, args=(n,)) for n in (1, 2)),
        ]
        for thread in threads:
            thread.start()
        result = Result()
        eventually(
            lambda: storm.ended.is_set() or result.take(client.get(0.2, Limits(max_entries=100))), "the end of the DDL"
        )
        for thread in threads:
            thread.join(SECONDS)
        described.query("INSERT INTO finished VALUES (1)", database=schema)
        eventually(lambda: result.take(client.get(0.2)), sluice.destination)
        assert sluice.destination()["state"] == "running"
        quiet = iter(range(1 << 30, 1 << 31))  # rows after the storm are not in doubt any more

        def is_sure() -> bool:
            number = next(quiet)
            storm.written[number] = {}
            described.query(f"INSERT INTO t (id) VALUES ({number})", database=schema)
            return any(number in result.sure for _ in range(3) if not result.take(client.get(0.2)))

        eventually(is_sure, "rows without doubt")
    wrong = {
        number: (values, storm.written.get(number))
        for number, values in result.sure.items()
        if storm.written.get(number) != values
    }
    assert not wrong
    everything = result.sure.keys() | result.doubtful
    lost = storm.written.keys() - everything
    assert len(lost) <= result.markers, "what is not delivered has a marker in its place"
    if not described.mariadb:
        assert result.sure == storm.written


class Result:
    """The inserted rows that were delivered."""

    def __init__(self) -> None:
        self.sure: dict[int, dict[str, str]] = {}
        self.doubtful: set[int] = set()
        self.markers = 0

    def take(self, batch: Batch) -> bool:
        """Whether the end has come."""
        self.markers += len(batch.markers()) if batch else 0
        ended = False
        for change in batch.changes() if batch else ():
            if change.entry_type != "ROWDATA":
                continue
            for row in change.rows():
                ended = ended or row.table == "finished"
                if row.type != "INSERT" or row.table == "finished":
                    continue
                assert row.after is not None
                image: dict[str, Any] = dict(row.after)
                if DOUBTFUL in change.header_props:
                    self.doubtful |= {value for value in image.values() if isinstance(value, int)}
                    continue
                number = image.pop("id")
                self.sure[number] = {name: value for name, value in image.items() if value is not None}
        return ended
