"""The gate: which moves of a client's place are written down, who is told of them, and until when they stay open."""

import json
from typing import Any

import pytest

from sluice.protocol.content import Content
from sluice.protocol.cut import Cut
from sluice.protocol.errors import BadPositionError, GapError, GoneError, PurgedError
from sluice.protocol.position import Position
from sluice.store.batch import Batch, RangeLimits
from sluice.store.cursor import Cursor, StoredClient
from sluice.store.cursors import Cursors
from sluice.store.moves import By, Gate, Move, MoveState, Reason
from sluice.store.ring import Ring
from tests.stream import FILE, SERVER_ID, Stream, entries
from tests.unit.test_cursors import markers, one_table, put, store

CLIENT = 1001
NOW = 1000.0
MOST_MOVES, MOST_LEFT = 100, 1000  # docs/operations.md
ALICE = By("token alice, 10.0.0.7", 1_700_000_000.0)


def move(reason: Reason = Reason.SEEK, **more: object) -> Move:
    return Move(reason, **{"before": "a", "after": "b", "who": "w", "time": 1, **more})  # type: ignore[arg-type]


def gap(**more: object) -> Move:
    return move(Reason.PURGE, **{"state": MoveState.OPEN, **more})


@pytest.fixture
def stream() -> Stream:
    return Stream(Ring(64))


@pytest.fixture
def cursors(stream: Stream) -> Cursors:
    """Three transactions of three entries; the client has acked the first."""
    cursors = Cursors(stream.ring, epoch=1, compile_filter=one_table)
    cursors.begin(stream.end, None)
    cursors.subscribe(CLIENT, now=NOW)
    for name in (b"one", b"two", b"three"):
        put(cursors, stream, name)
    cursors.ack(CLIENT, get(cursors, 3).batch_id, now=NOW)
    store(cursors)
    return cursors


def get(cursors: Cursors, limit: int = 0) -> Batch:
    batch = cursors.get(CLIENT, now=NOW, max_entries=limit)
    assert batch is not None
    return batch


def only(cursors: Cursors) -> Move:
    (found,) = cursors.gate.moves[CLIENT]
    return found


class TestWhatIsWrittenDown:
    def test_an_ack_is_not(self, cursors: Cursors) -> None:
        assert not cursors.gate.moves

    def test_a_cursor_that_was_moved_forward_is_with_what_was_passed_over(
        self, cursors: Cursors, stream: Stream
    ) -> None:
        cursors.places.seek(CLIENT, "latest", now=NOW, by=ALICE, held=True)
        found = only(cursors)
        assert (found.reason, found.state) == (Reason.SEEK, MoveState.ASKED)
        assert (found.before, found.after) == (str(stream.position(3)), str(stream.end))
        assert (found.who, found.time, found.held) == (ALICE.who, 1_700_000_000_000, True)
        assert found.rows == 2

    def test_a_cursor_that_was_moved_over_nothing_is_not(self, cursors: Cursors, stream: Stream) -> None:
        cursors.places.seek(CLIENT, str(stream.position(3)), now=NOW, by=ALICE)
        cursors.places.seek(CLIENT, "latest", now=NOW, by=ALICE, is_confirmed=True)
        assert not cursors.gate.moves

    def test_a_cursor_that_was_moved_over_transactions_without_a_row_for_it_is_not(
        self, cursors: Cursors, stream: Stream
    ) -> None:
        cursors.subscribe(CLIENT, filter_text="shop.other", now=NOW)
        cursors.places.seek(CLIENT, str(stream.position(6)), now=NOW, by=ALICE)
        assert not cursors.gate.moves

    def test_a_transaction_that_was_skipped_is(self, cursors: Cursors, stream: Stream) -> None:
        cursors.places.skip(CLIENT, stream.position(4), now=NOW, by=ALICE)
        found = only(cursors)
        assert (found.reason, found.state, found.rows) == (Reason.SKIP, MoveState.ASKED, 1)
        assert (found.before, found.after) == (str(stream.position(3)), str(stream.position(6)))

    def test_what_an_operator_acks_is_but_not_what_the_client_does(self, cursors: Cursors, stream: Stream) -> None:
        get(cursors)
        cursors.ack_to(CLIENT, stream.position(6), now=NOW)
        assert not cursors.gate.moves
        cursors.ack_to(CLIENT, stream.position(9), now=NOW, by=ALICE)
        found = only(cursors)
        assert (found.reason, found.rows, found.who) == (Reason.ACK, 1, ALICE.who)

    def test_a_client_that_leaves_is_and_where_it_comes_back(self, cursors: Cursors, stream: Stream) -> None:
        assert cursors.unsubscribe(CLIENT, by=ALICE) == only(cursors)
        found = only(cursors)
        assert (found.reason, found.rows) == (Reason.UNSUBSCRIBE, 2)
        assert (found.before, found.after) == (str(stream.position(3)), "")
        cursors.subscribe(CLIENT, start="latest", now=NOW)
        assert (only(cursors).after, only(cursors).state) == (str(stream.end), MoveState.ASKED)

    def test_rows_are_not_counted_of_a_client_that_leaves_while_more_waits_than_the_ring_holds(
        self, cursors: Cursors
    ) -> None:
        cursors.fall_out(CLIENT, GoneError("its place is lost"))
        assert cursors.unsubscribe(CLIENT, by=ALICE).rows is None

    def test_a_cursor_that_was_moved_back_is_not(self, cursors: Cursors, stream: Stream) -> None:
        cursors.ack(CLIENT, get(cursors, 3).batch_id, now=NOW)
        cursors.subscribe(CLIENT + 1, start=str(stream.position(6)), now=NOW)
        cursors.places.seek(CLIENT, str(stream.position(6)), now=NOW, by=ALICE)
        cursors.places.seek(CLIENT, "latest", now=NOW, by=ALICE, is_confirmed=True)
        cursors.places.seek(CLIENT, str(stream.position(6)), now=NOW, by=ALICE)
        assert not cursors.gate.moves

    def test_a_jump_by_hand_can_be_had_again_and_says_where_it_was_and_is_stored_at_once(
        self, cursors: Cursors, stream: Stream
    ) -> None:
        get(cursors)
        cursors.ack_to(CLIENT, stream.position(5), now=NOW, by=ALICE)
        found = only(cursors)
        assert (found.before, found.after, found.held) == (str(stream.position(3)), str(stream.position(5)), True)
        assert list(cursors.clients.take_changes().clients) == [CLIENT]
        cursors.places.skip(CLIENT, stream.position(5), now=NOW, by=ALICE)
        assert cursors.gate.moves[CLIENT][-1].held
        assert list(cursors.clients.take_changes().clients) == [CLIENT]

    @pytest.mark.parametrize("held", [True, False])
    def test_a_client_that_leaves_says_whether_what_it_had_not_got_can_still_be_had(
        self, cursors: Cursors, held: bool
    ) -> None:
        cursors.subscribe(CLIENT + 1, now=NOW)
        cursors.fall_out(CLIENT + 1, PurgedError("it is purged"))
        assert cursors.unsubscribe(CLIENT, held=held).held is held
        assert not cursors.unsubscribe(CLIENT + 1, held=held).held, "the source has lost it"

    def test_where_a_client_comes_back_that_waits_for_its_place(self, cursors: Cursors, stream: Stream) -> None:
        cursors.unsubscribe(CLIENT, by=ALICE)
        cursors.subscribe(CLIENT, start=str(stream.position(30)), now=NOW)
        assert only(cursors).after == str(stream.position(30))

    def test_where_a_client_comes_back_before_the_stream_has_begun(self, stream: Stream) -> None:
        left = move(Reason.UNSUBSCRIBE, after="")
        cursors = Cursors(stream.ring, epoch=1, compile_filter=one_table, gate=Gate({CLIENT: (left,)}))
        cursors.subscribe(CLIENT, now=NOW)
        assert only(cursors).after == ""
        cursors.begin(stream.end, None)
        cursors.advance(NOW)
        assert only(cursors).after == str(stream.end)


class TestAClientThatExpired:
    def expire(self, cursors: Cursors) -> None:
        cursors.subscribe(CLIENT, expire_after=60, now=NOW)
        assert cursors.expire(NOW + 61, ALICE) == [CLIENT]

    def test_is_no_gap_as_long_as_it_does_not_come_back(self, cursors: Cursors) -> None:
        self.expire(cursors)
        assert only(cursors).state is MoveState.ASKED
        assert not cursors.gate.is_unsettled(CLIENT)

    def test_has_a_gap_when_it_comes_back_elsewhere(self, cursors: Cursors, stream: Stream) -> None:
        self.expire(cursors)
        cursors.subscribe(CLIENT, start="latest", now=NOW)
        (found,) = cursors.gate.gaps(CLIENT)
        assert (found.reason, found.before, found.after) == (Reason.EXPIRE, str(stream.position(3)), str(stream.end))
        assert found.rows is None, "more may have come since it expired"

    def test_has_none_when_it_comes_back_where_it_was(self, cursors: Cursors, stream: Stream) -> None:
        cursors.subscribe(CLIENT + 1, now=NOW + 61)
        self.expire(cursors)
        cursors.subscribe(CLIENT, start=str(stream.position(3)), now=NOW)
        assert not cursors.gate.gaps(CLIENT)


class TestAGap:
    @pytest.fixture
    def stream(self) -> Stream:
        return Stream(Ring(64), events=30)

    @pytest.fixture
    def cursors(self, stream: Stream) -> Cursors:
        """The source has purged what the client has not got; two transactions have come since."""
        cursors = Cursors(stream.ring, epoch=2, compile_filter=one_table, catches_up=True)
        lost = Stream(Ring(64), events=0)
        cursors.restore(StoredClient(CLIENT, "", Cursor(FILE, 4, 0, SERVER_ID, "", lost.position(3))), NOW)
        cursors.begin(stream.end, None)
        cursors.advance(NOW)
        self.begin = stream.end
        assert cursors.places.pass_gap("the source has purged it", None, stream.end, ALICE) == [CLIENT]
        put(cursors, stream, b"one")
        put(cursors, stream, b"two")
        return cursors

    def test_is_stored_before_anything_after_it_is_given(self, cursors: Cursors) -> None:
        assert cursors.get(CLIENT, now=NOW) is None
        changes = cursors.clients.take_changes()
        assert [it.reason for it in changes.moves[CLIENT]] == [Reason.PURGE]
        assert cursors.get(CLIENT, now=NOW) is None, "it is not stored yet"
        cursors.clients.end_store(changes, durable=False)
        assert cursors.get(CLIENT, now=NOW) is None, "it could not be stored"
        store(cursors)
        assert get(cursors)

    def test_is_told_by_a_marker_in_a_batch_of_its_own(self, cursors: Cursors) -> None:
        store(cursors)
        batch = get(cursors)
        (text,) = markers(batch)
        assert (batch.entries, batch.rows) == (1, 0)
        assert batch.from_ == batch.to == str(self.begin)
        assert text.endswith(f"to {self.begin}: purge (the source has purged it)")
        assert entries(get(cursors, 3).slices) == [b"begin", b"one", b"end"]

    def test_is_not_told_in_a_format_of_rows_and_stays_open(self, cursors: Cursors) -> None:
        store(cursors)
        batch = cursors.get(CLIENT, now=NOW, max_entries=3, content=Content.ROWS)
        assert batch is not None
        assert entries(batch.slices) == [b"begin", b"one", b"end"]
        cursors.ack(CLIENT, batch.batch_id, now=NOW)
        assert only(cursors).state is MoveState.OPEN

    def test_is_told_again_until_the_marker_is_acked(self, cursors: Cursors) -> None:
        store(cursors)
        assert markers(get(cursors))
        cursors.rollback(CLIENT, now=NOW)
        cursors.ack(CLIENT, get(cursors).batch_id, now=NOW)
        assert only(cursors).state is MoveState.TOLD
        assert cursors.gate.gaps(CLIENT), "it stays open until somebody confirms it"
        store(cursors)
        assert entries(get(cursors).slices)[1] == b"one"

    def test_is_confirmed_with_or_without_the_marker(self, cursors: Cursors) -> None:
        assert cursors.gate.confirm(CLIENT) == 1
        assert cursors.gate.confirm(CLIENT) == 0
        assert only(cursors).state is MoveState.CONFIRMED
        store(cursors)
        assert entries(get(cursors).slices)[1] == b"one"

    def test_is_confirmed_by_a_client_that_leaves(self, cursors: Cursors) -> None:
        cursors.unsubscribe(CLIENT)
        assert not cursors.gate.gaps(CLIENT)
        assert not cursors.gate.is_unsettled(CLIENT)

    def test_skipping_at_its_marker_settles_that_alone(self, cursors: Cursors, stream: Stream) -> None:
        store(cursors)
        marker = get(cursors)
        assert cursors.status(CLIENT).marks == [marker.batch_id]
        assert cursors.places.skip(CLIENT, self.begin, now=NOW) == self.begin
        assert only(cursors).state is MoveState.TOLD
        assert cursors.status(CLIENT).marks == []
        store(cursors)
        assert entries(get(cursors, 3).slices) == [b"begin", b"one", b"end"]

    def test_skipping_the_transaction_after_it_leaves_the_marker(self, cursors: Cursors, stream: Stream) -> None:
        store(cursors)
        cursors.places.skip(CLIENT, stream.position(31), now=NOW)
        store(cursors)
        assert markers(get(cursors))
        assert entries(get(cursors).slices) == [b"begin", b"two", b"end"]

    def test_a_range_is_refused_until_it_is_confirmed(self, cursors: Cursors) -> None:
        with pytest.raises(GapError, match=r"client 1001 does not get changes from .*: purge"):
            cursors.ranges.mark(CLIENT, self.begin, RangeLimits(), now=NOW)
        cursors.gate.confirm(CLIENT)
        store(cursors)
        found = cursors.ranges.mark(CLIENT, self.begin, RangeLimits(), now=NOW)
        assert found is not None
        assert found.rows == 2

    def test_the_next_life_tells_it_as_well(self, cursors: Cursors, stream: Stream) -> None:
        moves = cursors.clients.take_changes().moves
        stored = {it: [Move.of(one.stored()) for one in all_] for it, all_ in moves.items()}
        again = Cursors(Ring(64), epoch=3, compile_filter=one_table, gate=Gate(stored))
        again.restore(StoredClient(CLIENT, "", Cursor.at(self.begin)), NOW)
        again.begin(self.begin, None)
        again.advance(NOW)
        assert markers(get(again))


class TestAGapOfAClientThatIsServed:
    def test_is_told_between_two_transactions_and_once(self, cursors: Cursors) -> None:
        assert get(cursors, 1).entries == 1
        cursors.gate.jump(CLIENT, gap())
        store(cursors)
        assert entries(get(cursors, 1).slices) == [b"two"]
        assert entries(get(cursors, 1).slices) == [b"end"]
        assert markers(get(cursors))
        assert entries(get(cursors, 1).slices) == [b"begin"]

    def test_is_told_and_nothing_beyond_can_be_acked_from_then_on(self, cursors: Cursors, stream: Stream) -> None:
        (client,) = cursors.clients.stored()
        later = Cursors(cursors.ring, epoch=2, compile_filter=one_table, gate=Gate({CLIENT: (gap(),)}))
        later.begin(stream.position(3), None)
        later.restore(client, NOW)
        later.advance(NOW)
        assert markers(get(later))
        with pytest.raises(BadPositionError, match="beyond what client"):
            later.ack_to(CLIENT, stream.end, now=NOW)

    def test_of_the_stream_itself_is_told_to_those_that_it_serves(self, cursors: Cursors, stream: Stream) -> None:
        for client_id, text in ((2, "shop.orders"), (3, "shop.orders")):
            cursors.subscribe(client_id, filter_text=text, now=NOW)
        cursors.fall_out(2, GoneError("its place is lost"))
        cursors.unsubscribe(3)
        cursors.gate.confirm(3)
        read, begin = stream.end, stream.position(40)
        assert cursors.places.pass_gap("it is purged", None, begin, ALICE) == []
        assert cursors.places.pass_gap("it is purged", read, begin, ALICE) == [CLIENT]
        assert (only(cursors).before, only(cursors).after) == (str(read), str(begin))
        assert only(cursors).state is MoveState.TOLD, "by a marker in the stream"

    def test_does_not_swallow_a_place_that_the_stream_comes_to(self, cursors: Cursors, stream: Stream) -> None:
        later = stream.position(30)
        cursors.subscribe(2, start=str(later), now=NOW)
        assert cursors.places.pass_gap("it is purged", None, later, ALICE) == []
        assert cursors.status(2).state == "ahead"


class TestTheRecords:
    def test_are_read_as_they_were_written(self) -> None:
        for it in (move(), gap(detail="x", rows=0, held=True, joined=7), move(Reason.REMOVE, members=("a", "b"))):
            assert Move.of(json.loads(json.dumps(it.stored()))) == it

    @pytest.mark.parametrize("data", [{}, {"reason": "no", "time": 1, "state": "asked", "held": True}, {"time": "x"}])
    def test_that_are_something_else_are_refused(self, data: dict[str, object]) -> None:
        with pytest.raises((ValueError, KeyError)):
            Move.of(data)

    def test_of_earlier_versions_stand_for_one_jump(self) -> None:
        stored = move().stored()
        del stored["joined"]
        assert Move.of(stored).joined == 1

    def test_are_of_a_client_that_left_until_it_comes_back(self) -> None:
        assert move(Reason.UNSUBSCRIBE, after="").has_left
        assert not move(Reason.UNSUBSCRIBE, after="there").has_left
        assert not move(Reason.SEEK, after="").has_left, "its place has no name yet"

    def test_say_where_a_client_goes_on_once_and_only_the_last_one_does(self) -> None:
        gate = Gate({CLIENT: [move(after="first"), move(Reason.UNSUBSCRIBE, after="")]})
        gate.arrive(CLIENT, "here")
        gate.arrive(CLIENT, "later")
        assert [it.after for it in gate.moves[CLIENT]] == ["first", "here"]

    def test_of_a_client_have_a_last_one_which_alone_says_where_it_goes_on(self) -> None:
        gate, first = Gate(), move(Reason.SEEK, after="there")
        assert gate.last(CLIENT) is None
        gate.jump(CLIENT, first)
        left = move(Reason.UNSUBSCRIBE, after="")
        gate.jump(CLIENT, left)
        assert gate.last(CLIENT) == left
        gate.arrive(CLIENT, "here")
        assert gate.moves[CLIENT] == (first, move(Reason.UNSUBSCRIBE, after="here"))

    def test_of_a_client_that_expired_are_no_gap_before_its_place_has_a_name(self) -> None:
        gate = Gate({CLIENT: [move(Reason.EXPIRE, after="")]})
        gate.arrive(CLIENT, "")
        assert gate.moves[CLIENT][0].state is MoveState.ASKED

    def test_are_waited_for_only_if_one_is_new(self) -> None:
        gate = Gate()
        gate.jump(CLIENT, gap())
        assert not gate.is_stored(CLIENT)
        gate.take_changes()
        gate.end_store(durable=True)
        gate.confirm(CLIENT)
        assert gate.changed
        assert gate.is_stored(CLIENT)

    def test_are_bounded_and_history_is_joined_before_gaps(self) -> None:
        gate = Gate()
        gate.jump(CLIENT, gap(before="first"))
        for number in range(2 * MOST_MOVES):
            gate.jump(CLIENT, move(before=str(number), after=str(number + 1), rows=1))
        moves = gate.moves[CLIENT]
        assert len(moves) == MOST_MOVES
        assert moves[0] == gap(before="first")
        assert (moves[1].before, moves[1].rows, moves[1].joined) == ("0", MOST_MOVES + 2, MOST_MOVES + 2)

    def test_of_a_removed_member_name_the_place_after_which_that_is_missing(self) -> None:
        text = str(move(Reason.REMOVE, before="x/1", after="x/1", detail="member x was removed"))
        assert text == "changes after x/1: remove (member x was removed)"

    def test_that_are_joined_name_the_members_of_each(self) -> None:
        gate = Gate()
        for member in ("b", "a"):
            gate.jump(CLIENT, move(Reason.REMOVE, members=(member,)))
        for _ in range(MOST_MOVES):
            gate.jump(CLIENT, move())
        assert gate.moves[CLIENT][0].members == ("a", "b")

    def test_of_too_many_gaps_are_joined_and_stay_open(self) -> None:
        gate = Gate()
        for number in range(MOST_MOVES + 1):
            gate.jump(CLIENT, gap(before=str(number), after=str(number + 1)))
            gate.tell(CLIENT, gate.untold(CLIENT)[-1:] if number == 1 else ())
        assert len(gate.moves[CLIENT]) == MOST_MOVES
        first, *rest = gate.gaps(CLIENT)
        assert (first.before, first.after, first.joined, first.state) == ("0", "2", 2, MoveState.OPEN)
        assert len(rest) == MOST_MOVES - 1

    @pytest.mark.parametrize("history", [1, 2])
    def test_of_history_and_too_many_gaps_are_joined_as_long_as_there_are_two_of_a_kind(self, history: int) -> None:
        gate = Gate({CLIENT: [move(before=str(number)) for number in range(history)]})
        for _ in range(MOST_MOVES - history + 1):
            gate.jump(CLIENT, gap())
        joined = [it.joined for it in gate.moves[CLIENT]]
        assert joined == ([1, 2, *[1] * (MOST_MOVES - 2)] if history == 1 else [2, *[1] * (MOST_MOVES - 1)])

    def test_that_are_joined_say_what_holds_for_all_of_them(self) -> None:
        moves = [move(held=True, rows=1), move(held=False, rows=None), *[gap()] * (MOST_MOVES - 2)]
        gate = Gate({CLIENT: moves})
        gate.jump(CLIENT, gap())
        assert (gate.moves[CLIENT][0].held, gate.moves[CLIENT][0].rows) == (False, None)

    def test_of_clients_that_left_are_bounded_but_not_those_with_open_gaps(self) -> None:
        gate = Gate({0: [gap(), move(Reason.EXPIRE, after="", time=0)], 1: [move(after="there", time=MOST_LEFT * 2)]})
        for client_id in range(1, MOST_LEFT + 1):
            gate.jump(client_id, move(Reason.UNSUBSCRIBE, after="", time=client_id))
        gate.take_changes()
        gate.end_store(durable=True)
        gate.jump(MOST_LEFT + 1, move(Reason.UNSUBSCRIBE, after="", time=MOST_LEFT + 1))
        assert len(gate.moves) == MOST_LEFT + 1
        assert 0 in gate.moves
        assert 1 not in gate.moves
        assert gate.changed
        assert gate.is_stored(1), "nothing is given to one that has left"
        assert gate.take_changes()[1] == ()

    def test_have_short_texts(self) -> None:
        gate = Gate()
        gate.jump(CLIENT, move(who="w" * 10_000, detail="d" * 10_000))
        assert len(gate.moves[CLIENT][0].who) == len(gate.moves[CLIENT][0].detail) == 500


def test_a_client_that_was_lost_when_it_left_is_unsettled_until_it_says_what_becomes_of_that() -> None:
    gate = Gate()
    gate.jump(CLIENT, move(Reason.UNSUBSCRIBE, after="", held=False))
    assert gate.is_unsettled(CLIENT)
    assert gate.confirm(CLIENT) == 1
    assert not gate.is_unsettled(CLIENT)


def test_a_place_outside_of_the_next_transaction_is_not_that_of_a_marker(cursors: Cursors, stream: Stream) -> None:
    with pytest.raises(BadPositionError):
        cursors.places.skip(CLIENT, Position.parse(str(stream.position(0))), now=NOW)


def test_a_jump_keeps_the_places_of_all_members() -> None:
    position = Position("source", "mysql-bin.000001", 1795956787, 4, 0)
    cut = str(Cut({f"member{number}": position for number in range(64)}))
    move = Move(Reason.REMOVE, cut, cut, "the server", 1, MoveState.OPEN, detail="x" * 1000)
    read = Move.of(json.loads(json.dumps(move.stored())))
    assert (read.before, read.after) == (cut, cut)
    assert len(read.detail) < len(move.detail)


class TestWhereRemovedMembersEnd:
    NAMES = tuple(f"warehouse{number:02}" for number in range(40))
    CUT = Cut({name: Position(name, "mysql-bin.000001", 1795956787, 4, 0) for name in NAMES})

    def told(self, stored: list[Move]) -> list[int]:
        """Who is told after a restart of what may be missing."""
        cursors = Cursors(Ring(64), epoch=2, compile_filter=one_table, gate=Gate({CLIENT: stored}))
        cursors.restore(StoredClient(CLIENT, "", Cursor.at(self.CUT)), NOW)
        cursors.begin(self.CUT, None)
        return cursors.places.pass_removed_before(self.NAMES, By())

    def noted(self) -> dict[str, Any]:
        cursors = Cursors(Ring(64), epoch=1, compile_filter=one_table)
        cursors.begin(self.CUT, None)
        cursors.subscribe(CLIENT, now=NOW)
        cursors.places.note_removed(self.NAMES, By())
        return dict(json.loads(json.dumps(only(cursors).stored())))

    def test_is_known_after_a_restart_of_as_many_as_there_can_be(self) -> None:
        assert self.told([Move.of(self.noted())]) == []
        assert self.told([]) == [CLIENT]

    def test_is_known_of_the_members_that_a_record_names(self) -> None:
        assert self.told([Move.of(self.noted() | {"members": self.NAMES[1:]})]) == [CLIENT]

    def test_is_known_of_those_that_the_text_of_an_earlier_version_names(self) -> None:
        names, text = ["warehouse01", "warehouse05"], "member warehouse01 was removed, member warehouse05 was removed"
        stored = self.noted() | {"detail": text}
        del stored["members"]
        assert Move.of(stored).members == tuple(names)
        assert Move.of(stored | {"reason": "seek"}).members == ()
