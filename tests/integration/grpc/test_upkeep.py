"""A pump says that it is idle, ends what TiDB has left open, and removes what is old."""

import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from sluice.instance.pump.cluster import Cluster, ClusterError
from sluice.login.etcd import Etcd
from sluice.login.nodes import DRAINERS, Node, Nodes, State
from sluice.protocol.tidb.binlog_pb2 import Binlog, Commit, Prewrite
from sluice.server.grpc.checks import databases_of
from sluice.server.grpc.config import PumpConfig
from sluice.server.grpc.upkeep import Upkeep
from tests import tidb
from tests.integration.grpc.served import CLUSTER, WatchedLog, commit, heartbeat, opened, prewrite
from tests.servers.etcd import EtcdServer
from tests.tidb_server import TidbServer, committed, locked, rolled_back

MINUTE = 60_000 << 18
"""Of a timestamp."""
DAY = 1440 * MINUTE


@pytest.fixture
def server() -> Iterator[TidbServer]:
    with TidbServer() as server:
        yield server


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[WatchedLog]:
    async with opened(tmp_path, file_size=2000) as log:
        yield log


@contextlib.contextmanager
def kept(log: WatchedLog, nodes: Nodes | None = None, **settings: Any) -> Iterator[Upkeep]:
    """Give what keeps a log up."""
    config = PumpConfig(cluster_id=CLUSTER, **settings)
    with contextlib.closing(Cluster(databases_of(config), config.tidb_status)) as cluster:
        yield Upkeep(config, log, cluster, nodes)


async def given(log: WatchedLog) -> list[int]:
    """Return what drainers get by now."""
    found: list[int] = []
    async with contextlib.aclosing(log.read(log.collected)) as stream:
        while log.status.released > max(found, default=log.collected):
            found.append((await anext(stream)).commit_ts)
    return found


# --- heartbeats ------------------------------------------------------------------------------------------------------


async def test_an_idle_pump_tells_drainers_the_time_of_the_cluster_as_a_pump_of_tidb_does(
    log: WatchedLog, server: TidbServer
) -> None:
    captured = next(message.payload for message in tidb.pulled() if message.label == "fake")
    server.time = Binlog.FromString(captured).commit_ts
    with kept(log, tidb_sql=(server.sql,)) as upkeep:
        await upkeep.beat()
        assert log.stored() == [], "TiDB may just have written"
        await upkeep.beat()
        assert log.stored() == [captured]
        server.time += 7
        await upkeep.beat()
        assert await given(log) == [server.time - 7, server.time]
        assert upkeep.time == server.time


async def test_a_pump_that_is_written_to_asks_for_no_time(log: WatchedLog, server: TidbServer) -> None:
    with kept(log, tidb_sql=(server.sql,)) as upkeep:
        for ts in range(1, 9, 2):
            await log.append(prewrite(ts))
            await log.append(commit(ts, ts + 1))
            await upkeep.beat()
    assert server.asked == 0
    assert await given(log) == [2, 4, 6, 8]


async def test_an_open_transaction_holds_the_time_back(log: WatchedLog, server: TidbServer) -> None:
    server.time = 50
    with kept(log, tidb_sql=(server.sql,)) as upkeep:
        await log.append(prewrite(10))
        await upkeep.beat()
        await upkeep.beat()
        assert await given(log) == []
        await log.append(commit(10, 20))
    assert await given(log) == [20, 50]


async def test_a_clock_of_the_cluster_that_stands_still_gives_a_time_once(log: WatchedLog, server: TidbServer) -> None:
    server.time = 50
    with kept(log, tidb_sql=(server.sql,)) as upkeep:
        for _ in range(4):
            await upkeep.beat()
    assert await given(log) == [50]


async def test_another_tidb_is_asked_when_one_does_not_answer_and_it_is_said_when_none_does(
    log: WatchedLog, server: TidbServer, caplog: pytest.LogCaptureFixture
) -> None:
    away = "mysql://pump@127.0.0.1:1/?sslMode=DISABLED"
    with kept(log, tidb_sql=(away, server.sql)) as upkeep:
        server.time = 50
        await upkeep.beat()
        await upkeep.beat()
        assert (await given(log), upkeep.clock_problem) == ([50], "")
        server.time = "no time"
        await upkeep.beat()
        assert "TiDB does not report the time of the cluster: 127.0.0.1:" in upkeep.clock_problem
        assert "cannot log in to 127.0.0.1:1" in upkeep.clock_problem
        await upkeep.beat()
        server.time = 51
        await upkeep.beat()
        assert (await given(log), upkeep.clock_problem) == ([50, 51], "")
    assert len(caplog.records) == 1


# --- transactions without an end -------------------------------------------------------------------------------------


async def test_a_tidb_is_asked_for_transactions_without_an_end_after_ten_minutes(
    log: WatchedLog, server: TidbServer, caplog: pytest.LogCaptureFixture
) -> None:
    keys = {name.encode(): ts for name, ts in (("committed", 1), ("rolled", 2), ("unknown", 3), ("locked", 4))}
    server.keys |= {b"committed": committed(1, 7), b"rolled": rolled_back(2), b"locked": locked(4)}
    with kept(log, tidb_status=("http://127.0.0.1:1", server.status)) as upkeep:
        for key, start_ts in keys.items():
            await log.append(_prewrite(start_ts, key))
        await log.append(prewrite(10 * MINUTE - 1))
        await upkeep.resolve()
        assert (log.status.open, upkeep.unresolved) == (5, "")
        await log.append(commit(10 * MINUTE - 1, 10 * MINUTE + 4 * (1 << 18)))
        await upkeep.resolve()
        assert log.status.open == 1
        assert upkeep.unresolved == "the transaction with start_ts 4 is under way still, as TiKV says"
        assert await given(log) == []
        server.keys[b"locked"] = committed(4, 8)
        await upkeep.resolve()
        assert (log.status.open, upkeep.unresolved) == (0, "")
    assert await given(log) == [7, 8, 10 * MINUTE + 4 * (1 << 18)]
    said = "TiDB has not sent the end of the transaction with start_ts"
    assert f"{said} 1; it has committed with 7" in caplog.text
    assert f"{said} 2; it has not committed" in caplog.text
    assert f"{said} 3; it has not committed" in caplog.text


async def test_what_a_tidb_says_of_a_transaction_gives_its_rows_and_its_ddl(
    log: WatchedLog, server: TidbServer
) -> None:
    ddl = Binlog(
        tp=Prewrite, start_ts=1, commit_ts=0, prewrite_key=b"key", ddl_query=b"DROP TABLE t;", ddl_job_id=9
    ).SerializeToString()
    server.keys[b"key"] = committed(1, 5)
    with kept(log, tidb_status=(server.status,)) as upkeep:
        await log.append(ddl)
        await log.append(heartbeat(11 * MINUTE))
        await upkeep.resolve()
    async with contextlib.aclosing(log.read(0)) as stream:
        found = Binlog.FromString((await anext(stream)).payload)
    assert (found.tp, found.commit_ts, found.ddl_query, found.ddl_job_id) == (Commit, 5, b"DROP TABLE t;", 9)


@pytest.mark.parametrize("answer", [None, [], {"info": {"writes": [{"start_ts": "x"}]}}, {"info": {"writes": 5}}])
async def test_an_answer_that_makes_no_sense_ends_no_transaction(
    log: WatchedLog, server: TidbServer, answer: object
) -> None:
    server.keys[b"key"] = answer
    with kept(log, tidb_status=(server.status,)) as upkeep:
        await log.append(prewrite(1))
        await log.append(heartbeat(11 * MINUTE))
        await upkeep.resolve()
        assert log.status.open == 1
        assert "TiDB does not report what has become of a transaction" in upkeep.unresolved


@pytest.mark.parametrize(("unresolved", "left"), [("stop", 2), ("drop", 0)])
async def test_without_a_tidb_to_ask_such_transactions_stop_drainers_or_are_dropped_and_named(
    log: WatchedLog, caplog: pytest.LogCaptureFixture, unresolved: str, left: int
) -> None:
    with kept(log, unresolved=unresolved) as upkeep:
        for start_ts in (1, 2):
            await log.append(prewrite(start_ts))
        await log.append(heartbeat(11 * MINUTE))
        await upkeep.resolve()
        assert log.status.open == left
        assert ("start_ts 1 has no end (unresolved-prewrite)" in upkeep.unresolved) is bool(left)
        assert upkeep.unresolved.endswith("; and 1 more") is bool(left)
    assert await given(log) == ([] if left else [11 * MINUTE])
    assert ("the transaction with start_ts 2 is dropped" in caplog.text) is not bool(left)


# --- old transactions ------------------------------------------------------------------------------------------------


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    with EtcdServer() as server:
        etcd = Etcd([server.url])
        for name, state, ts in (("slow", State.PAUSED, 2 * DAY), ("gone", State.OFFLINE, 1)):
            etcd.put(DRAINERS + name, Node(name, "127.0.0.1:1", state, ts).encode())
        yield Nodes(etcd)
        etcd.close()


async def fill(log: WatchedLog) -> None:
    """Write a transaction an hour for ten days."""
    for ts in range(MINUTE, 10 * DAY, 60 * MINUTE):
        await log.append(prewrite(ts, bytes(100)))
        await log.append(commit(ts, ts + 1))


@pytest.mark.parametrize(("force", "after"), [(False, 2 * DAY), (True, 3 * DAY)])
async def test_transactions_are_removed_after_some_days_but_not_before_drainers_have_read_them(
    log: WatchedLog, nodes: Nodes, force: bool, after: int
) -> None:
    await fill(log)
    with kept(log, nodes, gc=7, gc_force=force) as upkeep:
        await upkeep.collect()
    assert after - DAY < log.collected <= after


async def test_without_a_registration_transactions_are_removed_by_their_age(log: WatchedLog) -> None:
    await fill(log)
    with kept(log, gc=4) as upkeep:
        await upkeep.collect()
    assert 5 * DAY < log.collected <= 6 * DAY


def test_nobody_is_asked_of_whom_nothing_is_configured() -> None:
    with contextlib.closing(Cluster([], [])) as cluster, pytest.raises(ClusterError):
        cluster.now()


def _prewrite(start_ts: int, key: bytes) -> bytes:
    return Binlog(tp=Prewrite, start_ts=start_ts, commit_ts=0, prewrite_key=key).SerializeToString()
