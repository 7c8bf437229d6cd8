"""A snapshot begins only when all that stands before its position can be seen."""

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from sluice.client_sdk.spark.keyranges import connect
from sluice.login.visibility import wait_until_visible
from sluice.protocol.errors import SourceChangedError, SourceError
from sluice.protocol.position import Position
from sluice.sql.database import Database as Address
from tests.conftest import Database
from tests.delivery import end_of_binlog
from tests.servers import Server
from tests.waiting import eventually


def address(server: Server, user: str | None = None) -> Address:
    return Address(server.host, server.port, user or server.user, server.password)


def end(server: Server) -> Position:
    """The end of the binlog, as a position."""
    [(source,)] = server.query("SELECT @@server_id" if server.mariadb else "SELECT @@server_uuid")
    file, offset = end_of_binlog(server)
    return Position(str(source), file, 1_700_000_000, offset, 0)


SEMISYNC = {
    "mariadb118": ("rpl_semi_sync_master", "wait_no_slave"),
    "mysql97": ("rpl_semi_sync_source", "wait_no_replica"),
}


@contextmanager
def confirmed_by_nobody(server: Server, seconds: float) -> Iterator[None]:
    """Each commit waits so long for a replica that is not there, after the binlog and before the engine."""
    name, _ = SEMISYNC[server.name]
    if not server.mariadb:
        server.query("INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'")
    settings = {"timeout": round(seconds * 1000), "wait_point": "'AFTER_SYNC'", SEMISYNC[server.name][1]: "ON"}
    server.query("SET " + ", ".join(f"GLOBAL {name}_{key} = {value}" for key, value in settings.items()))
    server.query(f"SET GLOBAL {name}_enabled = ON")
    try:
        yield
    finally:
        server.query(f"SET GLOBAL {name}_enabled = OFF")
        if not server.mariadb:
            server.query("UNINSTALL PLUGIN rpl_semi_sync_source")


@pytest.mark.extended
@pytest.mark.parametrize("name", SEMISYNC)
def test_transactions_that_are_in_the_binlog_only_are_waited_for(
    name: str, request: pytest.FixtureRequest, database: Database
) -> None:
    server: Server = request.getfixturevalue(name)
    schema = database(server)
    server.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY)")
    before = end(server)
    with closing(connect(address(server))) as session, confirmed_by_nobody(server, 2):
        committing = threading.Thread(target=server.query, args=(f"INSERT INTO {schema}.t VALUES (1)",))
        committing.start()
        eventually(lambda: end(server) > before)
        after = end(server)
        assert session.rows(f"SELECT * FROM {schema}.t") == [], "the row is visible already: nothing is tested"
        wait_until_visible(session, after)
        assert session.rows(f"SELECT * FROM {schema}.t") == [("1",)]
        committing.join()


def test_prepared_transactions_are_waited_for(server: Server, database: Database) -> None:
    schema = database(server)
    server.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY)")
    with closing(connect(address(server))) as session, closing(server.connect(database=schema)) as writer:
        wait_until_visible(session, end(server))
        cursor = writer.cursor()
        cursor.execute("XA START 'one'")
        cursor.execute("INSERT INTO t VALUES (1)")
        cursor.execute("XA END 'one'")
        cursor.execute("XA PREPARE 'one'")
        try:
            with pytest.raises(SourceError, match=r"not committed for 0 s: .*XA one"):
                wait_until_visible(session, end(server), 0.2)
        finally:
            cursor.execute("XA COMMIT 'one'")
        wait_until_visible(session, end(server))
        assert session.rows(f"SELECT * FROM {schema}.t") == [("1",)]


def test_another_server_is_refused(mariadb118: Server, mysql97: Server) -> None:
    with (
        closing(connect(address(mariadb118))) as session,
        pytest.raises(SourceChangedError, match="not from a replica of it"),
    ):
        wait_until_visible(session, end(mysql97))


def test_an_account_needs_no_privileges_but_without_gtids(server: Server) -> None:
    server.query("CREATE USER reader@'%' IDENTIFIED BY 'cdc'")
    try:
        with closing(connect(address(server, "reader"))) as session:
            if server.name in ("mysql56", "mysql57", "mysql80"):
                with pytest.raises(SourceError, match="GRANT PROCESS"):
                    wait_until_visible(session, end(server))
                server.query("GRANT PROCESS ON *.* TO reader@'%'")
        with closing(connect(address(server, "reader"))) as session:
            wait_until_visible(session, end(server))
    finally:
        server.query("DROP USER reader@'%'")
