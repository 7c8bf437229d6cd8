"""Which tables, columns and kinds of change a destination lets through: Canal's filters.

A table filter is a comma-separated list of regular expressions over `schema.table`. Each must match the whole name,
whatever the case. Commas inside brackets or after a backslash do not separate. `patterns` says what a regular
expression may hold.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from ...protocol.errors import FilterError
from .patterns import Item, Matcher, check_text, check_weight, give_way, translate

TRANSLATED: Final = 32
"""Items of somebody else that are translated at a time: about a millisecond."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a filter says about a table, and why."""

    accepted: bool
    reason: str


class Patterns:
    """One list of regular expressions. The empty list matches nothing."""

    def __init__(self, text: str, most: int | None = None) -> None:
        """Compile ``text`` to at most ``most`` instructions.

        Raises FilterError if it is larger, and for an item that is invalid or can never match a table.
        """
        self.text = text
        check_text(text)
        self.items: list[Item] = []
        for item in filter(None, map(str.strip, _split(text))):
            if most is not None and len(self.items) % TRANSLATED == 0:
                give_way()
            self.items.append(_translate(item))
        check_weight(self.items)
        self.matcher = Matcher(self.items, most)

    def __bool__(self) -> bool:
        return bool(self.items)

    @property
    def matches_all(self) -> bool:
        """Whether some item matches every table, in one of the ways in which that is usually written."""
        return any(item.text in _EVERY_TABLE for item in self.items)

    def matches(self, schema: str, table: str) -> bool:
        """Whether some item matches the table."""
        return self.matcher.matches(f"{schema}.{table}")

    def find(self, schema: str, table: str) -> str | None:
        """Return the first item that matches the table, or None."""
        if not self.matches(schema, table):
            return None
        name = f"{schema}.{table}"
        return next(item.text for item, matcher in self._each if matcher.matches(name))

    @cached_property
    def _each(self) -> list[tuple[Item, Matcher]]:
        return [(item, Matcher([item])) for item in self.items]

    def may_meet(self, other: "Patterns") -> bool:
        """Tell whether a name could match both lists; False only if certainly none can."""
        for some, others in ((self, other), (other, self)):
            if any(others.matcher.matches(name) for name in map(_name, some.items) if name is not None):
                return True
        # Items that match only one name have been tried. Of the rest, the schemas that they name count; None is any.
        mine, theirs = ({_schema(item) for item in it.items if _name(item) is None} for it in (self, other))
        return bool(mine and theirs) and (None in mine | theirs or not mine.isdisjoint(theirs))


class TableFilter:
    """The tables that pass: matched by the include list (an empty one matches all), and not by the black list.

    Those of a view pass the filter of its main destination, too.
    """

    def __init__(
        self, include: str = "", exclude: str = "", main: "TableFilter | None" = None, most: int | None = None
    ) -> None:
        """Compile both lists, the first to at most ``most`` instructions; raises FilterError."""
        self.include = Patterns(include, most)
        self.exclude = Patterns(exclude)
        self.size = self.include.matcher.size + self.exclude.matcher.size
        """The instructions of its programs, without those of its main's."""
        self._main = main

    def __call__(self, schema: str, table: str) -> bool:
        """See `accepts`."""
        return self.accepts(schema, table)

    @property
    def passes_all(self) -> bool:
        """Whether no table is left out."""
        is_whole = self._main is None or self._main.passes_all
        return is_whole and (not self.include or self.include.matches_all) and not self.exclude

    def accepts(self, schema: str, table: str) -> bool:
        """Whether the table passes."""
        if self._main is not None and not self._main.accepts(schema, table):
            return False
        return (not self.include or self.include.matches(schema, table)) and not self.exclude.matches(schema, table)

    def explain(self, schema: str, table: str) -> Verdict:
        """Say whether the table passes, and which item decided."""
        if self._main is not None and not self._main.accepts(schema, table):
            reason = self._main.explain(schema, table).reason
            return Verdict(accepted=False, reason=f"its main destination leaves it out: {reason}")
        item = self.include.find(schema, table)
        if self.include and item is None:
            return Verdict(accepted=False, reason="no item of the filter matches")
        black = self.exclude.find(schema, table)
        if black is not None:
            return Verdict(accepted=False, reason=f"the black list item {black} matches")
        return Verdict(accepted=True, reason=f"the item {item} matches" if item else "the filter is empty: all pass")

    def narrow(self, text: str, most: int | None = None, *, is_whole: bool = False) -> "TableFilter":
        """Compile a subscriber's filter, which only narrows this one, to at most ``most`` instructions.

        ``is_whole``: what does not pass here does not pass it either, which is not asked otherwise. Raises FilterError
        if it is larger, or invalid, or certainly matches nothing that passes here.
        """
        narrower = TableFilter(text, main=self if is_whole else None, most=most)
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


def _translate(text: str) -> Item:
    item = translate(text)
    if not re.search(r"[.\\[]", text):
        raise FilterError(f"'{text}' matches no table: it has to match schema.table, as in shop\\.orders")
    return item


_EVERY_TABLE = frozenset({".*", ".+", r".*\..*", r".+\..+", r".*\..+", r".+\..*", ".*..*", ".+..+"})
_PLAIN = r"(?:[\w$-]|\\[^\w.])+"
_LITERAL = re.compile(rf"{_PLAIN}\\\.{_PLAIN}")
_IN_SCHEMA = re.compile(rf"({_PLAIN})\\\.(?![*?{{])")


def _name(item: Item) -> str | None:
    """Return the only name that an item matches; None if there may be several."""
    return _unescape(item.text) if _LITERAL.fullmatch(item.text) else None


def _schema(item: Item) -> str | None:
    """Return the only schema, in lower case, whose tables an item matches; None if there may be several."""
    found = _IN_SCHEMA.match(item.text)
    return _unescape(found[1]).lower() if found and found[1].isascii() and len(item.alternatives) == 1 else None


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


def _fields(text: str) -> dict[str, frozenset[str]]:
    fields = {}
    for item in filter(None, (item.strip() for item in text.split(","))):
        table, colon, columns = item.partition(":")
        names = frozenset(name.strip().upper() for name in columns.split("/") if name.strip())
        if not colon or "." not in table or not names:
            raise FilterError(f"'{item}' is not a field filter: write schema.table:column/column")
        fields[table.strip().upper()] = names
    return fields
