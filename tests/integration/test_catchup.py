"""What has left the ring is read from the source again: ranges, old starts, and subscribers that fell behind."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sluice.instance.serving import backlog
from sluice.protocol.canal.flat import flat_json
from sluice.protocol.canal.rows import decode_rows
from sluice.protocol.content import Content
from sluice.protocol.errors import BadPositionError, PurgedError, SourceChangedError, SourceError, UnknownBatchError
from sluice.protocol.position import Position
from sluice.server.embedded import EmbeddedServer
from sluice.server.lag import explain
from sluice.store.cursor import Cursor
from tests.conftest import Database
from tests.faults.harness import USUAL
from tests.proxy import Proxy
from tests.reading import config, embedded, with_full_metadata
from tests.servers import Server
from tests.waiting import soon

NAME = "example"
CLIENT = 1001


def serving(source: Server, schema: str, folder: Path, **settings: Any) -> AbstractAsyncContextManager[EmbeddedServer]:
    options = {"filter_regex": rf"{schema}\..*", "file_flush_period": 20, "memory_buffer_size": 1024}
    return embedded(config(source, folder, **options, **settings))


async def mark(server: EmbeddedServer, after: str, client: int = CLIENT, **options: Any) -> Any:
    found = await server.position(NAME, client, after=after, timeout=10, **options)
    assert found.range.entries
    return found.range


async def read(server: EmbeddedServer, from_: str, to: str, client: int = CLIENT) -> bytes:
    return b"".join([bytes(part) async for batch in server.rows(NAME, client, from_, to) for part in batch.slices])


def ids(data: bytes) -> list[int]:
    return [row.after["id"] for row in decode_rows(data) if row.after]


async def next_ids(server: EmbeddedServer, client: int) -> list[int]:
    """Take batches until one has a row: its begin and its statement may come before it."""
    found: list[int] = []
    while not found:
        batch = await server.get_without_ack(NAME, client, timeout=10)
        assert batch.entries, server.status(NAME, client)
        found = ids(b"".join(batch.slices))
    return found


async def subscribed(server: EmbeddedServer, client: int = CLIENT, **options: Any) -> str:
    await server.subscribe(NAME, client, **options)
    await soon(lambda: server.status(NAME, client).position)
    return server.status(NAME, client).position


def fill(source: Server, schema: str, first: int, last: int, size: int = 100) -> None:
    with source.connect(autocommit=True) as connection, connection.cursor() as cursor:
        for number in range(first, last + 1):
            cursor.execute(f"INSERT INTO {schema}.numbers VALUES (%s, %s)", (number, "x" * size))


@pytest.fixture(params=USUAL)
def source(request: pytest.FixtureRequest) -> Iterator[Server]:
    """Rows that are read late would be marked as in doubt without the names of columns."""
    yield from with_full_metadata(request.getfixturevalue(request.param))


@pytest.fixture
def schema(source: Server, database: Database) -> str:
    name = database(source)
    source.query(f"CREATE TABLE {name}.numbers (id INT PRIMARY KEY, filler VARCHAR(5000))")
    return name


@pytest.mark.parametrize("options", [{}, {"gtid_on": True}, {"filter_transaction_entry": True}])
async def test_range_that_left_the_ring_is_the_same(
    source: Server, schema: str, tmp_path: Path, options: dict[str, Any]
) -> None:
    async with serving(source, schema, tmp_path, **options) as server:
        start = await subscribed(server)
        fill(source, schema, 1, 30)
        end = await mark(server, start)
        while len(ids(await read(server, start, end.to))) < 30:
            end = await mark(server, start, max_rows=30)
        before = await read(server, start, end.to)
        parts = await server.splits(NAME, CLIENT, start, end.to, 4)
        pieces = [await read(server, part.from_, part.to) for part in parts]
        assert len(parts) == 4
        assert b"".join(pieces) == before
        await server.ack(NAME, CLIENT, position=end.to)
        await soon(lambda: server.destination_status(NAME).entries == 0)
        assert await read(server, start, end.to) == before
        assert [await read(server, part.from_, part.to) for part in reversed(parts)] == pieces[::-1]
        assert await read(server, start, (await mark(server, start, until=parts[0].to)).to) == pieces[0]
        assert server.instances[NAME].catch_up.count == 1, "one reader feeds them all"
        again = await server.splits(NAME, CLIENT, start, end.to, 4)
        assert b"".join([await read(server, part.from_, part.to) for part in again]) == before
        assert (await mark(server, start)).to == end.to


async def test_range_larger_than_the_ring(source: Server, schema: str, tmp_path: Path) -> None:
    async with serving(source, schema, tmp_path) as server:
        start = await subscribed(server)
        after = start
        data: list[bytes] = []
        for first in range(1, 1501, 150):
            fill(source, schema, first, first + 149, size=2000)
            while not data or ids(data[-1])[-1] < first + 149:
                found = await mark(server, after)
                data.append(await read(server, after, found.to))
                after = found.to
                await server.ack(NAME, CLIENT, position=after)
        whole = b"".join(data)
        assert ids(whole) == list(range(1, 1501))
        assert len(whole) > 2 * server.instances[NAME].ring.memory
        assert await read(server, start, after) == whole
        parts = await server.splits(NAME, CLIENT, start, after, 3)
        assert len(parts) == 3
        assert max(part.bytes for part in parts) < 1.5 * min(part.bytes for part in parts)
        # The tasks of a job: all at once.
        pieces = await asyncio.gather(*(read(server, part.from_, part.to) for part in parts))
        assert b"".join(pieces) == whole


async def test_new_client_may_start_before_the_ring(source: Server, schema: str, tmp_path: Path) -> None:
    async with serving(source, schema, tmp_path) as server:
        start = await subscribed(server)
        fill(source, schema, 1, 20)
        seen: list[int] = []
        while len(seen) < 20:
            batch = await server.get_without_ack(NAME, CLIENT, timeout=10)
            seen += ids(b"".join(batch.slices))
            await server.ack(NAME, CLIENT, batch_id=batch.batch_id)
        await server.subscribe(NAME, 2, start=start)
        late: list[int] = []
        while len(late) < 20:
            batch = await server.get_without_ack(NAME, 2, timeout=10)
            assert batch.entries, server.status(NAME, 2)
            late += ids(b"".join(batch.slices))
            await server.ack(NAME, 2, batch_id=batch.batch_id)
        assert late == seen
        batch = await server.get_without_ack(NAME, 2, timeout=1)  # the end of the last transaction may be left to read
        if batch.entries:
            await server.ack(NAME, 2, batch_id=batch.batch_id)
        await soon(lambda: server.status(NAME, 2).state == "attached")
        assert server.instances[NAME].catch_up.count == 0
        fill(source, schema, 21, 21)
        assert await next_ids(server, 2) == [21]


@pytest.mark.parametrize("store", ["memory", "mixed"])
async def test_what_waits_for_a_client_behind_the_ring_is_measured(
    source: Server, schema: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: str
) -> None:
    monkeypatch.setattr(backlog, "PERIOD", 0.05)
    options = {"store": store, "store_min_free": 0, "memory_buffer_size": 64}
    async with embedded(config(source, tmp_path, filter_regex=rf"{schema}\..*", **options)) as server:
        start = await subscribed(server)
        fill(source, schema, 1, 20)
        source.query("FLUSH BINARY LOGS")
        fill(source, schema, 21, 40)
        await acked(server, CLIENT, 40)
        assert server.destination_status(NAME).backlogs == {}
        await server.subscribe(NAME, 2, start=start)
        await soon(lambda: server.destination_status(NAME).backlogs)
        (found,) = server.destination_status(NAME).backlogs.values()
        assert found.where == ("source" if store == "memory" else "log")
        assert 20 * 100 < found.bytes < 40 * 1000, "what lies in both files, but for what the ring has"
        text = explain(server.destination_status(NAME), server.status(NAME, 2)).text
        assert f"at most {found.bytes} bytes of the" in text
        await acked(server, 2, 40)
        await soon(lambda: all(it.bytes < found.bytes for it in server.destination_status(NAME).backlogs.values()))


@pytest.mark.parametrize("content", [pytest.param(Content.CHANGES, marks=pytest.mark.extended), Content.ROWS])
async def test_every_batch_of_a_reader_has_something_that_its_format_shows(
    source: Server, schema: str, tmp_path: Path, content: Content
) -> None:
    async with serving(source, schema, tmp_path) as server:
        start = await subscribed(server)
        fill(source, schema, 1, 20)
        found: list[int] = []
        while len(found) < 20:
            found += await next_ids(server, CLIENT)
        await server.subscribe(NAME, 2, start=start)
        await server.ack(NAME, CLIENT, position=server.status(NAME, CLIENT).got)
        late: list[int] = []
        while late != found:
            batch = await server.get_without_ack(NAME, 2, timeout=10, max_entries=1, content=content)
            data = b"".join(batch.slices)
            shown = ids(data) if content is Content.ROWS else json.loads(flat_json(batch.slices, batch.batch_id))
            assert len(shown) == 1, "what shows nothing is passed over"
            late += ids(data)
            await server.ack(NAME, 2, batch_id=batch.batch_id)
        assert (await server.get_without_ack(NAME, 2, timeout=1, content=content)).batch_id == -1
        await soon(lambda: server.status(NAME, 2).state == "attached")


async def test_slow_client_leaves_the_ring_and_joins_it_again_under_load(
    source: Server, schema: str, tmp_path: Path
) -> None:
    async with serving(source, schema, tmp_path, detach_after=1) as server:
        await subscribed(server)
        await subscribed(server, 2)
        writing = asyncio.create_task(asyncio.to_thread(fill, source, schema, 1, 1500, 2000))

        async def consume(client: int) -> list[int]:
            seen: list[int] = []
            while not seen or seen[-1] < 1500:
                batch = await server.get_without_ack(NAME, client, timeout=10, batch_size=64)
                if batch.entries:
                    seen += ids(b"".join(batch.slices))
                    await server.ack(NAME, client, batch_id=batch.batch_id)
            return seen

        async def consume_when_left_behind(client: int) -> list[int]:
            batch = await server.get_without_ack(NAME, client, timeout=10, batch_size=64)
            await soon(lambda: server.status(NAME, client).state != "attached")
            with pytest.raises(UnknownBatchError):
                await server.ack(NAME, client, batch_id=batch.batch_id)
            await server.ack(NAME, client, position=batch.to)
            return ids(b"".join(batch.slices)) + await consume(client)

        async with asyncio.timeout(60):
            fast, slow = await asyncio.gather(consume(CLIENT), consume_when_left_behind(2))
            await writing
        assert fast == slow == list(range(1, 1501))
        async with asyncio.timeout(20):
            while server.status(NAME, 2).state != "attached":  # the end of the last transaction may be left to read
                batch = await server.get_without_ack(NAME, 2, timeout=0.1)
                if batch.entries:
                    await server.ack(NAME, 2, batch_id=batch.batch_id)


@pytest.mark.extended
async def test_abandoned_clients_keep_neither_the_ring_nor_the_readers_from_others(
    source: Server, schema: str, tmp_path: Path
) -> None:
    others = _, asked_once, took_a_batch, late = 2, 3, 4, 5
    async with serving(source, schema, tmp_path) as server:
        start = await subscribed(server)
        for client in others:
            await subscribed(server, client)
        fill(source, schema, 1, 10)
    async with serving(source, schema, tmp_path, detach_after=1, catch_up_readers=1) as server:
        writing = asyncio.create_task(asyncio.to_thread(fill, source, schema, 11, 900, 2000))

        async def consume(client: int, last: int) -> list[int]:
            seen: list[int] = []
            while not seen or seen[-1] < last:
                batch = await server.get_without_ack(NAME, client, timeout=10)
                if batch.entries:
                    seen += ids(b"".join(batch.slices))
                    await server.ack(NAME, client, batch_id=batch.batch_id)
            return seen

        async with asyncio.timeout(60):
            assert await consume(CLIENT, 900) == list(range(1, 901))
            await writing
        states = {server.status(NAME, client).state for client in others}
        assert states == {"catching-up"}
        assert server.instances[NAME].catch_up.count == 0, "no client has asked for a reader"
        await server.get_without_ack(NAME, asked_once)
        while not (await server.get_without_ack(NAME, took_a_batch, timeout=20)).entries:
            pass
        reading = asyncio.create_task(read(server, start, server.status(NAME, CLIENT).acked))
        async with asyncio.timeout(60):
            assert await consume(late, 900) == list(range(1, 901))
            assert ids(await reading) == list(range(1, 901))


@pytest.mark.parametrize("how", ["client", pytest.param("range", marks=pytest.mark.extended)])
async def test_what_catches_up_survives_a_damaged_event_as_the_stream_does(
    source: Server, schema: str, tmp_path: Path, how: str
) -> None:
    with source.variable("binlog_checksum", "CRC32"), Proxy((source.host, source.port)) as proxy:
        through = f"{proxy.host}:{proxy.port}"
        settings = {"memory_buffer_size": 16, "detach_after": 1, "master_address": through}
        async with embedded(config(source, tmp_path, filter_regex=rf"{schema}\..*", **settings)) as server:
            start = await subscribed(server)
            await subscribed(server, 2)
            writing = asyncio.create_task(asyncio.to_thread(fill, source, schema, 1, 50))
            seen: list[int] = []
            while not seen or seen[-1] < 50:
                batch = await server.get_without_ack(NAME, CLIENT, timeout=10)
                seen += ids(b"".join(batch.slices))
                await server.ack(NAME, CLIENT, batch_id=batch.batch_id)
            await writing
            assert server.status(NAME, 2).state == "catching-up"
            proxy.damage(b"x" * 100)
            if how == "range":
                end = server.status(NAME, CLIENT).acked
                with pytest.raises(SourceError, match=r"the checksum of an event does not fit .*, ask again"):
                    await read(server, start, end)
                found = ids(await read(server, start, end))
            else:
                found = []
                while not found or found[-1] < 50:
                    batch = await server.get_without_ack(NAME, 2, timeout=20)
                    found += ids(b"".join(batch.slices))
                    await server.ack(NAME, 2, batch_id=batch.batch_id)
            assert proxy.damages == 1
            assert found == list(range(1, 51))


async def test_purged_range_says_what_is_lost(source: Server, schema: str, tmp_path: Path) -> None:
    async with serving(source, schema, tmp_path) as server:
        start = await subscribed(server)
        fill(source, schema, 1, 3)
        end = await mark(server, start, max_rows=1)
        await server.ack(NAME, CLIENT, position=end.to)
        source.query("FLUSH BINARY LOGS")
        fill(source, schema, 4, 4)
        file = source.query("SHOW BINARY LOGS")[-1][0]
        while True:
            found = await mark(server, end.to)
            await server.ack(NAME, CLIENT, position=found.to)
            end = found
            if ids(await read(server, found.from_, found.to))[-1:] == [4]:
                break
        async with asyncio.timeout(20):
            while source.query("SHOW BINARY LOGS")[0][0] != file:
                source.query(f"PURGE BINARY LOGS TO '{file}'")
                await asyncio.sleep(0.1)
        with pytest.raises(PurgedError, match=file):
            await read(server, start, end.to)
        place = Position.parse(end.to)
        elsewhere = str(replace(place, created=place.created - 1))
        with pytest.raises(SourceChangedError):
            await read(server, elsewhere, elsewhere)


async def lose_log(source: Server) -> str:
    """Let the source go on in another binlog file and purge what was before; the name of that file."""
    source.query("FLUSH BINARY LOGS")
    file = str(source.query("SHOW BINARY LOGS")[-1][0])
    await asyncio.to_thread(source.purge_binlogs, file)
    return file


async def test_client_whose_place_was_purged_is_told_so_and_the_others_go_on(
    source: Server, schema: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(source, schema, tmp_path, detach_after=1) as server:
        await subscribed(server)
        dead = await subscribed(server, 2)

        async def consume(last: int) -> None:
            seen = 0
            while seen < last:
                batch = await server.get_without_ack(NAME, CLIENT, timeout=10)
                seen = max([seen, *ids(b"".join(batch.slices))])
                if batch.entries:
                    await server.ack(NAME, CLIENT, batch_id=batch.batch_id)

        await asyncio.gather(asyncio.to_thread(fill, source, schema, 1, 600, 5000), consume(600))
        await soon(lambda: server.status(NAME, 2).state == "catching-up")
        file = await lose_log(source)
        with pytest.raises(PurgedError, match=rf"has purged the binlog at .* is {file}"):
            await server.get_without_ack(NAME, 2, timeout=20)
        status = server.status(NAME, 2)
        assert (status.state, status.problem, status.position) == ("gone", "purged", dead)
        told = [record for record in caplog.records if "client 2 is not served any more" in record.message]
        assert len(told) == 1
        assert file in told[0].message
        fill(source, schema, 601, 601)
        await consume(601)
        assert server.destination_status(NAME).state == "running"


async def test_a_client_that_catches_up_is_not_gone_when_the_destination_stops(
    source: Server, schema: str, tmp_path: Path
) -> None:
    async with serving(source, schema, tmp_path, detach_after=1) as server:
        await subscribed(server)
        await subscribed(server, 2)
        cursors = server.instances[NAME].cursors
        await asyncio.gather(asyncio.to_thread(fill, source, schema, 1, 600, 5000), acked(server, CLIENT, 600))
        batch = await server.get_without_ack(NAME, 2, timeout=20)
        assert ids(b"".join(batch.slices))[0] == 1
        assert cursors.readers.catching_up == {2}
        await server.stop(NAME)
        assert (cursors.status(2).state, cursors.status(2).error) == ("catching-up", "")


@pytest.fixture
async def purged(source: Server, schema: str, tmp_path: Path) -> AsyncIterator[EmbeddedServer]:
    """A server whose only client has lost its place while it was stopped; the source has the rows 3 to 5."""
    async with serving(source, schema, tmp_path) as server:
        await subscribed(server)
        fill(source, schema, 1, 1)
        await acked(server, CLIENT, 1)
    fill(source, schema, 2, 2)
    await lose_log(source)
    fill(source, schema, 3, 5)
    async with serving(source, schema, tmp_path) as server:
        await soon(lambda: server.destination_status(NAME).state == "error")
        yield server


async def acked(server: EmbeddedServer, client: int, last: int) -> list[int]:
    """Take and ack all rows up to one."""
    found: list[int] = []
    while not found or found[-1] < last:
        batch = await server.get_without_ack(NAME, client, timeout=10)
        assert batch.entries, server.status(NAME, client)
        found += ids(b"".join(batch.slices))
        await server.ack(NAME, client, batch_id=batch.batch_id, durable=True)
    return found


async def test_after_a_purge_the_oldest_that_is_left_is_found_and_never_passed_over_by_earliest(
    purged: EmbeddedServer, source: Server, schema: str
) -> None:
    with pytest.raises(PurgedError, match=f"`sluice seek {NAME} {CLIENT} oldest` goes on without that"):
        await purged.get_without_ack(NAME, CLIENT)
    assert f"`sluice seek {NAME} {CLIENT} oldest` goes on" in purged.destination_status(NAME).error
    before = purged.status(NAME, CLIENT).position
    with pytest.raises(BadPositionError, match=r"`earliest` would skip changes that the source still has"):
        await purged.seek(NAME, CLIENT, "earliest")
    with pytest.raises(PurgedError, match="has purged the binlog at the time 1000 ms"):
        await purged.seek(NAME, CLIENT, {"timestamp": 1000})
    assert purged.status(NAME, CLIENT).position == before
    await purged.seek(NAME, CLIENT, "oldest")
    assert await acked(purged, CLIENT, 5) == [3, 4, 5]
    await purged.subscribe(NAME, 2, start="oldest")
    assert await acked(purged, 2, 5) == [3, 4, 5]


async def test_a_client_that_subscribes_again_after_a_purge_gets_all_that_is_left(purged: EmbeddedServer) -> None:
    await purged.unsubscribe(NAME, CLIENT)
    await purged.subscribe(NAME, CLIENT)
    assert await acked(purged, CLIENT, 5) == [3, 4, 5]


@pytest.mark.parametrize("gtid_on", [False, True])
@pytest.mark.parametrize("store", [pytest.param("memory", marks=pytest.mark.extended), "mixed"])
async def test_a_client_at_the_end_of_a_file_that_is_purged_has_lost_nothing(
    source: Server, schema: str, tmp_path: Path, store: str, *, gtid_on: bool
) -> None:
    options = {"gtid_on": gtid_on, "store": store, "store_min_free": 0}
    async with serving(source, schema, tmp_path, **options) as server:
        await subscribed(server)
        await subscribed(server, 2)
        fill(source, schema, 1, 1)
        await acked(server, CLIENT, 1)
        cursor = server.cursor(NAME, CLIENT)
    assert cursor is not None
    await lose_log(source)
    fill(source, schema, 2, 3)
    async with serving(source, schema, tmp_path, **options) as server:
        assert await acked(server, CLIENT, 3) == [2, 3]
        assert not server.moves(NAME)
        await server.seek(NAME, CLIENT, cursor)
        assert server.status(NAME, CLIENT).state == "catching-up"
        assert await acked(server, CLIENT, 3) == [2, 3]
        if store == "mixed":
            assert await acked(server, 2, 3) == [1, 2, 3]
            log = server.instances[NAME].log_extent
            assert log is not None
            assert len(log.stretches) == 1, "it has no gap"
        else:
            with pytest.raises(PurgedError):
                await acked(server, 2, 3)


@pytest.mark.extended
@pytest.mark.parametrize("gtid_on", [False, True])
@pytest.mark.parametrize("is_last_wanted", [True, False])
async def test_a_stream_goes_on_where_the_file_at_whose_end_it_was_cut_is_purged_meanwhile(
    source: Server, schema: str, database: Database, tmp_path: Path, *, gtid_on: bool, is_last_wanted: bool
) -> None:
    """As it does after a restart; also if it is cut again before anything follows."""
    with Proxy((source.host, source.port)) as proxy:
        options = {"gtid_on": gtid_on, "master_address": f"{proxy.host}:{proxy.port}"}
        async with serving(source, schema, tmp_path, **options) as server:
            await subscribed(server)
            fill(source, schema, 1, 1)
            await acked(server, CLIENT, 1)
            if not is_last_wanted:
                other = database(source)
                source.query(f"CREATE TABLE {other}.numbers (id INT PRIMARY KEY, filler VARCHAR(5000))")
                read = server.destination_status(NAME).parser.transactions + 2
                fill(source, other, 1, 2)
                await soon(lambda: server.destination_status(NAME).parser.transactions >= read)
            while (batch := await server.get_without_ack(NAME, CLIENT, timeout=2)).entries:
                await server.ack(NAME, CLIENT, batch_id=batch.batch_id)
            proxy.cut_after(1)
            proxy.cut()
            await soon(lambda: server.destination_status(NAME).state == "error")
            await lose_log(source)
            for _ in range(2):
                proxy.heal()
                await soon(lambda: server.destination_status(NAME).state == "running")
                proxy.cut_after(1)
                proxy.cut()
                await soon(lambda: server.destination_status(NAME).state == "error")
            fill(source, schema, 2, 3)
            proxy.heal()
            assert await acked(server, CLIENT, 3) == [2, 3]
            assert not server.moves(NAME)


async def test_without_gtids_the_end_of_a_file_that_was_read_is_the_begin_of_the_next(
    source: Server, schema: str, tmp_path: Path
) -> None:
    async with serving(source, schema, tmp_path) as server:
        await subscribed(server)
        fill(source, schema, 1, 1)
        batch = await server.get_without_ack(NAME, CLIENT, timeout=10)
        source.query("FLUSH BINARY LOGS")
        fill(source, schema, 2, 2)
        source.query("FLUSH BINARY LOGS")
        fill(source, schema, 3, 3)
        await server.ack(NAME, CLIENT, batch_id=batch.batch_id)
        assert await acked(server, CLIENT, 3) == [2, 3]
        file = str(source.query("SHOW BINARY LOGS")[-2][0])
        await asyncio.to_thread(source.purge_binlogs, file)
        await server.seek(NAME, CLIENT, Cursor.at(Position.parse(batch.to)))
        assert await acked(server, CLIENT, 3) == [2, 3]
        await asyncio.to_thread(source.purge_binlogs, str(source.query("SHOW BINARY LOGS")[-1][0]))
        await server.seek(NAME, CLIENT, Cursor.at(Position.parse(batch.to)))
        with pytest.raises(PurgedError):
            await acked(server, CLIENT, 3)


@pytest.mark.parametrize(
    "how", ["seek", *(pytest.param(it, marks=pytest.mark.extended) for it in ("subscribe", "confirm"))]
)
async def test_a_client_that_left_when_it_was_lost_says_after_a_restart_what_becomes_of_that(
    source: Server, schema: str, tmp_path: Path, how: str
) -> None:
    async with serving(source, schema, tmp_path) as server:
        await subscribed(server)
    fill(source, schema, 1, 2)
    await lose_log(source)
    fill(source, schema, 3, 4)
    async with serving(source, schema, tmp_path) as server:
        await soon(lambda: "has purged the binlog" in server.destination_status(NAME).error)
        await server.unsubscribe(NAME, CLIENT)
    async with serving(source, schema, tmp_path) as server:
        choices = rf"start `oldest`.*`sluice seek {NAME} {CLIENT} oldest`.*`sluice gaps confirm {NAME} {CLIENT}`"
        with pytest.raises(BadPositionError, match=choices):
            await server.subscribe(NAME, CLIENT)
        if how == "confirm":
            assert await server.confirm_gaps(NAME, CLIENT) == 1
        elif how == "seek":
            await server.seek(NAME, CLIENT, "oldest")
        await server.subscribe(NAME, CLIENT, start="oldest" if how == "subscribe" else "earliest")
        fill(source, schema, 5, 5)
        assert await acked(server, CLIENT, 5) == ([5] if how == "confirm" else [3, 4, 5])


@pytest.mark.parametrize("is_known", [pytest.param(False, marks=pytest.mark.extended), True])
async def test_a_time_before_an_empty_ring_is_found_at_the_source(
    source: Server, schema: str, tmp_path: Path, *, is_known: bool
) -> None:
    fill(source, schema, 1, 1)
    await asyncio.sleep(1.1)
    ((begin,),) = source.query("SELECT UNIX_TIMESTAMP()")
    fill(source, schema, 2, 3)
    start = {"timestamp": begin * 1000}
    async with serving(source, schema, tmp_path) as server:
        await soon(lambda: server.destination_status(NAME).state == "running")
        if is_known:
            await subscribed(server, start="latest")
            await server.seek(NAME, CLIENT, start)
        else:
            await server.subscribe(NAME, CLIENT, start=start)
        fill(source, schema, 4, 4)
        assert await acked(server, CLIENT, 4) == [2, 3, 4]


async def test_client_of_canal_whose_file_has_no_number_is_told_so_and_the_others_are_served(
    source: Server, schema: str, tmp_path: Path
) -> None:
    async with serving(source, schema, tmp_path) as server:
        await subscribed(server)
        await subscribed(server, 2)
    file = tmp_path / NAME / "meta.dat"
    data = json.loads(file.read_text())
    (other,) = (it for it in data["clientDatas"] if it["clientIdentity"]["clientId"] == 2)
    del other["sluice"]
    other["cursor"]["postion"]["journalName"] = "mysql-bin"
    file.write_text(json.dumps(data))
    async with serving(source, schema, tmp_path) as server:
        fill(source, schema, 1, 1)
        assert await next_ids(server, CLIENT) == [1]
        with pytest.raises(SourceChangedError, match="no binlog file mysql-bin "):
            await server.get_without_ack(NAME, 2, timeout=10)


async def test_configured_reset_goes_on_after_a_gap_when_no_place_is_left(
    source: Server, schema: str, tmp_path: Path
) -> None:
    async with serving(source, schema, tmp_path) as server:
        kept = {client: await subscribed(server, client) for client in (CLIENT, 2)}
    fill(source, schema, 1, 2)
    await lose_log(source)
    async with serving(source, schema, tmp_path, auto_reset_latest_pos_mode=True) as server:
        await soon(lambda: server.destination_status(NAME).state == "running")
        assert {client: server.status(NAME, client).position for client in kept} == kept
        fill(source, schema, 3, 3)
        await soon(lambda: all(server.status(NAME, client).waiting.rows == 1 for client in kept))
        for client, place in kept.items():
            marker, batch = [await server.get_without_ack(NAME, client, timeout=10) for _ in range(2)]
            begin = server.destination_status(NAME).gaps[client][0].after
            assert (ids(data := b"".join(marker.slices)), marker.from_, marker.to) == ([], begin, begin)
            assert f"changes from {place} to {begin}: purge".encode() in data
            assert ids(b"".join(batch.slices)) == [3]
            await server.ack(NAME, client, batch_id=marker.batch_id)
            await server.ack(NAME, client, batch_id=batch.batch_id)
    async with serving(source, schema, tmp_path) as server:
        fill(source, schema, 4, 4)
        for client in kept:
            assert await next_ids(server, client) == [4], "the marker comes once"
        assert {it: [gap.state for gap in gaps] for it, gaps in server.destination_status(NAME).gaps.items()} == {
            client: ["told"] for client in kept
        }
        assert [await server.confirm_gaps(NAME, client) for client in kept] == [1, 1]
        assert not server.destination_status(NAME).gaps
