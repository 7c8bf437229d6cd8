"""MySQL's binary JSON to text.

The layout is that of `sql-common/json_binary.h` (all integers little-endian; "n" is 2 bytes in a small object or array
and 4 in a large one):

    document    type 1 byte, value
    object      count n, size n, key entries, value entries, keys, values
    array       count n, size n, value entries, values
    key entry   offset n, length 2 bytes
    value entry type 1 byte, offset n; or the value itself where it fits into n bytes (literals and short integers)
    string      length (7 bits per byte, the lowest first), utf8mb4
    opaque      column type 1 byte, length as of a string, value

Offsets count from the count of their object or array. The text is what the server prints for SELECT; under strict_canal
what Canal prints.
"""

from libc.math cimport isinf, isnan
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE

from .....protocol.escapes cimport skip_plain
from .....protocol.floats cimport put_java_double, put_plain_digits, shortest
from .....protocol.littleendian cimport le, length_encoded
from .....protocol.utf8 cimport is_utf8, put_utf8, utf8_size
from .....protocol.wire cimport LENGTH_MAX, get_varint, put_decimal, put_signed_decimal
from .values cimport Field, Value, fail, put_packed_decimal, reserve

from .....protocol.errors import DecodeError

cdef enum:
    SMALL_OBJECT = 0x00
    LARGE_OBJECT = 0x01
    SMALL_ARRAY = 0x02
    LARGE_ARRAY = 0x03
    LITERAL = 0x04
    INT16 = 0x05
    UINT16 = 0x06
    INT32 = 0x07
    UINT32 = 0x08
    INT64 = 0x09
    UINT64 = 0x0A
    DOUBLE = 0x0B
    STRING = 0x0C
    OPAQUE = 0x0F

    # Column types of opaque values
    TIMESTAMP = 7
    DATE = 10
    TIME = 11
    DATETIME = 12
    NEWDECIMAL = 246

    REPLACE = 0            # operations of a difference
    INSERT = 1
    REMOVE = 2

    MAX_DEPTH = 100        # as the server
    NUMBER_SIZE = 400      # more bytes than a number can take

cdef const char *BROKEN = b"not a JSON value"
cdef const char *DIGITS = b"0123456789abcdef"
cdef const char *BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


cdef struct Output:
    Value *value
    size_t size
    size_t limit           # parts of a document do not overlap, so its text cannot be longer
    bint is_strict


cdef inline uint8_t *room(Output *out, size_t size) noexcept nogil:
    """The place for `size` more bytes; NULL with an error."""
    cdef uint8_t *p
    if out.size + size > out.limit:
        out.value.error = BROKEN
        return NULL
    p = reserve(out.value, out.size + size)
    return p + out.size if p != NULL else NULL


cdef inline int put(Output *out, const void *text, size_t size) noexcept nogil:
    cdef uint8_t *p = room(out, size)
    if p == NULL:
        return -1
    memcpy(p, text, size)
    out.size += size
    return 0


cdef int put_text(Output *out, const uint8_t *text, size_t size) noexcept nogil:
    """The bytes as valid UTF-8."""
    cdef uint8_t *p
    if is_utf8(text, size):
        return put(out, text, size)
    p = room(out, utf8_size(text, size))
    if p == NULL:
        return -1
    out.size += put_utf8(p, text, size) - p
    return 0


cdef const uint8_t *get_length(const uint8_t *p, const uint8_t *end, size_t *size) noexcept nogil:
    """A length of 7 bits per byte; the place after, or NULL when it or what it counts goes beyond the end."""
    cdef uint64_t result
    p = get_varint(p, min(end, p + LENGTH_MAX), &result)
    if p == NULL or result > <uint64_t>(end - p):
        return NULL
    size[0] = <size_t>result
    return p


cdef inline bint is_canals(const uint8_t *p, const uint8_t *end) noexcept nogil:
    """Whether Canal alone escapes the character: DEL, and those from U+0080 to U+00A0."""
    return p[0] == 0x7F or (p[0] == 0xC2 and end - p > 1 and p[1] <= 0xA0)


cdef int put_string(Output *out, const uint8_t *text, size_t size) noexcept nogil:
    """Quoted, with JSON's escapes; `size` times 6 at most."""
    cdef const uint8_t *end = text + size
    cdef const uint8_t *run
    cdef const uint8_t *plain_end
    cdef uint8_t escape
    cdef uint8_t *p
    if put(out, b'"', 1):
        return -1
    while text < end:
        run = text
        plain_end = skip_plain(text, end)
        if out.is_strict:
            while text < plain_end and not is_canals(text, end):
                text += 1
        else:
            text = plain_end
        if put_text(out, run, text - run):
            return -1
        if text == end:
            break
        escape = 0
        if text[0] == b'"' or text[0] == b"\\":
            escape = text[0]
        elif text[0] == b"\n":
            escape = b"n"
        elif text[0] == b"\r":
            escape = b"r"
        elif text[0] == b"\t":
            escape = b"t"
        elif text[0] == 8 and not out.is_strict:
            escape = b"b"
        elif text[0] == 12 and not out.is_strict:
            escape = b"f"
        p = room(out, 6)
        if p == NULL:
            return -1
        p[0] = b"\\"
        if escape:
            p[1] = escape
            out.size += 2
        else:
            if text[0] == 0xC2:
                text += 1
            memcpy(p + 1, b"u00", 3)
            p[4] = DIGITS[text[0] >> 4]
            p[5] = DIGITS[text[0] & 15]
            out.size += 6
        text += 1
    return put(out, b'"', 1)


cdef uint8_t *put_mysql_double(uint8_t *p, double number) noexcept nogil:
    """As MySQL 8: the shortest digits; plain from 1e-15 to 1e15 and with a fraction, else `1.5e300`.

    A plain number without a fraction gets `.0`, so that it reads back as a double (5.7 prints it without).
    """
    cdef char[24] digits
    cdef int exponent
    cdef int count
    if number < 0 or (number == 0 and 1 / number < 0):
        p[0] = b"-"
        p += 1
        number = -number
    count = shortest(number, digits, &exponent)
    if exponent < -15 or (exponent > 14 and count <= exponent + 1):
        p[0] = digits[0]
        p += 1
        if count > 1:
            p[0] = b"."
            memcpy(p + 1, digits + 1, count - 1)
            p += count
        p[0] = b"e"
        return put_signed_decimal(p + 1, exponent)
    return put_plain_digits(p, digits, count, exponent)


cdef inline uint8_t *put_padded(uint8_t *p, unsigned int number, int count) noexcept nogil:
    cdef int i = count
    while i > 0:
        i -= 1
        p[i] = <uint8_t>(48 + number % 10)
        number //= 10
    return p + count


cdef uint8_t *put_clock(uint8_t *p, uint64_t packed, bint strict) noexcept nogil:
    """hour << 36 | minute 6 bits | second 6 bits | microsecond 24 bits

    `strict`: Canal drops the 1 of exactly 100 hours.
    """
    cdef unsigned int hour = <unsigned int>(packed >> 36)
    p = put_padded(p, hour, 3 if hour > 100 or (hour == 100 and not strict) else 2)
    p[0] = b":"
    p = put_padded(p + 1, packed >> 30 & 63, 2)
    p[0] = b":"
    p = put_padded(p + 1, packed >> 24 & 63, 2)
    p[0] = b"."
    return put_padded(p + 1, packed & 0xFFFFFF, 6)


cdef int put_temporal(Output *out, int kind, const uint8_t *data, size_t size) noexcept nogil:
    """A packed temporal value of 8 bytes: `(year * 13 + month) << 46 | day << 41 | clock`, a time only the clock."""
    cdef int64_t packed
    cdef unsigned int months
    cdef uint8_t *p
    cdef uint8_t *start
    if size != 8:
        return fail(out.value, BROKEN)
    memcpy(&packed, data, 8)
    if out.is_strict and packed == 0:
        if kind == TIME:
            return put(out, b'"00:00:00"', 10)
        return put(out, b'"0000-00-00 00:00:00"', 21)
    start = p = room(out, 48)
    if p == NULL:
        return -1
    p[0] = b'"'
    p += 1
    if packed < 0:
        p[0] = b"-"
        p += 1
        packed = -packed
    if kind == TIME:
        if packed >> 36 > 838:
            return fail(out.value, BROKEN)
        p = put_clock(p, packed, out.is_strict)
    else:
        months = <unsigned int>(packed >> 46)
        if months // 13 > 9999:
            return fail(out.value, BROKEN)
        p = put_padded(p, months // 13, 4)
        p[0] = b"-"
        p = put_padded(p + 1, months % 13, 2)
        p[0] = b"-"
        p = put_padded(p + 1, packed >> 41 & 31, 2)
        if kind != DATE or out.is_strict:
            p[0] = b" "
            p = put_clock(p + 1, packed & ((<int64_t>1 << 41) - 1), out.is_strict)
    p[0] = b'"'
    out.size += p + 1 - start
    return 0


cdef int put_base64(Output *out, int kind, const uint8_t *data, size_t size) noexcept nogil:
    """`"base64:type15:SGVsbG8="`, as the server prints what JSON itself lacks, broken into lines of 76."""
    cdef uint8_t *p = room(out, 16 + (size + 2) // 3 * 4 + size // 57 * 2 + 2)
    cdef uint8_t *start = p
    cdef uint32_t group
    cdef size_t i
    cdef size_t j
    if p == NULL:
        return -1
    memcpy(p, b'"base64:type', 12)
    p = put_decimal(p + 12, kind)
    p[0] = b":"
    p += 1
    i = 0
    while i < size:
        if i and i % 57 == 0:
            p[0] = b"\\"
            p[1] = b"n"
            p += 2
        group = 0
        for j in range(3):
            group = group << 8 | (data[i + j] if i + j < size else 0)
        for j in range(4):
            p[j] = BASE64[group >> (18 - 6 * j) & 63] if i + j <= size else b"="
        p += 4
        i += 3
    p[0] = b'"'
    out.size += p + 1 - start
    return 0


cdef int put_opaque(Output *out, const uint8_t *data, const uint8_t *end) noexcept nogil:
    cdef size_t size = 0
    cdef int kind
    cdef const uint8_t *content
    cdef uint8_t *p
    cdef uint8_t *after
    if data == end:
        return fail(out.value, BROKEN)
    kind = data[0]
    content = get_length(data + 1, end, &size)
    if content == NULL:
        return fail(out.value, BROKEN)
    if kind == NEWDECIMAL:  # precision, scale, packed
        if size < 3 or content[0] > 81 or content[1] > content[0]:
            return fail(out.value, BROKEN)
        p = room(out, 128)
        if p == NULL:
            return -1
        after = put_packed_decimal(p, content + 2, size - 2, content[0], content[1], out.is_strict)
        if after == NULL:
            return fail(out.value, BROKEN)
        out.size += after - p
        return 0
    if kind == DATE or kind == TIME or kind == DATETIME or kind == TIMESTAMP:
        return put_temporal(out, kind, content, size)
    if out.is_strict:
        return put_string(out, content, size)
    return put_base64(out, kind, content, size)


cdef int put_container(
    Output *out, bint is_object, int width, const uint8_t *data, const uint8_t *end, int depth
) noexcept nogil:
    cdef size_t available = end - data
    cdef size_t count
    cdef size_t size
    cdef size_t i
    cdef size_t offset
    cdef size_t length
    cdef const uint8_t *entry
    cdef int kind
    cdef bint is_inline
    cdef size_t key_entries
    if depth > MAX_DEPTH or available < <size_t>(2 * width):
        return fail(out.value, BROKEN)
    count = le(data, width)
    size = le(data + width, width)
    key_entries = count * (width + 2) if is_object else 0
    if size > available or 2 * width + key_entries + count * (1 + width) > size:
        return fail(out.value, BROKEN)
    end = data + size
    if put(out, b"{" if is_object else b"[", 1):
        return -1
    for i in range(count):
        if i and put(out, b", ", 2):
            return -1
        if is_object:
            entry = data + 2 * width + i * (width + 2)
            offset = le(entry, width)
            length = le(entry + width, 2)
            if offset > size or length > size - offset:
                return fail(out.value, BROKEN)
            if put_string(out, data + offset, length) or put(out, b": ", 2):
                return -1
        entry = data + 2 * width + key_entries + i * (1 + width)
        kind = entry[0]
        is_inline = kind == LITERAL or kind == INT16 or kind == UINT16
        if is_inline or (width == 4 and (kind == INT32 or kind == UINT32)):
            if put_value(out, kind, entry + 1, entry + 1 + width, depth + 1):
                return -1
            continue
        offset = le(entry + 1, width)
        if offset > size:
            return fail(out.value, BROKEN)
        if put_value(out, kind, data + offset, end, depth + 1):
            return -1
    return put(out, b"}" if is_object else b"]", 1)


cdef int put_value(Output *out, int kind, const uint8_t *data, const uint8_t *end, int depth) noexcept nogil:
    cdef size_t size = 0
    cdef uint8_t *p
    cdef uint8_t *after
    cdef double number
    if kind == SMALL_OBJECT or kind == LARGE_OBJECT:
        return put_container(out, True, 2 if kind == SMALL_OBJECT else 4, data, end, depth)
    if kind == SMALL_ARRAY or kind == LARGE_ARRAY:
        return put_container(out, False, 2 if kind == SMALL_ARRAY else 4, data, end, depth)
    if kind == STRING:
        data = get_length(data, end, &size)
        if data == NULL:
            return fail(out.value, BROKEN)
        return put_string(out, data, size)
    if kind == OPAQUE:
        return put_opaque(out, data, end)
    if kind == LITERAL:
        if data == end or data[0] > 2:
            return fail(out.value, BROKEN)
        if data[0] == 0:
            return put(out, b"null", 4)
        return put(out, b"true", 4) if data[0] == 1 else put(out, b"false", 5)
    if INT16 <= kind <= DOUBLE:
        size = 2 if kind <= UINT16 else 4 if kind <= UINT32 else 8
        if <size_t>(end - data) < size:
            return fail(out.value, BROKEN)
        p = room(out, 32)
        if p == NULL:
            return -1
        if kind == DOUBLE:
            memcpy(&number, data, 8)
            if isnan(number) or isinf(number):
                return fail(out.value, BROKEN)
            after = put_java_double(p, number) if out.is_strict else put_mysql_double(p, number)
        elif kind == INT16:
            after = put_signed_decimal(p, <int16_t>le(data, 2))
        elif kind == INT32:
            after = put_signed_decimal(p, <int32_t>le(data, 4))
        elif kind == INT64:
            after = put_signed_decimal(p, <int64_t>le(data, 8))
        else:
            after = put_decimal(p, le(data, size))
        out.size += after - p
        return 0
    return fail(out.value, BROKEN)


cdef inline int finish(Output *out) noexcept nogil:
    out.value.text = out.value.scratch
    out.value.size = out.size
    return 0


cdef int json_document(Field *field, const uint8_t *data, size_t size, Value *value) noexcept nogil:
    """A JSON column. A value of no bytes, which old servers wrote in place of NULL, is an empty text."""
    cdef Output out
    out.value = value
    out.size = 0
    out.limit = 1024 + 64 * size
    out.is_strict = field.is_strict
    if size and put_value(&out, data[0], data + 1, data + size, 0):
        return -1
    return finish(&out)


# The image after of a PARTIAL_UPDATE_ROWS event has, for a JSON column, differences one after the other:
#   operation 1 byte, path (length packed), and except for REMOVE the value (length packed): a document

cdef const uint8_t *get_packed(const uint8_t *p, const uint8_t *end, size_t *size) noexcept nogil:
    """A packed length; the place after it, or NULL when it or what it counts goes beyond the end."""
    cdef uint64_t length
    p = length_encoded(p, end, &length)
    if p == NULL or length > <uint64_t>(end - p):
        return NULL
    size[0] = <size_t>length
    return p


cdef struct Difference:
    const char *function   # what Canal writes it as
    const uint8_t *path
    size_t path_size
    const uint8_t *value
    size_t value_size


cdef const uint8_t *get_difference(const uint8_t *p, const uint8_t *end, Difference *difference) noexcept nogil:
    """The place after it, or NULL."""
    cdef int operation = p[0]
    if operation > REMOVE:
        return NULL
    p = get_packed(p + 1, end, &difference.path_size)
    if p == NULL:
        return NULL
    difference.path = p
    p += difference.path_size
    difference.value_size = 0
    if operation == REPLACE:
        difference.function = b"JSON_REPLACE("
    elif operation == REMOVE:
        difference.function = b"JSON_REMOVE("
        return p
    elif difference.path_size and (p - 1)[0] == b"]":
        difference.function = b"JSON_ARRAY_INSERT("
    else:
        difference.function = b"JSON_INSERT("
    p = get_packed(p, end, &difference.value_size)
    if p == NULL or difference.value_size == 0:
        return NULL
    difference.value = p
    return p + difference.value_size


cdef inline size_t text_size(const char *text) noexcept nogil:
    cdef size_t size = 0
    while text[size]:
        size += 1
    return size


cdef int put_path(Output *out, const uint8_t *path, size_t size) noexcept nogil:
    """As a string of SQL."""
    cdef const uint8_t *end = path + size
    cdef const uint8_t *run
    if put(out, b"'", 1):
        return -1
    while path < end:
        run = path
        while path < end and path[0] != b"'" and path[0] != b"\\":
            path += 1
        if put_text(out, run, path - run):
            return -1
        if path < end:
            if put(out, b"\\", 1) or put(out, path, 1):
                return -1
            path += 1
    return put(out, b"'", 1)


cdef int json_differences(
    Field *field, const uint8_t *name, size_t name_size, const uint8_t *data, size_t size, Value *value
) noexcept nogil:
    """Canal's expression of the differences: `JSON_REPLACE(JSON_INSERT(name, '$.a', 1), '$.b', 2, '$.c', 3)`.

    The first difference is the innermost call; those of one function that follow each other share a call.
    """
    cdef const uint8_t *end = data + size
    cdef const uint8_t *p = data
    cdef Difference *differences
    cdef size_t count = 0
    cdef int result
    cdef Output out
    out.value = value
    out.size = 0
    out.limit = 1024 + 64 * (size + name_size)
    out.is_strict = field.is_strict
    differences = <Difference *>calloc(size // 2 + 1, sizeof(Difference))  # the shortest takes two bytes
    if differences == NULL:
        return fail(value, b"out of memory")
    value.error = BROKEN
    while p < end:
        p = get_difference(p, end, &differences[count])
        if p == NULL:
            free(differences)
            return -1
        count += 1
    result = put_differences(&out, differences, count, name, name_size)
    free(differences)
    return finish(&out) if result == 0 else -1


cdef int put_differences(
    Output *out, Difference *differences, size_t count, const uint8_t *name, size_t name_size
) noexcept nogil:
    cdef Difference *difference
    cdef size_t i = count
    while i > 0:
        i -= 1
        difference = &differences[i]
        if i == 0 or (difference - 1).function != difference.function:
            if put(out, difference.function, text_size(difference.function)):
                return -1
    if put(out, name, name_size):
        return -1
    for i in range(count):
        difference = &differences[i]
        if i and (difference - 1).function != difference.function and put(out, b")", 1):
            return -1
        if put(out, b", ", 2) or put_path(out, difference.path, difference.path_size):
            return -1
        if difference.value_size:
            if put(out, b", ", 2) or put_value(
                out, difference.value[0], difference.value + 1, difference.value + difference.value_size, 0
            ):
                return -1
    return put(out, b")", 1) if count else 0


def decode(bytes data not None, *, bint strict_canal=False):
    """The text of a document in MySQL's binary form. Raises DecodeError if it is not one."""
    cdef Field field
    cdef Value value
    memset(&field, 0, sizeof(field))
    memset(&value, 0, sizeof(value))
    field.is_strict = strict_canal
    try:
        if json_document(&field, <const uint8_t *>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), &value):
            raise DecodeError(value.error.decode())
        return value.text[:value.size].decode("utf-8")
    finally:
        free(value.scratch)
