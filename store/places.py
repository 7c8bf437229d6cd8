"""Where clients begin and go on, and the jumps of their places: by hand, or over what the source has lost."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial

from ..protocol.cut import Cut, is_cut, parse_place, places_in
from ..protocol.errors import BadPositionError, GoneError, PurgedError, UnknownBatchError
from ..protocol.position import Position
from .admission import Admission
from .batch import Batch
from .clients import Clients
from .cursor import Cursor, place_of
from .moves import By, Move, MoveState, Reason
from .progress import Progress
from .reading import Mark, Reading
from .retention import Retention
from .side import gaps_batch
from .states import Ahead, Behind, Gone, InRing, Served, State, Waiting
from .status import ClientStatus
from .subscriber import Subscriber
from .track import Wanted, unknown_start

NOBODY = By()
"""Moves of places that nobody asked for are made by the server itself."""


class Places:
    """The places of the clients of a destination, or of a view, as far as acks do not move them.

    What passes over changes is written down in `sluice.store.moves.Gate`.
    """

    def __init__(self, clients: Clients, retention: Retention, admission: Admission, progress: Progress) -> None:
        """Those of these clients."""
        self._clients = clients
        self._retention = retention
        self._admission = admission
        self._progress = progress

    # --- where it is -------------------------------------------------------------------------------------------------

    def has_lost_place(self, client_id: int) -> bool:
        """Whether the source no longer has what a client gets next. Raises NotSubscribedError."""
        state = self._clients.find(client_id).state
        return isinstance(state, Gone) and isinstance(state.error, PurgedError)

    def awaited(self, client_id: int) -> Cursor | None:
        """Return the cursor of a client that the stream has not reached; None if the client is served."""
        state = self._clients.find(client_id).state
        return None if isinstance(state, Served) else state.resume

    def ahead(self) -> dict[int, Cursor]:
        """Return where the clients go on whose places the stream has not reached yet."""
        states = {client_id: self._clients.subscribers[client_id].state for client_id in self._clients.elsewhere}
        return {client_id: state.resume for client_id, state in states.items() if isinstance(state, Ahead)}

    def bound(self) -> dict[int, Cursor]:
        """Return where the clients go on that could not go on there at another source.

        Neither ring nor log has their places, and those are not portable. Readers are given back: who
        has come to a place that the ring has goes on with that.
        """
        track, found = self._clients.track, dict[int, Cursor]()
        for client_id in tuple(self._clients.elsewhere):
            subscriber = self._clients.subscribers[client_id]
            if not isinstance(subscriber.state, Gone):
                subscriber.suspend(track)
            state = subscriber.state
            if isinstance(state, Waiting) and not (state.resume.is_portable or track.is_logged(state.resume)):
                found[client_id] = state.resume
        return found

    def undrained(self) -> dict[int, Cursor | None]:
        """Return where the clients of outputs go on that may have applied what comes after that, or are applying it.

        Without GTIDs they would not know it again at another source.
        """
        outputs = {client_id: it for client_id, it in self._clients.subscribers.items() if it.output}
        return {
            client_id: it.cursor
            for client_id, it in outputs.items()
            if not (it.cursor is not None and it.cursor.is_portable) and (it.is_drained is None or not it.is_drained())
        }

    def place_after(self, client_id: int, batch_id: int) -> Cursor | None:
        """Return the place after a batch that was given and is not confirmed; None before it has a name.

        Raises NotSubscribedError, and UnknownBatchError when no such batch is outstanding.
        """
        subscriber = self._clients.find(client_id)
        served = subscriber.served
        mark = subscriber.marks.get(batch_id)
        if served is None or mark is None:
            raise UnknownBatchError(f"batch {batch_id} is not outstanding")
        return served.reading.place_before(mark.stop)

    def gtids_in(self, client_id: int, batch_id: int) -> Mapping[str, str]:
        """Return the GTIDs of the transactions that begin in a batch that was given, see `Reading.named`.

        Empty when it is not outstanding, and of one without slots. Raises NotSubscribedError.
        """
        subscriber = self._clients.find(client_id)
        served, mark = subscriber.served, subscriber.marks.get(batch_id)
        return {} if served is None or mark is None or mark.is_side else served.reading.named(mark.start, mark.stop)

    # --- where it begins ---------------------------------------------------------------------------------------------

    def begin_at(
        self, start: str | int | Position | Cursor, wanted: Wanted, unix_time: float
    ) -> tuple[State, Cursor | None]:
        """Return the state of a subscriber that begins at a place, and its cursor if that is known already."""
        track = self._clients.track
        if start == "earliest" and track.catches_up:
            start = track.oldest_logged() or start
        if isinstance(start, str) and is_cut(start):
            start = parse_place(start)
        if isinstance(start, Cut):  # the ring need not come by: the client has a floor
            start = Cursor.at(start)
        if isinstance(start, Cursor):
            state = Ahead.at(track, start).resolve(track, wanted)
            if isinstance(state, Gone):
                raise state.error
            if isinstance(state, Behind) and not track.is_logged(start):
                assert start.position is not None
                for name in sorted(track.unknown_in(start.position)):
                    raise GoneError(unknown_start(start.position, name))
            return state, replace(start, delivered=start.delivered or start.position)
        if isinstance(start, str) and "/" in start:
            start = parse_place(start)
        sequence = track.start(start, unix_time)
        if sequence is not None:
            return InRing(Reading(track, wanted, sequence)), None
        assert isinstance(start, Position)  # of anything else the slot is known
        cursor = Cursor.at(start, delivered=start)
        return Ahead.at(track, cursor), cursor

    def go_on(self, cursor: Cursor | None, wanted: Wanted) -> InRing | Ahead:
        """Return the state of a stored subscriber: it goes on where it left off; without a cursor with the stream."""
        if cursor is None:
            return InRing(Reading(self._clients.track, wanted, self._clients.track.ring.first))
        return Ahead.at(self._clients.track, cursor)

    def name_place(self, subscriber: Subscriber) -> None:
        """Give a new subscriber a cursor as soon as its place has a name: after a restart it goes on from there."""
        if subscriber.name_place():
            self._clients.unstored.add(subscriber.client_id)
            self.arrive(subscriber)

    def arrive(self, subscriber: Subscriber) -> None:
        """Say where a client goes on whose last jump does not say that yet."""
        self._clients.gate.arrive(subscriber.client_id, place_of(subscriber.cursor))

    # --- moves by hand -----------------------------------------------------------------------------------------------

    def seek(
        self,
        client_id: int,
        start: str | int | Position | Cursor,
        *,
        now: float,
        moved: str = "",
        by: By = NOBODY,
        held: bool = False,
        is_confirmed: bool = False,
    ) -> ClientStatus:
        """Move the cursor of a client to a place, forward or back, and forget its marks.

        ``start`` is as for `Cursors.subscribe`; ``moved`` says how it is moved by hand (`StoredClient.moved`), empty if
        it is not. ``held``: whether source or log still have what is at its cursor; ``is_confirmed``: whether the other
        side has all that lies between. Raises NotSubscribedError, and what `Cursors.subscribe` raises, FilterError also
        for what it has subscribed with; then nothing changes.
        """
        subscriber = self._clients.find(client_id)
        if subscriber.refusal is not None:
            wanted = self._admission.compile(subscriber.filter, subscriber.where)
            subscriber.select(subscriber.filter, subscriber.where, wanted)
        known = subscriber.cursor
        if known is not None and known.position is not None and start in (known.position, str(known.position)):
            start = known  # its GTIDs say where that is at another source
        state, cursor = self.begin_at(start, subscriber.wanted, by.time)
        passed = subscriber.lag_to(state)
        subscriber.move(state, cursor, moved)
        self._clients.resting.rouse(client_id)
        subscriber.last_active = now
        self.name_place(subscriber)
        before, after = None if known is None else known.position, subscriber.reached
        is_back = before is not None and after is not None and after.is_comparable(before)
        is_back = is_back and after is not None and before is not None and after.precedes(before)
        if not (is_confirmed or is_back or (passed is not None and not passed.entries)):
            rows, to = None if passed is None else passed.rows, str(after or "")
            move = Move(Reason.SEEK, place_of(known), to, by.who, by.ms, held=held, rows=rows)
            self._clients.gate.jump(client_id, move)
        self._clients.unstored.add(client_id)
        self._retention.hold()
        self._retention.free()
        return self._progress.moved_on(client_id).status(self._clients.track)

    def skip(self, client_id: int, position: Position, *, now: float, by: By = NOBODY) -> Position:
        """Move the cursor of a client over the one transaction that it gets next, and forget its marks.

        ``position`` has to lie in that transaction. At the place of a marker of a gap, which comes before it, that is
        settled alone. Returns the place after what was skipped.

        Raises:
            NotSubscribedError, GoneError, SourceChangedError: as `Clients.check`.
            BadPositionError: the client does not get a change of this place next, or the end of the transaction is not
                stored yet.
        """
        subscriber = self._clients.check(client_id, None, by_hand=True)
        subscriber.last_active = now
        served = subscriber.served
        reading = served.reading if served is not None else None
        here = reading.acked() if reading is not None else None
        if reading is None or here is None:
            raise BadPositionError(f"client {client_id} is not served yet: it skips nothing")
        if position == here and (untold := self._clients.gate.untold(client_id)):
            self._clients.gate.tell(client_id, untold)
            subscriber.roll_back()
            return here
        found = reading.end_of_transaction(reading.ack)
        if found is None:
            raise BadPositionError(f"the end of the transaction at {here} is not stored yet")
        sequence, end = found
        if isinstance(position, Cut) and isinstance(here, Cut):  # the place of an entry is that of its member
            position = Cut({**here.transaction.places, **position.places})
        if not (here.same_history(position) and here.transaction.precedes(position) and not end.precedes(position)):
            raise BadPositionError(
                f"client {client_id} gets next what is from {here} to {end}; {position} is not in that transaction"
            )
        rows = reading.lag(reading.ack, sequence).rows
        self._progress.confirm_to(subscriber, reading, sequence)
        reading.roll_back()
        self._clients.resting.rouse(client_id)
        self._clients.gate.jump(client_id, Move(Reason.SKIP, str(here), str(end), by.who, by.ms, held=True, rows=rows))
        return end

    # --- gaps --------------------------------------------------------------------------------------------------------

    def pass_gap(self, why: str, read: Position | None, begin: Position | None, by: By) -> list[int]:
        """Start the clients that wait for a place with the stream: it goes on after a gap that has swallowed them.

        A cursor stays unchanged until its client acks. ``begin`` is where the stream goes on; ``read`` is up to where
        it was read before that, if it was: then a marker in it tells the clients that are served from it. Returns the
        clients that do not get something.
        """
        passed = []
        for client_id, subscriber in self._clients.subscribers.items():
            resume, state = subscriber.pass_gap(self._clients.track), MoveState.OPEN
            before = place_of(resume)
            if resume is None and read is not None and isinstance(subscriber.state, InRing):
                before, state = str(read), MoveState.TOLD
            if before:
                gap = Move(Reason.PURGE, before, str(begin or ""), by.who, by.ms, state, detail=why)
                self._clients.gate.jump(client_id, gap)
                passed.append(client_id)
        return passed

    def pass_switch(self, why: str, by: By) -> list[int]:
        """Let the clients go on with the ring that are `bound` to the source that has filled it; return these.

        Those before the ring go on with its first slot. Those after it go on at its end, so that what they have got
        of the former source may come again from the next one. A cursor stays unchanged until its client acks.
        """
        track, passed = self._clients.track, list[int]()
        for client_id, place in self.bound().items():
            subscriber = self._clients.subscribers[client_id]
            if isinstance(subscriber.state, Ahead):
                sequence, after, detail = track.ring.next, "", f"{why}; some changes before it may come again"
            else:
                sequence, after, detail = track.ring.first, str(track.floor or ""), why
            subscriber.become(InRing(Reading(track, subscriber.wanted, sequence)))
            gap = Move(Reason.SWITCH, place_of(place), after, by.who, by.ms, MoveState.OPEN, detail=detail)
            self._clients.gate.jump(client_id, gap)
            passed.append(client_id)
        return passed

    def pass_removed(self, names: Collection[str], by: By) -> list[int]:
        """Let the clients that are behind the ring go on after what it had of members that were removed.

        Nothing reads those any more. Clients get what the log has of them. Returns the clients that lack something.
        """
        track, passed = self._clients.track, list[int]()
        for client_id in tuple(self._clients.elsewhere) if names else ():
            subscriber = self._clients.subscribers[client_id]
            if not isinstance(subscriber.state, Behind) or track.is_logged(subscriber.state.resume):
                continue
            before = subscriber.state.resume
            ends = self._resumes(before, names)
            subscriber.fill(partial(track.pass_members, ends=ends))
            after = subscriber.state.resume
            if after == before:
                continue
            self._miss(client_id, before, after, ends, by)
            passed.append(client_id)
        return passed

    def note_removed(self, names: Collection[str], by: By) -> None:
        """Write down where members end that were removed while they were read: clients still get what the ring has.

        That is no gap. After a restart it tells `pass_removed_before` who has got all of them.
        """
        ends = places_in(self._clients.track.end or Cut())
        self._note_ends({name: it for name, it in ends.items() if name in names}, by)

    def _note_ends(self, ends: Mapping[str, Position], by: By) -> None:
        end = str(Cut(ends))
        for client_id in self._clients.subscribers if ends else ():
            move = Move(Reason.REMOVE, end, end, by.who, by.ms, held=True, rows=0)
            self._clients.gate.jump(client_id, _naming(move, ends))
            self._clients.unstored.add(client_id)

    def pass_removed_before(self, names: Collection[str], by: By) -> list[int]:
        """Tell the clients that may lack something of members that were removed before the stream began.

        Nothing reads those any more, and no ring has what came of them. A client lacks nothing if the log goes on at
        its place, or ends there, or if it is known that the member did. Its place stays the last one that it has got of
        the member, unless the log ends later. Where the log ends is written down, so that the name is not used again.
        Returns the clients that are told.
        """
        track, passed = self._clients.track, list[int]()
        end = None if track.log is None else track.log.end
        logged = {name: it for name, it in places_in(end or Cut()).items() if name in names}
        known = self._known_ends() | set(logged.items())
        for client_id, subscriber in self._clients.subscribers.items() if names else ():
            before = subscriber.cursor
            if before is None or before.position is None or track.is_logged(before):
                continue
            lost = {
                name for name, it in places_in(before.position).items() if name in names and (name, it) not in known
            }
            if lost:
                ends = self._resumes(before, lost & logged.keys())
                subscriber.fill(partial(track.pass_members, ends=ends))
                self._miss(client_id, before, subscriber.cursor, lost, by)
                passed.append(client_id)
        noted = self._clients.gate.removed_members
        self._note_ends({name: it for name, it in logged.items() if name not in noted}, by)
        return passed

    def _resumes(self, cursor: Cursor, names: Collection[str]) -> Mapping[str, Position]:
        """Return where members go on for a client whose place the log does not have: in the log, else in the ring."""
        track, place = self._clients.track, cursor.position
        logged = None if track.log is None or place is None else track.log.resumes(place)
        resumes = {**places_in(track.floor or Cut()), **places_in(logged or Cut())}
        return {name: it for name, it in resumes.items() if name in names}

    def _known_ends(self) -> set[tuple[str, Position]]:
        """Return where members ended that were removed earlier, as far as that is written down."""
        moves = (it for all_ in self._clients.gate.moves.values() for it in all_ if it.members)
        ends = ((it, *one) for it in moves if is_cut(it.after) for one in places_in(parse_place(it.after)).items())
        return {(name, place) for it, name, place in ends if name in it.members}

    def _miss(
        self, client_id: int, before: Cursor | None, after: Cursor | None, names: Collection[str], by: By
    ) -> None:
        """Write a gap down: a client does not get what is between two places of members that were removed."""
        move = Move(Reason.REMOVE, place_of(before), place_of(after), by.who, by.ms, MoveState.OPEN)
        self._clients.gate.jump(client_id, _naming(move, names))
        self._clients.unstored.add(client_id)

    def gaps_to_tell(self, subscriber: Subscriber, reading: Reading) -> tuple[Move, ...]:
        """Return the gaps that a subscriber is to be told of now: between transactions, unless a mark holds some."""
        untold = self._clients.gate.untold(subscriber.client_id)
        if not untold or not reading.is_between or any(mark.gaps for mark in reading.marks.values()):
            return ()
        return untold

    def mark_gaps(self, subscriber: Subscriber, reading: Reading, gaps: tuple[Move, ...]) -> Batch | None:
        """Give the markers of gaps; None while its place has no name."""
        at = reading.got()
        if at is None:
            return None
        batch_id = self._clients.counters.take_id()
        subscriber.given = True
        reading.marks[batch_id] = Mark(batch_id, reading.get, reading.get, -1, gaps=gaps)
        return gaps_batch(batch_id, gaps, at)


def _naming(move: Move, names: Collection[str]) -> Move:
    members = tuple(sorted(names))
    return replace(move, members=members, detail=", ".join(f"member {it} was removed" for it in members))
