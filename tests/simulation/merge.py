"""A server that merges members, its clients, and what goes wrong with them; all from one seed.

Merger, ring, chain of cuts and cursors are the real ones. Times are µs of true time, which no clock here shows.
"""

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sluice.instance.merge.merger import Merger, Ordering
from sluice.instance.merge.order import By
from sluice.protocol.cut import Cut, Executed, executed_text, parse_executed, parse_place
from sluice.protocol.errors import BadPositionError, GoneError
from sluice.protocol.gtid import MariadbGtidSet
from sluice.protocol.position import Position
from sluice.store.cursor import StoredClient, starts
from sluice.store.cursors import Cursors
from sluice.store.ring import Flag
from sluice.store.track import TableFilter, Track
from tests.simulation.checks import Violation
from tests.simulation.members import MS, SECOND, Event, Source, index, place
from tests.simulation.merging import MAX_WAIT, Merging

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS: Final = 250
"""Of a schedule, before its faults stop."""
RECOVERY: Final = 2500
"""Steps in which everything has to arrive after the last fault."""
EPOCH: Final = 1_700_000_000 * SECOND
FILTERS: Final = ("", "", "one", "two,three")
Places = dict[str, tuple[int, int]]


def compile_filter(text: str) -> TableFilter | None:
    """Return the test of a filter."""
    names = text.split(",")
    return (lambda _schema, table: table in names) if text else None


def executed(cut: Cut) -> Executed:
    """Return what is executed at a cut."""
    return {name: MariadbGtidSet({0: {1: it.begin - 4}} if it.begin > 4 else {}) for name, it in cut.places.items()}


class Server:
    """A life of a server."""

    def __init__(self, world: "Schedule", stored: dict[int, StoredClient]) -> None:
        self.world = world
        cursors = [it.cursor for it in stored.values() if it.cursor is not None]
        begin = starts([*cursors], None)[0]
        cut = begin.position if begin is not None else place_of(world.starts)
        assert isinstance(cut, Cut)
        self.merging = Merging(world, cut)
        self.cursors = Cursors(
            self.merging.output.ring,
            epoch=world.take_overs + 1,
            compile_filter=compile_filter,
            detach_after=world.detach_after,
            catches_up=world.catches_up,
        )
        for client in stored.values():
            self.cursors.restore(client, world.seconds)
        self.cursors.begin(cut, executed(cut))
        self.catching_up: dict[int, Merging] = {}
        self.paused_until = 0

    @property
    def mergings(self) -> list[Merging]:
        """What reads the members: for itself, and for clients that catch up."""
        return [self.merging, *self.catching_up.values()]

    def run(self, passed: int) -> None:
        """Let some time pass."""
        for it in self.mergings:
            it.run(passed)
        self.cursors.advance(self.world.seconds, every=self.world.random.random() < 0.2)
        self._serve_readers()

    def _serve_readers(self) -> None:
        readers = self.cursors.readers
        for client_id in set(self.catching_up) - readers.catching_up:
            self.world.joined += 1
            self.catching_up.pop(client_id).output.ring.close()
        for client_id, cursor in readers.behind.items():
            cut = cursor.position.transaction if isinstance(cursor.position, Cut) else place_of(self.world.starts)
            merging = self.catching_up[client_id] = Merging(self.world, cut)
            track = Track(merging.output.ring)
            track.begin(cut)
            readers.start(client_id, track)

    def close(self) -> None:
        """End."""
        for it in self.mergings:
            it.output.ring.close()


def place_of(places: Places) -> Cut:
    """Return a cut."""
    return Cut({name: place(at) for name, at in places.items()})


def places_of(cut: Position | None) -> Places:
    """Return the places of a cut."""
    return {name: index(it) for name, it in cut.places.items()} if isinstance(cut, Cut) else {}


@dataclass
class Outstanding:
    """A batch that was given and is not confirmed."""

    batch_id: int
    to: Cut
    seen: Places
    """What the client has with it."""


class Consumer:
    """A client, which may confirm between any two events, and after a failure what it was given before."""

    def __init__(self, world: "Schedule", client_id: int) -> None:
        self.world, self.client_id = world, client_id
        self.filter = world.random.choice(FILTERS)
        self.paused_until = 0
        self.server: Server | None = None
        self.marks: list[Outstanding] = []
        self.seen: Places = {}
        """Up to where it was given each member, since it began, or rolled back."""
        self.acked: Places = {}
        """Up to where it has confirmed that."""
        self.confirmed: Places = {}
        """The same, in all its lives."""
        self.durable = Cut()
        self.former: list[Cut] = []
        """Where batches of an earlier life ended that it has processed."""
        self.claimed: Places = {}
        """Up to where it has said in this life that an earlier one has confirmed: so far it may be given less."""

    def at(self, places: Places, name: str) -> tuple[int, int]:
        """Return where it is in a member."""
        return places.get(name, self.world.starts[name])

    def _begin(self, server: Server) -> None:
        """Go on with another server, from what is durable."""
        self.server = server
        self._lose_marks()
        stored = self.world.stored.get(self.client_id)
        if stored is None:
            server.cursors.subscribe(self.client_id, filter_text=self.filter, now=self.world.seconds)
            self.acked = places_of(server.cursors.position_before(server.cursors.ring.first))
            self.confirmed = dict(self.acked)
        else:
            self.acked = places_of(stored.cursor.position if stored.cursor is not None else None)
        self.seen, self.claimed = dict(self.acked), {}

    def allow(self, stored: Cut) -> None:
        """Let what another server goes on with count as confirmed: a seek back may not have been stored."""
        for name, at in places_of(stored).items():
            self.confirmed[name] = max(self.at(self.confirmed, name), at)

    def _lose_marks(self) -> None:
        """Hear that what it has not confirmed is given again, unless it confirms that by its place."""
        self.former = [it.to for it in self.marks] or self.former[-1:]
        self.marks, self.seen = [], dict(self.acked)

    def run(self, server: Server) -> None:
        """Make a call, or some."""
        random, world = self.world.random, self.world
        if self.paused_until > world.now:
            return
        if self.server is not server:
            if random.random() < 0.5:
                return
            self._begin(server)
        if self.marks and not server.cursors.clients.find(self.client_id).marks:
            self._lose_marks()  # it has left the ring
        what = random.random()
        if self.former and what < 0.7:
            self._ack_former(server)
        elif what < 0.02 and not world.is_healing:
            server.cursors.rollback(self.client_id, now=world.seconds)
            self.marks, self.seen = [], dict(self.acked)
        elif what < 0.03 and not world.is_healing:
            self._seek(server)
        else:
            for _ in range(random.choice([1, 2, 4])):
                self._get(server)
            for _ in range(random.choice([0, 1, 4])):
                self._ack(server)

    def _get(self, server: Server) -> None:
        most = self.world.random.choice([1, 3, 20])
        try:
            batch = server.cursors.get(self.client_id, now=self.world.seconds, max_entries=most)
        except GoneError as error:
            raise self.world.violation(f"client {self.client_id} is served no longer: {error}") from error
        if batch is None:
            return
        self.world.log("client", self.client_id, "gets", b"".join(batch.slices).decode(), "up to", batch.to)
        for text in b"".join(batch.slices).decode().split(";")[:-1]:
            member, *numbers = text.split(":")
            number, n, is_last, is_marker = map(int, numbers)
            self._take(Event(member, number, n, bool(is_last), bool(is_marker)))
        to = parse_place(batch.to)
        if not isinstance(to, Cut):
            raise self.world.violation(f"a batch ends at {batch.to}")
        self.marks.append(Outstanding(batch.batch_id, to, dict(self.seen)))

    def _take(self, event: Event) -> None:
        """Check that an entry is the next one of its member."""
        before = self.at(self.seen, event.member)
        if event.before < before:
            raise self.world.violation(f"client {self.client_id} is given {event}, and has all before {before}")
        start = max(before, min(self.at(self.claimed, event.member), event.before))
        self._check_nothing_between(event.member, start, event.before, f"is given {event} after {before}")
        self.seen[event.member] = event.after

    def _check_nothing_between(self, member: str, start: tuple[int, int], stop: tuple[int, int], what: str) -> None:
        for it in self.world.source(member).events(start, stop):
            if it.is_wanted(self.filter):
                raise self.world.violation(f"client {self.client_id} {what}: {it} is missing")

    def _ack(self, server: Server) -> None:
        if not self.marks:
            return
        mark = self.marks.pop(0)
        self.world.log("client", self.client_id, "acks", mark.to)
        if self.world.random.random() < 0.7:
            server.cursors.ack(self.client_id, mark.batch_id, now=self.world.seconds)
        elif not server.cursors.ack_to(self.client_id, mark.to, now=self.world.seconds):
            raise self.world.violation(f"client {self.client_id} cannot confirm {mark.to}, the end of its batch")
        self.former = []
        self._confirm(mark.seen)

    def _confirm(self, places: Places) -> None:
        for name, at in places.items():
            for known in (self.acked, self.seen, self.confirmed):
                known[name] = max(self.at(known, name), at)

    def _ack_former(self, server: Server) -> None:
        """Confirm by its place what an earlier life has given."""
        to = self.former[0]
        if self.marks:
            return
        for name, at in places_of(to).items():
            for known in (self.claimed, self.confirmed):
                known[name] = max(self.at(known, name), at)
        try:
            is_done = server.cursors.ack_to(self.client_id, to, now=self.world.seconds)
            self.world.log("client", self.client_id, "had", to, "which is", "confirmed" if is_done else "not reached")
        except BadPositionError:
            self.former = []
            return
        except GoneError as error:  # right where the place lacks a member: nobody knows whether that began after it
            begin = server.cursors.position_before(server.cursors.ring.first)
            if places_of(begin).keys() <= places_of(to).keys():
                raise self.world.violation(f"client {self.client_id} cannot confirm {to}: {error}") from error
            self.former = []
            return
        if is_done:
            self.world.acked_former += 1
            self.former.pop(0)
            for name, at in places_of(to).items():
                self.acked[name] = max(self.at(self.acked, name), at)
                self.seen[name] = max(self.at(self.seen, name), at)

    def _seek(self, server: Server) -> None:
        """Go to a place between two transactions that the ring has."""
        ring = server.cursors.ring
        ends = [it for it in range(ring.first, ring.next) if ring.slot(it).flags & Flag.BOUNDARY]
        cut = server.cursors.position_before(self.world.random.choice(ends) + 1) if ends else None
        if cut is None:
            return
        server.cursors.places.seek(self.client_id, cut, now=self.world.seconds)
        self.marks, self.former, self.durable = [], [], Cut()
        self.seen, self.acked, self.confirmed, self.claimed = places_of(cut), places_of(cut), places_of(cut), {}

    def check(self, stored: StoredClient) -> None:
        """Check what is to be durable: it does not go back, and has nothing that was not confirmed."""
        cursor = stored.cursor
        if cursor is None or cursor.position is None:
            return
        cut = cursor.position
        if not isinstance(cut, Cut):
            raise self.world.violation(f"a cursor of a merged stream is at {cut}")
        if not self.durable.transaction.precedes(cut):  # the rest of one that was broken off may come again
            raise self.world.violation(f"client {self.client_id} goes back from {self.durable} to {cut}")
        known = parse_executed(cursor.gtid)
        if cursor.gtid != executed_text({name: it for name, it in executed(cut).items() if name in known}):
            raise self.world.violation(f"at {cut} are executed {cursor.gtid}")
        self.durable = cut
        for name, at in places_of(cut).items():
            before = self.at(self.confirmed, name)
            self._check_nothing_between(name, before, at, f"has confirmed up to {before}, and is stored at {at}")

    def has_all(self, source: Source) -> bool:
        """Whether it has got and confirmed all of a member."""
        start = max(self.at(self.acked, source.name), self.at(self.claimed, source.name))
        end = len(source.history), 0
        return not self.marks and not any(it.is_wanted(self.filter) for it in source.events(start, end))


class Schedule:
    """A run."""

    def __init__(self, seed: int, merger: type[Merger] = Merger, *, trace: bool = False) -> None:
        self.seed, self.random, self.merger = seed, random.Random(seed), merger
        self.now = EPOCH
        self.steps = self.late = self.passed = self.take_overs = self.parts = self.broken = 0
        self.joined = self.acked_former = 0
        self.is_healing = False
        self.max_wait = MAX_WAIT if self.random.random() < 0.5 else 0
        self.catches_up = self.random.random() < 0.7
        self.detach_after = 0.1 if self.catches_up else 0.0
        self.ordering = Ordering(By.ARRIVAL if self.random.random() < 0.1 else By.TIME)
        self.clock_skew = self._minutes()
        self.sources = [self._source(f"m{i}") for i in range(self.random.randrange(1, 5))]
        self.starts: Places = {it.name: (0, 0) for it in self.sources}
        self.stored: dict[int, StoredClient] = {}
        self.consumers = [Consumer(self, 1), Consumer(self, 2)]
        self.server = Server(self, {})
        self.down_until = 0
        self.trace: list[str] | None = [] if trace else None
        self.faults: list[Callable[[], None]] = [
            self._kill,
            self._kill,
            self._kill,
            self._silence,
            self._silence,
            self._cut,
            self._cut,
            self._set_clock,
            self._pause_consumer,
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

    @property
    def seconds(self) -> float:
        """The time on a clock that is not set."""
        return (self.now - EPOCH) / SECOND

    @property
    def counted(self) -> dict[str, int]:
        """How often what happened."""
        return {
            "steps": self.steps,
            "take-overs": self.take_overs,
            "late": self.late,
            "in parts": self.parts,
            "passed": self.passed,
            "broken off": self.broken,
            "caught up": self.joined,
            "acked later": self.acked_former,
        }

    @property
    def lines(self) -> list[str]:
        """Its trace."""
        return self.trace or []

    def log(self, *what: object) -> None:
        """Add a line to the trace."""
        if self.trace is not None:
            self.trace.append(f"{self.seconds:.3f} {' '.join(map(str, what))}")

    def violation(self, what: str) -> Violation:
        """Return what is to be raised."""
        return Violation(f"seed {self.seed}, step {self.steps}, {self.seconds:.3f} s: {what}")

    def source(self, name: str) -> Source:
        """Return a member."""
        return next(it for it in self.sources if it.name == name)

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
                if source.is_read:
                    source.write(self.random, self.now)
            if self.random.random() < 0.08:
                fault = self.random.choice(self.faults)
                self.log(fault.__name__)
                fault()
            self._step()
        self._heal()
        while not self._finished():
            self._step()
            if self.steps > STEPS + RECOVERY:
                raise self.violation(f"no progress after the last fault: {self._progress()}")

    def _progress(self) -> str:
        clients = [self.server.cursors.status(it.client_id) for it in self.consumers]
        return f"{self.server.merging.merger.status()}, {clients}"

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
                server.merging.held, server.paused_until = self.now, 0
            server.run(passed)
        for consumer in self.consumers:
            consumer.run(server)
        if self.random.random() < 0.4:
            self._store()

    def _store(self) -> None:
        """Let the cursors become durable, mostly."""
        clients = self.server.cursors.clients
        changes, is_durable = clients.take_changes(), self.random.random() < 0.9
        for client_id, client in changes.clients.items():
            if client is not None:
                self.log("client", client_id, "is to be stored at", client.cursor)
                self.consumers[client_id - 1].check(client)
                if is_durable:
                    self.stored[client_id] = client
        clients.end_store(changes, durable=is_durable)

    def _take_over(self) -> None:
        """Let another server merge from where all clients can go on."""
        self.take_overs += 1
        self.log("another server goes on:", *(f"{number} at {it.cursor}" for number, it in self.stored.items()))
        self.clock_skew = self._minutes()
        self.server.close()
        for it in self.consumers:
            stored = self.stored.get(it.client_id)
            it.durable = (
                stored.cursor.position
                if stored and stored.cursor and isinstance(stored.cursor.position, Cut)
                else Cut()
            )
            it.allow(it.durable)
        self.server = Server(self, self.stored)

    def _finished(self) -> bool:
        return all(
            consumer.server is self.server and consumer.has_all(it)
            for consumer in self.consumers
            for it in self.sources
            if it.is_read
        )

    # --- faults ------------------------------------------------------------------------------------------------------

    def _one(self) -> Source:
        return self.random.choice(self.sources)

    def _time(self) -> int:
        return self.now + int(2 * SECOND * self.random.random() ** 3)

    def _kill(self) -> None:
        self.down_until = self._time()

    def _silence(self) -> None:
        self._one().silent_until = self.now + self.random.randrange(2 * SECOND)

    def _cut(self) -> None:
        merging, name = self.random.choice(self.server.mergings), self._one().name
        if name in merging.readers:
            merging.disconnect(name, self._time())

    def _set_clock(self) -> None:
        self._one().skew = self._minutes()

    def _pause_consumer(self) -> None:
        self.random.choice(self.consumers).paused_until = self.now + self.random.randrange(2 * SECOND)

    def _stand_still(self) -> None:
        self.server.paused_until = self._time()

    def _burst(self) -> None:
        source = self._one()
        source.pace = self.random.choice([0.02, 0.3, 0.5])

    def _join(self) -> None:
        """Let a member join, or one that has left, at its present end or some time before."""
        if self.down_until or len(self.sources) > 6 or any(it.is_inside for it in self.server.mergings):
            return
        left = [it for it in self.sources if it.has_left]
        if left:
            source = self.random.choice(left)
            source.has_left = False
        else:
            source = self._source(f"m{len(self.sources)}")
            for _ in range(self.random.randrange(5)):
                source.write(self.random, self.now - self.random.randrange(SECOND))
            source.history.sort(key=lambda it: it.at)
            self.starts[source.name] = self.random.choice([0, len(source.history)]), 0
            self.sources.append(source)
        for it in self.server.mergings:
            it.join(source)

    def _who_goes(self) -> Source | None:
        """Return the member that holds the others by a large transaction, or any; None if there is only one."""
        stay = [it for it in self.sources if it.is_read]
        if self.down_until or len(stay) == 1:
            return None
        holds = [it for it in stay if it.name == self.server.merging.merger.streams]
        return self.random.choice(holds or stay)

    def _leave(self) -> None:
        source = self._who_goes()
        if source is None:
            return
        source.has_left = True
        for it in self.server.mergings:
            it.leave(source.name)

    def _remove(self) -> None:
        source = self._who_goes()
        if source is None:
            return
        source.is_removed = True
        for it in self.server.mergings:
            it.remove(source.name)

    def _heal(self) -> None:
        self.is_healing = True
        self.down_until = min(self.down_until, self.now)
        self.server.paused_until = min(self.server.paused_until, self.now)
        for source in self.sources:
            source.silent_until = min(source.silent_until, self.now)
        for consumer in self.consumers:
            consumer.paused_until = 0
        for merging in self.server.mergings:
            for reader in merging.readers.values():
                reader.down_until = min(reader.down_until, self.now)
