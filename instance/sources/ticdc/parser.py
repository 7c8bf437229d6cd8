"""The thread of a destination: it reads what TiCDC writes to a topic, and fills the ring.

Positions are those of TiDB's secondary binlog, `tidb/topic.0@0:commit_ts:n`, however many partitions the topic has: a
commit_ts means the same in all of them.

Partitions are read in turn. What waits for watermarks is limited, so when much does, only those are read on that the
others wait for.
"""

import time
from collections.abc import Callable, Sequence
from typing import Final

from ....login.topic import LEAST_QUEUED, QUEUED, SLICE, Topic
from ....protocol.errors import DecodeError, SourceError
from ....protocol.gtid import GtidSet
from ....protocol.position import Position
from ....protocol.tidb.canal_json import MessageEncoder
from ....protocol.tidb.tags import LOGICAL_BITS
from ....store.cursor import Cursor
from ....store.ring import Ring
from ..kafka.parser import KafkaParser
from ..kafka.places import Start
from ..kafka.start import MANY
from .config import TicdcConfig
from .partitions import Partitions
from .start import WatermarkFinder

IDLE: Final = 10_000
"""Milliseconds without a transaction after which watermarks move the stream on."""
LAG: Final = 60_000
"""Milliseconds by which the watermark of a partition may be behind that of another one, ..."""
PATIENCE: Final = 15.0
"""... or for how many seconds it may be more although all of the partition was read."""


class TicdcParser(KafkaParser):
    """Reads a topic of TiCDC: see `sluice.instance.source.Parser`."""

    finder = WatermarkFinder
    encoder = MessageEncoder

    def __init__(
        self,
        config: TicdcConfig,
        ring: Ring,
        *,
        start: Cursor | None,
        later: Sequence[Cursor | None] = (),
        on_begin: Callable[[Position | None, GtidSet | None], None],
        on_state: Callable[[str, str], None],
        epoch: int = 0,
        stop: Position | None = None,
    ) -> None:
        """See `sluice.instance.source.ParserFactory`."""
        super().__init__(
            config, ring, start=start, later=later, on_begin=on_begin, on_state=on_state, epoch=epoch, stop=stop
        )
        self._memory = config.memory << 20
        self._partitions = Partitions(1, self._memory)
        self._turn = 0  # of the partition that is read next
        self._idle = IDLE if stop is None else 0
        self._in_step = 0.0  # when no partition was last found to lack watermarks

    def _topic(self) -> Topic:
        config, queued = self._config, max(LEAST_QUEUED, min(QUEUED, self._memory >> 13))  # an eighth, in KiB
        return Topic(config.brokers, config.topic, config.library_settings(), queued=queued)

    def _seek(self, topic: Topic, start: Start) -> None:
        parts = topic.parts()
        self._partitions = Partitions(len(parts), self._memory)
        self._partitions.begin(start.commit_ts)
        self._in_step = time.monotonic()
        for part, offset in zip(parts, WatermarkFinder(topic, self._config).offsets(start), strict=True):
            part.seek(offset)

    def _parts(self, topic: Topic) -> Sequence[Topic]:
        return topic.parts()

    def _next(self, topic: Topic) -> tuple[Topic, list[tuple[int, bytes]]]:
        """Read the partitions in turn, and wait for one that the others wait for."""
        parts, last = topic.parts(), self._partitions.last
        is_much = self._partitions.size > self._memory // 2
        for _ in parts:
            self._turn = (self._turn + 1) % len(parts)
            if is_much and self._turn not in last:
                continue
            if records := parts[self._turn].read(MANY, 0):
                return parts[self._turn], records
        waits = parts[last[self._turn % len(last)]]
        return waits, waits.read(MANY, SLICE / len(last))

    def _missing(self, topic: Topic) -> str:
        """See `KafkaParser._missing`: the watermarks of partitions."""
        partitions, parts = self._partitions, topic.parts()
        lag = (partitions.newest >> LOGICAL_BITS) - (partitions.watermark >> LOGICAL_BITS)
        ended = [it for it in partitions.last if parts[it].is_at_end] if lag > LAG else []
        if not ended:
            self._in_step = time.monotonic()
        if time.monotonic() - self._in_step < PATIENCE:
            return ""
        return (
            f"topic {topic.name}: no watermark comes in partition {', '.join(map(str, ended))}, for which all changes"
            f" wait. TiCDC has to write to all {len(parts)} partitions: see partition-num in the sink-uri of the"
            " changefeed"
        )

    def _check_count(self, part: Topic) -> None:
        """Raise SourceError when the topic has other partitions than those that are read.

        A row was written before the watermarks that pass it, and its partition was made before. So nothing is released
        that a new partition has a part of, when this is asked between the watermark and the release.
        """
        known, found = self._partitions.count, part.count()
        if found != known:
            raise SourceError(f"topic {part.name} has {found} partitions now, and had {known}: it is read anew")

    def _receive(self, part: Topic, records: list[tuple[int, bytes]]) -> None:
        partitions, watermark = self._partitions, self._partitions.watermark
        try:
            partitions.receive(part.partition, records)
        except DecodeError as error:
            raise DecodeError(f"topic {part.name}, {error}") from None
        finally:  # before an error too: what watermarks have passed is complete
            if partitions.watermark > watermark:
                self._check_count(part)
            self._stage(partitions.release())
        if self._stopping.is_set():  # maybe before all was staged
            return
        if (partitions.watermark >> LOGICAL_BITS) - (self._stager.commit_ts >> LOGICAL_BITS) >= self._idle:
            self._stager.advance(partitions.watermark)
            self._put()
