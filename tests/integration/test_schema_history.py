"""Rows that are read long after they were written, from sources that do not say the names of their columns."""

from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from sluice.protocol.canal.rows import Change, decode_changes
from sluice.server.embedded import EmbeddedServer
from tests.conftest import Database
from tests.reading import config, embedded
from tests.servers import Server
from tests.source import eventually

NAME = "example"
CLIENT = 1001
COUNT = 12
EXTENDED = ("mariadb1011", "mysql80", "mysql57", "mysql56")
Found = list[tuple[str, str]]


@pytest.fixture(params=["mariadb118", "mysql97", *(pytest.param(it, marks=pytest.mark.extended) for it in EXTENDED)])
def source(request: pytest.FixtureRequest) -> Server:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Server)
    return found


def serving(source: Server, schema: str, folder: Path) -> AbstractAsyncContextManager[EmbeddedServer]:
    return embedded(config(source, folder, filter_regex=rf"{schema}\.t"))


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
    async with serving(source, schema, tmp_path) as server:
        await server.subscribe(NAME, CLIENT)
        await eventually(lambda: server.status(NAME, CLIENT).position)
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
