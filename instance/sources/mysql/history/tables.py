"""What tables are made of, and which tables there are."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from ....columns import SourceColumn
from .lexer import UnreadableError


@dataclass(frozen=True, slots=True)
class Column:
    """A column; `type` and `charset` are as information_schema writes COLUMN_TYPE and CHARACTER_SET_NAME."""

    name: str
    type: str
    charset: str | None = None
    generated: bool = False
    invisible: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table at one time."""

    columns: tuple[Column, ...]
    key: tuple[str, ...]
    """The columns of the primary key, in its order."""
    charset: str | None
    """What new columns have by default; None if unknown."""

    def source_columns(self) -> list[SourceColumn]:
        """Return the columns as the decoder wants them."""
        key = {name.lower() for name in self.key}
        return [SourceColumn(it.name, it.type, it.charset, it.name.lower() in key) for it in self.columns]


class Unknown:
    """In the place of a Table: it may exist or not, with any columns."""


UNKNOWN: Final = Unknown()
State = Table | Unknown | None
"""What is known of a name; None: there is no such table."""


@dataclass(slots=True)
class Database:
    """The tables of a database."""

    charset: str | None
    """What new tables have by default; None if unknown."""
    tables: dict[str, State] = field(default_factory=dict)
    is_complete: bool = False
    """A name that is not in `tables` does not exist; otherwise nothing is known about it."""


@dataclass(frozen=True, slots=True)
class Touched:
    """What a statement may have changed: a table, all tables of a database, or all tables (both None)."""

    schema: str | None = None
    table: str | None = None


class Catalog:
    """The tables of a source at one place of its binlog, as far as they are known."""

    def __init__(self, *, ignore_case: bool = False, ask: Callable[[str, str], State] | None = None) -> None:
        """Know nothing yet. `ignore_case`: lower_case_table_names is not 0.

        `ask` is asked for a table that is unknown here, and returns what is certain at this place.
        """
        self._ignore_case = ignore_case
        self._ask = ask
        self._databases: dict[str, Database | None] = {}
        self.is_complete = False
        """A database that is not known here does not exist."""
        self.touched: list[Touched] = []
        """What has changed since the owner emptied this list."""

    def get(self, schema: str, table: str) -> State:
        """Return what is known of a table."""
        database = self.database(schema)
        table = self._key(table)
        state: State
        if database is None:
            return None
        state = UNKNOWN
        if isinstance(database, Database):
            state = database.tables.get(table, None if database.is_complete else UNKNOWN)
        if state is UNKNOWN and self._ask is not None:
            state = self._ask(self._key(schema), table)
        return state

    def database(self, schema: str) -> Database | Unknown | None:
        """Return what is known of a database; None: there is no such database."""
        return self._databases.get(self._key(schema), None if self.is_complete else UNKNOWN)

    def charset(self, schema: str) -> str | None:
        """Return what tables of the database have by default; None if unknown."""
        database = self.database(schema)
        return database.charset if isinstance(database, Database) else None

    def put(self, schema: str, table: str, state: State) -> None:
        """Note what a table is now."""
        self._known(schema).tables[self._key(table)] = state
        self.touched.append(Touched(schema, table))

    def put_charset(self, schema: str, charset: str | None) -> None:
        """Note what new tables of the database have by default from now on."""
        self._known(schema).charset = charset

    def put_database(self, schema: str, database: Database | None) -> None:
        """Note all there is to know about a database."""
        if database is not None:
            tables = {self._key(name): state for name, state in database.tables.items()}
            database = replace(database, tables=tables)
        self._databases[self._key(schema)] = database
        self.touched.append(Touched(schema))

    def learn(self, schema: str, database: Database) -> None:
        """Note which tables a database has, and their default; what is known of each of them stays."""
        known = self._known(schema)
        known.charset = database.charset
        known.is_complete = database.is_complete
        for name in database.tables:
            known.tables.setdefault(self._key(name), UNKNOWN)

    def forget_all(self) -> None:
        """Know nothing any more."""
        self._databases.clear()
        self.is_complete = False
        self.touched.append(Touched())

    def _known(self, schema: str) -> Database:
        """Return what is known of a database, to note more of it."""
        found = self.database(schema)
        if not isinstance(found, Database):
            found = self._databases[self._key(schema)] = Database(None)
        return found

    def _key(self, name: str) -> str:
        return name.lower() if self._ignore_case else name


@dataclass(frozen=True, slots=True)
class Definition:
    """What an ALTER TABLE says of one column."""

    former: str | None
    """The name of the column that it changes, None if it adds one."""
    column: Column
    place: str | None
    """"" for the first, the name of the column before it, or None for where it is, or for the end if it is new."""


def altered(columns: Sequence[Column], definitions: Sequence[Definition], drops: Collection[str]) -> tuple[Column, ...]:
    """Return the columns after an ALTER TABLE that drops those with the names `drops`, in lower case.

    The order is the server's: first the columns that stay where they are, then those that move and those that are new,
    as they are written. Raises UnreadableError if the statement does not fit the columns.
    """
    stays: dict[str, Column] = {column.name.lower(): column for column in columns}
    placed = []
    changes: set[str] = set()
    for definition in definitions:
        former = None if definition.former is None else definition.former.lower()
        if former is not None:
            if former not in stays or former in changes or former in drops:
                raise UnreadableError(f"the column {former} cannot be changed")
            changes.add(former)
        if former is not None and definition.place is None:
            stays[former] = definition.column
        else:
            placed.append(definition)
            stays.pop(former or "", None)
    for name in drops:
        if name not in stays:
            raise UnreadableError(f"the column {name} cannot be dropped")
        del stays[name]
    result = list(stays.values())
    for definition in placed:
        at = len(result)
        if definition.place is not None:
            at = 0 if not definition.place else _index(result, definition.place) + 1
        result.insert(at, definition.column)
    if not result or len({column.name.lower() for column in result}) < len(result):
        raise UnreadableError("two columns of the same name, or none")
    return tuple(result)


def key_of(columns: Sequence[Column], names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of a key's columns as they are written in the table. Raises UnreadableError."""
    return tuple(columns[_index(columns, name)].name for name in names)


def _index(columns: Sequence[Column], name: str) -> int:
    for index, column in enumerate(columns):
        if column.name.lower() == name.lower():
            return index
    raise UnreadableError(f"there is no column {name}")
