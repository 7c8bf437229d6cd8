"""The transactions of files of changes, as `sluice replay` applies them."""

import json
from pathlib import Path

import pytest

from sluice.protocol.canal.entry_pb2 import Entry, EventType, RowChange
from sluice.protocol.canal.rows import decode_rows
from sluice.protocol.errors import BadParameterError, MarkerError, PurgedError, SourceError
from sluice.protocol.position import Position
from sluice.server.replay import Archive, End, Place
from tests.unit import test_changes_source
from tests.unit.test_changes_source import SERVER, TRANSACTIONS, position, write


def at(number: int) -> Place:
    """Where a transaction begins."""
    place = position(number)
    return Place(place.file_number, place.begin)


def found(folder: Path, done: int = 0, after: Place | None = None, end: End | None = None) -> list[int]:
    """The transactions that are given, by the rows that each of them has."""
    given = list(Archive(folder).transactions(done, after, end or End()))
    numbers = [it.commit_ts for it in given]
    assert numbers == sorted(set(numbers))
    ids = [[row.after["id"] for row in decode_rows(b"".join(e.data for e in it.entries)) if row.after] for it in given]
    assert ids == [[it[0], it[0] + 1] for it in ids]
    return [it[0] // 2 for it in ids]


def test_transactions_are_whole_although_files_end_inside_them(tmp_path: Path) -> None:
    write(tmp_path)
    assert found(tmp_path) == list(range(TRANSACTIONS))


def test_each_is_given_again_with_the_same_number_wherever_it_goes_on(tmp_path: Path) -> None:
    write(tmp_path)
    every = [it.commit_ts for it in Archive(tmp_path).transactions(0, None, End())]
    for done in every:
        again = [it.commit_ts for it in Archive(tmp_path).transactions(done, at(3), End())]
        assert [it for it in again if it > done] == [it for it in every[3:] if it > done]


def test_a_job_of_another_folder_is_refused(tmp_path: Path) -> None:
    ours, others = tmp_path / "ours", tmp_path / "others"
    write(ours)
    write(others, skip=1)  # its second file is the third one of the first folder
    given = list(Archive(ours).transactions(0, None, End()))
    for it in given:
        Archive(ours).check_job(it.commit_ts, it.offset)
    number = next(it for it in given if it.commit_ts >> 32 == 2)
    with pytest.raises(BadParameterError, match=r"applied changes of another folder: its file 2 .*a --job of its own"):
        Archive(others).check_job(number.commit_ts, number.offset)
    Archive(others).check_job(0, -1)  # a new job
    Archive(others).check_job(number.commit_ts, 2)  # one of a version that kept less


def test_it_begins_after_a_place_and_ends_before_another_or_at_a_time(tmp_path: Path) -> None:
    write(tmp_path)
    for number in range(0, TRANSACTIONS, 7):
        assert found(tmp_path, after=at(number)) == list(range(number, TRANSACTIONS))
        assert found(tmp_path, end=End(at(number))) == list(range(number))
        if number:
            assert found(tmp_path, end=End(None, number)) == list(range(number))


def test_files_that_end_before_the_time_or_place_say_so(tmp_path: Path) -> None:
    write(tmp_path)
    archive = Archive(tmp_path)
    last = archive.files[-1].last_time
    for end in (End(), End(at(TRANSACTIONS)), End(at(3)), End(None, last), End(None, 1)):
        assert archive.ends_before(end) == ""
    for end in (End(at(TRANSACTIONS)._replace(offset=100 * TRANSACTIONS + 1)), End(None, last + 1)):
        assert archive.ends_before(end).startswith(f"The files end at {position(TRANSACTIONS)}, before --until.")


def test_nothing_is_given_when_files_are_missing_before_the_place(tmp_path: Path) -> None:
    write(tmp_path)
    for index in sorted(tmp_path.glob("*.index"))[:3]:
        index.unlink()
    with pytest.raises(PurgedError, match=r"begins at .*, after the given place: changes are missing"):
        found(tmp_path, after=at(0))
    with pytest.raises(PurgedError, match=r"after the last one that was applied: changes may be missing"):
        found(tmp_path, done=(2 << 32) + 1)


def test_a_place_after_the_end_of_the_files_is_an_error(tmp_path: Path) -> None:
    write(tmp_path)
    assert found(tmp_path, after=at(TRANSACTIONS)) == []
    with pytest.raises(PurgedError, match="before the given place: there is nothing after it yet"):
        found(tmp_path, after=Place(71, 4))


def test_a_place_is_refused_when_the_source_was_switched_in_the_files(tmp_path: Path) -> None:
    write(tmp_path)
    for index in sorted(tmp_path.glob("*.index"))[5:]:
        index.write_text(index.read_text().replace(SERVER, "9a94f357-aab4-11df-86ab-c80aa9429562"))
    for after, end in (at(3), End()), (None, End(at(3))):
        with pytest.raises(SourceError, match="has changes of several servers or histories"):
            list(Archive(tmp_path).transactions(0, after, end))


def test_a_transaction_of_which_the_begin_is_missing_is_not_applied(tmp_path: Path) -> None:
    write(tmp_path)
    indexes = sorted(tmp_path.glob("*.index"))
    number = next(it for it, index in enumerate(indexes) if not json.loads(index.read_text())["from"].endswith(":0"))
    first = Position.parse(json.loads(indexes[number].read_text())["from"])
    for index in indexes[:number]:
        index.unlink()
    with pytest.raises(PurgedError, match=r"inside a transaction: give a place by --after"):
        found(tmp_path)
    with pytest.raises(PurgedError, match=r"after the given place: changes are missing"):
        found(tmp_path, after=Place(first.file_number, first.begin))
    following = first.begin // 100 + 1
    assert found(tmp_path, after=at(following)) == list(range(following, TRANSACTIONS))


def test_it_stops_where_a_file_is_missing(tmp_path: Path) -> None:
    write(tmp_path)
    sorted(tmp_path.glob("*.index"))[5].unlink()
    with pytest.raises(PurgedError, match=r"and the file before it ends at .*: files are missing between them"):
        found(tmp_path)


def test_a_change_that_was_logged_as_a_statement_is_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = test_changes_source.transaction

    def transaction(number: int) -> list[tuple[Entry, Position]]:
        entries = made(number)
        if number == 7:
            logged = RowChange(eventType=EventType.UPDATE, sql="UPDATE shop.t SET n = 1")
            entries[1][0].header.eventType = EventType.UPDATE
            entries[1][0].storeValue = logged.SerializeToString()
        return entries

    monkeypatch.setattr(test_changes_source, "transaction", transaction)
    write(tmp_path)
    with pytest.raises(MarkerError, match="logged as a statement, without its rows: UPDATE shop"):
        found(tmp_path)


def test_a_folder_without_files_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="has no whole file of changes"):
        Archive(tmp_path)


@pytest.mark.parametrize("text", ["", "x", "mysql-bin.000001", "mysql-bin:4", "mysql-bin.000001:x"])
def test_what_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(BadParameterError, match="not FILE:OFFSET, nor a position"):
        Place.parse(text)


def test_places_and_times_are_read() -> None:
    assert Place.parse("mysql-bin.000017:4711") == Place(17, 4711)
    assert Place.parse("a/bin.000018@3:47:1") == Place(18, 47)
    assert End.parse("2026-11-27T14:05:00+00:00") == End(None, 1795788300000)
    assert End.parse("mysql-bin.000017:4711") == End(Place(17, 4711))
