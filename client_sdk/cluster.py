"""The client of a destination that several servers share, a `Client` that knows ZooKeeper.

Which server a call goes to is decided by the same machine as theirs, `Endpoint`; it is told here what ZooKeeper says.
The client for asyncio has the same settings, and takes its turns in the same way.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypedDict, TypeVar, Unpack

from ..protocol.errors import BadParameterError, ConnectionLostError, StaleSessionError, UnknownBatchError
from .batch import InvalidDates
from .calls import Call
from .client import Client
from .endpoint import GRACE, Endpoint

if TYPE_CHECKING:
    from .zookeeper import Registry

T = TypeVar("T")

logger = logging.getLogger(__name__)

SESSION_TIMEOUT: Final = 6.0
"""Seconds after which another consumer has the turn of one that has gone silent."""
TRIES: Final = 3
"""Sessions that are opened for a call at most, while others open newer ones though it is this consumer's turn."""
TICK: Final = 0.25
"""Seconds after which a waiting call sees that it was closed."""


class Settings(TypedDict, total=False):
    """What `Client` can be told as well."""

    token: str | None
    ca: str | Path | None
    verify: bool
    insecure: bool
    timeout: float
    retry: float
    invalid_dates: InvalidDates


class TurnTaker:
    """A consumer that may have to wait for its turn."""

    _endpoint: Endpoint
    _cluster: "Cluster | None" = None

    @property
    def has_turn(self) -> bool:
        """Whether this consumer works now; it always may if it takes no turns."""
        return self._cluster is None or self._cluster.has_turn


class ClusterClient(TurnTaker, Client):
    """A consumer of a destination that several servers share; `Client` says what the methods do.

    The servers are listed, or found in ZooKeeper. There the consumers of a client id also take turns, as Canal's do:
    one of them works, the others wait in their next get, `batches` or `stream`, until it has gone.
    """

    def __init__(
        self,
        url: str | Sequence[str] = (),
        destination: str = "example",
        client_id: int = 1001,
        *,
        zookeeper: str | None = None,
        elect: bool = True,
        session_timeout: float = SESSION_TIMEOUT,
        **settings: Unpack[Settings],
    ) -> None:
        """Prepare; nothing is sent yet.

        Args:
            url: of the servers, as a list or separated by commas; or instead of it:
            zookeeper: where the servers register, ``host:port,host:port``: their `canal.zkServers`.
            destination: its name.
            client_id: of the consumer.
            elect: take turns with the other consumers of the client id; by ZooKeeper only.
            session_timeout: seconds after which another consumer has the turn of one that has gone silent.
            settings: those of `Client`; ``timeout`` is 10 s here, after which the next server is asked at the latest.

        Raises:
            BadParameterError: not exactly one of url and zookeeper is given, or something cannot be used.
        """
        endpoint = endpoint_of(url, zookeeper, destination, client_id, settings)
        super().__init__(endpoint, destination, client_id, **usual(settings))
        self._news = threading.Condition()
        self._grace: threading.Timer | None = None
        if zookeeper is not None:
            competing = client_id if elect else None
            registry = registry_of(zookeeper, destination, competing, session_timeout, self._hear)
            self._cluster = Cluster(endpoint, registry, self._retry, elect=elect)

    def close(self) -> None:
        """Close the connections; the next consumer has its turn at once."""
        if self._cluster is not None:
            self._cluster.close()
            with self._news:
                self._news.notify_all()
            if self._grace is not None:
                self._grace.cancel()
        super().close()

    def _hear(self) -> None:
        """Take over what the registry has seen, in its thread."""
        if self._cluster is not None:
            with self._news:
                deposed = self._cluster.hear()
                self._news.notify_all()
            if deposed is not None:
                self._grace = threading.Timer(GRACE, self._leave_deposed, (deposed,))
                self._grace.daemon = True
                self._grace.start()

    def _leave_deposed(self, server: str) -> None:
        """End the calls that were made before the news: later ones do not wait as long."""
        if self._endpoint.active not in (None, server):
            self._http.leave(server)

    def _perform_ordered(
        self, call: Call[T], stop: threading.Event, exchange: Callable[[str, Call[T]], T] | None = None
    ) -> tuple[int, T]:
        cluster = self._cluster
        if cluster is None:
            return super()._perform_ordered(call, stop, exchange)
        tries = 0
        while True:
            begin = time.monotonic()
            with self._news:
                cluster.start()
                while cluster.has_to_wait(call, time.monotonic() - begin):
                    self._news.wait(TICK)
                    if stop.is_set():
                        raise ConnectionLostError("the client was left while it waited for its turn")
            try:
                return super()._perform_ordered(call, stop, exchange)
            except StaleSessionError as error:
                tries += 1
                cluster.doubt(error, call, tries)


class Cluster:
    """What both clients have besides their own I/O when there is a ZooKeeper."""

    def __init__(self, endpoint: Endpoint, registry: "Registry", patience: float, *, elect: bool) -> None:
        self._endpoint = endpoint
        self._registry = registry
        self._patience = patience
        self._elect = elect
        self._is_started = self._is_closed = False
        self._problem: BadParameterError | None = None

    @property
    def has_turn(self) -> bool:
        """Whether this consumer works now."""
        return not self._elect or self._endpoint.turn is not None

    def start(self) -> None:
        """Begin to follow what ZooKeeper says, unless that was done, or is over."""
        if not (self._is_started or self._is_closed):
            self._is_started = True
            self._registry.start()

    def close(self) -> None:
        """End the session with ZooKeeper."""
        self._is_closed = True
        self._registry.close()

    def hear(self) -> str | None:
        """Tell the machine what was seen; return the server in use if another one has become active."""
        endpoint, seen, turn, deposed = self._endpoint, self._registry.seen, self._endpoint.turn, self._endpoint.deposed
        self._problem = None
        try:
            endpoint.hear(seen.servers, seen.active, seen.turn)
        except BadParameterError as error:
            self._problem = error
        if endpoint.turn != turn and endpoint.turn is not None:
            logger.info("%s: it is this consumer's turn", endpoint.name)
        elif endpoint.turn != turn and not self._is_closed:
            logger.warning("%s: the turn is over, another consumer may go on", endpoint.name)
        if endpoint.deposed in (None, deposed):
            return None
        logger.info("%s: %s is active instead of %s", endpoint.name, endpoint.active, endpoint.deposed)
        return endpoint.deposed

    def has_to_wait(self, call: Call[Any], waited: float) -> bool:
        """Whether a call has to wait for a server or for its turn.

        Raises:
            ConnectionLostError: the client was closed, or no server was found for too long.
            BadParameterError: a server's URL cannot be used.
        """
        endpoint, registry = self._endpoint, self._registry
        if self._is_closed:
            raise ConnectionLostError("the client is closed")
        if self._problem is not None and not endpoint.server:
            raise self._problem
        if endpoint.server and (self.has_turn or not (call.ordered or call.opens_session)):
            return False
        if waited > self._patience and not registry.was_reached:
            raise ConnectionLostError(
                f"ZooKeeper ({registry.hosts}) could not be reached for {self._patience:g} s: see that it runs and that"
                " this host reaches it, or give the servers by `url`"
            )
        if waited > self._patience and not endpoint.server:
            raise ConnectionLostError(
                f"no server has registered in ZooKeeper ({registry.hosts}) for {self._patience:g} s: start one whose"
                " canal.zkServers names it, or give the servers by `url`"
            )
        return True

    def doubt(self, error: StaleSessionError, call: Call[Any], tries: int) -> None:
        """Let ZooKeeper say whose turn it is, since a newer session was opened; then the call is tried again.

        Raises:
            UnknownBatchError: the call is an ack: what it is for comes again.
            StaleSessionError: the other one takes no turns, and goes on and on; or it is another loop of this client.
        """
        self._endpoint.check_loop(call.loop)
        if not self._elect:
            raise error
        self._registry.doubt()
        if call.carries_ack or not (call.ordered or call.opens_session):
            raise UnknownBatchError(f"{error}: what is not acked comes again") from None
        if tries >= TRIES:
            raise StaleSessionError(
                f"{error}, and again after {tries} sessions of this one, whose turn it is: check that all consumers of"
                " the client id are made with the same `zookeeper`"
            )


def endpoint_of(
    url: str | Sequence[str], zookeeper: str | None, destination: str, client_id: int, settings: Settings
) -> Endpoint:
    """Make the machine that decides which server is called.

    Raises:
        BadParameterError: not exactly one of url and zookeeper is given, or something cannot be used.
    """
    if bool(url) == bool(zookeeper):
        raise BadParameterError("give the servers either by `url` or by `zookeeper`", "url")
    token, insecure = settings.get("token"), settings.get("insecure", False)
    return Endpoint(url, destination, client_id, token, insecure=insecure, is_told=zookeeper is not None)


def registry_of(
    hosts: str, destination: str, client_id: int | None, timeout: float, hear: Callable[[], None]
) -> "Registry":
    """Make what follows ZooKeeper; programs that need none do without kazoo.

    Raises:
        ImportError: kazoo is not installed.
        BadParameterError: ``hosts`` are not addresses.
    """
    try:
        from .zookeeper import Registry  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if error.name != "kazoo":
            raise
        raise ImportError("`zookeeper` needs kazoo: pip install 'sluice-cdc[zookeeper]'") from error
    return Registry(hosts, destination, client_id, timeout, hear)


def usual(settings: Settings) -> Settings:
    """Add what differs from `Client` where nothing else is said."""
    return {"timeout": 10.0, **settings}
