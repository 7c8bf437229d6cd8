"""Four servers with a part of a table each are one stream, whichever of them, or the stream's server, dies or hangs."""

import contextlib
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pymysql
import pytest

from sluice.client_sdk import Client
from sluice.protocol.errors import SluiceError
from tests.faults.harness import PACE, Sluice
from tests.servers import Server
from tests.waiting import eventually

KINDS = {"a": "mysql97", "b": "mariadb118", "c": "mysql97", "d": "mariadb118"}
CATCH_UP = 120.0
"""Seconds in which all has to arrive when nothing fails any more."""


class Writer(threading.Thread):
    """Inserts rows 1, 2, 3, … into the table of a member, some in a transaction, whatever happens to the member."""

    def __init__(self, server: Server, table: str, seed: int) -> None:
        super().__init__(daemon=True)
        self.server, self.table = server, table
        self.committed = 0
        """The last row that is known to be there."""
        self.ending = threading.Event()
        self._chance = random.Random(seed)

    def run(self) -> None:
        while not self.ending.is_set():
            with contextlib.suppress(pymysql.MySQLError, OSError):
                self._write()
            time.sleep(0.1)

    def _write(self) -> None:
        connection = self.server.connect(autocommit=False, read_timeout=5, write_timeout=5, connect_timeout=5)
        with connection, connection.cursor() as cursor:
            cursor.execute(f"SELECT COALESCE(MAX(id), 0) FROM {self.table}")  # whether the last commit was done
            (self.committed,) = cursor.fetchone() or (0,)
            connection.commit()
            while not self.ending.is_set():
                last = self.committed + self._chance.randrange(1, 4)
                rows = ",".join(f"({it}, REPEAT('x', 100))" for it in range(self.committed + 1, last + 1))
                cursor.execute(f"INSERT INTO {self.table} VALUES {rows}")
                connection.commit()
                self.committed = last
                time.sleep(4 * PACE)


class Reader(threading.Thread):
    """A client that acks durably, and checks that the rows of each member are 1, 2, 3, …"""

    def __init__(self, client: Client) -> None:
        super().__init__(daemon=True)
        self.client = client
        self.seen: Counter[str] = Counter()
        """The last row of each member that has come, ..."""
        self.acked: Counter[str] = Counter()
        """... and the last one of which the ack is durable: it never comes again."""
        self.wrong: list[str] = []
        self.ending = threading.Event()

    def run(self) -> None:
        while not self.ending.is_set() and not self.wrong:
            try:
                self._read()
            except (SluiceError, OSError):  # the server is away, or its answer: what is not acked comes again
                self.seen = self.acked.copy()
                time.sleep(0.1)

    def _read(self) -> None:
        batch = self.client.get_without_ack(1.0)
        if not batch:
            return
        for change in batch.changes():
            if change.table != "orders":  # what has no rows
                continue
            member = change.header_props.get("sluice.member", "")
            for row in change.rows():
                assert row.after is not None
                if row.after["id"] != self.seen[member] + 1:
                    self.wrong.append(f"{member}: {row.after['id']} comes after {self.seen[member]}")
                self.seen[member] = row.after["id"]
        seen = self.seen.copy()
        self.client.ack(batch, durable=True)
        self.acked = seen


class Faults:
    """Kills and pauses members, and the server of the stream, one at a time."""

    def __init__(self, sluice: Sluice, members: dict[str, Server], seed: int) -> None:
        self.done: Counter[str] = Counter()
        self._sluice, self._members = sluice, members
        self._chance = random.Random(seed)
        self._all: list[Callable[[], None]] = [self._kill, self._freeze, self._restart]

    def inject(self) -> None:
        """Let something fail, and come back."""
        fault = self._chance.choice(self._all)
        fault()
        self.done[fault.__name__] += 1

    def _kill(self) -> None:
        member = self._chance.choice(list(self._members.values()))
        member.kill()
        time.sleep(self._chance.random())
        member.start()

    def _freeze(self) -> None:
        member = self._chance.choice(list(self._members.values()))
        member.freeze()
        time.sleep(3 * self._chance.random())
        os.kill(member.pid, signal.SIGCONT)

    def _restart(self) -> None:
        self._sluice.kill()
        self._sluice.start()


@contextlib.contextmanager
def four_servers() -> Iterator[dict[str, Server]]:
    """Start the members, and make the part of the table of each."""
    with contextlib.ExitStack() as stack:
        members = {name: stack.enter_context(Server(kind)) for name, kind in KINDS.items()}
        for name, it in members.items():
            it.query("CREATE DATABASE shop")
            it.query(f"CREATE TABLE shop.orders_{name} (id INT PRIMARY KEY, text TEXT)")
        yield members


def configure(sluice: Sluice, members: dict[str, Server]) -> None:
    """Configure the destination."""
    keys = {
        f"sluice__group__{name}__canal__instance__{key}": value
        for name, it in members.items()
        for key, value in (
            ("master__address", f"{it.host}:{it.port}"),
            ("dbUsername", it.user),
            ("dbPassword", it.password),
        )
    }
    sluice.configure(
        "shop",
        sluice__instance__source="group",
        sluice__group__members=",".join(members),
        sluice__group__as="shop.orders: orders_[a-d]",
        canal__instance__filter__regex=r"shop\\.orders.*",
        **keys,
    )


def run_group(sluice: Sluice, seconds: float, seed: int) -> Counter[str]:
    """Let members and server fail for some time; return how often each thing did. Then all has to arrive, once."""
    with four_servers() as members:
        configure(sluice, members)
        sluice.start()
        sluice.wait_running()
        client = sluice.client()
        client.subscribe()
        eventually(lambda: client.status()["position"])
        reader = Reader(sluice.client())
        writers = {name: Writer(it, f"shop.orders_{name}", seed) for name, it in members.items()}
        for thread in (reader, *writers.values()):
            thread.start()
        faults = Faults(sluice, members, seed)
        until = time.monotonic() + seconds
        try:
            while time.monotonic() < until and not reader.wrong:
                faults.inject()
                time.sleep(1)
        finally:
            for it in writers.values():
                it.ending.set()
                it.join()
        written = {
            name: it.query(f"SELECT COALESCE(MAX(id), 0) FROM shop.orders_{name}")[0][0] for name, it in members.items()
        }
        try:
            eventually(
                lambda: reader.wrong or dict(reader.acked) == written,
                lambda: (written, dict(reader.acked), sluice.destination()),
                CATCH_UP,
            )
        finally:
            reader.ending.set()
            reader.join()
        assert not reader.wrong
        assert min(written.values()) > 0
        return faults.done


@pytest.mark.extended
@pytest.mark.timeout(600)
def test_four_servers_are_one_stream_while_all_of_them_fail(sluice: Sluice) -> None:
    faults = run_group(sluice, 60, seed=1)
    assert faults.total() >= 5


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_four_servers_are_one_stream_while_all_of_them_fail_for_half_an_hour(sluice: Sluice) -> None:
    faults = run_group(sluice, 1800, seed=2)
    assert {"_kill", "_freeze", "_restart"} <= faults.keys()
