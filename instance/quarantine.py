"""The durable list of row events that could not be decoded."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from ..protocol.errors import ConfigError
from .files import make_private_folder, open_private, restrict


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


class Quarantine:
    """A file of JSON lines, one per item, only ever appended to. A position is listed once, however often it is met."""

    def __init__(self, path: Path) -> None:
        """List in the file `path`, which is made with the first item."""
        self._path = path
        self._file: IO[str] | None = None
        self._listed = {item.position for item in read(path)}
        restrict(path)

    def add(self, item: Item) -> None:
        """List an item; it is durable after sync()."""
        if item.position in self._listed:
            return
        if self._file is None:
            make_private_folder(self._path.parent)
            _drop_cut_line(self._path)
            self._file = open_private(self._path, "a", encoding="utf-8")
        self._file.write(json.dumps(asdict(item)) + "\n")
        self._listed.add(item.position)

    def sync(self) -> None:
        """Return when all items are durable; does nothing without new ones."""
        if self._file is not None:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self._file = None

    def __len__(self) -> int:
        return len(self._listed)


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
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(
            f"{path} is not a list of quarantined events ({error}): restore it, or move it away to begin without it"
        ) from error


def path_of(data_dir: Path, destination: str) -> Path:
    """Return where the list of a destination is."""
    return data_dir / destination / "quarantine.jsonl"
