"""Entries under other names: tables and columns that are called otherwise, and columns and rows that are left out.

An entry of rows is written anew field by field. Its lengths change at each level, so each level has a buffer of its
own, which is used again for the next entry. What the plan says nothing of is copied as it is, and so is what this
module does not know.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uint8_t, uint64_t
from libcpp.string cimport string
from libcpp.vector cimport vector

from ..wire cimport VARINT_MAX, Span, WireField, is_same, put_varint, span_at, span_of
from .entry cimport (
    Cell,
    Entry,
    Fields,
    Header,
    Marks,
    checked,
    fields_of,
    get_cell,
    get_entry,
    get_header,
    malformed,
    next_field,
    text_of,
)
from .tags cimport (
    AFTER_COLUMNS,
    BEFORE_COLUMNS,
    DELETE,
    HEADER,
    INSERT,
    MESSAGES,
    NAME,
    ROW_DATAS,
    ROWDATA,
    SCHEMA_NAME,
    STORE_VALUE,
    TABLE_NAME,
)


cdef struct Column:
    string name
    string written                                 # empty: it is left out


@cython.final
cdef class Plan:
    """What becomes of the changes of a table."""

    cdef string schema
    cdef string table
    cdef vector[Column] columns
    cdef uint64_t left_out                         # a bit for each type of event

    def __init__(self, str schema, str table, columns=(), left_out=()):
        """Make it.

        schema, table: what the table is to be called.
        columns: names of columns, and what they are to be called; empty to leave one out.
        left_out: types of events, of which an entry has no rows then.
        """
        cdef Column column
        self.schema = schema.encode()
        self.table = table.encode()
        for name, written in columns:
            column.name = name.encode()
            column.written = written.encode()
            self.columns.push_back(column)
        for kind in left_out:
            self.left_out |= <uint64_t>1 << <int>kind


@cython.final
cdef class Rewriter:
    """Writes entries anew, as plans say."""

    cdef object _find
    cdef dict _plans
    cdef string _entry
    cdef string _header
    cdef string _body
    cdef string _row
    cdef string _column

    def __init__(self, find):
        """``find`` returns the plan of a table by its schema and name, or None; it is asked once for each."""
        self._find = find
        self._plans = {}

    def rewrite(self, data, *, bint statements=False):
        """Return framed entries, as of `Messages`, as the plans say; None if they stay as they are.

        statements: rename the tables of statements in their headers, too. Raises DecodeError.
        """
        cdef Py_buffer view
        cdef string out
        cdef Fields batch
        cdef WireField field
        cdef Span whole, message
        cdef Entry entry
        cdef Header header
        cdef Marks marks
        cdef Plan plan
        cdef bint is_changed = False
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            batch = fields_of(span_at(<const char *>view.buf, view.len))
            while checked(next_field(&batch, &field, &whole)):
                plan = None
                if field.tag == MESSAGES:
                    message = span_of(&field)
                    if not get_entry(message, &entry):
                        malformed()
                    if entry.type == ROWDATA:
                        if not get_header(&entry, &header, &marks):
                            malformed()
                        if statements or INSERT <= header.event_type <= DELETE:
                            plan = self.plan(header.schema, header.table)
                if plan is None:
                    append(&out, whole)
                else:
                    is_changed = True
                    self.write(&out, message, header.event_type, plan)
            return <bytes>out if is_changed else None
        finally:
            PyBuffer_Release(&view)

    cdef Plan plan(self, Span schema, Span table):
        cdef bytes key = schema.data[:schema.size] + b"\0" + table.data[:table.size]
        try:
            return self._plans[key]
        except KeyError:
            found = self._plans[key] = self._find(text_of(schema), text_of(table))
            return found

    cdef int write(self, string *out, Span message, uint64_t event_type, Plan plan) except -1:
        """Write an entry."""
        cdef Fields fields = fields_of(message)
        cdef WireField field
        cdef Span whole
        cdef bint is_left_out = event_type < 64 and (plan.left_out >> event_type) & 1
        self._entry.clear()
        while checked(next_field(&fields, &field, &whole)):
            if field.tag == HEADER:
                self.write_header(span_of(&field), plan)
                append_message(&self._entry, HEADER, &self._header)
            elif field.tag == STORE_VALUE:
                self.write_body(span_of(&field), plan, is_left_out)
                append_message(&self._entry, STORE_VALUE, &self._body)
            else:
                append(&self._entry, whole)
        append_message(out, MESSAGES, &self._entry)
        return 0

    cdef int write_header(self, Span header, Plan plan) except -1:
        cdef Fields fields = fields_of(header)
        cdef WireField field
        cdef Span whole
        self._header.clear()
        while checked(next_field(&fields, &field, &whole)):
            if field.tag == SCHEMA_NAME:
                append_message(&self._header, SCHEMA_NAME, &plan.schema)
            elif field.tag == TABLE_NAME:
                append_message(&self._header, TABLE_NAME, &plan.table)
            else:
                append(&self._header, whole)
        return 0

    cdef int write_body(self, Span body, Plan plan, bint is_left_out) except -1:
        """Write the change of an entry, with or without its rows."""
        cdef Fields fields = fields_of(body)
        cdef WireField field
        cdef Span whole
        self._body.clear()
        while checked(next_field(&fields, &field, &whole)):
            if field.tag != ROW_DATAS or (not is_left_out and plan.columns.empty()):
                append(&self._body, whole)
            elif not is_left_out:
                self.write_row(span_of(&field), plan)
                append_message(&self._body, ROW_DATAS, &self._row)
        return 0

    cdef int write_row(self, Span row, Plan plan) except -1:
        cdef Fields fields = fields_of(row)
        cdef WireField field
        cdef Span whole, column
        cdef Cell cell
        cdef size_t i
        self._row.clear()
        while checked(next_field(&fields, &field, &whole)):
            if field.tag != BEFORE_COLUMNS and field.tag != AFTER_COLUMNS:
                append(&self._row, whole)
                continue
            column = span_of(&field)
            if not get_cell(column, &cell):
                malformed()
            for i in range(plan.columns.size()):
                if is_same(cell.name, span_at(plan.columns[i].name.data(), plan.columns[i].name.size())):
                    if not plan.columns[i].written.empty():
                        self.write_column(column, &plan.columns[i].written)
                        append_message(&self._row, field.tag, &self._column)
                    break
            else:
                append(&self._row, whole)
        return 0

    cdef int write_column(self, Span column, string *name) except -1:
        cdef Fields fields = fields_of(column)
        cdef WireField field
        cdef Span whole
        self._column.clear()
        while checked(next_field(&fields, &field, &whole)):
            if field.tag == NAME:
                append_message(&self._column, NAME, name)
            else:
                append(&self._column, whole)
        return 0


cdef inline int append(string *out, Span span) except -1:
    out.append(<const char *>span.data, span.size)
    return 0


cdef inline int append_message(string *out, uint64_t tag, const string *message) except -1:
    cdef uint8_t head[2 * VARINT_MAX]
    cdef uint8_t *end = put_varint(put_varint(head, tag), message.size())
    out.append(<const char *>head, end - head)
    out.append(message.data(), message.size())
    return 0
