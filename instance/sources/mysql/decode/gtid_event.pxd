"""The events that begin a transaction with its GTID, of both families."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from .....protocol.gtid_text cimport TAG_MAX, UUID_SIZE


cdef enum:
    # flags of MariaDB's GTID event (sql/log_event.h, Gtid_log_event)
    FL_STANDALONE = 1              # one statement follows, no XID or COMMIT
    FL_GROUP_COMMIT_ID = 2
    FL_PREPARED_XA = 64
    FL_COMPLETED_XA = 128
    # ... and its further flags
    FL_EXTRA_MULTI_ENGINE = 1
    FL_START_ALTER = 2
    FL_COMMIT_ALTER = 4
    FL_ROLLBACK_ALTER = 8
    FL_EXTRA_THREAD_ID = 16


cdef struct Gtid:
    bint is_mariadb
    bint is_anonymous
    uint8_t flags
    uint8_t flags_extra
    uint8_t uuid[UUID_SIZE]        # MySQL
    uint8_t tag[TAG_MAX]           # MySQL; tag_size 0 for none
    uint32_t tag_size
    uint32_t domain                # MariaDB
    uint32_t server_id             # MariaDB
    int64_t number
    bint has_logical_clock
    int64_t last_committed
    int64_t sequence_number
    int64_t commit_us              # immediate_commit_timestamp; 0 if the source does not say
    uint64_t thread_id             # MariaDB; 0 if the source does not say


cdef int read_gtid(Gtid *gtid, const uint8_t *body, const uint8_t *end) except -1 nogil
cdef int read_tagged_gtid(Gtid *gtid, const uint8_t *body, const uint8_t *end) except -1 nogil
cdef int read_mariadb_gtid(Gtid *gtid, uint32_t server_id, const uint8_t *body, const uint8_t *end) except -1 nogil
