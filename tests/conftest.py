"""Fixtures: real servers, one of each kind a test run, and fresh schemas on them.

A server that cannot be had is an error of the test, never a skip. The older servers belong to tests marked `extended`
(`make test-all`).
"""

import gc
import itertools
import logging
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tests import certificates, schedule
from tests.effort import times
from tests.recording import ROOT, Recorder, product
from tests.servers import ALL, CI, Server, ZooKeeper, nodes
from tests.servers.kafka import Kafka
from tests.watching import Watch

Database = Callable[..., str]

_numbers = itertools.count(1)

# A JVM has a short life in a test: a second compiler and a collector's threads would cost more than they give.
os.environ["JDK_JAVA_OPTIONS"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

# Of what is loaded while the tests are collected nothing is garbage: to look took a third of that time.
gc.disable()

# How fast an example is says nothing on a machine that does other things too.
hypothesis.settings.register_profile(
    "sluice", max_examples=times(30, 100), deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("sluice")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what `make test RECORD=1` and `make soak` ask for."""
    parser.addoption("--record", action="store_true", help="write down in tests/results what the run came to")


def pytest_configure(config: pytest.Config) -> None:
    """Record in the process that sees all results, and let the programs that tests start hear Ctrl-C."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as of a run in the background; they would inherit that
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.option.record and not hasattr(config, "workerinput"):
        recorder = Recorder(ROOT / "tests" / "results", soak=config.option.markexpr == "soak", code=product())
        config.pluginmanager.register(recorder)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> schedule.Schedule:
    """Say which tests run side by side."""
    return schedule.Schedule(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Say which tests begin first."""
    items.sort(key=lambda item: schedule.rank(item.nodeid))


def pytest_collection_finish() -> None:
    """Let no collection of garbage look through what is loaded by now, which thousands of tests are a part of."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how long each part took; where several ran side by side the sum is longer than the run."""
    reports = [it for found in terminalreporter.stats.values() for it in found if isinstance(it, pytest.TestReport)]
    for part, time in sorted(schedule.seconds(reports).items()):
        terminalreporter.write_line(f"{part:<24}{time:>6.0f} s")


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    """Leave no trace of a command that has configured the logs of this process."""
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    root.handlers = handlers
    root.setLevel(level)
    logging.captureWarnings(capture=False)
    logging.getLogger("sluice").setLevel(logging.NOTSET)


_watch = Watch()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """End at once what needs a server that has ended."""
    _watch.check(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """End a test when a server that it uses ends."""
    with _watch.during(item):
        yield


def _serve(name: str) -> Iterator[Server]:
    with Server(name) as server, _watch.over(name, server):
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
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """A broker of Kafka, which listens without a password and with one, by TLS."""
    store = tmp_path_factory.mktemp("kafka") / "store.pem"
    store.write_bytes(b"".join(file.read_bytes() for file in certificates.make(store.parent)))
    with Kafka(certificate=store) as broker, _watch.over("kafka", broker):
        yield broker


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
def shared_zookeeper() -> Iterator[ZooKeeper]:
    """One ZooKeeper server."""
    with ZooKeeper() as zookeeper, _watch.over("shared_zookeeper", zookeeper):
        yield zookeeper


@pytest.fixture(scope="module")
def zookeeper(shared_zookeeper: ZooKeeper) -> ZooKeeper:
    """One ZooKeeper server, without nodes of the tests of another file; a test that stops it starts it again."""
    with nodes(shared_zookeeper.hosts) as zk:
        if zk.exists("/otter"):
            zk.delete("/otter", recursive=True)
    return shared_zookeeper


def each(*usual: str) -> list[Any]:
    """Return the names of all servers as parameters; all but the usual ones are for `make test-all`."""
    return [pytest.param(name, marks=() if name in usual else pytest.mark.extended) for name in ALL]


@pytest.fixture(params=each(*CI))
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
