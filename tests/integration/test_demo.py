"""`make demo` proves what it says, and says when it cannot."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import urllib3

from tests.servers import Server
from tests.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]
CHANGES = {"Table_map", "Query"}
"""Kinds of events of which there is one for a table that is changed, or for a statement."""


def demo(**environment: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "scripts.demo"],
        cwd=ROOT,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def interrupt(process: "subprocess.Popen[str]") -> str:
    """Press Ctrl-C; what it says then."""
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    return output


def test_everything_written_is_delivered() -> None:
    process = demo(SLUICE_DEMO_SECONDS="6")
    output, _ = process.communicate(timeout=100)
    assert process.returncode == 0, output
    assert "PROOF" in output
    assert "NO PROOF" not in output
    assert output.count("│ equal │") == 4
    assert "ADD COLUMN rating" in output


@pytest.mark.extended
def test_ctrl_c_ends_it_with_the_proof() -> None:
    process = demo(SLUICE_DEMO_SECONDS="600")
    assert process.stdout
    while "INSERT" not in process.stdout.readline():
        assert process.poll() is None
    assert "PROOF" in interrupt(process)


@pytest.mark.extended
@pytest.mark.parametrize("name", ["mysql97", "mariadb118"])
def test_attached_it_shows_the_changes_of_a_server_and_writes_nothing_there(
    name: str, request: pytest.FixtureRequest
) -> None:
    server = request.getfixturevalue(name)
    assert isinstance(server, Server)
    server.query("CREATE DATABASE IF NOT EXISTS attached")
    server.query(
        "CREATE OR REPLACE TABLE t (id INT)" if server.mariadb else "CREATE TABLE t (id INT)", database="attached"
    )
    status = "SHOW MASTER STATUS" if server.mariadb else "SHOW BINARY LOG STATUS"
    ((file, begin, *_),) = server.query(status)
    process = demo(SLUICE_DEMO_SECONDS="600", SLUICE_MYSQL=server.dsn)
    assert process.stdout
    while not (shown := re.search("curl (http.*)$", process.stdout.readline())):
        assert process.poll() is None
    eventually(lambda: urllib3.request("GET", shown[1]).json()["clients"], "the demo to subscribe")
    server.query("INSERT INTO t VALUES (4711)", database="attached")
    while "4711" not in process.stdout.readline():
        assert process.poll() is None
    assert "1 rows delivered" in interrupt(process)
    written = server.query(f"SHOW BINLOG EVENTS IN '{file}' FROM {begin}")
    assert [event[2] for event in written if event[2] in CHANGES and event[5] != "BEGIN"] == ["Table_map"]
    server.query("DROP DATABASE attached")


def test_an_invalid_address_is_refused() -> None:
    process = demo(SLUICE_MYSQL="nonsense")
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "user:password@host:port" in output
