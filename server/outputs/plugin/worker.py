"""The thread that calls an output of another package: the server can stop although one hangs."""

import time
from collections.abc import Callable
from concurrent.futures import wait
from typing import Final, TypeVar

from ..target import DeliveryError
from ..threads import LeftExecutor

T = TypeVar("T")
GRACE: Final = 2.0
"""Seconds that a call may go on after it was abandoned."""
GLANCE: Final = 0.25
"""Seconds between two looks at whether it was."""


class Worker:
    """Makes calls in a thread, one after the other, until it is closed.

    Whoever waits for a call gives up soon after it was abandoned.
    """

    def __init__(self, name: str) -> None:
        self._thread = LeftExecutor(name)
        self._abandoned: float | None = None
        self.is_closed = False

    def abandon(self) -> None:
        """Let whoever waits give up soon; any thread may call this."""
        self._abandoned = self._abandoned or time.monotonic()

    def call(self, function: Callable[[], T]) -> T:
        """Return what a call returns. Raises what it raises, and DeliveryError when it was abandoned and goes on."""
        done = self._thread.submit(function)
        while wait([done], GLANCE).not_done:
            if self._abandoned is not None and time.monotonic() - self._abandoned > GRACE:
                raise DeliveryError(f"a call of its package has not ended {GRACE:g} s after it was abandoned")
        return done.result()

    def close(self) -> None:
        """Make no more calls; the thread ends with the one that goes on."""
        self.is_closed = True
        self._thread.shutdown()

    @property
    def has_ended(self) -> bool:
        """Whether no call goes on after `close`; waited for a moment."""
        return self._thread.join(GLANCE)
