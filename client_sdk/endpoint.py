"""Which server the calls of a client id go to, with which session, and what their replies mean; without I/O."""

import itertools
import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from ipaddress import ip_address
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from ..protocol import errors
from ..protocol.errors import (
    BadParameterError,
    ConnectionLostError,
    FencedError,
    QuotaExceededError,
    SluiceError,
    StaleSessionError,
    TooManyAttemptsError,
    sentences,
)
from .calls import Call, Reply

T = TypeVar("T")

PROTOBUF = "application/x-protobuf"
LONGEST_DELAY = 5.0  # seconds between the tries of a call
LONGEST_OF_SEVERAL = 0.5  # the same where another server may take over at any moment
CONNECT = 5.0  # seconds that opening a connection to one of several servers may take: one packet may get lost, or two
GRACE = 0.5  # seconds in which a server that has given way may still answer, when another one is known to be active


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
        """Whether the server may hold batches that no caller has here, and that no get would give again."""
        self.generation = 0
        """Counts rollbacks and moves: a batch of an earlier generation comes again."""
        self.lost = 0
        """Counts gets whose outcome is not known: one that arrives late must not keep a batch from the next."""
        self._loops = itertools.count(1)
        self._loop = 0  # the number of the newest
        self._session: str | None = None
        self._sessions: dict[str, str] = {}  # by server: what it knows us by, though a newer one was opened elsewhere
        self._is_told = is_told
        self.client_id = client_id
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

    def begin_loop(self) -> int:
        """Begin a loop over batches, which ends all earlier ones: they would take batches from each other.

        Returns its number. Other clients are fenced off by sessions, but the loops of one client share those.
        """
        self._loop = next(self._loops)
        return self._loop

    def is_over(self, loop: int) -> bool:
        """Whether a newer loop than this one has begun."""
        return loop not in (0, self._loop)

    def check_loop(self, loop: int) -> None:
        """Raise StaleSessionError if a newer loop than this one has begun."""
        if self.is_over(loop):
            raise StaleSessionError(
                f"{self.name}: another loop of the same client object has begun (`batches`, `stream` or `process`), and"
                " goes on instead of this one: run one at a time, or use another client id for each"
            )

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
            server = self.server  # which another thread may replace
            self.deposed = server if self.active not in (None, server) else None

    def after(self, server: str) -> list[str]:
        """Return the servers in the order in which they are tried when this one fails; itself comes last."""
        servers = self._servers  # which another thread replaces
        after = servers.index(server) + 1 if server in servers else 0
        return servers[after:] + servers[:after]

    def leave(self, server: str, active: str | None) -> None:
        """Use another server than this one, unless that was done already: the active one where it is known."""
        if server != self.server:
            return
        other = active or self.after(server)[0]
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
            headers["Sluice-Session"] = f"{session}.{self.lost}" if self.lost and not call.is_last else session
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
            self.check_loop(call.loop)  # it may be why
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
        """The active server that a reply names. It may be another, but must be as safe. Raises the error."""
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
        except ValueError as error:  # an invalid port or bracket
            raise BadParameterError(f"not the URL of a server: {shown!r} ({error})", "url") from None
        if parts.scheme not in ("http", "https") or not parts.hostname or port == 0 or parts.query or parts.fragment:
            raise BadParameterError(f"not the URL of a server: {shown!r}", "url")
        if parts.username or parts.password:
            raise BadParameterError("credentials go into `token`, not into the URL", "url")
        if self._token and parts.scheme == "http" and not self._insecure and not _is_local(parts.hostname):
            raise BadParameterError("a token over http can be read by others: use https, or insecure=True", "url")
        return url.rstrip("/")


def _is_local(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


ERRORS: Final[Mapping[str, type[SluiceError]]] = {
    it.type: it for it in vars(errors).values() if isinstance(it, type) and issubclass(it, SluiceError)
}
"""The errors by their names in the HTTP API."""

ADVICE: Final[Mapping[str, str]] = {
    "bad-parameter": "Correct the argument.",
    "unauthorized": "Give the client a `token` that the server knows.",
    "unknown-destination": "Name a destination that the server has.",
    "destination-stopped": "Try again later, or let whoever runs the server start it.",
    "not-subscribed": "Call subscribe() first.",
    "unknown-batch": "It was acked or rolled back before, or belongs to an earlier run: call rollback(), and read on.",
    "unknown-snapshot": "Name the one that snapshot() returned; status() lists those of the client.",
    "snapshot-running": "Call get() and ack() until it is done, or cancel_snapshot().",
    "gap": "Copy the named changes if you need them, then confirm the gap: confirm_gaps().",
}
"""What to do about problems whose advice in the HTTP API names its calls, by the methods of a client."""


def error_of(reply: Reply) -> SluiceError:
    """Make the error that the server answered (RFC 9457): the class of `sluice.protocol.errors` with its ``type``."""
    try:
        problem = json.loads(reply.body)
    except ValueError:
        problem = None
    if not isinstance(problem, dict) or "type" not in problem:
        text = reply.body[:200].decode("utf-8", "replace")
        return SluiceError(f"the server answered with status {reply.status}: {text}")
    advice = ADVICE.get(str(problem["type"]), str(problem.get("advice") or ""))
    message = sentences(str(problem.get("detail") or problem.get("title") or ""), advice)
    kind = ERRORS.get(str(problem["type"]), SluiceError)
    if issubclass(kind, TooManyAttemptsError | QuotaExceededError):
        return kind(message, float(reply.headers.get("retry-after", "0")))
    if issubclass(kind, BadParameterError):
        return kind(message, problem.get("parameter"))
    if issubclass(kind, FencedError):
        return kind(message, problem.get("active"))
    return kind(message)
