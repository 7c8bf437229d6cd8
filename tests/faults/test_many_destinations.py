"""Many destinations on one source: they all start, cost little while idle, and all deliver."""

import pytest

from tests.conftest import Database
from tests.faults.harness import Sluice
from tests.servers import Server

pytestmark = pytest.mark.extended

COUNT = 30
EACH = 2 << 20
"""Bytes that an idle destination may cost."""


def test_thirty_destinations_start_cost_little_and_deliver(
    sluice: Sluice, mariadb118: Server, database: Database
) -> None:
    schema = database(mariadb118)
    mariadb118.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY)")
    names = [f"shop{number}" for number in range(COUNT)]
    sluice.add(names[0], mariadb118, canal__instance__filter__regex=rf"{schema}\\..*")
    with sluice:
        sluice.wait_running()
        one = sluice.memory("VmRSS")
    for name in names[1:]:
        sluice.add(name, mariadb118, canal__instance__filter__regex=rf"{schema}\\..*")
    with sluice:
        sluice.wait_running()
        all_ = sluice.memory("VmRSS")
        clients = [sluice.client(name=name) for name in names]
        for client in clients:
            client.subscribe()
        mariadb118.query(f"INSERT INTO {schema}.t VALUES (7)")
        for client in clients:
            while not (rows := client.get(1.0).rows()):
                pass
            assert [row.key["id"] for row in rows] == [7]
    each = (all_ - one) / (COUNT - 1)
    print(f"{one / 1024:.0f} KiB with one destination, {each / 1024:.0f} KiB for each more")  # noqa: T201
    assert each < EACH
