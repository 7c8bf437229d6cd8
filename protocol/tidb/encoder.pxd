"""Canal's entries of what TiDB's tools write: what is alike whatever the form of the records; see `encoder.pyx`."""

from libc.stdint cimport int64_t, uint32_t
from libcpp.vector cimport vector

from ..buffer cimport Buffer
from ..wire cimport Span


cdef enum:
    PIECE = 256 << 10                              # bytes of rows after which another entry begins

    # How the text of a value is written.
    UTF8 = 0                                       # as it is, if that is valid
    LATIN1 = 1                                     # each byte the character of its number


cdef struct RecordEntry:                           # an entry of a record
    size_t offset                                  # in `Encoder.data`, framed as in `Messages`
    size_t size
    int entry_type
    int event_type                                 # 0 for the ends of a transaction
    int64_t rows
    void *plan                                     # the Plan of its rows; NULL if it has none
    bint is_marker                                 # it is in the place of rows that could not be decoded


cdef class Plan:
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

    cdef Span add_head(self, size_t index, int sql_type, str name, bint is_key, str mysql_type, bint is_null) except *


cdef class Encoder:
    cdef bytes head                                # with which each header begins
    cdef Span head_span
    cdef list owned                                # what the plans are kept by
    cdef size_t known_bytes                        # that they take, about
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
    cdef int forget_plans(self) except -1
    cdef int begin_headers(self, size_t size, int64_t offset) except -1 nogil
    cdef int add(
        self, int entry_type, int event_type, Span header, Span body, Span more, int64_t rows, void *plan
    ) except -1 nogil
    cdef int add_end(self, int entry_type) except -1 nogil
    cdef int add_statement(self, str schema, str table, str sql) except -1
    cdef int take(self, void *plan, int event_type, int64_t count) except -1 nogil
    cdef size_t begin_row(self) except? 0 nogil
    cdef int end_row(self, void *plan, size_t start) except -1 nogil
    cdef int add_null(self, Span head, int tag, bint updated) except -1 nogil
    cdef int add_text(self, Span head, int tag, bint updated, Span text, int form) except -1 nogil
