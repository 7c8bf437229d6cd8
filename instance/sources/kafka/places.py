"""Places that are a commit_ts of TiDB, and where a stream of transactions begins."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final, NamedTuple

from ....protocol.errors import PurgedError, SluiceError, SourceChangedError
from ....protocol.position import Position
from ....store.cursor import Cursor
from ..starts import find_first
from .config import TidbConfig

SOURCE: Final = "tidb"
"""The source of all positions: a commit_ts means the same wherever the transactions of a cluster are read."""


class Start(NamedTuple):
    """Where to read from, and what to leave out there."""

    offset: int
    """Of a record; 0 where there are none."""
    commit_ts: int
    """Transactions up to this one are left out."""
    skipped: int = 0
    """Number of entries left out of the next transaction, if its commit_ts is the next number."""
    gap: str = ""
    """What is missing before it, "" for nothing."""


def position_of(config: TidbConfig, commit_ts: int, n: int = 0) -> Position:
    """Return the place before the n-th entry of a transaction, or before the first one after its commit_ts."""
    return Position(SOURCE, config.file, 0, commit_ts, n)


class Finder(ABC):
    """Finds places.

    Its methods raise `SourceError` when the source cannot be read, and `DecodeError` when a record is not what it
    should be.
    """

    def __init__(self, config: TidbConfig) -> None:
        """Find places in the source of a configuration."""
        self._config = config

    @abstractmethod
    def end(self) -> Start:
        """Find the place after the last transaction."""

    @abstractmethod
    def search(self, commit_ts: int, offset: int = -1) -> Start:
        """Find the place after a commit_ts; ``offset``: of its record, if it is known.

        If the source no longer has what follows it, raise PurgedError, or begin with a gap, as configured.
        """

    @abstractmethod
    def find_place(self, milliseconds: int | None) -> int:
        """Return the commit_ts before which nothing was committed since a time, in ms since 1970; None: ever.

        Raises PurgedError.
        """

    def find(self, cursor: Cursor | None) -> Start:
        """Find a saved place; None is the place that the configuration says.

        Raises:
            PurgedError: the source no longer has what follows.
            SourceChangedError: it is not a place of this source.
        """
        if cursor is None:
            return self.search(self._config.start_after) if self._config.start_after else self.end()
        position = cursor.position
        if position is None or not position.same_history(position_of(self._config, 0)):
            raise SourceChangedError(f"{position or cursor.journal} is not a place of {self._config.place}")
        if position.n == 0:
            return self.search(position.begin - 1, cursor.offset)
        return self.search(position.begin - 1)._replace(skipped=position.n)

    def find_first(self, places: Sequence[Cursor | None]) -> tuple[Start | None, dict[Cursor | None, SluiceError]]:
        """See `sluice.instance.sources.starts.find_first`."""
        return find_first(places, self.find, self.oldest)

    @abstractmethod
    def oldest(self) -> Start:
        """Find the oldest place of which the source has all that follows."""

    def _begin(self, start: Start) -> Start:
        if start.gap and not self._config.auto_reset_latest_pos_mode:
            raise PurgedError(start.gap)
        return start
