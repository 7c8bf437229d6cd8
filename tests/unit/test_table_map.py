"""TABLE_MAP events of real servers, and their columns."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.instance.columns import SourceColumn
from sluice.instance.sources.mysql.decode.table_map import TableMap, counts_years
from sluice.instance.values.types import Type
from sluice.protocol.errors import DecodeError
from tests.unit.entries import mutated
from tests.unit.plans import packed, table_map

CHARSETS = {8: "latin1", 28: "gbk", 33: "utf8mb3", 46: "utf8mb4", 63: "binary", 255: "utf8mb4", 2304: "utf8mb4"}
COLUMN_NAME = 4


def field(number: int, data: bytes) -> bytes:
    """Write a field of the optional metadata."""
    return bytes([number]) + packed(data)


def names(*columns: str) -> bytes:
    return field(COLUMN_NAME, b"".join(packed(name.encode()) for name in columns))


def test_without_full_metadata_types_are_known_and_names_are_not() -> None:
    body = table_map((3, b""), (15, b"\x90\1"), (246, b"\x0a\2"), schema="é", table="中")
    table = TableMap.parse(body)
    assert (table.table_id, table.schema, table.table) == (7, "é", "中")
    assert table.types == (Type.LONG, Type.VARCHAR, Type.NEWDECIMAL)
    assert table.metas == (0, 400, 10 << 8 | 2)
    assert not table.has_names
    with pytest.raises(DecodeError, match="binlog_row_metadata=FULL"):
        table.columns(CHARSETS)


@pytest.mark.parametrize(
    ("metadata", "real", "meta"),
    [
        ("fe28", Type.STRING, 40),  # CHAR(10) in utf8mb4
        ("ee20", Type.STRING, 288),  # CHAR(72)
        ("defc", Type.STRING, 764),
        ("cefc", Type.STRING, 1020),  # CHAR(255)
        ("f701", Type.ENUM, 1),
        ("f808", Type.SET, 8),
    ],
)
def test_the_real_type_of_a_string_is_unpacked(metadata: str, real: int, meta: int) -> None:
    table = TableMap.parse(table_map((254, bytes.fromhex(metadata))))
    assert (table.types, table.metas) == ((real,), (meta,))


def test_the_bits_of_nullable_columns_are_passed_over() -> None:
    body = bytearray(table_map(*[(1, b"")] * 9))
    body[-2:] = b"\x02\x01"
    assert TableMap.parse(bytes(body) + names(*"abcdefghi")).names == tuple("abcdefghi")


def test_signs_are_counted_over_numeric_columns_and_years() -> None:
    columns = [(13, b""), (10, b""), (3, b""), (15, b"\4\0"), (8, b""), (246, b"\5\2"), (5, b"\x08")]
    table = TableMap.parse(table_map(*columns, optional=field(1, b"\xb0")))
    assert table.unsigned == (False, False, False, False, True, True, False)


def test_years_have_no_sign_where_the_source_is_too_old() -> None:
    columns = [(13, b""), (3, b""), (13, b""), (8, b"")]
    table = TableMap.parse(table_map(*columns, optional=field(1, b"\x80")), years=False)
    assert (table.unsigned, table.other_unsigned) == ((False, True, False, False), None)
    only = TableMap.parse(table_map((13, b""), optional=names("y")), years=False)
    assert only.columns(CHARSETS) == [SourceColumn("y", "year")]


def test_where_the_version_leaves_years_open_both_readings_are_given_that_have_room() -> None:
    columns = [(13, b""), (3, b""), (8, b"")]
    both = TableMap.parse(table_map(*columns, optional=field(1, b"\xc0")), years=None)
    assert (both.unsigned, both.other_unsigned) == ((False, True, False), (False, True, True))
    same = TableMap.parse(table_map(*columns, optional=field(1, b"\x00")), years=None)
    assert (same.unsigned, same.other_unsigned) == ((False, False, False), None)
    eight = [(13, b""), *[(3, b"")] * 8]
    without = TableMap.parse(table_map(*eight, optional=field(1, b"\x01")), years=None)
    assert (without.unsigned, without.other_unsigned) == ((*[False] * 8, True), None)
    counted = TableMap.parse(table_map(*eight, optional=field(1, b"\x80\x80")), years=None)
    assert (counted.unsigned, counted.other_unsigned) == ((*[False] * 8, True), None)


@pytest.mark.parametrize(
    ("version", "counts"),
    [
        ("8.0.15", False),
        ("8.0.4-rc-log", False),
        ("8.0.20", False),
        ("8.0.21", None),
        ("8.0.26-0ubuntu4", None),
        ("8.0.27", True),
        ("9.7.4-2", True),
        ("10.5.23-MariaDB-log", True),
        ("5.5.5-10.11.18-MariaDB", True),
        ("", True),
    ],
)
def test_a_version_says_whether_years_have_a_sign(version: str, counts: bool | None) -> None:
    assert counts_years(version) is counts


@pytest.mark.parametrize("number", [10, 11], ids=["default", "each"])
def test_labels_of_the_binary_character_set_are_what_information_schema_makes_of_them(number: int) -> None:
    columns = [(254, b"\xf7\1"), (254, b"\xf8\1")]
    collations = b"\x3f" if number == 10 else b"\x3f\x3f"
    labels = field(6, b"\2\1a\2\xc3\xbc") + field(5, b"\1\1\xff")
    table = TableMap.parse(table_map(*columns, optional=names("e", "s") + labels + field(number, collations)))
    assert [column.mysql_type for column in table.columns(CHARSETS)] == ["enum('a','ü')", "set('\ufffd')"]


def test_charsets_are_given_for_each_column_or_as_a_default_with_exceptions() -> None:
    columns = [(3, b""), (15, b"\4\0"), (252, b"\2"), (254, b"\xfe\4")]
    each = TableMap.parse(table_map(*columns, optional=field(3, b"\xfc\xff\x00\x3f\x08")))
    default = TableMap.parse(table_map(*columns, optional=field(2, b"\x21\1\x3f")))
    assert each.collations == (None, 255, 63, 8)
    assert default.collations == (None, 33, 63, 33)


def test_mariadb_counts_geometry_among_the_character_columns_and_mysql_does_not() -> None:
    columns = [(255, b"\4"), (15, b"\4\0")]
    assert TableMap.parse(table_map(*columns, optional=field(3, b"\x08"))).collations == (None, 8)
    mariadb = TableMap.parse(table_map(*columns, optional=field(3, b"\x3f\x08")), mariadb=True)
    assert mariadb.collations == (63, 8)


@pytest.mark.parametrize(
    ("column", "optional", "mysql", "mariadb"),
    [
        ((1, b""), b"", "tinyint", "tinyint(4)"),
        ((1, b""), field(1, b"\x80"), "tinyint unsigned", "tinyint(3) unsigned"),
        ((9, b""), b"", "mediumint", "mediumint(9)"),
        ((8, b""), field(1, b"\x80"), "bigint unsigned", "bigint(20) unsigned"),
        ((13, b""), field(1, b"\x80"), "year", "year(4)"),
        ((4, b"\4"), b"", "float", "float"),
        ((5, b"\x08"), field(1, b"\x80"), "double unsigned", "double unsigned"),
        ((246, b"\x41\x1e"), b"", "decimal(65,30)", "decimal(65,30)"),
        ((16, b"\1\1"), b"", "bit(9)", "bit(9)"),
        ((10, b""), b"", "date", "date"),
        ((18, b"\6"), b"", "datetime(6)", "datetime(6)"),
        ((17, b"\0"), b"", "timestamp", "timestamp"),
        ((15, b"\x90\1"), field(2, b"\xfc\xff\0"), "varchar(100)", "varchar(100)"),
        ((15, b"\x90\1"), field(2, b"\x08"), "varchar(400)", "varchar(400)"),
        ((15, b"\x90\1"), field(2, b"\x1c"), "varchar(200)", "varchar(200)"),
        ((15, b"\x90\1"), field(2, b"\x3f"), "varbinary(400)", "varbinary(400)"),
        ((254, b"\xce\xfc"), field(2, b"\xfc\xff\0"), "char(255)", "char(255)"),
        ((254, b"\xfe\x10"), field(2, b"\x3f"), "binary(16)", "binary(16)"),
        ((252, b"\1"), field(2, b"\x3f"), "tinyblob", "tinyblob"),
        ((252, b"\2"), field(2, b"\x08"), "text", "text"),
        ((252, b"\3"), field(2, b"\x08"), "mediumtext", "mediumtext"),
        ((252, b"\4"), field(2, b"\x3f"), "longblob", "longblob"),
        ((254, b"\xf7\1"), field(6, b"\2\1a\2b'") + field(10, b"\x08"), "enum('a','b''')", "enum('a','b''')"),
        ((254, b"\xf8\1"), field(5, b"\1\2\xd6\xd0") + field(10, b"\x1c"), "set('中')", "set('中')"),
        ((245, b"\4"), b"", "json", "json"),
        ((255, b"\4"), field(7, b"\1"), "point", "point"),
        ((255, b"\4"), field(7, b"\7"), "geomcollection", "geometrycollection"),
        ((242, b"\4"), field(13, b"\3") + field(2, b"\x3f"), "vector(3)", "vector(3)"),
        ((141, b"\x91\1"), field(2, b"\xfc\0\x09"), "varchar(100) /*M!100301 COMPRESSED*/", None),
        ((140, b"\2"), field(2, b"\xfc\0\x09"), "text /*M!100301 COMPRESSED*/", None),
    ],
)
def test_types_are_written_as_information_schema_writes_them(
    column: tuple[int, bytes], optional: bytes, mysql: str, mariadb: str | None
) -> None:
    signs = b"" if optional.startswith(b"\1") else field(1, b"\0")
    body = table_map(column, optional=signs + optional + names("c"))
    assert TableMap.parse(body).columns(CHARSETS)[0].mysql_type == mysql
    if mariadb is not None:
        assert TableMap.parse(body, mariadb=True).columns(CHARSETS)[0].mysql_type == mariadb


@pytest.mark.parametrize("key", [field(8, b"\0\2"), field(9, b"\0\0\2\3")])
def test_full_metadata_describes_the_columns(key: bytes) -> None:
    optional = field(1, b"\x80") + field(3, b"\x08\x3f") + names("id", "ü", "b") + key + field(12, b"\xc0")
    table = TableMap.parse(table_map((3, b""), (15, b"\x0a\0"), (252, b"\2"), optional=optional))
    assert table.has_names
    assert table.columns(CHARSETS) == [
        SourceColumn("id", "int unsigned", None, True),
        SourceColumn("ü", "varchar(10)", "latin1", False),
        SourceColumn("b", "blob", None, True),
    ]


def test_an_unknown_collation_is_an_error_that_names_the_column() -> None:
    table = TableMap.parse(table_map((15, b"\4\0"), optional=field(2, b"\x64") + names("c")))
    with pytest.raises(DecodeError, match=r"shop\.t\.c has the unknown collation 100"):
        table.columns(CHARSETS)


def test_a_table_map_of_the_short_post_header_has_a_table_id_of_four_bytes() -> None:
    body = table_map((3, b""))
    assert TableMap.parse(body[:4] + body[6:], post_header=6).table_id == 7


FULL = table_map(
    (3, b""),
    (254, b"\xf7\1"),
    (15, b"\4\0"),
    optional=field(1, b"\0") + field(2, b"\x08") + names("a", "b", "c") + field(6, b"\1\1x") + field(8, b"\0"),
)


def test_every_cut_of_a_table_map_is_a_table_map_with_less_metadata_or_an_error() -> None:
    whole = TableMap.parse(FULL)
    fewer = []
    for end in range(len(FULL)):
        with contextlib.suppress(DecodeError):
            fewer.append(TableMap.parse(FULL[:end]))
    assert [(it.unsigned, it.names) for it in fewer] == [
        (None, None),
        (whole.unsigned, None),
        (whole.unsigned, None),
        (whole.unsigned, whole.names),
        (whole.unsigned, whole.names),
    ]
    assert {(it.types, it.metas) for it in fewer} == {(whole.types, whole.metas)}


@given(st.data())
def test_a_mutated_table_map_is_read_or_an_error(data: st.DataObject) -> None:
    broken = mutated(data, FULL)
    for mariadb in (False, True):
        with contextlib.suppress(DecodeError):
            table = TableMap.parse(broken, mariadb=mariadb)
            assert len(table.columns(CHARSETS)) == len(table.types)
