"""What a topic with TiDB's secondary binlog gives to the ring: which entries, their slots, and what comes between."""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from sluice.instance.columns import SourceColumn
from sluice.instance.sources.kafka.stager import Stager
from sluice.protocol.canal.rows import Change, decode_changes
from sluice.protocol.errors import DecodeError
from sluice.protocol.position import Position
from sluice.protocol.tidb.entries import EntryEncoder
from sluice.store.ring import Flag, Kind, Ring, SlotView
from tests.tidb import captured, ddl, dml, table

FILE = "7_obinlog.0"


@dataclass
class Options:
    """What a configuration says of entries."""

    filter_dml_insert: bool = False
    filter_dml_update: bool = False
    filter_dml_delete: bool = False
    filter_rows: bool = False
    filter_query_ddl: bool = False
    filter_transaction_entry: bool = False


class Only:
    """Accepts some tables."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self.asked: list[str] = []

    def accepts(self, schema: str, table: str) -> bool:
        """Whether it is one of them, or there are none."""
        self.asked.append(f"{schema}.{table}")
        return not self.names or f"{schema}.{table}" in self.names


class Reading:
    """A ring that a stager fills."""

    def __init__(
        self, options: Options | None = None, wanted: Only | None = None, stop: tuple[int, int] | None = None
    ) -> None:
        self.ring = Ring(1 << 14, 1 << 26)
        self.wanted = wanted or Only()
        position = None if stop is None else Position("tidb", FILE, 0, *stop)
        self.stager = Stager(
            self.ring,
            options or Options(),
            EntryEncoder(FILE),
            "tidb",
            FILE,
            self.wanted,  # type: ignore[arg-type]
            position,
        )
        self.puts = 0

    def read(self, *values: bytes, offset: int = 0) -> None:
        """Read records, the first of which is at an offset."""
        self.stager.receive(list(enumerate(values, offset)))
        try:
            while self.stager.run():
                self.put()
        finally:
            self.put()

    def put(self) -> None:
        """Put what is staged."""
        if len(self.stager.staging):
            self.puts += 1
            assert self.ring.put(self.stager.staging)

    @property
    def changes(self) -> list[Change]:
        """What the ring has."""
        return decode_changes(b"".join(self.ring.collect(0).slices)) if len(self.ring) else []

    @property
    def shown(self) -> list[str]:
        """The same in short: table or statement, else the kind, of rows with their numbers."""
        found = []
        for it in self.changes:
            first = next(iter(it.rows()), None)
            values = first and [*(first.after or first.before or {}).values()]
            found.append(f"{it.table}{values}" if values else it.sql or it.entry_type[11:])
        return found

    @property
    def slots(self) -> list[SlotView]:
        """Its slots."""
        return [self.ring.slot(number) for number in range(self.ring.first, self.ring.next)]


def row(commit_ts: int, *names: str) -> bytes:
    """Return a record of a row in each of some tables, whose id is the commit_ts."""
    return dml(commit_ts, *(table("s", name, "*id bigint", [(None, (commit_ts,))]) for name in names or ("t",)))


# --- entries and slots -----------------------------------------------------------------------------------------------


def test_the_entries_are_those_of_the_reader() -> None:
    reading, encoder = Reading(), EntryEncoder(FILE)
    values = [it.value for it in captured()]
    reading.read(*values)
    expected = [entry for offset, it in enumerate(values) for entry in encoder.encode(it, offset).entries]
    assert b"".join(reading.ring.collect(0).slices) == b"".join(it.data for it in expected)
    assert [it.rows for it in reading.slots] == [it.rows for it in expected]
    assert [it.event_type for it in reading.slots] == [it.event_type for it in expected]
    assert (reading.stager.transactions, reading.stager.received_bytes) == (len(values), sum(map(len, values)))


def test_a_slot_says_what_its_entry_is_and_where() -> None:
    reading = Reading()
    commit_ts = 5 << 18 | 3
    reading.read(row(commit_ts, "a", "b"), ddl(commit_ts + 9, "s", "DROP TABLE `a`;", "a"), offset=70)
    kinds = [Kind.TRANSACTION_BEGIN, Kind.ROW_DATA, Kind.ROW_DATA, Kind.TRANSACTION_END, Kind.DDL]
    assert [it.kind for it in reading.slots] == kinds
    assert [(it.begin, it.n) for it in reading.slots] == [*((commit_ts, n) for n in range(4)), (commit_ts + 9, 0)]
    after = [*((commit_ts, n) for n in (1, 2, 3)), (commit_ts + 1, 0), (commit_ts + 10, 0)]
    assert [(it.next_begin, it.next_n) for it in reading.slots] == after
    assert [it.flags for it in reading.slots] == [0, 0, 0, Flag.BOUNDARY, Flag.BOUNDARY]
    assert [reading.ring.tables[it.table] for it in reading.slots] == [None, ("s", "a"), ("s", "b"), None, None]
    assert [it.event_offset for it in reading.slots] == [70, 70, 70, 70, 71]
    assert {(it.execute_ms, it.commit_us) for it in reading.slots} == {(5, 5000)}
    assert {reading.ring.files[it.file] for it in reading.slots} == {(FILE, 0)}
    assert (reading.stager.commit_ts, reading.stager.offset) == (commit_ts + 9, 71)


def test_a_large_transaction_is_put_in_pieces() -> None:
    reading = Reading()
    changes = [(None, (number, "x" * 50_000)) for number in range(100)]
    reading.read(dml(10, table("s", "t", "*id bigint, v text", changes)), row(20))
    assert reading.puts >= 4
    assert sum(len(it.rows()) for it in reading.changes) == 101
    assert [it.n for it in reading.slots[:-3]] == list(range(len(reading.slots) - 3))


def test_a_record_that_cannot_be_decoded_is_an_error_with_its_offset_after_those_before_it() -> None:
    reading = Reading()
    half = row(30)[:-3]
    with pytest.raises(DecodeError, match=r"^offset 6: not a record"):
        reading.read(row(10), half, row(40), offset=5)
    assert reading.shown == ["BEGIN", "t[10]", "END"]
    assert (reading.stager.commit_ts, reading.stager.offset) == (10, 5)
    reading.stager.begin(10)
    reading.read(row(40), offset=7)
    assert reading.shown[3:] == ["BEGIN", "t[40]", "END"]


# --- what is left out ------------------------------------------------------------------------------------------------


def test_repetitions_are_left_out() -> None:
    reading = Reading()
    reading.stager.begin(10)
    reading.read(row(9), row(10), row(20), row(20), row(15), row(30))
    assert reading.shown == ["BEGIN", "t[20]", "END", "BEGIN", "t[30]", "END"]


@pytest.mark.parametrize("skipped", range(4))
def test_it_begins_inside_a_transaction_that_is_the_next_one(skipped: int) -> None:
    for commit_ts, expected in ((10, 4 - skipped), (11, 4)):
        reading = Reading()
        reading.stager.begin(9, skipped)
        reading.read(row(commit_ts, "a", "b"))
        assert len(reading.slots) == expected
        assert reading.stager.skipped == 0


@pytest.mark.parametrize(("stop", "count"), [((10, 0), 0), ((10, 2), 2), ((11, 0), 3), ((20, 0), 3), ((20, 1), 4)])
def test_it_ends_at_the_stop_position(stop: tuple[int, int], count: int) -> None:
    reading = Reading(stop=stop)
    reading.read(row(10), row(20), row(30))
    assert reading.stager.is_done
    assert len(reading.slots) == count


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (Options(), ["BEGIN", "a[1]", "a[2]", "a[2]", "END", "DROP TABLE `a`"]),
        (Options(filter_dml_insert=True), ["BEGIN", "a[2]", "a[2]", "END", "DROP TABLE `a`"]),
        (Options(filter_dml_update=True), ["BEGIN", "a[1]", "a[2]", "END", "DROP TABLE `a`"]),
        (Options(filter_dml_delete=True), ["BEGIN", "a[1]", "a[2]", "END", "DROP TABLE `a`"]),
        (Options(filter_rows=True), ["BEGIN", "END", "DROP TABLE `a`"]),
        (Options(filter_transaction_entry=True), ["a[1]", "a[2]", "a[2]", "END", "DROP TABLE `a`"]),
    ],
)
def test_kinds_are_left_out_as_configured_but_never_the_end_of_a_transaction(
    options: Options, expected: Sequence[str]
) -> None:
    reading = Reading(options)
    changes = [(None, (1,)), ((1,), (2,)), ((2,), None)]
    reading.read(dml(10, table("s", "a", "*id bigint", changes)), ddl(20, "s", "DROP TABLE `a`;", "a"))
    assert reading.shown == expected


def test_a_filter_is_asked_once_for_a_table_until_there_is_another_or_a_ddl() -> None:
    reading = Reading(wanted=Only("s.a"))
    reading.read(row(10, "a", "b"), row(20, "a", "b"))
    assert reading.wanted.asked == ["s.a", "s.b"]
    reading.read(ddl(25, "s", "ALTER TABLE `b` ADD COLUMN `x` INT;", "b"), row(30, "a", "b"))
    assert reading.wanted.asked[2:] == ["s.b", "s.a", "s.b"]
    reading.stager.refilter(Only("s.b"))  # type: ignore[arg-type]
    reading.read(row(40, "a", "b"))
    assert [it for it in reading.shown if it not in ("BEGIN", "END")] == ["a[10]", "a[20]", "a[30]", "b[40]"]


def test_a_statement_that_is_left_out_moves_the_stream_on() -> None:
    reading = Reading(wanted=Only("s.a"))
    reading.read(ddl(10, "s", "DROP TABLE `b`;", "b"))
    (slot,) = reading.slots
    assert (slot.kind, slot.length, slot.next_begin, slot.flags) == (Kind.ADVANCE, 0, 11, Flag.BOUNDARY)


def test_columns_are_those_of_the_last_change_that_was_read() -> None:
    reading = Reading(wanted=Only("s.a"))
    reading.read(row(10, "a", "b"))
    assert reading.stager.tables == {("s", "a"): [SourceColumn("id", "bigint", is_key=True)]}
    reading.read(ddl(20, "s", "ALTER TABLE `a` ADD COLUMN `u` INT UNSIGNED;", "a"))
    assert reading.stager.tables == {}
    reading.read(dml(30, table("s", "a", "*id bigint, v varchar", [(None, (1, "x"))])))
    columns = [SourceColumn("id", "bigint", is_key=True), SourceColumn("v", "varchar")]
    assert reading.stager.tables == {("s", "a"): columns}


def test_the_stream_moves_on_without_a_transaction_up_to_the_stop_position() -> None:
    reading = Reading(stop=(40, 0))
    reading.read(row(10))
    for commit_ts in (11, 30, 30, 50):
        reading.stager.advance(commit_ts)
        reading.put()
    moves = [(it.kind, it.begin, it.next_begin, it.flags) for it in reading.slots[3:]]
    assert moves == [(Kind.ADVANCE, 11, 30, Flag.BOUNDARY), (Kind.ADVANCE, 30, 40, Flag.BOUNDARY)]
    assert (reading.stager.commit_ts, reading.stager.is_done) == (39, True)


# --- markers ---------------------------------------------------------------------------------------------------------


def test_a_gap_is_marked_before_the_next_transaction_and_a_shape_before_the_next_rows() -> None:
    reading = Reading()
    reading.stager.begin(5, 0, "what was lost")
    reading.stager.announce("another filter")
    reading.read(ddl(20, "s", "CREATE TABLE `t` (`id` INT);", "t"), row(30), row(40))
    gap, statement, shape, *rest = reading.changes
    assert (gap.header_props, shape.header_props) == (
        {"sluice.gap": "what was lost"},
        {"sluice.shape": "another filter"},
    )
    assert statement.is_ddl
    assert len(rest) == 6
    first, _, second = reading.slots[:3]
    assert (first.kind, first.begin, first.n, first.next_begin) == (Kind.GAP, 6, 0, 20)
    assert (second.kind, second.begin, second.n, second.next_begin) == (Kind.QUERY, 21, 1, 30)
