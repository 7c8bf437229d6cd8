"""Waiting until something is so. What is waited for in vain is said."""

import asyncio
import inspect
import time
from collections.abc import Callable

SECONDS = 60.0
"""That anything may take. Such a limit ends what hangs; it asserts no speed."""

Said = Callable[[], object] | str


def eventually(condition: Callable[[], object], what: Said = "", seconds: float = SECONDS) -> None:
    """Wait until the condition holds; ``what`` describes where things stand when it does not come to that.

    A condition about an item that is not there yet, such as the first of an empty list, does not hold yet.
    """
    wait = _Wait(condition, what, seconds)
    while not wait.over():
        time.sleep(wait.pause())


async def soon(condition: Callable[[], object], what: Said = "", seconds: float = SECONDS) -> None:
    """Do the same in a coroutine."""
    wait = _Wait(condition, what, seconds)
    while not wait.over():  # noqa: ASYNC110  it may be anything, of other threads and processes too
        await asyncio.sleep(wait.pause())


class _Wait:
    def __init__(self, condition: Callable[[], object], what: Said, seconds: float) -> None:
        self.condition = condition
        self.what = what
        self.seconds = seconds
        self.begin = time.monotonic()
        self.missing: LookupError | None = None

    def over(self) -> bool:
        self.missing = None
        try:
            return bool(self.condition())
        except LookupError as error:
            self.missing = error
            return False

    def pause(self) -> float:
        """Return how long to wait before the next look: it takes time that others need, so the later the less often."""
        waited = time.monotonic() - self.begin
        if waited >= self.seconds:
            described = self.what() if callable(self.what) else self.what or inspect.getsource(self.condition).strip()
            raise AssertionError(f"waited {self.seconds:.0f} s in vain: {described}") from self.missing
        return min(max(0.005, waited / 20), 0.1)
