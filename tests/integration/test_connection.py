"""Logging in to real servers, checking them, dumping over plain and encrypted connections."""

import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from sluice.instance.sources.mysql.connection import Connection, number
from sluice.instance.sources.mysql.dump import Dump, FileStart, Replica
from sluice.instance.sources.mysql.schema import InformationSchema, charsets
from sluice.protocol.errors import DecodeError, SourceError
from tests.conftest import Database
from tests.reading import config
from tests.servers import Server


def check(server: Server, server_id: int = 0, **options: Any) -> None:
    configuration = config(server, **options)
    with Connection(configuration) as connection:
        connection.check(configuration, server_id)


def refusal(server: Server) -> str:
    """Why a server is not taken; empty when it is."""
    try:
        check(server)
    except SourceError as error:
        return str(error)
    return ""


@pytest.fixture
def account(server: Server) -> Iterator[str]:
    """An account without any privilege; its password is its name."""
    server.query("CREATE USER poor@'%' IDENTIFIED BY 'poor'")
    yield "poor"
    server.query("DROP USER poor@'%'")


def test_a_server_in_order_passes(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    assert refusal(server) == ""
    assert caplog.messages == []


def test_a_source_without_a_free_connection_is_refused_with_what_helps() -> None:
    with Server("mariadb118", ["--max-connections=10"]) as server, ExitStack() as opened:

        def exhaust() -> None:
            for _ in range(12):  # one more than it allows is for the administrator
                opened.enter_context(Connection(config(server)))

        with pytest.raises(SourceError, match=r"each destination.* takes 2 connections: raise max_connections"):
            exhaust()


def test_what_is_known_of_a_server(server: Server) -> None:
    with Connection(config(server)) as connection:
        facts = connection.facts
    ((version,),) = server.query("SELECT VERSION()")
    assert facts.version_text == version
    assert version.startswith(".".join(map(str, facts.version)))
    assert facts.mariadb == server.mariadb
    if server.mariadb:
        assert facts.source == str(server.port)  # the server id of the tests' servers
    else:
        assert (facts.source,) in server.query("SELECT @@server_uuid")
    assert facts.checksum == "CRC32"


def test_all_missing_privileges_are_named_with_the_sql_that_grants_them(server: Server, account: str) -> None:
    options: dict[str, Any] = {"db_username": account, "db_password": account}
    with pytest.raises(SourceError) as raised:
        check(server, **options)
    cures = [line.strip() for line in str(raised.value).splitlines() if line.strip().startswith("GRANT")]
    assert len(cures) == 3, raised.value
    for cure in cures:
        server.query(cure)
    check(server, **options)


def test_all_invalid_settings_are_named_in_one_message(mysql97: Server, mariadb118: Server) -> None:
    for server in (mysql97, mariadb118):
        server.query("SET GLOBAL binlog_format = STATEMENT")
        server.query("SET GLOBAL binlog_row_image = MINIMAL")
        try:
            with pytest.raises(SourceError) as raised:
                check(server, 42, binlog_image="FULL")
            text = str(raised.value)
            assert "1. binlog_format is STATEMENT" in text
            assert "2. binlog_row_image is MINIMAL" in text
            for line in text.splitlines():
                if line.strip().startswith("SET GLOBAL"):
                    server.query(line.strip())
            check(server, 42, binlog_image="FULL")
        finally:
            server.query("SET GLOBAL binlog_format = ROW")
            server.query("SET GLOBAL binlog_row_image = FULL")


@pytest.mark.extended
def test_a_server_without_a_binlog_is_refused() -> None:
    with Server("mysql97", ["--skip-log-bin"]) as server, pytest.raises(SourceError, match="log_bin is OFF"):
        check(server)


def test_gtids_that_the_source_does_not_write_are_refused(mysql56: Server) -> None:
    with pytest.raises(SourceError, match="gtid_mode is OFF"):
        check(mysql56, gtid_on=True)


def test_a_server_id_that_is_the_sources_own_is_refused(server: Server) -> None:
    with pytest.raises(SourceError, match="own server_id"):
        check(server, server.port)


def test_a_wrong_password_is_named_but_not_shown(server: Server) -> None:
    cure = r"; check canal\.instance\.dbUsername and canal\.instance\.dbPassword$"
    with pytest.raises(SourceError, match=f"cannot log in.*{cure}") as raised:
        check(server, db_password="s3cret-of-mine")
    assert "s3cret-of-mine" not in str(raised.value)
    assert "s3cret-of-mine" not in repr(raised.value.__cause__)


@pytest.mark.parametrize("mode", ["DISABLED", "PREFERRED"])
def test_a_dump_is_ended_from_another_thread_within_milliseconds(server: Server, mode: str) -> None:
    connection = Connection(config(server, ssl_mode=mode))
    file, offset, _ = connection.end_of_binlog()
    dump = Dump(connection, FileStart(file, offset), Replica.unique(), timeout=5)
    ended: list[float] = []

    def read() -> None:
        buffer = memoryview(bytearray(1 << 16))
        try:
            while dump.receive_into(buffer):
                pass
        except SourceError:
            pass
        finally:
            ended.append(time.monotonic())

    thread = threading.Thread(target=read)
    thread.start()
    time.sleep(0.2)
    stopped = time.monotonic()
    dump.shutdown()
    thread.join(5)
    dump.close()
    assert ended[0] - stopped < 0.1


def test_an_idle_dump_is_kept_alive_by_heartbeats(server: Server) -> None:
    connection = Connection(config(server))
    file, offset, _ = connection.end_of_binlog()
    dump = Dump(connection, FileStart(file, offset), Replica.unique(), timeout=1)
    buffer = memoryview(bytearray(1 << 16))
    deadline = time.monotonic() + 2.5
    while time.monotonic() < deadline:
        assert dump.receive_into(buffer)
    dump.close()


@pytest.fixture(scope="module", params=["mysql97", "mariadb118"])
def encrypted(request: pytest.FixtureRequest, authority: Path) -> Iterator[Server]:
    """A server with a certificate for localhost."""
    files = {"ca": "ca.pem", "cert": "server.pem", "key": "server-key.pem"}
    with Server(request.param, [f"--ssl-{key}={authority / file}" for key, file in files.items()]) as server:
        yield server


@pytest.mark.parametrize("mode", ["PREFERRED", "REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY"])
def test_each_mode_of_tls_connects_and_dumps(encrypted: Server, authority: Path, mode: str) -> None:
    verifies = mode.startswith("VERIFY")
    options = {"ssl_ca": authority / "ca.pem"} if verifies else {}
    address = f"localhost:{encrypted.port}" if mode == "VERIFY_IDENTITY" else f"127.0.0.1:{encrypted.port}"
    configuration = config(encrypted, ssl_mode=mode, master_address=address, **options)
    connection = Connection(configuration)
    assert connection.query("SHOW SESSION STATUS LIKE 'Ssl_cipher'")[0][1]
    dump = Dump(connection, FileStart(connection.end_of_binlog()[0]), Replica.unique(), timeout=5)
    assert isinstance(dump._socket, ssl.SSLSocket)
    assert dump.receive_into(memoryview(bytearray(1 << 16)))
    dump.close()


def test_a_certificate_of_another_name_or_authority_is_refused(encrypted: Server, authority: Path) -> None:
    with pytest.raises(SourceError, match=r"127\.0\.0\.1"):
        check(encrypted, ssl_mode="VERIFY_IDENTITY", ssl_ca=authority / "ca.pem")
    with pytest.raises(SourceError, match=r"certificate verify failed.*; sluice\.instance\.sslCa names"):
        check(encrypted, ssl_mode="VERIFY_CA")


def test_a_client_certificate_is_presented(encrypted: Server, authority: Path) -> None:
    encrypted.query("CREATE USER IF NOT EXISTS sealed@'%' IDENTIFIED BY 'sealed' REQUIRE X509")
    encrypted.query("GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO sealed@'%'")
    options: dict[str, Any] = {"db_username": "sealed", "db_password": "sealed", "ssl_mode": "REQUIRED"}
    with pytest.raises(SourceError, match="cannot log in"):
        check(encrypted, **options)
    check(encrypted, **options, ssl_cert=authority / "client.pem", ssl_key=authority / "client-key.pem")


def test_tls_files_that_cannot_be_read_are_named(mysql97: Server, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"ca\.pem"):
        check(mysql97, ssl_mode="VERIFY_CA", ssl_ca=tmp_path / "ca.pem")


def test_tls_that_a_source_does_not_offer_is_refused(mysql56: Server) -> None:
    with pytest.raises(SourceError, match="SSL is required"):
        check(mysql56, ssl_mode="REQUIRED")


def test_columns_come_as_information_schema_has_them(server: Server, database: Database) -> None:
    name = database(server)
    server.query(
        "CREATE TABLE t (id BIGINT UNSIGNED NOT NULL, v VARCHAR(10) CHARACTER SET latin1, b VARBINARY(8),"
        " e ENUM('x','it''s'), PRIMARY KEY (id), UNIQUE (v))",
        database=name,
    )
    server.query("CREATE TABLE u (id INT NOT NULL UNIQUE)", database=name)
    source = InformationSchema(lambda: Connection(config(server)))
    columns = source.fetch(name, "t").columns
    assert [column.name for column in columns] == ["id", "v", "b", "e"]
    assert [column.data_type for column in columns] == ["bigint", "varchar", "varbinary", "enum"]
    assert [column.charset for column in columns] == [None, "latin1", None, "utf8mb4"]
    assert [column.is_key for column in columns] == [True, False, False, False]
    assert columns[0].is_unsigned
    assert columns[3].mysql_type == "enum('x','it''s')"
    assert not source.fetch(name, "u").columns[0].is_key  # unique and not null, but no primary key
    with pytest.raises(DecodeError, match="dropped or renamed"):
        source.fetch(name, "v")
    server.query("CREATE VIEW w AS SELECT id FROM t", database=name)
    assert [table for schema, table in source.tables() if schema == name] == ["t", "u"]
    assert "mysql" not in {schema for schema, _ in source.tables()}
    source.close()


def test_collation_ids_have_a_charset(server: Server) -> None:
    with Connection(config(server)) as connection:
        known = charsets(connection)
        assert known[8] == "latin1"
        assert known[63] == "binary"
        connected = connection.ask(
            "SELECT id FROM information_schema.collations WHERE collation_name = 'utf8mb4_bin'", row=(number,)
        )
        assert known[connected] == "utf8mb4"


def test_a_source_is_asked_for_its_collations_once_for_all_its_destinations(server: Server) -> None:
    with Connection(config(server)) as one, Connection(config(server)) as other:
        assert charsets(one) is charsets(other)
