"""MySQL's integers on the wire: little-endian, 1 to 8 bytes. The caller has checked the bounds."""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t


cdef inline uint16_t le16(const uint8_t *p) noexcept nogil:
    return <uint16_t>(p[0] | p[1] << 8)


cdef inline uint32_t le24(const uint8_t *p) noexcept nogil:
    return p[0] | <uint32_t>p[1] << 8 | <uint32_t>p[2] << 16


cdef inline uint32_t le32(const uint8_t *p) noexcept nogil:
    return p[0] | <uint32_t>p[1] << 8 | <uint32_t>p[2] << 16 | <uint32_t>p[3] << 24


cdef inline uint64_t le48(const uint8_t *p) noexcept nogil:
    return le32(p) | <uint64_t>le16(p + 4) << 32


cdef inline uint64_t le64(const uint8_t *p) noexcept nogil:
    return le32(p) | <uint64_t>le32(p + 4) << 32


cdef inline uint64_t le(const uint8_t *p, size_t size) noexcept nogil:
    cdef uint64_t number = 0
    cdef size_t i
    for i in range(size):
        number |= <uint64_t>p[i] << 8 * i
    return number


cdef inline const uint8_t *length_encoded(const uint8_t *p, const uint8_t *end, uint64_t *value) noexcept nogil:
    """Reads a length-encoded integer (`net_field_length_ll` in mysys/pack.cc): the place after it, or NULL when it does
    not fit before `end` or is not one (0xFB means NULL, 0xFF an error).

    < 0xFB: the value itself; 0xFC: 2 bytes follow; 0xFD: 3 bytes; 0xFE: 8 bytes
    """
    if p >= end:
        return NULL
    cdef uint8_t first = p[0]
    p += 1
    if first < 0xFB:
        value[0] = first
        return p
    if first == 0xFC and end - p >= 2:
        value[0] = le16(p)
        return p + 2
    if first == 0xFD and end - p >= 3:
        value[0] = le24(p)
        return p + 3
    if first == 0xFE and end - p >= 8:
        value[0] = le64(p)
        return p + 8
    return NULL
