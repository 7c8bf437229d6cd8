"""A ring as a part of the stream: its places have positions, and its tables pass a filter or not."""

from bisect import bisect_left
from collections.abc import Callable

from ..protocol.errors import GoneError, SourceChangedError
from ..protocol.gtid import GtidSet
from ..protocol.position import Position
from .cursor import Cursor
from .ring import Place, Ring

TableFilter = Callable[[str, str], bool]
"""Whether a subscriber wants a table, by its schema and name."""


class Track:
    """The part of the stream between two positions, in a ring."""

    def __init__(self, ring: Ring) -> None:
        """``ring`` may be empty: then its place is unknown until `begin` or the first put."""
        self.ring = ring
        self.gtids: GtidSet | None = None
        """Executed before what is stored; None if unknown."""

    def begin(self, position: Position) -> None:
        """Say where the stream of an empty ring begins."""
        source, file, begin, n = position.parts
        self.ring.begin_at(self.ring.sources.intern(source), self.ring.files.intern(file), begin, n)

    def position(self, place: Place) -> Position:
        """Return the position of a place of the ring."""
        source, file, begin, n = place
        return Position.of_parts(self.ring.sources[source] or "", self.ring.files[file], begin, n)

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
    def end(self) -> Position | None:
        """The place after what is stored; None before the stream has begun."""
        return self.position_before(self.ring.next)

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
        slots = range(self.ring.first, self.ring.next)
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

    def executed(self, sequence: int) -> GtidSet | None:
        """Return what was executed before a slot; None if unknown."""
        if self.gtids is None:
            return None
        gtids = self.gtids.copy()
        self.add_executed(gtids, self.ring.first, sequence)
        return gtids

    def add_executed(self, gtids: GtidSet, start: int, stop: int) -> None:
        """Add to a set what the slots [start, stop) have executed."""
        for source, first, last in self.ring.gtid_runs(start, stop):
            gtids.add(self.ring.gtid_sources[source], first, last)

    def free_to(self, sequence: int) -> None:
        """Free the slots before a sequence."""
        if self.gtids is not None:
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
