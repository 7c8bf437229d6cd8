"""A server that stands by has a log of its own: after a take-over it serves what the source has purged."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from sluice.protocol.position import Position
from tests.conftest import Database
from tests.faults.harness import Sluice
from tests.faults.test_ha import Pair, call, read
from tests.faults.test_log_dies import SETTINGS, purge
from tests.servers import Server, ZooKeeper
from tests.waiting import eventually

pytestmark = pytest.mark.extended


@pytest.fixture
def pair(tmp_path: Path, own_zookeeper: ZooKeeper, mariadb118: Server, database: Database) -> Iterator[Pair]:
    """The source writes the names of columns into its events: rows of any time are read with them."""
    settings = SETTINGS | {"sluice__instance__store__standby": "true", "canal__instance__mysql__slaveId": 4711}
    settings |= {"sluice__ha__sessionTimeout": 6}
    pair = Pair(tmp_path, own_zookeeper.hosts, mariadb118, database(mariadb118), **settings)
    with mariadb118.variable("binlog_row_metadata", "FULL"), ExitStack() as stack:
        for server in pair.servers:
            stack.enter_context(server)
        yield pair


def held(server: Sluice) -> str:
    return str((server.destination()["log"] or {"held": ""})["held"])


def test_after_a_take_over_what_the_source_has_purged_is_served_as_far_as_the_status_said(pair: Pair) -> None:
    first = pair.active()
    second = pair.other(first)
    eventually(lambda: held(first) and held(first) == held(second), "all servers say where their logs begin")
    assert call(first, "subscribe").status == 200
    ids = [row[0] for row in pair.source.query("SHOW SLAVE HOSTS")]
    assert 4711 in ids
    assert len(set(ids)) == len(ids) > 1, "the other one reads with a server id of its own"
    pair.insert(*range(1, 101))
    rows, batches = read(first, 10)
    assert rows[:10] == list(range(1, 11))
    assert second.destination()["clients"] == []
    for server in pair.servers:
        purge(pair.source, server)
    promised = held(first)
    assert Position.parse(promised) >= Position.parse(second.destination()["log"]["stretches"][0][0])
    first.kill()
    eventually(lambda: pair.active() is second)
    rows, batches = read(second, 100)
    assert rows == list(range(1, 101)), "nothing was acked"
    assert [call(second, "ack", {"batchId": it}).status for it in batches] == [204] * len(batches)
    pair.insert(101)
    assert read(second, 1)[0] == [101]
    for server in pair.servers:
        text = server.log_file.read_text()
        assert "Traceback" not in text
        assert "cannot be used" not in text
