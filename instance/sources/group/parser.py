"""The thread of a group: it merges what the parsers of its members read, and fills the ring.

Each member has a parser of its own, with a ring that is its pool. The merger (`sluice.instance.merge`) says what goes
out next, and compiled code moves that. A place is a cut. When something fails here, all members are read again from
what was put last; what fails in a member is a matter of its parser, which tries again by itself.

The stream begins with the members that the cursors have. Any other one joins it: its start is stored with all cursors,
and put as a slot of its own, before it is merged. A member that is removed keeps its place.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from ....protocol import props
from ....protocol.canal.entry_pb2 import MYSQL, Entry, EntryType, EventType, Header, Pair, RowChange
from ....protocol.cut import Cut, Executed, executed_at, executed_text, parse_executed
from ....protocol.errors import (
    BadPositionError,
    ConfigError,
    FilterError,
    PurgedError,
    SluiceError,
    SourceChangedError,
    SourceError,
    UnknownTableError,
)
from ....protocol.member import MAX_MEMBERS, name_again
from ....protocol.position import Position
from ....store.cursor import OLDEST, Cursor
from ....store.ring import Flag, Kind, Ring, Staging
from ....store.segment import SegmentWriter
from ....store.track import Track
from ...agreement import Agreement
from ...columns import SourceColumn
from ...config import InstanceConfig
from ...merge.merger import MemberOptions, MemberState, Merger, Ordering
from ...merge.order import Mark
from ...merge.pools import Pool, move
from ...sink.filters import TableFilter
from ...source import LOST, Expiry, KeepStart, MemberParser, Proof, TableReader
from ...status import MemberStatus, ParserStatus
from ..thread import ParserThread
from .config import GroupConfig
from .member import Clock, MakeMember, Member
from .places import check_places, places_of, starts_of_others
from .snapshot import GroupTableReader

if TYPE_CHECKING:
    from ...conditions.where import Conditions

logger = logging.getLogger(__name__)

SLICE: Final = 1 << 20
"""Bytes that are merged at once."""
CLOSING: Final = 3.0
"""Seconds that the parsers of members have to end."""
AGAIN: Final = 1.0
"""Seconds until it is tried again to store where a member begins."""
SAID: Final = 60.0
"""Seconds until it is said again that transactions of a member come too late."""


@dataclass(frozen=True, slots=True)
class _Interruption:
    """What ends a wait for room in the ring, asked as an event is."""

    is_set: Callable[[], bool]


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
        self._keep_start: KeepStart | None = None
        self._make_member = make_member
        self._config = config
        self._ring, self._staging, self._writer = ring, Staging(), SegmentWriter(ring.pool)
        self._on_begin = on_begin
        self._epoch = epoch
        self._stop = stop
        self._members: dict[str, Member] = {}
        self._pools: list[Pool] = []  # by the numbers of members in the merger, those of removed ones included
        self._ended: list[Member] = []  # whose parsers may still run
        self._merger: Merger | None = None
        self._reconfigured: GroupConfig | None = None  # what it is to go on with
        self._starts: dict[str, Cursor] = {}  # of the members that join: where clients have them, or as it was stored
        self._reached: Cut | None = None  # what was put, once the stream has begun
        self._is_moving = False  # something has moved from the pools, and is not put yet
        self._halting: set[str] = set()  # the members that are to be read no longer ...
        self._halted: dict[str, Cursor | None] = {}  # ... and those that are not, with their places ...
        self._unbegun: frozenset[str] = frozenset()  # ... or because the stream has not begun
        self._in_part: tuple[int, int] | None = None  # see `ParserStatus.gtid_in_part`
        self._interruption = _Interruption(self._is_interrupted)
        self._broken: set[str] = set()  # the members of which a transaction was ended by a marker
        self._wake = threading.Event()
        self._lock = threading.Lock()  # of the merger, and of what is said of the state
        self._filter: TableFilter | None = None
        self._change = ""
        self._events = 0
        self._clock = Clock()
        self._agreement = Agreement()  # of the members' split tables
        self._late: dict[str, tuple[int, float]] = {}  # how many of a member were said to be late, and when

    # --- what any thread may ask

    @property
    def failure(self) -> SluiceError | None:
        """Why the group cannot go on, or the first of the members for which it waits for ever."""
        if self._failure is not None:
            return self._failure
        found = [it.parser.failure for it in self._current() if self._waits_for(it.name)]
        if self._config.max_wait and self._keeps_starts and None in found:
            return None
        return next((it for it in found if it is not None), None)

    @failure.setter
    def failure(self, failure: SluiceError | None) -> None:
        self._failure = failure

    @property
    def status(self) -> ParserStatus:
        """How far it is: all members together, and the one that is furthest behind."""
        found = [it.parser.status for it in self._current()]
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
            gtid_in_part=self._in_part,
        )

    def _member_statuses(self) -> tuple[MemberStatus, ...]:
        with self._lock:
            if self._merger is None:
                return ()
            merged, holders = self._merger.status(), self._merger.waits_for
            streams, states = self._merger.streams, {it.name: it.state for it in self._members.values()}
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
                streams=name == streams,
            )
            for name, (state, text) in states.items()
        )

    def end(self) -> Position:
        """Ask each member for its end; one that was removed ends where it is. Raises SourceError."""
        ends = {name: it.end() for name, it in self._parsers().items()}
        reached = self._reached or Cut()
        return Cut({**reached.places, **ends})

    def find_place(self, wanted: int | str | None) -> Cursor:
        """See `sluice.instance.source.Parser.find_place`: a member is asked for a time or its oldest place."""
        if isinstance(wanted, str):
            raise BadPositionError(f"not a position of a group (member/position, with commas), nor a time: {wanted!r}")
        found = {name: it.find_place(wanted).position for name, it in self._parsers().items()}
        unnamed = [name for name, it in found.items() if it is None]
        if unnamed:
            raise BadPositionError(f"the place of member {unnamed[0]} has no name yet")
        reached = self._reached or Cut()  # of members that were removed nothing comes after that
        return Cursor.at(Cut({**reached.places, **{name: it for name, it in found.items() if it is not None}}))

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
        """See `sluice.instance.source.Parser.check_conditions`: each member checks those of its tables."""
        unknown = set(conditions.tables)
        for it in self._parsers().values():
            own = {name for name in conditions.tables if _has(it, *name)}
            unknown -= own
            if own:
                it.check_conditions(conditions.only(own))
        if unknown:
            raise FilterError(
                f"{'.'.join(min(unknown))}: no member has it. Correct the condition, or let the accounts see the table"
            )

    def tables(self) -> list[tuple[str, str]]:
        """Return the tables of all members."""
        return sorted({table for it in self._parsers().values() for table in it.tables()})

    def table_reader(self) -> TableReader:
        """See `sluice.instance.source.Parser.table_reader`."""
        self._parsers()  # which says if there are none yet
        return GroupTableReader(self._parsers)

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

    def distances(self, places: Sequence[Position], to: Position) -> list[int | None]:
        """See `sluice.instance.source.Parser.distances`: that of a cut is the sum over all members."""
        found: list[int | None] = [0] * len(places)
        ends = to.places if isinstance(to, Cut) else {}
        for name, parser in self._parsers().items():
            cuts = {i: it.places[name] for i, it in enumerate(places) if isinstance(it, Cut) and name in it.places}
            if name not in ends:
                continue
            for i, size in zip(cuts, parser.distances(list(cuts.values()), ends[name]), strict=True):
                before = found[i]
                found[i] = None if before is None or size is None else before + size
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
        for it in self._current():
            it.parser.refilter(table_filter)

    def begin_at(self, places: Sequence[Cursor | None]) -> None:
        """See `ParserThread.begin_at`; once it has begun, so do the members whose sources have lost their places."""
        super().begin_at(places)
        self._wake.set()

    def use_keep_start(self, keep_start: KeepStart) -> None:
        """See `sluice.instance.source.Grouped`."""
        self._keep_start = keep_start

    def reconfigure(self, config: InstanceConfig) -> None:
        """Go on with other members, or other settings of them. Raises ConfigError, and then goes on as before."""
        assert isinstance(config, GroupConfig)
        known = self._reached.places if self._reached is not None else {}
        removed = known.keys() - self._members.keys()
        if again := sorted(config.parts.keys() & removed):
            raise name_again(again[0])
        if len(known.keys() | config.parts.keys()) > MAX_MEMBERS:
            raise ConfigError(
                f"sluice.group.members: at most {MAX_MEMBERS} are possible, and {len(removed)} that were removed count,"
                " because clients have their places; begin a new destination"
            )
        self._reconfigured = config
        self._wake.set()

    def halt(self, member: str) -> None:
        """See `sluice.instance.source.Grouped.halt`."""
        self._halting.add(member)
        self._wake.set()
        self._ring.wake()

    def is_halted(self, member: str) -> bool:
        """See `sluice.instance.source.Grouped.is_halted`: so it is before the stream has begun, too."""
        return member in self._halted or member in self._unbegun or not self._thread.is_alive()

    def go_on(self, member: str) -> None:
        """See `sluice.instance.source.Grouped.go_on`."""
        self._halting.discard(member)
        self._wake.set()

    def probe_member(self, member: str) -> None:
        """See `sluice.instance.source.Grouped.probe_member`; one that is not open is asked when it is."""
        if (found := self._members.get(member)) is not None:
            found.parser.probe()

    def stop(self) -> None:
        """Tell the thread to end, and return at once; the members end with it."""
        super().stop()
        self._wake.set()
        for it in self._current():
            it.stop()
        self._ring.wake()

    def _current(self) -> Sequence[Member]:
        return tuple(self._members.values())

    def _waits_for(self, name: str) -> bool:
        """Whether the others wait for a member, or would if it brought nothing."""
        with self._lock:
            if self._merger is None or self._reached is None or name not in self._merger.names:
                return True
            return self._merger.state(name) is MemberState.MERGED or not self._keeps_starts

    def _parsers(self) -> Mapping[str, MemberParser]:
        found = {it.name: it.parser for it in self._current()}
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
        while self._read_places():
            pass

    def _read_places(self) -> bool:
        """Merge; return whether it is to begin at other places. Raises SluiceError."""
        self._staging.clear()
        self._halted.clear()
        places = self._places
        if self._reached is not None:
            places = [self._cursor(self._reached)]
        check_places(places)
        begin = next((it.position for it in places if it is not None and it != OLDEST), None)
        kept = begin if isinstance(begin, Cut) else Cut()
        if self._reconfigured is not None:
            self._config, self._reconfigured = self._reconfigured, None
        if self._reached is None:
            self._starts = starts_of_others(kept, places)
        parts, options = self._parts(kept), MemberOptions(self._config.pool)
        initial = [name for name in parts if name in kept.places or not kept.places]
        inside = {name for name, it in kept.places.items() if self._reached is not None and it != it.transaction}
        inside -= self._broken
        removed = [name for name in kept.places if name not in self._config.parts]
        if removed and self._reached is None and self._keeps_starts:
            logger.warning(
                "sluice.group.members does not have %s, of which clients have places: nothing more of it is delivered",
                ", ".join(removed),
            )
        merger = Merger(
            Ordering.parse(self._config.order),
            dict.fromkeys(initial, options),
            removed=[name for name in kept.places if name not in parts],
            streams=next((it for it in parts if it in inside), None),
            window=self._config.window * 1000,
            max_wait=self._config.max_wait * 1000,
            now=self._clock.now(),
        )
        with self._lock:
            self._merger, self._members, self._pools = merger, {}, []
        try:
            for name in initial:
                self._open(merger, name, places_of(name, places))
                self._members[name].is_admitted = self._reached is None
            self._add_others(merger)
            if self._reached is not None:
                self._halt_members(merger)
            for name in inside - self._config.parts.keys():
                self._put(broken=name)
            return not self._stopping.is_set() and self._merge(merger, places, kept)
        finally:
            ended = [*self._ended, *self._current()]
            for it in ended:
                it.close()
            until = time.monotonic() + CLOSING
            for it in ended:
                it.parser.join(max(0.0, until - time.monotonic()))
            self._ended.clear()

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

    @property
    def _keeps_starts(self) -> bool:
        """Whether members may join; what reads again where clients are reads the members that these have."""
        return self._keep_start is not None

    def _add_others(self, merger: Merger) -> None:
        """Begin to read the members that are to join, each where the configuration says."""
        others = [name for name in self._config.parts if name not in merger.names]
        for name in others if self._keeps_starts else ():
            merger.join(name, MemberOptions(self._config.pool))
            self._open(merger, name, [self._starts.get(name)])

    def _open(self, merger: Merger, name: str, places: Sequence[Cursor | None]) -> None:
        """Begin to read a member at the first of these places that it has."""
        number = merger.names.index(name)
        column, first = Ordering.parse(self._config.order).column, merger.next(name)
        member = Member(
            name,
            self._config.parts[name],
            self._make_member,
            places=places,
            stop=self._stop.places.get(name) if isinstance(self._stop, Cut) else None,
            epoch=self._epoch,
            pool=partial(Pool, name, column=column, first=first),
            memory=self._config.pool,
            clock=self._clock,
            on_change=self._wake.set,
            on_state=self._tell,
        )
        member.parser.names_places = True
        member.parser.heartbeat = self._config.window / 2000
        member.parser.agree_with(self._agreement, name)
        restarts, known = member.pool.ring.restarts, self._ring.restarts.members.get(name)
        if known is not None:
            restarts.go_on_from(known)
        self._ring.restarts.members[name] = restarts
        if self._filter is not None:
            member.parser.refilter(self._filter)
        if self._change and name == next(iter(self._config.parts)):
            member.parser.announce(self._change)
            self._change = ""
        with self._lock:
            self._members[name] = member
            self._pools[number:] = [member.pool, *self._pools[number + 1 :]]
        member.start()
        if self._stopping.is_set():
            member.stop()

    def _tell(self) -> None:
        """Say what the members' states make together: an error of one of them is the group's, named."""
        with self._lock:
            states = {it.name: it.state for it in self._members.values()}
            wrong = [f"member {name}: {text}" for name, (state, text) in states.items() if state == "error"]
            if wrong:
                self._set_state("error", "; ".join(wrong))
            elif states and all(state in ("running", "finished") for state, _ in states.values()):
                self._set_state("running", "")

    def _merge(self, merger: Merger, places: Sequence[Cursor | None], kept: Cut) -> bool:
        """Merge; return whether it is to begin at other places."""
        tick = 0.0
        while not (self._stopping.is_set() or self._ring.closed):
            if len(self._staging):  # there was no room for it
                return True
            self._wake.wait(merger.period / 1_000_000)
            self._wake.clear()
            if self._reached is None and (self._places is not places or self._reconfigured is not None):
                return True
            places = self._follow(merger, places)
            self._unbegun = frozenset(self._halting) if self._reached is None else frozenset()
            if self._unbegun:  # the stream does not begin before that is over
                continue
            with self._lock:
                for it in self._members.values():
                    if it.is_admitted:
                        self._events += it.tell(merger)
                is_due = time.monotonic() >= tick
                passed = merger.tick(now=self._clock.now()) if is_due else []
                slices = merger.release(SLICE, now=self._clock.now())
            if is_due:
                self._say(merger, passed)
                tick = time.monotonic() + merger.period / 1_000_000
            if self._reached is None and (len(slices) or self._has_begun(kept)):
                self._begin(merger, places, kept)
            if len(slices):
                self._is_moving = True
                move(self._pools, slices, self._ring, self._staging, self._writer)
                self._put(broken=merger.names[slices[-3]] if slices[-1] & Mark.BROKEN else "")
                self._wake.set()  # there may be more
            elif self._has_ended:
                return False
            if self._reached is not None:
                self._admit(may_join=merger.streams is None)
        return False

    def _follow(self, merger: Merger, places: Sequence[Cursor | None]) -> Sequence[Cursor | None]:
        """Do what was asked for meanwhile; return the places where it was last asked to go on."""
        if self._reconfigured is not None:
            self._change_members(merger)
        if self._reached is not None:
            self._halt_members(merger)
        if self._places is places or merger.streams is not None:
            return places
        places = self._places
        self._go_on(merger, places)
        return places

    def _say(self, merger: Merger, passed: Sequence[str]) -> None:
        for name in passed:
            logger.warning("member %s is silent: the others go on without it, as configured", name)
        for name, it in merger.status().items():
            late, when = self._late.get(name, (0, 0.0))
            if it.late > late and time.monotonic() - when >= SAID:
                logger.warning("member %s: %d transactions came too late for their place in the order", name, it.late)
                self._late[name] = it.late, time.monotonic()

    @property
    def _has_ended(self) -> bool:
        """Whether nothing more comes of any member."""
        if self._halted or not (self._members or self._stop is not None):
            return False
        return all(it.has_left for it in self._members.values())

    # --- members that come and go

    def _halt_members(self, merger: Merger) -> None:
        """Read the members no longer that are to be halted, and those on that are not any more."""
        for name in [it for it in self._members if it in self._halting]:
            place = self._place_of(name)
            with self._lock:
                merger.reset(name)
            self._drop(name)
            self._halted[name] = place
        for name in [it for it in self._halted if it not in self._halting]:
            self._open(merger, name, [self._halted.pop(name)])

    def _change_members(self, merger: Merger) -> None:
        """Go on as configured now: with other members, or with other settings of them."""
        config, self._reconfigured = self._reconfigured, None
        assert config is not None
        self._config = config
        for name in [it for it in (*self._members, *self._halted) if it not in config.parts]:
            with self._lock:
                merger.remove(name)
            if self._halted.pop(name, None) is None:
                self._drop(name)
            logger.info("member %s was removed: nothing more of it is delivered", name)
        for it in self._current():
            if it.config != config.parts[it.name]:
                place = self._place_of(it.name)
                with self._lock:
                    merger.reset(it.name)
                self._drop(it.name)
                self._open(merger, it.name, [place])
        self._add_others(merger)

    def _go_on(self, merger: Merger, places: Sequence[Cursor | None]) -> None:
        """Let the members that have lost their places go on where all clients are by now."""
        assert self._reached is not None
        for it in self._current():
            before = self._reached.places.get(it.name)
            found = places_of(it.name, [place for place in places if place not in (None, OLDEST)])[:1]
            after = found[0].position if found and found[0] is not None else None
            if not isinstance(it.parser.failure, LOST) or before is None or after is None:
                continue
            if before.same_history(after) and after.precedes(before):
                continue
            logger.warning("member %s resumes at %s, after %s", it.name, after, before)
            with self._lock:
                merger.reset(it.name)
            self._drop(it.name)
            Track(self._ring).stage_join(self._staging, self._writer, it.name, after)
            if self._ring.put(self._staging, self._interruption):
                self._reached = self._reached.advance(it.name, after)
                self._open(merger, it.name, found)

    def _place_of(self, name: str) -> Cursor | None:
        """Return where a member goes on."""
        if self._reached is None or name not in self._reached.places:
            return self._starts.get(name)
        return places_of(name, [self._cursor(self._reached)])[0]

    def _cursor(self, reached: Cut) -> Cursor:
        """Return the place up to which all is put, with what was executed there as far as that is known."""
        # Inside of a transaction the place alone counts.
        between = {name for name, it in reached.places.items() if it == it.transaction}
        executed = {it.name: it.pool.executed for it in self._current() if it.name in between}
        known = {name: it for name, it in executed.items() if it is not None}
        text = "" if self._is_moving else executed_text(known)
        return replace(Cursor.at(reached, text), restart=self._ring.restarts.at(reached))

    def _drop(self, name: str) -> None:
        """Read a member no longer."""
        with self._lock:
            member = self._members.pop(name)
        member.close()
        self._agreement.forget(member=name)
        self._ended.append(member)

    def _end_transaction(self, name: str) -> None:
        """Put a marker where nothing more comes of a transaction of which parts were put."""
        assert self._reached is not None  # begun before
        member = self._members.get(name)
        place = (member.place if member is not None else None) or self._reached.places[name]
        why = f"member {name}: the rest of the transaction at {place} is not delivered, for the member was removed"
        logger.error("%s", why)
        file, offset = place.canal_place
        header = Header(
            version=1,
            logfileName=file,
            logfileOffset=offset,
            serverenCode="UTF-8",
            executeTime=self._clock.now() // 1000,
            sourceType=MYSQL,
            eventType=EventType.QUERY,
            props=[Pair(key=props.GAP, value=why), Pair(key=props.MEMBER, value=name)],
        )
        statement = RowChange(eventType=EventType.QUERY, isDdl=False, sql=f"-- {props.GAP}: {why}")
        entry = Entry(header=header, entryType=EntryType.ROWDATA, storeValue=statement.SerializeToString())
        self._writer.write_framed(entry.SerializeToString())
        source, file_key, begin, n = place.parts
        number = self._ring.files.intern(file_key)
        self._staging.add_entry(
            self._writer,
            Kind.GAP,
            event_type=int(EventType.QUERY),
            flags=Flag.BOUNDARY,
            source=self._ring.sources.intern((name, source)),
            execute_ms=header.executeTime,
            event_offset=begin,
            file=number,
            begin=begin,
            n=n,
            next_file=number,
            next_begin=begin,
            next_n=n,
        )

    # --- places

    def _has_begun(self, kept: Cut) -> bool:
        """Whether all members have begun that the stream begins with."""
        return all(it.has_begun for it in self._current() if not kept.places or it.name in kept.places)

    def _begin(self, merger: Merger, places: Sequence[Cursor | None], kept: Cut) -> None:
        """Say where the stream begins."""
        begun = {it.name: it for it in self._current() if it.has_begun}
        if kept.places:
            begun = {name: it for name, it in begun.items() if name in kept.places}
        self._reached = Cut({**kept.places, **{name: it.begun for name, it in begun.items() if it.begun is not None}})
        for it in self._current():
            it.is_admitted = it.name in begun
            if not it.is_admitted and it.name in kept.places:  # it has to go on there, and nowhere later
                self._drop(it.name)
                self._open(merger, it.name, it.places[:1])
        sides = [(it.position, parse_executed(it.gtid)) for it in places if it and isinstance(it.position, Cut)]
        gtids = executed_at(self._reached, sides)
        gtids |= {name: it.gtids for name, it in begun.items() if it.gtids is not None}
        self.failure = next((it.gap for it in begun.values() if it.gap is not None), None)
        self._on_begin(self._reached, gtids)
        self.failure = None
        for it in begun.values():
            it.gap = None

    def _admit(self, *, may_join: bool) -> None:
        """Let members join that have begun and whose starts are stored, and say what others have lost meanwhile."""
        assert self._reached is not None
        for it in self._current():
            if not it.has_begun:
                continue
            if it.name in self._reached.places:
                it.is_admitted = True
                if it.gap is not None and it.begun is not None:
                    self._pass_gap(it, it.gap)
            elif self._is_kept(it) and may_join and it.begun is not None:
                Track(self._ring).stage_join(self._staging, self._writer, it.name, it.begun)
                if self._ring.put(self._staging, self._interruption):
                    self._reached = self._reached.advance(it.name, it.begun)
                    it.is_admitted = True
                    logger.info("member %s joins at %s", it.name, it.begun)

    def _is_kept(self, member: Member) -> bool:
        """Whether it is stored where a member begins; else see to it."""
        start = member.find_start()
        if self._keep_start is None or start is None:
            return start is not None
        if member.joining is None:
            if time.monotonic() < member.joins_after:
                return False
            self._starts[member.name] = Cursor.at(start, str(member.gtids or ""))
            member.joining = self._keep_start(member.name, start, member.gtids)
            member.joining.add_done_callback(lambda _: self._wake.set())
        if not member.joining.done():
            return False
        error = member.joining.exception()
        if error is None:
            return True
        logger.warning("member %s joins as soon as it can be stored where it begins: %s", member.name, error)
        member.joining, member.joins_after = None, time.monotonic() + AGAIN
        return False

    def _pass_gap(self, member: Member, gap: PurgedError) -> None:
        """Say that a member goes on after changes that were purged, as configured."""
        assert self._reached is not None
        assert member.begun is not None
        self.failure, member.gap = gap, None
        self._on_begin(self._reached.advance(member.name, member.begun), None)
        self.failure = None

    def _put(self, *, broken: str = "") -> None:
        """Put what is staged, with a marker if it ends with a transaction of a member that is broken.

        When the wait for room ends before there is some, the rest is read again.
        """
        if broken:
            self._end_transaction(broken)
        is_put = self._ring.put(self._staging, self._interruption)
        assert self._reached is not None, "begun before"
        if not is_put:
            track = Track(self._ring)
            for it in self._staging.put_places():
                self._reached = self._reached.advance(track.member(it), track.position(it))
            self._in_part = self._staging.gtid_in_part()
            return
        self._is_moving, self._in_part = False, None
        if broken:
            self._broken.add(broken)
        for member in self._current():
            if (place := member.place) is not None:
                self._reached = self._reached.advance(member.name, place)

    def _is_interrupted(self) -> bool:
        """Whether no room in the ring is waited for: the thread is to end, or a member is to be read no longer."""
        is_halting = self._ring.waiting and any(it in self._halting for it in self._members)
        return is_halting or self._stopping.is_set()


def _has(parser: MemberParser, schema: str, table: str) -> bool:
    """Whether a member has a table. Raises SourceError."""
    try:
        parser.columns(schema, table)
    except UnknownTableError:
        return False
    return True
