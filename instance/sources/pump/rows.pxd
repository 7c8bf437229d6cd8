"""Transactions of a pump as Canal's entries; see `rows.pyx`."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libcpp.map cimport map as cppmap
from libcpp.pair cimport pair
from libcpp.unordered_map cimport unordered_map
from libcpp.vector cimport vector

from ....protocol.tidb.encoder cimport Encoder, Plan
from ....protocol.wire cimport Span
from ...values.binary cimport Field as ZoneField
from ...values.binary cimport Value
from .datums cimport Datum, Form


cdef struct Column:
    int64_t id
    Form form
    uint64_t limit                                 # the greatest value of the signed type
    bint has_limit
    Span value                                     # the bytes before a value, ...
    Span promoted                                  # ... before one above the limit, ...
    Span null                                      # ... and before none


cdef class RowPlan(Plan):
    cdef vector[Column] columns
    cdef unordered_map[int64_t, int32_t] numbers   # of the columns, by their ids
    cdef int64_t handle                            # the id of the column that is a row's handle; 0 if none is
    cdef bytes keys                                # of the header: the unique keys; empty if there are none
    cdef Span keys_span

    cdef int add(self, object definition) except -1


cdef struct Trouble:                               # why the changes of a table cannot be decoded
    const char *reason                             # NULL for none
    int kind                                       # of the row, and ...
    int64_t row                                    # ... its number among those of its kind; -1 for the whole table
    int32_t column                                 # -1 for none
    size_t offset                                  # in the row


cdef class TransactionEncoder(Encoder):
    cdef object tables                             # Definitions
    cdef object on_trouble                         # told of what cannot be decoded; None: nobody is
    cdef readonly int64_t version                  # of the schema, that the definitions did not reach
    cdef ZoneField zone
    cdef size_t limit
    cdef Value scratch
    cdef cppmap[pair[int64_t, int64_t], void *] known        # the plans, by table id and version of the schema
    cdef dict plans                                # by definitions
    cdef vector[Datum] before, after               # values by columns; those that a row lacks have the flag ABSENT
    cdef const uint8_t *row                        # that is read
    cdef Trouble trouble

    cdef int add_commit_ts(self) except -1 nogil
    cdef int add_rows(self, void *plan, Span mutation) except -1 nogil

    cdef int add_transaction(self, Span value) except -1 nogil
    cdef int add_ddl(self, int64_t job, int64_t state, Span sql) except -1
    cdef int add_table(self, Span mutation, int64_t table_id, int64_t version) except -1 nogil
    cdef void *plan_of(self, int64_t table_id, int64_t version) except? NULL nogil
    cdef void *learn(self, int64_t table_id, int64_t version) except? NULL
    cdef int put_marker(self, void *plan, int64_t table_id, int64_t version, Span mutation) except -1
    cdef int add_row(self, void *plan, int kind, Span row) except -1 nogil
    cdef int read_row(self, void *plan, int kind, Span row) except -1 nogil
    cdef int add_image(self, void *plan, int tag, vector[Datum] *values, vector[Datum] *others) except -1 nogil
    cdef int fail(self, const char *reason, int32_t column, size_t offset) noexcept nogil
