"""Files of changes as a source, and replayed into a server: what was written is there, with its places."""

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice.client_sdk import Client
from sluice.protocol.canal.rows import Change
from tests import commands
from tests.conftest import Database
from tests.delivery import execute
from tests.faults.harness import Load, Sluice
from tests.faults.test_file_output import configure
from tests.servers import Server
from tests.waiting import eventually

PB = {"sluice__output__copy__format": "pb", "sluice__output__copy__fileSeconds": 1}


@pytest.fixture
def sluice(tmp_path: Path) -> Iterator[Sluice]:
    """A server with nothing configured, not started; it is gone after the test."""
    made = Sluice(tmp_path)
    yield made
    made.__exit__()


def taken(client: Client, is_over: str) -> list[Change]:
    """All changes up to a row of a table, as a client gets them, with acks."""
    found: list[Change] = []
    with client:
        client.subscribe(start="oldest")

        def is_there() -> bool:
            found.extend(client.get(timeout=1).changes())
            return any(it.table == is_over and it.rows() for it in found)

        eventually(is_there, f"a row of {is_over}")
    return found


def places(changes: list[Change]) -> list[tuple[object, ...]]:
    """What a change says of itself."""
    return [
        (it.entry_type, it.type, it.schema, it.table, it.logfile_name, it.logfile_offset, it.execute_time, it.sql)
        for it in changes
    ]


def write(sluice: Sluice, folder: Path, source: Server, schema: str, **settings: object) -> tuple[Load, list[Change]]:
    """Write a load; return it, and its changes as a client gets them, when they are in the files, too."""
    configure(sluice, folder, source, schema, **PB | settings)
    load = Load(source, schema, count=40)
    with sluice.reading():
        with load:
            load.finish()
        changes = taken(sluice.client(7), "finished")
        eventually(lambda: rows(folder) == load.changes() + 1, "the end in a whole file")
    return load, changes


def contents(folder: Path) -> list[str]:
    """The files, as far as they are text."""
    indexes = [json.loads(it.read_text()) for it in sorted(folder.glob("*.index"))]
    return [plain(folder / it["file"]).decode(errors="replace") for it in indexes]


def rows(folder: Path) -> int:
    """How many rows whole files have."""
    return sum(json.loads(it.read_text())["rows"] for it in folder.glob("*.index"))


def plain(path: Path) -> bytes:
    return subprocess.run(["zstd", "-dcf", path], capture_output=True, check=True).stdout


def test_a_destination_reads_files_with_the_places_of_their_source(
    sluice: Sluice, mariadb118: Server, database: Database, tmp_path: Path
) -> None:
    schema, folder = database(mariadb118), tmp_path / "files"
    zstd = {"sluice__output__copy__compression": "zstd"}
    load, changes = write(sluice, folder, mariadb118, schema, **zstd)
    last = json.loads(max(folder.glob("*.index")).read_text())
    sluice.configure("again", sluice__instance__source="changes", sluice__instance__changes__folder=folder)
    with sluice:
        sluice.wait_running("again")
        again = taken(sluice.client(7, "again"), "finished")
        eventually(lambda: str(sluice.stored(7, "again")) == last["to"], lambda: (sluice.stored(7, "again"), last))
    assert places(again) == places(changes)[-len(again) :]  # the other client began at the oldest change
    assert sum(len(it.rows()) for it in again if it.table in load.TABLES) == load.changes()


def test_files_bring_a_dump_to_a_point_in_time(
    sluice: Sluice, mariadb118: Server, mysql80: Server, database: Database, tmp_path: Path
) -> None:
    schema, folder = database(mariadb118), tmp_path / "files"
    mariadb118.query(f"CREATE TABLE {schema}.goods (id INT PRIMARY KEY, name VARCHAR(20))")
    configure(sluice, folder, mariadb118, schema, **PB)
    with sluice.reading():
        mariadb118.query(f"INSERT INTO {schema}.goods VALUES (1, 'before')")
        file, offset, *_ = mariadb118.query("SHOW MASTER STATUS")[0]
        dump = mariadb118.query(f"SELECT * FROM {schema}.goods")
        execute(
            mariadb118,
            [
                f"INSERT INTO {schema}.goods VALUES (2, 'after')",
                f"ALTER TABLE {schema}.goods ADD n INT DEFAULT 3",
                f"UPDATE {schema}.goods SET name = 'changed' WHERE id = 1",
            ],
        )
        time.sleep(1.1)  # times of MariaDB are whole seconds
        until = time.strftime("%Y-%m-%dT%H:%M:%S")
        wanted = mariadb118.query(f"SELECT * FROM {schema}.goods ORDER BY id")
        mariadb118.query(f"DELETE FROM {schema}.goods")
        mariadb118.query(f"CREATE TABLE {schema}.finished (id INT PRIMARY KEY)")
        eventually(lambda: any("finished" in it for it in contents(folder)), "the end in a whole file")
    mysql80.query(f"CREATE DATABASE {schema}")
    mysql80.query(f"CREATE TABLE {schema}.goods (id INT PRIMARY KEY, name VARCHAR(20))")
    for row in dump:
        mysql80.query(f"INSERT INTO {schema}.goods VALUES (%s, %s)", row)
    to = f"mysql://{mysql80.user}@{mysql80.host}:{mysql80.port}"
    command = ["replay", str(folder), "--to", to, "--after", f"{file}:{offset}", "--until", until, "--job", schema]
    for _ in range(2):  # a repetition changes nothing
        commands.run(*command, environ={"SLUICE_TARGET_PASSWORD": mysql80.password})
        assert mysql80.query(f"SELECT * FROM {schema}.goods ORDER BY id") == wanted
    mysql80.query(f"DROP DATABASE {schema}")


@pytest.mark.extended
def test_a_replay_that_is_killed_applies_each_transaction_once(
    sluice: Sluice, mariadb118: Server, mysql80: Server, database: Database, tmp_path: Path
) -> None:
    schema, folder = database(mariadb118), tmp_path / "files"
    load, _changes = write(sluice, folder, mariadb118, schema)
    mysql80.query(f"CREATE DATABASE {schema}")
    for table in (*load.TABLES, "finished"):
        columns = "id INT PRIMARY KEY, writer INT, n INT, v VARCHAR(500)"
        mysql80.query(f"CREATE TABLE {schema}.{table} ({columns}) CHARSET utf8mb4")
    to = f"mysql://{mysql80.user}@{mysql80.host}:{mysql80.port}"
    command = ["replay", str(folder), "--to", to, "--job", schema]
    environ = {"SLUICE_TARGET_PASSWORD": mysql80.password}
    for number in range(1, 6):
        with commands.Command(*command, environ=environ) as process:
            time.sleep(0.3 * number)
            process.kill()
    commands.run(*command, environ=environ, check=True)
    for table in load.TABLES:
        statement = f"SELECT * FROM {schema}.{table} ORDER BY id"
        assert mysql80.query(statement) == mariadb118.query(statement)
    mysql80.query(f"DROP DATABASE {schema}")
