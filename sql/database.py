"""Databases that jobs read from or write to: where they are, and how to log in. Needs no Spark."""

import contextlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import unquote, urlsplit

import pymysql
from pymysql.constants import CR, ER

from ..login.session import ExposedPasswordError, MysqlSession, SessionLimits
from ..login.ssl_mode import SslMode, tls_options
from ..login.tls import tls_arguments
from ..protocol.errors import BadParameterError, SourceError

READ_TIMEOUT: Final = 600.0
"""Seconds that a statement may be silent."""
LIMITS: Final = SessionLimits(answer_timeout=READ_TIMEOUT, answer_bytes=64 << 20)
"""How much a server may answer at once, and for how long: not what is read in pieces."""


@dataclass(frozen=True, slots=True)
class Database:
    """A MySQL or MariaDB server, and an account on it."""

    host: str
    port: int
    user: str
    password: str = field(default="", repr=False)
    ssl_mode: SslMode = SslMode.PREFERRED
    ssl_ca: str | None = None
    """File of the certificates to trust, instead of the system's. It and those below are opened where the database is
    connected to: by Spark's executors, too."""
    ssl_cert: str | None = None
    ssl_key: str | None = None
    server_public_key: str | None = None
    """File of the server's RSA key, for a password that goes over a connection without TLS."""

    @classmethod
    def of(
        cls,
        url: str,
        *,
        password: str | None = None,
        password_file: str | Path | None = None,
        variable: str = "SLUICE_DATABASE_PASSWORD",
    ) -> Self:
        """Read ``mysql://user@host:port/?sslMode=VERIFY_IDENTITY&sslCa=…&sslCert=…&sslKey=…&serverPublicKey=…``.

        The password is the one given, else that in the file, else that in the environment variable, else empty.

        Raises:
            BadParameterError: the URL is not of a database, holds the password, or the file cannot be read.
        """
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port or 3306
        except ValueError:
            parts, host, port = urlsplit(""), None, 0
        if parts.scheme not in ("mysql", "mariadb") or not host or not parts.username or parts.path not in ("", "/"):
            raise BadParameterError("a database is named as mysql://user@host:port/?sslMode=…", "url")
        if parts.password is not None:
            raise BadParameterError("the password must not stand in the URL of a database, for URLs are logged", "url")
        try:
            more = tls_options(parts.query)
        except ValueError as error:
            raise BadParameterError(f"the URL of a database has {error}", "url") from None
        if ("ssl_cert" in more) != ("ssl_key" in more):
            raise BadParameterError("sslCert and sslKey belong together: give both or neither", "url")
        if "server_public_key" in more and more.get("ssl_mode") is not SslMode.DISABLED:
            raise BadParameterError("serverPublicKey is for connections without TLS: give sslMode=DISABLED too", "url")
        if password is None and password_file is not None:
            try:
                password = Path(password_file).read_text().rstrip("\r\n")
            except OSError as error:
                raise BadParameterError(f"the file of the password: {error}", "passwordFile") from None
        if password is None:
            password = os.environ.get(variable, "")
        return cls(host, port, unquote(parts.username), password, **more)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def connect(self, **arguments: Any) -> "DatabaseSession":
        """Log in, with autocommit and any dates allowed; ``arguments`` are PyMySQL's. Raises SourceError."""
        session = DatabaseSession(
            **{
                "host": self.host,
                "port": self.port,
                "user": self.user,
                "password": self.password.encode(),  # a str would go as latin1
                "charset": "utf8mb4",
                "autocommit": True,
                "limits": LIMITS,
                "read_timeout": READ_TIMEOUT,
                "write_timeout": READ_TIMEOUT,
                "program_name": "sluice",
                "sql_mode": "ALLOW_INVALID_DATES",
                **tls_arguments(self.ssl_mode, self.ssl_ca, self.ssl_cert, self.ssl_key, self.server_public_key),
                **arguments,
            },
            defer_connect=True,
        )
        try:
            session.connect()
        except (pymysql.MySQLError, OSError) as error:
            cure = f"; {_PROOF}" if isinstance(error, ExposedPasswordError) else ""
            raise SourceError(f"cannot log in to {self} as {self.user!r}: {reason(error)}{cure}") from error
        return session


_PROOF: Final = (
    "name it as mysql://…/?sslMode=VERIFY_IDENTITY, or with sslMode=VERIFY_CA&sslCa=FILE, or, for caching_sha2_password"
    " without TLS, with sslMode=DISABLED&serverPublicKey=FILE"
)


class DatabaseSession(MysqlSession):
    """A session with a `Database`."""

    def close(self) -> None:
        """Log out, or just leave where the connection is lost."""
        if self.open:
            with contextlib.suppress(pymysql.MySQLError):  # a server that is gone needs no goodbye
                super().close()


LOST = frozenset(
    {
        CR.CR_CONN_HOST_ERROR,
        CR.CR_SERVER_GONE_ERROR,
        CR.CR_SERVER_LOST,
        CR.CR_SERVER_LOST_EXTENDED,
        ER.SERVER_SHUTDOWN,
        ER.NORMAL_SHUTDOWN,
        ER.CON_COUNT_ERROR,
        4031,  # ER_CLIENT_INTERACTION_TIMEOUT
        3169,  # ER_SESSION_WAS_KILLED
        1927,  # ER_CONNECTION_KILLED of MariaDB
    }
)


def is_lost(error: BaseException) -> bool:
    """Tell whether an error says that the connection broke, so that another one may do."""
    cause = error.__cause__ if isinstance(error, SourceError) else error
    if isinstance(cause, pymysql.MySQLError):
        return bool(cause.args) and (cause.args[0] in LOST or cause.args[0] == 0)
    return isinstance(cause, OSError)


def reason(error: BaseException) -> str:
    """Return PyMySQL's text of an error without the tuple around it."""
    code, *rest = error.args or (error,)
    return f"{rest[0]} ({code})" if rest else str(code)
