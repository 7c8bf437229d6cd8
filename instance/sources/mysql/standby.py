"""Whether a server can be read in the place of another one: it has, or will have, what was read of that."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from ....protocol.errors import SourceError
from ....protocol.gtid import Transactions
from ....store.cursor import Cursor
from .config import MysqlConfig
from .connection import Connection
from .start import StartFinder

logger = logging.getLogger(__name__)

GLANCE: Final = 0.05
"""Seconds between two looks at what a replica has executed."""
GRACE: Final = 1.0
"""Seconds for which transactions may still arrive that a replica has not received."""


def lacking(
    binlog: Connection, finder: StartFinder, place: Cursor, accepted: Transactions, stopping: threading.Event
) -> Transactions:
    """Return the transactions before a place of another server that this one does not have, and will not get.

    A replica may have received them and not executed them yet: that is waited for, however long it takes. Then check
    that the stream can go on here after the place. Raises:
        SourceChangedError: it cannot be known.
        PurgedError: what comes next is purged here.
        SourceError: the server does not answer, or the event was set.
    """
    begin = time.monotonic()
    told = False
    while True:
        missing = finder.missing(place).without(accepted)
        applies = bool(missing) and binlog.applies()
        if not missing or (not applies and time.monotonic() - begin > GRACE):
            break
        if applies and not told:
            told = True
            logger.info("%s has still to execute what it has received: %s is missing", binlog.name, missing)
        if stopping.wait(GLANCE):
            raise SourceError("the destination stops")
    finder.go_on_after(place, missing)
    return missing


class Probe:
    """Asks a server whether it lives, over a connection of its own."""

    def __init__(self, config: MysqlConfig, connect: Callable[[MysqlConfig], Connection] = Connection) -> None:
        """Nothing is asked before the first call."""
        seconds = float(config.detecting_interval)
        limits = {"so_timeout": config.detecting_interval, "login_timeout": seconds, "answer_timeout": seconds}
        self._config = config.model_copy(update=limits)
        self._connect = connect
        self._connection: Connection | None = None

    def __call__(self) -> None:
        """Ask once. Raises SourceError."""
        if self._connection is None:
            self._connection = self._connect(self._config)
        try:
            self._connection.query(self._config.detecting_sql)
        except SourceError:
            self.close()
            raise

    def close(self) -> None:
        """End the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
