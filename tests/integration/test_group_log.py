"""A group with a log on disk: its clients read on after a purge, a restart and a gap; and a source that becomes one."""

import asyncio
import json
from collections import defaultdict
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sluice.instance.serving.tail import Followed, Tail
from sluice.instance.sources.group.config import GroupConfig
from sluice.instance.sources.registry import make_parser
from sluice.instance.verification import LogReport, compare_log
from sluice.protocol.canal.rows import decode_rows
from sluice.protocol.cut import Cut, parse_place
from sluice.protocol.errors import ConfigError
from sluice.server.embedded import EmbeddedServer
from sluice.store.moves import Reason
from tests import commands
from tests.conftest import Database
from tests.integration.test_cli import with_shape
from tests.integration.test_group import group
from tests.integration.test_log import CLIENT, NAME, extent, fill, purge
from tests.integration.test_log import take as take_ids
from tests.reading import config, embedded
from tests.servers import Server
from tests.waiting import soon

OTHER = 1002
Members = dict[str, tuple[Server, str]]


@pytest.fixture
def members(mysql97: Server, mariadb118: Server, database: Database) -> Members:
    """The servers of a group, each with its schema: of one name would be those of one table."""
    found = {"my": (mysql97, database(mysql97)), "maria": (mariadb118, database(mariadb118))}
    for server, schema in found.values():
        server.query(f"CREATE TABLE {schema}.numbers (id INT PRIMARY KEY, filler VARCHAR(5000))")
    return found


def configured(members: Members, folder: Path, **settings: Any) -> GroupConfig:
    """A group with a log, and a ring of 1 MiB."""
    options = {"store": "mixed", "file_flush_period": 20, "memory_buffer_size": 1024, "store_min_free": 0}
    return group({name: it for name, (it, _) in members.items()}, folder, tables(members), **(options | settings))


def tables(members: Members) -> str:
    """A filter that lets the tables of these members pass."""
    return ",".join(rf"{schema}\..*" for _, schema in members.values())


def logging(members: Members, folder: Path, **settings: Any) -> AbstractAsyncContextManager[EmbeddedServer]:
    return embedded(configured(members, folder, **settings))


async def write(server: EmbeddedServer, members: Members, first: int, last: int) -> None:
    """Insert rows into each member, and wait until the log has them."""
    await asyncio.gather(*(asyncio.to_thread(fill, it, schema, first, last) for it, schema in members.values()))
    end = await server.instances[NAME].source_end()
    await soon(lambda: end.precedes(extent(server).stretches[-1][1]))


async def take(server: EmbeddedServer, members: Members, count: int, client: int = CLIENT) -> dict[str, list[int]]:
    """Take at least `count` rows of all members together: the ids by the member."""
    names = {schema: name for name, (_, schema) in members.items()}
    found: dict[str, list[int]] = defaultdict(list)
    while sum(map(len, found.values())) < count:
        batch = await server.get_without_ack(NAME, client, timeout=10)
        assert batch.entries, (found, server.status(NAME, client))
        for row in decode_rows(b"".join(batch.slices)):
            if row.after:
                found[names[row.schema]].append(row.after["id"])
        await server.ack(NAME, client, batch_id=batch.batch_id, durable=True)
    return found


def each(members: Members, first: int, last: int) -> dict[str, list[int]]:
    return {name: list(range(first, last + 1)) for name in members}


async def running(server: EmbeddedServer) -> None:
    await soon(lambda: server.destination_status(NAME).state == "running")


async def test_a_client_of_a_group_reads_from_the_log_what_the_members_have_purged(
    members: Members, tmp_path: Path
) -> None:
    async with logging(members, tmp_path) as server:
        await server.subscribe(NAME, CLIENT)
        await soon(lambda: server.status(NAME, CLIENT).position)
        await write(server, members, 1, 400)  # more than twice what the ring holds
        await asyncio.gather(*(purge(it) for it, _ in members.values()))
        assert await take(server, members, 800) == each(members, 1, 400)
        await soon(lambda: server.status(NAME, CLIENT).state == "attached")
        await write(server, members, 401, 402)
        assert await take(server, members, 4) == each(members, 401, 402)


async def test_the_log_of_a_group_goes_on_after_a_restart_and_serves_a_client_in_the_middle_of_it(
    members: Members, tmp_path: Path
) -> None:
    async with logging(members, tmp_path) as server:
        await server.subscribe(NAME, CLIENT)
        await server.subscribe(NAME, OTHER)
        await soon(lambda: server.status(NAME, OTHER).position)
        await write(server, members, 1, 200)
        before = await take(server, members, 100)
        end = extent(server).stretches[-1][1]
    for it, schema in members.values():
        await asyncio.to_thread(fill, it, schema, 201, 210)
    async with logging(members, tmp_path) as server:
        await running(server)
        await write(server, members, 211, 300)
        assert len(extent(server).stretches) == 1
        assert end.precedes(extent(server).stretches[0][1])
        left = 600 - sum(map(len, before.values()))
        after = await take(server, members, left)
        assert {name: before[name] + after[name] for name in members} == each(members, 1, 300)
        assert await take(server, members, 600, OTHER) == each(members, 1, 300)
        place = parse_place(server.status(NAME, CLIENT).acked or "")
        assert isinstance(place, Cut)
        assert place.places.keys() == members.keys()


async def test_what_the_log_of_a_group_lacks_is_read_of_each_member_up_to_where_it_goes_on(
    members: Members, tmp_path: Path
) -> None:
    async with logging(members, tmp_path, store_max_bytes=8 << 20) as server:
        await server.subscribe(NAME, CLIENT)
        await soon(lambda: server.status(NAME, CLIENT).position)
        for first in range(1, 801, 50):
            await write(server, members, first, first + 49)
        files = extent(server).files
        assert len(files) > 3
    lost = files[len(files) // 2].name
    folder = tmp_path / NAME / "log"
    (folder / lost).rename(tmp_path / lost)  # what follows the beginning is there, and so is the end
    async with logging(members, tmp_path) as server:
        await running(server)
        assert len(extent(server).stretches) == 2
        assert await take(server, members, 1600) == each(members, 1, 800)


async def test_the_log_that_a_server_has_kept_while_it_stood_by_serves_the_clients_of_a_group(
    members: Members, tmp_path: Path
) -> None:
    tail = Tail(configured(members, tmp_path), make_parser, Followed(None, {}))
    await tail.start()
    try:
        await soon(lambda: tail.state == "running")
        await asyncio.gather(*(asyncio.to_thread(fill, it, schema, 1, 50) for it, schema in members.values()))
        end = await tail.source_end()
        await soon(lambda: tail.log_extent and end.precedes(tail.log_extent.stretches[-1][1]))
    finally:
        await tail.stop()
    await asyncio.gather(*(purge(it) for it, _ in members.values()))
    async with logging(members, tmp_path) as server:
        await running(server)
        await server.subscribe(NAME, CLIENT)
        assert await take(server, members, 100) == each(members, 1, 50)
        assert len(extent(server).stretches) == 1


def test_the_check_says_what_the_file_of_beans_of_a_group_implies(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "canal.properties").write_text("canal.destinations = shop\n")
    (tmp_path / "shop" / "instance.properties").write_text(
        "canal.instance.global.spring.xml = classpath:spring/group-instance.xml\n"
        "canal.instance.master1.address = 127.0.0.1:1\n"  # nobody listens there
        "canal.instance.dbUsername = canal\n"
    )
    said = commands.run("check", "--conf", str(tmp_path)).stdout
    assert "group-instance.xml implies sluice.instance.store = mixed and sluice.instance.meta = file" in said


async def write_files(server: EmbeddedServer, members: Members) -> str:
    """Insert rows 1 to 1600 into each member; return the name of a file in the middle of the log, of several."""
    for first in range(1, 1601, 100):
        await write(server, members, first, first + 99)
    files = extent(server).files
    assert len(files) > 3
    return files[len(files) // 2].name


async def test_clients_get_from_the_log_all_of_a_member_that_was_removed_while_nothing_ran(
    members: Members, tmp_path: Path
) -> None:
    async with logging(members, tmp_path) as server:
        await server.subscribe(NAME, CLIENT)
        await server.subscribe(NAME, OTHER)
        await soon(lambda: server.status(NAME, OTHER).position)
        await write(server, members, 1, 400)
        assert await take(server, members, 800) == each(members, 1, 400)
    left = {"maria": members["maria"]}
    async with logging(left, tmp_path) as server:
        await running(server)
        fill(*left["maria"], 401, 401)
        assert await take(server, members, 1) == {"maria": [401]}
        assert await take(server, members, 801, OTHER) == each(members, 1, 400) | {"maria": list(range(1, 402))}
        await soon(lambda: server.status(NAME, OTHER).state == "attached")
        assert not server.instances[NAME].gate.open_gaps
        assert server.instances[NAME].gate.removed_members == {"my"}


async def test_behind_a_hole_of_the_log_a_client_is_told_what_nothing_reads_any_more_and_gets_the_rest(
    members: Members, tmp_path: Path
) -> None:
    async with logging(members, tmp_path, store_max_bytes=8 << 20) as server:
        await server.subscribe(NAME, CLIENT)
        await soon(lambda: server.status(NAME, CLIENT).position)
        lost = await write_files(server, members)
    (tmp_path / NAME / "log" / lost).rename(tmp_path / lost)
    async with logging({"maria": members["maria"]}, tmp_path, filter_regex=tables(members)) as server:
        await running(server)
        found: dict[str, list[int]] = {"my": [], "maria": []}
        while len(found["maria"]) < 1600 or found["my"][-1:] != [1600]:
            for name, rows in (await take(server, members, 1)).items():
                found[name] += rows
        assert found["maria"] == each(members, 1, 1600)["maria"]
        missing = sorted(set(range(1, 1601)) - set(found["my"]))
        assert found["my"] == [it for it in range(1, 1601) if it not in missing]
        runs = sum(it - 1 not in missing for it in missing)  # its limit has taken away the beginning of the log, too
        gaps = server.instances[NAME].gate.gaps(CLIENT)
        assert len(gaps) == runs == 2
        assert {(it.reason, it.detail) for it in gaps} == {(Reason.REMOVE, "member my was removed")}


async def test_a_member_that_joins_keeps_no_client_behind_a_hole_of_the_log_from_reading_the_others(
    members: Members, tmp_path: Path
) -> None:
    alone = {"my": members["my"]}
    async with logging(alone, tmp_path, store_max_bytes=8 << 20, filter_regex=tables(members)) as server:
        await server.subscribe(NAME, CLIENT)
        await soon(lambda: server.status(NAME, CLIENT).position)
        lost = await write_files(server, alone)
    (tmp_path / NAME / "log" / lost).rename(tmp_path / lost)
    async with logging(members, tmp_path) as server:
        await running(server)
        assert await take(server, members, 1600) == each(alone, 1, 1600)
        await soon(lambda: server.destination_status(NAME).parser.members[-1].state == "merged")
        await write(server, members, 1601, 1601)
        assert await take(server, members, 2) == each(members, 1601, 1601)


def single(members: Members, name: str, folder: Path, **settings: Any) -> Any:
    server, schema = members[name]
    return config(server, folder, filter_regex=rf"{schema}\..*", file_flush_period=20, **settings)


def clients(folder: Path) -> Any:
    """What is stored of the clients."""
    return json.loads((folder / NAME / "meta.dat").read_text())["clientDatas"]


async def test_a_single_source_becomes_a_member_and_is_one_again(members: Members, tmp_path: Path) -> None:
    server, schema = members["my"]
    async with embedded(single(members, "my", tmp_path)) as alone:
        await alone.subscribe(NAME, CLIENT)
        await soon(lambda: alone.status(NAME, CLIENT).position)
        fill(server, schema, 1, 4)
        assert await take_ids(alone, 4) == [1, 2, 3, 4]
        await soon(lambda: alone.status(NAME, CLIENT).acked == alone.status(NAME, CLIENT).position)
    fill(server, schema, 5, 6)
    fill(*members["maria"], 1, 2)  # before it joins
    stored = clients(tmp_path)

    with pytest.raises(ConfigError, match=r"say which member that source is, by sluice\.group\.was"):
        async with logging(members, tmp_path, store="memory"):
            pass
    assert clients(tmp_path) == stored

    async with logging(members, tmp_path, store="memory", was="my") as merged:
        await running(merged)
        await soon(lambda: merged.destination_status(NAME).parser.members)
        assert (await take(merged, members, 2)) == {"my": [5, 6]}
        fill(*members["maria"], 3, 4)
        fill(server, schema, 7, 7)
        assert await take(merged, members, 3) == {"my": [7], "maria": [3, 4]}

    with pytest.raises(ConfigError, match=r"say which of its members this source is, by sluice\.group\.was"):
        async with embedded(single(members, "my", tmp_path)):
            pass
    fill(server, schema, 8, 9)
    async with embedded(single(members, "my", tmp_path, was="my")) as alone:
        assert await take_ids(alone, 2) == [8, 9]


ROWS = 30
ENTRIES = 3 * ROWS
"""Of a member: each row is a transaction."""


def compared(members: Members, folder: Path, everyone: Members, start: Cut | None = None) -> LogReport:
    """Compare the log of these members; the filter is that of all of them."""
    config = configured(members, folder, filter_regex=tables(everyone))
    return compare_log(config, make_parser, None if start is None else str(start), None, lambda *_: None)


def are_merged(server: EmbeddedServer, names: Sequence[str]) -> bool:
    """Whether these members have begun, and no other one is read."""
    found = server.destination_status(NAME).parser.members
    return [it.name for it in found if it.state == "merged"] == [it.name for it in found] == [*names]


async def write_log(members: Members, folder: Path) -> Sequence[Cut]:
    """Write the log of a group: of one member, of both, and of the other one alone; return where each part ends."""
    ends: list[Cut] = []
    for number, names in enumerate((["my"], ["my", "maria"], ["maria"])):
        those = {name: members[name] for name in names}
        async with logging(those, folder, filter_regex=tables(members)) as server:
            await running(server)
            await soon(partial(are_merged, server, names))
            await write(server, those, 1 + number * ROWS, (1 + number) * ROWS)
            end = extent(server).stretches[-1][1]
            assert isinstance(end, Cut)
            ends.append(end)
    return ends


async def test_the_log_of_a_group_is_compared_with_each_member(members: Members, tmp_path: Path) -> None:
    ends = await write_log(members, tmp_path)
    report = compared(members, tmp_path, members)
    assert (report.different, report.entries, dict(report.unread)) == (0, 4 * ENTRIES, {}), report.differences
    after_first = compared(members, tmp_path, members, ends[0])
    assert (after_first.different, after_first.entries) == (0, 3 * ENTRIES), after_first.differences
    left = compared({"maria": members["maria"]}, tmp_path, members)
    assert (left.different, left.entries) == (0, 2 * ENTRIES)
    assert all("of member my, is not configured any more" in it for it in left.unread)
    assert left.unread


async def test_what_differs_or_is_purged_is_named_with_its_member(members: Members, tmp_path: Path) -> None:
    await write_log(members, tmp_path)
    path = max((tmp_path / NAME / "log").glob("*.log"))
    content = path.read_bytes()
    path.write_bytes(with_shape(path, {"canal.instance.filter.dml.insert": True}))
    report = compared(members, tmp_path, members)
    assert report.different >= ROWS
    assert all(it.startswith("maria/") for it in report.differences), report.differences
    assert any("only the log has it: ROWDATA" in it for it in report.differences)
    path.write_bytes(content)
    await purge(members["my"][0])
    report = compared(members, tmp_path, members)
    assert (report.different, report.entries) == (0, 2 * ENTRIES), report.differences
    assert report.unread
    assert all("of member my, which the source does not have" in it for it in report.unread)


async def test_the_log_of_another_kind_of_source_is_refused_by_name(members: Members, tmp_path: Path) -> None:
    await write_log(members, tmp_path)
    single = (
        configured(members, tmp_path)
        .parts["my"]
        .model_copy(update={"destination": NAME, "file_data_dir": tmp_path, "store": "mixed"})
    )
    with pytest.raises(ConfigError, match=rf"{NAME} reads a single source, and the log in .* has places of a group"):
        compare_log(single, make_parser, None, None, lambda *_: None)
