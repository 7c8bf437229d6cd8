"""A pump that is served, and its callers."""

import contextlib
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from sluice.instance.pump.files import scan
from sluice.instance.pump.log import FILE_SIZE, PumpLog
from sluice.instance.pump.reader import WholeBinlog
from sluice.protocol.tidb.binlog_pb2 import Binlog, Commit, Prewrite, Rollback
from sluice.protocol.tidb.pump_pb2 import Pos, PullBinlogReq, PullBinlogResp, WriteBinlogReq, WriteBinlogResp
from sluice.server.grpc.config import PumpConfig
from sluice.server.grpc.listen import listening
from sluice.server.grpc.pump import Pump
from sluice.server.waiting import Stopping

CLUSTER = 7710450902931609661
"""Of the captured messages."""


class WatchedLog(PumpLog):
    """The log of a pump, whose disk can be made to wait."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        folder.mkdir(exist_ok=True)
        super().__init__(folder, CLUSTER, **settings)
        self.given = 0  # transactions that were read
        self.disk = threading.Event()  # whether the disk works; else writes wait
        self.disk.set()

    async def read(self, after: int) -> AsyncGenerator[WholeBinlog]:
        async with contextlib.aclosing(super().read(after)) as found:
            async for it in found:
                self.given += 1
                yield it

    def _write(self, pieces: Sequence[bytes]) -> str:
        self.disk.wait()
        return super()._write(pieces)

    def stored(self) -> list[bytes]:
        """Return the messages on disk."""
        return [payload for it in self._segments for _, payload in scan(it, it.place, it.path.stat().st_size)]


@dataclass
class Caller:
    """A TiDB, or a drainer."""

    channel: Any

    def write(self, payload: bytes, cluster: int = CLUSTER) -> Any:
        """Start a call of WriteBinlog."""
        call = self.channel.unary_unary(
            "/binlog.Pump/WriteBinlog", WriteBinlogReq.SerializeToString, WriteBinlogResp.FromString
        )
        return call(WriteBinlogReq(clusterID=cluster, payload=payload))

    def pull(self, after: int = 0, cluster: int = CLUSTER) -> Any:
        """Start a call of PullBinlogs."""
        call = self.channel.unary_stream(
            "/binlog.Pump/PullBinlogs", PullBinlogReq.SerializeToString, PullBinlogResp.FromString
        )
        return call(PullBinlogReq(clusterID=cluster, startFrom=Pos(offset=after)))


@dataclass
class Served:
    """A pump that serves."""

    log: WatchedLog
    address: str
    stopping: Stopping
    caller: Caller


@contextlib.asynccontextmanager
async def serving(
    folder: Path, *, stop_at: int = 0, file_size: int = FILE_SIZE, **settings: Any
) -> AsyncIterator[Served]:
    """Serve a pump at a free port, and connect to it."""
    config = PumpConfig(**{"host": "127.0.0.1", "port": 0, "cluster_id": CLUSTER, **settings})
    stopping = Stopping()
    async with (
        opened(folder, stop_at=stop_at, file_size=file_size) as log,
        listening(config, Pump(log, config.cluster_id, frozenset(config.allowed)), stopping) as addresses,
        calling(addresses[0]) as caller,
    ):
        yield Served(log, " and ".join(addresses), stopping, caller)


@contextlib.asynccontextmanager
async def opened(folder: Path, **settings: Any) -> AsyncIterator[WatchedLog]:
    """Open a log in a folder."""
    log = WatchedLog(folder / "log", **settings)
    try:
        yield log
    finally:
        log.disk.set()
        await log.close()


@contextlib.asynccontextmanager
async def calling(address: str, credentials: Any = None) -> AsyncIterator[Caller]:
    """Connect to a pump, over a connection of its own."""
    target = f"unix:{address}" if address.startswith("/") else address
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]
    if credentials is None:
        channel = grpc.aio.insecure_channel(target, options=options)
    else:
        channel = grpc.aio.secure_channel(target, credentials, options=options)
    async with channel:
        yield Caller(channel)


def prewrite(start_ts: int, value: bytes = b"rows") -> bytes:
    return Binlog(
        tp=Prewrite, start_ts=start_ts, commit_ts=0, prewrite_key=b"key", prewrite_value=value
    ).SerializeToString()


def commit(start_ts: int, commit_ts: int) -> bytes:
    return Binlog(tp=Commit, start_ts=start_ts, commit_ts=commit_ts, prewrite_key=b"key").SerializeToString()


def heartbeat(ts: int) -> bytes:
    return Binlog(tp=Rollback, start_ts=ts, commit_ts=ts, ddl_job_id=0, ddl_schema_state=0).SerializeToString()


async def committed(caller: Caller, *commits: int, value: bytes = b"rows") -> None:
    """Write transactions that commit at these times."""
    for ts in commits:
        await caller.write(prewrite(ts - 1, value))
        await caller.write(commit(ts - 1, ts))


async def refused(call: Any) -> tuple[grpc.StatusCode, str]:
    """Return the code and the text with which a call ends."""
    try:
        if hasattr(call, "read"):
            while await call.read() is not grpc.aio.EOF:
                pass
        else:
            await call
    except grpc.aio.AioRpcError as error:
        return error.code(), str(error.details())
    raise AssertionError("it was answered")
