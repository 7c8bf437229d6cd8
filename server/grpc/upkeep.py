"""What a pump does by itself: it says that it is idle, ends what TiDB has left open, and removes what is old."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from ...instance.pump.cluster import Cluster, ClusterError
from ...instance.pump.log import PumpLog, RefusedWriteError
from ...login.etcd import EtcdError
from ...login.nodes import NodeError, Nodes, State
from ...protocol.tidb.binlog_pb2 import Binlog, BinlogType
from ...protocol.tidb.tags import LOGICAL_BITS
from ...store.log.errors import LogError
from .config import PumpConfig, Unresolved

RESOLVING: Final = 10.0
"""Seconds between two looks at transactions without an end."""
COLLECTING: Final = 3600.0
"""Seconds between two looks at what is old."""
DAY: Final = 86_400_000
"""Milliseconds."""
LONGER: Final = 600_000
"""Milliseconds beyond the configured days for which transactions are kept: as long as one may be open."""

logger = logging.getLogger("sluice.pump")
T = TypeVar("T")


class Upkeep:
    """Keeps up the log of a pump. All methods belong to one event loop."""

    def __init__(self, config: PumpConfig, log: PumpLog, cluster: Cluster, nodes: Nodes | None) -> None:
        """``nodes``: those of the cluster, if the pump is registered."""
        self._config = config
        self._log = log
        self._cluster = cluster
        self._nodes = nodes
        self._asking = asyncio.Lock()
        self._time = 0
        self._written = -1
        self.clock_problem = ""
        """Why the time of the cluster is not known; empty: it is, or nobody is to be asked."""
        self.unresolved = ""
        """Why transactions are without an end for too long; empty: none is."""

    @property
    def time(self) -> int:
        """The time of the cluster as far as it is known: what it was asked for last, or the greatest that has come."""
        return max(self._time, self._log.status.newest)

    async def run(self) -> None:
        """Do all of it, for ever."""
        async with asyncio.TaskGroup() as group:
            if self._config.tidb_sql:
                group.create_task(_repeat(self._config.fake_interval, self.beat))
            group.create_task(_repeat(RESOLVING, self.resolve))
            if self._config.gc:
                group.create_task(_repeat(COLLECTING, self.collect))

    async def beat(self) -> None:
        """If nothing was written since the last call, write that all before the time of the cluster has come."""
        before, self._written = self._written, self._log.status.written
        if before != self._written:
            return
        try:
            ts = await self._ask(self._cluster.now)
            heartbeat = Binlog(tp=BinlogType.Rollback, start_ts=ts, commit_ts=ts, ddl_job_id=0, ddl_schema_state=0)
            self._time = max(self._time, ts)
            await self._log.append(heartbeat.SerializeToString())
        except (ClusterError, RefusedWriteError) as error:
            if not self.clock_problem:
                logger.warning("drainers do not get on while TiDB writes nothing: %s", error)
            self.clock_problem = str(error)
        else:
            self.clock_problem = ""
        self._written = self._log.status.written

    async def resolve(self) -> None:
        """End the transactions that are open for too long, as far as it is known what has become of them."""
        problems = []
        try:
            for start_ts, prewrite in await self._log.due(self.time):
                if problem := await self._resolve(start_ts, prewrite):
                    problems.append(f"the transaction with start_ts {start_ts} {problem}")
        except (LogError, OSError, RefusedWriteError) as error:
            problems.append(f"a transaction cannot be ended: {error}")
        more = f"; and {len(problems) - 1} more" if len(problems) > 1 else ""
        text = f"{problems[0]}{more}" if problems else ""
        if text and not self.unresolved:
            logger.warning("drainers wait: %s", text)
        self.unresolved = text

    async def _resolve(self, start_ts: int, payload: bytes) -> str:
        """End a transaction by its Prewrite. Return why it cannot be; empty: it has ended.

        Raises RefusedWriteError.
        """
        prewrite = Binlog.FromString(payload)
        end = Binlog(
            tp=BinlogType.Rollback,
            start_ts=start_ts,
            commit_ts=0,
            prewrite_key=prewrite.prewrite_key,
            ddl_job_id=prewrite.ddl_job_id,
            ddl_schema_state=prewrite.ddl_schema_state,
        )
        if self._config.tidb_status and prewrite.prewrite_key:
            try:
                commit_ts = await self._ask(lambda: self._cluster.commit_ts_of(start_ts, prewrite.prewrite_key))
            except ClusterError as error:
                return f"has no end: {error}"
            if commit_ts is None:
                return "is under way still, as TiKV says"
            if commit_ts:
                end.tp, end.commit_ts = BinlogType.Commit, commit_ts
            said = f"has committed with {commit_ts}" if commit_ts else "has not committed"
            logger.warning("TiDB has not sent the end of the transaction with start_ts %d; it %s", start_ts, said)
        elif self._config.unresolved == Unresolved.DROP:
            logger.warning("the transaction with start_ts %d is dropped: TiDB has not sent its end", start_ts)
        else:
            return "has no end (unresolved-prewrite), and sluice.pump.tidbStatus names no TiDB to be asked for it"
        await self._log.append(end.SerializeToString())
        return ""

    async def collect(self) -> None:
        """Remove what is older than the configured days, as far as all drainers have read it."""
        until = self.time - (int(self._config.gc * DAY + LONGER) << LOGICAL_BITS)
        try:
            if self._nodes is not None and not self._config.gc_force:
                drainers = await asyncio.to_thread(self._nodes.drainers)
                until = min([until, *(it.max_commit_ts for it in drainers if it.state != State.OFFLINE)])
            if until > 0:
                await self._log.collect(until)
        except (EtcdError, NodeError, OSError) as error:
            logger.warning("old files of the pump are not removed: %s", error)

    async def _ask(self, question: Callable[[], T]) -> T:
        """Ask the cluster, one question at a time. Raises as the question."""
        async with self._asking:
            return await asyncio.to_thread(question)


async def _repeat(period: float, work: Callable[[], Awaitable[None]]) -> None:
    """Do some work every so many seconds, for ever."""
    while True:
        await asyncio.sleep(period)
        await work()
