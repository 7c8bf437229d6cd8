"""What every encoder of records is made of: the loop over a batch, the records, and what cannot be sent.

An encoder writes records into `out`, of parts that it may keep in `parts`, and notes each in `records`.
"""

from libc.stdint cimport int32_t, uint64_t
from libcpp.vector cimport vector

from cpython cimport array

from ..wire cimport Span
from .entry cimport Fields
from .flat cimport Change, Writer


cdef enum:
    NOT_REFUSED = 0
    MARKER = 1
    TOO_LARGE = 2
    PARTIAL = 3                                    # rows without all columns


cdef class Records:
    """The records of a batch, in columns. Those of one partition of one topic are in order."""
    cdef readonly list values                      # of bytes
    cdef readonly list keys                        # of bytes, or None for a record without a key; None if none has one
    cdef readonly array.array topics               # int: numbers of topics
    cdef readonly array.array partitions           # int
    cdef readonly array.array rows                 # int: how many rows the record has
    cdef readonly array.array entries              # int: the index in the batch of its (first) entry
    cdef readonly Py_ssize_t end                   # entries before this one are in the records, or have none
    cdef readonly object refused                   # RefusedError: the entry `end` cannot be sent; None if all can


cdef struct Text:
    # A piece of a Writer's bytes.
    size_t at
    size_t size


cdef struct Record:
    Text value
    Text key
    int32_t topic
    int32_t partition
    int32_t rows
    int32_t entry


cdef struct Refusal:
    int why
    Change change
    Span row                                       # too large
    size_t size


cdef int done(int status) except -1 nogil          # raises what a status below 0 of a function of flat.pyx says
cdef int put_inside(Writer *out, Span text) except -1 nogil      # a part of a string of JSON: without quotes


cdef class Encoder:
    """Makes records of batches. One call at a time."""
    cdef size_t limit                              # bytes of a record's key and value
    cdef bint is_keyed
    cdef bint has_markers
    cdef bint is_busy
    cdef Writer parts
    cdef Writer out
    cdef vector[Record] records
    cdef int32_t entry                             # its index
    cdef Fields places                             # of this entry and those after it: two varints each
    cdef uint64_t transaction                      # where that of the entry begins, and ...
    cdef uint64_t n                                # ... the entry in it, see Position
    cdef Refusal refusal
    cdef str before                                # the state when the batch began

    cdef int open_batch(self) except -1
    cdef int begin(self) except -1
    cdef bint add_all(self, Fields batch, Py_ssize_t begin) except -1 nogil
    cdef int read_place(self) except -1 nogil
    cdef bint add(self, Span message) except -1 nogil                # False if the entry is refused
    cdef int end(self) except -1 nogil
    cdef bint stop_at(self, int why, const Change *change, Span row, size_t size) except -1 nogil
    cdef Text taken(self, size_t at) noexcept nogil                  # what was put into `parts` since
    cdef int copy(self, Text part) except -1 nogil
    cdef Records finish(self)
    cdef bytes bytes_of(self, Text text)
    cdef object reason(self)
    cdef str key_text(self)
