"""The thread of a destination: it reads TiDB's secondary binlog from a topic, and fills the ring.

A position is ``tidb/topic.0@0:commit_ts:n``: the place before the n-th entry of the transaction with this commit_ts; if
there is none, before the next one. The offset of its record is the offset of its entries, and so of a cursor: it says
where in the topic to go on. A cursor without it, or of a topic that was made again, is searched for by its commit_ts.
"""

import logging
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ....login.topic import SLICE, Topic
from ....protocol import props
from ....protocol.canal import entry_pb2 as pb
from ....protocol.canal.arrow import columns_of
from ....protocol.canal.rows import decode_rows
from ....protocol.canal.tags import EntryType, EventType
from ....protocol.errors import ConfigError, DecodeError, SluiceError, UnknownTableError
from ....protocol.gtid import GtidSet
from ....protocol.position import Position
from ....protocol.tidb.entries import Entry, EntryEncoder
from ....store.cursor import Cursor
from ....store.ring import Flag, Kind, Ring, Staging
from ....store.segment import SegmentWriter
from ...columns import SourceColumn
from ...context import current_destination
from ...sink.filters import TableFilter
from ...source import Expiry, TableReader
from ...status import ParserStatus
from .config import KafkaConfig
from .start import MANY, SOURCE, Start, file_of, find_end, find_first, position_of, search

logger = logging.getLogger(__name__)

FIRST_DELAY: Final = 0.2
LONGEST_DELAY: Final = 30.0
"""Seconds between two attempts: doubled from the first on, and varied by a third."""
PUT: Final = 1 << 20
"""Bytes of entries after which they go into the ring."""
_OF_ROWS: Final = {EventType.INSERT: "insert", EventType.UPDATE: "update", EventType.DELETE: "delete"}


class KafkaParser:
    """Reads a topic: see `sluice.instance.source.Parser`."""

    def __init__(
        self,
        config: KafkaConfig,
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
        self._config = config
        self._ring = ring
        self._places: Sequence[Cursor | None] = (start, *later)
        self._stop = stop
        self._on_begin, self._on_state = on_begin, on_state
        self._filter = config.table_filter()
        self._file = file_of(config)
        self._encoder = EntryEncoder(self._file)
        self._staging, self._writer = Staging(), SegmentWriter(ring.pool)
        self._numbers = {
            "source": ring.sources.intern(("", SOURCE)),
            "file": ring.files.intern((self._file, 0)),
        }
        self._tables: dict[tuple[str, str], list[SourceColumn]] = {}
        self._begun = False
        self._commit_ts = 0  # of the last transaction that was put, ...
        self._offset = -1  # ... and its record
        self._skipped = 0  # entries of the next transaction that are before the start
        self._gap = ""  # what was left out before the next transaction
        self._shape = ""  # how entries are shaped from the next rows on, "" if as before
        self._connections = self._transactions = self._bytes = 0
        self._read_until = 0.0
        self._state = ("", "")
        self._stopping = threading.Event()
        self._hurry = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"parser {config.destination}", daemon=True)
        self.failure: SluiceError | None = None
        self.refused: Mapping[Cursor, SluiceError] = {}

    # --- what any thread may ask

    @property
    def status(self) -> ParserStatus:
        """How far it is."""
        return ParserStatus(
            behind=max(0.0, time.monotonic() - self._read_until) if self._read_until else None,
            received_bytes=self._bytes,
            events=self._transactions,
            transactions=self._transactions,
            connections=self._connections,
        )

    def end(self) -> Position:
        """Ask the brokers for the place after the last transaction. Raises SourceError, DecodeError."""
        with self._topic() as topic:
            return position_of(self._config, max(find_end(topic).commit_ts, self._commit_ts) + 1)

    def columns(self, schema: str, table: str, at: Position | None = None) -> list[SourceColumn]:
        """Return the columns of a table as its last change that was read has them. Raises UnknownTableError."""
        del at
        if (schema, table) not in self._tables:
            raise UnknownTableError(f"{schema}.{table}: no change of it was read since the start; TiDB is not asked")
        return self._tables[schema, table]

    def tables(self) -> list[tuple[str, str]]:
        """Return the tables of which a change was read."""
        return sorted(self._tables)

    def table_reader(self) -> TableReader:
        """See `sluice.instance.source.Parser.table_reader`: a topic has changes only."""
        raise ConfigError("TiDB is the source: it is not asked for tables, which a snapshot would read")

    def expiries(self, places: Sequence[Position]) -> list[Expiry | None]:
        """See `sluice.instance.source.Parser.expiries`: brokers do not say it of a place."""
        return [None] * len(places)

    def begin_at(self, places: Sequence[Cursor | None]) -> None:
        """See `sluice.instance.source.Parser.begin_at`."""
        self._places = places
        self.failure, self._state = None, ("", "")
        self._hurry.set()

    def announce(self, change: str) -> None:
        """See `sluice.instance.source.Parser.announce`."""
        self._shape = change

    def refilter(self, table_filter: TableFilter) -> None:
        """Use another filter, from the next transaction on."""
        self._filter = table_filter

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Tell the thread to end, and return at once."""
        self._stopping.set()
        self._hurry.set()
        self._ring.wake()

    def join(self, timeout: float | None = None) -> None:
        """Wait until it has ended."""
        if self._thread.is_alive():
            self._thread.join(timeout)

    # --- the thread

    def _run(self) -> None:
        current_destination.set(self._config.destination)
        delay = FIRST_DELAY
        while not self._stopping.is_set():
            transactions = self._transactions
            try:
                with self._topic() as topic:
                    self._read(topic)
            except SluiceError as error:
                self._failed(error, str(error))
            except Exception as error:  # the thread must survive a mistake of Sluice's own
                logger.exception("the parser failed")
                self._failed(SluiceError(f"{type(error).__name__}: {error}"), f"{type(error).__name__}: {error}")
            else:
                if not self._stopping.is_set():
                    self._set_state("finished", "")
                return
            if self._transactions > transactions:
                delay = FIRST_DELAY
            if self._hurry.wait(delay * random.uniform(2 / 3, 4 / 3)):  # noqa: S311
                self._hurry.clear()
            delay = min(2 * delay, LONGEST_DELAY)

    def _failed(self, error: SluiceError, text: str) -> None:
        if not self._stopping.is_set():
            self.failure = error
            self._set_state("error", text)

    def _set_state(self, state: str, text: str) -> None:
        if (state, text) != self._state:
            self._state = (state, text)
            self._on_state(state, text)

    def _topic(self) -> Topic:
        return Topic(self._config.brokers, self._config.topic, self._config.library_settings())

    def _read(self, topic: Topic) -> None:
        """Read until told to stop, or up to the stop position. Raises SluiceError."""
        start = self._resumption(topic) if self._begun else self._first_held(topic)
        if start.gap:
            logger.warning("going on with the oldest record, as configured: %s", start.gap)
        self._commit_ts, self._skipped, self._gap = start.commit_ts, start.skipped, start.gap
        topic.seek(start.offset)
        self._connections += 1
        if not self._begun:
            self._begun = True
            self._on_begin(position_of(self._config, self._commit_ts + 1, self._skipped), None)
        while not self._stopping.is_set() and not self._is_past(self._commit_ts + 1):
            records = topic.read(MANY, SLICE)
            if topic.is_at_end:
                self._read_until = time.monotonic()
            elif topic.trouble and not records:
                self._set_state("error", f"{topic}: {topic.trouble}")
                continue
            self._set_state("running", "")
            self.failure = None
            try:
                for offset, value in records:
                    self._stage(offset, value)
            finally:  # before an error too: what precedes it is valid
                self._put()

    # --- where to begin

    def _first_held(self, topic: Topic) -> Start:
        """Find the first of the places that the topic has; if it has none, raise the error of the first one."""
        start, refused = find_first(topic, self._config, self._places)
        self.refused = {place: error for place, error in refused.items() if place is not None}
        if start is None:
            raise next(iter(refused.values()))
        return start

    def _resumption(self, topic: Topic) -> Start:
        """Return where to go on after what was put."""
        if self._offset >= 0 and (offset := topic.after(self._offset, self._commit_ts)) is not None:
            return Start(offset, self._commit_ts)
        return search(topic, self._config, self._commit_ts)._replace(skipped=self._skipped)

    def _is_past(self, commit_ts: int, n: int = 0) -> bool:
        """Whether the n-th entry of a transaction, and what follows it, is not before the stop position."""
        stop = self._stop
        return stop is not None and (commit_ts, n) >= (stop.begin, stop.n)

    # --- entries

    def _stage(self, offset: int, value: bytes) -> None:
        try:
            commit_ts, entries = self._encoder.encode(value, offset)
        except DecodeError as error:
            raise DecodeError(f"topic {self._config.topic}, offset {offset}: {error}") from None
        if commit_ts <= self._commit_ts or self._is_past(self._commit_ts + 1):  # a repetition, or after the stop
            return
        skipped, self._skipped = self._skipped, 0
        if commit_ts != self._commit_ts + 1:  # the start was inside another transaction
            skipped = 0
        if self._is_past(commit_ts):
            self._commit_ts = commit_ts - 1
            return
        if self._gap:
            self._stage_marker(Kind.GAP, props.GAP, self._gap, commit_ts, offset)
            self._gap = ""
        if self._shape and len(entries) > 1:  # rows
            self._stage_marker(Kind.QUERY, props.SHAPE, self._shape, commit_ts, offset, n=1)
            self._shape = ""
        for n, entry in enumerate(entries):
            is_last = n == len(entries) - 1
            if n >= skipped and not self._is_past(commit_ts, n) and (self._passes(entry) or is_last):
                self._add(entry, commit_ts, offset, n, is_last=is_last)
        self._commit_ts, self._offset = commit_ts, offset
        self._transactions += 1
        self._bytes += len(value)
        if self._staging.bytes >= PUT:
            self._put()

    def _add(self, entry: Entry, commit_ts: int, offset: int, n: int, *, is_last: bool) -> None:
        self._writer.write(entry.data)
        is_row = entry.event_type in _OF_ROWS
        kinds = {EntryType.TRANSACTIONBEGIN: Kind.TRANSACTION_BEGIN, EntryType.TRANSACTIONEND: Kind.TRANSACTION_END}
        default = Kind.ROW_DATA if is_row else Kind.DDL
        self._staging.add_entry(
            self._writer,
            kinds.get(EntryType(entry.entry_type), default),
            event_type=entry.event_type,
            flags=Flag.BOUNDARY if is_last else 0,
            table=self._ring.tables.intern((entry.schema, entry.table)) if is_row else 0,
            rows=entry.rows,
            execute_ms=commit_ts >> 18,
            commit_us=(commit_ts >> 18) * 1000,
            event_offset=offset,
            begin=commit_ts,
            n=n,
            next_file=self._numbers["file"],
            next_begin=commit_ts + 1 if is_last else commit_ts,
            next_n=0 if is_last else n + 1,
            **self._numbers,
        )

    def _stage_marker(self, kind: Kind, key: str, text: str, commit_ts: int, offset: int, n: int = 0) -> None:
        """Put a marker before a transaction."""
        change = pb.RowChange(eventType=pb.QUERY, isDdl=False, sql=f"-- {key}: {text}")
        header = pb.Header(
            version=1,
            logfileName=self._file,
            logfileOffset=offset,
            serverenCode="UTF-8",
            executeTime=commit_ts >> 18,
            sourceType=pb.MYSQL,
            eventType=pb.QUERY,
            props=[pb.Pair(key=key, value=text)],
        )
        entry = pb.Entry(header=header, entryType=pb.ROWDATA, storeValue=change.SerializeToString())
        self._writer.write_framed(entry.SerializeToString())
        self._staging.add_entry(
            self._writer,
            kind,
            event_type=pb.QUERY,
            flags=Flag.BOUNDARY,
            execute_ms=commit_ts >> 18,
            event_offset=offset,
            begin=self._commit_ts + 1,
            n=n,
            next_file=self._numbers["file"],
            next_begin=commit_ts,
            **self._numbers,
        )

    def _passes(self, entry: Entry) -> bool:
        """Whether the filters let an entry through."""
        config = self._config
        if entry.entry_type != EntryType.ROWDATA:
            return not config.filter_transaction_entry
        kind = _OF_ROWS.get(EventType(entry.event_type))
        if kind is None:
            self._tables.pop((entry.schema, entry.table), None)
            return not config.filter_query_ddl and self._filter.accepts(entry.schema, entry.table)
        if config.filter_rows or getattr(config, f"filter_dml_{kind}"):
            return False
        if not self._filter.accepts(entry.schema, entry.table):
            return False
        if (entry.schema, entry.table) not in self._tables:
            self._tables[entry.schema, entry.table] = _columns_of(entry)
        return True

    def _put(self) -> None:
        if self._staging.count:
            self._ring.put(self._staging, self._stopping)


def _columns_of(entry: Entry) -> list[SourceColumn]:
    """Return the columns that the rows of an entry have."""
    keys = decode_rows(entry.data)[0].key
    return [
        SourceColumn(name, mysql_type, is_key=name in keys)
        for name, mysql_type in columns_of(entry.data, entry.schema, entry.table)
    ]
