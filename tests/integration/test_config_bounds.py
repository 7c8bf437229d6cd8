"""The server runs with the least and the greatest value of every number that can be configured."""

import json
import math
import re
import signal
import typing
from pathlib import Path
from typing import Any

import annotated_types
import pytest
import urllib3

from sluice.instance.settings import Settings
from sluice.instance.sources.mysql.config import MysqlConfig
from sluice.server.config import ServerConfig
from sluice.server.fronts import FRONTS
from tests.commands import Command
from tests.servers import Server

ELSEWHERE = {"canal.port", "sluice.http.port", "canal.instance.master.position"}
"""Ports are to be free, and an offset needs a file."""
SECONDS = 60


def bounds(model: type[Settings]) -> dict[str, tuple[Any, Any]]:
    """Least and greatest value by key."""
    found = {}
    for key, name in model.fields_by_key().items():
        field = model.model_fields[name]
        kinds = {field.annotation, *typing.get_args(field.annotation)}
        if not {int, float} & kinds or key in ELSEWHERE:
            continue
        step = 1 if int in kinds else 0
        least = greatest = None
        for item in field.metadata:
            match item:
                case annotated_types.Ge():
                    least = item.ge
                case annotated_types.Gt():
                    least = item.gt + step if step else math.nextafter(float(item.gt), math.inf)  # type: ignore[operator, arg-type]
                case annotated_types.Le():
                    greatest = item.le
                case annotated_types.Lt():
                    greatest = item.lt - step if step else math.nextafter(float(item.lt), -math.inf)  # type: ignore[operator, arg-type]
        found[key] = least, greatest
    return found


@pytest.mark.parametrize("which", ["least", "greatest"])
def test_the_server_runs_with_every_number_at_its_bound(which: str, mariadb118: Server, tmp_path: Path) -> None:
    models: tuple[type[Settings], ...] = (ServerConfig, *FRONTS, MysqlConfig)
    numbers = {key: both for model in models for key, both in bounds(model).items()}
    values = {key: str(both[which == "greatest"]) for key, both in numbers.items()}
    source = {
        "canal.destinations": "shop",
        "canal.port": "0",
        "sluice.http.port": "0",
        "canal.instance.master.address": f"{mariadb118.host}:{mariadb118.port}",
        "canal.instance.dbUsername": mariadb118.user,
        "canal.instance.dbPassword": mariadb118.password,
        "canal.instance.standby.address": "127.0.0.1:1",
        "canal.instance.standby.journal.name": "mysql-bin.000001",
    }
    (tmp_path / "canal.properties").write_text("".join(f"{key} = {it}\n" for key, it in (values | source).items()))
    process = Command("serve", "--conf", str(tmp_path))
    try:
        assert process.stderr is not None
        log = []
        while line := process.stderr.readline():
            log.append(line)
            if found := re.search(r"serves (http\S+)", line):
                assert urllib3.request("GET", f"{found[1]}/healthz").status
                break
        process.send_signal(signal.SIGTERM)
        log += process.communicate(timeout=SECONDS)[1].splitlines(keepends=True)
    finally:
        process.kill()
        process.communicate()
    text = "".join(log)
    assert "serves http" in text, text
    assert process.returncode == 0, text
    assert "Traceback" not in text, json.dumps(values) + text
