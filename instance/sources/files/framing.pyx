"""Events of a binlog file as the packets in which a server sends them.

A file is 0xFE 'bin' and events, each with its size in its header; a dump has each event in a packet of its own
(`PacketBuffer`):

    length 3 | sequence 1 | 0x00 | event

What does not go into one packet, of 0xFFFFFF bytes, goes on in the next, which is empty if nothing is left.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from ....protocol.littleendian cimport le32

from ....protocol.errors import DecodeError

cdef enum:
    HEADER_SIZE = 19
    SIZE_AT = 9                # in the header, after timestamp 4, type 1 and server id 4
    TYPE_AT = 4
    FRAME = 4                  # length and sequence
    LONGEST = 0xFFFFFF


cdef class EventFramer:
    """Frames a stream of events, and knows where in the file it is. An event begins only if the file has all of it."""

    cdef public int64_t place  # in the file, of the next byte
    cdef public int64_t end    # of what the file has
    cdef readonly int type     # of the last event, 0 before the first
    cdef int64_t largest
    cdef uint32_t packet       # bytes left of the current packet
    cdef int64_t event         # bytes left of the current event
    cdef bint continues        # another packet follows the current one
    cdef uint8_t sequence

    def __init__(self, int64_t largest):
        """`largest`: the bytes of an event that is taken."""
        self.largest = largest
        self.sequence = 1

    @property
    def is_inside(self):
        """Whether an event has begun whose rest is still to come."""
        return self.packet != 0 or self.continues

    def frame(self, const uint8_t[::1] data not None, uint8_t[::1] space not None):
        """Frame what there is room for; return how many bytes were taken and how many were written.

        Nothing is taken of an event that the file does not have wholly. Raises DecodeError for one that cannot be.
        """
        cdef const uint8_t *source = &data[0] if data.shape[0] else NULL
        cdef uint8_t *target = &space[0]
        cdef size_t left = data.shape[0]
        cdef size_t room = space.shape[0]
        cdef size_t size
        with nogil:
            while True:
                if self.packet == 0:
                    if room < FRAME + 1:
                        break
                    if not self.continues:
                        if left < HEADER_SIZE:
                            break
                        self.event = le32(source + SIZE_AT)
                        if not HEADER_SIZE <= self.event <= self.largest:
                            if target != &space[0]:  # what comes before it is valid
                                break
                            self.refuse()
                        if self.place + self.event > self.end:
                            break
                        self.type = source[TYPE_AT]
                        self.begin_packet(target, self.event + 1)
                        target[FRAME] = 0
                        self.packet -= 1
                        target += FRAME + 1
                        room -= FRAME + 1
                    else:
                        self.begin_packet(target, self.event)
                        target += FRAME
                        room -= FRAME
                size = min(<size_t>self.packet, min(left, room))
                if size == 0 and self.packet:
                    break
                memcpy(target, source, size)
                source += size
                target += size
                left -= size
                room -= size
                self.place += size
                self.packet -= size
                self.event -= size
        return data.shape[0] - left, space.shape[0] - room

    cdef void begin_packet(self, uint8_t *target, int64_t size) noexcept nogil:
        self.packet = min(size, <int64_t>LONGEST)
        self.continues = self.packet == LONGEST
        target[0] = self.packet & 0xFF
        target[1] = self.packet >> 8 & 0xFF
        target[2] = self.packet >> 16
        target[3] = self.sequence
        self.sequence += 1

    cdef int refuse(self) except -1 nogil:
        with gil:
            if self.event < HEADER_SIZE:
                raise DecodeError(f"an event of {self.event} bytes, which is less than a header: it is damaged")
            raise DecodeError(
                f"an event of {self.event} bytes, more than {self.largest} (sluice.instance.event.maxBytes), or damaged"
            )

    def eof(self):
        """Return the packet that ends a dump: 0xFE, warnings 2, status 2."""
        packet = bytes([5, 0, 0, self.sequence, 0xFE, 0, 0, 0, 0])
        self.sequence += 1
        return packet
