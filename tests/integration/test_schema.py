"""Columns that neither the binlog nor information_schema names in full."""

from pathlib import Path

import pytest

from sluice.protocol import props
from sluice.protocol.canal.entry_pb2 import EventType
from sluice.protocol.errors import UnknownTableError
from tests.conftest import Database
from tests.delivery import deliver, end_of_binlog, rows_of, transcript, values
from tests.reading import Reading, config
from tests.servers import ALL, CI, Server


@pytest.mark.parametrize("metadata", ["NO_LOG", "FULL"])
def test_uuid_and_inet6_are_text_whatever_the_metadata(
    mariadb118: Server, database: Database, tmp_path: Path, metadata: str
) -> None:
    name = database(mariadb118)
    mariadb118.query("CREATE TABLE t (u UUID, a INET6, b BINARY(16))", database=name)
    mariadb118.query(f"SET GLOBAL binlog_row_metadata = {metadata}")
    try:
        with Reading(config(mariadb118, tmp_path)) as reading:
            reading.wait(lambda: reading.running)
            mariadb118.query(
                "INSERT INTO t VALUES ('123e4567-e89b-12d3-a456-426655440000', '2001:db8::1', 'sixteen bytes !!')",
                database=name,
            )
            reading.wait_for(f"INSERT {name}.t ")
            row = "123e4567-e89b-12d3-a456-426655440000,2001:db8::1,sixteen bytes !!"
            assert reading.rows() == [f"INSERT {name}.t {row}"]
    finally:
        mariadb118.query("SET GLOBAL binlog_row_metadata = NO_LOG")


def test_a_system_versioned_table_has_its_hidden_columns(
    mariadb118: Server, database: Database, tmp_path: Path
) -> None:
    name = database(mariadb118)
    with Reading(config(mariadb118, tmp_path)) as reading:
        reading.wait(lambda: reading.running)
        mariadb118.query("CREATE TABLE t (id INT PRIMARY KEY) WITH SYSTEM VERSIONING", database=name)
        mariadb118.query("INSERT INTO t VALUES (7)", database=name)
        line = reading.wait_for(f"INSERT {name}.t 7")[-1]
        row = next(line for line in reading.rows() if line.startswith("INSERT"))
        assert len(row.split(",")) == 3, line


@pytest.mark.parametrize(
    ("definition", "row"),
    [
        ("id INT PRIMARY KEY, v INT AS (id + 1) VIRTUAL, s INT AS (id + 2) STORED", "7,8,9"),
        ("id INT PRIMARY KEY, v VARCHAR(20) INVISIBLE DEFAULT 'x'", "7,x"),
    ],
)
@pytest.mark.parametrize("name", ["mysql97", "mariadb118"])
def test_generated_and_invisible_columns_are_columns(
    request: pytest.FixtureRequest, database: Database, tmp_path: Path, name: str, definition: str, row: str
) -> None:
    server: Server = request.getfixturevalue(name)
    schema = database(server)
    with Reading(config(server, tmp_path)) as reading:
        reading.wait(lambda: reading.running)
        server.query(f"CREATE TABLE t ({definition})", database=schema)
        server.query("INSERT INTO t (id) VALUES (7)", database=schema)
        reading.wait_for(f"INSERT {schema}.t ")
        assert reading.rows() == [f"INSERT {schema}.t {row}"]


OLD_METADATA = [pytest.param("mysql80", it, marks=pytest.mark.extended) for it in ("MINIMAL", "FULL")]


@pytest.mark.parametrize(("name", "metadata"), [("mysql97", "MINIMAL"), *OLD_METADATA])
def test_a_functional_index_adds_no_column(
    request: pytest.FixtureRequest, database: Database, tmp_path: Path, name: str, metadata: str
) -> None:
    server: Server = request.getfixturevalue(name)
    schema = database(server)
    server.query("CREATE TABLE before_it (id INT PRIMARY KEY, v INT, INDEX ((v + 1)))", database=schema)
    with server.variable("binlog_row_metadata", metadata), Reading(config(server, tmp_path)) as reading:
        reading.wait(lambda: reading.running)
        server.query("CREATE TABLE t (id INT PRIMARY KEY, v INT, INDEX ((v + 1)), UNIQUE ((v * 2)))", database=schema)
        for table in ("before_it", "t"):
            server.query(f"INSERT INTO {table} VALUES (1, 2)", database=schema)
        server.query("UPDATE t SET v = 3", database=schema)
        reading.wait_for(f"UPDATE {schema}.t 1,3")
        server.query("ALTER TABLE t ADD x INT", database=schema)
        server.query("UPDATE t SET x = 4", database=schema)
        reading.wait_for(f"UPDATE {schema}.t 1,3,4")
        assert reading.rows() == [
            f"INSERT {schema}.before_it 1,2",
            f"INSERT {schema}.t 1,2",
            f"UPDATE {schema}.t 1,3",
            f"UPDATE {schema}.t 1,3,4",
        ]


@pytest.mark.parametrize("metadata", ["NO_LOG", "FULL"])
@pytest.mark.parametrize("name", ["mariadb118", pytest.param("mariadb1011", marks=pytest.mark.extended)])
def test_a_unique_by_a_hash_adds_no_column(
    request: pytest.FixtureRequest, database: Database, tmp_path: Path, name: str, metadata: str
) -> None:
    server: Server = request.getfixturevalue(name)
    schema = database(server)
    server.query("CREATE TABLE before_it (id INT PRIMARY KEY, b BLOB, UNIQUE (b))", database=schema)
    with server.variable("binlog_row_metadata", metadata), Reading(config(server, tmp_path)) as reading:
        reading.wait(lambda: reading.running)
        for statement in (
            "CREATE TABLE t (DB_ROW_HASH_1 BIGINT, v TEXT, n INT, UNIQUE (v), UNIQUE (n) USING HASH)",
            "CREATE TABLE shown (v INT, DB_ROW_HASH_1 BIGINT)",
            "CREATE TABLE versioned (v TEXT UNIQUE) WITH SYSTEM VERSIONING",
            "INSERT INTO before_it VALUES (1, 'b')",
            "INSERT INTO t VALUES (7, 'a', 1)",
            "UPDATE t SET n = 2",
        ):
            server.query(statement, database=schema)
        reading.wait_for(f"UPDATE {schema}.t 7,a,2")
        for statement in (
            "ALTER TABLE t DROP INDEX n",
            "UPDATE t SET n = 3",
            "INSERT INTO shown VALUES (1, 8)",
            "INSERT INTO versioned VALUES ('v')",
            "DELETE FROM t",
        ):
            server.query(statement, database=schema)
        reading.wait_for(f"DELETE {schema}.t ")
        rows = reading.rows()
        assert len(rows.pop(-2).split(",")) == 3  # the value, and from when and until when it is so
        assert rows == [
            f"INSERT {schema}.before_it 1,b",
            f"INSERT {schema}.t 7,a,1",
            f"UPDATE {schema}.t 7,a,2",
            f"UPDATE {schema}.t 7,a,3",
            f"INSERT {schema}.shown 1,8",
            f"DELETE {schema}.t 7,a,3",
        ]
        assert not [it for entry in reading.entries() for it in entry.header.props if it.key == props.SCHEMA]


def test_a_generated_primary_key_is_a_column(mysql97: Server, database: Database, tmp_path: Path) -> None:
    name = database(mysql97)
    with Reading(config(mysql97, tmp_path)) as reading:
        reading.wait(lambda: reading.running)
        mysql97.script(
            "SET SESSION sql_generate_invisible_primary_key = ON;\n"
            "CREATE TABLE t (v INT);\n"
            "INSERT INTO t VALUES (5);\n",
            database=name,
        )
        reading.wait_for(f"INSERT {name}.t ")
        assert reading.rows() == [f"INSERT {name}.t 1,5"]


def test_names_of_tables_may_differ_by_case_where_the_source_ignores_it(tmp_path: Path) -> None:
    with Server("mysql56", ["--lower-case-table-names=1"]) as server, Reading(config(server, tmp_path)) as reading:
        reading.wait(lambda: reading.running)
        server.query("CREATE DATABASE Shop")
        server.query("CREATE TABLE Shop.Orders (id INT)")
        server.query("INSERT INTO SHOP.orders VALUES (1)")
        reading.wait_for("INSERT shop.orders 1")
        server.query("ALTER TABLE SHOP.ORDERS ADD v INT FIRST")
        server.query("INSERT INTO shop.orders VALUES (2, 3)")
        reading.wait_for("INSERT shop.orders 2,3")
        assert [column.name for column in reading.parser.columns("shop", "orders")] == ["v", "id"]
        with pytest.raises(UnknownTableError, match=r"Shop\.Orders is called shop\.orders by the source"):
            reading.parser.columns("Shop", "Orders")


def test_columns_are_told_as_they_are_now_without_those_that_are_filtered_out(
    server: Server, database: Database, tmp_path: Path
) -> None:
    schema = database(server)
    server.query("CREATE TABLE t (a INT, b BIGINT UNSIGNED, `É` VARCHAR(9), PRIMARY KEY (b, a))", database=schema)
    configuration = config(server, tmp_path).model_copy(update={"filter_black_field": f"{schema}.t:É"})
    with Reading(configuration) as reading:
        a, b = reading.parser.columns(schema, "t")
        assert (a.name, a.is_key, b.name, b.is_key, b.is_unsigned) == ("a", True, "b", True, True)
        server.query("ALTER TABLE t DROP PRIMARY KEY, DROP a", database=schema)
        (b,) = reading.parser.columns(schema, "t")
        assert (b.name, b.is_key) == ("b", False)
        with pytest.raises(UnknownTableError, match="is unknown to"):
            reading.parser.columns(schema, "T")


@pytest.mark.parametrize("index", ["CREATE TABLE t (id INT PRIMARY KEY, v BLOB, UNIQUE (v))", "ALTER", "CREATE"])
def test_columns_that_the_source_no_longer_keeps_for_a_unique_are_known_from_the_history(
    mariadb118: Server, database: Database, tmp_path: Path, index: str
) -> None:
    schema = database(mariadb118)
    later = {"ALTER": "ALTER TABLE t ADD UNIQUE (v)", "CREATE": "CREATE UNIQUE INDEX u ON t (v)"}.get(index)
    made = ["CREATE TABLE t (id INT PRIMARY KEY, v BLOB)", later] if later else [index]
    file, offset = end_of_binlog(mariadb118)
    for statement in (*made, "INSERT INTO t VALUES (1, 2)", "DROP TABLE t"):
        mariadb118.query(statement, database=schema)
    with deliver(mariadb118, tmp_path, master_journal_name=file, master_position=offset) as delivery:
        (row,) = [entry for entry in delivery.read() if entry.header.eventType == EventType.INSERT]
    assert transcript([row]) == ["INSERT t 1,2"]
    assert not [it for it in row.header.props if it.key == props.SCHEMA]


OLDER = [pytest.param(name, marks=pytest.mark.extended) for name in ALL if name not in CI]


@pytest.mark.parametrize("name", [*CI, *OLDER])
def test_a_table_made_by_a_query_is_known_to_who_comes_late(
    request: pytest.FixtureRequest, database: Database, tmp_path: Path, name: str
) -> None:
    server: Server = request.getfixturevalue(name)
    schema = database(server)
    file, offset = end_of_binlog(server)
    again = "CREATE OR REPLACE TABLE made" if server.mariadb else "CREATE TABLE other"
    for statement in (
        "CREATE TABLE first (a INT, b BLOB)",
        "CREATE TABLE made (x INT) SELECT a + 1 AS c, b FROM first",
        "INSERT INTO made VALUES (1, 2, 'three')",
        "DROP TABLE IF EXISTS other",
        f"{again} SELECT b AS y, a FROM first",
        f"INSERT INTO {again.rsplit(' ', maxsplit=1)[-1]} VALUES ('four', 5)",
        "DROP TABLE IF EXISTS made, other",
    ):
        server.query(statement, database=schema)
    with deliver(server, tmp_path, master_journal_name=file, master_position=offset) as delivery:
        rows = [(entry, change) for entry in delivery.read() for _, change in rows_of([entry]) if change.rowDatas]
    assert [values(row.afterColumns) for _, change in rows for row in change.rowDatas] == [
        {"x": "1", "c": "2", "b": "three"},
        {"y": "four", "a": "5"},
    ]
    assert not [it for entry, _ in rows for it in entry.header.props if it.key == props.SCHEMA]
