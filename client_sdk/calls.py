"""The calls of the HTTP API without I/O: what to send, how to read the reply, what to do when there is none.

`Client` and `AsyncClient` send the same calls; they differ in how bytes travel and in nothing else.
"""

import json
import math
import random
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from http import HTTPStatus
from ipaddress import ip_address
from typing import Any, Final, Generic, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from sluice.client_sdk.batch import EMPTY, Batch, Column, InvalidDates, Part, Range
from sluice.protocol.errors import (
    BadParameterError,
    BadPositionError,
    ConnectionLostError,
    FencedError,
    SluiceError,
    TooManyAttemptsError,
    UnknownBatchError,
    sentences,
)
from sluice.protocol.position import Position
from sluice.protocol.rows import envelope

T = TypeVar("T")

PROTOBUF = "application/x-protobuf"
FRAME = struct.Struct(">I")  # in a stream: the length of the Messages that follows
HEARTBEAT = 10.0  # seconds after which the server sends an empty batch on an idle stream
POLL = 1.0  # seconds that `batches` lets the server wait for a change: what closing the iterator may take
REREAD = 60.0  # seconds that the server may take to come to a range again
ACK_EVERY = 0.05  # seconds within which the batches of a stream may share an ack
PAUSE = 0.005  # seconds without a further batch after which those that are done are acked
FIRST_DELAY, LONGEST_DELAY = 0.1, 5.0  # seconds between the tries of a call
LONGEST_OF_SEVERAL = 0.5  # the same where another server may take over at any moment
CONNECT = 5.0  # seconds that opening a connection to one of several servers may take: one packet may get lost, or two
GRACE = 0.5  # seconds in which a server that has given way may still answer, when another one is known to be active

Start = str | Position | datetime
"""Where a new subscription starts: ``earliest``, ``latest``, a position, or a time."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How large a batch gets; what is None the server decides."""

    batch_size: int | None = None
    """Entries (ITEMSIZE) or units of 1 KiB (MEMSIZE), as the destination is configured."""
    max_entries: int | None = None
    max_bytes: int | None = None
    min_bytes: int | None = None
    """Wait, up to ``linger``, until so many bytes are there."""
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
    """Doing it twice is as good as once ..."""
    before: "Call[None] | None" = None
    """... after this call, if there is one."""
    instead: "Call[T] | None" = None
    """What to repeat in its place."""
    errors: Mapping[type[SluiceError], type[SluiceError]] = field(default_factory=dict)
    """Errors that mean another one here."""
    carries_ack: bool = False
    """It acks besides, and is tried once: what fails is done by two calls."""


def _nothing(reply: Reply) -> None:
    """Read the reply to a call that answers nothing."""


def _json(reply: Reply) -> dict[str, Any]:
    try:
        result = json.loads(reply.body)
    except ValueError:
        result = None
    if not isinstance(result, dict):
        raise SluiceError(f"the server's answer is no JSON object: {reply.body[:200]!r}")
    return result


def subscribe(filter_: str, start: Start) -> Call[dict[str, Any]]:
    """Register the client."""
    where: str | dict[str, int] = str(start)
    if isinstance(start, datetime):
        where = {"timestamp": round(start.timestamp() * 1000)}
    return Call("POST", "/subscribe", _json, body={"filter": filter_, "start": where})


def unsubscribe() -> Call[None]:
    """Remove the client and its cursor."""
    return Call("POST", "/unsubscribe", _nothing)


def open_session() -> Call[str]:
    """Open a session, which fences all older ones."""
    return Call("POST", "/session", lambda reply: str(_json(reply)["session"]), opens_session=True)


def rollback(batch_id: int | None = None) -> Call[None]:
    """Give batches back: one, or all that are outstanding."""
    if batch_id is not None:
        return Call("POST", "/rollback", _nothing, body={"batchId": batch_id}, ordered=True, repeatable=False)
    return _ROLLBACK


_ROLLBACK: Final = Call("POST", "/rollback", _nothing, body={}, ordered=True, rolls_back=True)
_ROLLED_BACK: Final[Mapping[type[SluiceError], type[SluiceError]]] = {BadPositionError: UnknownBatchError}
"""A batch that was rolled back meanwhile lies beyond what was given."""


def get_without_ack(
    timeout: float, limits: Limits, invalid_dates: InvalidDates, done: Batch | None = None, *, durable: bool = False
) -> Call[Batch]:
    """Take the next batch, and before that ack the one that is ``done``.

    A reply that got lost may have held a batch: so all is rolled back before the next try.
    """
    query = limits.query() | {"timeout": round(timeout * 1000)}

    def read(reply: Reply) -> Batch:
        batch_id = envelope(reply.body)[0]
        headers = reply.headers
        return Batch(batch_id, headers.get("sluice-from", ""), headers.get("sluice-to", ""), reply.body, invalid_dates)

    get = partial(Call, "POST", "/getWithoutAck", read, wait=timeout, ordered=True, before=_ROLLBACK)
    if done is None:
        return get(query)
    of_ack = query | ({"durable": "true"} if durable else {})
    carrying = partial(get, errors=_ROLLED_BACK, carries_ack=True)
    return carrying(of_ack | {"ack": done.batch_id}, instead=carrying(of_ack | {"ack": done.to}))


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

    By id when all goes well, which checks the order. When the reply gets lost, by position, which can be repeated.
    """
    query: dict[str, int | str] = {"durable": "true"} if durable else {}
    if isinstance(what, str | Position):
        return Call("POST", "/ack", _nothing, query, {"position": str(what)})
    if not isinstance(what, Batch):
        return Call("POST", "/ack", _nothing, query, {"batchId": what}, repeatable=False)
    instead = Call("POST", "/ack", _nothing, query, {"position": what.to}, errors=_ROLLED_BACK)
    return Call("POST", "/ack", _nothing, query, {"batchId": what.batch_id}, instead=instead)


def ack_again(batch: Batch, *, durable: bool) -> Call[None]:
    """Ack a batch that may be acked already, or be of another server: by position."""
    call = ack(batch, durable=durable)
    return call.instead or call


def ack_all(batches: Sequence[Batch]) -> Call[None]:
    """Ack the oldest outstanding batches, several at once by the position behind the last of them."""
    call = ack(batches[-1], durable=False)
    return call if len(batches) == 1 or call.instead is None else call.instead


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
    return Call("POST", "/position", lambda reply: Range.of(_json(reply)), query, wait=timeout)


def splits(from_: str | Position, to: str | Position, n: int) -> Call[list[Part]]:
    """Cut a range into parts."""
    query: dict[str, int | str] = {"from": str(from_), "to": str(to), "n": n}
    return Call("GET", "/splits", lambda reply: [Part.of(it) for it in _json(reply)["splits"]], query, wait=REREAD)


def rows(from_: str | Position, to: str | Position, invalid_dates: InvalidDates) -> Call[Batch]:
    """Read a range."""

    def read(reply: Reply) -> Batch:
        return Batch(envelope(reply.body)[0], str(from_), str(to), reply.body, invalid_dates)

    return Call("GET", "/rows", read, {"from": str(from_), "to": str(to)}, wait=REREAD)


def status() -> Call[dict[str, Any]]:
    """Cursors, outstanding batches and lag."""
    return Call("GET", "", _json)


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


def columns(table: str) -> Call[list[Column]]:
    """Ask for the columns of a table."""
    path = f"/tables/{quote(table, safe='')}"
    return Call("GET", path, lambda reply: [Column.of(it) for it in _json(reply)["columns"]], of_destination=True)


class Interrupted(Exception):  # noqa: N818  it is for `Attempts`, no user meets it
    """A call got no answer, or one that says "try again". ``reason`` is the error when it is given up.

    ``active`` is the URL of the server to try, when the one that was asked has named it.
    """

    def __init__(
        self, reason: SluiceError, *, may_be_done: bool, is_final: bool = False, active: str | None = None
    ) -> None:
        super().__init__(str(reason))
        self.reason = reason
        self.may_be_done = may_be_done
        self.is_final = is_final
        self.active = active

    @classmethod
    def by(cls, error: BaseException, *, may_be_done: bool, is_final: bool = False) -> "Interrupted":
        """Wrap an error of the network."""
        reason = ConnectionLostError(f"{type(error).__name__}: {error}")
        reason.__cause__ = error
        return cls(reason, may_be_done=may_be_done, is_final=is_final)


class Endpoint:
    """A client id of a destination: makes requests of calls and results of replies; keeps the session.

    Of several servers one is used until it fails or says that another one is active; then that one is, or the next.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        destination: str,
        client_id: int,
        token: str | None,
        *,
        insecure: bool,
        is_told: bool = False,
    ) -> None:
        """``is_told``: which servers there are is told later, by `hear`."""
        self._token = token
        self._insecure = insecure
        urls = url.split(",") if isinstance(url, str) else url
        self._servers = list(dict.fromkeys(self._usable(it.strip()) for it in urls))
        if not self._servers and not is_told:
            raise BadParameterError("no server is given", "url")
        self.server = self._servers[0] if self._servers else ""
        """URL of the one in use."""
        self.active: str | None = None
        """URL of the server that is active, as far as was heard."""
        self.deposed: str | None = None
        """The server in use, since it was heard that another one is active; None again when it was left."""
        self.turn: int | None = None
        """Of those that compete for the client id: the number of this consumer's turn; None while it has none."""
        self.needs_session = False
        """Whether a session has to be opened before a call that moves the place."""
        self.has_moved = False
        """Whether another one was in use before: ids of batches may be that one's."""
        self.has_marks = False
        """Whether the server may hold batches that nobody has here, and that no get would give again."""
        self.generation = 0
        """Counts rollbacks and moves: a batch of an earlier generation comes again."""
        self.lost = 0
        """Counts gets whose outcome is not known: one that arrives late must not keep a batch from the next."""
        self._session: str | None = None
        self._sessions: dict[str, str] = {}  # by server: what it knows us by, though a newer one was opened elsewhere
        self._is_told = is_told
        self.name = f"client {client_id} of {destination!r}"
        self._destination = f"/v1/destinations/{quote(destination, safe='')}"
        self._client = f"{self._destination}/clients/{client_id}"

    @classmethod
    def of(
        cls,
        url: "str | Sequence[str] | Endpoint",
        destination: str,
        client_id: int,
        token: str | None,
        *,
        insecure: bool,
    ) -> "Endpoint":
        """Return what is given already, else a new one."""
        return url if isinstance(url, Endpoint) else cls(url, destination, client_id, token, insecure=insecure)

    @property
    def servers(self) -> tuple[str, ...]:
        """URLs of all, the one in use first."""
        return tuple(dict.fromkeys(it for it in (self.server, *self._servers) if it))

    @property
    def schemes(self) -> set[str]:
        """``http``, ``https``, or both."""
        return {"http", "https"} if self._is_told else {urlsplit(it).scheme for it in self._servers}

    @property
    def longest_delay(self) -> float:
        """Seconds between the tries of a call, at most."""
        return LONGEST_OF_SEVERAL if self._has_others else LONGEST_DELAY

    @property
    def _has_others(self) -> bool:
        return self._is_told or len(self._servers) > 1

    @property
    def is_settled(self) -> bool:
        """Whether a get goes out by itself, without a session or a rollback before it."""
        return not (self.needs_session or self.has_marks)

    def limits(self, server: str, timeout: float, wait: float) -> tuple[float, float]:
        """Return after how many seconds a server has to be connected, and to answer a call that lets it ``wait``."""
        if server == self.deposed:
            return min(timeout, GRACE), min(timeout, GRACE)
        return min(timeout, CONNECT) if self._has_others else timeout, timeout + wait

    def lose_get(self) -> None:
        """Hear of a get whose outcome is not known: what it was given, if anything, has to come again."""
        self.lost += 1
        self.has_marks = True

    def hear(self, servers: Sequence[str], active: str | None, turn: int | None) -> None:
        """Hear which servers there are, which of them is active, and which turn of the client id this consumer has.

        What is heard may be old: a server that answers is not left for it. But a call is waited for no longer than
        GRACE when another one has become active than the one in use: that may have vanished, and would keep us waiting.
        A turn that ends or begins is the end of all batches that are outstanding, and of the session. Raises
        BadParameterError for a URL that cannot be used.
        """
        if turn != self.turn:
            self.turn = turn
            self.needs_session = self.has_marks = True
            self.generation += 1
        found = [self._usable(it) for it in servers]
        self._servers = found or self._servers
        before, self.active = self.active, None if active is None else self._usable(active)
        if not self.server and found:
            self.server = self.active or found[0]
        if self.active != before:
            self.deposed = self.server if self.active not in (None, self.server) else None

    def behind(self, server: str) -> list[str]:
        """Return the servers in the order in which they are tried when this one fails; itself comes last."""
        servers = self._servers  # which another thread replaces
        after = servers.index(server) + 1 if server in servers else 0
        return servers[after:] + servers[:after]

    def leave(self, server: str, active: str | None) -> None:
        """Use another server than this one, unless that was done already: the active one where it is known."""
        if server != self.server:
            return
        other = active or self.behind(server)[0]
        if other != server:
            self.server, self.deposed = other, None
            self.has_moved = self.has_marks = True
            self.needs_session = self.needs_session or self.turn is not None
            self.generation += 1

    def url(self, server: str, call: Call[Any]) -> str:
        """Where to send the call: ``server`` is its URL, or the path of that."""
        base = self._destination if call.of_destination else self._client
        return server + base + call.path + ("?" + urlencode(call.query) if call.query else "")

    def headers(self, server: str, call: Call[Any]) -> dict[str, str]:
        """Headers of the request."""
        headers = {"Accept": f"{PROTOBUF}, application/json;q=0.9, application/problem+json;q=0.8"}
        if call.body is not None:
            headers["Content-Type"] = "application/json"
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        session = self._sessions.get(server, self._session)
        if session is not None and not call.opens_session:
            headers["Sluice-Session"] = f"{session}.{self.lost}" if self.lost else session
        return headers

    def body(self, call: Call[Any]) -> bytes | None:
        """Body of the request."""
        return None if call.body is None else json.dumps(call.body, ensure_ascii=False).encode()

    def read(self, server: str, call: Call[T], reply: Reply) -> T:
        """Return the result; raises Interrupted when the call may be tried again, else the error of the server."""
        if reply.status != HTTPStatus.NO_CONTENT and not reply.headers.keys() & {"content-length", "transfer-encoding"}:
            # http.client takes a connection that ends within the headers for their end.
            raise Interrupted(ConnectionLostError("the connection broke within the answer"), may_be_done=True)
        if reply.status >= 300:
            error = error_of(reply)
            if reply.status in (HTTPStatus.BAD_GATEWAY, HTTPStatus.GATEWAY_TIMEOUT):
                raise Interrupted(error, may_be_done=True)
            if reply.status == HTTPStatus.SERVICE_UNAVAILABLE:
                raise Interrupted(error, may_be_done=False)
            if isinstance(error, FencedError):
                raise Interrupted(error, may_be_done=False, active=self._named(error))
            for kind, meaning in call.errors.items():
                if isinstance(error, kind):
                    raise meaning(str(error)) from error
            raise error
        result = call.read(reply)
        if call.opens_session:
            self._session = self._sessions[server] = str(result)
            if server == self.server:
                self.needs_session = False
        elif self._session is not None:
            self._sessions.setdefault(server, self._session)
        if call.rolls_back:
            self.generation += 1
            if server == self.server:
                self.has_marks = False
        return result

    def _named(self, error: FencedError) -> str | None:
        """The active server that a reply names. It may be none of ours, but must be as safe. Raises the error."""
        if error.active is None:
            return None
        try:
            server = self._usable(error.active)
        except BadParameterError as reason:
            raise error from reason
        if urlsplit(server).scheme not in self.schemes:
            raise error from BadParameterError(f"{server} is active, but `url` names no server of its scheme", "url")
        return server

    def _usable(self, url: str) -> str:
        shown = url.rpartition("@")[2]  # no error repeats a password
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:  # a port or brackets that are none
            raise BadParameterError(f"not the URL of a server: {shown!r} ({error})", "url") from None
        if parts.scheme not in ("http", "https") or not parts.hostname or port == 0 or parts.query or parts.fragment:
            raise BadParameterError(f"not the URL of a server: {shown!r}", "url")
        if parts.username or parts.password:
            raise BadParameterError("credentials go into `token`, not into the URL", "url")
        if self._token and parts.scheme == "http" and not self._insecure and not _is_local(parts.hostname):
            raise BadParameterError("a token over http can be read by others: use https, or insecure=True", "url")
        return url.rstrip("/")


class Attempts(Generic[T]):
    """The tries of one call: what to send next, to which server, and after how long."""

    def __init__(
        self,
        endpoint: Endpoint,
        call: Call[T],
        patience: float,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        """``patience`` is for how many seconds a call that fails is tried; ``uniform`` gives chance to the pauses."""
        self.call = call
        self._endpoint = endpoint
        self._server = endpoint.server
        self._patience = patience
        self._uniform = uniform
        self._give_up: float | None = None
        self._delay = FIRST_DELAY
        self._failures: dict[str, str] = {}  # by server, since the last pause
        self._last_failures: dict[str, str] = {}  # by server

    def begin(self) -> str:
        """Begin a try: with which server."""
        endpoint = self._endpoint
        self._server = endpoint.server
        if endpoint.has_moved and self.call.instead is not None:
            self.call = self.call.instead
        return self._server

    @property
    def before(self) -> list[Call[Any]]:
        """What has to be done before the call."""
        endpoint, rollback = self._endpoint, self.call.before
        calls: list[Call[Any]] = [open_session()] if endpoint.needs_session and self.call.ordered else []
        return [*calls, rollback] if rollback is not None and endpoint.has_marks else calls

    def delay(self, failure: Interrupted) -> float:
        """Seconds to wait before the next try; raises the reason of the failure when there shall be none.

        When the call carries an ack it raises the failure itself, for then two calls are to be made of it.
        """
        now = time.monotonic()
        if self._give_up is None:
            self._give_up = now + self._patience
        endpoint = self._endpoint
        self._failures[self._server] = self._last_failures[self._server] = str(failure.reason)
        others = (failure.active, endpoint.active, *endpoint.behind(self._server))
        endpoint.leave(self._server, next((it for it in others if it and it not in self._failures), failure.active))
        if self.call.carries_ack:
            raise failure
        if failure.may_be_done:
            self.lose()
            if self.call.instead is not None:
                self.call = self.call.instead
            elif not self.call.repeatable:
                raise failure.reason
        delay = 0.0
        if endpoint.server in self._failures:  # all were asked
            delay = self._delay * self._uniform(0.5, 1.0)  # it keeps clients from marching in step
        if failure.is_final or now + delay > self._give_up:
            raise self._reason(failure)
        if delay:
            self._delay = min(2 * self._delay, endpoint.longest_delay)
            self._failures.clear()
        return delay

    def lose(self) -> None:
        """Hear that the reply is lost, or of no use any more: it may hold a batch, which the next get has to give."""
        if self.call.before is not None:
            self._endpoint.lose_get()

    def _reason(self, failure: Interrupted) -> SluiceError:
        """Return the error of a call that is given up; it names all servers that were asked."""
        if len(self._last_failures) == 1 or failure.is_final:
            return failure.reason
        asked = "; ".join(f"{server}: {text}" for server, text in self._last_failures.items())
        error = ConnectionLostError(
            f"no server answers {self._endpoint.name}, tried for {self._patience:g} s: {asked}. See that one of them"
            " runs and has the destination (`sluice status`), and that this host reaches it; then try again"
        )
        error.__cause__ = failure.reason
        return error

    def succeeded(self) -> None:
        """Begin anew: what fails from now on has nothing to do with earlier failures."""
        self._give_up = None
        self._delay = FIRST_DELAY
        self._failures.clear()
        self._last_failures.clear()


class Done:
    """The batches of a stream that are done and not acked yet: acks that would follow one another closely go as one."""

    def __init__(self, window: int) -> None:
        self.generation = 0
        """They belong to it."""
        self._most = max(window // 2, 1)
        self._batches: list[Batch] = []
        self._last = -math.inf

    def add(self, batch: Batch) -> bool:
        """Add one; whether it is time to ack."""
        if not batch.acked:
            self._batches.append(batch)
        return len(self._batches) >= self._most or time.monotonic() > self._last + ACK_EVERY

    def __bool__(self) -> bool:
        self._batches = [it for it in self._batches if not it.acked]
        return bool(self._batches)

    def take(self) -> list[Batch]:
        """Take what is to be acked."""
        batches, self._batches = self._batches, []
        self._last = time.monotonic()
        return batches


def _is_local(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _classes(base: type[SluiceError] = SluiceError) -> dict[str, type[SluiceError]]:
    found = {base.type: base}
    for below in base.__subclasses__():
        found |= {name: kind for name, kind in _classes(below).items() if name not in found}
    return found


def error_of(reply: Reply) -> SluiceError:
    """Make the error that the server answered (RFC 9457): the class of `sluice.protocol.errors` with its ``type``."""
    try:
        problem = json.loads(reply.body)
    except ValueError:
        problem = None
    if not isinstance(problem, dict) or "type" not in problem:
        text = reply.body[:200].decode("utf-8", "replace")
        return SluiceError(f"the server answered with status {reply.status}: {text}")
    message = sentences(str(problem.get("detail") or problem.get("title") or ""), str(problem.get("advice") or ""))
    kind = _classes().get(str(problem["type"]), SluiceError)
    if issubclass(kind, TooManyAttemptsError):
        return kind(message, float(reply.headers.get("retry-after", "0")))
    if issubclass(kind, BadParameterError):
        return kind(message, problem.get("parameter"))
    if issubclass(kind, FencedError):
        return kind(message, problem.get("active"))
    return kind(message)
