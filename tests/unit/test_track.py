"""A ring as a part of the stream."""

from dataclasses import replace

import pytest

from sluice.protocol.cut import Cut, Executed
from sluice.protocol.errors import GoneError
from sluice.protocol.gtid import MariadbGtidSet
from sluice.protocol.position import Position
from sluice.store import stream
from sluice.store.cursor import OLDEST, Cursor, StoredClient
from sluice.store.reading import Reading
from sluice.store.ring import Ring
from sluice.store.track import EVERYTHING, Track, Wanted, WantedSlots
from tests.stream import CREATED, Stream
from tests.unit.test_chain import CLIENT, EVENTS, OTHER, Merged, cut, place
from tests.unit.test_cursors import switched


def texts(gtids: Executed) -> dict[str, str]:
    return {member: str(it) for member, it in gtids.items()}


def test_a_place_that_a_growing_ring_has_not_reached_is_waited_for() -> None:
    class Growing(Track):
        """Each look finds one more transaction, as when another thread puts them."""

        looks = 0

        @property
        def shown(self) -> int:
            self.looks += 1
            return min(self.ring.next, 3 * self.looks)

    ring = Ring()
    track, source = Growing(ring), Stream(ring)
    track.begin(source.end)
    for _ in range(9):
        source.transaction(b"row")
        source.put()
    assert track.sequence_of(source.end) is None
    track.looks = 8
    assert track.sequence_of(source.end) == ring.next == 27


def test_what_one_member_has_executed_is_not_counted_for_another() -> None:
    """Both write the same GTIDs, as two servers that were loaded from one backup do."""
    ring = Ring()
    track = Track(ring)
    one, other, unknown = (Stream(ring, member=member) for member in ("one", "other", "unknown"))
    track.begin(one.position(0), "one")
    track.gtids = {"one": MariadbGtidSet(), "other": MariadbGtidSet.parse("0-101-7")}
    other.transactions = 7
    reading = Reading(track, Wanted(), 0)
    for member in (one, other, unknown, one):
        member.transaction(b"row")
        member.put()
    assert texts(track.executed(ring.next)) == {"one": "0-101-2", "other": "0-101-8"}
    reading.confirm(ring.next)
    cursor = reading.cursor(None)
    assert cursor is not None
    assert (cursor.gtid, cursor.position) == ("0-101-2", one.end)
    assert texts(reading.gtids) == {"one": "0-101-2", "other": "0-101-8"}
    track.free_to(ring.next)
    assert texts(track.gtids) == texts(reading.gtids)


@pytest.mark.parametrize(("gtid", "is_older"), [("0-101-4", True), ("0-101-9", False), ("", False)])
def test_at_another_source_gtids_say_whether_its_oldest_place_is_before_the_ring(gtid: str, *, is_older: bool) -> None:
    ring = Ring()
    track, filled = stream.Stream(ring, catches_up=True), Stream(ring)
    track.open(filled.end, MariadbGtidSet.parse("0-101-7"))
    elsewhere = Cursor.at(Position("102", "other.000001", CREATED, 4, 0), gtid)
    assert track.oldest(elsewhere) == (elsewhere if is_older else Cursor.at(filled.end, "0-101-7"))


def test_texts_of_statements_come_only_where_nothing_else_is_left_out() -> None:
    for wanted, come in ((EVERYTHING, True), (Wanted(), False)):
        assert WantedSlots(Ring(64), wanted).chosen()["texts"] is come


def test_sources_have_filled_a_ring_one_after_the_other_as_long_as_it_has_the_place_where_one_was_left() -> None:
    cursors, _ = switched(1, 1)
    assert cursors.track.is_mixed
    cursors.track.free_to(3)
    assert cursors.track.is_mixed, "the place before it is one of the former source"
    cursors.track.free_to(4)
    assert not cursors.track.is_mixed


def test_where_a_source_was_left_its_end_and_the_beginning_of_the_next_one_are_no_further_than_the_slot() -> None:
    cursors, (first, second) = switched(1, 1)
    for at in (first.position(12), second.position(73)):
        assert [cursors.track.is_beyond(at, it) for it in (2, 3)] == [True, False]


def test_where_a_source_was_left_is_known_though_all_of_it_is_freed_and_the_next_one_is_left() -> None:
    cursors, (first, _) = switched(1, 1)
    cursors.track.free_to(3)
    cursors.track.switch()
    assert cursors.track.sequence_of(first.position(12)) == 3


def test_a_place_of_a_source_that_has_just_been_switched_to_is_beyond_all_that_the_others_gave() -> None:
    cursors, (first, _) = switched(1, 1)
    cursors.track.switch()
    assert cursors.track.is_beyond(replace(first.end, source="103"), cursors.ring.next)


class TestAMergedStream:
    """Its places are cuts."""

    @pytest.fixture
    def server(self) -> Merged:
        return Merged(cut(a=2, b=2, c=2))

    def test_has_begun_with_its_cut_before_anything_is_put(self, server: Merged) -> None:
        server.cursors.subscribe(CLIENT, now=0)
        assert place(server.stored()) == cut(a=2, b=2, c=2)

    def test_keeps_the_places_of_its_clients_when_it_is_closed(self, server: Merged) -> None:
        server.cursors.subscribe(CLIENT, now=0)
        server.put("abcab")
        server.take(batches=1)
        server.get()
        before = server.stored()
        server.ring.close()
        server.cursors.advance(0)
        server.cursors.rollback(CLIENT, now=0)
        assert server.stored() == before

    def test_knows_where_it_begins_after_slots_were_freed_that_nobody_asked_for(self) -> None:
        track = Track(Ring(64))
        track.begin(cut(a=2, b=2))
        for name in "aab":
            member = Stream(track.ring, 2 * EVENTS, name, f"of-{name}")
            member.transaction(b"row")
            member.put()
        track.free_to(2 * EVENTS)
        assert track.floor == cut(a=3, b=2)
        track.ring.close()
        track.free_to(3 * EVENTS)
        assert track.floor == cut(a=3, b=2), "a closed ring tells nothing any more"

    @pytest.mark.parametrize("start", [cut(a=1, b=0), cut(a=1, b=0, c=2)])
    def test_has_no_client_before_it_that_lacks_a_member_of_which_nobody_knows_where_it_began(
        self, server: Merged, start: Cut
    ) -> None:
        server.cursors.track.catches_up = True
        if "c" in start.places:
            server.cursors.subscribe(CLIENT, start=str(start), now=0)
            assert server.cursors.readers.behind.keys() == {CLIENT}
            return
        with pytest.raises(GoneError, match=r"member c has joined the group since .* nobody knows any more where it"):
            server.cursors.subscribe(CLIENT, start=str(start), now=0)
        server.cursors.join_member("c", cut(c=1).places["c"], None)
        server.cursors.subscribe(CLIENT, start=str(start), now=0)
        assert server.cursors.readers.behind.keys() == {CLIENT}, "from that on it is known"

    @pytest.mark.parametrize("first", [1, 2], ids=["behind", "served"])
    def test_gives_its_clients_the_start_of_a_member_that_joins_with_what_is_executed_there(self, first: int) -> None:
        server = Merged(cut(a=2, b=2))
        server.cursors.track.catches_up = True
        server.cursors.restore(StoredClient(CLIENT, cursor=Cursor.at(cut(a=first, b=2), f"a=0-101-{first}")), 0)
        server.cursors.subscribe(OTHER, now=0)
        server.cursors.join_member("c", cut(c=5).places["c"], MariadbGtidSet.parse("0-101-5"))
        expected = Cursor.at(cut(a=first, b=2, c=5), f"a=0-101-{first};c=0-101-5")
        assert server.stored().cursor == expected
        assert server.cursors.readers.behind == ({CLIENT: expected} if first < 2 else {})
        if first < 2:
            reader = Merged(cut(a=1, b=2, c=5))
            server.cursors.readers.start(CLIENT, reader.cursors.track)
            reader.put("b")
            server.cursors.advance(0)
            assert server.take() == ["b2"]
            assert server.stored().cursor.gtid == "a=0-101-1;b=0-101-1;c=0-101-5"  # type: ignore[union-attr]

    def test_gives_a_start_without_gtids_if_nobody_knows_them(self) -> None:
        track = Track(Ring(64))
        track.begin(cut(a=2))
        track.join_member("c", cut(c=5).places["c"], None)
        assert track.fill(Cursor.at(cut(a=1), "a=0-101-1")) == Cursor.at(cut(a=1, c=5), "a=0-101-1")
        for had in (Cursor.at(cut(a=1, c=9), "a=0-101-1"), OLDEST):
            assert track.fill(had) is had

    def test_lacks_in_a_place_the_members_of_which_nobody_knows_where_they_began(self, server: Merged) -> None:
        assert set(server.cursors.track.unknown_in(cut(a=0))) == {"b", "c"}
        server.cursors.join_member("c", cut(c=1).places["c"], None)
        assert set(server.cursors.track.unknown_in(cut(a=0))) == {"b"}
        assert set(server.cursors.track.unknown_in(cut(a=0).places["a"])) == set()


class TestAPlaceAtTheFormerServerOfAMember:
    """Member `a` was read from another server: what is executed says where that is at the one that is read now."""

    FORMER = replace(cut(a=9).places["a"], source="former")

    @pytest.fixture
    def track(self) -> Track:
        track = Track(Ring(64))
        track.begin(cut(a=2, b=2))
        track.gtids = {"a": MariadbGtidSet.parse("0-101-2"), "b": MariadbGtidSet.parse("0-101-2")}
        return track

    def place(self, b: int = 1, **more: Position) -> Cut:
        return Cut({"a": self.FORMER, **cut(b=b).places, **more})

    def test_is_where_the_stream_begins_if_the_same_was_executed(self, track: Track) -> None:
        had = Cursor.at(self.place(), "a=0-101-2;b=0-101-1;x=0-101-2")
        assert track.moved(had) == replace(had, position=cut(a=2, b=1))

    def test_is_unknown_if_anything_else_was_executed(self, track: Track) -> None:
        for gtid in ("a=0-101-1;b=0-101-2", "b=0-101-2", ""):
            had = Cursor.at(self.place(2), gtid)
            assert track.moved(had) is had

    def test_stays_if_it_is_one_of_the_servers_that_are_read(self, track: Track) -> None:
        for at in (cut(a=1, b=2), cut(a=1).places["a"]):
            had = Cursor.at(at, "a=0-101-2" if isinstance(at, Cut) else "")
            assert track.moved(had) is had

    def test_has_no_open_transaction_of_the_former_server_any_more(self, track: Track) -> None:
        kept = Cut(cut(b=0).places)
        for restart, left in ((Cut({"a": self.FORMER, **kept.places}), kept), (Cut({"a": self.FORMER}), None)):
            had = replace(Cursor.at(self.place(), "a=0-101-2"), restart=restart)
            assert track.moved(had).restart == left
        single = replace(Cursor.at(self.place(), "a=0-101-2"), restart=self.FORMER)
        assert track.moved(single).restart == self.FORMER

    def test_is_taken_by_a_client_that_comes_with_it(self) -> None:
        server = Merged(cut(a=2, b=2, c=0))
        server.cursors.track.gtids["a"] = MariadbGtidSet.parse("0-101-2")
        had = Cursor.at(Cut({**cut(b=2, c=0).places, "a": self.FORMER}), "a=0-101-2")
        server.cursors.restore(StoredClient(CLIENT, cursor=had), 0)
        server.put("ab")
        assert server.take() == ["a2", "b2"]
