"""The reader of TiDB's secondary binlog, for asyncio."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Self, TypeVar

from ...login.topic import SLICE
from ..batch import Batch
from .message import Message, batch_of
from .reader import NEWEST, TiDBReader, topic_of

T = TypeVar("T")


class AsyncTiDBReader:
    """As `TiDBReader`, for ``async with`` and ``async for``. It connects, and finds where to begin, when it is entered.

    A thread of its own waits for the brokers. One task at a time uses it; a call that is cancelled loses nothing.
    """

    def __init__(
        self,
        brokers: str,
        *,
        topic: str = "",
        cluster_id: str | int = "",
        commit_ts: int = 0,
        offset: int = NEWEST,
        after: tuple[int, int] | None = None,
        strict: bool = False,
        settings: Mapping[str, str] | None = None,
        timeout: float = 30.0,
    ) -> None:
        """Prepare. The arguments, and what is raised for them, are those of `TiDBReader`."""
        self.topic = topic_of(topic, cluster_id)
        """The name of the topic."""
        self._make = partial(
            TiDBReader,
            brokers,
            topic=self.topic,
            commit_ts=commit_ts,
            offset=offset,
            after=after,
            strict=strict,
            settings=settings,
            timeout=timeout,
        )
        self._pool = ThreadPoolExecutor(1, "sluice-tidb")
        self._opened: TiDBReader | None = None
        self._ready: deque[Message] = deque()
        self._taking: asyncio.Future[list[Message]] | None = None  # by the last call, or one that was cancelled

    async def __aenter__(self) -> Self:
        try:
            self._opened = await self._submit(self._make)
        except BaseException:
            self._pool.shutdown(wait=False)
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._submit(self._reader.close)
        self._pool.shutdown(wait=False)

    def __aiter__(self) -> AsyncIterator[Message]:
        return self

    async def __anext__(self) -> Message:
        while True:
            if (message := await self.get(SLICE)) is not None:
                return message

    @property
    def is_at_end(self) -> bool:
        """Whether all that the topic has was given."""
        return not self._ready and self._reader.is_at_end

    async def get(self, timeout: float) -> Message | None:  # noqa: ASYNC109  as the reader without asyncio
        """See `TiDBReader.get`."""
        if not self._ready:
            await self._take(timeout)
        return self._ready.popleft() if self._ready else None

    async def batches(self) -> AsyncIterator[Batch]:
        """See `TiDBReader.batches`."""
        while True:
            if not self._ready:
                await self._take(SLICE)
            if self._ready:
                messages = list(self._ready)
                self._ready.clear()
                yield batch_of(messages)

    @property
    def _reader(self) -> TiDBReader:
        if self._opened is None:
            raise RuntimeError("use it in `async with`")
        return self._opened

    async def _take(self, timeout: float) -> None:  # noqa: ASYNC109
        if self._taking is None:
            self._taking = self._submit(partial(self._reader.take, timeout))
        await asyncio.wait([self._taking])
        taken, self._taking = self._taking, None
        self._ready.extend(taken.result())

    def _submit(self, call: Callable[[], T]) -> "asyncio.Future[T]":
        return asyncio.get_running_loop().run_in_executor(self._pool, call)
