"""How far a subscriber is in the ring that it reads: what it was given, what it has confirmed, and the marks between.

A subscriber has two sequences in the ring, as Canal has for a destination: ``get``, up to which it was given batches,
and ``ack``, up to which it has confirmed them. A batch that was given and not confirmed is a mark; marks are confirmed
in order.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..protocol.cut import Cut, Executed, executed_text
from ..protocol.errors import FilterError
from ..protocol.gtid import gtid_text
from ..protocol.position import Position
from .batch import Range, RangeLimits
from .cursor import Cursor
from .floor import Floor
from .moves import Move
from .ring import Collected, Flag
from .snapshot import Given, Window, Windows
from .status import Lag
from .track import Chosen, Track, Wanted, WantedSlots

if TYPE_CHECKING:
    from .ring import Place, Ring, SlotView


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
    """What `Ranges.mark` returned."""
    limits: RangeLimits | None = None
    late: str = ""
    """Of a batch of `LateRows`, which has no slots: their position."""
    rows: tuple[Given, ...] = ()
    """Of a batch of a snapshot, which has no slots either: what it brings that forward by."""
    gaps: tuple[Move, ...] = ()
    """Of a batch of markers, which has no slots either: what they tell the client of."""

    @property
    def is_side(self) -> bool:
        """Whether it has no slots."""
        return bool(self.late or self.rows or self.gaps)


class Reading:
    """The place of one subscriber in a ring.

    Args:
        track: the ring, that of the destination or of a catch-up reader.
        wanted: what the subscriber wants.
        sequence: the slot from which on it reads.
        gtids: what was executed before that slot; what is unknown is learned when it is needed.
        floor: in a merged stream, what it has of the slots from there on; None if that is nothing.
    """

    def __init__(
        self,
        track: Track,
        wanted: Wanted,
        sequence: int,
        gtids: Executed | None = None,
        floor: Floor | None = None,
    ) -> None:
        self.track = track
        self.get = sequence
        self.ack = sequence
        self.marks: dict[int, Mark] = {}
        self.windows = Windows()
        """Of its snapshots."""
        self.gtids = gtids or {}
        """Executed at ``durable``."""
        self.durable = sequence
        """The sequence of the durable cursor."""
        self.boundary: SlotView | None = None
        """The slot before ``durable``, when the cursor has moved in this ring."""
        self.delivered: Place | None = None
        """The place after the last entry that it has confirmed in this ring."""
        self.floor = floor
        """What it has of the slots from ``get`` on; None if that is nothing, or no longer."""
        self._begin = sequence
        self._durable: Position | None = None  # the place at ``durable``, of a merged stream ...
        self._delivered: Position | None = None  # ... and that of ``delivered``
        self.select(wanted)

    # --- what it reads -----------------------------------------------------------------------------------------------

    def select(self, wanted: Wanted) -> None:
        """Read something else from here on."""
        self.slots = WantedSlots(self.track.ring, wanted)

    def chosen(self) -> Chosen:
        """Return what it wants as scans of the ring take it."""
        return self.slots.chosen()

    def reach(self, stop: int) -> int:
        """Return up to which slot it can be given something, ``stop`` at most: as far as its condition is judged.

        That is also before the next slot that it has, see `pass_floor`.
        """
        if self.floor is not None and self.get < stop:
            is_had, end = self.track.run(self.floor.cut, self.get, stop)
            stop = self.get if is_had else end
        return self.slots.reach(self.get, stop)

    def pass_floor(self, stop: int) -> None:
        """Pass over the slots before another one that it has, because it had read the members in another order."""
        while self.floor is not None and self.get < stop:
            if self.floor.is_passed(self._cut(self.get)):
                if self.floor.is_passed(self._cut(self.ack)):  # else it may go back, and confirms places with it
                    self.floor = None
                return
            is_had, end = self.track.run(self.floor.cut, self.get, stop)
            if not is_had:
                return
            self.get = end

    def _cut(self, sequence: int) -> Cut:
        found = self.track.position_before(sequence)
        assert isinstance(found, Cut)  # only a merged stream has floors
        return found

    def place(self, sequence: int) -> Position | None:
        """Return its place when it has got all slots before one; None before the stream has begun."""
        return self.track.position_before(sequence) if self.floor is None else self.floor.place(self._cut(sequence))

    @property
    def refusal(self) -> FilterError | None:
        """Why its condition cannot be judged of what comes next, when all before that is confirmed."""
        ring = self.track.ring
        at = self.slots.reach(self.get, ring.next)
        error = None if self.marks else self.slots.refusal(at)
        if error is None or self.first_wanted(self.get, at).entries:
            return None
        return error

    @property
    def has_moved(self) -> bool:
        """Whether the ring has given it something, or passed over what it does not want."""
        return self.get > self._begin

    @property
    def is_between(self) -> bool:
        """Whether what it gets next begins a transaction, or is a statement of its own."""
        ring = self.track.ring
        if self.get == self.durable:
            return True
        return self.get > ring.first and bool(ring.slot(self.get - 1).flags & Flag.BOUNDARY)

    def is_beyond(self, position: Position, sequence: int) -> bool:
        """Whether a position comes after what it has when it has got all slots before one; see `Track.is_beyond`."""
        place = self.place(sequence) if self.track.is_merged else None
        if place is None:
            return self.track.is_beyond(position, sequence)
        return not position.precedes(self.track.filled(place))

    def acked(self) -> Position | None:
        """Return the place up to which it has confirmed; None before the stream has begun."""
        return self.place(self.ack)

    def got(self) -> Position | None:
        """Return the place up to which it was given batches; None before the stream has begun."""
        return self.place(self.get)

    def locate(self, position: Position, cursor: Cursor | None, *, ends: bool) -> int | None:
        """Return the first slot at or after a position that it holds; None when the ring is not there yet.

        In a merged stream that is the first slot that is not before the position in each member, or, if something
        ``ends`` there, the one before which all is that is.

        A position at or after the last entry that it was given stays valid, although the ring, and the subscriber with
        it, has moved on over what it does not want. ``cursor`` is its durable one when it began to read this ring.

        Raises what `Track.sequence_of` raises.
        """
        if not self.track.is_beyond(position, self.ack):
            delivered = self.delivered_to(cursor)
            if delivered is not None and delivered.same_history(position) and delivered.precedes(position):
                return self.ack
        return self.track.stop_of(position) if ends else self.track.sequence_of(position)

    def with_acked(self, position: Position) -> Position:
        """Return a place in another order of a merged stream with all that is confirmed in this one."""
        acked = self.acked() if isinstance(position, Cut) else None
        return acked.join(position) if isinstance(acked, Cut) else position

    def before(self, position: Position, stop: int) -> int:
        """Return up to which slot, ``stop`` at most, all comes before a place that is not before ``stop``.

        In a merged stream that may be less than ``stop``: the place may be one of another order. It has all that is
        confirmed, see `with_acked`.
        """
        found = self.track.sequence_of(position) if self.track.is_merged else None
        return stop if found is None else max(self.ack, min(stop, found))

    # --- what it was given and has confirmed -------------------------------------------------------------------------

    def roll_back(self) -> None:
        """Forget all marks: what is not confirmed is given again."""
        self.marks.clear()
        self.go_back()

    def go_back(self) -> None:
        """Give again what is not confirmed; rows of snapshots are read again."""
        self.get = self.ack
        self.windows.roll_back()

    def deliver_through(self, last: Mark) -> list[Mark]:
        """Take the marks away up to this one, because their entries have arrived; return them.

        `confirm` moves on to its end.
        """
        delivered: list[Mark] = []
        while last.batch_id in self.marks:
            delivered.append(self.marks.pop(next(iter(self.marks))))
        for mark in reversed(delivered):
            if not mark.is_side:
                if mark.last >= self.track.ring.first:
                    self._note_delivered(mark.last)
                break
        return delivered

    def deliver_to(self, sequence: int) -> list[Mark]:
        """Take the marks away that end at a slot or before, because everything before it has arrived; return them.

        Late rows, and those of a snapshot, have arrived only if something that was given after them has.
        """
        delivered = [mark for mark in self.marks.values() if mark.stop + mark.is_side <= sequence]
        for mark in delivered:
            del self.marks[mark.batch_id]
        if sequence > self.ack and (last := self.track.ring.last_data(self.ack, sequence)) >= 0:
            self._note_delivered(last)
        return delivered

    def _note_delivered(self, last: int) -> None:
        """Note the last slot of which it has an entry."""
        self.delivered = self.track.ring.after(last)
        if self.track.is_merged:
            self._delivered = self.place(last + 1)

    def confirm(self, sequence: int) -> bool:
        """Move ``ack`` on, and the durable cursor to the last boundary before it. Return whether that has moved."""
        self.ack = sequence
        self.get = max(self.get, sequence)
        self.learn_gtids()
        ring = self.track.ring
        start = max(self.durable, ring.first)
        boundary = ring.last_boundary(start, sequence)
        if boundary < 0:
            return False
        self._add_executed(self.gtids, start, boundary + 1)
        self.durable = boundary + 1
        self.boundary = ring.slot(boundary)
        if self.track.is_merged:
            self._durable = self.place(self.durable)
        return True

    def raise_floor(self, place: Cut, sequence: int) -> None:
        """Confirm up to a place of another order, of which the slots before a sequence are the first that it has.

        No mark may be outstanding.
        """
        self.floor = Floor(place if self.floor is None else self.floor.place(place))
        self.confirm(sequence)
        at = max(self.durable, self.track.ring.first)  # inside a transaction what is before that may be freed
        self.gtids = self._not_ahead(self.gtids, at)  # what is executed at the others' places is unknown
        durable = self.place(at)
        assert isinstance(durable, Cut)  # it has begun
        former = self._durable if isinstance(self._durable, Cut) else Cut()
        self._durable = former.join(durable.transaction)

    def first_wanted(self, start: int, stop: int) -> Collected:
        """Return the first entry that it would be given of the slots [start, stop), if there is one."""
        return self.track.ring.collect(start, stop=stop, max_entries=1, **self.chosen())

    def unwanted_up_to(self, stop: int) -> int:
        """Return the slot up to which, ``stop`` at most, it has confirmed all that it is given."""
        if self.marks or self.ack >= stop:
            return self.ack
        found = self.first_wanted(self.get, stop)
        return self.get if found.entries else found.stop

    def waits_at(self, shown: int) -> int | None:
        """Return the BEGIN before a slot that waits for what follows it, -1 if none does.

        None if it is given something of what is before that slot, or if that is not known yet.
        """
        if self.floor is not None or self.slots.reach(self.get, shown) != shown:
            return None
        found = self.first_wanted(self.get, shown)
        if found.entries:
            return None
        return found.stop if found.stop < shown else -1

    def pass_over(self, position: Position, stop: int) -> None:
        """Count what it was given as reaching to a position, before a slot, if it wants nothing before that."""
        got = self.got()
        if got is None or not got.same_history(position) or position.precedes(got):
            return
        sequence = self.track.sequence_of(position)
        if sequence is None or not self.get <= sequence <= stop:
            return
        if self.track.is_merged and self.place(sequence) != position:  # the ring has not come there, or never will
            return
        _, entries = self.track.ring.cut(self.get, sequence, inside=True, **self.chosen())
        if not entries:
            self.get = sequence

    # --- rows of its snapshots ---------------------------------------------------------------------------------------

    def ready_rows(self) -> Window | None:
        """Return the window of which rows can be given now."""
        return self.windows.find(self.track, self.get) if self.windows and self.is_between else None

    def pause_for_rows(self, stop: int) -> int:
        """Return where it stops before ``stop`` if it is to be given rows of a snapshot.

        That is where it has to wait for a whole table, and the end of a transaction for which rows wait.
        """
        if not self.windows:
            return stop
        stop = self.windows.hold(self.track, self.get, stop)
        if self.is_between or self.windows.find(self.track, self.get) is None:
            return stop
        found = self.end_of_transaction(self.get)
        return stop if found is None else min(stop, found[0])

    # --- its durable cursor ------------------------------------------------------------------------------------------

    def learn_gtids(self) -> None:
        """Learn what was executed at the durable cursor. Before the stream has begun that is unknown."""
        if not self.track.gtids.keys() <= self.gtids.keys():
            start = max(self.track.ring.first, self.durable)
            self.gtids = self._not_ahead(self.track.executed(start), start) | self.gtids

    def _add_executed(self, gtids: Executed, start: int, stop: int) -> None:
        """Add what was executed in the slots [start, stop)."""
        self.track.add_executed(self._not_ahead(gtids, stop), start, stop)

    def _not_ahead(self, gtids: Executed, sequence: int) -> Executed:
        """Return the sets of the members in which it is not further than the ring is before a slot."""
        if self.floor is None:
            return gtids
        reached = self._cut(sequence)
        return {name: it for name, it in gtids.items() if self.floor.is_passed_in(name, reached)}

    def place_before(self, sequence: int) -> Cursor | None:
        """Return the place before a slot, and what was executed before its transaction; None before the stream.

        The slot is one that it was given and has not confirmed, or the next one.
        """
        place, position = self.track.ring.after(sequence - 1), self.place(sequence)
        if place is None or position is None:
            return None
        self.learn_gtids()
        gtids = {member: it.copy() for member, it in self.gtids.items()}
        start = max(self.durable, self.track.ring.first)
        self._add_executed(gtids, start, max(start, self.track.ring.last_boundary(start, sequence) + 1))
        return Cursor.at(position, self._executed_text(gtids, place), position)

    def named(self, start: int, stop: int) -> Mapping[str, str]:
        """Return the GTIDs of the transactions that begin in the slots [start, stop) and whose ends the ring has.

        They are by member, file and begin, as in the names of `sluice.protocol.canal.transactions.Transactions`.
        """
        ring = self.track.ring
        end = self.end_of_transaction(stop - 1)
        found = {}
        for file, begin, number, last in ring.named_transactions(start, stop if end is None else end[0]):
            member, source = ring.gtid_sources[number]
            found[f"{member} {ring.files[file][0]}@{begin}"] = gtid_text(source, last)
        return found

    def end_of_transaction(self, sequence: int) -> tuple[int, Position] | None:
        """Return slot and place after the transaction that a slot belongs to; None when the ring has no end of it."""
        ring = self.track.ring
        low, high = sequence, ring.next
        if ring.last_boundary(low, high) < 0:
            return None
        while high - low > 1:  # the first end is in [low, high)
            middle = (low + high) // 2
            if ring.last_boundary(low, middle) < 0:
                low = middle
            else:
                high = middle
        end = self.place(high)
        assert end is not None  # it has slots
        return high, end

    def executed_at(self, place: "Place") -> str:
        """Return what was executed at the durable cursor, as it is stored; empty if unknown. ``place`` is a slot's."""
        return self._executed_text(self.gtids, place)

    def _executed_text(self, gtids: Executed, place: "Place") -> str:
        return executed_text(gtids) if self.track.is_merged else str(gtids.get(self.track.member(place), ""))

    def cursor(self, before: Cursor | None) -> Cursor | None:
        """Return the durable cursor; ``before`` is that with which it began to read this ring."""
        if self._durable is not None:
            self.learn_gtids()  # a member may have joined since
            merged = self.track.filled(self._durable)
            found = Cursor.at(merged, executed_text(self.gtids), self.delivered_to(before))
            return replace(found, restart=self.track.ring.restarts.at(merged))
        slot = self.boundary
        if slot is None:
            return before
        place = (slot.source, slot.next_file, slot.next_begin, slot.next_n)
        position = self.track.position(place)
        return Cursor(
            journal=self.track.ring.files[slot.file][0],
            offset=slot.event_offset,
            timestamp=slot.execute_ms,
            server_id=slot.server_id,
            gtid=self.executed_at(place),
            position=position,
            delivered=self.delivered_to(before),
            restart=self.track.ring.restarts.at(position),
        )

    def delivered_to(self, before: Cursor | None) -> Position | None:
        """Return the place after the last entry that it was given and has confirmed."""
        if self.delivered is not None:
            return self._delivered or self.track.position(self.delivered)
        return before.delivered if before is not None else None

    def resume(self, cursor: Cursor | None) -> Cursor | None:
        """Return where it goes on when it leaves this ring with a durable cursor: after what it has confirmed."""
        acked = None if self.track.ring.closed else self.acked()
        return cursor if cursor is None or acked is None else replace(cursor, position=self.track.filled(acked))

    # --- what is shown -----------------------------------------------------------------------------------------------

    def lag(self, start: int, stop: int) -> Lag:
        """Return how much it is given between two slots."""
        return lag(self.track.ring, start, stop, self.chosen())


def lag(ring: "Ring", start: int, stop: int, chosen: Chosen) -> Lag:
    """Return how much of what is chosen is between two slots of a ring."""
    transactions, entries, rows, size = ring.measure(start, stop, **chosen)
    oldest = ring.slot(start).execute_ms if entries else 0
    return Lag(transactions, entries, rows, size, oldest)
