"""Two servers as one stream: a group, read from real servers."""

import asyncio
import json
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from sluice.instance.sources.group.config import GroupConfig
from sluice.instance.sources.mysql.parser import Parser
from sluice.instance.sources.registry import examine, make_parser
from sluice.instance.status import MemberStatus
from sluice.protocol.canal import entry_pb2 as pb
from sluice.protocol.canal.packet_pb2 import Messages
from sluice.protocol.cut import Cut, parse_place
from sluice.protocol.errors import ConfigError, GoneError, SourceChangedError, SourceError
from sluice.protocol.position import Position
from sluice.server.embedded import EmbeddedServer
from sluice.store.batch import Batch
from sluice.store.cursor import Cursor
from sluice.store.moves import Reason
from sluice.store.ring import Ring
from sluice.store.snapshot import Selection
from tests.conftest import Database
from tests.reading import config, embedded
from tests.servers import Server
from tests.waiting import SECONDS, eventually, soon

NAME = "example"
CLIENT = 1001
BEHIND = 1002
"""A client that makes no call for a while."""
Served = tuple[EmbeddedServer, dict[str, str]]


def group(servers: dict[str, Server], folder: Path, tables: str, **options: Any) -> GroupConfig:
    common: dict[str, Any] = {"filter_regex": tables, "file_data_dir": folder} | options
    made = GroupConfig(destination=NAME, members=tuple(servers), **common)
    parts = {
        name: config(server, folder / "members", destination=f"{NAME}.{name}", filter_regex=made.filter_regex)
        for name, server in servers.items()
    }
    return made.with_parts(parts)


async def take(server: EmbeddedServer, most: int, wait: float = SECONDS, client: int = CLIENT) -> list[tuple[str, str]]:
    """Take and ack batches until `most` rows have come, or none for a time: the member of each, and its column."""
    found: list[tuple[str, str]] = []
    while len(found) < most:
        batch = await server.get_without_ack(NAME, client, timeout=wait)
        if not batch.entries:
            break
        for message in Messages.FromString(b"".join(batch.slices)).messages:
            entry = pb.Entry.FromString(message)
            change = pb.RowChange.FromString(entry.storeValue) if entry.entryType == pb.ROWDATA else pb.RowChange()
            if change.rowDatas:
                (member,) = [it.value for it in entry.header.props if it.key == "sluice.member"]
                found += [(member, row.afterColumns[0].value) for row in change.rowDatas]
        await server.ack(NAME, client, batch_id=batch.batch_id, durable=True)
    return found


@asynccontextmanager
async def serving(
    servers: dict[str, Server], folder: Path, database: Database, **options: Any
) -> AsyncIterator[Served]:
    """Serve a group with a client, and a table of each member."""
    tables = {name: f"{database(it)}.orders" for name, it in servers.items()}
    for name, it in servers.items():
        it.query(f"CREATE TABLE {tables[name]} (id INT PRIMARY KEY, text LONGTEXT)")
    wanted = ",".join(it.replace(".", r"\.") for it in tables.values())
    async with embedded(group(servers, folder, wanted, **options)) as server:
        await server.subscribe(NAME, CLIENT)
        await soon(lambda: server.status(NAME, CLIENT).position)
        yield server, tables


@contextmanager
def frozen(server: Server) -> Iterator[None]:
    """Let a server answer nothing while the block lasts; its connections stay open."""
    server.freeze()
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


def members(server: EmbeddedServer) -> dict[str, MemberStatus]:
    return {it.name: it for it in server.destination_status(NAME).parser.members}


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


async def test_a_member_that_does_not_answer_is_waited_for_and_named(
    mysql97: Server, mariadb118: Server, database: Database, tmp_path: Path
) -> None:
    servers = {"my": mysql97, "maria": mariadb118}
    async with serving(servers, tmp_path, database) as (server, tables):
        mariadb118.query(f"INSERT INTO {tables['maria']} VALUES (0, '')")
        assert await take(server, 1) == [("maria", "0")], "it is heard"
        with frozen(mariadb118):
            await soon(lambda: members(server)["maria"].silent > 0.5)
            mysql97.query(f"INSERT INTO {tables['my']} VALUES (1, '')")
            await soon(lambda: members(server)["maria"].holds)
            assert await take(server, 1, wait=0.5) == []
            assert members(server)["my"].transactions == 1
        assert await take(server, 1) == [("my", "1")]
        await soon(lambda: not members(server)["maria"].holds)


async def test_a_member_that_does_not_answer_is_passed_after_the_configured_time(
    mysql97: Server, mariadb118: Server, database: Database, tmp_path: Path
) -> None:
    servers = {"my": mysql97, "maria": mariadb118}
    async with serving(servers, tmp_path, database, max_wait=500) as (server, tables):
        with frozen(mariadb118):
            mysql97.query(f"INSERT INTO {tables['my']} VALUES (1, '')")
            assert await take(server, 1) == [("my", "1")]
            await soon(lambda: members(server)["maria"].state == "passed")
        mariadb118.query(f"INSERT INTO {tables['maria']} VALUES (2, '')")
        assert await take(server, 1) == [("maria", "2")]
        await soon(lambda: members(server)["maria"].state == "merged")


def entries(batch: Batch) -> list[pb.Entry]:
    return [pb.Entry.FromString(it) for it in Messages.FromString(b"".join(batch.slices)).messages]


@asynccontextmanager
async def changing(
    servers: dict[str, Server], folder: Path, database: Database, **options: Any
) -> AsyncIterator[tuple[EmbeddedServer, dict[str, str], Callable[..., GroupConfig]]]:
    """Serve a group of the first of these servers, with a table on each.

    The last value says how it is configured when it is reloaded, by the names of its members.
    """
    tables = {name: f"{database(it)}.orders" for name, it in servers.items()}
    for name, it in servers.items():
        it.query(f"CREATE TABLE {tables[name]} (id INT PRIMARY KEY, text LONGTEXT)")
    wanted = ",".join(it.replace(".", r"\.") for it in tables.values())

    known: list[GroupConfig] = []

    def configure(*names: str) -> GroupConfig:
        known[:] = [group({name: servers[name] for name in names}, folder, wanted, **options)]
        return known[0]

    configure(next(iter(servers)))
    server = EmbeddedServer(lambda _: known[0], make_parser)
    await server.start(NAME)
    try:
        await server.subscribe(NAME, CLIENT)
        await soon(lambda: server.status(NAME, CLIENT).position)
        yield server, tables, configure
    finally:
        await server.close()


async def join_maria(server: EmbeddedServer, configure: Callable[..., GroupConfig]) -> GroupConfig:
    """Let a second member join the first one, and wait until it is merged; return the configuration."""
    configuration = configure("my", "maria")
    await server.reload(NAME)
    await soon(lambda: members(server).get("maria") and members(server)["maria"].state == "merged")
    return configuration


async def test_members_are_added_to_and_removed_from_a_group_that_is_read(
    mysql97: Server, mariadb118: Server, database: Database, tmp_path: Path
) -> None:
    servers = {"my": mysql97, "maria": mariadb118}
    async with changing(servers, tmp_path, database) as (server, tables, configure):
        mariadb118.query(f"INSERT INTO {tables['maria']} VALUES (0, '')")  # before it joins
        mysql97.query(f"INSERT INTO {tables['my']} VALUES (1, '')")
        batch = await server.get_without_ack(NAME, CLIENT, timeout=SECONDS)
        await join_maria(server, configure)
        mariadb118.query(f"INSERT INTO {tables['maria']} VALUES (2, '')")
        await server.ack(NAME, CLIENT, batch_id=batch.batch_id)  # it was not given up
        assert await take(server, 1) == [("maria", "2")]
        configure("maria")
        await server.reload(NAME)
        await soon(lambda: "my" not in members(server))
        mysql97.query(f"INSERT INTO {tables['my']} VALUES (3, '')")
        mariadb118.query(f"INSERT INTO {tables['maria']} VALUES (4, '')")
        assert await take(server, 2, wait=2) == [("maria", "4")]
        place = parse_place(server.status(NAME, CLIENT).position)
        assert isinstance(place, Cut)
        assert place.places.keys() == {"my", "maria"}, "a removed member keeps its last place"
        assert await server.instances[NAME].source_end() == place
        configure("maria", "my")
        with pytest.raises(ConfigError, match="member my was removed"):
            await server.reload(NAME)


async def test_a_client_that_is_behind_when_a_member_is_removed_is_told_what_it_does_not_get_of_it(
    mysql97: Server, mariadb118: Server, database: Database, tmp_path: Path
) -> None:
    servers = {"my": mysql97, "maria": mariadb118}
    async with changing(servers, tmp_path, database) as (server, tables, configure):
        await join_maria(server, configure)
        mysql97.query(f"INSERT INTO {tables['my']} VALUES (1, '')")
        assert await take(server, 1) == [("my", "1")]
        begin = server.status(NAME, CLIENT).position
        mysql97.query(f"INSERT INTO {tables['my']} VALUES (2, '')")
        mariadb118.query(f"INSERT INTO {tables['maria']} VALUES (3, '')")
        assert sorted(await take(server, 2)) == [("maria", "3"), ("my", "2")]
        await server.subscribe(NAME, BEHIND, start=begin)
        assert server.status(NAME, BEHIND).state == "catching-up"
        configure("maria")
        await server.reload(NAME)
        await soon(lambda: server.moves(NAME).get(BEHIND))
        (gap,) = server.instances[NAME].gate.gaps(BEHIND)
        left, onward = parse_place(gap.before), parse_place(gap.after)
        assert (gap.reason, str(left)) == (Reason.REMOVE, begin)
        assert isinstance(left, Cut)
        assert isinstance(onward, Cut)
        assert left.places["maria"] == onward.places["maria"]
        assert "member my was removed" in gap.detail
        assert await take(server, 1, client=BEHIND) == [("maria", "3")]
        await soon(lambda: server.status(NAME, BEHIND).state == "attached")
        mariadb118.query(f"INSERT INTO {tables['maria']} VALUES (4, '')")
        assert await take(server, 1, client=BEHIND) == [("maria", "4")]
        assert await take(server, 1) == [("maria", "4")]
        assert not server.instances[NAME].gate.gaps(CLIENT)
        with pytest.raises(GoneError, match="member my was removed"):
            await anext(server.rows(NAME, CLIENT, begin, server.status(NAME, CLIENT).acked))


async def test_each_client_is_told_once_of_a_member_that_was_removed_while_nothing_ran(
    mysql97: Server, mariadb118: Server, database: Database, tmp_path: Path
) -> None:
    servers = {"my": mysql97, "maria": mariadb118}
    async with changing(servers, tmp_path, database) as (server, tables, configure):
        await join_maria(server, configure)
        await server.subscribe(NAME, BEHIND)
        mysql97.query(f"INSERT INTO {tables['my']} VALUES (1, '')")
        assert await take(server, 1) == [("my", "1")]
        places = {it: server.status(NAME, it).position for it in (CLIENT, BEHIND)}
        configuration = configure("maria")
    mysql97.query(f"INSERT INTO {tables['my']} VALUES (2, '')")
    mariadb118.query(f"INSERT INTO {tables['maria']} VALUES (3, '')")
    async with embedded(configuration) as server:
        for client, place in places.items():
            (gap,) = server.instances[NAME].gate.gaps(client)
            assert (gap.reason, gap.before, gap.after) == (Reason.REMOVE, place, place), "its last place is kept"
            assert gap.detail == "member my was removed"
            batch = await server.get_without_ack(NAME, client, timeout=SECONDS)
            assert "member my was removed" in str(entries(batch)[0]), "a marker"
            await server.ack(NAME, client, batch_id=batch.batch_id)
            assert await take(server, 1, client=client) == [("maria", "3")]
    mariadb118.query(f"INSERT INTO {tables['maria']} VALUES (4, '')")
    async with embedded(configuration) as server:
        for client in places:
            assert len(server.moves(NAME)[client]) == 1
            assert await take(server, 1, client=client) == [("maria", "4")]
        await server.subscribe(NAME, 1003)
        await soon(lambda: server.status(NAME, 1003).position)
    async with embedded(configuration) as server:
        await soon(lambda: server.destination_status(NAME).state == "running")
        assert not server.instances[NAME].gate.gaps(1003), "it began after that"


async def test_after_a_restart_a_client_is_told_only_what_it_had_not_got_of_a_member_that_was_removed_before(
    mysql97: Server, mariadb118: Server, database: Database, tmp_path: Path
) -> None:
    servers = {"my": mysql97, "maria": mariadb118}
    async with changing(servers, tmp_path, database) as (server, tables, configure):
        await join_maria(server, configure)
        await server.subscribe(NAME, BEHIND)
        mysql97.query(f"INSERT INTO {tables['my']} VALUES (1, '')")
        assert await take(server, 1) == [("my", "1")]
        configuration = configure("maria")
        await server.reload(NAME)
        await soon(lambda: server.moves(NAME).get(CLIENT))
        assert not server.instances[NAME].gate.open_gaps, "the ring has what they lack"
    async with embedded(configuration) as server:
        await soon(lambda: server.destination_status(NAME).state == "running")
        assert not server.instances[NAME].gate.gaps(CLIENT)
        (gap,) = server.instances[NAME].gate.gaps(BEHIND)
        assert gap.reason is Reason.REMOVE


@pytest.mark.parametrize(("is_stopped", "store"), [(False, "memory"), (True, "memory"), (True, "mixed")])
async def test_a_group_does_not_start_with_the_name_of_a_member_that_was_removed(
    mysql97: Server, mariadb118: Server, database: Database, tmp_path: Path, *, is_stopped: bool, store: str
) -> None:
    servers = {"my": mysql97, "maria": mariadb118}
    async with changing(servers, tmp_path, database, store=store, store_min_free=0) as (server, tables, configure):
        both = await join_maria(server, configure)
        mysql97.query(f"INSERT INTO {tables['my']} VALUES (1, '')")
        assert await take(server, 1) == [("my", "1")]
        alone = configure("maria")
        if not is_stopped:
            await server.reload(NAME)
            await soon(lambda: server.moves(NAME).get(CLIENT))
    if is_stopped:
        async with embedded(alone) as server:
            await soon(lambda: server.moves(NAME).get(CLIENT))
            assert bool(server.instances[NAME].gate.open_gaps) == (store == "memory"), "the log ends at its place"
    with pytest.raises(ConfigError, match=r"member my was removed, .* a name is not used again"):
        async with embedded(both):
            pass
    mariadb118.query(f"INSERT INTO {tables['maria']} VALUES (2, '')")
    async with embedded(alone) as server:
        assert (await take(server, 1, wait=SECONDS))[-1:] == [("maria", "2")]


async def test_the_oldest_place_is_after_all_of_a_member_that_was_removed(
    mysql97: Server, mariadb118: Server, database: Database, tmp_path: Path
) -> None:
    servers = {"my": mysql97, "maria": mariadb118}
    async with changing(servers, tmp_path, database) as (server, tables, configure):
        await join_maria(server, configure)
        mysql97.query(f"INSERT INTO {tables['my']} VALUES (1, '')")
        mariadb118.query(f"INSERT INTO {tables['maria']} VALUES (2, '')")
        assert sorted(await take(server, 2)) == [("maria", "2"), ("my", "1")]
        configure("maria")
        await server.reload(NAME)
        await soon(lambda: "my" not in members(server))
        await server.seek(NAME, CLIENT, "oldest")
        assert ("maria", "2") in await take(server, 1)
        await soon(lambda: server.status(NAME, CLIENT).state == "attached")


async def test_a_client_that_catches_up_while_a_member_joins_gets_all_of_that(
    mysql97: Server, mariadb118: Server, database: Database, tmp_path: Path
) -> None:
    servers = {"my": mysql97, "maria": mariadb118}
    async with changing(servers, tmp_path, database, memory_buffer_size=64) as (server, tables, configure):
        begin = server.status(NAME, CLIENT).position
        for number in range(100):
            mysql97.query(f"INSERT INTO {tables['my']} VALUES ({number}, '')")
        assert len(await take(server, 100)) == 100
        await server.subscribe(NAME, BEHIND, start=begin)
        batch = await server.get_without_ack(NAME, BEHIND, timeout=SECONDS)
        assert batch.entries
        await join_maria(server, configure)
        mariadb118.query(f"INSERT INTO {tables['maria']} VALUES (2, '')")
        mysql97.query(f"INSERT INTO {tables['my']} VALUES (103, '')")
        assert sorted(await take(server, 2)) == [("maria", "2"), ("my", "103")]
        assert server.status(NAME, BEHIND).state == "catching-up"
        await server.ack(NAME, BEHIND, batch_id=batch.batch_id, durable=True)
        assert ("maria", "2") in await take(server, 102, wait=5, client=BEHIND)
        await soon(lambda: server.status(NAME, BEHIND).state == "attached")


async def rows_in(server: EmbeddedServer, begin: str, end: str) -> list[tuple[str, str]]:
    """Read a range: the member of each row, and its first column."""
    found = []
    async for batch in server.rows(NAME, CLIENT, begin, end):
        for it in entries(batch):
            if it.entryType == pb.ROWDATA and (rows := pb.RowChange.FromString(it.storeValue).rowDatas):
                (member,) = [prop.value for prop in it.header.props if prop.key == "sluice.member"]
                found += [(member, row.afterColumns[0].value) for row in rows]
    return found


async def test_a_range_from_before_a_member_joined_has_all_of_it_while_its_start_is_known(
    mysql97: Server, mariadb118: Server, database: Database, tmp_path: Path
) -> None:
    servers = {"my": mysql97, "maria": mariadb118}
    async with changing(servers, tmp_path, database, memory_buffer_size=64) as (server, tables, configure):
        begin = server.status(NAME, CLIENT).position
        mysql97.query(f"INSERT INTO {tables['my']} VALUES (1, '')")
        assert await take(server, 1) == [("my", "1")]
        between = server.status(NAME, CLIENT).position
        configuration = await join_maria(server, configure)
        mariadb118.query(f"INSERT INTO {tables['maria']} VALUES (2, '')")
        assert await take(server, 1) == [("maria", "2")]
        end = server.status(NAME, CLIENT).position
        for number in range(10, 50):  # more than the ring holds
            mysql97.query(f"INSERT INTO {tables['my']} VALUES ({number}, '')")
        assert len(await take(server, 40)) == 40
        async with asyncio.timeout(SECONDS):
            assert sorted(await rows_in(server, begin, end)) == [("maria", "2"), ("my", "1")]
            assert await rows_in(server, begin, between) == [("my", "1")]
            parts = await server.splits(NAME, CLIENT, begin, end, 2)
            assert (parts[0].from_, parts[-1].to, sum(it.rows for it in parts)) == (begin, end, 2)
            status = await server.position(NAME, CLIENT, after=begin, until=end, timeout=1)
            assert (status.range.from_, status.range.rows > 0) == (begin, True)
    async with embedded(configuration) as server:
        await soon(lambda: server.destination_status(NAME).state == "running")
        latest = server.status(NAME, CLIENT).position
        async with asyncio.timeout(5):
            for call in (
                rows_in(server, begin, end),
                server.splits(NAME, CLIENT, begin, end, 2),
                server.position(NAME, CLIENT, after=begin),
                server.seek(NAME, CLIENT, begin),
                server.subscribe(NAME, BEHIND, start=begin),
            ):
                with pytest.raises(GoneError, match="member maria has joined the group since"):
                    await call
        assert server.status(NAME, CLIENT).position == latest
        assert server.instances[NAME].cursors.clients.ids == [CLIENT]


async def test_a_snapshot_of_a_member_that_is_removed_pauses_and_says_so(
    mysql97: Server, mariadb118: Server, database: Database, tmp_path: Path
) -> None:
    servers = {"my": mysql97, "maria": mariadb118}
    async with changing(servers, tmp_path, database) as (server, tables, configure):
        await join_maria(server, configure)
        rows = ",".join(f"({it}, '')" for it in range(200))
        mysql97.query(f"INSERT INTO {tables['my']} VALUES {rows}")
        assert len(await take(server, 200)) == 200
        wanted = Selection(tables["my"].replace(".", r"\."), rate=20)
        snapshot = await server.start_snapshot(NAME, CLIENT, wanted)
        await soon(lambda: snapshot.rows or snapshot.chunk)
        configure("maria")
        await server.reload(NAME)
        await soon(lambda: "my" not in members(server))
        mysql97.query(f"INSERT INTO {tables['my']} VALUES (1000, '')")
        await soon(lambda: "the group has no member my" in snapshot.error, seconds=15)
        assert snapshot.is_paused
        mariadb118.query(f"INSERT INTO {tables['maria']} VALUES (1, '')")
        assert ("maria", "1") in await take(server, 20, wait=2)


async def test_nothing_of_a_member_is_lost_that_joined_before_a_restart(
    mysql97: Server, mariadb118: Server, database: Database, tmp_path: Path
) -> None:
    servers = {"my": mysql97, "maria": mariadb118}
    async with changing(servers, tmp_path, database) as (server, tables, configure):
        mysql97.query(f"INSERT INTO {tables['my']} VALUES (1, '')")
        batch = await server.get_without_ack(NAME, CLIENT, timeout=SECONDS)
        assert batch.entries
        configuration = await join_maria(server, configure)
        mariadb118.query(f"INSERT INTO {tables['maria']} VALUES (2, '')")
        batch = await server.get_without_ack(NAME, CLIENT, timeout=SECONDS)
        assert batch.entries  # nothing was acked
    mariadb118.query(f"INSERT INTO {tables['maria']} VALUES (3, '')")
    async with embedded(configuration) as server:
        assert sorted(await take(server, 3)) == [("maria", "2"), ("maria", "3"), ("my", "1")]


async def test_a_member_may_be_added_while_nothing_runs(
    mysql97: Server, mariadb118: Server, database: Database, tmp_path: Path
) -> None:
    servers = {"my": mysql97, "maria": mariadb118}
    async with changing(servers, tmp_path, database) as (server, tables, configure):
        mysql97.query(f"INSERT INTO {tables['my']} VALUES (1, '')")
        assert await take(server, 1) == [("my", "1")]
        configuration = configure("my", "maria")
    async with embedded(configuration) as server:
        await soon(lambda: members(server).get("maria") and members(server)["maria"].state == "merged")
        mariadb118.query(f"INSERT INTO {tables['maria']} VALUES (2, '')")
        mysql97.query(f"INSERT INTO {tables['my']} VALUES (3, '')")
        assert sorted(await take(server, 2)) == [("maria", "2"), ("my", "3")]


async def test_a_member_that_joined_while_a_client_was_not_served_is_read_on_for_the_others(
    mysql97: Server, mariadb118: Server, database: Database, tmp_path: Path
) -> None:
    servers = {"my": mysql97, "maria": mariadb118}
    async with changing(servers, tmp_path, database) as (server, tables, configure):
        mysql97.query(f"INSERT INTO {tables['my']} VALUES (1, '')")
        assert await take(server, 1) == [("my", "1")]
        before = server.status(NAME, CLIENT).position
        configuration = await join_maria(server, configure)
        await server.subscribe(NAME, BEHIND)
        mariadb118.query(f"INSERT INTO {tables['maria']} VALUES (2, '')")
        assert await take(server, 1) == [("maria", "2")]
        after = server.status(NAME, CLIENT).position
    stored = tmp_path / NAME / "meta.dat"
    data = json.loads(stored.read_text())
    for it in data["clientDatas"]:
        if it["clientIdentity"]["clientId"] == BEHIND:  # as one of a view that was stopped meanwhile
            it["sluice"] |= {"position": before, "gtid": ""}
    stored.write_text(json.dumps(data))
    mariadb118.query(f"INSERT INTO {tables['maria']} VALUES (3, '')")
    async with embedded(configuration) as server:
        mysql97.query(f"INSERT INTO {tables['my']} VALUES (4, '')")
        for client in (CLIENT, BEHIND):
            assert sorted(await take(server, 2, client=client)) == [("maria", "3"), ("my", "4")]
        place = parse_place(server.status(NAME, BEHIND).position)
        assert isinstance(place, Cut)
        assert place.places.keys() == servers.keys()
        assert parse_place(after).precedes(place)


async def test_others_go_on_without_a_member_that_cannot_be_read(
    mysql97: Server, mariadb118: Server, database: Database, tmp_path: Path
) -> None:
    servers = {"my": mysql97, "maria": mariadb118}
    async with changing(servers, tmp_path, database, max_wait=300) as (server, tables, configure):
        configuration = configure("my", "maria")
        wrong = config(mariadb118, tmp_path / "members", destination=f"{NAME}.maria", db_password="wrong")
        await server.close()
    async with embedded(configuration.with_parts({**configuration.parts, "maria": wrong})) as server:
        await soon(lambda: server.status(NAME, CLIENT).position)
        mysql97.query(f"INSERT INTO {tables['my']} VALUES (1, '')")
        assert await take(server, 1) == [("my", "1")]
        await soon(lambda: server.destination_status(NAME).state == "error")
        assert "member maria: " in server.destination_status(NAME).error
        assert members(server)["maria"].error
        assert not members(server)["my"].error


async def test_what_a_member_logs_as_statements_is_counted_while_the_others_go_on(
    mysql97: Server, mariadb118: Server, database: Database, tmp_path: Path
) -> None:
    servers = {"my": mysql97, "maria": mariadb118}
    async with serving(servers, tmp_path, database) as (server, tables):
        with mariadb118.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SET SESSION binlog_format = 'STATEMENT'")
            cursor.execute(f"INSERT INTO {tables['maria']} VALUES (1, '')")
        mysql97.query(f"INSERT INTO {tables['my']} VALUES (2, '')")
        assert await take(server, 1) == [("my", "2")]
        assert server.destination_status(NAME).parser.dml_statements == 1


async def lose_log(source: Server) -> None:
    """Let a source go on in another binlog file, and purge what was before."""
    source.query("FLUSH BINARY LOGS")
    file = str(source.query("SHOW BINARY LOGS")[-1][0])
    await asyncio.to_thread(source.purge_binlogs, file)


async def test_a_member_that_has_purged_what_comes_next_is_named_and_goes_on_with_what_it_has(
    mysql97: Server, mariadb118: Server, database: Database, tmp_path: Path
) -> None:
    servers = {"my": mysql97, "maria": mariadb118}
    async with serving(servers, tmp_path, database, max_wait=300) as (server, tables):
        wanted = server.config(NAME)
        mariadb118.query(f"INSERT INTO {tables['maria']} VALUES (1, '')")
        assert await take(server, 1) == [("maria", "1")]
    mariadb118.query(f"INSERT INTO {tables['maria']} VALUES (2, '')")  # is lost
    await lose_log(mariadb118)
    mariadb118.query(f"INSERT INTO {tables['maria']} VALUES (3, '')")
    async with embedded(wanted) as server:
        mysql97.query(f"INSERT INTO {tables['my']} VALUES (4, '')")
        assert await take(server, 1) == [("my", "4")]
        await soon(lambda: "member maria: " in server.destination_status(NAME).error)
        await soon(lambda: "has purged" in members(server)["maria"].error)
        mysql97.query(f"INSERT INTO {tables['my']} VALUES (5, '')")
        assert await take(server, 1) == [("my", "5")]
        await server.seek(NAME, CLIENT, "oldest")
        assert await take(server, 1) == [("maria", "3")], "it has the rows of the other member already"
        await soon(lambda: server.destination_status(NAME).state == "running")
        (jump,) = server.instances[NAME].cursors.gate.moves[CLIENT]
        assert not jump.held


async def test_a_gap_of_one_member_that_goes_on_after_a_purge_as_configured_is_told_and_the_others_lose_nothing(
    mysql97: Server, mariadb118: Server, database: Database, tmp_path: Path
) -> None:
    servers = {"my": mysql97, "maria": mariadb118}
    async with serving(servers, tmp_path, database) as (server, tables):
        wanted = server.config(NAME)
        assert isinstance(wanted, GroupConfig)
        mariadb118.query(f"INSERT INTO {tables['maria']} VALUES (1, '')")
        assert await take(server, 1) == [("maria", "1")]
        left = parse_place(server.status(NAME, CLIENT).position)
    mariadb118.query(f"INSERT INTO {tables['maria']} VALUES (2, '')")  # is lost
    await lose_log(mariadb118)
    mysql97.query(f"INSERT INTO {tables['my']} VALUES (4, '')")
    mode = {"auto_reset_latest_pos_mode": True}
    parts = {name: it.model_copy(update=mode) for name, it in wanted.parts.items()}
    async with embedded(wanted.model_copy(update=mode).with_parts(parts)) as server:
        await soon(lambda: server.instances[NAME].gate.gaps(CLIENT))
        (gap,) = server.instances[NAME].gate.gaps(CLIENT)
        assert (gap.reason, gap.before) == (Reason.PURGE, str(left))
        assert "has purged" in gap.detail
        mariadb118.query(f"INSERT INTO {tables['maria']} VALUES (3, '')")
        assert sorted(await take(server, 2)) == [("maria", "3"), ("my", "4")]


async def test_the_order_may_be_that_of_a_column(
    mysql97: Server, mariadb118: Server, database: Database, tmp_path: Path
) -> None:
    servers = {"my": mysql97, "maria": mariadb118}
    async with serving(servers, tmp_path, database, order="column:id") as (server, tables):
        mysql97.query(f"INSERT INTO {tables['my']} VALUES (4, '')")
        assert await take(server, 1) == [("my", "4")]
        mariadb118.query(f"INSERT INTO {tables['maria']} VALUES (3, '')")
        batch = await server.get_without_ack(NAME, CLIENT, timeout=SECONDS)
        rows = [it for it in entries(batch) if it.entryType == pb.ROWDATA]
        assert [prop.value for it in rows for prop in it.header.props if prop.key == "sluice.disorder"] == ["late"]
        assert members(server)["maria"].late >= 1


async def test_a_transaction_that_is_larger_than_its_pool_and_the_ring_passes_whole(
    mysql97: Server, mariadb118: Server, database: Database, tmp_path: Path
) -> None:
    servers = {"my": mysql97, "maria": mariadb118}
    async with serving(servers, tmp_path, database, pool=1 << 20, memory_buffer_size=1024) as (server, tables):
        rows = ",".join(f"({it}, REPEAT('x', 100000))" for it in range(50))
        mysql97.query(f"INSERT INTO {tables['my']} VALUES {rows}")
        mariadb118.query(f"INSERT INTO {tables['maria']} VALUES (1, '')")
        got = await take(server, 51)
        mine = [row for member, row in got if member == "my"]
        assert mine == [str(it) for it in range(50)]
        assert got.index(("maria", "1")) in (0, 50)


def test_a_group_is_examined_member_by_member(
    mysql97: Server, mariadb118: Server, database: Database, tmp_path: Path
) -> None:
    servers = {"my": mysql97, "maria": mariadb118}
    tables = {name: f"{database(it)}.orders" for name, it in servers.items()}
    for name, it in servers.items():
        it.query(f"CREATE TABLE {tables[name]} (id INT PRIMARY KEY)")
    configuration = group(servers, tmp_path, r".*\..*")
    with examine(configuration) as source:
        source.check(is_replaced=False)
        summary = source.summary()
        assert "member my: MySQL 9.7" in summary
        assert "member maria: MariaDB 11.8" in summary
        assert {tuple(it.split(".")) for it in tables.values()} <= set(source.tables())
        gone = Cut({"my": Position("another", "binlog.000001", 1, 4, 0)})
        assert source.refused([None]) == {}
        with pytest.raises(SourceChangedError):
            source.refused([Cursor.at(gone)])
        assert source.find(None).startswith("member my: at ")


def test_a_member_that_cannot_be_reached_is_named(mysql97: Server, tmp_path: Path) -> None:
    configuration = group({"my": mysql97}, tmp_path, r".*\..*")
    wrong = config(mysql97, tmp_path, db_password="wrong")
    with pytest.raises(SourceError, match="member other: "):
        examine(configuration.with_parts({**configuration.parts, "other": wrong}))


def test_a_heartbeat_proves_what_was_read_when_it_came_although_the_ring_was_full_meanwhile(
    mysql97: Server, database: Database, tmp_path: Path
) -> None:
    table = f"{database(mysql97)}.orders"
    mysql97.query(f"CREATE TABLE {table} (id INT PRIMARY KEY)")
    ring, begun, proofs = Ring(4), threading.Event(), list[tuple[int, float]]()
    parser = Parser(
        config(mysql97, tmp_path, filter_regex=table.replace(".", r"\.")),
        ring,
        start=None,
        on_begin=lambda *_: begun.set(),
        on_state=lambda *_: None,
    )
    parser.heartbeat = 0.05
    parser.on_caught_up = lambda at: proofs.append((ring.next, at))
    parser.start()
    try:
        assert begun.wait(SECONDS)
        for number in range(2):  # of which the ring holds one
            mysql97.query(f"INSERT INTO {table} VALUES ({number})")
        eventually(lambda: ring.waiting)
        time.sleep(0.2)  # heartbeats come
        mysql97.query(f"INSERT INTO {table} VALUES (2)")
        time.sleep(0.2)
        before = ring.next
        ring.free_to(before)
        eventually(lambda: ring.next > before and ring.waiting)  # the heartbeats have come, with what waits
        proofs.clear()
        written = time.monotonic()
        mysql97.query(f"INSERT INTO {table} VALUES (3)")
        time.sleep(0.2)
        ring.free_to(ring.next)
        eventually(lambda: proofs)
        assert proofs[0][1] < written, "what was written after that is not read"
    finally:
        parser.stop()
        ring.close()
        parser.join(10)


def test_a_member_sends_heartbeats_before_its_silence_counts_as_a_lost_connection(
    mariadb118: Server, tmp_path: Path
) -> None:
    states: list[str] = []
    parser = Parser(
        config(mariadb118, tmp_path, so_timeout=1),
        Ring(16),
        start=None,
        on_begin=lambda *_: None,
        on_state=lambda state, _: states.append(state),
    )
    parser.heartbeat = 30
    parser.start()
    try:
        eventually(lambda: "running" in states)
        time.sleep(2)
        assert "error" not in states
    finally:
        parser.stop()
        parser.join(10)
