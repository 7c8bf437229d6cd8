"""Subscriptions and cursors that are lost at a restart."""

from typing import TYPE_CHECKING

from ...store.cursor import Changes, StoredClient
from .base import InUse, epoch_by_clock

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ...store.moves import Move


class MemoryMetaStore:
    """Keeps nothing: clients have to subscribe again after a restart."""

    place = None
    where = "memory: consumers have to subscribe again after each start"

    def __init__(self, source: InUse | None = None) -> None:
        """``source``: which of several servers is in use, if that is known."""
        self.source = source
        self._epoch = 0
        self.moves: Mapping[int, Sequence[Move]] = {}

    async def open(self) -> tuple[int, list[StoredClient]]:
        """Return a new epoch and no clients."""
        self._epoch = epoch_by_clock(self._epoch)
        return self._epoch, []

    def read(self) -> list[StoredClient]:
        """Return no clients."""
        return []

    async def write(self, changes: Changes, epoch: int) -> None:
        """Forget the changes, but not the epoch."""
        del changes
        self._epoch = max(self._epoch, epoch)

    async def keep_source(self, source: InUse, epoch: int) -> None:
        """Keep it as long as the process lives."""
        del epoch
        self.source = source

    async def close(self) -> None:
        """Do nothing."""
