"""What columns mean: see columns.pxd."""

from libc.stdint cimport uint8_t
from libc.string cimport memcmp, memset
from cython.operator cimport dereference
from libcpp.string cimport string
from libcpp.unordered_map cimport unordered_map

from ..wire cimport Span
from .entry cimport Cell, get_cell, get_changing, malformed, text_of

from .types import kind_of, width_of

cdef enum:
    MEANINGS_MAX = 1 << 16


cdef class Columns:

    def __cinit__(self):
        memset(self.hints, 0, sizeof(self.hints))

    cdef const Meaning *read(self, Span message, size_t place, Cell *cell) except NULL nogil:
        """Read the column at a place of a row."""
        cdef const Meaning *known = self.hints[place % PLACES]
        cdef unordered_map[string, Meaning].iterator found
        cdef Meaning meaning
        cdef Meaning *kept
        cdef string prefix
        cdef const uint8_t *end = message.data + message.size
        if known != NULL and message.size >= known.prefix_size and (
            memcmp(message.data, known.prefix, known.prefix_size) == 0
        ):
            cell[0] = known.cell
            if get_changing(message.data + known.prefix_size, end, &cell.updated, &cell.value):
                return known
        if not get_cell(message, cell):
            malformed()
        if cell.prefix == 0 and (cell.updated or cell.value.data != NULL):  # nothing is sure to come again
            self.scratch.cell = cell[0]
            with gil:
                self.learn(&self.scratch)
            return &self.scratch
        prefix.assign(<const char *>message.data, cell.prefix or message.size)
        found = self.meanings.find(prefix)
        if found == self.meanings.end():
            memset(&meaning, 0, sizeof(Meaning))
            meaning.cell = cell[0]
            with gil:
                self.learn(&meaning)
            self.meanings[prefix] = meaning
            found = self.meanings.find(prefix)
            kept = &dereference(found).second
            kept.prefix = <const uint8_t *>dereference(found).first.data()
            kept.prefix_size = dereference(found).first.size()
            if not get_cell(span_of_prefix(kept), &kept.cell):
                malformed()
        kept = &dereference(found).second
        self.hints[place % PLACES] = kept
        return kept

    cdef int learn(self, Meaning *meaning) except -1:
        cdef str mysql_type = text_of(meaning.cell.mysql_type)
        meaning.kind = kind_of(mysql_type, meaning.cell.sql_type)
        meaning.width = width_of(mysql_type)
        return 0

    cdef void shrink(self) noexcept:
        """Forget what was learned, if it is much."""
        if self.meanings.size() > MEANINGS_MAX:
            self.meanings.clear()
            memset(self.hints, 0, sizeof(self.hints))


cdef inline Span span_of_prefix(const Meaning *meaning) noexcept nogil:
    cdef Span span
    span.data, span.size = meaning.prefix, meaning.prefix_size
    return span
