"""Any size passes: transactions that are many times the ring, and a log on disk that is read at many places at once."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from sluice.client_sdk import Client
from sluice.client_sdk.calls import Limits
from tests.faults.harness import Sluice
from tests.faults.test_xa import end
from tests.servers import Server
from tests.waiting import eventually

pytestmark = pytest.mark.extended

MIB = 1 << 20
GIB = 1 << 30
RING = 16 * MIB
"""The default."""
ROW = 100_000
"""Bytes of a value."""
SOAK = [pytest.mark.soak, pytest.mark.timeout(7200)]
INSERT = "INSERT INTO t SELECT seq, REPEAT('x', {size}) FROM seq_{first}_to_{last}"


@pytest.fixture
def roomy() -> Iterator[Server]:
    """A server of the test's own, whose files are gone after it, with the table shop.t."""
    with Server("mariadb118") as server:
        server.query("CREATE DATABASE shop")
        server.query("CREATE TABLE shop.t (id INT PRIMARY KEY, v LONGTEXT)")
        yield server


@pytest.mark.parametrize("way", ["COMMIT", "XA COMMIT"])
@pytest.mark.parametrize(
    "size", [pytest.param(GIB // 2, id="512 MiB"), pytest.param(10 * GIB, id="10 GiB", marks=SOAK)]
)
def test_a_transaction_of_any_size_passes_a_ring_of_16_mib_in_its_memory(
    sluice: Sluice, roomy: Server, size: int, way: str
) -> None:
    rows = size // ROW
    sluice.add("shop", roomy, canal__instance__filter__regex="shop\\\\..*")
    with sluice.reading():
        client = sluice.client()
        client.subscribe()
        roomy.query("INSERT INTO shop.t VALUES (0, REPEAT('x', 1000000))")
        take(client, 0, 1)
        sluice.forget_peak()
        idle = sluice.memory("VmRSS")
        insert = INSERT.format(size=ROW, first=1, last=rows)
        if way == "COMMIT":
            roomy.query(insert, database="shop")
        else:
            with roomy.connect(database="shop") as connection, connection.cursor() as cursor:
                for statement in ("XA START 'x'", insert, "XA END 'x'", "XA PREPARE 'x'"):
                    cursor.execute(statement)
            end(roomy, "XA COMMIT 'x'")
        take(client, 1, rows)
        peak = sluice.memory("VmHWM")
        print(f"idle {idle / MIB:.1f} MiB, peak {peak / MIB:.1f} MiB")  # noqa: T201
        assert peak <= idle + 2 * RING


def take(client: Client, first: int, count: int) -> None:
    """Take rows, which have to be those that follow."""
    given = 0
    while given < count:
        batch = client.get_without_ack(30.0, Limits(max_bytes=4 * MIB))
        assert batch, f"{given} of {count} rows have come"
        numbers = [row.after["id"] for row in batch if row.after is not None]
        assert numbers == list(range(first + given, first + given + len(numbers)))
        given += len(numbers)
        client.ack(batch)
    assert given == count


@pytest.mark.parametrize(
    ("clients", "size"),
    [
        pytest.param(20, GIB // 4, id="20 in 256 MiB"),
        pytest.param(100, 20 * GIB, id="100 in 20 GiB", marks=SOAK),
    ],
)
def test_clients_at_as_many_places_of_the_log_take_the_memory_of_a_few(
    sluice: Sluice, roomy: Server, clients: int, size: int
) -> None:
    sluice.add(
        "shop",
        roomy,
        canal__instance__filter__regex="shop\\\\..*",
        canal__instance__filter__query__ddl="true",
        sluice__instance__store="mixed",
        sluice__instance__store__maxBytes=2 * size,
        sluice__instance__store__minFree=0,
    )
    each = size // clients // ROW
    starts: list[str] = []
    with sluice.reading():
        head = sluice.client(2000)
        head.subscribe()
        for number in range(clients):
            starts.append(sluice.destination()["last"])
            roomy.query(INSERT.format(size=ROW, first=number * each, last=(number + 1) * each - 1), database="shop")
            take(head, number * each, each)
            for statement in ("TRUNCATE TABLE shop.t", "FLUSH BINARY LOGS"):  # the disk holds it once, in the log
                roomy.query(statement)
            roomy.query(f"PURGE BINARY LOGS TO '{roomy.query('SHOW BINARY LOGS')[-1][0]}'")
        eventually(lambda: sluice.destination()["log"]["bytes"] >= clients * each * ROW, sluice.destination)
        sluice.forget_peak()
        before = sluice.memory("VmRSS")
        with ThreadPoolExecutor(clients) as pool:
            places = [(start, number * each) for number, start in enumerate(starts)]
            done = [pool.submit(follow, sluice.client(3000 + i), *place, each) for i, place in enumerate(places)]
            last = clients * each
            while not all(it.done() for it in done):
                roomy.query(f"INSERT INTO shop.t VALUES ({last}, 'x')", database="shop")
                take(head, last, 1)  # the head of the stream goes on
                last += 1
            assert [it.result() for it in done] == [each] * clients
        peak = sluice.memory("VmHWM")
        print(f"before {before / MIB:.1f} MiB, peak {peak / MIB:.1f} MiB")  # noqa: T201
        assert peak <= before + 4 * RING


def follow(client: Client, start: str, first: int, count: int) -> int:
    """Take rows from a place on, and leave; return how many have come."""
    given = 0
    with client:
        client.subscribe(start=start)
        while given < count:
            batch = client.get_without_ack(10.0, Limits(max_bytes=MIB))
            numbers = [row.after["id"] for row in batch if row.after is not None]
            assert numbers == list(range(first + given, first + given + len(numbers)))
            given += len(numbers)
            if batch:
                client.ack(batch)
        client.unsubscribe()
    return min(given, count)
