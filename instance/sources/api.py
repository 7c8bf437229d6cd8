"""What a source of another package is: the interface `sluice.sources`, version 1. See docs/howto/plugins.md.

A package names a class with what `SourceKind` has, in its entry points of the group ``sluice.sources``. Everything that
such a class needs of Sluice can be imported from here.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple, Protocol

from ...protocol.canal.entry_pb2 import Entry, EntryType, EventType, RowChange
from ...protocol.canal.packet_pb2 import Messages
from ...protocol.errors import SourceError
from ..plugins import SOURCES, VERSIONS
from ..settings import FolderPath, Settings, setting

__all__ = [
    "API",
    "LARGEST",
    "Entry",
    "EntryType",
    "EventType",
    "FolderPath",
    "Piece",
    "RowChange",
    "Settings",
    "Source",
    "SourceError",
    "SourceKind",
    "framed",
    "setting",
]

API: Final = VERSIONS[SOURCES]
"""The version of this interface. Sluice uses classes whose ``api`` is this number, and refuses others."""
LARGEST: Final = 64 << 20
"""Bytes of a `Piece`."""


class Piece(NamedTuple):
    """Changes that a client should see together: a transaction, or a single change."""

    data: bytes
    """Canal's entries, framed: see `framed`. Sluice sets the file and offset of their headers."""
    end: int
    """The offset after the piece, greater than all before and below 2 ** 63. Reading can go on there."""


class Source(Protocol):
    """What changes are read from. An object is used by one thread only, and there may be several objects at a time.

    A method raises `SourceError` when the source does not answer, or has what cannot be read: Sluice says so, and tries
    again after 0.2 to 30 s. Anything else that is raised counts as such an error, too. Apart from `read`, a call ends
    within 5 seconds.
    """

    def history(self) -> str:
        """Return a name of what is read: 1 to 64 letters, digits, '_' and '-'.

        It changes when offsets mean something else than before, and only then: a file or log was replaced.
        """

    def oldest(self) -> int:
        """Return the offset where the oldest piece begins that the source still has; its `end` if it has none."""

    def end(self) -> int:
        """Return the offset after the last piece that the source has now."""

    def read(self, offset: int) -> Iterator[Piece | None]:
        """Give the pieces from an offset on, which is `oldest`, `end` or the end of a piece, for ever.

        None says that there is nothing more at present: Sluice asks again a moment later. So it never waits for long
        itself: Sluice can stop it only between two pieces. It ends where nothing will ever come. From the same offset
        it gives the same pieces each time, of the same bytes. It holds a few pieces in memory, however much there is.
        """

    def close(self) -> None:
        """Free what is open; the last call."""


class SourceKind(Protocol):
    """The class that an entry point of ``sluice.sources`` names: it has these as attributes."""

    @property
    def api(self) -> int:
        """The version of this interface that the class is written for: 1."""

    @property
    def title(self) -> str:
        """What a source of this kind is called, in errors: ``JSON lines in a file``."""

    @property
    def settings(self) -> type[Settings]:
        """What can be configured: a subclass of `Settings`.

        It declares its keys by `setting`, as ``sluice.instance.KIND.KEY`` with the name of the entry point, each with a
        type, a default and a docstring.
        """

    def __call__(self, settings: Any) -> Source:
        """Make a source. Raises SourceError when it cannot be reached."""


def framed(entries: Iterable[Entry]) -> bytes:
    """Return entries as `Piece.data` has them: as the field ``messages`` of Canal's ``Messages``."""
    return Messages(messages=[it.SerializeToString() for it in entries]).SerializeToString()
