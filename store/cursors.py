"""The subscribers of a destination: subscriptions, get, ack and rollback, without any I/O.

What each of them is doing is its state (`sluice.store.states`), and how far it is in a ring is its `Reading`. Slots
that no subscriber needs are freed. A view of a destination has subscribers of its own on the same stream: what holds
the ring back, and the ids of batches, are one matter of all of them.

`Cursors` puts the parts together. Each part is called by its name: `Clients` says who there is and what is to be
stored, `Admission` who may be what, `Places` where they are, `Readers` who reads what is before the ring, `Ranges` and
`ClientSnapshots` what else they are given.

Every method is called from one thread. ``now`` is in seconds of a clock that is never set, such as `time.monotonic`.
`Clients.take_changes` returns what has to be stored.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..protocol.content import Content
from ..protocol.cut import Before
from ..protocol.errors import BadPositionError, FilterError, SluiceError, StaleSessionError
from ..protocol.gtid import GtidSet
from ..protocol.position import Position
from .admission import Admission, Defaults
from .allowance import UNLIMITED, Limits
from .batch import Batch, LateRows
from .client_snapshots import ClientSnapshots
from .clients import Clients, Counters
from .cursor import Cursor, StoredClient, place_of
from .log.log import Log
from .moves import By, Gate, Move, Reason
from .places import NOBODY, Places
from .progress import Progress
from .ranges import Ranges
from .readers import Readers
from .reading import Mark, Reading
from .retention import Look, Retention
from .ring import Collected, Ring
from .states import Ahead, Gone, InRing
from .status import ClientStatus
from .stream import Stream
from .subscriber import Subscriber
from .track import RowFilter, TableFilter, Wanted


@dataclass(slots=True)
class _Shared:
    """What a destination and its views have in common."""

    retention: Retention
    counters: Counters = field(default_factory=Counters)
    cursors: "list[Cursors]" = field(default_factory=list)
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
        catches_up: a client that is behind the ring gets a reader of its own (`Readers`); else it is gone.
        keeps: the last transactions stay in the ring, unless they have GTIDs: another source is compared by them.
        main: of a view, the subscribers of the destination that it is a view of.
        gate: the jumps of its clients so far, if there were any.
        defaults: what counts for clients that ask for nothing else.
    """

    def __init__(
        self,
        ring: Ring,
        *,
        epoch: int,
        compile_filter: Callable[[str], TableFilter | None],
        compile_where: Callable[[str], RowFilter] | None = None,
        detach_after: float = 0.0,
        catches_up: bool = False,
        keeps: bool = False,
        main: "Cursors | None" = None,
        gate: Gate | None = None,
        defaults: Defaults | None = None,
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
        defaults = defaults or Defaults()
        self._expire_after = defaults.expire_after
        number = 0 if main is None else self._shared.views + 1
        self._shared.views = max(self._shared.views, number)
        self.clients = Clients(self._retention, self._shared.counters, gate or Gate(), number, defaults.limits)
        self.admission = Admission(self.clients, compile_filter, compile_where, defaults)
        self.snapshots = ClientSnapshots(self.clients, self._retention)
        self._progress = Progress(self.clients, self._retention, self.snapshots)
        self.readers = Readers(self.clients)
        self.ranges = Ranges(self.clients)
        self.places = Places(self.clients, self._retention, self.admission, self._progress)
        self.gate, self.resting = self.clients.gate, self.clients.resting
        self._shared.cursors.append(self)
        self._refused: list[int] = []

    # --- a destination and its views ---------------------------------------------------------------------------------

    @property
    def shared(self) -> _Shared:
        """What it has in common with the views, or with the destination that it is a view of."""
        return self._shared

    @property
    def with_views(self) -> "Sequence[Cursors]":
        """Those of the destination, and of its views."""
        return self._shared.cursors

    def leave(self) -> None:
        """End a view: from here on it holds nothing of the ring."""
        self._shared.cursors.remove(self)
        self.clients.leave()
        self._retention.hold()
        self._retention.free()

    def continue_after(self, earlier: "Cursors") -> None:
        """Go on counting where other cursors of the same epoch have ended; see `Clients.continue_after`."""
        mine, others = self.counters, earlier.counters
        mine.next_id, mine.last_session = others.next_id, others.last_session
        self.clients.continue_after(earlier.clients)

    # --- the stream --------------------------------------------------------------------------------------------------

    def begin(self, position: Position | None, gtids: Before) -> None:
        """Say where the stream of an empty ring begins, and what was executed before; None for what is not known."""
        self.track.open(position, gtids)

    def join_member(self, name: str, start: Position, gtids: GtidSet | None) -> None:
        """Say where a member begins that joins a merged stream, before its first slot is put.

        From here on the cursors have that place: whoever begins at one of them begins there in the member. It is to be
        stored before a client is given anything of the member, or it would begin later in it after a restart.
        """
        self.track.join_member(name, start, gtids)
        for cursors in self.with_views:
            for client_id, subscriber in cursors.clients.subscribers.items():
                subscriber.fill(self.track.fill)
                cursors.clients.unstored.add(client_id)

    def position_before(self, sequence: int) -> Position | None:
        """Return the position before a slot of the ring; None before the stream has begun."""
        return self.track.position_before(sequence)

    def advance(self, now: float, *, every: bool = False) -> None:
        """Look at what was put: attach those that waited for it, move idle subscribers on, free what can be freed.

        That is done for the views, too. If there are many (`Retention.has_many`), those that are in the ring are moved
        on a little later; with ``every`` at once, and those that rest are looked at, too, but the more there are the
        less often (`Look.take_review`).
        """
        followed, retention = self._shared.followed, self._retention
        every = every and followed.take_review(now, len(retention.subscribers))
        for cursors in self.with_views:
            cursors.resting.look()  # before anything is freed
        if not (every or retention.pace.running or followed.is_due(self.ring, len(retention.subscribers))):
            for cursors in self.with_views:
                cursors.follow_elsewhere()
            return
        followed.take(self.ring)
        for cursors in self.with_views:
            cursors.follow()
        retention.free()  # once: for each of many subscribers that would look at all of them
        if retention.detach_slow(now):
            for cursors in self.with_views:
                cursors.resting.rouse_all()
        retention.free()
        retention.hold()
        if every:
            for cursors in self.with_views:
                cursors.review()

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
        self.places.name_place(subscriber)
        subscriber.meet(self.track)
        self._progress.pass_over(subscriber)
        self._refuse(subscriber)

    # --- subscriptions -----------------------------------------------------------------------------------------------

    def expect(self, late: Iterable[LateRows], adopted: Collection[int]) -> None:
        """Know the rows that stored clients are to be given late, and which of them nobody has stored here yet."""
        self.snapshots.late = {str(it.position): it for it in late}
        self.clients.unstored.update(adopted)

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
            state = self.places.go_on(client.cursor, wanted)
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
        limits: Limits = UNLIMITED,
        now: float,
        by: By = NOBODY,
    ) -> ClientStatus:
        """Register a client, or change filter and condition of a registered one, whose cursor wins over ``start``.

        ``where`` is a condition on rows, as in `sluice.instance.conditions.where`; None leaves it unchanged.
        ``start`` is ``earliest`` in ring or log, ``latest``, a place, or a time in ms since 1970, of which the ring has
        all; the time of ``by`` tells whether that is past. ``expire_after`` and ``protected``: see
        `StoredClient`; None leaves them unchanged. ``output`` is the name of the output that owns the client from here
        on, ``owner`` that of the token; None leaves the latter unchanged. A new client has the ``limits``; those of a
        registered one are a matter of `Clients.limit`.

        Raises:
            OwnedError: an output owns the client, and somebody else calls.
            FilterError: the filter or the condition is not valid, or there are too many other conditions.
            BadPositionError: ``start`` is not one of these.
            GoneError: it is before what the ring holds.
            SourceChangedError: it belongs to another source or history.
        """
        # Long: half of it says what the arguments mean.
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
                known.become(self.places.go_on(known.cursor, known.wanted))
                known.resolve(self.track)
            self.clients.unstored.add(client_id)
            self._retention.hold()
            return self.status(client_id)
        where = where or ""
        self.admission.check_conditions(client_id, where, owner or "")
        wanted = self.admission.compile(filter_text, where)
        state, cursor = self.places.begin_at(start, wanted, by.time)
        stored = StoredClient(
            client_id,
            filter_text,
            cursor,
            expire_after,
            protected=bool(protected),
            where=where,
            output=output,
            owner=owner or "",
            limits=limits,
        )
        subscriber = self.clients.add(Subscriber(stored, wanted, now, state))
        subscriber.resolve(self.track)
        self.places.name_place(subscriber)
        self.places.arrive(subscriber)
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

    def note_logged(self, stop: int) -> None:
        """Take note that the log has all slots before that one."""
        self.track.unlogged = stop

    def unsubscribe(self, client_id: int, *, by: By = NOBODY, held: bool = True) -> Move:
        """Remove a client and its cursor; its gaps are confirmed by that. ``held`` is as for `Places.seek`.

        Returns the record of what it is not given any more. Raises NotSubscribedError, and OwnedError for that of an
        output.
        """
        self.clients.find(client_id).require_free()
        self.gate.confirm(client_id)
        status = self.status(client_id)
        rows = status.lag.rows if status.state == InRing.shown else None  # of others more waits than the ring holds
        return self._remove(client_id, Reason.UNSUBSCRIBE, by, held=held, rows=rows)

    def _remove(self, client_id: int, reason: Reason, by: By, *, held: bool, rows: int | None = None) -> Move:
        before = place_of(self.clients.find(client_id).cursor)
        held = held and not self.places.has_lost_place(client_id)
        move = Move(reason, before, "", by.who, by.ms, held=held, rows=rows)
        self.gate.jump(client_id, move)
        self.clients.remove(client_id)
        self._retention.hold()
        self._retention.free()
        return move

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

    # --- those that are served no longer -----------------------------------------------------------------------------

    def fall_out(self, client_id: int, error: SluiceError) -> None:
        """Stop serving a client, because of an error; its cursor stays."""
        self.resting.rouse(client_id)
        self.clients.find(client_id).fall_out(self.track, error)

    def take_refused(self) -> list[int]:
        """Return the clients that are served no longer, since the last call, because of their conditions on rows."""
        refused, self._refused = self._refused, []
        return refused

    def _refuse(self, subscriber: Subscriber) -> None:
        """Serve a client no longer that has come to a row of which its condition cannot be judged."""
        refusal = subscriber.served.reading.refusal if subscriber.served is not None else None
        if refusal is not None:
            self.fall_out(subscriber.client_id, refusal)
            self._refused.append(subscriber.client_id)

    # --- get, ack, rollback ------------------------------------------------------------------------------------------

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
            or bool(self.places.gaps_to_tell(subscriber, reading))
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

        Raises what `Clients.check` raises.
        """
        subscriber = self.clients.check(client_id, session)
        subscriber.last_active = now
        if session is not None and subscriber.has_given_up(session):
            raise StaleSessionError(f"client {client_id} has given up this get and sent another")
        served = subscriber.served
        if served is None or not self.gate.is_stored(client_id):
            return None
        reading = served.reading
        gaps = self.places.gaps_to_tell(subscriber, reading) if content is not Content.ROWS else ()
        if gaps:
            return self.places.mark_gaps(subscriber, reading, gaps)
        late = subscriber.next_late(reading, self.snapshots.late)
        if late is not None:
            return self.snapshots.mark_late(subscriber, reading, late)
        if reading.floor is not None:
            reading.pass_floor(served.track.shown)
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
            NotSubscribedError, StaleSessionError: as `Clients.check`.
            AckOutOfOrderError: an older batch is not confirmed yet; nothing changes.
            UnknownBatchError: no such batch is outstanding; nothing changes.
        """
        subscriber = self.clients.called(client_id, session)
        subscriber.last_active = now
        reading, mark = subscriber.oldest(batch_id)
        if memory is not None and subscriber.remember(memory):
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
        not want need not be given. A place of a merged stream may be one of another order, in which an earlier server
        has given it the changes. ``by``: somebody else acks for it, who need not be the output that owns it.

        Raises:
            NotSubscribedError, StaleSessionError, GoneError, SourceChangedError: as `Clients.check`.
            BadPositionError: the position is beyond what the client was given.
        """
        subscriber = self.clients.check(client_id, session, by_hand=by is not None)
        subscriber.last_active = now
        served = subscriber.served
        if served is None:
            return subscriber.has_confirmed(position)
        reading, track = served.reading, served.track
        mark = reading.marks.get(batch_id) if batch_id is not None else None
        if mark is not None and (mark.to or reading.place(mark.stop)) == position:
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
            position = reading.with_acked(position)
            if not subscriber.given and self._is_of_later_source(subscriber, reading.place(stop), position):
                if exists:
                    self._progress.confirm_to(subscriber, reading, stop)
                return False
            if reading.is_beyond(position, stop):
                if subscriber.given:
                    end = reading.place(stop)
                    raise BadPositionError(f"{position} is beyond what client {client_id} was given: {end}")
                if exists and served.is_held:
                    self._progress.confirm_to(subscriber, reading, reading.before(position, stop))
                return False
            if not reading.is_beyond(position, reading.ack):
                return True
            found = track.sequence_of(position)
            sequence = stop if found is None else min(found, stop)
            if self._progress.confirm_cut(subscriber, reading, position, sequence, by_hand=by is not None):
                return True
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

    # --- what is shown -----------------------------------------------------------------------------------------------

    def status(self, client_id: int) -> ClientStatus:
        """Return the status of a client. Raises `NotSubscribedError`."""
        return self._progress.moved_on(client_id).status(self.track)

    # --- inside ------------------------------------------------------------------------------------------------------

    def _is_of_later_source(self, subscriber: Subscriber, here: Position | None, position: Position) -> bool:
        """Whether a reader, which has come here, gives what the log has of a former source, and a position is later.

        Its ring may have been emptied for a source that was read then: where that begins says nothing.
        """
        log = self.track.log
        if log is None or here is None or here.same_source(position) or not self.clients.has_reader(subscriber):
            return False
        return log.has_after(here, position)

    def _mark(self, subscriber: Subscriber, reading: Reading, collected: Collected) -> Batch:
        batch_id = self.counters.take_id()
        subscriber.given = True
        to = reading.place(collected.stop)
        reading.marks[batch_id] = Mark(batch_id, collected.start, collected.stop, collected.last, to)
        return Batch(
            batch_id=batch_id,
            slices=collected.slices,
            from_=str(reading.place(collected.start)),
            to=str(to),
            entries=collected.entries,
            rows=collected.rows,
            bytes=collected.bytes,
            timestamp=collected.execute_ms,
            positions=collected.positions,
        )
