"""How an XA transaction of MySQL ends. The source is asked, because only the transaction's last event says it."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

from ....protocol.errors import SourceError
from .connection import Connection, LongAnswerError

EVENTS: Final = 200
"""Events that are asked for at once; fewer if an answer would be too long: with ``binlog_rows_query_log_events`` some
of them have the texts of whole statements."""


def commits_in_one_phase(connect: Callable[[], AbstractContextManager[Connection]], file: str, begin: int) -> bool:
    """Whether the XA transaction that begins there ends by ``XA COMMIT … ONE PHASE``; else it ends by ``XA PREPARE``.

    Raises SourceError, also when the source does not have its end.
    """
    at, skipped, count = begin, 1, EVENTS  # the first event is known not to be the last one
    while True:
        with connect() as connection:
            try:
                while True:
                    events = connection.shown_events("IN %s FROM %s LIMIT %s, %s", file, at, skipped, count)
                    for event in events:
                        if event.kind == "XA_prepare":
                            return event.info.startswith(b"XA COMMIT")
                    if len(events) < count or events[-1].offset <= at:
                        raise SourceError(
                            f"{connection.name} does not have the end of the XA transaction at {file}:{begin}"
                        )
                    at, skipped, count = events[-1].offset, 1, min(2 * count, EVENTS)
            except LongAnswerError:
                if count == 1:  # the text of one statement is too long
                    skipped += 1
                count = max(count // 4, 1)
