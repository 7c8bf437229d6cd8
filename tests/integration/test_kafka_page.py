"""The five minutes of docs/kafka.md: its files, its commands and its consumer, on a real broker."""

import contextlib
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import urllib3

from tests.conftest import Database
from tests.pages import ROOT
from tests.servers import Server
from tests.servers.kafka import Kafka
from tests.servers.server import free_port
from tests.waiting import eventually

pytestmark = pytest.mark.extended


def wait_for_output(port: str) -> None:
    """Wait until the output delivers: it begins at the source's end."""
    status: dict[str, Any] = {}

    def runs() -> bool:
        with contextlib.suppress(OSError, urllib3.exceptions.HTTPError):
            status.update(urllib3.request("GET", f"http://127.0.0.1:{port}/v1/destinations/shop", retries=False).json())
        return [it["state"] for it in status.get("outputs", ())] == ["running"]

    eventually(runs, lambda: f"the output: {status}")


def test_what_the_page_configures_brings_a_change_into_its_consumer(
    tmp_path: Path, kafka: Kafka, mariadb118: Server, database: Database
) -> None:
    schema = database(mariadb118)
    page = (ROOT / "docs" / "kafka.md").read_text()
    own = {
        "127.0.0.1:9092": kafka.servers,
        "127.0.0.1:3306": f"127.0.0.1:{mariadb118.port}",
        r"= shop\\..*": rf"= {schema}\\..*",
    }
    for text, other in own.items():
        page = page.replace(text, other)
    main, instance = re.findall(r"^```properties\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[:2]
    (consumer,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (shown,) = re.findall(r"It prints `(.*?)` for each change", page)
    (tmp_path / "conf" / "shop").mkdir(parents=True)
    (tmp_path / "conf" / "canal.properties").write_text(main)
    (tmp_path / "conf" / "shop" / "instance.properties").write_text(instance)
    environ = os.environ | {"SLUICE_HTTP_PORT": str(free_port()), "SLUICE_FILE_DATA_DIR": str(tmp_path / "data")}
    sluice = [sys.executable, "-m", "sluice.server.cli"]
    assert "$ sluice check --conf conf\n$ sluice serve --conf conf\n" in page
    checked = subprocess.run([*sluice, "check"], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "topic shop does not exist yet: the brokers make it when the output starts" in checked.stdout
    with subprocess.Popen([*sluice, "serve"], cwd=tmp_path, env=environ, stderr=subprocess.DEVNULL) as server:
        try:
            wait_for_output(environ["SLUICE_HTTP_PORT"])
            mariadb118.script(
                "CREATE TABLE goods (id INT PRIMARY KEY, name VARCHAR(20));\nINSERT INTO goods VALUES (7, 'bob');\n",
                database=schema,
            )
            command = [sys.executable, "-u", "-c", consumer]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as reader:
                assert reader.stdout is not None
                killing = threading.Timer(60, reader.kill)
                killing.start()
                found = [reader.stdout.readline(), reader.stdout.readline()]
                killing.cancel()
                reader.kill()
            assert found == [f"CREATE {schema}.goods None\n", f"{shown.replace('shop.', f'{schema}.')}\n"]
        finally:
            server.terminate()
    assert server.returncode == 0
