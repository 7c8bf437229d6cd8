"""What is staged of the members of a group: each has a ring that its parser fills, from which its transactions move on.

A pool tells the merger what its ring has got, transaction by transaction, and `move` copies what the merger releases
into the staging of the group's ring. So nothing is done in Python for each transaction. All of it belongs to the thread
that merges; a parser only puts.
"""

from cpython cimport array
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcpy
from libcpp.deque cimport deque
from libcpp.vector cimport vector

import array

from ...protocol.wire cimport VARINT_MAX, WireField, get_field, put_varint, varint_size
from ...store.ring cimport BOUNDARY, Registry, Ring, Slot, Staging
from ...store.segment cimport Segment, SegmentWriter

from ...protocol.canal.entry_pb2 import Header, Pair
from ...protocol.errors import DecodeError, SourceError

cdef enum:
    FIELDS = 3                             # of a slice of `Order.release`: member, transaction, marks
    MESSAGES = 0x12                        # the tag of an entry in `Messages`, as `Ring` frames it
    HEADER = 0x0A                          # the tag of an entry's header, which is its first field
    PART = 2                               # of `sluice.instance.merge.order.Mark`, as the next one
    BROKEN = 4

cdef array.array NUMBERS = array.array("q")


cdef inline int64_t stamp_of(const Slot *slot, int64_t now) noexcept:
    """The time that a slot begins at, µs; of one in whole seconds, or ms, the last that it may stand for."""
    if slot.commit_us:
        return slot.commit_us
    if slot.execute_ms == 0:               # a position that a heartbeat has proven
        return now
    return slot.execute_ms * 1000 + (999 if slot.execute_ms % 1000 else 999_999)


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
    """
    cdef readonly str member
    cdef readonly Ring ring
    cdef readonly int64_t taken
    cdef int64_t moved             # the slots before it have moved on
    cdef int64_t next              # the number of the transaction that ends first of those in `ends`
    cdef deque[int64_t] ends       # the slots after those of each whole transaction
    cdef bint is_open              # the last transaction that was taken has no end yet
    cdef bint is_counted_full      # since something moved on last
    cdef bytes props               # what is added to each header
    cdef vector[uint32_t] sources, files, tables, gtid_sources     # numbers in the group's ring; 0: not known yet

    def __init__(self, str member not None, Ring ring not None, str key not None):
        """`key` is that of the property of headers in which the member's name is."""
        self.member = member
        self.ring = ring
        self.props = Header(props=[Pair(key=key, value=member)]).SerializeToString()

    def take(self, int64_t now):
        """What the ring has got since, as `Merger.add` is told of it: (stamps, sizes, is_open). `now` in µs.

        If the ring is full, by its slots or by what its segments leave unused, so is the pool of the merger.
        """
        cdef vector[int64_t] stamps, sizes
        cdef int64_t stop = self.ring.next, sequence
        cdef const Slot *slot
        cdef bint is_new = True            # no transaction of this call has begun
        for sequence in range(self.taken, stop):
            slot = self.ring.at(sequence)
            if is_new:
                stamps.push_back(stamp_of(slot, now))
                sizes.push_back(0)
                is_new = False
            sizes[sizes.size() - 1] += slot.length
            if slot.flags & BOUNDARY:
                self.ends.push_back(sequence + 1)
                is_new = True
        if self.taken < stop:
            self.is_open = not is_new
        self.taken = stop
        if self.is_open and self.ring.waiting and not self.is_counted_full:
            self.is_counted_full = True
            if sizes.empty():
                stamps.push_back(now)
                sizes.push_back(0)
            sizes[sizes.size() - 1] += self.ring.memory
        return numbers_of(stamps), numbers_of(sizes), self.is_open

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

    cdef int copy(self, int64_t sequence, Ring to, Staging staging, SegmentWriter writer) except -1:
        """Stages a copy of a slot, and of its entry with the member's name in its header."""
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
        self.write(&slot, writer)
        staged = staging.finish(writer)
        slot.segment, slot.offset, slot.length = staged.segment, staged.offset, staged.length
        staged[0] = slot
        return 0

    # Messages.messages: tag 0x12, length, Entry; Entry: header (tag 0x0A, length, Header), then its other fields.
    cdef int write(self, const Slot *slot, SegmentWriter writer) except -1:
        cdef const uint8_t *data = <const uint8_t *>(<Segment>slot.segment).data + slot.offset
        cdef const uint8_t *end = data + slot.length
        cdef const uint8_t *rest
        cdef WireField entry, header
        cdef size_t added = len(self.props), size
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
        writer.append(<const uint8_t *>self.props, added)
        writer.append(rest, end - rest)
        return 0


def move(list pools not None, const int64_t[::1] slices not None, Ring to not None, Staging staging not None,
         SegmentWriter writer not None):
    """Stages what `Merger.release` has released for the group's ring, and frees it in the rings of the pools.

    The pools are those of the members, by their numbers. Raises SourceError for a member that has left inside a
    transaction of which parts are put.
    """
    cdef Py_ssize_t i
    cdef int64_t stop, end, sequence
    cdef Pool pool
    for i in range(0, slices.shape[0], FIELDS):
        pool = <Pool?>pools[slices[i]]
        stop = slices[i + 1]
        if slices[i + 2] & BROKEN:
            raise SourceError(f"member {pool.member}: it has ended inside a transaction of which parts were delivered")
        if slices[i + 2] & PART:
            end = pool.taken
        else:
            end = pool.ends[stop - pool.next - 1]
            pool.ends.erase(pool.ends.begin(), pool.ends.begin() + (stop - pool.next))
            pool.next = stop
        for sequence in range(pool.moved, end):
            pool.copy(sequence, to, staging, writer)
        pool.moved = end
        pool.is_counted_full = False
    for pool in pools:
        pool.ring.free_to(pool.moved)
