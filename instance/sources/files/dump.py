"""The files of a folder, one after the other, as the packets in which a server would send them."""

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from ....protocol.errors import DecodeError, SourceError
from ....protocol.position import file_number
from ..mysql.decode.events import BinlogEvent
from .folder import HEADER, MAGIC, Folder, UnfinishedFileError
from .framing import EventFramer

logger = logging.getLogger(__name__)

PIECE: Final = 1 << 20
"""Bytes that are read at once."""
PAUSE: Final = 0.2
"""Seconds between two looks at whether there is more."""
QUIET: Final = 10.0
"""Seconds for which a file without an end of its own does not grow, before it is taken for whole: it may be copied."""
_LAST: Final = (BinlogEvent.ROTATE_EVENT, BinlogEvent.STOP_EVENT)
"""What a server ends a file with, unless it is killed."""


class FileDump:
    """Reads from a place of a file on: see `sluice.instance.sources.mysql.start.Packets`.

    Where nothing more will come, it ends by the packet that a server ends with.
    """

    def __init__(
        self,
        folder: Folder,
        file: str,
        offset: int,
        *,
        most: int,
        waits: bool = False,
        check_follower: Callable[[str, str], bool] | None = None,
        on_end: Callable[[float], None] | None = None,
    ) -> None:
        """Begin at an offset. `most`: the bytes of an event that is taken. Raises SourceError.

        `waits`: for what is still to come at the end of the last file. `check_follower` raises SourceError for a file,
        and the one after it, if something is missing between them, and returns whether nothing is, as far as can be
        known; without it the dump ends with the file. `on_end` is called again and again while nothing more is there,
        with the monotonic time.
        """
        self.name = folder.name
        self._folder = folder
        self._waits = waits
        self._check_follower = check_follower
        self._on_end = on_end
        self._framer = EventFramer(most)
        self._descriptor = -1
        self._stopping = threading.Event()
        self._is_over = False
        self._open(file, offset)

    @property
    def place(self) -> tuple[str, int]:
        """The file, and the offset up to which it was read."""
        return self._file, self._framer.place

    def receive_into(self, space: memoryview) -> int:
        """Wait for bytes and return their number; 0 after the end, and after `shutdown`.

        Raises SourceError with file and offset.
        """
        while not self._stopping.is_set() and not self._is_over:
            try:
                taken, written = self._framer.frame(memoryview(self._data)[self._taken :], space)
            except DecodeError as error:
                raise self._error(str(error)) from error
            self._taken += taken
            if written:
                return written
            if self._load() or self._take_copy():
                continue
            later = self._later()
            if self._load() or self._take_copy():  # since the last look: what a follower has comes after that
                continue
            if (follower := self._follower(later)) is not None:
                self._open(follower, len(MAGIC))
            elif self._waits:
                if self._on_end is not None:
                    self._on_end(time.monotonic())
                self._stopping.wait(PAUSE)
            else:
                self._is_over = True
                packet = self._framer.eof()
                space[: len(packet)] = packet
                return len(packet)
        return 0

    def shutdown(self) -> None:
        """End it from any thread."""
        self._stopping.set()

    def close(self) -> None:
        """Close the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    @property
    def _path(self) -> Path:
        return self._folder.path / self._file

    def _open(self, file: str, offset: int) -> None:
        head = self._folder.head(file)
        self.close()
        self._file, self._description = file, head.description
        self._descriptor = self._folder.open(file)
        self._data, self._taken = head.before(file, offset), 0
        self._loaded = offset
        self._framer.place = offset - len(self._data)
        self._framer.end = os.fstat(self._descriptor).st_size
        self._note_growth()

    def _note_growth(self) -> None:
        self._grown = time.monotonic()
        self._is_proven: bool | None = None

    def _load(self) -> bool:
        """Read on; return whether there is more than before."""
        left = len(self._data) - self._taken
        try:
            size = os.fstat(self._descriptor).st_size
            if size < self._loaded:
                raise self._error(f"the file has been cut to {size} bytes while it was read")
            has_grown = size > self._framer.end
            if not self._framer.is_inside and left >= HEADER.size and not has_grown:
                return False  # the rest of the next event is not there
            self._framer.end = size
            piece = os.pread(self._descriptor, PIECE, self._loaded) if left < PIECE else b""
        except OSError as error:
            raise self._error(error.strerror or str(error)) from error
        self._data, self._taken = self._data[self._taken :] + piece, 0
        self._loaded += len(piece)
        if has_grown:
            self._note_growth()
        return has_grown or bool(piece)

    def _take_copy(self) -> bool:
        """Go on in a longer copy that has taken the place of the file; return whether there is one."""
        if self._check_follower is None:
            return False
        try:
            there, ours = self._path.stat(), os.fstat(self._descriptor)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise self._error(error.strerror or str(error)) from error
        if (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino):
            return False
        if self._folder.head(self._file).description[HEADER.size :] != self._description[HEADER.size :]:
            raise self._error("another file has taken its place while it was read")
        descriptor = self._folder.open(self._file)
        self.close()
        self._descriptor = descriptor
        self._note_growth()
        return True

    def _later(self) -> list[str]:
        """Return the files that are there after the present one. Raises SourceError if that is gone."""
        if self._check_follower is None:
            return []
        files = [name for name, _ in self._folder.binlog_files()]
        later = [name for name in files if file_number(name) > file_number(self._file)]
        if not later and self._file not in files:
            raise self._error("the file was removed while it was read")
        return later

    def _follower(self, later: Sequence[str]) -> str | None:
        """Return the next file, if the present one is whole; None if nothing follows. Raises SourceError."""
        if self._check_follower is None:
            return None
        torn = self._framer.end - self._framer.place
        if torn and (later or not self._waits):
            raise self._error(f"the file ends inside an event, after {torn} bytes of it: it is not copied as a whole")
        if not later or (self._waits and self._is_unfinished(later[0])):
            return None
        if file_number(later[0]) != file_number(self._file) + 1:
            raise self._error(
                f"the file ends, and {later[0]} is the next one that is there: copy those between into the folder, too"
            )
        if self._framer.type not in _LAST:
            if self._is_proven is None:
                self._is_proven = self._check_follower(self._file, later[0])
            if self._waits and not self._is_proven and time.monotonic() - self._grown < QUIET:
                return None  # it may still be copied
            logger.warning("%s has no ROTATE or STOP event at its end: its server was killed", self._path)
        return later[0]

    def _is_unfinished(self, file: str) -> bool:
        try:
            self._folder.head(file)
        except UnfinishedFileError:
            return True
        return False

    def _error(self, text: str) -> SourceError:
        return SourceError(f"{self._path}, offset {self._framer.place}: {text}")
