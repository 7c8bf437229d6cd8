"""Waiting on behalf of a request that may lose its reason: the client goes away, or the server stops."""

import asyncio
from collections.abc import Awaitable, Hashable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Self, TypeVar

from starlette.types import Receive

T = TypeVar("T")


class Stopping:
    """Whether the server is about to stop; tells those who wait."""

    def __init__(self) -> None:
        self.set = False
        self.listeners: set[Listener] = set()

    def announce(self) -> None:
        """End all waiting, now and from now on."""
        self.set = True
        for listener in tuple(self.listeners):
            listener.end()


class Listener(AbstractAsyncContextManager["Listener"]):
    """Listens, while a request is worked on, for what ends it. ``gone``: the client closed its connection."""

    def __init__(self, receive: Receive, stopping: Stopping) -> None:
        self.gone = False
        self.ended = stopping.set
        self._receive = receive
        self._stopping = stopping
        self._scope: asyncio.Timeout | None = None
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._stopping.listeners.add(self)
        self._task = asyncio.create_task(self._listen())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.listeners.discard(self)
        if self._task is not None:
            self._task.cancel()

    async def wait(self, work: Awaitable[T]) -> T | None:
        """Return the result of ``work``, or None when the request ended before; ``work`` is cancelled then."""
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

    async def _listen(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.gone = True
        self.end()


class Signals:
    """Wakes who waits for something to happen to a key."""

    def __init__(self) -> None:
        self._waiting: dict[Hashable, asyncio.Event] = {}

    def notify(self, key: Hashable) -> None:
        """Wake all that wait for it."""
        event = self._waiting.pop(key, None)
        if event is not None:
            event.set()

    async def wait(self, key: Hashable, timeout: float) -> bool:  # noqa: ASYNC109  the caller's heartbeat, not a limit on work
        """Wait for the next notification; False when none came in ``timeout`` seconds."""
        event = self._waiting.setdefault(key, asyncio.Event())
        try:
            async with asyncio.timeout(timeout):
                await event.wait()
        except TimeoutError:
            return False
        return True
