"""A copy of tables made of nothing but the delivered changes, and the comparison of such a copy with the source."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from sluice.protocol.canal.rows import Row


def canonical(value: object) -> str:
    """A text that is the same for a value delivered and the same value selected.

    A SET arrives as labels without an order, and is selected as a text.
    """
    if isinstance(value, frozenset):
        return repr(",".join(sorted(value)))
    if isinstance(value, str):
        return repr(",".join(sorted(value.split(","))))
    return repr(value)


def checksum(rows: Iterable[Mapping[str, object]], columns: Iterable[str]) -> str:
    """SHA-256 of a table's content, whatever the order of its rows; 16 digits of it."""
    order = list(columns)
    lines = sorted("\t".join(canonical(row.get(column)) for column in order) for row in rows)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


class Replica:
    """Tables by name, rows by primary key; refuses what cannot follow from what it holds."""

    def __init__(self) -> None:
        self.tables: defaultdict[str, dict[tuple[Any, ...], dict[str, Any]]] = defaultdict(dict)
        self.rows: Counter[str] = Counter()

    def apply(self, row: Row) -> None:
        """Apply one change; a duplicate, a hole or a wrong order raises KeyError."""
        table = self.tables[row.table]
        self.rows[row.table] += 1
        names = list(row.key)
        if row.before is not None:
            del table[tuple(row.before[name] for name in names)]
        if row.after is not None:
            key = tuple(row.after[name] for name in names)
            if key in table:
                raise KeyError(f"{row.table} {key} was inserted twice")
            table[key] = row.after
