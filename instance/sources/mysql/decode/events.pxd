"""The events of a binlog: their types, their common header, and how one is handed to Python."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t

from .....protocol.canal.tags cimport INSERT, UPDATE


cpdef enum BinlogEvent:
    """`enum Log_event_type` of MySQL (libs/mysql/binlog/event/binlog_event.h) and of MariaDB (sql/log_event.h)."""
    START_EVENT_V3 = 1
    QUERY_EVENT = 2
    STOP_EVENT = 3
    ROTATE_EVENT = 4
    INTVAR_EVENT = 5
    LOAD_EVENT = 6
    SLAVE_EVENT = 7
    CREATE_FILE_EVENT = 8
    APPEND_BLOCK_EVENT = 9
    EXEC_LOAD_EVENT = 10
    DELETE_FILE_EVENT = 11
    NEW_LOAD_EVENT = 12
    RAND_EVENT = 13
    USER_VAR_EVENT = 14
    FORMAT_DESCRIPTION_EVENT = 15
    XID_EVENT = 16
    BEGIN_LOAD_QUERY_EVENT = 17
    EXECUTE_LOAD_QUERY_EVENT = 18
    TABLE_MAP_EVENT = 19
    WRITE_ROWS_EVENT_V1 = 23
    UPDATE_ROWS_EVENT_V1 = 24
    DELETE_ROWS_EVENT_V1 = 25
    INCIDENT_EVENT = 26
    HEARTBEAT_EVENT = 27
    IGNORABLE_EVENT = 28
    ROWS_QUERY_EVENT = 29
    WRITE_ROWS_EVENT = 30
    UPDATE_ROWS_EVENT = 31
    DELETE_ROWS_EVENT = 32
    GTID_EVENT = 33
    ANONYMOUS_GTID_EVENT = 34
    PREVIOUS_GTIDS_EVENT = 35
    TRANSACTION_CONTEXT_EVENT = 36
    VIEW_CHANGE_EVENT = 37
    XA_PREPARE_EVENT = 38
    PARTIAL_UPDATE_ROWS_EVENT = 39
    TRANSACTION_PAYLOAD_EVENT = 40
    HEARTBEAT_EVENT_V2 = 41
    GTID_TAGGED_EVENT = 42
    MARIADB_ANNOTATE_ROWS_EVENT = 160
    MARIADB_BINLOG_CHECKPOINT_EVENT = 161
    MARIADB_GTID_EVENT = 162
    MARIADB_GTID_LIST_EVENT = 163
    MARIADB_START_ENCRYPTION_EVENT = 164
    MARIADB_QUERY_COMPRESSED_EVENT = 165
    MARIADB_WRITE_ROWS_COMPRESSED_EVENT_V1 = 166
    MARIADB_UPDATE_ROWS_COMPRESSED_EVENT_V1 = 167
    MARIADB_DELETE_ROWS_COMPRESSED_EVENT_V1 = 168
    MARIADB_WRITE_ROWS_COMPRESSED_EVENT = 169
    MARIADB_UPDATE_ROWS_COMPRESSED_EVENT = 170
    MARIADB_DELETE_ROWS_COMPRESSED_EVENT = 171
    # Not events but packets in their place, handed to Python in the same way:
    EOF_PACKET = 0x1FE
    ERROR_PACKET = 0x1FF


cdef enum:
    HEADER_SIZE = 19
    CHECKSUM_SIZE = 4
    QUERY_POST_HEADER = 13

    LOG_EVENT_BINLOG_IN_USE_F = 0x01
    LOG_EVENT_ARTIFICIAL_F = 0x20
    LOG_EVENT_IGNORABLE_F = 0x80


# timestamp 4 | type 1 | server_id 4 | event_size 4 | log_pos 4 (where the event ends in its file) | flags 2
# (`Log_event_header`, libs/mysql/binlog/event/binlog_event.h)
cdef struct EventHeader:
    uint32_t timestamp
    uint8_t type
    uint32_t server_id
    uint32_t size
    uint32_t log_pos
    uint16_t flags


cdef struct RowsType:      # what a type of rows event says about its rows
    int kind               # INSERT, UPDATE or DELETE of Canal's EventType
    bint is_compressed
    bint is_partial


cdef bint may_be_made_up(int type) noexcept nogil
cdef bint checksum_fits(const uint8_t *data, size_t size) noexcept nogil
cdef bint has_checksum_algorithm(str version) except -1
cdef int too_short() except -1 nogil
cdef int bad_checksum() except -1 nogil


cdef inline bint rows_type(int type, RowsType *rows) noexcept nogil:
    """Whether it is a type of rows event, and what it says."""
    rows.kind = INSERT
    rows.is_compressed = type >= MARIADB_WRITE_ROWS_COMPRESSED_EVENT_V1
    rows.is_partial = type == PARTIAL_UPDATE_ROWS_EVENT
    if WRITE_ROWS_EVENT_V1 <= type <= DELETE_ROWS_EVENT_V1:
        rows.kind = INSERT + type - WRITE_ROWS_EVENT_V1
    elif WRITE_ROWS_EVENT <= type <= DELETE_ROWS_EVENT:
        rows.kind = INSERT + type - WRITE_ROWS_EVENT
    elif rows.is_partial:
        rows.kind = UPDATE
    elif MARIADB_WRITE_ROWS_COMPRESSED_EVENT_V1 <= type <= MARIADB_DELETE_ROWS_COMPRESSED_EVENT:
        rows.kind = INSERT + (type - MARIADB_WRITE_ROWS_COMPRESSED_EVENT_V1) % 3
    else:
        return False
    return True


cdef inline bint is_gtid(int type) noexcept nogil:
    return (
        type == GTID_EVENT or type == ANONYMOUS_GTID_EVENT or type == GTID_TAGGED_EVENT
        or type == MARIADB_GTID_EVENT
    )


cdef class Event:
    cdef readonly int type
    cdef readonly int64_t timestamp
    cdef readonly int64_t server_id
    cdef readonly int64_t log_pos
    cdef readonly int flags
    cdef readonly int64_t offset
    cdef readonly int64_t length
    cdef readonly bytes body
    cdef readonly object position
    cdef readonly object error
    cdef readonly object plan
    cdef readonly bytes table_map
