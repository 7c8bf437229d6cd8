"""Judges a run by its journals and what the tables hold, and by nothing else.

* Every number that was written is delivered, in order per table, and none is skipped at any time.
* What was acked before is not given again: never in the same epoch; in a later one only what was not durably acked.
  Where an ack waits until it is durable that is nothing; where cursors are stored each period, one period's acks.
* An ack of a batch is not accepted any more when a batch of a later epoch has come.
* Each epoch belongs to one server, and is greater than those before it.
* What is not given is what a source had purged, and the destination's list of jumps says so.
* A snapshot has every row of its table that was delivered before it began, and none that was not delivered yet.
* A topic has every number, in order. With transactions none comes again; without them, what does is one stretch, which
  ends with what is new; in the form of TiDB it has the commit_ts that it had, but where a log says that another server
  is read since.
* No server logs a traceback, or an error that no fault explains.
"""

import json
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Final

from tests.chaos.journal import (
    OF_ANOTHER_SOURCE,
    Acked,
    Broken,
    Copied,
    Done,
    Event,
    Failed,
    Logged,
    Moved,
    Purged,
    Received,
    TakenOver,
    read_journal,
    read_log,
)
from tests.chaos.plan import LONE, MAIN, VIEW
from tests.chaos.topics import Stamped, check_stamps, check_topic

PERIOD = 1.0
"""Seconds after which a server that does not write at each ack does so."""
LATENESS = 3.0
"""Seconds that it may be late with it on a machine that does other things too."""
LEASE = 2.0
"""Seconds for which a server that has lost ZooKeeper still takes acks, which it cannot store then."""

EXPECTED = re.compile(
    r"^(its log: )?error: .*(cannot log in|broke off|sent nothing|is lost|ended the dump|closed the connection)"
    r"|has purged (the binlog at|transactions that are missing)|Could not find first log file name"
    r"|the switch to .* is refused|transactions that were delivered"
    r"|cursors (cannot be|were not) stored"
    r"|the log (in \S+ \(sluice\.instance\.store\.dir\) )?cannot be (written|used: \[Errno 27\])"
    r"|Server shutdown in progress"
    r"|the history of tables in .* cannot be used"
    r"|Connection was killed"
    r"|^(stopped: )?(destination:\S+ is not active here|the session \S+ with ZooKeeper is over)"
    rf"|{OF_ANOTHER_SOURCE}"
)
"""Errors that a server has to log when a source cannot be reached or has purged, its disk is full, or it was fenced."""


ANEW: Final = "what comes again gets a commit_ts after "
"""So begins what a server logs when it cannot know whether the server that it reads now has lost what was sent."""

LAST_WORD = re.compile(r"^sluice: destination:\S+ is not active here any more: (the )?cursors were not stored$")
"""What a server that was told to stop, and was fenced, says to whoever started it."""


@dataclass(slots=True)
class _Epoch:
    """The acks that were accepted in an epoch, by the times of their answers, and up to where they confirm all."""

    times: list[float] = field(default_factory=list)
    last: list[int] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)
    """The same, up to the end of a transaction: where a durable cursor may stand."""

    def add(self, at: float, batch: Received) -> None:
        """Add one that comes after those that are there."""
        self.times.append(at)
        self.last.append(max(batch.last, self.last[-1] if self.last else 0))
        self.ended.append(max(batch.ended, self.ended[-1] if self.ended else 0))


class ClientChecker:
    """Checks what one client of one destination was given.

    Args:
        written: the numbers that each table holds, ascending.
        taken_over: which server served it when.
        done: the faults, and what else was done.
        durable: an ack is answered when it is durable.
    """

    def __init__(
        self,
        written: Mapping[str, Sequence[int]],
        taken_over: Iterable[TakenOver] = (),
        done: Iterable[Done] = (),
        *,
        durable: bool,
    ) -> None:
        self.violations: list[str] = []
        self.repeated = 0
        """Numbers that came more than once."""
        self.refused = 0
        """Late acks that were refused."""
        self._durable = durable
        self._written = written
        self._taken_over = sorted(taken_over, key=lambda it: it.at)
        done = list(done)
        self._without_zookeeper = [it for it in done if isinstance(it, Broken) and "zookeeper" in it.kind]
        self._purged = [it for it in done if isinstance(it, Purged)]
        self._moved = [it for it in done if isinstance(it, Moved)]
        self._switches = [it for it in done if isinstance(it, Broken) and it.kind.startswith("switch")]
        self._copied = {it.snapshot: it for it in done if isinstance(it, Copied)}
        self._high = dict.fromkeys(written, 0)
        self.skips = 0
        """How often it goes on after what it was not given."""
        self.skipped = 0
        """Numbers that it was not given."""
        self._marked = False
        """It was told that something is missing."""
        self._batches: dict[int, Received] = {}
        self._ends: dict[str, Received] = {}
        self._begun: dict[int, float] = {}
        """When the first batch of an epoch came."""
        self._epochs: dict[int, _Epoch] = defaultdict(_Epoch)
        self._floors: dict[int, tuple[int, int]] = {}

    def check(self, events: Iterable[Event], *, complete: bool = True) -> list[str]:
        """Return what is wrong; ``complete``: everything has to be there."""
        events = sorted(events, key=lambda it: it.at)
        for event in events:
            if isinstance(event, Received):
                self._batches[event.batch_id] = event
                self._ends[event.to] = event
                self._begun.setdefault(event.epoch, event.at)
        for event in events:
            if isinstance(event, Acked):
                self._accept(event)
                self._check_age(event)
        for event in events:
            if isinstance(event, Received):
                self._marked = self._marked or event.marked
                self._check_order(event)
                self._check_repeats(event)
                self._check_read(event)
            elif isinstance(event, Failed):
                self._violated(event.at, f"the consumer fails: {event.error}")
        if complete:
            for table, numbers in self._written.items():
                missing = numbers[self._high[table] :]
                if missing:
                    self.violations.append(f"lost: {len(missing)} numbers of {table}, from {missing[0]} on")
            self._check_copies([it for it in events if isinstance(it, Received)])
        return self.violations

    def _violated(self, at: float, what: str) -> None:
        self.violations.append(f"{at:.3f}: {what}")

    def _check_order(self, batch: Received) -> None:
        for table, first, last in batch.runs:
            numbers, high = self._written.get(table, ()), self._high.get(table, 0)
            start, stop = self._find(batch, f"batch {batch.batch_id}", table, first, last)
            if start == stop:
                continue
            if start > high:
                self._check_skip(batch, table, numbers[high], numbers[start - 1])
                self.skipped += start - high
            self.repeated += max(0, min(high, stop) - start)
            self._high[table] = max(high, stop)
        firsts = [first for _, first, _ in batch.runs]
        if firsts != sorted(firsts):
            self._violated(batch.at, f"batch {batch.batch_id} is not in the order of writing: {batch.runs}")

    def _find(self, batch: Received, what: str, table: str, first: int, last: int) -> tuple[int, int]:
        """Return where numbers stand among those that were written to a table; nowhere if they do not follow there."""
        numbers = self._written.get(table, ())
        start = bisect_left(numbers, first)
        stop = start + last - first + 1
        if numbers[start:stop] == list(range(first, last + 1)):
            return start, stop
        self._violated(batch.at, f"{what} has {first} to {last} of {table}: never written so")
        return 0, 0

    def _check_skip(self, batch: Received, table: str, first: int, last: int) -> None:
        """Check whether numbers may be missing, and whether the client was told so, or moved."""
        self.skips += 1
        if not any(it.at < batch.at and max(x.get(table, 0) for x in it.last.values()) >= last for it in self._purged):
            self._violated(
                batch.at, f"batch {batch.batch_id} goes on with {last + 1} of {table}: {first} is next, and not purged"
            )
        elif not (self._marked or any(it.at < batch.at for it in self._moved)):
            self._violated(
                batch.at, f"batch {batch.batch_id} goes on with {last + 1} of {table}: {first} is next, nothing says so"
            )

    def _check_read(self, batch: Received) -> None:
        for table, first, last in batch.read:
            numbers, high = self._written.get(table, ()), self._high.get(table, 0)
            _start, stop = self._find(batch, "a snapshot", table, first, last)
            if stop > high:
                self._violated(batch.at, f"a snapshot has up to {last} of {table}, of which {numbers[high]} is next")

    def _check_copies(self, batches: Sequence[Received]) -> None:
        """Check that each snapshot has what was delivered before it."""
        for copied in self._copied.values():
            before = {
                number
                for batch in batches
                if batch.at < copied.at
                for table, first, last in batch.runs
                if table == copied.table
                for number in range(first, last + 1)
            }
            for batch in batches:
                if batch.snapshot == copied.snapshot:
                    before.difference_update(*(range(first, last + 1) for _, first, last in batch.read))
            if before:
                self._violated(
                    copied.at,
                    f"snapshot {copied.snapshot} of {copied.table} lacks {len(before)} rows, {min(before)} first",
                )

    def _accept(self, ack: Acked) -> None:
        if ack.answer != "ok":
            return
        batch = self._batches.get(ack.batch_id) if ack.batch_id else self._ends.get(ack.position)
        if batch is None:
            self._violated(ack.at, f"an ack of {ack.batch_id or ack.position}, which never came, is accepted")
            return
        epoch = batch.epoch if ack.batch_id else self._epoch_of(ack)
        if epoch:
            self._epochs[epoch].add(ack.at, batch)

    def _epoch_of(self, ack: Acked) -> int:
        """Return in which epoch the server was that answered; 0 when it may be one of two."""
        sent, answered = (
            max((it.epoch for it in self._taken_over if it.server == ack.server and it.at <= at), default=0)
            for at in (ack.asked, ack.at)
        )
        return answered if sent == answered else 0

    def _check_repeats(self, batch: Received) -> None:
        if not batch.runs or any(it.at < batch.at for it in self._moved):  # the oldest change may be an acked one
            return
        if batch.epoch in self._epochs:
            acked = self._epochs[batch.epoch]
            before = bisect_left(acked.times, batch.asked) - 1
            if before >= 0:
                # After a switch the stream begins again, with a whole transaction.
                is_switched = any(it.begun < batch.at and acked.times[before] < it.ended for it in self._switches)
                last = (acked.ended if is_switched else acked.last)[before]
                if batch.first <= last:
                    self._violated(
                        batch.at,
                        f"batch {batch.batch_id} begins with {batch.first}, but up to {last} was acked in the same"
                        " epoch",
                    )
        floor, epoch = self._floor(batch.epoch)
        if batch.first <= floor:
            self._violated(
                batch.at,
                f"batch {batch.batch_id} begins with {batch.first}, but up to {floor} was acked in epoch {epoch},"
                " and had to be durable",
            )

    def _floor(self, epoch: int) -> tuple[int, int]:
        """Return up to where cursors have to be when an epoch begins, and by the acks of which earlier one."""
        if epoch not in self._floors:
            floors = [(0, 0)]
            for number, acks in self._epochs.items():
                if number >= epoch:
                    continue
                end = acks.times[-1]
                stop = len(acks.times) if self._durable else bisect_left(acks.times, end - self._grace(end))
                if stop:
                    floors.append((acks.ended[stop - 1], number))
            self._floors[epoch] = max(floors)
        return self._floors[epoch]

    def _grace(self, end: float) -> float:
        """Return for how many seconds before the end of an epoch its acks need not be durable."""
        grace = PERIOD + LATENESS
        if any(it.begun < end < it.ended + grace + LEASE for it in self._without_zookeeper):
            grace += LEASE
        return grace

    def _check_age(self, ack: Acked) -> None:
        batch = self._batches.get(ack.batch_id)
        if batch is None:
            return
        later = [epoch for epoch, begun in self._begun.items() if epoch > batch.epoch and begun < ack.asked]
        if not later:
            return
        if ack.answer == "ok":
            self._violated(
                ack.at,
                f"{ack.server} accepts an ack of {ack.batch_id}, though a batch of epoch {min(later)} had come before",
            )
        else:
            self.refused += ack.answer != "unknown"


def check_log(server: str, lines: Iterable[Logged]) -> list[str]:
    """Return what a server should not have logged."""
    return [
        f"{it.at:.3f}: {server} logs {it.message}"
        for it in lines
        if (it.is_trace and not LAST_WORD.search(it.message))
        or (it.level in ("ERROR", "CRITICAL") and not EXPECTED.search(it.message))
    ]


def check_epochs(taken_over: Iterable[TakenOver]) -> list[str]:
    """Return which epochs are not greater than those before them."""
    found = []
    last: dict[str, TakenOver] = {}
    for it in sorted(taken_over, key=lambda it: it.at):
        before = last.get(it.destination)
        if before is not None and (before.server, before.epoch) == (it.server, it.epoch):
            continue
        if before is not None and before.epoch >= it.epoch:
            found.append(
                f"{it.at:.3f}: {it.server} takes {it.destination} over in epoch {it.epoch}, after {before.epoch}"
                f" of {before.server}"
            )
        last[it.destination] = it
    return found


@dataclass(slots=True)
class Verdict:
    """What a run came to."""

    violations: list[str]
    numbers: int = 0
    batches: int = 0
    repeated: int = 0
    acks: int = 0
    refused: int = 0
    taken_over: int = 0
    switched: int = 0
    sent: int = 0
    sent_again: int = 0
    skipped: int = 0
    read: int = 0
    faults: int = 0

    def __str__(self) -> str:
        return (
            f"{'FAILED' if self.violations else 'passed'}: {self.faults} faults, {self.taken_over} take-overs,"
            f" {self.switched} switches of the source;"
            f" {self.numbers} numbers delivered in {self.batches} batches, {self.repeated} of them again,"
            f" {self.skipped} gone with what was purged, {self.read} rows of snapshots; {self.acks} acks,"
            f" {self.refused} late ones refused;"
            f" {self.sent} numbers sent to Kafka, {self.sent_again} of them again"
        )


def taken_over(server: str, lines: Iterable[Logged]) -> list[TakenOver]:
    """Return what a server's log says of destinations that it has taken over.

    The first line of an epoch counts: a server that is stopped after it may write the others when it has lost all.
    """
    found: dict[tuple[str, int], TakenOver] = {}
    for line in lines:
        match = re.match(r"(?:active, )?epoch (\d+)", line.message)
        if match:
            epoch = int(match[1])
            found.setdefault((line.destination, epoch), TakenOver(line.at, server, line.destination, epoch))
    return list(found.values())


def switches(lines: Iterable[Logged]) -> list[Broken]:
    """Return when a server has switched destinations to another source, by hand or by itself, by its log."""
    found: list[Broken] = []
    begun: dict[str, float] = {}
    for line in lines:
        if line.message.startswith("switching from "):
            begun[line.destination] = line.at
        elif ", no longer " in line.message and line.destination in begun:
            ended = line.at + LATENESS  # the stream begins again after that
            found.append(Broken(begun.pop(line.destination), ended, "switch of the source", line.destination))
    return found


def check_run(folder: Path) -> Verdict:
    """Judge a run by its folder."""
    run = json.loads((folder / "run").read_text())
    written = json.loads((folder / "written").read_text())
    logs = {url: list(read_log(folder / path)) for url, path in run["servers"].items()}
    owners = [it for url, lines in logs.items() for it in taken_over(url, lines)]
    done = list(read_journal(folder / "faults"))
    verdict = Verdict([problem for url, lines in logs.items() for problem in check_log(url, lines)])
    verdict.violations += check_epochs(owners)
    verdict.faults = sum(not isinstance(it, Moved) for it in done)
    switched = [it for lines in logs.values() for it in switches(lines)]
    verdict.switched = len(switched)
    verdict.taken_over = len({(it.destination, it.epoch) for it in owners})
    moves = json.loads((folder / "moves").read_text())
    for name, durable in run["promises"].items():
        destination, _, client = name.partition("-")
        numbers = written.get(name, written[destination])
        main = MAIN if destination == VIEW else destination
        checker = ClientChecker(
            numbers,
            [it for it in owners if it.destination == main],
            [
                replace(it, last={main: it.last[schema_of(main)]}) if isinstance(it, Purged) else it
                for it in (*done, *(it for it in switched if it.target == main))
                if getattr(it, "name", name) == name
            ],
            durable=durable,
        )
        events = list(read_journal(folder / f"consumer-{name}"))
        verdict.violations += [f"{name}: {it}" for it in checker.check(events)]
        recorded = sum(it["joined"] for it in moves[destination] if it["clientId"] == int(client))
        if checker.skips and not recorded:
            verdict.violations.append(f"{name}: the list of jumps has none, but {checker.skips} are in the journal")
        verdict.numbers += sum(map(len, numbers.values()))
        verdict.batches += sum(isinstance(it, Received) for it in events)
        verdict.acks += sum(isinstance(it, Acked) for it in events)
        verdict.repeated += checker.repeated
        verdict.refused += checker.refused
        verdict.skipped += checker.skipped
        verdict.read += sum(last - first + 1 for it in events if isinstance(it, Received) for _, first, last in it.read)
    anew = {it.destination for lines in logs.values() for it in lines if it.message.startswith(ANEW)}
    for topic, records in json.loads((folder / "topics").read_text()).items():
        destination = topic.partition("-")[0]
        client = f"{destination}-{run['outputs'][topic]}"
        schema = schema_of(destination)
        moved = [it for it in done if isinstance(it, Moved) and it.name == client]
        gone = purged_before([it for it in moved if OF_ANOTHER_SOURCE not in it.error], done, schema)
        found = [(stamp, list(map(tuple, it))) for stamp, it in records]
        problems, again = judge_topic(topic, written, found, gone, moved=bool(moved), anew=destination in anew)
        verdict.violations += [f"{topic}: {it}" for it in problems]
        verdict.sent_again += again
        verdict.sent += sum(len(it) for _, it in records)
    return verdict


def schema_of(destination: str) -> str:
    """Return which schema a destination reads."""
    return MAIN if destination in (LONE, VIEW) else destination


def purged_before(moves: Sequence[Moved], done: Iterable[object], schema: str) -> dict[str, int]:
    """Return up to which numbers of each table a source had purged when a client was moved for the last time."""
    found: dict[str, int] = {}
    last = max((it.at for it in moves), default=0.0)
    for purged in done:
        if isinstance(purged, Purged) and purged.at < last:
            for table, number in purged.last[schema].items():
                found[table] = max(number, found.get(table, 0))
    return found


def judge_topic(
    topic: str,
    written: Mapping[str, Mapping[str, Sequence[int]]],
    records: Sequence[Stamped],
    gone: Mapping[str, int] = MappingProxyType({}),
    *,
    moved: bool = False,
    anew: bool = False,
) -> tuple[list[str], int]:
    """Return what is wrong with a topic, by what its output promises, and how many numbers came again.

    ``gone``: up to which number of each table it may lack some, since the output was moved to where its stream goes on.
    ``moved``: somebody has let it send something again. ``anew``: a server has logged that another one is read since.
    """
    destination, _, output = topic.partition("-")
    problems: list[str] = []
    found, dropped = [number for _, numbers in records for number in numbers], 0
    if output == "tidb":
        problems, found, dropped = check_stamps(records)
    former = output == "again" and destination != LONE
    more, again = check_topic(written[destination], found, gone=gone, former=former or moved)
    if again and output != "again" and not (moved or (anew and output == "tidb")):
        more.append(f"{again} numbers come again")
    return problems + more, again + dropped
