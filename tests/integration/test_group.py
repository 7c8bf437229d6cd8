"""Two servers as one stream: a group, read from real servers."""

from pathlib import Path
from typing import Any

from sluice.instance.sources.group.config import GroupConfig
from sluice.protocol.canal import entry_pb2 as pb
from sluice.protocol.canal.packet_pb2 import Messages
from sluice.protocol.cut import Cut, parse_place
from sluice.server.embedded import EmbeddedServer
from tests.conftest import Database
from tests.reading import config, embedded
from tests.servers import Server
from tests.waiting import SECONDS, soon

NAME = "example"
CLIENT = 1001


def group(servers: dict[str, Server], folder: Path, tables: str, **options: Any) -> GroupConfig:
    common: dict[str, Any] = {"filter_regex": tables, "file_data_dir": folder} | options
    made = GroupConfig(destination=NAME, members=tuple(servers), **common)
    parts = {
        name: config(server, folder / "members", destination=f"{NAME}.{name}", filter_regex=made.filter_regex)
        for name, server in servers.items()
    }
    return made.with_parts(parts)


async def take(server: EmbeddedServer, most: int) -> list[tuple[str, str]]:
    """Take and ack batches until so many rows have come: the member of each, and its first column."""
    found: list[tuple[str, str]] = []
    while len(found) < most:
        batch = await server.get_without_ack(NAME, CLIENT, timeout=SECONDS)
        assert batch is not None, found
        assert batch.entries, found
        for message in Messages.FromString(b"".join(batch.slices)).messages:
            entry = pb.Entry.FromString(message)
            (member,) = [it.value for it in entry.header.props if it.key == "sluice.member"]
            if entry.entryType == pb.ROWDATA:
                change = pb.RowChange.FromString(entry.storeValue)
                found += [(member, row.afterColumns[0].value) for row in change.rowDatas]
        await server.ack(NAME, CLIENT, batch_id=batch.batch_id, durable=True)
    return found


async def test_two_servers_are_one_stream_that_goes_on_after_a_restart(
    mysql97: Server, mariadb118: Server, database: Database, tmp_path: Path
) -> None:
    servers = {"my": mysql97, "maria": mariadb118}
    tables = {name: f"{database(it)}.orders" for name, it in servers.items()}
    for name, it in servers.items():
        it.query(f"CREATE TABLE {tables[name]} (id INT PRIMARY KEY)")
    configuration = group(servers, tmp_path, ",".join(it.replace(".", r"\.") for it in tables.values()))
    async with embedded(configuration) as server:
        await server.subscribe(NAME, CLIENT)
        await soon(lambda: server.status(NAME, CLIENT).position)
        place = parse_place(server.status(NAME, CLIENT).position)
        assert isinstance(place, Cut)
        assert place.places.keys() == servers.keys()
        for number in range(10):
            for name, it in servers.items():
                it.query(f"INSERT INTO {tables[name]} VALUES ({number})")
        got = await take(server, 20)
        assert {name: [row for member, row in got if member == name] for name in servers} == {
            name: [str(number) for number in range(10)] for name in servers
        }
    for name, it in servers.items():
        it.query(f"INSERT INTO {tables[name]} VALUES (10), (11)")
    async with embedded(configuration) as server:
        mysql97.query(f"INSERT INTO {tables['my']} VALUES (12)")
        got = await take(server, 5)
        assert {name: [row for member, row in got if member == name] for name in servers} == {
            "my": ["10", "11", "12"],
            "maria": ["10", "11"],
        }
