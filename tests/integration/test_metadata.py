"""With binlog_row_metadata=FULL an event says of its columns what information_schema says."""

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice.instance.columns import SourceColumn
from sluice.instance.sources.mysql.decode.table_map import TableMap
from sluice.protocol.canal import entry_pb2 as pb
from tests.conftest import Database
from tests.reading import Reading, config, with_full_metadata
from tests.servers import Server

HEADER = struct.Struct("<IBIIIH")
TABLE_MAP = 19

COMMON = """
    id bigint unsigned, prefix varchar(20), a tinyint, b smallint unsigned, m mediumint unsigned, i int,
    f float, fu float unsigned, d double, du double unsigned, de decimal(18,4), dz decimal(65,30) unsigned,
    y year, da date, ti time, t3 time(3), dt datetime, d6 datetime(6), ts timestamp null, t2 timestamp(2) null,
    c char(10), cl char(255), c1 char(72) character set latin1, v varchar(100), vg varchar(300) character set gbk,
    vu varchar(20) character set ucs2, bi binary(20), vb varbinary(300), tt tinytext, tx text character set latin1,
    tm mediumtext, tl longtext, b1 tinyblob, b2 blob, b3 mediumblob, b4 longblob,
    en enum('a','b''c','é'), se set('x','y''z'), eg enum('中') character set gbk,
    bt bit(1), b9 bit(9), b16 bit(16), ge geometry, po point, ls linestring, mp multipolygon, gc geometrycollection,
    after_all smallint, last_text varchar(5) character set koi8r, primary key (id, prefix(3))
"""
EXTENDED = pytest.mark.extended
OLD = ["mysql80", "mariadb1011"]
BINARY = "eb enum('a','ü','b''\\\\') character set binary, sb set('x','é') character set binary,"
OWN = {
    "mysql97": "j json, ve vector(3), hidden int unsigned invisible, made int as (a + 1),",
    "mariadb118": "vc varchar(100) compressed, tc text compressed, j json, hidden int unsigned invisible,",
}


@pytest.fixture(params=["mysql97", "mariadb118"])
def full(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server that writes full metadata."""
    yield from with_full_metadata(request.getfixturevalue(request.param))


@pytest.fixture(params=["mysql97", "mariadb118", *(pytest.param(name, marks=EXTENDED) for name in OLD)])
def any_full(request: pytest.FixtureRequest) -> Iterator[Server]:
    """The same, also of the old versions that have it."""
    yield from with_full_metadata(request.getfixturevalue(request.param))


def last_table_map(server: Server) -> TableMap:
    """Read the binlog file that the server writes."""
    status = "SHOW MASTER STATUS" if server.mariadb else "SHOW BINARY LOG STATUS"
    name, end = server.query(status)[0][:2]
    data = (server.data / name).read_bytes()
    found = None
    offset = 4
    while offset < end:
        _, kind, _, size, _, _ = HEADER.unpack_from(data, offset)
        if kind == TABLE_MAP:
            body = data[offset + HEADER.size : offset + size - 4]
            found = TableMap.parse(body, mariadb=server.mariadb)
        offset += size
    assert found is not None
    return found


def test_columns_of_the_event_are_those_of_information_schema(full: Server, database: Database) -> None:
    schema = database(full)
    full.script(f"CREATE TABLE t ({OWN[full.name]} {BINARY} {COMMON});\n", database=schema)
    full.script("INSERT INTO t (id, prefix) VALUES (1, 'x');\n", database=schema)
    described = [
        SourceColumn(name, kind, None if kind.startswith(("enum", "set")) else charset, key == "PRI")
        for name, kind, charset, key in full.query(
            "SELECT column_name, CONVERT(column_type USING utf8mb4), character_set_name, column_key"
            f" FROM information_schema.columns WHERE table_schema = '{schema}' ORDER BY ordinal_position"
        )
    ]
    charsets = dict(
        full.query("SELECT id, character_set_name FROM information_schema.collation_character_set_applicability")
        if full.mariadb
        else full.query("SELECT id, character_set_name FROM information_schema.collations")
    )
    assert last_table_map(full).columns(charsets) == described


def test_what_mariadbs_metadata_does_not_say(mariadb118: Server, database: Database) -> None:
    schema = database(mariadb118)
    before = mariadb118.query("SELECT @@global.binlog_row_metadata")[0][0]
    mariadb118.query("SET GLOBAL binlog_row_metadata = FULL")
    try:
        mariadb118.script(
            "CREATE TABLE t (b tinyint(1), u uuid, i inet6, f inet4);\nINSERT INTO t VALUES ();\n", database=schema
        )
        columns = last_table_map(mariadb118).columns({})
    finally:
        mariadb118.query(f"SET GLOBAL binlog_row_metadata = {before}")
    expected = [("b", "tinyint(4)"), ("u", "binary(16)"), ("i", "binary(16)"), ("f", "binary(4)")]
    assert columns == [SourceColumn(name, kind) for name, kind in expected]


def test_rows_are_read_by_full_metadata_alone(any_full: Server, database: Database, tmp_path: Path) -> None:
    schema = database(any_full)
    any_full.script(
        f"CREATE TABLE t (y year, a int unsigned, z year, b bigint, {BINARY} c smallint unsigned);\n", database=schema
    )
    with Reading(config(any_full, tmp_path)) as reading:
        reading.wait(lambda: reading.running)
        any_full.script("INSERT INTO t VALUES (2026, 4294967295, 2027, -1, 'ü', 'x,é', 65535);\n", database=schema)
        reading.wait_for(f"INSERT {schema}.t")
        assert reading.rows() == [f"INSERT {schema}.t 2026,4294967295,2027,-1,2,3,65535"]
        changes = [pb.RowChange.FromString(entry.storeValue) for entry in reading.entries()]
    rows = [row for change in changes for row in change.rowDatas]
    types = {column.name: column.mysqlType for row in rows for column in row.afterColumns}
    assert (types["eb"], types["sb"]) == (r"enum('a','ü','b''\\')", "set('x','é')")
