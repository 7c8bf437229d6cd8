"""The judge of a run can say no: each of these journals has one flaw, or what looks like one and is allowed."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from tests.chaos.checker import LATENESS, ClientChecker, check_epochs, check_log, judge_topic, switches, taken_over
from tests.chaos.journal import (
    IDS_PER_EPOCH,
    Acked,
    Broken,
    Copied,
    Done,
    Event,
    Failed,
    Logged,
    Moved,
    Purged,
    Received,
    TakenOver,
)
from tests.chaos.plan import LONE, SHARED, make_plan
from tests.chaos.topics import check_topic

WRITTEN = {"t": list(range(1, 101)), "u": list(range(101, 121))}


def batch(at: float, epoch: int, first: int, last: int, *, ended: int | None = None, table: str = "t") -> Received:
    """A batch that ends where a transaction does, unless ``ended`` says where the last one does."""
    batch_id = epoch * IDS_PER_EPOCH + int(at * 10)
    ended = last if ended is None else ended
    return Received(at - 0.1, at, batch_id, f"binlog:{last}", ((table, first, last),), ended)


def ack(what: Received, at: float, answer: str = "ok", server: str = "a") -> Acked:
    return Acked(at - 0.05, at, server, what.batch_id, "", answer)


def ack_to(what: Received, at: float, server: str) -> Acked:
    return Acked(at - 0.05, at, server, 0, what.to, "ok")


def judge(
    events: Iterable[Event],
    *,
    durable: bool = True,
    complete: bool = False,
    done: Iterable[Done] = (),
    owners: Iterable[TakenOver] = (),
) -> list[str]:
    return ClientChecker(WRITTEN, owners, done, durable=durable).check(events, complete=complete)


ALL = [batch(1, 1, 1, 60), batch(2, 1, 61, 100), batch(3, 1, 101, 120, table="u")]


def test_everything_once_and_in_order_is_well() -> None:
    assert judge(ALL, complete=True) == []


class TestDelivery:
    def test_a_number_that_never_came_is_lost(self) -> None:
        assert judge(ALL[:2], complete=True) == ["lost: 20 numbers of u, from 101 on"]

    def test_a_number_must_not_be_skipped_even_if_it_comes_later(self) -> None:
        late = [batch(1, 1, 1, 50), batch(2, 1, 61, 100), batch(3, 1, 51, 60)]
        assert ["goes on with 61 of t: 51 is next" in it for it in judge(late)] == [True]

    def test_what_was_never_written_is_not_a_delivery(self) -> None:
        assert "never written" in judge([batch(1, 1, 1, 200)])[0]

    def test_order_within_a_batch_counts(self) -> None:
        swapped = Received(0, 1, IDS_PER_EPOCH, "p", (("t", 6, 10), ("t", 1, 5)), 10)
        assert any("not in the order" in it for it in judge([swapped]))

    def test_a_consumer_that_fails_fails_the_run(self) -> None:
        assert "GoneError" in judge([Failed(1.0, "GoneError: it is gone")])[0]


class TestWhatWasPurged:
    LATE = (batch(1, 1, 1, 50), batch(3, 2, 61, 100), batch(4, 2, 101, 120, table="u"))
    PURGED = Purged(2, "first", {"shop": {"t": 60, "u": 0}, "depot": {}})

    def test_it_may_be_missing_where_the_client_was_told_so_or_moved(self) -> None:
        told = Received(2.4, 2.5, 2 * IDS_PER_EPOCH, "p", (), 0, marked=True)
        assert judge([*self.LATE, told], done=[self.PURGED], complete=True) == []
        assert judge(self.LATE, done=[self.PURGED, Moved(2.5, "d-1", "purged")], complete=True) == []

    def test_it_is_lost_where_nothing_says_so(self) -> None:
        assert "nothing says so" in judge(self.LATE, done=[self.PURGED])[0]
        assert "nothing says so" in judge(self.LATE, done=[self.PURGED, Moved(5, "d-1", "purged")])[0]

    @pytest.mark.parametrize(
        "purged", [Purged(3.5, "first", PURGED.last), Purged(2, "first", {"shop": {"t": 59, "u": 120}})]
    )
    def test_what_the_source_still_had_is_lost(self, purged: Purged) -> None:
        assert "not purged" in judge(self.LATE, done=[purged, Moved(2.5, "d-1", "purged")])[0]


class TestSnapshots:
    COPIED = Copied(1.5, "d-1", "3", "t")

    @staticmethod
    def read(at: float, first: int, last: int, snapshot: str = "3") -> Received:
        return Received(at - 0.1, at, IDS_PER_EPOCH + 77, "p", (), 0, (("t", first, last),), snapshot)

    def test_one_has_what_was_delivered_before_it(self) -> None:
        assert judge([*ALL, self.read(2.5, 1, 30), self.read(4, 31, 100)], done=[self.COPIED], complete=True) == []

    def test_a_row_that_it_lacks_is_lost(self) -> None:
        events = [*ALL, self.read(4, 1, 59), self.read(5, 60, 60, "2")]
        assert judge(events, done=[self.COPIED], complete=True) == ["1.500: snapshot 3 of t lacks 1 rows, 60 first"]

    def test_a_row_must_not_come_before_its_insert(self) -> None:
        assert "up to 61 of t, of which 61 is next" in judge([ALL[0], self.read(1.5, 1, 61)])[0]

    def test_a_row_that_was_never_written_is_none(self) -> None:
        assert "never written" in judge([*ALL, self.read(5, 100, 101)])[0]


class TestRepeats:
    def test_what_was_not_acked_may_come_again(self) -> None:
        assert judge([batch(1, 1, 1, 50), batch(2, 1, 1, 50), batch(3, 2, 1, 60)]) == []

    def test_what_was_acked_comes_no_more_in_the_same_epoch(self) -> None:
        one = batch(1, 1, 1, 50)
        assert "in the same epoch" in judge([one, ack(one, 1.5), batch(2, 1, 41, 60)], durable=False)[0]

    def test_after_a_switch_a_transaction_that_was_acked_in_part_comes_again_as_a_whole(self) -> None:
        part = Received(0.9, 1, IDS_PER_EPOCH + 10, "p10", (("t", 1, 45),), 40)
        events: list[Event] = [part, ack(part, 1.5)]
        switch = Broken(1.4, 2.5, "switch shop", "shop")
        assert judge([*events, batch(2, 1, 41, 60)], done=[switch]) == []
        assert "up to 40 was acked" in judge([*events, batch(2, 1, 40, 60)], done=[switch])[0]
        assert "up to 45 was acked" in judge([*events, batch(2, 1, 41, 60)], done=[replace(switch, ended=1.45)])[0]

    def test_a_batch_that_was_asked_for_before_the_answer_may_overtake_it(self) -> None:
        one = batch(1, 1, 1, 50)
        assert judge([one, ack(one, 1.95), batch(2, 1, 41, 60)]) == []

    def test_what_was_durably_acked_comes_no_more_in_a_later_epoch(self) -> None:
        one = batch(1, 1, 1, 50)
        assert "had to be durable" in judge([one, ack(one, 1.5), batch(2, 2, 41, 60)])[0]
        assert judge([one, ack(one, 1.5), batch(2, 2, 51, 60)]) == []

    def test_an_ack_without_an_answer_promises_nothing(self) -> None:
        one = batch(1, 1, 1, 50)
        assert judge([one, ack(one, 1.5, "unknown"), batch(2, 2, 1, 60)]) == []

    def test_a_transaction_that_was_acked_in_part_may_come_again(self) -> None:
        one = batch(1, 1, 1, 50, ended=40)
        assert judge([one, ack(one, 1.5), batch(2, 2, 41, 60)]) == []
        assert judge([one, ack(one, 1.5), batch(2, 2, 40, 60)]) != []

    def test_where_cursors_are_stored_each_period_one_period_may_come_again(self) -> None:
        one, two = batch(1, 1, 1, 50), batch(2, 1, 51, 60)
        assert judge([one, ack(one, 1.5), two, ack(two, 2.5), batch(3, 2, 1, 60)], durable=False) == []

    def test_where_cursors_are_stored_each_period_no_more_may_come_again(self) -> None:
        one, two = batch(1, 1, 1, 50), batch(9, 1, 51, 60)
        events: list[Event] = [one, ack(one, 1.5), two, ack(two, 9.5)]
        assert "had to be durable" in judge([*events, batch(12, 2, 50, 60)], durable=False)[0]
        assert judge([*events, batch(12, 2, 51, 60)], durable=False) == []

    def test_a_server_that_had_lost_zookeeper_had_its_lease_to_take_acks(self) -> None:
        one, two = batch(1, 1, 1, 50), batch(6, 1, 51, 60)
        events: list[Event] = [one, ack(one, 1.5), two, ack(two, 6.5), batch(9, 2, 1, 60)]
        assert judge(events, durable=False) != []
        assert judge(events, durable=False, done=[Broken(5, 8, "cut from zookeeper server0", "server0")]) == []

    def test_an_ack_by_a_position_belongs_to_the_epoch_of_the_server_that_took_it(self) -> None:
        owners = [TakenOver(0.5, "a", "d", 1), TakenOver(1.2, "b", "d", 2)]
        one, again = batch(1, 1, 1, 50), batch(1.4, 2, 1, 50)
        assert judge([one, again, ack_to(one, 1.6, "b"), batch(2, 2, 51, 60)], owners=owners) == []
        assert "same epoch" in judge([one, ack_to(one, 1.6, "b"), batch(2, 2, 41, 60)], owners=owners)[0]
        assert "durable" in judge([one, ack_to(one, 1.6, "a"), batch(2, 2, 41, 60)], owners=owners)[0]


class TestStaleAcks:
    def test_one_must_be_refused_when_a_later_epoch_has_begun(self) -> None:
        old, new = batch(1, 1, 1, 50), batch(2, 2, 51, 60)
        assert "accepts an ack of 1000000010" in judge([old, new, ack(old, 2.5)])[0]
        assert judge([old, new, ack(old, 2.5, "unknown-batch")]) == []

    def test_one_that_was_answered_must_be_in_the_cursors_of_the_later_epoch(self) -> None:
        old, new = batch(1, 1, 1, 50), batch(2, 2, 1, 60)
        sent_before = Acked(1.5, 2.5, "a", old.batch_id, "", "ok")
        assert "had to be durable" in judge([old, new, sent_before])[0]

    def test_one_of_something_that_never_came_must_be_refused(self) -> None:
        assert "never came" in judge([Acked(1, 2, "a", 77, "", "ok")])[0]


class TestServers:
    def test_an_epoch_belongs_to_one_server_and_grows(self) -> None:
        one, two = TakenOver(1, "a", "d", 1), TakenOver(2, "b", "d", 2)
        assert check_epochs([one, one, two, TakenOver(2, "a", "e", 1)]) == []
        assert "after 2 of b" in check_epochs([one, two, TakenOver(3, "a", "d", 2)])[0]

    def test_a_server_that_was_stopped_while_it_began_has_taken_over_once(self) -> None:
        """It writes the rest of its lines when another server has the destination, and gives up."""
        stopped = [Logged(1.0, "INFO", "d", "active, epoch 1", False), Logged(9.0, "INFO", "d", "epoch 1", False)]
        other = [Logged(5.0, "INFO", "d", "active, epoch 2", False), Logged(5.1, "INFO", "d", "epoch 2", False)]
        owners = [*taken_over("a", stopped), *taken_over("b", other)]
        assert owners == [TakenOver(1.0, "a", "d", 1), TakenOver(5.0, "b", "d", 2)]
        assert check_epochs(owners) == []

    @pytest.mark.parametrize(
        ("level", "message", "trace", "wrong"),
        [
            ("INFO", "running", False, False),
            ("ERROR", "error: cannot log in to 127.0.0.1:3306 as 'cdc': refused", False, False),
            ("ERROR", "error: a column has an unknown type", False, True),
            ("WARNING", "anything", True, True),
            ("ERROR", "stopped: destination:d is not active here", False, False),
            ("ERROR", "stopped: the session 0x1 with ZooKeeper is over", False, False),
            ("ERROR", "it cannot start: the disk is not active here", False, True),
        ],
    )
    def test_tracebacks_and_errors_that_no_fault_explains_are_reported(
        self, level: str, message: str, trace: bool, wrong: bool
    ) -> None:
        assert bool(check_log("a", [Logged(1.0, level, "d", message, trace)])) == wrong


def test_a_seed_stands_for_one_sequence() -> None:
    assert make_plan(7, 60) == make_plan(7, 60)
    assert make_plan(7, 60) != make_plan(8, 60)
    shorter, longer = make_plan(7, 30).faults, make_plan(7, 60).faults
    assert longer[: len(shorter)] == shorter


NUMBERS = [(number, table) for table, numbers in WRITTEN.items() for number in numbers]


def test_a_destination_loses_its_source_for_so_long_that_it_switches_by_itself() -> None:
    plan = make_plan(7, 180)
    losses = [it for it in plan.faults if it.kind == "switch by itself"]
    assert len(losses) >= 5
    assert {it.target for it in losses} == {plan.automatic} < set(SHARED)


def test_switches_of_the_source_are_those_that_a_server_has_logged() -> None:
    lines = [
        Logged(1.0, "INFO", "shop", "switching from db1:3306 to db2:3306", is_trace=False),
        Logged(1.5, "INFO", "depot", "switching from db1:3306 to db2:3306", is_trace=False),
        Logged(2.0, "ERROR", "depot", "the switch to db2:3306 is refused: no answer", is_trace=False),
        Logged(3.0, "WARNING", "shop", "reads db2:3306 from here on, no longer db1:3306", is_trace=False),
    ]
    assert switches(lines) == [Broken(1.0, 3.0 + LATENESS, "switch of the source", "shop")]


class TestTopics:
    def test_with_transactions_none_comes_again(self) -> None:
        assert judge_topic("d-once", {"d": WRITTEN}, [(0, NUMBERS)]) == ([], 0)
        problems, _ = judge_topic("d-once", {"d": WRITTEN}, [(0, NUMBERS[:60]), (0, NUMBERS[40:])])
        assert problems == ["20 numbers come again"]
        again = [(0, NUMBERS[:60]), (0, NUMBERS[40:])]
        assert judge_topic("d-once", {"d": WRITTEN}, again, moved=True) == ([], 20), "as an operator has asked for"

    def test_a_server_that_has_lost_the_destination_may_write_what_it_had(self) -> None:
        found = [(0, NUMBERS[:60]), (0, NUMBERS[40:50]), (0, NUMBERS[60:])]
        assert judge_topic("d-again", {"d": WRITTEN}, found) == ([], 10)
        assert "61 of t: 51 is next" in judge_topic(f"{LONE}-again", {LONE: WRITTEN}, found)[0][0]
        assert "ends before 51" in judge_topic("d-again", {"d": WRITTEN}, [(0, NUMBERS[:50])])[0][0]

    def test_readers_drop_what_comes_again_with_its_commit_ts(self) -> None:
        one, two, three = (5, NUMBERS[:60]), (6, NUMBERS[60:80]), (8, NUMBERS[80:])
        assert judge_topic("d-tidb", {"d": WRITTEN}, [one, two, one, two, three]) == ([], 80)
        again = [one, two, (7, two[1]), three]
        problems, _ = judge_topic("d-tidb", {"d": WRITTEN}, again)
        assert problems == ["20 numbers come again"]
        assert judge_topic("d-tidb", {"d": WRITTEN}, again, anew=True) == ([], 20), "another server is read"
        problems, _ = judge_topic("d-once", {"d": WRITTEN}, [(0, numbers) for _, numbers in again], anew=True)
        assert problems == ["20 numbers come again"]
        problems, _ = judge_topic("d-tidb", {"d": WRITTEN}, [one, two, (6, two[1][:9]), three])
        assert "61 comes with commit_ts 6, which stood for" in problems[0]
        problems, _ = judge_topic("d-tidb", {"d": WRITTEN}, [one, (5, two[1]), three])
        assert "commit_ts 5" in problems[0]
        assert "goes on with 81 of t: 61 is next" in problems[1]

    def test_a_stretch_that_comes_again_is_allowed(self) -> None:
        assert check_topic(WRITTEN, [*NUMBERS[:60], *NUMBERS[40:]]) == ([], 20)

    @pytest.mark.parametrize(
        ("found", "said"),
        [
            ([*NUMBERS[:60], *NUMBERS[61:]], "goes on with 62 of t: 61 is next"),
            ([*NUMBERS[:60], *NUMBERS[40:50], *NUMBERS[60:]], "goes on with 61 of t: 51 is next"),
            ([*NUMBERS[:60], *NUMBERS[40:50]], "ends before 51"),
            ([], "ends before 1"),
            ([*NUMBERS, (7, "u")], "7 of u, which was never written"),
        ],
        ids=["a gap", "a gap among what comes again", "half of a stretch", "nothing", "something else"],
    )
    def test_anything_else_is_not(self, found: list[tuple[int, str]], said: str) -> None:
        (problem,), _ = check_topic(WRITTEN, found)
        assert said in problem
