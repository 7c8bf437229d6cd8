"""Places in the stream: resuming at each, files that end, sources that are idle, restart, or write no checksums."""

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice.instance.sources.mysql.connection import Connection
from sluice.protocol.canal.entry_pb2 import EntryType
from sluice.protocol.position import Position
from sluice.store.ring import Kind, Ring
from tests.conftest import Database, each
from tests.delivery import (
    config_for,
    deliver,
    delivered,
    end_of_binlog,
    execute,
    rows_of,
    transcript,
)
from tests.reading import Reading, cursor
from tests.servers import Server

ROW = "REPEAT('x', 3000)"
TRANSACTION = [
    "BEGIN",
    f"INSERT INTO t VALUES (1, {ROW}), (2, {ROW}), (3, {ROW}), (4, {ROW})",
    "UPDATE t SET id = id + 10",
    "INSERT INTO u VALUES (1)",
    "DELETE FROM t WHERE id = 12",
    "COMMIT",
]
AFTERWARDS = "INSERT INTO u VALUES (9)"


def _resume_everywhere(
    server: Server, folder: Path, schema: str, before: list[str]
) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """What comes from each position of the stream, inside transactions too, and what follows it there."""
    server.script("CREATE TABLE t (id INT, v TEXT);\nCREATE TABLE u (id INT);\n", database=schema)
    file, offset = end_of_binlog(server)
    execute(server, [*before, *TRANSACTION, AFTERWARDS, AFTERWARDS], database=schema)
    options = config_for(server, folder, master_journal_name=file, master_position=offset)
    with Reading(options) as whole:
        whole.wait(lambda: transcript(whole.entries()).count("INSERT u 9") == 2 and whole.lines()[-1] == "END")
        ring = whole.ring
        slots = [(number, ring.slot(number)) for number in range(ring.first, ring.next)]
        slots = [(number, slot) for number, slot in slots if slot.kind != Kind.ADVANCE]
        last_begin = slots[-1][1].begin
        places = {(slot.begin, slot.n + more) for _, slot in slots if slot.begin < last_begin for more in (0, 1)}
        places |= {(slot.next_begin, slot.next_n) for _, slot in slots if slot.begin < last_begin}
        with Connection(options) as connection:
            source = connection.facts.source
        created = ring.files[slots[0][1].file][1]
        assert len({slot.n for _, slot in slots}) > 5
        came: dict[str, bytes] = {}
        follows: dict[str, bytes] = {}
        for begin, n in sorted(places):
            place = Position(source, file, created, begin, n)
            tail = _rest(ring, next(number for number, slot in slots if (slot.begin, slot.n) >= (begin, n)))
            with Reading(options, start=cursor(place)) as resumed:
                resumed.wait(lambda: len(_rest(resumed.ring, resumed.ring.first)) >= len(tail))  # noqa: B023
                came[str(place)], follows[str(place)] = _rest(resumed.ring, resumed.ring.first), tail
    return came, follows


def _rest(ring: Ring, first: int) -> bytes:
    """What a ring has from a slot on."""
    return b"".join(ring.collect(first).slices)


@pytest.mark.parametrize("server", each("mysql97"), indirect=True)
def test_the_stream_can_be_resumed_at_every_event(server: Server, database: Database, tmp_path: Path) -> None:
    came, follows = _resume_everywhere(server, tmp_path, database(server), [])
    assert came == follows


def test_the_stream_can_be_resumed_inside_a_compressed_payload(
    mysql97: Server, database: Database, tmp_path: Path
) -> None:
    compress = "SET SESSION binlog_transaction_compression = ON"
    came, follows = _resume_everywhere(mysql97, tmp_path, database(mysql97), [compress])
    assert came == follows


def test_the_stream_goes_on_in_the_next_file(server: Server, database: Database, tmp_path: Path) -> None:
    schema = database(server)
    server.query("CREATE TABLE t (id INT)", database=schema)
    file = end_of_binlog(server)[0]
    statements = [
        "INSERT INTO t VALUES (1)",
        "FLUSH BINARY LOGS",
        "FLUSH BINARY LOGS",
        "INSERT INTO t VALUES (2)",
        "FLUSH BINARY LOGS",
    ]
    entries = delivered(server, tmp_path, schema, statements, filter_query_dml=True)
    assert transcript(entries) == ["BEGIN", "INSERT t 1", "END", "BEGIN", "INSERT t 2", "END"]
    number = int(file.rpartition(".")[2])
    assert [int(entry.header.logfileName.rpartition(".")[2]) for entry in entries] == [number] * 3 + [number + 2] * 3


def test_the_place_moves_on_although_no_change_is_wanted(server: Server, database: Database, tmp_path: Path) -> None:
    schema = database(server)
    server.query("CREATE TABLE t (id INT)", database=schema)
    with deliver(server, tmp_path, filter_regex=r"nothing\.at_all", filter_query_dml=True) as delivery:
        for number in range(3):
            server.query(f"INSERT INTO t VALUES ({number})", database=schema)
            server.query("FLUSH BINARY LOGS")
            assert all(entry.entryType != EntryType.ROWDATA for entry in delivery.read())  # waits for the place


def test_a_source_without_checksums_is_read(server: Server, database: Database, tmp_path: Path) -> None:
    schema = database(server)
    server.query("CREATE TABLE t (id INT)", database=schema)
    with deliver(server, tmp_path, filter_regex=rf"{schema}\..*", filter_query_dml=True) as delivery:
        server.query("INSERT INTO t VALUES (1)", database=schema)
        try:
            server.query("SET GLOBAL binlog_checksum = NONE")  # goes on in another file
            server.query("INSERT INTO t VALUES (2)", database=schema)
            lines = transcript(delivery.read())
            assert transcript(delivered(server, tmp_path, schema, ["INSERT INTO t VALUES (3)"]))[-2] == "INSERT t 3"
        finally:
            server.query("SET GLOBAL binlog_checksum = CRC32")
        server.query("INSERT INTO t VALUES (4)", database=schema)
        lines += transcript(delivery.read())
        assert [line for line in lines if line.startswith("INSERT")] == [f"INSERT t {it}" for it in range(1, 5)]


@pytest.fixture(params=[pytest.param("mysql56", marks=pytest.mark.extended), "mariadb118"])
def fresh(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server of the test's own, that may be stopped and killed."""
    with Server(request.param) as server:
        server.query("CREATE DATABASE shop")
        server.query("CREATE TABLE shop.t (id INT)")
        yield server


@pytest.mark.extended
def test_a_restart_and_a_crash_of_the_source_lose_and_repeat_nothing(fresh: Server, tmp_path: Path) -> None:
    with deliver(fresh, tmp_path, filter_regex=r"shop\..*", filter_query_dml=True) as delivery:
        fresh.query("INSERT INTO shop.t VALUES (1)")
        lines = transcript(delivery.read())
        fresh.restart()
        fresh.query("INSERT INTO shop.t VALUES (2)")
        fresh.kill()
        fresh.start()
        fresh.query("INSERT INTO shop.t VALUES (3)")
        lines += transcript(delivery.read())
    assert [line for line in lines if line.startswith("INSERT")] == ["INSERT t 1", "INSERT t 2", "INSERT t 3"]


HEADER = struct.Struct("<IBIIIH")
INCIDENT = 26


def test_an_incident_of_the_source_is_a_gap_in_the_stream(tmp_path: Path) -> None:
    """The source writes one when it has lost changes; here it is written into the file of a stopped source."""
    with Server("mysql56") as server:
        server.query("CREATE DATABASE shop")
        server.query("CREATE TABLE shop.t (id INT)")
        file, offset = end_of_binlog(server)
        server.query("INSERT INTO shop.t VALUES (1)")
        server.stop()
        path = server.data / file
        data = path.read_bytes()[:-23]  # without the STOP event and its checksum
        reason = b"disk full"
        body = struct.pack("<HB", 1, len(reason)) + reason
        size = HEADER.size + len(body) + 4
        event = HEADER.pack(1_800_000_000, INCIDENT, 1, size, len(data) + size, 0) + body
        path.write_bytes(data + event + zlib.crc32(event).to_bytes(4, "little"))
        server.start()
        server.query("INSERT INTO shop.t VALUES (2)")
        with deliver(server, tmp_path, master_journal_name=file, master_position=offset) as delivery:
            entries = delivery.read()
        assert [row.afterColumns[0].value for _, change in rows_of(entries, "t") for row in change.rowDatas] == [
            "1",
            "2",
        ]
        (gap,) = [entry for entry in entries if any(pair.key == "sluice.gap" for pair in entry.header.props)]
        assert "disk full" in next(pair.value for pair in gap.header.props)
        assert gap.header.logfileOffset == len(data)
