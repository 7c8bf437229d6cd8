"""The pages keep what they promise about the code, and their links lead somewhere."""

import re
from pathlib import Path

import pytest

from sluice.server.problems import PROBLEM_TYPES

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text())
    broken = [to for to in targets if "://" not in to and not (page.parent / to).exists()]
    assert broken == []


def test_every_problem_is_described() -> None:
    rows = re.findall(r"^\| (\d{3}) \| (.+?) \|", (ROOT / "docs/http.md").read_text(), re.MULTILINE)
    described = {name: int(status) for status, names in rows for name in re.findall(r"`([^`]+)`", names)}
    internal = {"undecodable", "bad-configuration"}
    problems = {error.type: described.status for error, described in PROBLEM_TYPES.items()}
    assert described == {name: status for name, status in problems.items() if name not in internal}
