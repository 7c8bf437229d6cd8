"""A source of another package, as a destination reads it: places, filters, and what it may not give."""

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from sluice.instance.sources.api import EntryType, EventType, FolderPath, Piece, Settings, SourceError, framed, setting
from sluice.instance.sources.plugin import parser
from sluice.instance.sources.plugin.config import PluginConfig, model_of
from sluice.instance.sources.plugin.examination import PluginExamination
from sluice.instance.sources.plugin.parser import Asking, PluginParser
from sluice.protocol.canal.rows import decode_changes
from sluice.protocol.errors import BadPositionError, ConfigError, PurgedError, SluiceError, SourceChangedError
from sluice.protocol.position import Position
from sluice.server.conformance.changes import edge, entry
from sluice.store.cursor import OLDEST, Cursor
from sluice.store.ring import Flag, Kind, Ring
from tests.waiting import eventually


class ListSettings(Settings):
    file: FolderPath = setting("sluice.instance.list.file", Path("list"))


class List:
    """Has transactions of two rows, or what the test says."""

    api = 1
    title = "a list"
    settings = ListSettings

    pieces: ClassVar[list[Any]] = []
    name: ClassVar[Any] = "one"
    first: ClassVar[Any] = 0

    def __init__(self, settings: ListSettings) -> None:
        """Nothing to open."""

    def history(self) -> Any:
        return List.name

    def oldest(self) -> Any:
        return List.first

    def end(self) -> Any:
        return max([List.first, *(it.end for it in List.pieces[:3])])

    def read(self, offset: int) -> Iterator[Piece | None]:
        yield from [it for it in List.pieces if not isinstance(it, Piece) or it.end > offset]
        while True:
            yield None

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture(autouse=True)
def _three_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(List, "pieces", [transaction(number) for number in range(3)])
    monkeypatch.setattr(List, "name", "one")
    monkeypatch.setattr(List, "first", 0)


def transaction(number: int) -> Piece:
    entries = [
        edge(EntryType.TRANSACTIONBEGIN),
        entry(2 * number),
        entry(2 * number + 1),
        edge(EntryType.TRANSACTIONEND),
    ]
    return Piece(framed(entries), 10 * number + 10)


def config(**settings: Any) -> PluginConfig:
    return model_of("list", List)(destination="shop", time_zone="UTC", **settings)


def place(offset: int, n: int = 0, name: str = "one") -> Cursor:
    return Cursor.at(Position("list", f"{name}.1", 0, offset, n))


class Reading:
    """A parser that has run until it has nothing more, or stands."""

    def __init__(
        self,
        start: Cursor | None = None,
        later: Sequence[Cursor | None] = (),
        stop: Position | None = None,
        **settings: Any,
    ) -> None:
        self.ring = Ring(64, 1 << 20)
        self.begun: list[Position | None] = []
        self.states: list[tuple[str, str]] = []
        self.parser = PluginParser(
            config(**settings),
            self.ring,
            start=start,
            later=later,
            stop=stop,
            on_begin=lambda position, _: self.begun.append(position),
            on_state=lambda *state: self.states.append(state),
        )
        self.parser.start()
        eventually(lambda: self.parser.status.behind is not None or self.states[-1][0] != "running")
        self.parser.stop()
        self.parser.join()

    @property
    def slots(self) -> list[tuple[Kind, int, int, bool]]:
        """Kind, offset and number of each slot, and whether reading can resume after it."""
        found = map(self.ring.slot, range(self.ring.first, self.ring.next))
        return [(Kind(it.kind), it.begin, it.n, bool(it.flags & Flag.BOUNDARY)) for it in found]

    @property
    def error(self) -> str:
        state, text = self.states[-1]
        assert state == "error"
        return text


B, R, E = Kind.TRANSACTION_BEGIN, Kind.ROW_DATA, Kind.TRANSACTION_END


def whole(offset: int) -> list[tuple[Kind, int, int, bool]]:
    return [(B, offset, 0, False), (R, offset, 1, False), (R, offset, 2, False), (E, offset, 3, True)]


def test_it_begins_at_the_oldest_place_and_each_piece_ends_where_reading_can_resume() -> None:
    found = Reading()
    assert found.begun == [place(0).position]
    assert found.slots == [*whole(0), *whole(10), *whole(20)]
    data = b"".join(found.ring.read(found.ring.first, found.ring.next).slices)
    assert {(it.logfile_name, it.logfile_offset) for it in decode_changes(data)} == {
        ("one.1", it) for it in (0, 10, 20)
    }
    assert found.parser.tables() == [("conformance", "changes")]


@pytest.mark.parametrize(("offset", "n"), [(10, 0), (10, 2), (20, 3), (30, 0)])
def test_it_resumes_at_a_place_also_inside_a_piece(offset: int, n: int) -> None:
    found = Reading(place(offset, n))
    assert found.begun == [place(offset, n).position]
    assert found.slots == [it for it in [*whole(0), *whole(10), *whole(20)] if it[1:3] >= (offset, n)]


@pytest.mark.parametrize(("offset", "n"), [(10, 0), (10, 2), (20, 0)])
def test_it_ends_at_a_place(offset: int, n: int) -> None:
    found = Reading(stop=place(offset, n).position)
    assert found.states[-1] == ("finished", "")
    assert found.slots == [it for it in [*whole(0), *whole(10), *whole(20)] if it[1:3] < (offset, n)]


def test_a_filter_of_tables_applies_and_places_advance() -> None:
    List.pieces = [Piece(framed([entry(number)]), number + 1) for number in range(2)]
    assert Reading().slots == [(R, 0, 0, True), (R, 1, 0, True)]
    found = Reading(filter_regex=r"other\..*")
    assert found.slots == [(Kind.ADVANCE, 0, 1, True), (Kind.ADVANCE, 1, 1, True)]


def test_what_the_source_has_lost_is_an_error_unless_another_place_is_there() -> None:
    List.first = 10
    found = Reading(place(0))
    assert isinstance(found.parser.failure, PurgedError)
    assert "a list begins at offset 10, after list/one.1@0:0:0: changes in between are lost" in found.error
    other = Reading(place(0), later=[place(20)])
    assert (other.slots, list(other.parser.refused)) == (whole(20), [place(0)])
    assert Reading(place(0), later=[OLDEST]).slots == [*whole(10), *whole(20)]


@pytest.mark.parametrize("start", [place(10, name="two"), place(40), Cursor("mysql-bin.000001", 4, 0, 1)])
def test_a_place_of_another_history_is_refused(start: Cursor) -> None:
    found = Reading(start)
    assert isinstance(found.parser.failure, SourceChangedError)
    assert "is not a place of a list, history one, which ends at offset 30" in found.error


@pytest.mark.parametrize(
    ("piece", "text"),
    [
        (Piece(b"\xff\xff", 40), "the piece from offset 30 has what are no entries of Canal"),
        (Piece(framed([entry(1)])[:-3], 40), "the piece from offset 30 has what are no entries of Canal"),
        (Piece(framed([entry(1, kind=EventType.INSERT), edge(EntryType.HEARTBEAT)]), 40), "an entry has the type"),
        (Piece(b"", 30), "a piece after offset 30 ends at 30"),
        (Piece(b"", 7), "a piece after offset 30 ends at 7"),
        (Piece(b"", 1 << 63), "a piece after offset 30 ends at 9223372036854775808"),
        (Piece("text", 40), "or its data is no bytes"),  # type: ignore[arg-type]
        ((b"", 40, 5), "TypeError"),
        (7, "TypeError"),
    ],
)
def test_a_piece_that_is_none_is_an_error_after_those_before_it(piece: Any, text: str) -> None:
    List.pieces.append(piece)
    found = Reading()
    assert text in found.error
    assert found.slots == [*whole(0), *whole(10), *whole(20)]


@pytest.mark.parametrize(
    ("name", "first", "text"),
    [
        ("a b", 0, "its history is 'a b', not 1 to 64 letters"),
        ("x" * 65, 0, "its history is 'xxx"),
        (None, 0, "its history is None"),
        ("one", -1, "it has offsets from -1 to 30"),
        ("one", 1.5, "it has offsets from 1.5 to 30"),
        ("one", True, "it has offsets from True to 30"),
    ],
)
def test_what_a_source_says_of_itself_is_checked(name: Any, first: Any, text: str) -> None:
    List.name, List.first = name, first
    with pytest.raises(SourceError) as raised, PluginExamination(config()) as source:
        source.check(is_replaced=False)
    assert text in str(raised.value)
    assert "a list (sluice.instance.source = list): " in str(raised.value)


class Leaving(List):
    """Asks the process to end."""

    settings: Any = Settings

    def oldest(self) -> int:
        raise SystemExit(3)


def test_whatever_a_source_raises_is_an_error_of_the_source() -> None:
    asking = Asking(model_of("leaving", Leaving)(destination="shop"))
    with pytest.raises(SourceError, match="SystemExit: 3"):
        asking.bounds()


class Babbling(List):
    """Raises what no status, log or answer could have."""

    def read(self, offset: int) -> Iterator[Piece | None]:
        raise SourceError("\udcff" * 100_000)


def test_the_text_of_an_error_of_a_source_is_one_that_utf8_has_and_not_long() -> None:
    states: list[tuple[str, str]] = []
    reading = PluginParser(
        model_of("list", Babbling)(destination="shop"),
        Ring(64, 1 << 20),
        start=None,
        on_begin=lambda *_: None,
        on_state=lambda *state: states.append(state),
    )
    reading.start()
    eventually(lambda: states, "its state")
    reading.stop()
    reading.join()
    (state, text), *_ = states
    assert (state, text[:10], len(text.encode())) == ("error", "\\udcff\\udc", 20_003)


def test_a_source_that_hangs_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    free = threading.Event()
    monkeypatch.setattr(parser, "PATIENCE", 0.1)
    monkeypatch.setattr(List, "oldest", lambda _: int(not free.wait(60)))
    found = PluginParser(config(), Ring(64, 1 << 20), start=None, on_begin=lambda *_: None, on_state=lambda *_: None)
    with pytest.raises(SourceError, match=r"has not said within 0.1 s what it has"):
        found.end()
    with pytest.raises(SourceError, match="still goes on"):
        found.find_place(None)
    free.set()
    eventually(lambda: found._late is not None and not found._late.is_alive())
    assert found.end().begin == 30


def test_commands_ask_it() -> None:
    with PluginExamination(config()) as source:
        assert source.summary() == "a list, history one, offsets from 0 to 30"
        assert source.find(place(10)) == "a list, offset 10"
        assert list(source.refused([place(40), None])) == [place(40)]
        with pytest.raises(SourceChangedError):
            source.find(place(40))
    parser = Reading().parser
    assert (parser.end(), parser.find_place(None)) == (place(30).position, place(0))
    with pytest.raises(BadPositionError):
        parser.find_place("x:1")
    with pytest.raises(SourceError, match="cannot be asked for the place of a time"):
        parser.find_place(1_700_000_000_000)
    for question in (parser.table_reader, lambda: parser.columns("a", "b"), lambda: parser.prove(place(0), b"")):
        with pytest.raises(SluiceError):
            question()


@pytest.mark.parametrize(
    "settings",
    [
        {"filter_mask": "a.b.c: null"},
        {"filter_where": "a.b: c = 1"},
        {"filter_field": "a.b:c"},
        {"filter_dml_insert": True},
        {"filter_transaction_entry": True},
        {"store": "mixed"},
        {"auto_reset_latest_pos_mode": True},
    ],
)
def test_what_would_have_no_effect_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="not with a list as the source, whose entries are delivered as they come"):
        config(**settings)


class Foreign(Settings):
    x: str = setting("sluice.instance.other.x", "")


class Covering(Settings):
    destination: str = setting("sluice.instance.bad.x", "")


class Hidden(Settings):
    address: str = setting("sluice.instance.bad.address", "")


class Hiding(Settings):
    masks: str = setting("sluice.instance.bad.masks", "")


class Known(Settings):
    kind: str = setting("sluice.instance.bad.kind", "")


@pytest.mark.parametrize(
    ("own", "text"),
    [
        (Foreign, "declares sluice.instance.other.x: its own keys begin"),
        (Covering, "declares destination: its own"),
        (Hidden, "declares address: its own"),
        (Hiding, "declares masks: its own"),
        (Known, "declares kind: its own"),
    ],
)
def test_a_source_declares_keys_of_its_own_only(own: type[Settings], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        model_of("bad", type("Bad", (List,), {"settings": own}))
