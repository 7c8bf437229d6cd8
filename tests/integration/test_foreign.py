"""Clients whose places are of another history or source: they are told so, and the others are served."""

import asyncio
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from sluice.instance.sources.mysql.connection import Connection
from sluice.instance.sources.mysql.start import StartFinder
from sluice.protocol.canal.rows import decode_rows
from sluice.protocol.errors import PurgedError, SluiceError, SourceChangedError
from sluice.protocol.position import Position
from sluice.server.embedded import EmbeddedServer
from sluice.store.cursor import Cursor
from tests.reading import config, embedded
from tests.servers import Server, next_second
from tests.waiting import soon

NAME = "example"
DEAD, SLOW, LIVING, NEW = 1, 2, 3, 4


@pytest.fixture(scope="module", params=["mariadb118", "mysql97"])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[Server, Server]]:
    """Two servers whose binlogs each test resets."""
    updates = ["--log-replica-updates"] if request.param == "mysql97" else ["--log-slave-updates"]
    with Server(request.param) as first, Server(request.param, updates) as second:
        yield first, second


@pytest.fixture
def source(pair: tuple[Server, Server]) -> Server:
    return empty(pair[0])


@pytest.fixture
def other(pair: tuple[Server, Server]) -> Server:
    return empty(pair[1])


def empty(server: Server) -> Server:
    """Start a new history on a server, with an empty table in it."""
    server.query("DROP DATABASE IF EXISTS shop")
    server.reset_binlog()
    server.script("CREATE DATABASE shop;\nCREATE TABLE shop.t (id INT PRIMARY KEY, filler VARCHAR(2000));\n")
    return server


def insert(server: Server, *numbers: int, size: int = 1) -> None:
    for number in numbers:
        server.query("INSERT INTO shop.t VALUES (%s, %s)", (number, "x" * size))


def flush(server: Server) -> str:
    server.query("FLUSH BINARY LOGS")
    return str(server.query("SHOW BINARY LOGS")[-1][0])


@contextmanager
def replicating(replica: Server, source: Server) -> Iterator[Callable[[], None]]:
    """Let a server execute what another writes; the call waits until it has all. Then it goes its own way."""
    names = ("MASTER", "SLAVE") if source.mariadb else ("SOURCE", "REPLICA")
    address = f"HOST='{source.host}', X_PORT={source.port}, X_USER='{source.user}', X_PASSWORD='{source.password}'"
    replica.query("DROP DATABASE shop")
    replica.reset_binlog()
    with replica.connect(user="root", password="") as connection, connection.cursor() as cursor:

        def run(sql: str) -> None:
            cursor.execute(re.sub(r"\bX\b|X(?=_)", names[0], sql).replace("REPLICA", names[1]))

        def wait() -> None:
            executed, done = (
                ("gtid_binlog_pos", "MASTER_GTID_WAIT")
                if source.mariadb
                else ("gtid_executed", "WAIT_FOR_EXECUTED_GTID_SET")
            )
            cursor.execute(f"SELECT {done}(%s, 30)", source.query(f"SELECT @@global.{executed}")[0])
            assert cursor.fetchall() == ((0,),)

        if source.mariadb:
            run("SET GLOBAL gtid_slave_pos = ''")
            run(f"CHANGE X TO X_{address}, X_USE_GTID = slave_pos")
        else:
            run(f"CHANGE REPLICATION SOURCE TO X_{address}, X_AUTO_POSITION = 1, GET_SOURCE_PUBLIC_KEY = 1")
        run("START REPLICA")
        yield wait
        run("STOP REPLICA")
        run("RESET REPLICA ALL")


def serving(source: Server, folder: Path, **settings: Any) -> AbstractAsyncContextManager[EmbeddedServer]:
    return embedded(config(source, folder, filter_regex=r"shop\..*", file_flush_period=20, **settings))


async def consume(server: EmbeddedServer, client: int, last: int) -> list[int]:
    """Get and ack until a row has come; the numbers of all rows."""
    found: list[int] = []
    while not found or found[-1] != last:
        batch = await server.get_without_ack(NAME, client, timeout=10)
        assert batch.entries, (found, server.status(NAME, client))
        found += [row.after["id"] for row in decode_rows(b"".join(batch.slices)) if row.after]
        await server.ack(NAME, client, batch_id=batch.batch_id, durable=True)
    return found


async def is_refused(
    server: EmbeddedServer, client: int, kind: type[SluiceError], text: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A client is told that it has lost its place; so is the log, once."""
    await soon(lambda: server.status(NAME, client).state == "gone")
    status = server.status(NAME, client)
    assert status.problem == kind.type
    with pytest.raises(kind, match=text):
        await server.get_without_ack(NAME, client)
    (told,) = [it.message for it in caplog.records if f"client {client} is not served any more" in it.message]
    assert re.search(text, told)
    assert f"stays at {status.position}" in told
    assert "subscribe again" in told


@pytest.mark.extended
async def test_after_a_reset_those_of_the_old_history_are_refused_and_the_others_served(
    source: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(source, tmp_path) as server:
        for client in (DEAD, SLOW, LIVING):
            await server.subscribe(NAME, client)
        insert(source, 1)
        await asyncio.gather(*(consume(server, client, 1) for client in (SLOW, LIVING)))
        flush(source)
        insert(source, 2)
        flush(source)
        await consume(server, LIVING, 2)
        kept = {client: server.status(NAME, client).position for client in (DEAD, SLOW, LIVING)}
    await asyncio.sleep(1.1)  # files are told apart by the second they were made in
    source.reset_binlog()
    insert(source, 3, 4, 5, size=1000)

    # All are of the old history.
    async with serving(source, tmp_path) as server:
        await soon(lambda: server.destination_status(NAME).state == "error")
        for client, position in kept.items():
            with pytest.raises(SourceChangedError, match="reset, restored"):
                await server.get_without_ack(NAME, client, timeout=10)
            assert server.status(NAME, client).position == position
        # One begins again.
        await server.unsubscribe(NAME, LIVING)
        await soon(lambda: server.destination_status(NAME).state == "error")
        subscribed = await server.subscribe(NAME, LIVING)
        assert subscribed["position"]
        insert(source, 6)
        assert await consume(server, LIVING, 6) == [6]
        for client in (DEAD, SLOW):
            await is_refused(server, client, SourceChangedError, "reset, restored", caplog)
            assert server.status(NAME, client).position == kept[client]

    # The same when the server is started again, with the file of the old place there by name, and without readers.
    insert(source, 7)
    flush(source)
    caplog.clear()
    async with serving(source, tmp_path, catch_up_readers=0) as server:
        insert(source, 8)
        assert await consume(server, LIVING, 8) == [7, 8]
        for client in (DEAD, SLOW):
            await is_refused(server, client, SourceChangedError, "reset, restored", caplog)
            assert server.status(NAME, client).position == kept[client]
        assert server.destination_status(NAME).state == "running"


@pytest.mark.parametrize("purged", [False, True])
async def test_on_another_source_each_goes_on_by_its_own_gtids_and_is_refused_if_it_needs_purged_ones(
    source: Server, other: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture, purged: bool
) -> None:
    async with serving(source, tmp_path) as server:
        for client in (DEAD, SLOW, LIVING):
            await server.subscribe(NAME, client)
        with replicating(other, source) as wait:
            insert(source, 1)
            await asyncio.gather(*(consume(server, client, 1) for client in (SLOW, LIVING)))
            await asyncio.to_thread(wait)
            file = flush(other)
            insert(source, 2)
            await consume(server, LIVING, 2)
            await asyncio.to_thread(wait)
        kept = server.status(NAME, DEAD).position
    insert(other, 3)
    if purged:
        other.purge_binlogs(file)
    async with serving(other, tmp_path) as server:
        assert await consume(server, LIVING, 3) == [3]
        assert await consume(server, SLOW, 3) == [2, 3]
        if purged:
            await is_refused(server, DEAD, PurgedError, rf"has purged .*oldest file that it has is {file}", caplog)
            assert server.status(NAME, DEAD).position == kept
    # The clients that have moved have places of the new source now.
    insert(other, 4)
    caplog.clear()
    async with serving(other, tmp_path) as server:
        for client in (SLOW, LIVING):
            assert await consume(server, client, 4) == [4]
        if purged:
            await is_refused(server, DEAD, PurgedError, rf"has purged .*oldest file that it has is {file}", caplog)
        else:
            assert await consume(server, DEAD, 4) == [1, 2, 3, 4]


async def test_purged_place_is_an_error_when_there_are_no_readers(
    source: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(source, tmp_path, catch_up_readers=0) as server:
        for client in (DEAD, LIVING):
            await server.subscribe(NAME, client)
        insert(source, 1)
        file = flush(source)
        insert(source, 2)
        await consume(server, LIVING, 2)
    source.purge_binlogs(file)
    async with serving(source, tmp_path, catch_up_readers=0) as server:
        insert(source, 3)
        assert await consume(server, LIVING, 3) == [3]
        await is_refused(server, DEAD, PurgedError, rf"has purged .*oldest file that it has is {file}", caplog)


async def test_without_gtids_a_client_goes_on_at_another_source_only_when_it_subscribes_again(
    source: Server, other: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(source, tmp_path) as server:
        for client in (DEAD, LIVING):
            await server.subscribe(NAME, client)
        insert(source, 1)
        await consume(server, LIVING, 1)
        kept = server.status(NAME, DEAD).position
    meta = tmp_path / NAME / "meta.dat"
    meta.write_text(re.sub(r'"gtid":"[^"]*"', '"gtid":""', meta.read_text()))
    async with serving(other, tmp_path) as server:
        await soon(lambda: server.destination_status(NAME).state == "error")
        for client in (DEAD, LIVING):
            with pytest.raises(SourceChangedError, match=r"another source.*no GTID set"):
                await server.get_without_ack(NAME, client, timeout=10)
        await server.subscribe(NAME, NEW)
        insert(other, 2)
        assert await consume(server, NEW, 2) == [2]
        for client in (DEAD, LIVING):
            await is_refused(server, client, SourceChangedError, "another source.*no GTID set", caplog)
        assert server.status(NAME, DEAD).position == kept


async def test_the_only_client_of_an_old_history_is_served_again_when_it_subscribes_again(
    source: Server, tmp_path: Path
) -> None:
    async with serving(source, tmp_path) as server:
        await server.subscribe(NAME, DEAD)
        insert(source, 1)
        await consume(server, DEAD, 1)
    next_second()
    empty(source)
    insert(source, *range(2, 9), size=2000)  # the place exists, with another meaning
    async with serving(source, tmp_path) as server:
        await soon(lambda: server.destination_status(NAME).state == "error")
        with pytest.raises(SourceChangedError):
            await server.get_without_ack(NAME, DEAD)
        await server.unsubscribe(NAME, DEAD)
        await server.subscribe(NAME, DEAD)
        insert(source, 10)
        assert await consume(server, DEAD, 10) == [10]


def test_a_place_of_the_other_kind_of_source_is_refused_and_the_next_one_asked_for(source: Server) -> None:
    gtids = "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5" if source.mariadb else "0-1-5"
    foreign = Cursor("bin.000001", 4, 1, 1, gtids, Position("elsewhere", "bin.000001", 1, 4, 0))
    settings = config(source)
    with closing(Connection(settings)) as connection:
        start, refused = StartFinder(connection, settings, lambda: Connection(settings)).find_first([foreign, None])
    assert start is not None
    assert isinstance(refused[foreign], SourceChangedError)
