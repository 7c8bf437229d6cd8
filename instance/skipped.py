"""The durable list of changes that an output has left out, as it was configured to."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from ..protocol.errors import ConfigError
from .files import append_lines


@dataclass(frozen=True, slots=True)
class Skipped:
    """A change that was left out."""

    position: str
    """Where it stands in the stream."""
    reason: str
    output: str = ""
    """The name of the output."""
    time: float = 0.0
    """When it was left out, Unix time."""


def path_of(data_dir: Path, destination: str) -> Path:
    """Return where the list of a destination is."""
    return data_dir / destination / "skipped.jsonl"


def keep(path: Path, items: Sequence[Skipped]) -> None:
    """Add to the list; durable when it returns. Raises OSError."""
    append_lines(path, map(asdict, items))


def read(path: Path) -> list[Skipped]:
    """Return what is on the list, each change once; a line that a crash cut is left out. Raises ConfigError."""
    try:
        lines = path.read_bytes().splitlines() if path.exists() else []
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    items = [found for it in lines if (found := _parse(it)) is not None]
    return list({(it.output, it.position): it for it in items}.values())


def _parse(line: bytes) -> Skipped | None:
    try:
        return Skipped(**json.loads(line))
    except (ValueError, TypeError, RecursionError):
        return None
