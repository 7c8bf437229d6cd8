"""A source that cannot be used is one clear message; the other destinations never notice."""

import re
from collections.abc import Iterator

import pytest

from tests.conftest import Database
from tests.faults.harness import Consumer, Load, Sluice, consuming
from tests.servers import Server
from tests.waiting import eventually


@pytest.fixture
def silent() -> Iterator[Server]:
    """A MySQL that writes no binlog."""
    with Server("mysql97", ["--skip-log-bin"]) as server:
        yield server


def test_bad_destinations_say_what_is_wrong_and_do_not_hurt_the_others(
    sluice: Sluice, source: Server, silent: Server, database: Database
) -> None:
    schema = database(source)
    source.query("CREATE USER poor@'%' IDENTIFIED BY 'hunter2'")
    try:
        sluice.add("good", source, canal__instance__filter__regex=rf"{schema}\\..*")
        sluice.add("denied", source, canal__instance__dbPassword="hunter3")
        sluice.add(
            "unprivileged",
            source,
            canal__instance__dbUsername="poor",
            canal__instance__dbPassword="hunter2",
        )
        sluice.add("silent", silent)
        sluice.add("nobody", source, canal__instance__master__address="127.0.0.1:1")
        load = Load(source, schema, count=60)
        with sluice:
            sluice.wait_running("good")
            consumer = Consumer(sluice.client(name="good"))
            with load, consuming(consumer):
                errors = {
                    name: sluice.wait_error(text, name)
                    for name, text in {
                        "denied": r"cannot log in to .* as 'cdc': Access denied",
                        "unprivileged": r"cannot be replicated:\n1\. the privilege",
                        "silent": "log_bin is OFF",
                        "nobody": r"cannot log in to 127\.0\.0\.1:1 .*refused",
                    }.items()
                }
                assert "GRANT REPLICATION SLAVE ON *.* TO 'poor'@'%';" in errors["unprivileged"]
                load.finish()
                changes = consumer.finish()
            load.check(changes)
            assert sluice.destination("good")["state"] == "running"
            assert not any("hunter" in line for line in sluice.log)
            assert not any("Traceback" in line for line in sluice.log)
    finally:
        source.query("DROP USER poor@'%'")


def test_two_replicas_of_one_server_id_are_named_as_such(
    sluice: Sluice, mariadb118: Server, database: Database
) -> None:
    source = mariadb118  # MySQL tells replicas apart by their uuid, and serves both
    schema = database(source)
    for name in ("one", "two"):
        sluice.add(name, source, canal__instance__mysql__slaveId=4242, canal__instance__filter__regex=rf"{schema}\\..*")
    sluice.add("good", source, canal__instance__filter__regex=rf"{schema}\\..*")
    load = Load(source, schema, count=30)
    with sluice:
        sluice.wait_running("good")
        consumer = Consumer(sluice.client(name="good"))
        with load, consuming(consumer):
            eventually(
                lambda: any("same server_id" in it or "same server id" in it for it in _errors(sluice, "one", "two")),
                "a clash of the two",
            )
            load.finish()
            assert load.check(consumer.finish()) == load.changes()
        said = set(re.findall(r"(\w+): error: .*same server[_ ]id", sluice.log_file.read_text()))
        assert said in ({"one"}, {"two"}, {"one", "two"})


def _errors(sluice: Sluice, *names: str) -> list[str]:
    return [error for name in names if (error := sluice.destination(name)["error"])]
