"""What a ring is filled with from the log, and when the source takes over."""

import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sluice.instance.config import InstanceConfig
from sluice.instance.serving.log import LogReader
from sluice.protocol.errors import ReshapedError
from sluice.protocol.gtid import GtidSet
from sluice.protocol.position import Position
from sluice.store.cursor import Cursor
from sluice.store.log.log import File, Log
from sluice.store.ring import Ring
from sluice.store.track import Track
from tests.unit.test_log import SERVER, Source, opened, written
from tests.waiting import eventually

CONFIG = InstanceConfig(destination="shop")
OTHER = "0f0f0f0f-0000-0000-0000-000000000002"


class FromSource:
    """Stands for a parser of the source: it says where it was to begin."""

    failure = None

    def __init__(self) -> None:
        self.started: list[Cursor] = []
        self.ends: list[Position | None] = []
        self.stopped = False
        self.end: Position | None = None
        self.ended = threading.Event()

    def __call__(
        self,
        *_: object,
        start: Cursor,
        on_begin: Callable[[Position | None, GtidSet | None], None],
        stop: Position | None = None,
        **__: object,
    ) -> "FromSource":
        self.began, self.end, self.on_begin = start, stop, on_begin
        return self

    def start(self) -> None:
        self.ends.append(self.end)
        self.started.append(self.began)

    def stop(self) -> None:
        self.stopped = True
        self.ended.set()

    def join(self, timeout: float | None = None) -> None:
        """Wait until the test says that it has come to its end, or stops it."""
        assert self.ended.wait(timeout or 10)


class Scene:
    """A log with what a source has, and readers of it."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.source = Source()
        self.parser = FromSource()
        self.ring = Ring(1024)
        self.track = Track(self.ring)
        log.begin(self.source.place(1), f"{SERVER}:1-1", CONFIG.shape())

    def add(self, transactions: int) -> None:
        before = self.source.ring.next
        self.source.put(transactions)
        self.log.append(self.source.pieces(before))

    def read(self, start: Position) -> LogReader:
        def begin(position: Position | None, _gtids: Any) -> None:
            assert position is not None
            self.track.begin(position)

        make: Any = self.parser
        reader = LogReader(
            self.log, make, CONFIG, self.ring, start=Cursor.at(start), on_begin=begin, on_state=lambda *_: None
        )
        reader.start()
        return reader

    def data(self) -> bytes:
        return b"".join(self.ring.read(self.ring.first, self.ring.next).slices)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    folder = tmp_path / "shop" / "log"
    folder.mkdir(parents=True)
    with opened(folder, file_size=1000) as log:
        yield Scene(log)


def test_the_ring_gets_what_the_log_has_and_what_it_gets(scene: Scene) -> None:
    scene.add(20)
    reader = scene.read(scene.source.place(5))
    eventually(lambda: scene.track.end == scene.source.place(21))
    scene.add(20)
    eventually(lambda: scene.track.end == scene.source.place(41))
    assert scene.data().endswith(written(5, 40))
    assert scene.track.floor is not None
    assert scene.track.floor <= scene.source.place(5)
    assert not scene.parser.started
    reader.stop()
    reader.join(5)


def test_at_a_gap_the_source_goes_on_up_to_where_the_log_does(scene: Scene) -> None:
    scene.add(20)
    scene.log.begin(scene.source.place(30), None, CONFIG.shape())
    reader = scene.read(scene.source.place(1))
    eventually(lambda: scene.parser.started)
    assert scene.parser.started == [Cursor.at(scene.source.place(21), f"{SERVER}:1-20")], "another source finds it"
    assert scene.parser.end == scene.source.place(30), "there the log goes on"
    assert scene.data() == written(1, 20)
    reader.stop()
    reader.join(5)
    assert scene.parser.stopped


@pytest.mark.parametrize("place", [None, Position(OTHER, "bin.000001", 1_700_000_000, 100, 0)])
def test_another_source_goes_on_when_what_came_from_the_log_is_confirmed(scene: Scene, place: Position | None) -> None:
    scene.add(20)
    scene.log.begin(scene.source.place(30), None, CONFIG.shape())
    reader = scene.read(scene.source.place(1))
    eventually(lambda: scene.parser.started)
    begins = threading.Thread(target=scene.parser.on_begin, args=(place, None), daemon=True)
    begins.start()
    begins.join(0.2)
    assert begins.is_alive()
    scene.track.free_to(scene.ring.next)
    begins.join(5)
    assert not begins.is_alive()
    scene.parser.on_begin(scene.source.place(21), None)
    reader.stop()
    reader.join(5)


def test_a_place_that_was_taken_away_meanwhile_is_read_from_the_source(scene: Scene) -> None:
    scene.add(60)
    scene.log.prune(1000)
    reader = scene.read(scene.source.place(2))
    eventually(lambda: scene.parser.started)
    assert scene.parser.started == [Cursor.at(scene.source.place(2))]
    reader.stop()
    reader.join(5)


def test_the_source_is_not_asked_for_what_was_delivered_in_another_shape(scene: Scene) -> None:
    """A damaged or pruned file: the source would give what is configured now."""
    scene.log.begin(scene.source.place(1), None, {"canal.instance.filter.regex": "shop"})
    scene.add(60)
    scene.log.begin(scene.source.place(61), None, CONFIG.shape())
    scene.add(1)
    scene.log.prune(1)
    reader = scene.read(scene.source.place(2))
    eventually(lambda: reader.failure)
    assert isinstance(reader.failure, ReshapedError)
    expected = f"{re.escape(str(scene.source.place(2)))}.*up to {re.escape(str(scene.source.place(61)))}.*regex is '"
    assert re.search(expected, str(reader.failure))
    assert not scene.parser.started
    reader.join(5)


def test_between_two_parts_of_the_log_the_source_goes_on_as_far_as_it_gives_the_same(scene: Scene) -> None:
    scene.add(60)
    scene.log.begin(scene.source.place(61), None, {"canal.instance.filter.regex": "shop"})
    scene.add(20)
    scene.log.begin(scene.source.place(81), None, CONFIG.shape())
    scene.add(20)
    scene.log.prune(sum(it.bytes for it in scene.log.extent.files if it.start >= scene.source.place(61)))
    reader = scene.read(scene.source.place(2))
    eventually(lambda: scene.parser.started)
    assert scene.ring.next == 0
    scene.parser.ended.set()
    eventually(lambda: scene.track.end == scene.source.place(101))
    assert scene.parser.started == [Cursor.at(scene.source.place(2))]
    assert scene.parser.end == scene.source.place(61)
    assert scene.data() == written(61, 100)
    reader.stop()
    reader.join(5)


def test_a_reader_goes_on_where_files_are_compressed_before_and_after_it_has_opened_them(scene: Scene) -> None:
    scene.add(60)
    assert len(scene.log.extent.files) > 4
    find = scene.log.find

    def find_and_compress(position: Position) -> tuple[File, int] | None:
        found = find(position)
        while scene.log.compress():
            pass
        return found

    scene.log.find = find_and_compress  # type: ignore[method-assign]
    reader = scene.read(scene.source.place(2))
    eventually(lambda: scene.track.end == scene.source.place(61))
    assert scene.data().endswith(written(2, 60))
    assert not scene.parser.started
    reader.stop()
    reader.join(5)


def test_a_reader_goes_on_where_the_next_file_is_compressed_while_it_reads_one(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.add(60)
    after = scene.log.after

    def after_and_compress(file: File) -> File | None:
        found = after(file)
        scene.log.compress()
        scene.log.compress()
        return found

    monkeypatch.setattr(scene.log, "after", after_and_compress)
    reader = scene.read(scene.source.place(1))
    eventually(lambda: scene.track.end == scene.source.place(61))
    assert scene.data() == written(1, 60)
    assert not scene.parser.started
    reader.stop()
    reader.join(5)


def test_a_file_of_the_next_source_may_be_compressed_while_those_of_the_one_before_are_confirmed(scene: Scene) -> None:
    scene.add(3)
    other = Source(server=OTHER)
    scene.log.begin(other.place(1), f"{SERVER}:1-3", CONFIG.shape())
    other.put(2)
    scene.log.append(other.pieces())
    assert scene.log.end is not None
    scene.log.begin(scene.log.end, None, {"canal.instance.filter.regex": "shop"})
    reader = scene.read(scene.source.place(1))
    eventually(lambda: scene.track.end == scene.source.place(4))
    time.sleep(0.2)
    while scene.log.compress():
        pass
    scene.track.free_to(scene.ring.next)
    eventually(lambda: scene.data() == written(1, 2))
    assert not scene.parser.started
    reader.stop()
    reader.join(5)


def test_a_reader_that_is_stopped_before_it_reads_starts_nothing(scene: Scene) -> None:
    scene.add(1)
    scene.log.begin(scene.source.place(30), None, CONFIG.shape())
    reader = scene.read(scene.source.place(1))
    reader.stop()
    reader.join(5)
    assert reader.failure is None
    assert len(scene.parser.started) <= 1
    assert scene.parser.stopped or not scene.parser.started


def test_changes_of_the_next_source_come_when_those_of_the_one_before_are_confirmed(scene: Scene) -> None:
    """Positions of two sources have no order: comparing them in one ring would raise."""
    scene.add(3)
    other = Source(server=OTHER)
    scene.log.begin(other.place(1), f"{SERVER}:1-3", CONFIG.shape())
    other.put(2)
    scene.log.append(other.pieces())
    reader = scene.read(scene.source.place(1))
    eventually(lambda: scene.track.end == scene.source.place(4))
    time.sleep(0.2)
    assert scene.track.end == scene.source.place(4)
    scene.track.free_to(scene.ring.next)
    eventually(lambda: scene.data() == written(1, 2))
    assert scene.track.end is not None
    assert scene.track.end.source == OTHER
    assert not scene.parser.started
    reader.stop()
    reader.join(5)
