"""What a statement does to which tables, in Canal's terms.

This is not an SQL parser: it is one function for each kind of statement, which reads as far as the names it is about.
What it does not understand becomes a QUERY without a table, as in Canal, or an INSERT, UPDATE or DELETE without one
where it begins as such: its text has values of rows. It never raises.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from ..lexer import END, Token, UnreadableError, tokens
from .tags import EventType

DML: Final = frozenset({EventType.INSERT, EventType.UPDATE, EventType.DELETE})


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that a statement does. For RENAME the table is the target, and `source` its name before.

    None as schema or table: the statement does not say (Canal leaves the field of the header unset).
    """

    event_type: EventType
    schema: str | None = None
    table: str | None = None
    source: tuple[str, str] | None = None

    @property
    def tables(self) -> tuple[tuple[str, str], ...]:
        """The tables (schema, name) whose columns may differ afterwards."""
        target = () if self.schema is None or self.table is None else ((self.schema, self.table),)
        return target if self.source is None else (*target, self.source)


@dataclass(frozen=True, slots=True)
class Statement:
    """A classified statement. Without changes it concerns no table (GRANT, CREATE VIEW…), and Canal drops it."""

    changes: tuple[Change, ...]
    understood: bool = True

    @property
    def tables(self) -> frozenset[tuple[str, str]]:
        """All tables (schema, name) whose columns may differ afterwards."""
        return frozenset(table for change in self.changes for table in change.tables)


def classify(sql: str, schema: str, sql_mode: int = 0, charset: str | None = None) -> Statement:
    """Classify a statement whose unqualified names belong to `schema`. Never raises.

    The character set is that of the client that sent it; without one it is UTF-8.
    """
    reader = _Reader(sql, schema, sql_mode, charset)
    try:
        return Statement(tuple(_statement(reader)))
    except UnreadableError:
        return Statement((Change(reader.kind),), understood=False)


def event_type_of(sql: str, schema: str) -> EventType:
    """Return the type of a DDL: what `classify` says it does to its first table, else what its first word means."""
    changes = classify(sql, schema).changes
    if changes and changes[0].event_type is not EventType.QUERY:
        return changes[0].event_type
    return _DDL_HEADS.get(_Reader(sql, schema).peek(), EventType.QUERY)


def is_of_database(sql: str) -> bool:
    """Whether a statement creates or drops a database."""
    return any(change.schema is not None and change.table is None for change in classify(sql, "").changes)


def creates_database(sql: str) -> bool:
    """Whether a statement creates a database."""
    return is_of_database(sql) and _Reader(sql, "").peek() == "CREATE"


class _Reader:
    """Reads tokens forward, one ahead; only as much text is looked at as is asked for."""

    def __init__(self, sql: str, schema: str, sql_mode: int = 0, charset: str | None = None) -> None:
        self._tokens = tokens(sql, sql_mode=sql_mode, charset=charset)
        self._schema = schema
        self._next = END
        with contextlib.suppress(UnreadableError):  # as if it had no words
            self._next = next(self._tokens, END)
        self.kind = EventType.QUERY
        """What the statement is, as far as its head says it, should the rest not be understood."""

    @property
    def ended(self) -> bool:
        return self._next is END or self._next.upper == ";"

    def take(self) -> Token:
        token = self._next
        if self.ended:
            raise UnreadableError
        self._next = next(self._tokens, END)
        return token

    def word(self) -> str:
        """Take one token; its text in upper case when it is a word."""
        token = self.take()
        return token.upper if token.kind == "word" else ""

    def peek(self) -> str:
        return self._next.upper

    def skip(self, *words: str) -> bool:
        """Take the words if they come next in this order (the first decides); say whether they did."""
        if self.peek() != words[0]:
            return False
        for word in words:
            if self.peek() != word:
                raise UnreadableError
            self.take()
        return True

    def skip_any(self, *words: str) -> None:
        """Take all of these words that come next, in any order and number."""
        while self.peek() in words:
            self.take()

    def expect(self, *words: str) -> None:
        if not self.skip(*words):
            raise UnreadableError

    def name(self) -> str:
        """Take an identifier. Double quotes are those of ANSI_QUOTES here."""
        token = self.take()
        if token.kind not in ("word", "name", "quoted") or not token.text:
            raise UnreadableError(f"{token.text!r} is not a name")
        return token.text

    def table(self) -> tuple[str, str]:
        """Take `table` or `schema.table`."""
        name = self.name()
        if self.skip("."):
            return name, self.name()
        return self._schema, name

    def skip_item(self) -> bool:
        """Skip the next comma outside parentheses and all before it; say whether there is one."""
        depth = 0
        while not self.ended:
            text = self.take().upper
            depth += (text == "(") - (text == ")")
            if text == "," and depth == 0:
                return True
        return False

    def skip_to(self, *words: str) -> str:
        """Skip to the first of the words outside parentheses, take it and return it."""
        depth = 0
        while True:
            if depth == 0 and self.peek() in words:
                return self.word()
            text = self.take().upper
            depth += (text == "(") - (text == ")")


def _statement(reader: _Reader) -> Iterator[Change]:
    if reader.ended:
        raise UnreadableError
    head = reader.word()
    reader.kind = _KINDS.get(head, EventType.QUERY)
    if head in _HEADS:
        yield from _HEADS[head](reader)
    elif head not in _DROPPED_HEADS:
        raise UnreadableError


def _create(reader: _Reader) -> Iterator[Change]:
    reader.skip("OR", "REPLACE")
    reader.skip_any("TEMPORARY", "UNIQUE", "FULLTEXT", "SPATIAL", "VECTOR", "ONLINE", "OFFLINE")
    what = reader.word()
    if what == "TABLE":
        _skip_exists(reader)
        yield Change(EventType.CREATE, *reader.table())
    elif what == "INDEX":
        _skip_exists(reader)
        reader.name()
        reader.skip_to("ON")
        yield Change(EventType.CINDEX, *reader.table())
    elif what in _DATABASE:
        _skip_exists(reader)
        yield Change(EventType.QUERY, reader.name())
    elif what not in _DROPPED_OBJECTS:
        raise UnreadableError


def _drop(reader: _Reader) -> Iterator[Change]:
    reader.skip_any("TEMPORARY", "ONLINE", "OFFLINE")
    what = reader.word()
    if what in ("TABLE", "TABLES"):
        _skip_exists(reader)
        yield Change(EventType.ERASE, *reader.table())
        while reader.skip(","):
            yield Change(EventType.ERASE, *reader.table())
    elif what == "INDEX":
        _skip_exists(reader)
        reader.name()
        reader.expect("ON")
        yield Change(EventType.DINDEX, *reader.table())
    elif what in _DATABASE:
        _skip_exists(reader)
        yield Change(EventType.QUERY, reader.name())
    elif what not in _DROPPED_OBJECTS:
        raise UnreadableError


def _alter(reader: _Reader) -> Iterator[Change]:
    reader.skip_any("ONLINE", "OFFLINE", "IGNORE")
    what = reader.word()
    if what != "TABLE":
        if what not in _DROPPED_OBJECTS and what not in _DATABASE:
            raise UnreadableError
        return
    _skip_exists(reader)
    table = reader.table()
    _skip_wait(reader)
    if reader.ended:
        yield Change(EventType.ALTER, *table)
        return
    while True:
        change = _alter_item(reader, table)
        if change is not None:
            yield change
        if not reader.skip_item():
            return


def _alter_item(reader: _Reader, table: tuple[str, str]) -> Change | None:
    action = reader.word()
    alter = Change(EventType.ALTER, *table)
    if action == "RENAME":
        if reader.peek() in ("COLUMN", "INDEX", "KEY"):
            return alter
        reader.skip_any("TO", "AS", "=")
        return Change(EventType.RENAME, *reader.table(), source=table)
    if action == "ADD":
        named = reader.skip("CONSTRAINT")
        if named and reader.peek() not in _CONSTRAINTS:  # the constraint's own name
            reader.take()
        kind = reader.peek()
        if kind in ("FOREIGN", "CHECK"):
            return None
        if kind in ("UNIQUE", "PRIMARY") or (not named and kind in _INDEXES):
            return Change(EventType.CINDEX, *table)
    if action == "DROP" and reader.peek() in ("INDEX", "KEY", "CONSTRAINT"):
        return Change(EventType.DINDEX, *table)
    return alter


def _rename(reader: _Reader) -> Iterator[Change]:
    if reader.word() not in ("TABLE", "TABLES"):
        return  # RENAME USER
    _skip_exists(reader)
    while True:
        source = reader.table()
        _skip_wait(reader)
        reader.expect("TO")
        yield Change(EventType.RENAME, *reader.table(), source=source)
        if not reader.skip(","):
            return


def _truncate(reader: _Reader) -> Iterator[Change]:
    reader.skip("TABLE")
    yield Change(EventType.TRUNCATE, *reader.table())


def _insert(reader: _Reader) -> Iterator[Change]:
    reader.skip_any("LOW_PRIORITY", "DELAYED", "HIGH_PRIORITY", "IGNORE")
    reader.skip("INTO")
    yield Change(EventType.INSERT, *reader.table())


def _update(reader: _Reader) -> Iterator[Change]:
    reader.skip_any("LOW_PRIORITY", "IGNORE")
    yield Change(EventType.UPDATE, *reader.table())


def _delete(reader: _Reader) -> Iterator[Change]:
    reader.skip_any("LOW_PRIORITY", "QUICK", "IGNORE", "HISTORY")
    reader.skip("FROM")
    yield Change(EventType.DELETE, *reader.table())


def _load(reader: _Reader) -> Iterator[Change]:
    reader.skip_to("INTO")
    reader.expect("TABLE")
    yield Change(EventType.INSERT, *reader.table())


def _with(reader: _Reader) -> Iterator[Change]:
    head = reader.skip_to("INSERT", "REPLACE", "UPDATE", "DELETE")
    reader.kind = _KINDS[head]
    yield from _HEADS[head](reader)


def _set(reader: _Reader) -> Iterator[Change]:
    """Look past MariaDB's SET STATEMENT variable=value FOR …; any other SET does not concern a table."""
    while reader.skip("STATEMENT"):
        reader.skip_to("FOR")
        if not reader.skip("SET"):
            yield from _statement(reader)
            return


def _skip_exists(reader: _Reader) -> None:
    if reader.skip("IF"):
        reader.skip("NOT")
        reader.expect("EXISTS")


def _skip_wait(reader: _Reader) -> None:
    if reader.skip("WAIT"):
        reader.take()
    reader.skip("NOWAIT")


def _words(*lines: str) -> frozenset[str]:
    return frozenset(word for line in lines for word in line.split())


_HEADS: Final[dict[str, Callable[[_Reader], Iterator[Change]]]] = {
    "CREATE": _create,
    "DROP": _drop,
    "ALTER": _alter,
    "RENAME": _rename,
    "TRUNCATE": _truncate,
    "INSERT": _insert,
    "REPLACE": _insert,
    "UPDATE": _update,
    "DELETE": _delete,
    "LOAD": _load,
    "WITH": _with,
    "SET": _set,
}
_KINDS: Final = {
    "INSERT": EventType.INSERT,
    "REPLACE": EventType.INSERT,
    "LOAD": EventType.INSERT,
    "UPDATE": EventType.UPDATE,
    "DELETE": EventType.DELETE,
    "WITH": EventType.UPDATE,  # of one kind or another: a SELECT is in no binlog
}
_DDL_HEADS: Final = {
    "CREATE": EventType.CREATE,
    "ALTER": EventType.ALTER,
    "DROP": EventType.ERASE,
    "TRUNCATE": EventType.TRUNCATE,
    "RENAME": EventType.RENAME,
}
_DROPPED_HEADS: Final = _words(
    "ANALYZE BEGIN BINLOG CACHE CALL CHANGE CHECK CHECKSUM CLONE COMMIT DELIMITER DO FLUSH GRANT IMPORT INSTALL KILL",
    "LOCK OPTIMIZE PURGE RELEASE REPAIR RESET REVOKE ROLLBACK SAVEPOINT SELECT SHUTDOWN START STOP UNINSTALL UNLOCK",
    "USE XA",
)
_DROPPED_OBJECTS: Final = _words(
    "AGGREGATE ALGORITHM DEFINER EVENT FUNCTION INSTANCE LIBRARY LOGFILE MASKING PACKAGE PREPARE PROCEDURE RESOURCE",
    "ROLE SEQUENCE SERVER SQL TABLESPACE TRIGGER UNDO USER VIEW",
)
_DATABASE: Final = frozenset({"DATABASE", "SCHEMA"})
_CONSTRAINTS: Final = frozenset({"UNIQUE", "PRIMARY", "FOREIGN", "CHECK"})
_INDEXES: Final = frozenset({"INDEX", "KEY", "FULLTEXT", "SPATIAL", "VECTOR"})
