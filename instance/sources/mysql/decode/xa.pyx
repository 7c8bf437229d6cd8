"""An XA transaction while it is read: how it ends, and the events of its prepared part.

It comes in two parts, each with a GTID of its own: what ends by XA PREPARE has the rows, and XA COMMIT or XA ROLLBACK,
maybe much later, says what becomes of them.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcpy, strlen
from libcpp.string cimport string

from .....protocol.canal.entry cimport XA_KEY
from .....protocol.littleendian cimport le16, le64
from .....protocol.utf8 cimport put_utf8
from .entries cimport EntryWriter
from .events cimport *
from .file_format cimport FileFormat
from .inflate cimport PayloadReader
from .packets cimport PacketBuffer
from .words cimport starts_with

from .....protocol.errors import DecodeError, SourceChangedError

cdef enum:
    XA_MARK_MAX = 16 + 3 * XA_TEXT_MAX     # bytes of the prop that marks entries of an XA transaction
    XA_AHEAD = 16 << 20            # received at most, to see how an XA transaction ends, before the source is asked
    KEPT_BYTES = 256 << 10         # of the events of a prepared part; or, if that is less, a 64th of the ring's memory
    PART_BYTES = 64 << 10          # received at once of a prepared part
    FRAME_BYTES = 4                # before a packet: its length and number


cdef inline void put_le24(uint8_t *p, uint32_t value) noexcept nogil:
    p[0] = value & 0xFF
    p[1] = value >> 8 & 0xFF
    p[2] = value >> 16


cdef inline void put_le32(uint8_t *p, uint32_t value) noexcept nogil:
    put_le24(p, value & 0xFFFFFF)
    p[3] = value >> 24


cdef inline bint is_xa_start(const uint8_t *event, size_t size) noexcept nogil:
    """Whether a QUERY event is that of an XA START."""
    cdef const uint8_t *body = event + HEADER_SIZE
    cdef const uint8_t *text
    if size < HEADER_SIZE + QUERY_POST_HEADER:
        return False
    text = body + QUERY_POST_HEADER + le16(body + 11) + body[8] + 1
    return text < event + size and starts_with(text, event + size, "XA START")


cdef int xid_too_long() except -1 nogil:
    """Raises DecodeError."""
    with gil:
        raise DecodeError(f"an XA transaction whose id has more than {XA_TEXT_MAX} characters")


cdef void mark_entries(EntryWriter entries, const char *state, const uint8_t *xid, size_t size) noexcept nogil:
    cdef uint8_t mark[XA_MARK_MAX]
    cdef size_t state_size = strlen(state)
    while size and xid[0] <= b" ":
        xid += 1
        size -= 1
    memcpy(mark, state, state_size)
    mark[state_size] = b" "
    entries.add_prop(<const char *>XA_KEY.data, mark, put_utf8(mark + state_size + 1, xid, size) - mark)


cdef class RecalledPart:
    """The prepared part of an XA transaction that is committed, as it is sent again."""

    def __init__(self, size_t event_bytes, position):
        """It begins at ``position``; an event has at most ``event_bytes``."""
        self.packets = PacketBuffer(PART_BYTES, event_bytes)
        self.format = FileFormat()
        self.created = position.created
        self.begin = position.begin
        self.offset = -1

    cdef bint takes(
        self, const EventHeader *header, const uint8_t *data, size_t size, const uint8_t **end
    ) except -1 nogil:
        """A dump begins with the head of the file, and may begin before the part. What was kept has nothing else."""
        cdef const uint8_t *body = data + HEADER_SIZE
        cdef bint made_up = header.flags & LOG_EVENT_ARTIFICIAL_F != 0 or (
            header.log_pos == 0 and may_be_made_up(header.type)
        )
        if header.type == ROTATE_EVENT and made_up:
            if end[0] - body < 8:
                too_short()
            self.offset = <int64_t>le64(body)
            return False
        if header.type == FORMAT_DESCRIPTION_EVENT:
            with gil:
                self.describe(header, body, end)
            if not made_up:
                self.offset += header.size
            return False
        end[0] = self.format.end_of(data, size)
        if made_up or header.type == HEARTBEAT_EVENT or header.type == HEARTBEAT_EVENT_V2:
            return False
        if self.offset >= 0:
            self.offset += header.size
            if header.log_pos and header.log_pos != <uint32_t>self.offset:
                with gil:
                    raise DecodeError(
                        f"an event of a prepared XA transaction that ends at {self.offset} by the events before"
                        f" it, but at {header.log_pos} by its header"
                    )
            if self.offset <= self.begin or is_gtid(header.type):
                if self.offset - header.size > self.begin:
                    with gil:
                        raise DecodeError("a prepared XA transaction without XA PREPARE")
                return False
        return True

    cdef int describe(self, const EventHeader *header, const uint8_t *body, const uint8_t **end) except -1:
        """The FORMAT_DESCRIPTION event of the file that has the part."""
        if header.timestamp != self.created:
            raise SourceChangedError(
                f"the file of a prepared XA transaction was created at {header.timestamp}, not at"
                f" {self.created}: the source was reset, or restored"
            )
        return self.format.read(body, end)


cdef class XaTransaction:
    """The XA transaction that is being read, if it is one."""

    def __init__(self, size_t event_bytes, size_t memory):
        """``event_bytes``: bytes of an event at most; ``memory``: bytes that the ring takes."""
        self.event_bytes = event_bytes
        self.ahead = PayloadReader(event_bytes)
        self.keeps_at_most = min(<size_t>KEPT_BYTES, memory // 64)

    cdef int find_end(self, PacketBuffer packets, PayloadReader payload, bint *one_phase) except? -2 nogil:
        """Only the transaction's last event, XA_PREPARE, says how it ends; its body begins with "one phase" 1.

        The source sends a transaction when it has written all of it. So the end is looked for in what is received, or
        in the payload. If it is too far for that, Python has to ask the source.
        """
        cdef const uint8_t *event = NULL
        cdef size_t size = 0
        cdef int found = 1
        if payload.active:
            self.ahead.open(payload.body, payload.body_end)
            while event == NULL or event[4] != XA_PREPARE_EVENT:
                event = self.ahead.next(&size)
                if event == NULL:
                    with gil:
                        raise DecodeError("a transaction payload with XA START, but without XA PREPARE")
            if size <= HEADER_SIZE:
                too_short()
        else:
            found = packets.find(XA_PREPARE_EVENT, XA_AHEAD, &event)
        if found > 0:
            one_phase[0] = event[HEADER_SIZE] != 0
        self.ahead.close()
        return found

    cdef const uint8_t *find_prepare(self, const uint8_t *body, const uint8_t *end, size_t *size) except? NULL nogil:
        cdef const uint8_t *event
        self.ahead.open(body, end)
        event = self.ahead.next(size)
        if event == NULL or event[4] != QUERY_EVENT or not is_xa_start(event, size[0]):
            return NULL
        while event != NULL and event[4] != XA_PREPARE_EVENT:
            event = self.ahead.next(size)
        return event

    cdef void clear_kept(self) noexcept nogil:
        self.kept_events.clear()
        self.kept_count = 0

    cdef int keep(self, const uint8_t *event, const uint8_t *end) except -1 nogil:
        cdef size_t size = end - event
        cdef uint8_t frame[FRAME_BYTES + 1]
        if self.kept_count < 0:
            return 0
        if self.kept_events.size() + sizeof(frame) + size > self.keeps_at_most:
            self.kept_events = string()
            self.kept_count = -1
            return 0
        put_le24(frame, size + 1)
        frame[3] = <uint8_t>self.kept_count
        frame[4] = 0x00            # the packet has an event
        self.kept_count += 1
        self.kept_events.append(<const char *>frame, sizeof(frame))
        self.kept_events.append(<const char *>event, size)
        put_le32(<uint8_t *>self.kept_events.data() + self.kept_events.size() - size + 9, size)
        return 0
