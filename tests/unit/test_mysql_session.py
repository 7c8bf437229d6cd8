"""Logging in at any server that answers: what becomes of the password, and how much may be answered."""

import socket
import ssl
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pymysql
import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from sluice.instance.sources.mysql.config import MysqlConfig
from sluice.instance.sources.mysql.connection import Connection
from sluice.login import session as mysql
from sluice.login.session import MysqlSession, Protection, SessionLimits, is_local
from sluice.login.ssl_mode import SslMode
from sluice.login.tls import tls_arguments
from sluice.protocol.errors import SourceError
from sluice.sql.database import Database
from tests.peer import EOF, OK, SALT, VARIABLES, Peer, Talk, column

PASSWORD = b"correct horse battery staple"
KEY = rsa.generate_private_key(65537, 2048)
OTHER_KEY = rsa.generate_private_key(65537, 2048)
FULL_AUTHENTICATION, FAST_SUCCESS = b"\x04", b"\x03"


def pem(key: rsa.RSAPrivateKey) -> bytes:
    return key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def decrypt(data: bytes, key: rsa.RSAPrivateKey = KEY) -> bytes:
    """The password out of what was encrypted for a server with this salt."""
    scheme = padding.OAEP(padding.MGF1(hashes.SHA1()), hashes.SHA1(), None)
    clear = key.decrypt(data, scheme)
    return bytes(byte ^ SALT[i % len(SALT)] for i, byte in enumerate(clear))


@pytest.fixture
def far(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection counts as one that leaves this host."""
    monkeypatch.setattr(mysql, "is_local", lambda _: False)


@pytest.fixture
def tls(authority: Path) -> ssl.SSLContext:
    """TLS with a certificate for localhost."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority / "server.pem", authority / "server-key.pem")
    return context


def log_in(peer: Peer, mode: SslMode = SslMode.DISABLED, *, password: bytes = PASSWORD, **files: Any) -> MysqlSession:
    """Log in; raises MySQLError."""
    session = MysqlSession(
        host="localhost" if mode is SslMode.VERIFY_IDENTITY else "127.0.0.1",
        port=peer.port,
        user="cdc",
        password=password,
        autocommit=True,
        read_timeout=5,
        defer_connect=True,
        **tls_arguments(mode, **files),
    )
    session.connect()
    return session


# --- what asks for the password --------------------------------------------------------------------------------------


def asks_in_clear_text(talk: Talk) -> None:
    talk.greet()
    talk.switch("mysql_clear_password")
    talk.let_in()


def asks_by_dialog(talk: Talk) -> None:
    talk.greet()
    talk.switch("dialog", b"\x04Password: ")
    talk.let_in()


def asks_by_a_key_of_its_own(talk: Talk) -> None:
    talk.greet("caching_sha2_password")
    if talk.more(FULL_AUTHENTICATION) == b"\x02":
        talk.more(pem(KEY))
    talk.let_in()


def asks_by_a_key_of_its_own_after_a_switch(talk: Talk) -> None:
    talk.greet()
    talk.switch("caching_sha2_password")
    if talk.more(FULL_AUTHENTICATION) == b"\x02":
        talk.more(pem(KEY))
    talk.let_in()


def asks_by_sha256(talk: Talk) -> None:
    if talk.greet("sha256_password").count(b"\x01\x01"):
        talk.more(pem(KEY))
    talk.switch("sha256_password")
    talk.more(pem(KEY))
    talk.let_in()


def gives_a_key_that_nobody_asked_for(talk: Talk) -> None:
    talk.greet("sha256_password")
    talk.more(pem(KEY))
    talk.let_in()


ASKING = [
    asks_in_clear_text,
    asks_by_dialog,
    asks_by_a_key_of_its_own,
    asks_by_a_key_of_its_own_after_a_switch,
    asks_by_sha256,
    gives_a_key_that_nobody_asked_for,
]


def gave_away(peer: Peer) -> bool:
    """Whether the peer has the password: in clear text, or encrypted with a key that it has."""
    packets = [payload for talk in peer.talks for payload in talk.received]
    encrypted = [packet for packet in packets if len(packet) == KEY.key_size // 8]
    return PASSWORD in peer.received or any(PASSWORD in decrypt(packet) for packet in encrypted)


@pytest.mark.parametrize("behave", ASKING)
@pytest.mark.usefixtures("far")
def test_whoever_answers_does_not_get_the_password(behave: Callable[[Talk], None]) -> None:
    with Peer(behave) as peer:
        with pytest.raises(pymysql.MySQLError):
            log_in(peer)
        assert not gave_away(peer)


@pytest.mark.parametrize("mode", [SslMode.PREFERRED, SslMode.REQUIRED])
@pytest.mark.parametrize("behave", ASKING)
@pytest.mark.usefixtures("far")
def test_tls_that_verifies_nothing_does_not_protect_it(
    behave: Callable[[Talk], None], mode: SslMode, tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    greet = Talk.greet
    monkeypatch.setattr(Talk, "greet", lambda talk, plugin="mysql_native_password": greet(talk, plugin, tls=tls))
    with Peer(behave) as peer:
        with pytest.raises(pymysql.MySQLError):
            log_in(peer, mode)
        assert not gave_away(peer)


@pytest.mark.usefixtures("far")
def test_preferred_tls_that_was_left_out_does_not_protect_it() -> None:
    with Peer(asks_in_clear_text) as peer:
        with pytest.raises(mysql.ExposedPasswordError, match=r"in clear text .mysql_clear_password., and nothing prov"):
            log_in(peer, SslMode.PREFERRED)
        assert not gave_away(peer)


@pytest.mark.parametrize("behave", ASKING[:4])
def test_on_this_host_every_plugin_is_served(behave: Callable[[Talk], None]) -> None:
    with Peer(behave) as peer:
        session = log_in(peer)
        assert session.protection is Protection.LOCAL
        session.close()
        assert gave_away(peer)


@pytest.mark.parametrize("mode", [SslMode.VERIFY_CA, SslMode.VERIFY_IDENTITY])
@pytest.mark.usefixtures("far")
def test_a_verified_server_gets_the_password(mode: SslMode, tls: ssl.SSLContext, authority: Path) -> None:
    def behave(talk: Talk) -> None:
        talk.greet(tls=tls)
        talk.switch("mysql_clear_password")
        talk.let_in()

    with Peer(behave) as peer:
        session = log_in(peer, mode, ca=authority / "ca.pem")
        assert session.protection is Protection.TLS
        session.close()
        assert gave_away(peer)


def test_the_authorities_of_the_system_prove_nothing_without_the_host_name(authority: Path) -> None:
    assert not tls_arguments(SslMode.VERIFY_CA)["verified"]
    assert tls_arguments(SslMode.VERIFY_IDENTITY)["verified"]
    assert tls_arguments(SslMode.VERIFY_CA, authority / "ca.pem")["verified"]
    assert not tls_arguments(SslMode.REQUIRED, authority / "ca.pem")["verified"]


@pytest.mark.usefixtures("far")
@pytest.mark.parametrize("mode", [SslMode.PREFERRED, SslMode.REQUIRED])
def test_tls_that_verifies_nothing_loads_no_authorities(mode: SslMode) -> None:
    session = MysqlSession(defer_connect=True, **tls_arguments(mode))
    assert session.ctx.verify_mode == ssl.CERT_NONE
    assert not session.ctx.check_hostname
    assert session.ctx.cert_store_stats()["x509"] == 0


def test_without_a_password_every_plugin_is_served() -> None:
    with Peer(asks_in_clear_text) as peer:
        assert log_in(peer, password=b"").protection is Protection.EMPTY


# --- what does not ask for it ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("plugin", ["mysql_native_password", "client_ed25519"])
@pytest.mark.usefixtures("far")
def test_a_hash_is_sent_to_anyone(plugin: str) -> None:
    def behave(talk: Talk) -> None:
        talk.greet()
        talk.switch(plugin, bytes(32) if plugin == "client_ed25519" else SALT)
        talk.let_in()

    with Peer(behave) as peer:
        assert log_in(peer).protection is Protection.HASH
        assert not gave_away(peer)


@pytest.mark.parametrize("switches", [False, True])
@pytest.mark.usefixtures("far")
def test_a_server_that_remembers_the_password_is_sent_a_hash(switches: bool) -> None:
    def behave(talk: Talk) -> None:
        talk.greet("mysql_native_password" if switches else "caching_sha2_password")
        if switches:
            talk.switch("caching_sha2_password")
        talk.send(b"\x01" + FAST_SUCCESS)
        talk.let_in()

    with Peer(behave) as peer:
        assert log_in(peer).protection is Protection.CACHE
        assert not gave_away(peer)


# --- the server's key ------------------------------------------------------------------------------------------------


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "public_key.pem"
    path.write_bytes(pem(KEY))
    return path


@pytest.mark.parametrize("plugin", ["caching_sha2_password", "sha256_password"])
@pytest.mark.usefixtures("far")
def test_the_password_is_encrypted_with_the_key_that_the_server_is_known_to_have(plugin: str, key_file: Path) -> None:
    def behave(talk: Talk) -> None:
        talk.greet()
        first = talk.switch(plugin)
        encrypted = talk.more(FULL_AUTHENTICATION) if plugin == "caching_sha2_password" else first
        assert decrypt(encrypted) == PASSWORD + b"\0"
        talk.let_in()

    with Peer(behave) as peer:
        assert log_in(peer, public_key=key_file).protection is Protection.KEY
        assert PASSWORD not in peer.received


@pytest.mark.parametrize("behave", [asks_by_sha256, asks_by_a_key_of_its_own])
@pytest.mark.usefixtures("far")
def test_a_key_that_the_peer_brings_does_not_take_the_place_of_the_known_one(
    behave: Callable[[Talk], None], tmp_path: Path
) -> None:
    path = tmp_path / "public_key.pem"
    path.write_bytes(pem(OTHER_KEY))

    def is_ours(packet: bytes) -> bool:
        return PASSWORD in decrypt(packet, OTHER_KEY)

    with Peer(behave) as peer:
        log_in(peer, public_key=path)
        packets = [payload for talk in peer.talks for payload in talk.received]
        assert PASSWORD not in peer.received
        assert all(is_ours(packet) for packet in packets if len(packet) == KEY.key_size // 8)


@pytest.mark.parametrize("text", [b"", b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"])
def test_a_file_without_a_key_is_named(text: bytes, tmp_path: Path) -> None:
    path = tmp_path / "public_key.pem"
    path.write_bytes(text)
    with pytest.raises(SourceError, match=r"cannot load the public key .*public_key\.pem"):
        tls_arguments(SslMode.DISABLED, public_key=path)
    with pytest.raises(SourceError, match=r"cannot load the public key .*nothing"):
        tls_arguments(SslMode.DISABLED, public_key=tmp_path / "nothing")


# --- what is said ----------------------------------------------------------------------------------------------------


def config(peer: Peer, **options: Any) -> MysqlConfig:
    settings = {"destination": "d", "master_address": f"127.0.0.1:{peer.port}", "db_username": "cdc"}
    return MysqlConfig(**(settings | {"db_password": PASSWORD.decode()} | options))


@pytest.mark.parametrize(
    ("behave", "cure"),
    [
        (asks_in_clear_text, r"sslMode = VERIFY_IDENTITY, or VERIFY_CA .* in sluice\.instance\.sslCa$"),
        (asks_by_a_key_of_its_own, r"sslMode = VERIFY_IDENTITY, .* or without TLS sluice\.instance\.serverPublicKey"),
    ],
)
@pytest.mark.usefixtures("far")
def test_the_error_says_what_to_set(behave: Callable[[Talk], None], cure: str) -> None:
    with (
        Peer(behave) as peer,
        pytest.raises(SourceError, match=rf"cannot log in .* was not sent.*; set .*{cure}") as it,
    ):
        Connection(config(peer))
    assert PASSWORD.decode() not in str(it.value)


@pytest.mark.usefixtures("far")
def test_a_job_s_database_is_guarded_alike() -> None:
    with Peer(asks_in_clear_text) as peer:
        database = Database("127.0.0.1", peer.port, "shop", PASSWORD.decode())
        with pytest.raises(SourceError, match=r"was not sent.*sslMode=VERIFY_IDENTITY"):
            database.connect()
        assert not gave_away(peer)


# --- this host -------------------------------------------------------------------------------------------------------


class Address:
    """A socket as far as it is asked for."""

    def __init__(self, family: int, host: str) -> None:
        self.family = family
        self._host = host

    def getpeername(self) -> Any:
        return (self._host, 3306)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.3.2.1", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("::ffff:10.0.0.1", False),
        ("10.0.0.1", False),
        ("0.0.0.0", False),
        ("fe80::1%eth0", False),
    ],
)
def test_loopback_is_this_host(host: str, expected: bool) -> None:
    sock: Any = Address(socket.AF_INET6 if ":" in host else socket.AF_INET, host)
    assert is_local(sock) is expected


def test_a_unix_socket_is_this_host() -> None:
    here, there = socket.socketpair()
    with here, there:
        assert is_local(here)


# --- limits ----------------------------------------------------------------------------------------------------------

LIMITS: dict[str, Any] = {"login_timeout": 0.4, "answer_timeout": 0.4, "answer_bytes": 1 << 16}


def drip(talk: Talk, data: bytes) -> None:
    for i in range(len(data)):
        talk.sock.sendall(data[i : i + 1])
        time.sleep(0.05)


def drips_its_greeting(talk: Talk) -> None:
    drip(talk, b"\xff\xff\x00\x00" + bytes(1000))


def says_nothing(talk: Talk) -> None:
    talk.receive()


def greets_without_end(talk: Talk) -> None:
    while True:
        talk.sock.sendall(b"\xff\xff\xff" + bytes([talk.sequence & 0xFF]) + bytes(0xFFFFFF))
        talk.sequence += 1


@pytest.mark.parametrize(
    ("behave", "complaint"),
    [
        (drips_its_greeting, r"its login took more than 0\.4 s.*; sluice\.instance\.login\.timeout limits it"),
        (says_nothing, r"its login took more than 0\.4 s"),
        (greets_without_end, r"its login has more than 1048576 bytes.*; sluice\.instance\.login\.maxBytes limits it"),
    ],
)
def test_a_login_is_bounded(behave: Callable[[Talk], None], complaint: str) -> None:
    with Peer(behave) as peer, pytest.raises(SourceError, match=complaint):
        Connection(config(peer, **LIMITS))


def test_the_handshake_of_tls_is_bounded() -> None:
    class Silent:
        def wrap_socket(self, sock: socket.socket, **_: object) -> socket.socket:
            while sock.recv(1000):
                pass
            raise ConnectionError

    silent: Any = Silent()

    def behave(talk: Talk) -> None:
        talk.greet(tls=silent)

    with Peer(behave) as peer, pytest.raises(SourceError, match=r"cannot log in .*timed out"):
        Connection(config(peer, ssl_mode="REQUIRED", **LIMITS))


def logs_in_and(then: Callable[[Talk], None]) -> Callable[[Talk], None]:
    """Let in, answer the question for the variables, and then do this."""

    def behave(talk: Talk) -> None:
        talk.greet()
        talk.let_in()
        assert talk.receive().startswith(b"\x03SHOW GLOBAL VARIABLES")
        talk.result(["Variable_name", "Value"], *VARIABLES.items())
        talk.receive()
        then(talk)

    return behave


def rows_without_end(talk: Talk) -> None:
    talk.send(b"\x02", column("Log_name"), column("File_size"), EOF)
    talk.send_for_ever(b"\x01a\x011")


def columns_without_end(talk: Talk) -> None:
    talk.send(b"\xfe" + b"\xff" * 8)
    talk.send_for_ever(column(""))


def results_without_end(talk: Talk) -> None:
    while True:
        talk.send(OK[:3] + b"\x0a" + OK[4:])  # there are more results
        talk.sequence = 1


def dripping_rows(talk: Talk) -> None:
    talk.send(b"\x02", column("Log_name"), column("File_size"), EOF)
    drip(talk, b"\x60\x00\x00" + bytes([talk.sequence]) + bytes(1000))


@pytest.mark.parametrize(
    ("then", "complaint"),
    [
        (rows_without_end, r"its answer has more than 65536 bytes.*; sluice\.instance\.answer\.maxBytes limits it"),
        (columns_without_end, "more than (4096 columns|65536 bytes)"),
        (results_without_end, "more results than statements"),
        (dripping_rows, r"its answer took more than 0\.4 s.*; sluice\.instance\.answer\.timeout limits it"),
    ],
)
def test_an_answer_is_bounded(then: Callable[[Talk], None], complaint: str) -> None:
    with (
        Peer(logs_in_and(then)) as peer,
        Connection(config(peer, **LIMITS | {"answer_timeout": 0.4 if then is dripping_rows else 10})) as connection,
        pytest.raises(SourceError, match=complaint),
    ):
        connection.binlog_files()


@pytest.mark.parametrize("then", [rows_without_end, columns_without_end])
def test_an_answer_without_end_takes_a_bounded_memory(then: Callable[[Talk], None]) -> None:
    with Peer(logs_in_and(then)) as peer, Connection(config(peer, answer_bytes=1 << 18)) as connection:
        tracemalloc.start()
        try:
            with pytest.raises(SourceError):
                connection.binlog_files()
            assert tracemalloc.get_traced_memory()[1] < 16 << 20
        finally:
            tracemalloc.stop()


def test_limits_leave_room_for_what_comes_in_time() -> None:
    def answer(talk: Talk) -> None:
        talk.result(["Log_name", "File_size"], ("bin.000001", "4"))

    with Peer(logs_in_and(answer)) as peer, Connection(config(peer, **LIMITS)) as connection:
        assert connection.binlog_files() == [("bin.000001", 4)]
    assert SessionLimits().login_timeout == 10
    assert SessionLimits().login_bytes == 1 << 20


def test_the_rows_of_a_long_result_may_each_take_as_long_as_a_read() -> None:
    def behave(talk: Talk) -> None:
        talk.greet()
        talk.let_in()
        talk.receive()
        talk.result(["v"], ("1",), ("2",))

    limits = SessionLimits(answer_timeout=1.0)
    with (
        Peer(behave) as peer,
        MysqlSession(
            host="127.0.0.1", port=peer.port, user="cdc", autocommit=True, read_timeout=7, limits=limits
        ) as session,
    ):
        assert next(session.packets("SELECT v FROM t"))
        assert session._sock is not None
        assert session._sock.gettimeout() == 7


# --- answers that no server gives ------------------------------------------------------------------------------------


def sends(*payloads: bytes) -> Callable[[Talk], None]:
    def behave(talk: Talk) -> None:
        talk.send(*payloads)
        talk.receive()

    return behave


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\x0a",
        b"\x0a8.4.0\0",
        b"\xff",
        b"\xff\x01",
        b"\x0a" + b"x" * 50,
        b"\x0ax.y\0" + bytes(60),
        b"\xfe\x00\x00",
    ],
)
def test_an_invalid_greeting_is_a_source_error(payload: bytes) -> None:
    with Peer(sends(payload)) as peer, pytest.raises(SourceError, match="cannot log in to 127"):
        Connection(config(peer, **LIMITS))


@pytest.mark.parametrize(
    "rows",
    [
        [("bin", "4")],
        [("bin.000001", "x")],
        [("bin.000001", "9" * 200)],
        [("bin.000001",)],
        [],
        [("", "")],
    ],
)
def test_rows_that_mean_nothing_are_a_source_error(rows: list[tuple[str, ...]]) -> None:
    def answer(talk: Talk) -> None:
        talk.result(["Log_name", "File_size"][: len(rows[0]) if rows else 2], *rows)

    with Peer(logs_in_and(answer)) as peer, Connection(config(peer, **LIMITS)) as connection:
        if rows == [("bin.000001", "9" * 200)]:
            assert connection.binlog_files()[0][1] == int("9" * 200)
        else:
            with pytest.raises(SourceError, match=r"127\.0\.0\.1"):
                connection.binlog_files()


@pytest.mark.parametrize(
    "changed", [{"server_id": "x"}, {"server_uuid": "a/b"}, {"lower_case_table_names": ""}, {"version": "9" * 9000}]
)
def test_variables_that_mean_nothing_are_a_source_error(changed: dict[str, str]) -> None:
    def behave(talk: Talk) -> None:
        talk.greet()
        talk.let_in()
        talk.receive()
        values = VARIABLES | {name: value[:200] for name, value in changed.items()}
        if changed.get("version"):
            values.pop("version")
        talk.result(["Variable_name", "Value"], *values.items())
        talk.receive()

    with Peer(behave) as peer, pytest.raises(SourceError, match=r"127\.0\.0\.1"):
        Connection(config(peer, **LIMITS))


def test_a_file_of_this_host_is_not_sent() -> None:
    with Peer(logs_in_and(sends(b"\xfb/etc/passwd"))) as peer, Connection(config(peer, **LIMITS)) as connection:
        with pytest.raises(SourceError, match="Malformed packet"):
            connection.binlog_files()
        assert b"root:" not in peer.received


def test_a_long_text_of_an_error_is_cut() -> None:
    refusal = b"\xff\x15\x04#28000" + b"x" * 60_000
    with Peer(sends(refusal)) as peer, pytest.raises(SourceError) as caught:
        Connection(config(peer, **LIMITS))
    assert len(str(caught.value)) < 2000
