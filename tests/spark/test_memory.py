"""A transaction that is much larger than what a micro-batch may hold goes through in memory that is bounded."""

import os
import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.faults.harness import Sluice
from tests.faults.spark_harness import descendants
from tests.servers import Server
from tests.spark.streams import load
from tests.waiting import eventually

pytestmark = pytest.mark.extended

MIB = 1 << 20
RING = 32 * MIB
BATCH = 8 * MIB
ROWS, SIZE = 10_000, 30_000


@pytest.fixture
def sluice(tmp_path: Path, source: Server, schema: str) -> Sluice:
    """A server with a small ring; not started."""
    server = Sluice(tmp_path / "sluice")
    server.add(
        "shop",
        source,
        canal__instance__filter__regex=rf"{schema}\\..*",
        canal__instance__memory__buffer__size=RING // 1024,
    )
    return server


def peaks() -> dict[str, int]:
    """The most memory that our Spark's processes in Python have held, in bytes: of readers that control, of workers."""
    found = {"control": 0, "worker": 0}
    for process in descendants(os.getpid()):
        kind = "control" if "streaming_source_runner" in process.command else "worker"
        if kind == "control" or "pyspark.daemon" in process.command:
            status = Path(f"/proc/{process.pid}/status").read_text()
            found[kind] = max(found[kind], *(int(kb) * 1024 for kb in re.findall(r"VmHWM:\s+(\d+)", status)))
    return found


@pytest.mark.timeout(600)
def test_a_transaction_of_300_mb_in_micro_batches_of_8(
    spark: SparkSession, source: Server, schema: str, sluice: Sluice, tmp_path: Path
) -> None:
    source.query(f"CREATE TABLE {schema}.wide (id INT PRIMARY KEY, filler TEXT)")
    with sluice:
        sluice.wait_running()
        query = (
            load(spark, sluice, maxBytesPerTrigger=BATCH)
            .writeStream.format("noop")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )

        def rows() -> int:
            assert query.isActive, query.exception()
            return sum(progress.numInputRows for progress in query.recentProgress)

        source.query(f"INSERT INTO {schema}.wide VALUES (0, REPEAT('x', {SIZE}))")
        eventually(lambda: rows() == 1, lambda: query.status, 120)
        before = peaks()
        sluice.forget_peak()
        idle = sluice.memory("VmRSS")
        source.query(
            f"INSERT INTO wide SELECT seq, REPEAT(CHAR(65 + seq % 26), {SIZE}) FROM seq_1_to_{ROWS}", database=schema
        )
        eventually(lambda: rows() == 1 + ROWS, lambda: (rows(), query.status), 400)
        grown = {name: peak - before[name] for name, peak in peaks().items()}
        grown["server"] = sluice.memory("VmHWM") - idle
        query.stop()
    print({name: f"{size / MIB:.0f} MiB" for name, size in grown.items()})  # noqa: T201
    assert grown["server"] < RING + 16 * MIB
    assert grown["worker"] < 8 * BATCH
    assert grown["control"] < 8 * MIB
