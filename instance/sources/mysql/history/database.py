"""Where the history of tables is: a file of the server, or a database for servers that share destinations.

Both take the same SQL, with ``?`` for values, and have the same tables.
"""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

from .....protocol.position import Position

TABLES: Final = """
CREATE TABLE IF NOT EXISTS schema_stretches (
    id {number},
    destination {name} NOT NULL,
    since {text} NOT NULL,
    gtids {text} NOT NULL,
    until {text} NOT NULL,
    until_gtids {text} NOT NULL{of_destinations}
);
CREATE TABLE IF NOT EXISTS schema_places (
    id {number},
    stretch BIGINT NOT NULL,
    place {text} NOT NULL,
    gtids {text} NOT NULL,
    statement {text} NOT NULL,
    time DOUBLE PRECISION NOT NULL{of_stretches}
);
CREATE TABLE IF NOT EXISTS schema_changes (
    id {number},
    place BIGINT NOT NULL,
    kind {text} NOT NULL,
    db {text} NOT NULL,
    tbl {text} NOT NULL,
    body {text}{of_places}
);
"""
"""Statements. `number`: a key that counts up, and never again has a value that it had. `of_…`: an index on it."""


class Answer(Protocol):
    """What a statement gave."""

    @property
    def lastrowid(self) -> int | None:
        """The key of the row that was inserted."""

    @property
    def rowcount(self) -> int:
        """How many rows it found."""

    def fetchall(self) -> Sequence[Any]:
        """Return the rows."""


class Session(Protocol):
    """A connection."""

    def execute(self, sql: str, row: Sequence[Any] = (), /) -> Answer:
        """Execute a statement."""

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]], /) -> Any:
        """Execute a statement with each of the rows."""


class HistoryDatabase(Protocol):
    """The database of one destination. One thread uses it. All methods raise HistoryError."""

    destination: str
    problem: str
    """Why it could not be used the last time; empty if it could."""

    def reading(self) -> AbstractContextManager[Session | None]:
        """Give a connection to read; None while nothing was ever written."""

    def writing(self) -> AbstractContextManager[Session]:
        """Give a transaction that is durable when its block is left."""

    def note_end(self, stretch: int, place: Position) -> None:
        """Say how far a stretch goes. A process that is killed leaves this place, or an earlier one."""

    def end(self, stretch: int) -> Position | None:
        """Return how far it goes, where that is known better than its row says."""

    def close(self) -> None:
        """Disconnect."""
