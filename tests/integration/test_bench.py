"""The measurements run, and count what was written."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def measure(*arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-W", "error", "-m", "bench", *arguments, "--rows", "4000", "--runs", "1"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    result = json.loads(ran.stdout)
    assert isinstance(result, dict)
    assert result["rows"] == 4000
    assert result["rows_per_second"] > 0
    assert {"commit", "versions", "hardware"} <= result.keys()
    return result


@pytest.mark.parametrize("source", ["mysql97", "mariadb118"])
@pytest.mark.parametrize("table", ["narrow", "sysbench", "mixed"])
def test_decoding(source: str, table: str) -> None:
    measure("decode", "--source", source, "--table", table)


@pytest.mark.parametrize("form", ["typed", "envelope"])
def test_decoding_to_arrow(form: str) -> None:
    assert measure("arrow", "--source", "mariadb118", "--table", "mixed", "--as", form)["as"] == form


@pytest.mark.parametrize("source", ["mysql97", "mariadb118"])
def test_delivery(source: str) -> None:
    measure("deliver", "--source", source, "--workload", "changes", "--typed")


@pytest.mark.parametrize("workload", ["bulk", "single"])
def test_delivery_of_large_and_of_small_transactions(workload: str) -> None:
    result = measure("deliver", "--workload", workload)
    assert set(result["cpu_seconds_per_million_rows"]) == {"source", "server", "client"}
