"""Where clients begin that come with a log, a cursor or an owner, and what is known of them in another life."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice.protocol.errors import BadPositionError, FilterError, OwnedError
from sluice.protocol.gtid import MariadbGtidSet
from sluice.store.batch import LateRows
from sluice.store.cursor import Cursor, StoredClient
from sluice.store.cursors import Cursors
from sluice.store.log.log import Limits, Log, take
from sluice.store.moves import By
from sluice.store.ring import Ring
from sluice.store.snapshot import Chunk, Piece, TableProgress, Window
from sluice.store.track import Track
from tests.stream import FILE, SERVER_ID, Stream, entries
from tests.unit.test_cursors import CLIENT, NOW, confirm, get, make, one_table, put, refused, store, stored
from tests.unit.test_touched import block, touched

ME = By("me", 5.0)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    """It has two transactions."""
    source = Stream(Ring(64))
    for row in (b"zero", b"one"):
        source.transaction(row)
    source.put()
    with Log(tmp_path, "shop", Limits()) as log:
        log.begin(source.position(0), "", {})
        log.append([take(Track(source.ring), 0, source.ring.next)])
        yield log


@pytest.mark.parametrize(("catches_up", "state"), [(True, "catching-up"), (False, "attached")])
def test_earliest_is_where_the_log_begins_if_there_are_readers(log: Log, catches_up: bool, state: str) -> None:
    ring = Ring(64)
    cursors, stream = Cursors(ring, epoch=1, compile_filter=one_table, catches_up=catches_up), Stream(ring, events=6)
    cursors.begin(stream.end, MariadbGtidSet())
    cursors.track.log = log
    assert cursors.subscribe(CLIENT, start="earliest", now=NOW).state == state
    assert [it.position for it in cursors.readers.behind.values()] == [stream.position(0)] * catches_up
    assert cursors.subscribe(2, start="latest", now=NOW).state == "attached"


def test_a_client_that_begins_at_a_cursor_has_got_what_is_before_it() -> None:
    cursors, stream = make()
    put(cursors, stream, b"one")
    for client_id, delivered in ((1, None), (2, stream.position(2))):
        cursors.subscribe(client_id, start=Cursor.at(stream.position(3), "", delivered), now=NOW)
        assert stored(cursors, client_id).delivered == (delivered or stream.position(3))


def test_a_client_may_begin_at_a_cursor_that_canal_wrote() -> None:
    cursors, stream = make()
    put(cursors, stream, b"one")
    put(cursors, stream, b"two")
    assert cursors.subscribe(CLIENT, start=Cursor(FILE, 304, 0, SERVER_ID), now=NOW).state == "attached"
    assert entries(get(cursors).slices) == [b"begin", b"two", b"end"]


def test_a_client_with_a_refused_filter_that_is_moved_gets_the_tables_of_its_filter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cursors, stream = make()
    monkeypatch.setattr(cursors.admission, "_compile_filter", refused)
    cursors.restore(StoredClient(CLIENT, "shop.orders", None), NOW)
    monkeypatch.undo()
    cursors.places.seek(CLIENT, "earliest", now=NOW)
    store(cursors)
    for table in ("items", "orders"):
        stream.transaction(table.encode(), table=("shop", table))
    stream.put()
    assert entries(get(cursors).slices) == [b"begin", b"orders", b"end"]


def test_a_client_that_is_inherited_is_stored_at_once() -> None:
    cursors, stream = make()
    cursors.inherit(CLIENT, StoredClient(7, "", Cursor.at(stream.end)), NOW)
    assert list(cursors.clients.take_changes().clients) == [CLIENT]


def test_what_an_output_owns_is_acked_and_skipped_by_hand_alone() -> None:
    cursors, stream = make()
    cursors.subscribe(CLIENT, output="kafka", now=NOW)
    put(cursors, stream, b"one")
    put(cursors, stream, b"two")
    with pytest.raises(OwnedError):
        cursors.unsubscribe(CLIENT)
    with pytest.raises(OwnedError):
        cursors.ack_to(CLIENT, stream.position(0), now=NOW)
    assert cursors.places.skip(CLIENT, stream.position(0), now=NOW, by=ME) == stream.position(3)
    assert cursors.ack_to(CLIENT, stream.position(3), now=NOW, by=ME)


@pytest.mark.parametrize("call", ["seek", "go_back"])
def test_after_a_move_nothing_beyond_what_was_given_can_be_acked(call: str) -> None:
    earlier, stream = make()
    earlier.subscribe(CLIENT, now=NOW)
    put(earlier, stream, b"one")
    confirm(earlier, CLIENT)
    cursors, stream = make(epoch=2)
    cursors.restore(earlier.clients.stored()[0], NOW)
    put(cursors, stream, b"one")
    put(cursors, stream, b"two")
    if call == "seek":
        cursors.places.seek(CLIENT, str(stream.position(3)), now=NOW)
    else:
        cursors.go_back(CLIENT, now=NOW)
    with pytest.raises(BadPositionError, match="beyond what client"):
        cursors.ack_to(CLIENT, stream.end, now=NOW)


def test_a_client_that_goes_back_into_the_log_holds_nothing_of_the_ring() -> None:
    cursors, stream = make(catches_up=True)
    for client_id in (CLIENT, 2):
        cursors.subscribe(client_id, now=NOW)
    put(cursors, stream, b"one", b"two")
    put(cursors, stream, b"three")
    for _ in range(2):
        cursors.ack(CLIENT, get(cursors, limit=1).batch_id, now=NOW)
    confirm(cursors, 2)
    assert cursors.ring.first == 2
    cursors.go_back(CLIENT, now=NOW)
    assert cursors.readers.behind.keys() == {CLIENT}
    assert cursors.ring.first == cursors.ring.next


def test_a_client_goes_back_to_the_beginning_before_that_has_a_name() -> None:
    cursors = Cursors(Ring(64), epoch=1, compile_filter=one_table)
    cursors.subscribe(CLIENT, now=NOW)
    assert cursors.go_back(CLIENT, now=NOW)
    assert cursors.status(CLIENT).state == "attached"


def test_what_a_client_remembers_is_stored_once() -> None:
    cursors, stream = make()
    cursors.subscribe(CLIENT, now=NOW)
    put(cursors, stream, b"one", b"two")
    for expected in ([CLIENT], []):
        batch = get(cursors, limit=1)
        cursors.clients.take_changes()
        cursors.ack(CLIENT, batch.batch_id, now=NOW, memory="a text")
        assert list(cursors.clients.take_changes().clients) == expected


def test_a_client_whose_place_has_come_keeps_its_batches_whatever_becomes_of_those_that_wait() -> None:
    cursors, stream = make()
    cursors.restore(StoredClient(CLIENT, "", Cursor.at(stream.position(3))), NOW)
    put(cursors, stream, b"one")
    put(cursors, stream, b"two")
    batch = get(cursors)
    assert cursors.places.bound() == {}
    assert cursors.status(CLIENT).marks == [batch.batch_id]


def test_a_new_client_that_is_protected_is_held_at_once(log: Log) -> None:
    cursors, stream = make()
    cursors.track.log = log
    put(cursors, stream, b"zero")
    cursors.subscribe(CLIENT, start=str(stream.position(0)), protected=True, now=NOW)
    assert log.held.keys() == {CLIENT}


def test_a_view_that_ends_holds_neither_ring_nor_log(log: Log) -> None:
    cursors, stream = make()
    view = Cursors(cursors.ring, epoch=1, compile_filter=one_table, main=cursors)
    cursors.track.log = log
    cursors.subscribe(CLIENT, now=NOW)
    view.subscribe(CLIENT, protected=True, now=NOW)
    put(cursors, stream, b"zero")
    confirm(cursors, CLIENT)
    assert list(cursors.with_views) == [cursors, view]
    assert (cursors.ring.first, len(log.held)) == (0, 1)
    view.leave()
    assert list(cursors.with_views) == [cursors]
    assert (cursors.ring.first, log.held) == (cursors.ring.next, {})


class TestWhatIsHeld:
    """Nothing more comes for a client before it has taken what is there."""

    @pytest.fixture
    def cursors(self) -> Cursors:
        """A client that has confirmed all there is."""
        cursors, self.stream = make()
        cursors.subscribe(CLIENT, now=NOW)
        put(cursors, self.stream, b"one")
        confirm(cursors, CLIENT)
        store(cursors)
        return cursors

    def test_is_nothing_where_all_is_confirmed(self, cursors: Cursors) -> None:
        assert not cursors.is_held(CLIENT)

    def test_is_nothing_of_a_client_that_is_not_served(self, cursors: Cursors) -> None:
        cursors.fall_out(CLIENT, FilterError("it is refused"))
        assert not cursors.is_held(CLIENT)

    def test_is_a_late_row(self, cursors: Cursors) -> None:
        late = LateRows(self.stream.position(0), "shop", "orders", b"", 1, 0, b"")
        cursors.snapshots.late[str(late.position)] = late
        cursors.snapshots.give_late(CLIENT, late)
        assert cursors.is_held(CLIENT)

    def test_are_rows_of_a_snapshot(self, cursors: Cursors) -> None:
        cursors.snapshots.add(CLIENT, [TableProgress("shop", "goods")], 0)
        wish = cursors.snapshots.wish(CLIENT)
        assert wish is not None
        window = Window(wish, touched())
        cursors.snapshots.open_window(CLIENT, window)
        assert not cursors.is_held(CLIENT)
        piece = Piece(block(("a", "1")), ("'a'",))
        assert cursors.snapshots.fill_window(
            CLIENT, window, Chunk([piece], self.stream.end, (0, 2), None, True, 1, 1.5)
        )
        assert cursors.is_held(CLIENT)
