"""What needs attention: one table of conditions.

It decides the first line of `sluice status` and its exit status, what `/readyz` counts, the metric `sluice_condition`,
and the alert rules that docs/operations.md has. A condition is added by a line in `TABLE`, and `make docs`.
"""

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

from ..instance.status import SourceStatus
from ..login.nodes import State
from ..store.status import ClientStatus
from .embedded.destinations import DestinationStatus
from .lag import holders
from .problems import advice
from .pumps import Pumps, PumpStanding
from .wording import counted, duration

SOUND = frozenset({"running", "standby", "finished"})
"""States of a destination in which there is nothing to do."""
MOST_BEHIND = 30.0
"""Seconds that a parser may be behind."""
ROOMY = 0.5
"""Fill of a ring up to which no consumer holds the parser up."""
MOST_SILENT = 10.0
"""Seconds for which a member of a group may bring nothing."""
MOST_STUCK = 60.0
"""Seconds for which a full ring may make no progress: a consumer may need them for a batch."""
MOST_IDLE = 300.0
"""Seconds without a call of a client for which changes wait."""
LOOK = 1.0
"""Seconds between two looks of those who only count."""


class Severity(StrEnum):
    """How bad a condition is."""

    ERROR = "error"
    """Changes are not delivered, or will be lost: `sluice status` exits with 1."""
    WARNING = "warning"
    """Somebody should look at it: `sluice status` says so, and exits with 0."""


Told = Iterator[tuple[str, str] | tuple[str, str, str]]
"""Where a condition is so: what of the destination is meant, a text, and better advice than that of the condition."""


S = TypeVar("S")
"""What conditions are about: a destination or a pump."""


@dataclass(frozen=True, slots=True)
class Condition(Generic[S]):
    """Something that may be so of a destination or a pump, and needs attention."""

    name: str
    severity: Severity
    meaning: str
    """When it is so, for the page, its threshold included."""
    advice: str
    """What to do next, where no better advice is found."""
    tell: Callable[[S], Told]
    """Finds where it is so."""
    lasting: str = "0s"
    """How long an alert rule lets it last before it fires."""


@dataclass(frozen=True, slots=True)
class Found:
    """A condition that is so."""

    condition: Condition[DestinationStatus] | Condition[PumpStanding]
    subject: str
    """What of the destination is meant, as ``client 1001``; empty for all of it."""
    text: str
    advice: str = ""
    """What to do next; empty: what the condition says."""


def _not_running(status: DestinationStatus) -> Told:
    if status.state not in SOUND:
        yield "", f"{status.state}{f': {status.error}' if status.error else ''}"


def _cursors_lost(status: DestinationStatus) -> Told:
    if status.lost_cursors:
        yield "", status.error


def _impeded(status: DestinationStatus) -> Told:
    if status.state in SOUND and status.error and not status.lost_cursors:
        yield "", f"{status.state}: {status.error}"


def _settings_refused(status: DestinationStatus) -> Told:
    if status.refused_settings:
        state = "it keeps its previous settings: " if status.state in SOUND else ""
        yield "", f"{state}its changed file cannot be used: {status.refused_settings}"


def _certificate_refused(status: DestinationStatus) -> Told:
    if status.refused_certificate:
        yield "", f"the certificate of the server as it is now is not served: {status.refused_certificate}"


def _unowned(status: DestinationStatus) -> Told:
    if status.state == "standby" and not status.active and not status.error:
        yield "", "standby, and no server owns it"


def _source_silent(status: DestinationStatus) -> Told:
    if status.state == "running" and status.parser.silent and not status.parser.members:
        yield "", f"nothing has come from the source for {duration(status.parser.silent)}, not even a heartbeat"
    for it in status.parser.members:
        if status.state == "running" and it.silent > MOST_SILENT and it.state != "left":
            rest = ": the others wait for it" if it.holds else ": the others go on" if it.state == "passed" else ""
            yield f"member {it.name}", f"nothing has come for {duration(it.silent)}, not even a heartbeat{rest}"


def _source_lag(status: DestinationStatus) -> Told:
    behind = status.parser.behind or 0.0
    if status.state == "running" and behind > MOST_BEHIND and status.fill < ROOMY and not status.parser.silent:
        yield "", f"the parser reads changes of {duration(behind)} ago"


def _sources(status: DestinationStatus) -> Iterator[tuple[str, str, SourceStatus]]:
    """Give the sources that have several servers, or a health check: each after its subject, and what switches it."""
    switch = f"sluice source switch {status.destination}"
    if status.source is not None:
        yield "", switch, status.source
    for name, it in status.member_sources.items():
        yield f"member {name}", f"{switch} --member {name}", it


def _source_down(status: DestinationStatus) -> Told:
    for subject, _, source in _sources(status):
        if status.state == "running" and source.failures > 1:
            yield subject, f"{source.address} does not answer, {source.failures} times in a row: {source.failure}"


def _source_unlisted(status: DestinationStatus) -> Told:
    for subject, again, source in _sources(status):
        if not (status.state == "running" and source.unlisted):
            continue
        yield (
            subject,
            f"{source.unlisted} was chosen, but the configuration here does not name it: {source.address} is read",
            f"Name the sources by the same addresses on every server, or choose again: {again}",
        )


def _switch_refused(status: DestinationStatus) -> Told:
    for name, it in status.member_sources.items():
        if it.refusal:
            yield f"member {name}", f"the switch to another server is refused: {it.refusal}"


def _history_away(status: DestinationStatus) -> Told:
    if status.parser.history:
        yield "", status.parser.history


def _ring_held(status: DestinationStatus) -> Told:
    if status.stuck > MOST_STUCK:
        text = f"the ring is full, with no progress for {status.stuck:.0f} s: it waits until {holders(status)} acks"
        yield "", text


def _client_gone(status: DestinationStatus) -> Told:
    for client in status.clients:
        if client.state == "gone":
            yield f"client {client.client_id}", f"gone: {client.error}", advice(client.problem)


def _gap(status: DestinationStatus) -> Told:
    for client_id, gaps in status.gaps.items():
        confirm = f"sluice gaps confirm {status.destination} {client_id}"
        for gap in gaps:
            yield (
                f"client {client_id}",
                f"does not get {gap}",
                f"Copy these changes if you need them, then run {confirm}",
            )


def _soon_purged(status: DestinationStatus) -> Told:
    for client_id, threat in status.threats.items():
        yield f"client {client_id}", threat.text


def _client_silent(status: DestinationStatus) -> Told:
    now = time.monotonic()
    for client in _awaited(status):
        idle = now - client.last_active
        if idle > MOST_IDLE:
            since = "" if client.called else " since the start"
            yield (
                f"client {client.client_id}",
                f"changes wait for it, and it has made no call{since} for {idle / 60:.0f} min",
            )


def _quota_used_up(status: DestinationStatus) -> Told:
    now = time.time()  # noqa: TID251  a quota is for a day
    for client in _awaited(status):
        allowance, is_due = client.allowance, client.waiting.entries or client.state == "catching-up"
        if is_due and allowance.quota and allowance.used_on(now) >= allowance.quota:
            yield (
                f"client {client.client_id}",
                f"changes wait until midnight in UTC: it has used up its quota of {allowance.quota} bytes a day",
                f"Wait, or raise the quota: sluice limit {status.destination} {client.client_id} --quota BYTES",
            )


def _awaited(status: DestinationStatus) -> list[ClientStatus]:
    """Return the clients for which changes wait; outputs report what is wrong with them themselves."""
    outputs = {output.client_id for output in status.outputs}
    return [
        client
        for client in status.clients
        if status.state == "running"
        and client.client_id not in outputs
        and (client.state == "catching-up" or (client.state == "attached" and client.lag.entries))
    ]


def _output_fails(status: DestinationStatus) -> Told:
    for output in status.outputs:
        if output.error:
            yield f"output {output.name}", f"{output.state}: {output.error}"


def _quarantine(status: DestinationStatus) -> Told:
    if status.parser.quarantined:
        yield "", f"{counted(status.parser.quarantined, 'row event')} in quarantine: the rows were not delivered"


def _statements(status: DestinationStatus) -> Told:
    if status.parser.dml_statements:
        number = status.parser.dml_statements
        yield "", f"{counted(number, 'change')} since the start logged as statements: the rows were not delivered"


def _disorder(status: DestinationStatus) -> Told:
    for it in status.parser.members:
        if it.late:
            text = "since the start came too late for their place in the order, and are marked"
            yield f"member {it.name}", f"{counted(it.late, 'transaction')} {text}"


def _pump_unregistered(pump: PumpStanding) -> Told:
    if pump.problem:
        yield "", f"{pump.state}: {pump.problem}"
    elif pump.state != pump.wanted:
        open_ = f", with {counted(pump.log.open, 'transaction')} under way" if pump.log.open else ""
        yield "", f"{pump.state}{open_}, on the way to be {pump.wanted}"


def _pump_refuses(pump: PumpStanding) -> Told:
    if pump.state == State.ONLINE and (why := pump.log.failure or pump.log.refusal):
        yield "", why


def _pump_unresolved(pump: PumpStanding) -> Told:
    if pump.unresolved:
        yield "", f"drainers wait: {pump.unresolved}"


def _pump_clock(pump: PumpStanding) -> Told:
    if pump.clock_problem:
        yield "", f"drainers wait while TiDB writes nothing to this pump: {pump.clock_problem}"


def _pump_late(pump: PumpStanding) -> Told:
    if late := pump.log.counts.late:
        yield "", f"since the start {counted(late, 'transaction')} came after later ones were given: drainers lack them"


_ERROR, _WARNING = Severity.ERROR, Severity.WARNING
TABLE = (
    Condition(
        "not-running",
        _ERROR,
        "The destination is starting, stopped or in error",
        "Do what the error says; POST …/start starts a stopped one",
        _not_running,
        "1m",
    ),
    Condition(
        "cursors-lost",
        _ERROR,
        "ZooKeeper has lost cursors of the destination, so no server takes it over",
        "sluice cluster restore writes the saved cursors back",
        _cursors_lost,
    ),
    Condition(
        "impeded",
        _ERROR,
        "The destination is served, but has an error, such as a full disk",
        "Do what the error says",
        _impeded,
        "1m",
    ),
    Condition(
        "settings-refused",
        _ERROR,
        "The changed file of the destination cannot be used: it keeps its previous settings, and would not restart",
        "Correct what the error names: the server reads the file at the next scan (canal.auto.scan.interval)",
        _settings_refused,
    ),
    Condition(
        "unowned",
        _ERROR,
        "The destination is on standby, and no server owns it",
        "Check the status of each server that could own it: it shows the reason",
        _unowned,
        "1m",
    ),
    Condition(
        "certificate-refused",
        _ERROR,
        "The renewed certificate of the server cannot be used; new connections still get the one before it, until that"
        " expires",
        "Write certificate and key that belong together, in PEM, to sluice.http.tlsCert and sluice.http.tlsKey; they"
        " are read within 5 s",
        _certificate_refused,
    ),
    Condition(
        "source-silent",
        _ERROR,
        "Nothing has come from the source for 10 s, though it sends a heartbeat every 5 s",
        "Check the source and the network; after canal.instance.network.soTimeout the server reconnects",
        _source_silent,
        "30s",
    ),
    Condition(
        "source-down",
        _ERROR,
        "The source does not answer `canal.instance.detecting.sql`, twice in a row or more",
        "Check the source; sluice source switch switches to a second one",
        _source_down,
        "30s",
    ),
    Condition(
        "source-unlisted",
        _ERROR,
        "The configuration does not name the source that was chosen, so another one is read",
        "Name the sources by the same addresses on every server, or choose again: sluice source switch",
        _source_unlisted,
    ),
    Condition(
        "switch-refused",
        _ERROR,
        "A member of a group was not switched to its other server; a switch that succeeds clears it",
        "Do what the error says, then sluice source switch with --member",
        _switch_refused,
    ),
    Condition(
        "source-lag",
        _ERROR,
        f"The parser is more than {MOST_BEHIND:.0f} s behind, though half of the ring is free",
        "If the lag shrinks, wait; else check the network and the source's disk",
        _source_lag,
        "1m",
    ),
    Condition(
        "history-away",
        _ERROR,
        "The last access to the history of tables failed; the server retries once a minute",
        "Make its database available, or free space on its disk: the next DDL waits for it",
        _history_away,
        "1m",
    ),
    Condition(
        "ring-held",
        _ERROR,
        f"The ring is full, and no space in it was freed for {MOST_STUCK:.0f} s",
        "Check the consumer; remove a client that will not return with sluice unsubscribe",
        _ring_held,
    ),
    Condition("client-gone", _ERROR, "A client has lost its position", "Do what the error says", _client_gone),
    Condition(
        "gap",
        _ERROR,
        "A client has missed changes, and nobody has confirmed that",
        "Copy the missing changes if you need them, then run sluice gaps confirm",
        _gap,
    ),
    Condition(
        "soon-purged",
        _ERROR,
        "The source or the log may soon delete what a client needs",
        "Let the client catch up, or let the source retain its binlog for longer",
        _soon_purged,
    ),
    Condition(
        "output-fails",
        _ERROR,
        "An output has an error",
        "Do what the error says; sluice skip skips a change that the target refuses",
        _output_fails,
        "1m",
    ),
    Condition(
        "client-silent",
        _WARNING,
        f"Changes wait for a client that has made no call for {MOST_IDLE / 60:.0f} minutes",
        "Start its consumer; remove a client that will not return with sluice unsubscribe",
        _client_silent,
        "10m",
    ),
    Condition(
        "quota-used-up",
        _WARNING,
        "Changes wait for a client that has used up its quota of the day",
        "Wait until midnight in UTC, or raise the quota with sluice limit",
        _quota_used_up,
    ),
    Condition(
        "quarantine",
        _WARNING,
        "Row events could not be decoded",
        "sluice quarantine list names them; correct the table, then sluice quarantine retry",
        _quarantine,
    ),
    Condition(
        "statements",
        _WARNING,
        "Changes were logged as statements since the destination was started; a restart clears it",
        "Set binlog_format = ROW for all sessions, and copy the tables again",
        _statements,
    ),
    Condition(
        "disorder",
        _WARNING,
        "Transactions of a member of a group came late since the destination was started; a restart clears it",
        "If the order between members matters, check the member's delay and clock, or raise sluice.group.window",
        _disorder,
    ),
)
"""All conditions of a destination, errors first: in this order they are shown."""
PUMPS = (
    Condition(
        "pump-refuses",
        _ERROR,
        "The pump refuses transactions, as when its disk is full or fails: TiDB ends when no other pump takes them for"
        " 15 s",
        "Do what the error says: free space on the disk of sluice.pump.dir, or restart the server after a failed disk",
        _pump_refuses,
    ),
    Condition(
        "pump-unregistered",
        _ERROR,
        "The cluster does not know where the pump stands, or the pump is not where it is wanted",
        "Do what the error says: make the cluster's PD available, or the drainer that it names",
        _pump_unregistered,
        "1m",
    ),
    Condition(
        "unresolved-prewrite",
        _ERROR,
        "TiDB has not ended a transaction within 10 minutes, and the pump cannot find out whether it has committed:"
        " drainers wait for it",
        "Set sluice.pump.tidbStatus, so that a TiDB is asked; or, if you know that it is lost, sluice.pump.unresolved ="
        " drop",
        _pump_unresolved,
    ),
    Condition(
        "pump-clock",
        _ERROR,
        "The pump cannot ask for the time of the cluster: drainers wait for it while TiDB writes nothing to it",
        "Make a TiDB of sluice.pump.tidbSql available, or correct its address, account or password",
        _pump_clock,
        "1m",
    ),
    Condition(
        "pump-late",
        _ERROR,
        "Transactions committed after later ones were given, so that drainers lack them, since the server was started;"
        " a restart clears it",
        "Copy the tables of the cluster again: TiDB's messages did not come in the order that it promises",
        _pump_late,
    ),
)
"""All conditions of a pump."""


def find(status: DestinationStatus) -> list[Found]:
    """Return what needs attention of a destination."""
    return [Found(condition, *told) for condition in TABLE for told in condition.tell(status)]


def find_of_pump(pump: PumpStanding) -> list[Found]:
    """Return what needs attention of a pump."""
    return [Found(condition, *told) for condition in PUMPS for told in condition.tell(pump)]


def summary(counts: Mapping[str, int]) -> str:
    """Return as text in how many places which condition is so, and what to do: nothing of what destinations have."""
    found = [(it, counts[it.name]) for it in (*TABLE, *PUMPS) if it.name in counts]
    return "; ".join(f"{it.name} in {counted(count, 'place')} ({it.advice})" for it, count in found)


class Sources(Protocol):
    """The destinations of a process."""

    @property
    def names(self) -> Collection[str]:
        """Their names."""

    def destination_status(self, destination: str) -> DestinationStatus:
        """Return where one stands."""


class Overview:
    """Counts what needs attention of all destinations and of the pump, for callers who may ask often."""

    def __init__(self, embedded: Sources, pumps: Pumps) -> None:
        self._embedded = embedded
        self._pumps = pumps
        self._looked = 0.0
        self._counts: dict[str, int] = {}

    def counts(self, now: float) -> dict[str, int]:
        """Return in how many places each condition is so, as of a second ago at most; ``now`` is monotonic time."""
        if now >= self._looked + LOOK:
            found = [it for name in self._embedded.names for it in find(self._embedded.destination_status(name))]
            found += [it for pump in self._pumps for it in find_of_pump(pump())]
            self._looked, self._counts = now, dict(Counter(it.condition.name for it in found))
        return self._counts
