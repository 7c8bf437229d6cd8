"""Transactions of every kind: their BEGIN and END, what is between them, and in which order."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from sluice.protocol.canal.arrow import EnvelopeDecoder
from sluice.protocol.canal.entry_pb2 import Entry, EntryType, RowChange, TransactionBegin, TransactionEnd
from sluice.protocol.canal.flat import flat_json
from sluice.protocol.canal.packet_pb2 import Messages
from sluice.protocol.canal.rows import decode_changes, decode_rows
from sluice.protocol.xa import Xa
from sluice.server.cli.tail import describe
from tests.conftest import Database
from tests.delivery import deliver, end_of_binlog, execute, props, transcript
from tests.servers import Server

Run = Callable[..., list[Entry]]


@pytest.fixture
def schema(server: Server, database: Database) -> str:
    """A schema with the InnoDB tables t and u and the MyISAM table m, all with one number."""
    name = database(server)
    execute(
        server,
        ["CREATE TABLE t (id INT)", "CREATE TABLE u (id INT)", "CREATE TABLE m (id INT) ENGINE=MyISAM"],
        database=name,
    )
    return name


@pytest.fixture
def run(server: Server, schema: str, tmp_path: Path) -> Run:
    """Run statements on one connection: what is delivered of them, apart from the statements' texts."""

    def run(statements: Iterable[str | bytes], **settings: Any) -> list[Entry]:
        settings = {"filter_regex": rf"{schema}\..*", "filter_query_dml": True} | settings
        with deliver(server, tmp_path, **settings) as delivery:
            run.thread = execute(server, statements, database=schema)  # type: ignore[attr-defined]
            return delivery.read()

    return run


def test_a_statement_of_its_own_is_a_transaction(run: Run) -> None:
    begin, insert, end = run(["INSERT INTO t VALUES (1), (2)"])
    assert (begin.entryType, end.entryType) == (EntryType.TRANSACTIONBEGIN, EntryType.TRANSACTIONEND)
    assert transcript([insert]) == ["INSERT t 1", "INSERT t 2"]
    assert props(insert) == {"rowsCount": "2"}


def test_a_begin_has_the_thread_and_an_end_the_xid(run: Run, server: Server) -> None:
    entries = run(["INSERT INTO t VALUES (1)", "INSERT INTO t VALUES (2)"])
    begins = [it for it in entries if it.entryType == EntryType.TRANSACTIONBEGIN]
    ends = [it for it in entries if it.entryType == EntryType.TRANSACTIONEND]
    has_thread = server.name != "mariadb1011"  # its GTID events do not have it
    thread = run.thread if has_thread else 0  # type: ignore[attr-defined]
    assert [TransactionBegin.FromString(it.storeValue).threadId for it in begins] == [thread] * 2
    first, second = (int(TransactionEnd.FromString(it.storeValue).transactionId) for it in ends)
    assert 0 < first < second
    assert not any(it.header.HasField("eventType") for it in begins + ends)


def test_places_and_times_of_the_entries_ascend(run: Run, server: Server) -> None:
    entries = run(["INSERT INTO t VALUES (1)", "ALTER TABLE t ADD v INT", "INSERT INTO t VALUES (1, 2)"])
    headers = [entry.header for entry in entries]
    places = [header.logfileOffset for header in headers]
    assert places == sorted(set(places))
    assert all(header.executeTime % 1000 == 0 and header.executeTime > 0 for header in headers)
    assert {header.serverId for header in headers} == {server.port}
    assert {header.serverenCode for header in headers} == {"UTF-8"}
    # Each event is where its entry says, and as long.
    for header in headers:
        data = (server.data / header.logfileName).read_bytes()
        assert (
            int.from_bytes(data[header.logfileOffset + 9 : header.logfileOffset + 13], "little") == header.eventLength
        )


def test_statements_and_tables_of_a_transaction_come_in_their_order(run: Run) -> None:
    statements = [
        "BEGIN",
        "INSERT INTO t VALUES (1), (2)",
        "INSERT INTO u VALUES (7)",
        "UPDATE t, u SET t.id = t.id + 10, u.id = u.id + 10",
        "DELETE FROM t WHERE id = 12",
        "INSERT INTO t VALUES (3)",
        "COMMIT",
    ]
    lines = transcript(run(statements))
    assert (lines[:4], lines[-3:]) == (
        ["BEGIN", "INSERT t 1", "INSERT t 2", "INSERT u 7"],
        ["DELETE t 12", "INSERT t 3", "END"],
    )
    assert sorted(lines[4:-3]) == ["UPDATE t 1 > 11", "UPDATE t 2 > 12", "UPDATE u 7 > 17"]


def test_what_is_rolled_back_is_not_delivered(run: Run) -> None:
    statements = ["BEGIN", "INSERT INTO t VALUES (1)", "ROLLBACK", "BEGIN", "COMMIT", "INSERT INTO t VALUES (2)"]
    assert transcript(run(statements)) == ["BEGIN", "INSERT t 2", "END"]


def test_what_is_rolled_back_to_a_savepoint_is_not_delivered(run: Run) -> None:
    statements = [
        "BEGIN",
        "INSERT INTO t VALUES (1)",
        "SAVEPOINT a",
        "INSERT INTO t VALUES (2)",
        "ROLLBACK TO a",
        "INSERT INTO t VALUES (3)",
        "SAVEPOINT b",
        "INSERT INTO t VALUES (4)",
        "RELEASE SAVEPOINT b",
        "COMMIT",
    ]
    assert transcript(run(statements)) == ["BEGIN", "INSERT t 1", "INSERT t 3", "INSERT t 4", "END"]


def test_a_table_without_transactions_ends_by_commit_and_has_no_xid(run: Run) -> None:
    entries = run(["INSERT INTO m VALUES (1), (2)", "DELETE FROM m WHERE id = 1"])
    expected = ["BEGIN", "INSERT m 1", "INSERT m 2", "END", "BEGIN", "DELETE m 1", "END"]
    assert transcript(entries) == expected
    assert TransactionEnd.FromString(entries[-1].storeValue).transactionId == "0"


def test_of_two_tables_only_the_one_that_the_filter_takes_is_delivered(run: Run, schema: str) -> None:
    statements = ["BEGIN", "INSERT INTO t VALUES (1)", "INSERT INTO u VALUES (2)", "COMMIT"]
    assert transcript(run(statements, filter_regex=rf"{schema}\.u")) == ["BEGIN", "INSERT u 2", "END"]
    assert transcript(run(statements, filter_black_regex=rf"{schema}\.u")) == ["BEGIN", "INSERT t 1", "END"]


def test_kinds_of_changes_that_are_switched_off_are_left_out(run: Run) -> None:
    statements = [
        "INSERT INTO t VALUES (1)",
        "UPDATE t SET id = 2",
        "TRUNCATE t",
        "INSERT INTO u VALUES (3)",
        "DELETE FROM u",
    ]
    off: dict[str, Any] = {"filter_dml_insert": True, "filter_dml_delete": True, "filter_transaction_entry": True}
    lines = transcript(run(statements, **off))
    assert [line for line in lines if line not in ("BEGIN", "END")] == ["UPDATE t 1 > 2", "TRUNCATE t: TRUNCATE t"]
    off = {"filter_dml_update": True, "filter_query_ddl": True}
    lines = transcript(run(statements, **off))
    assert [line for line in lines if line not in ("BEGIN", "END")] == ["INSERT t 1", "INSERT u 3", "DELETE u 3"]
    assert transcript(run(statements, filter_rows=True))[-1] == "TRUNCATE t: TRUNCATE t"


def test_of_empty_transactions_one_in_five_seconds_is_delivered(run: Run, schema: str) -> None:
    statements = [f"INSERT INTO t VALUES ({number})" for number in range(20)]
    assert transcript(run(statements, filter_regex=rf"{schema}\.u")) in (["BEGIN", "END"], ["BEGIN", "END"] * 2)


def test_begins_and_ends_can_be_filtered(run: Run) -> None:
    statements = [f"INSERT INTO t VALUES ({number})" for number in range(20)]
    lines = transcript(run(statements, filter_transaction_entry=True))
    assert [line for line in lines if line.startswith("INSERT")] == [f"INSERT t {number}" for number in range(20)]
    assert lines.count("END") <= 2
    assert lines.count("BEGIN") <= 2


def test_canal_has_no_begin_on_mariadb(mariadb118: Server, database: Database, tmp_path: Path) -> None:
    schema = database(mariadb118)
    mariadb118.query("CREATE TABLE t (id INT)", database=schema)
    with deliver(mariadb118, tmp_path, strict_canal=True, filter_query_dml=True) as delivery:
        mariadb118.query("INSERT INTO t VALUES (1)", database=schema)
        assert transcript(delivery.read()) == ["INSERT t 1", "END"]


# XA. MySQL before 5.7 and MariaDB before 10.5 write nothing at XA PREPARE; MariaDB never writes XA START.


def xa(name: str, *statements: str | bytes, end: str = "COMMIT") -> list[str | bytes]:
    """The statements of an XA transaction that is prepared and then ends."""
    ends = [f"XA PREPARE {name}", *([f"XA {end} {name}"] if end else [])]
    return [f"XA START {name}", *statements, f"XA END {name}", *ends]


def place_of(server: Server, statement: str) -> int:
    """Where the last file of the binlog has a statement."""
    file, _ = end_of_binlog(server)
    return int(next(row[1] for row in server.query(f"SHOW BINLOG EVENTS IN '{file}'") if row[5].startswith(statement)))


def test_an_xa_transaction_comes_when_it_is_committed(run: Run, server: Server) -> None:
    server.query("FLUSH BINARY LOGS")  # SHOW BINLOG EVENTS can fail on what others have written
    entries = run(xa("'one', 'two', 3", "INSERT INTO t VALUES (1)"))
    assert transcript(entries) == ["BEGIN", "INSERT t 1", "END"]
    if server.name == "mysql56":
        return
    assert {props(entry)["sluice.xa"] for entry in entries} == {"committed X'6f6e65',X'74776f',3"}
    assert {entry.header.logfileOffset for entry in entries} == {place_of(server, "XA COMMIT X'6f6e65',X'74776f',3")}
    begin, _, end = entries
    assert not TransactionBegin.FromString(begin.storeValue).props
    assert TransactionBegin.FromString(begin.storeValue).threadId == run.thread  # type: ignore[attr-defined]
    ends = TransactionEnd.FromString(end.storeValue)
    assert (list(ends.props), ends.transactionId) == ([], "0")


def test_every_form_of_a_row_says_that_it_is_of_an_xa_transaction(run: Run, server: Server) -> None:
    if server.name == "mysql56":
        return
    entries = run(xa("'a'", "INSERT INTO t VALUES (1)"))
    data = Messages(messages=[entry.SerializeToString() for entry in entries]).SerializeToString()
    committed = Xa("committed", "X'61',X'',1")
    assert [change.xa for change in decode_changes(data)] == [committed] * 3
    assert [row.xa for row in decode_rows(data)] == [committed]
    assert [it["xa"] for it in json.loads(flat_json([data], 1))] == [str(committed)]
    assert EnvelopeDecoder().decode(data).column("_xa").to_pylist() == [str(committed)]
    shown = [line.plain for change in decode_changes(data) for line in describe(change, transactions=True)]
    assert [str(committed) in line for line in shown] == [True] * 3


def test_canal_gives_an_xa_transaction_when_it_is_prepared(run: Run, server: Server) -> None:
    if server.name == "mysql56":
        return
    entries = run(
        [*xa("'a'", "INSERT INTO t VALUES (1)"), *xa("'b'", "INSERT INTO t VALUES (2)", end="ROLLBACK")],
        strict_canal=True,
    )
    begin = [] if server.mariadb else ["BEGIN"]
    assert transcript(entries) == [
        *[*begin, "INSERT t 1", "END", "XACOMMIT: XA COMMIT X'61',X'',1"],
        *[*begin, "INSERT t 2", "END", "XAROLLBACK: XA ROLLBACK X'62',X'',1"],
    ]
    ends = {"XA_TYPE": "XA END", "XA_XID": " X'61',X'',1"}
    assert {it.key: it.value for it in TransactionEnd.FromString(entries[len(begin) + 1].storeValue).props} == ends
    commit = entries[len(begin) + 2]
    change = RowChange.FromString(commit.storeValue)
    assert {it.key: it.value for it in change.props} == {"XA_TYPE": "XA COMMIT", "XA_XID": " X'61',X'',1"}
    assert (commit.header.schemaName, commit.header.tableName, change.isDdl) == ("", "", False)
    assert not any("sluice.xa" in props(entry) for entry in entries)


def test_nothing_comes_of_an_xa_transaction_that_is_rolled_back(run: Run) -> None:
    assert not run(xa("'b'", "INSERT INTO t VALUES (1)", end="ROLLBACK"))


@pytest.mark.parametrize(
    "inserts",
    [1, pytest.param(18, marks=pytest.mark.extended)],
    ids=["small", "larger than what is looked ahead"],
)
def test_an_xa_transaction_says_from_its_begin_on_whether_it_is_committed_in_one_phase(
    run: Run, server: Server, schema: str, inserts: int
) -> None:
    if server.name == "mysql56":
        return
    execute(server, ["CREATE TABLE v (v LONGTEXT)"], database=schema)
    rows = [f"INSERT INTO v VALUES (REPEAT('{number % 10}', 1000000))" for number in range(inserts)]
    entries = run(["XA START 'c'", *rows, "XA END 'c'", "XA COMMIT 'c' ONE PHASE"])
    assert len(entries) == 1 + inserts + 1
    # MariaDB writes a transaction that never was prepared as any other.
    assert {props(entry).get("sluice.xa") for entry in entries} == {None if server.mariadb else "one-phase X'63',X'',1"}
    entries = run([*xa("'d'", *rows), *xa("'e'", *rows, end="ROLLBACK")])
    assert {props(entry).get("sluice.xa") for entry in entries} == {"committed X'64',X'',1"}
    texts = [line.removeprefix("INSERT v ") for line in transcript(entries)[1:-1]]
    assert texts == [f"{number % 10}" * 1_000_000 for number in range(inserts)]


def test_how_an_xa_transaction_ends_is_found_among_long_statements_with_binary_literals(
    run: Run, server: Server, schema: str
) -> None:
    if server.name == "mysql56":
        return
    execute(server, ["CREATE TABLE v (v LONGBLOB)"], database=schema)
    setting = "binlog_annotate_row_events" if server.mariadb else "binlog_rows_query_log_events"
    insert = b"INSERT INTO v VALUES (_binary'" + b"\xff" * 900_000 + b"')"
    inserts = [insert] * 20 + [b"INSERT INTO v VALUES (_binary'\xfe')"] * 50  # 18 MB of texts, and 210 events
    one_phase = ["XA START 'c'", *inserts, "XA END 'c'", "XA COMMIT 'c' ONE PHASE"]
    for statements, mark in (
        (one_phase, None if server.mariadb else "one-phase X'63',X'',1"),
        (xa("'c'", *inserts), "committed X'63',X'',1"),
    ):
        entries = run([f"SET SESSION {setting} = 1", *statements])
        assert len(entries) == 1 + len(inserts) + 1
        assert {props(entry).get("sluice.xa") for entry in entries} == {mark}


def test_what_was_prepared_before_the_start_is_found_in_the_binlog(
    run: Run, server: Server, schema: str, tmp_path: Path
) -> None:
    if server.name == "mysql56":
        return
    # The xid was used before: what was committed and rolled back then is not taken again.
    used = [*xa("'d'", "INSERT INTO t VALUES (8)"), *xa("'d'", "INSERT INTO t VALUES (9)", end="ROLLBACK")]
    # Prepared transactions of MySQL 5.7 and later outlive their connection; MariaDB's do since 10.5.
    execute(server, [*used, *xa("'d'", "INSERT INTO t VALUES (1)", end="")], database=schema)
    execute(server, xa("'e'", "INSERT INTO t VALUES (5)", end=""), database=schema)
    server.query("FLUSH BINARY LOGS")
    file, offset = end_of_binlog(server)
    lines = transcript(run(["INSERT INTO u VALUES (2)", "XA COMMIT 'd'", "XA ROLLBACK 'e'"]))
    assert lines == ["BEGIN", "INSERT u 2", "END", "BEGIN", "INSERT t 1", "END"]
    with deliver(
        server, tmp_path / "again", master_journal_name=file, master_position=offset, filter_query_dml=True
    ) as delivery:
        assert transcript(delivery.read())[: len(lines)] == lines


def test_a_prepared_part_that_is_purged_is_a_gap(run: Run, server: Server, schema: str) -> None:
    if server.name == "mysql56":
        return
    execute(server, xa("'f'", "INSERT INTO t VALUES (1)", end=""), database=schema)
    server.query("FLUSH BINARY LOGS")
    server.purge_binlogs(end_of_binlog(server)[0])
    gap, *others = run(["XA COMMIT 'f'", "INSERT INTO t VALUES (2)"])
    reason = "the XA transaction X'66',X'',1 is committed here, but the source has purged where it was prepared"
    assert props(gap)["sluice.gap"] == reason
    assert transcript(others) == ["BEGIN", "INSERT t 2", "END"]
