"""Rows that come out of their order: who is given them, when, and what confirms them."""

from dataclasses import replace

import pytest

from sluice.protocol.cut import Cut
from sluice.protocol.errors import AckOutOfOrderError, BadPositionError, UnknownBatchError
from sluice.store.batch import Batch, LateRows
from sluice.store.cursor import Cursor, StoredClient
from sluice.store.cursors import Cursors
from sluice.store.ring import Ring
from tests.stream import Stream, entries
from tests.unit.test_cursors import CLIENT, NOW, get, make, one_table, put, store

ENTRY = b"\x12\x04late"


@pytest.fixture
def destination() -> tuple[Cursors, Stream, LateRows]:
    """A client that has confirmed a transaction, and rows that belong before its end."""
    cursors, stream = make()
    cursors.subscribe(CLIENT, now=NOW)
    place = replace(stream.end, n=1)
    put(cursors, stream, b"one")
    cursors.ack(CLIENT, get(cursors).batch_id, now=NOW)
    rows = LateRows(place, "shop", "orders", ENTRY, 2, 1000, b"\x04\x01")
    cursors.snapshots.late[str(place)] = rows
    return cursors, stream, rows


def stored(cursors: Cursors) -> StoredClient:
    (found,) = cursors.clients.stored()
    return found


def is_late(batch: Batch) -> bool:
    return batch.is_late and batch.from_ == batch.to and b"".join(batch.slices) == ENTRY


def test_a_client_that_has_passed_their_place_is_given_them_in_a_batch_of_their_own(
    destination: tuple[Cursors, Stream, LateRows],
) -> None:
    cursors, stream, rows = destination
    assert cursors.snapshots.give_late(CLIENT, rows)
    put(cursors, stream, b"two")
    late = get(cursors)
    assert is_late(late)
    assert (late.rows, late.entries, late.timestamp, late.positions) == (2, 1, 1000, b"\x04\x01")
    following = get(cursors)
    assert entries(following.slices) == [b"begin", b"two", b"end"]
    assert following.from_ == late.to
    with pytest.raises(AckOutOfOrderError):
        cursors.ack(CLIENT, following.batch_id, now=NOW)
    cursors.ack(CLIENT, late.batch_id, now=NOW)
    assert stored(cursors).late == ()
    cursors.ack(CLIENT, following.batch_id, now=NOW)
    assert cursors.get(CLIENT, now=NOW) is None


def test_a_client_before_their_place_or_with_another_filter_is_not_given_them(
    destination: tuple[Cursors, Stream, LateRows],
) -> None:
    cursors, stream, rows = destination
    assert not cursors.snapshots.give_late(CLIENT, replace(rows, position=stream.end))
    cursors.subscribe(CLIENT, filter_text="shop.others", now=NOW)
    assert not cursors.snapshots.give_late(CLIENT, rows)
    cursors.subscribe(2, start="latest", now=NOW)
    assert not cursors.snapshots.give_late(2, replace(rows, position=stream.end))
    assert [it.late for it in cursors.clients.stored()] == [(), ()]


def test_of_a_group_the_place_of_their_member_alone_counts(
    destination: tuple[Cursors, Stream, LateRows], monkeypatch: pytest.MonkeyPatch
) -> None:
    cursors, stream, rows = destination
    subscriber = cursors.clients.find(CLIENT)
    reached = Cut({"a": stream.end, "b": replace(stream.end, n=5)})
    monkeypatch.setattr(type(subscriber), "cursor", Cursor.at(reached))
    for member, place, expected in (
        ("a", stream.end, False),
        ("a", rows.position, True),
        ("b", stream.end, True),
        ("c", rows.position, False),
    ):
        late = replace(rows, position=Cut({member: place}))
        assert cursors.snapshots.give_late(CLIENT, late) is expected, (member, place)


def test_a_client_with_a_filter_is_given_those_of_tables_that_it_wants_by_then(
    destination: tuple[Cursors, Stream, LateRows],
) -> None:
    cursors, _, rows = destination
    cursors.subscribe(CLIENT, filter_text="shop.orders", now=NOW)
    assert cursors.snapshots.give_late(CLIENT, rows)
    assert is_late(get(cursors))
    cursors.rollback(CLIENT, now=NOW)
    cursors.subscribe(CLIENT, filter_text="shop.others", now=NOW)
    assert cursors.get(CLIENT, now=NOW) is None


def test_a_client_without_a_place_or_in_another_history_is_not_given_them(
    destination: tuple[Cursors, Stream, LateRows],
) -> None:
    cursors, _, rows = destination
    assert not cursors.snapshots.give_late(CLIENT, replace(rows, position=replace(rows.position, source="other")))
    new = Cursors(Ring(64), epoch=1, compile_filter=one_table)
    new.subscribe(CLIENT, now=NOW)
    assert not new.snapshots.give_late(CLIENT, rows)


def test_that_they_are_to_be_given_and_that_they_have_arrived_is_stored(
    destination: tuple[Cursors, Stream, LateRows],
) -> None:
    cursors, _, rows = destination
    cursors.clients.take_changes()
    cursors.snapshots.give_late(CLIENT, rows)
    assert list(cursors.clients.take_changes().clients) == [CLIENT]
    cursors.ack(CLIENT, get(cursors).batch_id, now=NOW)
    assert list(cursors.clients.take_changes().clients) == [CLIENT]


def test_after_they_were_given_nothing_beyond_can_be_acked_by_position(
    destination: tuple[Cursors, Stream, LateRows],
) -> None:
    cursors, _, rows = destination
    cursors.snapshots.give_late(CLIENT, rows)
    later, stream = make(epoch=2)
    later.snapshots.late[str(rows.position)] = rows
    later.restore(stored(cursors), NOW)
    put(later, stream, b"one")
    put(later, stream, b"two")
    assert is_late(get(later))
    with pytest.raises(BadPositionError, match="beyond what client"):
        later.ack_to(CLIENT, stream.end, now=NOW)


def test_they_are_given_again_after_a_rollback_and_in_another_life_until_they_are_confirmed(
    destination: tuple[Cursors, Stream, LateRows],
) -> None:
    cursors, stream, rows = destination
    cursors.snapshots.give_late(CLIENT, rows)
    lost = get(cursors)
    cursors.rollback(CLIENT, now=NOW)
    with pytest.raises(UnknownBatchError):
        cursors.ack(CLIENT, lost.batch_id, now=NOW)
    assert is_late(get(cursors))
    later, stream = make(epoch=2)
    later.snapshots.late[str(rows.position)] = rows
    later.restore(stored(cursors), NOW)
    put(later, stream, b"one")
    again = get(later)
    assert is_late(again)
    later.ack(CLIENT, again.batch_id, now=NOW)
    assert stored(later).late == ()


def test_without_their_bytes_they_wait_and_hold_nothing_up(destination: tuple[Cursors, Stream, LateRows]) -> None:
    cursors, stream, rows = destination
    cursors.snapshots.give_late(CLIENT, rows)
    cursors.snapshots.late.clear()
    put(cursors, stream, b"two")
    assert entries(get(cursors).slices) == [b"begin", b"two", b"end"]
    assert stored(cursors).late == (str(rows.position),)


def test_an_event_that_gives_several_entries_has_all_of_them_in_its_batch(
    destination: tuple[Cursors, Stream, LateRows],
) -> None:
    cursors, _, rows = destination
    cursors.snapshots.late[str(rows.position)] = replace(rows, entries=2 * ENTRY, positions=b"\x04\x01\x04\x02")
    assert cursors.snapshots.give_late(CLIENT, rows)
    batch = get(cursors)
    assert (batch.entries, batch.bytes, batch.positions) == (2, 2 * len(ENTRY), b"\x04\x01\x04\x02")


def test_they_do_not_come_within_a_transaction(destination: tuple[Cursors, Stream, LateRows]) -> None:
    cursors, stream, rows = destination
    put(cursors, stream, b"two", b"three")
    assert entries(get(cursors, limit=2).slices) == [b"begin", b"two"]
    cursors.snapshots.give_late(CLIENT, rows)
    assert entries(get(cursors).slices) == [b"three", b"end"]
    assert is_late(get(cursors))


def test_they_do_not_come_within_a_transaction_whose_beginning_is_freed(
    destination: tuple[Cursors, Stream, LateRows],
) -> None:
    cursors, stream, rows = destination
    put(cursors, stream, b"two", b"three")
    cursors.ack(CLIENT, get(cursors, limit=2).batch_id, now=NOW)
    assert cursors.ring.first > 3
    cursors.snapshots.give_late(CLIENT, rows)
    assert entries(get(cursors).slices) == [b"three", b"end"]
    assert is_late(get(cursors))


def test_an_ack_by_position_confirms_them_only_with_what_was_given_after_them(
    destination: tuple[Cursors, Stream, LateRows],
) -> None:
    cursors, stream, rows = destination
    put(cursors, stream, b"two")
    before = get(cursors)
    cursors.snapshots.give_late(CLIENT, rows)
    assert is_late(get(cursors))
    assert cursors.ack_to(CLIENT, stream.end, now=NOW)
    assert stored(cursors).late == (str(rows.position),)
    put(cursors, stream, b"three")
    assert entries(get(cursors).slices) == [b"begin", b"three", b"end"]
    assert cursors.ack_to(CLIENT, stream.end, now=NOW)
    assert stored(cursors).late == ()
    assert not before.is_late


def test_a_client_that_waits_for_its_tables_is_told_that_they_have_come(
    destination: tuple[Cursors, Stream, LateRows],
) -> None:
    cursors, _, rows = destination
    cursors.subscribe(CLIENT, filter_text="shop.orders", now=NOW)
    store(cursors)
    cursors.resting.take_roused()
    assert cursors.get(CLIENT, now=NOW) is None
    assert cursors.rest(CLIENT)
    cursors.snapshots.give_late(CLIENT, rows)
    assert cursors.resting.take_roused() == {CLIENT}
    assert is_late(get(cursors))


def test_no_range_holds_them(destination: tuple[Cursors, Stream, LateRows]) -> None:
    cursors, stream, rows = destination
    begin = stream.end
    cursors.snapshots.give_late(CLIENT, rows)
    put(cursors, stream, b"two")
    found = cursors.ranges.read(CLIENT, begin, stream.end)
    assert found is not None
    assert entries(found.slices) == [b"begin", b"two", b"end"]
    assert is_late(get(cursors))
