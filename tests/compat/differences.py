"""The differences from Canal that are allowed.

Each is what a row of docs/deviations.md looks like where it occurs.
"""

import re
from collections.abc import Collection
from typing import NamedTuple

from tests.compat.comparing import Difference

DEFAULT = "default"
STRICT = "strict"
BOTH = (DEFAULT, STRICT)
MYSQL = "mysql.*"
MARIADB = "mariadb.*"
ABSENT = None
"""Stands for an entry or a field that one side has not."""


class Allowed(NamedTuple):
    """A difference; the texts are patterns for all of what they are compared with."""

    deviation: str
    """The subject as in docs/deviations.md."""
    field: str
    topic: str = ".*"
    context: str = ".*"
    canal: str | None = "(?s).*"
    sluice: str | None = "(?s).*"
    modes: tuple[str, ...] = (DEFAULT,)
    source: str = ".*"
    certain: bool = True
    """Happens at every run; otherwise it depends on who is faster."""

    def applies(self, source: str, mode: str) -> bool:
        """Whether it is one of a source under a mode."""
        return mode in self.modes and re.fullmatch(self.source, source) is not None

    def is_about(self, topics: Collection[str]) -> bool:
        """Whether one of the topics can show it."""
        return any(re.fullmatch(self.topic, topic) for topic in topics)

    def explains(self, found: Difference) -> bool:
        """Whether it is what was found."""
        return all(
            re.fullmatch(pattern, text) is not None
            for pattern, text in ((self.field, found.field), (self.topic, found.topic), (self.context, found.context))
        ) and all(_fits(*it) for it in ((self.canal, found.canal), (self.sluice, found.sluice)))


def _fits(pattern: str | None, value: object) -> bool:
    return value is None if pattern is None else value is not None and re.fullmatch(pattern, str(value)) is not None


VALUE = r"row\.(before|after)\.value"

ALLOWED = (
    Allowed("`DECIMAL`", VALUE, "fractions", "decimal.*", r"-?\d+\.\d*", r"-?\d+\.\d*0"),
    Allowed("charset of text", VALUE, "charsets", "(var)?char.*|text"),
    Allowed("begin of a transaction on MariaDB", "entry", canal=ABSENT, sluice="TRANSACTIONBEGIN", source=MARIADB),
    Allowed("`DATE` inside JSON", VALUE, "json_made", "json", r"\[.* 00:00:00.000000.*", source=MYSQL),
    Allowed(
        "`TIME` of exactly 100 hours, inside JSON or in the layout before MySQL 5.6.4",
        VALUE,
        "json_made",
        "json",
        '.*"t": "00:00:00.000000".*',
        '.*"t": "100:.*',
        source="mysql97.*",  # 5.7 and 8.0.15 store 76 hours
    ),
    Allowed("JSON text", VALUE, "json", "json", source=MYSQL),
    Allowed("JSON text", VALUE, "json_made", "json", source=MYSQL),
    Allowed("binary values inside JSON", VALUE, "json_made", "json", '{"b": .*', '{"b": .*', (STRICT,), MYSQL),
    Allowed("names in the header of an XA statement", r"header\.(schema|table)Name", "xa", "XA.*", "", ABSENT, BOTH),
    Allowed(
        "rows read with a schema that may be younger than they are",
        "header.props.sluice.schema",
        canal=ABSENT,
        sluice="from-the-future",
        certain=False,
    ),
    Allowed("`FLOAT` and `DOUBLE`", VALUE, "fractions", "float.*|double.*", r".*\dE-?\d+", r".*\dE-?\d+", BOTH),
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
        "end of a transaction that fills Canal's buffer of 1024 entries to the last place",
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
        modes=BOTH,
        source=".* by GTID",
    ),
    Allowed(
        "display width of integers",
        r"row\.(before|after)\.mysqlType",
        "full metadata",
        r".*int\(\d+\).*",
        r".*int\(\d+\).*",
        ".*int( unsigned)?",
        BOTH,
        "mysql80.*",
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
