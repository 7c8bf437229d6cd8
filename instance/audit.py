"""The list of what was changed at a destination: by whom, from where, when, and from which place to which."""

import json
import threading
from collections import deque
from dataclasses import asdict, dataclass
from pathlib import Path

from ..protocol.errors import ConfigError
from .files import append_lines

MOST_BYTES = 4 << 20
"""Bytes of a file of the list; the one before it is kept, too."""
LONGEST_TEXT = 1000
"""Characters of a text in it."""
_keeping = threading.Lock()


@dataclass(frozen=True, slots=True)
class Change:
    """Something that was changed on somebody's behalf."""

    action: str
    """``seek``, ``stop`` and so on."""
    who: str
    """Name and address of the caller, or the part of the server that did it."""
    time: int
    """When, ms since 1970."""
    client: int | None = None
    before: str = ""
    """The place, or the source, that it was at."""
    after: str = ""
    """And is at now."""
    detail: str = ""

    def __str__(self) -> str:
        """Say it in words."""
        client = "" if self.client is None else f" of client {self.client}"
        places = f" from {self.before or '-'} to {self.after or '-'}" if self.before or self.after else ""
        return f"{self.action}{client} by {self.who}{places}{f': {self.detail}' if self.detail else ''}"


def path_of(data_dir: Path, destination: str) -> Path:
    """Return where the list of a destination is."""
    return data_dir / destination / "audit.jsonl"


def keep(path: Path, change: Change) -> None:
    """Add to the list; durable when it returns. A full file takes the place of the one before it. Raises OSError."""
    items = {key: it for key, it in asdict(change).items() if it not in ("", None)}
    line = {key: it[:LONGEST_TEXT] if isinstance(it, str) else it for key, it in items.items()}
    with _keeping:  # two threads would put a new file in the place of the one before
        if path.exists() and path.stat().st_size > MOST_BYTES:
            path.replace(_before(path))
        append_lines(path, [line])


def read(path: Path, most: int) -> list[Change]:
    """Return the last changes of the list, oldest first. Raises ConfigError."""
    lines = deque[bytes](maxlen=most)
    try:
        for one in (_before(path), path):
            if one.exists():
                with one.open("rb") as file:
                    lines.extend(line for line in file if line.strip())
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    return [_parse(line) for line in lines]


def _parse(line: bytes) -> Change:
    try:
        return Change(**json.loads(line))
    except (ValueError, TypeError, RecursionError):
        return Change("a line that cannot be read", "-", 0)  # a crash has cut it


def _before(path: Path) -> Path:
    return path.with_suffix(".1.jsonl")
