"""What is answered to control events, on binlogs made for it."""

import struct
from pathlib import Path
from typing import Any

import pytest

from sluice.instance.columns import SourceColumn
from sluice.instance.quarantine import Quarantine, path_of, read
from sluice.instance.sources.mysql.config import MysqlConfig
from sluice.instance.sources.mysql.control import Control
from sluice.instance.sources.mysql.decode.decoder import Decoder, Status
from sluice.instance.sources.mysql.decode.events import BinlogEvent
from sluice.instance.sources.mysql.schema import Schemas, TableSchema
from sluice.protocol.canal import entry_pb2 as pb
from sluice.protocol.canal.packet_pb2 import Messages
from sluice.protocol.errors import DecodeError, PurgedError, SourceError
from sluice.protocol.lexer import NO_BACKSLASH_ESCAPES, Dialect
from sluice.store.ring import Kind, Ring
from tests.binlog import Log
from tests.decoding import feed
from tests.unit.plans import table_map

CHARSETS = {8: "latin1", 45: "utf8mb4"}
MYSQL80 = Dialect((8, 0, 15), mariadb=False, charsets=frozenset(CHARSETS.values()))


class Recorded:
    """A schema history: `db.t` has one column, all else is unknown."""

    def fetch(self, schema: str, table: str, timestamp: int) -> TableSchema:
        del timestamp
        if (schema, table) == ("db", "years"):
            return TableSchema(
                [SourceColumn("y", "year"), SourceColumn("a", "int unsigned"), SourceColumn("b", "bigint")]
            )
        if (schema, table) != ("db", "t"):
            raise DecodeError(f"{schema}.{table} is unknown")
        return TableSchema([SourceColumn("id", "int", None, is_key=True)])


def answer(
    log: Log, folder: Path, packets: bytes = b"", *, announced: str = "", **options: Any
) -> tuple[list[Kind], list[pb.Entry]]:
    """Decode the log as the parser does."""
    settings: dict[str, Any] = {
        "destination": "example",
        "master_address": "h",
        "db_username": "u",
        "file_data_dir": folder,
    }
    config = MysqlConfig(**(settings | options))
    ring = Ring()
    decoder = Decoder(ring, config)
    quarantine = Quarantine(path_of(folder, "example"))
    control = Control(config, ring, decoder, quarantine)
    control.schemas, control.charsets, control.asks_schemas = Schemas(Recorded(), MYSQL80), CHARSETS, True
    control.mariadb = False
    control.pending_shape = announced
    decoder.begin(source="source")
    data = b"".join(log.packets) + packets
    while (status := decoder.run()) is not Status.NEED_DATA or data:
        if status is Status.NEED_DATA:
            data = feed(decoder, data)
        elif status is Status.CONTROL:
            assert decoder.event is not None
            control.answer(decoder.event)
    ring.put(decoder.staging)
    quarantine.sync()
    slots = [ring.slot(number) for number in range(ring.first, ring.next)]
    messages = Messages.FromString(b"".join(ring.collect(ring.first).slices)).messages
    return [Kind(slot.kind) for slot in slots if slot.length], [pb.Entry.FromString(entry) for entry in messages]


def test_an_incident_is_a_recorded_gap(tmp_path: Path) -> None:
    kinds, (entry,) = answer(Log().add(BinlogEvent.INCIDENT_EVENT, b"\1\0\4lost"), tmp_path)
    assert kinds == [Kind.GAP]
    assert [(prop.key, prop.value) for prop in entry.header.props] == [
        ("sluice.gap", "the source has lost changes: lost")
    ]


def test_a_ddl_has_canals_header(tmp_path: Path) -> None:
    kinds, (entry,) = answer(Log().query("ALTER TABLE t ADD v INT"), tmp_path)
    change = pb.RowChange.FromString(entry.storeValue)
    assert kinds == [Kind.DDL]
    assert (entry.header.schemaName, entry.header.tableName, entry.header.eventType) == ("db", "t", pb.ALTER)
    assert (entry.header.logfileName, entry.header.serverId, entry.header.serverenCode) == ("bin.000001", 7, "UTF-8")
    assert (change.isDdl, change.sql, change.ddlSchemaName) == (True, "ALTER TABLE t ADD v INT", "db")


@pytest.mark.parametrize(
    ("sql", "options", "expected"),
    [
        ("GRANT SELECT ON *.* TO u", {}, []),
        ("FROBNICATE", {}, [(pb.QUERY, "", "", True)]),
        ("FROBNICATE", {"filter_query_dcl": True}, []),
        ("CREATE DATABASE crm", {}, [(pb.QUERY, "crm", "", True)]),
        ("DROP TABLE t", {"filter_query_ddl": True}, []),
        ("DROP TABLE t", {"filter_regex": r"crm\..*"}, []),
        ("RENAME TABLE crm.t TO t", {"filter_regex": r"crm\..*"}, [(pb.RENAME, "db", "t", True)]),
        ("INSERT INTO t VALUES (1)", {}, [(pb.INSERT, "db", "t", False)]),
        ("INSERT INTO t VALUES (1)", {"filter_query_dml": True}, []),
        ("UPDATE (t) SET id = 1", {"filter_regex": r"crm\..*"}, []),
        ("INSERT INTO t VALUES (1)", {"filter_regex": r"db\..*"}, []),
        ("INSERT INTO t VALUES (1)", {"filter_regex": r".+\..+,db\.t"}, [(pb.INSERT, "db", "t", False)]),
        ("INSERT INTO t VALUES (1)", {"filter_black_regex": r"crm\..*"}, []),
        ("INSERT INTO t VALUES (1)", {"filter_black_field": "crm.x:y"}, []),
        ("INSERT INTO t VALUES (1)", {"filter_mask": "crm.x.y: null"}, []),
        ("UPDATE (t) SET id = 1", {"filter_query_ddl": True, "filter_query_dcl": True}, [(pb.UPDATE, "", "", False)]),
        ("UPDATE (t) SET id = 1", {"filter_query_dml": True}, []),
        ("DELETE t.*, u FROM t, u", {"filter_query_dml": True}, []),
        ("XA COMMIT X'31',X'',1", {"strict_canal": True}, [(pb.XACOMMIT, "", "", False)]),
        ("XA ROLLBACK X'31',X'',1", {"strict_canal": True}, [(pb.XAROLLBACK, "", "", False)]),
        ("XA ROLLBACK X'31',X'',1", {}, []),
    ],
)
def test_filters_decide_on_statements(
    tmp_path: Path, sql: str, options: dict[str, Any], expected: list[tuple[object, ...]]
) -> None:
    _, entries = answer(Log().query(sql), tmp_path, **options)
    found = [
        (it.header.eventType, it.header.schemaName, it.header.tableName, pb.RowChange.FromString(it.storeValue).isDdl)
        for it in entries
    ]
    assert found == expected


def test_quotes_are_those_of_the_events_sql_mode(tmp_path: Path) -> None:
    """Else what follows the backslash is taken for text, and the rename to a table that is wanted is missed."""
    sql = rb"ALTER TABLE crm.t COMMENT 'a\', RENAME TO u"
    log = Log()
    for mode in (0, NO_BACKSLASH_ESCAPES):
        status = b"\1" + struct.pack("<Q", mode)
        log.add(BinlogEvent.QUERY_EVENT, struct.pack("<IIBHH", 1, 0, 2, 0, len(status)) + status + b"db\0" + sql)
    _, entries = answer(log, tmp_path, filter_regex=r"db\..*")
    assert [(entry.header.schemaName, entry.header.tableName) for entry in entries] == [("crm", "t")]


@pytest.mark.parametrize(("collation", "table"), [(8, "t"), (45, "t\xa0")])
def test_a_no_break_space_is_part_of_a_name_that_comes_in_utf8(tmp_path: Path, collation: int, table: str) -> None:
    status = b"\4" + struct.pack("<3H", collation, collation, collation)
    sql = "CREATE TABLE t\xa0 (id INT)".encode({8: "latin1", 45: "utf-8"}[collation])
    log = Log()
    log.add(BinlogEvent.QUERY_EVENT, struct.pack("<IIBHH", 1, 0, 2, 0, len(status)) + status + b"db\0" + sql)
    _, entries = answer(log, tmp_path)
    assert [entry.header.tableName for entry in entries] == [table]


@pytest.mark.parametrize(
    ("sql", "what"),
    [
        ("UPDATE t SET id = 1", "the change of db.t"),
        ("UPDATE (t) SET id = 1", "a change of tables that are not known"),
    ],
)
def test_a_change_that_was_logged_as_a_statement_is_said(
    tmp_path: Path, sql: str, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    answer(Log().query(sql), tmp_path, filter_query_dml=True)
    assert f"{what} at source/bin.000001@" in caplog.text
    assert "was logged as a statement: its rows cannot be delivered" in caplog.text


def test_text_that_is_not_of_its_charset_is_still_valid(tmp_path: Path) -> None:
    log = Log()
    status = b"\x04" + struct.pack("<HHH", 8, 8, 8)
    body = struct.pack("<IIBHH", 9, 0, 2, 0, len(status)) + status + b"db\0" + b"CREATE TABLE caf\xe9 (id INT)"
    _, (entry,) = answer(log.add(BinlogEvent.QUERY_EVENT, body), tmp_path)
    assert entry.header.tableName == "café"


@pytest.mark.parametrize(
    ("version", "signs"),
    [("8.0.20", b"\x80"), ("8.0.22", b"\x80"), ("8.0.22", b"\xc0"), ("9.7.4", b"\xc0")],
    ids=["not counted", "open, and not counted", "open, and counted", "counted"],
)
def test_unsigned_columns_after_a_year_are_read_right_from_every_version(
    version: str, signs: bytes, tmp_path: Path
) -> None:
    optional = b"\1\1" + signs + b"\4\6\1y\1a\1b"
    body = table_map((13, b""), (3, b""), (8, b""), optional=optional, schema="db", table="years")
    insert = (7).to_bytes(6, "little") + b"\1\0\2\0\3\7\0" + b"\x7e" + b"\xff" * 12
    log = Log(version).query("BEGIN").add(BinlogEvent.TABLE_MAP_EVENT, body)
    _, entries = answer(log.add(BinlogEvent.WRITE_ROWS_EVENT, insert).xid(), tmp_path)
    (row,) = pb.RowChange.FromString(entries[1].storeValue).rowDatas
    assert [column.value for column in row.afterColumns] == ["2026", "4294967295", "-1"]
    assert row.afterColumns[1].mysqlType == "int unsigned"


@pytest.mark.parametrize("options", [{"filter_black_field": "db.gone:secret"}, {"filter_field": "db.gone:id"}])
def test_what_clients_hear_of_rows_in_quarantine_names_no_column_that_is_left_out(
    tmp_path: Path, options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    log = Log().query("BEGIN").table_map(6, "gone").insert(1, table_id=6).xid()
    _, (_, marker, *_) = answer(log, tmp_path, **options)
    (item,) = read(path_of(tmp_path, "example"))
    said = "rows of db.gone cannot be decoded: the server's log says why at this place"
    assert item.error == said
    assert [(prop.key, prop.value) for prop in marker.header.props] == [("sluice.quarantine", said)]
    assert "db.gone is unknown" in caplog.text


def test_rows_of_an_unknown_table_are_put_into_quarantine(tmp_path: Path) -> None:
    log = Log().query("BEGIN").table_map(6, "gone").table_map().insert(1, table_id=6).insert(2).xid()
    kinds, _ = answer(log, tmp_path)
    assert kinds == [Kind.TRANSACTION_BEGIN, Kind.QUARANTINE, Kind.ROW_DATA, Kind.TRANSACTION_END]
    assert [(item.table, item.event_type) for item in read(path_of(tmp_path, "example"))] == [("gone", 30)]
    with pytest.raises(DecodeError, match="unknown"):
        answer(log, tmp_path, quarantine=False)
    kinds, _ = answer(log, tmp_path, filter_table_error=True)
    assert kinds == [Kind.TRANSACTION_BEGIN, Kind.ROW_DATA, Kind.TRANSACTION_END]


def test_a_change_of_the_configuration_is_said_once_before_the_first_rows(tmp_path: Path) -> None:
    log = Log().query("DROP TABLE u").query("BEGIN").table_map().insert(1).xid()
    log.query("BEGIN").table_map(6).insert(2, table_id=6).xid()
    kinds, entries = answer(log, tmp_path, announced="all is well")
    transaction = [Kind.TRANSACTION_BEGIN, Kind.ROW_DATA, Kind.TRANSACTION_END]
    assert kinds == [Kind.DDL, Kind.TRANSACTION_BEGIN, Kind.QUERY, *transaction[1:], *transaction]
    assert [(it.key, it.value) for it in entries[2].header.props] == [("sluice.shape", "all is well")]
    assert (entries[2].header.eventType, entries[2].header.tableName) == (pb.QUERY, "")


@pytest.mark.parametrize(
    ("payload", "error", "text"),
    [
        (b"\xfe\0\0\2\0", SourceError, "shuts down"),
        (b"\xff\xd4\x04#HY000Slave has the same server_uuid", SourceError, r"server_uuid \(1236\)"),
        (b"\xff\xd4\x04#HY000Could not find first log file name in binary log index file", PurgedError, "1236"),
    ],
)
def test_the_end_of_a_dump_is_an_error_with_the_sources_words(
    tmp_path: Path, payload: bytes, error: type[Exception], text: str
) -> None:
    log = Log()
    with pytest.raises(error, match=text):
        answer(log, tmp_path, len(payload).to_bytes(3, "little") + bytes([len(log.packets) + 1]) + payload)
