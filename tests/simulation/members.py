"""The members of a merged stream as they are, whoever reads them: transactions of numbered events.

Times are µs of true time, which no clock here shows.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from sluice.protocol.position import Position

MS, SECOND = 1000, 1_000_000
POOL: Final = 24
"""Events that are staged of a member."""
TABLES: Final = ("one", "two", "three")


class Transaction(NamedTuple):
    """A transaction: the events 0 to ``size``, the first its begin, and the last its end. A lone event has no entry."""

    stamp: int
    size: int
    at: int
    """When it is committed."""


class Event(NamedTuple):
    """An event of a transaction, or a marker in place of what is missing of one: that brings nobody forward."""

    member: str
    number: int
    n: int
    is_last: bool
    is_marker: bool = False

    @property
    def before(self) -> tuple[int, int]:
        """The place before it."""
        return self.number, self.n

    @property
    def after(self) -> tuple[int, int]:
        """The place after it."""
        if self.is_marker:
            return self.before
        return (self.number + 1, 0) if self.is_last else (self.number, self.n + 1)

    @property
    def is_row(self) -> bool:
        """Whether it changes a table."""
        return not (self.is_marker or self.is_last or self.n == 0)

    @property
    def table(self) -> int:
        """The number of the table that it changes, from 1; 0 for none."""
        return 1 + (self.number + self.n) % len(TABLES) if self.is_row else 0

    def is_wanted(self, tables: str) -> bool:
        """Whether a client with a filter has to get it, once; without a filter that is all that has an entry."""
        if tables:
            return self.is_row and TABLES[self.table - 1] in tables.split(",")
        return not (self.is_marker or (self.is_last and self.n == 0))


def place(at: tuple[int, int]) -> Position:
    """Return the position before an event of a transaction."""
    number, n = at
    return Position("7", "b.1", 1, 4 + number, n)


def index(position: Position) -> tuple[int, int]:
    """Return of which event a position is."""
    return position.begin - 4, position.n


@dataclass
class Source:
    """A member."""

    name: str
    whole_seconds: bool
    latency: int
    skew: int = 0
    history: list[Transaction] = field(default_factory=list)
    silent_until: int = 0
    pace: float = 0.3
    is_removed: bool = False
    has_left: bool = False

    @property
    def is_read(self) -> bool:
        """Whether it is a member now."""
        return not (self.is_removed or self.has_left)

    def write(self, chance: random.Random, now: int) -> None:
        """Commit some transactions, or none."""
        while chance.random() < self.pace:
            stamp = now + self.skew - int(30 * MS * chance.random() ** 4)
            size = chance.choice([1, 2, 3, 3, 4, 5]) if chance.random() < 0.97 else chance.randrange(POOL, 4 * POOL)
            stamp = stamp // SECOND * SECOND if self.whole_seconds else stamp
            self.history.append(Transaction(stamp, size, now))

    def events(self, start: tuple[int, int], stop: tuple[int, int]) -> Iterator[Event]:
        """Return the events between two places."""
        while start < stop and start[0] < len(self.history):
            number, n = start
            event = Event(self.name, number, n, n == self.history[number].size - 1)
            yield event
            start = event.after
