"""An output to MySQL or MariaDB: the target is as the source was, each change once, while servers die."""

import itertools
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.conftest import Database
from tests.faults.harness import PACE, Load, Sluice
from tests.servers import Server
from tests.waiting import eventually

TABLES = ("a", "b", "ledger", "finished")


@contextmanager
def copy_of(source: Server, target: Server, schema: str) -> Iterator[None]:
    """The schema on the target, with the tables of the source; neither it nor the output's place is left."""
    target.query(f"CREATE DATABASE {schema} CHARACTER SET utf8mb4")
    for (table,) in source.query(f"SELECT table_name FROM information_schema.tables WHERE table_schema = '{schema}'"):
        ((_, statement),) = source.query(f"SHOW CREATE TABLE {schema}.{table}")
        target.query(statement.replace("utf8mb4_uca1400_ai_ci", "utf8mb4_general_ci"), database=schema)
    try:
        yield
    finally:
        target.query(f"DROP DATABASE IF EXISTS {schema}")
        target.query(f"DROP DATABASE IF EXISTS {schema}_progress")


def configure(
    sluice: Sluice, source: Server, target: Server, schema: str, name: str = "shop", **settings: object
) -> None:
    """Configure a destination with an output to the target; settings are those of the output."""
    url = f"mysql://{target.user}@{target.host}:{target.port}/"
    given: dict[str, object] = {"type": "mysql", "url": url, "password": target.password, "start": "earliest"}
    given |= {"progress": f"{schema}_progress"} | settings
    output = {f"sluice__output__copy__{key}": value for key, value in given.items()}
    tables = rf"{schema}\\..*" + r",retl\\..*" * ("channel" in settings)
    sluice.add(name, source, canal__instance__filter__regex=tables, sluice__outputs="copy", **output)


def rows(server: Server, schema: str, table: str) -> list[tuple[Any, ...]]:
    """All rows of a table, as a multiset."""
    return sorted(server.query(f"SELECT * FROM {schema}.{table}"), key=repr)


def output_of(sluice: Sluice, name: str = "shop") -> dict[str, Any]:
    found: dict[str, Any] = sluice.destination(name)["outputs"][0]
    return found


def wait_equal(sluice: Sluice, source: Server, target: Server, schema: str, *tables: str) -> None:
    """Wait until the output has applied everything; the tables have to be equal then."""
    eventually(
        lambda: all(rows(source, schema, it) == rows(target, schema, it) for it in tables),
        lambda: (output_of(sluice), [(len(rows(source, schema, it)), len(rows(target, schema, it))) for it in tables]),
    )


@pytest.mark.parametrize("in_order", ["false", pytest.param("true", marks=pytest.mark.extended)])
def test_the_target_has_each_change_once_when_sluice_is_killed(
    sluice: Sluice, mariadb118: Server, mysql97: Server, database: Database, in_order: str
) -> None:
    schema = database(mariadb118)
    load = Load(mariadb118, schema)
    mariadb118.query("CREATE TABLE keyless (n INT, v VARCHAR(9) CHARSET utf8mb4)", database=schema)
    mariadb118.query("CREATE TABLE swapped (id INT PRIMARY KEY, u INT UNIQUE)", database=schema)
    mariadb118.query("CREATE TABLE parent (id INT PRIMARY KEY, v INT)", database=schema)
    mariadb118.query(
        "CREATE TABLE child (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE ON"
        " UPDATE CASCADE)",
        database=schema,
    )
    chance = random.Random(7)
    with copy_of(mariadb118, mysql97, schema):
        # What has come since a kill is enough for many transactions, which the workers apply at the same time.
        configure(sluice, mariadb118, mysql97, schema, preserveOrder=in_order)
        with sluice.reading():
            with load:
                for number in range(6):
                    goal = load.committed + chance.randrange(20, 60)
                    eventually(lambda: load.committed > goal)  # noqa: B023
                    for statement in (
                        f"INSERT INTO keyless VALUES ({number}, 'x'), ({number}, 'x'), (NULL, NULL)",
                        f"DELETE FROM keyless WHERE n = {number - 1} LIMIT 1",
                        f"UPDATE keyless SET v = 'y' WHERE n = {number} LIMIT 1",
                        f"INSERT INTO swapped VALUES ({number}, {number * 100})",
                        "UPDATE swapped SET u = -u - 1 WHERE id > 0",
                        "UPDATE swapped SET u = -u WHERE id > 0",
                        f"INSERT INTO parent VALUES ({number}, 0), ({number + 100}, 0)",
                        f"INSERT INTO child VALUES ({number}, {number}), ({number + 100}, {number + 100})",
                        f"UPDATE parent SET v = v + 1, id = {number + 1000} WHERE id = {number}",
                        f"DELETE FROM parent WHERE id = {number + 100}",
                    ):
                        mariadb118.query(statement, database=schema)
                    if number % 3 == 1:
                        sluice.kill()
                        sluice.start()
                load.finish(stop=True)
            wait_equal(sluice, mariadb118, mysql97, schema, *TABLES, "keyless", "swapped", "parent", "child")
            assert output_of(sluice)["state"] == "running"
            assert rows(mysql97, schema, "ledger")


@pytest.mark.extended
@pytest.mark.parametrize("source_name", ["mariadb118", "mysql97"])
def test_a_copy_begins_with_a_snapshot_and_follows_ddl_when_sluice_is_killed(
    request: pytest.FixtureRequest, sluice: Sluice, database: Database, source_name: str
) -> None:
    source: Server = request.getfixturevalue(source_name)
    target: Server = request.getfixturevalue("mysql97" if source_name == "mariadb118" else "mariadb118")
    schema = database(source)
    load = Load(source, schema)
    source.query("CREATE TABLE keyless (n INT, v VARCHAR(9) CHARSET utf8mb4)", database=schema)
    source.query("INSERT INTO keyless VALUES (1, 'x'), (1, 'x'), (NULL, NULL)", database=schema)
    source.query("CREATE TABLE large (id INT PRIMARY KEY, v VARCHAR(1000) CHARSET utf8mb4)", database=schema)
    numbers = "WITH RECURSIVE n AS (SELECT 1 i UNION ALL SELECT i + 1 FROM n WHERE i < 900) SELECT"
    for part in range(20):
        source.query(f"INSERT INTO large {numbers} i + {part * 1000}, REPEAT('x', 1000) FROM n", database=schema)
    with copy_of(source, target, schema):
        configure(sluice, source, target, schema, start="snapshot", ddl="apply")
        with sluice.reading(), load:
            eventually(lambda: target.query(f"SELECT 1 FROM {schema}.large LIMIT 1"), lambda: output_of(sluice))
            sluice.kill()
            source.query("UPDATE large SET v = 'y' WHERE id % 7 = 0", database=schema)
            source.query("DELETE FROM keyless WHERE n = 1 LIMIT 1", database=schema)
            sluice.start()
            source.query("ALTER TABLE large ADD w INT DEFAULT 7", database=schema)
            source.query("CREATE TABLE later (id INT PRIMARY KEY)", database=schema)
            source.query("INSERT INTO later VALUES (1)", database=schema)
            source.query("UPDATE large SET w = id", database=schema)
            load.finish(stop=True)
            eventually(lambda: target.query(f"SHOW TABLES FROM {schema} LIKE 'later'"), lambda: output_of(sluice))
            wait_equal(sluice, source, target, schema, *TABLES, "keyless", "large", "later")
            assert output_of(sluice)["state"] == "running"


class Writes(threading.Thread):
    """Writes to a server for a while: rows with keys of its own, and rows without a key, which would multiply."""

    def __init__(self, server: Server, schema: str, first: int, seconds: float) -> None:
        super().__init__(daemon=True)
        self._server, self._schema, self._first = server, schema, first
        self._end = time.monotonic() + seconds
        self.count = 0

    def run(self) -> None:
        with self._server.connect(database=self._schema, autocommit=True) as connection, connection.cursor() as cursor:
            while time.monotonic() < self._end:
                key = self._first + 2 * self.count
                cursor.execute(f"INSERT INTO keyed VALUES ({key}, 0)")
                cursor.execute(f"INSERT INTO keyless VALUES ({key})")
                cursor.execute(f"UPDATE keyed SET v = v + 1 WHERE id IN ({key}, {key - 20})")
                self.count += 1
                time.sleep(PACE)


@pytest.mark.parametrize(
    "seconds", [pytest.param(5, marks=pytest.mark.extended), pytest.param(600, marks=pytest.mark.soak)]
)
def test_no_change_goes_round_between_databases_that_feed_each_other(
    sluice: Sluice, mariadb118: Server, mysql97: Server, database: Database, seconds: float
) -> None:
    schema = database(mariadb118)
    mariadb118.query("CREATE TABLE keyed (id INT PRIMARY KEY, v INT)", database=schema)
    mariadb118.query("CREATE TABLE keyless (id INT)", database=schema)
    tables = "keyed", "keyless"
    with copy_of(mariadb118, mysql97, schema):
        for server in (mariadb118, mysql97):  # the marks of an earlier run
            server.query("DROP DATABASE IF EXISTS retl")
        configure(sluice, mariadb118, mysql97, schema, "there", channel=7, start="latest")
        configure(sluice, mysql97, mariadb118, schema, "back", channel=7, start="latest")
        with sluice:
            for name in ("there", "back"):
                eventually(lambda: output_of(sluice, name)["state"] == "running", lambda: output_of(sluice, name))  # noqa: B023
            writers = [Writes(mariadb118, schema, 0, seconds), Writes(mysql97, schema, 1, seconds)]
            for writer in writers:
                writer.start()
            for writer in writers:
                writer.join(seconds + 60)
            count = sum(it.count for it in writers)
            eventually(
                lambda: all(
                    len(rows(server, schema, table)) >= count for server in (mariadb118, mysql97) for table in tables
                ),
                lambda: [output_of(sluice, name) for name in ("there", "back")],
            )
            # What would have come back has come when these have, which are written after it.
            for number, server in enumerate((mariadb118, mysql97), 1):
                server.query(f"INSERT INTO keyed VALUES ({-number}, 0)", database=schema)
            for table, server in itertools.product(tables, (mariadb118, mysql97)):
                wanted = count + 2 * (table == "keyed")
                eventually(lambda: len(rows(server, schema, table)) >= wanted)  # noqa: B023
            for name in ("there", "back"):
                assert output_of(sluice, name)["state"] == "running"
        for table in tables:
            assert rows(mariadb118, schema, table) == rows(mysql97, schema, table)
            assert len(rows(mysql97, schema, table)) == count + 2 * (table == "keyed")
