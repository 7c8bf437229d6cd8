"""Collations of MySQL and MariaDB: how texts compare."""

from libc.stdint cimport uint8_t, uint16_t, uint32_t


cdef enum Manner:
    AS_BYTES = 0           # of the column's own character set
    AS_POINTS = 1          # code points
    BY_WEIGHTS = 2


cdef struct Weights:       # of a collation of Unicode
    const uint32_t *pages[0x1100]      # by code point: offset in `pool` << 4 | count; NULL: the code point says it
    const uint16_t *pool
    bint is_uca            # what has no page: weights from the code point, as in UCA; else one for all


cdef class Collation:
    cdef readonly Manner manner
    cdef readonly bint pads            # the shorter of two texts is as if it went on with spaces
    cdef readonly bint is_single_byte
    cdef readonly str charset
    cdef Weights *weights              # BY_WEIGHTS
    cdef bytes prepare(self, str text)
    cdef bytes prepare_pattern(self, str pattern)


cdef Collation get_collation(int number)

# How the text compares with a constant that is prepared by `Collation.prepare`: below 0, 0, above 0.
cdef int compare(
    Collation collation, const uint8_t *text, size_t size, const uint8_t *constant, size_t constant_size
) noexcept nogil

# Whether the text matches a pattern that is prepared by `Collation.prepare_pattern`.
cdef bint matches(
    Collation collation, const uint8_t *text, size_t size, const uint32_t *pattern, size_t pattern_size
) noexcept nogil
