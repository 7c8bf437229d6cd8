"""Group commit: which write makes which changes durable."""

import pytest

from sluice.store.commits import Commits
from sluice.store.cursors import Cursors
from sluice.store.ring import Ring


@pytest.fixture
def cursors() -> Cursors:
    cursors = Cursors(Ring(64), epoch=1, compile_filter=lambda _: None)
    cursors.subscribe(1, now=0.0)
    return cursors


@pytest.fixture
def commits(cursors: Cursors) -> Commits[str]:
    return Commits(cursors.clients)


def begun(commits: Commits[str]) -> list[int]:
    changes = commits.begin()
    assert changes is not None
    return list(changes.clients)


def test_waiting_for_what_is_stored_already_ends_at_once(commits: Commits[str]) -> None:
    commits.begin()
    commits.end(durable=True)
    assert not commits.wait("a")
    assert commits.begin() is None


def test_what_comes_during_a_write_shares_the_next_one(commits: Commits[str], cursors: Cursors) -> None:
    assert commits.wait("a")
    assert begun(commits) == [1]
    assert commits.wait("b"), "it waits for the write under way, which has its changes"
    cursors.subscribe(2, now=0.0)
    cursors.subscribe(3, now=0.0)
    assert commits.wait("c")
    assert commits.wait("d")
    assert commits.begin() is None, "one write at a time"
    assert commits.end(durable=True) == ["a", "b"]
    assert begun(commits) == [2, 3]
    assert commits.end(durable=True) == ["c", "d"]


def test_what_could_not_be_stored_is_in_the_next_write(commits: Commits[str], cursors: Cursors) -> None:
    commits.wait("a")
    commits.begin()
    cursors.subscribe(2, now=0.0)
    assert commits.end(durable=False) == ["a"]
    assert begun(commits) == [1, 2]


@pytest.mark.parametrize("durable", [False, True])
def test_a_caller_that_came_during_a_write_gets_another_one(
    commits: Commits[str], cursors: Cursors, durable: bool
) -> None:
    commits.wait("a")
    commits.begin()
    wanted = [commits.wanted]
    cursors.subscribe(2, now=0.0)
    commits.wait("b")
    wanted.append(commits.wanted)
    assert commits.end(durable=durable) == ["a"]
    wanted.append(commits.wanted)
    commits.begin()
    wanted.append(commits.wanted)
    assert wanted == [False, True, True, False]
    assert commits.end(durable=True) == ["b"]
