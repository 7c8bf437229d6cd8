"""Conditions and filters of clients: judged and matched in threads, as changes and new tables come into a ring."""

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from ...store.masks import AT_ONCE, Due
from ...store.ring import Ring
from ...store.verdicts import Pinned, Verdicts

MOST_SLOTS: Final = 4096
"""Slots that are judged at a time ..."""
MOST_BYTES: Final = 1 << 20
"""... and bytes of their entries, unless the first has more: so that all destinations get their turns."""
MOST_MATCHED: Final = 1_000_000
"""What is matched for a ring at a time, in instructions of programs, unless one table takes more."""
_THREADS: Final = ThreadPoolExecutor(2, "conditions")
"""For all destinations of the process."""


class Judging:
    """What judges the slots of some rings. All methods belong to the event loop."""

    def __init__(self, on_judged: Callable[[], None], on_error: Callable[[Exception], None]) -> None:
        """``on_judged`` is called when more slots have been judged, ``on_error`` after a mistake in Sluice itself."""
        self._on_judged = on_judged
        self._on_error = on_error

    def tend(self, rings: Iterable[Ring]) -> None:
        """Have each condition judge its next slots, at most `MOST_SLOTS` at a time, and match new tables."""
        for ring in rings:
            ring.masks.room = AT_ONCE
            self._match(ring)
            for verdicts in ring.verdicts.values():
                if verdicts.is_busy or verdicts.next == ring.next or ring.closed:
                    continue
                pinned = ring.pin(verdicts.next, MOST_SLOTS, MOST_BYTES)
                assert pinned is not None
                verdicts.is_busy = True
                judging = asyncio.get_running_loop().run_in_executor(_THREADS, verdicts.judge.judge, pinned)
                judging.add_done_callback(partial(self._end, ring, verdicts, pinned))

    def _match(self, ring: Ring) -> None:
        due = [] if ring.masks.is_busy or ring.closed else ring.masks.due(MOST_MATCHED, len(ring.tables))
        if not due:
            return
        ring.masks.is_busy = True
        for it in due:
            it.mask.is_busy = True
        matching = asyncio.get_running_loop().run_in_executor(_THREADS, _matched, due)
        matching.add_done_callback(partial(self._end_match, ring, due))

    def _end_match(self, ring: Ring, due: list[Due], done: asyncio.Future[list[bytes]]) -> None:
        ring.masks.is_busy = False
        if done.cancelled() or ring.closed:
            return
        if isinstance(error := done.exception(), Exception):
            self._on_error(error)
            return
        for it, matched in zip(due, done.result(), strict=True):
            it.mask.take(it, matched)
        self._on_judged()

    def _end(self, ring: Ring, verdicts: Verdicts, pinned: Pinned, done: asyncio.Future[None]) -> None:
        error = None if done.cancelled() else done.exception()
        if ring.closed or done.cancelled():
            return
        if isinstance(error, Exception):
            self._on_error(error)
            return
        verdicts.take(pinned)
        self._on_judged()


def _matched(due: list[Due]) -> list[bytes]:
    return [it.mask.match(it.start, it.tables) for it in due]
