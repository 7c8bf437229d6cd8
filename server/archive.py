"""A backup: one tar file that is there as a whole or not at all, and is read as if a stranger had made it.

Its items are plain files. The last one is the manifest, which names all others with their sizes and sums. Nothing is
read into memory as a whole but that.

==========================  ====================================================
``data/<destination>/…``    cursors, lists of what was quarantined, left out or done
``log/<destination>/…``     the log on disk
``history/<destination>/…`` the history of tables
``conf/…``                  the configuration, and
``credentials.json``        tokens and users; both have secrets
==========================  ====================================================
"""

import hashlib
import io
import os
import re
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from .. import __version__
from ..instance.config import DESTINATION_NAME
from ..instance.files import open_private
from ..protocol.errors import ConfigError
from ..store.folder import sync_folder

FORMAT: Final = 1
"""The version of all this."""
MANIFEST: Final = "manifest.json"
CREDENTIALS: Final = "credentials.json"
PARTS: Final = ("data/", "log/", "history/")
"""How the names of items begin that belong to destinations."""
LARGEST_MANIFEST: Final = 256 << 20
"""Bytes; 20,000 clients of a destination take about 2 MiB."""
CHUNK: Final = 1 << 20
"""Bytes that are read at a time."""
_FILE = r"[A-Za-z0-9][A-Za-z0-9._@:%+-]{0,199}"
NAME: Final = re.compile(
    rf"(?:data|log|history)/{DESTINATION_NAME}/{_FILE}"
    rf"|conf/canal\.properties|conf/{DESTINATION_NAME}/instance\.properties|{re.escape(CREDENTIALS)}"
)
"""What an item may be called. No part of a path begins with a dot."""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Item(_Model):
    """A file in a backup."""

    name: str = Field(max_length=1000)
    bytes: int = Field(ge=0)
    sha256: str = Field(pattern="^[0-9a-f]{64}$")


class Contents(_Model):
    """What a backup has of a destination."""

    meta: Literal["file", "memory", "zookeeper"]
    """Where its cursors were kept; of those in memory there are none here."""
    clients: dict[int, str] = {}
    """Where each client goes on; empty for one that has no place yet."""


class Manifest(_Model):
    """What a backup has."""

    format: int
    version: str
    """Of Sluice."""
    made: datetime
    destinations: dict[str, Contents]
    items: tuple[Item, ...]

    @property
    def bytes(self) -> int:
        """The size of all items."""
        return sum(it.bytes for it in self.items)

    @property
    def has_secrets(self) -> bool:
        """Whether it has configuration and credentials."""
        return any(not it.name.startswith(PARTS) for it in self.items)


class _Summing:
    """A file whose bytes are summed as they are read."""

    def __init__(self, file: IO[bytes], tell: Callable[[int], None]) -> None:
        self._file = file
        self._tell = tell
        self.sha256 = hashlib.sha256()

    def read(self, size: int = CHUNK, /) -> bytes:
        """Return what comes next, at most ``size`` bytes."""
        data = self._file.read(size)
        self.sha256.update(data)
        self._tell(len(data))
        return data


class BackupWriter(AbstractContextManager["BackupWriter"]):
    """Writes a backup beside its place, and puts it there when `finish` has made it durable.

    Every method raises OSError, and ConfigError for what would be no whole backup.
    """

    def __init__(self, path: Path, tell: Callable[[int], None]) -> None:
        """``tell`` is called with the bytes of each piece that is copied."""
        require_new(path)
        self._path = path
        self._tell = tell
        self._items: list[Item] = []
        number, new = tempfile.mkstemp(".tmp", f".{path.name}-", path.parent)  # with mode 0600, and for no other backup
        self._new, self._file = Path(new), os.fdopen(number, "wb")
        self._tar = tarfile.open(fileobj=self._file, mode="w", format=tarfile.PAX_FORMAT)  # noqa: SIM115  see __exit__

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        self._new.unlink(missing_ok=True)

    def add(self, name: str, path: Path) -> None:
        """Add what a file has now; what is appended meanwhile is left out. Raises FileNotFoundError, too."""
        with path.open("rb") as file:
            self._add(name, file, os.fstat(file.fileno()).st_size)

    def _add(self, name: str, file: IO[bytes], size: int) -> None:
        summing = _Summing(file, self._tell)
        info = tarfile.TarInfo(name)
        info.size, info.mode, info.mtime = size, 0o600, int(time.time())  # noqa: TID251  of a file
        try:
            self._tar.addfile(info, summing)
        except OSError as error:
            if error.errno is not None:
                raise
            raise ConfigError(f"{name} became shorter while it was copied: run the backup again") from error
        self._items.append(Item(name=name, bytes=size, sha256=summing.sha256.hexdigest()))

    def finish(self, destinations: Mapping[str, Contents]) -> Manifest:
        """Write the manifest, and put the backup in its place; return the manifest."""
        manifest = Manifest(
            format=FORMAT,
            version=__version__,
            made=datetime.now(UTC),  # noqa: TID251  is stored
            destinations=dict(destinations),
            items=tuple(self._items),
        )
        data = manifest.model_dump_json(indent=1).encode()
        self._add(MANIFEST, io.BytesIO(data), len(data))
        self._tar.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        require_new(self._path)
        self._new.replace(self._path)
        sync_folder(self._path.parent)
        return manifest


def require_new(path: Path) -> None:
    """Raise ConfigError if the file of a backup exists."""
    if path.exists():
        raise ConfigError(f"{path} exists: choose another name, or move it away")


def verify(path: Path, tell: Callable[[int], None]) -> Manifest:
    """Read a backup to its end, and return its manifest. Raises ConfigError unless all of it is as that says."""
    with _opened(path) as items:
        found: dict[str, Item] = {}
        data = b""
        for info, file in items:
            if data:
                raise _bad(path, f"{info.name!r} comes after the manifest")
            if info.name in found:
                raise _bad(path, f"{info.name!r} is there twice")
            if info.name == MANIFEST:
                if info.size > LARGEST_MANIFEST:
                    raise _bad(path, f"its manifest has {info.size} bytes")
                data = b"".join(iter(lambda: file.read(CHUNK), b""))  # noqa: B023  read at once
                continue
            summing = _Summing(file, tell)
            while summing.read():
                pass
            found[info.name] = Item(name=info.name, bytes=info.size, sha256=summing.sha256.hexdigest())
    manifest = _manifest(path, data)
    for it in manifest.items:
        if found.pop(it.name, None) != it:
            raise _bad(path, f"{it.name!r} is missing, or is not what was written")
    if found:
        raise _bad(path, f"{min(found)!r} is not in its manifest")
    return manifest


def extract(path: Path, manifest: Manifest, targets: Mapping[str, Path], tell: Callable[[int], None]) -> None:
    """Write items to new files, durably, each in a folder that exists.

    Raises ConfigError if the backup is no longer what was verified, and OSError.
    """
    sums = {it.name: it.sha256 for it in manifest.items}
    written = set()
    with _opened(path) as items:
        for info, file in items:
            if (target := targets.get(info.name)) is None:
                continue
            summing = _Summing(file, tell)
            with open_private(target, "xb") as new:
                while data := summing.read():
                    new.write(data)
                new.flush()
                os.fsync(new.fileno())
            if summing.sha256.hexdigest() != sums[info.name]:
                raise _bad(path, f"{info.name!r} has changed since it was verified")
            written.add(info.name)
    if missing := targets.keys() - written:
        raise _bad(path, f"{min(missing)!r} has gone since it was verified")


class _Pieces(io.BufferedReader):
    """A file that is read in pieces only: what tarfile reads as a whole are headers, whose size anybody can write."""

    def read(self, size: int | None = -1, /) -> bytes:
        """Return what comes next. Raises tarfile.ReadError if too much is wanted."""
        if size is None or not 0 <= size <= CHUNK:
            raise tarfile.ReadError(f"it has a header of {size} bytes")
        return super().read(size)


@contextmanager
def _opened(path: Path) -> Iterator[Iterator[tuple[tarfile.TarInfo, IO[bytes]]]]:
    """Give the items, one after the other, each with its content. Raises ConfigError."""
    try:
        with _Pieces(io.FileIO(path)) as file, tarfile.open(fileobj=file, mode="r:") as tar:
            yield _items_of(path, tar)
    except (tarfile.TarError, EOFError, ValueError, OverflowError, RecursionError) as error:
        raise _bad(path, f"{type(error).__name__}: {error}") from error
    except OSError as error:
        if error.filename not in (None, str(path)):
            raise
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from error


def _items_of(path: Path, tar: tarfile.TarFile) -> Iterator[tuple[tarfile.TarInfo, IO[bytes]]]:
    room = path.stat().st_size
    for info in tar:
        if info.type != tarfile.REGTYPE or info.issparse() or info.size < 0:
            raise _bad(path, f"{info.name!r} is not a plain file")
        if info.name != MANIFEST and not NAME.fullmatch(info.name):
            raise _bad(path, f"{info.name!r} is no name that a backup has")
        tarfile.data_filter(info, str(path.parent))
        room -= info.size
        if room < 0:
            raise _bad(path, f"{info.name!r} says that it has {info.size} bytes, which are not there")
        file = tar.extractfile(info)
        assert file is not None  # a plain file has a content
        yield info, file


def _manifest(path: Path, data: bytes) -> Manifest:
    if not data:
        raise _bad(path, "it has no manifest: it was not written to its end")
    try:
        found = Manifest.model_validate_json(data)
    except ValidationError as error:
        places = ", ".join(".".join(map(str, item["loc"])) or "the text" for item in error.errors()[:10])
        raise _bad(path, f"its manifest is wrong: see {places}") from None
    if found.format != FORMAT:
        raise ConfigError(
            f"{path} was made by Sluice {found.version}, in format {found.format}; this version reads format {FORMAT}:"
            " use that version"
        )
    return found


def _bad(path: Path, why: str) -> ConfigError:
    return ConfigError(f"{path} is not a whole backup of Sluice: {why}. Use another backup; nothing was changed")
