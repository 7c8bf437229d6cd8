"""Which changes of a stream may be processed at the same time, and which batches can be acked; without I/O."""

from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Generic, TypeVar

B = TypeVar("B")
C = TypeVar("C")


@dataclass(slots=True, eq=False)
class _Flight(Generic[B]):
    """A batch between get and ack."""

    batch: B
    size: int
    left: int = 0
    """Changes of it that are not processed."""


@dataclass(slots=True, eq=False)
class Task(Generic[B, C]):
    """A change to process."""

    number: int
    """In the order of the stream."""
    change: C
    keys: frozenset[Hashable] | None
    flight: _Flight[B]
    waits_for: int = 0
    """Tasks before it that have a key of it and are not processed."""
    followers: "list[Task[B, C]]" = field(default_factory=list)
    """Those that wait for it."""

    def __lt__(self, other: "Task[B, C]") -> bool:
        return self.number < other.number


class Schedule(Generic[B, C]):
    """The changes of the batches that are not acked.

    Changes that have a key in common are processed one after the other, as they were added. One without keys is a
    barrier: it waits for all before it, and all after it wait for it. Of several that may begin, the oldest does. What
    has begun holds its keys until it is finished, even if its batch is dropped: its repetition waits for it.
    """

    def __init__(self, workers: int, window: int, max_bytes: int) -> None:
        """``workers``: changes at once. ``window``, ``max_bytes``: batches, and bytes of them, that make it full."""
        self.generation = 0
        """Of the batches that are there; those of an earlier one come again."""
        self.running: set[Task[B, C]] = set()
        """What has begun and is not finished."""
        self._workers = workers
        self._window = window
        self._max_bytes = max_bytes
        self._count = 0
        self._bytes = 0
        self._flights: deque[_Flight[B]] = deque()
        self._waiting: deque[Task[B, C]] = deque()  # behind a barrier, which comes first
        self._admitted = 0  # tasks that are not finished and not behind a barrier
        self._barrier: Task[B, C] | None = None  # that is admitted
        self._last: dict[Hashable, Task[B, C]] = {}  # the last admitted task of each key
        self._ready: list[Task[B, C]] = []  # a heap

    @property
    def is_full(self) -> bool:
        """Whether no further batch is to be fetched."""
        return len(self._flights) >= self._window or self._bytes >= self._max_bytes

    @property
    def is_empty(self) -> bool:
        """Whether no batch is there."""
        return not self._flights

    @property
    def has_processed(self) -> bool:
        """Whether `take` would give batches."""
        return bool(self._flights) and not self._flights[0].left

    def renew(self, generation: int) -> None:
        """Drop all batches of an earlier generation. What runs goes on."""
        if generation <= self.generation:
            return
        self.generation = generation
        self._flights.clear()
        self._waiting.clear()
        self._ready.clear()
        self._last.clear()
        self._bytes = 0
        self._admitted = len(self.running)
        self._barrier = None
        for task in self.running:
            task.followers.clear()
            if task.keys is None:
                self._barrier = task
            else:
                self._last.update(dict.fromkeys(task.keys, task))

    def add(
        self, generation: int, batch: B, size: int, changes: Iterable[tuple[C, frozenset[Hashable] | None]]
    ) -> None:
        """Add a batch of ``size`` bytes, with the keys of each of its changes; None for a barrier."""
        self.renew(generation)
        if generation < self.generation:
            return
        flight = _Flight(batch, size)
        self._flights.append(flight)
        self._bytes += size
        for change, keys in changes:
            self._waiting.append(Task(self._count, change, keys, flight))
            self._count += 1
            flight.left += 1
        self._admit()

    def begin(self) -> Task[B, C] | None:
        """Begin the oldest change that may be processed now; None if there is none, or no worker is free."""
        if not self._ready or len(self.running) >= self._workers:
            return None
        task = heappop(self._ready)
        self.running.add(task)
        return task

    def finish(self, task: Task[B, C]) -> None:
        """Hear that a change was processed."""
        self.running.discard(task)
        self._admitted -= 1
        task.flight.left -= 1
        if task is self._barrier:
            self._barrier = None
        for key in task.keys or ():
            if self._last.get(key) is task:
                del self._last[key]
        for after in task.followers:
            after.waits_for -= 1
            if not after.waits_for:
                heappush(self._ready, after)
        self._admit()

    def take(self) -> list[B]:
        """Take the batches that are to be acked: of which, and of all before, every change is processed."""
        batches = []
        while self.has_processed:
            flight = self._flights.popleft()
            self._bytes -= flight.size
            batches.append(flight.batch)
        return batches

    def _admit(self) -> None:
        while self._waiting and self._barrier is None:
            task = self._waiting[0]
            if task.keys is None:
                if self._admitted:
                    return
                self._barrier = task
            self._waiting.popleft()
            self._admitted += 1
            for key in task.keys or ():
                last = self._last.get(key)
                if last is not None:
                    last.followers.append(task)
                    task.waits_for += 1
                self._last[key] = task
            if not task.waits_for:
                heappush(self._ready, task)
