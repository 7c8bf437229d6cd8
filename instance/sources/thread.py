"""The thread of a parser: it reads a source, tries again after each error, and says how that goes."""

import logging
import random
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from ...protocol.errors import SluiceError
from ...store.cursor import Cursor
from ..context import current_destination

if TYPE_CHECKING:
    from ..agreement import Agreement

logger = logging.getLogger(__name__)

FIRST_DELAY: Final = 0.2
LONGEST_DELAY: Final = 30.0
"""Seconds between two attempts: doubled from the first on, and varied by a third."""


class ParserThread(ABC):
    """Reads a source until it is told to stop, or has read all that it is to read.

    States, each with a text: `running`; `error` while the source cannot be read, which is tried again; `finished` at
    the stop position, or where nothing more will come.
    """

    def __init__(
        self, destination: str, places: Sequence[Cursor | None], on_state: Callable[[str, str], None] | None
    ) -> None:
        """Begin, once it is started, at the first of ``places`` that the source has. ``on_state`` is called there."""
        self.failure: SluiceError | None = None
        """Why the last attempt to read failed; None while the source is read, after `on_begin`."""
        self.refused: Mapping[Cursor, SluiceError] = {}
        """The given places that the source did not have when last asked where to begin, and why.

        An error is a PurgedError or a SourceChangedError. For a single place only `failure` may say so.
        """
        self.names_places = False
        """See `sluice.instance.source.MemberParser`."""
        self.heartbeat = 0.0
        """See `sluice.instance.source.MemberParser`."""
        self.on_caught_up: Callable[[float], None] = _ignore
        """See `sluice.instance.source.MemberParser`."""
        self._destination = destination
        self._places = places
        self._on_state = on_state
        self._state = ("", "")
        self._stopping = threading.Event()
        self._hurry = threading.Event()  # no wait before the next attempt
        self._thread = threading.Thread(target=self._run, name=f"parser {destination}", daemon=True)

    def agree_with(self, agreement: "Agreement", member: str) -> None:
        """See `sluice.instance.source.MemberParser.agree_with`: it has no split tables."""
        del agreement, member

    def clock(self) -> float | None:
        """See `sluice.instance.source.MemberParser.clock`."""
        return None

    def begin_at(self, places: Sequence[Cursor | None]) -> None:
        """Begin at the first of these places that the source has, at once, unless it has begun; any thread may ask."""
        self._places = places
        self._hurry.set()  # first: an attempt at the former places may fail now
        self.failure, self._state = None, ("", "")

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Tell the thread to end, and return at once."""
        self._stopping.set()
        self._hurry.set()

    def join(self, timeout: float | None = None) -> None:
        """Wait until the thread has ended."""
        if self._thread.is_alive():
            self._thread.join(timeout)

    @abstractmethod
    def _read(self) -> None:
        """Read until told to stop, or to the end. Raises SluiceError."""

    @abstractmethod
    def _progress(self) -> int:
        """Return a number that grows once an attempt has read more than what every attempt begins with."""

    @abstractmethod
    def _close(self) -> None:
        """Free what was opened; called in the thread, at its end."""

    def _run(self) -> None:
        current_destination.set(self._destination)
        try:
            self._attempt()
        finally:
            self._close()

    def _attempt(self) -> None:
        delay = FIRST_DELAY
        while not self._stopping.is_set():
            begin = self._progress()
            try:
                self._read()
            except Exception as error:  # noqa: BLE001  the thread must survive an error in Sluice itself, too
                if self._stopping.is_set():
                    return
                self._failed(error)
            else:
                self._set_state("finished", "")
                return
            if self._progress() > begin:
                delay = FIRST_DELAY
            if self._hurry.wait(delay * random.uniform(2 / 3, 4 / 3)):  # noqa: S311
                self._hurry.clear()
            delay = min(2 * delay, LONGEST_DELAY)

    def _failed(self, error: Exception) -> None:
        if self._hurry.is_set():  # other places are asked for since
            return
        if isinstance(error, SluiceError):
            self.failure = error
            self._set_state("error", str(error))
        else:
            logger.error("the parser failed", exc_info=error)
            self.failure = SluiceError(f"{type(error).__name__}: {error}")
            self._set_state("error", str(self.failure))

    def _set_state(self, state: str, text: str) -> None:
        if (state, text) != self._state:
            self._state = (state, text)
            if self._on_state is not None:
                self._on_state(state, text)


def _ignore(_: float) -> None:
    """Do nothing."""
