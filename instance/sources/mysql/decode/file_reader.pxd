"""The binlog file that is read: its events, and where each of them stands."""

from libc.stdint cimport int64_t, uint8_t, uint64_t

from .entries cimport EventPlace
from .events cimport EventHeader
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
    cdef int read_header(self, const uint8_t *data, size_t size) except -1 nogil
    # Verifies the checksum of the event whose header was read, and finds out its place in the file.
    cdef int locate(self, const uint8_t *data, size_t size, bint in_transaction) except -1 nogil
    cdef int check_offset(self, bint in_transaction) except -1 nogil
    # The place that a heartbeat tells; 0 if it tells none.
    cdef uint64_t heartbeat_place(self, const uint8_t *body, const uint8_t *end) except? 0 nogil
    cdef int rotate(self, const uint8_t *body, const uint8_t *end) except -1
    # The name of the file whose FORMAT_DESCRIPTION event has come; the one that a ROTATE event named.
    cdef str described_name(self)
    cdef int start(self, str name) except -1
    # The place after the FORMAT_DESCRIPTION event, if it is a part of the file.
    cdef int pass_description(self) except -1
