"""A server: the real machines, a ring with its cursors, and around them what a host does, on simulated networks."""

import contextlib
import json
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sluice.client_sdk.calls import Reply
from sluice.protocol.errors import BadPositionError, FencedError, SluiceError
from sluice.protocol.position import Position
from sluice.protocol.wire import varint
from sluice.server.ha.backup import PERIOD, Backup, Saved
from sluice.server.ha.cluster import RETRY
from sluice.server.ha.election import LAST_STORE, State
from sluice.server.ha.member import Member
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
from sluice.store.commits import Commits
from sluice.store.cursors import Cursors
from sluice.store.ring import Ring
from tests.simulation.ensemble import CLIENT, TIMEOUT, Ensemble, Session
from tests.simulation.output import Output
from tests.simulation.source import RING_BYTES, RING_SLOTS, Reader, Source, index_of, place
from tests.simulation.world import World

if TYPE_CHECKING:
    from tests.simulation.checks import Checks

DESTINATION = "example"
FLUSH_PERIOD = 1.0

Answer = Callable[[Reply], None]


@dataclass(frozen=True, slots=True)
class Request:
    """A call of a consumer."""

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
            self.server.member.deactivated(DESTINATION, self.server.clock(), "a node is not a cursor")

    def _send(self, call: Callable[..., None], *arguments: Any) -> None:
        world = self.server.world
        self._back = max(self._back, world.now + world.latency())
        world.at(self._back, self.server, call, *arguments)

    def _answered(self, number: int, outcome: Outcome, zxid: int) -> None:
        if self.server.link is self:
            assert number == next(iter(self._asked)), "a connection answers in the order of the questions"
            outcome = self.server.remember(self._asked.pop(number), outcome, zxid)
            self.server.hear(self.server.member.answered, number, outcome)

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
            self.server.hear(self.server.member.answered, number, UNKNOWN, run=False)


class PolledRing(Ring):
    """A ring that no thread waits to put into: a full one counts as waited for."""

    @property
    def waiting(self) -> bool:  # type: ignore[override]
        """Whether more is put only when there is room."""
        return len(self) == RING_SLOTS


class Instance:
    """The destination on the server that serves it."""

    def __init__(self, source: Source, make_cursors: type[Cursors], activate: Activate, now: float) -> None:
        ring = PolledRing(RING_SLOTS, RING_BYTES, segment_size=4096)
        self.epoch = activate.epoch
        self.cursors = make_cursors(ring, epoch=activate.epoch, compile_filter=lambda _: None)
        self.commits: Commits[Answer] = Commits(self.cursors.clients)
        self.writing = False
        self.closing = False
        self.ending = False
        """It has begun to store what it stores last."""
        starts = []
        for client in activate.clients:
            self.cursors.restore(client, now)
            cursor = client.cursor
            starts.append(index_of(cursor.position) if cursor is not None and cursor.position is not None else 0)
        start = min(starts)
        self.cursors.begin(place(start), None)
        self.reader = Reader(source, ring, start)


class Server:
    """A process that may die and come back, stand still, and lose its connections."""

    make_member = Member
    make_cursors = Cursors
    make_output = Output

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
            self.member.check(DESTINATION, self.clock())
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
    def state(self) -> State:
        """Where the destination is in its life."""
        return self.member.election(DESTINATION).state if self.member.destinations else State.STOPPED

    # --- life --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin a life."""
        self.is_up = True
        self.member = self.make_member(self.name)
        self.backup = _copy(self.disk)
        self.member.registered({f"server{i}": f"http://server{i}:8080" for i in range(3)})
        self._connect(None)
        self.world.tell(self.world.latency(), self, self.take_part, True)

    def crash(self) -> None:
        """Die: what it had in memory is lost, its session lives on for a while."""
        self.life += 1
        self.is_up = False
        self.awake_at = 0.0
        self.link = self.instance = None
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
            clients = {client.client_id: client for client in outcome.clients}
            backup.saved[DESTINATION] = replace(saved, epoch=backup.epoch, at=self.world.now, clients=clients)
        elif isinstance(operation, Store) and isinstance(outcome, Done):
            changed = {client_id: it for client_id, it in operation.changes.clients.items() if it is not None}
            backup.saved[DESTINATION] = replace(saved, at=self.world.now, clients={**saved.clients, **changed})
        if self.world.now >= self._saved + PERIOD:  # an answer comes more often: an event would be a step
            self.disk, self._saved = _copy(backup), self.world.now
        return outcome

    def take_part(self, wanted: bool) -> None:
        """Do what its operator wants: stop the destination, or start it."""
        if wanted:
            self.member.start(DESTINATION)
        elif self.member.destinations:
            self.member.stop(DESTINATION, self.clock())
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
            self.hear(self.member.opened, made.number, TIMEOUT)
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
        self.hear(self.member.expired)

    def changed(self) -> None:
        """``running`` has changed."""
        for destination in self.member.destinations:
            self.member.changed(destination)
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
        while actions := self.member.take_actions():
            for action in actions:
                self._do(action)
        self._running = False
        self._checks.decides(self)
        deadline = self.member.deadline / self._rate
        if deadline < self._timer:
            self._timer = deadline
            self._timers += 1
            self.world.tell(max(0.0, deadline - self.world.now) + 1e-6, self, self._tick, self._timers)

    def _tick(self, number: int) -> None:
        if number == self._timers:
            self._timer = math.inf
            self.hear(self.member.tick)

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
                self.lost = is_told_to_stop and self.member.election(DESTINATION).deadline == math.inf
                self._lives.append(action)
                if len(self._lives) == 1:
                    self._live()
            case Stored() if self.instance is not None:
                self._stored(self.instance, durable=action.durable)

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
            self.world.tell(self.world.latency(LAST_STORE), self, self._store_last, self.instance)

    def _activate(self, action: Activate) -> None:
        if self.fails():
            self.world.log(self.name, "fails to activate epoch", action.epoch)
            self._deactivated("no such host")
            return
        instance = self.instance = Instance(self._source, self.make_cursors, action, self._now())
        self.world.tell(self.world.latency(), self, self._read, instance)
        self.world.tell(FLUSH_PERIOD, self, self._flush_each_period, instance)
        self.make_output(self, instance, self.broker).open()
        self._lived()

    def fails(self) -> bool:
        """Whether it cannot do something this time."""
        return self.failing and self.world.random.random() < 0.05

    def _store_last(self, instance: Instance) -> None:
        instance.ending = True
        instance.commits.wait(lambda _: None)
        self._flush(instance)
        self._close(instance)

    def _deactivated(self, problem: str = "") -> None:
        self.instance = None
        self.member.deactivated(DESTINATION, self.clock(), problem)
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
            if instance.reader.read(8):
                instance.cursors.advance(self._now())
            self.world.tell(0.4, self, self._read, instance)

    def _flush_each_period(self, instance: Instance) -> None:
        if instance is self.instance and not instance.closing:
            self._flush(instance)
            self.world.tell(FLUSH_PERIOD, self, self._flush_each_period, instance)

    def _flush(self, instance: Instance) -> None:
        changes = instance.commits.begin()
        if changes is None:
            return
        instance.writing = True
        try:
            self.member.store(DESTINATION, changes, instance.cursors.counters.epoch, self.clock())
        except FencedError as error:
            instance.writing = False
            self._refuse(instance.commits.end(durable=False), error)
        self._run()

    def _stored(self, instance: Instance, *, durable: bool) -> None:
        instance.writing = False
        answers = instance.commits.end(durable=durable)
        if not durable:
            self._refuse(answers, FencedError("not active"))
        for answer in answers if durable else ():
            answer(_NOTHING)
        if instance.commits.wanted:
            self._flush(instance)
        if instance.ending:
            self._close(instance)

    def _close(self, instance: Instance) -> None:
        """End when nothing is left to store."""
        if self.instance is instance and not instance.writing:
            self._deactivated()

    # --- consumers ---------------------------------------------------------------------------------------------------

    def check(self) -> Instance:
        """Return the destination, if this server may serve it now. Raises FencedError."""
        if self.member.destinations:
            self.member.check(DESTINATION, self.clock())
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
            if acked and end is not None and end > Position.parse(acked):
                self.world.log(self.name, "moves the cursor from", index_of(acked), "to", index_of(end))
                cursors.places.seek(CLIENT, end, now=self._now())
                self._flush(instance)

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
        cursors, session, now = instance.cursors, request.session, self._now()
        match request.path:
            case "/session":
                opened = cursors.clients.open_session(CLIENT, now)
                self._checks.opens(opened)
                return _reply(json.dumps({"session": opened}).encode())
            case "/rollback":
                cursors.rollback(CLIENT, now=now, session=session)
            case "/getWithoutAck":
                batch = cursors.get(CLIENT, now=now, max_entries=request.entries, session=session)
                if batch is None:
                    return _EMPTY
                body = b"\x08" + varint(batch.batch_id) + b"".join(batch.slices)
                return _reply(body, {"sluice-from": batch.from_, "sluice-to": batch.to})
            case "/ack":
                if "batchId" in request.body:
                    cursors.ack(CLIENT, request.body["batchId"], now=now, session=session)
                else:
                    position = Position.parse(request.body["position"])
                    if not cursors.ack_to(CLIENT, position, now=now, session=session):
                        raise BadPositionError(f"the stream has not come to {position} again")
                if request.durable and instance.commits.wait(request.answer):
                    self._flush(instance)
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
