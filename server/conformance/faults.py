"""A fault of what another package brings, and calls that may hang."""

import threading
from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

from ...protocol.errors import SluiceError

T = TypeVar("T")
LONGEST: Final = 10.0
"""Seconds that a call may take."""


class Fault(NamedTuple):
    """A promise that was not kept."""

    promise: str
    """Its name: ``order``, ``kill``, ``fencing`` …"""
    text: str
    """What was found instead."""


class BrokenError(Exception):
    """A promise was not kept; what was to be tried after that makes no sense."""


def broken(promise: str, trial: Callable[[], None]) -> list[Fault]:
    """Try a promise; return how it was broken, nothing if it was kept."""
    try:
        trial()
    except (BrokenError, SluiceError) as error:
        return [Fault(promise, str(error))]
    except Exception as error:  # noqa: BLE001  it is the code of others
        return [Fault(promise, f"{type(error).__name__}: {error}")]
    return []


def bounded(call: Callable[[], T], seconds: float = LONGEST) -> T:
    """Return what a call returns. Raises what it raises, and BrokenError when it takes too long."""
    found: list[T] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            found.append(call())
        except BaseException as error:  # noqa: BLE001  the caller gets it
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if raised:
        raise raised[0]
    if not found:
        raise BrokenError(f"a call has not ended after {seconds:g} s")
    return found[0]
