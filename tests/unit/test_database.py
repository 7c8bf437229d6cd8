"""Where a database is and how one logs in."""

import pickle
from pathlib import Path

import pytest

from sluice.login.ssl_mode import SslMode
from sluice.protocol.errors import BadParameterError, SourceError
from sluice.sql.database import Database


def test_a_url_names_server_account_and_tls() -> None:
    assert Database.of("mysql://shop%40x@db.example") == Database("db.example", 3306, "shop@x")
    url = "mariadb://shop@[::1]:3307/?sslMode=verify_identity&sslCa=/etc/ca.pem&sslCert=c&sslKey=k"
    assert Database.of(url, password="s3cret") == Database(
        "::1", 3307, "shop", "s3cret", SslMode.VERIFY_IDENTITY, "/etc/ca.pem", "c", "k"
    )
    keyed = Database.of("mysql://shop@db?sslMode=DISABLED&serverPublicKey=/etc/key.pem")
    assert keyed.server_public_key == "/etc/key.pem"


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("db.example:3306", "a database is named as mysql://user@host:port/"),
        ("mysql://db.example", "a database is named as mysql://user@host:port/"),
        ("mysql://shop@db.example/shop", "a database is named as mysql://user@host:port/"),
        ("mysql://shop@db.example:x", "a database is named as mysql://user@host:port/"),
        ("postgresql://shop@db.example", "a database is named as mysql://user@host:port/"),
        ("mysql://shop:s3cret@db.example", "the password must not stand in the URL"),
        (
            "mysql://shop@db.example?sslMode=ON",
            "the URL of a database has sslMode=ON: sslMode .DISABLED, PREFERRED, .* are known",
        ),
        ("mysql://shop@db.example?charset=utf8", "the URL of a database has charset=utf8: "),
        ("mysql://shop@db.example?sslCert=c", "sslCert and sslKey belong together"),
        ("mysql://shop@db.example?serverPublicKey=k", "serverPublicKey is for connections without TLS"),
    ],
)
def test_other_urls_are_refused_and_passwords_not_shown(url: str, complaint: str) -> None:
    with pytest.raises(BadParameterError, match=complaint) as caught:
        Database.of(url)
    assert "s3cret" not in str(caught.value)


def test_the_password_comes_from_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = "mysql://shop@db.example"
    (tmp_path / "password").write_text("from the file\n")
    monkeypatch.setenv("SLUICE_DATABASE_PASSWORD", "from the environment")
    monkeypatch.setenv("OTHER", "from another")
    assert Database.of(url).password == "from the environment"
    assert Database.of(url, variable="OTHER").password == "from another"
    assert Database.of(url, variable="NONE").password == ""
    assert Database.of(url, password_file=tmp_path / "password").password == "from the file"
    assert Database.of(url, password="given", password_file=tmp_path / "password").password == "given"
    with pytest.raises(BadParameterError, match=r"the file of the password: .*nothing"):
        Database.of(url, password_file=tmp_path / "nothing")


def test_the_password_is_not_shown_but_goes_where_the_database_goes() -> None:
    database = Database("db.example", 3306, "shop", "s3cret")
    assert "s3cret" not in repr(database) + str(database)
    assert pickle.loads(pickle.dumps(database)) == database
    with pytest.raises(SourceError, match=r"cannot log in to 127\.0\.0\.1:1 as 'shop'") as caught:
        Database("127.0.0.1", 1, "shop", "s3cret").connect()
    assert "s3cret" not in str(caught.value)
