"""The thread of a destination: it reads TiDB's changes from a topic, and fills the ring.

Positions are those of `stager.pyx`. The offset of a cursor is that of its record: in TiDB's secondary binlog it says
where in the topic to go on. A cursor without it, or of a topic that was made again, is searched for by its commit_ts.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import ClassVar

from ....login.topic import SLICE, Topic
from ....protocol.errors import SourceError
from ....protocol.gtid import GtidSet
from ....protocol.position import Position
from ....protocol.tidb.encoder import Encoder
from ....protocol.tidb.entries import EntryEncoder
from ....store.cursor import Cursor
from ....store.ring import Ring
from ...status import ParserStatus
from .config import TopicConfig
from .places import Finder, Start
from .staging import StagingParser
from .start import MANY, RecordFinder, TopicFinder


class KafkaParser(StagingParser):
    """Reads a topic: see `sluice.instance.source.Parser`."""

    _config: TopicConfig

    finder: ClassVar[type[TopicFinder]] = RecordFinder
    encoder: ClassVar[type[Encoder]] = EntryEncoder

    def __init__(
        self,
        config: TopicConfig,
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
        del epoch  # it writes nowhere
        places, encoder = (start, *later), self.encoder(config.file)
        super().__init__(config, ring, encoder, places=places, on_begin=on_begin, on_state=on_state, stop=stop)
        self._connections = 0

    # --- what any thread may ask

    @property
    def status(self) -> ParserStatus:
        """How far it is."""
        return replace(super().status, connections=self._connections)

    @contextmanager
    def _finding(self) -> Iterator[Finder]:
        with self._topic() as topic:
            yield self.finder(topic, self._config)

    @property
    def _origin(self) -> str:
        return f"topic {self._config.topic}"

    # --- the thread

    def _topic(self) -> Topic:
        return Topic(self._config.brokers, self._config.topic, self._config.library_settings())

    def _read(self) -> None:
        with self._topic() as topic:
            self._read_topic(topic)

    def _read_topic(self, topic: Topic) -> None:
        """Read until told to stop, or up to the stop position. Raises SluiceError."""
        start, stager = self._find_start(self.finder(topic, self._config)), self._stager
        self._seek(topic, start)
        self._connections += 1
        self._has_begun(start)
        while not self._stopping.is_set() and not stager.is_done:
            part, records = self._next(topic)
            missing = self._missing(topic)
            is_at_end = not missing and all(it.is_at_end for it in self._parts(topic))
            if is_at_end:
                self._read_until = time.monotonic()
            elif part.trouble and not records:
                self._set_state("error", f"{part}: {part.trouble}")
                continue
            self._set_state(*("error", missing) if missing else ("running", ""))
            self.failure = SourceError(missing) if missing else None
            self._receive(part, records)
            if is_at_end:
                self.on_caught_up(self._read_until)

    def _seek(self, topic: Topic, start: Start) -> None:
        """Read on from a place."""
        topic.seek(start.offset)

    def _parts(self, topic: Topic) -> Sequence[Topic]:
        """Return the partitions that are read."""
        return [topic]

    def _next(self, topic: Topic) -> tuple[Topic, list[tuple[int, bytes]]]:
        """Return the next records of a partition; none if none comes. Raises SourceError."""
        return topic, topic.read(MANY, SLICE)

    def _missing(self, topic: Topic) -> str:
        """Say what does not come although it has to, so that nothing is delivered; empty if nothing is known of it."""
        del topic
        return ""

    def _receive(self, part: Topic, records: list[tuple[int, bytes]]) -> None:
        """Stage and put records of a partition. Raises SluiceError."""
        del part
        self._stage(records)
