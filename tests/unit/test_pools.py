"""The pools of a group's members: what they tell the merger, and what moves from them into the group's ring."""

import threading
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.instance.merge.merger import MemberOptions, Merger, Ordering
from sluice.instance.merge.order import UNKNOWN, Mark
from sluice.instance.merge.pools import Pool, move
from sluice.protocol import props
from sluice.protocol.canal.entry_pb2 import ROWDATA, Column, Entry, Header, Pair, RowChange, RowData
from sluice.protocol.canal.packet_pb2 import Messages
from sluice.store.ring import Kind, Ring, Staging
from sluice.store.segment import SegmentWriter
from tests.stream import CREATED, Stream

NOW = (CREATED + 10_000) * 1_000_000
NAMES = ("a", "b", "c")


def entry(text: str) -> bytes:
    """An entry with a header that has a property, and something behind the header."""
    header = Header(tableName="orders", props=[Pair(key="before", value="here")])
    return Entry(header=header, entryType=ROWDATA, storeValue=text.encode()).SerializeToString()


def stage(stream: Stream, rows: Iterable[str]) -> None:
    """Stage a transaction."""
    stream.stage(entry("begin"), Kind.TRANSACTION_BEGIN)
    for row in rows:
        stream.stage(entry(row), Kind.ROW_DATA, ("shop", "orders"))
    stream.stage(entry("end"), Kind.TRANSACTION_END, boundary=True)


class Group:
    """Pools, a merger and the ring of a group."""

    def __init__(self, size: int = 1024, memory: int = 1 << 20, order: str = "time") -> None:
        ordering = Ordering.parse(order)
        self.pools = [Pool(it, Ring(size, memory), column=ordering.column) for it in NAMES]
        self.streams = [Stream(it.ring, name=f"of-{it.member}") for it in self.pools]
        self.ring, self.staging = Ring(), Staging()
        self.writer = SegmentWriter(self.ring.pool)
        options = {it: MemberOptions(memory) for it in NAMES}
        self.merger = Merger(ordering, options, now=NOW)

    def bring(self, number: int, *rows: str) -> None:
        """Let a member bring a transaction."""
        stage(self.streams[number], rows)
        self.streams[number].put()

    def tell(self, number: int) -> None:
        """Tell the merger what a member has brought."""
        stamps, sizes, is_open = self.pools[number].take(NOW)
        self.merger.set_full(NAMES[number], is_full=self.pools[number].ring.waiting)
        if len(stamps):
            self.merger.add(NAMES[number], stamps, sizes, is_open=is_open, now=NOW)

    def merge(self, *, is_over: bool = True) -> list[tuple[str, str]]:
        """Merge what was brought; the member and the text of each row that is in the ring then."""
        for number, name in enumerate(NAMES):
            self.tell(number)
            if is_over:
                self.merger.heartbeat(name, now=NOW)
        while len(slices := self.merger.release(1000, now=NOW)):
            move(self.pools, slices, self.ring, self.staging, self.writer)
            assert self.ring.put(self.staging)
        data = b"".join(self.ring.collect(self.ring.first).slices)
        found = []
        for message in Messages.FromString(data).messages:
            it = Entry.FromString(message)
            if it.storeValue not in (b"begin", b"end"):
                assert it.header.props[0] == Pair(key="before", value="here")
                assert it.header.props[2:] in ([], [Pair(key=props.DISORDER, value="late")])
                found.append((it.header.props[1].value, it.storeValue.decode() + ":late" * (len(it.header.props) > 2)))
        return found


def test_entries_move_with_the_name_of_their_member_in_the_order_of_their_times() -> None:
    group = Group()
    group.bring(1, "first")
    group.streams[0].events += 1  # its event is a second later
    group.bring(0, "second")
    assert group.merge() == [("b", "first"), ("a", "second")]
    assert all(len(it.ring) == 0 for it in group.pools)
    slot = group.ring.slot(1)
    assert group.ring.sources[slot.source] == ("b", "of-b")
    assert group.ring.tables[slot.table] == ("shop", "orders")
    assert slot.length > len(entry("first"))
    assert group.ring.gtid_sources[group.ring.slot(2).gtid][0] == "b"


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3)), max_size=30), st.integers(1, 30))
def test_all_that_members_bring_moves_in_their_orders(brought: list[tuple[int, int]], piece: int) -> None:
    group = Group()
    expected: dict[str, list[str]] = {it: [] for it in NAMES}
    got: list[tuple[str, str]] = []
    for i, (number, count) in enumerate(brought):
        rows = [f"{i}.{row}" for row in range(count)]
        group.bring(number, *rows)
        expected[NAMES[number]] += rows
        if i % piece == 0:
            group.merge(is_over=False)
    got = group.merge()
    assert {it: [row for name, row in got if name == it] for it in NAMES} == expected


def test_a_transaction_that_is_larger_than_its_pool_passes_in_parts() -> None:
    group = Group(size=16)
    stream = group.streams[0]
    stage(stream, map(str, range(100)))
    putting = threading.Thread(target=stream.put)
    putting.start()
    got: list[tuple[str, str]] = []
    while len(got) < 100:
        got = group.merge()
    putting.join()
    assert got == [("a", str(it)) for it in range(100)]


def test_a_member_that_ends_inside_a_transaction_leaves_the_end_to_the_caller() -> None:
    group = Group(size=16)
    stream = group.streams[0]
    stage(stream, map(str, range(100)))
    putting = threading.Thread(target=stream.put, daemon=True)
    putting.start()
    while not group.merge():
        pass
    group.merger.leave("a")
    slices = group.merger.release(1000, now=NOW)
    assert slices[-1] & Mark.BROKEN
    before = group.ring.next
    move(group.pools, slices, group.ring, group.staging, group.writer)
    assert group.ring.put(group.staging)
    assert group.ring.next >= before
    group.pools[0].ring.close()
    putting.join(10)


def test_entries_of_a_transaction_that_is_late_say_so() -> None:
    group = Group()
    group.streams[0].events += 9
    group.bring(0, "first")
    assert group.merge() == [("a", "first")]
    group.bring(1, "second")
    assert group.merge()[-1] == ("b", "second:late")


def test_what_is_there_of_a_transaction_is_whole_when_nothing_more_comes() -> None:
    group = Group()
    stream = group.streams[0]
    stream.stage(entry("begin"), Kind.TRANSACTION_BEGIN)
    stream.stage(entry("row"), Kind.ROW_DATA, ("shop", "orders"))
    stream.put()
    assert group.merge() == []
    stamps, sizes, is_open = group.pools[0].take(NOW, is_over=True)
    assert (list(sizes), is_open) == ([0], False)
    group.merger.add("a", stamps, sizes, is_open=is_open, now=NOW)
    for name in NAMES[1:]:
        group.merger.heartbeat(name, now=NOW)
    move(group.pools, group.merger.release(1000, now=NOW), group.ring, group.staging, group.writer)
    assert group.ring.put(group.staging)
    assert b"row" in b"".join(group.ring.collect(0).slices)


def test_a_full_ring_is_a_full_pool_whatever_is_in_it() -> None:
    group = Group(size=4)
    for _ in range(2):
        stage(group.streams[0], ["row"])
    putting = threading.Thread(target=group.streams[0].put, daemon=True)
    putting.start()
    while not group.pools[0].ring.waiting:
        pass
    group.tell(0)
    assert group.merger.is_full("a")
    group.pools[0].ring.close()
    putting.join(10)


def column_entry(value: str | None, *, image: str = "after", name: str = "id") -> bytes:
    cells = [Column(name="other", value="5"), Column(name=name, value=value or "", isNull=value is None)]
    row = RowData(afterColumns=cells) if image == "after" else RowData(beforeColumns=cells)
    change = RowChange(rowDatas=[row, RowData(afterColumns=[Column(name=name, value="77")])])
    header = Header(tableName="orders", props=[Pair(key="before", value="here")])
    return Entry(header=header, entryType=ROWDATA, storeValue=change.SerializeToString()).SerializeToString()


@pytest.mark.parametrize(
    ("value", "key"),
    [
        ("12", 12),
        ("-3", -3),
        ("9223372036854775807", (1 << 63) - 1),
        ("18446744073709551615", (1 << 63) - 1),
        ("12.5", UNKNOWN),
        ("", UNKNOWN),
        (None, UNKNOWN),
        ("x", UNKNOWN),
    ],
)
@pytest.mark.parametrize("image", ["after", "before"])
def test_the_key_of_a_transaction_is_what_its_first_row_has_in_the_column(
    value: str | None, key: int, image: str
) -> None:
    group = Group(order="column:id")
    stream = group.streams[0]
    stream.stage(entry("begin"), Kind.TRANSACTION_BEGIN)
    stream.stage(column_entry(value, image=image), Kind.ROW_DATA, ("shop", "orders"))
    stream.stage(entry("end"), Kind.TRANSACTION_END, boundary=True)
    stream.put()
    assert list(group.pools[0].take(NOW)[0]) == [key]


def test_a_row_without_the_column_has_no_key() -> None:
    group = Group(order="column:id")
    group.streams[0].stage(column_entry("7", name="number"), Kind.ROW_DATA, ("shop", "orders"), boundary=True)
    group.streams[0].put()
    assert list(group.pools[0].take(NOW)[0]) == [UNKNOWN]


def test_times_are_keys_in_their_order() -> None:
    group, stamps = Group(order="column:id"), list[int]()
    times = [
        "2026-11-28",
        "2026-11-28 00:00:00.000001",
        "2026-11-28 11:06:33",
        "2026-11-28 11:06:33.5",
        "2026-11-28 11:06:33.500001",
        "2026-11-28 11:06:34",
        "2026-12-01 00:00:00",
        "2027-01-01",
    ]
    for it in times:
        group.streams[0].stage(column_entry(it), Kind.ROW_DATA, ("shop", "orders"), boundary=True)
        group.streams[0].put()
        stamps += group.pools[0].take(NOW)[0]
    assert UNKNOWN not in stamps
    assert stamps == sorted(set(stamps))


def test_the_key_of_a_transaction_is_waited_for_until_its_first_row_is_there() -> None:
    group = Group(order="column:id")
    stream = group.streams[0]
    stream.stage(entry("begin"), Kind.TRANSACTION_BEGIN)
    stream.put()
    assert list(group.pools[0].take(NOW)[0]) == []
    stream.stage(column_entry("7"), Kind.ROW_DATA, ("shop", "orders"))
    stream.put()
    stamps, _, is_open = group.pools[0].take(NOW)
    assert (list(stamps), is_open) == ([7], True)
