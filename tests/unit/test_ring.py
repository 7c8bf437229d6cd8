"""The ring: what goes in comes out, within its bounds, and memory is not reused while it is read."""

import contextlib
import ctypes
import gc
import threading
import time
import zlib
from collections.abc import Generator, Iterator

import pytest

from sluice.protocol.errors import ConfigError, DecodeError
from sluice.store.ring import Flag, Kind, Ring, Staging
from sluice.store.segment import SegmentWriter
from tests.waiting import eventually


class Source:
    """Puts entries as a decoder does; the n-th entry is at offset n of its file."""

    def __init__(self, ring: Ring) -> None:
        self.ring = ring
        self.writer = SegmentWriter(ring.pool)
        self.staging = Staging()
        self.offset = 4

    def stage(self, entry: bytes = b"entry", kind: Kind = Kind.ROW_DATA, table: int = 0, **values: int) -> None:
        self.writer.write(entry)
        begin, self.offset = self.offset, self.offset + 1
        self.staging.add_entry(
            self.writer, kind, table=table, rows=1, file=1, begin=begin, next_file=1, next_begin=self.offset, **values
        )

    def put(self, *entries: bytes, stop: threading.Event | None = None) -> bool:
        for entry in entries:
            self.stage(entry)
        return self.ring.put(self.staging, stop)


def joined(slices: list[memoryview]) -> bytes:
    return b"".join(slices)


def wait_until_put_blocks(ring: Ring) -> None:
    eventually(lambda: ring.waiting)


@pytest.mark.parametrize("size", [0, -1, 3, 1000])
def test_size_must_be_a_power_of_two(size: int) -> None:
    with pytest.raises(ConfigError, match="power of 2"):
        Ring(size)


def test_an_entry_of_four_gibibytes_is_refused() -> None:
    source = Source(Ring())
    source.writer.write(b"entry")
    # A test cannot write so much into memory: the writer's pointer to the end of the entry is moved.
    words = (ctypes.c_size_t * 8).from_address(id(source.writer))
    end = next(i + 1 for i in range(7) if words[i + 1] - words[i] == len(b"entry"))
    words[end] += (1 << 32) - len(b"entry")
    with pytest.raises(DecodeError, match="an entry of 4294967296 bytes"):
        source.stage(b"")
    assert len(source.staging) == 0
    words[end] -= (1 << 32) - len(b"entry")
    source.put(b" that fits")
    assert joined(source.ring.collect(0).slices) == b"entry that fits"


def test_consecutive_entries_are_one_slice_without_a_copy() -> None:
    ring = Ring()
    Source(ring).put(b"one", b"two", b"three")
    batch = ring.collect(0)
    assert [bytes(part) for part in batch.slices] == [b"onetwothree"]
    assert batch.slices[0].obj is not None
    assert not isinstance(batch.slices[0].obj, bytes)
    assert (batch.start, batch.stop, batch.entries, batch.rows, batch.bytes) == (0, 3, 3, 3, 11)


@contextlib.contextmanager
def growing(source: Source) -> Iterator[None]:
    """Let the ring grow whenever the collector runs: that lets the thread that puts go on in the middle of a read."""
    overwritten: list[bytes] = []

    def grow(phase: str, _: object) -> None:
        if phase == "start" and len(source.ring) < 2000:
            source.put(*[b"."] * (len(source.ring) + 1))
            overwritten.extend(b"\xff" * size for size in range(1 << 10, 1 << 16, 1 << 10))  # the memory it gave back

    threshold = gc.get_threshold()
    gc.callbacks.append(grow)
    gc.set_threshold(1)
    try:
        yield
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(grow)
    assert overwritten


def test_a_batch_is_right_though_the_ring_grows_while_its_slices_are_made() -> None:
    source = Source(Ring())
    entries = [bytes([number]) * (20 << 10) for number in range(64)]
    for number, entry in enumerate(entries):
        source.stage(entry, table=1 + number % 2)
    source.put()
    with growing(source):
        batch = source.ring.collect(0, stop=64, allowed=bytearray([1, 1, 0]))
    assert joined(batch.slices) == b"".join(entries[::2])


def test_parts_are_right_though_the_ring_grows_while_they_are_cut() -> None:
    source = Source(Ring())
    source.put(*[b"ten bytes!"] * 64)
    with growing(source):
        parts = source.ring.split(0, 64, 16)
    assert parts == [(end, 4, 4, 40) for end in range(4, 65, 4)]


def test_framing_is_that_of_messages() -> None:
    ring = Ring()
    source = Source(ring)
    source.writer.write_framed(b"x" * 300)
    source.staging.add_entry(source.writer, Kind.ROW_DATA)
    source.put()
    assert joined(ring.collect(0).slices) == b"\x12\xac\x02" + b"x" * 300


def test_what_is_put_and_what_is_freed_is_counted() -> None:
    ring = Ring()
    source = Source(ring)
    for number in range(3):
        source.stage(b"xx", execute_ms=1000 * (number + 1))
    source.stage(b"", Kind.ADVANCE, execute_ms=9000)
    source.put()
    assert (ring.put_bytes, ring.put_execute_ms) == (6, 3000)
    assert (ring.freed_rows, ring.freed_bytes, ring.freed_execute_ms) == (0, 0, 0)
    ring.free_to(2)
    assert (ring.freed_rows, ring.freed_bytes, ring.freed_execute_ms) == (2, 4, 2000)
    ring.close()
    assert ring.freed_bytes == 4


def test_fill_is_the_part_of_the_slots_that_are_not_yet_freed() -> None:
    ring = Ring(8)
    source = Source(ring)
    source.put(*[b"x"] * 6)
    assert ring.fill == 6 / 8
    ring.free_to(4)
    source.put(*[b"x"] * 3)
    assert ring.fill == 5 / 8


def test_time_for_which_a_put_waits_is_counted_while_it_waits() -> None:
    ring = Ring(2)
    source = Source(ring)
    source.put(b"one", b"two")
    assert ring.blocked_seconds == 0
    putter = threading.Thread(target=source.put, args=(b"three",), daemon=True)
    putter.start()
    wait_until_put_blocks(ring)
    time.sleep(0.05)
    assert 0.04 < ring.blocked_seconds < 10
    ring.free_to(1)
    putter.join()
    waited = ring.blocked_seconds
    time.sleep(0.02)
    assert ring.blocked_seconds == waited


def test_idle_ring_takes_no_memory() -> None:
    ring = Ring()
    assert ring.pool.allocated == 0


def test_item_limit() -> None:
    ring = Ring()
    Source(ring).put(*[b"x"] * 5)
    batch = ring.collect(0, max_entries=2)
    assert (batch.entries, batch.stop, batch.complete) == (2, 2, True)
    assert ring.collect(4, max_entries=2).complete is False


def test_memory_limit_overshoots_by_one_entry_as_canal() -> None:
    ring = Ring()
    Source(ring).put(*[b"x" * 600] * 5)
    assert ring.collect(0, memory_limit=1024).entries == 2
    assert ring.collect(0, memory_limit=1200).entries == 3


def test_byte_limit_is_never_passed_but_by_one_large_entry() -> None:
    ring = Ring()
    Source(ring).put(b"x" * 5000, *[b"x" * 600] * 5)
    assert ring.collect(0, max_bytes=1024).entries == 1
    assert ring.collect(1, max_bytes=1200).entries == 2


def test_ddl_is_returned_alone_when_isolated() -> None:
    ring = Ring()
    source = Source(ring)
    for kind in (Kind.ROW_DATA, Kind.DDL, Kind.DDL, Kind.ROW_DATA, Kind.ROW_DATA):
        source.stage(kind=kind)
    source.put()
    stops = []
    sequence = 0
    while sequence < ring.next:
        sequence = ring.collect(sequence, ddl_isolation=True).stop
        stops.append(sequence)
    assert stops == [1, 2, 3, 5]
    assert ring.collect(0).stop == 5


def test_tables_that_are_not_wanted_are_passed_over() -> None:
    ring = Ring()
    source = Source(ring)
    for number in range(10):
        source.stage(b"%d" % number, table=1 + number % 2)
    source.put()
    batch = ring.collect(0, allowed=bytearray([1, 1, 0]))
    assert (joined(batch.slices), batch.entries, batch.stop) == (b"02468", 5, 10)
    assert len(batch.slices) == 1
    nothing = ring.collect(0, allowed=bytearray([1, 0, 0]))
    assert (nothing.slices, nothing.entries, nothing.stop) == ([], 0, 10)


def test_texts_of_statements_are_given_to_whom_they_are_for() -> None:
    ring = Ring()
    source = Source(ring)
    source.stage(b"B", Kind.TRANSACTION_BEGIN)
    source.stage(b"t", Kind.QUERY, flags=Flag.TEXT)
    source.stage(b"i", Kind.QUERY, table=1, flags=Flag.TEXT)
    source.stage(b"r", table=1)
    source.stage(b"m", Kind.QUERY)
    source.stage(b"E", Kind.TRANSACTION_END, flags=Flag.BOUNDARY)
    source.put()
    end = ring.next
    assert joined(ring.collect(0).slices) == joined(ring.read(0, end).slices) == b"BtirmE"
    assert (ring.measure(0, end)[1], ring.cut(0, end)[1], ring.split(0, end, 1)[0][1]) == (6, 4, 6)
    assert joined(ring.collect(0, texts=False).slices) == joined(ring.read(0, end, texts=False).slices) == b"BrmE"
    assert ring.measure(0, end, texts=False)[1] == ring.split(0, end, 1, texts=False)[0][1] == 4
    assert ring.cut(0, end, texts=False)[1] == 2


def test_tables_seen_after_the_filter_was_made_are_wanted() -> None:
    ring = Ring()
    source = Source(ring)
    source.stage(table=7)
    source.put()
    assert ring.collect(0, allowed=bytearray([1, 0])).entries == 1


def test_long_runs_are_not_copied_and_short_ones_are_gathered() -> None:
    ring = Ring()
    source = Source(ring)
    entries = [b"a" * 10, b"-", b"b" * 10, b"-", b"c" * 40000, b"-", b"d" * 10, b"-", b"e" * 10]
    for entry in entries:
        source.stage(entry, table=2 if entry == b"-" else 1)
    source.put()
    batch = ring.collect(0, allowed=bytearray([1, 1, 0]))
    assert [bytes(part) for part in batch.slices] == [b"a" * 10 + b"b" * 10, b"c" * 40000, b"d" * 10 + b"e" * 10]


def transaction(source: Source, *tables: int, end: bool = True) -> None:
    source.stage(b"B", Kind.TRANSACTION_BEGIN)
    for table in tables:
        source.stage(b"%d" % table, table=table)
    if end:
        source.stage(b"E", Kind.TRANSACTION_END, flags=Flag.BOUNDARY)


def test_transaction_of_which_nothing_is_wanted_is_passed_over() -> None:
    ring = Ring()
    source = Source(ring)
    transaction(source, 2, 2)
    transaction(source, 2, 1, 2)
    transaction(source, 2)
    source.put()
    batch = ring.collect(0, allowed=bytearray([1, 1, 0]))
    assert (joined(batch.slices), batch.stop) == (b"B1E", ring.next)


def test_begin_waits_until_something_of_its_transaction_is_wanted() -> None:
    ring = Ring()
    source = Source(ring)
    transaction(source, 1)
    transaction(source, 2, end=False)
    source.put()
    allowed = bytearray([1, 1, 0])
    batch = ring.collect(0, allowed=allowed)
    assert (joined(batch.slices), batch.stop) == (b"B1E", 3)
    source.stage(b"1", table=1)
    source.put()
    assert joined(ring.collect(3, allowed=allowed).slices) == b"B1"


def test_begin_does_not_wait_when_the_ring_is_full() -> None:
    ring = Ring(size=4)
    source = Source(ring)
    transaction(source, 2, 2, 2, 2, 2)
    putter = threading.Thread(target=source.put, daemon=True)
    putter.start()
    wait_until_put_blocks(ring)
    batch = ring.collect(0, allowed=bytearray([1, 1, 0]))
    assert (joined(batch.slices), batch.stop) == (b"B", 4)
    ring.free_to(4)
    putter.join()
    assert joined(ring.collect(4, allowed=bytearray([1, 1, 0])).slices) == b"E"


def test_full_ring_blocks_put_until_room_is_made() -> None:
    ring = Ring(size=4)
    source = Source(ring)
    putter = threading.Thread(target=source.put, args=[b"%d" % number for number in range(10)], daemon=True)
    putter.start()
    received = b""
    while len(received) < 10:
        batch = ring.collect(ring.first)
        assert len(ring) <= 4
        received += joined(batch.slices)
        ring.free_to(batch.stop)
    putter.join()
    assert received == b"0123456789"


def test_put_blocks_at_the_memory_bound_and_admits_a_larger_entry_alone() -> None:
    ring = Ring(memory=1000)
    source = Source(ring)
    assert source.put(b"x" * 600)
    putter = threading.Thread(target=source.put, args=(b"y" * 5000,), daemon=True)
    putter.start()
    wait_until_put_blocks(ring)
    assert len(ring) == 1
    ring.free_to(1)
    putter.join()
    assert ring.bytes == 5000


def test_ends_of_segments_that_stay_empty_count_against_the_bound() -> None:
    ring = Ring(memory=4 << 20, segment_size=64 * 1024)
    source = Source(ring)
    putter = threading.Thread(target=lambda: [source.put(b"x" * 40_000) for _ in range(100)], daemon=True)
    putter.start()
    wait_until_put_blocks(ring)
    assert 2_400_000 < ring.bytes < 3_000_000, "of each segment 24 KiB are lost"
    assert ring.pool.allocated <= ring.memory
    assert 0.99 < ring.fill <= 1.02
    ring.free_to(ring.next)
    putter.join()
    assert ring.next == 100


@pytest.mark.parametrize("how", ["stop", "close"])
def test_blocked_put_ends(how: str) -> None:
    ring = Ring(size=2)
    source = Source(ring)
    stop = threading.Event()
    results: list[bool] = []
    putter = threading.Thread(target=lambda: results.append(source.put(*[b"x"] * 3, stop=stop)), daemon=True)
    putter.start()
    wait_until_put_blocks(ring)
    if how == "stop":
        stop.set()
        ring.wake()
    else:
        ring.close()
    putter.join()
    assert results == [False]
    assert source.staging.released == (0, 1, 6, 0), "after the two of three that fitted"


def test_put_notifies_after_publishing_and_before_waiting() -> None:
    ring = Ring(size=2)
    source = Source(ring)
    seen: list[tuple[int, bool]] = []
    ring.on_put = lambda: seen.append((ring.next, ring.waiting))
    putter = threading.Thread(target=source.put, args=[b"x"] * 3, daemon=True)
    putter.start()
    wait_until_put_blocks(ring)
    ring.free_to(2)
    putter.join()
    assert seen == [(2, False), (2, True), (3, False)]


def test_memory_of_a_slow_reader_is_not_reused_and_counts_against_the_bound() -> None:
    ring = Ring(memory=64 * 1024, segment_size=16 * 1024)
    source = Source(ring)
    source.put(b"a" * 10_000, b"b" * 10_000)
    slow = ring.collect(0, max_entries=1).slices[0]
    checksum = zlib.crc32(slow)
    ring.free_to(2)
    assert ring.pool.pinned == 16 * 1024
    for letter in b"cdefghij":
        source.put(bytes([letter]) * 10_000)
        ring.free_to(ring.next)
    assert zlib.crc32(slow) == checksum

    putter = threading.Thread(target=source.put, args=[b"x" * 10_000] * 5, daemon=True)
    putter.start()
    wait_until_put_blocks(ring)
    assert ring.bytes == 40_000, "the pinned segment leaves room for four entries only"
    slow.release()
    putter.join()
    assert ring.pool.pinned == 0


@pytest.mark.parametrize("size", [50, 2000], ids=["within the bound", "larger than the bound"])
def test_consumer_that_holds_its_last_batch_still_gets_the_next(size: int) -> None:
    ring = Ring(memory=1000, segment_size=4096)
    source = Source(ring)
    held = []
    for _ in range(100):
        putter = threading.Thread(target=source.put, args=(b"x" * size,), daemon=True)
        putter.start()
        putter.join(5)
        assert not putter.is_alive()
        batch = ring.collect(ring.first)
        held = batch.slices
        ring.free_to(batch.stop)
    assert ring.pool.pinned <= 2 * ring.pool.largest
    assert held


def test_slices_stay_valid_when_the_ring_is_gone() -> None:
    ring = Ring()
    Source(ring).put(b"a" * 100_000)
    slices = ring.collect(0).slices
    ring.close()
    del ring
    gc.collect()
    assert joined(slices) == b"a" * 100_000


def test_unreferenced_ring_frees_its_memory() -> None:
    """A destination makes a new one whenever it is started."""

    def count_rings() -> int:
        gc.collect()
        return sum(isinstance(held, Ring) for held in gc.get_objects())

    before = count_rings()
    ring = Ring()
    Source(ring).put(b"a" * 100_000)
    ring.close()
    assert count_rings() == before + 1
    del ring
    assert count_rings() == before


def test_view_may_be_dropped_while_an_exception_is_on_its_way() -> None:
    ring = Ring(segment_size=4096)
    source = Source(ring)

    def view() -> memoryview:
        source.put(b"x" * 4000, b"y" * 4000)
        found = ring.collect(ring.first, max_entries=1).slices[0]
        ring.free_to(ring.next)
        return found

    def fail() -> None:
        held = view()
        raise KeyError(held[0])

    def generate() -> Generator[None, None, int]:
        held = view()
        yield
        return held[0]

    with pytest.raises(KeyError):
        fail()
    generator = generate()
    next(generator)
    with pytest.raises(StopIteration):
        next(generator)
    gc.collect()
    assert ring.pool.pinned == 0


def test_memory_is_kept_while_the_stream_flows_and_given_back_when_it_rests() -> None:
    ring = Ring(memory=1 << 20, segment_size=64 * 1024)
    source = Source(ring)

    def fill_and_free() -> None:
        source.put(*[b"x" * 60_000] * 16)
        ring.free_to(ring.next)

    fill_and_free()
    flowing = ring.pool.allocated
    assert flowing >= 15 * 64 * 1024
    for _ in range(3):
        fill_and_free()
        ring.pool.trim()
        assert ring.pool.allocated == flowing
    ring.pool.trim()
    assert ring.pool.allocated <= 5 * 64 * 1024


def test_memory_is_given_back_when_the_ring_is_closed() -> None:
    ring = Ring(memory=1 << 20, segment_size=64 * 1024)
    source = Source(ring)
    source.put(*[b"x" * 60_000] * 16)
    read = ring.collect(0).slices
    source.writer.close()
    ring.close()
    assert ring.pool.allocated == ring.pool.pinned
    read.clear()
    assert ring.pool.allocated == 0


def test_large_entries_give_their_memory_back() -> None:
    ring = Ring(memory=1 << 20, segment_size=64 * 1024)
    source = Source(ring)
    for _ in range(20):
        source.put(b"small")
        ring.free_to(ring.next)
        source.put(b"x" * 5_000_000)
        assert joined(ring.collect(ring.first).slices) == b"x" * 5_000_000
        ring.free_to(ring.next)
        assert ring.pool.allocated < 1 << 20


def test_entry_that_grows_beyond_its_segment_stays_whole() -> None:
    ring = Ring(segment_size=4096)
    source = Source(ring)
    source.put(b"before")
    for _ in range(100):
        source.writer.write(b"y" * 1000)
    source.put(b"end", b"after")
    assert joined(ring.collect(0).slices) == b"before" + b"y" * 100_000 + b"end" + b"after"


def test_transactions_are_named_that_have_a_begin_an_end_and_one_gtid() -> None:
    ring = Ring()
    source = Source(ring)
    for kind, origin, gtid in (
        (Kind.TRANSACTION_END, 1, 1),  # its begin is before
        (Kind.TRANSACTION_BEGIN, 1, 0),
        (Kind.TRANSACTION_BEGIN, 2, 0),  # of another member of a group
        (Kind.ROW_DATA, 1, 0),
        (Kind.TRANSACTION_END, 1, 2),
        (Kind.TRANSACTION_END, 2, 3),
        (Kind.TRANSACTION_BEGIN, 1, 0),
        (Kind.TRANSACTION_END, 1, 0),  # an anonymous one
        (Kind.TRANSACTION_BEGIN, 1, 0),
    ):
        source.stage(kind=kind, source=origin, gtid=gtid, gtid_first=gtid, gtid_last=gtid)
    source.put()
    assert ring.named_transactions(0, 9) == [(1, 5, 2, 2), (1, 6, 3, 3)]
    assert ring.named_transactions(2, 6) == [(1, 6, 3, 3)]


def test_gtids_between_two_sequences_are_merged_into_runs() -> None:
    ring = Ring()
    source = Source(ring)
    for number in range(1, 101):
        source.stage(gtid=1 + number % 2, gtid_first=number, gtid_last=number, flags=Flag.BOUNDARY)
    source.put()
    assert len(ring.gtid_runs(0, 100)) == 100
    ring = Ring()
    source = Source(ring)
    for number in range(1, 101):
        source.stage(gtid=1 + number % 2, gtid_first=number // 2 + 1, gtid_last=number // 2 + 1)
    source.put()
    assert ring.gtid_runs(0, 100) == [(2, 1, 50), (1, 2, 51)]


def test_boundaries_and_places() -> None:
    ring = Ring()
    source = Source(ring)
    assert ring.after(-1) is None
    transaction(source, 1)
    transaction(source, 1, end=False)
    source.put()
    assert ring.place(0) == (0, 1, 4, 0)
    assert ring.after(-1) == (0, 1, 4, 0)
    assert ring.after(2) == (0, 1, 7, 0)
    assert ring.last_boundary(0, 5) == 2
    assert ring.last_boundary(3, 5) == -1
    assert ring.measure(0, 5) == (1, 5, 5, 5)
    ring.free_to(3)
    assert ring.after(2) == (0, 1, 7, 0)
    with pytest.raises(IndexError, match="not in the ring"):
        ring.place(2)
