"""The tables whose TABLE_MAP events have come, with their plans."""

from libc.stdint cimport uint8_t, uint64_t
from libcpp.unordered_map cimport unordered_map

from .plan cimport TablePlan


cdef class KnownTable:
    cdef TablePlan plan
    cdef bytes body        # of the TABLE_MAP event, after the table id and flags
    cdef const uint8_t *data
    cdef size_t size
    cdef const uint8_t *names
    cdef size_t names_size
    cdef bint forgotten    # its table is planned again at its next TABLE_MAP event


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
    # The KnownTable of a table id, or NULL.
    cdef void *find(self, uint64_t id) noexcept nogil
    # Whether the table of a TABLE_MAP body after table id and flags is known; it has this id from now on.
    cdef bint knows(self, uint64_t id, const uint8_t *body, size_t size) except -1 nogil
    # Between transactions: releases retired tables, and bounds the plans that are kept.
    cdef int shrink(self) except -1 nogil
