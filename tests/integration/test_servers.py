"""The servers of the tests themselves."""

import pytest

from tests.conftest import Database
from tests.servers import Server, ZooKeeper, nodes

pytestmark = pytest.mark.extended


def test_every_server_keeps_a_row_binlog(server: Server, database: Database) -> None:
    name = database(server)
    server.query("CREATE TABLE t (id INT PRIMARY KEY)", database=name)
    assert server.query("SHOW VARIABLES WHERE variable_name IN ('log_bin', 'binlog_format')") == [
        ("binlog_format", "ROW"),
        ("log_bin", "ON"),
    ]


def test_data_survives_a_crash(mariadb118: Server, database: Database) -> None:
    name = database(mariadb118)
    mariadb118.script("CREATE TABLE t (id INT PRIMARY KEY);\nINSERT INTO t VALUES (1), (2);\n", database=name)
    mariadb118.kill()
    mariadb118.start()
    assert mariadb118.query("SELECT id FROM t ORDER BY id", database=name) == [(1,), (2,)]


def test_zookeeper_keeps_its_nodes_over_a_crash() -> None:
    with ZooKeeper() as zookeeper:
        with nodes(zookeeper.hosts) as zk:
            zk.create("/kept", b"1")
        zookeeper.kill()
        zookeeper.start()
        with nodes(zookeeper.hosts) as zk:
            assert zk.get("/kept")[0] == b"1"


def test_ensemble_goes_on_without_its_leader() -> None:
    with ZooKeeper(3) as zookeeper:
        with nodes(zookeeper.hosts) as zk:
            zk.create("/kept", b"1")
        zookeeper.leader.kill()
        zookeeper.wait()
        with nodes(zookeeper.hosts) as zk:
            zk.set("/kept", b"2")
        zookeeper.start()
        with nodes(zookeeper.servers[0].address) as zk:
            zk.sync("/kept")
            assert zk.get("/kept")[0] == b"2"
