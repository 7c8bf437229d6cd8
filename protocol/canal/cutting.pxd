"""An entry with some of its rows."""

from libc.stdint cimport uint8_t
from libcpp.string cimport string
from libcpp.vector cimport vector

from ..wire cimport Span


# Appends the framed entry to `out`, with those of its rows that are kept (one flag a row, `count` of them set), and
# fields of a RowChange after the others. Raises DecodeError.
cdef int cut_entry(string *out, Span framed, const vector[uint8_t] &kept, size_t count, Span more) except -1 nogil
