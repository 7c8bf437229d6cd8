"""Fixtures: one Spark for all tests of a process, a server with one destination, a schema on its source."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.conftest import Database
from tests.faults.harness import Sluice
from tests.servers import Server

ROOT = Path(__file__).resolve().parents[2]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each of these tests more time: on a busy machine Spark and its first query take a minute or two."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(300))


def start_spark(cores: str = "2", **others: str) -> SparkSession:
    """Start a small Spark: ``local[cores]``, with other settings as well."""
    # Its Python processes have to find the functions of tests.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.stopTimeout": "30s",
    }
    builder = SparkSession.builder.master(f"local[{cores}]").appName("sluice")
    for name, value in (settings | others).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Spark on 2 cores."""
    session = start_spark()
    yield session
    session.stop()


@pytest.fixture
def source(request: pytest.FixtureRequest) -> Server:
    """The source: MariaDB 11.8, unless a test is parametrized by the name of another one."""
    found: Server = request.getfixturevalue(getattr(request, "param", "mariadb118"))
    return found


@pytest.fixture
def schema(source: Server, database: Database) -> str:
    """A schema of the test's own."""
    return database(source)


@pytest.fixture
def sluice(tmp_path: Path, source: Server, schema: str) -> Iterator[Sluice]:
    """A server that reads this schema as destination `shop`."""
    server = Sluice(tmp_path / "sluice")
    server.add("shop", source, canal__instance__filter__regex=rf"{schema}\\..*")
    with server:
        server.wait_running()
        yield server
