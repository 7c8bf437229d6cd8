"""What is written down of runs, and which long tests need not run again."""

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest

from tests.recording import PRODUCT, ROOT, Recorder, product


def report(
    name: str, outcome: Literal["passed", "failed"], when: Literal["setup", "call"] = "call"
) -> pytest.TestReport:
    return pytest.TestReport(name, ("", 0, ""), {}, outcome, None, when, duration=2.4)


def session(args_source: pytest.Config.ArgsSource, keyword: str = "", marks: str = "not extended and not soak") -> Any:
    option = SimpleNamespace(keyword=keyword, markexpr=marks)
    return SimpleNamespace(config=SimpleNamespace(option=option, args_source=args_source))


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_a_run_of_all_tests_is_a_line_with_its_failures_and_the_code_it_tested(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, soak=False, code="abc")
    for it in (
        report("a", "passed", "setup"),
        report("a", "passed"),
        report("b", "failed", "setup"),
        report("c", "failed"),
    ):
        recorder.pytest_runtest_logreport(it)
    recorder.pytest_sessionfinish(session(pytest.Config.ArgsSource.TESTPATHS))
    (line,) = lines(tmp_path / "runs.jsonl")
    assert (line["product"], line["passed"], line["failed"], line["failures"]) == ("abc", 1, 2, ["b", "c"])
    assert {"commit", "hardware", "pace", "seconds", "tier"} <= line.keys()


@pytest.mark.parametrize(
    "some",
    [
        session(pytest.Config.ArgsSource.ARGS),
        session(pytest.Config.ArgsSource.TESTPATHS, keyword="ring"),
        session(pytest.Config.ArgsSource.TESTPATHS, marks="extended"),
    ],
)
def test_a_run_of_some_tests_is_not_written_down(tmp_path: Path, some: Any) -> None:
    Recorder(tmp_path, soak=False, code="abc").pytest_sessionfinish(some)
    assert not (tmp_path / "runs.jsonl").exists()


def test_a_long_test_that_has_passed_runs_again_only_on_other_code(tmp_path: Path) -> None:
    first = Recorder(tmp_path, soak=True, code="abc")
    first.pytest_runtest_logreport(report("passed[1]", "passed"))
    first.pytest_runtest_logreport(report("failed[2]", "failed"))
    left = {}
    for code in ("abc", "def"):
        items: Any = [SimpleNamespace(nodeid=name) for name in ("passed[1]", "failed[2]", "new[3]")]
        config: Any = SimpleNamespace(hook=SimpleNamespace(pytest_deselected=lambda items: None))
        Recorder(tmp_path, soak=True, code=code).pytest_collection_modifyitems(config, items)
        left[code] = [it.nodeid for it in items]
    assert left == {"abc": ["failed[2]", "new[3]"], "def": ["passed[1]", "failed[2]", "new[3]"]}


def test_the_same_code_has_the_same_name_in_any_commit(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments], cwd=tmp_path, check=True)

    git("init", "-q")
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "ring.py").write_text("a = 1\n")
    (tmp_path / "README.md").write_text("one\n")
    git("add", ".")
    git("commit", "-q", "-m", "first")
    first = product(tmp_path)
    (tmp_path / "README.md").write_text("two\n")
    git("commit", "-q", "-a", "-m", "second")
    assert product(tmp_path) == first
    (tmp_path / "store" / "ring.py").write_text("a = 2\n")
    changed = product(tmp_path)
    assert changed != first
    git("commit", "-q", "-a", "-m", "third")
    assert product(tmp_path) not in (first, changed)


def test_a_result_is_of_all_packages() -> None:
    assert {it.name for it in (ROOT / "src" / "sluice").iterdir() if it.is_dir() and it.is_symlink()} <= set(PRODUCT)
