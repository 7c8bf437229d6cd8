"""What the parsers of TiDB's transactions have in common: they stage records, and their places are a commit_ts."""

import logging
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from ....protocol.errors import BadPositionError, DecodeError, NotConfiguredError, PurgedError, UnknownTableError
from ....protocol.gtid import GtidSet
from ....protocol.position import Position
from ....protocol.tidb.encoder import Encoder
from ....store.cursor import Cursor
from ....store.ring import Ring
from ...columns import SourceColumn
from ...sink.filters import TableFilter
from ...source import TableReader
from ...status import ParserStatus
from ..unasked import UnaskedParser
from .config import TidbConfig
from .places import SOURCE, Finder, Start, position_of
from .stager import Stager

logger = logging.getLogger(__name__)


class StagingParser(UnaskedParser):
    """Reads transactions of TiDB: see `sluice.instance.source.Parser`."""

    _config: TidbConfig

    def __init__(
        self,
        config: TidbConfig,
        ring: Ring,
        encoder: Encoder,
        *,
        places: Sequence[Cursor | None],
        on_begin: Callable[[Position | None, GtidSet | None], None],
        on_state: Callable[[str, str], None],
        stop: Position | None,
    ) -> None:
        """See `sluice.instance.source.ParserFactory`; ``encoder`` makes the entries of a record."""
        super().__init__(config.destination, places, on_state)
        self._config = config
        self._ring = ring
        self._on_begin = on_begin
        self._stager = Stager(ring, config, encoder, SOURCE, config.file, config.table_filter(), stop)
        self._begun = False

    @abstractmethod
    def _finding(self) -> AbstractContextManager[Finder]:
        """Return what finds places, and closes at the end of a block. Raises SourceError."""

    @property
    @abstractmethod
    def _origin(self) -> str:
        """What has the records, for people."""

    # --- what any thread may ask

    @property
    def status(self) -> ParserStatus:
        """How far it is."""
        return ParserStatus(
            behind=self._behind(),
            received_bytes=self._stager.received_bytes,
            events=self._stager.transactions,
            transactions=self._stager.transactions,
        )

    def end(self) -> Position:
        """Ask the source for the place after the last transaction. Raises SourceError, DecodeError."""
        with self._finding() as finder:
            return position_of(self._config, max(finder.end().commit_ts, self._stager.commit_ts) + 1)

    def find_place(self, wanted: int | str | None) -> Cursor:
        """See `sluice.instance.source.Parser.find_place`. Raises DecodeError, too."""
        if isinstance(wanted, str):
            raise BadPositionError(f"not a position, nor a time: {wanted[:200]!r}")
        with self._finding() as finder:
            return Cursor.at(position_of(self._config, finder.find_place(wanted)))

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
        """See `sluice.instance.source.Parser.table_reader`: there are changes only."""
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

    def _find_start(self, finder: Finder) -> Start:
        """Find where to begin, or to go on, and have it staged from there. Raises SluiceError."""
        start = self._resumption(finder) if self._begun else self._first_held(finder)
        if start.gap:
            logger.warning("going on with the oldest record, as configured: %s", start.gap)
            self.failure = PurgedError(start.gap)
        self._stager.begin(start.commit_ts, start.skipped, start.gap if self._begun else "")
        return start

    def _has_begun(self, start: Start) -> None:
        """Say where it begins, when records are read from there."""
        if start.gap or not self._begun:
            self._begun = True
            self._on_begin(position_of(self._config, start.commit_ts + 1, start.skipped), None)

    def _stage(self, records: list[tuple[int, bytes]]) -> None:
        """Stage and put what each record has: a transaction. Raises DecodeError."""
        self._stager.receive(records)
        try:
            while self._stager.run() and self._put():
                pass
        except DecodeError as error:
            raise type(error)(f"{self._origin}, {error}") from None
        finally:  # before an error too: what precedes it is valid
            self._put()

    def _put(self) -> bool:
        """Put what is staged; False when it is to stop."""
        staging = self._stager.staging
        return not staging.count or self._ring.put(staging, self._stopping)

    # --- where to begin

    def _first_held(self, finder: Finder) -> Start:
        """Find the first of the places that the source has; if it has none, raise the error of the first one."""
        start, refused = finder.find_first(self._places)
        self.refused = {place: error for place, error in refused.items() if place is not None}
        if start is None:
            raise next(iter(refused.values()))
        return start

    def _resumption(self, finder: Finder) -> Start:
        """Return where to go on after what was put."""
        stager = self._stager
        return finder.search(stager.commit_ts, stager.offset)._replace(skipped=stager.skipped)
