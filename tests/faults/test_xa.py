"""XA transactions between whose prepare and commit something dies."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pymysql
import pytest

from sluice.client_sdk import Batch, Client
from sluice.protocol.canal.entry_pb2 import Entry
from sluice.protocol.canal.packet_pb2 import Messages
from sluice.protocol.position import Position
from tests.conftest import Database, each
from tests.delivery import execute
from tests.faults.harness import Sluice
from tests.faults.test_ha import Pair, ack, call, read
from tests.servers import Server, ZooKeeper
from tests.waiting import eventually


# MySQL 5.6 forgets what was prepared when its connection ends.
@pytest.fixture(params=[it for it in each("mariadb118") if it.values != ("mysql56",)])
def mortal(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server of the test's own, with the table shop.t."""
    with Server(request.param) as server:
        server.query("CREATE DATABASE shop")
        server.query("CREATE TABLE shop.t (id INT PRIMARY KEY, v LONGTEXT)")
        yield server


def prepare(server: Server, name: str, *statements: str, schema: str = "shop") -> None:
    """Prepare an XA transaction on a connection that ends."""
    connection = server.connect(database=schema)
    with connection, connection.cursor() as cursor:
        for statement in (f"XA START '{name}'", *statements, f"XA END '{name}'", f"XA PREPARE '{name}'"):
            cursor.execute(statement)


def end(server: Server, statement: str) -> None:
    """End an XA transaction, as soon as the connection that prepared it is gone for the server, too."""

    def is_done() -> bool:
        with contextlib.suppress(pymysql.err.OperationalError):  # XAER_NOTA
            execute(server, [statement])
            return True
        return False

    eventually(is_done, statement)


def ids(client: Client, count: int) -> list[int]:
    """The next rows of a client, which are acked durably."""
    found: list[int] = []
    while len(found) < count:
        batch = client.get_without_ack(30)
        assert batch, found
        assert not batch.markers()
        found += numbers(batch)
        client.ack(batch.batch_id, durable=True)
    return found


def numbers(batch: Batch) -> list[int]:
    """The ids of the rows of a batch; all are inserted."""
    return [row.after["id"] for row in batch if row.after is not None]


def decoded(batch: Batch) -> tuple[list[Entry], list[int]]:
    """The entries of a batch, and their positions."""
    messages = Messages.FromString(batch.data)
    return [Entry.FromString(it) for it in messages.messages], list(messages.positions)


def restart_of(sluice: Sluice) -> Position | None:
    """How far back the cursor in the file goes."""
    return sluice.stored(key="restart")


@pytest.mark.extended
def test_what_was_prepared_before_all_were_killed_comes_when_it_is_committed(sluice: Sluice, mortal: Server) -> None:
    sluice.add("shop", mortal, canal__instance__filter__regex="shop\\\\..*")
    with sluice:
        sluice.wait_running()
        client = sluice.client()
        client.subscribe()
        execute(mortal, ["INSERT INTO shop.t VALUES (1, '')"])
        assert ids(client, 1) == [1]
        assert restart_of(sluice) is None
        first = sluice.stored()
        prepare(mortal, "a", "INSERT INTO t VALUES (2, '')", "INSERT INTO t VALUES (3, '')")
        prepare(mortal, "b", "INSERT INTO t VALUES (4, '')")
        prepare(mortal, "c", "INSERT INTO t VALUES (5, REPEAT('x', 1000000))")
        execute(mortal, ["INSERT INTO shop.t VALUES (6, '')"])
        assert ids(client, 1) == [6]
        oldest = restart_of(sluice)
        assert oldest is not None
        assert first is not None
        assert oldest.order >= first.order

        sluice.kill()
        mortal.kill()
        mortal.start()
        sluice.start()
        sluice.wait_running()
        execute(mortal, ["FLUSH BINARY LOGS", "INSERT INTO shop.t VALUES (7, '')"])
        assert ids(client, 1) == [7]
        assert restart_of(sluice) == oldest
        end(mortal, "XA COMMIT 'c'")
        end(mortal, "XA ROLLBACK 'b'")
        end(mortal, "XA COMMIT 'a'")
        execute(mortal, ["INSERT INTO shop.t VALUES (8, '')"])
        assert ids(client, 4) == [5, 2, 3, 8]
        eventually(lambda: restart_of(sluice) is None, lambda: restart_of(sluice))

        # A range is the same from the ring and from the source, where no reader has seen the prepared parts before.
        stored = sluice.stored()
        assert stored is not None
        again = client.rows(str(first), str(stored))
        assert numbers(again) == [6, 7, 5, 2, 3, 8]
        sluice.kill()
        sluice.start()
        sluice.wait_running()
        assert decoded(client.rows(str(first), str(stored))) == decoded(again)


@pytest.mark.extended
def test_after_a_take_over_what_was_prepared_before_it_comes_when_it_is_committed(
    tmp_path: Path, own_zookeeper: ZooKeeper, source: Server, database: Database
) -> None:
    schema = database(source)
    pair = Pair(tmp_path, own_zookeeper.hosts, source, schema)
    with pair.servers[0], pair.servers[1]:
        first = pair.active()
        second = pair.other(first)
        assert call(first, "subscribe").status == 200
        pair.insert(1)
        rows, batches = read(first, 1)
        ack(first, batches)
        assert first.destination()["parser"]["openXa"] == ""
        prepare(source, schema, "INSERT INTO t VALUES (2)", schema=schema)
        pair.insert(3)
        rows, batches = read(first, 1)
        assert rows == [3]
        assert ack(first, batches) == [204] * len(batches)
        oldest = first.destination()["parser"]["openXa"]
        assert Position.parse(oldest) < Position.parse(first.destination()["last"])
        first.kill()
        assert pair.active() is second
        pair.insert(4)
        rows, batches = read(second, 1)
        assert rows == [4], "what is prepared is not given"
        assert second.destination()["parser"]["openXa"] == oldest
        end(source, f"XA COMMIT '{schema}'")
        pair.insert(5)
        rows, more = read(second, 2)
        assert rows == [2, 5]
        assert ack(second, batches + more) == [204] * len(batches + more)
        eventually(lambda: second.destination()["parser"]["openXa"] == "", second.destination)


@pytest.mark.extended
def test_a_large_xa_transaction_passes_a_small_ring_and_a_kill_in_its_middle(sluice: Sluice, mortal: Server) -> None:
    sluice.add(
        "shop",
        mortal,
        canal__instance__filter__regex="shop\\\\..*",
        canal__instance__memory__buffer__size=1024,
        canal__instance__memory__buffer__memunit=1024,
    )
    count = 40
    with sluice:
        sluice.wait_running()
        client = sluice.client()
        client.subscribe()
        prepare(mortal, "a", *(f"INSERT INTO t VALUES ({it}, REPEAT('x', 1000000))" for it in range(count)))
        end(mortal, "XA COMMIT 'a'")
        found: list[int] = []
        for _ in range(count // 2):
            batch = client.get_without_ack(30)
            found += numbers(batch)
            client.ack(batch.batch_id, durable=True)
        assert 0 < len(found) < count
        assert sluice.memory("VmHWM") < 400 << 20
        sluice.kill()
        sluice.start()
        sluice.wait_running()
        # The durable cursor is before the transaction: all of it comes again.
        assert ids(client, count) == list(range(count))
        execute(mortal, ["INSERT INTO shop.t VALUES (1000, '')"])
        assert ids(client, 1) == [1000]
