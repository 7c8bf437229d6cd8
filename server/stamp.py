"""When and what a file was, to see that it has changed."""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from pathlib import Path

RELOAD = 5.0
"""Seconds after which files that are watched are looked at again."""

Stamp = tuple[int, int, int]
"""When and what a file was: modification time in ns, size, inode."""


def stamp_of(file: Path) -> Stamp | None:
    """Return when and what a file was; None if there is none."""
    try:
        status = file.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


async def changes(files: Iterable[Path]) -> AsyncGenerator[None, None]:
    """Yield each time that one of the files has changed since."""
    watched = tuple(files)

    def look() -> object:
        try:
            return [stamp_of(file) for file in watched]
        except OSError as error:  # who reads the file meets it as well
            return str(error)

    seen = look()
    while True:
        await asyncio.sleep(RELOAD)
        found = await asyncio.to_thread(look)
        if found != seen:
            seen = found
            yield
