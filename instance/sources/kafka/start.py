"""Where in a topic the stream begins."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final, NamedTuple

from ....login.topic import SLICE, Topic
from ....protocol.errors import PurgedError, SluiceError, SourceChangedError
from ....protocol.position import Position
from ....protocol.tidb.entries import commit_ts_of
from ....protocol.tidb.search import OffsetSearch
from ....protocol.tidb.tags import LOGICAL_BITS
from ....store.cursor import OLDEST, Cursor
from .config import TopicConfig

SOURCE: Final = "tidb"
"""The source of all positions: a commit_ts means the same in every topic of a cluster."""
MANY: Final = 1000
"""Records that are taken from the brokers at once."""


class Start(NamedTuple):
    """Where to read from, and what to leave out there."""

    offset: int
    commit_ts: int
    """Transactions up to this one are left out."""
    skipped: int = 0
    """Number of entries left out of the next transaction, if its commit_ts is the next number."""
    gap: str = ""
    """What is missing before it, "" for nothing."""


def file_of(config: TopicConfig) -> str:
    """Return what entries name as their file: topic and partition."""
    return f"{config.topic}.0"


def position_of(config: TopicConfig, commit_ts: int, n: int = 0) -> Position:
    """Return the place before the n-th entry of a transaction, or before the first one after its commit_ts."""
    return Position(SOURCE, file_of(config), 0, commit_ts, n)


class Finder(ABC):
    """Finds places in a topic.

    Its methods raise `SourceError` when the topic cannot be read, and `DecodeError` when a record is not what it should
    be.
    """

    def __init__(self, topic: Topic, config: TopicConfig) -> None:
        """Find places in the topic of a configuration."""
        self._topic = topic
        self._config = config

    @abstractmethod
    def end(self) -> Start:
        """Find the place after the last transaction."""

    @abstractmethod
    def search(self, commit_ts: int, offset: int = -1) -> Start:
        """Find the place after a commit_ts; ``offset``: of its record, if it is known.

        If the topic no longer has what follows it, raise PurgedError, or begin with a gap, as configured.
        """

    @abstractmethod
    def find_place(self, milliseconds: int | None) -> int:
        """Return the commit_ts before which nothing was committed since a time, in ms since 1970; None: ever.

        Raises PurgedError.
        """

    def find(self, cursor: Cursor | None) -> Start:
        """Find a saved place; None is the place that the configuration says.

        Raises:
            PurgedError: the topic no longer has what follows.
            SourceChangedError: it is not a place of this topic.
        """
        if cursor is None:
            return self.search(self._config.commit_ts) if self._config.commit_ts else self.end()
        position = cursor.position
        if position is None or not position.same_history(position_of(self._config, 0)):
            raise SourceChangedError(f"{position or cursor.journal} is not a place of {self._topic}")
        if position.n == 0:
            return self.search(position.begin - 1, cursor.offset)
        return self.search(position.begin - 1)._replace(skipped=position.n)

    def find_first(self, places: Sequence[Cursor | None]) -> tuple[Start | None, dict[Cursor | None, SluiceError]]:
        """Find the start for the first of some places that the topic has; also say why it lacks others."""
        start: Start | None = None
        refused: dict[Cursor | None, SluiceError] = {}
        for place in places:
            if place is None and start is not None:
                continue  # where the configuration says: only if no other place is left
            if place == OLDEST:
                purged = [it for it in refused.values() if isinstance(it, PurgedError)]
                if start is None and purged:
                    start = self.oldest()
                continue
            try:
                found = self.find(place)
            except (PurgedError, SourceChangedError) as error:
                refused[place] = error
            else:
                start = start or found
        return start, refused

    def oldest(self) -> Start:
        """Find the oldest place of which the topic has all that follows."""
        return Start(self._topic.bounds()[0], 0)

    def _begin(self, start: Start) -> Start:
        if start.gap and not self._config.auto_reset_latest_pos_mode:
            raise PurgedError(start.gap)
        return start


class RecordFinder(Finder):
    """Finds places among records of transactions, whose commit_ts ascend."""

    def end(self) -> Start:
        """See `Finder.end`."""
        topic = self._topic
        low, high = topic.bounds()
        back = 1
        while high - back // 2 > low:  # records that were aborted, and markers, may stand at the end
            record = topic.first(max(high - back, low))
            if record is not None:
                found = [record]
                while not topic.is_at_end:
                    found = topic.read(MANY, SLICE) or found
                return Start(found[-1][0] + 1, commit_ts_of(found[-1][1]))
            back *= 2
        return Start(high, 0)

    def search(self, commit_ts: int, offset: int = -1) -> Start:
        """See `Finder.search`."""
        after = self._topic.after(offset, commit_ts) if offset >= 0 else None
        if after is not None:
            return Start(after, commit_ts)
        found = self._topic.find(commit_ts)
        return self._begin(Start(found.start, commit_ts, gap=self._gap_before(found)))

    def find_place(self, milliseconds: int | None) -> int:
        """See `Finder.find_place`."""
        if milliseconds is None:
            record = self._topic.first(self._topic.bounds()[0])
            return self.end().commit_ts + 1 if record is None else commit_ts_of(record[1])
        commit_ts = milliseconds << LOGICAL_BITS
        if gap := self._gap_before(self._topic.find(commit_ts - 1)):
            raise PurgedError(gap)
        return commit_ts

    def _gap_before(self, found: OffsetSearch) -> str:
        """Say what the topic has lost of what follows the commit_ts that was looked for; "" for nothing."""
        if not found.low or not found.is_before_oldest:
            return ""
        return (
            f"{self._topic} begins with the commit_ts {found.oldest} at offset {found.low}, after {found.commit_ts}:"
            " the changes in between are lost"
        )
