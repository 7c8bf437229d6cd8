"""When the subscribers of a destination are looked at, and under which keys what they need is kept."""

import pytest

from sluice.store.retention import FEW, LOG, SHARE, Look
from sluice.store.ring import Kind, Ring
from tests.stream import Stream
from tests.unit.test_cursors import confirm, make

FIRST_ID = -(1 << 15)
"""The least id of a client."""


def test_subscribers_are_looked_at_first_of_all_and_then_not_before_something_was_put() -> None:
    ring, look = Ring(1024, 1 << 20), Look()
    assert look.is_due(ring, 1000)
    look.next = 1
    assert not look.is_due(ring, 1000)


def put(stream: Stream, slots: int, size: int = 1) -> None:
    for _ in range(slots):
        stream.stage(b"x" * size, Kind.ROW_DATA, boundary=True)
    assert stream.put()


@pytest.mark.parametrize(("subscribers", "slots"), [(FEW + 8, 8), (FEW + 1, 1), (1000, 1024 // SHARE)])
def test_many_subscribers_are_looked_at_again_after_as_many_slots_or_a_part_of_the_ring(
    subscribers: int, slots: int
) -> None:
    ring, look = Ring(1024, 1 << 20), Look()
    stream = Stream(ring)
    put(stream, 5)
    look.take(ring)
    if slots > 1:
        put(stream, slots - 1)
    assert not look.is_due(ring, subscribers)
    put(stream, 1)
    assert look.is_due(ring, subscribers)
    look.take(ring)
    assert not look.is_due(ring, subscribers)


def test_subscribers_are_looked_at_again_when_a_part_of_the_memory_was_put() -> None:
    ring, look = Ring(1024, 1 << 16), Look()
    stream = Stream(ring)
    put(stream, 1, 100)
    look.take(ring)
    part, before = (1 << 16) // SHARE, ring.put_bytes
    put(stream, 1, part - 10)
    assert before + part - 10 <= ring.put_bytes < before + part
    assert not look.is_due(ring, 1000)
    put(stream, 1, before + part - ring.put_bytes - 2)  # and two bytes of a frame
    assert ring.put_bytes == before + part
    assert look.is_due(ring, 1000)


@pytest.mark.parametrize(("subscribers", "first"), [(FEW, 1), (FEW + 1, 0)], ids=["few", "many"])
def test_what_few_confirm_is_freed_at_once_and_what_many_do_a_little_later(subscribers: int, first: int) -> None:
    cursors, stream = make()
    for client_id in range(subscribers):
        cursors.subscribe(client_id, now=0)
    put(stream, 1)
    cursors.advance(0)
    for client_id in range(subscribers):
        confirm(cursors, client_id)
    assert cursors.ring.first == first
    put(stream, 1)
    cursors.advance(0)
    assert cursors.ring.first == 1


def test_no_client_has_the_key_of_the_log() -> None:
    cursors, _ = make()
    assert cursors.clients.key(FIRST_ID) > LOG
