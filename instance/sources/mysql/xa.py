"""XA transactions: how one ends, and where one that is committed was prepared."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Final, Protocol

from ....protocol.errors import DecodeError, SourceError
from ....protocol.position import Position
from ....store.restarts import Restarts
from .connection import Connection, LongAnswerError
from .query import Query

EVENTS: Final = 200
"""Events that are asked for at once; fewer if an answer would be too long: with ``binlog_rows_query_log_events`` some
of them have the texts of whole statements."""
MOST: Final = 4096
"""Prepared transactions that are remembered. Where others were prepared is looked for when they are committed."""
_INHERITED: Final = ""
"""Instead of the xid of the oldest one, as long as only its place is known."""


def commits_in_one_phase(connect: Callable[[], AbstractContextManager[Connection]], file: str, begin: int) -> bool:
    """Whether the XA transaction that begins there ends by ``XA COMMIT … ONE PHASE``; else it ends by ``XA PREPARE``.

    The source is asked, because only the transaction's last event says it. Raises SourceError, also when the source
    does not have its end.
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


def prepared_xid(body: bytes) -> str:
    """Return the xid of an XA_PREPARE event as XA COMMIT has it; empty for one that commits in one phase.

    Its body: one phase 1, format id 4, size of gtrid 4, size of bqual 4, both texts (`XA_prepare_event`,
    libs/mysql/binlog/event/control_events.h). Raises DecodeError.
    """
    format_id, *sizes = (int.from_bytes(body[at : at + 4], "little") for at in (1, 5, 9))
    if len(body) < 13 + sum(sizes):
        raise DecodeError("an XA_PREPARE event that is too short for its fields")
    middle = 13 + sizes[0]
    gtrid, bqual = body[13:middle], body[middle : middle + sizes[1]]
    return "" if body[0] else f"X'{gtrid.hex()}',X'{bqual.hex()}',{format_id}"


def resolved_xid(body: bytes) -> str:
    """Return the xid of a QUERY event that is XA COMMIT or XA ROLLBACK; empty for any other statement."""
    query = Query.parse(body)
    words = query.sql.split(None, 2) if query is not None and query.sql[:2].upper() == b"XA" else []
    is_end = len(words) == 3 and words[1].upper() in (b"COMMIT", b"ROLLBACK")
    return words[2].decode("utf-8", "replace").strip() if is_end else ""


class PreparedPart(Protocol):
    """Gives the packets of a prepared part: a `Dump` from its begin, or what was kept."""

    def receive_into(self, space: memoryview) -> int:
        """Return the number of bytes that were written to the space; 0 at the end."""

    def close(self) -> None:
        """Release it."""


class KeptPart:
    """A prepared part that is small, as the decoder kept it."""

    def __init__(self, packets: bytes) -> None:
        self._packets = memoryview(packets)

    def receive_into(self, space: memoryview) -> int:
        """See `PreparedPart`."""
        size = min(len(space), len(self._packets))
        space[:size] = self._packets[:size]
        self._packets = self._packets[size:]
        return size

    def close(self) -> None:
        """See `PreparedPart`."""


class PreparedTransactions:
    """The XA transactions that were prepared before a place of the stream and are still open, as far as they are known.

    Not all have to be: where a transaction was prepared can be looked for in the binlog.
    """

    def __init__(self, restarts: Restarts, most_bytes: int) -> None:
        """Keep at most ``most_bytes`` of their events, and note in ``restarts`` how far the oldest one goes back."""
        self._restarts = restarts
        self._most_bytes = most_bytes
        self._begins: dict[str, Position] = {}
        self._kept: dict[str, bytes] = {}
        self._bytes = 0
        self.is_complete = False
        """The binlog has no other one that is open."""

    def begin(self, place: Position, restart: Position | None) -> None:
        """Begin at a place. ``restart`` is where the oldest one that is open there was prepared, if it is known."""
        self._begins, self._kept, self._bytes = {}, {}, 0
        if restart is not None:
            self._begins[_INHERITED] = restart
        self._restarts.note(place, restart)

    @property
    def has_unknown(self) -> bool:
        """Whether one is open of which only the place is known."""
        return _INHERITED in self._begins

    def add(self, xid: str, begin: Position, packets: bytes | None, place: Position) -> None:
        """At a place, one was prepared whose events begin at ``begin``."""
        self._forget(xid)
        if len(self._begins) >= MOST:
            self.is_complete = False
            return
        self._begins[xid] = begin
        if packets is not None:
            self._kept[xid] = packets
            self._bytes += len(packets)
        while self._bytes > self._most_bytes:
            self._bytes -= len(self._kept.pop(next(iter(self._kept))))
        self._note(place)

    def discover(self, found: Mapping[str, Position], place: Position) -> None:
        """At a place, these are known to be open."""
        for xid, begin in found.items():
            if xid not in self._begins and len(self._begins) < MOST:
                self._begins[xid] = begin
        if self._begins.get(_INHERITED) in found.values():
            del self._begins[_INHERITED]
            self._note(place)

    def complete(self, place: Position) -> None:
        """At a place, no other one is open."""
        self.is_complete = True
        self._begins.pop(_INHERITED, None)
        self._note(place)

    def find(self, xid: str, at: Position) -> Position | None:
        """Return where one begins that is resolved at a place of the same history; None if that is unknown."""
        begin = self._begins.get(xid)
        return begin if begin is not None and begin.same_history(at) else None

    def kept(self, xid: str) -> bytes | None:
        """Return the events of one as packets, as far as they were kept."""
        return self._kept.get(xid)

    def resolve(self, xid: str, place: Position) -> None:
        """At a place, one was committed or rolled back."""
        self._forget(xid)
        self._note(place)

    def _forget(self, xid: str) -> None:
        self._begins.pop(xid, None)
        self._bytes -= len(self._kept.pop(xid, b""))

    def _note(self, place: Position) -> None:
        same = [begin for begin in self._begins.values() if begin.same_history(place)]
        self._restarts.note(place, min(same, key=lambda begin: begin.order, default=None))
