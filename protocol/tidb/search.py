"""Where in a topic of TiDB's secondary binlog the changes after a commit_ts begin: a binary search, without I/O.

Offsets have holes: of transactions' markers, of aborted records, and where the topic was compacted. So what is asked
for is the first record at or after an offset. The commit_ts of records ascend but for repetitions: a producer that does
not know what the brokers have taken repeats a stretch, and what a former one still had in its queue may land in it.
"""

from dataclasses import dataclass, field
from typing import Final

REPEATED: Final = 1000
"""Records before the one that was found in which a repetition is looked for."""


@dataclass(slots=True)
class OffsetSearch:
    """Finds the first record with a greater commit_ts than the given one.

    While `wanted` is an offset, `tell` which record is the first at or after it. Then read from `start`, and leave out
    what has no greater commit_ts.
    """

    low: int
    """The first offset that the topic has, ..."""
    high: int
    """... and the one after its last record."""
    commit_ts: int
    oldest: int | None = None
    """The commit_ts of the first record, once it is known."""
    _low: int = field(init=False)
    _high: int = field(init=False)
    _wanted: int = field(init=False)

    def __post_init__(self) -> None:
        self._low, self._high, self._wanted = self.low, self.high, self.low

    @property
    def wanted(self) -> int | None:
        """The offset to ask for; None when the search has ended."""
        return self._wanted if self._low < self._high else None

    @property
    def found(self) -> int:
        """An offset at or before the first record with a greater commit_ts, and after the one before it."""
        return self._low

    @property
    def start(self) -> int:
        """Where to read from: some records earlier, in case these were repeated."""
        return max(self.low, self._low - REPEATED)

    @property
    def is_before_oldest(self) -> bool:
        """Whether the topic begins after the commit_ts: what was between may be lost."""
        return self.oldest is not None and self.oldest > self.commit_ts + 1

    def tell(self, record: tuple[int, int] | None) -> None:
        """Take offset and commit_ts of the first record at or after `wanted`; None: there is none up to the end."""
        if record is not None and self._wanted == self.low and self.oldest is None:
            self.oldest = record[1]
        if record is None or record[0] >= self._high or record[1] > self.commit_ts:
            self._high = self._wanted
        else:
            self._low = record[0] + 1
        self._wanted = (self._low + self._high) // 2
