"""The pools of a group's members: what they tell the merger, and what moves from them into the group's ring."""

import threading
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.instance.merge.merger import MemberOptions, Merger, Ordering
from sluice.instance.merge.pools import Pool, move
from sluice.protocol import props
from sluice.protocol.canal.entry_pb2 import ROWDATA, Entry, Header, Pair
from sluice.protocol.canal.packet_pb2 import Messages
from sluice.protocol.errors import SourceError
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

    def __init__(self, size: int = 1024, memory: int = 1 << 20) -> None:
        self.pools = [Pool(it, Ring(size, memory), props.MEMBER) for it in NAMES]
        self.streams = [Stream(it.ring, name=f"of-{it.member}") for it in self.pools]
        self.ring, self.staging = Ring(), Staging()
        self.writer = SegmentWriter(self.ring.pool)
        options = {it: MemberOptions(memory) for it in NAMES}
        self.merger = Merger(Ordering.parse("time"), options, now=NOW)

    def bring(self, number: int, *rows: str) -> None:
        """Let a member bring a transaction."""
        stage(self.streams[number], rows)
        self.streams[number].put()

    def tell(self, number: int) -> None:
        """Tell the merger what a member has brought."""
        stamps, sizes, is_open = self.pools[number].take(NOW)
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
                found.append((it.header.props[1].value, it.storeValue.decode()))
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


def test_a_member_that_ends_inside_a_transaction_of_which_parts_have_passed_is_an_error() -> None:
    group = Group(size=16)
    stream = group.streams[0]
    stage(stream, map(str, range(100)))
    putting = threading.Thread(target=stream.put, daemon=True)
    putting.start()
    while not group.merge():
        pass
    group.merger.leave("a")
    with pytest.raises(SourceError, match="member a: it has ended inside a transaction"):
        move(group.pools, group.merger.release(1000, now=NOW), group.ring, group.staging, group.writer)
    group.pools[0].ring.close()
    putting.join(10)
