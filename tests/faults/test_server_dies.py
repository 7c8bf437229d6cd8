"""The server is stopped or killed at random moments under load; its consumers go on with the next one."""

import random

import pytest

from tests.conftest import Database
from tests.faults.harness import USUAL, Consumer, Load, Sluice, consuming
from tests.servers import Server
from tests.waiting import eventually

SOAK = [pytest.mark.soak, pytest.mark.timeout(3600)]


@pytest.mark.parametrize("source", USUAL, indirect=True)
@pytest.mark.parametrize("lives", [pytest.param(2, id="short"), pytest.param(200, id="soak", marks=SOAK)])
@pytest.mark.parametrize("end", [pytest.param("stop", marks=pytest.mark.extended), "kill"])
def test_nothing_is_lost_and_only_what_is_not_durable_is_repeated(
    sluice: Sluice, source: Server, database: Database, end: str, lives: int
) -> None:
    schema = database(source)
    sluice.add("shop", source, canal__instance__filter__regex=rf"{schema}\\..*")
    chance = random.Random(8)
    load = Load(source, schema)
    with sluice:
        sluice.wait_running()
        consumers = [Consumer(sluice.client(1001 + n), way) for n, way in enumerate(("stream", "batches", "durable"))]
        with load, consuming(*consumers):
            for _ in range(lives):
                goal = load.committed + chance.randrange(20, 150)
                read = [len(consumer.seen) for consumer in consumers]
                eventually(lambda: load.committed > goal)  # noqa: B023
                eventually(lambda: all(len(it.seen) > n for it, n in zip(consumers, read, strict=True)))  # noqa: B023
                getattr(sluice, end)()
                for number, consumer in enumerate(consumers):
                    if consumer.way != "durable":  # its floor is what it was told to be durable
                        consumer.floor = sluice.stored(1001 + number)
                sluice.start()
            load.finish(stop=True)
            for consumer in consumers:
                changes = consumer.finish()
                assert load.check(changes) == load.changes()
                assert load.check_transactions(changes) == load.committed
