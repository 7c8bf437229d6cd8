"""An output and its client, by the command line and a stock client: who takes its changes, and what it says."""

import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import urllib3

from sluice.client_sdk import Client
from sluice.protocol.errors import OwnedError
from tests.conftest import Database
from tests.integration.test_cli import Conf, Serving
from tests.servers import Server
from tests.servers.kafka import Kafka
from tests.waiting import eventually


@pytest.fixture
def conf(tmp_path: Path) -> Conf:
    (tmp_path / "conf").mkdir()
    return Conf(tmp_path / "conf")


@contextmanager
def without_library(conf: Conf, folder: Path) -> Iterator[Serving]:
    """A server of a Python that does not have the library for Kafka."""
    folder.mkdir()
    (folder / "confluent_kafka.py").write_text("raise ModuleNotFoundError(\"No module named 'confluent_kafka'\")\n")
    environ = os.environ | {"PYTHONPATH": str(folder), "SLUICE_CONF": str(conf.folder)}
    command = [sys.executable, "-P", "-m", "sluice.server.cli", "serve"]
    with subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            lines = iter(process.stderr.readline, "")
            url = next(found[1] for line in lines if (found := re.search(r"serves (http\S+)", line)))
            yield Serving(url, conf, "")
        finally:
            process.kill()


def write(server: Server, schema: str, serving: Serving) -> None:
    """Write two rows, which another client confirms, so that nothing else holds them."""
    with Client(serving.url, "shop", 7) as other:
        other.subscribe()
        server.query(f"INSERT INTO {schema}.goods VALUES (1), (2)")
        found = 0

        def has_both() -> bool:
            nonlocal found
            found += len(other.get(timeout=1).rows())
            return found == 2

        eventually(has_both, "the rows at another client")


@pytest.mark.extended
def test_without_its_library_an_output_says_so_and_loses_nothing(
    conf: Conf, kafka: Kafka, mariadb118: Server, database: Database, tmp_path: Path
) -> None:
    schema = database(mariadb118)
    topic = f"without_library_{schema}"
    kafka.create(topic)
    conf.main(canal__destinations="shop", canal__serverMode="kafka", kafka__bootstrap__servers=kafka.servers)
    hashed = {"canal__mq__topic": topic, "canal__mq__partitionHash": rf"crm.notes:id,{schema}.goods:ID^total"}
    conf.destination("shop", mariadb118, rf"{schema}\\..*", **hashed)
    mariadb118.query(f"CREATE TABLE {schema}.goods (id INT PRIMARY KEY)")
    with without_library(conf, tmp_path / "stub") as serving:
        serving.wait_for(lambda: [it["state"] for it in serving.call("GET", "/shop")["outputs"]] == ["error"])
        done = conf.run("status", "--url", serving.url)
        assert done.returncode == 1
        assert "shop, output mq: error: output mq of shop needs a library that is not installed: pip install" in (
            " ".join(done.stdout.split())
        )
        write(mariadb118, schema, serving)
        with pytest.raises(OwnedError):
            Client(serving.url, "shop", 1001).get()

        def is_stored() -> bool:
            stored = json.loads((conf.folder.parent / "data/shop/meta.dat").read_text())["clientDatas"]
            return any("refused" in it.get("sluice", {}) for it in stored)

        eventually(is_stored, "the refused call in the file")
    done = conf.run("check")
    assert done.returncode == 1
    text = " ".join(done.stdout.split())
    said = (
        "shop, client 1001: is that of the output mq, and somebody else called it: getWithoutAck by no token, 127.0.0.1"
    )
    assert said in text
    assert "note output mq of shop: the rule 'crm.notes:id' of partitionHash matches none of the tables" in text
    assert f"the rule '{schema}.goods:ID^total' of partitionHash names the column total, which no table has" in text
    assert "names the column ID" not in text
    with conf.serving():
        eventually(lambda: b'"id":"2"' in b"".join(itertools.chain(*kafka.read(topic))), "the rows in the topic")


def test_a_bad_edit_shows_in_the_status_and_what_is_written_meanwhile_is_kept(
    conf: Conf, kafka: Kafka, mariadb118: Server, database: Database
) -> None:
    schema = database(mariadb118)
    topic = f"bad_edit_{schema}"
    kafka.create(topic)
    conf.main(canal__destinations="shop", canal__auto__scan="true", canal__auto__scan__interval="1")
    conf.destination("shop", mariadb118, rf"{schema}\\..*")
    mariadb118.query(f"CREATE TABLE {schema}.goods (id INT PRIMARY KEY)")
    settings = {
        "sluice__outputs": "copy",
        "sluice__output__copy__topic": topic,
        "sluice__output__copy__kafka__bootstrap__servers": kafka.servers,
    }
    with conf.serving() as serving:
        serving.wait_for(lambda: serving.states() == {"shop": "running"})
        conf.destination("shop", mariadb118, rf"{schema}\\..*", **settings, sluice__output__copy__window="many")
        serving.wait_for(lambda: [it["state"] for it in serving.call("GET", "/shop")["outputs"]] == ["error"])
        (output,) = serving.call("GET", "/shop")["outputs"]
        assert output["clientId"] == 32001
        assert "sluice.output.copy.window: has to be a whole number" in output["error"]
        assert conf.run("status", "--url", serving.url).returncode == 1
        write(mariadb118, schema, serving)
        conf.destination("shop", mariadb118, rf"{schema}\\..*", **settings)
        eventually(lambda: b'"id":"2"' in b"".join(itertools.chain(*kafka.read(topic))), "the rows in the topic")
        conf.destination("shop", mariadb118, rf"{schema}\\..*")
        serving.wait_for(lambda: serving.call("GET", "/shop")["outputs"] == [])
        taken = urllib3.request("POST", f"{serving.url}/v1/destinations/shop/clients/32001/getWithoutAck")
        assert taken.status == 200
