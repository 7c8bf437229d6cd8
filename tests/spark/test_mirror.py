"""The mirror: a target that is like the source, however it is started, stopped and started again."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sluice.client_sdk.spark.database import Database
from sluice.client_sdk.spark.mirror import start_mirror
from tests.conftest import Database as Schemas
from tests.faults.harness import Sluice
from tests.servers import Server


class Mirror:
    """A mirror of one schema."""

    def __init__(
        self, spark: SparkSession, sluice: Sluice, folder: Path, schema: str, target: Server, copy: str
    ) -> None:
        self.spark, self.sluice = spark, sluice
        self.checkpoint = folder / "checkpoint"
        self.database = Database(target.host, target.port, target.user, target.password)
        self.schema, self.target, self.copy = schema, target, copy

    def start(self, **options: Any) -> StreamingQuery:
        source = {"url": self.sluice.url, "destination": "shop", "clientId": 3001, "maxRowsPerTrigger": 100}
        given = {"schemas": {self.schema: self.copy}, "progress": f"{self.copy}_progress"} | options
        return start_mirror(self.spark, self.database, str(self.checkpoint), source, **given)

    def run(self, **options: Any) -> None:
        """Apply what is there."""
        query = self.start(once=True, **options)
        assert query.awaitTermination(100)


@pytest.fixture
def target(mysql97: Server) -> Server:
    return mysql97


@pytest.fixture
def mirror(
    spark: SparkSession, sluice: Sluice, schema: str, target: Server, database: Schemas, tmp_path: Path
) -> Iterator[Mirror]:
    copy = database(target)
    yield Mirror(spark, sluice, tmp_path, schema, target, copy)
    target.query(f"DROP DATABASE IF EXISTS {copy}_progress")


def test_changes_arrive(mirror: Mirror, source: Server) -> None:
    for server, schema in ((source, mirror.schema), (mirror.target, mirror.copy)):
        server.query("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))", database=schema)
    source.query("INSERT INTO t VALUES (1, 'a'), (2, NULL), (3, 'c')", database=mirror.schema)
    mirror.run()
    assert mirror.target.query("SELECT * FROM t", database=mirror.copy) == [(1, "a"), (2, None), (3, "c")]
