"""The binlog file that is read: its events, and where each of them stands."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from .....protocol.littleendian cimport le16, le32
from .entries cimport EventPlace
from .events cimport (
    FORMAT_DESCRIPTION_EVENT,
    HEADER_SIZE,
    HEARTBEAT_EVENT,
    HEARTBEAT_EVENT_V2,
    LOG_EVENT_ARTIFICIAL_F,
    EventHeader,
)
from .file_format cimport FileFormat


cdef enum:
    FIRST_OFFSET = 4               # of the first event in a file, after the magic number


cdef class FileReader:
    cdef FileFormat format
    cdef bint by_gtid                  # transactions may be missing from the file
    cdef str name, next_name
    cdef int64_t created
    cdef int64_t offset                # where the next event starts; -1 unknown
    cdef int64_t next_offset           # where the first event of the next file starts

    # The event that is being decoded
    cdef EventHeader header
    cdef EventPlace place
    cdef const uint8_t *body
    cdef const uint8_t *body_end
    cdef bint counts                   # it is part of the file

    cdef int begin(self, bint by_gtid) except -1
    cdef int wrong_size(self, size_t size) except -1 nogil
    cdef int locate_special(self, const uint8_t *data, size_t size, bint in_transaction) except -1 nogil
    # Where an event starts that leaves a gap of `gap` bytes after the one before it.
    cdef int64_t start_after(self, uint32_t gap, bint in_transaction) except -1 nogil
    # The place that a heartbeat tells; 0 if it tells none.
    cdef uint64_t heartbeat_place(self, const uint8_t *body, const uint8_t *end) except? 0 nogil
    cdef int rotate(self, const uint8_t *body, const uint8_t *end) except -1
    # The name of the file whose FORMAT_DESCRIPTION event has come; the one that a ROTATE event named.
    cdef str described_name(self)
    cdef int start(self, str name) except -1
    # The place after the FORMAT_DESCRIPTION event, if it is a part of the file.
    cdef int pass_description(self) except -1

    # Inline: what each event of each transaction needs.

    cdef inline int read_header(self, const uint8_t *data, size_t size) except -1 nogil:
        """Reads the header of an event of that many bytes."""
        if size < HEADER_SIZE:
            self.wrong_size(size)
        self.header.timestamp = le32(data)
        self.header.type = data[4]
        self.header.server_id = le32(data + 5)
        self.header.size = le32(data + 9)
        self.header.log_pos = le32(data + 13)
        self.header.flags = le16(data + 17)
        if self.header.size != size:
            self.wrong_size(size)
        self.body = data + HEADER_SIZE
        self.body_end = data + size
        return 0

    cdef inline int locate(self, const uint8_t *data, size_t size, bint in_transaction) except -1 nogil:
        """Verifies the checksum of the event whose header was read, and finds out its place in the file.

        Computes where the event ends, and compares that with its `log_pos`, which has 32 bits and wraps beyond 4 GiB.
        It is 0 between GTID and XID of MariaDB 11.8. A dump by GTID leaves transactions out, but only whole ones.
        """
        cdef uint8_t type = self.header.type
        cdef int64_t start = self.offset
        cdef uint32_t gap
        self.place.length = self.header.size
        if (
            not self.format.is_known or self.header.flags & LOG_EVENT_ARTIFICIAL_F
            or (self.header.log_pos == 0 and not in_transaction)
            or type == FORMAT_DESCRIPTION_EVENT or type == HEARTBEAT_EVENT or type == HEARTBEAT_EVENT_V2
        ):
            return self.locate_special(data, size, in_transaction)
        self.body_end = self.format.end_of(data, size)
        if self.header.log_pos:
            gap = self.header.log_pos - <uint32_t>(start + self.header.size)
            if gap:
                start = self.start_after(gap, in_transaction)
        self.counts = True
        self.place.offset = start
        self.offset = start + self.header.size
        return 0
