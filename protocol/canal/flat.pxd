"""FlatMessage in parts, for the encoder of records, which makes several messages of an entry.

A message is its head, the rows, the middle, the rows before an update, and the tail. Names and types are those of the
rows that were put since the head. A function returns 0, or less than 0: a status for `refuse()`.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport realloc
from libc.string cimport memcpy

from ..wire cimport Span, put_signed_decimal
from .entry cimport Cell, Entry, Header, Marks, RowChange


cdef enum:
    EVENT_TYPES = 16

    NO_IMAGE = 0                                   # beside IMAGE_BEFORE and IMAGE_AFTER

    COLUMNS_MAX = 4096                             # of a MySQL table
    TABLES = 16                                    # whose columns are known again, as a power of two
    PLACES = 64                                    # of columns whose beginning is known again
    HINTS = 2                                      # beginnings of each: a NULL begins otherwise than a value
    HINT_SIZE = 160                                # bytes of one
    QUOTED_SIZE = 80                               # bytes of its name
    TEXTS = 3                                      # MYSQL_TYPES, SQL_TYPES, KEY_NAMES

    NO_MEMORY = -2                                 # as MALFORMED: what functions without the GIL return
    UNKNOWN_TYPE = -3
    NO_COLUMN = -4


cdef struct Hint:
    # How a column at a place of a row began: that of the next row mostly begins the same.
    uint8_t prefix[HINT_SIZE]
    Cell cell                                      # of these bytes; its `prefix` is their number, 0 for none
    uint8_t quoted[QUOTED_SIZE]                    # its name as the key of an object, colon included
    size_t quoted_size                             # 0 for a longer name, or one that has to be escaped


cdef struct Kept:
    # What was written of the columns of a table.
    uint8_t *data
    size_t size
    size_t capacity
    uint64_t version                               # of the columns that it says; 0 for none
    Py_ssize_t count                               # of columns


cdef struct Known:
    # What is known again of a table.
    uint8_t *name                                  # schema and table, one after the other
    size_t schema_size
    size_t table_size
    Hint hints[PLACES * HINTS]
    uint8_t latest[PLACES]                         # which of its hints a place used last
    uint64_t version                               # changes when a place gets another name, mysqlType or key
    Kept texts[TEXTS]
    int32_t sql_types[PLACES]                      # that were kept: some columns have another one when they are NULL


cdef struct Writer:
    uint8_t *data
    size_t size
    size_t capacity
    Cell *columns                                  # of the entry: names and types, in order; COLUMNS_MAX
    Py_ssize_t column_count
    uint8_t *marked                                # by column index: COLUMNS_MAX
    Py_ssize_t marked_end                          # after the last one that is marked
    Known *tables[TABLES]                          # by their names' hash
    Known *known                                   # of the entry
    uint64_t version                               # of its columns when the entry began
    const Hint *hint                               # of the column that was read last; NULL for none
    int64_t batch_id
    int64_t ts
    bint strict
    bint partial                                   # an image of the entry does not have all columns


cdef struct Change:
    # An entry of type ROWDATA.
    Span message
    Entry entry
    Header header
    Marks marks
    RowChange row
    uint64_t event_type
    int image                                      # of the rows that are shown; NO_IMAGE for a statement


cdef int open_writer(Writer *out, int64_t batch_id, int64_t ts, bint strict) except -1
cdef void close_writer(Writer *out) noexcept
cdef int refuse(int status) except -1              # raises what the status says

cdef int read_change(Span message, Change *change) noexcept nogil        # 1, or 0 for an entry of another type
cdef int put_head(Writer *out, const Change *change) noexcept nogil
cdef int put_row(Writer *out, Span row, int image) noexcept nogil
cdef int put_old(Writer *out, Span row) noexcept nogil
cdef int put_middle(Writer *out, const Change *change) noexcept nogil
cdef int put_tail(Writer *out, const Change *change, uint64_t event_type) noexcept nogil
cdef int put_string(Writer *out, Span text) noexcept nogil


cdef inline int reserve(Writer *out, size_t n) noexcept nogil:
    cdef size_t capacity
    cdef uint8_t *data
    if out.capacity - out.size >= n:
        return 0
    capacity = max(out.capacity * 2, out.size + n)
    data = <uint8_t *>realloc(out.data, capacity)
    if data == NULL:
        return NO_MEMORY
    out.data = data
    out.capacity = capacity
    return 0


cdef inline int put(Writer *out, const char *text, size_t size) noexcept nogil:
    if reserve(out, size) < 0:
        return NO_MEMORY
    memcpy(out.data + out.size, text, size)
    out.size += size
    return 0


cdef inline int put_number(Writer *out, int64_t number) noexcept nogil:
    if reserve(out, 20) < 0:
        return NO_MEMORY
    out.size = put_signed_decimal(out.data + out.size, number) - out.data
    return 0
