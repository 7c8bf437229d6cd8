"""What a reader of a ring of several members has of their slots."""

from libc.stdint cimport int64_t
from libcpp.vector cimport vector

from .ring cimport Slot


cdef struct Limit:         # the place up to which slots of a source are had
    int64_t rank           # of its file; -1: none is
    int64_t begin
    int64_t n


cdef class Had:
    """The slots that end at or before a place of their source."""
    cdef vector[Limit] limits  # by the number of the source
    cdef vector[int64_t] ranks  # of each file, by its number

    cdef bint has(self, const Slot *slot) noexcept
