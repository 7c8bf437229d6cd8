"""Where binlog files end that were read: there the next ones begin."""

from dataclasses import replace

import pytest

from sluice.instance.sources.mysql import start
from sluice.instance.sources.mysql.start import Ends, before_stop
from sluice.protocol.position import Position

END = Position("1", "bin.000001", 1_700_000_000, 1000, 0)
NEXT = Position("1", "bin.000002", 1_700_000_500, 4, 0)


def test_nothing_but_a_stop_event_is_between_two_transactions_and_an_end_that_is_so_near() -> None:
    ends = Ends()
    ends.add(before_stop(END), NEXT)
    for begin, following in ((976, None), (977, NEXT), (1000, NEXT)):
        assert ends.following(replace(END, begin=begin)) == following
    assert ends.following(replace(END, n=1)) is None, "inside a transaction"
    assert ends.following(replace(END, created=END.created + 1)) is None
    assert ends.following(replace(END, source="2")) is None


def test_the_oldest_ends_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "MOST_ENDS", 2)
    ends = Ends()
    places = [replace(END, file=f"bin.00000{number}") for number in (1, 2, 3)]
    for place in places:
        ends.add(place, NEXT)
    assert [ends.following(it) for it in places] == [None, NEXT, NEXT]
