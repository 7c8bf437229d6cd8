"""TiDB's secondary binlog of what real servers write: beside that of the real Drainer, and as its reader reads it."""

import json
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pymysql
import pytest
import urllib3

from scripts.serving import lines_for, started
from sluice.client_sdk.tidb import OLDEST, TiDBReader
from sluice.client_sdk.tidb.message import decode, file_of
from sluice.client_sdk.tidb.mirror import TiDBMirror
from sluice.instance.properties import Property
from sluice.protocol.errors import PartialRowsError, UnfitChangeError
from sluice.protocol.tidb import secondary_pb2 as secondary
from sluice.protocol.tidb.entries import EntryEncoder
from sluice.protocol.tidb.tags import LOGICAL_BITS
from sluice.protocol.tidb.transactions import TidbEncoder
from sluice.server.outputs.kafka.settings import KafkaSettings
from sluice.server.outputs.registry import make
from sluice.server.outputs.settings import Output
from sluice.sql.database import Database as Account
from tests.conftest import Database
from tests.delivery import deliver, end_of_binlog, execute
from tests.effort import times
from tests.integration.test_tdsql import TABLES, Writer, contents
from tests.servers import Server
from tests.servers.kafka import Kafka
from tests.tidb import Step, captured, steps
from tests.unit.outputs.test_kafka_target import batch_of, transaction
from tests.waiting import eventually

Run = Callable[..., list[secondary.Binlog]]


@pytest.fixture
def run(server: Server, database: Database, tmp_path: Path) -> Run:
    """Run statements on one connection; return the records, which are about their schema."""
    schema = database(server)
    tables = ["CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(20))", "CREATE TABLE m (id INT) ENGINE=MyISAM"]
    execute(server, tables, database=schema)

    def run(*statements: str, **settings: Any) -> list[secondary.Binlog]:
        with deliver(server, tmp_path, **({"filter_regex": rf"{schema}\..*"} | settings)) as delivery:
            execute(server, statements, database=schema)
            collected = delivery.collect()
            found = TidbEncoder(limit=1 << 20).encode(collected.slices, 1, positions=collected.positions)
        if found.refused is not None:
            raise found.refused
        binlogs = list(map(secondary.Binlog.FromString, found.values))
        for it in binlogs:
            assert [schema] == [part.schema_name for part in it.dml_data.tables or [it.ddl_data]]
        return binlogs

    return run


def changes(binlog: secondary.Binlog) -> list[tuple[str, str, list[int]]]:
    """The table, type and keys of each change."""
    return [
        (table.table_name, secondary.MutationType.Name(it.type), [row.columns[0].int64_value for row in rows_of(it)])
        for table in binlog.dml_data.tables
        for it in table.mutations
    ]


def rows_of(mutation: secondary.TableMutation) -> Iterator[secondary.Row]:
    yield mutation.row
    if mutation.HasField("change_row"):
        yield mutation.change_row


# --- what becomes of statements --------------------------------------------------------------------------------------


class TestTransactions:
    def test_each_is_a_record_with_an_ascending_commit_ts(self, run: Run) -> None:
        begin = int(time.time())
        found = run(
            "BEGIN", "INSERT INTO t VALUES (1, 'a'), (2, NULL)", "UPDATE t SET name = 'b' WHERE id = 1", "COMMIT",
            "DELETE FROM t WHERE id = 2", "UPDATE t SET id = 5 WHERE id = 1", "INSERT INTO m VALUES (7)",
        )  # fmt: skip
        assert [changes(it) for it in found] == [
            [("t", "Insert", [1]), ("t", "Insert", [2]), ("t", "Update", [1, 1])],
            [("t", "Delete", [2])],
            [("t", "Delete", [1]), ("t", "Insert", [5])],
            [("m", "Insert", [7])],
        ]
        stamps = [it.commit_ts for it in found]
        assert stamps == sorted(set(stamps))
        assert begin * 1000 <= stamps[0] >> LOGICAL_BITS <= stamps[-1] >> LOGICAL_BITS <= (time.time() + 1) * 1000

    def test_statements_that_define_tables_are_records_of_their_own(self, run: Run) -> None:
        found = run("CREATE TABLE n (id INT)", "INSERT INTO n VALUES (1)", "RENAME TABLE n TO k", "DROP TABLE k")
        assert [(it.ddl_data.table_name, changes(it)) for it in found] == [
            ("n", []), ("", [("n", "Insert", [1])]), ("k", []), ("k", []),
        ]  # fmt: skip

    def test_a_table_that_is_made_of_rows_comes_before_them(self, run: Run) -> None:
        run("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
        create, rows = run("CREATE TABLE n SELECT id FROM t")
        assert create.ddl_data.ddl_query.startswith(b"CREATE TABLE ")
        assert changes(rows) == [("n", "Insert", [1]), ("n", "Insert", [2])]
        assert create.commit_ts < rows.commit_ts

    def test_one_that_is_rolled_back_or_empty_is_not_there(self, run: Run) -> None:
        found = run("BEGIN", "INSERT INTO t VALUES (1, 'a')", "ROLLBACK", "BEGIN", "DELETE FROM t", "COMMIT")
        assert found == []

    def test_an_xa_transaction_comes_when_it_is_committed(self, run: Run) -> None:
        found = run(
            "XA START 'a'", "INSERT INTO t VALUES (1, 'a')", "XA END 'a'", "XA PREPARE 'a'",
            "XA COMMIT 'a'",
            "XA START 'b'", "INSERT INTO t VALUES (2, 'b')", "XA END 'b'", "XA PREPARE 'b'", "XA ROLLBACK 'b'",
        )  # fmt: skip
        assert [changes(it) for it in found] == [[("t", "Insert", [1])]]

    def test_rows_without_all_columns_are_refused(self, run: Run) -> None:
        with pytest.raises(PartialRowsError):
            run("SET binlog_row_image = MINIMAL", "INSERT INTO t VALUES (1, 'a')", "UPDATE t SET name = 'b'")

    def test_a_change_that_is_logged_as_a_statement_is_refused(self, run: Run) -> None:
        with pytest.raises(
            UnfitChangeError, match=r"t was logged as a statement, not as rows: set binlog_format = ROW"
        ):
            run("SET binlog_format = STATEMENT", "INSERT INTO t VALUES (1, 'a')", filter_regex="")


# --- beside Drainer --------------------------------------------------------------------------------------------------

LEFT_OUT = ("optimistic_conflict_winner", "optimistic_conflict_loser", "optimistic_duplicate")
"""Steps that need TiDB's optimistic transactions."""
NOT_SENT = {"ddl_create_view", "ddl_drop_view", "ddl_alter_db"}
"""Statements that Canal leaves out."""
ANEW = {"ddl_drop_table": "DROP TABLE `clustered` /* generated by server */"}
"""Statements of which MySQL logs another text."""
WORDS = {"begin pessimistic": "begin", ") nonclustered": ")", "primary key clustered": "primary key"}
"""What of TiDB's statements other servers do not know, and what stands for it."""


def prepared(step: Step) -> list[str]:
    """The statements of a step without TiDB's own words."""
    found = step.sql
    for word, instead in WORDS.items():
        found = [it.replace(word, instead) for it in found]
    return found


def perform(server: Server) -> Iterator[Step]:
    """Run the steps; gives each with the statements that were run."""
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00'")
        for step in steps():
            if step.label in LEFT_OUT:
                continue
            statements = prepared(step)
            failed = ""
            try:
                for sql in statements:
                    cursor.execute(sql)
            except pymysql.MySQLError as error:
                failed = str(error)
                cursor.execute("ROLLBACK")
            assert bool(failed) == (step.error is not None), f"{step.label}: {failed}"
            if step.label == "create_database":
                cursor.execute("USE shop")
            yield Step(step.label, statements, step.error)


@pytest.mark.parametrize("name", ["mysql97", pytest.param("mysql80", marks=pytest.mark.extended)])
def test_the_records_are_those_of_drainer(request: pytest.FixtureRequest, tmp_path: Path, name: str) -> None:
    """All but the commit_ts, the text of statements, and what `differences` says."""
    server: Server = request.getfixturevalue(name)
    try:
        with deliver(server, tmp_path, filter_regex=r"(shop|gone)\..*") as delivery:
            ran = {it.label: it.sql for it in perform(server)}
            collected = delivery.collect(120)
        found = TidbEncoder(limit=1 << 20).encode(collected.slices, 1, positions=collected.positions)
    finally:
        server.query("DROP DATABASE IF EXISTS shop")
        server.query("DROP DATABASE IF EXISTS gone")
        server.query("DROP USER IF EXISTS u1")
    assert found.refused is None
    wanted = [it for it in captured() if it.label not in {*LEFT_OUT, *NOT_SENT}]
    assert len(found.values) == len(wanted)
    last = 0
    for value, theirs in zip(found.values, wanted, strict=True):
        ours, other = secondary.Binlog.FromString(value), secondary.Binlog.FromString(theirs.value)
        assert ours.commit_ts > last
        last = ours.commit_ts
        if other.type == secondary.DDL:
            text = ours.ddl_data.ddl_query.decode()
            assert text in ran[theirs.label] or text == ANEW[theirs.label]
            ours.ddl_data.ddl_query = other.ddl_data.ddl_query
        differences(theirs.label, ours, other)
        ours.commit_ts = other.commit_ts
        assert ours == other, theirs.label
        assert ours.SerializeToString() == other.SerializeToString()


def differences(label: str, ours: secondary.Binlog, theirs: secondary.Binlog) -> None:
    """Take away what may differ."""
    for table in theirs.dml_data.tables:  # Canal's entries know of keys only the primary one
        for key in [key for key in table.unique_keys if key.name != "PRIMARY"]:
            table.unique_keys.remove(key)
    if label == "replace_row":  # MySQL logs REPLACE as an update where no other key is in the way
        (one,), two = ours.dml_data.tables[0].mutations, theirs.dml_data.tables[0].mutations
        assert [one.change_row, one.row] == [it.row for it in two]
        ours.CopyFrom(theirs)
    if label in ("gen_insert", "gen_update"):  # Drainer loses virtual columns, and of updates stored ones
        for mine, its in zip(ours.dml_data.tables[0].mutations, theirs.dml_data.tables[0].mutations, strict=True):
            for row, other in zip(rows_of(mine), rows_of(its), strict=True):
                a = row.columns[1].int64_value
                assert [it.int64_value for it in row.columns[2:]] == [2 * a, a + 1]
                row.CopyFrom(other)


# --- by a broker -----------------------------------------------------------------------------------------------------


def lines(server: Server, schema: str, **settings: object) -> list[str]:
    """Those of a destination that sends a schema from here on."""
    file, offset = end_of_binlog(server)
    return [
        *lines_for(f"{server.host}:{server.port}", server.user, server.password),
        *(f"master.journal.name = {file}", f"master.position = {offset}"),
        rf"filter.regex = {schema}\\..*",
        "sluice.outputs = mq",
        "sluice.output.mq.format = tidb",
        "sluice.output.mq.clientId = 1001",
        *(f"sluice.output.mq.{key} = {value}" for key, value in settings.items()),
    ]


def wait_for(url: str, condition: Callable[[dict[str, Any]], object], seconds: float = 60) -> dict[str, Any]:
    """Wait for a state of the output; return it."""
    output: dict[str, Any] = {}

    def is_there() -> object:
        output.update(urllib3.request("GET", f"{url}/v1/destinations/shop").json()["outputs"][0])
        return condition(output)

    eventually(is_there, lambda: json.dumps(output), seconds)
    return output


@pytest.mark.parametrize(
    ("seed", "transactions", "seconds"),
    [(3, times(100, 1_000), 120), pytest.param(4, 30_000, 1800, marks=[pytest.mark.soak, pytest.mark.timeout(7200)])],
)
@pytest.mark.parametrize("name", ["mysql97", pytest.param("mariadb118", marks=pytest.mark.extended)])
def test_a_copy_by_the_reader_has_the_tables_of_the_source(
    request: pytest.FixtureRequest,
    kafka: Kafka,
    database: Database,
    name: str,
    seed: int,
    transactions: int,
    seconds: float,
) -> None:
    server: Server = request.getfixturevalue(name)
    source, copy = database(server), database(server)
    number = server.port * 10 + seed
    kafka.create(f"{number}_obinlog")
    for schema, engine in ((source, "MyISAM"), (copy, "InnoDB")):
        tables = [it.replace("MyISAM", engine) for it in TABLES]
        execute(server, ["SET sql_mode = ''", "SET sql_log_bin = 0", *tables], database=schema)
    own = lines(server, source, clusterId=number, maxBytes=1024)  # so that batches end inside transactions
    with started({"shop": own}, main=[f"kafka.bootstrap.servers = {kafka.servers}"]) as sluice:
        with closing(server.connect(database=source)) as connection, connection.cursor() as cursor:
            cursor.execute("SET sql_mode = '', time_zone = '+00:00'")
            for statements in Writer(seed).transactions(transactions):
                for statement in statements:
                    cursor.execute(statement)
            cursor.execute("CREATE TABLE finished (id INT)")
            cursor.execute("INSERT INTO finished VALUES (1)")
        with TiDBReader(kafka.servers, cluster_id=number, offset=OLDEST) as reader, closing(mirror(server)) as target:
            target.open()
            encoder = EntryEncoder(file_of("copy"))
            found = 0
            deadline = time.monotonic() + seconds
            while True:
                message = reader.get(1)
                if message is None:
                    assert time.monotonic() < deadline, wait_for(sluice.url, lambda _: True)
                    continue
                value = moved(message.binlog, copy)
                target.apply([decode(encoder, "copy", message.offset, value)])
                found += 1
                if b"finished" in value and not message.binlog.ddl_data.ddl_query:
                    break
    server.query("DROP DATABASE IF EXISTS sluice")
    assert contents(server, copy) == contents(server, source)
    assert found > transactions / 2


def moved(binlog: secondary.Binlog, schema: str) -> bytes:
    """The record with another schema."""
    for it in binlog.dml_data.tables:
        it.schema_name = schema
    if binlog.type == secondary.DDL:
        binlog.ddl_data.schema_name = schema
    return binlog.SerializeToString()


def mirror(server: Server) -> TiDBMirror:
    return TiDBMirror(Account(server.host, server.port, server.user, server.password), "copy")


def kept_by(
    kafka: Kafka, topic: str, memory: str, numbers: list[int], moved: str = "", shape: str = "", server: str = "1"
) -> str:
    """Send transactions of one second, and be killed before they are confirmed; return what was stored before."""
    settings = KafkaSettings(form="tidb", cluster_id=7, topic=topic)
    library = {"bootstrap.servers": Property(kafka.servers, "test")}
    output = Output("shop", "mq", settings, shared=False, library=library, shape=shape)
    target = make(output, lambda: "")
    target.open(memory, moved, 1)
    sent = batch_of([entry for it in numbers for entry in transaction(it, time=5)])
    prepared = target.prepare(replace(sent, to=sent.to.replace("1/", f"{server}/", 1)))
    kept = target.memory_before([prepared]) or memory
    target.send([prepared], None)
    target.close()
    return kept


@pytest.mark.parametrize(
    ("moved", "change", "again", "taken", "said"),
    [
        ("", {}, [1, 2, 3], [1, 2, 3], []),
        ("", {"shape": "another filter"}, [0, 1, 2, 3], [1, 2, 0, 1, 2, 3], ["other changes are chosen than before"]),
        # It has lost a transaction.
        ("", {"server": "2"}, [1, 3], [1, 2, 1, 3], ["2 is read, and what was sent was read from 1"]),
        ("5-ab", {}, [3], [1, 2, 3], ["its client was moved by hand"]),
    ],
    ids=["the same", "another choice", "another server", "a move by hand"],
)
def test_after_a_kill_readers_take_what_was_sent_once_and_all_that_they_have_not_had(
    kafka: Kafka,
    caplog: pytest.LogCaptureFixture,
    moved: str,
    change: dict[str, str],
    again: list[int],
    taken: list[int],
    said: list[str],
) -> None:
    topic = f"again-{uuid.uuid4().hex}"
    kafka.create(topic)
    kept = kept_by(kafka, topic, "", [1, 2])
    kept = kept_by(kafka, topic, kept, again, moved, **change)
    kept_by(kafka, topic, kept, again, **change)  # now nothing has changed
    (values,) = kafka.read(topic)
    last, found = 0, []
    for it in map(secondary.Binlog.FromString, values):
        if it.commit_ts > last:
            last = it.commit_ts
            found.append(int(it.dml_data.tables[0].mutations[0].row.columns[0].string_value))
    assert found == taken
    assert [it.getMessage().partition(" not to drop it: ")[2] for it in caplog.records] == said


@pytest.mark.extended
def test_a_transaction_that_is_too_large_stops_the_output_until_it_is_skipped(
    kafka: Kafka, mariadb118: Server, database: Database
) -> None:
    schema = database(mariadb118)
    topic = f"large-{schema}"
    kafka.create(topic)
    execute(mariadb118, ["CREATE TABLE t (id INT PRIMARY KEY, v TEXT)", "CREATE TABLE u (id INT)"], database=schema)
    own = lines(mariadb118, schema, topic=topic, maxBytes=4096)
    main = [f"kafka.bootstrap.servers = {kafka.servers}", "kafka.max.request.size = 20000"]
    with started({"shop": own}, main=main) as sluice:
        execute(
            mariadb118,
            [
                "INSERT INTO u VALUES (1)",
                "BEGIN",
                "INSERT INTO u VALUES (2)",
                *(f"INSERT INTO t VALUES ({number}, REPEAT('x', 900))" for number in range(40)),
                "COMMIT",
                "INSERT INTO u VALUES (3)",
            ],
            database=schema,
        )
        error = wait_for(sluice.url, lambda it: it["state"] == "error")["error"]
        assert f"a transaction with changes of {schema}.u, {schema}.t is too large for a record: " in error
        assert "bytes or more of 19872. Raise kafka.max.request.size, and max.message.bytes of the topic" in error
        position = error.rpartition(", at ")[2]
        skip = urllib3.request(
            "POST",
            f"{sluice.url}/v1/destinations/shop/clients/1001/skip",
            body=json.dumps({"position": position}),
            headers={"Content-Type": "application/json"},
        )
        assert skip.status == 200, skip.data
        wait_for(sluice.url, lambda it: it["records"] == 2 and it["state"] == "running")
    (values,) = kafka.read(topic)
    assert [changes(secondary.Binlog.FromString(it)) for it in values] == [[("u", "Insert", [it])] for it in (1, 3)]


@pytest.mark.parametrize("slots", [16, pytest.param(1024, marks=pytest.mark.extended)])
def test_without_catch_up_readers_it_recovers_from_an_error_inside_a_transaction(
    kafka: Kafka, mariadb118: Server, database: Database, slots: int
) -> None:
    schema = database(mariadb118)
    topic = f"small-{schema}"
    kafka.create(topic)
    execute(mariadb118, ["CREATE TABLE t (id INT PRIMARY KEY, v TEXT)"], database=schema)
    own = lines(mariadb118, schema, topic=topic, maxBytes=4096)
    own += ["sluice.instance.catchUp.readers = 0", f"memory.buffer.size = {slots}"]  # 16 do not hold the transaction
    with started({"shop": own}, main=[f"kafka.bootstrap.servers = {kafka.servers}"]) as sluice:
        execute(mariadb118, ["INSERT INTO t VALUES (100, '')"], database=schema)
        wait_for(sluice.url, lambda it: it["records"] == 1)
        kafka.alter(topic, max_message_bytes="20000")
        rows = [f"INSERT INTO t VALUES ({number}, REPEAT('x', 900))" for number in range(40)]
        execute(mariadb118, ["BEGIN", *rows, "COMMIT"], database=schema)
        wait_for(sluice.url, lambda it: it["state"] == "error" and "max.message.bytes" in it["error"])
        kafka.alter(topic, max_message_bytes="2000000")
        urllib3.request("POST", f"{sluice.url}/v1/destinations/shop/start")  # which tries again at once
        wait_for(sluice.url, lambda it: it["records"] == 2 and it["state"] == "running")
    (values,) = kafka.read(topic)
    assert [changes(secondary.Binlog.FromString(it)) for it in values] == [
        [("t", "Insert", [100])],
        [("t", "Insert", [number]) for number in range(40)],
    ]
