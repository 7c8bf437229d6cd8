"""A column of a row, read in place: what the codecs have in common. rows.pyx describes its layout."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memset

from ..wire cimport Span, WireField, get_field, get_varint, span_of
from .tags cimport INDEX, IS_KEY, IS_NULL, MYSQL_TYPE, NAME, SQL_TYPE, UPDATED, VALUE


cdef struct Cell:
    const uint8_t *start
    Span name
    Span mysql_type
    Span value
    int64_t index
    int32_t sql_type
    bint is_key
    bint is_null
    bint updated
    size_t prefix          # bytes before `updated` and `value`, the same in many rows; 0 when something follows these


cdef inline bint get_cell(const uint8_t *p, const uint8_t *end, Cell *cell) noexcept nogil:
    """Reads all fields; whether each fits before `end`."""
    cdef const uint8_t *at
    cdef const uint8_t *changing = NULL        # the first of `updated` and `value`
    cdef bint is_last = True                   # nothing else follows it
    cdef WireField field
    memset(cell, 0, sizeof(Cell))
    cell.start = p
    while p < end:
        at = p
        p = get_field(p, end, &field)
        if p == NULL:
            return False
        if field.tag == UPDATED or field.tag == VALUE:
            if field.tag == UPDATED:
                cell.updated = field.value != 0
            else:
                cell.value = span_of(&field)
            if changing == NULL:
                changing = at
            continue
        is_last = is_last and changing == NULL
        if field.tag == INDEX:
            cell.index = <int64_t>field.value
        elif field.tag == SQL_TYPE:
            cell.sql_type = <int32_t>field.value
        elif field.tag == NAME:
            cell.name = span_of(&field)
        elif field.tag == IS_KEY:
            cell.is_key = field.value != 0
        elif field.tag == IS_NULL:
            cell.is_null = field.value != 0
        elif field.tag == MYSQL_TYPE:
            cell.mysql_type = span_of(&field)
    if is_last and changing != NULL:
        cell.prefix = changing - cell.start
    return True


cdef inline bint get_changing(const uint8_t *p, const uint8_t *end, Cell *cell) noexcept nogil:
    """Reads `updated` and `value` after a known prefix; whether nothing else is there."""
    cdef uint64_t length
    cell.updated = False
    cell.value.size = 0
    if end - p >= 2 and p[0] == UPDATED and p[1] <= 1:
        cell.updated = p[1]
        p += 2
    if p < end and p[0] == VALUE:
        p = get_varint(p + 1, end, &length)
        if p == NULL or length != <uint64_t>(end - p):
            return False
        cell.value.data = p
        cell.value.size = length
        return True
    return p == end
