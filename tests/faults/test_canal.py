"""Exactly the committed changes arrive over Canal's protocol, whatever is cut or killed meanwhile."""

import asyncio
import threading
from asyncio import IncompleteReadError

import pytest

from sluice.client_sdk import Batch
from tests.canal import CanalClient, CanalError
from tests.conftest import Database
from tests.faults.harness import Consumer, Load, Sluice, consuming
from tests.proxy import Proxy
from tests.servers import Server
from tests.waiting import eventually


class CanalConsumer(Consumer):
    """Does as Canal's clients do: subscribes, rolls back, then gets, with several batches outstanding, and acks."""

    def __init__(self, port: int, client_id: int) -> None:
        threading.Thread.__init__(self, daemon=True, name=f"canal consumer {client_id}")
        self.port = port
        self.client_id = client_id
        self.seen = []
        self.failure = None
        self.floor = None
        self.pause = threading.Event()
        self.pause.set()
        self.connections = 0

    def run(self) -> None:
        try:
            asyncio.run(self._pull())
        except Exception as error:  # noqa: BLE001  the test raises it
            self.failure = error

    async def _pull(self) -> None:
        going = True
        while going:
            client = None
            try:
                client = await CanalClient.connect(self.port)
                client.destination, client.client_id = "shop", str(self.client_id)
                await client.subscribe()
                client.rollback()
                self.connections += 1
                while going:
                    going = await self._get_some(client)
            except (OSError, IncompleteReadError, CanalError):
                await asyncio.sleep(0.05)
            finally:
                if client is not None:
                    client.cut()

    async def _get_some(self, client: CanalClient) -> bool:
        batches = [await client.get(size=8, timeout=100) for _ in range(3)]
        going = True
        for batch in batches:
            going = self._record(Batch(batch.batch_id, "", "", batch.SerializeToString())) and going
            client.ack(batch.batch_id)
        if not going:
            await client.subscribe()  # its answer says that the acks have arrived
        return going


@pytest.mark.extended
def test_nothing_is_lost_though_connections_are_cut_and_the_server_is_killed(
    sluice: Sluice, mariadb118: Server, database: Database
) -> None:
    schema = database(mariadb118)
    with (
        Proxy((mariadb118.host, mariadb118.port), seed=21) as behind,
        Proxy(("127.0.0.1", sluice.canal_port), seed=22) as before,
    ):
        load = Load(mariadb118, schema)
        sluice.add(
            "shop",
            mariadb118,
            canal__instance__master__address=f"{behind.host}:{behind.port}",
            canal__instance__filter__regex=rf"{schema}\\..*",
        )
        with sluice:
            sluice.wait_running()
            consumers = [CanalConsumer(before.port, client_id) for client_id in (1001, -7)]
            with load, consuming(*consumers):
                eventually(lambda: all(it.connections for it in consumers))
                behind.cut_randomly(100_000)
                before.cut_randomly(50_000)
                eventually(lambda: behind.cuts > 1 and before.cuts > 5, lambda: (behind.cuts, before.cuts))
                behind.heal()
                before.heal()
                sluice.kill()
                known = [it.connections for it in consumers]
                sluice.start()
                eventually(lambda: all(it.connections > n for it, n in zip(consumers, known, strict=True)))
                load.finish(stop=True)
                for consumer in consumers:
                    changes = consumer.finish()
                    assert load.check(changes) == load.changes()
                    assert load.check_transactions(changes) == load.committed
