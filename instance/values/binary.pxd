"""Column values: the bytes of a row event to the text that Canal's Column.value carries."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t


cdef struct Value:         # one column of one row; reused from column to column
    const uint8_t *text    # UTF-8; in the event itself or in scratch
    size_t size
    bint promoted          # an unsigned integer that the signed type of its width cannot hold
    const char *error      # why the bytes are not a value of the type
    uint8_t *scratch       # malloc'ed
    size_t capacity
    uint8_t *inflated      # malloc'ed
    size_t inflated_capacity


# Reads the `size` bytes of one value (without the length before it) and sets text and size, maybe promoted;
# 0, or -1 with `error` set.
ctypedef int (*Decode)(Field *field, const uint8_t *data, size_t size, Value *value) noexcept nogil


cdef struct Field:         # how the values of a column are written
    Decode decode
    Decode inner           # of a compressed column: what its inflated bytes are
    uint32_t size          # bytes of every value, where length_bytes is 0
    uint8_t length_bytes   # width of the little-endian length before each value
    uint8_t precision      # DECIMAL
    uint8_t scale
    uint8_t digits         # of a second's fraction; of a JSON: that a double has at least after its point
    bint is_strict         # exactly as Canal, with what Sluice does better switched off
    const void *context    # of a text: table of its character set; of a TIMESTAMP: Transitions
    uint32_t hint          # of a TIMESTAMP: the interval that the last value fell into


cdef struct Transitions:   # of a time zone
    uint32_t count
    const int64_t *since   # seconds since 1970 UTC, ascending; since[0] is before every timestamp
    const int32_t *offset  # seconds east of UTC from then on


cdef class Zone:
    cdef Transitions transitions


cdef Zone get_zone(str name)
cdef uint32_t fraction(const uint8_t *data, int digits) noexcept nogil
cdef int64_t local_seconds(Field *field, uint32_t seconds) noexcept nogil
cdef uint8_t *reserve(Value *value, size_t size) noexcept nogil
cdef int fail(Value *value, const char *error) noexcept nogil
cdef uint8_t *put_packed_decimal(
    uint8_t *p, const uint8_t *data, size_t size, int precision, int scale, bint strict
) noexcept nogil
cdef size_t decimal_bytes(int precision, int scale) noexcept nogil

cdef int signed_integer(Field *field, const uint8_t *data, size_t size, Value *value) noexcept nogil
cdef int unsigned_integer(Field *field, const uint8_t *data, size_t size, Value *value) noexcept nogil
cdef int float_number(Field *field, const uint8_t *data, size_t size, Value *value) noexcept nogil
cdef int double_number(Field *field, const uint8_t *data, size_t size, Value *value) noexcept nogil
cdef int decimal_number(Field *field, const uint8_t *data, size_t size, Value *value) noexcept nogil
cdef int bits(Field *field, const uint8_t *data, size_t size, Value *value) noexcept nogil
cdef int mask(Field *field, const uint8_t *data, size_t size, Value *value) noexcept nogil
cdef int year(Field *field, const uint8_t *data, size_t size, Value *value) noexcept nogil
cdef int date(Field *field, const uint8_t *data, size_t size, Value *value) noexcept nogil
cdef int time(Field *field, const uint8_t *data, size_t size, Value *value) noexcept nogil
cdef int old_time(Field *field, const uint8_t *data, size_t size, Value *value) noexcept nogil
cdef int datetime(Field *field, const uint8_t *data, size_t size, Value *value) noexcept nogil
cdef int old_datetime(Field *field, const uint8_t *data, size_t size, Value *value) noexcept nogil
cdef int timestamp(Field *field, const uint8_t *data, size_t size, Value *value) noexcept nogil
cdef int old_timestamp(Field *field, const uint8_t *data, size_t size, Value *value) noexcept nogil
cdef int binary(Field *field, const uint8_t *data, size_t size, Value *value) noexcept nogil
cdef int inet4(Field *field, const uint8_t *data, size_t size, Value *value) noexcept nogil
cdef int inet6(Field *field, const uint8_t *data, size_t size, Value *value) noexcept nogil
cdef int uuid(Field *field, const uint8_t *data, size_t size, Value *value) noexcept nogil
cdef int compressed(Field *field, const uint8_t *data, size_t size, Value *value) noexcept nogil
