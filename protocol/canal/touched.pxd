"""Keys of rows that changes have touched; see `touched.pyx`."""

from libc.stdint cimport uint32_t
from libcpp cimport bool as cppbool
from libcpp.string cimport string
from libcpp.unordered_set cimport unordered_set
from libcpp.vector cimport vector

from ..wire cimport Span
from .entry cimport Entry, Fields, Header


cdef class TouchedKeys:
    cdef unordered_set[string] keys
    cdef vector[cppbool] is_key                    # by the index of a column
    cdef size_t key_count
    cdef size_t most
    cdef bytes names
    cdef Span schema, table, member                # in them
    cdef bint ignore_case
    cdef readonly str broken

    cdef bint has(self, const string &key) noexcept nogil
    cdef int add_entry(self, Span message) except -1 nogil
    cdef bint is_ours(self, const Header *header) noexcept nogil
    cdef int add_rows(self, const Entry *entry) except -1 nogil
    cdef int spoil(self, const char *reason) except -1 nogil


cdef inline void add_to_key(string &key, const void *text, uint32_t size) noexcept nogil:
    """A key is the texts of its columns, each after its length."""
    key.append(<const char *>&size, sizeof(size))
    key.append(<const char *>text, size)
