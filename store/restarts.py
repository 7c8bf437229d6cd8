"""From which place a source has to be read to go on at another one."""

import threading
from bisect import bisect_right
from typing import Final

from ..protocol.cut import Cut
from ..protocol.position import Position

MOST: Final = 4096
"""Changes that are remembered; before the oldest of them, what it says counts."""


class Restarts:
    """The oldest place that is still needed, for each place of the stream: where an open XA transaction was prepared.

    The thread of a parser notes it, any thread may ask.
    """

    def __init__(self) -> None:
        self.members: dict[str, Restarts] = {}
        """Of a merged stream: those of each member."""
        self._lock = threading.Lock()
        self._places: list[Position] = []
        self._restarts: list[Position | None] = []

    def note(self, place: Position, restart: Position | None) -> None:
        """Note what the stream needs from a place on; what was noted after that place is forgotten."""
        with self._lock:
            if self._places and not self._places[0].same_history(place):
                self._places, self._restarts = [], []
            start = bisect_right(self._places, place.order, key=_order)
            del self._places[start:], self._restarts[start:]
            if self._restarts and self._restarts[-1] == restart:
                return
            self._places.append(place)
            self._restarts.append(restart)
            if len(self._places) > MOST:
                del self._places[: MOST // 2], self._restarts[: MOST // 2]

    def go_on_from(self, former: "Restarts") -> None:
        """Know what another one knows, of a stream that is read again."""
        with former._lock:  # noqa: SLF001  of its own class
            places, restarts = [*former._places], [*former._restarts]  # noqa: SLF001  as above
        with self._lock:
            self._places, self._restarts = places, restarts

    def at(self, place: Position) -> Position | None:
        """Return from where the source has to be read to go on at a place; None: from that place.

        For a cut that is a cut of the members that are to be read from further back.
        """
        if isinstance(place, Cut):
            of_members = {name: self.members[name].at(it) for name, it in place.places.items() if name in self.members}
            found = {name: it for name, it in of_members.items() if it is not None}
            return Cut(found) if found else None
        with self._lock:
            if not self._places or not self._places[0].same_history(place):
                return None
            restart = self._restarts[max(0, bisect_right(self._places, place.order, key=_order) - 1)]
        return restart if restart is not None and restart.order < place.order else None

    @property
    def last(self) -> Position | None:
        """What is needed at the end of the stream; of a merged one a cut of the members that need something."""
        if self.members:
            found = {name: it for name, member in self.members.items() if (it := member.last) is not None}
            return Cut(found) if found else None
        with self._lock:
            return self._restarts[-1] if self._restarts else None


def _order(place: Position) -> tuple[int, int, int]:
    return place.order
