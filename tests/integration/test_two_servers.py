"""A client of two servers on one source goes on with the other one when one is killed, stopped, or not there at all."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
import urllib3

from sluice.client_sdk import AsyncClient, Batch, Client
from sluice.client_sdk.calls import Limits
from sluice.protocol.errors import ConnectionLostError, StaleSessionError, UnknownBatchError
from tests.conftest import Database
from tests.integration.test_end_to_end import Serving
from tests.servers import Server

Pair = tuple[Serving, Serving]
SMALL = Limits(max_entries=10)


def url_of(serving: Serving) -> str:
    return f"http://127.0.0.1:{serving.port}"


@pytest.fixture
def table(database: Database, mariadb118: Server) -> str:
    schema = database(mariadb118)
    mariadb118.query(f"CREATE TABLE {schema}.numbers (id INT PRIMARY KEY)")
    return f"{schema}.numbers"


@pytest.fixture
def pair(tmp_path: Path, mariadb118: Server, table: str) -> Iterator[Pair]:
    schema = table.partition(".")[0]
    both = tuple(Serving(tmp_path / name, mariadb118, mariadb118.port, schema) for name in ("a", "b"))
    try:
        for serving in both:
            with Client(url_of(serving)) as client:
                client.subscribe()
        yield both[0], both[1]
    finally:
        for serving in both:
            serving.process.kill()
            serving.process.wait()


def urls(pair: Pair) -> list[str]:
    return [url_of(serving) for serving in pair]


def insert(source: Server, table: str, first: int, count: int) -> None:
    with source.connect() as connection, connection.cursor() as cursor:
        for number in range(first, first + count):
            cursor.execute(f"INSERT INTO {table} VALUES ({number})")


def stop_destination(serving: Serving) -> None:
    answer = urllib3.request("POST", f"{url_of(serving)}/v1/destinations/example/stop")
    assert answer.status < 300, answer.data


def start_destination(serving: Serving) -> None:
    assert urllib3.request("POST", f"{url_of(serving)}/v1/destinations/example/start").status < 300


@pytest.mark.extended
@pytest.mark.parametrize("way", ["batches", "stream"])
def test_nothing_is_missing_though_each_server_fails_in_turn(
    pair: Pair, mariadb118: Server, table: str, way: str
) -> None:
    first, second = pair

    def fail_first_again() -> None:
        start_destination(second)
        first.process.kill()

    accidents = iter([(50, first.crash), (100, lambda: stop_destination(second)), (150, fail_first_again)])
    received: list[int] = []
    with (
        ThreadPoolExecutor(1) as pool,
        Client(urls(pair)) as client,
        closing(getattr(client, way)(limits=SMALL)) as batches,
    ):
        writing = pool.submit(insert, mariadb118, table, 1, 200)
        due, accident = next(accidents)
        for batch in batches:
            received += [row.after["id"] for row in batch if row.after]
            if received and received[-1] >= due:
                accident()
                due, accident = next(accidents, (201, accident))
            if received and received[-1] == 200:
                break
        writing.result()
    assert list(dict.fromkeys(received)) == list(range(1, 201))
    assert due == 201, "all of it has happened"


def test_a_batch_of_a_killed_server_comes_again_from_the_other(pair: Pair, mariadb118: Server, table: str) -> None:
    def take(client: Client) -> Batch:
        batch = client.get_without_ack(10, Limits(max_entries=1))
        while not batch.rows():
            client.ack(batch)
            batch = client.get_without_ack(10, Limits(max_entries=1))
        return batch

    insert(mariadb118, table, 1, 3)
    with Client(urls(pair)) as client:
        client.open_session()
        batch = take(client)
        pair[0].process.kill()
        with pytest.raises(UnknownBatchError):  # the other has given nothing yet
            client.ack(batch)
        again = take(client)
        assert (again.from_, again.to) == (batch.from_, batch.to)
        client.ack(batch)  # it is known by its position
        assert client.status()["acked"] == batch.to


def test_a_range_is_the_same_on_the_other_server(pair: Pair, mariadb118: Server, table: str) -> None:
    insert(mariadb118, table, 1, 5)
    with Client(urls(pair)) as client:
        client.open_session()
        start = client.status()["position"]
        whole = client.position(start, timeout=10, max_rows=2)
        data = client.rows(whole.from_, whole.to).data
        pair[0].process.kill()
        assert client.rows(whole.from_, whole.to).data == data
        again = client.position(start, timeout=10, max_rows=2)
        assert (again.from_, again.to) == (whole.from_, whole.to)
        client.ack(whole.to)


def test_a_session_moves_along_and_a_newer_one_there_is_respected(pair: Pair) -> None:
    with Client(urls(pair)) as client, Client(urls(pair)[1]) as other:
        client.open_session()
        pair[0].process.kill()
        client.get_without_ack()
        other.open_session()
        with pytest.raises(StaleSessionError):
            client.get_without_ack()


@pytest.mark.parametrize("stopped", ["process", pytest.param("destination", marks=pytest.mark.extended)])
async def test_the_server_that_runs_is_found(pair: Pair, stopped: str) -> None:
    if stopped == "process":
        pair[0].process.kill()
        pair[0].process.wait()
    else:
        stop_destination(pair[0])
    with Client(",".join(urls(pair)), retry=0) as client:
        assert client.status()["clientId"] == 1001
    async with AsyncClient(urls(pair), retry=0) as other:
        assert (await other.status())["clientId"] == 1001
    pair[1].process.kill()
    pair[1].process.wait()
    if stopped == "process":
        with Client(urls(pair), retry=0.3) as client, pytest.raises(ConnectionLostError):
            client.status()
