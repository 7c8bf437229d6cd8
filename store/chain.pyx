"""The chain of cuts that a ring of several members holds, as far as it is looked for slot by slot."""

from libc.stdint cimport int64_t
from libcpp.vector cimport vector

from .ring cimport Ring, Slot


def last_places(Ring ring not None, int64_t start, int64_t stop):
    """The places after the last slot of each source in [start, stop), as `Ring.after`, in the order of these slots."""
    cdef vector[int64_t] last
    cdef int64_t sequence
    cdef Slot *slot
    ring.check(start, stop)
    ring.check(stop, ring.next)
    last.resize(len(ring.sources) + 1, -1)
    for sequence in range(start, stop):
        last[ring.at(sequence).source] = sequence
    found = []
    for sequence in sorted([it for it in last if it >= 0]):
        slot = ring.at(sequence)
        found.append((slot.source, slot.next_file, slot.next_begin, slot.next_n))
    return found


cdef class Had:
    """The slots of a ring that end at or before a place of their source.

    `limits` has these places: (number of the source, rank of the file, begin, n). `ranks` has the rank of each file by
    its number. Slots of sources and files that the ring gets later are not to be asked for.
    """

    def __cinit__(self, Ring ring not None, list limits not None, list ranks not None):
        cdef Limit limit = Limit(-1, 0, 0)
        self.ranks = ranks
        self.limits.resize(len(ring.sources) + 1, limit)
        for source, limit.rank, limit.begin, limit.n in limits:
            self.limits[source] = limit

    cdef bint has(self, const Slot *slot) noexcept:
        cdef Limit limit = self.limits[slot.source]
        cdef int64_t rank = self.ranks[slot.next_file]
        if rank != limit.rank:
            return rank < limit.rank
        if slot.next_begin != limit.begin:
            return slot.next_begin < limit.begin
        return slot.next_n <= limit.n


def run(Ring ring not None, int64_t start, int64_t stop, Had had not None):
    """Whether the slot `start` is had, and the first slot up to `stop` with which that changes: (had, end)."""
    cdef int64_t sequence
    cdef bint first = False
    ring.check(start, stop)
    ring.check(stop, ring.next)
    for sequence in range(start, stop):
        if sequence == start:
            first = had.has(ring.at(sequence))
        elif had.has(ring.at(sequence)) != first:
            return first, sequence
    return first, stop
