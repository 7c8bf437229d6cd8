"""What must hold after every step."""

from typing import TYPE_CHECKING

from sluice.client_sdk import Batch
from sluice.protocol.wire import varint
from sluice.server.ha.election import State
from sluice.server.ha.operations import Store
from sluice.store.cursor import StoredClient
from tests.simulation.ensemble import CLIENT, OF_VIEW, OUTPUT, Ensemble, Session
from tests.simulation.output import Broker
from tests.simulation.source import Host, Source, entries, index_of
from tests.simulation.world import World

if TYPE_CHECKING:
    from tests.simulation.server import Server


class Violation(AssertionError):  # noqa: N818  the field's word for an invariant that does not hold
    """Something that must never happen has happened."""


def reach(client: StoredClient) -> int:
    """Return how many changes a durable cursor says are confirmed."""
    cursor = client.cursor
    return index_of(cursor.position) if cursor is not None and cursor.position is not None else 0


def order_of(session: str) -> int:
    """Return the number of a session, which is greater in a later epoch, and for a later one in an epoch."""
    return int(session.partition("-")[0] or 0)


class Progress:
    """How far a consumer is."""

    def __init__(self) -> None:
        self.seen = 0
        """Up to which change it has processed."""
        self.newest_session = ""
        self._acked = bytearray()

    def acks(self, start: int, stop: int) -> None:
        """Hear that it acks changes, or that its cursor was moved over them."""
        self._acked.extend(bytes(max(0, stop - len(self._acked))))
        self._acked[start:stop] = b"\x01" * (stop - start)

    def has_acked(self, start: int, stop: int) -> bool:
        """Whether it has acked all of these changes."""
        return stop <= len(self._acked) and 0 not in self._acked[start:stop]


class Checks:
    """The invariants.

    * At most one epoch is effective: no two servers serve at a time, none serves in an epoch that is over, and cursors
      are written by the session only that raised the epoch last and owns ``running``.
    * A server whose lease is over sends no write.
    * A server that has lost the destination, or given it up, has stopped it before it takes part again.
    * No acked change is unseen: what is before the durable cursor was processed and acked by the consumer.
    * The durable cursor never goes back.
    * The newest session of the consumer's is never refused for an older one. One of a server whose epoch is over,
      without its knowledge, is older than those of the epoch that goes on.
    * The consumer gets the changes in their order, and skips none, but where its cursor was moved: that is stored, with
      the cursor, before anything after it is given.
    * So does the broker, each of them once. The durable cursor of the output is never after what the broker has. A
      former owner writes nothing after the new one has written that its epoch has begun.
    * Nobody takes over what ZooKeeper has lost, before it is written back.
    * The server that owns the destination reads the source that is stored as the one in use, and no other. So nothing
      comes from the former source once the switch is stored.
    * All this holds for a client of a view, too: its cursors are written by the owner of the destination only.
    """

    def __init__(self, world: World, source: Source) -> None:
        self.deposed: set[int] = set()
        """Epochs whose ``running`` was deleted by hand, or lost: servers learn of it late, but write no more."""
        self.progress = {CLIENT: Progress(), OF_VIEW: Progress()}
        """Of the consumers."""
        self.switches = 0
        """How often another server of the source was chosen."""
        self.sent = 0
        """Up to which change the broker has them."""
        self._opened = 0
        """The last epoch that has begun at the broker."""
        self.ensemble: Ensemble
        self.broker = Broker(world, self)
        self.servers: list[Server] = []
        self._world = world
        self._source = source

    def step(self) -> None:
        """Check what concerns all servers."""
        if self.ensemble.lost and self.ensemble.nodes.running is not None:
            raise self._violation(f"{self.ensemble.nodes.running} takes over what ZooKeeper has lost")
        epochs = [epoch for server in self.servers if (epoch := server.epoch) is not None]
        if len(epochs) > 1 and len(set(epochs) - self.deposed) > 1:
            raise self._violation(f"several servers serve, in the epochs {epochs}")

    def serves(self, server: "Server", epoch: int) -> None:
        """Check that a server may serve."""
        nodes = self.ensemble.nodes
        if epoch not in self.deposed and (
            nodes.epoch != epoch or nodes.running is None or nodes.running.address != server.name
        ):
            raise self._violation(
                f"{server.name} serves in epoch {epoch}, but that of {nodes.running} is {nodes.epoch}"
            )

    def asks_to_store(self, server: "Server") -> None:
        """Check that a server that sends a write may still take itself for the owner."""
        if not server.participant.lease.valid(server.clock()):
            raise self._violation(f"{server.name} writes though its lease is over")
        if server.lost:
            raise self._violation(f"{server.name} writes though it has lost the destination")

    def decides(self, server: "Server") -> None:
        """Check that a server has stopped the destination before it considers itself able to own it."""
        if server.state not in (State.ACTIVE, State.LEAVING) and not server.is_idle:
            raise self._violation(f"{server.name} is {server.state.value}, but has not stopped the destination")

    def stores(self, session: Session, store: Store) -> None:
        """Check a write of cursors that ZooKeeper has allowed."""
        nodes = self.ensemble.nodes
        if session.number != nodes.raised_by:
            raise self._violation(f"session {session.number} writes in the epoch of session {nodes.raised_by}")
        if nodes.epoch not in self.deposed and (nodes.running is None or nodes.running.owner != session.number):
            raise self._violation(f"session {session.number} writes, but {nodes.running} owns the destination")
        for move in store.changes.moves.get(CLIENT, ()):
            start, stop = index_of(move.before), index_of(move.after)
            progress = self.progress[CLIENT]
            progress.acks(start, stop)
            progress.seen = max(progress.seen, stop)
        if store.source is not None:
            self.switches += 1
            self._world.log("zookeeper", "stores the source", store.source.address)
        for client_id, client in store.changes.clients.items():
            before, after = reach(nodes.stored(client_id)), reach(client) if client is not None else 0
            self._world.log("zookeeper", "stores", client_id, before, "->", after)
            if after < before:
                raise self._violation(f"the durable cursor goes back from {before} to {after}")
            if client_id in self.progress:
                if not self.progress[client_id].has_acked(before, after):
                    raise self._violation(
                        f"the durable cursor goes from {before} to {after}, but not all of that was acked"
                    )
            elif after > self.sent:
                raise self._violation(f"the output's cursor goes to {after}, and the broker has {self.sent}")

    def reads(self, server: "Server", epoch: int, host: Host) -> None:
        """Check that the owner of the destination may read a server of the source."""
        nodes = self.ensemble.nodes
        in_use = nodes.source.address if nodes.source is not None else self._source.hosts[0].address
        if epoch == nodes.epoch and epoch not in self.deposed and host.address != in_use:
            raise self._violation(f"{server.name} reads {host.address} in epoch {epoch}, and {in_use} is in use")

    def opens(self, client_id: int, session: str) -> None:
        """Hear of a session that a server has opened."""
        progress = self.progress[client_id]
        progress.newest_session = max(progress.newest_session, session, key=order_of)

    def fences(self, client_id: int, session: str) -> None:
        """Check that a session that is refused is not the newest of all."""
        if order_of(session) == order_of(self.progress[client_id].newest_session):
            raise self._violation("the newest session is refused as if there were a newer one")

    def processes(self, client_id: int, batch: Batch) -> None:
        """Check a batch that a consumer processes."""
        start, stop = index_of(batch.from_), index_of(batch.to)
        progress = self.progress[client_id]
        if start > progress.seen:
            raise self._violation(f"the consumer {client_id} gets {start} to {stop} after {progress.seen}")
        if batch.data != b"\x08" + varint(batch.batch_id) + entries(start, stop):
            raise self._violation(f"the consumer {client_id} gets something else than {start} to {stop}")
        progress.seen = max(progress.seen, stop)

    def acks(self, client_id: int, batch: Batch) -> None:
        """Hear that a consumer acks what it has processed."""
        self.progress[client_id].acks(index_of(batch.from_), index_of(batch.to))

    def claims(self, epoch: int) -> None:
        """Hear that an epoch begins at the broker."""
        self._opened = max(self._opened, epoch)

    def writes(self, epoch: int, start: int, stop: int) -> None:
        """Check what the broker is about to take."""
        if epoch < self._opened:
            raise self._violation(f"the owner in epoch {epoch} writes after that in epoch {self._opened} has begun")
        if start != self.sent:
            raise self._violation(f"{start} to {stop} are written to the broker, which has {self.sent}")
        self.sent = stop

    @property
    def finished(self) -> bool:
        """Whether every change was processed and sent, acks are durable, one server serves and the others stand by."""
        nodes, end = self.ensemble.nodes, len(self._source)
        consumers = (CLIENT, OF_VIEW) if len(self._source.hosts) > 1 else (CLIENT,)
        return (
            all(self.progress[it].seen == end for it in consumers)
            and self.sent == end
            and all(reach(nodes.stored(it)) == end for it in (*consumers, OUTPUT))
            and not self.ensemble.lost
            and any(server.epoch is not None for server in self.servers)
            and all(server.settled for server in self.servers)
        )

    def _violation(self, what: str) -> Violation:
        return Violation(f"seed {self._world.seed}, step {self._world.steps}, {self._world.now:.3f} s: {what}")
