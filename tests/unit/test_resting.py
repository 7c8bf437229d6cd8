"""Clients that rest: they are roused for all that a get would give them, and not for what others want."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from sluice.instance.conditions.rows import RowConditions
from sluice.protocol.canal.entry_pb2 import Entry, EntryType, EventType, RowChange
from sluice.protocol.errors import FilterError
from sluice.protocol.position import Position
from sluice.store import retention as module
from sluice.store.batch import LateRows, RangeLimits
from sluice.store.cursor import Cursor, StoredClient
from sluice.store.cursors import Cursors
from sluice.store.moves import Move, MoveState, Reason
from sluice.store.ring import Flag, Kind, Ring, Staging
from sluice.store.segment import SegmentWriter
from sluice.store.snapshot import TableProgress
from sluice.store.track import TableFilter
from tests.effort import times
from tests.waiting import eventually

CLIENTS = st.sampled_from(range(1, 7))
NAMES = ("one", "two", "three", "four")
CONDITION = "shop.five: id = 1"
"""Lets all pass that is put here, once it is judged."""
FILTERS = ("one", "two,three", "four", "none", "one,four", "")


def compile_filter(text: str) -> TableFilter:
    if text not in COMPILED:
        names = text.split(",")
        COMPILED[text] = lambda _schema, table: table in names
    return COMPILED[text]


COMPILED: dict[str, TableFilter] = {}


class Stream:
    """A ring that transactions are put into, and its subscribers."""

    def __init__(self, size: int = 4096) -> None:
        self.ring = Ring(size, size * 1024)
        self.writer, self.staging, self.place = SegmentWriter(self.ring.pool), Staging(), 4
        self.cursors = Cursors(self.ring, epoch=1, compile_filter=compile_filter, compile_where=RowConditions)
        self.cursors.begin(Position("1", "binlog.000001", 7, 4, 0), None)

    def stage(self, kind: Kind, table: str = "") -> None:
        """Stage an entry; one without bytes for `ADVANCE`."""
        ring = self.ring
        if kind is not Kind.ADVANCE:
            entry = Entry(entryType=EntryType.ROWDATA)
            entry.header.schemaName, entry.header.tableName = "shop", table
            entry.storeValue = RowChange(eventType=EventType.INSERT).SerializeToString()
            self.writer.write_framed(entry.SerializeToString())
        file = ring.files.intern(("binlog.000001", 7))
        self.staging.add_entry(
            self.writer,
            kind,
            table=ring.tables.intern(("shop", table)) if table else 0,
            rows=int(kind is Kind.ROW_DATA),
            flags=Flag.BOUNDARY if kind in (Kind.TRANSACTION_END, Kind.ADVANCE, Kind.DDL) else 0,
            source=ring.sources.intern(("", "1")),
            file=file,
            begin=self.place,
            next_file=file,
            next_begin=self.place + 10,
        )
        self.place += 10

    def transaction(self, *tables: str) -> None:
        """Put a transaction with a row of each table."""
        self.stage(Kind.TRANSACTION_BEGIN)
        for table in tables:
            self.stage(Kind.ROW_DATA, table)
        self.stage(Kind.TRANSACTION_END)
        assert self.ring.put(self.staging)


def resting(stream: Stream, *filters: str) -> list[int]:
    """Subscribe a client with each filter, and let it wait for what comes."""
    for client_id, text in enumerate(filters):
        stream.cursors.subscribe(client_id, filter_text=text, start="latest", now=0)
        assert stream.cursors.get(client_id, now=0) is None
        assert stream.cursors.rest(client_id)
    return list(range(len(filters)))


def roused(stream: Stream) -> set[int]:
    stream.cursors.advance(1.0)
    return stream.cursors.resting.take_roused()


def test_a_put_rouses_those_that_want_its_tables() -> None:
    stream = Stream()
    stream.transaction("one", "two", "three", "four")
    resting(stream, "one", "two,three", "four", "one,four", "none")
    stream.transaction("one", "three")
    assert roused(stream) == {0, 1, 3}
    stream.transaction("two")
    assert roused(stream) == set(), "each is named once"
    stream.transaction("four")
    assert roused(stream) == {2}


def test_a_table_that_is_new_rouses_all_whose_filters_do_not_know_it() -> None:
    stream = Stream()
    stream.transaction("one")
    first, second = resting(stream, "none", "two")
    stream.transaction("two")
    assert roused(stream) == {first, second}
    assert stream.cursors.get(first, now=1) is None
    assert stream.cursors.get(second, now=1) is not None
    assert stream.cursors.rest(first)
    stream.transaction("two")
    assert roused(stream) == set()


def test_the_end_of_a_transaction_rouses_whoever_has_a_part_of_it() -> None:
    stream = Stream()
    stream.transaction("one", "two")
    part, none = resting(stream, "one", "none")
    stream.stage(Kind.TRANSACTION_BEGIN)
    stream.stage(Kind.ROW_DATA, "one")
    assert stream.ring.put(stream.staging)
    assert roused(stream) == {part}
    assert stream.cursors.get(part, now=1) is not None
    assert not stream.cursors.rest(part), "another one waits for the transaction as a whole"
    stream.stage(Kind.TRANSACTION_END)
    assert stream.ring.put(stream.staging)
    assert roused(stream) == set()
    assert stream.cursors.get(part, now=1) is not None
    assert stream.cursors.get(none, now=1) is None


def test_one_that_came_into_the_midst_of_a_transaction_rests_by_itself_only() -> None:
    stream = Stream()
    stream.transaction("one", "two")
    resting(stream, "one")
    stream.stage(Kind.TRANSACTION_BEGIN)
    stream.stage(Kind.ROW_DATA, "two")
    assert stream.ring.put(stream.staging)
    assert roused(stream) == set()
    stream.cursors.subscribe(7, filter_text="one", start="latest", now=0)
    assert stream.cursors.get(7, now=0) is None
    assert not stream.cursors.rest(7), "it is given the END, and the other one is not"
    stream.cursors.unsubscribe(0)
    assert stream.cursors.rest(7)
    stream.stage(Kind.TRANSACTION_END)
    assert stream.ring.put(stream.staging)
    assert roused(stream) == {0, 7}
    assert stream.cursors.get(7, now=0) is not None


def test_a_full_ring_rouses_all() -> None:
    stream = Stream(4)
    stream.transaction("one", "two")
    (client,) = resting(stream, "one")
    stream.cursors.advance(0.0)
    stream.stage(Kind.TRANSACTION_BEGIN)
    for _ in range(6):
        stream.stage(Kind.ROW_DATA, "two")
    with ThreadPoolExecutor(1) as thread:
        putting = thread.submit(stream.ring.put, stream.staging)
        try:
            eventually(lambda: stream.ring.waiting)
            assert roused(stream) == {client}
            assert stream.cursors.get(client, now=1) is not None, "the BEGIN, so that there is room"
        finally:
            stream.ring.close()
        assert putting.result() is False


@pytest.mark.parametrize(
    "change", ["select", "seek", "session", "unsubscribe", "fall_out", "rollback", "expire", "go_back"]
)
def test_what_changes_about_a_client_rouses_it_alone(change: str) -> None:
    stream, now = Stream(), 2.0
    stream.transaction("one", "two")
    changed, _ = resting(stream, "one", "one")
    cursors = stream.cursors
    if change == "select":
        cursors.subscribe(changed, filter_text="two", now=now)
    elif change == "seek":
        cursors.places.seek(changed, "latest", now=now)
    elif change == "session":
        cursors.clients.open_session(changed, now)
    elif change == "unsubscribe":
        cursors.unsubscribe(changed)
    elif change == "fall_out":
        cursors.fall_out(changed, FilterError("refused"))
    elif change == "rollback":
        cursors.rollback(changed, now=now)
    elif change == "go_back":
        cursors.go_back(changed, now=now)
    else:
        cursors.subscribe(changed, filter_text="one", expire_after=1, now=now)
    assert cursors.resting.take_roused() == {changed}


def test_one_that_rests_may_be_let_rest_once_more() -> None:
    stream = Stream()
    stream.transaction("one")
    (client,) = resting(stream, "one")
    assert stream.cursors.rest(client)
    stream.transaction("one")
    assert roused(stream) == {client}


def test_another_one_rests_after_what_nobody_has_looked_at_yet() -> None:
    stream = Stream()
    stream.transaction("one", "two")
    (first,) = resting(stream, "one")
    stream.transaction("two")
    stream.cursors.subscribe(7, filter_text="one", start="latest", now=0)
    assert stream.cursors.rest(7)
    assert roused(stream) == set()
    stream.transaction("one")
    assert roused(stream) == {first, 7}


def test_one_that_leaves_does_not_keep_others_with_its_filter_from_being_roused() -> None:
    stream = Stream()
    stream.transaction("one")
    left, stays = resting(stream, "one", "one")
    stream.cursors.resting.leave(left)
    stream.transaction("one")
    assert roused(stream) == {stays}


def test_one_that_looks_when_all_are_roused_is_not_roused_again_by_what_others_wait_for() -> None:
    stream = Stream()
    stream.transaction("one", "two")
    looks, waits = resting(stream, "one", "two")
    stream.cursors.resting.rouse_all()
    assert stream.cursors.resting.take_roused() == {looks, waits}
    assert stream.cursors.rest(waits)
    stream.transaction("one")
    assert roused(stream) == set()
    stream.transaction("two")
    assert roused(stream) == {waits}


def test_one_that_asks_for_a_range_from_further_back_is_roused_for_what_follows_that() -> None:
    stream = Stream()
    stream.cursors.subscribe(1, filter_text="one", start="latest", now=0)
    begin = stream.cursors.position_before(0)
    assert begin is not None
    for _ in range(2):
        stream.transaction("one")
        stream.cursors.advance(0.0)
        assert stream.cursors.get(1, now=0) is not None
    assert stream.cursors.rest(1)
    assert stream.cursors.ranges.mark(1, begin, RangeLimits(rows=1), now=1) is not None
    assert stream.cursors.resting.take_roused() == {1}
    assert stream.cursors.get(1, now=1) is not None


def test_one_that_skips_what_comes_next_is_roused() -> None:
    stream = Stream()
    (client,) = resting(stream, "one")
    stream.transaction("two")
    place = stream.cursors.position_before(1)
    assert place is not None
    stream.cursors.places.skip(client, place, now=1)
    assert stream.cursors.resting.take_roused() == {client}


def test_one_that_acks_a_place_inside_a_transaction_gets_the_end_of_that() -> None:
    stream = Stream()
    stream.transaction("one", "two")
    (client,) = resting(stream, "one")
    stream.stage(Kind.TRANSACTION_BEGIN)
    stream.stage(Kind.ROW_DATA, "two")
    assert stream.ring.put(stream.staging)
    assert roused(stream) == set()
    place = stream.cursors.position_before(stream.ring.next)
    assert place is not None
    assert stream.cursors.ack_to(client, place, now=1)
    stream.stage(Kind.TRANSACTION_END)
    assert stream.ring.put(stream.staging)
    assert roused(stream) == {client}
    assert stream.cursors.get(client, now=1) is not None


def test_one_of_an_earlier_life_that_acks_a_place_inside_a_transaction_gets_the_end_of_that() -> None:
    stream = Stream()
    begin = stream.cursors.position_before(0)
    assert begin is not None
    stream.cursors.restore(StoredClient(1, "one", Cursor.at(begin)), 0)
    stream.transaction("two")
    stream.stage(Kind.TRANSACTION_BEGIN)
    stream.stage(Kind.ROW_DATA, "two")
    assert stream.ring.put(stream.staging)
    assert stream.cursors.rest(1)
    place = stream.cursors.position_before(stream.ring.next)
    assert place is not None
    assert stream.cursors.ack_to(1, place, now=1)
    stream.stage(Kind.TRANSACTION_END)
    assert stream.ring.put(stream.staging)
    assert roused(stream) == {1}
    assert stream.cursors.get(1, now=1) is not None


def test_one_that_skips_a_transaction_that_it_has_got_is_given_those_after_it_again() -> None:
    stream = Stream()
    stream.cursors.subscribe(1, filter_text="one", start="latest", now=0)
    begin = stream.cursors.position_before(0)
    assert begin is not None
    for _ in range(2):
        stream.transaction("one")
        assert stream.cursors.get(1, now=0) is not None
    assert stream.cursors.rest(1)
    stream.cursors.places.skip(1, begin, now=1)
    assert stream.cursors.resting.take_roused() == {1}


def test_one_whose_session_gives_up_a_get_is_roused() -> None:
    stream = Stream()
    stream.cursors.subscribe(1, filter_text="one", now=0)
    token = stream.cursors.clients.open_session(1, 0)
    stream.transaction("one")
    assert stream.cursors.get(1, now=0, session=token) is not None
    assert stream.cursors.rest(1)
    stream.cursors.resting.take_roused()
    assert stream.cursors.clients.check(1, f"{token}.1") is not None
    assert stream.cursors.resting.take_roused() == {1}
    assert stream.cursors.get(1, now=0, session=f"{token}.1") is not None


@pytest.mark.parametrize("why", ["late", "snapshot"])
def test_one_does_not_rest_that_rows_are_to_be_given_to_beside_the_stream(why: str) -> None:
    stream = Stream()
    stream.transaction("one")
    (client,) = resting(stream, "one")
    stream.cursors.resting.leave(client)
    if why == "snapshot":
        stream.cursors.snapshots.add(client, [TableProgress("shop", "one")], 0)
    else:
        place = stream.cursors.position_before(1)
        assert place is not None
        assert stream.cursors.snapshots.give_late(client, LateRows(place, "shop", "one", b"", 1, 0, b""))
    assert not stream.cursors.rest(client)


def test_one_does_not_rest_before_its_condition_is_judged_of_what_is_there() -> None:
    stream = Stream()
    stream.cursors.subscribe(1, filter_text="one", where=CONDITION, start="latest", now=0)
    assert stream.cursors.rest(1)
    stream.transaction("one")
    assert roused(stream) == {1}
    assert stream.cursors.get(1, now=0) is None
    assert not stream.cursors.rest(1)


def test_one_does_not_rest_that_may_be_told_of_a_gap_or_is_given_all_tables() -> None:
    stream = Stream()
    stream.transaction("one")
    told, everything = resting(stream, "one"), 7
    cursors = stream.cursors
    cursors.subscribe(everything, start="latest", now=0)
    assert not cursors.rest(everything)
    assert not cursors.rest(8), "it has not subscribed"
    for client in told:
        cursors.resting.leave(client)
        cursors.gate.jump(client, Move(Reason.PURGE, "a", "b", "w", 1, MoveState.OPEN))
        assert not cursors.rest(client), "it is not stored"
        cursors.gate.take_changes()
        cursors.gate.end_store(durable=True)
        assert not cursors.rest(client), "it is to be told"
        cursors.gate.confirm(client)
        assert cursors.rest(client)
        cursors.gate.jump(client, Move(Reason.SEEK, "a", "b", "w", 1))
        cursors.resting.leave(client)
        assert not cursors.rest(client), "that it was moved is not stored"
    stream.ring.close()
    assert not cursors.rest(told[0])


def test_one_that_no_longer_may_is_roused_when_all_are_looked_at() -> None:
    stream = Stream()
    stream.transaction("one")
    moved, _ = resting(stream, "one", "one")
    stream.cursors.gate.jump(moved, Move(Reason.PURGE, "a", "b", "w", 1, MoveState.OPEN))
    stream.cursors.advance(1.0)
    assert stream.cursors.resting.take_roused() == set()
    stream.cursors.advance(1.0, every=True)
    assert stream.cursors.resting.take_roused() == {moved}


def test_of_many_clients_those_whose_place_comes_are_served_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FEW", 2)
    stream = Stream()
    stream.transaction("one")
    resting(stream, *["one"] * 12)
    stream.cursors.advance(0.0)
    stream.cursors.subscribe(77, start=Position("1", "binlog.000001", 7, stream.place + 30, 0), now=0)
    assert stream.cursors.status(77).state == "ahead"
    stream.transaction("two")
    stream.cursors.advance(1.0)
    assert stream.cursors.status(77).state == "attached"


def test_one_that_rests_is_on_a_call_and_does_not_expire() -> None:
    stream = Stream()
    stream.transaction("one")
    waits, left = resting(stream, "one", "two")
    for client_id, text in ((waits, "one"), (left, "two")):
        stream.cursors.subscribe(client_id, filter_text=text, expire_after=10, now=0)
    assert stream.cursors.rest(waits)
    assert stream.cursors.expire(11.0) == [left]
    assert stream.cursors.clients.ids == [waits]


def test_of_many_clients_the_places_are_moved_on_a_little_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FEW", 2)
    stream = Stream()
    stream.transaction("one", "two")
    clients = resting(stream, *["one"] * 12)
    stream.cursors.advance(0.0)
    before = stream.ring.first
    stream.transaction("two")
    assert roused(stream) == set()
    assert stream.ring.first == before, "it is not worth while yet"
    status = stream.cursors.status(clients[0])
    assert status.acked == str(stream.cursors.position_before(stream.ring.next)), "what is shown is as always"
    for _ in range(4):
        stream.transaction("two")
    assert roused(stream) == set()
    assert stream.ring.first == stream.ring.next, "for as many slots as there are clients all are looked at"
    stream.transaction("two")
    stream.cursors.advance(1.0, every=True)
    assert stream.ring.first == stream.ring.next


def test_the_more_clients_there_are_the_less_often_all_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FEW", 2)
    monkeypatch.setattr(module, "REVIEW", 0.25)
    stream = Stream()
    stream.transaction("one", "two")
    resting(stream, *["one"] * 12)
    looked = []
    for second in range(1, 8):
        stream.transaction("two")
        stream.cursors.advance(float(second), every=True)
        looked.append(stream.ring.first == stream.ring.next)
    assert looked == [True, False, False, True, False, False, True]


class RestingMachine(RuleBasedStateMachine):
    """Of all that rest, and are not named as roused, none may be given anything."""

    @initialize(few=st.sampled_from([0, 32]), at_once=st.booleans())
    def start(self, few: int, at_once: bool) -> None:
        self.few, module.FEW = module.FEW, few
        self.stream = Stream(64)
        if not at_once:
            self.stream.ring.masks.room = 0
        self.cursors = self.stream.cursors

    def teardown(self) -> None:
        if hasattr(self, "few"):
            module.FEW = self.few

    @rule(
        kinds=st.lists(
            st.sampled_from([Kind.TRANSACTION_BEGIN, Kind.TRANSACTION_END, Kind.ADVANCE, Kind.DDL, *NAMES]),
            min_size=1,
            max_size=6,
        ),
        looks=st.booleans(),
    )
    def put(self, kinds: list[Kind | str], looks: bool) -> None:
        """Put entries in any order, also one that no source has."""
        if len(self.stream.ring) + len(kinds) > 60:
            return
        for kind in kinds:
            if isinstance(kind, Kind):
                self.stream.stage(kind)
            else:
                self.stream.stage(Kind.ROW_DATA, kind)
        assert self.stream.ring.put(self.stream.staging)
        if looks:
            self.cursors.advance(1.0)

    @rule(every=st.booleans())
    def advance(self, every: bool) -> None:
        self.cursors.advance(1.0, every=every)

    @rule(
        client_id=CLIENTS,
        text=st.sampled_from(FILTERS),
        where=st.sampled_from(["", CONDITION]),
        latest=st.booleans(),
    )
    def subscribe(self, client_id: int, text: str, where: str, latest: bool) -> None:
        start = "latest" if latest else "earliest"
        self.cursors.subscribe(client_id, filter_text=text, where=where, start=start, now=1)

    @rule()
    def judge(self) -> None:
        """Let the threads be done that match tables and judge rows."""
        ring = self.stream.ring
        for due in ring.masks.due(1_000_000, len(ring.tables)):
            due.mask.take(due, due.mask.match(due.start, due.tables))
        for verdicts in ring.verdicts.values():
            pinned = ring.pin(verdicts.next, 100, 1_000_000)
            if pinned is not None:
                verdicts.judge.judge(pinned)
                verdicts.take(pinned)

    @rule(client_id=CLIENTS, limit=st.integers(0, 3))
    def get(self, client_id: int, limit: int) -> None:
        if client_id in self.cursors.clients.ids:
            self.cursors.get(client_id, max_entries=limit, now=1)

    @rule(client_id=CLIENTS)
    def rest(self, client_id: int) -> None:
        self.cursors.rest(client_id)

    @rule(client_id=CLIENTS, last=st.booleans())
    def ack(self, client_id: int, last: bool) -> None:
        marks = self.cursors.status(client_id).marks if client_id in self.cursors.clients.ids else []
        if marks and last:
            place = self.cursors.places.place_after(client_id, marks[-1])
            assert place is not None
            assert place.position is not None
            self.cursors.ack_to(client_id, place.position, now=1)
        elif marks:
            self.cursors.ack(client_id, marks[0], now=1)

    @rule(client_id=CLIENTS, one=st.booleans())
    def rollback(self, client_id: int, one: bool) -> None:
        marks = self.cursors.status(client_id).marks if client_id in self.cursors.clients.ids else []
        if marks:
            self.cursors.rollback(client_id, marks[0] if one else None, now=1)

    @rule(client_id=CLIENTS, latest=st.booleans())
    def seek(self, client_id: int, latest: bool) -> None:
        if client_id in self.cursors.clients.ids:
            self.cursors.places.seek(client_id, "latest" if latest else "earliest", now=1)

    @rule()
    def store(self) -> None:
        self.cursors.clients.end_store(self.cursors.clients.take_changes(), durable=True)

    @rule(client_id=CLIENTS)
    def unsubscribe(self, client_id: int) -> None:
        if client_id in self.cursors.clients.ids:
            self.cursors.unsubscribe(client_id)

    @rule()
    def name(self) -> None:
        self.cursors.resting.take_roused()

    @invariant()
    def whose_get_gives_something_is_roused(self) -> None:
        if not hasattr(self, "cursors"):
            return
        self.cursors.resting.look()
        for client_id in self.cursors.resting:
            assert self.cursors.get(client_id, now=1) is None


TestResting = RestingMachine.TestCase
TestResting.settings = settings(max_examples=times(100, 3000), stateful_step_count=40, deadline=None)
