"""What statements leave of tables, as far as it needs no server; servers are asked in test_ddl_oracle.py."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.instance.sources.mysql.decode.table_map import TableMap
from sluice.instance.sources.mysql.history.statements import Context, apply
from sluice.instance.sources.mysql.history.tables import UNKNOWN, Catalog, Column, Database, State, Table, as_shown
from sluice.instance.sources.mysql.query import Status
from sluice.instance.sources.mysql.schema import Schemas, Snapshot, TableSchema
from sluice.protocol.lexer import ORACLE, Dialect
from sluice.protocol.position import Position
from tests.unit.plans import table_map
from tests.unit.test_ddl import WORDS
from tests.unit.test_lexer import MARIADB, MYSQL56, MYSQL80, MYSQL97

SEQUENCE = [
    "next_not_cached_value",
    "minimum_value",
    "maximum_value",
    "start_value",
    "increment",
    "cache_size",
    "cycle_option",
    "cycle_count",
]
PLAIN = Table((Column("id", "int(11)"), Column("v", "varchar(9)", "latin1")), ("id",), "latin1")


def catalog(**tables: State) -> Catalog:
    """A database `shop` that is known in full, with these tables."""
    found = Catalog()
    found.put_database("shop", Database("latin1", dict(tables), is_complete=True))
    found.changes.clear()
    return found


def after(sql: str, name: str = "t", *, dialect: Dialect = MYSQL80, context: Context | None = None) -> State:
    """What is known of a table after a statement that finds `t` and `u`."""
    found = catalog(t=PLAIN, u=PLAIN, hidden=UNKNOWN)
    apply(found, dialect, sql, context or Context("shop"))
    return found.get("shop", name)


def names(state: State) -> list[str] | State:
    """The names of a known table's columns."""
    return [column.name for column in state.columns] if isinstance(state, Table) else state


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("ALTER TABLE t ADD a INT FIRST, ADD b INT AFTER id, DROP v", ["a", "id", "b"]),
        ("ALTER TABLE t CHANGE id v INT, CHANGE v id INT", ["v", "id"]),
        ("ALTER TABLE t MODIFY id INT AFTER v, MODIFY v INT FIRST, ADD a INT AFTER id", ["v", "id", "a"]),
        ("ALTER TABLE t ADD w INT, CHANGE id a INT AFTER b, CHANGE v b INT AFTER w", ["a", "w", "b"]),
        ("ALTER TABLE t ADD FROBNICATE", UNKNOWN),
        ("ALTER TABLE t ADD a FROBNICATE", UNKNOWN),
        ("ALTER TABLE t ADD a INT FROBNICATE", UNKNOWN),
        ("ALTER TABLE t FROBNICATE", UNKNOWN),
        ("ALTER TABLE t ADD id INT", UNKNOWN),
        ("ALTER TABLE t DROP nothing", UNKNOWN),
        ("ALTER TABLE t MODIFY nothing INT", UNKNOWN),
        ("ALTER TABLE t ADD a INT AFTER nothing", UNKNOWN),
        ("ALTER TABLE t ADD a ENUM('\ufffd')", UNKNOWN),
        ("ALTER TABLE t ADD a INT, ADD b CHAR(3) CHARSET klingon", UNKNOWN),
        ("CREATE TABLE t SELECT 1 AS a", UNKNOWN),
        ("CREATE TABLE t (a INT) SELECT 1 AS a", UNKNOWN),
        ("CREATE TABLE t (a INT) PARTITION BY HASH (a) AS SELECT 1 AS a", UNKNOWN),
        ("CREATE TABLE t LIKE hidden", UNKNOWN),
        ("CREATE TABLE t LIKE elsewhere.x", UNKNOWN),
        ("CREATE TABLE t (a INT) PARTITION BY SYSTEM_TIME LIMIT 10 (PARTITION p HISTORY)", UNKNOWN),
        ("ALTER TABLE t DROP SYSTEM VERSIONING", UNKNOWN),
        ("ALTER TABLE t ADD PRIMARY KEY (id, app WITHOUT OVERLAPS)", UNKNOWN),
        ("ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4, MODIFY v TEXT", UNKNOWN),
        ("ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4, ADD w CHAR(5), ADD period INT", ["id", "v", "w", "period"]),
        ("CREATE TABLE t (period INT, a INT REFERENCES p (id))", ["period", "a"]),
        ("CREATE TABLE IF NOT EXISTS t (a INT)", ["id", "v"]),
        ("CREATE TEMPORARY TABLE t (a INT)", ["id", "v"]),
        ("DROP TEMPORARY TABLE t", ["id", "v"]),
        ("DROP TABLE t, u", None),
        ("RENAME TABLE t TO x", None),
        ("RENAME TABLE hidden TO y, t TO x, y TO t", UNKNOWN),
        ("CREATE VIEW t AS SELECT 1", UNKNOWN),
        ("CREATE SEQUENCE t INCREMENT 2", SEQUENCE),
        ("CREATE TEMPORARY SEQUENCE t", UNKNOWN),
        ("CREATE SEQUENCE t AS VARCHAR(3)", UNKNOWN),
        ("CREATE SEQUENCE IF NOT EXISTS t", UNKNOWN),
        ("ALTER SEQUENCE t AS INT", SEQUENCE),
        ("ALTER SEQUENCE t RESTART 7", ["id", "v"]),
        ("DROP VIEW IF EXISTS t", UNKNOWN),
        ("GRANT ALL ON t TO u", ["id", "v"]),
        ("CREATE PROCEDURE p() DROP TABLE t", ["id", "v"]),
        ("CREATE DEFINER=x TRIGGER r BEFORE INSERT ON t FOR EACH ROW SET @a = 1", ["id", "v"]),
    ],
)
def test_a_table_is_as_the_statement_left_it_or_unknown(sql: str, expected: object) -> None:
    assert names(after(sql)) == expected


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("ALTER TABLE t ADD a FROBNICATE", ["id", "v"]),
        ("ALTER TABLE t ADD a FROBNICATE, RENAME COLUMN id TO u", ["id", "v"]),
        ("ALTER TABLE t ADD a FROBNICATE, RENAME TO u", UNKNOWN),
        ("ALTER TABLE t ADD a FROBNICATE, RENAME `u`", UNKNOWN),
        ("ALTER TABLE t ADD a FROBNICATE, RENAME AS shop . u", UNKNOWN),
        ("ALTER TABLE t ADD a FROBNICATE, CONVERT PARTITION p TO TABLE u", UNKNOWN),
        ("ALTER TABLE t FROBNICATE, CONVERT TABLE u TO PARTITION p VALUES LESS THAN (1)", UNKNOWN),
        ("ALTER TABLE t CONVERT PARTITION p TO TABLE u WITHOUT VALIDATION", ["id", "v"]),
        ("ALTER TABLE t CONVERT TABLE u TO PARTITION p VALUES LESS THAN (1)", None),
        ("ALTER TABLE t ADD a INT 'no end", UNKNOWN),
        ("ALTER TABLE t FROBNICATE, RENAME TO v", ["id", "v"]),
        ("ALTER TABLE t ADD a FROBNICATE, RENAME TO `\ufffd`", UNKNOWN),
        ("CREATE TABLE t (u FROBNICATE)", ["id", "v"]),
        ("CREATE FROBNICATE x", ["id", "v"]),
        ("CREATE FROBNICATE u", UNKNOWN),
        ("RENAME TABLE t FROBNICATE x", ["id", "v"]),
        ("ALTER DATABASE shop FROBNICATE", ["id", "v"]),
        ("DROP DATABASE other FROBNICATE", ["id", "v"]),
        ("FROBNICATE t", UNKNOWN),
        ("DROP TABLE t FROBNICATE u", UNKNOWN),
        ("", UNKNOWN),
    ],
)
def test_a_statement_that_may_be_about_another_table_makes_that_one_unknown_too(sql: str, expected: object) -> None:
    assert names(after(sql, "u")) == expected


@pytest.mark.parametrize(
    ("context", "sql", "expected"),
    [
        (Context("shop", failed=True), "ALTER TABLE t ADD a INT", UNKNOWN),
        (Context("shop", failed=True), "DROP TABLE t", UNKNOWN),
        (Context("shop", failed=True), "DROP DATABASE shop", UNKNOWN),
        (Context("shop", uses_temporary=True), "ALTER TABLE t ADD a INT", UNKNOWN),
        (Context("shop", uses_temporary=True), "DROP TABLE t", None),
        (Context("shop", uses_temporary=True), "CREATE OR REPLACE TABLE t (a INT)", ["a"]),
        (Context("shop", uses_temporary=True), "CREATE OR REPLACE TABLE t LIKE u", UNKNOWN),
        (Context(""), "CREATE TABLE shop.t (a INT REFERENCES p (id))", ["a"]),
        (Context(""), "ALTER TABLE shop.t ADD a INT REFERENCES p (id)", ["id", "v", "a"]),
        (Context(""), "DROP TABLE t", UNKNOWN),
        (Context(""), "DROP TABLE shop.t", None),
        (Context(""), "SET STATEMENT a=1 FOR " * 2000 + "DROP TABLE shop.t", None),
        (Context("shop", sql_mode=ORACLE), "ALTER TABLE t ADD a INT", ["id", "v", "a"]),
        (Context("shop", sql_mode=ORACLE), "CREATE PROCEDURE p AS BEGIN DROP TABLE t; END", ["id", "v"]),
        (Context("", sql_mode=ORACLE), "GRANT ALL ON *.* TO u", ["id", "v"]),
    ],
)
def test_an_event_says_when_its_statement_is_not_what_it_seems(context: Context, sql: str, expected: object) -> None:
    assert names(after(sql, dialect=MARIADB, context=context)) == expected


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ("ADD PRIMARY KEY IF NOT EXISTS (v)", ("id",)),
        ("ADD PRIMARY KEY IF NOT EXISTS (v), CHANGE id k INT", ("k",)),
        ("DROP PRIMARY KEY, ADD PRIMARY KEY IF NOT EXISTS (v)", ()),
        ("DROP id, ADD PRIMARY KEY IF NOT EXISTS (v)", ()),
        ("ADD IF NOT EXISTS x INT PRIMARY KEY, DROP id", ()),
        ("DROP PRIMARY KEY, ADD PRIMARY KEY (v), ADD IF NOT EXISTS x INT PRIMARY KEY", ("v",)),
    ],
)
def test_a_primary_key_if_there_is_none_is_not_made_where_the_statement_drops_one(
    change: str, key: tuple[str, ...]
) -> None:
    found = after(f"ALTER TABLE t {change}", dialect=MARIADB)
    assert isinstance(found, Table)
    assert found.key == key


def test_a_table_under_a_quoted_name_is_as_it_was_if_mariadb_leaves_it_when_it_is_renamed() -> None:
    found = catalog(**{"w x": PLAIN})
    apply(found, MARIADB, "ALTER TABLE `w x` ADD a INT, RENAME TO u", Context("shop"))
    stored = catalog()
    stored.replay(found.changes)
    for it in (found, stored):
        assert [names(it.get("shop", name)) for name in ("w x", "u")] == [["id", "v"], ["id", "v", "a"]]
    for sql, expected in (
        ("CREATE TABLE IF NOT EXISTS `w x` (b INT)", UNKNOWN),  # made, or not
        ("RENAME TABLE IF EXISTS `w x` TO y", UNKNOWN),
        ("ALTER TABLE IF EXISTS `w x` ADD a INT", ["id", "v", "a"]),
        ("ALTER TABLE IF EXISTS `w x` ADD a INT; CREATE TABLE IF NOT EXISTS `w x` (b INT)", UNKNOWN),
        ("ALTER TABLE `w x` ADD a INT; CREATE TABLE IF NOT EXISTS `w x` (b INT)", ["id", "v", "a"]),
        ("CREATE TABLE `w x` (b INT); CREATE TABLE IF NOT EXISTS `w x` (c INT)", ["b"]),
        ("CREATE TABLE y LIKE `w x`; CREATE TABLE IF NOT EXISTS y (b INT)", ["id", "v"]),
    ):
        after_it = catalog()
        after_it.replay(found.changes)
        for statement in sql.split("; "):
            apply(after_it, MARIADB, statement, Context("shop"))
        assert names(after_it.get("shop", "y" if "y" in sql.split() else "w x")) == expected, sql


def test_of_a_table_under_a_quoted_name_columns_that_are_open_stay_known_when_it_is_renamed() -> None:
    found = Catalog(only_open=True)
    found.put("shop", "w x", Table((Column("u", "uuid"),), (), None))
    apply(found, MARIADB, "ALTER TABLE `w x` ADD a INT, RENAME TO u", Context("shop"))
    assert names(found.get("shop", "w x")) == ["u"]
    apply(found, MARIADB, "CREATE TABLE IF NOT EXISTS `w x` (u BINARY(16))", Context("shop"))
    assert found.get("shop", "w x") is UNKNOWN


@pytest.mark.parametrize("sql", ["FROBNICATE t", "'", "ALTER TABLE t ADD a INT 'no end", "DROP TABLE t FROBNICATE"])
def test_a_statement_that_is_not_understood_leaves_the_defaults_of_databases(sql: str) -> None:
    found = catalog(t=PLAIN)
    apply(found, MARIADB, sql, Context("shop"))
    stored = Catalog()
    stored.replay(found.changes)
    assert (found.charset("shop"), found.get("shop", "t")) == ("latin1", UNKNOWN)
    assert stored.get("shop", "t") is UNKNOWN
    apply(found, MARIADB, "CREATE TABLE shop.t (v TEXT)", Context(""))
    assert found.get("shop", "t") == Table((Column("v", "text", "latin1"),), (), "latin1")


def test_a_table_with_the_times_of_its_rows_is_the_same_when_it_was_stored() -> None:
    found = catalog(t=PLAIN)
    apply(found, MARIADB, "ALTER TABLE t ADD SYSTEM VERSIONING", Context("shop"))
    stored = catalog()
    stored.replay(found.changes)
    table = stored.get("shop", "t")
    assert isinstance(table, Table)
    assert [it.name for it in table.source_columns()] == ["id", "v", "row_start", "row_end"]


def test_without_the_default_of_the_database_only_a_text_is_unknown() -> None:
    found = Catalog()
    apply(found, MYSQL80, "CREATE TABLE shop.t (id INT)", Context(""))
    apply(found, MYSQL80, "CREATE TABLE shop.u (id INT, v VARCHAR(9) CHARSET latin1)", Context(""))
    apply(found, MYSQL80, "CREATE TABLE shop.v (id INT, v VARCHAR(9))", Context(""))
    apply(found, MYSQL80, "ALTER TABLE shop.u ADD w TEXT", Context(""))
    assert [names(found.get("shop", name)) for name in "tuv"] == [["id"], UNKNOWN, UNKNOWN]


@given(st.one_of(st.text(), st.lists(st.one_of(WORDS, st.text(max_size=3))).map(" ".join)))
def test_no_text_is_too_strange(sql: str) -> None:
    found = catalog(t=PLAIN)
    apply(found, MARIADB, sql, Context("shop"))
    assert found.changes or found.get("shop", "t") == PLAIN


def test_defaults_of_character_sets_do_not_hide_the_collations_of_the_session() -> None:
    # MariaDB 11.8, CREATE DATABASE d CHARACTER SET utf8
    status = bytes.fromhex(
        "0000000000 010000205400000000 0603737464 83052100000823 00000a2d00000936 00000b3c00000c 04000900090009"
    )
    assert Status.parse(status) == Status(0x54200000, 0x0900, 0x0900, 0x0900)


@pytest.mark.parametrize(
    ("literals", "is_known"),
    [(None, True), ("utf8", True), ("latin1", True), ("cp1251", False), ("ascii", False), ("binary", False)],
)
def test_labels_are_known_where_the_connection_has_their_characters(literals: str | None, *, is_known: bool) -> None:
    sql = "CREATE TABLE n (a ENUM('x', 'é') CHARACTER SET utf8mb4)"
    found = after(sql, "n", context=Context("shop", literals=literals))
    known = Table((Column("a", "enum('x','é')", "utf8mb4"),), (), "latin1")
    assert found == (known if is_known else UNKNOWN)  # the server writes a question mark, or takes bytes as they are


# The source is asked, and the stream comes to that place


class Source:
    """A source that has one table, and says at which place of its binlog it is asked."""

    def __init__(self) -> None:
        self.end = 500
        self.asked = 0

    def take(self) -> Snapshot:
        self.asked += 1
        return Snapshot({"shop": Database("latin1", {"t": UNKNOWN}, is_complete=True)}, (3, self.end), is_complete=True)

    def fetch(self, schema: str, table: str, timestamp: int) -> TableSchema:
        now = Table((Column("now", "int"),), (), "latin1")
        return TableSchema(now.source_columns(), altered=1 << 40, seen=(3, self.end), table=now)


def place(begin: int) -> Position:
    return Position("source", "bin.000003", 1, begin, 0)


def column(schemas: Schemas, begin: int) -> str:
    """The name of the only column of shop.t."""
    found = schemas.table(TableMap.parse(table_map((3, b""))), {}, 7, place(begin))
    return found.columns[0].name + (" in doubt" if found.is_younger(7, place(begin)) else "")


def test_a_table_is_certain_from_the_place_on_at_which_the_source_was_asked_for_it() -> None:
    schemas = Schemas(Source(), MYSQL80)
    assert column(schemas, 400) == "now in doubt"
    schemas.apply("ALTER TABLE shop.t CHANGE now later INT", Context(""), place(490))
    assert column(schemas, 495) == "now in doubt", "the source was asked after the statement"
    assert column(schemas, 500) == "now"
    schemas.apply("ALTER TABLE shop.t CHANGE now later INT", Context(""), place(510))
    assert column(schemas, 520) == "later"


def test_if_there_was_a_table_is_known_from_the_place_on_at_which_the_source_was_asked() -> None:
    source = Source()
    schemas = Schemas(source, MYSQL80, take=source.take)
    schemas.apply("CREATE TABLE IF NOT EXISTS shop.x (a VARCHAR(9))", Context(""), place(300))
    source.end = 900
    schemas.apply("DROP TABLE IF EXISTS shop.x", Context(""), place(510))
    schemas.apply("CREATE TABLE IF NOT EXISTS shop.t (a VARCHAR(9))", Context(""), place(520))
    assert column(schemas, 530) == "now in doubt", "there was one, of which the answer says nothing"
    schemas.settle(place(900))
    schemas.apply("CREATE TABLE IF NOT EXISTS shop.t (a VARCHAR(9))", Context(""), place(900))
    assert column(schemas, 910) == "now", "there was one"
    schemas.apply("DROP TABLE shop.t", Context(""), place(920))
    schemas.apply("CREATE TABLE IF NOT EXISTS shop.t (a VARCHAR(9))", Context(""), place(930))
    assert column(schemas, 940) == "a"


def test_a_table_that_does_not_fit_the_event_is_asked_for_and_says_what_it_contradicts() -> None:
    schemas = Schemas(Source(), MYSQL80)
    schemas.apply("CREATE TABLE shop.t (a INT, b INT)", Context(""), place(400))
    event = TableMap.parse(table_map((3, b"")))
    schemas.drop(event, schemas.table(event, {}, 7, place(410)), "2 columns")
    found = schemas.table(event, {}, 7, place(420))
    assert [it.name for it in found.columns] == ["now"]
    assert (
        found.contradiction
        == "2 columns; the event has the columns (LONG), the history of tables (a int(11), b int(11))"
    )
    assert schemas.table(event, {}, 7, place(500)).contradiction == "", "the source was asked here"
    schemas.drop(event, schemas.table(event, {}, 7, place(510)), "another")
    schemas.apply("DROP TABLE shop.t", Context(""), place(520))
    schemas.apply("ALTER TABLE shop.t ADD c INT", Context(""), place(530))
    assert schemas.table(event, {}, 7, place(540)).contradiction == "", "that was another table"


@pytest.mark.parametrize(
    ("dialect", "label", "old", "new", "expected"),
    [
        (MYSQL80, "e", "latin1", "utf8mb4", "enum('e')"),
        (MYSQL80, "é", "latin1", "utf8mb4", "enum('\ufffd')"),  # one byte that no character has
        (MYSQL80, "e", "ucs2", "latin1", "enum('\\0e')"),
        (MYSQL80, "bc", "latin1", "ucs2", "enum('扣')"),
        (MYSQL80, "e", "latin1", "ucs2", "enum('\ufffd')"),
        (MYSQL56, "é", "latin1", "utf8mb4", "enum('\ufffd')"),
        (MYSQL56, "e", "latin1", "ucs2", UNKNOWN),  # it shows labels of ucs2 as if they were of latin1
        (MYSQL56, "e", "ucs2", "latin1", UNKNOWN),
        (MYSQL80, "中", "utf8mb4", "latin1", "enum('ä\xb8\xad')"),
        (MARIADB, "e", "latin1", "utf8mb4", "enum('e')"),
        (MARIADB, "é", "latin1", "utf8mb4", "enum('\ufffd')"),
        (MARIADB, "中", "utf8", "utf8mb4", "enum('中')"),
        (MARIADB, "😀", "utf8mb4", "utf8", "enum('\ufffd')"),
        (MARIADB, "\ufffd", "utf8mb4", "latin1", "enum('\ufffd')"),  # not known before
        (MARIADB, "text x", "latin1", "ucs2", "enum('瑥硴⁸')"),
    ],
)
def test_the_bytes_of_labels_stay_when_a_table_is_converted(
    dialect: Dialect, label: str, old: str, new: str, expected: object
) -> None:
    found = catalog(t=Table((Column("id", "int(11)"), Column("e", f"enum('{label}')", old)), ("id",), old))
    apply(found, dialect, f"ALTER TABLE t CONVERT TO CHARACTER SET {new}", Context("shop"))
    state = found.get("shop", "t")
    assert (state.columns[1].type if isinstance(state, Table) else state) == expected


@pytest.mark.parametrize(
    ("column", "is_lost"),
    [
        (Column("e", "enum('a','?')", "utf8mb4"), True),
        (Column("e", "set('??')", "utf16"), True),
        (Column("e", "enum('?')", "gb18030"), True),
        (Column("e", "enum('a','?')", "utf8mb3"), False),
        (Column("e", "enum('?')", "latin1"), False),
        (Column("e", "set('?')"), False),
        (Column("e", "enum('é')", "utf8mb4"), False),
        (Column("e?", "varchar(3)", "utf8mb4"), False),
    ],
)
def test_a_label_with_characters_that_no_server_shows_is_doubted(column: Column, *, is_lost: bool) -> None:
    shown = Table((as_shown(column, mariadb=True),), (), None)
    assert shown.has_lost_labels is is_lost
    assert [it.mysql_type for it in shown.source_columns()] == [column.type]


@pytest.mark.parametrize(
    ("column", "mariadb", "is_lost"),
    [
        (Column("e", "enum('','a')", "utf8mb4"), False, True),
        (Column("e", "enum('a''','','a')", "utf8mb4"), False, True),
        (Column("e", "enum('a''',',''','a')", "utf8mb4"), False, False),
        (Column("e", "enum('','a')", "utf8mb4"), True, False),
        (Column("e", "enum('','a')", "utf8"), False, False),
        (Column("e", "enum('a',x'e9','b')", "utf8"), False, True),
        (Column("e", "enum('(x'',')", "utf8"), False, False),
    ],
)
def test_a_label_that_mysql_does_not_show_is_doubted(column: Column, *, mariadb: bool, is_lost: bool) -> None:
    shown = Table((as_shown(column, mariadb=mariadb),), (), None)
    assert shown.has_lost_labels is is_lost
    assert [it.mysql_type for it in shown.source_columns()] == [column.type.replace("x'e9'", "'?'")]
    found = catalog(t=Table((Column("id", "int"), *shown.columns), (), column.charset))
    apply(found, MYSQL97, "ALTER TABLE t CONVERT TO CHARACTER SET latin1", Context("shop"))
    state = found.get("shop", "t")
    assert isinstance(state, Table)
    assert state.has_lost_labels is is_lost


def test_a_label_is_doubted_until_a_statement_says_it() -> None:
    shown = as_shown(Column("e", "enum('?')", "utf8mb4"), mariadb=False)
    found = catalog(t=Table((Column("id", "int"), shown), (), "latin1"))
    doubts = []
    for sql in (
        "ALTER TABLE t RENAME COLUMN e TO f, ADD x INT",
        "RENAME TABLE t TO u",
        "CREATE TABLE t LIKE u",
        "ALTER TABLE t MODIFY f ENUM('?') CHARACTER SET utf8mb4",
    ):
        apply(found, MYSQL80, sql, Context("shop"))
        state = found.get("shop", "u" if sql.startswith("RENAME") else "t")
        doubts.append(isinstance(state, Table) and state.has_lost_labels)
    assert doubts == [True, True, True, False]
