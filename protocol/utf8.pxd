"""Text and bytes from the wire as valid UTF-8: one bad byte would make a whole protobuf message unreadable."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef extern from "utf8.h" namespace "utf8" nogil:
    const size_t BLOCK
    const size_t BEFORE
    bint is_rest_valid(const uint8_t *p, const uint8_t *end)


cdef inline const uint8_t *skip_ascii(const uint8_t *p, const uint8_t *end) noexcept nogil:
    """The first byte that is not ASCII, or the end."""
    cdef uint64_t eight
    cdef uint64_t[4] words
    while end - p >= 32:           # compilers make one test of vectors of it
        memcpy(words, p, 32)
        if (words[0] | words[1] | words[2] | words[3]) & <uint64_t>0x8080808080808080:
            break
        p += 32
    while end - p >= 8:
        memcpy(&eight, p, 8)
        if eight & <uint64_t>0x8080808080808080:
            break
        p += 8
    while p < end and p[0] < 0x80:
        p += 1
    return p


cdef inline int utf8_sequence(const uint8_t *p, const uint8_t *end, bint *valid) noexcept nogil:
    """Bytes of the sequence at p; when it is not valid, of the longest beginning of a valid one (at least 1)."""
    cdef uint8_t first = p[0]
    cdef uint8_t low = 0x80
    cdef uint8_t high = 0xBF
    cdef int length, i
    valid[0] = False
    if first < 0x80:
        valid[0] = True
        return 1
    if 0xC2 <= first <= 0xDF:
        length = 2
    elif 0xE0 <= first <= 0xEF:
        length = 3
        if first == 0xE0:
            low = 0xA0
        elif first == 0xED:
            high = 0x9F
    elif 0xF0 <= first <= 0xF4:
        length = 4
        if first == 0xF0:
            low = 0x90
        elif first == 0xF4:
            high = 0x8F
    else:
        return 1
    for i in range(1, length):
        if p + i >= end or p[i] < low or p[i] > high:
            return i
        low, high = 0x80, 0xBF
    valid[0] = True
    return length


cdef inline bint is_utf8(const uint8_t *data, size_t size) noexcept nogil:
    """Whether the bytes are well-formed UTF-8."""
    cdef const uint8_t *p = data
    cdef const uint8_t *end = data + size
    cdef bint valid
    while True:
        p = skip_ascii(p, end)
        if p == end:
            return True
        if <size_t>(p - data) >= BEFORE and size >= BEFORE + BLOCK:
            return is_rest_valid(p, end)
        p += utf8_sequence(p, end, &valid)
        if not valid:
            return False


cdef inline uint32_t next_point(const uint8_t **text) noexcept nogil:
    """The next character of a well-formed text in UTF-8."""
    cdef const uint8_t *p = text[0]
    if p[0] < 0x80:
        text[0] = p + 1
        return p[0]
    if p[0] < 0xE0:
        text[0] = p + 2
        return (p[0] & 0x1F) << 6 | p[1] & 0x3F
    if p[0] < 0xF0:
        text[0] = p + 3
        return (p[0] & 0x0F) << 12 | (p[1] & 0x3F) << 6 | p[2] & 0x3F
    text[0] = p + 4
    return (p[0] & 0x07) << 18 | (p[1] & 0x3F) << 12 | (p[2] & 0x3F) << 6 | p[3] & 0x3F


cdef inline size_t utf8_size(const uint8_t *data, size_t size) noexcept nogil:
    """Bytes that put_utf8() will write."""
    cdef const uint8_t *p = data
    cdef const uint8_t *end = data + size
    cdef size_t result = 0
    cdef bint valid
    cdef int length
    cdef const uint8_t *ascii_end
    while p < end:
        ascii_end = skip_ascii(p, end)
        result += ascii_end - p
        p = ascii_end
        if p == end:
            break
        length = utf8_sequence(p, end, &valid)
        result += length if valid else 3
        p += length
    return result


cdef inline uint8_t *put_utf8(uint8_t *to, const uint8_t *data, size_t size) noexcept nogil:
    """Copies text with U+FFFD for each piece that is not UTF-8, as Python and Java decode with replacement."""
    cdef const uint8_t *p = data
    cdef const uint8_t *end = data + size
    cdef bint valid
    cdef int length
    cdef const uint8_t *ascii_end
    while p < end:
        ascii_end = skip_ascii(p, end)
        if ascii_end != p:
            memcpy(to, p, ascii_end - p)
            to += ascii_end - p
            p = ascii_end
            continue
        length = utf8_sequence(p, end, &valid)
        if valid:
            memcpy(to, p, length)
            to += length
        else:
            to[0], to[1], to[2] = 0xEF, 0xBF, 0xBD
            to += 3
        p += length
    return to


cdef inline size_t latin1_size(const uint8_t *data, size_t size) noexcept nogil:
    """Bytes that put_latin1() will write."""
    cdef size_t result = size
    cdef size_t i
    for i in range(size):
        result += data[i] >> 7
    return result


cdef inline uint8_t *put_latin1(uint8_t *to, const uint8_t *data, size_t size) noexcept nogil:
    """Each byte as the character of its number (ISO 8859-1); there is room for one byte more than it counts."""
    cdef const uint8_t *end = data + size
    cdef const uint8_t *ascii_end = skip_ascii(data, end)
    memcpy(to, data, ascii_end - data)
    to += ascii_end - data
    data = ascii_end
    while data < end:              # without a branch: in bytes that are not text, ASCII or not is chance
        to[0] = 0xC0 | data[0] >> 6 if data[0] >= 0x80 else data[0]
        to[1] = 0x80 | data[0] & 0x3F
        to += 1 + (data[0] >> 7)
        data += 1
    return to


cdef inline uint8_t *get_latin1(uint8_t *to, const uint8_t *data, size_t size) noexcept nogil:
    """The bytes that put_latin1() was given; never more than it wrote. NULL if it did not write that."""
    cdef const uint8_t *end = data + size
    while data < end:
        if data[0] < 0x80:
            to[0] = data[0]
            data += 1
        elif data[0] & 0xFE == 0xC2 and data + 1 < end and data[1] & 0xC0 == 0x80:
            to[0] = <uint8_t>(data[0] << 6 | data[1] & 0x3F)
            data += 2
        else:
            return NULL
        to += 1
    return to
