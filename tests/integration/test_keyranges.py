"""Reading a table by ranges of its key: every row once, whatever the key, as the stream has it."""

import random
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sluice.client_sdk.spark.keyranges import connect, read
from sluice.login.tables import LITERAL, KeyRange, SnapshotTable, cut, describe, select
from sluice.protocol.canal.arrow import EnvelopeDecoder, TableDecoder, columns_of
from sluice.protocol.canal.entry_pb2 import Entry, RowChange
from sluice.protocol.canal.packet_pb2 import Messages
from sluice.protocol.errors import SourceError
from sluice.protocol.identifiers import quote_name
from sluice.sql.database import Database as Address
from sluice.sql.database import DatabaseSession
from tests.conftest import Database
from tests.delivery import deliver
from tests.integration.samples import SAMPLES
from tests.proxy import Proxy
from tests.servers import Server

META = ["_pos", "_gtid", "_ts", "_op", "_xa"]
MARIADB_ONLY = ("uuid", "inet6", "inet4")


def address(server: Server) -> Address:
    return Address(server.host, server.port, server.user, server.password)


@pytest.fixture
def session(server: Server) -> Iterator[DatabaseSession]:
    with closing(connect(address(server))) as session:
        yield session


def rows_of(session: DatabaseSession, table: SnapshotTable, part: KeyRange) -> list[dict[str, str | None]]:
    decoder = EnvelopeDecoder()
    batches = [decoder.decode(piece.data) for piece in select(session, table, part)]
    return [dict(row) for batch in batches for row in batch.column("after").to_pylist()]


def row_datas(messages: bytes, table: str) -> list[Any]:
    """The rows of a table as they stand in entries."""
    entries = map(Entry.FromString, Messages.FromString(messages).messages)
    changes = [RowChange.FromString(it.storeValue) for it in entries if it.header.tableName == table]
    return [row for change in changes for row in change.rowDatas]


def text(numbers: random.Random, alphabet: str, longest: int) -> str:
    return "".join(numbers.choices(alphabet, k=numbers.randrange(longest + 1)))


LATIN = "aAäÄbBzZ019 _\t'\"\\%\0ß"
WORLD = LATIN + "éÉžлЛ中文😀"
BINARY = "".join(map(chr, range(256)))

# The columns of a key, and what makes a value of each.
KEYS: dict[str, tuple[tuple[str, Any], ...]] = {
    "tinyint": (("tinyint", lambda r: r.randrange(-128, 128)),),
    "bigint": (("bigint", lambda r: r.choice((r.randrange(-(1 << 63), 1 << 63), r.randrange(-50, 50)))),),
    "bigint unsigned": (("bigint unsigned", lambda r: r.choice((r.randrange(1 << 64), r.randrange(50)))),),
    "zerofill": (("int(8) zerofill", lambda r: r.randrange(1000)),),
    "decimal": (("decimal(30,10)", lambda r: f"{r.randrange(-(10**15), 10**15)}.{r.randrange(10**10)}"),),
    "double": (("double", lambda r: r.choice((r.uniform(-1, 1), r.uniform(-1e300, 1e300), r.randrange(9)))),),
    "float": (("float", lambda r: r.choice((r.uniform(-1, 1), r.uniform(-1e30, 1e30), r.randrange(9)))),),
    "date": (("date", lambda r: f"{r.randrange(10000):04}-{r.randrange(13):02}-{r.randrange(32):02}"),),
    "datetime": (
        ("datetime(6)", lambda r: f"20{r.randrange(100):02}-02-{r.randrange(32):02} 01:02:03.{r.random():.6}"),
    ),
    "timestamp": (
        ("timestamp(3)", lambda r: f"2026-10-25 0{r.randrange(4)}:{r.randrange(60):02}:00.{r.randrange(999)}"),
    ),
    "time": (
        ("time(6)", lambda r: f"{r.choice(('', '-'))}{r.randrange(839)}:{r.randrange(60)}:01.{r.randrange(999)}"),
    ),
    "year": (("year", lambda r: r.choice((0, *range(1901, 2156)))),),
    "bit": (("bit(40)", lambda r: r.randrange(1 << 40)),),
    "char": (("char(6) character set utf8mb4", lambda r: text(r, WORLD, 6)),),
    "varchar": (("varchar(6) character set utf8mb4", lambda r: text(r, WORLD, 6)),),
    "varchar bin": (("varchar(6) character set utf8mb4 collate utf8mb4_bin", lambda r: text(r, WORLD, 6)),),
    "latin1": (("varchar(6) character set latin1 collate latin1_german2_ci", lambda r: text(r, LATIN, 6)),),
    "utf16": (("varchar(6) character set utf16", lambda r: text(r, WORLD, 6)),),
    "gbk": (("varchar(6) character set gbk", lambda r: text(r, "aAb中文你好", 6)),),
    "sjis": (("varchar(6) character set sjis", lambda r: text(r, "aAb日本語ｱ", 6)),),
    "binary": (("binary(3)", lambda r: text(r, BINARY, 3).encode("latin-1")),),
    "varbinary": (("varbinary(5)", lambda r: text(r, BINARY, 5).encode("latin-1")),),
    "uuid": (
        (
            "uuid",
            lambda r: "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}".format(*(r.getrandbits(n) for n in (32, 16, 16, 16, 48))),
        ),
    ),
    "inet6": (("inet6", lambda r: ":".join(f"{r.randrange(1 << 16):x}" for _ in range(8))),),
    "inet4": (("inet4", lambda r: ".".join(str(r.randrange(256)) for _ in range(4))),),
    "enum": (("enum('z','b','a','C')", lambda r: r.choice("zbaC")),),
    "composite": (
        ("int", lambda r: r.randrange(4)),
        ("varchar(3) character set utf8mb4", lambda r: text(r, "aAbž", 3)),
        ("date", lambda r: f"2026-01-{r.randrange(1, 9):02}"),
    ),
    "with an enum": (("int", lambda r: r.randrange(9)), ("enum('z','b','a')", lambda r: r.choice("zba"))),
    "with a set": (("int", lambda r: r.randrange(9)), ("set('z','b','a')", lambda r: r.choice(("z", "z,a", "b")))),
}


def test_ranges_hold_every_row_once_whatever_the_key(
    server: Server, session: DatabaseSession, database: Database
) -> None:
    schema = database(server)
    wrong = []
    for number, (name, key) in enumerate(KEYS.items()):
        if name in MARIADB_ONLY and not server.mariadb:
            continue
        numbers = random.Random(name)
        names = ", ".join(f"k{i}" for i in range(len(key)))
        columns = ", ".join(f"k{i} {kind}" for i, (kind, _) in enumerate(key))
        session.rows(f"CREATE TABLE {schema}.t{number} ({columns}, v INT, PRIMARY KEY ({names}))")
        with session.cursor() as cursor:
            cursor.executemany(
                f"INSERT IGNORE INTO {schema}.t{number} VALUES ({', '.join('%s' for _ in key)}, %s)",
                [(*(make(numbers) for _, make in key), str(i)) for i in range(60)],
            )
        table = describe(session, schema, f"t{number}")
        assert bool(table.key) == (name != "enum")
        everything = rows_of(session, table, KeyRange())
        assert len(everything) == int(session.rows(f"SELECT COUNT(*) FROM {schema}.t{number}")[0][0])
        ranges = list(cut(session, table, 7))
        found = [rows_of(session, table, part) for part in ranges]
        if [row for part in found for row in part] != everything:
            wrong.append(f"{name}: {ranges}")
        if table.key:
            assert {len(part) for part in found[:-1]} == {7}
            assert all(LITERAL.fullmatch(literal) for part in ranges[:-1] for literal in part.to or ("",))
            # Gone on with after the last row of each piece, as after a lost connection.
            assert list(cut(session, table, 7, ranges[2].to)) == ranges[3:]
    assert not wrong, "\n".join(wrong)


@pytest.mark.extended
def test_values_and_types_are_those_of_the_stream(
    server: Server, session: DatabaseSession, database: Database, tmp_path: Path
) -> None:
    schema = database(server)
    samples = {f"t{number}": sample for number, sample in enumerate(SAMPLES) if sample.runs_on(server.name)}
    writer = server.connect(database=schema, init_command="SET sql_mode = '', time_zone = '+00:00'")
    wrong = []
    with writer, writer.cursor() as cursor, deliver(server, tmp_path, filter_regex=f"{schema}\\..*") as delivery:
        for table, sample in samples.items():
            cursor.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY AUTO_INCREMENT, c {sample.type})")
            for value in (*sample.values, "NULL"):
                cursor.execute(f"INSERT INTO {table} (c) VALUES ({value})")
        delivery.read()
        data = b"".join(delivery.ring.collect(0).slices)
        streamed: dict[str, list[Any]] = {}
        for row in EnvelopeDecoder().decode(data).to_pylist():
            streamed.setdefault(row["_table"], []).append((row["_key"], row["after"]))
        for name, sample in samples.items():
            described = describe(session, schema, name)
            selected = b"".join(piece.data for piece in select(session, described, KeyRange()))
            rows = [(row["_key"], row["after"]) for row in EnvelopeDecoder().decode(selected).to_pylist()]
            wrong += [
                f"{sample.type}: {mine!r:.80} instead of {theirs!r:.80}"
                for mine, theirs in zip(rows, streamed[name], strict=True)
                if mine != theirs
            ]
            columns = [(column.name, column.mysql_type) for column in described.columns]
            mine = TableDecoder(schema, name, columns).decode(selected)
            theirs = TableDecoder(schema, name, columns_of(data, schema, name)).decode(data)
            if mine.drop_columns(META) != theirs.drop_columns(META):
                wrong.append(f"{sample.type} typed: {mine.schema} instead of {theirs.schema}")
            wrong += [
                f"{sample.type} as an entry: {mine!r} instead of {theirs!r}"
                for mine, theirs in zip(row_datas(selected, name), row_datas(data, name), strict=True)
                if mine != theirs
            ]
    assert not wrong, "\n".join(wrong)


ODD_TABLES = {
    "empty": ("CREATE TABLE {} (id INT PRIMARY KEY)", ["id"]),
    "without key": ("CREATE TABLE {} (id INT, KEY (id))", None),
    "unique": ("CREATE TABLE {} (a INT NOT NULL, b INT NOT NULL, UNIQUE k (b, a))", ["b", "a"]),
    "unique with null": ("CREATE TABLE {} (a INT, UNIQUE (a))", None),
    "beginning of a text": ("CREATE TABLE {} (a TEXT, v INT, PRIMARY KEY (a(5)))", None),
    "descending": ("CREATE TABLE {} (a INT, b INT, PRIMARY KEY (a DESC, b))", ["a", "b"]),
    "quotes ` ' \"": ("CREATE TABLE {} (`a ` ' %s` INT PRIMARY KEY, `%d` INT)", ["a ` ' %s"]),
}


@pytest.mark.parametrize("name", ODD_TABLES)
def test_odd_tables_are_described_and_read(name: str, mariadb118: Server, mysql97: Server, database: Database) -> None:
    statement, key = ODD_TABLES[name]
    for server in (mariadb118, mysql97):
        schema = database(server)
        with closing(connect(address(server))) as session:
            session.rows(statement.replace("` ' %s", "`` ' %s").format(f"{schema}.{quote_name(name)}"))
            table = describe(session, schema, name)
            assert [part.column.name for part in table.key] == (key or [])
            if name != "empty":
                columns = len(table.columns)
                for value in range(20):
                    session.rows(f"INSERT INTO {table.sql} VALUES ({', '.join([str(value)] * columns)})")
            found = [rows_of(session, table, part) for part in cut(session, table, 8)]
            assert [len(part) for part in found] == ([0] if name == "empty" else [8, 8, 4] if key else [20])
            assert len({row[table.columns[0].name] for part in found for row in part}) == sum(map(len, found))


def test_what_is_not_there_is_an_error(mariadb118: Server, database: Database) -> None:
    schema = database(mariadb118)
    with (
        closing(connect(address(mariadb118))) as session,
        pytest.raises(SourceError, match=f"{schema}.nothing is unknown"),
    ):
        describe(session, schema, "nothing")


def reads(session: DatabaseSession, table: SnapshotTable, part: KeyRange) -> int:
    """Rows of the index that the server looks at to read a range."""
    session.rows("FLUSH STATUS")
    rows_of(session, table, part)
    return sum(int(number) for name, number in session.rows("SHOW SESSION STATUS LIKE 'Handler_read%'"))


@pytest.mark.parametrize("key", ["a", "a, b", "s, a", "t, a, b"])
def test_a_range_reads_no_more_than_its_rows(
    key: str, server: Server, session: DatabaseSession, database: Database
) -> None:
    schema = database(server)
    session.rows(
        f"CREATE TABLE {schema}.t (a INT, b INT, s VARCHAR(20) CHARACTER SET latin1, t DATETIME, PRIMARY KEY ({key}))"
    )
    rows = ", ".join(f"({i}, {i % 7}, 'text {i // 50}', '2026-01-01 00:00:{i // 90:02}')" for i in range(2000))
    session.rows(f"INSERT INTO {schema}.t VALUES {rows}")
    table = describe(session, schema, "t")
    ranges = list(cut(session, table, 100))
    assert max(reads(session, table, part) for part in ranges) < 110


def test_ranges_of_a_large_table_are_estimated(server: Server, session: DatabaseSession, database: Database) -> None:
    schema = database(server)
    session.rows(f"CREATE TABLE {schema}.t (id BIGINT UNSIGNED PRIMARY KEY, v VARCHAR(100))")
    numbers = random.Random(1)
    ids = {*range(5000), *(numbers.randrange(1 << 64) for _ in range(3000)), 0, (1 << 64) - 1}
    rows = [f"({number}, REPEAT('x', 100))" for number in ids]
    for start in range(0, len(rows), 1000):
        session.rows(f"INSERT INTO {schema}.t VALUES {', '.join(rows[start : start + 1000])}")
    session.rows(f"ANALYZE TABLE {schema}.t")
    table = describe(session, schema, "t")
    session.rows("FLUSH STATUS")
    ranges = list(cut(session, table, 200))
    looked_at = sum(int(number) for name, number in session.rows("SHOW SESSION STATUS LIKE 'Handler_read%'"))
    assert looked_at < 1000
    found = [[int(row["id"] or 0) for row in rows_of(session, table, part)] for part in ranges]
    assert [number for part in found for number in part] == sorted(ids)
    assert len(ranges) > 16
    assert max(map(len, found)) < 1000


def test_reading_goes_on_after_the_last_row_when_the_connection_is_lost(mariadb118: Server, database: Database) -> None:
    schema = database(mariadb118)
    with (
        Proxy((mariadb118.host, mariadb118.port), seed=5) as proxy,
        closing(connect(address(mariadb118))) as session,
    ):
        session.rows(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, v TEXT)")
        rows = ", ".join(f"({i}, REPEAT('x', 1000))" for i in range(3000))
        session.rows(f"INSERT INTO {schema}.t VALUES {rows}")
        table = describe(session, schema, "t")
        proxy.cut_after(500_000)
        cut_off = replace(address(mariadb118), host=proxy.host, port=proxy.port)
        decoder = EnvelopeDecoder()
        batches = [decoder.decode(piece.data) for piece in read(cut_off, table, KeyRange(), size=100_000)]
        ids = [key for batch in batches for [key] in batch.column("_key").to_pylist()]
        assert ids == [str(i) for i in range(3000)]
        assert proxy.cuts > 3
        proxy.cut_after(500_000)
        with pytest.raises(SourceError, match=f"{schema}.t cannot be read from 127.0.0.1"):
            list(read(cut_off, replace(table, key=(), index=None), KeyRange(), size=100_000))
