"""Where the subscriptions and cursors of a destination are kept."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, Self

from ...protocol.errors import ConfigError
from ...store.cursor import Changes, Cursor, StoredClient
from ...store.moves import Move

_YEAR_2025 = 1_735_689_600


@dataclass(frozen=True, slots=True)
class InUse:
    """Which of several servers with the same data is read; of a group, which ones of its members' servers."""

    address: str = ""
    """``host:port``; empty for a group."""
    accepted: str = ""
    """Transactions that it may lack although they were delivered: `sluice.protocol.gtid.Transactions` as text."""
    since: str = ""
    """The position up to which the one before was read; empty if that is unknown."""
    members: Mapping[str, Self] = field(default_factory=dict, hash=False)
    """Of a group: those of its members for which one was chosen."""

    @property
    def host_and_port(self) -> tuple[str, int]:
        """The address in its parts, as Canal needs it in each cursor; that of a group is empty."""
        if not self.address:
            return "", 0
        host, _, port = self.address.rpartition(":")
        return host.strip("[]"), int(port)

    def of(self, member: str) -> Self | None:
        """Return what was chosen of a member; of a single source, which a member was, it is this."""
        return self if self.address else self.members.get(member)

    def with_member(self, member: str, chosen: Self, was: str = "") -> Self:
        """Return it with what was chosen of a member; ``was``: see `sluice.instance.config.InstanceConfig.was`."""
        before = {was: self} if self.address and was else self.members
        return replace(self, address="", accepted="", since="", members={**before, member: chosen})


class HeldError(ConfigError):
    """Another process uses what is stored of a destination, which can start when that has ended."""

    def __init__(self, message: str, is_over: Callable[[], bool]) -> None:
        super().__init__(message)
        self.is_over = is_over
        """Tells whether it uses that no longer."""


class MetaStore(Protocol):
    """Keeps the clients of one destination, and the epoch that makes its batch ids unique for ever."""

    @property
    def source(self) -> InUse | None:
        """Which of several servers is read, when it was chosen by `keep_source`; known after `open`."""

    async def keep_source(self, source: InUse, epoch: int) -> None:
        """Store which of several servers is read; return when that is durable. Raises as `write`, which it may meet."""

    @property
    def moves(self) -> Mapping[int, Sequence[Move]]:
        """The jumps of clients' places (`sluice.store.moves`), also of those that have left; known after `open`."""

    @property
    def place(self) -> Cursor | None:
        """Where the stream was last read from for its clients, if that is kept: used when no client has a cursor."""

    async def open(self) -> tuple[int, list[StoredClient]]:
        """Return the epoch of this life, greater than in every earlier one and already durable, and the clients.

        Raises:
            ConfigError: what is stored cannot be used.
            HeldError: another process uses it.
        """

    async def write(self, changes: Changes, epoch: int) -> None:
        """Store what has changed, and the epoch, in one step; return when it is durable.

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
