"""The list of what outputs have left out."""

from dataclasses import replace
from pathlib import Path

import pytest

from sluice.instance.skipped import Skipped, keep, path_of, read
from sluice.protocol.errors import ConfigError

ITEM = Skipped("1/bin.000001@1700000000:104:1", "the row id=7 of shop.goods is too large", "mq", 1.7e9)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return path_of(tmp_path, "shop")


def test_what_is_added_is_listed_in_order(path: Path) -> None:
    assert read(path) == []
    others = [replace(ITEM, position=f"{ITEM.position}{number}") for number in range(3)]
    keep(path, [ITEM])
    keep(path, others)
    assert read(path) == [ITEM, *others]
    assert path.stat().st_mode & 0o77 == 0


def test_what_is_left_out_again_after_a_crash_is_listed_once(path: Path) -> None:
    keep(path, [ITEM])
    keep(path, [replace(ITEM, time=1.8e9), replace(ITEM, output="audit")])
    assert [(it.output, it.time) for it in read(path)] == [("mq", 1.8e9), ("audit", 1.7e9)]


@pytest.mark.parametrize("cut", [1, 20, 100])
def test_a_line_that_a_crash_has_cut_takes_no_other_with_it(path: Path, cut: int) -> None:
    keep(path, [ITEM, replace(ITEM, output="cut")])
    path.write_bytes(path.read_bytes()[:-cut])
    keep(path, [replace(ITEM, output="audit")])
    assert [it.output for it in read(path)] == ["mq", *["cut"] * (cut == 1), "audit"]


def test_a_list_that_cannot_be_read_is_named(path: Path) -> None:
    path.mkdir(parents=True)
    with pytest.raises(ConfigError, match=f"{path} cannot be read"):
        read(path)


def test_a_line_that_is_nested_too_deep_takes_no_other_with_it(path: Path) -> None:
    keep(path, [ITEM])
    path.write_bytes(b"[" * 100_000 + b"\n" + path.read_bytes())
    assert read(path) == [ITEM]
