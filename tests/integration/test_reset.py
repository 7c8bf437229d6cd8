"""A source whose binlog is reset under a running server: no client is told that all is read."""

import contextlib
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from sluice.protocol.errors import DestinationStoppedError, SourceChangedError, SourceError
from sluice.server.embedded import EmbeddedServer
from tests.conftest import Database
from tests.reading import config, embedded
from tests.servers import Server
from tests.waiting import soon

NAME = "example"
CLIENT = 1001


@pytest.fixture(
    params=[
        "mariadb118",
        "mysql97",
        *(pytest.param(name, marks=pytest.mark.extended) for name in ("mysql80", "mysql57")),
    ]
)
def source(request: pytest.FixtureRequest) -> Server:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Server)
    found.reset_binlog()
    return found


def serving(source: Server, schema: str, folder: Path) -> AbstractAsyncContextManager[EmbeddedServer]:
    return embedded(config(source, folder, filter_regex=rf"{schema}\..*"))


@pytest.mark.parametrize(
    ("files", "rows"), [(1, 0), (1, 40), (3, 1)], ids=["a shorter file", "a longer file", "fewer files"]
)
async def test_the_end_of_another_history_does_not_end_what_was_read(
    source: Server, database: Database, tmp_path: Path, files: int, rows: int
) -> None:
    schema = database(source)
    source.query(f"CREATE TABLE {schema}.numbers (id INT AUTO_INCREMENT PRIMARY KEY)")
    async with serving(source, schema, tmp_path) as server:
        await server.subscribe(NAME, CLIENT)
        await soon(lambda: server.status(NAME, CLIENT).position)
        begin = server.status(NAME, CLIENT).position
        for _ in range(files - 1):
            source.query("FLUSH BINARY LOGS")
        for _ in range(3):
            source.query(f"INSERT INTO {schema}.numbers VALUES ()")
        end = await server.latest(NAME)
        found = await server.position(NAME, CLIENT, after=begin, until=str(end), timeout=10)
        while not found.range.reached:
            found = await server.position(NAME, CLIENT, after=found.range.to, until=str(end), timeout=10)
        await server.ack(NAME, CLIENT, position=str(end))
        await wait_a_second(source)
        source.reset_binlog()
        for _ in range(rows):
            source.query(f"INSERT INTO {schema}.numbers VALUES ()")
        with pytest.raises(SourceChangedError, match="reset"):
            await read(server, str(end), until_latest=True)
        with pytest.raises(SourceChangedError, match="reset"):
            await read(server, str(end), until_latest=False)


async def test_what_was_read_before_the_reset_is_still_given(
    source: Server, database: Database, tmp_path: Path
) -> None:
    schema = database(source)
    source.query(f"CREATE TABLE {schema}.numbers (id INT PRIMARY KEY)")
    async with serving(source, schema, tmp_path) as server:
        await server.subscribe(NAME, CLIENT)
        await soon(lambda: server.status(NAME, CLIENT).position)
        begin = server.status(NAME, CLIENT).position
        source.query(f"INSERT INTO {schema}.numbers VALUES (1), (2)")
        await soon(lambda: server.status(NAME, CLIENT).lag.rows == 2)
        await wait_a_second(source)
        source.reset_binlog()
        found = await server.position(NAME, CLIENT, after=begin, timeout=10)
        assert found.range.rows == 2
        assert not found.latest


async def read(server: EmbeddedServer, after: str, *, until_latest: bool) -> None:
    """Ask for what follows a position, as a query that is idle, or one of what is there now."""
    for _ in range(20):
        with contextlib.suppress(SourceError, DestinationStoppedError):  # the stream begins anew
            until = str(await server.latest(NAME)) if until_latest else None
            found = await server.position(NAME, CLIENT, after=after, until=until, timeout=1)
            assert not (until and found.range.reached)


async def wait_a_second(source: Server) -> None:
    """Histories are told apart by seconds."""
    ((before,),) = source.query("SELECT UNIX_TIMESTAMP()")
    await soon(lambda: source.query("SELECT UNIX_TIMESTAMP()")[0][0] > before)
