"""A session with the target, in which units are written."""

import random
import threading
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

import pymysql
from pymysql.constants import CLIENT

from ....sql.database import Database, DatabaseSession
from ....sql.tables import Tables
from ....sql.target import DuplicateRowError, is_conflict, set_up
from ....sql.writer import Writer
from .settings import SafeMode
from .units import Unit

if TYPE_CHECKING:
    from collections.abc import Callable

    from pymysql.cursors import Cursor

RETRY = 60.0
"""Seconds for which a transaction is tried again that meets locks of others."""
PAUSE = 0.05
"""Seconds between two tries, about."""
PATIENCE = 0.5
"""Seconds for which a transaction that is written, and may not commit yet, keeps its locks while no other one does."""


class Turns:
    """Lets transactions commit in the order of their numbers, from 0 on, whatever session each is in."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._next = 0
        self._is_stopped = False

    def wait(self, number: int, patience: float | None = None) -> bool:
        """Wait until all before it are committed; whether it came to that. Raises StoppedError.

        ``patience``: seconds without a commit after which it is given up.
        """
        with self._changed:
            while self._next < number and not self._is_stopped:
                before = self._next
                if not self._changed.wait_for(lambda: self._is_stopped or self._next != before, patience):  # noqa: B023
                    return False
            if self._next < number:
                raise StoppedError
            return True

    def end(self, number: int) -> None:
        """Note that it is committed."""
        with self._changed:
            self._next = number + 1
            self._changed.notify_all()

    def stop(self) -> None:
        """Let nobody wait any more: one of them has failed."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()


class StoppedError(Exception):
    """Another transaction has failed, which comes first."""


class Session:
    """A session with the target. Used by one thread; any thread may `shutdown`."""

    def __init__(
        self, database: Database, time_zone: str, tables: Tables, begin: "Callable[[Cursor], None] | None" = None
    ) -> None:
        """Log in. Raises SourceError, TargetError, MySQLError.

        ``begin`` is called before the first unit of each transaction is written.
        """
        self._session: DatabaseSession = database.connect(autocommit=False, client_flag=CLIENT.FOUND_ROWS)
        self._writer = Writer(tables, is_checked=True)
        self._begin = begin
        self._has_begun = False
        self.cursor: Cursor = self._session.cursor()
        try:
            self._packet = set_up(self.cursor, database, time_zone)
        except BaseException:
            self._session.close()
            raise

    def write(self, units: Iterable[Unit], *, is_safe: bool) -> None:
        """Write units in the transaction that is open. Raises TargetError, and what a later try may not meet."""
        for unit in units:
            if self._begin is not None and not self._has_begun:
                self._begin(self.cursor)
                self._has_begun = True
            if unit.emptied is not None:
                self._writer.empty(self.cursor, unit.emptied)
            self._writer.write(self.cursor, unit.changes, unit.data, self._packet, is_safe=is_safe)

    def transact(
        self, work: "Callable[[bool], None]", mode: SafeMode, turns: Turns | None = None, number: int = 0
    ) -> None:
        """Run a transaction, again if it meets locks of others, and commit it in its turn.

        ``work`` is told whether to write safely: as ``mode`` says, with `AUTO` only after rows were in the way. What
        waits for its turn may hold what an earlier transaction needs, of which the target knows nothing. So if nothing
        is committed for a while, it gives that back, and is run again in its turn. Raises what ``work`` raises,
        MySQLError and StoppedError.
        """
        deadline, in_turn, is_safe = 0.0, False, mode is SafeMode.ALWAYS
        while True:
            try:
                if in_turn and turns is not None:
                    turns.wait(number)
                work(is_safe)
                if turns is None or turns.wait(number, PATIENCE):
                    self.commit()
                    break
                self._rollback()
            except pymysql.MySQLError as error:
                now = time.monotonic()
                deadline = deadline or now + RETRY
                if not is_conflict(error) or now > deadline:
                    raise
                self._rollback()
                self._writer.restore(self.cursor)
                time.sleep(PAUSE * random.uniform(0.5, 1.5))  # noqa: S311  so that those that met do not meet again
            except DuplicateRowError:
                if is_safe or mode is not SafeMode.AUTO:
                    raise
                is_safe = True
                self._rollback()
                self._writer.restore(self.cursor)
            in_turn = True
        if turns is not None:
            turns.end(number)

    def commit(self) -> None:
        """Commit the transaction that is open."""
        self._session.commit()
        self._has_begun = False

    def _rollback(self) -> None:
        self._session.rollback()
        self._has_begun = False

    def shutdown(self) -> None:
        """End the connection, from any thread: what waits for the target fails."""
        self._session.shutdown()

    def close(self) -> None:
        """Log out."""
        self._session.close()
