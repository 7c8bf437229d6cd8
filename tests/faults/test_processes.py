"""Several processes of one server: each has its destinations, survives the others, and starts again when it ends."""

import contextlib
import itertools
import os
import re
import signal
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import urllib3

from sluice.client_sdk import Client
from sluice.server.credentials import Credentials, Grant
from sluice.server.logins import FREE_FAILURES
from tests import certificates
from tests.conftest import Database
from tests.faults.harness import Sluice
from tests.servers import Server
from tests.waiting import eventually

COUNT = 3
HOLDERS = {"shop1": 0, "shop0": 1, "shop2": 2}
"""A destination for each process, by the checksums of their names."""
LATER = {"shop3": 2, "shop6": 1, "shop8": 0}


@pytest.fixture
def several(tmp_path: Path, mariadb118: Server, database: Database) -> Iterator[Sluice]:
    """A server of three processes, each with one destination of the same table ``t``, not started."""
    made = Sluice(tmp_path, COUNT)
    schema = database(mariadb118)
    mariadb118.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY)")
    for name in HOLDERS:
        made.add(name, mariadb118, canal__instance__filter__regex=rf"{schema}\\..*")
    yield made
    made.__exit__()


@pytest.fixture
def schema(several: Sluice) -> str:
    text = (several.conf / "shop0" / "instance.properties").read_text()
    found = re.search(r"filter\.regex = (\w+)", text)
    assert found is not None
    return found[1]


def url_of(several: Sluice, number: int) -> str:
    return f"http://127.0.0.1:{several.port + number}"


def ask(several: Sluice, number: int, name: str) -> tuple[int, dict[str, Any]]:
    """Ask a process about a destination; its status and answer."""
    with urllib3.PoolManager(retries=False) as http:
        answer = http.request("GET", f"{url_of(several, number)}/v1/destinations/{name}", timeout=5)
        return answer.status, answer.json()


def runs(several: Sluice, name: str, number: int) -> bool:
    with contextlib.suppress(urllib3.exceptions.HTTPError):
        status, found = ask(several, number, name)
        return status == 200 and found["state"] == "running"
    return False


def wait_running(several: Sluice) -> None:
    for name, number in HOLDERS.items():
        eventually(lambda name=name, number=number: runs(several, name, number), name)  # type: ignore[misc]


def processes(several: Sluice) -> dict[int, int]:
    """The process ids by number."""
    pid = several.process.pid
    found = {}
    for child in map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
        share = Path(f"/proc/{child}/cmdline").read_text().split("\0")[-2]
        assert share.endswith(f"/{COUNT}"), share
        found[int(share.split("/")[0])] = child
    return found


def destinations_of(several: Sluice, number: int) -> list[dict[str, Any]]:
    with urllib3.PoolManager(retries=False) as http:
        found: list[dict[str, Any]] = http.request("GET", f"{url_of(several, number)}/v1/destinations").json()
    return found


def binds(taker: socket.socket, port: int) -> bool:
    with contextlib.suppress(OSError):
        taker.bind(("127.0.0.1", port))
        return True
    return False


def client_of(several: Sluice, name: str, number: int) -> Client:
    return several.client(name=name, url=url_of(several, number))


def ids(client: Client) -> list[object]:
    batch = client.get(1.0)
    return [row.key["id"] for row in batch.rows()]


def wait_ids(client: Client) -> list[object]:
    """Wait until rows come; return their keys."""
    found: list[object] = []

    def some() -> bool:
        found.extend(ids(client))
        return bool(found)

    eventually(some, "a row")
    return found


def test_each_process_has_its_destinations_and_names_the_holder_of_others(several: Sluice) -> None:
    with several:
        wait_running(several)
        for name, holder in HOLDERS.items():
            for number in range(COUNT):
                status, found = ask(several, number, name)
                if number == holder:
                    assert (status, found["state"]) == (200, "running")
                else:
                    assert (status, found["active"]) == (421, url_of(several, holder))
        assert [ask(several, number, "nobody")[0] for number in range(COUNT)] == [404, 421, 421]
        several.stop()


@pytest.mark.extended
def test_failed_logins_count_together(several: Sluice) -> None:
    Credentials(several.conf / "credentials.json").set_password("ops", "correct horse", Grant())

    def log_in(number: int, password: str) -> int:
        login = {"user": "ops", "password": password}
        return urllib3.request("POST", f"{url_of(several, number)}/v1/tokens", json=login, retries=False).status

    with several:
        failed = [0] * COUNT
        for number in itertools.cycle(range(COUNT)):
            if log_in(number, "wrong") == 429:
                break
            failed[number] += 1
        assert max(failed) < FREE_FAILURES <= sum(failed)
        eventually(lambda: log_in(2, "correct horse") == 201, "the end of the wait")
        assert [log_in(it, "wrong") for it in range(COUNT)] == [401] * COUNT


@pytest.mark.extended
def test_each_process_serves_a_renewed_certificate(several: Sluice, tmp_path: Path) -> None:
    cert, key = certificates.make(tmp_path)
    (tmp_path / "new").mkdir()
    renewed = certificates.make(tmp_path / "new")
    with (several.conf / "canal.properties").open("a") as file:
        file.write(f"sluice.http.tlsCert = {cert}\nsluice.http.tlsKey = {key}\n")

    def served() -> list[str]:
        return [ssl.get_server_certificate(("127.0.0.1", several.port + it)).strip() for it in range(COUNT)]

    with several:
        assert served() == [cert.read_text().strip()] * COUNT
        for old, new in zip((cert, key), renewed, strict=True):
            new.replace(old)
        eventually(lambda: served() == [cert.read_text().strip()] * COUNT, "the renewed certificate")


@pytest.mark.extended
def test_a_client_finds_its_destination_through_any_process(several: Sluice, schema: str, mariadb118: Server) -> None:
    with several:
        wait_running(several)
        clients = {name: client_of(several, name, (number + 1) % COUNT) for name, number in HOLDERS.items()}
        for client in clients.values():
            client.subscribe()
        mariadb118.query(f"INSERT INTO {schema}.t VALUES (7)")
        assert {name: wait_ids(client) for name, client in clients.items()} == {name: [7] for name in HOLDERS}


@pytest.mark.extended
def test_each_survives_the_others_and_comes_back_with_its_cursors(
    several: Sluice, schema: str, mariadb118: Server
) -> None:
    with several:
        wait_running(several)
        clients = {name: client_of(several, name, number) for name, number in HOLDERS.items()}
        for client in clients.values():
            client.subscribe()
        mariadb118.query(f"INSERT INTO {schema}.t VALUES (1)")
        for client in clients.values():
            assert wait_ids(client) == [1]
        before = processes(several)
        os.kill(before[1], signal.SIGKILL)
        mariadb118.query(f"INSERT INTO {schema}.t VALUES (2)")
        for name in ("shop1", "shop2"):
            assert wait_ids(clients[name]) == [2]
        eventually(lambda: runs(several, "shop0", 1), "shop0 again")
        after = processes(several)
        assert {number for number in before if before[number] != after[number]} == {1}
        again = client_of(several, "shop0", 1)
        found: list[object] = []
        while 2 not in found:
            found += ids(again)
        assert found in ([2], [1, 2])  # what was not stored when it was killed comes again
        assert "process 1 has been ended by SIGKILL; it starts again in 1 s" in several.log_file.read_text()
        several.stop()


@pytest.mark.extended
def test_one_that_cannot_start_is_tried_again_while_the_others_serve(several: Sluice) -> None:
    with several:
        wait_running(several)
        os.kill(processes(several)[1], signal.SIGKILL)
        with socket.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            eventually(lambda: binds(other, several.port + 1), "the port is free", 1)
            other.listen()
            eventually(lambda: "process 1 has ended with status" in several.log_file.read_text(), "it ends again")
            assert runs(several, "shop1", 0)
            assert runs(several, "shop2", 2)
        eventually(lambda: runs(several, "shop0", 1), "shop0 again")


@pytest.mark.extended
def test_none_outlives_the_one_that_started_them(several: Sluice) -> None:
    with several:
        wait_running(several)
        children = [Path(f"/proc/{pid}") for pid in processes(several).values()]
        several.kill()
        eventually(lambda: not any(map(Path.exists, children)), "they end")
        eventually(lambda: several.log_file.read_text().count("INFO    stopped") == COUNT, several.log_file.read_text)
        assert not any(runs(several, name, number) for name, number in HOLDERS.items())


@pytest.mark.extended
def test_a_destination_that_becomes_a_view_in_another_process_goes_there_and_back(
    several: Sluice, schema: str, mariadb118: Server
) -> None:
    several.settings = {"canal__auto__scan": "true", "canal__auto__scan__interval": 0.2}
    several.add("shop0", mariadb118, canal__instance__filter__regex=rf"{schema}\\..*")
    file = several.conf / "shop2" / "instance.properties"
    before = file.read_text()
    with several:
        wait_running(several)
        client_of(several, "shop2", 2).subscribe("wanted[.].*")
        for text, number in (("sluice.instance.route = shop1\n", 0), (before, 2)) * 2:
            file.write_text(text)
            eventually(lambda number=number: runs(several, "shop2", number), f"it runs in process {number}")  # type: ignore[misc]
            status, found = ask(several, 2 - number, "shop2")
            assert (status, found["active"]) == (421, url_of(several, number))
            assert "shop2" not in [it["destination"] for it in destinations_of(several, 2 - number)]
            assert client_of(several, "shop2", 2).status()["filter"] == "wanted[.].*"
        several.stop()


@pytest.mark.extended
def test_a_destination_that_appears_starts_in_its_process_alone(several: Sluice, mariadb118: Server) -> None:
    several.settings = {"canal__auto__scan": "true", "canal__auto__scan__interval": 0.2}
    several.add("shop0", mariadb118)
    with several:
        for name in LATER:
            several.add(name, mariadb118)
        for name, number in LATER.items():
            eventually(lambda name=name, number=number: runs(several, name, number), name)  # type: ignore[misc]
        names = [[item["destination"] for item in destinations_of(several, number)] for number in range(COUNT)]
        assert names == [["shop1", "shop8"], ["shop0", "shop6"], ["shop2", "shop3"]]
        assert "belongs to process" not in several.log_file.read_text()  # the others do not even try
