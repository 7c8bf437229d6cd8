"""Reads an ALTER TABLE, and says what it leaves of the columns."""

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from .....protocol.lexer import UnreadableError
from .definitions import DefinitionReader, NewColumn, NewIndex, words
from .tables import Column, Definition, Table, altered, key_of
from .types import widened

if TYPE_CHECKING:
    from collections.abc import Callable


class Alter:
    """An ALTER TABLE that is being read. The columns of a table that is not known are read all the same."""

    def __init__(self, parts: DefinitionReader, table: Table | None, default: str | None) -> None:
        """Read from after the name of the table; None: it is unknown. `default`: what CHARACTER SET DEFAULT is."""
        self._parts = parts
        self._reader = parts.reader
        self._dialect = parts.dialect
        self._table = table
        self._names = {column.name.lower(): column for column in table.columns} if table is not None else {}
        self._definitions: list[tuple[str | None, Callable[[str | None], Column], str | None]] = []
        self._added: set[str] = set()
        self._renamed: dict[str, str] = {}
        self._drops: set[str] = set()
        self._default = default
        self._key: NewIndex | None = None
        self._drops_key = False
        self._charset: str | None = None
        self._converted: str | None = None
        self._conflicts = False  # a column is added, if it is missing, with another type than one of that name has
        self._versioned = table is not None and table.versioned
        self._drops_versioning = False
        self._unique = table is not None and table.unique
        self.target: tuple[str, str] | None = None
        """The new name of the table, if it gets one."""
        self.made: tuple[str, str] | None = None
        """A table that is made of a partition."""
        self.gone: tuple[str, str] | None = None
        """A table that becomes a partition."""
        self._alterations: dict[str, Callable[[], None]] = {
            "ADD": self._add,
            "CHANGE": self._change,
            "MODIFY": self._modify,
            "DROP": self._drop,
            "RENAME": self._rename,
            "ALTER": self._alter,
            "CONVERT": self._conversion,
            "ORDER": self._order,
            "FORCE": self._nothing,
            "ENABLE": self._keys,
            "DISABLE": self._keys,
            "DISCARD": self._tablespace,
            "IMPORT": self._tablespace,
            "WITH": self._validation,
            "WITHOUT": self._validation,
            "ALGORITHM": self._setting,
            "LOCK": self._setting,
        }

    def read(self) -> None:
        """Read to the end. Raises UnreadableError."""
        reader = self._reader
        while not reader.ended and reader.peek() != ";":
            if reader.peek() in _PARTITIONING:  # the rest does not touch columns
                reader.rest()
                return
            self._item()
            if reader.peek() not in ("PARTITION", "REMOVE", ";") and not reader.ended:
                reader.expect(",")
        reader.finish()

    def result(self) -> Table:
        """Return the table afterwards. Raises UnreadableError."""
        table = self._table
        if table is None:
            raise UnreadableError("the table is unknown")
        charset = self._charset or self._converted or table.charset
        columns = table.columns
        if self._converted is not None:
            columns = tuple(self._convert(column, self._converted) for column in columns)
            if columns == table.columns and not self._dialect.mariadb and self._dialect.version < (5, 7):
                charset = None  # MySQL 5.6 may leave the default as it was when there is nothing to convert
            self._names = {column.name.lower(): column for column in columns}
        definitions = [Definition(former, make(charset), place) for former, make, place in self._definitions]
        columns = altered(columns, definitions, self._drops)
        if self._drops_versioning and not table.versioned:
            raise UnreadableError("DROP SYSTEM VERSIONING of a table that names the times of its rows")
        versioned = self._versioned and not self._drops_versioning
        return Table(columns, self._key_after(table, columns), charset, versioned, self._unique)

    def _key_after(self, table: Table, columns: tuple[Column, ...]) -> tuple[str, ...]:
        new = self._key
        if new is not None and new.if_missing and table.key:
            new = None  # also where the same statement drops the one that there is
        if new is not None:
            if self._dialect.mariadb and any(_may_be_row_time(it) for it in columns):
                raise UnreadableError("a primary key, to which MariaDB may add the end of a row's time")
            return self._parts.key(new, columns)
        if self._drops_key:
            return ()
        return key_of(columns, (it for it in map(self._part_after, table.key) if it is not None))

    def open_part(self) -> Table:
        """Return the table afterwards where only its open columns are known. Raises UnreadableError.

        See `Catalog.only_open`: a column that is not known has another type, and it does not matter where one stands.
        """
        if self._table is None or self._conflicts:
            raise UnreadableError("the open columns are unknown")
        gone = self._drops | {former.lower() for former, _, _ in self._definitions if former is not None}
        left = [it for name, it in self._names.items() if name not in gone]
        for _, make, _ in self._definitions:
            with contextlib.suppress(UnreadableError):  # one that is not known, or a text
                left.append(make(None))
        if len({it.name.lower() for it in left}) < len(left):
            raise UnreadableError("two columns of the same name")
        return Table(tuple(left), (), None)

    def _part_after(self, name: str) -> str | None:
        """Return what a part of the primary key is called afterwards; None if it is no longer there."""
        name = name.lower()
        if name in self._renamed and name in self._added:
            raise UnreadableError(f"{name} is renamed and added")
        if name in self._drops and name not in self._added:
            return None
        return self._renamed.get(name, name)

    def _convert(self, column: Column, charset: str) -> Column:
        if column.charset in (None, "binary"):
            return column
        if charset == "binary":
            raise UnreadableError("columns are converted to binary")
        text = widened(column.type, column.charset or "", charset, self._dialect)
        return replace(column, type=text, charset=charset)

    def _item(self) -> None:
        reader = self._reader
        word = reader.peek()
        if word in self._alterations:
            reader.take()
            self._alterations[word]()
        else:
            self._charset = self._parts.table_options(commas=False) or self._charset

    def _add(self) -> None:
        reader = self._reader
        if reader.peek() == "PARTITION":
            reader.rest()
            return
        if reader.peeks("SYSTEM", "VERSIONING"):
            reader.expect("SYSTEM", "VERSIONING")
            self._versioned = True
            return
        reader.skip("COLUMN")
        if_missing = self._parts.exists()
        if reader.skip("("):
            while True:
                self._add_one(if_missing=if_missing, placed=False)
                if not reader.skip(","):
                    break
            reader.expect(")")
        else:
            self._add_one(if_missing=if_missing, placed=True)

    def _add_one(self, *, if_missing: bool, placed: bool) -> None:
        index = self._parts.index()
        if index is not None:
            self._unique = self._unique or index.unique
            if index.key:
                self._add_key(index)
            return
        new = self._parts.column()
        place = self._place() if placed else None
        name = new.name.lower()
        if if_missing and (name in self._names or name in self._added):
            if name in self._names and self._names[name].type != new.type.kind:
                self._conflicts = True
            return
        self._added.add(name)
        self._define(None, new, place, if_missing=if_missing)

    def _add_key(self, key: NewIndex) -> None:
        if not (key.if_missing and self._key):
            self._key = key

    def _define(self, former: str | None, new: NewColumn, place: str | None, *, if_missing: bool = False) -> None:
        self._unique = self._unique or new.unique
        if new.is_key:
            self._add_key(NewIndex((new.name,), if_missing=if_missing))

        def make(charset: str | None) -> Column:
            if new.row_time:
                raise UnreadableError("the time of a row in a table that was made before")
            if self._converted is None or not new.type.is_text:
                return new.column(charset, self._dialect)
            if former is not None and new.type.kind == "text" and not self._dialect.mariadb:
                raise UnreadableError("a text is both defined and converted")  # MySQL widens it; MariaDB does not
            if "binary" in (self._converted, new.type.charset):
                raise UnreadableError("columns are converted to binary")
            return replace(new, type=replace(new.type, charset=self._converted)).column(None, self._dialect)

        self._definitions.append((former, make, place))

    def _place(self) -> str | None:
        if self._reader.skip("FIRST"):
            return ""
        return self._reader.name() if self._reader.skip("AFTER") else None

    def _change(self) -> None:
        self._reader.skip("COLUMN")
        if_exists = self._parts.exists()
        former = self._reader.name()
        new = self._parts.column()
        self._redefine(former, new, if_exists=if_exists)

    def _modify(self) -> None:
        self._reader.skip("COLUMN")
        if_exists = self._parts.exists()
        new = self._parts.column()
        self._redefine(new.name, new, if_exists=if_exists)

    def _redefine(self, former: str, new: NewColumn, *, if_exists: bool) -> None:
        place = self._place()
        if former.lower() in self._names or not if_exists:
            self._renamed[former.lower()] = new.name
            self._define(former, new, place)

    def _drop(self) -> None:
        reader = self._reader
        word = reader.peek()
        if word == "PRIMARY":
            reader.expect("PRIMARY", "KEY")
            self._drops_key = True
        elif word == "PARTITION":
            reader.rest()
        elif reader.peeks("SYSTEM", "VERSIONING"):
            reader.expect("SYSTEM", "VERSIONING")
            self._drops_versioning = True
        elif reader.peeks("PERIOD", "IF") or reader.peeks("PERIOD", "FOR"):
            reader.take()
            self._parts.exists()
            reader.expect("FOR")
            reader.name()
        elif word in ("INDEX", "KEY", "FOREIGN", "CHECK", "CONSTRAINT"):
            reader.take()
            if word == "FOREIGN":
                reader.expect("KEY")
            self._parts.exists()
            if reader.name().upper() == "PRIMARY":
                self._drops_key = True
        else:
            reader.skip("COLUMN")
            if_exists = self._parts.exists()
            name = reader.name().lower()
            reader.skip_any("RESTRICT", "CASCADE")
            if name in self._names or not if_exists:
                self._drops.add(name)

    def _rename(self) -> None:
        reader = self._reader
        if reader.skip("COLUMN"):
            if_exists = self._parts.exists()
            former = reader.name()
            reader.expect("TO")
            name = reader.name()
            if not (if_exists and former.lower() not in self._names):
                self._renamed[former.lower()] = name
                self._modified(former, name=name)
        elif reader.skip("INDEX") or reader.skip("KEY"):
            self._parts.exists()
            reader.name()
            reader.expect("TO")
            reader.name()
        else:
            reader.skip_any("TO", "AS", "=")
            self.target = reader.table()

    def _modified(self, former: str, *, name: str | None = None, invisible: bool | None = None) -> None:
        """A column keeps its definition but for this."""

        def make(charset: str | None) -> Column:
            del charset
            column = self._names.get(former.lower())
            if column is None:
                raise UnreadableError(f"there is no column {former}")
            new = replace(column, name=column.name if name is None else name)
            return new if invisible is None else replace(new, invisible=invisible)

        self._definitions.append((former, make, None))

    def _alter(self) -> None:
        reader = self._reader
        if reader.peek() in ("INDEX", "KEY", "CHECK", "CONSTRAINT"):
            reader.item()
            return
        reader.skip("COLUMN")
        if_exists = self._parts.exists()
        name = reader.name()
        if reader.skip("DROP", "DEFAULT"):
            return
        reader.expect("SET")
        if reader.skip("DEFAULT"):
            self._parts.default()
        elif not (if_exists and name.lower() not in self._names):
            word = reader.word()
            if word not in ("VISIBLE", "INVISIBLE"):
                raise UnreadableError(f"ALTER COLUMN SET {word}")
            self._modified(name, invisible=word == "INVISIBLE")

    def _conversion(self) -> None:
        reader, parts = self._reader, self._parts
        if reader.skip("PARTITION"):
            reader.name()
            reader.expect("TO", "TABLE")
            self.made = reader.table()
            reader.rest()  # WITH VALIDATION
            return
        if reader.skip("TABLE"):
            self.gone = reader.table()
            reader.rest()
            return
        reader.expect("TO")
        if not parts.skips_charset():
            raise UnreadableError("CONVERT TO something else than a character set")
        if reader.skip("DEFAULT"):
            if self._default is None:
                raise UnreadableError("the default character set is unknown")
            self._converted = self._default
        else:
            self._converted = parts.charset()
        if self._reader.skip("COLLATE"):
            parts.collation()

    def _order(self) -> None:
        reader = self._reader
        reader.expect("BY")
        while True:
            reader.name()
            while reader.skip("."):
                reader.name()
            reader.skip_any("ASC", "DESC")
            if not reader.skip(","):
                return

    def _keys(self) -> None:
        self._reader.expect("KEYS")

    def _tablespace(self) -> None:
        if self._reader.peek() == "PARTITION":
            self._reader.rest()
            return
        self._reader.expect("TABLESPACE")

    def _validation(self) -> None:
        self._reader.expect("VALIDATION")

    def _setting(self) -> None:
        self._reader.skip("=")
        self._reader.name()

    def _nothing(self) -> None:
        """The word changes no column."""


def _may_be_row_time(column: Column) -> bool:
    return column.generated and column.type in ("timestamp(6)", "bigint(20) unsigned")


_PARTITIONING: Final = words(
    "PARTITION REMOVE COALESCE REORGANIZE EXCHANGE ANALYZE CHECK OPTIMIZE REBUILD REPAIR TRUNCATE UPGRADE",
    "SECONDARY_LOAD SECONDARY_UNLOAD",
)
