"""The folder of an output in an object store.

::

    .sluice/0000000008-12.part/00000000000000000000    the first piece of what will be file 8
    .sluice/0000000008-12.part/00000000000000041231    the one that begins at this byte

Nothing can be appended there. So a part is a folder with a piece for each time that something was written. A piece and
a place are written at once, or not at all. Of two outputs that begin in one folder within a moment, both may take it.
"""

import io
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ....store.remote import RemotePath
from .disk import Finish


class Bucket:
    """A folder in an object store: see `Storage`."""

    def __init__(self, path: RemotePath, pause: Callable[[], None]) -> None:
        """``pause`` is called during what takes long, and may raise."""
        self._path = path
        self._pause = pause

    def prepare(self, folder: str) -> None:
        """See `Storage.prepare`: folders are not made."""
        self.names(folder)  # raises where nothing can be reached

    def names(self, folder: str = "") -> dict[str, float]:
        """See `Storage.names`."""
        return (self._path / folder if folder else self._path).names()

    def read(self, name: str) -> bytes:
        """See `Storage.read`."""
        return (self._path / name).read_bytes()

    def create(self, name: str, text: str) -> str:
        """See `Storage.create`."""
        folder, _, last = name.rpartition("/")
        if last in self.names(folder):
            return self.read(name).decode(errors="replace")
        self.replace(name, text)
        return text

    def replace(self, name: str, text: str) -> None:
        """See `Storage.replace`."""
        (self._path / name).write(io.BytesIO(text.encode()).read)

    def remove(self, name: str) -> None:
        """See `Storage.remove`."""
        if name.endswith(".part"):
            (self._path / name).remove()
        else:
            (self._path / name).unlink()

    def append(self, part: str, size: int, pieces: Sequence[bytes]) -> int:
        """See `Storage.append`."""
        data = b"".join(pieces)
        self._piece(part, size).write(io.BytesIO(data).read)
        return size + len(data)

    def has(self, part: str, size: int) -> bool:
        """See `Storage.has`."""
        return not size or _name(0) in self.names(part)

    def copy(self, part: str, size: int, other: str) -> None:
        """See `Storage.copy`."""
        for begin, data in self._pieces(part, size):
            self._piece(other, begin).write(io.BytesIO(data).read)

    def make_whole(self, part: str, size: int, whole: str, finish: Finish, check: Callable[[], None]) -> None:
        """See `Storage.make_whole`: it is made on the disk of this server."""
        with tempfile.TemporaryDirectory(prefix="sluice-file-") as folder:
            pieces, finished = Path(folder) / "part", Path(folder) / "whole"
            with pieces.open("wb") as file:
                for _, data in self._pieces(part, size):
                    file.write(data)
            finish(pieces, finished)
            check()
            with finished.open("rb") as read:
                (self._path / whole).write(read.read)

    def close(self) -> None:
        """See `Storage.close`: nothing is open."""

    def _pieces(self, part: str, size: int) -> Iterator[tuple[int, bytes]]:
        """Give the pieces of the first bytes of a part, each with where it begins. Raises OSError when one is gone."""
        begin = 0
        while begin < size:
            self._pause()
            data = self._piece(part, begin).read_bytes()
            if not data or begin + len(data) > size:
                raise OSError(f"{self._piece(part, begin)} has {len(data)} bytes, which is not what was written")
            yield begin, data
            begin += len(data)

    def _piece(self, part: str, begin: int) -> RemotePath:
        return self._path / part / _name(begin)


def _name(begin: int) -> str:
    return f"{begin:020}"
