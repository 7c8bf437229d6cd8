"""A server with a pump and a destination that reads it, killed while TiDBs write and a client reads."""

import asyncio
import contextlib
from pathlib import Path

import grpc.aio

from sluice.client_sdk import Client
from sluice.protocol.errors import SluiceError
from sluice.protocol.tidb.binlog_pb2 import Binlog, Commit, Prewrite, Rollback
from tests.effort import times
from tests.integration.grpc.process import Server
from tests.integration.grpc.served import Caller, calling
from tests.integration.grpc.test_pump_source import ORDERS, VERSION, configure
from tests.pump import INSERT, field, integer, mutation, pairs, text
from tests.waiting import soon

TIDBS = 8


class Cluster:
    """TiDBs that write transactions. A transaction inserts a row, whose id is its start_ts."""

    def __init__(self) -> None:
        self.ts = 0
        self.open = set[int]()
        """The start_ts of transactions that the pump may have without their end."""
        self.commits = dict[int, int]()
        """The commit_ts of those that have committed, by start_ts; of a lost answer, too."""

    def tick(self) -> int:
        self.ts += 1
        return self.ts

    async def write(self, caller: Caller) -> None:
        """Write until the pump is gone."""
        with contextlib.suppress(grpc.aio.AioRpcError):
            while True:
                start = self.tick()
                self.open.add(start)
                row = mutation(ORDERS, [(INSERT, integer(start) + pairs([(2, text("x" * (start % 500)))]))])
                value = field(1, VERSION) + field(2, row)
                await _send(caller, Binlog(tp=Prewrite, start_ts=start, prewrite_key=b"k", prewrite_value=value))
                await self.end(caller, start)

    async def settle(self, caller: Caller) -> None:
        """End what is open: a transaction whose Prewrite had no answer is not committed by TiDB."""
        for start in sorted(self.open):
            if start in self.commits:
                await self.end(caller, start)
            else:
                await _send(caller, Binlog(tp=Rollback, start_ts=start))
        self.open.clear()

    async def end(self, caller: Caller, start: int) -> None:
        """Commit a transaction, or roll it back; as before if that was tried."""
        if start % 7 == 0:
            await _send(caller, Binlog(tp=Rollback, start_ts=start))
        else:
            commit_ts = self.commits.setdefault(start, self.tick())
            await _send(caller, Binlog(tp=Commit, start_ts=start, commit_ts=commit_ts))
        self.open.discard(start)


async def _send(caller: Caller, message: Binlog) -> None:
    assert not (await caller.write(message.SerializeToString())).errmsg


class Reading:
    """What a client has got in all its lives."""

    def __init__(self) -> None:
        self.lives: list[list[int]] = []
        """The ids of rows."""

    def read(self, url: str) -> None:
        """Get and ack until the server is gone."""
        found = list[int]()
        self.lives.append(found)
        with contextlib.suppress(SluiceError), Client(url, "tidb", retry=0) as client:
            client.subscribe()
            while True:
                batch = client.get_without_ack(timeout=5)
                found += [it.after["id"] for it in batch.rows() if it.after is not None]
                if batch:
                    client.ack(batch)


async def test_each_transaction_comes_in_its_order_over_kills(tmp_path: Path) -> None:
    server, cluster, reading = Server(tmp_path), Cluster(), Reading()
    configure(server)
    for _ in range(times(2, 20)):
        with server.running() as process:
            async with calling(server.socket) as caller:
                await cluster.settle(caller)
                client = asyncio.create_task(asyncio.to_thread(reading.read, server.url))
                writing = [asyncio.create_task(cluster.write(caller)) for _ in range(TIDBS)]
                await soon(lambda: len(reading.lives[-1]) > 300, lambda: server.status().stdout)
                process.kill()
                await asyncio.gather(client, *writing)
    with server.running() as process:
        async with calling(server.socket) as caller:
            await cluster.settle(caller)
        expected = [start for start, _ in sorted(cluster.commits.items(), key=lambda it: it[1])]
        client = asyncio.create_task(asyncio.to_thread(reading.read, server.url))
        await soon(lambda: expected[-1] in reading.lives[-1], lambda: server.status().stdout)
        process.kill()
        await client
    found = list[int]()
    for life in reading.lives:
        if life and life[0] in found:  # what was not acked durably comes again, without a gap
            assert found[found.index(life[0]) :] == life[: len(found) - found.index(life[0])]
            del found[found.index(life[0]) :]
        found += life
    assert found == expected
