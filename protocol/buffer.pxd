"""Memory that grows as bytes are added to it."""

from libc.stdint cimport uint8_t
from libc.stdlib cimport realloc


cdef struct Buffer:
    uint8_t *data
    size_t size
    size_t capacity


cdef inline int reserve(Buffer *buffer, size_t size) except -1 nogil:
    """Makes room for `size` more bytes."""
    cdef size_t capacity
    cdef uint8_t *data
    if buffer.capacity - buffer.size >= size:
        return 0
    capacity = max(buffer.capacity * 2, buffer.size + size, <size_t>4096)
    data = <uint8_t *>realloc(buffer.data, capacity)
    if data == NULL:
        raise MemoryError
    buffer.data = data
    buffer.capacity = capacity
    return 0
