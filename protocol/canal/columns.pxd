"""Columns with what their types mean, for visitors that write values by their kind.

What a column begins with is the same in all rows of a table (see entry.pxd), so that its type is looked at once.
"""

from libc.stdint cimport uint8_t
from libcpp.string cimport string
from libcpp.unordered_map cimport unordered_map

from ..wire cimport Span
from .entry cimport Cell


cdef enum:
    PLACES = 64                                    # columns of a row whose beginning is known again


cdef struct Meaning:
    const uint8_t *prefix                          # the bytes of a column before `updated` and `value` ...
    size_t prefix_size
    Cell cell                                      # ... and what they say
    int kind                                       # ValueKind, or what another `learn` says
    size_t width                                   # bytes of each value of a binary(n), else 0


cdef class Columns:
    """What columns mean. What was returned is valid until the next call."""
    cdef unordered_map[string, Meaning] meanings   # by their prefix
    cdef const Meaning *hints[PLACES]              # of the columns at these places of the last row
    cdef Meaning scratch                           # of a column whose bytes are in another order than ours

    cdef const Meaning *read(self, Span message, size_t place, Cell *cell) except NULL nogil
    cdef int learn(self, Meaning *meaning) except -1
    cdef void shrink(self) noexcept
