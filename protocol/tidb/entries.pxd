"""Records of TiDB's secondary binlog as Canal's entries; see `entries.pyx`."""

from libc.stdint cimport int64_t, uint64_t
from libcpp.string cimport string
from libcpp.unordered_map cimport unordered_map
from libcpp.vector cimport vector

from ..wire cimport Span
from .encoder cimport Encoder, Plan


cdef struct Column:
    int way
    Span value                                     # the bytes before a value, and before none
    Span null


cdef struct Cell:
    Span message
    uint64_t tag                                   # of its field
    uint64_t number
    Span data


cdef class TablePlan(Plan):
    cdef vector[Column] columns

    cdef int add(self, str name, str type_name, bint is_key, int64_t length, int64_t digits, bint unsigned) except -1


cdef class Table:
    cdef str schema
    cdef str name
    cdef list infos
    cdef string unknown                            # of each column the sign, as far as its type tells it
    cdef dict plans                                # by the signs of the columns
    cdef void *plan                                # the last one that was used, NULL before, ...
    cdef string signs                              # ... and its signs

    cdef int select(self, const string &signs) except -1


cdef class EntryEncoder(Encoder):
    cdef unordered_map[string, void *] known       # the Tables, by the bytes before their rows
    cdef string key
    cdef string signs
    cdef vector[Cell] before

    cdef int add_ddl(self, Span data) except -1
    cdef int add_table(self, Span message) except -1 nogil
    cdef void *plan_of(self, Span message) except NULL nogil
    cdef void *learn(self) except NULL
    cdef int find_signs(self, Span message, const string &unknown) except -1 nogil
    cdef int add_row(self, void *plan, Span mutation) except -1 nogil
    cdef int add_image(self, void *plan, Span row, int tag, bint has_before) except -1 nogil
    cdef int fail(self, void *plan, size_t count) except -1 nogil
    cdef int add_column(self, const Column *column, int tag, const Cell *cell, bint updated) except -1 nogil
