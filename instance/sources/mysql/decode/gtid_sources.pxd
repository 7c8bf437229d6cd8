"""The numbers that the sources of GTIDs have in a ring."""

from libc.stdint cimport uint32_t

from .gtid_event cimport Gtid


cdef enum:
    SOURCES_MAX = 16


cdef struct SourceNumber:
    Gtid gtid
    uint32_t number


cdef class GtidSources:
    cdef object registry, member
    cdef SourceNumber known[SOURCES_MAX]
    cdef int count

    cdef uint32_t number(self, const Gtid *gtid) except? 0 nogil
