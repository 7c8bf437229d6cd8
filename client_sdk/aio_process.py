"""Changes that a coroutine function processes in parallel: the tasks of `AsyncClient`."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from .batch import Batch
from .process import TICK, Item, Processing
from .schedule import Task

CANCELLED = 1.0  # seconds in which a function that is cancelled has to end


class Tasks(Processing[Awaitable[object]]):
    """Tasks that run the function."""

    def start(self, get: Callable[[], Awaitable[tuple[int, Batch]]]) -> None:
        """Begin; ``get`` gives a batch with its generation."""
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._running: set[asyncio.Task[None]] = set()
        self._fetcher = asyncio.create_task(self._fetch(get))

    async def processed(self, check: Callable[[], None]) -> tuple[int, list[Batch]]:
        """Wait for batches that are to be acked, and return them with their generation; raise what has failed.

        ``check`` raises when the client is closed.
        """
        while True:
            check()
            self._news.clear()
            generation, batches = self.take()
            self._room.set()
            if batches:
                return generation, batches
            with suppress(TimeoutError):
                async with asyncio.timeout(TICK):
                    await self._news.wait()

    async def stop(self) -> tuple[int, list[Batch]]:
        """Begin nothing any more; wait for what runs, but not for ever; return what is to be acked."""
        self.is_stopping = True
        self._fetcher.cancel()
        try:
            await asyncio.wait((self._fetcher, *self._running), timeout=self.grace)
        finally:
            running = list(self._running)
            for task in running:
                task.cancel()
            if running:
                await asyncio.wait(running, timeout=CANCELLED)
        return self.take_last()

    async def _fetch(self, get: Callable[[], Awaitable[tuple[int, Batch]]]) -> None:
        try:
            while True:
                while self.is_full:
                    self._room.clear()
                    await self._room.wait()
                generation, batch = await get()
                if batch:
                    self.add(generation, batch, self.read(batch))
                self._begin()
        except Exception as error:  # noqa: BLE001  the caller raises it
            self.fail(error)
            self._news.set()

    async def _run(self, task: Task[Batch, Item]) -> None:
        failure: BaseException | None = None
        try:
            await self._apply(task.change)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  the caller raises it
            failure = error
        if self.is_stopping and isinstance(failure, asyncio.CancelledError):
            return  # it has had its time
        self.end(task, failure)
        self._begin()

    async def _apply(self, change: Item) -> None:
        try:
            await self.function(change)
        except Exception as error:
            if self.on_error is None:
                raise
            await self.on_error(change, error)

    def _begin(self) -> None:
        for task in self.begin():
            running = asyncio.create_task(self._run(task))
            self._running.add(running)
            running.add_done_callback(self._running.discard)
        if not self.is_full:
            self._room.set()
        if self.has_news:
            self._news.set()
