"""What is asked of the TiDB servers of a cluster: the time, what has become of a transaction, DDL jobs. It blocks.

The time is a transaction's start_ts, by SQL. What has become of one stands in TiKV, under the first key that it has
locked. A TiDB answers to ``/ddl/history`` with a list of jobs, and to ``/mvcc/hex/<key>`` (its docs/tidb_http_api.md;
what is 0 or empty is left out)::

    {"key", "region_id", "value": {"info": {
        "lock": {"start_ts"},
        "writes": [{"type", "start_ts", "commit_ts"}]}}}
"""

import contextlib
import json
import ssl
from collections.abc import Sequence
from typing import Any, Final

import pymysql
import urllib3

from ...protocol.errors import SourceError
from ...sql.database import Database, DatabaseSession, reason

TIMEOUT: Final = 5.0
"""Seconds for an answer of one server."""
LONGEST: Final = 4 << 20
"""Bytes of an answer."""
ROLLBACK: Final = 3
"""The type of a write that says that there was none (kvrpcpb.Op)."""


class ClusterError(SourceError):
    """No TiDB has answered as it should."""


class Cluster:
    """TiDB servers of a cluster; each question goes to one after the other. One thread at a time asks."""

    def __init__(self, databases: Sequence[Database], urls: Sequence[str], tls: ssl.SSLContext | None = None) -> None:
        """``databases`` are asked for the time; ``urls``, of their status ports, for transactions."""
        self._databases = list(databases)
        self._urls = [it.rstrip("/") for it in urls]
        self._session: DatabaseSession | None = None
        self._pool = urllib3.PoolManager(retries=False, ssl_context=tls, timeout=TIMEOUT)

    def close(self) -> None:
        """Close the connections."""
        self._log_out()
        self._pool.clear()

    def now(self) -> int:
        """Return a new timestamp of the cluster. Raises ClusterError."""
        problems = []
        for _ in range(len(self._databases)):
            try:
                return self._ask_for_time()
            except (SourceError, pymysql.MySQLError, OSError, ValueError, TypeError) as error:
                database = self._databases[0]
                problems.append(f"{database}: {reason(error)}")
                self._log_out()
                self._databases = [*self._databases[1:], database]
        raise ClusterError(f"TiDB does not report the time of the cluster: {'; '.join(problems)}")

    def commit_ts_of(self, start_ts: int, key: bytes) -> int | None:
        """Return the commit_ts of a transaction by its first key; 0 if it has not committed, None if it is under way.

        Raises ClusterError.
        """
        problems = []
        for url in list(self._urls):
            try:
                return _commit_ts(json.loads(self._get(f"{url}/mvcc/hex/{key.hex()}", LONGEST)), start_ts)
            except (urllib3.exceptions.HTTPError, ValueError, RecursionError) as error:
                problems.append(f"{url}: {error}")
        raise ClusterError(f"TiDB does not report what has become of a transaction: {'; '.join(problems)}")

    def jobs(self, longest: int) -> bytes:
        """Return the history of all DDL jobs, a list in JSON, of at most so many bytes. Raises ClusterError."""
        problems = []
        for url in list(self._urls):
            try:
                return self._get(f"{url}/ddl/history", longest)
            except (urllib3.exceptions.HTTPError, ValueError) as error:
                problems.append(f"{url}: {error}")
        raise ClusterError(f"TiDB does not report its DDL jobs: {'; '.join(problems)}")

    def _ask_for_time(self) -> int:
        if self._session is None:
            arguments = {"connect_timeout": TIMEOUT, "read_timeout": TIMEOUT, "write_timeout": TIMEOUT}
            self._session = self._databases[0].connect(**arguments)
        with self._session.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute("SELECT @@tidb_current_ts")
            (value,) = cursor.fetchone() or (None,)
            cursor.execute("ROLLBACK")
        ts = int(value)
        if ts <= 0:
            raise ValueError(f"its time is {ts}")
        return ts

    def _log_out(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            with contextlib.suppress(pymysql.MySQLError, OSError):  # it is gone either way
                session.close()

    def _get(self, url: str, longest: int) -> bytes:
        response = self._pool.request("GET", url, preload_content=False, redirect=False)
        try:
            data = response.read(longest + 1)
        finally:
            response.close()
        if len(data) > longest:
            raise ValueError(f"its answer has more than {longest} bytes")
        if response.status != 200:
            raise ValueError(f"it answers {response.status}: {data[:300].decode(errors='replace')}")
        return data


def _commit_ts(answer: Any, start_ts: int) -> int | None:
    """Read what `Cluster.commit_ts_of` returns. Raises ValueError."""
    try:
        info = answer["value"].get("info") or {}
        for write in info.get("writes") or ():
            if int(write.get("start_ts", 0)) == start_ts:
                commit_ts = int(write.get("commit_ts", 0))
                return commit_ts if int(write.get("type", 0)) != ROLLBACK and commit_ts > start_ts else 0
        return None if int((info.get("lock") or {}).get("start_ts", 0)) == start_ts else 0
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"its answer makes no sense ({type(error).__name__}: {error})") from error
