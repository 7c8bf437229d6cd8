"""What was received survives the source's purge, and no client waits for the slowest: the log on disk."""

import asyncio
import json
import os
import re
import threading
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from sluice.instance.serving import log as instance_log
from sluice.protocol import props
from sluice.protocol.canal.rows import decode_changes, decode_rows
from sluice.protocol.errors import BadParameterError, ConfigError, PurgedError, ReshapedError
from sluice.protocol.position import Position
from sluice.server.embedded import EmbeddedServer
from sluice.store.log import log as log_module
from sluice.store.log.files import read_block, read_head, words_of
from sluice.store.log.log import Extent
from tests.conftest import Database
from tests.delivery import execute
from tests.faults.harness import USUAL
from tests.reading import config, embedded, with_full_metadata
from tests.servers import Server
from tests.waiting import soon

NAME, CLIENT = "example", 1001


@pytest.fixture(params=USUAL)
def source(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server whose events have the names of columns: rows of any time are read with them."""
    yield from with_full_metadata(request.getfixturevalue(request.param))


@pytest.fixture
def schema(source: Server, database: Database) -> str:
    name = database(source)
    source.query(f"CREATE TABLE {name}.numbers (id INT PRIMARY KEY, filler VARCHAR(5000))")
    return name


def logging(source: Server, schema: str, folder: Path, **settings: Any) -> AbstractAsyncContextManager[EmbeddedServer]:
    """Serve with a log, and a ring of 1 MiB."""
    options = {
        "store": "mixed",
        "filter_regex": rf"{schema}\..*",
        "file_flush_period": 20,
        "memory_buffer_size": 1024,
        "store_min_free": 0,
    }
    return embedded(config(source, folder, **(options | settings)))


def fill(source: Server, schema: str, first: int, last: int, size: int = 3000) -> None:
    """Insert rows, each in a transaction of its own."""
    with source.connect(autocommit=True) as connection, connection.cursor() as cursor:
        for number in range(first, last + 1):
            cursor.execute(f"INSERT INTO {schema}.numbers VALUES (%s, %s)", (number, "x" * size))


async def purge(source: Server) -> None:
    """Let the source forget all that is not in a new file, as soon as no dump is in an older one."""
    source.query("FLUSH BINARY LOGS")
    ((name, *_),) = source.query("SHOW MASTER STATUS" if source.name.startswith("maria") else "SHOW BINARY LOG STATUS")

    def is_done() -> bool:
        source.query(f"PURGE BINARY LOGS TO '{name}'")
        return bool(source.query("SHOW BINARY LOGS")[0][0] == name)

    await soon(is_done)


def extent(server: EmbeddedServer) -> Extent:
    found = server.instances[NAME].log_extent
    assert found is not None
    return found


async def logged(server: EmbeddedServer, source: Server, schema: str, last: int) -> None:
    """Write a row, and wait until the log has it: all before is there, too."""
    fill(source, schema, last, last, 1)
    end = await server.instances[NAME].source_end()
    await soon(lambda: extent(server).stretches[-1][1] >= end)


async def fill_in_runs(server: EmbeddedServer, source: Server, schema: str, last: int, first: int = 1) -> None:
    """Insert rows up to this id, a multiple of 20, so that the log never gets more than 20 of them at once.

    A file may grow beyond its size by what is written at once, and a slow machine may write megabytes.
    """
    for end in range(20, last + 1, 20):
        await asyncio.to_thread(fill, source, schema, max(first, end - 19), end - 1)
        await logged(server, source, schema, end)


async def take(server: EmbeddedServer, count: int, client: int = CLIENT, *, ack: bool = True) -> list[int]:
    """Take at least `count` rows, and return their ids."""
    found: list[int] = []
    while len(found) < count:
        batch = await server.get_without_ack(NAME, client, timeout=10)
        assert batch.entries, (len(found), server.status(NAME, client))
        found += [row.after["id"] for row in decode_rows(b"".join(batch.slices)) if row.after]
        if ack:
            await server.ack(NAME, client, batch_id=batch.batch_id)
    return found


async def test_changes_are_kept_without_any_client_and_after_the_source_has_purged_them(
    source: Server, schema: str, tmp_path: Path
) -> None:
    async with logging(source, schema, tmp_path) as server:
        await soon(lambda: server.destination_status(NAME).state == "running")
        await asyncio.to_thread(fill, source, schema, 1, 1500)  # four times what the ring holds
        await logged(server, source, schema, 1501)
        await purge(source)
        await server.subscribe(NAME, CLIENT)
        assert await take(server, 1501) == list(range(1, 1502))
        assert len(extent(server).stretches) == 1


@pytest.mark.parametrize("store", [pytest.param("mixed", marks=pytest.mark.extended), "file"])
async def test_a_slow_client_does_not_hold_the_others_back_and_misses_nothing(
    source: Server, schema: str, tmp_path: Path, store: str
) -> None:
    async with logging(source, schema, tmp_path, store=store) as server:
        await server.subscribe(NAME, CLIENT)
        await server.subscribe(NAME, 1002)
        await soon(lambda: server.status(NAME, 1002).position)
        writing = asyncio.create_task(asyncio.to_thread(fill, source, schema, 1, 1500))
        assert await take(server, 1500) == list(range(1, 1501))
        await writing
        await logged(server, source, schema, 1501)
        await purge(source)
        assert server.status(NAME, 1002).state == "catching-up"
        assert await take(server, 1501, 1002) == list(range(1, 1502))
        await soon(lambda: server.status(NAME, 1002).state == "attached")


async def test_nobody_is_given_what_is_not_on_the_disk_if_that_is_configured(
    source: Server, schema: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_sync, sync = threading.Event(), os.fdatasync

    def wait_and_sync(fd: int) -> None:
        assert may_sync.wait(20)
        sync(fd)

    async with logging(source, schema, tmp_path, store="file") as server:
        await server.subscribe(NAME, CLIENT)
        await soon(lambda: server.status(NAME, CLIENT).position)
        begin = server.status(NAME, CLIENT).position
        fill(source, schema, 1, 1, 1)
        assert await take(server, 1) == [1]
        monkeypatch.setattr(os, "fdatasync", wait_and_sync)
        size = extent(server).bytes
        fill(source, schema, 2, 2, 1)
        await soon(lambda: extent(server).bytes > size)
        await server.subscribe(NAME, 1002, start=begin)
        assert not (await server.get_without_ack(NAME, CLIENT, timeout=0.5)).entries
        assert await take(server, 1, 1002) == [1]
        assert not (await server.get_without_ack(NAME, 1002, timeout=0.5)).entries
        may_sync.set()
        assert await take(server, 1) == [2]
        assert await take(server, 1, 1002) == [2]


async def test_clients_are_served_after_a_restart_while_the_source_is_down(
    source: Server, schema: str, tmp_path: Path
) -> None:
    async with logging(source, schema, tmp_path) as server:
        await server.subscribe(NAME, CLIENT)
        await soon(lambda: server.status(NAME, CLIENT).position)
        await asyncio.to_thread(fill, source, schema, 1, 20)
        await logged(server, source, schema, 21)
    async with logging(source, schema, tmp_path, master_address="127.0.0.1:1") as server:
        assert await take(server, 21) == list(range(1, 22))
        await soon(lambda: server.destination_status(NAME).state == "error")
    await asyncio.to_thread(fill, source, schema, 22, 30)
    async with logging(source, schema, tmp_path) as server:
        assert await take(server, 9) == list(range(22, 31))
        assert len(extent(server).stretches) == 1, "nothing is missing between the runs"


async def test_a_range_is_read_from_the_log_when_the_source_has_purged_it(
    source: Server, schema: str, tmp_path: Path
) -> None:
    async with logging(source, schema, tmp_path) as server:
        await server.subscribe(NAME, CLIENT)
        await soon(lambda: server.status(NAME, CLIENT).position)
        begin = server.status(NAME, CLIENT).position
        await asyncio.to_thread(fill, source, schema, 1, 100)
        assert await take(server, 100) == list(range(1, 101))
        end = server.status(NAME, CLIENT).position
        await logged(server, source, schema, 101)
        await take(server, 1)
        await purge(source)
        pieces = [piece async for batch in server.rows(NAME, CLIENT, begin, end) for piece in batch.slices]
        assert [row.after["id"] for row in decode_rows(b"".join(pieces)) if row.after] == list(range(1, 101))


async def test_what_the_source_has_purged_meanwhile_is_a_gap_and_the_log_goes_on_with_the_oldest_that_is_left(
    source: Server, schema: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with logging(source, schema, tmp_path) as server:
        await server.subscribe(NAME, CLIENT)
        await soon(lambda: server.status(NAME, CLIENT).position)
        fill(source, schema, 1, 3, 1)
        await logged(server, source, schema, 4)
        ((_, end),) = extent(server).stretches
    fill(source, schema, 5, 6, 1)
    await purge(source)
    fill(source, schema, 7, 8, 1)
    async with logging(source, schema, tmp_path) as server:
        await soon(lambda: server.destination_status(NAME).state == "running")
        await logged(server, source, schema, 9)
        before, after = extent(server).stretches
        assert before[1] == end
        assert after[0].file == source.query("SHOW BINARY LOGS")[0][0]
        await server.subscribe(NAME, 1002)
        assert await take(server, 3, 1002) == [7, 8, 9]
        assert await take(server, 4) == [1, 2, 3, 4], "what is before the gap"
        with pytest.raises(PurgedError):
            await take(server, 1)
    assert f"the log has a gap from {end} to {after[0]}" in caplog.text


async def test_a_damaged_block_is_named_and_the_source_serves_what_it_held(
    source: Server, schema: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with logging(source, schema, tmp_path) as server:
        await server.subscribe(NAME, CLIENT)
        await soon(lambda: server.status(NAME, CLIENT).position)
        start = server.status(NAME, CLIENT).position
        await asyncio.to_thread(fill, source, schema, 1, 30)
        await logged(server, source, schema, 31)
        assert await take(server, 31) == list(range(1, 32))
        (path,) = (tmp_path / NAME / "log").glob("*.log")
        fd = os.open(path, os.O_RDWR)
        _, offset = read_head(fd, path)
        block = read_block(fd, offset, path)
        assert block is not None
        os.pwrite(fd, b"?", block.end - 1)
        os.close(fd)
        await server.seek(NAME, CLIENT, start)
        assert await take(server, 31) == list(range(1, 32))
    assert f"the block at byte {offset} of {path} is damaged: the checksum of its entries is wrong" in caplog.text


async def test_a_client_whose_changes_neither_the_log_nor_the_source_has_is_told_so(
    source: Server, schema: str, tmp_path: Path
) -> None:
    async with logging(source, schema, tmp_path) as server:
        await server.subscribe(NAME, CLIENT)
        await soon(lambda: server.status(NAME, CLIENT).position)
        start = server.status(NAME, CLIENT).position
        await asyncio.to_thread(fill, source, schema, 1, 30)
        await logged(server, source, schema, 31)
        await take(server, 31)
    for path in (tmp_path / NAME / "log").iterdir():
        path.unlink()
    async with logging(source, schema, tmp_path) as server:
        await soon(lambda: server.destination_status(NAME).state == "running")
        await logged(server, source, schema, 32)
        assert extent(server).stretches[0][0] > Position.parse(start)
        await purge(source)
        await server.seek(NAME, CLIENT, start)
        with pytest.raises(PurgedError, match="purged"):
            await take(server, 1)


async def test_a_log_that_another_process_uses_or_that_is_of_another_destination_is_refused(
    source: Server, schema: str, tmp_path: Path
) -> None:
    async with logging(source, schema, tmp_path, store_dir=tmp_path / "logs") as server:
        await soon(lambda: server.destination_status(NAME).state == "running")
        await logged(server, source, schema, 1)
        with pytest.raises(ConfigError, match="another process uses the log in"):
            async with logging(source, schema, tmp_path / "other", store_dir=tmp_path / "logs"):
                raise AssertionError
    (tmp_path / "logs" / NAME).rename(tmp_path / "logs" / "shop")
    with pytest.raises(ConfigError, match=r"\.log belongs to the destination 'example'"):
        async with embedded(
            config(source, tmp_path, destination="shop", store="mixed", store_dir=tmp_path / "logs", store_min_free=0)
        ):
            raise AssertionError


async def test_the_status_says_what_the_log_holds_and_files_go_on_request(
    source: Server, schema: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "FILE_SIZE", 100_000)
    async with logging(source, schema, tmp_path) as server:
        await soon(lambda: server.destination_status(NAME).state == "running")
        await fill_in_runs(server, source, schema, 200)
        status = server.destination_status(NAME).log
        assert status is not None
        assert len(status.files) > 4
        assert len(status.stretches) == 1
        would_go = await server.prune_log(NAME, 250_000, dry_run=True)
        assert would_go == list(status.files[: len(would_go)])
        assert extent(server) == status
        assert await server.prune_log(NAME, 250_000) == would_go
        assert extent(server).bytes <= 250_000
        await server.subscribe(NAME, CLIENT)
        found = await take(server, 1)
        found += await take(server, 200 - found[-1])
        assert found == list(range(found[0], 201)), "from the oldest change that the log still has"
        assert found[0] > 100


async def test_a_protected_client_keeps_what_it_needs_and_one_that_is_not_is_gone_with_what_it_lost(
    source: Server, schema: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "SMALLEST_FILE", 100_000)
    async with logging(source, schema, tmp_path, store_max_bytes=300_000) as server:
        await server.subscribe(NAME, CLIENT)
        await server.subscribe(NAME, 1002)
        await soon(lambda: server.status(NAME, 1002).position)
        await asyncio.to_thread(fill, source, schema, 1, 5)
        assert await take(server, 5) == await take(server, 5, 1002) == list(range(1, 6))
        await server.protect(NAME, CLIENT, protected=True)
        place = server.status(NAME, CLIENT).position
        await asyncio.to_thread(fill, source, schema, 6, 500)
        await logged(server, source, schema, 501)
        hold = extent(server).holds[CLIENT]
        assert hold.bytes > 1_000_000
        assert (hold.files, hold.bytes) == (len(extent(server).files), extent(server).bytes)
        assert not extent(server).holds.get(1002)
    async with logging(source, schema, tmp_path, store_max_bytes=300_000) as server:
        assert server.status(NAME, CLIENT).protected
        await logged(server, source, schema, 502)
        assert await server.prune_log(NAME, 0) == [], "it is held after a restart, too"
        await purge(source)
        assert await take(server, 497) == list(range(6, 503))
        await server.protect(NAME, CLIENT, protected=False)
        assert await server.prune_log(NAME, 0)
        with pytest.raises(PurgedError) as gone:
            await take(server, 1, 1002)
        begin = extent(server).stretches[0][0]
        lost = Position.parse(place)
        assert f"The changes from {lost.file}:{lost.begin} to " in str(gone.value)
        assert str(gone.value).endswith(
            f"`sluice seek {NAME} 1002 oldest` goes on without that, with all that log and source still have"
        )
        assert server.status(NAME, 1002).state == "gone"
        assert server.status(NAME, 1002).position == place
        await server.seek(NAME, 1002, "oldest")
        assert Position.parse(server.status(NAME, 1002).position) <= begin, "the source may have more than the log"
        found = await take(server, 1, 1002)
        found += await take(server, 502 - found[-1], 1002)
        assert found == list(range(found[0], 503))


async def test_a_client_that_has_lost_its_place_goes_on_with_what_the_source_has_from_before_the_log(
    source: Server, schema: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "FILE_SIZE", 20_000)
    async with logging(source, schema, tmp_path) as server:
        await server.subscribe(NAME, CLIENT)
        await soon(lambda: server.status(NAME, CLIENT).position)
        await logged(server, source, schema, 1)
        source.query("FLUSH BINARY LOGS")
        file = source.query("SHOW BINARY LOGS")[-1][0]
        await fill_in_runs(server, source, schema, 40, first=2)
    async with logging(source, schema, tmp_path) as server:
        await soon(lambda: server.destination_status(NAME).state == "running")
        await server.prune_log(NAME, 0)
        await asyncio.to_thread(source.purge_binlogs, file)
        with pytest.raises(PurgedError, match=f"`sluice seek {NAME} {CLIENT} oldest` goes on without that"):
            await take(server, 1)
        await server.seek(NAME, CLIENT, "oldest")
        assert Position.parse(server.status(NAME, CLIENT).position) < extent(server).stretches[0][0]
        assert await take(server, 39) == list(range(2, 41))


async def test_after_what_neither_log_nor_source_can_read_a_client_goes_on_with_what_follows(
    source: Server, schema: str, tmp_path: Path
) -> None:
    async with logging(source, schema, tmp_path) as server:
        await server.subscribe(NAME, CLIENT)
        await soon(lambda: server.status(NAME, CLIENT).position)
        before: dict[int, Position] = {}
        for number in range(1, 6):
            before[number] = await server.instances[NAME].source_end()
            await logged(server, source, schema, number)
    async with logging(source, schema, tmp_path) as server:
        await logged(server, source, schema, 6)
        (path,) = (tmp_path / NAME / "log").glob("*.log")
        with path.open("r+b") as file:
            _, offset = read_head(file.fileno(), path)
            blocks = []
            while (block := read_block(file.fileno(), offset, path)) is not None:
                blocks.append(block)
                offset = block.end
            damaged = next(it for it in blocks if words_of(it, path).to > before[3])
            os.pwrite(file.fileno(), b"?", damaged.end - 1)
        await purge(source)
        assert await take(server, 2, ack=False) == [1, 2]
        instance = server.instances[NAME]
        await soon(lambda: instance.catch_up.clients[instance.cursors.clients.key(CLIENT)].error)
        await server.rollback(NAME, CLIENT)
        assert await take(server, 2) == [1, 2], "what it has not confirmed of what was read"
        with pytest.raises(PurgedError, match=f"`sluice seek {NAME} {CLIENT} oldest` goes on without that"):
            await take(server, 1)
        await server.seek(NAME, CLIENT, "oldest")
        assert await take(server, 3) == [4, 5, 6]


async def test_nothing_protects_a_client_without_a_log(source: Server, schema: str, tmp_path: Path) -> None:
    async with logging(source, schema, tmp_path, store="memory") as server:
        with pytest.raises(BadParameterError, match=r"has no log on disk \(sluice.instance.store\)"):
            await server.subscribe(NAME, CLIENT, protected=True)
        await server.subscribe(NAME, CLIENT, protected=False)
        with pytest.raises(BadParameterError):
            await server.protect(NAME, CLIENT, protected=True)


async def test_files_are_compressed_when_they_are_full_and_serve_as_before(
    source: Server, schema: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "FILE_SIZE", 300_000)
    monkeypatch.setattr(instance_log, "RESTING", 0.1)
    async with logging(source, schema, tmp_path, store_compression="zstd") as server:
        await server.subscribe(NAME, CLIENT)
        await soon(lambda: server.status(NAME, CLIENT).position)
        start = server.status(NAME, CLIENT).position
        await fill_in_runs(server, source, schema, 500)
        assert await take(server, 500) == list(range(1, 501))
        await soon(lambda: all(it.name.endswith(".zst.log") for it in extent(server).files[:-1]), seconds=20)
        assert len(extent(server).files) > 2
        assert extent(server).bytes < 1_000_000
        await purge(source)
        await server.seek(NAME, CLIENT, start)
        assert await take(server, 500) == list(range(1, 501))


async def test_a_transaction_larger_than_the_ring_is_read_in_pieces_also_after_a_restart_inside_it(
    source: Server, schema: str, tmp_path: Path
) -> None:
    def write() -> None:
        with source.connect(database=schema, autocommit=False) as connection, connection.cursor() as cursor:
            for first in range(1, 3001, 100):
                values = ",".join(f"({number}, REPEAT('y', 3000))" for number in range(first, first + 100))
                cursor.execute(f"INSERT INTO numbers VALUES {values}")
            connection.commit()

    async with logging(source, schema, tmp_path) as server:
        await server.subscribe(NAME, CLIENT)
        await soon(lambda: server.status(NAME, CLIENT).position)
        await asyncio.to_thread(write)  # 9 MB
        await logged(server, source, schema, 3001)
        found = await take(server, 1500)
        position = server.status(NAME, CLIENT).acked
        assert Position.parse(position).n > 0, "inside the transaction"
        await purge(source)
        newest = source.query("SHOW BINARY LOGS")[0][0]
        await soon(lambda: extent(server).stretches[-1][1].file == newest)
    async with logging(source, schema, tmp_path) as server:
        again = await take(server, 3001)
        assert again == list(range(1, 3002)), "the durable cursor is before the transaction"
        assert found == list(range(1, len(found) + 1))
        await server.seek(NAME, CLIENT, position)
        assert await take(server, 3001 - len(found)) == list(range(len(found) + 1, 3002))
        await soon(lambda: server.status(NAME, CLIENT).state == "attached")


async def test_a_changed_filter_is_said_in_the_stream_and_what_was_delivered_before_stays(
    source: Server, schema: str, tmp_path: Path
) -> None:
    source.query(f"CREATE TABLE {schema}.others (id INT PRIMARY KEY, filler VARCHAR(10))")
    narrow = {"filter_regex": rf"{schema}\..*", "filter_black_regex": rf"{schema}\.others"}
    async with logging(source, schema, tmp_path) as server:
        for client in (CLIENT, 1002):
            await server.subscribe(NAME, client)
        await soon(lambda: server.status(NAME, CLIENT).position)
        begin = server.status(NAME, CLIENT).position
        source.query(f"INSERT INTO {schema}.others VALUES (1, '')")
        await logged(server, source, schema, 2)
        assert await take(server, 2) == [1, 2]
        end = server.status(NAME, CLIENT).position
    async with logging(source, schema, tmp_path, **narrow) as server:
        await soon(lambda: server.destination_status(NAME).state == "running")
        source.query(f"INSERT INTO {schema}.others VALUES (3, '')")
        await logged(server, source, schema, 4)
        batch = await server.get_without_ack(NAME, CLIENT, timeout=10)
        changes = decode_changes(b"".join(batch.slices))
        (marker,) = (it for it in changes if "sluice.shape" in it.header_props)
        key = "canal.instance.filter.black.regex"
        assert marker.sql == f"-- sluice.shape: {key} is '{schema}\\.others', was not set"
        pieces = [piece async for it in server.rows(NAME, CLIENT, begin, end) for piece in it.slices]
        assert [row.after["id"] for row in decode_rows(b"".join(pieces)) if row.after] == [1, 2], "from the log"
        await server.prune_log(NAME, 1)
    async with logging(source, schema, tmp_path, **narrow) as server:  # without what readers had in memory
        await soon(lambda: server.destination_status(NAME).state == "running")
        with pytest.raises(ReshapedError, match=rf"up to {re.escape(end)}.*{re.escape(key)} is '.*', was not set"):
            _ = [it async for it in server.rows(NAME, CLIENT, begin, end)]
        await server.seek(NAME, 1002, begin)
        with pytest.raises(ReshapedError):
            await take(server, 1, 1002)
        assert (server.status(NAME, 1002).state, server.status(NAME, 1002).problem) == ("gone", "reshaped")
    async with logging(source, schema, tmp_path) as server:
        assert await take(server, 3, 1002) == [1, 2, 4], "the source gives what the log has lost; the rest is unchanged"


@pytest.mark.parametrize("metadata", ["NO_LOG", "FULL"])
async def test_a_late_client_reads_from_the_log_what_tables_were_when_it_was_written(
    mariadb118: Server, database: Database, tmp_path: Path, metadata: str
) -> None:
    name = database(mariadb118)
    mariadb118.query(f"CREATE TABLE {name}.numbers (id INT PRIMARY KEY, filler VARCHAR(9))")
    opened = "12345678-1234-1234-8234-123456789abc"
    statements = [
        "CREATE TABLE one (id INT, u UUID, e ENUM('é', 'b') CHARACTER SET latin1)",
        f"INSERT INTO one VALUES (1, '{opened}', 'é')",
        "RENAME TABLE one TO two",
        "TRUNCATE TABLE two",
        "ALTER TABLE two MODIFY e ENUM('b', '中') CHARACTER SET utf8mb4, DROP u, ADD v INET6",
        "INSERT INTO two (id, v, e) VALUES (2, '::1', '中')",
        "CREATE TABLE one (e SET('x', 'y'), v BINARY(16))",
        "INSERT INTO one VALUES ('x,y', REPEAT('z', 16))",
        "DROP TABLE one, two",
    ]
    with mariadb118.variable("binlog_row_metadata", metadata):
        async with logging(mariadb118, name, tmp_path, store="file") as server:
            await server.subscribe(NAME, CLIENT)
            await soon(lambda: server.status(NAME, CLIENT).position)
            begin = server.status(NAME, CLIENT).position
            await asyncio.to_thread(execute, mariadb118, statements, database=name)
            await logged(server, mariadb118, name, 3)
            await purge(mariadb118)
        async with logging(mariadb118, name, tmp_path, store="file") as server:
            await server.subscribe(NAME, 1002, start=begin)
            rows: list[tuple[str, Any]] = []
            while len(rows) < 4:
                batch = await server.get_without_ack(NAME, 1002, timeout=10)
                await server.ack(NAME, 1002, batch_id=batch.batch_id)
                changes = [change for part in batch.slices for change in decode_changes(part)]
                assert not [it for it in changes if props.SCHEMA in it.header_props]
                rows += [(it.table, row.after) for it in changes for row in it.rows()]
    assert rows == [
        ("one", {"id": 1, "u": opened, "e": "é"}),
        ("two", {"id": 2, "v": "::1", "e": "中"}),
        ("one", {"e": frozenset("xy"), "v": b"z" * 16}),
        ("numbers", {"id": 3, "filler": "x"}),
    ]


async def test_a_block_describes_each_version_of_its_tables_once(source: Server, schema: str, tmp_path: Path) -> None:
    table = f"{schema}.orders"
    source.query(
        f"CREATE TABLE {table} (id INT UNSIGNED PRIMARY KEY, total DECIMAL(9,2) NOT NULL, size INT, note TEXT)"
    )
    settings = {
        "filter_regex": rf"{schema}\.orders",
        "filter_black_field": f"{table}:note",
        "filter_mask": f"{table}.total: null",
    }
    async with logging(source, schema, tmp_path, **settings) as server:
        await soon(lambda: server.destination_status(NAME).state == "running")
        source.query(f"INSERT INTO {table} (id, total) VALUES (1, 1), (2, 1)")
        source.query(f"INSERT INTO {table} (id, total) VALUES (3, 1)")
        source.query(f"ALTER TABLE {table} ADD state VARCHAR(9) CHARACTER SET latin1 NOT NULL DEFAULT ''")
        source.query(f"INSERT INTO {table} (id, total) VALUES (4, 1)")
        end = await server.instances[NAME].source_end()
        await soon(lambda: extent(server).stretches[-1][1] >= end)
    (path,) = (tmp_path / NAME / "log").glob("*.log")
    described = list[str]()
    with path.open("rb") as file:
        _, offset = read_head(file.fileno(), path)
        while (block := read_block(file.fileno(), offset, path)) is not None:
            found = [it[3] for it in words_of(block, path).tables if len(it) == 4]
            assert len(found) == len(set(found))
            described += found
            offset = block.end
    first, second = map(json.loads, dict.fromkeys(described))
    assert [it[0] for it in first] == ["id", "total", "size"]
    assert [it[2:] for it in first] == [[False, True], [True, False], [True, False]], "a mask leaves NULL"
    assert first[1][1] == "decimal(9,2)"
    assert second == [*first, ["state", "varchar(9)", False, False]]
