"""The columns of tables, for sources that do not write them into the binlog.

information_schema has the current schema. If the binlog is read with some delay, that is not always the schema with
which its rows were written: see `TableSchema.altered` and `Schemas.forget`.
"""

import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from ....protocol.errors import DecodeError, SourceError, UnknownTableError
from ....protocol.position import Position, file_number
from ...columns import SourceColumn
from .connection import Connection, number, optional_number, optional_text, text
from .decode.table_map import TableMap, Type

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
    "SELECT UNIX_TIMESTAMP(create_time), table_schema, table_name FROM information_schema.tables"
    " WHERE table_schema = %s AND table_name = %s"
)
# Not columns.column_key: without a primary key it says PRI for a unique key.
_PRIMARY_KEY: Final = (
    "SELECT column_name FROM information_schema.statistics"
    " WHERE table_schema = %s AND table_name = %s AND index_name = 'PRIMARY'"
)
_COLUMNS: Final = (
    "SELECT column_name, column_type, character_set_name FROM information_schema.columns"
    " WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position"
)

_TABLES: Final = (
    "SELECT table_schema, table_name FROM information_schema.tables"
    " WHERE table_type IN ('BASE TABLE', 'SYSTEM VERSIONED')"
    " AND table_schema NOT IN ('information_schema', 'performance_schema', 'mysql', 'sys')"
    " ORDER BY table_schema, table_name"
)


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
        times = connection.query(_TIMES, (schema, table), row=(optional_number, text, text))
        key = connection.query(_PRIMARY_KEY, (schema, table), row=(text,))
        rows = connection.query(_COLUMNS, (schema, table), row=(text, text, optional_text))
        if not rows or not times:
            raise UnknownTableError(
                f"{schema}.{table} is unknown to {connection.name}: it was dropped or renamed since,"
                f" or the account may not see it (GRANT SELECT ON `{schema}`.* TO it)"
            )
        keys = {name for (name,) in key}
        altered, *name = times[0]
        file, offset, _ = connection.end_of_binlog()
        return TableSchema(
            [SourceColumn(column, kind, charset, column in keys) for column, kind, charset in rows],
            altered,
            (file_number(file), offset),
            name=(name[0], name[1]),
        )

    def tables(self) -> list[tuple[str, str]]:
        """Return schema and name of the current tables, except those of the server itself. Raises SourceError."""
        self._connection = self._connection or self._connect()
        return [(schema, table) for schema, table in self._connection.query(_TABLES, row=(text, text))]

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
    """The schemas of all tables met so far. A DDL makes it forget."""

    def __init__(self, source: ColumnSource, *, ignore_case: bool = False, mariadb: bool = False) -> None:
        """Ask `source` for what is unknown; `ignore_case`: lower_case_table_names is not 0."""
        self._source = source
        self.ignore_case = ignore_case
        self._mariadb = mariadb
        self._tables: dict[tuple[str, str], TableSchema] = {}

    def table(
        self, table_map: TableMap, charsets: Mapping[int, str], timestamp: int, at: Position | None
    ) -> TableSchema:
        """Return the schema for the rows of a table map that was logged at the Unix time `timestamp`, at `at`.

        Raises DecodeError if the table does not exist or has other columns, SourceError if the source cannot be asked.
        """
        if table_map.has_names:
            table_map = self._with_signs(table_map, timestamp)
            return TableSchema(self._refine(table_map, table_map.columns(charsets), timestamp))
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

    def forget(self, tables: Iterable[tuple[str, str]], at: Position | None) -> None:
        """A DDL at `at` changed the tables: ask again when they come next."""
        for schema, table in tables:
            self._forget(self._key(schema, table), at)

    def forget_schema(self, schema: str, at: Position | None) -> None:
        """The same for all tables of a schema."""
        schema = self._key(schema, "")[0]
        for key in [key for key in self._tables if key[0] == schema]:
            self._forget(key, at)

    def forget_all(self, at: Position | None) -> None:
        """The same for all tables: the DDL was not understood."""
        for key in list(self._tables):
            self._forget(key, at)

    def _forget(self, key: tuple[str, str], at: Position | None) -> None:
        known = self._tables.pop(key, None)
        if known is None or known.first_use is None or known.seen is None or at is None:
            return
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
        if not self._mariadb or not any(column.mysql_type in ("binary(16)", "binary(4)") for column in columns):
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
