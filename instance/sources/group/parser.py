"""The thread of a group: it merges what the parsers of its members read, and fills the ring.

Each member has a parser of its own, with a ring that is its pool. The merger (`sluice.instance.merge`) says what goes
out next, and compiled code moves that. A place is a cut. When something fails here, all members are read again from
what was put last; what fails in a member is a matter of its parser, which tries again by itself.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from ....protocol import props
from ....protocol.cut import Cut, Executed, parse_executed
from ....protocol.errors import (
    BadPositionError,
    NotConfiguredError,
    SluiceError,
    SourceChangedError,
    SourceError,
    UnknownTableError,
)
from ....protocol.gtid import GtidSet
from ....protocol.position import Position
from ....store.cursor import OLDEST, Cursor
from ....store.ring import Flag, Kind, Ring, Staging
from ....store.segment import SegmentWriter
from ....store.track import Track
from ...columns import SourceColumn
from ...config import InstanceConfig
from ...context import current_destination
from ...merge.merger import MemberOptions, Merger, Ordering
from ...merge.pools import Pool, move
from ...sink.filters import TableFilter
from ...source import Expiry, MemberParser, Proof, TableReader
from ...status import MemberStatus, ParserStatus
from ..thread import ParserThread
from .config import GroupConfig
from .places import check_places, places_of

if TYPE_CHECKING:
    from ...conditions.where import Conditions

logger = logging.getLogger(__name__)

MakeMember = Callable[..., MemberParser]

SLICE: Final = 1 << 20
"""Bytes that are merged at once."""
SLOTS: Final = 16384
"""Of a pool."""
MEASURED: Final = 60.0
"""Seconds between two measurements of a clock."""
CLOSING: Final = 3.0
"""Seconds that the parsers of members have to end."""


@dataclass(slots=True)
class _Member:
    """A member while it is read."""

    name: str
    pool: Pool
    parser: MemberParser
    begun: Position | None = None
    """Where its stream began."""
    gtids: GtidSet | None = None
    state: tuple[str, str] = ("", "")
    quiet: tuple[int, int] | None = None
    """The slot before which it had nothing more, and when that was."""
    told: tuple[int, int] | None = None
    """What of that the merger was told last."""
    ahead: float | None = None
    """Seconds by which its clock is ahead, if that was measured."""
    measured: threading.Event = field(default_factory=threading.Event)
    """Its clock was asked for."""
    has_left: bool = False


class GroupParser(ParserThread):
    """Reads a group: see `sluice.instance.source.Parser`."""

    def __init__(
        self,
        make_member: MakeMember,
        config: GroupConfig,
        ring: Ring,
        *,
        start: Cursor | None,
        later: Sequence[Cursor | None] = (),
        on_begin: Callable[[Position | None, Executed | None], None],
        on_state: Callable[[str, str], None],
        epoch: int = 0,
        stop: Position | None = None,
    ) -> None:
        """``make_member`` makes the parser of a member; for the rest see `sluice.instance.source.ParserFactory`."""
        super().__init__(config.destination, (start, *later), on_state)
        self._make_member = make_member
        self._config = config
        self._ring, self._staging, self._writer = ring, Staging(), SegmentWriter(ring.pool)
        self._on_begin = on_begin
        self._epoch = epoch
        self._stop = stop
        self._members: list[_Member] = []
        self._merger: Merger | None = None
        self._reached: Cut | None = None  # what was put, once the stream has begun
        self._wake = threading.Event()
        self._lock = threading.Lock()  # of the merger, and of what is said of the state
        self._filter: TableFilter | None = None
        self._change = ""
        self._events = 0
        self._zero = time.time() - time.monotonic()  # noqa: TID251  stamps are of such clocks; it is not set after this

    # --- what any thread may ask

    @property
    def failure(self) -> SluiceError | None:
        """Why the first of the members that cannot be read cannot, else the group."""
        found = (it.parser.failure for it in tuple(self._members))
        return next((it for it in found if it is not None), self._failure)

    @failure.setter
    def failure(self, failure: SluiceError | None) -> None:
        self._failure = failure

    @property
    def status(self) -> ParserStatus:
        """How far it is: all members together, and the one that is furthest behind."""
        found = [it.parser.status for it in tuple(self._members)]
        behind = [it.behind for it in found]
        return ParserStatus(
            behind=None if not behind or None in behind else max(it for it in behind if it is not None),
            received_bytes=sum(it.received_bytes for it in found),
            events=sum(it.events for it in found),
            transactions=sum(it.transactions for it in found),
            connections=sum(it.connections for it in found),
            quarantined=sum(it.quarantined for it in found),
            future_rows=sum(it.future_rows for it in found),
            dml_statements=sum(it.dml_statements for it in found),
            open_xa=", ".join(it.open_xa for it in found if it.open_xa),
            silent=max((it.silent for it in found), default=0.0),
            history="; ".join(it.history for it in found if it.history),
            members=self._member_statuses(),
        )

    def _member_statuses(self) -> tuple[MemberStatus, ...]:
        with self._lock:
            if self._merger is None:
                return ()
            merged, holders = self._merger.status(), self._merger.waits_for
            states = {it.name: it.state for it in self._members}
        return tuple(
            MemberStatus(
                name=name,
                state=str(merged[name].state),
                error=text if state == "error" else "",
                transactions=merged[name].transactions,
                bytes=merged[name].bytes,
                late=merged[name].late,
                silent=merged[name].silent / 1_000_000,
                holds=name in holders,
            )
            for name, (state, text) in states.items()
        )

    def end(self) -> Position:
        """Ask each member for its end. Raises SourceError."""
        return Cut({name: it.end() for name, it in self._parsers().items()})

    def find_place(self, wanted: int | str | None) -> Cursor:
        """See `sluice.instance.source.Parser.find_place`: a member is asked for a time or its oldest place."""
        if isinstance(wanted, str):
            raise BadPositionError(f"not a position of a group (member/position, with commas), nor a time: {wanted!r}")
        found = {name: it.find_place(wanted).position for name, it in self._parsers().items()}
        unnamed = [name for name, it in found.items() if it is None]
        if unnamed:
            raise BadPositionError(f"the place of member {unnamed[0]} has no name yet")
        return Cursor.at(Cut({name: it for name, it in found.items() if it is not None}))

    def columns(self, schema: str, table: str, at: Position | None = None) -> list[SourceColumn]:
        """Return the columns that a table has at the first member with it. Raises UnknownTableError and SourceError."""
        places = at.places if isinstance(at, Cut) else {}
        for name, it in self._parsers().items():
            try:
                return list(it.columns(schema, table, places.get(name)))
            except UnknownTableError:
                continue
        raise UnknownTableError(f"{schema}.{table}: no member has it")

    def check_conditions(self, conditions: "Conditions") -> None:
        """See `sluice.instance.source.Parser.check_conditions`."""
        for it in self._parsers().values():
            it.check_conditions(conditions)

    def tables(self) -> list[tuple[str, str]]:
        """Return the tables of all members."""
        return sorted({table for it in self._parsers().values() for table in it.tables()})

    def table_reader(self) -> TableReader:
        """See `sluice.instance.source.Parser.table_reader`."""
        raise NotConfiguredError("a snapshot of a group is not possible yet: take one of each member's destination")

    def expiries(self, places: Sequence[Position]) -> list[Expiry | None]:
        """See `sluice.instance.source.Parser.expiries`: a cut is purged when the first of its places is."""
        found: list[Expiry | None] = [None] * len(places)
        for name, parser in self._parsers().items():
            cuts = {i: it.places[name] for i, it in enumerate(places) if isinstance(it, Cut) and name in it.places}
            for i, expiry in zip(cuts, parser.expiries(list(cuts.values())), strict=True):
                known = found[i]
                if expiry is not None and (known is None or expiry.at < known.at):
                    found[i] = expiry
        return found

    def prove(self, place: Cursor, sample: bytes) -> Proof:
        """See `sluice.instance.source.Parser.prove`."""
        del sample
        raise SourceChangedError(f"{self._config.source_title} cannot replace another source: {place.journal}")

    def probe(self) -> None:
        """See `sluice.instance.source.Parser.probe`: each member notices it by its heartbeats."""

    def announce(self, change: str) -> None:
        """See `sluice.instance.source.Parser.announce`: the first member does."""
        self._change = change

    def refilter(self, table_filter: TableFilter) -> None:
        """Use another filter, of all members."""
        self._filter = table_filter
        for it in tuple(self._members):
            it.parser.refilter(table_filter)

    def begin_at(self, places: Sequence[Cursor | None]) -> None:
        """See `ParserThread.begin_at`."""
        super().begin_at(places)
        for it in tuple(self._members):
            it.parser.begin_at(places_of(it.name, places))

    def stop(self) -> None:
        """Tell the thread to end, and return at once; the members end with it."""
        super().stop()
        self._wake.set()
        for it in tuple(self._members):
            it.parser.stop()
        self._ring.wake()

    def _parsers(self) -> Mapping[str, MemberParser]:
        found = {it.name: it.parser for it in tuple(self._members)}
        if not found:
            raise SourceError("the group has not begun yet: ask again")
        return found

    # --- the thread

    def _progress(self) -> int:
        return self._events

    def _close(self) -> None:
        self._staging.clear()
        self._writer.close()

    def _read(self) -> None:
        """Merge until told to stop, or until nothing more will come. Raises SluiceError."""
        self._staging.clear()
        places = self._places
        if self._reached is not None:
            places = [replace(Cursor.at(self._reached), restart=self._ring.restarts.at(self._reached))]
        check_places(places)
        begin = next((it.position for it in places if it is not None and it != OLDEST), None)
        kept = begin if isinstance(begin, Cut) else Cut()
        parts, now = self._parts(kept), self._now()
        merger = Merger(
            Ordering.parse(self._config.order),
            {name: MemberOptions(self._config.pool) for name in parts},
            removed=[name for name in kept.places if name not in self._config.parts],
            window=self._config.window * 1000,
            max_wait=self._config.max_wait * 1000,
            now=now,
        )
        members = [self._open(name, it, places) for name, it in parts.items()]
        with self._lock:
            self._merger, self._members = merger, members
        try:
            for it in members:
                it.parser.start()
                threading.Thread(target=self._measure, args=(it,), name=f"clock {it.name}", daemon=True).start()
            if self._stopping.is_set():
                return
            self._merge(merger, members, kept)
        finally:
            for it in members:
                it.parser.stop()
                it.pool.ring.close()
            until = time.monotonic() + CLOSING
            for it in members:
                it.parser.join(max(0.0, until - time.monotonic()))

    def _parts(self, kept: Cut) -> Mapping[str, InstanceConfig]:
        """Return the members that are read: if there is a stop, those that are before it."""
        if not isinstance(self._stop, Cut):
            return self._config.parts
        left = {
            name
            for name, stop in self._stop.places.items()
            if (at := kept.places.get(name)) is None or not (stop.is_comparable(at) and stop.precedes(at))
        }
        return {name: it for name, it in self._config.parts.items() if name in left}

    def _open(self, name: str, config: InstanceConfig, places: Sequence[Cursor | None]) -> _Member:
        """Make what reads a member."""
        ring = Ring(SLOTS, self._config.pool)
        start, *later = places_of(name, places)
        stop = self._stop.places.get(name) if isinstance(self._stop, Cut) else None

        def on_begin(position: Position | None, gtids: GtidSet | None) -> None:
            member.begun, member.gtids = position, gtids
            self._wake.set()

        def on_state(state: str, text: str) -> None:
            member.state = state, text
            self._tell()
            self._wake.set()

        def on_caught_up(at: float) -> None:
            member.quiet = ring.next, int((self._zero + at) * 1_000_000)
            self._wake.set()

        parser = self._make_member(
            config, ring, start=start, later=later, on_begin=on_begin, on_state=on_state, epoch=self._epoch, stop=stop
        )
        member = _Member(name, Pool(name, ring, props.MEMBER), parser)
        parser.heartbeat = self._config.window / 2000
        parser.on_caught_up = on_caught_up
        ring.on_put = self._wake.set
        self._ring.restarts.members[name] = ring.restarts
        if self._filter is not None:
            parser.refilter(self._filter)
        if self._change and name == next(iter(self._config.parts)):
            parser.announce(self._change)
        return member

    def _measure(self, member: _Member) -> None:
        """Ask a member for its time, now and then."""
        current_destination.set(self._destination)
        while not self._stopping.is_set() and member in self._members:
            try:
                with contextlib.suppress(SluiceError):  # its parser says so
                    member.ahead = member.parser.clock()
            finally:  # it is read, whatever becomes of this
                member.measured.set()
                self._wake.set()
            self._stopping.wait(MEASURED)

    def _tell(self) -> None:
        """Say what the members' states make together: an error of one of them is the group's, named."""
        with self._lock:
            states = {it.name: it.state for it in self._members}
            wrong = [f"member {name}: {text}" for name, (state, text) in states.items() if state == "error"]
            if wrong:
                self._set_state("error", "; ".join(wrong))
            elif states and all(state in ("running", "finished") for state, _ in states.values()):
                self._set_state("running", "")

    def _merge(self, merger: Merger, members: list[_Member], kept: Cut) -> None:
        tick = 0.0
        pools = [it.pool for it in members]
        while not self._stopping.is_set():
            self._wake.wait(merger.period / 1_000_000)
            self._wake.clear()
            with self._lock:
                for it in members:
                    self._take(merger, it)
                if time.monotonic() >= tick:
                    for name in merger.tick(now=self._now()):
                        logger.warning("member %s is silent: the others go on without it, as configured", name)
                    tick = time.monotonic() + merger.period / 1_000_000
                slices = merger.release(SLICE, now=self._now())
            if len(slices) or all(it.begun is not None for it in members):
                self._begin(members, kept)
            if len(slices):
                move(pools, slices, self._ring, self._staging, self._writer)
                if not self._put(members):
                    return
                self._wake.set()  # there may be more
            elif all(it.has_left for it in members):
                return

    def _take(self, merger: Merger, member: _Member) -> None:
        """Tell the merger what a member has brought."""
        if member.has_left or not member.measured.is_set():  # its keys would be wrong
            return
        name, pool, quiet, state = member.name, member.pool, member.quiet, member.state[0]
        ahead = round((member.ahead or 0.0) * 1_000_000)
        merger.measured(name, ahead)
        now = self._now()
        stamps, sizes, is_open = pool.take(now)
        if len(stamps):
            self._events += len(stamps)
            merger.add(name, stamps, sizes, is_open=is_open, now=now)
        if quiet is not None and quiet is not member.told and quiet[0] == pool.taken:
            merger.heartbeat(name, now=now, time=quiet[1] + ahead)  # as of its arrival: it may have more by now
            member.told = quiet
        if state == "finished" and pool.taken == pool.ring.next:
            merger.leave(name)
            member.has_left = True

    def _begin(self, members: list[_Member], kept: Cut) -> None:
        """Say where the stream begins, or where a member that comes later does: before its first change."""
        begun = {it.name: it.begun for it in members if it.begun is not None}
        if self._reached is None:
            known = {name: it for name, it in begun.items() if name in kept.places or not kept.places}
            self._reached = Cut({**kept.places, **known})
            gtids = {it.name: it.gtids for it in members if it.gtids is not None and it.begun is not None}
            if isinstance(self._places[0], Cursor):
                gtids = parse_executed(self._places[0].gtid) | gtids
            self._on_begin(self._reached, {name: it for name, it in gtids.items() if name in self._reached.places})
        for name, place in begun.items():
            if name not in self._reached.places:
                self._join(name, place)

    def _join(self, name: str, place: Position) -> None:
        """Put the place where a member begins: clients that pass it will go on there."""
        source, file, begin, n = place.parts
        number = self._ring.files.intern(file)
        self._staging.add_entry(
            self._writer,
            Kind.ADVANCE,
            flags=Flag.BOUNDARY,
            source=self._ring.sources.intern((name, source)),
            file=number,
            begin=begin,
            n=n,
            next_file=number,
            next_begin=begin,
            next_n=n,
        )
        if self._reached is not None and self._ring.put(self._staging, self._stopping):
            self._reached = self._reached.advance(name, place)

    def _put(self, members: list[_Member]) -> bool:
        """Put what is staged; False when it is to stop."""
        if not self._ring.put(self._staging, self._stopping):
            return False
        assert self._reached is not None, "begun before"
        for it in members:
            if (place := it.pool.ring.after(it.pool.ring.first - 1)) is not None and it.pool.ring.first:
                self._reached = self._reached.advance(it.name, Track(it.pool.ring).position(place))
        return True

    def _now(self) -> int:
        """Return the time, µs since 1970, on a clock that is not set."""
        return int((self._zero + time.monotonic()) * 1_000_000)
