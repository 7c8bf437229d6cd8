"""What the FORMAT_DESCRIPTION event of a binlog file says of the file's events."""

from libc.stdint cimport uint8_t

from .events cimport CHECKSUM_SIZE, HEADER_SIZE, bad_checksum, checksum_fits


cdef class FileFormat:
    cdef bint is_known             # the event has come
    cdef bint has_checksums
    cdef bint is_mariadb
    cdef str server_version        # that wrote the file
    cdef uint8_t post_header[256]  # bytes of it, by the type of an event

    # Reads the body, and moves its end before its checksum.
    cdef int read(self, const uint8_t *body, const uint8_t **end) except -1

    cdef inline const uint8_t *end_of(self, const uint8_t *data, size_t size) except NULL nogil:
        """Where another event ends without its checksum, which has to fit."""
        if not self.has_checksums:
            return data + size
        if size < HEADER_SIZE + CHECKSUM_SIZE or not checksum_fits(data, size):
            bad_checksum()
        return data + size - CHECKSUM_SIZE
