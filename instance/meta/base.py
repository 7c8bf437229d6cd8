"""Where the subscriptions and cursors of a destination are kept."""

import time
from collections.abc import Mapping
from typing import Protocol

from ...store.cursor import Cursor, StoredClient

_YEAR_2025 = 1_735_689_600


class MetaStore(Protocol):
    """Keeps the clients of one destination, and the epoch that makes its batch ids unique for ever."""

    @property
    def place(self) -> Cursor | None:
        """Where the stream was last read from for its clients, if that is kept: used when no client has a cursor."""

    async def open(self) -> tuple[int, list[StoredClient]]:
        """Return the epoch of this life, greater than in every earlier one and already durable, and the clients.

        Raises:
            ConfigError: what is stored cannot be used, or another process uses it.
        """

    async def write(self, changes: Mapping[int, StoredClient | None], epoch: int) -> None:
        """Store changed clients, None for removed ones, and the epoch; return when they are durable.

        Calls do not overlap.

        Raises:
            FencedError: another server has taken the destination over.
            OSError: the changes cannot be written now.
        """

    async def close(self) -> None:
        """Release what is held; `open` may follow."""


class LocalMetaStore(MetaStore, Protocol):
    """A store of one server, which can be read while nothing runs."""

    @property
    def where(self) -> str:
        """Its description, for a message."""

    def read(self) -> list[StoredClient]:
        """Return the clients, and read the place, without using or changing anything.

        Raises:
            ConfigError: what is stored cannot be used.
        """


def epoch_by_clock(above: int = 0) -> int:
    """Return an epoch for a destination whose last one is unknown: minutes since 2025, but more than ``above``."""
    return max(above + 1, int(time.time() - _YEAR_2025) // 60)  # noqa: TID251  outlives the process
