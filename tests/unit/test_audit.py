"""The list of what was changed at a destination."""

from pathlib import Path

import pytest

from sluice.instance import audit
from sluice.instance.audit import Change, keep, path_of, read
from sluice.protocol.errors import ConfigError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return path_of(tmp_path, "shop")


def test_what_is_kept_is_read_again_the_last_ones_first_to_stay(path: Path) -> None:
    changes = [Change("seek", "alice", number, 1001, "a", "b", "more") for number in range(5)]
    for change in changes:
        keep(path, change)
    assert read(path, 100) == changes
    assert read(path, 2) == changes[-2:]
    assert path.stat().st_mode & 0o777 == 0o600


def test_nothing_was_changed_as_long_as_there_is_no_list(path: Path) -> None:
    assert read(path, 100) == []


def test_a_line_that_a_crash_has_cut_takes_no_other_with_it(path: Path) -> None:
    keep(path, Change("seek", "alice", 1))
    path.write_bytes(path.read_bytes()[:-5])
    keep(path, Change("stop", "bob", 2))
    assert [it.action for it in read(path, 100)] == ["a line that cannot be read", "stop"]


def test_the_list_and_its_texts_are_bounded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "MOST_BYTES", 3000)
    for number in range(100):
        keep(path, Change("seek", "w" * 10_000, number))
    assert sum(it.stat().st_size for it in path.parent.iterdir()) < 10_000
    found = read(path, 1000)
    assert [it.time for it in found] == list(range(100 - len(found), 100))
    assert {len(it.who) for it in found} == {1000}


def test_a_list_that_cannot_be_read_is_an_error(path: Path) -> None:
    path.mkdir(parents=True)
    with pytest.raises(ConfigError, match="cannot be read"):
        read(path, 100)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (Change("stop", "alice", 1), "stop by alice"),
        (Change("seek", "bob", 1, 7, "a", ""), "seek of client 7 by bob from a to -"),
        (Change("rollback", "bob", 1, 7, detail="2 batches"), "rollback of client 7 by bob: 2 batches"),
    ],
)
def test_a_change_is_said_in_words(change: Change, text: str) -> None:
    assert str(change) == text


def test_a_line_that_is_nested_too_deep_takes_no_other_with_it(path: Path) -> None:
    keep(path, Change("stop", "bob", 2))
    path.write_bytes(b"[" * 100_000 + b"\n" + path.read_bytes())
    assert [it.action for it in read(path, 100)] == ["a line that cannot be read", "stop"]
