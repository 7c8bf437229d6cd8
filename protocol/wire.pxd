"""Reading and writing protobuf's wire format, for the most part in place: inline functions over a pointer.

https://protobuf.dev/programming-guides/encoding/. A `put_…` function writes at `p` and returns the place after; the
caller has made sure of the room (`VARINT_MAX` bytes for a varint, and a tag of a field below 16 is one byte).
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcmp, memcpy


cdef enum:
    VARINT = 0             # wire types
    FIXED64 = 1
    LENGTH_DELIMITED = 2
    FIXED32 = 5

    VARINT_MAX = 10        # bytes of the longest varint
    LENGTH_MAX = 5         # bytes of a varint that can hold any 32-bit length: what a padded length takes


cdef inline size_t varint_size(uint64_t value) noexcept nogil:
    cdef size_t size = 1
    while value >= 0x80:
        value >>= 7
        size += 1
    return size


cdef inline uint8_t *put_varint(uint8_t *p, uint64_t value) noexcept nogil:
    while value >= 0x80:
        p[0] = <uint8_t>(value | 0x80)
        p += 1
        value >>= 7
    p[0] = <uint8_t>value
    return p + 1


cdef inline uint8_t *put_padded_varint(uint8_t *p, uint64_t value, int width) noexcept nogil:
    """The varint in exactly `width` bytes, for a length that is known only after its content is written."""
    cdef int i
    for i in range(width - 1):
        p[i] = <uint8_t>(value | 0x80)
        value >>= 7
    p[width - 1] = <uint8_t>value
    return p + width


cdef inline uint8_t *put_raw(uint8_t *p, const void *data, size_t size) noexcept nogil:
    memcpy(p, data, size)
    return p + size


cdef inline uint8_t *put_uint(uint8_t *p, unsigned int tag, uint64_t value) noexcept nogil:
    """An int32, int64, uint64, bool or enum field; a negative int64 is passed as its two's complement."""
    return put_varint(put_varint(p, tag), value)


cdef inline uint8_t *put_bytes(uint8_t *p, unsigned int tag, const void *data, size_t size) noexcept nogil:
    """A bytes, string or message field."""
    return put_raw(put_varint(put_varint(p, tag), size), data, size)


cdef inline int decimal_size(uint64_t value) noexcept nogil:
    cdef int size = 1
    while value >= 10:
        value //= 10
        size += 1
    return size


cdef inline uint8_t *put_decimal(uint8_t *p, uint64_t value) noexcept nogil:
    """The digits of the number as text, without a tag or length; at most 20 bytes."""
    cdef int size = decimal_size(value)
    cdef int i = size
    while i > 0:
        i -= 1
        p[i] = <uint8_t>(48 + value % 10)
        value //= 10
    return p + size


cdef inline uint8_t *put_signed_decimal(uint8_t *p, int64_t value) noexcept nogil:
    """As put_decimal, with a leading minus where the number is negative; at most 20 bytes."""
    if value < 0:
        p[0] = 45
        return put_decimal(p + 1, -<uint64_t>value)
    return put_decimal(p, <uint64_t>value)


cdef inline const uint8_t *get_varint(const uint8_t *p, const uint8_t *end, uint64_t *value) noexcept nogil:
    """Reads a varint; the place after it, or NULL when it does not end before `end` or within 10 bytes."""
    cdef uint64_t result = 0
    cdef int shift = 0
    while p < end and shift < 64:
        result |= <uint64_t>(p[0] & 0x7F) << shift
        if p[0] < 0x80:
            value[0] = result
            return p + 1
        p += 1
        shift += 7
    return NULL


cdef struct Span:
    const uint8_t *data
    size_t size


cdef inline bint is_same(Span one, Span other) noexcept nogil:
    return one.size == other.size and memcmp(one.data, other.data, one.size) == 0


cdef inline Span span_at(const char *data, size_t size) noexcept nogil:
    cdef Span span
    span.data = <const uint8_t *>data
    span.size = size
    return span


cdef struct WireField:
    uint64_t tag                               # number << 3 | wire type
    uint64_t value                             # of a varint
    const uint8_t *data                        # of a length-delimited field ...
    size_t size                                # ... its bytes; of a fixed one 8 or 4


cdef inline const uint8_t *get_field(const uint8_t *p, const uint8_t *end, WireField *field) noexcept nogil:
    """Reads the field at `p`; the place after it, or NULL when it does not fit before `end` or is not a field."""
    cdef int wire_type
    field.value = 0
    field.data = NULL
    field.size = 0
    if p < end and p[0] < 0x80:
        field.tag = p[0]
        p += 1
    else:
        p = get_varint(p, end, &field.tag)
        if p == NULL:
            return NULL
    if field.tag < 8 or field.tag >> 32:
        return NULL
    wire_type = field.tag & 7
    if wire_type == VARINT:
        return get_varint(p, end, &field.value)
    if wire_type == LENGTH_DELIMITED:
        p = get_varint(p, end, &field.value)
        if p == NULL or field.value > <uint64_t>(end - p):
            return NULL
        field.size = field.value
    elif wire_type == FIXED64:
        field.size = 8
    elif wire_type == FIXED32:
        field.size = 4
    else:
        return NULL
    if <size_t>(end - p) < field.size:
        return NULL
    field.data = p
    return p + field.size


cdef inline Span span_of(WireField *field) noexcept nogil:
    """The bytes of a length-delimited field."""
    return span_at(<const char *>field.data, field.size)


# Put together as bytes, where no speed is asked for.
cpdef bytes varint(value)
cdef bytes uint_field(unsigned int tag, int64_t value)
cdef bytes text_field(unsigned int tag, str text)
cdef bytes message_field(unsigned int tag, bytes head, size_t more=*)
