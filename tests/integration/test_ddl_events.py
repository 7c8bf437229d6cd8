"""Statements: DDL of every kind, DDL between rows, and the texts of DML."""

import json
import logging
from pathlib import Path

import pytest

from sluice.instance.quarantine import path_of
from sluice.protocol.canal.entry_pb2 import EventType, RowChange
from sluice.store.ring import Kind
from tests.conftest import Database
from tests.delivery import deliver, delivered, end_of_binlog, execute, rows_of, transcript, values
from tests.servers import Server

DDL = [
    ("CREATE TABLE t (id INT PRIMARY KEY, v INT) COMMENT='é 中'", "CREATE", "t"),
    ("ALTER TABLE t ADD w INT", "ALTER", "t"),
    ("ALTER TABLE t ADD INDEX i (v), DROP COLUMN w", "CINDEX", "t"),
    ("ALTER TABLE t DROP INDEX i", "DINDEX", "t"),
    ("CREATE INDEX j ON t (v)", "CINDEX", "t"),
    ("DROP INDEX j ON t", "DINDEX", "t"),
    ("ALTER TABLE t ADD CONSTRAINT k UNIQUE (v)", "CINDEX", "t"),
    ("ALTER TABLE t ENGINE=InnoDB", "ALTER", "t"),
    ("ALTER TABLE t RENAME TO t2", "RENAME", "t2"),
    ("CREATE TABLE IF NOT EXISTS o LIKE t2", "CREATE", "o"),
    ("RENAME TABLE t2 TO t3, o TO o2", "RENAME", "t3"),
    ("TRUNCATE TABLE t3", "TRUNCATE", "t3"),
    ("/* why not */ truncate o2", "TRUNCATE", "o2"),
]
UNSEEN = [
    "CREATE VIEW x AS SELECT * FROM t3",
    "DROP VIEW x",
    "CREATE PROCEDURE p() SELECT 1",
    "DROP PROCEDURE p",
    "CREATE TRIGGER tr BEFORE INSERT ON t3 FOR EACH ROW SET NEW.v = 9",
    "DROP TRIGGER tr",
    "ANALYZE TABLE t3",
    "FLUSH TABLES",
    "CREATE USER 'u_x'@'%' IDENTIFIED BY 'Abc-1'",
    "GRANT SELECT ON *.* TO 'u_x'@'%'",
    "DROP USER 'u_x'@'%'",
]


def test_ddl_is_delivered_by_its_kind_and_the_table_it_is_about(
    server: Server, database: Database, tmp_path: Path
) -> None:
    schema = database(server)
    entries = delivered(server, tmp_path, schema, [statement for statement, _, _ in DDL])
    found = [
        (change.sql, EventType.Name(entry.header.eventType), entry.header.tableName)
        for entry in entries
        for change in [RowChange.FromString(entry.storeValue)]
        if change.isDdl and change.ddlSchemaName == schema and entry.header.schemaName == schema
    ]
    assert found == DDL


def test_ddl_of_several_tables_is_for_every_subscriber(mariadb118: Server, database: Database, tmp_path: Path) -> None:
    schema = database(mariadb118)
    with deliver(mariadb118, tmp_path, filter_regex=rf"{schema}\..*") as delivery:
        execute(
            mariadb118,
            ["CREATE TABLE a (id INT)", "CREATE TABLE b (id INT)", "RENAME TABLE a TO c, b TO a", "DROP TABLE a, c"],
            database=schema,
        )
        entries = delivery.read()
        slots = [delivery.ring.slot(number) for number in range(delivery.ring.next)]
        of_one_table = [slot.table != 0 for slot in slots if slot.kind == Kind.DDL]
    assert [entry.header.tableName for entry in entries] == ["a", "b", "c", "a"]
    assert of_one_table == [True, True, False, False]


def test_statements_that_concern_no_table_are_not_delivered(server: Server, database: Database, tmp_path: Path) -> None:
    schema = database(server)
    server.query("CREATE TABLE t3 (id INT PRIMARY KEY, v INT)", database=schema)
    assert not delivered(server, tmp_path, schema, UNSEEN)


def test_a_drop_of_several_tables_is_delivered_when_one_of_them_is_wanted(
    server: Server, database: Database, tmp_path: Path
) -> None:
    schema = database(server)
    tables = ["CREATE TABLE a (id INT)", "CREATE TABLE b (id INT)", "CREATE TABLE c (id INT)"]
    statements = [*tables, "DROP TABLE a, b", "RENAME TABLE c TO d"]
    entries = delivered(server, tmp_path, schema, statements, filter_regex=rf"{schema}\.b,{schema}\.d")
    assert [line.split(":")[0] for line in transcript(entries)] == ["CREATE b", "ERASE a", "RENAME d"]


def test_names_may_have_any_characters(server: Server, database: Database, tmp_path: Path) -> None:
    schema = database(server)
    table, column = "a.b`c \"d' é$", "x.y`z \"q' 'w'"
    quoted, quoted_column = (f"`{name.replace('`', '``')}`" for name in (table, column))
    statements = [f"CREATE TABLE {quoted} ({quoted_column} INT, `ключ` INT)", f"INSERT INTO {quoted} VALUES (1, 2)"]
    created, *changes = delivered(server, tmp_path, schema, statements)
    assert created.header.tableName == table
    ((_, change),) = [it for it in rows_of(changes, table) if it[1].rowDatas]
    assert values(change.rowDatas[0].afterColumns) == {column: "1", "ключ": "2"}


def test_mysql_has_question_marks_for_what_its_names_cannot_hold(
    mysql56: Server, mysql97: Server, database: Database, tmp_path: Path
) -> None:
    for server in (mysql56, mysql97):
        schema = database(server)
        with deliver(server, tmp_path, filter_regex=rf"{schema}\..*") as delivery:
            lines = []
            for statement in (
                "CREATE TABLE `t😀` (`c😀` INT)",
                "INSERT INTO `t😀` VALUES (1)",
                "ALTER TABLE `t😀` ADD b INT FIRST",
                "INSERT INTO `t😀` VALUES (1, 2)",
            ):
                server.query(statement, database=schema)
                lines += transcript(delivery.read())
        expected = ["BEGIN", "INSERT t? 1", "END", "BEGIN", "INSERT t? 1,2", "END"]
        assert [line for line in lines if not line.startswith(("CREATE", "ALTER"))] == expected


def test_the_text_of_a_statement_is_in_the_charset_of_its_client(
    server: Server, database: Database, tmp_path: Path
) -> None:
    schema = database(server)
    statements: list[str | bytes] = ["SET NAMES latin1", "CREATE TABLE t (id INT) COMMENT='é'".encode("latin1")]
    (entry,) = delivered(server, tmp_path, schema, statements)
    assert transcript([entry]) == ["CREATE t: CREATE TABLE t (id INT) COMMENT='é'"]


def test_tables_made_from_others(server: Server, database: Database, tmp_path: Path) -> None:
    schema = database(server)
    server.script("CREATE TABLE t (id INT PRIMARY KEY);\nINSERT INTO t VALUES (1), (2);\n", database=schema)
    lines = transcript(
        delivered(
            server,
            tmp_path,
            schema,
            ["CREATE TABLE u SELECT id, id + 10 AS n FROM t", "CREATE TABLE v LIKE u", "INSERT INTO v SELECT * FROM u"],
            filter_query_dml=True,
        )
    )
    lines = [line.partition(": ")[0] for line in lines]
    filled = ["BEGIN", "INSERT v 1,11", "INSERT v 2,12", "END"]
    if server.name in ("mysql80", "mysql57"):  # the CREATE is a transaction of its own
        assert lines == ["CREATE u", "BEGIN", "INSERT u 1,11", "INSERT u 2,12", "END", "CREATE v", *filled]
    else:
        assert lines == ["BEGIN", "CREATE u", "INSERT u 1,11", "INSERT u 2,12", "END", "CREATE v", *filled]


def test_changes_of_temporary_tables_are_not_delivered(server: Server, database: Database, tmp_path: Path) -> None:
    schema = database(server)
    server.query("CREATE TABLE t (id INT)", database=schema)
    statements = ["CREATE TEMPORARY TABLE x (a INT)", "INSERT INTO x VALUES (1)", "INSERT INTO t SELECT a + 1 FROM x"]
    entries = delivered(server, tmp_path, schema, statements, filter_query_dml=True)
    assert [line for line in transcript(entries) if not line.startswith(("CREATE", "ERASE"))] == [
        "BEGIN",
        "INSERT t 2",
        "END",
    ]


# DDL between rows

HISTORY = [
    ("CREATE TABLE t (a INT, b INT)", None),
    ("INSERT INTO t VALUES (1, 2)", {"a": "1", "b": "2"}),
    ("ALTER TABLE t ADD c INT FIRST", None),
    ("INSERT INTO t VALUES (3, 1, 2)", {"c": "3", "a": "1", "b": "2"}),
    ("ALTER TABLE t DROP a", None),
    ("INSERT INTO t VALUES (3, 2)", {"c": "3", "b": "2"}),
    ("ALTER TABLE t CHANGE b z VARCHAR(9)", None),
    ("INSERT INTO t VALUES (3, 'é')", {"c": "3", "z": "é"}),
    ("/*!50100 ALTER */ TABLE `t` MODIFY z CHAR(9) CHARACTER SET latin1 FIRST", None),
    ("INSERT INTO t VALUES ('é', 3)", {"z": "é", "c": "3"}),
    ("DROP TABLE t", None),
    ("CREATE TABLE t (r DATE)", None),
    ("INSERT INTO t VALUES ('2020-01-01')", {"r": "2020-01-01"}),
]


def test_names_are_right_before_and_after_a_ddl(server: Server, database: Database, tmp_path: Path) -> None:
    schema = database(server)
    with deliver(server, tmp_path, filter_regex=rf"{schema}\..*", filter_query_dml=True) as delivery:
        for statement, expected in HISTORY:
            server.query(statement, database=schema)
            rows = [row for _, change in rows_of(delivery.read()) for row in change.rowDatas]
            assert [values(row.afterColumns) for row in rows] == ([] if expected is None else [expected]), statement


@pytest.mark.parametrize(
    "name",
    ["mysql97", "mariadb118", *(pytest.param(it, marks=pytest.mark.extended) for it in ("mysql80", "mariadb1011"))],
)
def test_with_full_metadata_names_are_right_however_late_the_rows_are_read(
    name: str, request: pytest.FixtureRequest, database: Database, tmp_path: Path
) -> None:
    server: Server = request.getfixturevalue(name)
    schema = database(server)
    file, offset = end_of_binlog(server)
    with server.variable("binlog_row_metadata", "FULL"):
        execute(server, [statement for statement, _ in HISTORY], database=schema)
        with deliver(
            server, tmp_path, master_journal_name=file, master_position=offset, filter_regex=rf"{schema}\..*"
        ) as delivery:
            rows = [row for _, change in rows_of(delivery.read()) for row in change.rowDatas]
    assert [values(row.afterColumns) for row in rows] == [expected for _, expected in HISTORY if expected]


def test_without_it_rows_that_do_not_fit_are_listed_and_the_stream_goes_on(
    server: Server, database: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    schema = database(server)
    execute(server, ["CREATE TABLE t (a INT, b INT)", "CREATE TABLE u (a INT)"], database=schema)
    file, offset = end_of_binlog(server)
    statements = [
        "INSERT INTO t VALUES (1, 2)",
        "ALTER TABLE t DROP b",
        "INSERT INTO t VALUES (3)",
        "INSERT INTO u VALUES (4)",
        "ALTER TABLE u CHANGE a z INT",
        "INSERT INTO u VALUES (5)",
    ]
    execute(server, statements, database=schema)
    place = {"master_journal_name": file, "master_position": offset}
    listed = []
    for folder in ("first", "second"):
        with deliver(server, tmp_path / folder, **place, filter_regex=rf"{schema}\..*", filter_query_dml=True) as late:
            entries = late.read()
            assert late.parser.status.quarantined == 1
        markers = [entry for entry in entries if any(it.key == "sluice.quarantine" for it in entry.header.props)]
        assert [entry.header.tableName for entry in markers] == ["t"]
        lines = transcript([entry for entry in entries if entry not in markers])
        assert [line for line in lines if line.startswith("INSERT")] == ["INSERT t 3", "INSERT u 4", "INSERT u 5"]
        listed.append([json.loads(line) for line in path_of(tmp_path / folder, "test").read_text().splitlines()])
    first, second = listed
    assert first == second
    assert first[0]["table"] == "t"
    future = [record.getMessage() for record in caplog.records if "schema-from-the-future" in record.getMessage()]
    assert any(f"{schema}.u from" in message for message in future)


def test_a_ddl_read_late_raises_no_alarm_without_rows(
    server: Server, database: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    schema = database(server)
    file, offset = end_of_binlog(server)
    statements = ["CREATE TABLE t (a INT)", "ALTER TABLE t ADD b INT", "INSERT INTO t VALUES (1, 2)"]
    execute(server, statements, database=schema)
    with deliver(
        server, tmp_path, master_journal_name=file, master_position=offset, filter_regex=rf"{schema}\..*"
    ) as late:
        assert "INSERT t 1,2" in transcript(late.read())
    assert not [record for record in caplog.records if f"{schema}.t from" in record.getMessage()]


# The texts of DML


def test_dml_that_was_logged_as_a_statement_raises_an_alarm(
    server: Server, database: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    schema = database(server)
    server.query("CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(20))", database=schema)
    statements = [
        "SET SESSION binlog_format = STATEMENT",
        "INSERT INTO t (v) VALUES ('a')",
        "SET @v = 'b'",
        "UPDATE t SET v = @v",
        "DELETE FROM t",
        "SET SESSION binlog_format = ROW",
        "INSERT INTO t VALUES (7, 'c')",
    ]
    with caplog.at_level(logging.ERROR), deliver(server, tmp_path) as delivery:
        execute(server, statements, database=schema)
        lines = transcript(delivery.read())
        assert delivery.parser.status.dml_statements == 3
    row = ["BEGIN", "INSERT t 7,c", "END"]
    assert [line for line in lines if line != "QUERY: INSERT INTO t VALUES (7, 'c')"] == [
        *("BEGIN", "QUERY: SET INSERT_ID = 1", "INSERT t: INSERT INTO t (v) VALUES ('a')", "END"),
        *("BEGIN", "QUERY: SET @v := 'b'", "UPDATE t: UPDATE t SET v = @v", "END"),
        *("BEGIN", "DELETE t: DELETE FROM t", "END"),
        *row,
    ]
    assert sum("was logged as a statement" in record.getMessage() for record in caplog.records) == 3
    lines = transcript(delivered(server, tmp_path, schema, ["DELETE FROM t", *statements], filter_query_dml=True))
    assert [line for line in lines if line.startswith(("INSERT", "UPDATE", "QUERY"))] == ["INSERT t 7,c"]


def test_the_statement_of_rows_comes_before_them(server: Server, database: Database, tmp_path: Path) -> None:
    schema = database(server)
    server.query("CREATE TABLE t (id INT, v VARBINARY(9))", database=schema)
    switch = "binlog_annotate_row_events" if server.mariadb else "binlog_rows_query_log_events"
    statement = b"INSERT INTO t VALUES (1, _binary '\xff\xfe\xe9'), (2, 'plain')"
    written: list[str | bytes] = [f"SET SESSION {switch} = ON", statement]
    entries = delivered(server, tmp_path, schema, written, filter_regex="")
    assert transcript(entries) == [
        "BEGIN",
        "QUERY: INSERT INTO t VALUES (1, _binary '\ufffd\ufffd\ufffd'), (2, 'plain')",
        "INSERT t 1,\xff\xfe\xe9",
        "INSERT t 2,plain",
        "END",
    ]
    query = entries[1].header
    assert (query.schemaName, query.tableName) == ("", "")
    for left_out in ({}, {"filter_regex": "", "filter_query_dml": True}):
        lines = transcript(delivered(server, tmp_path, schema, written, **left_out))
        assert lines == ["BEGIN", "INSERT t 1,\xff\xfe\xe9", "INSERT t 2,plain", "END"]
