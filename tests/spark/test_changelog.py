"""The change log as Parquet: what is read back is what the source wrote, once each."""

import subprocess
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from tests.faults.harness import Sluice
from tests.servers import Server


def run(sluice: Sluice, folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run `sluice spark changelog` to its end."""
    command = [sys.executable, "-m", "sluice.server.cli", "spark", "changelog", "shop", "2001", "--url", sluice.url]
    places = ["--to", str(folder / "changes"), "--checkpoint", str(folder / "checkpoint")]
    return subprocess.run([*command, *places, *arguments], capture_output=True, text=True, check=False, timeout=100)


def test_the_command_writes_what_is_there_and_says_so(
    spark: SparkSession, source: Server, schema: str, sluice: Sluice, tmp_path: Path
) -> None:
    source.query(f"CREATE TABLE {schema}.goods (id INT PRIMARY KEY, name VARCHAR(20))")
    source.query(f"INSERT INTO {schema}.goods VALUES (1, 'a'), (2, NULL)")
    done = run(sluice, tmp_path, "--once", "--master", "local[1]")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.splitlines()[-1] == "2 rows written, 0 rows and 0.0 s behind"
    rows = spark.read.parquet(str(tmp_path / "changes")).orderBy("_pos").collect()
    assert [(row["schema"], row["table"], row["after"]) for row in rows] == [
        (schema, "goods", {"id": "1", "name": "a"}),
        (schema, "goods", {"id": "2", "name": None}),
    ]
