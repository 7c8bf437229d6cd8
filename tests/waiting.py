"""Waiting until something is so. What is waited for in vain is said."""

import asyncio
import inspect
import time
from collections.abc import Callable

SECONDS = 60.0
"""That anything may take. Such a limit ends what hangs; it asserts no speed."""

Said = Callable[[], object] | str


def eventually(condition: Callable[[], object], what: Said = "", seconds: float = SECONDS) -> None:
    """Wait until the condition holds; ``what`` describes where things stand when it does not come to that."""
    begin = time.monotonic()
    while not condition():
        time.sleep(_pause(condition, what, begin, seconds))


async def soon(condition: Callable[[], object], what: Said = "", seconds: float = SECONDS) -> None:
    """Do the same in a coroutine."""
    begin = time.monotonic()
    while not condition():  # noqa: ASYNC110  it may be anything, of other threads and processes too
        await asyncio.sleep(_pause(condition, what, begin, seconds))


def _pause(condition: Callable[[], object], what: Said, begin: float, seconds: float) -> float:
    """Return how long to wait before the next look: it takes time that others need, so the later the less often."""
    waited = time.monotonic() - begin
    if waited >= seconds:
        described = what() if callable(what) else what or inspect.getsource(condition).strip()
        raise AssertionError(f"waited {seconds:.0f} s in vain: {described}")
    return min(max(0.005, waited / 20), 0.1)
