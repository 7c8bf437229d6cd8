"""What is kept of tables where only the types are open that MariaDB's full metadata does not tell."""

from pathlib import Path

import pytest

from sluice.instance.sources.mysql.history.file import FileDatabase
from sluice.instance.sources.mysql.history.statements import Context, apply
from sluice.instance.sources.mysql.history.tables import UNKNOWN, Catalog, Column, Database, State, Table
from sluice.instance.sources.mysql.history.versions import History
from sluice.protocol.lexer import Dialect
from sluice.protocol.position import Position
from sluice.store.cursor import Cursor

MARIADB = Dialect((11, 8, 6), mariadb=True, charsets=frozenset({"utf8mb4", "latin1", "binary"}))


def table(**columns: str) -> Table:
    return Table(tuple(Column(name, type_) for name, type_ in columns.items()), (), None)


def catalog() -> Catalog:
    """All that the server has is known: `t` has two open columns, `shop.plain` may exist without any."""
    found = Catalog(only_open=True)
    found.learn("shop", Database(None, {"t": table(u="uuid", b="binary(16)"), "odd": UNKNOWN}, is_complete=True))
    found.is_complete = True
    found.changes.clear()
    return found


@pytest.mark.parametrize(
    ("sql", "name", "expected"),
    [
        ("CREATE TABLE n (id INT PRIMARY KEY, u UUID, v VARCHAR(9))", "n", table(u="uuid")),
        ("CREATE TABLE n (c CHAR(16) CHARACTER SET binary)", "n", table(c="binary(16)")),
        ("CREATE TABLE IF NOT EXISTS n (u INET4)", "n", table(u="inet4")),
        ("CREATE TABLE IF NOT EXISTS t (u INET6)", "t", table(u="uuid", b="binary(16)")),
        ("CREATE TABLE IF NOT EXISTS odd (u INET6)", "odd", UNKNOWN),
        ("CREATE TABLE n (u UUID) AS SELECT 1", "n", UNKNOWN),
        ("CREATE TABLE n LIKE t", "n", table(u="uuid", b="binary(16)")),
        ("CREATE TABLE n LIKE plain", "n", None),
        ("CREATE TABLE n LIKE odd", "n", UNKNOWN),
        ("CREATE OR REPLACE TABLE t (u INT)", "t", None),
        ("ALTER TABLE plain ADD u UUID", "plain", table(u="uuid")),
        ("ALTER TABLE plain ADD u UUID AFTER id, ADD PRIMARY KEY (id)", "plain", table(u="uuid")),
        ("ALTER TABLE plain MODIFY u UUID, ALGORITHM=COPY", "plain", table(u="uuid")),
        ("ALTER TABLE plain MODIFY COLUMN IF EXISTS u UUID", "plain", None),
        ("ALTER TABLE plain RENAME COLUMN a TO u, DROP c", "plain", None),
        ("ALTER TABLE plain CONVERT TO CHARACTER SET utf8mb4, ADD u UUID, ADD t TEXT", "plain", table(u="uuid")),
        ("ALTER TABLE IF EXISTS plain ADD u UUID", "plain", UNKNOWN),
        ("ALTER TABLE IF EXISTS plain ADD i INT", "plain", None),
        ("ALTER TABLE odd ADD u UUID", "odd", UNKNOWN),
        ("ALTER TABLE t CHANGE u b UUID, CHANGE b u BINARY(16)", "t", table(b="uuid", u="binary(16)")),
        ("ALTER TABLE t DROP u, ADD u INET6", "t", table(b="binary(16)", u="inet6")),
        ("ALTER TABLE t DROP u, DROP b", "t", None),
        ("ALTER TABLE t MODIFY u CHAR(36)", "t", table(b="binary(16)")),
        ("ALTER TABLE t RENAME COLUMN U TO v", "t", table(b="binary(16)", v="uuid")),
        ("ALTER TABLE t ADD COLUMN IF NOT EXISTS u UUID", "t", table(u="uuid", b="binary(16)")),
        ("ALTER TABLE t ADD COLUMN IF NOT EXISTS u BINARY(16)", "t", UNKNOWN),
        ("ALTER TABLE t ADD u BINARY(16)", "t", UNKNOWN),
        ("ALTER TABLE t SOMETHING NEW", "t", UNKNOWN),
        ("ALTER TABLE t ADD UNIQUE (u), ENGINE=InnoDB", "t", table(u="uuid", b="binary(16)")),
        ("ALTER TABLE t RENAME TO away.t", "t", None),
        ("RENAME TABLE t TO n", "n", table(u="uuid", b="binary(16)")),
        ("RENAME TABLE plain TO n", "n", None),
        ("RENAME TABLE t TO x, plain TO t, x TO plain", "plain", table(u="uuid", b="binary(16)")),
        ("DROP DATABASE shop", "t", None),
        ("CREATE VIEW v AS SELECT 1", "v", None),
        ("CREATE OR REPLACE VIEW odd AS SELECT 1", "odd", UNKNOWN),
        ("DROP INDEX `PRIMARY` ON t", "t", table(u="uuid", b="binary(16)")),
    ],
)
def test_a_statement_leaves_the_columns_whose_types_are_open(sql: str, name: str, expected: State) -> None:
    found = catalog()
    apply(found, MARIADB, sql, Context("shop"))
    assert sorted_(found.get("shop", name)) == sorted_(expected)


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TABLE n (id INT, b VARBINARY(16))",
        "ALTER TABLE plain ADD x INT, DROP y, RENAME TO other",
        "ALTER TABLE t ADD x INT",
        "DROP TABLE plain",
        "RENAME TABLE plain TO other",
        "CREATE DATABASE IF NOT EXISTS new DEFAULT CHARACTER SET latin1",
        "ALTER DATABASE shop CHARACTER SET latin1",
        "DROP DATABASE other",
        "CREATE VIEW v AS SELECT 1",
        "DROP VIEW v",
        "CREATE SEQUENCE s",
    ],
)
def test_nothing_is_noted_where_no_open_column_changes(sql: str) -> None:
    found = catalog()
    apply(found, MARIADB, sql, Context("shop"))
    assert found.changes == []


def test_a_table_in_a_database_without_any_does_not_make_the_others_there_unknown() -> None:
    found = catalog()
    apply(found, MARIADB, "CREATE TABLE new.a (u UUID)", Context("shop"))
    assert found.get("new", "b") is None


def place(begin: int) -> Position:
    return Position("a", "bin.000003", 1, begin, 0)


@pytest.mark.parametrize("only_open", [True, False])
def test_a_history_goes_on_only_as_one_of_its_kind(tmp_path: Path, *, only_open: bool) -> None:
    """The source was asked for other columns since binlog_row_metadata was changed; who only reads takes either."""
    first = History(FileDatabase(tmp_path, writes=True), writes=True)
    kept = catalog()
    first.begin(kept, place(100), "")
    first.cover(place(300), str)
    first.close()
    for writes in (False, True):
        again, begun = History(FileDatabase(tmp_path, writes=writes), writes=writes), Catalog(only_open=only_open)
        found = again.begin_at(begun, Cursor.at(place(200)))
        again.close()
        assert found is (only_open or not writes)
        if found:
            assert begun.only_open
            assert list(begun.everything()) == list(kept.everything())
        else:
            assert begun.only_open is only_open
            assert begun.get("shop", "t") is UNKNOWN


def sorted_(state: State) -> State:
    return Table(tuple(sorted(state.columns, key=lambda it: it.name)), (), None) if isinstance(state, Table) else state
