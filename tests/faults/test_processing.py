"""A destination that processes the rows of another one: in order, each once, whatever is killed."""

import json
import random
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from sluice.client_sdk import Client, Row
from tests import commands
from tests.conftest import Database
from tests.faults.harness import Load, Sluice
from tests.faults.test_file_output import lines
from tests.kafka import ops, seen
from tests.servers import Server
from tests.waiting import eventually

JOIN = """
import sqlite3

database = sqlite3.connect("file:{path}?mode=ro", uri=True)

def process(rows):
    found = dict(database.execute("SELECT id, name FROM customers"))
    kept = []
    for row in rows:
        if row.table == "orders":
            for image in filter(None, (row.before, row.after)):
                if image["amount"] < 0:
                    raise ValueError("a negative amount")
                image["customer_name"] = found.get(image["customer"])
        if row.table != "drafts":
            kept.append(row)
    return kept
"""
MARK = """
def process(rows):
    for row in rows:
        for image in filter(None, (row.before, row.after)):
            image["mark"] = image["id"] % 7
    return rows
"""


def configure(
    sluice: Sluice,
    monkeypatch: pytest.MonkeyPatch,
    module: str,
    *,
    names: Sequence[str] = ("made",),
    **settings: object,
) -> None:
    """Configure destinations that process `shop`."""
    folder = sluice.conf.parent / "modules"
    folder.mkdir()
    (folder / "processor_of_shop.py").write_text(module)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    for name in names:
        sluice.configure(
            name,
            sluice__instance__source="process",
            sluice__instance__process__destination="shop",
            sluice__instance__process__clientId=500,
            sluice__instance__process__url=sluice.url,
            sluice__processor="processor_of_shop:process",
            **settings,
        )


def taken(client: Client, is_last: Callable[[Row], bool]) -> list[Row]:
    """The rows that a client gets up to one, acked."""
    found: list[Row] = []

    def is_there() -> bool:
        found.extend(client.get(timeout=1))
        return any(map(is_last, found))

    eventually(is_there, lambda: found)
    return found


def test_a_function_joins_a_table_drops_rows_and_adds_a_column(
    sluice: Sluice, mariadb118: Server, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema, customers = database(mariadb118), tmp_path / "customers.db"
    with sqlite3.connect(customers) as small:
        small.execute("CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT)")
        small.execute("INSERT INTO customers VALUES (1, 'Ann')")
    for table in ("orders", "drafts", "finished"):
        mariadb118.query(f"CREATE TABLE {table} (id INT PRIMARY KEY, customer INT, amount INT)", database=schema)
    sluice.add("shop", mariadb118, canal__instance__filter__regex=rf"{schema}\\..*")
    columns = f"{schema}.orders.customer_name: varchar(20)"
    configure(sluice, monkeypatch, JOIN.format(path=customers), sluice__processor__columns=columns)
    with sluice.reading():
        plain, made = sluice.client(1), sluice.client(1, "made")
        plain.subscribe()
        made.subscribe()
        for statement in (
            "INSERT INTO orders VALUES (1, 1, 10), (2, 9, 20)",
            "INSERT INTO drafts VALUES (1, 1, 10)",
            "UPDATE orders SET amount = 11 WHERE id = 1",
            "INSERT INTO orders VALUES (3, 1, -1)",
            "DELETE FROM orders WHERE id = 2",
            "INSERT INTO finished VALUES (1, 1, 1)",
        ):
            mariadb118.query(statement, database=schema)
        changes = []

        def is_there() -> bool:
            changes.extend(made.get(timeout=1).changes())
            return any(it.table == "finished" for it in changes)

        eventually(is_there, lambda: sluice.destination("made"))
        found = [row for change in changes for row in change.rows() if row.table != "finished"]
        rows = [(it.type, it.before, it.after) for it in found]
        listed = commands.run("quarantine", "list", "made", "--conf", str(sluice.conf), check=True).stdout
        behind = taken(plain, lambda row: row.table == "finished")
        module = sluice.conf.parent / "modules" / "processor_of_shop.py"
        module.write_text(module.read_text().replace('raise ValueError("a negative amount")', "pass"))
        (retried,) = sluice.call("POST", "/made/quarantine/retry")
        (late,) = taken(made, lambda row: bool(row.late))
    first = {"id": 1, "customer": 1, "amount": 10, "customer_name": "Ann"}
    second = {"id": 2, "customer": 9, "amount": 20, "customer_name": None}
    assert rows == [
        ("INSERT", None, first),
        ("INSERT", None, second),
        ("UPDATE", first, first | {"amount": 11}),
        ("DELETE", second, None),
    ]
    markers = [it.header_props["sluice.quarantine"] for it in changes if "sluice.quarantine" in it.header_props]
    assert markers == ["ValueError: a negative amount"]
    assert "a negative amount" in " ".join(listed.split())
    assert retried["reason"] == ""
    assert late.after == {"id": 3, "customer": 1, "amount": -1, "customer_name": "Ann"}
    assert len(behind) == 7  # those that read the other destination notice nothing of it


@pytest.mark.parametrize("store", ["file", pytest.param("memory", marks=pytest.mark.extended)])
@pytest.mark.timeout(600)
def test_each_change_is_processed_once_and_in_order_whatever_is_killed(
    sluice: Sluice, mariadb118: Server, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: str
) -> None:
    schema, folder = database(mariadb118), tmp_path / "files"
    sluice.add("shop", mariadb118, canal__instance__filter__regex=rf"{schema}\\..*")
    columns = "; ".join(f"{schema}.{table}.mark: int" for table in (*Load.TABLES, "finished"))
    configure(
        sluice,
        monkeypatch,
        MARK,
        sluice__processor__columns=columns,
        sluice__processor__workers=2,
        sluice__instance__store=store,
        sluice__outputs="copy",
        sluice__output__copy__type="file",
        sluice__output__copy__folder=folder,
        sluice__output__copy__fileSeconds=1,
    )
    load = Load(mariadb118, schema)
    chance = random.Random(5)
    with sluice.reading():
        with load:
            for _ in range(2):
                goal = load.committed + chance.randrange(20, 100)
                eventually(lambda: load.committed > goal)  # noqa: B023
                sluice.kill()
                sluice.start()
            load.finish(stop=True)
        found = lines(folder)
    messages = [json.loads(line) for line in found]
    marks = [(int(row["id"]) % 7, int(row.pop("mark"))) for it in messages for row in it["data"] or ()]
    assert len(marks) == load.changes() + 1
    assert all(wanted == mark for wanted, mark in marks)
    for it in messages:
        for row in it["old"] or ():
            row.pop("mark", None)
    assert load.check(seen(ops(json.dumps(it).encode() for it in messages))) == load.changes()


@pytest.mark.extended
def test_a_destination_that_was_stopped_for_a_while_goes_on_where_it_was(
    sluice: Sluice, mariadb118: Server, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = database(mariadb118)
    mariadb118.query("CREATE TABLE goods (id INT PRIMARY KEY)", database=schema)
    sluice.add("shop", mariadb118, canal__instance__filter__regex=rf"{schema}\\..*")
    configure(sluice, monkeypatch, MARK, sluice__processor__columns=f"{schema}.goods.mark: int")
    with sluice.reading():
        sluice.client(1, "made").subscribe()
        mariadb118.query("INSERT INTO goods VALUES (1)", database=schema)
        taken(sluice.client(1, "made"), lambda row: row.key["id"] == 1)
        mariadb118.query("INSERT INTO goods VALUES (2)", database=schema)
        eventually(lambda: sluice.client(1, "made").get_without_ack(1).rows(), "a change that is not acked")
        time.sleep(0.5)
    with sluice:
        sluice.wait_running("made")
        mariadb118.query("INSERT INTO goods VALUES (3)", database=schema)
        found = taken(sluice.client(1, "made"), lambda row: row.key["id"] == 3)
    assert [it.key["id"] for it in found] == [2, 3]


def test_nothing_is_lost_where_somebody_moves_the_client_by_which_a_destination_reads(
    sluice: Sluice, mariadb118: Server, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = database(mariadb118)
    mariadb118.query("CREATE TABLE goods (id INT PRIMARY KEY)", database=schema)
    sluice.add("shop", mariadb118, canal__instance__filter__regex=rf"{schema}\\..*")
    configure(sluice, monkeypatch, "def process(rows):\n    return rows\n")
    with sluice.reading():
        made, feeder = sluice.client(1, "made"), sluice.client(500)
        made.subscribe()
        sluice.call("POST", "/shop/clients/500/limit", json={"maxRate": 1})
        for number in range(1, 6):
            mariadb118.query(f"INSERT INTO goods VALUES ({number})", database=schema)
        eventually(lambda: (status := feeder.status())["lag"]["waiting"]["rows"] and not status["marks"], feeder.status)
        moved = sluice.call("POST", "/shop/clients/500/seek", json={"start": "latest"})["passedOver"]
        sluice.call("POST", "/shop/clients/500/limit", json={"maxRate": 0})
        mariadb118.query("INSERT INTO goods VALUES (6)", database=schema)
        found = taken(made, lambda row: row.key["id"] == 6)
        log = sluice.log_file.read_text()
    assert moved["rows"] > 0
    assert [it.key["id"] for it in found] == [1, 2, 3, 4, 5, 6]
    assert "client 500 of destination shop" in log
    assert ": seek. It goes back to where made was" in log


def test_two_destinations_do_not_read_by_the_same_client(
    sluice: Sluice, mariadb118: Server, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = database(mariadb118)
    mariadb118.query("CREATE TABLE goods (id INT PRIMARY KEY)", database=schema)
    sluice.add("shop", mariadb118, canal__instance__filter__regex=rf"{schema}\\..*")
    configure(sluice, monkeypatch, "def process(rows):\n    return rows\n", names=("made", "again"))
    with sluice:
        sluice.wait_running("shop")
        states: dict[str, Any] = {}

        def is_refused() -> bool:
            states.update({it: sluice.destination(it) for it in ("made", "again")})
            return sorted(it["state"] for it in states.values()) == ["error", "running"]

        eventually(is_refused, lambda: states)
        (reading,) = (name for name, it in states.items() if it["state"] == "running")
        (refused,) = (it for it in states.values() if it["state"] == "error")
        client = sluice.client(1, reading)
        client.subscribe()
        mariadb118.query("INSERT INTO goods VALUES (1)", database=schema)
        found = taken(client, lambda row: row.table == "goods")
    assert [it.key["id"] for it in found] == [1]
    assert "another destination uses client 500: give each numbers of its own" in refused["error"]


def test_clients_that_share_a_filter_get_the_tables_that_one_of_them_names(
    sluice: Sluice, mariadb118: Server, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = database(mariadb118)
    mariadb118.query("CREATE TABLE goods (id INT PRIMARY KEY)", database=schema)
    sluice.add("shop", mariadb118, canal__instance__filter__regex=rf"{schema}\\..*")
    settings: dict[str, Any] = {
        "sluice__instance__sharedFilter": True,
        "canal__instance__filter__regex": rf"{schema}\\.orders",
    }
    configure(sluice, monkeypatch, "def process(rows):\n    return rows\n", **settings)
    with sluice.reading():
        client = sluice.client(1, "made")
        client.subscribe(rf"{schema}\.goods")
        mariadb118.query("INSERT INTO goods VALUES (1)", database=schema)
        found = taken(client, lambda row: row.table == "goods")
    assert [it.key["id"] for it in found] == [1]


def test_check_names_what_is_wrong_with_the_function(
    sluice: Sluice, mariadb118: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    sluice.add("shop", mariadb118)
    configure(sluice, monkeypatch, "def process(): pass\n")
    said = commands.run("check", "--conf", str(sluice.conf), "made")
    assert said.returncode == 1
    assert "sluice.processor = processor_of_shop:process: it has to take one argument, a list of rows" in " ".join(
        (said.stdout + said.stderr).split()
    )
