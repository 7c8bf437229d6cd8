"""What fills the ring with frames: the `Messages` of a batch, with the place of each entry in the original stream."""

import time
from collections.abc import Callable, Sequence

from ....protocol.cut import Before
from ....protocol.position import Position
from ....store.cursor import Cursor
from ....store.ring import Ring
from ...config import InstanceConfig
from ...sink.filters import TableFilter
from ...status import ParserStatus
from ..unasked import UnaskedParser
from .stager import Stager


class FrameParser(UnaskedParser):
    """Puts frames one after the other: see `sluice.instance.source.Parser`."""

    def __init__(
        self,
        config: InstanceConfig,
        ring: Ring,
        *,
        start: Cursor | None,
        later: Sequence[Cursor | None] = (),
        on_begin: Callable[[Position | None, Before], None],
        on_state: Callable[[str, str], None],
        epoch: int = 0,
        stop: Position | None = None,
    ) -> None:
        """See `sluice.instance.source.ParserFactory`."""
        del epoch  # it writes nowhere
        super().__init__(config.destination, (start, *later), on_state)
        self._ring = ring
        self._stager = Stager(ring, config.table_filter())
        self._on_begin = on_begin
        self._stop_at = stop
        self._next: Position | None = None  # what follows what was put
        self._bytes = self._frames = self._connections = 0
        self._read_until = 0.0

    # --- what any thread may ask

    @property
    def status(self) -> ParserStatus:
        """How far it is."""
        return ParserStatus(
            behind=max(0.0, time.monotonic() - self._read_until) if self._read_until else None,
            received_bytes=self._bytes,
            events=self._stager.entries,
            transactions=self._frames,
            connections=self._connections,
        )

    def refilter(self, table_filter: TableFilter) -> None:
        """Use another filter, from the next entry on."""
        self._stager.refilter(table_filter)

    def stop(self) -> None:
        """Tell the thread to end, and return at once."""
        super().stop()
        self._ring.wake()

    # --- the thread

    def _progress(self) -> int:
        return self._frames

    def _close(self) -> None:
        self._stager.close()

    def _is_put(self, end: Position) -> bool:
        """Whether what ends at a place was put before."""
        assert self._next is not None
        return end.is_comparable(self._next) and end <= self._next

    def _is_stop(self, place: Position) -> bool:
        """Whether a place is not before that where it is to stop."""
        return self._stop_at is not None and place.is_comparable(self._stop_at) and place >= self._stop_at

    def _put_frame(self, frame: bytes, begin: Position, end: Position) -> bool:
        """Put what a frame has from the next place on; False when it is to stop. Raises DecodeError."""
        self._begin(frame, begin, end)
        is_left = True
        while is_left:
            is_left = self._stager.run()
            if not self._put():
                return False
        self._next = end
        return True

    def _begin(self, frame: bytes, begin: Position, end: Position) -> None:
        """Let the stager take a frame."""
        assert self._next is not None
        start, stop = self._next, self._stop_at
        files = {it.file: self._file(it) for it in (begin, end)}
        self._stager.begin(
            frame,
            files,
            (end.file, end.begin, end.n),
            (start.begin, start.n),
            (0, 0) if stop is None else (stop.begin, stop.n),
        )

    def _file(self, place: Position) -> tuple[int, int, int, int]:
        """Return what the stager has to know of the file of a place."""
        source, file, *_ = place.parts
        numbers = self._ring.sources.intern(("", source)), self._ring.files.intern(file)
        return *numbers, _side(place, self._next, 1), _side(place, self._stop_at, -1)

    def _put(self) -> bool:
        staging = self._stager.staging
        return not staging.count or self._ring.put(staging, self._stopping)


def _side(place: Position, other: Position | None, without: int) -> int:
    """Whether what is in the file of a place is before another place (-1), after it (1), or some is (0)."""
    if other is None or not place.same_history(other):
        return without
    return (place.file_number > other.file_number) - (place.file_number < other.file_number)
