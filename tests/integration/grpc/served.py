"""A pump that is served from a file, and its callers."""

import asyncio
import bisect
import contextlib
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from sluice.protocol.tidb.binlog_pb2 import Binlog, Commit, Prewrite, Rollback
from sluice.protocol.tidb.pump_pb2 import Pos, PullBinlogReq, PullBinlogResp, WriteBinlogReq, WriteBinlogResp
from sluice.server.grpc.config import PumpConfig
from sluice.server.grpc.listen import listening
from sluice.server.grpc.log import CollectedError, RefusedWriteError, Transaction
from sluice.server.waiting import Stopping

CLUSTER = 7710450902931609661
"""Of the captured messages."""


@dataclass
class FileLog:
    """The simplest log: a file that is synced for each message, whose transactions are in memory too."""

    file: Path
    collected: int = 0
    """What committed until then is not kept."""
    refusal: str = ""
    """Why nothing is stored; empty: it is."""
    given: int = 0
    """Transactions that were read."""
    disk: asyncio.Event = field(default_factory=asyncio.Event)
    """Whether the disk works; else writes wait."""

    def __post_init__(self) -> None:
        self.disk.set()
        self._open: dict[int, Binlog] = {}
        self._transactions: list[Transaction] = []
        self._more = asyncio.Condition()

    async def append(self, payload: bytes) -> None:
        binlog = Binlog.FromString(payload)
        if self.refusal:
            raise RefusedWriteError(self.refusal)
        await self.disk.wait()
        await asyncio.to_thread(self._store, payload)
        if binlog.tp == Prewrite:
            self._open[binlog.start_ts] = binlog
            return
        begun = self._open.pop(binlog.start_ts, None)
        if binlog.tp == Commit and begun is not None:
            begun.tp, begun.commit_ts = Commit, binlog.commit_ts
            await self.give(begun)

    async def give(self, binlog: Binlog) -> None:
        """Have a transaction, or a heartbeat."""
        item = Transaction(binlog.start_ts, binlog.commit_ts, binlog.SerializeToString())
        bisect.insort(self._transactions, item, key=lambda it: it.commit_ts)
        async with self._more:
            self._more.notify_all()

    async def read(self, after: int) -> AsyncIterator[Transaction]:
        if after < self.collected:
            raise CollectedError(f"what committed until {self.collected} is not kept any more")
        while True:
            at = bisect.bisect_right(self._transactions, after, key=lambda it: it.commit_ts)
            if at == len(self._transactions):
                async with self._more:
                    await self._more.wait()
                continue
            self.given += 1
            after = self._transactions[at].commit_ts
            yield self._transactions[at]

    def _store(self, payload: bytes) -> None:
        with self.file.open("ab") as file:
            file.write(len(payload).to_bytes(8) + payload)
            file.flush()
            os.fsync(file.fileno())

    def stored(self) -> list[bytes]:
        """Return the messages on disk."""
        data, found = self.file.read_bytes() if self.file.exists() else b"", []
        while data:
            size = int.from_bytes(data[:8])
            found.append(data[8 : 8 + size])
            data = data[8 + size :]
        return found


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

    log: FileLog
    address: str
    stopping: Stopping
    caller: Caller


@contextlib.asynccontextmanager
async def serving(folder: Path, **settings: Any) -> AsyncIterator[Served]:
    """Serve a pump at a free port, and connect to it."""
    config = PumpConfig(**{"host": "127.0.0.1", "port": 0, "cluster_id": CLUSTER, **settings})
    log, stopping = FileLog(folder / "log"), Stopping()
    async with listening(config, log, stopping) as address, calling(address) as caller:
        yield Served(log, address, stopping, caller)


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


def heartbeat(ts: int) -> Binlog:
    return Binlog(tp=Rollback, start_ts=ts, commit_ts=ts, ddl_job_id=0, ddl_schema_state=0)


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
