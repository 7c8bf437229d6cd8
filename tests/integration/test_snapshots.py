"""Tables themselves, given between their changes: the client's copy becomes the table, and no row goes back in time."""

import asyncio
import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sluice.instance.source import ReadableTable
from sluice.instance.sources.mysql.snapshot import TableReader
from sluice.protocol.canal.entry_pb2 import Entry, RowChange
from sluice.protocol.canal.packet_pb2 import Messages
from sluice.protocol.canal.rows import Row, decode_changes
from sluice.protocol.errors import BadParameterError, SnapshotRunningError, UnknownBatchError, UnknownSnapshotError
from sluice.server.embedded import EmbeddedServer
from sluice.store.batch import Batch
from sluice.store.snapshot import Chunk, ChunkStatus, Selection, Snapshot, Wish
from tests.conftest import Database
from tests.proxy import Proxy
from tests.reading import config, embedded
from tests.servers import Server
from tests.waiting import soon

NAME = "example"
CLIENT = 1001
ROWS = 3000


def serving(source: Server, schema: str, folder: Path, **settings: Any) -> AbstractAsyncContextManager[EmbeddedServer]:
    return embedded(config(source, folder, filter_regex=rf"{schema}\..*", file_flush_period=20, **settings))


@asynccontextmanager
async def subscribed(source: Server, schema: str, folder: Path, **settings: Any) -> AsyncIterator[EmbeddedServer]:
    """Serve; the client is there, and gets what is written from now on."""
    async with serving(source, schema, folder, **settings) as server:
        await server.subscribe(NAME, CLIENT, start="latest")
        yield server


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a small table have many chunks, whose windows are long enough for changes."""
    read = TableReader.read

    def slow(reader: TableReader, wish: Wish) -> Chunk:
        chunk = read(reader, wish)
        time.sleep(0.05)
        return chunk

    monkeypatch.setattr(TableReader, "read", slow)
    monkeypatch.setattr("sluice.instance.sources.mysql.snapshot.CHUNK", 64 << 10)
    monkeypatch.setattr("sluice.instance.sources.mysql.snapshot.PIECE", 16 << 10)


@pytest.fixture(
    params=["mysql97", *(pytest.param(name, marks=pytest.mark.extended) for name in ("mariadb118", "mysql56"))]
)
def source(request: pytest.FixtureRequest) -> Server:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Server)
    return found


def fill(source: Server, schema: str, rows: int = ROWS, table: str = "items", engine: str = "InnoDB") -> None:
    """Make a table whose rows count how often they were written."""
    columns = "id INT PRIMARY KEY, version BIGINT NOT NULL, filler VARCHAR(200)"
    source.query(f"CREATE TABLE {schema}.{table} ({columns}) ENGINE = {engine}")
    values = [(number, 0, "x" * 50) for number in range(2, 2 * rows, 2)]
    with source.connect(autocommit=True) as connection, connection.cursor() as cursor:
        cursor.executemany(f"INSERT INTO {schema}.{table} VALUES (%s, %s, %s)", values)


class Copy:
    """What a client has, made by get and ack alone; it fails if a row is older than one that it was given before."""

    def __init__(self, server: EmbeddedServer, client: int = CLIENT, name: str = NAME) -> None:
        self.server, self.client, self.name = server, client, name
        self.tables: dict[str, dict[Any, Row]] = {}
        self.newest: dict[Any, int] = {}
        self.read = 0

    def apply(self, batch: Batch) -> None:
        for change in decode_changes(b"".join(batch.slices)):
            assert ("sluice.snapshot" in change.header_props) == bool(batch.snapshot)
            for row in change.rows():
                table = self.tables.setdefault(row.table, {})
                if row.before is not None:
                    table.pop(tuple(row.key.values()), None)
                if row.after is not None:
                    key = tuple(row.after[name] for name in row.key)
                    table[key] = row
                    if "version" in row.after:
                        assert row.after["version"] >= self.newest.get((row.table, key), -1), "an older row"
                        self.newest[row.table, key] = row.after["version"]
            if batch.snapshot:
                self.read += batch.rows
                assert batch.from_ == batch.to

    async def take(self, **options: Any) -> Batch:
        batch = await self.server.get_without_ack(self.name, self.client, timeout=1, **options)
        self.apply(batch)
        return batch

    async def step(self) -> None:
        batch = await self.take()
        if batch.batch_id > 0:
            await self.server.ack(self.name, self.client, batch_id=batch.batch_id)

    async def until(self, condition: Callable[[], bool], seconds: float = 60) -> None:
        async with asyncio.timeout(seconds):
            while not condition():
                await self.step()

    async def drain(self) -> None:
        """Take all that is there."""
        while (batch := await self.take()).batch_id > 0:
            await self.server.ack(self.name, self.client, batch_id=batch.batch_id)

    def rows(self, table: str = "items") -> list[tuple[Any, ...]]:
        found = self.tables.get(table, {})
        return [tuple((found[key].after or {}).values()) for key in sorted(found)]


@contextmanager
def written(source: Server, schema: str, seed: int = 1) -> Iterator[None]:
    """Change the table all the while: insert, update, delete, change keys and use them again."""
    stopping = threading.Event()
    chance = random.Random(seed)

    def write() -> None:
        version = 0
        with source.connect(autocommit=True) as connection, connection.cursor() as cursor:
            while not stopping.wait(0.002):
                version += 1
                key, other = chance.randrange(1, 2 * ROWS), chance.randrange(1, 2 * ROWS)
                match chance.randrange(5):
                    case 0:
                        cursor.execute(f"REPLACE INTO {schema}.items VALUES (%s, %s, 'new')", (key, version))
                    case 1:
                        cursor.execute(f"DELETE FROM {schema}.items WHERE id = %s", (key,))
                    case 2:
                        cursor.execute(
                            f"UPDATE IGNORE {schema}.items SET id = %s, version = %s WHERE id = %s",
                            (other, version, key),
                        )
                    case _:
                        cursor.execute(
                            f"UPDATE {schema}.items SET version = %s WHERE id BETWEEN %s AND %s",
                            (version, key, key + chance.choice((0, 3, 50))),
                        )

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        stopping.set()
        writer.join()


def state_of(server: EmbeddedServer, snapshot: Snapshot) -> Snapshot:
    return server.snapshot(NAME, CLIENT, snapshot.snapshot_id)


async def started(server: EmbeddedServer, schema: str, tables: str = "items", **options: Any) -> Snapshot:
    return await server.start_snapshot(NAME, CLIENT, Selection(rf"{schema}\.{tables}", **options))


async def complete(copy: Copy) -> None:
    await copy.until(lambda: copy.server.snapshots(NAME, copy.client)[0].is_done)


@pytest.mark.parametrize("engine", ["InnoDB", "MyISAM"])
async def test_the_copy_of_a_client_becomes_the_table_while_that_changes(
    source: Server, database: Database, tmp_path: Path, engine: str
) -> None:
    schema = database(source)
    fill(source, schema, engine=engine)
    async with subscribed(source, schema, tmp_path) as server:
        copy = Copy(server)
        with written(source, schema):
            snapshot = await started(server, schema)
            await copy.until(lambda: state_of(server, snapshot).is_done)
        await copy.drain()
        assert copy.rows() == source.query(f"SELECT * FROM {schema}.items ORDER BY id")
        assert copy.read > ROWS / 2


async def test_a_new_client_begins_with_the_tables_that_its_filter_chooses(
    source: Server, database: Database, tmp_path: Path
) -> None:
    schema = database(source)
    fill(source, schema)
    source.query(f"CREATE TABLE {schema}.other (id INT PRIMARY KEY)")
    source.query(f"INSERT INTO {schema}.other VALUES (1)")
    async with serving(source, schema, tmp_path) as server:
        copy = Copy(server)
        with written(source, schema):
            wanted = rf"{schema}\.items"
            await server.subscribe(NAME, CLIENT, filter=wanted, start=Selection())
            await copy.until(lambda: server.snapshots(NAME, CLIENT)[0].rows > ROWS / 4)
            await server.subscribe(NAME, CLIENT, filter=wanted, start=Selection())  # its consumer was started again
            [snapshot] = server.snapshots(NAME, CLIENT)
            await copy.until(lambda: snapshot.is_done)
            await server.subscribe(NAME, CLIENT, filter=wanted, start=Selection())
        await copy.drain()
        assert server.snapshots(NAME, CLIENT) == [snapshot]
        assert copy.rows() == source.query(f"SELECT * FROM {schema}.items ORDER BY id")
        assert list(copy.tables) == ["items"]


async def test_a_client_that_cannot_begin_with_tables_does_not_subscribe(
    mysql97: Server, database: Database, tmp_path: Path
) -> None:
    schema = database(mysql97)
    fill(mysql97, schema, 10)
    async with serving(mysql97, schema, tmp_path) as server:
        for wrong, message in (
            (Selection(rf"{schema}\.missing"), "gets no table"),
            (Selection(where={f"{schema}.items": "sleep(1)"}), "the condition of"),
        ):
            with pytest.raises(BadParameterError, match=message):
                await server.subscribe(NAME, CLIENT, start=wrong)
            assert not server.destination_status(NAME).clients
        await server.subscribe(NAME, CLIENT)
        with pytest.raises(BadParameterError, match="has subscribed before, without a snapshot"):
            await server.subscribe(NAME, CLIENT, start=Selection())
    async with serving(mysql97, schema, tmp_path, shared_filter=True) as server:
        with pytest.raises(BadParameterError, match="sharedFilter"):
            await server.subscribe(NAME, CLIENT + 1, filter=rf"{schema}\.items", start=Selection())


@pytest.mark.extended
@pytest.mark.parametrize("name", ["mysql97"])
async def test_what_was_given_and_not_acked_is_read_again_after_rollbacks_and_restarts(
    request: pytest.FixtureRequest, database: Database, tmp_path: Path, name: str
) -> None:
    source: Server = request.getfixturevalue(name)
    schema = database(source)
    fill(source, schema)
    chance = random.Random(5)
    tables: dict[str, dict[Any, Row]] = {}
    with written(source, schema):
        for life in range(3):
            async with subscribed(source, schema, tmp_path) as server:
                copy = Copy(server)
                copy.tables = tables
                snapshot = (await started(server, schema)) if not life else server.snapshots(NAME, CLIENT)[0]
                done = snapshot.rows
                while snapshot.rows < done + ROWS / 5:
                    copy.newest.clear()  # changes that are not acked come again
                    batches = [await copy.take()]
                    while not batches[-1].snapshot:
                        batches.append(await copy.take())
                    batches += [await copy.take() for _ in range(chance.randrange(3))]
                    given = [batch.batch_id for batch in batches if batch.batch_id > 0]
                    for batch_id in given[: chance.randrange(len(given) + 1)]:
                        await server.ack(NAME, CLIENT, batch_id=batch_id)
                    await server.rollback(NAME, CLIENT)
                    if given:
                        with pytest.raises(UnknownBatchError):
                            await server.ack(NAME, CLIENT, batch_id=given[-1])
    async with serving(source, schema, tmp_path) as server:
        copy = Copy(server)
        copy.tables = tables
        await copy.until(lambda: server.snapshots(NAME, CLIENT)[0].is_done)
        await copy.drain()
    assert copy.rows() == source.query(f"SELECT * FROM {schema}.items ORDER BY id")


@pytest.mark.extended
async def test_a_snapshot_is_paused_over_a_restart_and_cancelled(
    mysql97: Server, database: Database, tmp_path: Path
) -> None:
    schema = database(mysql97)
    fill(mysql97, schema)
    async with subscribed(mysql97, schema, tmp_path) as server:
        copy = Copy(server)
        snapshot = await started(server, schema)
        await copy.until(lambda: state_of(server, snapshot).rows > 0)
        await server.pause_snapshot(NAME, CLIENT, snapshot.snapshot_id, is_paused=True)
        await copy.drain()
        rows = state_of(server, snapshot).rows
        assert 0 < rows < ROWS - 1
        with pytest.raises(SnapshotRunningError):
            await server.position(NAME, CLIENT, after=server.status(NAME, CLIENT).position)
    async with serving(mysql97, schema, tmp_path) as server:
        [found] = server.snapshots(NAME, CLIENT)
        assert (found.snapshot_id, found.is_paused, found.rows) == (snapshot.snapshot_id, True, rows)
        copy = Copy(server)
        assert (await copy.take()).batch_id == -1
        await server.pause_snapshot(NAME, CLIENT, snapshot.snapshot_id, is_paused=False)
        await copy.until(lambda: state_of(server, snapshot).rows > rows)
        last = await copy.take()
        await server.cancel_snapshot(NAME, CLIENT, snapshot.snapshot_id)
        await server.ack(NAME, CLIENT, batch_id=last.batch_id)
        assert server.snapshots(NAME, CLIENT) == []
        await copy.drain()
        assert len(copy.rows()) < ROWS - rows
        with pytest.raises(UnknownSnapshotError):
            await server.cancel_snapshot(NAME, CLIENT, snapshot.snapshot_id)
        assert not (await server.position(NAME, CLIENT, after=server.status(NAME, CLIENT).acked)).range.entries


@pytest.mark.extended
@pytest.mark.parametrize("what", ["cancelled", "paused"])
async def test_no_rows_come_of_a_snapshot_that_was_cancelled_or_paused_while_its_table_was_looked_at(
    mysql97: Server, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    schema = database(mysql97)
    fill(mysql97, schema, 10)
    describe, begun, calls = TableReader.describe, threading.Event(), itertools.count()
    may_end = threading.Event()

    def slow(reader: TableReader, schema: str, table: str, where: str, member: str = "") -> Sequence[ReadableTable]:
        found = describe(reader, schema, table, where, member)
        if next(calls):  # the first is for the call that begins the snapshot
            begun.set()
            assert may_end.wait(10)
        return found

    monkeypatch.setattr(TableReader, "describe", slow)
    async with subscribed(mysql97, schema, tmp_path) as server:
        snapshot = await started(server, schema)
        assert await asyncio.to_thread(begun.wait, 10)
        if what == "cancelled":
            await server.cancel_snapshot(NAME, CLIENT, snapshot.snapshot_id)
        else:
            await server.pause_snapshot(NAME, CLIENT, snapshot.snapshot_id, is_paused=True)
        may_end.set()
        copy = Copy(server)
        for _ in range(2):
            await copy.step()
        assert copy.read == 0
        if what == "paused":
            await server.pause_snapshot(NAME, CLIENT, snapshot.snapshot_id, is_paused=False)
            await complete(copy)
            assert copy.read == 9


async def test_rows_come_though_the_source_has_begun_another_file_and_writes_nothing(
    source: Server, database: Database, tmp_path: Path
) -> None:
    schema = database(source)
    fill(source, schema, rows=5)
    async with subscribed(source, schema, tmp_path) as server:
        source.query("FLUSH LOGS")
        await started(server, schema)
        copy = Copy(server)
        await complete(copy)
        assert (copy.read, len(copy.rows())) == (4, 4)


@pytest.mark.extended
async def test_a_condition_chooses_rows_and_a_limit_slows_the_reading(
    source: Server, database: Database, tmp_path: Path
) -> None:
    schema = database(source)
    fill(source, schema)
    async with subscribed(source, schema, tmp_path) as server:
        copy = Copy(server)
        begun = asyncio.get_running_loop().time()
        where = {f"{schema}.items": "id BETWEEN 101 AND 2000 AND NOT (filler = 'y' OR version <> 0)"}
        snapshot = await started(server, schema, where=where, rate=300)
        await copy.until(lambda: state_of(server, snapshot).is_done)
        assert [row[0] for row in copy.rows()] == list(range(102, 2001, 2))
        assert asyncio.get_running_loop().time() - begun > 1
        for wrong in (
            "id IN (SELECT 1)",
            "sleep(9)",
            "id = 1; DROP TABLE items",
            "other = 1",
            "(id = 1",
        ):
            with pytest.raises(BadParameterError):
                await started(server, schema, where={f"{schema}.items": wrong})


async def test_the_rows_that_are_read_or_wait_for_the_client_are_shown(
    mysql97: Server, database: Database, tmp_path: Path
) -> None:
    schema = database(mysql97)
    fill(mysql97, schema)
    async with subscribed(mysql97, schema, tmp_path) as server:
        snapshot = await started(server, schema, rate=100)
        await soon(lambda: snapshot.chunk is not None and snapshot.chunk.to == ("400",))
        chunk = snapshot.chunk
        assert chunk is not None
        assert replace(chunk, bytes=0) == ChunkStatus(f"{schema}.items", ("200",), ("400",), 100)
        assert chunk.bytes > 100 * 50
        await server.pause_snapshot(NAME, CLIENT, snapshot.snapshot_id, is_paused=True)
        assert snapshot.chunk is None


async def test_rows_that_wait_when_their_table_is_altered_are_read_again(
    source: Server, database: Database, tmp_path: Path
) -> None:
    schema = database(source)
    fill(source, schema)
    async with subscribed(source, schema, tmp_path) as server:
        copy = Copy(server)
        snapshot = await started(server, schema)
        await copy.until(lambda: state_of(server, snapshot).rows > 0)
        source.query(f"ALTER TABLE {schema}.items ADD COLUMN more INT NOT NULL DEFAULT 7")
        await copy.until(lambda: state_of(server, snapshot).is_done)
        altered = [row for row in copy.rows() if len(row) == 4]
        assert len(altered) > ROWS / 2
        assert {row[3] for row in altered} == {7}
        assert len(copy.rows()) == ROWS - 1


async def test_several_tables_and_empty_ones_are_read_by_several_clients_at_once(
    source: Server, database: Database, tmp_path: Path
) -> None:
    schema = database(source)
    fill(source, schema, 1000, "one")
    fill(source, schema, 700, "two")
    source.query(f"CREATE TABLE {schema}.nothing (id INT PRIMARY KEY)")
    source.query(f"CREATE TABLE {schema}.last (a VARCHAR(10), b INT, PRIMARY KEY (b, a))")
    source.query(f"INSERT INTO {schema}.last VALUES ('x', 1), ('X ', 2)")
    async with serving(source, schema, tmp_path) as server:
        copies = [Copy(server, client) for client in (1, 2, 3)]
        for copy in copies:
            await server.subscribe(NAME, copy.client, start="latest")
            await server.start_snapshot(NAME, copy.client, Selection())
        await asyncio.gather(*(complete(copy) for copy in copies[:2]))
        for copy in copies[:2]:
            assert copy.rows("one") == source.query(f"SELECT * FROM {schema}.one ORDER BY id")
            assert copy.rows("two") == source.query(f"SELECT * FROM {schema}.two ORDER BY id")
            assert copy.read == 999 + 699 + 2
        assert not server.snapshots(NAME, 3)[0].rows


async def test_a_table_whose_changes_are_filtered_by_content_is_refused(
    mysql97: Server, database: Database, tmp_path: Path
) -> None:
    schema = database(mysql97)
    fill(mysql97, schema, 10)
    async with serving(mysql97, schema, tmp_path, filter_where=f"{schema}.items: version = 0") as server:
        await server.subscribe(NAME, CLIENT)
        with pytest.raises(BadParameterError, match="keeps changes of"):
            await started(server, schema)


VALUES = {
    "name": ("VARCHAR(40) CHARACTER SET utf8mb4", "'Zoë 漢😀'"),
    "narrow": ("VARCHAR(40) CHARACTER SET latin1", "'Müller'"),
    "blank": ("TEXT CHARACTER SET utf8mb4", "''"),
    "age": ("INT UNSIGNED", "4294967295"),
    "balance": ("BIGINT UNSIGNED", "18446744073709551615"),
    "small": ("TINYINT", "-7"),
    "price": ("DECIMAL(9,2)", "-12.50"),
    "part": ("FLOAT", "0.1"),
    "whole": ("DOUBLE", "1e100"),
    "born": ("DATE", "'1999-12-31'"),
    "seen": ("DATETIME(3)", "'2026-11-24 10:00:00.125'"),
    "made": ("TIMESTAMP NULL", "'2026-11-24 10:00:00'"),
    "raw": ("BLOB", "X'00ff41'"),
    "fixed": ("VARBINARY(9)", "X'fe'"),
    "kind": ("ENUM('a', 'b')", "'b'"),
    "flags": ("SET('a', 'b')", "'a,b'"),
    "bits": ("BIT(9)", "b'101'"),
    "nothing": ("VARCHAR(9)", "NULL"),
}


@pytest.mark.parametrize("mask", ["sha256", "hmac", "first 2", "null"])
async def test_a_snapshot_gives_masked_columns_as_changes_do(
    source: Server, database: Database, tmp_path: Path, mask: str
) -> None:
    schema = database(source)
    settings: dict[str, Any] = {
        "filter_mask": "; ".join(f"{schema}.items.{name}: {mask}" for name in VALUES),
        "time_zone": "Asia/Shanghai",
    }
    if mask == "hmac":
        settings["mask_secret"] = "a secret of more than sixteen characters"
    columns = ", ".join(f"{name} {kind}" for name, (kind, _) in VALUES.items())
    source.query(f"CREATE TABLE {schema}.items (id INT PRIMARY KEY, {columns}, plain VARCHAR(9))")
    async with subscribed(source, schema, tmp_path, **settings) as server:
        values = ", ".join(value for _, value in VALUES.values())
        source.query(f"INSERT INTO {schema}.items VALUES (1, {values}, 'as it is')")
        found = []
        for _ in range(2):
            while not (batch := await server.get_without_ack(NAME, CLIENT, timeout=10)).rows:
                await server.ack(NAME, CLIENT, batch_id=batch.batch_id)
            found += [
                list(row.afterColumns)
                for framed in Messages.FromString(b"".join(batch.slices)).messages
                for row in RowChange.FromString(Entry.FromString(framed).storeValue).rowDatas
            ]
            await server.ack(NAME, CLIENT, batch_id=batch.batch_id)
            if len(found) == 1:
                await started(server, schema)
        change, row = found
        assert change == row
        masked = [it for it in row if it.name in VALUES and it.name != "nothing"]
        assert {it.isNull for it in masked} == {mask == "null"}
        assert {it.isNull for it in row if it not in masked} == {False, True}
        assert row[-1].value == "as it is"


async def test_a_condition_shows_nothing_of_what_is_masked_or_left_out(
    source: Server, database: Database, tmp_path: Path
) -> None:
    schema = database(source)
    source.query(f"CREATE TABLE {schema}.items (id INT PRIMARY KEY, email VARCHAR(99), secret INT)")
    settings: dict[str, Any] = {
        "filter_mask": f"{schema}.items.email: sha256",
        "filter_black_field": f"{schema}.items:secret",
    }
    async with subscribed(source, schema, tmp_path, **settings) as server:
        for condition in ("email LIKE 'a%'", "id = 1 OR secret > 5", "EMAIL IS NULL"):
            with pytest.raises(BadParameterError, match="is masked or not delivered"):
                await started(server, schema, where={f"{schema}.items": condition})


async def test_a_table_with_a_masked_key_is_refused(source: Server, database: Database, tmp_path: Path) -> None:
    """Changes could not take the place of rows."""
    schema = database(source)
    source.query(f"CREATE TABLE {schema}.items (email VARCHAR(99) NOT NULL, UNIQUE (email))")
    settings: dict[str, Any] = {"filter_mask": f"{schema}.items.email: first 3"}
    async with subscribed(source, schema, tmp_path, **settings) as server:
        with pytest.raises(BadParameterError, match=f"{schema}.items.email has a mask, and is part of the key"):
            await started(server, schema)


async def test_a_table_that_is_not_there_is_refused(mysql97: Server, database: Database, tmp_path: Path) -> None:
    schema = database(mysql97)
    async with serving(mysql97, schema, tmp_path) as server:
        await server.subscribe(NAME, CLIENT)
        with pytest.raises(BadParameterError, match="gets no table"):
            await started(server, schema, "missing")


# --- tables without a key --------------------------------------------------------------------------------------------


class Bag:
    """How often a client has each row of `keyless`; if it is to have all, it fails if one goes that was not there."""

    def __init__(self, server: EmbeddedServer, *, has_all: bool = True) -> None:
        self.server, self.has_all = server, has_all
        self.others = 0
        self.rows: Counter[tuple[Any, ...]] = Counter()
        self.emptied = 0

    def apply(self, batch: Batch) -> None:
        for change in decode_changes(b"".join(batch.slices)):
            if change.type == "TRUNCATE":
                self.rows.clear()
                self.emptied += 1
            for row in change.rows():
                self.others += row.table != "keyless"
                for image, sign in ((row.before, -1), (row.after, 1)):
                    if image is not None and row.table == "keyless":
                        self.rows[tuple(image.values())] += sign
        if self.emptied and self.has_all:
            assert min(self.rows.values(), default=0) >= 0, "a row goes that was not there"

    async def step(self) -> None:
        batch = await self.server.get_without_ack(NAME, CLIENT, timeout=1)
        self.apply(batch)
        if batch.batch_id > 0:
            await self.server.ack(NAME, CLIENT, batch_id=batch.batch_id)

    async def until(self, condition: Callable[[], object], seconds: float = 20) -> None:
        async with asyncio.timeout(seconds):
            while not condition():
                await self.step()

    def is_like(self, source: Server, table: str) -> bool:
        return +self.rows == Counter(source.query(f"SELECT * FROM {table}"))


@contextmanager
def written_without_key(source: Server, table: str) -> Iterator[None]:
    """Insert, change and remove rows, many of them alike, and rows of another table."""
    stopping = threading.Event()
    chance = random.Random(3)

    def write() -> None:
        with source.connect(autocommit=True) as connection, connection.cursor() as cursor:
            while not stopping.wait(0.001):
                a, b = chance.randrange(40), chance.randrange(40)
                cursor.execute(f"INSERT INTO {table} VALUES (%s, 'new'), (%s, NULL)", (a, b))
                cursor.execute(f"UPDATE {table} SET a = %s WHERE a = %s LIMIT 2", (a, b))
                cursor.execute(f"DELETE FROM {table} WHERE a = %s LIMIT 3", (chance.randrange(40),))
                cursor.execute(f"INSERT INTO {table}_other VALUES (1)")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        stopping.set()
        writer.join()


def fill_without_key(source: Server, schema: str, engine: str = "InnoDB") -> str:
    table = f"{schema}.keyless"
    source.query(f"CREATE TABLE {table} (a INT, b VARCHAR(20)) ENGINE = {engine}")
    source.query(f"CREATE TABLE {table}_other (a INT)")
    values = [(number % 40, "x" * (number % 20)) for number in range(4000)]
    with source.connect(autocommit=True) as connection, connection.cursor() as cursor:
        cursor.executemany(f"INSERT INTO {table} VALUES (%s, %s)", values)
    return table


@pytest.fixture(params=["mariadb118", "mysql97", pytest.param("mysql56", marks=pytest.mark.extended)])
def any_source(request: pytest.FixtureRequest) -> Server:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Server)
    return found


@pytest.mark.parametrize("engine", ["InnoDB", "MyISAM"])
async def test_a_table_without_a_key_is_given_as_it_was_at_the_place_of_its_rows(
    any_source: Server, database: Database, tmp_path: Path, engine: str
) -> None:
    schema = database(any_source)
    table = fill_without_key(any_source, schema, engine)
    async with subscribed(any_source, schema, tmp_path) as server:
        bag = Bag(server)
        with written_without_key(any_source, table):
            for number in range(1, 5):
                await started(server, schema, "keyless")
                await bag.until(lambda: server.snapshots(NAME, CLIENT)[0].is_done)
                assert bag.emptied == number
        await bag.until(lambda: bag.is_like(any_source, table))


@pytest.mark.extended
async def test_a_transaction_that_changes_a_table_without_a_key_is_waited_for_on_mysql_only(
    any_source: Server, database: Database, tmp_path: Path
) -> None:
    schema = database(any_source)
    table = fill_without_key(any_source, schema)
    async with subscribed(any_source, schema, tmp_path) as server:
        bag = Bag(server)
        with any_source.connect(autocommit=False) as connection, connection.cursor() as cursor:
            cursor.execute(f"INSERT INTO {table} VALUES (77, 'late')")
            snapshot = await started(server, schema, "keyless")
            is_mariadb = "MariaDB" in any_source.query("SELECT VERSION()")[0][0]
            if is_mariadb:
                await bag.until(lambda: snapshot.is_done)
                assert bag.rows[77, "late"] == 0
            else:
                await bag.until(lambda: "a transaction has held it for 3 s" in snapshot.error)
                any_source.query(f"INSERT INTO {table}_other VALUES (2)")
                await bag.until(lambda: bag.others == 1)  # the client does not wait for it
            connection.commit()
        await bag.until(lambda: snapshot.is_done and bag.is_like(any_source, table))
        assert bag.rows[77, "late"] == 1


async def test_a_table_without_a_key_that_is_too_large_is_refused_or_pauses_the_snapshot(
    mysql97: Server, database: Database, tmp_path: Path
) -> None:
    schema = database(mysql97)
    table = fill_without_key(mysql97, schema)
    mysql97.query(f"ANALYZE TABLE {table}")
    async with subscribed(mysql97, schema, tmp_path, snapshot_whole_bytes=20_000) as server:
        with pytest.raises(
            BadParameterError, match=r"maxBytes \(20000\) allows to read as a whole\. Give it a key, or"
        ):
            await started(server, schema, "keyless")
        bag = Bag(server, has_all=False)
        few = await started(server, schema, "keyless", where={table: "a = 7"})
        await bag.until(lambda: few.is_done)
        assert sum(bag.rows.values()) == 100
        many = await started(server, schema, "keyless", where={table: "a <> 7"})
        await bag.until(lambda: many.is_paused)
        assert many.error.endswith("Give it a key, or raise that limit. Then resume it")
        mysql97.query(f"DELETE FROM {table} WHERE a > 0")
        await server.pause_snapshot(NAME, CLIENT, many.snapshot_id, is_paused=False)
        await bag.until(lambda: many.is_done)
        assert {row[0] for row, count in bag.rows.items() if count} == {0}


async def test_an_account_that_may_not_lock_a_table_is_told_what_to_grant(
    mysql97: Server, database: Database, tmp_path: Path
) -> None:
    schema = database(mysql97)
    table = fill_without_key(mysql97, schema)
    account = {"db_username": f"r_{schema}"[:30], "db_password": "reads"}
    mysql97.query(f"CREATE USER {account['db_username']} IDENTIFIED BY 'reads'")
    mysql97.query(f"GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {account['db_username']}")
    try:
        async with subscribed(mysql97, schema, tmp_path, **account) as server:
            bag = Bag(server)
            snapshot = await started(server, schema, "keyless")
            await bag.until(lambda: f"GRANT LOCK TABLES ON `{schema}`.* TO it" in snapshot.error)
            mysql97.query(f"GRANT LOCK TABLES ON {schema}.* TO {account['db_username']}")
            await bag.until(lambda: snapshot.is_done)
            assert bag.is_like(mysql97, table)
    finally:
        mysql97.query(f"DROP USER {account['db_username']}")


async def test_no_rows_are_read_of_another_server_than_the_one_whose_binlog_is_read(
    mariadb118: Server, mysql97: Server, database: Database, tmp_path: Path
) -> None:
    schema = database(mariadb118)
    fill(mariadb118, schema, 200)
    mysql97.query(f"CREATE DATABASE {schema}")
    try:
        fill(mysql97, schema, 100)
        with Proxy((mariadb118.host, mariadb118.port)) as proxy:
            async with subscribed(mariadb118, schema, tmp_path, master_address=f"{proxy.host}:{proxy.port}") as server:
                await soon(lambda: server.destination_status(NAME).state == "running")
                snapshot = await started(server, schema, rate=100)
                await server.pause_snapshot(NAME, CLIENT, snapshot.snapshot_id, is_paused=True)
                proxy.target = (mysql97.host, mysql97.port)
                await server.pause_snapshot(NAME, CLIENT, snapshot.snapshot_id, is_paused=False)
                await soon(lambda: "but the binlog is read from" in state_of(server, snapshot).error)
                assert server.destination_status(NAME).state == "running"
                proxy.target = (mariadb118.host, mariadb118.port)
                copy = Copy(server)
                await copy.until(lambda: state_of(server, snapshot).is_done)
                assert copy.rows() == mariadb118.query(f"SELECT * FROM {schema}.items ORDER BY id")
                assert not state_of(server, snapshot).error
    finally:
        mysql97.query(f"DROP DATABASE {schema}")


def test_a_consistent_read_is_one_whatever_isolation_the_source_is_set_to(
    mariadb118: Server, database: Database, tmp_path: Path
) -> None:
    schema = database(mariadb118)
    table = fill_without_key(mariadb118, schema)
    mariadb118.query("SET GLOBAL tx_isolation = 'READ-COMMITTED'")
    reader = TableReader(config(mariadb118, tmp_path), list)
    try:
        wish = Wish(1, 0, schema, "keyless", "", None, None, 0)
        reader.begin(wish)
        mariadb118.query(f"DELETE FROM {table}")
        assert sum(len(piece.block) for piece in reader.read(wish).pieces) == 4000
    finally:
        reader.close()
        mariadb118.query("SET GLOBAL tx_isolation = 'REPEATABLE-READ'")
