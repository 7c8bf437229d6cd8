"""One subscriber: what it reads, how far it is, which batches it was given, and which session's calls count."""

from dataclasses import dataclass, field

from ..protocol.errors import (
    AckOutOfOrderError,
    BadPositionError,
    SluiceError,
    StaleSessionError,
    UnknownBatchError,
)
from ..protocol.gtid import GtidSet
from ..protocol.position import Position
from .batch import Range, RangeLimits
from .cursor import Cursor, StoredClient
from .ring import Place, SlotView
from .status import NO_LAG, ClientStatus, Lag
from .track import TableFilter, TableMask, Track


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
    """What `Cursors.mark_range` returned."""
    limits: RangeLimits | None = None


@dataclass(slots=True)
class Subscriber:
    """The place of one subscriber in the ring that it reads.

    It answers what concerns it alone. `Cursors` moves it on, and `Attachment` moves it from one ring to another.
    """

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
    """Where it will attach, while the ring has not reached that place."""
    expire_after: int | None = None
    """As in `StoredClient`."""
    error: SluiceError | None = None
    """Why it cannot be served from the ring; it holds nothing back."""
    gtids: GtidSet | None = None
    """Executed at ``durable``."""
    attached: int = 0
    """The slot from which on it reads its ring."""
    durable: int = 0
    """The sequence of the durable cursor."""
    boundary: SlotView | None = None
    """The slot before ``durable``, when the cursor has moved since it was stored."""
    delivered: Place | None = None
    given: bool = True
    """Whether it is known what it was given. After a restart, or after it has left a ring, it is not, until it is given
    something again: it may confirm by position what it was given before."""

    behind: bool = False
    """Its cursor is before the ring: it waits for a catch-up reader."""
    limit: int | None = None
    """Where the catch-up reader has met the ring: the slot after, in the reader's ring ..."""
    meet: int = 0
    """... and in the ring, which holds that slot for it."""
    paused: bool = False
    """Others wait for its catch-up reader, so it is given nothing more."""

    # --- what it may read --------------------------------------------------------------------------------------------

    def end(self) -> int:
        """Return the slot after the last one that it may read so far."""
        if self.paused:
            return self.get
        return self.track.ring.next if self.limit is None else self.limit

    def served(self) -> bool:
        """Return whether the ring holds what it gets next; a closed one holds nothing."""
        return self.error is None and self.resume is None and not self.track.ring.closed

    def has_moved(self) -> bool:
        """Return whether its ring has given it something, or passed over what it does not want."""
        return self.served() and self.get > self.attached

    def allowed(self) -> bytearray | None:
        """Return its filter by table number, updated with the tables seen since; None when it wants all."""
        if self.wanted is None:
            return None
        if self.mask is None:
            self.mask = TableMask(self.track.ring, self.wanted)
        return self.mask.current()

    def locate(self, position: Position) -> int | None:
        """Return the first slot at or after a position that it holds; None when the ring is not there yet.

        A position at or after the last entry that it was given stays valid, although the ring, and the subscriber with
        it, has moved on over what it does not want.

        Raises what `Track.sequence_of` raises.
        """
        acked = self.track.position_before(self.ack) if self.served() else None
        if acked is not None and position < acked:
            delivered = self._delivered_to()
            if delivered is not None and delivered.same_history(position) and position >= delivered:
                return self.ack
        return self.track.sequence_of(position)

    def span(self, from_: Position, to: Position) -> tuple[int, int] | None:
        """Return the slots between two positions; None when the ring is not there yet.

        Raises `BadPositionError` when the range ends before it begins, and what `locate` raises.
        """
        if to < from_:
            raise BadPositionError(f"the range ends at {to}, before its beginning {from_}")
        stop = self.locate(to)
        if stop is None:
            return None
        start = self.locate(from_)
        return None if start is None else (start, max(start, stop))

    # --- what it was given -------------------------------------------------------------------------------------------

    def oldest(self, batch_id: int) -> Mark:
        """Return the mark to be confirmed next, which has to be that of a batch.

        Raises:
            AckOutOfOrderError: an older batch is not confirmed yet.
            UnknownBatchError: no such batch is outstanding.
        """
        mark = self.marks.get(batch_id)
        if mark is None:
            raise UnknownBatchError(
                f"client {self.client_id} has no outstanding batch {batch_id}: "
                "it was acked, rolled back, or given by an earlier life of the destination"
            )
        oldest = next(iter(self.marks))
        if oldest != batch_id:
            raise AckOutOfOrderError(f"batch {batch_id} comes after batch {oldest}, which is still outstanding")
        return mark

    def roll_back(self) -> None:
        """Forget all marks: what is not confirmed is given again."""
        self.marks.clear()
        self.get = self.ack

    # --- which calls count -------------------------------------------------------------------------------------------

    def enter(self, session: str) -> None:
        """Admit a call of the open session, or of a newer one that an earlier life has opened.

        Raises `StaleSessionError` when a newer session took over.
        """
        token, attempt = _attempt(session)
        if token != self.session:
            self._adopt(token)
        if attempt > self.attempt:  # what earlier attempts were given was not received
            self.attempt = attempt
            self.roll_back()

    def has_given_up(self, session: str) -> bool:
        """Return whether a later get of the session has come before this one."""
        return _attempt(session)[1] < self.attempt

    def _adopt(self, token: str) -> None:
        """Go on with a session that was opened in an earlier life: the newest of those that come back."""
        if _order(token) <= _order(self.session):
            raise StaleSessionError(f"another consumer has opened a newer session of client {self.client_id}")
        if self.session is not None:  # a late call of an older one came first: what it was given comes again
            self.roll_back()
        self.session, self.attempt = token, 0

    # --- what is stored, and what is shown ---------------------------------------------------------------------------

    def current(self) -> Cursor | None:
        """Return the durable cursor as it is now."""
        slot = self.boundary
        if slot is None:
            return self.cursor
        return Cursor(
            journal=self.track.ring.files[slot.file][0],
            offset=slot.event_offset,
            timestamp=slot.execute_ms,
            server_id=slot.server_id,
            gtid=str(self.gtids or ""),
            position=self.track.position((slot.source, slot.next_file, slot.next_begin, slot.next_n)),
            delivered=self._delivered_to(),
        )

    def stored(self) -> StoredClient:
        """Return the subscription as it is to be stored."""
        return StoredClient(self.client_id, self.filter, self.current(), self.expire_after)

    def status(self, state: str) -> ClientStatus:
        """Return its place, and its state as in `ClientStatus.state`."""
        cursor = self.current()
        served = self.served()
        return ClientStatus(
            client_id=self.client_id,
            filter=self.filter,
            state=state,
            error=str(self.error or ""),
            problem=self.error.type if self.error is not None else "",
            position=str(cursor.position or f"{cursor.journal}:{cursor.offset}") if cursor is not None else "",
            acked=str(self.track.position_before(self.ack) or "") if served else "",
            got=str(self.track.position_before(self.get) or "") if served else "",
            marks=list(self.marks),
            given=self._lag(self.ack, self.get) if served else NO_LAG,
            waiting=self._lag(self.get, self.end()) if served else NO_LAG,
            last_active=self.last_active,
        )

    def _delivered_to(self) -> Position | None:
        """Return the place after the last entry that it was given and has confirmed."""
        if self.delivered is not None:
            return self.track.position(self.delivered)
        return self.cursor.delivered if self.cursor is not None else None

    def _lag(self, start: int, stop: int) -> Lag:
        ring = self.track.ring
        transactions, entries, rows, size = ring.measure(start, stop, self.allowed())
        oldest = ring.slot(start).execute_ms if entries else 0
        return Lag(transactions, entries, rows, size, oldest)


def _attempt(session: str) -> tuple[str, int]:
    """Return the token of a session, and how many gets it has given up."""
    token, _, attempt = session.partition(".")
    return token, int(attempt) if attempt.isdecimal() else 0


def _order(token: str | None) -> int:
    """Return a number that is greater for a session that was opened later, in any life; -1 for none."""
    if token is None:
        return -1
    number = token.partition("-")[0]
    return int(number) if number.isdecimal() and len(number) < 20 else 0
