"""One server among others: what `Participant` decides is done in ZooKeeper, and to the destinations of this process."""

import asyncio
import contextlib
import json
import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from time import CLOCK_BOOTTIME, clock_gettime
from typing import Protocol

from ...instance.config import InstanceConfig
from ...instance.meta.base import InUse, epoch_by_clock
from ...instance.meta.canal import dumps
from ...instance.meta.nodes import (
    Check,
    Create,
    Delete,
    Node,
    NodeError,
    NodeExistsError,
    Operation,
    Put,
    SessionExpiredError,
    UnknownOutcomeError,
)
from ...instance.meta.zookeeper import ZooKeeperClients, epoch_data, read_epoch
from ...instance.serving.tail import Followed
from ...protocol.cut import has_executed, parse_place
from ...protocol.errors import BadPositionError, FencedError, SluiceError, ZooKeeperError
from ...protocol.paths import GROUP, SERVERS, destination_node, epoch_node, running_node, servers_node
from ...store.cursor import Changes, Cursor, StoredClient
from ...store.moves import Move
from .backup import NO_EPOCH, Backups
from .election import State
from .operations import (
    REFUSED,
    UNKNOWN,
    Activate,
    Ask,
    Beat,
    Claim,
    Deactivate,
    Done,
    Load,
    Loaded,
    Look,
    OfDestination,
    Outcome,
    Release,
    Running,
    Seen,
    Store,
    Stored,
)
from .participant import Participant
from .zookeeper import ZooKeeperSession

logger = logging.getLogger(__name__)

PATIENCE = 5.0
"""Seconds after which it is said that ZooKeeper cannot be reached."""
STOPPING = 4.0
"""Seconds that the giving up of a destination may take, with the last write of its cursors (`LAST_STORE`)."""
PUBLISHING = 5.0
"""Seconds between two looks where the logs of the servers begin."""
MOST_TRIES = 10
"""Times that a view is refused by ZooKeeper before its destination begins without it."""
NOWHERE = ("", 0)
"""For the address of the source, where nothing is written with it."""
RETRY = 1.0
"""Seconds to wait after an unforeseen refusal: a right that is missing, a node that holds something else.
Only a person can fix that: trying sooner does not help, and one question a second from each destination is cheap."""


class Host(Protocol):
    """The destinations of this process."""

    async def activate(self, destination: str, meta: "ClusterMetaStore") -> None:
        """Start a destination with these clients. Raises SluiceError when it cannot start."""

    async def deactivate(self, destination: str) -> None:
        """Stop it and let it stand by; its cursors are stored if they can be. Raises SluiceError if they cannot."""

    async def tend_log(self, destination: str) -> None:
        """Follow what other servers have stored of a destination, if this one writes a log of it while it stands by."""

    def log_start(self, destination: str) -> Cursor | None:
        """Return where the log begins that this server writes for a destination; None if it writes none."""


@dataclass(frozen=True, slots=True)
class Identity:
    """By what others know this server."""

    address: str
    """``ip:port`` of Canal's protocol, the name of its nodes."""
    url: str
    """Of the HTTP API."""

    @property
    def data(self) -> bytes:
        """What its nodes hold; those of Canal's own servers hold nothing."""
        return self.data_with({})

    def data_with(self, more: Mapping[str, str]) -> bytes:
        """What a node of it holds that says something more."""
        return dumps({"tls": self.url.startswith("https:"), "url": self.url, **more})


class ClusterMetaStore:
    """The clients of a destination while this server has it."""

    def __init__(self, cluster: "Cluster", destination: str, epoch: int, clients: tuple[StoredClient, ...]) -> None:
        self._cluster = cluster
        self._destination = destination
        self._epoch = epoch
        self._clients = clients

    @property
    def source(self) -> InUse | None:
        """See `MetaStore.source`."""
        return self._cluster.source(self._destination)

    @property
    def place(self) -> Cursor | None:
        """See `MetaStore.place`."""
        return self._cluster.place(self._destination)

    @property
    def moves(self) -> Mapping[int, Sequence[Move]]:
        """See `MetaStore.moves`."""
        return self._cluster.moves(self._destination)

    async def open(self) -> tuple[int, list[StoredClient]]:
        """Return what was found when the destination was taken over."""
        return self._epoch, list(self._clients)

    async def write(self, changes: Changes, epoch: int) -> None:
        """Store changed clients. See `MetaStore.write`."""
        await self._cluster.store(self._destination, changes, epoch)

    async def keep_source(self, source: InUse, epoch: int) -> None:
        """Store which source is read. See `MetaStore.keep_source`."""
        await self._cluster.store(self._destination, Changes({}), epoch, source=source)

    async def close(self) -> None:
        """Do nothing: the destination is given up by its election."""


class ViewMetaStore:
    """The clients of a view, while this server has the destination that it is a view of."""

    place = None
    source = None

    def __init__(self, cluster: "Cluster", config: InstanceConfig) -> None:
        self._cluster = cluster
        self._config = config

    @property
    def moves(self) -> Mapping[int, Sequence[Move]]:
        """See `MetaStore.moves`."""
        return self._cluster.moves(self._config.destination)

    async def open(self) -> tuple[int, list[StoredClient]]:
        """Read the clients, and let them find this server. See `MetaStore.open`."""
        return await self._cluster.open_view(self._config)

    async def write(self, changes: Changes, epoch: int) -> None:
        """Store changed clients. See `MetaStore.write`."""
        await self._cluster.store(self._config.route, changes, epoch, view=self._config.destination)

    async def keep_source(self, source: InUse, epoch: int) -> None:
        """Do nothing: a view has the source of its destination."""

    async def close(self) -> None:
        """Let no client look for the view here."""
        self._cluster.close_view(self._config)


class Cluster:
    """One server among others. All methods belong to one event loop.

    Args:
        hosts: ZooKeeper's servers.
        timeout: of the session, in seconds, as wanted.
        identity: by what others know this server.
        host: the destinations of this process.
        configure: reads the configuration of a destination.
    """

    def __init__(
        self,
        hosts: str,
        timeout: float,
        identity: Identity,
        host: Host,
        configure: Callable[[str], InstanceConfig],
    ) -> None:
        self.problem = "no session with ZooKeeper yet"
        """Why nothing can be taken over now; empty when all is well."""
        self.participant = Participant(identity.address)
        self._hosts = hosts
        self._timeout = timeout
        self._identity = identity
        self._host = host
        self._configure = configure
        self._session: ZooKeeperSession | None = None
        self._clients: dict[str, ZooKeeperClients] = {}
        """Of the session, by destination; made at each take-over, as the destination is configured then."""
        self._last: dict[str, asyncio.Task[None]] = {}
        """The operation of each destination that was asked for last."""
        self._lives: dict[str, asyncio.Lock] = {}
        self._views: set[str] = set()
        """Those that this server serves whenever it has their destinations."""
        self._storing: dict[str, asyncio.Lock] = {}
        """Of each destination: it and its views store one after the other."""
        self._stores: dict[str, asyncio.Future[bool]] = {}
        self._stopped: dict[str, asyncio.Event] = {}
        self._said: dict[str, str] = {}
        """The problem of each destination that was logged last."""
        self._refused: dict[str, str] = {}
        """Why ZooKeeper does not do what was asked for a destination last."""
        self._held: dict[str, str] = {}
        """The oldest position that the logs of all servers hold, by destination, as last seen."""
        self._warned: set[str] = set()
        """What was said in this session already, as it is tried again and again."""
        self._backups = Backups(identity.address, configure)
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Take part, in one session after the other, until cancelled."""
        saving = asyncio.create_task(self._backups.run(), name="save cursors")
        try:
            while True:
                try:
                    await self._take_part(ZooKeeperSession(self._hosts, self._timeout, self._connection_changed))
                except Exception:  # the next session may fare better; without one nothing is served
                    logger.exception("the session with ZooKeeper (%s) has failed; another one begins", self._hosts)
                    await asyncio.sleep(RETRY)
        finally:
            for task in self._tasks:
                task.cancel()
            self._backups.stop()
            await saving

    def start(self, destination: str) -> None:
        """Take part in the election of a destination, which is activated when it is won."""
        self._stopped.pop(destination, None)
        self.participant.start(destination)
        if self._session is not None:
            self._spawn(self._register(self._session, servers_node(destination)))
        self._drive()

    async def stop(self, destination: str) -> None:
        """Give a destination up, with its cursors stored; return when others can have it, or after 4 s."""
        stopped = self._stopped.setdefault(destination, asyncio.Event())
        self.participant.stop(destination, _now())
        self._drive()
        try:
            async with asyncio.timeout(STOPPING):
                await stopped.wait()
        except TimeoutError:
            logger.warning(
                "it is not released after %g s: the server keeps trying", STOPPING, extra={"destination": destination}
            )
        if self._session is not None:
            self._spawn(self._unregister(self._session, destination))

    def check(self, destination: str) -> None:
        """Raise FencedError, with the active server's URL where it is known, unless this server may serve it now."""
        try:
            self.participant.check(destination, _now())
        except FencedError as error:
            raise FencedError(f"{error}{self._reason()}", error.active) from None

    def moves(self, destination: str) -> Mapping[int, Sequence[Move]]:
        """Return the jumps of the clients of a destination or view, as they were found."""
        clients = self._clients.get(destination)
        return clients.moves if clients is not None else {}

    def place(self, destination: str) -> Cursor | None:
        """Return where a destination begins when no client has a cursor; None where that is not kept."""
        clients = self._clients.get(destination)
        return clients.place if clients is not None else None

    def source(self, destination: str) -> InUse | None:
        """Return which of several sources of a destination is read, if that was chosen."""
        clients = self._clients.get(destination)
        return clients.source if clients is not None else None

    def active(self, destination: str) -> str:
        """Return the address of the server that has a destination, as far as is known; empty when none has."""
        return self.participant.election(destination).active

    def problem_of(self, destination: str) -> str:
        """Return what keeps, or would keep, this server from serving a destination; empty when all is well."""
        return (
            self.problem
            or self.participant.election(destination).problem
            or self._refused.get(destination, "")
            or self._backups.problem(destination)
        )

    @property
    def lost(self) -> list[str]:
        """The destinations of which ZooKeeper has lost cursors: no server has them until these are restored."""
        return [it for it in self.participant.destinations if self.participant.election(it).loss]

    def held(self, destination: str) -> str:
        """Return the oldest position that the logs of all servers hold; empty if one of them writes none."""
        return self._held.get(destination, "")

    async def group(self) -> str:
        """Return the name that the servers of this ZooKeeper have in common: the first that asks makes it, for ever.

        Raises ZooKeeperError when it cannot be read now.
        """
        session = self._session
        if session is None:
            raise ZooKeeperError(self.problem or "no session with ZooKeeper yet")
        if await session.find(GROUP) is None:
            with contextlib.suppress(NodeExistsError):
                await session.create(GROUP, (self._backups.group or uuid.uuid4().hex).encode())
        self._backups.group = (await session.get(GROUP)).data.decode()
        return self._backups.group

    async def store(
        self,
        destination: str,
        changes: Changes,
        epoch: int,
        *,
        view: str = "",
        source: InUse | None = None,
    ) -> None:
        """Store changed clients, of a view if one is named, and which source is read, fenced by the epoch, durably.

        Raises FencedError when another has the destination.
        """
        async with self._storing.setdefault(destination, asyncio.Lock()):
            self.participant.store(destination, changes, epoch, _now(), view, source)
            stored = self._stores[destination] = asyncio.get_running_loop().create_future()
            self._drive()
            if not await stored:
                raise FencedError(f"destination:{destination} is not active here any more: the cursors were not stored")

    async def follow(self, destination: str, views: Sequence[str]) -> Followed:
        """Return what is stored of a destination and its views, whichever server has them.

        Raises ZooKeeperError when it cannot be read now, or nothing is there, and ConfigError when it makes no sense.
        """
        session, clients, source = self._session, dict[int, StoredClient](), None
        if session is None:
            raise ZooKeeperError(self.problem)
        await session.sync()  # what other servers have done until now is seen
        if await session.find(epoch_node(destination)) is None:
            raise ZooKeeperError(f"{destination} has no epoch: no server has had it, or ZooKeeper has lost its data")
        for number, name in enumerate((destination, *views)):
            if await session.find(destination_node(name)) is None:  # nothing was stored yet
                continue
            stored = ZooKeeperClients(session, name, NOWHERE)
            clients |= {(number << 16) + it.client_id: it for it in await stored.read()}
            source = stored.source if name == destination else source
        return Followed(source, clients)

    # --- views -------------------------------------------------------------------------------------------------------

    def view_store(self, config: InstanceConfig) -> ViewMetaStore:
        """Return where the clients of a view are kept."""
        return ViewMetaStore(self, config)

    def add_view(self, view: str) -> None:
        """Take part in a view: it is served here whenever this server has its destination."""
        self._views.add(view)
        if self._session is not None:
            self._spawn(self._register(self._session, servers_node(view)))

    def remove_view(self, view: str) -> None:
        """Take part no more."""
        self._views.discard(view)
        if self._session is not None:
            self._spawn(self._unregister(self._session, view))

    async def open_view(self, config: InstanceConfig) -> tuple[int, list[StoredClient]]:
        """Return epoch and clients of a view, and have its node ``running``, by which clients find this server.

        Raises:
            FencedError: this server does not have its destination any more.
            ZooKeeperError: the nodes cannot be read, or another server has the view as a destination of its own.
        """
        view, destination = config.destination, config.route
        tries = 0
        while True:
            self.check(destination)
            session, election = self._session, self.participant.election(destination)
            if session is None:
                raise ZooKeeperError(self.problem)
            clients = ZooKeeperClients(session, view, config.address, fence=destination)
            try:
                await session.ensure(servers_node(view))
                await self._announce(session, view, destination, election.version)
                found = await clients.load()
            except (UnknownOutcomeError, NodeError) as error:  # if another server is the reason, the next look says so
                logger.info("%s", error, extra={"destination": view})
                tries += 1
                if tries == MOST_TRIES:
                    raise ZooKeeperError(str(error)) from error
                await asyncio.sleep(RETRY)
                continue
            self._clients[view] = clients
            self._backups.loaded(destination, view, election.epoch, found, clients.moves)
            return election.epoch, list(found)

    def close_view(self, config: InstanceConfig) -> None:
        """Give the node ``running`` of a view away, if it is still of this server."""
        version = self.participant.election(config.route).version
        if self._session is not None and version >= 0:
            self._spawn(self._withdraw(self._session, config, version))

    async def _announce(self, session: ZooKeeperSession, view: str, destination: str, version: int) -> None:
        """Have the node ``running`` of a view. Raises NodeError if another server has its destination by now."""
        path = running_node(view)
        data = dumps({"active": True, "address": self._identity.address, "route": destination})
        operations: list[Operation] = [Check(epoch_node(destination), version)]
        node = await session.find(path)
        if node is not None and node.owner != session.session_id and "route" not in _object(node):
            raise ZooKeeperError(
                f"{view} is a destination of its own for {_object(node).get('address')}, and a view of {destination}"
                " here: configure it there as here, then start it again"
            )
        if node is not None:
            operations.append(Delete(path))  # of the server that had the destination before
        await session.commit([*operations, Create(path, data, ephemeral=True)])

    async def _withdraw(self, session: ZooKeeperSession, config: InstanceConfig, version: int) -> None:
        try:
            await session.commit([Check(epoch_node(config.route), version), Delete(running_node(config.destination))])
        except ZooKeeperError as error:  # it goes with the session, or the server that has the destination replaces it
            logger.info("%s", error, extra={"destination": config.destination})

    # --- the life of a session ---------------------------------------------------------------------------------------

    async def _take_part(self, session: ZooKeeperSession) -> None:
        try:
            await self._wait_for(session)
            await self._begin(session)
            await session.wait_until_over()
        finally:
            await self._end(session)

    async def _wait_for(self, session: ZooKeeperSession) -> None:
        connecting = asyncio.create_task(session.connect(), name="connect to ZooKeeper")
        try:
            while not (await asyncio.wait([connecting], timeout=PATIENCE))[0]:
                self.problem = f"ZooKeeper ({session.hosts}) cannot be reached"
                logger.warning("%s: nothing can be taken over; it is tried again", self.problem)
            await connecting
        finally:
            connecting.cancel()

    async def _begin(self, session: ZooKeeperSession) -> None:
        self.problem = ""
        logger.info("session %#x with ZooKeeper, timeout %g s", session.session_id, session.timeout)
        self._spawn(self._register(session, SERVERS))
        await self._read_servers(session)
        if session.over:
            return
        self._session = session
        for destination in self.participant.destinations:  # those that are started from here on register themselves
            if self.participant.election(destination).wanted:
                self._spawn(self._register(session, servers_node(destination)))
        for view in self._views:
            self._spawn(self._register(session, servers_node(view)))
        self.participant.opened(session.session_id, session.timeout, _now())
        self._spawn(self._compare_logs(session))
        self._drive()

    async def _end(self, session: ZooKeeperSession) -> None:
        self._session = None
        self._held.clear()
        self._last.clear()  # ZooKeeper may have left them without an answer
        self._warned.clear()
        self._backups.left(session.zxid)
        self.problem = "no session with ZooKeeper yet"
        self.participant.expired(_now())
        self._drive()
        await session.close()

    def _connection_changed(self, connected: bool) -> None:
        self.problem = "" if connected else f"the connection to ZooKeeper ({self._hosts}) is lost"
        if not connected:
            logger.warning("%s; it is tried again", self.problem)
        elif self._session is not None:
            logger.info("the connection to ZooKeeper is restored")

    def _reason(self) -> str:
        return f" ({self.problem})" if self.problem else ""

    # --- registration ------------------------------------------------------------------------------------------------

    async def _register(self, session: ZooKeeperSession, parent: str) -> None:
        """Have a node in a folder for as long as the session lives."""
        path = f"{parent}/{self._identity.address}"
        while not session.over:
            gone = asyncio.Event()
            try:
                await session.ensure(parent)
                node = await session.find(path, gone.set)
                if node is None:
                    await session.create(path, self._identity.data, ephemeral=True)
                    return
                if node.owner == session.session_id:
                    return
                await gone.wait()  # of an earlier process at this address; it goes with that one's session
            except SessionExpiredError:
                return
            except ZooKeeperError as error:
                self._warn("clients do not find this server", error)
                await asyncio.sleep(RETRY)

    async def _unregister(self, session: ZooKeeperSession, destination: str) -> None:
        path = f"{servers_node(destination)}/{self._identity.address}"
        try:
            node = await session.find(path)
            if node is not None and node.owner == session.session_id:
                await session.delete(path)
        except ZooKeeperError as error:
            logger.info("%s", error, extra={"destination": destination})

    async def _compare_logs(self, session: ZooKeeperSession) -> None:
        """Say where the logs of this server begin, and see where those of the others do, for as long as it lives."""
        said = set[str]()
        while not session.over:
            for destination in list(self.participant.destinations):
                await self._host.tend_log(destination)
                own = self._host.log_start(destination)
                if own is None and destination not in said:
                    continue
                said.add(destination)
                try:
                    self._held[destination] = await self._compare_log(session, destination, own)
                except SessionExpiredError:
                    return
                except ZooKeeperError as error:
                    self._held.pop(destination, None)
                    self._warn("it is not known where the logs of the other servers begin", error)
            await asyncio.sleep(PUBLISHING)

    async def _compare_log(self, session: ZooKeeperSession, destination: str, own: Cursor | None) -> str:
        """Put where a log begins into the node of this server; return the last of the places of all servers."""
        node = await session.find(f"{servers_node(destination)}/{self._identity.address}")
        if node is None or node.owner != session.session_id:
            return ""
        data = self._identity.data_with({} if own is None else {"log": str(own.position), "logGtids": own.gtid})
        if node.data != data:
            await session.set(f"{servers_node(destination)}/{self._identity.address}", data, node.version)
        if own is None:
            return ""
        nodes = await self._registered(session, servers_node(destination))
        try:
            return _last([own if name == self._identity.address else _log_start(it) for name, it in nodes.items()])
        except BadPositionError:
            return ""

    async def _read_servers(self, session: ZooKeeperSession) -> None:
        """See which servers live, now and whenever that changes."""
        try:
            await session.ensure(SERVERS)
            nodes = await self._registered(session, SERVERS, lambda: self._read_servers_again(session))
        except SessionExpiredError:
            return
        except ZooKeeperError as error:
            self._warn("the other servers are not known", error)
            asyncio.get_running_loop().call_later(RETRY, self._read_servers_again, session)
            return
        if session.over:
            return
        self.participant.registered({name: url for name, node in nodes.items() if (url := _url(node))})

    def _warn(self, what: str, error: ZooKeeperError) -> None:
        """Log once what is tried again and again; a lost connection is said by itself."""
        text = f"{what}: {error}"
        if text not in self._warned and not isinstance(error, UnknownOutcomeError):
            self._warned.add(text)
            logger.warning("%s", text)

    def _read_servers_again(self, session: ZooKeeperSession) -> None:
        self._spawn(self._read_servers(session))

    @staticmethod
    async def _registered(
        session: ZooKeeperSession, parent: str, watch: Callable[[], None] | None = None
    ) -> dict[str, Node]:
        names = await session.children(parent, watch)
        nodes = await asyncio.gather(*(session.find(f"{parent}/{name}") for name in names))
        return {name: node for name, node in zip(names, nodes, strict=True) if node is not None}

    # --- what the participant decides --------------------------------------------------------------------------------

    def _drive(self) -> None:
        """Do what the participant has decided, and look again when it wants to."""
        for action in self.participant.take_actions():
            match action:
                case Ask():
                    self._ask(action)
                case Activate() | Deactivate():
                    self._spawn(self._live(action))
                case Stored(destination, durable):
                    stored = self._stores.pop(destination)
                    if not stored.done():  # else its caller does not wait any more
                        stored.set_result(durable)
        for destination, stopped in self._stopped.items():
            if self.participant.election(destination).state is State.STOPPED:
                stopped.set()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline = self.participant.deadline
        if deadline != float("inf"):
            self._timer = asyncio.get_running_loop().call_later(deadline - _now(), self._tick)

    def _tick(self) -> None:
        self.participant.tick(_now())
        self._drive()

    def _spawn(self, work: Awaitable[None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _live(self, action: Activate | Deactivate) -> None:
        """Start or stop a destination, one after the other."""
        destination = action.destination
        problem = ""
        async with self._lives.setdefault(destination, asyncio.Lock()):
            try:
                if isinstance(action, Activate):
                    logger.info("active, epoch %d", action.epoch, extra={"destination": destination})
                    meta = ClusterMetaStore(self, destination, action.epoch, action.clients)
                    await self._host.activate(destination, meta)
                    return
                logger.info("no longer active here", extra={"destination": destination})
                await self._host.deactivate(destination)
            except Exception as error:  # noqa: BLE001  else it would not be served: this server has it
                _log(error, destination)
                problem = _text(error) if isinstance(action, Activate) else ""
        self.participant.deactivated(destination, _now(), problem)
        self._drive()

    # --- operations --------------------------------------------------------------------------------------------------

    def _ask(self, ask: Ask) -> None:
        """Do an operation when those of the same destination that were asked for before are done."""
        session = self._session
        if session is None or session.session_id != ask.session:
            return
        key = "" if isinstance(ask.operation, Beat) else ask.operation.destination
        self._last[key] = self._spawn(self._answer(ask, key, session, self._last.get(key)))

    async def _answer(self, ask: Ask, key: str, session: ZooKeeperSession, previous: asyncio.Task[None] | None) -> None:
        if previous is not None:
            await asyncio.wait([previous])
        if self._session is not session:  # what it remembered of the clients would be taken for that of the next one
            return
        try:
            outcome = await self._do(ask.operation, session)
            self._refused.pop(key, None)
        except SessionExpiredError:
            return
        except UnknownOutcomeError:
            outcome = UNKNOWN
        except Exception as error:  # noqa: BLE001  unanswered, the destination would stand still
            text = _text(error)
            if self._refused.get(key) != text:
                _log(error, key)
            self._refused[key] = text
            if isinstance(ask.operation, Load):
                self.participant.deactivated(ask.operation.destination, _now(), text)
            await asyncio.sleep(RETRY)
            outcome = UNKNOWN
        if self._session is session:
            self.participant.answered(ask.number, outcome, _now())
            if isinstance(ask.operation, Look):
                self._say(ask.operation.destination)
            self._drive()

    def _say(self, destination: str) -> None:
        """Log it when Canal's own server is in the way, or no longer."""
        problem = self.participant.election(destination).problem
        if problem != self._said.get(destination, ""):
            logger.warning("%s", problem or "the error is resolved", extra={"destination": destination})
            self._said[destination] = problem

    async def _do(self, operation: Beat | OfDestination, session: ZooKeeperSession) -> Outcome:
        if isinstance(operation, Beat):
            await session.sync()
            return Done()
        destination = operation.destination
        running = running_node(destination)
        try:
            match operation:
                case Look():
                    return await self._look(destination, session)
                case Claim(epoch=epoch, version=version):
                    data = epoch_data(epoch)
                    fence: Operation = (
                        Create(epoch_node(destination), data)
                        if version < 0
                        else Put(epoch_node(destination), data, version)
                    )
                    mine = dumps({"active": True, "address": self._identity.address})
                    results = await session.commit([fence, Create(running, mine, ephemeral=True)])
                    return Done(results[0] or 0)
                case Load():
                    clients = self._clients[destination] = self._clients_of(destination, session)
                    found = await clients.load()
                    epoch = self.participant.election(destination).epoch
                    self._backups.loaded(destination, destination, epoch, found, clients.moves)
                    self._backups.placed(destination, clients.source, clients.place)
                    return Loaded(found)
                case Store(version=version, changes=changes, epoch=changed_epoch, view=view, source=source):
                    clients = self._clients[view or destination]
                    done = Done(await clients.store(version, changes, changed_epoch, source))
                    self._backups.stored(destination, view or destination, changes, changed_epoch)
                    if not view:
                        self._backups.placed(destination, clients.source, clients.place)
                    return done
                case Release(version=version):
                    await session.commit([Check(epoch_node(destination), version), Delete(running)])
                    return Done()
        except NodeError as error:
            if isinstance(operation, Load):  # it belongs to this server now: its nodes should stay
                raise ZooKeeperError(f"the clients cannot be read: {error}") from error
            if isinstance(operation, Look):  # what was made just now is being deleted
                raise ZooKeeperError(str(error)) from error
            return REFUSED

    async def _look(self, destination: str, session: ZooKeeperSession) -> Seen:
        def changed() -> None:
            if self._session is session:
                self.participant.changed(destination)
                self._drive()

        await session.ensure(servers_node(destination))
        await session.sync()  # what other servers have done until now is seen
        node = await session.find(running_node(destination), changed)
        fence = await session.find(epoch_node(destination))
        servers = await self._registered(session, servers_node(destination), changed)
        strangers = tuple(name for name, it in servers.items() if not it.data)
        epoch, version = epoch_by_clock(), -1
        if fence is not None:
            epoch, version = read_epoch(fence.data, destination), fence.version
        running = None
        if node is not None:
            data = _object(node)
            running = Running(
                node.owner,
                str(data.get("address", "")),
                active=bool(data.get("active")),
                fenced=fence is not None and fence.changed >= node.created,
            )
        loss = await self._backups.compare(
            destination, epoch if fence is not None else NO_EPOCH, session.zxid, running.address if running else ""
        )
        return Seen(running, epoch, version, strangers, loss)

    def _clients_of(self, destination: str, session: ZooKeeperSession) -> ZooKeeperClients:
        config = self._configure(destination)
        parse = config.log_position == "parse"
        return ZooKeeperClients(session, destination, config.address, parse=parse)


def _now() -> float:
    """Return the seconds since this host was started, those in which it or the process was suspended included."""
    return clock_gettime(CLOCK_BOOTTIME)


def _text(error: Exception) -> str:
    """Return what to say of an error, with its kind unless it says all."""
    return str(error) if isinstance(error, SluiceError) else f"{type(error).__name__}: {error}"


def _log(error: Exception, destination: str) -> None:
    logger.error(
        "%s",
        _text(error),
        exc_info=None if isinstance(error, SluiceError) else error,
        extra={"destination": destination} if destination else {},
    )


def _object(node: Node) -> dict[str, object]:
    """Return the JSON object that a node holds; an empty one if it holds something else."""
    try:
        data = json.loads(node.data)
    except ValueError:
        return {}
    return data if isinstance(data, dict) else {}


def _url(node: Node) -> str:
    return str(_object(node).get("url") or "")


def _log_start(node: Node) -> Cursor | None:
    """Return where the log of a server begins, by its node. Raises BadPositionError."""
    data = _object(node)
    return Cursor.at(parse_place(str(data["log"])), str(data.get("logGtids") or "")) if data.get("log") else None


def _last(starts: Sequence[Cursor | None]) -> str:
    """Return the last of the places where logs begin; empty if one has none, or they have no order.

    Raises BadPositionError.
    """
    known = [it for it in starts if it is not None]
    last = next((it for it in known if all(_has_passed(it, other) for other in known)), None)
    return str(last.position) if last is not None and len(known) == len(starts) else ""


def _has_passed(one: Cursor, other: Cursor) -> bool:
    """Whether a place is not before another one, which may be of another source: then GTIDs say so."""
    if one.position is not None and other.position is not None and one.position.is_comparable(other.position):
        return other.position.precedes(one.position)
    return has_executed(one.gtid, other.gtid)
