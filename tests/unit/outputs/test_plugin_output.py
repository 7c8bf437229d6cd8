"""Outputs and forms of other packages, as a delivery uses them: places, markers, and what they raise."""

import json
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import pytest

from sluice.instance.sources.api import framed
from sluice.protocol.canal.rows import decode_rows
from sluice.protocol.errors import MarkerError, RecordTooLargeError, UnfitChangeError
from sluice.protocol.props import GAP
from sluice.server.conformance.changes import batch, entry, place_after
from sluice.server.outputs.api import Batch, DeliveryError, OutputSettings, RejectedError
from sluice.server.outputs.forms.api import Record
from sluice.server.outputs.forms.encoding import FormError, PluginEncoder, encode
from sluice.server.outputs.plugin.target import PluginTarget
from sluice.server.outputs.routing import Router, Rules
from sluice.server.outputs.settings import OnMarker, OnRefused, Output
from sluice.store.batch import Batch as Given


class Memory:
    """Keeps what it is sent."""

    api = 1
    settings = OutputSettings
    format = "protobuf"
    exactly_once = True

    sent: ClassVar[list[bytes]] = []
    place: ClassVar[str | None] = None
    raises: ClassVar[BaseException | None] = None

    def __init__(self, settings: OutputSettings, identity: str) -> None:
        self.identity = identity

    def open(self, epoch: int) -> str | None:
        return Memory.place

    def send(self, batches: Sequence[Batch], place: str) -> None:
        if Memory.raises is not None:
            raise Memory.raises
        Memory.sent += [it.data for it in batches]
        Memory.place = place

    def abandon(self) -> None:
        pass

    def close(self) -> None:
        pass

    def check(self) -> str:
        return "it is there"


class Repeating(Memory):
    exactly_once = False


@pytest.fixture(autouse=True)
def _empty(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    Memory.sent, Memory.place, Memory.raises = [], None, None
    yield
    Memory.sent, Memory.place, Memory.raises = [], None, None


def target(kind: Any = Memory, **settings: Any) -> PluginTarget:
    return PluginTarget(Output("shop", "copy", OutputSettings(client_id=1002, **settings), shared=True), kind)


def opened(memory: str = "", epoch: int = 1, kind: Any = Memory, moved: str = "") -> tuple[PluginTarget, Any]:
    found = target(kind)
    return found, found.open(memory, moved, epoch)


def deliver(found: PluginTarget, first: int, count: int) -> str:
    """Send rows, and return what is to be remembered."""
    prepared = found.prepare(batch(first, count))
    found.send([prepared], place_after(first + count))
    return found.memory_after(prepared)


def test_the_place_that_the_other_side_has_counts() -> None:
    first, place = opened()
    assert place is None
    memory = deliver(first, 0, 3)
    first.close()
    second, place = opened(memory, 2)
    assert place == place_after(3)
    assert [row.after and row.after["id"] for row in decode_rows(Memory.sent[0])] == [0, 1, 2]
    second.close()


def test_a_cursor_that_was_moved_by_hand_wins_over_the_place() -> None:
    first, _ = opened()
    memory = deliver(first, 0, 3)
    first.close()
    moved, place = opened(memory, 2, moved="1700000000000-7")
    assert place is None
    memory = deliver(moved, 1, 1)
    moved.close()
    again, place = opened(memory, 3)
    assert place == place_after(2)
    again.close()


def test_a_place_that_is_gone_is_an_error_with_the_next_step() -> None:
    first, _ = opened()
    memory = deliver(first, 0, 3)
    first.close()
    Memory.place = None
    with pytest.raises(RejectedError, match=r"its place is gone at the other side; say .* `sluice seek shop 1002 POS"):
        opened(memory, 2)


@pytest.mark.parametrize("place", ["x", "[]", json.dumps({"position": "x", "gtids": "", "epoch": 1, "moved": ""})])
def test_a_place_that_is_none_is_an_error(place: str) -> None:
    Memory.place = place
    with pytest.raises(RejectedError, match="its place is not one of Sluice"):
        opened()


def test_a_former_owner_stands_down() -> None:
    owner, _ = opened(epoch=7)
    owner.close()
    with pytest.raises(RejectedError, match="from epoch 7, and this server is in epoch 6: another server has the"):
        opened(epoch=6)


def test_without_a_place_of_its_own_the_cursor_counts() -> None:
    found, place = opened(kind=Repeating)
    assert (place, deliver(found, 0, 1), Memory.place) == (None, "", "")
    found.close()


@pytest.mark.parametrize("error", [KeyError("x"), SystemExit(3)])
def test_whatever_it_raises_is_an_error_of_the_output(error: BaseException) -> None:
    found, _ = opened()
    Memory.raises = error
    with pytest.raises(DeliveryError, match=f"output type kafka has failed: {type(error).__name__}"):
        deliver(found, 0, 1)
    found.close()


def with_marker(*numbers: int, marker: int) -> Given:
    """Rows with these numbers, of which one is a marker."""
    entries = [entry(number) for number in numbers]
    entries[numbers.index(marker)].header.props.add(key=GAP, value="purged")
    data = framed(entries)
    given = batch(numbers[0], len(numbers))
    return Given(given.batch_id, [memoryview(data)], given.from_, given.to, len(numbers), len(numbers), len(data), 0)


def test_a_marker_stops_is_left_out_or_is_sent() -> None:
    given = with_marker(0, 1, 2, marker=1)
    with pytest.raises(MarkerError) as raised:
        target().prepare(given)
    assert raised.value.entry == 1
    skipping = target(on_marker=OnMarker.SKIP).prepare(given)
    assert [row.after and row.after["id"] for row in decode_rows(skipping.content.data)] == [0, 2]
    assert len(skipping.skipped) == 1
    sending = target(on_marker=OnMarker.SEND).prepare(given)
    assert len(decode_rows(sending.content.data)) == 3


class Numbers:
    """A form whose records are the numbers of rows."""

    def records(self, data: bytes) -> Iterator[Record]:
        for number, row in enumerate(decode_rows(data)):
            found = str((row.after or {})["id"])
            if found == "13":
                raise UnfitChangeError(number, row.schema, row.table, "is unlucky")
            yield Record(found.encode() * int(found), entry=number)


def encoder(form: Any, limit: int = 1000, *, markers: bool = False) -> PluginEncoder:
    return PluginEncoder("numbers", form, Router(Rules("t")), limit, markers=markers)


def test_what_a_form_refuses_is_left_out_as_configured() -> None:
    given = batch(12, 3)
    with pytest.raises(UnfitChangeError) as raised:
        encode(encoder(Numbers()), given, OutputSettings())
    assert raised.value.entry == 1
    parts, skipped = encode(encoder(Numbers()), given, OutputSettings(on_refused=OnRefused.SKIP))
    assert [part.values for part in parts] == [[b"12" * 12], [b"14" * 14]]
    assert [list(part.entries) for part in parts] == [[0], [2]]
    assert "is unlucky" in skipped[0].reason


def test_a_record_that_is_too_large_is_left_out_as_configured() -> None:
    given = batch(4, 2)
    with pytest.raises(RecordTooLargeError, match=r"conformance.changes is too large for a record: 5 bytes of 4"):
        encode(encoder(Numbers(), 4), given, OutputSettings())
    parts, skipped = encode(encoder(Numbers(), 4), given, OutputSettings(on_refused=OnRefused.SKIP))
    assert ([part.values for part in parts], len(skipped)) == ([[b"4444"], []], 1)


def test_a_form_sees_markers_only_if_they_are_sent() -> None:
    given = with_marker(1, 2, 3, marker=2)
    parts, _ = encode(encoder(Numbers()), given, OutputSettings(on_marker=OnMarker.SKIP))
    assert [part.values for part in parts] == [[b"1"], [b"333"]]
    parts, _ = encode(encoder(Numbers(), markers=True), given, OutputSettings())
    assert [part.values for part in parts] == [[b"1", b"22", b"333"]]


class Giving:
    """A form that gives what it was made with."""

    def __init__(self, *records: Any) -> None:
        self._records = records

    def records(self, data: bytes) -> Sequence[Any]:
        return self._records


@pytest.mark.parametrize(
    "records",
    [
        [("text",)],
        [(b"", "key")],
        [(b"", None, "", -1)],
        [(b"", None, 5)],
        [(b"", None, "", 0, (("name", "text"),))],
        [(b"", None, "", 0, (), 1), (b"",)],
        [None],
        [(1, 2, 3, 4, 5, 6, 7)],
    ],
)
def test_what_is_no_record_is_an_error_of_the_form(records: list[Any]) -> None:
    with pytest.raises(FormError, match=r"^form numbers "):
        encode(encoder(Giving(*records)), batch(0, 2), OutputSettings())


class Refusing:
    """A form that refuses an entry, or raises what it was made with."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def records(self, data: bytes) -> Sequence[Record]:
        raise self._error


@pytest.mark.parametrize("entry", [-1, 2])
def test_a_form_that_refuses_what_is_not_there_has_failed(entry: int) -> None:
    form = Refusing(UnfitChangeError(entry, "shop", "t", "is unlucky"))
    with pytest.raises(FormError, match=rf"form numbers refuses entry {entry} of a batch that has 2"):
        encode(encoder(form), batch(0, 2), OutputSettings(on_refused=OnRefused.SKIP))


@pytest.mark.parametrize("error", [SystemExit(3), StopIteration(), ValueError("x" * 10_000)])
def test_whatever_a_form_raises_is_an_error_of_the_form(error: BaseException) -> None:
    with pytest.raises(FormError, match=f"^form numbers has failed: {type(error).__name__}: ") as raised:
        encode(encoder(Refusing(error)), batch(0, 2), OutputSettings())
    assert len(str(raised.value)) < 2000
