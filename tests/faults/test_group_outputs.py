"""Outputs of a group: each change of each member arrives once and in its order, while servers die."""

import contextlib
import itertools
import json
import random
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests import commands
from tests.conftest import Database
from tests.faults.harness import Load, Sluice
from tests.faults.test_mysql_output import copy_of, output_of, rows, wait_equal
from tests.faults.test_mysql_refusals import write_at_once
from tests.groups import Group, configure
from tests.kafka import ops, seen
from tests.servers import Server
from tests.servers.kafka import Kafka
from tests.waiting import eventually

Members = Mapping[str, tuple[Server, str]]


@pytest.fixture
def members(mysql97: Server, mariadb118: Server, database: Database) -> Members:
    return {name: (it, database(it)) for name, it in (("my", mysql97), ("maria", mariadb118))}


@pytest.fixture
def loads(members: Members) -> dict[str, Load]:
    """Writers to all members, by their schemas."""
    return {schema: Load(server, schema, writers=2) for server, schema in members.values()}


@contextlib.contextmanager
def writing(loads: Mapping[str, Load]) -> Iterator[None]:
    """Write to all members while the block lasts."""
    with contextlib.ExitStack() as stack:
        for it in loads.values():
            stack.enter_context(it)
        yield


def kill(sluice: Sluice, loads: Mapping[str, Load], times: int) -> None:
    """Kill and start the server so often, while all members write; then let them end."""
    chance = random.Random(7)
    for _ in range(times):
        goals = {schema: load.committed + chance.randrange(20, 100) for schema, load in loads.items()}
        eventually(lambda: all(load.committed > goals[schema] for schema, load in loads.items()))  # noqa: B023
        sluice.kill()
        sluice.start()
    for load in loads.values():
        load.finish(stop=True)


def check(loads: Mapping[str, Load], lines: Iterable[bytes]) -> dict[str, int]:
    """Check that the messages are what the members have written, in the order of its member; return how many."""
    messages = [(json.loads(it)["database"], it) for it in lines]
    return {
        schema: load.check(seen(ops(it for name, it in messages if name == schema))) for schema, load in loads.items()
    }


def changes(loads: Mapping[str, Load]) -> dict[str, int]:
    """How much each member has written."""
    return {schema: load.changes() for schema, load in loads.items()}


def has_ends(loads: Mapping[str, Load], lines: Iterable[bytes]) -> bool:
    """Whether the rows that the members have written last are there."""
    messages = [json.loads(it) for it in lines]
    return {it["database"] for it in messages if (it["table"], it["type"]) == ("finished", "INSERT")} == set(loads)


def output(**settings: object) -> dict[str, Any]:
    return {"sluice__outputs": "copy"} | {f"sluice__output__copy__{key}": it for key, it in settings.items()}


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.extended)])
@pytest.mark.timeout(600)
def test_files_have_each_change_of_each_member_once(
    sluice: Sluice, members: Members, loads: dict[str, Load], tmp_path: Path, kills: int
) -> None:
    folder = tmp_path / "files"

    def read() -> list[bytes]:
        indexes = [json.loads(it.read_text()) for it in sorted(folder.glob("*.index"))]
        return [line for it in indexes for line in (folder / it["file"]).read_bytes().splitlines()]

    configure(sluice, members, **output(type="file", folder=folder, fileBytes=1 << 16, fileSeconds=3, maxBytes=8192))
    with sluice.reading(), writing(loads):
        kill(sluice, loads, kills)
        eventually(lambda: has_ends(loads, read()), "the ends in files")
        assert check(loads, read()) == changes(loads)


@pytest.mark.extended
@pytest.mark.timeout(600)
def test_a_topic_has_each_change_of_each_member_once(
    sluice: Sluice, members: Members, loads: dict[str, Load], kafka: Kafka
) -> None:
    topic = f"group_{members['my'][1]}"
    kafka.create(topic)
    settings = output(type="kafka", format="flat", topic=topic, transactional="true", transactionalId=topic)
    settings["sluice__output__copy__kafka__bootstrap__servers"] = kafka.servers

    def read() -> list[bytes]:
        return [value for partition in kafka.read(topic) for value in partition]

    configure(sluice, members, **settings, sluice__output__copy__headers="true")
    with sluice.reading(), writing(loads):
        kill(sluice, loads, 3)
        eventually(lambda: has_ends(loads, read()), "the ends in the topic")
        assert check(loads, read()) == changes(loads)
    places = {
        value.decode() for name, value in itertools.chain(*kafka.read_headers(topic)) if name == "sluice-position"
    }
    assert {it.partition("/")[0] for it in places} == set(members)
    assert {it.count("/") for it in places} == {2}


@pytest.mark.extended
@pytest.mark.timeout(600)
def test_a_target_has_the_tables_of_all_members(
    sluice: Sluice, members: Members, loads: dict[str, Load], mysql80: Server
) -> None:
    url = f"mysql://{mysql80.user}@{mysql80.host}:{mysql80.port}/"
    progress = f"{members['my'][1]}_progress"
    given = {"type": "mysql", "url": url, "password": mysql80.password, "start": "earliest", "progress": progress}
    with contextlib.ExitStack() as stack:
        for server, schema in members.values():
            stack.enter_context(copy_of(server, mysql80, schema))
        configure(sluice, members, **output(**given))
        with sluice.reading(), writing(loads):
            kill(sluice, loads, 3)
            for server, schema in members.values():
                wait_equal(sluice, server, mysql80, schema, "a", "b", "ledger", "finished")
            assert output_of(sluice)["state"] == "running"


@pytest.mark.extended
@pytest.mark.timeout(600)
def test_a_target_begins_with_the_tables_that_all_members_have(
    sluice: Sluice, members: Members, loads: dict[str, Load], mysql80: Server
) -> None:
    url = f"mysql://{mysql80.user}@{mysql80.host}:{mysql80.port}/"
    progress = f"{members['my'][1]}_progress"
    given = {"type": "mysql", "url": url, "password": mysql80.password, "start": "snapshot", "progress": progress}
    with writing(loads), contextlib.ExitStack() as stack:
        for server, schema in members.values():
            stack.enter_context(copy_of(server, mysql80, schema))
        eventually(lambda: all(it.committed > 50 for it in loads.values()))
        configure(sluice, members, **output(**given))
        with sluice.reading():
            kill(sluice, loads, 2)
            for server, schema in members.values():
                wait_equal(sluice, server, mysql80, schema, "a", "b", "ledger", "finished")
            assert output_of(sluice)["state"] == "running"


def test_the_transaction_of_a_row_that_a_target_refuses_is_found_among_those_of_a_group(
    sluice: Sluice, mariadb118: Server, mysql97: Server, database: Database
) -> None:
    schema = database(mariadb118)
    mariadb118.query("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9) CHARSET latin1)", database=schema)
    url = f"mysql://{mysql97.user}@{mysql97.host}:{mysql97.port}/"
    given = {"type": "mysql", "url": url, "password": mysql97.password, "onRefused": "skip"}
    with copy_of(mariadb118, mysql97, schema):
        mysql97.query("ALTER TABLE t MODIFY v VARCHAR(3) CHARSET latin1", database=schema)
        configure(sluice, {"maria": (mariadb118, schema)}, **output(**given, progress=f"{schema}_progress"))
        with sluice.reading():
            eventually(lambda: output_of(sluice)["state"] == "running", lambda: output_of(sluice))
            write_at_once(sluice, mariadb118, mysql97, schema)
            eventually(lambda: len(rows(mysql97, schema, "t")) == 8, lambda: output_of(sluice))
            assert [it for it, _ in rows(mysql97, schema, "t") if it < 10] == [0, 1, 3, 5]
            assert output_of(sluice)["skipped"] == 2


def test_files_have_all_that_was_read_of_a_member_once_although_it_is_removed_while_nothing_runs(
    sluice: Sluice, members: Members, tmp_path: Path
) -> None:
    folder, group = tmp_path / "files", Group(members)
    settings = output(type="file", folder=folder, fileSeconds=1) | {
        "canal__instance__filter__regex": ",".join(rf"{schema}\\..*" for _, schema in members.values())
    }

    def read() -> list[tuple[str, str]]:
        indexes = [json.loads(it.read_text()) for it in sorted(folder.glob("*.index"))]
        lines = [json.loads(line) for it in indexes for line in (folder / it["file"]).read_bytes().splitlines()]
        return sorted((it["member"], row["id"]) for it in lines if it["type"] == "INSERT" for row in it["data"])

    def are_there(*rows: tuple[str, str]) -> None:
        eventually(lambda: read() == sorted(rows), lambda: (read(), output_of(sluice)))

    configure(sluice, members, **settings)
    with sluice:
        sluice.wait_running()
        eventually(lambda: output_of(sluice)["state"] == "running")
        for name in members:
            group.write(name, 1, 2)
        had = [(name, it) for name in members for it in ("1", "2")]
        are_there(*had)
    for name in members:
        group.write(name, 3)
    configure(sluice, {"maria": members["maria"]}, **settings)
    with sluice:
        eventually(lambda: "member my was removed" in output_of(sluice)["lastError"], lambda: output_of(sluice))
        (gap,) = sluice.call("GET", "/shop/moves")
        assert (gap["reason"], gap["state"], gap["members"]) == ("remove", "open", ["my"])
        assert gap["before"] == gap["after"], "nobody knows how much was missed"
        assert read() == sorted(had), "it stops there"
        confirmed = commands.run("gaps", "confirm", "shop", str(gap["clientId"]), "--url", sluice.url)
        assert confirmed.returncode == 0, confirmed.stderr
        group.write("maria", 4)
        are_there(*had, ("maria", "3"), ("maria", "4"))
