"""What whole runs came to, kept in `tests/results/`: a line of `runs.jsonl` each, and of `soak.jsonl` for a long test.

A long test that has passed is not run again while the code of the product is the same, so `make soak` that was
interrupted goes on.
"""

import hashlib
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.environment import environment

ROOT = Path(__file__).parents[1]
PRODUCT = (
    *("protocol", "login", "store", "sql", "instance", "server", "client_sdk", "verify"),
    *("src", "setup.py", "requirements.lock"),
)
"""What a result is a result of."""
TIERS = {"not extended and not soak": "test", "not soak": "test-all"}
"""The commands whose runs are whole, by what they select."""


def product(root: Path = ROOT) -> str:
    """Return a name of the product's code as it is in the work tree: the same code has the same name in any commit."""
    git = ["git", "-C", str(root)]
    staged = subprocess.run([*git, "ls-files", "-s", "--", *PRODUCT], capture_output=True, check=True).stdout
    changed = subprocess.run([*git, "diff", "HEAD", "--", *PRODUCT], capture_output=True, check=True).stdout
    return hashlib.sha256(staged + changed).hexdigest()[:12]


def pace() -> float:
    """Return the CPU seconds that a computation takes: those of a processor that others use, too, vary by half."""
    begin = time.process_time()
    sum(number * number for number in range(5_000_000))
    return round(time.process_time() - begin, 2)


class Recorder:
    """Writes down how the tests of a run ended; `soak` says that each of them is to be kept by itself."""

    def __init__(self, folder: Path, *, soak: bool, code: str) -> None:
        self._folder = folder
        self._soak = soak
        self._code = code
        self._pace = pace()
        self._begin = time.monotonic()
        self._counts = {"passed": 0, "failed": 0, "skipped": 0}
        self._failures: list[str] = []
        folder.mkdir(exist_ok=True)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave out the long tests that have passed."""
        done = {it["test"] for it in self._known() if self._soak and it["outcome"] == "passed"}
        left_out = [it for it in items if it.nodeid in done]
        if left_out:
            config.hook.pytest_deselected(items=left_out)
            items[:] = [it for it in items if it.nodeid not in done]

    def _known(self) -> Iterator[dict[str, Any]]:
        file = self._folder / "soak.jsonl"
        for line in file.read_text().splitlines() if file.exists() else ():
            result = json.loads(line)
            if result["product"] == self._code:
                yield result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a test by how it was called, or by what went wrong before or after."""
        if report.when != "call" and report.passed:
            return
        self._counts[report.outcome] += 1
        if report.failed:
            self._failures.append(report.nodeid)
        if self._soak:
            self._write("soak.jsonl", test=report.nodeid, outcome=report.outcome, seconds=round(report.duration))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write down a run of all tests of its tier."""
        option = session.config.option
        tier = TIERS.get(option.markexpr)
        if tier and not option.keyword and session.config.args_source == pytest.Config.ArgsSource.TESTPATHS:
            seconds = round(time.monotonic() - self._begin)
            counts = {**self._counts, "failures": self._failures, "seconds": seconds}
            self._write("runs.jsonl", tier=tier, **counts, pace=[self._pace, pace()])

    def _write(self, name: str, **result: object) -> None:
        line = {"product": self._code, **result, **environment(), "ended": time.strftime("%Y-%m-%d %H:%M")}
        with (self._folder / name).open("a") as file:
            file.write(json.dumps(line) + "\n")
