"""The thread of a destination: it reads what TiCDC writes to a topic, and fills the ring.

Positions are those of TiDB's secondary binlog, `tidb/topic.0@0:commit_ts:n`. A topic has one partition.
"""

from collections.abc import Callable, Sequence
from typing import Final

from ....login.topic import PARTITION, Topic
from ....protocol.errors import DecodeError
from ....protocol.gtid import GtidSet
from ....protocol.position import Position
from ....protocol.tidb.canal_json import MessageEncoder
from ....protocol.tidb.tags import LOGICAL_BITS
from ....store.cursor import Cursor
from ....store.ring import Ring
from ..kafka.parser import KafkaParser
from ..kafka.start import Start
from .config import TicdcConfig
from .partition import Partition
from .start import WatermarkFinder

IDLE: Final = 10_000
"""Milliseconds without a transaction after which watermarks move the stream on."""


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
        self._partition = Partition(PARTITION, config.memory << 20)
        self._idle = IDLE if stop is None else 0

    def _begin(self, start: Start) -> None:
        super()._begin(start)
        self._partition.begin(start.commit_ts)

    def _receive(self, topic: Topic, records: list[tuple[int, bytes]]) -> None:
        partition = self._partition
        try:
            partition.receive(records)
        except DecodeError as error:
            raise DecodeError(f"{topic}, {error}") from None
        finally:  # before an error too: what watermarks have passed is complete
            self._stage(partition.release())
        if self._stopping.is_set():  # maybe before all was staged
            return
        if (partition.watermark >> LOGICAL_BITS) - (self._stager.commit_ts >> LOGICAL_BITS) >= self._idle:
            self._stager.advance(partition.watermark)
            self._put()
