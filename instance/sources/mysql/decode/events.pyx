"""The events of a binlog: their types, their common header, and how one is handed to Python."""

import re

from libc.stdint cimport uint8_t, uint32_t

from .....protocol.littleendian cimport le32

from .....protocol.errors import DecodeError


cdef extern from "<libdeflate.h>" nogil:
    uint32_t libdeflate_crc32(uint32_t crc, const void *data, size_t size)  # zlib's takes five times as long


cdef bint may_be_made_up(int type) noexcept nogil:
    """Whether servers make such events themselves: flagged as artificial, or outside a transaction without
    `log_pos` (FORMAT_DESCRIPTION and START_ENCRYPTION of a dump that begins in the middle of a file).
    """
    return (
        type == ROTATE_EVENT or type == FORMAT_DESCRIPTION_EVENT or type == MARIADB_START_ENCRYPTION_EVENT
        or type == HEARTBEAT_EVENT or type == HEARTBEAT_EVENT_V2
        or type == PREVIOUS_GTIDS_EVENT or type == MARIADB_GTID_LIST_EVENT
    )


cdef bint checksum_fits(const uint8_t *data, size_t size) noexcept nogil:
    """Whether the last four bytes of an event are the CRC32 of those before.

    The flag LOG_EVENT_BINLOG_IN_USE_F of a FORMAT_DESCRIPTION event, which says that the file is still written, is not
    part of it.
    """
    cdef uint32_t crc
    cdef uint8_t flags
    if data[4] != FORMAT_DESCRIPTION_EVENT:
        crc = libdeflate_crc32(0, data, size - CHECKSUM_SIZE)
    else:
        flags = data[17] & ~<uint8_t>LOG_EVENT_BINLOG_IN_USE_F
        crc = libdeflate_crc32(0, data, 17)
        crc = libdeflate_crc32(crc, &flags, 1)
        crc = libdeflate_crc32(crc, data + 18, size - CHECKSUM_SIZE - 18)
    return crc == le32(data + size - CHECKSUM_SIZE)


cdef bint has_checksum_algorithm(str version) except -1:
    """Whether a server of that version says in its FORMAT_DESCRIPTION event whether events have checksums."""
    numbers = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    if numbers is None:
        raise DecodeError(f"a server of version {version!r}")
    first = (5, 3, 0) if "mariadb" in version.lower() else (5, 6, 1)
    return tuple(map(int, numbers.groups())) >= first


cdef int too_short() except -1 nogil:
    """Raises DecodeError."""
    with gil:
        raise DecodeError("an event that is too short for its fields")


cdef int bad_checksum() except -1 nogil:
    """Raises DecodeError."""
    with gil:
        raise DecodeError("the checksum of an event does not fit")


cdef class Event:
    """An event (or packet) that the compiled loop hands to Python: a control event.

    Attributes:
        type: its `BinlogEvent`; a MariaDB QUERY_COMPRESSED event comes inflated, as QUERY_EVENT.
        timestamp: seconds since 1970 in the event header.
        server_id: the server that first logged it.
        log_pos: where it ends in its file by its header, modulo 2**32; 0 if the server does not say.
        flags: of the event header.
        offset: where it starts in its file (of an inner event of a compressed transaction: where the outer one does).
        length: of the whole event in bytes, header and checksum included (of an inner event: of the outer one).
        body: what follows the header, without the checksum; of an error or EOF packet what follows the first byte.
        position: the place before the event; None before the first FORMAT_DESCRIPTION event.
        error: the `DecodeError` why a rows event could not be decoded; None otherwise.
        plan: the `TablePlan` of that rows event.
        table_map: the body of its TABLE_MAP event without table id and flags.
    """

    def __repr__(self):
        return f"<Event type={self.type} at {self.position} size={self.length}>"
