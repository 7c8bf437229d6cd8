"""An entry with some of its rows: all else is as it was, except for the number of rows in its header."""

from libc.stdint cimport uint8_t, uint64_t
from libcpp.string cimport string
from libcpp.vector cimport vector

from ..wire cimport (
    VARINT_MAX,
    Span,
    WireField,
    decimal_size,
    is_same,
    put_bytes,
    put_decimal,
    put_varint,
    span_at,
    span_of,
    varint_size,
)
from .entry cimport Entry, Fields, Prop, checked, fields_of, get_entry, get_prop, malformed, next_entry, next_field
from .tags cimport ENTRY_TYPE, HEADER, HEADER_PROPS, KEY, MESSAGES, PAIR_VALUE, ROW_DATAS, STORE_VALUE

cdef enum:
    DIGITS_MAX = 20

cdef const char *ROWS_COUNT = "rowsCount"


cdef inline void put(string *out, Span bytes) noexcept nogil:
    out.append(<const char *>bytes.data, bytes.size)


cdef inline void put_length(string *out, uint64_t tag, size_t size) noexcept nogil:
    cdef uint8_t[2 * VARINT_MAX] field
    out.append(<const char *>field, put_varint(put_varint(field, tag), size) - field)


cdef int put_header(string *out, Span header, size_t count) except -1 nogil:
    """The header with another number of rows."""
    cdef Fields fields = fields_of(header)
    cdef WireField field
    cdef Span whole
    cdef Prop prop
    cdef Span key = span_at(ROWS_COUNT, 9)
    cdef uint8_t[DIGITS_MAX] digits
    cdef uint8_t[64] pair
    cdef uint8_t *end
    cdef string changed
    while checked(next_field(&fields, &field, &whole)):
        if field.tag == HEADER_PROPS:
            if not get_prop(span_of(&field), &prop):
                malformed()
            if is_same(prop.key, key):
                put_decimal(digits, count)
                end = put_bytes(pair, KEY, key.data, key.size)
                end = put_bytes(end, PAIR_VALUE, digits, decimal_size(count))
                put_length(&changed, HEADER_PROPS, end - pair)
                changed.append(<const char *>pair, end - pair)
                continue
        put(&changed, whole)
    put_length(out, HEADER, changed.size())
    out.append(changed)
    return 0


cdef int cut_entry(string *out, Span framed, const vector[uint8_t] &kept, size_t count, Span more) except -1 nogil:
    cdef Fields fields = fields_of(framed)
    cdef WireField field
    cdef Span message, whole
    cdef Entry entry
    cdef string header
    cdef size_t size = more.size
    cdef size_t row = 0
    cdef size_t entry_size
    if not checked(next_entry(&fields, &message)) or not get_entry(message, &entry):
        malformed()
    put_header(&header, entry.header, count)
    fields = fields_of(entry.body)
    while checked(next_field(&fields, &field, &whole)):
        if field.tag == ROW_DATAS:
            row += 1
            if row > kept.size():
                malformed()
            if not kept[row - 1]:
                continue
        size += whole.size
    entry_size = header.size() + varint_size(ENTRY_TYPE) + varint_size(entry.type)
    entry_size += varint_size(STORE_VALUE) + varint_size(size) + size
    put_length(out, MESSAGES, entry_size)
    out.append(header)
    put_length(out, ENTRY_TYPE, entry.type)
    put_length(out, STORE_VALUE, size)
    fields = fields_of(entry.body)
    row = 0
    while checked(next_field(&fields, &field, &whole)):
        if field.tag == ROW_DATAS:
            row += 1
            if not kept[row - 1]:
                continue
        put(out, whole)
    put(out, more)
    return 0
