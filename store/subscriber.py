"""One subscriber: who it is, which session's calls count, and what it is doing."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from ..protocol.cut import Cut, parse_executed
from ..protocol.errors import (
    AckOutOfOrderError,
    BadPositionError,
    FilterError,
    OwnedError,
    SluiceError,
    StaleSessionError,
    UnknownBatchError,
)
from ..protocol.position import Position
from .allowance import Allowance
from .batch import LateRows
from .cursor import Cursor, StoredClient, place_of
from .reading import Mark, Reading, lag
from .snapshot import Snapshots
from .states import Ahead, Behind, CatchingUp, Gone, InRing, Meeting, Served, Starting, State, Waiting
from .status import NO_LAG, ClientStatus, Lag
from .stream import Stream
from .track import Track, Wanted, WantedSlots


class Subscriber:
    """A subscriber of a destination, in one of the states of `sluice.store.states`.

    Args:
        stored: its subscription, with its cursor as last stored, or as loaded.
        wanted: what it wants.
        now: when its last call came, on the clock of the calls.
        state: what it begins with.
        given: whether it is known what it was given. After a restart, or after it has left a ring, it is not, until it
            is given something again: it may confirm by position what it was given before.
    """

    def __init__(
        self,
        stored: StoredClient,
        wanted: Wanted,
        now: float,
        state: State,
        *,
        given: bool = True,
    ) -> None:
        self.client_id = stored.client_id
        self.filter = stored.filter
        self.where = stored.where
        self.wanted = wanted
        self.last_active = now
        self.loaded = None if given else now
        """When it was loaded, on the same clock; None for one that has subscribed since."""
        self.state = state
        self.expire_after = stored.expire_after
        self.given = given
        self.late = list(stored.late)
        self.memory = stored.memory
        self.moved = stored.moved
        self.snapshots = Snapshots(stored.snapshots)
        self.protected = stored.protected
        self.output = stored.output
        self.is_drained: Callable[[], bool] | None = None
        """Whether its output has applied all that it was due, and nothing more; None: it has not said so yet."""
        self.refused = stored.refused
        self.owner = stored.owner
        self.limits = stored.limits
        self.allowance = Allowance(stored.used)
        """Unlimited until `Cursors` has said what counts."""
        self.session: str | None = None
        self._elsewhere: set[int] = set()
        self._goes_back = False  # it needs the ring from its durable cursor on, as long as that has room
        self._slots: WantedSlots | None = None  # of the ring that it would read
        self._later: WantedSlots | None = None  # of the destination's ring, while it reads another one
        self._attempt = 0  # how many gets the session has given up
        self._cursor = stored.cursor  # as last stored, or when it came to the ring that it reads

    @property
    def called(self) -> bool:
        """Whether it has made a call; else ``last_active`` says when it was loaded."""
        return self.last_active != self.loaded

    # --- from state to state -----------------------------------------------------------------------------------------

    def become(self, state: State) -> None:
        """Go on in a state."""
        self.state, self._slots = state, None
        self._tell()

    def tell(self, elsewhere: set[int]) -> None:
        """Be in a set of clients, from here on, whenever it is not served from the ring of the destination."""
        self._elsewhere = elsewhere
        self._tell()

    def _tell(self) -> None:
        if isinstance(self.state, InRing):
            self._elsewhere.discard(self.client_id)
        else:
            self._elsewhere.add(self.client_id)

    def move(self, state: State, cursor: Cursor | None, moved: str) -> None:
        """Go on at another place, as one that has just subscribed there; what it was given is forgotten.

        ``moved`` says how it is moved by hand; empty if it is not.
        """
        self.become(state)
        self._cursor, self.moved, self.given = cursor, moved or self.moved, True

    def remember(self, memory: str) -> bool:
        """Keep a text with its cursor, which knows of all moves by hand; return whether that is another one."""
        if memory == self.memory and not self.moved:
            return False
        self.memory, self.moved = memory, ""
        return True

    def resolve(self, stream: Stream) -> None:
        """Be served as soon as the ring has its place."""
        if isinstance(self.state, Ahead | Starting):
            self.fill(self.state.track.moved)
            state = self.state.resolve(stream, self.wanted)
            if state is not self.state:
                self.become(state)

    def meet(self, stream: Stream) -> None:
        """Meet the destination's ring when its reader has reached what that holds, and join it when it can."""
        if self.served is None:
            return
        if isinstance(self.state, CatchingUp):
            state = self.state.meet(stream)
            if state is not self.state:
                self.become(state)
            elif self.state.lacks_members(stream):
                self.suspend(stream)  # the next reader begins where they began, too
        if isinstance(self.state, Meeting) and self.state.has_arrived:
            self._cursor = self.cursor
            self.become(self.state.join(stream, self.wanted))

    def start(self, track: Track) -> None:
        """Read from the ring of a reader, if it waits for one."""
        if isinstance(self.state, Behind):
            self.become(self.state.start(track))

    def fall_out(self, stream: Stream, error: SluiceError) -> None:
        """Be served no longer, because the source has lost its place; its cursor stays."""
        self.become(Gone(stream, error, self._let_go()))

    def suspend(self, stream: Stream) -> None:
        """Give its reader back. It waits for another one, unless the ring has or reaches its place."""
        resume = self._let_go()
        if resume is not None:
            self.become(Ahead.at(stream, resume))
            self.resolve(stream)

    def detach(self, stream: Stream, error: SluiceError) -> None:
        """Hold the ring back no longer: go on with a reader. Without readers it is gone; its cursor stays."""
        if isinstance(self.state, Meeting):
            self.become(self.state.part())
            return
        resume = self._let_go()
        if resume is not None and stream.catches_up:
            self.become(Behind.at(stream, resume))
        else:
            self.become(Gone(stream, error, resume))

    def go_back(self, stream: Stream) -> bool:
        """Forget all marks, and go on at the durable cursor, as after a restart: between two transactions.

        Return False if it is gone by that: the ring does not hold its cursor any more, and there are no readers.
        """
        self._goes_back = True
        cursor, state = self.cursor, self.state
        is_there = isinstance(state, Served) and (cursor is None or state.reading.acked() == cursor.position)
        if is_there or cursor is None or isinstance(state, Gone):
            self.roll_back()
            return True
        self._cursor = cursor
        self.become(Ahead.at(stream, cursor))
        self.resolve(stream)
        return not isinstance(self.state, Gone)

    def fill(self, fill: Callable[[Cursor], Cursor]) -> None:
        """Name the members in its place that have joined the stream."""
        if self._cursor is not None:
            self._cursor = fill(self._cursor)
        if not isinstance(self.state, Served) and self.state.resume is not None:
            self.state.resume = fill(self.state.resume)
            if isinstance(self.state, Waiting):
                self.state.gtids = parse_executed(self.state.resume.gtid)

    def need(self, stream: Stream) -> int | None:
        """Return the first slot of the destination's ring that it needs; None if its place is before the ring."""
        state = self.state
        if self._goes_back and isinstance(state, InRing) and not stream.ring.waiting:
            return max(state.reading.durable, stream.ring.first)
        return state.need(stream)

    def pass_gap(self, stream: Stream) -> Cursor | None:
        """If it waits for a place, start with the stream, which begins after a gap with that place; return the place.

        One whose place is in the log gets what that has first, and one whose place is later waits for it.
        """
        state = self.state
        if not isinstance(state, Ahead | Behind | Starting) or stream.is_logged(state.resume):
            return None
        place, floor = state.resume.position, stream.floor
        if isinstance(place, Cut) and isinstance(floor, Cut) and place.is_comparable(floor):
            if floor.precedes(place):
                return None
            onward = place.join(floor)  # what it has of other members stays
            sequence = stream.from_place(onward)
            self.become(InRing(Reading(stream, self.wanted, sequence, floor=stream.floor_at(onward, sequence))))
            return state.resume
        if place is not None and floor is not None and place.is_comparable(floor) and not place.precedes(floor):
            return None
        self.become(InRing(Reading(stream, self.wanted, stream.ring.first)))
        return state.resume

    def _let_go(self) -> Cursor | None:
        """Leave what it reads; return where it goes on: after what it has confirmed.

        What it was given and has not confirmed is given again, unless it confirms that by position first.
        """
        cursor, state = self.cursor, self.state
        self._cursor, self.given = cursor, False
        return state.reading.resume(cursor) if isinstance(state, Served) else state.resume

    # --- what it may read --------------------------------------------------------------------------------------------

    @property
    def served(self) -> Served | None:
        """Its state when a ring holds what it gets next; a closed one holds nothing."""
        state = self.state
        return state if isinstance(state, Served) and not state.track.ring.closed else None

    @property
    def has_moved(self) -> bool:
        """Whether the ring that it reads has given it something, or passed over what it does not want."""
        served = self.served
        return served is not None and served.reading.has_moved

    def select(self, filter_text: str, where: str, wanted: Wanted) -> None:
        """Read with another filter and condition from here on."""
        self.filter, self.where, self.wanted, self._slots, self._later = filter_text, where, wanted, None, None
        if isinstance(self.state, Served):
            self.state.reading.select(wanted)

    @property
    def slots(self) -> WantedSlots:
        """What it wants of the ring that it reads, or would read."""
        if isinstance(self.state, Served):
            return self.state.reading.slots
        if self._slots is None:
            self._slots = WantedSlots(self.state.track.ring, self.wanted)
        return self._slots

    def lag_to(self, state: State) -> Lag | None:
        """Return what it would be given between its place and a later one; None unless one ring has both."""
        if not (isinstance(self.state, Served) and isinstance(state, Served)):
            return None
        mine, other = self.state.reading, state.reading
        if other.floor is not None:  # the ring need not have what is between in each member
            return None
        if mine.track is not other.track or mine.ack > other.get:
            return None
        # The begin and end of a transaction without a row for it are no reason to give anything.
        return mine.lag(mine.ack, other.get) if mine.first_wanted(mine.ack, other.get).entries else NO_LAG

    def locate(self, position: Position, *, ends: bool = False) -> int | None:
        """Return the slot of `Reading.locate`; of one that is not served, of `Track.sequence_of` or `Track.stop_of`."""
        served = self.served
        if served is not None:
            return served.reading.locate(position, self._cursor, ends=ends)
        track = self.state.track
        return track.stop_of(position) if ends else track.sequence_of(position)

    def spans(self, from_: Position, to: Position) -> list[tuple[int, int]] | None:
        """Return the slots between two positions, as `Track.spans`; None when the ring is not there yet.

        Raises `BadPositionError` when the range ends before it begins, `FilterError` when its condition cannot be
        judged in it, and what `locate` raises.
        """
        if (refusal := self.refusal) is not None:
            raise refusal
        if not from_.precedes(to):
            raise BadPositionError(f"the range ends at {to}, before its beginning {from_}")
        stop = self.locate(to, ends=True)
        if stop is None:
            return None
        start = self.locate(from_)
        if start is None:
            return None
        slots, stop = self.slots, max(start, stop)
        reached = slots.reach(start, stop)
        if reached < stop and (refusal := slots.refusal(reached)) is not None:
            raise refusal
        return None if reached < stop else list(self.state.track.spans(start, stop, from_, to))

    @property
    def refusal(self) -> FilterError | None:
        """Why it is not served, if that is because of its filter or condition."""
        error = self.state.error if isinstance(self.state, Gone) else None
        return error if isinstance(error, FilterError) else None

    def waits_at(self, shown: int) -> int | None:
        """Return what `Reading.waits_at` does, when it is given only what the destination's ring will hold."""
        state = self.state
        if not isinstance(state, InRing) or self.late or self.snapshots.is_active or state.reading.windows:
            return None
        return state.reading.waits_at(shown)

    # --- what it was given -------------------------------------------------------------------------------------------

    @property
    def marks(self) -> dict[int, Mark]:
        """The batches that it was given and has not confirmed."""
        return self.state.reading.marks if isinstance(self.state, Served) else {}

    def oldest(self, batch_id: int) -> tuple[Reading, Mark]:
        """Return the mark to be confirmed next, which has to be that of a batch, and where it was given.

        Raises:
            AckOutOfOrderError: an older batch is not confirmed yet.
            UnknownBatchError: no such batch is outstanding.
        """
        state = self.state
        mark = state.reading.marks.get(batch_id) if isinstance(state, Served) else None
        if mark is None or not isinstance(state, Served):
            raise UnknownBatchError(
                f"client {self.client_id} has no outstanding batch {batch_id}: "
                "it was acked, rolled back, or given by an earlier life of the destination"
            )
        oldest = next(iter(state.reading.marks))
        if oldest != batch_id:
            raise AckOutOfOrderError(f"batch {batch_id} comes after batch {oldest}, which is still outstanding")
        return state.reading, mark

    def next_late(self, reading: Reading, known: Mapping[str, LateRows]) -> LateRows | None:
        """Return the late rows that it is to be given now: between two transactions, and none that a mark holds."""
        if not self.late or not reading.is_between:
            return None
        held = {mark.late for mark in reading.marks.values()}
        found = (known[it] for it in self.late if it in known and it not in held)
        return next((it for it in found if self.wanted.has(it.schema, it.table)), None)

    def roll_back(self) -> None:
        """Forget all marks: what is not confirmed is given again."""
        if isinstance(self.state, Served):
            self.state.reading.roll_back()

    def has_confirmed(self, position: Position) -> bool:
        """Return whether one that is not served has confirmed a position; False while it may still do so.

        Its cursor may be of a former source, and the position of the present one. Raises BadPositionError, or
        SourceChangedError, if it was not given.
        """
        resume = None if isinstance(self.state, Served) else self.state.resume
        confirmed = resume.position if resume is not None else None
        is_ordered = confirmed is not None and position.same_history(confirmed)
        if confirmed is not None and (is_ordered or self.given) and position.precedes(confirmed):
            return True
        if self.given:
            raise BadPositionError(f"{position} is beyond what client {self.client_id} was given: {confirmed}")
        return False

    @property
    def reached(self) -> Position | None:
        """The place up to which it was given something, or goes on; None before that has a name."""
        if isinstance(self.state, Served):
            return self.state.reading.got()
        return None if self.state.resume is None else self.state.resume.position

    # --- which calls count -------------------------------------------------------------------------------------------

    def require_free(self) -> None:
        """Raise OwnedError if an output owns it."""
        if self.output:
            raise OwnedError(
                f"client {self.client_id} is that of the output {self.output}, which alone takes its changes"
            )

    def own(self, output: str) -> None:
        """Be that of an output from here on; of none if the name is empty. What was refused to others is forgotten.

        It is no token's any more.
        """
        if output != self.output:
            self.output, self.refused, self.owner, self.is_drained = output, "", "", None

    def open_session(self, token: str) -> None:
        """Admit calls of this session only."""
        self.session, self._attempt = token, 0

    def enter(self, session: str) -> bool:
        """Admit a call of the open session, or of a newer one that an earlier life has opened.

        Return whether earlier calls count no more. Raises `StaleSessionError` when a newer session took over,
        `OwnedError` when that is not the owner's.
        """
        token, attempt = _attempt(session)
        is_newer = token != self.session
        if is_newer:
            self.require_free()
            self._adopt(token)
        if attempt > self._attempt:  # what earlier attempts were given was not received
            self._attempt, is_newer = attempt, True
            self.roll_back()
        return is_newer

    def has_given_up(self, session: str) -> bool:
        """Return whether a later get of the session has come before this one."""
        return _attempt(session)[1] < self._attempt

    def _adopt(self, token: str) -> None:
        """Go on with a session that was opened in an earlier life: the newest of those that come back."""
        if _order(token) <= _order(self.session):
            raise StaleSessionError(f"another consumer has opened a newer session of client {self.client_id}")
        if self.session is not None:  # a late call of an older one came first: what it was given comes again
            self.roll_back()
        self.open_session(token)

    # --- what is stored, and what is shown ---------------------------------------------------------------------------

    @property
    def cursor(self) -> Cursor | None:
        """Its durable cursor as it is now; None while its place has no name."""
        return self.state.reading.cursor(self._cursor) if isinstance(self.state, Served) else self._cursor

    def name_place(self) -> bool:
        """Give a new subscriber a cursor as soon as its place has a name. Return whether it has one from now on."""
        served = self.served
        if self._cursor is not None or served is None or served.reading.boundary is not None:
            return False
        place = served.track.ring.after(served.reading.durable - 1)
        if place is None:
            return False
        served.reading.learn_gtids()
        # It was given nothing, so every place up to here is as good as this one.
        position = served.reading.place(served.reading.durable)
        assert position is not None  # it has a name
        self._cursor = Cursor.at(position, served.reading.executed_at(place), position)
        return True

    def stored(self) -> StoredClient:
        """Return the subscription as it is to be stored."""
        more = self.expire_after, tuple(self.late), self.memory, self.snapshots.stored(), self.protected
        owners = self.output, self.refused, self.owner
        used = self.allowance.stored()
        return StoredClient(
            self.client_id, self.filter, self.cursor, *more, self.where, *owners, self.moved, self.limits, used
        )

    @property
    def unread(self) -> Position | None:
        """From where on what comes is to be read for it, up to the destination's ring; None if that holds all."""
        if isinstance(self.state, CatchingUp):
            return self.state.track.end
        return self.state.resume.position if isinstance(self.state, Behind | Starting) else None

    def _after_readers(self, stream: Stream) -> Lag:
        """Return how much the destination's ring holds of what comes after what its reader has read so far.

        It may be less: there a condition on rows is not judged for it.
        """
        state = self.state
        if isinstance(state, Meeting):
            start = state.meet
        elif isinstance(state, CatchingUp):
            start = stream.from_place(state.track.end)
        elif isinstance(state, Behind | Starting):
            start = stream.from_place(state.resume.position)
        else:
            return NO_LAG
        if self._later is None:
            self._later = WantedSlots(stream.ring, replace(self.wanted, rows=None))
        return lag(stream.ring, start, max(start, stream.shown), self._later.chosen())

    def status(self, stream: Stream) -> ClientStatus:
        """Return its place and its state."""
        cursor, state, served = self.cursor, self.state, self.served
        error = state.error if isinstance(state, Gone) else None
        acked, got, given, waiting = "", "", NO_LAG, NO_LAG
        if served is not None:
            reading = served.reading
            acked, got = str(reading.acked() or ""), str(reading.got() or "")
            given, waiting = reading.lag(reading.ack, reading.get), reading.lag(reading.get, served.end)
        return ClientStatus(
            client_id=self.client_id,
            filter=self.filter,
            where=self.where,
            state=state.shown,
            error=str(error or state.track.trouble),
            problem=error.type if error is not None else "",
            position=place_of(cursor),
            acked=acked,
            got=got,
            marks=list(self.marks),
            given=given,
            waiting=waiting + self._after_readers(stream),
            last_active=self.last_active,
            called=self.called,
            protected=self.protected,
            late=len(self.late),
            snapshots=[it.snapshot_id for it in self.snapshots.all],
            owner=self.owner,
            allowance=self.allowance.status(),
        )


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
