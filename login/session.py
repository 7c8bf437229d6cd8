"""A session with a MySQL or MariaDB server: PyMySQL's, with its password guarded and its answers bounded.

PyMySQL does the handshake, the authentication plugins, TLS and the statements. Its private attributes are touched here
and nowhere else.

The password. An impostor that answers in the server's place chooses the authentication plugin, and some plugins send
the password itself: in clear text, or encrypted with an RSA key that comes with the answer. So these plugins are
refused, unless the server is proven to be the right one: by TLS that verifies its certificate, by its RSA key if that
is known beforehand, or because the connection does not leave this host. Plugins that send a hash made with the server's
nonce (``mysql_native_password``, ``client_ed25519``, the fast path of ``caching_sha2_password``) may answer any server.
"""

import contextlib
import functools
import ipaddress
import socket
import ssl
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, BinaryIO, Final

import pymysql
from pymysql import _auth
from pymysql.constants import CR
from pymysql.protocol import FieldDescriptorPacket, MysqlPacket

PIECE: Final = 1 << 20
"""Bytes of a result that are read at once."""
TOLERANCE: Final = 0.1
"""Seconds by which an exchange may exceed its limit."""
MAX_COLUMNS: Final = 4096
"""Columns that a result may have: more than any table has (MAX_FIELDS in MySQL's sql/sql_const.h)."""

_HASHING: Final = frozenset({"", "mysql_native_password", "client_ed25519"})
"""Plugins that never send the password. The nameless one is for servers that know no plugins."""
_FAST_AUTH_SUCCESS, _FULL_AUTHENTICATION = b"\x03", b"\x04"  # sql/auth/sha2_password.cc


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """How much a server may send, and for how long, before the session is given up: bytes and seconds."""

    login_timeout: float = 10.0
    login_bytes: int = 1 << 20
    answer_timeout: float = 300.0
    answer_bytes: int = 16 << 20


class Protection(StrEnum):
    """What keeps the password of a login from an impostor in the server's place."""

    EMPTY = "there is none"
    LOCAL = "the connection does not leave this host"
    TLS = "the server's certificate was verified"
    KEY = "it was encrypted with the server's RSA key, which is known here"
    HASH = "the account's plugin sends only a hash of it"
    CACHE = "a hash of it was enough, because the server remembers the password of an earlier login"
    """Only until the server restarts or the account changes: then the server asks for the password itself."""


class ExposedPasswordError(pymysql.OperationalError):
    """The server asks for the password itself, and nothing proves that it is the right server."""

    def __init__(self, plugin: str, how: str, *, takes_key: bool) -> None:
        super().__init__(
            CR.CR_AUTH_PLUGIN_ERR,
            f"it asks for the password {how} ({plugin}), and nothing proves that it is the right server: the password"
            " was not sent",
        )
        self.takes_key = takes_key
        """Whether the server's RSA key would do instead of TLS."""


class LimitError(pymysql.OperationalError):
    """A server sent more, or took longer, than `SessionLimits` allow; `limit` is the name of the field."""

    def __init__(self, limit: str, allowed: float) -> None:
        what = "login" if limit.startswith("login") else "answer"
        text = f"took more than {allowed:g} s" if limit.endswith("timeout") else f"has more than {allowed} bytes"
        super().__init__(CR.CR_NET_PACKET_TOO_LARGE, f"its {what} {text}")
        self.limit = limit


class _Allowance:
    """What is left of the limits of an exchange."""

    def __init__(self, limits: SessionLimits, what: str) -> None:
        self.columns = 0
        self._what = what
        self._all_seconds: float = getattr(limits, f"{what}_timeout")
        self._all_bytes: int = getattr(limits, f"{what}_bytes")
        self._bytes = self._all_bytes
        self._deadline = time.monotonic() + self._all_seconds

    def take(self, size: int) -> None:
        """Use ``size`` bytes of the allowance. Raises LimitError."""
        self._bytes -= size
        if self._bytes < 0:
            raise LimitError(f"{self._what}_bytes", self._all_bytes)

    def seconds(self) -> float:
        """Return the seconds that are left. Raises LimitError if none are left."""
        left: float = self._deadline - time.monotonic()
        if left <= 0:
            raise LimitError(f"{self._what}_timeout", self._all_seconds)
        return left


def end(sock: socket.socket) -> None:
    """Shut a socket down under a thread that reads from it."""
    with contextlib.suppress(OSError):  # closed already, by either side
        # Not SSLSocket.shutdown, which would take the cipher away under the reading thread.
        socket.socket.shutdown(sock, socket.SHUT_RDWR)


@functools.cache
def unverified_tls() -> ssl.SSLContext:
    """TLS that verifies nothing: the authorities of the system, which take 50 ms of CPU to load, are left out."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def is_local(sock: socket.socket) -> bool:
    """Tell whether a connection does not leave this host: a Unix socket, or a loopback address."""
    if sock.family == socket.AF_UNIX:
        return True
    address = ipaddress.ip_address(sock.getpeername()[0].partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address.is_loopback


class MysqlSession(pymysql.connections.Connection):
    """PyMySQL's connection. Whatever the other side answers, a method returns within its limits or raises MySQLError.

    An answer that a server would never give is an OperationalError with the code CR_MALFORMED_PACKET.
    """

    host: str
    port: int
    decoders: dict[int, Any]
    """Converters of the texts of values, by the type of the column."""
    salt: bytes
    ctx: ssl.SSLContext
    _sock: socket.socket | None
    _rfile: BinaryIO | None
    _read_timeout: float | None
    _write_timeout: float | None
    _current_timeout: float | None
    _auth_plugin_name: str
    _result: Any

    def __init__(self, *, limits: SessionLimits = SessionLimits(), verified: bool = False, **arguments: Any) -> None:
        """Take PyMySQL's arguments; `verified` says that TLS is compulsory and verifies the server's certificate.

        `server_public_key` is the RSA key (PEM) that the server is known to have. Raises MySQLError, unless the
        connection is deferred.
        """
        self.limits = limits
        self.protection = Protection.HASH
        """What kept the password of the last login safe."""
        self._verified = verified
        self._allowance: _Allowance | None = None
        self._waits_since = 0.0
        super().__init__(**{"connect_timeout": limits.login_timeout, **arguments})

    def _create_ssl_ctx(self, sslp: Any) -> ssl.SSLContext:
        if not sslp:
            return unverified_tls()
        context: ssl.SSLContext = super()._create_ssl_ctx(sslp)  # type: ignore[misc]  # its stubs leave it out
        return context

    def connect(self, sock: socket.socket | None = None) -> None:
        """Connect and log in. Raises MySQLError."""
        with self._exchange("login"):
            super().connect(sock)
            if not self.password:
                self.protection = Protection.EMPTY
            elif self._verified:
                self.protection = Protection.TLS
            elif self._is_proven():
                self.protection = Protection.LOCAL

    def query(self, sql: Any, unbuffered: bool = False) -> int:
        """Send a statement and read its answer; if it is unbuffered, only what precedes the rows."""
        with self._exchange("answer"):
            return super().query(sql, unbuffered)

    def next_result(self, unbuffered: bool = False) -> int:  # noqa: ARG002
        """Refuse a further result: no statement that is sent over a session has one."""
        self._force_close()  # type: ignore[attr-defined]
        raise pymysql.OperationalError(CR.CR_MALFORMED_PACKET, "more results than statements")

    @property
    def server(self) -> str:
        """Its address as text."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def rows(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows, none for a statement without a result. Raises MySQLError."""
        with self.cursor() as cursor:
            cursor.execute(sql, parameters or None)
            return list(cursor.fetchall())

    def packets(self, sql: str) -> Iterator[bytes]:
        """Run a SELECT and return the bytes after the descriptions of its columns as they come.

        They end with the packet that ends a result. The caller has to read up to it: nothing else can be done with the
        session before. Raises pymysql.MySQLError, OSError.
        """
        self.query(sql, unbuffered=True)
        self._result.unbuffered_active = False  # PyMySQL does not read on
        assert self._sock is not None
        self._sock.settimeout(self._read_timeout)  # not what was left of the time for the descriptions
        while True:
            data = self._rfile.read1(PIECE)  # type: ignore[union-attr]  # it is a BufferedReader
            if not data:
                raise pymysql.OperationalError(CR.CR_SERVER_LOST, "the server closed the connection within a result")
            yield data

    def command(self, command: int, payload: bytes) -> None:
        """Send a command whose answer is OK or an error packet. Raises MySQLError."""
        with self._exchange("answer"):
            self._execute_command(command, payload)  # type: ignore[attr-defined]
            self._read_ok_packet()

    def shutdown(self) -> None:
        """End the connection without releasing it, from any thread."""
        sock = self._sock
        if sock is not None:
            end(sock)

    def detach(self) -> socket.socket:
        """Hand over the socket (an SSLSocket under TLS); no answer may be outstanding."""
        sock, reader = self._sock, self._rfile
        assert sock is not None
        assert reader is not None
        reader.close()
        self._sock = self._rfile = None
        return sock

    # --- the limits --------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _exchange(self, what: str) -> Iterator[None]:
        """Hold the server to the limits of a login or an answer, and turn what makes no sense into a MySQLError."""
        if self._allowance is not None:  # a part of one that is held to its limits
            yield
            return
        self._allowance = _Allowance(self.limits, what)
        self._waits_since = 0.0
        try:
            yield
        except (pymysql.MySQLError, OSError):
            raise
        except Exception as error:
            # PyMySQL takes what it reads for granted: a byte too few is an IndexError, a struct.error, a TypeError …
            self._force_close()  # type: ignore[attr-defined]
            text = f"Malformed packet ({type(error).__name__}: {error})"
            raise pymysql.OperationalError(CR.CR_MALFORMED_PACKET, text) from error
        finally:
            self._allowance = None
            self._current_timeout = -1.0  # PyMySQL sets its own again

    def _read_ok_packet(self) -> Any:
        with self._exchange("answer"):
            return super()._read_ok_packet()  # type: ignore[misc]

    def _read_packet(self, packet_type: type[MysqlPacket] = MysqlPacket) -> MysqlPacket:
        if self._allowance is not None and packet_type is FieldDescriptorPacket:
            self._allowance.columns += 1
            if self._allowance.columns > MAX_COLUMNS:
                raise pymysql.OperationalError(CR.CR_MALFORMED_PACKET, f"a result of more than {MAX_COLUMNS} columns")
        packet: MysqlPacket = super()._read_packet(packet_type)  # type: ignore[no-untyped-call]
        return packet

    def _read_bytes(self, num_bytes: int) -> bytes:
        allowance = self._allowance
        if allowance is None:
            data: bytes = super()._read_bytes(num_bytes)  # type: ignore[misc]
            return data
        try:
            allowance.take(num_bytes)
            found = self._receive(num_bytes)
            if len(found) == num_bytes:
                return found
            pieces = bytearray(found)
            while len(pieces) < num_bytes:
                piece = self._receive(num_bytes - len(pieces))
                if not piece:
                    raise ConnectionResetError("it closed the connection")
                pieces += piece
        except OSError as error:
            self._force_close()  # type: ignore[attr-defined]
            if isinstance(error, TimeoutError):
                allowance.seconds()  # raises LimitError when it was that
            text = f"Lost connection to MySQL server during query ({error})"
            raise pymysql.OperationalError(CR.CR_SERVER_LOST, text) from error
        except LimitError:
            self._force_close()  # type: ignore[attr-defined]
            raise
        return bytes(pieces)

    def _receive(self, size: int) -> bytes:
        """Return up to ``size`` bytes: those that are there, or else the first ones that come in time."""
        if time.monotonic() - self._waits_since > TOLERANCE:
            self._wait_at_most(self._read_timeout)
        received: bytes = self._rfile.read1(min(size, PIECE))  # type: ignore[union-attr]  # it is a BufferedReader
        return received

    def _write_bytes(self, data: bytes) -> None:
        if self._allowance is not None:
            # It holds for the handshake of TLS, too, which PyMySQL begins without a time of its own.
            self._wait_at_most(self._write_timeout)
            self._current_timeout = self._write_timeout
        super()._write_bytes(data)  # type: ignore[misc]
        self._waits_since = 0.0

    def _wait_at_most(self, seconds: float | None) -> None:
        """Set how long the socket waits. To do so for each packet would take most of the time: hence the tolerance."""
        assert self._allowance is not None
        assert self._sock is not None
        left = self._allowance.seconds()
        self._sock.settimeout(left if seconds is None else min(left, seconds))
        self._waits_since = time.monotonic()

    # --- the password ------------------------------------------------------------------------------------------------

    def _is_proven(self) -> bool:
        """Tell whether the right server answers, or will when TLS has begun."""
        return self._verified or (self._sock is not None and is_local(self._sock))

    def _get_server_information(self) -> None:
        super()._get_server_information()  # type: ignore[misc]
        if self._auth_plugin_name == "sha256_password" and not self._is_proven():
            # PyMySQL would send the password at once. A server whose account needs this plugin asks for it.
            self._auth_plugin_name = "mysql_native_password"

    def _get_auth_plugin_handler(self, plugin_name: bytes) -> "_GuardedPlugin | None":
        """Return the handler that answers for a plugin; None lets PyMySQL do it."""
        name = plugin_name.decode("ascii", "backslashreplace")
        if not self.password or self._is_proven() or name in _HASHING:
            return None
        return _GuardedPlugin(self, name)

    def send_encrypted(self, plugin: str) -> MysqlPacket:
        """Send the password encrypted with the server's own key, and return the answer. Raises ExposedPasswordError.

        Servers take it so on a connection without TLS only: with TLS they expect clear text.
        """
        if self.server_public_key is None or isinstance(self._sock, ssl.SSLSocket):
            how = "in clear text" if isinstance(self._sock, ssl.SSLSocket) else "by a key that it sends itself"
            raise ExposedPasswordError(plugin, how, takes_key=True)
        self.protection = Protection.KEY
        return self.exchange_packets(_auth.sha2_rsa_encrypt(self.password, self.salt, self.server_public_key))

    def exchange_packets(self, payload: bytes) -> MysqlPacket:
        """Send a packet of the authentication and return the answer. Raises MySQLError."""
        self.write_packet(payload)
        packet = self._read_packet()
        packet.check_error()
        return packet


class _GuardedPlugin:
    """Answers a server that is not proven to be the right one, for the plugins that may send the password."""

    def __init__(self, session: MysqlSession, name: str) -> None:
        self._session = session
        self._name = name

    def authenticate(self, packet: MysqlPacket) -> MysqlPacket:
        """Answer a packet of the authentication, and return the one that comes back. Raises MySQLError."""
        session = self._session
        if packet.is_auth_switch_request():
            salt: bytes = packet.read_all()  # type: ignore[no-untyped-call]
            session.salt = salt.removesuffix(b"\0")
        match self._name:
            case "caching_sha2_password":
                if packet.is_auth_switch_request():
                    packet = session.exchange_packets(_auth.scramble_caching_sha2(session.password, session.salt))
                    if not packet.is_extra_auth_data():
                        return packet
                return self._go_on(packet.get_bytes(1))
            case "sha256_password":
                return session.send_encrypted(self._name)
            case "mysql_clear_password" | "dialog":
                raise ExposedPasswordError(self._name, "in clear text", takes_key=False)
        text = f"Authentication plugin {self._name!r} is not supported"
        raise pymysql.OperationalError(CR.CR_AUTH_PLUGIN_CANNOT_LOAD, text)

    def _go_on(self, verdict: bytes) -> MysqlPacket:
        if verdict == _FAST_AUTH_SUCCESS:
            self._session.protection = Protection.CACHE
            packet = self._session._read_packet()  # noqa: SLF001
            packet.check_error()
            return packet
        if verdict == _FULL_AUTHENTICATION:
            return self._session.send_encrypted(self._name)
        raise pymysql.OperationalError(CR.CR_MALFORMED_PACKET, f"an unknown verdict of {self._name}")
