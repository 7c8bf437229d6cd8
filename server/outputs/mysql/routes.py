"""Which table and columns of the target the changes of a table go to, as an output is configured."""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from ....instance.sink.filters import TableFilter
from ....protocol.canal.ddl import classify
from ....protocol.canal.entry_pb2 import Entry, RowChange
from ....protocol.canal.outline import outline
from ....protocol.canal.packet_pb2 import Messages
from ....protocol.canal.rewriting import Plan, Rewriter
from ....protocol.canal.rows import Change, decode_changes
from ....protocol.canal.tags import EventType
from ....protocol.errors import ConfigError, FilterError
from ....store.batch import Batch
from ..target import RejectedError

Name = tuple[str, str]
"""Schema and name of a table."""

KEPT: Final = "*"
"""In the name of a target: that of the source."""
EVENTS: Final = {"insert": EventType.INSERT, "update": EventType.UPDATE, "delete": EventType.DELETE}
_PLAIN: Final = re.compile(r"[\w$-]+")
_UNNAMED: Final = "\0"
"""No schema is called so: names without a schema are classified as of it."""


class Route(NamedTuple):
    """Where the changes of some tables go."""

    text: str
    """The pattern of the tables."""
    tables: TableFilter
    schema: str
    table: str

    @property
    def may_join(self) -> bool:
        """Whether several tables of the source may go to one."""
        schema, _, table = self.text.partition("\\." if "\\." in self.text else ".")
        is_one_schema = _PLAIN.fullmatch(schema) or self.schema == KEPT
        is_one_table = _PLAIN.fullmatch(table) or self.table == KEPT
        return not (is_one_schema and is_one_table)


class ColumnRule(NamedTuple):
    """What columns of some tables are called on the target."""

    text: str
    tables: TableFilter
    names: Mapping[str, str]
    """By the names at the source; empty for one that is left out."""


class Routes:
    """The routes of an output."""

    def __init__(
        self,
        routes: str = "",
        columns: str = "",
        events: Collection[str] = tuple(EVENTS),
        is_own: Callable[[str, str], bool] = lambda _schema, _table: False,
    ) -> None:
        """Read them; ``is_own`` tells tables that outputs keep, which have no routes. Raises ConfigError."""
        self._is_own = is_own
        self.routes = list(_read_routes(routes))
        self.rules = list(_read_columns(columns))
        self._left_out = [kind for name, kind in EVENTS.items() if name not in events]
        self._rewriter = Rewriter(self._plan)

    def target(self, schema: str, table: str) -> Name:
        """Return the table on the target for one of the source: that of the first route whose pattern matches."""
        it = self._route(schema, table)
        if it is None:
            return schema, table
        return schema if it.schema == KEPT else it.schema, table if it.table == KEPT else it.table

    def may_join(self, schema: str, table: str) -> bool:
        """Whether other tables may go to the same one."""
        route = self._route(schema, table)
        same = [it for it in self.routes if route is not None and (it.schema, it.table) == (route.schema, route.table)]
        return len(same) > 1 or any(it.may_join for it in same)

    def columns(self, schema: str, table: str) -> Mapping[str, str]:
        """Return the names on the target of columns that have another one there; empty for one that is left out."""
        return next((it.names for it in self.rules if it.tables.accepts(schema, table)), {})

    def sources(self, tables: Collection[Name]) -> Mapping[Name, list[Name]]:
        """Return which of these tables of the source go to which table of the target."""
        found: dict[Name, list[Name]] = defaultdict(list)
        for name in sorted(it for it in tables if not self._is_own(*it)):
            found[self.target(*name)].append(name)
        return found

    def rewrite(self, batch: Batch) -> Batch:
        """Return a batch as the target has its tables; statements stay as they are, but in a snapshot."""
        if not (self.routes or self.rules or self._left_out):
            return batch
        data = b"".join(batch.slices)
        if batch.snapshot and outline(data).statements:  # the rows that follow are all that the table has
            first = decode_changes(data)[0]
            if self.may_join(first.schema, first.table):
                raise RejectedError(
                    f"{first.schema}.{first.table} has no key, and its rows would replace those of other tables in"
                    f" {'.'.join(self.target(first.schema, first.table))}: give it a key, or route it by itself"
                )
        rewritten = self._rewriter.rewrite(data, statements=bool(batch.snapshot))
        return batch if rewritten is None else replace(batch, slices=[memoryview(rewritten)], bytes=len(rewritten))

    def refusal(self, change: Change) -> str:
        """Say why a DDL cannot be run on the target; empty if it can."""
        moved = self._moved(change.sql, change.ddl_schema)
        if renamed := next((it for it in moved if self.columns(*it)), None):
            return f"the rules for columns are about {'.'.join(renamed)}"
        if joined := next((it for it in moved if self.may_join(*it)), None):
            return f"several tables may go to {'.'.join(moved[joined])}"
        if all(source == target for source, target in moved.items()) or self._schema(change.sql, moved):
            return ""
        source, target = next((source, target) for source, target in moved.items() if source != target)
        return f"the target has {'.'.join(source)} as {'.'.join(target)}, and the statement has another name"

    def move_statement(self, data: bytes) -> bytes:
        """Return the entry of a DDL with the schema on the target that it runs in."""
        messages = Messages.FromString(data)
        entry = Entry.FromString(messages.messages[0])
        change = RowChange.FromString(entry.storeValue)
        schema = self._schema(change.sql, self._moved(change.sql, change.ddlSchemaName))
        if not schema:
            return data
        entry.header.schemaName = change.ddlSchemaName = schema
        entry.storeValue = change.SerializeToString()
        return Messages(messages=[entry.SerializeToString()]).SerializeToString()

    def _route(self, schema: str, table: str) -> Route | None:
        return next((it for it in self.routes if it.tables.accepts(schema, table)), None)

    def _moved(self, sql: str, schema: str) -> dict[Name, Name]:
        return {it: self.target(*it) for it in classify(sql, schema).tables}

    def _schema(self, sql: str, moved: Mapping[Name, Name]) -> str:
        """Return the other schema that a statement can run in; empty if there is none.

        That is so if its tables keep their names, and the statement does not name their schema.
        """
        schemas = {schema for schema, _ in moved.values()}
        keeps_tables = all(source[1] == target[1] for source, target in moved.items())
        is_unnamed = all(schema == _UNNAMED for schema, _ in classify(sql, _UNNAMED).tables)
        return schemas.pop() if len(schemas) == 1 and keeps_tables and is_unnamed else ""

    def _plan(self, schema: str, table: str) -> Plan | None:
        if self._is_own(schema, table):
            return None
        target, columns = self.target(schema, table), self.columns(schema, table)
        if target == (schema, table) and not columns and not self._left_out:
            return None
        return Plan(*target, columns.items(), self._left_out)


def _items(text: str) -> Iterator[str]:
    return filter(None, (it.strip() for it in text.split(";")))


def _tables(key: str, item: str, pattern: str) -> TableFilter:
    if not pattern:
        raise ConfigError(f"{key}: '{item[:200]}' names no table")
    try:
        return TableFilter(pattern)
    except FilterError as error:
        raise ConfigError(f"{key}: '{item[:200]}': {error}") from None


def _read_routes(text: str) -> Iterator[Route]:
    key = "sluice.output.<name>.routes"
    for item in _items(text):
        pattern, arrow, target = (it.strip() for it in item.rpartition("->"))
        schema, dot, table = (it.strip() for it in target.partition("."))
        if not (arrow and dot and schema and table):
            raise ConfigError(f"{key}: '{item[:200]}' has to be TABLES -> SCHEMA.TABLE, where * keeps a name")
        if any("." in it or (KEPT in it and it != KEPT) or len(it) > 64 for it in (schema, table)):
            raise ConfigError(f"{key}: '{item[:200]}': {target[:200]} is not the name of a table")
        yield Route(pattern, _tables(key, item, pattern), schema, table)


def _read_columns(text: str) -> Iterator[ColumnRule]:
    key = "sluice.output.<name>.columns"
    for item in _items(text):
        pattern, colon, names = (it.strip() for it in item.rpartition(":"))
        pairs = [[it.strip() for it in name.split("->")] for name in names.split(",")]
        if not colon or any(len(it) != 2 or not it[0] for it in pairs):
            raise ConfigError(
                f"{key}: '{item[:200]}' has to be TABLES: COLUMN -> NAME, COLUMN -> … with nothing after the arrow of a"
                " column that is left out"
            )
        found = {it[0]: it[1] for it in pairs}
        written = [it.lower() for it in found.values() if it]
        if len(found) < len(pairs) or len(set(written)) < len(written):
            raise ConfigError(f"{key}: '{item[:200]}' has a column twice")
        if wrong := next((it for it in written if re.search(r"[`\s]", it) or len(it) > 64), None):
            raise ConfigError(f"{key}: '{item[:200]}': {wrong[:200]!r} is not the name of a column")
        yield ColumnRule(pattern, _tables(key, item, pattern), found)
