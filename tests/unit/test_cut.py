"""Cuts: the laws of their lattice, their text, and the GTIDs beside them."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.protocol.cut import (
    ONE,
    Cut,
    Executed,
    executed_at,
    executed_text,
    parse_executed,
    parse_place,
)
from sluice.protocol.errors import BadPositionError, SourceChangedError
from sluice.protocol.gtid import MariadbGtidSet, MysqlGtidSet, parse_gtids
from sluice.protocol.member import MAX_MEMBERS
from sluice.protocol.position import Position

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
ONE_TEXT = f"{UUID}/mysql-bin.000042@1700000000:4711:3"
TWO = b"east/3e11fa47-71ca-11e1-9e33-c80aa9429562/mysql-bin.000042@1700000000:4711:3,west/7/b,@1:2.000001@1:4:0"
"""The file's name of the second has what separates members, and what looks like the end of a position."""

names = st.sampled_from(["a", "a-b", "a_b", "A", "0", "shop-1", "9" * 64])
positions = st.builds(
    Position,
    source=st.sampled_from([UUID, "7", "a,b", "x@1:2:3,y"]),
    file=st.sampled_from(["mysql-bin.000042", "b,@1:2.000001", "журнал é 100%.000001", "a/b.1", "b@1:2:3,c.2"]),
    created=st.sampled_from([0, 1_700_000_000, 2**32 - 1]),
    begin=st.integers(4, 2**63 - 1),
    n=st.integers(0, 2**32 - 1),
)
any_cuts = st.one_of(
    st.builds(lambda it: Cut({ONE: it}), positions),
    st.dictionaries(names, positions, max_size=5).map(Cut),
)


def place(begin: int) -> Position:
    return Position("7", f"b.{begin // 3}", 1, begin, 0)


cuts = st.dictionaries(st.sampled_from(["a", "b", "c"]), st.integers(0, 9).map(place)).map(Cut)
"""Of a few members and places, so that many are equal or have an order."""


@given(cuts, cuts, cuts)
def test_precedes_is_a_partial_order(one: Cut, two: Cut, three: Cut) -> None:
    assert one.precedes(one)
    assert (one.precedes(two) and two.precedes(one)) == (one == two)
    if one.precedes(two) and two.precedes(three):
        assert one.precedes(three)
    assert Cut().precedes(one)


@given(cuts, cuts, cuts)
def test_join_is_the_least_that_both_precede_and_meet_the_greatest_that_precedes_both(
    one: Cut, two: Cut, three: Cut
) -> None:
    join, meet = one.join(two), one.meet(two)
    assert one.precedes(join)
    assert two.precedes(join)
    assert meet.precedes(one)
    assert meet.precedes(two)
    assert (one.precedes(three) and two.precedes(three)) == join.precedes(three)
    assert (three.precedes(one) and three.precedes(two)) == three.precedes(meet)


@given(cuts, cuts, cuts)
def test_the_laws_of_a_lattice_hold(one: Cut, two: Cut, three: Cut) -> None:
    assert one.join(two) == two.join(one)
    assert one.meet(two) == two.meet(one)
    assert one.join(two.join(three)) == one.join(two).join(three)
    assert one.meet(two.meet(three)) == one.meet(two).meet(three)
    assert one.join(one.meet(two)) == one == one.meet(one.join(two))
    assert one.join(one) == one == one.meet(one)
    assert one.join(Cut()) == one
    assert one.meet(Cut()) == Cut()


@given(cuts, cuts)
def test_order_join_and_meet_agree(one: Cut, two: Cut) -> None:
    assert one.precedes(two) == (one.join(two) == two) == (one.meet(two) == one)


@given(cuts, st.sampled_from(["a", "b", "c"]), st.integers(0, 9).map(place))
def test_a_member_that_advances_moves_no_other(cut: Cut, member: str, to: Position) -> None:
    advanced = cut.advance(member, to)
    assert advanced.places == {**cut.places, member: to}


def test_cuts_of_which_each_is_further_in_one_member_have_no_order() -> None:
    one, two = Cut({"a": place(1), "b": place(2)}), Cut({"a": place(2), "b": place(1)})
    assert not one.precedes(two)
    assert not two.precedes(one)
    with pytest.raises(TypeError):
        min(one, two)
    with pytest.raises(TypeError):
        _ = one < two


def test_a_member_that_is_absent_is_before_its_start() -> None:
    assert Cut({"a": place(1)}).precedes(Cut({"a": place(1), "b": place(0)}))
    assert not Cut({"a": place(1), "b": place(0)}).precedes(Cut({"a": place(1)}))
    assert Cut({"a": place(1)}).meet(Cut({"b": place(1)})) == Cut()


@pytest.mark.parametrize("call", [Cut.precedes, Cut.join, Cut.meet])
@pytest.mark.parametrize("reverse", [False, True])
def test_another_history_of_a_member_is_named_whatever_the_others_are(call: object, reverse: bool) -> None:
    one = Cut({"a": place(5), "b": place(1)})
    other = Cut({"a": place(1), "b": Position("8", "b.0", 1, 4, 0)})
    assert callable(call)
    with pytest.raises(SourceChangedError, match=r"member b: .* have no order"):
        call(other, one) if reverse else call(one, other)


@given(any_cuts)
def test_text_round_trips(cut: Cut) -> None:
    assert Cut.parse(str(cut)) == cut
    assert str(Cut.parse(str(cut))) == str(cut)


@given(any_cuts, any_cuts)
def test_equal_cuts_have_equal_texts_and_only_they(one: Cut, two: Cut) -> None:
    assert (one == two) == (str(one) == str(two))
    assert one != two or hash(one) == hash(two)


@given(positions)
def test_the_text_of_a_single_source_is_that_of_its_position(position: Position) -> None:
    assert str(Cut({ONE: position})) == str(position)
    assert Cut.parse(str(position)).places == {ONE: position}


def test_the_text_is_what_stores_and_spark_have() -> None:
    west = Position("7", "b,@1:2.000001", 1, 4, 0)
    cut = Cut({"west": west, "east": Position.parse(ONE_TEXT)})
    assert str(cut).encode() == TWO
    assert Cut.parse(TWO.decode()) == cut
    assert list(cut.places) == ["east", "west"]
    assert str(Cut()) == "-"
    assert Cut.parse("-") == Cut()


@pytest.mark.parametrize(
    "text",
    [
        "",
        ",",
        "latest",
        "a/",
        "a/7/b.1@1:4:0,",
        ",a/7/b.1@1:4:0",
        "a/7/b.1@1:4:0,-",
        "-,a/7/b.1@1:4:0",
        "a/7/b.1@1:4:0 ,b/7/b.1@1:4:0",
        "b/7/b.1@1:4:0,a/7/b.1@1:4:0",
        "a/7/b.1@1:4:0,a/7/b.1@1:5:0",
        "a/7/b.1@1:4:0,a/7/b.1@1:4:0",
        "a/7/b.1@1:4:0,7/b.1@1:4:0",
        "/7/b.1@1:4:0",
        "-a/7/b.1@1:4:0",
        "a b/7/b.1@1:4:0",
        "é/7/b.1@1:4:0",
        "a" * 65 + "/7/b.1@1:4:0",
        "a/7/b.1@1:04:0",
        "a/7/b.1@1:4:0\n",
        "a/7/b%2c.1@1:4:0",
        "a/7/b%C3%a9.1@1:4:0",
        "7/b\N{LATIN SMALL LETTER E WITH ACUTE}.1@1:4:0",
        ",".join(f"m{i:02}/7/b.1@1:4:0" for i in range(MAX_MEMBERS + 1)),
        "a/" + "7" * 200_000 + "/b.1@1:4:0",
    ],
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(BadPositionError):
        Cut.parse(text)


@given(st.text(alphabet="ab7/,@:.-0", max_size=40))
def test_text_is_refused_or_canonical(text: str) -> None:
    try:
        assert str(Cut.parse(text)) == text
    except BadPositionError:
        assert not re.fullmatch(r"[ab7]/[ab7]+\.0@0:0:0", text)


def test_a_cut_has_at_most_64_members() -> None:
    places = {f"m{i:02}": place(i) for i in range(MAX_MEMBERS)}
    assert Cut.parse(str(Cut(places))) == Cut(places)
    with pytest.raises(BadPositionError, match="65 members: at most 64"):
        Cut({**places, "one-more": place(1)})


@pytest.mark.parametrize("name", ["", "a/b", "a,b", "-", "a=b", "a;b", "ä", "a\n"])
def test_a_member_among_others_has_a_plain_name(name: str) -> None:
    with pytest.raises(BadPositionError, match="not the name of a member"):
        Cut({name: place(1), "b": place(1)})


# --- GTIDs -----------------------------------------------------------------------------------------------------------

sets = st.sampled_from(["0-1-5", "0-1-5,0-2-6,3-1-9", f"{UUID}:1-5", f"{UUID}:1-5:7:tag:1-3"]).map(parse_gtids)
executed = st.one_of(
    st.dictionaries(st.just(ONE), sets, max_size=1), st.dictionaries(names, sets, min_size=1, max_size=4)
)


@given(executed)
def test_text_of_gtids_round_trips(sets: Executed) -> None:
    assert parse_executed(executed_text(sets)) == sets


def test_the_text_of_gtids_is_what_stores_have() -> None:
    mysql, mariadb = f"{UUID}:1-5:tag:7", "0-2-4,0-1-5"
    assert executed_text({ONE: parse_gtids(mysql)}) == mysql
    both: Executed = {"b": parse_gtids(mariadb), "a": parse_gtids(mysql), "c": MysqlGtidSet()}
    assert executed_text(both) == f"a={mysql};b={mariadb}"
    assert parse_executed(f"a={mysql};b={mariadb}") == {"a": both["a"], "b": both["b"]}
    assert parse_executed("") == {}


@pytest.mark.parametrize(
    "text",
    [
        ";",
        "a=",
        "=0-1-5",
        "a=0-1-5;",
        "b=0-1-5;a=0-1-5",
        "a=0-1-5;a=0-1-5",
        "a=0-1-5;0-1-5",
        "a=0-1-05",
        "a= 0-1-5",
        f"a={UUID.upper()}:1-5",
        "a/b=0-1-5",
        "a=b=0-1-5",
        ";".join(f"m{i:02}=0-1-5" for i in range(MAX_MEMBERS + 1)),
        "a=" + "0" * (1 << 24) + "-1-5",
    ],
    ids=lambda text: text[:20],
)
def test_other_text_of_gtids_is_refused(text: str) -> None:
    with pytest.raises(BadPositionError):
        parse_executed(text)


def test_gtids_go_with_the_places_of_their_members() -> None:
    """They are never put together: a member at another source may lack what the set of its former one has."""
    one, two = Cut({"a": place(1), "b": place(5)}), Cut({"a": place(3), "b": place(2), "c": place(1)})
    first: Executed = {"a": MariadbGtidSet.parse("0-1-1"), "b": MariadbGtidSet.parse("0-1-5")}
    second: Executed = {"a": MariadbGtidSet.parse("0-9-3"), "c": MariadbGtidSet.parse("0-1-1")}
    sides = [(one, first), (two, second)]
    assert executed_at(one.join(two), sides) == {"a": second["a"], "b": first["b"], "c": second["c"]}
    assert executed_at(one.meet(two), sides) == {"a": first["a"]}


def test_the_text_of_any_place_is_read() -> None:
    assert parse_place(ONE_TEXT) == Position.parse(ONE_TEXT)
    assert not parse_place(ONE_TEXT).is_merged
    text = f"one/{ONE_TEXT},other/7/b.000001@1:4:0"
    found = parse_place(text)
    assert found == Cut.parse(text)
    assert found.is_merged
    with pytest.raises(BadPositionError):
        parse_place(f"one//{ONE_TEXT}")
