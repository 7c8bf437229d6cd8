"""What goes wrong around a query: it says what to do, keeps no secret in it, and goes on when that is done."""

import re
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sluice.client_sdk import Client
from sluice.server.credentials import Credentials, Grant
from tests.faults.harness import Sluice
from tests.faults.test_ha import Pair
from tests.servers import Server, ZooKeeper
from tests.spark.streams import Sink, failure, load, until
from tests.waiting import eventually

pytestmark = pytest.mark.extended


@pytest.fixture
def guarded(tmp_path: Path, source: Server, schema: str, authority: Path) -> tuple[Sluice, str]:
    """A server with TLS that asks for a token, not started, and a token."""
    server = Sluice(tmp_path / "guarded")
    credentials = tmp_path / "credentials.json"
    server.settings = {
        "sluice__http__tlsCert": authority / "server.pem",
        "sluice__http__tlsKey": authority / "server-key.pem",
        "sluice__http__credentials": credentials,
    }
    server.add("shop", source, canal__instance__filter__regex=rf"{schema}\\..*")
    return server, Credentials(credentials).issue("spark", Grant()).text


def test_a_private_authority_and_a_token_in_a_file_are_what_it_takes(
    spark: SparkSession, source: Server, schema: str, guarded: tuple[Sluice, str], authority: Path, tmp_path: Path
) -> None:
    server, token = guarded
    (tmp_path / "token").write_text(token + "\n")
    given = {"url": f"https://localhost:{server.port}", "ca": authority / "ca.pem", "tokenFile": tmp_path / "token"}
    with server:
        with Client(str(given["url"]), "shop", 1001, ca=authority / "ca.pem", token=token) as client:
            eventually(lambda: client.destination()["state"] == "running", client.destination)
        source.query(f"CREATE TABLE {schema}.goods (id INT PRIMARY KEY)")
        source.query(f"INSERT INTO {schema}.goods VALUES (1), (2)")
        sink = Sink(tmp_path)
        sink.read_available(load(spark, server, **given, table=f"{schema}.goods"))
        assert [row["id"] for row in sink.rows] == [1, 2]

        wrong = token[:-4] + "0000"
        faults: list[tuple[dict[str, object], str]] = [
            ({"ca": None}, "ConnectionLostError: .*certificate verify failed.*options url, .*ca"),
            ({"tokenFile": None}, "UnauthorizedError: .*token"),
            ({"tokenFile": None, "token": wrong}, "UnauthorizedError: .*token"),
            ({"tokenFile": tmp_path / "missing"}, "BadParameterError: option tokenFile: .*No such file"),
        ]
        for number, (change, complaint) in enumerate(faults):
            options = {name: value for name, value in (given | change).items() if value is not None}
            said = failure(Sink(tmp_path / str(number)).start(load(spark, server, **options)))
            assert re.search(complaint, said), said
            assert token not in said
            assert wrong not in said


def test_a_server_that_stays_out_of_reach_ends_the_query_which_then_goes_on(
    spark: SparkSession, source: Server, schema: str, sluice: Sluice, tmp_path: Path
) -> None:
    source.query(f"CREATE TABLE {schema}.goods (id INT PRIMARY KEY)")
    source.query(f"INSERT INTO {schema}.goods VALUES (1)")
    stream = load(spark, sluice, retry=2)
    sink = Sink(tmp_path)
    query = sink.start(stream)
    until(lambda: sink.rows, query)
    sluice.kill()
    source.query(f"INSERT INTO {schema}.goods VALUES (2)")
    said = failure(query)
    assert re.search(rf"ConnectionLostError: .*port={sluice.port}.*start the query again", said), said
    sluice.start()
    sink.read_available(stream)
    assert [row["after"]["id"] for row in sink.rows] == ["1", "2"]


def test_a_query_goes_on_with_the_next_server_when_the_active_one_is_killed(
    spark: SparkSession, source: Server, schema: str, zookeeper: ZooKeeper, tmp_path: Path
) -> None:
    pair = Pair(tmp_path, zookeeper.hosts, source, schema)
    with ExitStack() as stack:
        for server in pair.servers:
            stack.enter_context(server)
        first = pair.active()
        given = {"zookeeper": zookeeper.hosts, "destination": "shop", "clientId": "1003", "startingPosition": "latest"}
        sink = Sink(tmp_path)
        query = sink.start(spark.readStream.format("sluice").options(**given).load())
        stack.callback(query.stop)
        eventually(lambda: query.recentProgress)
        pair.insert(1)
        until(lambda: sink.rows, query)
        first.kill()
        pair.insert(2)
        until(lambda: len(sink.rows) > 1, query)
        assert [row["after"]["id"] for row in sink.rows] == ["1", "2"]
