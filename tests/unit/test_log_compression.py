"""Compressed files of the log: they give what the files gave that they replace, and nothing else, at any moment."""

import os
import random
import shutil
import struct
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.instance.config import InstanceConfig
from sluice.instance.verification import Comparison, LogReport
from sluice.store.log import compression
from sluice.store.log import log as log_module
from sluice.store.log.errors import LogError
from sluice.store.log.files import HEADER, EntriesReader, frame, read_block
from sluice.store.log.log import Limits, Log, stored_files, take
from sluice.store.log.slots import crc32
from sluice.store.log.zstd import compress, decompress
from sluice.store.ring import Kind
from tests.effort import times
from tests.unit.test_log import SHAPE, Source, entries, opened

LAST = 60


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def full(source: Source, tmp_path: Path) -> Path:
    """The folder of a log of several files, whose rows are worth compressing."""
    folder = tmp_path / "shop" / "log"
    folder.mkdir(parents=True)
    with opened(folder, file_size=30_000) as log:
        log.begin(source.place(1), "", SHAPE)
        for _ in range(LAST):
            source.stage(b"row" * 1000 + b"%d" % source.number, Kind.ROW_DATA, 0, ends=True)
            source.number += 1
        source.ring.put(source.staging)
        log.append([take(source.track, it, it + 1) for it in range(LAST)])
    return folder


def rows(first: int) -> bytes:
    return b"".join(b"row" * 1000 + b"%d" % number for number in range(first, LAST + 1))


def compress_all(log: Log) -> int:
    """Compress what can be, and return how many files."""
    return sum(1 for _ in iter(log.compress, False))


def names(folder: Path) -> list[str]:
    return sorted(it.name for it in folder.iterdir())


# --- what they give --------------------------------------------------------------------------------------------------


def test_they_give_the_same_from_any_place_also_after_a_restart(full: Path, source: Source) -> None:
    before = sorted(full.glob("*.log"))
    os.utime(before[0], (1_000_000_000, 1_000_000_000))
    with opened(full) as log:
        held = log.extent
        assert compress_all(log) == len(before) - 1 > 3, "all but the last one"
        assert log.extent.bytes < held.bytes // 4
        assert log.extent.stretches == held.stretches
        for number in (1, 2, 30, 59, 60):
            assert entries(log, source.place(number)) == rows(number)
    with opened(full) as log:
        assert not log.compress()
        assert log.extent.files[0].written == 1_000_000_000, "by which retention counts"
        for number in (1, 2, 30, 59, 60):
            assert entries(log, source.place(number)) == rows(number)
        assert log.extent.stretches == held.stretches
    assert {it.stat().st_mode & 0o777 for it in full.iterdir()} == {0o600}
    logs = [*(f"{it.stem}.zst.log" for it in before[:-1]), before[-1].name]
    assert names(full) == sorted([*logs, *(f"{it[:-4]}.index" for it in logs), "lock"])


def test_the_log_goes_on_after_them(full: Path, source: Source) -> None:
    with opened(full, file_size=30_000) as log:
        compress_all(log)
        assert log.end == source.place(LAST + 1)
        log.begin(source.place(LAST + 1), None, SHAPE)
        source.put(30)
        log.append(source.pieces(LAST))
        assert entries(log, source.place(LAST)).startswith(rows(LAST) + b"begin")
        assert len(log.extent.stretches) == 1


def test_what_was_read_of_a_source_after_it_was_left_is_cut_off(full: Path, source: Source) -> None:
    with opened(full, file_size=30_000) as log:
        compress_all(log)
    with Log(full, "shop", Limits(), file_size=30_000, until=source.place(15)) as log:
        assert log.end == source.place(15), "in a compressed file"
        log.begin(source.place(15), None, SHAPE)
        log.append([take(source.track, it, it + 1) for it in range(14, LAST)])
        assert len(log.extent.stretches) == 1
        assert compress_all(log)
    with opened(full) as log:
        for number in (1, 14, 15, 16, LAST):
            assert entries(log, source.place(number)) == rows(number)


def test_an_index_that_is_lost_is_made_again(full: Path, source: Source) -> None:
    with opened(full) as log:
        compress_all(log)
    for path in full.glob("*.index"):
        path.unlink()
    with opened(full) as log:
        for number in (1, 2, 30, 59, 60):
            assert entries(log, source.place(number)) == rows(number)
    assert {it.stat().st_mode & 0o777 for it in full.iterdir()} == {0o600}


def test_blocks_that_would_not_become_shorter_and_very_long_ones_stay_as_they_are(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compression, "LONGEST_COMPRESSED", 4000)
    content = [random.Random(7).randbytes(3000), b"x" * 4001, b"x" * 4000]
    with opened(tmp_path, file_size=1000) as log:
        log.begin(source.place(1), None, SHAPE)
        for it in content:
            source.stage(it, Kind.ROW_DATA, 0, ends=True)
            source.number += 1
        source.ring.put(source.staging)
        log.append([take(source.track, it, it + 1) for it in range(3)])
        log.begin(source.place(4), None, {})
        assert compress_all(log) == 3
        found = []
        for file in stored_files(tmp_path)[:3]:
            fd = os.open(file.path, os.O_RDONLY)
            block = read_block(fd, file.first, file.path)
            os.close(fd)
            assert block is not None
            found.append((block.size, block.stored < block.size))
        assert found == [(3000, False), (4001, False), (4000, True)]
        assert entries(log, source.place(1)) == b"".join(content)


def test_old_ones_are_taken_away_as_other_files_are(full: Path) -> None:
    with opened(full) as log:
        compress_all(log)
        would_go = log.surplus(0)
        assert len(would_go) > 3
        assert log.prune(0) == would_go
        assert names(full) == ["00000000000000000007.index", "00000000000000000007.log", "lock"]


# --- while a file is compressed --------------------------------------------------------------------------------------


def test_who_has_opened_a_file_goes_on_reading_it(full: Path, source: Source) -> None:
    with opened(full) as log:
        file, offset = log.find(source.place(3)) or (None, 0)
        assert file is not None
        fd = os.open(file.path, os.O_RDONLY)
        assert log.compress()
        block = read_block(fd, offset, file.path)
        assert block is not None
        with EntriesReader().read(fd, block, file.path) as found:
            assert found == rows(3)[: len(found)]
        os.close(fd)
        assert log.has_more(file, offset, 0.0) is True
        assert log.has_more(file, file.size, 0.0) is None
        following = log.after(file)
        assert following is not None
        assert following.number == file.number + 1
        assert entries(log, source.place(3)) == rows(3)


def test_a_place_is_found_though_its_file_is_replaced_meanwhile(
    full: Path, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_bytes = Path.read_bytes

    def compress_and_read(path: Path) -> bytes:
        monkeypatch.undo()
        compress_all(log)
        return read_bytes(path)

    with opened(full) as log:
        monkeypatch.setattr(Path, "read_bytes", compress_and_read)
        file, _ = log.find(source.place(3)) or (None, 0)
        assert file is not None
        assert file.is_compressed
        min(full.glob("*.log")).unlink()
        with pytest.raises(LogError, match=r"the log cannot be read: .*No such file"):
            log.find(source.place(3))


def test_those_who_read_only_what_is_synced_are_given_all_of_it(full: Path, source: Source) -> None:
    with opened(full, shows_synced=True) as log:
        assert log.compress()
        file, offset = log.find(source.place(3)) or (None, 0)
        assert file is not None
        assert log.has_more(file, offset, 0.0) is True
        assert log.has_more(file, file.size, 0.0) is None


def test_an_unfinished_one_is_none_of_the_log_though_the_file_is_taken_away_meanwhile(
    full: Path, source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "copy"

    def prune_and_copy(data: memoryview) -> bytes:
        if not copy.exists():
            log.prune(100_000)
            shutil.copytree(full, copy)
        return compress(data)

    with opened(full) as log:
        monkeypatch.setattr(compression, "compress", prune_and_copy)
        assert not log.compress()
        assert len(log.extent.files) == 3
    with opened(copy) as log:
        assert len(log.extent.files) == 3
        assert len(names(copy)) == 7
        assert log.end == source.place(LAST + 1)


@pytest.mark.parametrize("before", [False, True])
def test_a_file_that_is_taken_away_meanwhile_does_not_come_back(
    full: Path, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    compress_file = compression.compress_file

    def compress_and_prune(*arguments: Any) -> bool:
        if before:
            log.prune(0)
        done = compress_file(*arguments)
        log.prune(0)
        return done

    with opened(full) as log:
        monkeypatch.setattr(log_module, "compress_file", compress_and_prune)
        assert not log.compress()
        assert len(log.extent.files) == 1
        assert names(full) == ["00000000000000000007.index", "00000000000000000007.log", "lock"]


def test_a_log_that_is_closed_waits_for_one_block_only(full: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(data: memoryview) -> bytes:
        begun.set()
        assert go_on.wait(10)
        return compress(data)

    before = {it.name: it.read_bytes() for it in full.iterdir()}
    log = opened(full)
    monkeypatch.setattr(compression, "compress", slow)
    done: list[bool] = []
    compressing = threading.Thread(target=lambda: done.append(log.compress()))
    compressing.start()
    assert begun.wait(10)
    closing = threading.Thread(target=log.close)
    closing.start()
    closing.join(0.1)
    assert closing.is_alive(), "nobody else may open the log yet"
    go_on.set()
    closing.join(10)
    compressing.join(10)
    assert done == [False]
    assert not log.compress()
    assert {it.name: it.read_bytes() for it in full.iterdir()} == before


def test_after_a_crash_at_any_moment_the_old_file_is_there_or_the_new_one(
    full: Path, source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies: list[Path] = []
    real = {name: getattr(os, name) for name in ("pwritev", "fsync", "rename", "unlink", "utime")}

    def copying(name: str) -> Callable[..., Any]:
        def copy_and_call(*arguments: Any, **options: Any) -> Any:
            copies.append(tmp_path / f"copy{len(copies)}")
            subprocess.run(["cp", "-r", full, copies[-1]], check=True)
            return real[name](*arguments, **options)

        return copy_and_call

    with opened(full) as log:
        with monkeypatch.context() as context:
            for name in real:
                context.setattr(os, name, copying(name))
            assert log.compress()
        assert len(copies) > 12
        kept = set()
        for copy in copies:
            listed = stored_files(copy)
            assert [it.number for it in listed] == list(range(1, 8)), "as another process sees it"
            with opened(copy) as other:
                kept.add(other.extent.files[0].name)
                assert other.extent.stretches == log.extent.stretches
                assert entries(other, source.place(1)) == rows(1)
                assert len(names(copy)) == 15, "nothing is left of the other one"
        assert kept == {"00000000000000000001.log", "00000000000000000001.zst.log"}


def test_a_file_that_is_replaced_while_the_log_is_compared_is_compared(full: Path, source: Source) -> None:
    file = stored_files(full)[0]
    with opened(full) as log:
        assert log.compress()
        for taken, unread in ((False, {}), (True, {f"file that the log has deleted meanwhile: {file.path.name}": 1})):
            if taken:
                log.prune(0)
            report = LogReport("", "")
            nothing: Any = None
            limits = source.place(LAST), None
            assert not list(Comparison(InstanceConfig(destination="shop"), nothing, file, report, limits).run())
            assert {it.replace(".zst", ""): count for it, count in report.unread.items()} == unread
            assert not report.differences


# --- what is wrong ---------------------------------------------------------------------------------------------------


def test_a_damaged_file_is_named_once_and_the_others_are_compressed(full: Path) -> None:
    path = min(full.glob("*.log"))
    with path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"?")
    content = path.read_bytes()
    with opened(full) as log:
        with pytest.raises(LogError, match=rf"the block at byte \d+ of {path} is damaged"):
            log.compress()
        assert compress_all(log) == 5
    assert path.read_bytes() == content
    assert not path.with_suffix(".zst.log").exists()


def test_what_cannot_be_written_is_tried_again(full: Path, source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(fd: int) -> None:
        raise OSError(28, "No space left on device")

    before = names(full)
    with opened(full) as log:
        with monkeypatch.context() as context:
            context.setattr(os, "fsync", refuse)
            with pytest.raises(OSError, match="No space left"):
                log.compress()
        assert names(full) == before
        assert entries(log, source.place(1)) == rows(1)
        assert compress_all(log) == 6


def test_nothing_is_compressed_without_room_for_a_copy(full: Path) -> None:
    with Log(full, "shop", Limits(free=1 << 60)) as log:
        assert not log.compress()


def read(content: bytes) -> bytes | None:
    """The entries of the block that a file consists of; None without any."""
    fd = os.memfd_create("block")
    try:
        os.write(fd, content)
        block = read_block(fd, 0, Path("x.log"))
        if block is None:
            return None
        with EntriesReader().read(fd, block, Path("x.log")) as found:
            return bytes(found)
    finally:
        os.close(fd)


@given(st.data())
@settings(max_examples=times(40, 200), deadline=None)
def test_a_compressed_block_that_was_changed_is_refused_by_its_place(data: st.DataObject) -> None:
    entry = data.draw(st.binary(min_size=20, max_size=2000)) * 3
    content = bytearray(b"".join(frame(b"{}", b"slots", 1, [memoryview(entry)], compress(entry))))
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    content = content[: data.draw(st.integers(0, len(content)))]
    try:
        assert read(bytes(content)) in (entry, None), "some changes do not matter"
    except LogError as error:
        assert "the block at byte 0 of x.log is damaged" in str(error)  # noqa: PT017  not each change is one


def bomb(said: int, compressed: bytes) -> bytes:
    """A block whose checksums are right, and which announces `said` bytes of entries."""
    head = HEADER.pack(b"SLZ1", 2, 0, 1, said, 0, 0)[: HEADER.size - 4]
    length = struct.pack("<Q", len(compressed))
    return head + struct.pack("<I", crc32(b"{}", crc32(length, crc32(head)))) + length + b"{}" + compressed


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        (100_000, "it cannot be decompressed: Destination buffer is too small"),
        (1 << 50, r"\d+ bytes cannot be 1125899906842624 bytes that were compressed"),
        (0, r"\d+ bytes cannot be 0 bytes that were compressed"),
        (100 << 20, r"\d+ bytes cannot be 104857600 bytes that were compressed"),
    ],
)
def test_a_frame_that_would_become_more_than_its_block_may_have_takes_no_memory(said: int, problem: str) -> None:
    with pytest.raises(LogError, match=f"the block at byte 0 of x.log is damaged: {problem}"):
        read(bomb(said, compress(bytes(100 << 20))))


def test_a_block_that_is_longer_than_its_file_takes_no_memory() -> None:
    start = HEADER.pack(b"SLB1", 2, 0, 1, 1 << 50, 0, 0)[: HEADER.size - 4]
    content = start + struct.pack("<I", crc32(b"{}", crc32(start))) + b"{}entries"
    for short in (content, bomb(1000, b"0123456789")[:-1]):
        with pytest.raises(LogError, match=r"damaged: it is cut off"):
            read(short)


@pytest.mark.parametrize("size", [9, 11])
def test_a_frame_has_to_give_exactly_the_bytes_that_were_compressed(size: int) -> None:
    with pytest.raises(ValueError, match=r"decompressed|10 come back"):
        decompress(compress(b"0123456789"), bytearray(size))
