"""Subscribers: where they start, what fences them, what they hold, and the cursor that outlives the process."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sluice.protocol import props
from sluice.protocol.canal.entry_pb2 import Entry
from sluice.protocol.canal.packet_pb2 import Messages
from sluice.protocol.content import Content
from sluice.protocol.errors import (
    BadPositionError,
    FilterError,
    GoneError,
    NotSubscribedError,
    OwnedError,
    SourceChangedError,
    StaleSessionError,
    UnknownBatchError,
)
from sluice.protocol.gtid import MariadbGtidSet
from sluice.protocol.position import Position
from sluice.store.admission import Defaults
from sluice.store.batch import Batch, LateRows, RangeLimits
from sluice.store.cursor import Cursor, StoredClient, earliest, in_order, starts
from sluice.store.cursors import Cursors
from sluice.store.log.log import Limits, Log, take
from sluice.store.moves import By
from sluice.store.ring import Kind, Ring
from sluice.store.status import Lag
from sluice.store.track import TableFilter, Track
from tests.stream import CREATED, FILE, SERVER_ID, SOURCE, Stream, entries
from tests.waiting import eventually

CLIENT = 1001
NOW = 0.0


def one_table(text: str) -> TableFilter:
    return lambda schema, table: f"{schema}.{table}" == text


def make(epoch: int = 1, size: int = 64, detach_after: float = 0.0, **options: Any) -> tuple[Cursors, Stream]:
    ring = Ring(size)
    cursors = Cursors(ring, epoch=epoch, compile_filter=one_table, detach_after=detach_after, **options)
    stream = Stream(ring)
    cursors.begin(stream.end, MariadbGtidSet())
    return cursors, stream


def put(cursors: Cursors, stream: Stream, *rows: bytes) -> None:
    stream.transaction(*rows)
    stream.put()
    cursors.advance(NOW)


def get(cursors: Cursors, client_id: int = CLIENT, limit: int = 0, session: str | None = None) -> Batch:
    batch = cursors.get(client_id, now=NOW, max_entries=limit, session=session)
    assert batch is not None
    return batch


def markers(batch: Batch) -> list[str]:
    """What the markers of gaps in a batch say."""
    messages = [Entry.FromString(it) for part in batch.slices for it in Messages.FromString(bytes(part)).messages]
    return [pair.value for it in messages for pair in it.header.props if pair.key == props.GAP]


def store(cursors: Cursors) -> None:
    cursors.clients.end_store(cursors.clients.take_changes(), durable=True)


def stored(cursors: Cursors, client_id: int = CLIENT) -> Cursor:
    client = next(it for it in cursors.clients.stored() if it.client_id == client_id)
    assert client.cursor is not None
    return client.cursor


# --- where a client starts -------------------------------------------------------------------------------------------


def test_new_client_sees_what_was_stored_before_it_subscribed() -> None:
    cursors, stream = make()
    put(cursors, stream, b"one")
    cursors.subscribe(CLIENT, now=NOW)
    assert entries(get(cursors).slices) == [b"begin", b"one", b"end"]


def test_nothing_is_given_before_it_is_in_the_log_if_that_is_to_come_first() -> None:
    cursors, stream = make()
    begin = stream.end
    cursors.track.unlogged, cursors.track.is_behind_log = 0, True
    cursors.subscribe(CLIENT, now=NOW)
    cursors.subscribe(1002, start="latest", now=NOW)
    put(cursors, stream, b"one")
    middle = stream.end
    put(cursors, stream, b"two")
    assert cursors.get(CLIENT, now=NOW) is None
    assert cursors.ranges.read(CLIENT, begin, stream.end) is None
    assert cursors.ring.first == 0
    cursors.track.unlogged = 3
    cursors.advance(NOW)
    assert entries(get(cursors).slices) == [b"begin", b"one", b"end"]
    limits = RangeLimits()
    found = cursors.ranges.mark(1002, begin, limits, now=NOW)
    assert found is not None
    assert found.to == str(middle)
    assert cursors.ranges.read(CLIENT, begin, middle) is not None
    assert cursors.ranges.read(CLIENT, begin, stream.end) is None
    cursors.track.unlogged = 6
    cursors.advance(NOW)
    assert entries(get(cursors).slices) == [b"begin", b"two", b"end"]


def test_new_client_may_start_with_what_comes() -> None:
    cursors, stream = make()
    put(cursors, stream, b"one")
    cursors.subscribe(CLIENT, start="latest", now=NOW)
    put(cursors, stream, b"two")
    assert entries(get(cursors).slices) == [b"begin", b"two", b"end"]


def test_new_client_may_start_at_a_position() -> None:
    cursors, stream = make()
    put(cursors, stream, b"one")
    middle = stream.end
    put(cursors, stream, b"two")
    cursors.subscribe(CLIENT, start=str(middle), now=NOW)
    assert get(cursors).from_ == str(middle)


def test_new_client_may_start_at_a_position_that_is_still_to_come() -> None:
    cursors, stream = make()
    cursors.subscribe(CLIENT, start=str(stream.position(3)), now=NOW)
    assert cursors.get(CLIENT, now=NOW) is None
    assert cursors.status(CLIENT).state == "ahead"
    put(cursors, stream, b"one")
    put(cursors, stream, b"two")
    assert entries(get(cursors).slices) == [b"begin", b"two", b"end"]
    assert cursors.ring.first == 3, "what is before it is not kept"


def test_new_client_may_start_at_the_transaction_of_a_time() -> None:
    cursors, stream = make()
    put(cursors, stream, b"one")
    put(cursors, stream, b"two", b"three")
    now = CREATED + 100.0
    cursors.subscribe(CLIENT, start=(CREATED + 6) * 1000, now=NOW, by=By(time=now))
    assert entries(get(cursors).slices) == [b"begin", b"two", b"three", b"end"]
    with pytest.raises(GoneError):
        cursors.subscribe(2, start=CREATED * 1000, now=NOW, by=By(time=now))


@pytest.mark.parametrize(
    ("start", "unix_time", "gone"),
    [(50, 100.0, True), (100, 100.0, False), (101, 100.0, False), (0, 0.0, True), (1, 0.0, False)],
    ids=["past by the clock", "now", "to come", "past by the source's clock", "now by the source's clock"],
)
def test_time_that_is_past_and_not_stored_is_gone(start: int, unix_time: float, gone: bool) -> None:
    cursors, stream = make()
    cursors.subscribe(CLIENT, now=NOW)
    stream.stage(b"end", Kind.TRANSACTION_END, boundary=True)
    stream.put()
    confirm(cursors, CLIENT)
    assert (cursors.ring.first, cursors.ring.next) == (1, 1)
    with pytest.raises(GoneError) if gone else nullcontext():
        cursors.subscribe(2, start=(CREATED + start) * 1000, now=NOW, by=By(time=CREATED + unix_time))


def test_beginning_of_a_stream_that_is_stored_stays() -> None:
    cursors, stream = make()
    stream.advance()
    stream.put()
    cursors.begin(stream.position(50), MariadbGtidSet.parse("0-101-10"))
    assert (cursors.track.floor, str(cursors.track.gtids[""])) == (stream.position(0), "")


def test_client_that_starts_later_has_what_was_executed_until_there() -> None:
    cursors, stream = make()
    put(cursors, stream, b"one")
    put(cursors, stream, b"two")
    cursors.subscribe(CLIENT, start="latest", now=NOW)
    assert stored(cursors).gtid == "0-101-2"


def refused(text: str) -> TableFilter:
    raise FilterError(f"{text} is not a filter")


def test_client_with_a_refused_filter_goes_on_with_another_where_it_stood(monkeypatch: pytest.MonkeyPatch) -> None:
    cursors, stream = make()
    at = {1: None, 2: Cursor(FILE, 0, 0, SERVER_ID, "", stream.position(6)), 3: Cursor(FILE, 0, 0, 0, "", stream.end)}
    monkeypatch.setattr(cursors.admission, "_compile_filter", refused)
    for client_id, cursor in at.items():
        cursors.restore(StoredClient(client_id, "(", cursor), NOW)
    monkeypatch.undo()
    cursors.subscribe(CLIENT, now=NOW)
    for row in (b"one", b"two", b"three"):
        put(cursors, stream, row)
    confirm(cursors, CLIENT, 3)
    assert [cursors.subscribe(client_id, now=NOW).state for client_id in at] == ["attached", "attached", "gone"]
    assert entries(get(cursors, 1).slices)[:3] == [b"begin", b"two", b"end"]
    assert entries(get(cursors, 2).slices) == [b"begin", b"three", b"end"]


def test_place_before_a_stream_that_began_by_its_gtids_is_gone_when_the_begin_is_no_longer_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cursors = Cursors(Ring(64), epoch=1, compile_filter=one_table)
    stream = Stream(cursors.ring, events=30)
    monkeypatch.setattr(cursors.admission, "_compile_filter", refused)
    cursors.restore(StoredClient(2, "(", Cursor(FILE, 4, 0, SERVER_ID, "0-102-4", stream.position(6))), NOW)
    monkeypatch.undo()
    cursors.subscribe(CLIENT, now=NOW)
    cursors.begin(None, MariadbGtidSet.parse("0-102-3"))
    stream.advance()
    stream.put()
    cursors.advance(NOW)
    assert cursors.ring.first == 1
    assert cursors.subscribe(2, now=NOW).state == "gone"


def test_cursor_with_gtids_keeps_them_when_the_stream_does_not_know_its_own() -> None:
    cursors = Cursors(Ring(64), epoch=1, compile_filter=one_table)
    stream = Stream(cursors.ring)
    cursors.restore(StoredClient(CLIENT, "", Cursor(FILE, 4, 0, SERVER_ID, "1-101-5", stream.end)), NOW)
    cursors.begin(stream.end, None)
    put(cursors, stream, b"one")
    confirm(cursors, CLIENT)
    assert (stored(cursors).position, stored(cursors).gtid) == (stream.end, "0-101-1,1-101-5")


def test_position_that_is_no_longer_stored_is_gone() -> None:
    cursors, stream = make()
    cursors.subscribe(CLIENT, now=NOW)
    put(cursors, stream, b"one")
    cursors.ack(CLIENT, get(cursors).batch_id, now=NOW)
    with pytest.raises(GoneError):
        cursors.subscribe(2, start=str(stream.position(0)), now=NOW)
    assert cursors.clients.ids == [CLIENT]


@pytest.mark.parametrize(
    "position",
    [
        Position("102", FILE, CREATED, 4, 0),
        Position(SOURCE, FILE, CREATED + 1, 4, 0),
    ],
    ids=["another source", "after RESET MASTER"],
)
def test_position_of_another_history_is_refused(position: Position) -> None:
    cursors, stream = make()
    put(cursors, stream, b"one")
    with pytest.raises(SourceChangedError):
        cursors.subscribe(CLIENT, start=position, now=NOW)


def test_cursor_wins_over_the_start_of_a_second_subscribe() -> None:
    cursors, stream = make()
    cursors.subscribe(CLIENT, now=NOW)
    put(cursors, stream, b"one")
    cursors.subscribe(CLIENT, filter_text="shop.orders", start="latest", now=NOW)
    assert entries(get(cursors).slices) == [b"begin", b"one", b"end"]


def test_what_comes_late_for_a_ring_that_is_closed_does_nothing() -> None:
    cursors, stream = make()
    cursors.subscribe(CLIENT, now=NOW)
    put(cursors, stream, b"one")
    get(cursors)
    before = cursors.clients.stored()
    cursors.ring.close()
    cursors.advance(NOW)
    cursors.rollback(CLIENT, now=NOW)
    assert cursors.clients.stored() == before
    cursors.unsubscribe(CLIENT)
    assert cursors.clients.ids == []


def test_client_without_subscription_is_refused() -> None:
    cursors, _ = make()
    for call in (cursors.get, cursors.rollback):
        with pytest.raises(NotSubscribedError):
            call(CLIENT, now=NOW)


# --- marks and sessions ----------------------------------------------------------------------------------------------


def test_batch_ids_ascend_and_belong_to_the_epoch() -> None:
    cursors, stream = make(epoch=7)
    cursors.subscribe(CLIENT, now=NOW)
    put(cursors, stream, b"one")
    assert [get(cursors, limit=1).batch_id for _ in range(3)] == [7_000_000_001, 7_000_000_002, 7_000_000_003]
    assert cursors.counters.epoch == 7


def test_epoch_to_store_is_raised_when_half_of_its_ids_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sluice.store.clients.IDS_PER_EPOCH", 10)
    cursors, stream = make(epoch=7)
    cursors.subscribe(CLIENT, now=NOW)
    put(cursors, stream, *(b"%d" % number for number in range(20)))
    epochs = [cursors.counters.epoch]
    while get(cursors, limit=1).batch_id < 79:
        epochs.append(cursors.counters.epoch)
    assert epochs == [7] * 4 + [8] * 5


def test_ranges_of_batches_join() -> None:
    cursors, stream = make()
    cursors.subscribe(CLIENT, now=NOW)
    put(cursors, stream, b"one")
    batches = [get(cursors, limit=1) for _ in range(3)]
    assert batches[0].from_ == str(stream.position(0))
    assert [batch.to for batch in batches[:2]] == [batch.from_ for batch in batches[1:]]
    assert batches[2].to == str(stream.end)


def test_newer_session_fences_the_older_one() -> None:
    cursors, stream = make()
    cursors.subscribe(CLIENT, now=NOW)
    put(cursors, stream, b"one")
    old = cursors.clients.open_session(CLIENT, NOW)
    batch = get(cursors, session=old)
    new = cursors.clients.open_session(CLIENT, NOW)
    with pytest.raises(StaleSessionError):
        cursors.ack(CLIENT, batch.batch_id, now=NOW, session=old)
    with pytest.raises(StaleSessionError):
        cursors.rollback(CLIENT, now=NOW, session=old)
    with pytest.raises(StaleSessionError):
        cursors.get(CLIENT, now=NOW, session=old)
    cursors.ack(CLIENT, batch.batch_id, now=NOW, session=new)


def test_of_the_sessions_of_an_earlier_life_the_newest_wins_whichever_comes_first() -> None:
    earlier, _ = make()
    earlier.subscribe(CLIENT, now=NOW)
    gone, alive = (earlier.clients.open_session(CLIENT, NOW) for _ in range(2))
    cursors, stream = make(epoch=2)
    cursors.subscribe(CLIENT, now=NOW)
    put(cursors, stream, b"one", b"two")
    late = get(cursors, limit=1, session=gone)
    assert get(cursors, limit=1, session=alive).from_ == late.from_, "what the late call was given comes again"
    with pytest.raises(StaleSessionError):
        get(cursors, session=gone)
    opened = cursors.clients.open_session(CLIENT, NOW)
    for session in (gone, alive):
        with pytest.raises(StaleSessionError):
            get(cursors, session=session)
    cursors.clients.check(CLIENT, opened)


def test_session_of_an_earlier_life_that_is_no_newer_than_the_open_one_is_refused() -> None:
    cursors, stream = make()
    cursors.subscribe(CLIENT, now=NOW)
    put(cursors, stream, b"one")
    batch = get(cursors, session="5-alive")
    with pytest.raises(StaleSessionError):
        get(cursors, session="5-other")
    cursors.ack(CLIENT, batch.batch_id, now=NOW, session="5-alive")


def test_a_get_that_was_given_up_takes_nothing_from_a_later_one() -> None:
    cursors, stream = make()
    cursors.subscribe(CLIENT, now=NOW)
    put(cursors, stream, b"one", b"two")
    session = cursors.clients.open_session(CLIENT, NOW)
    first = get(cursors, limit=1, session=f"{session}.1")
    with pytest.raises(StaleSessionError):
        get(cursors, limit=1, session=session)
    second = get(cursors, limit=1, session=f"{session}.1")
    assert second.from_ == first.to
    cursors.ack(CLIENT, first.batch_id, now=NOW, session=session)


def test_what_a_get_was_given_that_was_given_up_comes_again() -> None:
    cursors, stream = make()
    cursors.subscribe(CLIENT, now=NOW)
    put(cursors, stream, b"one", b"two")
    session = cursors.clients.open_session(CLIENT, NOW)
    late = get(cursors, limit=1, session=session)
    again = get(cursors, limit=1, session=f"{session}.1")
    assert again.from_ == late.from_
    with pytest.raises(UnknownBatchError):
        cursors.ack(CLIENT, late.batch_id, now=NOW, session=session)


def test_late_ack_of_an_earlier_life_is_unknown() -> None:
    cursors, stream = make(epoch=1)
    cursors.subscribe(CLIENT, now=NOW)
    put(cursors, stream, b"one")
    late = get(cursors).batch_id
    cursors, stream = make(epoch=2)
    cursors.subscribe(CLIENT, now=NOW)
    put(cursors, stream, b"one")
    assert get(cursors).batch_id > late
    with pytest.raises(UnknownBatchError):
        cursors.ack(CLIENT, late, now=NOW)


def test_position_beyond_what_was_given_cannot_be_acked() -> None:
    cursors, stream = make()
    cursors.subscribe(CLIENT, now=NOW)
    put(cursors, stream, b"one")
    get(cursors, limit=1)
    with pytest.raises(BadPositionError):
        cursors.ack_to(CLIENT, stream.end, now=NOW)
    cursors.ack_to(CLIENT, stream.position(1), now=NOW)
    cursors.ack_to(CLIENT, stream.position(1), now=NOW)
    assert cursors.status(CLIENT).marks == []


def test_lag_counts_what_is_not_acked() -> None:
    cursors, stream = make()
    cursors.subscribe(CLIENT, now=NOW)
    put(cursors, stream, b"one")
    put(cursors, stream, b"two")
    lag = cursors.status(CLIENT).lag
    assert (lag.transactions, lag.entries, lag.rows, lag.oldest) == (2, 6, 2, (CREATED + 1) * 1000)
    cursors.ack(CLIENT, get(cursors).batch_id, now=NOW)
    assert cursors.status(CLIENT).lag.bytes == 0


# --- the durable cursor ----------------------------------------------------------------------------------------------


def test_cursor_moves_to_the_last_transaction_end_that_was_acked() -> None:
    cursors, stream = make()
    cursors.subscribe(CLIENT, now=NOW)
    put(cursors, stream, b"one")
    put(cursors, stream, b"two")
    cursors.ack(CLIENT, get(cursors, limit=5).batch_id, now=NOW)
    cursor = stored(cursors)
    assert cursor.position == stream.position(3)
    assert (cursor.journal, cursor.offset, cursor.timestamp) == (FILE, 4 + 200, (CREATED + 3) * 1000)
    assert (cursor.server_id, cursor.gtid) == (SERVER_ID, "0-101-1")
    assert cursor.delivered == stream.position(5)


def test_what_was_acked_entry_by_entry_is_delivered_to_the_last_of_them() -> None:
    cursors, stream = make()
    cursors.subscribe(CLIENT, now=NOW)
    put(cursors, stream, b"one")
    for _ in range(3):
        confirm(cursors, CLIENT, 1)
    assert stored(cursors).delivered == stream.position(3)


def test_what_was_acked_with_the_batches_before_it_is_delivered_to_its_end() -> None:
    cursors, stream = make()
    cursors.subscribe(CLIENT, now=NOW)
    for row in (b"one", b"two"):
        put(cursors, stream, row)
    _, second = get(cursors, limit=3), get(cursors)
    assert cursors.ack_to(CLIENT, stream.end, batch_id=second.batch_id, now=NOW)
    assert stored(cursors).delivered == stream.end


@pytest.mark.parametrize(("events", "more"), [(6, 0), (5, 0), (4, 50)], ids=["the end", "a place", "within an event"])
def test_a_position_in_what_is_not_wanted_is_acked_though_nothing_was_given_up_to_there(events: int, more: int) -> None:
    cursors, stream = make()
    cursors.subscribe(CLIENT, filter_text="shop.orders", now=NOW)
    put(cursors, stream, b"one")
    get(cursors)
    stream.transaction(b"two", table=("shop", "items"))
    stream.put()
    place = stream.position(events)
    assert cursors.ack_to(CLIENT, replace(place, begin=place.begin + more), now=NOW)


def test_client_has_a_cursor_before_it_acks() -> None:
    cursors = Cursors(Ring(64), epoch=1, compile_filter=one_table)
    cursors.subscribe(CLIENT, now=NOW)
    cursors.clients.take_changes()
    stream = Stream(cursors.ring)
    cursors.begin(stream.end, None)
    cursors.advance(NOW)
    assert cursors.clients.changed
    assert stored(cursors).position == stream.position(0)


def test_cursor_follows_the_stream_while_nothing_is_wanted() -> None:
    cursors, stream = make()
    cursors.subscribe(CLIENT, filter_text="shop.users", now=NOW)
    put(cursors, stream, b"one")
    stream.advance()
    stream.put()
    cursors.advance(NOW)
    assert stored(cursors).position == stream.end
    assert stored(cursors).gtid == "0-101-2"
    assert len(cursors.ring) == 0


def test_cursor_does_not_follow_past_what_is_given_and_not_acked() -> None:
    cursors, stream = make()
    cursors.subscribe(CLIENT, now=NOW)
    put(cursors, stream, b"one")
    get(cursors)
    stream.advance()
    stream.put()
    cursors.advance(NOW)
    assert stored(cursors).position == stream.position(0)


def test_restored_clients_go_on_where_each_was() -> None:
    cursors, stream = make()
    for client_id in (1, 2):
        cursors.subscribe(client_id, now=NOW)
    put(cursors, stream, b"one")
    put(cursors, stream, b"two")
    cursors.ack(1, get(cursors, 1).batch_id, now=NOW)
    cursors.ack(2, get(cursors, 2, limit=3).batch_id, now=NOW)
    clients = [client for client in cursors.clients.take_changes().clients.values() if client]
    start = earliest([client.cursor for client in clients if client.cursor])
    assert start is not None
    assert start.position == stream.position(3)

    ring = Ring(64)
    cursors = Cursors(ring, epoch=2, compile_filter=one_table)
    for client in clients:
        cursors.restore(client, NOW)
    stream = Stream(ring, events=3)
    stream.transactions = 1
    cursors.begin(start.position, MariadbGtidSet.parse(start.gtid))
    put(cursors, stream, b"two")
    put(cursors, stream, b"three")
    assert entries(get(cursors, 2).slices) == [b"begin", b"two", b"end", b"begin", b"three", b"end"]
    batch = get(cursors, 1)
    assert entries(batch.slices) == [b"begin", b"three", b"end"]
    cursors.ack(1, batch.batch_id, now=NOW)
    assert stored(cursors, 1).gtid == "0-101-3"


def test_cursors_are_in_the_order_of_the_stream_and_the_oldest_history_comes_first() -> None:
    def cursor(begin: int, time: int, source: str = "1") -> Cursor:
        place = Position(source, FILE, 1, begin, 0)
        return Cursor(FILE, begin, time, 1, position=place)

    new, old = [cursor(4, 50), cursor(900, 60)], [cursor(100, 20, "2"), cursor(500, 10, "2"), cursor(500, 30, "2")]
    assert in_order([new[1], old[2], new[0], old[1], old[0]]) == [old[0], old[2], old[1], *new]
    assert earliest([*new, *old]) == old[0]
    assert earliest([]) is None
    assert starts([None, *new, old[0]], old[1]) == [old[0], *new, None]
    assert starts(new, old[1]) == new, "the place that is kept counts only when no client has one"
    assert starts([None], old[1]) == starts([], old[1]) == [old[1]]
    assert starts([None], None) == starts([], None) == [None]


def test_a_client_that_passes_a_gap_starts_after_it_and_has_executed_what_is_missing() -> None:
    ring = Ring(64)
    cursors = Cursors(ring, epoch=2, compile_filter=one_table, catches_up=True)
    stream = Stream(ring, events=30)
    stream.transactions = 10
    lost = Cursor(FILE, 4, 0, SERVER_ID, "0-101-2", stream.position(6))
    cursors.restore(StoredClient(CLIENT, "", lost), NOW)
    cursors.begin(stream.end, MariadbGtidSet.parse("0-101-10,1-101-5"))
    cursors.advance(NOW)
    assert cursors.status(CLIENT).state == "catching-up"
    assert cursors.places.pass_gap("purged", None, stream.end, By()) == [CLIENT]
    store(cursors)
    assert cursors.status(CLIENT).state == "attached"
    assert stored(cursors) == lost
    put(cursors, stream, b"one")
    batch = get(cursors)
    assert markers(batch)
    cursors.ack(CLIENT, batch.batch_id, now=NOW)
    batch = get(cursors)
    assert entries(batch.slices) == [b"begin", b"one", b"end"]
    cursors.ack(CLIENT, batch.batch_id, now=NOW)
    assert (stored(cursors).position, stored(cursors).gtid) == (stream.end, "0-101-11,1-101-5")


def test_gap_moves_only_those_that_wait_for_a_place() -> None:
    cursors = Cursors(Ring(64), epoch=1, compile_filter=one_table, catches_up=True)
    stream = Stream(cursors.ring, events=30)
    cursors.restore(StoredClient(3, "", Cursor(FILE, 4, 0, SERVER_ID, "", stream.position(6))), NOW)
    cursors.begin(stream.end, None)
    for client_id in (1, 2):
        cursors.subscribe(client_id, now=NOW)
    put(cursors, stream, b"one")
    confirm(cursors, 1)
    assert cursors.places.pass_gap("purged", None, stream.end, By()) == [3]
    store(cursors)
    assert cursors.get(1, now=NOW) is None
    assert markers(get(cursors, 3))
    for client_id in (2, 3):
        assert entries(get(cursors, client_id).slices) == [b"begin", b"one", b"end"]


def test_cursor_that_canal_wrote_resumes_at_its_event() -> None:
    cursors, stream = make()
    event = Cursor(FILE, 4 + 2 * 100, 0, SERVER_ID)
    cursors.restore(StoredClient(CLIENT, "", event), NOW)
    put(cursors, stream, b"one")
    put(cursors, stream, b"two")
    assert entries(get(cursors).slices) == [b"end", b"begin", b"two", b"end"]


@pytest.mark.parametrize(("executed", "state"), [("0-102-9", "attached"), ("0-102-10", "gone")])
def test_cursor_of_another_source_resumes_where_the_same_was_executed(executed: str, state: str) -> None:
    elsewhere = Cursor("binlog.000003", 4, 0, 102, "0-102-9", Position("102", "binlog.000003", CREATED, 4, 0))
    cursors = Cursors(Ring(64), epoch=1, compile_filter=one_table)
    cursors.restore(StoredClient(CLIENT, "", elsewhere), NOW)
    stream = Stream(cursors.ring)
    cursors.begin(None, MariadbGtidSet.parse(executed))
    put(cursors, stream, b"one")
    assert cursors.status(CLIENT).state == state
    if state == "gone":
        assert stored(cursors) == elsewhere
        with pytest.raises(
            SourceChangedError, match=r"By its GTIDs .* sluice\.instance\.catchUp\.readers is 0: set that"
        ):
            get(cursors)
    else:
        assert entries(get(cursors).slices) == [b"begin", b"one", b"end"]


def test_a_client_that_seeks_its_own_place_of_another_source_goes_on_by_its_gtids() -> None:
    place = Position("102", "binlog.000003", CREATED, 4, 0)
    cursors = Cursors(Ring(64), epoch=1, compile_filter=one_table)
    cursors.restore(StoredClient(CLIENT, "", Cursor("binlog.000003", 4, 0, 102, "0-102-9", place)), NOW)
    stream = Stream(cursors.ring)
    cursors.begin(None, MariadbGtidSet.parse("0-102-9"))
    put(cursors, stream, b"one")
    get(cursors)
    cursors.places.seek(CLIENT, str(place), now=NOW)
    assert entries(get(cursors).slices) == [b"begin", b"one", b"end"]
    with pytest.raises(SourceChangedError):
        cursors.places.seek(CLIENT, replace(place, begin=5), now=NOW)


def test_what_came_from_the_present_source_is_acked_by_a_client_whose_cursor_is_of_the_former_one() -> None:
    place = Position("102", "binlog.000003", CREATED, 4, 0)
    cursors = Cursors(Ring(64), epoch=1, compile_filter=one_table)
    cursors.restore(StoredClient(CLIENT, "", Cursor("binlog.000003", 4, 0, 102, "0-102-9", place)), NOW)
    stream = Stream(cursors.ring)
    cursors.begin(None, MariadbGtidSet.parse("0-102-9"))
    given = stream.position(3)
    assert not cursors.ack_to(CLIENT, given, now=NOW, exists=False), "it is not there again"
    put(cursors, stream, b"one")
    put(cursors, stream, b"two")
    assert cursors.ack_to(CLIENT, given, now=NOW, exists=False)
    assert entries(get(cursors).slices) == [b"begin", b"two", b"end"]


def test_cursor_of_another_source_with_a_set_of_its_own_waits_for_a_reader_which_begins_there() -> None:
    elsewhere = Cursor("binlog.000003", 4, 0, 102, "0-102-9", Position("102", "binlog.000003", CREATED, 4, 0))
    cursors = Cursors(Ring(64), epoch=1, compile_filter=one_table, catches_up=True)
    cursors.restore(StoredClient(CLIENT, "", elsewhere), NOW)
    stream = Stream(cursors.ring)
    cursors.begin(None, MariadbGtidSet.parse("0-102-4"))
    put(cursors, stream, b"one")
    assert cursors.readers.behind == {CLIENT: elsewhere}
    reader = Stream(Ring(64), events=9)
    cursors.readers.start(CLIENT, Track(reader.ring))
    reader.transaction(b"ten")
    reader.put()
    cursors.advance(NOW)
    assert entries(get(cursors).slices) == [b"begin", b"ten", b"end"]


def test_cursor_of_the_history_of_before_a_reset_is_refused_though_the_same_gtids_were_executed() -> None:
    before = Cursor(FILE, 4, 0, SERVER_ID, "0-101-9", Position(SOURCE, FILE, CREATED - 9, 4, 0))
    cursors = Cursors(Ring(64), epoch=1, compile_filter=one_table, catches_up=True)
    cursors.restore(StoredClient(CLIENT, "", before), NOW)
    stream = Stream(cursors.ring)
    cursors.begin(None, MariadbGtidSet.parse("0-101-9"))
    put(cursors, stream, b"one")
    assert cursors.status(CLIENT).problem == "source-changed"
    assert stored(cursors) == before


@pytest.mark.parametrize(("began", "state"), [("0-102-3", "attached"), ("0-102-5", "catching-up")])
def test_place_before_a_start_by_gtid_misses_nothing_only_if_all_before_the_start_was_executed_there(
    began: str, state: str
) -> None:
    cursors = Cursors(Ring(64), epoch=1, compile_filter=one_table, catches_up=True)
    stream = Stream(cursors.ring, events=30)
    saved = Cursor(FILE, 4, 0, SERVER_ID, "0-102-4", stream.position(6))
    cursors.restore(StoredClient(CLIENT, "", saved), NOW)
    cursors.begin(None, MariadbGtidSet.parse(began))
    put(cursors, stream, b"one")
    assert cursors.status(CLIENT).state == state
    if state == "attached":
        assert entries(get(cursors).slices) == [b"begin", b"one", b"end"]


def test_a_client_that_subscribes_before_the_stream_has_begun_has_its_gtids_as_well() -> None:
    cursors = Cursors(Ring(64), epoch=1, compile_filter=one_table)
    cursors.subscribe(CLIENT, now=NOW)
    stream = Stream(cursors.ring)
    cursors.begin(stream.end, MariadbGtidSet.parse("0-101-10,1-101-5"))
    cursors.advance(NOW)
    assert stored(cursors).gtid == "0-101-10,1-101-5"
    put(cursors, stream, b"one")
    cursors.ack(CLIENT, get(cursors).batch_id, now=NOW)
    assert stored(cursors).gtid.endswith(",1-101-5")
    assert stored(cursors).gtid != "0-101-10,1-101-5"


def test_client_whose_cursor_is_no_longer_stored_keeps_it() -> None:
    old = Cursor("binlog.000003", 4, 0, SERVER_ID, "0-101-1", Position(SOURCE, "binlog.000003", CREATED - 9, 4, 0))
    cursors, stream = make()
    cursors.restore(StoredClient(CLIENT, "", old), NOW)
    cursors.subscribe(2, now=NOW)
    put(cursors, stream, b"one")
    with pytest.raises(GoneError):
        cursors.get(CLIENT, now=NOW)
    assert cursors.status(CLIENT).state == "gone"
    assert stored(cursors) == old
    cursors.ack(2, get(cursors, 2).batch_id, now=NOW)
    assert len(cursors.ring) == 0, "it holds nothing back"


# --- what is kept ----------------------------------------------------------------------------------------------------


def test_without_subscribers_everything_is_kept() -> None:
    cursors, stream = make()
    put(cursors, stream, b"one")
    cursors.subscribe(CLIENT, now=NOW)
    get(cursors)
    cursors.unsubscribe(CLIENT)
    put(cursors, stream, b"two")
    assert len(cursors.ring) == 6


def test_slowest_subscriber_decides_what_is_freed() -> None:
    cursors, stream = make()
    for client_id in (1, 2):
        cursors.subscribe(client_id, now=NOW)
    put(cursors, stream, b"one")
    cursors.ack(1, get(cursors, 1).batch_id, now=NOW)
    assert cursors.ring.first == 0
    cursors.ack(2, get(cursors, 2, limit=1).batch_id, now=NOW)
    assert cursors.ring.first == 1
    cursors.unsubscribe(2)
    assert cursors.ring.first == 3


@contextmanager
def full(cursors: Cursors, stream: Stream, *rows: bytes) -> Iterator[None]:
    """Let a put wait for room, which a transaction of these rows does not find."""
    stream.transaction(*rows)
    putter = threading.Thread(target=stream.put, daemon=True)
    putter.start()
    try:
        eventually(lambda: cursors.ring.waiting)
        yield
    finally:
        cursors.ring.close()
        putter.join()


def confirm(cursors: Cursors, client_id: int, entries: int = 0) -> None:
    cursors.ack(client_id, get(cursors, client_id, entries).batch_id, now=NOW)


def test_client_that_does_not_confirm_a_full_ring_in_time_leaves_it_when_another_has_confirmed_it() -> None:
    cursors, stream = make(size=4, detach_after=10.0)
    for client_id in (1, 2):
        cursors.subscribe(client_id, now=0.0)
    put(cursors, stream, b"one")
    late = get(cursors, 2)
    with full(cursors, stream, b"two"):
        cursors.advance(100.0)
        cursors.advance(200.0)
        assert cursors.status(2).state == "attached", "no one waits for it"
        confirm(cursors, 1)
        cursors.advance(200.0)
        cursors.advance(210.0)
        assert cursors.status(2).state == "attached"
        cursors.advance(211.0)
        with pytest.raises(GoneError, match="held the others back"):
            cursors.get(2, now=211.0)
        assert stored(cursors, 2).position == stream.position(0)
        assert cursors.status(2).marks == []
        with pytest.raises(UnknownBatchError):
            cursors.ack(2, late.batch_id, now=211.0)
        eventually(lambda: len(cursors.ring) == 2)
        assert entries(get(cursors, 1).slices) == [b"two", b"end"]


def test_confirming_a_little_now_and_then_is_not_keeping_the_pace() -> None:
    cursors, stream = make(size=8, detach_after=10.0)
    for client_id in (1, 2):
        cursors.subscribe(client_id, now=0.0)
    with full(cursors, stream, *(b"%d" % number for number in range(40))):
        for now in range(8):
            while cursors.get(1, now=now, max_entries=1):
                cursors.rollback(1, now=now)
                confirm(cursors, 1, 1)
            confirm(cursors, 2, 1)
            cursors.advance(2.0 * now)
            if cursors.status(2).state == "gone":
                break
        assert now == 6


def test_client_that_has_passed_over_what_it_does_not_want_holds_nothing_when_it_confirms_what_was_before() -> None:
    cursors, stream = make()
    cursors.subscribe(CLIENT, filter_text="shop.orders", now=NOW)
    put(cursors, stream, b"one")
    batch = get(cursors)
    stream.transaction(b"x", table=("shop", "items"))
    stream.put()
    cursors.advance(NOW)
    assert cursors.get(CLIENT, now=NOW) is None
    cursors.ack(CLIENT, batch.batch_id, now=NOW)
    cursors.advance(NOW)
    assert len(cursors.ring) == 0


def test_client_that_leaves_a_ring_which_has_room_again_rests_no_more() -> None:
    cursors, stream = make(size=8, detach_after=10.0)
    for client_id in (CLIENT, 2):
        cursors.subscribe(client_id, filter_text="shop.orders", now=0.0)
    with full(cursors, stream, *[b"row"] * 8):
        batches = [get(cursors, limit=2), get(cursors)]
        confirm(cursors, 2)
        cursors.advance(0.0)
        cursors.ack(CLIENT, batches[0].batch_id, now=1.0)
        eventually(lambda: cursors.ring.next == 10)
        assert get(cursors).entries == 2
        assert cursors.rest(CLIENT)
        cursors.resting.take_roused()
        cursors.advance(11.0)
        assert cursors.status(CLIENT).state == "gone"
        assert cursors.resting.take_roused() == {CLIENT}


def test_client_that_keeps_the_pace_stays_however_long_the_ring_is_full() -> None:
    cursors, stream = make(size=8, detach_after=10.0)
    for client_id in (1, 2):
        cursors.subscribe(client_id, now=0.0)
    with full(cursors, stream, *(b"%d" % number for number in range(200))):
        for now in range(0, 90, 3):
            eventually(lambda: len(cursors.ring) == 8 and cursors.ring.waiting)
            for client_id in (1, 2):
                while cursors.status(client_id).waiting.entries > (client_id == 2) * 4:
                    confirm(cursors, client_id, 1)
            cursors.advance(now)
        assert cursors.status(2).state == "attached"


def test_clients_that_can_read_the_log_leave_a_full_ring_at_once_unless_they_are_given_something() -> None:
    cursors = Cursors(Ring(8), epoch=1, compile_filter=one_table, catches_up=True)
    stream = Stream(cursors.ring)
    cursors.begin(stream.end, MariadbGtidSet())
    for client_id in (1, 2):
        cursors.subscribe(client_id, now=NOW)
    put(cursors, stream, b"one", b"two", b"three")
    cursors.track.unlogged = cursors.ring.next
    cursors.advance(NOW)
    assert [cursors.status(client_id).state for client_id in (1, 2)] == ["attached", "attached"], "there is room"
    get(cursors, 2, limit=1)
    with full(cursors, stream, *(b"%d" % number for number in range(9))):
        cursors.advance(NOW)
        assert [cursors.status(client_id).state for client_id in (1, 2)] == ["catching-up", "attached"]


@pytest.mark.parametrize("slow", [2, -1, -32768])
def test_a_log_that_writes_nothing_does_not_keep_a_slow_client_in_the_ring(slow: int) -> None:
    cursors, stream = make(size=4, detach_after=10.0)
    for client_id in (1, slow):
        cursors.subscribe(client_id, now=NOW)
    cursors.track.unlogged = 0
    with full(cursors, stream, *(b"%d" % number for number in range(9))):
        confirm(cursors, 1)
        for now in (0.0, 11.0):
            cursors.advance(now)
        assert [cursors.status(client_id).state for client_id in (1, slow)] == ["attached", "gone"]
        assert cursors.ring.first == 0, "the log has not written it"


def test_clock_that_goes_back_does_not_extend_how_long_a_client_may_hold_others_back() -> None:
    cursors, stream = make(size=4, detach_after=10.0)
    for client_id in (1, 2):
        cursors.subscribe(client_id, now=1e6)
    with full(cursors, stream, *(b"%d" % number for number in range(9))):
        confirm(cursors, 1)
        for now in (1e6, 1e6 + 6, 0.0, 5.0):
            cursors.advance(now)
        assert cursors.status(2).state == "gone"


def test_one_abandoned_client_does_not_hold_a_client_back_for_longer_that_waits_ahead_of_the_stream() -> None:
    cursors, stream = make(size=4, detach_after=10.0)
    cursors.subscribe(1, start=str(stream.position(20)), now=0.0)
    cursors.subscribe(2, now=0.0)
    with full(cursors, stream, *(b"%d" % number for number in range(9))):
        for now in (0.0, 11.0):
            cursors.advance(now)
        assert [cursors.status(client_id).state for client_id in (1, 2)] == ["ahead", "gone"]
        assert cursors.ring.first > 0


def test_a_client_whose_reader_has_passed_the_stream_counts_as_held_back() -> None:
    cursors = Cursors(Ring(4), epoch=1, compile_filter=one_table, detach_after=10.0, catches_up=True)
    stream, reader = Stream(cursors.ring, events=30), Stream(Ring(64), events=6)
    cursors.begin(stream.end, MariadbGtidSet())
    cursors.restore(StoredClient(1, "", Cursor(FILE, 4, 0, SERVER_ID, "", stream.position(6))), NOW)
    cursors.subscribe(2, now=0.0)
    reader.transaction(*(b"%d" % number for number in range(50)))
    reader.put()
    with full(cursors, stream, *(b"%d" % number for number in range(9))):
        cursors.readers.start(1, Track(reader.ring))
        confirm(cursors, 1)
        for now in (0.0, 11.0):
            cursors.advance(now)
        assert [cursors.status(client_id).state for client_id in (1, 2)] == ["catching-up", "catching-up"]
        assert cursors.readers.behind.keys() == {2}


def test_what_the_ring_holds_waits_for_a_client_that_catches_up_too() -> None:
    cursors = Cursors(Ring(64), epoch=1, compile_filter=one_table, catches_up=True)
    stream, reader = Stream(cursors.ring, events=9), Stream(Ring(64))
    cursors.begin(stream.end, MariadbGtidSet())
    cursors.subscribe(2, now=NOW)
    cursors.restore(StoredClient(1, "", Cursor.at(stream.position(3))), NOW)
    put(cursors, stream, b"three", b"four")

    def waiting() -> tuple[str, int, int]:
        status = cursors.status(1)
        return status.state, status.waiting.rows, status.waiting.transactions

    def unread() -> Position | None:
        return cursors.clients.subscribers[1].unread

    assert waiting() == ("catching-up", 2, 1)
    assert unread() == stream.position(3), "from its place on"
    cursors.readers.start(1, Track(reader.ring))
    assert waiting() == ("catching-up", 2, 1), "its reader has not begun"
    assert unread() == stream.position(3)
    for row in (b"zero", b"one"):
        reader.transaction(row)
    reader.put()
    cursors.advance(NOW)
    assert waiting() == ("catching-up", 3, 2)
    assert unread() == reader.end, "what its reader has read is counted"
    reader.transaction(b"two")
    reader.transaction(b"three", b"four")
    reader.put()
    cursors.advance(NOW)
    assert waiting() == ("catching-up", 4, 3), "what reader and ring both have is counted once"
    confirm(cursors, 1)
    cursors.advance(NOW)
    assert waiting() == ("attached", 0, 0)
    assert unread() is None
    assert cursors.status(2).waiting.rows == 2


@pytest.mark.parametrize("catches_up", [False, True], ids=["gone", "behind"])
def test_a_client_that_the_ring_does_not_serve_does_not_count_as_held_back(catches_up: bool) -> None:
    cursors = Cursors(Ring(4), epoch=1, compile_filter=one_table, detach_after=10.0, catches_up=catches_up)
    stream = Stream(cursors.ring, events=30)
    cursors.begin(stream.end, MariadbGtidSet())
    cursors.restore(StoredClient(1, "", Cursor(FILE, 4, 0, SERVER_ID, "", stream.position(6))), NOW)
    cursors.subscribe(2, now=0.0)
    with full(cursors, stream, *(b"%d" % number for number in range(9))):
        for now in (0.0, 1e6, 2e6):
            cursors.advance(now)
        assert [cursors.status(it).state for it in (1, 2)] == ["catching-up" if catches_up else "gone", "attached"]
        if catches_up:
            cursors.readers.start(1, Track(Ring(64)))
            for now in (3e6, 4e6):
                cursors.advance(now)
            assert cursors.status(2).state == "attached"


def test_lone_subscriber_is_never_detached() -> None:
    cursors, stream = make(size=4, detach_after=10.0)
    cursors.subscribe(CLIENT, now=0.0)
    with full(cursors, stream, b"one", b"two", b"three"):
        for now in (0.0, 1e6):
            cursors.advance(now)
        assert cursors.status(CLIENT).state == "attached"


def test_when_no_client_has_confirmed_the_whole_of_a_full_ring_all_stay() -> None:
    cursors, stream = make(size=8, detach_after=10.0)
    for client_id in (1, 2):
        cursors.subscribe(client_id, now=0.0)
    with full(cursors, stream, *(b"%d" % number for number in range(20))):
        confirm(cursors, 1, 5)
        for now in (0.0, 1e6, 2e6):
            cursors.advance(now)
        assert [cursors.status(client_id).state for client_id in (1, 2)] == ["attached", "attached"]


class TestExpiry:
    def test_a_client_that_makes_no_call_for_its_time_is_removed(self) -> None:
        cursors, _ = make()
        cursors.subscribe(CLIENT, expire_after=60, now=NOW)
        cursors.subscribe(CLIENT + 1, now=NOW)
        cursors.clients.take_changes()
        assert cursors.expire(NOW + 60) == []
        cursors.get(CLIENT, now=NOW + 60)
        assert cursors.expire(NOW + 120) == []
        assert cursors.expire(NOW + 121) == [CLIENT]
        assert cursors.clients.ids == [CLIENT + 1]
        assert cursors.clients.take_changes().clients == {CLIENT: None}

    def test_subscribing_again_without_a_time_keeps_the_time_and_zero_ends_it(self) -> None:
        cursors, _ = make()
        cursors.subscribe(CLIENT, expire_after=60, now=NOW)
        cursors.subscribe(CLIENT, now=NOW)
        assert cursors.expire(NOW + 61) == [CLIENT]
        cursors.subscribe(CLIENT, expire_after=60, now=NOW)
        cursors.subscribe(CLIENT, expire_after=0, now=NOW)
        assert cursors.expire(NOW + 61) == []

    def test_the_time_of_the_destination_counts_for_clients_without_one_and_restarts_with_it(self) -> None:
        cursors = Cursors(Ring(64), epoch=1, compile_filter=one_table, defaults=Defaults(expire_after=60))
        cursors.restore(StoredClient(CLIENT), NOW)
        cursors.restore(StoredClient(CLIENT + 1, expire_after=0), NOW)
        cursors.restore(StoredClient(CLIENT + 2, expire_after=120), NOW)
        assert cursors.expire(NOW + 61) == [CLIENT]
        assert cursors.expire(NOW + 121) == [CLIENT + 2]


# --- what a client keeps ---------------------------------------------------------------------------------------------


def test_the_text_that_comes_with_an_ack_is_stored_with_its_cursor_and_comes_back_with_it() -> None:
    cursors, stream = make()
    cursors.subscribe(CLIENT, now=NOW)
    put(cursors, stream, b"one")
    cursors.clients.take_changes()
    cursors.ack(CLIENT, get(cursors).batch_id, now=NOW, memory="a text")
    client = cursors.clients.take_changes().clients[CLIENT]
    assert client is not None
    assert client.memory == "a text"
    later, _ = make()
    later.restore(client, NOW)
    assert later.clients.memory(CLIENT) == "a text"


def test_the_text_is_stored_also_when_the_cursor_stays_within_a_transaction() -> None:
    cursors, stream = make()
    cursors.subscribe(CLIENT, now=NOW)
    put(cursors, stream, b"one", b"two")
    batch = get(cursors, limit=2)
    cursors.clients.take_changes()
    cursors.ack(CLIENT, batch.batch_id, now=NOW, memory="a text")
    client = cursors.clients.take_changes().clients[CLIENT]
    assert client is not None
    assert client.memory == "a text"


def test_an_ack_that_is_refused_leaves_the_text_as_it_was() -> None:
    cursors, stream = make()
    cursors.subscribe(CLIENT, now=NOW)
    put(cursors, stream, b"one", b"two")
    batches = [get(cursors, limit=1).batch_id for _ in range(2)]
    cursors.ack(CLIENT, batches[0], now=NOW, memory="first")
    cursors.ack(CLIENT, batches[1], now=NOW)
    for batch_id in batches:
        with pytest.raises(UnknownBatchError):
            cursors.ack(CLIENT, batch_id, now=NOW, memory="second")
    assert cursors.clients.memory(CLIENT) == "first"


# --- one look at the ring --------------------------------------------------------------------------------------------


def test_client_whose_place_comes_moves_over_what_it_does_not_want_at_once() -> None:
    cursors, stream = make()
    cursors.subscribe(CLIENT, filter_text="shop.items", start=str(stream.position(3)), now=NOW)
    for _ in range(3):
        stream.transaction(b"one")
    stream.put()
    cursors.advance(NOW)
    assert len(cursors.ring) == 0


def test_place_that_has_come_is_kept_though_another_client_acks_before_it_is_looked_for() -> None:
    cursors, stream = make()
    cursors.subscribe(CLIENT, now=NOW)
    cursors.subscribe(2, start=str(stream.position(3)), now=NOW)
    stream.transaction(b"one")
    stream.transaction(b"two")
    stream.put()
    confirm(cursors, CLIENT)
    assert entries(get(cursors, 2).slices) == [b"begin", b"two", b"end"]


def test_get_that_passes_what_is_not_wanted_lets_it_be_freed() -> None:
    cursors, stream = make()
    cursors.subscribe(CLIENT, filter_text="shop.items", now=NOW)
    stream.transaction(b"one")
    stream.put()
    assert cursors.get(CLIENT, now=NOW) is None
    stream.transaction(b"two")
    stream.put()
    cursors.advance(NOW)
    assert len(cursors.ring) == 0


def test_nothing_is_available_to_a_client_that_is_not_served() -> None:
    cursors, stream = make()
    cursors.subscribe(2, now=NOW)
    cursors.subscribe(CLIENT, start=str(stream.position(50)), now=NOW)
    put(cursors, stream, b"one")
    assert (cursors.available(CLIENT), cursors.available(2)) == ((0, 0), (3, 17))


def test_ddl_comes_with_other_entries_unless_it_is_to_be_alone() -> None:
    cursors, stream = make()
    cursors.subscribe(CLIENT, now=NOW)
    stream.transaction(b"one")
    stream.stage(b"alter", Kind.DDL, ("shop", "orders"), boundary=True)
    stream.put()
    assert get(cursors).entries == 4


@pytest.mark.parametrize("begun", [False, True])
def test_new_subscription_and_new_filter_are_stored(begun: bool) -> None:
    cursors = Cursors(Ring(64), epoch=1, compile_filter=one_table)
    if begun:
        cursors.begin(Stream(cursors.ring).end, MariadbGtidSet())
    for text in ("", "shop.items"):
        cursors.subscribe(CLIENT, filter_text=text, now=NOW)
        client = cursors.clients.take_changes().clients[CLIENT]
        assert client is not None
        assert (client.filter, client.cursor is not None) == (text, begun)


def test_after_a_rollback_it_is_known_what_a_client_was_given() -> None:
    cursors, stream = make()
    cursors.restore(StoredClient(CLIENT, "", Cursor.at(stream.end)), NOW)
    put(cursors, stream, b"one")
    cursors.rollback(CLIENT, now=NOW)
    with pytest.raises(BadPositionError, match="beyond what client"):
        cursors.ack_to(CLIENT, stream.end, now=NOW)


def test_cursor_of_a_place_has_no_event() -> None:
    place = Stream(Ring(64)).position(2)
    assert Cursor.at(place) == Cursor(FILE, 204, 0, 0, "", place, None)


def test_cursors_of_canal_are_in_one_history_with_those_of_places_in_the_same_files() -> None:
    place = Stream(Ring(64)).position(2)
    of_canal = Cursor(FILE, 104, 5000, 1)
    assert (
        in_order([Cursor.at(place), of_canal]) == in_order([of_canal, Cursor.at(place)]) == [of_canal, Cursor.at(place)]
    )


def test_first_entry_of_a_stream_that_is_acked_by_its_position_is_delivered() -> None:
    cursors, stream = make()
    cursors.subscribe(CLIENT, now=NOW)
    stream.stage(b"alter", Kind.DDL, ("shop", "orders"), boundary=True)
    stream.put()
    get(cursors)
    assert cursors.ack_to(CLIENT, stream.end, now=NOW)
    assert stored(cursors).delivered == stream.end


def test_ack_inside_a_transaction_stores_nothing() -> None:
    cursors, stream = make()
    cursors.subscribe(CLIENT, now=NOW)
    cursors.clients.take_changes()
    put(cursors, stream, b"one", b"two")
    cursors.ack(CLIENT, get(cursors, limit=2).batch_id, now=NOW)
    assert not cursors.clients.changed


def test_place_inside_a_transaction_after_what_was_never_given_is_not_acked() -> None:
    cursors, stream = make()
    cursors.subscribe(CLIENT, now=NOW)
    put(cursors, stream, b"one", b"two")
    with pytest.raises(BadPositionError, match="beyond what client"):
        cursors.ack_to(CLIENT, stream.position(2), now=NOW)


def test_before_the_stream_has_begun_no_position_was_given() -> None:
    cursors = Cursors(Ring(64), epoch=1, compile_filter=one_table)
    cursors.subscribe(CLIENT, now=NOW)
    with pytest.raises(BadPositionError, match="beyond what client 1001 was given: None"):
        cursors.ack_to(CLIENT, Stream(Ring(64)).position(2), now=NOW)


def test_lag_is_what_was_given_and_what_waits() -> None:
    cursors, stream = make()
    cursors.subscribe(CLIENT, now=NOW)
    cursors.subscribe(2, start=str(stream.position(50)), now=NOW)
    put(cursors, stream, b"one")
    put(cursors, stream, b"longer")
    get(cursors, limit=3)
    status = cursors.status(CLIENT)
    assert (status.given.bytes, status.waiting.bytes, status.lag.bytes) == (17, 20, 37)
    assert cursors.status(2).lag == Lag(0, 0, 0, 0, 0)


def test_place_before_a_stream_that_began_by_its_gtids_is_gone_when_its_first_entry_is_freed() -> None:
    cursors = Cursors(Ring(64), epoch=1, compile_filter=one_table)
    cursors.begin(None, MariadbGtidSet())
    stream = Stream(cursors.ring, events=5)
    cursors.subscribe(CLIENT, now=NOW)
    stream.stage(b"alter", Kind.DDL, ("shop", "orders"), boundary=True)
    stream.put()
    cursors.advance(NOW)
    confirm(cursors, CLIENT)
    assert cursors.ring.first == 1
    cursors.restore(StoredClient(2, "", Cursor.at(stream.position(2), "0-101-1")), NOW)
    cursors.advance(NOW)
    assert cursors.status(2).state == "gone"


def test_a_client_that_has_met_the_ring_and_confirms_nothing_holds_it_back_no_longer_than_any_other() -> None:
    cursors = Cursors(Ring(4), epoch=1, compile_filter=one_table, detach_after=10.0, catches_up=True)
    stream, reader = Stream(cursors.ring, events=30), Stream(Ring(64), events=6)
    cursors.begin(stream.end, MariadbGtidSet())
    cursors.restore(StoredClient(1, "", Cursor(FILE, 4, 0, SERVER_ID, "", stream.position(6))), NOW)
    cursors.subscribe(2, now=0.0)
    for number in range(8):
        reader.transaction(b"%d" % number)
    reader.put()
    with full(cursors, stream, *(b"%d" % number for number in range(9))):
        cursors.readers.start(1, Track(reader.ring))
        cursors.advance(0.0)
        given = get(cursors, 1)
        confirm(cursors, 2)
        for now in (0.0, 11.0):
            cursors.advance(now)
        eventually(lambda: cursors.ring.first > 0)
        assert [cursors.status(client_id).state for client_id in (1, 2)] == ["catching-up", "attached"]
        cursors.ack(1, given.batch_id, now=NOW)
        assert cursors.status(1).acked == str(stream.position(30))


def test_place_beyond_where_a_client_of_an_earlier_life_goes_on_is_not_acked_yet() -> None:
    cursors, stream = make()
    cursors.restore(StoredClient(CLIENT, "", Cursor.at(stream.position(50))), NOW)
    assert cursors.ack_to(CLIENT, stream.position(50), now=NOW)
    assert not cursors.ack_to(CLIENT, stream.position(60), now=NOW)


@pytest.mark.parametrize("begun", [False, True])
def test_cursor_that_stays_is_stored_once(begun: bool) -> None:
    cursors = Cursors(Ring(64), epoch=1, compile_filter=one_table)
    if begun:
        cursors.begin(Stream(cursors.ring).end, MariadbGtidSet())
    cursors.subscribe(CLIENT, now=NOW)
    cursors.clients.take_changes()
    cursors.advance(NOW)
    assert not cursors.clients.changed


def test_only_the_output_that_owns_a_client_may_call_for_it() -> None:
    cursors, _ = make()
    cursors.subscribe(CLIENT, output="kafka", now=NOW)
    token = cursors.clients.open_session(CLIENT, NOW, "kafka")
    for session in (None, "x", f"{token}x"):
        with pytest.raises(OwnedError, match="the output kafka"):
            cursors.admission.admit(CLIENT, session)
    for output in ("", "rabbit"):
        with pytest.raises(OwnedError, match="the output kafka"):
            cursors.clients.open_session(CLIENT, NOW, output)
    with pytest.raises(OwnedError, match="the output kafka"):
        cursors.get(CLIENT, now=NOW, session="9000000000-newer")
    cursors.admission.admit(CLIENT, f"{token}.1")
    cursors.admission.admit(2)
    cursors.admission.release(CLIENT)
    cursors.admission.admit(CLIENT)


@pytest.mark.parametrize("token", ["x", "9" * 5000, "x.1", ""])
def test_a_token_that_no_life_has_opened_is_stale(token: str) -> None:
    cursors, _ = make()
    cursors.subscribe(CLIENT, now=NOW)
    cursors.clients.open_session(CLIENT, NOW)
    with pytest.raises(StaleSessionError):
        cursors.get(CLIENT, now=NOW, session=token)


def test_event_of_canals_cursor_is_given_again_where_the_stream_begins_with_it() -> None:
    cursors, stream = make()
    cursors.restore(StoredClient(CLIENT, "", Cursor(FILE, 4, 0, SERVER_ID)), NOW)
    put(cursors, stream, b"one")
    assert entries(get(cursors).slices) == [b"begin", b"one", b"end"]


class TestProtection:
    """The log keeps what a protected client needs."""

    @pytest.fixture
    def cursors(self, tmp_path: Path) -> Iterator[Cursors]:
        """A log, and two clients at the beginning of four transactions."""
        cursors, stream = make()
        cursors.track.log = Log(tmp_path, "shop", Limits())
        cursors.subscribe(CLIENT, protected=True, now=NOW)
        cursors.subscribe(CLIENT + 1, now=NOW)
        for row in (b"one", b"two", b"three", b"four"):
            put(cursors, stream, row)
        yield cursors
        cursors.track.log.close()

    def held(self, cursors: Cursors) -> dict[int, int]:
        """After how many transactions of three events the log has to keep what follows, by client."""
        assert cursors.track.log is not None
        places = {str(Stream(cursors.ring).position(3 * it)): it for it in range(5)}
        return {client: places[str(it.position)] for client, it in cursors.track.log.held.items()}

    def test_it_is_held_from_the_durable_cursor_on_which_moves_with_acks_and_seeks(self, cursors: Cursors) -> None:
        assert self.held(cursors) == {CLIENT: 0}
        cursors.ack(CLIENT, get(cursors, limit=3).batch_id, now=NOW)
        cursors.ack(CLIENT, get(cursors, limit=2).batch_id, now=NOW)
        cursors.advance(NOW)
        assert self.held(cursors) == {CLIENT: 1}
        cursors.places.seek(CLIENT, "latest", now=NOW)
        assert self.held(cursors) == {CLIENT: 4}

    def test_it_is_stored_stays_when_the_client_subscribes_again_and_ends_on_request(self, cursors: Cursors) -> None:
        def is_stored() -> bool:
            client = cursors.clients.take_changes().clients[CLIENT]
            assert client is not None
            return client.protected

        assert is_stored()
        cursors.subscribe(CLIENT, filter_text="shop.orders", now=NOW)
        assert is_stored()
        assert cursors.status(CLIENT).protected
        assert not cursors.protect(CLIENT, protected=False, now=NOW).protected
        assert self.held(cursors) == {}
        assert not is_stored()
        cursors.subscribe(CLIENT, protected=True, now=NOW)
        assert self.held(cursors) == {CLIENT: 0}
        cursors.unsubscribe(CLIENT)
        assert self.held(cursors) == {}

    def test_it_counts_again_after_a_restart(self, cursors: Cursors) -> None:
        assert cursors.track.log is not None
        cursors.track.log.held = {}
        later, _ = make()
        later.track.log = cursors.track.log
        for client in cursors.clients.stored():
            later.restore(client, NOW)
        assert self.held(cursors) == {CLIENT: 0}
        assert later.status(CLIENT).protected


class TestSeek:
    """A cursor is moved by hand, forward or back."""

    @pytest.fixture
    def cursors(self) -> Cursors:
        """Four transactions are stored for another client; ours has confirmed two of them, and was given the third."""
        cursors, stream = make()
        cursors.subscribe(CLIENT + 1, now=NOW)
        cursors.subscribe(CLIENT, filter_text="shop.orders", expire_after=7, now=NOW)
        for row in (b"one", b"two", b"three", b"four"):
            put(cursors, stream, row)
        for _ in range(2):
            cursors.ack(CLIENT, get(cursors, limit=3).batch_id, now=NOW, memory="a text")
        get(cursors, limit=3)
        return cursors

    def place(self, cursors: Cursors, transactions: int) -> Position:
        """The place after this number of transactions, each of three events."""
        return Stream(cursors.ring).position(3 * transactions)

    @pytest.mark.parametrize("transactions", [0, 1, 2, 3])
    def test_what_follows_the_place_is_given_next(self, cursors: Cursors, transactions: int) -> None:
        place = self.place(cursors, transactions)
        status = cursors.places.seek(CLIENT, str(place), moved="moved", now=NOW)
        assert (status.position, status.marks, stored(cursors).gtid) == (
            str(place),
            [],
            f"0-101-{transactions}" * bool(transactions),
        )
        store(cursors)
        assert get(cursors, limit=3).from_ == str(place)

    def test_what_was_outstanding_is_unknown_and_its_text_does_not_count(self, cursors: Cursors) -> None:
        (outstanding,) = cursors.status(CLIENT).marks
        cursors.places.seek(CLIENT, "latest", moved="moved", now=NOW)
        with pytest.raises(UnknownBatchError):
            cursors.ack(CLIENT, outstanding, now=NOW, memory="late")
        assert (cursors.clients.memory(CLIENT), cursors.clients.moved(CLIENT)) == ("a text", "moved")

    @pytest.mark.parametrize("memory", ["a text", "another"])
    def test_what_is_remembered_since_then_knows_of_it(self, cursors: Cursors, memory: str) -> None:
        cursors.places.seek(CLIENT, "earliest", moved="moved", now=NOW)
        store(cursors)
        cursors.ack(CLIENT, get(cursors, limit=3).batch_id, now=NOW, memory=memory)
        client = cursors.clients.take_changes().clients[CLIENT]
        assert client is not None
        assert (client.memory, client.moved) == (memory, "")

    def test_to_where_the_other_side_is_leaves_what_was_done_by_hand_before(self, cursors: Cursors) -> None:
        cursors.places.seek(CLIENT, "earliest", moved="moved", now=NOW)
        cursors.places.seek(CLIENT, "latest", now=NOW, is_confirmed=True)
        assert cursors.clients.moved(CLIENT) == "moved"

    def test_filter_expiry_and_session_stay_and_it_is_stored(self, cursors: Cursors) -> None:
        session = cursors.clients.open_session(CLIENT, NOW)
        cursors.clients.take_changes()
        cursors.places.seek(CLIENT, "earliest", moved="moved", now=NOW + 5)
        client = cursors.clients.take_changes().clients[CLIENT]
        assert client is not None
        assert client.cursor is not None
        assert (client.filter, client.expire_after) == ("shop.orders", 7)
        assert (client.memory, client.moved) == ("a text", "moved")
        assert cursors.expire(NOW + 12) == []
        with pytest.raises(StaleSessionError):
            cursors.clients.check(CLIENT, "1-older")
        cursors.clients.check(CLIENT, session)

    def test_late_rows_are_still_to_be_given(self, cursors: Cursors) -> None:
        late = LateRows(self.place(cursors, 1), "shop", "orders", b"", 1, 0, b"")
        assert cursors.snapshots.give_late(CLIENT, late)
        cursors.places.seek(CLIENT, "latest", moved="moved", now=NOW)
        assert cursors.status(CLIENT).late == 1

    def test_a_place_that_is_yet_to_come_is_waited_for(self, cursors: Cursors) -> None:
        place = self.place(cursors, 5)
        cursors.clients.take_changes()
        assert cursors.places.seek(CLIENT, str(place), moved="moved", now=NOW).state == "ahead"
        client = cursors.clients.take_changes().clients[CLIENT]
        assert client is not None
        assert client.cursor is not None
        assert client.cursor.position == place
        assert [it.after for it in cursors.gate.moves[CLIENT]] == [str(place)]

    def test_a_place_before_what_is_stored_is_caught_up_with(self) -> None:
        ring = Ring(64)
        cursors = Cursors(ring, epoch=1, compile_filter=one_table, catches_up=True)
        stream = Stream(ring)
        cursors.begin(stream.end, None)
        cursors.subscribe(CLIENT, now=NOW)
        start = stream.end
        put(cursors, stream, b"one")
        cursors.ack(CLIENT, get(cursors).batch_id, now=NOW)
        assert cursors.places.seek(CLIENT, str(start), moved="moved", now=NOW).state == "catching-up"
        assert cursors.readers.behind[CLIENT].position == start

    def test_what_only_it_held_is_freed(self, cursors: Cursors) -> None:
        cursors.unsubscribe(CLIENT + 1)
        cursors.places.seek(CLIENT, "latest", moved="moved", now=NOW)
        assert cursors.ring.first == cursors.ring.next

    def test_a_place_that_is_no_longer_stored_changes_nothing(self, cursors: Cursors) -> None:
        cursors.unsubscribe(CLIENT + 1)
        before = cursors.status(CLIENT)
        with pytest.raises(GoneError):
            cursors.places.seek(CLIENT, str(self.place(cursors, 1)), moved="moved", now=NOW)
        assert cursors.status(CLIENT) == before
        assert cursors.clients.memory(CLIENT) == "a text"

    def test_a_client_that_has_not_subscribed_has_no_cursor(self, cursors: Cursors) -> None:
        with pytest.raises(NotSubscribedError):
            cursors.places.seek(CLIENT + 2, "latest", moved="moved", now=NOW)


class TestGoBack:
    """A client that needs whole transactions begins again with one."""

    def make(self, *, catches_up: bool = True) -> tuple[Cursors, Stream]:
        """A client has confirmed a transaction, and begin and first row of another."""
        ring = Ring(64)
        cursors = Cursors(ring, epoch=1, compile_filter=one_table, catches_up=catches_up)
        stream = Stream(ring)
        cursors.begin(stream.end, MariadbGtidSet())
        cursors.subscribe(CLIENT, now=NOW)
        put(cursors, stream, b"one")
        put(cursors, stream, b"two", b"three")
        for limit in (3, 2):
            cursors.ack(CLIENT, get(cursors, limit=limit).batch_id, now=NOW, memory="a text")
        get(cursors, limit=1)
        return cursors, stream

    def test_what_is_confirmed_of_a_transaction_is_given_again(self) -> None:
        cursors, stream = make()
        for it in (CLIENT, CLIENT + 1):  # the other one holds the ring
            cursors.subscribe(it, now=NOW)
        put(cursors, stream, b"one")
        put(cursors, stream, b"two", b"three")
        cursors.ack(CLIENT, get(cursors, limit=5).batch_id, now=NOW)
        get(cursors, limit=1)
        cursors.go_back(CLIENT, now=NOW)
        assert cursors.status(CLIENT).marks == []
        assert entries(get(cursors).slices) == [b"begin", b"two", b"three", b"end"]

    def test_a_reader_gives_what_the_ring_has_no_more(self) -> None:
        cursors, stream = self.make()
        before = stored(cursors)
        cursors.go_back(CLIENT, now=NOW)
        assert cursors.status(CLIENT).state == "catching-up"
        assert cursors.readers.behind[CLIENT].position == stream.position(3)
        assert (stored(cursors), cursors.clients.memory(CLIENT)) == (before, "a text")

    def test_a_client_that_has_left_the_ring_inside_a_transaction_goes_back_too(self) -> None:
        cursors, stream = self.make()
        cursors.clients.subscribers[CLIENT].detach(cursors.track, GoneError("it is slow"))
        assert cursors.readers.behind[CLIENT].position == stream.position(5)
        reader = Stream(Ring(64), events=3)
        cursors.readers.start(CLIENT, Track(reader.ring))
        reader.transaction(b"two", b"three")
        reader.put()
        cursors.advance(NOW)
        assert entries(get(cursors, limit=1).slices) == [b"three"]
        cursors.go_back(CLIENT, now=NOW)
        assert cursors.readers.behind[CLIENT].position == stream.position(3)

    def test_one_that_waits_for_a_reader_inside_a_transaction_waits_for_one_before_it(self) -> None:
        cursors, stream = self.make()
        cursors.clients.subscribers[CLIENT].detach(cursors.track, GoneError("it is slow"))
        cursors.go_back(CLIENT, now=NOW)
        assert cursors.readers.behind[CLIENT].position == stream.position(3)

    def test_between_two_transactions_it_is_a_rollback(self) -> None:
        cursors, stream = make()
        cursors.subscribe(CLIENT, now=NOW)
        put(cursors, stream, b"one")
        put(cursors, stream, b"two")
        cursors.ack(CLIENT, get(cursors, limit=3).batch_id, now=NOW)
        batch = get(cursors)
        cursors.go_back(CLIENT, now=NOW)
        assert cursors.status(CLIENT).state == "attached"
        assert get(cursors).from_ == batch.from_

    def test_without_readers_it_is_gone_and_says_so_once(self) -> None:
        cursors, stream = self.make(catches_up=False)
        for is_served in (False, True):
            assert cursors.go_back(CLIENT, now=NOW) == is_served
            with pytest.raises(GoneError):
                cursors.clients.check(CLIENT)
        assert stored(cursors).position == stream.position(3)

    def test_one_that_has_gone_back_holds_the_ring_from_its_transaction_on(self) -> None:
        cursors, stream = make()
        cursors.subscribe(CLIENT, now=NOW)
        assert cursors.go_back(CLIENT, now=NOW)
        put(cursors, stream, b"one")
        put(cursors, stream, b"two", b"three")
        for limit in (3, 2):
            cursors.ack(CLIENT, get(cursors, limit=limit).batch_id, now=NOW)
        assert cursors.ring.first == 3
        assert cursors.go_back(CLIENT, now=NOW)
        assert cursors.status(CLIENT).state == "attached"
        assert entries(get(cursors).slices) == [b"begin", b"two", b"three", b"end"]

    def test_a_full_ring_is_not_held_by_what_is_confirmed(self) -> None:
        cursors, stream = make(size=8)
        cursors.subscribe(CLIENT, now=NOW)
        assert cursors.go_back(CLIENT, now=NOW)
        with full(cursors, stream, *[b"row"] * 10):
            confirm(cursors, CLIENT)
            eventually(lambda: cursors.ring.next == 12)
            cursors.advance(NOW)
            assert cursors.ring.first == 8

    def test_an_older_session_cannot(self) -> None:
        cursors, _ = self.make()
        session = cursors.clients.open_session(CLIENT, NOW)
        cursors.clients.open_session(CLIENT, NOW)
        with pytest.raises(StaleSessionError):
            cursors.go_back(CLIENT, now=NOW, session=session)


class TestSkip:
    """One transaction that a client cannot take is confirmed without it."""

    @pytest.fixture
    def stream(self) -> Stream:
        self.cursors, stream = make()
        self.cursors.subscribe(CLIENT, now=NOW)
        put(self.cursors, stream, b"one")
        put(self.cursors, stream, b"two", b"three")
        put(self.cursors, stream, b"four")
        self.cursors.ack(CLIENT, get(self.cursors, limit=3).batch_id, now=NOW)
        return stream

    @pytest.mark.parametrize(
        ("acked", "event"), [(acked, 3 + event) for acked in (0, 1, 3) for event in range(acked, 4)]
    )
    def test_what_follows_the_transaction_is_given_next(self, stream: Stream, acked: int, event: int) -> None:
        outstanding = get(self.cursors, limit=acked or 2)
        if acked:
            self.cursors.ack(CLIENT, outstanding.batch_id, now=NOW)
        assert self.cursors.places.skip(CLIENT, stream.position(event), now=NOW) == stream.position(7)
        found = stored(self.cursors)
        assert (found.position, found.gtid) == (stream.position(7), "0-101-2")
        assert self.cursors.clients.outstanding(CLIENT) == 0
        assert self.cursors.get(CLIENT, now=NOW) is None, "that it was skipped is not stored yet"
        store(self.cursors)
        assert entries(get(self.cursors).slices) == [b"begin", b"four", b"end"]

    @pytest.mark.parametrize("event", [0, 2, 7, 8, 30])
    def test_a_place_outside_of_it_changes_nothing(self, stream: Stream, event: int) -> None:
        before = self.cursors.status(CLIENT)
        with pytest.raises(BadPositionError, match="is not in that transaction"):
            self.cursors.places.skip(CLIENT, stream.position(event), now=NOW)
        assert self.cursors.status(CLIENT) == before

    def test_a_transaction_whose_end_is_yet_to_come_is_not_skipped(self, stream: Stream) -> None:
        for _ in range(2):
            self.cursors.places.skip(CLIENT, Position.parse(self.cursors.status(CLIENT).acked), now=NOW)
        stream.stage(b"begin", Kind.TRANSACTION_BEGIN)
        stream.put()
        with pytest.raises(BadPositionError, match=r"the end of the transaction at .* is not stored yet"):
            self.cursors.places.skip(CLIENT, stream.position(10), now=NOW)

    def test_a_client_that_is_not_served_skips_nothing(self, stream: Stream) -> None:
        self.cursors.places.seek(CLIENT, stream.position(40), now=NOW)
        with pytest.raises(BadPositionError, match="is not served yet"):
            self.cursors.places.skip(CLIENT, stream.position(40), now=NOW)

    def test_a_client_skips_nothing_before_the_stream_has_begun(self, stream: Stream) -> None:
        new = Cursors(Ring(64), epoch=1, compile_filter=one_table)
        new.subscribe(CLIENT, now=NOW)
        with pytest.raises(BadPositionError, match="is not served yet"):
            new.places.skip(CLIENT, stream.end, now=NOW)

    @pytest.mark.parametrize("more", [0, 1, 2])
    def test_a_transaction_may_be_the_first_slot_of_the_stream(self, more: int) -> None:
        cursors, stream = make()
        cursors.subscribe(CLIENT, now=NOW)
        for _ in range(1 + more):
            stream.advance()
        stream.put()
        assert cursors.places.skip(CLIENT, stream.position(0), now=NOW) == stream.position(1)

    def test_what_was_given_after_it_is_given_again(self, stream: Stream) -> None:
        given = [get(self.cursors, limit=4), get(self.cursors)]
        self.cursors.places.skip(CLIENT, stream.position(3), now=NOW)
        assert self.cursors.clients.outstanding(CLIENT) == 0
        store(self.cursors)
        assert entries(get(self.cursors).slices) == entries(given[1].slices) == [b"begin", b"four", b"end"]

    def test_it_counts_as_a_call_of_the_client(self, stream: Stream) -> None:
        self.cursors.places.skip(CLIENT, stream.position(3), now=NOW + 5)
        assert self.cursors.status(CLIENT).last_active == NOW + 5


class TestPlaceAfterABatch:
    """What a client would have confirmed with a batch is known before it confirms it."""

    def test_it_is_the_cursor_that_the_ack_makes(self) -> None:
        cursors, stream = make()
        cursors.subscribe(CLIENT, now=NOW)
        for _ in range(4):
            put(cursors, stream, b"row")
        batches = [get(cursors, limit=3).batch_id for _ in range(4)]
        places = [cursors.places.place_after(CLIENT, it) for it in batches]
        for it, place in zip(batches, places, strict=True):
            cursors.ack(CLIENT, it, now=NOW)
            found = stored(cursors)
            assert place is not None
            assert (place.position, place.gtid) == (found.position, found.gtid)

    def test_within_a_transaction_it_is_exact_and_has_executed_what_was_before(self) -> None:
        cursors, stream = make()
        cursors.subscribe(CLIENT, now=NOW)
        put(cursors, stream, b"one")
        put(cursors, stream, b"two", b"three")
        place = cursors.places.place_after(CLIENT, get(cursors, limit=5).batch_id)
        assert place is not None
        assert (place.position, place.gtid) == (stream.position(5), "0-101-1")

    def test_after_a_part_of_a_transaction_is_confirmed_it_is_exact_too(self) -> None:
        cursors, stream = make()
        cursors.subscribe(CLIENT, now=NOW)
        put(cursors, stream, b"one", b"two")
        put(cursors, stream, b"three")
        cursors.ack(CLIENT, get(cursors, limit=2).batch_id, now=NOW)
        assert cursors.ring.first == 2
        places = [cursors.places.place_after(CLIENT, get(cursors, limit=limit).batch_id) for limit in (1, 1, 3)]
        assert [(it.position, it.gtid) for it in places if it is not None] == [
            (stream.position(3), ""),
            (stream.position(4), "0-101-1"),
            (stream.position(7), "0-101-2"),
        ]

    def test_what_was_executed_is_learned_from_the_stream_where_the_stored_cursor_does_not_say_it(self) -> None:
        cursors, stream = make()
        cursors.restore(StoredClient(CLIENT, cursor=Cursor.at(stream.end)), NOW)
        put(cursors, stream, b"one")
        place = cursors.places.place_after(CLIENT, get(cursors).batch_id)
        assert place is not None
        assert place.gtid == "0-101-1"

    def test_a_batch_that_is_confirmed_has_none(self) -> None:
        cursors, stream = make()
        cursors.subscribe(CLIENT, now=NOW)
        put(cursors, stream, b"one")
        batch_id = get(cursors).batch_id
        cursors.ack(CLIENT, batch_id, now=NOW)
        with pytest.raises(UnknownBatchError, match=str(batch_id)):
            cursors.places.place_after(CLIENT, batch_id)


class TestGtidsOfABatch:
    """Whatever the entries say, an output can ask for the GTIDs of the transactions that begin in a batch."""

    def test_they_are_by_file_and_begin_also_of_one_that_ends_after_the_batch(self) -> None:
        cursors, stream = make()
        cursors.subscribe(CLIENT, now=NOW)
        put(cursors, stream, b"one")
        put(cursors, stream, b"two", b"three")
        batch = get(cursors, limit=5)
        assert cursors.places.gtids_in(CLIENT, batch.batch_id) == {
            f" {FILE}@{stream.position(0).begin}": "0-101-1",
            f" {FILE}@{stream.position(3).begin}": "0-101-2",
        }
        assert cursors.places.gtids_in(CLIENT, get(cursors).batch_id) == {}

    def test_one_whose_end_is_not_stored_and_a_batch_that_is_confirmed_have_none(self) -> None:
        cursors, stream = make()
        cursors.subscribe(CLIENT, now=NOW)
        stream.stage(b"begin", Kind.TRANSACTION_BEGIN)
        stream.stage(b"one", Kind.ROW_DATA, ("shop", "orders"))
        stream.put()
        batch = get(cursors)
        assert cursors.places.gtids_in(CLIENT, batch.batch_id) == {}
        cursors.ack(CLIENT, batch.batch_id, now=NOW)
        assert cursors.places.gtids_in(CLIENT, batch.batch_id) == {}


class TestContent:
    """A batch has something that its format shows; what it does not show is passed over."""

    def take(self, cursors: Cursors, content: Content = Content.CHANGES, limit: int = 0) -> Batch | None:
        return cursors.get(CLIENT, now=NOW, max_entries=limit, content=content)

    def acked(self, cursors: Cursors) -> str:
        return cursors.status(CLIENT).acked

    @pytest.mark.parametrize("by_position", [False, True])
    def test_it_is_confirmed_with_the_batch_before_it(self, *, by_position: bool) -> None:
        cursors, stream = make()
        cursors.subscribe(CLIENT, now=NOW)
        put(cursors, stream, b"one", b"two")
        first = self.take(cursors, limit=2)
        second = self.take(cursors, limit=1)
        assert first is not None
        assert second is not None
        assert [entries(it.slices) for it in (first, second)] == [[b"begin", b"one"], [b"two"]]
        assert self.take(cursors) is None
        assert self.acked(cursors) == str(stream.position(0)), "what was given is not confirmed"
        cursors.ack(CLIENT, first.batch_id, now=NOW)
        assert self.acked(cursors) == str(stream.position(2))
        if by_position:
            assert cursors.ack_to(CLIENT, Position.parse(second.to), now=NOW)
        else:
            cursors.ack(CLIENT, second.batch_id, now=NOW)
        assert self.acked(cursors) == str(stored(cursors).position) == str(stream.position(4))
        assert len(cursors.ring) == 0

    def test_it_is_confirmed_at_once_when_nothing_is_outstanding(self) -> None:
        cursors, stream = make()
        cursors.subscribe(CLIENT, now=NOW)
        put(cursors, stream, b"one")
        cursors.ack(CLIENT, get(cursors, limit=2).batch_id, now=NOW)
        assert self.take(cursors) is None
        assert self.acked(cursors) == str(stored(cursors).position) == str(stream.position(3))

    def test_it_comes_with_what_comes_again_after_a_rollback(self) -> None:
        cursors, stream = make()
        cursors.subscribe(CLIENT, now=NOW)
        put(cursors, stream, b"one")
        self.take(cursors, limit=2)
        assert self.take(cursors) is None
        cursors.rollback(CLIENT, now=NOW)
        assert entries(get(cursors).slices) == [b"begin", b"one", b"end"]

    def test_a_begin_waits_for_what_follows_unless_the_ring_is_full(self) -> None:
        cursors, stream = make(size=4)
        cursors.subscribe(CLIENT, now=NOW)
        stream.stage(b"begin", Kind.TRANSACTION_BEGIN)
        stream.put()
        assert self.take(cursors) is None
        assert self.acked(cursors) == str(stream.position(0))
        stream.stage(b"one", Kind.ROW_DATA, ("shop", "orders"))
        stream.stage(b"end", Kind.TRANSACTION_END, boundary=True)
        stream.put()
        found = self.take(cursors)
        assert found is not None
        assert entries(found.slices) == [b"begin", b"one", b"end"]
        cursors.ack(CLIENT, found.batch_id, now=NOW)
        stream.stage(b"begin", Kind.TRANSACTION_BEGIN)
        for _ in range(4):
            stream.stage(b"statement", Kind.QUERY)
        putting = threading.Thread(target=stream.put)
        putting.start()
        eventually(lambda: cursors.ring.waiting)
        assert self.take(cursors, Content.ROWS) is None
        putting.join(10)
        assert not putting.is_alive(), "what has no rows holds nothing up"

    def test_rows_are_all_that_some_formats_show(self) -> None:
        cursors, stream = make()
        cursors.subscribe(CLIENT, now=NOW)
        stream.stage(b"alter", Kind.DDL, ("shop", "orders"), boundary=True)
        put(cursors, stream, b"one")
        found = self.take(cursors, Content.ROWS, limit=1)
        assert found is not None
        assert entries(found.slices) == [b"one"]
        cursors.rollback(CLIENT, now=NOW)
        found = self.take(cursors, Content.CHANGES, limit=1)
        assert found is not None
        assert entries(found.slices) == [b"alter"]


def test_what_is_to_be_acked_next_is_what_was_given_first_and_in_that_order() -> None:
    cursors, stream = make()
    cursors.subscribe(CLIENT, now=NOW)
    put(cursors, stream, b"one", b"two", b"three")
    first, second, third = [get(cursors, limit=1).batch_id for _ in range(3)]
    cursors.clients.check_next(CLIENT, [first, second])
    cursors.clients.check_next(CLIENT, [first, second, third])
    for wrong in ([second], [second, first], [first, third], [first, second, third, third + 1]):
        with pytest.raises(UnknownBatchError, match=f"batches {wrong[0]} to {wrong[-1]} next"):
            cursors.clients.check_next(CLIENT, wrong)
    cursors.clients.remember(CLIENT, "before", [first, second])
    assert cursors.clients.take_changes().clients[CLIENT] == cursors.clients.stored()[0]
    cursors.rollback(CLIENT, now=NOW)
    with pytest.raises(UnknownBatchError):
        cursors.clients.check_next(CLIENT, [first])
    with pytest.raises(UnknownBatchError):
        cursors.clients.remember(CLIENT, "later", [first])
    again = get(cursors, limit=1).batch_id
    with pytest.raises(UnknownBatchError, match=f"batches {first} to {again} next"):
        cursors.clients.check_next(CLIENT, [first, second, again])  # what it has of the former ones comes again
    assert cursors.clients.memory(CLIENT) == "before"


# --- a ring that another source fills on -----------------------------------------------------------------------------


def switched(*counts: int, catches_up: bool = False) -> tuple[Cursors, list[Stream]]:
    """A ring that two sources have filled in turns, each with one of the counts of transactions, which both have."""
    ring = Ring(64)
    cursors = Cursors(ring, epoch=1, compile_filter=one_table, catches_up=catches_up)
    streams = [Stream(ring, events=9), Stream(ring, events=70, name="102")]
    cursors.begin(streams[0].end, MariadbGtidSet())
    for turn, count in enumerate(counts):
        if turn:
            cursors.track.switch()
        stream, other = streams[turn % 2], streams[1 - turn % 2]
        for _ in range(count):
            put(cursors, stream, b"row")
            other.events += 3
            other.transactions += 1
    return cursors, streams


def let_read(cursors: Cursors, first: Stream, reader: Stream) -> None:
    """Give a reader to a client whose place is before the ring, while another one holds what the first source wrote."""
    cursors.subscribe(1002, now=NOW)
    place = first.position(6)
    cursors.restore(StoredClient(CLIENT, "", Cursor.at(place, "0-101-1", place)), NOW)
    cursors.readers.start(CLIENT, Track(reader.ring))


@pytest.mark.parametrize("counts", [(2, 2), (2, 3, 2), (3, 0, 2), (2, 1, 1, 2), (0, 2), (2, 0, 0, 1)])
def test_every_place_is_found_as_long_as_the_ring_has_it_whichever_source_it_is_of(counts: tuple[int, ...]) -> None:
    cursors, _ = switched(*counts)
    track, ring = cursors.track, cursors.ring
    places = [track.position_of(it) for it in range(ring.next)]
    for first in range(ring.next):
        track.free_to(first)
        for sequence in range(first, ring.next):
            assert track.sequence_of(places[sequence]) == sequence
        for gone in places[: max(0, first - 1)]:
            with pytest.raises((GoneError, SourceChangedError)):
                track.sequence_of(gone)
    end = track.end
    assert end is not None
    assert track.sequence_of(end) == ring.next
    assert track.sequence_of(replace(end, begin=end.begin + 1)) is None


def test_where_a_source_was_left_the_next_one_goes_on() -> None:
    cursors, (first, _) = switched(2, 0, 0)
    left = first.end
    cursors, (first, second) = switched(2, 2)
    assert cursors.track.sequence_of(left) == 6
    cursors.track.free_to(6)
    assert cursors.track.sequence_of(left) == 6
    assert cursors.track.sequence_of(second.position(76)) == 6


def test_a_source_that_is_left_again_keeps_its_places_though_nothing_of_the_former_one_is_stored() -> None:
    cursors, (first, second) = switched(1)
    cursors.subscribe(CLIENT, now=NOW)
    confirm(cursors, CLIENT)
    cursors.track.switch()
    put(cursors, second, b"row")
    put(cursors, second, b"row")
    assert get(cursors).to == str(second.end)
    middle = second.position(second.events - 3)
    cursors.track.switch()
    assert cursors.track.sequence_of(middle) == 6
    first.events += 6
    put(cursors, first, b"row")
    assert cursors.ack_to(CLIENT, middle, now=NOW)
    assert cursors.status(CLIENT).acked == str(middle)


def test_a_reader_that_has_passed_where_its_source_was_left_joins_where_it_was_read_again() -> None:
    cursors, (first, _) = switched(1, 2, 1, catches_up=True)
    reader = Stream(Ring(64), events=6)
    let_read(cursors, first, reader)
    found = 0
    for count in (3, 1):
        for _ in range(count):
            reader.transaction(b"row")
        reader.put()
        cursors.advance(NOW)
        while (batch := cursors.get(CLIENT, now=NOW)) is not None:
            found += batch.entries
            cursors.ack(CLIENT, batch.batch_id, now=NOW)
            cursors.advance(NOW)
    assert found == 5 * 3, "each transaction once"
    status = cursors.status(CLIENT)
    assert (status.state, status.acked) == ("attached", str(first.end))


def test_a_client_between_where_its_source_was_left_and_where_it_was_read_again_waits_for_a_reader() -> None:
    cursors, (first, _) = switched(1, 2, 1, catches_up=True)
    reader = Stream(Ring(64), events=6)
    let_read(cursors, first, reader)
    for _ in range(3):
        reader.transaction(b"row")
    reader.put()
    cursors.advance(NOW)
    confirm(cursors, CLIENT)
    between = reader.end
    assert cursors.status(CLIENT).acked == str(between)
    cursors.readers.leave()
    assert {it.position for it in cursors.readers.behind.values()} == {between}


def test_an_ack_at_the_next_source_of_the_log_confirms_no_more_than_what_is_before_it(tmp_path: Path) -> None:
    cursors = Cursors(Ring(64), epoch=1, compile_filter=one_table, catches_up=True)
    cursors.begin(Stream(cursors.ring, events=100, name="102").end, MariadbGtidSet())
    reader = first = Stream(Ring(64), events=6)
    let_read(cursors, first, reader)
    reader.transactions = 1
    reader.transaction(b"row")
    reader.put()
    cursors.advance(NOW)
    then = Stream(reader.ring, events=70, name="102")
    place = then.position(72)  # inside a transaction
    with Log(tmp_path, "shop", Limits()) as log:
        log.begin(first.position(6), "0-101-1", {})
        log.append([take(Track(reader.ring), reader.ring.first, reader.ring.next)])
        log.begin(then.end, "0-101-2", {})
        cursors.track.log = log
        assert not cursors.ack_to(CLIENT, place, now=NOW), "what the log has of the former source is before it"
        assert reader.ring.first == reader.ring.next
        for row in (b"two", b"three"):
            then.transaction(row)
        then.put()
        assert cursors.ack_to(CLIENT, place, now=NOW)
        assert cursors.status(CLIENT).acked == str(place)
        assert entries(get(cursors).slices) == [b"end", b"begin", b"three", b"end"]


@pytest.mark.parametrize("has_log", [False, True])
def test_an_ack_beyond_what_a_reader_has_read_of_its_source_confirms_nothing(tmp_path: Path, has_log: bool) -> None:
    cursors = Cursors(Ring(64), epoch=1, compile_filter=one_table, catches_up=True)
    cursors.begin(Stream(cursors.ring, events=100).end, MariadbGtidSet())
    reader = Stream(Ring(64), events=6)
    let_read(cursors, reader, reader)
    reader.transaction(b"row")
    reader.put()
    cursors.advance(NOW)
    with Log(tmp_path, "shop", Limits()) as log:
        log.begin(reader.position(6), "", {})
        log.append([take(Track(reader.ring), reader.ring.first, reader.ring.next)])
        cursors.track.log = log if has_log else None
        assert not cursors.ack_to(CLIENT, reader.position(12), now=NOW)
        assert cursors.status(CLIENT).acked == str(reader.position(6))
        if not has_log:
            with pytest.raises(SourceChangedError):
                cursors.ack_to(CLIENT, replace(reader.position(12), source="102"), now=NOW)


def test_before_the_stream_has_begun_nothing_is_confirmed_of_what_an_earlier_life_gave(tmp_path: Path) -> None:
    cursors = Cursors(Ring(64), epoch=1, compile_filter=one_table, catches_up=True)
    with Log(tmp_path, "shop", Limits()) as log:
        cursors.track.log = log
        cursors.restore(StoredClient(CLIENT), NOW)
        assert not cursors.ack_to(CLIENT, Stream(Ring(64)).position(3), now=NOW)


@pytest.mark.parametrize(("began", "state"), [(9, "attached"), (12, "attached"), (6, "catching-up")])
def test_a_client_comes_back_to_its_place_of_the_former_source(began: int, state: str) -> None:
    cursors, (first, second) = switched(2, 2, catches_up=True)
    place = first.position(began)
    cursors.restore(StoredClient(CLIENT, "", Cursor.at(place, "0-101-1", place)), NOW)
    assert cursors.status(CLIENT).state == state
    if state == "attached":
        confirm(cursors, CLIENT)
        assert cursors.status(CLIENT).acked == str(second.end)


@pytest.mark.parametrize("gtids", ["", "0-101-0"])
def test_a_client_that_comes_after_a_switch_reads_what_the_log_has_of_the_former_source(
    tmp_path: Path, gtids: str
) -> None:
    """A view that was stopped meanwhile has such clients."""
    former = Stream(Ring(64), events=6)
    place = former.end
    former.transaction(b"row")
    former.put()
    cursors = Cursors(Ring(64), epoch=1, compile_filter=one_table, catches_up=True)
    stream = Stream(cursors.ring, events=100, name="102")
    cursors.begin(stream.end, MariadbGtidSet())
    with Log(tmp_path, "shop", Limits()) as log:
        log.begin(place, gtids, {})
        log.append([take(Track(former.ring), 0, former.ring.next)])
        log.begin(stream.end, gtids, {})
        cursors.track.log = log
        put(cursors, stream, b"now")
        cursors.restore(StoredClient(CLIENT, "", Cursor.at(place, gtids)), NOW)
        assert cursors.status(CLIENT).state == "catching-up"
        assert cursors.readers.behind[CLIENT].position == place


@pytest.mark.parametrize(
    ("catches_up", "states"), [(True, ["catching-up", "attached"]), (False, ["ahead", "attached"])]
)
def test_a_client_reads_from_the_log_what_the_ring_has_not_come_to(
    tmp_path: Path, catches_up: bool, states: list[str]
) -> None:
    former = Stream(Ring(64))
    for row in (b"zero", b"one", b"two"):
        former.transaction(row)
    former.put()
    cursors, stream = make(catches_up=catches_up)
    with Log(tmp_path, "shop", Limits()) as log:
        log.begin(former.position(0), "", {})
        log.append([take(Track(former.ring), 0, former.ring.next)])
        cursors.track.log = log
        put(cursors, stream, b"zero")
        found = []
        for client_id, place in ((1, former.position(6)), (2, former.position(3))):
            cursors.restore(StoredClient(client_id, "", Cursor.at(place, "", place)), NOW)
            found.append(cursors.status(client_id).state)
        assert found == states


def test_a_reader_meets_the_ring_in_the_part_of_its_source() -> None:
    cursors, (first, second) = switched(1, 2, catches_up=True)
    reader = Stream(Ring(64), events=70, name="102")
    let_read(cursors, first, reader)
    reader.transaction(b"row")
    reader.transaction(b"row")
    reader.put()
    cursors.advance(NOW)
    confirm(cursors, CLIENT)
    cursors.advance(NOW)
    assert cursors.status(CLIENT).state == "attached"
    assert cursors.status(CLIENT).acked == str(reader.end)
    confirm(cursors, CLIENT)
    assert cursors.status(CLIENT).acked == str(second.end)


def test_places_of_the_former_source_are_acked_as_before() -> None:
    cursors, (first, second) = switched(2, 2)
    cursors.subscribe(CLIENT, now=NOW)
    batches = [get(cursors, limit=3) for _ in range(3)]
    assert batches[-1].to == str(second.position(79))
    assert cursors.ack_to(CLIENT, first.position(10), now=NOW), "inside a batch"
    assert cursors.status(CLIENT).marks == [it.batch_id for it in batches]
    assert cursors.ack_to(CLIENT, first.position(12), now=NOW)
    assert cursors.ack_to(CLIENT, first.position(15), now=NOW)
    assert cursors.ack_to(CLIENT, first.position(12), now=NOW), "it may be repeated"
    assert cursors.status(CLIENT).marks == [batches[-1].batch_id]
    assert cursors.ack_to(CLIENT, second.position(79), now=NOW)
    assert cursors.status(CLIENT).marks == []
    with pytest.raises(BadPositionError, match="is beyond what client 1001 was given"):
        cursors.ack_to(CLIENT, second.end, now=NOW)


def test_a_place_of_the_source_that_has_just_been_switched_to_is_waited_for() -> None:
    """Of a new life, in which the client has not been given anything."""
    cursors, (first, second) = switched(2)
    cursors.restore(StoredClient(CLIENT, "", Cursor.at(first.position(9), "", first.position(9))), NOW)
    place = second.position(second.events + 3)
    with pytest.raises(SourceChangedError):
        cursors.ack_to(CLIENT, place, now=NOW)
    cursors.track.switch()
    assert not cursors.ack_to(CLIENT, place, now=NOW)
    put(cursors, second, b"row")
    assert cursors.ack_to(CLIENT, place, now=NOW)
    assert cursors.status(CLIENT).acked == str(place)
    cursors.track.switch()
    assert not cursors.ack_to(CLIENT, replace(place, source="103"), now=NOW), "it was left as well"


def test_a_cursor_of_canal_that_the_stream_has_not_come_to_is_not_looked_for_at_another_source() -> None:
    """There an event of the same file and offset is another one; GTIDs say what came before, not where that is."""
    cursors, (first, second) = switched(2)
    at = first.position(first.events + 100)
    cursors.restore(StoredClient(CLIENT, "", Cursor(at.file, at.begin, 0, 101, "0-101-34")), NOW)
    assert [*cursors.places.bound()] == cursors.places.pass_switch("switched", By()) == [CLIENT]
    cursors.track.switch()
    put(cursors, second, b"first")
    cursors.gate.take_changes()
    cursors.gate.end_store(durable=True)
    marker = get(cursors)
    cursors.ack(CLIENT, marker.batch_id, now=NOW)
    assert entries(get(cursors).slices) == [b"begin", b"first", b"end"]
