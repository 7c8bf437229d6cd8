"""What starts the processes of a server, and starts them again."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import eventually

SUPERVISOR = """
import asyncio, logging, sys
from sluice.server import processes

logging.basicConfig(level=logging.ERROR, format="%(message)s")
asyncio.run(processes.supervise([[sys.argv[1]], [sys.argv[2]]]))
"""


def program(path: Path, then: str) -> None:
    """Write a program that notes that it runs."""
    path.with_suffix(".new").write_text(f"#!/bin/sh\necho run >> {path}.runs\n{then}\n")
    path.with_suffix(".new").chmod(0o755)
    path.with_suffix(".new").rename(path)


def runs(path: Path) -> int:
    noted = Path(f"{path}.runs")
    return len(noted.read_text().splitlines()) if noted.exists() else 0


def wait_for_runs(path: Path, count: int) -> None:
    eventually(lambda: runs(path) >= count, lambda: f"{count} runs, not {runs(path)}")


@pytest.fixture
def first(tmp_path: Path) -> Path:
    return tmp_path / "first"


@pytest.fixture
def second(tmp_path: Path) -> Path:
    program(tmp_path / "second", "exec sleep 60")
    return tmp_path / "second"


@pytest.fixture
def supervisor(first: Path, second: Path) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-c", SUPERVISOR, str(first), str(second)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def test_one_that_cannot_be_started_is_tried_again_while_the_others_run(
    supervisor: "subprocess.Popen[str]", first: Path, second: Path
) -> None:
    wait_for_runs(second, 1)
    assert supervisor.stderr is not None
    assert "process 0 has not started: " in supervisor.stderr.readline()
    program(first, "exec sleep 60")
    wait_for_runs(first, 1)
    supervisor.terminate()
    assert supervisor.wait(10) == 0
    assert runs(second) == 1


def test_one_that_a_signal_without_a_name_has_ended_is_started_again(
    supervisor: "subprocess.Popen[str]", first: Path, second: Path
) -> None:
    wait_for_runs(second, 1)
    program(first, "kill -40 $$")
    wait_for_runs(first, 2)
    supervisor.terminate()
    assert "process 0 has been ended by signal 40; it starts again" in supervisor.communicate(timeout=10)[1]
    assert runs(second) == 1
