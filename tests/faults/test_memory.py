"""The memory of the process is bounded by the ring and the largest event, whatever is written."""

from collections.abc import Iterator

import pytest

from sluice.client_sdk.calls import Limits
from tests.conftest import Database
from tests.faults.harness import Sluice
from tests.servers import Server
from tests.waiting import eventually

MIB = 1 << 20
RING = 4 * MIB
FIXED = 2 * MIB
"""For the slots of the ring, the receive buffer and the unfilled ends of segments."""


@pytest.fixture
def watched(sluice: Sluice, mariadb118: Server, database: Database) -> Iterator[tuple[Sluice, str]]:
    """A running server with a small ring, which has delivered something already, and the schema that it reads."""
    schema = database(mariadb118)
    mariadb118.query(f"CREATE TABLE {schema}.wide (id INT PRIMARY KEY, filler LONGTEXT)")
    mariadb118.query("SET GLOBAL max_allowed_packet = 256 * 1024 * 1024")
    sluice.add(
        "shop",
        mariadb118,
        canal__instance__filter__regex=rf"{schema}\\..*",
        canal__instance__memory__buffer__size=RING // 1024,
    )
    with sluice:
        sluice.wait_running()
        client = sluice.client()
        client.subscribe()
        mariadb118.query(f"INSERT INTO {schema}.wide VALUES (0, REPEAT('x', 1000))")
        while not client.get(1.0).rows():
            pass
        yield sluice, schema


@pytest.mark.parametrize(
    ("rows", "size"),
    [
        pytest.param(20 * RING // 8000, 8000, id="twenty times the ring"),
        pytest.param(1, 64 * MIB, id="a row of 64 MiB", marks=pytest.mark.extended),
    ],
)
def test_a_large_transaction_flows_through_in_bounded_memory(
    watched: tuple[Sluice, str],
    mariadb118: Server,
    rows: int,
    size: int,
) -> None:
    sluice, schema = watched
    sluice.forget_peak()
    idle = sluice.memory("VmRSS")
    client = sluice.client()
    with mariadb118.connect(database=schema, autocommit=False) as connection, connection.cursor() as cursor:
        for number in range(1, rows + 1):
            cursor.execute("INSERT INTO wide VALUES (%s, REPEAT('x', %s))", (number, size))
        connection.commit()
    if rows > 1:
        eventually(lambda: sluice.destination()["full"], "a full ring")
    given: list[int] = []
    while len(given) < rows:
        batch = client.get_without_ack(10.0, Limits(max_entries=100))
        for row in batch.rows():
            assert row.after is not None
            assert row.after["filler"] == "x" * size
            given.append(row.after["id"])
        client.ack(batch)
    assert given == list(range(1, rows + 1))
    peak = sluice.memory("VmHWM")
    print(f"idle {idle / MIB:.1f} MiB, peak {peak / MIB:.1f} MiB, event {size / MIB:.2f} MiB")  # noqa: T201
    assert peak <= idle + RING + 4 * size + FIXED
