"""The thread of a destination: it reads TiDB's changes from a topic, and fills the ring.

Positions are those of `stager.pyx`. The offset of a cursor is that of its record: in TiDB's secondary binlog it says
where in the topic to go on. A cursor without it, or of a topic that was made again, is searched for by its commit_ts.
"""

import logging
import time
from collections.abc import Callable, Sequence
from typing import ClassVar

from ....login.topic import SLICE, Topic
from ....protocol.errors import (
    BadPositionError,
    NotConfiguredError,
    PurgedError,
    SourceError,
    UnknownTableError,
)
from ....protocol.gtid import GtidSet
from ....protocol.position import Position
from ....protocol.tidb.encoder import Encoder
from ....protocol.tidb.entries import EntryEncoder
from ....store.cursor import Cursor
from ....store.ring import Ring
from ...columns import SourceColumn
from ...sink.filters import TableFilter
from ...source import TableReader
from ...status import ParserStatus
from ..unasked import UnaskedParser
from .config import TopicConfig
from .stager import Stager
from .start import MANY, SOURCE, Finder, RecordFinder, Start, file_of, position_of

logger = logging.getLogger(__name__)


class KafkaParser(UnaskedParser):
    """Reads a topic: see `sluice.instance.source.Parser`."""

    _config: TopicConfig

    finder: ClassVar[type[Finder]] = RecordFinder
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
        super().__init__(config.destination, (start, *later), on_state)
        self._config = config
        self._ring = ring
        self._on_begin = on_begin
        self._stager = Stager(
            ring, config, self.encoder(file_of(config)), SOURCE, file_of(config), config.table_filter(), stop
        )
        self._begun = False
        self._connections = 0
        self._read_until = 0.0

    # --- what any thread may ask

    @property
    def status(self) -> ParserStatus:
        """How far it is."""
        return ParserStatus(
            behind=max(0.0, time.monotonic() - self._read_until) if self._read_until else None,
            received_bytes=self._stager.received_bytes,
            events=self._stager.transactions,
            transactions=self._stager.transactions,
            connections=self._connections,
        )

    def end(self) -> Position:
        """Ask the brokers for the place after the last transaction. Raises SourceError, DecodeError."""
        with self._topic() as topic:
            return position_of(
                self._config, max(self.finder(topic, self._config).end().commit_ts, self._stager.commit_ts) + 1
            )

    def find_place(self, wanted: int | str | None) -> Cursor:
        """See `sluice.instance.source.Parser.find_place`. Raises DecodeError, too."""
        if isinstance(wanted, str):
            raise BadPositionError(f"not a position, nor a time: {wanted[:200]!r}")
        with self._topic() as topic:
            return Cursor.at(position_of(self._config, self.finder(topic, self._config).find_place(wanted)))

    def columns(self, schema: str, table: str, at: Position | None = None) -> list[SourceColumn]:
        """Return the columns of a table as its last change that was read has them. Raises UnknownTableError."""
        del at
        columns = self._stager.tables.get((schema, table))
        if columns is None:
            raise UnknownTableError(f"{schema}.{table}: no change of it was read since the start; TiDB is not asked")
        return columns

    def tables(self) -> list[tuple[str, str]]:
        """Return the tables of which a change was read."""
        return sorted(self._stager.tables)

    def table_reader(self) -> TableReader:
        """See `sluice.instance.source.Parser.table_reader`: a topic has changes only."""
        raise NotConfiguredError("TiDB is the source: it is not asked for tables, which a snapshot would read")

    def announce(self, change: str) -> None:
        """See `sluice.instance.source.Parser.announce`."""
        self._stager.announce(change)

    def refilter(self, table_filter: TableFilter) -> None:
        """Use another filter, from the next entry on."""
        self._stager.refilter(table_filter)

    def stop(self) -> None:
        """Tell the thread to end, and return at once."""
        super().stop()
        self._ring.wake()

    # --- the thread

    def _progress(self) -> int:
        return self._stager.transactions

    def _close(self) -> None:
        self._stager.close()

    def _topic(self) -> Topic:
        return Topic(self._config.brokers, self._config.topic, self._config.library_settings())

    def _read(self) -> None:
        with self._topic() as topic:
            self._read_topic(topic)

    def _read_topic(self, topic: Topic) -> None:
        """Read until told to stop, or up to the stop position. Raises SluiceError."""
        start, stager = self._resumption(topic) if self._begun else self._first_held(topic), self._stager
        if start.gap:
            logger.warning("going on with the oldest record, as configured: %s", start.gap)
            self.failure = PurgedError(start.gap)
        self._begin(start)
        self._seek(topic, start)
        self._connections += 1
        if start.gap or not self._begun:
            self._begun = True
            self._on_begin(position_of(self._config, start.commit_ts + 1, start.skipped), None)
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

    def _begin(self, start: Start) -> None:
        self._stager.begin(start.commit_ts, start.skipped, start.gap if self._begun else "")

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

    def _stage(self, records: list[tuple[int, bytes]]) -> None:
        """Stage and put what each record has: a transaction. Raises DecodeError."""
        self._stager.receive(records)
        try:
            while self._stager.run() and self._put():
                pass
        finally:  # before an error too: what precedes it is valid
            self._put()

    # --- where to begin

    def _first_held(self, topic: Topic) -> Start:
        """Find the first of the places that the topic has; if it has none, raise the error of the first one."""
        start, refused = self.finder(topic, self._config).find_first(self._places)
        self.refused = {place: error for place, error in refused.items() if place is not None}
        if start is None:
            raise next(iter(refused.values()))
        return start

    def _resumption(self, topic: Topic) -> Start:
        """Return where to go on after what was put."""
        stager = self._stager
        found = self.finder(topic, self._config).search(stager.commit_ts, stager.offset)
        return found._replace(skipped=stager.skipped)

    def _put(self) -> bool:
        """Put what is staged; False when it is to stop."""
        staging = self._stager.staging
        return not staging.count or self._ring.put(staging, self._stopping)
