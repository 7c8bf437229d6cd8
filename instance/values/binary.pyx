"""Column values: the bytes of a row event to the text that Canal's Column.value carries.

One function per column type, without the GIL and without decisions that can be made for the whole table.
The layouts are those of the MySQL documentation, "MySQL Internals: Replication, row-based events", of
`my_time.cc` (temporal types), `decimal.cc` (packed decimals) and, for MariaDB's own types, of `sql_type_inet.h`,
`sql_type_uuid.h` and `field_comp.cc`.
"""

import threading

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memset

from ...protocol.civil cimport Civil, civil_of
from ...protocol.floats cimport put_java_double, put_java_float
from ...protocol.littleendian cimport le, le16, le24, le32, le64
from ...protocol.utf8 cimport put_latin1, skip_ascii

from ...protocol.errors import DecodeError
from ..zones import offsets_of

cdef extern from "<charconv>" namespace "std" nogil:
    cdef struct to_chars_result:
        char *ptr
    to_chars_result to_chars(char *first, char *last, int64_t value)
    to_chars_result to_chars(char *first, char *last, uint64_t value)

cdef extern from "<zlib.h>" nogil:
    ctypedef struct z_stream:
        uint8_t *next_in
        unsigned int avail_in
        uint8_t *next_out
        unsigned int avail_out
    int inflateInit2(z_stream *stream, int window_bits)
    int inflate(z_stream *stream, int flush)
    int inflateEnd(z_stream *stream)
    int Z_FINISH
    int Z_OK
    int Z_STREAM_END
    int MAX_WBITS

cdef enum:
    MAX_INFLATION = 1040   # bytes that one byte of deflate can stand for
    DIGITS_MAX = 81        # of a DECIMAL that an expression gives; a column has at most 65


# --- writing a text --------------------------------------------------------------------------------------------------

cdef uint8_t *reserve(Value *value, size_t size) noexcept nogil:
    """Makes scratch hold `size` bytes, keeping its content; NULL and an error without memory."""
    cdef uint8_t *memory
    cdef size_t capacity = value.capacity
    if size <= capacity:
        return value.scratch
    capacity *= 2
    if capacity < size:
        capacity = size
    memory = <uint8_t *>realloc(value.scratch, capacity)
    if memory == NULL:
        value.error = b"out of memory"
        return NULL
    value.scratch = memory
    value.capacity = capacity
    return memory


cdef int fail(Value *value, const char *error) noexcept nogil:
    value.error = error
    return -1


cdef inline int finish(Value *value, const uint8_t *end) noexcept nogil:
    """The text is the content of scratch up to `end`."""
    value.text = value.scratch
    value.size = end - value.scratch
    return 0


cdef inline uint8_t *put2(uint8_t *p, unsigned int number) noexcept nogil:
    p[0] = <uint8_t>(48 + number // 10)
    p[1] = <uint8_t>(48 + number % 10)
    return p + 2


cdef inline uint8_t *put4(uint8_t *p, unsigned int number) noexcept nogil:
    return put2(put2(p, number // 100), number % 100)


cdef inline uint8_t *put_digits(uint8_t *p, uint32_t number, int count) noexcept nogil:
    """Exactly `count` digits, zeros first."""
    cdef int i = count
    while i > 0:
        i -= 1
        p[i] = <uint8_t>(48 + number % 10)
        number //= 10
    return p + count


cdef inline uint64_t big_endian(const uint8_t *data, size_t size) noexcept nogil:
    cdef uint64_t number = 0
    cdef size_t i
    for i in range(size):
        number = number << 8 | data[i]
    return number


# --- numbers ---------------------------------------------------------------------------------------------------------

# Integers: little-endian, 1, 2, 3, 4 or 8 bytes.

cdef inline uint64_t load(const uint8_t *data, size_t size) noexcept nogil:
    if size == 4:
        return le32(data)
    if size == 8:
        return le64(data)
    if size == 1:
        return data[0]
    return le16(data) if size == 2 else le24(data)


cdef int signed_integer(Field *field, const uint8_t *data, size_t size, Value *value) noexcept nogil:
    cdef int shift = 64 - 8 * <int>size
    cdef int64_t number = <int64_t>(load(data, size) << shift) >> shift
    cdef char *p = <char *>value.scratch
    return finish(value, <uint8_t *>to_chars(p, p + 24, number).ptr)


cdef int unsigned_integer(Field *field, const uint8_t *data, size_t size, Value *value) noexcept nogil:
    cdef uint64_t number = load(data, size)
    cdef char *p = <char *>value.scratch
    value.promoted = number >> (8 * size - 1) != 0
    return finish(value, <uint8_t *>to_chars(p, p + 24, number).ptr)


# FLOAT and DOUBLE: IEEE 754, little-endian. The text is Java's.

cdef int float_number(Field *field, const uint8_t *data, size_t size, Value *value) noexcept nogil:
    cdef float number
    memcpy(&number, data, 4)
    return finish(value, put_java_float(value.scratch, number))


cdef int double_number(Field *field, const uint8_t *data, size_t size, Value *value) noexcept nogil:
    cdef double number
    memcpy(&number, data, 8)
    return finish(value, put_java_double(value.scratch, number))


# DECIMAL(precision, scale): the digits before and after the point in groups of nine, each a big-endian integer of four
# bytes; the leftover digits are in a shorter group, first before the point and last after it. The first bit is
# inverted; a negative number has all bits inverted besides.

cdef uint8_t[10] GROUP_BYTES = [0, 1, 1, 2, 2, 3, 3, 4, 4, 4]
cdef uint32_t[10] POWERS = [1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000, 1000000000]


cdef size_t decimal_bytes(int precision, int scale) noexcept nogil:
    cdef int whole = precision - scale
    return whole // 9 * 4 + GROUP_BYTES[whole % 9] + scale // 9 * 4 + GROUP_BYTES[scale % 9]


cdef uint8_t *put_packed_decimal(
    uint8_t *p, const uint8_t *data, size_t size, int precision, int scale, bint strict
) noexcept nogil:
    """Plain notation, at most 70 bytes. NULL if the bytes are not a packed decimal of that precision and scale.

    `strict`: Canal prints a last group of fewer than nine digits after the point only when it is not zero, and a single
    0 when nothing follows the point.
    """
    # Long: groups before and after the point are read alike except for a few conditions, with shared variables.
    cdef int whole = precision - scale
    cdef bint negative = not data[0] & 0x80
    cdef uint8_t mask = 0xFF if negative else 0
    cdef const uint8_t *end = data + size
    cdef uint8_t first = 0x80
    cdef uint8_t *start = p
    cdef uint8_t *point
    cdef uint32_t group
    cdef uint32_t any_digit = 0
    cdef bint leading = True
    cdef int digits = whole % 9
    cdef int width
    cdef int remaining = whole
    cdef int i
    if <size_t>(end - data) != decimal_bytes(precision, scale):
        return NULL
    p[0] = b"-"
    p += 1
    while remaining > 0:
        if digits == 0:
            digits = 9
        width = GROUP_BYTES[digits]
        group = 0
        for i in range(width):
            group = group << 8 | (data[i] ^ mask ^ first)
            first = 0
        data += width
        if group >= POWERS[digits]:
            return NULL
        any_digit |= group
        if not leading:
            p = put_digits(p, group, digits)
        elif group:
            leading = False
            p = <uint8_t *>to_chars(<char *>p, <char *>p + 10, <uint64_t>group).ptr
        remaining -= digits
        digits = 9
    if leading:
        p[0] = b"0"
        p += 1
    if scale > 0:
        p[0] = b"."
        p += 1
        point = p
        remaining = scale
        while remaining > 0:
            digits = 9 if remaining >= 9 else remaining
            width = GROUP_BYTES[digits]
            group = 0
            for i in range(width):
                group = group << 8 | (data[i] ^ mask ^ first)
                first = 0
            data += width
            if group >= POWERS[digits]:
                return NULL
            any_digit |= group
            if group or digits == 9 or not strict:
                p = put_digits(p, group, digits)
            remaining -= digits
        if p == point:
            p[0] = b"0"
            p += 1
    if not (negative and any_digit):  # no sign: close the gap that was left for it
        width = p - start - 1
        for i in range(width):
            start[i] = start[i + 1]
        p -= 1
    return p


def packed_decimal(bytes data, int precision, int scale):
    """The text of a packed decimal, for what has few of them. Raises DecodeError when the bytes are none."""
    cdef uint8_t[128] text
    cdef uint8_t *end = NULL
    if 0 < precision <= DIGITS_MAX and 0 <= scale <= precision:
        end = put_packed_decimal(text, <const uint8_t *><const char *>data, len(data), precision, scale, False)
    if end == NULL:
        raise DecodeError(f"not a packed DECIMAL({precision},{scale}): {data.hex()}")
    return text[:end - text].decode("ascii")


cdef int decimal_number(Field *field, const uint8_t *data, size_t size, Value *value) noexcept nogil:
    cdef uint8_t *p = put_packed_decimal(value.scratch, data, size, field.precision, field.scale, field.is_strict)
    if p == NULL:
        return fail(value, b"not a packed decimal")
    return finish(value, p)


# BIT(n): big-endian, as many bytes as n needs.

cdef int bits(Field *field, const uint8_t *data, size_t size, Value *value) noexcept nogil:
    cdef char *p = <char *>value.scratch
    return finish(value, <uint8_t *>to_chars(p, p + 24, big_endian(data, size)).ptr)


# ENUM: the label's number from 1, 1 or 2 bytes. SET: a mask of 1 to 8 bytes. Both little-endian, as text in decimal.
# SET of 3, 5, 6 or 7 bytes is why this is not unsigned_integer.

cdef int mask(Field *field, const uint8_t *data, size_t size, Value *value) noexcept nogil:
    cdef char *p = <char *>value.scratch
    return finish(value, <uint8_t *>to_chars(p, p + 24, le(data, size)).ptr)


# --- dates and times -------------------------------------------------------------------------------------------------

# YEAR: one byte, years since 1900; 0 is the zero year.

cdef int year(Field *field, const uint8_t *data, size_t size, Value *value) noexcept nogil:
    return finish(value, put4(value.scratch, 1900 + data[0] if data[0] else 0))


# DATE: three bytes, little-endian: year << 9 | month << 5 | day. Zero and incomplete dates are kept.

cdef int date(Field *field, const uint8_t *data, size_t size, Value *value) noexcept nogil:
    cdef uint32_t number = le24(data)
    cdef uint8_t *p = value.scratch
    if number >> 9 > 9999 or (number >> 5 & 15) > 12:
        return fail(value, b"not a date")
    p = put4(p, number >> 9)
    p[0] = b"-"
    p = put2(p + 1, number >> 5 & 15)
    p[0] = b"-"
    return finish(value, put2(p + 1, number & 31))


cdef inline uint8_t *put_fraction(uint8_t *p, uint32_t microseconds, int digits) noexcept nogil:
    if digits == 0:
        return p
    p[0] = b"."
    return put_digits(p + 1, microseconds // POWERS[6 - digits], digits)


cdef inline uint8_t *put_clock(uint8_t *p, unsigned int hour, unsigned int minute, unsigned int second) noexcept nogil:
    p = put2(p, hour)
    p[0] = b":"
    p = put2(p + 1, minute)
    p[0] = b":"
    return put2(p + 1, second)


cdef int put_datetime(
    Value *value,
    unsigned int year,
    unsigned int month,
    unsigned int day,
    unsigned int hour,
    unsigned int minute,
    unsigned int second,
    uint32_t microseconds,
    int digits,
) noexcept nogil:
    cdef uint8_t *p = value.scratch
    if year > 9999 or month > 12 or day > 31 or hour > 23 or minute > 59 or second > 59 or microseconds > 999999:
        return fail(value, b"not a date and time")
    p = put4(p, year)
    p[0] = b"-"
    p = put2(p + 1, month)
    p[0] = b"-"
    p = put2(p + 1, day)
    p[0] = b" "
    p = put_clock(p + 1, hour, minute, second)
    return finish(value, put_fraction(p, microseconds, digits))


cdef uint32_t fraction(const uint8_t *data, int digits) noexcept nogil:
    """Microseconds out of the big-endian fraction of (digits + 1) / 2 bytes, which counts 1/100, 1/10000 or µs."""
    cdef int width = (digits + 1) // 2
    return <uint32_t>big_endian(data, width) * POWERS[6 - 2 * width]


# TIME2(n): big-endian, 3 bytes and (n + 1) / 2 of a fraction, as one number offset by half its range:
#   sign | 1 unused bit | hour 10 bits | minute 6 bits | second 6 bits | fraction

cdef int time(Field *field, const uint8_t *data, size_t size, Value *value) noexcept nogil:
    cdef int shift = 8 * ((field.digits + 1) // 2)
    cdef int64_t number = <int64_t>big_endian(data, size) - (<int64_t>0x800000 << shift)
    cdef uint8_t *p = value.scratch
    cdef uint64_t clock
    cdef uint32_t microseconds
    cdef unsigned int hour
    if number < 0:
        p[0] = b"-"
        p += 1
        number = -number
    clock = <uint64_t>number >> shift
    microseconds = <uint32_t>(number & ((<int64_t>1 << shift) - 1)) * POWERS[6 - shift // 4]
    hour = <unsigned int>(clock >> 12 & 0x3FF)
    if clock >> 22 or hour > 838 or (clock >> 6 & 63) > 59 or (clock & 63) > 59 or microseconds > 999999:
        return fail(value, b"not a time")
    if hour >= 100:
        p[0] = <uint8_t>(48 + hour // 100)
        p += 1
    p = put_clock(p, hour % 100, <unsigned int>(clock >> 6 & 63), <unsigned int>(clock & 63))
    return finish(value, put_fraction(p, microseconds, field.digits))


# TIME before MySQL 5.6.4: three bytes, little-endian, signed: the decimal number HHHMMSS.

cdef int old_time(Field *field, const uint8_t *data, size_t size, Value *value) noexcept nogil:
    cdef int32_t number = <int32_t>(le24(data) << 8) >> 8
    cdef uint8_t *p = value.scratch
    cdef unsigned int hour
    if number < 0:
        p[0] = b"-"
        p += 1
        number = -number
    hour = number // 10000
    if hour > 838 or number // 100 % 100 > 59 or number % 100 > 59:
        return fail(value, b"not a time")
    if hour > 100 or (hour == 100 and not field.is_strict):  # Canal drops the 1 of exactly 100 hours
        p[0] = <uint8_t>(48 + hour // 100)
        p += 1
    return finish(value, put_clock(p, hour % 100, number // 100 % 100, number % 100))


# DATETIME2(n): big-endian, 5 bytes and (n + 1) / 2 of a fraction; after the sign bit, which is always set:
#   year * 13 + month 17 bits | day 5 bits | hour 5 bits | minute 6 bits | second 6 bits | fraction

cdef int datetime(Field *field, const uint8_t *data, size_t size, Value *value) noexcept nogil:
    cdef uint64_t number = big_endian(data, 5)
    cdef unsigned int months
    if not number >> 39:
        return fail(value, b"not a date and time")
    months = <unsigned int>(number >> 22 & 0x1FFFF)
    return put_datetime(
        value,
        months // 13,
        months % 13,
        <unsigned int>(number >> 17 & 31),
        <unsigned int>(number >> 12 & 31),
        <unsigned int>(number >> 6 & 63),
        <unsigned int>(number & 63),
        fraction(data + 5, field.digits),
        field.digits,
    )


# DATETIME before MySQL 5.6.4: eight bytes, little-endian: the decimal number YYYYMMDDHHMMSS.

cdef int old_datetime(Field *field, const uint8_t *data, size_t size, Value *value) noexcept nogil:
    cdef uint64_t number = le64(data)
    cdef uint64_t day
    cdef unsigned int clock
    if number > <uint64_t>99991231235959:
        return fail(value, b"not a date and time")
    day = number // 1000000
    clock = <unsigned int>(number % 1000000)
    return put_datetime(
        value,
        <unsigned int>(day // 10000),
        <unsigned int>(day // 100 % 100),
        <unsigned int>(day % 100),
        clock // 10000,
        clock // 100 % 100,
        clock % 100,
        0,
        0,
    )


# TIMESTAMP2(n): four bytes big-endian, seconds since 1970 UTC, and (n + 1) / 2 of a fraction; 0 is the zero date.
# Before MySQL 5.6.4: four bytes little-endian.

cdef int64_t local_seconds(Field *field, uint32_t seconds) noexcept nogil:
    """Seconds since 1970 by the clocks of the field's zone."""
    cdef const Transitions *zone = <const Transitions *>field.context
    cdef uint32_t low = field.hint
    cdef uint32_t high = zone.count
    cdef uint32_t middle
    if seconds < zone.since[low] or (low + 1 < high and seconds >= zone.since[low + 1]):
        low = 0
        while high - low > 1:
            middle = (low + high) // 2
            if zone.since[middle] <= seconds:
                low = middle
            else:
                high = middle
        field.hint = low
    return <int64_t>seconds + zone.offset[low]


cdef int put_timestamp(Field *field, uint32_t seconds, uint32_t microseconds, Value *value) noexcept nogil:
    cdef int64_t local
    cdef Civil day
    cdef unsigned int clock
    if seconds == 0:
        return put_datetime(value, 0, 0, 0, 0, 0, 0, microseconds, field.digits)
    local = local_seconds(field, seconds)
    # local is never below -86400
    day = civil_of((local + 86400) // 86400 - 1)
    clock = <unsigned int>((local + 86400) % 86400)
    return put_datetime(
        value,
        day.year,
        day.month,
        day.day,
        clock // 3600,
        clock // 60 % 60,
        clock % 60,
        microseconds,
        field.digits,
    )


cdef int timestamp(Field *field, const uint8_t *data, size_t size, Value *value) noexcept nogil:
    return put_timestamp(field, <uint32_t>big_endian(data, 4), fraction(data + 4, field.digits), value)


cdef int old_timestamp(Field *field, const uint8_t *data, size_t size, Value *value) noexcept nogil:
    return put_timestamp(field, le32(data), 0, value)


# --- strings and MariaDB's types -------------------------------------------------------------------------------------

# BINARY, VARBINARY, BLOB, GEOMETRY, VECTOR: every byte as the character of that number (ISO 8859-1), in UTF-8.

cdef int binary(Field *field, const uint8_t *data, size_t size, Value *value) noexcept nogil:
    cdef uint8_t *p
    if skip_ascii(data, data + size) == data + size:
        value.text = data
        value.size = size
        return 0
    p = reserve(value, 2 * size + 1)
    if p == NULL:
        return -1
    return finish(value, put_latin1(p, data, size))


# MariaDB's INET4, INET6 and UUID: fixed-length binary strings, with the trailing zero bytes left out on the wire.

cdef uint8_t[16] HEX = b"0123456789abcdef"


cdef inline int fixed(const uint8_t *data, size_t size, uint8_t *out, size_t width, Value *value) noexcept nogil:
    if size > width:
        return fail(value, b"longer than its type")
    memset(out, 0, width)
    memcpy(out, data, size)
    return 0


cdef uint8_t *put_ipv4(uint8_t *p, const uint8_t *octets) noexcept nogil:
    cdef int i
    for i in range(4):
        p = <uint8_t *>to_chars(<char *>p, <char *>p + 4, <uint64_t>octets[i]).ptr
        p[0] = b"."
        p += 1
    return p - 1


cdef int inet4(Field *field, const uint8_t *data, size_t size, Value *value) noexcept nogil:
    cdef uint8_t[4] octets
    if fixed(data, size, octets, 4, value):
        return -1
    return finish(value, put_ipv4(value.scratch, octets))


cdef int inet6(Field *field, const uint8_t *data, size_t size, Value *value) noexcept nogil:
    """As MariaDB prints it: the longest run of zero groups, even of one, as ::; IPv4-mapped and -compatible dotted."""
    cdef uint8_t[16] octets
    cdef uint16_t[8] groups
    cdef uint8_t *p = value.scratch
    cdef int gap = -1
    cdef int gap_size = 0
    cdef int i
    cdef int run
    cdef int digit
    cdef bint started
    if fixed(data, size, octets, 16, value):
        return -1
    for i in range(8):
        groups[i] = <uint16_t>(octets[2 * i] << 8 | octets[2 * i + 1])
    i = 0
    while i < 8:
        run = 0
        while i + run < 8 and groups[i + run] == 0:
            run += 1
        if run > gap_size:
            gap = i
            gap_size = run
        i += run if run else 1
    i = 0
    while i < 8:
        if i == gap:
            p[0] = b":"
            p += 1
            i += gap_size
            if i == 8:
                p[0] = b":"
                p += 1
            continue
        if i > 0:
            p[0] = b":"
            p += 1
        if i == 6 and gap == 0 and (gap_size == 6 or (gap_size == 5 and groups[5] == 0xFFFF)):
            return finish(value, put_ipv4(p, octets + 12))
        started = False
        for digit in range(4):
            run = groups[i] >> (12 - 4 * digit) & 15
            if run or started or digit == 3:
                started = True
                p[0] = HEX[run]
                p += 1
        i += 1
    return finish(value, p)


cdef int uuid(Field *field, const uint8_t *data, size_t size, Value *value) noexcept nogil:
    """On disk the segments of a UUID are in reverse order, so that those of one host are adjacent.

    MariaDB leaves versions 6 and above, which sort by themselves, unchanged. A reversed UUID is recognised by its
    variant bit in byte 6 and its version, 1 to 5, in byte 8.
    """
    cdef uint8_t[16] stored
    cdef uint8_t[16] octets
    cdef uint8_t *p = value.scratch
    cdef int i
    if fixed(data, size, stored, 16, value):
        return -1
    if stored[6] & 0x80 and 0 < stored[8] < 0x60:
        memcpy(octets, stored + 12, 4)
        memcpy(octets + 4, stored + 10, 2)
        memcpy(octets + 6, stored + 8, 2)
        memcpy(octets + 8, stored + 6, 2)
        memcpy(octets + 10, stored, 6)
    else:
        memcpy(octets, stored, 16)
    for i in range(16):
        if i == 4 or i == 6 or i == 8 or i == 10:
            p[0] = b"-"
            p += 1
        p[0] = HEX[octets[i] >> 4]
        p[1] = HEX[octets[i] & 15]
        p += 2
    return finish(value, p)


# MariaDB's compressed columns (COMPRESSED attribute): empty, or a header byte and the value:
#   method 4 bits (0 stored, 8 zlib) | 1 bit: raw deflate without zlib's own header | width of the length 3 bits
# and of zlib: the length of the value, big-endian in that width, and the deflated bytes.

cdef int compressed(Field *field, const uint8_t *data, size_t size, Value *value) noexcept nogil:
    cdef z_stream stream
    cdef size_t width
    cdef size_t length
    cdef int status
    cdef uint8_t *memory
    if size == 0:
        return field.inner(field, data, 0, value)
    if data[0] >> 4 == 0:
        return field.inner(field, data + 1, size - 1, value)
    width = data[0] & 7
    if data[0] >> 4 != 8 or not 1 <= width <= 4 or size < 1 + width:
        return fail(value, b"not a compressed value")
    length = big_endian(data + 1, width)
    if length > MAX_INFLATION * size:
        return fail(value, b"not a compressed value")
    if length > value.inflated_capacity:
        memory = <uint8_t *>realloc(value.inflated, length)
        if memory == NULL:
            return fail(value, b"out of memory")
        value.inflated = memory
        value.inflated_capacity = length
    memset(&stream, 0, sizeof(stream))
    if inflateInit2(&stream, -MAX_WBITS if data[0] & 8 else MAX_WBITS) != Z_OK:
        return fail(value, b"out of memory")
    stream.next_in = <uint8_t *>(data + 1 + width)
    stream.avail_in = size - 1 - width
    stream.next_out = value.inflated
    stream.avail_out = length
    status = inflate(&stream, Z_FINISH)
    inflateEnd(&stream)
    if status != Z_STREAM_END or stream.avail_out != 0:
        return fail(value, b"not a compressed value")
    return field.inner(field, value.inflated, length, value)


# --- time zones ------------------------------------------------------------------------------------------------------

cdef class Zone:
    """The offsets from UTC of a time zone for all that a TIMESTAMP can hold (1970 to 2106)."""

    def __cinit__(self):
        self.transitions.since = NULL
        self.transitions.offset = NULL

    def __init__(self, str name):
        """`name` is as `offsets_of` takes it. Raises ConfigError if the zone does not exist."""
        cdef Py_ssize_t i
        found = offsets_of(name)
        self.transitions.count = len(found)
        self.transitions.since = <int64_t *>calloc(len(found), sizeof(int64_t))
        self.transitions.offset = <int32_t *>calloc(len(found), sizeof(int32_t))
        if self.transitions.since == NULL or self.transitions.offset == NULL:
            raise MemoryError
        for i in range(len(found)):
            (<int64_t *>self.transitions.since)[i], (<int32_t *>self.transitions.offset)[i] = found[i]

    def __dealloc__(self):
        free(<void *>self.transitions.since)
        free(<void *>self.transitions.offset)


cdef dict ZONES = {}               # plans point into them: they are never replaced or removed
cdef object MAKING = threading.Lock()


cdef Zone get_zone(str name):
    """The zone, made once per process."""
    if name not in ZONES:
        with MAKING:
            if name not in ZONES:
                ZONES[name] = Zone(name)
    return ZONES[name]
