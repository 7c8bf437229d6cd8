"""The events that begin a transaction with its GTID, of both families."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from .....protocol.gtid_text cimport TAG_MAX, UUID_SIZE
from .....protocol.littleendian cimport le32, le48, le64

from .....protocol.errors import DecodeError

cdef enum:
    LOGICAL_TIMESTAMP = 2          # the type code before the two numbers of the logical clock

    TAGGED_VERSION = 1             # of the serialization of a tagged GTID event
    # Its fields, by their ids (`Gtid_event`, libs/mysql/binlog/event/control_events.h)
    FIELD_FLAGS = 0
    FIELD_UUID = 1
    FIELD_NUMBER = 2
    FIELD_TAG = 3
    FIELD_LAST_COMMITTED = 4
    FIELD_SEQUENCE_NUMBER = 5
    FIELD_IMMEDIATE_COMMIT_TIMESTAMP = 6
    FIELD_ORIGINAL_COMMIT_TIMESTAMP = 7
    FIELD_TRANSACTION_LENGTH = 8
    FIELD_IMMEDIATE_SERVER_VERSION = 9
    FIELD_ORIGINAL_SERVER_VERSION = 10
    FIELD_COMMIT_GROUP_TICKET = 11


cdef int too_short() except -1 nogil:
    with gil:
        raise DecodeError("a GTID event is too short for its fields")


# flags 1 | uuid 16 | number 8
# 5.7 and later:   type code 1 (2) | last_committed 8 | sequence_number 8
# 8.0.1 and later: immediate_commit_timestamp 7, µs; where its highest bit is set original_commit_timestamp 7 follows
# then, not read here: transaction length (length-encoded) | server versions 4 or 8 | commit group ticket 8
# (https://dev.mysql.com/doc/dev/mysql-server/latest/classmysql_1_1binlog_1_1event_1_1Gtid__event.html)
cdef int read_gtid(Gtid *gtid, const uint8_t *body, const uint8_t *end) except -1 nogil:
    memset(gtid, 0, sizeof(Gtid))
    if end - body < 25:
        too_short()
    gtid.flags = body[0]
    memcpy(gtid.uuid, body + 1, UUID_SIZE)
    gtid.number = <int64_t>le64(body + 17)
    if end - body >= 42 and body[25] == LOGICAL_TIMESTAMP:
        gtid.has_logical_clock = True
        gtid.last_committed = <int64_t>le64(body + 26)
        gtid.sequence_number = <int64_t>le64(body + 34)
        if end - body >= 49:
            gtid.commit_us = <int64_t>(le48(body + 42) | <uint64_t>(body[48] & 0x7F) << 48)
    return 0


# A variable-length integer of mysql::serialization: as many further bytes follow as the first byte has low one bits
# (0 to 8); the bits above them and the zero bit after them, little-endian, are the number.
# (libs/mysql/serialization/variable_length_integers.h)
cdef const uint8_t *read_varlen(const uint8_t *p, const uint8_t *end, uint64_t *value) except NULL nogil:
    cdef int more = 0
    cdef int i
    cdef uint64_t result = 0
    if p >= end:
        too_short()
    while more < 8 and p[0] >> more & 1:
        more += 1
    if end - p <= more:
        too_short()
    for i in range(1, more + 1):
        result |= <uint64_t>p[i] << 8 * (i - 1)
    if more < 7:
        result = result << (7 - more) | p[0] >> (more + 1)
    value[0] = result
    return p + 1 + more


cdef inline int64_t signed(uint64_t value) noexcept nogil:
    """A signed number has its sign in the lowest bit."""
    return <int64_t>(value >> 1) ^ -<int64_t>(value & 1)


cdef int check_tag(const Gtid *gtid) except -1 nogil:
    """A tag has lower case letters, digits and `_`, and does not begin with a digit."""
    cdef uint32_t i
    for i in range(gtid.tag_size):
        if not (
            b"a" <= gtid.tag[i] <= b"z" or gtid.tag[i] == b"_" or (i > 0 and b"0" <= gtid.tag[i] <= b"9")
        ):
            with gil:
                raise DecodeError(f"a GTID event with the tag {gtid.tag[:gtid.tag_size]!r}")
    return 0


# version | size of all this | last id that a reader must know of | fields: id | value
# All numbers are of variable length; the uuid is 16 such numbers, the tag is its length and its characters.
# Fields come in the order of their ids and may be missing.
# (libs/mysql/serialization/readme.md; Gtid_event::define_fields)
cdef int read_tagged_gtid(Gtid *gtid, const uint8_t *body, const uint8_t *end) except -1 nogil:
    cdef const uint8_t *p
    cdef uint64_t value, field, needed
    cdef int i
    cdef bint has_uuid = False
    cdef bint has_number = False
    memset(gtid, 0, sizeof(Gtid))
    p = read_varlen(body, end, &value)
    if value != TAGGED_VERSION:
        with gil:
            raise DecodeError(f"a tagged GTID event of version {value}, which is unknown")
    p = read_varlen(p, end, &value)
    if value != <uint64_t>(end - body):
        with gil:
            raise DecodeError(f"a tagged GTID event of {end - body} bytes says it has {value}")
    p = read_varlen(p, end, &needed)
    while p < end:
        p = read_varlen(p, end, &field)
        if field == FIELD_UUID:
            for i in range(UUID_SIZE):
                p = read_varlen(p, end, &value)
                gtid.uuid[i] = <uint8_t>value
            has_uuid = True
            continue
        p = read_varlen(p, end, &value)
        if field == FIELD_FLAGS:
            gtid.flags = <uint8_t>value
        elif field == FIELD_NUMBER:
            gtid.number = signed(value)
            has_number = True
        elif field == FIELD_TAG:
            if value > TAG_MAX or value > <uint64_t>(end - p):
                too_short()
            gtid.tag_size = <uint32_t>value
            memcpy(gtid.tag, p, gtid.tag_size)
            p += gtid.tag_size
            check_tag(gtid)
        elif field == FIELD_LAST_COMMITTED:
            gtid.last_committed = signed(value)
        elif field == FIELD_SEQUENCE_NUMBER:
            gtid.sequence_number = signed(value)
            gtid.has_logical_clock = True
        elif field == FIELD_IMMEDIATE_COMMIT_TIMESTAMP:
            gtid.commit_us = <int64_t>value
        elif field > FIELD_COMMIT_GROUP_TICKET:
            if field <= needed:
                with gil:
                    raise DecodeError(f"a tagged GTID event with field {field}, which is unknown")
            break
    if not has_uuid or not has_number:
        with gil:
            raise DecodeError("a tagged GTID event without a GTID")
    return 0


# sequence number 8 | domain 4 | flags 1 | commit id 8, where FL_GROUP_COMMIT_ID is set
# | format id 4, size of gtrid 1, size of bqual 1, both texts, where FL_PREPARED_XA or FL_COMPLETED_XA is set
# | further flags 1 | number of other engines 1, where FL_EXTRA_MULTI_ENGINE is set
# | sequence number of the START ALTER 8, where FL_COMMIT_ALTER or FL_ROLLBACK_ALTER is set
# | thread id 4, where FL_EXTRA_THREAD_ID is set
# Zero bytes fill an event without further flags. The GTID's server id is that of the event header.
# (https://mariadb.com/kb/en/gtid_event/; Gtid_log_event::Gtid_log_event, sql/log_event.cc)
cdef int read_mariadb_gtid(Gtid *gtid, uint32_t server_id, const uint8_t *body, const uint8_t *end) except -1 nogil:
    cdef const uint8_t *p
    memset(gtid, 0, sizeof(Gtid))
    if end - body < 13:
        too_short()
    gtid.is_mariadb = True
    gtid.server_id = server_id
    gtid.number = <int64_t>le64(body)
    gtid.domain = le32(body + 8)
    gtid.flags = body[12]
    p = body + 13
    if gtid.flags & FL_GROUP_COMMIT_ID:
        p += 8
    if gtid.flags & (FL_PREPARED_XA | FL_COMPLETED_XA):
        if end - p < 6:
            too_short()
        p += 6 + p[4] + p[5]
    if p > end:
        too_short()
    if p == end:
        return 0
    gtid.flags_extra = p[0]
    p += 1
    if gtid.flags_extra & FL_EXTRA_MULTI_ENGINE:
        p += 1
    if gtid.flags_extra & (FL_COMMIT_ALTER | FL_ROLLBACK_ALTER):
        p += 8
    if gtid.flags_extra & FL_EXTRA_THREAD_ID:
        if end - p < 4:
            too_short()
        gtid.thread_id = le32(p)
    return 0


def mysql_gtid(const uint8_t[::1] body not None, *, bint tagged):
    """The source (uuid, tag) and the number of MySQL's GTID event; a checksum may follow the body."""
    cdef Gtid gtid
    cdef uint64_t size
    if body.shape[0] == 0:
        too_short()
    cdef const uint8_t *start = &body[0]
    cdef const uint8_t *end = start + body.shape[0]
    if tagged:
        read_varlen(read_varlen(start, end, &size), end, &size)
        read_tagged_gtid(&gtid, start, min(end, start + size))
    else:
        read_gtid(&gtid, start, end)
    return (gtid.uuid[:UUID_SIZE], gtid.tag[:gtid.tag_size].decode("ascii", "replace")), gtid.number
