"""The mirror: a target that is like the source, however it is started, stopped and started again."""

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sluice.client_sdk.spark.mirror import start_mirror
from sluice.protocol.errors import BadParameterError, TargetError
from sluice.sql.database import Database
from tests.conftest import Database as Schemas
from tests.faults.harness import Load, Sluice
from tests.servers import Server
from tests.spark.streams import SECONDS, failure, prepare, until
from tests.waiting import eventually

PASSWORD = "Geheim 7'\"\\é"
JAVA = "Picked up JDK_JAVA_OPTIONS"
"""Says Spark's Java when it starts."""
CODES = "id INT PRIMARY KEY, code VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci, UNIQUE KEY (code)"


class Mirror:
    """A mirror of one schema into another one, by an account of its own."""

    def __init__(
        self, spark: SparkSession, sluice: Sluice, folder: Path, source: tuple[Server, str], target: tuple[Server, str]
    ) -> None:
        self.spark, self.sluice = spark, sluice
        self.checkpoint = folder / "checkpoint"
        self.source, self.schema = source
        self.target, self.copy = target
        self.progress = f"{self.copy}_progress"
        self.source_options: dict[str, str] = {}
        self.database = Database(self.target.host, self.target.port, self.copy, PASSWORD)

    def create(self, **tables: str) -> None:
        """Create tables on both sides."""
        for table, definition in tables.items():
            for server, schema in ((self.source, self.schema), (self.target, self.copy)):
                server.query(f"CREATE TABLE {table} ({definition})", database=schema)

    def start(self, client: int = 3001, **options: Any) -> StreamingQuery:
        """Start it, with small micro-batches."""
        source = {
            "url": self.sluice.url,
            "destination": "shop",
            "clientId": client,
            "maxRowsPerTrigger": 200,
        } | self.source_options
        given = {"schemas": {self.schema: self.copy}, "progress": self.progress} | options
        return start_mirror(self.spark, self.database, str(self.checkpoint), source, **given)

    def apply_all(self, **options: Any) -> None:
        """Run it until everything that is there now is applied."""
        query = self.start(once=True, **options)
        try:
            assert query.awaitTermination(SECONDS), query.status
        finally:
            query.stop()

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        return self.target.query(f"SELECT * FROM {table} ORDER BY id", database=self.copy)

    def check(self, *tables: str) -> None:
        """Check that both sides are equal, and the progress the same everywhere."""
        for table in tables:
            assert self.rows(table) == self.source.query(f"SELECT * FROM {table} ORDER BY id", database=self.schema)
        places = "COUNT(DISTINCT pos_file, pos_begin, pos_n, pos_row), COUNT(batch)"
        assert self.target.query(f"SELECT {places} FROM sluice_progress", database=self.progress) == [(1, 0)]

    def watch(self, table: str) -> None:
        """Have the target remember each row that is inserted."""
        self.target.query("CREATE TABLE seen (n INT PRIMARY KEY AUTO_INCREMENT, id INT)", database=self.copy)
        self.target.query(
            f"CREATE TRIGGER see AFTER INSERT ON {table} FOR EACH ROW INSERT INTO seen (id) VALUES (NEW.id)",
            database=self.copy,
        )

    @property
    def seen(self) -> tuple[int, int]:
        """Rows that were inserted, and different ones of them."""
        ((rows, different),) = self.target.query("SELECT COUNT(*), COUNT(DISTINCT id) FROM seen", database=self.copy)
        return rows, different

    def command(self, *arguments: str, **environ: str) -> "subprocess.Popen[str]":
        """Start the command."""
        command = [sys.executable, "-m", "sluice.server.cli", "spark", "mirror", "shop", "3001"]
        to = f"mysql://{self.copy}@{self.target.host}:{self.target.port}"
        places = ["--url", self.sluice.url, "--to", to, "--checkpoint", str(self.checkpoint)]
        names = ["--schema", f"{self.schema}={self.copy}", "--progress", self.progress]
        return subprocess.Popen(
            [*command, *places, *names, "--master", "local[2]", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env=os.environ | {"SLUICE_TARGET_PASSWORD": PASSWORD} | environ,
        )


@pytest.fixture
def target(mysql97: Server) -> Server:
    """The target of most tests."""
    return mysql97


@pytest.fixture
def mirror(
    spark: SparkSession, sluice: Sluice, source: Server, schema: str, target: Server, database: Schemas, tmp_path: Path
) -> Iterator[Mirror]:
    """A mirror whose account has what the guide asks for, and no more."""
    copy = database(target)
    made = Mirror(spark, sluice, tmp_path, (source, schema), (target, copy))
    target.query(f"CREATE USER {copy} IDENTIFIED BY %s", (PASSWORD,))
    target.query(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {copy}.* TO {copy}")
    target.query(f"GRANT SELECT, INSERT, UPDATE, CREATE ON {made.progress}.* TO {copy}")
    try:
        yield made
    finally:
        for query in spark.streams.active:
            query.stop()
        target.query(f"DROP USER {copy}")
        target.query(f"DROP DATABASE IF EXISTS {made.progress}")


class Swaps(threading.Thread):
    """Swaps codes, which are unique, between rows, moves rows to other ids, and writes letters large and small."""

    def __init__(self, source: Server, schema: str, count: int) -> None:
        super().__init__(daemon=True)
        self._source, self._schema, self._count = source, schema, count

    def run(self) -> None:
        chance = random.Random(3)
        with self._source.connect(database=self._schema) as connection, connection.cursor() as cursor:
            cursor.execute("INSERT INTO codes VALUES " + ",".join(f"({it}, 'a{it}')" for it in range(40)))
            for _ in range(self._count):
                one, other = chance.sample(range(40), 2)
                cursor.execute("SELECT id, code FROM codes WHERE MOD(id, 1000) IN (%s, %s)", (one, other))
                (id_, code), (other_id, other_code) = cursor.fetchall()
                for change in (
                    (None, id_),
                    (code.swapcase(), other_id),
                    (other_code, id_),
                ):
                    cursor.execute("UPDATE codes SET code = %s WHERE id = %s", change)
                cursor.execute("UPDATE codes SET id = %s WHERE id = %s", ((id_ + 1000) % 3000, id_))


@pytest.mark.extended
def test_the_target_is_like_the_source_after_stops_and_starts_while_writes_go_on(mirror: Mirror) -> None:
    mirror.create(codes=CODES)
    with Load(mirror.source, mirror.schema, writers=2, count=150) as load:
        for table in (*Load.TABLES, "finished"):
            definition = "id INT PRIMARY KEY, writer INT, n INT, v VARCHAR(500)"
            mirror.target.query(f"CREATE TABLE {table} ({definition}) CHARSET utf8mb4", database=mirror.copy)
        mirror.watch("ledger")
        swaps = Swaps(mirror.source, mirror.schema, 150)
        swaps.start()
        for tasks in (2, 3, 1):
            query = mirror.start(tasks=tasks)
            until(lambda query=query: sum(it.numInputRows for it in query.recentProgress) > 200, query)  # type: ignore[misc]
            query.stop()
        load.finish()
        swaps.join()
    mirror.apply_all()
    mirror.check(*Load.TABLES, "finished", "codes")
    assert mirror.seen == (300, 300)


@pytest.mark.extended
def test_an_xa_transaction_is_applied_when_it_is_committed(mirror: Mirror) -> None:
    mirror.create(t="id INT PRIMARY KEY")
    prepare(mirror.source, mirror.schema, "INSERT INTO t VALUES (1)", "ROLLBACK")
    prepare(mirror.source, mirror.schema, "INSERT INTO t VALUES (2)", "COMMIT")
    mirror.apply_all()
    assert mirror.rows("t") == [(2,)]


def test_a_lost_checkpoint_does_no_harm(mirror: Mirror) -> None:
    mirror.create(t="id INT PRIMARY KEY, v INT")
    mirror.watch("t")
    for number in range(2):
        rows = ",".join(f"({number * 100 + it}, 0)" for it in range(100))
        mirror.source.query(f"INSERT INTO t VALUES {rows}", database=mirror.schema)
        mirror.apply_all()
        mirror.check("t")
        shutil.rmtree(mirror.checkpoint)
    assert mirror.seen == (200, 200)


@pytest.mark.extended
def test_a_ddl_is_waited_for(mirror: Mirror) -> None:
    mirror.create(t="id INT PRIMARY KEY", u="id INT PRIMARY KEY")
    for statement in (
        "INSERT INTO t VALUES (1)",
        "ALTER TABLE t ADD COLUMN v INT",
        "INSERT INTO t VALUES (2, 3)",
        "INSERT INTO u SELECT seq FROM seq_1_to_50",
    ):
        mirror.source.query(statement, database=mirror.schema)
    query = mirror.start(once=True)
    said = failure(query)
    assert f"TargetError: the target lacks v. A change of {mirror.schema}.t has the columns id, v;" in said
    assert mirror.rows("t") == [(1,)]
    batches = mirror.target.query("SELECT DISTINCT batch FROM sluice_progress", database=mirror.progress)
    assert set(batches) <= {(None,), (f"{query.id}/1",)}, "other tasks may have done their part of the micro-batch"
    mirror.target.query("ALTER TABLE t ADD COLUMN v INT", database=mirror.copy)
    mirror.apply_all()
    mirror.check("t")


@pytest.mark.extended
def test_a_schema_is_not_mirrored_to_itself(mirror: Mirror) -> None:
    mirror.create(t="id INT PRIMARY KEY")
    mirror.source.query("INSERT INTO t VALUES (1)", database=mirror.schema)
    source = Database(mirror.source.host, mirror.source.port, mirror.source.user, mirror.source.password)
    mirror.database = source
    try:
        said = failure(mirror.start(once=True, schemas={}))
        assert f"{mirror.schema}.t would be mirrored to itself" in said
        assert "name another schema" in said
    finally:
        mirror.source.query(f"DROP DATABASE IF EXISTS {mirror.progress}")


@pytest.mark.extended
def test_a_second_start_of_a_job_stops_the_first(mirror: Mirror) -> None:
    mirror.create(t="id INT PRIMARY KEY")
    first = mirror.start(job="one")
    mirror.source.query("INSERT INTO t VALUES (1)", database=mirror.schema)
    eventually(lambda: mirror.rows("t"), first.exception, SECONDS)
    mirror.checkpoint = mirror.checkpoint.with_name("other")
    second = mirror.start(client=3002, job="one")
    mirror.source.query("INSERT INTO t VALUES (2)", database=mirror.schema)
    assert "TargetError: the job one was started again elsewhere" in failure(first)
    eventually(lambda: len(mirror.rows("t")) == 2, second.exception, SECONDS)


def test_what_cannot_work_is_said_before_the_query_starts(mirror: Mirror) -> None:
    with pytest.raises(BadParameterError, match="choose by `filter`"):
        start_mirror(mirror.spark, mirror.database, "checkpoint", {"table": "shop.goods"})
    mirror.database = Database(mirror.target.host, mirror.target.port, mirror.copy, "another password")
    with pytest.raises(TargetError, match="Access denied"):
        mirror.start()
    mirror.database = Database(mirror.target.host, mirror.target.port, mirror.copy, PASSWORD)
    with pytest.raises(TargetError, match=r"cannot keep the progress: .* schema elsewhere, or name another"):
        mirror.start(progress="elsewhere")


@pytest.mark.extended
def test_the_password_is_in_no_plan(mirror: Mirror) -> None:
    mirror.create(t="id INT PRIMARY KEY")
    mirror.source.query("INSERT INTO t VALUES (1)", database=mirror.schema)
    mirror.apply_all()
    mirror.check("t")
    executions = mirror.spark._jsparkSession.sharedState().statusStore().executionsList()
    plans = [executions.apply(number).physicalPlanDescription() for number in range(executions.size())]
    assert any("MapInArrow" in plan for plan in plans)
    assert not any("Geheim" in plan for plan in plans)


@pytest.mark.extended
@pytest.mark.timeout(600)
def test_the_command_goes_on_after_kill_and_ends_in_order_when_it_is_asked_to(mirror: Mirror) -> None:
    mirror.create(codes=CODES)
    swaps = Swaps(mirror.source, mirror.schema, 600)
    swaps.start()

    def position() -> object:
        return mirror.target.query("SELECT pos_file, pos_begin FROM sluice_mirror", database=mirror.progress)

    printed = []
    for stop in (signal.SIGKILL, signal.SIGTERM):
        process = mirror.command("--max-rows", "100")
        try:
            eventually(lambda: mirror.target.query("SHOW DATABASES LIKE %s", (mirror.progress,)), process.poll, 120)
            before = position()
            eventually(lambda before=before: position() != before, process.poll, 120)  # type: ignore[misc]
        finally:
            os.killpg(process.pid, stop) if stop == signal.SIGKILL else process.send_signal(stop)
            _, error = process.communicate(timeout=120)
            printed.append(error)
    assert process.returncode == 0, error
    swaps.join()
    process = mirror.command("--once")
    _, error = process.communicate(timeout=120)
    printed.append(error)
    assert re.search(r"^\d+ rows written, 0 rows and 0\.0 s behind$", error.splitlines()[-1]), error
    mirror.check("codes")
    process = mirror.command("--once", SLUICE_TARGET_PASSWORD="Geheim, but wrong")
    _, error = process.communicate(timeout=120)
    assert process.returncode == 3
    assert re.search(rf"^sluice: .*cannot log in to .* as '{mirror.copy}': Access denied", error, re.MULTILINE)
    assert [JAVA in text for text in (*printed, error)] == [True, True, True, False], "it is said before Spark starts"
    assert not any("Geheim" in text for text in (*printed, error))
