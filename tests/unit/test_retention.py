"""When the subscribers of a destination are looked at, and under which keys what they need is kept."""

from sluice.store.retention import LOG, Look
from sluice.store.ring import Ring

FIRST_ID = -(1 << 15)
"""The least id of a client, which is its key in a destination itself."""


def test_subscribers_are_looked_at_first_of_all_and_then_not_before_something_was_put() -> None:
    ring, look = Ring(1024, 1 << 20), Look()
    assert look.is_due(ring, 1000)
    look.next = 1
    assert not look.is_due(ring, 1000)


def test_no_client_has_the_key_of_the_log() -> None:
    assert LOG < FIRST_ID
