"""Where in a topic of TiCDC the stream begins.

Messages are not in the order of their commit_ts, so that no place in a partition divides what comes before a commit_ts
from what comes after it. But none is written before its time: what has a greater commit_ts is found by the times of the
records, which brokers know, a margin earlier. What is read there of former transactions is left out.
"""

from datetime import UTC, datetime
from typing import Final

from ....login.topic import SLICE, Topic
from ....protocol.errors import DecodeError, PurgedError, SourceError
from ....protocol.tidb.canal_json import watermark_of
from ....protocol.tidb.tags import LOGICAL_BITS
from ..kafka.places import Start
from ..kafka.start import MANY, TopicFinder

MARGIN: Final = 600_000
"""Milliseconds by which the clocks of TiDB and of the brokers may differ."""
NEAR: Final = 64
"""Records at the end of a topic in which a watermark is looked for at first."""
PATIENCE: Final = 30.0
"""Seconds that brokers may be silent."""


class WatermarkFinder(TopicFinder):
    """Finds places by times and watermarks."""

    def end(self) -> Start:
        """Find the place before which all has come: the last watermark of all; without any, the first record."""
        found = [it for it in map(self._end_of, self._topic.parts()) if it]
        return Start(0, min(found) - 1 if found else 0)

    def _end_of(self, part: Topic) -> int:
        """Return the last watermark of a partition; 0 if it has none."""
        low, high = part.bounds()
        begin, back = high, NEAR
        while begin > low:
            begin, back = max(high - back, low), 8 * back
            if watermark := _last_watermark(part, begin, high):
                return watermark
        return 0

    def offsets(self, start: Start) -> list[int]:
        """Return from where each partition is read: the offset of a `Start` has no meaning here."""
        lows = [it.bounds()[0] for it in self._topic.parts()]
        if start.gap or not start.commit_ts:
            return lows
        since = (start.commit_ts >> LOGICAL_BITS) - MARGIN
        return [max(low, it.offset_at(since)) for low, it in zip(lows, self._topic.parts(), strict=True)]

    def search(self, commit_ts: int, offset: int = -1) -> Start:
        """See `Finder.search`."""
        del offset
        gap = self._gap_after(commit_ts)
        if not gap:
            return Start(0, commit_ts)
        oldest = self.oldest()
        return self._begin(oldest._replace(commit_ts=max(oldest.commit_ts, commit_ts), gap=gap))

    def find_place(self, milliseconds: int | None) -> int:
        """See `Finder.find_place`."""
        if milliseconds is None:
            return self.oldest().commit_ts + 1
        commit_ts = milliseconds << LOGICAL_BITS
        if gap := self._gap_after(commit_ts):
            raise PurgedError(gap)
        return commit_ts

    def oldest(self) -> Start:
        """Find the oldest place: if records were removed, the time of the first that is left."""
        begins = [0]
        for part in self._topic.parts():
            low, _ = part.bounds()
            if low > 0 and part.first(low) is not None:
                begins.append(part.written << LOGICAL_BITS)
        return Start(0, max(begins))

    def _gap_after(self, commit_ts: int) -> str:
        """Say what a partition has lost of what follows a commit_ts; "" for nothing."""
        return next((text for it in self._topic.parts() if (text := self._gap_of(it, commit_ts))), "")

    @staticmethod
    def _gap_of(topic: Topic, commit_ts: int) -> str:
        low, _ = topic.bounds()
        if low == 0:
            return ""
        if topic.first(low) is None:
            return f"{topic} has no record left: the changes after the commit_ts {commit_ts} are lost"
        if topic.written <= commit_ts >> LOGICAL_BITS:
            return ""
        time = datetime.fromtimestamp(topic.written / 1000, UTC)
        return (
            f"{topic} begins at offset {low} with what was written at {time:%Y-%m-%d %H:%M:%S} UTC, after the commit_ts"
            f" {commit_ts}: the changes in between are lost"
        )


def _last_watermark(topic: Topic, begin: int, end: int) -> int:
    """Return the greatest watermark of a stretch of a partition; 0 if it has none."""
    found, waited = 0, 0.0
    record = topic.first(begin)
    records = [] if record is None else [record]
    while True:
        for offset, value in records:
            try:
                found = max(found, watermark_of(value))
            except DecodeError as error:
                raise DecodeError(f"{topic}, offset {offset}: {error}") from None
        if topic.is_at_end or (records and records[-1][0] >= end - 1):
            return found
        records = topic.read(MANY, SLICE)
        waited = 0.0 if records else waited + SLICE
        if waited >= PATIENCE:
            raise SourceError(f"{topic}: no broker answers. {topic.trouble}".rstrip(" ."))
