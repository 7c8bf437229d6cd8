"""Outputs of a view to files and to MySQL: each change once, while another server is read and Sluice is killed."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.harness import Sluice
from tests.faults.pair import SCHEMA, Pair, Writer, address, configure, pair_of
from tests.faults.test_failover import rows_of, source_of, switch
from tests.faults.test_mysql_output import copy_of, output_of, rows
from tests.servers import Server
from tests.waiting import eventually

VIEW = "part"
KEYLESS = "keyless"
"""A change of it that comes twice is there twice."""


@pytest.fixture(params=["mariadb118", pytest.param("mysql97", marks=pytest.mark.extended)])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    with pair_of(request.param) as found:
        found.first.query(f"CREATE TABLE {SCHEMA}.{KEYLESS} (n INT)")
        found.first.query(f"CREATE TABLE {SCHEMA}.hidden (n INT)")
        found.catch_up(found.second, found.first)
        yield found


def add(sluice: Sluice, pair: Pair, store: str, **settings: object) -> None:
    """Configure a destination and a view of it, whose output has these settings."""
    configure(sluice, pair, sluice__instance__store=store)
    output = {f"sluice__output__copy__{key}": value for key, value in settings.items()}
    regex = rf"{SCHEMA}\\.(t|{KEYLESS})"
    sluice.configure(
        VIEW,
        sluice__instance__route="shop",
        canal__instance__filter__regex=regex,
        sluice__outputs="copy",
        **output,
    )


def move(sluice: Sluice, pair: Pair) -> list[int]:
    """Read one server and the other, and kill Sluice before, after and amid that; return the rows of the table."""
    writer = Writer(pair.first)
    writer.start()
    for number, (wanted, kills) in enumerate(
        ((pair.second, "none"), (pair.first, "after"), (pair.second, "before"), (pair.first, "none"))
    ):
        writer.reach(40)
        if kills == "before":
            sluice.kill()
            sluice.start()
            eventually(lambda: source_of(sluice)["address"] == address(pair.first), sluice.destination)
        for table in (KEYLESS, "hidden"):
            pair.first.query(f"INSERT INTO {SCHEMA}.{table} VALUES ({number}), ({number})")
        eventually(lambda: sluice.destination()["state"] == "running", sluice.destination)
        switch(sluice)
        if kills == "after":
            sluice.kill()
            sluice.start()
        eventually(lambda: source_of(sluice)["address"] == address(wanted), sluice.destination)  # noqa: B023
        sluice.wait_running()
    writer.reach(40)
    written = writer.stop()
    pair.first.query(f"INSERT INTO {SCHEMA}.{KEYLESS} VALUES (-1)")
    return written


TWICE = [-1, *(number for number in range(4) for _ in range(2))]


@pytest.mark.parametrize("store", ["file", pytest.param("memory", marks=pytest.mark.extended)])
@pytest.mark.timeout(300)
def test_files_of_a_view_have_each_change_once(sluice: Sluice, pair: Pair, tmp_path: Path, store: str) -> None:
    folder = tmp_path / "files"
    add(sluice, pair, store, type="file", folder=folder, fileSeconds=1)

    def found() -> list[tuple[str, int]]:
        indexes = [json.loads(it.read_text()) for it in sorted(folder.glob("*.index"))]
        messages = [json.loads(line) for it in indexes for line in (folder / it["file"]).read_bytes().splitlines()]
        return [(it["table"], int(row.get("id", row.get("n")))) for it in messages for row in it["data"] or ()]

    with sluice.reading():
        written = move(sluice, pair)
        eventually(lambda: (KEYLESS, -1) in found(), lambda: sluice.destination(VIEW))
        assert output_of(sluice, VIEW)["state"] == "running"
    assert [number for table, number in found() if table == "t"] == written
    assert sorted(number for table, number in found() if table == KEYLESS) == TWICE
    assert {table for table, _ in found()} == {"t", KEYLESS}


@pytest.mark.parametrize("store", ["file", pytest.param("memory", marks=pytest.mark.extended)])
@pytest.mark.timeout(300)
def test_the_target_of_a_view_has_each_change_once(sluice: Sluice, pair: Pair, mysql97: Server, store: str) -> None:
    url = f"mysql://{mysql97.user}@{mysql97.host}:{mysql97.port}/"
    given = {"type": "mysql", "url": url, "password": mysql97.password, "progress": f"{SCHEMA}_progress"}
    with copy_of(pair.first, mysql97, SCHEMA):
        add(sluice, pair, store, start="earliest", **given)
        with sluice.reading():
            written = move(sluice, pair)
            eventually(
                lambda: (-1,) in rows(mysql97, SCHEMA, KEYLESS) and len(rows_of(mysql97)) >= len(written),
                lambda: sluice.destination(VIEW),
            )
            assert output_of(sluice, VIEW)["state"] == "running"
        assert rows_of(mysql97) == written
        assert sorted(number for (number,) in rows(mysql97, SCHEMA, KEYLESS)) == TWICE
        assert rows(mysql97, SCHEMA, "hidden") == []
