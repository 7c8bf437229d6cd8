"""Changes that a function processes in parallel: what both clients do of it, and the threads of `Client`."""

import logging
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import suppress
from inspect import iscoroutine
from queue import Empty, SimpleQueue
from typing import Final, Generic, TypeAlias, TypeVar

from ..protocol.canal.rows import Change, Row
from ..protocol.errors import BadParameterError, QuotaExceededError
from .batch import Batch
from .endpoint import Endpoint
from .keys import Key, Keys, ProcessingError
from .schedule import Schedule, Task

R = TypeVar("R")

Item: TypeAlias = Row | Change
Keyed: TypeAlias = tuple[Item, frozenset[Hashable] | None]
Function: TypeAlias = Callable[[Item], R]
OnError: TypeAlias = Callable[[Item, Exception], R]

MAX_WORKERS: Final = 1000
MAX_WINDOW: Final = 1024
MAX_GRACE: Final = 3600.0
TICK: Final = 0.1  # seconds after which a client that was closed, or has rolled back, is noticed at the latest

logger = logging.getLogger(__name__)


class Processing(Generic[R]):
    """The changes between get and ack, and what became of them."""

    def __init__(
        self,
        endpoint: Endpoint,
        function: Function[R],
        workers: int,
        key: Key | None,
        on_error: OnError[R] | None,
        window: int,
        max_bytes: int,
        grace: float,
    ) -> None:
        """`Client.process` says what the arguments are; BadParameterError for one that cannot be used."""
        for name, value, least, most in (
            ("workers", workers, 1, MAX_WORKERS),
            ("window", window, 1, MAX_WINDOW),
            ("max_bytes", max_bytes, 1, None),
            ("grace", grace, 0, MAX_GRACE),
        ):
            if not least <= value or (most is not None and value > most):
                limits = f"at least {least}" if most is None else f"{least} to {most:g}"
                raise BadParameterError(f"{name} is {limits}, not {value}", name)
        self.workers = workers
        self.grace = grace
        self.function = function
        self.on_error = on_error
        self.is_stopping = False
        self.active = 0
        """Changes whose function runs."""
        self._endpoint = endpoint
        self._keys = Keys(key)
        self._schedule: Schedule[Batch, Item] = Schedule(workers, window, max_bytes)
        self._spent: QuotaExceededError | None = None  # why no further batch is fetched
        self._failures: list[BaseException] = []
        self._told = 0  # failures that were raised or logged

    @property
    def is_full(self) -> bool:
        """Whether no further batch is to be fetched."""
        return self._schedule.is_full

    @property
    def has_news(self) -> bool:
        """Whether there is something to ack, or to raise."""
        return self._schedule.has_processed or bool(self._failures) or self._is_spent

    @property
    def _is_spent(self) -> bool:
        """Whether all is processed that was given before the quota was used up."""
        return self._spent is not None and self._schedule.is_empty

    def read(self, batch: Batch) -> list[Keyed]:
        """Decode the changes of a batch, and find their keys."""
        return list(self._keys.of(batch))

    def add(self, generation: int, batch: Batch, changes: list[Keyed]) -> None:
        """Add a batch that was read."""
        self._schedule.add(generation, batch, len(batch.data), changes)

    def begin(self) -> Iterator[Task[Batch, Item]]:
        """Begin all that may run now."""
        self._schedule.renew(self._endpoint.generation)
        while not (self.is_stopping or self._failures) and (task := self._schedule.begin()) is not None:
            self.active += 1
            yield task

    def end(self, task: Task[Batch, Item], failure: BaseException | None) -> None:
        """Hear how a change went."""
        self.active -= 1
        if failure is None:
            self._schedule.finish(task)
        else:
            what = "`function`" if self.on_error is None or not isinstance(failure, Exception) else "`on_error`"
            self.fail(ProcessingError(what, task.change, failure))

    def fail(self, failure: BaseException) -> None:
        """Begin nothing any more, because of this; of a quota that is used up, when all before is processed."""
        if isinstance(failure, QuotaExceededError):
            self._spent = failure
        else:
            self._failures.append(failure)

    def take(self) -> tuple[int, list[Batch]]:
        """Take what is to be acked, and its generation; raise the first failure when there is no more of it."""
        self._schedule.renew(self._endpoint.generation)
        batches = self._schedule.take()
        if not batches and len(self._failures) > self._told:
            self._told += 1
            raise self._failures[self._told - 1]
        if not batches and self._spent is not None and self._is_spent:
            raise self._spent
        return self._schedule.generation, batches

    def take_last(self) -> tuple[int, list[Batch]]:
        """Take what is to be acked, and log what else has failed and what still runs."""
        self._schedule.renew(self._endpoint.generation)
        for failure in self._failures[self._told :]:
            if isinstance(failure, ProcessingError):  # what a stop does to a call of the server, nobody has to know
                logger.error("%s: %s", self._endpoint.name, failure)
        self._told = len(self._failures)
        if self.active:
            text = "%s: %d changes have begun and did not end within %g s of the stop; they come again"
            logger.warning(text, self._endpoint.name, self.active, self.grace)
        return self._schedule.generation, self._schedule.take()


class Threads(Processing[object]):
    """Threads that run the function."""

    def start(self, get: Callable[[], tuple[int, Batch]]) -> None:
        """Begin; ``get`` gives a batch with its generation."""
        self.stopping = threading.Event()
        """Set when no further batch is to be fetched."""
        # A signal may interrupt the caller anywhere, which a Condition does not survive: it waits for a queue.
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._news: SimpleQueue[None] = SimpleQueue()
        self._is_told = False  # of news that it has not looked at
        self._tasks: SimpleQueue[Task[Batch, Item] | None] = SimpleQueue()
        # Not a ThreadPoolExecutor: Python would wait for its threads at its end, however long a function takes.
        self._fetcher = threading.Thread(target=self._fetch, args=(get,), name="sluice-fetch", daemon=True)
        self._fetcher.start()
        for number in range(self.workers):
            threading.Thread(target=self._work, name=f"sluice-process-{number}", daemon=True).start()

    def processed(self, check: Callable[[], None]) -> tuple[int, list[Batch]]:
        """Wait for batches that are to be acked, and return them with their generation; raise what has failed.

        ``check`` raises when the client is closed.
        """
        while True:
            check()
            with self._lock:
                self._is_told = False
                generation, batches = self.take()
                self._room.notify()
            if batches:
                return generation, batches
            self._wait(TICK)

    def stop(self) -> tuple[int, list[Batch]]:
        """Begin nothing any more; wait for what runs, but not for ever; return what is to be acked."""
        limit = time.monotonic() + self.grace
        try:
            with self._lock:
                self.is_stopping = True
                self._room.notify()
            self.stopping.set()
            while self.active and time.monotonic() < limit:
                self._is_told = False
                self._wait(min(TICK, max(0.0, limit - time.monotonic())))
            if self._fetcher.is_alive():
                self._fetcher.join(max(0.0, limit - time.monotonic()))
        finally:
            for _ in range(self.workers):
                self._tasks.put(None)
            if self._fetcher.is_alive():
                self._endpoint.lose_get()
        with self._lock:
            return self.take_last()

    def _wait(self, seconds: float) -> None:
        with suppress(Empty):
            self._news.get(timeout=seconds)

    def _tell(self) -> None:
        if not self._is_told:
            self._is_told = True
            self._news.put(None)

    def _fetch(self, get: Callable[[], tuple[int, Batch]]) -> None:
        try:
            while self._has_room():
                generation, batch = get()
                changes = self.read(batch) if batch else []
                with self._lock:
                    if batch:
                        self.add(generation, batch, changes)
                    self._begin()
                del batch, changes
        except BaseException as error:  # noqa: BLE001  the caller raises it
            with self._lock:
                self.fail(error)
                self._tell()

    def _has_room(self) -> bool:
        """Wait until a further batch is wanted; whether it ever will be."""
        with self._room:
            self._room.wait_for(lambda: self.is_stopping or not self.is_full)
            return not self.is_stopping

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            failure: BaseException | None = None
            try:
                self._apply(task.change)
            except BaseException as error:  # noqa: BLE001  the caller raises it
                failure = error
            with self._lock:
                self.end(task, failure)
                self._begin()
            del task, failure  # it may be long until the next one

    def _apply(self, change: Item) -> None:
        try:
            _call(self.function, change)
        except Exception as error:
            if self.on_error is None:
                raise
            _call(self.on_error, change, error)

    def _begin(self) -> None:
        for task in self.begin():
            self._tasks.put(task)
        if self.has_news or self.is_stopping:
            self._tell()


def _call(function: Callable[..., object], *arguments: object) -> None:
    result = function(*arguments)
    if iscoroutine(result):  # which nobody would run
        result.close()
        raise TypeError("it is a coroutine function: give it to an AsyncClient")
