"""Every command of the README runs, in order, in one shell, and prints what the README says it prints."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pymysql
import pytest
import urllib3

from tests.servers.server import free_port

ROOT = Path(__file__).resolve().parents[2]
ELSEWHERE = {"make demo", "make test"}
"""Commands that have a test of their own, or are the tests."""

# Debian has no `mysql` unless a client is installed; this does what the README needs of it.
MYSQL = f"""#!{sys.executable}
import argparse, pymysql
parser = argparse.ArgumentParser(add_help=False)
for option in "hPupe":
    parser.add_argument("-" + option)
given = parser.parse_args()
with pymysql.connect(host=given.h, port=int(given.P), user=given.u, password=given.p, autocommit=True) as connection:
    for statement in given.e.split(";"):
        connection.cursor().execute(statement)
"""


def commands() -> list[tuple[str, str]]:
    """Pairs of a command and the output that the README shows after it."""
    blocks = re.findall(r"^```console\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    pairs = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", "".join(blocks), re.MULTILINE)
    return [(command, output) for command, output in pairs if command not in ELSEWHERE]


def shape(text: str) -> str:
    """What has to be equal: the text without numbers and without the width of columns."""
    return re.sub(r"[ ─━-]+", " ", re.sub(r"\d+", "0", text)).strip()


PORTS = {"3307": str(free_port()), "11180": str(free_port())}
"""Those of the README, and those that are free."""


def wait_for(what: str) -> None:
    """Wait as the reader would: for the database, or for the server with its destination."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, pymysql.MySQLError, urllib3.exceptions.HTTPError):
            if "tests.servers" in what:
                pymysql.connect(host="127.0.0.1", port=int(PORTS["3307"]), user="cdc", password="cdc").close()
                return
            if urllib3.request("GET", f"http://127.0.0.1:{PORTS['11180']}/readyz", retries=False).status == 200:
                return
        time.sleep(0.05)
    pytest.fail(f"not ready after 60 s: {what}")


@pytest.fixture
def shell(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """A shell in a fresh copy of the configuration, with a `mysql` in its path; all that it started is stopped."""
    (tmp_path / "bin").mkdir()
    client = tmp_path / "bin/mysql"
    client.write_text(MYSQL)
    client.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}/bin:{os.environ['PATH']}",
        "SLUICE_FILE_DATA_DIR": str(tmp_path / "data"),
        "SLUICE_HTTP_PORT": PORTS["11180"],
        "SLUICE_URL": f"http://127.0.0.1:{PORTS['11180']}",
    }
    process = subprocess.Popen(
        ["bash"],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    yield process
    os.killpg(process.pid, signal.SIGTERM)
    process.communicate()


@pytest.mark.timeout(300)
def test_every_command_runs_and_prints_what_is_shown(shell: "subprocess.Popen[str]") -> None:
    assert shell.stdin
    assert shell.stdout
    for command, expected in commands():
        line = re.sub("|".join(PORTS), lambda found: PORTS[found[0]], command)
        time.sleep(0.5)  # no reader is faster
        background = line.endswith("&")
        if background:
            line = f"{line.removesuffix('&')} >/dev/null 2>&1 &"  # what it prints comes when it likes
        print(f"{line}\nstatus=$?; echo; echo = $status", file=shell.stdin, flush=True)
        printed = []
        while not (text := shell.stdout.readline()).startswith("= "):
            assert text, f"the shell ended in: {command}"
            printed.append(text)
        output = "".join(printed)
        assert text == "= 0\n", f"{command} failed:\n{output}"
        if background:
            wait_for(command)
        if expected:
            assert shape(output) == shape(expected), command
