"""Tables that the target lacks, made as the source defines them, under the names that they have there."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final
from zlib import crc32

import pymysql

from ....instance.source import Definition
from ....protocol.errors import TargetError
from ....protocol.identifiers import quote_name, quote_table
from ....sql.database import Database, reason
from ....sql.target import is_passing
from .routes import Name, Routes

if TYPE_CHECKING:
    from pymysql.cursors import Cursor

SESSION: Final = (
    "SET sql_mode = 'ALLOW_INVALID_DATES,NO_AUTO_VALUE_ON_ZERO,NO_ENGINE_SUBSTITUTION', foreign_key_checks = 0"
)
UNFINISHED: Final = "sluice_unfinished"
"""What a table is called, with a number after it, until it has the columns that it is to have."""

_HEAD: Final = re.compile(r"CREATE TABLE (`(?:[^`]|``)+`)")
_CHARSET: Final = re.compile(r"(\n\).* DEFAULT CHARSET=\w+\b)(?! COLLATE=)", re.DOTALL)
_REFERENCES: Final = re.compile(
    r"^\s*CONSTRAINT .* FOREIGN KEY .* REFERENCES (?:`((?:[^`]|``)+)`\.)?`((?:[^`]|``)+)`", re.MULTILINE
)
_UNIQUE: Final = (
    "SELECT index_name, column_name FROM information_schema.statistics"
    " WHERE table_schema = %s AND table_name = %s AND non_unique = 0 AND index_name <> 'PRIMARY'"
)


class Creation:
    """Makes what is missing."""

    def __init__(self, database: Database, routes: Routes, define: Callable[[str, str], Definition]) -> None:
        """``define`` asks the source for the definition of a table."""
        self._database = database
        self._routes = routes
        self._define = define

    def create(self, tables: Sequence[Name], go_on: Callable[[], object]) -> list[Name]:
        """Make what the target lacks for these tables of the source; return what was made.

        ``go_on`` is called before each, and may raise. Raises TargetError, SourceError, and what a later try may not
        meet.
        """
        sources = self._routes.sources(tables)
        made = []
        session = self._database.connect(init_command=SESSION)
        try:
            with session.cursor() as cursor:
                schemas, existing = _find(cursor)
                for target, (source, *_) in sources.items():
                    if existing(target):
                        continue
                    go_on()
                    definition = self._define(*source)
                    if not schemas(target[0]):
                        self._run(cursor, source, _schema(target[0], definition))
                        schemas, _ = _find(cursor)
                    self._create(cursor, source, target, definition)
                    made.append(target)
        finally:
            session.close()
        return made

    def _create(self, cursor: "Cursor", source: Name, target: Name, definition: Definition) -> None:
        sql = _CHARSET.sub(rf"\1 COLLATE={definition.collation}", definition.sql)
        for match in _REFERENCES.finditer(sql):
            schema, table = (it.replace("``", "`") if it else it for it in match.groups())
            meant = self._routes.target(schema or source[0], table)
            if meant != (schema or target[0], table):
                raise TargetError(
                    f"{'.'.join(source)} has a foreign key to {table}, which is {'.'.join(meant)} on the target: create"
                    f" {'.'.join(target)} there yourself"
                )
        columns = self._routes.columns(*source)
        if not columns:
            self._run(cursor, source, _HEAD.sub(lambda _: f"CREATE TABLE {quote_table(*target)}", sql, count=1))
            return
        unfinished = f"{UNFINISHED}_{crc32('.'.join((*source, *target)).encode()):08x}"
        name = quote_table(target[0], unfinished)
        self._run(cursor, source, f"DROP TABLE IF EXISTS {name}")
        self._run(cursor, source, _HEAD.sub(lambda _: f"CREATE TABLE {name}", sql, count=1))
        cursor.execute(_UNIQUE, (target[0], unfinished))
        # A unique key without one of its columns would take different rows of the source for one.
        dropped = {index for index, column in cursor.fetchall() if columns.get(column) == ""}
        self._run(cursor, source, f"ALTER TABLE {name} {_alterations(columns, sorted(dropped))}")
        self._run(cursor, source, f"RENAME TABLE {name} TO {quote_table(*target)}")

    def _run(self, cursor: "Cursor", source: Name, sql: str) -> None:
        try:
            cursor.execute(sql)
        except pymysql.MySQLError as error:
            if is_passing(error):
                raise
            raise TargetError(
                f"{self._database} cannot make its copy of {'.'.join(source)} as the source defines it:"
                f" {reason(error)}: {' '.join(sql.split())[:1000]}. Create it there yourself, with what that server"
                " knows; or let the account create it: GRANT CREATE, ALTER, DROP"
            ) from error


def _schema(name: str, definition: Definition) -> str:
    return (
        f"CREATE DATABASE {quote_name(name)} CHARACTER SET {definition.schema_charset}"
        f" COLLATE {definition.schema_collation}"
    )


def _alterations(columns: Mapping[str, str], indexes: Sequence[str]) -> str:
    """Return what renames and drops columns, and drops indexes."""
    return ", ".join(
        [f"DROP INDEX {quote_name(it)}" for it in indexes]
        + [
            f"RENAME COLUMN {quote_name(name)} TO {quote_name(written)}"
            if written
            else f"DROP COLUMN {quote_name(name)}"
            for name, written in columns.items()
        ]
    )


def _find(cursor: "Cursor") -> tuple[Callable[[str], bool], Callable[[Name], bool]]:
    """Return what tells which schemas and tables there are."""
    cursor.execute("SELECT @@lower_case_table_names")
    ((folds,),) = cursor.fetchall()

    def known(name: str) -> str:
        return name.lower() if folds else name

    cursor.execute("SELECT schema_name FROM information_schema.schemata")
    schemas = {known(name) for (name,) in cursor.fetchall()}
    cursor.execute("SELECT table_schema, table_name FROM information_schema.tables")
    tables = {(known(schema), known(name)) for schema, name in cursor.fetchall()}
    return lambda name: known(name) in schemas, lambda name: (known(name[0]), known(name[1])) in tables
