"""The log on disk: what was written comes back, and a crash leaves whole transactions of it, without a hole."""

import itertools
import os
import random
import re
import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.protocol.canal.entry_pb2 import Entry, EntryType, EventType, Header, Pair
from sluice.protocol.canal.packet_pb2 import Messages
from sluice.protocol.cut import ONE
from sluice.protocol.errors import ReshapedError
from sluice.protocol.gtid import parse_gtids
from sluice.protocol.position import Position
from sluice.store.cursor import Cursor
from sluice.store.log import files as files_module
from sluice.store.log import log as log_module
from sluice.store.log.errors import DamagedLogError, LogError
from sluice.store.log.files import EntriesReader, create, frame, read_block, read_head, words_of, write_at
from sluice.store.log.log import Hold, Limits, Log, Piece, take
from sluice.store.log.shapes import KEPT
from sluice.store.log.slots import pack, unpack
from sluice.store.ring import Flag, Kind, Ring, SlotView, Staging
from sluice.store.segment import SegmentWriter
from sluice.store.track import Track
from tests.effort import times

SHAPE = {"filter_regex": ".*"}
SERVER = "0f0f0f0f-0000-0000-0000-000000000001"
SID = bytes.fromhex(SERVER.replace("-", ""))


class Source:
    """Puts transactions into a ring of its own, each at offset 100 times its number of one file."""

    def __init__(self, ring: Ring | None = None, server: str = SERVER, number: int = 1) -> None:
        self.server = server
        self.ring = Ring(1024) if ring is None else ring
        self.track = Track(self.ring)
        self.writer = SegmentWriter(self.ring.pool)
        self.staging = Staging()
        self.number = number
        self.track.begin(self.place(number))
        self.source = self.ring.sources.intern((ONE, server))
        self.file = self.ring.files.intern(("bin.000001", 1_700_000_000))
        self.gtid = self.ring.gtid_sources.intern((ONE, (SID, "")))

    def place(self, number: int) -> Position:
        return Position(self.server, "bin.000001", 1_700_000_000, 100 * number, 0)

    def stage(self, entry: bytes, kind: Kind, n: int, *, ends: bool) -> None:
        begin, number = 100 * self.number, self.number
        if kind != Kind.ADVANCE:
            self.writer.write(entry)
        self.staging.add_entry(
            self.writer,
            kind,
            flags=Flag.BOUNDARY if ends else 0,
            table=self.ring.tables.intern(("shop", f"t{number % 3}")) if kind == Kind.ROW_DATA else 0,
            rows=1 if kind == Kind.ROW_DATA else 0,
            source=self.source,
            execute_ms=1_700_000_000_000 + number,
            file=self.file,
            begin=begin,
            n=n,
            next_file=self.file,
            next_begin=begin + 100 if ends else begin,
            next_n=0 if ends else n + 1,
            gtid=self.gtid if ends else 0,
            gtid_first=number if ends else 0,
            gtid_last=number if ends else 0,
        )

    def transaction(self, rows: int = 1) -> None:
        self.stage(b"begin", Kind.TRANSACTION_BEGIN, 0, ends=False)
        for row in range(rows):
            self.stage(b"row %d of %d" % (row, self.number), Kind.ROW_DATA, row + 1, ends=False)
        self.stage(b"end %d" % self.number, Kind.TRANSACTION_END, rows + 1, ends=True)
        self.number += 1

    def put(self, transactions: int = 1) -> None:
        for _ in range(transactions):
            self.transaction()
        self.ring.put(self.staging)

    def pieces(self, start: int = 0) -> list[Piece]:
        """What is stored, a transaction a piece."""
        found = []
        while start < self.ring.next:
            stop = self.ring.last_boundary(start, min(start + 3, self.ring.next)) + 1
            found.append(take(self.track, start, stop))
            start = stop
        return found


def entries(log: Log, start: Position) -> bytes:
    """Read the log from a place to its end."""
    found = log.find(start)
    assert found is not None
    file, offset = found
    result = b""
    while True:
        fd = os.open(file.path, os.O_RDONLY)
        while (block := read_block(fd, offset, file.path)) is not None and offset < file.size:
            with EntriesReader().read(fd, block, file.path) as found_entries:
                result += found_entries
            offset = block.end
        os.close(fd)
        following = log.after(file)
        if following is None:
            return result
        file, offset = following, following.first


def written(first: int, last: int) -> bytes:
    return b"".join(b"beginrow 0 of %dend %d" % (number, number) for number in range(first, last + 1))


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "shop" / "log"
    found.mkdir(parents=True)
    return found


def opened(folder: Path, **options: Any) -> Log:
    return Log(folder, "shop", Limits(), **options)


# --- slots -----------------------------------------------------------------------------------------------------------

numbers32 = st.integers(0, 2**32 - 1)
numbers64 = st.integers(-(2**63), 2**63 - 1)
slot_fields = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(list(Kind)),
        "event_type": st.integers(0, 255),
        "flags": st.integers(0, 3),
        "rows": numbers32,
        "server_id": numbers32,
        "execute_ms": numbers64,
        "commit_us": numbers64,
        "event_offset": numbers64,
        "begin": numbers64,
        "n": numbers32,
        "next_begin": numbers64,
        "next_n": numbers32,
        "gtid_first": numbers64,
        "gtid_last": numbers64,
        "table": st.integers(0, 4),
        "source": st.integers(0, 4),
        "file": st.integers(0, 4),
        "next_file": st.integers(0, 4),
        "gtid": st.integers(0, 4),
    }
)


def keys_of(ring: Ring, slot: SlotView) -> SlotView:
    """A slot with what its numbers stand for."""
    return slot._replace(
        table=ring.tables[slot.table],
        source=ring.sources[slot.source],
        file=ring.files[slot.file],
        next_file=ring.files[slot.next_file],
        gtid=ring.gtid_sources[slot.gtid],
    )


@given(
    st.lists(st.tuples(slot_fields, st.binary(min_size=1, max_size=40)), min_size=1, max_size=30), st.integers(1, 300)
)
@settings(max_examples=times(40, 200), deadline=None)
def test_slots_and_entries_come_back_whatever_they_hold(slots: list[tuple[dict[str, int], bytes]], most: int) -> None:
    ring, other = Ring(64), Ring(64)
    for registry in ("sources", "files", "tables", "gtid_sources"):
        for number in range(4):
            getattr(ring, registry).intern((registry, number))
            getattr(other, registry).intern((registry, 3 - number))  # in another order
    writer, staging = SegmentWriter(ring.pool), Staging()
    for fields, entry in slots:
        kind = Kind(fields["kind"])
        if kind == Kind.QUERY:  # what an earlier version has written gets the flag when it is read
            fields["flags"] |= Flag.TEXT
        if kind != Kind.ADVANCE:
            writer.write(entry)
        staging.add_entry(writer, kind, **{name: value for name, value in fields.items() if name != "kind"})
    ring.put(staging)
    other_writer, other_staging = SegmentWriter(other.pool), Staging()
    start = 0
    while start < ring.next:
        packed = pack(ring, start, ring.next, most)
        unpack(
            packed.slots,
            packed.slot_count,
            b"".join(packed.slices),
            [other.sources.intern(ring.sources[it]) for it in packed.sources],
            [other.files.intern(ring.files[it]) for it in packed.files],
            [other.tables.intern(ring.tables[it]) for it in packed.tables],
            [other.gtid_sources.intern(ring.gtid_sources[it]) for it in packed.gtid_sources],
            other_staging,
            other_writer,
        )
        assert packed.stop == start + packed.slot_count
        start = packed.stop
    other.put(other_staging)
    for sequence in range(ring.next):
        assert keys_of(ring, ring.slot(sequence)) == keys_of(other, other.slot(sequence))
    assert b"".join(ring.read(0, ring.next).slices) == b"".join(other.read(0, other.next).slices)


def test_texts_of_statements_are_known_in_the_blocks_of_earlier_versions() -> None:
    marker = Entry(header=Header(props=[Pair(key="sluice.shape", value="x")]), entryType=EntryType.ROWDATA)
    text = Entry(header=Header(logfileName="f"), entryType=EntryType.ROWDATA, storeValue=b"-- sluice.shape: x")
    ring, other = Ring(64), Ring(64)
    writer, staging = SegmentWriter(ring.pool), Staging()
    for entry, kind, event_type, flags in (
        (text, Kind.QUERY, EventType.QUERY, 0),
        (marker, Kind.QUERY, EventType.QUERY, 0),
        (text, Kind.QUERY, EventType.QUERY, Flag.BOUNDARY),  # GRANT, CREATE DATABASE
        (text, Kind.QUERY, EventType.XACOMMIT, 0),
        (text, Kind.DDL, EventType.CREATE, 0),
        (text, Kind.QUERY, EventType.DELETE, Flag.BOUNDARY),
    ):
        writer.write(Messages(messages=[entry.SerializeToString()]).SerializeToString())
        staging.add_entry(writer, kind, event_type=event_type, flags=flags)
    ring.put(staging)
    packed, again = pack(ring, 0, 6, 1 << 20), Staging()
    unpack(packed.slots, packed.slot_count, b"".join(packed.slices), [], [], [], [], again, SegmentWriter(other.pool))
    other.put(again)
    assert [bool(other.slot(it).flags & Flag.TEXT) for it in range(6)] == [True, False, False, False, False, True]


def test_a_block_ends_with_a_transaction_unless_one_is_larger(source: Source) -> None:
    source.put(10)
    one = len(written(1, 1))
    assert pack(source.ring, 0, 30, 3 * one + 2).stop == 9
    assert pack(source.ring, 0, 30, one - 1)[:2] == (2, 2)
    assert not pack(source.ring, 0, 30, one - 1).boundary
    assert pack(source.ring, 0, 30, 1 << 20).stop == 30


@given(st.data())
@settings(max_examples=times(60, 300), deadline=None)
def test_slots_that_were_changed_are_refused_or_stay_within_their_bounds(data: st.DataObject) -> None:
    source = Source()
    source.put(4)
    packed = pack(source.ring, 0, 12, 1 << 20)
    slots = bytearray(packed.slots)
    for _ in range(data.draw(st.integers(1, 4))):
        slots[data.draw(st.integers(0, len(slots) - 1))] = data.draw(st.integers(0, 255))
    ring = Ring(64)
    staging, writer = Staging(), SegmentWriter(ring.pool)
    body = b"".join(packed.slices)
    count = data.draw(st.integers(0, 20))
    try:
        unpack(slots, count, body, [1], [1], list(packed.tables), [1], staging, writer)
    except LogError:
        staging.clear()
    else:
        assert staging.bytes == len(body)


def test_words_that_are_nested_too_deep_are_damage(folder: Path) -> None:
    path = folder / "1.log"
    folder.mkdir(exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    write_at(fd, frame(b'{"x":' + b"[" * 100_000, b"", 0, []), 0)
    with pytest.raises(DamagedLogError, match="maximum recursion depth"):
        read_head(fd, path)
    os.close(fd)


# --- files -----------------------------------------------------------------------------------------------------------


def test_what_is_written_is_read_from_any_place_in_any_file_again_after_a_restart(source: Source, folder: Path) -> None:
    with opened(folder, file_size=2000) as log:
        log.begin(source.place(1), f"{SERVER}:1-7", SHAPE)
        source.put(60)
        log.append(source.pieces())
        assert len(list(folder.glob("*.log"))) > 3
        for number in (1, 2, 30, 59, 60):
            assert entries(log, source.place(number)) == written(number, 60)
    with opened(folder, file_size=2000) as log:
        assert log.extent.stretches == [(source.place(1), source.place(61))]
        assert log.executed == f"{SERVER}:1-60"
        for number in (1, 2, 30, 59, 60):
            assert entries(log, source.place(number)) == written(number, 60)
        log.begin(source.place(61), f"{SERVER}:1-60", SHAPE)
        source.put(5)
        log.append(source.pieces(180))
        assert entries(log, source.place(1)) == written(1, 65)
        assert len(log.extent.stretches) == 1


def test_a_place_inside_a_transaction_is_found(source: Source, folder: Path) -> None:
    with opened(folder) as log:
        log.begin(source.place(1), None, SHAPE)
        source.put(3)
        log.append(source.pieces())
        inside = Position(SERVER, "bin.000001", 1_700_000_000, 200, 2)
        assert log.covers(inside)
        assert entries(log, inside) == written(2, 3)


@pytest.mark.parametrize(
    "place",
    [
        Position(SERVER, "bin.000001", 1_700_000_000, 4, 0),
        Position(SERVER, "bin.000001", 1_700_000_000, 401, 0),
        Position(SERVER, "bin.000002", 1_700_000_000, 4, 0),
        Position(SERVER, "bin.000001", 1_700_000_001, 200, 0),
        Position("another", "bin.000001", 1_700_000_000, 200, 0),
    ],
    ids=str,
)
def test_a_place_that_the_log_did_not_pass_is_not_found(source: Source, folder: Path, place: Position) -> None:
    with opened(folder) as log:
        assert not log.covers(place)
        log.begin(source.place(1), None, SHAPE)
        source.put(3)
        log.append(source.pieces())
        assert not log.covers(place)
        assert log.find(place) is None


def test_a_gap_begins_another_stretch_and_another_shape_only_another_file(source: Source, folder: Path) -> None:
    with opened(folder) as log:
        log.begin(source.place(1), None, SHAPE)
        source.put(3)
        log.append(source.pieces())
        log.begin(source.place(4), None, {"filter_regex": "shop.*"})
        source.put(1)
        log.append(source.pieces(9))
        assert len(log.extent.files) == 2
        assert entries(log, source.place(1)) == written(1, 4)
        log.begin(source.place(9), None, SHAPE)
        assert log.extent.stretches == [(source.place(1), source.place(5)), (source.place(9), source.place(9))]
        assert log.start == Cursor.at(source.place(9))
        assert entries(log, source.place(2)) == written(2, 4)
        assert not log.covers(source.place(7))


def other(number: int) -> dict[str, str]:
    return {"filter_regex": f"shop{number}"}


def test_it_is_known_what_was_written_with_another_shape_also_when_its_files_are_gone(
    source: Source, folder: Path
) -> None:
    with opened(folder) as log:
        assert log.source_end(source.place(1), SHAPE) is None
        for number in range(6):
            log.begin(source.place(number + 1), None, SHAPE if number < 3 else other(1))
            start = source.ring.next
            source.put(1)
            log.append(source.pieces(start))
        log.prune(1)
    with opened(folder) as log:
        assert len(log.extent.files) == 1
        for number in range(1, 4):
            with pytest.raises(ReshapedError, match=re.escape("filter_regex is 'shop1', was '.*'")):
                log.source_end(source.place(number), other(1))
        assert log.source_end(source.place(4), other(1)) is None
        with pytest.raises(ReshapedError, match=re.escape(f"up to {source.place(7)}")):
            log.source_end(source.place(4), SHAPE)
        assert log.source_end(source.place(1), SHAPE) == source.place(4), "from there on the log had something else"
        assert log.source_end(source.place(7), SHAPE) is None
        assert log.source_end(Position("another", "bin.000001", 1_700_000_000, 100, 0), SHAPE) is None


def test_only_the_last_shapes_are_remembered(source: Source, folder: Path) -> None:
    with opened(folder) as log:
        for number in range(100):
            log.begin(source.place(number + 1), None, other(number))
            start = source.ring.next
            source.put(1)
            log.append(source.pieces(start))
        (path,) = (log.prune(1), sorted(folder.glob("*.log")))[1]
        fd = os.open(path, os.O_RDONLY)
        head, _ = read_head(fd, path)
        os.close(fd)
        assert [it.shape for it in head.past] == [other(number) for number in range(99 - KEPT, 99)]
        assert log.source_end(source.place(100), other(99)) is None
        with pytest.raises(ReshapedError, match="no longer knows what was configured then"):
            log.source_end(source.place(1), other(99))


def test_what_comes_next_is_of_another_shape_until_rows_of_it_were_written(source: Source, folder: Path) -> None:
    with opened(folder) as log:
        assert log.shape_before(SHAPE) is None
        log.begin(source.place(1), None, SHAPE)
        source.put(1)
        log.append(source.pieces())
        assert log.shape_before(SHAPE) is None
        assert log.shape_before(other(1)) == SHAPE
        log.begin(source.place(2), None, other(1))
        assert log.shape_before(other(1)) == SHAPE
    with opened(folder) as log:
        assert log.shape_before(other(1)) == SHAPE
        assert log.shape_before(SHAPE) is None, "it was configured back before anything came"
        source.put(1)
        log.append(source.pieces(3))
        assert log.shape_before(other(1)) is None
    with opened(folder) as log:
        assert log.shape_before(other(1)) is None
        assert log.shape_before(SHAPE) == other(1)


def test_readers_are_told_of_what_is_synced_only_if_they_are_to_wait_for_that(source: Source, folder: Path) -> None:
    with opened(folder, shows_synced=True) as log:
        log.begin(source.place(1), None, SHAPE)
        source.put(1)
        log.append(source.pieces())
        file, offset = log.find(source.place(1)) or (None, 0)
        assert file is not None
        assert log.has_more(file, offset, 0.01) is False
        log.sync()
        assert log.has_more(file, offset, 0.01) is True
        source.put(1)
        log.append(source.pieces(3))
        log.begin(source.place(3), None, other(1))
        assert log.has_more(file, file.size - 1, 0.01) is True, "the end of a file is synced"
    with opened(folder, shows_synced=True) as log:
        file, offset = log.find(source.place(1)) or (None, 0)
        assert file is not None
        assert log.has_more(file, offset, 0.01) is True


def test_a_sync_waits_for_the_one_that_is_under_way(
    source: Source, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would say that all is on the disk which the other one has yet to bring there."""
    begun, go_on, fdatasync = threading.Event(), threading.Event(), os.fdatasync

    def slow(fd: int) -> None:
        begun.set()
        assert go_on.wait(10)
        fdatasync(fd)

    with opened(folder) as log:
        log.begin(source.place(1), None, SHAPE)
        source.put(1)
        log.append(source.pieces())
        monkeypatch.setattr(os, "fdatasync", slow)
        threads = [threading.Thread(target=log.sync) for _ in range(2)]
        threads[0].start()
        assert begun.wait(10)
        threads[1].start()
        threads[1].join(0.1)
        assert threads[1].is_alive()
        go_on.set()
        for it in threads:
            it.join(10)


def test_a_source_that_took_over_with_the_same_transactions_leaves_no_gap(source: Source, folder: Path) -> None:
    executed = f"{SERVER}:1-3"
    with opened(folder) as log:
        log.begin(source.place(1), "", SHAPE)
        source.put(3)
        log.append(source.pieces())
        assert log.executed == executed
        log.begin(Position("other", "bin.000007", 1_700_000_009, 4, 0), executed, SHAPE)
        file, _ = log.find(source.place(1)) or (None, 0)
        assert file is not None
        assert log.after(file) is not None


def test_the_oldest_files_go_and_the_last_one_stays(source: Source, folder: Path) -> None:
    log = Log(folder, "shop", Limits(bytes=3000), file_size=1000)
    with log:
        log.begin(source.place(1), None, SHAPE)
        source.put(60)
        log.append(source.pieces())
        held = log.extent
        assert held.bytes < 4500
        assert not log.covers(source.place(1))
        ((start, end),) = held.stretches
        assert end == source.place(61)
        assert entries(log, start).endswith(written(60, 60))
        assert len(list(folder.glob("*.index"))) == len(list(folder.glob("*.log"))) == len(held.files)
    with Log(folder, "shop", Limits(bytes=1), file_size=1000) as log:
        assert log.prune()
        assert len(log.extent.files) == 1


def test_it_says_how_many_bytes_it_has_between_two_places(source: Source, folder: Path) -> None:
    with opened(folder, file_size=1000) as log:
        assert log.distances({1: source.place(1)}, source.place(1)) == {}, "it is empty"
        log.begin(source.place(1), None, SHAPE)
        source.put(30)
        log.append(source.pieces())
        assert len(log.extent.files) > 2
        places = {number: source.place(number) for number in range(1, 32)}
        sizes = list(log.distances(places, source.place(31)).values())
        assert len(sizes) == 31
        assert sizes[-1] == 0
        assert all(size > later for size, later in itertools.pairwise(sizes)), "a transaction is a block here"
        assert log.extent.bytes - 1000 < sizes[0] < log.extent.bytes, "but for the head of the first file"
        assert set(log.distances(places, source.place(1)).values()) == {0}
        elsewhere = Position("other", "bin.000001", 7, 4, 0)
        assert log.distances({7: elsewhere}, source.place(31)) == {}
        assert list(log.distances(places, elsewhere).values()) == sizes, "the ring goes on after its end"


def test_files_that_are_too_old_go(source: Source, folder: Path) -> None:
    with opened(folder, file_size=1000) as log:
        log.begin(source.place(1), None, SHAPE)
        source.put(30)
        log.append(source.pieces())
    paths = sorted(folder.glob("*.log"))
    os.utime(paths[0], (1_000_000_000, 1_000_000_000))
    with Log(folder, "shop", Limits(seconds=3600), file_size=1000) as log:
        assert [it.name for it in log.prune()] == [paths[0].name]


def test_files_go_on_request_and_it_can_be_asked_which(source: Source, folder: Path) -> None:
    with opened(folder, file_size=1000) as log:
        log.begin(source.place(1), None, SHAPE)
        source.put(60)
        log.append(source.pieces())
        before = log.extent
        would_go = log.surplus(3000)
        assert log.extent == before
        assert log.prune(3000) == would_go
        assert log.extent.files == before.files[len(would_go) :]
        assert log.extent.bytes <= 3000
        assert log.surplus(0) == list(log.extent.files[:-1])
        assert log.prune(0)
        assert len(log.extent.files) == 1


def test_what_a_protected_client_needs_stays_whatever_the_limits(source: Source, folder: Path) -> None:
    with Log(folder, "shop", Limits(bytes=3000, seconds=3600), file_size=1000) as log:
        log.held = {
            1001: Cursor.at(source.place(20)),
            1002: Cursor.at(source.place(500)),
            1003: Cursor.at(Position("other", "bin.000001", 7, 4, 0)),
        }
        log.begin(source.place(1), None, SHAPE)
        source.put(60)
        log.append(source.pieces())
        for path in folder.glob("*.log"):
            os.utime(path, (1_000_000_000, 1_000_000_000))
    with Log(folder, "shop", Limits(bytes=3000, seconds=3600), file_size=1000) as log:
        log.held = {1001: Cursor.at(source.place(20)), 1002: Cursor.at(source.place(500))}
        assert log.prune() == log.surplus(0) == []
        assert entries(log, source.place(20)) == written(20, 60)
        assert not log.covers(source.place(1)), "nobody needs that"
        held = log.extent
        assert held.bytes > 4500
        assert held.holds == {1001: Hold(len(held.files), held.bytes)}
        log.held = {1001: Cursor.at(source.place(45))}
        taken = log.prune(0)
        assert taken == list(held.files[: len(taken)])
        assert taken[-1].end <= source.place(45)
        assert entries(log, source.place(45)) == written(45, 60)
        log.held = {1001: Cursor.at(source.place(1))}
        assert log.extent.holds == {1001: Hold(len(log.extent.files), log.extent.bytes)}, "all that is left for it"
        log.held = {}
        assert log.prune()


OTHER = "other"
"""A second source with the same transactions."""


def executed(last: int) -> str:
    return f"{SERVER}:1-{last}"


@pytest.fixture
def switched(source: Source, folder: Path) -> Iterator[Log]:
    """A log with the transactions 1 to 20 of one source, 21 to 40 of another one, and 41 to 60 of the first again."""
    with Log(folder, "shop", Limits(bytes=3000), file_size=1000) as log:
        log.held = {0: Cursor.at(source.place(1))}
        log.begin(source.place(1), "", SHAPE)
        for server, first in ((SERVER, 1), (OTHER, 21), (SERVER, 41)):
            part = Source(server=server, number=first)
            log.begin(part.place(first), executed(first - 1) if first > 1 else "", SHAPE)
            part.put(20)
            log.append(part.pieces())
        assert len(log.extent.stretches) == 1, "nothing is missing"
        yield log


@pytest.mark.parametrize(
    ("server", "number"),
    [(SERVER, 12), (SERVER, 21), (OTHER, 21), (OTHER, 30), (OTHER, 41), (SERVER, 41), (SERVER, 50)],
)
def test_what_comes_after_a_place_of_a_former_source_is_found_and_kept_for_a_protected_client(
    switched: Log, server: str, number: int
) -> None:
    place = Source(server=server, number=number).place(number)
    assert switched.covers(place)
    assert entries(switched, place).endswith(written(number, 60))
    switched.held = {1001: Cursor.at(place)}
    switched.prune(0)
    assert switched.covers(place)
    assert entries(switched, place).endswith(written(number, 60))


@pytest.mark.parametrize("number", [2, 15, 25, 45, 60])
def test_a_protected_client_at_a_source_that_is_not_in_the_log_is_found_by_its_gtids(
    switched: Log, number: int
) -> None:
    nowhere = Position("third", "bin.000001", 7, 4, 0)
    switched.held = {1001: Cursor.at(nowhere, executed(number - 1))}
    switched.prune(0)
    assert entries(switched, switched.extent.files[0].start).endswith(written(number, 60))
    switched.held = {1001: Cursor.at(nowhere)}
    switched.prune(0)
    assert len(switched.extent.files) == 1, "nothing says what it needs"


def test_it_says_which_of_two_places_comes_later_though_they_are_of_two_sources(switched: Log) -> None:
    first, second = Source(), Source(server=OTHER)
    in_order = [first.place(12), second.place(30), first.place(50), first.place(70)]
    for i, place in enumerate(in_order[:-1]):
        assert [switched.has_after(place, it) for it in in_order] == [it > i for it in range(4)]
    assert not switched.has_after(second.place(30), second.place(99)), "it does not have that"
    assert not switched.has_after(first.place(70), second.place(30))


def test_it_says_what_was_executed_where_it_begins_and_where_its_blocks_end(switched: Log) -> None:
    assert switched.start == Cursor.at(Source().place(1))
    switched.held = {0: Cursor.at(Source(server=OTHER, number=21).place(30))}
    switched.prune(0)
    other = Source(server=OTHER, number=21)
    for number in (30, 33, 41):
        assert switched.executed_at(other.place(number)) == executed(number - 1)
    assert switched.executed_at(replace(other.place(30), begin=3001)) == "", "no block ends there"
    assert switched.start == Cursor.at(other.place(29), executed(28))
    assert switched.executed_at(other.place(29)) == executed(28)


@pytest.mark.parametrize("client", [1001, -1])
def test_room_on_the_disk_ranks_above_protected_clients_which_are_named(
    source: Source, folder: Path, client: int
) -> None:
    with Log(folder, "shop", Limits(), file_size=1000) as log:
        log.begin(source.place(1), None, SHAPE)
        source.put(30)
        log.append(source.pieces())
    with Log(folder, "shop", Limits(free=1 << 60), file_size=1000) as log:
        log.held = {client: Cursor.at(source.place(1))}
        files, size = len(log.extent.files), log.extent.bytes
        source.put(1)
        left = source.pieces(90)
        with pytest.raises(LogError, match=rf"protected clients hold: client {client} {size} bytes in {files} files$"):
            log.append(left)
        assert len(log.extent.files) == files > 2
        log.held = {}
        with pytest.raises(LogError, match=r"minFree\)$"):
            log.append(left)
        assert len(log.extent.files) == 1, "of what nobody holds, the oldest goes first"


def test_it_is_estimated_when_the_limits_reach_a_place(source: Source, folder: Path) -> None:
    with opened(folder, file_size=1000) as log:
        log.begin(source.place(1), None, SHAPE)
        source.put(60)
        log.append(source.pieces())
        count = len(log.extent.files)
        size = log.extent.bytes
    now = time.time()
    for number, path in enumerate(sorted(folder.glob("*.log"))):
        os.utime(path, (now - 100 * (count - number), now - 100 * (count - number)))
    places = {1: source.place(1), 2: source.place(20), 3: source.place(61), 4: source.place(99)}
    with Log(folder, "shop", Limits(bytes=2 * size), file_size=1000) as log:
        found = log.expiries(places)
        assert found.keys() == {1, 2, 3}, "the log does not have the last one"
        assert found[3] is None, "the last file stays"
        assert found[1] is not None
        assert found[2] is not None
        at, kept = found[1]
        pace = (size - log.extent.files[0].bytes) / (100 * count)
        assert abs(at - (now + size / pace)) < 10
        assert abs(kept - 2 * size / pace) < 10
        assert found[2][0] > at
        log.held = {9: Cursor.at(source.place(20))}
        assert log.expiries(places)[2] is None, "it stays with what is held"
        assert log.expiries(places)[1] is not None
    with Log(folder, "shop", Limits(bytes=2 * size, seconds=100 * count + 50), file_size=1000) as log:
        at, kept = log.expiries(places)[1] or (0.0, 0.0)
        assert abs(at - (now + 50)) < 10
        assert kept == 100 * count + 50
    with Log(folder, "shop", Limits(bytes=size - 1), file_size=1000) as log:
        at, _ = log.expiries(places)[1] or (0.0, 0.0)
        assert abs(at - now) < 10, "at once"


@pytest.mark.parametrize("count", [12, 20, 30])
def test_what_was_read_of_a_source_after_it_was_left_is_taken_away(source: Source, folder: Path, count: int) -> None:
    with opened(folder, file_size=1000) as log:
        log.begin(source.place(1), executed(0), SHAPE)
        source.put(count)
        log.append(source.pieces())
        assert len(log.extent.files) > 2
    with Log(folder, "shop", Limits(), file_size=1000, until=source.place(11)) as log:
        assert (log.end, log.executed) == (source.place(11), executed(10))
        assert log.extent.stretches == [(source.place(1), source.place(11))]
        log.begin(source.place(11), executed(10), SHAPE)
        assert len(log.extent.stretches) == 1
    elsewhere = Position("other", "bin.000001", 7, 4, 0)
    for until in (elsewhere, source.place(40), None):
        with Log(folder, "shop", Limits(), file_size=1000, until=until) as log:
            assert log.end == source.place(11)


def test_where_it_begins_again_after_a_place_is_known(folder: Path) -> None:
    source = Source(number=5)
    with opened(folder, file_size=1000) as log:
        log.begin(source.place(5), None, SHAPE)
        source.put(20)
        log.append(source.pieces())
        log.begin(source.place(50), None, SHAPE)
        assert log.next_start(Cursor.at(source.place(1))) == Cursor.at(source.place(5))
        assert log.next_start(Cursor.at(source.place(30))) == Cursor.at(source.place(50))
        assert log.next_start(Cursor.at(source.place(60))) is None
        elsewhere = Position("other", "bin.000001", 7, 4, 0)
        assert log.next_start(Cursor.at(elsewhere)) == Cursor.at(source.place(5)), "nothing says what it had"


def test_readers_are_told_when_there_is_more(source: Source, folder: Path) -> None:
    with opened(folder) as log:
        log.begin(source.place(1), None, SHAPE)
        file, offset = log.find(source.place(1)) or (None, 0)
        assert file is not None
        assert log.has_more(file, offset, 0.0) is False
        found: list[bool | None] = []
        waiting = threading.Thread(target=lambda: found.append(log.has_more(file, offset, 10.0)))
        waiting.start()
        source.put(1)
        log.append(source.pieces())
        waiting.join()
        assert found == [True]
        log.begin(source.place(2), None, {})
        assert log.has_more(file, file.size, 0.0) is None


def test_what_could_not_be_written_is_written_later_and_nothing_twice(
    source: Source, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = itertools.count()

    def write(fd: int, pieces: list[bytes], offset: int) -> int:
        if next(calls) % 3 == 1:
            os.pwrite(fd, b"half", offset)
            raise OSError(28, "No space left on device")
        return write_at(fd, pieces, offset)

    with opened(folder, file_size=1000) as log:
        log.begin(source.place(1), "", SHAPE)
        monkeypatch.setattr(log_module, "write_at", write)
        source.put(40)
        left = source.pieces()
        failures = 0
        while left:
            try:
                log.append(left)
            except OSError:
                failures += 1
        assert failures > 10
        monkeypatch.undo()
    with opened(folder, file_size=1000) as log:
        assert entries(log, source.place(1)) == written(1, 40)
        assert log.executed == f"{SERVER}:1-40"


def test_what_does_not_begin_where_the_log_ends_is_refused(source: Source, folder: Path) -> None:
    """Else readers would never get what is missing."""
    with opened(folder) as log:
        log.begin(source.place(1), None, SHAPE)
        source.put(3)
        first, _, third = source.pieces()
        log.append([first])
        with pytest.raises(LogError, match=r"the log ends at .*:200:0, and what is to be added begins at .*:300:0"):
            log.append([third])
        assert entries(log, source.place(1)) == written(1, 1)


def test_the_disk_keeps_its_free_room(source: Source, folder: Path) -> None:
    with Log(folder, "shop", Limits(free=1 << 60)) as log:
        log.begin(source.place(1), None, SHAPE)
        source.put(1)
        pieces = source.pieces()
        with pytest.raises(LogError, match=r"bytes have to stay free \(sluice\.instance\.store\.minFree\)"):
            log.append(pieces)
        assert len(pieces) == 1


def test_an_index_that_is_lost_or_wrong_is_made_again(source: Source, folder: Path) -> None:
    with opened(folder, file_size=1000) as log:
        log.begin(source.place(1), None, SHAPE)
        source.put(40)
        log.append(source.pieces())
    lost, wrong, short, *_ = sorted(folder.glob("*.index"))
    lost.unlink()
    wrong.write_text("no index\n")
    short.write_bytes(short.read_bytes()[:-20])
    with opened(folder, file_size=1000) as log:
        assert entries(log, source.place(1)) == written(1, 40)
        for number in range(1, 41):
            assert entries(log, source.place(number)) == written(number, 40)


@pytest.mark.parametrize("content", [b"", b"SLB1", b"no log at all", bytes(100)])
def test_a_file_that_is_none_of_a_log_is_named_and_left_out(
    source: Source, folder: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(folder, file_size=1000) as log:
        log.begin(source.place(1), None, SHAPE)
        source.put(40)
        log.append(source.pieces())
    _, middle, *_, last = sorted(folder.glob("*.log"))
    for path in (last, middle):
        path.write_bytes(content)
        with opened(folder, file_size=1000) as log:
            assert not path.exists()
            assert path.with_suffix(".damaged").read_bytes() == content
            assert re.search(f"left out, and renamed .* the block at byte 0 of {path} is damaged", caplog.text)
            before, *after = log.extent.stretches
    assert len(after) == 1
    assert before[1] < after[0][0], "what it held is missing, and is read from the source"


@pytest.mark.parametrize("compressed", [False, True], ids=["plain", "compressed"])
def test_after_a_flipped_bit_all_that_is_read_is_right_and_what_is_missing_is_named(
    source: Source,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    compressed: bool,
) -> None:
    with opened(folder, file_size=2000) as log:
        log.begin(source.place(1), "", SHAPE)
        for _ in range(40):
            source.stage(b"row" * 50 + b"%d," % source.number, Kind.ROW_DATA, 0, ends=True)
            source.number += 1
        source.ring.put(source.staging)
        log.append([take(source.track, it, it + 1) for it in range(40)])
        while compressed and log.compress():
            pass
    rows = [b"row" * 50 + b"%d," % number for number in range(41)]
    whole = b"".join(rows[1:])
    random_ = random.Random(5)
    files = sorted(it for it in folder.iterdir() if it.name != "lock")
    monkeypatch.setattr(os, "fsync", lambda _: None)
    problems = 0
    for attempt in range(times(50, 150)):
        copy = tmp_path / str(attempt) / "log"
        shutil.copytree(folder, copy)
        path = copy / random_.choice(files).name
        content = bytearray(path.read_bytes())
        content[random_.randrange(len(content))] ^= 1 << random_.randrange(8)
        path.write_bytes(content)
        caplog.clear()
        with opened(copy) as log:
            for number in (1, 7, 20, 33, 40):
                found, said = b"", caplog.text
                try:
                    if log.covers(source.place(number)):
                        found = entries(log, source.place(number))
                        assert found in whole
                        assert rows[number] in found or log.end == source.place(number)
                except LogError as error:
                    said += str(error)
                if not found.endswith(rows[40]):
                    problems += 1
                    assert path.suffix == ".log", "an index can be made again"
                    assert f" of {path} " in said
        shutil.rmtree(copy.parent)
    assert problems > times(15, 50)


def test_a_log_of_a_later_version_is_refused_with_what_to_do_and_stays_as_it_is(source: Source, folder: Path) -> None:
    with opened(folder, file_size=1000) as log:
        log.begin(source.place(1), None, SHAPE)
        source.put(20)
        log.append(source.pieces())
    path = max(folder.glob("*.log"))
    fd = os.open(path, os.O_RDWR)
    head, _ = read_head(fd, path)
    pieces = frame(head.encode().replace(b'"format":1', b'"format":4'), b"", 0, [])
    os.truncate(path, write_at(fd, pieces, 0))
    os.close(fd)
    before = {it.name: it.read_bytes() for it in folder.iterdir()}
    expected = f"{path} has format 4, which another version of Sluice has written. Run that version, or move the folder"
    with pytest.raises(LogError, match=re.escape(expected)):
        opened(folder)
    assert {it.name: it.read_bytes() for it in folder.iterdir()} == before


OLD = bytes.fromhex(
    "534c4231aa000000000000000000000000000000000000000000000038b364aa7b22666f726d6174223a312c2264657374696e6174696f6e"
    "223a2273686f70222c227374617274223a2230663066306630662d303030302d303030302d303030302d3030303030303030303030312f62"
    "696e2e30303030303140313730303030303030303a3130303a30222c22636f6e74696e756573223a66616c73652c22657865637574656422"
    "3a22222c227368617065223a7b2266696c7465725f7265676578223a222e2a227d7d534c4231830100002b00000003000000140000000000"
    "0000efec14eafd674c847b2266726f6d223a2230663066306630662d303030302d303030302d303030302d3030303030303030303030312f"
    "62696e2e30303030303140313730303030303030303a3130303a30222c22746f223a2230663066306630662d303030302d303030302d3030"
    "30302d3030303030303030303030312f62696e2e30303030303140313730303030303030303a3230303a30222c22626f756e64617279223a"
    "747275652c226d73223a313730303030303030303030312c22726f7773223a312c22736f7572636573223a5b5b22222c2230663066306630"
    "662d303030302d303030302d303030302d303030303030303030303031225d5d2c2266696c6573223a5b5b2262696e2e303030303031222c"
    "313730303030303030305d5d2c227461626c6573223a5b5b2273686f70222c227431225d5d2c2267746964536f7572636573223a5b5b2222"
    "2c5b223066306630663066303030303030303030303030303030303030303030303031222c22225d5d5d2c226774696473223a5b5b302c31"
    "2c315d5d7dc3d2070a020282a0abfef96202c8010202c801b3a0020a0202020202bba03e09020201010203c801020202626567696e726f77"
    "2030206f662031656e642031"
)
"""A file of the first format: one transaction of three entries."""


def test_a_log_that_the_first_version_wrote_is_read_and_goes_on(source: Source, folder: Path) -> None:
    (folder / "00000000000000000001.log").write_bytes(OLD)
    with opened(folder) as log:
        assert entries(log, source.place(1)) == written(1, 1)
        assert log.executed == f"{SERVER}:1"
        assert log.end == source.place(2)
        source.put(2)
        log.append(source.pieces(3))
        assert entries(log, source.place(1)) == written(1, 2)


# --- a disk that is full, or cannot be written -----------------------------------------------------------------------


def test_a_full_disk_does_not_keep_a_log_from_being_opened_and_read(
    source: Source, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(fd: int, pieces: list[bytes], offset: int) -> int:
        raise OSError(28, "No space left on device")

    with opened(folder, file_size=1000) as log:
        log.begin(source.place(1), None, SHAPE)
        source.put(20)
        log.append(source.pieces())
    monkeypatch.setattr(log_module, "write_at", write)
    with opened(folder, file_size=1000) as log:
        log.begin(source.place(21), None, SHAPE)
        assert entries(log, source.place(1)) == written(1, 20)


def test_as_long_as_the_next_file_cannot_be_made_nothing_is_lost_and_then_it_goes_on(
    source: Source, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = itertools.count()

    def refuse(path: Path) -> int:
        if next(attempts) % 5 < 3:
            raise OSError(30, "Read-only file system")
        return create(path)

    with opened(folder, file_size=1000) as log:
        log.begin(source.place(1), "", SHAPE)
        monkeypatch.setattr(files_module, "create", refuse)
        source.put(20)
        left, failures = source.pieces(), 0
        while left:
            count = len(left)
            try:
                log.append(left)
            except OSError:
                failures += 1
                assert entries(log, source.place(1)) == written(1, 20 - len(left))
                assert failures < 200, count
        assert failures > 10
        assert len(log.extent.stretches) == 1
    monkeypatch.undo()
    with opened(folder, file_size=1000) as log:
        assert entries(log, source.place(1)) == written(1, 20)


@pytest.mark.parametrize("call", ["fsync", "fdatasync"])
def test_after_a_sync_that_failed_nothing_is_added_for_nobody_knows_what_is_on_the_disk(
    source: Source, folder: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def fail(fd: int) -> None:
        raise OSError(5, "Input/output error")

    log = opened(folder)
    log.begin(source.place(1), None, SHAPE)
    source.put(2)
    first, second = source.pieces()
    log.append([first])
    monkeypatch.setattr(os, call, fail)
    with pytest.raises(OSError, match="Input/output error"):
        log.sync() if call == "fdatasync" else log.begin(source.place(2), None, {})
    monkeypatch.undo()

    def append() -> None:
        log.append([second])

    def begin() -> None:
        log.begin(source.place(2), None, {})

    for attempt in (append, log.sync, begin):
        with pytest.raises(OSError, match="Input/output error"):
            attempt()
    log.close()
    with opened(folder) as log:
        assert log.end == source.place(2)


# --- crashes ---------------------------------------------------------------------------------------------------------


def test_a_torn_tail_is_cut_at_the_last_whole_transaction(source: Source, folder: Path, tmp_path: Path) -> None:
    """Whatever the file's length is after a crash."""
    with opened(folder) as log:
        log.begin(source.place(1), "", SHAPE)
        source.put(3)
        source.transaction(rows=5)
        source.ring.put(source.staging)
        log.append([take(source.track, *span) for span in ((0, 3), (3, 6), (6, 9), (9, 12), (12, 16))])
    (path,) = folder.glob("*.log")
    whole = path.read_bytes()
    ends, last = [], b""
    fd = os.open(path, os.O_RDONLY)
    _, offset = read_head(fd, path)
    while (block := read_block(fd, offset, path)) is not None:
        words = words_of(block, path)
        offset = block.end
        if words.boundary:
            ends.append((offset, words.to))
    os.close(fd)
    assert len(ends) == 4
    for length in range(0, len(whole), times(7, 1)):
        copy = tmp_path / "copy" / "log"
        shutil.copytree(folder, copy)
        with (copy / path.name).open("r+b") as file:
            file.truncate(length)
        end = max((it for at, it in ends if at <= length), default=None, key=lambda it: it.order)
        with Log(copy, "shop", Limits()) as log:
            if log.end is None:
                assert end is None
            else:
                assert log.end == (end or source.place(1))
                last = entries(log, source.place(1)) if end else b""
                assert last == written(1, (log.end.begin - 100) // 100)[: len(last)] or b"row 4 of 4" in last
        shutil.rmtree(copy.parent)


def test_gtids_of_both_families_come_back(source: Source, folder: Path) -> None:
    for number, (text, key) in enumerate((("0-1-5", (0, 1)), (f"{SERVER}:1-5:t:1-5", (SID, "t")))):
        ring_source = Source()
        ring_source.gtid = ring_source.ring.gtid_sources.intern((ONE, key))
        ring_source.put(7)
        sub = folder.parent.parent / str(number) / "log"
        sub.mkdir(parents=True)
        with opened(sub) as log:
            log.begin(source.place(1), text, SHAPE)
            log.append(ring_source.pieces())
            after = log.executed
        with opened(sub) as log:
            assert parse_gtids(log.executed) == parse_gtids(after)
            assert "7" in after
