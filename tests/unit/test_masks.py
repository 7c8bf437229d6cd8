"""New tables are matched with filters: once for all that are alike, and by a thread if it takes long."""

import threading
from collections import Counter

import pytest

from sluice.instance.conditions.judging import MOST_MATCHED, Judging
from sluice.instance.sink.filters import TableFilter
from sluice.instance.sink.patterns import TooLargeError
from sluice.protocol.gtid import MariadbGtidSet
from sluice.store.cursors import Cursors
from sluice.store.masks import AT_ONCE
from sluice.store.ring import Ring
from sluice.store.track import Wanted, WantedSlots
from tests.stream import Stream
from tests.waiting import soon


class Filter:
    """Passes the tables whose names begin with an a, and counts which it was asked for, and by which threads."""

    def __init__(self, size: int = 1) -> None:
        self.size = size
        self.asked: Counter[str] = Counter()
        self.threads: set[int] = set()

    def __call__(self, schema: str, table: str) -> bool:
        del schema
        self.asked[table] += 1
        self.threads.add(threading.get_ident())
        return table.startswith("a")


def ring_of(*tables: str) -> Ring:
    ring = Ring(64)
    for table in tables:
        ring.tables.intern(("shop", table))
    return ring


async def test_filters_that_are_alike_are_matched_once() -> None:
    ring, tables = ring_of("apples", "pears"), Filter()
    found = [WantedSlots(ring, Wanted(tables)).chosen()["allowed"] for _ in range(3)]
    assert found == [bytearray([1, 1, 0])] * 3
    kept = WantedSlots(ring, Wanted(tables))
    kept.chosen()
    ring.tables.intern(("shop", "apricots"))
    again = WantedSlots(ring, Wanted(tables))
    assert again.chosen()["allowed"] == kept.chosen()["allowed"] == bytearray([1, 1, 0, 1])
    assert tables.asked["apricots"] == 1


async def test_a_filter_is_forgotten_with_the_last_that_has_it() -> None:
    ring = ring_of("apples")
    slots = WantedSlots(ring, Wanted(Filter()))
    assert len(ring.masks) == 1
    del slots
    assert len(ring.masks) == 0


@pytest.mark.parametrize("size", [1, AT_ONCE + 1, MOST_MATCHED + 1])
async def test_what_takes_long_is_matched_by_a_thread(size: int) -> None:
    ring, tables = ring_of("apples", "pears"), Filter(size)
    slots = WantedSlots(ring, Wanted(tables))
    ring.masks.room = AT_ONCE
    slots.chosen()
    judging = Judging(lambda: judging.tend([ring]), pytest.fail)  # type: ignore[arg-type]
    judging.tend([ring])
    await soon(lambda: slots.chosen()["allowed"] == bytearray([1, 1, 0]))
    is_here = tables.threads == {threading.get_ident()}
    assert is_here == (size == 1)
    assert tables.asked == {"apples": 1, "pears": 1}


async def test_little_that_is_much_together_is_matched_by_a_thread() -> None:
    """Each client alone would be harmless."""
    ring, filters = ring_of("apples"), [Filter(AT_ONCE // 4) for _ in range(20)]
    slots = [WantedSlots(ring, Wanted(tables)) for tables in filters]
    judging = Judging(lambda: judging.tend([ring]), pytest.fail)  # type: ignore[arg-type]
    ring.masks.room = AT_ONCE
    for it in slots:
        it.chosen()
    assert sum(threading.get_ident() in tables.threads for tables in filters) == 4
    judging.tend([ring])
    await soon(lambda: all(tables.asked["apples"] == 1 for tables in filters))
    await soon(lambda: all(it.chosen()["allowed"] == bytearray([1, 1]) for it in slots))


async def test_nobody_gets_what_is_not_matched_yet() -> None:
    ring = Ring(64)
    tables = Filter(AT_ONCE + 1)
    cursors = Cursors(ring, epoch=1, compile_filter=lambda _: tables)
    stream = Stream(ring)
    cursors.begin(stream.end, MariadbGtidSet())
    cursors.subscribe(1, filter_text="a", now=0)
    ring.masks.room = AT_ONCE
    for name in ("pears", "apples"):
        stream.transaction(b"row", table=("shop", name))
    stream.put()
    cursors.advance(0)
    assert cursors.get(1, now=0) is None
    assert cursors.awaits_verdicts(1, ring.next)
    judging = Judging(lambda: cursors.advance(0), pytest.fail)  # type: ignore[arg-type]
    judging.tend([ring])
    await soon(lambda: not cursors.awaits_verdicts(1, ring.next))
    batch = cursors.get(1, now=0)
    assert batch is not None
    assert batch.rows == 1


async def test_a_filter_that_fails_ends_the_destination_and_not_its_loop() -> None:
    class Failing(Filter):
        def __call__(self, schema: str, table: str) -> bool:
            raise ZeroDivisionError

    ring = ring_of("apples")
    slots = WantedSlots(ring, Wanted(Failing(AT_ONCE + 1)))
    errors: list[Exception] = []
    Judging(lambda: None, errors.append).tend([ring])
    await soon(lambda: bool(errors))
    assert isinstance(errors[0], ZeroDivisionError)
    assert slots.reach(0, 0) == 0


@pytest.mark.parametrize("text", [r".*a.*\..*", r"\w+\.\w+", r"(?!shop\.a)shop\..*"])
def test_a_filter_says_how_large_it_is(text: str) -> None:
    size = TableFilter(text).size
    assert size > 0
    assert TableFilter(text, most=size).size == size
    with pytest.raises(TooLargeError, match="too large"):
        TableFilter(text, most=size - 1)
