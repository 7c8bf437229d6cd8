"""What is staged of the members of a group: each has a ring that its parser fills, from which its transactions move on.

A pool tells the merger what its ring has got, transaction by transaction, and `move` copies what the merger releases
into the staging of the group's ring. So nothing is done in Python for each transaction. All of it belongs to the thread
that merges; a parser only puts.
"""

from cpython cimport array
from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy
from libcpp.deque cimport deque
from libcpp.vector cimport vector

import array

from ...protocol.canal.entry cimport (
    IMAGE_AFTER,
    IMAGE_BEFORE,
    Cell,
    Entry,
    Fields,
    checked,
    fields_of,
    get_cell,
    get_entry,
    malformed,
    next_column_of,
    next_entry,
    next_row,
)
from ...protocol.wire cimport VARINT_MAX, Span, WireField, get_field, is_same, put_varint, span_at, varint_size
from ...store.ring cimport BOUNDARY, ROW_DATA, Registry, Ring, Slot, Staging
from ...store.segment cimport Segment, SegmentWriter

from ...protocol import props
from ...protocol.canal.entry_pb2 import Header, Pair
from ...protocol.errors import DecodeError

cdef enum:
    FIELDS = 3                             # of a slice of `Order.release`: member, transaction, marks
    MESSAGES = 0x12                        # the tag of an entry in `Messages`, as `Ring` frames it
    HEADER = 0x0A                          # the tag of an entry's header, which is its first field
    LATE = 1                               # of `sluice.instance.merge.order.Mark`, as the next ones
    PART = 2
    BROKEN = 4

cdef int64_t UNKNOWN = INT64_MIN           # the key of a transaction without one

cdef array.array NUMBERS = array.array("q")


cdef inline int64_t stamp_of(const Slot *slot, int64_t now) noexcept:
    """The time that a slot begins at, µs; of one in whole seconds, or ms, the last that it may stand for."""
    if slot.commit_us:
        return slot.commit_us
    if slot.execute_ms == 0:               # a position that a heartbeat has proven
        return now
    return slot.execute_ms * 1000 + (999 if slot.execute_ms % 1000 else 999_999)


cdef inline int64_t number_in(const uint8_t *p, const uint8_t *end) noexcept:
    """A whole number; of one that is too large the largest, and UNKNOWN for anything else."""
    cdef bint is_negative = p < end and p[0] == 45
    cdef int64_t found = 0
    p += is_negative
    if p == end:
        return UNKNOWN
    while p < end:
        if not 48 <= p[0] <= 57:
            return UNKNOWN
        found = INT64_MAX if found > (INT64_MAX - 9) // 10 else found * 10 + (p[0] - 48)
        p += 1
    return -found if is_negative else found


cdef int64_t key_in(Span text) noexcept:
    """The key that a value stands for: a whole number, or a date with or without a time; else UNKNOWN.

    That of a time only has its order: a month has 31 days.
    """
    cdef const uint8_t *p = text.data
    cdef const uint8_t *end = p + text.size
    cdef int64_t key, part, limit
    cdef size_t i
    if text.size < 10 or p[4] != 45:
        return number_in(p, end)
    key = number_in(p, p + 4)
    for i in range(1, 6):                  # 2026-11-28 11:06:33
        limit = 12 if i == 1 else 31 if i == 2 else 24 if i == 3 else 60
        part = 0
        if 3 * i + 4 <= text.size:
            part = number_in(p + 3 * i + 2, p + 3 * i + 4)
        if key < 0 or part < 0:
            return UNKNOWN
        key = key * (limit + 1) + part
    part = 0
    for i in range(20, 26):                # .123456
        part = part * 10 + (p[i] - 48 if i < text.size and 48 <= p[i] <= 57 else 0)
    return key * 1_000_000 + part


cdef array.array numbers_of(const vector[int64_t]& numbers):
    cdef array.array found = array.clone(NUMBERS, numbers.size(), False)
    if not numbers.empty():
        memcpy(found.data.as_longlongs, numbers.data(), numbers.size() * sizeof(int64_t))
    return found


cdef class Pool:
    """What is staged of one member.

    Attributes:
        member: its name.
        ring: what its parser fills. It holds what the merger has not released, and nothing else.
        taken: the slot up to which the merger knows it.
        executed: the GTID set that is executed after what has moved; None if it is unknown.
    """
    cdef readonly str member
    cdef readonly Ring ring
    cdef readonly int64_t taken
    cdef public object executed
    cdef int64_t moved             # the slots before it have moved on
    cdef int64_t next              # the number of the transaction that ends first of those in `ends`
    cdef deque[int64_t] ends       # the slots after those of each whole transaction
    cdef bint is_open              # the last transaction that was taken has no end yet
    cdef bytes props               # what is added to each header ...
    cdef bytes late_props          # ... and to that of a transaction which is late
    cdef bytes column              # of which the first row of a transaction has its key; empty if that is its time
    cdef vector[uint32_t] sources, files, tables, gtid_sources     # numbers in the group's ring; 0: not known yet

    def __init__(self, str member not None, Ring ring not None, *, str column not None="", int64_t first=0):
        """`column` is the one whose values are the keys of transactions; empty if their times are.

        `first` is the number that the merger gives to the first transaction.
        """
        self.member = member
        self.next = first
        self.ring = ring
        self.column = column.encode()
        named = [Pair(key=props.MEMBER, value=member)]
        self.props = Header(props=named).SerializeToString()
        self.late_props = Header(props=[*named, Pair(key=props.DISORDER, value="late")]).SerializeToString()

    def take(self, int64_t now, bint is_over=False):
        """What the ring has got since, as `Merger.add` is told of it: (stamps, sizes, is_open). `now` in µs.

        `is_over` says that nothing more comes: what is there of a transaction without an end is all that is wanted.
        """
        cdef vector[int64_t] stamps, sizes
        cdef int64_t stop = self.ring.next, sequence
        cdef const Slot *slot
        cdef bint is_new = True            # no transaction of this call has begun
        if self.column and not (is_over or self.ring.waiting):
            stop = self.keyed(stop)
        for sequence in range(self.taken, stop):
            slot = self.ring.at(sequence)
            if is_new:
                stamps.push_back(self.key_at(sequence, stop) if self.column else stamp_of(slot, now))
                sizes.push_back(0)
                is_new = False
            sizes[sizes.size() - 1] += slot.length
            if slot.flags & BOUNDARY:
                self.ends.push_back(sequence + 1)
                is_new = True
        if self.taken < stop:
            self.is_open = not is_new
        self.taken = stop
        if is_over and self.is_open:
            self.is_open = False
            self.ends.push_back(stop)
            if sizes.empty():
                stamps.push_back(now)
                sizes.push_back(0)
        return numbers_of(stamps), numbers_of(sizes), self.is_open

    cdef int64_t keyed(self, int64_t stop):
        """Up to where keys are known, `stop` at most: the last transaction may have no row yet, and no end."""
        cdef int64_t sequence = stop
        cdef const Slot *slot
        while sequence > self.taken:
            slot = self.ring.at(sequence - 1)
            if slot.flags & BOUNDARY:
                return sequence
            if slot.kind == ROW_DATA:
                return stop
            sequence -= 1
        return stop if self.is_open else sequence

    cdef int64_t key_at(self, int64_t sequence, int64_t stop) except? -1:
        """The key of a transaction that begins at a slot: what its first row has in the column, if that is there."""
        cdef const Slot *slot
        for sequence in range(sequence, stop):
            slot = self.ring.at(sequence)
            if slot.kind == ROW_DATA:
                return self.key_of(slot)
            if slot.flags & BOUNDARY:
                break
        return UNKNOWN

    cdef int64_t key_of(self, const Slot *slot) except? -1:
        cdef Span column, name = span_at(<const char *>self.column, len(self.column))
        cdef Fields fields, cells
        cdef Span message, row
        cdef Entry entry
        cdef Cell cell
        cdef int image
        fields = fields_of(span_at(<const char *>(<Segment>slot.segment).data + slot.offset, slot.length))
        if checked(next_entry(&fields, &message)) == 0 or not get_entry(message, &entry):
            malformed()
        fields = fields_of(entry.body)
        if checked(next_row(&fields, &row)) == 0:
            return UNKNOWN
        for image in (IMAGE_AFTER, IMAGE_BEFORE):      # a row that is deleted has only the latter
            cells = fields_of(row)
            while checked(next_column_of(&cells, image, &column)):
                if not get_cell(column, &cell):
                    malformed()
                if is_same(cell.name, name):
                    return UNKNOWN if cell.is_null else key_in(cell.value)
        return UNKNOWN

    cdef uint32_t number(
        self, vector[uint32_t]& known, uint32_t number, Registry own, Registry to, bint named
    ) except? 0:
        """The number in the group's ring of what has a number in this one's; ``named``: its key has the member."""
        if number == 0:
            return 0
        if number >= known.size():
            known.resize(number + 1, 0)
        if known[number] == 0:
            key = own[number]
            known[number] = to.intern((self.member, key[1]) if named else key)
        return known[number]

    cdef int copy(self, int64_t sequence, Ring to, Staging staging, SegmentWriter writer, bytes more) except -1:
        """Stages a copy of a slot, and of its entry with further properties in its header."""
        cdef Slot slot = self.ring.at(sequence)[0]     # by value: giving numbers runs Python
        cdef Slot *staged
        slot.source = self.number(self.sources, slot.source, self.ring.sources, to.sources, True)
        slot.gtid = self.number(self.gtid_sources, slot.gtid, self.ring.gtid_sources, to.gtid_sources, True)
        slot.file = self.number(self.files, slot.file, self.ring.files, to.files, False)
        slot.next_file = self.number(self.files, slot.next_file, self.ring.files, to.files, False)
        slot.table = self.number(self.tables, slot.table, self.ring.tables, to.tables, False)
        if slot.length == 0:
            staging.advance()[0] = slot
            return 0
        self.write(&slot, writer, more)
        staged = staging.finish(writer)
        slot.segment, slot.offset, slot.length = staged.segment, staged.offset, staged.length
        staged[0] = slot
        return 0

    # Messages.messages: tag 0x12, length, Entry; Entry: header (tag 0x0A, length, Header), then its other fields.
    cdef int write(self, const Slot *slot, SegmentWriter writer, bytes more) except -1:
        cdef const uint8_t *data = <const uint8_t *>(<Segment>slot.segment).data + slot.offset
        cdef const uint8_t *end = data + slot.length
        cdef const uint8_t *rest
        cdef WireField entry, header
        cdef size_t added = len(more), size
        if data[0] != MESSAGES or get_field(data, end, &entry) != end or entry.data[0] != HEADER:
            raise DecodeError(f"member {self.member}: an entry without a header")
        rest = get_field(entry.data, end, &header)
        if rest == NULL:
            raise DecodeError(f"member {self.member}: an entry whose header is cut off")
        size = 1 + varint_size(header.size + added) + header.size + added + (end - rest)
        writer.reserve(1 + VARINT_MAX + size)
        writer.cursor = put_varint(put_varint(<uint8_t *>writer.cursor, MESSAGES), size)
        writer.cursor = put_varint(put_varint(<uint8_t *>writer.cursor, HEADER), header.size + added)
        writer.append(header.data, header.size)
        writer.append(<const uint8_t *>more, added)
        writer.append(rest, end - rest)
        return 0


def move(list pools not None, const int64_t[::1] slices not None, Ring to not None, Staging staging not None,
         SegmentWriter writer not None):
    """Stages what `Merger.release` has released for the group's ring, and frees it in the rings of the pools.

    The pools are those of the members, by their numbers. A transaction that is broken, which has no end, is passed
    over: the caller ends it.
    """
    cdef Py_ssize_t i
    cdef int64_t stop, end, sequence
    cdef Pool pool
    for i in range(0, slices.shape[0], FIELDS):
        pool = <Pool?>pools[slices[i]]
        stop = slices[i + 1]
        if slices[i + 2] & BROKEN:         # it is the last slice, and nothing more comes of the pool
            continue
        if slices[i + 2] & PART:
            end = pool.taken
        else:
            if not 0 < stop - pool.next <= <int64_t>pool.ends.size():
                raise IndexError(f"member {pool.member}: transaction {stop} is not in its pool")
            end = pool.ends[stop - pool.next - 1]
            pool.ends.erase(pool.ends.begin(), pool.ends.begin() + (stop - pool.next))
            pool.next = stop
        for sequence in range(pool.moved, end):
            pool.copy(sequence, to, staging, writer, pool.late_props if slices[i + 2] & LATE else pool.props)
        pool.moved = end
    for pool in pools:
        if pool.executed is not None and pool.moved > pool.ring.first:
            for number, first, last in pool.ring.gtid_runs(pool.ring.first, pool.moved):
                pool.executed.add(pool.ring.gtid_sources[number][1], first, last)
        pool.ring.free_to(pool.moved)
