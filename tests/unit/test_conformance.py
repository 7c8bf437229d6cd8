"""The trials that authors of sources, outputs and forms run: the example passes, and each seeded fault is named."""

import json
import os
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from sluice_example.form import Rows
from sluice_example.output import Journal, JournalSettings, read
from sluice_example.source import JsonLines, JsonLinesSettings

from sluice.instance.sources.api import Piece, SourceError
from sluice.server.conformance import form_faults, output_faults, source_faults
from sluice.server.outputs.api import Batch, DeliveryError
from sluice.server.outputs.forms.api import Record, decode_changes

EXTENDED = pytest.mark.extended


@pytest.fixture(autouse=True)
def _without_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes are killed here, and no machine: what a disk would add takes long."""
    monkeypatch.setattr(os, "fsync", lambda _number: None)


def faults_of(kind: Any, folder: Path, settings: Any = JournalSettings) -> set[str]:
    file = folder / "journal"

    def ids() -> list[int]:
        return [int(json.loads(line)["data"][0]["id"]) for line in read(file).splitlines()]

    return {fault.promise for fault in output_faults(kind, settings(file=file), ids)}


class Losing(Journal):
    """Loses the last batch of several."""

    def send(self, batches: Sequence[Batch], place: str) -> None:
        super().send(batches[:-1] if len(batches) > 1 else batches, place)


class Reversing(Journal):
    """Sends batches in another order."""

    def send(self, batches: Sequence[Batch], place: str) -> None:
        super().send(list(reversed(batches)), place)


class Buffering(Journal):
    """Confirms what it sends with the next call."""

    held: tuple[Sequence[Batch], str] = ((), "")

    def send(self, batches: Sequence[Batch], place: str) -> None:
        held, self.held = self.held, (batches, place)
        if held[1]:
            super().send(*held)

    def close(self) -> None:
        if self.held[1] and self._mine:
            super().send(*self.held)
        self.held = ((), "")
        super().close()


class Parting(Journal):
    """Writes the place apart from the changes, with the next ones."""

    place = ""

    def send(self, batches: Sequence[Batch], place: str) -> None:
        super().send(batches, self.place or place)
        self.place = place


class Sharing(Journal):
    """Lets former owners write."""

    def send(self, batches: Sequence[Batch], place: str) -> None:
        self._mine = self._read()
        super().send(batches, place)


class Forgetting(Journal):
    """Accepts any epoch."""

    def open(self, epoch: int) -> str | None:
        return super().open(10**6)


class Deaf(Journal):
    """Goes on when it is abandoned."""

    def abandon(self) -> None:
        pass


class Crashing(Journal):
    """Does not take large batches."""

    def send(self, batches: Sequence[Batch], place: str) -> None:
        if any(len(batch.records) > 1000 for batch in batches):
            raise DeliveryError("too much")
        super().send(batches, place)


def test_the_example_of_an_output_keeps_its_promises(tmp_path: Path) -> None:
    assert faults_of(Journal, tmp_path) == set()


@pytest.mark.parametrize(
    ("kind", "promise"),
    [
        (Losing, "order"),
        pytest.param(Reversing, "order", marks=EXTENDED),
        (Buffering, "kill"),
        pytest.param(Parting, "kill", marks=EXTENDED),
        (Sharing, "fencing"),
        pytest.param(Forgetting, "fencing", marks=EXTENDED),
        pytest.param(Deaf, "abandon", marks=EXTENDED),
        pytest.param(Crashing, "large", marks=EXTENDED),
    ],
)
def test_a_fault_of_an_output_is_named(kind: Any, promise: str, tmp_path: Path) -> None:
    assert promise in faults_of(kind, tmp_path)


class Version2(Journal):
    api = 2


class Vague(Journal):
    exactly_once: Any = None


@pytest.mark.parametrize(("kind", "promise"), [(Version2, "api"), (Vague, "class")])
def test_what_is_no_output_is_said_before_it_is_tried(kind: Any, promise: str, tmp_path: Path) -> None:
    assert faults_of(kind, tmp_path) == {promise}
    assert not list(tmp_path.iterdir())


class Counting(Rows):
    """Numbers its records."""

    count = 0

    def records(self, data: bytes) -> Iterator[Record]:
        for record in super().records(data):
            self.count += 1
            yield record._replace(value=b"%d" % self.count)


class Scattering(Rows):
    """Chooses a partition by the value."""

    def records(self, data: bytes) -> Iterator[Record]:
        for number, record in enumerate(super().records(data)):
            yield record._replace(partition=number)


class Random(Rows):
    def records(self, data: bytes) -> Iterator[Record]:
        for record in super().records(data):
            yield record._replace(value=random.randbytes(8))


class Falling(Rows):
    """Gives the records of the last entry first."""

    def records(self, data: bytes) -> Iterator[Record]:
        yield from reversed(list(super().records(data)))


class Eager(Rows):
    """Takes every entry for rows."""

    def records(self, data: bytes) -> Iterator[Record]:
        yield from (Record(change.rows()[0].table.encode()) for change in decode_changes(data))


class Texts(Rows):
    def records(self, data: bytes) -> Iterator[Any]:
        yield from ((record.value.decode(), record.key) for record in super().records(data))


def test_the_example_of_a_form_keeps_its_promises() -> None:
    assert form_faults(Rows) == []


@pytest.mark.parametrize(
    ("kind", "promise"),
    [
        (Counting, "deterministic"),
        (Random, "deterministic"),
        (Scattering, "keys"),
        (Falling, "entries"),
        (Eager, "entries"),
        (Texts, "entries"),
    ],
)
def test_a_fault_of_a_form_is_named(kind: Any, promise: str) -> None:
    assert promise in {fault.promise for fault in form_faults(kind)}


def faults_of_source(kind: Any, folder: Path) -> set[str]:
    file = folder / "changes.jsonl"
    file.touch()

    def write(first: int, count: int, size: int) -> None:
        with file.open("a") as lines:
            for number in range(first, first + count):
                row = {"id": number, "text": "x" * size}
                lines.write(json.dumps({"schema": "shop", "table": "t", "type": "INSERT", "row": row}) + "\n")

    def spoil() -> None:
        with file.open("ab") as lines:
            lines.write(b'{"schema": "shop", "row": [\xff]}\n')

    settings = JsonLinesSettings(file=file)
    return {fault.promise for fault in source_faults("json-lines", kind, settings, write, spoil)}


class Skipping(JsonLines):
    """Goes on after the next line when it is started again."""

    def read(self, offset: int) -> Iterator[Piece | None]:
        pieces = super().read(offset)
        if offset:
            next(pieces)
        return pieces


class Dating(JsonLines):
    """Writes the time of reading into its entries."""

    reads = 0

    def read(self, offset: int) -> Iterator[Piece | None]:
        Dating.reads += 1
        for piece in super().read(offset):
            yield piece and piece._replace(data=piece.data + b"\x08" + bytes([Dating.reads % 100]))


class Hoarding(JsonLines):
    """Reads all that there is at once."""

    def read(self, offset: int) -> Iterator[Piece | None]:
        pieces, end = super().read(offset), self.end()
        while offset < end:
            held = []
            while offset < end and (piece := next(pieces)):
                held.append(piece)
                offset = piece.end
            yield from held
        yield from pieces


class Ending(JsonLines):
    """Ends where there is nothing at present."""

    def read(self, offset: int) -> Iterator[Piece | None]:
        for piece in super().read(offset):
            if piece is None:
                return
            yield piece


class Renaming(JsonLines):
    """Has a history for each object."""

    def history(self) -> str:
        return str(id(self))


class Trusting(JsonLines):
    """Fails on input that it does not expect."""

    def read(self, offset: int) -> Iterator[Piece | None]:
        try:
            yield from super().read(offset)
        except SourceError:
            raise KeyError("row") from None


class Passing(JsonLines):
    """Passes over what it cannot read."""

    def read(self, offset: int) -> Iterator[Piece | None]:
        try:
            yield from super().read(offset)
        except SourceError:
            while True:
                yield None


class Standing(JsonLines):
    """Names the place before a piece, not the one after it."""

    def read(self, offset: int) -> Iterator[Piece | None]:
        for piece in super().read(offset):
            yield piece and piece._replace(end=offset)
            offset = piece.end if piece else offset


def test_the_example_of_a_source_keeps_its_promises(tmp_path: Path) -> None:
    assert faults_of_source(JsonLines, tmp_path) == set()


@pytest.mark.parametrize(
    ("kind", "promise"),
    [
        (Skipping, "resume"),
        pytest.param(Dating, "resume", marks=EXTENDED),
        (Hoarding, "memory"),
        pytest.param(Ending, "growth", marks=EXTENDED),
        pytest.param(Renaming, "resume", marks=EXTENDED),
        pytest.param(Trusting, "hostile", marks=EXTENDED),
        (Passing, "hostile"),
        pytest.param(Standing, "order", marks=EXTENDED),
    ],
)
def test_a_fault_of_a_source_is_named(kind: Any, promise: str, tmp_path: Path) -> None:
    assert promise in faults_of_source(kind, tmp_path)
