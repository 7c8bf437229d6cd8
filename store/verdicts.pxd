"""What conditions on rows have said of the entries of a ring."""

from libc.stdint cimport int64_t, uint8_t, uint32_t
from libcpp.deque cimport deque
from libcpp.vector cimport vector


cdef struct Verdict:
    const uint8_t *data        # the framed entry with the rows that match; NULL: it is as in the ring
    uint32_t length            # of the framed entry; 0: none of its rows match
    uint32_t rows


cdef struct PinnedEntry:
    const uint8_t *data        # framed
    uint32_t length            # 0 of what is not an entry with rows
    uint32_t table
    uint32_t rows
    uint32_t slot_length


cdef class Pinned:
    """Slots of a ring on their way through a thread that judges them; it pins their entries."""
    cdef readonly int64_t start
    cdef readonly object tables                # the registry of the ring
    cdef vector[PinnedEntry] entries
    cdef list views
    cdef vector[Verdict] verdicts              # so far; `data` of a cut entry is its place in `cuts`, plus 1
    cdef bytes cuts                            # those entries, one after the other
    cdef readonly list errors                  # (sequence, FilterError) of what cannot be judged, in order


cdef class Verdicts:
    """What a condition has said of the slots of a ring from its first one on."""
    cdef object __weakref__
    cdef readonly object judge
    cdef readonly int64_t first
    cdef readonly int64_t next                 # the slots from here on are not judged yet
    cdef public bint is_busy                   # a thread judges the slots from `next` on
    cdef deque[Verdict] verdicts
    cdef object errors                         # (sequence, FilterError) of what cannot be judged, in order
    cdef object pieces                         # of (the sequence after the last of its entries, bytes)

    cdef int release(self, int64_t sequence) except -1
    cdef view(self, int64_t sequence)


cdef inline const Verdict *verdict_at(Verdicts verdicts, int64_t sequence) noexcept:
    """NULL before it is judged, and without a condition."""
    if verdicts is None or not verdicts.first <= sequence < verdicts.next:
        return NULL
    return &verdicts.verdicts[<size_t>(sequence - verdicts.first)]
