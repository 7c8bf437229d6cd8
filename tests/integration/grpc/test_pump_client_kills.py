"""What is written over several pumps is given by them once, whichever of them are killed meanwhile."""

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from sluice.client_sdk.tidb import AsyncPumpClient, Binlog, BinlogType, aio_pump, pumps
from tests.integration.grpc.served import CLUSTER, opened, prewrite
from tests.integration.grpc.test_pump_dies import Cluster, process
from tests.waiting import soon

WRITERS = 8

logger = logging.getLogger(__name__)


class Writers(Cluster):
    """Programs that write transactions over one client."""

    def __init__(self, client: AsyncPumpClient) -> None:
        super().__init__()
        self.client = client
        self.rolled_back = set[int]()

    async def write(self, is_over: Callable[[], bool]) -> None:
        """Write until it is over, and end what has begun."""
        while not is_over():
            start = self.tick()
            await self.client.write(Binlog.FromString(prewrite(start)))
            if start % 7 == 0:
                self.rolled_back.add(start)
                await self.client.write(Binlog(tp=BinlogType.Rollback, start_ts=start, commit_ts=0))
                continue
            end = self.tick()
            self.committed.append(end)
            await self.client.write(Binlog(tp=BinlogType.Commit, start_ts=start, commit_ts=end))


async def given(folder: Path) -> tuple[list[Binlog], int]:
    """Return what a pump gives to a drainer, and how many transactions have no end."""
    async with opened(folder) as log:
        found = list[Binlog]()
        async with contextlib.aclosing(log.read(0)) as stream:
            while (found[-1].commit_ts if found else 0) < log.status.released:
                found.append(Binlog.FromString((await anext(stream)).payload))
        return found, log.status.open


@contextlib.asynccontextmanager
async def supervised(folder: Path) -> AsyncIterator[None]:
    """Serve a pump, and start it again when it dies at its start, as a supervisor does.

    That happens rarely, when many calls come just then: gRPC's server ends with SIGSEGV in its event engine.
    """
    async with contextlib.AsyncExitStack() as stack:
        while True:
            try:
                await stack.enter_async_context(process(folder))
                break
            except AssertionError:
                logger.warning("the pump in %s has died at its start", folder)
        yield


def size(folder: Path) -> int:
    """Return the bytes of a pump's log."""
    return sum(it.stat().st_size for it in folder.glob("log/*.pump"))


@pytest.mark.extended
@pytest.mark.parametrize("kills", range(1, 6))
async def test_each_transaction_is_given_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kills: int) -> None:
    monkeypatch.setattr(aio_pump, "PERIOD", 0.1)
    monkeypatch.setattr(pumps, "END_PAUSE", 0.05)
    chance, last_lives, ended = random.Random(kills), list[int](), asyncio.Event()
    folders = [tmp_path / str(number) for number in range(3)]
    for folder in folders:
        (folder / "log").mkdir(parents=True)

    async def live(number: int) -> None:
        for _ in range(kills):
            async with supervised(folders[number]):
                await asyncio.sleep(chance.uniform(0.2, 1))
        async with supervised(folders[number]):
            last_lives.append(number)
            await ended.wait()

    async with AsyncPumpClient(CLUSTER, [str(it / "pump.sock") for it in folders], timeout=30, retry=120) as client:
        lives = [asyncio.create_task(live(number)) for number in range(len(folders))]
        writers, over = Writers(client), asyncio.Event()
        writing = [asyncio.create_task(writers.write(over.is_set)) for _ in range(WRITERS)]
        await soon(lambda: len(last_lives) == len(folders) or any(it.done() for it in (*lives, *writing)))
        before = [size(it) for it in folders]
        await soon(lambda: all(size(it) > was + 2000 for it, was in zip(folders, before, strict=True)))
        over.set()
        await asyncio.gather(*writing)
        await asyncio.sleep(1)  # for what is taken back
        ended.set()
        await asyncio.gather(*lives)
    found = [await given(folder) for folder in folders]
    assert all(transactions for transactions, _ in found)
    commits = [it.commit_ts for transactions, _ in found for it in transactions]
    assert sorted(commits) == sorted(writers.committed)
    assert [open_ for _, open_ in found] == [0, 0, 0]
    assert not writers.rolled_back & {it.start_ts for transactions, _ in found for it in transactions}
