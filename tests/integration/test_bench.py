"""The measurements run, and count what was written."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-W", "error", "-m", "bench", *arguments]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    result = json.loads(ran.stdout)
    assert isinstance(result, dict)
    return result


def measure(*arguments: str) -> dict[str, Any]:
    result = run(*arguments, "--rows", "4000", "--runs", "1")
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


def rates(*arguments: str, only: Sequence[str]) -> list[dict[str, Any]]:
    """The cases that are asked for, in the form that all measurements in rows per second have."""
    chosen = [word for name in only for word in ("--only", name)]
    result = run(*arguments, *chosen, "--rows", "4000", "--repeats", "1", "--batch-size", "100")
    assert result.keys() == {"bench", "environment", "cases"}
    assert {"commit", "versions", "hardware"} <= result["environment"].keys()
    found: list[dict[str, Any]] = result["cases"]
    assert [case["case"] for case in found] == list(only)
    for case in found:
        assert case["ours"] > 0
        assert case["anchor"] > 0
        assert case["spread"] == [case["ours"]] * 2
        assert case["cpu_s_per_mrow"].keys() == case["peak_mb"].keys() == {"database", "server", "client"}
    return found


def test_delivery() -> None:
    rates("deliver", only=("single", "single-get", "single-rows", "single-arrow", "single-json"))


@pytest.mark.timeout(300)
def test_side_by_side_with_canal() -> None:
    for case in rates("peers", "--source", "mysql56", only=("wide", "wide-tcp")):
        assert case["anchor_cpu_s_per_mrow"]["server"] > 0


@pytest.mark.timeout(900)  # Spark is started four times
def test_reading_in_spark() -> None:
    size = ("--rows", "1000", "--micro-batches", "2", "--repeats", "1", "--seconds", "1", "--warm-up", "0")
    cases = ("update-2cores", "latency-1000", "mirror")
    result = run("spark", *size, *(argument for case in cases for argument in ("--only", case)))
    assert {"commit", "versions", "hardware"} <= result["environment"].keys()
    throughput, latency, mirror = result["cases"]
    assert tuple(case["case"] for case in result["cases"]) == cases
    assert throughput["ours"] > 0
    assert throughput["anchor"] > 0
    assert 0 < throughput["share_ours"] < 1
    assert latency["rows"] == 1000
    assert 0 < latency["p50_ms"] <= latency["p99_ms"] <= latency["max_ms"]
    assert mirror["ours"] > 0
    assert mirror["anchor"] > 0
