"""Every command and the program of the README run in one shell, and print what the README says they print."""

import contextlib
import re
import shlex
from pathlib import Path

import pymysql
import pytest
import urllib3

from tests.pages import Shell, shape, steps
from tests.servers.server import free_port
from tests.waiting import eventually

ELSEWHERE = {"make demo", "make test"}
"""Commands that have a test of their own, or are the tests."""
SECONDS = 20
"""For which the program runs: it waits for changes for ever."""
PORTS = {"3307": str(free_port()), "11180": str(free_port())}
"""Those of the README, and those that are free."""


def wait_for(what: str) -> None:
    """Wait as the reader would: for the database, or for the server with its destination."""

    def is_ready() -> bool:
        with contextlib.suppress(OSError, pymysql.MySQLError, urllib3.exceptions.HTTPError):
            if "tests.servers" in what:
                pymysql.connect(host="127.0.0.1", port=int(PORTS["3307"]), user="cdc", password="cdc").close()
                return True
            return urllib3.request("GET", f"http://127.0.0.1:{PORTS['11180']}/readyz", retries=False).status == 200
        return False

    eventually(is_ready, what)


@pytest.mark.timeout(300)
def test_every_command_runs_and_prints_what_is_shown(tmp_path: Path) -> None:
    environ = {
        "SLUICE_FILE_DATA_DIR": str(tmp_path / "data"),
        "SLUICE_HTTP_PORT": PORTS["11180"],
        "SLUICE_URL": f"http://127.0.0.1:{PORTS['11180']}",
    }
    with Shell(tmp_path, environ, wait_for) as shell:
        # The program stands at the top of the page, and needs the server that the commands start.
        for step in sorted(steps("README.md"), key=lambda it: it.language):
            if step.code in ELSEWHERE:
                continue
            code = re.sub("|".join(PORTS), lambda found: PORTS[found[0]], step.code)
            if step.language == "python":
                code = f"timeout {SECONDS} python -u -c {shlex.quote(code)} || true"
            output = shell.run(code)
            if step.output:
                assert shape(output) == shape(step.output), step.code
