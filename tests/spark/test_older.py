"""Spark 4.1, which has no limits of micro-batches and is the newest that Iceberg and Delta Lake have jars for."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.faults.harness import Sluice
from tests.faults.spark_harness import ROOT, older_spark
from tests.servers import Server
from tests.spark.streams import options

pytestmark = pytest.mark.extended


def written(lake: str, work: str, sluice: Sluice, table: str, folder: Path, **others: Any) -> Any:
    """Have a query write what is there now: the table of the lake, or the error of the query."""
    jars = subprocess.check_output([ROOT / "tests/spark/lakes.sh", lake], text=True).strip()
    given = {"lake": lake, "jars": jars, "folder": str(folder), "options": options(sluice, table=table), "work": work}
    command = [older_spark("4.1"), "-m", "tests.spark.lake_driver", json.dumps(given | others)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-6000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.timeout(600)
@pytest.mark.parametrize("lake", ["iceberg", pytest.param("delta", marks=pytest.mark.soak)])
def test_a_table_is_kept_like_that_of_the_source_by_merge(
    lake: str, source: Server, schema: str, sluice: Sluice, tmp_path: Path
) -> None:
    """All that the source has comes in one micro-batch, also what is more than the ring holds."""
    table = f"{schema}.goods"
    source.query(f"CREATE TABLE {table} (id INT PRIMARY KEY, name VARCHAR(20))")
    source.query(f"INSERT INTO {table} VALUES (1, 'a'), (2, 'b'), (3, NULL)")
    assert written(lake, "merge", sluice, table, tmp_path) == [[1, "a"], [2, "b"], [3, None]]
    source.query(f"UPDATE {table} SET name = 'c' WHERE id = 1")
    source.query(f"DELETE FROM {table} WHERE id = 2")
    source.query(f"UPDATE {table} SET id = 4 WHERE id = 3")
    capacity = sluice.destination()["capacity"]
    filler = "x" * 20
    source.query(f"INSERT INTO {table} SELECT seq, '{filler}' FROM {schema}.seq_10_to_{10 + capacity // 50}")
    sluice.stop()
    sluice.start()
    sluice.wait_running()
    found = written(lake, "merge", sluice, table, tmp_path)
    assert found[:2] == [[1, "c"], [4, None]]
    assert [row[0] for row in found[2:]] == list(range(10, 11 + capacity // 50))


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("lake", "column"), [pytest.param("iceberg", "pos", marks=pytest.mark.soak), ("delta", "_pos")]
)
def test_a_table_whose_positions_have_no_member_goes_on_after_it_was_altered(
    lake: str, column: str, source: Server, schema: str, sluice: Sluice, tmp_path: Path
) -> None:
    """The statement is that of the documentation; without it the table does not take the rows."""
    page = (ROOT / "docs/spark-reference.md").read_text()
    found = re.search(rf"`ALTER TABLE \S+ (ADD COLUMN {column}\.member .*?)`", page)
    assert found is not None
    table = f"{schema}.goods"
    source.query(f"CREATE TABLE {table} (id INT PRIMARY KEY, name VARCHAR(20))")
    source.query(f"INSERT INTO {table} VALUES (2, 'a')")
    assert written(lake, "append as before", sluice, table, tmp_path) == [[2, "a"]]
    source.query(f"INSERT INTO {table} VALUES (1, 'b')")
    with pytest.raises(AssertionError, match="member"):
        written(lake, "append", sluice, table, tmp_path)
    altered = {"before": [f"ALTER TABLE {{table}} {found[1]}"], "columns": ["id", "name", f"{column}.member"]}
    assert written(lake, "append", sluice, table, tmp_path, **altered) == [[2, "a", None], [1, "b", None]]
