"""Every command and every Python block of the tutorial runs, in order, and prints what the page says it prints."""

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pymysql
import pytest
import urllib3

from tests.pages import Shell, shape, steps
from tests.servers.server import free_port
from tests.waiting import eventually

PAGE = "docs/guide.md"
PORTS = {"3307": str(free_port()), "11180": str(free_port())}
"""Those of the tutorial, and those that are free."""


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


@pytest.mark.extended
@pytest.mark.timeout(300)
def test_every_command_and_block_runs_and_prints_what_is_shown(tmp_path: Path) -> None:
    environ = {
        "SLUICE_HTTP_PORT": PORTS["11180"],
        "SLUICE_PORT": "0",
        "SLUICE_URL": f"http://127.0.0.1:{PORTS['11180']}",
    }
    replaced = {**PORTS, "/tmp/": f"{tmp_path}/"}
    names: dict[str, Any] = {}
    with Shell(tmp_path, environ, wait_for) as shell:
        for step in steps(PAGE):
            if step.code.startswith("make "):  # what `make test` did before this
                continue
            code = re.sub("|".join(replaced), lambda found: replaced[found[0]], step.code)
            if step.language == "python":
                with contextlib.redirect_stdout(io.StringIO()) as printed:
                    exec(compile(code, PAGE, "exec"), names)
                output = printed.getvalue()
            else:
                output = shell.run(code)
            if step.output:
                assert shape(output) == shape(step.output), step.code
        names["client"].close()
