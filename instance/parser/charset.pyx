"""Character sets of MySQL and MariaDB: the bytes of a text to UTF-8."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

from sluice.instance.parser.values cimport Field, Value, fail, reserve

from sluice.protocol.errors import DecodeError


cdef inline const uint8_t *skip_ascii(const uint8_t *p, const uint8_t *end) noexcept nogil:
    """The first byte that is not ASCII, or the end."""
    cdef uint64_t eight
    while end - p >= 8:
        memcpy(&eight, p, 8)
        if eight & <uint64_t>0x8080808080808080:
            break
        p += 8
    while p < end and p[0] < 0x80:
        p += 1
    return p


cdef inline bint is_tail(uint8_t byte) noexcept nogil:
    return byte & 0xC0 == 0x80


cdef bint is_utf8(const uint8_t *p, const uint8_t *end) noexcept nogil:
    """Whether the bytes are well-formed UTF-8 (Unicode 15.0, table 3-7): shortest forms, no surrogates."""
    while True:
        p = skip_ascii(p, end)
        if p == end:
            return True
        if 0xC2 <= p[0] <= 0xDF:
            if end - p < 2 or not is_tail(p[1]):
                return False
            p += 2
        elif 0xE0 <= p[0] <= 0xEF:
            if end - p < 3 or not is_tail(p[1]) or not is_tail(p[2]):
                return False
            if p[0] == 0xE0 and p[1] < 0xA0 or p[0] == 0xED and p[1] > 0x9F:
                return False
            p += 3
        elif 0xF0 <= p[0] <= 0xF4:
            if end - p < 4 or not is_tail(p[1]) or not is_tail(p[2]) or not is_tail(p[3]):
                return False
            if p[0] == 0xF0 and p[1] < 0x90 or p[0] == 0xF4 and p[1] > 0x8F:
                return False
            p += 4
        else:
            return False


cdef int by_codec(const char *codec, const uint8_t *data, size_t size, Value *value) noexcept with gil:
    """Decodes with Python's codec, what is malformed as U+FFFD."""
    cdef bytes text
    cdef uint8_t *p
    try:
        text = data[:size].decode(codec.decode(), "replace").encode("utf-8", "replace")
        p = reserve(value, PyBytes_GET_SIZE(text))
        if p == NULL:
            return -1
        memcpy(p, PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))
        value.text = p
        value.size = PyBytes_GET_SIZE(text)
        return 0
    except Exception:
        return fail(value, b"not a text of its character set")


# utf8mb4 and utf8mb3 (utf8): as they are when well-formed.

cdef int utf8(Field *field, const uint8_t *data, size_t size, Value *value) noexcept nogil:
    if not is_utf8(data, data + size):
        return by_codec(b"utf-8", data, size, value)
    value.text = data
    value.size = size
    return 0


cdef dict CHARSETS = {}


cdef Charset get_charset(str name):
    """The character set of that MySQL name; DecodeError when there is none."""
    cdef Charset charset = CHARSETS.get(name)
    if charset is None:
        charset = Charset.__new__(Charset)
        charset.name = name
        if name not in ("utf8mb4", "utf8mb3", "utf8"):
            raise DecodeError(f"the character set {name} is unknown")
        charset.decode = utf8
        CHARSETS[name] = charset
    return charset


def decode(bytes data not None, str charset not None):
    """The text that the bytes are in the MySQL character set of that name; malformed bytes give U+FFFD.

    Raises DecodeError when there is no such character set.
    """
    cdef Charset found = get_charset(charset)
    cdef Field field
    cdef Value value
    memset(&field, 0, sizeof(field))
    memset(&value, 0, sizeof(value))
    field.context = found.table
    try:
        if found.decode(&field, <const uint8_t *>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), &value):
            raise DecodeError(value.error.decode())
        return value.text[:value.size].decode("utf-8")
    finally:
        free(value.scratch)
