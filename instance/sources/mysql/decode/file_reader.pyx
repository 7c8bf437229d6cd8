"""The binlog file that is read: its events, and where each of them stands."""

import re

from libc.stdint cimport INT32_MAX, int64_t, uint8_t, uint32_t, uint64_t

from .....protocol.littleendian cimport le64, length_encoded
from .events cimport *
from .file_format cimport FileFormat

from .....protocol.errors import DecodeError
from .....protocol.position import file_number

cdef int64_t OFFSET_MAX = <int64_t>1 << 62     # of a file: sums beyond it do not overflow
FILE_NAME = re.compile(r"[^\0-\x1f\x7f]{1,255}\.[0-9]{1,18}")


cdef class FileReader:
    """The binlog file that is read: its name and format, and the event that is being decoded."""

    def __init__(self):
        self.format = FileFormat()

    cdef int begin(self, bint by_gtid) except -1:
        """A new dump."""
        self.by_gtid = by_gtid
        self.format.is_known = self.format.has_checksums = False
        self.name = self.next_name = None
        self.offset = self.next_offset = -1
        return 0

    cdef int wrong_size(self, size_t size) except -1 nogil:
        """Raises DecodeError."""
        with gil:
            if size < HEADER_SIZE:
                raise DecodeError(f"an event of {size} bytes, which is less than a header")
            raise DecodeError(f"an event of {size} bytes whose header says {self.header.size}")

    cdef int locate_special(self, const uint8_t *data, size_t size, bint in_transaction) except -1 nogil:
        """An event that begins a file, or that a server may make up; or one that comes too early."""
        cdef bint artificial = self.header.flags & LOG_EVENT_ARTIFICIAL_F != 0
        if self.header.type == ROTATE_EVENT and artificial:
            # Made by the server, maybe before it said whether events have checksums; a checksum cannot fit by chance.
            if size >= HEADER_SIZE + CHECKSUM_SIZE and checksum_fits(data, size):
                self.body_end -= CHECKSUM_SIZE
        elif self.header.type != FORMAT_DESCRIPTION_EVENT:  # that says itself whether it has one: FileFormat.read
            if not self.format.is_known:
                with gil:
                    raise DecodeError("an event before the FORMAT_DESCRIPTION event")
            self.body_end = self.format.end_of(data, size)
        if self.header.type == FORMAT_DESCRIPTION_EVENT and not artificial and (
            self.header.log_pos or in_transaction
        ):
            self.place.offset = FIRST_OFFSET
            return 0
        self.place.offset = max(self.offset, 0)
        if not may_be_made_up(self.header.type):
            with gil:
                raise DecodeError("an event that is not a part of the file, but of a type that has to be")
        return 0

    cdef int64_t start_after(self, uint32_t gap, bint in_transaction) except -1 nogil:
        if not self.by_gtid or in_transaction or gap > INT32_MAX:
            with gil:
                raise DecodeError(
                    f"an event that ends at {self.offset + self.header.size} by the events before it, "
                    f"but at {self.header.log_pos} by its header"
                )
        return self.offset + gap

    # log_pos: where an idle source stands; MariaDB beyond 4 GiB: 0, with the offset in a subheader
    # v1: file name
    # v2, fields: type 1 | length (length-encoded) | value; 1 is the file name, 2 the offset (length-encoded), 0 the end
    # (`Heartbeat_event`, `Heartbeat_event_v2`, libs/mysql/binlog/event/control_events.h)
    cdef uint64_t heartbeat_place(self, const uint8_t *body, const uint8_t *end) except? 0 nogil:
        cdef uint64_t place = 0
        cdef uint64_t field, length, value
        cdef const uint8_t *p = body
        if self.header.type != HEARTBEAT_EVENT_V2:
            return self.header.log_pos
        while p != NULL and p < end:
            p = length_encoded(p, end, &field)
            if p == NULL or field == 0:
                break
            p = length_encoded(p, end, &length)
            if p == NULL or length > <uint64_t>(end - p):
                p = NULL
                break
            if field == 2 and length_encoded(p, p + length, &value) == p + length:
                place = value
            p += length
        if p == NULL:
            too_short()
        return place

    # offset of the first event in the next file 8 | its name
    # (`Rotate_event`, libs/mysql/binlog/event/control_events.h)
    cdef int rotate(self, const uint8_t *body, const uint8_t *end) except -1:
        if end - body <= 8:
            too_short()
        self.next_offset = <int64_t>le64(body)
        self.next_name = (<const char *>(body + 8))[:end - body - 8].decode("utf-8", "replace")
        if not FIRST_OFFSET <= self.next_offset <= OFFSET_MAX:
            raise DecodeError(f"a file that begins at {self.next_offset}")
        if FILE_NAME.fullmatch(self.next_name) is None:
            raise DecodeError(f"a binlog file of the name {self.next_name[:100]!r}: no number at its end")
        return 0

    cdef str described_name(self):
        cdef str name = self.next_name or self.name
        if name is None:
            raise DecodeError("a FORMAT_DESCRIPTION event before a ROTATE event that names its file")
        if (
            self.name is not None and name != self.name and file_number(name) <= file_number(self.name)
            and name.rpartition(".")[0] == self.name.rpartition(".")[0]
        ):
            raise DecodeError(f"the file {name} after {self.name}")
        return name

    cdef int start(self, str name) except -1:
        """The file has a FORMAT_DESCRIPTION event, which was read."""
        self.name, self.next_name = name, None
        self.created = self.header.timestamp
        self.offset = self.next_offset
        return 0

    cdef int pass_description(self) except -1:
        if self.header.log_pos == 0 or self.header.flags & LOG_EVENT_ARTIFICIAL_F:
            self.place.offset = self.offset
            self.counts = False
            return 0
        if self.header.log_pos != FIRST_OFFSET + self.header.size:
            raise DecodeError(f"a FORMAT_DESCRIPTION event that ends at {self.header.log_pos}")
        self.counts = True
        self.offset = self.header.log_pos
        return 0
