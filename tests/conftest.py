"""Fixtures: real servers, one of each kind a test run, and fresh schemas on them.

A server that cannot be had is an error of the test, never a skip. The older servers belong to tests marked `extended`
(`make test-all`).
"""

import itertools
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.servers import ALL, CI, Server, ZooKeeper

Database = Callable[..., str]

_numbers = itertools.count(1)


def _serve(name: str) -> Iterator[Server]:
    with Server(name) as server:
        yield server


@pytest.fixture(scope="session")
def mariadb118() -> Iterator[Server]:
    """MariaDB 11.8, defaults apart from the row binlog."""
    yield from _serve("mariadb118")


@pytest.fixture(scope="session")
def mysql97() -> Iterator[Server]:
    """MySQL 9.7, GTID mode on (its default)."""
    yield from _serve("mysql97")


@pytest.fixture(scope="session")
def mysql56() -> Iterator[Server]:
    """MySQL 5.6."""
    yield from _serve("mysql56")


@pytest.fixture(scope="session")
def mysql80() -> Iterator[Server]:
    """MySQL 8.0; mark the test `extended`."""
    yield from _serve("mysql80")


@pytest.fixture(scope="session")
def mysql57() -> Iterator[Server]:
    """MySQL 5.7; mark the test `extended`."""
    yield from _serve("mysql57")


@pytest.fixture(scope="session")
def mariadb1011() -> Iterator[Server]:
    """MariaDB 10.11; mark the test `extended`."""
    yield from _serve("mariadb1011")


@pytest.fixture(scope="session")
def zookeeper() -> Iterator[ZooKeeper]:
    """One ZooKeeper server; a test that stops it starts it again."""
    with ZooKeeper() as zookeeper:
        yield zookeeper


@pytest.fixture(params=[name if name in CI else pytest.param(name, marks=pytest.mark.extended) for name in ALL])
def server(request: pytest.FixtureRequest) -> Server:
    """Each server in turn: a test that asks for this runs on all of them."""
    found: Server = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ca.pem, and server and client certificates that it signed, for the name localhost."""
    folder = tmp_path_factory.mktemp("tls")
    openssl = shutil.which("openssl")
    assert openssl is not None
    make = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    subprocess.run(
        [*make, "-keyout", "ca-key.pem", "-out", "ca.pem", "-subj", "/CN=Test CA"],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    for name in ("server", "client"):
        subprocess.run(
            [
                *make,
                *("-keyout", f"{name}-key.pem", "-out", f"{name}.pem", "-subj", f"/CN={name}"),
                *("-CA", "ca.pem", "-CAkey", "ca-key.pem", "-addext", "subjectAltName=DNS:localhost"),
                *("-addext", "basicConstraints=critical,CA:FALSE"),
            ],
            cwd=folder,
            check=True,
            capture_output=True,
        )
    return folder


@pytest.fixture
def database() -> Iterator[Database]:
    """Make fresh schemas: `name = database(server)` or `database(server, "latin1")`; they go after the test."""
    made: list[tuple[Server, str]] = []

    def make(server: Server, charset: str = "utf8mb4") -> str:
        name = f"test_{next(_numbers)}"
        server.query(f"CREATE DATABASE {name} CHARACTER SET {charset}")
        made.append((server, name))
        return name

    yield make
    for server, name in made:
        if server.running:
            server.query(f"DROP DATABASE IF EXISTS {name}")
