"""The columns of tables, for sources that do not write them into the binlog.

information_schema has the current schema. If the binlog is read with some delay, that is not always the schema with
which its rows were written: see `TableSchema.altered` and `Schemas.forget`.
"""

import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from ....protocol.errors import DecodeError, SourceError, UnknownTableError
from ....protocol.position import Position, file_number
from ...columns import SourceColumn
from .connection import Connection, number, optional_number, optional_text, text
from .decode.table_map import TableMap, Type
from .history.lexer import Dialect
from .history.statements import Context, apply
from .history.tables import UNKNOWN, Catalog, Column, Database, State, Table, Touched

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class TableSchema:
    """The columns of a table at one time."""

    columns: list[SourceColumn]
    altered: int | None = None
    """When the table was created or last altered, Unix time by the source's clock; None if it does not say."""
    seen: tuple[int, int] | None = None
    """End of the binlog (file number, offset) after the source was asked; None: the columns are of the rows' time."""
    first_use: Position | None = field(default=None, compare=False)
    """The place of the first rows that were read with it; None: none were."""
    name: tuple[str, str] | None = None
    """Schema and name as the source writes them, if it was asked."""
    table: Table | None = None
    """The same columns for statements to change; None if it is not a plain table."""

    def is_younger(self, timestamp: int, at: Position | None) -> bool:
        """Whether the table may have been altered after the Unix time `timestamp`, so that older rows may not fit.

        Rows after the place where the source was asked fit: a DDL in between is met before them. For rows before that
        place, the second of the DDL itself is in doubt.
        """
        if self.altered is None or (
            at is not None and self.seen is not None and self.seen <= (at.file_number, at.begin)
        ):
            return False
        return self.altered >= timestamp


class ColumnSource(Protocol):
    """Where the columns of a table at a time come from: the live source, or a recorded history."""

    def fetch(self, schema: str, table: str, timestamp: int) -> TableSchema:
        """Return the columns at the Unix time `timestamp`, or as near to it as possible.

        Raises DecodeError if the table does not exist, SourceError if the source cannot be asked.
        """


_TIMES: Final = (
    "SELECT UNIX_TIMESTAMP(create_time), table_schema, table_name, table_type, table_collation"
    " FROM information_schema.tables WHERE table_schema = %s AND table_name = %s"
)
# Not columns.column_key: without a primary key it says PRI for a unique key.
_PRIMARY_KEY: Final = (
    "SELECT column_name FROM information_schema.statistics"
    " WHERE table_schema = %s AND table_name = %s AND index_name = 'PRIMARY' ORDER BY seq_in_index"
)
_COLUMNS: Final = (
    "SELECT column_name, column_type, character_set_name, extra FROM information_schema.columns"
    " WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position"
)
_GENERATED: Final = ("VIRTUAL GENERATED", "STORED GENERATED", "PERSISTENT")

_TABLES: Final = (
    "SELECT table_schema, table_name FROM information_schema.tables"
    " WHERE table_type IN ('BASE TABLE', 'SYSTEM VERSIONED')"
    " AND table_schema NOT IN ('information_schema', 'performance_schema', 'mysql', 'sys')"
    " ORDER BY table_schema, table_name"
)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Which databases and tables a source had when it was asked."""

    databases: Mapping[str, Database]
    seen: tuple[int, int]
    """End of the binlog (file number, offset) after the source was asked."""
    is_complete: bool
    """The account sees all there are."""


_DATABASES: Final = "SELECT schema_name, default_character_set_name FROM information_schema.schemata"
_NAMES: Final = "SELECT table_schema, table_name FROM information_schema.tables"
_SEES_ALL: Final = (
    "SELECT COUNT(*) FROM information_schema.user_privileges WHERE privilege_type = 'SELECT'"
    " AND grantee = CONCAT('\\'', REPLACE(CURRENT_USER(), '@', '\\'@\\''), '\\'')"
)


def _snapshot(connection: Connection) -> Snapshot:
    """Ask which databases and tables there are, views among them. Raises SourceError."""
    is_complete = connection.query(_SEES_ALL, row=(number,)) != [(0,)]
    databases = {name: Database(charset) for name, charset in connection.query(_DATABASES, row=(text, text))}
    for schema, table in connection.query(_NAMES, row=(text, text)):
        databases.setdefault(schema, Database(None)).tables[table] = UNKNOWN
    for database in databases.values():
        database.is_complete = is_complete
    file, offset, _ = connection.end_of_binlog()
    return Snapshot(databases, (file_number(file), offset), is_complete)


class InformationSchema:
    """The columns that tables have now at the source."""

    def __init__(self, connect: Callable[[], Connection]) -> None:
        """Ask over a connection of its own, made with `connect` when it is first needed."""
        self._connect = connect
        self._connection: Connection | None = None

    def fetch(self, schema: str, table: str, timestamp: int = 0) -> TableSchema:
        """Return the current columns. Raises UnknownTableError and SourceError."""
        del timestamp
        if self._connection is not None:
            try:
                return self._fetch(self._connection, schema, table)
            except SourceError:  # most likely idle for too long and closed by the source
                self.close()
        self._connection = self._connect()
        return self._fetch(self._connection, schema, table)

    def _fetch(self, connection: Connection, schema: str, table: str) -> TableSchema:
        # The time comes first: an ALTER between the questions then makes the columns look older, never younger.
        times = connection.query(_TIMES, (schema, table), row=(optional_number, text, text, text, optional_text))
        keys = connection.query(_PRIMARY_KEY, (schema, table), row=(text,))
        rows = connection.query(_COLUMNS, (schema, table), row=(text, text, optional_text, text))
        if not rows or not times:
            raise UnknownTableError(
                f"{schema}.{table} is unknown to {connection.name}: it was dropped or renamed since,"
                f" or the account may not see it (GRANT SELECT ON `{schema}`.* TO it)"
            )
        altered, its_schema, its_name, kind, collation = times[0]
        file, offset, _ = connection.end_of_binlog()
        columns = tuple(
            Column(column, column_type, charset, any(it in extra for it in _GENERATED), "INVISIBLE" in extra)
            for column, column_type, charset, extra in rows
        )
        found = Table(columns, tuple(name for (name,) in keys), collation and collation.partition("_")[0])
        return TableSchema(
            found.source_columns(),
            altered,
            (file_number(file), offset),
            name=(its_schema, its_name),
            table=found if kind == "BASE TABLE" else None,
        )

    def tables(self) -> list[tuple[str, str]]:
        """Return schema and name of the current tables, except those of the server itself. Raises SourceError."""
        self._connection = self._connection or self._connect()
        return [(schema, table) for schema, table in self._connection.query(_TABLES, row=(text, text))]

    def snapshot(self) -> Snapshot:
        """Return which databases and tables there are, views among them. Raises SourceError.

        The connection is closed: the next question may come hours later, and a source has few for its destinations.
        """
        self.close()  # it may have been idle for too long
        connection = self._connection = self._connect()
        try:
            return _snapshot(connection)
        finally:
            self.close()

    def shutdown(self) -> None:
        """Interrupt a question from another thread: it fails with SourceError."""
        connection = self._connection
        if connection is not None:
            connection.shutdown()

    def close(self) -> None:
        """Close the connection; the next question opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class Schemas:
    """The tables of a source at the place to which its binlog was read.

    They are what its statements have made of them since they were last known for certain; what is not known is asked of
    the source, which may be younger than the rows.
    """

    def __init__(
        self,
        source: ColumnSource,
        dialect: Dialect,
        *,
        ignore_case: bool = False,
        take: Callable[[], Snapshot] | None = None,
    ) -> None:
        """Ask `source` for what is unknown; `ignore_case`: lower_case_table_names is not 0.

        `take` asks which tables there are, now and whenever that is in doubt. Without it a statement makes no table
        for certain if that depends on whether there was one, or on its database. Raises what `take` raises.
        """
        self._source = source
        self._dialect = dialect
        self.ignore_case = ignore_case
        self._tables: dict[tuple[str, str], TableSchema] = {}
        self._catalog = Catalog(ignore_case=ignore_case, ask=self._certain)
        self._take = take
        self._taken = take() if take is not None else None  # until the stream has come to where it was taken
        self._outdated: set[str] = set()  # databases that statements have touched since then
        self._here = (0, 0)

    def table(
        self, table_map: TableMap, charsets: Mapping[int, str], timestamp: int, at: Position | None
    ) -> TableSchema:
        """Return the schema for the rows of a table map that was logged at the Unix time `timestamp`, at `at`.

        Raises DecodeError if the table does not exist or has other columns, SourceError if the source cannot be asked.
        """
        if table_map.has_names:
            table_map = self._with_signs(table_map, timestamp)
            return TableSchema(self._refine(table_map, table_map.columns(charsets), timestamp))
        self.settle(at)
        state = self._catalog.get(table_map.schema, table_map.table)
        if isinstance(state, Table):
            if len(state.columns) == len(table_map.types):
                return TableSchema(state.source_columns())
            self.drop(table_map.schema, table_map.table)
        key = self._key(table_map.schema, table_map.table)
        known = self._tables.get(key)
        if known is not None:
            known.columns += _hidden_columns(table_map, known.columns)
        if known is None or len(known.columns) != len(table_map.types):
            known = self._source.fetch(table_map.schema, table_map.table, timestamp)
            self._tables[key] = known
            known.columns += _hidden_columns(table_map, known.columns)
        known.first_use = known.first_use or at
        if known.is_younger(timestamp, at):
            logger.warning(
                "schema-from-the-future: the rows of %s.%s at %s may be older than its last DDL;"
                " set binlog_row_metadata=FULL on the source to rule this out",
                table_map.schema,
                table_map.table,
                at,
            )
        return known

    def ask_ahead(self, schema: str, table: str, timestamp: int) -> None:
        """Ask for a table right after its DDL: the sooner, the less likely another DDL has come in between.

        Raises SourceError if the source cannot be asked.
        """
        with contextlib.suppress(DecodeError):  # dropped again already
            self._tables[self._key(schema, table)] = self._source.fetch(schema, table, timestamp)

    def drop(self, schema: str, table: str) -> None:
        """Ask again for a table that turned out not to fit."""
        self._tables.pop(self._key(schema, table), None)
        self._catalog.put(schema, table, UNKNOWN)
        self._catalog.touched.clear()

    def apply(self, sql: str, context: Context, at: Position | None) -> list[Touched]:
        """Let a statement at `at` change the tables; return those that may be others now."""
        self.settle(at)
        apply(self._catalog, self._dialect, sql, context)
        touched, self._catalog.touched = self._catalog.touched, []
        for it in touched:
            self._forget(it, at)
        return touched

    def is_unknown(self, touched: Touched) -> bool:
        """Whether it is a single table, of which nothing is known."""
        if touched.schema is None or touched.table is None:
            return False
        return self._catalog.get(touched.schema, touched.table) is UNKNOWN

    def settle(self, at: Position | None) -> None:
        """Take it for certain which tables the source had when the stream has come to the place where it was asked.

        Raises SourceError if it has to be asked again, and cannot be.
        """
        if at is not None:
            self._here = at.file_number, at.begin
        taken = self._taken
        if taken is None or taken.seen > self._here:
            return
        for name, database in taken.databases.items():
            if self._key(name, "")[0] not in self._outdated:
                self._catalog.learn(name, database)
        if self._outdated:
            self._ask_for_all()
        else:
            self._taken = None
            self._catalog.is_complete = taken.is_complete

    def _ask_for_all(self) -> None:
        if self._take is not None:
            self._taken = self._take()
            self._outdated.clear()

    def _certain(self, schema: str, table: str) -> State:
        """Return a table that was asked for, if it is as it was then: no statement has touched it since."""
        known = self._tables.get((schema, table))
        if known is None or known.table is None or (known.seen is not None and known.seen > self._here):
            return UNKNOWN
        return known.table

    def _forget(self, touched: Touched, at: Position | None) -> None:
        """Drop what was asked of the source before a statement at `at`, and say which rows were read with what."""
        if touched.schema is None:
            keys = list(self._tables)
            self._ask_for_all()
        else:
            schema, table = self._key(touched.schema, touched.table or "")
            self._outdated.add(schema)
            keys = [(schema, table)] if table else [key for key in self._tables if key[0] == schema]
        for key in keys:
            known = self._tables.pop(key, None)
            if known is None or known.first_use is None or known.seen is None or at is None:
                continue
            if known.seen > (at.file_number, at.begin):
                # The source was asked after this DDL had run: rows before it were read with the schema after it.
                logger.warning(
                    "schema-from-the-future: %s.%s from %s to %s was read with the schema after its DDL",
                    *key,
                    known.first_use,
                    at,
                )

    def _key(self, schema: str, table: str) -> tuple[str, str]:
        return (schema.lower(), table.lower()) if self.ignore_case else (schema, table)

    def _with_signs(self, table_map: TableMap, timestamp: int) -> TableMap:
        """Ask which columns are unsigned if the event can be read in two ways."""
        if table_map.other_unsigned is None or table_map.unsigned is None:
            return table_map
        try:
            columns = self._source.fetch(*_name(table_map), timestamp).columns
        except DecodeError:  # dropped since: most versions in doubt write a sign for years
            return table_map
        live = {column.name: column.is_unsigned for column in columns}

        def agrees(reading: tuple[bool, ...]) -> int:
            return sum(live.get(name) == sign for name, sign in zip(table_map.names or (), reading, strict=True))

        best = max(table_map.unsigned, table_map.other_unsigned, key=agrees)
        return replace(table_map, unsigned=best, other_unsigned=None)

    def _refine(self, table_map: TableMap, columns: list[SourceColumn], timestamp: int) -> list[SourceColumn]:
        """MariaDB's full metadata says binary(16) for a UUID or INET6, binary(4) for an INET4: ask what they are."""
        if not self._dialect.mariadb or not any(column.mysql_type in ("binary(16)", "binary(4)") for column in columns):
            return columns
        try:
            live = {column.name: column for column in self._source.fetch(*_name(table_map), timestamp).columns}
        except DecodeError:  # dropped since: binary is what there is to know
            return columns
        return [
            replace(column, mysql_type=live[column.name].mysql_type)
            if column.name in live and live[column.name].data_type in ("uuid", "inet6", "inet4")
            else column
            for column in columns
        ]


_ROW_TIMES: Final = (SourceColumn("row_start", "timestamp(6)"), SourceColumn("row_end", "timestamp(6)"))


def _hidden_columns(table_map: TableMap, columns: list[SourceColumn]) -> tuple[SourceColumn, ...]:
    """Return the two columns that MariaDB's WITH SYSTEM VERSIONING adds and information_schema does not show."""
    extra = table_map.types[len(columns) :]
    return _ROW_TIMES if extra == (Type.TIMESTAMP2, Type.TIMESTAMP2) else ()


def _name(table_map: TableMap) -> tuple[str, str]:
    return table_map.schema, table_map.table


def charsets(connection: Connection) -> dict[int, str]:
    """Return the character set of each collation id.

    MariaDB's UCA 14.0.0 collations have an id for each character set, all above 2,000, which its table of collations
    leaves out.
    """
    row = (number, optional_text)
    question = "SELECT id, character_set_name FROM information_schema.collations WHERE id IS NOT NULL"
    found = connection.query(question, row=row)
    if connection.facts.mariadb and connection.facts.version >= (10, 10, 1):
        question = "SELECT id, character_set_name FROM information_schema.collation_character_set_applicability"
        found += connection.query(question, row=row)
    return {collation: name for collation, name in found if name is not None}
