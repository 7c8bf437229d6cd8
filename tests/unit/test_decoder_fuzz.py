"""The decoder against mutated events: whatever the bytes are, the answer is an entry or a DecodeError."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.effort import times

ROOT = Path(__file__).parents[2]
COUNT = times(10_000, 100_000)


def test_mutated_events_neither_crash_nor_hang_and_fail_as_decode_errors() -> None:
    seed = os.environ.get("SLUICE_FUZZ_SEED", "1")
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzzing", str(COUNT), "--seed", seed],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONFAULTHANDLER": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=170,
    )
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr[-4000:]}"
    outcomes = json.loads(done.stdout)
    assert sum(outcomes.values()) == COUNT
    assert outcomes["decoded"] > COUNT / 20  # mutations that change values only
    assert outcomes["DecodeError"] > COUNT / 20
