"""The ring of a destination as its stream, and where in it a cursor or a start is."""

from typing import TYPE_CHECKING

from ..protocol.cut import ONE, Before, Executed, executed_text, parse_executed, parse_place
from ..protocol.errors import GoneError, SourceChangedError
from ..protocol.gtid import contains
from ..protocol.position import Position
from .cursor import Cursor, is_later
from .ring import Flag, Ring
from .track import Track

if TYPE_CHECKING:
    from .log.log import Log

MOST_KEPT = 256
"""Slots that stay in the ring for a comparison, at most."""


class Stream(Track):
    """The part of the stream that a destination holds.

    Args:
        ring: what holds it.
        catches_up: a subscriber whose place is before the ring gets a reader of its own; else it is gone.
    """

    def __init__(self, ring: Ring, *, catches_up: bool) -> None:
        super().__init__(ring)
        self.catches_up = catches_up
        self.log: Log | None = None
        """What has passed the ring, and stays when that is freed."""
        self.unlogged: int | None = None
        """The first slot that is not in the log yet; None without a log."""
        self.is_behind_log = False
        """Nothing is given to anybody before it is in the log."""
        self._begun = False

    @property
    def shown(self) -> int:
        """See `Track.shown`."""
        if self.unlogged is None or not self.is_behind_log:
            return self.ring.next
        return max(self.ring.first, self.unlogged)  # a closed ring holds nothing, not even what waited for the log

    def open(self, position: Position | None, gtids: Before) -> None:
        """Say where the stream of an empty ring begins, and what was executed before; None for what is not known."""
        if self.ring.next > 0:
            return
        self._begun = position is not None
        if position is not None:
            self.begin(position)
        executed = {} if gtids is None else gtids if isinstance(gtids, dict) else {ONE: gtids}
        self.gtids = {member: it.copy() for member, it in executed.items()}

    def start(self, start: str | int | Position, unix_time: float) -> int | None:
        """Return the slot at which a new subscriber starts (`Cursors.subscribe`); None while the ring lacks it.

        Raises what `sequence_of` raises; for a place before the ring only if there are no catch-up readers.
        """
        ring = self.ring
        if start == "earliest":
            return ring.first
        if start == "latest":
            return ring.next
        if isinstance(start, int):
            if not self.has_time(start, unix_time):
                raise GoneError("changes of that time may be older than what is stored")
            return ring.at_time(start)
        try:
            return self.sequence_of(start if isinstance(start, Position) else parse_place(start))
        except GoneError:
            if not self.catches_up:
                raise
            return None

    def from_place(self, place: Position | None) -> int:
        """Return the first slot after a place: the first of all if that is before the ring, or unknown."""
        if place is None:
            return self.ring.first
        try:
            found = self.sequence_of(place)
        except (GoneError, SourceChangedError):
            return self.ring.first
        return self.ring.next if found is None else found

    def has_time(self, milliseconds: int, unix_time: float) -> bool:
        """Whether the ring has all since a time, in ms since 1970, or that is still to come, at ``unix_time`` (s)."""
        ring = self.ring
        return ring.at_time(milliseconds) > ring.first or milliseconds >= max(unix_time * 1000, ring.put_execute_ms)

    def sequence_at(self, cursor: Cursor, gtids: Executed) -> int | None:
        """Return the slot at which a cursor, with its executed set, goes on; None while the ring has not reached it.

        Raises:
            GoneError: it is before what the ring holds.
            SourceChangedError: it belongs to another source or history.
        """
        try:
            if cursor.position is None:
                return self.sequence_of_event(cursor)
            return self.sequence_of(cursor.position)
        except GoneError:
            # A stream that begins by its GTIDs begins at a place that only its first slot has named.
            if self._begun or self.ring.first > 0 or not self._has_executed_less(gtids):
                raise
            return 0
        except SourceChangedError:
            # The stream goes on at another source, from the place where the same transactions were executed.
            if not gtids or gtids != self.gtids or self.is_source_of(cursor):
                raise
            return self.ring.first

    def last_boundary(self) -> Cursor | None:
        """Return the last place between two transactions that is stored, with all that was executed there."""
        ring = self.ring
        if self.position_before(ring.next) is None:
            return None
        last = ring.last_boundary(ring.first, ring.next) + 1 or ring.first
        boundary = self.position_before(last)
        if boundary is None:
            return None
        return Cursor.at(boundary.transaction, executed_text(self.executed(last)))

    def sample(self) -> bytes:
        """Return the last whole transactions that are stored, as far as `kept_from` lets them stay."""
        ring = self.ring
        stop = ring.last_boundary(ring.first, ring.next) + 1 or ring.first
        start = self.kept_from(stop)
        before = self.position_before(start)
        if before is None or before != before.transaction:
            start = next((it + 1 for it in range(start, stop) if ring.slot(it).flags & Flag.BOUNDARY), stop)
        return b"".join(ring.read(start, stop).slices)

    def kept_from(self, stop: int) -> int:
        """Return the first of the last slots before another one that have a quarter of the ring's room at most."""
        ring = self.ring
        start = max(ring.first, stop - min(MOST_KEPT, ring.size // 4))
        while start < stop and ring.measure(start, stop)[3] > ring.memory // 4:
            start += (stop - start + 1) // 2
        return start

    def oldest(self, of_source: Cursor, lost: Cursor | None = None) -> Cursor:
        """Return the oldest place that ring or log have, or the source, whose oldest place is given.

        After a place that is ``lost``: the first one from which on any of them has the changes again. A place of
        another source or history is older than those of the present one, unless GTIDs say that the ring's is not.
        """
        floor, places = self.floor, list[Cursor | None]()
        if floor is not None:
            places.append(Cursor.at(floor, executed_text(self.gtids)))
        if self.log is not None:
            places.append(self.log.start if lost is None else self.log.next_start(lost))
        found = of_source
        for place in places:
            if place is not None and is_later(found, place) and (lost is None or is_later(place, lost)):
                found = place
        return found

    def oldest_logged(self) -> Cursor | None:
        """Return where the log begins, if that is before the ring: at this source, or at a former one."""
        start, floor = None if self.log is None else self.log.start, self.floor
        if self.log is None or start is None or start.position is None or floor is None:
            return start
        if start.position.is_comparable(floor):
            return None if floor.precedes(start.position) else start
        return start if self._is_after(self.log, floor) else None

    def _is_after(self, log: "Log", floor: Position) -> bool:
        """Whether the log leads on to the ring, which begins at another source than the log."""
        if log.end is None or log.end.is_comparable(floor):
            return log.end is not None
        return bool(log.executed) and self.gtids == parse_executed(log.executed)

    def is_logged(self, cursor: Cursor) -> bool:
        """Whether the log holds what comes after a cursor; a place at its end is where the stream goes on."""
        place = cursor.position
        return self.log is not None and place is not None and place != self.log.end and self.log.covers(place)

    def is_past_end(self, place: Position | None) -> bool:
        """Whether a place comes after what the ring holds."""
        end = self.end
        return place is not None and end is not None and end.same_history(place) and not place.precedes(end)

    def _has_executed_less(self, gtids: Executed) -> bool:
        """Whether all that was executed before the stream begins is in these sets: they miss nothing."""
        return bool(self.gtids) and all(
            member in gtids and contains(gtids[member], it) for member, it in self.gtids.items()
        )
