"""Sessions on the source: logging in, asking, and checking that it can be replicated.

Whatever a source answers, a failure is a SourceError that names the source.
"""

import contextlib
import logging
import re
import socket
import ssl
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self

import pymysql
from pymysql.constants import COMMAND, CR, ER

from ....login.session import ExposedPasswordError, LimitError, MysqlSession, Protection, SessionLimits
from ....login.ssl_mode import SslMode
from ....login.tls import tls_arguments
from ....protocol.errors import SluiceError, SourceError
from ....protocol.position import file_number
from .config import Address, MysqlConfig

logger = logging.getLogger(__name__)

CONNECTIONS = 2
"""How many connections a parser opens to its source: one for the dump, one to look up a start or columns of tables."""

OLDEST_MYSQL = (5, 6)
OLDEST_MARIADB = (10, 2)

_OTHER_NAME = (62, 64)
"""OpenSSL's codes for a certificate of another host or address."""

_VARIABLES = (
    "binlog_checksum",
    "binlog_format",
    "binlog_row_image",
    "binlog_row_metadata",
    "gtid_mode",
    "log_bin",
    "lower_case_table_names",
    "server_id",
    "server_uuid",
    "system_time_zone",
    "time_zone",
    "version",
)


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What is known of a source from its variables."""

    version: tuple[int, ...]
    version_text: str
    mariadb: bool
    server_id: int
    source: str
    """How positions name the source: by server_uuid, or server_id for MariaDB."""
    log_bin: bool
    gtid: bool
    """Transactions have GTIDs: always on MariaDB, with gtid_mode=ON on MySQL."""
    gtid_mode: str
    checksum: str
    binlog_format: str
    row_image: str
    row_metadata: str
    """FULL: table maps name their columns; MINIMAL, NO_LOG or "" (too old to have any): they do not."""
    lower_case_table_names: int
    time_zone: str

    @property
    def only_open(self) -> bool:
        """Its events say all of each column, but for what MariaDB leaves open: see `Catalog.only_open`."""
        return self.mariadb and self.row_metadata == "FULL"

    @property
    def asks_schemas(self) -> bool:
        """Its events do not say all of each column."""
        return self.row_metadata != "FULL" or self.only_open

    @property
    def renames_silently(self) -> bool:
        """Its tables are as old after RENAME TABLE as before; elsewhere they are then as old as the statement."""
        return not self.mariadb and self.version >= (8, 0)

    @property
    def flavour(self) -> str:
        """The name of the product."""
        return "MariaDB" if self.mariadb else "MySQL"

    @classmethod
    def of(cls, variables: dict[str, str]) -> "ServerFacts":
        """Read the facts from the source's global variables. Raises KeyError and ValueError."""
        version_text = variables["version"]
        mariadb = "mariadb" in version_text.lower()
        # A MariaDB 10 behind some proxies still says 5.5.5-10.11.18-MariaDB.
        numbers = re.match(r"(?:5\.5\.5-)?(\d+)\.(\d+)(?:\.(\d+))?", version_text)
        version = tuple(int(n or 0) for n in numbers.groups()) if numbers else (0, 0, 0)
        server_id = int(variables["server_id"])
        source = str(server_id) if mariadb else variables.get("server_uuid", str(server_id))
        if not re.fullmatch(r"[0-9A-Za-z-]{1,64}", source):
            raise ValueError(f"server_uuid is {source[:LONGEST_TEXT]!r}")
        gtid_mode = variables.get("gtid_mode", "")
        time_zone = variables["time_zone"]
        return cls(
            version=version,
            version_text=version_text,
            mariadb=mariadb,
            server_id=server_id,
            source=source,
            log_bin=variables["log_bin"] == "ON",
            gtid=mariadb or gtid_mode == "ON",
            gtid_mode=gtid_mode,
            checksum=variables.get("binlog_checksum", "NONE"),
            binlog_format=variables.get("binlog_format", "ROW"),
            row_image=variables.get("binlog_row_image", "FULL"),
            row_metadata=variables.get("binlog_row_metadata", ""),
            lower_case_table_names=int(variables["lower_case_table_names"]),
            time_zone=variables["system_time_zone"] if time_zone == "SYSTEM" else time_zone,
        )


BinlogPlace = tuple[int, int]
"""A place in the binlog of a replica's source: the number of the file, and the offset in it."""


class ShownEvent(NamedTuple):
    """An event as SHOW BINLOG EVENTS lists it."""

    offset: int
    kind: str
    info: bytes
    """The text of a statement, if the event has one; a binary literal in it need not be valid in any character set."""


class Connection:
    """A session on the source. Every failure is a SourceError that names the source and never the password."""

    def __init__(self, config: MysqlConfig, address: Address | None = None) -> None:
        """Log in to `address`, by default the configured master; raises SourceError."""
        self.address = address or config.master_address
        self._ssl_mode = config.ssl_mode
        self._session = MysqlSession(
            **login_arguments(config, self.address),
            database=config.default_database_name or None,
            autocommit=True,
            program_name="sluice",
            defer_connect=True,
        )
        self._session.decoders = {}  # values stay texts: the callers say what they are
        try:
            self._session.connect()
        except (pymysql.MySQLError, OSError) as error:
            raise SourceError(
                f"cannot log in to {self.name} as {config.db_username!r}: {_text(error)}{_cure(error)}"
            ) from error
        try:
            variables = self.query(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN {_VARIABLES}", row=(text, text))
            self.facts = ServerFacts.of(dict(variables))
        except (KeyError, ValueError) as error:
            self.close()
            raise SourceError(
                f"{self.name} does not answer like a MySQL or MariaDB server: its variables: {error}"
            ) from error
        except SourceError:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def name(self) -> str:
        """The address as text."""
        return str(self.address)

    @property
    def protection(self) -> Protection:
        """What kept the password safe when logging in."""
        return self._session.protection

    @property
    def exposure(self) -> str:
        """What will refuse the login some day, although it worked, and what to set; empty if nothing will."""
        if self.protection is not Protection.CACHE:
            return ""
        return (
            "the source remembers the password from an earlier login (caching_sha2_password), and took a hash of it."
            " When it restarts, or the account is changed, it asks for the password itself, and this login is refused:"
            f" set {KEY_PROOF}"
        )

    @property
    def unchecked_tls(self) -> str:
        """What to know about TLS that checks nothing, and what to set; empty without such TLS, or if it is harmless."""
        if self.protection is not Protection.HASH or self._ssl_mode is SslMode.DISABLED:
            return ""
        return (
            f"canal.instance.master.sslMode = {self._ssl_mode} adds no protection: it takes any certificate, so another"
            f" server in the source's place can read and change what is sent; set {PROOF}"
        )

    @property
    def session(self) -> MysqlSession:
        """The session itself, for what reads tables: values come as texts."""
        self._session.use_unicode = True
        return self._session

    def query(
        self, sql: str, parameters: Sequence[object] = (), row: Sequence[Callable[[Any], Any]] = ()
    ) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows, none for a statement without a result. Raises SourceError.

        Values are texts, or bytes if the column is binary. `row` converts the values of the first columns, which it
        gets as bytes, and leaves out the others. What it cannot convert is an answer that a source never gives.
        """
        statement = sql
        self._session.use_unicode = not row
        try:
            with self._session.cursor() as cursor:
                statement = cursor.mogrify(sql, parameters or None)
                cursor.execute(statement)
                rows = list(cursor.fetchall())
        except (pymysql.MySQLError, OSError) as error:
            cure = _cure(error) if isinstance(error, LimitError) else ""
            is_long = isinstance(error, LimitError) and error.limit == "answer_bytes"
            refusal = LongAnswerError if is_long else _RefusedError
            raise refusal(error, f"{self.name} refuses {statement!r}: {_text(error)}{cure}") from error
        if not row:
            return rows
        try:
            return [
                tuple(convert(value) for convert, value in zip(row, found[: len(row)], strict=True)) for found in rows
            ]
        except (ValueError, TypeError, SluiceError) as error:
            raise SourceError(f"{self.name} answers {statement!r} with what cannot be understood: {error}") from error

    def ask(self, sql: str, parameters: Sequence[object] = (), *, row: Sequence[Callable[[Any], Any]]) -> Any:
        """Run a statement that has one row, and return its value, or a tuple if `row` has several columns.

        Raises SourceError.
        """
        rows = self.query(sql, parameters, row)
        if len(rows) != 1:
            raise SourceError(f"{self.name} answers {sql!r} with {len(rows)} rows")
        return rows[0] if len(row) > 1 else rows[0][0]

    def command(self, command: int, payload: bytes) -> None:
        """Send a protocol command whose answer is OK. Raises SourceError."""
        try:
            self._session.command(command, payload)
        except (pymysql.MySQLError, OSError) as error:
            raise _RefusedError(error, f"{self.name} refuses command {command:#04x}: {_text(error)}") from error

    def register_replica(self, server_id: int) -> None:
        """COM_REGISTER_SLAVE: the source lists us among its replicas, and checks the privilege to be one.

        Layout (sql/rpl_source.cc): server id 4; host, user and password, each with a length byte (user and password
        are for display and stay empty); port 2; rank 4; source id 4.
        """
        host = socket.gethostname().encode()[:60]
        payload = struct.pack("<IB", server_id, len(host)) + host + struct.pack("<BBHII", 0, 0, 0, 0, 0)
        self.command(COMMAND.COM_REGISTER_SLAVE, payload)

    def end_of_binlog(self) -> tuple[str, int, str]:
        """Return the binlog's current file, its end, and the executed GTID set there ("" for none)."""
        file, offset, *rest = self.binlog_status()
        if self.facts.mariadb:
            # The position of the same instant: @@gtid_binlog_pos may be of a later one.
            gtids = self.ask("SELECT BINLOG_GTID_POS(%s, %s)", (file, offset), row=(optional_text,)) or ""
        else:
            gtids = text(rest[2]).replace("\n", "") if len(rest) > 2 else ""
        return file, offset, gtids

    def binlog_status(self) -> tuple[Any, ...]:
        """Return the server's row on the state of its binlog: the current file, its end, and more."""
        modern = not self.facts.mariadb and self.facts.version >= (8, 2)
        statement = "SHOW BINARY LOG STATUS" if modern else "SHOW MASTER STATUS"
        rows = self.query(statement)
        if not rows:
            raise SourceError(f"{self.name} does not write a binlog (log_bin is off)")
        file, offset, *rest = rows[0]
        return binlog_file(file), number(offset), *rest

    def binlog_files(self) -> list[tuple[str, int]]:
        """Return the files that the source still has, oldest first, each with its size: one at least."""
        files = self.query("SHOW BINARY LOGS", row=(binlog_file, number))
        if not files:
            raise SourceError(f"{self.name} has no binlog files (log_bin is off)")
        return [(name, size) for name, size in files]

    def applying(self) -> list[tuple[BinlogPlace, BinlogPlace]] | None:
        """Return how far a replica is that executes: for each of its sources what it has executed and received.

        Empty if it is none; None if the account may not know (MariaDB: SLAVE MONITOR, MySQL: REPLICATION CLIENT).
        """
        facts = self.facts
        modern = not facts.mariadb and facts.version >= (8, 0, 22)
        statement = "SHOW ALL SLAVES STATUS" if facts.mariadb else f"SHOW {'REPLICA' if modern else 'SLAVE'} STATUS"
        try:
            with self._session.cursor(pymysql.cursors.DictCursor) as cursor:
                self._session.use_unicode = True
                cursor.execute(statement)
                rows = list(cursor.fetchall())
        except (pymysql.MySQLError, OSError) as error:
            logger.info("%s does not report what it still has to execute: %s", self.name, _text(error))
            return None
        found = []
        for row in rows:
            names = {re.sub("(?i)slave", "Replica", re.sub("(?i)master", "Source", key)): it for key, it in row.items()}
            if names.get("Replica_SQL_Running") != "Yes":
                continue
            try:
                executed = _place(names["Relay_Source_Log_File"], names["Exec_Source_Log_Pos"])
                received = _place(names["Source_Log_File"], names["Read_Source_Log_Pos"])
            except (KeyError, ValueError, TypeError) as error:
                raise SourceError(
                    f"{self.name} answers {statement!r} with what cannot be understood: {error}"
                ) from error
            found.append((executed, received))
        return found

    def shown_events(self, where: str, *parameters: object) -> list[ShownEvent]:
        """Ask for events; the argument follows SHOW BINLOG EVENTS. Raises SourceError, LongAnswerError."""
        columns = (optional_text, number, text, optional_text, optional_text, bytes)
        rows = self.query(f"SHOW BINLOG EVENTS {where}", parameters, row=columns)
        return [ShownEvent(offset, kind, info) for _, offset, kind, _, _, info in rows]

    def detach(self) -> socket.socket:
        """Hand over the socket; the connection is closed for everything else."""
        return self._session.detach()

    def shutdown(self) -> None:
        """Interrupt, from any thread, a call that waits for an answer: it fails with SourceError."""
        self._session.shutdown()

    def close(self) -> None:
        """Log out; does nothing if the connection is closed already."""
        if self._session.open:
            with contextlib.suppress(pymysql.MySQLError):  # a source that is gone needs no goodbye
                self._session.close()

    def check(self, config: MysqlConfig, server_id: int = 0) -> None:
        """Raise one SourceError with all that keeps the source from being replicated, and the SQL that fixes it.

        `server_id` is the one that the dump will use, 0 for a configured or generated one that cannot clash.
        """
        problems = [*self._settings(config), *self._privileges(), *self._clashes(server_id)]
        if problems:
            lines = [f"{number}. {what}\n   {cure}" for number, (what, cure) in enumerate(problems, 1)]
            raise SourceError(f"{self.name} ({self.facts.version_text}) cannot be replicated:\n" + "\n".join(lines))

    def _settings(self, config: MysqlConfig) -> list[tuple[str, str]]:
        facts, problems = self.facts, []
        oldest = OLDEST_MARIADB if facts.mariadb else OLDEST_MYSQL
        if facts.version < oldest:
            wanted = f"{facts.flavour} {oldest[0]}.{oldest[1]}"
            problems.append((f"version {facts.version_text} is not supported", f"upgrade it to {wanted} or later"))
        if not facts.log_bin:
            cure = "set in its option file, section [mysqld]: log_bin=mysql-bin, then restart it"
            problems.append(("log_bin is OFF: it writes no binlog", cure))
        if facts.server_id == 0:
            problems.append(("server_id is 0: it serves no replica", "SET GLOBAL server_id = 1; -- any unused number"))
        if facts.binlog_format not in config.binlog_format:
            cure = "SET GLOBAL binlog_format = 'ROW'; -- then let the applications reconnect"
            problems.append((f"binlog_format is {facts.binlog_format}: changes are not written as rows", cure))
        elif facts.binlog_format != "ROW":
            logger.warning("%s has binlog_format %s: changes may be missing", self.name, facts.binlog_format)
        if facts.row_image.removesuffix("_NODUP") not in config.binlog_image:  # MariaDB's FULL_NODUP
            cure = f"SET GLOBAL binlog_row_image = '{config.binlog_image[0]}'; -- or allow it in the configuration"
            problems.append((f"binlog_row_image is {facts.row_image}, which the configuration does not allow", cure))
        if config.filter_where and facts.row_image == "MINIMAL":
            cure = "SET GLOBAL binlog_row_image = 'FULL'; -- or leave sluice.instance.filter.where empty"
            problems.append(("binlog_row_image is MINIMAL: rows lack the columns of their conditions", cure))
        if config.gtid_on and not facts.gtid:
            cure = "set gtid_mode=ON and enforce_gtid_consistency=ON in its option file, or gtidon=false here"
            problems.append((f"gtid_mode is {facts.gtid_mode or 'OFF'}, but the configuration asks for GTIDs", cure))
        return problems

    def _privileges(self) -> list[tuple[str, str]]:
        """Try what needs the privileges: roles and proxies make the text of SHOW GRANTS unreliable."""
        problems = []
        modern = self.facts.mariadb and self.facts.version >= (10, 5)
        account = "'{}'@'{}'".format(*self.ask("SELECT CURRENT_USER()", row=(text,)).rpartition("@")[::2])
        if self.facts.log_bin and not self._may(self.end_of_binlog):
            privilege = "BINLOG MONITOR" if modern else "REPLICATION CLIENT"
            problems.append((f"the privilege {privilege} is missing", f"GRANT {privilege} ON *.* TO {account};"))
        if not self._may(lambda: self.register_replica(PROBE_SERVER_ID)):
            privilege = "REPLICATION SLAVE"
            problems.append((f"the privilege {privilege} is missing", f"GRANT {privilege} ON *.* TO {account};"))
        visible = self.ask(
            "SELECT COUNT(*) FROM information_schema.schemata"
            " WHERE schema_name NOT IN ('information_schema', 'performance_schema')",
            row=(number,),
        )
        if not visible:
            what = "no schema can be seen: the names and types of columns come from information_schema"
            problems.append((what, f"GRANT SELECT ON *.* TO {account}; -- or on the schemas subscribed to"))
        return problems

    def _may(self, action: Any) -> bool:
        try:
            action()
        except _RefusedError as error:
            if error.code in _DENIED:
                return False
            raise
        return True

    def _clashes(self, server_id: int) -> list[tuple[str, str]]:
        if not server_id:
            return []
        if server_id == self.facts.server_id:
            return [(f"slaveId {server_id} is the source's own server_id", "set another canal.instance.mysql.slaveId")]
        modern = not self.facts.mariadb and self.facts.version >= (8, 0, 22)
        try:
            replicas = self.query("SHOW REPLICAS" if modern else "SHOW SLAVE HOSTS", row=(number, text))
        except _RefusedError as error:
            if error.code in _DENIED:  # MariaDB requires another privilege for it; then the clash shows in the dump
                return []
            raise
        return [
            (
                f"slaveId {server_id} is taken by the replica on host {host!r}",
                "set another canal.instance.mysql.slaveId (0 generates one)",
            )
            for replica, host in replicas
            if replica == server_id and host != socket.gethostname()  # from here: ourselves, a moment ago
        ]


PROBE_SERVER_ID = 0xFFFF_FFFF
"""What the check registers as; the registration ends with its connection."""

_DENIED = {
    ER.DBACCESS_DENIED_ERROR,
    ER.ACCESS_DENIED_ERROR,
    ER.SPECIFIC_ACCESS_DENIED_ERROR,
    3879,  # ER_NO_ACCESS_TO_NATIVE_FCT
}


_TOO_MANY = {ER.CON_COUNT_ERROR, ER.TOO_MANY_USER_CONNECTIONS, ER.USER_LIMIT_REACHED}


class _RefusedError(SourceError):
    """A statement failed; `code` is the server's error number, 0 if the connection failed."""

    def __init__(self, cause: Exception, message: str) -> None:
        super().__init__(message)
        self.code: int = cause.args[0] if cause.args and isinstance(cause.args[0], int) else 0


class LongAnswerError(_RefusedError):
    """An answer has more bytes than are allowed; the connection is closed."""


LONGEST_TEXT: Final = 1000
"""Characters of a source's text that an error repeats."""

_LIMIT_KEYS: Final = {
    "login_timeout": "sluice.instance.login.timeout",
    "login_bytes": "sluice.instance.login.maxBytes",
    "answer_timeout": "sluice.instance.answer.timeout",
    "answer_bytes": "sluice.instance.answer.maxBytes",
}

PROOF: Final = (
    "canal.instance.master.sslMode = VERIFY_IDENTITY, or VERIFY_CA with the file of the authority that signed its"
    " certificate in sluice.instance.sslCa"
)
"""What to set so that the password goes to the right source only."""
KEY_PROOF: Final = f"{PROOF}; or without TLS sluice.instance.serverPublicKey, the file of its RSA public key"
"""The same for an account whose password may be encrypted."""


def _text(error: Exception) -> str:
    """Return PyMySQL's text of an error without the tuple around it."""
    code, *rest = error.args or (error,)
    if code == CR.CR_CONN_HOST_ERROR and isinstance(error.__context__, OSError):
        return str(error.__context__)
    return f"{str(rest[0])[:LONGEST_TEXT]} ({code})" if rest else str(code)


def _cure(error: Exception) -> str:
    """Return which settings to look at when a login or a question has failed; empty if unknown."""
    if isinstance(error, ExposedPasswordError):
        return f"; set {KEY_PROOF if error.takes_key else PROOF}"
    if isinstance(error, LimitError):
        return f"; {_LIMIT_KEYS[error.limit]} limits it"
    if error.args and error.args[0] == ER.ACCESS_DENIED_ERROR:
        return "; check canal.instance.dbUsername and canal.instance.dbPassword"
    if error.args and error.args[0] in _TOO_MANY:
        return (
            f"; each destination, and each of its catch-up readers, takes {CONNECTIONS} connections: raise"
            " max_connections there, or what the account is allowed"
        )
    if isinstance(error.__context__, ssl.SSLCertVerificationError) and error.__context__.verify_code not in _OTHER_NAME:
        return "; sluice.instance.sslCa names the file of the authority that signed its certificate"
    if isinstance(error.__context__, (ConnectionRefusedError, TimeoutError, socket.gaierror)):
        return "; check canal.instance.master.address, and whether the server runs there"
    return ""


def login_arguments(config: MysqlConfig, address: Address) -> dict[str, Any]:
    """Return the arguments of a `MysqlSession` to reach and log in to `address`."""
    return {
        "host": address.host,
        "port": address.port,
        "user": config.db_username,
        "password": config.db_password.get_secret_value().encode(),  # a str would go as latin1
        "charset": "utf8mb4",
        "read_timeout": config.so_timeout,
        "write_timeout": config.so_timeout,
        "limits": SessionLimits(config.login_timeout, config.login_bytes, config.answer_timeout, config.answer_bytes),
    } | tls_arguments(config.ssl_mode, config.ssl_ca, config.ssl_cert, config.ssl_key, config.server_public_key)


def _place(file: str, offset: str) -> BinlogPlace:
    """Return a place as a replica names it; before it has begun there is no file."""
    return file_number(file), number(offset)


def text(value: str | bytes) -> str:
    """Return a value as text; MySQL has names in binary columns, too. Raises ValueError."""
    if isinstance(value, bytes):
        return value.decode()
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a text")  # noqa: TRY004  for callers it is one kind of error
    return value


def optional_text(value: str | bytes | None) -> str | None:
    """Return a value as text, or None for NULL. Raises ValueError."""
    return None if value is None else text(value)


def number(value: str | bytes) -> int:
    """Return a value as a whole number; decimals are cut off. Raises ValueError."""
    return int(text(value).partition(".")[0])


def optional_number(value: str | bytes | None) -> int | None:
    """Return a value as a whole number, or None for NULL. Raises ValueError."""
    return None if value is None else number(value)


def binlog_file(value: str | bytes) -> str:
    """Return the name of a binlog file, which ends in a number. Raises ValueError."""
    name = text(value)
    if not re.fullmatch(r"[^\x00-\x1f/]{1,500}\.[0-9]{1,10}", name):
        raise ValueError(f"{name[:LONGEST_TEXT]!r} is not the name of a binlog file")
    return name
