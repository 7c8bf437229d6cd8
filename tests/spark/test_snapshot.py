"""Tables as they are now in Spark, and copies of them that a mirror goes on with."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from sluice.client_sdk.spark.mirror import start_mirror
from sluice.client_sdk.spark.snapshot import load_snapshot
from sluice.protocol.errors import TargetError
from sluice.sql.database import Database as AddressOf
from tests.conftest import Database
from tests.faults.harness import Sluice
from tests.servers import Server
from tests.spark.streams import load, options
from tests.waiting import eventually

pytestmark = pytest.mark.extended


def reading_of(source: Server) -> dict[str, str]:
    """Options that say where the tables are read."""
    return {"snapshot": f"mysql://{source.user}@{source.host}:{source.port}", "snapshotPassword": source.password}


def snapshot(spark: SparkSession, source: Server, **others: object) -> DataFrame:
    """A snapshot of tables of the source."""
    given = reading_of(source) | others
    return spark.read.format("sluice").options(**{name: str(value) for name, value in given.items()}).load()


@pytest.fixture
def secret(source: Server) -> Iterator[str]:
    """The password of an account `reader` that may read everything."""
    password = "not-to-be-shown"
    source.query(f"CREATE USER reader@'%' IDENTIFIED BY '{password}'")
    source.query("GRANT SELECT ON *.* TO reader@'%'")
    yield password
    source.query("DROP USER reader@'%'")


def test_a_table_is_read_in_ranges_with_the_types_of_the_stream(
    spark: SparkSession, source: Server, schema: str, sluice: Sluice, secret: str
) -> None:
    source.query(
        f"CREATE TABLE {schema}.goods (name VARCHAR(20) PRIMARY KEY, price DECIMAL(10,2), made TIMESTAMP(3) NULL,"
        " data BINARY(4), colour ENUM('red', 'blue'), tags SET('a', 'b'), n BIGINT UNSIGNED, f FLOAT, day DATE)"
    )
    rows = ", ".join(
        f"('ž{i}', {i}.5, FROM_UNIXTIME({i}), X'00FF{i % 256:02X}01', 'blue', 'a,b', {(1 << 64) - 1 - i}, 1, 20260101)"
        for i in range(1, 1001)
    )
    source.query(f"INSERT INTO {schema}.goods VALUES {rows}")
    found = snapshot(
        spark,
        source,
        snapshot=f"mysql://reader@{source.host}:{source.port}",
        snapshotPassword=secret,
        table=f"{schema}.goods",
        snapshotRows=150,
    )
    assert found.schema == load(spark, sluice, table=f"{schema}.goods").schema
    assert found.rdd.getNumPartitions() == 7
    assert secret not in found._jdf.queryExecution().toString()
    assert found.select("name").distinct().count() == 1000
    [row] = found.where("name = 'ž777'").collect()
    assert (row["_pos"], row["_gtid"], row["_op"]) == (None, None, "INSERT")
    assert str(row["price"]) == "777.50"
    assert row["made"].timestamp() == 777
    assert row["data"] == b"\0\xff\x09\x01"
    assert (row["colour"], row["tags"], row["n"]) == ("blue", ["a", "b"], (1 << 64) - 1 - 777)


def test_all_tables_of_the_stream_are_read_as_maps(
    spark: SparkSession, source: Server, schema: str, sluice: Sluice
) -> None:
    source.query(f"CREATE TABLE {schema}.goods (id INT PRIMARY KEY, name VARCHAR(20))")
    source.query(f"CREATE TABLE {schema}.orders (id INT, line INT, PRIMARY KEY (id, line))")
    source.query(f"CREATE TABLE {schema}.notes (text TEXT)")
    source.query(f"INSERT INTO {schema}.goods VALUES (1, 'a'), (2, NULL)")
    source.query(f"INSERT INTO {schema}.orders VALUES (1, 7)")
    found = snapshot(spark, source, filter=r".*\.(goods|orders)", **options(sluice)).orderBy("_table", "_key").collect()
    assert [(row["_op"], row["_schema"], row["_table"], row["_key"], row["after"]) for row in found] == [
        ("INSERT", schema, "goods", ["1"], {"id": "1", "name": "a"}),
        ("INSERT", schema, "goods", ["2"], {"id": "2", "name": None}),
        ("INSERT", schema, "orders", ["1", "7"], {"id": "1", "line": "7"}),
    ]


def test_what_cannot_be_read_is_an_error(spark: SparkSession, source: Server, schema: str) -> None:
    with pytest.raises(Exception, match=f"{schema}.nothing is unknown to .*GRANT SELECT"):
        snapshot(spark, source, table=f"{schema}.nothing")
    with pytest.raises(Exception, match=r"cannot log in to .* as 'cdc'"):
        snapshot(spark, source, table=f"{schema}.nothing", snapshotPassword="wrong")
    stream = spark.readStream.format("sluice").option("snapshot", "mysql://cdc@127.0.0.1").load()
    with pytest.raises(StreamingQueryException, match=r"a snapshot is read by spark\.read"):
        stream.writeStream.format("noop").start().awaitTermination(60)


class Churn(threading.Thread):
    """Changes rows of all kinds until it is stopped: new ones, gone ones, other keys, swapped unique values."""

    def __init__(self, source: Server, schema: str) -> None:
        super().__init__(daemon=True)
        self.done = 0
        self._connection = source.connect(database=schema, autocommit=False)
        self._numbers = random.Random(7)
        self._ended = threading.Event()
        self._failure: Exception | None = None
        self._next = 10_000

    def stop(self) -> None:
        self._ended.set()
        self.join(30)
        self._connection.close()
        assert self._failure is None, self._failure

    def run(self) -> None:
        try:
            with self._connection.cursor() as cursor:
                while not self._ended.is_set():
                    for _ in range(self._numbers.randrange(1, 4)):
                        self._change(cursor)
                    self._connection.commit()
                    self.done += 1
                    time.sleep(0.002)  # leave something of the machine to the others
        except Exception as error:  # noqa: BLE001  told by stop()
            self._failure = error

    def _change(self, cursor: Any) -> None:
        numbers = self._numbers
        self._next += 1
        one, other = (numbers.randrange(2000) for _ in range(2))
        what = numbers.randrange(7)
        if what == 0:
            cursor.execute("INSERT INTO orders (id, u, v) VALUES (%s, %s, 'new')", (self._next, self._next))
            cursor.execute("INSERT IGNORE INTO names VALUES (%s, %s, 'new')", (f"ž{one}", other % 3))
        elif what == 1:
            cursor.execute("UPDATE orders SET v = CONCAT(LEFT(v, 20), %s), at = NOW(3) WHERE id = %s", (one, one))
            cursor.execute("UPDATE names SET v = %s WHERE name = %s", (str(other), f"Ž{one}"))
        elif what == 2:
            cursor.execute("DELETE FROM orders WHERE id IN (%s, %s)", (one, self._next - other % 50))
            cursor.execute("DELETE FROM names WHERE name = %s", (f"ž{other}",))
        elif what == 3:
            cursor.execute("UPDATE orders SET id = %s WHERE id = %s", (self._next, one))
        elif what == 4:
            cursor.execute("UPDATE IGNORE names SET name = %s, n = 9 WHERE name = %s", (f"ž{one}", f"ž{other}"))
        else:
            cursor.execute("SELECT id, u FROM orders WHERE id IN (%s, %s) FOR UPDATE", (one, other))
            found = cursor.fetchall()
            if len(found) == 2:
                (first, mine), (second, theirs) = found
                cursor.execute("UPDATE orders SET u = -1 WHERE id = %s", (first,))
                cursor.execute("UPDATE orders SET u = %s WHERE id = %s", (mine, second))
                cursor.execute("UPDATE orders SET u = %s WHERE id = %s", (theirs, first))


TABLES = {
    "orders": "id INT PRIMARY KEY, u INT NOT NULL, v VARCHAR(50), at TIMESTAMP(3) NULL, d DECIMAL(12,3), UNIQUE (u)",
    "names": "name VARCHAR(20) COLLATE utf8mb4_unicode_ci, n INT, v VARCHAR(20), PRIMARY KEY (name, n)",
}


@pytest.mark.timeout(400)  # two starts of Spark
def test_a_copy_and_the_changes_since_make_the_target_equal_although_it_is_killed_and_writes_go_on(
    spark: SparkSession,
    source: Server,
    schema: str,
    sluice: Sluice,
    mysql97: Server,
    database: Database,
    tmp_path: Path,
) -> None:
    copy = database(mysql97)
    for name, columns in TABLES.items():
        source.query(f"CREATE TABLE {schema}.{name} ({columns})")
        mysql97.query(f"CREATE TABLE {copy}.{name} ({columns})")
    rows = ", ".join(f"({i}, {-10 - i}, 'as it was', FROM_UNIXTIME({i + 1}), {i}.125)" for i in range(2000))
    source.query(f"INSERT INTO {schema}.orders VALUES {rows}")
    rows = ", ".join(f"('ž{i}', 1, 'x')" for i in range(0, 2000, 3))
    source.query(f"INSERT INTO {schema}.names VALUES {rows}")
    target = AddressOf(mysql97.host, mysql97.port, mysql97.user, mysql97.password)
    stream = options(sluice, clientId=3001)
    reading = stream | reading_of(source) | {"snapshotRows": "300"}
    given: dict[str, Any] = {"schemas": {schema: copy}, "progress": f"{copy}_progress"}
    chunks = f"SELECT source_table, number, is_done, loaded FROM {copy}_progress.sluice_chunks"
    tables = "SELECT 1 FROM information_schema.tables WHERE table_schema = '{}' AND table_name = 'sluice_chunks'"
    churn = Churn(source, schema)
    churn.start()
    try:
        with subprocess.Popen(
            [
                *(sys.executable, "-m", "sluice.server.cli", "spark", "mirror", "shop", "3001", "--url", sluice.url),
                *("--to", f"mysql://{mysql97.user}@{mysql97.host}:{mysql97.port}", "--schema", f"{schema}={copy}"),
                *("--progress", given["progress"], "--checkpoint", str(tmp_path / "checkpoint")),
                *("--snapshot", reading["snapshot"], "--snapshot-rows", "300", "--max-rows-per-second", "800"),
                *("--master", "local[2]"),
            ],
            env=os.environ | {"SLUICE_TARGET_PASSWORD": mysql97.password, "SLUICE_SNAPSHOT_PASSWORD": source.password},
            start_new_session=True,
        ) as command:
            eventually(lambda: mysql97.query(tables.format(given["progress"])), "chunks", 120)
            eventually(lambda: len(mysql97.query(chunks + " WHERE is_done")) > 1, "chunks that are done", 120)
            os.killpg(command.pid, signal.SIGKILL)
        done = set(mysql97.query(chunks + " WHERE is_done"))
        assert 0 < len(done) < len(mysql97.query(chunks))
        before = churn.done
        seen: list[str] = []
        assert load_snapshot(spark, target, reading, stop=lambda: True, **given) is None
        position = load_snapshot(spark, target, reading, report=lambda it: seen.append(str(it)), **given)
        assert churn.done > before
        found = mysql97.query(chunks)
        assert len(found) >= 2000 // 300
        assert done < set(found)
        assert all(is_done for _, _, is_done, _ in found)
        assert "2 of 2 tables" in seen[-1]
        assert load_snapshot(spark, target, reading, **given) == position
        assert contents(mysql97, copy) != contents(source, schema)
        query = start_mirror(spark, target, str(tmp_path / "checkpoint"), stream, **given)
        eventually(lambda: query.lastProgress is not None and query.lastProgress.batchId > 1, "micro-batches", 60)
        before = churn.done
        eventually(lambda: churn.done > before + 20, "changes", 60)
        query.stop()
    finally:
        churn.stop()
    query = start_mirror(spark, target, str(tmp_path / "checkpoint"), stream, once=True, **given)
    assert query.awaitTermination(100)
    assert contents(mysql97, copy) == contents(source, schema)
    mysql97.query(f"DROP DATABASE {copy}_progress")


def contents(server: Server, schema: str) -> dict[str, list[tuple[object, ...]]]:
    """All rows, in an order that does not depend on collations."""
    rows = {}
    with closing(server.connect(database=schema, init_command="SET time_zone = '+00:00'")) as connection:
        for name in TABLES:
            with connection.cursor() as cursor:
                cursor.execute(f"SELECT * FROM {name}")
                rows[name] = sorted(cursor.fetchall(), key=repr)
    return rows


def test_a_snapshot_is_refused_whose_changes_are_gone(
    spark: SparkSession, source: Server, schema: str, sluice: Sluice, mysql97: Server, database: Database
) -> None:
    copy = database(mysql97)
    for server, name in ((source, schema), (mysql97, copy)):
        server.query(f"CREATE TABLE {name}.t (id INT PRIMARY KEY)")
    target = AddressOf(mysql97.host, mysql97.port, mysql97.user, mysql97.password)
    reading = options(sluice, clientId=3002) | reading_of(source)
    given: dict[str, Any] = {"schemas": {schema: copy}, "progress": f"{copy}_progress"}
    mysql97.query(f"INSERT INTO {copy}.t VALUES (1)")
    with pytest.raises(TargetError, match=rf"{copy}\.t on the target has rows"):
        load_snapshot(spark, target, reading, **given)
    source.query(f"INSERT INTO {schema}.t VALUES (2)")
    with sluice.client(3002) as client:
        client.ack(client.position(client.status()["position"], timeout=10).to, durable=True)
    with pytest.raises(TargetError, match="changes in between were confirmed, and the copy would lack them"):
        load_snapshot(spark, target, reading, overwrite=True, **given)
    load_snapshot(spark, target, reading, overwrite=True, job="another", **given)
    assert mysql97.query(f"SELECT * FROM {copy}.t") == [(2,)]
    mysql97.query(f"DROP DATABASE {copy}_progress")
