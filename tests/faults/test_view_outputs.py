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
        make_tables(found)
        yield found


@pytest.fixture
def plain_pair() -> Iterator[Pair]:
    """Two servers without GTIDs."""
    with Pair("mysql97", "--gtid-mode=OFF", "--enforce-gtid-consistency=OFF", gtids=False) as found:
        make_tables(found)
        yield found


def make_tables(pair: Pair) -> None:
    pair.first.query(f"CREATE TABLE {SCHEMA}.{KEYLESS} (n INT)")
    pair.first.query(f"CREATE TABLE {SCHEMA}.hidden (n INT)")
    pair.catch_up(pair.second, pair.first)


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


def into(target: Server) -> dict[str, object]:
    """Settings of an output to a server."""
    url = f"mysql://{target.user}@{target.host}:{target.port}/"
    progress = f"{SCHEMA}_progress"
    return {"type": "mysql", "url": url, "password": target.password, "progress": progress, "start": "earliest"}


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
    with copy_of(pair.first, mysql97, SCHEMA):
        add(sluice, pair, store, **into(mysql97))
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


@pytest.mark.extended
@pytest.mark.timeout(300)
def test_without_gtids_another_server_is_read_when_the_target_of_a_view_knows_nothing_that_its_place_lacks(
    sluice: Sluice, plain_pair: Pair, mysql97: Server
) -> None:
    """Sluice is killed when five of six transactions are applied, and the place is still before them."""

    def insert(*numbers: int) -> None:
        for number in numbers:  # too large to be joined
            plain_pair.first.query(f"INSERT INTO {SCHEMA}.t VALUES ({number}, REPEAT('x', 60000))")

    def applied() -> list[int]:
        return [number for (number,) in mysql97.query(f"SELECT id FROM {SCHEMA}.t ORDER BY id")]

    def waiting() -> int:
        found: int = sluice.destination(VIEW)["clients"][0]["lag"]["transactions"]
        return found

    first, last = (mysql97.connect(autocommit=False) for _ in range(2))
    with copy_of(plain_pair.first, mysql97, SCHEMA), first, last:
        add(sluice, plain_pair, "memory", **into(mysql97))
        with sluice.reading():
            insert(1)
            eventually(lambda: applied() == [1])
            for session, number in ((first, 2), (last, 8)):
                session.cursor().execute(f"INSERT INTO {SCHEMA}.t VALUES ({number}, '')")
            insert(2)
            eventually(lambda: waiting() == 1)
            insert(3, 4, 5, 6, 7, 8)
            eventually(lambda: waiting() == 7)
            first.rollback()
            eventually(lambda: applied() == [1, 2, 3, 4, 5, 6, 7], applied)
            assert mysql97.query(f"SELECT COUNT(*) > 0 FROM {SCHEMA}_progress.sluice_output_applied") == [(1,)]
            sluice.kill()
            sluice.start()
            sluice.wait_running()
            with pytest.raises(AssertionError, match=rf"32001 of {VIEW} \(output copy\)"):
                switch(sluice)
            last.rollback()
            switch(sluice)
            assert source_of(sluice)["address"] == address(plain_pair.second)
            insert(9)
            eventually(lambda: applied() == [*range(1, 10)], lambda: (applied(), sluice.destination(VIEW)))
            assert output_of(sluice, VIEW)["state"] == "running"
