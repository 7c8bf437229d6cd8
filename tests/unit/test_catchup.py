"""Ranges that are read from the source again: in turns with others, each going on where it was."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sluice.instance.config import InstanceConfig
from sluice.instance.serving.catchup import CatchUp
from sluice.protocol.errors import DestinationStoppedError
from sluice.protocol.position import Position
from sluice.store import patience
from sluice.store.batch import Range, RangeLimits
from sluice.store.cursors import Cursors
from sluice.store.patience import IDLE
from sluice.store.ring import Ring
from sluice.store.track import Wanted
from tests.stream import CREATED, FILE, SOURCE, STEP, entries
from tests.unit.test_embedded import WrittenByTest


def place(events: int) -> Position:
    return Position(SOURCE, FILE, CREATED, 4 + events * STEP, 0)


class Setup:
    """One reader, and what has it."""

    def __init__(self, folder: Path) -> None:
        self.parsers: list[WrittenByTest] = []
        self.cursors = Cursors(Ring(8), epoch=1, compile_filter=lambda _: None)
        config = InstanceConfig(
            destination="example",
            file_data_dir=folder,
            catch_up_readers=1,
        )
        self.catch_up = CatchUp(config, self.make_parser, self.tend)

    def make_parser(self, *arguments: object, **options: object) -> WrittenByTest:
        self.parsers.append(WrittenByTest(*arguments, **options))  # type: ignore[arg-type]
        return self.parsers[-1]

    def tend(self, later: float = 0.0) -> None:
        self.catch_up.tend(self.cursors, time.monotonic() + later)

    async def parser(self, number: int, begin: int) -> WrittenByTest:
        """Wait for the parser of the n-th turn, which begins there."""
        async with asyncio.timeout(10):
            while len(self.parsers) <= number:
                self.tend()
                await asyncio.sleep(0.01)
        assert len(self.parsers) == number + 1
        assert self.parsers[number].stream.events == begin
        return self.parsers[number]

    async def read(self, from_: int, to: int) -> list[bytes]:
        """Read a range."""
        found: list[bytes] = []
        async with self.catch_up.open_range(place(from_), place(to), Wanted()) as opened:
            async for chunk in opened.chunks(transactions=True):
                found += entries(chunk.slices)
        return found

    async def give_way(self, turn: int) -> None:
        """Let another range have a turn, and be read in it."""
        other = asyncio.create_task(self.read(30, 33))
        (await self.parser(turn, 30)).write(b"other")
        assert await other == [b"begin", b"other", b"end"]

    async def next(self, after: int, limits: RangeLimits, end: int) -> Range:
        """Return the range that follows a place, which ends at another at the latest."""
        async with self.catch_up.open_range(place(after), place(end), Wanted()) as opened:
            return await opened.range(limits)


@pytest.fixture
async def setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Setup]:
    monkeypatch.setattr(patience, "TURN", 0.1)
    made = Setup(tmp_path)
    yield made
    await made.catch_up.close()


async def test_range_that_others_wait_for_goes_on_in_its_next_turn_where_it_was(setup: Setup) -> None:
    reading = asyncio.create_task(setup.read(0, 6))
    first = await setup.parser(0, 0)
    first.write(b"one")
    other = asyncio.create_task(setup.read(30, 33))
    second = await setup.parser(1, 30)
    first.write(b"two")  # too late
    assert setup.catch_up.count == 1
    second.write(b"other")
    assert await other == [b"begin", b"other", b"end"]
    third = await setup.parser(2, 3)
    third.write(b"two")
    assert await reading == [b"begin", b"one", b"end", b"begin", b"two", b"end"]


async def test_range_that_has_been_given_nothing_keeps_its_reader_though_others_wait(setup: Setup) -> None:
    reading = asyncio.create_task(setup.read(0, 3))
    first = await setup.parser(0, 0)
    other = asyncio.create_task(setup.read(30, 33))
    await asyncio.sleep(0.3)
    setup.tend()
    first.write(b"one")
    assert await reading == [b"begin", b"one", b"end"]
    second = await setup.parser(1, 30)
    second.write(b"other")
    assert await other == [b"begin", b"other", b"end"]


async def test_ranges_that_share_a_reader_share_its_next_turn(setup: Setup) -> None:
    whole, part = (asyncio.create_task(setup.read(from_, 9)) for from_ in (0, 3))
    first = await setup.parser(0, 0)
    await asyncio.sleep(0.05)
    first.write(b"one")
    await setup.give_way(1)
    third = await setup.parser(2, 3)
    third.write(b"two")
    third.write(b"three")
    assert await whole == [b"begin", b"one", b"end", *await part]
    assert await part == [b"begin", b"two", b"end", b"begin", b"three", b"end"]


async def test_reader_is_not_kept_for_a_range_whose_consumer_does_not_go_on(setup: Setup) -> None:
    async with setup.catch_up.open_range(place(0), place(6), Wanted()) as opened:
        chunks = opened.chunks(transactions=True)
        reading = asyncio.ensure_future(anext(chunks))
        (await setup.parser(0, 0)).write(b"one")
        assert entries((await reading).slices) == [b"begin", b"one", b"end"]
        setup.tend(IDLE - 1)
        assert setup.catch_up.count == 1
        setup.tend(IDLE + 1)
        assert setup.catch_up.count == 0
        reading = asyncio.ensure_future(anext(chunks))
        (await setup.parser(1, 3)).write(b"two")
        assert entries((await reading).slices) == [b"begin", b"two", b"end"]


async def test_end_of_a_range_is_found_in_the_next_turn_from_its_beginning(setup: Setup) -> None:
    finding = asyncio.create_task(setup.next(0, RangeLimits(rows=1), 9))
    reading = asyncio.create_task(setup.read(0, 9))
    (await setup.parser(0, 0)).write(b"one")
    assert (await finding).to == str(place(3))
    finding = asyncio.create_task(setup.next(3, RangeLimits(rows=2), 9))
    await setup.give_way(1)
    third = await setup.parser(2, 3)
    third.write(b"two")
    third.write(b"three")
    found = await finding
    assert (found.from_, found.to) == (str(place(3)), str(place(9)))
    await reading


async def test_range_that_waits_for_its_next_turn_ends_with_the_destination(setup: Setup) -> None:
    reading = asyncio.create_task(setup.read(0, 6))
    (await setup.parser(0, 0)).write(b"one")
    other = asyncio.create_task(setup.read(30, 33))
    await setup.parser(1, 30)
    await setup.catch_up.close()
    for task in (reading, other):
        with pytest.raises(DestinationStoppedError):
            await task


async def test_range_whose_turn_begins_as_all_readers_are_closed_makes_none(setup: Setup) -> None:
    reading = asyncio.create_task(setup.read(0, 3))
    await setup.parser(0, 0)
    waiting = asyncio.create_task(setup.read(30, 33))
    await asyncio.sleep(0.05)
    reading.cancel()
    await asyncio.sleep(0)
    closing = asyncio.create_task(setup.catch_up.close())
    setup.tend()
    setup.tend(later=1)  # its turn begins, and it hears of that after the close
    with pytest.raises(DestinationStoppedError):
        async with asyncio.timeout(3):
            await waiting
    await closing
    assert setup.catch_up.count == 0
