"""The servers of the tests themselves."""

from tests.conftest import Database
from tests.servers import Server


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
