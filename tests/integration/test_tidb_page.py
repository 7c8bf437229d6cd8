"""What docs/tidb.md shows, on a real broker with what a Drainer wrote."""

import os
import re
import shlex
import subprocess
import sys

import pytest

from tests.pages import ROOT
from tests.servers import Server
from tests.servers.kafka import Kafka
from tests.tidb import captured, produce

pytestmark = pytest.mark.extended

TOPIC = "7561_obinlog"
PAGE = (ROOT / "docs" / "tidb.md").read_text()


def fill(kafka: Kafka) -> None:
    """Have the topic of the page."""
    if not kafka.read(TOPIC):
        kafka.create(TOPIC)
        produce(kafka, TOPIC, [it.value for it in captured()])


def test_the_program_of_the_page_prints_statements_and_rows(kafka: Kafka) -> None:
    fill(kafka)
    (program,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    command = [sys.executable, "-u", "-c", program.replace("127.0.0.1:9092", kafka.servers)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        lines = [running.stdout.readline() for _ in range(9)]
        running.kill()
    assert lines[0] == f"{captured()[0].commit_ts} CREATE DATABASE `shop`\n"
    assert lines[8].startswith(f"{captured()[8].commit_ts} INSERT shop.orders {{'id': 1}} {{'id': 1, 'customer': 'Ana'")


def test_the_commands_of_the_page_do_what_it_says(kafka: Kafka, mariadb118: Server) -> None:
    """On a target of its own the schemas would be those of the page."""
    fill(kafka)
    own = {"127.0.0.1:9092": kafka.servers, "copy@127.0.0.1:3306": f"{mariadb118.user}@127.0.0.1:{mariadb118.port}"}
    found = []
    for line, shown in re.findall(r"^\$ sluice (tidb .*)\n((?:.+\n)*?)```", PAGE, re.MULTILINE):
        command = line
        for text, other in own.items():
            command = command.replace(text, other)
        ran = subprocess.run(
            [sys.executable, "-m", "sluice.server.cli", *shlex.split(command)],
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | {"SLUICE_TARGET_PASSWORD": mariadb118.password, "TZ": "UTC"},
            timeout=100,
        )
        assert ran.returncode == 0, ran.stderr
        printed = (ran.stdout + ran.stderr).splitlines()
        found.append(printed)
        assert {it for it in shown.splitlines() if it != "…"} <= set(printed)
    assert len(found) == 2
    for name in ("shop", "sluice"):
        mariadb118.query(f"DROP DATABASE {name}")
