"""Rows have the columns that their table had when they were written, however quickly statements change it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice.protocol.canal.entry_pb2 import Entry
from tests.conftest import Database
from tests.delivery import Delivery, deliver, end_of_binlog, execute, rows_of, values
from tests.servers import Server

# Each value begins with the name of its column, so that a row says by itself which names are right.
SCRIPT = [
    "CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(20), b VARCHAR(20))",
    "INSERT INTO t VALUES (1, 'a', 'b')",
    "ALTER TABLE t ADD c VARCHAR(20) FIRST",
    "INSERT INTO t VALUES ('c', 2, 'a', 'b')",
    "ALTER TABLE t CHANGE a b VARCHAR(20), CHANGE b a VARCHAR(20)",
    "INSERT INTO t VALUES ('c', 3, 'b', 'a')",
    "ALTER TABLE t DROP c, MODIFY a VARCHAR(30) CHARACTER SET latin1 FIRST",
    "INSERT INTO t VALUES ('a é', 4, 'b')",
    "CREATE TABLE u LIKE t",
    "ALTER TABLE u ADD (d VARCHAR(20), e ENUM('e','ex')), DROP b",
    "INSERT INTO u VALUES ('a', 5, 'd', 'ex')",
    "RENAME TABLE t TO w, u TO t, w TO u",
    "INSERT INTO t VALUES ('a', 6, 'd', 'e')",
    "INSERT INTO u VALUES ('a', 7, 'b')",
    "CREATE /* gh-ost */ TABLE _t_gho LIKE t",
    "ALTER /* gh-ost */ TABLE _t_gho CHANGE d `d 2` VARCHAR(9) CHARACTER SET utf8, ADD f VARCHAR(9) AFTER id",
    "INSERT INTO _t_gho VALUES ('a', 8, 'f', 'd 2', 'e')",
    "RENAME TABLE t TO _t_del, _t_gho TO t",
    "INSERT INTO t VALUES ('a', 9, 'f', 'd 2 日本', 'e')",
    "DROP TABLE _t_del",
    "CREATE TABLE IF NOT EXISTS t (wrong INT)",
    "INSERT INTO t VALUES ('a', 10, 'f', 'd 2', 'ex')",
    "ALTER TABLE t CONVERT TO CHARACTER SET gbk",
    "INSERT INTO t VALUES ('a 日', 11, 'f 本', 'd 2', 'ex')",
    "TRUNCATE TABLE t",
    "ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (a), RENAME TO v",
    "INSERT INTO v VALUES ('a', 12, 'f', 'd 2', 'ex')",
    "DROP TABLE v, u",
    "CREATE TABLE IF NOT EXISTS v (id INT, z VARCHAR(9) DEFAULT 'z', y VARCHAR(9) /*!99999 FIRST */) CHARSET=ucs2",
    "INSERT INTO v VALUES (13, 'z', 'y 日')",
]
IDS = list(range(1, 14))
LABELS = {"e": ("1", "2")}
"""An ENUM is delivered as a number."""


def ids_of(entries: list[Entry]) -> list[int]:
    """The rows, each with its values under their own names; none is in doubt."""
    assert not [
        it for entry in entries for it in entry.header.props if it.key in ("sluice.schema", "sluice.quarantine")
    ]
    rows = [values(row.afterColumns) for _, change in rows_of(entries) for row in change.rowDatas]
    ids = [int(row.pop("id") or 0) for row in rows]
    wrong = [row for row in rows for name, value in row.items() if not (value or "").startswith(LABELS.get(name, name))]
    assert not wrong
    return ids


@pytest.fixture
def reading(server: Server, database: Database, tmp_path: Path) -> Iterator[tuple[Delivery, str]]:
    """What reads a schema while statements run in it."""
    schema = database(server)
    with deliver(server, tmp_path, filter_regex=rf"{schema}\..*", filter_query_ddl=True) as delivery:
        yield delivery, schema


def test_a_script_of_quick_ddl_leaves_no_row_in_doubt(reading: tuple[Delivery, str]) -> None:
    delivery, schema = reading
    delivery.read()
    execute(delivery.server, SCRIPT, database=schema)
    assert ids_of(delivery.read()) == IDS
    assert delivery.parser.status.quarantined == 0


def test_what_was_written_long_ago_is_read_as_it_was_if_its_database_was_made_since(
    server: Server, database: Database, tmp_path: Path
) -> None:
    schema = database(server)
    server.query(f"DROP DATABASE {schema}")
    file, offset = end_of_binlog(server)
    execute(server, [f"CREATE DATABASE {schema} CHARACTER SET utf8", f"USE {schema}", *SCRIPT, "DROP TABLE v"])
    place = {"master_journal_name": file, "master_position": offset}
    with deliver(server, tmp_path, **place, filter_regex=rf"{schema}\..*", filter_query_ddl=True) as late:
        assert ids_of(late.read()) == IDS


def test_a_table_that_was_there_before_is_known_from_its_first_row_on(reading: tuple[Delivery, str]) -> None:
    delivery, schema = reading
    statements = ["CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(9))", "INSERT INTO t VALUES (1, 'a')"]
    execute(delivery.server, statements, database=schema)
    delivery.read()
    changes = [
        "ALTER TABLE t CHANGE a b VARCHAR(9)",
        "INSERT INTO t VALUES (2, 'b')",
        "ALTER TABLE t CHANGE b c VARCHAR(9)",
        "INSERT INTO t VALUES (3, 'c')",
    ]
    execute(delivery.server, changes, database=schema)
    rows = [values(row.afterColumns) for _, change in rows_of(delivery.read()) for row in change.rowDatas]
    assert rows == [{"id": "2", "b": "b"}, {"id": "3", "c": "c"}]


def test_a_statement_that_fails_halfway_makes_its_table_unknown(
    mariadb118: Server, database: Database, tmp_path: Path
) -> None:
    schema = database(mariadb118)
    with deliver(mariadb118, tmp_path, filter_regex=rf"{schema}\..*", filter_query_ddl=True) as delivery:
        execute(mariadb118, ["CREATE TABLE t (a INT)", "INSERT INTO t VALUES (1)"], database=schema)
        delivery.read()
        with pytest.raises(Exception, match="key length"):  # it drops the table all the same
            mariadb118.query("CREATE OR REPLACE TABLE t (b TEXT PRIMARY KEY)", database=schema)
        execute(mariadb118, ["CREATE TABLE IF NOT EXISTS t (c INT)", "INSERT INTO t VALUES (2)"], database=schema)
        (row,) = [row for _, change in rows_of(delivery.read()) for row in change.rowDatas]
        assert values(row.afterColumns) == {"c": "2"}


@pytest.mark.parametrize("name", ["mysql56", "mariadb118"])
def test_a_temporary_table_does_not_change_the_table_that_it_hides(
    name: str, request: pytest.FixtureRequest, database: Database, tmp_path: Path
) -> None:
    server: Server = request.getfixturevalue(name)
    schema = database(server)
    with deliver(server, tmp_path, filter_regex=rf"{schema}\..*", filter_query_ddl=True) as delivery:
        execute(server, ["CREATE TABLE t (a INT)", "INSERT INTO t VALUES (1)"], database=schema)
        delivery.read()
        statements = [
            "SET SESSION binlog_format = STATEMENT",
            "CREATE TEMPORARY TABLE t (b INT)",
            "ALTER TABLE t CHANGE b a BIGINT, ADD z INT FIRST",
            "ALTER TABLE t DROP z, CHANGE a c INT",
        ]
        execute(server, statements, database=schema)
        server.query("INSERT INTO t VALUES (2)", database=schema)
        (row,) = [row for _, change in rows_of(delivery.read()) for row in change.rowDatas]
        assert values(row.afterColumns) == {"a": "2"}
