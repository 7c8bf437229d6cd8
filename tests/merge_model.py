"""What the order of a merged stream is, one transaction at a time: the oracle of `sluice.instance.merge.order`."""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from sluice.instance.merge.order import UNKNOWN, By, Mark, State
from sluice.protocol.errors import SourceError

NEVER = -(1 << 63)
FOR_EVER = (1 << 63) - 1
FAR = 1 << 61

Slice = tuple[int, int, int]


@dataclass
class Transaction:
    key: int
    size: int


@dataclass
class Lane:
    number: int
    name: str
    pool: int
    exact: bool
    rest: int
    waited: bool
    full: bool = False
    offset: int = 0
    staged: list[Transaction] = field(default_factory=list)
    is_open: bool = False
    next: int = 0
    last: int = NEVER
    bound: int = NEVER
    released: int = NEVER
    handed: int = 0
    late: int = 0

    @property
    def bytes(self) -> int:
        return self.handed + sum(it.size for it in self.staged)

    @property
    def awaits_end(self) -> bool:
        return self.is_open and len(self.staged) == 1

    @property
    def shown(self) -> int:
        return self.staged[0].key if self.staged else self.bound


class ModelOrder:
    """As `Order`, and obvious. Its methods are small, so that a test may replace one by a wrong one."""

    def __init__(self, by: By, *, window: int = 0) -> None:
        self.by, self.window = by, window if by == By.TIME else 0
        self.lanes: list[Lane] = []
        self.released = NEVER
        self.streaming = -1
        self.streams_late = self.broken = False

    def add_member(
        self, name: str, *, pool: int, exact: bool = False, whole_seconds: bool = False, waited: bool = True
    ) -> int:
        rest = 999_999 if whole_seconds else 0
        self.lanes.append(Lane(len(self.lanes), name, pool, exact, rest, waited))
        return len(self.lanes) - 1

    def state(self, number: int) -> State:
        lane = self.lanes[number]
        return State(
            lane.bytes,
            lane.full or lane.bytes >= lane.pool,
            len(lane.staged),
            lane.next,
            lane.last,
            lane.late,
            lane.is_open,
            lane.waited,
        )

    # --- what comes in -----------------------------------------------------------------------------------------------

    def key(self, lane: Lane, stamp: int, now: int) -> int:
        if self.by == By.ARRIVAL:
            return now
        if self.by == By.COLUMN and not lane.exact:
            return max(lane.last, self.released if stamp == UNKNOWN else min(stamp, FOR_EVER - 1))
        stamp = min(max(stamp, -FAR), FAR)
        return stamp if lane.exact else max(lane.last, self.corrected(lane, stamp, now))

    def corrected(self, lane: Lane, stamp: int, now: int) -> int:
        return min(stamp + lane.rest - lane.offset, now)

    def add(self, number: int, stamps: Any, sizes: Any, *, is_open: bool, now: int) -> None:
        lane = self.lanes[number]
        for stamp, size in zip(stamps, sizes, strict=True):
            if lane.is_open:
                lane.staged[-1].size += size
                lane.is_open = False
                if self.by == By.ARRIVAL:
                    lane.staged[-1].key = now
            else:
                lane.last = self.key(lane, stamp, now)
                lane.staged.append(Transaction(lane.last, size))
        lane.is_open = is_open
        self.show(lane)

    def show(self, lane: Lane) -> None:
        lane.bound = max(lane.bound, lane.last) if lane.exact else lane.last
        if lane.last + self.window >= self.released:
            lane.waited = True

    def heartbeat(self, number: int, time: int) -> None:
        lane = self.lanes[number]
        if lane.is_open:
            return
        lane.bound = FOR_EVER if self.by == By.COLUMN and not lane.exact else max(lane.last, time)
        if lane.bound >= self.released:
            lane.waited = True

    def set_offset(self, number: int, offset: int) -> None:
        self.lanes[number].offset = min(max(offset, -FAR), FAR)

    def set_full(self, number: int, full: bool) -> None:
        self.lanes[number].full = full

    def resume(self, number: int) -> None:
        lane = self.lanes[number]
        lane.staged, lane.is_open = [Transaction(NEVER, 0)], True
        self.streaming = number

    def set_waited(self, number: int, waited: bool) -> None:
        self.lanes[number].waited = waited

    # --- what is dropped ---------------------------------------------------------------------------------------------

    def reset(self, number: int) -> None:
        lane = self.lanes[number]
        lane.is_open = self.streaming == number and not self.broken
        lane.staged = [Transaction(lane.staged[0].key, 0)] if lane.is_open else []
        lane.last = lane.bound = lane.released

    def leave(self, number: int) -> None:
        lane = self.lanes[number]
        if lane.is_open:
            self.broken = self.broken or (len(lane.staged) == 1 and self.streaming == number)
            del lane.staged[-1]
        lane.is_open = lane.waited = False

    def remove(self, number: int) -> None:
        lane = self.lanes[number]
        self.broken = self.broken or self.streaming == number
        lane.staged = []
        lane.is_open = lane.waited = False

    # --- what goes out -----------------------------------------------------------------------------------------------

    def is_ready(self, lane: Lane) -> bool:
        return bool(lane.staged) and not (lane.awaits_end and lane.staged[0].size < lane.pool and not lane.full)

    def is_late(self, key: int) -> bool:
        return key < self.released and self.by != By.ARRIVAL

    def head(self) -> Lane | None:
        ready = [it for it in self.lanes if self.is_ready(it)]
        late = [it for it in ready if self.is_late(it.shown)]
        return next(iter(late), None) or min(ready, key=lambda it: (it.shown, it.number), default=None)

    def waits_for(self, lane: Lane) -> bool:
        return lane.waited and self.by != By.ARRIVAL and not self.is_ready(lane)

    def before(self, head: Lane) -> list[int]:
        """Return the members that the head waits for."""
        if self.is_late(head.shown):
            return []
        own = head.shown, head.number
        others = [it for it in self.lanes if it is not head and self.waits_for(it)]
        return [it.number for it in others if (it.shown, it.number) < own]

    def holders(self) -> list[int]:
        if self.streaming >= 0:
            lane = self.lanes[self.streaming]
            return [self.streaming] if lane.awaits_end and lane.staged[0].size == 0 else []
        head = self.head()
        return self.before(head) if head is not None else []

    def step(self, is_first: bool) -> tuple[Slice | None, int] | None:
        """Return the next slice, if this is one, and what it takes of the room; None if nothing may go out."""
        if self.streaming >= 0:
            return self.stream(self.lanes[self.streaming])
        head = self.head()
        if head is None or self.before(head):
            return None
        late = self.is_late(head.shown)
        if late and head.exact:
            if not is_first:
                return None
            raise SourceError(f"member {head.name}: a transaction with key {head.shown} comes after")
        head.released = max(head.released, head.shown)
        if late:
            head.late += 1
        else:
            self.released = head.shown
        if head.awaits_end:
            self.streaming, self.streams_late = head.number, late
            return None, 1
        return self.pop(head, late)

    def stream(self, lane: Lane) -> tuple[Slice | None, int] | None:
        if self.broken:
            self.streaming, self.broken = -1, False
            lane.next += 1
            return (lane.number, lane.next, Mark.BROKEN | (Mark.LATE if self.streams_late else 0)), 1
        if not lane.awaits_end:
            self.streaming = -1
            return self.pop(lane, self.streams_late)
        part = lane.staged[0]
        size, part.size = part.size, 0
        lane.handed += size
        late = Mark.LATE if self.streams_late else 0
        return ((lane.number, lane.next + 1, Mark.PART | late), size) if size else None

    def pop(self, lane: Lane, late: bool) -> tuple[Slice, int]:
        transaction = lane.staged.pop(0)
        lane.handed += transaction.size
        lane.next += 1
        return (lane.number, lane.next, Mark.LATE if late else 0), max(transaction.size, 1)

    def release(self, most: int) -> "array[int]":
        for lane in self.lanes:
            lane.handed = 0
        out: list[Slice] = []
        while most > 0 or not out:
            step = self.step(not out)
            if step is None:
                break
            if step[0] is not None:
                out.append(step[0])
            most -= step[1]
            if out and out[-1][2] & Mark.BROKEN:
                break
        return array("q", [number for it in out for number in it])


def slices(released: Sequence[int]) -> list[Slice]:
    """Return the slices of a release."""
    return [(released[i], released[i + 1], released[i + 2]) for i in range(0, len(released), 3)]


def each(released: Sequence[int], before: Sequence[int]) -> Iterator[Slice]:
    """Return a release as a slice for each transaction; ``before`` has the next transaction of each member."""
    first = list(before)
    for member, stop, marks in slices(released):
        for number in range(first[member], stop):
            yield member, number + 1, marks
        first[member] = stop - 1 if marks & Mark.PART else stop
