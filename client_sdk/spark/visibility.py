"""Whether a SELECT sees what the binlog holds before a position. Needs no Spark.

A program that takes a position, then reads tables, then changes from that position on, misses a transaction that
stands before the position but is not visible yet. They exist: a transaction is sent to replicas as soon as it is in
the binlog, and becomes visible when the storage engine has committed it, which is later, by seconds if other replicas
have to confirm it first (semi-synchronous replication).
"""

import re
import time
from collections.abc import Callable
from typing import Final

import pymysql
from pymysql.constants import ER

from ...protocol.errors import SourceChangedError, SourceError
from ...protocol.position import Position
from ..sql.database import DatabaseSession

PATIENCE: Final = 60.0
"""Seconds that transactions may take from the binlog to their commit."""
LOOK: Final = 0.05
"""Seconds between two looks."""


def wait_until_visible(session: DatabaseSession, position: Position, patience: float = PATIENCE) -> None:
    """Return when a SELECT sees all transactions that stand before a position in the binlog.

    On MariaDB and on MySQL with GTIDs no privilege is needed for it; without GTIDs, MySQL wants PROCESS. XA
    transactions that are prepared count as well, where the account may list them (MySQL 8: XA_RECOVER_ADMIN).

    Raises:
        SourceChangedError: the position is of another server; a replica may be behind it.
        SourceError: a transaction does not come to its end, or a privilege is missing.
        pymysql.MySQLError: the connection broke.
    """
    deadline = time.monotonic() + patience
    ((version, server_id),) = session.rows("SELECT @@version, @@server_id")
    is_mariadb = "mariadb" in version.lower()
    source = str(server_id) if is_mariadb else session.rows("SELECT @@server_uuid")[0][0]
    if not position.is_of(source):
        raise SourceChangedError(
            f"{session.database} is server {source}, but the position {position} is of another: read from the server"
            " that the destination reads from, not from a replica of it, which may be behind"
        )
    first = {query: query(session) for query in _queries(session, is_mariadb=is_mariadb)}
    while True:
        left = sorted(name for query, names in first.items() for name in names & query(session))
        if not left and (not is_mariadb or position.is_reached_by(*_committed(session))):
            return
        if time.monotonic() > deadline:
            raise SourceError(
                f"transactions of {session.database} have been in the binlog but not committed for {patience:.0f} s:"
                f" {', '.join(left) or f'some before {position}'}; end them (XA COMMIT or XA ROLLBACK), or see why"
                " replicas do not confirm them, then try again"
            )
        time.sleep(LOOK)


Query = Callable[[DatabaseSession], set[str]]
"""Names those of its transactions that may be in the binlog and are not visible."""


def _queries(session: DatabaseSession, *, is_mariadb: bool) -> list[Query]:
    queries: list[Query] = [_xa]
    if not is_mariadb:
        variables = dict(session.rows("SHOW GLOBAL VARIABLES LIKE 'gtid_mode'"))
        queries.append(_owned if variables.get("gtid_mode") == "ON" else _prepared)
    return queries


def _committed(session: DatabaseSession) -> tuple[str, int]:
    """Return where the binlog of MariaDB was, file and offset, when the last visible transaction had ended."""
    session.rows("START TRANSACTION WITH CONSISTENT SNAPSHOT")
    status = dict(session.rows("SHOW STATUS LIKE 'binlog_snapshot_%'"))
    session.rows("COMMIT")
    return status["Binlog_snapshot_file"], int(status["Binlog_snapshot_position"])


def _owned(session: DatabaseSession) -> set[str]:
    """Return the GTIDs that are given out, of transactions that are committing."""
    names = set()
    for block in session.rows("SELECT @@GLOBAL.gtid_owned")[0][0].split(","):
        prefix, *items = block.strip().split(":")
        for item in items:
            number, *owners = item.split("#")  # number#thread#thread
            if owners:
                names.add(f"{prefix}:{number}")
            else:  # a tag
                prefix = f"{prefix}:{item}"
    return names


def _prepared(session: DatabaseSession) -> set[str]:
    """Return InnoDB's numbers of transactions that are prepared: what they are while the binlog is written."""
    try:
        (status,) = session.rows("SHOW ENGINE INNODB STATUS")
    except pymysql.MySQLError as error:
        if error.args[0] != ER.SPECIFIC_ACCESS_DENIED_ERROR:
            raise
        raise SourceError(
            f"{session.database} uses no GTIDs (gtid_mode), and the account may not see which transactions are"
            " committing: GRANT PROCESS ON *.* TO it, or turn gtid_mode ON"
        ) from error
    return set(re.findall(r"^---TRANSACTION (\d+), ACTIVE \(PREPARED\)", status[2], re.MULTILINE))


def _xa(session: DatabaseSession) -> set[str]:
    """Return the XA transactions that are prepared; none where the account may not see them."""
    try:
        names = [name for *_, name in session.rows("XA RECOVER")]
    except pymysql.MySQLError as error:
        if error.args[0] in (ER.XAER_RMERR, ER.SPECIFIC_ACCESS_DENIED_ERROR):
            return set()
        raise
    return {f"XA {name.decode(errors='replace') if isinstance(name, bytes) else name}" for name in names}
