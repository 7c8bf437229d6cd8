"""Which clients have a catch-up reader, and for how long."""

import pytest

from sluice.store.patience import IDLE, TURN, Holder, Pace, Turns, replaceable

A: Holder = ("client", 1)
B: Holder = ("client", 2)
C: Holder = ("client", 3)
RANGE: Holder = ("ranges", 1)
PATIENCE = 100.0


def begun(places: int, *holders: Holder, now: float = 0.0, patience: float = PATIENCE, moved: bool = True) -> Turns:
    """Turns that all these have; ``moved``: their readers have moved them on at once."""
    turns = Turns(places, patience)
    for who in holders:
        turns.ask(who, now)
        assert turns.begin(now) == who
        if moved:
            turns.move(who, now)
    return turns


def test_turns_come_in_the_order_of_asking_and_no_more_than_there_are_readers() -> None:
    turns = Turns(2, PATIENCE)
    for who in (B, A, C, B):
        turns.ask(who, 0.0)
    assert [turns.begin(0.0) for _ in range(3)] == [B, A, None]
    turns.leave(A)
    assert turns.begin(0.0) == C


def test_a_reader_in_use_is_kept_while_no_other_client_waits() -> None:
    turns = begun(1, A)
    for now in range(0, 10_000, int(IDLE)):
        turns.ask(A, now)
        assert turns.finished(now) == []
        assert not turns.is_over(A, now)


@pytest.mark.parametrize(("busy", "seconds"), [(False, TURN), (True, TURN + PATIENCE)])
def test_turn_ends_while_another_waits_when_all_is_confirmed_or_patience_is_over(busy: bool, seconds: float) -> None:
    turns = begun(1, A)
    turns.set_busy(A, busy=busy)
    turns.ask(B, 0.0)
    assert not turns.is_over(A, TURN)
    turns.ask(A, seconds)
    assert turns.finished(seconds) == []
    assert turns.is_over(A, seconds + 1)
    assert turns.finished(seconds + 1) == [A]
    turns.leave(A)
    turns.ask(A, seconds + 1)
    turns.ask(B, seconds + 1)
    assert turns.begin(seconds + 1) == B
    assert turns.begin(seconds + 1) is None


def test_turn_counts_from_when_the_reader_has_moved_its_holder_on() -> None:
    turns = begun(1, A, moved=False)
    turns.ask(B, 0.0)
    turns.ask(A, 50.0)
    turns.move(A, 50.0)
    assert not turns.is_over(A, 50.0 + TURN)
    assert turns.finished(50.0 + TURN) == []
    turns.move(A, 50.0 + TURN)
    assert turns.is_over(A, 51.0 + TURN)
    assert turns.finished(51.0 + TURN) == [A]


def test_reader_that_does_not_move_its_holder_on_goes_to_another_after_the_patience_though_the_holder_calls() -> None:
    turns = begun(1, A, moved=False)
    turns.ask(B, 0.0)
    turns.ask(A, PATIENCE)
    assert turns.finished(PATIENCE) == []
    turns.ask(A, PATIENCE + 1)
    assert turns.is_over(A, PATIENCE + 1)
    assert turns.finished(PATIENCE + 1) == [A]


def test_only_as_many_turns_end_as_clients_wait_oldest_first() -> None:
    turns = begun(2, A)
    turns.ask(B, 1.0)
    assert turns.begin(1.0) == B
    turns.move(B, 1.0)
    turns.ask(C, 2.0)
    assert turns.finished(2 * TURN) == [A]


@pytest.mark.parametrize(
    ("who", "patience", "seconds"), [(A, PATIENCE, PATIENCE), (A, 1.0, IDLE), (RANGE, PATIENCE, IDLE)]
)
@pytest.mark.parametrize("busy", [True, False])
def test_reader_is_not_kept_for_a_client_that_is_gone_even_if_no_other_waits(
    who: Holder, patience: float, seconds: float, busy: bool
) -> None:
    turns = begun(1, who, patience=patience)
    turns.set_busy(who, busy=busy)
    assert turns.finished(seconds) == []
    assert turns.finished(seconds + 1) == [who]


def test_clients_that_are_gone_are_not_waited_for() -> None:
    turns = begun(1, A)
    turns.ask(B, 0.0)
    turns.ask(C, PATIENCE)
    turns.leave(A)
    assert turns.begin(PATIENCE + 1) == C


def test_time_in_the_queue_counts_for_clients_that_are_gone() -> None:
    turns = begun(1, A)
    turns.ask(B, 0.0)
    turns.leave(A)
    assert turns.begin(PATIENCE) == B
    assert turns.finished(PATIENCE) == []
    assert turns.finished(PATIENCE + 1) == [B]


@pytest.mark.parametrize("places", [1, 2])
def test_ranges_and_clients_each_have_their_share(places: int) -> None:
    turns = begun(places, *[A, B][:places])
    turns.ask(C, 0.0)
    turns.ask(RANGE, 0.0)
    turns.leave(A)
    assert turns.begin(0.0) == RANGE
    turns.leave(RANGE)
    turns.ask(("ranges", 2), 0.0)
    assert turns.begin(0.0) == (C if places == 1 else ("ranges", 2))


def test_clock_that_goes_back_does_not_extend_how_long_a_reader_is_kept() -> None:
    turns = begun(1, A, now=1e6)
    turns.ask(B, 0.0)
    assert turns.finished(0.0) == []
    turns.ask(A, TURN + 1)
    assert turns.finished(TURN + 1) == [A]


def test_clock_that_goes_back_does_not_extend_how_long_a_place_in_the_queue_is_kept() -> None:
    turns = begun(1, A)
    turns.ask(B, 1000.0)
    turns.begin(0.0)  # the clock has gone back
    turns.leave(A)
    assert turns.begin(PATIENCE + 1) is None


def test_one_that_left_gets_no_turn() -> None:
    turns = Turns(1, PATIENCE)
    turns.ask(A, 0.0)
    turns.leave(A)
    assert turns.begin(0.0) is None


def test_as_many_turns_end_as_others_wait() -> None:
    turns = begun(3, A, B, C)
    for number in (1, 2):
        turns.ask(("ranges", number), TURN)
    for who in (A, B, C):
        turns.ask(who, TURN + 1)
    assert turns.finished(TURN + 1) == [A, B]


def test_turn_goes_on_while_a_reader_is_free_for_the_one_that_waits() -> None:
    turns = begun(2, A)
    turns.ask(B, TURN)
    assert not turns.is_over(A, TURN + 1)
    assert turns.finished(TURN + 1) == []


FULL, SLOW, FAST = 100, 1, 2


def test_goal_is_the_end_of_a_ring_that_was_full() -> None:
    pace = Pace(20.0)
    assert pace.too_slow({SLOW: 0, FAST: 50}, 50, 0.0, full=False) == []
    assert not pace.running
    for now in (1.0, 60.0, 120.0):
        assert pace.too_slow({SLOW: 0, FAST: 50}, FULL, now, full=True) == [], "none has confirmed all of it"


def test_only_seconds_in_which_the_ring_is_full_count() -> None:
    pace = Pace(20.0)
    assert pace.too_slow({SLOW: 0, FAST: FULL}, FULL, 0.0, full=True) == []
    assert pace.too_slow({SLOW: 0, FAST: FULL}, FULL, 1.0, full=False) == []
    assert pace.too_slow({SLOW: 0, FAST: FULL}, FULL, 100.0, full=True) == []
    assert pace.too_slow({SLOW: 0, FAST: FULL}, FULL, 119.0, full=True) == []
    assert pace.too_slow({SLOW: 0, FAST: FULL}, FULL, 121.0, full=True) == [SLOW]


# --- a log on disk


def test_who_holds_nothing_leaves_a_full_ring_at_once_if_the_log_has_it() -> None:
    assert replaceable({1: 0, 2: 50, 3: 51, 4: 100}, first=0, end=100, logged=100) == [1, 2]


def test_nobody_leaves_before_the_log_has_what_it_needs() -> None:
    assert replaceable({1: 0, 2: 30}, first=0, end=100, logged=30) == [1]
    assert replaceable({1: 0, 2: 30}, first=0, end=100, logged=0) == []
