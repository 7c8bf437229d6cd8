"""Ranges: where they end, that they are the same however often they are asked for, and what the parts of one are."""

import threading
import time
from dataclasses import replace
from itertools import chain

import pytest

from sluice.protocol.errors import BadPositionError, GoneError, SourceChangedError, UnknownBatchError
from sluice.protocol.gtid import MariadbGtidSet
from sluice.protocol.position import Position
from sluice.store import retention
from sluice.store.batch import Part, Range, RangeLimits, join_parts
from sluice.store.cursor import StoredClient
from sluice.store.cursors import Cursors
from sluice.store.patience import PATIENCE, TURN, Turns
from sluice.store.ring import Kind, Ring
from tests.stream import CREATED, Stream, entries

CLIENT = 1001
NOW = 0.0
NO_LIMITS = RangeLimits()


class Setup:
    """A ring, a client that wants every table, and another that wants only ``shop.orders``."""

    def __init__(self, size: int = 64, before: int = 0, *, catches_up: bool = False) -> None:
        self.ring = Ring(size)
        self.cursors = Cursors(
            self.ring,
            epoch=1,
            compile_filter=lambda text: lambda schema, table: f"{schema}.{table}" == text,
            catches_up=catches_up,
        )
        self.stream = Stream(self.ring, events=before)
        self.cursors.begin(self.stream.end, MariadbGtidSet())

    def put(self, *rows: bytes, table: tuple[str, str] = ("shop", "orders")) -> None:
        self.stream.transaction(*rows, table=table)
        self.stream.put()
        self.cursors.advance(NOW)

    def ddl(self) -> None:
        self.stream.stage(b"alter", Kind.DDL, ("shop", "orders"), boundary=True)
        self.stream.put()

    def mark(self, after: int, limits: RangeLimits = NO_LIMITS, *, client: int = CLIENT, final: bool = True) -> Range:
        found = self.cursors.ranges.mark(client, self.stream.position(after), limits, now=NOW, final=final)
        assert found is not None
        return found

    def read(self, from_: int | str, to: int | str, client: int = CLIENT) -> list[bytes]:
        batch = self.cursors.ranges.read(client, self.position(from_), self.position(to))
        assert batch is not None
        return entries(batch.slices)

    def position(self, where: int | str) -> Position:
        return Position.parse(where) if isinstance(where, str) else self.stream.position(where)

    def at(self, events: int) -> str:
        return str(self.stream.position(events))


@pytest.fixture
def setup() -> Setup:
    made = Setup()
    made.cursors.subscribe(CLIENT, now=NOW)
    return made


# --- where a range ends ----------------------------------------------------------------------------------------------


def test_range_ends_at_the_last_transaction_that_is_stored(setup: Setup) -> None:
    setup.put(b"one")
    setup.put(b"two", b"three")
    setup.stream.stage(b"begin", Kind.TRANSACTION_BEGIN)
    setup.stream.stage(b"unfinished", Kind.ROW_DATA, ("shop", "orders"))
    setup.stream.put()
    found = setup.mark(0)
    assert (found.from_, found.to, found.rows, found.partial) == (setup.at(0), setup.at(7), 3, False)


def test_range_ends_at_the_last_transaction_within_the_limits(setup: Setup) -> None:
    setup.put(b"one")
    setup.put(b"two")
    setup.put(b"three")
    assert setup.mark(0, RangeLimits(rows=2)).to == setup.at(6)
    assert setup.mark(0, RangeLimits(bytes=10)).to == setup.at(6)


def test_transaction_beyond_the_limits_is_cut_inside(setup: Setup) -> None:
    setup.put(b"one", b"two", b"three")
    found = setup.mark(0, RangeLimits(rows=2))
    assert (found.to, found.rows, found.partial) == (setup.at(3), 2, True)
    rest = setup.mark(3, RangeLimits(rows=2))
    assert (rest.to, rest.rows, rest.partial) == (setup.at(5), 1, False)
    assert setup.read(0, 3) + setup.read(3, 5) == setup.read(0, 5)


def test_a_cut_counts_the_entries_before_it_without_begins_and_ends(setup: Setup) -> None:
    setup.put(b"one")
    setup.put(b"two", b"three")
    allowed = bytearray([1] * len(setup.ring.tables))
    assert setup.ring.cut(0, setup.ring.next, allowed=allowed) == (7, 3)


def test_one_entry_beyond_the_limits_comes_alone(setup: Setup) -> None:
    setup.put(b"larger than that")
    found = setup.mark(0, RangeLimits(bytes=1))
    assert (found.rows, found.entries) == (1, 3), "with the begin and the end of its transaction"


def test_unfinished_transaction_is_not_a_range_while_its_end_may_come(setup: Setup) -> None:
    setup.stream.stage(b"begin", Kind.TRANSACTION_BEGIN)
    setup.stream.stage(b"unfinished", Kind.ROW_DATA, ("shop", "orders"))
    setup.stream.put()
    assert setup.cursors.ranges.mark(CLIENT, setup.position(0), NO_LIMITS, now=NOW) is None
    empty = setup.mark(0)
    assert (empty.batch_id, empty.to, empty.entries) == (-1, setup.at(0), 0)


def test_ddl_ends_the_range_before_it_and_comes_alone(setup: Setup) -> None:
    setup.put(b"one")
    setup.ddl()
    setup.put(b"two")
    assert setup.mark(0).to == setup.at(3)
    assert setup.mark(3).to == setup.at(4)
    assert setup.mark(4).to == setup.at(7)


def test_range_ends_at_the_position_that_was_named(setup: Setup) -> None:
    setup.put(b"one")
    setup.put(b"two")
    found = setup.mark(0, RangeLimits(until=setup.stream.position(3)))
    assert (found.to, found.reached) == (setup.at(3), True)


def test_end_is_reached_although_nothing_wanted_is_before_it() -> None:
    setup = Setup()
    setup.cursors.subscribe(CLIENT, filter_text="shop.orders", now=NOW)
    setup.put(b"other", table=("shop", "other"))
    limits = RangeLimits(until=setup.stream.end)
    found = setup.cursors.ranges.mark(CLIENT, setup.position(0), limits, now=NOW)
    assert found is not None
    assert (found.batch_id, found.entries, found.reached, found.to) == (-1, 0, True, setup.at(3))


# --- the same again --------------------------------------------------------------------------------------------------


def test_same_position_and_limits_give_the_same_range(setup: Setup) -> None:
    setup.put(b"one")
    first = setup.mark(0, RangeLimits(rows=10))
    setup.put(b"two")
    assert setup.mark(0, RangeLimits(rows=10)) == first
    assert setup.cursors.status(CLIENT).marks == [first.batch_id]


def test_a_range_over_several_that_follow_each_other_is_marked(setup: Setup) -> None:
    for text in (b"one", b"two", b"three", b"four"):
        setup.put(text)
    setup.mark(3, RangeLimits(rows=1))
    setup.mark(6, RangeLimits(rows=1))
    marks = [(from_, to) for from_ in range(0, 13, 3) for to in range(from_, 13, 3)]
    is_marked = setup.cursors.ranges.is_marked
    found = [it for it in marks if is_marked(CLIENT, setup.position(it[0]), setup.position(it[1]))]
    assert found == [(3, 3), (3, 6), (3, 9), (6, 6), (6, 9), (9, 9)]
    setup.cursors.ack_to(CLIENT, setup.position(3), now=NOW)
    setup.mark(9, RangeLimits(rows=1))
    assert is_marked(CLIENT, setup.position(4), setup.position(12))
    assert not is_marked(CLIENT, setup.position(2), setup.position(12))


def test_a_range_that_jumps_over_one_without_a_mark_is_not_marked(setup: Setup) -> None:
    for text in (b"one", b"two", b"three"):
        setup.put(text)
    setup.mark(0, RangeLimits(rows=1))
    setup.mark(6, RangeLimits(rows=1))
    assert not setup.cursors.ranges.is_marked(CLIENT, setup.position(0), setup.position(9))
    assert setup.cursors.ranges.is_marked(CLIENT, setup.position(6), setup.position(9))


def test_other_limits_make_another_range(setup: Setup) -> None:
    setup.put(b"one")
    setup.put(b"two")
    old = setup.mark(0, RangeLimits(rows=1))
    new = setup.mark(0, RangeLimits(rows=5))
    assert (old.to, new.to) == (setup.at(3), setup.at(6))
    assert setup.cursors.status(CLIENT).marks == [new.batch_id]


def test_ranges_are_acked_by_their_ends_or_their_marks(setup: Setup) -> None:
    setup.put(b"one")
    first = setup.mark(0)
    setup.put(b"two")
    second = setup.mark(3)
    setup.put(b"three")
    third = setup.mark(6)
    assert setup.cursors.status(CLIENT).marks == [first.batch_id, second.batch_id, third.batch_id]
    setup.cursors.ack_to(CLIENT, Position.parse(second.to), now=NOW)
    assert setup.cursors.status(CLIENT).marks == [third.batch_id]
    setup.cursors.ack(CLIENT, third.batch_id, now=NOW)
    assert setup.cursors.status(CLIENT).acked == setup.at(9)


def test_ack_reaches_over_what_is_not_wanted_after_a_range_but_over_nothing_else(setup: Setup) -> None:
    setup.cursors.subscribe(2, filter_text="shop.orders", now=NOW)
    setup.ddl()
    setup.mark(0)
    setup.mark(0, client=2)
    setup.put()  # a transaction of nothing
    empty = setup.mark(1)
    assert (empty.batch_id, empty.to) == (-1, setup.at(3))
    setup.put(b"other", table=("shop", "other"))
    assert setup.mark(1, client=2).to == setup.at(6)
    setup.cursors.ack_to(CLIENT, setup.stream.position(3), now=NOW)
    setup.cursors.ack_to(2, setup.stream.position(6), now=NOW)
    assert [setup.cursors.status(client).acked for client in (CLIENT, 2)] == [setup.at(3), setup.at(6)]
    with pytest.raises(BadPositionError):
        setup.cursors.ack_to(CLIENT, setup.stream.position(6), now=NOW)
    with pytest.raises(BadPositionError):
        setup.cursors.ack_to(2, setup.stream.position(7), now=NOW)


def test_durable_cursor_stays_before_a_transaction_that_was_acked_in_part(setup: Setup) -> None:
    setup.put(b"one")
    setup.put(b"two", b"three")
    found = setup.mark(3, RangeLimits(rows=1))
    setup.cursors.ack_to(CLIENT, Position.parse(found.to), now=NOW)
    status = setup.cursors.status(CLIENT)
    assert (status.acked, status.position) == (setup.at(5), setup.at(3))


def test_what_an_earlier_life_gave_can_be_acked_in_the_next() -> None:
    old = Setup()
    old.cursors.subscribe(CLIENT, now=NOW)
    old.put(b"one")
    given = old.mark(0)
    stored = old.cursors.clients.take_changes().clients[CLIENT]
    assert isinstance(stored, StoredClient)

    new = Setup()
    new.cursors.restore(stored, NOW)
    new.put(b"one")
    new.put(b"two")
    new.cursors.ack_to(CLIENT, Position.parse(given.to), now=NOW)
    assert new.cursors.status(CLIENT).acked == given.to
    new.mark(3)
    with pytest.raises(BadPositionError):
        new.cursors.ack_to(CLIENT, new.stream.position(9), now=NOW)


def test_a_range_is_marked_also_after_a_batch_that_was_not_asked_for_by_its_place(setup: Setup) -> None:
    setup.put(b"one")
    batch = setup.cursors.get(CLIENT, now=NOW)
    assert batch is not None
    setup.put(b"two")
    found = setup.mark(3, RangeLimits(rows=1))
    assert setup.cursors.status(CLIENT).marks == [batch.batch_id, found.batch_id]
    assert setup.cursors.ranges.is_marked(CLIENT, setup.position(found.from_), setup.position(found.to))


def test_range_that_is_acked_is_given_without_a_mark_while_it_is_stored(setup: Setup) -> None:
    setup.cursors.subscribe(2, now=NOW)
    setup.put(b"one")
    setup.put(b"two")
    setup.cursors.ack_to(CLIENT, Position.parse(setup.mark(0, RangeLimits(rows=1)).to), now=NOW)
    again = setup.mark(0, RangeLimits(rows=5))
    assert (again.batch_id, again.to) == (-1, setup.at(3))


def test_position_after_the_last_entry_that_was_given_stays_valid_when_the_stream_moves_on() -> None:
    setup = Setup()
    setup.cursors.subscribe(CLIENT, filter_text="shop.orders", now=NOW)
    setup.put(b"one")
    setup.cursors.ack_to(CLIENT, Position.parse(setup.mark(0).to), now=NOW)
    setup.put(b"other", table=("shop", "other"))
    assert setup.ring.first == 6, "no one needs what is not wanted"
    setup.put(b"two")
    found = setup.mark(3)
    assert (found.from_, found.to, found.rows) == (setup.at(3), setup.at(9), 1)
    assert setup.read(3, 9) == [b"begin", b"two", b"end"]
    with pytest.raises(GoneError):
        setup.mark(0)


# --- reading ---------------------------------------------------------------------------------------------------------


def test_range_can_be_read_again_and_moves_no_cursor(setup: Setup) -> None:
    setup.put(b"one")
    setup.put(b"two")
    for _ in range(2):
        assert setup.read(3, 6) == [b"begin", b"two", b"end"]
    status = setup.cursors.status(CLIENT)
    assert status.acked == status.got == setup.at(0)


def test_range_is_of_the_time_of_its_last_entry(setup: Setup) -> None:
    setup.put(b"one")
    setup.put(b"two")
    for end, seconds in ((3, CREATED + 3), (6, CREATED + 6), (0, 0)):
        batch = setup.cursors.ranges.read(CLIENT, setup.stream.position(0), setup.stream.position(end))
        assert batch is not None
        assert batch.timestamp == seconds * 1000


def test_range_of_nothing_is_empty(setup: Setup) -> None:
    setup.put(b"one")
    assert setup.read(3, 3) == []


def test_range_beyond_the_stream_is_not_there_yet(setup: Setup) -> None:
    setup.put(b"one")
    assert setup.cursors.ranges.read(CLIENT, setup.position(0), setup.position(6)) is None


def test_range_that_ends_before_it_begins_is_refused(setup: Setup) -> None:
    setup.put(b"one")
    with pytest.raises(BadPositionError):
        setup.cursors.ranges.read(CLIENT, setup.position(3), setup.position(0))


def test_transactions_without_a_wanted_entry_do_not_come(setup: Setup) -> None:
    setup.put()
    setup.put(b"one")
    assert setup.read(0, 5) == [b"begin", b"one", b"end"]


def test_begins_and_ends_do_not_come_where_they_are_filtered(setup: Setup) -> None:
    setup.put(b"one")
    batch = setup.cursors.ranges.read(CLIENT, setup.position(0), setup.position(3), transactions=False)
    assert batch is not None
    assert entries(batch.slices) == [b"one"]


# --- parts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("filter_text", ["", "shop.orders"])
@pytest.mark.parametrize("parts", [1, 2, 3, 7, 100])
def test_parts_together_are_the_range(parts: int, filter_text: str) -> None:
    setup = Setup()
    setup.cursors.subscribe(CLIENT, filter_text=filter_text, now=NOW)
    setup.put(b"1", b"2", b"3", b"4")
    setup.put(b"other", table=("shop", "other"))
    setup.put(b"5")
    setup.put(b"6", b"7")
    end = setup.stream.events
    cuts = setup.cursors.ranges.split(CLIENT, setup.position(0), setup.position(end), parts)
    assert cuts is not None
    assert len(cuts) <= parts
    assert [cut.from_ for cut in cuts] == [setup.at(0), *(cut.to for cut in cuts[:-1])]
    assert cuts[-1].to == setup.at(end)
    read = [setup.read(cut.from_, cut.to) for cut in cuts]
    assert list(chain.from_iterable(read)) == setup.read(0, end)
    assert [len(it) for it in read] == [cut.entries for cut in cuts]
    assert all(it[-1] != b"begin" for it in read), "no part begins after a BEGIN that it does not have"


def test_parts_have_about_equal_bytes(setup: Setup) -> None:
    for number in range(12):
        setup.put(bytes([number]) * 50)
    cuts = setup.cursors.ranges.split(CLIENT, setup.position(0), setup.position(36), 4)
    assert cuts is not None
    assert len(cuts) == 4
    assert max(cut.bytes for cut in cuts) <= 1.5 * min(cut.bytes for cut in cuts)


# --- catching up -----------------------------------------------------------------------------------------------------


class Behind:
    """A client whose cursor is before the ring, and the ring of its reader."""

    def __init__(self) -> None:
        self.main = Setup(before=6, catches_up=True)
        self.main.put(b"three")
        self.reader = Setup()
        self.cursors = self.main.cursors
        self.cursors.subscribe(2, now=NOW)
        self.cursors.subscribe(CLIENT, start=str(self.main.stream.position(0)), now=NOW)

    def read(self, row: bytes) -> None:
        """Let the reader read a transaction."""
        self.reader.stream.transaction(row)
        self.reader.stream.put()
        self.cursors.advance(NOW)

    def get(self) -> tuple[int, list[bytes]]:
        batch = self.cursors.get(CLIENT, now=NOW, max_entries=3)
        return (batch.batch_id, entries(batch.slices)) if batch is not None else (-1, [])

    @property
    def state(self) -> str:
        return self.cursors.status(CLIENT).state


def test_client_before_the_ring_waits_for_a_reader() -> None:
    behind = Behind()
    assert [(client, str(cursor.position)) for client, cursor in behind.cursors.readers.behind.items()] == [
        (CLIENT, behind.main.at(0))
    ]
    assert behind.state == "catching-up"
    assert behind.get() == (-1, [])


def test_client_reads_from_its_reader_and_joins_the_ring_when_all_before_is_acked() -> None:
    behind = Behind()
    behind.cursors.readers.start(CLIENT, behind.reader.cursors.track)
    behind.read(b"one")
    behind.read(b"two")
    first, given = behind.get()
    assert given == [b"begin", b"one", b"end"]
    second, given = behind.get()
    assert given == [b"begin", b"two", b"end"]
    assert behind.get() == (-1, []), "what follows comes from the ring, once the marks are acked"
    behind.cursors.ack(CLIENT, first, now=NOW)
    assert behind.cursors.status(CLIENT).acked == behind.main.at(3)
    behind.cursors.ack(CLIENT, second, now=NOW)
    behind.cursors.advance(NOW)
    assert behind.state == "attached"
    assert behind.cursors.readers.catching_up == set()
    assert behind.get()[1] == [b"begin", b"three", b"end"]
    assert behind.cursors.status(CLIENT).position == behind.main.at(6)


def test_reader_that_comes_to_the_ring_gives_nothing_more_though_not_all_is_acked() -> None:
    behind = Behind()
    behind.cursors.readers.start(CLIENT, behind.reader.cursors.track)
    behind.read(b"one")
    first, _ = behind.get()
    behind.read(b"two")
    behind.read(b"three")
    second, given = behind.get()
    assert given == [b"begin", b"two", b"end"]
    behind.cursors.ack(CLIENT, first, now=NOW)
    assert behind.get() == (-1, []), "what follows comes from the ring"
    behind.cursors.ack(CLIENT, second, now=NOW)
    behind.cursors.advance(NOW)
    assert behind.state == "attached"
    assert behind.get()[1] == [b"begin", b"three", b"end"]


@pytest.mark.parametrize(("rows", "first"), [([b"one"], 3), ([b"one", b"two"], 0)], ids=["before", "met"])
def test_ring_holds_the_place_for_a_client_whose_reader_has_come_there(rows: list[bytes], first: int) -> None:
    behind = Behind()
    behind.cursors.readers.start(CLIENT, behind.reader.cursors.track)
    for row in rows:
        behind.read(row)
    other = behind.cursors.get(2, now=NOW)
    assert other is not None
    behind.cursors.ack(2, other.batch_id, now=NOW)
    assert behind.main.ring.first == first


def test_client_whose_reader_failed_is_gone_with_its_cursor_kept() -> None:
    behind = Behind()
    behind.cursors.readers.start(CLIENT, behind.reader.cursors.track)
    behind.read(b"one")
    behind.cursors.ack(CLIENT, behind.get()[0], now=NOW)
    behind.read(b"two")
    behind.get()
    behind.cursors.fall_out(CLIENT, GoneError("purged"))
    status = behind.cursors.status(CLIENT)
    assert (status.state, status.position, status.marks) == ("gone", behind.main.at(3), [])
    assert behind.cursors.readers.catching_up == set()


def test_place_in_a_file_that_the_stream_has_not_come_through_is_of_another_history() -> None:
    ring = Ring(64)
    cursors = Cursors(ring, epoch=1, compile_filter=lambda _: None)
    stream = Stream(ring)
    first = replace(stream.end, file="binlog.000005")
    cursors.begin(first, None)
    cursors.subscribe(CLIENT, now=NOW)
    stream.transaction(b"one")
    stream.put()
    assert cursors.ranges.read(CLIENT, first, stream.end) is not None
    with pytest.raises(SourceChangedError, match="did not pass"):
        cursors.ranges.read(CLIENT, replace(first, file="binlog.000006"), stream.end)


def test_client_that_loses_its_reader_goes_on_after_what_it_has_acked_even_inside_a_transaction() -> None:
    behind = Behind()
    turns = Turns(1, 0.0)
    assert behind.get() == (-1, [])
    behind.cursors.readers.take_turns(turns, NOW)
    assert turns.begin(NOW) == ("client", CLIENT)
    behind.cursors.readers.start(CLIENT, behind.reader.cursors.track)
    behind.read(b"one")
    assert behind.cursors.readers.is_awaited(CLIENT)
    late = behind.get()
    assert not behind.cursors.readers.is_awaited(CLIENT)
    behind.cursors.readers.take_turns(turns, NOW)
    behind.cursors.ack_to(CLIENT, behind.main.position(2), now=NOW)
    turns.ask(("ranges", 1), NOW)
    behind.cursors.readers.take_turns(turns, NOW + TURN + 1)
    assert turns.finished(NOW + TURN + 1) == [], "it has something to ack"
    behind.read(b"two")
    assert behind.get() == (-1, []), "while others wait it is given nothing more"
    behind.cursors.readers.take_turns(turns, NOW + TURN + PATIENCE + 1)
    assert behind.cursors.readers.catching_up == set()
    assert str(behind.cursors.readers.behind[CLIENT].position) == behind.main.at(2)
    status = behind.cursors.status(CLIENT)
    assert (status.state, status.marks, status.position) == ("catching-up", [], behind.main.at(0))
    with pytest.raises(UnknownBatchError):
        behind.cursors.ack(CLIENT, late[0], now=NOW)

    again = Setup()
    behind.cursors.readers.start(CLIENT, again.cursors.track)
    again.stream.transaction(b"one")
    again.stream.transaction(b"two")
    again.stream.put()
    behind.cursors.advance(NOW)
    assert behind.get()[1] == [b"end", b"begin", b"two"]


def test_position_that_was_given_before_a_reader_was_lost_is_acked_when_the_next_one_comes_there() -> None:
    behind = Behind()
    with pytest.raises(BadPositionError, match="is beyond what client"):
        behind.cursors.ack_to(CLIENT, behind.main.position(3), now=NOW)
    behind.cursors.readers.start(CLIENT, behind.reader.cursors.track)
    behind.read(b"one")
    assert behind.get()[1] == [b"begin", b"one", b"end"]
    lose_reader(behind.cursors)
    assert behind.cursors.ack_to(CLIENT, behind.main.position(0), now=NOW), "it is acked already"
    assert not behind.cursors.ack_to(CLIENT, behind.main.position(3), now=NOW)
    behind.reader = Setup()
    behind.cursors.readers.start(CLIENT, behind.reader.cursors.track)
    assert not behind.cursors.ack_to(CLIENT, behind.main.position(3), now=NOW)
    assert behind.state == "catching-up"
    behind.read(b"one")
    assert behind.cursors.ack_to(CLIENT, behind.main.position(3), now=NOW)
    assert behind.cursors.status(CLIENT).position == behind.main.at(3)


def lose_reader(cursors: Cursors) -> None:
    """Let a client's turn with its reader be over."""
    turns = Turns(1, 0.0)
    turns.ask(("client", CLIENT), NOW)
    assert turns.begin(NOW)
    cursors.readers.take_turns(turns, NOW)
    cursors.readers.take_turns(turns, NOW + PATIENCE + 1)


def test_position_of_an_earlier_life_beyond_where_a_reader_meets_the_ring_is_acked_in_the_ring() -> None:
    behind = Behind()
    (stored,) = (it for it in behind.cursors.clients.take_changes().clients.values() if it and it.client_id == CLIENT)
    behind.cursors.unsubscribe(CLIENT)
    behind.cursors.restore(stored, NOW)
    behind.cursors.readers.start(CLIENT, behind.reader.cursors.track)
    for row in (b"one", b"two", b"three"):
        behind.read(row)
    late = behind.main.position(9)
    acked = behind.cursors.status(CLIENT).acked
    assert not behind.cursors.ack_to(CLIENT, late, now=NOW, exists=False)
    assert behind.cursors.status(CLIENT).acked == acked
    assert not behind.cursors.ack_to(CLIENT, late, now=NOW)
    assert behind.cursors.status(CLIENT).acked == behind.main.at(6)
    changed = behind.cursors.clients.take_changes().clients[CLIENT]
    assert changed is not None
    assert changed.cursor is not None
    assert changed.cursor.delivered == behind.main.position(6)
    behind.cursors.advance(NOW)
    assert behind.state == "attached"
    assert behind.cursors.ack_to(CLIENT, late, now=NOW)
    assert behind.cursors.status(CLIENT).position == str(late)


def test_place_in_a_full_ring_of_a_reader_is_where_its_client_begins() -> None:
    main = Setup(before=40, catches_up=True)
    main.cursors.subscribe(CLIENT, start=main.position(2), now=NOW)
    reader = Setup(size=4)
    reader.stream.transaction(*(b"%d" % number for number in range(30)))
    putter = threading.Thread(target=reader.stream.put, daemon=True)
    putter.start()
    while not reader.ring.waiting:
        time.sleep(0.001)
    main.cursors.readers.start(CLIENT, reader.cursors.track)
    batch = main.cursors.get(CLIENT, now=NOW, max_entries=2)
    assert batch is not None
    assert entries(batch.slices) == [b"1", b"2"]
    reader.ring.close()
    putter.join()


def test_place_deep_inside_a_transaction_larger_than_the_readers_ring_is_come_to() -> None:
    main = Setup(before=40, catches_up=True)
    main.cursors.subscribe(CLIENT, start=main.position(20), now=NOW)
    reader = Setup(size=4)
    main.cursors.readers.start(CLIENT, reader.cursors.track)
    reader.stream.transaction(*(b"%d" % number for number in range(30)))
    putter = threading.Thread(target=reader.stream.put, daemon=True)
    putter.start()
    while (batch := main.cursors.get(CLIENT, now=NOW, max_entries=1)) is None:
        time.sleep(0.001)
    assert entries(batch.slices) == [b"19"]
    reader.ring.close()
    putter.join()


@pytest.mark.parametrize(
    ("sizes", "parts", "joined"),
    [
        ([10, 10, 10, 10, 10, 10], 3, [2, 2, 2]),
        ([10, 10, 10, 10, 10, 10], 1, [6]),
        ([50, 50], 2, [1, 1]),
        ([49, 2, 49], 2, [2, 1]),
        ([60, 10, 10, 20], 3, [1, 1, 2]),
        ([5, 5, 70, 10, 10], 4, [3, 1, 1]),
        ([20, 20, 20, 20, 20], 2, [3, 2]),
        ([10, 10], 4, [1, 1]),
        ([10, 0], 1, [2]),
        ([10, 10, 0], 2, [1, 2]),
        ([], 4, [0]),
    ],
)
def test_pieces_are_joined_to_parts_of_about_equal_bytes(sizes: list[int], parts: int, joined: list[int]) -> None:
    pieces = [Part(f"{at}", f"{at + 1}", 2, 3, size) for at, size in enumerate(sizes)]
    found = join_parts(pieces, "begin", "end", parts)
    assert [(it.entries, it.rows) for it in found] == [(2 * count, 3 * count) for count in joined]
    ends = [sum(joined[:number]) for number in range(1, len(joined))]
    assert [it.to for it in found] == [*map(str, ends), "end"]
    assert [it.from_ for it in found] == ["begin", *map(str, ends)]
    assert [it.bytes for it in found] == [
        sum(sizes[begin:end]) for begin, end in zip([0, *ends], [*ends, None], strict=True)
    ]


# --- what is given where there is nothing ----------------------------------------------------------------------------


def test_range_of_nothing_ends_where_it_was_looked_for() -> None:
    setup = Setup()
    setup.cursors.subscribe(CLIENT, filter_text="shop.items", now=NOW)
    setup.cursors.subscribe(2, start=setup.at(50), now=NOW)
    setup.put(b"one")
    assert setup.mark(0) == Range(-1, setup.at(0), setup.at(3), 0, 0, 0, partial=False, reached=False)
    assert setup.mark(7) == Range(-1, setup.at(7), setup.at(7), 0, 0, 0, partial=False, reached=False), "not there yet"
    assert setup.mark(0, client=2) == Range(-1, setup.at(0), setup.at(0), 0, 0, 0, partial=False, reached=False)
    assert setup.cursors.ranges.mark(CLIENT, setup.stream.position(0), NO_LIMITS, now=NOW) is None


def test_range_that_is_read_has_no_mark_and_one_of_nothing_no_batch(setup: Setup) -> None:
    setup.put(b"one")
    read = setup.cursors.ranges.read(CLIENT, setup.stream.position(0), setup.stream.position(3))
    nothing = setup.cursors.ranges.read(CLIENT, setup.stream.position(3), setup.stream.position(3))
    assert read is not None
    assert nothing is not None
    assert (read.batch_id, nothing.batch_id) == (0, -1)


def test_client_that_is_not_served_reads_ranges_through_its_filter() -> None:
    setup = Setup()
    setup.cursors.subscribe(2, now=NOW)
    setup.cursors.subscribe(CLIENT, filter_text="shop.items", start=setup.at(50), now=NOW)
    setup.put(b"one")
    setup.put(b"two", table=("shop", "items"))
    assert setup.cursors.status(CLIENT).state == "ahead"
    assert setup.read(0, 6) == [b"begin", b"two", b"end"]


def test_what_follows_a_range_that_is_acked_in_part_is_another_range(setup: Setup) -> None:
    setup.cursors.subscribe(2, now=NOW)  # keeps it all
    setup.put(b"one", b"two", b"three", b"four")
    first = setup.mark(0, RangeLimits(rows=2))
    setup.cursors.ack(CLIENT, first.batch_id, now=NOW)
    again = setup.mark(0, RangeLimits(rows=3))
    assert (again.batch_id, again.to, again.partial) == (-1, first.to, True), (
        "up to what is acked, inside a transaction"
    )
    rest = setup.mark(3)
    assert (rest.batch_id > 0, rest.to, rest.rows) == (True, setup.at(6), 2)


def test_what_is_acked_of_a_transaction_whose_end_may_come_is_not_given_again_before_it_has_come(setup: Setup) -> None:
    setup.cursors.subscribe(2, now=NOW)  # keeps it all
    setup.put(b"one")
    setup.stream.stage(b"begin", Kind.TRANSACTION_BEGIN)
    setup.stream.stage(b"unfinished", Kind.ROW_DATA, ("shop", "orders"))
    setup.stream.put()
    setup.mark(0, RangeLimits(until=setup.stream.end))
    setup.cursors.ack_to(CLIENT, setup.stream.end, now=NOW)
    assert setup.cursors.status(CLIENT).acked == setup.at(5)
    again = setup.mark(0)
    assert (again.batch_id, again.to, again.partial) == (-1, setup.at(3), False)


def test_range_may_end_inside_a_transaction_only_where_it_was_told_to(setup: Setup) -> None:
    setup.put(b"one", b"two")
    inside = setup.mark(0, RangeLimits(until=setup.stream.position(2)))
    assert (inside.to, inside.rows, inside.partial, inside.reached) == (setup.at(2), 1, True, True)


def test_position_that_was_acked_and_freed_may_be_acked_again(setup: Setup) -> None:
    setup.put(b"one")
    setup.put(b"two")
    setup.mark(0)
    assert setup.cursors.ack_to(CLIENT, setup.stream.position(6), now=NOW)
    assert setup.ring.first == 6
    assert setup.cursors.ack_to(CLIENT, setup.stream.position(3), now=NOW)


def test_ack_by_position_confirms_marks_that_were_given_again_before_it(setup: Setup) -> None:
    setup.put(b"one")
    setup.put(b"two")
    for limit in (3, 3):
        batch = setup.cursors.get(CLIENT, now=NOW, max_entries=limit)
        assert batch is not None
    oldest = setup.cursors.status(CLIENT).marks[0]
    setup.cursors.rollback(CLIENT, oldest, now=NOW)
    assert setup.cursors.get(CLIENT, now=NOW, max_entries=3) is not None
    assert setup.cursors.clients.outstanding(CLIENT) == 2
    assert setup.cursors.ack_to(CLIENT, setup.stream.position(3), now=NOW)
    assert setup.cursors.clients.outstanding(CLIENT) == 1, "that of the second transaction"


def test_client_that_has_acked_all_of_its_reader_joins_the_ring_between_two_transactions() -> None:
    behind = Behind()
    behind.cursors.readers.start(CLIENT, behind.reader.cursors.track)
    behind.cursors.advance(NOW)
    for row in (b"one", b"two"):
        behind.reader.stream.transaction(row)
        behind.reader.stream.put()
        batch_id, given = behind.get()
        assert given == [b"begin", row, b"end"]
        behind.cursors.ack(CLIENT, batch_id, now=NOW)
    behind.cursors.advance(NOW)
    assert behind.state == "attached"


def test_client_whose_reader_is_closed_goes_on_at_its_cursor() -> None:
    behind = Behind()
    behind.cursors.readers.start(CLIENT, behind.reader.cursors.track)
    behind.read(b"one")
    behind.reader.ring.close()
    behind.cursors.fall_out(CLIENT, GoneError("stopped"))
    awaited = behind.cursors.places.awaited(CLIENT)
    assert awaited is not None
    assert str(awaited.position) == behind.main.at(0)


def test_client_whose_reader_is_taken_away_waits_for_another_one_where_it_is() -> None:
    behind = Behind()
    behind.cursors.readers.start(CLIENT, behind.reader.cursors.track)
    behind.read(b"one")
    behind.cursors.ack(CLIENT, behind.get()[0], now=NOW)
    behind.cursors.readers.stop(CLIENT)
    assert behind.cursors.readers.catching_up == set()
    assert str(behind.cursors.readers.behind[CLIENT].position) == behind.main.at(3)


def test_reader_has_more_for_its_client_as_long_as_that_has_not_acked_all_whole_transactions() -> None:
    behind = Behind()
    has_more = behind.cursors.readers.has_more
    assert not has_more(2), "it is served from the ring"
    assert not has_more(CLIENT), "it has no reader yet"
    behind.cursors.readers.start(CLIENT, behind.reader.cursors.track)
    behind.read(b"one")
    assert has_more(CLIENT)
    behind.cursors.ack(CLIENT, behind.get()[0], now=NOW)
    assert not has_more(CLIENT)
    behind.reader.stream.stage(b"ddl", Kind.DDL, boundary=True)
    behind.reader.stream.put()
    assert has_more(CLIENT), "a transaction of a single entry"
    behind.cursors.ack(CLIENT, behind.get()[0], now=NOW)
    behind.reader.stream.stage(b"begin", Kind.TRANSACTION_BEGIN)
    behind.reader.stream.put()
    assert not has_more(CLIENT), "the transaction has no end yet"


def test_of_many_clients_one_with_a_reader_frees_what_it_acks_of_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "FEW", 2)
    behind = Behind()
    for client_id in range(3, 15):
        behind.cursors.subscribe(client_id, now=NOW)
    behind.cursors.readers.start(CLIENT, behind.reader.cursors.track)
    behind.read(b"one")
    behind.cursors.ack(CLIENT, behind.get()[0], now=NOW)
    assert behind.reader.ring.first == behind.reader.ring.next == 3


def test_client_that_has_met_the_ring_needs_its_reader_until_it_has_acked_what_was_before() -> None:
    behind = Behind()
    behind.cursors.readers.start(CLIENT, behind.reader.cursors.track)
    behind.read(b"one")
    behind.read(b"two")
    for _ in range(2):
        assert behind.cursors.readers.has_more(CLIENT)
        behind.cursors.ack(CLIENT, behind.get()[0], now=NOW)
    behind.cursors.advance(NOW)
    assert not behind.cursors.readers.has_more(CLIENT)


def test_client_that_polls_keeps_its_turn_and_one_that_is_removed_takes_none_from_others() -> None:
    behind = Behind()
    turns = Turns(1, 20.0)
    behind.cursors.subscribe(3, start=behind.main.at(0), now=NOW)
    for client_id in (3, CLIENT):
        assert behind.cursors.get(client_id, now=NOW) is None
    behind.cursors.unsubscribe(3)
    behind.cursors.readers.take_turns(turns, NOW)
    assert turns.begin(NOW) == ("client", CLIENT)
    behind.cursors.readers.start(CLIENT, behind.reader.cursors.track)
    for now in range(10, 100, 10):
        assert behind.cursors.get(CLIENT, now=now) is None
        behind.cursors.readers.take_turns(turns, now)
        assert turns.finished(now) == []
        assert behind.cursors.readers.catching_up == {CLIENT}


def test_client_whose_reader_is_beyond_the_end_of_the_ring_needs_nothing_of_it() -> None:
    behind = Behind()
    behind.cursors.unsubscribe(2)
    behind.cursors.readers.start(CLIENT, behind.reader.cursors.track)
    kept = len(behind.main.ring)
    rows = [b"one", b"two", b"three", b"four", b"five"]
    for row in rows:
        behind.reader.stream.transaction(row)
    behind.reader.stream.put()
    for number, row in enumerate(rows, 1):
        assert len(behind.main.ring) == kept > 0, "what it comes to is kept"
        batch_id, given = behind.get()
        assert given == [b"begin", row, b"end"]
        behind.cursors.ack(CLIENT, batch_id, now=NOW)
        if behind.reader.stream.position(3 * number) > behind.main.stream.end:
            break
    behind.cursors.advance(NOW)
    assert (behind.state, len(behind.main.ring)) == ("catching-up", 0)
