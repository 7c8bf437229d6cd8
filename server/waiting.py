"""Waiting on behalf of a caller that may lose interest: a client goes away, or the server stops."""

import asyncio
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

T = TypeVar("T")

STOP_SECONDS = 1.0
"""For answers under way when the server stops; the destinations then have 3 s more."""


class Ending(Protocol):
    """What has to end when the server stops."""

    def end(self) -> None:
        """Wait no longer, and take nothing up any more."""


class Stopping:
    """Whether the server is about to stop; tells those that wait."""

    def __init__(self) -> None:
        self.set = False
        self.listeners: set[Ending] = set()

    @contextmanager
    def waiter(self) -> "Iterator[Waiter]":
        """Give what waits until the server stops."""
        waiter = Waiter(ended=self.set)
        self.listeners.add(waiter)
        try:
            yield waiter
        finally:
            self.listeners.discard(waiter)

    async def wait(self) -> None:
        """Return when the stop is announced."""
        with self.waiter() as waiter:
            await waiter.wait(asyncio.Event().wait())

    def announce(self) -> None:
        """End all waiting, now and from now on."""
        self.set = True
        for listener in tuple(self.listeners):
            listener.end()


class Waiter:
    """Waits for a piece of work, until it is told that there is no more reason to."""

    def __init__(self, *, ended: bool = False) -> None:
        self.ended = ended
        self._scope: asyncio.Timeout | None = None

    @property
    def waiting(self) -> bool:
        """Whether anything waits here."""
        return self._scope is not None

    async def wait(self, work: Awaitable[T]) -> T | None:
        """Return the result of ``work``, or None when there was no more reason to wait; ``work`` is cancelled then."""
        try:
            async with asyncio.timeout(0 if self.ended else None) as self._scope:
                return await work
        except TimeoutError:
            if not self.ended:
                raise
            return None
        finally:
            self._scope = None

    def end(self) -> None:
        """Wait no longer."""
        if not self.ended:
            self.ended = True
            if self._scope is not None:
                self._scope.reschedule(0)
