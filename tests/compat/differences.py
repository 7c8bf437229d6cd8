"""The differences from Canal that are allowed.

Each is what a row of docs/deviations.md looks like where it occurs.
"""

import re
from collections.abc import Collection
from typing import NamedTuple

from tests.compat.comparing import Difference
from tests.compat.relations import (
    Relation,
    is_decoded_as_utf8,
    is_json_cut_at_zero_bytes,
    is_the_same_float,
    is_the_same_json,
    is_without_last_zeros,
    is_without_width,
)

DEFAULT = "default"
STRICT = "strict"
BOTH = (DEFAULT, STRICT)
MYSQL = "mysql.*"
MARIADB = "mariadb.*"
ABSENT = None
"""Stands for an entry or a field that one side has not."""
ANY = "(?s).*"


class Allowed(NamedTuple):
    """A difference; the texts are patterns for all of what they are compared with."""

    deviation: str
    """The subject as in docs/deviations.md."""
    field: str
    topic: str = ".*"
    context: str = ".*"
    canal: str | None = ANY
    sluice: str | None = ANY
    modes: tuple[str, ...] = (DEFAULT,)
    source: str = ".*"
    relation: Relation | None = None
    """How what Canal has follows from what Sluice has."""
    certain: bool = True
    """Happens at every run; otherwise it depends on which is faster."""

    def applies(self, source: str, mode: str) -> bool:
        """Whether it is one of a source under a mode."""
        return mode in self.modes and re.fullmatch(self.source, source) is not None

    def is_about(self, topics: Collection[str]) -> bool:
        """Whether one of the topics can show it."""
        return any(re.fullmatch(self.topic, topic) for topic in topics)

    def explains(self, found: Difference) -> bool:
        """Whether it is what was found."""
        pairs = (
            (self.field, found.field),
            (self.topic, found.topic),
            (self.context, found.context),
            (self.canal, found.canal),
            (self.sluice, found.sluice),
        )
        return all(_fits(*pair) for pair in pairs) and self._relates(found)

    def _relates(self, found: Difference) -> bool:
        try:
            return self.relation is None or self.relation(found)
        except ValueError:
            return False


def _fits(pattern: str | None, value: object) -> bool:
    return value is None if pattern is None else value is not None and re.fullmatch(pattern, str(value)) is not None


_XA_ENTRIES = "TRANSACTIONBEGIN|TRANSACTIONEND|INSERT|QUERY"
VALUE = r"row\.(before|after)\.value"

ALLOWED = (
    Allowed("`DECIMAL`", VALUE, "fractions", "decimal.*", relation=is_without_last_zeros),
    Allowed("charset of text", VALUE, "charsets", "(var)?char.*|text", relation=is_decoded_as_utf8),
    Allowed("begin of a transaction on MariaDB", "entry", canal=ABSENT, sluice="TRANSACTIONBEGIN", source=MARIADB),
    Allowed(
        "`DATE` inside JSON",
        VALUE,
        "json_made",
        "json",
        r"\[.* 00:00:00.000000.*",
        source=MYSQL,
        relation=is_the_same_json,
    ),
    Allowed(
        "`TIME` of exactly 100 hours, inside JSON or in the layout before MySQL 5.6.4",
        VALUE,
        "json_made",
        "json",
        '.*"t": "00:00:00.000000".*',
        '.*"t": "100:.*',
        source="mysql97.*",  # 5.7 and 8.0.15 store 76 hours
        relation=is_the_same_json,
    ),
    Allowed("JSON text", VALUE, "json", "json", source=MYSQL, relation=is_the_same_json),
    Allowed("JSON text", VALUE, "json_made", "json", source=MYSQL, relation=is_the_same_json),
    Allowed(
        "binary values inside JSON",
        VALUE,
        "json_made",
        "json",
        '{"b": .*',
        '{"b": .*',
        (STRICT,),
        MYSQL,
        is_json_cut_at_zero_bytes,
    ),
    Allowed(
        "names in the header of an XA statement", r"header\.(schema|table)Name", "xa", "XA.*", "", ABSENT, (STRICT,)
    ),
    Allowed("rows of an XA transaction", "entry", "xa", _XA_ENTRIES, rf"{_XA_ENTRIES}|INSERT INTO .*", ABSENT),
    Allowed("rows of an XA transaction", "entry", "xa", "XA.*", "XA (COMMIT|ROLLBACK) .*", ABSENT),
    Allowed("rows of an XA transaction", "entry", "xa", _XA_ENTRIES, ABSENT, rf"{_XA_ENTRIES}|INSERT INTO .*"),
    Allowed(
        "entries of an XA transaction",
        "header.props.sluice.xa",
        "xa",
        canal=ABSENT,
        sluice=r"one-phase X'[0-9a-f]+',X'[0-9a-f]*',\d+",
        source=MYSQL,
    ),
    Allowed(
        "rows whose images lack columns",
        "props.sluice.absent",
        canal=ABSENT,
        sluice=r"\[.*\]",
    ),
    Allowed(
        "rows read with a possibly newer schema",
        "header.props.sluice.schema",
        canal=ABSENT,
        sluice="from-the-future",
        certain=False,
    ),
    Allowed("`FLOAT` and `DOUBLE`", VALUE, "fractions", "float", modes=BOTH, relation=is_the_same_float),
    Allowed(
        "key of a table whose primary key was added later",
        r"row\.(before|after)\.isKey",
        "ddl",
        ".*",
        "False",
        "True",
        BOTH,
    ),
    Allowed(
        "DDL inside `/*! … */`, `ALTER TABLE … REMOVE PARTITIONING`",
        "entry",
        "ddl",
        "CREATE|ALTER",
        ABSENT,
        r"/\*!40101 CREATE TABLE .*|ALTER TABLE pt REMOVE PARTITIONING",
        BOTH,
    ),
    Allowed(
        "end of a transaction that exactly fills Canal's buffer of 1024 entries",
        "entry",
        "cut",
        "TRANSACTIONEND",
        ABSENT,
        "TRANSACTIONEND",
        BOTH,
    ),
    Allowed(
        "statements",
        r"(header\.)?eventType|header\.(schema|table)Name",
        "what m.* adds",
        "QUERY",
        "QUERY",
        "CREATE|ALTER",
        BOTH,
        "mariadb.*|mysql97.*",
    ),
    Allowed(
        "statements",
        r"header\.(schema|table)Name",
        "what m.* adds",
        "QUERY",
        ABSENT,
        "compat|replaced|invisible",
        BOTH,
        "mariadb.*|mysql97.*",
    ),
    Allowed(
        "MariaDB's compressed query events",
        "entry",
        "compressed queries",
        "CREATE",
        ABSENT,
        "CREATE TABLE .*",
        source=MARIADB,
    ),
    Allowed(
        "GTID of an auto-increment value that is logged for a statement",
        r"header\.(gtid|props\.curtGtid.*)",
        "variables",
        "QUERY",
        ABSENT,
        r"([0-9a-f-]{36}:(1-)?)?\d+",
        modes=BOTH,
        source=".* by GTID",
    ),
    Allowed(
        "display width of integers",
        r"row\.(before|after)\.mysqlType",
        "full metadata",
        r".*int\(\d+\).*",
        modes=BOTH,
        source="mysql80.*",
        relation=is_without_width,
    ),
    Allowed("`ALTER VIEW`", "entry", "other ddl", "QUERY", "ALTER ALGORITHM=.* VIEW .*", ABSENT, BOTH),
    Allowed(
        "a change that a session logged as a statement", "entry", "statements", "INSERT", ABSENT, "REPLACE .*", BOTH
    ),
    Allowed(
        "a change that a session logged as a statement",
        "entry",
        "statements",
        "TRANSACTIONBEGIN",
        ABSENT,
        "TRANSACTIONBEGIN",
        BOTH,
        source=MYSQL,
    ),
    Allowed(
        "a change that a session logged as a statement",
        "entry",
        "statements",
        "TRANSACTIONEND",
        ABSENT,
        "TRANSACTIONEND",
        BOTH,
    ),
    Allowed(
        "name of a table beyond the Basic Multilingual Plane",
        "header.tableName",
        "names",
        "CREATE|TRUNCATE",
        "d😀日",
        r"d\?日",
        BOTH,
        source=MYSQL,
    ),
    Allowed(
        "table of a rows-query event", "header.tableName", "rows-query events", "QUERY", "rq", "", BOTH, source=MYSQL
    ),
    Allowed(
        "file name after a rotation on MariaDB",
        "header.logfileName",
        "rotation|end",
        canal="mysql-bin.000001",
        sluice="mysql-bin.000002",
        modes=BOTH,
        source=MARIADB,
    ),
)
