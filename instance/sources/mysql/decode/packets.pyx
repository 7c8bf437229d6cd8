"""The receive buffer: MySQL packets out of a byte stream.

Packets are framed as https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_basic_packets.html says:

    length 3 | sequence 1 | payload

A payload of 0xFFFFFF bytes goes on in the next packet, which always follows, empty if need be.
"""

from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdint cimport uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memmove

from .....protocol.littleendian cimport le24
from .events cimport HEADER_SIZE

from .....protocol.errors import DecodeError

cdef enum:
    FRAME = 4                      # length and sequence
    CONTINUED = 0xFFFFFF
    SMALLEST = 16 << 10            # of the buffer: an idle destination keeps no more


cdef class PacketBuffer:
    """The receive buffer. It grows with the traffic up to an ordinary size, and with a packet that is larger.

    After such a packet it shrinks again.

    Its buffer interface is the free space after what was received, for `socket.recv_into`.
    """

    def __cinit__(self, size_t ordinary=1 << 20, size_t largest=1 << 30):
        self.ordinary = ordinary
        self.largest = largest
        self.sequence = -1

    def __dealloc__(self):
        free(self.data)

    cpdef clear(self):
        """Forgets what was received: at the start of a connection."""
        self.start = self.end = self.tail = self.payload = 0
        self.current = self.joining = self.full = False
        self.sequence = -1
        self.stop_search()

    cdef void release(self) noexcept nogil:
        if self.current:
            self.current = False
            self.start = self.tail

    cdef void stop_search(self) noexcept nogil:
        self.searched = 0
        self.found_part = False

    cdef int find(self, uint8_t type, size_t most, const uint8_t **event) noexcept nogil:
        cdef const uint8_t *header
        cdef size_t length, there
        while True:
            header = self.data + self.tail + self.searched
            there = self.end - self.tail - self.searched
            if there < FRAME:
                return 0
            length = le24(header)
            there -= FRAME
            if not self.found_part:
                if there < min(length, <size_t>(1 + HEADER_SIZE + 1)):
                    return 0
                if length == 0 or header[FRAME] != 0:      # an error, or the end
                    return -1
                if length >= 1 + HEADER_SIZE + 1 and header[FRAME + 1 + 4] == type:
                    event[0] = header + FRAME + 1
                    return 1
            if self.searched + FRAME + length > most:
                return -1
            if there < length:
                return 0
            self.searched += FRAME + length
            self.found_part = length == CONTINUED

    cdef const uint8_t *next(self, size_t *size) except? NULL nogil:
        cdef size_t length
        cdef const uint8_t *header
        if self.current:
            self.current = False
            self.start = self.tail
        while True:
            if self.end - self.tail < FRAME:
                return NULL
            header = self.data + self.tail
            length = le24(header)
            if (self.payload if self.joining else 0) + length > self.largest + 1:  # an event, and a byte before it
                with gil:
                    raise DecodeError(
                        f"the source sends an event of more than {self.largest} bytes (sluice.instance.event.maxBytes)"
                    )
            if self.end - self.tail - FRAME < length:
                return NULL
            if self.sequence >= 0 and header[3] != self.sequence:
                with gil:
                    raise DecodeError(f"packet number {header[3]} follows where number {self.sequence} is due")
            self.sequence = (header[3] + 1) & 0xFF
            if self.joining:
                memmove(self.data + self.start + FRAME + self.payload, header + FRAME, length)
            self.payload = self.payload + length if self.joining else length
            self.tail += FRAME + length
            self.joining = length == CONTINUED
            if not self.joining:
                self.current = True
                size[0] = self.payload
                return self.data + self.start + FRAME

    def receive_space(self):
        """Writable space for the bytes that come next. Release it before received()."""
        cdef size_t least = self.ordinary if self.searched else <size_t> SMALLEST // 2
        cdef size_t capacity, packet
        if self.current:
            raise RuntimeError("a packet is still being read")
        if self.exports:
            raise BufferError("the space given before is still in use")
        if self.start:
            memmove(self.data, self.data + self.start, self.end - self.start)
            self.tail -= self.start
            self.end -= self.start
            self.start = 0
        if self.end - self.tail >= FRAME:
            packet = FRAME + le24(self.data + self.tail)
            if packet > self.end - self.tail + least:
                least = packet - (self.end - self.tail)
        capacity = max(<size_t> SMALLEST, self.capacity)
        if self.full and capacity < self.ordinary:
            capacity *= 2
        if capacity > self.ordinary and self.end + least <= self.ordinary:
            capacity = self.ordinary
        self.resize(max(capacity, self.end + least))
        return memoryview(self)

    cdef int resize(self, size_t capacity) except -1:
        if capacity == self.capacity:
            return 0
        cdef uint8_t *data = <uint8_t *>realloc(self.data, capacity)
        if data == NULL:
            raise MemoryError(f"no memory to receive a packet of {capacity} bytes")
        self.data = data
        self.capacity = capacity
        return 0

    def received(self, size_t size):
        """Take ``size`` bytes that were written to the space."""
        if size > self.capacity - self.end:
            raise ValueError("more bytes than there was space for")
        self.end += size
        self.total += size
        self.full = self.end == self.capacity

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.data + self.end, self.capacity - self.end, 0, flags)
        self.exports += 1

    def __releasebuffer__(self, Py_buffer *buffer):
        self.exports -= 1
