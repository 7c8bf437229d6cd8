"""A ring read with a condition on rows gives what one gives that holds only the rows that match."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.instance.conditions.rows import RowConditions
from sluice.protocol.canal.entry_pb2 import Entry, EntryType, EventType, RowChange
from sluice.protocol.canal.packet_pb2 import Messages
from sluice.protocol.errors import FilterError
from sluice.protocol.gtid import MariadbGtidSet
from sluice.protocol.position import Position
from sluice.store.admission import CONDITIONS_OF_TOKEN, MAX_CONDITIONS
from sluice.store.batch import RangeLimits
from sluice.store.cursor import StoredClient
from sluice.store.cursors import Cursors
from sluice.store.ring import Flag, Kind, Ring, Staging
from sluice.store.segment import SegmentWriter
from sluice.store.track import verdicts_of
from sluice.store.verdicts import Verdicts
from tests.stream import Stream as Places

WHERE = "shop.goods: id IN (1, 3, 4, 7) AND name <> 'no'"
NAMES = ("goods", "orders")

Row = tuple[int, str]
Item = tuple[str, list[Row]] | str
"""A table and rows of it, or `begin`, `end`, `ddl`."""


class Stream:
    """A ring that a test fills."""

    def __init__(self) -> None:
        self.ring = Ring(1 << 10, 1 << 24, segment_size=4096)
        self.writer = SegmentWriter(self.ring.pool)
        self.staging = Staging()
        self.place = 4

    def put(self, items: Sequence[Item]) -> None:
        """Put entries."""
        for item in items:
            self._add(item)
        assert self.ring.put(self.staging)

    def _add(self, item: Item) -> None:
        entry = Entry()
        more = {"file": 1, "begin": self.place, "next_file": 1, "next_begin": self.place + 1, "source": 1}
        self.place += 1
        if isinstance(item, str):
            entry.entryType = {
                "begin": EntryType.TRANSACTIONBEGIN,
                "end": EntryType.TRANSACTIONEND,
                "ddl": EntryType.ROWDATA,
            }[item]
            kind = {"begin": Kind.TRANSACTION_BEGIN, "end": Kind.TRANSACTION_END, "ddl": Kind.DDL}[item]
            self.writer.write_framed(entry.SerializeToString())
            flags = 0 if item == "begin" else Flag.BOUNDARY
            self.staging.add_entry(self.writer, kind, flags=flags, **more)
            return
        table, rows = item
        if not rows:  # nothing of it is left
            self.staging.add_entry(self.writer, Kind.ADVANCE, **more)
            return
        entry.entryType = EntryType.ROWDATA
        entry.header.schemaName, entry.header.tableName = "shop", table
        entry.header.props.add(key="a", value="b")
        entry.header.props.add(key="rowsCount", value=str(len(rows)))
        change = RowChange(tableId=5, eventType=EventType.INSERT)
        for number, name in rows:
            row = change.rowDatas.add()
            row.afterColumns.add(index=0, name="id", mysqlType="int", value=str(number))
            row.afterColumns.add(index=1, name="name", mysqlType="varchar(9)", value=name)
        change.ddlSchemaName = "x" * 300 if table == "goods" else ""
        entry.storeValue = change.SerializeToString()
        self.writer.write_framed(entry.SerializeToString())
        number = self.ring.tables.intern(("shop", table, (None, 46)))
        self.staging.add_entry(self.writer, Kind.ROW_DATA, table=number, rows=len(rows), **more)


def judged(ring: Ring, where: str = WHERE, at_a_time: int = 1000, stop: int = 1 << 20) -> Verdicts:
    """What a condition says of a ring, up to a slot at most."""
    verdicts = verdicts_of(ring, RowConditions(where))
    while verdicts.next < stop:
        pinned = ring.pin(verdicts.next, min(at_a_time, stop - verdicts.next), 1 << 20)
        if pinned is None:
            break
        verdicts.judge.judge(pinned)
        verdicts.take(pinned)
    return verdicts


def matching(item: Item) -> Item:
    if isinstance(item, str) or item[0] != "goods":
        return item
    return item[0], [row for row in item[1] if row[0] in {1, 3, 4, 7} and row[1] != "no"]


def contents(slices: Sequence[memoryview]) -> list[Entry]:
    return [Entry.FromString(it) for it in Messages.FromString(b"".join(slices)).messages]


changes = st.tuples(
    st.sampled_from(NAMES),
    st.lists(st.tuples(st.integers(0, 9), st.sampled_from(("yes", "no"))), min_size=1, max_size=6),
)
transactions = st.one_of(st.lists(changes, max_size=4).map(lambda found: ["begin", *found, "end"]), st.just(["ddl"]))
streams = st.lists(transactions, max_size=12).map(lambda found: [item for some in found for item in some])


@given(items=streams, limit=st.integers(0, 4), size=st.integers(0, 3000), at_a_time=st.integers(1, 9), data=st.data())
def test_a_ring_with_a_condition_is_as_one_with_the_rows_that_match(
    items: list[Item], limit: int, size: int, at_a_time: int, data: st.DataObject
) -> None:
    whole, filtered = Stream(), Stream()
    whole.put(items)
    filtered.put([matching(item) for item in items])
    verdicts = judged(whole.ring, at_a_time=at_a_time)
    everything = bytearray(b"\1" * 3)  # the other ring is read as by a filter
    start = data.draw(st.integers(0, len(items)))
    stop = data.draw(st.integers(start, len(items)))
    one = whole.ring.collect(start, stop=stop, max_entries=limit, max_bytes=size, verdicts=verdicts)
    other = filtered.ring.collect(start, stop=stop, max_entries=limit, max_bytes=size, allowed=everything)
    assert contents(one.slices) == contents(other.slices)
    assert (one.entries, one.rows, one.last, one.stop) == (other.entries, other.rows, other.last, other.stop)
    assert one.bytes == sum(map(len, one.slices))
    assert one.positions == other.positions
    one, other = (
        whole.ring.read(start, stop, max_bytes=size, verdicts=verdicts),
        filtered.ring.read(start, stop, max_bytes=size, allowed=everything),
    )
    assert contents(one.slices) == contents(other.slices)
    assert (one.rows, one.stop) == (other.rows, other.stop)
    limits: dict[str, Any] = {"max_rows": limit, "max_bytes": size}
    assert whole.ring.cut(start, stop, **limits, verdicts=verdicts) == filtered.ring.cut(
        start, stop, **limits, allowed=everything
    )
    assert whole.ring.split(start, stop, 3, verdicts=verdicts) == filtered.ring.split(
        start, stop, 3, allowed=everything
    )
    assert whole.ring.measure(start, stop, verdicts=verdicts) == filtered.ring.measure(start, stop, everything)


def test_what_was_given_stays_valid_and_the_rest_goes_with_its_slots() -> None:
    stream = Stream()
    items: list[Item] = [("goods", [(number, "yes") for number in range(200)])] * 30
    stream.put(items)
    verdicts = judged(stream.ring, at_a_time=7)
    given_entries = stream.ring.collect(0, max_entries=10, verdicts=verdicts)
    before = b"".join(given_entries.slices)
    stream.ring.free_to(25)
    assert (verdicts.first, verdicts.next) == (25, 30)
    assert b"".join(given_entries.slices) == before
    stream.put(items)
    assert stream.ring.collect(25, verdicts=judged(stream.ring)).rows == 35 * 4
    stream.ring.close()
    assert stream.ring.verdicts == {}
    assert b"".join(given_entries.slices) == before


def test_slots_that_are_freed_while_they_are_judged_are_passed_over() -> None:
    stream = Stream()
    items: list[Item] = [("goods", [(1, "yes"), (2, "yes")]), ("goods", [(2, "yes")])]
    stream.put(items * 3)
    verdicts = verdicts_of(stream.ring, RowConditions(WHERE))
    pinned = stream.ring.pin(0, 4, 1 << 20)
    assert pinned is not None
    stream.ring.free_to(3)
    verdicts.judge.judge(pinned)
    verdicts.take(pinned)
    assert (verdicts.first, verdicts.next) == (3, 4)
    late = stream.ring.pin(4, 4, 1 << 20)
    assert late is not None
    stream.ring.free_to(6)
    verdicts.judge.judge(late)
    verdicts.take(late)
    assert (verdicts.first, verdicts.next) == (6, 6)
    stream.put(items)
    assert contents(stream.ring.collect(6, verdicts=judged(stream.ring)).slices)[0].header.props[1].value == "1"


def test_what_cannot_be_judged_is_where_reading_ends() -> None:
    stream = Stream()
    stream.put([("goods", [(1, "yes")]), ("orders", [(1, "yes")]), ("goods", [(1, "yes")])])
    verdicts = judged(stream.ring, "shop.orders: name > 5")
    assert [verdicts.reach(number) for number in range(4)] == [1, 1, 3, 3]
    assert [verdicts.refusal(number) is None for number in range(4)] == [True, False, True, True]
    assert isinstance(verdicts.refusal(1), FilterError)
    assert "shop.orders.name: a number beside texts" in str(verdicts.refusal(1))
    stream.ring.free_to(2)
    assert (verdicts.reach(2), verdicts.refusal(1)) == (3, None)


@pytest.mark.parametrize(
    ("before", "after"),
    [([], ["unjudged"]), (["unsplit"], ["unsplit", "unjudged"]), (["unjudged"], ["unjudged"])],
)
def test_a_row_that_lacks_a_column_has_the_remark_once_whatever_else_the_destination_says(
    before: list[str], after: list[str]
) -> None:
    stream = Stream()
    change = RowChange(eventType=EventType.UPDATE)
    change.rowDatas.add().afterColumns.add(index=1, name="name", mysqlType="varchar(9)", value="x")
    for remark in before:
        change.props.add(key="sluice.where", value=remark)
    entry = Entry(entryType=EntryType.ROWDATA, storeValue=change.SerializeToString())
    stream.writer.write_framed(entry.SerializeToString())
    number = stream.ring.tables.intern(("shop", "goods", (46,)))
    stream.staging.add_entry(stream.writer, Kind.ROW_DATA, table=number, rows=1)
    stream.put([])
    (given,) = contents(stream.ring.collect(0, verdicts=judged(stream.ring, "shop.goods: id = 1")).slices)
    props = RowChange.FromString(given.storeValue).props
    assert [(it.key, it.value) for it in props] == [("sluice.where", it) for it in after]


def row(value: str) -> bytes:
    """An entry with a row of one column, which is said to be an int."""
    change = RowChange(eventType=EventType.INSERT)
    change.rowDatas.add().afterColumns.add(index=0, name="id", mysqlType="int", value=value)
    entry = Entry(entryType=EntryType.ROWDATA, storeValue=change.SerializeToString())
    entry.header.schemaName, entry.header.tableName = "shop", "orders"
    return entry.SerializeToString()


def conditional(where: str = "shop.orders: id = 1") -> tuple[Cursors, Places]:
    """Client 1 has a condition, client 2 has none."""
    ring = Ring(64)
    cursors = Cursors(ring, epoch=1, compile_filter=lambda _: None, compile_where=RowConditions)
    stream = Places(ring)
    cursors.begin(stream.end, MariadbGtidSet())
    cursors.subscribe(1, where=where, now=0)
    cursors.subscribe(2, now=0)
    return cursors, stream


def put(cursors: Cursors, stream: Places, *values: str, where: str = "shop.orders: id = 1") -> None:
    """Put transactions of one row, and have them judged."""
    for value in values:
        stream.transaction(row(value))
    stream.put()
    if where:
        judged(cursors.ring, where)
    cursors.advance(0)


@pytest.mark.parametrize("before", [[], ["1"], ["2"], ["1", "2"]])
def test_a_client_is_refused_when_it_has_confirmed_all_before_what_cannot_be_judged(before: list[str]) -> None:
    cursors, stream = conditional()
    put(cursors, stream, *before)
    batch = cursors.get(1, now=0) if "1" in before else None
    put(cursors, stream, "not a number")
    if batch is not None:
        assert (batch.rows, cursors.status(1).state) == (1, "attached")
        cursors.ack(1, batch.batch_id, now=0)
        cursors.advance(0)
    assert cursors.status(1).state == "gone"
    assert "'not a number' is not a value of the type int" in cursors.status(1).error
    assert cursors.take_refused() == [1]
    assert cursors.take_refused() == []
    whole = cursors.get(2, now=0)
    assert whole is not None
    assert whole.rows == len(before) + 1


def test_a_range_is_read_when_it_is_judged_as_far_as_it_can_be() -> None:
    cursors, stream = conditional()
    begin = stream.end
    put(cursors, stream, "1", "2", "1", where="")
    assert cursors.ranges.read(1, begin, stream.end) is None
    assert cursors.ranges.read(1, begin, begin) is not None
    put(cursors, stream, "1")
    found = cursors.ranges.read(1, begin, stream.end)
    assert (found.rows if found is not None else None) == 3
    judgeable = stream.end
    inside = stream.position(stream.events + 1)
    put(cursors, stream, "not a number", "1")
    for end in (judgeable, inside):
        found = cursors.ranges.read(1, begin, end)
        assert (found.rows if found is not None else None) == 3
    for read in (cursors.ranges.read(2, begin, stream.end), cursors.ranges.split(2, begin, stream.end, 1)):
        assert read
    with pytest.raises(FilterError, match="'not a number' is not a value of the type int"):
        cursors.ranges.read(1, begin, stream.end)


def test_a_client_that_is_not_served_yet_has_its_range_judged_once() -> None:
    cursors, stream = conditional()
    begin = stream.end
    put(cursors, stream, "1", "2")
    ahead = stream.position(stream.events + 8)
    cursors.subscribe(3, where="shop.orders: id = 2", start=ahead, now=0)
    assert cursors.ranges.read(3, begin, stream.end) is None
    verdicts = cursors.ring.verdicts["shop.orders: id = 2"]
    judged(cursors.ring, "shop.orders: id = 2")
    assert cursors.ring.verdicts["shop.orders: id = 2"] is verdicts
    del verdicts
    found = cursors.ranges.read(3, begin, stream.end)
    assert (found.rows if found is not None else None) == 1
    cursors.subscribe(3, where="shop.orders: id < 3", now=0)
    assert cursors.ranges.read(3, begin, stream.end) is None
    judged(cursors.ring, "shop.orders: id < 3")
    found = cursors.ranges.read(3, begin, stream.end)
    assert (found.rows if found is not None else None) == 2
    assert set(cursors.ring.verdicts) == {"shop.orders: id = 1", "shop.orders: id < 3"}


def test_a_client_whose_condition_cannot_be_read_any_more_gets_nothing() -> None:
    cursors, stream = conditional()
    begin = stream.end
    put(cursors, stream, "1")
    cursors.restore(StoredClient(4, "", None, where="shop.orders: id = = 1"), 0)
    for call in (
        lambda: cursors.ranges.read(4, begin, stream.end),
        lambda: cursors.places.seek(4, "latest", now=0),
        lambda: cursors.clients.wanted(4),
    ):
        with pytest.raises(FilterError, match="is not a condition of SQL"):
            call()
    cursors.subscribe(4, where="shop.orders: id = 1", now=0)
    cursors.places.seek(4, "latest", now=0)
    assert cursors.status(4).state == "attached"
    assert cursors.clients.wanted(4).rows is not None


@pytest.mark.parametrize(
    ("mysql_type", "value", "condition", "matches"),
    [
        ("int", "12", "c = 12", True),
        ("int", "12x", "c = 12", None),
        ("decimal(4,2)", "-12.30", "c BETWEEN -12.30001 AND -12.3", True),
        ("decimal(4,2)", "123.00", "c > 0", None),
        ("decimal(4,2)", "12.345", "c > 0", None),
        ("decimal(65,30)", "-0.000000000000000000000000000001", "c < 0", True),
        ("float", "0.1", "c = 0.1", False),  # as the server says of 0.1 beside a FLOAT
        ("double", "1.0E10", "c = 10000000000", True),
        ("year", "0000", "c = 0", True),
        ("year", "1900", "c = 0", None),
        ("date", "2026-01-31", "c < '2026-01-31 00:00:01'", True),
        ("date", "31.1.2026", "c < '2026-01-31'", None),
        ("datetime(3)", "2026-01-31 10:00:00.125", "c = '2026-01-31 10:00:00.125'", True),
        ("timestamp", "0000-00-00 00:00:00", "c < '1970-01-01'", True),
        ("time(1)", "-00:00:00.5", "c < '00:00:00'", True),
        ("time", "838:59:59", "c > '100:00:00'", True),
        ("bit(64)", "18446744073709551615", "c > 0", True),
        ("varbinary(3)", "a\xff", "c = X'61ff'", True),
        ("binary(3)", "a", "c = X'610000'", True),
        ("enum('a','b')", "2", "c = 'b'", True),
        ("varchar(9)", "ä", "c COLLATE latin1_bin > 'z'", True),
        ("char(64)", "f" * 64, "c COLLATE utf8mb4_bin LIKE 'f%'", True),
        ("json", "{}", "c IS NULL", False),
    ],
)
def test_texts_of_entries_are_the_values_that_they_stand_for(
    mysql_type: str,
    value: str,
    condition: str,
    matches: bool | None,
) -> None:
    """None: it is not a value of the type, which is an error."""
    stream = Stream()
    entry = Entry(entryType=EntryType.ROWDATA)
    change = RowChange()
    change.rowDatas.add().afterColumns.add(index=0, name="C", mysqlType=mysql_type, value=value)
    entry.storeValue = change.SerializeToString()
    stream.writer.write_framed(entry.SerializeToString())
    table = stream.ring.tables.intern(("shop", "goods", (46,)))
    stream.staging.add_entry(stream.writer, Kind.ROW_DATA, table=table, rows=1)
    stream.put([])
    verdicts = judged(stream.ring, f"shop.goods: {condition}")
    if matches is None:
        assert "is not a value of the type" in str(verdicts.refusal(0))
    else:
        assert verdicts.refusal(0) is None
        assert stream.ring.collect(0, verdicts=verdicts).entries == matches


def test_a_marked_range_ends_inside_a_transaction_only_at_what_cannot_be_judged() -> None:
    """What is not judged yet will be: the transaction is given as a whole then."""
    cursors, stream = conditional()
    begin = stream.end
    put(cursors, stream, "1")
    whole = stream.end
    stream.stage(b"begin", Kind.TRANSACTION_BEGIN)
    for value in ("1", "1"):
        stream.stage(row(value), Kind.ROW_DATA, ("shop", "orders"))
    stream.put()
    verdicts = judged(cursors.ring, "shop.orders: id = 1", stop=5)
    assert verdicts.next == 5
    found = cursors.ranges.mark(1, begin, RangeLimits(), now=0)
    assert found is not None
    assert (found.to, found.rows) == (str(whole), 1)
    assert cursors.ranges.mark(1, whole, RangeLimits(), now=0) is None


def test_a_transaction_that_another_condition_is_judged_of_in_part_is_no_range_yet() -> None:
    cursors, stream = conditional()
    put(cursors, stream, "1")
    whole = stream.end
    stream.transaction(row("1"), row("1"))
    stream.stage(row("1"), Kind.ROW_DATA, ("shop", "orders"))
    stream.put()
    assert cursors.get(2, now=0) is not None
    where = "shop.orders: id = 1"
    cursors.subscribe(2, where=where, now=0)
    assert judged(cursors.ring, where, stop=5).next == 5
    assert cursors.ranges.mark(2, whole, RangeLimits(), now=0) is None
    judged(cursors.ring, where)
    found = cursors.ranges.mark(2, whole, RangeLimits(), now=0)
    assert found is not None
    assert (found.rows, found.partial) == (2, False)


def test_what_comes_before_a_row_that_cannot_be_judged_is_a_range_after_which_the_client_is_refused() -> None:
    cursors, stream = conditional()
    begin = stream.end
    stream.transaction(row("1"), row("not a number"), row("1"))
    stream.put()
    judged(cursors.ring, "shop.orders: id = 1")
    found = cursors.ranges.mark(1, begin, RangeLimits(), now=0)
    assert found is not None
    assert (found.rows, found.partial) == (1, True)
    assert cursors.ack_to(1, Position.parse(found.to), now=0)
    cursors.advance(0)
    assert cursors.take_refused() == [1]


def test_only_so_many_conditions_are_judged_of_a_ring() -> None:
    cursors, _ = conditional()
    for number in range(2, MAX_CONDITIONS + 1):
        cursors.subscribe(number, where=f"shop.orders: id = {number}", now=0)
    with pytest.raises(FilterError, match="clients of this destination or view have 16 different conditions"):
        cursors.subscribe(100, where="shop.orders: id = 100", now=0)
    cursors.restore(StoredClient(101, "", None, where="shop.orders: id = 101"), 0)
    assert cursors.status(101).state == "attached", "what is stored stays"
    cursors.subscribe(101, where="shop.orders: id = 101", now=0)
    with pytest.raises(FilterError, match="16 different conditions"):
        cursors.subscribe(2, where="shop.orders: id = 102", now=0)


def test_a_view_and_a_token_have_shares_of_the_conditions() -> None:
    """One of them would keep all others from having any."""
    cursors, _ = conditional()
    view = Cursors(cursors.ring, epoch=1, compile_filter=lambda _: None, compile_where=RowConditions, main=cursors)
    for number in range(2, MAX_CONDITIONS + 1):
        view.subscribe(number, where=f"shop.orders: id = {number}", now=0)
    for number in range(CONDITIONS_OF_TOKEN):
        cursors.subscribe(number + 2, where=f"shop.orders: id = {number + 50}", owner="billing", now=0)
    with pytest.raises(FilterError, match="the token 'billing' has created here have 4 different conditions"):
        cursors.subscribe(100, where="shop.orders: id = 100", owner="billing", now=0)
    with pytest.raises(FilterError, match="4 different conditions"):
        cursors.subscribe(1, where="shop.orders: id = 100", owner="billing", now=0)
    cursors.subscribe(100, where="shop.orders: id = 50", owner="billing", now=0)
    cursors.subscribe(101, where="shop.orders: id = 101", owner="shipping", now=0)
    cursors.subscribe(3, where="shop.orders: id = 102", owner="billing", now=0)
