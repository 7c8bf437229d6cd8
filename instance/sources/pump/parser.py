"""The thread of a destination: it reads what a pump has stored, and fills the ring.

Positions are those of `kafka/stager.pyx`. The offset of an entry is its commit_ts: that alone says where in a log to
go on. The log is read without its lock, so that the pump may run, in this process or another one, or be stopped.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Final

from ....protocol.errors import DecodeError, SourceError, UnknownJobError, UnknownTableError
from ....protocol.gtid import GtidSet
from ....protocol.position import Position
from ....protocol.tidb.tags import LOGICAL_BITS
from ....store.cursor import Cursor
from ....store.ring import Ring
from ...columns import SourceColumn
from ...pump.reader import CollectedError, Reader, WholeBinlog
from ...pump.view import LogView
from ...quarantine import Item, Kept, Quarantine, path_of
from ...sink.filters import TableFilter
from ...status import ParserStatus
from ..kafka.places import Finder, position_of
from ..kafka.staging import StagingParser
from .config import PumpLogConfig
from .definitions import Definitions
from .history import read_definitions
from .places import LogFinder, reading
from .rows import TransactionEncoder, Undecodable

PAUSE: Final = 0.1
"""Seconds between two looks at the end of the log."""
NOTHING: Final = b"[]"
"""A history without a job."""

logger = logging.getLogger(__name__)


class PumpParser(StagingParser):
    """Reads the log of a pump: see `sluice.instance.source.Parser`."""

    _config: PumpLogConfig

    def __init__(
        self,
        config: PumpLogConfig,
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
        del epoch  # it writes nowhere that another server does
        self._encoder = TransactionEncoder(
            config.file, Definitions(NOTHING), time_zone=config.time_zone, on_trouble=self._undecodable
        )
        super().__init__(
            config, ring, self._encoder, places=(start, *later), on_begin=on_begin, on_state=on_state, stop=stop
        )
        self._wanted = config.table_filter()
        self._quarantine = Quarantine(
            path_of(config.file_data_dir, config.destination), most=config.quarantine_max_bytes
        )

    # --- what any thread may ask

    @property
    def status(self) -> ParserStatus:
        """How far it is."""
        return replace(super().status, quarantined=len(self._quarantine))

    def columns(self, schema: str, table: str, at: Position | None = None) -> list[SourceColumn]:
        """Return those of its last change that was read, else of the history. Raises UnknownTableError."""
        try:
            return super().columns(schema, table, at)
        except UnknownTableError:
            for it in self._encoder.definitions.newest():
                if (it.schema, it.name) == (schema, table):
                    return [SourceColumn(column.name, column.mysql_type, is_key=column.is_key) for column in it.columns]
            raise

    def tables(self) -> list[tuple[str, str]]:
        """Return the tables that the history ends with."""
        return sorted((it.schema, it.name) for it in self._encoder.definitions.newest())

    def refilter(self, table_filter: TableFilter) -> None:
        """Use another filter, from the next entry on."""
        self._wanted = table_filter
        super().refilter(table_filter)

    @contextmanager
    def _finding(self) -> Iterator[Finder]:
        yield LogFinder(self._view(), self._config)

    @property
    def _origin(self) -> str:
        return self._config.place

    def _view(self) -> LogView:
        return LogView(self._config.folder, self._config.cluster_id)

    # --- the thread

    def _read(self) -> None:
        view = self._view()
        start, stager = self._find_start(LogFinder(view, self._config)), self._stager
        self._encoder.definitions = read_definitions(self._config)
        with closing(Reader(view.segments, start.commit_ts)) as reader:
            self._has_begun(start)
            while not self._stopping.is_set() and not stager.is_done:
                found = self._next(reader)
                self._set_state("running", "")
                self.failure = None
                self._receive(found)
                if not found:
                    self._read_until = time.monotonic()
                    self.on_caught_up(self._read_until)
                    self._stopping.wait(PAUSE)

    def _next(self, reader: Reader) -> list[WholeBinlog]:
        try:
            with reading():
                return reader.next()
        except CollectedError as error:  # the next attempt finds out whether it was removed, or a file is missing
            raise SourceError(f"{self._config.place}: {error}") from error

    def _receive(self, found: Sequence[WholeBinlog]) -> None:
        """Stage and put transactions; a heartbeat behind them moves the stream on."""
        records = [(it.commit_ts, it.payload) for it in found if it.start_ts != it.commit_ts]
        if records:
            self._stage_known(records)
        if found and found[-1].start_ts == found[-1].commit_ts and not self._stopping.is_set():
            self._stager.advance(found[-1].commit_ts + 1)
            self._put()

    def _stage_known(self, records: list[tuple[int, bytes]]) -> None:
        """Stage records; where the definitions do not reach one, read more of the history first."""
        asked = -1
        while True:
            try:
                self._stage(records)
            except UnknownJobError as error:
                records = [it for it in records if it[0] > self._stager.commit_ts]
                if records[0][0] == asked:
                    raise SourceError(f"{error}: it is asked for again") from error
                asked = records[0][0]
                self._encoder.definitions = read_definitions(self._config, self._encoder.version)
            else:
                return

    def _put(self) -> bool:
        try:
            self._quarantine.sync()  # what a marker stands for is listed before it is put
        except OSError as error:
            raise SourceError(f"the quarantine cannot be written: {error}") from error
        return super()._put()

    def _undecodable(self, it: Undecodable) -> bool:
        """List changes that cannot be decoded; return whether a marker takes their place. Raises DecodeError."""
        if it.schema and not self._wanted.accepts(it.schema, it.table):
            return False
        if not self._config.quarantine:
            raise DecodeError(it.reason)
        place = position_of(self._config, it.commit_ts, it.n)
        if self._config.filter_table_error:
            logger.warning("dropped at %s: %s", place, it.reason)
            return False
        logger.error("put into quarantine at %s: %s", place, it.reason)
        item = Item(
            position=str(place),
            schema=it.schema,
            table=it.table,
            event_type=0,
            timestamp=(it.commit_ts >> LOGICAL_BITS) // 1000,
            server_id=0,
            length=len(it.value),
            error=it.reason,
            table_map="",
        )
        self._quarantine.add(item, Kept(0, it.value, b"", b""))
        return True
