"""Threads for code that may hang: nobody waits for them at the end of the process."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import SimpleQueue
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class LeftExecutor(Executor):
    """Makes calls in a thread, one after the other, until it is shut down.

    Those of `ThreadPoolExecutor` are joined when Python ends: a form or an output that hangs would keep the process.
    """

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.began: float | None = None
        """When the call that goes on has begun, in monotonic time; None while none does."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Make a call when those before it have ended."""
        done: Future[T] = Future()

        def run() -> None:
            if done.set_running_or_notify_cancel():
                try:
                    done.set_result(fn(*args, **kwargs))
                except BaseException as error:  # noqa: BLE001  for whoever waits
                    done.set_exception(error)

        self._calls.put(run)
        if self._thread.ident is None:
            self._thread.start()
        return done

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Make no more calls after those that it was given; who waits for them calls `join`."""
        del wait, cancel_futures
        self._calls.put(None)

    def join(self, seconds: float) -> bool:
        """Wait for the last call after `shutdown`; return whether it has ended."""
        if self._thread.ident is not None:
            self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            self.began = time.monotonic()
            call()
            self.began = None
