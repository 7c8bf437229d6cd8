"""Transactions that touch the same keys are applied in their order, and nothing else waits."""

from array import array
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.sql.dependencies import Dependencies
from tests.effort import times

BARRIER = None
"""Stands for a transaction that all others conflict with."""


def add(graph: Dependencies, *transactions: Sequence[int]) -> int:
    """Add transactions, each by its keys; return the number of the first."""
    ends, keys = array("i"), array("Q")
    for it in transactions:
        keys.extend(it)
        ends.append(len(keys))
    return graph.add(ends, keys)


def test_a_transaction_waits_only_for_those_before_it_that_touch_its_keys() -> None:
    # INSERT of rows 3 and 4, INSERT of 5 and 2, UPDATE of 3: the third one waits for the first one only.
    graph = Dependencies()
    add(graph, [3, 4], [5, 2], [3])
    assert graph.take(16) == [0, 1]
    graph.done([0])
    assert graph.take(16) == [2]
    graph.done([2])
    assert graph.low_water == 1
    graph.done([1])
    assert (graph.low_water, len(graph)) == (3, 0)


def test_two_changes_of_a_row_are_never_applied_at_once() -> None:
    # DELETE and REPLACE of one row
    graph = Dependencies()
    add(graph, [7], [7])
    assert graph.take(16) == [0]
    assert graph.take(16) == []
    graph.done([0])
    assert graph.take(16) == [1]


def test_all_wait_for_a_barrier_which_waits_for_all() -> None:
    graph = Dependencies()
    add(graph, [1], [2])
    barrier = graph.add_barrier()
    last = add(graph, [3])
    assert graph.take(16) == [0, 1]
    graph.done([1])
    assert graph.take(16) == []
    graph.done([0])
    assert graph.take(16) == [barrier]
    graph.done([barrier])
    assert graph.take(16) == [last]


@pytest.mark.parametrize("numbers", [[1], [0, 0], [5], [-1]])
def test_only_what_was_taken_is_done(numbers: list[int]) -> None:
    graph = Dependencies()
    add(graph, [1], [1])
    graph.take(1)
    with pytest.raises(ValueError, match="was not taken, or is done"):
        graph.done(numbers)


@pytest.mark.parametrize("ends", [[2], [1, 0], [-1]])
def test_ends_that_do_not_fit_the_keys_are_an_error(ends: list[int]) -> None:
    with pytest.raises(ValueError, match="do not fit"):
        Dependencies().add(array("i", ends), array("Q", [1]))


@settings(max_examples=times(10, 100))
@given(
    st.lists(st.one_of(st.just(BARRIER), st.sets(st.integers(0, 5), max_size=3)), max_size=20),
    st.data(),
)
def test_what_can_be_taken_is_what_no_earlier_one_that_is_not_done_conflicts_with(
    transactions: list[set[int] | None], data: st.DataObject
) -> None:
    graph = Dependencies()
    added: list[set[int] | None] = []
    taken: set[int] = set()
    done: set[int] = set()

    def conflicts(one: set[int] | None, other: set[int] | None) -> bool:
        return one is BARRIER or other is BARRIER or bool(one & other)

    def ready() -> list[int]:
        waits = (
            any(other not in done and conflicts(added[other], keys) for other in range(number))
            for number, keys in enumerate(added)
        )
        return [number for number, it in enumerate(waits) if not it and number not in taken]

    while len(done) < len(transactions):
        if len(added) < len(transactions) and data.draw(st.booleans()):
            keys = transactions[len(added)]
            number = graph.add_barrier() if keys is BARRIER else add(graph, sorted(keys))
            assert number == len(added)
            added.append(keys)
        most = data.draw(st.integers(0, 4))
        wanted = ready()[:most]
        found = graph.take(most)
        assert found == wanted
        taken |= set(found)
        if taken - done:
            ended = data.draw(st.sampled_from(sorted(taken - done)))
            graph.done([ended])
            done.add(ended)
        left = [number for number in range(len(added)) if number not in done]
        assert graph.low_water == min(left, default=len(added))
        assert len(graph) == len(added) - graph.low_water
