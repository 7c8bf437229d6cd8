"""Positions: their text and their order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.protocol.cut import Cut
from sluice.protocol.errors import BadPositionError, SourceChangedError
from sluice.protocol.position import Position

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
TEXT = f"{UUID}/mysql-bin.000042@1700000000:4711:3"

positions = st.builds(
    Position,
    source=st.sampled_from([UUID, "7"]),
    file=st.sampled_from(["mysql-bin.999999", "mysql-bin.1000000", "binlog.000001", "журнал é 100%.000001", "a/b.1"]),
    created=st.sampled_from([0, 1_700_000_000, 2**32 - 1]),
    begin=st.integers(4, 2**63 - 1),
    n=st.integers(0, 2**32 - 1),
)


def test_text_names_source_file_and_place() -> None:
    assert Position.parse(TEXT) == Position(UUID, "mysql-bin.000042", 1_700_000_000, 4711, 3)


def test_text_is_ascii_so_that_a_header_can_carry_it() -> None:
    position = Position(UUID, "журнал.000001", 1, 4, 0)
    assert str(position) == f"{UUID}/%D0%B6%D1%83%D1%80%D0%BD%D0%B0%D0%BB.000001@1:4:0"
    assert Position.parse(f"{UUID}/журнал.000001@1:4:0") == position


@given(positions)
def test_text_round_trips(position: Position) -> None:
    assert Position.parse(str(position)) == position


@pytest.mark.parametrize(
    "text",
    [
        "",
        "latest",
        TEXT + " ",
        TEXT + "\n",
        TEXT.replace("@", ""),
        TEXT.replace("mysql-bin.000042", "mysql-bin"),
        TEXT.replace("000042", "9" * 5000),
        TEXT.replace(":3", ":03"),
        TEXT.replace(":3", ":-3"),
        TEXT.replace(":3", ":٣"),
        TEXT.replace(":3", ":4294967296"),
        TEXT.replace("4711", "9223372036854775808"),
        TEXT.replace("1700000000", "4294967296"),
        "/mysql-bin.000042@1:4:0",
        "7/%ff.000042@1:4:0",
        "7/../mysql-bin.000042@1:4:0",
    ],
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(BadPositionError):
        Position.parse(text)


@pytest.mark.parametrize("file", ["mysql-bin", "a/b.000001", "my bin.000001"])
def test_a_file_has_a_plain_name_with_a_number(file: str) -> None:
    with pytest.raises(BadPositionError):
        Position.parse(f"7/{file}@1:4:0")


def test_a_place_precedes_itself_and_those_after_it() -> None:
    one, other = Position("7", "b.1", 1, 4, 0), Position("7", "b.1", 1, 4, 2)
    assert one.precedes(one)
    assert one.precedes(other)
    assert not other.precedes(one)
    assert one.meet(other) == other.meet(one) == one
    assert one.join(other) == other.join(one) == other
    with pytest.raises(SourceChangedError):
        one.precedes(Cut({"a": other}))
    with pytest.raises(SourceChangedError):
        Cut({"a": other}).precedes(one)
    with pytest.raises(SourceChangedError):
        _ = Cut({"a": other}) > one
    with pytest.raises(SourceChangedError):
        _ = one >= Cut({"a": other})


def test_files_are_ordered_by_number_not_by_text() -> None:
    assert Position("7", "b.999999", 1, 900, 0) < Position("7", "b.1000000", 2, 4, 0)


def test_order_within_a_file_is_begin_then_event() -> None:
    ordered = [Position("7", "b.1", 1, begin, n) for begin, n in [(4, 0), (4, 2), (4, 10), (200, 0)]]
    assert sorted([ordered[2], ordered[0], ordered[3], ordered[1]]) == ordered
    assert max(ordered) >= ordered[0]
    assert ordered[0] <= Position("7", "b.1", 1, 4, 0)
    assert ordered[1] > ordered[0]


@pytest.mark.parametrize(
    "other",
    [Position("8", "b.1", 1, 4, 0), Position("7", "c.1", 1, 4, 0), Position("7", "b.1", 2, 4, 0)],
    ids=["source", "base name", "created"],
)
def test_positions_of_different_histories_have_no_order(other: Position) -> None:
    with pytest.raises(SourceChangedError):
        _ = Position("7", "b.1", 1, 4, 0) < other


@given(positions, positions)
def test_order_is_total_within_a_history(one: Position, other: Position) -> None:
    if one.same_history(other):
        assert (one < other) + (one > other) + (one == other) == 1


@pytest.mark.parametrize(
    ("file", "created", "is_comparable"),
    [
        ("b.7", 50, True),
        ("b.8", 51, True),
        ("b.6", 49, True),
        ("b.7", 51, False),
        ("b.8", 49, False),
        ("c.8", 51, False),
    ],
)
def test_places_are_comparable_where_a_later_file_was_created_later(
    file: str, created: int, is_comparable: bool
) -> None:
    one, other = Position("7", "b.7", 50, 4, 0), Position("7", file, created, 4, 0)
    assert one.is_comparable(other) is other.is_comparable(one) is is_comparable


def test_a_place_in_a_transaction_knows_that_before_it() -> None:
    assert str(Position.parse(TEXT).transaction) == TEXT.removesuffix("3") + "0"


@given(positions)
def test_what_a_ring_keeps_of_a_place_makes_it_again(position: Position) -> None:
    assert Position.of_parts(*position.parts) == position


def test_a_place_says_to_which_source_it_belongs() -> None:
    place = Position("7", "b.7", 50, 4, 0)
    assert place.is_of("7")
    assert not place.is_of("8")
    assert place.same_source(Position("7", "other.1", 1, 4, 0))
    assert not place.same_source(Position("8", "b.7", 50, 4, 0))


@pytest.mark.parametrize(
    ("file", "offset", "is_reached"), [("b.10", 3, False), ("b.10", 4, True), ("b.9", 5, False), ("b.11", 4, True)]
)
def test_a_binlog_reaches_a_place_when_it_ends_there_or_later(file: str, offset: int, is_reached: bool) -> None:
    assert Position("7", "b.10", 50, 4, 3).is_reached_by(file, offset) is is_reached
