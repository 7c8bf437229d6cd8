"""Who reads the ring and how far: subscriptions, marks, cursors and sessions, without any I/O.

Each subscriber has two sequences in the ring, as Canal has for a destination: ``get``, up to which it was given
batches, and ``ack``, up to which it has confirmed them. Slots before the smallest ``ack`` are freed. A batch that was
given and not confirmed is a mark; marks are confirmed in their order.

Every method is called from one thread. What has to be stored is fetched by `Cursors.take_changes`.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

from sluice.protocol.errors import (
    AckOutOfOrderError,
    BadPositionError,
    FilterError,
    GoneError,
    NotSubscribedError,
    SluiceError,
    SourceChangedError,
    StaleSessionError,
    UnknownBatchError,
)
from sluice.protocol.gtid import GtidSet, parse_gtids
from sluice.protocol.position import Position
from sluice.store.batch import UNMARKED, Batch, Part, Range, RangeLimits
from sluice.store.cursor import Cursor, StoredClient
from sluice.store.ring import Collected, Flag, Place, Ring, SlotView
from sluice.store.status import NO_LAG, ClientStatus, Lag
from sluice.store.track import TableFilter, TableMask, Track

IDS_PER_EPOCH = 10**9


def _add_runs(ring: Ring, gtids: GtidSet, start: int, stop: int) -> None:
    for source, first, last in ring.gtid_runs(start, stop):
        gtids.add(ring.gtid_sources[source], first, last)


def _attempt(session: str) -> tuple[str, int]:
    """Return the token of a session, and how many gets it has given up."""
    token, _, attempt = session.partition(".")
    return token, int(attempt) if attempt.isdecimal() else 0


def _order(token: str | None) -> int:
    """Return a number that is greater for a session that was opened later, in whatever life; -1 for none."""
    if token is None:
        return -1
    number = token.partition("-")[0]
    return int(number) if number.isdecimal() and len(number) < 20 else 0


@dataclass(frozen=True, slots=True)
class Mark:
    """A batch that was given and is not confirmed: the slots [start, stop), the last of them with an entry."""

    batch_id: int
    start: int
    stop: int
    last: int
    to: Position | None = None
    """Where it ends; None for a range."""
    range: Range | None = None
    """What it was told by `mark_range`."""
    limits: RangeLimits | None = None


@dataclass(slots=True)
class _Subscriber:
    client_id: int
    filter: str
    wanted: TableFilter | None
    last_active: float
    track: Track
    """What it reads: the ring, or that of its catch-up reader."""
    get: int = 0
    ack: int = 0
    marks: dict[int, Mark] = field(default_factory=dict)
    session: str | None = None
    attempt: int = 0
    """How many gets the session has given up."""
    mask: TableMask | None = None
    cursor: Cursor | None = None
    """As last stored, or as loaded."""
    resume: Cursor | None = None
    """Where it will attach, while the ring has not come so far."""
    error: SluiceError | None = None
    """Why it cannot be served from the ring; it holds nothing back."""
    gtids: GtidSet | None = None
    """Executed at ``durable``."""
    durable: int = 0
    """The sequence that the durable cursor stands for."""
    boundary: SlotView | None = None
    """The slot before ``durable``, when the cursor has moved since it was stored."""
    delivered: Place | None = None
    given: bool = True
    """It is known what it was given; not so after a restart, until it asks for something."""
    moved: float = 0.0
    """When ``ack`` moved last."""

    behind: bool = False
    """Its cursor lies before the ring: it waits for a catch-up reader."""
    limit: int | None = None
    """Where the catch-up reader has met the ring: the slot behind, in the reader's ring ..."""
    meet: int = 0
    """... and in the ring, which holds that slot for it."""

    def end(self) -> int:
        """Return the slot behind the last that it may read as yet."""
        return self.track.ring.next if self.limit is None else self.limit

    def served(self) -> bool:
        """Return whether the ring holds what it gets next; a closed one holds nothing."""
        return self.error is None and self.resume is None and not self.track.ring.closed


class Cursors:
    """The subscribers of one destination.

    Args:
        ring: what they read.
        epoch: greater than in every earlier life of the destination; it makes marks unique for ever.
        compile_filter: makes the test of tables from a subscriber's filter, None for all; raises `FilterError`.
        detach_after: seconds after which one of several subscribers stops holding a full ring back; 0 for never.
        catches_up: who is behind the ring gets a reader of its own (`behind`, `catch_up`); else it is gone.
    """

    def __init__(
        self,
        ring: Ring,
        *,
        epoch: int,
        compile_filter: Callable[[str], TableFilter | None],
        detach_after: float = 0.0,
        catches_up: bool = False,
    ) -> None:
        self.ring = ring
        self.track = Track(ring)
        self.gtids: GtidSet | None = None
        self._compile_filter = compile_filter
        self._detach_after = detach_after
        self._catches_up = catches_up
        self._subscribers: dict[int, _Subscriber] = {}
        self._next_id = epoch * IDS_PER_EPOCH + 1
        self._last_session = epoch * IDS_PER_EPOCH
        self._changed: set[int] = set()
        self._begun = False

    # --- the stream --------------------------------------------------------------------------------------------------

    def begin(self, position: Position | None, gtids: GtidSet | None) -> None:
        """Say where the stream of an empty ring begins, and what was executed before; None for what is not known."""
        if self.ring.next > 0:
            return
        self._begun = position is not None
        if position is not None:
            self.track.begin(position)
        self.gtids = gtids.copy() if gtids is not None else None

    def pass_gap(self) -> None:
        """Let all who wait for a place start with the stream: it begins behind a gap that has swallowed their places.

        A cursor stays as it is until its client acks.
        """
        for subscriber in self._subscribers.values():
            if subscriber.resume is not None and subscriber.error is None:
                subscriber.track, subscriber.mask, subscriber.behind = self.track, None, False
                self._attach(subscriber, self.ring.first)
                subscriber.gtids = self.gtids.copy() if self.gtids is not None else None

    def position_before(self, sequence: int) -> Position | None:
        """Return the position before a slot of the ring; None before the stream has begun."""
        return self.track.position_before(sequence)

    def advance(self, now: float) -> None:
        """Look at what was put: attach who waited for it, let idle subscribers follow the stream, free what can be."""
        for subscriber in self._subscribers.values():
            self._resolve(subscriber)
            self._give_cursor(subscriber)
            if subscriber.served() and subscriber.track is not self.track:
                self._meet(subscriber)
            if subscriber.served() and not subscriber.marks and subscriber.get == subscriber.ack:
                self._follow(subscriber, now)
        self._detach_slow(now)
        self._free()

    # --- catching up -------------------------------------------------------------------------------------------------

    @property
    def behind(self) -> dict[int, Cursor]:
        """The clients whose cursors lie before the ring and that wait for a reader from there."""
        return {
            client_id: subscriber.resume
            for client_id, subscriber in self._subscribers.items()
            if subscriber.behind and subscriber.resume is not None
        }

    @property
    def catching_up(self) -> set[int]:
        """The clients that are served from readers of their own."""
        return {client_id for client_id, it in self._subscribers.items() if it.track is not self.track}

    def catch_up(self, client_id: int, track: Track) -> None:
        """Serve a client from the ring of a reader, which fills it from the client's cursor on, until it joins."""
        subscriber = self._subscriber(client_id)
        subscriber.track, subscriber.mask, subscriber.behind = track, None, False

    def fall_out(self, client_id: int, error: SluiceError) -> None:
        """Serve a client no more, because its reader has failed; its cursor stays."""
        subscriber = self._subscriber(client_id)
        subscriber.cursor = subscriber.resume = self._cursor(subscriber)
        subscriber.marks.clear()
        subscriber.boundary = subscriber.delivered = subscriber.limit = subscriber.mask = None
        subscriber.track, subscriber.behind, subscriber.error = self.track, False, error

    # --- subscriptions -----------------------------------------------------------------------------------------------

    def restore(self, client: StoredClient, now: float) -> None:
        """Take over a stored subscription; without a cursor it starts with the stream.

        One whose filter the destination's no longer has anything for is not served until it subscribes with another.
        """
        subscriber = _Subscriber(
            client.client_id, client.filter, None, now, self.track, cursor=client.cursor, given=False, moved=now
        )
        self._subscribers[client.client_id] = subscriber
        try:
            subscriber.wanted = self._compile(client.filter)
        except FilterError as error:
            subscriber.error = error
        else:
            self._go_on(subscriber)

    def subscribe(
        self, client_id: int, *, filter_text: str = "", start: str | int | Position = "earliest", now: float
    ) -> ClientStatus:
        """Register a client, or give a registered one another filter: its cursor wins over ``start``.

        ``start`` is ``earliest`` in the ring, ``latest``, a position, or a time in ms since 1970.

        Raises:
            FilterError: the filter is none.
            BadPositionError: ``start`` is none of these.
            GoneError: it lies before what the ring holds.
            SourceChangedError: it belongs to another source or history.
        """
        known = self._subscribers.get(client_id)
        if known is not None:
            wanted = self._compile(filter_text)
            known.filter, known.wanted, known.mask, known.last_active = filter_text, wanted, None, now
            if isinstance(known.error, FilterError):
                known.error = None
                self._go_on(known)
            self._changed.add(client_id)
            return self.status(client_id)
        sequence = self._start(start, now)
        subscriber = self._add(client_id, filter_text, now)
        if sequence is None:
            place = start if isinstance(start, Position) else Position.parse(str(start))
            subscriber.cursor = subscriber.resume = Cursor(
                place.file, place.begin, 0, 0, position=place, delivered=place
            )
            self._resolve(subscriber)
        else:
            self._attach(subscriber, sequence)
            self._give_cursor(subscriber)
        self._changed.add(client_id)
        return self.status(client_id)

    def unsubscribe(self, client_id: int) -> None:
        """Remove a client and its cursor."""
        self._subscriber(client_id)
        del self._subscribers[client_id]
        self._changed.add(client_id)
        if self._subscribers:
            self._free()

    def open_session(self, client_id: int, now: float) -> str:
        """Open a session, which fences all earlier ones; return its token."""
        subscriber = self._subscriber(client_id)
        subscriber.last_active = now
        self._last_session += 1
        subscriber.session, subscriber.attempt = f"{self._last_session}-{secrets.token_urlsafe(16)}", 0
        return subscriber.session

    @property
    def client_ids(self) -> list[int]:
        """The clients that have subscribed."""
        return sorted(self._subscribers)

    # --- get, ack, rollback ------------------------------------------------------------------------------------------

    def is_fresh(self, client_id: int) -> bool:
        """Whether a client was stored and has not asked for anything since: it may confirm what it was given before."""
        return not self._subscriber(client_id).given

    def wanted(self, client_id: int) -> TableFilter | None:
        """Return the filter of a client; None when it wants everything."""
        return self._subscriber(client_id).wanted

    def check(self, client_id: int, session: str | None = None) -> None:
        """Raise what `get` would raise.

        Raises:
            NotSubscribedError: the client has not subscribed.
            StaleSessionError: a newer session took over.
            GoneError: its cursor is not in the ring.
            SourceChangedError: its cursor belongs to another source or history.
        """
        subscriber = self._subscriber(client_id, session)
        self._resolve(subscriber)
        if subscriber.error is not None:
            raise subscriber.error

    def awaited(self, client_id: int) -> Cursor | None:
        """Return the cursor of a client that the stream has not come to; None when the client is served."""
        return self._subscriber(client_id).resume

    def outstanding(self, client_id: int) -> int:
        """Return how many batches were given to a client and are not confirmed."""
        return len(self._subscriber(client_id).marks)

    def available(self, client_id: int) -> tuple[int, int]:
        """Return the number of entries, and their bytes, that a get without limits would give."""
        subscriber = self._subscriber(client_id)
        if not subscriber.served():
            return 0, 0
        ring = subscriber.track.ring
        _, entries, _, size = ring.measure(subscriber.get, subscriber.end(), self._allowed(subscriber))
        return entries, size

    def get(
        self,
        client_id: int,
        *,
        now: float,
        max_entries: int = 0,
        max_bytes: int = 0,
        memory_limit: int = 0,
        ddl_isolation: bool = False,
        session: str | None = None,
    ) -> Batch | None:
        """Give the next batch and mark it; None when nothing is there. For the limits see `Ring.collect`.

        A session may count the gets that it has given up, without knowing what became of them: ``token.2`` has two
        behind it. One of them may arrive late: it takes nothing when a later one has come before it, and what it was
        given is given again when a later one comes behind it, so that nothing is missing between two batches.

        Raises what `check` raises.
        """
        self.check(client_id, session)
        subscriber = self._subscriber(client_id)
        subscriber.last_active = now
        if session is not None and _attempt(session)[1] < subscriber.attempt:
            raise StaleSessionError(f"client {client_id} has given this get up and sent another")
        if not subscriber.served():
            return None
        collected = subscriber.track.ring.collect(
            subscriber.get,
            stop=subscriber.end(),
            max_entries=max_entries,
            max_bytes=max_bytes,
            memory_limit=memory_limit,
            ddl_isolation=ddl_isolation,
            allowed=self._allowed(subscriber),
        )
        subscriber.get = collected.stop
        if not collected.entries:
            if not subscriber.marks:
                self._acked(subscriber, collected.stop, now)
            return None
        return self._mark(subscriber, collected)

    def ack(self, client_id: int, batch_id: int, *, now: float, session: str | None = None) -> None:
        """Confirm the oldest batch that is not confirmed.

        Raises:
            NotSubscribedError, StaleSessionError: as `check`.
            AckOutOfOrderError: an older batch is not confirmed yet; nothing changes.
            UnknownBatchError: no such batch is outstanding; nothing changes.
        """
        subscriber = self._subscriber(client_id, session)
        subscriber.last_active = now
        mark = self._oldest(subscriber, batch_id)
        del subscriber.marks[batch_id]
        ring = subscriber.track.ring
        subscriber.delivered = ring.after(mark.last) if mark.last >= ring.first else subscriber.delivered
        self._acked(subscriber, mark.stop, now)

    def ack_to(self, client_id: int, position: Position, *, now: float, session: str | None = None) -> None:
        """Confirm everything before a position, and with it all marks that end there or before. May be repeated.

        In a new life of the destination a subscriber may first confirm what it was given in an earlier one. What it
        does not want need not be given.

        Raises:
            NotSubscribedError, StaleSessionError, GoneError, SourceChangedError: as `check`.
            BadPositionError: the position lies beyond what the client was given.
        """
        self.check(client_id, session)
        subscriber = self._subscriber(client_id)
        subscriber.last_active = now
        track = subscriber.track
        sequence = None
        if subscriber.served():  # mostly it is where a mark ends: that is found without a search
            given = (mark.stop for mark in subscriber.marks.values() if mark.to == position)
            sequence = next((stop for stop in given if stop <= subscriber.get), None)
        if sequence is None:
            if subscriber.given and subscriber.served():
                self._pass_over(subscriber, position)
            got = track.position_before(subscriber.get if subscriber.given else track.ring.next)
            if got is None or position > got or not subscriber.served():
                raise BadPositionError(f"{position} lies beyond what client {client_id} was given: {got}")
            acked = track.position_before(subscriber.ack)
            if acked is not None and position <= acked:
                return
            sequence = track.sequence_of(position)
            if sequence is None or (sequence > subscriber.get and subscriber.given):
                sequence = subscriber.get
        for mark in list(subscriber.marks.values()):
            if mark.stop > sequence:
                break
            del subscriber.marks[mark.batch_id]
        last = track.ring.last_data(subscriber.ack, sequence)
        if last >= 0:
            subscriber.delivered = track.ring.after(last)
        self._acked(subscriber, sequence, now)

    def rollback(self, client_id: int, batch_id: int | None = None, *, now: float, session: str | None = None) -> None:
        """Go back to what is confirmed; without a batch id all marks are forgotten.

        With one, which has to be the oldest mark, only that mark is forgotten (Canal's rule): later ones stay to be
        confirmed or rolled back, although their entries are given again.

        Raises what `ack` raises.
        """
        subscriber = self._subscriber(client_id, session)
        subscriber.last_active = now
        subscriber.given = True
        if batch_id is None:
            subscriber.marks.clear()
        else:
            self._oldest(subscriber, batch_id)
            del subscriber.marks[batch_id]
        subscriber.get = subscriber.ack

    # --- ranges ------------------------------------------------------------------------------------------------------

    def mark_range(
        self,
        client_id: int,
        after: Position,
        limits: RangeLimits,
        *,
        now: float,
        final: bool = False,
        transactions: bool = True,
        session: str | None = None,
    ) -> Range | None:
        """Mark what follows a position, as far as the limits and what is stored allow; where it ends says `Ring.cut`.

        The same position and limits give the same range until it is confirmed. Other limits make the range anew, and
        every mark that ends behind the position is forgotten: who asks from there will process it from there. What is
        confirmed already is given without a mark.

        None when nothing wanted is there yet; with ``final`` an empty range over what was passed.

        Raises:
            NotSubscribedError, StaleSessionError: as `check`.
            GoneError: the position lies before what is stored, and more than unwanted entries lie between.
            SourceChangedError: it belongs to another source or history.
        """
        self.check(client_id, session)
        subscriber = self._subscriber(client_id)
        subscriber.last_active = now
        for mark in subscriber.marks.values():
            if mark.range is not None and mark.range.from_ == str(after) and mark.limits == limits:
                return mark.range
        start = self._locate(subscriber, after) if subscriber.served() else None
        if start is None:
            return Range(-1, str(after), str(after), 0, 0, 0, partial=False, reached=False) if final else None
        ring, allowed = subscriber.track.ring, self._allowed(subscriber)
        stop = None if limits.until is None else self._locate(subscriber, limits.until)
        inside = ring.waiting or stop is not None
        stop = max(start, subscriber.end() if stop is None else min(stop, subscriber.end()))
        if start < subscriber.ack < stop:
            stop, inside = subscriber.ack, True
        end, entries = ring.cut(
            start, stop, max_rows=limits.rows, max_bytes=limits.bytes, inside=inside, allowed=allowed
        )
        to = max(after, subscriber.track.position_before(end) or after)
        reached = limits.until is not None and to >= limits.until
        if not entries:
            if subscriber.ack == start < end and not subscriber.marks:
                self._acked(subscriber, end, now)
            if not (final or reached):
                return None
            return Range(-1, str(after), str(to), 0, 0, 0, partial=False, reached=reached)
        collected = ring.read(start, end, transactions=transactions, allowed=allowed)
        batch_id = -1
        if start >= subscriber.ack:
            batch_id = self._next_id
            self._next_id += 1
        found = Range(
            batch_id=batch_id,
            from_=str(after),
            to=str(to),
            entries=collected.entries,
            rows=collected.rows,
            bytes=collected.bytes,
            partial=not ring.slot(end - 1).flags & Flag.BOUNDARY,
            reached=reached,
        )
        if start >= subscriber.ack:
            subscriber.marks = {mark.batch_id: mark for mark in subscriber.marks.values() if mark.stop <= start}
            subscriber.marks[batch_id] = Mark(batch_id, start, end, collected.last, range=found, limits=limits)
            subscriber.get = end
            subscriber.given = True
        return found

    def read_range(self, client_id: int, from_: Position, to: Position, *, transactions: bool = True) -> Batch | None:
        """Read a range without a mark, for the subscriber's filter; None when the stream has not come to its end.

        Raises:
            NotSubscribedError: the client has not subscribed.
            BadPositionError: the range ends before it begins.
            GoneError: it begins before what is stored, and more than unwanted entries lie between.
            SourceChangedError: it belongs to another source or history.
        """
        subscriber = self._subscriber(client_id)
        span = self._span(subscriber, from_, to)
        if span is None:
            return None
        collected = subscriber.track.ring.read(*span, transactions=transactions, allowed=self._allowed(subscriber))
        return Batch(
            batch_id=UNMARKED if collected.entries else -1,
            slices=collected.slices,
            from_=str(from_),
            to=str(to),
            entries=collected.entries,
            rows=collected.rows,
            bytes=collected.bytes,
            timestamp=collected.execute_ms,
            positions=collected.positions,
        )

    def split_range(
        self, client_id: int, from_: Position, to: Position, parts: int, *, transactions: bool = True
    ) -> list[Part] | None:
        """Cut a range into at most so many parts of about equal bytes; else as `read_range`."""
        subscriber = self._subscriber(client_id)
        span = self._span(subscriber, from_, to)
        if span is None:
            return None
        found = []
        begin = str(from_)
        cuts = subscriber.track.ring.split(*span, parts, transactions=transactions, allowed=self._allowed(subscriber))
        for end, *sizes in cuts:
            until = str(to) if end == span[1] else str(subscriber.track.position_of(end))
            found.append(Part(begin, until, *sizes))
            begin = until
        return found

    # --- what is stored, and what is shown ---------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The epoch to store: that of the marks, or the next one in good time before it is reached."""
        return (self._next_id + IDS_PER_EPOCH // 2) // IDS_PER_EPOCH

    @property
    def changed(self) -> bool:
        """Whether `take_changes` would return anything."""
        return bool(self._changed)

    def take_changes(self) -> dict[int, StoredClient | None]:
        """Return the clients whose stored form has changed since the last call; None for one that is removed."""
        changed, self._changed = self._changed, set()
        return {client_id: self._stored(client_id) for client_id in sorted(changed)}

    def give_back(self, client_ids: set[int]) -> None:
        """Count clients as changed again, because they could not be stored."""
        self._changed |= client_ids

    def status(self, client_id: int) -> ClientStatus:
        """Return where a client stands; `NotSubscribedError` when it is none."""
        subscriber = self._subscriber(client_id)
        state = "attached"
        if subscriber.error:
            state = "gone"
        elif subscriber.behind or subscriber.track is not self.track:
            state = "catching-up"
        elif subscriber.resume:
            state = "ahead"
        stored = self._stored(client_id)
        cursor = stored.cursor if stored is not None else None
        served = subscriber.served()
        return ClientStatus(
            client_id=client_id,
            filter=subscriber.filter,
            state=state,
            error=str(subscriber.error or ""),
            problem=subscriber.error.type if subscriber.error is not None else "",
            position=str(cursor.position or f"{cursor.journal}:{cursor.offset}") if cursor is not None else "",
            acked=str(subscriber.track.position_before(subscriber.ack) or "") if served else "",
            got=str(subscriber.track.position_before(subscriber.get) or "") if served else "",
            marks=list(subscriber.marks),
            given=self._lag(subscriber, subscriber.ack, subscriber.get) if served else NO_LAG,
            waiting=self._lag(subscriber, subscriber.get, subscriber.end()) if served else NO_LAG,
            last_active=subscriber.last_active,
        )

    # --- inside ------------------------------------------------------------------------------------------------------

    def _subscriber(self, client_id: int, session: str | None = None) -> _Subscriber:
        subscriber = self._subscribers.get(client_id)
        if subscriber is None:
            raise NotSubscribedError(f"client {client_id} has not subscribed")
        if session is not None:
            token, attempt = _attempt(session)
            if token != subscriber.session:
                self._adopt(subscriber, token)
            if attempt > subscriber.attempt:  # what earlier attempts were given, nobody has received
                subscriber.attempt = attempt
                subscriber.marks.clear()
                subscriber.get = subscriber.ack
        return subscriber

    def _adopt(self, subscriber: _Subscriber, token: str) -> None:
        """Go on with a session that was opened in an earlier life: of those that come back, the newest."""
        if _order(token) <= _order(subscriber.session):
            raise StaleSessionError(f"another consumer has opened a newer session of client {subscriber.client_id}")
        if subscriber.session is not None:  # a late call of an older one came first: what that was given comes again
            subscriber.marks.clear()
            subscriber.get = subscriber.ack
        subscriber.session, subscriber.attempt = token, 0

    def _add(self, client_id: int, filter_text: str, now: float) -> _Subscriber:
        subscriber = _Subscriber(client_id, filter_text, self._compile(filter_text), now, self.track, moved=now)
        self._subscribers[client_id] = subscriber
        return subscriber

    def _compile(self, filter_text: str) -> TableFilter | None:
        return self._compile_filter(filter_text) if filter_text else None

    def _go_on(self, subscriber: _Subscriber) -> None:
        """Attach a stored subscriber where it left off, or as soon as the ring has come there."""
        if subscriber.cursor is None:
            self._attach(subscriber, self.ring.first)
        else:
            subscriber.resume = subscriber.cursor
            self._resolve(subscriber)

    def _start(self, start: str | int | Position, now: float) -> int | None:
        """Where a new client starts; None when the ring has not come so far."""
        if start == "earliest":
            return self.ring.first
        if start == "latest":
            return self.ring.next
        if isinstance(start, int):
            sequence = self.ring.at_time(start)
            if sequence == self.ring.first and self.ring.next > 0 and start < now * 1000:
                raise GoneError("changes of that time may be older than what is stored")
            return sequence
        try:
            return self.track.sequence_of(start if isinstance(start, Position) else Position.parse(start))
        except GoneError:
            if not self._catches_up:
                raise
            return None

    def _attach(self, subscriber: _Subscriber, sequence: int) -> None:
        subscriber.get = subscriber.ack = subscriber.durable = sequence
        subscriber.resume = None
        if subscriber.cursor is not None and subscriber.cursor.gtid:
            subscriber.gtids = parse_gtids(subscriber.cursor.gtid)
        elif self.gtids is not None and subscriber.track is self.track:
            subscriber.gtids = self.gtids.copy()
            _add_runs(self.ring, subscriber.gtids, self.ring.first, sequence)

    def _resolve(self, subscriber: _Subscriber) -> None:
        """Attach a subscriber as soon as the ring has come to its cursor."""
        if subscriber.resume is None or subscriber.error is not None or subscriber.behind:
            return
        if subscriber.track is not self.track:
            self._resolve_reader(subscriber, subscriber.resume)
            return
        cursor = subscriber.resume
        try:
            sequence = (
                self._sequence_of_event(cursor) if cursor.position is None else self.track.sequence_of(cursor.position)
            )
        except GoneError as error:
            if self._begun or self.ring.first > 0:
                if self._catches_up:
                    subscriber.behind = True
                else:
                    subscriber.error = error
                return
            sequence = 0  # the stream was begun for the earliest cursor, at a place that only its first slot has named
        except SourceChangedError as error:
            # The stream was carried over to another source: at the place where the same transactions were executed.
            if not cursor.gtid or self.gtids is None or parse_gtids(cursor.gtid) != self.gtids:
                subscriber.error = error
                return
            sequence = self.ring.first
        if sequence is not None:
            self._attach(subscriber, sequence)

    def _locate(self, subscriber: _Subscriber, position: Position) -> int | None:
        """Return the first slot at or after a position that a subscriber holds; None when the ring is not there yet.

        A position at or behind the last entry that it was given stays good though the ring, and the subscriber with it,
        has moved on over what it does not want.

        Raises what `Track.sequence_of` raises.
        """
        acked = subscriber.track.position_before(subscriber.ack) if subscriber.served() else None
        if acked is not None and position < acked:
            delivered = self._delivered(subscriber)
            if delivered is not None and delivered.same_history(position) and position >= delivered:
                return subscriber.ack
        return subscriber.track.sequence_of(position)

    def _span(self, subscriber: _Subscriber, from_: Position, to: Position) -> tuple[int, int] | None:
        if to < from_:
            raise BadPositionError(f"the range ends at {to}, before its begin {from_}")
        stop = self._locate(subscriber, to)
        if stop is None:
            return None
        start = self._locate(subscriber, from_)
        return None if start is None else (start, max(start, stop))

    def _delivered(self, subscriber: _Subscriber) -> Position | None:
        """Return the place after the last entry that a subscriber was given and has confirmed."""
        if subscriber.delivered is not None:
            return subscriber.track.position(subscriber.delivered)
        return subscriber.cursor.delivered if subscriber.cursor is not None else None

    def _resolve_reader(self, subscriber: _Subscriber, cursor: Cursor) -> None:
        """Attach a subscriber to its catch-up reader, which began at the cursor's transaction or event."""
        track = subscriber.track
        sequence = None
        if cursor.position is not None:
            sequence = track.sequence_of(cursor.position)
        elif track.ring.next > track.ring.first:
            sequence = track.ring.first
        if sequence is not None:
            self._attach(subscriber, sequence)
            track.ring.free_to(sequence)

    def _meet(self, subscriber: _Subscriber) -> None:
        """See whether a catch-up reader has come to what the ring holds; join the ring when all before is confirmed."""
        ring = subscriber.track.ring
        if subscriber.limit is None:
            limit = ring.last_boundary(subscriber.get, ring.next) + 1
            if not limit and subscriber.get == subscriber.durable:  # it has all, and stands between two transactions
                limit = subscriber.get
            end = subscriber.track.position_before(limit) if limit or subscriber.get == subscriber.durable else None
            try:
                meet = None if end is None else self.track.sequence_of(end)
            except (GoneError, SourceChangedError):
                return
            if meet is None:
                return
            subscriber.limit, subscriber.meet = limit, meet
        if subscriber.ack == subscriber.limit and not subscriber.marks:
            subscriber.cursor = self._cursor(subscriber)
            subscriber.boundary = subscriber.delivered = subscriber.limit = subscriber.mask = None
            subscriber.track = self.track
            subscriber.get = subscriber.ack = subscriber.durable = subscriber.meet

    def _sequence_of_event(self, cursor: Cursor) -> int | None:
        """Return the first slot at or after the event of a cursor that Canal wrote: that event is given again."""
        floor, end = self.track.floor, self.track.end
        if floor is None or end is None or cursor.order > (end.file_number, end.begin, end.n):
            return None
        if cursor.order < (floor.file_number, floor.begin, 0):
            raise GoneError(f"{cursor.journal}:{cursor.offset} is no longer stored; the oldest position is {floor}")
        for file in range(len(self.ring.files), 0, -1):
            if self.ring.files[file][0] == cursor.journal:
                return self.ring.at_event(file, cursor.offset)
        return None

    def _give_cursor(self, subscriber: _Subscriber) -> None:
        """Give a new subscriber a cursor as soon as its place has a name: after a restart it goes on from there."""
        if subscriber.cursor is None and subscriber.boundary is None and subscriber.served():
            place = subscriber.track.position_before(subscriber.durable)
            if place is not None:
                # It was given nothing, so that every place up to here is as good as this one.
                subscriber.cursor = Cursor(place.file, place.begin, 0, 0, str(subscriber.gtids or ""), place, place)
                self._changed.add(subscriber.client_id)

    def _allowed(self, subscriber: _Subscriber) -> bytearray | None:
        """Return the subscriber's filter by table number, brought up to date with the tables seen."""
        if subscriber.wanted is None:
            return None
        if subscriber.mask is None:
            subscriber.mask = TableMask(subscriber.track.ring, subscriber.wanted)
        return subscriber.mask.current()

    def _mark(self, subscriber: _Subscriber, collected: Collected) -> Batch:
        batch_id = self._next_id
        self._next_id += 1
        subscriber.given = True
        to = subscriber.track.position_before(collected.stop)
        subscriber.marks[batch_id] = Mark(batch_id, collected.start, collected.stop, collected.last, to)
        return Batch(
            batch_id=batch_id,
            slices=collected.slices,
            from_=str(subscriber.track.position_before(collected.start)),
            to=str(to),
            entries=collected.entries,
            rows=collected.rows,
            bytes=collected.bytes,
            timestamp=collected.execute_ms,
            positions=collected.positions,
        )

    def _oldest(self, subscriber: _Subscriber, batch_id: int) -> Mark:
        mark = subscriber.marks.get(batch_id)
        if mark is None:
            raise UnknownBatchError(
                f"client {subscriber.client_id} has no outstanding batch {batch_id}: "
                "it was acked, rolled back, or given by an earlier life of the destination"
            )
        oldest = next(iter(subscriber.marks))
        if oldest != batch_id:
            raise AckOutOfOrderError(f"batch {batch_id} comes after batch {oldest}, which is still outstanding")
        return mark

    def _acked(self, subscriber: _Subscriber, sequence: int, now: float) -> None:
        """Move ``ack`` forward, and the durable cursor to the last boundary before it."""
        if sequence <= subscriber.ack:
            return
        subscriber.ack = sequence
        subscriber.get = max(subscriber.get, sequence)
        subscriber.moved = now
        ring = subscriber.track.ring
        start = max(subscriber.durable, ring.first)
        boundary = ring.last_boundary(start, sequence)
        if boundary >= 0:
            if subscriber.gtids is not None:
                _add_runs(ring, subscriber.gtids, start, boundary + 1)
            subscriber.durable = boundary + 1
            subscriber.boundary = ring.slot(boundary)
            self._changed.add(subscriber.client_id)
        self._free()

    def _pass_over(self, subscriber: _Subscriber, position: Position) -> None:
        """Let what a subscriber was given reach to a position, if it wants nothing of what lies before that."""
        track = subscriber.track
        got = track.position_before(subscriber.get)
        if got is None or not got.same_history(position) or position <= got:
            return
        sequence = track.sequence_of(position)
        if sequence is None or sequence > subscriber.end():
            return
        _, entries = track.ring.cut(subscriber.get, sequence, inside=True, allowed=self._allowed(subscriber))
        if not entries:
            subscriber.get = sequence

    def _follow(self, subscriber: _Subscriber, now: float) -> None:
        """Let a subscriber that has confirmed everything pass over what it is not given."""
        stop = subscriber.end()
        if subscriber.ack < stop:
            collected = subscriber.track.ring.collect(
                subscriber.ack, stop=stop, max_entries=1, allowed=self._allowed(subscriber)
            )
            if not collected.entries:
                self._acked(subscriber, collected.stop, now)

    def _free(self) -> None:
        """Free what nobody needs; with no subscriber everything is kept for the first."""
        for subscriber in self._subscribers.values():
            self._resolve(subscriber)
        needs = [need for subscriber in self._subscribers.values() if (need := self._need(subscriber)) is not None]
        if needs and min(needs) > self.ring.first:
            if self.gtids is not None:
                _add_runs(self.ring, self.gtids, self.ring.first, min(needs))
            self.ring.free_to(min(needs))

    def _need(self, subscriber: _Subscriber) -> int | None:
        """Return the first slot of the ring that a subscriber needs; None when it holds nothing back."""
        if subscriber.error is not None or subscriber.behind:
            return None
        if subscriber.track is not self.track:
            if subscriber.resume is None and subscriber.ack > subscriber.track.ring.first:
                subscriber.track.ring.free_to(subscriber.ack)
            return None if subscriber.limit is None else subscriber.meet
        return self.ring.next if subscriber.resume is not None else subscriber.ack

    def _detach_slow(self, now: float) -> None:
        """Let go of a subscriber that holds a full ring back from the others for too long; its cursor stays."""
        needs = {
            client_id: need
            for client_id, subscriber in self._subscribers.items()
            if subscriber.served() and (need := self._need(subscriber)) is not None
        }
        if not (self._detach_after and self.ring.waiting and needs):
            return
        foremost = max(needs.values())
        for client_id, need in needs.items():
            subscriber = self._subscribers[client_id]
            if need == self.ring.first and need < foremost and now - subscriber.moved > self._detach_after:
                self._detach(subscriber, now)

    def _detach(self, subscriber: _Subscriber, now: float) -> None:
        subscriber.moved = now
        if subscriber.limit is not None:  # it goes on with its catch-up reader
            subscriber.limit = None
            return
        subscriber.marks.clear()
        if not self._catches_up:
            subscriber.error = GoneError(
                f"client {subscriber.client_id} held the others back for more than {self._detach_after:g} s "
                "and left the buffer; its cursor is kept"
            )
            return
        subscriber.cursor = subscriber.resume = self._cursor(subscriber)
        subscriber.boundary = subscriber.delivered = None
        subscriber.behind = True

    def _cursor(self, subscriber: _Subscriber) -> Cursor | None:
        """Return the durable cursor as it is now."""
        slot = subscriber.boundary
        if slot is None:
            return subscriber.cursor
        return Cursor(
            journal=subscriber.track.ring.files[slot.file][0],
            offset=slot.event_offset,
            timestamp=slot.execute_ms,
            server_id=slot.server_id,
            gtid=str(subscriber.gtids or ""),
            position=subscriber.track.position((slot.source, slot.next_file, slot.next_begin, slot.next_n)),
            delivered=self._delivered(subscriber),
        )

    def _stored(self, client_id: int) -> StoredClient | None:
        subscriber = self._subscribers.get(client_id)
        if subscriber is None:
            return None
        return StoredClient(client_id, subscriber.filter, self._cursor(subscriber))

    def _lag(self, subscriber: _Subscriber, start: int, stop: int) -> Lag:
        ring = subscriber.track.ring
        transactions, entries, rows, size = ring.measure(start, stop, self._allowed(subscriber))
        oldest = ring.slot(start).execute_ms if entries else 0
        return Lag(transactions, entries, rows, size, oldest)
