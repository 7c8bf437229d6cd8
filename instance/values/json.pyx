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
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE

from ...protocol.escapes cimport skip_plain
from ...protocol.floats cimport put_java_double, put_plain_digits, shortest
from ...protocol.littleendian cimport le
from ...protocol.utf8 cimport is_utf8, put_utf8, utf8_size
from ...protocol.wire cimport LENGTH_MAX, get_varint, put_decimal, put_signed_decimal
from .binary cimport Field, Value, fail, put_packed_decimal, reserve

from ...protocol.errors import DecodeError

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

cdef const char *BROKEN = b"not a JSON value"
cdef const char *DIGITS = b"0123456789abcdef"
cdef const char *BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


cdef inline uint8_t *room(Output *out, size_t size) noexcept nogil:
    """The place for `size` more bytes; NULL with an error."""
    cdef uint8_t *p
    if out.size + size > out.limit:
        out.value.error = BROKEN
        return NULL
    p = reserve(out.value, out.size + size)
    return p + out.size if p != NULL else NULL


cdef int put(Output *out, const void *text, size_t size) noexcept nogil:
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
    """As MySQL: the shortest digits; plain from 1e-15 to 1e15 and with a fraction, else `1.5e300`.

    A plain number without a fraction has `.0`, so that it reads back as a double.
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


cdef int open_container(const Json *json, Container *container) noexcept nogil:
    cdef size_t available = json.end - json.data
    cdef int width = 2 if json.kind == SMALL_OBJECT or json.kind == SMALL_ARRAY else 4
    if not SMALL_OBJECT <= json.kind <= LARGE_ARRAY or available < <size_t>(2 * width):
        return -1
    container.data = json.data
    container.width = width
    container.is_object = json.kind <= LARGE_OBJECT
    container.count = le(json.data, width)
    container.size = le(json.data + width, width)
    container.values = 2 * width + (container.count * (width + 2) if container.is_object else 0)
    if container.size > available or container.values + container.count * (1 + width) > container.size:
        return -1
    return 0


cdef const uint8_t *get_key(const Container *container, size_t i, size_t *size) noexcept nogil:
    cdef int width = container.width
    cdef const uint8_t *entry = container.data + 2 * width + i * (width + 2)
    cdef size_t offset = le(entry, width)
    size[0] = le(entry + width, 2)
    if offset > container.size or size[0] > container.size - offset:
        return NULL
    return container.data + offset


cdef int get_child(const Container *container, size_t i, Json *child) noexcept nogil:
    cdef int width = container.width
    cdef const uint8_t *entry = container.data + container.values + i * (1 + width)
    cdef size_t offset
    child.kind = entry[0]
    if child.kind == LITERAL or child.kind == INT16 or child.kind == UINT16 or (
        width == 4 and (child.kind == INT32 or child.kind == UINT32)
    ):
        child.data = entry + 1
        child.end = entry + 1 + width
        return 0
    offset = le(entry + 1, width)
    child.data = container.data + offset
    child.end = container.data + container.size
    return -1 if offset > container.size else 0


cdef int put_container(Output *out, const Json *json, int depth) noexcept nogil:
    cdef Container container
    cdef Json child
    cdef const uint8_t *key
    cdef size_t size = 0
    cdef size_t i
    if depth > MAX_DEPTH or open_container(json, &container):
        return fail(out.value, BROKEN)
    if put(out, b"{" if container.is_object else b"[", 1):
        return -1
    for i in range(container.count):
        if i and put(out, b", ", 2):
            return -1
        if container.is_object:
            key = get_key(&container, i, &size)
            if key == NULL:
                return fail(out.value, BROKEN)
            if put_string(out, key, size) or put(out, b": ", 2):
                return -1
        if get_child(&container, i, &child):
            return fail(out.value, BROKEN)
        if put_value(out, &child, depth + 1):
            return -1
    return put(out, b"}" if container.is_object else b"]", 1)


cdef int put_value(Output *out, const Json *json, int depth) noexcept nogil:
    cdef int kind = json.kind
    cdef const uint8_t *data = json.data
    cdef const uint8_t *end = json.end
    cdef size_t size = 0
    cdef uint8_t *p
    cdef uint8_t *after
    cdef double number
    if kind <= LARGE_ARRAY:
        return put_container(out, json, depth)
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
            if out.is_strict:
                after = put_java_double(p, number)
            else:
                after = put_mysql_double(p, number)
                if not out.digits and (after - 2)[0] == b"." and (after - 1)[0] == b"0":
                    after -= 2
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


cdef void begin(Output *out, const Field *field, size_t size, Value *value) noexcept nogil:
    out.value = value
    out.size = 0
    out.limit = 1024 + 64 * size
    out.is_strict = field.is_strict
    out.digits = field.digits


cdef int finish(Output *out) noexcept nogil:
    out.value.text = out.value.scratch
    out.value.size = out.size
    return 0


cdef int json_document(Field *field, const uint8_t *data, size_t size, Value *value) noexcept nogil:
    """A JSON column. A value of no bytes, which old servers wrote in place of NULL, is an empty text."""
    cdef Output out
    cdef Json json
    begin(&out, field, size, value)
    if size:
        json = Json(data[0], data + 1, data + size)
        if put_value(&out, &json, 0):
            return -1
    return finish(&out)


cdef str take_text(int status, Value *value):
    try:
        if status < 0:
            raise DecodeError(value.error.decode())
        return value.text[:value.size].decode("utf-8")
    finally:
        free(value.scratch)


def decode(bytes data not None, *, bint strict_canal=False, bint whole_doubles=False):
    """The text of a document in MySQL's binary form. Raises DecodeError if it is not one.

    `whole_doubles`: see `PlanOptions`.
    """
    cdef Field field
    cdef Value value
    memset(&field, 0, sizeof(field))
    memset(&value, 0, sizeof(value))
    field.is_strict = strict_canal
    field.digits = 0 if whole_doubles else 1
    return take_text(
        json_document(&field, <const uint8_t *>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), &value), &value
    )
