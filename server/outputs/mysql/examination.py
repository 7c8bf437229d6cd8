"""What is asked of a target beforehand: would it take the changes of these tables, and what helps if not."""

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from ....instance.source import Examination
from ....protocol.errors import TargetError
from ....sql.database import Database
from .loops import SCHEMA
from .rights import Rights
from .routes import Name, Routes
from .settings import SNAPSHOT, MysqlSettings, OnDdl

if TYPE_CHECKING:
    from pymysql.cursors import Cursor

SHOWN: Final = 20
"""Findings of a kind that are listed."""
SMALL: Final = 16 << 20
"""Bytes of `max_allowed_packet` below which a note says so."""
WRITES: Final = ("SELECT", "INSERT", "UPDATE", "DELETE")
SEES: Final = "TRIGGER"
"""Without it an account does not see the triggers of a table."""
CREATES: Final = ("CREATE", "ALTER", "DROP")
DEFINES: Final = (*CREATES, "INDEX")


class TargetExamination:
    """Asks a target over a session."""

    def __init__(self, cursor: "Cursor", database: Database, settings: MysqlSettings, routes: Routes) -> None:
        """``settings`` and ``routes`` are those of the output."""
        self._cursor = cursor
        self._database = database
        self._settings = settings
        self._routes = routes
        self.rights = Rights.ask(cursor)

    def summary(self) -> str:
        """Say what the target is. Raises TargetError when it takes no changes at all."""
        require_writable(self._cursor, self._database)
        self._cursor.execute("SELECT @@version, @@max_allowed_packet")
        version, packet = self._cursor.fetchone() or ("", 0)
        return f"{self._database} is version {version} and takes changes, each once, in statements of {packet} bytes"

    def notes(self) -> Iterator[str]:
        """Say what may not be meant."""
        self._cursor.execute("SELECT @@max_allowed_packet")
        ((packet,),) = self._cursor.fetchall()
        if packet < SMALL:
            yield (
                f"{self._database} takes statements of {packet} bytes, and the output stops at a row that needs more:"
                f" SET GLOBAL max_allowed_packet = {64 << 20} there, as at the source"
            )
        if not self.rights.is_known:
            yield f"{self.rights.account} has roles on {self._database}: its rights were not looked at"

    def problems(self, tables: Collection[Name]) -> Iterator[str]:
        """Say what keeps the output from applying the changes of these tables of the source."""
        targets = self._routes.sources(tables).keys()
        existing = self._existing({schema for schema, _ in targets})
        yield from _first(self._lacking_rights(targets, existing))
        if not self._creates:
            missing = (target for target in targets if target not in existing)
            yield from _first(f"{'.'.join(it)} is not on the target: create it there" for it in missing)
        yield from _first(
            f"{'.'.join(it)} has the engine {existing[it]}, which has no transactions: ALTER TABLE {'.'.join(it)}"
            " ENGINE = InnoDB"
            for it in targets
            if existing.get(it, "InnoDB") not in self._transactional
        )
        yield from _first(
            f"{schema}.{table} has the trigger {trigger}, which would repeat what the source's triggers have done: DROP"
            f" TRIGGER {schema}.{trigger}"
            for schema, table, trigger in self._triggers({schema for schema, _ in targets})
            if (schema, table) in targets
        )

    @property
    def _creates(self) -> bool:
        return self._settings.start == SNAPSHOT

    def _lacking_rights(self, targets: Collection[Name], existing: Collection[Name]) -> Iterator[str]:
        if not self.rights.is_known:
            return
        wanted: dict[Name, Sequence[str]] = {(self._settings.progress, "*"): ("CREATE", *WRITES)}
        if self._settings.channel is not None:
            wanted[SCHEMA, "*"] = ("CREATE", "SELECT", "INSERT", "UPDATE")
        for schema, table in sorted(targets):
            if (schema, table) not in existing and self._creates:
                wanted[schema, "*"] = (*WRITES, SEES, *CREATES)
            if self._settings.ddl is OnDdl.APPLY:
                wanted[schema, "*"] = (*WRITES, SEES, *DEFINES)
            wanted[schema, table] = (*WRITES, SEES)
        said: set[str] = set()
        for (schema, table), rights in sorted(wanted.items()):
            if schema not in said and (lacking := self.rights.lacking(rights, schema, table)):
                said |= {schema} if table == "*" else set()
                yield f"{self.rights.account} lacks rights: {self.rights.advice(lacking, schema, table)}"

    def _existing(self, schemas: Collection[str]) -> dict[Name, str]:
        """Return the tables that there are, with their engines."""
        return {
            (schema, table): engine or ""
            for schema, table, engine in self._of_schemas("table_schema, table_name, engine", "tables", schemas)
        }

    def _triggers(self, schemas: Collection[str]) -> list[tuple[str, str, str]]:
        columns = "event_object_schema, event_object_table, trigger_name"
        return self._of_schemas(columns, "triggers", schemas)

    def _of_schemas(self, columns: str, table: str, schemas: Collection[str]) -> list[tuple[str, str, str]]:
        if not schemas:
            return []
        marks, owner = ",".join(["%s"] * len(schemas)), columns.partition(",")[0]
        self._cursor.execute(
            f"SELECT {columns} FROM information_schema.{table} WHERE {owner} IN ({marks}) ORDER BY {columns}",  # noqa: S608
            tuple(schemas),
        )
        return list(self._cursor.fetchall())

    @property
    def _transactional(self) -> frozenset[str]:
        self._cursor.execute("SELECT engine FROM information_schema.engines WHERE transactions = 'YES'")
        return frozenset(engine for (engine,) in self._cursor.fetchall())


def mismatches(cursor: "Cursor", routes: Routes, tables: Collection[Name], source: Examination) -> Iterator[str]:
    """Say which tables of the source cannot go where they are routed. Raises SourceError."""
    reader = source.table_reader()
    try:
        for target, names in routes.sources(tables).items():
            shown = ".".join(target)
            keys = {}
            for name in names if len(names) > 1 or any(routes.columns(*it) for it in names) else ():
                renamed = routes.columns(*name)
                columns = reader.describe(*name, "", is_scanned=True)[0].columns
                key = [it.name for it in columns if it.is_key]
                keys[name] = tuple(written for it in key if (written := renamed.get(it, it)))
                if left_out := [it for it in key if not renamed.get(it, it)]:
                    yield f"the rules for columns leave out {', '.join(left_out)}, of the key of {'.'.join(name)}"
                cursor.execute(_COLUMNS, target)
                existing = {column.lower() for (column,) in cursor.fetchall()}
                for column, written in renamed.items():
                    if not written and column.lower() in existing:
                        yield f"{shown} has the column {column}, which is left out: ALTER TABLE {shown} DROP {column}"
            if len(names) > 1 and (len(set(keys.values())) > 1 or not all(keys.values())):
                these = "; ".join(f"{'.'.join(it)} ({', '.join(key) or 'none'})" for it, key in keys.items())
                yield (
                    f"{shown} would have the rows of tables without a common primary key: {these}. Give them one, with"
                    " values that no two of them have, or route them to different tables"
                )
    finally:
        reader.close()


_COLUMNS: Final = "SELECT column_name FROM information_schema.columns WHERE table_schema = %s AND table_name = %s"


def require_writable(cursor: "Cursor", database: Database) -> None:
    """Raise TargetError when a server takes no changes."""
    cursor.execute("SHOW GLOBAL VARIABLES WHERE Variable_name IN ('read_only', 'super_read_only')")
    if on := [name for name, value in cursor.fetchall() if value == "ON"]:
        statements = "; ".join(f"SET GLOBAL {name} = 0" for name in sorted(on))
        raise TargetError(f"{database} is read-only: {statements} there, or name another target")


def _first(texts: Iterator[str]) -> Iterator[str]:
    """Give the first of some texts, and say how many more there are."""
    rest = 0
    for number, text in enumerate(texts):
        if number < SHOWN:
            yield text
        else:
            rest += 1
    if rest:
        yield f"and {rest} more like this"
