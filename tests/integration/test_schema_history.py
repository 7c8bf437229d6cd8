"""Rows that are read long after they were written, from sources that do not say the names of their columns."""

import time
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from sluice.protocol.canal.rows import Change, decode_changes
from sluice.server.embedded import EmbeddedServer
from tests import reading
from tests.conftest import Database, each
from tests.delivery import end_of_binlog, execute
from tests.reading import config, embedded
from tests.servers import Server
from tests.servers.server import next_second
from tests.waiting import soon

NAME = "example"
CLIENT = 1001
COUNT = 12
EXTENDED = pytest.mark.extended
Found = list[tuple[str, str]]


@pytest.fixture(params=each("mariadb118"))
def source(request: pytest.FixtureRequest) -> Server:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Server)
    return found


def serving(source: Server, schema: str, folder: Path, **settings: Any) -> AbstractAsyncContextManager[EmbeddedServer]:
    return embedded(config(source, folder, filter_regex=rf"{schema}\.t", **settings))


def followed(source: Server, schema: str, folder: Path, **settings: Any) -> AbstractAsyncContextManager[EmbeddedServer]:
    """A server whose client is to have all that is written from here on."""
    return reading.followed(config(source, folder, filter_regex=rf"{schema}\.t", **settings), CLIENT)


def change(source: Server, schema: str) -> Found:
    """Change a table in ways that events without names cannot tell; return each row, and what is said of its schema."""
    found = []
    for number in range(COUNT):
        old, new = f"c{number}", f"c{number + 1}"
        source.query(f"INSERT INTO t VALUES ({number}, {number})", database=schema)
        found.append((f"id={number} {old}={number}", ""))
        statements = [f"ALTER TABLE t CHANGE {old} {new} INT"]
        if number % 2:  # as tools do that change a table without a lock
            statements = [
                "CREATE TABLE _t_new LIKE t",
                f"ALTER TABLE _t_new CHANGE {old} {new} INT",
                "RENAME TABLE t TO _t_old, _t_new TO t",
                "DROP TABLE _t_old",
            ]
        for statement in statements:
            source.query(statement, database=schema)
    return found


def rows_of(changes: Iterable[Change]) -> Found:
    """The rows of some changes, and what their headers say of the columns."""
    return [
        (
            " ".join(f"{name}={value}" for name, value in (row.after or {}).items()),
            change.header_props.get("sluice.schema", ""),
        )
        for change in changes
        if change.table == "t"
        for row in change.rows()
        if row.type == "INSERT"
    ]


async def stream(server: EmbeddedServer, *, ack: bool = False) -> Found:
    found: Found = []
    while len(found) < COUNT:
        batch = await server.get_without_ack(NAME, CLIENT, timeout=20)
        found += rows_of(it for part in batch.slices for it in decode_changes(part))
        if ack:
            await server.ack(NAME, CLIENT, batch_id=batch.batch_id)
    return found


async def test_each_row_has_the_columns_that_its_table_had_then(
    source: Server, database: Database, tmp_path: Path
) -> None:
    schema = database(source)
    source.query("CREATE TABLE t (id INT PRIMARY KEY, c0 INT)", database=schema)
    async with followed(source, schema, tmp_path) as server:
        expected = change(source, schema)
        assert await stream(server) == expected, "while it is written"
    async with serving(source, schema, tmp_path) as server:
        assert await stream(server) == expected, "after a restart"
    source.query(f"ALTER TABLE t CHANGE c{COUNT} last INT", database=schema)
    async with serving(source, schema, tmp_path) as server:
        begin = server.status(NAME, CLIENT).position
        assert await stream(server, ack=True) == expected, "after a restart that was too late for the last statement"
        await server.seek(NAME, CLIENT, begin)
        assert await stream(server) == expected, "by a reader of its own"
    source.query("DROP TABLE t", database=schema)
    async with serving(source, schema, tmp_path) as server:
        assert await stream(server) == expected, "after its table was dropped"


async def test_a_start_at_a_configured_place_has_the_history_of_that_place(
    source: Server, database: Database, tmp_path: Path
) -> None:
    schema = database(source)
    source.query("CREATE TABLE t (id INT PRIMARY KEY, c0 INT)", database=schema)
    noted = tmp_path / "tables"
    async with followed(source, schema, tmp_path / "first", tsdb_dir=noted) as server:
        file, offset = end_of_binlog(source)
        expected = change(source, schema)
        assert await stream(server) == expected
    place = {"master_journal_name": file, "master_position": offset}
    async with serving(source, schema, tmp_path / "second", tsdb_dir=noted, **place) as server:
        await server.subscribe(NAME, CLIENT)
        assert await stream(server) == expected


async def test_the_history_goes_on_where_another_server_had_the_destination(
    source: Server, database: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    schema = database(source)
    source.query("CREATE TABLE t (id INT PRIMARY KEY, a INT)", database=schema)
    async with followed(source, schema, tmp_path, tsdb_dir=tmp_path / "ours") as server:
        source.query("INSERT INTO t VALUES (1, 1)", database=schema)
        assert rows_of(await changes(server)) == [("id=1 a=1", "")]
    async with serving(source, schema, tmp_path, tsdb_dir=tmp_path / "theirs") as server:
        for statement in ("ALTER TABLE t CHANGE a b INT", "FLUSH BINARY LOGS", "INSERT INTO t VALUES (2, 2)"):
            source.query(statement, database=schema)
        while "id=2 b=2" not in dict(rows_of(await changes(server))):  # flagged, if it is of the ALTER's second
            pass
    for statement in ("INSERT INTO t VALUES (3, 3)", "ALTER TABLE t CHANGE b c INT", "INSERT INTO t VALUES (4, 4)"):
        source.query(statement, database=schema)
    with caplog.at_level("INFO"):
        async with serving(source, schema, tmp_path, tsdb_dir=tmp_path / "ours") as server:
            found = rows_of(await changes(server))
            while len(found) < 2:
                found += rows_of(await changes(server))
            assert found == [("id=3 b=3", ""), ("id=4 c=4", "")]
    assert "looking for statements that changed tables from" in caplog.text
    assert "asking the source for all tables" not in caplog.text


async def test_rows_that_contradict_the_history_are_quarantined_where_nothing_says_which_columns_they_had(
    source: Server, database: Database, tmp_path: Path
) -> None:
    schema = database(source)
    source.query("CREATE TABLE t (id INT PRIMARY KEY, c0 INT)", database=schema)
    unlogged = ["SET sql_log_bin = 0", "ALTER TABLE t ADD added VARCHAR(9) AFTER id", "SET sql_log_bin = 1"]
    in_doubt = "SET timestamp = UNIX_TIMESTAMP() - 3"  # older than the ALTER, as far as one can see
    async with followed(source, schema, tmp_path) as server:
        execute(source, ["INSERT INTO t VALUES (0, 0)"], database=schema)
        assert rows_of(await changes(server)) == [("id=0 c0=0", "")]
        execute(source, [*unlogged, in_doubt, "INSERT INTO t VALUES (1, 'x', 1)"], database=schema)
        (marker,) = await changes(server)
        reason = marker.header_props["sluice.quarantine"]
        assert "the event has the columns (LONG, VARCHAR, LONG), the history of tables (id int" in reason
        assert "what the source has now may be younger than these rows" in reason
        execute(source, [in_doubt, "INSERT INTO t VALUES (2, 'y', 2)"], database=schema)
        assert rows_of(await changes(server)) == [("id=2 added=y c0=2", "")], "the source was asked before this row"


async def test_the_history_is_corrected_by_a_source_that_had_the_columns_before_the_rows(
    source: Server, database: Database, tmp_path: Path
) -> None:
    schema = database(source)
    source.query("CREATE TABLE t (id INT PRIMARY KEY, c0 INT)", database=schema)
    async with followed(source, schema, tmp_path) as server:
        unlogged = ["SET sql_log_bin = 0", "ALTER TABLE t MODIFY c0 VARCHAR(9)", "SET sql_log_bin = 1"]
        later = "SET timestamp = UNIX_TIMESTAMP() + 3"
        execute(source, [*unlogged, later, "INSERT INTO t VALUES (1, 'x')"], database=schema)
        assert rows_of(await changes(server)) == [("id=1 c0=x", "")]


async def changes(server: EmbeddedServer) -> list[Change]:
    """The next changes of rows, and markers."""
    while True:
        batch = await server.get_without_ack(NAME, CLIENT, timeout=20)
        await server.ack(NAME, CLIENT, batch_id=batch.batch_id)
        if found := [it for part in batch.slices for it in decode_changes(part) if it.header_props or it.table == "t"]:
            return found


@pytest.mark.parametrize(
    ("type_", "value", "read", "flag"),
    [
        ("ENUM('a', '😀')", "😀", "?", "from-the-future"),
        ("ENUM('a', '?') CHARACTER SET latin1", "?", "?", ""),
    ],
)
async def test_labels_that_the_source_cannot_show_are_flagged_until_a_statement_says_them(
    source: Server, database: Database, tmp_path: Path, type_: str, value: str, read: str, flag: str
) -> None:
    schema = database(source)
    source.query(f"CREATE TABLE t (id INT, e {type_})", database=schema)
    next_second()
    async with followed(source, schema, tmp_path) as server:
        source.query(f"INSERT INTO t VALUES (1, '{value}')", database=schema)
        assert await next_row(server) == (row(1, read), flag)
        source.query("ALTER TABLE t ADD x INT FIRST, CHANGE id id BIGINT", database=schema)
        source.query(f"INSERT INTO t VALUES (0, 2, '{value}')", database=schema)
        assert await next_row(server) == (f"x=0 {row(2, read)}", flag)
    async with serving(source, schema, tmp_path) as server:
        source.query(f"ALTER TABLE t DROP x, MODIFY e {type_}", database=schema)
        source.query(f"INSERT INTO t VALUES (3, '{value}')", database=schema)
        assert await next_row(server) == (row(3, value), "")


async def next_row(server: EmbeddedServer) -> tuple[str, str]:
    """The next row."""
    while True:
        if found := rows_of(await changes(server)):
            (only,) = found
            return only


def row(number: int, value: str) -> str:
    """How a row is shown."""
    return f"id={number} e={value}"


@pytest.mark.parametrize(
    ("later", "found"),
    [
        ("FLUSH STATUS", ("id=1 b=1", "")),
        ("ALTER TABLE t CHANGE b c INT", ("id=1 c=1", "from-the-future")),
        pytest.param("ALTER TABLE t COMMENT 'x'", ("id=1 b=1", "from-the-future"), marks=EXTENDED),
        pytest.param(
            "CREATE DATABASE IF NOT EXISTS {schema}", ("id=1 b=1", "from-the-future"), marks=pytest.mark.extended
        ),
    ],
)
async def test_a_row_in_the_second_of_a_ddl_is_flagged_only_if_another_one_may_have_come_after_it(
    source: Server, database: Database, tmp_path: Path, later: str, found: tuple[str, str]
) -> None:
    """The source says in which second it altered a table; the statements between them say whether after the row."""
    schema = database(source)
    source.query("CREATE TABLE t (id INT PRIMARY KEY, a INT)", database=schema)
    async with followed(source, schema, tmp_path, tsdb_dir=tmp_path / "ours"):
        pass
    next_second()
    for statement in ("ALTER TABLE t CHANGE a b INT", "INSERT INTO t VALUES (1, 1)", later.format(schema=schema)):
        source.query(statement, database=schema)
    async with serving(source, schema, tmp_path, tsdb_dir=tmp_path / "theirs") as server:
        assert await next_row(server) == found


@pytest.mark.parametrize(
    ("engine", "later", "found"),
    [
        ("MyISAM", "ALTER TABLE t CHANGE a c INT NOT NULL, CHANGE b a INT NOT NULL", ("c=10 a=20", "from-the-future")),
        pytest.param("CSV", "ALTER TABLE t CHANGE a c INT NOT NULL", ("c=10 b=20", "from-the-future"), marks=EXTENDED),
        pytest.param("MEMORY", "RENAME TABLE t TO s, u TO t", ("b=10 a=20", "from-the-future"), marks=EXTENDED),
        pytest.param("MyISAM", "CREATE TABLE v LIKE t", ("a=10 b=20", ""), marks=EXTENDED),
        pytest.param("CSV", "CREATE TABLE v LIKE t", ("a=10 b=20", ""), marks=EXTENDED),
    ],
)
async def test_statements_say_whether_a_table_was_altered_of_which_the_source_does_not_say_when(
    source: Server, database: Database, tmp_path: Path, engine: str, later: str, found: tuple[str, str]
) -> None:
    """MariaDB, and MySQL before 8.0, say it of InnoDB alone."""
    schema = database(source)
    for name, columns in (("t", "a INT NOT NULL, b INT NOT NULL"), ("u", "b INT NOT NULL, a INT NOT NULL")):
        source.query(f"CREATE TABLE {name} ({columns}) ENGINE={engine}", database=schema)
    next_second()
    file, offset = end_of_binlog(source)
    source.query("INSERT INTO t VALUES (10, 20)", database=schema)
    next_second()
    source.query(later, database=schema)
    place = {"master_journal_name": file, "master_position": offset}
    async with serving(source, schema, tmp_path, **place) as server:
        await server.subscribe(NAME, CLIENT)
        assert await next_row(server) == found


TABLES = (
    "CREATE TABLE {name} (id INT PRIMARY KEY, a INT, b INT)",
    "CREATE TABLE {other} (id INT PRIMARY KEY, b INT, a INT)",
)
CUT_OVERS = [
    ["RENAME TABLE {name} TO {schema}._t_del, {other} TO {name}"],
    [
        "RENAME TABLE {name} TO {schema}.s, {other} TO {name}, {schema}.s TO {other}",
        "DROP TABLE {other}",
    ],
    ["DROP TABLE {name}", "RENAME TABLE {other} TO {name}"],
    ["DROP TABLE {name}", "ALTER TABLE {other} RENAME {name}"],
]


def exchange(source: Server, schema: str, other: str, cut_over: list[str]) -> tuple[str, int]:
    """Let another table take the name of `t` between two rows; return the place before the first of them."""
    names = {"schema": schema, "name": f"{schema}.t", "other": f"{other}._t_gho"}
    for statement in TABLES:
        source.query(statement.format(**names))
    next_second()
    place = end_of_binlog(source)
    source.query("INSERT INTO t VALUES (1, 10, 20)", database=schema)
    for statement in cut_over:
        source.query(statement.format(**names))
    source.query("INSERT INTO t VALUES (2, 20, 10)", database=schema)
    return place


@pytest.mark.parametrize(
    ("cut_over", "is_far"),
    [
        (CUT_OVERS[0], False),
        (CUT_OVERS[1], True),
        *(pytest.param(CUT_OVERS[number], number == 0, marks=EXTENDED) for number in range(4)),
    ],
)
async def test_rows_before_a_start_after_which_their_table_was_renamed_are_flagged(
    source: Server, database: Database, tmp_path: Path, cut_over: list[str], *, is_far: bool
) -> None:
    """A server may say of a table when it was created, and not when it got its name."""
    schema = database(source)
    file, offset = exchange(source, schema, database(source) if is_far else schema, cut_over)
    place = {"master_journal_name": file, "master_position": offset}
    async with serving(source, schema, tmp_path, **place) as server:
        await server.subscribe(NAME, CLIENT)
        (_, first), second = await two_rows(server)
    assert first == "from-the-future"
    assert second == ("id=2 b=20 a=10", "")


async def two_rows(server: EmbeddedServer) -> Found:
    found: Found = []
    while len(found) < 2:
        batch = await server.get_without_ack(NAME, CLIENT, timeout=20)
        found += rows_of(it for part in batch.slices for it in decode_changes(part))
    return found


async def test_rows_of_a_late_client_before_its_table_was_renamed_are_flagged(
    source: Server, database: Database, tmp_path: Path
) -> None:
    schema = database(source)
    next_second()
    began = int(time.time() * 1000)
    exchange(source, schema, schema, CUT_OVERS[0])
    async with serving(source, schema, tmp_path) as server:
        await server.subscribe(NAME, CLIENT)
        await soon(lambda: server.status(NAME, CLIENT).position)
        await server.seek(NAME, CLIENT, {"timestamp": began})
        (_, first), second = await two_rows(server)
    assert first == "from-the-future"
    assert second == ("id=2 b=20 a=10", "")


@pytest.mark.extended
async def test_a_late_client_that_begins_before_the_history_reads_with_it_from_where_it_begins(
    source: Server, database: Database, tmp_path: Path
) -> None:
    schema = database(source)
    source.query("CREATE TABLE t (id INT PRIMARY KEY, a INT)", database=schema)
    next_second()
    began = int(time.time() * 1000)
    source.query("INSERT INTO t VALUES (1, 10)", database=schema)
    next_second()
    async with followed(source, schema, tmp_path) as server:
        for statement in (
            "INSERT INTO t VALUES (2, 20)",
            "ALTER TABLE t ADD b INT FIRST",
            "INSERT INTO t VALUES (3, 3, 30)",
        ):
            source.query(statement, database=schema)
        first = await two_rows(server)
        await server.seek(NAME, CLIENT, {"timestamp": began})
        again = await two_rows(server)
    assert again == first == [("id=2 a=20", ""), ("b=3 id=3 a=30", "")]


async def test_rows_are_not_flagged_for_statements_that_give_their_table_no_other_columns(
    source: Server, database: Database, tmp_path: Path
) -> None:
    schema = database(source)
    for statement in TABLES:
        source.query(statement.format(name="t", other="u"), database=schema)
    next_second()
    file, offset = end_of_binlog(source)
    source.query("INSERT INTO t VALUES (1, 10, 20)", database=schema)
    next_second()
    for statement in ("CREATE TABLE IF NOT EXISTS t (id INT)", "RENAME TABLE u TO v", "CREATE TABLE u LIKE v"):
        source.query(statement, database=schema)
    source.query("INSERT INTO t VALUES (2, 10, 20)", database=schema)
    place = {"master_journal_name": file, "master_position": offset}
    async with serving(source, schema, tmp_path, **place) as server:
        await server.subscribe(NAME, CLIENT)
        assert await two_rows(server) == [("id=1 a=10 b=20", ""), ("id=2 a=10 b=20", "")]
