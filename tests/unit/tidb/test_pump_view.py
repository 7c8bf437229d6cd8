"""A pump's log as others see it who do not have its lock: while it is written, and when it is not."""

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice.instance.pump.files import HEAD, read_head
from sluice.instance.pump.log import PumpLog
from sluice.instance.pump.reader import Reader
from sluice.instance.pump.view import LogView
from sluice.store.log.errors import LogError
from tests.effort import times
from tests.unit.tidb.test_pump_log import CLUSTER, SMALL, commits, prewrite, store, transactions


@pytest.fixture
def log(tmp_path: Path) -> Iterator[PumpLog]:
    made = PumpLog(tmp_path, CLUSTER, file_size=SMALL)
    yield made
    made._release()


def seen(reader: Reader) -> list[int]:
    """What a reader finds up to the end, by commit_ts."""
    found = list[bytes]()
    while batch := reader.next():
        found += [it.payload for it in batch]
    return commits(found)


def test_all_comes_once_in_order_while_another_thread_writes_and_begins_files(tmp_path: Path, log: PumpLog) -> None:
    last = times(300, 3000)
    view = LogView(tmp_path, CLUSTER)
    reader, found = Reader(view.segments, 0), list[int]()
    writer = threading.Thread(target=store, args=(log, transactions(*range(2, 2 * last + 1, 2))))
    writer.start()
    while writer.is_alive():
        found += seen(reader)
    found += seen(reader)
    reader.close()
    assert found == list(range(2, 2 * last + 1, 2))
    assert log.status.files > 10
    assert (view.released, view.collected) == (2 * last, 0)


def test_what_is_not_released_is_not_seen_and_stays_readable_from_an_earlier_file(tmp_path: Path, log: PumpLog) -> None:
    store(log, [prewrite(1), *transactions(20, 30, 40)])
    reader = Reader(LogView(tmp_path, CLUSTER).segments, 0)
    assert seen(reader) == []
    store(log, transactions(50)[:1])
    store(log, transactions(2)[1:])
    assert seen(reader) == [2, 20, 30, 40]
    reader.close()


def test_a_file_that_is_being_begun_is_not_looked_at_yet(tmp_path: Path, log: PumpLog) -> None:
    store(log, transactions(10))
    view = LogView(tmp_path, CLUSTER)
    reader = Reader(view.segments, 0)
    assert seen(reader) == [10]
    (last,) = sorted(tmp_path.glob("*.pump"))
    beginning = tmp_path / f"{last.stat().st_size:020d}.pump"
    for size in (0, HEAD.size - 1):
        beginning.write_bytes(bytes(size))
        assert seen(reader) == []
        assert view.released == 10
    beginning.unlink()
    store(log, transactions(20, 30))
    assert seen(reader) == [20, 30]
    reader.close()


def test_it_says_from_where_on_all_is_kept(tmp_path: Path, log: PumpLog) -> None:
    store(log, transactions(*range(10, 400, 10)))
    view = LogView(tmp_path, CLUSTER)
    assert view.collected == 0
    log._collect(200)
    assert view.collected == log.collected > 10
    reader = Reader(view.segments, view.collected)
    assert seen(reader) == list(range(view.collected + 10, 400, 10))
    reader.close()


def test_a_log_of_another_cluster_and_an_empty_folder_are_refused(tmp_path: Path, log: PumpLog) -> None:
    with pytest.raises(LogError, match=rf"belongs to the cluster {CLUSTER}, and sluice\.pump\.clusterId is 8"):
        LogView(tmp_path, 8).segments()
    assert read_head(next(tmp_path.glob("*.pump"))).cluster_id == CLUSTER
    (tmp_path / "none").mkdir()
    with pytest.raises(LogError, match="no pump has written into"):
        LogView(tmp_path / "none", CLUSTER).segments()


def test_a_copy_of_a_log_can_be_read_without_a_pump(tmp_path: Path, log: PumpLog) -> None:
    store(log, transactions(*range(10, 100, 10)))
    shutil.copytree(tmp_path, tmp_path / "copy", ignore=shutil.ignore_patterns("lock", "copy"))
    reader = Reader(LogView(tmp_path / "copy", CLUSTER).segments, 40)
    assert seen(reader) == [50, 60, 70, 80, 90]
    reader.close()
