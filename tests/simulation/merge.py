"""Members, a server that merges them, a ring and two consumers, and what goes wrong with them; all from one seed.

Times are µs of true time, which no clock here shows.
"""

import random
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from sluice.instance.merge.merger import MemberOptions, MemberState, Merger, Ordering
from sluice.instance.merge.order import By, Mark
from sluice.protocol.cut import Cut
from sluice.protocol.errors import GoneError
from sluice.protocol.position import Position
from sluice.store.floor import Floor
from tests.merge_model import slices
from tests.simulation.checks import Violation

MS, SECOND = 1000, 1_000_000
STEPS = 250
"""Of a schedule, before its faults stop."""
RECOVERY = 1500
"""Steps in which everything has to arrive after the last fault."""
WINDOW = 100 * MS
MAX_WAIT = 600 * MS
MEASURED = 300 * MS
"""How often the offset of a member's clock is measured."""
SLOP = 3 * WINDOW + MEASURED
"""How long something may take that does not wait: connections, steps and measurements are not immediate."""
POOL = 300
CHUNK = 80
"""What is read at once of a member."""
RING = 400
NEVER = 1 << 62
EPOCH = 1_700_000_000 * SECOND


class Transaction(NamedTuple):
    stamp: int
    size: int
    at: int
    """When it is committed."""


@dataclass
class Source:
    """A member as it is, whoever reads it."""

    name: str
    whole_seconds: bool
    latency: int
    skew: int = 0
    history: list[Transaction] = field(default_factory=list)
    silent_until: int = 0
    pace: float = 0.3
    is_removed: bool = False
    has_left: bool = False

    def write(self, chance: random.Random, now: int) -> None:
        while chance.random() < self.pace:
            stamp = now + self.skew - int(30 * MS * chance.random() ** 4)
            size = chance.randrange(2, 40) if chance.random() < 0.97 else chance.randrange(POOL, 4 * POOL)
            stamp = stamp // SECOND * SECOND if self.whole_seconds else stamp
            self.history.append(Transaction(stamp, size, now))


class Slot(NamedTuple):
    """A part of a transaction in the ring."""

    member: str
    number: int
    begin: int
    end: int
    is_last: bool
    marks: int

    @property
    def after(self) -> Position:
        return place(self.number + 1, 0) if self.is_last else place(self.number, self.end)


def place(number: int, size: int) -> Position:
    return Position("7", "b.1", 1, 4 + number, size)


def index(position: Position) -> tuple[int, int]:
    return position.begin - 4, position.n


class Staged(NamedTuple):
    """What a server knows of a transaction that it has read."""

    key: int
    at: int
    is_whole: bool
    size: int


class Reader:
    """The connection of a server to a member, and what is staged of it."""

    def __init__(self, source: Source, number: int, at: tuple[int, int], now: int) -> None:
        self.source, self.number = source, number
        self.first = self.at = at
        """The first transaction that is not released, and the bytes of it that are; and what is read next."""
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
        return max(self.down_until, self.source.silent_until) > now


@dataclass
class Plan:
    """What is simulated, of which a test may replace a part by a wrong one."""

    merger: type[Merger] = Merger
    floor: type[Floor] = Floor
    start: Callable[[Cut, Cut], Cut] = Cut.meet


class Server:
    """A life of a server: it reads the members, and puts what the merger releases into its ring."""

    def __init__(self, world: "Schedule", cut: Cut) -> None:
        self.world, self.random = world, world.random
        self.readers: dict[str, Reader] = {}
        options = {it.name: world.options(it) for it in world.sources if not (it.is_removed or it.has_left)}
        removed = [it.name for it in world.sources if it.is_removed]
        self.merger = world.plan.merger(
            world.ordering, options, removed=removed, window=WINDOW, max_wait=world.max_wait, now=world.clock()
        )
        self.chain = [cut]
        self.slots: list[Slot] = []
        self.pending: list[Slot] = []
        self.greatest = -(1 << 63)
        self.held = world.now
        """When something could not be put for another reason than silence."""
        self.ran = 0
        self.paused_until = 0
        for name in options:
            self.connect(name, cut)

    def connect(self, name: str, cut: Cut) -> None:
        source = self.world.source(name)
        at = index(cut.places[name]) if name in cut.places else self.world.starts[name]
        reader = self.readers[name] = Reader(source, self.merger.names.index(name), at, self.world.now)
        reader.heard = self.ran
        self._measure(reader)

    def _measure(self, reader: Reader) -> None:
        """Tell the merger by how much a member's clock is ahead of the server's, to some ms."""
        reader.measured = self.world.now
        reader.offset = reader.source.skew - self.world.clock_skew + self.random.randrange(-2 * MS, 2 * MS)
        self.merger.measured(reader.source.name, reader.offset)

    # --- what is read ------------------------------------------------------------------------------------------------

    def read(self) -> None:
        now = self.world.now
        for name, reader in self.readers.items():
            source = reader.source
            if source.is_removed or source.has_left:
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
            sizes.append(taken)
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
        if reader.source.is_removed or reader.source.has_left:
            return
        self.merger.reset(name)
        number, done = reader.first
        streams = self.merger.streams == name and not reader.breaks
        key = reader.staged[0].key if streams else 0
        reader.staged = [Staged(key, self.world.now, False, 0)] if streams else []
        reader.at = number, done
        reader.key = reader.shown = reader.released
        reader.down_until, reader.measured = until, 0

    # --- what is put -------------------------------------------------------------------------------------------------

    def put(self) -> None:
        world = self.world
        while not self.pending:
            if self.full:
                self.held = world.now
                return
            found = self.merger.release(self.random.choice([1, 50, RING]), now=world.clock())
            if not found:
                self._check_stall()
                return
            for number, stop, marks in slices(found):
                self._take(self.readers[self.merger.names[number]], stop, marks)
            self._fill()
        self._fill()

    def _fill(self) -> None:
        while self.pending and not self.full:
            slot = self.pending.pop(0)
            self.slots.append(slot)
            self.chain.append(self.chain[-1].advance(slot.member, slot.after))
        if self.pending:
            self.held = self.world.now

    @property
    def full(self) -> bool:
        return sum(it.end - it.begin for it in self.slots[self.world.least_read() :]) >= RING

    def _take(self, reader: Reader, stop: int, marks: int) -> None:
        """Put what a slice names behind what is to be put."""
        number, done = reader.first
        for _ in range(number, stop + reader.base - (1 if marks & Mark.PART else 0)):
            number, done = reader.first
            if marks & Mark.BROKEN:
                self.world.broken += 1
                reader.breaks = False
                self._append(Slot(reader.source.name, number, done, done, False, marks))
                reader.base -= 1  # the rest of it is another transaction, if it is read at all
                return
            if not reader.staged or not reader.staged[0].is_whole:
                raise self.world.violation(f"{reader.source.name} {number} is released, and not read")
            staged = reader.staged.pop(0)
            self._check_release(reader, staged, done, marks)
            self._append(Slot(reader.source.name, number, done, done + staged.size, True, marks))
            reader.first = number + 1, 0
        if marks & Mark.PART:
            number, done = reader.first
            staged = reader.staged[0]
            if staged.is_whole or (self._inside is None and staged.size < POOL):
                raise self.world.violation(f"{reader.source.name} {number} is released in parts")
            self._check_release(reader, staged, done, marks)
            self.world.parts += 1
            reader.staged[0] = staged._replace(size=0)
            reader.first = number, done + staged.size
            self._append(Slot(reader.source.name, number, done, done + staged.size, False, marks))

    @property
    def _inside(self) -> Slot | None:
        """What was put last, if that is a part of a transaction."""
        slots = self.pending or self.slots
        return slots[-1] if slots and slots[-1].marks & Mark.PART else None

    def _append(self, slot: Slot) -> None:
        inside = self._inside
        if inside is not None and (slot.member, slot.number) != (inside.member, inside.number):
            raise self.world.violation(f"{slot} is put inside of {inside}")
        self.pending.append(slot)

    # --- what must hold ----------------------------------------------------------------------------------------------

    def _check_release(self, reader: Reader, staged: Staged, done: int, marks: int) -> None:
        """Check that a transaction is next, and late or not, by all that was read."""
        world, by, key = self.world, self.world.ordering.by, staged.key
        reader.released = max(reader.released, key)
        inside = self._inside
        if by == By.ARRIVAL or (inside is not None and inside.number == reader.first[0] and done == inside.end):
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

    def passed(self, names: list[str]) -> None:
        """Check that members were passed that were silent for so long while this server could hear them."""
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


class Consumer:
    """A client with a durable cut, which it confirms between transactions only."""

    def __init__(self, world: "Schedule") -> None:
        self.world = world
        self.durable = Cut()
        self.seen: dict[str, tuple[int, int]] = {}
        self.paused_until = 0
        self.at = 0
        self.floor: Floor | None = None
        """None until it has found the present server."""

    def _begin(self, server: Server) -> Floor:
        """Go on in the ring of another server, from what is durable."""
        floor = self.world.plan.floor(self.durable)
        try:
            self.at = floor.start(server.chain)
        except GoneError as error:
            raise self.world.violation(str(error)) from error
        self.seen = {name: index(it) for name, it in self.durable.places.items()}
        return floor

    def read(self, server: Server) -> None:
        random = self.world.random
        if self.paused_until > self.world.now:
            return
        if self.floor is None:
            if random.random() < 0.8:
                return
            self.floor = self._begin(server)
        for _ in range(random.choice([0, 1, 5, 20])):
            if self.at >= len(server.slots):
                return
            slot = server.slots[self.at]
            self.at += 1
            if self.floor.skips(slot.member, slot.after):
                continue
            expected = self.seen.get(slot.member, self.world.starts[slot.member])
            own = self.floor.cut.places.get(slot.member)
            if own is not None and place(slot.number, slot.begin).begin == own.begin:
                slot = slot._replace(begin=max(slot.begin, own.n))  # it stands for one slot for each event
            if (slot.number, slot.begin) != expected:
                raise self.world.violation(f"{slot} comes after {expected}")
            self.seen[slot.member] = index(slot.after)
            if not slot.marks & Mark.PART and random.random() < 0.3:
                before, self.durable = self.durable, self.floor.place(server.chain[self.at])
                if not before.precedes(self.durable):
                    raise self.world.violation(f"the durable place goes back from {before} to {self.durable}")


class Schedule:
    """A run."""

    def __init__(self, seed: int, plan: Plan | None = None) -> None:
        self.seed, self.random, self.plan = seed, random.Random(seed), plan or Plan()
        self.now = EPOCH
        self.steps = self.late = self.passed = self.take_overs = self.parts = self.broken = 0
        self.max_wait = MAX_WAIT if self.random.random() < 0.5 else 0
        self.ordering = Ordering(By.ARRIVAL if self.random.random() < 0.1 else By.TIME)
        self.clock_skew = self._minutes()
        self.sources = [self._source(f"m{i}") for i in range(self.random.randrange(1, 5))]
        self.starts = {it.name: (0, 0) for it in self.sources}
        self.consumers = [Consumer(self), Consumer(self)]
        self.server = Server(self, Cut())
        self.down_until = 0
        self.faults: list[Callable[[], None]] = [
            self._kill,
            self._silence,
            self._silence,
            self._cut,
            self._cut,
            self._set_clock,
            self._pause_consumer,
            self._stand_still,
            self._join,
            self._leave,
            self._remove,
            self._burst,
        ]

    def clock(self) -> int:
        """Return the time by the clock of the server."""
        return self.now + self.clock_skew

    def violation(self, what: str) -> Violation:
        return Violation(f"seed {self.seed}, step {self.steps}, {(self.now - EPOCH) / SECOND:.3f} s: {what}")

    def source(self, name: str) -> Source:
        return next(it for it in self.sources if it.name == name)

    def options(self, source: Source) -> MemberOptions:
        return MemberOptions(POOL, whole_seconds=source.whole_seconds)

    def least_read(self) -> int:
        return min(it.at for it in self.consumers)

    def _minutes(self) -> int:
        return self.random.choice([0, self.random.randrange(-300 * SECOND, 300 * SECOND)])

    def _source(self, name: str) -> Source:
        chance = self.random
        return Source(
            name, chance.random() < 0.3, chance.randrange(1, 20) * MS, self._minutes(), pace=chance.choice([0.02, 0.4])
        )

    def run(self) -> None:
        """Run; raises Violation."""
        while self.steps < STEPS:
            for source in self.sources:
                if not (source.is_removed or source.has_left):
                    source.write(self.random, self.now)
            if self.random.random() < 0.08:
                self.random.choice(self.faults)()
            self._step()
        self._heal()
        while not self._finished():
            self._step()
            if self.steps > STEPS + RECOVERY:
                raise self.violation(f"no progress after the last fault: {self.server.merger.status()}")

    def _step(self) -> None:
        self.steps += 1
        passed = self.random.randrange(1, 25) * MS
        self.now += passed
        if self.down_until > self.now:
            return
        if self.down_until:
            self.down_until = 0
            self._take_over()
        server = self.server
        if server.paused_until <= self.now:
            if server.paused_until:
                server.held, server.paused_until = self.now, 0
            server.ran += passed
            server.read()
            server.put()
            server.passed(server.merger.tick(now=self.clock()))
        for consumer in self.consumers:
            consumer.read(server)

    def _take_over(self) -> None:
        """Let another server merge from where all consumers can go on."""
        self.take_overs += 1
        self.clock_skew = self._minutes()
        one, two = (it.durable for it in self.consumers)
        self.server = Server(self, self.plan.start(one, two))
        for consumer in self.consumers:
            consumer.floor, consumer.at = None, 0

    def _finished(self) -> bool:
        return all(
            consumer.floor is not None and consumer.seen.get(it.name, self.starts[it.name]) == (len(it.history), 0)
            for consumer in self.consumers
            for it in self.sources
            if not (it.is_removed or it.has_left)
        )

    # --- faults ------------------------------------------------------------------------------------------------------

    def _one(self) -> Source:
        return self.random.choice(self.sources)

    def _time(self) -> int:
        return self.now + int(2 * SECOND * self.random.random() ** 3)

    def _kill(self) -> None:
        self.down_until = self._time()

    def _silence(self) -> None:
        self._one().silent_until = self._time()

    def _cut(self) -> None:
        reader = self.server.readers.get(self._one().name)
        if reader is not None:
            self.server.disconnect(reader.source.name, self._time())

    def _set_clock(self) -> None:
        self._one().skew = self._minutes()

    def _pause_consumer(self) -> None:
        self.random.choice(self.consumers).paused_until = self._time()

    def _stand_still(self) -> None:
        self.server.paused_until = self._time()

    def _burst(self) -> None:
        source = self._one()
        source.pace = self.random.choice([0.02, 0.3, 0.5])

    def _join(self) -> None:
        """Let a member join, or one that has left, at its present end or some time before."""
        if self.down_until or len(self.sources) > 6:
            return
        left = [it for it in self.sources if it.has_left and it.name in self.server.readers]
        source = self.random.choice(left) if left else self._source(f"m{len(self.sources)}")
        if left:
            source.has_left = False
            self.server.merger.join(source.name, self.options(source))
            reader = self.server.readers[source.name]
            reader.at = (reader.first[0] + len(reader.staged), 0) if reader.staged else reader.first
            reader.heard = self.server.ran
            return
        for _ in range(self.random.randrange(5)):
            source.write(self.random, self.now - self.random.randrange(SECOND))
        source.history.sort(key=lambda it: it.at)
        self.starts[source.name] = self.random.choice([0, len(source.history)]), 0
        self.sources.append(source)
        self.server.merger.join(source.name, self.options(source))
        self.server.connect(source.name, Cut())

    def _who_goes(self) -> Source | None:
        """Return the member that holds the others by a large transaction, or any; None if there is only one."""
        stay = [it for it in self.sources if not (it.is_removed or it.has_left)]
        if self.down_until or len(stay) == 1:
            return None
        holds = [it for it in stay if it.name == self.server.merger.streams]
        return self.random.choice(holds or stay)

    def _leave(self) -> None:
        source = self._who_goes()
        if source is None:
            return
        source.has_left = True
        reader = self.server.readers[source.name]
        if reader.staged and not reader.staged[-1].is_whole:
            reader.breaks = len(reader.staged) == 1 and self.server.merger.streams == source.name
            reader.staged.pop()
        self.server.merger.leave(source.name)

    def _remove(self) -> None:
        source = self._who_goes()
        if source is None:
            return
        source.is_removed = True
        self.server.merger.remove(source.name)
        self.server.readers[source.name].staged = []

    def _heal(self) -> None:
        self.down_until = min(self.down_until, self.now)
        self.server.paused_until = min(self.server.paused_until, self.now)
        for source in self.sources:
            source.silent_until = min(source.silent_until, self.now)
        for consumer in self.consumers:
            consumer.paused_until = 0
        for reader in self.server.readers.values():
            reader.down_until = min(reader.down_until, self.now)
