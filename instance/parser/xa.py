"""How an XA transaction of MySQL ends, asked of the source: its first event does not say it, only its last one does."""

from typing import Final

from sluice.instance.parser.connection import Connection, number, optional_text, text
from sluice.protocol.errors import SourceError

EVENTS: Final = 200
"""That are asked for at once. With ``binlog_rows_query_log_events`` some of them have the texts of whole statements."""

_COLUMNS: Final = (optional_text, number, text, optional_text, optional_text, text)


def commits_in_one_phase(connection: Connection, file: str, begin: int) -> bool:
    """Whether the XA transaction that begins there ends by ``XA COMMIT … ONE PHASE``; else it ends by ``XA PREPARE``.

    Raises SourceError, also when the source does not have its end.
    """
    while True:
        question = "SHOW BINLOG EVENTS IN %s FROM %s LIMIT %s"
        rows = connection.query(question, (file, begin, EVENTS), row=_COLUMNS)
        for _file, _offset, kind, _server, _end, info in rows:
            if kind == "XA_prepare":
                return bool(info.startswith("XA COMMIT"))
        if len(rows) < EVENTS or rows[-1][1] <= begin:
            raise SourceError(f"{connection.name} does not have the end of the XA transaction at {file}:{begin}")
        begin = rows[-1][1]
