"""TiDB's binary JSON to text.

All integers are little-endian::

    document    type 1 byte, value
    object      01: count 4 bytes, size 4, key entries, value entries, keys, values
    array       03: count 4 bytes, size 4, value entries, values
    key entry   offset 4 bytes, length 2
    value entry type 1 byte, offset 4; or the value itself, if it is a literal
    literal     04: 00 null, 01 true, 02 false
    number      09 int64, 0a uint64, 0b double: 8 bytes
    string      0c: length (7 bits per byte, the lowest first), utf8mb4
    opaque      0d: column type 1 byte, length as of a string, bytes

Offsets count from the count of their object or array, as in MySQL's large ones, whose types have the same numbers. The
text is what TiDB prints. Times in a document (0e to 11) are not read.
"""

from libc.math cimport isinf, isnan
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE

from ....protocol.floats cimport put_plain_digits, shortest
from ....protocol.littleendian cimport le32, le64
from ....protocol.wire cimport Span, get_varint, put_decimal, put_signed_decimal, span_at
from ...values.binary cimport Field, Value, fail
from ...values.json cimport (
    MAX_DEPTH,
    Container,
    Json,
    Output,
    begin,
    finish,
    get_child,
    get_key,
    open_container,
    put,
    put_string,
    take_text,
)


cdef enum:
    OBJECT = 0x01
    ARRAY = 0x03
    LITERAL = 0x04
    INT64 = 0x09
    UINT64 = 0x0A
    DOUBLE = 0x0B
    STRING = 0x0C
    OPAQUE = 0x0D
    FIRST_TIME = 0x0E
    LAST_TIME = 0x11

cdef const char *BROKEN = b"not a JSON value"
cdef const char *BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


cdef const uint8_t *sized_end(const uint8_t *p, const uint8_t *end, Span *content) noexcept nogil:
    """Reads a length and what it counts; the place after it, or NULL."""
    cdef uint64_t size
    p = get_varint(p, end, &size)
    if p == NULL or size > <uint64_t>(end - p):
        return NULL
    content[0] = span_at(<const char *>p, size)
    return p + size


cdef const uint8_t *document_end(const uint8_t *p, const uint8_t *end) noexcept nogil:
    cdef size_t size
    cdef Span content
    cdef int kind
    if p >= end:
        return NULL
    kind = p[0]
    p += 1
    if kind == OBJECT or kind == ARRAY:
        if end - p < 8:
            return NULL
        size = max(le32(p + 4), 8)
    elif kind == LITERAL:
        size = 1
    elif INT64 <= kind <= DOUBLE:
        size = 8
    elif kind == STRING:
        return sized_end(p, end, &content)
    elif kind == OPAQUE:
        return sized_end(p + 1, end, &content) if p < end else NULL
    elif kind == LAST_TIME:
        size = 12
    elif FIRST_TIME <= kind:
        size = 8
    else:
        return NULL
    return p + size if size <= <size_t>(end - p) else NULL


cdef int put_double(Output *out, double number) noexcept nogil:
    """As Go: the shortest digits; from 1e-6 to 1e21 plain, without a point if there is no fraction, else `1.5e+300`."""
    cdef uint8_t[64] text
    cdef char[24] digits
    cdef uint8_t *p = text
    cdef int exponent, count
    if isnan(number) or isinf(number):
        return fail(out.value, BROKEN)
    if number < 0 or (number == 0 and 1 / number < 0):
        p[0] = b"-"
        p += 1
        number = -number
    count = shortest(number, digits, &exponent)
    if number == 0 or -6 <= exponent < 21:
        p = put_plain_digits(p, digits, count, exponent)
        if (p - 2)[0] == b"." and (p - 1)[0] == b"0":
            p -= 2
    else:
        p[0] = digits[0]
        p += 1
        if count > 1:
            p[0] = b"."
            memcpy(p + 1, digits + 1, count - 1)
            p += count
        p[0] = b"e"
        p[1] = b"+"
        p = put_decimal(p + 2, exponent) if exponent > 0 else put_signed_decimal(p + 1, exponent)
    return put(out, text, p - text)


cdef int put_opaque(Output *out, int kind, Span content) noexcept nogil:
    """`"base64:type254:SGVsbG8="`"""
    cdef uint8_t[24] head
    cdef uint8_t[4] digits
    cdef uint8_t *p = head
    cdef uint32_t group
    cdef size_t i = 0
    cdef size_t j
    memcpy(p, b'"base64:type', 12)
    p = put_decimal(p + 12, kind)
    p[0] = b":"
    if put(out, head, p + 1 - head):
        return -1
    while i < content.size:
        group = 0
        for j in range(3):
            group = group << 8 | (content.data[i + j] if i + j < content.size else 0)
        for j in range(4):
            digits[j] = BASE64[group >> (18 - 6 * j) & 63] if i + j <= content.size else b"="
        if put(out, digits, 4):
            return -1
        i += 3
    return put(out, b'"', 1)


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
    cdef uint8_t[24] text
    cdef uint8_t *p
    cdef int kind = json.kind
    cdef uint64_t bits
    cdef double number
    cdef Span content
    if kind == OBJECT or kind == ARRAY:
        return put_container(out, json, depth)
    if FIRST_TIME <= kind <= LAST_TIME:
        return fail(out.value, b"a JSON value that is a time, which is not read")
    if kind == LITERAL:
        if json.data >= json.end or json.data[0] > 2:
            return fail(out.value, BROKEN)
        if json.data[0] == 0:
            return put(out, b"null", 4)
        return put(out, b"true", 4) if json.data[0] == 1 else put(out, b"false", 5)
    if kind == STRING:
        if sized_end(json.data, json.end, &content) == NULL:
            return fail(out.value, BROKEN)
        return put_string(out, content.data, content.size)
    if kind == OPAQUE:
        if json.data >= json.end or sized_end(json.data + 1, json.end, &content) == NULL:
            return fail(out.value, BROKEN)
        return put_opaque(out, json.data[0], content)
    if not INT64 <= kind <= DOUBLE or json.end - json.data < 8:
        return fail(out.value, BROKEN)
    bits = le64(json.data)
    if kind == DOUBLE:
        memcpy(&number, &bits, 8)
        return put_double(out, number)
    p = put_signed_decimal(text, <int64_t>bits) if kind == INT64 else put_decimal(text, bits)
    return put(out, text, p - text)


cdef int put_document(Span document, Value *scratch) noexcept nogil:
    cdef Output out
    cdef Json json
    cdef Field field
    memset(&field, 0, sizeof(field))
    begin(&out, &field, document.size, scratch)
    if document.size == 0:
        return fail(scratch, BROKEN)
    json = Json(document.data[0], document.data + 1, document.data + document.size)
    if put_value(&out, &json, 0):
        return -1
    return finish(&out)


def decode(bytes data not None):
    """The text of a document in TiDB's binary form. Raises DecodeError if it is not one."""
    cdef Value value
    cdef int status
    memset(&value, 0, sizeof(value))
    status = put_document(span_at(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data)), &value)
    return take_text(status, &value)
