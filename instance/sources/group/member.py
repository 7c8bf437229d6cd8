"""A member of a group while it is read: its parser, the pool that this fills, and what the merger was told of it."""

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from ....protocol.errors import PurgedError, SluiceError
from ....protocol.gtid import GtidSet, parse_gtids
from ....protocol.position import Position
from ....store.cursor import Cursor
from ....store.ring import Ring
from ....store.track import Track
from ...config import InstanceConfig
from ...context import current_destination
from ...merge.merger import Merger
from ...merge.pools import Pool
from ...source import MemberParser

if TYPE_CHECKING:
    from concurrent.futures import Future

MakeMember = Callable[..., MemberParser]

SLOTS: Final = 16384
"""Of a pool."""
MEASURED: Final = 60.0
"""Seconds between two measurements of a clock."""


class Clock:
    """The time, on a clock that is not set."""

    def __init__(self) -> None:
        self._zero = time.time() - time.monotonic()  # noqa: TID251  stamps are of such clocks; it is not set after this

    def now(self) -> int:
        """Return the time, µs since 1970."""
        return self.at(time.monotonic())

    def at(self, monotonic: float) -> int:
        """Return a monotonic time, µs since 1970."""
        return int((self._zero + monotonic) * 1_000_000)


class Member:
    """A member while it is read. A parser calls back in its own thread; the rest belongs to the group's."""

    def __init__(
        self,
        name: str,
        config: InstanceConfig,
        make_parser: MakeMember,
        *,
        places: Sequence[Cursor | None],
        stop: Position | None,
        epoch: int,
        pool: Callable[[Ring], Pool],
        memory: int,
        clock: Clock,
        on_change: Callable[[], None],
        on_state: Callable[[], None],
    ) -> None:
        """Make what reads it; nothing is read before `start`.

        Args:
            name: what it is called.
            config: how it is read.
            make_parser: makes its parser.
            places: where it may begin, best first.
            stop: where it ends.
            epoch: see `sluice.instance.source.ParserFactory`.
            pool: makes its pool from the ring that the parser fills.
            memory: bytes of that ring.
            clock: says when it had nothing more.
            on_change: called in any thread when it has brought something, or something else has changed ...
            on_state: ... before that, if it is the state.
        """
        # Long: half of it says what the arguments mean.
        self.name = name
        self.config = config
        self.places = places
        self.has_begun = False
        self.begun: Position | None = None
        """Where its stream began; None if only its first slot will say that."""
        self.gtids: GtidSet | None = None
        """What was executed there; None if unknown."""
        self.gap: PurgedError | None = None
        """What was lost where it went on last, as configured, until that is told."""
        self.state = ("", "")
        """Of its parser, with a text."""
        self.joining: Future[None] | None = None
        """Done when it is stored where it begins, for a member that joins later."""
        self.joins_after = 0.0
        """Monotonic time before which that is not tried again."""
        self.is_admitted = False
        """The merger is told of it: the stream has its place, or will begin with it."""
        self.has_left = False
        """Nothing more comes of it."""
        self._ring = Ring(SLOTS, memory)
        self.pool = pool(self._ring)
        self._clock = clock
        self._on_change, self._on_state = on_change, on_state
        self._quiet: tuple[int, int] | None = None  # the slot before which it had nothing more, and when that was
        self._told: tuple[int, int] | None = None  # what of that the merger was told last
        self._ahead = 0  # µs by which its clock is ahead, as far as that was measured
        self._measured = threading.Event()  # its clock was asked for
        self._over = threading.Event()
        start, *later = places
        self.parser = make_parser(
            config,
            self._ring,
            start=start,
            later=later,
            on_begin=self._begin,
            on_state=self._change,
            epoch=epoch,
            stop=stop,
        )
        self.parser.on_caught_up = self._note_quiet
        self._ring.on_put = on_change

    def start(self) -> None:
        """Begin to read, and to ask for its time now and then."""
        self.parser.start()
        threading.Thread(target=self._measure, name=f"clock {self.name}", daemon=True).start()

    def stop(self) -> None:
        """Tell what reads it to end, and return at once; any thread may call this."""
        self._over.set()
        self.parser.stop()

    def close(self) -> None:
        """End it: what is in its pool is dropped."""
        self.stop()
        self._ring.close()

    def find_start(self) -> Position | None:
        """Return where its stream began, as soon as that is known."""
        if self.begun is None and self._ring.next:
            self.begun = Track(self._ring).position(self._ring.place(self._ring.first))
        return self.begun

    @property
    def place(self) -> Position | None:
        """The place after what has moved from its pool; None if nothing has."""
        ring = self._ring
        place = ring.after(ring.first - 1) if ring.first else None
        return None if place is None else Track(ring).position(place)

    def tell(self, merger: Merger) -> int:
        """Tell the merger what it has brought; return how many transactions."""
        if self.has_left or not self._measured.is_set():  # its keys would be wrong
            return 0
        name, pool, quiet, is_over = self.name, self.pool, self._quiet, self.state[0] == "finished"
        merger.measured(name, self._ahead)
        now = self._clock.now()
        stamps, sizes, is_open = pool.take(now, is_over)
        merger.set_full(name, is_full=self._ring.waiting)
        if len(stamps):
            merger.add(name, stamps, sizes, is_open=is_open, now=now)
        if quiet is not None and quiet is not self._told and quiet[0] == pool.taken:
            merger.heartbeat(name, now=now, time=quiet[1] + self._ahead)  # as of its arrival: it may have more by now
            self._told = quiet
        if is_over and pool.taken == self._ring.next:
            merger.leave(name)
            self.has_left = True
        return len(stamps)

    # --- in other threads

    def _begin(self, position: Position | None, gtids: GtidSet | None) -> None:
        failure = self.parser.failure
        if isinstance(failure, PurgedError) and self.config.auto_reset_latest_pos_mode:
            self.gap = failure
        if gtids is None:
            known = (it.gtid for it in self.places if it is not None and it.position == position and it.gtid)
            gtids = next(map(parse_gtids, known), None)
        self.gtids, self.begun, self.has_begun = gtids, position, True
        self.pool.executed = None if gtids is None else gtids.copy()
        self._on_change()

    def _change(self, state: str, text: str) -> None:
        self.state = state, text
        self._on_state()
        self._on_change()

    def _note_quiet(self, at: float) -> None:
        self._quiet = self._ring.next, self._clock.at(at)
        self._on_change()

    def _measure(self) -> None:
        current_destination.set(self.config.destination)
        while not self._over.is_set():
            try:
                with contextlib.suppress(SluiceError):  # its parser says so
                    self._ahead = round((self.parser.clock() or 0.0) * 1_000_000)
            finally:  # it is read, whatever becomes of this
                self._measured.set()
                self._on_change()
            self._over.wait(MEASURED)
