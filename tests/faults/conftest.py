"""Fixtures of the promises: a server process, and sources that a test may kill."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.harness import USUAL, Sluice
from tests.servers import Server, ZooKeeper


@pytest.fixture
def sluice(tmp_path: Path) -> Iterator[Sluice]:
    """A server with nothing configured, not started; it is gone after the test."""
    made = Sluice(tmp_path)
    yield made
    made.__exit__()


@pytest.fixture
def own_zookeeper() -> Iterator[ZooKeeper]:
    """A ZooKeeper of the test's own."""
    with ZooKeeper() as zookeeper:
        yield zookeeper


@pytest.fixture(params=USUAL)
def source(request: pytest.FixtureRequest) -> Server:
    """MariaDB 11.8, and MySQL 9.7 in `make test-all`."""
    found: Server = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="module", params=USUAL)
def doomed(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server of the module's own, for what other tests must not feel."""
    with Server(request.param) as server:
        yield server
