"""Files of changes, as the parser of a destination reads them into a ring."""

import json
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sluice.instance.sources.api import framed
from sluice.instance.sources.changes.config import ChangesConfig
from sluice.instance.sources.changes.parser import ChangesParser
from sluice.protocol.canal.entry_pb2 import Entry, EntryType
from sluice.protocol.canal.packet_pb2 import Messages
from sluice.protocol.canal.rows import decode_rows
from sluice.protocol.position import Position
from sluice.protocol.wire import varint
from sluice.server.conformance.changes import batch as rows_of
from sluice.server.conformance.changes import entry
from sluice.server.outputs.file.settings import Compression, FileFormat, FileSettings
from sluice.server.outputs.file.target import FileTarget
from sluice.server.outputs.settings import Output
from sluice.server.outputs.target import Place
from sluice.store.archive import read_indexes
from sluice.store.batch import Batch
from sluice.store.cursor import Cursor
from sluice.store.remote import RemotePath
from sluice.store.ring import Flag, Kind, Ring
from tests.waiting import eventually

SERVER = "8a94f357-aab4-11df-86ab-c80aa9429562"
TRANSACTIONS = 30
CREATED = {"bin.000007": 1_700_000_000, "bin.000008": 1_700_000_500}


def position(number: int, n: int = 0) -> Position:
    """The place of the n-th event of a transaction; the second half of them is in another file."""
    file = "bin.000007" if number < TRANSACTIONS // 2 else "bin.000008"
    return Position(SERVER, file, CREATED[file], 100 * number, n)


def gtids(number: int) -> str:
    """What was executed before a transaction."""
    return f"{SERVER}:1-{number}" if number else ""


def transaction(number: int) -> list[tuple[Entry, Position]]:
    """Its begin, two rows and its end, each with its place."""
    found = []
    kinds = (EntryType.TRANSACTIONBEGIN, None, None, EntryType.TRANSACTIONEND)
    for n, kind in enumerate(kinds):
        it = Entry(entryType=kind) if kind is not None else entry(2 * number + n - 1)
        place = position(number, n)
        it.header.logfileName, it.header.logfileOffset, it.header.executeTime = place.file, place.begin + n, number
        found.append((it, place))
    return found


def batch(entries: list[tuple[Entry, Position]], to: Position) -> Batch:
    data = framed(it for it, _ in entries)
    places = b"".join(varint(place.begin) + varint(place.n) for _, place in entries)
    return replace(
        rows_of(0, 0), slices=[memoryview(data)], from_=str(entries[0][1]), to=str(to), positions=places, rows=1
    )


def write(folder: Path | RemotePath, *, compression: str = "none", skip: int = -1) -> list[Position]:
    """Write all transactions, in batches that end anywhere; return the places of the entries."""
    form, packed = FileFormat.PB, Compression(compression)
    settings = FileSettings(client_id=1, folder=folder, form=form, compression=packed)
    target = FileTarget(Output("shop", "copy", settings, shared=False), settings)
    target.open("", "", 1)
    chance = random.Random(3)
    entries = [it for number in range(TRANSACTIONS) for it in transaction(number)]
    places = [place for _, place in entries]
    count = 0
    while entries:
        size = chance.randrange(1, 12)
        some, entries = entries[:size], entries[size:]
        last = some[-1][1]
        number = last.begin // 100
        to = entries[0][1] if entries and entries[0][1].n > 0 else position(number + 1)
        if to.file != last.file:
            to = position(TRANSACTIONS // 2)
        count += 1
        if count != skip:
            target.send([target.prepare(batch(some, to))], Place(str(to), gtids(number + (to.n == 0))))
            target._folder.finish(settings.form)
    return places


class Reading:
    """A destination whose source is a folder, which reads all of it."""

    def __init__(
        self, folder: Path | RemotePath, start: Cursor | None = None, stop: Position | None = None, **settings: Any
    ) -> None:
        config = ChangesConfig.model_validate(
            {"destination": "past", "folder": folder, "at_end": "end", "file_data_dir": folder, **settings}
        )
        self.ring = Ring(1 << 12, 1 << 26)
        self.begin: list[tuple[str, str]] = []
        self.states: list[tuple[str, str]] = []
        self.parser = ChangesParser(
            config,
            self.ring,
            start=start,
            stop=stop,
            on_begin=lambda place, executed: self.begin.append((str(place), str(executed or ""))),
            on_state=lambda *state: self.states.append(state),
        )
        self.parser.start()
        eventually(lambda: self.states and self.states[-1][0] in ("finished", "error"), lambda: self.states)
        self.parser.stop()
        self.parser.join(10)

    @property
    def state(self) -> tuple[str, str]:
        return self.states[-1]

    def entries(self) -> list[Entry]:
        data = b"".join(self.ring.collect(0).slices)
        return [Entry.FromString(it) for it in Messages.FromString(data).messages]

    def place(self, sequence: int, *, after: bool = False) -> Position:
        found = self.ring.after(sequence) if after else self.ring.place(sequence)
        assert found is not None
        source, file, begin, n = found
        return Position.of_parts(self.ring.sources[source][1], self.ring.files[file], begin, n)

    def places(self) -> list[Position]:
        """Of the entries."""
        slots = range(self.ring.first, self.ring.next)
        return [self.place(it) for it in slots if self.ring.slot(it).kind != Kind.ADVANCE]

    def ids(self) -> list[int]:
        return [row.after["id"] for row in decode_rows(b"".join(self.ring.collect(0).slices)) if row.after]


@pytest.mark.parametrize("place", ["", "a=1/bin.000007@1700000000:0:0;b=2/bin.000001@1700000000:0:0"])
def test_files_whose_places_cannot_be_read_on_are_an_error_that_names_them(tmp_path: Path, place: str) -> None:
    write(tmp_path)
    first = min(tmp_path.glob("*.index"))
    found = json.loads(first.read_text())
    first.write_text(json.dumps(found | {"from": place, "to": place}))
    state, text = Reading(tmp_path).state
    assert state == "error"
    assert f"{tmp_path / found['file']} has places that cannot be read on, such as those of a group" in text


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_entries_have_the_places_of_their_source(tmp_path: Path, compression: str) -> None:
    places = write(tmp_path, compression=compression)
    found = Reading(tmp_path)
    assert found.state == ("finished", "")
    assert found.begin == [(str(places[0]), "")]
    assert found.places() == places
    assert found.ids() == list(range(2 * TRANSACTIONS))
    boundaries = [
        found.place(it, after=True)
        for it in range(found.ring.first, found.ring.next)
        if found.ring.slot(it).flags & Flag.BOUNDARY and found.ring.slot(it).kind != Kind.ADVANCE
    ]
    assert [it.n for it in boundaries] == [0] * TRANSACTIONS
    assert [it.begin for it in boundaries] == [100 * number for number in range(1, TRANSACTIONS + 1)]


def test_the_gtids_are_those_of_the_source(tmp_path: Path) -> None:
    write(tmp_path)
    ring = Reading(tmp_path).ring
    runs = ring.gtid_runs(ring.first, ring.next)
    assert {ring.gtid_sources[number][1][1] for number, _, _ in runs} == {""}
    assert [it for _, first, last in runs for it in range(first, last + 1)] == list(range(1, TRANSACTIONS + 1))


def test_it_knows_at_a_place_what_was_executed_before_its_file_or_what_the_cursor_says(tmp_path: Path) -> None:
    write(tmp_path)
    index = json.loads(sorted(tmp_path.glob("*.index"))[4].read_text())
    place = Position.parse(index["from"])
    assert Reading(tmp_path, Cursor.at(place)).begin == [(str(place), gtids(place.begin // 100))]
    there = position(20)
    assert Reading(tmp_path, Cursor.at(there, gtids(20))).begin == [(str(there), gtids(20))]


@pytest.mark.parametrize("n", [0, 1, 3])
def test_it_begins_and_ends_at_any_place(tmp_path: Path, n: int) -> None:
    places = write(tmp_path)
    for number in range(0, TRANSACTIONS - 4, 3):
        start, stop = position(number, n), position(number + 3, n)
        found = Reading(tmp_path, Cursor.at(start), stop)
        assert found.state == ("finished", "")
        assert found.places() == [it for it in places if start <= it < stop]
        assert found.begin[0][0] == str(start)


def test_a_filter_leaves_out_tables_and_keeps_places(tmp_path: Path) -> None:
    write(tmp_path)
    found = Reading(tmp_path, filter_regex="other\\..*")
    assert {it.entryType for it in found.entries()} == {EntryType.TRANSACTIONBEGIN, EntryType.TRANSACTIONEND}
    assert found.place(found.ring.next - 1, after=True) == position(TRANSACTIONS)


def test_a_place_that_the_files_do_not_have_is_refused(tmp_path: Path) -> None:
    write(tmp_path)
    other = replace(position(3), source="9a94f357-aab4-11df-86ab-c80aa9429562")
    assert "is not a place of files of changes" in Reading(tmp_path, Cursor.at(other)).state[1]
    later = replace(position(3), file="bin.000009")
    assert "is not a place of files of changes" in Reading(tmp_path, Cursor.at(later)).state[1]
    before = replace(position(0), file="bin.000006", created=1_600_000_000)
    assert "changes are missing" in Reading(tmp_path, Cursor.at(before)).state[1]


def test_a_missing_file_is_an_error_unless_gaps_are_taken(tmp_path: Path) -> None:
    places = write(tmp_path)
    index = sorted(tmp_path.glob("*.index"))[3]
    lost = json.loads(index.read_text())
    index.unlink()
    found = Reading(tmp_path)
    assert f"begins at {lost['to']}, and the file before it ends at {lost['from']}: files are missing" in found.state[1]
    found = Reading(tmp_path, auto_reset_latest_pos_mode=True)
    assert found.state == ("finished", "")
    (marker,) = (it for it in found.entries() if "files are missing" in str(it.header.props))
    assert marker.header.logfileName == "bin.000007"
    missing = [it for it in places if Position.parse(lost["from"]) <= it < Position.parse(lost["to"])]
    assert len(missing) > 0
    assert len(found.places()) == len(places) - len(missing) + 1


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_damage_is_an_error_that_names_the_file(tmp_path: Path, compression: str) -> None:
    write(tmp_path, compression=compression)
    (file,) = tmp_path.glob("0000000003-*.pb*")
    data = file.read_bytes()
    chance = random.Random(4)
    for _ in range(20):
        at = chance.randrange(len(data))
        file.write_bytes(data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :])
        state, text = Reading(tmp_path).state
        assert (state, file.name in text) in {("error", True), ("finished", False)}, text  # zstd's head has spare bits
        assert compression == "zstd" or state == "error"
    file.write_bytes(data[: len(data) // 2])
    assert file.name in Reading(tmp_path).state[1]


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_a_file_that_a_copy_has_cut_is_an_error(tmp_path: Path, compression: str) -> None:
    write(tmp_path, compression=compression)
    (file,) = tmp_path.glob("0000000003-*.pb*")
    file.write_bytes(b"")
    found = Reading(tmp_path)
    assert found.state[0] == "error"
    assert re.search(rf"{file.name}: it has 0 bytes before compression, and its index says \d+", found.state[1])


@pytest.mark.parametrize(
    "damage", ["", "[]", "{}", '{"file": "../x"}', "[" * 100_000], ids=["empty", "list", "nothing", "path", "deep"]
)
def test_a_damaged_index_is_an_error_that_names_it(tmp_path: Path, damage: str) -> None:
    write(tmp_path)
    index = sorted(tmp_path.glob("*.index"))[1]
    index.write_text(damage)
    assert f"{index}: it is no index" in Reading(tmp_path).state[1]


def test_only_the_indexes_of_later_files_are_read_while_it_waits(tmp_path: Path) -> None:
    write(tmp_path)
    indexes = sorted(tmp_path.glob("*.index"))
    indexes[0].write_text("damaged")
    assert [f"{it.file.partition('.')[0]}.index" for it in read_indexes(tmp_path, 1)] == [it.name for it in indexes[1:]]
    assert read_indexes(tmp_path, len(indexes)) == []


def test_an_index_names_no_file_elsewhere(tmp_path: Path) -> None:
    write(tmp_path)
    index = sorted(tmp_path.glob("*.index"))[1]
    index.write_text(index.read_text().replace('"file": "', '"file": "../'))
    assert "it names the file '../" in Reading(tmp_path).state[1]
