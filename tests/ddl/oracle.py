"""Compares the catalogue that statements lead to with information_schema."""

import re
from dataclasses import dataclass, field, replace
from typing import Any, Self

import pymysql

from sluice.instance.sources.mysql.history.statements import Context, apply
from sluice.instance.sources.mysql.history.tables import LOST, UNKNOWN, Catalog, Column, Database, Table
from sluice.protocol.lexer import (
    ANSI_QUOTES,
    MAXDB,
    NO_BACKSLASH_ESCAPES,
    ORACLE,
    REAL_AS_FLOAT,
    Dialect,
)
from tests.delivery import end_of_binlog
from tests.servers import Server

DATABASES = ("ddl_one", "ddl_two", "ddl_three")
_MODES = {
    "REAL_AS_FLOAT": REAL_AS_FLOAT,
    "ANSI_QUOTES": ANSI_QUOTES,
    "ORACLE": ORACLE,
    "MAXDB": MAXDB,
    "NO_BACKSLASH_ESCAPES": NO_BACKSLASH_ESCAPES,
}
Key = tuple[str, str]


@dataclass
class Oracle:
    """Runs statements on a server, applies those that succeed, and compares after each."""

    server: Server
    ran: int = 0
    failed: list[str] = field(default_factory=list)
    """Statements that the server refused."""
    unknown: list[str] = field(default_factory=list)
    """Statements after which a table was unknown, or a label of it that the server does not show any more."""

    def __post_init__(self) -> None:
        version = self.server.query("SELECT VERSION()")[0][0]
        numbers = tuple(int(it) for it in version.removeprefix("5.5.5-").split("-")[0].split("."))
        charsets = frozenset(
            name for (name,) in self.server.query("SELECT character_set_name FROM information_schema.character_sets")
        )
        self.dialect = Dialect(numbers, self.server.mariadb, charsets)
        self.catalog = Catalog()
        self.catalog.is_complete = True
        self.tables: dict[Key, Table] = {}  # as they are on the server
        self._asking = self.server.connect()
        self._session = self.server.connect()
        self._file, self._offset = end_of_binlog(self.server)
        for database in DATABASES:
            self.run(f"DROP DATABASE IF EXISTS {database}")
            self.run(f"CREATE DATABASE {database}")
        self._session.select_db(DATABASES[0])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for database in DATABASES:
            self.ask(f"DROP DATABASE IF EXISTS {database}")
        self._session.close()
        self._asking.close()

    def ask(self, sql: str, *, session: bool = False) -> list[tuple[Any, ...]]:
        """Run a statement in the session that all statements run in, or in another."""
        with (self._session if session else self._asking).cursor() as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall())

    def run(self, sql: str) -> bool:
        """Run a statement, apply what the server wrote into its binlog, and compare; False if the server refused it."""
        modes, charset = self.ask("SELECT @@sql_mode, @@character_set_server", session=True)[0]
        mode = sum(bit for name, bit in _MODES.items() if name in modes.split(","))
        succeeded = True
        try:
            self.ask(sql, session=True)
        except pymysql.err.MySQLError as error:
            self.failed.append(f"{sql}: {error}")
            succeeded = False
        logged = self.logged()
        for schema, text in logged:
            apply(self.catalog, self.dialect, text, Context(schema, mode, charset, failed=not succeeded))
        if logged:
            self.ran += 1
            self.compare("; ".join(text for _, text in logged))
        return succeeded

    def logged(self) -> list[tuple[str, str]]:
        """Return schema and text of the statements that were logged since the last call."""
        found = []
        for _, offset, kind, _, end, text in self.ask(f"SHOW BINLOG EVENTS IN '{self._file}' FROM {self._offset}"):
            assert offset >= self._offset
            self._offset = max(self._offset, end)
            if kind == "Query":
                used = re.match(r"(?:use `((?:[^`]|``)*)`; )?(?:set foreign_key_checks=[01]; )?", text)
                assert used is not None
                schema = (used[1] or DATABASES[0]).replace("``", "`")
                found.append((schema, text[used.end() :]))
        return found

    def compare(self, sql: str) -> None:
        """Compare what the statements have led to with the server."""
        tables, databases = self.actual()
        self.tables = tables
        before = len(self.unknown)
        if not self.catalog.is_complete:
            self.unknown.append(sql)
            for database, default in databases.items():
                self.catalog.put_database(database, Database(default, is_complete=True))
            for key, actual in tables.items():
                self.catalog.put(*key, actual)
            self.catalog.is_complete = True
        for database in DATABASES:
            charset = self.catalog.charset(database)
            assert charset in (None, databases.get(database)), (
                f"{sql}\n{database}: {charset}, not {databases.get(database)}"
            )
        for key, actual in tables.items():
            state = self.catalog.get(*key)
            if state is UNKNOWN:
                if len(self.unknown) == before:
                    self.unknown.append(sql)
                self.catalog.put(*key, actual)
                continue
            assert state is not None, f"{sql}\n{key} exists"
            if isinstance(state, Table) and state.charset is None:
                state = replace(state, charset=actual.charset)
                self.catalog.put(*key, state)
            if isinstance(state, Table) and state.has_lost_labels:
                if "CONVERT" in sql and len(self.unknown) == before:
                    self.unknown.append(sql)
                state = _with_lost_labels(state, actual)
            assert state == actual, f"{sql}\n{key}\n{state}\nis really\n{actual}"
        for key in self.known():
            assert key in tables, f"{sql}\n{key} does not exist"
        self.catalog.changes.clear()

    def known(self) -> list[Key]:
        """Return the tables of which the catalogue says what they are."""
        databases = {name: self.catalog.database(name) for name in DATABASES}
        return [
            (schema, name)
            for schema, database in databases.items()
            if isinstance(database, Database)
            for name, state in database.tables.items()
            if isinstance(state, Table) and not state.may_be_gone
        ]

    def _with_named_times(self, where: str) -> set[Key]:
        """Return MariaDB's tables whose times of rows are in columns that a statement has named."""
        if not self.server.mariadb:
            return set()
        found = self.ask(
            f"SELECT DISTINCT table_schema, table_name FROM information_schema.columns{where}"
            " AND generation_expression IN ('ROW START', 'ROW END')"
        )
        return {(schema, table) for schema, table in found}

    def actual(self) -> tuple[dict[Key, Table], dict[str, str]]:
        """Return what the server says."""
        where = f" WHERE table_schema IN {DATABASES}"
        rows = self.ask(
            "SELECT table_schema, table_name, column_name, column_type, character_set_name, extra"
            f" FROM information_schema.columns{where} ORDER BY table_schema, table_name, ordinal_position"
        )
        keys = self.ask(
            f"SELECT table_schema, table_name, column_name FROM information_schema.statistics{where}"
            " AND index_name = 'PRIMARY' ORDER BY table_schema, table_name, seq_in_index"
        )
        named = self._with_named_times(where)
        kinds = self.ask(
            "SELECT table_schema, table_name, table_type, SUBSTRING_INDEX(table_collation, '_', 1)"
            f" FROM information_schema.tables{where}"
        )
        tables = {
            (schema, table): Table(
                tuple(
                    Column(
                        column,
                        kind,
                        charset,
                        "VIRTUAL GENERATED" in extra or "STORED GENERATED" in extra or "PERSISTENT" in extra,
                        "INVISIBLE" in extra,
                    )
                    for at, its, column, kind, charset, extra in rows
                    if (at, its) == (schema, table)
                ),
                tuple(column for at, its, column in keys if (at, its) == (schema, table)),
                charset,
                kind == "SYSTEM VERSIONED" and (schema, table) not in named,
            )
            for schema, table, kind, charset in kinds
            if kind in ("BASE TABLE", "SYSTEM VERSIONED", "SEQUENCE")
        }
        databases = self.ask(
            "SELECT schema_name, default_character_set_name FROM information_schema.schemata"
            f" WHERE schema_name IN {DATABASES}"
        )
        return tables, dict(databases)


def _with_lost_labels(known: Table, actual: Table) -> Table:
    """Return what is known, with what the server shows of labels that are not."""
    shown = dict(zip(known.columns, (it.type for it in actual.columns), strict=False))
    return replace(known, columns=tuple(replace(it, type=shown[it]) if LOST in it.type else it for it in known.columns))
