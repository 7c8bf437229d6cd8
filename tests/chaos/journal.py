"""What the parts of a run write down, one JSON object per line, and how it is read again.

A run's folder holds ``consumer-DESTINATION-CLIENT`` (`Received`, `Acked`, `Failed`), the logs of the servers, what was
done to them and by whom they are served (``faults``), and at last what the tables hold (``written``).
"""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeAlias

Run: TypeAlias = tuple[str, int, int]
"""A table, and the first and the last of the numbers that follow one another in it."""

IDS_PER_EPOCH = 10**9
"""A batch's id is its epoch times this, and a counter."""


@dataclass(frozen=True, slots=True)
class Received:
    """A batch that was handed to a consumer. Times are seconds since 1970."""

    asked: float
    """When the get began that brought it, or the stream."""
    at: float
    batch_id: int
    to: str
    runs: tuple[Run, ...]
    """The numbers in it, in its order."""
    ended: int
    """The last number of the last transaction that ends in it; 0 when none does."""
    read: tuple[Run, ...] = ()
    """The numbers that a snapshot has found in the tables, ..."""
    snapshot: str = ""
    """... and which one."""
    marked: bool = False
    """It says that changes are missing here."""

    @property
    def epoch(self) -> int:
        """In which it was given."""
        return self.batch_id // IDS_PER_EPOCH

    @property
    def first(self) -> int:
        """Its first number; 0 without any."""
        return self.runs[0][1] if self.runs else 0

    @property
    def last(self) -> int:
        """Its last number; 0 without any."""
        return self.runs[-1][2] if self.runs else 0


@dataclass(frozen=True, slots=True)
class Acked:
    """An ack and its answer, by the id of a batch, or by a position: everything before it."""

    asked: float
    at: float
    """When it was answered, or given up."""
    server: str
    batch_id: int
    position: str
    answer: str
    """``ok``, the type of an error, or ``unknown`` when none came."""
    late: bool = False
    """It was sent although a batch of a later epoch had come."""


@dataclass(frozen=True, slots=True)
class Failed:
    """A consumer has met an error that it cannot explain."""

    at: float
    error: str


@dataclass(frozen=True, slots=True)
class TakenOver:
    """A server has begun to serve a destination."""

    at: float
    server: str
    destination: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Broken:
    """A fault, from its begin to its end."""

    begun: float
    ended: float
    kind: str
    target: str


@dataclass(frozen=True, slots=True)
class Purged:
    """A source has removed its binlog."""

    at: float
    source: str
    last: Mapping[str, Mapping[str, int]]
    """By schema and table a number, after which nothing was removed."""


@dataclass(frozen=True, slots=True)
class Copied:
    """A snapshot of a table has begun."""

    at: float
    """Before it was asked for."""
    name: str
    """Of the consumer."""
    snapshot: str
    table: str


OF_ANOTHER_SOURCE = "the other side has "
"""So begins the error of an output whose topic ends inside a transaction of the former source."""


@dataclass(frozen=True, slots=True)
class Moved:
    """Somebody has moved a client that had lost its place, or an output that could not go on."""

    at: float
    name: str
    """Destination and client."""
    error: str
    """Why."""


Event: TypeAlias = Received | Acked | Failed
Done: TypeAlias = Broken | Purged | Copied | Moved
KINDS: Mapping[str, type[Event] | type[Done]] = {
    kind.__name__: kind for kind in (Received, Acked, Failed, Broken, Purged, Copied, Moved)
}


class Journal:
    """Appends lines to a file: each is there as a whole, also when its writer is killed."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(self, event: Event | Done) -> None:
        """Append an event."""
        line = json.dumps({"what": type(event).__name__, **asdict(event)})
        os.write(self._file, line.encode() + b"\n")


def read_journal(path: Path) -> Iterator[Any]:
    """Return the events of a journal, in their order."""
    for line in path.read_text().splitlines():
        fields = json.loads(line)
        kind = KINDS[fields.pop("what")]
        if kind is Received:
            fields |= {name: tuple(map(tuple, fields[name])) for name in ("runs", "read")}
        yield kind(**fields)


@dataclass(frozen=True, slots=True)
class Logged:
    """A line of a server's log."""

    at: float
    level: str
    destination: str
    message: str
    is_trace: bool
    """It comes with a traceback, or is a line of one that was not caught."""


def read_log(path: Path) -> Iterator[Logged]:
    """Return the lines of a server's log; a line that is not JSON comes from something that failed."""
    trace: list[str] = []
    at = 0.0
    for line in (*path.read_text(errors="replace").splitlines(), "{}"):
        try:
            event = json.loads(line)
        except ValueError:
            trace.append(line)
            continue
        if trace:
            yield Logged(at, "ERROR", "", " | ".join(trace), is_trace=True)
            trace = []
        if event:
            at = datetime.fromisoformat(event["time"]).timestamp()
            text = f"{event['message']} {event.get('error', '')}".strip()
            yield Logged(at, event["level"], event.get("destination", ""), text, is_trace="traceback" in event)
