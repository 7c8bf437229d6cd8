"""How subscribers enter the ring of a destination, and how they leave it."""

from collections.abc import Mapping
from dataclasses import replace

from ..protocol.errors import GoneError, SluiceError, SourceChangedError
from ..protocol.gtid import GtidSet, parse_gtids
from ..protocol.position import Position
from .cursor import Cursor
from .patience import Pace
from .subscriber import Subscriber
from .track import Track


class Attachment:
    """What attaches subscribers to a ring, and detaches them.

    A subscriber is attached as soon as the ring reaches its cursor. If the ring has already freed that place, the
    subscriber is behind: the ring of a catch-up reader serves it, until that reader meets what this ring holds. A
    subscriber that does not keep the pace leaves the ring, and is behind as well.

    Args:
        track: the ring.
        detach_after: seconds for which one of several subscribers may hold a full ring back (`Pace`); 0 for ever.
        catches_up: a subscriber that is behind gets a reader of its own; else it is gone.
    """

    def __init__(self, track: Track, *, detach_after: float, catches_up: bool) -> None:
        self._track = track
        self._detach_after = detach_after
        self._pace = Pace(detach_after)
        self._catches_up = catches_up
        self._begun = False

    def begin(self, position: Position | None, gtids: GtidSet | None) -> None:
        """Say where the stream of an empty ring begins, and what was executed before; None for what is not known."""
        if self._track.ring.next > 0:
            return
        self._begun = position is not None
        if position is not None:
            self._track.begin(position)
        self._track.gtids = gtids.copy() if gtids is not None else None

    def state(self, subscriber: Subscriber) -> str:
        """Return the state of a subscriber, as in `ClientStatus.state`."""
        if subscriber.error:
            return "gone"
        if subscriber.behind or self.has_reader(subscriber):
            return "catching-up"
        return "ahead" if subscriber.resume else "attached"

    def has_reader(self, subscriber: Subscriber) -> bool:
        """Return whether a subscriber is served from a reader of its own."""
        return subscriber.track is not self._track

    def need(self, subscriber: Subscriber) -> int | None:
        """Return the first slot of the ring that a subscriber needs; None when its place is before the ring.

        It is the end of the ring for a subscriber that needs nothing of it and waits for what comes after. The ring of
        its reader, which no other subscriber reads, is freed up to what it has confirmed.
        """
        if subscriber.error is not None or subscriber.behind:
            return None
        if subscriber.track is self._track:
            return subscriber.ack if subscriber.resume is None else subscriber.track.ring.next
        if subscriber.resume is None and subscriber.ack > subscriber.track.ring.first:
            subscriber.track.free_to(subscriber.ack)
        if subscriber.limit is not None:
            return subscriber.meet
        return self._track.ring.next if self._is_past_end(subscriber) else None

    def _is_past_end(self, subscriber: Subscriber) -> bool:
        """Whether a subscriber has confirmed more from its reader than the ring holds: the ring did not go on."""
        end = self._track.end
        acked = subscriber.track.position_before(subscriber.ack) if subscriber.resume is None else None
        return acked is not None and end is not None and end.same_history(acked) and acked > end

    # --- entering the ring -------------------------------------------------------------------------------------------

    def start(self, start: str | int | Position, unix_time: float) -> int | None:
        """Return the slot at which a new subscriber starts (`Cursors.subscribe`); None while the ring lacks it.

        Raises what `Track.sequence_of` raises; for a place before the ring only if there are no catch-up readers.
        """
        ring = self._track.ring
        if start == "earliest":
            return ring.first
        if start == "latest":
            return ring.next
        if isinstance(start, int):
            sequence = ring.at_time(start)
            is_past = start < max(unix_time * 1000, ring.put_execute_ms)
            if sequence == ring.first and ring.next > 0 and is_past:
                raise GoneError("changes of that time may be older than what is stored")
            return sequence
        try:
            return self._track.sequence_of(start if isinstance(start, Position) else Position.parse(start))
        except GoneError:
            if not self._catches_up:
                raise
            return None

    def attach(self, subscriber: Subscriber, sequence: int) -> None:
        """Let a subscriber read from a slot of its ring on."""
        subscriber.get = subscriber.ack = subscriber.durable = subscriber.attached = sequence
        subscriber.resume = None
        if subscriber.cursor is not None and subscriber.cursor.gtid:
            subscriber.gtids = parse_gtids(subscriber.cursor.gtid)
        else:
            self.learn_gtids(subscriber)

    def learn_gtids(self, subscriber: Subscriber) -> None:
        """Learn what was executed at a durable cursor. Before the stream has begun it is unknown, and learnt later."""
        if subscriber.gtids is None:
            track = subscriber.track
            subscriber.gtids = track.executed(max(track.ring.first, subscriber.durable))

    def go_on(self, subscriber: Subscriber) -> None:
        """Attach a stored subscriber where it left off, or as soon as the ring gets there."""
        if subscriber.cursor is None:
            self.attach(subscriber, self._track.ring.first)
        else:
            subscriber.resume = subscriber.cursor
            self.resolve(subscriber)

    def resolve(self, subscriber: Subscriber) -> None:
        """Attach a subscriber as soon as the ring reaches its cursor."""
        cursor = subscriber.resume
        if cursor is None or subscriber.error is not None or subscriber.behind:
            return
        if self.has_reader(subscriber):
            self._resolve_reader(subscriber, cursor)
            return
        track = self._track
        try:
            sequence = (
                track.sequence_of_event(cursor) if cursor.position is None else track.sequence_of(cursor.position)
            )
        except GoneError as error:
            if self._begun or track.ring.first > 0 or not self._is_behind_start(cursor):
                self._leave(subscriber, error)
                return
            sequence = 0  # the stream begins by its GTIDs, at a place that only its first slot has named
        except SourceChangedError as error:
            # The stream goes on at another source, from the place where the same transactions were executed.
            if not cursor.gtid or _is_of(cursor, track):
                subscriber.error = error
                return
            if track.gtids is None or parse_gtids(cursor.gtid) != track.gtids:
                self._leave(subscriber, error)  # a reader may find the place of that set
                return
            sequence = track.ring.first
        if sequence is not None:
            self.attach(subscriber, sequence)

    def _leave(self, subscriber: Subscriber, error: SluiceError) -> None:
        """Make a subscriber whose place is not in the ring wait for a reader; without readers it is gone."""
        if self._catches_up:
            subscriber.behind = True
        else:
            subscriber.error = error

    def _is_behind_start(self, cursor: Cursor) -> bool:
        """Whether everything executed before the stream begins was executed at a cursor too: it misses nothing."""
        began = self._track.gtids
        executed = parse_gtids(cursor.gtid) if cursor.gtid else None
        return executed is not None and type(executed) is type(began) and executed.contains(began)  # type: ignore[arg-type]

    def pass_gap(self, subscriber: Subscriber) -> None:
        """Start a subscriber that waits for a place with the stream, which begins after a gap with that place."""
        if subscriber.resume is not None and subscriber.error is None:
            subscriber.track, subscriber.mask, subscriber.behind = self._track, None, False
            self.attach(subscriber, self._track.ring.first)
            subscriber.gtids = self._track.gtids.copy() if self._track.gtids is not None else None

    # --- catching up -------------------------------------------------------------------------------------------------

    def catch_up(self, subscriber: Subscriber, track: Track) -> None:
        """Serve a subscriber from the ring of a reader, which reads from the subscriber's cursor on."""
        subscriber.track, subscriber.mask, subscriber.behind, subscriber.paused = track, None, False, False

    def _resolve_reader(self, subscriber: Subscriber, cursor: Cursor) -> None:
        """Attach a subscriber to its catch-up reader, which began at the cursor's transaction, event or GTID set."""
        track = subscriber.track
        sequence = None
        if cursor.position is not None and _is_of(cursor, track):
            sequence = track.sequence_of(cursor.position)
            if sequence is None and track.ring.waiting:  # the place is deep inside a transaction
                track.free_to(track.ring.next)
        elif track.ring.next > track.ring.first:
            sequence = track.ring.first
        if sequence is not None:
            self.attach(subscriber, sequence)
            track.free_to(sequence)

    def meet(self, subscriber: Subscriber) -> None:
        """See if a catch-up reader has reached what the ring holds; join the ring when all before is confirmed."""
        ring = subscriber.track.ring
        if subscriber.limit is None:
            limit = ring.last_boundary(subscriber.get, ring.next) + 1
            if not limit and subscriber.get == subscriber.durable:  # it has everything, and is between two transactions
                limit = subscriber.get
            end = subscriber.track.position_before(limit) if limit or subscriber.get == subscriber.durable else None
            try:
                meet = None if end is None else self._track.sequence_of(end)
            except (GoneError, SourceChangedError):
                return
            if meet is None:
                return
            subscriber.limit, subscriber.meet = limit, meet
        if subscriber.ack == subscriber.limit and not subscriber.marks:
            subscriber.cursor = subscriber.current()
            subscriber.boundary = subscriber.delivered = subscriber.limit = subscriber.mask = None
            subscriber.track = self._track
            subscriber.get = subscriber.ack = subscriber.durable = subscriber.meet

    # --- leaving the ring --------------------------------------------------------------------------------------------

    def fall_out(self, subscriber: Subscriber, error: SluiceError) -> None:
        """Stop serving a subscriber, because its reader has failed; its cursor stays."""
        self._leave_ring(subscriber)
        subscriber.error = error

    def suspend(self, subscriber: Subscriber) -> None:
        """Take its reader from a subscriber. It waits for another one, unless the ring has or reaches its place."""
        self._leave_ring(subscriber)
        self.resolve(subscriber)

    def _leave_ring(self, subscriber: Subscriber) -> None:
        """Let go of the ring that a subscriber reads: it will go on after what it has confirmed.

        What it was given and has not confirmed is given again, unless it confirms that by position first.
        """
        cursor = subscriber.cursor = subscriber.current()
        if subscriber.resume is None and cursor is not None:
            acked = None if subscriber.track.ring.closed else subscriber.track.position_before(subscriber.ack)
            subscriber.resume = cursor if acked is None else replace(cursor, position=acked)
        subscriber.marks.clear()
        subscriber.boundary = subscriber.delivered = subscriber.limit = subscriber.mask = None
        subscriber.get = subscriber.ack = subscriber.durable = 0
        subscriber.track, subscriber.behind = self._track, False
        subscriber.given = subscriber.paused = False

    def detach_slow(self, subscribers: Mapping[int, Subscriber], now: float) -> None:
        """Detach the subscribers that do not keep the pace; their cursors stay."""
        ring = self._track.ring
        if not (ring.waiting or self._pace.running):
            return
        needs = {number: need for number, it in subscribers.items() if (need := self.need(it)) is not None}
        for number in self._pace.too_slow(needs, ring.next, now, full=ring.waiting):
            self._detach(subscribers[number])

    def _detach(self, subscriber: Subscriber) -> None:
        if subscriber.limit is not None:  # it goes on with its catch-up reader
            subscriber.limit = None
            return
        self._leave_ring(subscriber)
        if self._catches_up:
            subscriber.behind = True
        else:
            subscriber.error = GoneError(
                f"client {subscriber.client_id} held the others back for more than {self._detach_after:g} s "
                "and left the buffer; its cursor is kept"
            )


def _is_of(cursor: Cursor, track: Track) -> bool:
    """Whether a cursor belongs to the source of a stream."""
    floor = track.floor
    return cursor.position is None or floor is None or cursor.position.source == floor.source
