"""Changes in Arrow arrays: their keys, their columns, and statements of them."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.sql.changes import (
    UnfitError,
    buckets,
    ends_of_keys,
    is_ascending,
    key_digests,
    kinds,
    statements,
)
from sluice.sql.statements import Way

Change = tuple[str, str, list[str] | None]

NAMES = st.sampled_from(["", "a", "b", "ab", "é"])
CHANGES = st.lists(st.tuples(NAMES, NAMES, st.none() | st.lists(NAMES, max_size=3)), max_size=60)


def columns(changes: list[Change]) -> tuple[pa.StringArray, pa.StringArray, pa.ListArray]:
    """The names of schemas and tables, and the keys; as parts of larger arrays."""
    padded: list[Change] = [("x", "x", ["x"]), *changes, ("y", "y", ["y"])]
    schemas, tables, keys = zip(*padded, strict=True)
    types = pa.string(), pa.string(), pa.list_(pa.string())
    found = [
        pa.array(it, type_).slice(1, len(changes)) for it, type_ in zip((schemas, tables, keys), types, strict=True)
    ]
    return found[0], found[1], found[2]


def numbers(*values: int) -> pa.Int32Array:
    return pa.array(values, pa.int32())


@given(CHANGES)
def test_the_first_and_the_last_row_of_each_key_are_found(changes: list[Change]) -> None:
    names = [(schema, table, str(key)) for schema, table, key in changes]
    last = {name: number for number, name in enumerate(names)}
    found = ends_of_keys(*columns(changes))
    if found is None:
        assert len(last) == len(changes)
    else:
        first, ends = (it.to_pylist() for it in found)
        assert ends == sorted(last.values())
        assert first == [names.index(names[number]) for number in ends]
        assert len(last) < len(changes)


def test_the_bucket_of_a_key_is_the_same_for_ever() -> None:
    changes: list[Change] = [
        ("shop", "orders", ["1"]),
        ("shop", "orders", ["2"]),
        ("shop", "orders", None),
        ("a", "b", []),
    ]
    assert buckets(*columns(changes), 64).to_pylist() == [26, 38, 3, 61]


def test_keys_are_spread_over_all_buckets() -> None:
    found = buckets(*columns([("shop", "orders", [str(number)]) for number in range(64_000)]), 64).value_counts()
    assert len(found) == 64
    assert all(800 < count < 1200 for count in found.field("counts").to_pylist())


def digests(*texts: str | None, is_text: bool = True) -> bytes | None:
    """Of one column of a unique index, in as many rows."""
    images = pa.array([[("x", "1"), ("u", text)] for text in texts], pa.map_(pa.string(), pa.string()))
    return key_digests(images, numbers(*range(len(texts))), 7, [(1, is_text)])


@pytest.mark.parametrize(("one", "other"), [("a", "A"), ("a", "a  "), ("jolly", "IOLLI"), ("vw", "UU")])
def test_texts_that_a_collation_may_take_for_equal_have_equal_digests(one: str, other: str) -> None:
    assert digests(one) == digests(other)
    assert digests(one, is_text=False) != digests(other, is_text=False)


@pytest.mark.parametrize("text", ["é", "a\tb", "\x7f", "€"])
def test_what_equals_a_text_beyond_ascii_is_not_known(text: str) -> None:
    assert digests("a", text) is None
    assert digests("a", text, is_text=False) is not None


def test_a_row_with_null_in_a_unique_index_has_no_digest() -> None:
    assert digests(None, "a", None) == digests("a")
    assert digests("a", "b") != digests("b", "a")


def test_a_column_beyond_the_images_is_an_error() -> None:
    images = pa.array([[("u", "a")]], pa.map_(pa.string(), pa.string()))
    with pytest.raises(ValueError, match="not in the images"):
        key_digests(images, numbers(0), 7, [(1, False)])


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(-1, 1))))
def test_order_is_seen(rows: list[tuple[int, int]]) -> None:
    found = is_ascending(*(pa.array([row[place] for row in rows], pa.int64()) for place in (0, 1)))
    assert found == (rows == sorted(rows))


@given(st.lists(st.lists(NAMES, max_size=3), max_size=20))
def test_images_with_other_columns_are_told_apart(names: list[list[str]]) -> None:
    images = pa.array([[(name, "") for name in row] for row in names], pa.map_(pa.string(), pa.string()))
    wanted = numbers(*range(0, len(names), 2))
    found = kinds(images, wanted)
    assert all(names[row] == kind for kind, rows in found for row in rows.to_pylist())
    assert sorted(row for _, rows in found for row in rows.to_pylist()) == wanted.to_pylist()
    assert len({tuple(kind) for kind, _ in found}) == len(found)


@pytest.mark.parametrize(
    ("way", "text", "literal"),
    [
        (Way.INTEGER, "-9223372036854775808", b"-9223372036854775808"),
        (Way.INTEGER, "9223372036854775807", b"9223372036854775807"),
        (Way.INTEGER, "9223372036854775808", None),
        (Way.INTEGER, "-9223372036854775809", None),
        (Way.INTEGER, "-", None),
        (Way.INTEGER, "", None),
        (Way.INTEGER, "1 OR 1=1", None),
        (Way.UNSIGNED, "18446744073709551615", b"18446744073709551615"),
        (Way.UNSIGNED, "18446744073709551616", None),
        (Way.UNSIGNED, "99999999999999999999", None),
        (Way.UNSIGNED, "-1", None),
        (Way.BYTES, "\0a\x7f\x80ÿ", b"X'00617F80FF'"),
        (Way.BYTES, "Ā", None),
        (Way.QUOTED, "it's 中'", "'it''s 中'''".encode()),
        (Way.QUOTED, "", b"''"),
        (Way.NUMBER, "1e5", b"1e5"),
        (Way.QUOTED, None, b"NULL"),
    ],
)
def test_texts_become_literals(way: Way, text: str | None, literal: bytes | None) -> None:
    terms = [(b"(", pa.array(["other", text]), numbers(1), int(way), 0), (b")", None, None, 0, 0)]
    if literal is None:
        with pytest.raises(UnfitError) as caught:
            statements(b"", terms, b",", b"", 1, 1, 100)
        assert caught.value.args == (0, text)
    else:
        assert statements(b"", terms, b",", b"", 1, 1, 100) == [(b"(%b)" % literal, 1)]


def test_bytes_are_filled_up() -> None:
    assert statements(b"", [(b"", pa.array(["a"]), numbers(0), int(Way.BYTES), 3)], b"", b"", 1, 1, 9) == [
        (b"X'610000'", 1)
    ]


def test_statements_have_no_more_rows_and_bytes_than_allowed() -> None:
    terms = [(b"", pa.array(["1", "22", "x" * 20, "3", "4", "5"]), numbers(0, 1, 2, 3, 4, 5), int(Way.NUMBER), 0)]
    assert statements(b"<", terms, b",", b">", 6, 2, 10) == [
        (b"<1,22>", 2),
        (b"<%b>" % (b"x" * 20), 1),
        (b"<3,4>", 2),
        (b"<5>", 1),
    ]
    assert statements(b"<", [(b"", None, None, 0, 0)], b",", b">", 0, 2, 10) == []


def test_arrays_that_point_beyond_their_data_are_refused() -> None:
    offsets = b"".join(it.to_bytes(4, "little") for it in (0, 4, 2))
    broken = pa.Array.from_buffers(pa.string(), 2, [None, pa.py_buffer(offsets), pa.py_buffer(b"abc")])
    with pytest.raises(ValueError, match="offsets of an array"):
        statements(b"", [(b"", broken, numbers(0, 1), int(Way.NUMBER), 0)], b"", b"", 2, 2, 9)
    for places in (numbers(2), numbers(-1), numbers()):
        with pytest.raises(ValueError, match="not of the array"):
            statements(b"", [(b"", pa.array(["a", "b"]), places, int(Way.NUMBER), 0)], b"", b"", 1, 1, 9)
    with pytest.raises(ValueError, match="different lengths"):
        ends_of_keys(pa.array(["a"]), pa.array(["a", "b"]), pa.array([["1"]]))
