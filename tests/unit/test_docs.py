"""The pages keep what they promise about the code, and their links lead somewhere."""

import re
from pathlib import Path

import pytest

from sluice.server.http.problems import PROBLEM_TYPES_OF_HTTP

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text())
    broken = [to for to in targets if "://" not in to and not (page.parent / to).exists()]
    assert broken == []


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/architecture.md", "docs/internals.md"])
def test_modules_that_are_named_exist(page: str) -> None:
    folders = [folder for folder in ROOT.iterdir() if folder.is_dir() and not folder.name.startswith((".", "build"))]
    files = {f"/{path.relative_to(ROOT)}" for folder in folders for path in (folder, *folder.rglob("*"))}
    code = re.sub(r"^ *```.*?^ *```", "", (ROOT / page).read_text(), flags=re.MULTILINE | re.DOTALL)
    named = re.findall(r"`([\w/]+\.(?:py|pyx|pxd|sql|patch)|[\w/]+/)`", code)
    missing = [name for name in named if not any(file.endswith(f"/{name.rstrip('/')}") for file in files)]
    assert named
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_targets_of_make_exist(page: Path) -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    called = re.findall(r"^ *\$? ?make ([\w-]+)|`make ([\w-]+)", page.read_text(), re.MULTILINE)
    assert {name for pair in called for name in pair if name} <= targets


def test_every_problem_is_described() -> None:
    rows = re.findall(r"^\| (\d{3}) \| (.+?) \|", (ROOT / "docs/http.md").read_text(), re.MULTILINE)
    described = {name: int(status) for status, names in rows for name in re.findall(r"`([^`]+)`", names)}
    internal = {"undecodable"}
    problems = {error.type: described.status for error, described in PROBLEM_TYPES_OF_HTTP.items()}
    assert described == {name: status for name, status in problems.items() if name not in internal}
