"""Reading tables for the snapshots of the clients of a destination: a task for each client that takes one."""

import asyncio
import logging
import random
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeVar

from ...protocol.canal.touched import TouchedKeys
from ...protocol.errors import BadParameterError, NotSubscribedError, SluiceError, UnknownSnapshotError
from ...store.client_snapshots import ClientSnapshots
from ...store.snapshot import ChunkStatus, Window, Wish
from ..config import InstanceConfig
from ..source import ReadableTable, TableReader

logger = logging.getLogger(__name__)

GLANCE: Final = 0.5
"""Seconds between two looks at whether more may be read, if nobody says so."""
FIRST_DELAY: Final = 0.2
LONGEST_DELAY: Final = 30.0
"""Seconds between two attempts to read after an error."""


T = TypeVar("T")


class SnapshotTasks:
    """The tasks of a destination. All methods belong to the event loop."""

    def __init__(
        self,
        config: InstanceConfig,
        snapshots: ClientSnapshots,
        make_reader: Callable[[], TableReader],
        on_rows: Callable[[], object],
        turns: asyncio.Semaphore,
    ) -> None:
        """``on_rows`` is called when there are rows to be given, or changes that waited for them.

        ``turns`` limits how many tables are read at a time.
        """
        self._destination = config.destination
        self.snapshots = snapshots
        self.make_reader = make_reader
        self.on_rows = on_rows
        self.turns = turns
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._news: dict[int, asyncio.Event] = {}

    def tend(self) -> None:
        """Look at once whether something is to be read for the clients that take snapshots."""
        for client_id in self.snapshots.active:
            if client_id in self._tasks:
                self._news[client_id].set()
            else:
                self._news[client_id] = asyncio.Event()
                name = f"snapshot of {self._destination}/{client_id}"
                self._tasks[client_id] = asyncio.create_task(self._run(client_id), name=name)

    async def close(self) -> None:
        """End all tasks."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, client_id: int) -> None:
        task = _SnapshotTask(self, client_id)
        try:
            await task.run(self._news[client_id])
        except NotSubscribedError:
            return
        except Exception as error:
            logger.exception("the snapshots of client %d have failed", client_id, extra=self.extra)
            for snapshot in self.snapshots.of(client_id):
                snapshot.error = f"{type(error).__name__}: {error}; pause and resume it, and report what the log says"
        finally:
            del self._tasks[client_id]

    @property
    def extra(self) -> dict[str, str]:
        """What goes with each line of the log."""
        return {"destination": self._destination}


class _SnapshotTask:
    """Reads for one client, as long as it takes snapshots."""

    def __init__(self, tasks: SnapshotTasks, client_id: int) -> None:
        self._tasks = tasks
        self._snapshots = tasks.snapshots
        self._client_id = client_id
        self._described: ReadableTable | None = None
        self._due = 0.0  # monotonic time: not before, by the limit of rows

    async def run(self, news: asyncio.Event) -> None:
        """Read until all snapshots are confirmed, or paused."""
        reader: TableReader | None = None
        delay = FIRST_DELAY
        try:
            while self._client_id in self._snapshots.active:
                news.clear()
                pause = self._due - time.monotonic()
                if pause > 0 or self._snapshots.wish(self._client_id) is None:
                    await _sleep(news, pause if pause > 0 else GLANCE)
                    continue
                async with self._tasks.turns:
                    wish = self._snapshots.wish(self._client_id)
                    if wish is None:
                        continue
                    try:
                        reader = reader or self._tasks.make_reader()
                        await self._read(reader, wish)
                    except UnknownSnapshotError:  # it was cancelled meanwhile
                        continue
                    except BadParameterError as error:  # it takes a person
                        self._note(wish, f"{error}. Then resume it", pauses=True)
                    except SluiceError as error:
                        self._note(wish, str(error))
                        pause, delay = delay, min(2 * delay, LONGEST_DELAY)
                        self._due = time.monotonic() + pause * random.uniform(2 / 3, 4 / 3)  # noqa: S311
                    else:
                        self._note(wish, "")
                        delay = FIRST_DELAY
        finally:
            if reader is not None:
                await asyncio.to_thread(reader.close)

    async def _read(self, reader: TableReader, wish: Wish) -> None:
        began = time.monotonic()
        snapshot = self._snapshots.get(self._client_id, wish.snapshot_id)
        snapshot.chunk = shown = ChunkStatus(f"{wish.schema}.{wish.name}", wish.after)
        known = self._described
        if known is None or (known.member, known.schema, known.name) != (wish.member, wish.schema, wish.name):
            names = wish.schema, wish.name, wish.where, wish.member
            found = await _ask(reader, reader.describe, *names)
            if not found:
                raise BadParameterError(f"member {wish.member} has no {wish.schema}.{wish.name} any more", "tables")
            (known,) = found
            self._described = known
            if self._snapshots.wish(self._client_id) != wish:  # it was cancelled or paused, or the client has gone back
                return
        touched = TouchedKeys(wish.schema, wish.name, known.key, member=wish.member, ignore_case=known.ignore_case)
        window = Window(wish, touched, is_whole=not known.key)
        self._snapshots.open_window(self._client_id, window)
        try:
            if window.is_whole:
                place = await _ask(reader, reader.begin, wish)
                self._snapshots.place_window(self._client_id, window, place)
                self._tasks.on_rows()
            chunk = await _ask(reader, reader.read, wish)
        except BaseException:
            self._snapshots.close_window(self._client_id, window)
            self._tasks.on_rows()
            raise
        if tuple(chunk.key) != known.key:  # it is another table now
            self._described = None
            self._snapshots.close_window(self._client_id, window)
            return
        snapshot.begun = snapshot.begun or (began, snapshot.rows)
        rows = sum(len(piece.block) for piece in chunk.pieces)
        if self._snapshots.fill_window(self._client_id, window, chunk):
            size = sum(piece.block.size for piece in chunk.pieces)
            snapshot.chunk = replace(shown, to=chunk.last, rows=rows, bytes=size)
            self._tasks.on_rows()
        if wish.rate:
            self._due = max(self._due, time.monotonic() - 1) + rows / wish.rate

    def _note(self, wish: Wish, error: str, *, pauses: bool = False) -> None:
        """Show why nothing can be read."""
        snapshots = self._snapshots.of(self._client_id)
        found = next((it for it in snapshots if it.snapshot_id == wish.snapshot_id), None)
        if found is None or found.error == error:
            return
        if pauses:
            self._snapshots.pause(self._client_id, wish.snapshot_id, is_paused=True)
        found.error = error
        if error:
            logger.warning(
                "the snapshot of client %d cannot go on: %s", self._client_id, error, extra=self._tasks.extra
            )


async def _ask(reader: TableReader, call: Callable[..., T], *arguments: object) -> T:
    """Run a call that waits for the source in a thread; when this is cancelled, the call is interrupted."""
    working = asyncio.ensure_future(asyncio.to_thread(call, *arguments))
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        reader.interrupt()
        await asyncio.gather(working, return_exceptions=True)  # it fails, as it is to
        raise


async def _sleep(news: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(min(seconds, GLANCE)):
            await news.wait()
    except TimeoutError:
        return
