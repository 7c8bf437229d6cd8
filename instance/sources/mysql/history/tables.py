"""What tables are made of, and which tables there are."""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, NamedTuple, get_args

from .....protocol.lexer import UnreadableError
from ....columns import SourceColumn

OPEN: Final[Mapping[str, tuple[str, ...]]] = {
    "binary(16)": ("binary(16)", "uuid", "inet6"),
    "binary(4)": ("binary(4)", "inet4"),
}
"""What a type may be that MariaDB's full metadata writes."""
OPEN_TYPES: Final = frozenset(it for types in OPEN.values() for it in types)


_BEYOND_BMP: Final = frozenset({"utf8mb4", "utf16", "utf16le", "utf32", "gb18030"})
LOST: Final = "\ufffd"
"""In a `Column.type`: a question mark, or something in a label that a server does not show."""
LOST_EMPTY: Final = "\ufffe"
"""The same for a label that is shown as if it were empty, and may be."""
_SHOWN: Final = str.maketrans({LOST: "?", LOST_EMPTY: None})
_LABEL: Final = re.compile(r"x?'(?:[^'\\]|\\.|'')*+'")


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
    versioned: bool = False
    """Its rows have two more columns at the end, which MariaDB's WITH SYSTEM VERSIONING adds and nobody names."""
    unique: bool = field(default=False, compare=False)
    """It has or had a UNIQUE: its rows may have one more column at the end for each, which MariaDB does not show."""
    may_be_gone: bool = field(default=False, compare=False)
    """ALTER TABLE has renamed it: if MariaDB copied the rows, it leaves a table of a name like `w x` as it was."""

    def source_columns(self) -> list[SourceColumn]:
        """Return the columns as the decoder wants them."""
        key = {name.lower() for name in self.key}
        columns = [
            SourceColumn(it.name, it.type.translate(_SHOWN), it.charset, it.name.lower() in key) for it in self.columns
        ]
        return [*columns, *ROW_TIMES] if self.versioned else columns

    @property
    def has_lost_labels(self) -> bool:
        """Whether a label of an ENUM or SET may have other characters than are known: see `as_shown`."""
        return any(LOST in it.type or LOST_EMPTY in it.type for it in self.columns)


ROW_TIMES: Final = (SourceColumn("row_start", "timestamp(6)"), SourceColumn("row_end", "timestamp(6)"))
"""What MariaDB's WITH SYSTEM VERSIONING adds to a table; information_schema does not show it."""


def as_shown(column: Column, *, mariadb: bool) -> Column:
    """Return what is known by a column that a server shows, as text or in information_schema.

    A label has a question mark for each character beyond the BMP, and for bytes that are no characters: CONVERT TO
    CHARACTER SET leaves such. MySQL may show these as x'e9' instead, or in utf8mb4 an empty label.
    """
    if not column.type.startswith(("enum(", "set(")):
        return column

    def marked(label: re.Match[str]) -> str:
        if label[0][0] == "x":
            return f"'{LOST}'"
        if label[0] == "''" and column.charset == "utf8mb4" and not mariadb:
            return f"'{LOST_EMPTY}'"
        return label[0].replace("?", LOST) if column.charset in _BEYOND_BMP else label[0]

    return replace(column, type=_LABEL.sub(marked, column.type))


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
    tables: dict[str, State | str] = field(default_factory=dict)
    """A text is that of `CatalogChange.body`, until it is asked for."""
    is_complete: bool = False
    """A name that is not in `tables` does not exist; otherwise nothing is known about it."""


Kind = Literal["table", "charset", "database", "all"]


class CatalogChange(NamedTuple):
    """What has become of a table or of more, as it can be stored."""

    kind: Kind
    """A table; the default of a database; all of a database; all there is."""
    schema: str = ""
    table: str = ""
    body: str | None = None
    """JSON of what it is now; None if it is gone."""

    @property
    def name(self) -> str:
        """``schema.table``, the schema, or ``*``."""
        return f"{self.schema}.{self.table}" if self.kind == "table" else self.schema or "*"


_ONLY_OPEN: Final = ('"open"', '"all open"')
"""What stands for `Catalog.is_complete` where a catalogue is `Catalog.only_open`."""
_TEXTS: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


_MARKS: Final = ("versioned", "unique", "may_be_gone")


def encode(state: State) -> str | None:
    """Return the `CatalogChange.body` of a table."""
    if isinstance(state, Table):
        columns = [[it.name, it.type, it.charset, it.generated, it.invisible] for it in state.columns]
        marks = {name: True for name in _MARKS if getattr(state, name)}
        return _TEXTS({"columns": columns, "key": state.key, "charset": state.charset, **marks})
    return None if state is None else "{}"


def decode(body: str | None) -> State:
    """Return the table of a `CatalogChange.body`."""
    if body is None:
        return None
    found = json.loads(body)
    if not found:
        return UNKNOWN
    columns = tuple(Column(*it) for it in found["columns"])
    marks = [found.get(name, False) for name in _MARKS]
    return Table(columns, tuple(found["key"]), found["charset"], *marks)


def open_part(state: State) -> State:
    """Return what `Catalog.only_open` keeps of a table."""
    if not isinstance(state, Table):
        return state
    columns = tuple(it for it in state.columns if it.type in OPEN_TYPES)
    return Table(columns, (), None, may_be_gone=state.may_be_gone) if columns else None


class Catalog:
    """The tables of a source at one place of its binlog, as far as they are known."""

    def __init__(self, *, ignore_case: bool = False, only_open: bool = False) -> None:
        """Know nothing yet. `ignore_case`: lower_case_table_names is not 0."""
        self._ignore_case = ignore_case
        self.only_open = only_open
        """It has nothing but the columns whose type is one of `OPEN_TYPES`, and no table without them: None then says
        that a table has no such column, or does not exist."""
        self._databases: dict[str, Database | None] = {}
        self.is_complete = False
        """A database that is not known here does not exist."""
        self.changes: list[CatalogChange] = []
        """What has changed since the owner emptied this list."""

    def get(self, schema: str, table: str) -> State:
        """Return what is known of a table."""
        database = self.database(schema)
        if not isinstance(database, Database):
            return database
        table = self._key(table)
        state = database.tables.get(table, None if database.is_complete else UNKNOWN)
        if isinstance(state, str):
            state = database.tables[table] = decode(state)
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
        if self.only_open:
            state = open_part(state)
            if not isinstance(state, Unknown) and state == self.get(schema, table):
                return
        self._known(schema).tables[self._key(table)] = state
        self.changes.append(CatalogChange("table", schema, table, encode(state)))

    def put_charset(self, schema: str, charset: str | None) -> None:
        """Note what new tables of the database have by default from now on."""
        if self.only_open:
            return
        self._known(schema).charset = charset
        self.changes.append(CatalogChange("charset", schema, body=_TEXTS(charset)))

    def put_database(self, schema: str, database: Database | None) -> None:
        """Note all there is to know about a database, without its tables."""
        if self.only_open and self.database(schema) is None and (database is None or database.is_complete):
            return
        self._databases[self._key(schema)] = database
        self.changes.append(_database(schema, database))

    def forget_all(self) -> None:
        """Know of no table any more; what databases have by default stays."""
        charsets = {name: it.charset for name, it in self._databases.items() if it is not None}
        self._databases.clear()
        self.is_complete = False
        self.changes.append(self._all())
        for name, charset in charsets.items():
            if charset is not None:
                self.put_charset(name, charset)

    def learn(self, schema: str, database: Database) -> None:
        """Note which tables a database has, and what they are; what is known of each of them stays."""
        known = self._known(schema)
        known.charset = database.charset
        known.is_complete = database.is_complete
        for name, state in database.tables.items():
            known.tables.setdefault(self._key(name), state)

    def everything(self) -> Iterator[CatalogChange]:
        """Give the changes that make this catalogue of an empty one."""
        yield self._all()
        for schema, database in self._databases.items():
            yield _database(schema, database)
            for table, state in database.tables.items() if database is not None else ():
                yield CatalogChange("table", schema, table, state if isinstance(state, str) else encode(state))

    def tables(self) -> Iterator[tuple[tuple[str, str], State]]:
        """Give schema and name of all tables of which something is known, and what that is."""
        for schema, database in self._databases.items():
            for table in list(database.tables) if database is not None else ():
                if (state := self.get(schema, table)) is not None:
                    yield (schema, table), state

    def replay(self, changes: Iterable[CatalogChange]) -> None:
        """CatalogChange what was changed then."""
        for change in changes:
            schema, body = self._key(change.schema), change.body
            if change.kind == "table":
                self._known(schema).tables[self._key(change.table)] = body
            elif change.kind == "charset":
                self._known(schema).charset = json.loads(body or "null")
            elif change.kind == "database":
                found = None if body is None else json.loads(body)
                known = None if found is None else Database(found["charset"], is_complete=found["complete"])
                self._databases[schema] = known
            else:
                self._databases.clear()
                self.only_open = body in _ONLY_OPEN
                self.is_complete = body in ("true", _ONLY_OPEN[True])
            self.changes.append(change)

    def check(self, changes: Sequence[CatalogChange]) -> None:
        """Raise ValueError, KeyError or TypeError when changes cannot be replayed."""
        for it in changes:
            if it.kind not in get_args(Kind):
                raise ValueError(f"{it.kind!r} is not one of {', '.join(get_args(Kind))}")
            if it.kind == "table":
                decode(it.body)
        self.replay(changes)

    def _all(self) -> CatalogChange:
        body = _ONLY_OPEN[self.is_complete] if self.only_open else _TEXTS(self.is_complete)
        return CatalogChange("all", body=body)

    def _known(self, schema: str) -> Database:
        """Return what is known of a database, to note more of it."""
        found = self.database(schema)
        if not isinstance(found, Database):
            is_complete = self.only_open and found is None
            found = self._databases[self._key(schema)] = Database(None, is_complete=is_complete)
        return found

    def _key(self, name: str) -> str:
        return name.lower() if self._ignore_case else name


def _database(schema: str, database: Database | None) -> CatalogChange:
    body = None if database is None else _TEXTS({"charset": database.charset, "complete": database.is_complete})
    return CatalogChange("database", schema, body=body)


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

    The order is the server's: columns move and are added one after the other as they are written, and one that moves
    is where it was until then. Raises UnreadableError if the statement does not fit the columns.
    """
    stays: dict[str, Column] = {column.name.lower(): column for column in columns}
    changes: set[str] = set()
    for definition in definitions:
        former = None if definition.former is None else definition.former.lower()
        if former is not None:
            if former not in stays or former in changes or former in drops:
                raise UnreadableError(f"the column {former} cannot be changed")
            changes.add(former)
            stays[former] = definition.column
    for name in drops:
        if name not in stays:
            raise UnreadableError(f"the column {name} cannot be dropped")
        del stays[name]
    result = list(stays.values())
    for definition in definitions:
        if definition.former is not None:
            if definition.place is None:
                continue
            result.remove(definition.column)
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
