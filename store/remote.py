"""Folders in an object store, as `pyarrow.fs` reaches it.

A name is there as a whole, or not at all: an object becomes visible when all of it is written. Credentials come from
where the library of the store looks for them, such as the environment; never from the URL.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Self, cast
from urllib.parse import parse_qsl, urlsplit

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem, S3FileSystem

SCHEMES: Final = ("s3", "gs", "abfs", "abfss")
"""Of URLs of object stores. The files of another one may be visible before they are whole."""
SECRETS: Final = {"client_secret", "sig"}
"""Parameters of URLs of Azure: the one of an account, and that of a shared access signature."""
_PIECE: Final = 4 << 20
_ATTEMPTS: Final = 2
"""Of a call to S3. Each ends when no byte has come for 3 s; from a URL alone, `pyarrow.fs` makes 31 of them."""
_WRITES: Final = 1
"""Of a call that writes: when it fails, `pyarrow.fs` makes it again as the file is closed, and once more to undo it."""
_FLAGS: Final = ("allow_bucket_creation", "allow_bucket_deletion", "allow_delayed_open")
_TEXTS: Final = ("scheme", "endpoint_override", "tls_ca_file_path")


@dataclass(frozen=True, slots=True)
class RemotePath:
    """A folder or a file there: what is needed of `pathlib.Path`, and no more. Methods raise OSError."""

    url: str
    """Of the folder: ``s3://bucket/folder?region=eu-central-1&endpoint_override=…``."""
    place: str = ""
    """Below it."""

    @classmethod
    def parse(cls, url: str) -> Self:
        """Read a URL. Raises ValueError."""
        parts = urlsplit(url)
        if parts.scheme not in SCHEMES or not parts.netloc or parts.fragment:
            raise ValueError(f"is not a URL of an object store, which begins with {'://, '.join(SCHEMES)}://")
        is_named = not SECRETS.isdisjoint(key.lower() for key, _ in parse_qsl(parts.query, keep_blank_values=True))
        if parts.password is not None or (parts.scheme == "s3" and parts.username is not None) or is_named:
            raise ValueError("has credentials, and URLs are logged: leave them to the environment of the server")
        if find_spec("pyarrow") is None:
            raise ValueError("is of an object store, which needs pyarrow: pip install 'sluice-cdc[arrow]'")
        return cls(url)

    def __str__(self) -> str:
        return f"{self.url.partition('?')[0].rstrip('/')}{f'/{self.place}' if self.place else ''}"

    def __truediv__(self, name: str) -> "RemotePath":
        return RemotePath(self.url, f"{self.place}/{name}" if self.place else name)

    @property
    def name(self) -> str:
        """The last part of its name."""
        return str(self).rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """What its name has from the last dot on."""
        _, dot, ending = self.name.rpartition(".")
        return f"{dot}{ending}" if dot else ""

    @contextmanager
    def open(self, mode: str = "rb") -> Iterator[BinaryIO]:
        """Read the file from its begin."""
        assert mode == "rb"
        store, path = self._at()
        with store.open_input_stream(path, compression=None) as file:
            yield cast("BinaryIO", file)

    def names(self) -> dict[str, float]:
        """Return the names in the folder, of files and folders, with the Unix times of their last writes; 0 of folders.

        A folder that is missing is empty.
        """
        from pyarrow.fs import FileSelector, FileType  # noqa: PLC0415  an extra

        store, path = self._at()
        found = store.get_file_info(FileSelector(path, allow_not_found=True))
        return {it.base_name: it.mtime_ns / 1e9 if it.type is FileType.File and it.mtime_ns else 0.0 for it in found}

    def read_bytes(self) -> bytes:
        """Return what a file has."""
        with self.open() as file:
            return file.read()

    def write(self, read: Callable[[int], bytes]) -> None:
        """Write the file from ``read``, which takes a maximum size, and returns no bytes at the end.

        If ``read`` raises, the file may have what came before. A store that is silent fails it within 10 s, or 30 s
        for more than 10 MiB.
        """
        store, path = self._at(_WRITES)
        with store.open_output_stream(path, compression=None) as file:
            while piece := read(_PIECE):
                file.write(piece)

    def unlink(self) -> None:
        """Delete the file, if it is there."""
        store, path = self._at()
        with suppress(FileNotFoundError):
            store.delete_file(path)

    def remove(self) -> None:
        """Delete the folder with all that is in it, if it is there."""
        store, path = self._at()
        with suppress(FileNotFoundError):
            store.delete_dir(path)

    def _at(self, attempts: int = _ATTEMPTS) -> tuple["FileSystem", str]:
        store, path = _open(self.url, attempts)
        return store, f"{path}/{self.place}" if self.place else path


@functools.cache
def _open(url: str, attempts: int) -> tuple[Any, str]:
    """Connect to a store whose calls are made so often. Raises OSError."""
    import pyarrow as pa  # noqa: PLC0415  an extra
    from pyarrow.fs import FileSystem, S3FileSystem  # noqa: PLC0415

    try:
        store, path = FileSystem.from_uri(url)
        if isinstance(store, S3FileSystem):
            store = _s3(url, store.region, attempts) or store
    except pa.ArrowInvalid as error:
        raise OSError(f"{url.partition('?')[0]} cannot be used: {error}") from error
    return store, path.rstrip("/")


def _s3(url: str, region: str, attempts: int) -> "S3FileSystem | None":
    """Return the store of a URL that `pyarrow.fs` has accepted; None if the URL has what only that can set."""
    from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem  # noqa: PLC0415

    options = dict(parse_qsl(urlsplit(url).query))
    if options.keys() - {"region", *_FLAGS, *_TEXTS}:
        return None
    given: dict[str, Any] = {key: options[key] for key in _TEXTS if key in options}
    given |= {key: options[key].lower() in ("true", "1") for key in _FLAGS if key in options}
    return S3FileSystem(region=region, retry_strategy=AwsStandardS3RetryStrategy(max_attempts=attempts), **given)
