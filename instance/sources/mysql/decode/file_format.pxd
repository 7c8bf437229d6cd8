"""What the FORMAT_DESCRIPTION event of a binlog file says of the file's events."""

from libc.stdint cimport uint8_t


cdef class FileFormat:
    cdef bint is_known             # the event has come
    cdef bint has_checksums
    cdef bint is_mariadb
    cdef str server_version        # that wrote the file
    cdef uint8_t post_header[256]  # bytes of it, by the type of an event

    # Reads the body, and moves its end before its checksum.
    cdef int read(self, const uint8_t *body, const uint8_t **end) except -1
    # Where another event ends without its checksum, which has to fit.
    cdef const uint8_t *end_of(self, const uint8_t *data, size_t size) except NULL nogil
