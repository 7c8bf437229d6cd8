"""A destination with two sources that replicate: it reads the other when told, or when the first does not answer."""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any, Self
from urllib.parse import urlencode

import pymysql
import pytest

from sluice.client_sdk import Client
from sluice.protocol.errors import UnknownBatchError
from tests.faults.harness import SECONDS, Sluice, eventually
from tests.servers import Server

SCHEMA = "shop"


class Pair:
    """Two servers; the second one replicates from the first."""

    def __init__(self, kind: str, *options: str) -> None:
        updates = "--log-slave-updates" if kind.startswith("mariadb") else "--log-replica-updates"
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
        if server.mariadb:
            sql = sql.replace("REPLICATION SOURCE", "MASTER").replace("SOURCE", "MASTER").replace("REPLICA", "SLAVE")
        with server.connect(user="root", password="") as connection, connection.cursor() as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall())

    def reset(self, server: Server) -> None:
        self.run(server, "RESET MASTER" if server.mariadb else "RESET BINARY LOGS AND GTIDS")

    def replicate(self, replica: Server, source: Server) -> None:
        """Let a server execute what another writes."""
        mode = (
            "MASTER_USE_GTID = slave_pos" if source.mariadb else "SOURCE_AUTO_POSITION = 1, GET_SOURCE_PUBLIC_KEY = 1"
        )
        if source.mariadb:
            mode = "MASTER_USE_GTID = slave_pos"
            self.run(replica, "SET GLOBAL gtid_slave_pos = @@gtid_binlog_pos")
        self.run(
            replica,
            f"CHANGE REPLICATION SOURCE TO SOURCE_HOST = '{source.host}', SOURCE_PORT = {source.port},"
            f" SOURCE_USER = '{source.user}', SOURCE_PASSWORD = '{source.password}', SOURCE_CONNECT_RETRY = 1, {mode}",
        )
        self.run(replica, "START REPLICA")

    def promote(self, server: Server) -> None:
        """Let a server execute what it has received, and go its own way."""
        names = ("Slave_SQL_Running_State", "Replica_SQL_Running_State")

        def is_done() -> bool:
            with server.connect(cursorclass=pymysql.cursors.DictCursor) as connection, connection.cursor() as cursor:
                cursor.execute("SHOW SLAVE STATUS" if server.mariadb else "SHOW REPLICA STATUS")
                row = cursor.fetchall()[0]
            return any("has read all relay log" in str(row.get(name)) for name in names)

        eventually(is_done, "the replica executes what it has received")
        self.run(server, "STOP REPLICA")
        self.run(server, "RESET REPLICA ALL")

    @staticmethod
    def catch_up(replica: Server, source: Server) -> None:
        executed = "@@gtid_binlog_pos" if source.mariadb else "@@gtid_executed"
        wanted = source.query(f"SELECT {executed}")
        eventually(lambda: replica.query(f"SELECT {executed}") == wanted, "the replica catches up")


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


class Consumer(threading.Thread):
    """Gets and acks, and records the rows of each batch that it was given."""

    def __init__(self, client: Client) -> None:
        super().__init__(daemon=True)
        self.client = client
        self.rows: list[int] = []
        self.failure: BaseException | None = None
        self._stopping = threading.Event()
        client.subscribe()

    def run(self) -> None:
        try:
            with self.client:
                while not self._stopping.is_set():
                    batch = self.client.get_without_ack(0.5)
                    if batch:
                        self.rows += [row.after["id"] for row in batch.rows() if row.after]
                        with contextlib.suppress(UnknownBatchError):
                            self.client.ack(batch)
        except Exception as error:  # noqa: BLE001  the test raises it
            self.failure = error

    def wait_for(self, row: int) -> None:
        eventually(lambda: row in self.rows or self.failure, lambda: (row, self.rows[-5:], self.failure))
        assert self.failure is None, self.failure

    def stop(self) -> list[int]:
        self._stopping.set()
        self.join(SECONDS)
        assert self.failure is None, self.failure
        return self.rows


@pytest.fixture(params=["mariadb118", "mysql97"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    options = [] if request.param.startswith("mariadb") else ["--gtid-mode=ON", "--enforce-gtid-consistency=ON"]
    with Pair(request.param, *options) as found:
        yield found


def address(server: Server) -> str:
    return f"{server.host}:{server.port}"


def configure(sluice: Sluice, pair: Pair, **settings: object) -> None:
    given = {
        "canal__instance__filter__regex": rf"{SCHEMA}\\..*",
        "canal__instance__standby__address": address(pair.second),
    }
    sluice.add("shop", pair.first, **given | settings)


def switch(sluice: Sluice, **query: str) -> dict[str, Any]:
    found: dict[str, Any] = sluice.call("POST", f"/shop/source/switch?{urlencode(query)}")
    return found


def source_of(sluice: Sluice) -> dict[str, Any]:
    found: dict[str, Any] = sluice.destination()["source"]
    return found


def test_a_switch_by_hand_and_back_loses_and_doubles_nothing(sluice: Sluice, pair: Pair) -> None:
    configure(sluice, pair)
    with sluice:
        sluice.wait_running()
        consumer, writer = Consumer(sluice.client()), Writer(pair.first)
        consumer.start()
        writer.start()
        writer.reach(50)
        assert source_of(sluice)["address"] == address(pair.first)
        for wanted in (pair.second, pair.first, pair.second):
            assert switch(sluice)["source"]["address"] == address(wanted)
            writer.reach(50)
            consumer.wait_for(writer.committed[-1])
            assert sluice.destination()["last"].startswith(f"{wanted.query('SELECT @@server_id')[0][0]}/") or not (
                wanted.mariadb
            )
        # It is known after a restart, and after a kill.
        for end in (sluice.stop, sluice.kill):
            end()
            sluice.start()
            sluice.wait_running()
            assert source_of(sluice)["address"] == address(pair.second)
            writer.reach(20)
            consumer.wait_for(writer.committed[-1])
        written = writer.stop()
        consumer.wait_for(written[-1])
        rows = consumer.stop()
        assert sorted(set(rows)) == written
        before_restarts = rows[: rows.index(written[150]) + 1]
        assert before_restarts == written[: len(before_restarts)]
