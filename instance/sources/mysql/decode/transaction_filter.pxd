"""Which entries of transactions Canal leaves out."""

from libc.stdint cimport int64_t


cdef class TransactionFilter:
    cdef bint drops_entries            # filterTransactionEntry
    cdef int64_t last_empty_ms, last_end_ms
    cdef int64_t empty_count, dropped_count

    cdef bint passes_empty(self, int64_t time_ms) noexcept nogil
    cdef bint passes_now_and_then(self, int64_t time_ms, bint is_end) noexcept nogil

    cdef inline bint passes(self, int64_t time_ms, bint is_end) noexcept nogil:
        """Whether a BEGIN or END passes filterTransactionEntry."""
        return not self.drops_entries or self.passes_now_and_then(time_ms, is_end)
