"""How GTIDs and sets of them are written, for the sets in Python and for the decoder, which works without the lock."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy
from libcpp.string cimport string, to_string

from .wire cimport put_decimal


cdef enum:
    UUID_SIZE = 16
    TAG_MAX = 32
    SOURCE_TEXT_MAX = 36 + 1 + TAG_MAX


cdef inline uint8_t *put_source(uint8_t *p, const uint8_t *uuid, const uint8_t *tag, size_t tag_size) noexcept nogil:
    """MySQL's source of a GTID as text, `uuid` or `uuid:tag`, in at most SOURCE_TEXT_MAX bytes; the place after it."""
    cdef int i
    for i in range(UUID_SIZE):
        if i == 4 or i == 6 or i == 8 or i == 10:
            p[0] = b"-"
            p += 1
        p[0] = b"0123456789abcdef"[uuid[i] >> 4]
        p[1] = b"0123456789abcdef"[uuid[i] & 15]
        p += 2
    if tag_size:
        p[0] = b":"
        memcpy(p + 1, tag, tag_size)
        p += 1 + tag_size
    return p


cdef inline uint8_t *put_mariadb(uint8_t *p, uint32_t domain, uint32_t server_id, uint64_t number) noexcept nogil:
    """A GTID of MariaDB as text, `domain-server-number`, in at most 42 bytes; the place after it."""
    p = put_decimal(p, domain)
    p[0] = b"-"
    p = put_decimal(p + 1, server_id)
    p[0] = b"-"
    return put_decimal(p + 1, number)


# A set of MySQL: each source in the order of its uuid and tag, followed by its runs, ascending.
cdef inline void add_source(string *text, const string &key, const string &before) noexcept nogil:
    """A source by its key, the uuid and the tag; `before` is the key of the one before, or empty."""
    cdef uint8_t[SOURCE_TEXT_MAX] name
    cdef const uint8_t *uuid = <const uint8_t *>key.data()
    cdef size_t tag_size = key.size() - UUID_SIZE
    if key.compare(0, UUID_SIZE, before, 0, UUID_SIZE) == 0:   # the tags of a uuid follow its runs without a tag
        text.push_back(b":")
        text.append(key, UUID_SIZE, tag_size)
        return
    if not text.empty():
        text.push_back(b",")
    text.append(<const char *>name, put_source(name, uuid, uuid + UUID_SIZE, tag_size) - name)


cdef inline void add_run(string *text, int64_t first, int64_t last) noexcept nogil:
    text.push_back(b":")
    text.append(to_string(first))
    if last > first:
        text.push_back(b"-")
        text.append(to_string(last))


# A set of MariaDB
cdef inline void add_mariadb(string *text, uint32_t domain, uint32_t server_id, uint64_t number) noexcept nogil:
    cdef uint8_t[42] gtid
    if not text.empty():
        text.push_back(b",")
    text.append(<const char *>gtid, put_mariadb(gtid, domain, server_id, number) - gtid)
