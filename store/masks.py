"""Which tables of a ring pass the filters of its readers: matched once for all that have the same filter.

A table that is new is matched at once if that takes a moment, else by a thread
(`sluice.instance.conditions.judging`). Until then nobody with that filter is given what may be of it.
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple
from weakref import WeakValueDictionary

if TYPE_CHECKING:
    from .ring import Ring

AT_ONCE: Final = 100_000
"""How much is matched on the event loop at a time, in instructions of programs: some milliseconds at the worst."""


class Mask:
    """Which tables of a ring pass one filter, by their numbers. All but `match` belongs to the event loop."""

    def __init__(self, ring: "Ring", tables: Callable[[str, str], bool]) -> None:
        """``tables`` is the filter; its ``size``, if it has one, says what it takes to match a name."""
        self.allowed = bytearray([1])  # 0 stands for no table: transaction ends, statements
        self.is_busy = False
        """A thread matches the tables that come next."""
        self.size: int = getattr(tables, "size", 1)
        self._ring = ring
        self._tables = tables
        self._sure = 0  # the tables of the slots before this one are matched

    @property
    def missing(self) -> int:
        """How many tables of the ring are not matched yet."""
        return len(self._ring.tables) + 1 - len(self.allowed)

    def update(self) -> None:
        """Match the tables seen since, if there is room for that at once."""
        end = self._ring.next  # before the tables are counted: what comes meanwhile is not sure
        missing = self.missing
        if missing and not self.is_busy and missing * self.size <= self._ring.masks.room:
            self._ring.masks.room -= missing * self.size
            self.allowed += self.match(len(self.allowed), missing)
            missing = 0
        if not missing:
            self._sure = end

    def match(self, start: int, count: int) -> bytes:
        """Return which of ``count`` tables from the number ``start`` on pass, in any thread."""
        keys = (self._ring.tables[number] for number in range(start, start + count))
        return bytes(self._tables(schema, table) for schema, table, *_ in keys)

    def due(self, most: int) -> "Due":
        """Return which tables a thread is to match next, for at most ``most`` instructions, unless one takes more."""
        end, missing = self._ring.next, self.missing
        count = min(missing, max(1, most // self.size))
        return Due(self, len(self.allowed), count, end if count == missing else 0)

    def take(self, due: "Due", matched: bytes) -> None:
        """Take over what a thread has matched."""
        self.is_busy = False
        self.allowed += matched
        self._sure = max(self._sure, due.end)

    def reach(self, sequence: int, stop: int) -> int:
        """Return up to which slot from one on, ``stop`` at most, all tables are matched."""
        self.update()
        return max(sequence, min(stop, self._sure)) if self.missing else stop


class Due(NamedTuple):
    """Tables that are to be matched."""

    mask: Mask
    start: int
    tables: int
    end: int
    """The slot before which no other tables are, by then."""


class Masks:
    """Those of a ring."""

    def __init__(self) -> None:
        self.room: float = math.inf
        """What may still be matched at once; without anybody who gives room again that is everything."""
        self.is_busy = False
        """A thread matches tables for some of them."""
        self._matched = 0  # number of tables that all of them have matched
        self._masks: WeakValueDictionary[Callable[[str, str], bool], Mask] = WeakValueDictionary()

    def __len__(self) -> int:
        """How many filters are used."""
        return len(self._masks)

    def of(self, ring: "Ring", tables: Callable[[str, str], bool]) -> Mask:
        """Return that of a filter of a ring, as long as somebody refers to it."""
        found = self._masks.get(tables)
        if found is None:
            found = self._masks[tables] = Mask(ring, tables)
            self._matched = 0
        return found

    def due(self, most: int, tables: int) -> list[Due]:
        """Return what a thread is to match next, for at most ``most`` instructions, unless one table takes more.

        ``tables`` is how many the ring has.
        """
        found: list[Due] = []
        if tables == self._matched:
            return found
        for mask in self._masks.values():
            if mask.missing and most > 0:
                found.append(mask.due(most))
                most -= found[-1].tables * mask.size
        if not found:
            self._matched = tables
        return found
