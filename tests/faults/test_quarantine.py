"""Rows that could not be decoded reach those who miss them, once they can be."""

from collections.abc import Iterator
from typing import Any

import pytest

from sluice.client_sdk import Batch, Client
from tests.conftest import Database
from tests.faults.harness import Sluice
from tests.servers import Server
from tests.waiting import eventually


def put_into_quarantine(sluice: Sluice, server: Server, schema: str, *clients: int, by: str = "DROP TABLE t") -> None:
    """Let the rows 1 to 3 of `t` be read when the table is gone, for clients that have read row 0 of `u`."""
    settings = {"canal__instance__filter__regex": rf"{schema}\\..*", "canal__instance__tsdb__enable": "false"}
    sluice.add("shop", server, **settings)
    server.query(f"CREATE TABLE {schema}.u (id INT)")
    server.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, name VARCHAR(9))")
    sluice.start()
    sluice.wait_running()
    for client_id in clients:
        with sluice.client(client_id) as client:
            client.subscribe()
    server.query(f"INSERT INTO {schema}.u VALUES (0)")
    for client_id in clients:
        with sluice.client(client_id) as client:
            assert read(client) == ["u 0"]
    sluice.stop()
    server.script(
        "BEGIN;\nINSERT INTO t VALUES (1, 'a'), (2, 'b');\nINSERT INTO u VALUES (1);\nINSERT INTO t VALUES (3, 'c');\n"
        f"COMMIT;\n{by};\nINSERT INTO u VALUES (2);\n",
        database=schema,
    )
    sluice.start()
    sluice.wait_running()
    eventually(lambda: sluice.destination()["parser"]["quarantined"] == 2, sluice.destination)


def described(batch: Batch) -> Iterator[str]:
    """Say of what a batch holds: rows, markers, and what is late."""
    for change in batch.changes():
        if any(key == "sluice.quarantine" for key in change.header_props):
            yield "marker"
        for row in change.rows():
            assert row.after is not None
            yield f"{'late ' if row.late else ''}{row.table} {row.after['id']}"


def read(client: Client, count: int = 1) -> list[str]:
    """Take and ack batches until they have told so much."""
    found: list[str] = []
    while len(found) < count:
        batch = client.get_without_ack(timeout=10)
        assert batch, found
        found += described(batch)
        client.ack(batch, durable=True)
    return found


def retry(sluice: Sluice) -> list[dict[str, Any]]:
    """Have what is in quarantine decoded again."""
    found: list[dict[str, Any]] = sluice.call("POST", "/shop/quarantine/retry")
    return found


def test_clients_that_have_passed_a_marker_get_its_rows_apart_and_others_in_their_place(
    sluice: Sluice, mariadb118: Server, database: Database
) -> None:
    schema = database(mariadb118)
    put_into_quarantine(sluice, mariadb118, schema, 1, 2)
    with sluice.client(1) as ahead, sluice.client(2) as behind:
        assert read(ahead, 4) == ["marker", "u 1", "marker", "u 2"]
        outstanding = behind.get_without_ack(timeout=10)
        assert next(described(outstanding)) == "marker"
        mariadb118.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, name VARCHAR(9))")
        assert [(it["reason"], it["clients"]) for it in retry(sluice)] == [("", [1]), ("", [1])]
        assert sluice.call("GET", "/shop/quarantine") == []
        late = ahead.get_without_ack(timeout=10)
        assert late.from_ == late.to
        assert list(described(late)) == ["late t 1", "late t 2"]
        assert read(behind, 5) == ["t 1", "t 2", "u 1", "t 3", "u 2"]
        ahead.rollback()
        assert read(ahead, 3) == ["late t 1", "late t 2", "late t 3"]
        mariadb118.query(f"INSERT INTO {schema}.u VALUES (9)")
        assert read(ahead) == read(behind) == ["u 9"]
        assert retry(sluice) == []


@pytest.mark.extended
def test_late_rows_wait_for_their_client_while_the_server_is_killed(
    sluice: Sluice, mariadb118: Server, database: Database
) -> None:
    schema = database(mariadb118)
    put_into_quarantine(sluice, mariadb118, schema, 1)
    with sluice.client(1) as client:
        assert read(client, 4) == ["marker", "u 1", "marker", "u 2"]
    assert [it["clients"] for it in retry(sluice)] == [[], []]
    assert "dropped or renamed" in retry(sluice)[0]["reason"]
    mariadb118.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, name VARCHAR(9))")
    places = [it["item"]["position"] for it in retry(sluice)]
    sluice.kill()
    sluice.start()
    sluice.wait_running()
    with sluice.client(1) as client:
        batch = client.get_without_ack(timeout=10)
        assert [row.late for row in batch.rows()] == [places[0]] * 2
        client.ack(batch, durable=True)
    sluice.kill()
    sluice.start()
    sluice.wait_running()
    with sluice.client(1) as client:
        assert read(client) == ["late t 3"]
        assert sluice.destination()["clients"][0]["late"] == 0


@pytest.mark.extended
def test_rows_of_a_table_that_was_renamed_are_decoded_when_it_has_its_name_again(
    sluice: Sluice, mariadb118: Server, database: Database
) -> None:
    schema = database(mariadb118)
    put_into_quarantine(sluice, mariadb118, schema, 1, by="RENAME TABLE t TO away")
    with sluice.client(1) as client:
        assert read(client, 4) == ["marker", "u 1", "marker", "u 2"]
        mariadb118.query(f"CREATE TABLE {schema}.t (name VARCHAR(9), id INT)")
        assert all("t.name: the event has the type LONG" in it["reason"] for it in retry(sluice))
        mariadb118.query(f"RENAME TABLE {schema}.t TO {schema}.other, {schema}.away TO {schema}.t")
        assert [it["reason"] for it in retry(sluice)] == ["", ""]
        rows: list[tuple[str, Any]] = []
        while len(rows) < 3:
            batch = client.get_without_ack(timeout=10)
            rows += [(row.table, row.after) for row in batch.rows()]
            client.ack(batch)
        assert rows == [("t", {"id": 1, "name": "a"}), ("t", {"id": 2, "name": "b"}), ("t", {"id": 3, "name": "c"})]
