"""Inflating what the servers compressed: MariaDB's events with zlib, MySQL's transactions with zstd."""

from libc.stdint cimport uint8_t, uint64_t


cdef class Inflater:
    cdef uint8_t *data
    cdef size_t capacity
    cdef size_t largest            # bytes that an event may have when inflated

    # Inflates one compressed part of a MariaDB event; the result is in `data` until the next call.
    cdef size_t inflate(self, const uint8_t *part, const uint8_t *end) except? 0 nogil
    cdef int reserve(self, size_t size) except -1 nogil


cdef class PayloadReader:
    cdef void *stream              # ZSTD_DStream, made at the first compressed payload
    cdef readonly bint active
    cdef bint compressed
    cdef const uint8_t *body       # of the event
    cdef const uint8_t *body_end
    cdef const uint8_t *source
    cdef const uint8_t *source_end
    cdef uint64_t rest             # bytes of the inflated payload that have not been handed out
    cdef uint8_t *data             # inflated, not yet handed out: from start to end
    cdef size_t capacity
    cdef size_t largest            # bytes of an inner event
    cdef size_t start
    cdef size_t end

    cdef int open(self, const uint8_t *body, const uint8_t *end) except -1 nogil
    # The next inner event, header first, or NULL at the end of the payload. Valid until the next call.
    cdef const uint8_t *next(self, size_t *size) except? NULL nogil
    cdef int fill(self, size_t least) except -1 nogil
    cdef int expect_end(self) except -1 nogil
    cdef void close(self) noexcept nogil
