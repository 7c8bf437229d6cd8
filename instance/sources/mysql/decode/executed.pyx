"""The GTID set in the headers of entries: what the source has executed, the current transaction included.

Every transaction extends it without Python; it becomes text at the first entry of a transaction.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t
from libcpp.string cimport string

from .....protocol.gtid_text cimport UUID_SIZE, add_mariadb, add_run, add_source
from .gtid_event cimport Gtid

from .....protocol.gtid import MysqlGtidSet, parse_gtids


cdef uint32_t be32(const string &key) noexcept nogil:
    cdef uint32_t number = 0
    cdef int i
    for i in range(4):
        number = number << 8 | <uint8_t>key[i]
    return number


cdef class ExecutedSet:
    """A GTID set that grows by one transaction at a time, and its text.

    MySQL: ``uuid:1-5:7,uuid:tag:1-3``. MariaDB: the last of each domain, ``0-1-5,1-1-9``.
    """

    def __init__(self, text: str = ""):
        """Raises BadPositionError if the text is not a GTID set."""
        cdef Executed *source
        gtids = parse_gtids(text)
        if isinstance(gtids, MysqlGtidSet):
            for (uuid, tag), first, last in gtids:
                self.insert(self.source(uuid + tag.encode()), first, last)
        else:
            for (domain, server_id), number in gtids:  # the newest of a domain comes last
                source = self.source(domain.to_bytes(4, "big"))
                source.server_id = server_id
                source.number = number

    def __str__(self):
        return self.as_text()[0].decode()

    cdef Executed *source(self, const string &key) except NULL nogil:
        """The source of that key, added if it is missing."""
        cdef size_t i = 0
        cdef Executed added
        while i < self.sources.size() and self.sources[i].key < key:
            i += 1
        if i == self.sources.size() or self.sources[i].key != key:
            added.key = key
            added.server_id = 0
            added.number = 0
            self.sources.insert(self.sources.begin() + i, added)
        self.stale = True
        return &self.sources[i]

    cdef void insert(self, Executed *source, int64_t first, int64_t last) noexcept nogil:
        """Adds the interval and joins it with those it touches."""
        cdef size_t i = source.intervals.size()
        cdef Interval added
        added.first = first
        added.last = last
        while i > 0 and source.intervals[i - 1].first > first:
            i -= 1
        source.intervals.insert(source.intervals.begin() + i, added)
        if i > 0:
            i -= 1
        while i + 1 < source.intervals.size():
            if source.intervals[i + 1].first > source.intervals[i].last + 1:
                if source.intervals[i].first > last:
                    break
                i += 1
                continue
            source.intervals[i].last = max(source.intervals[i].last, source.intervals[i + 1].last)
            source.intervals.erase(source.intervals.begin() + i + 1)

    cdef int add(self, const Gtid *gtid) except -1 nogil:
        cdef string key
        cdef Executed *source
        cdef int i
        if gtid.is_mariadb:
            for i in range(4):
                key.push_back(<char>(gtid.domain >> (24 - 8 * i)))
            source = self.source(key)
            source.server_id = gtid.server_id
            source.number = gtid.number
            return 0
        key.assign(<const char *>gtid.uuid, UUID_SIZE)
        key.append(<const char *>gtid.tag, gtid.tag_size)
        self.insert(self.source(key), gtid.number, gtid.number)
        return 0

    cdef const string *as_text(self) except NULL nogil:
        cdef size_t i, j
        cdef Executed *source
        cdef string none
        if not self.stale:
            return &self.text
        self.text.clear()
        for i in range(self.sources.size()):
            source = &self.sources[i]
            if source.intervals.empty():
                add_mariadb(&self.text, be32(source.key), source.server_id, source.number)
                continue
            add_source(&self.text, source.key, self.sources[i - 1].key if i else none)
            for j in range(source.intervals.size()):
                add_run(&self.text, source.intervals[j].first, source.intervals[j].last)
        self.stale = False
        return &self.text
