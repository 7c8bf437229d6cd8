"""Files and folders that only the user of the server may read: cursors, rows in quarantine, lists of what was done."""

import contextlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any

from ..store.folder import sync_folder


def make_private_folder(path: Path) -> None:
    """Make a folder, and its missing parents, durably; an existing folder stays unchanged. Raises OSError."""
    was_there = path.is_dir()
    if not was_there:
        make_private_folder(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)
    try:
        sync_folder(path.parent)  # also if it was there: a process that was killed may have made it, and no more
    except PermissionError:  # then nobody like us has made it
        if not was_there:
            raise


def open_private(path: Path, mode: str, **options: Any) -> IO[Any]:
    """Open a file as `open` does, and restrict it to its owner. Raises OSError."""
    restrict(path)
    return open(path, mode, opener=lambda name, flags: os.open(name, flags, 0o600), **options)


def append_lines(path: Path, items: Iterable[Mapping[str, Any]]) -> None:
    """Add lines of JSON to a list; they are durable when it returns. Raises OSError."""
    make_private_folder(path.parent)
    with open_private(path, "ab") as file:
        # A line that a crash has cut ends here, so that it takes no other with it.
        begin = b"\n" if file.tell() else b""
        file.write(begin + b"".join(json.dumps(it).encode() + b"\n" for it in items))
        file.flush()
        os.fsync(file.fileno())


def restrict(path: Path) -> None:
    """Restrict a file to its owner, if it exists and belongs to us."""
    with contextlib.suppress(FileNotFoundError, PermissionError):
        path.chmod(0o600)
