"""Which entries of transactions Canal leaves out."""

from libc.stdint cimport int64_t

cdef enum:
    # Canal lets an empty transaction, or a filtered BEGIN or END, through:
    INTERVAL = 5000                # ms after the last one that it let through
    THRESHOLD = 8192               # or after this number that it left out


cdef class TransactionFilter:
    """Which entries of transactions Canal leaves out: those of empty ones, and with a filter almost all."""

    def __init__(self, bint drops_entries):
        self.drops_entries = drops_entries

    cdef bint passes_empty(self, int64_t time_ms) noexcept nogil:
        """Whether an empty transaction is let through."""
        if -INTERVAL <= time_ms - self.last_empty_ms <= INTERVAL:
            self.empty_count += 1
            if self.empty_count <= THRESHOLD:
                return False
        self.empty_count = 0
        self.last_empty_ms = time_ms
        return True

    cdef bint passes_now_and_then(self, int64_t time_ms, bint is_end) noexcept nogil:
        """Whether a BEGIN or END is one of the few that pass."""
        if -INTERVAL <= time_ms - self.last_end_ms <= INTERVAL:
            self.dropped_count += 1
            if self.dropped_count <= THRESHOLD:
                return False
        if is_end:
            self.dropped_count = 0
            self.last_end_ms = time_ms
        return True
