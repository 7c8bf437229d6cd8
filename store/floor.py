"""Where a subscriber of a merged stream goes on, although another server has merged the members in another order."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from ..protocol.cut import Cut
from ..protocol.errors import GoneError
from ..protocol.position import Position, file_number
from .chain import Had
from .ring import Ring


@dataclass(frozen=True, slots=True)
class Floor:
    """What a subscriber has of each member before it reads a chain of cuts.

    A chain begins with the cut before the first slot, and has the cut after each slot: the next slot brings one member
    forward. The cut of a subscriber need not lie on it, because the server that it was read from may have put late
    transactions, and those with equal keys, in another order. So a subscriber starts at the first slot that it lacks,
    and skips what it has of later ones: nothing is lost, and nothing is delivered twice.
    """

    cut: Cut
    """Everything before it was confirmed."""

    def start(self, chain: Sequence[Cut]) -> int:
        """Return the number of the first slot that is not before the floor; that of slots if it has all of them.

        Raises:
            GoneError: the chain begins after the floor in some member: what is between is not in it.
            SourceChangedError: a member's place belongs to another source or history.
        """
        if not chain[0].precedes(self.cut):
            raise GoneError(f"{self.cut} is no longer stored; the oldest place that is: {chain[0]}")
        slots = range(len(chain) - 1)
        return bisect_left(slots, True, key=lambda slot: not chain[slot + 1].precedes(self.cut))

    def skips(self, member: str, after: Position) -> bool:
        """Whether the subscriber has a slot of a member, which ends at that position."""
        return Cut({member: after}).precedes(self.cut)

    def had(self, ring: Ring) -> Had:
        """Return the slots of a ring that the subscriber has."""
        limits = []
        for number in range(1, len(ring.sources) + 1):
            member, source = ring.sources[number]
            place = self.cut.places.get(member)
            if place is not None and place.is_of(source):
                limits.append((number, *place.order))
        return Had(ring, limits, [-1, *(file_number(ring.files[it][0]) for it in range(1, len(ring.files) + 1))])

    def place(self, reached: Cut) -> Cut:
        """Return the subscriber's place when it has read up to a cut of the chain."""
        return self.cut.join(reached)

    def is_passed_in(self, member: str, reached: Cut) -> bool:
        """Whether nothing of a member after a cut of the chain is skipped any more."""
        place = self.cut.places.get(member)
        return place is None or Cut({member: place}).precedes(reached)

    def is_passed(self, reached: Cut) -> bool:
        """Whether nothing after a cut of the chain is skipped any more."""
        return self.cut.precedes(reached)
