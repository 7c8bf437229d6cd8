"""Values as TiDB encodes them in rows, to the text that Canal's Column.value carries; see `datums.pyx`."""

from libc.stdint cimport int64_t, uint8_t, uint64_t

from ....protocol.wire cimport Span
from ...values.binary cimport Field as ZoneField
from ...values.binary cimport Value


cdef enum:
    # How a value begins.
    NULL_FLAG = 0x00
    BYTES_FLAG = 0x02
    DOUBLE_FLAG = 0x05
    DECIMAL_FLAG = 0x06
    INT_FLAG = 0x08
    UINT_FLAG = 0x09
    JSON_FLAG = 0x0A

    # How the text of a value is made.
    NUMBER = 0                                     # with a sign
    UNSIGNED = 1                                   # without; ENUM, SET and BIT too
    DOUBLE = 2
    SINGLE = 3                                     # FLOAT: widened to a double
    DECIMAL = 4
    DATE = 5
    DATETIME = 6
    TIMESTAMP = 7                                  # a DATETIME in UTC
    TIME = 8
    YEAR = 9
    TEXT = 10
    RAW = 11                                       # bytes
    FIXED = 12                                     # RAW, without the zeros at the end
    DOCUMENT = 13
    UNKNOWN = 14                                   # a type that is not read


cdef struct Datum:
    int flag
    Span whole                                     # all its bytes
    uint64_t number                                # of an integer; of a double its bits
    Span data                                      # of bytes, a decimal or a document
    int precision                                  # of a decimal
    int scale


cdef struct Form:                                  # how the values of a column are written
    int way
    int digits                                     # of a second's fraction


# Reads the value at `p`; the place after it, or NULL when it does not fit before `end` or is not a value.
cdef const uint8_t *next_datum(const uint8_t *p, const uint8_t *end, Datum *datum) noexcept nogil

# Makes the text of a value that is not NULL: in `text`, which points into `scratch` or the row; 0, or -1 with an error
# in `scratch`. Texts of bytes are the bytes.
cdef int put_datum(const Form *form, ZoneField *zone, const Datum *datum, Value *scratch, Span *text) noexcept nogil
