"""An output to MySQL under faults of each side: whatever is killed, `sluice compare` finds both sides equal."""

import contextlib
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pymysql
import pytest

from tests import commands
from tests.conftest import Database
from tests.faults.harness import Load, Sluice
from tests.faults.test_compare import compare
from tests.faults.test_file_output import owners
from tests.faults.test_mysql_output import TABLES, configure, copy_of, output_of, wait_equal
from tests.servers import Server, ZooKeeper, freeze
from tests.waiting import eventually

SOAK = [pytest.mark.soak, pytest.mark.timeout(7200)]

CASCADES = "ON DELETE CASCADE ON UPDATE CASCADE"
DEFINITIONS = (
    "CREATE TABLE keyless (n INT, v VARCHAR(9)) CHARSET latin1",
    "CREATE TABLE swapped (id INT PRIMARY KEY, u INT UNIQUE)",
    "CREATE TABLE parent (id INT PRIMARY KEY, v INT)",
    f"CREATE TABLE child (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES parent (id) {CASCADES})",
    "CREATE TABLE altered (id INT PRIMARY KEY, e ENUM('a', 'b'), v VARCHAR(20) CHARSET latin1)",
)


def change(server: Server, schema: str, number: int) -> None:
    """Change rows in each way that is easily repeated wrong."""
    charset, labels = ("utf8mb4", "latin1")[number % 2], ("'a', 'b'", "'b', 'x', 'a'")[number % 2]
    for statement in (
        f"INSERT INTO keyless VALUES ({number}, 'x'), ({number}, 'x'), (NULL, NULL)",
        f"DELETE FROM keyless WHERE n = {number - 1} LIMIT 1",
        f"UPDATE keyless SET v = 'y' WHERE n = {number} LIMIT 1",
        f"INSERT INTO swapped VALUES ({number}, {number * 100})",
        "UPDATE swapped SET u = -u - 1",
        "UPDATE swapped SET u = -u",
        f"INSERT INTO parent VALUES ({number}, 0), ({number + 10000}, 0)",
        f"INSERT INTO child VALUES ({number}, {number}), ({number + 10000}, {number + 10000})",
        f"UPDATE parent SET v = v + 1, id = {number + 100000} WHERE id = {number}",
        f"DELETE FROM parent WHERE id = {number + 10000}",
        f"INSERT INTO altered VALUES ({number}, 'b', '\xe9')",
        f"ALTER TABLE altered MODIFY e ENUM({labels}), MODIFY v VARCHAR(20) CHARSET {charset}",
        f"UPDATE altered SET e = 'a', v = CONCAT(v, {number}) WHERE id < {number} ORDER BY id DESC LIMIT 3",
    ):
        server.query(statement, database=schema)


def keep_equal(
    sluice: Sluice, source: Server, target: Server, schema: str, kill: Callable[[], None], kills: int
) -> str:
    """Change tables of all sorts while something is killed again and again, until both sides are equal.

    Returns what `sluice compare` says after a row was changed on the target alone.
    """
    load = Load(source, schema)
    for it in DEFINITIONS:
        source.query(it, database=schema)
    chance = random.Random(7)
    with copy_of(source, target, schema):
        configure(sluice, source, target, schema, ddl="apply")
        with sluice.reading():
            with load:
                for number in range(1, kills + 1):
                    goal = load.committed + chance.randrange(5, 40)
                    eventually(lambda: load.committed > goal)  # noqa: B023
                    change(source, schema, 2 * number)
                    kill()
                    change(source, schema, 2 * number + 1)
                load.finish(stop=True)
            eventually(lambda: compare(sluice).returncode == 0, lambda: (compare(sluice), output_of(sluice)), 300)
            target.query("UPDATE swapped SET u = 1 WHERE id = 2", database=schema)
            return compare(sluice).stdout


SEEDED = "swapped: id = 2: differs in u"


@pytest.fixture
def own(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server of the test's own."""
    with Server(request.param) as server:
        yield server


def of(*kinds: str) -> list[object]:
    """One kill of the first server in `make test`, and 50 of each in `make soak`."""
    return [pytest.param(kinds[0], 1), *(pytest.param(it, 50, marks=SOAK) for it in kinds)]


@pytest.mark.parametrize(("own", "kills"), of("mariadb118", "mysql97", "mysql80"), indirect=["own"])
def test_the_target_is_killed(sluice: Sluice, mariadb118: Server, own: Server, database: Database, kills: int) -> None:
    def kill() -> None:
        own.kill()
        own.start()

    assert SEEDED in keep_equal(sluice, mariadb118, own, database(mariadb118), kill, kills)


@pytest.mark.parametrize(("own", "kills"), of("mariadb118", "mysql97", "mysql80"), indirect=["own"])
def test_the_source_is_killed(sluice: Sluice, own: Server, mysql97: Server, database: Database, kills: int) -> None:
    def kill() -> None:
        own.kill()
        own.start()

    assert SEEDED in keep_equal(sluice, own, mysql97, database(own), kill, kills)


@pytest.mark.parametrize("target", ["mariadb118", "mysql97", "mysql80"])
@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_sluice_is_killed(
    request: pytest.FixtureRequest, sluice: Sluice, mariadb118: Server, database: Database, target: str
) -> None:
    def kill() -> None:
        sluice.kill()
        sluice.start()

    server: Server = request.getfixturevalue(target)
    assert SEEDED in keep_equal(sluice, mariadb118, server, database(mariadb118), kill, 50)


@pytest.mark.parametrize("freezes", [pytest.param(2, marks=pytest.mark.extended), pytest.param(50, marks=SOAK)])
def test_of_two_owners_one_applies_each_change_once_whoever_is_frozen(
    tmp_path: Path, own_zookeeper: ZooKeeper, mariadb118: Server, mysql97: Server, database: Database, freezes: int
) -> None:
    schema = database(mariadb118)
    load, chance = Load(mariadb118, schema), random.Random(11)
    servers = [Sluice(tmp_path / name) for name in "ab"]
    with copy_of(mariadb118, mysql97, schema), contextlib.ExitStack() as stack:
        for server in servers:
            server.settings = {"canal__zkServers": own_zookeeper.hosts, "sluice__ha__sessionTimeout": 2}
            configure(server, mariadb118, mysql97, schema)
            stack.enter_context(server)
        eventually(lambda: owners(servers), "an owner")
        with load:
            for _ in range(freezes):
                goal = load.committed + chance.randrange(10, 60)
                eventually(lambda: load.committed > goal)  # noqa: B023
                (owner,) = owners(servers)
                (other,) = (it for it in servers if it is not owner)
                freeze(owner.process.pid)
                eventually(lambda: owners([other]), "another owner", 60)  # noqa: B023
                owner.process.send_signal(signal.SIGCONT)
                eventually(lambda: len(owners(servers)) == 1, "one owner", 60)
            load.finish(stop=True)
        (owner,) = owners(servers)
        wait_equal(owner, mariadb118, mysql97, schema, *TABLES)
        assert owner.process.poll() is None


class Meddler(threading.Thread):
    """Locks two rows of a target again and again, in the order that is not that of the source's transactions."""

    def __init__(self, target: Server, schema: str) -> None:
        super().__init__(daemon=True)
        self._target, self._schema = target, schema
        self._stopping = threading.Event()

    def run(self) -> None:
        while not self._stopping.is_set():
            with (
                contextlib.suppress(pymysql.err.OperationalError),  # it may be the victim
                self._target.connect(database=self._schema, autocommit=False) as connection,
                connection.cursor() as cursor,
            ):
                for number in (2, 1):
                    cursor.execute(f"SELECT * FROM locked WHERE id = {number} FOR UPDATE")
                    self._stopping.wait(0.02)

    def stop(self) -> None:
        self._stopping.set()
        self.join(60)


@pytest.mark.parametrize("wanted", [pytest.param(2, marks=pytest.mark.extended), pytest.param(100, marks=SOAK)])
def test_deadlocks_that_another_session_provokes_change_nothing(
    sluice: Sluice, mysql97: Server, mariadb118: Server, database: Database, wanted: int
) -> None:
    schema = database(mysql97, "latin1")
    mysql97.query("CREATE TABLE locked (id INT PRIMARY KEY, v INT)", database=schema)
    mysql97.query("INSERT INTO locked VALUES (1, 0), (2, 0)", database=schema)
    mysql97.query("CREATE TABLE keyless (n INT)", database=schema)

    def deadlocks() -> int:
        return int(mariadb118.query("SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'")[0][1])

    with copy_of(mysql97, mariadb118, schema):
        configure(sluice, mysql97, mariadb118, schema)
        before, number = deadlocks(), 0
        meddler = Meddler(mariadb118, schema)
        with sluice.reading(), mysql97.connect(database=schema, autocommit=False) as writer:
            meddler.start()
            end = time.monotonic() + 30 * wanted
            while deadlocks() < before + wanted and time.monotonic() < end:
                number += 1
                for row in (1, 2):
                    writer.cursor().execute(f"UPDATE locked SET v = {number} WHERE id = {row}")
                    writer.cursor().execute(f"INSERT INTO keyless VALUES ({number})")
                writer.commit()
                time.sleep(0.01)
            meddler.stop()
            assert deadlocks() >= before + wanted
            wait_equal(sluice, mysql97, mariadb118, schema, "locked", "keyless")
            assert output_of(sluice)["state"] == "running"


@pytest.mark.extended
def test_a_target_that_becomes_read_only_is_waited_for(
    sluice: Sluice, mariadb118: Server, mysql97: Server, database: Database
) -> None:
    schema = database(mariadb118)
    mariadb118.query("CREATE TABLE t (id INT PRIMARY KEY)", database=schema)
    with copy_of(mariadb118, mysql97, schema):
        configure(sluice, mariadb118, mysql97, schema)
        with sluice.reading():
            with mysql97.variable("read_only", 0), mysql97.variable("super_read_only", 1):
                mariadb118.query("INSERT INTO t VALUES (1)", database=schema)
                eventually(lambda: output_of(sluice)["state"] == "retrying", lambda: output_of(sluice))
                assert "read-only" in output_of(sluice)["error"]
            eventually(lambda: compare(sluice).returncode == 0, lambda: (compare(sluice), output_of(sluice)), 60)


@pytest.mark.parametrize("seconds", [pytest.param(5, marks=pytest.mark.extended), pytest.param(300, marks=SOAK)])
@pytest.mark.parametrize("own", ["mysql97"], indirect=True)
def test_a_target_that_is_away_is_reported_and_misses_nothing(
    sluice: Sluice, mariadb118: Server, own: Server, database: Database, seconds: int
) -> None:
    schema = database(mariadb118)
    load = Load(mariadb118, schema)
    with copy_of(mariadb118, own, schema):
        configure(sluice, mariadb118, own, schema)
        with sluice.reading():
            with load:
                eventually(lambda: load.committed > 20)
                own.kill()
                eventually(lambda: output_of(sluice)["state"] == "retrying", lambda: output_of(sluice))
                time.sleep(seconds)
                assert output_of(sluice)["state"] == "retrying"
                assert f"{own.host}:{own.port}" in output_of(sluice)["error"]
                assert commands.run("status", "--url", sluice.url).returncode == 1
                own.start()
                load.finish(stop=True)
            eventually(lambda: compare(sluice).returncode == 0, lambda: (compare(sluice), output_of(sluice)), 300)


def fill(server: Server, schema: str) -> None:
    """Add rows for as long as the server takes them."""
    with server.connect(database=schema) as connection, connection.cursor() as cursor:
        while True:
            cursor.execute("INSERT INTO filler (v) VALUES (REPEAT('x', 8000))")


@pytest.mark.extended
@pytest.mark.parametrize("own", ["mysql97"], indirect=True)
def test_a_target_without_room_is_an_error_until_there_is_room(
    sluice: Sluice, mariadb118: Server, own: Server, database: Database
) -> None:
    own.restart("--innodb-file-per-table=0", "--innodb-data-file-path=ibdata1:12M:autoextend:max:40M")
    schema = database(mariadb118)
    mariadb118.query("CREATE TABLE t (id INT PRIMARY KEY, v VARBINARY(8000))", database=schema)
    numbers = "WITH RECURSIVE n AS (SELECT 1 i UNION ALL SELECT i + 1 FROM n WHERE i < 500) SELECT i,"
    with copy_of(mariadb118, own, schema):
        own.query("CREATE TABLE filler (id INT PRIMARY KEY AUTO_INCREMENT, v VARBINARY(8000))", database=schema)
        with pytest.raises(pymysql.MySQLError, match="is full"):
            fill(own, schema)
        configure(sluice, mariadb118, own, schema)
        with sluice.reading():
            mariadb118.query(f"INSERT INTO t {numbers} REPEAT('y', 8000) FROM n", database=schema)
            eventually(lambda: "is full" in output_of(sluice)["error"], lambda: output_of(sluice))
            own.query("DROP TABLE filler", database=schema)
            eventually(lambda: compare(sluice).returncode == 0, lambda: (compare(sluice), output_of(sluice)), 120)


@pytest.mark.parametrize("megabytes", [pytest.param(20, marks=pytest.mark.extended), pytest.param(1000, marks=SOAK)])
def test_a_large_transaction_is_there_as_a_whole_and_takes_little_memory(
    sluice: Sluice, mariadb118: Server, mysql97: Server, database: Database, megabytes: int
) -> None:
    schema = database(mariadb118)
    mariadb118.query("CREATE TABLE t (id INT PRIMARY KEY, v VARBINARY(1000))", database=schema)
    numbers = "WITH RECURSIVE n AS (SELECT 1 i UNION ALL SELECT i + 1 FROM n WHERE i < 1000) SELECT"
    with copy_of(mariadb118, mysql97, schema):
        configure(sluice, mariadb118, mysql97, schema)
        with sluice.reading(), mariadb118.connect(database=schema, autocommit=False) as writer:
            before = sluice.memory("VmRSS")
            sluice.forget_peak()
            for part in range(megabytes):
                writer.cursor().execute(f"INSERT INTO t {numbers} i + {part * 1000}, REPEAT('x', 1000) FROM n")
            writer.commit()
            eventually(lambda: compare(sluice, "--wait", "600").returncode == 0, lambda: output_of(sluice), 3600)
            assert mysql97.query(f"SELECT COUNT(*) FROM {schema}.t") == [(megabytes * 1000,)]
            assert sluice.memory("VmHWM") - before < 400 << 20


@pytest.mark.parametrize("count", [pytest.param(40, marks=pytest.mark.extended), pytest.param(10000, marks=SOAK)])
def test_many_tables_are_made_filled_and_kept_equal(
    sluice: Sluice, mysql97: Server, mariadb118: Server, database: Database, count: int
) -> None:
    schema = database(mysql97, "latin1")
    try:
        for number in range(count):
            mysql97.query(f"CREATE TABLE t{number} (id INT PRIMARY KEY, v INT)", database=schema)
            mysql97.query(f"INSERT INTO t{number} VALUES (1, {number})", database=schema)
        configure(sluice, mysql97, mariadb118, schema, start="snapshot")
        with sluice.reading():
            for number in range(count):
                mysql97.query(f"UPDATE t{number} SET v = -v", database=schema)
            eventually(lambda: compare(sluice).returncode == 0, lambda: (compare(sluice), output_of(sluice)), 3600)
            assert f"{count} tables, {count} rows" in compare(sluice).stdout
    finally:
        mariadb118.query(f"DROP DATABASE IF EXISTS {schema}")
        mariadb118.query(f"DROP DATABASE IF EXISTS {schema}_progress")
