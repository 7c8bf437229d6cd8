"""Which tables, columns and kinds of change a destination lets through: Canal's filters.

A table filter is a comma-separated list of regular expressions over `schema.table`. Each must match the whole name,
whatever the case. Commas inside brackets or behind a backslash do not separate.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from sluice.protocol.errors import FilterError

if TYPE_CHECKING:
    from sluice.instance.config import InstanceConfig  # which checks its filters by what is here


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a filter says of a table, and why."""

    accepted: bool
    reason: str


class Patterns:
    """One list of regular expressions. The empty list matches nothing."""

    def __init__(self, text: str) -> None:
        """Compile `text`; raises FilterError for an item that is invalid or can never match a table."""
        self.text = text
        self.items = [_compile(item.strip()) for item in _split(text) if item.strip()]

    def __bool__(self) -> bool:
        return bool(self.items)

    def match(self, schema: str, table: str) -> str | None:
        """Return the item that matches the table, None when there is none."""
        name = f"{schema}.{table}"
        return next((item.pattern for item in self.items if item.fullmatch(name)), None)

    def may_meet(self, other: "Patterns") -> bool:
        """Tell whether some name could match both lists; only what is certain is denied."""
        return any(_may_meet(mine, theirs) for mine in self.items for theirs in other.items)


class TableFilter:
    """The tables that pass: matched by the include list (an empty one matches all), and not by the black list."""

    def __init__(self, include: str = "", exclude: str = "") -> None:
        """Compile both lists; raises FilterError."""
        self.include = Patterns(include)
        self.exclude = Patterns(exclude)

    @classmethod
    def from_config(cls, config: "InstanceConfig") -> Self:
        """Make the filter of a destination."""
        return cls(config.filter_regex, config.filter_black_regex)

    def accepts(self, schema: str, table: str) -> bool:
        """Whether the table passes."""
        if self.include and self.include.match(schema, table) is None:
            return False
        return self.exclude.match(schema, table) is None

    def explain(self, schema: str, table: str) -> Verdict:
        """Say whether the table passes, and which item decided."""
        item = self.include.match(schema, table)
        if self.include and item is None:
            return Verdict(accepted=False, reason="no item of the filter matches")
        black = self.exclude.match(schema, table)
        if black is not None:
            return Verdict(accepted=False, reason=f"the black list item {black} matches")
        return Verdict(accepted=True, reason=f"the item {item} matches" if item else "the filter is empty: all pass")

    def narrow(self, text: str) -> "TableFilter":
        """Compile a subscriber's filter, which only narrows this one.

        Raises FilterError when it is invalid, or certainly matches nothing that passes here.
        """
        narrower = TableFilter(text)
        if narrower.include and self.include and not narrower.include.may_meet(self.include):
            raise FilterError(
                f"the filter '{text}' matches nothing that '{self.include.text}', the destination's, passes"
            )
        return narrower


class FieldFilter:
    """Columns to keep or to drop, table by table: `schema.table:column/column,schema.table:column`."""

    def __init__(self, keep: str = "", drop: str = "") -> None:
        """Read both lists; raises FilterError. For a table in both, `keep` counts."""
        self._keep = _fields(keep)
        self._drop = _fields(drop)

    @classmethod
    def from_config(cls, config: "InstanceConfig") -> Self:
        """Make the field filter of a destination."""
        return cls(config.filter_field, config.filter_black_field)

    def kept(self, schema: str, table: str) -> frozenset[str] | None:
        """Return the columns to keep, in upper case; None for all."""
        return self._keep.get(f"{schema}.{table}".upper())

    def keeps(self, schema: str, table: str, column: str) -> bool:
        """Whether the values of a column are delivered."""
        kept = self.kept(schema, table)
        return column.upper() in kept if kept is not None else column.upper() not in self.dropped(schema, table)

    def dropped(self, schema: str, table: str) -> frozenset[str]:
        """Return the columns to drop, in upper case."""
        return self._drop.get(f"{schema}.{table}".upper(), frozenset())


def _split(text: str) -> Iterator[str]:
    """Split at the commas that are outside brackets and not escaped."""
    depth, start, escaped = 0, 0, False
    for i, char in enumerate(text):
        if escaped:
            escaped = False
        elif char == "\\":
            escaped = True
        elif char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
        elif char == "," and depth <= 0:
            yield text[start:i]
            start = i + 1
    yield text[start:]


def _compile(item: str) -> re.Pattern[str]:
    try:
        pattern = re.compile(item, re.IGNORECASE)
    except (re.error, OverflowError, RecursionError) as error:
        raise FilterError(f"'{item}' is no regular expression: {error}") from error
    if "\\\\" in item:
        raise FilterError(f"'{item}' wants a backslash in the name: only .properties files double the backslash")
    if not re.search(r"[.\\[]", item):
        raise FilterError(f"'{item}' matches no table: it has to match schema.table, as in shop\\.orders")
    if _repeats_a_repetition(item):
        raise FilterError(f"'{item}' repeats a repetition, as in (a+)+: matching may take for ever")
    return pattern


_UNBOUNDED = re.compile(r"[*+]|\{\d*,\d*\}")
_SKIPPED = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)


def _repeats_a_repetition(item: str) -> bool:
    """Tell whether a group that holds an unbounded repetition is itself repeated without bound."""
    item = _SKIPPED.sub("x", item)  # escapes and classes hold no structure
    groups = [False]  # for each open group: does it hold a repetition?
    for i, char in enumerate(item):
        if char == "(":
            groups.append(False)
        elif char == ")":
            inside = groups.pop()
            repeated = _UNBOUNDED.match(item, i + 1) is not None
            if inside and repeated:
                return True
            groups[-1] = groups[-1] or inside or repeated
        elif _UNBOUNDED.match(item, i):
            groups[-1] = True
    return False


_LITERAL = re.compile(r"((?:[\w$-]|\\[^\w])+?)\\\.((?:[\w$-]|\\[^\w])+)?")


def _may_meet(one: re.Pattern[str], other: re.Pattern[str]) -> bool:
    """Tell whether two items may match the same name: certain where one is literal, else by literal schemas."""
    for literal, pattern in ((one, other), (other, one)):
        found = _LITERAL.fullmatch(literal.pattern)
        if found and found[2]:
            return pattern.fullmatch(re.sub(r"\\(.)", r"\1", literal.pattern)) is not None
    schemas = [found[1].lower() for item in (one, other) if (found := _LITERAL.match(item.pattern))]
    return len(schemas) < 2 or schemas[0] == schemas[1]


def _fields(text: str) -> dict[str, frozenset[str]]:
    fields = {}
    for item in filter(None, (item.strip() for item in text.split(","))):
        table, colon, columns = item.partition(":")
        names = frozenset(name.strip().upper() for name in columns.split("/") if name.strip())
        if not colon or "." not in table or not names:
            raise FilterError(f"'{item}' is no field filter: write schema.table:column/column")
        fields[table.strip().upper()] = names
    return fields
