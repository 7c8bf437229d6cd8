"""Applies the statements of a binlog to a catalogue of tables.

What a statement does to columns is either understood with certainty, or the tables that it can touch are unknown
afterwards; if even their names are in doubt, all tables are.
"""

import contextlib
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from .....protocol.lexer import END, Dialect, Token, UnreadableError, tokens
from .alter import Alter
from .definitions import DefinitionReader, NewColumn, NewIndex, certain, words
from .reader import REPLACED, Reader
from .tables import UNKNOWN, Catalog, Column, Database, State, Table, Unknown, altered, open_part
from .types import sequence_types

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


@dataclass(frozen=True, slots=True)
class Context:
    """What an event says beside the text of its statement."""

    schema: str
    """The default database, "" for none."""
    sql_mode: int = 0
    charset: str | None = None
    """The character set of new databases, as `character_set_server` has it; None if unknown."""
    literals: str | None = None
    """The character set that strings pass through, as `character_set_connection` has it; None if unknown."""
    client: str | None = None
    """The character set that the statement was sent in, as `character_set_client` has it; None for UTF-8."""
    failed: bool = False
    """The statement ended with an error, after it had changed something."""
    uses_temporary: bool = False
    """Tables that it names may be temporary ones of its session."""


def apply(catalog: Catalog, dialect: Dialect, sql: str, context: Context) -> None:
    """Bring a catalogue to where it is after the statement. Never raises; `catalog.changes` says what may differ."""
    statement = _Statement(catalog, dialect, context, sql)
    try:
        statement.run()
    except UnreadableError:
        statement.forget()
        return
    if context.failed or (context.uses_temporary and not statement.says_temporary):
        for it in list(catalog.changes):
            if it.kind == "table":
                catalog.put(it.schema, it.table, UNKNOWN)
            elif it.kind == "charset":
                catalog.put_charset(it.schema, None)
            elif it.kind == "database":
                catalog.put_database(it.schema, Database(None))


class _Statement:
    """One statement that is being read."""

    def __init__(self, catalog: Catalog, dialect: Dialect, context: Context, sql: str) -> None:
        self._catalog = catalog
        self._dialect = dialect
        self._context = context
        self._sql = sql
        self._forget: Callable[[], None] = catalog.forget_all
        """Makes unknown what the statement can touch, as far as it was read."""
        self.says_temporary = False
        """It drops or makes tables: if it did so with temporary ones, it would say it."""
        self._heads: dict[str, Callable[[], None]] = {
            "CREATE": self._create,
            "DROP": self._drop,
            "ALTER": self._alter,
            "RENAME": self._rename,
            "SET": self._set,
        }

    def run(self) -> None:
        """Read the statement and change the catalogue. Raises UnreadableError, with nothing changed."""
        self._reader = Reader(self._tokens(), self._context.schema, self._context.literals)
        self._parts = DefinitionReader(self._reader, self._dialect, self._context.sql_mode)
        self._statement()

    def _tokens(self) -> "Iterator[Token]":
        return tokens(self._sql, self._dialect, self._context.sql_mode, self._context.client)

    def forget(self) -> None:
        """Know no longer what the statement can have changed, which was not understood."""
        self._forget()

    def _forget_named(self, choose: "Callable[[Sequence[Token], int], int]") -> None:
        """Make unknown the tables whose names are where `choose` says, for the place of a token; 0: nowhere."""
        try:
            found = [*self._tokens(), END, END, END, END]
        except UnreadableError:
            self._catalog.forget_all()
            return
        names = set()
        for at in range(len(found)):
            place = choose(found, at)
            name = found[place]
            if not place or name.kind not in ("word", "name"):
                continue
            is_qualified = found[place + 1].text == "."
            names.add((name.text, found[place + 2].text) if is_qualified else (self._context.schema, name.text))
        if not names or len(names) > _MOST_NAMES or any(not it[0] or REPLACED in "".join(it) for it in names):
            self._catalog.forget_all()
            return
        for schema, table in sorted(names):
            self._catalog.put(schema, table, UNKNOWN)

    def _statement(self) -> None:
        head = self._reader.word()
        if head in self._heads:
            self._heads[head]()
        elif head not in _OTHER_HEADS:
            raise UnreadableError(f"a statement that begins with {head!r}")

    def _set(self) -> None:
        """Look past MariaDB's SET STATEMENT variable=value FOR ...; any other SET does not concern a table."""
        while self._reader.skip("STATEMENT"):
            while self._reader.peek() != "FOR":
                self._reader.take()
            self._reader.take()
            if not self._reader.skip("SET"):
                self._statement()
                return

    # --- CREATE, DROP, RENAME, TRUNCATE

    def _create(self) -> None:
        reader = self._reader
        self._forget = lambda: self._forget_named(_any_name)
        replaces = reader.skip("OR", "REPLACE")
        kinds = reader.skip_any("TEMPORARY", "UNIQUE", "FULLTEXT", "SPATIAL", "VECTOR", "ONLINE", "OFFLINE")
        what = reader.word()
        if what == "TABLE":
            if "TEMPORARY" not in kinds:
                self._create_table(replaces=replaces)
        elif what in _DATABASE:
            self._create_database(replaces=replaces)
        elif what == "SEQUENCE" and "TEMPORARY" not in kinds:
            self._create_sequence()
        elif what in ("VIEW", "SEQUENCE", "ALGORITHM", "DEFINER", "SQL"):
            self._create_other(what)
        elif what == "INDEX" and "UNIQUE" in kinds:
            self._create_unique()
        elif what not in _OTHER_OBJECTS:
            raise UnreadableError(f"CREATE {what}")

    def _create_sequence(self) -> None:
        if_missing = self._parts.exists()
        name = self._reader.table()
        is_certain = not if_missing or self._catalog.get(*name) is None
        self._catalog.put(*name, _sequence(self._type() or "bigint(21)") if is_certain else UNKNOWN)

    def _create_unique(self) -> None:
        self._parts.exists()
        self._reader.name()
        while not self._reader.skip("ON"):
            self._reader.take()
        table = self._reader.table()
        state = self._catalog.get(*table)
        if isinstance(state, Table):
            self._catalog.put(*table, replace(state, unique=True))

    def _type(self) -> str:
        """Read the rest of what is said of a sequence; return the type of its columns with numbers, "" if not said."""
        found = ""
        while not self._reader.ended:
            if self._reader.take().upper == "AS":
                found = sequence_types(self._reader, self._dialect, self._context.sql_mode)
        return found

    def _create_other(self, what: str) -> None:
        """A view or a sequence takes a name of tables; what comes between may also begin a procedure or a trigger."""
        reader = self._reader
        while what not in ("VIEW", "SEQUENCE"):
            if what in ("PROCEDURE", "FUNCTION", "TRIGGER", "EVENT", "AGGREGATE", "PACKAGE"):
                return
            what = reader.take().upper
        self._parts.exists()
        self._take(reader.table())

    def _take(self, name: tuple[str, str]) -> None:
        """Something that is no table has the name, or had it."""
        if not self._catalog.only_open or self._catalog.get(*name) is not None:
            self._catalog.put(*name, UNKNOWN)

    def _create_table(self, *, replaces: bool) -> None:
        reader = self._reader
        if_missing = self._parts.exists()
        table = reader.table()
        self._forget = lambda: self._catalog.put(*table, UNKNOWN)
        state = self._catalog.get(*table)
        new: State
        if if_missing and not replaces and state is not None:
            if isinstance(state, Unknown) or state.may_be_gone:
                self._catalog.put(*table, UNKNOWN)
            return
        if reader.skip("LIKE"):
            new = self._like()
        else:
            reader.expect("(")
            if reader.skip("LIKE"):
                new = self._like()
                reader.expect(")")
            else:
                self.says_temporary = True  # MariaDB marks each CREATE OR REPLACE
                new = self._definitions(table[0])
        reader.finish()
        self._catalog.put(*table, new)

    def _like(self) -> State:
        return self._existing(self._catalog.get(*self._reader.table()))

    def _existing(self, state: State) -> State:
        """Return what is known of a table that exists, as a statement says."""
        if isinstance(state, Table):
            return replace(state, may_be_gone=False)
        return UNKNOWN if state is None and not self._catalog.only_open else state

    def _definitions(self, schema: str) -> Table:
        """Read the columns and keys in parentheses, and what follows them."""
        reader = self._reader
        columns: list[NewColumn] = []
        key = NewIndex()
        unique = False
        while True:
            found = self._parts.index()
            if found is None:
                columns.append(self._parts.column())
                unique = unique or columns[-1].unique
                if columns[-1].is_key:
                    key = NewIndex((columns[-1].name,))
            else:
                unique = unique or found.unique
                key = found if found.key else key
            if not reader.skip(","):
                break
        reader.expect(")")
        charset = self._parts.table_options(commas=True) or self._catalog.charset(schema)
        self._parts.partitions()
        if self._catalog.only_open:
            return Table(tuple(certain(columns, self._dialect)), (), None)
        done = [column.column(charset, self._dialect) for column in columns]
        names = self._parts.key(key, done)
        ends = tuple(column.name for column in columns if column.row_time == "END")
        versioned = self._parts.is_versioned and not ends
        return Table(altered(done, (), ()), (names and names + ends), charset, versioned, unique)

    def _drop(self) -> None:
        reader = self._reader
        kinds = reader.skip_any("TEMPORARY", "ONLINE", "OFFLINE")
        self._forget = lambda: self._forget_named(_any_name)
        what = reader.word()
        if what in ("TABLE", "TABLES", "VIEW", "SEQUENCE"):
            self._parts.exists()
            self.says_temporary = True
            names = [reader.table()]
            while reader.skip(","):
                names.append(reader.table())
            self._parts.wait()
            reader.skip_any("RESTRICT", "CASCADE")
            reader.finish()
            for name in names if "TEMPORARY" not in kinds else ():
                # A name may still be taken after DROP VIEW IF EXISTS: by a table.
                if what.startswith("TABLE"):
                    self._catalog.put(*name, None)
                else:
                    self._take(name)
        elif what == "INDEX":
            self._drop_index()
        elif what in _DATABASE:
            self._parts.exists()
            database = reader.name()
            self._forget = lambda: self._catalog.put_database(database, Database(None))
            reader.finish()
            self._catalog.put_database(database, None)
        elif what not in _OTHER_OBJECTS:
            raise UnreadableError(f"DROP {what}")

    def _drop_index(self) -> None:
        """The primary key may be dropped by its name."""
        self._parts.exists()
        is_primary = self._reader.name().upper() == "PRIMARY"
        self._reader.expect("ON")
        table = self._reader.table()
        if is_primary and not self._catalog.only_open:
            state = self._catalog.get(*table)
            self._catalog.put(*table, replace(state, key=()) if isinstance(state, Table) else UNKNOWN)

    def _rename(self) -> None:
        reader = self._reader
        if reader.word() not in ("TABLE", "TABLES"):
            return  # RENAME USER
        self._forget = lambda: self._forget_named(_any_name)
        pairs = []
        missing = False
        while True:
            missing = self._parts.exists() or missing
            source = reader.table()
            self._parts.wait()
            reader.expect("TO")
            pairs.append((source, reader.table()))
            if not reader.skip(","):
                break
        reader.finish()
        for source, target in pairs:
            self._move(source, target, if_exists=missing)

    def _move(self, source: tuple[str, str], target: tuple[str, str], *, if_exists: bool = False) -> None:
        state = self._catalog.get(*source)
        if if_exists and (not isinstance(state, Table) or state.may_be_gone):
            if state is not None:
                self._catalog.put(*source, UNKNOWN)
                self._catalog.put(*target, UNKNOWN)
            return
        self._catalog.put(*source, None)
        self._catalog.put(*target, self._existing(state))

    # --- databases

    def _create_database(self, *, replaces: bool) -> None:
        if_missing = self._parts.exists()
        name = self._reader.name()
        self._forget = lambda: self._catalog.put_database(name, Database(None))
        charset = self._database_options() or self._context.charset
        state = self._catalog.database(name)
        if not if_missing or replaces or state is None:
            self._catalog.put_database(name, Database(charset, is_complete=True))
        elif isinstance(state, Unknown):
            self._catalog.put_database(name, Database(None))

    def _alter_database(self) -> None:
        name = self._context.schema
        if self._reader.peek() not in _DATABASE_OPTIONS:
            name = self._reader.name()
        if self._reader.peek() == "UPGRADE" or not name:
            raise UnreadableError("a database gets another name")
        self._forget = lambda: self._catalog.put_charset(name, None)
        charset = self._database_options()
        if charset is not None:
            self._catalog.put_charset(name, charset)

    def _database_options(self) -> str | None:
        reader = self._reader
        charset = collation = None
        while not reader.ended:
            reader.skip("DEFAULT")
            if self._parts.skips_charset():
                charset = self._parts.charset()
            elif reader.skip("COLLATE"):
                collation = self._parts.collation() or collation
            elif reader.peek() in ("ENCRYPTION", "COMMENT", "READ"):
                if reader.word() == "READ":
                    reader.expect("ONLY")
                reader.skip("=")
                reader.take()
            else:
                reader.finish()
                break
        return charset or collation

    # --- ALTER TABLE

    def _alter(self) -> None:
        reader = self._reader
        reader.skip_any("ONLINE", "OFFLINE", "IGNORE")
        what = reader.word()
        if what in _DATABASE:
            self._alter_database()
            return
        if what == "SEQUENCE":
            self._parts.exists()
            self._alter_sequence(reader.table())
            return
        if what != "TABLE":
            if what not in _OTHER_OBJECTS and what not in ("VIEW", "ALGORITHM", "DEFINER", "SQL"):
                raise UnreadableError(f"ALTER {what}")
            return
        if_exists = self._parts.exists()
        name = reader.table()
        self._forget = lambda: self._forget_named(_altered_name)
        self._parts.wait()
        state = self._catalog.get(*name)
        if if_exists and state is None and not self._catalog.only_open:
            return
        before = _NO_OPEN_COLUMNS if state is None and self._catalog.only_open else state
        alter = Alter(self._parts, before if isinstance(before, Table) else None, self._default_of(name[0]))
        alter.read()
        new: State = UNKNOWN
        with contextlib.suppress(UnreadableError):
            new = alter.open_part() if self._catalog.only_open else alter.result()
        if if_exists and state is None and open_part(new) is not None:
            new = UNKNOWN
        if if_exists and isinstance(state, Table) and isinstance(new, Table):
            new = replace(new, may_be_gone=state.may_be_gone)
        self._catalog.put(*name, new)
        if alter.gone is not None:
            self._catalog.put(*alter.gone, None)
        if alter.made is not None:
            self._catalog.put(*alter.made, new)
        if alter.target is not None:
            self._move(name, alter.target, if_exists=if_exists)
            if self._dialect.mariadb and not _PLAIN.fullmatch(name[1]):
                self._catalog.put(*name, replace(before, may_be_gone=True) if isinstance(before, Table) else UNKNOWN)

    def _alter_sequence(self, name: tuple[str, str]) -> None:
        self._forget = lambda: self._catalog.put(*name, UNKNOWN)
        numbers = self._type()
        if numbers and self._catalog.get(*name) is not None:
            self._catalog.put(*name, _sequence(numbers))

    def _default_of(self, schema: str) -> str | None:
        """Return what CONVERT TO CHARACTER SET DEFAULT means for tables of this database; None if unknown.

        MySQL and older MariaDB take the default of the session's database, newer MariaDB that of the table's.
        """
        found = self._catalog.charset(self._context.schema) if self._context.schema else None
        return found if not self._dialect.mariadb or found == self._catalog.charset(schema) else None


def _any_name(found: "Sequence[Token]", at: int) -> int:
    """See `_Statement._forget_named`: any word may be the name of a table."""
    return at if found[at - 1].text != "." else 0


def _altered_name(found: "Sequence[Token]", at: int) -> int:
    """See `_Statement._forget_named`: the names of an ALTER TABLE follow TABLE, or RENAME if it is not of a part."""
    word, following = found[at].upper, found[min(at + 1, len(found) - 1)].upper
    if word == "TABLE":
        return at + 1 + sum(it.upper in ("IF", "EXISTS") for it in found[at + 1 : at + 3])
    if word != "RENAME" or following in ("COLUMN", "INDEX", "KEY"):
        return 0
    return at + 2 if following in ("TO", "AS", "=") else at + 1


_NO_OPEN_COLUMNS: Final = Table((), (), None)
_MOST_NAMES: Final = 1000
"""A statement that is not understood and has more names may touch any table."""
_PLAIN: Final = re.compile("[A-Za-z0-9_]+")
_OTHER_HEADS: Final = words(
    "ANALYZE BEGIN BINLOG CACHE CALL CHANGE CHECK CHECKSUM CLONE COMMIT DELETE DELIMITER DO FLUSH GRANT INSERT INSTALL",
    "KILL LOAD LOCK OPTIMIZE PURGE RELEASE REPAIR REPLACE RESET REVOKE ROLLBACK SAVEPOINT SELECT SHUTDOWN START STOP",
    "TRUNCATE UNINSTALL UNLOCK UPDATE USE WITH XA",
)
_OTHER_OBJECTS: Final = words(
    "AGGREGATE EVENT FUNCTION INDEX INSTANCE LIBRARY LOGFILE MASKING PACKAGE PREPARE PROCEDURE REFERENCE RESOURCE ROLE",
    "SERVER SPATIAL TABLESPACE TRIGGER UNDO USER",
)
_DATABASE: Final = frozenset({"DATABASE", "SCHEMA"})
_DATABASE_OPTIONS: Final = words("DEFAULT CHARACTER CHARSET CHAR COLLATE ENCRYPTION COMMENT READ")


def _sequence(numbers: str) -> Table:
    """Return what MariaDB makes of CREATE SEQUENCE (sequence_structure, sql/sql_sequence.cc)."""
    kinds = {
        **dict.fromkeys(("next_not_cached_value", "minimum_value", "maximum_value", "start_value"), numbers),
        "increment": "bigint(21)",
        "cache_size": "bigint(21) unsigned",
        "cycle_option": "tinyint(1) unsigned",
        "cycle_count": "bigint(21)",
    }
    return Table(tuple(Column(*it) for it in kinds.items()), (), None)
