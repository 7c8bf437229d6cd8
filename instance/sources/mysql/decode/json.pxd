"""MySQL's binary JSON to text."""

from libc.stdint cimport uint8_t

from .values cimport Field, Value


cdef int json_document(Field *field, const uint8_t *data, size_t size, Value *value) noexcept nogil
cdef int json_differences(
    Field *field, const uint8_t *name, size_t name_size, const uint8_t *data, size_t size, Value *value
) noexcept nogil
