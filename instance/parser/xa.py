"""How an XA transaction of MySQL ends, asked of the source: its first event does not say it, only its last one does."""

from typing import Final

from sluice.instance.parser.connection import Connection
from sluice.protocol.errors import SourceError

EVENTS: Final = 1000
"""That are asked for at once: some MB of the binlog."""


def commits_in_one_phase(connection: Connection, file: str, begin: int) -> bool:
    """Whether the XA transaction that begins there ends by ``XA COMMIT … ONE PHASE``; else it ends by ``XA PREPARE``.

    Raises SourceError, also when the source does not have its end.
    """
    while True:
        rows = connection.query("SHOW BINLOG EVENTS IN %s FROM %s LIMIT %s", (file, begin, EVENTS))
        for _file, _offset, kind, _server, _end, text in rows:
            if kind == "XA_prepare":
                return str(text).startswith("XA COMMIT")
        if len(rows) < EVENTS:
            raise SourceError(f"{connection.name} does not have the end of the XA transaction at {file}:{begin}")
        begin = rows[-1][1]
