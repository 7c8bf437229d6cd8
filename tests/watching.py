"""Servers that many tests share: when one ends by itself, the tests that use it fail at once, and say how it ended."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Protocol

import pytest

from tests.servers import ServerError


class Watched(Protocol):
    """A server."""

    @property
    def end(self) -> str:
        """How it ended, if nobody has stopped it."""


class Watch:
    """Looks after the servers of a test run, by the names of their fixtures."""

    def __init__(self, interval: float = 0.2) -> None:
        """Make one that looks every `interval` seconds, in a thread; a signal carries what it finds to the test."""
        self._servers: dict[str, Watched] = {}
        self._interval = interval
        self._test: pytest.Item | None = None

    @contextlib.contextmanager
    def over(self, name: str, server: Watched) -> Iterator[None]:
        """Watch a server for a while."""
        signal.signal(signal.SIGUSR1, self._end_test)
        done = threading.Event()
        main = threading.get_ident()

        def look() -> None:
            while not done.wait(self._interval):
                if server.end:
                    signal.pthread_kill(main, signal.SIGUSR1)
                    return

        self._servers[name] = server
        threading.Thread(target=look, daemon=True, name=f"watch over {name}").start()
        try:
            yield
        finally:
            done.set()
            del self._servers[name]

    def check(self, test: pytest.Item) -> None:
        """Raise ServerError if a server that a test uses has ended."""
        params = test.callspec.params.values() if hasattr(test, "callspec") else ()
        names = {*getattr(test, "fixturenames", ()), *(it for it in params if isinstance(it, str))}
        for name in self._servers.keys() & names:
            if end := self._servers[name].end:
                raise ServerError(end)

    @contextlib.contextmanager
    def during(self, test: pytest.Item) -> Iterator[None]:
        """End this test when a server that it uses ends."""
        self._test = test
        try:
            yield
        finally:
            self._test = None

    def _end_test(self, *_: object) -> None:
        if self._test is not None:
            self.check(self._test)
