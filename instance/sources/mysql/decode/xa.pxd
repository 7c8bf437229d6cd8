"""An XA transaction while it is read: how it ends, and the events of its prepared part."""

from libc.stdint cimport int64_t, uint8_t
from libcpp.string cimport string

from .entries cimport EntryWriter
from .events cimport EventHeader
from .file_format cimport FileFormat
from .inflate cimport PayloadReader
from .packets cimport PacketBuffer


cdef enum:
    XA_TEXT_MAX = 512


cdef enum XaState:
    NO_XA = 0              # or one of one phase, which is as any other transaction
    UNDECIDED = 1          # how it ends is not known yet
    ASKED = 2              # ... not even by looking ahead: Python has been asked
    PREPARED = 3           # it is a prepared part: it is passed over, and kept if small
    RECALLED = 4           # it is an XA COMMIT, whose prepared part is read from `part`


cdef class RecalledPart:
    cdef PacketBuffer packets
    cdef FileFormat format
    cdef int64_t created, begin        # where it begins
    cdef int64_t offset                # of the next event in its file; -1: only its own events are sent

    # Whether an event that was sent is one of the part. Moves the end of the event's body before its checksum.
    cdef bint takes(
        self, const EventHeader *header, const uint8_t *data, size_t size, const uint8_t **end
    ) except -1 nogil
    cdef int describe(self, const EventHeader *header, const uint8_t *body, const uint8_t **end) except -1


cdef class XaTransaction:
    cdef XaState state
    cdef size_t event_bytes            # of an event at most
    cdef PayloadReader ahead           # of the transaction's payload, to see how it ends
    cdef string kept_events            # of its prepared part, as packets
    cdef int kept_count                # of these packets; -1: they were too many
    cdef size_t keeps_at_most          # bytes
    cdef RecalledPart part

    cdef inline bint is_open(self) noexcept nogil:
        """Whether its end is not known yet."""
        return self.state == UNDECIDED or self.state == ASKED

    # Looks for the end of the transaction whose XA START has come: 1 found, 0 not received yet, -1 too far.
    cdef int find_end(self, PacketBuffer packets, PayloadReader payload, bint *one_phase) except? -2 nogil
    # The XA_PREPARE event of a payload, if that has an XA transaction, else NULL. Valid until `ahead` is closed.
    cdef const uint8_t *find_prepare(self, const uint8_t *body, const uint8_t *end, size_t *size) except? NULL nogil
    cdef void clear_kept(self) noexcept nogil
    # Keeps an event without its checksum as a packet, unless there are too many of the prepared part.
    cdef int keep(self, const uint8_t *event, const uint8_t *end) except -1 nogil


# Makes every entry of the transaction say which XA transaction it belongs to. The xid has at most XA_TEXT_MAX bytes.
cdef void mark_entries(EntryWriter entries, const char *state, const uint8_t *xid, size_t size) noexcept nogil
cdef int xid_too_long() except -1 nogil


cdef inline int check_xid(size_t size) except -1 nogil:
    """Raises DecodeError."""
    return xid_too_long() if size > XA_TEXT_MAX else 0
