"""A client of Canal whose next changes the source has purged: what it is told, and that the server goes on."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from sluice.protocol.canal.entry_pb2 import Entry, EntryType, EventType, RowChange
from sluice.protocol.canal.packet_pb2 import Sub
from tests import commands
from tests.canal import CanalClient, CanalError
from tests.conftest import Database
from tests.faults.harness import USUAL, Sluice
from tests.integration.tcp.served import refused
from tests.servers import Server
from tests.waiting import soon

NAME, LOST, OTHER = "shop", "1001", "2"


@pytest.fixture(params=USUAL)
def source(request: pytest.FixtureRequest) -> Server:
    found: Server = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def schema(source: Server, database: Database) -> str:
    name = database(source)
    source.query(f"CREATE TABLE {name}.goods (id INT PRIMARY KEY)")
    return name


@pytest.fixture
def sluice(tmp_path: Path, source: Server, schema: str) -> Iterator[Sluice]:
    made = Sluice(tmp_path)
    made.add(NAME, source, canal__instance__filter__regex=rf"{schema}\\..*")
    yield made
    made.__exit__()


Connect = Callable[[str], Awaitable[CanalClient]]


@pytest.fixture
async def connect(sluice: Sluice) -> AsyncIterator[Connect]:
    """Connects as a client."""
    made: list[CanalClient] = []

    async def connect(client_id: str) -> CanalClient:
        client = await CanalClient.connect(sluice.canal_port)
        made.append(client)
        client.destination, client.client_id = NAME, client_id
        return client

    yield connect
    for client in made:
        client.cut()


async def take(client: CanalClient, last: int) -> list[int]:
    """Take and ack all rows up to one."""
    found: list[int] = []
    while last not in found:
        batch = await client.get(timeout=1000)
        entries = [Entry.FromString(it) for it in batch.messages]
        rows = [RowChange.FromString(it.storeValue) for it in entries if it.entryType == EntryType.ROWDATA]
        inserted = [row for it in rows if it.eventType == EventType.INSERT for row in it.rowDatas]
        found += [int(it.afterColumns[0].value) for it in inserted]
        if batch.batch_id > 0:
            client.ack(batch.batch_id)
    return found


async def test_a_client_that_comes_back_after_a_purge_is_refused_until_an_operator_says_where_it_goes_on(
    sluice: Sluice, source: Server, schema: str, connect: Connect
) -> None:
    def write(*rows: int) -> None:
        for row in rows:
            source.query(f"INSERT INTO {schema}.goods VALUES ({row})")

    with sluice.reading():
        lost, other = await connect(LOST), await connect(OTHER)
        for client in (lost, other):
            await client.subscribe()
        write(1)
        assert await take(lost, 1) == [1]
        write(2)
        assert await take(other, 2) == [1, 2]
        sluice.stop()
        source.query("FLUSH BINARY LOGS")
        source.purge_binlogs(str(source.query("SHOW BINARY LOGS")[-1][0]))
        write(3, 4, 5)
        sluice.start()
        sluice.wait_running()
        lost, other = await connect(LOST), await connect(OTHER)
        for client in (lost, other):
            await client.subscribe()
        assert await take(other, 5) == [3, 4, 5]

        advice = f"`sluice seek {NAME} {LOST} oldest`"
        with pytest.raises(CanalError, match=f"has purged the binlog.*{advice} goes on") as caught:
            await lost.get()
        assert caught.value.code == 400
        await lost.unsubscribe()
        for client in (lost, await connect(LOST)):
            client.send(Sub(destination=NAME, client_id=LOST))
            code, text = await refused(client)
            assert (code, "`earliest` would skip changes that the source still has" in text) == (400, True)
            assert f"A client of Canal cannot say that: {advice} does it" in text
            client.ask()
            assert "should subscribe first" in (await refused(client))[1], "it has got nothing, and is connected"
        write(6)
        assert await take(other, 6) == [6]
        assert sluice.destination(NAME)["state"] == "running"

        commands.run("seek", NAME, LOST, "oldest", "--url", sluice.url, check=True)
        await lost.subscribe()
        assert await take(lost, 6) == [3, 4, 5, 6]
        await soon(lambda: not sluice.destination(NAME)["gaps"])
