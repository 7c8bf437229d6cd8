"""Numbers that a text is, from its first to its last character; independent of the locale."""

cdef extern from *:
    """
    #include <charconv>

    template <class T> static inline bool parse_number(const char *p, const char *end, T *out) {
        auto result = std::from_chars(p, end, *out);
        return result.ec == std::errc() && result.ptr == end;
    }
    """
    bint parse_number[T](const char *p, const char *end, T *out) noexcept nogil  # false: it is none, or none of T
