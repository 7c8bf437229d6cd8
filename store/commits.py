"""Which write makes which changes of the cursors durable, without any I/O."""

from typing import Generic, TypeVar

from .clients import Clients
from .cursor import Changes

W = TypeVar("W")


class Commits(Generic[W]):
    """Group commit: one write at a time. Changes and waiters that come during a write share the next one."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._under_way: Changes | None = None
        self._waiting: list[W] = []
        self._writing_for: list[W] = []

    @property
    def wanted(self) -> bool:
        """Whether anyone waits for the write after the one under way."""
        return bool(self._waiting)

    def wait(self, waiter: W) -> bool:
        """Add a waiter until every change so far is durable; False if it already is."""
        if self._clients.changed:
            self._waiting.append(waiter)
        elif self._under_way is not None:
            self._writing_for.append(waiter)
        else:
            return False
        return True

    def begin(self) -> Changes | None:
        """Return what is to be written now; None if nothing is, or a write is under way."""
        if self._under_way is not None or not self._clients.changed:
            return None
        self._under_way = self._clients.take_changes()
        self._writing_for, self._waiting = self._waiting, []
        return self._under_way

    def end(self, *, durable: bool) -> list[W]:
        """End the write, and return its waiters; what could not be stored is kept for the next one."""
        if self._under_way is not None:
            self._clients.end_store(self._under_way, durable=durable)
        self._under_way = None
        waiters, self._writing_for = self._writing_for, []
        return waiters
