"""What is remembered of XA transactions that are prepared, and how far back a cursor goes for them."""

import pytest

from sluice.instance.sources.mysql import xa
from sluice.instance.sources.mysql.xa import PreparedTransactions, prepared_xid, resolved_xid
from sluice.protocol.errors import DecodeError
from sluice.protocol.position import Position
from sluice.store import restarts
from sluice.store.restarts import Restarts


def place(begin: int, n: int = 0, *, file: int = 1, created: int = 1_700_000_000) -> Position:
    return Position("source", f"bin.{file:06d}", created + file, begin, n)


@pytest.fixture
def noted() -> Restarts:
    return Restarts()


@pytest.fixture
def prepared(noted: Restarts) -> PreparedTransactions:
    """Begun at 100, with nothing open."""
    made = PreparedTransactions(noted, most_bytes=100)
    made.begin(place(100), None)
    return made


def test_each_place_needs_the_oldest_one_that_is_open_there(prepared: PreparedTransactions, noted: Restarts) -> None:
    prepared.add("a", place(200), None, place(200, 5))
    prepared.add("b", place(300), None, place(300, 5))
    prepared.resolve("a", place(400, 7))
    prepared.resolve("b", place(500, 1))
    needed = {begin: noted.at(place(begin)) for begin in (100, 200, 300, 400, 500, 600)}
    assert needed == {100: None, 200: None, 300: place(200), 400: place(200), 500: place(300), 600: None}
    assert noted.at(place(400, 6)) == place(200)  # within the rows of the XA COMMIT
    assert noted.last is None


def test_what_comes_again_after_a_break_is_noted_again(prepared: PreparedTransactions, noted: Restarts) -> None:
    for _ in range(2):
        prepared.add("a", place(200), None, place(200, 5))
        assert noted.at(place(300)) == place(200)
        prepared.resolve("a", place(400, 7))
        assert noted.at(place(500)) is None
    prepared.add("a", place(200), None, place(200, 5))
    assert noted.at(place(500)) == place(200)


def test_a_saved_restart_counts_until_its_transaction_is_known_and_ends(
    prepared: PreparedTransactions, noted: Restarts
) -> None:
    prepared.begin(place(100, file=2), place(900))
    assert prepared.has_unknown
    assert noted.at(place(100, file=2)) == place(900)
    prepared.add("b", place(200, file=2), None, place(200, 5, file=2))
    prepared.discover({"c": place(950)}, place(300, 1, file=2))
    assert prepared.has_unknown
    prepared.discover({"a": place(900), "b": place(800)}, place(300, 1, file=2))
    assert prepared.find("a", place(300, file=2)) == place(900)
    assert prepared.find("b", place(300, file=2)) == place(200, file=2)  # what was seen counts
    prepared.resolve("a", place(300, 9, file=2))
    assert noted.at(place(400, file=2)) == place(950)


def test_a_saved_restart_that_is_found_nowhere_does_not_count_any_more(
    prepared: PreparedTransactions, noted: Restarts
) -> None:
    prepared.begin(place(100), place(50))
    prepared.complete(place(200, 1))
    assert prepared.is_complete
    assert noted.at(place(300)) is None


def test_events_are_kept_up_to_a_limit_the_newest_ones(prepared: PreparedTransactions) -> None:
    for number in range(4):
        prepared.add(f"{number}", place(200 + number), b"x" * 30, place(200 + number, 5))
    assert [prepared.kept(f"{number}") is not None for number in range(4)] == [False, True, True, True]
    assert prepared.find("0", place(900)) == place(200)
    prepared.resolve("2", place(900))
    prepared.add("4", place(950), b"x" * 40, place(950, 5))
    assert prepared.kept("1") == b"x" * 30
    prepared.add("5", place(960), b"x", place(960, 5))
    assert prepared.kept("1") is None


def test_no_more_than_so_many_are_remembered_and_the_oldest_stay(
    prepared: PreparedTransactions, noted: Restarts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(xa, "MOST", 2)
    prepared.complete(place(150))
    for number in range(3):
        prepared.add(f"{number}", place(200 + number), b"x", place(200 + number, 5))
    assert [prepared.find(f"{number}", place(900)) is not None for number in range(3)] == [True, True, False]
    assert not prepared.is_complete
    prepared.discover({"7": place(120)}, place(900))
    assert prepared.find("7", place(900)) is None
    assert noted.at(place(900)) == place(200)


def test_another_history_has_nothing_of_this_one(prepared: PreparedTransactions, noted: Restarts) -> None:
    prepared.add("a", place(200), None, place(200, 5))
    other = place(300, created=1_600_000_000)
    assert prepared.find("a", other) is None
    assert noted.at(other) is None
    noted.note(other, None)
    assert noted.at(place(300)) is None


def test_of_many_changes_the_newest_are_remembered(noted: Restarts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restarts, "MOST", 4)
    for begin in range(100, 1100, 100):
        noted.note(place(begin), place(begin - 50))
    assert noted.at(place(1000)) == noted.at(place(5000)) == place(950)
    assert noted.at(place(950)) == place(850)
    assert noted.at(place(600)) is None  # not what is after it
    assert noted.last == place(950)


@pytest.mark.parametrize(
    ("body", "xid"),
    [
        (b"\0\3\0\0\0\3\0\0\0\3\0\0\0onetwo", "X'6f6e65',X'74776f',3"),
        (b"\0\1\0\0\0\1\0\0\0\0\0\0\0a", "X'61',X'',1"),
        (b"\1\1\0\0\0\1\0\0\0\0\0\0\0a", ""),
    ],
    ids=["two parts", "one part", "one phase"],
)
def test_the_xid_of_a_prepare_is_that_of_its_commit(body: bytes, xid: str) -> None:
    assert prepared_xid(body) == xid
    with pytest.raises(DecodeError, match="too short"):
        prepared_xid(body[:-1])


@pytest.mark.parametrize(
    ("sql", "xid"),
    [
        (b"XA COMMIT X'61',X'',1", "X'61',X'',1"),
        (b"XA ROLLBACK X'61',X'62',7", "X'61',X'62',7"),
        (b"XA START X'61',X'',1", ""),
        (b"XA COMMIT", ""),
        (b"CREATE TABLE xa (id INT)", ""),
    ],
)
def test_which_statements_end_an_xa_transaction(sql: bytes, xid: str) -> None:
    head = bytes(8) + b"\2" + bytes(4)
    assert resolved_xid(head + b"db\0" + sql) == xid
    assert resolved_xid(head[:5]) == ""
