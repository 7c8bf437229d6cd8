"""The first words of a statement."""

from libc.stdint cimport uint8_t
from libc.string cimport strlen


cdef inline bint starts_with(const uint8_t *p, const uint8_t *end, const char *words) noexcept nogil:
    """Whether the text begins with the words, in any case, and then ends or goes on without a letter."""
    cdef size_t size = strlen(words)
    cdef size_t i
    if <size_t>(end - p) < size:
        return False
    for i in range(size):
        if (p[i] & 0xDF if b"a" <= p[i] <= b"z" else p[i]) != <uint8_t>words[i]:
            return False
    return p + size == end or not (b"A" <= (p[size] & 0xDF) <= b"Z")


cdef inline bint is_words(const uint8_t *p, const uint8_t *end, const char *words) noexcept nogil:
    """Whether the text is the words, in any case."""
    return <size_t>(end - p) == strlen(words) and starts_with(p, end, words)
