"""The target of a mirror: transactions in a session that is alike on every server and replaced when lost."""

import random
import re
import time
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pymysql
from pymysql.constants import ER

from ..protocol.errors import SourceError, TargetError
from .database import Database, DatabaseSession, is_lost, reason
from .statements import RESUMES, Statement, TargetTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pymysql.cursors import Cursor

T = TypeVar("T")

LONGEST_HEAD = 500
"""Bytes of a statement that are shown."""

ROWS, SIZE = 10_000, 16 << 20
"""Of a transaction at most, unless one row, or one transaction of the source, is larger: rows, and bytes of their
texts."""
RETRY = 300.0
"""Seconds that a target may take to come back."""
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 5.0
"""Seconds between the tries."""

MODES = ("ALLOW_INVALID_DATES", "NO_AUTO_VALUE_ON_ZERO", "NO_BACKSLASH_ESCAPES")
"""The sql_mode that the statements need; STRICT_ALL_TABLES with it, but for statements that it does not let pass."""

_CONFLICTS = frozenset({ER.LOCK_DEADLOCK, ER.LOCK_WAIT_TIMEOUT, ER.CHECKREAD})
_BUSY = _CONFLICTS | {ER.OPTION_PREVENTS_STATEMENT}  # read only, as a server is while another one takes over
"""Errors that a later try may not meet, besides those of the connection."""


class RefusedRowError(TargetError):
    """A change that the target does not take, whatever it takes of others."""


class DuplicateRowError(RefusedRowError):
    """A row that the source did not have is in the place of a new one."""


class Target:
    """The target: runs transactions, one after another, over a connection that is made when it is needed."""

    def __init__(self, database: Database, time_zone: str = "UTC", retry: float = RETRY, *, lock: str = "") -> None:
        """Prepare; nothing is sent yet. ``time_zone`` is that of the texts of TIMESTAMP values.

        ``lock``: a name that no two sessions have at a time: one that was lost ends with its last statement.
        """
        self.database = database
        self._time_zone = time_zone
        self.retry = retry
        """Seconds for which a transaction is tried again."""
        self._lock = lock
        self._session: DatabaseSession | None = None
        self.packet = 0
        """Bytes that a statement may have, in a transaction."""

    def close(self) -> None:
        """Close the connection; the next transaction opens another one."""
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def transact(self, work: "Callable[[Cursor], T]") -> T:
        """Run a transaction. It is begun again, with growing pauses, after a deadlock or when the connection is lost.

        A lost connection leaves open whether the transaction was committed: ``work`` finds out by the progress.

        Raises:
            TargetError: the target refuses, or stays out of reach.
        """
        deadline, pause = 0.0, FIRST_PAUSE
        while True:
            try:
                return self._transact(work)
            except (SourceError, pymysql.MySQLError, OSError) as error:
                now = time.monotonic()
                deadline = deadline or now + self.retry
                if not is_passing(error) or now + pause > deadline:
                    text = str(error) if isinstance(error, SourceError) else f"{self.database}: {reason(error)}"
                    raise TargetError(text) from error
            time.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311  so that those that met do not meet again
            pause = min(pause * 2, LONGEST_PAUSE)

    def _transact(self, work: "Callable[[Cursor], T]") -> T:
        try:
            if self._session is None:
                self._session = self._open()
            session = self._session
            session.begin()
            with session.cursor() as cursor:
                result = work(cursor)
            session.commit()
        except BaseException:
            self.close()
            raise
        return result

    def _open(self) -> DatabaseSession:
        session = self.database.connect()
        try:
            with session.cursor() as cursor:
                self._take_lock(cursor)
                self.packet = set_up(cursor, self.database, self._time_zone)
        except BaseException:
            session.close()
            raise
        return session

    def _take_lock(self, cursor: "Cursor") -> None:
        if self._lock:
            cursor.execute("SELECT GET_LOCK(%s, %s)", (self._lock, round(self.retry)))
            if cursor.fetchall()[0][0] != 1:
                raise TargetError(
                    f"{self.database}: another session works under the name {self._lock!r}, or still runs its last"
                    " statement: see SHOW PROCESSLIST there"
                )


def set_up(cursor: "Cursor", database: Database, time_zone: str) -> int:
    """Make a session one for changes, and return how many bytes a statement may have.

    ``time_zone``: that of the texts of TIMESTAMP values. Raises TargetError when the server does not know it.
    """
    cursor.execute("SELECT @@max_allowed_packet")
    packet: int = cursor.fetchall()[0][0] - 1  # the command is a byte
    set_modes(cursor, is_strict=True)
    cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")  # fewer locks between tasks
    cursor.execute("SET foreign_key_checks = 0, unique_checks = 1, sql_safe_updates = 0")
    try:
        cursor.execute("SET time_zone = %s", (fixed_offset(time_zone) or time_zone,))
    except pymysql.MySQLError as error:
        if error.args[0] != ER.UNKNOWN_TIME_ZONE:
            raise
        raise TargetError(
            f"{database} does not know the time zone {time_zone}, which the destination writes TIMESTAMP values in:"
            " load the zones there (mysql_tzinfo_to_sql), or set sluice.instance.timeZone to UTC"
        ) from error
    return packet


def fixed_offset(zone: str) -> str | None:
    """Return the offset of a zone that never had another one: servers know it without tables of zones."""
    try:
        found = ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError):
        return None
    days = (datetime(year, month, 1, tzinfo=found) for year in range(1970, 2038) for month in range(1, 13))
    offsets = {day.isoformat()[19:] for day in days}
    return offsets.pop() if len(offsets) == 1 else None


def is_passing(error: Exception) -> bool:
    """Whether a later try may succeed: the connection was lost, or others were in the way."""
    return is_lost(error) or (bool(error.args) and error.args[0] in _BUSY)


def is_conflict(error: Exception) -> bool:
    """Whether a transaction has met locks of others, and may be run again in the same session."""
    return bool(error.args) and error.args[0] in _CONFLICTS


def set_modes(cursor: "Cursor", *, is_strict: bool) -> None:
    """Set what statements may do; ``is_strict``: a value that does not fit its column is an error."""
    cursor.execute("SET sql_mode = %s", (",".join(MODES + ("STRICT_ALL_TABLES",) * is_strict),))


def execute(
    cursor: "Cursor", table: TargetTable, statements: "Iterable[Statement]", *, has_to_find: bool = False
) -> int:
    """Run statements for a table in a transaction of `Target`, and return how many rows the last one has found.

    ``has_to_find``: each has to find a row, in a session that counts those. Raises TargetError and what a later try may
    not meet.
    """
    found = 0
    for statement in statements:
        if statement.is_lenient:
            set_modes(cursor, is_strict=False)
        try:
            found = cursor.connection.query(statement.sql)
        except pymysql.MySQLError as error:
            if is_passing(error):
                raise
            is_in_the_way = error.args[0] == ER.DUP_ENTRY
            raise (DuplicateRowError if is_in_the_way else RefusedRowError)(
                f"{'.'.join(table.name)} on the target refuses a change of {table.source}: {reason(error)}, in"
                f" {_head(statement.sql)}: make it equal to the table of the source. {RESUMES}"
            ) from error
        if has_to_find and not found:
            raise RefusedRowError(
                f"{'.'.join(table.name)} on the target does not have a row that {table.source} had before a change:"
                f" make it equal to the table of the source. {RESUMES}"
            )
        if statement.is_lenient:
            set_modes(cursor, is_strict=True)
    return found


def _head(sql: bytes) -> str:
    """Return a statement up to its values, which are nobody's business."""
    return re.split(rb" (?:VALUES|SET|WHERE) ", sql, maxsplit=1)[0][:LONGEST_HEAD].decode(errors="replace")
