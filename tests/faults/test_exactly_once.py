"""Exactly the committed changes arrive, in order, whatever way they are read and wherever connections are cut."""

import pytest

from tests.conftest import Database
from tests.effort import times
from tests.faults.harness import USUAL, Consumer, Load, Sluice, consuming
from tests.proxy import Proxy
from tests.servers import Server
from tests.waiting import eventually

WAYS = ("stream", "batches", "ack", "durable", "rollback")


def test_every_way_of_reading_gives_exactly_what_was_committed(
    sluice: Sluice, source: Server, database: Database
) -> None:
    schema = database(source)
    sluice.add("shop", source, canal__instance__filter__regex=rf"{schema}\\..*")
    filters = {"a": rf"{schema}\.a,{schema}\.finished", "b": rf"{schema}\.(b|finished)"}
    load = Load(source, schema, count=times(60, 120))
    with sluice:
        sluice.wait_running()
        whole = [Consumer(sluice.client(1001 + number), way) for number, way in enumerate(WAYS)]
        narrow = {
            table: Consumer(sluice.client(2001 + number), WAYS[number], filter=text)
            for number, (table, text) in enumerate(filters.items())
        }
        with load, consuming(*whole, *narrow.values()):
            load.finish()
            for consumer in whole:
                changes = consumer.finish()
                load.check(changes)
                load.check_transactions(changes)
                assert not consumer.repeats or consumer.way == "rollback"
            for table, consumer in narrow.items():
                load.check(consumer.finish(), [table])
                assert not consumer.repeats


@pytest.mark.parametrize("source", USUAL, indirect=True)
@pytest.mark.extended
@pytest.mark.parametrize("way", ["stream", "batches", "durable"])
def test_cut_connections_on_both_sides_lose_nothing(
    sluice: Sluice, source: Server, database: Database, way: str
) -> None:
    schema = database(source)
    with (
        Proxy((source.host, source.port), seed=11) as behind,
        Proxy(sluice.address, seed=12) as before,
    ):
        load = Load(source, schema)
        sluice.add(
            "shop",
            source,
            canal__instance__master__address=f"{behind.host}:{behind.port}",
            canal__instance__filter__regex=rf"{schema}\\..*",
        )
        with sluice:
            sluice.wait_running()
            consumer = Consumer(sluice.client(url=f"http://{before.host}:{before.port}"), way)
            with load, consuming(consumer):
                behind.cut_randomly(50_000)
                before.cut_randomly(30_000)
                eventually(
                    lambda: not consumer.is_alive() or (behind.cuts > 2 and before.cuts > 5),
                    lambda: (behind.cuts, before.cuts, len(consumer.seen), sluice.destination()),
                )
                behind.heal()
                before.heal()
                load.finish(stop=True)
                changes = consumer.finish()
            assert load.check(changes) == load.changes()
            assert load.check_transactions(changes) == load.committed
