"""The tables whose TABLE_MAP events have come, with their plans."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint64_t

from .plan cimport TablePlan

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

    cdef bint knows_body(self, uint64_t id, const uint8_t *body, size_t size) except -1 nogil:
        """Whether the table is known under another id."""
        with gil:
            table = self.latest.get(name_in(body, size))
            if table is not None and is_of(<void *>table, body, size):
                self.by_id[id] = <void *>table
                return True
        self.by_id.erase(id)
        return False

    cdef int release(self) except -1 nogil:
        """With more tables, a plan is made again when its table comes back."""
        self.by_id.clear()  # those that are still known are found by their body again
        with gil:
            self.retired.clear()
            self.has_retired = False
            if self.plan_bytes > KNOWN_BYTES:
                self.latest.clear()
                self.plan_bytes = 0
        return 0
