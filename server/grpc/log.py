"""What a pump's calls need of its log."""

from collections.abc import AsyncIterator
from typing import NamedTuple, Protocol

from ...protocol.errors import SluiceError


class RefusedWriteError(SluiceError):
    """A log does not take a message; the text is for TiDB's operator."""


class CollectedError(SluiceError):
    """A log does not have any more what is asked for."""


class Transaction(NamedTuple):
    """A transaction that has committed, or a heartbeat."""

    start_ts: int
    commit_ts: int
    payload: bytes
    """A `Binlog`: the Commit with the value or the DDL of its Prewrite, or the heartbeat."""


class PumpLog(Protocol):
    """Keeps what TiDB writes, and gives back the transactions."""

    async def append(self, payload: bytes) -> None:
        """Store a `Binlog`; it is on disk when this returns.

        Raises DecodeError when it is none, RefusedWriteError when it cannot be stored.
        """

    def read(self, after: int) -> AsyncIterator[Transaction]:
        """Give what committed after ``after``, in the order of commit_ts, and wait for more at the end.

        It reads on only when the next one is asked for. Raises CollectedError, with the first one, when some of it is
        not kept any more.
        """
