"""Values of a table and its copy are compared exactly, whatever columns they are in."""

from types import SimpleNamespace

import pytest

from sluice.server.outputs.mysql.sides import _reading


def equal(one: str, other: str, ours: str, theirs: str) -> bool:
    columns = (SimpleNamespace(word=it.partition("(")[0], mysql_type=it) for it in (ours, theirs))
    read = _reading(*columns)  # type: ignore[arg-type]
    assert read is not None
    return read(one) == read(other)


def test_a_number_is_compared_by_all_of_its_digits() -> None:
    assert not equal("12345678901234567890123456789.01", "12345678901234567890123456789.02", "decimal(40,2)", "double")
    assert equal("12345678901234567890123456789.010", "12345678901234567890123456789.01", "decimal(40,3)", "double")
    assert equal("-0.00", "0", "decimal(4,2)", "int")


@pytest.mark.parametrize(
    ("one", "other", "is_equal"),
    [
        ("123456789012345678901234567890", "123456789012345678901234567891", False),
        ('{"a": 1, "b": 1.50}', '{"b": 1.5, "a": 1}', True),
        ("1e999999999", "1e999999998", False),
        ("1e9999999999999999999999", "1e9999999999999999999999", True),
    ],
)
def test_json_is_compared_by_its_values_within_bounds(one: str, other: str, *, is_equal: bool) -> None:
    assert equal(one, other, "json", "json") == is_equal
