"""The life of one destination on one server, without I/O.

::

                 free                    done                  loaded
    STANDBY ──────────────▶ CLAIMING ────────────▶ LOADING ──────────────▶ ACTIVE
     ▲  ▲ ▲                  │                       │                       │ yielded, fenced, lease or session lost
     │  │ └──────────────────┘ refused, session lost │                       ▼
     │  └────────────────────────────────────────────┘ lost               LEAVING
     │            mine                                                       │ stopped
     ├─── done ── RELEASING ◀── STANDBY ◀────────────────────────────────────┘
     │
     ├──▶ REFUSED   Canal's own server, which raises no epoch, has owned the destination; back when another owns it
     └──▶ STOPPED   and back, as from REFUSED, by `Election.start`

`running` and the new epoch come into being in one transaction: whoever owns the one has raised the other. The owner
is known by the node's session, never by an address: an earlier process of this server had the same one. After an answer
that got lost `Look` decides, which comes after everything that was asked before in the session. A new session begins
with nothing: no operation of an old one is done in it.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from enum import Enum

from ...instance.meta.base import InUse
from ...protocol.errors import FencedError
from ...store.cursor import Changes
from .lease import Lease
from .operations import (
    Action,
    Activate,
    Claim,
    Deactivate,
    Done,
    Load,
    Loaded,
    Look,
    OfDestination,
    Outcome,
    Refused,
    Release,
    Running,
    Seen,
    Store,
    Stored,
)

HOLD_OFF = 5.0
"""Seconds for which a server that gave a destination up lets others take it (Canal's delay)."""
LAST_STORE = 3.0
"""Seconds that a destination has for storing its cursors when it is given up."""
POLITENESS = 0.2
"""Seconds that a free destination is left to the server that should have it."""

HAD_BY_CANAL = "Canal's own server has had it: start the destination here, when that one is stopped for good"


class State(Enum):
    """Where a destination is in its life on this server."""

    STOPPED = "stopped"
    STANDBY = "standby"
    CLAIMING = "claiming"
    LOADING = "loading"
    ACTIVE = "active"
    LEAVING = "leaving"
    RELEASING = "releasing"
    REFUSED = "refused"


class Election:
    """Whether this server serves a destination. Driven by `Participant`, which has the session.

    Args:
        destination: its name.
        lease: of the session.
        ask: does an operation in the session.
        tell: gives an action to the host.
    """

    def __init__(
        self,
        destination: str,
        lease: Lease,
        ask: Callable[[OfDestination], None],
        tell: Callable[[Action], None],
    ) -> None:
        self.destination = destination
        self.state = State.STOPPED
        self.active = ""
        """Address of the server that serves it, as far as is known."""
        self.epoch = 0
        self.preferred = True
        """Whether this server should have it while it is free; the others wait a moment for it."""
        self._lease = lease
        self._ask = ask
        self._tell = tell
        self._session: int | None = None
        self.wanted = False
        """Whether this server takes part."""
        self.loss = ""
        """What ZooKeeper has lost of it, and how that is restored; empty for nothing."""
        self._refusal = self._failure = ""
        self._looking = self._look_again = False
        self._free: Seen | None = None
        """It has no owner ..."""
        self._free_since = math.inf
        self._held_off = -math.inf
        self._version = -1  # of the epoch node, while it is owned
        self._stores_until = -math.inf
        """While the destination is given up, its cursors are stored until then, or until the lease ends."""
        self._store: Store | None = None
        self._store_lost = False

    # --- what is told to the host ------------------------------------------------------------------------------------

    def check(self, now: float) -> None:
        """Raise FencedError unless this server may give batches and take acks now."""
        if self.state is not State.ACTIVE:
            raise FencedError(f"destination:{self.destination} is not active here{self._reason()}")
        if not self._lease.valid(now):
            raise FencedError(
                f"destination:{self.destination} may have another owner: ZooKeeper has not answered for too long"
            )

    @property
    def problem(self) -> str:
        """Why it is not, or should not be, served here; empty when all is well."""
        return self.loss or self._refusal or self._failure

    @property
    def deadline(self) -> float:
        """When `tick` has something to do."""
        if self.state is State.ACTIVE:
            return self._lease.until
        if self.state is State.LEAVING and self._stores_until > -math.inf:
            return min(self._lease.until, self._stores_until)
        if self.state is State.STANDBY and self._free is not None:
            return self._claim_time()
        return math.inf

    # --- what the host wants -----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Take part; also after the other side of a mixed pair was stopped."""
        self.wanted = True
        if self.state in (State.STOPPED, State.REFUSED):
            self._stand_by()

    def stop(self, now: float) -> None:
        """Take part no more: give the destination up, with its cursors stored."""
        self.wanted = False
        if self.state is State.ACTIVE:
            self._leave(now)
        elif self.state in (State.STANDBY, State.LOADING, State.REFUSED):
            self._stand_by()

    @property
    def version(self) -> int:
        """Of the epoch node while this server has the destination, as far as it knows; else -1."""
        return self._version if self.state in (State.ACTIVE, State.LEAVING) else -1

    def store(
        self,
        changes: Changes,
        epoch: int,
        now: float,
        view: str = "",
        source: InUse | None = None,
    ) -> None:
        """Store changed clients, of a view if one is named, and which source is read if it is given.

        `Stored` says what became of it. Calls do not overlap.

        Raises:
            FencedError: this server does not own the destination any more, or cannot know.
        """
        stores = self.state is State.ACTIVE or (self.state is State.LEAVING and now < self._stores_until)
        owns = self._session is not None and self._version >= 0 and epoch >= self.epoch
        if not (owns and stores and self._lease.valid(now)):
            raise FencedError(
                f"destination:{self.destination} is not active here any more: cursors were not stored{self._reason()}"
            )
        raised = epoch if epoch != self.epoch else None
        self._store = Store(self.destination, self._version, changes, raised, view, source)
        self._ask(self._store)

    def deactivated(self, now: float, problem: str = "") -> None:
        """Hear that the destination is stopped, as told, or because of a problem, which others may not have."""
        if problem:
            self._failure = problem
            self._held_off = now + HOLD_OFF
            if self.state is State.LEAVING:  # it was told to stop meanwhile, which will be answered as well
                return
        self._end_store(durable=False)
        self._stand_by()

    # --- what happens ------------------------------------------------------------------------------------------------

    def opened(self, session: int) -> None:
        """A session was opened."""
        self._session = session
        if self.state in (State.STANDBY, State.REFUSED):
            self._look()

    def expired(self, now: float) -> None:
        """The session is lost, and with it all that was asked in it."""
        self._session = self._free = None
        self._free_since = math.inf
        self._looking = self._look_again = False
        self._version = -1
        if self.state is State.ACTIVE:
            self._leave(now)
        self._end_store(durable=False)
        if self.state in (State.CLAIMING, State.LOADING, State.RELEASING):
            self.state = State.STANDBY
        if self.state is State.STANDBY and not self.wanted:
            self.state = State.STOPPED

    def changed(self) -> None:
        """``running`` may have changed."""
        if self.state is not State.STOPPED and self._session is not None:
            self._look()

    def tick(self, now: float) -> None:
        """Run whatever is due."""
        if self.state is State.ACTIVE and not self._lease.valid(now):
            self._leave(now)
        elif self.state is State.LEAVING and now >= self.deadline:
            self._stop_storing()
        elif self.state is State.STANDBY and self._free is not None and now >= self._claim_time():
            self._claim(self._free)

    def answered(self, operation: OfDestination, outcome: Outcome, now: float) -> None:
        """Hear what became of an operation of the session."""
        match operation, outcome:
            case Look(), Seen():
                self._looking = False
                if self._look_again:
                    self._look()
                else:
                    self._looked(outcome, now)
            case Look(), _:
                self._looking = False
                self._look()
            case Load(), Loaded():
                if self.state is State.LOADING:
                    self._loaded(outcome, now)
            case Load(), _:
                if self.state is State.LOADING:
                    self._ask(operation)
            case Claim(epoch=epoch), Done(version=version):
                self._own(epoch, version)
            case Store(), _ if operation is not self._store:
                pass  # it was given up meanwhile
            case Store(), Done(version=version):
                self._version = version
                self.epoch = operation.epoch or self.epoch
                self._end_store(durable=True)
            case Store(), Refused():
                self._lost(now)
            case _:
                self._store_lost = operation is self._store
                self._look()

    # --- inside ------------------------------------------------------------------------------------------------------

    def _reason(self) -> str:
        return f": {self.problem}" if self.problem else ""

    def _look(self) -> None:
        """See which server owns the destination; what was seen before no longer counts."""
        self._free = None
        self._look_again = self._looking
        if not self._looking:
            self._looking = True
            self._ask(Look(self.destination))

    def _looked(self, seen: Seen, now: float) -> None:
        running = seen.running
        self.active = running.address if running is not None else ""
        if running is not None:
            self._free_since = math.inf
        self._refusal, self.loss = _refusal(seen), seen.loss
        if running is not None and running.owner == self._session:
            self._looked_at_mine(running, seen, now)
        elif self.state in (State.ACTIVE, State.LEAVING):
            self._lost(now)
        elif self.state is State.REFUSED and (running is None or not running.fenced):
            self._refusal = self._refusal or HAD_BY_CANAL
        elif self.state is not State.STOPPED:
            self._looked_from_outside(seen, now)

    def _looked_at_mine(self, running: Running, seen: Seen, now: float) -> None:
        """Go on as the owner, or stop being it."""
        if self.state is State.CLAIMING:
            self._own(seen.epoch, seen.version)
        elif self.state is State.LOADING and running.active:
            return
        elif self.state in (State.ACTIVE, State.LEAVING):
            self.tick(now)  # it comes after the end of the lease, before the clock was looked at
            if self._store is not None and self._store_lost:
                # To write the same once more does not matter, and whoever owns `running` has changed the version last.
                self._store = replace(self._store, version=seen.version)
                self._store_lost = False
                self._ask(self._store)
            if self.state is State.ACTIVE and not running.active:
                self._leave(now)
        else:
            if not running.active:
                self._held_off = now + HOLD_OFF
            self.state = State.RELEASING
            self._ask(Release(self.destination, seen.version))

    def _looked_from_outside(self, seen: Seen, now: float) -> None:
        """Stand by, or claim what is free."""
        self.state = State.STANDBY
        if not self.wanted:
            self.state = State.STOPPED
        elif seen.running is not None:
            if not seen.running.fenced:
                self.state = State.REFUSED
        elif not seen.strangers and not seen.loss:
            self._free = seen
            self._free_since = min(self._free_since, now)
            if now >= self._claim_time():
                self._claim(seen)

    def _claim_time(self) -> float:
        return max(self._held_off, self._free_since + (0 if self.preferred else POLITENESS))

    def _claim(self, seen: Seen) -> None:
        self._free = None
        self.state = State.CLAIMING
        self._ask(Claim(self.destination, seen.epoch + 1, seen.version))

    def _own(self, epoch: int, version: int) -> None:
        """Go on as the owner: what earlier owners have stored is final now, and can be read."""
        self.epoch, self._version = epoch, version
        self.state = State.LOADING
        if self.wanted:
            self._ask(Load(self.destination))
        else:
            self._stand_by()

    def _loaded(self, loaded: Loaded, now: float) -> None:
        if not self._lease.valid(now):
            self._stand_by()
            return
        self.state = State.ACTIVE
        self._failure = ""
        self._tell(Activate(self.destination, self.epoch, loaded.clients))

    def _stand_by(self) -> None:
        self.state = State.STANDBY if self.wanted or self._session is not None else State.STOPPED
        if self._session is not None:
            self._look()

    def _lost(self, now: float) -> None:
        """Another server has taken the destination over, or ``running`` was deleted."""
        self._version = -1
        self._end_store(durable=False)
        if self.state is State.ACTIVE:
            self._leave(now)

    def _leave(self, now: float) -> None:
        self.state = State.LEAVING
        self._tell(Deactivate(self.destination))
        if self._lease.valid(now):
            self._stores_until = now + LAST_STORE
        else:
            self._stop_storing()

    def _stop_storing(self) -> None:
        """End all waits for a store: its answer may never come."""
        self._stores_until = -math.inf
        self._end_store(durable=False)

    def _end_store(self, *, durable: bool) -> None:
        if self._store is not None:
            self._store = None
            self._store_lost = False
            self._tell(Stored(self.destination, durable))


def _refusal(seen: Seen) -> str:
    if seen.running is not None and not seen.running.fenced:
        return (
            f"{seen.running.address} serves it and raises no epoch, as Canal's own server: "
            "stop that server, then start the destination here"
        )
    if seen.strangers:
        return f"Canal's own server could take it over unfenced: stop {', '.join(seen.strangers)}"
    return ""
