"""Whose a client is: what an output owns, nobody else takes, and it is known after a restart."""

import pytest

from sluice.protocol.errors import OwnedError
from sluice.store.admission import Defaults
from sluice.store.allowance import Limits
from sluice.store.cursor import StoredClient
from sluice.store.cursors import Cursors
from sluice.store.track import EVERYTHING, Wanted
from tests.unit.test_cursors import CLIENT, NOW, make, store

OUTPUT = "mq"


@pytest.fixture
def cursors() -> Cursors:
    """One client, which is stored; clients of none but outputs are limited."""
    cursors, _ = make(defaults=Defaults(limits=Limits(max_rate=1000)))
    cursors.subscribe(CLIENT, now=NOW)
    store(cursors)
    return cursors


def own(cursors: Cursors, output: str) -> None:
    cursors.admission.own(cursors.clients.find(CLIENT), output)


def written(cursors: Cursors) -> StoredClient | None:
    """What is to be stored of the client; None if nothing is."""
    return cursors.clients.take_changes().clients.get(CLIENT)


def rate(cursors: Cursors) -> int:
    return cursors.clients.allowance(CLIENT).max_rate


def test_a_client_that_an_output_owns_is_stored_as_its_own_and_is_not_limited(cursors: Cursors) -> None:
    assert rate(cursors) == 1000
    own(cursors, OUTPUT)
    assert (client := written(cursors)) is not None
    assert client.output == OUTPUT
    assert rate(cursors) == 0
    assert cursors.admission.has_output


def test_an_output_that_goes_on_with_its_client_changes_nothing(cursors: Cursors) -> None:
    own(cursors, OUTPUT)
    store(cursors)
    own(cursors, OUTPUT)
    assert written(cursors) is None


def test_nobody_else_takes_the_client_of_an_output(cursors: Cursors) -> None:
    own(cursors, "")
    own(cursors, OUTPUT)
    with pytest.raises(OwnedError):
        own(cursors, "")


def test_a_client_that_is_released_is_stored_as_anyones_and_is_limited_again(cursors: Cursors) -> None:
    own(cursors, OUTPUT)
    store(cursors)
    assert cursors.admission.release(CLIENT) == OUTPUT
    assert (client := written(cursors)) is not None
    assert client.output == ""
    assert rate(cursors) == 1000
    assert not cursors.admission.has_output


def test_a_call_that_was_refused_is_stored_with_the_client(cursors: Cursors) -> None:
    cursors.admission.note_refused_call(CLIENT, "at noon: ack by bob")
    assert (client := written(cursors)) is not None
    assert client.output == ""
    own(cursors, OUTPUT)
    cursors.admission.note_refused_call(CLIENT, "at noon: ack by bob")
    assert (client := written(cursors)) is not None
    assert client.refused == "at noon: ack by bob"


def test_an_owner_is_known_of_clients_only(cursors: Cursors) -> None:
    assert cursors.admission.owners(CLIENT) == ("", "")
    assert cursors.admission.owners(CLIENT + 1) is None
    own(cursors, OUTPUT)
    assert cursors.admission.owners(CLIENT) == (OUTPUT, "")


@pytest.mark.parametrize("filter_text", ["", "shop.orders"])
@pytest.mark.parametrize("given", [False, True])
def test_texts_of_statements_are_only_for_clients_without_a_filter_and_if_nothing_is_left_out(
    filter_text: str, *, given: bool
) -> None:
    cursors, _ = make(defaults=Defaults(texts=given))
    assert cursors.admission.compile(filter_text, "").texts == (given and not filter_text)


def test_unless_the_destination_says_so_nobody_gets_the_texts_of_statements() -> None:
    assert not Defaults().texts
    assert not Wanted(None).texts
    assert EVERYTHING.texts
