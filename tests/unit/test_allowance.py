"""How much a client may be given: never more than a burst and its rate times the time, nor than its quota of a day."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.protocol.errors import QuotaExceededError
from sluice.store.allowance import DAY, LARGEST, UNLIMITED, Allowance, AllowanceStatus, Limits, parse_limit, parse_used
from tests.effort import times

NOON = 20_000 * DAY + DAY / 2
CLIENT = 1001


def allowance(max_rate: int = 0, quota: int = 0, used: str = "") -> Allowance:
    made = Allowance(used)
    made.limit(Limits(max_rate, quota), UNLIMITED)
    return made


@settings(max_examples=times(200, 5000), deadline=None)
@given(
    rate=st.integers(1, 10**9),
    steps=st.lists(st.tuples(st.floats(-5, 5), st.integers(0, 3 * 10**9), st.booleans()), max_size=60),
)
def test_nothing_beyond_a_burst_and_the_rate_is_given_whatever_the_clock_does(
    rate: int, steps: list[tuple[float, int, bool]]
) -> None:
    limited, now, passed, sizes = allowance(rate), 100.0, 0.0, 0
    oversize = 0
    for elapsed, size, is_entry in steps:
        now, passed = now + elapsed, passed + max(0.0, elapsed)
        allowed = limited.allowed(now)
        assert allowed is not None
        if not allowed:
            assert limited.wait(now) > 0
            continue
        taken = size if is_entry else min(size, allowed)  # a larger entry comes alone
        oversize = max(oversize, taken - allowed)
        limited.charge(taken, NOON)
        sizes += taken
        assert sizes <= rate + rate * passed + oversize + 1


def test_one_that_has_waited_as_long_as_it_was_told_is_given_something() -> None:
    limited = allowance(1000)
    assert limited.allowed(0.0) == 1000
    limited.charge(5000, NOON)
    assert limited.allowed(0.0) == 0
    assert limited.wait(0.0) == pytest.approx(4.1)
    assert limited.allowed(4.0) == 0
    assert limited.allowed(4.2) == 200
    assert limited.status().seconds == pytest.approx(4.1)


def test_time_without_a_call_does_not_count_as_waiting() -> None:
    limited = allowance(1000)
    limited.allowed(0.0)
    limited.charge(1000, NOON)
    limited.allowed(0.0)
    limited.allowed(3600.0)
    assert limited.status().seconds == pytest.approx(0.1)


def test_another_rate_forgives_nothing() -> None:
    limited = allowance(1000)
    limited.allowed(0.0)
    limited.charge(11_000, NOON)
    limited.limit(Limits(100), UNLIMITED)
    assert limited.wait(0.0) == pytest.approx(100.1)
    limited.limit(UNLIMITED, UNLIMITED)
    assert limited.allowed(0.0) is None


def test_a_client_without_limits_has_those_of_the_destination_and_may_have_none() -> None:
    made = Allowance()
    made.limit(UNLIMITED, Limits(1000, 5))
    assert (made.max_rate, made.quota) == (1000, 5)
    made.limit(Limits(0, None), Limits(1000, 5))
    assert (made.max_rate, made.quota) == (0, 5)


def test_a_quota_is_used_up_until_midnight_and_survives_a_restart() -> None:
    limited = allowance(quota=100)
    limited.require_quota(CLIENT, NOON)
    assert limited.charge(150, NOON)
    with pytest.raises(QuotaExceededError, match="given 150 bytes of 100 a day; more comes from 2024-10-05T00:00:00Z"):
        limited.require_quota(CLIENT, NOON)
    again = allowance(quota=100, used=limited.stored())
    with pytest.raises(QuotaExceededError) as caught:
        again.require_quota(CLIENT, NOON + 60)
    assert caught.value.retry_after == DAY / 2 - 60
    again.require_quota(CLIENT, NOON + DAY / 2)
    assert again.status().used_on(NOON + DAY / 2) == 0


def test_a_clock_that_is_set_back_renews_no_quota_and_holds_none_back_for_longer() -> None:
    limited = allowance(quota=100)
    limited.charge(100, NOON + 400 * DAY)
    with pytest.raises(QuotaExceededError) as caught:
        limited.require_quota(CLIENT, NOON)
    assert caught.value.retry_after == DAY / 2
    limited.require_quota(CLIENT, NOON + DAY)


@settings(max_examples=times(200, 5000), deadline=None)
@given(quota=st.integers(1, 10**6), sizes=st.lists(st.integers(1, 10**6), max_size=30))
def test_of_a_quota_only_the_last_batch_goes_beyond(quota: int, sizes: list[int]) -> None:
    limited, total = allowance(quota=quota), 0
    for size in sizes:
        try:
            limited.require_quota(CLIENT, NOON)
        except QuotaExceededError:
            assert total >= quota
            continue
        assert total < quota
        limited.charge(size, NOON)
        total += size
    assert limited.status().used_on(math.nextafter(NOON, math.inf)) == total


@pytest.mark.parametrize(("max_rate", "quota"), [(0, 0), (10, 0), (0, 10)])
def test_one_without_a_rate_and_a_quota_is_never_asked(max_rate: int, quota: int) -> None:
    assert not Allowance().is_limited
    assert allowance(max_rate, quota).is_limited == bool(max_rate or quota)


def test_what_was_given_is_stored_only_if_a_quota_counts_it() -> None:
    unlimited, limited = allowance(), allowance(quota=10)
    assert limited.stored() == ""
    assert not unlimited.charge(3, NOON)
    assert limited.charge(3, NOON)
    assert unlimited.stored() == ""
    assert limited.stored() == "20000:3"
    limited.limit(Limits(), UNLIMITED)
    assert limited.stored() == "", "there is no quota any more"
    assert allowance(quota=10).status().used == 0


def test_its_status_says_until_when_nothing_is_given() -> None:
    limited = allowance(1000)
    limited.allowed(100.0)
    limited.charge(5000, NOON)
    assert limited.status().until == pytest.approx(104.1)


def test_the_lowest_rate_gives_a_byte() -> None:
    assert allowance(1).allowed(0.0) == 1


def test_a_limit_and_what_was_used_have_bounds() -> None:
    assert parse_limit(str(LARGEST)) == LARGEST
    assert parse_used(f"20000:{'9' * 19}")
    for text in (str(LARGEST + 1), "-1", "1.5", ""):
        with pytest.raises(ValueError, match="not a number of bytes"):
            parse_limit(text)
    with pytest.raises(ValueError, match="not what a client has used"):
        parse_used(f"20000:{'9' * 20}")


def test_a_client_without_limits_shows_none_and_has_used_nothing() -> None:
    shown = AllowanceStatus()
    assert (shown.max_rate, shown.quota, shown.used, shown.day) == (0, 0, 0, 0)
    assert Allowance().status() == replace(shown, until=0.0)
    assert allowance(quota=10).stored() == ""


def test_a_limit_may_be_2_to_the_50_bytes_and_no_more() -> None:
    assert parse_limit("1125899906842624") == 2**50
    with pytest.raises(ValueError, match="up to 1125899906842624"):
        parse_limit("1125899906842625")
