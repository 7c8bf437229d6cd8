"""Numbers as people read them."""

import pytest

from sluice.server.wording import counted, duration


@pytest.mark.parametrize(
    ("seconds", "digits", "text"),
    [
        (0, 1, "0.0 s"),
        (12.34, 1, "12.3 s"),
        (59.4, 0, "59 s"),
        (59.6, 0, "1 min 0 s"),
        (59.96, 1, "1 min 0 s"),
        (1549, 1, "25 min 49 s"),
        (3599.7, 0, "1 h 0 min"),
        (7300, 0, "2 h 1 min"),
        (90_000, 0, "1 d 1 h"),
    ],
)
def test_a_time_has_its_two_largest_units(seconds: float, digits: int, text: str) -> None:
    assert duration(seconds, digits) == text


def test_one_is_not_many() -> None:
    assert [counted(it, "row") for it in (0, 1, 2)] == ["0 rows", "1 row", "2 rows"]
    assert [counted(it, "batch", "batches") for it in (1, 2)] == ["1 batch", "2 batches"]
