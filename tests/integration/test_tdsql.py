"""TDSQL's messages of what real servers write, and the tables that a consumer makes of nothing else."""

import json
import random
import re
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import urllib3
from pymysql.constants import CLIENT

from scripts.serving import lines_for, started
from sluice.protocol.errors import PartialRowsError
from sluice.protocol.tdsql.messages import TdsqlEncoder
from tests.conftest import Database
from tests.delivery import deliver, end_of_binlog, execute
from tests.effort import times
from tests.servers import Server
from tests.servers.kafka import Kafka
from tests.waiting import eventually

Run = Callable[..., list[bytes]]

SOURCE = ("10.0.0.7", 3306)
WITHOUT_GTIDS = {"mysql56", "mysql57", "mysql80"}
"""Servers of the tests that have GTID mode off."""
HEAD = b'{"logtype":"mysqlbinlog","eventtype":%d,"eventtypestr":"%s","db":"%s","table":"%s",'
PLACE = b'"localip":"10.0.0.7","localport":3306,"begintime":1700000000,"gtid":"%s","event_index":"%d"'


def encoder() -> TdsqlEncoder:
    made = TdsqlEncoder(limit=1 << 20)
    made.source = SOURCE
    return made


@pytest.fixture
def run(server: Server, database: Database, tmp_path: Path) -> Run:
    """Run statements on one connection; return the messages, with one time, one number of a transaction and XID 7."""
    schema = database(server)
    tables = ["CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(20))", "CREATE TABLE m (id INT) ENGINE=MyISAM"]
    execute(server, tables, database=schema)

    def run(*statements: str, **settings: Any) -> list[bytes]:
        begin = int(time.time())
        with deliver(server, tmp_path, filter_regex=rf"{schema}\..*", **settings) as delivery:
            execute(server, statements, database=schema)
            collected = delivery.collect()
            found = encoder().encode(collected.slices, 1, positions=collected.positions)
        if found.refused is not None:
            raise found.refused
        for value in found.values:
            assert begin <= json.loads(value)["begintime"] <= time.time()
        return [constant(it.replace(schema.encode(), b"shop")) for it in found.values]

    return run


def constant(value: bytes) -> bytes:
    for pattern, instead in (
        (rb'(?<="begintime":)\d+', b"1700000000"),
        (rb'(?<="xid":")\d+', b"7"),
        (rb'("gtid":"[^"]*[:-])\d+"', rb'\g<1>9"'),
    ):
        value = re.sub(pattern, instead, value)
    return value


def message(number: int, name: bytes, table: bytes, gtid: str, index: int, rest: bytes = b"") -> bytes:
    head = HEAD % (number, name, b"shop" if table else b"", table)
    return head + PLACE % (gtid.encode(), index) + rest + b"}"


def gtid_of(server: Server) -> str:
    """How the GTIDs of a server look, whose last number is 9."""
    if server.mariadb:
        return f"0-{server.port}-9"
    return f"{server.query('SELECT @@server_uuid')[0][0]}:9"


class TestBytes:
    """Each message byte for byte, but for times and numbers that the server draws."""

    @pytest.mark.parametrize("gtid_on", [False, True])
    def test_rows_of_each_type_between_gtid_and_xid(self, run: Run, server: Server, gtid_on: bool) -> None:
        gtid_on = gtid_on and server.name not in WITHOUT_GTIDS
        found = run(
            "BEGIN",
            "INSERT INTO t VALUES (1, 'it''s'), (2, NULL)",
            "UPDATE t SET name = '\\\\n\"é' WHERE id = 1",
            "DELETE FROM t WHERE id = 2",
            "COMMIT",
            gtid_on=gtid_on,
        )
        gtid = gtid_of(server) if gtid_on else ""
        insert, update, delete, xid = {
            "mysql56": (3, 5, 7, 8),  # BEGIN 1, and before each a TABLE_MAP
            "mysql57": (4, 6, 8, 9),  # GTID 1, BEGIN 2
            "mysql80": (4, 6, 8, 9),
            "mysql97": (4, 6, 8, 9),
            "mariadb1011": (4, 7, 10, 11),  # GTID 1, and before each a statement and a TABLE_MAP
            "mariadb118": (4, 7, 10, 11),
        }[server.name]
        assert found == [
            message(33, b"gtid", b"", gtid, 1),
            message(23, b"insert", b"t", gtid, insert, b""","where":[],"field":["1","'it\\\\'s'"]"""),
            message(23, b"insert", b"t", gtid, insert, b""","where":[],"field":["2","NULL"]"""),
            message(
                24,
                b"update",
                b"t",
                gtid,
                update,
                b""","where":["1","'it\\\\'s'"],"field":["1","'\\\\\\\\n\\"\xc3\xa9'"]""",
            ),
            message(25, b"delete", b"t", gtid, delete, b""","where":["2","NULL"],"field":[]"""),
            message(16, b"xid", b"t", gtid, xid, b',"xid":"7"'),
        ]

    def test_a_table_without_transactions_has_no_xid(self, run: Run) -> None:
        gtid, insert, xid = run("INSERT INTO m VALUES (1)")
        assert json.loads(gtid)["eventtypestr"] == "gtid"
        assert insert.endswith(b'"where":[],"field":["1"]}')
        assert xid.endswith(b',"xid":""}')

    def test_ddl_is_a_transaction_without_xid(self, run: Run, server: Server) -> None:
        gtid = gtid_of(server) if (gtid_on := server.name not in WITHOUT_GTIDS) else ""
        index = 1 if server.name == "mysql56" else 2
        assert run("CREATE TABLE n (id INT)", gtid_on=gtid_on) == [
            message(33, b"gtid", b"", gtid, 1),
            message(2, b"query", b"n", gtid, index, b',"sql":"CREATE TABLE n (id INT)"'),
        ]

    def test_a_transaction_of_which_nothing_is_sent_is_left_out(
        self, run: Run, database: Database, server: Server
    ) -> None:
        other = database(server)
        execute(server, ["CREATE TABLE t (id INT)"], database=other)
        assert len(run(f"INSERT INTO {other}.t VALUES (1)", "INSERT INTO t VALUES (1, NULL)")) == 3

    def test_an_xa_transaction_comes_when_it_is_committed(self, run: Run) -> None:
        found = [
            json.loads(it)
            for it in run(
                "XA START 'a'", "INSERT INTO t VALUES (1, 'a')", "XA END 'a'", "XA PREPARE 'a'", "XA COMMIT 'a'",
                "XA START 'b'", "INSERT INTO t VALUES (2, 'b')", "XA END 'b'", "XA COMMIT 'b' ONE PHASE",
            )
        ]  # fmt: skip
        shown = [it.get("sql", it["eventtypestr"]) for it in found]
        assert shown == ["gtid", "insert", "xid"] * 2

    def test_rows_without_all_columns_are_refused(self, run: Run) -> None:
        with pytest.raises(
            PartialRowsError, match=r"^rows of \w+\.t do not have all columns: set binlog_row_image = FULL"
        ):
            run("SET binlog_row_image = MINIMAL", "INSERT INTO t VALUES (1, 'a')", "UPDATE t SET name = 'b'")


# --- a consumer that knows the definitions of the tables, and nothing else


class Consumer:
    """Makes tables of messages, in a schema of its own, whose statements are not in the binlog."""

    def __init__(self, server: Server, schema: str) -> None:
        self._connection = server.connect(database=schema, client_flag=CLIENT.FOUND_ROWS)
        self._schema = schema
        self._columns: dict[str, tuple[list[str], list[str]]] = {}
        self._transaction: list[str] | None = None
        self._prepared: dict[str, list[str]] = {}
        self.changes = 0
        self.seen: set[str] = set()
        self._execute("SET sql_log_bin = 0, sql_mode = '', time_zone = '+00:00', foreign_key_checks = 0")

    def close(self) -> None:
        self._connection.close()

    def finish(self) -> None:
        assert self._transaction is None
        assert not self._prepared

    def take(self, value: bytes) -> None:
        message = json.loads(value)
        kind = message["eventtypestr"]
        self.seen.add(kind)
        if kind == "gtid":
            assert self._transaction is None, "a transaction begins inside another one"
            self._transaction = []
            return
        assert self._transaction is not None, "a message outside of a transaction"
        if kind == "xid":
            self._apply()
        elif kind == "query":
            self._query(message["sql"])
        else:
            self._transaction.append(self._statement(kind, message))
            self.changes += 1

    def _query(self, sql: str) -> None:
        words = sql.split(" ", 2)
        if words[0] != "XA":
            self._apply(sql)
            self._columns.clear()
        elif words[1] == "PREPARE":
            self._prepared[words[2]] = self._transaction or []
        else:
            self._transaction = self._prepared.pop(words[2])
            if words[1] == "COMMIT":
                self._apply()
        self._transaction = None

    def _apply(self, *more: str) -> None:
        for statement in ("BEGIN", *(self._transaction or ()), "COMMIT", *more):
            self._execute(statement)
        self._transaction = None

    def _statement(self, kind: str, message: dict[str, Any]) -> str:
        table, before, after = message["table"], message["where"], message["field"]
        names, keys = self._definition(table)
        if kind == "insert":
            return f"INSERT INTO `{table}` VALUES ({', '.join(after)})"
        known = dict(zip(names, before, strict=True))
        where = " AND ".join(f"`{it}` <=> {known[it]}" for it in keys or names)
        if kind == "delete":
            return f"DELETE FROM `{table}` WHERE {where} LIMIT 1"
        values = ", ".join(f"`{name}` = {value}" for name, value in zip(names, after, strict=True))
        return f"UPDATE `{table}` SET {values} WHERE {where} LIMIT 1"

    def _definition(self, table: str) -> tuple[list[str], list[str]]:
        if table not in self._columns:
            question = (
                "SELECT column_name, column_key FROM information_schema.columns WHERE table_schema = %s"
                " AND table_name = %s ORDER BY ordinal_position"
            )
            with self._connection.cursor() as cursor:
                cursor.execute(question, (self._schema, table))
                found = list(cursor.fetchall())
            self._columns[table] = [it for it, _ in found], [it for it, key in found if key == "PRI"]
        return self._columns[table]

    def _execute(self, sql: str) -> None:
        with self._connection.cursor() as cursor:
            count = cursor.execute(sql)
        assert count == 1 or not sql.startswith(("INSERT", "UPDATE", "DELETE")), sql


def contents(server: Server, schema: str) -> dict[str, list[tuple[Any, ...]]]:
    """The tables of a schema: their definitions and rows."""
    found: dict[str, list[tuple[Any, ...]]] = {}
    tables = "SELECT table_name FROM information_schema.tables WHERE table_schema = %s"
    for (table,) in server.query(tables, (schema,)):
        columns = (
            "SELECT column_name FROM information_schema.columns WHERE table_schema = %s AND table_name = %s"
            " ORDER BY ordinal_position"
        )
        # As bytes, so that nothing is equal that only compares so.
        shown = ", ".join(f"HEX(CONCAT(`{name}`))" for (name,) in server.query(columns, (schema, table)))
        found[table] = sorted(server.query(f"SELECT {shown} FROM `{table}`", database=schema), key=repr)
    return found


TABLES = (
    """CREATE TABLE keyed (id INT PRIMARY KEY, name VARCHAR(200), n DECIMAL(20,4), at DATETIME(3),
    e ENUM('a','b','c'), s SET('x','y','z'), b VARBINARY(30), f DOUBLE, y YEAR, bits BIT(12), d DATE)""",
    "CREATE TABLE bare (a INT, b VARCHAR(20))",
    "CREATE TABLE old (id INT PRIMARY KEY, v TEXT) ENGINE=MyISAM",
)
TEXTS = ("'a'", "''", "NULL", r"'it\'s'", r"'\\'", "'\"'", r"'line\nend\t\0'", "'é😀'", "'%'", "REPEAT('x', 199)")


class Writer:
    """Random transactions on the three tables, from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._columns = 2
        self._numbers = 0

    def transactions(self, count: int) -> Iterator[list[str]]:
        for _ in range(count):
            kind = self._random.random()
            statements = [self._statement() for _ in range(self._random.randint(1, 6))]
            alone = [it for it in statements if " old " in it]  # which knows no transactions
            statements = [it for it in statements if it not in alone]
            yield from ([it] for it in alone)
            if kind < 0.02:
                yield [self._ddl()]
            elif kind < 0.1:
                self._numbers += 1
                name = f"'x{self._numbers}'"
                ends = [("COMMIT {} ONE PHASE",), ("PREPARE {}", "COMMIT {}"), ("PREPARE {}", "ROLLBACK {}")]
                end = [f"XA {it.format(name)}" for it in self._random.choice(ends)]
                yield [f"XA START {name}", *statements, f"XA END {name}", *end]
            else:
                yield ["BEGIN", *statements, self._random.choice(["COMMIT"] * 9 + ["ROLLBACK"])]

    def _text(self) -> str:
        return self._random.choice(TEXTS)

    def _keyed(self) -> list[str]:
        draw = self._random
        day = f"2{draw.randrange(1000):03d}-02-03 04:05:06.{draw.randrange(1000):03d}"
        found = [
            self._text(),
            f"{draw.uniform(-1e9, 1e9):.4f}",
            draw.choice(["'0000-00-00 00:00:00'", f"'{day}'"]),
            str(draw.randint(1, 3)),
            str(draw.randrange(8)),
            draw.choice(["''", f"x'{draw.randbytes(draw.randrange(1, 30)).hex()}'"]),
            draw.choice(["0", "-0.1", "1e300", repr(draw.uniform(-1, 1))]),
            draw.choice(["0", str(draw.randint(1901, 2155))]),
            str(draw.randrange(4096)),
            draw.choice(["'1000-01-01'", "'9999-12-31'"]),
        ]
        return [draw.choice([it, it, "NULL"]) for it in found]

    def _statement(self) -> str:
        draw = self._random
        kind, table, key = draw.random(), draw.choice(["keyed", "keyed", "bare", "old"]), draw.randrange(300)
        if table == "bare":
            if kind < 0.5:
                rows = ", ".join(f"({draw.randrange(5)}, {self._text().replace('199', '19')})" for _ in range(3))
                return f"INSERT INTO bare VALUES {rows}"
            where = f"WHERE a = {draw.randrange(5)} LIMIT {draw.randint(1, 3)}"
            return f"DELETE FROM bare {where}" if kind < 0.8 else f"UPDATE bare SET b = 'new' {where}"
        column = "name" if table == "keyed" else "v"
        if kind < 0.45:
            values = [*self._keyed(), *(["5"] * (self._columns - 2))] if table == "keyed" else [self._text()]
            return f"REPLACE INTO {table} VALUES ({', '.join([str(key), *values])})"
        if kind < 0.7:
            return f"UPDATE {table} SET {column} = {self._text()} WHERE id BETWEEN {key} AND {key + 20}"
        if kind < 0.8:
            return f"UPDATE IGNORE {table} SET id = {draw.randrange(300)} WHERE id = {key}"
        return f"DELETE FROM {table} WHERE id BETWEEN {key} AND {key + 10}"

    def _ddl(self) -> str:
        if self._random.random() < 0.5:
            return f"TRUNCATE TABLE {self._random.choice(['bare', 'old'])}"
        self._columns += 1
        return f"ALTER TABLE keyed ADD COLUMN c{self._columns} INT NOT NULL DEFAULT {self._columns}"


def read(kafka: Kafka, topic: str, url: str, seconds: float) -> list[bytes]:
    """The messages of a topic, as soon as that with the end is there."""
    found: list[bytes] = []

    def has_ended() -> bool:
        (found[:],) = kafka.read(topic)
        return any(b'"table":"finished"' in it and b'"insert"' in it for it in found[-3:])

    eventually(
        has_ended, lambda: urllib3.request("GET", f"{url}/v1/destinations/shop").json()["outputs"][0]["error"], seconds
    )
    return found


@pytest.mark.parametrize(
    ("seed", "transactions", "seconds"),
    [
        pytest.param(1, times(300, 800), 60, marks=pytest.mark.timeout(600)),
        pytest.param(2, 130_000, 1800, marks=[pytest.mark.soak, pytest.mark.timeout(7200)]),
    ],
)
@pytest.mark.parametrize("name", ["mysql97", pytest.param("mariadb118", marks=pytest.mark.extended)])
def test_a_consumer_rebuilds_the_tables_from_the_topic(
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
    topic = f"tdsql-{name}-{seed}"
    kafka.create(topic)
    for schema in (source, copy):
        execute(server, ["SET sql_mode = ''", "SET sql_log_bin = 0", *TABLES], database=schema)
    file, offset = end_of_binlog(server)
    lines = [
        *lines_for(f"{server.host}:{server.port}", server.user, server.password),
        *(f"master.journal.name = {file}", f"master.position = {offset}", "gtidon = true"),
        rf"filter.regex = {source}\\..*",
        "sluice.outputs = mq",
        "sluice.output.mq.format = tdsql",
        f"sluice.output.mq.topic = {topic}",
        "sluice.output.mq.maxBytes = 4096",  # so that batches end inside transactions
    ]
    with started({"shop": lines}, main=[f"kafka.bootstrap.servers = {kafka.servers}"]) as sluice:
        with closing(server.connect(database=source)) as connection, connection.cursor() as cursor:
            cursor.execute("SET sql_mode = '', time_zone = '+00:00'")
            for statements in Writer(seed).transactions(transactions):
                for statement in statements:
                    cursor.execute(statement)
            cursor.execute("CREATE TABLE finished (id INT)")
            cursor.execute("INSERT INTO finished VALUES (1)")
        found = read(kafka, topic, sluice.url, seconds)
    with closing(Consumer(server, copy)) as consumer:
        for value in found:
            consumer.take(value)
        consumer.finish()
    assert contents(server, copy) == contents(server, source)
    assert consumer.changes > (1_000_000 if transactions > 1000 else 4 * transactions)
    assert consumer.seen == {"gtid", "insert", "update", "delete", "xid", "query"}
