"""Clients whose places are of another history or source: they are told so, and the others are served."""

import asyncio
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from sluice.instance.meta.memory import MemoryMetaStore
from sluice.instance.serving.instance import Instance
from sluice.instance.sources.mysql.connection import Connection
from sluice.instance.sources.mysql.start import StartFinder
from sluice.instance.sources.registry import make_parser
from sluice.protocol.canal.rows import decode_rows
from sluice.protocol.errors import PurgedError, SluiceError, SourceChangedError
from sluice.protocol.position import Position
from sluice.server.embedded import EmbeddedServer
from sluice.store.cursor import Cursor
from tests.proxy import Proxy
from tests.reading import config, embedded
from tests.servers import Server, next_second
from tests.waiting import soon

NAME = "example"
DEAD, SLOW, LIVING, NEW = 1, 2, 3, 4


@pytest.fixture(scope="module", params=["mariadb118", pytest.param("mysql97", marks=pytest.mark.extended)])
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


@pytest.mark.parametrize("store", ["memory", pytest.param("mixed", marks=pytest.mark.extended)])
async def test_where_the_address_leads_to_a_replica_the_stream_goes_on_there_by_itself(
    source: Server, other: Server, tmp_path: Path, store: str
) -> None:
    with replicating(other, source) as wait, Proxy((source.host, source.port)) as proxy:
        async with serving(source, tmp_path, master_address=f"{proxy.host}:{proxy.port}", store=store) as server:
            for client in (LIVING, SLOW):
                await server.subscribe(NAME, client)
            insert(source, 1)
            await consume(server, LIVING, 1)
            insert(source, 2)
            batch = await server.get_without_ack(NAME, LIVING, timeout=10)
            source.query("CREATE DATABASE unread")  # the decoder is farther than the ring
            await asyncio.to_thread(wait)
            first, _, _ = server.destination_status(NAME).last.partition("/")
            proxy.target = (other.host, other.port)
            proxy.cut()
            insert(other, 3)
            await soon(lambda: not server.destination_status(NAME).last.startswith(f"{first}/"))
            if store == "memory":  # the ring is filled on, so that batches stay
                await server.ack(NAME, LIVING, batch_id=batch.batch_id, durable=True)
            assert await consume(server, LIVING, 3) == [*([2] if store == "mixed" else []), 3]
            assert await consume(server, SLOW, 3) == [1, 2, 3]
            assert server.destination_status(NAME).state == "running"
        source.query("DROP DATABASE unread")


async def test_a_replica_where_the_address_leads_to_is_waited_for_and_a_part_comes_again_as_a_whole(
    source: Server, other: Server, tmp_path: Path
) -> None:
    with replicating(other, source) as wait, Proxy((source.host, source.port)) as proxy:
        async with serving(source, tmp_path, master_address=f"{proxy.host}:{proxy.port}") as server:
            await server.subscribe(NAME, LIVING)
            insert(source, 1)
            await consume(server, LIVING, 1)
            await asyncio.to_thread(wait)
            lock = other.connect()  # it executes nothing
            lock.cursor().execute("LOCK TABLES shop.t READ")
            insert(source, 2)
            assert await consume(server, LIVING, 2) == [2]
            proxy.cut_after(100_000)
            source.query("INSERT INTO shop.t SELECT seq, REPEAT('x', 1000) FROM (" + SEQUENCE + ") AS numbers")
            await soon(lambda: server.destination_status(NAME).entries and in_error(server))
            proxy.heal()
            proxy.target = (other.host, other.port)
            await soon(lambda: "is now" in server.destination_status(NAME).error)
            assert server.status(NAME, LIVING).state == "attached"
            lock.close()
            await soon(lambda: server.destination_status(NAME).state == "running")
            assert await consume(server, LIVING, 2000) == list(range(1000, 2001))


SEQUENCE = " UNION ALL ".join(f"SELECT {number} AS seq" for number in range(1000, 2001))


def has_begun_again(server: EmbeddedServer, error: str) -> bool:
    """The ring is empty; the error is that of a start."""
    status = server.destination_status(NAME)
    return not status.last and error in status.error


def in_error(server: EmbeddedServer) -> bool:
    return server.destination_status(NAME).state == "error"


async def test_a_server_where_the_address_leads_to_that_lacks_what_was_delivered_is_not_read(
    source: Server, other: Server, tmp_path: Path
) -> None:
    with Proxy((source.host, source.port)) as proxy:
        async with serving(source, tmp_path, master_address=f"{proxy.host}:{proxy.port}") as server:
            await server.subscribe(NAME, LIVING)
            insert(source, 1)
            await consume(server, LIVING, 1)
            proxy.target = (other.host, other.port)
            proxy.cut()
            await soon(lambda: "transactions that were delivered" in server.destination_status(NAME).error)
            assert server.status(NAME, LIVING).state == "attached"
            proxy.target = (source.host, source.port)
            insert(source, 2)
            assert await consume(server, LIVING, 2) == [2]


@pytest.mark.parametrize("store", ["memory", pytest.param("mixed", marks=pytest.mark.extended)])
async def test_what_ends_the_error_of_a_purge_at_a_start_ends_that_of_a_running_destination(
    source: Server, tmp_path: Path, store: str
) -> None:
    with Proxy((source.host, source.port)) as proxy:
        settings = {"master_address": f"{proxy.host}:{proxy.port}", "store": store}
        async with serving(source, tmp_path, **settings) as server:
            await server.subscribe(NAME, LIVING)
            insert(source, 1)
            await consume(server, LIVING, 1)
            proxy.target = ("127.0.0.1", 1)
            proxy.cut()
            insert(source, 2)
            file = flush(source)
            source.purge_binlogs(file)
            insert(source, 3)
            proxy.target = (source.host, source.port)
            if store == "memory":
                await soon(lambda: has_begun_again(server, "has purged"))
            else:  # it begins with what is left
                await soon(lambda: [it.state for it in server.destination_status(NAME).clients] == ["gone"])
            with pytest.raises(PurgedError):
                await server.get_without_ack(NAME, LIVING, timeout=10)
            await server.seek(NAME, LIVING, "oldest")
            await soon(lambda: server.destination_status(NAME).state == "running")
            assert await consume(server, LIVING, 3) == [3]


async def test_a_client_that_subscribes_ends_the_error_of_a_reset_of_a_running_destination(
    source: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Proxy((source.host, source.port)) as proxy:
        async with serving(source, tmp_path, master_address=f"{proxy.host}:{proxy.port}") as server:
            await server.subscribe(NAME, LIVING)
            insert(source, 1)
            await consume(server, LIVING, 1)
            next_second()
            source.reset_binlog()
            proxy.cut()
            await soon(lambda: has_begun_again(server, "reset, restored"))
            await server.subscribe(NAME, NEW)
            insert(source, 2)
            assert await consume(server, NEW, 2) == [2]
            await is_refused(server, LIVING, SourceChangedError, "reset, restored", caplog)


@pytest.mark.parametrize("resets", [False, True])
async def test_what_is_purged_where_the_address_leads_to_is_said_and_passed_over_as_after_a_restart(
    source: Server, other: Server, tmp_path: Path, resets: bool
) -> None:
    with replicating(other, source) as wait, Proxy((source.host, source.port)) as proxy:
        settings = {"master_address": f"{proxy.host}:{proxy.port}", "auto_reset_latest_pos_mode": resets}
        async with serving(source, tmp_path, **settings) as server:
            await server.subscribe(NAME, LIVING)
            insert(source, 1)
            await consume(server, LIVING, 1)
            proxy.target = ("127.0.0.1", 1)
            proxy.cut()
            insert(source, 2)
            await asyncio.to_thread(wait)
            file = flush(other)
            insert(source, 3)
            await asyncio.to_thread(wait)
            other.purge_binlogs(file)
            proxy.target = (other.host, other.port)
            if resets:
                await soon(lambda: server.destination_status(NAME).state == "running")
                insert(other, 4)
                assert await consume(server, LIVING, 4) == [4]
                return
            await soon(lambda: has_begun_again(server, "has purged"))
            with pytest.raises(PurgedError):
                await server.get_without_ack(NAME, LIVING, timeout=10)
            await server.seek(NAME, LIVING, "oldest")
            assert await consume(server, LIVING, 3) == [3]


@pytest.mark.extended
async def test_a_client_that_is_behind_the_ring_goes_on_where_the_address_leads_to(
    source: Server, other: Server, tmp_path: Path
) -> None:
    with replicating(other, source) as wait, Proxy((source.host, source.port)) as proxy:
        settings = {"master_address": f"{proxy.host}:{proxy.port}", "memory_buffer_size": 16, "detach_after": 1}
        async with serving(source, tmp_path, **settings) as server:
            for client in (LIVING, SLOW):
                await server.subscribe(NAME, client)
            insert(source, 1)
            await asyncio.gather(*(consume(server, client, 1) for client in (SLOW, LIVING)))
            insert(source, *range(2, 21))
            await consume(server, LIVING, 20)
            await soon(lambda: server.status(NAME, SLOW).state == "catching-up")
            await server.get_without_ack(NAME, SLOW, timeout=10)
            await asyncio.to_thread(wait)
            proxy.target = (other.host, other.port)
            proxy.cut()
            insert(other, 21)
            assert await consume(server, LIVING, 21) == [21]
            assert server.status(NAME, SLOW).state == "catching-up"
            assert await consume(server, SLOW, 21) == list(range(2, 22))


@pytest.mark.extended
async def test_the_log_of_a_server_that_stands_by_goes_on_where_the_address_leads_to(
    source: Server, other: Server, tmp_path: Path
) -> None:
    with replicating(other, source) as wait, Proxy((source.host, source.port)) as proxy:
        address = f"{proxy.host}:{proxy.port}"
        settings = config(source, tmp_path, filter_regex=r"shop\..*", master_address=address, store="mixed")
        tail = Instance(settings.for_reader(), make_parser, MemoryMetaStore())

        def has_file() -> bool:
            return tail.log_extent is not None and bool(tail.log_extent.stretches)

        def end() -> Position:
            assert tail.log_extent is not None
            return tail.log_extent.stretches[-1][1]

        await tail.start()
        try:
            insert(source, 1)
            await soon(lambda: has_file() and end() == tail.cursors.track.end)
            await asyncio.to_thread(wait)
            first = end()
            proxy.target = (other.host, other.port)
            proxy.cut()
            insert(other, 2)
            await soon(lambda: not end().same_source(first) and end() == tail.cursors.track.end)
            assert tail.state == "running"
        finally:
            await tail.stop()
