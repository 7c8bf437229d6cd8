"""Spark 4.1, which has no limits of micro-batches and is the newest that Iceberg has jars for."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.faults.harness import Sluice
from tests.faults.spark_harness import ROOT, older_spark
from tests.servers import Server
from tests.spark.streams import options

pytestmark = pytest.mark.extended


def merged(sluice: Sluice, table: str, folder: Path) -> Any:
    """Run the query on what is there now: the table of Iceberg."""
    jar = subprocess.check_output([ROOT / "tests/spark/iceberg.sh"], text=True).strip()
    order = {"jar": jar, "folder": str(folder), "options": options(sluice, table=table)}
    command = [older_spark("4.1"), "-m", "tests.spark.iceberg_driver", json.dumps(order)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-6000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.timeout(600)
def test_a_table_of_iceberg_is_kept_like_that_of_the_source_by_merge(
    source: Server, schema: str, sluice: Sluice, tmp_path: Path
) -> None:
    """All that the source has comes in one micro-batch, also what is more than the ring holds."""
    table = f"{schema}.goods"
    source.query(f"CREATE TABLE {table} (id INT PRIMARY KEY, name VARCHAR(20))")
    source.query(f"INSERT INTO {table} VALUES (1, 'a'), (2, 'b'), (3, NULL)")
    assert merged(sluice, table, tmp_path) == [[1, "a"], [2, "b"], [3, None]]
    source.query(f"UPDATE {table} SET name = 'c' WHERE id = 1")
    source.query(f"DELETE FROM {table} WHERE id = 2")
    source.query(f"UPDATE {table} SET id = 4 WHERE id = 3")
    assert merged(sluice, table, tmp_path) == [[1, "c"], [4, None]]
    capacity = sluice.destination()["capacity"]
    filler = "x" * 20
    source.query(f"INSERT INTO {table} SELECT seq, '{filler}' FROM {schema}.seq_10_to_{10 + capacity // 50}")
    sluice.stop()
    sluice.start()
    sluice.wait_running()
    found = merged(sluice, table, tmp_path)
    assert found[:2] == [[1, "c"], [4, None]]
    assert [row[0] for row in found[2:]] == list(range(10, 11 + capacity // 50))
