"""Whether tables that are delivered as one have the same columns."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from ....protocol.errors import DecodeError
from ...columns import SourceColumn
from .grouping import Name

MOST: Final = 10_000
"""Tables that are known of one name."""

_Columns = tuple[tuple[str, str, bool], ...]


@dataclass(slots=True)
class _Agreed:
    columns: _Columns
    tables: dict[Name, str] = field(default_factory=dict)
    """Those that have them, by their names in lower case, the oldest first."""


class Agreement:
    """The columns that the tables of each name have, since the last statement that changed one of them.

    A table that differs is not remembered: it does not make the others differ. It is compared anew once one of them was
    changed, so that a change that comes to all tables, one after the other, ends in agreement.
    """

    def __init__(self) -> None:
        """Begin without any table."""
        self._agreed: dict[Name, _Agreed] = {}

    def check(self, name: Name, table: Name, columns: Sequence[SourceColumn]) -> None:
        """Compare a table with those that are delivered under the same name. Raises DecodeError if it differs."""
        mine = tuple((it.name, it.mysql_type, it.is_key) for it in columns)
        agreed = self._agreed.setdefault(name, _Agreed(mine))
        if agreed.columns != mine:
            raise DecodeError(
                f"{'.'.join(table)} is delivered as {'.'.join(name)} (sluice.group.as), and its columns"
                f" ({_text(mine)}) are not those of {next(iter(agreed.tables.values()))} ({_text(agreed.columns)}):"
                " change one of both, or leave one out"
            )
        agreed.tables[_key(*table)] = ".".join(table)
        if len(agreed.tables) > MOST:
            del agreed.tables[next(iter(agreed.tables))]

    def forget(self, schema: str, table: str) -> bool:
        """Forget a table; without a name all of the schema, without either all. Return whether one was known."""
        wanted = _key(schema, table)
        is_known = False
        for name, agreed in list(self._agreed.items()):
            found = [it for it in agreed.tables if not schema or it == wanted or (it[0] == wanted[0] and not table)]
            for it in found:
                del agreed.tables[it]
            if not agreed.tables:
                del self._agreed[name]
            is_known = is_known or bool(found)
        return is_known


def _key(schema: str, table: str) -> Name:
    return schema.lower(), table.lower()


def _text(columns: _Columns) -> str:
    """Say what the columns are, as far as it helps."""
    text = ", ".join(f"{name} {kind}{' in the primary key' if is_key else ''}" for name, kind, is_key in columns)
    return text if len(text) <= 500 else f"{text[:500]}…"
