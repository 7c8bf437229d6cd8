"""A pump whose process is killed while TiDBs write to it."""

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import grpc.aio
import pytest

from sluice.protocol.tidb.binlog_pb2 import Binlog, Prewrite, Rollback
from tests.effort import times
from tests.integration.grpc.served import CLUSTER, Caller, calling, commit, opened, prewrite
from tests.waiting import soon

SERVER = f"""
import asyncio, sys
from pathlib import Path
from sluice.instance.pump.log import PumpLog
from sluice.server.grpc.config import PumpConfig
from sluice.server.grpc.listen import listening
from sluice.server.grpc.pump import Pump
from sluice.server.waiting import Stopping

async def main(folder):
    log = PumpLog(folder / "log", {CLUSTER}, file_size=20_000)
    config = PumpConfig(socket=folder / "pump.sock", cluster_id={CLUSTER})
    async with listening(config, Pump(log, {CLUSTER}, frozenset()), Stopping()):
        print("ready", flush=True)
        await asyncio.Event().wait()

asyncio.run(main(Path(sys.argv[1])))
"""
TIDBS = 8


@contextlib.asynccontextmanager
async def process(folder: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """Serve a pump in a process of its own, and kill it in the end."""
    started = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SERVER, str(folder), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert started.stdout is not None
        assert await asyncio.wait_for(started.stdout.readline(), 60) == b"ready\n"
        yield started
    finally:
        with contextlib.suppress(ProcessLookupError):
            started.send_signal(signal.SIGKILL)
        await started.wait()


class Cluster:
    """TiDBs that write transactions, and what they know of them."""

    def __init__(self) -> None:
        self.ts = 0
        self.answered = list[bytes]()
        self.committed = list[int]()

    def tick(self) -> int:
        self.ts += 1
        return self.ts

    async def run(self, caller: Caller) -> None:
        """Write until the pump is gone."""
        with contextlib.suppress(grpc.aio.AioRpcError):
            while True:
                start = self.tick()
                await self._write(caller, prewrite(start, bytes(start % 500)))
                if start % 7 == 0:
                    await self._write(caller, Binlog(tp=Rollback, start_ts=start).SerializeToString())
                    continue
                end = self.tick()
                await self._write(caller, commit(start, end))
                self.committed.append(end)

    async def _write(self, caller: Caller, payload: bytes) -> None:
        assert not (await caller.write(payload)).errmsg
        self.answered.append(payload)


@pytest.mark.parametrize("messages", [30, *([300] * times(1, 20))])
async def test_what_was_answered_is_there_after_kill_9(tmp_path: Path, messages: int) -> None:
    (tmp_path / "log").mkdir()
    cluster = Cluster()
    for life in (1, 2):
        async with process(tmp_path) as pump, calling(str(tmp_path / "pump.sock")) as caller:
            writing = [asyncio.create_task(cluster.run(caller)) for _ in range(TIDBS)]
            await soon(lambda: len(cluster.answered) > life * messages)  # noqa: B023  it is waited for here
            pump.send_signal(signal.SIGKILL)
            await asyncio.gather(*writing)
    async with opened(tmp_path) as log:
        stored = log.stored()
        assert set(cluster.answered) <= set(stored)
        for payload in stored:  # what was never answered ends now, as TiDB ends it when it asks the cluster
            found = Binlog.FromString(payload)
            if found.tp == Prewrite:
                await log.append(Binlog(tp=Rollback, start_ts=found.start_ts).SerializeToString())
        stream, given = log.read(0), list[int]()
        async with contextlib.aclosing(stream):
            while not given or given[-1] != log.status.released:
                given.append((await anext(stream)).commit_ts)
        assert given == sorted(set(given))
        assert set(cluster.committed) <= set(given)
