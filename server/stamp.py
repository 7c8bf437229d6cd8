"""When and what a file was, to see that it has changed."""

from pathlib import Path

Stamp = tuple[int, int, int]
"""When and what a file was: modification time in ns, size, inode."""


def stamp_of(file: Path) -> Stamp | None:
    """Return when and what a file was; None if there is none."""
    try:
        status = file.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
