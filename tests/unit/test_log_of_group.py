"""The log of a merged stream: it holds a chain of cuts, and after any cut each member comes once, in its order."""

import itertools
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.instance.config import InstanceConfig
from sluice.instance.serving.log import LogReader, LogWriter, open_log
from sluice.instance.sources.group.config import GroupConfig
from sluice.instance.sources.registry import make_parser
from sluice.instance.verification import compare_log
from sluice.protocol.cut import Cut
from sluice.protocol.errors import ConfigError, GoneError, ReshapedError
from sluice.protocol.position import Position
from sluice.store.cursor import Cursor
from sluice.store.log.files import MERGED_FORMAT, read_block, read_head, write_executed
from sluice.store.log.log import Limits, Log, Piece, stored_files, take
from sluice.store.log.shapes import KEPT, ShapedPart, source_end
from sluice.store.ring import Ring
from sluice.store.track import Track
from tests.effort import times
from tests.stream import Stream, entries
from tests.unit.test_chain import EVENTS, MEMBERS, Merged, cut
from tests.unit.test_log_reader import FromSource
from tests.waiting import eventually

CONFIG = InstanceConfig(destination="shop")
SHAPE = CONFIG.shape()


def opened(folder: Path, **options: Any) -> Log:
    return Log(folder, "shop", Limits(), **options)


def pieces(server: Merged, start: int = 0) -> list[Piece]:
    """What a server has merged from a transaction on, each transaction a piece."""
    return [take(server.cursors.track, it, it + EVENTS) for it in range(start * EVENTS, server.ring.next, EVENTS)]


def begin(log: Log, server: Merged) -> None:
    track = server.cursors.track
    assert track.floor is not None
    log.begin(track.floor, write_executed(track.gtids), SHAPE)


class Reading:
    """A reader of a log, whose ring has room for everything; ``source`` stands for the members' parsers."""

    def __init__(self, log: Log, start: Cut, gtids: str = "") -> None:
        self.ring = Ring(1024)
        self.track = Track(self.ring)
        self.source = FromSource()
        self.begun: list[Position | None] = []
        self.errors: list[str] = []
        self.reader = LogReader(
            log,
            self.source,
            CONFIG,
            self.ring,
            start=Cursor.at(start, gtids),
            on_begin=self._begin,
            on_state=lambda _, text: self.errors.append(text),
        )
        self.reader.start()

    def _begin(self, position: Position | None, _gtids: object) -> None:
        assert position is not None
        self.begun.append(position)
        self.track.begin(position)

    @property
    def rows(self) -> list[str]:
        found = entries(self.ring.read(self.ring.first, self.ring.next).slices)
        return [it.decode() for it in found if it not in (b"begin", b"end")]

    def close(self) -> None:
        self.reader.stop()
        self.reader.join(5)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "shop" / "log"
    found.mkdir(parents=True)
    return found


@pytest.fixture
def log(folder: Path) -> Iterator[Log]:
    with opened(folder, file_size=1500) as made:
        yield made


def numbered(order: str) -> list[str]:
    """The rows of transactions in an order, as `Merged` names them."""
    return [f"{name}{order[:i].count(name)}" for i, name in enumerate(order)]


@pytest.mark.parametrize("order", ["abcabcabcabc", "abbbcb", "abbb" + 20 * "c" + 20 * "b"])
def test_what_was_read_of_a_member_after_another_server_was_chosen_is_taken_away(folder: Path, order: str) -> None:
    server = Merged()
    server.put(order)
    with opened(folder, file_size=1500) as log:
        begin(log, server)
        log.append(pieces(server))
    kept = order[: [i for i, name in enumerate(order) if name == "b"][3]]
    elsewhere = Position("other", "bin.000001", 7, 4, 0)
    with opened(folder, file_size=1500, until=Cut({**cut(b=3).places, "a": elsewhere})) as log:
        assert log.end == server.cursors.position_before(len(kept) * EVENTS)
    with opened(folder, file_size=1500, until=cut(b=3)) as log:
        assert log.end == server.cursors.position_before(len(kept) * EVENTS)


@given(
    st.text(MEMBERS, min_size=1, max_size=20),
    st.fixed_dictionaries({it: st.integers(0, 8) for it in MEMBERS}),
    st.integers(1, 5),
)
@settings(max_examples=times(15, 100), deadline=None)
def test_after_any_cut_each_member_comes_once_in_its_order(order: str, had: dict[str, int], most: int) -> None:
    """The cut need not lie on the chain: a server that merges in another order has served its client before."""
    had = {it: min(number, order.count(it)) for it, number in had.items()}
    with TemporaryDirectory() as folder, opened(Path(folder), file_size=1500) as log:
        server = Merged()
        begin(log, server)
        server.put(order)
        stops = [*range(most * EVENTS, server.ring.next, most * EVENTS), server.ring.next]
        log.append([take(server.cursors.track, start, stop) for start, stop in itertools.pairwise([0, *stops])])
        wanted = [it for it in numbered(order) if int(it[1:]) >= had[it[0]]]
        reading = Reading(log, cut(**had))
        eventually(lambda: len(reading.rows) == len(wanted) or reading.source.started)
        assert reading.rows == wanted
        if wanted:
            assert reading.begun == [cut(**had)]
            assert reading.track.end == server.cursors.track.end, "which is at or after the cut"
        reading.close()


def test_a_file_of_a_merged_stream_is_of_a_format_that_earlier_versions_refuse(log: Log, folder: Path) -> None:
    server = Merged()
    begin(log, server)
    server.put("abc" * 20)
    log.append(pieces(server))
    before = {it.name for it in folder.glob("*.log")}
    while log.compress():
        pass
    compressed = {it.name for it in folder.glob("*.log")} - before
    assert compressed
    for path in folder.glob("*.log"):
        with path.open("rb") as file:
            head, first = read_head(file.fileno(), path)
            block = read_block(file.fileno(), first, path)
        assert head.format == MERGED_FORMAT == 3
        assert isinstance(head.start, Cut)
        if block is not None:
            assert block.words["from"].startswith("a/of-a/"), "where each member is"
    assert _read_all(log, cut(a=0, b=0, c=0)) == numbered("abc" * 20)


def _read_all(log: Log, start: Cut) -> list[str]:
    reading = Reading(log, start)
    eventually(lambda: reading.track.end == log.end)
    reading.close()
    return reading.rows


def test_the_log_goes_on_after_a_restart_with_the_gtids_of_each_member(folder: Path) -> None:
    server = Merged()
    with opened(folder, file_size=1500) as log:
        begin(log, server)
        server.put("abcabca" * 5)
        log.append(pieces(server))
        assert log.executed == "a=0-101-15;b=0-101-10;c=0-101-10"
        end = cut(a=15, b=10, c=10)
    with opened(folder, file_size=1500) as log:
        assert log.end == end
        assert log.executed == "a=0-101-15;b=0-101-10;c=0-101-10"
        again = Merged(end)
        log.begin(end, None, SHAPE)
        again.put("cba")
        log.append(pieces(again))
        assert len(log.extent.stretches) == 1
        start = cut(a=14, b=10, c=10)
        assert _read_all(log, start) == ["a14", "c10", "b10", "a15"]
        assert log.executed_at(end) == "a=0-101-15;b=0-101-10;c=0-101-10"


def test_the_index_of_a_file_with_many_members_is_not_made_again(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ring = Ring(256)
    track = Track(ring)
    streams = [Stream(ring, member=f"member{number}", name=f"{number:036d}") for number in range(64)]
    track.begin(Cut({f"member{number}": it.position(0) for number, it in enumerate(streams)}))
    with opened(folder, file_size=1) as log:
        assert track.floor is not None
        log.begin(track.floor, None, SHAPE)
        for it in streams[:3]:
            it.transaction(b"row")
            it.put()
        log.append([take(track, it, it + EVENTS) for it in range(0, ring.next, EVENTS)])
        end = log.end
    with opened(folder, file_size=1) as log:
        assert len(log.extent.files) > 2
        assert log.end == end
    assert "is made again" not in caplog.text


def test_a_last_file_that_is_cut_off_ends_with_whole_transactions_of_all_members(folder: Path, tmp_path: Path) -> None:
    server = Merged()
    with opened(folder) as log:
        begin(log, server)
        server.put("abca")
        log.append(pieces(server))
    (path,) = folder.glob("*.log")
    content = path.read_bytes()
    with path.open("rb") as file:
        _, offset = read_head(file.fileno(), path)
        ends = [offset]
        while (block := read_block(file.fileno(), offset, path)) is not None:
            ends.append(offset := block.end)
    chain = [server.cursors.position_before(it * EVENTS) for it in range(5)]
    for size in range(ends[0], len(content), 97):
        copy = tmp_path / str(size) / "log"
        shutil.copytree(folder, copy)
        (copy / path.name).write_bytes(content[:size])
        with opened(copy) as log:
            assert log.end == chain[sum(it <= size for it in ends) - 1]


def test_where_the_log_begins_or_has_a_gap_each_member_is_read_up_to_where_the_log_goes_on(log: Log) -> None:
    server = Merged(cut(a=2, b=2, c=2))
    begin(log, server)
    server.put("abc")
    log.append(pieces(server))
    later = Merged(cut(a=6, b=3, c=5))
    begin(log, later)
    later.put("aabbcc")
    log.append(pieces(later))
    assert len(log.extent.stretches) == 2
    reading = Reading(log, cut(a=4, b=1, c=2))
    eventually(lambda: reading.source.started)
    assert reading.source.started[0].position == cut(a=4, b=1, c=2)
    reading.source.on_begin(cut(a=4, b=1, c=2), None)
    reading.source.ended.set()
    eventually(lambda: reading.rows == ["b2", "c2", "a6", "a7", "b3", "b4", "c5", "c6"])  # a2 is had
    assert [it.position for it in reading.source.started] == [cut(a=4, b=1, c=2), cut(a=4, b=3, c=3)]
    assert reading.source.ends == [cut(a=4, b=2, c=2), cut(a=6, b=3, c=5)]
    assert reading.track.end == log.end
    reading.close()


def test_after_a_gap_a_member_that_is_further_is_not_repeated(log: Log) -> None:
    server = Merged(cut(a=0, b=0, c=0))
    begin(log, server)
    later = Merged(cut(a=3, b=3, c=3))
    begin(log, later)
    later.put("abcabc")
    log.append(pieces(later))
    reading = Reading(log, cut(a=4, b=0, c=5))
    eventually(lambda: reading.source.started)
    assert reading.source.ends == [cut(a=4, b=3, c=5)], "of a and c nothing is missing"
    reading.source.on_begin(cut(a=4, b=0, c=5), None)
    reading.source.ended.set()
    eventually(lambda: reading.rows == ["b3", "a4", "b4"])
    assert reading.track.end == cut(a=5, b=5, c=5)
    reading.close()


def test_what_was_executed_is_known_of_each_member_where_the_source_goes_on(log: Log) -> None:
    server = Merged()
    begin(log, server)
    server.put("abc")
    log.append(pieces(server))
    begin(log, Merged(cut(a=9, b=9, c=9)))
    reading = Reading(log, cut(a=1, b=0, c=2), "a=0-101-1;c=0-101-2")
    eventually(lambda: reading.source.started)
    assert reading.rows == ["b0"]
    assert reading.source.started == [Cursor.at(cut(a=1, b=1, c=2), "a=0-101-1;b=0-101-1;c=0-101-2")]
    assert reading.source.ends == [cut(a=9, b=9, c=9)]
    reading.close()


def test_a_member_that_begins_with_another_file_is_in_the_places_of_readers(log: Log) -> None:
    server = Merged(cut(a=0, b=0))
    begin(log, server)
    server.put("ab")
    log.append(pieces(server))
    log.begin(cut(a=1, b=1, c=4), None, SHAPE)
    assert len(log.extent.stretches) == 1, "nothing is missing of c, which begins there"
    reading = Reading(log, cut(a=0, b=0))
    eventually(lambda: reading.track.end == cut(a=1, b=1, c=4))
    assert reading.rows == ["a0", "b0"]
    reading.close()


def test_a_reader_that_lacks_where_a_member_began_is_told_so(log: Log) -> None:
    server = Merged(cut(a=5, b=5, c=0))
    begin(log, server)
    reading = Reading(log, cut(a=0, b=0))
    eventually(lambda: reading.errors)
    assert isinstance(reading.reader.failure, GoneError)
    assert "where member c began" in str(reading.reader.failure)
    reading.close()


def test_a_gap_in_one_member_begins_another_stretch(log: Log) -> None:
    server = Merged()
    begin(log, server)
    server.put("abc")
    log.append(pieces(server))
    log.begin(cut(a=1, b=2, c=1), None, SHAPE)
    assert len(log.extent.stretches) == 2
    log.begin(cut(a=1, b=2, c=1), None, {"another": "shape"})
    assert len(log.extent.stretches) == 2


def test_a_protected_client_keeps_the_files_with_what_it_lacks_of_any_member(log: Log) -> None:
    server = Merged()
    begin(log, server)
    server.put("a" * 10 + "b" * 10 + "c" * 10)
    log.append(pieces(server))
    files = len(log.extent.files)
    log.held = {1: Cursor.at(cut(a=10, b=0, c=10))}
    assert log.prune(0)
    kept = log.extent.files
    assert 1 < len(kept) < files
    assert isinstance(kept[0].start, Cut)
    assert kept[0].start.precedes(cut(a=10, b=0, c=10))
    assert _read_all(log, cut(a=10, b=0, c=10)) == numbered("a" * 10 + "b" * 10)[10:]
    log.held = {1: Cursor.at(cut(a=10, b=10, c=10))}
    log.prune(0)
    assert len(log.extent.files) == 1


def test_where_the_log_goes_on_after_a_place_each_member_is_where_it_is_further(log: Log) -> None:
    begin(log, Merged(cut(a=5, b=5, c=5)))
    found = log.next_start(Cursor.at(cut(a=7, b=1, c=1), "a=0-101-7"))
    assert found == Cursor.at(cut(a=7, b=5, c=5), "a=0-101-7")
    assert log.next_start(Cursor.at(cut(a=7, b=5, c=5))) is None


def test_a_member_is_read_from_the_source_as_far_as_that_gives_what_was_delivered() -> None:
    part = ShapedPart(cut(a=3, b=3), cut(a=6, b=3), {"other": 1})
    assert source_end([part], cut(a=1, b=9), SHAPE) == cut(a=3, b=9)
    assert source_end([part], cut(a=6, b=1), SHAPE) is None, "nothing of b was written with the other shape"
    assert source_end([part], cut(a=1, b=1), SHAPE, cut(a=5, b=2)) == cut(a=3, b=2)
    assert source_end([part], cut(a=4, b=1), SHAPE, cut(a=4, b=2)) == cut(a=4, b=2), "a is not read"
    with pytest.raises(ReshapedError):
        source_end([part], cut(a=4, b=1), SHAPE)
    with pytest.raises(ReshapedError, match="no longer knows"):
        source_end([part] * KEPT, cut(a=1, b=1), SHAPE)


OF_B = {"sluice.group.b.zone": "UTC"}


def test_what_is_configured_for_a_member_shapes_the_entries_of_that_alone() -> None:
    part = ShapedPart(cut(a=3, b=3), cut(a=6, b=6), SHAPE | OF_B)
    now = SHAPE | {"sluice.group.b.zone": "CET", "sluice.group.c.zone": "CET"}
    assert source_end([part], cut(a=4, b=6), SHAPE) is None, "b was removed"
    assert source_end([part], cut(a=4, b=6), now) is None, "c has joined"
    with pytest.raises(
        ReshapedError, match=r"because the configuration has changed since: sluice.group.b.zone is 'CET'"
    ):
        source_end([part], cut(a=6, b=4), now)


def test_a_marker_of_another_shape_comes_only_if_members_are_shaped_otherwise_that_go_on(log: Log) -> None:
    track = Merged().cursors.track
    assert track.floor is not None
    log.begin(track.floor, write_executed(track.gtids), SHAPE | OF_B)
    assert log.shape_before(SHAPE) is None, "b was removed"
    assert log.shape_before(SHAPE | OF_B | {"sluice.group.d.zone": "CET"}) is None, "d joins"
    assert log.shape_before(SHAPE | {"sluice.group.b.zone": "CET"}) is not None


def test_what_comes_after_a_member_has_joined_is_in_a_file_that_says_how_it_is_shaped(folder: Path) -> None:
    server = Merged()
    with opened(folder) as log:
        begin(log, server)
        server.put("ab")
        log.append(pieces(server))
        log.reshape(SHAPE | OF_B)
        server.put("ab")
        log.append(pieces(server, 2))
        assert [it.head.shape for it in stored_files(folder)] == [SHAPE, SHAPE | OF_B]
        assert len(log.extent.stretches) == 1
        assert _read_all(log, cut(a=0, b=0, c=0)) == numbered("abab")


def test_a_log_that_is_far_behind_all_clients_in_any_member_is_not_completed(folder: Path) -> None:
    server = Merged()
    with opened(folder) as log:
        begin(log, server)
        server.put("abc")
        log.append(pieces(server))
    (path,) = folder.glob("*.log")
    os.utime(path, (0, 0))  # since then another server has had the destination
    with opened(folder) as log:
        writer = LogWriter(log, Merged().cursors, CONFIG, lambda _: None, lambda: None)
        end = cut(a=1, b=1, c=1)
        assert writer.start_after(None) == Cursor.at(end, "a=0-101-1;b=0-101-1;c=0-101-1")
        for place in (cut(a=0, b=0, c=0), cut(a=9, b=0, c=9), cut(a=9, b=9, c=9)):
            assert writer.start_after(Cursor.at(place)) == Cursor.at(end, log.executed)
        later = end.advance("b", replace(end.places["b"], file="binlog.000009"))
        assert writer.start_after(Cursor.at(later)) is None
        assert writer.start_after(Cursor.at(later.advance("c", cut(c=0).places["c"]))) is not None, "it has more of c"


SINGLE = {"destination": "shop", "store": "mixed", "was": "a"}


def test_a_log_of_the_other_kind_of_source_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    single = InstanceConfig(**SINGLE, file_data_dir=tmp_path)  # type: ignore[arg-type]
    group = GroupConfig(**SINGLE, file_data_dir=tmp_path, members=("a", "b"))  # type: ignore[arg-type]
    with open_log(single) as log:
        log.begin(cut(a=0).places["a"], None, SHAPE)
    with open_log(single) as log:
        assert log.end == cut(a=0).places["a"]
    _check_refusal(group, "it has places of a single source, and shop reads a group of sources now")
    shutil.rmtree(single.log_folder)
    with open_log(group) as log:
        begin(log, Merged())
    with open_log(group) as log:
        assert log.end == Merged().begin
    _check_refusal(single, "it has places of a group, and shop reads")
    with pytest.raises(ConfigError, match=r"shop reads a single source, and the log in .* has places of a group"):
        compare_log(single, make_parser, None, None, lambda *_: None)


def _check_refusal(config: InstanceConfig, why: str) -> None:
    before = {it.name: it.read_bytes() for it in config.log_folder.iterdir()}
    with pytest.raises(ConfigError, match=why):
        open_log(config)
    assert {it.name: it.read_bytes() for it in config.log_folder.iterdir()} == before
