"""Files and folders that nobody but the user of the server may read: cursors, and rows in quarantine."""

import contextlib
import os
from pathlib import Path
from typing import IO, Any


def make_private_folder(path: Path) -> None:
    """Make a folder, and those above it that are not there. Raises OSError; one that is there is left as it is."""
    if not path.is_dir():
        make_private_folder(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)


def open_private(path: Path, mode: str, **options: Any) -> IO[Any]:
    """Open a file as `open` does, and leave it to its owner alone. Raises OSError."""
    restrict(path)
    return open(path, mode, opener=lambda name, flags: os.open(name, flags, 0o600), **options)


def restrict(path: Path) -> None:
    """Leave a file to its owner alone, if it is there, and ours to restrict."""
    with contextlib.suppress(FileNotFoundError, PermissionError):
        path.chmod(0o600)
