"""The GTID set in the headers of entries: what the source has executed, the current transaction included."""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libcpp.string cimport string
from libcpp.vector cimport vector

from .gtid_event cimport Gtid


cdef struct Interval:
    int64_t first
    int64_t last


cdef cppclass Executed:            # of one source
    string key                     # MySQL: uuid, then the tag; MariaDB: the domain, big-endian
    vector[Interval] intervals     # MySQL
    uint32_t server_id             # MariaDB: of the last transaction in the domain ...
    uint64_t number                # ... and its sequence number


cdef class ExecutedSet:
    cdef vector[Executed] sources  # ascending by key
    cdef string text
    cdef bint stale                # the text is older than the set
    cdef int add(self, const Gtid *gtid) except -1 nogil
    cdef const string *as_text(self) except NULL nogil
    cdef Executed *source(self, const string &key) except NULL nogil
    cdef void insert(self, Executed *source, int64_t first, int64_t last) noexcept nogil
