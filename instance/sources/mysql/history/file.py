"""The history of tables in a file of the server: SQLite, beside the cursors of a destination."""

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from .....protocol.errors import BadPositionError, HistoryError
from .....protocol.position import Position
from ....files import make_private_folder, restrict
from .database import TABLES

NAME: Final = "schema.db"
"""The file of the database in the folder of a destination."""
FORMAT: Final = 2
_TYPES: Final = {"number": "INTEGER PRIMARY KEY AUTOINCREMENT", "name": "TEXT", "text": "TEXT"}
_APART: Final = {"of_destinations": "", "of_stretches": "", "of_places": ""}
_INDEXES: Final = """
CREATE INDEX IF NOT EXISTS places_of_stretches ON schema_places (stretch);
CREATE INDEX IF NOT EXISTS changes_of_places ON schema_changes (place);
"""
_FROM_1: Final = """
INSERT INTO schema_stretches SELECT id, '', since, gtids, until, until_gtids FROM stretches;
INSERT INTO schema_places SELECT id, stretch, place, gtids, sql, time FROM places;
INSERT INTO schema_changes SELECT rowid, place, kind, db, tbl, body FROM changes ORDER BY rowid;
DROP INDEX changes_of_places;
DROP TABLE stretches;
DROP TABLE places;
DROP TABLE changes;
"""
"""Its tables had other names, and no destination."""
_END_SIZE: Final = 2048
"""Bytes of the file that says how far the stream was followed; a position has fewer."""
_BUSY: Final = 10.0
"""Seconds that another process may keep the database locked."""


class FileDatabase:
    """See `HistoryDatabase`. Other threads, and other processes, have their own of the same file."""

    def __init__(self, folder: Path, *, writes: bool) -> None:
        """Use the file in `folder`, that of the destination; it is made with the first transaction, or only read."""
        self.destination = folder.name
        self._path = folder / NAME
        self._writes = writes
        self.problem = ""
        self._database: sqlite3.Connection | None = None
        self._end = EndFile(folder)

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection | None]:
        """See `HistoryDatabase.reading`."""
        with self._connected(make=False) as database:
            yield database

    @contextlib.contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """See `HistoryDatabase.writing`."""
        with self._connected(make=True) as database:
            assert database is not None
            with database:
                database.execute("BEGIN IMMEDIATE")
                yield database

    def note_end(self, stretch: int, place: Position) -> None:
        """See `HistoryDatabase.note_end`."""
        self._end.write(stretch, place)

    def end(self, stretch: int) -> Position | None:
        """See `HistoryDatabase.end`."""
        return self._end.read(stretch)

    def close(self) -> None:
        """See `HistoryDatabase.close`."""
        if self._database is not None:
            self._database.close()
            self._database = None
        self._end.close()

    @contextlib.contextmanager
    def _connected(self, *, make: bool) -> Iterator[sqlite3.Connection | None]:
        try:
            if self._database is None and (make or self._path.exists()):
                self._database = self._connect()
            yield self._database
        except (sqlite3.Error, OSError) as error:
            self.problem = f"the history of tables in {self._path} cannot be used: {error}"
            raise HistoryError(self.problem) from error
        else:
            self.problem = ""

    def _connect(self) -> sqlite3.Connection:
        if self._writes:
            make_private_folder(self._path.parent)
            restrict(self._path)
            self._path.touch(0o600)
        mode = "rw" if self._writes else "ro"
        database = sqlite3.connect(
            f"{self._path.absolute().as_uri()}?mode={mode}",
            _BUSY,
            uri=True,
            isolation_level=None,
            check_same_thread=False,
        )
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if version > FORMAT:
            database.close()
            raise HistoryError(
                f"{self._path} is of a later version of Sluice ({version}): move it away, and the history begins anew"
            )
        if version == 1 and not self._writes:
            database.close()
            raise HistoryError(f"{self._path} is of an earlier version of Sluice: start the server once, to renew it")
        if self._writes:
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = FULL")
        if self._writes and version < FORMAT:
            tables, earlier = TABLES.format(**_TYPES, **_APART), _FROM_1 if version == 1 else ""
            database.executescript(f"BEGIN IMMEDIATE; {tables} {earlier} {_INDEXES} PRAGMA user_version = {FORMAT}")
            database.execute("UPDATE schema_stretches SET destination = ?", (self.destination,))
            database.execute("COMMIT")
        return database


class EndFile:
    """A file that says how far the stream was followed: one write of a page for each of many."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "schema.end"
        self._file: int | None = None

    def write(self, stretch: int, place: Position) -> None:
        """Note the place. A process that is killed leaves the former text or this one. Raises HistoryError."""
        try:
            if self._file is None:
                make_private_folder(self.path.parent)
                self._file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
            os.pwrite(self._file, f"{stretch} {place}".encode().ljust(_END_SIZE), 0)
        except OSError as error:
            raise HistoryError(f"{self.path} cannot be written: {error}") from error

    def read(self, stretch: int) -> Position | None:
        """Return the place, if it is of this stretch."""
        with contextlib.suppress(FileNotFoundError, ValueError, BadPositionError):
            number, place = self.path.read_text("ascii").split()
            return Position.parse(place) if int(number) == stretch else None
        return None

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
