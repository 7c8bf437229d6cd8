"""The durable list of row events that could not be decoded, their bytes, and the rows that were decoded later."""

import contextlib
import json
import logging
import os
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, astuple, dataclass, fields
from pathlib import Path
from typing import Final

from ..protocol import props
from ..protocol.canal import entry_pb2 as pb
from ..protocol.canal.packet_pb2 import Messages
from ..protocol.cut import parse_place, places_in
from ..protocol.errors import ConfigError
from ..store.batch import LateRows
from .files import make_private_folder, open_private, restrict

logger = logging.getLogger(__name__)

_TABLES: Final = (
    "events (position TEXT PRIMARY KEY, type INTEGER, body BLOB, description BLOB, header BLOB)",
    "late (position TEXT PRIMARY KEY, db TEXT, tbl TEXT, entry BLOB, rows INTEGER, timestamp INTEGER, positions BLOB)",
)


@dataclass(frozen=True, slots=True)
class Item:
    """A row event in quarantine. The source can be asked for it again at its position, as long as it has the file."""

    position: str
    schema: str
    table: str
    event_type: int
    timestamp: int
    """Seconds since 1970 in the event's header."""
    server_id: int
    length: int
    """Bytes of the event."""
    error: str
    table_map: str
    """The body of its TABLE_MAP event, without table id and flags, in hexadecimal."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What is needed to decode a row event in quarantine when the source no longer has it, beside its TABLE_MAP."""

    type: int
    body: bytes
    """What follows its header, without the checksum."""
    description: bytes
    """The body of the FORMAT_DESCRIPTION event of its file."""
    header: bytes
    """The header of the `Entry` that stands in its place."""


class Quarantine:
    """A file of JSON lines, one per item, only ever appended to. A position is listed once, however often it is met.

    A database beside it keeps the bytes of the events, so that a purge of the source does not end them.
    """

    def __init__(self, path: Path, *, most: int = 0) -> None:
        """List in the file `path`, which is made with the first item; keep at most ``most`` bytes of events."""
        self._path = path
        self._most = most
        self._lines: list[str] = []
        self._kept: list[tuple[object, ...]] = []
        self._room: int | None = None
        self._listed = {item.position for item in read(path)}
        restrict(path)

    def add(self, item: Item, kept: Kept | None = None) -> None:
        """List an item, and keep its event if there is room; both are durable after sync(). Raises OSError."""
        if item.position in self._listed:
            return
        if kept is not None and self._has_room(len(kept.body)):
            self._kept.append((item.position, *astuple(kept)))
        self._lines.append(json.dumps(asdict(item)) + "\n")
        self._listed.add(item.position)

    def sync(self) -> None:
        """Return when all items are durable; does nothing without new ones. Raises OSError."""
        if not self._lines:
            return
        make_private_folder(self._path.parent)
        if self._kept:
            with _database(self._path) as database:
                database.executemany("INSERT OR REPLACE INTO events VALUES (?, ?, ?, ?, ?)", self._kept)
            self._kept = []
        _drop_cut_line(self._path)
        with open_private(self._path, "a", encoding="utf-8") as file:
            file.writelines(self._lines)
            file.flush()
            os.fsync(file.fileno())
        self._lines = []

    def _has_room(self, size: int) -> bool:
        if self._room is None:
            self._room = self._most
            if _database_of(self._path).exists():
                with _database(self._path) as database:
                    self._room -= database.execute("SELECT COALESCE(SUM(LENGTH(body)), 0) FROM events").fetchone()[0]
        if size > self._room:
            logger.warning(
                "a row event in quarantine is not kept, the source alone has it: it has %d bytes, and of"
                " sluice.instance.quarantine.maxBytes %d are left",
                size,
                self._room,
            )
            return False
        self._room -= size
        return True

    def __len__(self) -> int:
        return len(self._listed)


@contextlib.contextmanager
def _database(path: Path) -> Iterator[sqlite3.Connection]:
    """Open the events of a list in one transaction. Raises OSError."""
    name = _database_of(path)
    open_private(name, "ab").close()
    try:
        with contextlib.closing(sqlite3.connect(name)) as database, database:
            for table in _TABLES:
                database.execute(f"CREATE TABLE IF NOT EXISTS {table}")
            yield database
    except sqlite3.Error as error:
        raise OSError(f"{name}: {error}") from error


def read_kept(path: Path, position: str) -> Kept | None:
    """Return what was kept of the event at a position of a list. Raises OSError."""
    if not _database_of(path).exists():
        return None
    with _database(path) as database:
        question = "SELECT type, body, description, header FROM events WHERE position = ?"
        row = database.execute(question, (position,)).fetchone()
    return Kept(*row) if row else None


def late_rows(item: Item, framed: bytes, positions: bytes) -> LateRows:
    """Return what is given to clients that have passed an item, of the entries that its event was decoded to."""
    entries = [pb.Entry.FromString(data) for data in Messages.FromString(framed).messages]
    position = parse_place(item.position)
    (member,) = places_in(position)
    for entry in entries:
        if member:
            entry.header.props.add(key=props.MEMBER, value=member)
        entry.header.props.add(key=props.LATE, value=item.position)
    rows = sum(len(pb.RowChange.FromString(entry.storeValue).rowDatas) for entry in entries)
    marked = Messages(messages=[entry.SerializeToString() for entry in entries]).SerializeToString()
    return LateRows(position, item.schema, item.table, marked, rows, entries[0].header.executeTime, positions)


def keep_late(path: Path, rows: Sequence[LateRows]) -> None:
    """Keep the rows of items of a list, until `read_late` is told that no client needs them. Raises OSError."""
    make_private_folder(path.parent)
    with _database(path) as database:
        database.executemany(
            "INSERT OR REPLACE INTO late VALUES (?, ?, ?, ?, ?, ?, ?)",
            [(str(it.position), *(getattr(it, field.name) for field in fields(it)[1:])) for it in rows],
        )


def read_late(path: Path, needed: Collection[str]) -> list[LateRows]:
    """Return the rows that belong to these positions, and keep no others. Raises OSError."""
    if not _database_of(path).exists():
        return []
    with _database(path) as database:
        kept = {position for (position,) in database.execute("SELECT position FROM late")}
        database.executemany("DELETE FROM late WHERE position = ?", [(it,) for it in kept.difference(needed)])
        rows = database.execute("SELECT * FROM late ORDER BY timestamp, position").fetchall()
    return [LateRows(parse_place(position), *others) for position, *others in rows]


def remove(path: Path, positions: Collection[str]) -> None:
    """Take items off a list, and forget their events; nothing may add to it meanwhile. Raises OSError, ConfigError."""
    left = [item for item in read(path) if item.position not in positions]
    new = path.with_suffix(".new")
    with open_private(new, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(asdict(item)) + "\n" for item in left)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    with _database(path) as database:
        database.executemany("DELETE FROM events WHERE position = ?", [(it,) for it in positions])


def _drop_cut_line(path: Path) -> None:
    if path.exists():
        with path.open("r+b") as file:
            file.truncate(file.read().rfind(b"\n") + 1)


def read(path: Path) -> list[Item]:
    """Return the items listed in the file; a line that a crash cut is left out. Raises ConfigError."""
    if not path.exists():
        return []
    try:
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        return [Item(**json.loads(line)) for line in lines if line.endswith("\n")]
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise ConfigError(
            f"{path} is not a list of quarantined events ({error}): restore it, or move it away to begin without it"
        ) from error


def _database_of(path: Path) -> Path:
    return path.with_suffix(".db")


def path_of(data_dir: Path, destination: str) -> Path:
    """Return where the list of a destination is."""
    return data_dir / destination / "quarantine.jsonl"
