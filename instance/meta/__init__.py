"""Where subscriptions and cursors are kept: `MetaKind` lists all ways. To add one, see docs/internals.md."""

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Protocol, Self

from .base import LocalMetaStore
from .canal import Address
from .file import FileMetaStore
from .memory import MemoryMetaStore


class MetaConfig(Protocol):
    """What a store needs of the configuration of its destination."""

    @property
    def destination(self) -> str:
        """Its name."""

    @property
    def address(self) -> Address:
        """Where its source listens."""

    @property
    def log_position(self) -> str:
        """``parse``: a place is kept, for when no client has a cursor."""

    @property
    def file_data_dir(self) -> Path:
        """The folder of all destinations' files."""


def _in_file(config: MetaConfig) -> LocalMetaStore:
    parse = config.log_position == "parse"
    return FileMetaStore(config.file_data_dir, config.destination, config.address, parse=parse)


class MetaKind(StrEnum):
    """A way to keep them. Each says how its store is made, unless several servers share the store."""

    make: Callable[[MetaConfig], LocalMetaStore] | None
    """Makes the store; None: several servers share it, and the one that has the destination makes it."""
    ack_waits: bool
    """An ack is answered once it is durable."""
    writes_at_once: bool
    """Cursors are written as they change, not once per period; no ack waits for that."""

    def __new__(
        cls,
        name: str,
        make: Callable[[MetaConfig], LocalMetaStore] | None,
        ack_waits: bool = False,
        writes_at_once: bool = False,
    ) -> Self:
        """Make a kind; its value is its name in the configuration."""
        self = str.__new__(cls, name)
        self._value_ = name
        self.make, self.ack_waits, self.writes_at_once = make, ack_waits, writes_at_once
        return self

    FILE = "file", _in_file
    MEMORY = "memory", lambda _config: MemoryMetaStore()
    ZOOKEEPER = "zookeeper", None, True
    MIXED = "mixed", None, False, True
    PERIOD = "period", None

    @property
    def is_shared(self) -> bool:
        """Whether several servers share it."""
        return self.make is None
