"""Folders that a power loss leaves as they are."""

import os
from pathlib import Path


def sync_folder(folder: Path) -> None:
    """Bring to the disk which files and folders a folder has. Raises OSError."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
