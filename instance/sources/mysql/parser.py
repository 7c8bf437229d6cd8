"""The thread of a destination: it reads the source's binlog, decodes it, and fills the ring."""

import logging
import math
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from ....protocol.cut import ONE
from ....protocol.errors import (
    FilterError,
    PurgedError,
    SluiceError,
    SourceChangedError,
    SourceError,
    SourceMovedError,
    UnknownTableError,
)
from ....protocol.gtid import GtidSet, Transactions
from ....protocol.lexer import Dialect
from ....protocol.position import Position
from ....store.cursor import Cursor
from ....store.ring import Ring
from ....store.segment import SegmentWriter
from ....store.track import Track
from ... import source
from ...agreement import Agreement
from ...columns import SourceColumn
from ...conditions.judge import check_condition
from ...quarantine import Quarantine, path_of
from ...sink.filters import TableFilter
from ...source import Expiry, Proof
from ...status import ParserStatus
from ..thread import ParserThread
from .config import BinlogConfig, MysqlConfig
from .connection import Connection, ServerFacts
from .control import Control
from .decode.decoder import Decoder, Status
from .decode.events import BinlogEvent, Event
from .dump import FIRST_EVENT, Dump, FileStart, GtidStart, Replica, heartbeat_of
from .history.tables import UNKNOWN, Catalog, Table
from .history.versions import History, open_history
from .schema import InformationSchema, Schemas, charsets
from .snapshot import TableReader
from .standby import GLANCE, SCANNED, Alike, Backlog, Probe, lacking
from .start import (
    ENDS,
    MOST_FOLLOWED,
    Binlog,
    Packets,
    PlaceFinder,
    Start,
    StartFinder,
    before_stop,
    parse_gtids,
    resume,
)
from .xa import commits_in_one_phase

if TYPE_CHECKING:
    from ...conditions.where import Conditions

logger = logging.getLogger(__name__)

ASKED: Final = 5
"""Times that a server is asked for its time at once."""
QUIET: Final = 1.0
"""Seconds without a byte after which the source has nothing to send: it has sent all it has."""


Configured = TypeVar("Configured", bound=BinlogConfig)
Opened = TypeVar("Opened", bound=Binlog)


class BinlogParser(ParserThread, Generic[Configured, Opened]):
    """Reads a binlog from a start, up to an optional stop, into a ring, and begins again whenever necessary."""

    def __init__(
        self,
        config: Configured,
        ring: Ring,
        *,
        start: Cursor | None = None,
        later: Sequence[Cursor | None] = (),
        stop: Position | None = None,
        on_begin: Callable[[Position | None, GtidSet | None], None] | None = None,
        on_state: Callable[[str, str], None] | None = None,
        epoch: int = 0,
        moves_xa: bool = True,
    ) -> None:
        """Read from `start`, or from where the configuration says, until `stop`; see `Decoder` for ``moves_xa``.

        If the source does not have that place, read from the first of `later` that it has; `refused` says why it lacks
        the others.

        Called in the thread: `on_begin`, once and before the first put, with the place where the stream begins and the
        GTID set executed there (None if unknown); `on_state` with each change of state.
        """
        super().__init__(config.destination, (start, *later), on_state)
        self._config = config
        self._ring = ring
        self._stop = stop
        self._on_begin = on_begin
        self._decoder = Decoder(ring, config, moves_xa=moves_xa)
        self._quarantine = Quarantine(
            path_of(config.file_data_dir, config.destination), most=config.quarantine_max_bytes
        )
        self._control = Control(config, ring, self._decoder, self._quarantine)
        self._history: History | None = None
        if config.tsdb_enable:
            self._history = open_history(config, writes=not config.is_reader, epoch=epoch)
        self._filter: TableFilter | None = None  # instead of the configured one
        self._start: Start | None = None
        self._begun = False
        self._is_after_gap = False  # it goes on after changes that were purged
        self._first: Position | None = None  # where the stream begins
        self._in_part: tuple[Position, tuple[int, int] | None] | None = None  # what was put in part, see ParserStatus
        self._file_end: Position | None = None  # of the file that is left now
        self._connections = 0
        self._heartbeats = 0
        self._received = 0.0  # monotonic time when bytes came last
        self._source = ""  # what positions call the server whose binlog was read last; any thread looks
        self._quiet_since = 0.0  # monotonic time since which the thread has waited for the source, 0 while it does not
        self._read_until = 0.0  # monotonic time: all that the source wrote before is read
        self._lock = threading.Lock()
        self._open: Binlog | Packets | None = None  # what stop() has to interrupt ...
        self._further: Binlog | Packets | None = None  # ... as well

    @property
    def status(self) -> ParserStatus:
        """How far the parser is; any thread may ask."""
        decoder = self._decoder
        return ParserStatus(
            behind=self._behind(),
            received_bytes=decoder.packets.total,
            events=decoder.event_count,
            transactions=decoder.transaction_count,
            connections=self._connections,
            quarantined=len(self._quarantine),
            future_rows=decoder.future_rows,
            dml_statements=self._control.dml_statements,
            open_xa=str(self._ring.restarts.last or ""),
            gtid_in_part=self._in_part[1] if self._in_part is not None else None,
            silent=silent if (silent := self._silent()) > self._most_silent else 0.0,
            history=self._history.problem if self._history is not None else "",
        )

    def _silent(self) -> float:
        """Return for how long the thread has waited for a byte of the source; 0 while it does not."""
        quiet_since = self._quiet_since
        return time.monotonic() - quiet_since if quiet_since else 0.0

    @property
    def _most_silent(self) -> float:
        """Seconds for which a source that has nothing to send may be silent."""
        return math.inf

    def _behind(self) -> float | None:
        silent = self._silent()
        if QUIET < silent <= self._most_silent:
            return 0.0
        known = [time.monotonic() - self._read_until] if self._read_until else []
        if silent > QUIET:
            known.append(silent)
        # Where a dump begins, events come that are as old as their file, although all that is after them may be read.
        has_read = self._decoder.transaction_count or self._decoder.staging.released is not None
        if self._decoder.execute_ms and has_read:
            known.append(max(0.0, time.time() - self._decoder.execute_ms / 1000))  # noqa: TID251  beside the source's
        return min(known, default=None)

    def end(self) -> Position:
        """Ask the source for its current end, apart from what is read; any thread may ask. Raises SourceError."""
        with self._binlog() as binlog:
            return self._finder(binlog).end_position(self._known_files())

    def find_place(self, wanted: int | str | None) -> Cursor:
        """See `sluice.instance.source.Parser.find_place`."""
        with self._binlog() as binlog:
            finder = self._finder(binlog)
            if isinstance(wanted, str):
                return finder.at_text(wanted)
            return finder.oldest() if wanted is None else finder.at_time(wanted)

    def agree_with(self, agreement: Agreement, member: str) -> None:
        """See `sluice.instance.source.MemberParser.agree_with`."""
        self._control.agree_with(agreement, member)

    def _known_files(self) -> list[tuple[str, int]]:
        """Return the files that were read, with their times of creation."""
        files = self._ring.files
        # A source that cannot be read may have begun again with the same names.
        return [files[number] for number in range(1, len(files) + 1)] if self.failure is None else []

    def columns(self, schema: str, table: str, at: Position | None = None) -> list[SourceColumn]:
        """See `sluice.instance.source.Parser.columns`."""
        schema, table = self._split_table(schema, table)
        found = self._columns_at(schema, table, at) if at is not None else self._columns_now(schema, table)
        fields, masks = self._config.field_filter(), self._config.masks()
        return [masks.shown(schema, table, it) for it in found if fields.keeps(schema, table, it.name)]

    def _split_table(self, schema: str, table: str) -> tuple[str, str]:
        """Return one of the tables that are delivered under a name; most are under their own."""
        grouping = self._config.grouping()
        if (schema, table) not in grouping.names:
            return schema, table
        found = next((it for it in self.tables() if grouping.of(*it) == (schema, table)), None)
        if found is None:
            raise UnknownTableError(f"{schema}.{table}: the source has no table that sluice.group.as delivers as this")
        return found

    def _columns_at(self, schema: str, table: str, at: Position) -> list[SourceColumn]:
        catalog = Catalog()
        with closing(open_history(self._config, writes=False)) as history:
            is_known = history.begin_at(catalog, Cursor.at(at)) and not catalog.only_open
        state = catalog.get(schema, table) if is_known else UNKNOWN
        if isinstance(state, Table):
            return state.source_columns()
        reason = "is not known there" if state is UNKNOWN else "does not exist there"
        raise UnknownTableError(f"{schema}.{table} at {at}: the table {reason}, as far as the history of tables goes")

    def check_conditions(self, conditions: "Conditions") -> None:
        """See `sluice.instance.source.Parser.check_conditions`; a source that is no server is not asked."""

    def expiries(self, places: Sequence[Position]) -> list[Expiry | None]:
        """See `sluice.instance.source.Parser.expiries`."""
        if not places:
            return []
        with self._binlog() as binlog:
            return self._finder(binlog).expiries(places)

    def distances(self, places: Sequence[Position], to: Position) -> list[int | None]:
        """See `sluice.instance.source.Parser.distances`."""
        with self._binlog() as binlog:
            return self._finder(binlog).distances(places, to)

    def prove(self, place: Cursor, sample: bytes) -> Proof:
        """See `sluice.instance.source.Parser.prove`."""
        del sample
        with self._binlog() as binlog:
            self._interruptible(binlog)
            finder = self._finder(binlog)
            if not finder.is_comparable(place):
                raise SourceChangedError(
                    f"it is unknown where the stream would resume on {binlog.name}: what was read has no GTID set"
                )
            missing = finder.missing(place)
            finder.go_on_after(place, missing)
            return Proof(place, missing)

    def probe(self) -> None:
        """See `sluice.instance.source.Parser.probe`."""

    def announce(self, change: str) -> None:
        """See `sluice.instance.source.Parser.announce`."""
        self._control.pending_shape = change

    def refilter(self, table_filter: TableFilter) -> None:
        """Use another filter, from the next statement that arrives; any thread may call this."""
        self._filter = table_filter

    def stop(self) -> None:
        """Tell the thread to end, and return at once."""
        super().stop()
        with self._lock:
            for opened in (self._open, self._further):
                if opened is not None:
                    opened.shutdown()
        self._ring.wake()

    def _progress(self) -> int:
        return self._decoder.event_count - 2 * self._connections  # each dump begins with two events at least

    def _close(self) -> None:
        self._quarantine.sync()
        self._decoder.close()
        if self._history is not None:
            self._history.close()

    # --- what only a kind of source knows

    @abstractmethod
    def tables(self) -> list[tuple[str, str]]:
        """See `sluice.instance.source.Parser.tables`."""

    @abstractmethod
    def table_reader(self) -> source.TableReader:
        """See `sluice.instance.source.Parser.table_reader`."""

    @abstractmethod
    def _binlog(self) -> Opened:
        """Open the binlog. Raises SourceError."""

    @abstractmethod
    def _check(self, binlog: Opened) -> None:
        """Raise SourceError with all that keeps it from being read."""

    @abstractmethod
    def _charsets(self, binlog: Opened) -> Mapping[int, str]:
        """Return the character set of each collation id. Raises SourceError."""

    @abstractmethod
    def _finder(self, binlog: Opened) -> PlaceFinder:
        """Make what finds places in it."""

    @abstractmethod
    def _dump(self, binlog: Opened, start: FileStart | GtidStart) -> Packets:
        """Begin to read. Raises SourceError."""

    @abstractmethod
    def _dump_part(self, binlog: Opened, start: FileStart) -> Packets:
        """Begin to read a part once more, up to where the binlog ends now. Raises SourceError."""

    @abstractmethod
    def _commits_in_one_phase(self, file: str, begin: int) -> bool:
        """See `Control.commits_in_one_phase`."""

    @abstractmethod
    def _schemas(self, facts: ServerFacts, start: Cursor | None) -> Schemas:
        """Return the tables at a place."""

    @abstractmethod
    def _columns_now(self, schema: str, table: str) -> list[SourceColumn]:
        """Return the columns that a table has now. Raises UnknownTableError and SourceError."""

    def _is_over(self, dump: Packets) -> bool:
        """Whether nothing more will come where a dump says that it ends; on a server that is never so.

        Raises SourceError if it must not end there.
        """
        del dump
        return False

    # --- the thread

    @contextmanager
    def _further_binlog(self) -> Iterator[Opened]:
        """Open the binlog again to ask while the dump waits; stop() interrupts that, too."""
        with self._binlog() as binlog:
            with self._lock:
                self._further = binlog
            try:
                if self._stopping.is_set():
                    binlog.shutdown()
                yield binlog
            finally:
                with self._lock:
                    self._further = None

    @contextmanager
    def _further_finder(self) -> Iterator[PlaceFinder]:
        with self._further_binlog() as binlog:
            yield self._finder(binlog)

    def _further_dump(self, position: Position) -> Packets:
        """Let the source send again what begins at a place; stop() interrupts that, too."""
        with self._further_binlog() as binlog:
            self._finder(binlog).check(position)
            start = resume(position).dump
            assert isinstance(start, FileStart)
            dump = self._dump_part(binlog, start)
        with self._lock:
            self._further = dump
        if self._stopping.is_set():
            dump.shutdown()
        return dump

    def _interruptible(self, opened: Binlog | Packets) -> None:
        """Let stop() interrupt what waits."""
        with self._lock:
            self._open = opened
        if self._stopping.is_set():
            opened.shutdown()

    def _read(self) -> None:
        """Read without a break; returns when told to stop, at the stop position, or where nothing more will come."""
        with self._binlog() as binlog:
            self._interruptible(binlog)
            self._check(binlog)
            facts = binlog.facts
            self._control.finder = self._further_finder
            self._control.commits_in_one_phase = self._commits_in_one_phase
            self._control.dump = self._further_dump
            self._control.prepared.is_complete = False  # what was resolved may come again
            self._control.charsets = self._charsets(binlog)
            self._control.mariadb = facts.mariadb
            self._control.asks_schemas = facts.asks_schemas
            self._control.renames_silently = facts.renames_silently
            if self._history is not None and self._control.asks_schemas:
                self._history.open()  # before the end of the binlog is looked up, for it may be in there
            start = self._start = self._find_start(binlog)
            self._decoder.forget_plans()
            if not self._follow_to(binlog, start):
                self._control.schemas = self._schemas(facts, _cursor_of(start))
            self._decoder.begin(
                source=facts.source,
                gtid=isinstance(start.dump, GtidStart),
                position=start.position,
                stop=self._stop if self._stop is None or self._stop.is_of(facts.source) else None,
                executed=str(start.gtids or ""),
            )
            dump = self._dump(binlog, start.dump)
            self._source = facts.source
            self._connections += 1
        self._interruptible(dump)
        try:
            self._follow(dump, start)
        finally:
            self._start = self._resumption(start, facts)
            dump.close()
            self._control.close_part()
            with self._lock:
                self._further = None
            if self._history is not None:
                self._history.pause(self._decoder.executed)

    def _follow_to(self, binlog: Opened, start: Start) -> bool:
        """Let the statements between the end of the history and a start after it change the tables.

        Another server may have had the destination meanwhile. Returns False if there is nothing to follow, or too much.
        """
        cursor = _cursor_of(start)
        if self._history is None or cursor is None or not self._control.asks_schemas or self._config.is_reader:
            return False
        end, position = self._history.end_before(cursor), cursor.position
        if end is None or position is None or position.source != binlog.facts.source:
            return False
        finder = self._finder(binlog)
        decoder = Decoder(Ring(), self._config)
        try:
            distance = finder.distance(end, position)
            if distance is None or distance > MOST_FOLLOWED:
                return False
            logger.info("looking for statements that changed tables from %s to %s", end, position)
            schemas = self._control.schemas = self._schemas(binlog.facts, Cursor.at(end))
            schemas.executed = lambda: decoder.executed
            with closing(finder.between(decoder, end, position)) as events:
                for event in events:
                    if self._stopping.is_set():
                        return False
                    self._control.follow(event)
        except SluiceError as error:
            logger.warning("the tables at %s are not known from the statements before it: %s", position, error)
            return False
        finally:
            decoder.close()
        schemas.executed = lambda: self._decoder.executed
        return True

    def _find_start(self, binlog: Opened) -> Start:
        finder = self._finder(binlog)
        if isinstance(self.failure, PurgedError) and self._config.auto_reset_latest_pos_mode:
            logger.warning("resuming at the current end, as configured, without the purged changes")
            purged, self._is_after_gap = self.failure, True
            end, read = finder.end(), None if self._start is None else self._start.read or self._start.position
            if self._begun:  # else nothing was given yet of what would come before the marker
                to = f"{end.dump.file}:{end.dump.offset}" if isinstance(end.dump, FileStart) else "the end"
                self._control.pending_gap = f"changes from {read} to {end.position or to}: {purged}"
            kept = {place: error for place, error in self.refused.items() if not isinstance(error, PurgedError)}
            self.refused = kept  # the others go on after the gap
            return end
        start = self._start if self._begun else None  # until it has begun, other places may be asked for
        place = None if start is None else start.read or start.position
        if start is None or place is None:  # nothing was put after that place
            return self._first_held(finder)
        if place.source != binlog.facts.source:
            raise SourceMovedError(
                f"{binlog.name} is now {binlog.facts.source}, no longer {place.source}, which was read up to {place}:"
                " whether it has all that was read is being looked at"
            )
        return finder.go_on_at(start)

    def _first_held(self, finder: PlaceFinder) -> Start:
        """Find the first of the places that the source has; if it has none, raise the error of the first one."""
        start, refused = finder.find_first(self._places)
        self.refused = {place: error for place, error in refused.items() if place is not None}
        if start is None:
            errors = list(refused.values())
            purged = (error for error in errors if isinstance(error, PurgedError))
            raise next(purged, errors[0]) if self._config.auto_reset_latest_pos_mode else errors[0]
        return finder.name(start) if self.names_places else start

    def _resumption(self, start: Start, facts: ServerFacts) -> Start:
        """Return where to go on when the connection is gone: after the last slot that was put.

        The decoder may have come further, up to the table maps of a transaction of which nothing was put.
        """
        released = self._decoder.staging.released  # the ring may have slots of others after it
        position = self._first if released is None else Track(self._ring).position(released)
        if position is None or position.source != facts.source:
            return start
        executed = self._decoder.executed
        if not position.n:
            self._in_part = None
        elif self._in_part is None or self._in_part[0] != position.transaction or self._in_part[1] is None:
            self._in_part = (position.transaction, self._decoder.gtid_in_part)
        gtids = parse_gtids(executed, mariadb=facts.mariadb) if executed else None
        # The set includes the current transaction of the decoder: to ask by it would lose that one.
        is_exact = position.n == 0 and position == self._decoder.position
        cursor = Cursor.at(position, executed if is_exact else "")
        if isinstance(start.dump, GtidStart) and gtids and is_exact:
            return Start(GtidStart(gtids), gtids=gtids, cursor=cursor, read=position)
        return replace(resume(position, gtids), cursor=cursor)

    def _follow(self, dump: Packets, start: Start) -> None:
        """Decode until told to stop, or the stop position; raises SluiceError when the dump breaks off."""
        decoder = self._decoder
        self._file_end = None
        while True:
            if self._filter is not None:
                self._control.refilter(self._filter)
            try:
                status = decoder.run()
            finally:
                # Before an error too: what precedes it is valid.
                if decoder.staging.count:
                    self._quarantine.sync()
                    if self._history is not None and decoder.position is not None:
                        self._history.cover(decoder.position, lambda: decoder.executed)
                    self._ring.put(decoder.staging, self._stopping)
            if status is Status.STOPPED or self._stopping.is_set():
                return
            if status is Status.NEED_DATA:
                self._control.settle()
                with decoder.receive_space() as space:
                    size = self._receive(dump, space)
                if not size:
                    raise SourceError(f"{dump.name} closed the connection")
                decoder.received(size)
                self._control.compare_again()
            elif status is Status.NEED_PART and self._control.part is not None:
                with decoder.part_space() as space:
                    size = self._control.part.receive_into(space)
                if not size:
                    raise SourceError("the prepared part of an XA transaction ends before its XA PREPARE")
                decoder.part_received(size)
            elif status is Status.CONTROL and decoder.event is not None:
                self._note_end(decoder.event, decoder.position, start)
                if decoder.event.type == BinlogEvent.FORMAT_DESCRIPTION_EVENT:
                    self._begin(start)
                elif decoder.event.type == BinlogEvent.EOF_PACKET and self._is_over(dump):
                    return
                self._control.answer(decoder.event)

    def _note_end(self, event: Event, place: Position | None, start: Start) -> None:
        """Note where a file ends that was read to its end; ``place`` is that after the event."""
        if event.type == BinlogEvent.ROTATE_EVENT:
            self._file_end = event.position or self._file_end
            # One that the server has made up follows a STOP event. A dump by GTIDs may leave out what is before that.
            if self._file_end is None and place is not None and isinstance(start.dump, FileStart):
                self._file_end = before_stop(place)
        elif event.type == BinlogEvent.FORMAT_DESCRIPTION_EVENT:
            if self._file_end is not None and place is not None:
                ENDS.add(self._file_end, replace(place, begin=FIRST_EVENT))
            self._file_end = None

    def _receive(self, dump: Packets, space: memoryview) -> int:
        """Receive, and note when the source had nothing to send: then everything it wrote before is read.

        A heartbeat says so, too, as of its arrival: to put what came with it may have taken long.
        """
        if self._decoder.heartbeats > self._heartbeats:
            self._heartbeats, self._read_until = self._decoder.heartbeats, self._received
            self.on_caught_up(self._received)
        if self._history is not None and self._control.asks_schemas:
            self._history.look()
        begin = self._quiet_since = time.monotonic()
        try:
            size = dump.receive_into(space)
        finally:
            self._quiet_since = 0.0
        self._received = time.monotonic()
        if self._received - begin > QUIET:
            self._read_until = self._received
        return size

    def _begin(self, start: Start) -> None:
        """The source sends: its FORMAT_DESCRIPTION event completes what is known about the place."""
        position = start.position
        if position is None and isinstance(start.dump, FileStart) and self._decoder.position is not None:
            position = replace(self._decoder.position, begin=start.dump.offset, n=0)
        if not self._begun:
            self._begun = True
            self._first = position
            if position is not None:
                self._control.prepared.begin(position, _restart_of(start, position))
            if self._on_begin is not None:
                self._on_begin(start.former or position, start.gtids)
            if position is not None:
                self._name_place(position)
        elif self._is_after_gap and self._on_begin is not None:
            self._on_begin(position, start.gtids)
        self.failure, self._is_after_gap = None, False
        self._set_state("running", "")

    def _name_place(self, position: Position) -> None:
        """Put the place where this server is read on into a ring that another one has filled so far.

        Else it has no place of this server before that writes something, and rows of a snapshot wait for one.
        """
        track = Track(self._ring)
        end = track.position_before(self._ring.next) if self._ring.next else None
        if end is not None and not end.same_source(position):
            track.stage_join(self._decoder.staging, SegmentWriter(self._ring.pool), ONE, position)


class Parser(BinlogParser[MysqlConfig, Connection]):
    """Reads the binlog of a server."""

    @cached_property
    def _schema_source(self) -> InformationSchema:
        return InformationSchema(self._binlog)

    @cached_property
    def _probe(self) -> Probe:
        return Probe(self._config)

    @cached_property
    def _replica(self) -> Replica:
        return Replica.unique(self._config.slave_id)

    @property
    def _most_silent(self) -> float:
        return 2 * heartbeat_of(self._config.so_timeout)

    def table_reader(self) -> TableReader:
        """See `sluice.instance.source.Parser.table_reader`."""
        return TableReader(self._config, self._known_files, lambda: self._source)

    def _columns_now(self, schema: str, table: str) -> list[SourceColumn]:
        source = InformationSchema(self._binlog)
        try:
            found = source.fetch(schema, table)
        finally:
            source.close()
        if found.name != (schema, table):
            raise UnknownTableError(f"{schema}.{table} is called {'.'.join(found.name or ())} by the source")
        return found.columns

    def check_conditions(self, conditions: "Conditions") -> None:
        """See `sluice.instance.source.Parser.check_conditions`."""
        with self._binlog() as binlog:
            name, facts = binlog.name, binlog.facts
        if facts.row_image == "MINIMAL":
            raise FilterError(
                f"binlog_row_image of {name} is MINIMAL: rows lack the columns of their conditions; SET GLOBAL"
                " binlog_row_image = 'FULL', then let the applications reconnect"
            )
        source = InformationSchema(self._binlog)
        try:
            for (schema, table), test in conditions.tables.items():
                columns = self.columns(schema, table)
                found = source.collations(schema, table) if facts.row_metadata in ("MINIMAL", "FULL") else {}
                unsaid = () if facts.row_metadata == "FULL" else ("enum", "set")  # MINIMAL is about texts only
                names = [None if column.data_type in unsaid else found.get(column.name) for column in columns]
                check_condition(test, schema, table, columns, names)
        except UnknownTableError as error:
            raise FilterError(str(error)) from None
        finally:
            source.close()

    def tables(self) -> list[tuple[str, str]]:
        """Ask the source for schema and name of its tables, whatever the filter.

        Any thread may ask. Raises SourceError.
        """
        source = InformationSchema(self._binlog)
        try:
            return source.tables()
        finally:
            source.close()

    def prove(self, place: Cursor, sample: bytes) -> Proof:
        """See `sluice.instance.source.Parser.prove`."""
        with self._binlog() as binlog:
            self._interruptible(binlog)
            self._check(binlog)
            finder = self._finder(binlog)
            if not finder.is_comparable(place):
                return Proof(self._find_alike(binlog, finder, place, sample))
            accepted = Transactions.parse(self._config.accepted)
            return Proof(place, lacking(binlog, finder, place, accepted, self._stopping))

    def _find_alike(self, binlog: Connection, finder: StartFinder, place: Cursor, sample: bytes) -> Cursor:
        """Find the place after the same transactions, by comparing. Raises SourceChangedError if it is not certain."""
        search = Alike(place, sample, binlog.name, self._config.destination)
        backlog = Backlog(binlog)
        while True:
            is_left = backlog.is_left()  # before it is read: what is executed meanwhile may be missed
            start = finder.at_time(search.earliest_ms - self._config.fallback_interval * 1000)
            end = finder.end_position(())
            ring = Ring(SCANNED)
            over = threading.Event()

            def note(state: str, _text: str, over: threading.Event = over) -> None:
                if state == "finished":
                    over.set()

            parser = Parser(self._config.for_reader(), ring, start=start, stop=end, on_state=note)
            try:
                parser.start()
                found = search.find(ring, parser, over.is_set, self._stopping)
            finally:
                parser.stop()
                ring.close()
                parser.join()
            if len(found) == 1 or not is_left:
                return Cursor.at(search.only(found))
            if self._stopping.wait(GLANCE):
                raise SourceError("the destination stops")

    def clock(self) -> float:
        """See `sluice.instance.source.MemberParser.clock`."""
        with self._binlog() as binlog:
            found = [self._ask_time(binlog) for _ in range(ASKED)]
        took, ahead = min(found)  # the quickest answer is the most exact one
        return math.copysign(max(0.0, abs(ahead) - took / 2), ahead)  # a clock that may be right is

    @staticmethod
    def _ask_time(binlog: Connection) -> tuple[float, float]:
        """Return how long the answer took, and by how much the clock of the server is ahead, in seconds."""
        begin = time.time()  # noqa: TID251  beside that of the source
        found: float = binlog.ask("SELECT UNIX_TIMESTAMP(NOW(6))", row=(float,))
        end = time.time()  # noqa: TID251  as above
        if not math.isfinite(found):
            raise SourceError(f"{binlog.name} says that its time is {found}")
        return end - begin, found - (begin + end) / 2

    def probe(self) -> None:
        """See `sluice.instance.source.Parser.probe`."""
        self._probe()
        if self._stopping.is_set():
            self._probe.close()

    def stop(self) -> None:
        """See `BinlogParser.stop`."""
        super().stop()
        self._schema_source.shutdown()
        self._probe.shutdown()

    def _read(self) -> None:
        try:
            super()._read()
        finally:
            self._schema_source.close()

    def _binlog(self) -> Connection:
        return Connection(self._config)

    def _check(self, binlog: Connection) -> None:
        binlog.check(self._config, self._config.slave_id)

    def _charsets(self, binlog: Connection) -> Mapping[int, str]:
        return charsets(binlog)

    def _finder(self, binlog: Connection) -> StartFinder:
        return StartFinder(binlog, self._config, self._binlog, self._stopping)

    def _dump(self, binlog: Connection, start: FileStart | GtidStart) -> Dump:
        return Dump(binlog, start, self._replica, timeout=self._config.so_timeout, heartbeat=self.heartbeat)

    def _dump_part(self, binlog: Connection, start: FileStart) -> Dump:
        return Dump(binlog, start, Replica.unique(), timeout=self._config.so_timeout, non_blocking=True)

    def _commits_in_one_phase(self, file: str, begin: int) -> bool:
        return commits_in_one_phase(self._further_binlog, file, begin)

    def _schemas(self, facts: ServerFacts, start: Cursor | None) -> Schemas:
        takes = self._control.asks_schemas and not self._config.is_reader
        return Schemas(
            self._schema_source,
            Dialect(facts.version, facts.mariadb, frozenset(self._control.charsets.values())),
            ignore_case=facts.lower_case_table_names != 0,
            only_open=facts.only_open,
            take=partial(self._schema_source.snapshot, only_open=facts.only_open) if takes else None,
            history=self._history if self._control.asks_schemas else None,
            start=start,
            executed=lambda: self._decoder.executed,
        )


def _restart_of(start: Start, position: Position) -> Position | None:
    """Return where the oldest XA transaction was prepared that is open at a start, if it was saved."""
    restart = start.cursor.restart if start.cursor is not None else None
    return restart if restart is not None and restart.same_history(position) else None


def _cursor_of(start: Start) -> Cursor | None:
    """Return the place of a start as it was saved, else as far as it is known."""
    if start.cursor is not None:
        return start.cursor
    return None if start.position is None else Cursor.at(start.position, str(start.gtids or ""))
