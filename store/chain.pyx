"""The chain of cuts that a ring of several members holds, as far as it is looked for slot by slot."""

from libc.stdint cimport int64_t
from libcpp.vector cimport vector

from .ring cimport Ring, Slot


cdef struct Limit:         # the place up to which slots of a source are had
    int64_t rank           # of its file; -1: none is
    int64_t begin
    int64_t n


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


def run(Ring ring not None, int64_t start, int64_t stop, list limits not None, list ranks not None):
    """Whether the slot `start` is had, and the first slot up to `stop` with which that changes: (had, end).

    A slot is had if it ends at or before a place of its source: (number of the source, rank of the file, begin, n) in
    `limits`. `ranks` has the rank of each file by its number.
    """
    cdef vector[Limit] had
    cdef vector[int64_t] rank = ranks
    cdef Limit limit = Limit(-1, 0, 0)
    cdef int64_t sequence
    cdef bint first = False
    ring.check(start, stop)
    ring.check(stop, ring.next)
    had.resize(len(ring.sources) + 1, limit)
    for source, limit.rank, limit.begin, limit.n in limits:
        had[source] = limit
    for sequence in range(start, stop):
        if sequence == start:
            first = is_had(ring.at(sequence), had, rank)
        elif is_had(ring.at(sequence), had, rank) != first:
            return first, sequence
    return first, stop


cdef bint is_had(const Slot *slot, const vector[Limit]& had, const vector[int64_t]& ranks) noexcept:
    cdef Limit limit = had[slot.source]
    cdef int64_t rank = ranks[slot.next_file]
    if rank != limit.rank:
        return rank < limit.rank
    if slot.next_begin != limit.begin:
        return slot.next_begin < limit.begin
    return slot.next_n <= limit.n
