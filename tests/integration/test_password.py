"""The password of a source's account on real servers, as if they were on another host."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sluice.instance.sources.mysql.connection import Connection
from sluice.login import session as mysql
from sluice.login.session import Protection
from sluice.protocol.errors import SourceError
from sluice.server.cli.command import main
from tests.reading import config
from tests.servers import Server


@pytest.fixture(autouse=True)
def _far(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection counts as one that leaves this host."""
    monkeypatch.setattr(mysql, "is_local", lambda _: False)


@pytest.fixture
def account(mysql97: Server) -> Iterator[dict[str, Any]]:
    """An account whose password the server has not seen yet."""
    mysql97.query("CREATE USER sealed@'%' IDENTIFIED WITH caching_sha2_password BY 'sealed of mine'")
    mysql97.query("GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO sealed@'%'")
    yield {"db_username": "sealed", "db_password": "sealed of mine"}
    mysql97.query("DROP USER sealed@'%'")


def test_a_password_that_the_server_has_not_seen_is_kept(mysql97: Server, account: dict[str, Any]) -> None:
    with pytest.raises(SourceError, match=r"by a key that it sends itself .*; set .*sluice\.instance\.serverPublicKey"):
        Connection(config(mysql97, **account))
    for mode in ("PREFERRED", "REQUIRED"):
        with pytest.raises(SourceError, match=r"in clear text .caching_sha2_password.*; set canal.*VERIFY_IDENTITY"):
            Connection(config(mysql97, ssl_mode=mode, **account))


def test_the_server_s_key_lets_it_pass_and_then_a_hash_is_enough(mysql97: Server, account: dict[str, Any]) -> None:
    with Connection(config(mysql97, server_public_key=mysql97.data / "public_key.pem", **account)) as connection:
        assert connection.protection is Protection.KEY
        assert not connection.exposure
    with Connection(config(mysql97, **account)) as connection:
        assert connection.protection is Protection.CACHE
        assert "When it restarts" in connection.exposure
    mysql97.query("FLUSH PRIVILEGES")
    with pytest.raises(SourceError, match="was not sent"):
        Connection(config(mysql97, **account))


def test_the_certificate_that_a_server_makes_for_itself_lets_it_pass(mysql97: Server, account: dict[str, Any]) -> None:
    options: dict[str, Any] = {"ssl_mode": "VERIFY_CA", "ssl_ca": mysql97.data / "ca.pem"}
    with Connection(config(mysql97, **options, **account)) as connection:
        assert connection.protection is Protection.TLS


def test_an_account_of_a_hash_passes(mariadb118: Server, mysql56: Server) -> None:
    for server in (mariadb118, mysql56):
        with Connection(config(server)) as connection:
            assert connection.protection is Protection.HASH
            assert not connection.unchecked_tls
    with Connection(config(mariadb118, ssl_mode="PREFERRED")) as connection:
        assert "sslMode = PREFERRED adds no protection" in connection.unchecked_tls


@pytest.mark.parametrize("command", [["check", "--conf"], ["migrate", "--from"]])
def test_an_account_that_would_stop_is_found(
    command: list[str],
    mysql97: Server,
    account: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "canal.properties").write_text("canal.destinations = shop\n")
    instance = tmp_path / "shop" / "instance.properties"
    lines = [
        f"canal.instance.master.address = 127.0.0.1:{mysql97.port}",
        f"canal.instance.dbUsername = {account['db_username']}",
        f"canal.instance.dbPassword = {account['db_password']}",
        "",
    ]
    monkeypatch.setenv("COLUMNS", "2000")

    def run(*more: str) -> tuple[object, str]:
        instance.write_text("\n".join([*lines, *more]))
        with pytest.raises(SystemExit) as left:
            main([*command, str(tmp_path)])
        return left.value.code, capsys.readouterr().out

    status, text = run()
    assert status == 1
    assert "the password was not sent" in text
    status, text = run(f"sluice.instance.serverPublicKey = {mysql97.data / 'public_key.pem'}")
    assert status == 0, text
    assert "shop, password: it was encrypted with the server's RSA key" in text
    status, text = run()  # the server remembers the password now
    assert status == 1
    assert "FAIL shop, password: the source remembers the password" in text
    assert account["db_password"] not in text
