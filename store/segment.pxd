"""Memory that entries are written to once and read from until it is recycled."""


cdef class SegmentPool:
    cdef readonly Py_ssize_t segment_size      # bytes of an ordinary segment
    cdef readonly Py_ssize_t allocated         # bytes of all segments alive: current, in the ring, pinned, spare
    cdef set alive                             # owns every segment whose memory is in use
    cdef list spare
    cdef Segment acquire(self, size_t least)
    cdef void settle(self, Segment segment)    # recycle the segment if nothing needs it any more


cdef class Segment:
    cdef SegmentPool pool
    cdef unsigned char *data
    cdef readonly size_t capacity
    cdef readonly Py_ssize_t slots             # slots, staged or in the ring, that lie in this segment
    cdef readonly Py_ssize_t exports           # buffers handed out and not released
    cdef bint written                          # a writer still appends to it


cdef class SegmentWriter:
    """Appends entries to the current segment; an entry never spans two."""
    cdef SegmentPool pool
    cdef Segment segment
    cdef unsigned char *entry                  # where the unfinished entry begins
    cdef unsigned char *cursor                 # the next byte to write
    cdef unsigned char *limit                  # the end of the segment

    # Makes room for n more bytes by moving the unfinished entry to a larger or fresh segment. Pointers into the
    # unfinished entry are invalid afterwards: keep offsets from `entry`.
    cdef int grow(self, size_t n) except -1 nogil

    cdef inline int reserve(self, size_t n) except -1 nogil:
        if <size_t>(self.limit - self.cursor) < n:
            return self.grow(n)
        return 0
