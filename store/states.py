"""What a subscriber is doing. It is in one of seven states, each with the methods that are legal in it.

* `Ahead` (shown as ``ahead``) waits for the stream to reach its place. It goes on as InRing, Behind or Gone.
* `InRing` (``attached``) is served from the ring of the destination, until it does not keep the pace: Behind or Gone.
* `Behind` (``catching-up``) has its place before the ring and waits for a reader. Then it is Starting.
* `Starting` (``catching-up``) waits for its reader to reach its place. Then it is CatchingUp.
* `CatchingUp` (``catching-up``) is served from the ring of its reader, until that has read up to what the
  destination's ring holds. Then it is Meeting.
* `Meeting` (``catching-up``) joins the destination's ring when it has confirmed what was before: InRing. If the ring
  cannot wait for that, it is CatchingUp again.
* `Gone` (``gone``) is not served: its place is lost, or its filter is refused. Another filter makes it Ahead.

Each that has a reader is Ahead when it gives that back. Each can be Gone: a source that has lost its place says so at
any time. Each that waits is InRing when the stream begins after a gap that has swallowed its place.

What it holds back in the meantime, its `need`, and how long it may do so, is the matter of `sluice.store.patience`.
"""

from dataclasses import dataclass
from typing import ClassVar, Self

from ..protocol.cut import Cut, Executed, parse_executed
from ..protocol.errors import GoneError, SluiceError, SourceChangedError
from .cursor import Cursor
from .reading import Reading
from .stream import Stream
from .track import Track, Wanted


@dataclass(slots=True)
class _Waiting:
    """A subscriber that is not served yet."""

    track: Track
    """The ring that it will read."""
    resume: Cursor
    """Where it will go on."""
    gtids: Executed
    """Executed there."""

    @classmethod
    def at(cls, track: Track, resume: Cursor) -> Self:
        """Return the state of one that waits for a place in a ring."""
        return cls(track, resume, parse_executed(resume.gtid))

    def _read(self, wanted: Wanted, sequence: int) -> Reading:
        floor = self.track.floor_at(self.resume.position, sequence)
        return Reading(self.track, wanted, sequence, self.gtids, floor)


class Ahead(_Waiting):
    """Waits for the stream to reach its place."""

    shown: ClassVar = "ahead"

    def need(self, stream: Stream) -> int | None:
        """Return the first slot of the destination's ring that it needs; None if its place is before the ring."""
        return stream.ring.next

    def resolve(self, stream: Stream, wanted: Wanted) -> "State":
        """Look whether the ring has its place."""
        try:
            sequence = stream.sequence_at(self.resume, self.gtids)
        except GoneError as error:
            return self._leave(stream, error)
        except SourceChangedError as error:
            if stream.catches_up and stream.is_logged(self.resume):  # from the time of another source
                return Behind(self.track, self.resume, self.gtids)
            if not self.gtids or (stream.is_source_of(self.resume) and not stream.is_mixed):
                return Gone(self.track, error, self.resume)
            return self._leave(stream, error)  # a reader may find the place of that set
        if sequence is None and stream.catches_up and stream.is_logged(self.resume):
            return Behind(self.track, self.resume, self.gtids)
        return self if sequence is None else InRing(self._read(wanted, sequence))

    def _leave(self, stream: Stream, error: SluiceError) -> "State":
        if stream.catches_up:
            return Behind(self.track, self.resume, self.gtids)
        if isinstance(error, SourceChangedError):
            error = SourceChangedError(
                f"{error}. By its GTIDs it could go on with a catch-up reader, and sluice.instance.catchUp.readers is"
                " 0: set that to 1 or more"
            )
        return Gone(self.track, error, self.resume)


class Behind(_Waiting):
    """Waits for a reader: its place is before the ring."""

    shown: ClassVar = "catching-up"

    def need(self, _stream: Stream) -> int | None:
        """Return None: it needs nothing of the destination's ring."""
        return None

    def start(self, track: Track) -> "Starting":
        """Go on with a reader, which reads from its place on."""
        return Starting(track, self.resume, self.gtids)


class Starting(_Waiting):
    """Waits for its reader to reach its place: the reader begins with that transaction, event or GTID set."""

    shown: ClassVar = "catching-up"

    def need(self, _stream: Stream) -> int | None:
        """Return None: it needs nothing of the destination's ring."""
        return None

    def resolve(self, _stream: Stream, wanted: Wanted) -> "State":
        """Look whether the reader has reached its place."""
        track = self.track
        sequence = None
        if self.resume.position is not None and track.is_source_of(self.resume):
            sequence = track.sequence_of(self.resume.position)
            if sequence is None and track.ring.waiting:  # the place is deep inside a transaction
                track.free_to(track.ring.next)
        elif track.ring.next > track.ring.first:
            sequence = track.ring.first
        if sequence is None:
            return self
        reading = self._read(wanted, sequence)
        track.free_to(sequence)
        return CatchingUp(reading)


@dataclass(slots=True)
class _Served:
    """A subscriber that is given what a ring holds."""

    reading: Reading

    @property
    def track(self) -> Track:
        """The ring that it reads."""
        return self.reading.track


class InRing(_Served):
    """Is served from the ring of the destination."""

    shown: ClassVar = "attached"

    @property
    def end(self) -> int:
        """The slot after the last one that it may read so far."""
        return self.reading.reach(max(self.reading.get, self.track.shown))

    @property
    def is_held(self) -> bool:
        """Whether nothing more comes before it has taken and confirmed what is there."""
        return self.track.ring.waiting

    def need(self, _stream: Stream) -> int | None:
        """Return the first slot of the destination's ring that it needs."""
        return self.reading.ack


@dataclass(slots=True)
class CatchingUp(_Served):
    """Is served from the ring of its reader."""

    shown: ClassVar = "catching-up"
    paused: bool = False
    """Others wait for its reader, so it is given nothing more."""

    @property
    def end(self) -> int:
        """The slot after the last one that it may read so far."""
        return self.reading.get if self.paused else self.reading.reach(self.track.ring.next)

    @property
    def is_held(self) -> bool:
        """Whether nothing more comes before it has taken and confirmed what is there."""
        return self.track.ring.waiting

    def need(self, stream: Stream) -> int | None:
        """Return the end of the destination's ring if it has confirmed more than that holds: the ring did not go on."""
        return stream.ring.next if stream.is_past_end(self.reading.acked()) else None

    @property
    def has_more(self) -> bool:
        """Whether it has not confirmed all whole transactions that are there."""
        ring = self.reading.track.ring
        return ring.last_boundary(self.reading.ack, ring.next) >= self.reading.ack

    def meet(self, stream: Stream) -> "CatchingUp | Meeting":
        """Look whether the reader has read up to what the destination's ring holds."""
        reading = self.reading
        limit = reading.track.ring.last_boundary(reading.get, reading.track.ring.next) + 1
        is_between = reading.get == reading.durable  # it has everything, and is between two transactions
        limit = limit or (reading.get if is_between else 0)
        end = reading.place(limit) if limit or is_between else None
        try:
            meet = None if end is None else stream.sequence_of(end)
        except (GoneError, SourceChangedError):
            return self
        return self if meet is None else Meeting(reading, limit, meet, self.paused)

    def lacks_members(self, stream: Stream) -> bool:
        """Whether it has all that its reader has to give, but for members that have joined the stream since it began.

        They are in no place of the reader, so that it never meets the ring once that has freed their starts.
        """
        end, floor = self.reading.acked(), stream.floor
        if self.reading.marks or not (isinstance(end, Cut) and isinstance(floor, Cut)):
            return False
        others = {name: it for name, it in floor.places.items() if name in end.places}
        is_there = Cut(others).is_comparable(end) and Cut(others).precedes(end)
        return is_there and stream.filled(end) != end


@dataclass(slots=True)
class Meeting(_Served):
    """Joins the destination's ring, which its reader has reached, when it has confirmed what was before."""

    shown: ClassVar = "catching-up"
    limit: int
    """The slot of the reader's ring after the last one that it is given from there ..."""
    meet: int
    """... and the slot of the destination's ring where it goes on: that is kept for it."""
    paused: bool
    """Others wait for its reader, so it is given nothing more."""

    @property
    def end(self) -> int:
        """The slot after the last one that it may read so far."""
        return self.reading.get if self.paused else self.reading.reach(self.limit)

    @property
    def is_held(self) -> bool:
        """Whether nothing more comes before it has taken and confirmed what is there."""
        return True

    def need(self, _stream: Stream) -> int | None:
        """Return the slot of the destination's ring where it goes on."""
        return self.meet

    @property
    def has_arrived(self) -> bool:
        """Whether it has confirmed everything before the destination's ring."""
        return self.reading.ack == self.limit and not self.reading.marks

    def join(self, stream: Stream, wanted: Wanted) -> InRing:
        """Go on in the destination's ring."""
        floor = stream.floor_at(self.reading.place(self.limit), self.meet)
        return InRing(Reading(stream, wanted, self.meet, self.reading.gtids, floor))

    def part(self) -> CatchingUp:
        """Go on with the reader, because the ring no longer keeps the slot where they met."""
        return CatchingUp(self.reading, self.paused)


@dataclass(slots=True)
class Gone:
    """Is not served, and holds nothing back."""

    shown: ClassVar = "gone"
    track: Track
    error: SluiceError
    resume: Cursor | None
    """Where it would go on; None for one that has not begun."""

    def need(self, _stream: Stream) -> int | None:
        """Return None: it needs nothing."""
        return None


Waiting = Ahead | Behind | Starting
Served = InRing | CatchingUp | Meeting
State = Waiting | Served | Gone
