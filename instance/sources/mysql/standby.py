"""Whether a server can be read in the place of another one: it has, or will have, what was read of that."""

import hashlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ....protocol.canal import entry_pb2 as pb
from ....protocol.canal.packet_pb2 import Messages
from ....protocol.errors import SourceChangedError, SourceError
from ....protocol.gtid import Transactions
from ....protocol.position import Position
from ....store.cursor import Cursor
from ....store.ring import Flag, Kind, Ring
from ....store.track import Track
from ...source import Feed
from .config import MysqlConfig
from .connection import BinlogPlace, Connection
from .start import StartFinder, or_seek

logger = logging.getLogger(__name__)

GLANCE: Final = 0.05
"""Seconds between two looks at what a replica has executed."""
GRACE: Final = 1.0
"""Seconds for which transactions may still arrive that a replica has not received."""


class Backlog:
    """What a server, if it is a replica, has received and not executed yet."""

    def __init__(self, binlog: Connection) -> None:
        """What it receives until shortly after now counts."""
        self._binlog = binlog
        self._until = time.monotonic() + GRACE
        self._wanted: list[BinlogPlace] | None = None

    def is_left(self) -> bool:
        """Whether something is left of it, or may still be received. Raises SourceError."""
        found = self._binlog.applying()
        if found == []:
            return False
        if time.monotonic() < self._until:
            return True
        if self._wanted is None:
            self._wanted = [received for _, received in found or []]
            logger.info("%s has still to execute what it has received", self._binlog.name)
        return any(it < wanted for (it, _), wanted in zip(found or [], self._wanted, strict=False))


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
    backlog = Backlog(binlog)
    while True:
        is_left = backlog.is_left()  # before it is asked what is executed: that may be the last of it
        missing = finder.missing(place).without(accepted)
        if not missing or not is_left:
            break
        if stopping.wait(GLANCE):
            raise SourceError("the destination stops")
    finder.go_on_after(place, missing)
    return missing


class Probe:
    """Runs the health check of a server, over a connection of its own."""

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

    def shutdown(self) -> None:
        """End the connection at once, also what waits for an answer; any thread may call this."""
        connection = self._connection
        if connection is not None:
            connection.shutdown()


SCANNED: Final = 1 << 14
"""Slots of a ring through which a binlog is looked through."""
MOST_COMPARED: Final = 64
"""Transactions that are compared at most."""

Key = tuple[int, int, int]
"""What a transaction is recognized by before its rows are compared: server, time in ms, number of rows."""


class Alike:
    """Looks for the last transactions that were read of one server in the binlog of another, without GTIDs.

    Replication keeps server id and times of a transaction, and its rows. What was read last has to be there, in the
    same order, nothing between, and exactly once.
    """

    def __init__(self, place: Cursor, sample: bytes, name: str, destination: str) -> None:
        """``sample`` ends at the place; ``name`` is what the other server is called.

        Raises SourceChangedError when there is nothing to look for.
        """
        self._place, self._name, self._destination = place, name, destination
        self._wanted = list(transactions(sample))[-MOST_COMPARED:]
        self._keys = {it.key for it in self._wanted}
        if not self._wanted:
            raise SourceChangedError(
                f"it is unknown where the stream would resume on {name}: without GTIDs the last transactions are"
                " compared, and none was read since the start. Switch when some have come, set gtid_mode = ON at both"
                f" servers, {or_seek(destination)}"
            )

    @property
    def earliest_ms(self) -> int:
        """When the first of them was made."""
        return self._wanted[0].key[1]

    def find(self, ring: Ring, parser: Feed, is_over: Callable[[], bool], stopping: threading.Event) -> list[Position]:
        """Read what a parser puts into a ring until it is over; return the places after what was looked for.

        Raises SourceError when the event is set, and what keeps the parser from reading.
        """
        track, places = Track(ring), list[Position]()
        seen: deque[str] = deque(maxlen=len(self._wanted))
        wanted = [it.digest for it in self._wanted]
        while True:
            is_last = is_over()
            start = ring.first
            for stop in _ends(ring):
                if (digest := self._digest(ring, start, stop)) is not None:
                    seen.append(digest)
                    if list(seen) == wanted and (place := track.position_before(stop)) is not None:
                        places.append(place)
                start = stop
            if start > ring.first:
                track.free_to(start)
            elif ring.waiting:  # a transaction that is larger than the ring is none of those, which were all in one
                seen.append("")
                track.free_to(ring.next)
            elif is_last:
                return places
            elif parser.failure is not None:
                raise parser.failure
            elif stopping.wait(GLANCE):
                raise SourceError("the destination stops")

    def _digest(self, ring: Ring, start: int, stop: int) -> str | None:
        """Return what tells a transaction from others; None for one without changes."""
        _, _, rows, size = ring.measure(start, stop)
        slots = [ring.slot(it) for it in range(start, stop) if ring.slot(it).kind in _CHANGES]
        if not slots or not size:
            return None
        if (slots[-1].server_id, slots[-1].execute_ms, rows) not in self._keys:
            return ""
        found = list(transactions(b"".join(ring.read(start, stop).slices)))
        return found[0].digest if len(found) == 1 else ""

    def only(self, places: Sequence[Position]) -> Position:
        """Return the one place that was found. Raises SourceChangedError if there are none or several."""
        if len(places) == 1:
            return places[0]
        what = "are not there in this order" if not places else f"are there {len(places)} times"
        raise SourceChangedError(
            f"it is unknown where the stream would resume on {self._name}: the last {len(self._wanted)} transactions"
            f" that were read, up to {self._place.position}, {what}. If it is a replica, switch when it has caught up;"
            f" set gtid_mode = ON at both servers, {or_seek(self._destination)}"
        )


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What a transaction is recognized by."""

    key: Key
    digest: str


def transactions(data: bytes) -> Iterator[Fingerprint]:
    """Give the whole transactions of entries, framed as in `Messages`, that change something."""
    changes: list[pb.Entry] = []
    has_begun = False
    for framed in Messages.FromString(data).messages:
        entry = pb.Entry.FromString(framed)
        if entry.entryType == pb.TRANSACTIONBEGIN:
            changes, has_begun = [], True
        elif entry.entryType == pb.TRANSACTIONEND:
            if changes and has_begun:
                yield _fingerprint(changes)
            changes, has_begun = [], False
        elif entry.header.eventType != pb.QUERY:  # a source may leave the texts of statements out
            if has_begun:
                changes.append(entry)
            else:  # a statement of its own
                yield _fingerprint([entry])


def _fingerprint(entries: Sequence[pb.Entry]) -> Fingerprint:
    """Servers may cut the rows of a transaction into events in another way, and number tables otherwise."""
    digest, rows = hashlib.sha256(), 0
    for entry in entries:
        header, change = entry.header, pb.RowChange.FromString(entry.storeValue)
        about = (header.schemaName, header.tableName, change.eventType, change.sql if change.isDdl else "")
        for row in change.rowDatas or [pb.RowData()]:
            digest.update(repr((*about, row.SerializeToString(deterministic=True))).encode())
        rows += len(change.rowDatas)
    last = entries[-1].header
    return Fingerprint((last.serverId, last.executeTime, rows), digest.hexdigest())


def _ends(ring: Ring) -> Iterator[int]:
    """Give the slot after each transaction that the ring holds as a whole."""
    for sequence in range(ring.first, ring.next):
        if ring.slot(sequence).flags & Flag.BOUNDARY:
            yield sequence + 1


_CHANGES: Final = frozenset({Kind.ROW_DATA, Kind.DDL})
