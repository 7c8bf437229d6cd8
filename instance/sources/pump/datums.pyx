"""Values as TiDB encodes them in rows, to the text that Canal's Column.value carries.

A value begins with a flag, which says where it ends::

    00                                               NULL
    02 <zigzag varint: size> <bytes>                 texts, in UTF-8, and bytes
    05 <8 bytes>                                     FLOAT, DOUBLE: big-endian, the bits of a negative number inverted,
                                                     of any other the sign only: they sort like the numbers
    06 <precision> <scale> <packed>                  DECIMAL, packed as in MySQL
    08 <zigzag varint>                               signed integers, YEAR; TIME in nanoseconds
    09 <varint>                                      unsigned integers, the number of an ENUM, the mask of a SET, BIT;
                                                     DATE, DATETIME and TIMESTAMP (in UTC) packed:
                                                     year * 13 + month, day 5 bits, hour 5, minute 6, second 6,
                                                     microsecond 24
    0a <type> <value>                                JSON: see documents.pyx
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from ....protocol.civil cimport Civil, civil_of, days_of
from ....protocol.floats cimport put_java_double, put_java_float
from ....protocol.wire cimport Span, get_varint, put_decimal, put_signed_decimal, span_at
from ...values.binary cimport Field as ZoneField
from ...values.binary cimport Transitions, Value, decimal_bytes, fail, local_seconds, put_packed_decimal, reserve
from .documents cimport document_end, put_document


cdef enum:
    MAX_PRECISION = 65                             # of a DECIMAL: 81 in a calculation, which no column holds
    MAX_SCALE = 30
    ROOM = 96                                      # bytes of the longest text of a number or time


cdef const uint8_t *next_datum(const uint8_t *p, const uint8_t *end, Datum *datum) noexcept nogil:
    cdef const uint8_t *start = p
    cdef uint64_t size = 0
    cdef int i
    if p >= end:
        return NULL
    datum.flag = p[0]
    datum.number = 0
    datum.data = span_at(NULL, 0)
    datum.precision = datum.scale = 0
    p += 1
    if datum.flag == BYTES_FLAG:
        p = get_varint(p, end, &size)
        if p == NULL or size & 1 or size >> 1 > <uint64_t>(end - p):
            return NULL
        datum.data = span_at(<const char *>p, size >> 1)
        p += size >> 1
    elif datum.flag == DOUBLE_FLAG:
        if end - p < 8:
            return NULL
        for i in range(8):
            datum.number = datum.number << 8 | p[i]
        if datum.number >> 63:
            datum.number &= ~(<uint64_t>1 << 63)
        else:
            datum.number = ~datum.number
        p += 8
    elif datum.flag == DECIMAL_FLAG:
        if end - p < 2 or not 0 < p[0] <= MAX_PRECISION or p[1] > MAX_SCALE or p[1] > p[0]:
            return NULL
        datum.precision, datum.scale = p[0], p[1]
        size = decimal_bytes(datum.precision, datum.scale)
        p += 2
        if size > <uint64_t>(end - p):
            return NULL
        datum.data = span_at(<const char *>p, size)
        p += size
    elif datum.flag == INT_FLAG:
        p = get_varint(p, end, &datum.number)
        datum.number = datum.number >> 1 ^ -(datum.number & 1)
    elif datum.flag == UINT_FLAG:
        p = get_varint(p, end, &datum.number)
    elif datum.flag == JSON_FLAG:
        datum.data.data = p
        p = document_end(p, end)
        if p == NULL:
            return NULL
        datum.data.size = p - datum.data.data
    elif datum.flag != NULL_FLAG:
        return NULL
    if p != NULL:
        datum.whole = span_at(<const char *>start, p - start)
    return p


cdef inline uint8_t *put_padded(uint8_t *p, uint64_t number, int count) noexcept nogil:
    cdef int i = count
    while i > 0:
        i -= 1
        p[i] = <uint8_t>(48 + number % 10)
        number //= 10
    return p + count


cdef uint8_t *put_fraction(uint8_t *p, uint32_t microseconds, int digits) noexcept nogil:
    cdef int i = digits
    if digits == 0:
        return p
    p[0] = b"."
    while i < 6:
        microseconds //= 10
        i += 1
    return put_padded(p + 1, microseconds, digits)


cdef uint8_t *put_time(uint8_t *p, int64_t nanoseconds, int digits) noexcept nogil:
    """NULL if it is no TIME."""
    cdef uint64_t size = -<uint64_t>nanoseconds if nanoseconds < 0 else nanoseconds
    cdef uint64_t seconds = size // 1000000000
    if seconds > 838 * 3600 + 59 * 60 + 59:
        return NULL
    if nanoseconds < 0:
        p[0] = b"-"
        p += 1
    p = put_padded(p, seconds // 3600, 3 if seconds >= 360000 else 2)
    p[0] = b":"
    p = put_padded(p + 1, seconds // 60 % 60, 2)
    p[0] = b":"
    p = put_padded(p + 1, seconds % 60, 2)
    return put_fraction(p, <uint32_t>(size % 1000000000 // 1000), digits)


cdef uint8_t *put_packed(uint8_t *p, const Form *form, ZoneField *zone, uint64_t packed) noexcept nogil:
    """A date with or without its time. NULL if it is none."""
    cdef uint32_t micro = packed & 0xFFFFFF
    cdef uint32_t second = packed >> 24 & 63
    cdef uint32_t minute = packed >> 30 & 63
    cdef uint32_t hour = packed >> 36 & 31
    cdef uint64_t months = packed >> 46
    cdef const Transitions *transitions
    cdef Civil day
    cdef int64_t seconds
    day.day = packed >> 41 & 31
    day.year, day.month = <unsigned int>(months // 13), <unsigned int>(months % 13)
    if months // 13 > 9999 or hour > 23 or minute > 59 or second > 59 or micro > 999999:
        return NULL
    if form.way == TIMESTAMP and packed:
        transitions = <const Transitions *>zone.context
        if transitions.count > 1 or transitions.offset[0]:
            if not day.month or not day.day or day.year < 1970:
                return NULL
            seconds = days_of(day) * 86400 + hour * 3600 + minute * 60 + second
            if seconds >> 32:
                return NULL
            seconds = local_seconds(zone, <uint32_t>seconds) + 86400
            day = civil_of(seconds // 86400 - 1)
            seconds %= 86400
            hour, minute, second = seconds // 3600, seconds // 60 % 60, seconds % 60
    p = put_padded(p, day.year, 4)
    p[0] = b"-"
    p = put_padded(p + 1, day.month, 2)
    p[0] = b"-"
    p = put_padded(p + 1, day.day, 2)
    if form.way == DATE:
        return p
    p[0] = b" "
    p = put_padded(p + 1, hour, 2)
    p[0] = b":"
    p = put_padded(p + 1, minute, 2)
    p[0] = b":"
    p = put_padded(p + 1, second, 2)
    return put_fraction(p, micro, form.digits)


cdef int put_datum(const Form *form, ZoneField *zone, const Datum *datum, Value *scratch, Span *text) noexcept nogil:
    # Long: one branch for each way to write a value.
    cdef int way = form.way
    cdef int flag = datum.flag
    cdef uint8_t *p
    cdef uint8_t *end = NULL
    cdef double number
    if way == TEXT or way == RAW or way == FIXED:
        if flag != BYTES_FLAG:
            return fail(scratch, b"not a text")
        text[0] = datum.data
        while way == FIXED and text.size and text.data[text.size - 1] == 0:
            text.size -= 1
        return 0
    if way == DOCUMENT:
        if flag != JSON_FLAG:
            return fail(scratch, b"not a document")
        if put_document(datum.data, scratch):
            return -1
        text[0] = span_at(<const char *>scratch.text, scratch.size)
        return 0
    p = reserve(scratch, ROOM)
    if p == NULL:
        return -1
    if way == NUMBER or way == UNSIGNED:
        # The handle of a row is signed, whatever its column is.
        if flag == INT_FLAG or flag == UINT_FLAG:
            end = put_decimal(p, datum.number) if way == UNSIGNED else put_signed_decimal(p, <int64_t>datum.number)
    elif way == DOUBLE or way == SINGLE:
        if flag == DOUBLE_FLAG:
            memcpy(&number, &datum.number, 8)
            end = put_java_float(p, <float>number) if way == SINGLE else put_java_double(p, number)
    elif way == DECIMAL:
        if flag == DECIMAL_FLAG:
            end = put_packed_decimal(p, datum.data.data, datum.data.size, datum.precision, datum.scale, False)
    elif way == TIME:
        if flag == INT_FLAG:
            end = put_time(p, <int64_t>datum.number, form.digits)
    elif way == YEAR:
        if flag == INT_FLAG and datum.number <= 9999:
            end = put_padded(p, datum.number, 4)
    elif way != UNKNOWN and flag == UINT_FLAG:
        end = put_packed(p, form, zone, datum.number)
    if end == NULL:
        return fail(scratch, b"not a value of its type")
    text[0] = span_at(<const char *>p, end - p)
    return 0
