"""The clients of a destination, or of a view: who there is, whose calls count, and what is to be stored of them."""

import itertools
import secrets
from collections.abc import Sequence

from ..protocol.cut import places_in
from ..protocol.errors import NotSubscribedError, UnknownBatchError
from ..protocol.position import Position
from .allowance import UNLIMITED, Allowance, Limits
from .cursor import Changes, Cursor, StoredClient
from .moves import Gate
from .resting import Resting
from .retention import Retention
from .states import Behind, Gone
from .subscriber import Subscriber
from .track import Wanted

IDS_PER_EPOCH = 10**9


class Counters:
    """The ids of batches and the numbers of sessions of a destination and its views: none is given twice."""

    def __init__(self) -> None:
        self.next_id = 1
        """Of the next batch."""
        self.last_session = 0
        """The number of the last session."""

    def raise_to(self, epoch: int) -> None:
        """Give no id from here on that may have been given in an epoch before this one."""
        self.next_id = max(self.next_id, epoch * IDS_PER_EPOCH + 1)
        self.last_session = max(self.last_session, epoch * IDS_PER_EPOCH)

    @property
    def epoch(self) -> int:
        """The epoch to store: that of the marks, or the next one in good time before it is reached."""
        return (self.next_id + IDS_PER_EPOCH // 2) // IDS_PER_EPOCH

    def take_id(self) -> int:
        """Return the id of another batch."""
        batch_id = self.next_id
        self.next_id += 1
        return batch_id

    def take_session(self) -> int:
        """Return the number of another session."""
        self.last_session += 1
        return self.last_session


class Clients:
    """The clients of one destination, or of one view.

    Args:
        retention: what ring and log keep for them.
        counters: what gives their batches ids; those of all views are from the same one.
        gate: the jumps of the clients so far.
        number: that of the view; 0 for the destination itself.
        limits: how much a client without limits of its own may be given; an output's may be given anything.
    """

    def __init__(self, retention: Retention, counters: Counters, gate: Gate, number: int, limits: Limits) -> None:
        self.track = retention.track
        self._limits = limits
        self.counters = counters
        self.gate = gate
        self.resting = Resting(self.track)
        """Those that wait for tables of their filters."""
        self.subscribers: dict[int, Subscriber] = {}
        self.elsewhere: set[int] = set()
        """Those that are not served from the ring of the destination."""
        self.unstored: set[int] = set()
        """Those of which something is to be stored."""
        self.heard: dict[int, None] = {}
        """Those that are to have readers and have made a call since their turns were looked at, in order."""
        self._retention = retention
        self._number = number

    # --- who there is ------------------------------------------------------------------------------------------------

    @property
    def ids(self) -> list[int]:
        """The clients that have subscribed."""
        return sorted(self.subscribers)

    @property
    def protected(self) -> dict[int, Cursor]:
        """Where its protected clients are, by `key`."""
        known = {self.key(it): subscriber for it, subscriber in self.subscribers.items() if subscriber.protected}
        return {key: cursor for key, it in known.items() if (cursor := it.cursor) is not None}

    def key(self, client_id: int) -> int:
        """Return what tells a client from those of views, too; for one of the destination itself that is its id.

        Ids have 16 bits.
        """
        return (self._number << 16) + client_id

    def add(self, subscriber: Subscriber) -> Subscriber:
        """Take a client in."""
        self.apply_limits(subscriber)
        subscriber.tell(self.elsewhere)
        self.subscribers[subscriber.client_id] = subscriber
        self._retention.subscribers[self.key(subscriber.client_id)] = subscriber
        return subscriber

    def remove(self, client_id: int) -> None:
        """Forget a client, and what is stored of it."""
        del self.subscribers[client_id], self._retention.subscribers[self.key(client_id)]
        self.elsewhere.discard(client_id)
        self.resting.rouse(client_id)
        self.unstored.add(client_id)

    def leave(self) -> None:
        """Hold nothing of the ring from here on, for none of them."""
        for client_id in self.subscribers:
            del self._retention.subscribers[self.key(client_id)]

    def find(self, client_id: int, session: str | None = None) -> Subscriber:
        """Return a client, of which a session calls. Raises NotSubscribedError, and what `Subscriber.enter` raises."""
        subscriber = self.subscribers.get(client_id)
        if subscriber is None:
            raise NotSubscribedError(f"client {client_id} has not subscribed")
        if session is not None and subscriber.enter(session):
            self.resting.rouse(client_id)
        return subscriber

    def has_reader(self, subscriber: Subscriber) -> bool:
        """Whether a client reads the ring of a reader."""
        return subscriber.state.track is not self.track

    def is_behind(self, subscriber: Subscriber) -> bool:
        """Whether a client has a reader, or waits for one."""
        return isinstance(subscriber.state, Behind) or self.has_reader(subscriber)

    # --- whose calls count -------------------------------------------------------------------------------------------

    def open_session(self, client_id: int, now: float, output: str = "") -> str:
        """Open a session, which fences off all earlier ones; return its token.

        ``output`` is the name of the output that calls. Raises NotSubscribedError, and OwnedError when another one owns
        the client.
        """
        subscriber = self.find(client_id)
        if subscriber.output != output:
            subscriber.require_free()
        subscriber.last_active = now
        token = f"{self.counters.take_session()}-{secrets.token_urlsafe(16)}"
        subscriber.open_session(token)
        self.resting.rouse(client_id)
        return token

    def called(self, client_id: int, session: str | None, *, by_hand: bool = False) -> Subscriber:
        """Return a client that makes a call; ``by_hand``: somebody else makes it, who need not be its owner.

        Raises NotSubscribedError, StaleSessionError, OwnedError: as `check`.
        """
        subscriber = self.find(client_id, session)
        if session is None and not by_hand:
            subscriber.require_free()
        if self.is_behind(subscriber):
            self.heard[client_id] = None
        return subscriber

    def check(self, client_id: int, session: str | None = None, *, by_hand: bool = False) -> Subscriber:
        """Return a client as `called` does, and raise what `Cursors.get` would raise.

        Raises:
            NotSubscribedError: the client has not subscribed.
            OwnedError: an output owns it, and somebody else calls.
            StaleSessionError: a newer session took over.
            GoneError: its cursor is not in the ring.
            SourceChangedError: its cursor belongs to another source or history.
        """
        subscriber = self.called(client_id, session, by_hand=by_hand)
        subscriber.resolve(self.track)
        if isinstance(subscriber.state, Gone):
            raise subscriber.state.error
        return subscriber

    def hear(self, client_id: int, now: float) -> None:
        """Count a call of a client that uses no other method. Raises `NotSubscribedError`."""
        self.find(client_id).last_active = now

    def continue_after(self, earlier: "Clients") -> None:
        """Go on where the same clients have ended: with when they called last, and with what could not be stored."""
        for client_id, subscriber in self.subscribers.items():
            if (former := earlier.subscribers.get(client_id)) is not None:
                subscriber.last_active, subscriber.loaded = former.last_active, former.loaded
                subscriber.is_drained = former.is_drained
        self.unstored |= earlier.unstored

    # --- what is known of one ----------------------------------------------------------------------------------------

    def wanted(self, client_id: int) -> Wanted:
        """Return what a client wants. Raises NotSubscribedError, and FilterError if it is refused for that."""
        subscriber = self.find(client_id)
        if (refusal := subscriber.refusal) is not None:
            raise refusal
        return subscriber.wanted

    def cursor(self, client_id: int) -> Cursor | None:
        """Return the durable cursor of a client; None while its place has no name."""
        return self.find(client_id).cursor

    def has_given_beyond(self, position: Position, member: str) -> bool:
        """Whether a client may have been given something that comes after a place of a source."""
        known = (it.reached for it in self.subscribers.values())
        reached = (places_in(it).get(member) for it in known if it is not None)
        return any(it is not None and it.is_comparable(position) and not it.precedes(position) for it in reached)

    def outstanding(self, client_id: int) -> int:
        """Return how many batches a client was given and has not confirmed."""
        return len(self.find(client_id).marks)

    def memory(self, client_id: int) -> str:
        """Return the text that a client keeps with its cursor, see `Cursors.ack`. Raises NotSubscribedError."""
        return self.find(client_id).memory

    def check_next(self, client_id: int, batch_ids: Sequence[int]) -> None:
        """Raise UnknownBatchError unless a client has these batches to ack next, in this order."""
        marks = list(itertools.islice(self.find(client_id).marks, len(batch_ids)))
        if marks != list(batch_ids):
            raise UnknownBatchError(
                f"client {client_id} cannot ack batches {batch_ids[0]} to {batch_ids[-1]} next: it was moved or"
                " rolled back, or reads elsewhere now; changes that it has not acked are delivered again"
            )

    def remember(self, client_id: int, memory: str, batch_ids: Sequence[int]) -> None:
        """Change the text that a client keeps with its cursor, see `Cursors.ack`, before it processes batches.

        Raises as `check_next`.
        """
        self.check_next(client_id, batch_ids)
        self.subscribers[client_id].remember(memory)
        self.unstored.add(client_id)

    def moved(self, client_id: int) -> str:
        """Return how the cursor of a client was moved by hand, see `StoredClient`. Raises NotSubscribedError."""
        return self.find(client_id).moved

    def tell_owner(self, client_id: int, moved: str) -> None:
        """Note how the cursor of a client was moved by hand, if an output owns it."""
        subscriber = self.find(client_id)
        if subscriber.output:
            subscriber.moved = moved
            self.unstored.add(client_id)

    # --- how much it may be given ------------------------------------------------------------------------------------

    def limit(self, client_id: int, limits: Limits) -> None:
        """Let other limits count for a client from here on. Raises NotSubscribedError."""
        subscriber = self.find(client_id)
        subscriber.limits = limits
        self.apply_limits(subscriber)
        self.unstored.add(client_id)

    def limits_of(self, client_id: int) -> Limits:
        """Return the limits that a client has of its own. Raises NotSubscribedError."""
        return self.find(client_id).limits

    def apply_limits(self, subscriber: Subscriber) -> None:
        """Say which limits count for a client: its own, else the default, which is not for outputs."""
        subscriber.allowance.limit(subscriber.limits, UNLIMITED if subscriber.output else self._limits)

    def allowance(self, client_id: int) -> Allowance:
        """Return how much a client may be given. Raises NotSubscribedError."""
        return self.find(client_id).allowance

    def charge(self, client_id: int, size: int, unix_time: float) -> None:
        """Count what a client was given. Raises NotSubscribedError."""
        if self.find(client_id).allowance.charge(size, unix_time):
            self.unstored.add(client_id)

    # --- what is stored ----------------------------------------------------------------------------------------------

    def stored(self) -> list[StoredClient]:
        """Return the clients as they are to be stored."""
        return [it.stored() for it in self.subscribers.values()]

    @property
    def changed(self) -> bool:
        """Whether `take_changes` would return anything."""
        return bool(self.unstored) or self.gate.changed

    def take_changes(self) -> Changes:
        """Return what has changed since the last call, to be stored in one write; `end_store` follows."""
        unstored = sorted(self.unstored)
        self.unstored.clear()
        subscribers = {client_id: self.subscribers.get(client_id) for client_id in unstored}
        clients = {client_id: None if it is None else it.stored() for client_id, it in subscribers.items()}
        return Changes(clients, self.gate.take_changes())

    def end_store(self, changes: Changes, *, durable: bool) -> None:
        """Say that changes are stored; what could not be counts as changed again."""
        self.gate.end_store(durable=durable)
        if not durable:
            self.unstored |= set(changes.clients)
