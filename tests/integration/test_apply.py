"""Changes of a real source applied to a real target, without Spark: what a mirror's task does."""

import re
import zlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from sluice.client_sdk.spark import apply
from sluice.client_sdk.spark.apply import Applied, Applier
from sluice.client_sdk.spark.progress import BUCKETS, Progress
from sluice.client_sdk.spark.shares import COLUMNS
from sluice.login.ssl_mode import SslMode
from sluice.protocol.canal.arrow import EnvelopeDecoder
from sluice.protocol.errors import TargetError
from sluice.protocol.position import Position
from sluice.sql.database import Database
from sluice.sql.target import Target, fixed_offset
from tests.conftest import Database as Schemas
from tests.delivery import Delivery, deliver, end_of_binlog, execute
from tests.integration.samples import SAMPLES, Sample
from tests.proxy import Proxy
from tests.servers import Server
from tests.unit.entries import length_delimited
from tests.waiting import eventually

if TYPE_CHECKING:
    import pymysql

MODES = "SET sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'"
POSITION = Position("source", "binlog.000001", 1_700_000_000, 4, 0)


def database(server: Server, port: int = 0) -> Database:
    return Database(server.host, port or server.port, server.user, server.password)


class Mirror:
    """One job from a schema of a source to another schema of a target; a batch is what was read in between."""

    def __init__(self, delivery: Delivery, schema: str, target: Server, copy: str, *, port: int = 0) -> None:
        self.delivery = delivery
        self.schema, self.target, self.copy = schema, target, copy
        self.source = delivery.server
        self.schemas = {schema: copy}
        self.port = port
        self.batches = 0
        self._connections: dict[Server, pymysql.connections.Connection[Any]] = {}
        self.start()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()

    def start(self) -> None:
        """Begin a run, as a driver does that is started again."""
        self.progress = Progress(self.connection(), f"{self.copy}_progress", "job")
        self.run = self.progress.start()

    def connection(self, retry: float = 20) -> Target:
        return Target(database(self.target, self.port), retry=retry)

    def applier(self) -> Applier:
        return Applier(self.connection(), self.run, self.schemas)

    def read(self) -> pa.Table:
        """Everything that was written since the last time."""
        first = self.delivery.next
        self.delivery.read()
        found = self.delivery.ring.read(first, self.delivery.next)
        data = length_delimited(103, found.positions) + b"".join(found.slices)
        return with_buckets(pa.Table.from_batches([EnvelopeDecoder().decode(data)]))

    def begin(self, batch: str) -> None:
        self.progress.begin(batch, POSITION)

    def apply(self, changes: pa.Table, tasks: int = 1, *, again: bool = False) -> list[Applied]:
        """Apply a micro-batch by some tasks at the same time; ``again``: the one before, once more."""
        self.batches += not again
        batch = f"batch {self.batches}"
        self.begin(batch)
        parts = [part for task in range(tasks) if (part := of_task(changes, task, tasks)).num_rows]
        with ThreadPoolExecutor(tasks) as pool:
            found = list(pool.map(lambda part: self.applier().apply(part, batch), parts))
        if found:
            self.progress.finish(max(applied.place for applied in found), POSITION)
        return found

    def run_batch(self, *statements: str, tasks: int = 1) -> list[Applied]:
        """Run statements on the source, each committed by itself unless they say otherwise, and apply what they did."""
        execute(self.source, [MODES, *statements], database=self.schema)
        return self.apply(self.read(), tasks)

    def create(self, **tables: str) -> None:
        """Create tables on both sides."""
        statements = [f"CREATE TABLE {table} ({definition})" for table, definition in tables.items()]
        execute(self.source, [MODES, *statements], database=self.schema)
        execute(self.target, [MODES, *statements], database=self.copy)

    def rows(self, table: str = "t", columns: str = "*") -> list[tuple[Any, ...]]:
        """Those of the target."""
        return self._rows(self.target, self.copy, table, columns)

    def check(self, table: str = "t", columns: str = "*") -> int:
        """Check that both sides are equal; return how many rows they have."""
        found = self.rows(table, columns)
        assert found == self._rows(self.source, self.schema, table, columns)
        return len(found)

    def _rows(self, server: Server, schema: str, table: str, columns: str) -> list[tuple[Any, ...]]:
        if server not in self._connections:
            self._connections[server] = server.connect()
        with self._connections[server].cursor() as cursor:
            cursor.execute(f"SELECT {columns} FROM {schema}.{table}")
            return sorted(cursor.fetchall(), key=repr)


def with_buckets(changes: pa.Table) -> pa.Table:
    names = zip(changes["_schema"].to_pylist(), changes["_table"].to_pylist(), changes["_key"].to_pylist(), strict=True)
    buckets = pa.array([zlib.crc32(repr(name).encode()) % BUCKETS for name in names], pa.int32())
    return changes.append_column("_bucket", buckets).select(COLUMNS)


def of_task(changes: pa.Table, task: int, tasks: int) -> pa.Table:
    return changes.filter(pa.array([bucket % tasks == task for bucket in changes["_bucket"].to_pylist()], pa.bool_()))


@contextmanager
def mirroring(source: Server, target: Server, schemas: Schemas, folder: Path, **options: Any) -> Iterator[Mirror]:
    schema, copy = schemas(source), schemas(target)
    with deliver(source, folder, filter_regex=rf"{schema}\..*") as delivery:
        mirror = Mirror(delivery, schema, target, copy, **options)
        try:
            yield mirror
        finally:
            mirror.close()
            target.query(f"DROP DATABASE IF EXISTS {copy}_progress")


@pytest.fixture
def mirror(mariadb118: Server, mysql97: Server, database: Schemas, tmp_path: Path) -> Iterator[Mirror]:
    """From MariaDB to MySQL."""
    with mirroring(mariadb118, mysql97, database, tmp_path) as made:
        yield made


NAMES = ["mariadb118", *(pytest.param(name, marks=pytest.mark.extended) for name in ("mysql97", "mysql56"))]


@pytest.mark.parametrize("name", NAMES)
def test_every_type_arrives_equal(name: str, request: pytest.FixtureRequest, database: Schemas, tmp_path: Path) -> None:
    server: Server = request.getfixturevalue(name)
    with mirroring(server, server, database, tmp_path) as mirror:
        server.query("SET GLOBAL sql_mode = 'ANSI_QUOTES,NO_ZERO_DATE,NO_ZERO_IN_DATE,STRICT_ALL_TABLES'")
        tables = {f"t{number}": samples for number, samples in enumerate(eights(samples_of(name)))}
        try:
            mirror.create(**{table: definition_of(samples) for table, samples in tables.items()})
            mirror.run_batch(*(line for table, samples in tables.items() for line in inserts_of(table, samples)))
        finally:
            server.query("SET GLOBAL sql_mode = DEFAULT")
        for table, samples in tables.items():
            texts = (re.sub(r"\bc\b", f"c{number}", sample.text) for number, sample in enumerate(samples))
            assert mirror.check(table, ", ".join(["id", *texts])) == len(list(inserts_of(table, samples)))


def samples_of(name: str) -> list[Sample]:
    """The samples that a server has, without JSON whose text does not say what it is made of."""
    found = [sample for sample in SAMPLES if sample.runs_on(name)]
    return [
        replace(it, values=tuple(value for value in it.values if "AS DECIMAL" not in value))
        if it.type == "json"
        else it
        for it in found
    ]


def eights(samples: list[Sample]) -> list[list[Sample]]:
    return [samples[number : number + 8] for number in range(0, len(samples), 8)]


def definition_of(samples: Iterable[Sample]) -> str:
    columns = (f"c{number} {sample.type}" for number, sample in enumerate(samples))
    return ", ".join(("id INT PRIMARY KEY AUTO_INCREMENT", *columns))


def inserts_of(table: str, samples: Iterable[Sample]) -> Iterator[str]:
    for values in zip_longest(*((*sample.values, "NULL") for sample in samples), fillvalue="NULL"):
        yield f"INSERT INTO {table} VALUES (NULL, {', '.join(values)})"


KEYS = {
    "INT": ("0", "-5", "7"),
    "BIGINT UNSIGNED": ("0", "18446744073709551615", "9007199254740993"),
    "DECIMAL(20,4)": ("0", "1.5", "-123456789012.0001"),
    "FLOAT": ("0.1", "1e20", "-3.4028234e38"),
    "DOUBLE": ("0.1", "1e300", "-1.7976931348623157e308"),
    "BIT(40)": ("0", "1", "1099511627775"),
    "YEAR": ("0", "1999", "2155"),
    "DATE": ("'0000-00-00'", "'2026-11-21'", "'2021-02-31'"),
    "TIME(3)": ("'-838:59:58.999'", "'00:00:00.001'", "'12:00:00'"),
    "DATETIME(6)": ("'0000-00-00 00:00:00'", "'2026-11-21 12:34:56.000001'", "'9999-12-31 23:59:59'"),
    "TIMESTAMP(3) DEFAULT '2000-01-01 00:00:00'": (
        "'1970-01-01 00:00:01'",
        "'2026-11-21 12:34:56.001'",
        "'2038-01-19 03:14:06'",
    ),
    "CHAR(20) CHARACTER SET utf8mb4": ("''", "'it''s'", "'back\\\\slash'"),
    "VARCHAR(20) CHARACTER SET latin1": ("''", "'café €'", "'b'"),
    "VARBINARY(20)": ("''", "X'00'", "X'0000'"),
    "BINARY(4)": ("X'01'", "X'00010000'", "X'FF00'"),
    "ENUM('a','b','c')": ("'a'", "'b'", "'c'"),
    "SET('a','b','c')": ("''", "'b'", "'a,c'"),
}


@pytest.mark.parametrize("name", NAMES)
def test_keys_of_every_type_are_found(
    name: str, request: pytest.FixtureRequest, database: Schemas, tmp_path: Path
) -> None:
    server: Server = request.getfixturevalue(name)
    with mirroring(server, server, database, tmp_path) as mirror:
        tables = {f"t{number}": (type_, values) for number, (type_, values) in enumerate(KEYS.items())}
        mirror.create(
            **{table: f"v INT, k {type_} NOT NULL, PRIMARY KEY (k)" for table, (type_, _) in tables.items()},
            **{f"{table}b": f"k {type_} NOT NULL, i INT, PRIMARY KEY (i, k)" for table, (type_, _) in tables.items()},
        )
        mirror.run_batch(
            *(f"INSERT INTO {table} VALUES (1, {value})" for table, (_, many) in tables.items() for value in many),
            *(f"INSERT INTO {table}b VALUES ({value}, 1)" for table, (_, many) in tables.items() for value in many),
        )
        for table in tables:
            assert len(mirror.rows(table)) == 3
        mirror.run_batch(
            *(f"DELETE FROM {table}{other} LIMIT 1" for table in tables for other in ("", "b")),
            *(f"UPDATE {table} SET v = v + 1" for table in tables),
        )
        for table in tables:
            mirror.check(table)
            mirror.check(f"{table}b")
            assert len(mirror.rows(table)) == len(mirror.rows(f"{table}b")) == 2
        mirror.run_batch(*(f"DELETE FROM {table}{other}" for table in tables for other in ("", "b")))
        for table in tables:
            assert mirror.rows(table) == mirror.rows(f"{table}b") == []


def test_rows_are_inserted_updated_deleted_and_move_to_other_keys(mirror: Mirror) -> None:
    mirror.create(t="id INT PRIMARY KEY, v VARCHAR(20)")
    mirror.run_batch("INSERT INTO t VALUES (0, 'zero'), (1, 'a'), (2, NULL), (3, 'it''s'), (4, '\\\\')")
    mirror.check()
    mirror.run_batch(
        "UPDATE t SET v = 'b' WHERE id = 1",
        "UPDATE t SET id = 20 WHERE id = 2",
        "DELETE FROM t WHERE id = 3",
        "INSERT INTO t VALUES (3, 'again')",
        "UPDATE t SET id = 3000 WHERE id = 4",
        "UPDATE t SET id = 4 WHERE id = 3",
        tasks=3,
    )
    mirror.check()
    assert set(mirror.rows("t")) == {(0, "zero"), (1, "b"), (4, "again"), (20, None), (3000, "\\")}


def test_many_changes_of_a_key_cost_one_write(mirror: Mirror) -> None:
    mirror.create(t="id INT PRIMARY KEY, v INT")
    (applied,) = mirror.run_batch("INSERT INTO t VALUES (1, 0)", *(["UPDATE t SET v = v + 1"] * 50))
    mirror.check()
    assert (applied.rows, applied.written) == (51, 1)


@pytest.mark.parametrize("tasks", [pytest.param(1, marks=pytest.mark.extended), 4])
def test_unique_values_are_swapped_between_rows(mirror: Mirror, tasks: int) -> None:
    mirror.create(t="id INT PRIMARY KEY, u VARCHAR(20), UNIQUE KEY (u)")
    mirror.run_batch("INSERT INTO t VALUES " + ",".join(f"({number}, 'u{number}')" for number in range(40)))
    swap = (
        "UPDATE t SET u = 'x' WHERE id = {0}",
        "UPDATE t SET u = 'u{0}' WHERE id = {1}",
        "UPDATE t SET u = 'u{1}' WHERE id = {0}",
    )
    mirror.run_batch(
        *(line.format(number, number + 1) for number in range(0, 40, 2) for line in swap),
        "DELETE FROM t WHERE id = 7",
        "UPDATE t SET id = 700, u = 'u6' WHERE u = 'u5'",
        tasks=tasks,
    )
    mirror.check()
    assert {(0, "u1"), (1, "u0"), (38, "u39"), (39, "u38"), (700, "u6")} <= set(mirror.rows())
    mirror.run_batch("BEGIN", "DELETE FROM t", "INSERT INTO t SELECT 1, 'u3'", "COMMIT", tasks=tasks)
    mirror.check()
    assert mirror.rows() == [(1, "u3")]


@pytest.mark.parametrize("tasks", [pytest.param(1, marks=pytest.mark.extended), 4])
def test_keys_that_the_collation_takes_for_equal_are_told_apart(mirror: Mirror, tasks: int) -> None:
    mirror.create(t="k VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci, v INT, PRIMARY KEY (k)")
    mirror.run_batch("INSERT INTO t VALUES ('a', 1), ('b', 2), ('c ', 3), ('d', 4), ('e', 5)")
    mirror.run_batch(
        "UPDATE t SET k = 'A' WHERE k = 'a'",
        "DELETE FROM t WHERE k = 'b'",
        "INSERT INTO t VALUES ('B', 20)",
        "UPDATE t SET k = 'c' WHERE k = 'c '",
        "UPDATE t SET k = 'D' WHERE k = 'd'",
        "UPDATE t SET k = 'd' WHERE k = 'D'",
        "UPDATE t SET k = 'é' WHERE k = 'e'",
        tasks=tasks,
    )
    mirror.check(columns="k, v, HEX(k)")
    assert mirror.rows() == [("A", 1), ("B", 20), ("c", 3), ("d", 4), ("é", 5)]


def test_what_was_applied_is_dropped_when_the_micro_batch_comes_again(mirror: Mirror) -> None:
    mirror.create(t="id INT PRIMARY KEY, v INT")
    mirror.target.query("CREATE TABLE seen (n INT PRIMARY KEY AUTO_INCREMENT, id INT)", database=mirror.copy)
    mirror.target.query(
        "CREATE TRIGGER see AFTER INSERT ON t FOR EACH ROW INSERT INTO seen (id) VALUES (NEW.id)", database=mirror.copy
    )
    execute(
        mirror.source, ["INSERT INTO t VALUES " + ",".join(f"({it}, 0)" for it in range(500))], database=mirror.schema
    )
    changes = mirror.read()
    mirror.begin("batch 1")
    for task in (2, 0):  # then the driver is killed
        mirror.applier().apply(of_task(changes, task, 5), "batch 1")
    mirror.start()
    done = mirror.apply(changes, tasks=3)  # by another number of tasks
    assert sum(it.written for it in done) + 200 == pytest.approx(500, abs=60)
    assert [n for (n,) in mirror.rows("seen", "COUNT(*)")] == [500]
    mirror.apply(changes, again=True)
    assert [n for (n,) in mirror.rows("seen", "COUNT(*)")] == [500]
    mirror.check()


def transactions(mirror: Mirror, begin: tuple[str, int]) -> list[int]:
    """The bytes of each transaction on the table of the target since a place in its binlog."""
    file, offset = begin
    sizes: list[int] = []
    first, changes = offset, False
    for _, at, kind, _, end, info in mirror.target.query(f"SHOW BINLOG EVENTS IN '{file}' FROM {offset}"):
        if kind == "Gtid":
            first, changes = at, False
        changes |= kind == "Table_map" and f"({mirror.copy}.t)" in info
        if kind == "Xid" and changes:
            sizes.append(end - first)
    return sizes


@pytest.mark.extended
def test_transactions_on_the_target_are_of_limited_size(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apply, "ROWS", 7)
    mirror.create(t="id INT PRIMARY KEY, v LONGTEXT")
    begin = end_of_binlog(mirror.target)
    mirror.run_batch(
        "INSERT INTO t SELECT seq, 'x' FROM seq_1_to_50",
        "UPDATE t SET id = id + 1000",  # two changes at each place
        *(f"UPDATE t SET v = REPEAT('y', 6000000) WHERE id = 100{number}" for number in range(1, 6)),
    )
    mirror.check()
    sizes = transactions(mirror, begin)
    assert len(sizes) >= 100 // 8
    assert 12_000_000 < max(sizes) < 16 << 20


def test_another_micro_batch_than_the_unfinished_one_begins_where_the_last_finished_one_ended(mirror: Mirror) -> None:
    mirror.create(t="id INT PRIMARY KEY, u INT, UNIQUE KEY (u)")
    mirror.run_batch("INSERT INTO t VALUES (1, 1), (2, 2), (3, 3), (4, 4)")
    execute(
        mirror.source, ["UPDATE t SET u = 10 WHERE id = 1", "UPDATE t SET u = 1 WHERE id = 2"], database=mirror.schema
    )
    first = mirror.read()
    execute(
        mirror.source, ["UPDATE t SET u = 2 WHERE id = 3", "UPDATE t SET u = 3 WHERE id = 1"], database=mirror.schema
    )
    rest = mirror.read()
    whole = pa.concat_tables([first, rest])
    buckets = whole["_bucket"].to_pylist()
    mirror.begin("a checkpoint that gets lost/7")
    for key in ("3", "1"):  # its tasks come as far as this
        of_key = pa.array([key_ == [key] for key_ in whole["_key"].to_pylist()])
        mirror.applier().apply(whole.filter(of_key), "a checkpoint that gets lost/7")
    assert len(set(buckets)) == 3
    mirror.start()
    mirror.apply(first)
    mirror.apply(rest)
    mirror.check()


def test_tasks_of_an_earlier_run_are_refused(mirror: Mirror) -> None:
    mirror.create(t="id INT PRIMARY KEY")
    execute(mirror.source, ["INSERT INTO t VALUES (1)"], database=mirror.schema)
    changes = mirror.read()
    late, progress = mirror.applier(), mirror.progress
    mirror.start()
    with pytest.raises(TargetError, match="started again elsewhere"):
        late.apply(changes, "batch")
    with pytest.raises(TargetError, match="started again elsewhere"):
        progress.begin("batch", POSITION)
    assert mirror.rows("t") == []
    mirror.apply(changes)
    mirror.check()


def forget_members(mirror: Mirror) -> None:
    """Make the tables of the progress those of an earlier version."""
    for table, key in (("sluice_mirror", "job"), ("sluice_progress", "job, bucket")):
        old = f"ALTER TABLE {table} DROP PRIMARY KEY, DROP COLUMN source_member, ADD PRIMARY KEY ({key})"
        mirror.target.query(old, database=f"{mirror.copy}_progress")


def test_the_progress_that_an_earlier_version_kept_without_members_goes_on(mirror: Mirror) -> None:
    mirror.create(t="id INT PRIMARY KEY")
    execute(mirror.source, ["INSERT INTO t VALUES (1)"], database=mirror.schema)
    changes = mirror.read()
    mirror.apply(changes)
    forget_members(mirror)
    for run in (2, 3):
        mirror.start()
        assert mirror.run.number == run
        assert [it.written for it in mirror.apply(changes)] == [0], "applied again"
    mirror.run_batch("INSERT INTO t VALUES (2)")
    mirror.check()


def test_jobs_that_start_together_on_the_progress_of_an_earlier_version_go_on(mirror: Mirror) -> None:
    forget_members(mirror)
    schema = f"{mirror.copy}_progress"
    waiting = f"SELECT 1 FROM information_schema.processlist WHERE info LIKE 'ALTER TABLE `{schema}`%'"
    with database(mirror.target, mirror.port).connect() as session, ThreadPoolExecutor(2) as pool:
        cursor = session.cursor()
        session.begin()
        cursor.execute(f"SELECT COUNT(*) FROM {schema}.sluice_mirror")  # the table cannot be altered before it ends
        starts = [pool.submit(Progress(mirror.connection(), schema, job).start) for job in ("one", "two")]
        try:
            eventually(lambda: cursor.execute(waiting) == 2)
        finally:
            session.commit()
        assert [it.result().number for it in starts] == [1, 1]


def test_changes_of_several_members_of_a_source_are_refused(mirror: Mirror) -> None:
    mirror.create(t="id INT PRIMARY KEY")
    execute(mirror.source, ["INSERT INTO t VALUES (1)"], database=mirror.schema)
    changes = mirror.read()
    (row,) = changes["_pos"].to_pylist()
    of_member = pa.array([row | {"member": "north"}], changes["_pos"].type)
    with pytest.raises(TargetError, match="several members"):
        mirror.apply(changes.set_column(0, "_pos", of_member))
    assert mirror.rows("t") == []


def test_places_of_another_history_are_not_compared(mirror: Mirror) -> None:
    mirror.create(t="id INT PRIMARY KEY")
    mirror.run_batch("INSERT INTO t VALUES (1)")
    for file, created, is_comparable in (
        ("binlog.000001", POSITION.created, True),
        ("binlog.000002", POSITION.created + 60, True),
        ("binlog.000001", POSITION.created + 60, False),
        ("binlog.000002", POSITION.created - 60, False),
        ("other.000002", POSITION.created + 60, False),
    ):
        position = replace(POSITION, file=file, created=created)
        if is_comparable:
            mirror.progress.begin("batch", position)
            continue
        with pytest.raises(TargetError, match="go on under another job name"):
            mirror.progress.begin("batch", position)
    with pytest.raises(TargetError, match="another source"):
        mirror.progress.begin("batch", replace(POSITION, source="other"))


@pytest.mark.parametrize(
    "pair",
    [("mariadb118", "mysql97"), pytest.param(("mysql97", "mariadb118"), marks=pytest.mark.extended)],
    ids="-".join,
)
def test_lost_connections_are_retried_and_nothing_is_applied_twice(
    request: pytest.FixtureRequest, database: Schemas, tmp_path: Path, pair: tuple[str, str]
) -> None:
    source, target = map(request.getfixturevalue, pair)
    with (
        Proxy((target.host, target.port), seed=5) as proxy,
        mirroring(source, target, database, tmp_path, port=proxy.port) as mirror,
    ):
        mirror.create(t="id INT PRIMARY KEY, v VARCHAR(200)")
        mirror.target.query("CREATE TABLE seen (n INT PRIMARY KEY AUTO_INCREMENT, id INT)", database=mirror.copy)
        mirror.target.query(
            "CREATE TRIGGER see AFTER INSERT ON t FOR EACH ROW INSERT INTO seen (id) VALUES (NEW.id)",
            database=mirror.copy,
        )
        rows = ",".join(f"({it}, REPEAT('x', {it % 200}))" for it in range(3000))
        execute(mirror.source, [f"INSERT INTO t VALUES {rows}"], database=mirror.schema)
        changes = mirror.read()
        proxy.cut_randomly(60_000)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(apply, "ROWS", 100)
            mirror.apply(changes, tasks=3)
        assert proxy.cuts > 0
        proxy.heal()
        mirror.check()
        assert mirror.rows("seen", "COUNT(*), COUNT(DISTINCT id)") == [(3000, 3000)]


def test_deadlocks_are_retried(mirror: Mirror) -> None:
    mirror.create(t="id INT PRIMARY KEY, v INT", u="id INT PRIMARY KEY, v INT")
    mirror.run_batch("INSERT INTO t VALUES (1, 1)", "INSERT INTO u VALUES (1, 1)")
    execute(mirror.source, ["UPDATE t SET v = 2", "UPDATE u SET v = 2"], database=mirror.schema)
    changes = mirror.read()
    with mirror.target.connect(database=mirror.copy, autocommit=False) as other, other.cursor() as cursor:
        cursor.execute("INSERT INTO u SELECT seq.n, 0 FROM (SELECT 2 n UNION SELECT 3 UNION SELECT 4) seq")
        cursor.execute("UPDATE u SET v = 5 WHERE id = 1")  # the more it wrote, the less it is the one to give way
        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(mirror.apply, changes)
            wait_for_lock(mirror.target)
            cursor.execute("UPDATE t SET v = 5 WHERE id = 1")
            other.rollback()
            done.result()
    mirror.check("t")
    mirror.check("u")
    assert mirror.rows("t") == mirror.rows("u") == [(1, 2)]


def wait_for_lock(server: Server) -> None:
    def waits() -> object:
        server.query("DO SLEEP(0.15)")  # asked again within 0.1 s, InnoDB repeats itself
        return server.query("SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'")[0][0]

    eventually(waits, "a transaction that waits")


def test_generated_columns_are_left_to_the_target(mirror: Mirror) -> None:
    columns = "id INT, v INT, twice INT AS (v * 2) STORED, thrice INT AS (v * 3) VIRTUAL, PRIMARY KEY (id)"
    mirror.create(t=columns)
    mirror.run_batch("INSERT INTO t (id, v) VALUES (1, 10), (2, 20)", "UPDATE t SET v = 30 WHERE id = 2")
    assert mirror.rows("t") == [(1, 10, 20, 30), (2, 30, 60, 90)]


def test_columns_are_found_by_name_whatever_their_order_and_case(mirror: Mirror) -> None:
    execute(mirror.source, ["CREATE TABLE t (id INT, `a``b` INT, c INT, PRIMARY KEY (id))"], database=mirror.schema)
    execute(mirror.target, ["CREATE TABLE t (C INT, `A``B` INT, ID INT PRIMARY KEY)"], database=mirror.copy)
    mirror.run_batch("INSERT INTO t VALUES (1, 2, 3)")
    assert mirror.rows("t") == [(3, 2, 1)]


ONLY_ID = "(id INT PRIMARY KEY)"
WITH_TEXT = "(id INT PRIMARY KEY, v VARCHAR(9) CHARACTER SET utf8mb4)"
GOES_ON = "A job that is started again resumes where it stopped; an output tries again by itself"


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        (ONLY_ID, "", f"has no table .*{GOES_ON}"),
        (ONLY_ID, "(id INT)", "on the target has no primary key"),
        ("(id INT)", ONLY_ID, "has no primary key on the source"),
        (ONLY_ID, f"{ONLY_ID} ENGINE = MyISAM", "ENGINE=InnoDB"),
        (WITH_TEXT, ONLY_ID, rf"lacks v\. .* columns id, v; .* has id: .*{GOES_ON}"),
        (ONLY_ID, WITH_TEXT, "change lacks v.*binlog_row_image"),
        (WITH_TEXT, "(id INT, v VARCHAR(9), PRIMARY KEY (v))", r"primary key of .* is \(v\), which is not that"),
        (WITH_TEXT, "(id INT, v VARCHAR(9), PRIMARY KEY (id, v))", r"is \(id, v\), which is not that"),
        (WITH_TEXT, "(id INT PRIMARY KEY, v INT)", "v is int.*takes a number.*give both tables the same types"),
        (WITH_TEXT, "(id INT PRIMARY KEY, v VARCHAR(1))", f"too long for column 'v'.*{GOES_ON}"),
        (WITH_TEXT, "(id INT PRIMARY KEY, v VARBINARY(99))", "takes bytes.*give both tables the same types"),
        (WITH_TEXT, "(id INT PRIMARY KEY, v VARCHAR(9) CHARACTER SET latin1)", f"Incorrect string value.*{GOES_ON}"),
    ],
)
def test_a_target_that_does_not_fit_is_an_error_that_says_what_to_do(
    mirror: Mirror, source: str, target: str, message: str
) -> None:
    row = "(1, '中文')" if "v" in source else "(1)"
    execute(mirror.source, [f"CREATE TABLE t {source}", f"INSERT INTO t VALUES {row}"], database=mirror.schema)
    if target:
        mirror.target.query(f"CREATE TABLE t {target}", database=mirror.copy)
    changes = mirror.read()
    with pytest.raises(TargetError, match=message):
        mirror.apply(changes)
    # As it says:
    mirror.target.query("DROP TABLE IF EXISTS t", database=mirror.copy)
    mirror.target.query(f"CREATE TABLE t {source if source != '(id INT)' else ONLY_ID}", database=mirror.copy)
    if source != "(id INT)":
        mirror.apply(changes, again=True)
        mirror.check()


def test_a_target_that_is_altered_before_the_source_is_looked_at_again(mirror: Mirror) -> None:
    mirror.create(t="id INT PRIMARY KEY")
    applier = mirror.applier()
    alter = "ALTER TABLE t ADD COLUMN v INT"
    for number, statements in enumerate((["INSERT INTO t VALUES (1)"], [alter, "INSERT INTO t VALUES (2, 3)"])):
        execute(mirror.source, statements, database=mirror.schema)
        mirror.begin(f"batch {number}")
        applier.apply(mirror.read(), f"batch {number}")
        if number == 0:
            mirror.target.query(alter, database=mirror.copy)
    mirror.check()
    assert mirror.rows() == [(1, None), (2, 3)]


@pytest.mark.parametrize("image", ["MINIMAL", "NOBLOB"])
def test_images_that_lack_columns_are_refused(
    mysql97: Server, mariadb118: Server, database: Schemas, tmp_path: Path, image: str
) -> None:
    with mirroring(mysql97, mariadb118, database, tmp_path) as mirror:
        mirror.create(t="id INT PRIMARY KEY, v INT, b TEXT")
        mirror.run_batch("INSERT INTO t VALUES (1, 1, 'b'), (2, 2, 'b')")
        with pytest.raises(TargetError, match=r"change lacks .*b.*binlog_row_image is not FULL"):
            mirror.run_batch(f"SET binlog_row_image = '{image}'", "UPDATE t SET v = 3 WHERE id = 1")
        assert mirror.rows("t") == [(1, 1, "b"), (2, 2, "b")]


def test_a_delete_needs_its_key_only(mysql97: Server, mariadb118: Server, database: Schemas, tmp_path: Path) -> None:
    with mirroring(mysql97, mariadb118, database, tmp_path) as mirror:
        mirror.create(t="a INT, b VARCHAR(9), v INT, PRIMARY KEY (b, a)")
        mirror.run_batch("INSERT INTO t VALUES (1, 'x', 1), (2, 'y', 2)")
        mirror.run_batch("SET binlog_row_image = 'MINIMAL'", "DELETE FROM t WHERE a = 1")
        mirror.check()
        assert mirror.rows() == [(2, "y", 2)]


def test_a_row_that_is_larger_than_the_target_takes_is_named(mirror: Mirror) -> None:
    mirror.create(t="id INT PRIMARY KEY, v LONGBLOB")
    refusal = r"of 12000\d\d bytes.*SET GLOBAL max_allowed_packet there to 2097152"
    with mirror.target.variable("max_allowed_packet", 1 << 20), pytest.raises(TargetError, match=refusal):
        mirror.run_batch("INSERT INTO t VALUES (1, 'x'), (2, REPEAT('y', 600000))")


def test_time_stamps_arrive_in_the_zone_of_the_destination(mirror: Mirror) -> None:
    zone = "+05:30"
    mirror.create(t="id INT PRIMARY KEY, v TIMESTAMP(3) NULL")
    execute(mirror.source, [MODES, "INSERT INTO t VALUES (1, '2026-03-29 01:30:00.5')"], database=mirror.schema)
    changes = mirror.read()
    in_zone = [{"id": "1", "v": "2026-03-29 07:00:00.500"}]
    images = pa.array([list(it.items()) for it in in_zone], changes.schema.field("after").type)
    changes = changes.set_column(changes.schema.get_field_index("after"), "after", images)
    target = Target(database(mirror.target), zone)
    mirror.begin("batch")
    Applier(target, mirror.run, mirror.schemas).apply(changes, "batch")
    assert mirror.rows("t", "id, UNIX_TIMESTAMP(v)") == mirror._rows(
        mirror.source, mirror.schema, "t", "id, UNIX_TIMESTAMP(v)"
    )


def test_zones_whose_offset_never_changes_need_no_tables_on_the_target() -> None:
    zones = {
        "UTC": "+00:00",
        "Etc/UTC": "+00:00",
        "Etc/GMT-8": "+08:00",
        "Europe/Prague": None,
        "+05:30": None,
        "x": None,
    }
    assert {zone: fixed_offset(zone) for zone in zones} == zones


def test_a_time_zone_that_the_target_does_not_know_is_named(mirror: Mirror) -> None:
    with pytest.raises(TargetError, match=r"does not know the time zone Mars/Olympus.*mysql_tzinfo_to_sql"):
        Target(database(mirror.target), "Mars/Olympus").transact(lambda _: None)


def test_a_target_out_of_reach_is_tried_for_a_while(mariadb118: Server) -> None:
    with Proxy((mariadb118.host, mariadb118.port)) as proxy:
        proxy.close()
        with pytest.raises(TargetError, match=f"log in to 127.0.0.1:{proxy.port} as 'cdc': .*refused"):
            Target(database(mariadb118, proxy.port), retry=1).transact(lambda _: None)


def test_a_wrong_password_is_refused_at_once_and_stays_secret(mysql97: Server) -> None:
    wrong = replace(database(mysql97), password="a secret")
    with pytest.raises(TargetError, match="Access denied") as caught:
        Target(wrong).transact(lambda _: None)
    assert "a secret" not in f"{caught.value} {wrong!r} {wrong}"


def test_the_certificate_of_the_target_is_checked_when_asked(mysql97: Server) -> None:
    checked = replace(database(mysql97), ssl_mode=SslMode.VERIFY_CA, ssl_ca=str(mysql97.data / "ca.pem"))
    assert Target(checked).transact(lambda cursor: cursor.execute("SELECT 1")) == 1
    for unsure in (replace(checked, ssl_mode=SslMode.VERIFY_IDENTITY), replace(checked, ssl_ca=None)):
        with pytest.raises(TargetError, match="certificate"):
            Target(unsure, retry=0).transact(lambda _: None)
