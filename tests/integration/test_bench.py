"""The measurements run, and count what was written."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("source", ["mysql97", "mariadb118"])
@pytest.mark.parametrize("table", ["narrow", "sysbench", "mixed"])
def test_decoding_is_measured_with_what_it_depends_on(source: str, table: str) -> None:
    command = [sys.executable, "-W", "error", "-m", "bench", "decode", "--source", source, "--table", table]
    ran = subprocess.run(
        [*command, "--rows", "4000", "--runs", "1"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    result = json.loads(ran.stdout)
    assert result["rows"] == 4000
    assert result["rows_per_second"] > 0
    assert {"commit", "versions", "hardware"} <= result.keys()
