"""A member of a group whose address becomes that of a replica is read on there, by its GTIDs."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sluice.instance.sources.group.config import GroupConfig
from sluice.protocol.cut import Cut, parse_executed, parse_place
from tests.conftest import Database
from tests.faults.pair import SCHEMA, Pair
from tests.integration.test_group import BEHIND, CLIENT, NAME, group, members, take
from tests.reading import embedded
from tests.servers import Server
from tests.waiting import soon

Configure = Callable[..., GroupConfig]


@pytest.fixture(params=["mysql97", pytest.param("mariadb118", marks=pytest.mark.extended)])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    options = [] if request.param.startswith("mariadb") else ["--gtid-mode=ON", "--enforce-gtid-consistency=ON"]
    with Pair(request.param, *options) as found:
        yield found


@pytest.fixture
def orders(mariadb118: Server, database: Database) -> str:
    table = f"{database(mariadb118)}.orders"
    mariadb118.query(f"CREATE TABLE {table} (id INT PRIMARY KEY)")
    return table


@pytest.fixture
def configure(mariadb118: Server, orders: str, tmp_path: Path) -> Configure:
    """Configures the group, with a server of the pair as its member `a`."""
    tables = rf"{SCHEMA}\.t,{orders.replace('.', '[.]')}"

    def made(server: Server, **options: Any) -> GroupConfig:
        return group({"a": server, "b": mariadb118}, tmp_path, tables, **options)

    return made


def write(pair: Pair, *ids: int) -> None:
    """Insert rows into the first server of a pair, and let the second one have them."""
    for it in ids:
        pair.first.query(f"INSERT INTO {SCHEMA}.t VALUES ({it}, '')")
    pair.catch_up(pair.second, pair.first)


@pytest.mark.parametrize("settings", [{}, {"store": "mixed", "store_min_free": 0}], ids=["memory", "log"])
async def test_each_client_goes_on_at_a_replica_after_a_restart_wherever_it_is(
    pair: Pair, mariadb118: Server, orders: str, configure: Configure, settings: dict[str, Any]
) -> None:
    async with embedded(configure(pair.first, **settings)) as server:
        for client in (CLIENT, BEHIND):
            await server.subscribe(NAME, client)
        await soon(lambda: server.status(NAME, BEHIND).position)
        write(pair, 1)
        for client in (CLIENT, BEHIND):
            assert await take(server, 1, client=client) == [("a", "1")]
        write(pair, 2)
        mariadb118.query(f"INSERT INTO {orders} VALUES (3)")
        assert sorted(await take(server, 2)) == [("a", "2"), ("b", "3")]
        cursor = server.instances[NAME].cursors.clients.cursor(CLIENT)
        assert cursor is not None
        assert parse_executed(cursor.gtid).keys() == {"a", "b"}
    write(pair, 4)
    mariadb118.query(f"INSERT INTO {orders} VALUES (5)")
    async with embedded(configure(pair.second, **settings)) as server:
        assert sorted(await take(server, 2)) == [("a", "4"), ("b", "5")]
        got = await take(server, 4, client=BEHIND)
        assert [it for it in got if it[0] == "a"] == [("a", "2"), ("a", "4")]
        assert [it for it in got if it[0] == "b"] == [("b", "3"), ("b", "5")]
        write(pair, 6)
        for client in (CLIENT, BEHIND):
            assert await take(server, 1, client=client) == [("a", "6")]
        place = parse_place(server.status(NAME, CLIENT).position)
        assert isinstance(place, Cut)
        assert members(server)["a"].state == "merged"
