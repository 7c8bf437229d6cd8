"""What the FORMAT_DESCRIPTION event of a binlog file says of the file's events."""

from libc.stdint cimport uint8_t
from libc.string cimport memcpy, memset

from .....protocol.littleendian cimport le16
from .events cimport CHECKSUM_SIZE, HEADER_SIZE, bad_checksum, checksum_fits, has_checksum_algorithm, too_short

from .....protocol.errors import DecodeError

cdef enum:
    BINLOG_VERSION = 4
    CHECKSUM_NONE = 0
    CHECKSUM_CRC32 = 1


cdef class FileFormat:
    """What the FORMAT_DESCRIPTION event of a binlog file says of the file's events."""

    # binlog version 2 | server version 50 | created 4 | header length 1 | post-header length 1, for each type from 1
    # | checksum algorithm 1 | CRC32 4, both from MySQL 5.6.1 and MariaDB 5.3 on
    # (`Format_description_event`, libs/mysql/binlog/event/control_events.h)
    cdef int read(self, const uint8_t *body, const uint8_t **end) except -1:
        cdef size_t size = HEADER_SIZE + (end[0] - body)
        cdef const uint8_t *lengths = body + 57
        cdef const uint8_t *lengths_end = end[0]
        cdef int algorithm = CHECKSUM_NONE
        if end[0] - lengths < 1:
            too_short()
        if le16(body) != BINLOG_VERSION or body[56] != HEADER_SIZE:
            raise DecodeError(f"a binlog of version {le16(body)} with headers of {body[56]} bytes")
        version = (<const char *>(body + 2))[:50].split(b"\0")[0].decode("ascii", "replace")
        if has_checksum_algorithm(version):
            end[0] -= CHECKSUM_SIZE
            if end[0] - lengths < 1:
                too_short()
            lengths_end = end[0] - 1
            algorithm = lengths_end[0]
            if algorithm != CHECKSUM_NONE and algorithm != CHECKSUM_CRC32:
                raise DecodeError(f"checksums of algorithm {algorithm}, which is unknown")
            if algorithm == CHECKSUM_CRC32 and not checksum_fits(body - HEADER_SIZE, size):
                bad_checksum()
        self.server_version = version
        self.is_mariadb = "mariadb" in version.lower()
        memset(self.post_header, 0, sizeof(self.post_header))
        memcpy(self.post_header + 1, lengths, min(lengths_end - lengths, 255))
        self.has_checksums = algorithm == CHECKSUM_CRC32
        self.is_known = True
        return 0
