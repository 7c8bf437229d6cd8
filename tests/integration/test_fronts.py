"""A front that is a folder and a line of the registry is configured, checked, served and stopped like all others."""

import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SLUICE = """
from sluice.server import fronts
from tests.integration.line.config import LineConfig
fronts.FRONTS += (LineConfig,)  # as its line would; the configuration is imported later
from sluice.server.cli import main
main()
"""


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    (tmp_path / "shop").mkdir()
    (tmp_path / "canal.properties").write_text(
        "canal.destinations = shop\nsluice.http.port = 0\ncanal.port = 0\nline.port = 0\n"
    )
    (tmp_path / "shop" / "instance.properties").write_text(
        "canal.instance.master.address = 127.0.0.1:1\ncanal.instance.dbUsername = cdc\nsluice.instance.timeZone = UTC\n"
    )
    return tmp_path


def sluice(*arguments: str) -> "subprocess.Popen[str]":
    """Run a command of a Sluice that has the front."""
    return subprocess.Popen([sys.executable, "-c", SLUICE, *arguments], cwd=ROOT, stderr=subprocess.PIPE, text=True)


def ask(port: int) -> str:
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(b"?\n")
        return connection.makefile().readline()


def test_a_front_serves_until_the_server_stops(conf: Path) -> None:
    with sluice("serve", "--conf", str(conf)) as process:
        try:
            assert process.stderr is not None
            log = ""
            while not (found := re.search(r"protocol of lines is served at 127\.0\.0\.1:(\d+)", log)):
                log += (line := process.stderr.readline())
                assert line, log
            port = int(found[1])
            assert ask(port) == "shop\n"
            process.send_signal(signal.SIGTERM)
            log += process.stderr.read()  # `communicate` would not have what `readline` has read ahead
            process.wait(60)
        finally:
            process.kill()
    assert process.returncode == 0, log
    assert "serves http" in log
    assert "anybody on this host reads the names of the destinations" in log
    assert "line.port is unknown" not in log
    with pytest.raises(ConnectionRefusedError):
        ask(port)


def test_a_front_that_may_not_be_served_so_keeps_the_server_from_starting(conf: Path) -> None:
    with (conf / "canal.properties").open("a") as file:
        file.write("line.host = 0.0.0.0\n")
    with sluice("serve", "--conf", str(conf)) as process:
        _, log = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "Refusing to listen on '0.0.0.0' without a password" in log
