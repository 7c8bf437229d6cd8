"""Files of an output: whatever ends the process, and whoever goes on, each change is in them once."""

import contextlib
import errno
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from sluice.protocol.errors import ConfigError
from sluice.server.conformance.changes import batch, number_at, place_after
from sluice.server.outputs.file.checks import complaints
from sluice.server.outputs.file.settings import FileSettings
from sluice.server.outputs.file.target import FileTarget
from sluice.server.outputs.settings import Output
from sluice.server.outputs.target import DeliveryError, Place, RejectedError
from tests.effort import THOROUGH

ROWS = 8
"""Rows of a batch, of about 40 KiB: two of them fill a file."""
SIZE = 5000
ALL = 12 * ROWS


class Killed(BaseException):
    """The process ended."""


def target(folder: Path, name: str = "copy", **settings: Any) -> FileTarget:
    known = FileSettings(client_id=1002, folder=folder, **{"file_bytes": 1 << 16} | settings)
    return FileTarget(Output("shop", name, known, shared=True), known)


def run(found: FileTarget, epoch: int, memory: str = "", moved: str = "", stop: int = ALL) -> str:
    """Deliver from the place on, as a delivery does; return what is to be remembered."""
    place = found.open(memory, moved, epoch)
    number = 0 if place is None else number_at(place)
    while number < stop:
        number += deliver(found, number)
    return found.memory_after(found.prepare(batch(0, 1)))


def deliver(found: FileTarget, first: int) -> int:
    found.send([found.prepare(batch(first, ROWS, SIZE))], place_after(first + ROWS))
    return ROWS


def whole(folder: Path) -> Iterator[Path]:
    """The whole files, in their order."""
    for index in sorted(folder.glob("*.index")):
        yield folder / json.loads(index.read_text())["file"]


def numbers(folder: Path, *, with_part: bool = True) -> list[int]:
    """The numbers of the rows in all files, and of those that count in the part."""
    data = b"".join(map(read, whole(folder)))
    if with_part:
        (place,) = folder.glob(".sluice/place-*")
        part = json.loads(place.read_text())["part"]
        if part["size"]:
            data += (folder / f".sluice/{part['number']:010}-{part['epoch']}.part").read_bytes()[: part["size"]]
    return [int(row["id"]) for line in data.splitlines() for row in json.loads(line)["data"]]


def read(path: Path) -> bytes:
    if path.suffix != ".zst":
        return path.read_bytes()
    return subprocess.run(["zstd", "-dc", path], capture_output=True, check=True).stdout


class Steps:
    """Counts what is done to files, and kills the process at one step, before it is done or in its midst."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.count = self.at = 0
        patch.setattr(os, "fsync", self._counted(lambda _: None))  # it takes long, and is for the loss of power
        for name in ("ftruncate", "open"):
            patch.setattr(os, name, self._counted(getattr(os, name)))
        for name in ("replace", "unlink"):
            patch.setattr(Path, name, self._counted(getattr(Path, name)))
        pwrite = os.pwrite
        patch.setattr(os, "pwrite", self._counted(pwrite, lambda fd, data, at: pwrite(fd, data[: len(data) // 2], at)))

    def _counted(self, call: Any, before: Any = lambda *_: None) -> Any:
        def counted(*arguments: Any, **more: Any) -> Any:
            self.count += 1
            if self.count == self.at:
                before(*arguments)
                raise Killed
            return call(*arguments, **more)

        return counted


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_a_kill_at_any_step_leaves_no_gap_and_no_double(
    compression: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = Steps(monkeypatch)
    settings = {"compression": compression}
    stop = 5 * ROWS
    run(target(tmp_path / "whole", **settings), 1, stop=stop)
    count = steps.count
    assert count > 50
    for killed in range(0, count, 1 if THOROUGH else 7):
        folder = tmp_path / str(killed)
        steps.count, steps.at = 0, killed + 1
        with contextlib.suppress(Killed):
            run(target(folder, **settings), 1, stop=stop)
        steps.at = steps.count + 15 + killed % 7  # its successor, too
        with contextlib.suppress(Killed):
            run(target(folder, **settings), 2, stop=stop)
        steps.at = 0
        run(target(folder, **settings), 3, stop=stop)
        assert numbers(folder) == list(range(stop)), f"killed at step {killed + 1}"
        assert not list(folder.glob(".sluice/*.tmp"))
        shutil.rmtree(folder)


def test_a_former_owner_adds_nothing(tmp_path: Path) -> None:
    former, owner = target(tmp_path), target(tmp_path)
    former.open("", "", 1)
    deliver(former, 0)
    memory = run(owner, 2, stop=2 * ROWS)
    with pytest.raises(DeliveryError, match="was taken over in epoch 2, and this server is in 1"):
        deliver(former, ROWS)
    with pytest.raises(RejectedError, match="from epoch 2, and this server is in epoch 1: another server has the"):
        former.open("", "", 1)
    owner.close()
    run(target(tmp_path), 3, memory)
    assert numbers(tmp_path) == list(range(ALL))


def test_what_a_paused_owner_still_writes_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    former, owner = target(tmp_path), target(tmp_path)
    former.open("", "", 1)
    deliver(former, 0)
    run(owner, 2, stop=2 * ROWS)
    monkeypatch.setattr(former._folder, "_check_owner", lambda: None)  # it was paused right behind it
    with pytest.raises(DeliveryError, match=r"0000000001-1.part"):  # it is full, and the owner has removed it
        deliver(former, ROWS)
    owner.close()
    run(target(tmp_path), 3)
    assert numbers(tmp_path) == list(range(ALL))


def test_an_owner_that_was_paused_behind_a_whole_file_makes_no_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    former, owner = target(tmp_path), target(tmp_path)
    former.open("", "", 1)
    deliver(former, 0)
    make_whole = former._folder._storage.make_whole

    def pause_behind(*arguments: Any) -> None:
        make_whole(*arguments)
        run(owner, 2, stop=ROWS)

    monkeypatch.setattr(former._folder._storage, "make_whole", pause_behind)
    with pytest.raises(DeliveryError, match="was taken over in epoch 2"):
        deliver(former, ROWS)
    assert not list(whole(tmp_path))
    owner.close()
    run(target(tmp_path), 3)
    assert numbers(tmp_path) == list(range(ALL))


def test_an_index_of_a_paused_owner_is_removed_with_the_next_whole_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    former, owner = target(tmp_path), target(tmp_path)
    former.open("", "", 1)
    deliver(former, 0)
    replace = former._folder._storage.replace

    def pause_before(name: str, text: str) -> None:
        if name.endswith(".index"):
            run(owner, 2, stop=ROWS)
        replace(name, text)

    monkeypatch.setattr(former._folder._storage, "replace", pause_before)
    with contextlib.suppress(DeliveryError):
        deliver(former, ROWS)
    assert [it.name for it in tmp_path.glob("*.index")] == ["0000000001-1.index"]
    deliver(owner, 2 * ROWS)
    assert [it.name for it in tmp_path.glob("*.index")] == ["0000000001-2.index"]
    owner.close()
    run(target(tmp_path), 3)
    assert numbers(tmp_path) == list(range(ALL))


def test_a_moved_cursor_begins_a_new_file(tmp_path: Path) -> None:
    first = target(tmp_path)
    run(first, 1, stop=ROWS)
    first.close()
    again = target(tmp_path)
    assert again.open("", "1700000000000-7", 2) is None
    deliver(again, 4 * ROWS)
    indexes = [json.loads(it.read_text()) for it in sorted(tmp_path.glob("*.index"))]
    assert [(it["from"], it["to"], it["rows"]) for it in indexes] == [
        ("conformance/log.1@0:0:0", "conformance/log.1@0:8:0", ROWS)
    ]
    assert numbers(tmp_path) == [*range(ROWS), *range(4 * ROWS, 5 * ROWS)]


def test_the_index_says_what_each_file_has(tmp_path: Path) -> None:
    found = target(tmp_path)
    run(found, 1)
    indexes = [json.loads(it.read_text()) for it in sorted(tmp_path.glob("*.index"))]
    assert indexes[0]["from"] == "conformance/log.1@0:0:0"
    assert [it["from"] for it in indexes[1:]] == [it["to"] for it in indexes[:-1]]
    assert {it["lastTime"] for it in indexes} == {1_700_000_000_000}
    assert [(tmp_path / it["file"]).stat().st_size for it in indexes] == [it["bytes"] for it in indexes]
    assert {it.stat().st_mode & 0o777 for it in tmp_path.glob("*")} == {0o600, 0o700}


def test_a_file_is_whole_after_its_time_although_nothing_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = target(tmp_path, file_seconds=60)
    run(found, 1, stop=ROWS)
    found.idle()
    assert not list(whole(tmp_path))
    now = found._folder.part.begun + 61
    monkeypatch.setattr("time.time", lambda: now)
    found.idle()
    assert numbers(tmp_path, with_part=False) == list(range(ROWS))
    found.idle()
    assert len(list(whole(tmp_path))) == 1


def test_old_files_are_deleted_but_not_the_newest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = target(tmp_path, max_age=1)
    run(found, 1)
    names = [it.name for it in whole(tmp_path)]
    assert len(names) == 6
    now = time.time() + 3700
    monkeypatch.setattr("time.time", lambda: now)
    found.idle()
    assert [it.name for it in whole(tmp_path)] == names[-1:]
    assert not (tmp_path / names[0]).exists()


def test_a_file_whose_deletion_was_interrupted_is_deleted_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = target(tmp_path, max_age=1)
    run(found, 1)
    first, second, *_ = whole(tmp_path)
    first.with_name(f"{first.name.partition('.')[0]}.index").unlink()  # a process that is killed comes so far
    now = time.time() + 120  # before any file is too old
    monkeypatch.setattr("time.time", lambda: now)
    found.idle()
    assert [first.exists(), second.exists()] == [False, True]


def test_a_full_disk_is_waited_for_and_nothing_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = target(tmp_path)
    run(found, 1, stop=ROWS)
    pwrite = os.pwrite

    def full(fd: int, data: Any, offset: int) -> int:
        if offset > SIZE * ROWS + 5000:
            raise OSError(errno.ENOSPC, "No space left on device")
        return pwrite(fd, data[:3000], offset)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(DeliveryError, match=r"cannot be written: .*No space left on device"):
            deliver(found, ROWS)
    found.close()
    run(found, 1)
    assert numbers(tmp_path) == list(range(ALL))


def test_a_folder_of_another_output_is_refused(tmp_path: Path) -> None:
    run(target(tmp_path), 1, stop=ROWS)
    with pytest.raises(RejectedError, match=r"is the folder of the output shop/copy: give this one a folder of its"):
        target(tmp_path, "other").open("", "", 1)


def test_of_two_outputs_that_begin_in_one_folder_at_once_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = target(tmp_path), target(tmp_path, "other")
    with monkeypatch.context() as patch:
        patch.setattr(first._folder, "read", lambda: None)  # both have looked before one began
        patch.setattr(second._folder, "read", lambda: None)
        (tmp_path / ".sluice").mkdir()
        first.open("", "", 1)
        with pytest.raises(RejectedError, match=r"is the folder of the output shop/copy: give this one a folder of"):
            second.open("", "", 1)
    first.close()
    run(first, 1)
    assert numbers(tmp_path) == list(range(ALL))


def test_a_folder_that_was_emptied_is_an_error_with_the_next_step(tmp_path: Path) -> None:
    memory = run(target(tmp_path / "files"), 1, stop=ROWS)
    shutil.rmtree(tmp_path / "files")
    with pytest.raises(RejectedError, match=r"its place is gone at .*; say where it goes on with `sluice seek shop 10"):
        target(tmp_path / "files").open(memory, "", 2)


@pytest.mark.parametrize("damage", ["{}", "\xff", '{"output": "shop/copy", "kept": "{}", "part": {"number": -1}}'])
def test_a_damaged_place_is_an_error(damage: str, tmp_path: Path) -> None:
    run(target(tmp_path), 1, stop=ROWS)
    (tmp_path / ".sluice/place-1").write_text(damage)
    with pytest.raises(RejectedError, match=r"place-1 is .*: put it back from a backup"):
        target(tmp_path).open("", "", 2)


@pytest.mark.parametrize("epoch", [1, 2])
def test_a_part_that_is_gone_is_an_error(tmp_path: Path, epoch: int) -> None:
    run(target(tmp_path), 1, stop=ROWS)
    next(tmp_path.glob(".sluice/*.part")).unlink()
    with pytest.raises(RejectedError, match=r"part is gone, and with it [0-9]+ bytes that were confirmed"):
        target(tmp_path).open("", "", epoch)


def test_a_part_that_lacks_what_was_confirmed_is_not_filled_with_zeros(tmp_path: Path) -> None:
    run(target(tmp_path), 1, stop=ROWS)
    part = next(tmp_path.glob(".sluice/*.part"))
    os.truncate(part, 100)
    with pytest.raises(DeliveryError, match=r"part has 100 bytes, and \d+ were confirmed"):
        run(target(tmp_path), 1)
    assert part.stat().st_size == 100


def test_an_end_of_the_process_does_not_wait_for_a_large_file(tmp_path: Path) -> None:
    found = target(tmp_path, file_bytes=1 << 30)
    run(found, 1, stop=ROWS)
    found.abandon()
    with pytest.raises(DeliveryError, match="it was stopped"):
        found._folder.finish(found._settings.form)
    found.close()
    run(found, 1)
    assert numbers(tmp_path) == list(range(ALL))


def test_rows_are_in_parquet_whatever_was_cut(tmp_path: Path) -> None:
    found = target(tmp_path, form="parquet", compression="zstd")
    run(found, 1, stop=ROWS)
    with next(tmp_path.glob(".sluice/*.part")).open("ab") as part:
        part.write(b"what a kill has left")
    found.close()
    again = target(tmp_path, form="parquet", compression="zstd")
    run(again, 2)
    again._folder.finish(again._settings.form)
    rows = [it for path in whole(tmp_path) for it in parquet.read_table(path).to_pylist()]
    assert [dict(it["after"])["id"] for it in rows] == [str(number) for number in range(ALL)]
    assert {path.suffix for path in whole(tmp_path)} == {".parquet"}


def test_groups_of_parquet_end_by_the_bytes_of_the_part_whatever_batches_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = target(tmp_path, form="parquet", file_bytes=1 << 30)
    monkeypatch.setattr("sluice.server.outputs.file.forms.GROUP", 1 << 16)
    found.open("", "", 1)
    content, one = found.prepare(batch(0, 1)).content, batch(0, 1)
    for number in range(200):
        found._folder.append([content], found._kept, from_=one.from_, rows=1, last_ms=1, now=number)
    found._folder.finish(found._settings.form)
    (file,) = whole(tmp_path)
    groups = parquet.ParquetFile(file).metadata
    assert groups.num_rows == 200
    assert 200 * len(content) // (1 << 16) >= groups.num_row_groups - 1 > 5


@pytest.mark.parametrize(
    ("settings", "has_transactions", "text"),
    [
        ({"on_refused": "skip"}, True, "onRefused = skip cannot be used with type file"),
        ({"form": "pb", "late": True}, True, "format pb cannot be used with late = true"),
        ({"form": "pb"}, False, r"format pb cannot be used with canal\.instance\.filter\.transaction\.entry"),
    ],
)
def test_settings_that_cannot_be_followed_are_refused(
    settings: dict[str, Any], has_transactions: bool, text: str, tmp_path: Path
) -> None:
    known = FileSettings.model_validate({"client_id": 1, "folder": tmp_path, **settings})
    output = Output("shop", "copy", known, shared=False, has_transactions=has_transactions)
    with pytest.raises(ConfigError, match=text):
        complaints(output)


def test_a_file_ends_at_the_end_of_a_transaction_unless_that_is_huge(tmp_path: Path) -> None:
    found = target(tmp_path)
    found.open("", "", 1)
    sizes = []
    for number in range(0, 5 * ROWS, ROWS):
        place = Place("conformance/log.1@0:0:7" if number < 4 * ROWS else "conformance/log.1@0:8:0", "")
        found.send([found.prepare(batch(number, ROWS, SIZE))], place)
        sizes.append(len(list(whole(tmp_path))))
    assert sizes == [0, 0, 0, 1, 1]
    found.send([found.prepare(batch(5 * ROWS, ROWS, SIZE))], Place("conformance/log.1@0:9:0", ""))
    assert len(list(whole(tmp_path))) == 2


def test_only_the_first_file_does_not_know_what_was_executed_before_it(tmp_path: Path) -> None:
    found = target(tmp_path, form="pb")
    found.open("", "", 1)
    for number in range(4):
        gtids = f"8a94f357-aab4-11df-86ab-c80aa9429562:1-{number + 1}"
        place = Place(place_after((number + 1) * ROWS).position, gtids)
        found.send([found.prepare(batch(number * ROWS, ROWS, SIZE))], place)
    indexes = [json.loads(it.read_text()) for it in sorted(tmp_path.glob("*.index"))]
    assert [(it["gtidsBefore"][-4:], it["gtids"][-4:]) for it in indexes] == [("", ":1-1"), (":1-1", ":1-3")]
