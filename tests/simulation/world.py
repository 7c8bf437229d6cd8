"""A clock that stands still between events, the events, and one source of chance for everything."""

import random
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Protocol


class Process(Protocol):
    """Something that can stand still, and die."""

    life: int
    """Counts its lives; what was meant for an earlier one is lost."""
    awake_at: float
    """It is paused until then, which may become later only; what comes meanwhile waits, and keeps its order."""


class World:
    """Time, events and chance. Times are seconds."""

    def __init__(self, seed: int, *, trace: bool = False) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.now = 0.0
        self.steps = 0
        self.trace: list[str] | None = [] if trace else None
        self._events: list[tuple[float, float, int, Process | None, int, Callable[..., None], tuple[Any, ...]]] = []
        """When they happen, when they should have, and in which order they were thought of."""
        self._number = 0

    def at(self, time: float, process: Process | None, call: Callable[..., None], *arguments: Any) -> None:
        """Let something happen then, after all that is to happen then already.

        What keeps its order needs times that are exactly the same: a delay, added to the time of now, is rounded.
        """
        self._number += 1
        life = process.life if process is not None else 0
        heappush(self._events, (time, time, self._number, process, life, call, arguments))

    def after(self, delay: float, call: Callable[..., None], *arguments: Any) -> None:
        """Let something happen."""
        self.at(self.now + delay, None, call, *arguments)

    def tell(self, delay: float, process: Process, call: Callable[..., None], *arguments: Any) -> None:
        """Let something happen to a process, if it lives so long, and when it is awake."""
        self.at(self.now + delay, process, call, *arguments)

    def step(self) -> None:
        """Let the next thing happen."""
        time, due, number, process, life, call, arguments = heappop(self._events)
        if process is not None:
            if process.life != life:
                return
            if process.awake_at > time:  # what waits keeps its order: connections do
                heappush(self._events, (process.awake_at, due, number, process, life, call, arguments))
                return
        self.now = time
        self.steps += 1
        call(*arguments)

    def log(self, who: str, what: str, *details: object) -> None:
        """Say in the trace what happens."""
        if self.trace is not None:
            self.trace.append(f"{self.now:9.4f} {who:<10} {what} {' '.join(map(str, details))}".rstrip())

    def latency(self, longest: float = 3.0) -> float:
        """Seconds that a message takes: mostly some milliseconds, sometimes long."""
        chance = self.random.random()
        return 0.002 + 0.02 * chance if chance < 0.95 else self.random.random() * longest
