"""The parser on real servers: what it delivers, and what it does when something breaks."""

import json
import socket
import threading
import time
from pathlib import Path

import pytest

from sluice.instance.quarantine import path_of
from sluice.instance.sink.filters import TableFilter
from sluice.instance.status import ParserStatus
from sluice.protocol.canal.entry_pb2 import EventType, RowChange
from sluice.store.ring import Flag, Kind, Ring, Staging
from sluice.store.segment import SegmentWriter
from tests.conftest import Database
from tests.proxy import Proxy
from tests.reading import Reading, config, cursor
from tests.servers import Server, next_second


def test_inserts_updates_and_deletes_arrive_in_their_transactions(
    server: Server, database: Database, tmp_path: Path
) -> None:
    name = database(server)
    with Reading(config(server, tmp_path)) as reading:
        reading.wait(lambda: reading.running)
        server.query("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))", database=name)
        server.query("INSERT INTO t VALUES (1, 'a'), (2, 'ü')", database=name)
        server.script(
            "BEGIN;\nUPDATE t SET v = NULL WHERE id = 2;\nDELETE FROM t WHERE id = 1;\nCOMMIT;\n", database=name
        )
        assert reading.wait_for(f"DELETE {name}.t") is not None
        reading.wait(lambda: reading.lines()[-1] == "END")
        assert reading.lines() == [
            f"CREATE {name}.t",
            "BEGIN",
            f"INSERT {name}.t 1,a",
            f"INSERT {name}.t 2,ü",
            "END",
            "BEGIN",
            f"UPDATE {name}.t 2,NULL",
            f"DELETE {name}.t 1,a",
            "END",
        ]


def test_another_filter_holds_from_the_next_statement_on(
    mariadb118: Server, database: Database, tmp_path: Path
) -> None:
    name = database(mariadb118)
    mariadb118.query("CREATE TABLE a (id INT PRIMARY KEY)", database=name)
    mariadb118.query("CREATE TABLE b (id INT PRIMARY KEY)", database=name)
    with Reading(config(mariadb118, tmp_path, filter_regex=rf"{name}\.a")) as reading:
        reading.wait(lambda: reading.running)
        written = []
        for number, table in enumerate("abab", 1):
            reading.parser.refilter(TableFilter(rf"{name}\.{table}"))
            for each in "ab":
                mariadb118.query(f"INSERT INTO {each} VALUES ({number})", database=name)
            mariadb118.query(f"CREATE OR REPLACE TABLE c{number} (id INT)", database=name)  # of no table that passes
            written.append(f"INSERT {name}.{table} {number}")
            reading.wait_for(written[-1])
        assert [line for line in reading.lines() if line not in ("BEGIN", "END")] == written


def test_a_ddl_is_followed(server: Server, database: Database, tmp_path: Path) -> None:
    name = database(server)
    with Reading(config(server, tmp_path)) as reading:
        reading.wait(lambda: reading.running)
        server.query("CREATE TABLE t (id INT PRIMARY KEY)", database=name)
        reading.wait_for(f"CREATE {name}.t")
        server.query("INSERT INTO t VALUES (1)", database=name)
        reading.wait_for(f"INSERT {name}.t 1")
        server.query("ALTER TABLE t ADD v VARCHAR(10) FIRST, ADD KEY (v)", database=name)
        server.query("INSERT INTO t VALUES ('x', 2)", database=name)
        reading.wait_for(f"INSERT {name}.t x,2")
        server.query("RENAME TABLE t TO u", database=name)
        server.query("INSERT INTO u VALUES ('y', 3)", database=name)
        reading.wait_for(f"INSERT {name}.u y,3")
        server.query("GRANT SELECT ON *.* TO cdc")
        server.query("TRUNCATE u", database=name)
        server.query("DROP TABLE u", database=name)
        reading.wait_for(f"ERASE {name}.u")
        assert [line for line in reading.lines() if line not in ("BEGIN", "END")] == [
            f"CREATE {name}.t",
            f"INSERT {name}.t 1",
            f"ALTER {name}.t",
            f"INSERT {name}.t x,2",
            f"RENAME {name}.u",
            f"INSERT {name}.u y,3",
            f"TRUNCATE {name}.u",
            f"ERASE {name}.u",
        ]


def test_excluded_tables_do_not_arrive(mysql97: Server, database: Database, tmp_path: Path) -> None:
    name = database(mysql97)
    options = config(mysql97, tmp_path, filter_regex=rf"{name}\..*", filter_black_regex=r".*\.tmp_.*")
    with Reading(options) as reading:
        reading.wait(lambda: reading.running)
        mysql97.script("CREATE TABLE t (id INT);\nCREATE TABLE tmp_t (id INT);\n", database=name)
        mysql97.script("INSERT INTO tmp_t VALUES (1);\nINSERT INTO t VALUES (2);\n", database=name)
        reading.wait_for(f"INSERT {name}.t 2")
        assert not [line for line in reading.lines() if "tmp_t" in line]


def test_columns_that_are_not_wanted_do_not_arrive(server: Server, database: Database, tmp_path: Path) -> None:
    name = database(server)
    options = config(server, tmp_path, filter_field=f"{name}.t:id/A", filter_black_field=f"{name}.u:b")
    with Reading(options) as reading:
        reading.wait(lambda: reading.running)
        for table in "tu":
            server.query(f"CREATE TABLE {table} (id INT PRIMARY KEY, a INT, b INT, c INT)", database=name)
            server.query(f"INSERT INTO {table} VALUES (1, 2, 3, 4)", database=name)
        server.query("UPDATE t SET a = 5, b = 6", database=name)
        reading.wait_for(f"UPDATE {name}.t")
        assert reading.rows() == [f"INSERT {name}.t 1,2", f"INSERT {name}.u 1,2,4", f"UPDATE {name}.t 1,5"]


def test_a_change_logged_as_a_statement_is_counted_and_delivered_as_text(
    mariadb118: Server, database: Database, tmp_path: Path
) -> None:
    name = database(mariadb118)
    with Reading(config(mariadb118, tmp_path)) as reading:
        reading.wait(lambda: reading.running)
        mariadb118.script(
            "CREATE TABLE t (id INT);\nSET SESSION binlog_format = STATEMENT;\nINSERT INTO t VALUES (1);\n",
            database=name,
        )
        reading.wait_for(f"INSERT {name}.t")
        reading.wait(lambda: reading.parser.status.dml_statements == 1)
        (insert,) = [it for it in reading.entries() if it.header.eventType == EventType.INSERT]
        assert RowChange.FromString(insert.storeValue).sql == "INSERT INTO t VALUES (1)"
        assert reading.rows() == [f"INSERT {name}.t"]


def test_the_parser_counts_and_does_not_lag_while_the_source_is_quiet(
    mariadb118: Server, database: Database, tmp_path: Path
) -> None:
    name = database(mariadb118)
    with (
        Proxy((mariadb118.host, mariadb118.port)) as proxy,
        Reading(config(mariadb118, tmp_path, master_address=f"127.0.0.1:{proxy.port}")) as reading,
    ):
        assert reading.parser.status == ParserStatus()
        reading.wait(lambda: reading.running)
        mariadb118.script("CREATE TABLE t (id INT);\nINSERT INTO t VALUES (1);\n", database=name)
        reading.wait_for(f"INSERT {name}.t 1")
        first = reading.parser.status
        assert (first.connections, first.quarantined, first.dml_statements) == (1, 0, 0)
        assert first.transactions == 2
        assert first.events > first.transactions
        assert first.received_bytes > 100
        assert first.behind is not None
        assert first.behind < 5
        reading.wait(lambda: reading.parser.status.behind == 0)
        proxy.cut()
        mariadb118.query("INSERT INTO t VALUES (2)", database=name)
        reading.wait_for(f"INSERT {name}.t 2")
        assert reading.parser.status.connections == 2


def test_a_saved_position_is_resumed_exactly(server: Server, database: Database, tmp_path: Path) -> None:
    name = database(server)
    with Reading(config(server, tmp_path)) as reading:
        reading.wait(lambda: reading.running)
        server.query("CREATE TABLE t (id INT)", database=name)
        for number in range(5):
            server.query("INSERT INTO t VALUES (%s)", (number,), database=name)
        reading.wait_for(f"INSERT {name}.t 4")
        reading.wait(lambda: reading.lines()[-1] == "END")
        places = reading.boundaries()
        lines = reading.lines()
    for behind, place in enumerate(places):
        with Reading(config(server, tmp_path), start=cursor(place), stop=places[-1]) as again:
            again.wait(lambda again=again: again.states[-1:] == [("finished", "")])  # type: ignore[misc]
            rest = lines[1 + 3 * behind :] if behind else lines[1:]
            assert again.lines() == rest


def test_cut_connections_are_made_again_without_loss_or_repetition(
    server: Server, database: Database, tmp_path: Path
) -> None:
    name = database(server)
    server.query("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(200))", database=name)
    with Proxy((server.host, server.port), seed=7) as proxy:
        options = config(server, tmp_path, master_address=f"127.0.0.1:{proxy.port}")
        with Reading(options) as reading:
            reading.wait(lambda: reading.running)
            proxy.cut_randomly(60_000)
            for start in range(0, 3000, 100):
                rows = ", ".join(f"({number}, REPEAT('x', {number % 200}))" for number in range(start, start + 100))
                server.query(f"INSERT INTO t VALUES {rows}", database=name)
            reading.wait(lambda: proxy.cuts > 3, 60)
            proxy.heal()
            reading.wait_for(f"INSERT {name}.t 2999", 60)
            numbers = [int(line.split(" ")[2].split(",")[0]) for line in reading.rows()]
            assert numbers == list(range(3000))
            lines = [line for line in reading.lines() if line in ("BEGIN", "END")]
            assert lines == ["BEGIN", "END"] * 30


def test_a_parser_goes_on_after_its_own_last_slot_though_another_has_put_since(
    mariadb118: Server, database: Database, tmp_path: Path
) -> None:
    name = database(mariadb118)
    mariadb118.query("CREATE TABLE t (id INT)", database=name)
    proxy = Proxy((mariadb118.host, mariadb118.port))
    with proxy, Reading(config(mariadb118, tmp_path, master_address=f"127.0.0.1:{proxy.port}")) as reading:
        reading.wait(lambda: reading.running)
        mariadb118.query("INSERT INTO t VALUES (1)", database=name)
        reading.wait(lambda: reading.lines()[-1:] == ["END"])
        ring, other = reading.ring, Staging()
        source, file = ring.sources.intern(("", "another source")), ring.files.intern(("binlog.000009", 1))
        writer = SegmentWriter(ring.pool)
        other.add_entry(writer, Kind.ADVANCE, source=source, file=file, begin=4, next_file=file, next_begin=104)
        ring.put(other)
        proxy.cut()
        mariadb118.query("INSERT INTO t VALUES (2)", database=name)
        reading.wait_for(f"INSERT {name}.t 2")
        assert reading.rows() == [f"INSERT {name}.t 1", f"INSERT {name}.t 2"]


@pytest.mark.extended
def test_a_restart_of_the_source_is_survived(mysql97: Server, database: Database, tmp_path: Path) -> None:
    name = database(mysql97)
    mysql97.query("CREATE TABLE t (id INT)", database=name)
    with Reading(config(mysql97, tmp_path)) as reading:
        reading.wait(lambda: reading.running)
        mysql97.query("INSERT INTO t VALUES (1)", database=name)
        mysql97.restart()
        mysql97.query("INSERT INTO t VALUES (2)", database=name)
        reading.wait_for(f"INSERT {name}.t 2", 40)
        assert reading.rows() == [f"INSERT {name}.t 1", f"INSERT {name}.t 2"]
        assert ("running", "") in reading.states


def test_a_full_ring_holds_the_source_back(mariadb118: Server, database: Database, tmp_path: Path) -> None:
    name = database(mariadb118)
    mariadb118.query("CREATE TABLE t (id INT, v VARCHAR(1000))", database=name)
    ring = Ring(16, 64 << 10, 16 << 10)
    with Reading(config(mariadb118, tmp_path), ring=ring) as reading:
        reading.wait(lambda: reading.running)
        mariadb118.query("INSERT INTO t SELECT seq, REPEAT('x', 1000) FROM seq_1_to_2000", database=name)
        rows = 0
        reading.wait(lambda: ring.waiting)
        while rows < 2000:
            reading.wait(lambda: ring.next > ring.first)
            rows += len(reading.rows())
            ring.free_to(ring.next)
        assert rows == 2000


def test_a_table_that_is_gone_is_put_into_quarantine_and_the_others_flow_on(
    mysql97: Server, database: Database, tmp_path: Path
) -> None:
    name = database(mysql97)
    mysql97.query("CREATE TABLE u (id INT)", database=name)
    with Reading(config(mysql97, tmp_path, tsdb_enable=False)) as reading:
        reading.wait(lambda: reading.running)
        mysql97.query("CREATE TABLE t (id INT)", database=name)
        reading.wait_for(f"CREATE {name}.t")
        begin = reading.boundaries()[0]
    mysql97.script("INSERT INTO u VALUES (1);\nDROP TABLE u;\nINSERT INTO t VALUES (2);\n", database=name)
    for _ in range(2):  # a second reading lists nothing again
        with Reading(config(mysql97, tmp_path, tsdb_enable=False), start=cursor(begin)) as reading:
            reading.wait_for(f"INSERT {name}.t 2")
            assert f"QUERY {name}.u" in reading.lines()
            assert Kind.QUARANTINE in reading.kinds()
            marker = next(entry for entry in reading.entries() if entry.header.props and entry.header.tableName == "u")
            assert marker.header.props[0].key == "sluice.quarantine"
    items = [json.loads(line) for line in path_of(tmp_path, "example").read_text().splitlines()]
    assert [(item["schema"], item["table"]) for item in items] == [(name, "u")]
    assert "dropped or renamed" in items[0]["error"]


def test_without_quarantine_the_destination_stops_at_what_cannot_be_decoded(
    mysql97: Server, database: Database, tmp_path: Path
) -> None:
    name = database(mysql97)
    mysql97.query("CREATE TABLE u (id INT)", database=name)
    with Reading(config(mysql97, tmp_path, tsdb_enable=False, quarantine=False)) as reading:
        reading.wait(lambda: reading.running)
        begin = cursor(reading.begun[0][0])  # type: ignore[arg-type]
    mysql97.script("INSERT INTO u VALUES (1);\nDROP TABLE u;\n", database=name)
    with Reading(config(mysql97, tmp_path, tsdb_enable=False, quarantine=False), start=begin) as reading:
        reading.wait(lambda: f"{name}.u is unknown" in reading.error)
        assert reading.lines() == ["BEGIN"]


def test_rows_older_than_their_tables_last_ddl_are_flagged(
    mariadb118: Server, database: Database, tmp_path: Path
) -> None:
    name = database(mariadb118)
    mariadb118.query("CREATE TABLE t (a INT, b INT)", database=name)
    with Reading(config(mariadb118, tmp_path, tsdb_enable=False)) as reading:
        reading.wait(lambda: reading.running)
        begin = cursor(reading.begun[0][0])  # type: ignore[arg-type]
    mariadb118.query("INSERT INTO t VALUES (1, 2)", database=name)
    next_second()
    mariadb118.query("ALTER TABLE t CHANGE a c INT", database=name)
    next_second()  # within the second of the DDL it is in doubt
    mariadb118.query("INSERT INTO t VALUES (3, 4)", database=name)
    with Reading(config(mariadb118, tmp_path, tsdb_enable=False), start=begin) as reading:
        reading.wait_for(f"INSERT {name}.t 3,4")
        slots = [reading.ring.slot(number) for number in range(reading.ring.first, reading.ring.next)]
        flags = [bool(slot.flags & Flag.FUTURE_SCHEMA) for slot in slots if slot.kind == Kind.ROW_DATA]
        assert flags == [True, False]
        assert reading.parser.status.future_rows == 1


@pytest.mark.parametrize("mode", ["DISABLED", "PREFERRED"])
def test_a_stop_does_not_wait_for_what_the_source_sends_next(mysql97: Server, tmp_path: Path, mode: str) -> None:
    with Reading(config(mysql97, tmp_path, ssl_mode=mode)) as reading:
        reading.wait(lambda: reading.running)
        time.sleep(0.2)
        reading.parser.stop()
        reading.parser.join(5)
        assert not [thread for thread in threading.enumerate() if thread.name == "parser example"]


def test_a_source_that_cannot_be_reached_is_an_error_state_and_tried_again(mysql97: Server, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        nobody.settimeout(20)
        options = config(mysql97, tmp_path, master_address=f"127.0.0.1:{nobody.getsockname()[1]}", db_password="s3cret")
        with Reading(options) as reading:
            for _ in range(3):
                connection, _ = nobody.accept()
                connection.close()
            reading.wait(lambda: "cannot log in" in reading.error)
            assert "s3cret" not in str(reading.states)


def test_a_source_that_falls_silent_is_given_up_and_connected_to_again(
    mariadb118: Server, database: Database, tmp_path: Path
) -> None:
    name = database(mariadb118)
    mariadb118.query("CREATE TABLE t (id INT)", database=name)
    with Proxy((mariadb118.host, mariadb118.port)) as proxy:
        options = config(mariadb118, tmp_path, master_address=f"127.0.0.1:{proxy.port}", so_timeout=2)
        with Reading(options) as reading:
            reading.wait(lambda: reading.running)
            proxy.stall()
            reading.wait(lambda: "sent nothing, not even a heartbeat, for 2 s" in reading.error)
            proxy.resume()
            mariadb118.query("INSERT INTO t VALUES (1)", database=name)
            reading.wait_for(f"INSERT {name}.t 1")
            assert reading.running


@pytest.mark.extended
def test_a_dead_connection_is_told_from_a_source_without_changes(mariadb118: Server, tmp_path: Path) -> None:
    with (
        Proxy((mariadb118.host, mariadb118.port)) as proxy,
        Reading(config(mariadb118, tmp_path, master_address=f"127.0.0.1:{proxy.port}")) as reading,
    ):
        reading.wait(lambda: reading.parser.status.behind == 0.0)
        proxy.stall()
        reading.wait(lambda: reading.parser.status.silent > 0)
        assert reading.running
        assert reading.parser.status.behind
        proxy.resume()
        reading.wait(lambda: reading.parser.status.behind == 0.0)
        assert reading.parser.status.silent == 0.0


def test_in_gtid_mode_headers_carry_the_executed_set(mysql97: Server, database: Database, tmp_path: Path) -> None:
    name = database(mysql97)
    mysql97.query("CREATE TABLE t (id INT)", database=name)
    ((executed,),) = mysql97.query("SELECT @@global.gtid_executed")
    mysql97.query("INSERT INTO t VALUES (1)", database=name)
    with Reading(config(mysql97, tmp_path, gtid_on=True, master_gtid=executed.replace("\n", ""))) as reading:
        reading.wait_for(f"INSERT {name}.t 1")
        assert reading.lines()[:2] == ["BEGIN", f"INSERT {name}.t 1"]
        ((executed,),) = mysql97.query("SELECT @@global.gtid_executed")
        assert reading.entries()[1].header.gtid == executed.replace("\n", "")


def test_mariadb_is_read_from_a_gtid_set(mariadb118: Server, database: Database, tmp_path: Path) -> None:
    name = database(mariadb118)
    mariadb118.query("CREATE TABLE t (id INT)", database=name)
    ((executed,),) = mariadb118.query("SELECT @@global.gtid_binlog_pos")
    mariadb118.query("INSERT INTO t VALUES (1)", database=name)
    with Reading(config(mariadb118, tmp_path, gtid_on=True, master_gtid=executed)) as reading:
        reading.wait_for(f"INSERT {name}.t 1")
        assert reading.lines()[:2] == ["BEGIN", f"INSERT {name}.t 1"]
