"""Which pump of a cluster gets which message, and when it is tried again. It does no I/O, and is told the time."""

import logging
import threading
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from ...login.nodes import Node, State
from ...protocol.errors import BadParameterError, SluiceError
from ...protocol.tidb.binlog_pb2 import Binlog, BinlogType

Strategy = Literal["range", "hash", "score"]

FAILURES: Final = 3
"""Failures in a row after which a pump leaves."""
PAUSE: Final = 0.1
"""Seconds between two tries of a Prewrite ..."""
END_PAUSE: Final = 1.0
"""... and of the end of a transaction."""
ENDS: Final = 600.0
"""Seconds for which the end of a transaction is tried. Then its pump asks TiDB for it."""
PERIOD: Final = 2.0
"""Seconds between two looks at the cluster, and at the pumps that have left."""
LOOKS: Final = 16
"""Looks after which a pump that has left is asked, at most. One whose disk hangs says that it is back each time."""
OPEN: Final = 1 << 20
"""Transactions without an end, at most; a pump of Sluice takes no more either."""
DOUBTS: Final = 1000
"""Prewrites that a pump may have for nothing and that it is told of later, at most; it asks TiDB for others."""

logger = logging.getLogger(__name__)


class PumpError(SluiceError):
    """No pump has stored a message."""


class Failure(NamedTuple):
    """Why a pump has not stored a message."""

    text: str
    is_final: bool = False
    """No pump would: the message is at fault."""
    is_silent: bool = False
    """The pump has not answered in time."""
    is_unknown: bool = False
    """The pump may have stored it all the same."""


NOBODY: Final = Failure("no pump is online that may be used")


@dataclass(slots=True, eq=False)
class Pump:
    """A pump, and how it has served so far."""

    node: Node
    failures: int = 0
    """In a row."""
    has_left: bool = False
    """It has failed, and is used only if all others have, too."""
    absences: int = 0
    """How often it has left since it has stored a message."""
    looks: int = 0
    """Looks until it is asked whether it is back."""
    credit: int = 0
    """What it is ahead of its share by, below 0, or behind, by its score."""
    doubts: dict[int, None] = field(default_factory=dict)
    """The start_ts of Prewrites that it may have stored and another pump has."""

    def __str__(self) -> str:
        return f"{self.node.node_id} at {self.node.host}" if self.node.node_id != self.node.host else self.node.host


class Errand(NamedTuple):
    """A message for a pump which nobody waits for."""

    pump: Pump
    payload: bytes
    """Empty: it asks whether the pump is back."""
    start_ts: int
    """Of a Prewrite that is taken back."""


class Pumps:
    """The pumps of a cluster, and where the transactions are that have no end yet. Any thread may call any method."""

    def __init__(self, strategy: Strategy, labels: Mapping[str, str]) -> None:
        """``labels``: those that a pump has to have to be used."""
        self._strategy = strategy
        self._labels = labels.items()
        self._lock = threading.Lock()
        self._pumps: dict[str, Pump] = {}  # in the order of their ids
        self._open: dict[int, Pump] = {}  # by start_ts
        self._turn = 0

    def learn(self, nodes: Iterable[Node]) -> None:
        """Hear which pumps there are. One that has come online, or to another address, is used at once."""
        with self._lock:
            known, self._pumps = self._pumps, {}
            for node in sorted(nodes, key=lambda it: it.node_id):
                if not self._labels <= node.labels.items():
                    continue
                pump = known.get(node.node_id)
                if pump is None:
                    pump = Pump(node)
                    logger.info("the pump %s is %s", pump, node.state)
                before, pump.node = pump.node, node
                if (before.state, before.host) != (node.state, node.host):
                    pump.has_left, pump.failures, pump.absences = False, 0, 0
                    logger.info("the pump %s is %s now", pump, node.state)
                self._pumps[node.node_id] = pump

    def errands(self) -> list[Errand]:
        """Return what to ask of pumps now, besides writing: whether they are back, and to forget what another has."""
        with self._lock:
            found = []
            for pump in self._online():
                if not pump.has_left:
                    found += [Errand(pump, _rollback(it), it) for it in pump.doubts]
                    continue
                pump.looks -= 1
                if pump.looks <= 0:
                    found.append(Errand(pump, b"", 0))
            return found

    def done(self, errand: Errand) -> None:
        """Hear that a pump has done what it was asked for."""
        pump = errand.pump
        with self._lock:
            pump.doubts.pop(errand.start_ts, None)
            if pump.has_left:
                pump.has_left, pump.failures = False, 0
                logger.info("the pump %s is back", pump)

    def choose(self, start_ts: int, tried: set[Pump]) -> Pump | None:
        """Return the pump for a Prewrite, one that was not tried if there is one; None if there is none at all.

        When all were tried, ``tried`` is emptied, and they are tried again.
        """
        with self._lock:
            usable = self._usable()
            if not usable:
                return None
            if tried.issuperset(usable):
                tried.clear()
            untried = [it for it in usable if it not in tried]
            if self._strategy == "score":
                return _by_score(untried)
            first = self._turn if self._strategy == "range" else zlib.crc32(b"%d" % start_ts)
            self._turn += 1
            ring = (usable[(first + it) % len(usable)] for it in range(len(usable)))
            return next(it for it in ring if it not in tried)

    def are_all(self, tried: set[Pump]) -> bool:
        """Whether every pump that can be used was tried."""
        with self._lock:
            return tried.issuperset(self._usable())

    def of(self, start_ts: int) -> Pump:
        """Return the pump that has a Prewrite. Raises BadParameterError if none has it."""
        with self._lock:
            pump = self._open.get(start_ts)
        if pump is None:
            raise BadParameterError(f"this client has written no Prewrite with start_ts {start_ts} that has no end yet")
        return pump

    def admit(self, start_ts: int) -> None:
        """Raise BadParameterError if a Prewrite cannot be written: it is there, or there are too many."""
        with self._lock:
            if start_ts in self._open:
                raise BadParameterError(f"the transaction with start_ts {start_ts} has a Prewrite, and no end yet")
            if len(self._open) >= OPEN:
                raise BadParameterError(f"{OPEN} transactions have no end yet; write a Commit or a Rollback of them")

    def begun(self, start_ts: int, pump: Pump, unknown: set[Pump]) -> None:
        """Hear that a pump has a Prewrite, and which others may have it as well."""
        with self._lock:
            pump.failures = pump.absences = 0
            self._open[start_ts] = pump
            for it in unknown - {pump}:
                if len(it.doubts) < DOUBTS:
                    it.doubts[start_ts] = None

    def ended(self, start_ts: int, pump: Pump) -> None:
        """Hear that a pump has the end of a transaction."""
        with self._lock:
            pump.failures = pump.absences = 0
            self._open.pop(start_ts, None)

    def failed(self, pump: Pump, failure: Failure) -> None:
        """Hear that a pump has not stored a message; it leaves when that was too often, or when it is silent."""
        with self._lock:
            pump.failures += 1
            if not pump.has_left and (failure.is_silent or pump.failures >= FAILURES):
                pump.has_left = True
                pump.looks = min(2**pump.absences, LOOKS)
                pump.absences += 1
                logger.warning("the pump %s is left out until it answers again: %s", pump, failure.text)

    def _online(self) -> list[Pump]:
        return [it for it in self._pumps.values() if it.node.state == State.ONLINE]

    def _usable(self) -> list[Pump]:
        """Return the pumps that have not left, or all that are online if those have."""
        online = self._online()
        return [it for it in online if not it.has_left] or online


class Writing:
    """The tries of one message: whom to send it to, after how long to try again, and when to give up."""

    def __init__(self, pumps: Pumps, binlog: Binlog, retry: float, now: float) -> None:
        """``retry``: seconds for which a Prewrite is tried. Raises BadParameterError for what no pump would take."""
        self._what = f"the {_kind(binlog)} of the transaction with start_ts {binlog.start_ts}"
        self._start_ts = binlog.start_ts
        self._pumps = pumps
        self._home = None if binlog.tp == BinlogType.Prewrite else pumps.of(binlog.start_ts)
        if self._home is None:
            pumps.admit(binlog.start_ts)
        self._patience = retry if self._home is None else ENDS
        self._end = now + self._patience
        self._pump: Pump | None = None
        self._tried: set[Pump] = set()
        self._unknown: set[Pump] = set()
        self._texts: dict[str, str] = {}  # why, by pump

    def begin(self) -> Pump | None:
        """Return the pump to send it to; None if there is none now."""
        self._pump = self._home or self._pumps.choose(self._start_ts, self._tried)
        return self._pump

    def stored(self) -> None:
        """Hear that the pump has it."""
        assert self._pump is not None
        if self._home is None:
            self._pumps.begun(self._start_ts, self._pump, self._unknown)
        else:
            self._pumps.ended(self._start_ts, self._pump)

    def failed(self, failure: Failure, now: float) -> float:
        """Return the seconds until the next try. Raises PumpError when there is none.

        A Prewrite is tried on every pump that can be used, also when the time is over. The end of a transaction is
        tried on its pump only: another one has no use for it.
        """
        pump = self._pump
        self._texts[str(pump or "the cluster")] = failure.text
        if failure.is_final:
            raise self._error("")
        if pump is not None:
            self._tried.add(pump)
            if failure.is_unknown:
                self._unknown.add(pump)
            self._pumps.failed(pump, failure)
        if now >= self._end and (self._home is not None or self._pumps.are_all(self._tried)):
            raise self._error(f", tried for {self._patience:g} s")
        return PAUSE if self._home is None else END_PAUSE

    def _error(self, how_long: str) -> PumpError:
        said = "; ".join(f"{pump}: {text}" for pump, text in self._texts.items())
        return PumpError(f"no pump has stored {self._what}{how_long}: {said}")


def _kind(binlog: Binlog) -> str:
    """Return the name of the type of a message. Raises BadParameterError for what no pump would take."""
    if binlog.tp not in (BinlogType.Prewrite, BinlogType.Commit, BinlogType.Rollback):
        raise BadParameterError(f"a message is a Prewrite, a Commit or a Rollback, and not a {binlog.tp}")
    if binlog.start_ts <= 0:
        raise BadParameterError(f"a start_ts is a number from 1 on, and not {binlog.start_ts}")
    if binlog.tp == BinlogType.Commit and binlog.commit_ts <= binlog.start_ts:
        raise BadParameterError(f"a commit_ts is greater than its start_ts {binlog.start_ts}: not {binlog.commit_ts}")
    return BinlogType.Name(binlog.tp)


def _by_score(pumps: list[Pump]) -> Pump:
    """Return the next pump; over time each gets a share by its score, evenly spread. A score below 1 counts as 1."""
    for it in pumps:
        it.credit += max(it.node.score, 1)
    chosen = max(pumps, key=lambda it: it.credit)
    chosen.credit -= sum(max(it.node.score, 1) for it in pumps)
    return chosen


def _rollback(start_ts: int) -> bytes:
    return Binlog(
        tp=BinlogType.Rollback, start_ts=start_ts, commit_ts=0, ddl_job_id=0, ddl_schema_state=0
    ).SerializeToString()
