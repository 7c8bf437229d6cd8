"""A ring as a part of the stream."""

import pytest

from sluice.protocol.cut import Executed
from sluice.protocol.gtid import MariadbGtidSet
from sluice.protocol.position import Position
from sluice.store import stream
from sluice.store.cursor import Cursor
from sluice.store.reading import Reading
from sluice.store.ring import Ring
from sluice.store.track import Track, Wanted
from tests.stream import CREATED, Stream


def texts(gtids: Executed) -> dict[str, str]:
    return {member: str(it) for member, it in gtids.items()}


def test_a_place_that_a_growing_ring_has_not_reached_is_waited_for() -> None:
    class Growing(Track):
        """Each look finds one more transaction, as when another thread puts them."""

        looks = 0

        @property
        def shown(self) -> int:
            self.looks += 1
            return min(self.ring.next, 3 * self.looks)

    ring = Ring()
    track, source = Growing(ring), Stream(ring)
    track.begin(source.end)
    for _ in range(9):
        source.transaction(b"row")
        source.put()
    assert track.sequence_of(source.end) is None
    track.looks = 8
    assert track.sequence_of(source.end) == ring.next == 27


def test_what_one_member_has_executed_is_not_counted_for_another() -> None:
    """Both write the same GTIDs, as two servers that were loaded from one backup do."""
    ring = Ring()
    track = Track(ring)
    one, other, unknown = (Stream(ring, member=member) for member in ("one", "other", "unknown"))
    track.begin(one.position(0), "one")
    track.gtids = {"one": MariadbGtidSet(), "other": MariadbGtidSet.parse("0-101-7")}
    other.transactions = 7
    reading = Reading(track, Wanted(), 0)
    for member in (one, other, unknown, one):
        member.transaction(b"row")
        member.put()
    assert texts(track.executed(ring.next)) == {"one": "0-101-2", "other": "0-101-8"}
    reading.confirm(ring.next)
    cursor = reading.cursor(None)
    assert cursor is not None
    assert (cursor.gtid, cursor.position) == ("0-101-2", one.end)
    assert texts(reading.gtids) == {"one": "0-101-2", "other": "0-101-8"}
    track.free_to(ring.next)
    assert texts(track.gtids) == texts(reading.gtids)


@pytest.mark.parametrize(("gtid", "is_older"), [("0-101-4", True), ("0-101-9", False), ("", False)])
def test_at_another_source_gtids_say_whether_its_oldest_place_is_before_the_ring(gtid: str, *, is_older: bool) -> None:
    ring = Ring()
    track, filled = stream.Stream(ring, catches_up=True), Stream(ring)
    track.open(filled.end, MariadbGtidSet.parse("0-101-7"))
    elsewhere = Cursor.at(Position("102", "other.000001", CREATED, 4, 0), gtid)
    assert track.oldest(elsewhere) == (elsewhere if is_older else Cursor.at(filled.end, "0-101-7"))
