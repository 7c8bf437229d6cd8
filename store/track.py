"""A ring as a part of the stream: its places have positions, and its tables pass a filter or not."""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol, TypedDict, overload

from ..protocol.cut import ONE, Cut, Executed, executed_text, parse_executed, places_in
from ..protocol.errors import FilterError, GoneError, SourceChangedError
from ..protocol.gtid import GtidSet
from ..protocol.position import Position
from .chain import last_places, run
from .cursor import Cursor
from .floor import Floor
from .masks import Mask
from .ring import Flag, Kind, Place, Ring, Staging
from .segment import SegmentWriter
from .verdicts import Pinned, Verdicts

TableFilter = Callable[[str, str], bool]
"""Whether a subscriber wants a table, by its schema and name."""


class Judge(Protocol):
    """Judges the entries of a ring by a condition on their rows."""

    def judge(self, pinned: Pinned) -> None:
        """Judge pinned slots, in any thread, but not in two at a time."""


class RowFilter(Protocol):
    """A condition on rows."""

    @property
    def text(self) -> str:
        """As it was written."""

    def make_judge(self) -> Judge:
        """Return what judges the entries of a ring by it."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a subscriber wants of a stream."""

    tables: TableFilter | None = None
    """Its filter; None: all tables."""
    rows: RowFilter | None = None
    """Its condition on rows; None: all rows."""
    texts: bool = False
    """Whether it is given the texts of statements, which may speak of any table, row and column."""

    def has(self, schema: str, table: str) -> bool:
        """Whether it wants a table."""
        return self.tables is None or self.tables(schema, table)


EVERYTHING: Final = Wanted(texts=True)


class Chosen(TypedDict):
    """What scans of a ring are told of what is wanted; see `Ring.collect`."""

    allowed: bytearray | None
    verdicts: Verdicts | None
    texts: bool


def unknown_start(place: Position, member: str) -> str:
    """Say that a member is not in a place, and that nobody knows where it began."""
    return (
        f"member {member} has joined the group since {place}, and nobody knows any more where it began: begin at a"
        " place that has it, such as `latest`; in Spark with a new checkpoint"
    )


MOST_CUTS: Final = 16
"""Slots of which a track remembers the cuts before them."""


class Track:
    """The part of the stream between two positions, in a ring.

    If the stream is merged, its positions are cuts. The ring holds a chain of them: each slot brings one member on.
    """

    def __init__(self, ring: Ring) -> None:
        """``ring`` may be empty: then its place is unknown until `begin` or the first put."""
        self.ring = ring
        self.gtids: Executed = {}
        """Executed before what is stored."""
        self.trouble = ""
        """Why what fills the ring of a catch-up reader cannot read for now; empty if it can."""
        self.starts: dict[str, Position] = {}
        """Of a merged stream, where members began that have joined it: a place without them is before that."""
        self._switches: list[int] = []  # the slots from which on another source has filled the ring
        self._cuts: dict[int, Cut] = {}  # of a merged stream: those before some slots, that before the first among them

    def switch(self) -> None:
        """Say that another source fills the ring from here on."""
        self._switches = [it for it in self._switches if it >= self.ring.first] + [self.ring.next]

    def left_at(self, start: int, stop: int) -> int:
        """Return up to which slot, ``stop`` at most, the source of a slot has filled the ring from that on."""
        return min([stop, *(it for it in self._switches if it > start)])

    @property
    def is_mixed(self) -> bool:
        """Whether sources have filled the ring one after the other."""
        return any(it >= self.ring.first for it in self._switches)

    def begin(self, position: Position, member: str = ONE) -> None:
        """Say where the stream of an empty ring begins; with a cut it is a merged one."""
        if isinstance(position, Cut):
            self._cuts = {self.ring.next: position}
            self.ring.begin_at(0, 0, 0, 0)
            return
        source, file, begin, n = position.parts
        self.ring.begin_at(self.ring.sources.intern((member, source)), self.ring.files.intern(file), begin, n)

    def position(self, place: Place) -> Position:
        """Return the position of a place of the ring."""
        source, file, begin, n = place
        _, name = self.ring.sources[source] or (ONE, "")
        return Position.of_parts(name, self.ring.files[file], begin, n)

    def member(self, place: Place) -> str:
        """Return the member that a place of the ring belongs to."""
        member, _ = self.ring.sources[place[0]] or (ONE, "")
        return str(member)

    @property
    def is_merged(self) -> bool:
        """Whether it is one stream of several members."""
        return bool(self._cuts)

    def position_of(self, sequence: int) -> Position:
        """Return the position of a slot."""
        return self._cut_before(sequence) if self._cuts else self.position(self.ring.place(sequence))

    def position_before(self, sequence: int) -> Position | None:
        """Return the position before a slot; None before the stream has begun."""
        if self._cuts:
            return self._cut_before(sequence)
        place = self.ring.after(sequence - 1)
        return None if place is None else self.position(place)

    def _cut_before(self, sequence: int) -> Cut:
        """Return the cut before a slot: it is looked for from the nearest one before that which is known."""
        known = [(at, cut) for at, cut in tuple(self._cuts.items()) if at <= sequence]
        at, cut = max(known, key=lambda it: it[0])
        if at == sequence or self.ring.closed:
            return cut
        places = dict(cut.places)  # of many members each cut costs: this makes one
        places.update((self.member(it), self.position(it)) for it in last_places(self.ring, at, sequence))
        cut = Cut(places)
        cuts = {it: self._cuts[it] for it in sorted(self._cuts)[-MOST_CUTS:] if it >= self.ring.first}
        self._cuts = {min(self._cuts): self._cuts[min(self._cuts)], **cuts, sequence: cut}
        return cut

    def filled(self, place: Position) -> Position:
        """Return a place with the starts of the members that have joined the stream since: it is the same one."""
        if not isinstance(place, Cut) or self.starts.keys() <= place.places.keys():
            return place
        return Cut({**self.starts, **place.places})

    def unknown_in(self, place: Position) -> Collection[str]:
        """Return the members of a merged stream that are not in a place, and of which nobody knows where they began."""
        place, floor = self.filled(place), self.floor
        return floor.places.keys() - place.places.keys() if isinstance(floor, Cut) and isinstance(place, Cut) else ()

    def join_member(self, name: str, start: Position, gtids: GtidSet | None) -> None:
        """Note where a member begins that joins the stream, and what it has executed there; None if unknown."""
        self.starts[name] = start
        if gtids is not None:
            self.gtids[name] = gtids.copy()

    def fill(self, cursor: Cursor) -> Cursor:
        """Return a cursor with the starts of the members that have joined since."""
        place = None if cursor.position is None else self.filled(cursor.position)
        if place in (None, cursor.position):
            return cursor
        assert place is not None
        gtids = {name: self.gtids[name] for name in self.starts if name in self.gtids}
        return replace(cursor, position=place, gtid=executed_text(gtids | parse_executed(cursor.gtid)))

    def moved(self, cursor: Cursor) -> Cursor:
        """Return a cursor with the names that places have where its members are read from another server now.

        That is known of a member that has executed there what it had where the stream begins.
        """
        place, floor = cursor.position, self.floor
        if not (isinstance(place, Cut) and isinstance(floor, Cut)) or place.is_comparable(floor):
            return cursor
        executed = parse_executed(cursor.gtid)
        same = {name for name, it in executed.items() if it == self.gtids.get(name)} & place.places.keys()
        moved = {name: floor.places[name] for name in same if not place.places[name].is_comparable(floor.places[name])}
        restart = cursor.restart
        if isinstance(restart, Cut):
            kept = {name: it for name, it in restart.places.items() if name not in moved}
            restart = Cut(kept) if kept else None
        return replace(cursor, position=Cut({**place.places, **moved}), restart=restart) if moved else cursor

    def pass_members(self, cursor: Cursor, ends: Mapping[str, Position]) -> Cursor:
        """Return a cursor after what is before the stream of members that are read no longer, whose ends are given."""
        place = cursor.position
        passed = None if not isinstance(place, Cut) or not place.is_comparable(Cut(ends)) else place.join(Cut(ends))
        if passed in (None, place):
            return cursor
        floor = places_in(self.floor or Cut())  # elsewhere nobody knows what was executed, and nobody will ask
        gtids = {name: it for name, it in self.gtids.items() if name in ends and floor.get(name) == ends[name]} | {
            name: it for name, it in parse_executed(cursor.gtid).items() if name not in ends
        }
        return replace(cursor, position=passed, gtid=executed_text(gtids))

    def floor_at(self, place: Position | None, sequence: int) -> Floor | None:
        """Return the floor of a subscriber that goes on at a slot; None if the chain has its place before that."""
        return Floor(place) if isinstance(place, Cut) and self.position_before(sequence) != place else None

    @property
    def floor(self) -> Position | None:
        """The place before what is stored; None before the stream has begun."""
        return self.position_before(self.ring.first)

    @property
    def shown(self) -> int:
        """The slot after the last one that may be given to anybody."""
        return self.ring.next

    @property
    def end(self) -> Position | None:
        """The place after what may be given; None before the stream has begun."""
        return self.position_before(self.shown)

    def sequence_of(self, position: Position) -> int | None:
        """Return the first slot at or after a position; None when the ring has not reached it.

        Raises:
            GoneError: the position is before what the ring holds.
            SourceChangedError: it belongs to another source or history.

        In a merged stream that is the first slot that is not before it, the next one to be put if there is none.
        """
        start, shown = self.ring.first, self.shown  # once: another thread puts meanwhile
        if self._cuts:
            position = self.filled(position)
            if not isinstance(position, Cut):
                raise SourceChangedError(f"{position} is of a single source, and this stream is of several")
            return start + Floor(position).start(_Chain(self, start, shown))
        floor, end = self.position_before(start), self.position_before(shown)
        if floor is None or end is None:
            return None
        if start < shown and not floor.same_source(position):  # another source may fill a reader's ring that was empty
            begin = self.position_of(start)
            floor = begin if begin.same_source(position) else floor
        stop = shown
        for switch in reversed(self._switches):
            if start <= switch < stop:
                begin = self.position_of(switch)
                if begin.same_source(position) and begin <= position:
                    start, floor = switch, begin
                    break
                stop, end = switch, self.position_before(switch) or end
        if position > end:
            if stop == shown:
                return None
            raise SourceChangedError(f"{position} is after {end}, where the stream switched to another source")
        if position < floor:
            raise GoneError(f"{position} is no longer stored; the oldest position that is: {floor}")
        if position.file_key not in self.ring.files:
            raise SourceChangedError(
                f"{position} is in a file that the stream from {floor} to {end} did not pass: another history"
            )
        return start + bisect_left(range(start, stop), position, key=self.position_of)

    def stop_of(self, position: Position) -> int | None:
        """Return the first slot before which is all that comes before a position; None before the ring has come there.

        In a merged stream that may be a cut of some members, and the first slot of the ring if all that was before.
        Raises SourceChangedError, and `GoneError` in any other stream, as `sequence_of`.
        """
        if not self._cuts:
            return self.sequence_of(position)
        start, shown = self.ring.first, self.shown  # once: another thread puts meanwhile
        if not isinstance(position, Cut):
            raise SourceChangedError(f"{position} is of a single source, and this stream is of several")
        if not position.precedes(self._cut_before(shown)):
            return None
        slots = range(start, shown)
        return start + bisect_left(slots, True, key=lambda slot: position.precedes(self._cut_before(slot)))

    def run(self, cut: Cut, start: int, stop: int) -> tuple[bool, int]:
        """Whether a slot of a merged stream is before a cut, and the next one, ``stop`` at most, where that changes."""
        return run(self.ring, start, stop, Floor(cut).had(self.ring))

    def spans(self, start: int, stop: int, from_: Position, to: Position | None = None) -> Iterator[tuple[int, int]]:
        """Yield those of the slots [start, stop) that come after a place, and before another one if that is given.

        In a merged stream that is so for each member by itself; else it is all of them.
        """
        if not isinstance(from_, Cut):
            yield start, stop
            return
        while start < stop:
            is_outside, end = self.run(from_, start, stop)
            if not is_outside and isinstance(to, Cut):
                is_inside, end = self.run(to, start, end)
                is_outside = not is_inside
            if not is_outside:
                yield start, end
            start = end

    def is_beyond(self, position: Position, sequence: int) -> bool:
        """Whether a position comes after the place before a slot. Raises SourceChangedError as `sequence_of`."""
        place = self.position_before(sequence)
        if place is None or place.same_source(position):
            return place is None or not position.precedes(place)
        try:
            found = self.sequence_of(position)
        except GoneError:
            return False
        except SourceChangedError:
            if self._switches[-1:] != [self.ring.next]:
                raise
            return True  # the source that is read now has not put anything yet that would say which one it is
        return found is None or found > sequence

    def is_source_of(self, cursor: Cursor) -> bool:
        """Whether a cursor belongs to the source of the stream, as far as that is known."""
        floor = self.floor
        return cursor.position is None or floor is None or cursor.position.same_source(floor)

    def sequence_of_event(self, cursor: Cursor) -> int | None:
        """Return the first slot at or after the event of a cursor that Canal wrote: that event is given again.

        None when the ring has not reached it. Raises `GoneError` when the event is before what the ring holds.
        """
        floor, end = self.floor, self.end
        if floor is None or end is None or cursor.order > end.order:
            return None
        if cursor.order < floor.transaction.order:
            raise GoneError(f"{cursor.journal}:{cursor.offset} is no longer stored; the oldest position is {floor}")
        for file in range(len(self.ring.files), 0, -1):
            if self.ring.files[file][0] == cursor.journal:
                return self.ring.at_event(file, cursor.offset)
        return None

    def executed(self, sequence: int) -> Executed:
        """Return what was executed before a slot."""
        gtids = {member: it.copy() for member, it in self.gtids.items()}
        self.add_executed(gtids, self.ring.first, sequence)
        return gtids

    def add_executed(self, gtids: Executed, start: int, stop: int) -> None:
        """Add to each member's set what it has executed in the slots [start, stop)."""
        if not gtids:
            return
        for number, first, last in self.ring.gtid_runs(start, stop):
            member, source = self.ring.gtid_sources[number]
            if member in gtids:
                gtids[member].add(source, first, last)

    def stage_join(self, staging: Staging, writer: SegmentWriter, member: str, place: Position) -> None:
        """Stage the place where a member, or another server, is read from: who passes it goes on there."""
        source, file, begin, n = place.parts
        number = self.ring.files.intern(file)
        staging.add_entry(
            writer,
            Kind.ADVANCE,
            flags=Flag.BOUNDARY,
            source=self.ring.sources.intern((member, source)),
            file=number,
            begin=begin,
            n=n,
            next_file=number,
            next_begin=begin,
            next_n=n,
        )

    def free_to(self, sequence: int) -> None:
        """Free the slots before a sequence."""
        self.add_executed(self.gtids, self.ring.first, sequence)
        if self._cuts and not self.ring.closed:
            cut = self._cut_before(sequence)
            self._cuts = {sequence: cut, **{at: it for at, it in self._cuts.items() if at > sequence}}
        self.ring.free_to(sequence)


class _Chain(Sequence[Cut]):
    """The cuts before the slots [start, stop) of a ring, and the one after them."""

    def __init__(self, track: Track, start: int, stop: int) -> None:
        self._track = track
        self._slots = range(start, stop + 1)

    def __len__(self) -> int:
        return len(self._slots)

    @overload
    def __getitem__(self, index: int) -> Cut: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Cut]: ...
    def __getitem__(self, index: int | slice) -> Cut | Sequence[Cut]:
        """Return the cut before a slot."""
        if isinstance(index, slice):
            return [self[it] for it in range(len(self))[index]]
        found = self._track.position_before(self._slots[index])
        assert isinstance(found, Cut)
        return found


class WantedSlots:
    """What is wanted of a ring, by its table numbers and slots."""

    def __init__(self, ring: Ring, wanted: Wanted) -> None:
        """Nothing is asked of ``wanted`` before `chosen`."""
        self.ring = ring
        self._texts = wanted.texts
        self._mask = None if wanted.tables is None else ring.masks.of(ring, wanted.tables)
        self._verdicts = None if wanted.rows is None else verdicts_of(ring, wanted.rows)

    @property
    def mask(self) -> Mask | None:
        """The tables that it is limited to; None if there are other entries, too."""
        return None if self._texts else self._mask

    def chosen(self) -> Chosen:
        """Return it as scans of the ring take it, updated with the tables seen since."""
        if self._mask is not None:
            self._mask.update()
        allowed = None if self._mask is None else self._mask.allowed
        return {"allowed": allowed, "verdicts": self._verdicts, "texts": self._texts}

    def reach(self, sequence: int, stop: int) -> int:
        """Return up to which slot it is known what is wanted of the slots from one on, ``stop`` at most."""
        if self._mask is not None:
            stop = self._mask.reach(sequence, stop)
        return stop if self._verdicts is None else max(sequence, min(stop, self._verdicts.reach(sequence)))

    def refusal(self, sequence: int) -> FilterError | None:
        """Return why the condition on rows cannot be judged of a slot; None if it can."""
        return None if self._verdicts is None else self._verdicts.refusal(sequence)


def verdicts_of(ring: Ring, rows: RowFilter) -> Verdicts:
    """Return what a condition says of the slots of a ring; all that use the condition have it in common.

    It is judged for as long as it is referenced.
    """
    found = ring.verdicts.get(rows.text)
    if found is None:
        found = ring.verdicts[rows.text] = Verdicts(rows.make_judge(), ring.first)
    return found
