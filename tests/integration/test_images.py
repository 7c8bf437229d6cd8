"""Rows of every image and every size."""

import json
from pathlib import Path

import pytest

from sluice.protocol.canal.entry_pb2 import RowChange
from sluice.protocol.canal.flat import flat_json
from sluice.protocol.canal.packet_pb2 import Messages
from sluice.protocol.canal.rows import decode_rows
from tests.conftest import Database
from tests.delivery import deliver, delivered, execute, rows_of, values
from tests.servers import Server

Image = dict[str, str | None]
Written = list[tuple[str, list[tuple[Image, Image, list[str]]]]]

TABLES = [
    "CREATE TABLE t (id INT PRIMARY KEY, a INT, b TEXT, c VARCHAR(9))",
    "CREATE TABLE n (a INT, b TEXT)",
]
FULL: Written = [
    (
        "INSERT INTO t (id, a, b) VALUES (1, 2, 'x')",
        [({}, {"id": "1", "a": "2", "b": "x", "c": None}, ["id", "a", "b", "c"])],
    ),
    (
        "UPDATE t SET a = 3",
        [({"id": "1", "a": "2", "b": "x", "c": None}, {"id": "1", "a": "3", "b": "x", "c": None}, ["a"])],
    ),
    (
        "UPDATE t SET id = 9, b = 'y', c = 'é'",
        [
            (
                {"id": "1", "a": "3", "b": "x", "c": None},
                {"id": "9", "a": "3", "b": "y", "c": "é"},
                ["id", "b", "c"],
            )
        ],
    ),
    ("DELETE FROM t", [({"id": "9", "a": "3", "b": "y", "c": "é"}, {}, [])]),
    ("INSERT INTO n VALUES (1, 'x')", [({}, {"a": "1", "b": "x"}, ["a", "b"])]),
    ("UPDATE n SET a = 5", [({"a": "1", "b": "x"}, {"a": "5", "b": "x"}, ["a"])]),
    ("DELETE FROM n", [({"a": "5", "b": "x"}, {}, [])]),
]
NOBLOB: Written = [
    ("INSERT INTO t (id, a) VALUES (1, 2)", [({}, {"id": "1", "a": "2", "c": None}, ["id", "a", "c"])]),
    ("UPDATE t SET a = 3", [({"id": "1", "a": "2", "c": None}, {"id": "1", "a": "3", "c": None}, ["a"])]),
    (
        "UPDATE t SET b = 'y'",
        [({"id": "1", "a": "3", "c": None}, {"id": "1", "a": "3", "b": "y", "c": None}, ["b"])],
    ),
    ("DELETE FROM t", [({"id": "1", "a": "3", "c": None}, {}, [])]),
    ("INSERT INTO n VALUES (1, 'x')", [({}, {"a": "1", "b": "x"}, ["a", "b"])]),
    ("UPDATE n SET a = 5", [({"a": "1", "b": "x"}, {"a": "5"}, ["a"])]),
    ("DELETE FROM n", [({"a": "5", "b": "x"}, {}, [])]),
]
MINIMAL: Written = [
    ("INSERT INTO t (id, c) VALUES (1, NULL)", [({}, {"id": "1", "c": None}, ["id", "c"])]),
    ("UPDATE t SET a = 3", [({"id": "1"}, {"a": "3"}, ["a"])]),
    ("UPDATE t SET id = 9, b = 'y'", [({"id": "1"}, {"id": "9", "b": "y"}, ["id", "b"])]),
    ("DELETE FROM t", [({"id": "9"}, {}, [])]),
    ("INSERT INTO n VALUES (1, 'x')", [({}, {"a": "1", "b": "x"}, ["a", "b"])]),
    ("UPDATE n SET a = 5", [({"a": "1", "b": "x"}, {"a": "5"}, ["a"])]),
    ("DELETE FROM n", [({"a": "5", "b": "x"}, {}, [])]),
]
NODUP: Written = [
    ("INSERT INTO n VALUES (1, 'x')", [({}, {"a": "1", "b": "x"}, ["a", "b"])]),
    ("INSERT INTO t (id, a) VALUES (1, 2)", [({}, {"id": "1", "a": "2", "b": None, "c": None}, ["id", "a", "b", "c"])]),
    ("UPDATE t SET a = 3", [({"id": "1", "a": "2", "b": None, "c": None}, {"a": "3"}, ["a"])]),
    ("DELETE FROM t", [({"id": "1", "a": "3", "b": None, "c": None}, {}, [])]),
]


def changes(found: list[tuple[str, RowChange]]) -> list[tuple[Image, Image, list[str]]]:
    """Both images of each row, and the names of the columns that are marked as updated."""
    rows = [row for _, change in found for row in change.rowDatas]
    assert not any(column.updated for row in rows for column in row.beforeColumns)
    return [
        (values(row.beforeColumns), values(row.afterColumns), [it.name for it in row.afterColumns if it.updated])
        for row in rows
    ]


Images = list[tuple[Image, Image, list[str]]]


def _images(server: Server, schema: str, folder: Path, image: str, written: Written) -> tuple[Images, Images]:
    """What is delivered of what was written, and what should be."""
    execute(server, TABLES, database=schema)
    statements = [f"SET SESSION binlog_row_image = {image}", *(statement for statement, _ in written)]
    found = changes(rows_of(delivered(server, folder, schema, statements)))
    expected = [row for _, rows in written for row in rows]
    if server.mariadb:  # the image after an update of a table without a key is a full one
        expected = [
            (before, before | after if "id" not in before and after else after, updated)
            for before, after, updated in expected
        ]
    return found, expected


@pytest.mark.parametrize(("image", "written"), [("FULL", FULL), ("NOBLOB", NOBLOB), ("MINIMAL", MINIMAL)])
def test_images_hold_what_the_server_logs(
    server: Server, database: Database, tmp_path: Path, image: str, written: Written
) -> None:
    found, expected = _images(server, database(server), tmp_path, image, written)
    assert found == expected


def test_an_image_without_repetition_holds_what_has_changed(
    mariadb118: Server, database: Database, tmp_path: Path
) -> None:
    found, expected = _images(mariadb118, database(mariadb118), tmp_path, "FULL_NODUP", NODUP)
    assert found == expected


Message = tuple[str, list[str] | None, list[Image], list[Image] | None, list[str] | None]
KEYED = [
    "CREATE TABLE u (a INT, k INT NOT NULL, l INT NOT NULL, UNIQUE (k, l))",
    "CREATE TABLE v (a INT, k INT NOT NULL UNIQUE, b TEXT)",
]
PARTIAL: dict[str, list[tuple[str, Message]]] = {
    "MINIMAL": [
        ("INSERT INTO t (id, c) VALUES (1, NULL)", ("INSERT", ["a", "b"], [{"id": "1", "c": None}], None, ["id"])),
        ("UPDATE t SET a = 3", ("UPDATE", ["b", "c"], [{"a": "3", "id": "1"}], [{}], ["id"])),
        ("UPDATE t SET id = 9, b = 'y'", ("UPDATE", ["a", "c"], [{"id": "9", "b": "y"}], [{"id": "1"}], ["id"])),
        ("DELETE FROM t", ("DELETE", ["a", "b", "c"], [{"id": "9"}], None, ["id"])),
        ("INSERT INTO n VALUES (1, 'x')", ("INSERT", None, [{"a": "1", "b": "x"}], None, None)),
        ("DELETE FROM n", ("DELETE", None, [{"a": "1", "b": "x"}], None, None)),
        ("INSERT INTO u VALUES (1, 2, 3)", ("INSERT", None, [{"a": "1", "k": "2", "l": "3"}], None, None)),
        ("UPDATE u SET a = 4", ("UPDATE", [], [{"a": "4", "k": "2", "l": "3"}], [{}], ["k", "l"])),
        ("UPDATE u SET l = 5", ("UPDATE", ["a"], [{"l": "5", "k": "2"}], [{"l": "3"}], ["k", "l"])),
        ("DELETE FROM u", ("DELETE", ["a"], [{"k": "2", "l": "5"}], None, ["k", "l"])),
    ],
    "NOBLOB": [
        ("INSERT INTO t (id, a) VALUES (1, 2)", ("INSERT", ["b"], [{"id": "1", "a": "2", "c": None}], None, ["id"])),
        ("UPDATE t SET a = 3", ("UPDATE", ["b"], [{"id": "1", "a": "3", "c": None}], [{"a": "2"}], ["id"])),
        ("UPDATE t SET b = 'y'", ("UPDATE", [], [{"id": "1", "a": "3", "b": "y", "c": None}], [{}], ["id"])),
        ("INSERT INTO v VALUES (1, 2, 'x')", ("INSERT", None, [{"a": "1", "k": "2", "b": "x"}], None, None)),
        ("UPDATE v SET a = 4", ("UPDATE", ["b"], [{"a": "4", "k": "2"}], [{"a": "1"}], ["a", "k"])),
        ("UPDATE v SET b = 'y'", ("UPDATE", [], [{"a": "4", "k": "2", "b": "y"}], [{}], ["a", "k"])),
        ("DELETE FROM v", ("DELETE", ["b"], [{"a": "4", "k": "2"}], None, ["a", "k"])),
    ],
    "FULL": [
        (
            "INSERT INTO t (id) VALUES (1)",
            ("INSERT", None, [{"id": "1", "a": None, "b": None, "c": None}], None, ["id"]),
        )
    ],
}


@pytest.mark.parametrize("image", PARTIAL)
def test_a_flat_message_has_the_key_and_says_what_is_absent(
    server: Server, database: Database, tmp_path: Path, image: str
) -> None:
    schema = database(server)
    execute(server, TABLES + KEYED, database=schema)
    statements = [f"SET SESSION binlog_row_image = {image}", *(statement for statement, _ in PARTIAL[image])]
    entries = delivered(server, tmp_path, schema, statements, filter_query_dml=True)
    data = Messages(messages=[entry.SerializeToString() for entry in entries]).SerializeToString()
    messages = json.loads(flat_json([data], 1))
    names = ("type", "absent", "data", "old", "pkNames")
    assert [tuple(it.get(name) for name in names) for it in messages] == [message for _, message in PARTIAL[image]]
    assert [list(row.absent) for row in decode_rows(data)] == [absent or [] for _, (_, absent, *_) in PARTIAL[image]]
    for message in messages:
        assert set(message["mysqlType"]) == set(message["data"][0])


def test_canals_flat_message_has_what_the_image_after_has(
    mariadb118: Server, database: Database, tmp_path: Path
) -> None:
    schema = database(mariadb118)
    execute(mariadb118, TABLES, database=schema)
    statements = ["SET SESSION binlog_row_image = MINIMAL", "INSERT INTO t (id) VALUES (1)", "UPDATE t SET a = 3"]
    entries = delivered(mariadb118, tmp_path, schema, statements, strict_canal=True)
    assert not any(change.props for _, change in rows_of(entries, "t"))
    data = Messages(messages=[entry.SerializeToString() for entry in entries]).SerializeToString()
    update = json.loads(flat_json([data], 1, strict=True))[-1]
    assert (update["data"], update["old"], update["pkNames"], "absent" in update) == ([{"a": "3"}], [{}], None, False)


def test_columns_keep_their_index_and_know_the_key(server: Server, database: Database, tmp_path: Path) -> None:
    schema = database(server)
    server.query("CREATE TABLE t (v INT, id INT, w INT, PRIMARY KEY (w, id))", database=schema)
    statements = [
        "SET SESSION binlog_row_image = MINIMAL",
        "INSERT INTO t VALUES (1, 2, 3)",
        "UPDATE t SET v = 4",
        "DELETE FROM t",
    ]
    (_, insert), (_, update), (_, delete) = rows_of(delivered(server, tmp_path, schema, statements), "t")
    columns = [(it.index, it.name, it.isKey, it.mysqlType) for it in insert.rowDatas[0].afterColumns]
    number = "int" if server.name == "mysql97" else "int(11)"
    assert columns == [(0, "v", False, number), (1, "id", True, number), (2, "w", True, number)]
    assert [(it.index, it.isKey) for it in update.rowDatas[0].beforeColumns] == [(1, True), (2, True)]
    assert [(it.index, it.isKey) for it in update.rowDatas[0].afterColumns] == [(0, False)]
    assert [(it.index, it.isKey) for it in delete.rowDatas[0].beforeColumns] == [(1, True), (2, True)]


def test_fields_can_be_filtered(server: Server, database: Database, tmp_path: Path) -> None:
    schema = database(server)
    server.query("CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT)", database=schema)
    statements = ["INSERT INTO t VALUES (1, 2, 3)", "UPDATE t SET a = 5", "DELETE FROM t"]
    found = changes(rows_of(delivered(server, tmp_path, schema, statements, filter_field=f"{schema}.t:id/B"), "t"))
    kept: Image = {"id": "1", "b": "3"}
    assert found == [({}, kept, ["id", "b"]), (kept, kept, []), (kept, {}, [])]
    found = changes(
        rows_of(delivered(server, tmp_path, schema, statements, filter_black_field=f"{schema}.t:id/B"), "t")
    )
    assert found == [({}, {"a": "2"}, ["a"]), ({"a": "2"}, {"a": "5"}, ["a"]), ({"a": "5"}, {}, [])]


@pytest.mark.parametrize("width", [500, 1000])
def test_tables_may_be_wide(server: Server, database: Database, tmp_path: Path, width: int) -> None:
    schema = database(server)
    names = [f"c{number}" for number in range(width)]
    statements = [
        f"CREATE TABLE w ({', '.join(f'{name} SMALLINT' for name in names)}) ENGINE=MyISAM",
        f"INSERT INTO w VALUES ({', '.join(str(number) for number in range(width))})",
        f"UPDATE w SET c3 = NULL, c{width - 1} = -1",
        "SET SESSION binlog_row_image = MINIMAL",
        f"UPDATE w SET c7 = 5, c{width - 2} = NULL",
    ]
    first: Image = {name: str(number) for number, name in enumerate(names)}
    second = first | {"c3": None, f"c{width - 1}": "-1"}
    third: Image = {"c7": "5", f"c{width - 2}": None}
    if server.mariadb:  # it has no key
        third = second | third
    assert changes(rows_of(delivered(server, tmp_path, schema, statements, filter_query_dml=True), "w")[1:]) == [
        ({}, first, names),
        (first, second, ["c3", f"c{width - 1}"]),
        (second, third, ["c7", f"c{width - 2}"]),
    ]


def test_rows_of_a_statement_may_be_spread_over_events(server: Server, database: Database, tmp_path: Path) -> None:
    schema = database(server)
    server.query("CREATE TABLE t (id INT, v VARCHAR(1000))", database=schema)
    rows = ", ".join(f"({number}, REPEAT('x', 1000))" for number in range(100))
    entries = delivered(server, tmp_path, schema, [f"INSERT INTO t VALUES {rows}"], filter_query_dml=True)
    parts = rows_of(entries, "t")
    assert len(parts) > 5
    assert [row.afterColumns[0].value for _, part in parts for row in part.rowDatas] == [str(it) for it in range(100)]
    counts = [pair.value for entry in entries for pair in entry.header.props if pair.key == "rowsCount"]
    assert counts == [str(len(part.rowDatas)) for _, part in parts]


@pytest.mark.extended
def test_a_row_may_be_larger_than_a_packet(server: Server, database: Database, tmp_path: Path) -> None:
    """20 MB and 64 MB; MyISAM has no redo log that would have to hold them."""
    schema = database(server)
    server.query("CREATE TABLE t (id INT, v LONGTEXT, w INT) ENGINE=MyISAM", database=schema)
    ((before,),) = server.query("SELECT @@global.max_allowed_packet")
    server.query("SET GLOBAL max_allowed_packet = 100000000")
    try:
        with deliver(server, tmp_path, filter_regex=rf"{schema}\..*", filter_query_dml=True) as delivery:
            written = ["UPDATE t SET id = 2", "TRUNCATE t"]
            execute(server, [f"INSERT INTO t VALUES (1, REPEAT('a', {20 << 20}), 7)", *written], database=schema)
            (_, insert), (_, update) = [it for it in rows_of(delivery.read(), "t") if it[1].rowDatas]
            image = insert.rowDatas[0].afterColumns
            assert (image[1].value, image[2].value) == ("a" * (20 << 20), "7")
            assert update.rowDatas[0].beforeColumns[1].value == image[1].value
            assert [it.updated for it in update.rowDatas[0].afterColumns] == [True, False, False]
            execute(server, [f"INSERT INTO t VALUES (3, REPEAT('b', {64 << 20}), 8)"], database=schema)
            ((_, insert),) = rows_of(delivery.read(), "t")
            assert [it.value for it in insert.rowDatas[0].afterColumns] == ["3", "b" * (64 << 20), "8"]
    finally:
        server.query(f"SET GLOBAL max_allowed_packet = {before}")


def test_an_event_may_fill_packets_exactly(mysql97: Server, database: Database, tmp_path: Path) -> None:
    """A packet of 16 MiB - 1 says that another follows, which then is empty."""
    schema = database(mysql97)
    mysql97.query("CREATE TABLE t (v LONGTEXT) ENGINE=MyISAM", database=schema)
    with deliver(mysql97, tmp_path, filter_regex=rf"{schema}\..*") as delivery:
        mysql97.query("INSERT INTO t VALUES ('')", database=schema)
        overhead = next(entry.header.eventLength for entry in delivery.read() if entry.header.tableName == "t")
        for size in range(0xFFFFFF - 1 - overhead - 1, 0xFFFFFF - 1 - overhead + 2):
            mysql97.query(f"INSERT INTO t VALUES (REPEAT('a', {size}))", database=schema)
            (entry,) = [entry for entry in delivery.read() if entry.header.tableName == "t"]
            assert entry.header.eventLength == overhead + size
            assert len(RowChange.FromString(entry.storeValue).rowDatas[0].afterColumns[0].value) == size


def test_a_part_of_json_is_delivered_as_the_expression_that_makes_it(
    mysql97: Server, database: Database, tmp_path: Path
) -> None:
    schema = database(mysql97)
    long = "long text " * 20
    mysql97.query("CREATE TABLE t (id INT PRIMARY KEY, j JSON, k INT)", database=schema)
    mysql97.query(f'INSERT INTO t VALUES (1, \'{{"a": 1, "b": [1, 2, 3], "c": "{long}"}}\', 1)', database=schema)
    statements = [
        "SET SESSION binlog_row_value_options = 'PARTIAL_JSON', binlog_row_image = MINIMAL",
        "UPDATE t SET j = JSON_SET(j, '$.a', 5)",
        "UPDATE t SET j = JSON_REMOVE(j, '$.b[1]'), k = 2",
        "UPDATE t SET k = 3",
        "UPDATE t SET j = JSON_SET(j, '$.a', 6, '$.z', 'q')",
        "UPDATE t SET j = NULL",
        "UPDATE t SET j = '[]'",
    ]
    assert changes(rows_of(delivered(mysql97, tmp_path, schema, statements))) == [
        ({"id": "1"}, {"j": "JSON_REPLACE(j, '$.a', 5)"}, ["j"]),
        ({"id": "1"}, {"j": "JSON_REMOVE(j, '$.b[1]')", "k": "2"}, ["j", "k"]),
        ({"id": "1"}, {"k": "3"}, ["k"]),
        ({"id": "1"}, {"j": "JSON_INSERT(JSON_REPLACE(j, '$.a', 6), '$.z', \"q\")"}, ["j"]),
        ({"id": "1"}, {"j": None}, ["j"]),
        ({"id": "1"}, {"j": "[]"}, ["j"]),
    ]
