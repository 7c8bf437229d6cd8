"""Reading a table in parts: ranges of its key, each about as long, one SELECT each.

A table is cut along the index of its primary key, or of a unique key without NULLs where it has none; a table without
either is one part. The ends of a range are rows of the key, compared column by column in the order of the index. They
are kept as SQL literals that stand for exactly the bytes in the table, whatever character sets and time zones do.
"""

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pymysql

from ..protocol.canal.resultset import RowEncoder
from ..protocol.canal.tags import ValueKind
from ..protocol.canal.types import kind_of
from ..protocol.errors import SourceError
from ..protocol.identifiers import quote_name, quote_table
from .columns import KeyPart, SnapshotColumn
from .session import MysqlSession

PIECE: Final = 8 << 20
"""Bytes of entries that are handed on at once."""
EXACT: Final = 16
"""Maximum number of ranges that are counted out; more are estimated where that is possible."""

# The texts of TIMESTAMP are in UTC; a slow reader is waited for.
SETTINGS: Final = (
    "SET time_zone = '+00:00', net_write_timeout = 3600, wait_timeout = 86400, sql_select_limit = 18446744073709551615,"
    " sql_mode = 'ALLOW_INVALID_DATES'"
)

Zone = Sequence[tuple[int, int]]
"""A time zone: its offsets to UTC in seconds, and since when each holds."""
UTC: Final[Zone] = ((0, 0),)

Key = tuple[str, ...]
"""A row of the key: an SQL literal for each of its columns."""

LITERAL: Final = re.compile(r"-?[0-9][0-9.]*(?:e[+-]?[0-9]+)?|'[0-9A-Fa-f:. -]*'|(?:_[a-z0-9]+ )?X'[0-9A-F]*'")
"""What such a literal looks like."""


@dataclass(frozen=True, slots=True)
class SnapshotTable:
    """A table as it is at the source."""

    schema: str
    name: str
    columns: tuple[SnapshotColumn, ...]
    index: str | None = None
    """The index that it is cut along, None when it cannot be cut."""
    key: tuple[KeyPart, ...] = ()
    """The columns of that index, in its order."""

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def sql(self) -> str:
        """The name in SQL."""
        return quote_table(self.schema, self.name)

    @property
    def forced(self) -> str:
        """The table in a FROM, with the index to go along."""
        return f"{self.sql} FORCE INDEX ({quote_name(self.index)})" if self.index is not None else self.sql

    @property
    def order(self) -> str:
        """An ORDER BY along the index, empty when there is none."""
        parts = [quote_name(part.column.name) + " DESC" * part.is_descending for part in self.key]
        return f" ORDER BY {', '.join(parts)}" if parts else ""

    @property
    def bounds(self) -> str:
        """Expressions of which `key_of` makes a row of the key."""
        return ", ".join(part.column.bound for part in self.key)

    def key_of(self, texts: Sequence[str]) -> Key:
        """Make a row of the key of what was selected of `bounds`."""
        return tuple(part.column.literal(text) for part, text in zip(self.key, texts, strict=True))


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The rows after one row of the key, up to another one and with it; None is the table's own end."""

    after: Key | None = None
    to: Key | None = None

    def where(self, table: SnapshotTable) -> str:
        """A WHERE for its rows, empty when it is the whole table."""
        conditions = []
        if self.after is not None:
            conditions.append(_compared(table.key, self.after, ">", or_equal=False))
        if self.to is not None:
            conditions.append(_compared(table.key, self.to, "<", or_equal=True))
        return f" WHERE {' AND '.join(conditions)}" if conditions else ""


def _compared(key: Sequence[KeyPart], bound: Key, operator: str, *, or_equal: bool) -> str:
    """Compare rows of the key with one: `(a, b) > (1, 2)`, which no server turns into a range of the index.

    All do so with `a > 1 OR a = 1 AND b > 2`, unless `a >= 1` is added.
    """
    condition = ""
    for part, literal in zip(reversed(key), reversed(bound), strict=True):
        column = part.column.ordered
        beyond = {">": "<", "<": ">"}[operator] if part.is_descending else operator
        if not condition:
            condition = f"{column} {beyond}{'=' if or_equal else ''} {literal}"
        else:
            condition = f"{column} {beyond} {literal} OR {column} = {literal} AND ({condition})"
    return f"({condition})"


# --- what a table is like --------------------------------------------------------------------------------------------

_COLUMNS: Final = (
    "SELECT column_name, column_type, character_set_name, collation_name FROM information_schema.columns"
    " WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position"
)
_INDEXES: Final = (
    "SELECT index_name, column_name, sub_part, collation, nullable FROM information_schema.statistics"
    " WHERE table_schema = %s AND table_name = %s AND non_unique = 0 ORDER BY index_name <> 'PRIMARY', index_name,"
    " seq_in_index"
)


def describe(session: MysqlSession, schema: str, table: str) -> SnapshotTable:
    """Ask for a table's columns and for the index to cut it by.

    Raises:
        SourceError: there is no such table, or the account may not see it.
        pymysql.MySQLError: the connection broke.
    """
    indexes: dict[str, list[tuple[Any, ...]]] = {}
    for index, *part in session.rows(_INDEXES, (schema, table)):
        indexes.setdefault(index, []).append(tuple(part))
    primary = {name for name, *_ in indexes.get("PRIMARY", ())}
    columns = {
        name: SnapshotColumn(name, kind, charset, name in primary, collation)
        for name, kind, charset, collation in session.rows(_COLUMNS, (schema, table))
    }
    if not columns:
        raise SourceError(
            f"{schema}.{table} is unknown to {session.server}, or the account may not see it"
            f" (GRANT SELECT ON {quote_name(schema)}.* TO it)"
        )
    found = SnapshotTable(schema, table, tuple(columns.values()))
    for index, indexed in indexes.items():
        # MariaDB's versioned tables have a column in their key that the table does not list.
        parts = [part for part in indexed if part[0] in columns]
        if parts and all(sub_part is None and nullable != "YES" for _, sub_part, _, nullable in parts):
            key = tuple(KeyPart(columns[name], collation == "D") for name, _, collation, _ in parts)
            # No server finds a range of these two.
            if kind_of(key[0].column.mysql_type) not in (ValueKind.ENUM, ValueKind.SET):
                return replace(found, index=index, key=key)
    return found


_STORAGE: Final = (
    "SELECT t.data_length, e.transactions FROM information_schema.tables t"
    " JOIN information_schema.engines e ON e.engine = t.engine WHERE t.table_schema = %s AND t.table_name = %s"
)


def storage(session: MysqlSession, table: SnapshotTable) -> tuple[int, bool]:
    """Return about how many bytes a table has, and whether its engine has transactions. Raises pymysql.MySQLError."""
    found = session.rows(_STORAGE, (table.schema, table.name))
    size, transactions = found[0] if found else (None, None)
    return int(size or 0), transactions == "YES"


# --- cutting ---------------------------------------------------------------------------------------------------------


def cut(session: MysqlSession, table: SnapshotTable, rows: int, after: Key | None = None) -> Iterator[KeyRange]:
    """Cut a table, or what is after a row of its key, into ranges of about that many rows, one by one.

    Up to `EXACT` ranges are counted out along the index. Of a table that seems larger, and has a single integer for a
    key, ranges are found by the server's estimates, which reads but a few pages. The last range is open: rows that
    come while the table is cut are in it. Raises pymysql.MySQLError.
    """
    if not table.key:
        yield KeyRange()
        return
    bounds = _counted
    if _is_integer(table) and estimate(session, table, KeyRange(after)) > EXACT * rows:
        bounds = _estimated
    for bound in bounds(session, table, rows, after):
        yield KeyRange(after, bound)
        after = bound
    yield KeyRange(after)


def _is_integer(table: SnapshotTable) -> bool:
    part, *more = table.key
    return not more and not part.is_descending and kind_of(part.column.mysql_type) is ValueKind.INTEGER


def _counted(session: MysqlSession, table: SnapshotTable, rows: int, after: Key | None) -> Iterator[Key]:
    """The key after every ``rows`` rows: a walk along the index."""
    while True:
        where = KeyRange(after).where(table)
        sql = f"SELECT {table.bounds} FROM {table.forced}{where}{table.order} LIMIT 1 OFFSET {rows - 1}"
        found = session.rows(sql)
        if not found:
            return
        after = table.key_of(found[0])
        yield after


def _estimated(session: MysqlSession, table: SnapshotTable, rows: int, after: Key | None) -> Iterator[Key]:
    """Halve what has too many rows by the server's estimate; join what has few."""
    name = quote_name(table.key[0].column.name)
    where = KeyRange(after).where(table)
    first, last = session.rows(f"SELECT MIN({name}) + 0, MAX({name}) + 0 FROM {table.forced}{where}")[0]
    if first is None:
        return
    halves = [(int(first) - 1, int(last))]
    gathered = 0
    while halves:
        low, high = halves.pop()
        found = estimate(session, table, KeyRange((str(low),), (str(high),)))
        if found > rows // 2 and high - low > 1:
            middle = (low + high) // 2
            halves += [(middle, high), (low, middle)]
        elif gathered and gathered + found > rows:
            yield (str(low),)
            gathered = found
        else:
            gathered += found


def estimate(session: MysqlSession, table: SnapshotTable, part: KeyRange) -> int:
    """About how many rows a range has: the optimizer's guess, from a look into the index at both ends.

    With FORCE INDEX, MySQL 8 does not look.
    """
    use = f" USE INDEX ({quote_name(table.index)})" if table.index is not None else ""
    sql = f"SELECT 1 FROM {table.sql}{use}{part.where(table)}"
    with session.cursor(pymysql.cursors.DictCursor) as cursor:
        cursor.execute(f"EXPLAIN FORMAT=TRADITIONAL {sql}")
        return sum(int(row["rows"] or 0) for row in cursor.fetchall())


def last_key(session: MysqlSession, table: SnapshotTable) -> Key | None:
    """Return the last row of a table's key; None if it has no rows. Raises pymysql.MySQLError."""
    parts = [quote_name(part.column.name) + " DESC" * (not part.is_descending) for part in table.key]
    found = session.rows(f"SELECT {table.bounds} FROM {table.forced} ORDER BY {', '.join(parts)} LIMIT 1")
    return table.key_of(found[0]) if found else None


# --- reading ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Piece:
    """Some rows of a range, in the order of the key."""

    data: bytes
    """``Messages`` with an INSERT of the rows."""
    rows: int
    last: Key | None
    """Key of the last row; None where the table has none."""


def select(
    session: MysqlSession, table: SnapshotTable, part: KeyRange, *, size: int = PIECE, zone: Zone = UTC
) -> Iterator[Piece]:
    """Read the rows of a range by one SELECT, in pieces of about ``size`` bytes.

    The session has `SETTINGS`, and leaves values as they are sent.

    The texts are those that Canal has, those of TIMESTAMP in a zone. Raises pymysql.MySQLError, OSError.
    """
    names = [(column.name, column.mysql_type, column.is_key) for column in table.columns]
    encoder = RowEncoder(table.schema, table.name, names, len(table.key), zone=zone)
    selected = ", ".join(filter(None, [*(column.text for column in table.columns), table.bounds]))
    for _ in feed(session, f"SELECT {selected} FROM {table.forced}{part.where(table)}{table.order}", encoder, size):
        rows = encoder.rows
        entries, last = encoder.take(time.time())  # noqa: TID251  shown in each row
        key = table.key_of([(text or b"").decode() for text in last]) if table.key else None
        yield Piece(entries, rows, key)


def feed(session: MysqlSession, sql: str, encoder: RowEncoder, size: int) -> Iterator[None]:
    """Run a SELECT and encode its rows; stop whenever about ``size`` bytes of them can be taken, and at the end.

    Raises pymysql.MySQLError, OSError.
    """
    for data in session.packets(sql):
        encoder.feed(data)
        if encoder.rows and (encoder.size >= size or encoder.is_finished):
            yield
        if encoder.is_finished:
            break
    if encoder.error:
        pymysql.err.raise_mysql_exception(encoder.error)
