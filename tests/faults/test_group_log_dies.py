"""The log of a group holds what its members have purged, although the server that writes it is killed."""

import threading
from collections import defaultdict
from contextlib import ExitStack
from typing import Self

import pytest

from sluice.client_sdk.client import Client
from tests.conftest import Database
from tests.faults.harness import Sluice
from tests.servers import Server
from tests.waiting import eventually


class Writer(threading.Thread):
    """Inserts rows with ascending ids, each in a transaction of its own, until it is told to stop."""

    def __init__(self, server: Server, schema: str) -> None:
        super().__init__(daemon=True)
        self.server, self.schema, self.count = server, schema, 0
        self._stopping = threading.Event()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self.join(10)

    def run(self) -> None:
        with self.server.connect(autocommit=True) as connection, connection.cursor() as cursor:
            while not self._stopping.wait(0.002):
                cursor.execute(f"INSERT INTO {self.schema}.numbers VALUES ({self.count + 1}, REPEAT('x', 1000))")
                self.count += 1


def purge(server: Server, sluice: Sluice) -> None:
    """Let a member forget all that is not in a new file, as soon as the log is in that."""
    server.query("FLUSH BINARY LOGS")
    name = server.query("SHOW BINARY LOGS")[-1][0]
    eventually(lambda: name in sluice.destination()["log"]["stretches"][-1][1], "the log")

    def is_done() -> bool:
        server.query(f"PURGE BINARY LOGS TO '{name}'")
        return bool(server.query("SHOW BINARY LOGS")[0][0] == name)

    eventually(is_done, "the purge")


def take(client: Client, schemas: dict[str, str], found: dict[str, list[int]]) -> None:
    """Take and ack a batch."""
    batch = client.get_without_ack(2.0)
    for change in batch.changes():
        if change.schema in schemas:
            found[schemas[change.schema]] += [row.after["id"] for row in change.rows() if row.after]
    if batch:
        client.ack(batch, durable=True)


@pytest.mark.extended
def test_a_client_that_comes_last_gets_each_change_of_each_member_once_though_the_server_was_killed(
    sluice: Sluice, mysql97: Server, mariadb118: Server, database: Database
) -> None:
    members = {"my": (mysql97, database(mysql97)), "maria": (mariadb118, database(mariadb118))}
    for server, schema in members.values():
        server.query(f"CREATE TABLE {schema}.numbers (id INT PRIMARY KEY, filler TEXT)")
    schemas = {schema: name for name, (_, schema) in members.items()}
    sluice.configure(
        "shop",
        sluice__instance__source="group",
        sluice__group__members=",".join(members),
        sluice__instance__store="mixed",
        sluice__instance__store__minFree=0,
        canal__instance__memory__buffer__size=512,
        canal__instance__filter__regex=",".join(rf"{schema}\\..*" for schema in schemas),
        **{
            f"sluice__group__{name}__canal__instance__{key}": value
            for name, (server, _) in members.items()
            for key, value in {
                "master__address": f"{server.host}:{server.port}",
                "dbUsername": server.user,
                "dbPassword": server.password,
            }.items()
        },
    )
    quick, last = defaultdict[str, list[int]](list), defaultdict[str, list[int]](list)
    with sluice:
        sluice.wait_running()
        sluice.client(1009).subscribe()
        client = sluice.client(1001)
        client.subscribe()
        with ExitStack() as stack:
            writers = {name: stack.enter_context(Writer(*it)) for name, it in members.items()}
            for _ in range(3):
                goal = {name: it.count + 50 for name, it in writers.items()}
                while any(len(quick[name]) < goal[name] for name in members):
                    take(client, schemas, quick)
                sluice.kill()
                sluice.start()
                sluice.wait_running()
                for server, _ in members.values():
                    purge(server, sluice)
        written = {name: list(range(1, it.count + 1)) for name, it in writers.items()}
        assert min(map(len, written.values())) > 150
        while any(set(quick[name]) < set(numbers) for name, numbers in written.items()):
            take(client, schemas, quick)
        while sum(map(len, last.values())) < sum(map(len, written.values())):
            take(sluice.client(1009), schemas, last)
        assert {name: list(dict.fromkeys(numbers)) for name, numbers in quick.items()} == written, "some come again"
        assert last == written
        assert len(sluice.destination()["log"]["stretches"]) == 1
    text = sluice.log_file.read_text()
    assert "Traceback" not in text
    assert "the log has a gap" not in text
