"""Protobuf's wire format: see wire.pxd. Here fields become bytes of their own, for what is put together once."""

from libc.stdint cimport int64_t, uint8_t, uint64_t


cpdef bytes varint(value):
    """Encode an integer; a negative one as its 64-bit two's complement, in ten bytes."""
    cdef uint8_t[VARINT_MAX] data
    cdef uint64_t number = value & 0xFFFF_FFFF_FFFF_FFFF
    return data[:put_varint(data, number) - data]


cdef bytes uint_field(unsigned int tag, int64_t value):
    return varint(tag) + varint(value)


cdef bytes text_field(unsigned int tag, str text):
    return message_field(tag, text.encode("utf-8", "replace"))


cdef bytes message_field(unsigned int tag, bytes head, size_t more=0):
    """A message except for its last `more` bytes."""
    return varint(tag) + varint(len(head) + more) + head
