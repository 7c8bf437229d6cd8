"""The ring of a destination as its stream: between which transactions it ends, and what stays for a comparison."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice.protocol.gtid import GtidSet, MariadbGtidSet, parse_gtids
from sluice.protocol.position import Position
from sluice.store.cursor import Cursor
from sluice.store.cursors import Cursors
from sluice.store.log.log import Limits, Log
from sluice.store.ring import Kind, Ring
from sluice.store.stream import MOST_KEPT, Stream
from tests.stream import Stream as Written
from tests.unit.test_log import OTHER, SERVER, SHAPE, Source, executed


def make(size: int = 1 << 10, memory: int = 1 << 20, *, gtids: GtidSet | None = None) -> tuple[Stream, Source]:
    source = Source(Ring(size, memory, segment_size=4096))
    stream = Stream(source.ring, catches_up=False)
    stream.open(source.place(1), gtids)
    return stream, source


def make_at(number: int) -> tuple[Stream, Source]:
    """A stream that begins with a transaction, before it has anything."""
    source = Source(Ring(64), number=number)
    stream = Stream(source.ring, catches_up=True)
    stream.open(source.place(number), None)
    return stream, source


def place(stream: Stream) -> Position | None:
    found = stream.last_boundary()
    return None if found is None else found.position


def half(source: Source) -> None:
    """Put a transaction without its end."""
    source.stage(b"begin", Kind.TRANSACTION_BEGIN, 0, ends=False)
    source.stage(b"row", Kind.ROW_DATA, 1, ends=False)
    source.put(0)


def test_a_closed_ring_shows_nothing_though_the_log_lacks_what_was_in_it() -> None:
    stream, source = make()
    stream.unlogged, stream.is_behind_log = 0, True
    source.transaction()
    source.put(0)
    assert stream.end == source.place(1)
    source.ring.close()
    assert stream.end == source.place(2)


class TestTheLastPlaceBetweenTwoTransactions:
    def test_is_unknown_before_the_stream_has_begun(self) -> None:
        assert Stream(Ring(64), catches_up=False).last_boundary() is None

    def test_is_where_the_stream_begins_before_there_is_anything(self) -> None:
        stream, source = make()
        assert place(stream) == source.place(1)

    def test_is_after_the_last_transaction(self) -> None:
        stream, source = make()
        source.transaction()
        source.transaction(2)
        source.put(0)
        assert place(stream) == source.place(3)

    @pytest.mark.parametrize("freed", [0, 1, 3, 4])
    def test_is_before_a_transaction_that_is_there_in_part(self, freed: int) -> None:
        stream, source = make()
        source.transaction()
        half(source)
        stream.free_to(freed)
        assert place(stream) == source.place(2)

    def test_has_what_was_executed_there(self) -> None:
        for gtids, expected in ((parse_gtids(f"{SERVER}:7"), f"{SERVER}:1-2:7"), (None, "")):
            stream, source = make(gtids=gtids)
            source.transaction()
            source.transaction()
            source.put(0)
            found = stream.last_boundary()
            assert found is not None
            assert found.gtid == expected


class TestTheOldestPlaceInTheLog:
    """The log begins at another source than the ring."""

    @pytest.fixture
    def log(self, tmp_path: Path) -> Iterator[Log]:
        with Log(tmp_path, "shop", Limits()) as log:
            self.write(log, SERVER, 1)
            yield log

    @staticmethod
    def write(log: Log, server: str, first: int) -> None:
        """Write ten transactions of a source."""
        source = Source(server=server, number=first)
        log.begin(source.place(first), executed(first - 1) if first > 1 else "", SHAPE)
        source.put(10)
        log.append(source.pieces())

    @staticmethod
    def oldest(log: Log, first: int, gtids: GtidSet | None) -> Cursor | None:
        """Of a ring that begins with a transaction of the other source."""
        source = Source(Ring(64), OTHER, first)
        stream = Stream(source.ring, catches_up=True)
        stream.open(source.place(first), gtids)
        stream.log = log
        return stream.oldest_logged()

    def test_is_before_a_ring_at_whose_source_the_log_has_come(self, log: Log) -> None:
        self.write(log, OTHER, 11)
        assert self.oldest(log, 15, None) == log.start

    def test_is_before_a_ring_that_begins_with_what_was_executed_where_the_log_ends(self, log: Log) -> None:
        assert self.oldest(log, 11, parse_gtids(executed(10))) == log.start

    def test_is_none_before_a_ring_to_which_the_log_does_not_lead(self, log: Log) -> None:
        assert self.oldest(log, 12, parse_gtids(executed(11))) is None
        assert self.oldest(log, 11, None) is None

    def test_is_before_a_ring_of_its_own_source_that_begins_later(self, log: Log) -> None:
        for first, expected in ((5, log.start), (1, None)):
            stream, _ = make_at(first)
            stream.log = log
            assert stream.oldest_logged() == expected

    def test_is_where_the_log_begins_as_long_as_nobody_knows_where_the_ring_does(self, log: Log) -> None:
        stream = Stream(Ring(64), catches_up=True)
        stream.log = log
        assert stream.oldest_logged() == log.start


class TestTheOldestPlaceThereIs:
    """The log has the transactions 1 to 10 and 15 to 24, the source those from 30 on, and the ring those from 35 on."""

    @pytest.fixture
    def stream(self, tmp_path: Path) -> Iterator[Stream]:
        stream, _source = make_at(35)
        with Log(tmp_path, "shop", Limits()) as log:
            for first in (1, 15):
                written = Source(number=first)
                log.begin(written.place(first), "", SHAPE)
                written.put(10)
                log.append(written.pieces())
            stream.log = log
            yield stream

    @staticmethod
    def oldest(stream: Stream, lost: int | None = None, of_source: int = 30) -> int:
        """The number of the transaction before which it is."""
        place = Source().place
        found = stream.oldest(Cursor.at(place(of_source)), None if lost is None else Cursor.at(place(lost))).position
        assert found is not None
        return int(found.canal_place[1]) // 100

    def test_is_that_of_the_last_part_of_the_log(self, stream: Stream) -> None:
        assert self.oldest(stream) == 15

    def test_is_that_of_the_source_if_it_has_more_than_the_log(self, stream: Stream) -> None:
        assert self.oldest(stream, of_source=3) == 3

    def test_is_after_a_lost_place_where_the_log_goes_on(self, stream: Stream) -> None:
        assert self.oldest(stream, lost=12) == 15

    def test_is_that_of_the_source_if_the_log_has_nothing_after_a_lost_place(self, stream: Stream) -> None:
        assert self.oldest(stream, lost=28) == 30

    def test_is_that_of_a_ring_without_a_log_whose_source_has_less(self, stream: Stream) -> None:
        stream.log = None
        assert self.oldest(stream, of_source=40) == 35
        assert self.oldest(stream, of_source=40, lost=36) == 40, "the ring has nothing between"


@pytest.mark.parametrize(("number", "expected"), [(None, 3), (1, 3), (2, 3), (3, 6), (4, 9), (5, 9)])
def test_what_follows_a_place_begins_with_the_ring_if_that_is_earlier_or_unknown(
    number: int | None, expected: int
) -> None:
    stream, source = make()
    source.put(3)
    stream.free_to(3)
    assert stream.from_place(None if number is None else source.place(number)) == expected


class TestTheSampleForAComparison:
    def test_is_empty_before_there_is_anything(self) -> None:
        assert make()[0].sample() == b""

    def test_has_whole_transactions_only(self) -> None:
        stream, source = make()
        source.transaction()
        source.transaction()
        half(source)
        whole = [b"begin", b"row 0 of 1", b"end 1", b"begin", b"row 0 of 2", b"end 2"]
        for freed, expected in ((0, whole), (1, whole[3:]), (2, whole[3:]), (3, whole[3:]), (4, []), (6, [])):
            stream.free_to(freed)
            assert stream.sample() == b"".join(expected)

    def test_is_of_the_last_slots(self) -> None:
        stream, source = make(1 << 12)
        for _ in range(200):
            source.transaction()
        source.put(0)
        found = stream.sample()
        assert found.startswith(b"begin")
        assert found.endswith(b"end 200")
        assert found.count(b"begin") == MOST_KEPT // 3

    def test_of_a_small_ring_is_of_a_quarter_of_its_slots(self) -> None:
        stream, source = make(64)
        for _ in range(20):
            source.transaction()
        source.put(0)
        assert stream.kept_from(60) == 60 - 64 // 4
        assert stream.sample().count(b"begin") == 5

    def test_has_at_most_a_quarter_of_the_memory(self) -> None:
        stream, source = make(1 << 10, 1 << 16)
        for number in range(40):
            source.stage(b"%d" % number * 500, Kind.ROW_DATA, 0, ends=True)
            source.number += 1
        source.put(0)
        sizes = [stream.ring.measure(it, it + 1)[3] for it in range(40)]
        start = stream.kept_from(40)
        assert sum(sizes[start:]) <= (1 << 16) // 4 < sum(sizes[start - (40 - start) - 1 :])
        assert stream.kept_from(0) == 0

    @pytest.mark.parametrize(
        ("sizes", "kept"),
        [([4096, 4096, 4096, 4096], 4), ([4097, 4096, 4096, 4096], 2), ([8193, 8192], 1), ([16385], 0)],
        ids=["a quarter", "more", "two of which one has room", "one without room"],
    )
    def test_of_what_has_more_than_a_quarter_of_the_memory_it_is_half_until_that_has_room(
        self, sizes: list[int], kept: int
    ) -> None:
        stream, source = make(1 << 10, 1 << 16)
        for size in sizes:
            source.stage(b"x" * size, Kind.ROW_DATA, 0, ends=True)
            source.number += 1
        source.put(0)
        assert stream.ring.memory == 1 << 16
        assert [stream.ring.measure(it, it + 1)[3] for it in range(len(sizes))] == sizes
        assert len(sizes) - stream.kept_from(len(sizes)) == kept


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("gtids", [None, MariadbGtidSet()])
def test_what_is_to_be_compared_stays_in_the_ring_unless_there_are_gtids(
    keeps: bool, gtids: MariadbGtidSet | None
) -> None:
    ring = Ring(64)
    cursors, written = Cursors(ring, epoch=1, compile_filter=lambda _: None, keeps=keeps), Written(ring)
    cursors.begin(written.end, gtids)
    cursors.subscribe(1, now=0)
    for number in range(12):
        written.transaction(b"%d" % number)
    written.put()
    cursors.advance(0)
    while batch := cursors.get(1, now=0):
        cursors.ack(1, batch.batch_id, now=0)
    cursors.advance(0)
    assert len(ring) == (16 if keeps and gtids is None else 0)
