"""Conditions on rows that clients subscribe with: on a real source, from ring, log and catch-up readers."""

import random
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from sluice.protocol.canal.entry_pb2 import Entry
from sluice.protocol.canal.packet_pb2 import Messages
from sluice.protocol.canal.rows import decode_rows
from sluice.server.embedded import EmbeddedServer
from tests.conftest import Database
from tests.delivery import deliver, execute, rows_of
from tests.reading import config, embedded
from tests.servers import Server
from tests.source import eventually

NAME, CLIENT = "example", 1001
STORES: dict[str, dict[str, Any]] = {"memory": {}, "mixed": {"store": "mixed", "store_min_free": 0}}


@pytest.fixture(params=["mariadb118", "mysql97"])
def source(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server that writes collations into its binlog."""
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Server)
    before = found.query("SELECT @@global.binlog_row_metadata")[0][0]
    found.query("SET GLOBAL binlog_row_metadata = FULL")
    yield found
    found.query(f"SET GLOBAL binlog_row_metadata = {before}")


@pytest.fixture
def schema(source: Server, database: Database) -> str:
    name = database(source)
    columns = "id INT PRIMARY KEY, v INT, filler VARCHAR(5000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
    source.query(f"CREATE TABLE {name}.numbers ({columns})")
    return name


def serving(source: Server, schema: str, folder: Path, **settings: Any) -> AbstractAsyncContextManager[EmbeddedServer]:
    options = {"filter_regex": rf"{schema}\..*", "file_flush_period": 20, "memory_buffer_size": 1024}
    return embedded(config(source, folder, **options, **settings))


async def subscribed(server: EmbeddedServer, where: str, client: int = CLIENT, **options: Any) -> str:
    await server.subscribe(NAME, client, where=where, **options)
    await eventually(lambda: server.status(NAME, client).position)
    return server.status(NAME, client).position


async def read(server: EmbeddedServer, from_: str, to: str) -> bytes:
    return b"".join([bytes(part) async for batch in server.rows(NAME, CLIENT, from_, to) for part in batch.slices])


async def take(server: EmbeddedServer, count: int, client: int = CLIENT, **limits: int) -> bytes:
    """Take and confirm batches until there are so many rows."""
    data = b""
    while len(ids(data)) < count:
        batch = await server.get_without_ack(NAME, client, timeout=10, **limits)
        assert batch.entries, (server.status(NAME, client), ids(data))
        part = b"".join(batch.slices)
        assert batch.rows == len(ids(part))
        data += part
        await server.ack(NAME, client, batch_id=batch.batch_id)
    return data


def ids(data: bytes) -> list[int]:
    return [(row.after or row.before)["id"] for row in decode_rows(data)]


def fill(source: Server, schema: str, first: int, last: int, size: int = 100) -> None:
    """Insert rows, ten with a statement and two statements with a transaction."""
    with source.connect() as connection, connection.cursor() as cursor:
        for begin in range(first, last + 1, 10):
            rows = ", ".join(f"({i}, {i * 7 % 10}, '{'x' * size}{i}')" for i in range(begin, begin + 10))
            cursor.execute(f"INSERT INTO {schema}.numbers VALUES {rows}")
            if begin % 20 == 11:
                connection.commit()
        connection.commit()


@pytest.mark.parametrize("store", STORES)
async def test_a_range_is_the_same_wherever_it_is_read_from(
    source: Server, schema: str, tmp_path: Path, store: str
) -> None:
    """Its bytes and those of its parts, its limits, and its end."""
    async with serving(source, schema, tmp_path, **STORES[store]) as server:
        where = f"{schema}.numbers: id > 20 AND v IN (3, 5) AND filler LIKE '%xx__'"
        start = await subscribed(server, where)
        fill(source, schema, 1, 200)
        expected = [i for i in range(21, 100) if i * 7 % 10 in {3, 5}]
        until = ""
        while len(ids(await read(server, start, until or start))) < len(expected):
            until = (await server.position(NAME, CLIENT, after=start, timeout=10)).range.to
        status = await server.position(NAME, CLIENT, after=start, max_rows=9)
        assert status.range.rows == 8
        assert status.range.bytes == len(await read(server, start, status.range.to))
        before = await read(server, start, until)
        parts = await server.splits(NAME, CLIENT, start, until, 4)
        pieces = [await read(server, part.from_, part.to) for part in parts]
        assert ids(before) == expected
        assert len(parts) == 4
        assert [part.bytes for part in parts] == [len(piece) for piece in pieces]
        assert b"".join(pieces) == before
        await server.position(NAME, CLIENT, after=start, until=until)
        await server.ack(NAME, CLIENT, position=until)
        await eventually(lambda: server.destination_status(NAME).entries == 0)
        assert await read(server, start, until) == before
        assert [await read(server, part.from_, part.to) for part in reversed(parts)] == pieces[::-1]
        again = await server.splits(NAME, CLIENT, start, until, 4)
        assert b"".join([await read(server, part.from_, part.to) for part in again]) == before
        found = await server.position(NAME, CLIENT, after=start, max_rows=9)
        assert (found.range.rows, found.range.to) == (8, status.range.to)


@pytest.mark.parametrize("store", STORES)
async def test_a_client_that_is_behind_the_ring_gets_the_rows_that_match(
    source: Server, schema: str, tmp_path: Path, store: str
) -> None:
    """From a catch-up reader, then from the ring that it joins."""
    async with serving(source, schema, tmp_path, **STORES[store]) as server:
        where = f"{schema}.numbers: v = 4"
        start = await subscribed(server, where)
        fill(source, schema, 1, 1000, size=3000)
        first = await take(server, 100)
        await subscribed(server, where, 1002, start=start)
        assert server.status(NAME, 1002).state == "catching-up"
        behind = await take(server, 100, 1002)
        assert ids(behind) == ids(first) == [i for i in range(1, 1001) if i * 7 % 10 == 4]
        await eventually(lambda: server.status(NAME, 1002).state == "attached")
        fill(source, schema, 1001, 1020)
        assert ids(await take(server, 2, 1002)) == ids(await take(server, 2)) == [1002, 1012]


async def test_the_condition_survives_a_restart(source: Server, schema: str, tmp_path: Path) -> None:
    async with serving(source, schema, tmp_path) as server:
        await subscribed(server, f"{schema}.numbers: v = 4")
    fill(source, schema, 1, 40)
    async with serving(source, schema, tmp_path) as server:
        assert server.status(NAME, CLIENT).where == f"{schema}.numbers: v = 4"
        assert ids(await take(server, 4)) == [2, 12, 22, 32]


async def test_a_client_gets_what_a_destination_with_its_condition_delivers(
    source: Server, schema: str, tmp_path: Path
) -> None:
    """Of random changes, some of many rows: each entry has the same rows, whatever the limits of a batch."""
    rng = random.Random(source.name)
    condition = "v BETWEEN 2 AND 5 AND filler <> 'n7' OR filler IS NULL"
    inserted = ", ".join(f"({i}, {rng.randrange(10)}, 'n{i}')" for i in range(100))
    statements = [f"INSERT INTO numbers VALUES {inserted}"]
    for _ in range(30):
        rows = f"id % {rng.randint(1, 7)} = 0"
        statements += rng.choice(
            [
                [f"UPDATE numbers SET v = (v + {rng.randrange(10)}) % 10 WHERE {rows}"],
                [f"UPDATE numbers SET filler = NULL WHERE {rows} AND v = 1"],
                [f"UPDATE numbers SET filler = CONCAT('n', id) WHERE {rows}"],
                [
                    f"DELETE FROM numbers WHERE {rows} AND v = {rng.randrange(10)}",
                    f"REPLACE INTO numbers VALUES {inserted}",
                ],
                ["BEGIN", "UPDATE numbers SET v = 9 WHERE v = 8", f"UPDATE numbers SET v = 3 WHERE {rows}", "COMMIT"],
            ]
        )
    where = f"{schema}.numbers: {condition}"
    async with serving(source, schema, tmp_path / "server") as server:
        await subscribed(server, where)
        with deliver(source, tmp_path, filter_regex=rf"{schema}\..*", filter_where=where) as delivery:
            execute(source, statements, database=schema)
            expected = [change for _, change in rows_of(delivery.read(), "numbers")]
        data = await take(server, sum(len(it.rowDatas) for it in expected), max_entries=3)
        entries = [Entry.FromString(it) for it in Messages.FromString(data).messages]
        assert [change for _, change in rows_of(entries, "numbers")] == expected
        assert len(expected) > 20
