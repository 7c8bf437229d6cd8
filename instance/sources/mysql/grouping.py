r"""Split tables that are delivered as one: `shop.orders: orders_[0-9]+; shop.items: shop_[0-9]+\.items`."""

import re

from ....protocol.errors import FilterError
from ...conditions.names import read_names
from ...sink.filters import Patterns

Name = tuple[str, str]
"""Schema and table."""


class Grouping:
    """Under which name a table is delivered, if that is not its own."""

    def __init__(self, text: str = "") -> None:
        """Read names, each with the pattern of the tables that it stands for. Raises FilterError.

        A pattern that names no schema is of tables in the schema of the name.
        """
        self._patterns: dict[Name, Patterns] = {}
        for item in filter(None, (item.strip() for item in text.split(";"))):
            name, _, pattern = item.partition(":")
            schema, *tables = read_names(name)
            pattern = pattern.strip()
            if not schema or len(tables) != 1 or not tables[0] or not pattern:
                raise FilterError(f"'{item[:100]}' names no split table: write shop.orders: orders_[0-9]+")
            if (schema, tables[0]) in self._patterns:
                raise FilterError(f"{name.strip()} is there twice: write one pattern with |")
            if r"\." not in pattern:
                literal = re.sub(r"([^\w$])", r"\\\1", schema)
                pattern = rf"{literal}\.(?:{pattern})"
            self._patterns[schema, tables[0]] = Patterns(pattern)

    @property
    def names(self) -> list[Name]:
        """Return the names that stand for others."""
        return list(self._patterns)

    def of(self, schema: str, table: str) -> Name | None:
        """Return the name under which a table is delivered, the first if there are several; None for its own."""
        return next((name for name, patterns in self._patterns.items() if patterns.matches(schema, table)), None)
