"""Texts of statements speak of any table, row and column: they go only where nothing is left out."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sluice.client_sdk import Client
from sluice.client_sdk.calls import Limits
from sluice.protocol.canal.rows import decode_rows
from sluice.server.embedded import EmbeddedServer
from sluice.store.snapshot import Selection
from tests.canal import CanalClient
from tests.conftest import Database
from tests.delivery import execute
from tests.faults.harness import USUAL, Sluice
from tests.reading import config, embedded, with_full_metadata
from tests.servers import Server
from tests.waiting import soon

NAME, CLIENT = "example", 1001
EVERY = r".*\..*"
TEXT = b"INSERT /* text */ INTO"


@pytest.fixture(params=USUAL)
def source(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server whose events have the names and character sets of columns."""
    yield from with_full_metadata(request.getfixturevalue(request.param))


@pytest.fixture
def schema(source: Server, database: Database) -> str:
    """Two tables: some clients have one of them, `orders`."""
    name = database(source)
    source.query(f"CREATE TABLE {name}.orders (id INT PRIMARY KEY, note VARCHAR(50), filler VARCHAR(3000))")
    source.query(f"CREATE TABLE {name}.pay (id INT PRIMARY KEY, amount VARCHAR(20))")
    return name


def write(source: Server, schema: str, first: int, last: int) -> None:
    """Change both tables by statements whose texts are logged, then `orders` by statements whose texts are not."""
    switch = "binlog_annotate_row_events" if source.mariadb else "binlog_rows_query_log_events"
    words = TEXT.decode()
    texts = [f"{words} pay VALUES ({first}, 'S3CRET')", f"{words} orders VALUES (-{first}, 'hers', '')"]
    rows = [f"INSERT INTO orders VALUES ({it}, 'row {it}.', REPEAT('x', 3000))" for it in range(first, last + 1)]
    execute(source, [f"SET SESSION {switch} = ON", *texts, f"SET SESSION {switch} = OFF", *rows], database=schema)


async def take(server: EmbeddedServer, client: int, last: int) -> tuple[bool, set[str]]:
    """Take all up to the row of `orders` with that id: whether texts came, and of which tables rows did."""
    found, tables = b"", set[str]()
    while True:
        batch = await server.get_without_ack(NAME, client, timeout=20)
        assert batch.entries, server.status(NAME, client)
        data = b"".join(batch.slices)
        found += data
        rows = decode_rows(data)
        tables |= {row.table for row in rows}
        await server.ack(NAME, client, batch_id=batch.batch_id)
        if any(row.table == "orders" and row.after and row.after["id"] == last for row in rows):
            return TEXT in found, tables


@pytest.mark.parametrize("store", ["memory", "mixed"])
async def test_a_client_of_less_than_everything_is_given_no_texts_from_source_log_and_ring(
    source: Server, schema: str, tmp_path: Path, store: str
) -> None:
    orders, row = rf"{schema}\.orders", f"{schema}.orders: id > -1000"
    settings: dict[str, Any] = {"memory_buffer_size": 128, "store": store, "store_min_free": 0}
    async with embedded(config(source, tmp_path, **settings)) as server:
        await server.subscribe(NAME, CLIENT)
        await soon(lambda: server.status(NAME, CLIENT).position)
        begin = server.status(NAME, CLIENT).position
        write(source, schema, 1, 200)  # more than the ring holds
        assert await take(server, CLIENT, 200) == (True, {"orders", "pay"})
        clients = {
            1002: (EVERY, "", True),
            1003: (orders, "", False),
            1004: ("", row, False),
            1005: (EVERY, row, False),
        }
        for client, (text, where, _) in clients.items():
            await server.subscribe(NAME, client, filter=text, where=where, start=begin)
            assert server.status(NAME, client).state != "attached"
        for client, (text, _, has_texts) in clients.items():
            assert await take(server, client, 200) == (has_texts, {"orders"} if text == orders else {"orders", "pay"})
        write(source, schema, 201, 205)
        for client, (text, _, has_texts) in clients.items():
            assert await take(server, client, 205) == (has_texts, {"orders"} if text == orders else {"orders", "pay"})


@pytest.mark.parametrize(
    "left_out",
    [
        {"filter_regex": r"{s}\.orders,{s}\.pay"},
        {"filter_black_regex": r"{s}\.none"},
        {"filter_field": "{s}.orders:id"},
        {"filter_black_field": "{s}.orders:filler"},
        {"filter_where": "{s}.orders: id > -1000"},
        {"filter_mask": "{s}.orders.note: null"},
    ],
    ids=str,
)
async def test_a_destination_that_leaves_anything_out_gives_no_texts_nor_those_in_its_log(
    source: Server, schema: str, tmp_path: Path, left_out: dict[str, str]
) -> None:
    settings: dict[str, Any] = {"store": "mixed", "store_min_free": 0}
    async with embedded(config(source, tmp_path, **settings)) as server:
        for client in (CLIENT, 1002):
            await server.subscribe(NAME, client)
        await soon(lambda: server.status(NAME, CLIENT).position)
        write(source, schema, 1, 1)
        assert await take(server, CLIENT, 1) == (True, {"orders", "pay"})
    settings |= {key: text.replace("{s}", schema) for key, text in left_out.items()}
    async with embedded(config(source, tmp_path, **settings)) as server:
        assert await take(server, 1002, 1) == (False, {"orders", "pay"}), "from the log"
        write(source, schema, 2, 2)
        assert await take(server, CLIENT, 2) == (False, {"orders", "pay"})


async def test_views_and_canals_clients_are_given_texts_as_their_filters_say(
    source: Server, schema: str, tmp_path: Path
) -> None:
    orders = rf"{schema}\.orders"
    sluice = Sluice(tmp_path)
    sluice.add("shop", source)
    sluice.configure("whole", sluice__instance__route="shop")
    sluice.configure(
        "part", sluice__instance__route="shop", canal__instance__filter__regex=orders.replace("\\", "\\\\")
    )
    expected = {("shop", ""): True, ("shop", orders): False, ("whole", EVERY): True, ("part", ""): False}
    expected |= {("part", EVERY): False, ("whole", orders): False}
    with sluice.reading():
        for number, (name, text) in enumerate(expected, 1):
            canal = await CanalClient.connect(sluice.canal_port)
            canal.destination, canal.client_id = name, "1099"
            await canal.subscribe(text)
            with sluice.client(name=name) as client:
                client.subscribe(text)
                write(source, schema, number, number)
                assert (TEXT in take_by_http(client, number)) is expected[name, text], (name, text)
            assert (TEXT in await take_by_canal(canal, number)) is expected[name, text], (name, text)
            canal.cut()


async def test_ranges_and_clients_with_a_snapshot_have_texts_as_their_filters_say(
    source: Server, schema: str, tmp_path: Path
) -> None:
    orders = rf"{schema}\.orders"
    async with embedded(config(source, tmp_path)) as server:
        for client, text in ((1002, EVERY), (1003, orders)):
            await server.subscribe(NAME, client, filter=text)
            await soon(lambda: server.status(NAME, client).position)  # noqa: B023
        begin = server.status(NAME, 1002).position
        write(source, schema, 1, 3)
        for client, has_texts in ((1002, True), (1003, False)):
            await server.start_snapshot(NAME, client, Selection(orders))
            found, _ = await take(server, client, 3)
            while not server.snapshots(NAME, client)[0].is_done:
                batch = await server.get_without_ack(NAME, client, timeout=20)
                found = found or TEXT in b"".join(batch.slices)
                await server.ack(NAME, client, batch_id=batch.batch_id)
            assert found is has_texts
            end = server.status(NAME, client).position
            data = [piece async for batch in server.rows(NAME, client, begin, end) for piece in batch.slices]
            assert {row.table for row in decode_rows(b"".join(data))} >= {"orders"}
            assert (TEXT in b"".join(data)) is has_texts


def take_by_http(client: Client, number: int) -> bytes:
    """Take all up to a row of `orders`."""
    found = b""
    while b"row %d." % number not in found:
        batch = client.get_without_ack(10, Limits(max_entries=500))
        found += b"".join(batch.slices)
        client.ack(batch)
    return found


async def take_by_canal(client: CanalClient, number: int) -> bytes:
    """Take all up to a row of `orders`."""
    found = b""
    while b"row %d." % number not in found:
        batch = await client.get(timeout=1000)
        found += b"".join(batch.messages)
        if batch.batch_id > 0:
            client.ack(batch.batch_id)
    return found
