"""Conditions on rows let the same rows pass as the server's own WHERE."""

import json
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sluice.instance.conditions.collation import Collation, number_of
from sluice.instance.conditions.rows import RowConditions
from sluice.instance.conditions.where import parse_condition
from sluice.instance.sources.mysql.decode.plan import PlanOptions, TablePlan
from sluice.instance.sources.mysql.decode.table_map import TableMap
from sluice.protocol.canal.entry_pb2 import Entry, EventType
from sluice.protocol.canal.packet_pb2 import Messages
from sluice.protocol.errors import DecodeError, SourceError
from sluice.store.ring import Ring
from sluice.store.track import verdicts_of
from tests.conftest import Database
from tests.decoding import decode, dump
from tests.delivery import deliver, delivered, execute, rows_of, transcript, values
from tests.effort import times
from tests.reading import Reading, config, connect
from tests.servers import Server

LATIN = [*"aAbBzZ 0_%\\'sS\t", "ss", "á", "Á", "é", "ß", "Æ", "ÿ", "æ"]
FIRST_PLANE = [
    *LATIN,
    "漢",
    "字",
    "가",
    "각",
    "\u0300",
    "ǅ",
    "ﷺ",
    "ŉ",
    "ﬀ",
    "\x01",
    "я",
    "Я",
    "\u0131",
    "İ",
    "Ω",
    "\u200b",
]
UNICODE = [*FIRST_PLANE, "😀", "𐐀", "𐐨", "𠀀", "𗀀"]
PRECISE = {"decimal(10,2)": (10, 2), "decimal(33,12)": (33, 12), "decimal(4,4)": (4, 4), "decimal(18,0)": (18, 0)}
INTEGERS = {"tinyint": 7, "smallint": 15, "mediumint": 23, "int": 31, "bigint": 63}
LABELS = ("a", "B", "á", "ss", "zz", "")


def quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def integer(low: int, high: int) -> Callable[[random.Random], str]:
    return lambda rng: str(rng.choice((rng.randint(low, high), rng.randint(max(low, -5), 5), low, high)))


def decimals(precision: int, scale: int) -> Callable[[random.Random], str]:
    def value(rng: random.Random) -> str:
        digits = rng.randrange(10 ** rng.randint(1, precision))
        return rng.choice(("", "-")) + f"{digits // 10**scale}.{digits % 10**scale:0{scale or 1}}"

    return value


def double(rng: random.Random) -> str:
    return rng.choice(
        (f"{rng.uniform(-9, 9):.3f}", f"{rng.uniform(-9, 9):.2f}e{rng.randint(-30, 30)}", "0", "-0.0", "1.5")
    )


def text(alphabet: list[str], most: int) -> Callable[[random.Random], str]:
    return lambda rng: quoted("".join(rng.choices(alphabet, k=rng.randint(0, most))))


def octets(most: int) -> Callable[[random.Random], str]:
    return lambda rng: "X'" + bytes(rng.choices(b"\0\x01a \xff", k=rng.randint(0, most))).hex() + "'"


def date(rng: random.Random) -> str:
    return f"'{rng.choice((1000, 1999, 2026, 9999))}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}'"


def clock(rng: random.Random, digits: int) -> str:
    fraction = f".{rng.choice((0, 5, 10, 999999)):06}"[: digits + 1] if digits else ""
    return f"{rng.randint(0, 23):02}:{rng.choice((0, 30)):02}:{rng.choice((0, 59)):02}{fraction}"


def datetime(digits: int) -> Callable[[random.Random], str]:
    return lambda rng: f"'{date(rng)[1:-1]} {clock(rng, digits)}'"


def timestamp(digits: int) -> Callable[[random.Random], str]:
    return lambda rng: f"'{rng.choice((1971, 2026, 2037))}-{rng.randint(1, 12):02}-10 {clock(rng, digits)}'"


def time(digits: int) -> Callable[[random.Random], str]:
    return lambda rng: f"'{rng.choice(('', '-'))}{rng.choice((0, 8)):01}{clock(rng, digits)}'"


@dataclass(frozen=True)
class Kind:
    """A column: its type, its values as SQL, and what it is compared with besides."""

    type: str
    value: Callable[[random.Random], str]
    constant: Callable[[random.Random], str]
    pattern: Callable[[random.Random], str] | None = None
    servers: tuple[str, ...] = ("mysql97", "mariadb118")


def kinds() -> Iterator[Kind]:
    for word, bits in INTEGERS.items():
        beyond = decimals(20, 1)
        yield Kind(word, integer(-(1 << bits), (1 << bits) - 1), beyond)
        yield Kind(f"{word} unsigned", integer(0, (2 << bits) - 1), beyond)
    for word, digits in PRECISE.items():
        yield Kind(word, decimals(*digits), decimals(20, 5))
    yield Kind("float", double, double)
    yield Kind("double", double, double)
    yield Kind("bit(5)", integer(0, 31), integer(-1, 40))
    yield Kind("year", lambda rng: rng.choice(("0", "1901", "2026", "2155")), lambda rng: str(rng.randint(1900, 2200)))
    yield Kind("date", date, datetime(3))
    for places in (0, 1, 3, 6):
        yield Kind(f"datetime({places})", datetime(places), datetime(6))
        yield Kind(f"timestamp({places}) null", timestamp(places), timestamp(6))
        yield Kind(f"time({places})", time(places), time(places))
    for charset, collation, alphabet, servers in (
        ("utf8mb4", "utf8mb4_general_ci", UNICODE, Kind.servers),
        ("utf8mb4", "utf8mb4_bin", UNICODE, Kind.servers),
        ("utf8mb4", "utf8mb4_0900_ai_ci", UNICODE, ("mysql97",)),
        ("utf8mb4", "utf8mb4_0900_bin", UNICODE, ("mysql97",)),
        ("utf8mb4", "utf8mb4_nopad_bin", UNICODE, ("mariadb118",)),
        ("utf8mb4", "utf8mb4_general_nopad_ci", UNICODE, ("mariadb118",)),
        ("utf8mb3", "utf8mb3_general_ci", FIRST_PLANE, Kind.servers),
        ("latin1", "latin1_bin", LATIN, Kind.servers),
        ("utf16", "utf16_bin", UNICODE, Kind.servers),
        ("ucs2", "ucs2_bin", FIRST_PLANE, Kind.servers),
        ("gbk", "gbk_bin", [*"aA z\t漢字Ωя"], Kind.servers),
    ):
        value = text(alphabet, 4)
        pattern = None if charset == "gbk" else text([*alphabet, "%", "%", "_", "_", "\\"], 4)
        yield Kind(f"varchar(20) character set {charset} collate {collation}", value, value, pattern, servers)
        yield Kind(f"char(8) character set {charset} collate {collation}", value, value, pattern, servers)
        if charset == "utf8mb4":
            yield Kind(f"text character set {charset} collate {collation}", value, value, pattern, servers)
            labels = f"enum{LABELS} character set {charset} collate {collation}"
            if "general" not in collation and "ai" not in collation:
                yield Kind(labels, lambda rng: quoted(rng.choice(LABELS)), value, pattern, servers)
            else:
                yield Kind(labels.replace("'á', ", ""), lambda rng: quoted(rng.choice("aB")), value, pattern, servers)
    yield Kind("binary(4)", octets(4), octets(5), text([*"a\0 %_"], 4))
    yield Kind("varbinary(6)", octets(4), octets(5), text([*"a\0 %_"], 4))
    yield Kind("blob", octets(4), octets(5), text([*"a\0 %_"], 4))


@dataclass
class Table:
    """A table of all kinds, and random conditions on it."""

    kinds: list[Kind]
    rng: random.Random
    values: list[list[str]] = field(default_factory=list)
    """Of each column, some that are in the table."""

    @property
    def columns(self) -> str:
        return ", ".join(f"c{i} {kind.type}" for i, kind in enumerate(self.kinds))

    def row(self) -> list[str]:
        return ["NULL" if self.rng.random() < 0.1 else kind.value(self.rng) for kind in self.kinds]

    def leaf(self) -> str:
        rng = self.rng
        number = rng.randrange(len(self.kinds))
        kind, column = self.kinds[number], f"c{number}"
        null = f"{column} IS {rng.choice(('', 'NOT '))}NULL"
        if "collate utf8mb4_" in kind.type and rng.random() < 0.4:
            column += f" COLLATE {rng.choice(('utf8mb4_bin', 'utf8mb4_general_ci'))}"

        def constant() -> str:
            return rng.choice(self.values[number]) if rng.random() < 0.6 else kind.constant(rng)

        form = rng.random()
        if form < 0.1:
            return null
        if form < 0.25:
            return f"{column} {rng.choice(('', 'NOT '))}IN ({', '.join(constant() for _ in range(rng.randint(1, 4)))})"
        if form < 0.4:
            return f"{column} {rng.choice(('', 'NOT '))}BETWEEN {constant()} AND {constant()}"
        if form < 0.65 and kind.pattern is not None:
            return f"{column} {rng.choice(('', 'NOT '))}LIKE {kind.pattern(rng)}"
        operator = rng.choice(("=", "<>", "<", "<=", ">", ">=", "<=>"))
        turned = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
        if rng.random() < 0.2:
            return f"{constant()} {turned.get(operator, operator)} {column}"
        return f"{column} {operator} {constant()}"

    def condition(self, depth: int = 2) -> str:
        form = self.rng.random()
        if depth == 0 or form < 0.4:
            return self.leaf()
        if form < 0.55:
            return f"NOT ({self.condition(depth - 1)})"
        word = self.rng.choice((" AND ", " OR "))
        return "(" + word.join(self.condition(depth - 1) for _ in range(self.rng.randint(2, 3))) + ")"


@pytest.mark.parametrize("name", ["mysql97", pytest.param("mariadb118", marks=pytest.mark.extended)])
@pytest.mark.parametrize(
    ("columns", "rows", "conditions"),
    [
        (1_000, 1_000, times(40, 200)),
        pytest.param(9, 10_000, 40, marks=[pytest.mark.extended, pytest.mark.timeout(600)]),
        pytest.param(9, 100_000, 40, marks=[pytest.mark.soak, pytest.mark.timeout(3600)]),
    ],
    ids=["one table", "narrow tables", "a million rows in narrow tables"],
)
def test_the_same_rows_pass_as_of_the_servers_where(
    name: str, columns: int, rows: int, conditions: int, request: pytest.FixtureRequest, database: Database
) -> None:
    server: Server = request.getfixturevalue(name)
    schema = database(server)
    rng = random.Random(columns)
    every = [kind for kind in kinds() if name in kind.servers]
    rng.shuffle(every)
    with server.connect(database=schema) as connection, connection.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00', sql_mode = 'ALLOW_INVALID_DATES'")
        cursor.execute("SELECT id, character_set_name FROM information_schema.collations WHERE id IS NOT NULL")
        charsets = dict(cursor.fetchall())
        wrong: list[str] = []
        passed = tried = 0
        for first in range(0, len(every), columns):
            table = Table(every[first : first + columns], rng)
            file = write(cursor, table, rows)
            for _ in range(conditions):
                condition = table.condition()
                cursor.execute(f"SELECT id FROM t WHERE {condition} ORDER BY id")
                expected = [number for (number,) in cursor.fetchall()]
                found = passing(server, file, schema, condition, charsets)
                tried += rows
                passed += len(found)
                if found != expected:
                    example = min(set(found) ^ set(expected))
                    cursor.execute(f"SELECT * FROM t WHERE id = {example}")
                    wrong.append(f"{condition}: {cursor.fetchone()} {example in expected} {table.columns}")
    assert not wrong, "\n".join(wrong)
    assert tried / 10 < passed < tried * 0.9


def write(cursor: Any, table: Table, rows: int) -> str:
    """Fill the table; the binlog file that begins with its rows."""
    cursor.execute("DROP TABLE IF EXISTS t")
    cursor.execute(f"CREATE TABLE t (id int PRIMARY KEY, {table.columns})")
    cursor.execute("SET GLOBAL binlog_row_metadata = FULL")
    try:
        cursor.execute("FLUSH BINARY LOGS")
        insert(cursor, table, rows)
    finally:
        cursor.execute("SET GLOBAL binlog_row_metadata = DEFAULT")
    cursor.execute("SHOW BINARY LOGS")
    return str(cursor.fetchall()[-1][0])


def insert(cursor: Any, table: Table, rows: int) -> None:
    """Write random rows, 500 at a time."""
    for first in range(0, rows, 500):
        written = [table.row() for _ in range(500)]
        if not first:
            table.values = [[it for it in column if it != "NULL"] for column in zip(*written, strict=True)]
        values = ",".join(f"({first + i},{','.join(row)})" for i, row in enumerate(written))
        cursor.execute(f"INSERT INTO t VALUES {values}")


def passing(server: Server, file: str, schema: str, condition: str, charsets: dict[int, str]) -> list[int]:
    """The ids of the rows that a decoder lets pass."""

    def make_plan(table_map: TableMap, number: int) -> TablePlan:
        if table_map.schema != schema:
            return TablePlan(table_map, (), 0, PlanOptions(excluded=True))
        options = PlanOptions(fields=frozenset({"ID"}), time_zone="+00:00", where=parse_condition(condition))
        return TablePlan(table_map, table_map.columns(charsets), number, options)

    decoded = decode(dump([server.data / file]), make_plan=make_plan)
    assert not any(event.error for event in decoded.controls)
    return [int(row.afterColumns[0].value) for change in decoded.changes for row in change.rowDatas]


@pytest.mark.parametrize("name", ["mysql97", "mariadb118", pytest.param("mysql56", marks=pytest.mark.extended)])
def test_the_collations_are_those_of_the_server(name: str, request: pytest.FixtureRequest) -> None:
    server: Server = request.getfixturevalue(name)
    found: dict[int, tuple[str, str]] = {}
    for number, collation, charset in server.query(
        "SELECT id, collation_name, character_set_name FROM information_schema.collations WHERE id IS NOT NULL"
    ):
        found[number] = (collation, charset.replace("utf8mb3", "utf8"))
    known: dict[int, Any] = {}
    for number in found:
        try:
            known[number] = Collation(number)
        except DecodeError:
            continue
    for number, collation in known.items():
        name, charset = found[number]
        assert collation.charset.replace("utf8mb3", "utf8") == charset
        assert name == "binary" or number_of(name) == number
        assert name.endswith(("_bin", "_general_ci", "_general_nopad_ci", "_0900_ai_ci")) or name == "binary"
        assert collation.pads == (name != "binary" and "nopad" not in name and "_0900_" not in name)
    assert not [name for number, (name, _) in found.items() if number not in known and name.endswith("_bin")]


@pytest.fixture
def full_metadata(mariadb118: Server, request: pytest.FixtureRequest) -> Iterator[None]:
    """MariaDB, and the server that a test names, write collations into their binlogs."""
    name = request.node.callspec.params.get("name") if hasattr(request.node, "callspec") else None
    servers = {mariadb118, request.getfixturevalue(name) if name else mariadb118}
    with ExitStack() as stack:
        for server in servers:
            stack.enter_context(server.variable("binlog_row_metadata", "FULL"))
        yield


@pytest.mark.usefixtures("full_metadata")
@pytest.mark.parametrize("name", ["mysql97", pytest.param("mariadb118", marks=pytest.mark.extended)])
def test_a_client_gets_the_same_rows_as_by_the_servers_where(
    name: str, request: pytest.FixtureRequest, database: Database, tmp_path: Path
) -> None:
    """Of rows that are in the ring already, by the condition of its subscription."""
    server: Server = request.getfixturevalue(name)
    schema = database(server)
    rng = random.Random(name)
    every = [kind for kind in kinds() if name in kind.servers]
    rng.shuffle(every)
    table = Table(every, rng)
    rows, conditions, passed = 1_000, times(30, 200), 0
    wrong: list[str] = []
    with (
        deliver(server, tmp_path, filter_regex=rf"{schema}\..*") as delivery,
        server.connect(database=schema) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("SET time_zone = '+00:00', sql_mode = 'ALLOW_INVALID_DATES'")
        cursor.execute(f"CREATE TABLE t (id int PRIMARY KEY, {table.columns})")
        insert(cursor, table, rows)
        delivery.read()
        for _ in range(conditions):
            condition = table.condition()
            cursor.execute(f"SELECT id FROM t WHERE {condition} ORDER BY id")
            expected = [number for (number,) in cursor.fetchall()]
            changes = rows_of(wanted(delivery.ring, f"{schema}.t: {condition}"), "t")
            found = [int(row.afterColumns[0].value) for _, change in changes for row in change.rowDatas]
            passed += len(found)
            if found != expected:
                wrong.append(f"{condition}: {min(set(found) ^ set(expected))} {table.columns}")
    assert not wrong, "\n".join(wrong)
    assert rows * conditions / 10 < passed < rows * conditions * 0.9


def wanted(ring: Ring, where: str) -> list[Entry]:
    """What a ring has for a client with a condition."""
    verdicts = verdicts_of(ring, RowConditions(where))
    pinned = ring.pin(ring.first, 1 << 30, 1 << 40)
    assert pinned is not None
    verdicts.judge.judge(pinned)
    assert not pinned.errors
    verdicts.take(pinned)
    ring.verdicts.clear()
    collected = ring.collect(ring.first, verdicts=verdicts)
    return [Entry.FromString(it) for it in Messages.FromString(b"".join(collected.slices)).messages]


@pytest.mark.usefixtures("full_metadata")
def test_a_destination_delivers_the_rows_that_match(mariadb118: Server, database: Database, tmp_path: Path) -> None:
    schema = database(mariadb118)
    entries = delivered(
        mariadb118,
        tmp_path,
        schema,
        [
            "CREATE TABLE orders (id int PRIMARY KEY, total int, status varchar(9) COLLATE utf8mb4_general_ci)",
            "CREATE TABLE items (id int PRIMARY KEY)",
            "INSERT INTO orders VALUES (1, 5, 'paid'), (2, 50, 'Paid'), (3, 50, 'open'), (4, 50, NULL)",
            "INSERT INTO orders VALUES (5, 5, 'open')",
            "INSERT INTO items VALUES (1)",
            "UPDATE orders SET total = 60",
            "DELETE FROM orders",
        ],
        filter_where=f"{schema}.orders: status = 'paid' AND total > 10",
    )
    assert [line for line in transcript(entries) if not line.startswith(("CREATE", "QUERY", "BEGIN", "END"))] == [
        "INSERT orders 2,50,Paid",
        "INSERT items 1",
        "UPDATE orders 1,5,paid > 1,60,paid",
        "UPDATE orders 2,50,Paid > 2,60,Paid",
        "DELETE orders 1,60,paid",
        "DELETE orders 2,60,Paid",
    ]


@pytest.mark.parametrize(
    ("name", "image"),
    [("mariadb118", "FULL"), ("mariadb118", "FULL_NODUP"), ("mysql97", "FULL"), ("mysql97", "PARTIAL_JSON")],
)
def test_a_copy_made_of_split_updates_is_the_table_with_the_condition(
    name: str, image: str, request: pytest.FixtureRequest, database: Database, tmp_path: Path
) -> None:
    """Every INSERT is of a new row and every UPDATE and DELETE of a known one, also where an UPDATE moves keys."""
    server: Server = request.getfixturevalue(name)
    schema = database(server)
    rng = random.Random(image)
    variable = "binlog_row_value_options" if image == "PARTIAL_JSON" else "binlog_row_image"
    several = "INSERT INTO t VALUES (7, 1, '{}', 'x'), (7, 8, '{}', 'y'), (7, 2, '{}', 'z')"
    updates = [
        *(f"UPDATE t SET v = (v + {rng.randrange(10)}) % 10 WHERE id % {rng.randint(1, 7)} = 0" for _ in range(20)),
        "UPDATE t SET id = id + 1 ORDER BY id DESC",
        "UPDATE t SET id = id - 1, v = 9 - v ORDER BY id",
        "UPDATE t SET doc = JSON_SET(doc, '$.a', v), v = (v + 3) % 10",
        "UPDATE t SET note = NULL, v = (v + 5) % 10 WHERE id > 50",
        f"{several} ON DUPLICATE KEY UPDATE v = (v + 5) % 10, note = VALUES(note)",
        "DELETE FROM t WHERE id % 9 = 0",
    ]
    doc = json.dumps({"a": 0, "pad": "x" * 200})
    inserted = ", ".join(f"({i}, {rng.randrange(10)}, '{doc}', 'n{i}')" for i in range(100))
    entries = delivered(
        server,
        tmp_path,
        schema,
        [
            "CREATE TABLE t (id int PRIMARY KEY, v int, doc json, note varchar(9))",
            f"SET SESSION {variable} = {image}",
            f"INSERT INTO t VALUES {inserted}",
            *updates,
        ],
        filter_where=f"{schema}.t: v BETWEEN 2 AND 5",
        filter_crossing="split",
    )
    copy: dict[str | None, dict[str, str | None]] = {}
    kinds = set()
    for _, change in rows_of(entries, "t"):
        kinds.add(EventType.Name(change.eventType))
        for row in change.rowDatas:
            before, after = values(row.beforeColumns), values(row.afterColumns)
            if before:
                assert copy.pop(before["id"]) == before
            if after:
                after = before | after  # FULL_NODUP: what was changed
                assert after["id"] not in copy
                copy[after["id"]] = after
    assert {"INSERT", "UPDATE", "DELETE"} <= kinds
    with server.connect(database=schema) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT id, v, doc, note FROM t WHERE v BETWEEN 2 AND 5")
        rows = [[None if it is None else str(it) for it in row] for row in cursor.fetchall()]
    expected = {row[0]: dict(zip(("id", "v", "doc", "note"), row, strict=True)) for row in rows}
    assert copy == expected


@pytest.mark.usefixtures("full_metadata")
def test_a_column_that_cannot_be_compared_stops_the_destination(
    mariadb118: Server, database: Database, tmp_path: Path
) -> None:
    """MariaDB's default collation, uca1400_ai_ci."""
    schema = database(mariadb118)
    condition = f"{schema}.t: c = 'x'"
    with Reading(config(mariadb118, tmp_path, filter_where=condition, filter_regex=f"{schema}\\..*")) as reading:
        reading.wait(lambda: reading.running)
        execute(mariadb118, ["CREATE TABLE t (c varchar(9))", "INSERT INTO t VALUES ('y')"], database=schema)
        reading.wait(lambda: bool(reading.error))
        assert f"sluice.instance.filter.where: {schema}.t.c: texts of the collation number" in reading.error
        assert not reading.rows()


def test_a_column_of_another_collation_is_compared_by_one_that_is_named(
    mariadb118: Server, database: Database, tmp_path: Path
) -> None:
    """Also where the source does not write collations into its binlog."""
    schema = database(mariadb118)
    entries = delivered(
        mariadb118,
        tmp_path,
        schema,
        [
            "CREATE TABLE t (c varchar(9) COLLATE utf8mb4_uca1400_ai_ci)",
            "INSERT INTO t VALUES ('paid'), ('Paid'), ('open')",
        ],
        filter_where=f"{schema}.t: c COLLATE utf8mb4_bin = 'paid'",
    )
    assert [line for line in transcript(entries) if line.startswith("INSERT")] == ["INSERT t paid"]


def test_a_source_with_minimal_images_is_refused(mysql97: Server, tmp_path: Path) -> None:
    refusal = "binlog_row_image is MINIMAL: rows lack the columns of their conditions"
    with (
        mysql97.variable("binlog_row_image", "MINIMAL"),
        closing(connect(mysql97)) as connection,
        pytest.raises(SourceError, match=refusal),
    ):
        connection.check(config(mysql97, tmp_path, filter_where="s.t: a = 1"))
