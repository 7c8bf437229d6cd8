"""How long an event may be: a server's `max_allowed_packet` limits the values in it, the configuration limits it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Database
from tests.reading import Reading, config
from tests.servers import Server

MAX_ALLOWED_PACKET = 1 << 20
VALUE = 900_000


@pytest.fixture
def narrow(server: Server) -> Iterator[Server]:
    """A server that takes no statement, and no value, of more than 1 MiB."""
    with server.variable("max_allowed_packet", MAX_ALLOWED_PACKET):
        yield server


def write_long_rows(server: Server, name: str) -> None:
    """The last UPDATE has an event of five such values: two of before, three of after."""
    server.query("CREATE TABLE t (id INT PRIMARY KEY, a LONGBLOB, b LONGBLOB, c LONGBLOB)", database=name)
    server.query(f"INSERT INTO t VALUES (1, REPEAT('a', {VALUE}), NULL, NULL)", database=name)
    server.query(f"UPDATE t SET b = REPEAT('b', {VALUE})", database=name)
    server.query(f"UPDATE t SET c = REPEAT('c', {VALUE})", database=name)


def test_an_event_longer_than_the_source_s_max_allowed_packet_is_read(
    narrow: Server, database: Database, tmp_path: Path
) -> None:
    name = database(narrow)
    with Reading(config(narrow, tmp_path, filter_regex=rf"{name}\..*")) as reading:
        reading.wait(lambda: reading.running)
        write_long_rows(narrow, name)
        reading.wait(lambda: len(reading.rows()) == 3)
        assert [len(line) // VALUE for line in reading.rows()] == [1, 2, 3]


def test_an_event_longer_than_configured_stops_the_destination_and_names_the_key(
    narrow: Server, database: Database, tmp_path: Path
) -> None:
    name = database(narrow)
    with Reading(config(narrow, tmp_path, filter_regex=rf"{name}\..*", event_bytes=4 * VALUE)) as reading:
        reading.wait(lambda: reading.running)
        write_long_rows(narrow, name)
        reading.wait(lambda: "sluice.instance.event.maxBytes" in reading.error)
        assert [len(line) // VALUE for line in reading.rows()] == [1, 2]
