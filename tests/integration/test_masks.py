"""Masked values on their way from a server to the entries."""

from pathlib import Path

from sluice.protocol.canal.entry_pb2 import EventType
from tests.conftest import Database
from tests.delivery import deliver, execute, rows_of, values
from tests.reading import Reading, config
from tests.servers import Server


def test_hashes_are_those_of_the_server(mysql97: Server, database: Database, tmp_path: Path) -> None:
    schema = database(mysql97)
    columns = {
        "name": ("varchar(40)", "'Zoë 漢😀'"),
        "narrow": ("varchar(40) CHARACTER SET latin1", "'Müller'"),
        "age": ("int unsigned", "4294967295"),
        "price": ("decimal(9,2)", "-12.50"),
        "born": ("date", "'1999-12-31'"),
        "seen": ("datetime(3)", "'2026-11-24 10:00:00.125'"),
        "note": ("text", "''"),
    }
    created = ", ".join(f"{name} {kind}" for name, (kind, _) in columns.items())
    hashed = ", ".join(f"SHA2(CONVERT({name} USING utf8mb4), 256)" for name in columns)
    with deliver(
        mysql97,
        tmp_path,
        filter_regex=rf"{schema}\..*",
        filter_mask="; ".join(f"{schema}.t.{name}: sha256" for name in columns),
    ) as delivery:
        execute(
            mysql97,
            [
                "SET binlog_rows_query_log_events = ON",
                f"CREATE TABLE t (id int PRIMARY KEY, {created})",
                f"INSERT INTO t VALUES (1, {', '.join(value for _, value in columns.values())})",
            ],
            database=schema,
        )
        entries = delivery.read()
        shown = {it.name: it.mysql_type for it in delivery.parser.columns(schema, "t")}
    (expected,) = mysql97.query(f"SELECT {hashed} FROM t", database=schema)
    (change,) = [change for _, change in rows_of(entries) if change.eventType == EventType.INSERT]
    found = values(change.rowDatas[0].afterColumns)
    assert [found[name] for name in columns] == list(expected)
    assert {it.mysqlType for it in change.rowDatas[0].afterColumns[1:]} == {"char(64)"}
    assert shown == {"id": "int", **dict.fromkeys(columns, "char(64)")}
    assert not any("Müller".encode() in entry.storeValue for entry in entries)  # no text of the statement either


def test_a_masked_key_stops_the_destination(mariadb118: Server, database: Database, tmp_path: Path) -> None:
    schema = database(mariadb118)
    settings = {"filter_regex": rf"{schema}\..*", "filter_mask": f"{schema}.t.id: sha256"}
    with Reading(config(mariadb118, tmp_path, **settings)) as reading:
        reading.wait(lambda: reading.running)
        execute(mariadb118, ["CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)"], database=schema)
        reading.wait(lambda: bool(reading.error))
        assert f"sluice.instance.filter.mask: {schema}.t.id belongs to the primary key" in reading.error
        assert not reading.rows()
