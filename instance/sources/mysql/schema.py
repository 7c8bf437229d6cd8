"""The columns of tables, for sources that do not write them into the binlog.

information_schema has the current schema. If the binlog is read with some delay, that is not always the schema with
which its rows were written: see `TableSchema.altered` and `Schemas.forget`.
"""

import contextlib
import logging
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import itemgetter
from typing import Final, Protocol

from ....protocol.errors import DecodeError, SourceError, UnknownTableError
from ....protocol.identifiers import quote_table
from ....protocol.lexer import Dialect
from ....protocol.position import Position, file_number
from ....store.cursor import Cursor
from ...columns import SourceColumn
from ...values.types import Type, type_name
from .connection import Connection, LongAnswerError, number, optional_number, optional_text, text
from .decode.table_map import TableMap
from .history.statements import Context, apply
from .history.tables import (
    OPEN,
    ROW_TIMES,
    UNKNOWN,
    Catalog,
    CatalogChange,
    Column,
    Database,
    Table,
    Unknown,
    as_shown,
    encode,
)
from .history.versions import History

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class TableSchema:
    """The columns of a table at one time."""

    columns: list[SourceColumn]
    altered: int | None = None
    """When the table was created or last altered, Unix time by the source's clock; None if it does not say.

    MariaDB, and MySQL before 8.0, say it of InnoDB alone, MySQL 5.6 of none with partitions. MyISAM, Aria and MEMORY
    have the time at which rows were last copied, CSV, BLACKHOLE and ARCHIVE none (tried with each).
    """
    seen: tuple[int, int] | None = None
    """End of the binlog (file number, offset) after the source was asked; None: the columns are of the rows' time."""
    first_use: Position | None = field(default=None, compare=False)
    """The place of the first rows that were read with it; None: none were."""
    name: tuple[str, str] | None = None
    """Schema and name as the source writes them, if it was asked."""
    table: Table | None = None
    """The same columns for statements to change; None if it is not a plain table."""
    contradiction: str = ""
    """Why these are not the columns that statements have made; "" if nothing else was known."""
    is_uncertain: bool = False
    """A column may have another type, and nobody knows."""
    unnamed: tuple[int, ...] = ()
    """For each column that the server may keep for an index and does not show: how many that it shows come before."""

    def is_younger(self, timestamp: int, at: Position | None) -> bool:
        """Whether the table may have been altered after the Unix time `timestamp`, so that older rows may not fit.

        Rows after the place where the source was asked fit: a DDL in between is met before them. For rows before that
        place, the second of the DDL itself is in doubt, and all of them are where the source does not say when it was.
        """
        if self.seen is None or (at is not None and self.seen <= (at.file_number, at.begin)):
            return False
        return self.altered is None or self.altered >= timestamp


class MissingColumnsError(SourceError):
    """Rows come of a table whose columns neither the binlog nor the history of tables names; nobody can be asked."""

    def __init__(self, table_map: TableMap, at: Position | None, contradiction: str) -> None:
        known = contradiction or "the history of tables does not have it"
        super().__init__(
            f"the columns of {table_map.schema}.{table_map.table} at {at} are not known: the binlog does not name them"
            f" (binlog_row_metadata was not FULL), and {known}. Begin at a file before its CREATE TABLE, or bring the"
            " history of a destination that read the server (sluice schema export and import), or give its CREATE TABLE"
            " (sluice.instance.files.schema), or filter the table out"
        )


class ColumnSource(Protocol):
    """Where the columns of a table at a time come from: the live source, or a recorded history."""

    def fetch(self, schema: str, table: str, timestamp: int) -> TableSchema:
        """Return the columns at the Unix time `timestamp`, or as near to it as possible.

        Raises DecodeError if the table does not exist, SourceError if the source cannot be asked.
        """


_TIMES: Final = (
    "SELECT UNIX_TIMESTAMP(create_time), engine, table_schema, table_name, table_type, table_collation"
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
_HASHES: Final = (
    "SELECT COUNT(DISTINCT index_name) FROM information_schema.statistics"
    " WHERE table_schema = %s AND table_name = %s AND index_type = 'HASH' AND non_unique = 0"
)
"""MariaDB keeps one in a column where a UNIQUE cannot be a key, or is to be USING HASH."""
_EXPRESSIONS: Final = (
    "SELECT COUNT(*) FROM information_schema.statistics"
    " WHERE table_schema = %s AND table_name = %s AND expression IS NOT NULL"
)
"""MySQL keeps the values of each in a column; 8.0.15 has it in its TABLE_MAP events, though not in rows."""
_FIRST_EXPRESSIONS: Final = (8, 0, 13)
_UNNAMED: Final = {
    True: re.compile(r"DB_ROW_HASH_[0-9]+"),
    False: re.compile(r"[0-9a-f]{32}|!hidden!.*"),
}
"""What MariaDB, or MySQL, calls such columns in full metadata."""
_COLLATIONS: Final = (
    "SELECT column_name, collation_name FROM information_schema.columns WHERE table_schema = %s AND table_name = %s"
)
_GENERATED: Final = ("VIRTUAL GENERATED", "STORED GENERATED", "PERSISTENT")

_TABLES: Final = (
    "SELECT table_schema, table_name FROM information_schema.tables{join}"
    " WHERE table_type IN ('BASE TABLE', 'SYSTEM VERSIONED')"
    " AND table_schema NOT IN ('information_schema', 'performance_schema', 'mysql', 'sys'){condition}"
    " ORDER BY table_schema, table_name"
)
_ALL_TABLES: Final = _TABLES.format(join="", condition="")
_TABLES_WITH: Final = _TABLES.format(
    join=" JOIN information_schema.columns USING (table_schema, table_name)", condition=" AND column_name = %s"
)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Which databases and tables a source had when it was asked."""

    databases: Mapping[str, Database]
    seen: tuple[int, int]
    """End of the binlog (file number, offset) after the source was asked."""
    is_complete: bool
    """The account sees all there are."""


_OPEN_COLUMNS: Final = (
    "SELECT table_schema, table_name, column_name, column_type FROM information_schema.columns"
    " WHERE column_type IN ('binary(16)', 'uuid', 'inet6', 'binary(4)', 'inet4')"
    " ORDER BY table_schema, table_name, ordinal_position"
)

_OF_THE_SERVER: Final = ("information_schema", "performance_schema", "mysql", "sys")
_DATABASES: Final = "SELECT schema_name, default_character_set_name FROM information_schema.schemata"
_NAMES: Final = (
    "SELECT table_schema, table_name, table_type, table_collation FROM information_schema.tables ORDER BY table_schema"
)
_ALL_KEYS: Final = (
    "SELECT table_name, column_name, index_name FROM information_schema.statistics"
    " WHERE table_schema = %s AND non_unique = 0 AND column_name IS NOT NULL ORDER BY table_name, seq_in_index"
)
_ALL_COLUMNS: Final = (
    "SELECT table_name, column_name, column_type, character_set_name, extra FROM information_schema.columns"
    " WHERE table_schema = %s ORDER BY table_name, ordinal_position"
)
_SEES_ALL: Final = (
    "SELECT COUNT(*) FROM information_schema.user_privileges WHERE privilege_type = 'SELECT'"
    " AND grantee = CONCAT('\\'', REPLACE(CURRENT_USER(), '@', '\\'@\\''), '\\'')"
)


def _snapshot(connection: Connection, *, only_open: bool, with_columns: bool) -> Snapshot:
    """Ask which databases and tables there are, views among them. Raises SourceError."""
    is_complete = connection.query(_SEES_ALL, row=(number,)) != [(0,)]
    if only_open:
        databases = _open_columns(connection) if with_columns else {}
        is_complete = is_complete and with_columns
    else:
        databases = _databases(connection, with_columns=with_columns)
    for database in databases.values():
        database.is_complete = is_complete
    file, offset, _ = connection.end_of_binlog()
    return Snapshot(databases, (file_number(file), offset), is_complete)


def _open_columns(connection: Connection) -> dict[str, Database]:
    """Ask for what `Catalog.only_open` has."""
    databases: dict[str, Database] = {}
    found = connection.query(_OPEN_COLUMNS, row=(text, text, text, text))
    for (schema, table), its in groupby(found, itemgetter(0, 1)):
        columns = tuple(Column(name, type_) for _, _, name, type_ in its)
        databases.setdefault(schema, Database(None)).tables[table] = Table(columns, (), None)
    return databases


def _databases(connection: Connection, *, with_columns: bool) -> dict[str, Database]:
    databases = {name: Database(charset) for name, charset in connection.query(_DATABASES, row=(text, text))}
    names = connection.query(_NAMES, row=(text, text, text, optional_text))
    for schema, its in groupby(names, itemgetter(0)):
        tables = databases.setdefault(schema, Database(None)).tables
        kinds = {table: (kind, collation) for _, table, kind, collation in its}
        tables.update(dict.fromkeys(kinds, UNKNOWN))
        if with_columns and schema not in _OF_THE_SERVER:
            # As texts: most of them are never asked for.
            tables.update((table, encode(found) or "") for table, found in _tables(connection, schema, kinds))
    return databases


def _tables(
    connection: Connection, schema: str, kinds: Mapping[str, tuple[str, str | None]]
) -> Iterator[tuple[str, Table]]:
    """Give the plain tables of a database."""
    keys = connection.query(_ALL_KEYS, (schema,), row=(text, text, text))
    columns = connection.query(_ALL_COLUMNS, (schema,), row=(text, text, text, optional_text, text))
    key: dict[str, tuple[str, ...]] = {}
    unique = set()
    for table, name, index in keys:
        if index == "PRIMARY":
            key[table] = (*key.get(table, ()), name)
        else:
            unique.add(table)
    for table, its in groupby(columns, itemgetter(0)):
        kind, collation = kinds.get(table, ("", None))
        if kind == "BASE TABLE":
            found = _table(connection, [it[1:] for it in its], key.get(table, ()), collation)
            yield table, replace(found, unique=table in unique)


def _table(
    connection: Connection,
    rows: Iterable[tuple[str, str, str | None, str]],
    key: tuple[str, ...],
    collation: str | None,
) -> Table:
    its = (
        Column(name, type_, charset, any(it in extra for it in _GENERATED), "INVISIBLE" in extra)
        for name, type_, charset, extra in rows
    )
    columns = tuple(as_shown(it, mariadb=connection.facts.mariadb) for it in its)
    return Table(columns, key, collation and collation.partition("_")[0])


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

    def collations(self, schema: str, table: str) -> dict[str, str | None]:
        """Return the names of the collations that the columns of a table have now. Raises SourceError."""
        if self._connection is None:
            self._connection = self._connect()
        return dict(self._connection.query(_COLLATIONS, (schema, table), row=(text, optional_text)))

    def _fetch(self, connection: Connection, schema: str, table: str) -> TableSchema:
        # The time comes first: an ALTER between the questions then makes the columns look older, never younger.
        row = optional_number, optional_text, text, text, text, optional_text
        times = connection.query(_TIMES, (schema, table), row=row)
        keys = connection.query(_PRIMARY_KEY, (schema, table), row=(text,))
        rows = connection.query(_COLUMNS, (schema, table), row=(text, text, optional_text, text))
        if not rows or not times:
            raise UnknownTableError(
                f"{schema}.{table} is unknown to {connection.name}: it was dropped or renamed since,"
                f" or the account may not see it (GRANT SELECT ON `{schema}`.* TO it)"
            )
        altered, engine, its_schema, its_name, kind, collation = times[0]
        file, offset, _ = connection.end_of_binlog()
        found = _table(connection, rows, tuple(name for (name,) in keys), collation)
        unnamed = self._unnamed(connection, schema, table, [it.name for it in found.columns])
        return TableSchema(
            found.source_columns(),
            altered if engine == "InnoDB" or connection.facts.renames_silently else None,
            (file_number(file), offset),
            name=(its_schema, its_name),
            table=replace(found, unique=bool(unnamed)) if kind == "BASE TABLE" else None,
            is_uncertain=found.has_lost_labels,
            unnamed=unnamed,
        )

    def _unnamed(self, connection: Connection, schema: str, table: str, shown: Sequence[str]) -> tuple[int, ...]:
        facts = connection.facts
        if facts.mariadb:
            ((hashes,),) = connection.query(_HASHES, (schema, table), row=(number,))
            return (len(shown),) * int(hashes)
        if facts.version < _FIRST_EXPRESSIONS or connection.query(_EXPRESSIONS, (schema, table), row=(number,)) == [
            (0,)
        ]:
            return ()
        sql = f"SHOW EXTENDED COLUMNS FROM {quote_table(schema, table)}"
        names = [name for name, *_ in connection.query(sql, row=(text, text, text, text, optional_text, text))]
        its = [it for it in names if it in shown or _UNNAMED[False].fullmatch(it)]
        return tuple(sum(name in shown for name in its[:place]) for place, it in enumerate(its) if it not in shown)

    def tables(self, column: str = "") -> list[tuple[str, str]]:
        """Return schema and name of the current tables, of those with a column if one is given; none of the server's.

        Raises SourceError.
        """
        self._connection = self._connection or self._connect()
        sql, parameters = (_TABLES_WITH, [column]) if column else (_ALL_TABLES, [])
        return [(schema, table) for schema, table in self._connection.query(sql, parameters, row=(text, text))]

    def snapshot(self, *, only_open: bool = False) -> Snapshot:
        """Return which databases and tables there are, views among them; or what `Catalog.only_open` has of them.

        Raises SourceError.

        The connection is closed: the next question may come hours later, and a source has few for its destinations.
        """
        try:
            return self._snapshot(only_open=only_open, with_columns=True)
        except LongAnswerError as error:
            logger.warning("tables are asked for when their rows come, for there are too many of them: %s", error)
            return self._snapshot(only_open=only_open, with_columns=False)

    def _snapshot(self, *, only_open: bool, with_columns: bool) -> Snapshot:
        self.close()  # it may have been idle for too long
        connection = self._connection = self._connect()
        try:
            return _snapshot(connection, only_open=only_open, with_columns=with_columns)
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
        source: ColumnSource | None,
        dialect: Dialect,
        *,
        ignore_case: bool = False,
        only_open: bool = False,
        take: Callable[[], Snapshot] | None = None,
        given: Callable[[], Mapping[str, Database]] | None = None,
        history: History | None = None,
        start: Cursor | None = None,
        executed: Callable[[], str] = str,
    ) -> None:
        """Ask `source` for what is unknown, if there is one; `ignore_case`: lower_case_table_names is not 0.

        `only_open`: see `Catalog.only_open`, and `ServerFacts.only_open`.
        `history` says what the tables are at `start`, and notes what becomes of them. Where it does not know, `take`
        asks which tables there are, now and whenever that is in doubt. `given` says what tables were that no statement
        has changed.
        Without it a statement makes no table for certain if that depends on whether there was one, or on its database.
        `executed` returns the GTID set at this
        place. Raises what `take` raises, and HistoryError.
        """
        self._source = source
        self._dialect = dialect
        self.ignore_case = ignore_case
        self._asked: dict[tuple[str, str], TableSchema] = {}
        self._contradicted: dict[tuple[str, str], str] = {}  # tables that events had otherwise than statements said
        self._catalog = Catalog(ignore_case=ignore_case, only_open=only_open)
        self._open = {it: OPEN[it] for it in OPEN if it != "binary(4)" or dialect.version >= _INET4}
        self._uncertain: set[tuple[str, str]] = set()  # tables of which a warning has said so
        self._history = history
        self.executed = executed
        self._start = start.position if start is not None else None
        self._take = take
        self._taken: Snapshot | None = None  # until the stream has come to where it was taken
        self._made: set[str] = set()  # databases that statements have made or dropped since then
        self._here = (0, 0)
        is_known = history is not None and history.begin_at(self._catalog, start)
        for name, database in given().items() if given is not None else ():
            known = self._catalog.database(name)
            if known is not None:
                its = replace(known, tables=database.tables) if isinstance(known, Database) else database
                self._catalog.learn(name, its)
        if not is_known:
            self._ask_for_all()
            if history is not None and source is None and self._start is not None:
                history.begin(self._catalog, self._start.transaction, executed())

    def table(
        self, table_map: TableMap, charsets: Mapping[int, str], timestamp: int, at: Position | None
    ) -> TableSchema:
        """Return the schema for the rows of a table map that was logged at the Unix time `timestamp`, at `at`.

        Raises DecodeError if the table does not exist or has other columns, SourceError if the source cannot be asked,
        and MissingColumnsError if there is none.
        """
        if table_map.has_names:
            table_map = self._with_signs(table_map, timestamp)
            columns = self._without_names(table_map, table_map.columns(charsets), timestamp)
            return self._with_open_types(table_map, columns, timestamp, at)
        self._settle(at)
        state = self._catalog.get(table_map.schema, table_map.table)
        if isinstance(state, Table) and not self._catalog.only_open:
            self._warn_of_labels(table_map, at, is_uncertain=state.has_lost_labels)
            found = TableSchema(state.source_columns(), is_uncertain=state.has_lost_labels)
            self._add_unnamed(table_map, found, timestamp, at, unique=state.unique)
            return found
        key = self._key(table_map.schema, table_map.table)
        if self._source is None:
            raise MissingColumnsError(table_map, at, self._contradicted.get(key, ""))
        known = self._asked.get(key)
        if known is not None:
            known.columns = _with_hidden(table_map, known)
        if known is None or len(known.columns) != len(table_map.types):
            known = self._source.fetch(table_map.schema, table_map.table, timestamp)
            self._asked[key] = known
            known.columns = _with_hidden(table_map, known)
        self._warn_of_labels(table_map, at, is_uncertain=known.is_uncertain)
        known.first_use = known.first_use or at
        known.contradiction = self._contradicted.get(key, "")
        return known

    def _add_unnamed(
        self, table_map: TableMap, known: TableSchema, timestamp: int, at: Position | None, *, unique: bool
    ) -> None:
        """Add columns of the server's own to those that statements have made.

        The source says which there are if the table is the same there. If not, a MariaDB that has made
        it `unique` may have added all that are left.
        """
        if len(known.columns) >= len(table_map.types):
            return
        now = None
        if self._source is not None:
            with contextlib.suppress(DecodeError):
                now = self._source.fetch(table_map.schema, table_map.table, timestamp)
        if now is not None:
            names = [it.name for it in now.columns]
            shown = [it.name for it in known.columns if it not in ROW_TIMES]
            if names == shown:
                known.unnamed = now.unnamed
            elif (
                len(names) == len(table_map.types)
                and names[: len(shown)] == shown
                and not now.is_younger(timestamp, at)
            ):
                return  # a DDL left no trace in the binlog
        if unique and self._dialect.mariadb:
            known.unnamed = (len(known.columns),) * (len(table_map.types) - len(known.columns))
        known.columns = _with_unnamed(table_map, known.columns, known.unnamed)

    def _without_names(self, table_map: TableMap, columns: list[SourceColumn], timestamp: int) -> list[SourceColumn]:
        """Take the names from columns that the server keeps for indexes."""
        pattern = _UNNAMED[self._dialect.mariadb]
        if not any(pattern.fullmatch(it.name) for it in columns):
            return columns
        shown = {it.name for it in self._known_columns(table_map, timestamp)}
        return [replace(it, name="") if pattern.fullmatch(it.name) and it.name not in shown else it for it in columns]

    def _warn_of_labels(self, table_map: TableMap, at: Position | None, *, is_uncertain: bool) -> None:
        key = self._key(table_map.schema, table_map.table)
        if is_uncertain and key not in self._uncertain:
            self._uncertain.add(key)
            logger.warning(
                "schema-from-the-future: not all labels of an ENUM or SET of %s.%s at %s are known: the source does not"
                " show characters beyond the BMP, nor labels that CONVERT TO CHARACTER SET has spoiled. The rows are"
                " flagged. Set binlog_row_metadata=FULL on the source, or define the column once more by ALTER TABLE"
                " ... MODIFY",
                table_map.schema,
                table_map.table,
                at,
            )

    def _with_open_types(
        self, table_map: TableMap, columns: list[SourceColumn], timestamp: int, at: Position | None
    ) -> TableSchema:
        """Say which columns are UUID, INET4 or INET6: MariaDB's full metadata says binary(16) or binary(4)."""
        if not self._dialect.mariadb:
            return TableSchema(columns)
        columns = self._with_digits(table_map, columns, timestamp)
        if not any(column.mysql_type in self._open for column in columns):
            return TableSchema(columns)
        self._settle(at)
        schema, table = table_map.schema, table_map.table
        state = self._catalog.get(schema, table)
        if isinstance(state, Table) and (found := self._closed(columns, state.source_columns())) is not None:
            return TableSchema(found)
        if self._source is not None and not isinstance(state, Unknown):  # a DDL left no trace in the binlog
            self._catalog.put(schema, table, UNKNOWN)
            self._catalog.changes.pop()
        known = self._asked_for_open(table_map, columns, timestamp)
        if known is None:
            return self._uncertain_schema(table_map, columns, at)
        known.first_use = known.first_use or at
        found = self._closed(columns, known.columns)
        assert found is not None
        return replace(known, columns=found, is_uncertain=False)

    def _asked_for_open(self, table_map: TableMap, columns: list[SourceColumn], timestamp: int) -> TableSchema | None:
        """Ask the source for a table; None if it does not have it as the event does."""
        key = self._key(table_map.schema, table_map.table)
        known = self._asked.get(key)
        if (known is None or self._closed(columns, known.columns) is None) and self._source is not None:
            self._asked.pop(key, None)
            with contextlib.suppress(DecodeError):
                known = self._asked[key] = self._source.fetch(table_map.schema, table_map.table, timestamp)
        return known if known is not None and self._closed(columns, known.columns) is not None else None

    def _uncertain_schema(self, table_map: TableMap, columns: list[SourceColumn], at: Position | None) -> TableSchema:
        key = self._key(table_map.schema, table_map.table)
        if key not in self._uncertain:
            self._uncertain.add(key)
            advice = "; sluice.instance.files.schema may define it" if self._source is None else ""
            logger.warning(
                "schema-from-the-future: it is unknown whether %s of %s.%s at %s are BINARY, UUID, INET4 or INET6:"
                " neither its statements nor the source show it. Their bytes are delivered, and the rows are flagged%s",
                ", ".join(it.name for it in columns if it.mysql_type in self._open),
                table_map.schema,
                table_map.table,
                at,
                advice,
            )
        return TableSchema(columns, is_uncertain=True)

    def _closed(self, columns: list[SourceColumn], known: Iterable[SourceColumn]) -> list[SourceColumn] | None:
        """Return the columns with those of their types that were open; None if what is known does not fit them."""
        types = {column.name.lower(): column.mysql_type for column in known}
        found = []
        for column in columns:
            if column.mysql_type in self._open:
                type_ = types.get(column.name.lower(), "")
                if type_ not in self._open[column.mysql_type]:
                    return None
                found.append(replace(column, mysql_type=type_))
            else:
                found.append(column)
        return found

    def _with_digits(self, table_map: TableMap, columns: list[SourceColumn], timestamp: int) -> list[SourceColumn]:
        """Say which columns in MariaDB's own old layout have a fraction of a second: such values cannot be read."""
        if not _OLD_TEMPORALS.intersection(table_map.types):
            return columns
        known = self._known_columns(table_map, timestamp)
        types = {(it.name, it.data_type): it.mysql_type for it in known if "(" in it.mysql_type}
        return [
            replace(column, mysql_type=types.get((column.name, column.data_type), column.mysql_type))
            if kind in _OLD_TEMPORALS
            else column
            for kind, column in zip(table_map.types, columns, strict=True)
        ]

    def ask_ahead(self, schema: str, table: str, timestamp: int) -> None:
        """Ask for a table right after its DDL: the sooner, the less likely another DDL has come in between.

        Raises SourceError if the source cannot be asked.
        """
        if self._source is None:
            return
        with contextlib.suppress(DecodeError):  # dropped again already
            self._asked[self._key(schema, table)] = self._source.fetch(schema, table, timestamp)

    def drop(self, table_map: TableMap, known: TableSchema, reason: str) -> None:
        """Ask again for a table that turned out not to fit a table map."""
        schema, table = table_map.schema, table_map.table
        key = self._key(schema, table)
        self._asked.pop(key, None)
        if table_map.has_names:
            return
        if isinstance(self._catalog.get(schema, table), Table) and not self._catalog.only_open:
            theirs = ", ".join(map(type_name, table_map.types))
            ours = ", ".join(f"{it.name} {it.mysql_type}" for it in known.columns)
            self._contradicted[key] = f"{reason}; the event has the columns ({theirs}), the history of tables ({ours})"
        self._catalog.put(schema, table, UNKNOWN)
        self._catalog.changes.pop()

    def apply(
        self, sql: str, context: Context, at: Position | None, after: Position | None = None
    ) -> list[CatalogChange]:
        """Let a statement at `at` change the tables; return what may be other now. `after` is the place after it.

        Raises HistoryError when that cannot be noted.
        """
        settled = self.settle(at)
        if self._start is not None and after is not None and after.same_history(self._start) and after <= self._start:
            return settled  # the dump begins before the place
        known = self._history is not None and after is not None and self._history.replay(after)
        if not known:
            before = len(self._catalog.changes)
            apply(self._catalog, self._dialect, sql, context)
            if self._history is not None and after is not None:
                self._history.add(after, self.executed(), sql, self._catalog.changes[before:])
        changes = self.changes()
        for it in changes:
            self._forget(it, at)
        return [*settled, *changes]

    def changes_of(self, sql: str, context: Context) -> list[CatalogChange]:
        """Return what a statement may change where nothing is known, with names as they are compared."""
        catalog = Catalog(ignore_case=self.ignore_case)
        apply(catalog, self._dialect, sql, context)
        return [
            it._replace(schema=schema, table=table)
            for it in catalog.changes
            for schema, table in [self._key(it.schema, it.table)]
        ]

    def changes(self) -> list[CatalogChange]:
        """Return what has changed since the last call."""
        found, self._catalog.changes = self._catalog.changes, []
        return found

    def is_unknown(self, change: CatalogChange) -> bool:
        """Whether it is of a single table, of which nothing is known."""
        return change.kind == "table" and self._catalog.get(change.schema, change.table) is UNKNOWN

    def settle(self, at: Position | None) -> list[CatalogChange]:
        """Take for certain what the source said when the stream has come to the place where it was asked.

        Returns what may be other than what was known. Raises SourceError if it has to be asked again, and cannot be.
        """
        self._settle(at)
        return self.changes()

    def _settle(self, at: Position | None) -> None:
        if at is None:
            return
        self._here = at.file_number, at.begin
        if self._history is not None:
            self._history.replay(at.transaction if at.n else at)
        taken = self._taken
        if taken is not None and taken.seen <= self._here:
            for name, database in taken.databases.items():
                if self._key(name, "")[0] not in self._made:
                    self._catalog.learn(name, database)
            self._taken = None
            self._catalog.is_complete = taken.is_complete
            if self._history is not None:
                self._history.begin(self._catalog, at.transaction, self.executed())
        for key, known in list(self._asked.items()):
            table = known.table
            if self._catalog.only_open:
                table = Table(tuple(Column(it.name, it.mysql_type) for it in known.columns), (), None)
            if table is not None and (known.seen is None or known.seen <= self._here):
                del self._asked[key]
                self._contradicted.pop(key, None)
                if self._catalog.get(*key) is UNKNOWN:
                    self._catalog.put(*key, table)
                    change = self._catalog.changes.pop()
                    if self._history is not None:
                        self._history.add(at.transaction, self.executed(), "", [change])

    def _ask_for_all(self) -> None:
        if self._take is not None:
            logger.info("asking the source for all tables")
            self._taken = self._take()
            self._made.clear()

    def _forget(self, change: CatalogChange, at: Position | None) -> None:
        """Drop what was asked of the source before a statement at `at`, and say which rows were read with what."""
        schema, table = self._key(change.schema, change.table)
        taken = self._taken
        if change.kind == "charset":
            if taken is not None and change.schema in taken.databases:
                taken.databases[change.schema].charset = self._catalog.charset(change.schema)
            return
        keys = [(schema, table)]
        if change.kind == "all":
            keys = [*self._asked, *self._contradicted]
            self._ask_for_all()
        elif change.kind == "database":
            keys = [key for key in (*self._asked, *self._contradicted) if key[0] == schema]
            self._made.add(schema)
            made = self._catalog.database(schema)
            if taken is not None and isinstance(made, Database) and not made.is_complete:
                self._ask_for_all()
        for key in keys:
            self._contradicted.pop(key, None)
            known = self._asked.pop(key, None)
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
        columns = self._known_columns(table_map, timestamp)
        if not columns:  # most versions in doubt write a sign for years
            return table_map
        live = {column.name: column.is_unsigned for column in columns}

        def agrees(reading: tuple[bool, ...]) -> int:
            return sum(live.get(name) == sign for name, sign in zip(table_map.names or (), reading, strict=True))

        best = max(table_map.unsigned, table_map.other_unsigned, key=agrees)
        return replace(table_map, unsigned=best, other_unsigned=None)

    def _known_columns(self, table_map: TableMap, timestamp: int) -> list[SourceColumn]:
        """Return columns as statements have made them, else as the source has them; none if it has none."""
        state = self._catalog.get(table_map.schema, table_map.table)
        if isinstance(state, Table) and not self._catalog.only_open:
            return state.source_columns()
        if self._source is None:
            return []
        with contextlib.suppress(DecodeError):
            return self._source.fetch(table_map.schema, table_map.table, timestamp).columns
        return []


_OLD_TEMPORALS: Final = frozenset({Type.TIMESTAMP, Type.TIME, Type.DATETIME})
_INET4: Final = (10, 10)
"""The MariaDB that has INET4; INET6 is as old as full metadata, UUID is of 10.7."""


def _with_hidden(table_map: TableMap, known: TableSchema) -> list[SourceColumn]:
    """Return the columns of a table as the source has it, with those that information_schema does not show.

    MariaDB's WITH SYSTEM VERSIONING adds two, and servers add some for indexes.
    """
    columns = known.columns
    extra = table_map.types[len(columns) : len(columns) + len(ROW_TIMES)]
    if table_map.mariadb and extra == (Type.TIMESTAMP2, Type.TIMESTAMP2):
        columns = [*columns, *ROW_TIMES]
    return _with_unnamed(table_map, columns, known.unnamed)


def _with_unnamed(table_map: TableMap, columns: list[SourceColumn], unnamed: Sequence[int]) -> list[SourceColumn]:
    """Return the columns with those that a server keeps for indexes, if they fit: see `TableSchema.unnamed`."""
    missing = len(table_map.types) - len(columns)
    if table_map.mariadb:  # all are at the end; a table in memory has none
        places = list(range(len(columns), len(table_map.types)))
        fits = missing <= len(unnamed) and all(table_map.types[it] == Type.LONGLONG for it in places)
    else:
        places = [before + number for number, before in enumerate(unnamed)]
        fits = missing == len(unnamed)
    if not fits:
        return columns
    found = list(columns)
    for place in places:
        found.insert(place, SourceColumn("", table_map.type_text(place, None, {})))
    return found


KEPT: Final = 60.0
"""Seconds for which what a source said of its collations is taken for all who ask: hundreds of rows for each of many
destinations, which start together."""
_PATIENCE: Final = 5.0
"""Seconds to wait for another's answer."""


@dataclass(slots=True)
class _Charsets:
    """What a source says of its collations."""

    lock: threading.Lock = field(default_factory=threading.Lock)  # of who asks
    found: Mapping[int, str] = field(default_factory=dict)
    until: float = 0.0
    """Monotonic time."""


_said: dict[tuple[str, str, str], _Charsets] = {}
_said_lock: Final = threading.Lock()


def charsets(connection: Connection) -> Mapping[int, str]:
    """Return the character set of each collation id, as the source has said it within a minute. Raises SourceError."""
    facts, now = connection.facts, time.monotonic()
    with _said_lock:
        for key in [key for key, it in _said.items() if it.until < now and not it.lock.locked()]:
            del _said[key]
        said = _said.setdefault((connection.name, facts.source, facts.version_text), _Charsets())
    is_first = said.lock.acquire(timeout=_PATIENCE)
    try:
        if not said.found or said.until < now:
            said.found = ask_charsets(connection)
            said.until = time.monotonic() + KEPT
        return said.found
    finally:
        if is_first:
            said.lock.release()


def ask_charsets(connection: Connection) -> dict[int, str]:
    """Ask for the character set of each collation id.

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
