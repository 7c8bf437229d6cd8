"""Two servers of which one replicates from the other, and a destination that reads either of them."""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any, Self

import pymysql

from tests.faults.harness import SECONDS, Sluice
from tests.servers import Server
from tests.waiting import eventually

SCHEMA = "shop"
OLD = ("mysql56",)
"""Servers with the former words for replication."""


class Pair:
    """Two servers; the second one replicates from the first."""

    def __init__(self, kind: str, *options: str, gtids: bool = True) -> None:
        self.gtids = gtids
        updates = "--log-slave-updates" if kind in OLD or kind.startswith("mariadb") else "--log-replica-updates"
        self.first, self.second = Server(kind, [updates, *options]), Server(kind, [updates, *options])

    def __enter__(self) -> Self:
        self.first.start()
        self.second.start()
        for server in (self.first, self.second):
            self.reset(server)
        self.replicate(self.second, self.first)
        self.first.script(f"CREATE DATABASE {SCHEMA};\nCREATE TABLE {SCHEMA}.t (id INT PRIMARY KEY, v TEXT);\n")
        self.catch_up(self.second, self.first)
        return self

    def __exit__(self, *_: object) -> None:
        self.first.close()
        self.second.close()

    def other(self, server: Server) -> Server:
        return self.second if server is self.first else self.first

    @staticmethod
    def run(server: Server, sql: str) -> list[tuple[Any, ...]]:
        """Run a statement as root, in the words of the server: SOURCE and REPLICA."""
        if server.mariadb or server.name in OLD:
            sql = sql.replace("REPLICATION SOURCE", "MASTER").replace("SOURCE", "MASTER").replace("REPLICA", "SLAVE")
        with server.connect(user="root", password="") as connection, connection.cursor() as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall())

    def reset(self, server: Server) -> None:
        self.run(server, "RESET MASTER" if server.mariadb or server.name in OLD else "RESET BINARY LOGS AND GTIDS")

    def replicate(self, replica: Server, source: Server, after: str = "@@gtid_binlog_pos") -> None:
        """Let a server execute what another writes; MariaDB after a GTID, whatever it has itself."""
        mode = "SOURCE_AUTO_POSITION = 1, GET_SOURCE_PUBLIC_KEY = 1"
        more = "" if source.mariadb or source.name in OLD else ", SOURCE_RETRY_COUNT = 86400"  # else it gives up soon
        if source.mariadb:
            mode = "MASTER_USE_GTID = slave_pos"
        elif not self.gtids:
            old = source.name in OLD
            file, offset, *_ = source.query("SHOW MASTER STATUS" if old else "SHOW BINARY LOG STATUS")[0]
            mode = f"SOURCE_LOG_FILE = '{file}', SOURCE_LOG_POS = {offset}"
            mode += "" if old else ", GET_SOURCE_PUBLIC_KEY = 1"
        if source.mariadb:
            self.run(replica, f"SET GLOBAL gtid_slave_pos = {after}")
        self.run(
            replica,
            f"CHANGE REPLICATION SOURCE TO SOURCE_HOST = '{source.host}', SOURCE_PORT = {source.port},"
            f" SOURCE_USER = '{source.user}', SOURCE_PASSWORD = '{source.password}', SOURCE_CONNECT_RETRY = 1,"
            f" {mode}{more}",
        )
        self.run(replica, "START REPLICA")

    def promote(self, server: Server) -> None:
        """Let a server execute what it has received, and go its own way."""
        names = ("Slave_SQL_Running_State", "Replica_SQL_Running_State")

        def is_done() -> bool:
            with server.connect(cursorclass=pymysql.cursors.DictCursor) as connection, connection.cursor() as cursor:
                old = server.mariadb or server.name in OLD
                cursor.execute("SHOW SLAVE STATUS" if old else "SHOW REPLICA STATUS")
                row = cursor.fetchall()[0]
            return any("has read all relay log" in str(row.get(name)) for name in names)

        eventually(is_done, "the replica executes what it has received")
        self.run(server, "STOP REPLICA")
        self.run(server, "RESET REPLICA ALL")

    def catch_up(self, replica: Server, source: Server) -> None:
        if not self.gtids:
            eventually(lambda: _tables(replica) == _tables(source), "the replica catches up")
            return
        executed = "@@gtid_binlog_pos" if source.mariadb else "@@gtid_executed"
        wanted = source.query(f"SELECT {executed}")
        eventually(lambda: replica.query(f"SELECT {executed}") == wanted, "the replica catches up")


def _tables(server: Server) -> list[tuple[Any, ...]]:
    """How many rows there are, if the table is there."""
    with contextlib.suppress(pymysql.err.ProgrammingError, pymysql.err.OperationalError):
        return server.query(f"SELECT COUNT(*) FROM {SCHEMA}.t")
    return []


def wait_for_replica(pair: Pair) -> None:
    """Let a commit wait until the replica has received it (semi-sync): before that no dump has it either."""
    _set_semi_sync(pair.second, replica=True)
    Pair.run(pair.second, "STOP REPLICA")
    _set_semi_sync(pair.first, replica=False)
    Pair.run(pair.second, "START REPLICA")


def _set_semi_sync(server: Server, *, replica: bool) -> None:
    if server.mariadb:
        role = "rpl_semi_sync_slave" if replica else "rpl_semi_sync_master"
    else:
        plugin = "replica" if replica else "source"
        Pair.run(server, f"INSTALL PLUGIN rpl_semi_sync_{plugin} SONAME 'semisync_{plugin}.so'")
        role = f"rpl_semi_sync_{plugin}"
    settings = [f"{role}_enabled = ON"]
    if replica and server.mariadb:
        settings.append(f"{role}_kill_conn_timeout = 1")  # else it waits 5 s to stop while its master stands still
    if not replica:
        settings += [f"{role}_wait_point = 'AFTER_SYNC'", f"{role}_timeout = 3600000"]
    with server.connect(user="root", password="") as connection, connection.cursor() as cursor:
        for setting in settings:
            cursor.execute(f"SET GLOBAL {setting}")


class Writer(threading.Thread):
    """Inserts rows 1, 2, 3 … into a server, and remembers those that were committed."""

    def __init__(self, server: Server, first: int = 1) -> None:
        super().__init__(daemon=True)
        self.server = server
        self.committed: list[int] = []
        self.next = first
        self._stopping = threading.Event()

    def run(self) -> None:
        with contextlib.suppress(pymysql.err.MySQLError), self.server.connect() as connection:
            while not self._stopping.wait(0.005):
                with connection.cursor() as cursor:
                    cursor.execute(f"INSERT INTO {SCHEMA}.t VALUES (%s, REPEAT('x', 50))", (self.next,))
                self.committed.append(self.next)
                self.next += 1

    def reach(self, count: int) -> None:
        goal = len(self.committed) + count
        eventually(lambda: len(self.committed) >= goal, "rows are written")

    def stop(self) -> list[int]:
        self._stopping.set()
        self.join(SECONDS)
        return self.committed


@contextlib.contextmanager
def pair_of(kind: str) -> Iterator[Pair]:
    options = [] if kind.startswith("mariadb") else ["--gtid-mode=ON", "--enforce-gtid-consistency=ON"]
    with Pair(kind, *options) as found:
        yield found


def address(server: Server) -> str:
    return f"{server.host}:{server.port}"


def configure(sluice: Sluice, pair: Pair, **settings: object) -> None:
    given = {
        "canal__instance__filter__regex": rf"{SCHEMA}\\..*",
        "canal__instance__standby__address": address(pair.second),
    }
    sluice.add("shop", pair.first, **given | settings)


DETECTING = {
    "canal__instance__detecting__enable": "true",
    "canal__instance__detecting__interval__time": 1,
    "canal__instance__detecting__retry__threshold": 2,
    "canal__instance__detecting__heartbeatHaEnable": "true",
}
