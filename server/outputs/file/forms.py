"""What files have: how a batch becomes bytes, and how the part of a file becomes the whole file."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import ClassVar, Final, Protocol

from ....instance.files import open_private
from ....protocol.canal.flat import flat_ndjson
from ....protocol.formats.arrow import ARROW
from ....protocol.formats.messages import LENGTH, PROTOBUF
from ....protocol.frames import frame, note
from ....store.archive import COMPRESSED, PIECE
from ....store.batch import Batch
from ....store.log.zstd import compress
from ..target import Place
from .settings import Compression, FileFormat

GROUP: Final = 64 << 20
"""Bytes of a part that become a group of a Parquet file, or up to a batch more."""


class Form(Protocol):
    """A form of files."""

    def suffix(self, compression: Compression) -> str:
        """Return with what the names of whole files end."""

    def encode(self, batch: Batch, *, strict: bool) -> bytes:
        """Return what is added to a part; nothing for a batch without what the form shows."""

    def note(self, place: Place) -> bytes:
        """Return what is added to a part after what `encode` gave, up to a place."""

    def finish(self, part: Path, size: int, target: Path, compression: Compression, pause: Callable[[], None]) -> None:
        """Write the whole file, synced, of the first bytes of a part. Raises OSError and what ``pause`` raises."""


class BytesForm(ABC):
    """A form whose parts are the beginnings of its files."""

    ending: ClassVar[str]
    """Of the names of files that are not compressed."""

    def suffix(self, compression: Compression) -> str:
        """See `Form.suffix`."""
        return self.ending + (COMPRESSED if compression is Compression.ZSTD else "")

    @abstractmethod
    def encode(self, batch: Batch, *, strict: bool) -> bytes:
        """See `Form.encode`."""

    def note(self, place: Place) -> bytes:
        """See `Form.note`: nothing."""
        del place
        return b""

    def finish(self, part: Path, size: int, target: Path, compression: Compression, pause: Callable[[], None]) -> None:
        """See `Form.finish`."""
        copy(part, size, target, pause, compress if compression is Compression.ZSTD else bytes)


class JsonForm(BytesForm):
    """Lines of FlatMessages."""

    ending = ".jsonl"

    def encode(self, batch: Batch, *, strict: bool) -> bytes:
        """See `Form.encode`."""
        return flat_ndjson(batch.slices, batch.batch_id, strict=strict)


class ProtobufForm(BytesForm):
    """Frames of `Messages`: see `sluice.protocol.frames`."""

    ending = ".pb"

    def encode(self, batch: Batch, *, strict: bool) -> bytes:
        """See `Form.encode`."""
        assert PROTOBUF.in_stream is not None
        framed = b"".join(PROTOBUF.in_stream(batch, strict))
        return frame(memoryview(framed)[LENGTH.size :]) if batch.slices else b""

    def note(self, place: Place) -> bytes:
        """See `Form.note`: which transactions were executed."""
        return note(place.position, place.gtids) if place.gtids else b""


class ParquetForm:
    """Rows in Parquet. A part has streams of Arrow, one after the other, which can be cut."""

    def suffix(self, compression: Compression) -> str:
        """See `Form.suffix`."""
        del compression  # it is inside
        return ".parquet"

    def encode(self, batch: Batch, *, strict: bool) -> bytes:
        """See `Form.encode`: statements have no rows."""
        return b"".join(ARROW.encode(batch, strict)) if batch.rows else b""

    def note(self, place: Place) -> bytes:
        """See `Form.note`: nothing."""
        del place
        return b""

    def finish(self, part: Path, size: int, target: Path, compression: Compression, pause: Callable[[], None]) -> None:
        """See `Form.finish`."""
        import pyarrow as pa  # noqa: PLC0415  an extra
        from pyarrow import parquet  # noqa: PLC0415

        writer = None
        with pa.OSFile(str(part)) as source, open_private(target, "wb") as file:
            while source.tell() < size:
                batches: list[pa.RecordBatch] = []
                begin = source.tell()
                while source.tell() < min(size, begin + GROUP):
                    pause()
                    with pa.ipc.open_stream(source) as stream:
                        batches += stream
                rows = pa.Table.from_batches(batches).replace_schema_metadata(None)
                writer = writer or parquet.ParquetWriter(file, rows.schema, compression=compression)
                writer.write_table(rows)
            if writer is not None:
                writer.close()
            file.flush()
            os.fsync(file.fileno())


def copy(
    source: Path, size: int, target: Path, pause: Callable[[], None], change: Callable[[bytes], bytes] = bytes
) -> None:
    """Copy the first bytes of a file, each piece as ``change`` makes it; the copy is synced.

    Raises OSError, also for a file that is shorter, and what ``pause`` raises, which is called between pieces.
    """
    with source.open("rb") as read, open_private(target, "wb") as write:
        left = size
        while left:
            pause()
            piece = read.read(min(PIECE, left))
            if not piece:
                raise OSError(f"{source} has {size - left} bytes, although {size} were synced")
            write.write(change(piece))
            left -= len(piece)
        write.flush()
        os.fsync(write.fileno())


FORMS: Final[Mapping[FileFormat, Form]] = {
    FileFormat.JSON: JsonForm(),
    FileFormat.PB: ProtobufForm(),
    FileFormat.PARQUET: ParquetForm(),
}
"""All of them."""
