"""Floors: a subscriber goes on in the chain of another merge without loss and without repetition."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.protocol.cut import Cut
from sluice.protocol.errors import GoneError, SourceChangedError
from sluice.protocol.position import Position
from sluice.store.floor import Floor

MEMBERS = ("a", "b", "c")


def place(slots: int) -> Position:
    return Position("7", "b.1", 1, 4 + slots, 0)


def chain(order: list[str], before: Cut) -> tuple[list[tuple[str, Position]], list[Cut]]:
    """Return the slots of a merge, each a member and the place after it, and their chain of cuts."""
    cuts, slots = [before], []
    for member in order:
        after = place(cuts[-1].places[member].begin - 4 + 1)
        slots.append((member, after))
        cuts.append(cuts[-1].advance(member, after))
    return slots, cuts


counts = st.fixed_dictionaries({member: st.integers(0, 5) for member in MEMBERS})


@st.composite
def merges(draw: st.DrawFn) -> tuple[Cut, Cut, list[str]]:
    """The place of a subscriber, the place from which another server merges, and the order in which it does."""
    has, lacks, stored = draw(counts), draw(counts), draw(counts)
    own = {it: place(has[it] + stored[it]) for it in MEMBERS}
    begin = {it: place(has[it]) for it in MEMBERS}
    order = [it for it in MEMBERS for _ in range(stored[it] + lacks[it])]
    return Cut(own), Cut(begin), draw(st.permutations(order))


@given(merges())
def test_each_slot_after_the_own_place_is_read_once_in_the_order_of_its_member(
    merge: tuple[Cut, Cut, list[str]],
) -> None:
    own, begin, order = merge
    slots, cuts = chain(order, begin)
    floor = Floor(own)
    start = floor.start(cuts)
    read = [slot for slot in slots[start:] if not floor.skips(*slot)]
    for member in MEMBERS:
        ours = [it for it in slots if it[0] == member]
        assert [it for it in read if it[0] == member] == [it for it in ours if it[1] > own.places[member]]
    assert all(floor.skips(*slot) for slot in slots[:start])
    assert start == len(slots) or not floor.skips(*slots[start])
    assert floor.place(cuts[-1]) == own.join(cuts[-1])


@given(merges(), st.data())
def test_a_place_on_the_way_is_a_floor_too(merge: tuple[Cut, Cut, list[str]], data: st.DataObject) -> None:
    """A subscriber may stop anywhere and begin anew, in this chain or in another one."""
    own, begin, order = merge
    slots, cuts = chain(order, begin)
    floor = Floor(own)
    stop = data.draw(st.integers(floor.start(cuts), len(slots)))
    first = [it for it in slots[floor.start(cuts) : stop] if not floor.skips(*it)]
    again = Floor(floor.place(cuts[stop]))
    other_slots, other_cuts = chain(data.draw(st.permutations(order)), begin)
    second = [it for it in other_slots[again.start(other_cuts) :] if not again.skips(*it)]
    expected = [it for it in slots if it[1] > own.places[it[0]]]
    assert sorted(first + second) == sorted(expected)
    assert len(set(first + second)) == len(expected)


def test_a_floor_is_passed_when_no_member_is_below_it() -> None:
    _, cuts = chain(["a", "a", "b"], Cut({it: place(0) for it in "ab"}))
    floor = Floor(Cut({"a": place(1), "b": place(1)}))
    assert [floor.is_passed(cut) for cut in cuts] == [False, False, False, True]
    assert floor.start(cuts) == 1


def test_one_that_has_all_slots_starts_after_the_last() -> None:
    slots, cuts = chain(["a", "b"], Cut({it: place(0) for it in "ab"}))
    assert Floor(cuts[-1]).start(cuts) == len(slots)


def test_a_member_that_joined_after_the_own_place_is_read_from_its_start() -> None:
    slots, cuts = chain(["a"], Cut({"a": place(0)}))
    cuts.append(cuts[-1].advance("b", place(8)))
    slots.append(("b", place(8)))
    floor = Floor(Cut({"a": place(1)}))
    assert floor.start(cuts) == 1
    assert not floor.skips("b", place(8))
    assert floor.place(cuts[-1]) == Cut({"a": place(1), "b": place(8)})


@pytest.mark.parametrize("own", [Cut({"a": place(1), "b": place(3)}), Cut({"b": place(3)}), Cut()])
def test_a_place_before_the_chain_in_one_member_is_gone(own: Cut) -> None:
    _, cuts = chain(["a", "b"], Cut({"a": place(2), "b": place(2)}))
    with pytest.raises(GoneError, match=r"no longer stored; the oldest place that is: a/7/b\.1@1:6:0,b/7/b\.1@1:6:0"):
        Floor(own).start(cuts)


def test_a_place_of_another_history_of_a_member_is_refused() -> None:
    _, cuts = chain(["a"], Cut({"a": place(0)}))
    with pytest.raises(SourceChangedError, match="member a"):
        Floor(Cut({"a": Position("7", "b.1", 2, 9, 0)})).start(cuts)
