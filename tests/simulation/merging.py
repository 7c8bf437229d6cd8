"""What reads members and merges them: the real merger, which fills a real ring.

Times are µs of true time, which no clock here shows.
"""

import random
from array import array
from typing import Final, NamedTuple, Protocol

from sluice.instance.merge.merger import MemberOptions, MemberState, Merger, Ordering
from sluice.instance.merge.order import By, Mark
from sluice.protocol.cut import Cut
from sluice.store.ring import Flag, Kind, Ring, Staging
from sluice.store.segment import SegmentWriter
from sluice.store.track import Track
from tests.merge_model import slices
from tests.simulation.checks import Violation
from tests.simulation.members import MS, POOL, SECOND, TABLES, Event, Source, index, place

WINDOW: Final = 100 * MS
MAX_WAIT: Final = 600 * MS
MEASURED: Final = 300 * MS
"""How often the offset of a member's clock is measured."""
SLOP: Final = 3 * WINDOW + MEASURED
"""How long something may take that does not wait: connections, steps and measurements are not immediate."""
CHUNK: Final = 8
"""Events that are read at once of a member."""
SLOTS: Final = 32
"""Of a ring."""
NEVER: Final = 1 << 62


class World(Protocol):
    """What a server is in."""

    now: int
    random: random.Random
    ordering: Ordering
    max_wait: int
    late: int
    passed: int
    parts: int
    broken: int
    sources: list[Source]
    starts: dict[str, tuple[int, int]]
    """Where each member began, when it joined."""
    merger: type[Merger]

    def clock(self) -> int:
        """Return the time by the clock of the server."""

    def violation(self, what: str) -> Violation:
        """Return what is to be raised."""

    def source(self, name: str) -> Source:
        """Return a member."""


class PolledRing(Ring):
    """A ring that no thread waits to put into: a full one counts as waited for."""

    @property
    def waiting(self) -> bool:  # type: ignore[override]
        """Whether more is put only when there is room."""
        return len(self) == SLOTS


class Output:
    """A ring, and what is to be put into it."""

    def __init__(self) -> None:
        self.ring = PolledRing(SLOTS, 1 << 20, segment_size=4096)
        self.pending: list[Event | str] = []
        """Events; of a member that joins its name."""
        self.last: Event | None = None
        """What was put last of all, or is to be."""
        self._staging, self._writer = Staging(), SegmentWriter(self.ring.pool)
        for number, name in enumerate(TABLES, 1):
            assert self.ring.tables.intern(("shop", name)) == number

    @property
    def is_full(self) -> bool:
        """Whether nothing more can be put."""
        return len(self.ring) == SLOTS

    def append(self, events: list[Event]) -> None:
        """Put events behind all others."""
        self.pending += events
        self.last = events[-1]

    def fill(self, starts: dict[str, tuple[int, int]]) -> None:
        """Put what there is room for."""
        room = SLOTS - len(self.ring)
        now, self.pending = self.pending[:room], self.pending[room:]
        for it in now:
            if isinstance(it, str):
                Track(self.ring).stage_join(self._staging, self._writer, it, place(starts[it]))
            else:
                self._stage(it)
        assert self.ring.put(self._staging)

    def _stage(self, event: Event) -> None:
        ring, is_empty = self.ring, event.is_last and event.n == 0 and not event.is_marker
        kind = Kind.TRANSACTION_END if event.is_last else Kind.ROW_DATA if event.is_row else Kind.TRANSACTION_BEGIN
        if is_empty:
            kind = Kind.ADVANCE
        elif event.is_marker:
            kind = Kind.QUARANTINE
        if kind is not Kind.ADVANCE:
            self._writer.write(
                f"{event.member}:{event.number}:{event.n}:{event.is_last:d}:{event.is_marker:d};".encode()
            )
        before, after = place(event.before), place(event.after)
        file = ring.files.intern(before.file_key)
        ends = event.is_last and not event.is_marker
        self._staging.add_entry(
            self._writer,
            kind,
            table=event.table,
            rows=int(event.is_row),
            flags=Flag.BOUNDARY if event.is_last else 0,
            source=ring.sources.intern((event.member, before.source)),
            file=file,
            begin=before.begin,
            n=before.n,
            next_file=file,
            next_begin=after.begin,
            next_n=after.n,
            event_offset=before.begin,
            gtid=ring.gtid_sources.intern((event.member, (0, 1))) if ends else 0,
            gtid_first=event.number + 1 if ends else 0,
            gtid_last=event.number + 1 if ends else 0,
        )


class Staged(NamedTuple):
    """What is known of a transaction that was read."""

    key: int
    at: int
    is_whole: bool
    size: int


class Reader:
    """A connection to a member, and what is staged of it."""

    def __init__(self, source: Source, number: int, at: tuple[int, int], now: int) -> None:
        self.source, self.number = source, number
        self.first = self.at = at
        """The first transaction that is not released, and the events of it that are; and what is read next."""
        self.base = at[0]
        """The number in the source of the transaction that the merger counts as 0."""
        self.staged: list[Staged] = []
        self.down_until = 0
        self.sent = self.behind = self.measured = now
        """When it sent something, when it had more than was read, when its clock was measured."""
        self.heard = 0
        """When it brought something, in the time that its server ran."""
        self.offset = 0
        self.breaks = False
        """Whether it has left within a transaction of which parts were released, and that is not put yet."""
        self.holds = NEVER
        """Since when others wait for it."""
        self.shown: int | None = None
        """The least key that may come, as far as this member has shown one."""
        self.key = self.released = -(1 << 63)

    def unread(self, now: int) -> bool:
        """Whether the member had more some time ago than was read."""
        number = self.at[0]
        return number < len(self.source.history) and self.source.history[number].at <= now - self.source.latency

    def is_silent(self, now: int) -> bool:
        """Whether it brings nothing now."""
        return max(self.down_until, self.source.silent_until) > now


class Merging:
    """Reads the members from a cut on, for a server or a catch-up reader, and puts into a ring what is released."""

    def __init__(self, world: World, cut: Cut) -> None:
        self.world, self.random = world, world.random
        self.readers: dict[str, Reader] = {}
        options = {it.name: self.options(it) for it in world.sources if not it.is_removed}
        removed = [it.name for it in world.sources if it.is_removed]
        self.merger = world.merger(
            world.ordering, options, removed=removed, window=WINDOW, max_wait=world.max_wait, now=world.clock()
        )
        self.output = Output()
        self.greatest = -(1 << 63)
        self.held = world.now
        """When something could not be put for another reason than silence."""
        self.ran = 0
        for name in options:
            self.connect(name, cut)

    @staticmethod
    def options(source: Source) -> MemberOptions:
        """Return what the merger has to know of a member."""
        return MemberOptions(POOL, whole_seconds=source.whole_seconds)

    def connect(self, name: str, cut: Cut) -> None:
        """Read a member from a cut on; one that is not in it joins there."""
        source = self.world.source(name)
        at = index(cut.places[name]) if name in cut.places else self.world.starts[name]
        reader = self.readers[name] = Reader(source, self.merger.names.index(name), at, self.world.now)
        reader.heard = self.ran
        if name not in cut.places:
            self.output.pending.append(name)
        self._measure(reader)

    def _measure(self, reader: Reader) -> None:
        """Tell the merger by how much a member's clock is ahead of ours, to some ms."""
        reader.measured = self.world.now
        reader.offset = reader.source.skew - (self.world.clock() - self.world.now) + self.random.randrange(-2, 2) * MS
        self.merger.measured(reader.source.name, reader.offset)

    def run(self, passed: int) -> None:
        """Read, merge and put, after so much time."""
        self.ran += passed
        self.read()
        self.put()
        self._check_passed(self.merger.tick(now=self.world.clock()))

    # --- what is read ------------------------------------------------------------------------------------------------

    def read(self) -> None:
        """Read what the members have."""
        now = self.world.now
        for name, reader in self.readers.items():
            if self._state(name) in (MemberState.LEFT, MemberState.REMOVED):
                continue
            if reader.source.has_left and not reader.unread(now):
                self.leave(name)
                continue
            is_full = self.merger.is_full(name)
            if is_full:
                reader.heard, reader.behind = self.ran, now
            if reader.is_silent(now):
                continue
            if now - reader.measured >= MEASURED:
                self._measure(reader)
            if is_full:
                continue
            if reader.unread(now):
                self._read_run(name, reader)
            elif now - reader.sent >= self.merger.period:
                self.merger.heartbeat(name, now=self.world.clock())
                reader.shown = self.world.clock() if self.world.ordering.by == By.TIME else 1 << 62
                reader.sent, reader.heard = now, self.ran
                self._check_state(name, reader)
            if reader.unread(now):
                reader.behind = now
            self._check_pool(name)

    def _read_run(self, name: str, reader: Reader) -> None:
        now, source = self.world.now, reader.source
        stamps, sizes, room, is_open = array("q"), array("q"), CHUNK, False
        while room > 0 and reader.unread(now):
            number, done = reader.at
            it = source.history[number]
            taken = min(it.size - done, room)
            is_open = done + taken < it.size
            room -= taken
            stamps.append(it.stamp)
            sizes.append(taken if it.size > 1 else 0)  # what has no entry takes nothing
            reader.at = (number, done + taken) if is_open else (number + 1, 0)
            if reader.staged and not reader.staged[-1].is_whole:
                last = reader.staged.pop()
                reader.staged.append(Staged(last.key, now, not is_open, last.size + taken))
            else:
                reader.key = self._key(reader, it.stamp)
                reader.staged.append(Staged(reader.key, now, not is_open, taken))
        reader.shown = reader.key
        reader.sent, reader.heard = now, self.ran
        self.merger.add(name, stamps, sizes, is_open=is_open, now=self.world.clock())

    def _key(self, reader: Reader, stamp: int) -> int:
        if self.world.ordering.by == By.ARRIVAL:
            return 0
        if self.world.ordering.by == By.COLUMN:
            return max(reader.key, stamp)
        latest = stamp + (SECOND - 1 if reader.source.whole_seconds else 0) - reader.offset
        return max(reader.key, min(latest, self.world.clock()))

    def disconnect(self, name: str, until: int) -> None:
        """Lose a connection: what is not released is read again."""
        reader = self.readers[name]
        if self._state(name) in (MemberState.LEFT, MemberState.REMOVED):
            return
        self.merger.reset(name)
        number, done = reader.first
        streams = self.merger.streams == name and not reader.breaks
        key = reader.staged[0].key if streams else 0
        reader.staged = [Staged(key, self.world.now, False, 0)] if streams else []
        reader.at = number, done
        reader.key = reader.shown = reader.released
        reader.down_until, reader.measured = until, 0

    # --- members that come and go ------------------------------------------------------------------------------------

    @property
    def is_inside(self) -> bool:
        """Whether a transaction has been put, or is to be, of which the end is missing."""
        last = self.output.last
        return last is not None and not last.is_last

    def join(self, source: Source) -> None:
        """Take in a member, or one that has left."""
        reader = self.readers.get(source.name)
        if reader is None:
            self.merger.join(source.name, self.options(source))
            self.connect(source.name, Cut())
            return
        if self._state(source.name) is not MemberState.LEFT:
            return  # what it has is read still
        self.merger.join(source.name, self.options(source))
        reader.at = (reader.first[0] + len(reader.staged), 0) if reader.staged else reader.first
        reader.heard = self.ran

    def leave(self, name: str) -> None:
        """Hear that nothing more comes of a member."""
        reader = self.readers[name]
        if self._state(name) is MemberState.LEFT:
            return
        if reader.staged and not reader.staged[-1].is_whole:
            reader.breaks = len(reader.staged) == 1 and self.merger.streams == name
            reader.staged.pop()
        self.merger.leave(name)

    def remove(self, name: str) -> None:
        """Let nothing more of a member out."""
        self.merger.remove(name)
        self.readers[name].staged = []

    # --- what is put -------------------------------------------------------------------------------------------------

    def put(self) -> None:
        """Put what is released, as long as there is room."""
        world, output = self.world, self.output
        output.fill(world.starts)
        while not output.pending:
            if output.is_full:
                break
            found = self.merger.release(self.random.choice([1, 4, SLOTS]), now=world.clock())
            if not found:
                self._check_stall()
                return
            for number, stop, marks in slices(found):
                self._take(self.readers[self.merger.names[number]], stop, marks)
            output.fill(world.starts)
        self.held = world.now

    def _take(self, reader: Reader, stop: int, marks: int) -> None:
        """Put what a slice names behind what is to be put."""
        number, done = reader.first
        for _ in range(number, stop + reader.base - (1 if marks & Mark.PART else 0)):
            number, done = reader.first
            if marks & Mark.BROKEN:
                self.world.broken += 1
                reader.breaks = False
                self._append([Event(reader.source.name, number, done, is_last=True, is_marker=True)])
                reader.base -= 1  # the rest of it is another transaction, if it is read at all
                return
            if not reader.staged or not reader.staged[0].is_whole:
                raise self.world.violation(f"{reader.source.name} {number} is released, and not read")
            staged = reader.staged.pop(0)
            self._check_release(reader, staged, marks)
            self._append(list(reader.source.events((number, done), (number + 1, 0))))
            reader.first = number + 1, 0
        if marks & Mark.PART:
            number, done = reader.first
            staged = reader.staged[0]
            if staged.is_whole or (not self._goes_on(reader) and staged.size < POOL):
                raise self.world.violation(f"{reader.source.name} {number} is released in parts")
            self._check_release(reader, staged, marks)
            self.world.parts += 1
            reader.staged[0] = staged._replace(size=0)
            reader.first = number, done + staged.size
            self._append(list(reader.source.events((number, done), reader.first)))

    def _goes_on(self, reader: Reader) -> bool:
        """Whether what comes next of a member is of the transaction that was put last."""
        last = self.output.last
        return self.is_inside and last is not None and (last.member, *last.after) == (reader.source.name, *reader.first)

    def _append(self, events: list[Event]) -> None:
        first, last = events[0], self.output.last
        if self.is_inside and last is not None and (first.member, *first.before) != (last.member, *last.after):
            raise self.world.violation(f"{first} is put inside of {last}")
        self.output.append(events)

    # --- what must hold ----------------------------------------------------------------------------------------------

    def _check_release(self, reader: Reader, staged: Staged, marks: int) -> None:
        """Check that a transaction is next, and late or not, by all that was read."""
        world, key = self.world, staged.key
        reader.released = max(reader.released, key)
        if world.ordering.by == By.ARRIVAL or self._goes_on(reader):
            return
        if bool(marks & Mark.LATE) != (key < self.greatest):
            raise world.violation(f"{reader.source.name} {reader.first} {key} after {self.greatest} has {marks}")
        world.late += bool(marks & Mark.LATE)
        if marks & Mark.LATE:
            return
        self.greatest = key
        for name, other in self.readers.items():
            is_whole = bool(other.staged) and other.staged[0].is_whole
            if other is reader or not (is_whole or self._state(name) is MemberState.MERGED):
                continue
            shown = other.staged[0].key if other.staged else other.shown
            if shown is None or (shown, other.number) < (key, reader.number):
                raise world.violation(f"{reader.source.name} {key} goes out, but {name} has shown {shown}")

    def _state(self, name: str) -> MemberState:
        return self.merger._members[name].state

    def _check_state(self, name: str, reader: Reader) -> None:
        """Check that a member that is caught up is waited for."""
        state = self._state(name)
        if state is not MemberState.MERGED and all(it.is_whole for it in reader.staged):
            raise self.world.violation(f"{name} is caught up, and {state}")

    def _check_pool(self, name: str) -> None:
        if self.merger._order.state(self.readers[name].number).bytes > POOL + CHUNK:
            raise self.world.violation(f"{name} has more in its pool than there is room for")

    def _check_passed(self, names: list[str]) -> None:
        """Check that members that were passed had been silent long enough while this server could hear them."""
        for name in names:
            self.world.passed += 1
            if self.ran - self.readers[name].heard < MAX_WAIT - 3 * WINDOW:  # a pause counts as a window
                raise self.world.violation(f"{name} is passed, though it was heard just now")

    def _check_stall(self) -> None:
        """Check that what is next waits for nobody but a member that may hold it."""
        world, streams, waits_for = self.world, self.merger.streams, self.merger.waits_for
        whole = [it for it in self.readers.values() if it.staged and it.staged[0].is_whole]
        if streams is not None:
            self.held = world.now
            if waits_for != [streams]:
                raise world.violation(f"{streams} holds the others, and {waits_for} are named")
            return
        if whole and not waits_for:
            raise world.violation("something is whole and does not go out, and nobody is named")
        for reader in self.readers.values():
            reader.holds = min(reader.holds, world.now) if reader.source.name in waits_for else NEVER
        for name in waits_for:
            reader, state = self.readers[name], self._state(name)
            if state is not MemberState.MERGED:
                raise world.violation(f"{name} is waited for, though it is {state}")
            if reader.is_silent(world.now - SLOP) and (
                not world.max_wait or self.ran - reader.heard <= world.max_wait + SLOP
            ):
                continue
            since = max(reader.holds, self.held, reader.behind)
            if world.now - since > SLOP:
                raise world.violation(f"{name} is waited for, though it brings what it has")
