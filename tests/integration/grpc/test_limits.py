"""What a caller of a pump may take, and that nobody else pays for it."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from sluice.protocol.tidb.binlog_pb2 import Binlog
from sluice.server.grpc import pump as calls
from tests.integration.grpc.served import calling, committed, prewrite, refused, serving

MEGABYTE = 1 << 20


async def test_a_message_may_have_the_configured_size_and_no_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path, max_message=MEGABYTE) as pump:
        largest = prewrite(1, bytes(MEGABYTE - len(prewrite(1, bytes(MEGABYTE))) + MEGABYTE))
        assert len(largest) == MEGABYTE
        assert not (await pump.caller.write(largest)).errmsg
        code, text = await refused(pump.caller.write(prewrite(2, bytes(MEGABYTE + 100))))
        assert code == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "larger than max" in text
        assert "sluice.pump.maxMessage" in caplog.text
        assert not (await pump.caller.write(prewrite(3))).errmsg
        assert pump.log.stored() == [largest, prewrite(3)]


async def test_messages_that_wait_for_the_disk_are_bounded_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "TOGETHER", 3 * MEGABYTE)
    async with serving(tmp_path) as pump:
        pump.log.disk.clear()
        waiting = [pump.caller.write(prewrite(ts, bytes(MEGABYTE))) for ts in (1, 2)]
        answer = ""
        async with asyncio.timeout(30):
            while not answer:
                answer = (await pump.caller.write(prewrite(3, bytes(MEGABYTE * 2)))).errmsg
        assert "the disk of the pump is too slow" in answer
        pump.log.disk.set()
        assert [(await call).errmsg for call in waiting] == ["", ""]
        assert not (await pump.caller.write(prewrite(4, bytes(MEGABYTE * 2)))).errmsg


async def test_a_slow_stream_holds_neither_memory_nor_anybody_else(tmp_path: Path) -> None:
    count = 200
    async with serving(tmp_path) as pump:
        await committed(pump.caller, *range(2, 2 * count + 1, 2), value=bytes(MEGABYTE // 4))
        async with calling(pump.address) as slow:
            stream = slow.pull()
            await stream.read()
            before = -1
            while before != pump.log.given:  # until nothing is read ahead any more
                before = pump.log.given
                await asyncio.sleep(0.5)
            assert before < count // 2
            quick = pump.caller.pull()
            last = 0
            for _ in range(count):
                last = Binlog.FromString((await quick.read()).entity.payload).commit_ts
            assert last == 2 * count
            assert pump.log.given == before + count


async def test_a_stream_whose_reader_has_gone_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "STREAMS", 1)
    async with serving(tmp_path, file_size=1) as pump:
        await committed(pump.caller, 10, 60)
        async with calling(pump.address) as gone:
            await gone.pull().read()
            code, text = await refused(pump.caller.pull())
            assert code == grpc.StatusCode.RESOURCE_EXHAUSTED
            assert text == "1 streams are open, the most there may"

        await pump.log.collect(50)  # so that a stream ends which is opened
        async with asyncio.timeout(30):
            while (code := (await refused(pump.caller.pull()))[0]) == grpc.StatusCode.RESOURCE_EXHAUSTED:
                pass
        assert code == grpc.StatusCode.OUT_OF_RANGE


async def test_a_call_that_brings_no_message_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "ARRIVAL", 0.2)
    async with serving(tmp_path) as pump:
        call: Any = pump.caller.channel.stream_unary("/binlog.Pump/WriteBinlog")()
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await call
        assert error.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        assert not (await pump.caller.write(prewrite(1))).errmsg


async def test_bytes_that_are_no_grpc_cost_only_their_connection(tmp_path: Path) -> None:
    async with serving(tmp_path) as pump:
        host, _, port = pump.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"\xff" * 100_000)
        async with asyncio.timeout(30):
            while await reader.read(1 << 16):
                pass
        writer.close()
        for method in ("WriteBinlog", "PullBinlogs"):
            call = pump.caller.channel.unary_unary(f"/binlog.Pump/{method}")(b"\xff\xff")
            assert (await refused(call))[0] == grpc.StatusCode.INTERNAL
        assert (await refused(pump.caller.channel.unary_unary("/binlog.Pump/Nothing")(b"")))[0] == (
            grpc.StatusCode.UNIMPLEMENTED
        )
        assert not (await pump.caller.write(prewrite(1))).errmsg
