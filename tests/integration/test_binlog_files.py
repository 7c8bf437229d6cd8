"""Binlog files in a folder as a source: what is delivered, where it goes on, and what it says of wrong ones."""

import asyncio
import itertools
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from sluice.instance.sources.files import dump
from sluice.instance.sources.files.charsets import CHARSETS
from sluice.instance.sources.files.config import FilesConfig
from sluice.instance.sources.files.dump import FileDump
from sluice.instance.sources.files.folder import MAGIC, Folder
from sluice.instance.sources.files.places import END, FolderFinder
from sluice.instance.sources.mysql.connection import Connection
from sluice.instance.sources.mysql.schema import charsets
from sluice.instance.sources.registry import examine
from sluice.protocol.canal.entry_pb2 import EntryType
from sluice.protocol.errors import ConfigError, SourceError
from sluice.protocol.position import Position
from sluice.store.cursor import Cursor
from sluice.store.ring import Flag, Kind, Ring
from sluice.verify.comparison import compare
from tests.conftest import Database
from tests.decoding import binlogs
from tests.delivery import end_of_binlog
from tests.reading import Reading, config, cursor, embedded, files_config, with_full_metadata
from tests.servers import Server
from tests.waiting import soon

EXTENDED = [pytest.param(it, marks=pytest.mark.extended) for it in ("mysql56", "mysql80", "mysql57", "mariadb1011")]
CAPTURED = "mariadb-11.8"
NAME, CLIENT = "example", 1001


@pytest.fixture(params=["mariadb118", "mysql97", *EXTENDED])
def source(request: pytest.FixtureRequest) -> Server:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Server)
    return found


@pytest.fixture(params=["mariadb118", "mysql97"])
def described(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server that writes full metadata."""
    yield from with_full_metadata(request.getfixturevalue(request.param))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with six files of a real server."""
    found = tmp_path / "files"
    found.mkdir()
    binlogs(CAPTURED, found)
    return found


def finder(configuration: FilesConfig) -> FolderFinder:
    return FolderFinder(Folder(configuration), configuration)


def rotate(source: Server) -> str:
    """Begin another binlog file; its name."""
    source.query("FLUSH BINARY LOGS")
    return end_of_binlog(source)[0]


def copy(source: Server, folder: Path, first: str) -> Path:
    """Copy the binlog files of a server, from one on, into a folder; the folder."""
    folder.mkdir(exist_ok=True)
    base, _, number = first.rpartition(".")
    for path in source.data.glob(f"{base}.[0-9]*"):
        if path.suffix[1:] >= number:
            shutil.copy(path, folder)
    return folder


def uuid_of(source: Server) -> str:
    """What positions name the server by, if that is not its server id."""
    return "" if source.mariadb else str(source.query("SELECT @@server_uuid")[0][0])


def write(source: Server, schema: str) -> None:
    """Transactions of several kinds, over three files."""
    source.query(
        "CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(20) CHARACTER SET latin1, n DECIMAL(10,2))", database=schema
    )
    source.query("INSERT INTO t VALUES (1, 'ä', 1.50), (2, NULL, -2)", database=schema)
    source.query("ALTER TABLE t ADD COLUMN at DATETIME(3) FIRST", database=schema)
    rotate(source)
    with source.connect(database=schema, autocommit=False) as connection, connection.cursor() as statement:
        statement.execute("UPDATE t SET name = 'b', at = '2026-11-24 20:15:00.125' WHERE id = 1")
        statement.execute("DELETE FROM t WHERE id = 2")
        connection.commit()
        statement.execute("XA START 'x'")
        statement.execute("INSERT INTO t (id) VALUES (3)")
        statement.execute("XA END 'x'")
        statement.execute("XA PREPARE 'x'")
        statement.execute("XA COMMIT 'x'")
    rotate(source)
    source.query("INSERT INTO t (id, name) VALUES (4, 'last')", database=schema)


def test_the_same_comes_as_from_the_server_itself(source: Server, database: Database, tmp_path: Path) -> None:
    first = rotate(source)
    schema = database(source)
    write(source, schema)
    options: dict[str, Any] = {"filter_regex": rf"{schema}\..*"}
    with Reading(config(source, tmp_path / "a", master_journal_name=first, **options)) as reading:
        reading.wait_for(f"INSERT {schema}.t NULL,4,last,NULL")
        reading.wait(lambda: reading.lines()[-1] == "END")
        wanted, places = reading.entries(), reading.boundaries()
    files = copy(source, tmp_path / "files", first)
    with Reading(files_config(files, tmp_path / "b", server_uuid=uuid_of(source), **options)) as reading:
        reading.wait_for_end()
        assert reading.entries() == wanted
        assert reading.boundaries() == places
        reading.wait(lambda: reading.parser.status.behind == 0)


@pytest.mark.parametrize("name", ["mysql97", "mariadb118"])
def test_compressed_transactions_and_gtids_are_read(
    request: pytest.FixtureRequest, database: Database, tmp_path: Path, name: str
) -> None:
    source: Server = request.getfixturevalue(name)
    first = rotate(source)
    schema = database(source)
    source.query("CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(2000))", database=schema)
    place = source.query("SELECT @@global.gtid_binlog_pos" if source.mariadb else "SELECT @@global.gtid_executed")[0][0]
    switch = "GLOBAL log_bin_compress" if source.mariadb else "SESSION binlog_transaction_compression"
    with source.connect(database=schema) as connection, connection.cursor() as statement:
        statement.execute(f"SET {switch} = ON")
        statement.execute("INSERT INTO t VALUES (1, REPEAT('a', 2000))")
        if source.mariadb:
            statement.execute(f"SET {switch} = OFF")
    rotate(source)
    source.query("INSERT INTO t VALUES (2, 'b')", database=schema)
    files = copy(source, tmp_path / "files", first)
    options = {"filter_regex": rf"{schema}\..*", "gtid_on": True}
    with Reading(files_config(files, tmp_path, **options)) as reading:
        reading.wait_for_end()
        assert [it[-4:] for it in reading.rows()] == ["aaaa", " 2,b"]
        everything = reading.entries()
    assert everything[-1].header.gtid
    after = files_config(
        files, tmp_path / "b", tsdb_dir=tmp_path / NAME, master_gtid=place.replace("\n", ""), **options
    )
    with Reading(after) as reading:
        reading.wait_for_end()
        found = reading.entries()
        assert found == everything[len(everything) - len(found) :]
        assert [it[-4:] for it in reading.rows()] == ["aaaa", " 2,b"]


@pytest.mark.parametrize("end", ["XA COMMIT 'c' ONE PHASE", "XA PREPARE 'c'"])
def test_how_an_xa_transaction_ends_that_is_larger_than_what_is_looked_ahead_is_found_in_the_files(
    mysql97: Server, database: Database, tmp_path: Path, end: str
) -> None:
    first = rotate(mysql97)
    schema = database(mysql97)
    mysql97.query("CREATE TABLE v (v LONGTEXT)", database=schema)
    inserts = [f"INSERT INTO v VALUES (REPEAT('{number % 10}', 1000000))" for number in range(18)]
    with mysql97.connect(database=schema) as connection, connection.cursor() as statement:
        for text in ("XA START 'c'", *inserts, "XA END 'c'", end):
            statement.execute(text)
    if "PREPARE" in end:
        mysql97.query("XA COMMIT 'c'")
    files = copy(mysql97, tmp_path / "files", first)
    with Reading(files_config(files, tmp_path, filter_regex=rf"{schema}\..*"), ring=Ring(1024, 64 << 20)) as reading:
        reading.wait_for_end()
        rows = [it for it in reading.entries() if it.header.tableName == "v" and it.entryType == EntryType.ROWDATA]
        marks = {prop.value for it in rows for prop in it.header.props if prop.key == "sluice.xa"}
    assert len(rows) == 1 + len(inserts)
    assert marks == {("one-phase" if "ONE PHASE" in end else "committed") + " X'63',X'',1"}


@pytest.fixture
def full_mysql97(mysql97: Server) -> Iterator[Server]:
    yield from with_full_metadata(mysql97)


def insert_as(source: Server, schema: str, gtid: str, number: int) -> None:
    """Insert a row in a transaction with a GTID of its own."""
    with source.connect(database=schema) as connection, connection.cursor() as statement:
        statement.execute(f"SET gtid_next = '{gtid}'")
        statement.execute(f"INSERT INTO t VALUES ({number})")
        statement.execute("SET gtid_next = AUTOMATIC")


def test_it_begins_after_a_gtid_set_with_holes_where_the_files_had_just_these(
    full_mysql97: Server, database: Database, tmp_path: Path
) -> None:
    source, schema, other = full_mysql97, database(full_mysql97), "11111111-2222-3333-4444-555555555555"
    source.query("CREATE TABLE t (id INT PRIMARY KEY)", database=schema)
    first = rotate(source)
    executed = str(source.query("SELECT @@global.gtid_executed")[0][0]).replace("\n", "")
    for row, number in enumerate((9, 3, 4, 7), 1):
        insert_as(source, schema, f"{other}:{number}", row)
    source.query("INSERT INTO t VALUES (5)", database=schema)
    files = copy(source, tmp_path / "files", first)
    options: dict[str, Any] = {"filter_regex": rf"{schema}\..*", "gtid_on": True, "tsdb_enable": False}
    rows = [f"INSERT {schema}.t {number}" for number in range(1, 6)]
    for count, holes in enumerate(("", ":9", ":3:9", ":3-4:9", ":3-4:7:9")):
        place = f"{executed},{other}{holes}" if holes else executed
        with Reading(files_config(files, tmp_path / str(count), master_gtid=place, **options)) as reading:
            reading.wait_for_end()
            assert reading.rows() == rows[count:]
    options["master_gtid"] = f"{executed},{other}:3-4"
    assert "is not what" in complaint(files, tmp_path / "none", **options)


def test_full_metadata_names_the_columns_wherever_it_begins(
    described: Server, database: Database, tmp_path: Path
) -> None:
    schema = database(described)
    described.query("CREATE TABLE t (id INT PRIMARY KEY, ä ENUM('x', 'y') CHARACTER SET gbk)", database=schema)
    first = rotate(described)
    described.query("INSERT INTO t VALUES (1, 'y')", database=schema)
    files = copy(described, tmp_path / "files", first)
    with Reading(files_config(files, tmp_path, filter_regex=rf"{schema}\..*", tsdb_enable=False)) as reading:
        assert f"INSERT {schema}.t 1,y" in reading.wait_for_end() or f"INSERT {schema}.t 1,2" in reading.lines()


def test_a_file_of_sql_says_what_the_tables_were_where_the_files_begin(
    described: Server, database: Database, tmp_path: Path
) -> None:
    """With full metadata that is of use for UUID, INET4 and INET6; `test_without_names` is without."""
    schema = database(described)
    type_ = "UUID" if described.mariadb else "BINARY(16)"
    described.query(f"CREATE TABLE t (u {type_} COMMENT 'it''s; not the end')", database=schema)
    described.query("CREATE TABLE other (id INT)", database=schema)
    (_, made), *_ = described.query("SHOW CREATE TABLE t", database=schema)
    given = tmp_path / "tables.sql"
    given.write_text(f"-- it's of a dump\nUSE `{schema}`;\n/*!40101 SET names utf8 */;\n{made};\nDROP TABLE x;\n")
    first = rotate(described)
    value = "12345678-1234-1234-8234-123456789abc"
    literal = f"'{value}'" if described.mariadb else f"UNHEX('{value.replace('-', '')}')"
    for statement in (f"INSERT INTO t VALUES ({literal})", "RENAME TABLE t TO x", f"INSERT INTO x VALUES ({literal})"):
        described.query(statement, database=schema)
    files = copy(described, tmp_path / "files", first)
    options = {"filter_regex": rf"{schema}\..*"}
    with Reading(files_config(files, tmp_path / "a", schema_file=given, **options)) as reading:
        reading.wait_for_end()
        found, flags = reading.rows(), flags_of(reading)
    with Reading(files_config(files, tmp_path / "b", **options)) as reading:
        reading.wait_for_end()
        unsaid, doubts = reading.rows(), flags_of(reading)
    assert flags == [False, False]
    if described.mariadb:
        assert found == [f"INSERT {schema}.{name} {value}" for name in ("t", "x")]
        assert unsaid != found
        assert doubts == [True, True]
    else:
        assert (unsaid, doubts) == (found, flags)


def flags_of(reading: Reading) -> list[bool]:
    """Of each row's entry: whether its columns may be others than those it was read with."""
    slots = [reading.ring.slot(number) for number in range(reading.ring.first, reading.ring.next)]
    return [bool(slot.flags & Flag.FUTURE_SCHEMA) for slot in slots if slot.kind == Kind.ROW_DATA]


@pytest.mark.parametrize(
    ("sql", "text"),
    [
        ("CREATE TABLE t (id INT);", "no database is named before t: dump it with --databases"),
        ("USE shop; CREATE TABLE t (id STRANGE);", "the CREATE TABLE of shop.t is not understood: take it out"),
        ("INSERT INTO shop.t VALUES (1);", "it has no CREATE TABLE: dump it with --no-data --databases"),
        (None, "No such file or directory"),
    ],
)
def test_a_file_of_sql_that_does_not_say_it_is_refused(
    folder: Path, tmp_path: Path, sql: str | None, text: str
) -> None:
    given = tmp_path / "tables.sql"
    if sql is not None:
        given.write_text(sql)
    with Reading(files_config(folder, tmp_path / "a", schema_file=given)) as reading:
        assert f"{given} (sluice.instance.files.schema): {text}" in reading.wait_for_error()


def test_without_names_it_stops_and_says_what_helps(mysql97: Server, database: Database, tmp_path: Path) -> None:
    schema = database(mysql97)
    mysql97.query("CREATE TABLE t (id INT PRIMARY KEY)", database=schema)
    first = rotate(mysql97)
    mysql97.query("INSERT INTO t VALUES (1)", database=schema)
    files = copy(mysql97, tmp_path / "files", first)
    with Reading(files_config(files, tmp_path, filter_regex=rf"{schema}\..*")) as reading:
        text = reading.wait_for_error()
    assert f"the columns of {schema}.t at" in text
    assert "Begin at a file before its CREATE TABLE, or bring the history" in text
    assert "or give its CREATE TABLE (sluice.instance.files.schema), or filter the table out" in text
    given = tmp_path / "tables.sql"
    given.write_text(f"CREATE DATABASE {schema}; USE {schema}; CREATE TABLE t (id INT PRIMARY KEY);")
    with Reading(files_config(files, tmp_path, filter_regex=rf"{schema}\..*", schema_file=given)) as reading:
        reading.wait_for_end()
        assert reading.rows() == [f"INSERT {schema}.t 1"]


def test_the_history_of_a_destination_that_read_the_server_has_the_names(
    mysql97: Server, database: Database, tmp_path: Path
) -> None:
    schema = database(mysql97)
    mysql97.query("CREATE TABLE t (id INT PRIMARY KEY)", database=schema)
    first = rotate(mysql97)
    options = {"filter_regex": rf"{schema}\..*"}
    with Reading(config(mysql97, tmp_path, **options)) as reading:
        reading.wait(lambda: reading.running)
        for number in (1, 2):
            mysql97.query(f"INSERT INTO t VALUES ({number})", database=schema)
            reading.wait_for(f"INSERT {schema}.t {number}")
        place = cursor(reading.boundaries()[0])
    files = copy(mysql97, tmp_path / "files", first)
    with Reading(files_config(files, tmp_path, server_uuid=uuid_of(mysql97), **options), start=place) as reading:
        assert reading.wait_for_end() == ["BEGIN", f"INSERT {schema}.t 2", "END"]
        assert [it.name for it in reading.parser.columns(schema, "t")] == ["id"]
        assert (schema, "t") in reading.parser.tables()


def test_each_collation_has_the_character_set_that_servers_say(source: Server) -> None:
    with Connection(config(source)) as connection:
        known = charsets(connection)
    assert {it: name.replace("utf8mb3", "utf8") for it, name in known.items()} == {
        it: CHARSETS[it].replace("utf8mb3", "utf8") for it in known
    }


# --- where it begins, and where it ends -------------------------------------------------------------------------------


def test_it_begins_with_the_oldest_file_at_a_place_or_at_a_time(folder: Path, tmp_path: Path) -> None:
    with Reading(files_config(folder, tmp_path)) as reading:
        lines = reading.wait_for_end()
        boundaries = reading.boundaries()
    assert lines[0] == "QUERY w."
    middle = next(it for it in boundaries if it.file == "mysql-bin.000002")
    options = {"master_journal_name": middle.file, "master_position": middle.begin}
    with Reading(files_config(folder, tmp_path, **options)) as reading:
        reading.wait_for_end()
        assert reading.boundaries() == [it for it in boundaries if it > middle]
    second = middle.created * 1000
    with Reading(files_config(folder, tmp_path, master_timestamp=second)) as reading:
        reading.wait_for_end()
        assert reading.boundaries()[-1] == boundaries[-1]
        assert len(reading.boundaries()) <= len(boundaries)
    with Reading(files_config(folder, tmp_path, master_timestamp=1000)) as reading:
        assert reading.wait_for_end() == lines


def test_it_waits_for_more_bytes_and_more_files(folder: Path, tmp_path: Path) -> None:
    with Reading(files_config(folder, tmp_path / "a")) as reading:
        lines = reading.wait_for_end()
    growing = tmp_path / "growing"
    growing.mkdir()
    paths = sorted(folder.iterdir())
    pieces = [
        (path.name, data[at : at + 10_007])
        for path in paths
        for data in [path.read_bytes()]
        for at in range(0, len(data), 10_007)
    ]
    name, data = pieces[0]
    (growing / name).write_bytes(data)
    with Reading(files_config(growing, tmp_path / "b", at_end="wait")) as reading:
        reading.wait(lambda: reading.running)
        for name, data in pieces[1:]:
            with (growing / name).open("ab") as file:
                file.write(data)
        reading.wait(lambda: len(reading.lines()) == len(lines))
        assert reading.lines() == lines
        assert reading.running
        assert {state for state, _ in reading.states} <= {"running", "error"}


def test_it_goes_on_in_a_longer_copy_that_takes_the_place_of_a_file(folder: Path, tmp_path: Path) -> None:
    paths_of(folder)[-1].unlink()
    last = paths_of(folder)[-1]
    with Reading(files_config(folder, tmp_path / "a")) as reading:
        lines = reading.wait_for_end()
    whole = last.read_bytes()
    last.write_bytes(whole[: events(last)[4] + 5])
    with Reading(files_config(folder, tmp_path / "b", at_end="wait")) as reading:
        reading.wait(lambda: reading.parser.status.behind == 0)
        (tmp_path / "copy").write_bytes(whole)
        (tmp_path / "copy").rename(last)
        reading.wait(lambda: len(reading.lines()) == len(lines))
        assert reading.lines() == lines
        assert not any(state == "error" for state, _ in reading.states)


def test_a_file_that_grows_just_before_the_next_one_appears_is_read_to_its_end(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Reading(files_config(folder, tmp_path / "a")) as reading:
        lines = reading.wait_for_end()
    growing, following = paths_of(folder)[1:3]
    whole = growing.read_bytes()
    cut(growing, events(growing)[4])
    moved = [path.rename(tmp_path / path.name) for path in paths_of(folder)[2:]]
    later, looks = FileDump._later, itertools.count()

    def grow(dump: FileDump) -> list[str]:
        if dump.place[0] == growing.name and next(looks) == 2:
            growing.write_bytes(whole)
            for path in moved:
                path.rename(folder / path.name)
        return later(dump)

    monkeypatch.setattr(FileDump, "_later", grow)
    with Reading(files_config(folder, tmp_path / "b", at_end="wait")) as reading:
        reading.wait(lambda: len(reading.lines()) >= len(lines))
        assert reading.lines() == lines
        assert not any(state == "error" for state, _ in reading.states)
    assert following.exists()


def test_without_gtids_a_file_without_an_end_may_still_grow_for_a_while(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    growing = paths_of(folder)[0]
    with Reading(files_config(folder, tmp_path / "a")) as reading:
        lines = reading.wait_for_end()
        place = [it for it in reading.boundaries() if it.file == growing.name][-2]
    monkeypatch.setattr(FolderFinder, "check_follower", lambda *_: False)
    whole, rotation = growing.read_bytes(), events(growing)[-2]
    cut(growing, place.begin)
    with Reading(files_config(folder, tmp_path / "b", at_end="wait")) as reading:
        reading.wait(lambda: place in reading.boundaries())
        time.sleep(1.0)
        assert reading.boundaries()[-1] == place
        with growing.open("ab") as file:
            file.write(whole[place.begin :])
        reading.wait(lambda: len(reading.lines()) >= len(lines))
        assert reading.lines() == lines
    cut(growing, rotation)
    monkeypatch.setattr(dump, "QUIET", 0.5)
    with Reading(files_config(folder, tmp_path / "c", at_end="wait")) as reading:
        reading.wait(lambda: len(reading.lines()) >= len(lines))
        assert reading.lines() == lines


@pytest.mark.parametrize("kind", ["gtids", "time"])
def test_what_comes_while_the_place_is_looked_for_comes_after_it(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    growing, *others = paths_of(folder)
    for path in others:
        path.unlink()
    whole = growing.read_bytes()
    with Reading(files_config(folder, tmp_path / "a")) as reading:
        reading.wait_for_end()
        place = reading.boundaries()[-2].begin
    cut(growing, place)
    configuration = files_config(folder, tmp_path)
    executed = str(finder(configuration)._executed(growing.name, END))
    options = {"gtid_on": True, "master_gtid": executed} if kind == "gtids" else {"master_timestamp": 1 << 42}
    read = FolderFinder._events

    def grow(self: FolderFinder, *arguments: Any) -> Iterator[Any]:
        yield from read(self, *arguments)
        growing.write_bytes(whole)

    monkeypatch.setattr(FolderFinder, "_events", grow)
    start = finder(files_config(folder, tmp_path, **options)).find(None)
    assert start.position is not None
    assert (start.position.file, start.position.begin) == (growing.name, place)


def test_the_end_is_where_the_last_whole_transaction_ends(folder: Path, tmp_path: Path) -> None:
    path, *others = paths_of(folder)
    for other in others:
        other.unlink()
    whole, starts = path.read_bytes(), events(path)
    configuration = files_config(folder, tmp_path, at_end="wait")
    with Reading(files_config(folder, tmp_path)) as reading:
        reading.wait_for_end()
        *_, before, last = reading.boundaries()
    cut(path, last.begin - 5)
    with Reading(configuration) as reading:
        reading.wait(lambda: before in reading.boundaries())
        end = reading.parser.end()
        assert before <= end < last
        assert end.begin in starts
        (folder / f"{path.stem}.000002").touch()
        assert reading.parser.end() == end
        path.write_bytes(whole)
        reading.wait(lambda: last in reading.boundaries())
        assert reading.parser.end() >= last
        path.write_bytes(whole[: before.begin])
        assert "has been cut to" in reading.wait_for_error()
        with suppress(SourceError):  # it may still have looked for more
            reading.parser.end()
        assert reading.parser.end() <= before


async def test_the_end_can_be_asked_for_in_the_middle_of_a_transaction(folder: Path, tmp_path: Path) -> None:
    path, *others = paths_of(folder)
    for other in others:
        other.unlink()
    with Reading(files_config(folder, tmp_path / "a")) as reading:
        reading.wait_for_end()
        *_, before, last = reading.boundaries()
    inside = [it for it in events(path) if before.begin < it < last.begin][-1]
    cut(path, inside)
    async with embedded(files_config(folder, tmp_path / "b", at_end="wait", memory_batch_mode="ITEMSIZE")) as server:
        await server.subscribe(NAME, CLIENT)
        await soon(lambda: server.destination_status(NAME).last >= str(before))
        await asyncio.sleep(0.5)
        end = Position.parse(str(await server.latest(NAME)))
        assert before <= end.transaction <= last


@pytest.mark.parametrize(
    "lacks", ["nothing", *(pytest.param(it, marks=pytest.mark.extended) for it in ("gtids", "some"))]
)
def test_gtids_prove_that_a_file_is_whole_only_if_each_transaction_has_one(tmp_path: Path, lacks: str) -> None:
    with Server("mysql97") as own:
        own.query("CREATE DATABASE own")
        own.query("CREATE TABLE own.t (id INT PRIMARY KEY)")
        if lacks != "nothing":
            for mode in ("ON_PERMISSIVE", "OFF_PERMISSIVE", *(["OFF"] if lacks == "gtids" else [])):
                own.query(f"SET GLOBAL gtid_mode = {mode}")
        first = rotate(own)
        own.query("INSERT INTO own.t VALUES (1)")
        follower = rotate(own)
        files = copy(own, tmp_path / "files", first)
    configuration = files_config(files, tmp_path)
    assert finder(configuration).check_follower(first, follower) is (lacks == "nothing")


async def test_a_destination_that_has_ended_gives_what_is_left_and_stays_there(folder: Path, tmp_path: Path) -> None:
    configuration, size = files_config(folder, tmp_path), paths_of(folder)[-1].stat().st_size
    async with embedded(configuration) as server:
        await server.subscribe(NAME, CLIENT)
        batch = await server.get_without_ack(NAME, CLIENT, batch_size=10_000, timeout=20)
        await soon(lambda: server.destination_status(NAME).state == "finished")
        await server.ack(NAME, CLIENT, batch_id=batch.batch_id)
        while (batch := await server.get_without_ack(NAME, CLIENT, timeout=0.2)).entries:
            await server.ack(NAME, CLIENT, batch_id=batch.batch_id)
        end = server.status(NAME, CLIENT).position
    assert end.endswith(f":{size}:0")
    async with embedded(configuration) as server:  # again, from its cursor
        await soon(lambda: server.destination_status(NAME).state == "finished")
        assert not (await server.get_without_ack(NAME, CLIENT, timeout=0.2)).entries
        assert server.status(NAME, CLIENT).position == end


async def test_a_client_begins_with_the_oldest_file_or_at_a_time(folder: Path, tmp_path: Path) -> None:
    configuration = files_config(folder, tmp_path)
    async with embedded(configuration) as server:
        await server.subscribe(NAME, CLIENT, start="latest")
        await soon(lambda: server.destination_status(NAME).state == "finished")
        await server.seek(NAME, CLIENT, "oldest")
        first = Position.parse(server.status(NAME, CLIENT).position)
        assert (first.file, first.begin) == ("mysql-bin.000001", 4)
        await server.seek(NAME, CLIENT, {"timestamp": (first.created + 1_000_000) * 1000})
        batch = await server.get_without_ack(NAME, CLIENT, timeout=0)
        assert not batch.entries, "nothing is so late"


CONSUMER = """
import asyncio, json, sys
from pathlib import Path
from sluice.instance.sources.files.config import FilesConfig
from sluice.instance.sources.registry import make_parser
from sluice.protocol.canal.rows import decode_rows
from sluice.server.embedded import EmbeddedServer

folder, data, schema = sys.argv[1:]
config = FilesConfig(
    destination="example", folder=folder, file_data_dir=data, filter_regex=schema + "[.].*", at_end="end",
    file_flush_period=20,
)

async def main():
    server = EmbeddedServer(lambda destination: config, make_parser)
    await server.start("example")
    await server.subscribe("example", 1001)
    while True:
        batch = await server.get_without_ack("example", 1001, batch_size=4, timeout=10)
        rows = decode_rows(b"".join(batch.slices)) if batch.entries else []
        print(json.dumps([row.after["id"] for row in rows if row.after]), flush=True)
        if batch.entries:
            await server.ack("example", 1001, batch_id=batch.batch_id)
        elif server.destination_status("example").state == "finished":
            return

asyncio.run(main())
"""


@pytest.mark.extended
def test_nothing_is_missing_after_kills(mariadb118: Server, database: Database, tmp_path: Path) -> None:
    first, schema, count = rotate(mariadb118), database(mariadb118), 400
    with mariadb118.connect(database=schema) as connection, connection.cursor() as statement:
        statement.execute("CREATE TABLE t (id INT PRIMARY KEY)")
        for number in range(count):
            statement.execute(f"INSERT INTO t VALUES ({number})")
    files = copy(mariadb118, tmp_path / "files", first)
    command = [sys.executable, "-c", CONSUMER, str(files), str(tmp_path), schema]
    chance, lives = random.Random(7), 0
    found: list[int] = []
    while count - 1 not in found:
        lives += 1
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            left = chance.randrange(3, 20) if lives < 4 else count
            seen = [it for line in itertools.islice(process.stdout, left) for it in json.loads(line)]
            process.kill()
        assert seen == list(range(seen[0], seen[-1] + 1))
        assert seen[0] <= (found[-1] + 1 if found else 0)
        found += seen
    assert sorted(set(found)) == list(range(count))
    assert lives > 2


def test_it_goes_on_at_every_boundary(folder: Path, tmp_path: Path) -> None:
    with Reading(files_config(folder, tmp_path)) as reading:
        reading.wait_for_end()
        entries, boundaries = reading.entries(), reading.boundaries()
    for place in boundaries[:: len(boundaries) // 7]:
        with Reading(files_config(folder, tmp_path), start=cursor(place)) as reading:
            reading.wait_for_end()
            found = reading.entries()
            assert found == entries[len(entries) - len(found) :]
            assert reading.boundaries() == [it for it in boundaries if it > place]


# --- files that are wrong ---------------------------------------------------------------------------------------------


def paths_of(folder: Path) -> Sequence[Path]:
    return sorted(folder.iterdir())


def cut(path: Path, size: int) -> None:
    os.truncate(path, size)


def events(path: Path) -> list[int]:
    """Where the events of a file begin, and where the last one ends."""
    data, found = path.read_bytes(), [len(MAGIC)]
    while found[-1] < len(data):
        found.append(found[-1] + int.from_bytes(data[found[-1] + 9 : found[-1] + 13], "little"))
    return found


def complaint(folder: Path, tmp_path: Path, **options: Any) -> str:
    with Reading(files_config(folder, tmp_path, **options)) as reading:
        return reading.wait_for_error()


def test_a_torn_tail_is_an_error_where_nothing_more_comes(folder: Path, tmp_path: Path) -> None:
    path = paths_of(folder)[-1]
    place = events(path)[-2]
    cut(path, place + 25)
    text = complaint(folder, tmp_path)
    assert (
        text
        == f"{path}, offset {place}: the file ends inside an event, after 25 bytes of it: it is not copied as a whole"
    )


def test_a_file_that_is_cut_before_the_next_one_is_an_error(folder: Path, tmp_path: Path) -> None:
    path = paths_of(folder)[1]
    place = events(path)[-3]
    cut(path, place + 1)
    text = complaint(folder, tmp_path, at_end="wait")
    assert text.startswith(f"{path}, offset {place}: the file ends inside an event, after 1 bytes of it")


def test_whole_events_that_are_missing_at_the_end_of_a_file_show_by_the_gtids(folder: Path, tmp_path: Path) -> None:
    path, follower = paths_of(folder)[1:3]
    begin_of_transaction, rotation = (events(path)[it] for it in (4, -2))
    cut(path, rotation)  # as if the server had been killed
    with Reading(files_config(folder, tmp_path / "a")) as reading:
        reading.wait_for_end()
    cut(path, begin_of_transaction)
    text = complaint(folder, tmp_path / "b")
    assert text.startswith(f"{path} ends after the GTIDs ")
    assert f"and {follower.name} begins after" in text


def test_the_last_file_must_not_end_inside_a_transaction(folder: Path, tmp_path: Path) -> None:
    paths_of(folder)[-1].unlink()
    path = paths_of(folder)[-1]
    begin, end = (events(path)[it] for it in (3, -3))
    cut(path, end)
    text = complaint(folder, tmp_path)
    assert text.startswith(f"{path}, offset {end}: the last file ends inside the transaction that begins at {begin}")


def test_a_gap_in_the_numbering_names_both_ends(folder: Path, tmp_path: Path) -> None:
    paths = paths_of(folder)
    size = paths[1].stat().st_size
    paths[2].rename(tmp_path / "kept")
    with Reading(files_config(folder, tmp_path)) as reading:
        text = reading.wait_for_error()
        assert text.startswith(f"{paths[1]}, offset {size}: the file ends, and {paths[3].name} is the next one")
        (tmp_path / "kept").rename(paths[2])
        reading.wait(lambda: reading.states[-1] == ("finished", ""))


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"not a binlog at all", "offset 0: it is not a binlog: it does not begin with FE 62 69 6E"),
        (b"\xfdbin" + bytes(600), "offset 0: the file is encrypted by MySQL (binlog_encryption)"),
        (b"", "offset 0: the file ends before its first event: it is not copied yet"),
        (MAGIC + bytes(100), "offset 4: the binlog does not begin with its description: damaged?"),
    ],
)
def test_a_file_that_is_no_binlog_is_named(folder: Path, tmp_path: Path, data: bytes, text: str) -> None:
    path = paths_of(folder)[1]
    path.write_bytes(data)
    assert complaint(folder, tmp_path).startswith(f"{path}, {text}")


def changed(path: Path, at: int, value: bytes) -> None:
    data = bytearray(path.read_bytes())
    data[at : at + len(value)] = value
    path.write_bytes(data)


def test_a_file_that_mariadb_encrypted_is_named(folder: Path, tmp_path: Path) -> None:
    path = paths_of(folder)[0]
    place = events(path)[1]
    changed(path, place + 4, bytes([164]))
    assert complaint(folder, tmp_path).startswith(f"{path}, offset {place}: the file is encrypted by MariaDB")


def test_a_relay_log_is_refused(folder: Path, tmp_path: Path) -> None:
    path = paths_of(folder)[0]
    changed(path, 4 + 17, b"\x40")
    assert complaint(folder, tmp_path).startswith(f"{path}, offset 4: it is a relay log of a replica")


def test_a_file_of_another_server_is_refused(folder: Path, tmp_path: Path) -> None:
    path = paths_of(folder)[0]
    changed(path, 4 + 5, (4711).to_bytes(4, "little"))
    text = complaint(folder, tmp_path)
    assert text.startswith(f"{path}, offset 4: its server id is 4711, that of the last file is ")


def test_a_damaged_event_is_named_with_its_place(folder: Path, tmp_path: Path) -> None:
    path = paths_of(folder)[0]
    place = events(path)[10]
    changed(path, place + 19, b"\xff\xff\xff")
    text = complaint(folder, tmp_path)
    assert "the checksum of an event does not fit" in text
    assert f"{path.name}:{place}" in text


@pytest.mark.parametrize(
    ("size", "text"), [(7, "an event of 7 bytes, which is less than a header"), (1 << 31, "more than")]
)
def test_a_damaged_size_is_named_with_its_place(folder: Path, tmp_path: Path, size: int, text: str) -> None:
    path = paths_of(folder)[0]
    place = events(path)[10]
    changed(path, place + 9, size.to_bytes(4, "little"))
    found = complaint(folder, tmp_path)
    assert found.startswith(f"{path}, offset {place}: an event of {size} bytes")
    assert text in found


def test_a_file_that_is_removed_while_it_is_read_is_named(folder: Path, tmp_path: Path) -> None:
    for path in paths_of(folder)[1:]:
        path.unlink()
    (path,) = paths_of(folder)
    (folder / "mysql-bin.000000").write_bytes(path.read_bytes())
    with Reading(files_config(folder, tmp_path, at_end="wait", master_journal_name=path.name)) as reading:
        reading.wait(lambda: reading.parser.status.behind == 0)
        size = path.stat().st_size
        path.unlink()
        assert reading.wait_for_error() == f"{path}, offset {size}: the file was removed while it was read"


def test_a_folder_with_several_binlogs_asks_which(folder: Path, tmp_path: Path) -> None:
    shutil.copy(paths_of(folder)[0], folder / "relay-bin.000001")
    (folder / "mysql-bin.index").write_text("./mysql-bin.000001\n")
    (folder / "ib_logfile.0").write_bytes(bytes(100))
    text = complaint(folder, tmp_path)
    assert "the files of several binlogs: mysql-bin, relay-bin. Set sluice.instance.files.name" in text
    with Reading(files_config(folder, tmp_path, name="mysql-bin")) as reading:
        reading.wait_for_end()


@pytest.mark.parametrize("name", ["", "other-bin"])
def test_a_folder_without_files_says_so(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    text = complaint(tmp_path / "empty", tmp_path, name=name)
    assert text.startswith(f"{tmp_path / 'empty'} has no binlog file")
    assert complaint(tmp_path / "none", tmp_path) == f"{tmp_path / 'none'} cannot be read: No such file or directory"


def test_a_place_that_the_folder_does_not_have_is_refused(folder: Path, tmp_path: Path) -> None:
    with Reading(files_config(folder, tmp_path)) as reading:
        reading.wait_for_end()
        boundaries = reading.boundaries()
    paths_of(folder)[0].unlink()
    with Reading(files_config(folder, tmp_path), start=cursor(boundaries[0])) as reading:
        assert "has purged the binlog at mysql-bin.000001" in reading.wait_for_error()
        assert isinstance(reading.parser.failure, SourceError)
    other = Position(boundaries[-1].source, boundaries[-1].file, 7, boundaries[-1].begin, 0)
    with Reading(files_config(folder, tmp_path), start=Cursor.at(other)) as reading:
        assert "was created at" in reading.wait_for_error()


# --- what commands ask ------------------------------------------------------------------------------------------------


def test_commands_ask_the_folder(folder: Path, tmp_path: Path) -> None:
    configuration = files_config(folder, tmp_path)
    with examine(configuration) as asked:
        asked.check(is_replaced=False)
        assert asked.summary().startswith(f"binlog files in {folder}, of MariaDB 11.8")
        assert asked.find(None) == "at mysql-bin.000001:4"
        assert asked.tables() == []
    with pytest.raises(ConfigError, match="cannot be compared with another decoder"):
        compare(configuration, None, None, lambda *_: None)
    changed(paths_of(folder)[2], 0, b"x")
    with examine(configuration) as asked, pytest.raises(SourceError, match="is not a binlog"):
        asked.check(is_replaced=False)
