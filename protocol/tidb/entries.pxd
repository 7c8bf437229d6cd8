"""Records of TiDB's secondary binlog as Canal's entries; see `entries.pyx`."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libcpp.string cimport string
from libcpp.unordered_map cimport unordered_map
from libcpp.vector cimport vector

from ..buffer cimport Buffer
from ..wire cimport Span


cdef struct Column:
    int way
    size_t value_size                              # of the bytes before a value, and before none
    size_t null_size
    const uint8_t *value
    const uint8_t *null


cdef struct Cell:
    Span message
    uint64_t tag                                   # of its field
    uint64_t number
    Span data


cdef struct RecordEntry:                           # an entry of a record
    size_t offset                                  # in `EntryEncoder.data`, framed as in `Messages`
    size_t size
    int entry_type
    int event_type                                 # 0 for the ends of a transaction
    int64_t rows
    void *plan                                     # the Plan of its rows; NULL if it has none


cdef class Plan:
    cdef vector[Column] columns
    cdef list owned
    cdef readonly str schema
    cdef readonly str table
    cdef list described                            # of each column its name, its type, and whether it is in the key
    cdef bytes names                               # of the header
    cdef Span names_span

    # For who stages the rows: nothing is known of a plan that is new.
    cdef int64_t judged                            # by which filter
    cdef bint passes
    cdef uint32_t number                           # in Ring.tables

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


cdef class EntryEncoder:
    cdef bytes head                                # with which each header begins
    cdef Span head_span
    cdef unordered_map[string, void *] known       # the Tables, by the bytes before their rows
    cdef list owned                                # the same
    cdef size_t known_bytes                        # that they take, about
    cdef string key
    cdef string signs
    cdef vector[Cell] before
    cdef Buffer common                             # what all headers of the record begin with
    cdef Buffer header
    cdef Buffer rows

    # What the last record has become, until the next one
    cdef int64_t commit_ts
    cdef vector[RecordEntry] parts
    cdef Buffer data
    cdef str schema, table                         # of a DDL

    cdef object entry_of(self, const RecordEntry *part)
    cdef int encode_record(self, Span record, int64_t offset) except -1 nogil      # raises DecodeError
    cdef int forget(self) except -1 nogil
    cdef int begin_headers(self, size_t size, int64_t offset) except -1 nogil
    cdef int add(
        self, int entry_type, int event_type, Span header, Span body, Span more, int64_t rows, void *plan
    ) except -1 nogil
    cdef int add_ddl(self, Span data) except -1
    cdef int add_table(self, Span message) except -1 nogil
    cdef int take(self, void *plan, int64_t run, int64_t count) except -1 nogil
    cdef void *plan_of(self, Span message) except NULL nogil
    cdef void *learn(self) except NULL
    cdef int find_signs(self, Span message, const string &unknown) except -1 nogil
    cdef int add_row(self, void *plan, Span mutation) except -1 nogil
    cdef int add_image(self, void *plan, Span row, int tag, bint has_before) except -1 nogil
    cdef int fail(self, void *plan, size_t count) except -1 nogil
    cdef int add_column(self, const Column *column, int tag, const Cell *cell, bint updated) except -1 nogil
