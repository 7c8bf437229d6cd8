"""TiDB writes to a pump, and drainers pull from it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from sluice.protocol.tidb.binlog_pb2 import Binlog
from tests import tidb
from tests.integration.grpc.served import CLUSTER, Served, commit, committed, heartbeat, prewrite, refused, serving


@pytest.fixture
async def pump(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(tmp_path) as served:
        yield served


async def take(stream: Any, count: int) -> list[bytes]:
    return [(await stream.read()).entity.payload for _ in range(count)]


async def commits(stream: Any, count: int) -> list[int]:
    return [Binlog.FromString(payload).commit_ts for payload in await take(stream, count)]


async def test_what_a_tidb_has_written_comes_as_a_pump_of_tidb_has_given_it(pump: Served) -> None:
    for message in tidb.written():
        assert not (await pump.caller.write(message.payload)).errmsg
    expected = [message.payload for message in tidb.pulled() if message.label != "fake"]
    assert await take(pump.caller.pull(), len(expected)) == expected


async def test_a_write_is_answered_when_it_is_on_disk(pump: Served) -> None:
    pump.log.disk.clear()
    call = pump.caller.write(prewrite(1))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(call.code()), 0.3)
    assert pump.log.stored() == []
    pump.log.disk.set()
    assert not (await call).errmsg
    assert pump.log.stored() == [prewrite(1)]


async def test_writes_that_wait_for_the_disk_hold_up_nothing_else(pump: Served) -> None:
    await committed(pump.caller, 10)
    pump.log.disk.clear()
    waiting = [pump.caller.write(prewrite(ts)) for ts in range(100, 132)]
    assert await commits(pump.caller.pull(), 1) == [10]
    pump.log.disk.set()
    assert [(await call).errmsg for call in waiting] == [""] * 32
    assert len(pump.log.stored()) == 34


async def test_a_probe_is_answered_and_stores_nothing(pump: Served) -> None:
    assert not (await pump.caller.write(b"")).errmsg
    assert pump.log.stored() == []


async def test_what_the_log_refuses_is_answered_with_its_reason(tmp_path: Path) -> None:
    async with serving(tmp_path, stop_at=1 << 60) as pump:
        answer = (await pump.caller.write(prewrite(1))).errmsg
        assert answer.endswith(f"and sluice.pump.stopWriteAt is {1 << 60}")
        assert pump.log.stored() == []


async def test_calls_for_another_cluster_are_refused_as_a_pump_of_tidb_does(pump: Served) -> None:
    expected = grpc.StatusCode.UNKNOWN, f"cluster ID are mismatch, 1 vs {CLUSTER}"
    assert await refused(pump.caller.write(prewrite(1), cluster=1)) == expected
    assert await refused(pump.caller.pull(cluster=1)) == expected
    assert pump.log.stored() == []


async def test_garbage_is_refused_as_a_pump_of_tidb_does(pump: Served) -> None:
    assert await refused(pump.caller.write(b"\xff\xff")) == (grpc.StatusCode.UNKNOWN, "unexpected EOF")
    assert not (await pump.caller.write(prewrite(1))).errmsg


async def test_a_stream_begins_after_a_commit_and_follows(pump: Served) -> None:
    await committed(pump.caller, 10, 20, 30)
    stream = pump.caller.pull(after=10)
    assert await commits(stream, 2) == [20, 30]
    await committed(pump.caller, 40)
    assert await commits(stream, 1) == [40]


async def test_a_transaction_has_its_times_beside_it_and_a_heartbeat_too(pump: Served) -> None:
    await committed(pump.caller, 10)
    await pump.log.append(heartbeat(20))
    stream = pump.caller.pull()
    first, second = (await stream.read()).entity, (await stream.read()).entity
    assert (first.meta.startTs, first.meta.commitTs) == (9, 10)
    assert (second.meta.startTs, second.meta.commitTs) == (20, 20)
    assert first.HasField("pos")
    assert not first.pos.ByteSize()


async def test_a_stream_from_the_future_is_silent(pump: Served) -> None:
    await committed(pump.caller, 10)
    stream = pump.caller.pull(after=1000)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(stream.read(), 0.3)


async def test_what_is_not_kept_any_more_is_out_of_range(tmp_path: Path) -> None:
    async with serving(tmp_path, file_size=1) as pump:
        await committed(pump.caller, 10, 60)
        await pump.log.collect(50)
        assert await refused(pump.caller.pull(after=9)) == (
            grpc.StatusCode.OUT_OF_RANGE,
            "what committed until 10 is not kept any more",
        )
        assert await commits(pump.caller.pull(after=10), 1) == [60]


async def test_streams_end_when_the_stop_is_announced_and_writes_are_answered(pump: Served) -> None:
    await committed(pump.caller, 10)
    stream = pump.caller.pull()
    assert await commits(stream, 1) == [10]
    pump.log.disk.clear()
    writing = pump.caller.write(commit(100, 101))
    await pump.caller.write(b"")  # it has arrived when this is answered
    pump.stopping.announce()
    async with asyncio.timeout(5):
        assert await refused(stream) == (grpc.StatusCode.UNAVAILABLE, "the pump stops")
    assert await refused(pump.caller.pull()) == (grpc.StatusCode.UNAVAILABLE, "the pump stops")
    pump.log.disk.set()
    assert not (await writing).errmsg
