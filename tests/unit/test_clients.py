"""What is to be stored of a client, and when."""

import pytest

from sluice.store.admission import Defaults
from sluice.store.allowance import Limits
from sluice.store.cursor import Cursor, StoredClient
from sluice.store.cursors import Cursors
from sluice.store.ring import Ring
from tests.stream import Stream
from tests.unit.test_cursors import CLIENT, NOW, get, make, one_table, put, store

DAY = 86_400.0


@pytest.fixture
def cursors() -> Cursors:
    """One client, which is stored."""
    cursors, stream = make()
    cursors.subscribe(CLIENT, now=NOW)
    put(cursors, stream, b"one")
    store(cursors)
    return cursors


def written(cursors: Cursors) -> StoredClient:
    """What is to be stored of the client."""
    client = cursors.clients.take_changes().clients[CLIENT]
    assert client is not None
    return client


def test_limits_of_its_own_count_at_once_and_are_stored(cursors: Cursors) -> None:
    cursors.clients.limit(CLIENT, Limits(max_rate=5, quota=7))
    allowance = cursors.clients.allowance(CLIENT)
    assert (allowance.max_rate, allowance.quota) == (5, 7)
    assert written(cursors).limits == Limits(max_rate=5, quota=7)


def test_a_new_one_has_the_limits_of_its_destination() -> None:
    cursors, _ = make(defaults=Defaults(limits=Limits(max_rate=5)))
    cursors.subscribe(CLIENT + 1, now=NOW)
    assert cursors.clients.allowance(CLIENT + 1).max_rate == 5


def test_what_it_was_given_is_stored_only_if_it_has_a_quota(cursors: Cursors) -> None:
    cursors.clients.charge(CLIENT, 3, DAY)
    assert not cursors.clients.changed
    cursors.clients.limit(CLIENT, Limits(quota=7))
    store(cursors)
    cursors.clients.charge(CLIENT, 3, DAY)
    assert written(cursors).used == "1:3"


def test_what_it_keeps_with_its_cursor_is_stored_before_its_batches_are_acked(cursors: Cursors) -> None:
    batch = get(cursors)
    cursors.clients.remember(CLIENT, "the topic has one record", [batch.batch_id])
    assert written(cursors).memory == "the topic has one record"


def test_what_could_not_be_stored_is_to_be_stored_again(cursors: Cursors) -> None:
    cursors.clients.limit(CLIENT, Limits(quota=7))
    changes = cursors.clients.take_changes()
    assert not cursors.clients.changed
    cursors.clients.end_store(changes, durable=False)
    assert written(cursors).limits == Limits(quota=7)


def test_one_that_is_removed_is_to_be_removed_where_it_is_stored(cursors: Cursors) -> None:
    cursors.unsubscribe(CLIENT)
    assert cursors.clients.take_changes().clients == {CLIENT: None}


@pytest.mark.parametrize(("output", "moved"), [("kafka", "by hand"), ("", "")])
def test_how_it_was_moved_by_hand_is_stored_if_an_output_owns_it(cursors: Cursors, output: str, moved: str) -> None:
    cursors.admission.own(cursors.clients.find(CLIENT), output)
    store(cursors)
    cursors.clients.tell_owner(CLIENT, "by hand")
    assert cursors.clients.moved(CLIENT) == moved
    assert cursors.clients.changed is bool(output)


def test_of_those_that_are_protected_the_places_are_known() -> None:
    cursors = Cursors(Ring(64), epoch=1, compile_filter=one_table)
    place = Cursor.at(Stream(Ring(64)).position(3))
    for client_id, protected in ((1, True), (2, False)):
        cursors.restore(StoredClient(client_id, "", place, protected=protected), NOW)
    cursors.subscribe(3, protected=True, now=NOW)
    assert cursors.clients.protected == {1: place}, "that of the third has no name yet"
