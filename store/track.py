"""A ring as a part of the stream: its places have positions, and its tables pass a filter or not."""

from bisect import bisect_left
from collections.abc import Callable
from typing import Final

from ..protocol.errors import GoneError, SourceChangedError
from ..protocol.gtid import GtidSet
from ..protocol.position import Position
from .cursor import Cursor
from .ring import Place, Ring

Executed = dict[str, GtidSet]
"""The GTIDs that are executed at a place, by member; a member of which that is unknown is not in it."""

ONE: Final = ""
"""The member of a source that is a single server."""

TableFilter = Callable[[str, str], bool]
"""Whether a subscriber wants a table, by its schema and name."""


class Track:
    """The part of the stream between two positions, in a ring."""

    def __init__(self, ring: Ring) -> None:
        """``ring`` may be empty: then its place is unknown until `begin` or the first put."""
        self.ring = ring
        self.gtids: Executed = {}
        """Executed before what is stored."""

    def begin(self, position: Position, member: str = ONE) -> None:
        """Say where the stream of an empty ring begins."""
        source, file, begin, n = position.parts
        self.ring.begin_at(self.ring.sources.intern((member, source)), self.ring.files.intern(file), begin, n)

    def position(self, place: Place) -> Position:
        """Return the position of a place of the ring."""
        source, file, begin, n = place
        _, name = self.ring.sources[source] or (ONE, "")
        return Position.of_parts(name, self.ring.files[file], begin, n)

    def member(self, place: Place) -> str:
        """Return the member that a place of the ring belongs to."""
        member, _ = self.ring.sources[place[0]] or (ONE, "")
        return str(member)

    def position_of(self, sequence: int) -> Position:
        """Return the position of a slot."""
        return self.position(self.ring.place(sequence))

    def position_before(self, sequence: int) -> Position | None:
        """Return the position before a slot; None before the stream has begun."""
        place = self.ring.after(sequence - 1)
        return None if place is None else self.position(place)

    @property
    def floor(self) -> Position | None:
        """The place before what is stored; None before the stream has begun."""
        return self.position_before(self.ring.first)

    @property
    def shown(self) -> int:
        """The slot after the last one that may be given to anybody."""
        return self.ring.next

    @property
    def end(self) -> Position | None:
        """The place after what may be given; None before the stream has begun."""
        return self.position_before(self.shown)

    def sequence_of(self, position: Position) -> int | None:
        """Return the first slot at or after a position; None when the ring has not reached it.

        Raises:
            GoneError: the position is before what the ring holds.
            SourceChangedError: it belongs to another source or history.
        """
        floor, end = self.floor, self.end
        if floor is None or end is None or position > end:
            return None
        if position < floor:
            raise GoneError(f"{position} is no longer stored; the oldest position that is: {floor}")
        if position.file_key not in self.ring.files:
            raise SourceChangedError(
                f"{position} is in a file that the stream from {floor} to {end} did not pass: another history"
            )
        slots = range(self.ring.first, self.shown)
        return self.ring.first + bisect_left(slots, position, key=self.position_of)

    def is_source_of(self, cursor: Cursor) -> bool:
        """Whether a cursor belongs to the source of the stream, as far as that is known."""
        floor = self.floor
        return cursor.position is None or floor is None or cursor.position.same_source(floor)

    def sequence_of_event(self, cursor: Cursor) -> int | None:
        """Return the first slot at or after the event of a cursor that Canal wrote: that event is given again.

        None when the ring has not reached it. Raises `GoneError` when the event is before what the ring holds.
        """
        floor, end = self.floor, self.end
        if floor is None or end is None or cursor.order > end.order:
            return None
        if cursor.order < floor.transaction.order:
            raise GoneError(f"{cursor.journal}:{cursor.offset} is no longer stored; the oldest position is {floor}")
        for file in range(len(self.ring.files), 0, -1):
            if self.ring.files[file][0] == cursor.journal:
                return self.ring.at_event(file, cursor.offset)
        return None

    def executed(self, sequence: int) -> Executed:
        """Return what was executed before a slot."""
        gtids = {member: it.copy() for member, it in self.gtids.items()}
        self.add_executed(gtids, self.ring.first, sequence)
        return gtids

    def add_executed(self, gtids: Executed, start: int, stop: int) -> None:
        """Add to each member's set what it has executed in the slots [start, stop)."""
        if not gtids:
            return
        for number, first, last in self.ring.gtid_runs(start, stop):
            member, source = self.ring.gtid_sources[number]
            if member in gtids:
                gtids[member].add(source, first, last)

    def free_to(self, sequence: int) -> None:
        """Free the slots before a sequence."""
        self.add_executed(self.gtids, self.ring.first, sequence)
        self.ring.free_to(sequence)


class TableMask:
    """A filter by the table numbers of a ring, as `Ring.collect` wants it."""

    def __init__(self, ring: Ring, wanted: TableFilter) -> None:
        """Nothing is asked of ``wanted`` before `current`."""
        self._ring = ring
        self._wanted = wanted
        self._mask = bytearray([1])  # 0 stands for no table: transaction ends, statements

    def current(self) -> bytearray:
        """Return the mask, updated with the tables seen since."""
        for number in range(len(self._mask), len(self._ring.tables) + 1):
            schema, table = self._ring.tables[number]
            self._mask.append(self._wanted(schema, table))
        return self._mask
