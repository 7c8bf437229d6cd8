"""From which place of the stream on entries are wanted, and up to which."""

from libc.stdint cimport int64_t, uint32_t


cdef class Limits:
    cdef bint skipping                 # the place from which on entries are wanted has not come
    cdef str skip_file
    cdef object skip_created
    cdef int64_t skip_begin
    cdef uint32_t skip_n
    cdef object stop
    cdef bint stopping                 # in the file of the stop position
    cdef bint stopped                  # in a later file
    cdef int64_t stop_begin
    cdef uint32_t stop_n

    cdef int start(self, position, stop) except -1
    # A file begins after another one, which is None for the first.
    cdef int start_file(self, str name, int64_t created, str before) except -1

    cdef inline bint wants(self, int64_t begin, uint32_t n) noexcept nogil:
        """Whether an event at this position is wanted."""
        if self.skipping and (begin > self.skip_begin or (begin == self.skip_begin and n >= self.skip_n)):
            self.skipping = False
        return not self.skipping

    cdef inline bint is_partial(self, int64_t begin, uint32_t n) noexcept nogil:
        """Whether an event at this position is not wanted, but the rest of its transaction is."""
        return self.skipping and begin == self.skip_begin and n < self.skip_n

    cdef inline bint is_past(self, int64_t begin) noexcept nogil:
        """Whether nothing of a transaction that begins there is wanted."""
        return self.skipping and begin < self.skip_begin

    cdef inline bint stops_between(self, int64_t offset) noexcept nogil:
        """Whether a place outside any transaction is the stop position or after it."""
        if not self.stopping:
            return self.stopped
        return offset >= self.stop_begin and (offset > self.stop_begin or self.stop_n == 0)

    cdef inline bint stops_within(self, int64_t begin, uint32_t n) noexcept nogil:
        """Whether a place in a transaction is the stop position or after it."""
        if not self.stopping:
            return self.stopped
        return begin > self.stop_begin or (begin == self.stop_begin and n >= self.stop_n)
