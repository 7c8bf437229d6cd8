"""A merged stream: its ring holds a chain of cuts, and a client goes on although another server merges otherwise."""

from collections import Counter
from dataclasses import replace
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.instance.sources.group.places import places_of
from sluice.protocol.cut import Cut, parse_place
from sluice.protocol.errors import BadPositionError, GoneError, SourceChangedError
from sluice.protocol.gtid import MariadbGtidSet
from sluice.protocol.position import Position
from sluice.store.batch import Batch
from sluice.store.cursor import OLDEST, Cursor, StoredClient, is_later, starts
from sluice.store.cursors import Cursors
from sluice.store.moves import By
from sluice.store.restarts import Restarts
from sluice.store.ring import Ring
from sluice.store.track import Wanted
from tests.stream import STEP, Stream, entries

CLIENT, OTHER = 1001, 1002
MEMBERS = "abc"
EVENTS = 3  # of a transaction


class Merged:
    """A server that has merged the transactions of some members in an order; each is numbered in its member."""

    def __init__(self, begin: Cut | None = None, size: int = 256, epoch: int = 1, ring: Ring | None = None) -> None:
        self.ring = Ring(size) if ring is None else ring
        self.begin = begin or Cut({it: Stream(Ring(), member=it, name=f"of-{it}").position(0) for it in MEMBERS})
        self.cursors = Cursors(self.ring, epoch=epoch, compile_filter=lambda _: None)
        done = {it: (place.begin - 4) // STEP for it, place in self.begin.places.items()}
        self.members = {it: Stream(self.ring, done.get(it, 0), it, f"of-{it}") for it in MEMBERS}
        self.cursors.begin(self.begin, {it: MariadbGtidSet() for it in MEMBERS})

    def put(self, order: str) -> None:
        for name in order:
            member = self.members[name]
            member.transaction(f"{name}{member.events // EVENTS}".encode())
            member.put()
            self.cursors.advance(0)

    def get(self, client: int = CLIENT, most: int = 0) -> Batch | None:
        return self.cursors.get(client, now=0, max_entries=most)

    def take(self, client: int = CLIENT, batches: int = 1000, most: int = 4) -> list[str]:
        """Take and ack batches; the rows that came."""
        found = []
        for _ in range(batches):
            batch = self.get(client, most)
            if batch is None:
                break
            found += rows(batch)
            self.cursors.ack(client, batch.batch_id, now=0)
        return found

    def stored(self, client: int = CLIENT) -> StoredClient:
        return next(it for it in self.cursors.clients.stored() if it.client_id == client)


def rows(batch: Batch) -> list[str]:
    return [it.decode() for it in entries(batch.slices) if it not in (b"begin", b"end")]


def cut(**places: int) -> Cut:
    """The cut after the given number of transactions of each member."""
    return Cut({it: Stream(Ring(), name=f"of-{it}").position(number * EVENTS) for it, number in places.items()})


def place(client: StoredClient) -> Position | None:
    return client.cursor.position if client.cursor is not None else None


def test_each_slot_brings_one_member_on() -> None:
    server = Merged()
    server.cursors.subscribe(CLIENT, now=0)
    server.put("abba")
    ends = [server.cursors.position_before(EVENTS * it) for it in range(5)]
    assert ends == [cut(a=0, b=0, c=0), cut(a=1, b=0, c=0), cut(a=1, b=1, c=0), cut(a=1, b=2, c=0), cut(a=2, b=2, c=0)]
    batch = server.get()
    assert batch is not None
    assert rows(batch) == ["a0", "b0", "b1", "a1"]
    assert (batch.from_, batch.to) == (str(ends[0]), str(ends[4]))


def test_what_is_freed_is_remembered_of_a_member_that_brings_nothing_more() -> None:
    server = Merged(size=16)
    server.cursors.subscribe(CLIENT, now=0)
    server.put("c")
    for _ in range(20):
        server.put("a")
        assert server.take() != []
    assert server.ring.first > EVENTS
    assert place(server.stored()) == cut(a=20, b=0, c=1)
    assert server.stored().cursor.gtid == "a=0-101-20;c=0-101-1"  # type: ignore[union-attr]


def test_a_cursor_says_which_members_are_to_be_read_from_further_back() -> None:
    server = Merged()
    server.cursors.subscribe(CLIENT, now=0)
    members = {it: Restarts() for it in MEMBERS}
    server.ring.restarts.members.update(members)
    prepared = cut(b=0).places["b"]
    members["b"].note(cut(b=1).places["b"], prepared)
    members["b"].note(cut(b=3).places["b"], None)
    server.put("abb")
    assert server.take() != []
    cursor = server.stored().cursor
    assert cursor is not None
    assert cursor.restart == Cut({"b": prepared})
    members["c"].note(cut(c=0).places["c"], cut(c=0).places["c"])
    assert server.ring.restarts.last == cut(c=0), "nothing of b is open at the end"
    assert [it and it.restart for it in places_of("b", [cursor])] == [prepared]
    assert [it and it.restart for it in places_of("a", [cursor])] == [None]
    server.put("b")
    assert server.take() != []
    assert server.stored().cursor.restart is None  # type: ignore[union-attr]


def test_a_member_that_joins_later_is_in_the_cuts_from_its_first_place_on() -> None:
    server = Merged(cut(a=0, b=0))
    server.cursors.subscribe(CLIENT, now=0)
    server.put("ab")
    assert server.cursors.position_before(server.ring.next) == cut(a=1, b=1)
    server.put("c")
    assert server.cursors.position_before(server.ring.next) == cut(a=1, b=1, c=1)


orders = st.text(MEMBERS, min_size=1, max_size=24)


@given(orders, st.randoms(use_true_random=False), st.integers(0, 12), st.integers(1, 7), st.booleans())
def test_a_client_goes_on_although_another_server_merges_in_another_order(
    order: str, random: object, batches: int, most: int, shared: bool
) -> None:
    """With another client that is at the beginning, the stream begins before the place of the client."""
    first = Merged()
    first.cursors.subscribe(CLIENT, now=0)
    first.cursors.subscribe(OTHER, now=0)
    first.put(order)
    taken = first.take(batches=batches, most=most)
    stored = first.stored()
    here = place(stored)
    assert isinstance(here, Cut)

    again = [*order]
    random.shuffle(again)  # type: ignore[attr-defined]
    begin = first.begin if shared else here
    left = Counter(order) if shared else Counter(order) - Counter({it: _done(here, it) for it in MEMBERS})
    second = Merged(begin, epoch=2)
    second.cursors.restore(stored, 0)
    rest = [it for it, number in zip(again, count(), strict=False) if _take(left, it) or number < 0]
    second.put("".join(rest))
    got = second.take(most=most)
    end = Counter(order)
    for name in MEMBERS:
        mine = [int(it[1:]) for it in got if it[0] == name]
        assert mine == list(range(_done(here, name), end[name]))  # nothing twice, nothing lost, in the member's order
    assert len(taken) >= sum(_done(here, it) for it in MEMBERS)
    assert place(second.stored()) == cut(**{it: end[it] for it in MEMBERS})


def _done(at: Cut, name: str) -> int:
    return (at.places[name].begin - 4) // STEP // EVENTS


def _take(left: Counter[str], name: str) -> bool:
    left[name] -= 1
    return left[name] >= 0


def test_the_place_of_a_client_has_what_it_brought_and_what_it_was_given() -> None:
    server = Merged(cut(a=0, b=0, c=0))
    server.cursors.restore(StoredClient(CLIENT, cursor=Cursor.at(cut(a=0, b=2, c=0))), 0)
    server.put("ab")
    batch = server.get()
    assert batch is not None
    assert rows(batch) == ["a0"]
    assert batch.to == str(cut(a=1, b=2, c=0))
    server.cursors.ack(CLIENT, batch.batch_id, now=0)
    assert server.get() is None
    assert place(server.stored()) == cut(a=1, b=2, c=0)
    server.put("bb")
    assert server.take() == ["b2"]


def test_what_a_client_has_of_another_order_is_not_given_again_after_a_rollback() -> None:
    server = Merged(cut(a=0, b=0, c=0))
    server.cursors.restore(StoredClient(CLIENT, cursor=Cursor.at(cut(a=0, b=2, c=0))), 0)
    server.put("abba")
    assert [rows(it) for it in (server.get(most=EVENTS), server.get(most=EVENTS)) if it is not None] == [["a0"], ["a1"]]
    server.cursors.rollback(CLIENT, now=0)
    batch = server.get(most=EVENTS)
    assert batch is not None
    assert [rows(it) for it in (batch, server.get(most=EVENTS)) if it is not None] == [["a0"], ["a1"]]
    server.cursors.ack(CLIENT, batch.batch_id, now=0)
    assert place(server.stored()) == cut(a=1, b=2, c=0)


def test_the_gtids_of_a_client_are_those_of_its_place_when_it_is_given_what_it_has() -> None:
    server = Merged(cut(a=0, b=0, c=0))
    server.cursors.restore(StoredClient(CLIENT, cursor=Cursor.at(cut(a=0, b=5, c=0), "b=0-101-5")), 0)
    server.put("baba")
    assert server.take() == ["a0", "a1"]
    assert server.stored().cursor == Cursor.at(cut(a=2, b=5, c=0), "a=0-101-2;b=0-101-5", cut(a=2, b=5, c=0))
    server.put("bbbb")
    assert server.take() == ["b5"]
    assert server.stored().cursor == Cursor.at(cut(a=2, b=6, c=0), "a=0-101-2;b=0-101-6", cut(a=2, b=6, c=0))


def test_a_place_of_another_order_has_no_gtids_of_the_members_in_which_the_ring_is_not_so_far() -> None:
    server = Merged(cut(a=0, b=5, c=0))
    server.cursors.restore(StoredClient(CLIENT, cursor=Cursor.at(cut(a=0, b=5, c=0), "b=0-101-5")), 0)
    server.put("aab")
    assert server.cursors.ack_to(CLIENT, cut(a=1, b=6, c=0), now=0)
    assert server.stored().cursor == Cursor.at(cut(a=1, b=6, c=0), "a=0-101-1")
    assert server.take() == ["a1"]


class FullRing(Ring):
    @property
    def waiting(self) -> bool:  # type: ignore[override]
        return True


def test_an_ack_of_what_the_full_ring_has_not_reached_confirms_nothing_of_other_members() -> None:
    server = Merged(cut(a=0, b=0, c=0), ring=FullRing())
    server.cursors.restore(StoredClient(CLIENT, cursor=Cursor.at(cut(a=0, b=0, c=0))), 0)
    server.put("bbb")
    server.cursors.ack_to(CLIENT, cut(a=1, b=1, c=0), now=0)  # in the order of an earlier server
    assert server.take() == ["b1", "b2"]


def test_acks_of_another_order_count_for_the_members_in_which_they_are_further() -> None:
    server = Merged(cut(a=0, b=0, c=0))
    server.cursors.restore(StoredClient(CLIENT, cursor=Cursor.at(cut(a=0, b=0, c=0))), 0)
    server.put("a")
    assert server.cursors.ack_to(CLIENT, cut(a=1, b=0, c=0), now=0)
    server.put("b")
    assert server.ring.first == EVENTS
    assert server.cursors.ack_to(CLIENT, cut(a=0, b=1, c=0), now=0)
    assert place(server.stored()) == cut(a=1, b=1, c=0)
    assert server.get() is None


def test_slots_that_a_client_has_do_not_hold_the_ring_back() -> None:
    server = Merged(cut(a=0, b=0, c=0), size=32)
    server.cursors.restore(StoredClient(CLIENT, cursor=Cursor.at(cut(a=0, b=30, c=0))), 0)
    for _ in range(30):
        server.put("b")
    assert server.ring.first > 0
    assert server.get() is None
    server.put("ab")
    assert server.take() == ["a0", "b30"]


def test_a_batch_may_be_acked_by_its_place_and_no_other_cut_is_one() -> None:
    server = Merged()
    server.cursors.subscribe(CLIENT, now=0)
    server.put("abab")
    batch = server.get()
    assert batch is not None
    with pytest.raises(BadPositionError, match="order"):
        server.cursors.ack_to(CLIENT, cut(a=0, b=1, c=0), now=0)
    with pytest.raises(BadPositionError, match="beyond"):
        server.cursors.ack_to(CLIENT, cut(a=3, b=1, c=0), now=0)
    assert server.cursors.ack_to(CLIENT, cut(a=1, b=1, c=0), now=0)
    assert place(server.stored()) == cut(a=1, b=1, c=0)
    assert server.cursors.ack_to(CLIENT, parse_place(batch.to), now=0)
    assert server.cursors.ack_to(CLIENT, cut(a=1, b=1, c=0), now=0), "it is confirmed already"
    assert place(server.stored()) == cut(a=2, b=2, c=0)


def test_a_client_before_the_chain_in_one_member_is_gone() -> None:
    server = Merged(cut(a=1, b=0, c=0))
    server.cursors.restore(StoredClient(CLIENT, cursor=Cursor.at(cut(a=0, b=5, c=0))), 0)
    server.put("a")
    with pytest.raises(GoneError, match="no longer stored"):
        server.get()


def test_a_place_of_a_single_source_is_none_of_a_merged_stream() -> None:
    server = Merged()
    server.cursors.restore(StoredClient(CLIENT, cursor=Cursor.at(cut(a=1).places["a"])), 0)
    server.put("a")
    with pytest.raises(SourceChangedError, match="several"):
        server.get()


def test_a_merged_stream_begins_at_the_meet_of_all_cursors() -> None:
    cursors = [Cursor.at(cut(a=3, b=1)), Cursor.at(cut(a=1, b=2)), Cursor.at(cut(a=2, b=2))]
    first, *rest = starts(cursors, None)
    assert first == Cursor.at(cut(a=1, b=1))
    assert {str(it.position) for it in rest if it is not None} == {str(it.position) for it in cursors}


def test_a_merged_stream_begins_where_the_open_xa_transactions_of_its_members_do() -> None:
    prepared = cut(a=1).places["a"]
    one = replace(Cursor.at(cut(a=3, b=9)), restart=Cut({"a": prepared}))
    other = replace(Cursor.at(cut(a=5, b=2)), restart=Cut({"a": cut(a=4).places["a"]}))
    assert [it and it.restart for it in starts([one], None)] == [Cut({"a": prepared})] * 2
    first = starts([one, other], None)[0]
    assert first is not None
    assert (first.position, first.restart) == (cut(a=3, b=2), Cut({"a": prepared}))


def test_a_client_with_another_history_of_a_member_does_not_keep_the_others_from_their_places() -> None:
    reset = Cut({"a": replace(cut(a=1).places["a"], created=99), "b": cut(b=4).places["b"]})
    cursors = [Cursor.at(cut(a=3, b=1)), Cursor.at(reset), Cursor.at(cut(a=2, b=7))]
    assert [it and it.position for it in starts(cursors, None)][:2] == [cut(a=2, b=1), reset]


def test_a_place_with_another_history_of_a_member_is_later_if_the_members_gtids_say_so() -> None:
    one = Cursor.at(cut(a=3, b=1), "a=0-101-3;b=0-102-1")
    other = Cursor.at(Cut({"a": replace(cut(a=1).places["a"], created=99), "b": cut(b=1).places["b"]}), "a=0-101-3")
    assert is_later(one, other)
    assert not is_later(other, one)


def test_a_client_that_a_reader_serves_joins_the_ring_although_that_merged_otherwise() -> None:
    server = Merged(cut(a=2, b=2, c=0))
    reader = Merged(cut(a=0, b=0, c=0))
    server.cursors.track.catches_up = True
    server.cursors.restore(StoredClient(CLIENT, cursor=Cursor.at(cut(a=1, b=0, c=0))), 0)
    server.put("abc")  # a2 b2 c0
    assert server.get() is None
    server.cursors.readers.start(CLIENT, reader.cursors.track)
    reader.put("abbac")
    server.cursors.advance(0)
    got = server.take()
    server.put("cb")
    got += server.take()
    assert sorted(got) == ["a1", "a2", "b0", "b1", "b2", "b3", "c0", "c1"]
    assert server.cursors.status(CLIENT).state == "attached"
    assert place(server.stored()) == cut(a=3, b=4, c=2)


def test_a_client_whose_reader_lacks_a_member_that_has_joined_gets_another_one_when_it_has_all_of_this() -> None:
    server, reader = Merged(cut(a=2, b=2)), Merged(cut(a=0, b=0))
    cursors = server.cursors
    cursors.track.catches_up = True
    cursors.subscribe(OTHER, now=0)
    cursors.restore(StoredClient(CLIENT, cursor=Cursor.at(cut(a=1, b=0))), 0)
    cursors.readers.start(CLIENT, reader.cursors.track)
    reader.put("aab")
    cursors.advance(0)
    cursors.join_member("c", cut(c=5).places["c"], None)
    server.members["c"] = Stream(server.ring, 5 * EVENTS, "c", "of-c")
    server.put("c")
    assert server.take(OTHER) == ["c5"]
    assert server.take() == ["a1", "b0"]
    cursors.advance(0)
    assert cursors.readers.catching_up == {CLIENT}, "it has not come to where the ring begins"
    reader.put("b")
    batch = server.get()
    assert batch is not None
    cursors.advance(0)
    assert cursors.readers.catching_up == {CLIENT}, "not all is acked"
    cursors.ack(CLIENT, batch.batch_id, now=0)
    cursors.advance(0)
    assert {it: cursor.position for it, cursor in cursors.readers.behind.items()} == {CLIENT: cut(a=2, b=2, c=5)}


def test_a_client_whose_reader_has_all_members_keeps_it_though_the_ring_has_gone_on() -> None:
    server, reader = Merged(cut(a=2, b=2)), Merged(cut(a=0, b=0))
    server.cursors.track.catches_up = True
    server.cursors.subscribe(OTHER, now=0)
    server.cursors.restore(StoredClient(CLIENT, cursor=Cursor.at(cut(a=1, b=0))), 0)
    server.cursors.readers.start(CLIENT, reader.cursors.track)
    server.put("ab")
    assert server.take(OTHER) == ["a2", "b2"]
    reader.put("aabb")
    server.cursors.advance(0)
    assert server.take() == ["a1", "b0", "b1"]
    server.cursors.advance(0)
    assert server.cursors.readers.catching_up == {CLIENT}


def test_a_member_begins_first_where_the_log_ends_and_then_in_the_order_of_the_stream() -> None:
    ends = [Cursor.at(cut(a=number, b=0)) for number in (5, 3, 1)]
    wanted = [Cursor.at(cut(a=number).places["a"]) for number in (5, 1, 3)]
    found = places_of("a", [ends[0], OLDEST, *ends[1:], None])
    assert found == [wanted[0], OLDEST, *wanted[1:], None]


def test_an_ack_of_a_place_of_another_order_is_taken_if_no_batch_of_this_one_is_outstanding() -> None:
    server = Merged(cut(a=0, b=0, c=0))
    server.cursors.restore(StoredClient(CLIENT, cursor=Cursor.at(cut(a=0, b=0, c=0))), 0)
    server.put("aabb")
    other = cut(a=1, b=1, c=0)  # the earlier server gave a0 b0
    server.cursors.clients.take_changes()
    assert server.cursors.ack_to(CLIENT, other, now=0)
    assert list(server.cursors.clients.take_changes().clients) == [CLIENT]
    assert server.ring.first == EVENTS, "what it has no need of is freed"
    assert place(server.stored()) == other
    assert server.cursors.ack_to(CLIENT, other, now=0), "it may be repeated"
    assert server.take() == ["a1", "b1"]
    assert place(server.stored()) == cut(a=2, b=2, c=0)


def test_a_client_does_not_rest_as_long_as_it_has_something_of_what_comes() -> None:
    server = Merged(cut(a=0, b=0, c=0))
    server.cursors.admission.compile = lambda *_: Wanted(lambda *_: False)  # type: ignore[method-assign]
    server.cursors.restore(StoredClient(CLIENT, cursor=Cursor.at(cut(a=0, b=2, c=0))), 0)
    assert not server.cursors.rest(CLIENT)
    server.put("bba")
    assert server.cursors.rest(CLIENT)


def test_an_ack_reaches_over_what_a_client_does_not_want_of_another_member() -> None:
    server = Merged(cut(a=0, b=0, c=0))
    server.cursors.admission.compile = lambda *_: Wanted(lambda _, table: table == "orders")  # type: ignore[method-assign]
    server.cursors.subscribe(CLIENT, now=0)
    server.put("a")
    assert server.get() is not None
    server.members["b"].transaction(b"row", table=("shop", "items"))
    server.members["b"].put()
    assert server.cursors.ack_to(CLIENT, cut(a=1, b=1, c=0), now=0)
    assert place(server.stored()) == cut(a=1, b=1, c=0)


def test_an_ack_of_another_order_is_taken_from_within_a_transaction_whose_beginning_is_freed() -> None:
    server = Merged(cut(a=0, b=0, c=0))
    server.cursors.restore(StoredClient(CLIENT, cursor=Cursor.at(cut(a=0, b=0, c=0))), 0)
    server.put("aabb")
    begin = cut(a=0, b=0, c=0)
    begun = replace(begin.places["a"], begin=begin.places["a"].begin + STEP)
    assert server.cursors.ack_to(CLIENT, begin.advance("a", begun), now=0)
    assert server.ring.first == 1
    assert server.cursors.ack_to(CLIENT, cut(a=1, b=1, c=0), now=0)
    assert server.take() == ["a1", "b1"]


def test_a_client_that_rests_is_roused_by_an_ack_of_another_order() -> None:
    server = Merged(cut(a=0, b=0, c=0))
    server.cursors.admission.compile = lambda *_: Wanted(lambda *_: False)  # type: ignore[method-assign]
    server.cursors.restore(StoredClient(CLIENT, cursor=Cursor.at(cut(a=0, b=0, c=0))), 0)
    for name in "aabb":
        server.members[name].transaction(b"row")
        server.members[name].put()
    assert server.cursors.rest(CLIENT)
    assert server.cursors.ack_to(CLIENT, cut(a=1, b=1, c=0), now=0)
    assert server.cursors.resting.take_roused() == {CLIENT}


def test_an_ack_of_another_order_is_refused_while_batches_are_outstanding() -> None:
    server = Merged(cut(a=0, b=0, c=0))
    server.cursors.restore(StoredClient(CLIENT, cursor=Cursor.at(cut(a=0, b=0, c=0))), 0)
    server.put("aabb")
    batch = server.get()
    assert batch is not None
    with pytest.raises(BadPositionError, match="order"):
        server.cursors.ack_to(CLIENT, cut(a=1, b=1, c=0), now=0)
    assert place(server.stored()) == cut(a=0, b=0, c=0)
    server.cursors.ack(CLIENT, batch.batch_id, now=0)
    assert place(server.stored()) == cut(a=2, b=2, c=0)


def test_an_ack_of_another_order_inside_a_transaction_is_stored_before_that() -> None:
    server = Merged(cut(a=0, b=0, c=0))
    server.cursors.restore(StoredClient(CLIENT, cursor=Cursor.at(cut(a=0, b=0, c=0))), 0)
    server.put("aabb")
    begun = replace(cut(b=0).places["b"], begin=cut(b=0).places["b"].begin + 2 * STEP)  # after begin and row
    inside = cut(a=1, b=0, c=0).advance("b", begun)
    assert server.cursors.ack_to(CLIENT, inside, now=0)
    assert server.take() == ["a1", "b1"]


def test_a_client_whose_reader_gives_it_what_it_has_gets_the_rest() -> None:
    server = Merged(cut(a=3, b=2, c=0))
    reader = Merged(cut(a=0, b=0, c=0))
    server.cursors.track.catches_up = True
    server.cursors.restore(StoredClient(CLIENT, cursor=Cursor.at(cut(a=0, b=2, c=0))), 0)
    server.put("c")
    server.cursors.readers.start(CLIENT, reader.cursors.track)
    reader.put("bbaaa")  # more slots than the destination's ring has
    server.cursors.advance(0)
    got = server.take()
    server.put("c")
    assert got + server.take() == ["a0", "a1", "a2", "c0", "c1"]


def test_the_cursors_have_the_start_of_a_member_before_it_brings_anything() -> None:
    server = Merged(cut(a=0, b=0))
    server.cursors.subscribe(CLIENT, now=0)
    server.cursors.restore(StoredClient(OTHER, cursor=Cursor.at(cut(a=9, b=0), "a=0-101-9")), 0)
    server.put("ab")
    assert len(server.take(most=1, batches=3)) == 1
    server.cursors.clients.take_changes()
    server.cursors.join_member("c", cut(c=5).places["c"], MariadbGtidSet())
    changes = server.cursors.clients.take_changes().clients
    assert {it: place(client) for it, client in changes.items() if client is not None} == {
        CLIENT: cut(a=1, b=0, c=5),
        OTHER: cut(a=9, b=0, c=5),
    }


def test_a_client_goes_on_at_a_place_from_before_a_member_joined() -> None:
    server = Merged(cut(a=0, b=0))
    server.cursors.subscribe(OTHER, now=0)
    server.put("ab")
    server.cursors.join_member("c", cut(c=5).places["c"], None)
    server.members["c"] = Stream(server.ring, 5 * EVENTS, "c", "of-c")
    server.put("ca")
    server.cursors.subscribe(CLIENT, start=str(cut(a=1, b=0)), now=0)
    assert server.take() == ["b0", "c5", "a1"]
    assert place(server.stored()) == cut(a=2, b=1, c=6)


def test_after_a_gap_of_one_member_a_client_keeps_what_it_has_of_the_others() -> None:
    server = Merged(cut(a=5, b=0, c=0))
    server.cursors.track.catches_up = True
    server.cursors.restore(StoredClient(CLIENT, cursor=Cursor.at(cut(a=2, b=3, c=0))), 0)
    server.cursors.restore(StoredClient(OTHER, cursor=Cursor.at(cut(a=6, b=0, c=0))), 0)
    assert server.cursors.places.pass_gap("it is purged", None, server.begin, By()) == [CLIENT]
    server.cursors.clients.end_store(server.cursors.clients.take_changes(), durable=True)
    server.put("abbbb")
    (gap,) = server.cursors.gate.gaps(CLIENT)
    assert (gap.before, gap.after) == (str(cut(a=2, b=3, c=0)), str(cut(a=5, b=0, c=0)))
    marker = server.get()
    assert marker is not None
    server.cursors.ack(CLIENT, marker.batch_id, now=0)
    assert server.take() == ["a5", "b3"]
    assert server.take(OTHER) == ["b0", "b1", "b2", "b3"]


def test_a_client_at_another_history_of_a_member_starts_with_the_stream_after_a_gap() -> None:
    server = Merged(cut(a=5, b=0, c=0))
    server.cursors.track.catches_up = True
    elsewhere = Cut({**cut(b=0, c=0).places, "a": replace(cut(a=1).places["a"], source="another")})
    server.cursors.restore(StoredClient(CLIENT, cursor=Cursor.at(elsewhere, "a=0-101-1")), 0)
    assert server.cursors.places.pass_gap("it is purged", None, server.begin, By()) == [CLIENT]
    assert server.cursors.status(CLIENT).state == "attached"


def test_a_transaction_is_skipped_by_the_place_of_an_entry_in_its_member() -> None:
    server = Merged(cut(a=0, b=0, c=0))
    server.cursors.subscribe(CLIENT, now=0)
    server.put("ab")
    inside = cut(a=0).places["a"]
    assert server.cursors.places.skip(CLIENT, Cut({"a": inside}), now=0) == cut(a=1, b=0, c=0)
    with pytest.raises((BadPositionError, SourceChangedError)):
        server.cursors.places.skip(CLIENT, inside, now=0)


def test_a_move_over_what_a_member_has_not_brought_is_recorded() -> None:
    server = Merged(cut(a=0, b=0, c=0))
    server.cursors.subscribe(CLIENT, now=0)
    server.put("a")
    assert server.take() == ["a0"]
    server.cursors.places.seek(CLIENT, str(cut(a=1, b=7, c=0)), now=0, moved="1-seek", by=By("me"))
    (jump,) = server.cursors.gate.moves[CLIENT]
    assert (jump.after, jump.rows, jump.held) == (str(cut(a=1, b=7, c=0)), None, False)
