"""Which server serves a destination: what a server asks of ZooKeeper, and when it may serve. Without network."""

import math

import pytest

from sluice.protocol.errors import FencedError
from sluice.server.ha.election import HAD_BY_CANAL, HOLD_OFF, LAST_STORE, POLITENESS, State
from sluice.server.ha.operations import (
    REFUSED,
    UNKNOWN,
    Activate,
    Ask,
    Beat,
    Claim,
    Deactivate,
    Done,
    Load,
    Loaded,
    Look,
    Operation,
    Outcome,
    Release,
    Running,
    Seen,
    Store,
    Stored,
)
from sluice.server.ha.participant import BEATS, Participant
from sluice.server.ha.spread import misplaced, spread
from sluice.store.cursor import Changes, StoredClient

D, ME, OTHER, TIMEOUT = "example", "10.0.0.1:11111", "10.0.0.2:11111", 6.0
CLIENT = StoredClient(1001)
FREE = Seen(None, 4, 7)


class Host:
    """Answers what a participant asks."""

    def __init__(self) -> None:
        self.participant = Participant(ME)
        self.told: list[Activate | Deactivate | Stored] = []
        self.asked: list[Ask] = []
        self.now = 0.0
        self.participant.start(D)

    def open(self, session: int = 1) -> None:
        self.participant.opened(session, TIMEOUT, self.now)
        self.answer(Beat, Done())

    def take(self) -> None:
        for action in self.participant.take_actions():
            if isinstance(action, Ask):
                self.asked.append(action)
            else:
                self.told.append(action)

    def answer(self, kind: type[Operation], outcome: Outcome) -> Operation:
        """Answer the oldest question of this kind."""
        self.take()
        ask = next(ask for ask in self.asked if isinstance(ask.operation, kind))
        self.asked.remove(ask)
        self.participant.answered(ask.number, outcome, self.now)
        self.take()
        return ask.operation

    def activate(self, session: int = 1) -> None:
        self.open(session)
        self.answer(Look, FREE)
        self.answer(Claim, Done(8))
        self.answer(Load, Loaded((CLIENT,)))
        assert self.told.pop() == Activate(D, 5, (CLIENT,))

    @property
    def state(self) -> State:
        return self.participant.election(D).state

    @property
    def questions(self) -> list[Operation]:
        self.take()
        return [ask.operation for ask in self.asked]


@pytest.fixture
def host() -> Host:
    return Host()


def mine(session: int = 1, *, active: bool = True) -> Seen:
    return Seen(Running(session, ME, active), 5, 8)


class TestTakingOver:
    def test_one_whose_cursors_are_lost_is_not_taken_over_until_they_are_restored(self, host: Host) -> None:
        host.open()
        host.answer(Look, Seen(None, 4, 7, loss="run a command"))
        assert host.questions == []
        assert host.state is State.STANDBY
        assert host.participant.election(D).problem == "run a command"
        with pytest.raises(FencedError, match="run a command"):
            host.participant.check(D, host.now)
        host.participant.changed(D)
        host.answer(Look, FREE)
        assert host.questions == [Claim(D, 5, 7)]
        assert host.participant.election(D).problem == ""

    def test_cursors_are_read_after_the_epoch_was_raised(self, host: Host) -> None:
        host.open()
        assert host.answer(Look, FREE) == Look(D)
        assert host.questions == [Claim(D, 5, 7)]
        host.answer(Claim, Done(8))
        assert host.questions == [Load(D)]
        with pytest.raises(FencedError):
            host.participant.check(D, host.now)
        host.answer(Load, Loaded((CLIENT,)))
        assert host.told == [Activate(D, 5, (CLIENT,))]
        host.participant.check(D, host.now)

    def test_one_that_is_started_when_there_is_a_session_already_is_taken_over(self, host: Host) -> None:
        host.open()
        host.participant.start("late")
        assert Look("late") in host.questions

    def test_one_without_an_owner_is_looked_at_once_at_a_time_and_once_more_when_something_has_changed(
        self, host: Host
    ) -> None:
        host.open()
        host.answer(Look, UNKNOWN)
        host.participant.changed(D)
        host.participant.changed(D)
        assert host.questions == [Look(D)]
        host.answer(Look, FREE)
        assert host.questions == [Look(D)]
        host.answer(Look, FREE)
        assert host.questions == [Claim(D, 5, 7)]

    def test_a_change_that_is_heard_of_without_a_session_is_seen_in_the_next_one(self, host: Host) -> None:
        host.participant.changed(D)
        host.open()
        assert host.questions == [Look(D)]

    def test_cursors_that_could_not_be_read_are_read_again_unless_it_was_told_to_stop_meanwhile(
        self, host: Host
    ) -> None:
        host.open()
        host.answer(Look, FREE)
        host.answer(Claim, Done(8))
        host.answer(Load, UNKNOWN)
        assert host.questions == [Load(D)]
        host.participant.stop(D, host.now)
        host.answer(Load, UNKNOWN)
        assert host.questions == [Look(D)]

    def test_one_that_is_stopped_while_it_is_claimed_is_given_up(self, host: Host) -> None:
        host.open()
        host.answer(Look, FREE)
        host.take()
        host.participant.stop(D, host.now)
        host.answer(Claim, Done(8))
        host.answer(Look, mine())
        assert host.answer(Release, Done(8)) == Release(D, 8)
        host.answer(Look, FREE)
        assert (host.state, host.told) == (State.STOPPED, [])

    def test_one_whose_cursors_are_read_after_the_lease_is_over_is_given_up(self, host: Host) -> None:
        host.open()
        host.answer(Look, FREE)
        host.answer(Claim, Done(8))
        host.now = 4.0
        host.answer(Load, Loaded((CLIENT,)))
        host.answer(Look, mine())
        assert host.answer(Release, Done(8)) == Release(D, 8)
        assert host.told == []

    def test_an_answer_of_a_session_that_is_lost_is_ignored(self, host: Host) -> None:
        host.open()
        host.answer(Look, FREE)
        host.take()
        (claim,) = host.asked
        host.participant.expired(host.now)
        host.participant.answered(claim.number, Done(8), host.now)
        assert host.state is State.STANDBY

    def test_the_second_server_stands_by_and_names_the_first(self, host: Host) -> None:
        host.open()
        host.answer(Look, FREE)
        host.answer(Claim, REFUSED)
        host.answer(Look, Seen(Running(9, OTHER), 5, 8))
        host.participant.registered({OTHER: "https://other:8080"})
        with pytest.raises(FencedError) as caught:
            host.participant.check(D, host.now)
        assert (host.state, caught.value.active) == (State.STANDBY, "https://other:8080")

    def test_a_claim_without_an_answer_is_settled_by_the_owner_of_the_node(self, host: Host) -> None:
        host.open()
        host.answer(Look, FREE)
        host.answer(Claim, UNKNOWN)
        host.answer(Look, mine())
        assert host.questions == [Load(D)]

    def test_a_node_of_an_earlier_process_at_this_address_is_another_ones(self, host: Host) -> None:
        host.open(session=2)
        host.answer(Look, mine(session=1))
        assert (host.questions, host.state) == ([], State.STANDBY)

    def test_a_free_destination_is_left_for_a_moment_to_the_server_that_should_have_it(self, host: Host) -> None:
        assert spread([D], [ME, OTHER]) == {D: OTHER}
        host.participant.registered({ME: "", OTHER: ""})
        host.open()
        host.answer(Look, FREE)
        assert host.questions == []
        host.now = POLITENESS
        assert host.participant.deadline == host.now
        host.participant.tick(host.now)
        assert host.questions == [Claim(D, 5, 7)]

    def test_one_that_is_started_when_the_servers_are_known_is_left_to_the_one_that_should_have_it(
        self, host: Host
    ) -> None:
        late = "1"
        assert spread([D, late], [ME, OTHER]) == {D: ME, late: OTHER}
        host.participant.registered({ME: "", OTHER: ""})
        host.participant.start(late)
        host.open()
        for _ in (D, late):
            host.answer(Look, FREE)
        assert host.questions == [Claim(D, 5, 7)]
        assert host.participant.election(late).deadline == POLITENESS

    def test_nothing_is_due_while_it_looks_again(self, host: Host) -> None:
        host.participant.registered({ME: "", OTHER: ""})
        late = "1"
        host.participant.start(late)
        host.open()
        for _ in (D, late):
            host.answer(Look, FREE)
        host.participant.changed(late)
        assert host.participant.election(late).deadline == math.inf

    def test_the_moment_begins_again_when_another_server_had_it_meanwhile(self, host: Host) -> None:
        host.participant.registered({ME: "", OTHER: ""})
        host.open()
        host.answer(Look, FREE)
        host.participant.changed(D)
        host.answer(Look, Seen(Running(9, OTHER), 5, 8))
        host.now = 10.0
        host.participant.changed(D)
        host.answer(Look, FREE)
        host.now += 0.1
        host.participant.changed(D)
        host.answer(Look, FREE)
        assert host.participant.election(D).deadline == 10.0 + POLITENESS


class TestLease:
    def test_it_ends_two_thirds_of_the_timeout_after_the_last_beat_was_sent(self, host: Host) -> None:
        host.activate()
        host.now = 3.0
        host.participant.tick(host.now)
        host.now = 3.9
        host.answer(Beat, Done())
        host.participant.check(D, 6.99)
        with pytest.raises(FencedError, match="ZooKeeper has not answered"):
            host.participant.check(D, 7.0)

    def test_past_it_the_server_stands_down_and_gives_up_what_it_still_owns(self, host: Host) -> None:
        host.activate()
        host.now = 4.0
        host.participant.tick(host.now)
        host.take()
        assert host.told == [Deactivate(D)]
        with pytest.raises(FencedError):
            host.participant.store(D, Changes({1001: CLIENT}), 5, host.now)
        host.participant.deactivated(D, host.now)
        host.answer(Look, mine())
        assert host.answer(Release, Done()) == Release(D, 8)

    def test_a_lost_session_ends_it(self, host: Host) -> None:
        host.activate()
        host.participant.expired(host.now)
        with pytest.raises(FencedError):
            host.participant.check(D, host.now)
        assert not host.participant.lease.valid(host.now)
        host.take()
        assert host.told == [Deactivate(D)]
        assert host.participant.deadline == math.inf, "nothing is left to be stored"
        with pytest.raises(FencedError):
            host.participant.store(D, Changes({1001: CLIENT}), 5, host.now)

    def test_its_beats_are_sent_when_they_are_due_and_again_when_the_answer_was_lost(self, host: Host) -> None:
        host.open()
        assert host.participant.deadline == TIMEOUT / BEATS
        host.participant.tick(TIMEOUT / BEATS - 0.01)
        assert Beat() not in host.questions
        host.now = TIMEOUT / BEATS
        host.participant.tick(host.now)
        host.answer(Beat, UNKNOWN)
        host.answer(Beat, Done())
        assert Beat() not in host.questions

    def test_a_write_that_was_lost_is_not_repeated_when_it_is_over(self, host: Host) -> None:
        host.activate()
        host.participant.store(D, Changes({1001: CLIENT}), 5, host.now)
        host.answer(Store, UNKNOWN)
        host.now = 4.0
        host.answer(Look, mine())
        assert host.told == [Deactivate(D), Stored(D, durable=False)]
        assert [it for it in host.questions if isinstance(it, Store)] == []


class TestStoring:
    def test_a_write_names_the_version_of_the_epoch(self, host: Host) -> None:
        host.activate()
        host.participant.store(D, Changes({1001: CLIENT}), 5, host.now)
        assert host.answer(Store, Done(8)) == Store(D, 8, Changes({1001: CLIENT}))
        assert host.told == [Stored(D, durable=True)]

    def test_a_higher_epoch_is_stored_with_it(self, host: Host) -> None:
        host.activate()
        host.participant.store(D, Changes({}), 6, host.now)
        assert host.answer(Store, Done(9)) == Store(D, 8, Changes({}), 6)
        host.participant.store(D, Changes({}), 6, host.now)
        assert host.answer(Store, Done(9)) == Store(D, 9, Changes({}))

    def test_a_write_of_an_earlier_epoch_is_refused(self, host: Host) -> None:
        host.activate()
        with pytest.raises(FencedError):
            host.participant.store(D, Changes({1001: CLIENT}), 4, host.now)

    def test_none_is_begun_when_the_lease_is_over(self, host: Host) -> None:
        host.activate()
        host.now = 4.0
        with pytest.raises(FencedError):
            host.participant.store(D, Changes({1001: CLIENT}), 5, host.now)

    def test_others_wait_for_a_server_no_longer_than_its_lease(self, host: Host) -> None:
        host.activate()
        host.participant.store(D, Changes({1001: CLIENT}), 5, host.now)
        host.now = 4.0
        host.participant.tick(host.now)
        host.take()
        assert host.told == [Deactivate(D), Stored(D, durable=False)]

    def test_one_without_an_answer_is_repeated_while_the_session_owns_the_destination(self, host: Host) -> None:
        host.activate()
        host.participant.store(D, Changes({1001: CLIENT}), 6, host.now)
        host.answer(Store, UNKNOWN)
        host.answer(Look, Seen(Running(1, ME), 6, 9))
        assert host.answer(Store, Done(10)) == Store(D, 9, Changes({1001: CLIENT}), 6)
        assert host.told == [Stored(D, durable=True)]

    def test_it_is_repeated_once_for_each_answer_that_was_lost(self, host: Host) -> None:
        host.activate()
        for _ in range(2):
            host.participant.store(D, Changes({1001: CLIENT}), 5, host.now)
            host.participant.changed(D)
            host.answer(Look, mine())
            assert host.questions == [Store(D, 8, Changes({1001: CLIENT}))], "its answer may still come"
            host.answer(Store, UNKNOWN)
            host.answer(Look, mine())
            host.participant.changed(D)
            host.answer(Look, mine())
            assert host.questions == [Store(D, 8, Changes({1001: CLIENT}))]
            host.answer(Store, Done(8))
        host.participant.changed(D)
        host.answer(Look, mine())
        assert host.questions == []

    def test_one_under_way_ends_with_the_destination_or_the_session(self, host: Host) -> None:
        host.activate()
        host.participant.store(D, Changes({1001: CLIENT}), 5, host.now)
        host.participant.deactivated(D, host.now)
        host.take()
        assert host.told == [Stored(D, durable=False)]

    def test_one_under_way_while_it_is_given_up_ends_with_the_session(self, host: Host) -> None:
        host.activate()
        host.participant.stop(D, host.now)
        host.participant.store(D, Changes({1001: CLIENT}), 5, host.now)
        host.participant.expired(host.now)
        host.take()
        assert host.told == [Deactivate(D), Stored(D, durable=False)]
        host.open(session=2)
        with pytest.raises(FencedError, match="is not active here any more"):
            host.participant.store(D, Changes({1001: CLIENT}), 5, host.now)

    def test_one_that_is_refused_tells_of_another_owner(self, host: Host) -> None:
        host.activate()
        host.participant.store(D, Changes({1001: CLIENT}), 5, host.now)
        host.answer(Store, REFUSED)
        assert host.told == [Stored(D, durable=False), Deactivate(D)]

    def test_none_is_asked_again_in_another_session(self, host: Host) -> None:
        host.activate()
        host.participant.store(D, Changes({1001: CLIENT}), 5, host.now)
        host.participant.expired(host.now)
        host.take()
        host.asked.clear()
        assert Stored(D, durable=False) in host.told
        host.open(session=2)
        with pytest.raises(FencedError):
            host.participant.store(D, Changes({1001: CLIENT}), 5, host.now)
        assert host.questions == []


class TestGivingUp:
    def test_a_yield_stores_the_cursors_and_then_lets_others_come_first(self, host: Host) -> None:
        host.activate()
        host.participant.changed(D)
        host.answer(Look, mine(active=False))
        assert host.told == [Deactivate(D)]
        host.participant.store(D, Changes({1001: CLIENT}), 5, host.now)
        host.answer(Store, Done(8))
        host.participant.deactivated(D, host.now)
        host.answer(Look, mine(active=False))
        host.answer(Release, Done(8))
        host.answer(Look, FREE)
        assert host.participant.election(D).deadline == HOLD_OFF

    def test_a_yield_before_the_cursors_are_read_lets_others_come_first_too(self, host: Host) -> None:
        host.open()
        host.answer(Look, FREE)
        host.answer(Claim, Done(8))
        host.participant.changed(D)
        host.answer(Look, mine(active=False))
        host.answer(Release, Done(8))
        host.answer(Look, FREE)
        assert host.participant.election(D).deadline == HOLD_OFF

    def test_the_last_write_may_take_a_while_only(self, host: Host) -> None:
        host.activate()
        host.participant.changed(D)
        host.answer(Look, mine(active=False))
        host.participant.store(D, Changes({1001: CLIENT}), 5, host.now)
        host.now = LAST_STORE
        with pytest.raises(FencedError):
            host.participant.store(D, Changes({1001: CLIENT}), 5, host.now)
        assert host.participant.election(D).deadline == host.now
        host.participant.tick(host.now)
        host.take()
        assert host.told == [Deactivate(D), Stored(D, durable=False)]
        with pytest.raises(FencedError):
            host.participant.store(D, Changes({1001: CLIENT}), 5, host.now)

    def test_a_deleted_node_is_no_longer_owned(self, host: Host) -> None:
        host.activate()
        host.participant.changed(D)
        host.answer(Look, FREE)
        assert host.told == [Deactivate(D)]
        with pytest.raises(FencedError):
            host.participant.store(D, Changes({1001: CLIENT}), 5, host.now)

    def test_nothing_more_is_stored_when_it_is_deleted_while_it_is_given_up(self, host: Host) -> None:
        host.activate()
        host.participant.stop(D, host.now)
        host.participant.changed(D)
        host.answer(Look, FREE)
        with pytest.raises(FencedError):
            host.participant.store(D, Changes({1001: CLIENT}), 5, host.now)

    def test_a_destination_that_cannot_start_is_left_to_others(self, host: Host) -> None:
        host.activate()
        host.participant.deactivated(D, host.now, "no such host")
        host.answer(Look, mine())
        host.answer(Release, Done(8))
        with pytest.raises(FencedError, match=r"is not active here: no such host$"):
            host.participant.check(D, host.now)
        host.answer(Look, Seen(None, 5, 9))
        host.now += HOLD_OFF - 0.1
        host.participant.tick(host.now)
        assert Claim(D, 6, 9) not in host.questions
        host.now += 0.1
        host.participant.tick(host.now)
        assert Claim(D, 6, 9) in host.questions

    def test_one_that_could_not_start_and_was_told_to_stop_meanwhile_is_given_up_once_and_says_why(
        self, host: Host
    ) -> None:
        host.activate()
        host.participant.expired(host.now)
        host.participant.deactivated(D, host.now, "no such host")
        assert host.state is State.LEAVING
        host.participant.deactivated(D, host.now)
        assert (host.state, host.participant.election(D).problem) == (State.STANDBY, "no such host")

    def test_a_stopped_one_is_released_with_its_cursors_stored(self, host: Host) -> None:
        host.activate()
        host.participant.stop(D, host.now)
        host.participant.store(D, Changes({1001: CLIENT}), 5, host.now)
        host.answer(Store, Done(8))
        assert host.told == [Deactivate(D), Stored(D, durable=True)]
        host.participant.deactivated(D, host.now)
        host.answer(Look, mine())
        host.answer(Release, Done(8))
        host.answer(Look, FREE)
        assert host.state is State.STOPPED
        host.participant.changed(D)
        assert host.questions == []

    def test_one_that_stands_by_is_stopped_when_the_owner_is_seen_again(self, host: Host) -> None:
        host.open()
        host.answer(Look, Seen(Running(9, OTHER), 5, 8))
        host.participant.stop(D, host.now)
        host.answer(Look, Seen(Running(9, OTHER), 5, 8))
        assert host.state is State.STOPPED

    def test_one_without_a_session_is_stopped_at_once(self, host: Host) -> None:
        host.participant.stop(D, host.now)
        assert host.state is State.STOPPED

    def test_one_that_is_stopped_while_it_is_claimed_is_stopped_when_the_session_is_lost(self, host: Host) -> None:
        host.open()
        host.answer(Look, FREE)
        host.participant.stop(D, host.now)
        host.participant.expired(host.now)
        assert host.state is State.STOPPED

    def test_one_that_is_stopped_is_not_so_before_its_host_says_it_is(self, host: Host) -> None:
        host.activate()
        host.participant.stop(D, host.now)
        host.participant.expired(host.now)
        states = [host.state]
        host.participant.deactivated(D, host.now)
        assert [*states, host.state] == [State.LEAVING, State.STOPPED]


class TestCanal:
    UNFENCED = Seen(Running(9, OTHER, fenced=False), 4, 7)

    def test_an_owner_that_raises_no_epoch_is_succeeded_only_when_told_to(self, host: Host) -> None:
        host.open()
        host.answer(Look, self.UNFENCED)
        assert host.state is State.REFUSED
        assert OTHER in host.participant.election(D).problem
        host.participant.changed(D)
        host.answer(Look, FREE)
        assert host.questions == []
        host.participant.start(D)
        host.answer(Look, FREE)
        assert host.questions == [Claim(D, 5, 7)]

    def test_when_it_is_gone_the_server_says_what_to_do_also_in_another_session(self, host: Host) -> None:
        host.open()
        host.answer(Look, self.UNFENCED)
        host.participant.expired(host.now)
        host.take()
        host.asked.clear()
        host.open(session=2)
        host.answer(Look, FREE)
        assert (host.state, host.participant.election(D).problem) == (State.REFUSED, HAD_BY_CANAL)

    def test_it_stands_by_when_another_server_was_told_to_take_it_over(self, host: Host) -> None:
        host.open()
        host.answer(Look, self.UNFENCED)
        host.participant.changed(D)
        host.answer(Look, Seen(Running(8, OTHER), 5, 8))
        assert (host.state, host.participant.election(D).problem) == (State.STANDBY, "")
        host.participant.changed(D)
        host.answer(Look, Seen(None, 5, 8))
        assert host.questions == [Claim(D, 6, 8)]

    def test_nothing_is_claimed_while_one_is_registered(self, host: Host) -> None:
        host.open()
        host.answer(Look, Seen(None, 4, 7, (OTHER,)))
        assert (host.questions, OTHER in host.participant.election(D).problem) == ([], True)
        host.participant.changed(D)
        host.answer(Look, FREE)
        assert host.questions == [Claim(D, 5, 7)]


class TestSpread:
    NAMES = tuple(f"d{number}" for number in range(20))

    @pytest.mark.parametrize("count", [1, 2, 3, 6, 7, 9, 20, 30])
    def test_numbers_differ_by_one_at_most(self, count: int) -> None:
        servers = [f"s{number}" for number in range(count)]
        owners = list(spread(self.NAMES, servers).values())
        counts = [owners.count(server) for server in servers]
        assert sum(counts) == len(self.NAMES)
        assert max(counts) - min(counts) <= 1

    def test_the_order_of_names_does_not_matter(self) -> None:
        assert spread(reversed(self.NAMES), ["b", "a"]) == spread(self.NAMES, ["a", "b"])
        assert spread(self.NAMES, []) == {}

    def test_few_move_when_a_server_comes(self) -> None:
        before = spread(self.NAMES, ["a", "b", "c"])
        moved = misplaced(before, ["a", "b", "c", "d"])
        assert len(moved) <= len(self.NAMES) // 2
        assert misplaced(before, ["a", "b", "c"]) == {}
