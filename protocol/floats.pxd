"""Texts of floating-point numbers as Canal, and so Java, writes them.

The shortest digits that read back as the same number, but at least two; 1.0E-3 <= |x| < 1.0E7 plain, else with an
exponent.
"""

from libc.math cimport isinf, isnan
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy, memset


cdef extern from "<charconv>" namespace "std" nogil:
    cdef cppclass chars_format:
        pass
    chars_format SCIENTIFIC "std::chars_format::scientific"
    cdef struct to_chars_result:
        char *ptr
    to_chars_result to_chars(char *first, char *last, int64_t value)
    to_chars_result to_chars(char *first, char *last, float value, chars_format format)
    to_chars_result to_chars(char *first, char *last, double value, chars_format format)
    to_chars_result to_chars(char *first, char *last, float value, chars_format format, int precision)
    to_chars_result to_chars(char *first, char *last, double value, chars_format format, int precision)

cdef enum:
    FLOAT_MAX = 26         # bytes of the longest text


cdef inline int read_scientific(const char *text, const char *end, char *digits, int *exponent) noexcept nogil:
    """Takes `d.ddde±dd` apart: the digits without the point (their number is returned) and the exponent."""
    cdef int count = 0
    cdef int power = 0
    cdef bint negative
    while text < end and text[0] != b"e":
        if text[0] != b".":
            digits[count] = text[0]
            count += 1
        text += 1
    negative = text[1] == b"-"
    text += 2
    while text < end:
        power = power * 10 + (text[0] - 48)
        text += 1
    exponent[0] = -power if negative else power
    return count


cdef inline uint8_t *put_plain_digits(uint8_t *p, const char *digits, int count, int exponent) noexcept nogil:
    """Without an exponent, and with at least one digit after the point."""
    cdef int i
    if exponent < 0:
        p[0] = b"0"
        p[1] = b"."
        p += 2
        memset(p, b"0", -exponent - 1)
        p += -exponent - 1
        memcpy(p, digits, count)
        return p + count
    for i in range(exponent + 1):
        p[0] = digits[i] if i < count else b"0"
        p += 1
    p[0] = b"."
    p += 1
    if count <= exponent + 1:
        p[0] = b"0"
        return p + 1
    memcpy(p, digits + exponent + 1, count - exponent - 1)
    return p + (count - exponent - 1)


cdef inline uint8_t *put_java_digits(uint8_t *p, const char *digits, int count, int exponent) noexcept nogil:
    if -3 <= exponent < 7:
        return put_plain_digits(p, digits, count, exponent)
    p[0] = digits[0]
    p[1] = b"."
    p += 2
    if count == 1:
        p[0] = b"0"
        p += 1
    else:
        memcpy(p, digits + 1, count - 1)
        p += count - 1
    p[0] = b"E"
    return <uint8_t *>to_chars(<char *>p + 1, <char *>p + 8, <int64_t>exponent).ptr


cdef inline uint8_t *put_not_finite(uint8_t *p, double number) noexcept nogil:
    if isnan(number):
        memcpy(p, b"NaN", 3)
        return p + 3
    memcpy(p, b"Infinity", 8)
    return p + 8


cdef inline int shortest(double number, char *digits, int *exponent) noexcept nogil:
    cdef char[48] text
    return read_scientific(text, to_chars(text, text + 48, number, SCIENTIFIC).ptr, digits, exponent)


cdef inline uint8_t *put_java_double(uint8_t *p, double number) noexcept nogil:
    """At most FLOAT_MAX bytes."""
    cdef char[48] text
    cdef char[24] digits
    cdef int exponent
    cdef int count
    if number < 0 or (number == 0 and 1 / number < 0):
        p[0] = b"-"
        p += 1
        number = -number
    if isnan(number) or isinf(number):
        return put_not_finite(p, number)
    count = shortest(number, digits, &exponent)
    if count == 1:  # Java takes the nearest of two digits: 4.9E-324, where 5E-324 would do
        count = read_scientific(text, to_chars(text, text + 48, number, SCIENTIFIC, 1).ptr, digits, &exponent)
        if digits[1] == b"0":
            count = 1
    return put_java_digits(p, digits, count, exponent)


cdef inline uint8_t *put_java_float(uint8_t *p, float number) noexcept nogil:
    """At most FLOAT_MAX bytes."""
    cdef char[48] text
    cdef char[24] digits
    cdef int exponent
    cdef int count
    if number < 0 or (number == 0 and 1 / number < 0):
        p[0] = b"-"
        p += 1
        number = -number
    if isnan(number) or isinf(number):
        return put_not_finite(p, number)
    count = read_scientific(text, to_chars(text, text + 48, number, SCIENTIFIC).ptr, digits, &exponent)
    if count == 1:
        count = read_scientific(text, to_chars(text, text + 48, number, SCIENTIFIC, 1).ptr, digits, &exponent)
        if digits[1] == b"0":
            count = 1
    return put_java_digits(p, digits, count, exponent)
