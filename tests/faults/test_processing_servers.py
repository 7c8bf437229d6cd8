"""Several servers that process the rows of one destination: one of them at a time, and each change once."""

import contextlib
import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests import commands
from tests.conftest import Database
from tests.faults.harness import Load, Sluice
from tests.faults.test_file_output import lines
from tests.faults.test_ha import state
from tests.faults.test_processing import MARK, taken
from tests.kafka import ops, seen
from tests.servers import Server, ZooKeeper
from tests.waiting import eventually

MADE = "made"
MODULE = "processor_of_servers"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The function, where each server finds it."""
    (tmp_path / f"{MODULE}.py").write_text(MARK)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


def process(server: Sluice, *feeding: Sluice, schema: str, tables: Sequence[str], **settings: object) -> None:
    """Configure a destination that processes `shop` of these servers."""
    server.configure(
        MADE,
        sluice__instance__source="process",
        sluice__instance__process__destination="shop",
        sluice__instance__process__clientId=500,
        sluice__instance__process__url=",".join(it.url for it in feeding),
        sluice__processor=f"{MODULE}:process",
        sluice__processor__columns="; ".join(f"{schema}.{table}.mark: int" for table in tables),
        **settings,
    )


@contextlib.contextmanager
def started(*servers: Sluice) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for server in servers:
            stack.enter_context(server)
        yield


@pytest.mark.usefixtures("module")
@pytest.mark.timeout(300)
def test_two_servers_that_read_by_the_same_client_say_so_and_neither_loses_nor_doubles_a_change(
    tmp_path: Path, mariadb118: Server, database: Database
) -> None:
    schema = database(mariadb118)
    mariadb118.query("CREATE TABLE goods (id INT PRIMARY KEY)", database=schema)
    feeding, *both = (Sluice(tmp_path / name) for name in "abc")
    feeding.add("shop", mariadb118, canal__instance__filter__regex=rf"{schema}\\..*")
    for server in both:
        process(server, feeding, schema=schema, tables=["goods"])
    said: dict[Sluice, str] = {}

    def begins(server: Sluice) -> bool:
        return bool(server.client(1, MADE).status()["position"])

    def all_say_it() -> bool:
        said.update({it: error for it in both if "too, give each numbers" in (error := it.destination(MADE)["error"])})
        return len(said) == len(both)

    def found(server: Sluice, last: int) -> list[int]:
        rows = taken(server.client(1, MADE), lambda row: row.key["id"] == last)
        assert all(row.after is not None and row.after["mark"] == row.key["id"] % 7 for row in rows)
        return [row.key["id"] for row in rows]

    with started(feeding, *both):
        feeding.wait_running()
        for server in both:
            server.client(1, MADE).subscribe()
        eventually(lambda: all(map(begins, both)), lambda: [it.destination(MADE) for it in both], 60)
        for number in range(1, 200):
            mariadb118.query(f"INSERT INTO goods VALUES ({number})", database=schema)
        for server in both:
            assert found(server, 199) == list(range(1, 200))
        eventually(all_say_it, lambda: (said, [it.destination(MADE) for it in both]), 60)
        assert all(it.startswith("client 500 of destination shop at ") for it in said.values())
        first, second = both
        first.kill()
        eventually(lambda: state(second, MADE) == "running", lambda: second.destination(MADE))
        mariadb118.query("INSERT INTO goods VALUES (200)", database=schema)
        assert found(second, 200) == [200]
        assert second.destination(MADE)["error"] == ""


def configured(tmp_path: Path, zookeeper: ZooKeeper, source: Server, schema: str, **settings: Any) -> list[Sluice]:
    """Two servers that share `shop` and what is made of it."""
    servers = [Sluice(tmp_path / name) for name in "ab"]
    for server in servers:
        server.settings = {"canal__zkServers": zookeeper.hosts, "sluice__ha__sessionTimeout": 2}
        server.add("shop", source, canal__instance__filter__regex=rf"{schema}\\..*")
        process(server, *servers, schema=schema, tables=(*Load.TABLES, "finished"), **settings)
    return servers


@pytest.mark.usefixtures("module")
def test_servers_that_share_it_are_refused_where_the_function_need_not_make_the_same_again(
    tmp_path: Path, own_zookeeper: ZooKeeper, mariadb118: Server
) -> None:
    server, _ = configured(tmp_path, own_zookeeper, mariadb118, "shop")
    said = commands.run("check", "--conf", str(server.conf), MADE)
    assert said.returncode == 1
    assert "sluice.processor.deterministic = true" in " ".join((said.stdout + said.stderr).split())


@pytest.mark.usefixtures("module")
@pytest.mark.timeout(300)
def test_each_change_is_processed_once_whichever_server_is_killed(
    tmp_path: Path, own_zookeeper: ZooKeeper, mariadb118: Server, database: Database
) -> None:
    schema, folder = database(mariadb118), tmp_path / "files"
    servers = configured(
        tmp_path,
        own_zookeeper,
        mariadb118,
        schema,
        sluice__processor__deterministic="true",
        sluice__outputs="copy",
        sluice__output__copy__type="file",
        sluice__output__copy__folder=folder,
        sluice__output__copy__fileSeconds=1,
    )

    def active(name: str) -> list[Sluice]:
        return [it for it in servers if state(it, name) == "running"]

    load, chance = Load(mariadb118, schema), random.Random(3)
    with started(*servers):
        for name in ("shop", MADE):
            eventually(lambda: len(active(name)) == 1, lambda: [it.destination(MADE) for it in servers])  # noqa: B023
        with load:
            for name in (MADE, "shop", MADE):
                goal = load.committed + chance.randrange(20, 100)
                eventually(lambda: load.committed > goal)  # noqa: B023
                (doomed,) = active(name)
                doomed.kill()
                eventually(lambda: active("shop") and active(MADE), lambda: [it.log for it in servers], 60)
                doomed.start()
            load.finish(stop=True)
        messages = [json.loads(line) for line in lines(folder)]
    marks = [(int(row["id"]) % 7, int(row.pop("mark"))) for it in messages for row in it["data"] or ()]
    assert all(wanted == mark for wanted, mark in marks)
    for it in messages:
        for row in it["old"] or ():
            row.pop("mark", None)
    assert load.check(seen(ops(json.dumps(it).encode() for it in messages))) == load.changes()
