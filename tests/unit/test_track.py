"""A ring as a part of the stream."""

from sluice.protocol.gtid import MariadbGtidSet
from sluice.store.reading import Reading
from sluice.store.ring import Ring
from sluice.store.track import Executed, Track, Wanted
from tests.stream import Stream


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
    track, stream = Growing(ring), Stream(ring)
    track.begin(stream.end)
    for _ in range(9):
        stream.transaction(b"row")
        stream.put()
    assert track.sequence_of(stream.end) is None
    track.looks = 8
    assert track.sequence_of(stream.end) == ring.next == 27


def test_what_one_member_has_executed_is_not_counted_for_another() -> None:
    """Both write the same GTIDs, as two servers that were loaded from one backup do."""
    ring = Ring()
    track = Track(ring)
    one, other, unknown = (Stream(ring, member=member) for member in ("one", "other", "unknown"))
    track.begin(one.position(0), "one")
    track.gtids = {"one": MariadbGtidSet(), "other": MariadbGtidSet.parse("0-101-7")}
    other.transactions = 7
    reading = Reading(track, Wanted(), 0)
    for stream in (one, other, unknown, one):
        stream.transaction(b"row")
        stream.put()
    assert texts(track.executed(ring.next)) == {"one": "0-101-2", "other": "0-101-8"}
    reading.confirm(ring.next)
    cursor = reading.cursor(None)
    assert cursor is not None
    assert (cursor.gtid, cursor.position) == ("0-101-2", one.end)
    assert texts(reading.gtids) == {"one": "0-101-2", "other": "0-101-8"}
    track.free_to(ring.next)
    assert texts(track.gtids) == texts(reading.gtids)
