"""What a pump keeps on disk, whatever happens to its process and its files."""

import asyncio
import itertools
import os
import resource
import shutil
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.instance.pump import pairing
from sluice.instance.pump.files import ENTRY, HEAD, frame, scan
from sluice.instance.pump.log import PumpLog, RefusedWriteError
from sluice.instance.pump.pairing import Pairing, Transaction, merge, read_record
from sluice.instance.pump.reader import CollectedError, Reader
from sluice.protocol.errors import DecodeError
from sluice.protocol.tidb.binlog_pb2 import Binlog, BinlogType
from sluice.store.log.errors import DamagedLogError, LogError
from tests import tidb
from tests.effort import times

CLUSTER = 7
SMALL = 300
"""Bytes of a file: a few records."""


def prewrite(start_ts: int, size: int = 10) -> bytes:
    return Binlog(tp=BinlogType.Prewrite, start_ts=start_ts, prewrite_value=bytes(size)).SerializeToString()


def commit(start_ts: int, commit_ts: int) -> bytes:
    return Binlog(tp=BinlogType.Commit, start_ts=start_ts, commit_ts=commit_ts).SerializeToString()


def rollback(start_ts: int) -> bytes:
    return Binlog(tp=BinlogType.Rollback, start_ts=start_ts).SerializeToString()


def heartbeat(ts: int) -> bytes:
    return Binlog(tp=BinlogType.Rollback, start_ts=ts, commit_ts=ts).SerializeToString()


def transactions(*commits: int) -> list[bytes]:
    return [it for ts in commits for it in (prewrite(ts - 1), commit(ts - 1, ts))]


def store(log: PumpLog, payloads: Sequence[bytes]) -> None:
    """Store messages, each by itself, so that any may begin another file."""
    assert [log.store([it]) for it in payloads] == [[None]] * len(payloads)


def read(log: PumpLog, after: int = 0) -> list[bytes]:
    reader, found = Reader(lambda: log._segments, after), list[bytes]()
    while batch := reader.next():
        found += [it.payload for it in batch]
    reader.close()
    return found


def commits(payloads: Sequence[bytes]) -> list[int]:
    return [Binlog.FromString(it).commit_ts for it in payloads]


def stored(log: PumpLog) -> list[bytes]:
    return [payload for it in log._segments for _, payload in scan(it, it.place, it.size)]


def expected(payloads: Sequence[bytes]) -> list[bytes]:
    """Return the transactions of messages that arrive in this order."""
    pairs = Pairing()
    found = [it for place, payload in enumerate(payloads) for it in pairs.take(read_record(payload, place))]
    return [
        payloads[it.commit] if it.prewrite < 0 else merge(payloads[it.prewrite], payloads[it.commit]) for it in found
    ]


@asynccontextmanager
async def opened(folder: Path, **limits: int) -> AsyncIterator[PumpLog]:
    log = PumpLog(folder, CLUSTER, **limits)
    try:
        yield log
    finally:
        await log.close()


def kill(log: PumpLog) -> None:
    """Leave a log as the end of its process does: nothing more is written."""
    log._release()


def test_what_a_tidb_sent_becomes_what_its_pump_gave_after_a_restart_too(tmp_path: Path) -> None:
    given_by_pump = [it.payload for it in tidb.pulled() if it.label != "fake"]
    written = [it.payload for it in tidb.written() if it.payload]
    log = PumpLog(tmp_path, CLUSTER, file_size=5_000)
    for payload in written:
        store(log, [payload])
    assert read(log) == given_by_pump
    kill(log)
    log = PumpLog(tmp_path, CLUSTER)
    assert log.status.files > 3
    assert (stored(log), read(log)) == (written, given_by_pump)
    half = len(given_by_pump) // 2
    assert read(log, commits(given_by_pump)[half - 1]) == given_by_pump[half:]
    kill(log)


@given(st.data())
@settings(max_examples=times(30, 2000), deadline=None)
def test_a_file_cut_at_any_byte_has_what_was_whole_and_goes_on(data: st.DataObject) -> None:
    payloads = data.draw(two_phase_commits())
    folder = Path(tempfile.mkdtemp(dir="/dev/shm"))  # nothing is lost with a process that is not synced
    try:
        log = PumpLog(folder, CLUSTER, file_size=SMALL)
        store(log, payloads)
        last, status = log._segments[-1], log.status
        kill(log)
        whole = last.place + _damage(data, last.path, HEAD.size, last.size) - len(b"".join(frame(commit(999, 999))))
        known = itertools.takewhile(lambda it: it.commit <= whole, _entries(last.index))  # others were never written
        _damage(data, last.index, 0, len(list(known)) * ENTRY.size)
        log = PumpLog(folder, CLUSTER, file_size=SMALL)
        kept = stored(log)
        assert kept == payloads[: len(kept)]
        assert log.status.files >= status.files - 1
        assert read(log) == expected(kept)
        store(log, payloads[len(kept) :])
        assert (stored(log), read(log)) == (payloads, expected(payloads))
        kill(log)
    finally:
        shutil.rmtree(folder)


def _entries(index: Path) -> list[Transaction]:
    data = index.read_bytes()
    return [Transaction(*ENTRY.unpack_from(data, at)[:4]) for at in range(0, len(data), ENTRY.size)]


def _damage(data: st.DataObject, path: Path, least: int, size: int) -> int:
    """Leave a part of a file, and after it what a crash may leave there; return the bytes of that part."""
    left = data.draw(st.integers(least, size))
    os.truncate(path, left)
    with path.open("ab") as file:
        file.write(data.draw(st.sampled_from([b"", bytes(5), bytes(100), b"\xff" * 30])))
    return left


@st.composite
def two_phase_commits(draw: st.DrawFn) -> list[bytes]:
    """Messages of TiDBs: a commit_ts is drawn after the Prewrite has arrived, the Commit comes any time later."""
    ts, ready, waiting, found = 0, list[int](), list[bytes](), list[bytes]()
    for step in draw(
        st.lists(st.sampled_from(["begin", "commit", "send", "rollback", "beat"]), min_size=5, max_size=60)
    ):
        ts += draw(st.integers(1, 3))
        if step == "begin":
            found.append(prewrite(ts, draw(st.sampled_from([0, 10, 200]))))
            ready.append(ts)
        elif step in {"commit", "rollback"} and ready:
            start = ready.pop(draw(st.integers(0, len(ready) - 1)))
            waiting.append(commit(start, ts) if step == "commit" else rollback(start))
        elif step == "send" and waiting:
            found.append(waiting.pop(draw(st.integers(0, len(waiting) - 1))))
        elif step == "beat":
            found.append(heartbeat(ts))
    return found


def test_a_file_that_was_being_made_is_made_again(tmp_path: Path) -> None:
    log = PumpLog(tmp_path, CLUSTER, file_size=1)
    store(log, transactions(10))
    kill(log)
    last = max(tmp_path.glob("*.pump"))
    for size in range(HEAD.size):
        os.truncate(last, size)
        log = PumpLog(tmp_path, CLUSTER, file_size=1)
        store(log, [commit(9, 10)])
        assert (stored(log), max(tmp_path.glob("*.pump"))) == (transactions(10), last)
        kill(log)
        os.truncate(last, HEAD.size)


@pytest.mark.parametrize("what", ["removed", "cut", "damaged"])
def test_an_index_is_made_again(tmp_path: Path, what: str) -> None:
    log = PumpLog(tmp_path, CLUSTER, file_size=SMALL)
    store(log, [prewrite(1), *transactions(*range(10, 400, 10)), commit(1, 500)])
    kill(log)
    for index in tmp_path.glob("*.index"):
        if what == "removed":
            index.unlink()
        elif what == "cut":
            os.truncate(index, max(index.stat().st_size - 1, 0))
        elif data := index.read_bytes():
            index.write_bytes(data[:-10] + bytes(10))
    log = PumpLog(tmp_path, CLUSTER, file_size=SMALL)
    assert commits(read(log)) == [*range(10, 400, 10), 500]
    kill(log)


def test_damage_of_what_was_answered_is_never_cut_off_without_a_word(tmp_path: Path) -> None:
    log = PumpLog(tmp_path, CLUSTER)
    store(log, transactions(*range(10, 200, 10)))
    kill(log)
    (path,) = tmp_path.glob("*.pump")
    whole = path.read_bytes()
    data = bytearray(whole)
    data[HEAD.size + 100] ^= 1
    path.write_bytes(data)
    with pytest.raises(DamagedLogError, match=r"is damaged: its checksum is wrong, and TiDB was told that it, or what"):
        PumpLog(tmp_path, CLUSTER)
    assert path.read_bytes() == bytes(data)
    path.write_bytes(whole)
    log = PumpLog(tmp_path, CLUSTER)
    assert commits(read(log)) == list(range(10, 200, 10))
    kill(log)
    path.write_bytes(data)
    path.with_suffix(".index").unlink()  # as the error says
    log = PumpLog(tmp_path, CLUSTER)
    assert stored(log) == transactions(*range(10, 200, 10))[: len(stored(log))]
    kill(log)


def test_a_damaged_record_is_named_and_never_given(tmp_path: Path) -> None:
    log = PumpLog(tmp_path, CLUSTER, file_size=SMALL)
    store(log, transactions(*range(10, 200, 10)))
    kill(log)
    first = min(tmp_path.glob("*.pump"))
    data = bytearray(first.read_bytes())
    data[-1] ^= 1
    first.write_bytes(data)
    log = PumpLog(tmp_path, CLUSTER, file_size=SMALL)
    with pytest.raises(LogError, match=f"of {first} is damaged"):
        read(log)
    kill(log)


def test_a_missing_file_and_another_cluster_are_named(tmp_path: Path) -> None:
    log = PumpLog(tmp_path, CLUSTER, file_size=SMALL)
    store(log, transactions(*range(10, 200, 10)))
    with pytest.raises(LogError, match="another process uses the pump's log"):
        PumpLog(tmp_path, CLUSTER)
    kill(log)
    with pytest.raises(LogError, match=r"belongs to the cluster 7, and sluice\.pump\.clusterId is 8"):
        PumpLog(tmp_path, 8)
    sorted(tmp_path.glob("*.pump"))[1].unlink()
    with pytest.raises(LogError, match="has a gap"):
        PumpLog(tmp_path, CLUSTER)


async def test_one_sync_stores_all_that_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    syncs, real = list[int](), os.fdatasync

    def sync(fd: int) -> None:
        syncs.append(fd)
        real(fd)

    monkeypatch.setattr(os, "fdatasync", sync)
    async with opened(tmp_path) as log:
        await asyncio.gather(*(log.append(prewrite(ts)) for ts in range(1, 101)))
        assert len(stored(log)) == 100
    assert len(syncs) <= 2


async def test_garbage_is_refused_and_its_neighbours_are_stored(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        found = await asyncio.gather(*map(log.append, [prewrite(1), b"\xff", commit(1, 2)]), return_exceptions=True)
        assert [type(it) for it in found] == [type(None), DecodeError, type(None)]
        assert commits(read(log)) == [2]


async def test_a_reader_follows_and_a_caller_that_leaves_holds_nobody(tmp_path: Path) -> None:
    async with opened(tmp_path, file_size=SMALL) as log, aclosing(log.read(0)) as stream:
        first = asyncio.ensure_future(anext(stream))
        leaving = asyncio.ensure_future(log.append(prewrite(1)))
        await asyncio.sleep(0)
        leaving.cancel()
        with suppress(asyncio.CancelledError):
            await leaving
        for payload in [*transactions(20, 30, 40, 50), commit(1, 60)]:
            await log.append(payload)
        assert [(await first).commit_ts, *[(await anext(stream)).commit_ts for _ in range(4)]] == [20, 30, 40, 50, 60]


async def test_what_was_collected_is_refused_and_all_later_ones_stay(tmp_path: Path) -> None:
    written = range(10, 400, 10)
    async with opened(tmp_path, file_size=SMALL) as log:
        store(log, transactions(*written))
        before = log.status
        await log.collect(200)
        assert log.status.bytes < before.bytes
        assert 0 < log.collected <= 200
        assert commits(read(log, log.collected)) == [ts for ts in written if ts > log.collected]
        with pytest.raises(CollectedError, match=f"what committed until {log.collected} is not kept any more"):
            await anext(log.read(log.collected - 1))
        collected = log.collected
    async with opened(tmp_path, file_size=SMALL) as log:
        assert log.collected == collected
        assert commits(read(log, collected)) == [ts for ts in written if ts > collected]


async def test_a_reader_whose_files_are_collected_is_told(tmp_path: Path) -> None:
    async with opened(tmp_path, file_size=SMALL) as log:
        store(log, transactions(*range(10, 2000, 10)))
        async with aclosing(log.read(0)) as stream:
            assert (await anext(stream)).commit_ts == 10
            await log.collect(1500)
            with pytest.raises(CollectedError):
                async for _ in stream:
                    pass


async def test_an_open_prewrite_is_kept_and_asked_for(tmp_path: Path) -> None:
    minute = 60_000 << 18
    async with opened(tmp_path, file_size=SMALL) as log:
        store(log, [prewrite(5), *transactions(*range(10, 400, 10))])
        await log.collect(1 << 62)
        assert (log.status.open, log.collected) == (1, 0)
        assert await log.due(9 * minute) == []
        assert await log.due(11 * minute) == [(5, prewrite(5))]
        await log.append(rollback(5))
        assert commits(read(log)) == list(range(10, 400, 10))
        store(log, transactions(*range(500, 900, 10)))
        await log.collect(800)
        assert 390 <= log.collected <= 800
        assert commits(read(log, log.collected)) == list(range(max(log.collected + 10, 500), 900, 10))


async def test_prewrites_are_refused_below_what_has_to_stay_free_and_ends_are_not(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        await log.append(prewrite(1))
    async with opened(tmp_path, stop_at=1 << 60) as log:
        with pytest.raises(RefusedWriteError, match=r"bytes are free .* sluice\.pump\.stopWriteAt"):
            await log.append(prewrite(2))
        await log.append(commit(1, 3))
        assert commits(read(log)) == [3]


async def test_when_too_much_waits_no_prewrite_is_taken_until_the_first_one_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pairing, "WAITING", 1)
    async with opened(tmp_path) as log:
        store(log, [prewrite(1), prewrite(2), commit(2, 3)])
        with pytest.raises(RefusedWriteError, match="1 transactions wait for the end of the one with start_ts 1"):
            await log.append(prewrite(4))
        assert await log.due(0) == []
        await log.append(rollback(1))
        await log.append(prewrite(4))


async def test_what_there_is_no_room_for_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        store(log, transactions(10))
        size, limits = log._segments[-1].size, resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, limits[1]))
        try:
            with pytest.raises(RefusedWriteError, match="the pump cannot write to"):
                await log.append(prewrite(20, 1000))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert log._segments[-1].path.stat().st_size == size
        await log.append(prewrite(20, 1000))
        assert stored(log)[-1] == prewrite(20, 1000)


async def test_after_a_failed_sync_nothing_is_taken_until_the_log_is_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as log:
        await log.append(prewrite(1))
        with monkeypatch.context() as broken:
            broken.setattr(os, "fdatasync", _fail)
            with pytest.raises(RefusedWriteError, match="until it is started anew"):
                await log.append(commit(1, 2))
        with pytest.raises(RefusedWriteError, match="until it is started anew"):
            await log.append(commit(1, 2))
        assert "the disk is broken" in log.status.failure
        assert (read(log), log.status.released) == ([], 0), "what may not be on the disk is not given"
    async with opened(tmp_path) as log:
        await log.append(commit(1, 2))
        assert commits(read(log)) == [2]


def _fail(_fd: int) -> None:
    raise OSError("the disk is broken")


async def test_what_an_index_has_no_room_for_comes_when_it_has(tmp_path: Path) -> None:
    async with opened(tmp_path, file_size=SMALL) as log:
        store(log, transactions(10, 20))
        assert log._fds is not None
        fds = log._fds
        log._fds = fds[0], os.open(log._segments[-1].index, os.O_RDONLY)
        store(log, transactions(*range(30, 300, 10)))
        assert commits(read(log)) == [10, 20]
        assert log.status.files == 1, "a file is left when its index is whole"
        os.close(log._fds[1])
        log._fds = fds
        store(log, transactions(*range(300, 400, 10)))
        assert commits(read(log)) == list(range(10, 400, 10))
        assert log.status.files > 1
