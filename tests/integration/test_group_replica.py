"""A member of a group whose address becomes that of a replica is read on there, by its GTIDs."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sluice.instance.sources.group.config import GroupConfig
from sluice.protocol.cut import Cut, parse_executed, parse_place
from sluice.server.embedded import EmbeddedServer
from tests.conftest import Database
from tests.faults.pair import SCHEMA, Pair
from tests.integration.test_group import BEHIND, CLIENT, NAME, group, members, take
from tests.proxy import Proxy
from tests.reading import config, embedded
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


def source_of_a(server: EmbeddedServer) -> str:
    """Which server the stream has as its member `a`; empty before it has begun."""
    floor = server.instances[NAME].cursors.track.floor
    return floor.places["a"].source if isinstance(floor, Cut) else ""


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


async def test_another_server_that_answers_at_the_address_of_a_member_is_read_on_by_its_gtids(
    pair: Pair, mariadb118: Server, orders: str, configure: Configure, tmp_path: Path
) -> None:
    with Proxy(("127.0.0.1", pair.first.port)) as proxy:
        found = configure(pair.first)
        known = {"destination": f"{NAME}.a", "filter_regex": found.filter_regex}
        moved = config(pair.first, tmp_path / "members", master_address=f"{proxy.host}:{proxy.port}", **known)
        async with embedded(found.with_parts({**found.parts, "a": moved})) as server:
            for client in (CLIENT, BEHIND):
                await server.subscribe(NAME, client)
            await soon(lambda: server.status(NAME, BEHIND).position)
            write(pair, 1)
            mariadb118.query(f"INSERT INTO {orders} VALUES (2)")
            assert sorted(await take(server, 2)) == [("a", "1"), ("b", "2")]
            former = source_of_a(server)
            pair.promote(pair.second)
            proxy.target = ("127.0.0.1", pair.second.port)
            proxy.cut()
            await soon(lambda: source_of_a(server) not in ("", former))
            pair.second.query(f"INSERT INTO {SCHEMA}.t VALUES (3, '')")
            mariadb118.query(f"INSERT INTO {orders} VALUES (4)")
            assert sorted(await take(server, 2)) == [("a", "3"), ("b", "4")]
            assert sorted(await take(server, 4, client=BEHIND)) == [("a", "1"), ("a", "3"), ("b", "2"), ("b", "4")]
            assert server.destination_status(NAME).state == "running"
            assert not server.instances[NAME].gate.moves
