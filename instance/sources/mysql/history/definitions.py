"""Reads what statements say of columns, keys and the options of tables."""

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from .....protocol.lexer import Dialect, UnreadableError
from .reader import Reader
from .tables import Column, key_of
from .types import ColumnType, charset_of, charset_of_collation, read_collation, read_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence


@dataclass(slots=True)
class NewColumn:
    """A column as a statement defines it."""

    name: str
    type: ColumnType
    generated: bool = False
    invisible: bool = False
    is_key: bool = False
    unique: bool = False
    row_time: str = ""
    """START or END: MariaDB keeps there from or until when a row was so."""

    def column(self, charset: str | None, dialect: Dialect) -> Column:
        """Return the column, where `charset` is the default. Raises UnreadableError."""
        text, charset = self.type.resolve(charset, dialect)
        return Column(self.name, text, charset, self.generated, self.invisible)


def certain(columns: "Iterable[NewColumn]", dialect: Dialect) -> "Iterator[Column]":
    """Give those columns whose types follow from their own definitions, whatever the default character set is."""
    for column in columns:
        with suppress(UnreadableError):
            yield column.column(None, dialect)


@dataclass(frozen=True, slots=True)
class NewIndex:
    """An index or a constraint as a statement defines it."""

    key: tuple[str, ...] = ()
    """The columns of a primary key; none for any other."""
    unique: bool = False
    if_missing: bool = False
    """It is made only where there is none."""
    period: str = ""
    """What MariaDB's WITHOUT OVERLAPS adds to a primary key."""


class DefinitionReader:
    """Reads parts of statements; what is not understood with certainty is an UnreadableError."""

    def __init__(self, reader: Reader, dialect: Dialect, sql_mode: int) -> None:
        """Read what `reader` comes to."""
        self.reader = reader
        self.dialect = dialect
        self.sql_mode = sql_mode
        self.is_versioned = False
        """MariaDB's WITH SYSTEM VERSIONING was read."""
        self.periods: dict[str, tuple[str, str]] = {}
        """The columns where MariaDB's periods start and end, by their names in lower case."""
        self._attributes: dict[str, Callable[[NewColumn], None]] = {
            **dict.fromkeys(("NULL", "AUTO_INCREMENT", "VIRTUAL", "STORED", "PERSISTENT", "VISIBLE"), self._nothing),
            **dict.fromkeys(("COLUMN_FORMAT", "STORAGE", "SRID", "REF_SYSTEM_ID"), self._one_value),
            **dict.fromkeys(("ENGINE_ATTRIBUTE", "SECONDARY_ENGINE_ATTRIBUTE"), self._one_value),
            "NOT": self._not,
            "DEFAULT": self._default,
            "ON": self._on,
            "REFERENCES": self._references,
            "CHECK": self._check,
            "CONSTRAINT": self._constraint,
            "GENERATED": self._generated,
            "AS": self._as,
            "WITH": self._with,
            "WITHOUT": self._without,
            "KEY": self._key,
            "PRIMARY": self._primary,
            "UNIQUE": self._unique,
            "INVISIBLE": self._invisible,
            "COLLATE": self._collate,
            "COMMENT": self._comment,
            "SERIAL": self._serial,
        }

    def exists(self) -> bool:
        """Read IF EXISTS or IF NOT EXISTS."""
        if not self.reader.skip("IF"):
            return False
        self.reader.skip("NOT")
        self.reader.expect("EXISTS")
        return True

    def wait(self) -> None:
        """Read how long MariaDB waits for a lock."""
        if self.reader.skip("WAIT"):
            self.reader.take()
        self.reader.skip("NOWAIT")

    def skips_charset(self) -> bool:
        """Read the words before the name of a character set; say whether they were there."""
        reader = self.reader
        return reader.skip("CHARSET") or reader.skip("CHARACTER", "SET") or reader.skip("CHAR", "SET")

    def charset(self) -> str:
        """Read the name of a character set."""
        self.reader.skip("=")
        return charset_of(self.reader.value(), self.dialect)

    def collation(self) -> str | None:
        """Read the name of a collation; return its character set, None if it goes with any."""
        self.reader.skip("=")
        return charset_of_collation(self.reader.value(), self.dialect)

    def index(self) -> NewIndex | None:
        """Read an index, a constraint or a period if one comes next."""
        reader = self.reader
        if reader.peeks("PERIOD", "FOR") or reader.peeks("PERIOD", "IF"):
            reader.take()
            self.exists()
            reader.expect("FOR")
            name = reader.name()
            reader.expect("(")
            start = reader.name()
            reader.expect(",")
            self.periods[name.lower()] = start, reader.name()
            reader.expect(")")
            return NewIndex()
        if_missing = False
        if reader.skip("CONSTRAINT"):
            if_missing = self.exists()
            if reader.peek() not in ("PRIMARY", "UNIQUE", "FOREIGN", "CHECK"):
                reader.name()
            if reader.peek() not in ("PRIMARY", "UNIQUE", "FOREIGN", "CHECK"):
                raise UnreadableError("a constraint of an unknown kind")
        word = reader.peek()
        if word == "PRIMARY":
            reader.expect("PRIMARY", "KEY")
            if_missing = self.exists() or if_missing
            while reader.peek() != "(":
                reader.take()
            key, period = self._key_parts()
            reader.item()
            return NewIndex(key, if_missing=if_missing, period=period)
        if word in ("INDEX", "KEY", "UNIQUE", "FULLTEXT", "SPATIAL", "FOREIGN", "CHECK"):
            reader.item()
            return NewIndex(unique=word == "UNIQUE")
        return None

    def _key_parts(self) -> tuple[tuple[str, ...], str]:
        reader = self.reader
        reader.expect("(")
        parts = []
        period = ""
        while True:
            name = reader.name()
            if reader.skip("WITHOUT", "OVERLAPS"):
                period = name
                break
            parts.append(name)
            reader.numbers(1)
            reader.skip_any("ASC", "DESC")
            if not reader.skip(","):
                break
        reader.expect(")")
        return tuple(parts), period

    def key(self, index: NewIndex, columns: "Sequence[Column]") -> tuple[str, ...]:
        """Return the columns of a primary key as the server has it. Raises UnreadableError."""
        if not index.period:
            return key_of(columns, index.key)
        if index.period.lower() not in self.periods:
            raise UnreadableError(f"the columns of the period {index.period} are not known")
        start, end = self.periods[index.period.lower()]
        return key_of(columns, (*index.key, end, start))

    def column(self) -> NewColumn:
        """Read a column: its name, its type, and what else is said of it."""
        reader = self.reader
        column = NewColumn(reader.name(), read_type(reader, self.dialect, self.sql_mode))
        while reader.peek() not in _AFTER_COLUMN and not reader.ended:
            word = reader.word()
            if word not in self._attributes:
                raise UnreadableError(f"{word} in the definition of {column.name}")
            self._attributes[word](column)
        return column

    def _not(self, column: NewColumn) -> None:
        del column
        if not self.reader.skip("SECONDARY"):
            self.reader.expect("NULL")

    def _default(self, column: NewColumn) -> None:
        del column
        self.default()

    def default(self) -> None:
        """Read the value that a column has by default."""
        reader = self.reader
        if reader.peek() == "(":
            reader.parentheses()
            return
        reader.skip_any("+", "-")
        token = reader.take()
        if token.kind == "string":
            if reader.at_string:
                reader.strings()
        elif token.kind == "word":
            word = token.upper
            if word[0] == "_" and not reader.at_string:
                word = reader.word()  # _latin1 X'41', _latin1 0x41
            if reader.at_string and (word[0] == "_" or word in _BEFORE_STRINGS):
                reader.strings()
            elif word == "NEXT":
                reader.expect("VALUE", "FOR")
                reader.table()
            elif reader.peek() == "(":
                reader.parentheses()
        elif token.kind != "number":
            raise UnreadableError(f"{token.text!r} as a default")

    def _on(self, column: NewColumn) -> None:
        del column
        reader = self.reader
        if reader.word() not in ("UPDATE", "DELETE"):
            raise UnreadableError("ON in the definition of a column")
        if not (reader.skip("NO", "ACTION") or reader.skip("SET", "NULL") or reader.skip("SET", "DEFAULT")):
            reader.name()
            if reader.peek() == "(":
                reader.parentheses()

    def _references(self, column: NewColumn) -> None:
        del column
        self.reader.name()
        if self.reader.skip("."):
            self.reader.name()
        if self.reader.peek() == "(":
            self.reader.parentheses()
        if self.reader.skip("MATCH"):
            self.reader.take()

    def _check(self, column: NewColumn) -> None:
        del column
        self.reader.parentheses()
        self.reader.skip("NOT", "ENFORCED")
        self.reader.skip("ENFORCED")

    def _constraint(self, column: NewColumn) -> None:
        if self.reader.peek() not in ("CHECK", "PRIMARY", "UNIQUE", "REFERENCES"):
            self.reader.name()
        if not self.reader.skip("CHECK"):
            raise UnreadableError("a constraint in the definition of a column")
        self._check(column)

    def _generated(self, column: NewColumn) -> None:
        self.reader.expect("ALWAYS", "AS")
        self._as(column)

    def _as(self, column: NewColumn) -> None:
        if self.reader.skip("ROW"):
            column.row_time = self.reader.word()
        else:
            self.reader.parentheses()
        column.generated = True

    def _with(self, column: NewColumn) -> None:
        del column
        self.reader.expect("SYSTEM", "VERSIONING")
        self.is_versioned = True

    def _without(self, column: NewColumn) -> None:
        del column
        self.reader.expect("SYSTEM", "VERSIONING")

    def _key(self, column: NewColumn) -> None:
        column.is_key = True

    def _primary(self, column: NewColumn) -> None:
        self.reader.skip("KEY")
        column.is_key = True

    def _unique(self, column: NewColumn) -> None:
        self.reader.skip("KEY")
        column.unique = True

    def _invisible(self, column: NewColumn) -> None:
        column.invisible = True

    def _collate(self, column: NewColumn) -> None:
        read_collation(self.reader, column.type, self.dialect)

    def _comment(self, column: NewColumn) -> None:
        del column
        self.reader.strings()

    def _one_value(self, column: NewColumn) -> None:
        del column
        self.reader.skip("=")
        self.reader.take()

    def _serial(self, column: NewColumn) -> None:
        del column
        self.reader.expect("DEFAULT", "VALUE")

    def _nothing(self, column: NewColumn) -> None:
        """The word does not change what a column is."""

    def table_options(self, *, commas: bool) -> str | None:
        """Read options of a table as far as there are any; return the character set that they set.

        `commas`: there may be commas between them, as in CREATE TABLE.
        """
        reader = self.reader
        charset = collation = None
        while True:
            if reader.peek() == "DEFAULT":
                reader.take()
                if reader.peek() not in ("CHARACTER", "CHARSET", "CHAR", "COLLATE"):
                    raise UnreadableError("DEFAULT before an option of a table")
            if self.skips_charset():
                charset = self.charset()
            elif reader.skip("COLLATE"):
                collation = self.collation() or collation
            elif reader.peeks("WITH", "SYSTEM"):
                reader.expect("WITH", "SYSTEM", "VERSIONING")
                self.is_versioned = True
            elif reader.peek() in ("DATA", "INDEX"):
                reader.take()
                reader.expect("DIRECTORY")
                self._option_value()
            elif reader.peek() in _TABLE_OPTIONS:
                word = reader.word()
                self._option_value()
                if word == "TABLESPACE" and reader.skip("STORAGE"):
                    reader.take()
            elif not (reader.skip("START", "TRANSACTION") or (commas and reader.skip(","))):
                return charset or collation

    def _option_value(self) -> None:
        reader = self.reader
        reader.skip("=")
        if reader.peek() == "(":
            reader.parentheses()
        else:
            token = reader.take()
            if token.kind == "symbol":
                raise UnreadableError(f"{token.text!r} is not the value of an option")

    def partitions(self) -> None:
        """Read how a table is divided, to the end: a SELECT after it would add columns."""
        reader = self.reader
        if not reader.skip("PARTITION", "BY"):
            return
        if reader.peek() == "SYSTEM_TIME" and not self.is_versioned:
            raise UnreadableError("partitions by the times of rows that are not kept")
        while not reader.ended and reader.peek() != ";":
            if reader.peek() == "(":
                reader.parentheses()
            elif reader.take().upper in ("AS", "SELECT", "WITH", "IGNORE", "REPLACE", "TABLE", "VALUES"):
                raise UnreadableError("more than partitions")


def words(*lines: str) -> frozenset[str]:
    """Return the words of the lines."""
    return frozenset(word for line in lines for word in line.split())


_BEFORE_STRINGS: Final = words("N X B DATE TIME TIMESTAMP")
_AFTER_COLUMN: Final = words(", ) ; FIRST AFTER PARTITION REMOVE")
_TABLE_OPTIONS: Final = words(
    "ENGINE TYPE AUTO_INCREMENT AUTOEXTEND_SIZE AVG_ROW_LENGTH CHECKSUM TABLE_CHECKSUM COMMENT COMPRESSION CONNECTION",
    "DELAY_KEY_WRITE ENCRYPTION ENCRYPTED ENCRYPTION_KEY_ID ENGINE_ATTRIBUTE IETF_QUOTES INSERT_METHOD KEY_BLOCK_SIZE",
    "MAX_ROWS MIN_ROWS PACK_KEYS PAGE_CHECKSUM PAGE_COMPRESSED PAGE_COMPRESSION_LEVEL PASSWORD ROW_FORMAT",
    "SECONDARY_ENGINE SECONDARY_ENGINE_ATTRIBUTE STATS_AUTO_RECALC STATS_PERSISTENT STATS_SAMPLE_PAGES STORAGE",
    "TABLESPACE TRANSACTIONAL UNION",
)
