"""Reading the tables of a database in parts, over connections that may break."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Final, TypeVar

import pymysql

from ...login.session import MysqlSession
from ...login.tables import PIECE, SETTINGS, Key, KeyRange, Piece, SnapshotTable, cut, select
from ...protocol.errors import SourceError
from ...sql.database import Database, DatabaseSession, is_lost, reason

SLOW_PIECE: Final = 256 << 10
"""Bytes of entries that are handed on at once where they are to be slowed down."""
PATIENCE: Final = 60.0
"""Seconds without any progress after which a lost connection is an error."""
FIRST_DELAY, LONGEST_DELAY = 0.1, 5.0  # seconds between the tries to connect again

T = TypeVar("T")


def connect(database: Database) -> DatabaseSession:
    """Log in to read tables: every value comes as the text that the server sends. Raises SourceError."""
    session = database.connect(init_command=SETTINGS)
    session.decoders = {}
    return session


def read(
    database: Database, table: SnapshotTable, part: KeyRange, *, size: int = PIECE, rate: float | None = None
) -> Iterator[Piece]:
    """Read the rows of a range as `select`; when the connection is lost, go on after the last row handed on.

    A table without a key cannot go on once rows were handed on. ``rate``: maximum number of rows a second.

    Raises:
        SourceError: the database refuses, or was not reached for `PATIENCE`.
    """

    def pieces(session: MysqlSession, after: Key | None) -> Iterator[Piece]:
        due = time.monotonic()
        for piece in select(session, table, replace(part, after=after), size=size if rate is None else SLOW_PIECE):
            if rate is not None:
                due = max(due, time.monotonic() - 1) + piece.rows / rate
                time.sleep(max(0.0, due - time.monotonic()))
            yield piece

    return _resumed(database, table, part.after, pieces, lambda piece: piece.last)


def ranges(database: Database, table: SnapshotTable, rows: int, after: Key | None = None) -> Iterator[KeyRange]:
    """Cut a table as `cut`; when the connection is lost, go on after the last range.

    Raises:
        SourceError: the database refuses, or was not reached for `PATIENCE`.
    """
    return _resumed(database, table, after, lambda session, begin: cut(session, table, rows, begin), lambda it: it.to)


def _resumed(
    database: Database,
    table: SnapshotTable,
    after: Key | None,
    items: Callable[[MysqlSession, Key | None], Iterator[T]],
    end: Callable[[T], Key | None],
) -> Iterator[T]:
    """Hand on what begins after a key; when the connection is lost, begin again after the end of the last item."""
    deadline = time.monotonic() + PATIENCE
    delay = FIRST_DELAY
    while True:
        try:
            with closing(connect(database)) as session:
                for item in items(session, after):
                    yield item
                    after = end(item)
                    deadline = time.monotonic() + PATIENCE if after is not None else 0
                    delay = FIRST_DELAY
        except (pymysql.MySQLError, OSError, SourceError) as error:
            if not is_lost(error) or time.monotonic() + delay > deadline:
                text = str(error) if isinstance(error, SourceError) else reason(error)
                raise SourceError(f"{table} cannot be read from {database}: {text}") from error
            time.sleep(delay)
            delay = min(2 * delay, LONGEST_DELAY)
        else:
            return
