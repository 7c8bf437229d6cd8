"""What clients get of a group: batches, ranges, formats, snapshots, moves of their places; on real servers."""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import urllib3

from sluice.client_sdk import Client
from sluice.client_sdk.calls import Limits
from sluice.protocol.cut import Cut
from sluice.protocol.errors import BadParameterError, BadPositionError, GapError
from tests import commands
from tests.clients.java import JavaConsumer
from tests.clients.java import Row as JavaRow
from tests.conftest import Database
from tests.faults.harness import Sluice
from tests.groups import NAME, Group, Row, configure, rows_of, take
from tests.servers import Server
from tests.waiting import SECONDS, eventually

MEMBERS = ("my", "maria")
_clients, _ids = itertools.count(2001), itertools.count(0, 10)


@pytest.fixture(scope="module")
def group(mysql97: Server, mariadb118: Server) -> Iterator[Group]:
    """Two servers, for all tests."""
    members = {name: (it, f"group_{name}") for name, it in zip(MEMBERS, (mysql97, mariadb118), strict=True)}
    for server, schema in members.values():
        server.query(f"CREATE DATABASE {schema}")
    yield Group(members)
    for server, schema in members.values():
        server.query(f"DROP DATABASE {schema}")


@pytest.fixture(scope="module")
def sluice(group: Group, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sluice]:
    """A server that runs, for all tests."""
    made = Sluice(tmp_path_factory.mktemp("group"))
    configure(made, group.members)
    with made.reading():
        yield made


@pytest.fixture
def rows() -> list[Row]:
    """The rows that each member gets in a test, each in a transaction of its own."""
    first = next(_ids)
    return [(name, str(number)) for number in range(first, first + 4) for name in MEMBERS]


@pytest.fixture
def begin(sluice: Sluice) -> str:
    """Where the source is before the rows."""
    return str(sluice.call("GET", f"/{NAME}/latest")["position"])


@pytest.fixture
def client(group: Group, sluice: Sluice, rows: list[Row], begin: str) -> Iterator[Client]:
    """A client that gets the rows next."""
    with sluice.client(next(_clients)) as client:
        client.subscribe(start=begin)
        for name, row in rows:
            group.write(name, int(row))
        yield client
        client.unsubscribe()


def of(name: str, rows: list[Row]) -> list[Row]:
    return [it for it in rows if it[0] == name]


def post(sluice: Sluice, client: Client, call: str, accept: str, **options: Any) -> urllib3.BaseHTTPResponse:
    url = f"{sluice.url}/v1/destinations/{NAME}/clients/{client.status()['clientId']}/{call}"
    answer = urllib3.request("POST", url, headers={"Accept": accept}, timeout=SECONDS, **options)
    assert answer.status == 200, answer.data
    return answer


def test_a_batch_names_its_places_in_itself_and_no_header_does(
    sluice: Sluice, client: Client, rows: list[Row], begin: str
) -> None:
    got, batches = take(client, len(rows))
    assert sorted(got) == sorted(rows)
    for text in (batches[0].from_, batches[-1].to):
        assert str(Cut.parse(text)) == text
        assert list(Cut.parse(text).places) == sorted(MEMBERS)
    for accept in ("application/x-protobuf", "application/json", "application/vnd.apache.arrow.stream"):
        client.rollback()
        answer = post(sluice, client, "getWithoutAck?timeout=5000", accept)
        assert "Sluice-Batch-Id" in answer.headers
        assert not {"Sluice-From", "Sluice-To"} & set(answer.headers)
    table = pa.ipc.open_stream(answer.data).read_all()
    assert table.schema.metadata[b"from"].decode() == begin


def test_each_format_says_from_which_member_a_row_comes(group: Group, client: Client, rows: list[Row]) -> None:
    _, batches = take(client, len(rows))
    numbers = {name: group.query(name, "SELECT @@server_id")[0][0] for name in MEMBERS}
    files = {name: group.query(name, "SHOW BINARY LOGS")[-1][0] for name in MEMBERS}
    for row in (row for batch in batches for row in batch):
        name = row.member or ""
        own = numbers[name], files[name], group.members[name][1]
        assert (row.change.server_id, row.change.logfile_name, row.schema) == own
    arrow = pa.Table.from_batches([it.to_arrow() for it in batches])
    assert {it["member"] for it in arrow["_pos"].to_pylist()} == set(MEMBERS)
    flat = [it for batch in batches for it in json.loads(batch.encode("json"))["entries"] if it["data"]]
    assert {it["member"] for it in flat} == set(MEMBERS)


def test_an_ack_that_is_repeated_by_its_position_has_no_effect(client: Client, rows: list[Row]) -> None:
    _, batches = take(client, len(rows))
    client.ack(batches[-1].to)
    client.ack(batches[-1].to)
    assert client.status()["marks"] == []
    assert client.status()["acked"] == batches[-1].to


def test_a_get_takes_an_ack_by_position_in_its_body(sluice: Sluice, client: Client, rows: list[Row]) -> None:
    _, batches = take(client, len(rows))
    post(sluice, client, "getWithoutAck", "application/json", json={"ack": batches[-1].to, "timeout": 0})
    assert client.status()["acked"] == batches[-1].to


def test_ranges_give_each_member_its_own_range_however_they_are_split(
    client: Client, rows: list[Row], begin: str
) -> None:
    got, place = list[Row](), begin
    while len(got) < len(rows):
        found = client.position(place, timeout=SECONDS, max_rows=3)
        got += rows_of(client.rows(found.from_, found.to))
        place = found.to
    assert sorted(got) == sorted(rows)
    assert rows_of(client.rows(begin, place)) == got
    parts = client.splits(begin, place, 3)
    assert [it.from_ for it in parts] == [begin, *(it.to for it in parts[:-1])]
    assert [row for it in parts for row in rows_of(client.rows(it.from_, it.to))] == got
    client.ack(place)
    assert client.status()["acked"] == place


def test_a_range_may_begin_and_end_at_places_that_the_server_did_not_come_by(
    client: Client, rows: list[Row], begin: str
) -> None:
    _, batches = take(client, len(rows), limits=Limits(max_entries=3))
    first, last = Cut.parse(begin), Cut.parse(batches[-1].to)
    for name in MEMBERS:
        alone = first.advance(name, last.places[name])
        assert rows_of(client.rows(first, alone)) == of(name, rows)
        assert rows_of(client.rows(alone, last)) == [it for it in rows if it[0] != name]


def test_ranges_take_positions_that_are_too_long_for_a_url(
    sluice: Sluice, client: Client, begin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sluice.client_sdk.calls.LONGEST_QUERY", 0)
    found = client.position(begin, timeout=SECONDS, max_rows=1)
    assert len(rows_of(client.rows(found.from_, found.to))) == 1
    assert sum(it.rows for it in client.splits(found.from_, found.to, 2)) == 1
    answer = post(sluice, client, "rows", "application/json", json={"from": found.from_, "to": found.to})
    assert json.loads(answer.data)["to"] == found.to
    with pytest.raises(BadPositionError, match="before its beginning"):
        client.rows(found.to, found.from_)


def test_a_cursor_can_be_moved_to_any_cut_and_back(sluice: Sluice, client: Client, rows: list[Row], begin: str) -> None:
    _, batches = take(client, len(rows))
    client.ack(batches[-1].to)
    last = Cut.parse(batches[-1].to)
    path = f"/{NAME}/clients/{client.status()['clientId']}/seek"
    place = Cut.parse(begin).advance("my", last.places["my"])
    sluice.call("POST", path, json={"start": str(place)})
    assert take(client, 4)[0] == of("maria", rows)
    sluice.call("POST", path, json={"start": begin})
    assert sorted(take(client, len(rows))[0]) == sorted(rows)
    sluice.call("POST", path, json={"start": "latest"})
    assert not client.get_without_ack(0.5)


def test_conditions_and_filters_of_clients_count_for_all_members(
    group: Group, sluice: Sluice, client: Client, rows: list[Row], begin: str
) -> None:
    third = sorted(int(number) for _, number in rows)[4]
    with sluice.client(next(_clients)) as other:
        where = ";".join(f"{group.table(name)}: id >= {third}" for name in MEMBERS)
        other.subscribe(where=where, start=begin)
        assert sorted(take(other, 4)[0]) == sorted(row for row in rows if int(row[1]) >= third)
        other.unsubscribe()
    with sluice.client(next(_clients)) as other:
        other.subscribe(group.table("my").replace(".", r"\."), start=begin)
        assert take(other, 4)[0] == of("my", rows)
        other.unsubscribe()
    assert sorted(take(client, len(rows))[0]) == sorted(rows)


def test_the_status_names_the_members(sluice: Sluice, client: Client, rows: list[Row]) -> None:
    client.ack(take(client, len(rows))[1][-1].to, durable=True)
    done = commands.run("status", NAME, "--url", sluice.url)
    for name in MEMBERS:
        assert f"member {name}  merged" in done.stdout


def test_a_snapshot_has_the_tables_of_one_member_or_of_all(group: Group, client: Client, rows: list[Row]) -> None:
    client.ack(take(client, len(rows))[1][-1].to)
    stored = [
        (name, str(number))
        for name in MEMBERS
        for (number,) in group.query(name, f"SELECT id FROM {group.table(name)}")
    ]
    tables = [group.table(name) for name in MEMBERS]
    with pytest.raises(BadParameterError, match="none of the tables"):
        client.snapshot(group.table("my"), member="maria")
    client.snapshot(tables, member="my")
    got, batches = take(client, len(of("my", stored)))
    assert sorted(got) == sorted(of("my", stored))
    for it in batches:
        client.ack(it)
    client.snapshot(tables)
    assert sorted(take(client, len(stored))[0]) == sorted(stored)


def test_a_table_that_two_members_have_is_read_of_each_beside_the_changes_of_the_other(
    group: Group, client: Client, rows: list[Row]
) -> None:
    schema = group.members["my"][1]
    group.query("maria", f"CREATE DATABASE {schema}")
    try:
        for name in MEMBERS:
            group.query(name, f"CREATE TABLE {schema}.same (id INT PRIMARY KEY, note VARCHAR(200))")
            group.query(name, f"INSERT INTO {schema}.same VALUES (1, '{name}')")
        for it in take(client, len(rows) + 2)[1]:
            client.ack(it)
        client.snapshot(f"{schema}.same")
        group.query("maria", f"UPDATE {schema}.same SET note = 'changed'")
        got: dict[str, str] = {}
        while set(got) != set(MEMBERS) or got["maria"] != "changed":
            batch = client.get_without_ack(SECONDS)
            assert batch, f"only {got} came"
            got |= {str(row.member): str((row.after or {})["note"]) for row in batch}
            client.ack(batch)
        assert got == {"my": "my", "maria": "changed"}
    finally:
        group.query("maria", f"DROP DATABASE {schema}")


class TestAlone:
    """With a server of its own."""

    @pytest.fixture
    def group(self, mysql97: Server, mariadb118: Server, database: Database) -> Group:
        return Group({name: (it, database(it)) for name, it in zip(MEMBERS, (mysql97, mariadb118), strict=True)})

    @pytest.fixture
    def sluice(self, group: Group, tmp_path: Path) -> Sluice:
        made = Sluice(tmp_path / "sluice")
        configure(made, group.members, canal__instance__memory__buffer__size=64)
        return made

    def test_a_range_that_has_left_the_ring_is_read_again_from_all_members(
        self, group: Group, sluice: Sluice, rows: list[Row]
    ) -> None:
        with sluice.reading(), sluice.client() as client:
            client.subscribe()
            begin = client.status()["acked"]
            for name, row in rows:
                group.write(name, int(row))
            got, batches = take(client, len(rows))
            client.ack(batches[-1].to)
            for number in range(1000, 1040):
                group.write("my", number)
            left = 40  # more than the ring holds
            while left:
                more, (batch,) = take(client, 1)
                client.ack(batch)
                left -= len(more)
            end = Cut.parse(batches[-1].to)
            assert sorted(rows_of(client.rows(begin, end))) == sorted(got)
            parts = client.splits(begin, end, 4)
            assert sorted(row for it in parts for row in rows_of(client.rows(it.from_, it.to))) == sorted(got)
            alone = Cut.parse(begin).advance("maria", end.places["maria"])
            assert rows_of(client.rows(begin, alone)) == of("maria", rows)
            mine, found = list[Row](), client.position(begin, until=alone, timeout=SECONDS)
            while not found.reached:
                mine += rows_of(client.rows(found.from_, found.to))
                found = client.position(found.to, until=alone, timeout=SECONDS)
            mine += rows_of(client.rows(found.from_, found.to))
            assert mine == of("maria", rows)

    def test_a_view_of_a_group_has_its_clients_places(self, group: Group, sluice: Sluice, rows: list[Row]) -> None:
        wanted, schema = of("maria", rows), group.members["maria"][1]
        sluice.configure("part", sluice__instance__route=NAME, canal__instance__filter__regex=rf"{schema}\\..*")
        with sluice.reading(), sluice.client(name="part") as client:
            client.subscribe()
            begin = client.status()["acked"]
            for name, row in rows:
                group.write(name, int(row))
            got, batches = take(client, len(wanted))
            assert got == wanted
            assert rows_of(client.rows(begin, batches[-1].to)) == wanted
            client.ack(batches[-1].to, durable=True)
        group.write("maria", 1000)
        with sluice.reading(), sluice.client(name="part") as client:
            assert take(client, 1)[0] == [("maria", "1000")]

    def test_what_was_removed_while_nothing_ran_is_told_to_clients_of_views_too_until_it_is_confirmed(
        self, group: Group, sluice: Sluice, rows: list[Row]
    ) -> None:
        everything = ",".join(rf"{schema}\\..*" for _, schema in group.members.values())
        sluice.configure("part", sluice__instance__route=NAME, canal__instance__filter__regex=r".*\\.orders")
        with sluice.reading(), sluice.client() as client, sluice.client(name="part") as viewer:
            for it in (client, viewer):
                it.subscribe()
            for name, row in rows:
                group.write(name, int(row))
            for it in (client, viewer):
                it.ack(take(it, len(rows))[1][-1].to, durable=True)
        configure(
            sluice,
            {"maria": group.members["maria"]},
            canal__instance__memory__buffer__size=64,
            canal__instance__filter__regex=everything,
        )
        group.write("maria", 1000)
        with sluice.reading(), sluice.client() as client, sluice.client(name="part") as viewer:
            for name, it in ((NAME, client), ("part", viewer)):
                listed = commands.run("gaps", "list", name, "--url", sluice.url)
                assert listed.returncode == 1
                assert "remove (member my was removed)" in listed.stdout
                with pytest.raises(GapError, match="member my was removed"):
                    it.position(it.status()["acked"], timeout=0)
                batch = it.get_without_ack(SECONDS)
                assert batch
                assert rows_of(batch) == [], "a marker"
                it.ack(batch)
                assert take(it, 1)[0] == [("maria", "1000")]
                assert commands.run("gaps", "confirm", name, "1001", "--url", sluice.url).returncode == 0
                assert commands.run("gaps", "list", name, "--url", sluice.url).returncode == 0

    def test_masks_hide_columns_of_all_members(self, group: Group, sluice: Sluice, rows: list[Row]) -> None:
        masks = "; ".join(f"{group.table(name)}.note: null" for name in MEMBERS)
        configure(sluice, group.members, sluice__instance__filter__mask=masks)
        with sluice.reading(), sluice.client() as client:
            client.subscribe()
            for name, row in rows:
                group.write(name, int(row))
            got, batches = take(client, len(rows))
            assert sorted(got) == sorted(rows)
            assert {(row.after or {})["note"] for batch in batches for row in batch} == {None}

    @pytest.mark.extended
    def test_the_stock_java_client_reads_a_group_unchanged_also_after_a_restart(
        self, group: Group, sluice: Sluice, rows: list[Row]
    ) -> None:
        files = {name: group.query(name, "SHOW BINARY LOGS")[-1][0] for name in MEMBERS}

        def take_all(java: JavaConsumer, count: int) -> list[JavaRow]:
            found: list[JavaRow] = []

            def enough() -> bool:
                batch = java.get(1000, 1000)
                found.extend(it for it in batch.rows if it.type == "INSERT")
                if batch.id != -1:
                    java.call("ack", batch.id)
                return len(found) >= count

            eventually(enough, lambda: found)
            return found

        with JavaConsumer() as java:
            with sluice.reading():
                java.connect(sluice.canal_port)
                java.call("subscribe", r".*\..*")
                for name, row in rows:
                    group.write(name, int(row))
                found = take_all(java, len(rows))
                assert {(it.file, it.table) for it in found} == {(files[name], group.table(name)) for name in files}
                for name in files:
                    mine = [(name, it.values[0]) for it in found if it.table == group.table(name)]
                    assert mine == of(name, rows)
            for name in files:
                group.write(name, 1000)
            with sluice:
                java.connect(sluice.canal_port)
                java.call("subscribe", r".*\..*")
                assert sorted(it.table for it in take_all(java, 2)) == sorted(group.table(name) for name in files)
