"""A ring as a part of the stream: its places have positions, and its tables pass a filter or not."""

from bisect import bisect_left
from collections.abc import Callable

from sluice.protocol.errors import GoneError
from sluice.protocol.position import Position
from sluice.store.ring import Place, Ring

TableFilter = Callable[[str, str], bool]
"""Whether a subscriber wants a table, by its schema and name."""


class Track:
    """What lies between two positions of the stream, in a ring."""

    def __init__(self, ring: Ring) -> None:
        """``ring`` may be empty: then nothing is known of its place until `begin` or the first put."""
        self.ring = ring

    def begin(self, position: Position) -> None:
        """Say where the stream of an empty ring begins."""
        self.ring.begin_at(
            self.ring.sources.intern(position.source),
            self.ring.files.intern((position.file, position.created)),
            position.begin,
            position.n,
        )

    def position(self, place: Place) -> Position:
        """Return the position that a place of the ring stands for."""
        source, file, begin, n = place
        name, created = self.ring.files[file]
        return Position(self.ring.sources[source] or "", name, created, begin, n)

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
        """The place behind what is stored; None before the stream has begun."""
        return self.position_before(self.ring.next)

    def sequence_of(self, position: Position) -> int | None:
        """Return the first slot at or after a position; None when the ring has not come so far.

        Raises:
            GoneError: the position lies before what the ring holds.
            SourceChangedError: it belongs to another source or history.
        """
        floor, end = self.floor, self.end
        if floor is None or end is None or position > end:
            return None
        if position < floor:
            raise GoneError(f"{position} is no longer stored; the oldest position that is: {floor}")
        slots = range(self.ring.first, self.ring.next)
        return self.ring.first + bisect_left(slots, position, key=self.position_of)


class TableMask:
    """A filter by the numbers that a ring has for tables, as `Ring.collect` wants it."""

    def __init__(self, ring: Ring, wanted: TableFilter) -> None:
        """Nothing is asked of ``wanted`` before `current`."""
        self._ring = ring
        self._wanted = wanted
        self._mask = bytearray([1])  # 0 is no table: transaction ends, statements

    def current(self) -> bytearray:
        """Return the mask, brought up to date with the tables seen."""
        for number in range(len(self._mask), len(self._ring.tables) + 1):
            schema, table = self._ring.tables[number]
            self._mask.append(self._wanted(schema, table))
        return self._mask
