"""Destinations that start at the same time, in a process of their own: nothing was made for them before."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_destinations_that_start_at_once_read_texts_and_times_right() -> None:
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.racing"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stderr[-4000:]}"
