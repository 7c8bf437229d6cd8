"""An event loop in simulated time: what the product does with asyncio runs in it, without threads and sockets."""

import asyncio
from asyncio import events
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import Any, TypeVar, TypeVarTuple

from tests.simulation.world import Process, World

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Loop(asyncio.AbstractEventLoop):
    """The loop of a process. What is called in a thread takes its time, and is done in one piece."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process
        self._ready: deque[asyncio.Handle] = deque()
        self._is_due = False

    def time(self) -> float:
        """Return the time of the simulation."""
        return self._world.now

    def get_debug(self) -> bool:
        """Return that nothing is traced."""
        return False

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Call something after all that is due already."""
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        if not self._is_due:
            self._is_due = True
            self._world.tell(0.0, self._process, self._run_ready)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Call something after a time."""
        return self.call_at(self._world.now + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Call something at a time."""
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._world.at(when, self._process, self._run, handle)
        return handle

    def create_future(self) -> "asyncio.Future[Any]":
        """Return a result that is still to come."""
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: object = None, context: Context | None = None) -> "asyncio.Task[Any]":
        """Run a coroutine."""
        del name, context
        return asyncio.Task(coro, loop=self)

    def run_in_executor(self, executor: Any, func: Callable[[*Ts], T], *args: *Ts) -> "asyncio.Future[T]":
        """Call something that takes its time."""
        del executor
        done = self.create_future()
        self._world.tell(self._world.latency(), self._process, self._call, done, func, args)
        return done

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Let an error of a callback end the schedule; tasks of servers that have died are nobody's."""
        if "handle" in context:
            raise context["exception"]

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        del handle

    def _call(self, done: "asyncio.Future[Any]", func: Callable[..., Any], args: tuple[Any, ...]) -> None:
        if done.cancelled():
            return
        try:
            result = func(*args)
        except Exception as error:  # noqa: BLE001  whatever it is, its caller gets it
            done.set_exception(error)
        else:
            done.set_result(result)

    def _run_ready(self) -> None:
        self._is_due = False
        while self._ready:
            self._run(self._ready.popleft())

    def _run(self, handle: asyncio.Handle) -> None:
        if handle.cancelled():
            return
        before = events._get_running_loop()
        events._set_running_loop(self)
        try:
            handle._run()
        finally:
            events._set_running_loop(before)
