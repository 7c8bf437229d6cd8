"""Where in a topic the stream begins."""

from typing import Final

from ....login.topic import SLICE, Topic
from ....protocol.errors import PurgedError
from ....protocol.tidb.entries import commit_ts_of
from ....protocol.tidb.search import OffsetSearch
from ....protocol.tidb.tags import LOGICAL_BITS
from .config import TopicConfig
from .places import Finder, Start

MANY: Final = 1000
"""Records that are taken from the brokers at once."""


class TopicFinder(Finder):
    """Finds places in a topic."""

    def __init__(self, topic: Topic, config: TopicConfig) -> None:
        """Find places in the topic of a configuration."""
        super().__init__(config)
        self._topic = topic

    def oldest(self) -> Start:
        """See `Finder.oldest`."""
        return Start(self._topic.bounds()[0], 0)


class RecordFinder(TopicFinder):
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
