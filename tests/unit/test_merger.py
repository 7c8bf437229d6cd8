"""The merger: who waits for whom, and what is done with members that do not answer, join, leave or are removed."""

from array import array

import pytest

from sluice.instance.merge.merger import MemberOptions, MemberState, Merger, Ordering
from sluice.instance.merge.order import By, Mark
from sluice.protocol.errors import ConfigError, SourceError
from sluice.protocol.member import MAX_MEMBERS
from tests.merge_model import Slice, slices

MS, SECOND = 1000, 1_000_000
NOW = 1_700_000_000 * SECOND
POOL = 1000
TIME = Ordering(By.TIME)


class Merging:
    """A merger whose clock is moved by hand."""

    def __init__(
        self, *names: str, ordering: Ordering = TIME, max_wait: int = 0, removed: tuple[str, ...] = (), **options: bool
    ) -> None:
        self.options = MemberOptions(POOL, **options)
        self.now = NOW
        members = dict.fromkeys(names, self.options)
        self.merger = Merger(ordering, members, removed=removed, max_wait=max_wait, now=NOW)

    def add(self, name: str, *stamps: int, size: int = 1, is_open: bool = False) -> None:
        """Stage transactions, with stamps from `NOW` on."""
        sizes = array("q", [size] * len(stamps))
        self.merger.add(name, array("q", [NOW + it for it in stamps]), sizes, is_open=is_open, now=self.now)

    def heartbeat(self, *names: str) -> None:
        for name in names:
            self.merger.heartbeat(name, now=self.now)

    def release(self, most: int = POOL) -> list[Slice]:
        return slices(self.merger.release(most, now=self.now))

    def go_on(self, time: int) -> list[str]:
        """Let a time pass, in the steps in which the merger is asked; return who was passed."""
        passed, until = [], self.now + time
        while self.now < until:
            self.now = min(self.now + self.merger.period, until)
            passed += self.merger.tick(now=self.now)
        return passed

    def state(self, name: str) -> MemberState:
        return self.merger.status()[name].state


# --- what goes first -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "ordering"),
    [
        ("time", TIME),
        ("arrival", Ordering(By.ARRIVAL)),
        ("column:ts", Ordering(By.COLUMN, "ts")),
        ("column:a:b", Ordering(By.COLUMN, "a:b")),
    ],
)
def test_an_order_is_read(text: str, ordering: Ordering) -> None:
    assert Ordering.parse(text) == ordering


@pytest.mark.parametrize("text", ["", "Time", "time:", "time:x", "arrival:x", "column", "column:", " time"])
def test_another_order_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="not an order of a merged stream"):
        Ordering.parse(text)


def test_a_transaction_waits_until_each_other_member_has_shown_a_later_key_or_is_caught_up() -> None:
    it = Merging("a", "b", "c")
    it.now += 10
    it.add("a", 5)
    assert it.merger.waits_for == ["b", "c"]
    assert it.release() == []
    it.add("b", 7)
    assert it.merger.waits_for == ["c"]
    it.heartbeat("c")
    assert it.release() == [(0, 1, 0)]
    assert it.merger.waits_for == ["a"]


def test_a_heartbeat_counts_as_of_its_arrival_until_the_next_event() -> None:
    it = Merging("a", "b")
    it.now += 100
    it.heartbeat("b")
    it.add("a", 100)
    assert it.release() == [(0, 1, 0)]
    it.now += 100
    it.add("a", 150)
    assert it.merger.waits_for == ["b"]
    it.now += 1
    it.heartbeat("b")
    it.add("b", 120)
    assert it.release() == [(1, 1, 0)], "it is not caught up any more"
    assert it.merger.waits_for == ["b"]
    it.heartbeat("b")
    assert it.release() == [(0, 2, 0)]


def test_a_heartbeat_within_a_transaction_proves_nothing() -> None:
    it = Merging("a", "b")
    it.now += 100
    it.add("b", 5, is_open=True)
    it.add("a", 9)
    it.heartbeat("b")
    assert it.release() == []
    assert it.merger.waits_for == ["b"]


def test_a_watermark_is_a_time_of_the_member_and_not_after_ours() -> None:
    it = Merging("a", "b")
    it.now += 100
    it.merger.measured("b", 1000)
    it.add("a", 50, 100)
    it.merger.heartbeat("b", time=NOW + 1060, now=it.now)
    assert it.release() == [(0, 1, 0)]
    it.merger.heartbeat("b", time=NOW + 9999, now=it.now)
    assert it.release() == [(0, 2, 0)]
    it.now += 50
    it.add("a", 150)
    assert it.release() == [], "time 9999 was not proven"


def test_the_offset_of_a_clock_is_taken_off_and_no_key_is_after_our_clock() -> None:
    it = Merging("a", "b")
    it.now += 100
    it.merger.measured("a", 300 * SECOND)
    it.add("a", 300 * SECOND + 20)
    it.add("b", 300 * SECOND + 10)  # its clock is not measured: as if it were written now
    assert it.release() == [(0, 1, 0)]
    it.heartbeat("a")
    it.now += 1
    it.add("a", 300 * SECOND + 101)
    assert it.release() == [(1, 1, 0)]


def test_the_stamps_of_a_member_whose_clock_is_behind_are_as_late_as_they_were_written() -> None:
    it = Merging("a", "b")
    it.now += 100
    it.merger.measured("b", -50)
    it.add("a", 20)
    it.add("b", -40)
    assert it.merger._order.state(1).key == NOW + 10
    it.add("b", -20)
    assert it.release() == [(1, 1, 0), (0, 1, 0)]


def test_a_watermark_of_a_member_that_is_not_measured_is_by_our_clock() -> None:
    for time, released in ((49, []), (50, [(0, 1, 0)])):
        it = Merging("a", "b")
        it.now += 100
        it.add("a", 50)
        it.merger.heartbeat("b", time=NOW + time, now=it.now)
        assert it.release() == released


def test_keys_of_a_member_whose_clock_was_set_back_do_not_go_back() -> None:
    it = Merging("a", "b")
    it.now += 100
    it.add("a", 50, -300 * SECOND, 60)
    it.add("b", 55, 99)
    assert it.release() == [(0, 2, 0), (1, 1, 0), (0, 3, 0)]


def test_a_stamp_in_whole_seconds_stands_for_the_end_of_its_second_but_not_after_its_arrival() -> None:
    it = Merging("a", "b", whole_seconds=True)
    it.now += 10 * SECOND
    it.add("a", 0)
    assert it.merger._order.state(0).key == NOW + SECOND - 1
    it.add("b", 10 * SECOND)
    assert it.merger._order.state(1).key == it.now


def test_by_arrival_nobody_waits() -> None:
    it = Merging("a", "b", "c", ordering=Ordering(By.ARRIVAL))
    it.add("b", 9, is_open=True)
    it.now += 1
    it.add("a", 5)
    it.now += 1
    it.add("b", 9)
    assert it.merger.waits_for == []
    assert it.release() == [(0, 1, 0), (1, 1, 0)], "when the end has come"
    it.now += 1
    it.add("b", 1)
    assert it.release() == [(1, 2, 0)]


def test_by_column_the_value_is_the_key_and_who_is_caught_up_holds_nobody() -> None:
    it = Merging("a", "b", ordering=Ordering.parse("column:seq"))
    it.add("a", 1000 * SECOND)
    it.add("b", 500 * SECOND)
    assert it.release() == [(1, 1, 0)]
    it.heartbeat("b")
    assert it.release() == [(0, 1, 0)]
    it.add("b", 501 * SECOND)
    assert it.release() == [(1, 2, Mark.LATE)]


# --- late ------------------------------------------------------------------------------------------------------------


def test_a_key_below_the_last_released_one_goes_out_at_once_and_is_counted() -> None:
    it = Merging("a", "b", "c")
    it.now += 100
    it.add("a", 90)
    it.heartbeat("b", "c")
    assert it.release() == [(0, 1, 0)]
    it.add("b", 80, 85, 95)
    assert it.release() == [(1, 2, Mark.LATE)]
    assert it.merger.status()["b"].late == 2
    assert it.merger.waits_for == ["a"]


def test_a_late_key_of_a_member_with_exact_keys_is_an_error_that_stays() -> None:
    it = Merging("a", "b", exact=True)
    it.add("a", 90)
    it.merger.heartbeat("b", time=NOW + 91, now=it.now)
    assert it.release() == [(0, 1, 0)]
    it.add("b", 80)
    for _ in range(2):
        with pytest.raises(SourceError, match=f"member b: a transaction with key {NOW + 80} comes after one with key"):
            it.release()


def test_keys_of_members_that_are_exact_are_neither_corrected_nor_capped() -> None:
    it = Merging("a", "b", exact=True)
    it.merger.measured("b", SECOND)
    it.add("b", 10 * SECOND)
    it.merger.heartbeat("a", time=NOW + 10 * SECOND, now=it.now)
    assert it.release() == [], "an equal key of the member before it may come"
    it.merger.heartbeat("a", time=NOW + 10 * SECOND + 1, now=it.now)
    assert it.release() == [(1, 1, 0)]


# --- members that do not answer --------------------------------------------------------------------------------------


def test_a_silent_member_is_waited_for_for_ever() -> None:
    it = Merging("a", "b")
    it.add("a", 0)
    assert it.go_on(3600 * SECOND) == []
    assert it.release() == []
    assert it.merger.waits_for == ["b"]
    assert it.merger.status()["b"].silent == 3600 * SECOND


def test_a_silent_member_is_passed_after_the_configured_time_and_what_it_then_brings_is_late() -> None:
    it = Merging("a", "b", max_wait=30 * SECOND)
    it.go_on(20 * SECOND)
    it.add("a", 20 * SECOND)
    assert it.go_on(9 * SECOND) == []
    assert it.release() == []
    assert it.go_on(SECOND) == ["b"]
    assert it.state("b") is MemberState.PASSED
    assert it.release() == [(0, 1, 0)]
    it.add("b", 1, 2)
    assert it.release() == [(1, 2, Mark.LATE)]
    it.add("a", 30 * SECOND)
    assert it.release() == [(0, 2, 0)], "nobody waits for it while it is behind"
    it.add("b", 30 * SECOND - 50 * MS)
    assert it.state("b") is MemberState.MERGED, "it is within the window"
    it.heartbeat("a")
    it.add("a", 30 * SECOND)
    assert it.release() == [(1, 3, Mark.LATE)]
    assert it.merger.waits_for == ["b"]


def test_a_member_that_was_passed_is_waited_for_when_it_is_caught_up() -> None:
    it = Merging("a", "b", max_wait=SECOND)
    assert it.go_on(SECOND) == ["a", "b"]
    it.heartbeat("b")
    assert it.state("b") is MemberState.MERGED
    assert it.state("a") is MemberState.PASSED


def test_a_member_that_is_not_read_is_not_silent() -> None:
    it = Merging("a", "b", max_wait=SECOND)
    it.add("a", 0, size=POOL)
    assert it.merger.is_full("a")
    assert it.go_on(SECOND) == ["b"]
    assert it.release() == [(0, 1, 0)]
    assert it.merger.is_full("a"), "the ring may not have it yet"
    it.go_on(10 * SECOND)
    assert it.release() == []
    assert not it.merger.is_full("a")
    assert it.go_on(SECOND // 2) == []
    assert it.go_on(SECOND // 2) == ["a"]


def test_unless_it_is_said_otherwise_heartbeats_come_20_times_a_second_and_nobody_is_passed() -> None:
    merger = Merger(TIME, dict.fromkeys("ab", MemberOptions(POOL)), now=NOW)
    assert merger.period == SECOND // 20
    for second in range(100):
        merger.heartbeat("a", now=NOW + second * SECOND)
        assert merger.tick(now=NOW + second * SECOND) == []
    assert merger.state("b") is MemberState.MERGED


def test_time_that_passes_until_something_is_released_is_silence() -> None:
    it = Merging("a", "b")
    it.now += 70
    it.release()
    assert it.merger.status()["b"].silent == 70


def test_how_long_a_member_was_silent_is_shown() -> None:
    it = Merging("a", "b")
    assert it.merger.status()["b"].silent == 0
    it.go_on(SECOND)
    it.heartbeat("a")
    silent = {name: shown.silent for name, shown in it.merger.status().items()}
    assert silent == {"a": 0, "b": SECOND}


def test_a_member_that_comes_after_silence_is_passed_its_own_time_later() -> None:
    it = Merging("a", "b", max_wait=SECOND)
    assert it.go_on(SECOND // 2) == []
    it.now += it.merger.period
    it.heartbeat("a")
    assert it.go_on(SECOND - it.merger.period) == ["b"]
    assert it.go_on(it.merger.period) == ["a"]


def test_what_follows_of_a_transaction_that_was_released_in_part_before_a_restart_comes_first() -> None:
    merger = Merger(TIME, dict.fromkeys("ab", MemberOptions(POOL)), streams="b", now=NOW)
    assert merger.streams == "b"
    assert merger.waits_for == ["b"]
    assert Merger(TIME, dict.fromkeys("ab", MemberOptions(POOL)), now=NOW).streams is None


def test_nobody_was_silent_while_this_process_stood_still() -> None:
    it = Merging("a", "b", max_wait=SECOND)
    it.go_on(SECOND // 2)
    it.now += 3600 * SECOND
    assert it.merger.tick(now=it.now) == []
    it.heartbeat("a")
    assert it.go_on(SECOND) == ["b", "a"]


def test_a_time_before_the_last_one_is_that_one() -> None:
    it = Merging("a")
    it.now += 100
    it.add("a", 100)
    it.now -= 50
    it.add("a", 100)
    assert it.release() == [(0, 2, 0)]


# --- large transactions and full pools -------------------------------------------------------------------------------


def test_a_transaction_goes_out_when_its_end_was_read() -> None:
    it = Merging("a")
    it.add("a", 0, size=POOL - 1, is_open=True)
    assert it.release() == []
    it.add("a", 0, 0)
    assert it.release(10 * POOL) == [(0, 2, 0)]


def test_a_transaction_that_exceeds_its_pool_goes_out_in_parts_and_holds_the_others() -> None:
    it = Merging("a", "b")
    it.now += 100
    it.add("b", 5, size=POOL, is_open=True)
    it.add("a", 3, 9)
    assert it.merger.is_full("b")
    assert not it.merger.is_full("a")
    assert it.release(1) == [(0, 1, 0)]
    assert it.release(1) == [(1, 1, Mark.PART)]
    assert it.release() == []
    assert (it.merger.streams, it.merger.waits_for) == ("b", ["b"])
    it.add("b", 5, 20, size=7)
    assert it.release() == [(1, 1, 0), (0, 2, 0)]
    assert it.merger.streams is None


def test_10_gb_of_one_member_pass_a_pool_of_1000_bytes() -> None:
    it = Merging("a", "b")
    it.heartbeat("b")
    it.add("a", 0, size=POOL, is_open=True)
    for part in range(10_000):
        assert it.release() == [(0, 1, Mark.PART)]
        assert it.release() == []
        assert it.merger.status()["a"].bytes == 0
        it.add("a", 0, size=1_000_000, is_open=part < 9_999)
    assert it.release() == [(0, 1, 0)]


def test_a_connection_lost_within_parts_goes_on_where_it_was() -> None:
    it = Merging("a", "b")
    it.heartbeat("b")
    it.add("a", 0, size=POOL, is_open=True)
    assert it.release() == [(0, 1, Mark.PART)]
    it.add("a", 0, size=500, is_open=True)
    it.merger.reset("a")
    assert it.release() == []
    assert it.merger.streams == "a"
    it.add("a", 0, size=700)
    assert it.release() == [(0, 1, 0)]


def test_what_was_staged_of_a_lost_connection_is_read_again() -> None:
    it = Merging("a", "b")
    it.now += 100
    it.add("a", 10, 20, 30, is_open=True)
    it.add("b", 15)
    assert it.release() == [(0, 1, 0), (1, 1, 0)]
    it.merger.reset("a")
    assert it.merger.status()["a"].transactions == 0
    it.add("a", 20, 30)
    it.add("b", 25)
    assert it.release() == [(0, 2, 0), (1, 2, 0)]


# --- who comes and goes ----------------------------------------------------------------------------------------------


def test_nobody_waits_for_a_member_that_joins() -> None:
    it = Merging("a")
    it.go_on(SECOND)
    it.merger.join("b", it.options)
    assert it.state("b") is MemberState.JOINING
    it.add("a", SECOND)
    assert it.release() == [(0, 1, 0)]
    it.add("b", 10, 20)
    assert it.release() == [(1, 2, Mark.LATE)]
    assert it.state("b") is MemberState.JOINING
    it.heartbeat("b")
    assert it.state("b") is MemberState.MERGED


def test_a_member_that_leaves_is_not_waited_for_and_may_come_back() -> None:
    it = Merging("a", "b")
    it.now += 100
    it.add("b", 5, 9, is_open=True)
    it.add("a", 7)
    it.merger.leave("b")
    assert it.release() == [(1, 1, 0), (0, 1, 0)]
    with pytest.raises(ValueError, match="member b has left"):
        it.heartbeat("b")
    it.merger.join("b", it.options)
    assert it.state("b") is MemberState.JOINING
    it.add("b", 9)
    it.heartbeat("a")
    assert it.release() == [(1, 2, 0)]


@pytest.mark.parametrize("how", ["leave", "remove"])
def test_who_goes_within_parts_ends_them_with_a_marker(how: str) -> None:
    it = Merging("a", "b")
    it.heartbeat("b")
    it.add("a", 0, size=POOL, is_open=True)
    assert it.release() == [(0, 1, Mark.PART)]
    it.add("b", 0)
    it.add("a", 0, size=5, is_open=True)
    getattr(it.merger, how)("a")
    assert it.release() == [(0, 1, Mark.BROKEN)], "a marker comes before what is next"
    assert it.merger.streams is None
    assert it.release() == [(1, 1, 0)]
    assert it.release() == []


def test_a_removed_member_is_not_put_and_its_name_is_not_used_again() -> None:
    it = Merging("a", "b", removed=("c",))
    it.now += 100
    it.add("a", 5)
    it.add("b", 6)
    it.merger.remove("a")
    assert it.release() == [(1, 1, 0)]
    assert it.state("a") is MemberState.REMOVED
    for name in ("a", "c"):
        with pytest.raises(ConfigError, match=f"member {name} was removed, .* a name is not used again"):
            it.merger.join(name, it.options)
    with pytest.raises(ConfigError, match="member c was removed"):
        Merging("c", removed=("c",))


def test_members_have_plain_names_and_are_at_most_64_those_that_were_removed_included() -> None:
    it = Merging("a", removed=tuple(f"m{i}" for i in range(MAX_MEMBERS - 2)))
    with pytest.raises(ConfigError, match="not the name of a member"):
        it.merger.join("b/c", it.options)
    with pytest.raises(ConfigError, match="member a is there already"):
        it.merger.join("a", it.options)
    it.merger.join("b", it.options)
    with pytest.raises(ConfigError, match="member c: a merged stream has at most 64 members"):
        it.merger.join("c", it.options)
