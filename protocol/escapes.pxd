"""What a string of JSON has to escape: control characters, the quote and the backslash."""

from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy


cdef inline uint64_t has_special(uint64_t word) noexcept nogil:
    """Not 0 if one of eight bytes is special; a few others may be taken for one."""
    cdef uint64_t ones = 0x0101010101010101
    cdef uint64_t quote = word ^ ones * 34
    cdef uint64_t backslash = word ^ ones * 92
    return (
        (word - ones * 0x20) & ~word | (quote - ones) & ~quote | (backslash - ones) & ~backslash
    ) & ones * 0x80


cdef inline const uint8_t *skip_plain(const uint8_t *p, const uint8_t *end) noexcept nogil:
    """The first byte that is special, or the end."""
    cdef uint64_t word
    cdef bint is_long = end - p >= 8
    while end - p >= 8:
        memcpy(&word, p, 8)
        if has_special(word):
            break
        p += 8
    if is_long and end - p < 8:                    # the last eight bytes, of which some were looked at before
        memcpy(&word, end - 8, 8)
        if not has_special(word):
            return end
    while p < end and p[0] >= 0x20 and p[0] != 34 and p[0] != 92:
        p += 1
    return p
