"""Rows of tables between changes: when they are given, which are left out, what is read again, what is stored."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from sluice.protocol.canal.entry_pb2 import Entry, EventType
from sluice.protocol.canal.packet_pb2 import Messages
from sluice.protocol.canal.rows import decode_changes, decode_rows
from sluice.protocol.canal.touched import TouchedKeys
from sluice.protocol.errors import (
    AckOutOfOrderError,
    BadPositionError,
    FilterError,
    SnapshotRunningError,
    UnknownBatchError,
    UnknownSnapshotError,
)
from sluice.protocol.position import Position
from sluice.store.batch import Batch, RangeLimits
from sluice.store.cursor import StoredClient
from sluice.store.cursors import Cursors
from sluice.store.ring import Kind
from sluice.store.snapshot import Chunk, ChunkStatus, Piece, Selection, Snapshot, Snapshots, TableProgress, Window
from tests.stream import Stream
from tests.unit.test_cursors import CLIENT, NOW, get, make
from tests.unit.test_touched import block, change, statement

TABLE = ("shop", "goods")


def put(cursors: Cursors, stream: Stream, *framed: bytes) -> None:
    """Put changes, each a transaction of its own."""
    for one in framed:
        [entry] = Messages.FromString(one).messages
        stream.stage(entry, Kind.ROW_DATA, TABLE, boundary=True)
    assert stream.put()
    cursors.advance(NOW)


def updated(key: str) -> bytes:
    return change((key, "1"), (key, "1"))


class Taken:
    """A client that has confirmed a change, and takes a snapshot of a table."""

    def __init__(self) -> None:
        self.cursors, self.stream = make()
        self.cursors.subscribe(CLIENT, now=NOW)
        put(self.cursors, self.stream, updated("z"))
        self.ack(get(self.cursors))
        self.snapshot = self.cursors.snapshots.add(CLIENT, [TableProgress(*TABLE), TableProgress("shop", "more")], 0)

    def open(self) -> Window:
        wish = self.cursors.snapshots.wish(CLIENT)
        assert wish is not None
        window = Window(wish, TouchedKeys(wish.schema, wish.name, (0, 2)))
        self.cursors.snapshots.open_window(CLIENT, window)
        return window

    def fill(self, window: Window, *pieces: str, high: Position | None = None, is_last: bool = False) -> None:
        """Fill a window with pieces, each with rows of one letter."""
        made = [Piece(block(*((key, "1") for key in keys)), (f"'{keys[-1:]}'",) if keys else None) for keys in pieces]
        chunk = Chunk(made, high or self.stream.end, (0, 2), ("'z'",), is_last, 101, 1.5)
        self.cursors.snapshots.fill_window(CLIENT, window, chunk)

    def ack(self, batch: Batch) -> None:
        self.cursors.ack(CLIENT, batch.batch_id, now=NOW)

    @property
    def progress(self) -> list[tuple[tuple[str, ...] | None, int, bool]]:
        """Of each table as it would be stored: the last key, rows, and whether it is done."""
        [found] = Snapshots(self.stored.snapshots).all
        return [(table.after, table.rows, table.is_done) for table in found.tables]

    @property
    def stored(self) -> StoredClient:
        [found] = self.cursors.clients.stored()
        return found


@pytest.fixture
def taken() -> Taken:
    return Taken()


def letters(batch: Batch | None) -> str:
    """The keys of the rows of a snapshot's batch."""
    assert batch is not None
    assert batch.snapshot
    assert batch.from_ == batch.to
    [entry] = [Entry.FromString(it) for it in Messages.FromString(b"".join(batch.slices)).messages]
    assert {it.key: it.value for it in entry.header.props}["sluice.snapshot"] == str(batch.snapshot)
    return "".join(row.after["a"] for row in decode_rows(b"".join(batch.slices)) if row.after)


def test_rows_are_given_when_the_client_has_come_to_where_the_binlog_ended(taken: Taken) -> None:
    window = taken.open()
    put(taken.cursors, taken.stream, updated("b"))
    taken.fill(window, "abc")
    change_first = get(taken.cursors)
    assert not change_first.snapshot
    assert letters(get(taken.cursors)) == "ac"
    assert taken.cursors.get(CLIENT, now=NOW) is None


def test_rows_wait_for_a_ring_that_has_not_come_to_where_the_binlog_ended(taken: Taken) -> None:
    taken.fill(taken.open(), "abc", high=taken.stream.position(taken.stream.events + 1))
    assert taken.cursors.get(CLIENT, now=NOW) is None
    put(taken.cursors, taken.stream, updated("a"))
    assert not get(taken.cursors).snapshot
    assert letters(get(taken.cursors)) == "bc"


def test_changes_after_the_end_of_the_binlog_count_until_the_rows_are_given(taken: Taken) -> None:
    window = taken.open()
    high = taken.stream.end
    put(taken.cursors, taken.stream, updated("a"))
    assert not get(taken.cursors).snapshot
    taken.fill(window, "abc", high=high)
    put(taken.cursors, taken.stream, updated("b"))
    assert letters(get(taken.cursors)) == "bc", "the change of b comes after it"
    assert not get(taken.cursors).snapshot


def test_changes_and_rows_take_turns(taken: Taken) -> None:
    taken.fill(taken.open(), "a", "b", "c")
    put(taken.cursors, taken.stream, updated("x"), updated("y"))
    kinds = [bool(get(taken.cursors, limit=1).snapshot) for _ in range(5)]
    assert kinds == [True, False, True, False, True]


def test_in_its_turn_a_batch_has_all_changes_although_rows_wait(taken: Taken) -> None:
    taken.fill(taken.open(), "a", "b")
    put(taken.cursors, taken.stream, updated("x"), updated("y"))
    assert letters(get(taken.cursors)) == "a"
    assert get(taken.cursors).entries == 2
    assert letters(get(taken.cursors)) == "b"


def test_a_batch_from_within_a_transaction_has_all_changes_as_long_as_no_rows_wait(taken: Taken) -> None:
    [entry] = Messages.FromString(updated("x")).messages
    taken.stream.stage(entry, Kind.ROW_DATA, TABLE)
    put(taken.cursors, taken.stream, updated("y"), updated("z"))
    assert get(taken.cursors, limit=1).entries == 1
    taken.open()
    assert get(taken.cursors).entries == 2


def test_an_ack_brings_the_snapshot_forward_in_order(taken: Taken) -> None:
    taken.fill(taken.open(), "ab", "c", is_last=True)
    first, second = get(taken.cursors), get(taken.cursors)
    assert (letters(first), letters(second)) == ("ab", "c")
    with pytest.raises(AckOutOfOrderError):
        taken.ack(second)
    assert taken.progress == [(None, 0, False), (None, 0, False)]
    taken.cursors.clients.take_changes()
    taken.ack(first)
    assert list(taken.cursors.clients.take_changes().clients) == [CLIENT]
    assert taken.progress[0] == (("'b'",), 2, False)
    taken.ack(second)
    assert taken.progress[0] == (("'c'",), 3, True)
    wish = taken.cursors.snapshots.wish(CLIENT)
    assert wish is not None
    assert (wish.name, wish.after) == ("more", None)


def test_a_position_acks_rows_with_their_batch_or_with_what_follows(taken: Taken) -> None:
    put(taken.cursors, taken.stream, updated("m"))
    taken.fill(taken.open(), "a", "b", "c")
    change, *rows = (get(taken.cursors) for _ in range(4))
    assert [letters(it) for it in rows] == ["a", "b", "c"]
    place = Position.parse(change.to)
    assert taken.cursors.ack_to(CLIENT, place, now=NOW)
    assert taken.cursors.status(CLIENT).marks == [it.batch_id for it in rows], "they end where the change does"
    for _ in range(2):  # it may be repeated
        assert taken.cursors.ack_to(CLIENT, place, batch_id=rows[1].batch_id, now=NOW)
        assert taken.cursors.status(CLIENT).marks == [rows[2].batch_id]
        assert taken.progress[0] == (("'b'",), 2, False)
    put(taken.cursors, taken.stream, updated("n"))
    assert taken.cursors.ack_to(CLIENT, Position.parse(get(taken.cursors).to), now=NOW)
    assert taken.progress[0] == (("'c'",), 3, False)


def test_a_batch_that_is_acked_with_its_position_confirms_the_changes_before_it(taken: Taken) -> None:
    put(taken.cursors, taken.stream, updated("m"))
    taken.fill(taken.open(), "a")
    change, rows = get(taken.cursors), get(taken.cursors)
    assert taken.cursors.ack_to(CLIENT, Position.parse(rows.to), batch_id=rows.batch_id, now=NOW)
    cursor = taken.cursors.clients.cursor(CLIENT)
    assert cursor is not None
    assert str(cursor.position) == str(cursor.delivered) == change.to


def test_a_batch_that_does_not_end_at_the_position_is_another_one(taken: Taken) -> None:
    put(taken.cursors, taken.stream, updated("m"))
    first = get(taken.cursors)
    put(taken.cursors, taken.stream, updated("n"))
    second = get(taken.cursors)
    assert taken.cursors.ack_to(CLIENT, Position.parse(first.to), batch_id=second.batch_id, now=NOW)
    assert taken.cursors.status(CLIENT).marks == [second.batch_id]


def test_rows_that_all_came_by_changes_and_empty_tables_count_with_what_was_given_before(taken: Taken) -> None:
    window = taken.open()
    put(taken.cursors, taken.stream, updated("c"))
    taken.ack(get(taken.cursors))
    taken.fill(window, "ab", "c", is_last=True)
    taken.fill(taken.open(), "", is_last=True)
    batch = get(taken.cursors)
    assert letters(batch) == "ab"
    assert taken.cursors.get(CLIENT, now=NOW) is None
    assert taken.progress == [(None, 0, False), (None, 0, False)]
    taken.ack(batch)
    assert taken.progress == [(("'c'",), 3, True), (None, 0, True)]


def test_rows_that_all_came_by_changes_count_at_once_when_nothing_was_given_before(taken: Taken) -> None:
    window = taken.open()
    put(taken.cursors, taken.stream, updated("a"))
    taken.ack(get(taken.cursors))
    taken.cursors.clients.take_changes()
    taken.fill(window, "a", is_last=True)
    assert taken.cursors.get(CLIENT, now=NOW) is None
    assert taken.progress[0] == (("'a'",), 1, True)
    assert list(taken.cursors.clients.take_changes().clients) == [CLIENT]


def test_after_rows_were_given_nothing_beyond_can_be_acked_by_position(taken: Taken) -> None:
    later, stream = make(epoch=2)
    later.restore(taken.stored, NOW)
    put(later, stream, updated("z"))
    taken.cursors, taken.stream = later, stream
    taken.fill(taken.open(), "a")
    put(later, stream, updated("y"))
    assert letters(get(later)) == "a"
    with pytest.raises(BadPositionError, match="beyond what client"):
        later.ack_to(CLIENT, stream.end, now=NOW)


def test_what_was_given_and_not_acked_is_read_again_after_a_rollback(taken: Taken) -> None:
    taken.fill(taken.open(), "ab", "c", "d")
    first, second = get(taken.cursors), get(taken.cursors)
    taken.ack(first)
    taken.cursors.rollback(CLIENT, now=NOW)
    with pytest.raises(UnknownBatchError):
        taken.ack(second)
    assert taken.cursors.get(CLIENT, now=NOW) is None
    wish = taken.cursors.snapshots.wish(CLIENT)
    assert wish is not None
    assert wish.after == ("'b'",)


def test_what_was_not_given_survives_an_ack_of_all_changes_that_were(taken: Taken) -> None:
    window = taken.open()
    put(taken.cursors, taken.stream, updated("a"))
    get(taken.cursors)
    assert taken.cursors.ack_to(CLIENT, taken.stream.end, now=NOW)
    taken.fill(window, "abc")
    assert letters(get(taken.cursors)) == "bc"


@pytest.mark.parametrize("call", [Cursors.rollback, Cursors.go_back])
def test_what_was_not_given_survives_a_rollback(taken: Taken, call: Callable[..., object]) -> None:
    window = taken.open()
    put(taken.cursors, taken.stream, updated("a"))
    get(taken.cursors)
    call(taken.cursors, CLIENT, now=NOW)
    taken.fill(window, "abc")
    assert not get(taken.cursors).snapshot
    assert letters(get(taken.cursors)) == "bc"


def test_what_was_not_given_survives_a_rollback_after_rows_that_are_confirmed(taken: Taken) -> None:
    taken.fill(taken.open(), "ab")
    taken.ack(get(taken.cursors))
    taken.fill(taken.open(), "c")
    taken.cursors.rollback(CLIENT, now=NOW)
    assert letters(get(taken.cursors)) == "c"


def test_rows_that_follow_others_which_were_rolled_back_alone_are_read_again_with_these(taken: Taken) -> None:
    taken.fill(taken.open(), "ab", "c")
    first, second = get(taken.cursors), get(taken.cursors)
    taken.cursors.rollback(CLIENT, first.batch_id, now=NOW)
    taken.fill(taken.open(), "ab", "c", "d")
    assert letters(get(taken.cursors)) == "ab"
    taken.ack(second)
    assert taken.progress[0] == (None, 0, False), "the rows before them are not confirmed"
    wish = taken.cursors.snapshots.wish(CLIENT)
    assert wish is not None
    assert wish.after is None
    assert taken.cursors.get(CLIENT, now=NOW) is None, "what was read after them is read again, too"


@pytest.mark.parametrize("why", ["no client", "not served", "given already"])
def test_what_is_read_for_a_window_that_has_ended_is_of_no_use(taken: Taken, why: str) -> None:
    window, snapshots = taken.open(), taken.cursors.snapshots
    if why == "no client":
        taken.cursors.unsubscribe(CLIENT)
    elif why == "not served":
        taken.cursors.fall_out(CLIENT, FilterError("its condition cannot be judged"))
    else:
        snapshots.end_windows()
    snapshots.place_window(CLIENT, window, taken.stream.end)
    assert window.high is None
    snapshots.close_window(CLIENT, window)
    assert not snapshots.fill_window(CLIENT, window, Chunk([], taken.stream.end, (0, 2), None, True, 101, 1.5))
    assert window.chunk is None


def test_the_end_of_a_window_leaves_those_alone_that_were_opened_after_it(taken: Taken) -> None:
    ended, snapshots = taken.open(), taken.cursors.snapshots
    snapshots.end_windows()
    window = taken.open()
    snapshots.close_window(CLIENT, ended)
    assert snapshots.fill_window(CLIENT, window, Chunk([], taken.stream.end, (0, 2), None, True, 101, 1.5))


@pytest.mark.parametrize("why", ["no client", "not served"])
def test_nothing_is_read_for_a_client_that_is_not_served(taken: Taken, why: str) -> None:
    window, snapshots = taken.open(), taken.cursors.snapshots
    if why == "no client":
        taken.cursors.unsubscribe(CLIENT)
    else:
        taken.cursors.fall_out(CLIENT, FilterError("its condition cannot be judged"))
    assert snapshots.wish(CLIENT) is None
    snapshots.open_window(CLIENT, window)
    assert not snapshots.fill_window(CLIENT, window, Chunk([], taken.stream.end, (0, 2), None, True, 101, 1.5))


@pytest.mark.parametrize(("lost", "is_given"), [({"a"}, False), ({"b"}, True), ({"a", "b"}, False)])
def test_of_a_group_the_rows_of_the_members_are_read_again_that_were_lost(
    taken: Taken, lost: set[str], is_given: bool
) -> None:
    taken.snapshot.tables[0].member = "a"
    window = taken.open()
    taken.cursors.snapshots.end_windows(lost)
    taken.fill(window, "abc")
    assert (taken.cursors.get(CLIENT, now=NOW) is not None) is is_given


def test_that_a_snapshot_begins_pauses_or_is_cancelled_is_stored_at_once(taken: Taken) -> None:
    cursors = taken.cursors
    assert list(cursors.clients.take_changes().clients) == [CLIENT]
    for call in (
        lambda: cursors.snapshots.add(CLIENT, [TableProgress("shop", "others")], 0),
        lambda: cursors.snapshots.pause(CLIENT, taken.snapshot.snapshot_id, is_paused=True),
        lambda: cursors.snapshots.remove(CLIENT, taken.snapshot.snapshot_id),
    ):
        before = taken.stored.snapshots
        call()
        assert taken.stored.snapshots != before
        assert list(cursors.clients.take_changes().clients) == [CLIENT]


def test_a_new_snapshot_takes_the_place_of_those_that_are_complete(taken: Taken) -> None:
    taken.snapshot.tables.pop()
    waits = taken.cursors.snapshots.add(CLIENT, [TableProgress("shop", "others")], 0)
    taken.fill(taken.open(), "a", is_last=True)
    taken.ack(get(taken.cursors))
    assert taken.snapshot.is_done
    assert taken.cursors.snapshots.of(CLIENT) == [taken.snapshot, waits]
    added = taken.cursors.snapshots.add(CLIENT, [TableProgress("shop", "more")], 0)
    assert taken.cursors.snapshots.of(CLIENT) == [waits, added]


@pytest.mark.parametrize("what", ["statement", "lost", "jump", "pause", "seek"])
def test_rows_are_read_again_when_it_is_open_what_has_changed(taken: Taken, what: str) -> None:
    window = taken.open()
    if what == "statement":
        put(taken.cursors, taken.stream, statement(EventType.ALTER, "ALTER TABLE goods ADD x INT", is_ddl=True))
        get(taken.cursors)
    elif what == "lost":
        taken.cursors.snapshots.end_windows()
    elif what == "jump":
        later = Cursors(taken.cursors.ring, epoch=2, compile_filter=lambda _: None)
        later.begin(None, None)
        later.restore(taken.stored, NOW)
        later.advance(NOW)
        taken.cursors = later
        window = taken.open()
        put(later, taken.stream, updated("a"))
        assert later.ack_to(CLIENT, taken.stream.end, now=NOW), "it was given that in its earlier life"
    elif what == "pause":
        taken.cursors.snapshots.pause(CLIENT, taken.snapshot.snapshot_id, is_paused=True)
        assert taken.cursors.snapshots.wish(CLIENT) is None
        taken.cursors.snapshots.pause(CLIENT, taken.snapshot.snapshot_id, is_paused=False)
    else:
        taken.cursors.places.seek(CLIENT, "latest", now=NOW)
    taken.fill(window, "abc")
    assert taken.cursors.get(CLIENT, now=NOW) is None
    wish = taken.cursors.snapshots.wish(CLIENT)
    assert wish is not None
    assert wish.after is None


def test_progress_goes_on_in_another_life(taken: Taken) -> None:
    taken.fill(taken.open(), "ab", "c")
    taken.ack(get(taken.cursors))
    get(taken.cursors)
    later, stream = make(epoch=2)
    later.restore(taken.stored, NOW)
    put(later, stream, updated("z"))
    [found] = later.snapshots.of(CLIENT)
    assert found.snapshot_id == taken.snapshot.snapshot_id
    wish = later.snapshots.wish(CLIENT)
    assert wish is not None
    assert (wish.after, wish.end) == (("'b'",), ("'z'",))


def test_rows_do_not_come_within_a_transaction_and_do_not_wait_for_the_end_of_the_ring(taken: Taken) -> None:
    taken.fill(taken.open(), "abc")
    [entry] = Messages.FromString(updated("x")).messages
    taken.cursors.rollback(CLIENT, now=NOW)
    for _ in range(3):
        taken.stream.stage(entry, Kind.ROW_DATA, TABLE)
        taken.stream.stage(entry, Kind.ROW_DATA, TABLE, boundary=True)
    assert taken.stream.put()
    assert letters(get(taken.cursors)) == "abc"
    window = taken.open()
    assert get(taken.cursors, limit=1).entries == 1
    taken.fill(window, "d", high=taken.stream.position(1))
    assert get(taken.cursors).entries == 1, "up to the end of the transaction"
    assert letters(get(taken.cursors)) == "d"


def test_rows_of_another_source_are_read_again(taken: Taken) -> None:
    taken.fill(taken.open(), "abc", high=replace(taken.stream.end, source="202"))
    assert taken.cursors.get(CLIENT, now=NOW) is None
    wish = taken.cursors.snapshots.wish(CLIENT)
    assert wish is not None
    assert wish.after is None


def test_the_next_table_is_read_on_while_nothing_of_the_one_before_is_confirmed(taken: Taken) -> None:
    taken.fill(taken.open(), "ab", is_last=True)
    taken.fill(taken.open(), "c")
    wish = taken.cursors.snapshots.wish(CLIENT)
    assert wish is not None
    assert (wish.name, wish.after) == ("more", ("'c'",))


def test_the_pace_is_that_of_the_rows_confirmed_in_this_life() -> None:
    snapshot = Snapshot(1, [TableProgress(*TABLE, rows=20), TableProgress("shop", "more", rows=10)])
    assert snapshot.pace(100.0) == 0, "nothing was read"
    snapshot.begun = 100.0, 10
    assert snapshot.pace(105.0) == 4
    assert snapshot.pace(100.0) == pytest.approx(20_000), "no time has passed that could be measured"


def test_nothing_of_a_new_snapshot_is_expected_limited_or_confirmed() -> None:
    assert Selection().rate == 0
    table = TableProgress("shop", "orders")
    assert (table.expected, table.rows, table.bytes) == (0, 0, 0)
    made = Snapshot(1, [table])
    assert (made.rate, made.rows, made.pace(1.0)) == (0, 0, 0.0)
    chunk = ChunkStatus("shop.orders", None)
    assert (chunk.rows, chunk.bytes) == (0, 0)


def test_why_a_snapshot_cannot_be_read_now_is_not_stored() -> None:
    snapshots = Snapshots()
    made = Snapshot(1, [TableProgress("shop", "orders", rows=7)])
    snapshots.all.append(made)
    before = snapshots.stored()
    made.error, made.chunk, made.begun = "the source is away", ChunkStatus("shop.orders", None), (1.0, 0)
    assert snapshots.stored() == before
    (again,) = Snapshots(before).all
    assert (again.rows, again.error, again.chunk, again.begun) == (7, "", None, None)


def test_ranges_are_refused_until_it_is_done_or_cancelled(taken: Taken) -> None:
    place = taken.stream.end
    with pytest.raises(SnapshotRunningError):
        taken.cursors.ranges.mark(CLIENT, place, RangeLimits(), now=NOW)
    taken.cursors.snapshots.remove(CLIENT, taken.snapshot.snapshot_id)
    assert taken.cursors.ranges.mark(CLIENT, place, RangeLimits(), now=NOW) is None
    with pytest.raises(UnknownSnapshotError):
        taken.cursors.snapshots.get(CLIENT, taken.snapshot.snapshot_id)


def test_a_cancelled_snapshot_can_still_be_acked(taken: Taken) -> None:
    taken.fill(taken.open(), "ab", "c")
    batch = get(taken.cursors)
    taken.cursors.snapshots.remove(CLIENT, taken.snapshot.snapshot_id)
    assert taken.cursors.get(CLIENT, now=NOW) is None
    taken.ack(batch)
    assert taken.stored.snapshots == ""


def test_little_is_read_ahead(taken: Taken, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sluice.store.snapshot.QUEUED", 1)
    window = taken.open()
    assert taken.cursors.snapshots.wish(CLIENT) is None, "one read at a time"
    taken.fill(window, "ab", "c")
    assert taken.cursors.snapshots.wish(CLIENT) is None
    get(taken.cursors)
    get(taken.cursors)
    wish = taken.cursors.snapshots.wish(CLIENT)
    assert wish is not None
    assert wish.after == ("'c'",)


# --- a table without a key -------------------------------------------------------------------------------------------


def open_whole(taken: Taken) -> Window:
    wish = taken.cursors.snapshots.wish(CLIENT)
    assert wish is not None
    window = Window(wish, TouchedKeys(wish.schema, wish.name, ()), is_whole=True)
    taken.cursors.snapshots.open_window(CLIENT, window)
    return window


def fill_whole(taken: Taken, window: Window, high: Position, *pieces: str) -> None:
    made = [Piece(block(*((key, "1") for key in keys)), None) for keys in pieces]
    taken.cursors.snapshots.fill_window(CLIENT, window, Chunk(made, high, (), None, True, 101, 1.5))


def given(batch: Batch) -> list[str]:
    """The types of what a batch has, with the keys of its rows."""
    assert batch.entries == len(Messages.FromString(b"".join(batch.slices)).messages)
    return [
        " ".join([change.type, change.table, *(str(next(iter((row.after or {}).values()))) for row in change.rows())])
        for change in decode_changes(b"".join(batch.slices))
    ]


def test_a_client_waits_for_a_whole_table_at_the_place_where_that_is_as_it_was_read(taken: Taken) -> None:
    window = open_whole(taken)
    put(taken.cursors, taken.stream, updated("x"))
    assert taken.cursors.get(CLIENT, now=NOW) is None, "the place is not known, and may be before this change"
    place = taken.stream.end
    put(taken.cursors, taken.stream, updated("y"))
    taken.cursors.snapshots.place_window(CLIENT, window, place)
    before = get(taken.cursors)
    assert given(before) == ["UPDATE goods x"]
    assert taken.cursors.get(CLIENT, now=NOW) is None, "its rows are to come first"
    fill_whole(taken, window, place, "ab", "", "ac")
    whole = get(taken.cursors)
    assert given(whole) == ["TRUNCATE goods", "READ goods a b", "READ goods a c"]
    assert (whole.snapshot, whole.rows, whole.from_) == (taken.snapshot.snapshot_id, 4, whole.to)
    taken.ack(before)
    assert taken.progress[0] == (None, 0, False)
    taken.ack(whole)
    assert taken.progress[0] == (None, 4, True)
    assert given(get(taken.cursors)) == ["UPDATE goods y"]


def test_an_empty_table_without_a_key_empties_the_copy(taken: Taken) -> None:
    window = open_whole(taken)
    taken.cursors.snapshots.place_window(CLIENT, window, taken.stream.end)
    fill_whole(taken, window, taken.stream.end, "")
    assert given(get(taken.cursors)) == ["TRUNCATE goods"]


def test_a_client_comes_to_a_place_that_the_ring_has_not_reached(taken: Taken) -> None:
    window = open_whole(taken)
    place = taken.stream.position(taken.stream.events + 1)
    taken.cursors.snapshots.place_window(CLIENT, window, place)
    fill_whole(taken, window, place, "a")
    assert taken.cursors.get(CLIENT, now=NOW) is None
    put(taken.cursors, taken.stream, updated("x"))
    put(taken.cursors, taken.stream, updated("y"))
    assert given(get(taken.cursors)) == ["UPDATE goods x"]
    assert given(get(taken.cursors)) == ["TRUNCATE goods", "READ goods a"]


def test_a_client_goes_on_when_a_whole_table_could_not_be_read(taken: Taken) -> None:
    window = open_whole(taken)
    put(taken.cursors, taken.stream, updated("x"))
    taken.cursors.snapshots.close_window(CLIENT, window)
    assert given(get(taken.cursors)) == ["UPDATE goods x"]


def test_a_whole_table_is_read_again_after_a_rollback_and_after_a_statement(taken: Taken) -> None:
    window = open_whole(taken)
    taken.cursors.snapshots.place_window(CLIENT, window, taken.stream.end)
    fill_whole(taken, window, taken.stream.end, "a")
    get(taken.cursors)
    taken.cursors.rollback(CLIENT, now=NOW)
    assert taken.cursors.get(CLIENT, now=NOW) is None
    window = open_whole(taken)
    put(taken.cursors, taken.stream, statement(EventType.ALTER, "ALTER TABLE goods ADD x INT", is_ddl=True))
    taken.cursors.snapshots.place_window(CLIENT, window, taken.stream.end)
    get(taken.cursors)
    fill_whole(taken, window, taken.stream.end, "a")
    assert taken.cursors.get(CLIENT, now=NOW) is None
    wish = taken.cursors.snapshots.wish(CLIENT)
    assert wish is not None
    assert wish.name == "goods"


def test_a_whole_table_is_read_again_that_was_read_before_a_place_that_is_confirmed(taken: Taken) -> None:
    window = open_whole(taken)
    fill_whole(taken, window, taken.stream.position(0), "a")
    assert taken.cursors.get(CLIENT, now=NOW) is None
    wish = taken.cursors.snapshots.wish(CLIENT)
    assert wish is not None
    assert wish.name == "goods"


def test_a_client_does_not_wait_within_a_transaction_for_a_whole_table_of_another_source(taken: Taken) -> None:
    [entry] = Messages.FromString(updated("x")).messages
    taken.stream.stage(entry, Kind.ROW_DATA, TABLE)
    put(taken.cursors, taken.stream, updated("y"))
    assert given(get(taken.cursors, limit=1)) == ["UPDATE goods x"]
    window = open_whole(taken)
    taken.cursors.snapshots.place_window(CLIENT, window, replace(taken.stream.end, source="202"))
    assert given(get(taken.cursors)) == ["UPDATE goods y"]
    assert taken.cursors.snapshots.wish(CLIENT) is not None, "the table is read again"
