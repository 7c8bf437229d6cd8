"""Columns of tables that are read: how their values are selected, ordered and written as literals."""

import re
from dataclasses import dataclass

from ..protocol.canal.tags import ValueKind
from ..protocol.canal.types import kind_of
from ..protocol.identifiers import quote_name


@dataclass(frozen=True, slots=True)
class SnapshotColumn:
    """A column of a table."""

    name: str
    mysql_type: str
    """As ``information_schema.COLUMNS.COLUMN_TYPE`` writes it."""
    charset: str | None = None
    is_key: bool = False
    """Part of the primary key."""
    collation: str | None = None

    @property
    def text(self) -> str:
        """An expression for its text as Canal has it, but for floating-point numbers, which the encoder renders."""
        name, word, kind = quote_name(self.name), self.word, kind_of(self.mysql_type)
        if kind is ValueKind.SET:
            return f"CAST({name} AS UNSIGNED)"
        if kind is ValueKind.FLOAT:
            return f"{name} * 1e0"  # all digits
        if word == "binary":
            return f"TRIM(TRAILING X'00' FROM {name})"
        if kind is ValueKind.ENUM or word == "bit" or "zerofill" in self.mysql_type.lower():
            return f"{name} + 0"
        return name

    @property
    def ordered(self) -> str:
        """An expression that compares as the index orders."""
        return self.text if kind_of(self.mysql_type) in (ValueKind.ENUM, ValueKind.SET) else quote_name(self.name)

    @property
    def bound(self) -> str:
        """An expression for what `literal` needs."""
        if self.charset is not None and kind_of(self.mysql_type) is ValueKind.TEXT:
            return f"HEX({quote_name(self.name)})"
        return f"HEX({quote_name(self.name)})" if kind_of(self.mysql_type) is ValueKind.BYTES else self.text

    def literal(self, text: str) -> str:
        """Write the value that the text of `bound` was selected of."""
        kind = kind_of(self.mysql_type)
        if kind is ValueKind.BYTES:
            return f"X'{text}'"
        if kind is ValueKind.TEXT and self.charset is not None:
            return f"_{self.charset} X'{text}'"
        if (
            kind in (ValueKind.INTEGER, ValueKind.DECIMAL, ValueKind.FLOAT, ValueKind.ENUM, ValueKind.SET)
            and self.word != "year"
        ):
            return text
        return f"'{text}'"

    @property
    def word(self) -> str:
        """The word of its type, in lower case."""
        return re.split(r"[ (]", self.mysql_type.lower(), maxsplit=1)[0]


@dataclass(frozen=True, slots=True)
class KeyPart:
    """A column of the key that a table is cut by."""

    column: SnapshotColumn
    is_descending: bool = False
