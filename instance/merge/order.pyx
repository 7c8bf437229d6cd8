"""Which transactions of a merged stream are next: the part of the merger that looks at each of them.

A member is known by its number here, which is also its rank among equal keys, and a transaction by its number in its
member, counted from 0. What comes in are arrays of stamps and sizes, what goes out are slices, "of that member up to
that transaction". So nothing is done in Python for each transaction, and what a transaction has is never looked at.

`Order` is not locked: it is called from one thread at a time. Times, keys and clock offsets are µs; a key is compared
with keys only, and with the clock if the order is that of time.
"""

from cpython cimport array
from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t
from libc.string cimport memcpy
from libcpp.deque cimport deque
from libcpp.vector cimport vector

import array

from collections import namedtuple

from ...protocol.errors import SourceError

State = namedtuple("State", "bytes is_full transactions next key late is_open is_waited")

cpdef enum By:
    TIME = 0       # when a transaction began
    ARRIVAL = 1    # when its end was read
    COLUMN = 2     # what a column of it has

cpdef enum Mark:
    LATE = 1       # its key is below one that was released
    PART = 2       # what is staged of a transaction whose end is not read yet: more of it follows, and nothing else
    BROKEN = 4     # nothing more of a transaction follows of which parts were released: a marker has to end it

cdef enum:
    FIELDS = 3             # of a slice: member, transaction before which it ends, marks
    NOBODY = -1

UNKNOWN = INT64_MIN
cdef int64_t FAR = <int64_t>1 << 61    # no stamp is beyond it, so that sums of two do not overflow
cdef array.array NUMBERS = array.array("q")


cdef struct Transaction:
    int64_t key
    int64_t size           # bytes, of what is staged


cdef struct Head:          # of all members, the transaction that is next
    int number             # its member; NOBODY if none can be
    int64_t key
    bint late


cdef struct Limit:         # what comes before it is released; equal keys go by member
    int64_t key
    int number


cdef inline bint is_below(int64_t key, int number, Limit limit) noexcept nogil:
    return key < limit.key or (key == limit.key and number < limit.number)


cdef class Lane:
    """What is known of one member."""
    cdef str name
    cdef deque[Transaction] staged
    cdef int64_t next          # the number of the first that is staged
    cdef int64_t last          # the greatest key that it has shown
    cdef int64_t released      # the greatest of its keys that were released
    cdef int64_t bound         # the least key that may come after what is staged
    cdef int64_t bytes         # staged, or handed out by the last release
    cdef int64_t handed
    cdef int64_t pool          # bytes
    cdef int64_t offset        # of its clock from ours
    cdef int64_t rest          # from a stamp to the last time that it may stand for
    cdef int64_t late          # transactions
    cdef bint exact
    cdef bint waited           # others wait for what it may bring
    cdef bint full             # its pool has no room, whatever is counted
    cdef bint is_open          # the end of the last staged transaction is not read yet

    cdef inline bint awaits_end(self) noexcept:
        """Whether its next transaction is one whose end is not read yet."""
        return self.is_open and self.staged.size() == 1

    cdef inline bint is_ready(self) noexcept:
        """Whether its next transaction can be released: it is whole, or more than the pool holds."""
        if self.staged.empty():
            return False
        return not self.awaits_end() or self.full or self.staged.front().size >= self.pool

    cdef inline int64_t shown(self) noexcept:
        """The least key of what it has or may bring."""
        return self.bound if self.staged.empty() else self.staged.front().key

    cdef void clear(self, size_t kept) noexcept:
        """Drops what is staged after the first ``kept`` transactions."""
        while self.staged.size() > kept:
            self.bytes -= self.staged.back().size
            self.staged.pop_back()


cdef class Order:
    cdef By by
    cdef int64_t window                # by which a member may be behind that others wait for again
    cdef list lanes
    cdef readonly int64_t released     # the greatest key that was released, late ones apart
    cdef readonly int streaming        # the member of which a transaction is released in parts; -1 for none
    cdef bint streams_late
    cdef bint broken                   # nothing more comes of that transaction

    def __init__(self, By by, *, int64_t window=0):
        self.by = by
        self.window = window if by == TIME else 0
        self.lanes = []
        self.released = INT64_MIN
        self.streaming = NOBODY

    def add_member(self, str name, *, int64_t pool, bint exact=False, bint whole_seconds=False, bint waited=True):
        """Returns the number of a member; `Merger` explains its options."""
        lane = Lane()
        lane.name = name
        lane.last = lane.released = lane.bound = INT64_MIN
        lane.pool, lane.exact, lane.waited = pool, exact, waited
        lane.rest = 999_999 if whole_seconds else 0
        self.lanes.append(lane)
        return len(self.lanes) - 1

    def resume(self, int number):
        """Goes on inside a transaction of a member, of which parts were released before: what follows of it is next."""
        cdef Lane lane = self.lanes[number]
        lane.staged.push_back(Transaction(INT64_MIN, 0))
        lane.is_open = True
        self.streaming = number

    cdef int64_t key(self, Lane lane, int64_t stamp, int64_t now) noexcept:
        if self.by == ARRIVAL:
            return now
        if self.by == COLUMN and not lane.exact:
            return max(self.released if stamp == INT64_MIN else min(stamp, INT64_MAX - 1), lane.last)
        stamp = min(max(stamp, -FAR), FAR)
        if lane.exact:
            return stamp
        return max(min(stamp + lane.rest - lane.offset, now), lane.last)

    def add(self, int number, const int64_t[::1] stamps, const int64_t[::1] sizes, *, bint is_open, int64_t now):
        """Stages a run of a member's transactions: their stamps, and the bytes that were read of each.

        If the end of the one before was not read, the run begins with what follows of that one, whose stamp is not
        looked at. `is_open` says that the end of the last one is not read yet. The stamp `UNKNOWN` is that of a
        transaction without a key, in the order of a column: it goes out as soon as those before it.
        """
        cdef Lane lane = self.lanes[number]
        cdef Py_ssize_t i = 0, count = stamps.shape[0]
        cdef Transaction transaction
        cdef Transaction *last
        if count == 0 or sizes.shape[0] != count:
            raise ValueError(f"{count} stamps and {sizes.shape[0]} sizes of transactions")
        if lane.is_open:
            last = &lane.staged.back()
            last.size += sizes[0]
            lane.bytes += sizes[0]
            if self.by == ARRIVAL:
                last.key = now
            i = 1
        for i in range(i, count):
            transaction.key = lane.last = self.key(lane, stamps[i], now)
            transaction.size = sizes[i]
            lane.staged.push_back(transaction)
            lane.bytes += sizes[i]
        lane.is_open = is_open
        lane.bound = max(lane.bound, lane.last) if lane.exact else lane.last  # it is no longer caught up
        if lane.last + self.window >= self.released:
            lane.waited = True

    def heartbeat(self, int number, int64_t time):
        """Hears that a member has nothing more now, and that nothing with a lesser key than `time` comes."""
        cdef Lane lane = self.lanes[number]
        if lane.is_open:
            return
        lane.bound = INT64_MAX if self.by == COLUMN and not lane.exact else max(lane.last, time)
        if lane.bound >= self.released:
            lane.waited = True

    def set_offset(self, int number, int64_t offset):
        (<Lane>self.lanes[number]).offset = min(max(offset, -FAR), FAR)

    def set_waited(self, int number, bint waited):
        (<Lane>self.lanes[number]).waited = waited

    def set_full(self, int number, bint full):
        """Hears whether the pool of a member has no room, for another reason than the bytes that are staged."""
        (<Lane>self.lanes[number]).full = full

    def state(self, int number):
        cdef Lane lane = self.lanes[number]
        return State(
            bytes=lane.bytes,
            is_full=lane.full or lane.bytes >= lane.pool,
            transactions=lane.staged.size(),
            next=lane.next,
            key=lane.last,
            late=lane.late,
            is_open=lane.is_open,
            is_waited=lane.waited,
        )

    # --- what is dropped ---------------------------------------------------------------------------------------------

    def reset(self, int number):
        """Drops all that is staged: the member is read again from what was released last.

        A transaction that was released in part goes on: the next run begins with what follows of it.
        """
        cdef Lane lane = self.lanes[number]
        cdef Transaction *part
        lane.is_open = self.streaming == number and not self.broken
        lane.clear(lane.is_open)
        if lane.is_open:
            part = &lane.staged.front()
            lane.bytes -= part.size
            part.size = 0
        lane.last = lane.bound = lane.released

    def leave(self, int number):
        """Nothing more comes of a member: what is whole is released in its turn, and nobody waits for more."""
        cdef Lane lane = self.lanes[number]
        if lane.is_open:
            if lane.staged.size() == 1 and self.streaming == number:
                self.broken = True
            lane.clear(lane.staged.size() - 1)
        lane.is_open = lane.waited = False

    def remove(self, int number):
        """Nothing more of a member is released."""
        cdef Lane lane = self.lanes[number]
        if self.streaming == number:
            self.broken = True
        lane.clear(0)
        lane.is_open = lane.waited = False

    # --- what is next ------------------------------------------------------------------------------------------------

    cdef inline bint is_late(self, int64_t key) noexcept:
        return key < self.released and self.by != ARRIVAL

    cdef Head head(self) noexcept:
        """Which transaction is next: one that is late at once, else that with the least key of all that are ready."""
        cdef Head found = Head(NOBODY, 0, False)
        cdef Lane lane
        cdef int number
        cdef int64_t key
        for number in range(len(self.lanes)):
            lane = <Lane>self.lanes[number]
            if not lane.is_ready():
                continue
            key = lane.staged.front().key
            if self.is_late(key):
                return Head(number, key, True)
            if found.number == NOBODY or key < found.key:
                found = Head(number, key, False)
        return found

    cdef Limit limit(self, int number) noexcept:
        """The least key that any other member has, or may bring."""
        cdef Limit found = Limit(INT64_MAX, <int>len(self.lanes))
        cdef Lane lane
        cdef int other
        cdef int64_t key
        for other in range(len(self.lanes)):
            lane = <Lane>self.lanes[other]
            if other != number and (lane.is_ready() or self.waits_for(lane)):
                key = lane.shown()
                if is_below(key, other, found):
                    found = Limit(key, other)
        return found

    cdef inline bint waits_for(self, Lane lane) noexcept:
        return lane.waited and self.by != ARRIVAL and not lane.is_ready()

    def holders(self):
        """The members that the next transaction waits for; none if it does not wait, or there is none."""
        cdef Head head = self.head()
        cdef Lane lane
        cdef int other
        found = []
        if self.streaming != NOBODY:
            lane = <Lane>self.lanes[self.streaming]
            return [self.streaming] if lane.awaits_end() and lane.staged.front().size == 0 else found
        if head.number == NOBODY or head.late:
            return found
        for other in range(len(self.lanes)):
            lane = <Lane>self.lanes[other]
            if self.waits_for(lane) and is_below(lane.shown(), other, Limit(head.key, head.number)):
                found.append(other)
        return found

    cdef void give(self, vector[int64_t]& slices, int number, int64_t stop, int marks) noexcept:
        slices.push_back(number)
        slices.push_back(stop)
        slices.push_back(marks)

    cdef int64_t stream(self, vector[int64_t]& slices) noexcept:
        """Gives what is staged of the transaction that is released in parts; returns its bytes, 0 to wait for more."""
        cdef Lane lane = <Lane>self.lanes[self.streaming]
        cdef int number = self.streaming
        cdef int late = LATE if self.streams_late else 0
        cdef int64_t size
        cdef Transaction *part
        if self.broken:
            lane.next += 1
            self.give(slices, number, lane.next, BROKEN | late)
            self.streaming, self.broken = NOBODY, False
            return 1
        part = &lane.staged.front()
        size = part.size
        lane.handed += size
        if lane.awaits_end():
            part.size = 0
            if size:
                self.give(slices, number, lane.next + 1, PART | late)
            return size
        lane.staged.pop_front()
        lane.next += 1
        self.give(slices, number, lane.next, late)
        self.streaming = NOBODY
        return max(size, 1)

    cdef int64_t run(self, vector[int64_t]& slices, Head head, int64_t room) except -1:
        """Releases transactions of one member, if they may go; returns their bytes, 0 if there is none."""
        cdef Lane lane
        cdef Limit limit
        cdef Transaction transaction
        cdef int64_t begin, given = 0
        if head.number == NOBODY:
            return 0
        lane = <Lane>self.lanes[head.number]
        if head.late and lane.exact:
            if not slices.empty():
                return 0
            raise SourceError(
                f"member {lane.name}: a transaction with key {head.key} comes after one with key {self.released} was"
                " delivered; its source has to give them in order, see what it reports"
            )
        limit = Limit(self.released, NOBODY) if head.late else self.limit(head.number)
        begin = lane.next
        while given < room and lane.is_ready():
            transaction = lane.staged.front()
            if not is_below(transaction.key, head.number, limit) or self.is_late(transaction.key) != head.late:
                break  # exact keys of a member may go back
            lane.released = max(lane.released, transaction.key)
            if head.late:
                lane.late += 1
            else:
                self.released = transaction.key
            if lane.awaits_end():
                self.streaming, self.streams_late = head.number, head.late
                given += 1  # its parts come next
                break
            lane.staged.pop_front()
            lane.next += 1
            lane.handed += transaction.size
            given += max(transaction.size, 1)
        if lane.next > begin:
            self.give(slices, head.number, lane.next, LATE if head.late else 0)
        return given

    def release(self, int64_t most):
        """The slices that are next, of not many more bytes than `most`: the transaction that exceeds it is given too.

        A slice is three numbers: a member, the transaction before which it ends, and its `Mark`s. The slices of the
        release before have arrived: they are counted in their pools no more. One that is `BROKEN` is the last. Raises
        `SourceError` for a transaction of a member with exact keys that is late.
        """
        cdef vector[int64_t] slices
        cdef Lane lane
        cdef int64_t given, room = most
        cdef array.array found
        for lane in self.lanes:
            lane.bytes -= lane.handed
            lane.handed = 0
        while room > 0 or slices.empty():
            given = self.stream(slices) if self.streaming != NOBODY else self.run(slices, self.head(), room)
            if given == 0:
                break
            room -= given
            if not slices.empty() and slices.back() & BROKEN:
                break
        found = array.clone(NUMBERS, slices.size(), False)
        if not slices.empty():
            memcpy(found.data.as_longlongs, &slices[0], slices.size() * sizeof(int64_t))
        return found
