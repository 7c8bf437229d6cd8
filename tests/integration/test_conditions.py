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
from sluice.protocol.errors import BadParameterError, FilterError
from sluice.server.embedded import EmbeddedServer
from sluice.store.admission import MAX_CONDITIONS
from sluice.store.snapshot import Selection
from tests.conftest import Database
from tests.delivery import deliver, execute, rows_of
from tests.reading import config, embedded, with_full_metadata
from tests.servers import Server
from tests.waiting import soon

NAME, CLIENT = "example", 1001
STORES: dict[str, dict[str, Any]] = {"memory": {}, "mixed": {"store": "mixed", "store_min_free": 0}}


@pytest.fixture(params=["mysql97", pytest.param("mariadb118", marks=pytest.mark.extended)])
def source(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server that writes collations into its binlog."""
    yield from with_full_metadata(request.getfixturevalue(request.param))


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
    await soon(lambda: server.status(NAME, client).position)
    return server.status(NAME, client).position


async def read(server: EmbeddedServer, from_: str, to: str) -> bytes:
    return b"".join([bytes(part) async for batch in server.rows(NAME, CLIENT, from_, to) for part in batch.slices])


async def take(server: EmbeddedServer, count: int, client: int = CLIENT, **limits: Any) -> bytes:
    """Take and confirm batches until there are `count` rows."""
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
    return [int((row.after or row.before or {}).get("id", 0)) for row in decode_rows(data)]


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
        source.query(f"INSERT INTO {schema}.numbers VALUES (1000, 3, 'xx00')")  # the range ends where the stream does
        expected = [*(i for i in range(21, 100) if i * 7 % 10 in {3, 5}), 1000]
        until = start
        while len(ids(await read(server, start, until))) < len(expected):
            until = (await server.position(NAME, CLIENT, after=until, timeout=10)).range.to
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
        await soon(lambda: server.destination_status(NAME).entries == 0)
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
        while server.status(NAME, 1002).state != "attached":  # its calls ask for the reader that brings it there
            batch = await server.get_without_ack(NAME, 1002, timeout=0.1)
            assert not batch.rows
            if batch.entries:
                await server.ack(NAME, 1002, batch_id=batch.batch_id)
        fill(source, schema, 1001, 1020)
        assert ids(await take(server, 2, 1002)) == ids(await take(server, 2)) == [1002, 1012]


async def test_the_condition_survives_a_restart(source: Server, schema: str, tmp_path: Path) -> None:
    async with serving(source, schema, tmp_path) as server:
        await subscribed(server, f"{schema}.numbers: v = 4")
    fill(source, schema, 1, 40)
    async with serving(source, schema, tmp_path) as server:
        assert server.status(NAME, CLIENT).where == f"{schema}.numbers: v = 4"
        assert ids(await take(server, 4)) == [2, 12, 22, 32]


@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        ("v = 'x'", r"numbers.v: 'x' is a text, but the column has numbers"),
        ("filler = 5", "numbers.filler: a number beside texts"),
        ("filler COLLATE utf8mb4_x_ci = 'a'", "numbers.filler: texts of the collation utf8mb4_x_ci cannot be compared"),
        ("other = 'a'", "numbers.other: texts of the collation utf8mb4_unicode_ci cannot be compared here"),
        ("gone = 1", "numbers.gone: the table has no such column that is delivered"),
        ("hidden = 1", "numbers.hidden: the table has no such column that is delivered"),
        ("v = 1; unknown.numbers: v = 1", "unknown.numbers: the destination does not deliver this table"),
        ("v =", "numbers: 'v =' is not a condition of SQL"),
        ("v = 1 OR " * 600 + "v = 2", "the conditions have .* characters, more than 4096"),
        (
            f"filler LIKE '%{'a' * 200}' OR filler LIKE '{'b' * 60}'",
            "of LIKE have 261 characters in all, more than 256",
        ),
    ],
)
async def test_what_cannot_be_judged_is_refused_when_a_client_subscribes(
    source: Server, schema: str, tmp_path: Path, condition: str, reason: str
) -> None:
    source.query(f"ALTER TABLE {schema}.numbers ADD other VARCHAR(9) COLLATE utf8mb4_unicode_ci, ADD hidden INT")
    async with serving(source, schema, tmp_path, filter_black_field=f"{schema}.numbers:hidden") as server:
        with pytest.raises(FilterError, match=reason):
            await server.subscribe(NAME, CLIENT, where=f"{schema}.numbers: {condition}")
        assert server.destination_status(NAME).clients == []


async def test_a_table_that_there_is_not_is_refused(source: Server, schema: str, tmp_path: Path) -> None:
    async with serving(source, schema, tmp_path) as server:
        with pytest.raises(FilterError, match=f"{schema}.nothing is unknown to"):
            await server.subscribe(NAME, CLIENT, where=f"{schema}.nothing: v = 1")


@pytest.mark.parametrize("metadata", ["MINIMAL", "FULL"])
async def test_a_text_is_compared_as_its_column_says(
    source: Server, schema: str, tmp_path: Path, metadata: str
) -> None:
    source.query(f"SET GLOBAL binlog_row_metadata = {metadata}")
    collations = {"general": "utf8mb4_general_ci", "exact": "utf8mb4_bin"}
    columns = ", ".join(f"{name} VARCHAR(9) COLLATE {collation}" for name, collation in collations.items())
    source.query(f"CREATE TABLE {schema}.texts (id INT PRIMARY KEY, {columns})")
    async with serving(source, schema, tmp_path) as server:
        await subscribed(server, f"{schema}.texts: general = 'ÄB' AND exact = 'a'")
        source.query(f"INSERT INTO {schema}.texts VALUES (1, 'ab', 'A'), (2, 'ab', 'a'), (3, 'äB', 'a'), (4, 'x', 'a')")
        assert ids(await take(server, 2)) == [2, 3]


async def test_a_text_needs_a_collation_where_the_binlog_says_none(
    mariadb118: Server, database: Database, tmp_path: Path
) -> None:
    schema = database(mariadb118)
    mariadb118.query(
        f"CREATE TABLE {schema}.numbers (id INT PRIMARY KEY, v INT, filler VARCHAR(99) COLLATE utf8mb4_bin)"
    )
    with mariadb118.variable("binlog_row_metadata", "NO_LOG"):
        async with serving(mariadb118, schema, tmp_path) as server:
            with pytest.raises(FilterError, match="filler: the binlog does not name its collation"):
                await server.subscribe(NAME, CLIENT, where=f"{schema}.numbers: filler = 'x1'")
            await subscribed(server, f"{schema}.numbers: filler COLLATE utf8mb4_bin = 'x1'")
            fill(mariadb118, schema, 1, 10, size=1)
            assert ids(await take(server, 1)) == [1]


async def test_a_label_needs_a_collation_where_the_binlog_says_those_of_texts_only(
    source: Server, schema: str, tmp_path: Path
) -> None:
    source.query("SET GLOBAL binlog_row_metadata = MINIMAL")
    source.query(f"CREATE TABLE {schema}.labels (id INT PRIMARY KEY, v ENUM('a', 'b') COLLATE utf8mb4_bin)")
    async with serving(source, schema, tmp_path) as server:
        refusal = r"labels\.v: the binlog does not name its collation; SET GLOBAL binlog_row_metadata = FULL"
        with pytest.raises(FilterError, match=refusal):
            await server.subscribe(NAME, CLIENT, where=f"{schema}.labels: v = 'a'")
        await subscribed(server, f"{schema}.labels: v COLLATE utf8mb4_bin = 'a'")
        source.query(f"INSERT INTO {schema}.labels VALUES (1, 'b'), (2, 'a')")
        assert ids(await take(server, 1)) == [2]


async def test_a_source_with_minimal_images_is_refused(source: Server, schema: str, tmp_path: Path) -> None:
    async with serving(source, schema, tmp_path) as server:
        refusal = r"binlog_row_image of .* is MINIMAL: rows lack the columns"
        with source.variable("binlog_row_image", "MINIMAL"), pytest.raises(FilterError, match=refusal):
            await server.subscribe(NAME, CLIENT, where=f"{schema}.numbers: v = 1")


async def test_a_row_without_the_column_comes_with_a_remark(source: Server, schema: str, tmp_path: Path) -> None:
    """A session may set MINIMAL at any time."""
    async with serving(source, schema, tmp_path) as server:
        await subscribed(server, f"{schema}.numbers: v = 1")
        images = ["SET SESSION binlog_row_image = MINIMAL", "UPDATE numbers SET filler = 'a' WHERE id IN (2, 3)"]
        execute(source, ["INSERT INTO numbers VALUES (1, 1, 'x'), (2, 2, 'x'), (3, 1, 'x')", *images], database=schema)
        data = await take(server, 4)
        changes = [
            change
            for _, change in rows_of([Entry.FromString(it) for it in Messages.FromString(data).messages], "numbers")
        ]
        assert [[row.afterColumns[0].value for row in change.rowDatas] for change in changes] == [
            ["1", "3"],
            ["a", "a"],
        ]
        remarks = [[(it.key, it.value) for it in change.props if it.key == "sluice.where"] for change in changes]
        assert remarks == [[], [("sluice.where", "unjudged")]]


async def test_a_client_is_gone_when_its_condition_cannot_be_judged_any_more(
    source: Server, schema: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It gets all before, and goes on with another condition; the others get everything."""
    async with serving(source, schema, tmp_path) as server:
        await subscribed(server, f"{schema}.numbers: v >= 3 AND v < 5")
        await subscribed(server, "", 1002)
        fill(source, schema, 1, 10)
        source.query(f"ALTER TABLE {schema}.numbers MODIFY v VARCHAR(9) COLLATE utf8mb4_bin")
        fill(source, schema, 11, 20)
        assert ids(await take(server, 2)) == [2, 9]
        with pytest.raises(FilterError, match=r"numbers\.v: a number beside texts; write a text in quotes"):
            await take(server, 1)
        assert server.status(NAME, CLIENT).state == "gone"
        assert caplog.text.count("client 1001 is not served any more: ") == 1
        assert len(ids(await take(server, 20, 1002))) == 20
        await subscribed(server, f"{schema}.numbers: v IN ('3', '4')")
        assert ids(await take(server, 2)) == [12, 19]


async def test_only_so_many_conditions_are_judged(source: Server, schema: str, tmp_path: Path) -> None:
    async with serving(source, schema, tmp_path) as server:
        for client in range(MAX_CONDITIONS):
            await server.subscribe(NAME, client, where=f"{schema}.numbers: v = {client}")
        with pytest.raises(FilterError, match="16 different conditions on rows, and no more are judged"):
            await server.subscribe(NAME, 100, where=f"{schema}.numbers: v = 100")
        await server.subscribe(NAME, 100, where=f"{schema}.numbers: v = 1")
        await server.subscribe(NAME, 2)
        await server.subscribe(NAME, 101, where=f"{schema}.numbers: v = 101")


async def test_a_snapshot_has_the_rows_that_match_too(source: Server, schema: str, tmp_path: Path) -> None:
    fill(source, schema, 1, 40)
    async with serving(source, schema, tmp_path) as server:
        start = Selection("", {f"{schema}.numbers": "id > 10"}, 0)
        await subscribed(server, f"{schema}.numbers: v = 4", start=start)
        assert ids(await take(server, 3)) == [12, 22, 32]
        fill(source, schema, 41, 50)
        assert ids(await take(server, 1)) == [42]


async def test_a_snapshot_is_refused_where_source_and_stream_would_take_a_time_for_two(
    source: Server, schema: str, tmp_path: Path
) -> None:
    """A TIMESTAMP is delivered in the zone of the destination, and the source compares it in UTC."""
    source.query(f"CREATE TABLE {schema}.stamps (id INT PRIMARY KEY, at TIMESTAMP NULL)")
    source.query(f"INSERT INTO {schema}.stamps VALUES (1, NULL), (2, '2026-01-01 00:00:00')")
    where = f"{schema}.stamps: at >= '2025-12-30 00:00:00'"
    async with serving(source, schema, tmp_path / "local", time_zone="Asia/Shanghai") as server:
        with pytest.raises(BadParameterError, match=rf"{schema}.stamps.at is a TIMESTAMP.*sluice.instance.timeZone"):
            await server.subscribe(NAME, CLIENT, where=where, start=Selection())
    async with serving(source, schema, tmp_path / "utc", time_zone="UTC") as server:
        await server.subscribe(NAME, CLIENT, where=where, start=Selection(tables=rf"{schema}\.stamps"))
        assert ids(await take(server, 1)) == [2]


async def test_a_client_may_not_jump_over_the_refusal_of_its_condition(
    source: Server, schema: str, tmp_path: Path
) -> None:
    """Of one that cannot be read any more after a restart, nothing is known: it would get every row."""
    async with serving(source, schema, tmp_path) as server:
        await subscribed(server, f"{schema}.numbers: v = 4")
    stored = tmp_path / NAME / "meta.dat"
    stored.write_text(stored.read_text().replace("v = 4", "v = = 4"))
    async with serving(source, schema, tmp_path) as server:
        for call in (
            lambda: server.get_without_ack(NAME, CLIENT),
            lambda: server.seek(NAME, CLIENT, "latest"),
            lambda: server.start_snapshot(NAME, CLIENT, Selection()),
        ):
            with pytest.raises(FilterError, match="'v = = 4' is not a condition of SQL"):
                await call()
        await server.subscribe(NAME, CLIENT, where=f"{schema}.numbers: v = 4")
        await server.seek(NAME, CLIENT, "latest")


async def test_conditions_that_nobody_has_any_more_are_not_judged(source: Server, schema: str, tmp_path: Path) -> None:
    """In the ring, and in that of a reader: else each that a client has had would take memory as long as that reads."""
    async with serving(source, schema, tmp_path) as server:
        start = await subscribed(server, "")
        fill(source, schema, 1, 1000, size=3000)
        await take(server, 1000)
        await server.subscribe(NAME, 1002, where=f"{schema}.numbers: v = 0", start=start)
        assert await take(server, 10, 1002, max_entries=1)
        instance = server.instances[NAME]
        for number in range(20):
            for client in (CLIENT, 1002):
                await server.subscribe(NAME, client, where=f"{schema}.numbers: v < {number}")
        await soon(lambda: [len(it.verdicts) for it in (instance.ring, *instance.catch_up.rings)] == [1, 1])


async def test_masked_values_are_judged_as_they_are_given(source: Server, schema: str, tmp_path: Path) -> None:
    masks = {"filter_mask": f"{schema}.numbers.filler: first 1"}
    async with serving(source, schema, tmp_path, **masks) as server:
        await subscribed(server, f"{schema}.numbers: filler = 'x'")
        fill(source, schema, 1, 10)
        assert len(ids(await take(server, 10))) == 10
        await subscribed(server, f"{schema}.numbers: filler LIKE 'x%1'")
        fill(source, schema, 11, 20)
        assert (await server.get_without_ack(NAME, CLIENT, timeout=1)).rows == 0
        refusal = rf"{schema}\.numbers\.filler is masked\. The client's condition is judged on masked values, but"
        with pytest.raises(BadParameterError, match=refusal):
            await server.start_snapshot(NAME, CLIENT, Selection())


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
