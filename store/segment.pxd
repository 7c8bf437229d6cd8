"""Memory that entries are written to once and read from until it is recycled."""

from libc.string cimport memcpy


cdef class SegmentPool:
    cdef readonly Py_ssize_t segment_size      # bytes of an ordinary segment
    cdef readonly Py_ssize_t budget            # nothing is kept as a spare when more bytes than this are allocated
    cdef readonly Py_ssize_t allocated         # bytes of all segments alive: current, in the ring, pinned, spare
    cdef readonly Py_ssize_t pinned            # bytes of segments that only an exported buffer keeps
    cdef readonly Py_ssize_t largest           # bytes of the largest segment so far
    cdef public object changed                 # Condition of the ring, notified when pinned bytes become free, or None
    cdef set alive                             # owns every segment whose memory is in use
    cdef list spare
    cdef Py_ssize_t unused                     # spare segments that were not needed since the last trim()
    cdef Segment acquire(self, size_t least)
    cdef Py_ssize_t used(self) noexcept        # bytes of segments that are not spare
    cdef void settle(self, Segment segment)    # recycle the segment if nothing needs it any more


cdef class Segment:
    cdef SegmentPool pool
    cdef unsigned char *data
    cdef readonly size_t capacity
    cdef readonly Py_ssize_t slots             # slots, staged or in the ring, that are in this segment
    cdef readonly Py_ssize_t exports           # buffers handed out and not released
    cdef bint written                          # a writer still appends to it
    cdef bint pinned                           # counted in SegmentPool.pinned

    cdef void resize(self, size_t capacity) except *
    cdef Py_ssize_t count(self, Py_ssize_t change) noexcept nogil      # change `slots`, from any thread: the new number


cdef class SegmentWriter:
    """Appends entries to the current segment; an entry never spans two.

    An entry is begun by nothing, made by reserve() and writes at `cursor`, and ended by Staging.finish(writer);
    `writer.cursor = writer.entry` throws it away.
    """
    cdef SegmentPool pool
    cdef Segment segment
    cdef unsigned char *entry                  # the beginning of the unfinished entry
    cdef unsigned char *cursor                 # the next byte to write
    cdef unsigned char *limit                  # the end of the segment

    # Makes room for n more bytes by moving the unfinished entry to a larger or fresh segment. Pointers into the
    # unfinished entry are invalid afterwards: keep offsets from `entry`.
    cdef int grow(self, size_t n) except -1 nogil
    cdef int grow_with_gil(self, size_t n) except -1

    # Ends the unfinished entry; Staging.finish() calls it after it has counted the entry's slot.
    cdef int next_entry(self) except -1 nogil

    cdef inline int reserve(self, size_t n) except -1 nogil:
        if <size_t>(self.limit - self.cursor) < n:
            return self.grow(n)
        return 0

    cdef inline int append(self, const void *data, size_t size) except -1 nogil:       # to the unfinished entry
        self.reserve(size)
        memcpy(self.cursor, data, size)
        self.cursor += size
        return 0

    cpdef int close(self) except -1            # at the end of the writer's life: gives its segment up
    cpdef int write(self, const unsigned char[::1] data) except -1     # appends to the unfinished entry
    cpdef int write_framed(self, const unsigned char[::1] entry) except -1     # ... with its tag and length before it
