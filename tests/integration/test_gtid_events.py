"""GTIDs: the executed set in the headers, tags, and starting by a set."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sluice.protocol.canal.entry_pb2 import EntryType
from tests.conftest import Database
from tests.delivery import deliver, delivered, end_of_binlog, execute, props, transcript
from tests.servers import Server

GTID_OPTIONS = ["--gtid-mode=ON", "--enforce-gtid-consistency=ON", "--log-slave-updates=ON"]


@pytest.fixture(scope="module")
def mysql56_gtid() -> Iterator[Server]:
    """MySQL 5.6 with GTIDs."""
    with Server("mysql56", GTID_OPTIONS) as server:
        yield server


@pytest.fixture(scope="module")
def mysql57_gtid() -> Iterator[Server]:
    with Server("mysql57", GTID_OPTIONS) as server:
        yield server


@pytest.fixture(scope="module")
def mysql80_gtid() -> Iterator[Server]:
    with Server("mysql80", GTID_OPTIONS) as server:
        yield server


SERVERS = ["mysql56_gtid", "mysql97", "mariadb118"]
SERVERS_EXTENDED = ["mysql57_gtid", "mysql80_gtid", "mariadb1011"]


@pytest.fixture(params=[*SERVERS, *(pytest.param(name, marks=pytest.mark.extended) for name in SERVERS_EXTENDED)])
def source(request: pytest.FixtureRequest) -> Server:
    """A server that writes GTIDs."""
    found: Server = request.getfixturevalue(request.param)
    return found


def executed(server: Server) -> str:
    variable = "gtid_binlog_pos" if server.mariadb else "gtid_executed"
    ((text,),) = server.query(f"SELECT @@global.{variable}")
    return str(text).replace("\n", "")


def by_gtid(server: Server, **settings: Any) -> dict[str, Any]:
    return {"gtid_on": True, "filter_query_dml": True, **settings}


def test_each_header_has_the_set_that_is_executed_with_its_transaction(
    source: Server, database: Database, tmp_path: Path
) -> None:
    schema = database(source)
    with deliver(source, tmp_path, **by_gtid(source, filter_regex=rf"{schema}\..*")) as delivery:
        for statement in ("CREATE TABLE t (id INT)", "INSERT INTO t VALUES (1)", "ALTER TABLE t COMMENT 'x'"):
            before = executed(source)
            source.query(statement, database=schema)
            after = executed(source)
            entries = delivery.read()
            assert {entry.header.gtid for entry in entries} == {after}
            if source.mariadb:
                assert {props(entry)["curtGtid"] for entry in entries} == {after}
                continue
            ((own,),) = source.query("SELECT GTID_SUBTRACT(%s, %s)", (after, before))
            assert {props(entry)["curtGtid"] for entry in entries} == {own}
            for entry in entries:
                assert list(props(entry))[:3] == ["curtGtid", "curtGtidSn", "curtGtidLct"]


def test_without_gtid_mode_nothing_speaks_of_them(source: Server, database: Database, tmp_path: Path) -> None:
    schema = database(source)
    entries = delivered(source, tmp_path, schema, ["CREATE TABLE t (id INT)", "INSERT INTO t VALUES (1)"])
    assert entries
    assert not any(entry.header.gtid or set(props(entry)) - {"rowsCount"} for entry in entries)


def test_a_start_by_a_set_leaves_out_what_is_in_it(source: Server, database: Database, tmp_path: Path) -> None:
    schema = database(source)
    statements = ["CREATE TABLE t (id INT)", "INSERT INTO t VALUES (1)"]
    execute(source, statements, database=schema)
    start = executed(source)
    source.query("FLUSH BINARY LOGS")
    execute(source, ["INSERT INTO t VALUES (2)", "INSERT INTO t VALUES (3)"], database=schema)
    file, offset = end_of_binlog(source)
    place: dict[str, Any] = {"master_journal_name": file, "master_position": offset}  # the set comes first
    with deliver(source, tmp_path, **by_gtid(source, master_gtid=start, **place)) as delivery:
        execute(source, ["INSERT INTO t VALUES (4)"], database=schema)
        entries = delivery.read()
        assert transcript(entries) == [line for number in (2, 3, 4) for line in ("BEGIN", f"INSERT t {number}", "END")]
        assert entries[-1].header.gtid == executed(source)
        ends = [entry for entry in entries if entry.entryType == EntryType.TRANSACTIONEND]
        assert len({entry.header.gtid for entry in ends}) == 3


def test_a_stream_by_a_set_begins_where_the_source_begins_to_send(
    mariadb118: Server, database: Database, tmp_path: Path
) -> None:
    """A log on disk begins with the first place of the stream, and readers behind it read the source up to there."""
    schema = database(mariadb118)
    execute(mariadb118, ["CREATE TABLE t (id INT)", "INSERT INTO t VALUES (1)"], database=schema)
    start, (name, offset) = executed(mariadb118), end_of_binlog(mariadb118)
    prepare = ["XA START 'x'", "INSERT INTO t VALUES (2)", "XA END 'x'", "XA PREPARE 'x'"]
    execute(mariadb118, [*prepare, "XA COMMIT 'x'"], database=schema)
    with deliver(mariadb118, tmp_path, **by_gtid(mariadb118, master_gtid=start)) as delivery:
        assert transcript(delivery.read()) == ["BEGIN", "INSERT t 2", "END"]
        first = delivery.ring.after(delivery.ring.first - 1)
        assert first is not None
        _, file, begin, _ = first
        assert (delivery.ring.files[file][0], begin) == (name, offset)


def test_a_tag_is_part_of_a_gtid(mysql97: Server, database: Database, tmp_path: Path) -> None:
    schema = database(mysql97)
    ((uuid,),) = mysql97.query("SELECT @@server_uuid")
    settings = by_gtid(mysql97, filter_regex=rf"{schema}\..*")
    statements = [
        "CREATE TABLE t (id INT)",
        "SET gtid_next = 'AUTOMATIC:blue'",
        "INSERT INTO t VALUES (1)",
        "INSERT INTO t VALUES (2)",
        "SET gtid_next = 'AUTOMATIC:a_tag_of_thirty_two_characters_'",
        "INSERT INTO t VALUES (3)",
        f"SET gtid_next = '{uuid}:blue:9'",
        "INSERT INTO t VALUES (4)",
        "SET gtid_next = 'AUTOMATIC'",
        "INSERT INTO t VALUES (5)",
    ]
    entries = delivered(mysql97, tmp_path, schema, statements, **settings)
    ends = [entry for entry in entries if entry.entryType == EntryType.TRANSACTIONEND]
    tagged = [f"{uuid}:blue:1", f"{uuid}:blue:2", f"{uuid}:a_tag_of_thirty_two_characters_:1", f"{uuid}:blue:9"]
    assert [props(entry)["curtGtid"] for entry in ends][:4] == tagged
    assert ends[-1].header.gtid == executed(mysql97)
    assert "blue:1-2:9" in ends[-1].header.gtid
    # A start by a set with tags
    place: dict[str, Any] = {"master_gtid": ends[1].header.gtid, "filter_regex": rf"{schema}\..*"}
    file, offset = end_of_binlog(mysql97)
    place |= {"master_journal_name": file, "master_position": offset}
    with deliver(mysql97, tmp_path, **by_gtid(mysql97, **place)) as delivery:
        assert [line for line in transcript(delivery.read()) if line.startswith("INSERT")] == [
            *("INSERT t 3", "INSERT t 4", "INSERT t 5")
        ]


def test_sets_of_several_sources_and_domains_are_kept(mariadb118: Server, database: Database, tmp_path: Path) -> None:
    schema = database(mariadb118)
    statements = [
        "CREATE TABLE t (id INT)",
        "SET gtid_domain_id = 7, server_id = 77",
        "INSERT INTO t VALUES (1)",
        "INSERT INTO t VALUES (2)",
        "SET gtid_domain_id = 0",
        "INSERT INTO t VALUES (3)",
    ]
    entries = delivered(mariadb118, tmp_path, schema, statements, **by_gtid(mariadb118))
    assert set(entries[-1].header.gtid.split(",")) == set(executed(mariadb118).split(","))
    assert entries[-1].header.serverId == 77
    assert "7-77-2" in entries[-1].header.gtid
