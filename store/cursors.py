"""The subscribers of a destination: subscriptions, get, ack and rollback, cursors and sessions, without any I/O.

What each of them is doing is its state (`sluice.store.states`), and how far it is in a ring is its `Reading`. Slots
that no subscriber needs are freed. A view of a destination has subscribers of its own on the same stream: what holds
the ring back, and the ids of batches, are one matter of all of them.

Every method is called from one thread. ``now`` is in seconds of a clock that is never set, such as `time.monotonic`.
`Clients.take_changes` returns what has to be stored.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..protocol.content import Content
from ..protocol.errors import (
    BadPositionError,
    FilterError,
    PurgedError,
    SluiceError,
    StaleSessionError,
    UnknownBatchError,
)
from ..protocol.gtid import GtidSet
from ..protocol.position import Position
from .admission import Admission
from .batch import Batch
from .client_snapshots import ClientSnapshots
from .clients import Clients, Counters
from .cursor import Cursor, StoredClient
from .log.log import Log
from .moves import By, Gate, Move, MoveState, Reason
from .progress import Progress
from .ranges import Ranges
from .readers import Readers
from .reading import Mark, Reading
from .retention import Look, Retention
from .ring import Collected, Ring
from .side import gaps_batch
from .states import Ahead, Gone, InRing, Served, State
from .status import ClientStatus
from .stream import Stream
from .subscriber import Subscriber
from .track import RowFilter, TableFilter, Wanted

NOBODY = By()
"""Moves of places that nobody asked for are made by the server itself."""


@dataclass(slots=True)
class _Shared:
    """What a destination and its views have in common."""

    retention: Retention
    counters: Counters = field(default_factory=Counters)
    members: "list[Cursors]" = field(default_factory=list)
    """The destination and the views that are served."""
    followed: Look = field(default_factory=Look)
    """When the subscribers were moved on over what they do not want."""
    views: int = 0
    """How many have ever joined."""


class Cursors:
    """The subscribers of one destination, or of a view.

    Args:
        ring: what they read.
        epoch: greater than in every earlier life of the destination; it makes marks unique for ever.
        compile_filter: makes the test of tables from a subscriber's filter, None for all; raises `FilterError`.
        compile_where: makes what judges rows from a subscriber's condition; raises `FilterError`.
        detach_after: seconds for which one of several subscribers may hold a full ring back; 0 for ever. See
            `sluice.store.patience`.
        expire_after: seconds without a call after which a client without a time of its own is removed; 0 for never.
        catches_up: a client that is behind the ring gets a reader of its own (`Readers`); else it is gone.
        keeps: the last transactions stay in the ring, unless they have GTIDs: another source is compared by them.
        main: of a view, the subscribers of the destination that it is a view of.
        passes: of a view, the test of its tables; None for all.
        gate: the jumps of its clients so far, if there were any.
    """

    def __init__(
        self,
        ring: Ring,
        *,
        epoch: int,
        compile_filter: Callable[[str], TableFilter | None],
        compile_where: Callable[[str], RowFilter] | None = None,
        detach_after: float = 0.0,
        expire_after: int = 0,
        catches_up: bool = False,
        keeps: bool = False,
        main: "Cursors | None" = None,
        passes: TableFilter | None = None,
        gate: Gate | None = None,
    ) -> None:
        self.ring = ring
        self.life: int = max(epoch, main.life) if main is not None else epoch
        """The epoch of this life of the destination; see `Counters.epoch` for what is stored."""
        if main is not None:
            self._shared = main.shared
        else:
            self._shared = _Shared(Retention(Stream(ring, catches_up=catches_up), detach_after, keeps=keeps))
        self.counters = self._shared.counters
        self.counters.raise_to(epoch)
        self._retention = self._shared.retention
        self.track = self._retention.track
        self._expire_after = expire_after
        number = 0 if main is None else self._shared.views + 1
        self._shared.views = max(self._shared.views, number)
        self.clients = Clients(self._retention, self._shared.counters, gate or Gate(), number)
        self.admission = Admission(self.clients, compile_filter, compile_where, passes)
        self.snapshots = ClientSnapshots(self.clients, self._retention)
        self._progress = Progress(self.clients, self._retention, self.snapshots)
        self.readers = Readers(self.clients)
        self.ranges = Ranges(self.clients)
        self.gate, self.resting = self.clients.gate, self.clients.resting
        self._shared.members.append(self)
        self._refused: list[int] = []

    # --- a destination and its views ---------------------------------------------------------------------------------

    @property
    def shared(self) -> _Shared:
        """What it has in common with the views, or with the destination that it is a view of."""
        return self._shared

    @property
    def members(self) -> "Sequence[Cursors]":
        """The destination and its views."""
        return self._shared.members

    def leave(self) -> None:
        """End a view: from here on it holds nothing of the ring."""
        self._shared.members.remove(self)
        self.clients.leave()
        self._retention.hold()
        self._retention.free()

    def continue_after(self, earlier: "Cursors") -> None:
        """Go on counting where other cursors of the same epoch have ended; the clients keep when they last called."""
        mine, others = self.counters, earlier.counters
        mine.next_id, mine.last_session = others.next_id, others.last_session
        self.clients.keep_calls(earlier.clients.last_calls)

    # --- the stream --------------------------------------------------------------------------------------------------

    def begin(self, position: Position | None, gtids: GtidSet | None) -> None:
        """Say where the stream of an empty ring begins, and what was executed before; None for what is not known."""
        self.track.open(position, gtids)
        self._shared.followed.next = 0  # there are places to be named

    def pass_gap(self, why: str, read: Position | None, begin: Position | None, by: By) -> list[int]:
        """Start the clients that wait for a place with the stream: it goes on after a gap that has swallowed them.

        A cursor stays unchanged until its client acks. ``begin`` is where the stream goes on; ``read`` is up to where
        it was read before that, if it was: then a marker in it tells the clients that are served from it. Returns the
        clients that do not get something.
        """
        passed = []
        for client_id, subscriber in self.clients.subscribers.items():
            resume, state = subscriber.pass_gap(self.track), MoveState.OPEN
            before = _place(resume)
            if resume is None and read is not None and isinstance(subscriber.state, InRing):
                before, state = str(read), MoveState.TOLD
            if before:
                gap = Move(Reason.PURGE, before, str(begin or ""), by.who, by.ms, state, detail=why)
                self.gate.jump(client_id, gap)
                passed.append(client_id)
        return passed

    def position_before(self, sequence: int) -> Position | None:
        """Return the position before a slot of the ring; None before the stream has begun."""
        return self.track.position_before(sequence)

    def advance(self, now: float, *, every: bool = False) -> None:
        """Look at what was put: attach those that waited for it, move idle subscribers on, free what can be freed.

        That is done for all members. If there are many (`Retention.has_many`), those that are in the ring are moved on
        a little later; with ``every`` at once, and those that rest are looked at, too.
        """
        followed, retention = self._shared.followed, self._retention
        for member in self.members:
            member.resting.look()  # before anything is freed
        if not (every or retention.pace.running or followed.is_due(self.ring, len(retention.subscribers))):
            for member in self.members:
                member.follow_elsewhere()
            return
        followed.take(self.ring)
        for member in self.members:
            member.follow()
        retention.free()  # once: for each of many subscribers that would look at all of them
        if retention.detach_slow(now):
            for member in self.members:
                member.resting.rouse_all()
        retention.free()
        retention.hold()
        if every:
            for member in self.members:
                member.review()

    def follow(self) -> None:
        """Attach those that waited for what was put, and move the idle ones on."""
        for subscriber in self.clients.subscribers.values():
            self._follow(subscriber)

    def follow_elsewhere(self) -> None:
        """Attach those that waited for what was put, or have readers, and move those on."""
        for client_id in tuple(self.clients.elsewhere):
            self._follow(self.clients.subscribers[client_id])

    def review(self) -> None:
        """Rouse those that rest and no longer may, for whatever reason."""
        shown = self.track.shown
        for client_id in self.resting:
            if self._waits_at(self.clients.subscribers[client_id], shown) is None:
                self.resting.rouse(client_id)

    def _follow(self, subscriber: Subscriber) -> None:
        subscriber.resolve(self.track)
        self._name_place(subscriber)
        subscriber.meet(self.track)
        self._progress.pass_over(subscriber)
        self._refuse(subscriber)

    # --- catching up -------------------------------------------------------------------------------------------------

    def fall_out(self, client_id: int, error: SluiceError) -> None:
        """Stop serving a client, because of an error; its cursor stays."""
        self.resting.rouse(client_id)
        self.clients.find(client_id).fall_out(self.track, error)

    def take_refused(self) -> list[int]:
        """Return the clients that are served no longer, since the last call, because of their conditions on rows."""
        refused, self._refused = self._refused, []
        return refused

    # --- subscriptions -----------------------------------------------------------------------------------------------

    def restore(self, client: StoredClient, now: float, session: str | None = None) -> None:
        """Take over a stored subscription, with its session; without a cursor it starts with the stream.

        A client whose filter is refused, or no longer matches anything that the destination's filter lets through, is
        not served until it subscribes with another one.
        """
        state: InRing | Ahead | Gone
        wanted = Wanted()
        try:
            wanted = self.admission.compile(client.filter, client.where)
        except FilterError as error:
            state = Gone(self.track, error, None)
        else:
            state = self._go_on(client.cursor, wanted)
        subscriber = self.clients.add(Subscriber(client, wanted, now, state, given=False))
        subscriber.session = session
        subscriber.resolve(self.track)
        self._retention.hold()

    def inherit(self, client_id: int, former: StoredClient, now: float) -> None:
        """Register a client that goes on at the place of another one, with what that keeps; it takes no snapshots."""
        self.restore(replace(former, client_id=client_id, snapshots="", refused=""), now)
        self.clients.unstored.add(client_id)

    def subscribe(
        self,
        client_id: int,
        *,
        filter_text: str = "",
        where: str | None = "",
        start: str | int | Position | Cursor = "earliest",
        expire_after: int | None = None,
        protected: bool | None = None,
        output: str = "",
        owner: str | None = None,
        now: float,
        by: By = NOBODY,
    ) -> ClientStatus:
        """Register a client, or change filter and condition of a registered one, whose cursor wins over ``start``.

        ``where`` is a condition on rows, as in `sluice.instance.conditions.where`; None leaves it unchanged.
        ``start`` is ``earliest`` in ring or log, ``latest``, a place, or a time in ms since 1970, of which the ring has
        all; the time of ``by`` tells whether that is past. ``expire_after`` and ``protected``: see
        `StoredClient`; None leaves them unchanged. ``output`` is the name of the output that owns the client from here
        on, ``owner`` that of the token; None leaves the latter unchanged.

        Raises:
            OwnedError: an output owns the client, and somebody else calls.
            FilterError: the filter or the condition is not valid, or there are too many other conditions.
            BadPositionError: ``start`` is not one of these.
            GoneError: it is before what the ring holds.
            SourceChangedError: it belongs to another source or history.
        """
        known = self.clients.subscribers.get(client_id)
        if known is not None:
            self.admission.own(known, output)
            where = known.where if where is None else where
            if where != known.where:
                self.admission.check_conditions(client_id, where, known.owner if owner is None else owner)
            known.select(filter_text, where, self.admission.compile(filter_text, where))
            self.resting.rouse(client_id)
            known.last_active = now
            known.expire_after = known.expire_after if expire_after is None else expire_after
            known.protected = known.protected if protected is None else protected
            known.owner = known.owner if owner is None else owner
            if known.refusal is not None:
                known.become(self._go_on(known.cursor, known.wanted))
                known.resolve(self.track)
            self.clients.unstored.add(client_id)
            self._retention.hold()
            return self.status(client_id)
        where = where or ""
        self.admission.check_conditions(client_id, where, owner or "")
        wanted = self.admission.compile(filter_text, where)
        state, cursor = self._begin_at(start, wanted, by.time)
        stored = StoredClient(
            client_id,
            filter_text,
            cursor,
            expire_after,
            protected=bool(protected),
            where=where,
            output=output,
            owner=owner or "",
        )
        subscriber = self.clients.add(Subscriber(stored, wanted, now, state))
        subscriber.resolve(self.track)
        self._name_place(subscriber)
        self._arrive(subscriber)
        self.clients.unstored.add(client_id)
        self._retention.hold()
        return self.status(client_id)

    def protect(self, client_id: int, *, protected: bool, now: float) -> ClientStatus:
        """Let the log on disk keep what a client still needs, beyond its limits, or no longer.

        Raises NotSubscribedError.
        """
        subscriber = self.clients.find(client_id)
        subscriber.last_active = now
        subscriber.protected = protected
        self.clients.unstored.add(client_id)
        self._retention.hold()
        return self.status(client_id)

    def protect_elsewhere(self, cursors: Mapping[int, Cursor]) -> None:
        """Let the log on disk keep what protected clients need that are not served here, which are at these places."""
        self._retention.elsewhere = cursors
        self._retention.hold()

    def use_log(self, log: Log, *, is_before_all: bool) -> None:
        """Write to a log what the ring gets; ``is_before_all``: nothing is given to anybody before it is in there."""
        self.track.log, self.track.unlogged, self.track.is_behind_log = log, 0, is_before_all
        self._retention.hold()

    def seek(
        self,
        client_id: int,
        start: str | int | Position | Cursor,
        *,
        memory: str,
        now: float,
        by: By = NOBODY,
        held: bool = False,
        is_confirmed: bool = False,
    ) -> ClientStatus:
        """Move the cursor of a client to a place, forward or back, and forget its marks.

        ``start`` is as for `subscribe`; ``memory`` takes the place of the text that it keeps with its cursor. ``held``:
        whether source or log still have what is at its cursor; ``is_confirmed``: whether the other side has all that
        lies between. Raises NotSubscribedError, and what `subscribe` raises, FilterError also for what it has
        subscribed with; then nothing changes.
        """
        subscriber = self.clients.find(client_id)
        if subscriber.refusal is not None:
            wanted = self.admission.compile(subscriber.filter, subscriber.where)
            subscriber.select(subscriber.filter, subscriber.where, wanted)
        known = subscriber.cursor
        if known is not None and known.position is not None and start in (known.position, str(known.position)):
            start = known  # its GTIDs say where that is at another source
        state, cursor = self._begin_at(start, subscriber.wanted, by.time)
        passed = subscriber.lag_to(state)
        subscriber.move(state, cursor, memory)
        self.resting.rouse(client_id)
        subscriber.last_active = now
        self._name_place(subscriber)
        before, after = None if known is None else known.position, subscriber.reached
        is_back = before is not None and after is not None and after.is_comparable(before) and after <= before
        if not (is_confirmed or is_back or (passed is not None and not passed.entries)):
            rows, to = None if passed is None else passed.rows, str(after or "")
            self.gate.jump(client_id, Move(Reason.SEEK, _place(known), to, by.who, by.ms, held=held, rows=rows))
        self.clients.unstored.add(client_id)
        self._retention.hold()
        self._retention.free()
        return self.status(client_id)

    def skip(self, client_id: int, position: Position, *, now: float, by: By = NOBODY) -> Position:
        """Move the cursor of a client over the one transaction that it gets next, and forget its marks.

        ``position`` has to lie in that transaction. At the place of a marker of a gap, which comes before it, that is
        settled alone. Returns the place after what was skipped.

        Raises:
            NotSubscribedError, GoneError, SourceChangedError: as `check`.
            BadPositionError: the client does not get a change of this place next, or the end of the transaction is not
                stored yet.
        """
        subscriber = self.clients.check(client_id, None, by_hand=True)
        subscriber.last_active = now
        served = subscriber.served
        reading = served.reading if served is not None else None
        here = reading.acked() if reading is not None else None
        if reading is None or here is None:
            raise BadPositionError(f"client {client_id} is not served yet: it skips nothing")
        if position == here and (untold := self.gate.untold(client_id)):
            self.gate.tell(client_id, untold)
            subscriber.roll_back()
            return here
        found = reading.end_of_transaction(reading.ack)
        if found is None:
            raise BadPositionError(f"the end of the transaction at {here} is not stored yet")
        sequence, end = found
        if not (here.same_history(position) and here.transaction <= position < end):
            raise BadPositionError(
                f"client {client_id} gets next what is from {here} to {end}; {position} is not in that transaction"
            )
        rows = reading.lag(reading.ack, sequence).rows
        self._progress.confirm_to(subscriber, reading, sequence)
        reading.roll_back()
        self.resting.rouse(client_id)
        self.gate.jump(client_id, Move(Reason.SKIP, str(here), str(end), by.who, by.ms, held=True, rows=rows))
        self.clients.unstored.add(client_id)
        return end

    def unsubscribe(self, client_id: int, *, by: By = NOBODY, held: bool = True) -> None:
        """Remove a client and its cursor; its gaps are confirmed by that. ``held`` is as for `seek`.

        Raises NotSubscribedError, and OwnedError for that of an output.
        """
        self.clients.find(client_id).require_free()
        self.gate.confirm(client_id)
        self._remove(client_id, Reason.UNSUBSCRIBE, by, held=held)

    def _remove(self, client_id: int, reason: Reason, by: By, *, held: bool) -> None:
        before = _place(self.clients.find(client_id).cursor)
        held = held and not self.has_lost_place(client_id)
        self.gate.jump(client_id, Move(reason, before, "", by.who, by.ms, held=held))
        self.clients.remove(client_id)
        self._retention.hold()
        if self._retention.subscribers or self.track.unlogged is not None:
            self._retention.free()

    def expire(self, now: float, by: By = NOBODY) -> list[int]:
        """Remove the clients that have made no call for too long; return their ids. One that rests is on a call."""
        subscribers = self.clients.subscribers
        for client_id in self.resting:
            subscribers[client_id].last_active = now
        limits = {
            client_id: self._expire_after if it.expire_after is None else it.expire_after
            for client_id, it in subscribers.items()
            if not it.output
        }
        expired = [it for it, limit in limits.items() if limit and now - subscribers[it].last_active > limit]
        for client_id in expired:
            self._remove(client_id, Reason.EXPIRE, by, held=True)
        return expired

    # --- get, ack, rollback ------------------------------------------------------------------------------------------

    def place_after(self, client_id: int, batch_id: int) -> Cursor | None:
        """Return the place after a batch that was given and is not confirmed; None before it has a name.

        Raises NotSubscribedError, and UnknownBatchError when no such batch is outstanding.
        """
        subscriber = self.clients.find(client_id)
        served = subscriber.served
        mark = subscriber.marks.get(batch_id)
        if served is None or mark is None:
            raise UnknownBatchError(f"batch {batch_id} is not outstanding")
        return served.reading.place_before(mark.stop)

    def has_lost_place(self, client_id: int) -> bool:
        """Whether the source no longer has what a client gets next. Raises NotSubscribedError."""
        state = self.clients.find(client_id).state
        return isinstance(state, Gone) and isinstance(state.error, PurgedError)

    def awaited(self, client_id: int) -> Cursor | None:
        """Return the cursor of a client that the stream has not reached; None if the client is served."""
        state = self.clients.find(client_id).state
        return None if isinstance(state, Served) else state.resume

    def awaits_verdicts(self, client_id: int, sequence: int) -> bool:
        """Return whether its condition is not judged yet of all slots of the destination's ring before one."""
        state = self.clients.find(client_id).state
        if not isinstance(state, InRing):
            return False
        reached = state.reading.slots.reach(state.reading.get, sequence)
        return reached < sequence and state.reading.slots.refusal(reached) is None

    def rest(self, client_id: int) -> bool:
        """Let a client that waits rest until `resting` names it; False if it has to look whenever something changes."""
        subscriber = self.clients.subscribers.get(client_id)
        if subscriber is None:
            return False
        shown = self.track.shown
        held = self._waits_at(subscriber, shown)
        mask = None if held is None else subscriber.slots.mask
        if mask is None or held is None:
            return False
        return self.resting.add(client_id, mask, shown, held)

    def _waits_at(self, subscriber: Subscriber, shown: int) -> int | None:
        """Return the BEGIN that waits before a slot, -1 without one, if only what is put may be given to a client.

        None if it may be given something now, or in another way, or may not be given what is put.
        """
        client_id = subscriber.client_id
        if self.ring.closed or not self.gate.is_stored(client_id) or self.gate.untold(client_id):
            return None
        return subscriber.waits_at(shown)

    def available(self, client_id: int) -> tuple[int, int]:
        """Return the number of entries, and their bytes, that a get without limits would give."""
        served = self._progress.moved_on(client_id).served
        if served is None:
            return 0, 0
        reading = served.reading
        _, entries, _, size = served.track.ring.measure(reading.get, served.end, **reading.chosen())
        return entries, size

    def is_held(self, client_id: int) -> bool:
        """Return whether nothing more comes for a client before it has taken and confirmed what is there.

        Its ring is full, or its catch-up reader has met the ring, which the client joins only then.
        """
        subscriber = self.clients.find(client_id)
        served = subscriber.served
        if served is None:
            return False
        reading = served.reading
        return (
            served.is_held
            or bool(self._gaps_to_tell(subscriber, reading))
            or subscriber.next_late(reading, self.snapshots.late) is not None
            or reading.ready_rows() is not None
        )

    def get(
        self,
        client_id: int,
        *,
        now: float,
        max_entries: int = 0,
        max_bytes: int = 0,
        memory_limit: int = 0,
        ddl_isolation: bool = False,
        content: Content = Content.ENTRIES,
        session: str | None = None,
    ) -> Batch | None:
        """Give the next batch and mark it; None if nothing is there. For the limits see `Ring.collect`.

        A batch has at least one entry of which ``content`` shows something. What comes before that is passed over: it
        is confirmed with the batch before it, or at once.

        A session may count the gets that it has given up, without knowing what became of them: ``token.2`` has given
        up two. One of them may arrive late. If a later get came first, the late one takes nothing; if a later get
        comes after it, what the late one was given is given again. So nothing is missing between two batches.

        Raises what `check` raises.
        """
        subscriber = self.clients.check(client_id, session)
        subscriber.last_active = now
        if session is not None and subscriber.has_given_up(session):
            raise StaleSessionError(f"client {client_id} has given up this get and sent another")
        served = subscriber.served
        if served is None or not self.gate.is_stored(client_id):
            return None
        reading = served.reading
        gaps = self._gaps_to_tell(subscriber, reading) if content is not Content.ROWS else ()
        if gaps:
            return self._mark_gaps(subscriber, reading, gaps)
        late = subscriber.next_late(reading, self.snapshots.late)
        if late is not None:
            return self.snapshots.mark_late(subscriber, reading, late)
        rows = None if reading.windows.yields else self.snapshots.mark_rows(subscriber, reading, content)
        if rows is not None:
            return rows
        collected = served.track.ring.collect(
            reading.get,
            stop=reading.pause_for_rows(served.end),
            max_entries=max_entries,
            max_bytes=max_bytes,
            memory_limit=memory_limit,
            ddl_isolation=ddl_isolation,
            content=content,
            **reading.chosen(),
        )
        reading.get = collected.stop
        if not collected.entries:
            if not reading.marks:
                self._progress.confirm(subscriber, reading, collected.stop)
            return self.snapshots.mark_rows(subscriber, reading, content)
        reading.windows.yields = False
        reading.windows.note(collected.slices)
        return self._mark(subscriber, reading, collected)

    def ack(
        self, client_id: int, batch_id: int, *, now: float, session: str | None = None, memory: str | None = None
    ) -> None:
        """Confirm the oldest batch that is not confirmed.

        ``memory`` is a text of the client's own, a few KiB, that is stored with its cursor from here on.

        Raises:
            NotSubscribedError, StaleSessionError: as `check`.
            AckOutOfOrderError: an older batch is not confirmed yet; nothing changes.
            UnknownBatchError: no such batch is outstanding; nothing changes.
        """
        subscriber = self.clients.called(client_id, session)
        subscriber.last_active = now
        reading, mark = subscriber.oldest(batch_id)
        if memory is not None and memory != subscriber.memory:
            subscriber.memory = memory
            self.clients.unstored.add(client_id)
        self._progress.deliver(subscriber, reading, mark)

    def ack_to(
        self,
        client_id: int,
        position: Position,
        *,
        batch_id: int | None = None,
        now: float,
        session: str | None = None,
        exists: bool = True,
        by: By | None = None,
    ) -> bool:
        """Confirm everything before a position, and with it all marks that end there or before. May be repeated.

        Rows of a snapshot, late rows and markers of gaps have no place of their own, so a position confirms them only
        with what follows. ``batch_id`` is a batch that ends at the position: while that is outstanding, it is
        confirmed with all before it, whatever it holds. One that ends elsewhere is not the one that is meant.

        In a new life of the destination, or after leaving the ring, a subscriber may first confirm what it was given
        earlier. False when the stream has not reached that place again. What it has reached is then confirmed if that
        makes the stream go on, and if the source is known to have the position (``exists``). What a subscriber does
        not want need not be given. ``by``: somebody else acks for it, who need not be the output that owns it.

        Raises:
            NotSubscribedError, StaleSessionError, GoneError, SourceChangedError: as `check`.
            BadPositionError: the position is beyond what the client was given.
        """
        subscriber = self.clients.check(client_id, session, by_hand=by is not None)
        subscriber.last_active = now
        served = subscriber.served
        if served is None:
            return subscriber.has_confirmed(position)
        reading, track = served.reading, served.track
        mark = reading.marks.get(batch_id) if batch_id is not None else None
        if mark is not None and (mark.to or track.position_before(mark.stop)) == position:
            self._progress.deliver(subscriber, reading, mark)
            return True
        # mostly a mark ends there: that is found without a search
        given = (mark.stop for mark in reading.marks.values() if mark.to == position)
        sequence = next((stop for stop in given if stop <= reading.get), None)
        if sequence is None:
            if subscriber.given:
                reading.pass_over(position, served.end)
                self.resting.rouse(client_id)
            stop = reading.get if subscriber.given else served.end
            if not subscriber.given and self._is_of_later_source(subscriber, position):
                if exists:
                    self._progress.confirm_to(subscriber, reading, stop)
                return False
            if track.is_beyond(position, stop):
                if subscriber.given:
                    end = track.position_before(stop)
                    raise BadPositionError(f"{position} is beyond what client {client_id} was given: {end}")
                if exists and served.is_held:
                    self._progress.confirm_to(subscriber, reading, stop)
                return False
            if not track.is_beyond(position, reading.ack):
                return True
            found = track.sequence_of(position)
            sequence = stop if found is None else min(found, stop)
        if by is not None and sequence > reading.ack:
            rows, before = reading.lag(reading.ack, sequence).rows, str(reading.acked() or "")
            move = Move(Reason.ACK, before, str(position), by.who, by.ms, held=True, rows=rows)
            self.gate.jump(client_id, move)
            self.clients.unstored.add(client_id)
        self._progress.confirm_to(subscriber, reading, sequence)
        return True

    def go_back(self, client_id: int, *, now: float, session: str | None = None) -> bool:
        """Go back to the durable cursor, which is between two transactions; all marks are forgotten.

        What is confirmed of a transaction is given again: from now on the ring holds that, while it has room. Return
        False if the client is gone by that: its transaction is too large for the ring, and there are no readers.
        Raises NotSubscribedError and StaleSessionError.
        """
        subscriber = self.clients.called(client_id, session)
        subscriber.last_active = now
        subscriber.given = True
        is_served = subscriber.go_back(self.track)
        self.resting.rouse(client_id)
        self._retention.hold()
        self._retention.free()
        return is_served

    def rollback(self, client_id: int, batch_id: int | None = None, *, now: float, session: str | None = None) -> None:
        """Go back to what is confirmed. Without a batch id all marks are forgotten.

        A batch id has to be that of the oldest mark. Then only that mark is forgotten (Canal's rule): later ones are
        still to be confirmed or rolled back, although their entries are given again.

        Raises what `ack` raises.
        """
        subscriber = self.clients.called(client_id, session)
        subscriber.last_active = now
        subscriber.given = True
        if batch_id is None:
            subscriber.roll_back()
        else:
            reading, mark = subscriber.oldest(batch_id)
            del reading.marks[mark.batch_id]
            reading.go_back()
        self.resting.rouse(client_id)

    # --- what is stored, and what is shown ---------------------------------------------------------------------------

    def status(self, client_id: int) -> ClientStatus:
        """Return the status of a client. Raises `NotSubscribedError`."""
        return self._progress.moved_on(client_id).status(self.track)

    # --- inside ------------------------------------------------------------------------------------------------------

    def _is_of_later_source(self, subscriber: Subscriber, position: Position) -> bool:
        """Whether a reader gives what the log has of a former source, and a position comes after that in the log."""
        log, here = self.track.log, subscriber.state.track.floor
        if log is None or here is None or here.same_source(position) or not self.clients.has_reader(subscriber):
            return False
        return log.has_after(here, position)

    def _go_on(self, cursor: Cursor | None, wanted: Wanted) -> InRing | Ahead:
        """Return the state of a stored subscriber: it goes on where it left off; without a cursor with the stream."""
        if cursor is None:
            return InRing(Reading(self.track, wanted, self.ring.first))
        return Ahead.at(self.track, cursor)

    def _begin_at(
        self, start: str | int | Position | Cursor, wanted: Wanted, unix_time: float
    ) -> tuple[State, Cursor | None]:
        """Return the state of a subscriber that begins at a place, and its cursor if that is known already."""
        if start == "earliest" and self.track.catches_up:
            start = self.track.oldest_logged() or start
        if isinstance(start, Cursor):
            state = Ahead.at(self.track, start).resolve(self.track, wanted)
            if isinstance(state, Gone):
                raise state.error
            return state, replace(start, delivered=start.delivered or start.position)
        sequence = self.track.start(start, unix_time)
        if sequence is not None:
            return InRing(Reading(self.track, wanted, sequence)), None
        place = start if isinstance(start, Position) else Position.parse(str(start))
        cursor = Cursor.at(place, delivered=place)
        return Ahead.at(self.track, cursor), cursor

    def _refuse(self, subscriber: Subscriber) -> None:
        """Serve a client no longer that has come to a row of which its condition cannot be judged."""
        refusal = subscriber.served.reading.refusal if subscriber.served is not None else None
        if refusal is not None:
            self.fall_out(subscriber.client_id, refusal)
            self._refused.append(subscriber.client_id)

    def _name_place(self, subscriber: Subscriber) -> None:
        """Give a new subscriber a cursor as soon as its place has a name: after a restart it goes on from there."""
        if subscriber.name_place():
            self.clients.unstored.add(subscriber.client_id)
            self._arrive(subscriber)

    def _arrive(self, subscriber: Subscriber) -> None:
        """Say where a client goes on whose last jump does not say that yet."""
        self.gate.arrive(subscriber.client_id, _place(subscriber.cursor))

    def _mark(self, subscriber: Subscriber, reading: Reading, collected: Collected) -> Batch:
        batch_id = self.counters.take_id()
        subscriber.given = True
        to = reading.track.position_before(collected.stop)
        reading.marks[batch_id] = Mark(batch_id, collected.start, collected.stop, collected.last, to)
        return Batch(
            batch_id=batch_id,
            slices=collected.slices,
            from_=str(reading.track.position_before(collected.start)),
            to=str(to),
            entries=collected.entries,
            rows=collected.rows,
            bytes=collected.bytes,
            timestamp=collected.execute_ms,
            positions=collected.positions,
        )

    def _gaps_to_tell(self, subscriber: Subscriber, reading: Reading) -> tuple[Move, ...]:
        """Return the gaps that a subscriber is to be told of now: between transactions, unless a mark holds some."""
        untold = self.gate.untold(subscriber.client_id)
        if not untold or not reading.is_between or any(mark.gaps for mark in reading.marks.values()):
            return ()
        return untold

    def _mark_gaps(self, subscriber: Subscriber, reading: Reading, gaps: tuple[Move, ...]) -> Batch | None:
        at = reading.got()
        if at is None:
            return None
        batch_id = self.counters.take_id()
        subscriber.given = True
        reading.marks[batch_id] = Mark(batch_id, reading.get, reading.get, -1, gaps=gaps)
        return gaps_batch(batch_id, gaps, at)


def _place(cursor: Cursor | None) -> str:
    """Return the place of a cursor as a record names it; empty without one."""
    if cursor is None:
        return ""
    return str(cursor.position or f"{cursor.journal}:{cursor.offset}")
