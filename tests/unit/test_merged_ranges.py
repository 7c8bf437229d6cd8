"""Ranges of a merged stream: each member's own range, the same for ever, whatever order a server merges in."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.protocol.cut import Cut, parse_place
from sluice.protocol.errors import BadPositionError, GoneError
from sluice.protocol.position import Position
from sluice.store.batch import Range, RangeLimits
from sluice.store.snapshot import Window, Wish
from tests.stream import STEP
from tests.unit.test_chain import CLIENT, EVENTS, MEMBERS, Merged, cut, orders, place, rows

ANY = RangeLimits()


def server_of(order: str, begin: Cut | None = None) -> Merged:
    server = Merged(begin)
    server.cursors.subscribe(CLIENT, now=0)
    server.put(order)
    return server


def mark(server: Merged, after: Position, limits: RangeLimits = ANY) -> Range:
    found = server.cursors.ranges.mark(CLIENT, after, limits, now=0, final=True)
    assert found is not None
    return found


def read(server: Merged, from_: Position, to: Position) -> list[str]:
    batch = server.cursors.ranges.read(CLIENT, from_, to)
    assert batch is not None
    return rows(batch)


def wanted(from_: Cut, to: Cut) -> set[str]:
    """The transactions between two cuts, of each member by itself."""
    done = {name: [(it.places[name].begin - 4) // STEP // EVENTS for it in (from_, to)] for name in MEMBERS}
    return {f"{name}{number}" for name, (first, last) in done.items() for number in range(first, last)}


places = st.builds(lambda a, b, c: cut(a=a, b=b, c=c), *[st.integers(0, 4)] * 3)


@given(st.permutations("aaaabbbbcccc"), places, places, st.integers(1, 5))
def test_a_range_is_that_of_each_member_in_whatever_order_they_were_merged(
    order: list[str], one: Cut, other: Cut, parts: int
) -> None:
    server, from_, to = server_of("".join(order)), one.meet(other), one.join(other)
    found = read(server, from_, to)
    assert sorted(found) == sorted(wanted(from_, to))
    for name in MEMBERS:
        mine = [it for it in found if it[0] == name]
        assert mine == sorted(mine)
    split = server.cursors.ranges.split(CLIENT, from_, to, parts)
    assert split is not None
    assert [split[0].from_, *(it.to for it in split)] == [*(it.from_ for it in split), str(to)]
    assert len(split) <= parts
    pieces = [read(server, parse_place(it.from_), parse_place(it.to)) for it in split]
    assert [row for piece in pieces for row in piece] == found


@given(orders, st.integers(1, 3), st.randoms(use_true_random=False))
def test_ranges_that_follow_each_other_have_everything_once_although_a_server_merges_anew(
    order: str, most: int, random: Random
) -> None:
    begin, end = (cut(**{it: number(it) for it in MEMBERS}) for number in (lambda _: 0, order.count))
    here, got = begin, list[str]()
    while not end.precedes(here):
        server = server_of("".join(random.sample(order, len(order))))
        found = mark(server, here, RangeLimits(rows=most))
        got += read(server, here, parse_place(found.to))
        here = here.join(parse_place(found.to))
        assert str(here) == found.to
        assert server.cursors.ack_to(CLIENT, here, now=0)
    assert sorted(got) == sorted(wanted(begin, end))


def test_a_range_is_not_there_before_all_members_have_come_to_its_end() -> None:
    server = server_of("aab")
    assert server.cursors.ranges.read(CLIENT, cut(a=0, b=0, c=0), cut(a=1, b=2, c=0)) is None
    server.put("b")
    assert sorted(read(server, cut(a=0, b=0, c=0), cut(a=1, b=2, c=0))) == ["a0", "b0", "b1"]


def test_a_client_that_is_not_served_reads_what_comes_before_a_cut_in_each_member() -> None:
    server = server_of("aab")
    server.cursors.fall_out(CLIENT, GoneError("its place is lost"))
    assert sorted(read(server, cut(a=0, b=0, c=0), cut(a=1, b=1, c=0))) == ["a0", "b0"]


def test_a_range_ends_where_all_that_was_asked_for_is_in_it() -> None:
    server = server_of("aabcb")
    until = cut(a=1, b=1, c=0)
    found = mark(server, cut(a=0, b=0, c=0), RangeLimits(until=until))
    assert (found.to, found.reached) == (str(cut(a=2, b=1, c=0)), True)
    assert mark(server, cut(a=0, b=0, c=0), RangeLimits(until=until)) == found
    assert server.cursors.ack_to(CLIENT, parse_place(found.to), now=0)
    assert place(server.stored()) == cut(a=2, b=1, c=0)
    assert mark(server, parse_place(found.to), RangeLimits(until=until)).reached


def test_a_range_leaves_out_what_its_client_has_and_nothing_else() -> None:
    server = server_of("abcab")
    found = mark(server, cut(a=0, b=1, c=0))
    assert read(server, cut(a=0, b=1, c=0), parse_place(found.to)) == ["a0"]
    rest = mark(server, parse_place(found.to))
    assert read(server, parse_place(found.to), parse_place(rest.to)) == ["c0", "a1", "b1"]
    assert server.cursors.ack_to(CLIENT, parse_place(rest.to), now=0)
    assert place(server.stored()) == cut(a=2, b=2, c=1)


def test_a_range_that_begins_before_the_ring_or_ends_before_it_begins_is_refused() -> None:
    server = server_of("ab", cut(a=1, b=0, c=0))
    with pytest.raises(GoneError):
        mark(server, cut(a=0, b=1, c=0))
    with pytest.raises(BadPositionError, match="before its beginning"):
        server.cursors.ranges.read(CLIENT, cut(a=2, b=0, c=0), cut(a=1, b=1, c=0))


def test_a_place_after_what_a_client_was_given_last_stays_valid_and_none_before_it() -> None:
    server = server_of("ab")
    server.take(most=0)
    server.cursors.ranges.mark(CLIENT, cut(a=1, b=1, c=0), ANY, now=0, final=True)
    with pytest.raises(GoneError):
        mark(server, cut(a=0, b=1, c=0))
    stored = server.stored().cursor
    assert stored is not None
    assert stored.delivered == cut(a=1, b=1, c=0)


def test_rows_of_a_snapshot_of_one_member_wait_for_the_place_of_that_member_alone() -> None:
    server = server_of("a")
    window = Window(Wish(1, 0, "shop", "goods", "", None, None, 0, "b"), None)  # type: ignore[arg-type]
    window.high = Cut({"b": cut(b=1).places["b"]})
    assert window.locate(server.cursors.track) is None
    server.put("ca")
    assert window.locate(server.cursors.track) is None
    server.put("b")
    assert window.locate(server.cursors.track) == 4 * EVENTS
