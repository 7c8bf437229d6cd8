"""Threads that code may hang in."""

import subprocess
import sys
import threading

import pytest

from sluice.server.outputs.threads import LeftExecutor


def test_calls_are_made_in_their_order_in_one_thread() -> None:
    executor = LeftExecutor("calls")
    made: list[tuple[int, int]] = []
    calls = [executor.submit(lambda number: made.append((number, threading.get_ident())), it) for it in range(5)]
    failing = executor.submit(int, "x")
    executor.shutdown()
    assert executor.join(10)
    assert [number for number, _ in made] == list(range(len(calls)))
    assert len({thread for _, thread in made}) == 1
    with pytest.raises(ValueError, match="invalid literal"):
        failing.result()


def test_a_call_that_hangs_keeps_no_process() -> None:
    program = (
        "import time; from sluice.server.outputs.threads import LeftExecutor\n"
        "LeftExecutor('hanging').submit(time.sleep, 600)\n"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=60).returncode == 0
