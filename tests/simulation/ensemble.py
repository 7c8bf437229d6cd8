"""A model of ZooKeeper with the nodes of one destination: what it promises, and all that it does not exclude.

Writes are applied by the leader one after the other. Followers apply them later: what is read may be old, but not older
than what the session has seen. A session lives until the leader has not heard of it for its timeout, so that its
ephemeral nodes outlive its process. A follower that the leader has lost goes on answering what it can alone. What a
connection has under way when it breaks may still be applied, until the session has its next connection. It may come
back without its data: then all sessions are over.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from sluice.instance.meta.base import InUse
from sluice.server.ha.operations import (
    REFUSED,
    Beat,
    Claim,
    Done,
    Load,
    Loaded,
    Look,
    Operation,
    Outcome,
    Refused,
    Release,
    Running,
    Seen,
    Store,
)
from sluice.store.cursor import StoredClient
from tests.simulation.world import World

CLIENT, OUTPUT, OF_VIEW = 1001, 1002, 2001
"""The consumer's, the output's, and that of the consumer of the view."""
TIMEOUT = 6.0
"""Of sessions, seconds."""
HALF_TICK = 0.5
"""Seconds after which a follower tells the leader of which sessions it has heard."""
FOLLOWERS = 3


@dataclass(frozen=True, slots=True)
class Nodes:
    """The nodes of the destination after a write."""

    running: Running | None = None
    epoch: int = 0
    version: int = -1
    raised_by: int = 0
    """The session that has set the epoch."""
    clients: Mapping[int, StoredClient] = field(
        default_factory=lambda: {client_id: StoredClient(client_id) for client_id in (CLIENT, OUTPUT)}
    )
    view: StoredClient = field(default_factory=lambda: StoredClient(OF_VIEW))
    """The client of the view of the destination."""
    source: InUse | None = None
    """Which of several servers is read, if that was chosen."""

    def stored(self, client_id: int) -> StoredClient:
        """Return what is stored of a client."""
        return self.view if client_id == OF_VIEW else self.clients[client_id]


@dataclass(frozen=True, slots=True)
class LoadedAll(Loaded):
    """All that is read of a destination: its own clients, that of its view, and which server is read."""

    view: StoredClient
    source: InUse | None


class Connection(Protocol):
    """A server's connection to a follower."""

    follower: int
    stuck: bool
    """A question waits for the leader, and all that come after it wait, too: a session's answers keep their order."""

    def expire(self) -> None:
        """Hear that the session has expired."""

    def notice(self) -> None:
        """Hear that ``running`` has changed."""


@dataclass(slots=True)
class Session:
    """A session as the leader knows it."""

    number: int
    address: str
    heard: float
    connection: Connection | None = None
    seen: int = 0
    """The last write that its owner knows of."""
    alive: bool = True


class Ensemble:
    """The leader and its followers.

    ``on_store`` is called before cursors are written, with the session that does, and with the operation.
    """

    def __init__(self, world: World, on_store: Callable[[Session, Store], None]) -> None:
        self.world = world
        self.sessions: list[Session] = []
        self.cut = [False] * FOLLOWERS
        """Followers that the leader has lost."""
        self.lost = False
        """It has lost its data, and nobody has written them back."""
        self._history = [Nodes()]
        self._wiped = 0
        self._applied = [0] * FOLLOWERS
        self._on_store = on_store

    @property
    def nodes(self) -> Nodes:
        """As they are now."""
        return self._history[-1]

    @property
    def zxid(self) -> int:
        """The number of the last transaction."""
        return len(self._history) - self._wiped

    def wipe(self) -> None:
        """Come back without any data."""
        self.lost = True
        self._wiped = len(self._history)
        self._history.append(Nodes())
        self._applied = [self._wiped] * FOLLOWERS
        for session in self.sessions:
            if session.alive:
                session.alive = False
                if session.connection is not None:
                    session.connection.expire()

    # --- sessions ----------------------------------------------------------------------------------------------------

    def open(self, address: str) -> Session:
        """Open a session for a server."""
        session = Session(len(self.sessions) + 1, address, self.world.now, seen=len(self._history) - 1)
        self.sessions.append(session)
        self.world.after(TIMEOUT, self._expire, session)
        return session

    def attach(self, session: Session, connection: Connection) -> bool:
        """Give a session a connection in the place of its last one; False when it has expired."""
        if session.alive:
            session.connection = connection
            session.heard = self.world.now
        return session.alive

    def _expire(self, session: Session) -> None:
        left = session.heard + TIMEOUT - self.world.now
        if left > 0:
            self.world.after(left, self._expire, session)
            return
        session.alive = False
        self.world.log("zookeeper", "expires session", session.number)
        if session.connection is not None and not self.cut[session.connection.follower]:
            session.connection.expire()
        if self.nodes.running is not None and self.nodes.running.owner == session.number:
            self.write(replace(self.nodes, running=None))

    # --- requests ----------------------------------------------------------------------------------------------------

    def serve(self, session: Session, connection: Connection, operation: Operation) -> Outcome | None:
        """Do what comes over a connection; None when that gives no answer."""
        if session.connection is not connection or connection.stuck:
            return None
        if self.cut[connection.follower]:
            if isinstance(operation, Load):
                return self._load(session, connection)
            connection.stuck = True
            return None
        if not session.alive:
            connection.expire()
            return None
        # It may have been heard by the follower alone as yet.
        session.heard = max(session.heard, self.world.now - self.world.random.random() * HALF_TICK)
        if isinstance(operation, Load):
            return self._load(session, connection)
        outcome = self._do(session, operation)
        self._applied[connection.follower] = session.seen = len(self._history) - 1
        return outcome

    def _load(self, session: Session, connection: Connection) -> Loaded:
        session.seen = max(session.seen, self._applied[connection.follower])
        nodes = self._history[session.seen]
        return LoadedAll(tuple(nodes.clients.values()), nodes.view, nodes.source)

    def _do(self, session: Session, operation: Operation) -> Outcome:
        nodes = self.nodes
        match operation:
            case Beat():
                return Done()
            case Look():
                return Seen(nodes.running, nodes.epoch, nodes.version)
            case Claim():
                return self._claim(session, operation, nodes)
            case Store():
                if operation.version not in (nodes.version, -1):
                    return REFUSED
                self._on_store(session, operation)
                changed = {client_id: it for client_id, it in operation.changes.clients.items() if it is not None}
                view, source = changed.pop(OF_VIEW, nodes.view), operation.source or nodes.source
                self.write(replace(nodes, clients={**nodes.clients, **changed}, view=view, source=source))
            case Release():
                if operation.version != nodes.version or nodes.running is None:
                    return REFUSED
                self.write(replace(nodes, running=None))
        return Done(self.nodes.version)

    def _claim(self, session: Session, operation: Claim, nodes: Nodes) -> Done | Refused:
        if nodes.running is not None or operation.version != nodes.version:
            return REFUSED
        running = Running(session.number, session.address)
        self.world.log(session.address, "owns epoch", operation.epoch, "by session", session.number)
        self.write(
            replace(nodes, running=running, epoch=operation.epoch, version=nodes.version + 1, raised_by=session.number)
        )
        return Done(self.nodes.version)

    def write(self, nodes: Nodes) -> None:
        """Apply a write."""
        changed = nodes.running != self.nodes.running
        self._history.append(nodes)
        for follower in range(FOLLOWERS):
            if not self.cut[follower] and self.world.random.random() < 0.7:
                self._applied[follower] = len(self._history) - 1
        if changed:
            for session in self.sessions:
                if session.alive and session.connection is not None and not self.cut[session.connection.follower]:
                    session.connection.notice()
