"""The tables whose TABLE_MAP events have come, with their plans."""

from cython.operator cimport dereference
from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcmp
from libcpp.unordered_map cimport unordered_map

from .plan cimport TablePlan


cdef enum:
    KNOWN_BYTES = 8 << 20          # of plans kept (some 8,000 tables); more are forgotten between two transactions
    KNOWN_IDS = 8192               # of tables, kept likewise


cdef class KnownTable:
    cdef TablePlan plan
    cdef bytes body        # of the TABLE_MAP event, after the table id and flags
    cdef const uint8_t *data
    cdef size_t size
    cdef const uint8_t *names
    cdef size_t names_size
    cdef bint forgotten    # its table is planned again at its next TABLE_MAP event


cdef inline bint is_of(const void *known, const uint8_t *body, size_t size) noexcept nogil:
    """Whether the KnownTable is that of a TABLE_MAP body after table id and flags, and counts."""
    return (
        known != NULL and not (<KnownTable>known).forgotten
        and (<KnownTable>known).size == size and memcmp((<KnownTable>known).data, body, size) == 0
    )


cdef class KnownTables:
    cdef dict latest                   # schema 0x00 table 0x00 -> KnownTable: its latest version
    cdef Py_ssize_t plan_bytes         # that they take, about
    cdef unordered_map[uint64_t, void *] by_id      # table id -> KnownTable, owned by `latest` or `retired`
    cdef list retired                  # KnownTables that were forgotten in the current transaction
    cdef bint has_retired

    cdef int add(self, uint64_t id, TablePlan plan, bytes body) except -1
    # Forgets a table, all of a schema, or all; their rows in the current transaction keep their plans.
    cdef int forget(self, schema, table) except -1
    cdef int retire(self, bytes name) except -1
    cdef bint knows_body(self, uint64_t id, const uint8_t *body, size_t size) except -1 nogil
    cdef int release(self) except -1 nogil

    cdef inline void *find(self, uint64_t id) noexcept nogil:
        """The KnownTable of a table id, or NULL."""
        cdef unordered_map[uint64_t, void *].iterator place = self.by_id.find(id)
        return NULL if place == self.by_id.end() else dereference(place).second

    cdef inline bint knows(self, uint64_t id, const uint8_t *body, size_t size) except -1 nogil:
        """Whether the table of a TABLE_MAP body after table id and flags is known; it has this id from now on."""
        return is_of(self.find(id), body, size) or self.knows_body(id, body, size)

    cdef inline int shrink(self) except -1 nogil:
        """Between transactions: releases retired tables, and bounds the plans that are kept."""
        if not self.has_retired and self.plan_bytes <= KNOWN_BYTES and self.by_id.size() <= KNOWN_IDS:
            return 0
        return self.release()
