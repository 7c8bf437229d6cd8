"""Whether tables that are delivered as one have the same columns."""

import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from ..protocol.errors import DecodeError
from .columns import SourceColumn

MOST: Final = 10_000
"""Tables that are known of one name."""

# MySQL writes no display width since 8.0.19 (https://dev.mysql.com/doc/refman/8.4/en/numeric-type-attributes.html),
# MariaDB does.
_WIDTH: Final = re.compile(r"^((?:tiny|small|medium|big)?int|year)\(\d+\)")

Name = tuple[str, str]
"""Schema and table."""

_Columns = tuple[tuple[str, str, bool], ...]


@dataclass(slots=True)
class _Agreed:
    columns: _Columns
    tables: dict[tuple[str, str, str], str] = field(default_factory=dict)
    """What those that have them are called, by their members and names in lower case, the oldest first."""


class Agreement:
    """The columns that the tables of each name have, since the last statement that changed one of them.

    A table that differs is not remembered: it does not make the others differ. It is compared anew once one of them was
    changed, so that a change that comes to all tables, one after the other, ends in agreement.

    The members of a group share one. Any thread may use it.
    """

    def __init__(self) -> None:
        """Begin without any table."""
        self.changes = 0
        """How often known tables were forgotten: those that differed from them may agree since."""
        self._agreed: dict[Name, _Agreed] = {}
        self._lock = threading.Lock()

    def check(self, name: Name, table: Name, columns: Sequence[SourceColumn], member: str = "") -> None:
        """Compare a table, of a member of a group, with those that are delivered under the same name.

        The display width of a whole number is no difference.

        Raises DecodeError if it differs.
        """
        mine = tuple((it.name, _WIDTH.sub(r"\1", it.mysql_type), it.is_key) for it in columns)
        own = _called(table, member)
        with self._lock:
            agreed = self._agreed.setdefault(name, _Agreed(mine))
            if agreed.columns != mine:
                raise DecodeError(
                    f"{own} is delivered as {'.'.join(name)} (sluice.group.as), and its columns ({_text(mine)}) are not"
                    f" those of {next(iter(agreed.tables.values()))} ({_text(agreed.columns)}): change one of both, or"
                    " leave one out"
                )
            agreed.tables[_key(member, *table)] = own
            if len(agreed.tables) > MOST:
                del agreed.tables[next(iter(agreed.tables))]

    def forget(self, schema: str = "", table: str = "", member: str = "") -> bool:
        """Forget a table of a member; without a name all of the schema, without either all.

        Return whether one was known.
        """
        wanted = _key(member, schema, table)
        count = 3 if table else 2 if schema else 1  # how much of a key has to be equal
        is_known = False
        with self._lock:
            for name, agreed in list(self._agreed.items()):
                found = [it for it in agreed.tables if it[:count] == wanted[:count]]
                for it in found:
                    del agreed.tables[it]
                if not agreed.tables:
                    del self._agreed[name]
                is_known = is_known or bool(found)
            self.changes += is_known
        return is_known


def _key(member: str, schema: str, table: str) -> tuple[str, str, str]:
    return member, schema.lower(), table.lower()


def _called(table: Name, member: str) -> str:
    return f"{'.'.join(table)} of member {member}" if member else ".".join(table)


def _text(columns: _Columns) -> str:
    """Say what the columns are, as far as it helps."""
    text = ", ".join(f"{name} {kind}{' in the primary key' if is_key else ''}" for name, kind, is_key in columns)
    return text if len(text) <= 500 else f"{text[:500]}…"
