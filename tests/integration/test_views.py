"""A view of a destination: its own clients and tables on the same source, ring and log."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import urllib3

from sluice.client_sdk import Client
from sluice.client_sdk.calls import Limits
from sluice.protocol.canal.entry_pb2 import Entry, EventType
from sluice.protocol.errors import DestinationStoppedError, FilterError, UnknownBatchError
from tests.canal import CanalClient
from tests.conftest import Database
from tests.faults.harness import USUAL, Sluice
from tests.servers import Server
from tests.waiting import eventually

MAIN, VIEW = "shop", "orders"


@pytest.fixture(params=USUAL)
def source(request: pytest.FixtureRequest) -> Server:
    found: Server = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def schema(source: Server, database: Database) -> str:
    """Two tables: the view has one of them."""
    name = database(source)
    for table in ("orders", "items"):
        source.query(f"CREATE TABLE {name}.{table} (id INT PRIMARY KEY, filler VARCHAR(5000))")
    return name


@pytest.fixture
def sluice(tmp_path: Path, source: Server, schema: str) -> Iterator[Sluice]:
    """A server with a destination and a view of it, not started."""
    made = Sluice(tmp_path)
    made.add(MAIN, source, canal__instance__filter__regex=rf"{schema}\\..*")
    made.configure(VIEW, sluice__instance__route=MAIN, canal__instance__filter__regex=rf"{schema}\\.orders")
    yield made
    made.__exit__()


def insert(source: Server, schema: str, first: int, last: int, size: int = 1) -> None:
    """Insert a row into each table for each of these numbers, each row in a transaction of its own."""
    with source.connect(autocommit=True) as connection, connection.cursor() as cursor:
        for number in range(first, last + 1):
            for table in ("orders", "items"):
                cursor.execute(f"INSERT INTO {schema}.{table} VALUES (%s, %s)", (number, "x" * size))


def dumps(source: Server) -> int:
    """How many replicas the source serves."""
    rows = source.query("SHOW PROCESSLIST")
    return sum("Binlog Dump" in str(row[4]) for row in rows)


def take(client: Client, last: int, *, ack: bool = True) -> list[tuple[str, int]]:
    """Take rows up to that of a number in the table of the view, and its transaction; return table and number of each.

    What a client acks of a transaction that is not whole comes again after a restart.
    """
    found: list[tuple[str, int]] = []
    is_whole = False
    while ("orders", last) not in found or not is_whole:
        batch = client.get_without_ack(10, Limits(max_entries=500))
        found += [(row.table, row.after["id"]) for row in batch if row.after]
        is_whole = batch.to.endswith(":0") or (not batch and is_whole)
        if ack:
            client.ack(batch)
    return found


def orders(first: int, last: int) -> list[tuple[str, int]]:
    return [("orders", number) for number in range(first, last + 1)]


def test_one_dump_serves_a_destination_and_its_views(sluice: Sluice, source: Server, schema: str) -> None:
    before = dumps(source)
    with sluice, sluice.client(name=MAIN) as main, sluice.client(name=VIEW) as view:
        sluice.wait_running()
        main.subscribe()
        view.subscribe()
        insert(source, schema, 1, 100)
        assert take(view, 100) == orders(1, 100)
        found = take(main, 100)
        assert [it for it in found if it[0] == "orders"] == orders(1, 100)
        assert len(found) >= 199
        assert dumps(source) - before == 1
        status = {it["destination"]: it for it in sluice.call("GET")}
        assert [status[it]["route"] for it in (MAIN, VIEW)] == ["", MAIN]
        assert [status[it]["state"] for it in (MAIN, VIEW)] == ["running", "running"]


def status(sluice: Sluice, name: str = VIEW) -> dict[str, Any]:
    """Where the one client of a destination stands."""
    found: dict[str, Any] = sluice.destination(name)["clients"][0]
    return found


def small(sluice: Sluice, source: Server, schema: str, **settings: object) -> None:
    """Give the destination a ring of 256 KiB, which a client may hold full for a second."""
    ring = {"canal__instance__memory__buffer__size": 256, "sluice__instance__detachAfter": 1}
    sluice.add(MAIN, source, canal__instance__filter__regex=rf"{schema}\\..*", **(ring | settings))


def test_the_filter_of_a_client_narrows_that_of_its_view(sluice: Sluice, source: Server, schema: str) -> None:
    with sluice.reading(), sluice.client(name=VIEW) as view:
        refused = urllib3.request(
            "POST",
            f"{sluice.url}/v1/destinations/{VIEW}/clients/1002/subscribe",
            json={"filter": rf"{schema}\.items"},
        )
        assert (refused.status, refused.json()["type"]) == (409, "filter-matches-nothing")
        view.subscribe(rf"{schema}\.(orders|items)")
        insert(source, schema, 1, 10)
        assert take(view, 10) == orders(1, 10)
        tables = sluice.call("GET", f"/{VIEW}/tables")["tables"]
        assert tables == [f"{schema}.orders"]
        path = f"{sluice.url}/v1/destinations/{VIEW}/tables/{schema}.items"
        assert urllib3.request("GET", path).status == 409


def test_a_stopped_view_holds_nothing_and_goes_on_where_it_was(sluice: Sluice, source: Server, schema: str) -> None:
    small(sluice, source, schema, sluice__instance__detachAfter=0)  # who is attached may hold the ring for ever
    with sluice.reading(), sluice.client(name=MAIN) as main, sluice.client(name=VIEW) as view:
        main.subscribe()
        view.subscribe()
        insert(source, schema, 1, 10)
        take(view, 10)
        take(main, 10)
        insert(source, schema, 11, 20)
        batch_before = view.get_without_ack(10, Limits(max_entries=4))
        sluice.call("POST", f"/{VIEW}/stop")
        assert sluice.destination(VIEW)["state"] == "stopped"
        with pytest.raises(DestinationStoppedError):
            Client(sluice.url, VIEW, retry=0).get_without_ack(0)
        insert(source, schema, 21, 400, 2000)  # four times what the ring holds
        assert ("orders", 400) in take(main, 400)
        assert status(sluice)["state"] == "ahead"
        sluice.call("POST", f"/{VIEW}/start")
        with pytest.raises(UnknownBatchError):
            view.ack(batch_before.batch_id)
        assert take(view, 400) == orders(11, 400)
        insert(source, schema, 401, 410)
        assert take(view, 410) == orders(401, 410)


@pytest.mark.extended
def test_the_log_keeps_what_protected_clients_of_a_stopped_view_need(
    sluice: Sluice, source: Server, schema: str
) -> None:
    settings = {"sluice__instance__store": "mixed", "sluice__instance__store__maxBytes": 1}
    sluice.add(MAIN, source, canal__instance__filter__regex=rf"{schema}\\..*", **settings)
    with (
        source.variable("binlog_row_metadata", "FULL"),
        sluice.reading(),
        sluice.client(name=MAIN) as main,
        sluice.client(name=VIEW) as view,
    ):
        main.subscribe()
        view.subscribe(protect=True)
        insert(source, schema, 1, 1)
        take(view, 1)
        sluice.call("POST", f"/{VIEW}/stop")
        insert(source, schema, 2, 500, 4000)
        assert ("orders", 500) in take(main, 500)
        eventually(lambda: sluice.destination(MAIN)["log"]["files"] > 2, lambda: sluice.destination(MAIN)["log"])
        assert sluice.call("POST", f"/{MAIN}/log/prune?bytes=0") == []
        source.query("FLUSH BINARY LOGS")
        source.purge_binlogs(str(source.query("SHOW BINARY LOGS")[-1][0]))
        sluice.call("POST", f"/{VIEW}/start")
        assert take(view, 500) == orders(2, 500)


def test_views_end_and_begin_with_their_destination(sluice: Sluice, source: Server, schema: str) -> None:
    sluice.configure("idle", sluice__instance__route=MAIN)
    with sluice.reading(), sluice.client(name=VIEW) as view:
        view.subscribe()
        insert(source, schema, 1, 10)
        assert take(view, 10) == orders(1, 10)
        sluice.call("POST", "/idle/stop")
        sluice.call("POST", f"/{MAIN}/stop")
        found = sluice.destination(VIEW)
        assert (found["state"], found["error"]) == (
            "stopped",
            f"destination {MAIN}, of which it is a view, does not run",
        )
        sluice.call("POST", f"/{VIEW}/start")  # it goes on waiting
        assert sluice.destination(VIEW)["error"] == found["error"]
        insert(source, schema, 11, 20)
        sluice.call("POST", f"/{MAIN}/start")
        sluice.wait_running(MAIN, VIEW)
        assert sluice.destination("idle")["state"] == "stopped"
        assert take(view, 20) == orders(11, 20)


@pytest.mark.parametrize("end", [pytest.param("stop", marks=pytest.mark.extended), "kill"])
def test_after_a_restart_the_stream_begins_where_the_oldest_client_is(
    sluice: Sluice, source: Server, schema: str, end: str
) -> None:
    with sluice.reading(), sluice.client(name=MAIN) as main, sluice.client(name=VIEW) as view:
        main.subscribe()
        view.subscribe()
        insert(source, schema, 1, 10)
        take(view, 10)
        insert(source, schema, 11, 20)
        take(main, 20)
        eventually(lambda: sluice.stored(name=VIEW), "the cursor")
        position = sluice.stored(name=VIEW)
        getattr(sluice, end)()
        insert(source, schema, 21, 30)
        before = dumps(source)
        sluice.start()
        sluice.wait_running()
        assert dumps(source) - before <= 1
        assert take(view, 30)[-20:] == orders(11, 30)
        assert ("orders", 30) in take(main, 30)
        assert position is not None
    assert "catches up" not in sluice.log_file.read_text()


@pytest.mark.parametrize("store", [pytest.param("memory", marks=pytest.mark.extended), "mixed"])
def test_a_slow_view_does_not_hold_its_destination_back(
    sluice: Sluice, source: Server, schema: str, store: str
) -> None:
    small(sluice, source, schema, sluice__instance__store=store, sluice__instance__store__minFree=0)
    with sluice.reading(), sluice.client(name=MAIN) as main, sluice.client(name=VIEW) as view:
        main.subscribe()
        view.subscribe()
        insert(source, schema, 1, 10)
        take(view, 10)
        insert(source, schema, 11, 400, 2000)
        assert ("orders", 400) in take(main, 400)
        assert status(sluice)["state"] == "catching-up"
        assert take(view, 400) == orders(11, 400)

        def joins() -> bool:
            view.ack(view.get_without_ack(0))  # the end of the last transaction may have come after its row
            return bool(status(sluice)["state"] == "attached")

        eventually(joins, lambda: status(sluice))
        insert(source, schema, 401, 410)
        assert take(view, 410) == orders(401, 410)


def test_the_ring_waits_for_the_clients_of_views(sluice: Sluice, source: Server, schema: str) -> None:
    small(sluice, source, schema, sluice__instance__detachAfter=0)
    with sluice.reading(), sluice.client(name=VIEW) as view:
        view.subscribe()
        insert(source, schema, 1, 200, 2000)
        eventually(lambda: sluice.destination(MAIN)["full"], lambda: sluice.destination(MAIN))
        assert status(sluice)["state"] == "attached"
        assert take(view, 200) == orders(1, 200)


def test_clients_of_views_have_conditions_on_rows(sluice: Sluice, source: Server, schema: str) -> None:
    """In the ring, behind it, and after the view was stopped; a view has conditions on its own tables only."""
    small(sluice, source, schema)
    where = f"{schema}.orders: id IN (3, 13, 203, 403, 413)"
    with (
        sluice.reading(),
        sluice.client(name=MAIN) as main,
        sluice.client(name=VIEW) as view,
        sluice.client(1002, VIEW) as slow,
        sluice.client(1003, VIEW) as whole,
    ):
        for client in (main, view, slow):
            client.subscribe(where=where)
        whole.subscribe()
        insert(source, schema, 1, 20)
        assert take(view, 13) == take(slow, 13) == [("orders", 3), ("orders", 13)]
        assert take(whole, 20) == orders(1, 20)
        found = take(main, 13)
        assert [number for table, number in found if table == "orders"] == [3, 13]
        assert ("items", 5) in found
        insert(source, schema, 21, 400, 2000)
        assert take(view, 203) == [("orders", 203)]
        assert take(whole, 400) == orders(21, 400)
        take(main, 203)
        assert take(slow, 203) == [("orders", 203)]
        sluice.call("POST", f"/{VIEW}/stop")
        insert(source, schema, 401, 420)
        sluice.call("POST", f"/{VIEW}/start")
        assert take(view, 413) == take(slow, 413) == [("orders", 403), ("orders", 413)]
        with pytest.raises(FilterError, match=rf"{schema}.items: the destination does not deliver this table"):
            view.subscribe(where=f"{schema}.items: id = 1")
        assert status(sluice)["where"] == where


async def test_a_canal_client_is_served_of_a_view(sluice: Sluice, source: Server, schema: str) -> None:
    with sluice.reading():
        client = await CanalClient.connect(sluice.canal_port)
        try:
            client.destination = VIEW
            await client.subscribe()
            insert(source, schema, 1, 10)
            found: list[str] = []
            while found.count("orders") < 10:
                batch = await client.get(timeout=1000)
                headers = [Entry.FromString(it).header for it in batch.messages]
                found += [it.tableName for it in headers if it.eventType == EventType.INSERT]
                if batch.batch_id > 0:
                    client.ack(batch.batch_id)
            assert set(found) == {"orders"}
        finally:
            client.cut()


async def test_a_snapshot_has_the_tables_of_the_view(sluice: Sluice, source: Server, schema: str) -> None:
    insert(source, schema, 1, 5)
    with sluice.reading(), sluice.client(name=VIEW) as view:
        view.subscribe(start="snapshot")
        assert take(view, 5) == orders(1, 5)


def test_what_is_of_the_source_is_asked_of_the_destination(sluice: Sluice, source: Server, schema: str) -> None:
    with sluice.reading():
        for path in ("quarantine/retry", "log/prune?bytes=0"):
            answer = urllib3.request("POST", f"{sluice.url}/v1/destinations/{VIEW}/{path}")
            assert answer.status == 422
            assert f"destination {VIEW} is a view of {MAIN}" in answer.json()["detail"]
        assert sluice.call("GET", f"/{VIEW}/quarantine") == []


@pytest.mark.extended
def test_a_view_that_is_configured_otherwise_restarts_alone(sluice: Sluice, source: Server, schema: str) -> None:
    sluice.settings = {"canal__auto__scan": "true", "canal__auto__scan__interval": 0.05}
    sluice.configure(VIEW, sluice__instance__route=MAIN, canal__instance__filter__regex=rf"{schema}\\.orders")
    with sluice.reading(), sluice.client(name=VIEW) as view:
        view.subscribe()
        insert(source, schema, 1, 10)
        take(view, 10)
        connections = sluice.destination(MAIN)["parser"]["connections"]
        sluice.configure(VIEW, sluice__instance__route=MAIN, canal__instance__filter__regex=rf"{schema}\\..*")
        eventually(lambda: len(sluice.call("GET", f"/{VIEW}/tables")["tables"]) == 2, "the other filter")
        insert(source, schema, 11, 20)
        found = take(view, 20)
        assert {table for table, _ in found} == {"orders", "items"}
        assert sluice.destination(MAIN)["parser"]["connections"] == connections
        (sluice.conf / MAIN / "instance.properties").unlink()
        eventually(lambda: "does not run" in sluice.destination(VIEW)["error"], lambda: sluice.destination(VIEW))
