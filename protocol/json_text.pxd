"""JSON texts, read in place: the members of objects and the items of arrays, as spans of the text.

What a value holds is looked at only by who needs it: of the others it is found where they end. RFC 8259.
"""

from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint32_t
from libc.string cimport memchr

from .buffer cimport Buffer, reserve
from .wire cimport Span, span_at


cdef struct Walk:
    const uint8_t *p
    const uint8_t *end
    uint8_t before             # what the next part has to follow: { or [, then a comma
    uint8_t last               # } or ]


cdef inline const uint8_t *skip_space(const uint8_t *p, const uint8_t *end) noexcept nogil:
    while p < end and (p[0] == 32 or p[0] == 10 or p[0] == 13 or p[0] == 9):
        p += 1
    return p


cdef inline const uint8_t *skip_string(const uint8_t *p, const uint8_t *end) noexcept nogil:
    """The place after the string that begins at p; NULL if there is none."""
    if p >= end or p[0] != b'"':
        return NULL
    p += 1
    while p < end:
        if p[0] == b'"':
            return p + 1
        if p[0] < 32:
            return NULL
        p += 2 if p[0] == b"\\" else 1
    return NULL


cdef inline const uint8_t *skip_value(const uint8_t *p, const uint8_t *end) noexcept nogil:
    """The place after the value that begins at p; NULL if none does."""
    cdef const uint8_t *begin = p
    cdef size_t depth = 0
    if p < end and p[0] == b'"':
        return skip_string(p, end)
    while p < end:
        if p[0] == b'"':
            p = skip_string(p, end)
            if p == NULL:
                return NULL
            continue
        if p[0] == b"{" or p[0] == b"[":
            depth += 1
        elif p[0] == b"}" or p[0] == b"]":
            if depth == 0:
                break
            depth -= 1
            if depth == 0:
                return p + 1
        elif depth == 0 and (p[0] == b"," or p[0] <= 32):
            break
        p += 1
    if depth or p == begin:
        return NULL
    return p


cdef inline Walk walk_of(Span text, uint8_t first, uint8_t last) noexcept nogil:
    """The parts of an object or array that the text begins with."""
    cdef Walk walk
    walk.p, walk.end = skip_space(text.data, text.data + text.size), text.data + text.size
    walk.before, walk.last = first, last
    return walk


cdef inline Walk members_of(Span text) noexcept nogil:
    return walk_of(text, b"{", b"}")


cdef inline Walk items_of(Span text) noexcept nogil:
    return walk_of(text, b"[", b"]")


cdef inline int begin_part(Walk *walk) noexcept nogil:
    """Goes to the next part: 1; 0 at the end, with the place after it; -1 if it is not JSON."""
    cdef const uint8_t *p = skip_space(walk.p, walk.end)
    if p < walk.end and p[0] == walk.last and walk.before == b",":
        walk.p = p + 1
        return 0
    if p >= walk.end or p[0] != walk.before:
        return -1
    p = skip_space(p + 1, walk.end)
    if p < walk.end and p[0] == walk.last and walk.before != b",":
        walk.p = p + 1
        return 0
    walk.before = b","
    walk.p = p
    return 1


cdef inline int next_item(Walk *walk, Span *value) noexcept nogil:
    """Reads an item of an array: 1; 0 at its end; -1 if it is not JSON."""
    cdef int found = begin_part(walk)
    cdef const uint8_t *end
    if found != 1:
        return found
    end = skip_value(walk.p, walk.end)
    if end == NULL:
        return -1
    value[0] = span_at(<const char *>walk.p, end - walk.p)
    walk.p = end
    return 1


cdef inline int next_member(Walk *walk, Span *name, Span *value) noexcept nogil:
    """Reads a member of an object, its name with the quotes: 1; 0 at the end of the object; -1 if it is not JSON."""
    cdef int found = begin_part(walk)
    cdef const uint8_t *end
    if found != 1:
        return found
    end = skip_string(walk.p, walk.end)
    if end == NULL:
        return -1
    name[0] = span_at(<const char *>walk.p, end - walk.p)
    walk.p = skip_space(end, walk.end)
    if walk.p >= walk.end or walk.p[0] != b":":
        return -1
    walk.p = skip_space(walk.p + 1, walk.end)
    end = skip_value(walk.p, walk.end)
    if end == NULL:
        return -1
    value[0] = span_at(<const char *>walk.p, end - walk.p)
    walk.p = end
    return 1


cdef inline bint is_string(Span value) noexcept nogil:
    return value.size >= 2 and value.data[0] == b'"'


cdef inline int hex_value(const uint8_t *p, const uint8_t *end) noexcept nogil:
    """The number of four hexadecimal digits; -1 if these are none."""
    cdef int value = 0
    cdef int i
    if end - p < 4:
        return -1
    for i in range(4):
        if b"0" <= p[i] <= b"9":
            value = value << 4 | (p[i] - 48)
        elif b"a" <= (p[i] | 32) <= b"f":
            value = value << 4 | ((p[i] | 32) - 87)
        else:
            return -1
    return value


cdef inline uint8_t *put_character(uint8_t *p, uint32_t code) noexcept nogil:
    """A character as UTF-8: at most four bytes."""
    if code < 0x80:
        p[0] = <uint8_t>code
        return p + 1
    if code < 0x800:
        p[0] = <uint8_t>(0xC0 | code >> 6)
        p[1] = <uint8_t>(0x80 | (code & 63))
        return p + 2
    if code < 0x1_0000:
        p[0] = <uint8_t>(0xE0 | code >> 12)
        p[1] = <uint8_t>(0x80 | (code >> 6 & 63))
        p[2] = <uint8_t>(0x80 | (code & 63))
        return p + 3
    p[0] = <uint8_t>(0xF0 | code >> 18)
    p[1] = <uint8_t>(0x80 | (code >> 12 & 63))
    p[2] = <uint8_t>(0x80 | (code >> 6 & 63))
    p[3] = <uint8_t>(0x80 | (code & 63))
    return p + 4


cdef inline int unescape(Span text, Buffer *buffer) except -1 nogil:
    """Puts what a string stands for into the buffer: 1; 0 if an escape is not one. A lone surrogate becomes U+FFFD."""
    cdef const uint8_t *p = text.data + 1
    cdef const uint8_t *end = text.data + text.size - 1
    cdef uint8_t *out
    cdef int code, low
    buffer.size = 0
    reserve(buffer, text.size)                     # no escape is shorter than what it stands for
    out = buffer.data
    while p < end:
        if p[0] != b"\\":
            out[0] = p[0]
            out += 1
            p += 1
            continue
        if p[1] == b"u":
            code = hex_value(p + 2, end)
            if code < 0:
                return 0
            p += 6
            if 0xD800 <= code < 0xDC00 and end - p >= 6 and p[0] == b"\\" and p[1] == b"u":
                low = hex_value(p + 2, end)
                if 0xDC00 <= low < 0xE000:
                    code = 0x1_0000 + ((code - 0xD800) << 10) + (low - 0xDC00)
                    p += 6
            out = put_character(out, 0xFFFD if 0xD800 <= code < 0xE000 else code)
            continue
        if p[1] == b'"' or p[1] == b"\\" or p[1] == b"/":
            out[0] = p[1]
        elif p[1] == b"n":
            out[0] = 10
        elif p[1] == b"t":
            out[0] = 9
        elif p[1] == b"r":
            out[0] = 13
        elif p[1] == b"b":
            out[0] = 8
        elif p[1] == b"f":
            out[0] = 12
        else:
            return 0
        out += 1
        p += 2
    buffer.size = out - buffer.data
    return 1


cdef inline bint has_escapes(Span text) noexcept nogil:
    return memchr(text.data, b"\\", text.size) != NULL


cdef inline int64_t number_of(Span value) noexcept nogil:
    """The number that a value is, if it is a whole one from 0 to 2 ** 63 - 1; else -1."""
    cdef int64_t number = 0
    cdef int64_t digit
    cdef size_t i
    if not 1 <= value.size <= 19:
        return -1
    for i in range(value.size):
        digit = <int64_t>value.data[i] - 48
        if not 0 <= digit <= 9 or number > (INT64_MAX - digit) // 10:
            return -1
        number = number * 10 + digit
    return number
