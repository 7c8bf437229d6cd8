"""Conditions on rows: compiled for one version of a table, judged on the bytes of an image."""

from libc.stdint cimport uint8_t, uint32_t

from ..values.binary cimport Field, Value
from .collation cimport Collation

cdef enum:
    STACK = 64


cdef enum Operation:
    ALL
    ANY
    NEGATE
    NULLITY                # whether it is NULL
    IN_RANGES              # of keys
    IN_WIDE_RANGES         # of keys that are longer than 8 bytes
    IN_SET                 # of labels, by their numbers
    COMPARISON             # of a text or bytes with each of the constants
    PATTERN


cdef enum Truth:           # AND is the least of two, OR the greatest, NOT the difference from TRUE
    IS_FALSE = 0
    IS_UNKNOWN = 1
    IS_TRUE = 2


cdef struct Place:         # of a value in an image
    const uint8_t *data    # NULL: it is NULL
    size_t size


cdef struct Width:         # of the values of a column
    uint32_t size          # bytes of each, where length_bytes is 0
    uint8_t length_bytes
    uint8_t is_json
    int place              # in `places`; -1: the condition does not name it


cdef struct Step:
    int operation
    int place              # of the column
    int encoding           # of its key
    uint32_t wanted        # of a comparison: 1 less, 2 equal, 4 greater; what is true
    uint32_t count         # of ranges or constants, bits of a set, items of a pattern
    uint32_t width         # bytes of a key that is read as bytes; of BINARY, which is filled up with zeros
    const uint8_t *data
    void *collation        # Collation, owned by `owned`
    Field field            # of a text that is to be decoded, of a TIMESTAMP


cdef class Condition:
    cdef list owned                    # what steps point to
    cdef Step *steps
    cdef Py_ssize_t step_count
    cdef Width *widths
    cdef Py_ssize_t column_count
    cdef Place *places
    cdef Py_ssize_t json_count
    cdef bint is_text
    cdef readonly str missing          # a column that the table does not have; None
    cdef const char *error             # why `scan` or `judge` failed
    cdef Py_ssize_t error_column       # -1: none

    cdef int add(self, test, table_map, columns, dict numbers, time_zone) except -1
    cdef Step *step(self) noexcept
    cdef int add_leaf(self, Step *step, test, table_map, Py_ssize_t number, column, time_zone) except -1
    cdef int add_ranges(self, Step *step, test, domain) except -1
    cdef int add_text(self, Step *step, test, Collation collation) except -1
    cdef int add_labels(self, Step *step, test, column, Collation collation) except -1
    cdef int keep(self, Step *step, bytes data) except -1
    cdef int set_width(self, Py_ssize_t column, const Field *field, bint is_json) except -1
    cdef const uint8_t *fail(self, Py_ssize_t column, const char *error) noexcept nogil

    # Whether the condition can be judged by an image that has these columns, or those of the image before it.
    cdef bint is_judged(self, const uint8_t *present, const uint8_t *present_before) noexcept nogil

    # Finds the values of an image; the place after it, or NULL with `error` set.
    cdef const uint8_t *scan(
        self, const uint8_t *p, const uint8_t *end, const uint8_t *present, bint partial_json
    ) noexcept nogil

    # Judges the image that was scanned last; -1 with `error` set.
    cdef int judge(self, Value *value) noexcept nogil
