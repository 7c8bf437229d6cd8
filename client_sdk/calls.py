"""The calls of the HTTP API without I/O: what to send, how to read the reply, what to repeat when there is none.

`Client` and `AsyncClient` send the same calls; they differ in how bytes travel and in nothing else.
"""

import json
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any, Final, Generic, Literal, TypeVar
from urllib.parse import quote, urlencode

from ..protocol.canal.rows import envelope
from ..protocol.errors import (
    BadPositionError,
    SluiceError,
    SourceChangedError,
    UnknownBatchError,
)
from ..protocol.position import Position
from .batch import EMPTY, Batch, Column, InvalidDates, Part, Range

T = TypeVar("T")

FRAME = struct.Struct(">I")  # in a stream: the length of the Messages that follows
HEARTBEAT = 10.0  # seconds after which the server sends an empty batch on an idle stream
POLL = 1.0  # seconds that `batches` lets the server wait for a change: what closing the iterator may take
LONGEST_QUERY = 2000  # characters; every server takes a URL as long as this
REREAD = 60.0  # seconds that the server may take to come to a range again


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Which rows of tables are given as they are now."""

    tables: str | Sequence[str] = ""
    """A filter, or names ``schema.table``; empty for all whose changes the client gets."""
    where: Mapping[str, str] = field(default_factory=dict)
    """Conditions on the rows of some tables, by their names."""
    max_rows_per_second: int = 0
    """0 for any number."""
    member: str = ""
    """Of a group: the member whose tables are wanted; empty for those of all."""

    def body(self) -> dict[str, Any]:
        """Return what the API is told."""
        return {
            "tables": self.tables if isinstance(self.tables, str) else ",".join(map(re.escape, self.tables)),
            "where": dict(self.where),
            "maxRowsPerSecond": self.max_rows_per_second,
        } | ({"member": self.member} if self.member else {})


Start = Literal["earliest", "oldest", "latest", "snapshot"] | Position | datetime | Snapshot | str  # noqa: PYI051  editors offer the names
"""Where a new subscription starts: by name (``earliest`` of what is stored, ``oldest`` that the source has, too), at a
position (its text will do), or at a time; or with tables as they are now, and then their changes: ``snapshot`` for all
that its filter chooses."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How large a batch gets; what is None the server decides."""

    batch_size: int | None = None
    """Entries (ITEMSIZE) or units of 1 KiB (MEMSIZE), as the destination is configured."""
    max_entries: int | None = None
    max_bytes: int | None = None
    min_bytes: int | None = None
    """Number of bytes to wait for, up to ``linger``."""
    linger: float | None = None
    """Seconds."""

    def query(self) -> dict[str, int]:
        """Parameters of the call."""
        linger = None if self.linger is None else round(self.linger * 1000)
        names = ("batchSize", "maxEntries", "maxBytes", "minBytes", "linger")
        values = (self.batch_size, self.max_entries, self.max_bytes, self.min_bytes, linger)
        return {name: value for name, value in zip(names, values, strict=True) if value is not None}


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP response; the names of the headers in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One call; its reply may get lost after the server did what it was told: the last fields say what then."""

    method: str
    path: str
    """After the client's own URL ..."""
    read: Callable[[Reply], T]
    query: Mapping[str, int | str] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    of_destination: bool = False
    """... or after that of its destination."""
    wait: float = 0.0
    """Seconds that the server may take because it was told to wait."""
    opens_session: bool = False
    """Its result is the token of a session."""
    rolls_back: bool = False
    """All outstanding batches are forgotten."""
    ordered: bool = False
    """It moves the place up to which batches were given: calls that do must not overtake each other."""
    repeatable: bool = True
    """Doing it twice has the effect of once ..."""
    before: "Call[None] | None" = None
    """... after this call, if there is one."""
    instead: "Call[T] | None" = None
    """What to repeat in its place."""
    errors: Mapping[type[SluiceError], type[SluiceError]] = field(default_factory=dict)
    """Errors that mean another one here."""
    carries_ack: bool = False
    """It acks besides, and is tried once: what fails is done by two calls."""
    is_last: bool = False
    """It is for batches from before a get that was given up, which has rolled nothing back yet."""
    loop: int = 0
    """The number of the loop over batches that makes it, see `Endpoint.begin_loop`; 0 for none."""


def _fitting(call: Call[T]) -> Call[T]:
    """Return a call; its parameters are in the body of a POST if they are too long for a URL, as places of a group."""
    if len(urlencode(call.query)) <= LONGEST_QUERY:
        return call
    return replace(call, method="POST", query={}, body=dict(call.query))


def _nothing(reply: Reply) -> None:
    """Read the reply to a call that answers nothing."""


def _json(reply: Reply) -> dict[str, Any]:
    try:
        result = json.loads(reply.body)
    except ValueError:
        result = None
    if not isinstance(result, dict):
        raise SluiceError(f"the server's answer is not a JSON object: {reply.body[:200]!r}")
    return result


def _jsons(reply: Reply) -> list[dict[str, Any]]:
    try:
        result = json.loads(reply.body)
    except ValueError:
        result = None
    if not isinstance(result, list) or not all(isinstance(it, dict) for it in result):
        raise SluiceError(f"the server's answer is not an array of JSON objects: {reply.body[:200]!r}")
    return result


def subscribe(
    filter_: str, start: Start, where: str = "", expire_after: int | None = None, protect: bool | None = None
) -> Call[dict[str, Any]]:
    """Register the client."""
    begin: str | dict[str, Any] = str(start)
    if isinstance(start, datetime):
        begin = {"timestamp": round(start.timestamp() * 1000)}
    elif isinstance(start, Snapshot):
        begin = {"snapshot": start.body()}
    wait = REREAD if start == "snapshot" or isinstance(start, Snapshot) else 0.0
    expiry = {} if expire_after is None else {"expireAfter": expire_after}
    protection = {} if protect is None else {"protect": protect}
    condition = {"where": where} if where else {}
    body = {"filter": filter_, "start": begin} | condition | expiry | protection
    return Call("POST", "/subscribe", _json, body=body, wait=wait)


def unsubscribe() -> Call[dict[str, Any]]:
    """Remove the client and its cursor."""
    return Call("POST", "/unsubscribe", lambda reply: dict(_json(reply)["passedOver"]))


def moves(client_id: int) -> Call[list[dict[str, Any]]]:
    """Ask for the jumps of a client."""
    return Call("GET", "/moves", _jsons, {"client": client_id}, of_destination=True)


def confirm_gaps() -> Call[int]:
    """Confirm what the client does not get."""
    return Call("POST", "/gaps/confirm", lambda reply: int(_json(reply)["confirmed"]))


def open_session() -> Call[str]:
    """Open a session, which fences all older ones."""
    return Call("POST", "/session", lambda reply: str(_json(reply)["session"]), opens_session=True)


def rollback(batch_id: int | None = None) -> Call[None]:
    """Give batches back: one, or all that are outstanding."""
    if batch_id is not None:
        return Call("POST", "/rollback", _nothing, body={"batchId": batch_id}, ordered=True, repeatable=False)
    return _ROLLBACK


_ROLLBACK: Final = Call("POST", "/rollback", _nothing, body={}, ordered=True, rolls_back=True)
_ROLLED_BACK: Final[Mapping[type[SluiceError], type[SluiceError]]] = {
    BadPositionError: UnknownBatchError,
    SourceChangedError: UnknownBatchError,
}
"""A batch that was rolled back meanwhile is beyond what was given, or comes again with places of another source."""


def get_without_ack(
    timeout: float, limits: Limits, invalid_dates: InvalidDates, done: Batch | None = None, *, durable: bool = False
) -> Call[Batch]:
    """Take the next batch, and before that ack the one that is ``done``.

    A reply that got lost may have held a batch: so all is rolled back before the next try.
    """
    query = limits.query() | {"timeout": round(timeout * 1000)}

    def read(reply: Reply) -> Batch:
        batch_id, *places = envelope(reply.body)
        headers = reply.headers  # of a server that does not write the places into the batch yet
        from_, to = places if any(places) else (headers.get("sluice-from", ""), headers.get("sluice-to", ""))
        return Batch(batch_id, from_, to, reply.body, invalid_dates)

    get = partial(Call, "POST", "/getWithoutAck", read, wait=timeout, ordered=True, before=_ROLLBACK)
    if done is None:
        return get(query)
    of_ack = query | ({"durable": "true"} if durable else {})
    carrying = partial(get, errors=_ROLLED_BACK, carries_ack=True)
    return carrying(of_ack | {"ack": done.batch_id}, instead=_fitting(carrying(of_ack | {"ack": done.to})))


def stream(window: int, limits: Limits) -> Call[str]:
    """Open a stream, which begins with a rollback; the result is its session."""
    return Call(
        "GET",
        "/stream",
        lambda reply: reply.headers.get("sluice-session", ""),
        limits.query() | {"window": window},
        wait=HEARTBEAT,
        rolls_back=True,
        ordered=True,
    )


def read_streamed(data: bytes, invalid_dates: InvalidDates) -> Batch:
    """Return a batch of a stream, where the positions are in the message itself."""
    return Batch(*envelope(data), data, invalid_dates)


def ack(what: Batch | int | str | Position, *, durable: bool) -> Call[None]:
    """Ack a batch, or everything before a position.

    By id when all goes well, which checks the order. When the reply gets lost, by position, too, which can be repeated.
    A position alone would not do: rows of a snapshot have none of their own.
    """
    query: dict[str, int | str] = {"durable": "true"} if durable else {}
    if isinstance(what, str | Position):
        return Call("POST", "/ack", _nothing, query, {"position": str(what)})
    if not isinstance(what, Batch):
        return Call("POST", "/ack", _nothing, query, {"batchId": what}, repeatable=False)
    by_id = {"batchId": what.batch_id}
    instead = Call("POST", "/ack", _nothing, query, by_id | {"position": what.to}, errors=_ROLLED_BACK)
    return Call("POST", "/ack", _nothing, query, by_id, instead=instead)


def ack_again(batch: Batch, *, durable: bool) -> Call[None]:
    """Ack a batch that may be acked already, or be of another server: by position."""
    call = ack(batch, durable=durable)
    return call.instead or call


def ack_all(batches: Sequence[Batch]) -> Call[None]:
    """Ack the oldest outstanding batches, several at once by the position after the last of them."""
    call = ack(batches[-1], durable=False)
    return call if len(batches) == 1 or call.instead is None else call.instead


def ack_last(batches: Sequence[Batch]) -> Call[None]:
    """Ack what is done when a consumer leaves, and has given up its last get."""
    return replace(ack_all(batches), is_last=True)


def is_nothing(what: Batch | int | str | Position) -> bool:
    """Whether there is nothing to ack: an empty batch, or its id."""
    return not what if isinstance(what, Batch) else what == EMPTY


def position(
    after: str | Position, until: str | Position | None, timeout: float, max_rows: int | None, max_bytes: int | None
) -> Call[Range]:
    """Mark the range after a position; asking again gives the same range."""
    query: dict[str, int | str] = {"after": str(after), "timeout": round(timeout * 1000)}
    if until is not None:
        query["until"] = str(until)
    if max_rows is not None:
        query["maxRows"] = max_rows
    if max_bytes is not None:
        query["maxBytes"] = max_bytes
    return _fitting(Call("POST", "/position", lambda reply: Range.of(_json(reply)), query, wait=timeout))


def splits(from_: str | Position, to: str | Position, n: int) -> Call[list[Part]]:
    """Cut a range into parts."""
    query: dict[str, int | str] = {"from": str(from_), "to": str(to), "n": n}
    call = Call("GET", "/splits", lambda reply: [Part.of(it) for it in _json(reply)["splits"]], query, wait=REREAD)
    return _fitting(call)


def rows(from_: str | Position, to: str | Position, invalid_dates: InvalidDates) -> Call[Batch]:
    """Read a range."""

    def read(reply: Reply) -> Batch:
        return Batch(envelope(reply.body)[0], str(from_), str(to), reply.body, invalid_dates)

    return _fitting(Call("GET", "/rows", read, {"from": str(from_), "to": str(to)}, wait=REREAD))


def status() -> Call[dict[str, Any]]:
    """Cursors, outstanding batches and lag."""
    return Call("GET", "", _json)


def start_snapshot(wanted: Snapshot) -> Call[int]:
    """Begin a snapshot; its id."""

    def read(reply: Reply) -> int:
        return int(_json(reply)["id"])

    return Call("POST", "/snapshots", read, body=wanted.body(), wait=REREAD, repeatable=False)


def snapshot_status(snapshot_id: int) -> Call[dict[str, Any]]:
    """Progress of a snapshot."""
    return Call("GET", f"/snapshots/{snapshot_id}", _json)


def pause_snapshot(snapshot_id: int, *, is_paused: bool) -> Call[dict[str, Any]]:
    """Pause a snapshot, or go on."""
    return Call("POST", f"/snapshots/{snapshot_id}/{'pause' if is_paused else 'resume'}", _json)


def cancel_snapshot(snapshot_id: int) -> Call[None]:
    """Cancel a snapshot."""
    return Call("DELETE", f"/snapshots/{snapshot_id}", _nothing)


def destination() -> Call[dict[str, Any]]:
    """State, ring, clients and lag of the destination."""
    return Call("GET", "", _json, of_destination=True)


def latest() -> Call[str]:
    """Ask for the source's end."""
    return Call("GET", "/latest", lambda reply: str(_json(reply)["position"]), of_destination=True)


def tables(filter_: str) -> Call[list[str]]:
    """Ask for the tables."""
    query = {"filter": filter_} if filter_ else {}
    return Call("GET", "/tables", lambda reply: list(_json(reply)["tables"]), query, of_destination=True)


def columns(table: str, filter_: str) -> Call[list[Column]]:
    """Ask for the columns of a table, which a filter has to pass."""
    path = f"/tables/{quote(table, safe='')}"
    query = {"filter": filter_} if filter_ else {}
    return Call(
        "GET", path, lambda reply: [Column.of(it) for it in _json(reply)["columns"]], query, of_destination=True
    )
