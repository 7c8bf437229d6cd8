"""Random histories of all kinds of clients, and of ranges, that share a full ring and a few catch-up readers.

Time passes in ticks of a second. In each, every client does what is its kind: it takes and confirms everything, does so
by a single call now and then, confirms a little now and then, takes and never confirms, confirms by position, or is
gone. Whatever the others are, a client that does its part gets every row, in order and soon, and every range is read.
Each goes from state to state (`sluice.store.states`) as `THEN` says and in no other way.
"""

import re
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sluice.protocol.content import Content
from sluice.protocol.gtid import MariadbGtidSet
from sluice.protocol.position import Position
from sluice.store.cursor import StoredClient, earliest
from sluice.store.cursors import Cursors
from sluice.store.patience import IDLE, TURN, Holder, Turns
from sluice.store.ring import Flag, Kind, Ring, Staging
from sluice.store.segment import SegmentWriter
from sluice.store.states import Ahead, Behind, CatchingUp, InRing, Meeting, Starting, State
from sluice.store.subscriber import Subscriber
from sluice.store.track import Track
from tests.effort import times
from tests.unit.test_ring_model import MEMORY, NAMES, SIZE, TABLES, Entry, compile_filter, index_of, place

DETACH_AFTER = 20.0
READERS = 2
CLIENTS = [1, 2, 3, 4, 5]
PATIENT = ["active", "by position", "polling"]
KINDS = [*PATIENT, "dribbling", "hoarding", "abandoned"]
RANGES = 3
SOON = 15 * (DETACH_AFTER + TURN)
"""Seconds within which a client that does its part gets on: each other one has kept it waiting once or twice."""


THEN: dict[type[State], set[type[State]]] = {
    Ahead: {InRing, Behind},
    InRing: {Behind},
    Behind: {Starting},
    Starting: {CatchingUp, Ahead},
    CatchingUp: {Meeting, Ahead},
    Meeting: {InRing, CatchingUp, Ahead},
}
"""Where there are readers, and the source loses nothing, no subscriber is ever gone."""


@pytest.fixture(autouse=True)
def changes(monkeypatch: pytest.MonkeyPatch) -> set[tuple[type[State], type[State]]]:
    """All changes from one state to another; each is as the table says."""
    seen: set[tuple[type[State], type[State]]] = set()
    become = Subscriber.become

    def watched(self: Subscriber, state: State) -> None:
        before, after = type(self.state), type(state)
        assert after in THEN[before], f"{before.__name__} becomes {after.__name__}"
        seen.add((before, after))
        become(self, state)

    monkeypatch.setattr(Subscriber, "become", watched)
    return seen


class FullError(Exception):
    """The put would wait."""


class History:
    """What the source has written."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.ended = [0]  # by index: the transactions that end before
        self.rows: dict[str, list[int]] = {text: [] for text in TABLES}  # by filter: the indexes of its rows

    def __len__(self) -> int:
        return len(self.entries)

    def append(self, kind: Kind, data: bytes = b"", table: int = 0) -> None:
        entry = Entry(data, kind, table)
        for text, wanted in TABLES.items():
            if table in wanted:
                self.rows[text].append(len(self))
        self.entries.append(entry)
        self.ended.append(self.ended[-1] + entry.boundary)

    def begin_of(self, index: int) -> int:
        """Return where the transaction of an entry begins."""
        while index and not self.entries[index - 1].boundary:
            index -= 1
        return index


class Feed:
    """Puts the entries of the source into a ring, from one of them on, as far as there is room."""

    def __init__(self, history: History, begin: int) -> None:
        self.history = history
        self.entries = history.entries
        self.base = begin  # index of the entry with sequence 0
        self.ring = Ring(SIZE, MEMORY, segment_size=4096)
        self.ring.on_put = self._check
        self.writer = SegmentWriter(self.ring.pool)
        self.staging = Staging()
        self.source = self.ring.sources.intern(("", "1"))
        self.file = self.ring.files.intern(("binlog.000001", 7))
        self.gtid = self.ring.gtid_sources.intern(("", (0, 1)))
        for number, name in NAMES.items():
            assert self.ring.tables.intern(("shop", name)) == number

    def _check(self) -> None:
        if self.ring.waiting:
            raise FullError

    def fill(self, most: int = 1 << 30) -> None:
        for _ in range(most):
            index = self.base + self.ring.next
            if not len(self.staging):
                for number in range(index, min(index + 4, len(self.entries))):
                    self._stage(number)
            if not len(self.staging) or (self.ring.waiting and not self._has_room(self.entries[index])):
                return
            try:
                self.ring.put(self.staging)
            except FullError:
                return

    def _has_room(self, entry: Entry) -> bool:
        return len(self.ring) < SIZE and (not entry.data or self.ring.bytes + len(entry.data) <= MEMORY)

    def _stage(self, index: int) -> None:
        entry = self.entries[index]
        self.writer.write(entry.data)
        ended = self.history.ended[index + 1]
        self.staging.add_entry(
            self.writer,
            entry.kind,
            table=entry.table,
            flags=Flag.BOUNDARY if entry.boundary else 0,
            source=self.source,
            file=self.file,
            begin=place(index).begin,
            next_file=self.file,
            next_begin=place(index + 1).begin,
            event_offset=place(index).begin,
            gtid=self.gtid if entry.boundary else 0,
            gtid_first=ended,
            gtid_last=ended,
        )


@dataclass
class Range:
    """What is read by a reader piece by piece, one per second."""

    pieces: int
    slow: bool  # in each turn its reader takes as long as it may to come to its place
    since: float  # when it got on last
    waited: int = 0  # seconds in this turn


@dataclass
class Client:
    """What a client knows, and what is expected of it: indexes into the list of all entries."""

    kind: str
    filter: str
    period: int  # seconds between two calls of one that polls
    got: int
    confirmed: int = 0
    restarted: bool = True  # the durable cursor may be before what was confirmed
    given: list[tuple[int, str]] = field(default_factory=list)  # ids and ends of batches that are not confirmed
    late: list[str] = field(default_factory=list)  # the same, of before a restart or a detachment
    since: float = 0.0  # when it got on last, or had nothing to do


class PatienceMachine(RuleBasedStateMachine):
    @initialize(sizes=st.lists(st.integers(1, 45), min_size=1, max_size=40), kinds=st.permutations(KINDS))
    def start(self, sizes: list[int], kinds: list[str]) -> None:
        """A history longer than the ring, a client at its end, and others anywhere before."""
        self.history = History()
        self.clients: dict[int, Client] = {}
        self.reading: dict[Holder, Range] = {}
        self.now = 1000.0
        self.open(1, [], 0)
        self.write(sizes, 20, 2)
        self.subscribe(0, "active", "", 1.0, 1)
        self.tend()
        for client_id, kind in enumerate(kinds[:3], 1):
            self.subscribe(client_id, kind, "", client_id / 4, 12 * client_id - 7)

    def open(self, epoch: int, stored: list[StoredClient], begin: int) -> None:
        self.epoch = epoch
        self.feed = Feed(self.history, begin)
        self.cursors = Cursors(
            self.feed.ring, epoch=epoch, compile_filter=compile_filter, detach_after=DETACH_AFTER, catches_up=True
        )
        self.turns = Turns(READERS, DETACH_AFTER)
        self.readers: dict[int, Feed] = {}
        self.reading.clear()
        for client in stored:
            self.cursors.restore(client, self.now)
        ended = self.history.ended[begin]
        self.cursors.begin(place(begin), MariadbGtidSet({0: {1: ended}} if ended else {}))

    # --- the source, the clock, the process --------------------------------------------------------------------------

    @rule(
        sizes=st.lists(st.integers(0, 45), min_size=1, max_size=5), length=st.integers(1, 120), table=st.integers(1, 3)
    )
    def write(self, sizes: list[int], length: int, table: int) -> None:
        """Write transactions of `sizes` rows, some larger than a ring, and ones that give no entry."""
        for size in sizes:
            if not size:
                self.history.append(Kind.ADVANCE)
                continue
            self.history.append(Kind.TRANSACTION_BEGIN, b"begin;")
            for number in range(size):
                of = table if number % 4 else 1
                self.history.append(Kind.ROW_DATA, b"%d:%d;" % (of, len(self.history)) + b"." * length, of)
            self.history.append(Kind.TRANSACTION_END, b"end;")
        self.tend()

    @rule(seconds=st.integers(1, 40))
    def time_passes(self, seconds: int) -> None:
        for _ in range(seconds):
            self.now += 1.0
            for client_id, client in self.clients.items():
                self.act(client_id, client)
            for who, range_ in list(self.reading.items()):
                self.read(who, range_)
            self.tend()

    @rule(seconds=st.integers(1, 10_000))
    def the_clock_goes_back(self, seconds: int) -> None:
        self.now -= seconds
        for client in self.clients.values():
            client.since -= seconds
        for range_ in self.reading.values():
            range_.since -= seconds

    @rule()
    def restart(self) -> None:
        stored = self.cursors.clients.stored()
        first = earliest([client.cursor for client in stored if client.cursor])
        begin = index_of(first.position) if first and first.position else self.feed.base
        for client in stored:
            if client.cursor is not None and client.cursor.position is not None:
                index, it = index_of(client.cursor.position), self.clients[client.client_id]
                assert not self.rows(it.filter, it.confirmed, index), "it is after what was not confirmed"
        for it in self.clients.values():
            it.restarted = True
            self.lose(it)
        self.feed.ring.close()
        self.open(self.epoch + 1, stored, begin)
        self.tend()

    def tend(self) -> None:
        """Do what a destination does when something was put, and now and then."""
        for _ in range(3):
            self.feed.fill()
            for reader in self.readers.values():
                reader.fill(2)
            self.cursors.advance(self.now)
        self.cursors.readers.take_turns(self.turns, self.now)
        for ended in self.turns.finished(self.now):
            if ended[0] == "ranges":
                self.turns.leave(ended)
        for client_id in self.readers.keys() - self.cursors.readers.catching_up:
            self.readers.pop(client_id).ring.close()
            self.turns.leave(("client", client_id))
        behind = self.cursors.readers.behind
        while (begun := self.turns.begin(self.now)) is not None:
            if begun[0] == "client" and begun[1] in behind:
                cursor = behind[begun[1]]
                assert cursor.position is not None
                begin = self.history.begin_of(index_of(cursor.position))
                reader = self.readers[begun[1]] = Feed(self.history, begin)
                track = Track(reader.ring)
                track.begin(place(begin))
                self.cursors.readers.start(begun[1], track)
            elif begun[0] == "client":
                self.turns.leave(begun)

    # --- the clients -------------------------------------------------------------------------------------------------

    @rule(
        client_id=st.sampled_from(CLIENTS),
        kind=st.sampled_from(KINDS),
        text=st.sampled_from(["", "one"]),
        start=st.floats(0, 1),
        period=st.integers(1, int(IDLE)),
    )
    def subscribe(self, client_id: int, kind: str, text: str, start: float, period: int) -> None:
        """A client comes, at a place that the ring holds, has left, or has not come to; or becomes another kind."""
        if client_id in self.clients:
            self.clients[client_id].kind = kind
            return
        index = int(start * len(self.history))
        self.cursors.subscribe(client_id, filter_text=text, start=place(index), now=self.now)
        self.clients[client_id] = Client(kind, text, period, index, index, since=self.now)

    @rule(client_id=st.sampled_from(CLIENTS), kind=st.sampled_from(KINDS))
    def become(self, client_id: int, kind: str) -> None:
        if client_id in self.clients:
            self.clients[client_id].kind = kind

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def unsubscribe(self, data: st.DataObject) -> None:
        client_id = data.draw(st.sampled_from(sorted(self.clients)))
        self.cursors.unsubscribe(client_id)
        self.cursors.clients.end_store(self.cursors.clients.take_changes(), durable=True)
        del self.clients[client_id]
        self.tend()

    @rule(number=st.integers(1, RANGES), pieces=st.sampled_from([1, 7, 60, 10_000]), slow=st.booleans())
    def ask_for_a_range(self, number: int, pieces: int, slow: bool) -> None:
        self.reading.setdefault(("ranges", number), Range(pieces, slow, self.now))

    def read(self, who: Holder, range_: Range) -> None:
        """A range waits for its turn, reads on, and is done. A slow one has to come to its place in each turn."""
        self.turns.ask(who, self.now)
        if not self.turns.has(who):
            range_.waited = 0
        elif range_.slow and range_.waited < DETACH_AFTER:
            range_.waited += 1
        else:
            self.turns.move(who, self.now)
            range_.pieces -= 1
            range_.since = self.now
            if not range_.pieces:
                self.turns.leave(who)
                del self.reading[who]

    def act(self, client_id: int, client: Client) -> None:
        match client.kind:
            case "active":
                while client.given or self.get(client_id, client, 7):
                    self.confirm(client_id, client)
            case "by position":
                self.lose_if_out(client_id, client)
                if not client.late or self.confirm_late(client_id, client):
                    while client.given or self.get(client_id, client, 7):
                        self.confirm_to(client_id, client)
            case "polling":
                if self.now % client.period == 0 and (client.given or self.get(client_id, client, 7)):
                    self.confirm(client_id, client)
            case "dribbling":
                if not client.given:
                    self.get(client_id, client, 1)
                if client.given and self.now % 3 == 0:
                    self.confirm(client_id, client)
            case "hoarding":
                self.get(client_id, client, 3)

    def get(self, client_id: int, client: Client, limit: int) -> bool:
        content = Content.CHANGES if client_id % 2 else Content.ENTRIES
        batch = self.cursors.get(client_id, max_entries=limit, content=content, now=self.now)
        if batch is None:
            self.lose_if_out(client_id, client)
            return False
        start, end = index_of(Position.parse(batch.from_)), index_of(Position.parse(batch.to))
        if start < client.got:
            self.lose(client)
        assert not self.rows(client.filter, client.got, start), "nothing is left out"
        found = [int(index) for index in re.findall(rb"\d:(\d+);", b"".join(batch.slices))]
        assert found == self.rows(client.filter, start, end)
        assert found or content is Content.ENTRIES
        if client.restarted:
            client.confirmed, client.restarted = min(client.confirmed, start), False
        assert all(index >= client.confirmed for index in found), "nothing that was confirmed comes again"
        client.got = end
        client.given.append((batch.batch_id, batch.to))
        client.late.clear()  # it comes again
        return True

    def lose_if_out(self, client_id: int, client: Client) -> None:
        """Notice that what was given is to be given again."""
        if client.given and not self.cursors.clients.outstanding(client_id):
            self.lose(client)

    def lose(self, client: Client) -> None:
        client.late += [end for _, end in client.given]
        client.given.clear()
        client.got = client.confirmed

    def confirm(self, client_id: int, client: Client) -> None:
        if not self.cursors.clients.outstanding(client_id):
            self.lose(client)
            return
        batch_id, to = client.given.pop(0)
        self.cursors.ack(client_id, batch_id, now=self.now)
        self.confirmed(client, to)

    def confirm_to(self, client_id: int, client: Client) -> None:
        to = client.given[-1][1]
        client.given.clear()
        assert self.cursors.ack_to(client_id, Position.parse(to), now=self.now)
        self.confirmed(client, to)

    def confirm_late(self, client_id: int, client: Client) -> bool:
        """Confirm by its position what was given before a restart or a detachment; False while that cannot be."""
        if not self.cursors.ack_to(client_id, Position.parse(client.late[-1]), now=self.now):
            return False
        self.confirmed(client, client.late[-1])
        client.late.clear()
        return True

    def confirmed(self, client: Client, to: str) -> None:
        client.confirmed = max(client.confirmed, index_of(Position.parse(to)))
        client.got = max(client.got, client.confirmed)
        client.since = self.now

    def rows(self, text: str, start: int, stop: int) -> list[int]:
        """The indexes of the rows that a filter lets through."""
        found = self.history.rows[text]
        return found[bisect_left(found, start) : bisect_left(found, stop)]

    # --- what always holds -------------------------------------------------------------------------------------------

    @invariant()
    def whoever_does_its_part_gets_on(self) -> None:
        for client_id, client in self.clients.items():
            if client.kind not in PATIENT or not self.rows(client.filter, client.confirmed, 1 << 30):
                client.since = self.now
            assert self.now - client.since <= SOON, self.cursors.status(client_id)
        for who, range_ in self.reading.items():
            assert self.now - range_.since <= SOON, who

    @invariant()
    def every_client_has_a_status(self) -> None:
        for client_id in self.clients:
            status = self.cursors.status(client_id)
            assert status.state in ("attached", "ahead", "catching-up")
            self.cursors.available(client_id)

    @invariant()
    def readers_are_few(self) -> None:
        assert len(self.readers) <= READERS
        assert len(self.readers) + sum(map(self.turns.has, self.reading)) <= READERS

    @invariant()
    def bounds_are_kept(self) -> None:
        for ring in (self.feed.ring, *(reader.ring for reader in self.readers.values())):
            assert len(ring) <= SIZE
            assert ring.bytes <= MEMORY

    def teardown(self) -> None:
        """In the end a client that does its part has everything, and none uses a reader that has gone."""
        if not hasattr(self, "turns"):
            return

        def done() -> bool:
            return not any(
                self.rows(client.filter, client.confirmed, len(self.history))
                for client in self.clients.values()
                if client.kind in PATIENT
            )

        for client in self.clients.values():  # it has got on; to have everything might take it hours
            if client.kind == "polling":
                client.kind = "active"
        self.pass_until(done, SOON + 2 * DETACH_AFTER * (1 + len(self.history) // SIZE))
        assert done()
        for client in self.clients.values():
            client.kind = "abandoned"
        for range_ in self.reading.values():
            range_.pieces = 1
        self.pass_until(lambda: not self.readers, DETACH_AFTER + IDLE + TURN)
        assert not self.readers, "a reader is kept for a client that is gone"

    def pass_until(self, condition: Callable[[], bool], seconds: float) -> None:
        while seconds > 0 and not condition():
            self.time_passes(1)
            self.whoever_does_its_part_gets_on()
            seconds -= 1


PatienceMachine.TestCase.settings = settings(max_examples=times(20, 60), stateful_step_count=30, deadline=None)
TestPatience = PatienceMachine.TestCase


@pytest.mark.parametrize("slow", [False, True])
def test_clients_that_poll_rarely_get_on_among_ranges_that_always_want_a_reader(
    slow: bool, changes: set[tuple[type[State], type[State]]]
) -> None:
    machine = PatienceMachine()
    machine.start(sizes=[20] * 40, kinds=["polling"] * 3)
    for number in range(1, RANGES + 1):
        machine.ask_for_a_range(number=number, pieces=10_000, slow=slow)
    machine.pass_until(lambda: False, 2 * SOON)
    turn = {(Ahead, Behind), (Behind, Starting), (Starting, CatchingUp), (CatchingUp, Ahead)}
    assert changes >= {*turn, (Ahead, InRing), (InRing, Behind)}
