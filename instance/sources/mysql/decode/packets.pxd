"""The receive buffer: MySQL packets out of a byte stream."""

from libc.stdint cimport uint8_t


cdef class PacketBuffer:
    cdef uint8_t *data
    cdef size_t ordinary       # bytes that a busy stream is received with; more only while one packet is larger
    cdef size_t largest        # bytes of an event that is taken
    cdef size_t capacity
    cdef size_t start          # of the current packet's first header, or of the next one's if none is current
    cdef size_t end            # of what was received
    cdef size_t tail           # of the next raw header
    cdef size_t payload        # bytes joined so far of a packet whose continuation has not come
    cdef bint current          # the packet at start has been handed out and is still being read
    cdef bint joining
    cdef int sequence          # of the next packet, -1 before the first
    cdef bint full             # the space given last was filled: more was waiting
    cdef int exports
    cdef size_t searched       # bytes after the current packet that `find` has looked at
    cdef bint found_part       # ... and a packet goes on at that place
    cdef readonly long long total      # bytes received since the start

    # The payload of the next packet, or NULL when it has not wholly come. Valid until the next call; the space for
    # more is only given between packets.
    cdef const uint8_t *next(self, size_t *size) except? NULL nogil
    cpdef clear(self)
    # Gives the current packet back to the buffer, so that more can be received before the next one is taken.
    cdef void release(self) noexcept nogil
    # Looks after the current packet for an event of a type: 1 found (its header is at `event`, and one byte of its
    # body is there), 0 not received yet, -1 not within `most` bytes, or something other than an event comes first.
    # After 0 a search goes on where it stopped, until `stop_search`.
    cdef int find(self, uint8_t type, size_t most, const uint8_t **event) noexcept nogil
    cdef void stop_search(self) noexcept nogil
    cdef int resize(self, size_t capacity) except -1
