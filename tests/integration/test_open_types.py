"""UUID, INET4 and INET6 columns of MariaDB, whose full metadata says BINARY, and what becomes of them later."""

import uuid
from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from sluice.protocol.canal.rows import decode_changes
from sluice.server.embedded import EmbeddedServer
from tests.conftest import Database
from tests.delivery import end_of_binlog, execute
from tests.reading import config, embedded, followed, with_full_metadata
from tests.servers import Server
from tests.servers.server import next_second

NAME, CLIENT = "example", 1001
UUID = "12345678-1234-1234-8234-123456789abc"
RAW = uuid.UUID(UUID).bytes
Found = list[tuple[str, dict[str, Any], str]]


@pytest.fixture(params=["mariadb118", pytest.param("mariadb1011", marks=pytest.mark.extended)])
def source(request: pytest.FixtureRequest) -> Iterator[Server]:
    yield from with_full_metadata(request.getfixturevalue(request.param))


def serving(source: Server, schema: str, folder: Path, **settings: Any) -> AbstractAsyncContextManager[EmbeddedServer]:
    return embedded(config(source, folder, filter_regex=rf"{schema}\..*", **settings))


def subscribed(
    source: Server, schema: str, folder: Path, **settings: Any
) -> AbstractAsyncContextManager[EmbeddedServer]:
    return followed(config(source, folder, filter_regex=rf"{schema}\..*", **settings), CLIENT)


async def rows(server: EmbeddedServer, count: int, *, ack: bool = False) -> Found:
    """The next inserted rows: the table, the values, and what is said of their schema."""
    found: Found = []
    while len(found) < count:
        batch = await server.get_without_ack(NAME, CLIENT, timeout=20)
        if ack:
            await server.ack(NAME, CLIENT, batch_id=batch.batch_id)
        for it in (change for part in batch.slices for change in decode_changes(part)):
            flag = it.header_props.get("sluice.schema", "")
            found += [(it.table, row.after or {}, flag) for row in it.rows() if row.type == "INSERT"]
    return found


BEFORE = (
    "CREATE TABLE renamed (u UUID)",
    "CREATE TABLE dropped (u UUID)",
    "CREATE TABLE other_name (u UUID)",
    "CREATE TABLE closed (u UUID)",
    "CREATE TABLE opened (u BINARY(16))",
    "CREATE TABLE one (u UUID, i INET6)",
    "CREATE TABLE two (u BINARY(16), i BINARY(16))",
    "CREATE TABLE plain (a INT)",
)
ROWS: Sequence[tuple[str, str, str, dict[str, Any]]] = (
    # the row's table, its values, what is done later, and what the row is
    ("renamed", "'{u}'", "RENAME TABLE renamed TO renamed_away", {"u": UUID}),
    ("dropped", "'{u}'", "DROP TABLE dropped", {"u": UUID}),
    ("other_name", "'{u}'", "ALTER TABLE other_name CHANGE u v UUID", {"u": UUID}),
    ("other_name", "'{u}'", "ALTER TABLE other_name RENAME COLUMN v TO w, ADD x INT", {"v": UUID}),
    ("other_name", "'{u}', 1", "ALTER TABLE other_name DROP w", {"w": UUID, "x": 1}),
    ("closed", "'{u}'", "ALTER TABLE closed MODIFY u BINARY(16)", {"u": UUID}),
    ("closed", "UNHEX('{h}')", "ALTER TABLE closed MODIFY u INET6", {"u": RAW}),
    ("closed", "'::1'", "DROP TABLE closed", {"u": "::1"}),
    ("opened", "UNHEX('{h}')", "ALTER TABLE opened MODIFY u UUID", {"u": RAW}),
    ("opened", "'{u}'", "DROP TABLE IF EXISTS opened, nothing", {"u": UUID}),
    ("one", "'{u}', '::2'", "RENAME TABLE one TO three, two TO one, three TO two", {"u": UUID, "i": "::2"}),
    ("one", "UNHEX('{h}'), UNHEX('{h}')", "DROP TABLE one", {"u": RAW, "i": RAW}),
    ("two", "'{u}', '::3'", "ALTER TABLE two CHANGE u i UUID, CHANGE i u INET6", {"u": UUID, "i": "::3"}),
    ("two", "'{u}', '::4'", "DROP TABLE two", {"i": UUID, "u": "::4"}),
    ("plain", "1", "ALTER TABLE plain ADD u UUID, ADD COLUMN IF NOT EXISTS f INET4", {"a": 1}),
    ("plain", "1, '{u}', '1.2.3.4'", "CREATE TABLE like_it LIKE plain", {"a": 1, "u": UUID, "f": "1.2.3.4"}),
    ("like_it", "2, '{u}', '1.2.3.5'", "CREATE TABLE IF NOT EXISTS made (b BINARY(4), u UUID, c VARCHAR(9))", {
        "a": 2, "u": UUID, "f": "1.2.3.5",
    }),
    ("made", "'abcd', '{u}', 'x'", "DROP TABLE like_it, made", {"b": b"abcd", "u": UUID, "c": "x"}),
)  # fmt: skip
EXPECTED: Found = [(table, row, "") for table, _, _, row in ROWS]


def write(source: Server, schema: str) -> None:
    for table, values, statement, _ in ROWS:
        source.query(
            f"INSERT INTO {table} VALUES ({values.format(u=UUID, h=uuid.UUID(UUID).hex)})",
            database=schema,
        )
        source.query(statement, database=schema)


async def test_rows_are_as_their_tables_were_whatever_became_of_them(
    source: Server, database: Database, tmp_path: Path
) -> None:
    schema = database(source)
    for statement in BEFORE:
        source.query(statement, database=schema)
    async with subscribed(source, schema, tmp_path) as server:
        begin = server.status(NAME, CLIENT).position
        source.query("INSERT INTO plain VALUES (0)", database=schema)
        assert await rows(server, 1) == [("plain", {"a": 0}, "")]
    write(source, schema)
    expected: Found = [("plain", {"a": 0}, ""), *EXPECTED]
    async with serving(source, schema, tmp_path) as server:
        assert await rows(server, len(expected)) == expected, "after a downtime"
    async with serving(source, schema, tmp_path) as server:
        assert await rows(server, len(expected), ack=True) == expected, "after a restart"
        await server.seek(NAME, CLIENT, begin)
        assert await rows(server, len(expected)) == expected, "by a reader of its own"


async def test_what_nothing_says_is_flagged_and_given_as_bytes(
    source: Server, database: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    schema = database(source)
    for name in ("gone", "known", "altered"):
        source.query(f"CREATE TABLE {name} (u UUID)", database=schema)
    next_second()
    file, offset = end_of_binlog(source)
    for name in ("gone", "known", "altered", "gone"):
        source.query(f"INSERT INTO {name} VALUES ('{UUID}')", database=schema)
    next_second()
    source.query("DROP TABLE gone", database=schema)
    source.query("ALTER TABLE altered MODIFY u BINARY(16)", database=schema)
    place = {"master_journal_name": file, "master_position": offset}
    async with subscribed(source, schema, tmp_path, **place) as server:
        assert await rows(server, 4) == [
            ("gone", {"u": RAW}, "from-the-future"),
            ("known", {"u": UUID}, ""),
            ("altered", {"u": RAW}, "from-the-future"),
            ("gone", {"u": RAW}, "from-the-future"),
        ]
    assert caplog.text.count(f"whether u of {schema}.gone") == 1


async def test_a_ddl_that_is_not_in_the_binlog_is_noticed_where_it_contradicts(
    source: Server, database: Database, tmp_path: Path
) -> None:
    schema = database(source)
    source.query("CREATE TABLE t (u UUID)", database=schema)
    unlogged = ["SET sql_log_bin = 0", "ALTER TABLE t CHANGE u v UUID", "SET sql_log_bin = 1"]
    async with subscribed(source, schema, tmp_path) as server:
        later = "SET timestamp = UNIX_TIMESTAMP() + 3"  # than the ALTER, so that the source's columns are the row's
        execute(source, [*unlogged, later, f"INSERT INTO t VALUES ('{UUID}')"], database=schema)
        assert await rows(server, 1, ack=True) == [("t", {"v": UUID}, "")]
        source.query(f"INSERT INTO t VALUES ('{UUID}')", database=schema)
        assert await rows(server, 1) == [("t", {"v": UUID}, "")]
    source.query("DROP TABLE t", database=schema)
    async with serving(source, schema, tmp_path) as server:
        assert await rows(server, 1) == [("t", {"v": UUID}, "")], "the history was corrected"


async def test_servers_that_share_destinations_share_it(source: Server, database: Database, tmp_path: Path) -> None:
    schema, shared = database(source), database(source)
    url = f"jdbc:mysql://{source.host}:{source.port}/{shared}"
    settings = {"tsdb_url": url, "tsdb_username": source.user, "tsdb_password": source.password}
    source.query("CREATE TABLE renamed (u UUID)", database=schema)
    async with subscribed(source, schema, tmp_path / "first", **settings):
        file, offset = end_of_binlog(source)
        place = {"master_journal_name": file, "master_position": offset}
        source.query("CREATE TABLE dropped (u INET6)", database=schema)
    for statement in (
        f"INSERT INTO renamed VALUES ('{UUID}')",
        "RENAME TABLE renamed TO away",
        "INSERT INTO dropped VALUES ('::1')",
        "DROP TABLE dropped",
    ):
        source.query(statement, database=schema)
    async with subscribed(source, schema, tmp_path / "second", **settings, **place) as server:
        assert await rows(server, 2) == [("renamed", {"u": UUID}, ""), ("dropped", {"u": "::1"}, "")]


async def test_a_change_of_the_metadata_makes_no_row_wrong(source: Server, database: Database, tmp_path: Path) -> None:
    """What is kept of a source with full metadata does not name the columns of events without it, and back."""
    schema = database(source)
    source.query("CREATE TABLE t (a INT, u UUID, c VARCHAR(9))", database=schema)
    insert = f"INSERT INTO t VALUES (1, '{UUID}', 'x')"
    row: Found = [("t", {"a": 1, "u": UUID, "c": "x"}, "")]
    next_second()
    async with subscribed(source, schema, tmp_path):
        pass
    for metadata in ("NO_LOG", "FULL"):
        source.query(insert, database=schema)
        source.query(f"SET GLOBAL binlog_row_metadata = {metadata}")
        source.query(insert, database=schema)
        async with serving(source, schema, tmp_path) as server:
            assert await rows(server, 2, ack=True) == row * 2, metadata
            source.query(insert, database=schema)
            assert await rows(server, 1, ack=True) == row, metadata


@pytest.mark.parametrize("full", [True, False])
async def test_values_in_the_old_layout_with_a_fraction_are_quarantined_with_cause_and_cure(
    source: Server, database: Database, tmp_path: Path, *, full: bool
) -> None:
    schema = database(source)
    with (
        source.variable("binlog_row_metadata", "FULL" if full else "NO_LOG"),
        source.variable("mysql56_temporal_format", "OFF"),
    ):
        source.query("CREATE TABLE t (id INT, whole TIME, at DATETIME(3), v VARCHAR(9))", database=schema)
        async with subscribed(source, schema, tmp_path) as server:
            source.query("INSERT INTO t VALUES (1, '01:02:03', '2026-01-01 00:00:00.125', 'x')", database=schema)
            text = await quarantined(server)
    assert f"{schema}.t.at: " in text
    assert "MariaDB's own layout of datetime(3)" in text
    assert "written while mysql56_temporal_format was OFF; ALTER TABLE ... FORCE with it ON converts them" in text


async def quarantined(server: EmbeddedServer) -> str:
    """The reason of the next marker in the place of rows."""
    while True:
        batch = await server.get_without_ack(NAME, CLIENT, timeout=20)
        for it in (change for part in batch.slices for change in decode_changes(part)):
            if reason := it.header_props.get("sluice.quarantine"):
                return reason
