"""A view of a destination: its own clients and tables on the same source, ring and log."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice.client_sdk import Client
from sluice.client_sdk.calls import Limits
from tests.conftest import Database
from tests.faults.harness import Sluice
from tests.servers import Server

MAIN, VIEW = "shop", "orders"


@pytest.fixture(params=["mariadb118", "mysql97"])
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


def dumps(source: Server, sluice: Sluice) -> int:
    """How many replicas the source serves."""
    rows = source.query("SHOW PROCESSLIST")
    return sum("Binlog Dump" in str(row[4]) for row in rows)


def take(client: Client, last: int, *, ack: bool = True) -> list[tuple[str, int]]:
    """Take rows up to that of a number in the table of the view; return table and number of each."""
    found: list[tuple[str, int]] = []
    while ("orders", last) not in found:
        batch = client.get_without_ack(10, Limits(max_entries=500))
        found += [(row.table, row.after["id"]) for row in batch if row.after]
        if ack:
            client.ack(batch)
    return found


def orders(first: int, last: int) -> list[tuple[str, int]]:
    return [("orders", number) for number in range(first, last + 1)]


def test_one_dump_serves_a_destination_and_its_views(sluice: Sluice, source: Server, schema: str) -> None:
    before = dumps(source, sluice)
    with sluice, sluice.client(name=MAIN) as main, sluice.client(name=VIEW) as view:
        sluice.wait_running()
        main.subscribe()
        view.subscribe()
        insert(source, schema, 1, 100)
        assert take(view, 100) == orders(1, 100)
        found = take(main, 100)
        assert [it for it in found if it[0] == "orders"] == orders(1, 100)
        assert len(found) >= 199
        assert dumps(source, sluice) - before == 1
        status = {it["destination"]: it for it in sluice.call("GET")}
        assert [status[it]["route"] for it in (MAIN, VIEW)] == ["", MAIN]
        assert [status[it]["state"] for it in (MAIN, VIEW)] == ["running", "running"]
