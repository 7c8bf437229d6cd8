"""A folder with the files of one binlog, and how one of them begins."""

import os
import re
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from ....protocol.errors import SourceError
from ....protocol.position import file_number
from ..mysql.connection import ServerFacts
from ..mysql.decode.events import BinlogEvent
from .config import FilesConfig

MAGIC: Final = b"\xfebin"
ENCRYPTED_MAGIC: Final = b"\xfdbin"
"""Of MySQL's encrypted files (sql/rpl_log_encryption.h)."""
HEADER: Final = struct.Struct("<IBIIIH")
"""Of an event: timestamp, type, server id, size, log_pos, flags."""
_NAME: Final = re.compile(r"(.{1,200})\.[0-9]{1,10}", re.DOTALL)
_IN_USE: Final = 0x01
_ARTIFICIAL: Final = 0x20
_RELAY_LOG: Final = 0x40
_VERSION: Final = slice(HEADER.size + 2, HEADER.size + 52)
_HEAD: Final = 4096
"""Bytes in which a file's FORMAT_DESCRIPTION event has to be, and the header of the next; it has about 120."""


class UnfinishedFileError(SourceError):
    """A file does not have the whole of its first event yet."""


@dataclass(frozen=True, slots=True)
class Head:
    """What a file begins with."""

    description: bytes
    """Its FORMAT_DESCRIPTION event."""
    server_id: int
    version: str

    @property
    def end(self) -> int:
        """The offset after it."""
        return len(MAGIC) + len(self.description)

    def before(self, name: str, offset: int) -> bytes:
        """Return the events that a server sends before those from an offset on.

        A ROTATE event names the file, and the FORMAT_DESCRIPTION event comes without a place of its own if it is not
        the one at the offset (sql/rpl_binlog_sender.cc, fake_rotate_event and send_format_description_event).
        """
        body = offset.to_bytes(8, "little") + name.encode()
        rotate = HEADER.pack(0, BinlogEvent.ROTATE_EVENT, self.server_id, HEADER.size + len(body), 0, _ARTIFICIAL)
        if offset <= len(MAGIC):
            return rotate + body
        timestamp, kind, server_id, size, _, flags = HEADER.unpack_from(self.description)
        event = HEADER.pack(timestamp, kind, server_id, size, 0, flags & ~_IN_USE) + self.description[HEADER.size :]
        if _crc(self.description, flags) == self.description[-4:]:
            event = event[:-4] + zlib.crc32(event[:-4]).to_bytes(4, "little")
        return rotate + body + event


def _crc(description: bytes, flags: int) -> bytes:
    """Return the checksum that the event has if it has one: the flag for a file in use was set later."""
    flags_at = HEADER.size - 2
    closed = description[:flags_at] + (flags & ~_IN_USE).to_bytes(2, "little") + description[HEADER.size : -4]
    return zlib.crc32(closed).to_bytes(4, "little")


class Folder:
    """The binlog files of a folder: a `sluice.instance.sources.mysql.start.Binlog`."""

    def __init__(self, config: FilesConfig) -> None:
        """Look for the files, and into the last one. Raises SourceError."""
        self.path = config.folder
        self.name = str(config.folder)
        self._checks_server = not config.server_uuid
        self._base = config.name or self._find_base()
        self.facts = self._facts(self._head(self.last_file()), config.server_uuid)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open."""

    def shutdown(self) -> None:
        """Nothing waits."""

    def binlog_files(self) -> list[tuple[str, int]]:
        """See `Binlog.binlog_files`."""
        try:
            with os.scandir(self.path) as entries:
                found = [
                    (it.name, it.stat().st_size)
                    for it in entries
                    if (match := _NAME.fullmatch(it.name)) and match[1] == self._base and it.is_file()
                ]
        except OSError as error:
            raise SourceError(_unreadable(self.path, error)) from error
        if not found:
            raise SourceError(
                f"{self.path} has no binlog file {self._base}.…: copy the files there that are to be read"
            )
        return sorted(found, key=lambda it: file_number(it[0]))

    def head(self, name: str) -> Head:
        """Read what a file begins with. Raises SourceError if it cannot be read, or is of another server."""
        head = self._head(name)
        if self._checks_server and head.server_id != self.facts.server_id:
            raise SourceError(
                f"{self.path / name}, offset {len(MAGIC)}: its server id is {head.server_id}, that of the last file is"
                f" {self.facts.server_id}. Move it out of the folder if it is from another server. If the server got"
                " another id, set sluice.instance.files.serverUuid, for MySQL"
            )
        return head

    def open(self, name: str) -> int:
        """Open a file, and return its descriptor. Raises SourceError."""
        try:
            return os.open(self.path / name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK)
        except OSError as error:
            raise SourceError(_unreadable(self.path / name, error)) from error

    def _find_base(self) -> str:
        """Return what the names of all binlog files have before their number."""
        try:
            names = sorted(it.name for it in os.scandir(self.path) if _NAME.fullmatch(it.name) and it.is_file())
        except OSError as error:
            raise SourceError(_unreadable(self.path, error)) from error
        bases: dict[str, None] = {}
        for name in names:
            base = name.rpartition(".")[0]
            if base not in bases and self._begin(name, len(MAGIC)) in (MAGIC, ENCRYPTED_MAGIC):
                bases[base] = None
        if len(bases) > 1:
            raise SourceError(
                f"{self.path} has the files of several binlogs: {', '.join(bases)}. Set sluice.instance.files.name to"
                " the one that is to be read"
            )
        if not bases:
            raise SourceError(
                f"{self.path} has no binlog files: names with a number after the last dot, of files that begin with"
                " FE 62 69 6E. Copy those there that are to be read"
            )
        return next(iter(bases))

    def _begin(self, name: str, size: int) -> bytes:
        descriptor = self.open(name)
        try:
            return os.pread(descriptor, size, 0)
        except OSError as error:
            raise SourceError(_unreadable(self.path / name, error)) from error
        finally:
            os.close(descriptor)

    def _head(self, name: str) -> Head:
        data, path = self._begin(name, _HEAD), self.path / name
        if data.startswith(ENCRYPTED_MAGIC):
            raise SourceError(f"{path}, offset 0: the file is encrypted by MySQL (binlog_encryption). {_DECRYPT}")
        if data[: len(MAGIC)] != MAGIC[: len(data)]:
            raise SourceError(f"{path}, offset 0: it is not a binlog: it does not begin with FE 62 69 6E")
        if len(data) < len(MAGIC) + HEADER.size:
            raise UnfinishedFileError(
                f"{path}, offset {len(data)}: the file ends before its first event: it is not copied yet"
            )
        _, kind, server_id, size, _, flags = HEADER.unpack_from(data, len(MAGIC))
        end = len(MAGIC) + size
        if kind != BinlogEvent.FORMAT_DESCRIPTION_EVENT or not HEADER.size + 58 <= size <= _HEAD // 2:
            raise SourceError(f"{path}, offset {len(MAGIC)}: the binlog does not begin with its description: damaged?")
        if flags & _RELAY_LOG:
            raise SourceError(
                f"{path}, offset {len(MAGIC)}: it is a relay log of a replica, in which the places are not those of its"
                " source: take the binlog of the source, or the replica's own (log_replica_updates)"
            )
        if len(data) < end:
            raise UnfinishedFileError(
                f"{path}, offset {len(data)}: the file ends inside its first event: it is not copied yet"
            )
        if data[end + 4 : end + 5] == bytes([BinlogEvent.MARIADB_START_ENCRYPTION_EVENT]):
            raise SourceError(f"{path}, offset {end}: the file is encrypted by MariaDB (encrypt_binlog). {_DECRYPT}")
        description = data[len(MAGIC) : end]
        return Head(description, server_id, description[_VERSION].split(b"\0")[0].decode("ascii", "replace"))

    def begun_files(self) -> list[str]:
        """Return the files that are there, without the last one if that does not have its first event yet."""
        *earlier, last = [name for name, _ in self.binlog_files()]
        try:
            self._head(last)
        except UnfinishedFileError:
            if not earlier:
                raise
            return earlier
        return [*earlier, last]

    def last_file(self) -> str:
        """Return the last file that has its first event."""
        return self.begun_files()[-1]

    def _facts(self, head: Head, uuid: str) -> ServerFacts:
        mariadb = "mariadb" in head.version.lower()
        variables = {
            "version": head.version,
            "server_id": str(head.server_id),
            "server_uuid": uuid or str(head.server_id),
            "gtid_mode": "" if mariadb else "ON",
            "log_bin": "ON",
            "lower_case_table_names": "0",
            "time_zone": "",
        }
        return ServerFacts.of(variables)


_DECRYPT: Final = "Sluice has no key for it: read the server itself, which sends it in the clear"


def _unreadable(path: Path, error: OSError) -> str:
    return f"{path} cannot be read: {error.strerror or error}"
