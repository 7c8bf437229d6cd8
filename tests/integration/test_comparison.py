"""Tables of a real source beside their copies on another server: what is equal, and which differences are named."""

from collections.abc import Callable
from pathlib import Path

import pytest

from sluice.instance.sources.registry import examine
from sluice.instance.zones import offsets_of
from sluice.protocol.position import Position
from sluice.server.outputs.mysql import comparison
from sluice.server.outputs.mysql.comparison import Comparison, CopyReport, Pair
from sluice.sql.database import Database as Account
from tests.conftest import Database
from tests.delivery import config_for
from tests.servers import Server

NUMBERS = "WITH RECURSIVE n AS (SELECT 1 i UNION ALL SELECT i + 1 FROM n WHERE i < 1000) SELECT"


class Sides:
    """A schema of each server."""

    def __init__(self, source: Server, target: Server, schema: str, copy: str, folder: Path) -> None:
        self.source, self.target = source, target
        self.schema, self.copy = schema, copy
        self.settings: dict[str, object] = {}
        self._folder = folder

    def both(self, *statements: str) -> None:
        for it in statements:
            self.source.query(it, database=self.schema)
            self.target.query(it, database=self.copy)

    def at_source(self, *statements: str) -> None:
        for it in statements:
            self.source.query(it, database=self.schema)

    def on_target(self, *statements: str) -> None:
        for it in statements:
            self.target.query(it, database=self.copy)

    def compare(
        self, table: str = "t", reach: Callable[[Position], None] = lambda _: None, where: str = ""
    ) -> CopyReport:
        """Compare a table; ``reach`` is called whenever the source was read, and has to bring the target there."""
        config = config_for(self.source, self._folder, **self.settings)
        account = Account(self.target.host, self.target.port, self.target.user, self.target.password)
        with examine(config) as source:
            reader = source.table_reader()
        try:
            with Comparison(reader, account, offsets_of(config.time_zone), reach, lambda *_: None) as found:
                found.compare(Pair((self.schema, table), (self.copy, table), where, is_whole=not where))
        finally:
            reader.close()
        return found.report

    def differences(self, table: str = "t") -> list[str]:
        report = self.compare(table)
        assert not report.unread
        assert report.different == len(report.differences)
        return sorted(it.removeprefix(f"{self.schema}.{table}: ") for it in report.differences)


@pytest.fixture
def sides(mariadb118: Server, mysql97: Server, database: Database, tmp_path: Path) -> Sides:
    """MariaDB 11.8 as the source, MySQL 9.7 as the target."""
    return Sides(mariadb118, mysql97, database(mariadb118), database(mysql97), tmp_path)


@pytest.fixture
def reverse(mariadb118: Server, mysql97: Server, database: Database, tmp_path: Path) -> Sides:
    """MySQL 9.7 as the source, MariaDB 11.8 as the target."""
    return Sides(mysql97, mariadb118, database(mysql97), database(mariadb118), tmp_path)


@pytest.fixture(params=["sides", "reverse"])
def either(request: pytest.FixtureRequest) -> Sides:
    """Each of both."""
    found: Sides = request.getfixturevalue(request.param)
    return found


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look again at once."""
    monkeypatch.setattr(comparison, "PAUSE", 0.0)


def test_rows_that_differ_are_named_and_how(either: Sides) -> None:
    either.both(
        "CREATE TABLE t (id INT, part INT, v VARCHAR(9) CHARSET utf8mb4, w INT, PRIMARY KEY (part, id))",
        f"INSERT INTO t {NUMBERS} i, i % 3, 'x', i FROM n",
    )
    assert either.differences() == []
    either.on_target(
        "DELETE FROM t WHERE id = 7",
        "UPDATE t SET v = 'X', w = NULL WHERE id = 500",
        "INSERT INTO t VALUES (-1, 5, '', 0), (5000, 0, '', 0)",
    )
    assert either.differences() == [
        "part = 0, id = 5000: only on the target",
        "part = 1, id = 7: only at the source",
        "part = 2, id = 500: differs in v, w",
        "part = 5, id = -1: only on the target",
    ]


def test_a_large_table_is_compared_in_ranges(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "CHUNK", 90)
    sides.both("CREATE TABLE t (id INT PRIMARY KEY)", f"INSERT INTO t {NUMBERS} i * 10 FROM n")
    places: list[Position] = []
    report = sides.compare(reach=places.append)
    assert (report.rows, report.different, len(places)) == (1000, 0, 0)
    sides.on_target("INSERT INTO t VALUES (905), (-5), (20000)", "DELETE FROM t WHERE id IN (10, 900, 910, 10000)")
    assert len(sides.differences()) == 7


def test_an_empty_table_is_compared_too(sides: Sides) -> None:
    sides.both("CREATE TABLE t (id INT PRIMARY KEY)")
    assert sides.differences() == []
    sides.on_target("INSERT INTO t VALUES (1)")
    assert sides.differences() == ["id = 1: only on the target"]


COLUMNS = {
    "f": ("FLOAT", "0.1", "0.10000002"),
    "d": ("DOUBLE", "1e-17 + 0.1", "0.1 + 1e-16"),
    "n": ("DECIMAL(20, 5)", "1.5", "1.50001"),
    "u": ("BIGINT UNSIGNED", "18446744073709551615", "18446744073709551614"),
    "z": ("INT(5) ZEROFILL", "7", "8"),
    "b": ("BIT(10)", "b'1000000001'", "b'1000000000'"),
    "e": ("ENUM('a', 'b')", "'b'", "'a'"),
    "s": ("SET('a', 'b', 'c')", "'a,c'", "'a'"),
    "j": ("JSON", """'{"a": [1, 2.50], "b": null}'""", """'{"a": [1, 2.5], "b": 0}'"""),
    "day": ("DATE", "'0000-00-00'", "NULL"),
    "ti": ("TIME(3)", "'-838:59:59.000'", "'838:59:59'"),
    "dt": ("DATETIME(6)", "'2024-02-30 00:00:00.000001'", "'2024-02-29 00:00:00.000001'"),
    "ts": ("TIMESTAMP NULL", "'2024-06-01 12:00:00'", "'2024-06-01 11:00:00'"),
    "y": ("YEAR", "2024", "0"),
    "l": ("VARCHAR(9) CHARSET latin1", "'\xe9'", "'e'"),
    "c": ("CHAR(9) CHARSET utf8mb4", "'\U0001f600'", "'\U0001f601'"),
    "k": ("VARCHAR(9) CHARSET gbk", "'\u4e2d'", "'\u56fd'"),
    "x": ("BINARY(4)", "X'0102'", "X'010203'"),
    "bl": ("BLOB", "X'00FF'", "X'00FE'"),
    "g": ("POINT", "POINT(1, 2)", "POINT(1, 3)"),
}
"""Of each class of types a column, a value, and another one that is nearly the same."""


def test_each_class_of_types_is_compared_by_value(either: Sides) -> None:
    definitions = ", ".join(f"{name} {kind}" for name, (kind, *_) in COLUMNS.items())
    either.both(
        f"CREATE TABLE t (id INT PRIMARY KEY, {definitions}, gen INT AS (id + 1) VIRTUAL, kept INT AS (id * 2) STORED)"
    )
    names = ", ".join(COLUMNS)
    values = ", ".join(value for _, value, _ in COLUMNS.values())
    for server, schema in ((either.source, either.schema), (either.target, either.copy)):
        with server.connect(database=schema) as connection, connection.cursor() as cursor:
            cursor.execute("SET sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'")
            for number in range(len(COLUMNS) + 1):
                cursor.execute(f"INSERT INTO t (id, {names}) VALUES ({number}, {values})")
    assert either.differences() == []
    with either.target.connect(database=either.copy) as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'")
        for number, (name, (_, _, other)) in enumerate(COLUMNS.items()):
            cursor.execute(f"UPDATE t SET {name} = {other} WHERE id = {number}")
    found = either.compare().differences
    wanted = [f"{either.schema}.t: id = {number}: differs in {name}" for number, name in enumerate(COLUMNS)]
    assert sorted(found) == sorted(wanted)[: len(found)] or set(found) == set(wanted)
    assert either.compare().different == len(COLUMNS)


def test_columns_of_other_types_are_equal_where_their_values_are(sides: Sides) -> None:
    sides.at_source(
        "CREATE TABLE t (id INT PRIMARY KEY, n DECIMAL(9, 2), d FLOAT, t DATETIME, j JSON, i INT)",
        """INSERT INTO t VALUES (1, 1.5, 0.5, '2024-01-01', '{"b":1.0,  "a":[]}', 3)""",
    )
    sides.on_target(
        "CREATE TABLE t (id BIGINT PRIMARY KEY, n DECIMAL(12, 4), d DOUBLE, t DATETIME(3), j JSON, i DECIMAL(5, 1))",
        """INSERT INTO t VALUES (1, 1.5, 0.5, '2024-01-01', '{"a": [], "b": 1.0}', 3)""",
    )
    assert sides.differences() == []


def test_timestamps_are_compared_in_the_zone_of_the_destination(sides: Sides) -> None:
    sides.settings["time_zone"] = "Asia/Shanghai"
    sides.both("CREATE TABLE t (id INT PRIMARY KEY, at TIMESTAMP NULL)")
    sides.at_source("INSERT INTO t VALUES (1, FROM_UNIXTIME(86400))")
    sides.on_target("INSERT INTO t VALUES (1, FROM_UNIXTIME(86400))")
    assert sides.differences() == []


def test_tables_and_columns_that_lack_are_named(sides: Sides) -> None:
    sides.at_source(
        "CREATE TABLE u (id INT PRIMARY KEY)", "CREATE TABLE t (id INT PRIMARY KEY, v INT, e ENUM('a', 'b'))"
    )
    sides.on_target("CREATE TABLE t (id INT PRIMARY KEY, w INT, e ENUM('b', 'a'))")
    (missing,) = sides.differences("u")
    assert f"{sides.copy}.u is unknown" in missing
    (columns,) = sides.differences()
    assert columns.startswith("the target lacks v; the source lacks w; e is enum('a','b') at the source, and enum('b'")


def test_a_table_without_a_key_is_compared_by_counts_and_hashes(either: Sides) -> None:
    either.both("CREATE TABLE t (n INT, v VARCHAR(9))", f"INSERT INTO t {NUMBERS} i % 50, 'x' FROM n")
    either.both("INSERT INTO t VALUES (NULL, NULL)")
    assert either.differences() == []
    either.on_target("DELETE FROM t WHERE n = 7 LIMIT 1", "INSERT INTO t VALUES (NULL, 'x')")
    assert either.differences() == [
        "n = 7, v = x: 20 times at the source, 19 times on the target",
        "n = NULL, v = x: only on the target",
    ]


def test_a_key_of_text_that_both_sides_order_differently_is_compared_by_value(sides: Sides) -> None:
    sides.at_source("CREATE TABLE t (k VARCHAR(20) CHARSET utf8mb4 COLLATE utf8mb4_general_ci PRIMARY KEY, v INT)")
    sides.on_target("CREATE TABLE t (k VARCHAR(20) CHARSET utf8mb4 COLLATE utf8mb4_bin PRIMARY KEY, v INT)")
    sides.both(f"INSERT INTO t {NUMBERS} CONCAT(CHAR(65 + i % 26 + 32 * (i % 2) USING utf8mb4), i), i FROM n")
    assert sides.differences() == []
    sides.on_target("UPDATE t SET v = 0 WHERE v = 7", "UPDATE t SET k = UPPER(k) WHERE v = 27")
    found = sides.differences()
    assert len(found) == 3
    assert sum("only" in it for it in found) == 2


def test_a_row_that_changes_meanwhile_is_not_taken_for_a_difference(sides: Sides) -> None:
    sides.both("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 0), (2, 0)")
    counts = iter(range(1, 100))

    def apply(_: Position) -> None:
        """The output has applied what is before the place; then one more change comes at the source."""
        number = next(counts)
        if number < 4:
            sides.on_target(f"REPLACE INTO t VALUES (1, {number - 1})")
            sides.at_source(f"UPDATE t SET v = {number} WHERE id = 1")
            sides.on_target(f"REPLACE INTO t VALUES (1, {number})")
        else:
            sides.on_target("REPLACE INTO t VALUES (1, 3)")

    sides.on_target("UPDATE t SET v = 9 WHERE id = 2")
    report = sides.compare(reach=apply)
    assert report.differences == [f"{sides.schema}.t: id = 2: differs in v"]
    assert not report.unread


def test_a_row_that_never_rests_is_counted_as_not_compared(sides: Sides) -> None:
    sides.both("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, -1)")
    sides.at_source("UPDATE t SET v = 0")
    report = sides.compare(reach=lambda _: sides.at_source("UPDATE t SET v = v + 1"))
    assert report.different == 0
    assert list(report.unread.values()) == [1]


def test_only_rows_of_a_condition_are_compared_where_there_is_one(sides: Sides) -> None:
    sides.both("CREATE TABLE t (id INT PRIMARY KEY, v INT)", f"INSERT INTO t {NUMBERS} i, i % 2 FROM n")
    sides.on_target("UPDATE t SET v = 5 WHERE id IN (10, 11)")
    report = sides.compare(where="v = 1")
    assert report.differences == [f"{sides.schema}.t: id = 11: differs in v"]
    assert (report.rows, report.partial) == (500, [f"{sides.schema}.t"])
