"""The tables whose TABLE_MAP events have come, with their plans."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cython.operator cimport dereference
from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcmp
from libcpp.unordered_map cimport unordered_map

from .plan cimport TablePlan

cdef enum:
    KNOWN_BYTES = 8 << 20          # of plans kept (some 8,000 tables); more are forgotten between two transactions
    KNOWN_IDS = 8192               # of tables, kept likewise


cdef inline bytes name_in(const uint8_t *body, size_t size):
    """Schema 0x00 table 0x00, of a TABLE_MAP body after table id and flags; None if it is cut off."""
    cdef size_t schema_size, table_size
    if size < 2 or size < <size_t>body[0] + 3:
        return None
    schema_size = <size_t>body[0] + 1
    table_size = <size_t>body[schema_size + 1] + 1
    if size < 2 + schema_size + table_size:
        return None
    return (<const char *>body + 1)[:schema_size] + (<const char *>body + schema_size + 2)[:table_size]


cdef inline bint is_of(const void *known, const uint8_t *body, size_t size) noexcept nogil:
    """Whether the KnownTable is that of a TABLE_MAP body after table id and flags, and counts."""
    return (
        known != NULL and not (<KnownTable>known).forgotten
        and (<KnownTable>known).size == size and memcmp((<KnownTable>known).data, body, size) == 0
    )


@cython.no_gc
cdef class KnownTable:
    """A table map that was seen, with its plan."""

    def __init__(self, TablePlan plan not None, bytes body not None):
        self.plan = plan
        self.body = body
        self.data = <const uint8_t *>PyBytes_AS_STRING(body)
        self.size = len(body)
        self.names = <const uint8_t *>PyBytes_AS_STRING(plan.encoded)
        self.names_size = plan.names_size


cdef class KnownTables:
    """The tables whose TABLE_MAP events have come, by name and by id."""

    def __init__(self):
        self.latest = {}
        self.retired = []

    cdef int add(self, uint64_t id, TablePlan plan, bytes body) except -1:
        cdef KnownTable table = KnownTable(plan, body)
        cdef bytes name = name_in(<const uint8_t *>PyBytes_AS_STRING(body), PyBytes_GET_SIZE(body))
        self.retire(name)
        self.latest[name] = table
        self.plan_bytes += plan.size + len(body)
        self.by_id[id] = <void *>table
        return 0

    cdef int forget(self, schema, table) except -1:
        cdef bytes start = b"" if schema is None else schema.encode("utf-8", "replace") + b"\0"
        if table is not None:  # must not take longer with more tables
            return self.retire(start + table.encode("utf-8", "replace") + b"\0")
        for name in list(self.latest):
            if name.startswith(start):
                self.retire(name)
        return 0

    cdef int retire(self, bytes name) except -1:
        cdef KnownTable known = self.latest.pop(name, None)
        if known is not None:
            self.plan_bytes -= known.plan.size + len(known.body)
            known.forgotten = True
            self.retired.append(known)
            self.has_retired = True
        return 0

    cdef void *find(self, uint64_t id) noexcept nogil:
        cdef unordered_map[uint64_t, void *].iterator place = self.by_id.find(id)
        return NULL if place == self.by_id.end() else dereference(place).second

    cdef bint knows(self, uint64_t id, const uint8_t *body, size_t size) except -1 nogil:
        if is_of(self.find(id), body, size):
            return True
        with gil:
            table = self.latest.get(name_in(body, size))
            if table is not None and is_of(<void *>table, body, size):
                self.by_id[id] = <void *>table
                return True
        self.by_id.erase(id)
        return False

    cdef int shrink(self) except -1 nogil:
        """With more tables, a plan is made again when its table comes back."""
        if not self.has_retired and self.plan_bytes <= KNOWN_BYTES and self.by_id.size() <= KNOWN_IDS:
            return 0
        self.by_id.clear()  # those that are still known are found by their body again
        with gil:
            self.retired.clear()
            self.has_retired = False
            if self.plan_bytes > KNOWN_BYTES:
                self.latest.clear()
                self.plan_bytes = 0
        return 0
