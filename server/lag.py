"""Where the lag of a client is: source → parser → ring → client."""

import time
from dataclasses import dataclass
from enum import StrEnum

from ..store.status import ClientStatus, Lag
from .embedded.destinations import DestinationStatus
from .wording import counted, duration

NOTICEABLE = 2.0
"""Seconds up to which a parser counts as up to date: the times of events are whole seconds."""


class Stage(StrEnum):
    """What holds a client's changes up."""

    NONE = "none"
    SOURCE = "source"
    PARSER = "parser"
    RING = "ring"
    CLIENT = "client"


@dataclass(frozen=True, slots=True)
class Explanation:
    """The stage that holds a client's changes up, and why."""

    stage: Stage
    text: str


def age(lag: Lag, now: float) -> float:
    """Return the seconds since the oldest change was made; 0 when there is none."""
    return max(0.0, now - lag.oldest / 1000) if lag.oldest else 0.0


def holders(destination: DestinationStatus) -> str:
    """Name the clients that hold the ring of a destination."""
    holding = [client.client_id for client in destination.clients if client.acked == destination.first]
    return f"client {', '.join(map(str, holding))}" if holding else "a client of another view or its main destination"


def is_minimum(destination: DestinationStatus, client: ClientStatus) -> bool:
    """Whether more may wait for a client than its `ClientStatus.lag` counts: in the log, or at the source."""
    if client.state != "attached":
        return True
    behind = destination.parser.behind
    is_up_to_date = destination.state == "running" and behind is not None and behind < NOTICEABLE
    return destination.full or not (is_up_to_date or destination.state == "finished")


def unread(destination: DestinationStatus, client: ClientStatus) -> str:
    """Say how much waits in the log or at the source for a client that is behind the ring; empty if it is unknown."""
    backlog = destination.backlogs.get(client.client_id) if client.state == "catching-up" else None
    if backlog is None:
        return ""
    place = "of the log" if backlog.where == "log" else "of the source's binlog"
    return f"Before the ring, at most {backlog.bytes} bytes {place} wait, of all tables"


def _limit(client: ClientStatus, now: float) -> str:
    """Say which limit of a client lets nothing through for now; empty if none."""
    allowance = client.allowance
    if allowance.quota and allowance.used_on(now) >= allowance.quota:
        return f"the client has used up its quota of {allowance.quota} bytes a day"
    if allowance.until > time.monotonic():
        return f"the client is limited to {allowance.max_rate} bytes/s"
    return ""


def explain(destination: DestinationStatus, client: ClientStatus, now: float | None = None) -> Explanation:
    """Say what holds a client's changes up: the first thing to look at, not all that there is.

    ``now`` is the Unix time, which the times of events are compared with.
    """
    now = time.time() if now is None else now  # noqa: TID251  shown
    behind = destination.parser.behind
    if client.state == "gone":
        return Explanation(Stage.CLIENT, client.error)
    if destination.state not in ("running", "finished"):
        reason = f": {destination.error}" if destination.error else ""
        return Explanation(
            Stage.SOURCE, f"the source is not read, the destination is in state {destination.state}{reason}"
        )
    if client.state == "catching-up" and not client.given.entries:
        trouble = f". They cannot be read for now: {client.error}" if client.error else ""
        return Explanation(
            Stage.PARSER,
            "the client was behind the ring: a reader of the log or the source catches up from its cursor."
            f" {unread(destination, client) or 'It is not known yet how many changes wait there'}{trouble}",
        )
    if client.state == "ahead":
        return Explanation(Stage.PARSER, "the parser has not reached the client's cursor yet")
    if destination.full and not client.given.entries and not client.waiting.entries:
        text = f"the ring is full until {holders(destination)} acks; until then the source is not read"
        return Explanation(Stage.RING, text)
    if not destination.full and behind is not None and behind > max(NOTICEABLE, age(client.lag, now)):
        return Explanation(Stage.PARSER, f"the parser reads changes of {duration(behind)} ago, and is never held up")
    rows = f"{'at least ' if is_minimum(destination, client) else ''}{counted(client.waiting.rows, 'row')}"
    if client.given.entries:
        given = f"{counted(len(client.marks), 'batch', 'batches')} with {counted(client.given.rows, 'row')}"
        more = f". {text}" if (text := unread(destination, client)) else ""
        return Explanation(Stage.CLIENT, f"{given} given and not acked, {rows} waiting after{more}")
    if client.waiting.entries and (limit := _limit(client, now)):
        return Explanation(Stage.CLIENT, f"{limit}; {rows} waiting")
    if client.waiting.entries:
        idle = time.monotonic() - client.last_active
        heard = (
            f"its last call was {duration(idle)} ago"
            if client.called
            else f"it has not called since the start, {duration(idle)} ago"
        )
        return Explanation(Stage.CLIENT, f"{rows} waiting for the client to ask; {heard}")
    return Explanation(Stage.NONE, "all that the source has sent is acked")
