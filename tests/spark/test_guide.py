"""Every command and every Python block of the Spark guide runs, in order, and prints what the guide says it prints."""

import contextlib
import io
import re
import socket
from pathlib import Path
from typing import Any

import pytest
import urllib3
from pyspark.sql import SparkSession

from tests.pages import Shell, steps
from tests.servers.server import free_port
from tests.waiting import eventually

pytestmark = pytest.mark.extended

PAGE = "docs/spark.md"
PORTS = {port: str(free_port()) for port in ("3307", "3308", "7077", "11180")}
"""Those of the guide, and those that are free."""
NOISE = re.compile(r"^(NOTE: Picked up |WARNING: Using incubator |\d\d/\d\d/\d\d ).*\n", re.MULTILINE)
"""What Java and Spark say of themselves, depending on the machine."""
VARIES = re.compile(
    r"\d+/mysql-bin\.\d+@\d+:\d+:\d+"  # a position
    r"|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
    r"|\{NULL, \d+, \d+, \d+, \d+\}"  # _pos
    r"|\d[\w.+-]*-MariaDB[\w.+-]*"
    r"|mysql-bin\.\d+:\d+"
    r"|(?<='lagSeconds': )[\d.]+"
    r"|(?<='lagBytes': )\d+"
    r"|\d+(?= rows/s)|[\d.]+(?= s behind)"
)
"""What differs from run to run; all else is compared as it is, but for the width of columns."""


def serves(port: str) -> bool:
    """Whether a server does; for the server of the guide, whether its destination is ready."""
    if port == PORTS["11180"]:
        with contextlib.suppress(urllib3.exceptions.HTTPError):
            return urllib3.request("GET", f"http://127.0.0.1:{port}/readyz", retries=False).status == 200
        return False
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", int(port))) == 0


def wait_for(command: str) -> None:
    """Wait as the reader would, until what was started in the background serves."""
    ports = [port for port in PORTS.values() if port in command] or [PORTS["11180"]]
    eventually(lambda: all(map(serves, ports)), command, seconds=120)


def comparable(text: str) -> str:
    """Return what has to be equal."""
    for port, free in PORTS.items():
        text = text.replace(free, port)
    return re.sub(r"[ -]+", " ", VARIES.sub("…", NOISE.sub("", text))).strip()


@pytest.mark.timeout(900)
def test_every_command_and_block_runs_and_prints_what_is_shown(spark: SparkSession, tmp_path: Path) -> None:
    environ = {
        "SLUICE_FILE_DATA_DIR": str(tmp_path / "data"),
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
                assert comparable(output) == comparable(step.output), step.code
