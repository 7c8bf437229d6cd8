"""Which pump gets which message, at any time, without pumps."""

import random
from collections.abc import Iterable

import pytest

from sluice.client_sdk.tidb import pumps as module
from sluice.client_sdk.tidb.pumps import Failure, Pumps, Strategy, Writing
from sluice.login.nodes import Node, State
from sluice.protocol.errors import BadParameterError
from sluice.protocol.tidb.binlog_pb2 import Binlog, BinlogType

REFUSED = Failure("no room")
SILENT = Failure("DEADLINE_EXCEEDED: ", is_silent=True, is_unknown=True)


def made(count: int, strategy: Strategy = "range") -> Pumps:
    pumps = Pumps(strategy, {})
    pumps.learn(node(it) for it in range(count))
    return pumps


def node(number: int, state: State = State.ONLINE) -> Node:
    return Node(f"pump-{number}", f"127.0.0.1:{number}", state)


def begin(pumps: Pumps, start_ts: int, now: float = 0.0, retry: float = 15.0) -> Writing:
    return Writing(pumps, Binlog(tp=BinlogType.Prewrite, start_ts=start_ts), retry, now)


def end(pumps: Pumps, start_ts: int) -> Writing:
    return Writing(pumps, Binlog(tp=BinlogType.Commit, start_ts=start_ts, commit_ts=start_ts + 1), 15.0, 0.0)


def asked(writing: Writing) -> str:
    pump = writing.begin()
    return "nobody" if pump is None else pump.node.node_id


def tries(writing: Writing, count: int, failure: Failure = REFUSED) -> list[str]:
    """Return which pumps are asked, when all refuse."""
    found = []
    for _ in range(count):
        found.append(asked(writing))
        assert writing.failed(failure, 0.0) == module.PAUSE
    return found


def store(pumps: Pumps, starts: Iterable[int]) -> list[str]:
    """Store Prewrites; return where."""
    found = []
    for start_ts in starts:
        writing = begin(pumps, start_ts)
        found.append(asked(writing))
        writing.stored()
    return found


@pytest.mark.parametrize("strategy", ["range", "hash", "score"])
def test_a_prewrite_is_tried_on_each_pump_before_one_is_tried_again(strategy: Strategy) -> None:
    for start_ts in range(1, 30):
        found = tries(begin(made(3, strategy), start_ts), 6)
        assert sorted(found[:3]) == sorted(found[3:]) == ["pump-0", "pump-1", "pump-2"]


def test_a_retry_by_hash_goes_to_the_next_pump() -> None:
    pumps = made(3, "hash")
    first = tries(begin(pumps, 7), 3)
    assert [int(it[-1]) for it in first] == [(int(first[0][-1]) + it) % 3 for it in range(3)]
    assert store(pumps, [7]) == first[:1]


def test_a_pump_leaves_after_three_failures_in_a_row_and_at_once_when_it_is_silent() -> None:
    pumps = made(2)
    assert tries(begin(pumps, 1), 4) == ["pump-0", "pump-1", "pump-0", "pump-1"]
    assert store(pumps, [2, 3]) == ["pump-0", "pump-1"]  # the failures before these count no more
    assert tries(begin(pumps, 4), 1) == ["pump-0"]
    assert store(pumps, [5]) == ["pump-1"]
    assert tries(begin(pumps, 6), 1, SILENT) == ["pump-0"]
    assert set(store(pumps, range(10, 20))) == {"pump-1"}


def test_when_all_have_left_those_that_are_online_are_tried_and_others_never() -> None:
    pumps = made(2)
    pumps.learn([node(0), node(1), node(2, State.PAUSED)])
    assert tries(begin(pumps, 1), 2, SILENT) == ["pump-0", "pump-1"]
    assert set(tries(begin(pumps, 2), 4)) == {"pump-0", "pump-1"}
    pumps.learn([node(0, State.CLOSING), node(1, State.OFFLINE), node(2, State.PAUSED)])
    assert tries(begin(pumps, 3), 2) == ["nobody", "nobody"]
    pumps.learn([node(1), node(2)])
    assert store(pumps, [4, 5]) == ["pump-1", "pump-2"]


def test_a_prewrite_ends_after_its_time_when_each_pump_was_tried() -> None:
    writing = begin(made(3), 1, now=100.0)
    for now in (120.0, 140.0):
        writing.begin()
        assert writing.failed(REFUSED, now) == module.PAUSE
    writing.begin()
    with pytest.raises(module.PumpError, match=r"pump-0 at 127\.0\.0\.1:0: no room; pump-1 .*; pump-2 .*: no room$"):
        writing.failed(REFUSED, 160.0)


def test_a_pump_that_only_says_that_it_is_back_is_asked_less_and_less_often() -> None:
    pumps, found = made(1), []
    for start_ts in range(1, 8):
        tries(begin(pumps, start_ts), 1, SILENT)
        looks = 1
        while not (errands := pumps.errands()):
            looks += 1
        assert [(it.payload, it.start_ts) for it in errands] == [(b"", 0)]
        assert pumps.errands() == errands  # it is asked at each look now
        pumps.done(errands[0])
        found.append(looks)
    assert found == [1, 2, 4, 8, 16, 16, 16]
    assert store(pumps, [100]) == ["pump-0"]
    tries(begin(pumps, 101), 1, SILENT)
    assert len(pumps.errands()) == 1


def test_a_prewrite_that_two_pumps_may_have_is_taken_back_where_its_end_does_not_come() -> None:
    pumps = made(3)
    writing = begin(pumps, 7)
    silent = tries(writing, 2, SILENT)
    home = asked(writing)
    writing.stored()
    for errand in pumps.errands():
        assert errand.payload == b""
        pumps.done(errand)
    errands = pumps.errands()
    assert [it.pump.node.node_id for it in errands] == sorted(silent)
    assert {Binlog.FromString(it.payload).tp for it in errands} == {BinlogType.Rollback}
    assert {Binlog.FromString(it.payload).start_ts for it in errands} == {7}
    pumps.done(errands[0])
    assert pumps.errands() == errands[1:]
    assert asked(end(pumps, 7)) == home


def test_a_prewrite_that_the_same_pump_has_stored_in_the_end_is_not_taken_back() -> None:
    pumps = made(1)
    writing = begin(pumps, 7)
    tries(writing, 1, SILENT)
    writing.begin()
    writing.stored()
    pumps.done(pumps.errands()[0])
    assert pumps.errands() == []


def test_what_a_client_remembers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OPEN", 3)
    monkeypatch.setattr(module, "DOUBTS", 2)
    pumps = made(2)
    for start_ts in (1, 2, 3):
        writing = begin(pumps, start_ts)
        while asked(writing) != "pump-0":
            writing.failed(REFUSED, 0.0)
        writing.failed(Failure("UNAVAILABLE: ", is_unknown=True), 0.0)
        assert asked(writing) == "pump-1"
        writing.stored()
    with pytest.raises(BadParameterError, match="3 transactions have no end yet"):
        begin(pumps, 4)
    pumps.done(pumps.errands()[0])  # it has failed three times
    assert [it.start_ts for it in pumps.errands()] == [1, 2]
    ending = end(pumps, 1)
    ending.begin()
    ending.stored()
    assert store(pumps, [4]) == ["pump-0"]


@pytest.mark.parametrize("strategy", ["range", "hash", "score"])
def test_ends_go_where_the_prewrites_are_whatever_happens(strategy: Strategy) -> None:
    chance = random.Random(7)
    pumps, homes = made(4, strategy), dict[int, str]()
    for start_ts in range(1, 3000):
        if chance.random() < 0.1:
            pumps.learn(node(it, chance.choice(list(State))) for it in range(4) if chance.random() < 0.9)
        if chance.random() < 0.1:
            for errand in pumps.errands():
                pumps.done(errand)
        writing = begin(pumps, start_ts)
        while (pump := writing.begin()) is not None and chance.random() < 0.4:
            assert pump.node.state == State.ONLINE
            writing.failed(chance.choice((REFUSED, SILENT)), 0.0)
        if pump is not None:
            writing.stored()
            homes[start_ts] = pump.node.node_id
        if homes and chance.random() < 0.9:
            start = chance.choice(list(homes))
            ending = end(pumps, start)
            for _ in range(chance.randrange(3)):
                assert asked(ending) == homes[start]
                ending.failed(SILENT, 0.0)
            assert asked(ending) == homes.pop(start)
            ending.stored()
