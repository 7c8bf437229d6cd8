"""What the types in an entry mean: ``Column.sqlType``, ``Column.mysqlType``, and the Python value of a column's text.

What the text of a value becomes, by the column's mysqlType (by its sqlType when that says more):

=========================================================  =====================================================
mysqlType                                                  Python
=========================================================  =====================================================
tinyint … bigint, bit, year                                int
decimal                                                    Decimal
float, double                                              float
date                                                       date
datetime, timestamp                                        datetime, without zone: as the server wrote it
time                                                       timedelta
enum                                                       str, the label; ``""`` for MySQL's error value, number 0
set                                                        frozenset of labels
enum, set without labels (TiDB does not send them)         int: the number of the label, the mask of the labels
json                                                       dict, list, str, int, float, bool; `JSON_NULL` for a
                                                           document that is ``null``; `JsonExpression`
binary, varbinary, blob, geometry … (sqlType BLOB)         bytes
everything else                                            str
=========================================================  =====================================================

NULL is None. A date that Python cannot hold (``0000-00-00``, ``2020-02-31``) stays text, or becomes None on request.
"""

import re
from enum import Enum, IntEnum
from typing import Final, Literal

from ..errors import DecodeError
from .tags import ValueKind


class SqlType(IntEnum):
    """The numbers of java.sql.Types that occur in ``Column.sqlType``."""

    BIT = -7
    TINYINT = -6
    BIGINT = -5
    LONGVARBINARY = -4
    VARBINARY = -3
    BINARY = -2
    CHAR = 1
    DECIMAL = 3
    INTEGER = 4
    SMALLINT = 5
    REAL = 7
    DOUBLE = 8
    VARCHAR = 12
    DATE = 91
    TIME = 92
    TIMESTAMP = 93
    OTHER = 1111
    BLOB = 2004
    CLOB = 2005


class JsonExpression(str):
    """The change of a JSON column whose document is not known: ``JSON_REPLACE(column, '$.a', 1)``.

    The source sent only a difference (``binlog_row_value_options=PARTIAL_JSON``), and the row before lacks the column
    (``binlog_row_image=MINIMAL``).
    """

    __slots__ = ()


class JsonNull(Enum):
    """The type of `JSON_NULL`."""

    JSON_NULL = None

    def __bool__(self) -> Literal[False]:
        return False

    def __repr__(self) -> str:
        return "JSON_NULL"

    __str__ = __repr__


JSON_NULL: Final = JsonNull.JSON_NULL
"""The JSON document ``null``, which is a value; None is SQL's NULL. It is false, and a singleton."""

_KINDS = {
    word: kind
    for kind, words in {
        ValueKind.INTEGER: "tinyint smallint mediumint int integer bigint bool boolean bit year",
        ValueKind.DECIMAL: "decimal numeric dec fixed",
        ValueKind.FLOAT: "float double real",
        ValueKind.DATE: "date",
        ValueKind.DATETIME: "datetime timestamp",
        ValueKind.TIME: "time",
        ValueKind.JSON: "json",
        ValueKind.ENUM: "enum",
        ValueKind.SET: "set",
        ValueKind.BYTES: "binary varbinary tinyblob blob mediumblob longblob vector geometry point linestring polygon"
        " multipoint multilinestring multipolygon geometrycollection geomcollection",
    }.items()
    for word in words.split()
}
_KINDS_BY_SQL_TYPE = {
    SqlType.BIT: ValueKind.INTEGER,
    SqlType.TINYINT: ValueKind.INTEGER,
    SqlType.SMALLINT: ValueKind.INTEGER,
    SqlType.INTEGER: ValueKind.INTEGER,
    SqlType.BIGINT: ValueKind.INTEGER,
    SqlType.DECIMAL: ValueKind.DECIMAL,
    SqlType.REAL: ValueKind.FLOAT,
    SqlType.DOUBLE: ValueKind.FLOAT,
    SqlType.DATE: ValueKind.DATE,
    SqlType.TIME: ValueKind.TIME,
    SqlType.TIMESTAMP: ValueKind.DATETIME,
}
_BINARY = (SqlType.BLOB, SqlType.BINARY, SqlType.VARBINARY, SqlType.LONGVARBINARY)
_TEXTS = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "uuid", "inet4", "inet6")
_WORD = re.compile(r"\s*([A-Za-z0-9_]*)")
_WIDTH = re.compile(r"\s*binary\b\s*(?:\(\s*(\d+))?", re.IGNORECASE)
_LABEL = re.compile(r"\s*'((?:[^'\\]|''|\\.)*)'\s*(,|\))", re.DOTALL)
_ESCAPE = re.compile(r"''|\\(.)", re.DOTALL)
_ESCAPED = {"0": "\0", "n": "\n", "r": "\r", "t": "\t", "b": "\b", "Z": "\x1a"}


def kind_of(mysql_type: str, sql_type: int = SqlType.OTHER) -> ValueKind:
    """How to convert the texts of a column; the sqlType decides if the mysqlType is not known by name."""
    word = _WORD.match(mysql_type)[1].lower()  # type: ignore[index]  # it matches anything
    kind = _KINDS.get(word)
    if kind in (ValueKind.ENUM, ValueKind.SET) and "(" not in mysql_type:
        return ValueKind.INTEGER
    if kind is ValueKind.SET:  # a NULL of a SET has the sqlType BLOB
        return kind
    if sql_type in _BINARY:
        return ValueKind.BYTES
    if kind is not None:
        return kind
    return ValueKind.TEXT if word in _TEXTS else _KINDS_BY_SQL_TYPE.get(sql_type, ValueKind.TEXT)  # type: ignore[call-overload]


_SQL_TYPES = {
    "tinyint": (SqlType.TINYINT, SqlType.SMALLINT),
    "smallint": (SqlType.SMALLINT, SqlType.INTEGER),
    "mediumint": (SqlType.INTEGER, SqlType.INTEGER),
    "int": (SqlType.INTEGER, SqlType.BIGINT),
    "bigint": (SqlType.BIGINT, SqlType.DECIMAL),
    "float": (SqlType.REAL,),
    "double": (SqlType.DOUBLE,),
    "decimal": (SqlType.DECIMAL,),
    "bit": (SqlType.BIT,),
    "enum": (SqlType.INTEGER,),
    "set": (SqlType.BIT,),
    "year": (SqlType.VARCHAR,),
    "date": (SqlType.DATE,),
    "time": (SqlType.TIME,),
    "datetime": (SqlType.TIMESTAMP,),
    "timestamp": (SqlType.TIMESTAMP,),
    "json": (SqlType.VARCHAR,),
    "varchar": (SqlType.VARCHAR,),
    **dict.fromkeys(("char", "inet4", "inet6", "uuid"), (SqlType.CHAR,)),
    **dict.fromkeys(("tinytext", "text", "mediumtext", "longtext"), (SqlType.CLOB,)),
}
_NULL_TYPES = {"json": SqlType.OTHER, "set": SqlType.BLOB}


def sql_types(mysql_type: str) -> tuple[SqlType, SqlType, SqlType]:
    """Return the sqlType of a value, of an unsigned integer that its signed type cannot hold, and of NULL."""
    word = _WORD.match(mysql_type)[1].lower()  # type: ignore[index]  # it matches anything
    value, *promoted = _SQL_TYPES.get(word, (SqlType.BLOB,))
    return value, promoted[0] if promoted else value, _NULL_TYPES.get(word, value)


def width_of(mysql_type: str) -> int:
    """Return the size of every value of a ``binary(n)``, whose zeros at the end are not sent; else 0."""
    found = _WIDTH.match(mysql_type)
    return int(found[1] or 1) if found else 0


def labels_of(mysql_type: str) -> tuple[str, ...]:
    """Return the labels of ``enum('a','b')`` or ``set(…)``, in order. Raises DecodeError.

    Within a label a quote is doubled, and a backslash escapes as in a string of SQL.
    """
    at = mysql_type.find("(") + 1
    labels = []
    while at:
        match = _LABEL.match(mysql_type, at)
        if match is None:
            break
        labels.append(_ESCAPE.sub(lambda m: "'" if m[1] is None else _ESCAPED.get(m[1], m[1]), match[1]))
        if match[2] == ")":
            return tuple(labels)
        at = match.end()
    raise DecodeError(f"not the type of an ENUM or SET: {mysql_type[:200]!r}")
