"""Pairs the halves of TiDB's transactions, and gives the whole ones in the order of their commits. It does no I/O.

A TiDB sends a Prewrite, waits for the answer, asks the cluster for a commit_ts, commits, and sends a Commit; or it
sends a Rollback. So whatever is prewritten after a commit_ts has arrived commits later than that. The records stand in
a queue, in the order of their arrival, and leave it at its head, where a Prewrite waits for its end. The greatest
commit_ts that has left the queue bounds what may still come: all up to it is known, and is released, in order.
"""

import struct
from collections import OrderedDict, deque
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import islice
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError as MessageError

from ...protocol.errors import DecodeError
from ...protocol.tidb.binlog_pb2 import Binlog, BinlogType
from ...protocol.tidb.tags import LOGICAL_BITS

PATIENCE: Final = 600_000
"""Milliseconds of the cluster's clock after which a Prewrite without an end is asked for."""
OPEN: Final = 1 << 20
"""Prewrites without an end, at most; they take some 250 bytes each."""
WAITING: Final = 1 << 23
"""Transactions that wait for one without an end, at most; they take some 80 bytes each. Those that a busy TiDB writes
until that one is asked for are fewer."""
SLACK: Final = 1024
"""Places of a queue that are taken by what has ended, at most, beside one for each open Prewrite."""
WHOLE: Final = struct.Struct(">qqqq")
"""A `Transaction`. Its bytes are in the order of its numbers, and take a third of its memory."""
REMEMBERED: Final = 1 << 16
"""Transactions that have ended, whose records are known when they come once more, as after a lost answer."""
NOWHERE: Final = -1
"""The place of a half that there is not."""


class Record(NamedTuple):
    """What a payload says, and where the payload is."""

    type: int
    """A `BinlogType`."""
    start_ts: int
    commit_ts: int
    place: int

    @property
    def is_heartbeat(self) -> bool:
        """Whether it is no transaction, but says that all before its time has been sent ("fake binlog")."""
        return self.type == BinlogType.Rollback and self.start_ts == self.commit_ts


class Transaction(NamedTuple):
    """A transaction that has committed, or a heartbeat."""

    commit_ts: int
    start_ts: int
    prewrite: int
    """The place of the Prewrite; `NOWHERE` for a heartbeat."""
    commit: int
    """The place of the Commit, or of the heartbeat."""


def read_record(payload: bytes, place: int) -> Record:
    """Read what pairs a payload. Raises DecodeError when it is no half of a transaction."""
    try:
        found = Binlog.FromString(payload)
    except MessageError as error:
        raise DecodeError(f"not a Binlog: {error}") from None
    if found.tp not in (BinlogType.Prewrite, BinlogType.Commit, BinlogType.Rollback):
        raise DecodeError(f"a Binlog of type {found.tp}, which no TiDB sends")
    if found.start_ts <= 0:
        raise DecodeError(f"a Binlog with start_ts {found.start_ts}")
    if found.tp == BinlogType.Commit and found.commit_ts <= found.start_ts:
        raise DecodeError(f"a Commit with commit_ts {found.commit_ts}, and start_ts {found.start_ts}")
    return Record(found.tp, found.start_ts, found.commit_ts, place)


def merge(prewrite: bytes, commit: bytes) -> bytes:
    """Return the Commit with the value or the DDL of its Prewrite, as a pump sends it."""
    whole, half = Binlog.FromString(commit), Binlog.FromString(prewrite)
    for name in ("prewrite_value", "ddl_query", "ddl_job_id", "ddl_schema_state"):
        if half.HasField(name):
            setattr(whole, name, getattr(half, name))
    return whole.SerializeToString()


@dataclass(slots=True)
class Counts:
    """Records that were left out."""

    repeated: int = 0
    """Those that came once more."""
    lone: int = 0
    """Commits whose Prewrite has not come."""
    late: int = 0
    """Commits with a commit_ts up to which everything was released: they are lost to who has read on."""


class Pairing:
    """The records of a pump that wait, and how far all is released."""

    def __init__(self, released: int = 0) -> None:
        """``released``: up to which commit_ts everything was released when the records were read before."""
        self.released = released
        """The greatest commit_ts up to which everything is known."""
        self.newest = released
        """The greatest timestamp that any record has had."""
        self.counts = Counts()
        self._known = released
        self._open: dict[int, int] = {}  # the places of Prewrites, by start_ts, in the order of their arrival
        self._queue: deque[tuple[int, int]] = deque()  # a start_ts, or 0 and the commit_ts
        self._whole: list[bytes] = []  # a heap
        self._ended: OrderedDict[int, int] = OrderedDict()  # the commit_ts by start_ts, 0 of a Rollback

    @property
    def refusal(self) -> str:
        """Why no further Prewrite may be taken; empty: one may. Else what waits would take all memory."""
        if len(self._open) >= OPEN:
            return f"{OPEN} transactions are open: TiDB ends none of them"
        if len(self._whole) >= WAITING:
            return f"{WAITING} transactions wait for the end of the one with start_ts {next(iter(self._open), 0)}"
        return ""

    @property
    def open(self) -> int:
        """The number of Prewrites without an end."""
        return len(self._open)

    @property
    def first_needed(self) -> int | None:
        """The place of the first Prewrite that is not released, from which records are read again; None if none is."""
        places = [it for _, _, it, _ in map(WHOLE.unpack, self._whole) if it != NOWHERE]
        return min((*places, *islice(self._open.values(), 1)), default=None)

    def due(self, now: int, most: int = 100) -> list[tuple[int, int]]:
        """Return start_ts and place of Prewrites whose end has to be asked for; the answer comes as a record.

        ``now``: a timestamp of the cluster.
        """
        before = (now >> LOGICAL_BITS) - PATIENCE
        due = (it for it in self._open.items() if it[0] >> LOGICAL_BITS <= before)
        return list(islice(due, most))

    def take(self, record: Record) -> list[Transaction]:
        """Take the next record; return what is released by that, in the order of commit_ts."""
        self.newest = max(self.newest, record.start_ts, record.commit_ts)
        if record.is_heartbeat:
            self._end(0, record.commit_ts, NOWHERE, record)
        elif record.type == BinlogType.Prewrite:
            self._begin(record)
        elif (place := self._open.pop(record.start_ts, None)) is not None:
            commit_ts = record.commit_ts if record.type == BinlogType.Commit else 0
            self._ended[record.start_ts] = commit_ts
            if len(self._ended) > REMEMBERED:
                self._ended.popitem(last=False)
            self._end(record.start_ts, commit_ts, place, record)
        elif record.type == BinlogType.Commit:
            self._leave_out(record)
        return self._advance()

    def _begin(self, record: Record) -> None:
        if record.start_ts in self._open or record.start_ts in self._ended:
            self.counts.repeated += 1
            return
        self._open[record.start_ts] = record.place
        self._queue.append((record.start_ts, 0))

    def _end(self, start_ts: int, commit_ts: int, prewrite: int, record: Record) -> None:
        if not commit_ts:
            return
        if commit_ts <= self.released:
            if start_ts and commit_ts > self._known:
                self.counts.late += 1
            return
        heappush(self._whole, WHOLE.pack(commit_ts, record.start_ts, prewrite, record.place))
        self._queue.append((0, commit_ts))
        if len(self._queue) > 2 * len(self._open) + SLACK:
            self._shorten()

    def _shorten(self) -> None:
        """Take Prewrites that have ended out of the queue, and make one of commits between two open ones."""
        queue = deque[tuple[int, int]]()
        for start_ts, commit_ts in self._queue:
            if start_ts:
                if start_ts in self._open:
                    queue.append((start_ts, 0))
            elif queue and not queue[-1][0]:
                queue[-1] = 0, max(queue[-1][1], commit_ts)
            else:
                queue.append((0, commit_ts))
        self._queue = queue

    def _leave_out(self, record: Record) -> None:
        """Count a Commit without a Prewrite, unless it was read before that one was released."""
        if record.start_ts in self._ended:
            self.counts.repeated += 1
        elif record.commit_ts > self._known:
            self.counts.lone += 1

    def _advance(self) -> list[Transaction]:
        queue = self._queue
        while queue and queue[0][0] not in self._open:
            self.released = max(self.released, queue.popleft()[1])
        found, bound = [], WHOLE.pack(self.released + 1, 0, 0, 0)
        while self._whole and self._whole[0] < bound:
            found.append(Transaction(*WHOLE.unpack(heappop(self._whole))))
        return found
