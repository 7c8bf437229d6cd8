"""The compiled order of a merged stream gives what its model gives, whatever comes when."""

import random
from array import array
from collections import Counter
from collections.abc import Callable

import pytest

from sluice.instance.merge.order import UNKNOWN, By, Mark, Order
from sluice.protocol.errors import SourceError
from tests.effort import times
from tests.merge_model import ModelOrder, each, slices

Call = Callable[[Order | ModelOrder], object]
MEMBERS = 3


class Clock:
    """What is common to the calls of a history."""

    def __init__(self, seed: int) -> None:
        self.random, self.now = random.Random(seed), 0

    def add(self) -> Call:
        chance = self.random
        self.now += chance.randrange(20)
        now, member, count, is_open = self.now, chance.randrange(MEMBERS), chance.randrange(1, 6), chance.random() < 0.4
        stamps = array("q", [now + chance.randrange(-20, 10) for _ in range(count)])
        if chance.random() < 0.1:
            stamps[0] = UNKNOWN
        sizes = array("q", [chance.randrange(7) for _ in range(count)])
        return lambda order: order.add(member, stamps, sizes, is_open=is_open, now=now)

    def release(self) -> Call:
        most = self.random.randrange(1, 30)

        def released(order: Order | ModelOrder) -> object:
            before = [order.state(member).next for member in range(MEMBERS)]
            try:
                return list(each(order.release(most), before))
            except SourceError as error:
                return str(error).partition(" comes after")[0]

        return released

    def heartbeat(self) -> Call:
        member, time = self.random.randrange(MEMBERS), self.now + self.random.randrange(-5, 40)
        return lambda order: order.heartbeat(member, time)

    def other(self) -> Call:
        chance = self.random
        member, offset, name = chance.randrange(MEMBERS), chance.randrange(-20, 20), chance.choice(OTHERS)
        if name == "set_offset":
            return lambda order: order.set_offset(member, offset)
        if name in ("set_waited", "set_full"):
            return lambda order: getattr(order, name)(member, offset > 0)
        return lambda order: getattr(order, name)(member)


OTHERS = ["set_offset", "set_offset", "set_waited", "set_waited", "set_full", "reset", "reset", "leave", "remove"]
CALLS = [Clock.add] * 8 + [Clock.release] * 5 + [Clock.heartbeat] * 4 + [Clock.other] * 2


def test_the_compiled_order_is_that_of_the_model() -> None:
    seen = Counter[object]()
    for seed in range(times(700, 20_000)):
        clock = Clock(seed)
        chance = clock.random
        by, window = chance.choice([*By, By.TIME]), chance.randrange(6)
        order, model = Order(by, window=window), ModelOrder(by, window=window)
        exact = chance.random() < 0.2
        for name in "abc":
            pool, whole_seconds, waited = chance.randrange(1, 6), chance.random() < 0.1, chance.random() < 0.5
            for it in (order, model):
                it.add_member(name, pool=pool, exact=exact, whole_seconds=whole_seconds, waited=waited)
        if chance.random() < 0.1:
            for it in (order, model):
                it.resume(1)
        for _ in range(chance.randrange(5, 60)):
            call = chance.choice(CALLS)(clock)
            got = call(order)
            assert got == call(model), f"seed {seed}"
            assert order.holders() == model.holders(), f"seed {seed}"
            assert (order.released, order.streaming) == (model.released, model.streaming), f"seed {seed}"
            assert [order.state(i) for i in range(MEMBERS)] == [model.state(i) for i in range(MEMBERS)], f"seed {seed}"
            seen.update([it[2] for it in got] if isinstance(got, list) else [type(got)])
    for what in (0, Mark.LATE, Mark.PART, Mark.PART | Mark.LATE, Mark.BROKEN, str):
        assert seen[what], f"the histories are too calm to show anything: {seen}"


def add(order: Order, member: int, *stamps: int, size: int = 1, is_open: bool = False, now: int = 1 << 50) -> None:
    order.add(member, array("q", stamps), array("q", [size] * len(stamps)), is_open=is_open, now=now)


def test_runs_of_a_member_are_one_slice() -> None:
    order = Order(By.TIME)
    for name in "ab":
        order.add_member(name, pool=100)
    add(order, 0, 1, 2, 3, 7, 8)
    add(order, 1, 4, 5, 6, 9)
    assert slices(order.release(1000)) == [(0, 3, 0), (1, 3, 0), (0, 5, 0)]
    assert order.holders() == [0]
    order.heartbeat(0, 9)
    assert slices(order.release(1000)) == []  # an equal key of the member before it may still come
    order.heartbeat(0, 10)
    assert slices(order.release(1000)) == [(1, 4, 0)]


def test_equal_keys_go_by_member() -> None:
    order = Order(By.TIME)
    for name in "ab":
        order.add_member(name, pool=100)
    add(order, 1, 5, 5)
    add(order, 0, 5, 6)
    assert slices(order.release(1000)) == [(0, 1, 0), (1, 2, 0)]


def test_a_release_has_room_for_one_transaction_at_least() -> None:
    order = Order(By.TIME)
    order.add_member("a", pool=100)
    add(order, 0, 1, 2, 3, size=10)
    assert slices(order.release(1)) == [(0, 1, 0)]
    assert slices(order.release(11)) == [(0, 3, 0)]
    assert order.state(0).bytes == 20, "the ring may not have them yet"
    assert slices(order.release(1)) == []
    assert order.state(0).bytes == 0


def test_a_pool_without_room_is_full_whatever_is_counted() -> None:
    order = Order(By.TIME)
    order.add_member("a", pool=100)
    add(order, 0, 1)
    assert not order.state(0).is_full
    order.set_full(0, True)
    assert order.state(0).is_full
    assert slices(order.release(1000)) == [(0, 1, 0)]
    add(order, 0, 2, is_open=True)
    assert slices(order.release(1000)) == [(0, 2, Mark.PART)]


def test_what_follows_of_a_transaction_that_was_released_in_part_before_is_first() -> None:
    order = Order(By.TIME)
    for name in "ab":
        order.add_member(name, pool=100)
    order.resume(1)
    add(order, 0, 1)
    order.heartbeat(0, 1 << 60)
    assert slices(order.release(1000)) == []
    assert order.holders() == [1]
    add(order, 1, 5, 6)  # the first is what follows
    order.heartbeat(1, 1 << 60)
    assert slices(order.release(1000)) == [(1, 1, 0), (0, 1, 0), (1, 2, 0)]


def test_ids_beyond_all_times_are_in_order() -> None:
    order = Order(By.COLUMN)
    for name in "ab":
        order.add_member(name, pool=100)
    add(order, 0, (1 << 62) + 1, (1 << 63) - 2)
    add(order, 1, 1 << 62, (1 << 62) + 2)
    for member in range(2):
        order.heartbeat(member, 0)
    assert slices(order.release(1000)) == [(1, 1, 0), (0, 1, 0), (1, 2, 0), (0, 2, 0)]


def test_a_transaction_without_the_column_is_not_late() -> None:
    order = Order(By.COLUMN)
    for name in "ab":
        order.add_member(name, pool=100)
    add(order, 0, 10, 20)
    order.heartbeat(0, 0)
    order.heartbeat(1, 0)
    assert slices(order.release(1000)) == [(0, 2, 0)]
    add(order, 1, UNKNOWN)
    order.heartbeat(1, 0)
    assert slices(order.release(1000)) == [(1, 1, 0)]


@pytest.mark.parametrize("stamp", [-(1 << 63), (1 << 63) - 1])
@pytest.mark.parametrize("offset", [-(1 << 63), (1 << 63) - 1])
def test_a_key_is_a_time_whatever_the_source_says(stamp: int, offset: int) -> None:
    order = Order(By.TIME)
    order.add_member("a", pool=100, whole_seconds=True)
    order.set_offset(0, offset)
    add(order, 0, stamp, stamp, now=1000)
    assert order.state(0).key <= 1000
    assert slices(order.release(1000)) == [(0, 2, 0)]


def test_stamps_and_sizes_are_as_many() -> None:
    order = Order(By.TIME)
    order.add_member("a", pool=100)
    with pytest.raises(ValueError, match="2 stamps and 1 sizes"):
        order.add(0, array("q", [1, 2]), array("q", [1]), is_open=False, now=0)
    with pytest.raises(ValueError, match="0 stamps and 0 sizes"):
        order.add(0, array("q"), array("q"), is_open=False, now=0)
    assert order.state(0).transactions == 0


def test_64_members_that_take_turns_are_released_in_order() -> None:
    order = Order(By.TIME)
    for i in range(64):
        order.add_member(f"m{i}", pool=1 << 20)
        add(order, i, *range(i, 6400, 64))
    last = 6400 - 64
    out = slices(order.release(1 << 30))
    assert [it[0] for it in out] == [*range(64)] * 99 + [0]
    assert out[-1] == (0, 100, 0)
    assert order.released == last
    assert Mark.LATE not in {it[2] for it in out}
