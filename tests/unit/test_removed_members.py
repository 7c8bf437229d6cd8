"""Members that are removed from a group: who lacks what of them, and where these clients go on."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice.protocol.cut import Cut, executed_text
from sluice.protocol.errors import GoneError
from sluice.protocol.gtid import MariadbGtidSet
from sluice.protocol.position import Position
from sluice.store.cursor import Cursor, StoredClient
from sluice.store.log.files import write_executed
from sluice.store.log.log import Limits, Log
from sluice.store.moves import By, Gate, Move, MoveState, Reason
from tests.unit.test_chain import CLIENT, OTHER, Merged, cut
from tests.unit.test_log_of_group import pieces

ME = By("me", 5.0)
BEGIN = cut(a=2, b=2, c=3)


def gtids(**numbers: int) -> str:
    return executed_text({name: MariadbGtidSet.parse(f"0-101-{number}") for name, number in numbers.items()})


def served(begin: Cut = BEGIN) -> Merged:
    """A group with readers, and one transaction of `a`."""
    server = Merged(begin)
    server.cursors.track.catches_up = True
    server.cursors.track.gtids["c"] = MariadbGtidSet.parse("0-101-3")
    server.put("a")
    return server


def add(server: Merged, place: Position | None, executed: str = "", client_id: int = CLIENT) -> None:
    """A client that comes with a cursor."""
    server.cursors.restore(StoredClient(client_id, cursor=None if place is None else Cursor.at(place, executed)), 0)
    server.cursors.clients.take_changes()


def behind(server: Merged) -> Cursor:
    return server.cursors.readers.behind[CLIENT]


def gap(before: Cut, after: Cut, *names: str) -> Move:
    """What is written down of a client that lacks something of some members."""
    detail = ", ".join(f"member {it} was removed" for it in names)
    return Move(Reason.REMOVE, str(before), str(after), "me", 5000, MoveState.OPEN, detail=detail, members=names)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    """It begins with c2, and ends after it, where the ring begins."""
    with Log(tmp_path, "shop", Limits()) as log:
        server = Merged(cut(a=2, b=2, c=2))
        assert server.cursors.track.floor is not None
        log.begin(server.cursors.track.floor, write_executed(server.cursors.track.gtids), {})
        server.put("c")
        log.append(pieces(server))
        assert log.end == BEGIN
        yield log


# --- while the group is served ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [1, 2])
def test_a_client_behind_the_ring_goes_on_where_that_begins_in_the_member_and_is_told(first: int) -> None:
    server, before = served(), cut(a=first, b=2, c=1)
    add(server, before, gtids(a=first, b=2, c=1))
    assert server.cursors.places.pass_removed({"c"}, ME) == [CLIENT]
    after = cut(a=first, b=2, c=3)
    assert (behind(server).position, behind(server).gtid) == (after, gtids(a=first, b=2, c=3))
    assert server.cursors.gate.gaps(CLIENT) == (gap(before, after, "c"),)
    assert list(server.cursors.clients.take_changes().clients) == [CLIENT]
    assert server.stored().cursor == Cursor.at(after, gtids(a=first, b=2, c=3))
    assert server.cursors.places.pass_removed({"c"}, ME) == [], "it is told once"


@pytest.mark.parametrize(
    ("place", "names"),
    [
        (cut(a=2, b=2, c=3), {"c"}),
        (cut(a=1, b=2, c=4), {"c"}),
        (cut(a=1, b=2, c=1), set[str]()),
        (cut(a=1, b=2, c=1), {"d"}),
        (cut(a=1).places["a"], {"c"}),
    ],
    ids=["served", "further in it", "none removed", "another one", "of one source"],
)
def test_a_client_that_lacks_nothing_of_the_members_is_left_alone(place: Position, names: set[str]) -> None:
    server = served()
    add(server, place)
    before = server.stored().cursor
    assert server.cursors.places.pass_removed(names, ME) == []
    assert server.stored().cursor == before
    assert server.cursors.gate.gaps(CLIENT) == ()


def test_a_client_in_another_history_of_a_member_stays_where_it_is() -> None:
    server = served()
    elsewhere = Position("another", "bin.000001", 7, 4, 0)
    before = Cut({**cut(a=1, b=2).places, "c": elsewhere})
    add(server, before, gtids(a=1))
    assert server.cursors.places.pass_removed({"c"}, ME) == []
    assert behind(server).position == before


def test_a_client_gets_what_the_log_has_of_the_member(log: Log) -> None:
    server = served()
    server.cursors.track.log = log
    add(server, cut(a=2, b=2, c=2), client_id=OTHER)
    add(server, cut(a=2, b=2, c=0), gtids(a=2, b=2))
    assert server.cursors.places.pass_removed({"c"}, ME) == [CLIENT], "the other one lacks nothing"
    after = cut(a=2, b=2, c=2)
    assert behind(server) == Cursor.at(after, gtids(a=2, b=2)), "what is executed there is unknown"
    assert server.cursors.gate.gaps(CLIENT) == (gap(cut(a=2, b=2, c=0), after, "c"),)


def test_that_a_member_has_ended_is_written_down_for_each_client_and_is_no_gap() -> None:
    server = served()
    add(server, BEGIN)
    server.put("c")
    server.cursors.places.note_removed({"b", "c"}, ME)
    ((move,),) = server.cursors.gate.moves.values()
    end = str(cut(b=2, c=4))
    assert (move.before, move.after, move.rows, move.held, move.is_gap) == (end, end, 0, True, False)
    assert move.detail == "member b was removed, member c was removed"
    assert list(server.cursors.clients.take_changes().clients) == [CLIENT]


def test_nothing_is_written_down_of_members_that_the_stream_does_not_have() -> None:
    server = served()
    add(server, BEGIN)
    server.cursors.places.note_removed({"d"}, ME)
    assert server.cursors.gate.moves == {}
    assert list(server.cursors.clients.take_changes().clients) == []


# --- after they were removed while nothing was served ----------------------------------------------------------------


def later(gate: Gate | None = None) -> Merged:
    """The group without `c`."""
    server = served(cut(a=2, b=2))
    for client_id, moves in () if gate is None else gate.moves.items():
        for move in moves:
            server.cursors.gate.jump(client_id, move)
    return server


def test_a_client_that_may_lack_something_is_told_and_keeps_its_place() -> None:
    server, place = later(), cut(a=2, b=2, c=1)
    add(server, place, gtids(a=2, b=2, c=1))
    assert server.cursors.places.pass_removed_before({"c"}, ME) == [CLIENT]
    assert server.stored().cursor == Cursor.at(place, gtids(a=2, b=2, c=1))
    assert server.cursors.gate.gaps(CLIENT) == (gap(place, place, "c"),)
    assert list(server.cursors.clients.take_changes().clients) == [CLIENT]


@pytest.mark.parametrize(
    ("place", "names"),
    [(None, {"c"}), (cut(a=2, b=2), {"c"}), (cut(a=2, b=2, c=1), set[str]())],
    ids=["no place", "not in it", "none removed"],
)
def test_a_client_that_has_nothing_of_the_members_is_not_told(place: Position | None, names: set[str]) -> None:
    server = later()
    add(server, place)
    assert server.cursors.places.pass_removed_before(names, ME) == []
    assert server.cursors.gate.gaps(CLIENT) == ()


@pytest.mark.parametrize(("had", "told"), [(4, []), (3, [CLIENT])], ids=["all", "not all"])
def test_a_client_is_not_told_that_has_come_to_where_the_member_is_known_to_have_ended(
    had: int, told: list[int]
) -> None:
    server = served()
    add(server, BEGIN)
    server.put("c")
    server.cursors.places.note_removed({"b", "c"}, ME)
    again = later(server.cursors.gate)
    add(again, cut(a=2, b=2, c=had))
    assert again.cursors.places.pass_removed_before({"b", "c"}, ME) == told
    assert [it.detail for it in again.cursors.gate.gaps(CLIENT)] == ["member c was removed"] * len(told)


@pytest.mark.parametrize(("had", "goes_on"), [(0, 2), (2, None), (3, None)], ids=["before it", "in it", "at its end"])
def test_a_client_goes_on_in_the_log_if_that_has_more_of_the_member(log: Log, had: int, goes_on: int | None) -> None:
    server = later()
    server.cursors.track.log = log
    add(server, cut(a=2, b=2, c=had))
    assert server.cursors.places.pass_removed_before({"c"}, ME) == ([] if goes_on is None else [CLIENT])
    expected = cut(a=2, b=2, c=had if goes_on is None else goes_on)
    assert server.stored().cursor == Cursor.at(expected)
    assert len(server.cursors.gate.gaps(CLIENT)) == (goes_on is not None)


def test_a_client_is_not_given_the_place_of_a_member_that_it_never_had(log: Log) -> None:
    server = served(cut(a=2))
    server.cursors.track.log = log
    add(server, cut(a=2, c=0))
    assert server.cursors.places.pass_removed_before({"b", "c"}, ME) == [CLIENT]
    assert server.stored().cursor == Cursor.at(cut(a=2, c=2))


@pytest.mark.parametrize("before", [False, True], ids=["served", "in another life"])
def test_each_client_is_looked_at_whatever_the_others_lack(before: bool) -> None:
    server = served(cut(a=2, b=2)) if before else served()
    kept = cut(a=2, b=2) if before else cut(a=1, b=2, c=3)
    for client_id, place in ((1, cut(a=1, b=2, c=1)), (2, kept), (3, BEGIN), (4, kept), (5, cut(a=1, b=2, c=1))):
        add(server, place if client_id != 3 or not before else None, client_id=client_id)
    server.cursors.fall_out(4, GoneError("it is not served"))
    pass_removed = server.cursors.places.pass_removed_before if before else server.cursors.places.pass_removed
    assert sorted(pass_removed({"c"}, ME)) == [1, 5]
