"""A server: the real machines, a ring with its cursors, and around them what a host does, on simulated networks."""

import asyncio
import contextlib
import json
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from sluice.client_sdk.calls import Reply
from sluice.instance.config import InstanceConfig
from sluice.instance.meta.base import InUse, MetaStore
from sluice.instance.serving.detection import Detection
from sluice.instance.serving.given import Given
from sluice.instance.serving.switch import SourceSwitch
from sluice.instance.source import Parser, Proof
from sluice.instance.sources.mysql.config import MysqlConfig
from sluice.instance.status import ParserStatus
from sluice.protocol.errors import (
    BadPositionError,
    DestinationStoppedError,
    FencedError,
    GoneError,
    SluiceError,
    SourceChangedError,
    SourceError,
    SwitchRefusedError,
)
from sluice.protocol.gtid import Transactions
from sluice.protocol.position import Position
from sluice.protocol.wire import varint
from sluice.server.ha.backup import PERIOD, Backup, Saved
from sluice.server.ha.cluster import RETRY
from sluice.server.ha.election import LAST_STORE, State
from sluice.server.ha.operations import (
    UNKNOWN,
    Action,
    Activate,
    Ask,
    Claim,
    Deactivate,
    Done,
    Loaded,
    Operation,
    Outcome,
    Seen,
    Store,
    Stored,
)
from sluice.server.ha.participant import Participant
from sluice.store.commits import Commits
from sluice.store.cursor import Changes, Cursor, StoredClient
from sluice.store.cursors import Cursors
from sluice.store.ring import Ring
from tests.simulation.ensemble import CLIENT, OF_VIEW, TIMEOUT, Ensemble, LoadedAll, Session
from tests.simulation.loop import Loop
from tests.simulation.output import Output
from tests.simulation.source import ADDRESSES, RING_BYTES, RING_SLOTS, Host, Reader, Source, index_of
from tests.simulation.world import World

if TYPE_CHECKING:
    from tests.simulation.checks import Checks

DESTINATION, VIEW = "example", "view"
FLUSH_PERIOD = 1.0
CONFIG = MysqlConfig.model_validate(
    {
        "destination": DESTINATION,
        "db_username": "sluice",
        "master_address": ADDRESSES[0],
        "standby_address": ADDRESSES[1],
        "detecting_enable": True,
        "detecting_interval": 1,
        "detecting_retry_threshold": 1,
        "heartbeat_ha_enable": True,
    }
)
"""Of a destination with two servers as its source: another one is read when the one in use does not answer twice."""

Answer = Callable[[Reply], None]


@dataclass(frozen=True, slots=True)
class Request:
    """A call of a consumer."""

    client_id: int
    path: str
    body: Any
    entries: int
    """How many a get may give."""
    durable: bool
    session: str | None
    answer: Answer


class Link:
    """A connection of a server to a follower. Both directions keep their order."""

    def __init__(self, server: "Server", session: Session, follower: int) -> None:
        self.server = server
        self.session = session
        self.follower = follower
        self.stuck = False
        self._asked: dict[int, Operation] = {}
        self._there = self._back = 0.0

    def ask(self, number: int, operation: Operation) -> None:
        """Send a question."""
        world = self.server.world
        self._asked[number] = operation
        self._there = max(self._there, world.now + world.latency())
        world.at(self._there, None, self._arrive, number, operation)

    def _arrive(self, number: int, operation: Operation) -> None:
        server = self.server
        outcome = server.ensemble.serve(self.session, self, operation)
        if isinstance(outcome, Loaded) and server.fails():
            self._send(self._cannot_load)
            self._back += RETRY
            outcome = UNKNOWN
        if outcome is not None:
            self._send(self._answered, number, outcome, server.ensemble.zxid)

    def _cannot_load(self) -> None:
        if self.server.link is self:
            self.server.participant.deactivated(DESTINATION, self.server.clock(), "a node is not a cursor")

    def _send(self, call: Callable[..., None], *arguments: Any) -> None:
        world = self.server.world
        self._back = max(self._back, world.now + world.latency())
        world.at(self._back, self.server, call, *arguments)

    def _answered(self, number: int, outcome: Outcome, zxid: int) -> None:
        if self.server.link is self:
            assert number == next(iter(self._asked)), "a connection answers in the order of the questions"
            outcome = self.server.remember(self._asked.pop(number), outcome, zxid)
            self.server.hear(self.server.participant.answered, number, outcome)

    def notice(self) -> None:
        """Send word that ``running`` has changed."""
        self._send(self._changed)

    def _changed(self) -> None:
        if self.server.link is self:
            self.server.changed()

    def expire(self) -> None:
        """Send word that the session has expired."""
        self._send(self._expired)

    def _expired(self) -> None:
        if self.server.link is self:
            self.server.expired()

    def lose(self) -> None:
        """Break: the outcome of what is under way is unknown."""
        asked, self._asked = self._asked, {}
        for number in asked:
            self.server.hear(self.server.participant.answered, number, UNKNOWN, run=False)


class PolledRing(Ring):
    """A ring that no thread waits to put into: a full one counts as waited for."""

    @property
    def waiting(self) -> bool:  # type: ignore[override]
        """Whether more is put only when there is room."""
        return len(self) == RING_SLOTS


@dataclass
class Write:
    """What is to be stored in ZooKeeper."""

    changes: Changes
    epoch: int
    answered: Callable[[bool], None]
    """Hears whether it is durable."""
    view: str = ""
    source: InUse | None = None


class Served:
    """The clients of the destination, or of its view."""

    def __init__(self, cursors: Cursors, view: str = "") -> None:
        self.cursors = cursors
        self.commits: Commits[Answer] = Commits(cursors.clients)
        self.view = view


class Instance:
    """The destination on the server that serves it, with its view if it has one."""

    def __init__(self, server: "Server", source: Source, activate: Activate, now: float) -> None:
        ring = PolledRing(RING_SLOTS, RING_BYTES, segment_size=4096)
        self.epoch = activate.epoch
        self.source = source
        self.closing = False
        self.ending = False
        """It has begun to store what it stores last."""
        self.writes: deque[Write] = deque()
        """What is to be stored; the first is under way if ..."""
        self.is_writing = False
        """... this is set."""
        self.meta = Meta(server, self, server.chosen if len(source.hosts) > 1 else None)
        self.config: InstanceConfig = CONFIG.using(self.meta.source)
        self.host = self.host_of(self.config)
        self.cursors = self._make(server, ring)
        self.served = [Served(self.cursors)]
        clients: dict[Cursors, Sequence[StoredClient]] = {self.cursors: activate.clients}
        if len(source.hosts) > 1:
            self.served.append(Served(self._make(server, ring, self.cursors), VIEW))
            clients[self.served[1].cursors] = [server.view]
        starts = []
        for cursors, stored in clients.items():
            for client in stored:
                cursor = client.cursor
                position = cursor.position if cursor is not None else None
                starts.append(index_of(position) if position is not None else 0)
                # As catch-up readers do it by GTIDs: the place on the server that is read now.
                if position is not None and position.source != self.host.source:
                    cursor = Cursor.at(self.host.place(index_of(position)))
                cursors.restore(replace(client, cursor=cursor), now)
        start = min(starts)
        self.cursors.begin(self.host.place(start), None)
        self.reader = Reader(source, self.host, ring, start)

    def _make(self, server: "Server", ring: Ring, main: Cursors | None = None) -> Cursors:
        return server.make_cursors(ring, epoch=self.epoch, compile_filter=lambda _: None, main=main)

    def host_of(self, config: InstanceConfig) -> Host:
        """Return the server of the source that is read with a configuration."""
        hosts = {it.address: it for it in self.source.hosts}
        return hosts.get(config.in_use, self.source.hosts[0])

    def position(self, position: Position) -> Position:
        """Return a place that the ring lacks, for it is of a former source, as one of the source that is read now."""
        try:
            self.cursors.track.sequence_of(position)
        except SourceChangedError:
            return self.host.place(index_of(position))
        except GoneError:
            pass
        return position

    def served_to(self, client_id: int) -> Served:
        """Return the clients that one belongs to."""
        return self.served[client_id == OF_VIEW]


class Meta:
    """Where it is stored which server of the source is read: see `MetaStore`."""

    def __init__(self, server: "Server", instance: Instance, source: InUse | None) -> None:
        self.source = source
        self._server = server
        self._instance = instance

    async def keep_source(self, source: InUse, epoch: int) -> None:
        """See `MetaStore.keep_source`."""
        stored = self._server.loop.create_future()

        def answered(durable: bool) -> None:
            if not stored.done():
                stored.set_result(durable)

        self._server.write(self._instance, Write(Changes({}), epoch, answered, source=source))
        if not await stored:
            raise FencedError("which source is read is not stored: not active")
        self.source = source


class Feed:
    """What fills the ring from a server of the source, or proves where it could: see `Parser`."""

    failure = None
    status = ParserStatus(behind=0.0)

    def __init__(self, source: Source, reader: Reader) -> None:
        self.reader = reader
        self._source = source

    def start(self) -> None:
        """Begin to read."""
        self.reader.is_reading = True

    def stop(self) -> None:
        """Read no more."""
        self.reader.is_reading = False

    def probe(self) -> None:
        """Raise SourceError when the server does not answer."""
        if not self._source.is_up(self.reader.host):
            raise SourceError(f"{self.reader.host.address} does not answer")

    def prove(self, place: Cursor, sample: bytes) -> Proof:
        """Return where the server has the same place, and what it lacks. Raises SourceError."""
        del sample
        self.probe()
        assert place.position is not None
        index, has = index_of(place.position), self.reader.host.has
        lost = Transactions([f"0-1-{has + 1}-{index}"]) if has < index else Transactions()
        return Proof(Cursor.at(self.reader.host.place(index)), lost)


class Asking(Detection):
    """Asks a source in simulated time."""

    def __init__(self, server: "Server", *arguments: Any) -> None:
        self._server = server
        super().__init__(*arguments)

    def _start(self) -> None:
        self._server.world.tell(self._probing.interval, self._server, self._ask_again)

    def _ask_again(self) -> None:
        if not self._stopping.is_set():
            self._ask()
            self._start()


class Switching:
    """A destination as its switch of the source sees it: `sluice.instance.serving.switch.Destination`."""

    def __init__(self, server: "Server", instance: Instance) -> None:
        self.server = server
        self.instance = instance
        self.name, self.member, self.turns = instance.config.destination, "", asyncio.Lock()
        self.config = instance.config
        self.cursors = instance.cursors
        self.problem = ""
        """Why nothing is read before an operator decides."""
        self.feed = self._feed(instance.reader)
        self.switch = SourceSwitch(self, lambda *given: Asking(server, *given))
        server.loop.call_soon(self._begin)

    def _begin(self) -> None:
        self.feed.start()
        self.switch.attend(self.feed)

    @property
    def epoch(self) -> int:
        """See `Destination.epoch`."""
        return self.cursors.counters.epoch

    @property
    def given(self) -> Given:
        """See `Destination.given`."""
        return Given(self.cursors)

    @property
    def chosen(self) -> InUse | None:
        """See `Destination.chosen`."""
        return self.instance.meta.source

    async def choose(self, chosen: InUse) -> None:
        """See `Destination.choose`."""
        await cast("MetaStore", self.instance.meta).keep_source(chosen, self.epoch)

    def probe(self, parser: Parser) -> None:
        """See `Destination.probe`."""
        parser.probe()

    def _feed(self, reader: Reader) -> Parser:
        return cast("Parser", Feed(self.instance.source, reader))

    def running_parser(self) -> Parser:
        """See `Destination.running_parser`."""
        if self.instance.closing:
            raise DestinationStoppedError("it does not run")
        return self.feed

    def reads(self, parser: Parser) -> bool:
        """See `Destination.reads`."""
        return parser is self.feed and not self.instance.closing

    def make_prover(self, config: InstanceConfig) -> Parser:
        """See `Destination.make_prover`."""
        instance = self.instance
        if not self.goes_on_in_ring(is_another=True):
            raise SwitchRefusedError("inside a transaction the stream would begin anew, which is not simulated")
        return self._feed(Reader(instance.source, instance.host_of(config), instance.reader.ring, instance.reader.next))

    async def stop_reading(self, parser: Parser) -> None:
        """See `Destination.stop_reading`."""
        self.switch.leave()
        parser.stop()

    def goes_on_in_ring(self, *, is_another: bool) -> bool:
        """See `Destination.goes_on_in_ring`; without catch-up readers not before the ring has come to all clients."""
        del is_another
        if any(it.places.awaited(client_id) for it in self.cursors.with_views for client_id in it.clients.ids):
            return False
        place = self.cursors.track.last_boundary()
        return place is not None and place.position == self.cursors.position_before(self.cursors.ring.next)

    async def drain(self) -> None:
        """See `Destination.drain`: all places have GTIDs."""

    def bound_clients(self) -> list[str]:
        """See `Destination.bound_clients`: all places have GTIDs."""
        return []

    def log_end(self) -> Cursor | None:
        """See `Destination.log_end`: there is none."""
        return None

    async def read_on(self, parser: Parser, config: InstanceConfig, place: Cursor | None, *, is_another: bool) -> None:
        """See `Destination.read_on`."""
        instance, self.config, self.problem = self.instance, config, ""
        if is_another:
            assert place is not None
            assert place.position is not None
            host = instance.host = instance.host_of(config)
            self.server.world.log(self.server.name, "reads", host.address, "from", index_of(place.position))
            self.cursors.track.switch()
            instance.reader = Reader(instance.source, host, instance.reader.ring, index_of(place.position))
            self.feed = self._feed(instance.reader)
        self._begin()

    def tell(self, state: str, error: str) -> None:
        """See `Destination.tell`."""
        del state
        self.problem = error

    def fail(self, error: Exception) -> None:
        """See `Destination.fail`."""
        raise error

    is_needed = True
    is_stranded = False

    async def begin_anew(self, parser: Parser) -> None:
        """See `Destination.begin_anew`."""
        raise NotImplementedError


class Server:
    """A process that may die and come back, stand still, and lose its connections."""

    make_participant = Participant
    make_cursors = Cursors
    make_output = Output
    make_switching = Switching

    def __init__(self, name: str, world: World, ensemble: Ensemble, source: Source, checks: "Checks") -> None:
        self.broker = checks.broker
        self.name = name
        self.url = f"http://{name}:8080"
        self.world = world
        self.ensemble = ensemble
        self.life = 0
        self.awake_at = 0.0
        self.is_up = False
        self.cut_until = 0.0
        """It does not reach ZooKeeper until then."""
        self.link: Link | None = None
        self.instance: Instance | None = None
        self.switching: Switching | None = None
        """How the instance switches between two servers of the source."""
        self.loop: Loop
        """Runs what the instance does besides."""
        self.chosen: InUse | None = None
        """Which server of the source is read, and ..."""
        self.view = StoredClient(OF_VIEW)
        """... the client of the view, as they were loaded last."""
        self.backup = self.disk = Backup(DESTINATION)
        """What it knows of ZooKeeper, and what of that outlives it."""
        self._saved = 0.0
        self.wall = 0.0
        """By how many seconds the clock of the day is wrong."""
        self.failing = True
        """At times it cannot load or activate the destination."""
        self._source = source
        self._checks = checks
        self._rate = 0.95 + 0.1 * world.random.random()
        self._timer = math.inf
        self._timers = 0
        self._held: list[Ask] = []
        self._running = False
        self._lives: deque[Activate | Deactivate] = deque()
        """What the destination is told to do; the first is under way."""
        self.lost = False
        """Another may have the destination, so that this one must store nothing more."""

    def clock(self) -> float:
        """CLOCK_BOOTTIME, a little too slow or too fast."""
        return self.world.now * self._rate

    @property
    def epoch(self) -> int | None:
        """The epoch in which it would serve a request now; None when it would refuse."""
        if not self.is_up or self.awake_at > self.world.now or self.instance is None or self.instance.closing:
            return None
        try:
            self.participant.check(DESTINATION, self.clock())
        except FencedError:
            return None
        return self.instance.epoch

    @property
    def settled(self) -> bool:
        """Whether it serves, or stands by for the server that does."""
        if not self.is_up:
            return False
        serves = self.instance is not None and not self._lives
        return self.state is State.STANDBY or (self.state is State.ACTIVE and serves)

    @property
    def is_idle(self) -> bool:
        """Whether the destination is stopped."""
        return self.instance is None and not self._lives

    @property
    def awaits_operator(self) -> bool:
        """Whether nothing is read because a switch of the source would lose something."""
        return self.instance is not None and self.switching is not None and bool(self.switching.problem)

    @property
    def state(self) -> State:
        """Where the destination is in its life."""
        return self.participant.election(DESTINATION).state if self.participant.destinations else State.STOPPED

    # --- life --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin a life."""
        self.is_up = True
        self.participant = self.make_participant(self.name)
        self.backup = _copy(self.disk)
        self.participant.registered({f"server{i}": f"http://server{i}:8080" for i in range(3)})
        self._connect(None)
        self.world.tell(self.world.latency(), self, self.take_part, True)

    def crash(self) -> None:
        """Die: what it had in memory is lost, its session lives on for a while."""
        self.life += 1
        self.is_up = False
        self.awake_at = 0.0
        self.link = self.instance = self.switching = None
        self._timer = math.inf
        self._held = []
        self._lives.clear()
        self.lost = False

    def remember(self, operation: Operation, outcome: Outcome, zxid: int) -> Outcome:
        """Note what ZooKeeper has, or what it has lost, as `Backups` does; return the answer with that."""
        backup = self.backup
        saved = backup.saved.get(DESTINATION, Saved(0, 0.0, self.name, {}))
        if isinstance(outcome, Seen):
            outcome = replace(outcome, loss=backup.loss(outcome.epoch, zxid))
            backup.lost = bool(outcome.loss)
            if not backup.lost:
                backup.epoch, backup.zxid = outcome.epoch, zxid
        elif isinstance(operation, Claim) and isinstance(outcome, Done):
            backup.epoch, backup.zxid = operation.epoch, zxid
        elif isinstance(outcome, Loaded):
            if isinstance(outcome, LoadedAll):
                self.chosen, self.view = outcome.source, outcome.view
            clients = {client.client_id: client for client in outcome.clients}
            backup.saved[DESTINATION] = replace(saved, epoch=backup.epoch, at=self.world.now, clients=clients)
        elif isinstance(operation, Store) and not operation.view and isinstance(outcome, Done):
            changed = {client_id: it for client_id, it in operation.changes.clients.items() if it is not None}
            backup.saved[DESTINATION] = replace(saved, at=self.world.now, clients={**saved.clients, **changed})
        if self.world.now >= self._saved + PERIOD:  # an answer comes more often: an event would be a step
            self.disk, self._saved = _copy(backup), self.world.now
        return outcome

    def take_part(self, wanted: bool) -> None:
        """Do what its operator wants: stop the destination, or start it."""
        if wanted:
            self.participant.start(DESTINATION)
        elif self.participant.destinations:
            self.participant.stop(DESTINATION, self.clock())
        self._run()

    # --- ZooKeeper ---------------------------------------------------------------------------------------------------

    def lose_link(self, seconds: float = 0.0) -> None:
        """Lose the connection, and get none for a time."""
        self.cut_until = max(self.cut_until, self.world.now + seconds)
        link, self.link = self.link, None
        if link is not None:
            link.lose()
            self._connect(link.session)
            self._run()

    def _connect(self, session: Session | None) -> None:
        wait = max(0.0, self.cut_until - self.world.now) + self.world.latency()
        self.world.tell(wait, self, self._connected, session)

    def _connected(self, session: Session | None) -> None:
        follower = int(self.world.random.random() * len(self.ensemble.cut))
        if self.cut_until > self.world.now or self.ensemble.cut[follower]:
            self._connect(session)
            return
        made = session or self.ensemble.open(self.name)
        link = Link(self, made, follower)
        if not self.ensemble.attach(made, link):
            self.expired()
            return
        self.link = link
        if session is None:
            self.hear(self.participant.opened, made.number, TIMEOUT)
            return
        held, self._held = self._held, []
        for ask in held:
            link.ask(ask.number, ask.operation)
        self.changed()

    def expired(self) -> None:
        """The session is lost: begin another."""
        self.link = None
        self._held = []
        self._connect(None)
        self.hear(self.participant.expired)

    def changed(self) -> None:
        """``running`` has changed."""
        for destination in self.participant.destinations:
            self.participant.changed(destination)
        self._run()

    def hear(self, call: Callable[..., None], *arguments: Any, run: bool = True) -> None:
        """Tell the machines of something, and do what they want."""
        call(*arguments, self.clock())
        if run:
            self._run()

    def _run(self) -> None:
        if self._running:  # what is done leads to more: that comes after
            return
        self._running = True
        while actions := self.participant.take_actions():
            for action in actions:
                self._do(action)
        self._running = False
        self._checks.decides(self)
        deadline = self.participant.deadline / self._rate
        if deadline < self._timer:
            self._timer = deadline
            self._timers += 1
            self.world.tell(max(0.0, deadline - self.world.now) + 1e-6, self, self._tick, self._timers)

    def _tick(self, number: int) -> None:
        if number == self._timers:
            self._timer = math.inf
            self.hear(self.participant.tick)

    def _do(self, action: Action) -> None:
        match action:
            case Ask():
                if isinstance(action.operation, Store):
                    self._checks.asks_to_store(self)
                if self.link is not None and self.link.session.number == action.session:
                    self.link.ask(action.number, action.operation)
                else:
                    self._held.append(action)
            case Activate() | Deactivate():
                is_told_to_stop = isinstance(action, Deactivate)
                self.lost = is_told_to_stop and self.participant.election(DESTINATION).deadline == math.inf
                self._lives.append(action)
                if len(self._lives) == 1:
                    self._live()
            case Stored() if self.instance is not None:
                self._written(self.instance, durable=action.durable)

    # --- the destination ---------------------------------------------------------------------------------------------

    def _live(self) -> None:
        """Begin with what the destination is told; one thing after the other, and each takes its time."""
        action = self._lives[0]
        if isinstance(action, Activate):
            self.world.log(self.name, "activates epoch", action.epoch)
            self.world.tell(self.world.latency(), self, self._activate, action)
        elif self.instance is None:  # it could not be activated
            self.world.tell(self.world.latency(LAST_STORE), self, self._deactivated)
        else:
            self.world.log(self.name, "deactivates epoch", self.instance.epoch)
            self.instance.closing = True
            if self.switching is not None:
                self.loop.create_task(self._end_switch(self.switching))
            else:
                self.world.tell(self.world.latency(LAST_STORE), self, self._store_last, self.instance)

    async def _end_switch(self, switching: Switching) -> None:
        await switching.switch.end()
        switching.switch.leave()
        switching.feed.stop()
        self.world.tell(self.world.latency(LAST_STORE), self, self._store_last, switching.instance)

    def _activate(self, action: Activate) -> None:
        if self.fails():
            self.world.log(self.name, "fails to activate epoch", action.epoch)
            self._deactivated("no such host")
            return
        self.loop = Loop(self.world, self)  # type: ignore[abstract]  # it lacks what nobody calls
        instance = self.instance = Instance(self, self._source, action, self._now())
        if len(self._source.hosts) > 1:
            self.switching = self.make_switching(self, instance)
        else:
            instance.reader.is_reading = True
        self.world.tell(self.world.latency(), self, self._read, instance)
        self.world.tell(FLUSH_PERIOD, self, self._flush_each_period, instance)
        self.make_output(self, instance, self.broker).open()
        self._lived()

    def fails(self) -> bool:
        """Whether it cannot do something this time."""
        return self.failing and self.world.random.random() < 0.05

    def _store_last(self, instance: Instance) -> None:
        instance.ending = True
        for served in instance.served:
            served.commits.wait(lambda _: None)
            self._flush(instance, served)
        self._close(instance)

    def _deactivated(self, problem: str = "") -> None:
        self.instance = self.switching = None
        self.participant.deactivated(DESTINATION, self.clock(), problem)
        self._lived()
        self._run()

    def _lived(self) -> None:
        """Go on with what it was told meanwhile."""
        self._lives.popleft()
        if self._lives:
            self._live()

    def _now(self) -> float:
        return self.world.now + self.wall

    def _read(self, instance: Instance) -> None:
        if instance is self.instance and not instance.closing:
            if instance.reader.is_reading and instance.reader.read(8):
                self._checks.reads(self, instance.epoch, instance.reader.host)
                instance.cursors.advance(self._now())
            self.world.tell(0.4, self, self._read, instance)

    def _flush_each_period(self, instance: Instance) -> None:
        if instance is self.instance and not instance.closing:
            for served in instance.served:
                self._flush(instance, served)
            self.world.tell(FLUSH_PERIOD, self, self._flush_each_period, instance)

    def _flush(self, instance: Instance, served: Served) -> None:
        changes = served.commits.begin()
        if changes is None:
            return

        def answered(durable: bool) -> None:
            answers = served.commits.end(durable=durable)
            if not durable:
                self._refuse(answers, FencedError("not active"))
            for answer in answers if durable else ():
                answer(_NOTHING)
            if served.commits.wanted:
                self._flush(instance, served)
            if instance.ending:
                self._close(instance)

        self.write(instance, Write(changes, served.cursors.counters.epoch, answered, served.view))

    def write(self, instance: Instance, write: Write) -> None:
        """Store something when what came before it is stored: the destination and its view do so in turn."""
        instance.writes.append(write)
        self._write_next(instance)

    def _write_next(self, instance: Instance) -> None:
        while instance.writes and not instance.is_writing:
            write = instance.writes[0]
            try:
                self.participant.store(DESTINATION, write.changes, write.epoch, self.clock(), write.view, write.source)
                instance.is_writing = True
            except FencedError:
                instance.writes.popleft()
                write.answered(False)
        self._run()

    def _written(self, instance: Instance, *, durable: bool) -> None:
        instance.is_writing = False
        instance.writes.popleft().answered(durable)
        self._write_next(instance)

    def _close(self, instance: Instance) -> None:
        """End when nothing is left to store."""
        if self.instance is instance and not instance.writes:
            self._deactivated()

    def switch(self) -> None:
        """Read the other server of the source, as an operator may ask for."""
        if self.instance is None or self.switching is None or self.instance.closing:
            return
        self.world.log(self.name, "is told to switch the source")
        self.loop.create_task(self._switch(self.switching.switch))

    @staticmethod
    async def _switch(switch: SourceSwitch) -> None:
        with contextlib.suppress(SluiceError):
            await switch.make("", accept=False)

    # --- consumers ---------------------------------------------------------------------------------------------------

    def check(self) -> Instance:
        """Return the destination, if this server may serve it now. Raises FencedError."""
        if self.participant.destinations:
            self.participant.check(DESTINATION, self.clock())
        if self.instance is None or self.instance.closing:
            raise FencedError("not active")
        self._checks.serves(self, self.instance.epoch)
        return self.instance

    def seek(self) -> None:
        """Move the consumer's cursor over what was read, as an operator may ask the server that serves."""
        with contextlib.suppress(SluiceError):
            instance = self.check()
            cursors, ring = instance.cursors, instance.cursors.ring
            acked = cursors.status(CLIENT).acked
            last = ring.last_boundary(ring.first, ring.next)
            end = cursors.position_before(last + 1) if last >= 0 else None
            if acked and end is not None and index_of(end) > index_of(acked):
                self.world.log(self.name, "moves the cursor from", index_of(acked), "to", index_of(end))
                cursors.places.seek(CLIENT, end, now=self._now())
                self._flush(instance, instance.served[0])

    def request(self, request: Request) -> None:
        """Serve a consumer."""
        try:
            reply = self._serve(self.check(), request)
        except SluiceError as error:
            reply = _problem(error)
        if self.world.trace is not None:
            detail = reply.body[:80] if reply is not None and reply.status >= 300 else ""
            self.world.log(self.name, "serves", request.path, request.body or "", detail)
        if reply is not None:
            request.answer(reply)

    def _serve(self, instance: Instance, request: Request) -> Reply | None:
        served, client_id, session, now = (
            instance.served_to(request.client_id),
            request.client_id,
            request.session,
            self._now(),
        )
        cursors = served.cursors
        match request.path:
            case "/session":
                opened = cursors.clients.open_session(client_id, now)
                self._checks.opens(client_id, opened)
                return _reply(json.dumps({"session": opened}).encode())
            case "/rollback":
                cursors.rollback(client_id, now=now, session=session)
            case "/getWithoutAck":
                batch = cursors.get(client_id, now=now, max_entries=request.entries, session=session)
                if batch is None:
                    return _EMPTY
                body = b"\x08" + varint(batch.batch_id) + b"".join(batch.slices)
                return _reply(body, {"sluice-from": batch.from_, "sluice-to": batch.to})
            case "/ack":
                if "batchId" in request.body:
                    cursors.ack(client_id, request.body["batchId"], now=now, session=session)
                else:
                    position = Position.parse(request.body["position"])
                    if not cursors.ack_to(client_id, position, now=now, session=session):
                        raise BadPositionError(f"the stream has not come to {position} again")
                if request.durable and served.commits.wait(request.answer):
                    self._flush(instance, served)
                    return None
        return _NOTHING

    @staticmethod
    def _refuse(answers: list[Answer], error: SluiceError) -> None:
        for answer in answers:
            answer(_problem(error))


def _copy(backup: Backup) -> Backup:
    return replace(backup, saved=dict(backup.saved))


def _reply(body: bytes, headers: dict[str, str] | None = None) -> Reply:
    return Reply(200, {"content-length": "0", **(headers or {})}, body)


def _problem(error: SluiceError) -> Reply:
    active = error.active if isinstance(error, FencedError) else None
    body = json.dumps({"type": error.type, "detail": str(error), "active": active}).encode()
    return Reply(421 if isinstance(error, FencedError) else 409, {"content-length": "0"}, body)


_NOTHING = Reply(204, {}, b"")
_EMPTY = _reply(b"\x08" + varint(-1))
