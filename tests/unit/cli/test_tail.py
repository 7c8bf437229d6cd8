"""How changes look on a terminal."""

import contextlib
import json
import os
import pty
from typing import Any

import pytest

from sluice.protocol.canal.entry_pb2 import (
    ALTER,
    DELETE,
    INSERT,
    ROWDATA,
    TRANSACTIONBEGIN,
    TRANSACTIONEND,
    UPDATE,
    Column,
    Entry,
    Header,
    RowChange,
    RowData,
    TransactionBegin,
)
from sluice.protocol.canal.rows import decode_changes
from sluice.protocol.formats.csv import Csv
from sluice.protocol.formats.rows import json_lines
from sluice.server.cli.common import write_line
from sluice.server.cli.tail import describe
from tests.unit.entries import frame

NAME: dict[str, Any] = {"mysqlType": "varchar(9)", "sqlType": 12, "name": "name"}
ID: dict[str, Any] = {"mysqlType": "int", "sqlType": 4, "name": "id", "isKey": True}


def lines(entry: Entry, **options: Any) -> list[str]:
    """What is shown of an entry, without the time."""
    (change,) = decode_changes(frame([entry]))
    return [line.plain.split(" ", 2)[2] for line in describe(change, **options)]


def entry(change: RowChange) -> Entry:
    header = Header(schemaName="shop", tableName="items", eventType=change.eventType, executeTime=1_700_000_000_000)
    return Entry(header=header, entryType=ROWDATA, storeValue=change.SerializeToString())


EVIL = "a\x9b2J\x85\x7f\u2028\u202eb"


def row_of(name: str) -> str:
    row = RowData(afterColumns=[Column(value=name, **NAME)])
    (line,) = json_lines(*decode_changes(frame([entry(RowChange(eventType=INSERT, rowDatas=[row]))])))
    return line


def on_terminal(line: str) -> bytes:
    """What a terminal gets of a line."""
    shown, written = pty.openpty()
    with (
        os.fdopen(shown, "rb", 0) as terminal,
        os.fdopen(written, "w", encoding="utf-8") as stdout,
        contextlib.redirect_stdout(stdout),
    ):
        write_line(line)
        return terminal.read(1000)


def test_rows_as_json_drive_no_terminal_and_stay_json() -> None:
    line = on_terminal(row_of(EVIL)).decode()
    assert line.rstrip("\r\n").isprintable()
    assert json.loads(line)["after"] == {"name": EVIL}


def test_the_lines_of_a_table_drive_no_terminal() -> None:
    assert on_terminal('7,"a\n\x1b[2Jb"') == b'7,"a\r\n\\u001b[2Jb"\r\n'


def test_a_program_gets_rows_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    write_line(row_of(EVIL))
    assert EVIL in capsys.readouterr().out


def test_an_insert_shows_its_values() -> None:
    row = RowData(afterColumns=[Column(value="7", **ID), Column(value="it's", index=1, **NAME)])
    change = RowChange(eventType=INSERT, rowDatas=[row, row])
    assert lines(entry(change)) == ['shop.items INSERT id=7, name="it\'s"'] * 2


def test_an_update_shows_its_key_and_what_changed() -> None:
    row = RowData(
        beforeColumns=[Column(value="7", **ID), Column(value="old", index=1, **NAME)],
        afterColumns=[Column(value="7", **ID), Column(isNull=True, updated=True, index=1, **NAME)],
    )
    assert lines(entry(RowChange(eventType=UPDATE, rowDatas=[row]))) == [
        "shop.items UPDATE id=7, name: 'old' → NULL",
    ]


def test_a_delete_shows_what_was_there() -> None:
    row = RowData(beforeColumns=[Column(value="7", **ID)])
    assert lines(entry(RowChange(eventType=DELETE, rowDatas=[row]))) == ["shop.items DELETE id=7"]


def test_a_ddl_is_a_line() -> None:
    change = RowChange(eventType=ALTER, isDdl=True, sql="ALTER TABLE items\n  ADD x INT", ddlSchemaName="shop")
    assert lines(entry(change)) == ["ALTER ALTER TABLE items ADD x INT"]


@pytest.mark.parametrize(
    ("kind", "column", "shown"),
    [
        ("blob", Column(name="b", mysqlType="blob", sqlType=2004, value="\x00\xff"), "b=0x00ff"),
        ("set", Column(name="s", mysqlType="set('y','x')", sqlType=-7, value="3"), "s={x,y}"),
        ("long", Column(name="t", mysqlType="text", sqlType=2005, value="x" * 99), f"t='{'x' * 58}…"),
    ],
)
def test_values_are_short_and_readable(kind: str, column: Column, shown: str) -> None:
    row = RowData(afterColumns=[column])
    assert lines(entry(RowChange(eventType=INSERT, rowDatas=[row]))) == [f"shop.items INSERT {shown}"]


def test_long_values_are_whole_when_asked_for() -> None:
    change = RowChange(eventType=INSERT, rowDatas=[RowData(afterColumns=[Column(value="x" * 99, **NAME)])])
    assert lines(entry(change), longest=None) == [f"shop.items INSERT name='{'x' * 99}'"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("15:00:00", "15:00:00"),
        ("-838:59:59", "-838:59:59"),
        ("00:00:00.500", "00:00:00.5"),
        ("-00:00:01.25", "-00:00:01.25"),
    ],
)
def test_a_time_is_written_as_sql_does(text: str, shown: str) -> None:
    column = Column(name="t", mysqlType="time(3)", sqlType=92, value=text)
    change = entry(RowChange(eventType=INSERT, rowDatas=[RowData(afterColumns=[column])]))
    assert lines(change) == [f"shop.items INSERT t={shown}"]
    (line,) = json_lines(*decode_changes(frame([change])))
    assert json.loads(line)["after"] == {"t": shown}


VALUES = [
    Column(value="7", **ID),
    Column(isNull=True, name="n", mysqlType="int", sqlType=4),
    Column(value='say "ä"', **NAME),
    Column(value="1.50", name="d", mysqlType="decimal(9,2)", sqlType=3),
    Column(value="\xff", name="b", mysqlType="blob", sqlType=2004),
    Column(value="null", name="j", mysqlType="json", sqlType=12),
    Column(value='{"a": [1]}', name="k", mysqlType="json", sqlType=12),
]


def test_rows_as_json_keep_the_types_of_their_values() -> None:
    (change,) = decode_changes(frame([entry(RowChange(eventType=INSERT, rowDatas=[RowData(afterColumns=VALUES)]))]))
    (line,) = json_lines(change)
    assert json.loads(line) == {
        "time": "2023-11-14T22:13:20.000+00:00",
        "type": "INSERT",
        "schema": "shop",
        "table": "items",
        "before": None,
        "after": {"id": 7, "n": None, "name": 'say "ä"', "d": "1.50", "b": "/w==", "j": None, "k": {"a": [1]}},
        "jsonNull": ["after.j"],
    }
    (ddl,) = decode_changes(frame([entry(RowChange(eventType=ALTER, isDdl=True, sql="ALTER TABLE items ADD x INT"))]))
    assert json.loads(*json_lines(ddl))["sql"] == "ALTER TABLE items ADD x INT"


def test_csv_names_the_columns_again_when_they_change_and_tells_null_from_nothing() -> None:
    one = RowData(afterColumns=[Column(value="7", **ID), Column(isNull=True, **NAME)])
    other = RowData(
        afterColumns=[Column(value="7", **ID), Column(value="", **NAME), Column(value="9", **{**ID, "name": "x"})]
    )
    frames = frame([entry(RowChange(eventType=INSERT, rowDatas=rows)) for rows in ([one, one], [other])])
    table = Csv()
    written = "\n".join(line for change in decode_changes(frames) for line in table.lines(change)).split("\n")
    assert [line.partition(",")[2] for line in written] == [
        '"type","schema","table","id","name"',
        '"INSERT","shop","items",7,',
        '"INSERT","shop","items",7,',
        "",
        '"type","schema","table","id","name","x"',
        '"INSERT","shop","items",7,"",9',
    ]


def test_json_in_csv_is_written_as_json() -> None:
    json_column: dict[str, Any] = {"mysqlType": "json", "sqlType": 12, "name": "j"}
    documents = ["true", "1.5", "[1, null]", '{"a": "b"}']
    rows = [RowData(afterColumns=[Column(value=text, **json_column)]) for text in documents]
    (change,) = decode_changes(frame([entry(RowChange(eventType=INSERT, rowDatas=rows))]))
    _names, *written = "\n".join(Csv().lines(change)).split("\n")
    assert [line.split(",", 4)[4] for line in written] == ["true", "1.5", '"[1, null]"', '"{""a"": ""b""}"']


def test_control_characters_of_the_source_do_not_reach_the_terminal() -> None:
    row = RowData(afterColumns=[Column(value="\x1b[31m\n", **NAME)])
    change = RowChange(eventType=INSERT, rowDatas=[row])
    assert lines(entry(change)) == [r"shop.items INSERT name='\x1b[31m\n'"]
    hostile = entry(change)
    hostile.header.tableName = "a\x1b[2J"
    assert "\x1b" not in lines(hostile)[0]


def test_ends_of_transactions_are_shown_on_request() -> None:
    begin = Entry(header=Header(), entryType=TRANSACTIONBEGIN, storeValue=TransactionBegin().SerializeToString())
    end = Entry(header=Header(gtid="0-1-2"), entryType=TRANSACTIONEND, storeValue=b"")
    assert lines(begin) == lines(end) == []
    assert lines(begin, transactions=True) == ["BEGIN"]
    assert lines(end, transactions=True) == ["COMMIT 0-1-2"]


@pytest.mark.parametrize("state", ["committed", "one-phase"])
def test_an_xa_transaction_is_named_in_each_of_its_lines(state: str) -> None:
    row = RowData(afterColumns=[Column(value="7", **ID)])
    change = entry(RowChange(eventType=INSERT, rowDatas=[row]))
    begin = Entry(header=Header(), entryType=TRANSACTIONBEGIN)
    ends = Entry(header=Header(gtid="0-1-2"), entryType=TRANSACTIONEND)
    mark = f"{state} X'61',X'',1"
    for one in (begin, change, ends):
        one.header.props.add(key="sluice.xa", value=mark)
    assert lines(change) == [f"shop.items XA {mark} INSERT id=7"]
    assert lines(begin, transactions=True) == [f"BEGIN XA {mark}"]
    assert lines(ends, transactions=True) == [f"COMMIT 0-1-2 XA {mark}"]
