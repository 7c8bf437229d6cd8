"""Random histories of three subscribers on a small ring, compared with a plain list of everything that was put."""

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sluice.protocol.content import Content
from sluice.protocol.errors import AckOutOfOrderError, NotSubscribedError, UnknownBatchError
from sluice.protocol.gtid import MariadbGtidSet
from sluice.protocol.position import Position
from sluice.store.batch import Batch
from sluice.store.cursor import StoredClient, earliest
from sluice.store.cursors import Cursors
from sluice.store.moves import MOST_MOVES
from sluice.store.ring import Flag, Kind, Ring, Staging
from sluice.store.segment import SegmentWriter
from sluice.store.track import TableFilter
from tests.effort import times

SIZE = 32
MEMORY = 3000
CLIENTS = st.sampled_from([1, 2, 3])
TABLES = {"": {1, 2, 3}, "one": {1}, "two,three": {2, 3}, "none": set()}
NAMES = {1: "one", 2: "two", 3: "three"}


def compile_filter(text: str) -> TableFilter:
    names = text.split(",")
    return lambda _schema, table: table in names


def place(index: int) -> Position:
    return Position("1", "binlog.000001", 7, 4 + 10 * index, 0)


def index_of(position: Position) -> int:
    return (position.begin - 4) // 10


@dataclass(frozen=True)
class Entry:
    data: bytes
    kind: Kind
    table: int

    @property
    def boundary(self) -> bool:
        return self.kind in (Kind.TRANSACTION_END, Kind.ADVANCE)


@dataclass
class Outstanding:
    batch: Batch
    indexes: list[int]

    @property
    def end(self) -> int:
        return index_of(Position.parse(self.batch.to))


@dataclass
class Client:
    """What a subscriber is expected to be: indexes into the list of all entries."""

    filter: str
    get: int
    ack: int
    marks: list[Outstanding] = field(default_factory=list)
    overlapping: bool = False  # after the rollback of one batch, until its successors are gone


class RingMachine(RuleBasedStateMachine):
    entries: list[Entry]

    @initialize()
    def start(self) -> None:
        self.entries = []
        self.in_transaction = False
        self.clients: dict[int, Client] = {}
        self.old_ids: set[int] = set()
        self.unstored: set[int] = set()
        self.now = 0.0
        self.open(1, {}, 0)

    def open(self, epoch: int, stored: dict[int, StoredClient], begin: int) -> None:
        self.epoch = epoch
        self.ring = Ring(SIZE, MEMORY, segment_size=4096)
        self.writer = SegmentWriter(self.ring.pool)
        self.staging = Staging()
        self.cursors = Cursors(self.ring, epoch=epoch, compile_filter=compile_filter)
        for client in stored.values():
            self.cursors.restore(client, self.now)
        self.base = begin  # index of the entry with sequence 0
        self.cursors.begin(place(begin), self.executed(begin))

    def executed(self, index: int) -> MariadbGtidSet:
        ended = sum(entry.boundary for entry in self.entries[:index])
        return MariadbGtidSet({0: {1: ended}} if ended else {})

    @property
    def next(self) -> int:
        """Index after the last entry in the ring."""
        return self.base + self.ring.next

    def visible(self, start: int, wanted: set[int]) -> list[int]:
        """Indexes of what a subscriber with this filter gets from ``start`` on."""
        found: list[int] = []
        stored = self.entries[: self.next]
        everything = wanted == {1, 2, 3}
        index = start
        while index < len(stored):
            entry = stored[index]
            if entry.kind == Kind.TRANSACTION_BEGIN and not everything:
                follower = next(
                    (
                        i
                        for i in range(index + 1, len(stored))
                        if stored[i].data and (stored[i].table or 0) in wanted | {0}
                    ),
                    None,
                )
                if follower is None:
                    break
                if stored[follower].kind == Kind.TRANSACTION_END and follower > index + 1:
                    index = follower + 1
                    continue
            if entry.data and (entry.table == 0 or entry.table in wanted):
                found.append(index)
            index += 1
        return found

    # --- the source --------------------------------------------------------------------------------------------------

    def room(self) -> int:
        return SIZE - len(self.ring)

    @rule(kinds=st.lists(st.sampled_from([0, 1, 2, 3, 8, 9]), min_size=1, max_size=12), length=st.integers(1, 60))
    def write(self, kinds: list[int], length: int) -> None:
        """0 ends a transaction, 1 to 3 change a table, 8 begins and ends, 9 is a transaction that gave no entry."""
        if self.next < len(self.entries):
            return
        for kind in kinds:
            if self.in_transaction:
                if kind in (0, 8):
                    self.entries.append(Entry(b"end%d;" % len(self.entries), Kind.TRANSACTION_END, 0))
                    self.in_transaction = False
                elif kind != 9:
                    self.entries.append(
                        Entry(b"%d:%d;" % (kind, len(self.entries)) + b"." * length, Kind.ROW_DATA, kind)
                    )
            elif kind == 9:
                self.entries.append(Entry(b"", Kind.ADVANCE, 0))
            else:
                self.entries.append(Entry(b"begin%d;" % len(self.entries), Kind.TRANSACTION_BEGIN, 0))
                self.in_transaction = True
        self.fill()

    @rule()
    def fill(self) -> None:
        """Put what was written and not yet stored, as far as there is room for it."""
        source = self.ring.sources.intern(("", "1"))
        file = self.ring.files.intern(("binlog.000001", 7))
        gtid = self.ring.gtid_sources.intern(("", (0, 1)))
        for number, name in NAMES.items():
            assert self.ring.tables.intern(("shop", name)) == number
        room = self.room()
        size = self.ring.bytes
        for index in range(self.next, len(self.entries)):
            entry = self.entries[index]
            size += len(entry.data)
            if not room or size > MEMORY:
                break
            room -= 1
            self.writer.write(entry.data)
            ended = sum(entry.boundary for entry in self.entries[: index + 1])
            self.staging.add_entry(
                self.writer,
                entry.kind,
                table=entry.table,
                rows=int(entry.kind is Kind.ROW_DATA),
                flags=Flag.BOUNDARY if entry.boundary else 0,
                source=source,
                file=file,
                begin=place(index).begin,
                next_file=file,
                next_begin=place(index + 1).begin,
                event_offset=place(index).begin,
                gtid=gtid if entry.boundary else 0,
                gtid_first=ended,
                gtid_last=ended,
            )
        assert self.ring.put(self.staging)
        self.now += 1
        self.cursors.advance(self.now)

    # --- the subscribers ---------------------------------------------------------------------------------------------

    @rule(client_id=CLIENTS, text=st.sampled_from(sorted(TABLES)), latest=st.booleans())
    def subscribe(self, client_id: int, text: str, latest: bool) -> None:
        first, end = self.base + self.ring.first, self.next
        self.cursors.subscribe(client_id, filter_text=text, start="latest" if latest else "earliest", now=self.now)
        client = self.clients.get(client_id)
        if client is not None:
            # What the old filter has passed over stays passed over.
            status = self.cursors.status(client_id)
            acked, got = (index_of(Position.parse(place)) for place in (status.acked, status.got))
            wanted = TABLES[client.filter]
            if not client.overlapping:
                assert all(index >= acked for index in self.visible(client.ack, wanted))
                assert all(index >= got for index in self.visible(client.get, wanted))
            client.ack, client.get, client.filter = max(client.ack, acked), max(client.get, got), text
        else:
            start = end if latest else first
            self.clients[client_id] = Client(text, start, start)

    @rule(client_id=CLIENTS)
    def unsubscribe(self, client_id: int) -> None:
        if client_id in self.clients:
            self.cursors.unsubscribe(client_id)
            self.unstored.add(client_id)
            self.old_ids |= {mark.batch.batch_id for mark in self.clients.pop(client_id).marks}
        else:
            with pytest.raises(NotSubscribedError):
                self.cursors.unsubscribe(client_id)

    @rule(client_id=CLIENTS, share=st.floats(0, 1))
    def seek(self, client_id: int, share: float) -> None:
        client = self.clients.get(client_id)
        if client is None:
            return
        places = [self.base + self.ring.first, self.next]
        places += [i + 1 for i in range(*places) if self.entries[i].boundary]
        places = [it for it in places if it == 0 or self.entries[it - 1].boundary]
        if not places:
            return
        index = places[int(share * (len(places) - 1))]
        acked = index_of(Position.parse(self.cursors.status(client_id).acked or str(place(client.ack))))
        jumps = any(it < index for it in self.visible(acked, TABLES[client.filter]))
        known = self.cursors.gate.moves.get(client_id, ())
        self.cursors.places.seek(client_id, place(index), now=self.now)
        assert len(self.cursors.gate.moves.get(client_id, ())) == min(len(known) + jumps, MOST_MOVES)
        if jumps:
            self.unstored.add(client_id)
        self.old_ids |= {mark.batch.batch_id for mark in client.marks}
        self.clients[client_id] = Client(client.filter, index, index)

    @rule(durable=st.booleans())
    def store(self, durable: bool) -> None:
        self.cursors.clients.end_store(self.cursors.clients.take_changes(), durable=durable)
        if durable:
            self.unstored.clear()

    def shown(self, index: int, content: Content) -> bool:
        """Whether a format of that content shows an entry."""
        return content is Content.ENTRIES or self.entries[index].kind is Kind.ROW_DATA

    @rule(client_id=CLIENTS, limit=st.integers(1, 8), content=st.sampled_from(Content))
    def get(self, client_id: int, limit: int, content: Content) -> None:
        client = self.clients.get(client_id)
        if client is None:
            with pytest.raises(NotSubscribedError):
                self.cursors.get(client_id, now=self.now)
            return
        visible = self.visible(client.get, TABLES[client.filter])
        pieces = [visible[at : at + limit] for at in range(0, len(visible), limit)]
        expected = next((it for it in pieces if any(self.shown(index, content) for index in it)), [])
        batch = self.cursors.get(client_id, max_entries=limit, content=content, now=self.now)
        if batch is None:
            assert expected == [] or client_id in self.unstored
            if client_id not in self.unstored:
                self.pass_over(client_id, client, visible)
            return
        assert client_id not in self.unstored, "nothing is given before the jump before it is stored"
        assert b"".join(batch.slices) == b"".join(self.entries[index].data for index in expected)
        assert batch.entries == len(expected)
        assert batch.batch_id // 10**9 == self.epoch
        assert batch.batch_id not in self.old_ids
        mark = Outstanding(batch, expected)
        assert index_of(Position.parse(batch.from_)) <= expected[0] <= expected[-1] < mark.end
        following = self.visible(expected[-1] + 1, TABLES[client.filter])
        assert all(index >= mark.end for index in following), "only what is not wanted is passed over"
        client.marks.append(mark)
        client.get = mark.end

    def pass_over(self, client_id: int, client: Client, unseen: list[int]) -> None:
        """Move on over what the format does not show: it is confirmed with the marks before it, or at once."""
        status = self.cursors.status(client_id)
        if status.got:
            client.get = max(client.get, index_of(Position.parse(status.got)))
        left = [index for index in unseen if index >= client.get]
        assert all(self.entries[index].kind is Kind.TRANSACTION_BEGIN for index in left[:1])
        assert len(left) <= 1, "only a BEGIN at the end waits"
        if not client.marks:
            client.ack = max(client.ack, client.get)

    def confirm(self, client: Client, mark: Outstanding) -> None:
        self.old_ids.add(mark.batch.batch_id)
        client.marks.remove(mark)
        client.ack = max(client.ack, mark.end)
        client.get = max(client.get, client.ack)
        if not client.marks:
            client.ack = client.get
        client.overlapping = client.overlapping and bool(client.marks)

    @rule(client_id=CLIENTS)
    def ack(self, client_id: int) -> None:
        client = self.clients.get(client_id)
        if client and client.marks:
            self.cursors.ack(client_id, client.marks[0].batch.batch_id, now=self.now)
            self.confirm(client, client.marks[0])

    @rule(client_id=CLIENTS, choice=st.integers(0, 3), inside=st.booleans())
    def ack_to(self, client_id: int, choice: int, inside: bool) -> None:
        client = self.clients.get(client_id)
        if not client or len(client.marks) <= choice or client.overlapping:
            return
        mark = client.marks[choice]
        if inside and len(mark.indexes) > 1:
            self.cursors.ack_to(client_id, place(mark.indexes[1]), now=self.now)
            for earlier in client.marks[:choice]:
                self.confirm(client, earlier)
            client.ack = max(client.ack, mark.indexes[1])
        else:
            self.cursors.ack_to(client_id, Position.parse(mark.batch.to), now=self.now)
            for earlier in client.marks[: choice + 1]:
                self.confirm(client, earlier)

    @rule(client_id=CLIENTS)
    def ack_out_of_order(self, client_id: int) -> None:
        client = self.clients.get(client_id)
        if client and len(client.marks) > 1:
            with pytest.raises(AckOutOfOrderError):
                self.cursors.ack(client_id, client.marks[-1].batch.batch_id, now=self.now)

    @precondition(lambda self: self.old_ids)
    @rule(client_id=CLIENTS, data=st.data())
    def ack_of_what_is_gone(self, client_id: int, data: st.DataObject) -> None:
        if client_id in self.clients:
            batch_id = data.draw(st.sampled_from(sorted(self.old_ids)))
            with pytest.raises(UnknownBatchError):
                self.cursors.ack(client_id, batch_id, now=self.now)

    @rule(client_id=CLIENTS)
    def rollback(self, client_id: int) -> None:
        client = self.clients.get(client_id)
        if client:
            self.cursors.rollback(client_id, now=self.now)
            self.old_ids |= {mark.batch.batch_id for mark in client.marks}
            client.marks.clear()
            client.get = client.ack
            client.overlapping = False

    @rule(client_id=CLIENTS)
    def rollback_of_one(self, client_id: int) -> None:
        client = self.clients.get(client_id)
        if client and client.marks:
            mark = client.marks.pop(0)
            self.cursors.rollback(client_id, mark.batch.batch_id, now=self.now)
            self.old_ids.add(mark.batch.batch_id)
            client.get = client.ack
            client.overlapping = bool(client.marks)

    # --- the process -------------------------------------------------------------------------------------------------

    @rule()
    def restart(self) -> None:
        """A new life begins at the earliest stored cursor and goes on from there."""
        stored = {client.client_id: client for client in self.cursors.clients.stored()}
        assert stored.keys() == self.clients.keys()
        cursors = [client.cursor for client in stored.values() if client.cursor]
        first = earliest(cursors)
        begin = index_of(first.position) if first and first.position else self.base + self.ring.first
        self.ring.close()
        self.unstored.clear()
        self.open(self.epoch + 1, stored, begin)
        for client_id, client in self.clients.items():
            cursor = stored[client_id].cursor
            resumed = index_of(cursor.position) if cursor and cursor.position else begin
            self.old_ids |= {mark.batch.batch_id for mark in client.marks}
            self.clients[client_id] = Client(client.filter, resumed, resumed)
        self.fill()

    # --- what always holds -------------------------------------------------------------------------------------------

    @invariant()
    def the_bounds_are_kept(self) -> None:
        assert len(self.ring) <= SIZE
        assert self.ring.bytes <= MEMORY

    @invariant()
    def nothing_needed_is_freed(self) -> None:
        for client in self.clients.values():
            needed = self.visible(client.ack, TABLES[client.filter])
            assert not needed or needed[0] >= self.base + self.ring.first

    @invariant()
    def what_nobody_needs_is_freed(self) -> None:
        self.cursors.advance(self.now)
        served = [
            client for client_id, client in self.clients.items() if self.cursors.status(client_id).state != "ahead"
        ]
        if served and all(client.ack >= self.next for client in served):
            assert len(self.ring) == 0

    @invariant()
    def cursors_stand_at_boundaries_and_lose_nothing(self) -> None:
        for client_id, client in self.clients.items():
            stored = next(it for it in self.cursors.clients.stored() if it.client_id == client_id)
            if stored.cursor is None or stored.cursor.position is None:
                continue
            index = index_of(stored.cursor.position)
            assert stored.cursor.gtid == str(self.executed(index))
            wanted = TABLES[client.filter]
            if not client.overlapping:
                assert all(unacked >= index for unacked in self.visible(client.ack, wanted))
            boundaries = [i + 1 for i in range(self.base, min(client.ack, self.next)) if self.entries[i].boundary]
            assert not boundaries or index >= boundaries[-1]


RingMachine.TestCase.settings = settings(max_examples=times(30, 150), stateful_step_count=60, deadline=None)
TestRing = RingMachine.TestCase
