"""The thread of a group: what its members bring goes into one ring, whatever becomes of them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sluice.protocol.cut import Cut
from sluice.protocol.errors import ConfigError, NotStoredError, PurgedError
from sluice.protocol.gtid import MariadbGtidSet
from sluice.store.cursor import Cursor
from sluice.store.ring import Kind, Ring
from tests.members import Group, place
from tests.waiting import eventually


def cut(**transactions: int) -> Cut:
    return Cut({name: place(name, it) for name, it in transactions.items()})


def fail_once(group: Group, patch: pytest.MonkeyPatch) -> None:
    """Let the thread of a group come to an error."""
    left, say = [ZeroDivisionError("an error of the group itself")], group.parser._say

    def fail(*arguments: Any) -> None:
        if left:
            raise left.pop()
        say(*arguments)

    patch.setattr(group.parser, "_say", fail)


def test_what_members_bring_is_one_stream(tmp_path: Path) -> None:
    with Group(tmp_path, "a", "b") as group:
        a, b = group.member("a").begin(), group.member("b").begin(3)
        a.bring("1", "2")
        b.bring("3")
        group.wait_for("a:1", "a:2", "b:3")
        assert group.begun == [(cut(a=0, b=3), {})]
        assert group.end() == cut(a=1, b=4)


def test_a_member_joins_where_another_one_is_between_two_transactions(tmp_path: Path) -> None:
    with Group(tmp_path, "a", "c", start=Cursor.at(cut(a=0)), pool=1 << 20) as group:
        a, c = group.member("a").begin(), group.member("c").begin(5)
        a.bring("x" * (2 << 20), ends=False)
        eventually(lambda: group.ring.next >= 2)
        eventually(lambda: "c" in group.kept)
        group.kept["c"].set_result(None)
        c.bring("1")
        group.rest()
        eventually(lambda: group.parser.status.members[0].streams)
        assert group.ring.next == 2, "nothing may come between"
        a.bring("2")
        group.wait_for("a:" + "x" * (2 << 20), "a:2", "c:1")
        kinds = [group.ring.slot(it).kind for it in range(group.ring.next)]
        assert kinds.index(Kind.ADVANCE) == 4
        assert group.end() == cut(a=1, c=6)


def test_nothing_comes_of_a_member_that_joins_before_its_start_is_stored(tmp_path: Path) -> None:
    with Group(tmp_path, "a", "c", start=Cursor.at(cut(a=0))) as group:
        a, c = group.member("a").begin(), group.member("c").begin(5)
        c.bring("1")
        a.bring("2")
        eventually(lambda: "c" in group.kept)
        group.wait_for("a:2")
        failed = group.kept.pop("c")
        failed.set_exception(NotStoredError("the disk is full"))
        eventually(lambda: "c" in group.kept)
        a.bring("3")
        group.wait_for("a:2", "a:3")
        group.kept["c"].set_result(None)
        group.wait_for("a:2", "a:3", "c:1")
        assert group.end() == cut(a=2, c=6)


def test_the_rest_of_a_transaction_comes_first_after_an_error_of_the_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Group(tmp_path, "a", "b", start=Cursor.at(cut(a=0, b=0)), pool=1 << 20) as group:
        a, b = group.member("a").begin(), group.member("b").begin()
        a.bring("x" * (2 << 20), ends=False)
        group.wait_for_slots(2)
        fail_once(group, monkeypatch)
        again = group.member("a", after=a)
        other = group.member("b", after=b)
        assert [it and it.position for it in again.places] == [place("a", 0, 2)]
        again.begin()
        other.begin().bring("1")
        for _ in range(3):
            group.rest()
        again.bring("2")
        group.wait_for("a:" + "x" * (2 << 20), "a:2", "b:1")


def test_what_open_transactions_need_is_known_after_an_error_of_the_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Group(tmp_path, "a", start=Cursor.at(cut(a=5))) as group:
        a = group.member("a").begin()
        a.ring.restarts.note(place("a", 5), place("a", 2))
        a.bring("1")
        group.wait_for("a:1")
        fail_once(group, monkeypatch)
        again = group.member("a", after=a)
        assert again.places == [replace(Cursor.at(place("a", 6)), restart=place("a", 2))]
        assert group.ring.restarts.at(cut(a=6)) == Cut({"a": place("a", 2)})


def test_each_member_begins_at_its_own_place_and_with_what_was_executed_there(tmp_path: Path) -> None:
    first = Cursor.at(cut(a=1, b=1), "a=0-1-1;b=0-2-1")
    later = Cursor.at(cut(a=4, b=1), "a=0-1-4;b=0-2-1")
    with Group(tmp_path, "a", "b", start=first, later=[later]) as group:
        a, b = group.member("a"), group.member("b")
        a.places = a.places[1:]  # what is before is purged
        a.begin()
        b.begin()
        eventually(lambda: group.begun)
        begun, gtids = group.begun[0]
        assert begun == cut(a=4, b=1)
        assert {name: str(it) for name, it in (gtids or {}).items()} == {"a": "0-1-4", "b": "0-2-1"}


def test_a_member_that_stops_inside_a_transaction_gives_what_is_before_that(tmp_path: Path) -> None:
    with Group(tmp_path, "a", "b") as group:
        a, b = group.member("a").begin(), group.member("b").begin()
        a.bring("1", ends=False)
        eventually(lambda: a.ring.next == 2)
        a.end()  # type: ignore[attr-defined]
        b.bring("2")
        group.wait_for("a:1", "b:2")
        b.end()  # type: ignore[attr-defined]
        eventually(lambda: group.states[-1][0] == "finished")
        assert group.end() == Cut({"a": place("a", 0, 2), "b": place("b", 1)})


def test_a_member_that_has_no_room_for_whole_transactions_is_not_silent(tmp_path: Path) -> None:
    with Group(tmp_path, "a", "b", pool=1 << 20, max_wait=300) as group:
        a = group.member("a").begin()
        group.member("b").begin()
        for _ in range(3):
            a.bring("x" * (400 << 10))
            eventually(lambda: a.ring.waiting or a.at[0] < 3)
        eventually(lambda: a.ring.waiting)
        eventually(lambda: {it.name: it.state for it in group.parser.status.members}["b"] == "passed")
        assert {it.name: it.state for it in group.parser.status.members}["a"] == "merged"


def test_what_comes_too_late_is_marked_and_counted(tmp_path: Path) -> None:
    with Group(tmp_path, "a", "b", order="time") as group:
        a, b = group.member("a").begin(7), group.member("b").begin(2)
        a.bring("1")
        group.wait_for("a:1")
        b.bring("2")
        group.wait_for("a:1", "b:2 late")
        assert {it.name: it.late for it in group.parser.status.members} == {"a": 0, "b": 1}


def test_members_come_and_go_while_the_group_is_read(tmp_path: Path) -> None:
    with Group(tmp_path, "a", "b") as group:
        a, b = group.member("a").begin(), group.member("b").begin()
        a.bring("1")
        b.bring("2")
        group.wait_for("a:1", "b:2")
        group.parser.reconfigure(group.config("a", "c"))
        c = group.member("c").begin(9)
        eventually(lambda: b.is_stopped)
        eventually(lambda: "c" in group.kept)
        group.kept["c"].set_result(None)
        a.bring("3")
        c.bring("4")
        group.wait_for("a:1", "b:2", "a:3", "c:4")
        assert group.end() == cut(a=2, b=1, c=10)
        assert not a.is_stopped
        with pytest.raises(ConfigError, match="member b was removed"):
            group.parser.reconfigure(group.config("a", "b", "c"))
        with pytest.raises(ConfigError, match="at most 64"):
            group.parser.reconfigure(group.config("a", "c", *(f"m{it}" for it in range(62))))


def test_a_member_with_other_settings_is_read_on(tmp_path: Path) -> None:
    with Group(tmp_path, "a", "b") as group:
        a, b = group.member("a").begin(), group.member("b").begin(5)
        a.bring("1")
        group.wait_for("a:1")
        group.parser.reconfigure(group.config("a", "b", a="y"))
        again = group.member("a", after=a)
        assert a.is_stopped
        again.begin().bring("2")
        b.bring("3")
        group.wait_for("a:1", "a:2", "b:3")


def test_a_marker_ends_the_transaction_of_a_member_that_is_removed(tmp_path: Path) -> None:
    with Group(tmp_path, "a", "b", pool=1 << 20) as group:
        a, b = group.member("a").begin(), group.member("b").begin()
        a.bring("x" * (2 << 20), ends=False)
        group.wait_for_slots(2)
        b.bring("1")
        group.rest()
        group.parser.reconfigure(group.config("b"))
        group.wait_for("a:" + "x" * (2 << 20), "a:gap", "b:1")
        assert group.end() == Cut({"a": place("a", 0, 2), "b": place("b", 1)})


def test_a_reader_reads_the_members_of_the_place_where_it_begins(tmp_path: Path) -> None:
    group = Group(tmp_path, "a", "c", start=Cursor.at(cut(a=0)), joins=False)
    with group:
        group.member("a").begin().bring("1")
        group.wait_for("a:1")
        assert set(group.members) == {"a"}


def test_gtids_of_a_member_are_those_that_its_parser_knows(tmp_path: Path) -> None:
    with Group(tmp_path, "a") as group:
        group.member("a").begin(2, MariadbGtidSet())
        eventually(lambda: group.begun)
        assert group.begun[0] == (cut(a=2), {"a": MariadbGtidSet()})


def test_a_member_that_has_lost_its_place_goes_on_where_all_clients_are(tmp_path: Path) -> None:
    with Group(tmp_path, "a", "b", start=Cursor.at(cut(a=0, b=0)), max_wait=200) as group:
        a, b = group.member("a").begin(), group.member("b")
        b.failure = PurgedError("it is purged")
        a.bring("1")
        group.wait_for("a:1")
        again = group.member("b", after=b)  # it must not begin anywhere else by itself
        again.failure = b.failure
        group.parser.begin_at([Cursor.at(cut(a=1, b=0)), Cursor.at(cut(a=1, b=7))])
        a.bring("2")
        group.wait_for("a:1", "a:2")
        assert group.member("b") is again, "a client is at its place still"
        group.parser.begin_at([Cursor.at(cut(a=1, b=7))])
        group.member("b", after=again).begin().bring("3")
        group.wait_for("a:1", "a:2", "b:3")
        assert group.end() == cut(a=2, b=8)


def test_a_member_may_begin_at_a_place_that_only_its_first_slot_names(tmp_path: Path) -> None:
    with Group(tmp_path, "a", "b", "c", start=Cursor.at(cut(a=2, b=0))) as group:
        a = group.member("a").begin(is_named=False)
        b, c = group.member("b").begin(), group.member("c").begin(5, is_named=False)
        a.bring("1")
        group.wait_for("a:1")
        assert group.member("a") is a, "it is read on"
        b.bring("2")
        c.bring("3")
        eventually(lambda: "c" in group.kept)
        group.kept["c"].set_result(None)
        eventually(lambda: group.rest() is None and "c:3" in group.rows())  # type: ignore[func-returns-value]
        assert group.end() == cut(a=3, b=1, c=6)


def full(tmp_path: Path, **options: Any) -> Group:
    """A group whose ring takes a whole transaction of a, and what begins one of b."""
    return Group(tmp_path, "a", "b", start=Cursor.at(cut(a=0, b=0)), ring=Ring(8), order="arrival", **options)


def fill(group: Group) -> None:
    a, b = group.member("a").begin(), group.member("b").begin()
    a.bring("1", "2", "3")
    group.wait_for_slots(5)
    b.bring("4", "5", "6", "7")
    wait_for_full(group)


def wait_for_full(group: Group) -> None:
    def is_full() -> bool:
        group.rest()
        return group.ring.waiting

    eventually(is_full)


def halt(group: Group, name: str) -> None:
    group.parser.halt(name)
    eventually(lambda: group.parser.is_halted(name))


def test_a_member_is_halted_while_the_ring_is_full_and_the_rest_is_read_again(tmp_path: Path) -> None:
    with full(tmp_path) as group:
        fill(group)
        a, b = group.members["a"], group.members["b"]
        halt(group, "a")
        assert a.is_stopped
        again = group.member("b", after=b)
        assert again.places[0] == Cursor.at(place("b", 0, 3)), "two rows are in the ring, and what begins it"
        assert group.end() == Cut({"a": place("a", 1), "b": place("b", 0, 3)})
        again.begin().bring("6", "7")
        wait_for_full(group)
        halted = group.members["a"]
        group.ring.free_to(5)
        group.wait_for("b:4", "b:5", "b:6", "b:7")
        group.parser.go_on("a")
        assert group.member("a", after=halted).begin().at == (1, 0)
        group.members["a"].bring("9")
        group.ring.free_to(8)
        group.wait_for("b:6", "b:7", "a:9")


def test_nobody_comes_between_a_transaction_that_is_halted_while_the_ring_is_full(tmp_path: Path) -> None:
    with full(tmp_path) as group:
        fill(group)
        a, b = group.members["a"], group.members["b"]
        halt(group, "b")
        group.member("a", after=a).begin().bring("9")
        group.ring.free_to(5)
        for _ in range(3):
            group.rest()
        halted = group.members["b"]
        assert halted.is_stopped
        assert group.rows() == ["b:4", "b:5"]
        group.parser.go_on("b")
        group.member("b", after=halted if halted is not b else b).begin().bring("6", "7")
        group.wait_for("b:4", "b:5", "b:6", "b:7", "a:9")


def test_a_marker_is_put_once_although_a_member_is_halted_while_it_waits_for_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with full(tmp_path) as group:
        fill(group)
        group.parser.reconfigure(group.config("a", "c"))
        halt(group, "a")
        wait_for_full(group)
        group.ring.free_to(5)
        group.wait_for("b:4", "b:5", "b:gap")
        group.parser.go_on("a")
        before = group.members["a"]
        fail_once(group, monkeypatch)
        group.member("a", after=before).begin().bring("9")
        group.wait_for("b:4", "b:5", "b:gap", "a:9")
        assert group.members["a"].at == (2, 0), "of b nothing is read"
