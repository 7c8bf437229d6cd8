"""Waiting while a request is worked on, which loses its reason when the client goes away or the server stops."""

import asyncio
from collections.abc import Hashable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Self

from starlette.types import Receive

from ..waiting import Stopping, Waiter


class Listener(Waiter, AbstractAsyncContextManager["Listener"]):
    """Listens, while a request is worked on, for what ends it. ``gone``: the client closed its connection."""

    def __init__(self, receive: Receive, stopping: Stopping) -> None:
        super().__init__(ended=stopping.set)
        self.gone = False
        self._receive = receive
        self._stopping = stopping
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

    async def _listen(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.gone = True
        self.end()


class Streams:
    """The newest stream of each client: older ones end, and take nothing more."""

    def __init__(self) -> None:
        self._newest: dict[Hashable, StreamTurn] = {}

    async def begin(self, key: Hashable) -> "StreamTurn":
        """Begin the turn of a stream of a client; return when the older one takes nothing any more."""
        before = self._newest.get(key)
        turn = self._newest[key] = StreamTurn()
        if before is not None:
            before.end()
            await asyncio.sleep(0)  # what it was about to take it has taken then
        return turn

    def leave(self, key: Hashable, turn: "StreamTurn") -> None:
        """End the turn of a stream that has ended."""
        if self._newest.get(key) is turn:
            del self._newest[key]


class StreamTurn:
    """The time of a stream, until a newer one of its client begins."""

    def __init__(self) -> None:
        self.is_over = False
        self._listener: Listener | None = None

    def attach(self, listener: Listener) -> None:
        """Let it end what waits there, too."""
        self._listener = listener
        if self.is_over:
            listener.end()

    def end(self) -> None:
        """End it, because a newer one begins."""
        self.is_over = True
        if self._listener is not None:
            self._listener.end()


class Signals:
    """Wakes those that wait for something to happen to a key."""

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
