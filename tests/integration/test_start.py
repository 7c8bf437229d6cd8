"""Where a destination begins to read, and what it refuses to begin at."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sluice.instance.sources.mysql.connection import Connection
from sluice.instance.sources.mysql.start import Start, StartFinder
from sluice.protocol.errors import BadPositionError, PurgedError, SourceChangedError, SourceError
from sluice.protocol.position import Position
from sluice.store.cursor import Cursor
from tests.conftest import Database
from tests.reading import Reading, config, cursor
from tests.servers import CI, Server


@pytest.fixture(scope="module", params=[*CI, pytest.param("mysql56", marks=pytest.mark.extended)])
def own(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server of these tests, whose binlog may be purged and reset."""
    with Server(request.param) as server:
        yield server


@pytest.fixture
def fresh(own: Server) -> Server:
    """The same with nothing but an empty table in its binlog."""
    own.query("DROP DATABASE IF EXISTS shop")
    own.reset_binlog()
    own.query("CREATE DATABASE shop")
    own.query("CREATE TABLE shop.t (id INT)")
    return own


def find(server: Server, saved: Cursor | None = None, **options: Any) -> Start:
    configuration = config(server, **options)
    with Connection(configuration) as connection:
        return StartFinder(connection, configuration, lambda: Connection(configuration)).find(saved)


def rows(server: Server, folder: Path, last: int, start: Cursor | None = None, **options: Any) -> list[str]:
    """What a destination that starts like this delivers, up to the row `last`."""
    with Reading(config(server, folder, filter_regex=r"shop\.t", **options), start=start) as reading:
        reading.wait_for(f"INSERT shop.t {last}")
        return [line.split(" ")[2] for line in reading.rows()]


def insert(server: Server, *numbers: int) -> None:
    for number in numbers:
        server.query("INSERT INTO shop.t VALUES (%s)", (number,))


def end(server: Server) -> tuple[str, int]:
    with Connection(config(server)) as connection:
        return connection.end_of_binlog()[:2]


def test_without_anything_it_is_the_current_end(fresh: Server) -> None:
    insert(fresh, 1)
    start = find(fresh).dump
    assert (start.file, start.offset) == end(fresh)  # type: ignore[union-attr]


def test_a_configured_file_is_read_from_its_beginning(fresh: Server, tmp_path: Path) -> None:
    insert(fresh, 1)
    fresh.query("FLUSH BINARY LOGS")
    insert(fresh, 2, 3)
    assert rows(fresh, tmp_path, 3, master_journal_name=end(fresh)[0]) == ["2", "3"]


def test_a_configured_offset_may_be_inside_a_transaction(fresh: Server, tmp_path: Path) -> None:
    insert(fresh, 1)
    file, begin = end(fresh)
    fresh.script("BEGIN;\nINSERT INTO shop.t VALUES (2);\nINSERT INTO shop.t VALUES (3);\nCOMMIT;\n")
    shown = fresh.query(f"SHOW BINLOG EVENTS IN '{file}' FROM {begin}")
    assert rows(fresh, tmp_path, 3, master_journal_name=file, master_position=begin) == ["2", "3"]
    written = [offset for _, offset, kind, *_ in shown if kind.startswith("Write_rows")]
    assert rows(fresh, tmp_path, 3, master_journal_name=file, master_position=written[0]) == ["2", "3"]
    assert rows(fresh, tmp_path, 3, master_journal_name=file, master_position=written[1]) == ["3"]
    with pytest.raises(SourceError):
        find(fresh, master_journal_name=file, master_position=written[1] + 1)


@pytest.mark.parametrize(
    "own",
    ["mariadb118", *(pytest.param(it, marks=pytest.mark.extended) for it in ("mysql97", "mysql56"))],
    indirect=True,
)
def test_a_time_starts_before_the_first_transaction_at_or_after_it(fresh: Server, tmp_path: Path) -> None:
    times, first = {}, end(fresh)[0]
    for number in range(1, 5):
        ((times[number],),) = fresh.query("SELECT UNIX_TIMESTAMP()")
        insert(fresh, number)
        if number == 2:
            fresh.query("FLUSH BINARY LOGS")
        time.sleep(1.1)
    for number in range(1, 5):
        expected = [str(it) for it in range(number, 5)]
        assert rows(fresh, tmp_path, 4, master_timestamp=times[number] * 1000) == expected
        options = {"master_timestamp": times[number] * 1000, "master_journal_name": first}
        assert rows(fresh, tmp_path, 4, **options) == expected
    start = find(fresh, master_timestamp=(times[4] + 100) * 1000).dump
    assert (start.file, start.offset) == end(fresh)  # type: ignore[union-attr]


@pytest.mark.parametrize("own", ["mariadb118", "mysql97"], indirect=True)
def test_an_invalid_place_is_named_with_its_key(fresh: Server) -> None:
    insert(fresh, 1)
    file, offset = end(fresh)
    complaint = rf"{file}:{offset - 1} \(canal\.instance\.master\.position; SHOW BINLOG EVENTS"
    with pytest.raises(SourceError, match=complaint):
        find(fresh, master_journal_name=file, master_position=offset - 1)
    with pytest.raises(BadPositionError, match=r"canal\.instance\.master\.gtid: not a "):
        find(fresh, gtid_on=True, master_gtid="nonsense")


def test_a_purged_place_names_the_oldest_file_and_what_is_lost(fresh: Server, tmp_path: Path) -> None:
    insert(fresh, 1)
    with Reading(config(fresh, tmp_path)) as reading:
        reading.wait(lambda: reading.running)
        insert(fresh, 2)
        reading.wait(lambda: bool(reading.boundaries()))
        place = reading.boundaries()[-1]
    fresh.query("FLUSH BINARY LOGS")
    insert(fresh, 3)
    file = end(fresh)[0]
    fresh.purge_binlogs(file)
    with pytest.raises(PurgedError, match=rf"{place.file}:{place.begin}.*oldest file that it has is {file}"):
        find(fresh, cursor(place))
    with pytest.raises(PurgedError):
        find(fresh, master_timestamp=1000)
    with Reading(config(fresh, tmp_path), start=cursor(place)) as reading:
        reading.wait(lambda: "has purged" in reading.error)
        assert not reading.lines()
    options = config(fresh, tmp_path, auto_reset_latest_pos_mode=True)
    with Reading(options, start=cursor(place)) as reading:
        reading.wait(lambda: reading.running)
        insert(fresh, 4)
        reading.wait_for("INSERT shop.t 4")
        assert reading.rows() == ["INSERT shop.t 4"]


@pytest.mark.parametrize("own", ["mariadb118", "mysql97"], indirect=True)
def test_a_place_is_found_by_all_gtids_before_it(fresh: Server, tmp_path: Path) -> None:
    sets, places = [], []
    for number in (1, 2):
        insert(fresh, number)
        fresh.query("FLUSH BINARY LOGS")
        insert(fresh, 10 + number)
        with Connection(config(fresh)) as connection:
            sets.append(connection.end_of_binlog()[2])
        places.append(end(fresh)[:2])
    insert(fresh, 3)
    with Connection(config(fresh)) as connection:
        finder = StartFinder(connection, config(fresh), lambda: Connection(config(fresh)))
        for gtids, (file, offset) in zip(sets, places, strict=True):
            found = finder.at_text(gtids)
            assert found.position == finder.position_of(file, offset)
            assert found.gtid == gtids
        ahead = gtids.rpartition("-")[0] + "-9999"
        with pytest.raises(SourceError, match=r"is not what .* has up to any place"):
            finder.at_text(ahead)
        fresh.purge_binlogs(end(fresh)[0])
        with pytest.raises(PurgedError, match="has no file that begins at the GTID set"):
            finder.at_text(sets[0])


@pytest.mark.parametrize("own", ["mariadb118", "mysql97"], indirect=True)
def test_a_place_is_found_as_the_source_names_it(fresh: Server, tmp_path: Path) -> None:
    places = []
    for number in (1, 2):
        insert(fresh, number)
        places.append(end(fresh)[:2])
    (file, first), (_, second) = places
    with Connection(config(fresh)) as connection:
        finder = StartFinder(connection, config(fresh), lambda: Connection(config(fresh)))
        assert [finder.at_text(f"{file}:{offset}").position for offset in (first, second)] == [
            finder.position_of(file, offset) for offset in (first, second)
        ]
        for inside in (first + 1, second - 1):
            with pytest.raises(BadPositionError, match=rf"name {file}:{first} or {file}:{second}, between which it is"):
                finder.at_text(f"{file}:{inside}")
        for text in ("nowhere", f"{file}:", ":4", f"{file}:-1", f"{file}:{10**30}", f"{file}:1e3"):
            with pytest.raises(BadPositionError, match="nor FILE:OFFSET or a GTID set"):
                finder.at_text(text)
        with pytest.raises(SourceChangedError, match="ends at"):
            finder.at_text(f"{file}:{second + 10_000}")
        fresh.query("FLUSH BINARY LOGS")
        with pytest.raises(BadPositionError, match=rf"the last one of the file ends at {file}:{second}"):
            finder.at_text(f"{file}:{second + 5}")
        assert finder.at_text(f"{end(fresh)[0]}:4").position is not None
        fresh.purge_binlogs(end(fresh)[0])
        with pytest.raises(PurgedError):
            finder.at_text(f"{file}:{second}")


@pytest.mark.parametrize("own", ["mariadb118", "mysql97"], indirect=True)
def test_purged_gtids_are_purged(fresh: Server, tmp_path: Path) -> None:
    insert(fresh, 1)
    with Connection(config(fresh)) as connection:
        gtids = connection.end_of_binlog()[2]
    insert(fresh, 2)
    fresh.query("FLUSH BINARY LOGS")
    insert(fresh, 3)
    fresh.purge_binlogs(end(fresh)[0])
    with Reading(config(fresh, tmp_path, gtid_on=True, master_gtid=gtids)) as reading:
        reading.wait(lambda: bool(reading.error))
        assert isinstance(reading.parser.failure, PurgedError), reading.error


def test_a_history_that_was_reset_is_refused(fresh: Server, tmp_path: Path) -> None:
    with Reading(config(fresh, tmp_path)) as reading:
        reading.wait(lambda: reading.running)
        insert(fresh, 1)
        reading.wait(lambda: bool(reading.boundaries()))
        place = reading.boundaries()[-1]
    time.sleep(1.1)  # files are told apart by the second they were made in
    fresh.reset_binlog()
    with pytest.raises(SourceChangedError, match="reset"):
        find(fresh, cursor(place))  # the new file is not yet so long
    insert(fresh, *range(20))
    with Reading(config(fresh, tmp_path), start=cursor(place)) as reading:
        reading.wait(lambda: "was created at" in reading.error)
        assert not reading.lines()
    with pytest.raises(SourceChangedError, match="no binlog file"):
        find(fresh, cursor(replace(place, file="mysql-bin.000099")))


def test_a_position_of_another_source_is_refused(mariadb118: Server) -> None:
    file, offset = end(mariadb118)
    with pytest.raises(SourceChangedError, match="another source"):
        find(mariadb118, cursor(Position("elsewhere", file, 1, offset, 0)))


def test_a_position_of_another_source_is_carried_over_by_its_gtids(fresh: Server, tmp_path: Path) -> None:
    if fresh.name == "mysql56":  # without GTIDs by default
        with pytest.raises(SourceChangedError):
            find(fresh, cursor(Position("elsewhere", "mysql-bin.000001", 1, 4, 0), gtid="x"[:0]))
        return
    insert(fresh, 1)
    with Connection(config(fresh)) as connection:
        gtids = connection.end_of_binlog()[2]
    insert(fresh, 2, 3)
    elsewhere = Position("elsewhere", "binlog.000007", 1, 4, 0)
    assert rows(fresh, tmp_path, 3, cursor(elsewhere, gtids)) == ["2", "3"]
    with pytest.raises(SourceChangedError):
        find(fresh, cursor(replace(elsewhere, n=2), gtids))
    beyond = gtids.rsplit("-", 1)[0] + "-999"
    with pytest.raises(SourceChangedError):
        find(fresh, cursor(elsewhere, beyond))


def test_a_cursor_of_canal_is_resumed_at_its_event_inclusively(fresh: Server, tmp_path: Path) -> None:
    with Reading(config(fresh, tmp_path)) as reading:
        reading.wait(lambda: reading.running)
        insert(fresh, 1, 2, 3)
        reading.wait_for("INSERT shop.t 3")
        reading.wait(lambda: reading.lines()[-1] == "END")
        last = [entry for entry in reading.entries() if entry.entryType == 3][1].header
    canal = Cursor(last.logfileName, last.logfileOffset, last.executeTime, last.serverId)
    with Reading(config(fresh, tmp_path), start=canal) as reading:
        reading.wait_for("INSERT shop.t 3")
        reading.wait(lambda: reading.lines()[-1] == "END")
        assert reading.lines() == ["END", "BEGIN", "INSERT shop.t 3", "END"]
    for other in (
        replace(canal, offset=canal.offset + 1),
        replace(canal, timestamp=canal.timestamp + 1000),
        replace(canal, server_id=canal.server_id + 1),
        replace(canal, journal=canal.journal.partition(".")[0]),
    ):
        with pytest.raises(SourceChangedError, match="reset"):
            find(fresh, other)


def test_a_cursor_of_canal_inside_a_compressed_transaction_is_resumed_at_its_beginning(
    mysql97: Server, database: Database, tmp_path: Path
) -> None:
    schema = database(mysql97)
    mysql97.query("CREATE TABLE t (id INT)", database=schema)
    options = config(mysql97, tmp_path, filter_regex=rf"{schema}\.t")
    with Reading(options) as reading:
        reading.wait(lambda: reading.running)
        mysql97.script(
            "SET SESSION binlog_transaction_compression = ON;\nBEGIN;\nINSERT INTO t VALUES (1);\n"
            "DO SLEEP(1.1);\nINSERT INTO t VALUES (2);\nDO SLEEP(1.1);\nCOMMIT;\n",
            database=schema,
        )
        reading.wait_for(f"INSERT {schema}.t 2")
        reading.wait(lambda: reading.lines()[-1] == "END")
        headers = [entry.header for entry in reading.entries() if entry.entryType in (1, 3)]
    assert len({header.logfileOffset for header in headers}) == 1, "all share the place of the payload"
    assert len({header.executeTime for header in headers}) == 2, "and have times of their own"
    for header in headers:
        canal = Cursor(header.logfileName, header.logfileOffset, header.executeTime, header.serverId)
        with Reading(options, start=canal) as reading:
            reading.wait(lambda: "END" in reading.lines())
            assert reading.lines() == ["BEGIN", f"INSERT {schema}.t 1", f"INSERT {schema}.t 2", "END"]
        with pytest.raises(SourceChangedError, match="reset"):
            find(mysql97, replace(canal, timestamp=canal.timestamp + 100_000))


def test_a_start_in_a_file_knows_the_gtids_before_it(mariadb118: Server, database: Database) -> None:
    database(mariadb118)
    file, offset = end(mariadb118)
    ((gtids,),) = mariadb118.query("SELECT @@global.gtid_binlog_pos")
    assert str(find(mariadb118, master_journal_name=file, master_position=offset).gtids) == gtids
