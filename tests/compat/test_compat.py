"""What Sluice delivers is what stock Canal 1.1.7 delivers, but for the deviations that are documented."""

import re
from pathlib import Path

import pytest

from tests.compat.differences import ALLOWED, DEFAULT, STRICT
from tests.compat.run import SOURCES, Source, perform, problems

DEVIATIONS = Path(__file__).parents[2] / "docs" / "deviations.md"


def test_entries_equal_canals() -> None:
    result = perform(Source("mysql97"), short=True)
    assert list(problems(result)) == []
    assert all(result.compared.values())


@pytest.mark.soak
@pytest.mark.parametrize("source", SOURCES, ids=str)
def test_entries_of_the_whole_script_equal_canals(source: Source) -> None:
    assert list(problems(perform(source))) == []


def test_every_difference_that_is_allowed_is_documented_with_its_switch() -> None:
    restored, _, always = DEVIATIONS.read_text().partition("\n## Always different")
    documented = {
        subject: modes
        for text, modes in ((restored, {DEFAULT}), (always, {DEFAULT, STRICT}))
        for subject in re.findall(r"^\| (.+?) \|", text, re.MULTILINE)
    }
    assert {it.deviation for it in ALLOWED} <= documented.keys()
    assert [it for it in ALLOWED if not set(it.modes) <= documented[it.deviation]] == []
