"""A client is told before the source purges what it needs."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice.instance.serving import purges
from sluice.instance.source import Expiry
from sluice.protocol.position import Position
from tests.conftest import Database
from tests.reading import config, embedded
from tests.servers import Server, next_second
from tests.waiting import soon

NAME, CLIENT = "example", 1001
EXTENDED = ("mysql97", "mysql57", "mysql56", "mariadb1011")


@pytest.fixture(params=["mariadb118", *(pytest.param(it, marks=pytest.mark.extended) for it in EXTENDED)])
def server(request: pytest.FixtureRequest) -> Server:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Server)
    return found


@pytest.fixture
def keeps(server: Server) -> Iterator[int]:
    """How many seconds the source keeps its binlog."""
    key, value, seconds = "expire_logs_days", 2, 172_800
    if server.name == "mysql97":
        key, value, seconds = "binlog_expire_logs_seconds", 7200, 7200
    ((before,),) = server.query(f"SELECT @@global.{key}")
    server.query(f"SET GLOBAL {key} = {value}")
    yield seconds
    server.query(f"SET GLOBAL {key} = {before}")


async def test_a_cursor_in_a_file_that_is_over_has_until_that_file_expires(
    server: Server, database: Database, tmp_path: Path, keeps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(purges, "PERIOD", 0.1)
    schema = database(server)
    server.query("FLUSH BINARY LOGS")  # the file is not the oldest one
    async with embedded(config(server, tmp_path, filter_regex=rf"{schema}\..*")) as sluice:
        await sluice.subscribe(NAME, CLIENT)
        await soon(lambda: sluice.status(NAME, CLIENT).position)
        place = Position.parse(sluice.status(NAME, CLIENT).position)
        parser = sluice.instances[NAME].running_parser()
        assert parser.expiries([place]) == [None], "it is in the file that is written"
        server.query("CREATE TABLE t (id INT)", database=schema)  # which the client does not ack
        next_second()
        server.query("FLUSH BINARY LOGS")
        (expiry,) = parser.expiries([place])
        assert expiry is not None
        assert expiry.kept == keeps
        assert 0 <= time.time() + keeps - expiry.at < 20
        assert not sluice.destination_status(NAME).threats
        monkeypatch.setattr(purges, "SOON", 1.1)
        await soon(lambda: CLIENT in sluice.destination_status(NAME).threats)
        server.purge_binlogs(place.file)
        assert parser.expiries([place]) == [Expiry(0.0, keeps)], "nothing older is left"
        await soon(lambda: "any time" in sluice.destination_status(NAME).threats[CLIENT].text)
