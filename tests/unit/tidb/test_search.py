"""Where reading begins for a commit_ts: at the first greater one, whatever holes and repetitions a topic has."""

import math

from hypothesis import example, given
from hypothesis import strategies as st

from sluice.protocol.tidb.search import REPEATED, OffsetSearch

Records = list[tuple[int, int]]


def search(records: Records, commit_ts: int, low: int | None = None, high: int | None = None) -> OffsetSearch:
    """Search records, offsets with commit_ts, and count the questions."""
    low = records[0][0] if low is None else low
    high = records[-1][0] + 1 if high is None else high
    found = OffsetSearch(low, high, commit_ts)
    asked = 0
    while (wanted := found.wanted) is not None:
        found.tell(next((it for it in records if it[0] >= wanted), None))
        asked += 1
    assert asked <= 2 + math.log2(max(high - low, 1))
    return found


@st.composite
def topics(draw: st.DrawFn) -> tuple[Records, int, int]:
    """Make records that ascend, with holes before, between and after them."""
    offsets = sorted(draw(st.sets(st.integers(0, 300), max_size=60)))
    stamps = sorted(draw(st.sets(st.integers(1, 300), min_size=len(offsets), max_size=len(offsets))))
    low = draw(st.integers(0, offsets[0] if offsets else 300))
    high = draw(st.integers(offsets[-1] + 1 if offsets else low, 301))
    return list(zip(offsets, stamps, strict=True)), low, high


@given(topics(), st.integers(0, 301))
@example(([], 7, 7), 5)
@example(([], 3, 9), 5)
@example(([(5, 10)], 0, 20), 10)
def test_the_first_greater_one_is_found(topic: tuple[Records, int, int], commit_ts: int) -> None:
    records, low, high = topic
    found = search(records, commit_ts, low, high)
    before = [offset for offset, it in records if it <= commit_ts]
    after = [offset for offset, it in records if it > commit_ts]
    assert max(before, default=low - 1) < found.found <= min(after, default=high)


@given(topics(), st.integers(0, 301))
def test_a_topic_that_begins_later_is_told(topic: tuple[Records, int, int], commit_ts: int) -> None:
    records, low, high = topic
    assert search(records, commit_ts, low, high).is_before_oldest == bool(records and records[0][1] > commit_ts + 1)


def test_the_place_equal_to_the_oldest_one_begins_after_it() -> None:
    found = search([(4, 10), (5, 11)], 10)
    assert (found.found, found.is_before_oldest) == (5, False)


def test_beyond_the_end_it_is_the_end() -> None:
    found = search([(4, 10), (5, 11)], 12)
    assert (found.found, found.is_before_oldest) == (6, False)


@given(
    st.lists(st.integers(1, 400), min_size=2, max_size=400, unique=True).map(sorted),
    st.lists(st.tuples(st.integers(0, 400), st.integers(1, 40)), max_size=6),
    st.integers(0, 401),
)
def test_nothing_is_missed_where_stretches_are_repeated(
    stamps: list[int], repetitions: list[tuple[int, int]], commit_ts: int
) -> None:
    for at, size in repetitions:  # what a producer sends again, or what a former one had in its queue
        stamps = [*stamps[:at], *stamps[max(at - size, 0) : at], *stamps[at:]]
    records = list(enumerate(stamps))
    start = search(records, commit_ts).start
    delivered, last = [], commit_ts
    for offset, it in records:
        if offset >= start and it > last:
            delivered.append(it)
            last = it
    assert delivered == sorted({it for it in stamps if it > commit_ts})


def test_reading_begins_some_records_earlier_but_not_before_the_first() -> None:
    records = [(offset, offset) for offset in range(100, 100 + 3 * REPEATED)]
    assert search(records, 100 + 2 * REPEATED).start == 101 + REPEATED
    assert search(records, 105).start == 100
