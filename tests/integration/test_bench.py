"""The measurements run, and count what was written."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.extended

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-W", "error", "-m", "bench", *arguments]
    ran = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    result = json.loads(ran.stdout)
    assert isinstance(result, dict)
    return result


def test_workloads() -> None:
    cases = run("workloads", "--rows", "4000", *only("bulk", "bulk-mysql97", "bulk-mysql97-compressed"))["cases"]
    plain, mysql, compressed = (case["ours"] for case in cases)
    assert compressed < mysql
    assert [case["anchor"] for case in cases] == [None, plain, plain]


@pytest.mark.extended
def test_stages() -> None:
    (case,) = run("stages", "--rows", "4000", "--repeats", "1", *only("mixed"))["cases"]
    assert case["anchor"] > 0
    assert case["ours"] > 0
    stages = ["socket", "framing", "decode", "filter", "put", "get", "http", "tcp", "rows", "arrow"]
    assert [stage["stage"] for stage in case["stages"]] == stages
    assert all(stage["rows_per_s"] > 0 for stage in case["stages"])


def only(*names: str) -> list[str]:
    return [word for name in names for word in ("--only", name)]


def rates(*arguments: str, names: Sequence[str]) -> list[dict[str, Any]]:
    """The cases that are asked for, in the form that all measurements in rows per second have."""
    result = run(*arguments, *only(*names), "--rows", "4000", "--repeats", "1", "--batch-size", "100")
    assert result.keys() == {"bench", "environment", "cases"}
    assert {"commit", "versions", "hardware"} <= result["environment"].keys()
    found: list[dict[str, Any]] = result["cases"]
    assert [case["case"] for case in found] == list(names)
    for case in found:
        assert case["ours"] > 0
        assert case["anchor"] > 0
        assert case["spread"] == [case["ours"]] * 2
        assert case["cpu_s_per_mrow"].keys() == case["peak_mb"].keys() == {"database", "server", "client"}
    return found


@pytest.mark.extended
def test_delivery() -> None:
    found = rates("deliver", names=("single", "single-get", "single-rows", "single-json"))
    assert len({case["anchor"] for case in found}) == 1, "the raw dump is measured once"
    for case in found:
        assert case["ratio"] == pytest.approx(case["ours"] / case["anchor"], 0.01, 0.001)


def test_report_and_comparison_of_two_results(tmp_path: Path) -> None:
    results, page = tmp_path / "results", tmp_path / "page.md"
    page.write_text("# Page\n")
    size = ("--rows", "4000", "--repeats", "1", "--stage", "decode")
    before, after = results / "before.json", results / "after.json"
    command = [sys.executable, "-m", "bench", "stages", *only("bulk"), *size, "--json", str(before)]
    subprocess.run(command, cwd=ROOT, check=True, stderr=subprocess.PIPE)
    slower = json.loads(before.read_text())
    slower["cases"][0] |= {"ours": 1, "spread": [1, 1]}
    after.write_text(json.dumps(slower))
    run("report", "--results", str(results), "--page", str(page))
    assert page.read_text().count("| bulk | rows/s |") == 2
    assert (tmp_path / "plots" / "after.svg").exists()
    compare = [sys.executable, "-m", "bench.compare", str(before), str(after)]
    compared = subprocess.run(compare, cwd=ROOT, capture_output=True, text=True, check=False)
    assert compared.returncode == 1
    assert "worse  bulk" in compared.stdout


@pytest.mark.extended
def test_latency() -> None:
    names = ("100", "100-poll-loaded")
    size = ("--seconds", "1", "--warm-up", "0.5", "--load", "1000", "--repeats", "1")
    found = run("latency", *only(*names), *size)["cases"]
    assert tuple(case["case"] for case in found) == names
    for case in found:
        assert 0 < case["p50_ms"] <= case["p99_ms"] <= case["max_ms"]
        assert case["ours"] == case["p50_ms"]


@pytest.mark.extended
def test_merge() -> None:
    size = ("--rows", "4000", "--repeats", "1", "--seconds", "1", "--warm-up", "0.5")
    single, stamps = run("merge", *only("single-4", "latency-us"), *size)["cases"]
    assert single["rows"] > 0  # the benchmark itself fails when they differ by more than the batches at both ends hold
    assert single["ratio"] == pytest.approx(single["ours"] / single["anchor"], 0.01, 0.001)
    assert 0 < stamps["p50_ms"] <= stamps["p99_ms"] <= stamps["max_ms"]
    assert stamps["added_p99_ms"] == pytest.approx(stamps["p99_ms"] - stamps["anchor"], abs=0.001)


@pytest.mark.extended
def test_snapshot() -> None:
    size = ("--rows", "4000", "--seconds", "1", "--warm-up", "0.5", "--repeats", "1")
    (case,) = run("snapshot", *only("sysbench"), *size)["cases"]
    assert (case["case"], case["rows"]) == ("sysbench", 4000)
    assert case["ours"] > 0
    assert case["ratio"] == pytest.approx(case["ours"] / case["anchor"], abs=0.001)
    assert case["added_p99_ms"] == pytest.approx(case["stream_p99_ms_beside"] - case["stream_p99_ms"], abs=0.001)


@pytest.mark.extended
def test_memory() -> None:
    (case,) = run("memory", *only("row"), "--scale", "0.01", "--repeats", "1")["cases"]
    assert case["rows"] == 1
    assert case["anchor"] > case["idle_mb"] > 0
    assert case["ours"] >= case["idle_mb"] - 5


@pytest.mark.extended
def test_scale() -> None:
    names = ("subscribers-1", "subscribers-10", "destinations-10", "batch-100")
    found = run("scale", *only(*names), "--rows", "4000", "--repeats", "1")["cases"]
    assert [case["anchor_name"] for case in found] == [None, "subscribers-1", None, None]
    assert [case["rows"] for case in found[:3]] == [4000, 40_000, 40_000]
    assert all(case["ours"] > 0 for case in found)


def test_of_everything_what_fits_into_the_time(tmp_path: Path) -> None:
    choice = ("--only", "memory", "--minutes", "0.2", "--results", str(tmp_path))
    command = [sys.executable, "-m", "bench.everything", *choice]
    ran = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    (idle,) = json.loads((tmp_path / "memory.json").read_text())["cases"]
    assert idle["case"] == "idle"
    assert idle["ours"] > 0
    assert "are left: python -m bench memory --repeats 1 --only transaction" in ran.stderr


@pytest.mark.extended
def test_acks() -> None:
    names = ("zookeeper", "period")
    size = ("--repeats", "1", "--clients", "2", "--acks", "20")
    found = run("acks", *only(*names), *size)["cases"]
    assert [(case["case"], case["anchor_name"]) for case in found] == [("zookeeper", "period"), ("period", None)]
    for case in found:
        assert case["ours"] > 0
        assert 0 < case["ack_p50_ms"] <= case["ack_p99_ms"] <= case["ack_max_ms"]


def test_tenants() -> None:
    size = ("--repeats", "1", "--clients", "2", "--seconds", "2")
    found = run("tenants", *only("quiet", "refused", "shared"), *size)["cases"]
    assert [(case["case"], bool(case["refused"]), bool(case["accepted"])) for case in found] == [
        ("quiet", False, False),
        ("refused", True, False),
        ("shared", False, True),
    ]
    assert all(case["ours"] > 0 for case in found)


@pytest.mark.extended
def test_waiting() -> None:
    names = ("filtered-1", "alike-100")
    found = run("waiting", *only(*names), "--repeats", "1", "--commits", "50")["cases"]
    assert [(case["case"], case["anchor_name"]) for case in found] == [
        ("filtered-1", None),
        ("alike-100", "filtered-1"),
    ]
    assert all(case["ours"] > 0 for case in found)
    assert found[1]["goal"] == pytest.approx(2 * found[0]["ours"], abs=1)


def test_process() -> None:
    found = run("process", "--rows", "40", "--repeats", "1")["cases"]
    assert [(case["case"], case["anchor_name"]) for case in found] == [
        ("threads-8", "threads-1"),
        ("tasks-8", "tasks-1"),
    ]
    for case in found:
        assert case["ours"] > 0
        assert case["goal"] == pytest.approx(7.2 * case["anchor"], abs=1)


@pytest.mark.parametrize(("source", "name"), [("mariadb118", "mixed"), ("mysql97", "update")])
def test_apply(source: str, name: str) -> None:
    (case,) = run("apply", *only(name), "--rows", "1000", "--repeats", "1", "--source", source)["cases"]
    assert (case["case"], case["anchor_name"]) == (name, "one connection")
    assert case["ratio"] == pytest.approx(case["ours"] / case["anchor"], 0.01, 0.001)
    assert case["replica_ratio"] == pytest.approx(case["ours"] / case["replica"], 0.01, 0.001)


def test_history() -> None:
    names = ("decode-bulk", "load-10000")
    decode, load = run("history", *only(*names), "--rows", "4000", "--repeats", "1")["cases"]
    assert (decode["case"], decode["anchor_name"]) == ("decode-bulk", "names in the events")
    assert decode["ours"] > 0
    assert 0 < load["s"] == load["ours"]
    assert load["rows"] == 10_000


@pytest.mark.extended
def test_store() -> None:
    found = run("store", "--rows", "4000", "--repeats", "1")["cases"]
    assert [it["case"] for it in found] == [
        "put-bulk",
        "put-single",
        "catchup-bulk",
        "catchup-cold",
        "catchup-single",
        "restart",
    ]
    *measured, restart = found
    for it in measured:
        assert it["ours"] > 0
        assert it["ratio"] > 0
        assert it["goal"] > 0
    assert restart["ours"] > 0
    assert restart["log_bytes"] > 0


@pytest.mark.extended
def test_sink() -> None:
    found = run("sink", "--rows", "4000", "--repeats", "1", "--count", "3")["cases"]
    many = ["destinations-3", "destinations-3-routed"]
    assert [it["case"] for it in found] == ["where-all", "where-few", "mask", "route-10", *many]
    assert all(it["ratio"] > 0 for it in found if it["case"] != "route-10")  # CPU is counted in ticks of 10 ms
    assert all(it["ours"] >= 0 for it in found)


@pytest.mark.extended
def test_failover() -> None:
    (case,) = run("failover", *only("2s"), "--kills", "1")["cases"]
    assert (case["case"], case["goal_s"]) == ("2s", 3)
    assert 0 < case["median_s"] == case["max_s"] == case["ours"]


@pytest.mark.extended
def test_switch() -> None:
    (case,) = run("switch", *only("mysql97-kill"), "--repeats", "1")["cases"]
    assert (case["case"], case["anchor"]) == ("mysql97-kill", 1)
    assert 0 < case["ours"] < case["median_s"]


@pytest.mark.timeout(300)
def test_side_by_side_with_canal() -> None:
    for case in rates("peers", "--source", "mysql56", names=("wide",)):
        assert case["anchor_cpu_s_per_mrow"]["server"] > 0
        assert case["ratio_undecoded"] == case["undecoded"]["ratio"] > 0
        assert case["undecoded"]["ours"] > 0
        assert case["undecoded"]["rows"] > 0


@pytest.mark.extended
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["flat-single", "canal-single"])
def test_kafka_beside_canals_producer_and_a_bare_loop(name: str) -> None:
    size = "--source", "mysql56", "--rows", "4000", "--repeats", "1"
    (case,) = run("kafka", *only(name), *size)["cases"]
    for figure in ("ours", "anchor", "bare", "ratio", "bare_ratio", "bytes_per_record"):
        assert case[figure] > 0, figure
    assert case["rows"] == 4000
    assert case["peak_mb"].keys() == {"database", "server", "broker"}
    if name == "flat-single":
        assert case["records"] == case["anchor_records"] == 12_000


@pytest.mark.extended
@pytest.mark.timeout(300)
def test_what_reads_a_topic_of_tidb() -> None:
    size = "--source", "mysql56", "--rows", "20000", "--repeats", "1"
    rows, arrow, as_source = run("kafka", *only("reader", "reader-arrow", "source-kafka"), *size)["cases"]
    for case in (rows, arrow, as_source):
        assert 0 < case["goal"] < 2_000_000
        assert case["ours"] > 0
    assert as_source["anchor_name"] == "the binlog"
    assert as_source["ratio"] > 0


@pytest.mark.extended
def test_how_late_rows_come_to_kafka() -> None:
    size = "--seconds", "1", "--warm-up", "1", "--repeats", "1"
    for case in run("kafka", *only("latency", "latency-transactional"), *size)["cases"]:
        assert 0 < case["p50_ms"] <= case["p99_ms"] <= case["max_ms"]


@pytest.mark.extended
@pytest.mark.timeout(300)
def test_canals_java_client() -> None:
    size = (
        "--source",
        "mysql56",
        "--rows",
        "4000",
        "--repeats",
        "1",
        "--pace",
        "100",
        "--seconds",
        "1",
        "--warm-up",
        "1",
    )
    throughput, latency = run("canal", *size, *only("wide-1000", "latency-linger"))["cases"]
    for case in (throughput, latency):
        assert case["ours"] > 0
        assert case["anchor"] > 0
        assert case["ratio"] == pytest.approx(case["ours"] / case["anchor"], 0.01, 0.001)
        assert case["anchor_cpu_s_per_mrow"].keys() == case["anchor_peak_mb"].keys() == {"database", "server", "client"}
    assert throughput["of_client_limit"] == pytest.approx(throughput["ours"] / throughput["client_limit"], 0.01)
    assert 0 < latency["p50_ms"] <= latency["p99_ms"] == latency["ours"]


def in_spark(*cases: str) -> list[dict[str, Any]]:
    """Measure cases in Spark, on next to nothing."""
    size = ("--rows", "1000", "--micro-batches", "2", "--repeats", "1", "--seconds", "1", "--warm-up", "0")
    result = run("spark", *size, *only(*cases))
    assert {"commit", "versions", "hardware"} <= result["environment"].keys()
    found: list[dict[str, Any]] = result["cases"]
    assert tuple(case["case"] for case in found) == cases
    return found


@pytest.mark.timeout(300)
def test_latency_in_spark() -> None:
    (latency,) = in_spark("latency-1000")
    assert latency["rows"] == 1000
    assert 0 < latency["p50_ms"] <= latency["p99_ms"] <= latency["max_ms"]


@pytest.mark.soak
@pytest.mark.timeout(900)  # Spark is started three times
def test_throughput_in_spark() -> None:
    throughput, mirror = in_spark("update-2cores", "mirror")
    assert throughput["ours"] > 0
    assert throughput["anchor"] > 0
    assert 0 < throughput["share_ours"] < 1
    assert mirror["ours"] > 0
    assert mirror["anchor"] > 0
