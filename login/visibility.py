"""Whether a SELECT sees what the binlog holds before a position.

A program that takes a position, then reads tables, then changes from that position on, misses a transaction that
stands before the position but is not visible yet. They exist: a transaction is sent to replicas as soon as it is in
the binlog, and becomes visible when the storage engine has committed it, which is later, by seconds if other replicas
have to confirm it first (semi-synchronous replication).
"""

import re
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import pymysql
from pymysql.constants import ER

from ..protocol.errors import SourceChangedError, SourceError
from ..protocol.position import Position
from .session import MysqlSession

PATIENCE: Final = 60.0
"""Seconds that transactions may take from the binlog to their commit."""
LOOK: Final = 0.05
"""Seconds between two looks."""

Rows = Sequence[tuple[Any, ...]]


class Visibility:
    """The rule, without I/O: what to ask at each look, and what the answers say.

    Transactions that may be in the binlog and are not visible are noted by name at the first look; all before the
    position are visible when none of these is left. MariaDB says besides where its binlog was when the last visible
    transaction had ended.

    Args:
        position: a place in the binlog, taken before the first look.
        version: ``@@version`` of the server.
        source: its server_uuid, or for MariaDB its server_id.
        gtid_mode: its variable of that name; empty where it has none.

    Raises:
        SourceChangedError: the position is of another server; a replica may be behind it.
    """

    def __init__(self, position: Position, *, version: str, source: str, gtid_mode: str) -> None:
        if not position.is_of(source):
            raise SourceChangedError(
                f"it is server {source}, but the position {position} is of another: read from the server that the"
                " destination reads from, not from a replica of it, which may be behind"
            )
        self._position = position
        self._questions: list[tuple[str, Callable[[Rows], set[str]]]] = [("XA RECOVER", _xa)]
        self._asks_place = "mariadb" in version.lower()
        if not self._asks_place:
            owned = "SELECT @@GLOBAL.gtid_owned", _owned
            self._questions.append(owned if gtid_mode == "ON" else ("SHOW ENGINE INNODB STATUS", _prepared))
        self._first: list[set[str]] | None = None
        self.left: list[str] = []
        """The transactions that were not visible at the last look."""

    @property
    def questions(self) -> list[str]:
        """The statements of a look, in their order; each is answered by its rows, none where it is not allowed."""
        statements = [sql for sql, _ in self._questions]
        if self._asks_place:
            snapshot = "START TRANSACTION WITH CONSISTENT SNAPSHOT", "SHOW STATUS LIKE 'binlog_snapshot_%'", "COMMIT"
            statements += snapshot
        return statements

    def look(self, answers: Sequence[Rows]) -> bool:
        """Return whether all transactions before the position are visible, by the answers to the questions."""
        names = [read(rows) for (_, read), rows in zip(self._questions, answers, strict=False)]
        if self._first is None:
            self._first = names
        self.left = sorted(set().union(*(first & now for first, now in zip(self._first, names, strict=True))))
        if self.left or not self._asks_place:
            return not self.left
        status: dict[str, str] = dict(answers[-2])
        is_reached = self._position.is_reached_by(
            status["Binlog_snapshot_file"], int(status["Binlog_snapshot_position"])
        )
        if not is_reached:
            self.left = [f"some before {self._position}"]
        return is_reached


def wait_until_visible(session: MysqlSession, position: Position, patience: float = PATIENCE) -> None:
    """Return when a SELECT sees all transactions that stand before a position in the binlog.

    On MariaDB and on MySQL with GTIDs no privilege is needed for it; without GTIDs, MySQL wants PROCESS. XA
    transactions that are prepared count as well, where the account may list them (MySQL 8: XA_RECOVER_ADMIN).

    Raises:
        SourceChangedError: the position is of another server; a replica may be behind it.
        SourceError: a transaction does not come to its end, or a privilege is missing.
        pymysql.MySQLError: the connection broke.
    """
    deadline = time.monotonic() + patience
    names = "'version', 'server_id', 'server_uuid', 'gtid_mode'"
    variables = dict(session.rows(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})"))
    is_mariadb = "mariadb" in variables["version"].lower()
    source = variables["server_id"] if is_mariadb else variables["server_uuid"]
    try:
        visibility = Visibility(
            position, version=variables["version"], source=source, gtid_mode=variables.get("gtid_mode", "")
        )
    except SourceChangedError as error:
        raise SourceChangedError(f"{session.server}: {error}") from None
    while not visibility.look([_ask(session, sql) for sql in visibility.questions]):
        if time.monotonic() > deadline:
            raise SourceError(
                f"transactions of {session.server} have been in the binlog but not committed for {patience:.0f} s:"
                f" {', '.join(visibility.left)}; end them (XA COMMIT or XA ROLLBACK), or see why replicas do not"
                " confirm them, then try again"
            )
        time.sleep(LOOK)


def _ask(session: MysqlSession, sql: str) -> Rows:
    try:
        return session.rows(sql)
    except pymysql.MySQLError as error:
        code = error.args[0]
        if sql == "XA RECOVER" and code in (ER.XAER_RMERR, ER.SPECIFIC_ACCESS_DENIED_ERROR):
            return ()
        if sql == "SHOW ENGINE INNODB STATUS" and code == ER.SPECIFIC_ACCESS_DENIED_ERROR:
            raise SourceError(
                f"{session.server} uses no GTIDs (gtid_mode), and the account may not see which transactions are"
                " committing: GRANT PROCESS ON *.* TO it, or turn gtid_mode ON"
            ) from error
        raise


def _owned(rows: Rows) -> set[str]:
    """Return the GTIDs that are given out, of transactions that are committing."""
    names = set()
    for block in rows[0][0].split(","):
        prefix, *items = block.strip().split(":")
        for item in items:
            number, *owners = item.split("#")  # number#thread#thread
            if owners:
                names.add(f"{prefix}:{number}")
            else:  # a tag
                prefix = f"{prefix}:{item}"
    return names


def _prepared(rows: Rows) -> set[str]:
    """Return InnoDB's numbers of transactions that are prepared: what they are while the binlog is written."""
    return set(re.findall(r"^---TRANSACTION (\d+), ACTIVE \(PREPARED\)", rows[0][2], re.MULTILINE))


def _xa(rows: Rows) -> set[str]:
    """Return the XA transactions that are prepared."""
    names = [name for *_, name in rows]
    return {f"XA {name.decode(errors='replace') if isinstance(name, bytes) else name}" for name in names}
