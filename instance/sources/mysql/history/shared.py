"""The history of tables in a database of MySQL or MariaDB, for servers that share destinations.

Beside the tables of `database.py` there is `schema_owners`, with the epoch of the server that wrote last: one of an
earlier epoch has lost the destination, although it may not know yet, and is refused.
"""

import contextlib
import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pymysql
from pymysql.constants import CLIENT, ER
from pymysql.cursors import Cursor

from .....login.session import ExposedPasswordError, MysqlSession, SessionLimits
from .....login.tls import tls_arguments
from .....protocol.errors import HistoryError, SourceError
from .....protocol.position import Position
from ..config import BinlogConfig, HistoryUrl
from .database import TABLES
from .file import EndFile

logger = logging.getLogger(__name__)

_TYPES: Final = {
    "number": "BIGINT AUTO_INCREMENT PRIMARY KEY",
    "name": "VARCHAR(200) CHARACTER SET ascii COLLATE ascii_bin",
    "text": "LONGTEXT CHARACTER SET utf8mb4",
    "of_destinations": ", INDEX (destination)",
    "of_stretches": ", INDEX (stretch)",
    "of_places": ", INDEX (place)",
}
_OWNERS: Final = """
CREATE TABLE IF NOT EXISTS schema_owners (destination {name} PRIMARY KEY, epoch BIGINT NOT NULL);
"""
_IDLE: Final = 5
"""Seconds after which the database drops a connection without statements: one that has stopped in the middle of a
transaction would keep all others out."""
_WAIT: Final = 8
"""Seconds that a statement waits for another transaction, and a little more than that may take."""
_LIMITS: Final = SessionLimits(login_timeout=5.0, answer_timeout=120.0, answer_bytes=1 << 30)
_SHORT, _LONG, _FAR = 1.0, 60.0, 1 << 20
"""Progress is noted after `_SHORT` seconds if it is `_FAR` bytes further, else after `_LONG` seconds. Otherwise each
write to a database in the source's own binlog would cause the next one."""


class SharedDatabase:
    """See `HistoryDatabase`. For this server's own readers a file says exactly how far the stream was followed."""

    def __init__(self, config: BinlogConfig, url: HistoryUrl, *, epoch: int | None) -> None:
        """Connect when something is asked or written. `epoch`: of this server's life of the destination, if it is one.

        Raises HistoryError if the files of TLS cannot be loaded.
        """
        self.destination = config.destination
        self._name = f"{url.database} at {url.address}"
        self._epoch = epoch
        files = (url.tls.get(it) for it in ("ssl_ca", "ssl_cert", "ssl_key", "server_public_key"))
        try:
            tls = tls_arguments(url.tls["ssl_mode"], *files)
        except SourceError as error:
            raise HistoryError(f"the history of tables in {self._name} cannot be used: {error}") from error
        self._arguments = {
            "host": url.address.host,
            "port": url.address.port,
            "user": config.tsdb_username,
            "password": config.tsdb_password.get_secret_value().encode(),
            "database": url.database,
            **tls,
        }
        self._session: _Session | None = None
        self._end = EndFile(config.history_folder)
        self.problem = ""
        self._is_made = False  # the tables
        self._noted: Position | None = None
        self._next = 0.0  # monotonic time of the next note at the earliest

    @contextlib.contextmanager
    def reading(self) -> Iterator["_Session | None"]:
        """See `HistoryDatabase.reading`."""
        if self._epoch is not None and not self._is_made:
            with self.writing():  # which keeps out servers of earlier epochs
                pass
        with self._connected() as session:
            yield session if session.execute("SHOW TABLES LIKE 'schema%stretches'").fetchall() else None

    @contextlib.contextmanager
    def writing(self) -> Iterator["_Session"]:
        """See `HistoryDatabase.writing`."""
        with self._connected() as session:
            if not self._is_made:
                for statement in f"{TABLES}{_OWNERS}".format(**_TYPES).split(";")[:-1]:
                    session.execute(statement)
                self._is_made = True
            session.execute("BEGIN")
            self._fence(session)
            yield session
            session.execute("COMMIT")

    def note_end(self, stretch: int, place: Position) -> None:
        """See `HistoryDatabase.note_end`."""
        self._end.write(stretch, place)
        now, last = time.monotonic(), self._noted
        is_far = last is None or last.file != place.file or place.begin - last.begin > _FAR
        if now < self._next + (0.0 if is_far else _LONG):
            return
        self._next, self._noted = now + _SHORT, place
        try:
            with self.writing() as session:
                session.execute("UPDATE schema_stretches SET until = ? WHERE id = ?", (str(place), stretch))
        except HistoryError as error:
            self._next = now + _LONG
            logger.warning("the position of the stream is not recorded, for a minute: %s", error)

    def end(self, stretch: int) -> Position | None:
        """See `HistoryDatabase.end`."""
        return self._end.read(stretch)

    def close(self) -> None:
        """See `HistoryDatabase.close`."""
        self._disconnect()
        self._end.close()

    def _fence(self, session: "_Session") -> None:
        """Hold the row of the owner until the transaction ends. Raises HistoryError where a later one has been here."""
        if self._epoch is None:
            return
        session.execute(
            "INSERT INTO schema_owners VALUES (?, ?) ON DUPLICATE KEY UPDATE epoch = GREATEST(epoch, VALUES(epoch))",
            (self.destination, self._epoch),
        )
        found = session.execute("SELECT epoch FROM schema_owners WHERE destination = ?", (self.destination,))
        ((epoch,),) = found.fetchall()
        if epoch > self._epoch:
            raise HistoryError(
                f"{self._name}: a server has written the history of {self.destination} in epoch {epoch}, this one has"
                f" epoch {self._epoch}. If no other server has the destination, delete its row in schema_owners"
            )

    @contextlib.contextmanager
    def _connected(self) -> Iterator["_Session"]:
        try:
            yield self._connect()
        except (pymysql.MySQLError, OSError) as error:
            self._disconnect()
            text = next(filter(None, reversed(error.args)), "the connection is gone")
            self.problem = (
                f"the history of tables in {self._name} (canal.instance.tsdb.url) cannot be used: {text}{_cure(error)}"
            )
            raise HistoryError(self.problem) from error
        except BaseException:
            self._disconnect()  # which ends its transaction, too
            raise
        else:
            self.problem = ""

    def _connect(self) -> "_Session":
        if self._session is not None:
            try:
                self._session.ping()
            except (pymysql.MySQLError, OSError):
                self._disconnect()
        if self._session is None:
            self._session = _Session(self._arguments)
        return self._session

    def _disconnect(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None


class _Session:
    """A connection that takes SQL as SQLite does."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        """Connect. Raises MySQLError, OSError."""
        self._connection = MysqlSession(
            **arguments,
            charset="utf8mb4",
            autocommit=True,
            client_flag=CLIENT.FOUND_ROWS,  # rowcount then says how many rows there are, also where they have the value
            program_name="sluice",
            read_timeout=_WAIT + 2,
            write_timeout=_WAIT + 2,
            limits=_LIMITS,
            init_command=f"SET SESSION wait_timeout = {_IDLE}, innodb_lock_wait_timeout = {_WAIT}",
        )

    def execute(self, sql: str, row: Sequence[Any] = ()) -> Cursor:
        """See `Session.execute`."""
        cursor = self._connection.cursor()
        cursor.execute(sql.replace("?", "%s"), row or None)
        return cursor

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """See `Session.executemany`."""
        self._connection.cursor().executemany(sql.replace("?", "%s"), list(rows))

    def ping(self) -> None:
        """Ask whether the other side is there. Raises MySQLError, OSError."""
        self._connection.ping(reconnect=False)

    def close(self) -> None:
        """Disconnect."""
        with contextlib.suppress(pymysql.MySQLError):  # closed already
            self._connection.close()


def _cure(error: Exception) -> str:
    """Return what to look at when it is the login that has failed."""
    if isinstance(error, ExposedPasswordError):
        return "; add ?sslMode=VERIFY_IDENTITY&sslCa=FILE to the URL"
    if error.args and error.args[0] == ER.ACCESS_DENIED_ERROR:
        return "; check canal.instance.tsdb.dbUsername and canal.instance.tsdb.dbPassword"
    return ""
