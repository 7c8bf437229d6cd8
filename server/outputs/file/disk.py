"""The folder of an output on a disk: what is written there is durable, and a name is there as a whole."""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from ....instance.files import make_private_folder, open_private
from ....store.folder import sync_folder
from .forms import copy

STATE: Final = ".sluice"
"""Name of the folder in it with what is not for readers."""
Finish = Callable[[Path, Path], None]
"""Makes a part, the one file, a whole file, the other one."""


class Storage(Protocol):
    """Where the folder of an output is. One thread calls it; every method raises OSError.

    A name may have a folder before it: ``.sluice/place-12``. A part grows by what is appended.
    """

    def prepare(self, folder: str) -> None:
        """Make the folder, and one in it."""

    def names(self, folder: str = "") -> dict[str, float]:
        """Return the names in a folder, with the times of their last writes."""

    def read(self, name: str) -> bytes:
        """Return what a file has."""

    def create(self, name: str, text: str) -> str:
        """Write a file unless it is there, and return what it has."""

    def replace(self, name: str, text: str) -> None:
        """Put a text in the place of a file, durably and as a whole."""

    def remove(self, name: str) -> None:
        """Delete a file, or a part, if it is there."""

    def append(self, part: str, size: int, pieces: Sequence[bytes]) -> int:
        """Put pieces behind the first bytes of a part, durably, and return how many it has then."""

    def has(self, part: str, size: int) -> bool:
        """Whether a part has ``size`` bytes, or more."""

    def copy(self, part: str, size: int, other: str) -> None:
        """Make another part of the first bytes of one."""

    def make_whole(self, part: str, size: int, whole: str, finish: Finish, check: Callable[[], None]) -> None:
        """Make a whole file of the first bytes of a part, durably; ``check`` is called before it gets its name."""

    def close(self) -> None:
        """Close what is open."""


class Disk:
    """A folder on a disk: see `Storage`."""

    def __init__(self, path: Path, pause: Callable[[], None]) -> None:
        """``pause`` is called during what takes long, and may raise."""
        self._path = path
        self._pause = pause
        self._file = -1

    def prepare(self, folder: str) -> None:
        """See `Storage.prepare`."""
        make_private_folder(self._path / folder)

    def names(self, folder: str = "") -> dict[str, float]:
        """See `Storage.names`."""
        found = {}
        for it in list(os.scandir(self._path / folder)):
            with suppress(FileNotFoundError):  # a former owner may have renamed it just now
                found[it.name] = it.stat().st_mtime
        return found

    def read(self, name: str) -> bytes:
        """See `Storage.read`."""
        return (self._path / name).read_bytes()

    def create(self, name: str, text: str) -> str:
        """See `Storage.create`: of two that begin at once, one has it."""
        path = self._path / name
        try:
            with open(path, "x", opener=lambda it, flags: os.open(it, flags, 0o600)) as file:
                file.write(text)
        except FileExistsError:
            return path.read_text(errors="replace")
        return text

    def replace(self, name: str, text: str) -> None:
        """See `Storage.replace`."""
        path = self._path / name
        unfinished = self._unfinished(name)
        with open_private(unfinished, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
        sync_folder(path.parent)

    def remove(self, name: str) -> None:
        """See `Storage.remove`."""
        (self._path / name).unlink(missing_ok=True)

    def append(self, part: str, size: int, pieces: Sequence[bytes]) -> int:
        """See `Storage.append`."""
        if self._file < 0:
            self._file = os.open(self._path / part, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            if (found := os.fstat(self._file).st_size) < size:  # it would be filled with zeros
                self.close()
                raise OSError(f"{self._path / part} has {found} bytes, and {size} were confirmed")
            os.ftruncate(self._file, size)
        for piece in pieces:
            left = memoryview(piece)
            while left:
                written = os.pwrite(self._file, left, size)
                size, left = size + written, left[written:]
        os.fsync(self._file)
        return size

    def has(self, part: str, size: int) -> bool:
        """See `Storage.has`: a part that is too short is an error of `copy` and `append`, which name it."""
        del size
        return (self._path / part).exists()

    def copy(self, part: str, size: int, other: str) -> None:
        """See `Storage.copy`."""
        copy(self._path / part, size, self._path / other, self._pause)

    def make_whole(self, part: str, size: int, whole: str, finish: Finish, check: Callable[[], None]) -> None:
        """See `Storage.make_whole`."""
        del size
        unfinished = self._unfinished(part)
        finish(self._path / part, unfinished)
        check()
        unfinished.replace(self._path / whole)
        sync_folder(self._path)

    def close(self) -> None:
        """See `Storage.close`."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _unfinished(self, name: str) -> Path:
        return self._path / STATE / f"{Path(name).name}.tmp"
