"""The body of a rows event up to its rows."""

from libc.stdint cimport uint8_t, uint64_t

from .events cimport RowsType
from .inflate cimport Inflater


cdef struct RowsBody:
    uint64_t width             # columns of the table
    const uint8_t *before      # bitmaps of the columns that are present
    const uint8_t *after       # ... in the image after; those of the only image if it is not an update
    const uint8_t *first       # row
    const uint8_t *end


# Reads what follows the flags. The rows are in the inflater where they are compressed.
cdef int read_rows_body(
    RowsBody *rows, const RowsType *type, const uint8_t *p, const uint8_t *end, bint has_extra, uint64_t width,
    Inflater inflater,
) except -1 nogil
